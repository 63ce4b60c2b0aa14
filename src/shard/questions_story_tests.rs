//! Which node pops after an absence, and which of two nodes whose turn it is: one of them, and
//! nothing that others have changed.

use crate::base::ids::TimerId;
use crate::base::limits::ClusterLimits;
use crate::base::time::Tick;
use crate::cluster::detector::Liveness;
use crate::shard::effects::{Answer, CallbackOutcome, Refusal, Request};
use crate::shard::harness_tests::{Cluster, START_MS, target, tell};
use crate::shard::parts::questions::Questions;
use crate::wire::peer_message::{PeerMessage, PeerResult, decode_result};

const IDS: std::ops::Range<u64> = 1..20;

/// Each pop: node, and sequence number.
fn pops(cluster: &Cluster) -> Vec<(usize, u64)> {
    cluster.pops.iter().map(|pop| (pop.1, pop.2)).collect()
}

fn run_ms(cluster: &mut Cluster, until_ms: u64) {
    cluster.now_ms = START_MS + until_ms;
    (0..cluster.nodes.len()).for_each(|node| cluster.tick(node));
}

/// A timer is deleted or replaced while its first rank is frozen, and comes due just after that
/// rank wakes. The rank asks before it pops, whether it was to hold the timer alone or with others.
#[test]
fn a_woken_node_pops_nothing_that_others_have_changed() {
    for (id, factor, is_deleted) in
        IDS.flat_map(|id| [(id, 1, true), (id, 2, true), (id, 2, false), (id, 3, false)])
    {
        let id = TimerId(id);
        let mut cluster = Cluster::new(3, true);
        let [first, second, third] = cluster.list(id)[..] else { panic!("three nodes") };
        cluster.put(second, id, (10, 10), factor);
        cluster.run_until(3);
        cluster.freeze(first);
        cluster.run_until(7);
        if is_deleted {
            let answer = cluster.ask(third, Request::Delete(target(id, factor)));
            assert!(matches!(answer, Answer::Done { .. }));
        } else {
            cluster.put(third, id, (60, 60), factor);
        }
        run_ms(&mut cluster, 9_950);
        cluster.thaw(first);
        cluster.run_until(12);
        assert_eq!(pops(&cluster), [], "{id:?} of {factor}");
        cluster.meet(first);
        cluster.run_until(60);
        assert_eq!(pops(&cluster), []);
        cluster.run_until(100);
        assert_eq!(cluster.pops.len(), usize::from(!is_deleted), "{:?}", cluster.pops);
        cluster.audit();
    }
}

/// Two nodes, of which the first rank of a timer got no time, and does not reach the other one.
fn woken_apart(id: TimerId, repeat_for_s: u64) -> (Cluster, [usize; 2]) {
    let mut cluster = Cluster::new(2, true);
    let [first, second] = cluster.list(id)[..] else { panic!("two nodes") };
    cluster.put(first, id, (10, repeat_for_s), 2);
    cluster.run_until(3);
    cluster.freeze(first);
    cluster.run_until(9);
    cluster.cuts.push((first, second));
    cluster.thaw(first);
    cluster.believe(first, second, Liveness::Suspect);
    (cluster, [first, second])
}

/// The nodes that a woken core has to ask cannot be reached yet. The core waits until they can, or
/// are dead by its own count.
#[test]
fn a_woken_node_waits_until_the_others_can_be_asked_or_are_dead() {
    for dies in [false, true] {
        let id = TimerId(7);
        let (mut cluster, [first, second]) = woken_apart(id, 30);
        let read = Request::Read(target(id, 2));
        assert_eq!(cluster.ask(first, read), Answer::Refused(Refusal::NoReplica));
        run_ms(&mut cluster, 11_500);
        assert_eq!(pops(&cluster), []);
        cluster.cuts.clear();
        let liveness = if dies { Liveness::Dead } else { Liveness::Alive };
        cluster.believe(first, second, liveness);
        cluster.believe(second, first, liveness);
        [11_600, 11_700, 11_800].into_iter().for_each(|ms| run_ms(&mut cluster, ms));
        assert_eq!(pops(&cluster), [(first, 1)]);
        assert!(matches!(cluster.ask(first, read), Answer::Found(_)));
    }
}

/// The other node has fallen silent, and its machine takes dials or refuses them: the process gets
/// no time there, or has gone. Of the first nobody knows whether it has popped meanwhile.
#[test]
fn a_woken_node_waits_longer_for_one_that_is_silent_than_for_one_that_has_gone() {
    for (is_listening, first_pop_ms) in [(false, 12_000), (true, 17_000)] {
        let (mut cluster, [first, second]) = woken_apart(TimerId(7), 60);
        let peer = cluster.peer(first, second).expect("a member");
        cluster.shard(first).note_listening(peer, is_listening);
        for ms in (9_100..=20_000).step_by(100) {
            if ms == 12_000 {
                cluster.believe(first, second, Liveness::Dead);
            }
            cluster.now_ms = START_MS + ms;
            cluster.tick(first);
            assert_eq!(!cluster.pops.is_empty(), ms >= first_pop_ms, "{is_listening} {ms}");
        }
        // Some time after its return silence is a death as ever.
        assert_eq!(cluster.shard(first).questions.open.len(), 0);
        assert_eq!(pops(&cluster), [(first, 1), (first, 2)]);
    }
}

/// A read through a node that has just woken is answered by the nodes that know.
#[test]
fn a_woken_node_answers_no_read_from_what_it_held() {
    for id in IDS.map(TimerId) {
        let mut cluster = Cluster::new(3, true);
        let [first, second, third] = cluster.list(id)[..] else { panic!("three nodes") };
        cluster.put(first, id, (100, 100), 2);
        cluster.run_until(3);
        cluster.freeze(first);
        cluster.put(third, id, (200, 200), 2);
        cluster.run_until(20);
        cluster.thaw(first);
        let read = Request::Read(target(id, 2));
        for node in [first, second, third] {
            match cluster.ask(node, read) {
                Answer::Found(view) => assert_eq!(view.interval_ms, 200_000),
                other => panic!("{other:?}"),
            }
        }
        cluster.run_until(21);
        cluster.freeze(first);
        let delete = cluster.ask(third, Request::Delete(target(id, 2)));
        assert!(matches!(delete, Answer::Done { .. }));
        cluster.run_until(40);
        cluster.thaw(first);
        for node in [first, second, third] {
            assert_eq!(cluster.ask(node, read), Answer::NotFound);
        }
    }
}

/// All nodes of a machine freeze and wake together, and ask each other: the first rank pops.
#[test]
fn of_those_that_wake_together_one_pops() {
    for id in IDS.map(TimerId) {
        for factor in [2, 3] {
            let mut cluster = Cluster::new(3, true);
            let list = cluster.list(id);
            cluster.put(0, id, (10, 30), factor);
            cluster.run_until(3);
            cluster.now_ms = START_MS + 15_000;
            cluster.run_until(40);
            assert_eq!(pops(&cluster), [(list[0], 1), (list[0], 2), (list[0], 3)]);
            assert!(cluster.pops[0].0 == 15 && cluster.pops[1].0 == 20, "{:?}", cluster.pops);
            cluster.audit();
        }
    }
}

/// The first rank still waits for its callback's answer as the second rank's turn comes.
#[test]
fn a_rank_does_not_begin_a_pop_that_another_one_makes() {
    for outcome in [CallbackOutcome::Delivered, CallbackOutcome::Rejected] {
        let mut cluster = Cluster::new(3, true);
        let id = TimerId(7);
        let list = cluster.list(id);
        cluster.put(0, id, (10, 10), 2);
        cluster.hung = Some(list[0]);
        cluster.run_until(13);
        assert_eq!(cluster.pops, [(10, list[0], 1)]);
        cluster.answer_callbacks(outcome);
        cluster.run_until(30);
        match outcome {
            CallbackOutcome::Delivered => assert_eq!(cluster.pops, [(10, list[0], 1)]),
            _ => assert_eq!(cluster.pops, [(10, list[0], 1), (13, list[1], 1)]),
        }
        cluster.audit();
    }
}

/// The first rank never gets an answer. A callback cannot take longer than this.
#[test]
fn a_rank_waits_for_another_one_no_longer_than_a_callback_may_take() {
    let mut cluster = Cluster::new(2, true);
    let id = TimerId(7);
    let list = cluster.list(id);
    cluster.put(0, id, (10, 10), 2);
    cluster.hung = Some(list[0]);
    cluster.run_until(14);
    assert_eq!(cluster.pops, [(10, list[0], 1)]);
    cluster.run_until(16);
    assert_eq!(cluster.pops, [(10, list[0], 1), (15, list[1], 1)]);
}

/// A node returns, and only one of its stand-ins knows. The other stand-in believes it dead, and
/// would go on popping beside it.
#[test]
fn a_timer_is_handed_to_a_returned_node_when_all_that_hold_it_know_of_the_return() {
    for id in (1..40).map(TimerId) {
        let mut cluster = Cluster::new(3, true);
        let [returning, first, second] = cluster.list(id)[..] else { panic!("three nodes") };
        cluster.kill(returning);
        cluster.put(first, id, (5, 50), 2);
        let (knowing, other) = (second, first);
        cluster.cuts.push((other, returning));
        cluster.start(returning);
        cluster.believe(knowing, returning, Liveness::Alive);
        cluster.believe(returning, knowing, Liveness::Alive);
        cluster.believe(returning, other, Liveness::Suspect);
        cluster.run_until(4);
        cluster.cuts.clear();
        cluster.meet(returning);
        cluster.run_until(70);
        let seen: Vec<_> = cluster.pops.iter().map(|pop| (pop.0, pop.2)).collect();
        assert_eq!(seen, (1..=10).map(|pop| (5 * pop, pop)).collect::<Vec<_>>(), "{id:?}");
        cluster.audit();
    }
}

/// A rank that comes first tells of an overdue timer, which it is about to pop. The other rank
/// waits for it even if it does not believe it alive, but no longer than it takes to suspect a
/// node.
#[test]
fn a_rank_waits_for_one_before_it_that_has_come_back_unnoticed() {
    let mut cluster = Cluster::new(2, true);
    let id = TimerId(7);
    let [first, second] = cluster.list(id)[..] else { panic!("two nodes") };
    cluster.put(0, id, (10, 10), 2);
    cluster.believe(second, first, Liveness::Suspect);
    cluster.nodes[first].shard.as_mut().expect("it is up").stop_popping();
    cluster.run_until(11);
    (11_100..=11_500).step_by(100).for_each(|ms| run_ms(&mut cluster, ms));
    let asker = cluster.peer(second, first);
    let shard = cluster.nodes[second].shard.as_mut().expect("it is up");
    let slot = shard.find(id).expect("it is held");
    let standing = shard.standing_of(shard.records.get(slot));
    assert!(!shard.is_on_it(slot, asker, (&standing, false)));
    (11_600..=12_300).step_by(100).for_each(|ms| run_ms(&mut cluster, ms));
    assert_eq!(pops(&cluster), []);
    cluster.run_until(13);
    assert_eq!(pops(&cluster), [(second, 1)]);
}

/// Two nodes start after a common end. The second asks the first, which does not reach the second
/// yet, so that the first could not tell of the pop that it is about to make.
#[test]
fn a_node_that_cannot_tell_the_asker_what_it_will_do_does_not_let_it_pop() {
    let mut cluster = Cluster::new(2, true);
    let id = TimerId(7);
    let [first, second] = cluster.list(id)[..] else { panic!("two nodes") };
    cluster.put(0, id, (10, 10), 2);
    let shard = cluster.shard(second);
    let slot = shard.find(id).expect("it is held");
    let mut question = Vec::new();
    PeerMessage::Standing(shard.standing_of(shard.records.get(slot))).encode(&mut question);
    for (liveness, answer) in [
        (Liveness::Dead, PeerResult::Ahead),
        (Liveness::Suspect, PeerResult::Ahead),
        (Liveness::Alive, PeerResult::Held),
    ] {
        cluster.believe(first, second, liveness);
        let (now, asker) = (cluster.now(), cluster.peer(first, second));
        let (told, _) = tell(cluster.shard(first), now, asker, &question);
        assert_eq!(decode_result(&mut &told[..]), Ok(answer), "{liveness:?}");
    }
}

#[test]
fn a_core_is_fresh_for_twice_as_long_as_a_death_takes_to_be_seen() {
    let limits = ClusterLimits::default();
    let questions = Questions::new(Tick(1_000), &limits);
    assert!(questions.is_fresh(Tick(1_000)));
    assert!(questions.is_fresh(Tick(999 + 2 * limits.dead_after_ms)));
    assert!(!questions.is_fresh(Tick(1_000 + 2 * limits.dead_after_ms)));
}

#[test]
fn what_is_to_be_asked_about_wakes_a_core() {
    let mut questions = Questions::default();
    assert!(questions.is_idle() && questions.next_wake().is_none());
    questions.was_away(Tick(1_000), Some(Tick(9_000)));
    assert!(!questions.is_idle());
    assert_eq!(questions.next_wake(), Some(Tick(1)), "in the tick after the last portion");
}

/// A woken node has got a timer since, and is not connected with the other rank of the timer yet.
#[test]
fn a_woken_node_asks_about_what_it_has_heard_of_since() {
    let mut cluster = Cluster::new(2, true);
    let (first, second) = (0, 1);
    let id = (0..100).map(TimerId).find(|&id| cluster.list(id)[0] == first).expect("half of them");
    cluster.freeze(first);
    run_ms(&mut cluster, 4_000);
    cluster.put(second, id, (1, 3), 2);
    run_ms(&mut cluster, 4_900);
    cluster.thaw(first);
    cluster.tick(first);
    let now = cluster.now().mono.tick_floor();
    assert!(cluster.shard(first).questions.is_fresh(now));
    cluster.meet(first);
    run_ms(&mut cluster, 4_950);
    cluster.believe(first, second, Liveness::Suspect);
    let now = cluster.now().mono.tick_floor();
    let shard = cluster.shard(first);
    let slot = shard.find(id).expect("it was told");
    let record = *shard.records.get(slot);
    let asked = shard.whom_to_ask(now, &record, false);
    assert_eq!(asked.iter().count(), 1, "though it is not connected with it");
}
