//! What ranks, masks and lists do.

use super::effects::{Answer, CallbackOutcome, Event, Refusal, Request, Target};
use super::harness_tests::{Cluster, FROM, START_MS, content, definition};
use crate::base::ids::TimerId;
use crate::cluster::detector::Liveness;

/// The story of A, B and C (docs/compat/timer-service.md §8); A returns at `returns_at`.
fn story(promotion: bool, returns_at: u64) -> Vec<(u64, char, u64)> {
    let mut cluster = Cluster::new(3, promotion);
    let id = cluster.create(0, (20, 120), 3);
    let list = cluster.list(id);
    let [a, b, c] = list[..] else { panic!("three replicas") };
    cluster.run_until(30);
    cluster.kill(a);
    cluster.run_until(50);
    cluster.cut(b, c, true);
    cluster.run_until(70);
    cluster.cut(b, c, false);
    cluster.run_until(returns_at);
    cluster.return_empty(a);
    cluster.run_until(300);
    cluster.audit();
    assert!(cluster.holders(id).is_empty(), "the last pop ends the timer everywhere");
    let letter = |node| ['A', 'B', 'C'][list.iter().position(|&n| n == node).expect("a replica")];
    cluster.pops.iter().map(|&(second, node, sequence)| (second, letter(node), sequence)).collect()
}

#[test]
fn the_story_of_a_b_and_c_comes_out_second_for_second() {
    for returns_at in [84, 90, 99, 101] {
        assert_eq!(
            story(false, returns_at),
            [
                (20, 'A', 1),
                (42, 'B', 2),
                (62, 'B', 3),
                (64, 'C', 3),
                (82, 'B', 4),
                (102, 'B', 5),
                (120, 'A', 6),
            ]
        );
    }
}

#[test]
fn with_promotion_only_the_first_pop_after_a_death_is_late() {
    assert_eq!(
        story(true, 90),
        [
            (20, 'A', 1),
            (42, 'B', 2),
            (60, 'B', 3),
            (62, 'C', 3),
            (80, 'B', 4),
            (100, 'B', 5),
            (120, 'A', 6),
        ]
    );
}

#[test]
fn one_pop_by_one_node_when_nothing_is_wrong() {
    let mut cluster = Cluster::new(3, true);
    let ids: Vec<_> = (0..20).map(|at| cluster.create(at % 3, (10, 30), 2)).collect();
    cluster.run_until(60);
    assert_eq!(cluster.pops.len(), 60, "{:?}", cluster.pops);
    assert!(cluster.pops.iter().all(|(second, _, sequence)| *second == 10 * sequence));
    assert!(ids.iter().all(|&id| cluster.holders(id).is_empty()));
    cluster.audit();
}

#[test]
fn a_delete_through_any_node_ends_it_everywhere() {
    let mut cluster = Cluster::new(4, true);
    for node in 0..4 {
        let id = cluster.create(0, (10, 30), 2);
        assert_eq!(cluster.holders(id).len(), 2);
        let target = Target { id, factor: None, filter: None };
        assert!(matches!(cluster.ask(node, Request::Delete(target)), Answer::Done { .. }));
        assert!(cluster.holders(id).is_empty());
        assert_eq!(cluster.ask(3 - node, Request::Read(target)), Answer::NotFound);
    }
    cluster.run_until(40);
    assert!(cluster.pops.is_empty());
    cluster.audit();
}

#[test]
fn a_failed_callback_goes_to_the_next_rank_after_two_seconds() {
    let mut cluster = Cluster::new(3, true);
    let id = cluster.create(1, (10, 20), 3);
    let list = cluster.list(id);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    cluster.run_until(11);
    cluster.outcome = |_, _| CallbackOutcome::Delivered;
    cluster.run_until(40);
    assert_eq!(cluster.pops, [(10, list[0], 1), (12, list[1], 1), (20, list[0], 2)]);
}

#[test]
fn a_callback_that_fails_on_every_rank_pops_again_at_the_next_interval() {
    let mut cluster = Cluster::new(3, true);
    let id = cluster.create(1, (20, 40), 2);
    let list = cluster.list(id);
    cluster.outcome = |_, sequence| match sequence {
        1 => CallbackOutcome::Rejected,
        _ => CallbackOutcome::Delivered,
    };
    cluster.run_until(100);
    assert_eq!(cluster.pops.first(), Some(&(20, list[0], 1)));
    // The pop is made once, by either node: a node that gives a pop up leaves the next one to the
    // others.
    let second: Vec<_> = cluster.pops.iter().filter(|pop| pop.2 == 2).collect();
    assert!(matches!(second[..], [&(40, node, 2)] if list[..2].contains(&node)), "{second:?}");
}

#[test]
fn a_joining_node_gets_its_share_and_the_count_is_kept() {
    let mut cluster = Cluster::new(4, true);
    for node in 0..4 {
        let view = cluster.view_of(node, 3.max(node + 1), None);
        cluster.nodes[node].view = view.clone();
        cluster.start(node);
    }
    (0..4).for_each(|node| cluster.meet(node));
    let ids: Vec<_> = (0..100).map(|at| cluster.create(at % 3, (100, 300), 2)).collect();
    assert!(ids.iter().all(|&id| !cluster.holders(id).contains(&3)));
    for node in 0..3 {
        let former = cluster.nodes[node].view.clone();
        let view = cluster.view_of(node, 4, Some(&former));
        cluster.nodes[node].view = view.clone();
        cluster.handle(node, Event::View(view));
        cluster.meet(node);
        assert!(ids.iter().all(|&id| cluster.holders(id).len() >= 2), "after {node}");
    }
    for second in 1..40 {
        cluster.run_until(second);
        assert!(ids.iter().all(|&id| cluster.holders(id).len() >= 2), "at {second}");
    }
    let view = cluster.nodes[0].view.clone();
    for &id in &ids {
        let right = view.peers_of(&view.place(id, 2, view.new_nodes()));
        let held = cluster.holders(id).into_iter();
        let held: Vec<_> = held.filter_map(|node| cluster.peer(0, node)).collect();
        assert_eq!(held.len(), 2);
        assert!(held.iter().all(|&peer| right.contains(peer)));
    }
    cluster.run_until(350);
    assert_eq!(cluster.pops.len(), 300);
    assert!(cluster.pops.iter().all(|(second, _, sequence)| *second == 100 * sequence));
    cluster.audit();
}

/// A write reaches its only holder, whose answer does not come back, and another node stands in.
/// Both nodes pop, as on two sides of a split, but neither ever makes a pop with a lower number
/// than before.
#[test]
fn a_write_made_again_for_a_node_that_is_only_mute_goes_on_where_that_one_is() {
    let mut cluster = Cluster::new(3, true);
    let content = content();
    let id = TimerId(7);
    let [holder, _, asked] = cluster.list(id)[..] else { panic!("three nodes") };
    cluster.mute = Some(holder);
    let target = Target { id, factor: Some(1), filter: None };
    let request = Request::Update(target, definition((1, 20), 1, &content));
    cluster.handle(asked, Event::Request { from: FROM, request });
    cluster.run_until(4);
    assert_eq!(cluster.pops.last().map(|pop| (pop.1, pop.2)), Some((holder, 4)));
    assert!(cluster.answers.is_empty());
    cluster.end_of_silence(false);
    assert!(matches!(cluster.answers.pop(), Some(Answer::Done { .. })));
    cluster.run_until(6);
    assert_eq!(cluster.holders(id).len(), 2, "both hold it");
    cluster.end_of_silence(true);
    cluster.run_until(30);
    for node in 0..3 {
        let of_node = cluster.pops.iter().filter(|pop| pop.1 == node).map(|pop| pop.2);
        assert!(of_node.is_sorted_by(|one, next| one < next), "{:?}", cluster.pops);
    }
    assert_eq!(cluster.pops.last().map(|pop| pop.2), Some(20));
    assert!(cluster.holders(id).is_empty());
    cluster.audit();
}

/// The connections of a node broke while the node was away. That says nothing of the others. The
/// node answers a write when the others have it, and not alone.
#[test]
fn a_node_that_was_away_does_not_answer_a_write_that_only_it_has() {
    let mut cluster = Cluster::new(2, true);
    cluster.run_until(1);
    cluster.now_ms += 20_000;
    cluster.mute = Some(1);
    let content = content();
    let request = Request::Create(definition((10, 30), 2, &content));
    cluster.handle(0, Event::Request { from: FROM, request });
    cluster.believe(0, 1, Liveness::Suspect);
    assert_eq!(cluster.answers, []);
    cluster.end_of_silence(true);
    assert!(matches!(cluster.answers.pop(), Some(Answer::Done { .. })));
    // A node that was not away waits for no suspected node.
    cluster.run_until(25);
    cluster.mute = Some(1);
    let request = Request::Create(definition((10, 30), 2, &content));
    cluster.handle(0, Event::Request { from: FROM, request });
    assert_eq!(cluster.answers, []);
    cluster.believe(0, 1, Liveness::Suspect);
    assert!(matches!(cluster.answers.pop(), Some(Answer::Done { .. })));
}

/// What a core could not tell because it was away says nothing of the peer. The write is told again
/// and refused in the end. The node that has the write alone never answers it.
#[test]
fn a_write_that_an_absence_dropped_is_told_again() {
    let mut cluster = Cluster::new(2, true);
    cluster.run_until(1);
    cluster.now_ms += 20_000;
    cluster.cuts.push((0, 1));
    let content = content();
    let request = Request::Create(definition((10, 30), 2, &content));
    assert_eq!(cluster.ask(0, request), Answer::Refused(Refusal::Unanswered));
}

/// The replica's core gets no time, while other cores tell that its node lives.
#[test]
fn a_write_that_a_living_replica_does_not_answer_is_refused_in_the_end() {
    let mut cluster = Cluster::new(2, true);
    cluster.mute = Some(1);
    let content = content();
    let request = Request::Create(definition((60, 60), 2, &content));
    cluster.handle(0, Event::Request { from: FROM, request });
    cluster.run_until(7);
    assert_eq!(cluster.answers, []);
    cluster.run_until(10);
    assert_eq!(cluster.answers, [Answer::Refused(Refusal::Unanswered)]);
    let target = Target { id: TimerId(7), factor: None, filter: None };
    cluster.answers.clear();
    cluster.handle(0, Event::Request { from: FROM, request: Request::Read(target) });
    assert_eq!(cluster.answers, []);
    cluster.run_until(14);
    assert_eq!(cluster.answers, [Answer::Refused(Refusal::NoReplica)]);
}

/// A core that gets a turn every four seconds holds a pop back twice, so that other nodes can tell
/// of it.
#[test]
fn a_starved_core_pops_late_rather_than_never() {
    let mut cluster = Cluster::new(2, true);
    let id = cluster.create(0, (10, 10), 2);
    let holder = cluster.list(id)[0];
    cluster.nodes[1 - holder].shard = None;
    cluster.run_until(1);
    for second in [5, 9, 13, 17, 21] {
        cluster.now_ms = START_MS + second * 1_000;
        cluster.tick(holder);
    }
    assert_eq!(cluster.pops, [(21, holder, 1)]);
}

/// Two nodes are dead in turn. The node that stood in for the first stands in for the second, and
/// two nodes hold the timer all the time.
#[test]
fn a_stand_in_stays_while_another_of_the_right_holders_is_dead() {
    let mut cluster = Cluster::new(3, true);
    cluster.kill(0);
    let is_meant = |cluster: &Cluster, id, node| cluster.list(id)[..2].contains(&node);
    let mut ids: Vec<_> = (0..60).map(|at| cluster.create(1 + at % 2, (100, 300), 2)).collect();
    ids.retain(|&id| is_meant(&cluster, id, 0));
    assert!(ids.len() > 20);
    cluster.kill(1);
    cluster.return_empty(0);
    for second in 1..20 {
        cluster.run_until(second);
        assert!(ids.iter().all(|&id| cluster.holders(id).contains(&2)), "at {second}");
    }
    assert!(ids.iter().all(|&id| cluster.holders(id) == [0, 2]));
    cluster.return_empty(1);
    cluster.run_until(60);
    for &id in &ids {
        let right: Vec<_> = (0..3).filter(|node| is_meant(&cluster, id, *node)).collect();
        assert_eq!(cluster.holders(id), right);
    }
    cluster.run_until(350);
    assert_eq!(cluster.pops.len(), 180, "each once");
    cluster.audit();
}

/// A timer is on its way home from two stand-ins as one of its right nodes dies. The other right
/// node has a copy, and must not pop it beside the stand-ins.
#[test]
fn a_copy_that_an_ended_move_has_left_is_told_of_pops() {
    let mut cluster = Cluster::new(4, true);
    let id = TimerId(7);
    let content = content();
    let view = cluster.nodes[0].view.clone();
    let right = view.peers_of(&view.place(id, 2, view.new_nodes()));
    let is_right = |node: usize| right.contains(cluster.peer(0, node).expect("a member"));
    let [a, b] = (0..4).filter(|&node| is_right(node)).collect::<Vec<_>>()[..] else { panic!() };
    let asked = (0..4).find(|&node| !is_right(node)).expect("a stand-in");
    cluster.kill(a);
    cluster.kill(b);
    let target = Target { id, factor: Some(2), filter: None };
    let request = Request::Update(target, definition((100, 300), 2, &content));
    assert!(matches!(cluster.ask(asked, request), Answer::Done { .. }));
    cluster.start(a);
    cluster.start(b);
    cluster.mute = Some(a);
    cluster.meet(a);
    cluster.meet(b);
    cluster.run_until(2);
    assert!(cluster.holders(id).contains(&b), "the move has begun");
    cluster.end_of_silence(false);
    cluster.mute = None;
    cluster.kill(a);
    cluster.run_until(350);
    let pops: Vec<_> = cluster.pops.iter().map(|pop| (pop.0, pop.2)).collect();
    assert_eq!(pops, [(100, 1), (200, 2), (300, 3)]);
    cluster.audit();
}

/// One of two right nodes dies for good as the other, come back empty, has got a timer from it. The
/// stand-in and the returned node, which did not hear of each other, agree on one list.
#[test]
fn a_stand_in_and_a_returned_holder_agree_when_the_other_dies_for_good() {
    for (id, is_first) in (1..20).flat_map(|id| [(TimerId(id), true), (TimerId(id), false)]) {
        let mut cluster = Cluster::new(3, true);
        let [first, second, stand_in] = cluster.list(id)[..] else { panic!("three nodes") };
        let (returning, dying) = if is_first { (first, second) } else { (second, first) };
        cluster.kill(returning);
        let content = content();
        let target = Target { id, factor: Some(2), filter: None };
        let request = Request::Update(target, definition((10, 100), 2, &content));
        assert!(matches!(cluster.ask(dying, request), Answer::Done { .. }));
        cluster.cuts.push((dying, stand_in));
        cluster.start(returning);
        cluster.believe(dying, returning, Liveness::Alive);
        cluster.believe(returning, dying, Liveness::Alive);
        cluster.run_until(2);
        assert_eq!(cluster.holders(id).len(), 3, "the stand-in has not heard of the move");
        cluster.cuts.clear();
        cluster.kill(dying);
        cluster.meet(returning);
        cluster.run_until(150);
        let pops: Vec<_> = cluster.pops.iter().map(|pop| (pop.0, pop.2)).collect();
        assert_eq!(pops, (1..=10).map(|pop| (10 * pop, pop)).collect::<Vec<_>>());
        cluster.audit();
    }
}

/// A timer is on its way to stand-ins as the right nodes return. The timer goes on to the right
/// nodes.
#[test]
fn a_move_that_was_overtaken_by_a_return_goes_on() {
    let mut cluster = Cluster::new(3, true);
    let id = TimerId(7);
    let [a, b, asked] = cluster.list(id)[..] else { panic!("three nodes") };
    cluster.kill(a);
    cluster.kill(b);
    let content = content();
    let target = Target { id, factor: Some(2), filter: None };
    let request = Request::Update(target, definition((100, 300), 2, &content));
    assert!(matches!(cluster.ask(asked, request), Answer::Done { .. }));
    cluster.start(a);
    cluster.start(b);
    cluster.mute = Some(b);
    cluster.believe(asked, b, Liveness::Alive);
    cluster.run_until(1);
    cluster.meet(a);
    cluster.run_until(2);
    assert_eq!(cluster.unheard.len(), 1, "one was asked, and has not answered");
    cluster.end_of_silence(true);
    // A node that does not know the stand-ins writes the timer before the new holder looks at it
    // again.
    let request = Request::Update(target, definition((100, 300), 2, &content));
    assert!(matches!(cluster.ask(a, request), Answer::Done { .. }));
    cluster.run_until(10);
    assert_eq!(cluster.holders(id), [a.min(b), a.max(b)]);
    cluster.run_until(350);
    assert_eq!(cluster.pops.len(), 3);
    cluster.audit();
}

#[test]
fn tags_count_every_timer_once_whoever_dies() {
    let mut cluster = Cluster::new(3, true);
    let ids: Vec<_> = (0..30).map(|at| cluster.create(at % 3, (1_000, 3_000), 2)).collect();
    assert_eq!(cluster.calls(), 90);
    cluster.audit();
    cluster.kill(1);
    assert_eq!(cluster.calls(), 90, "at once, not with the next pop");
    cluster.audit();
    cluster.return_empty(1);
    for second in 1..30 {
        cluster.run_until(second);
    }
    assert_eq!(cluster.calls(), 90);
    cluster.audit();
    for (at, &id) in ids.iter().enumerate() {
        let target = Target { id, factor: None, filter: None };
        assert!(matches!(cluster.ask(at % 3, Request::Delete(target)), Answer::Done { .. }));
    }
    assert_eq!(cluster.calls(), 0);
    let ended = cluster.create(0, (10, 30), 2);
    assert_eq!(cluster.calls(), 3);
    cluster.run_until(100);
    assert!(cluster.holders(ended).is_empty());
    assert_eq!(cluster.calls(), 0);
    cluster.audit();
}

#[test]
fn a_node_that_returns_empty_is_told_of_timers_and_of_tombstones() {
    let mut cluster = Cluster::new(2, true);
    let [live, ended] = [(); 2].map(|()| cluster.create(0, (100, 100), 2));
    let target = Target { id: ended, factor: Some(2), filter: None };
    assert!(matches!(cluster.ask(0, Request::Delete(target)), Answer::Done { .. }));
    cluster.kill(1);
    cluster.run_until(1);
    cluster.return_empty(1);
    cluster.run_until(4);
    let shard = cluster.shard(1);
    for (id, is_live) in [(live, true), (ended, false)] {
        let slot = shard.find(id).expect("it was told");
        assert_eq!(shard.records.get(slot).is_live(), is_live);
    }
    cluster.audit();
}
