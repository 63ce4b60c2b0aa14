//! What a read is answered, through every node.

use crate::base::ids::TimerId;
use crate::base::slots::SlotKey;
use crate::cluster::detector::Liveness;
use crate::shard::effects::{Answer, Event, Outbox, Purpose, Request, Target};
use crate::shard::harness_tests::{Cluster, FROM, content, definition, target};
use crate::wire::peer_message::{PeerMessage, PeerResult, decode_message};

const IDS: std::ops::Range<u64> = 1..60;

fn delete(cluster: &mut Cluster, node: usize, id: TimerId) {
    let answer = cluster.ask(node, Request::Delete(target(id, 2)));
    assert!(matches!(answer, Answer::Done { .. }), "{answer:?}");
}

/// What every node says of a timer: its interval.
fn reads(cluster: &mut Cluster, id: TimerId) -> Vec<Option<u64>> {
    let nodes = 0..cluster.nodes.len();
    let answers = nodes.map(|node| cluster.ask(node, Request::Read(target(id, 2))));
    let intervals = answers.map(|answer| match answer {
        Answer::Found(view) => Some(view.interval_ms / 1_000),
        Answer::NotFound => None,
        other => panic!("{other:?}"),
    });
    intervals.collect()
}

/// Timers are deleted while a node is away, and written anew after its return. Its stand-ins hold
/// tombstones, and are not told.
#[test]
fn a_tombstone_of_a_stand_in_does_not_hide_a_timer_that_was_written_anew() {
    let mut cluster = Cluster::new(3, true);
    for id in IDS.map(TimerId) {
        cluster.put(id.0 as usize % 3, id, (600, 600), 2);
    }
    cluster.kill(0);
    for id in IDS.map(TimerId) {
        delete(&mut cluster, 1 + id.0 as usize % 2, id);
    }
    cluster.return_empty(0);
    cluster.run_until(5);
    for id in IDS.map(TimerId) {
        assert_eq!(reads(&mut cluster, id), [None; 3]);
    }
    for id in IDS.map(TimerId) {
        cluster.put(id.0 as usize % 3, id, (700, 700), 2);
        assert_eq!(reads(&mut cluster, id), [Some(700); 3], "{id:?}");
    }
    cluster.run_until(60);
    for id in IDS.map(TimerId) {
        assert_eq!(reads(&mut cluster, id), [Some(700); 3], "{id:?}");
        assert_eq!(cluster.holders(id).len(), 2);
    }
    cluster.audit();
}

/// Other nodes told a node of an earlier state after its start. The node missed a write by
/// milliseconds: the node that took the write did not know yet that it is back.
#[test]
fn what_a_node_holds_that_has_just_started_hides_nothing_newer() {
    for is_deleted in [true, false] {
        let mut cluster = Cluster::new(3, true);
        for id in IDS.map(TimerId) {
            let [first, second, third] = cluster.list(id)[..] else { panic!("three nodes") };
            cluster.put(third, id, (600, 600), 2);
            if is_deleted {
                delete(&mut cluster, third, id);
            }
            let until = cluster.now().mono.tick_floor() + 1_000;
            cluster.shard(first).questions.be_fresh(until);
            cluster.cut(first, second, true);
            cluster.believe(second, first, Liveness::Suspect);
            cluster.put(second, id, (700, 700), 2);
            let answer = cluster.ask(third, Request::Read(target(id, 2)));
            let Answer::Found(view) = answer else { panic!("{id:?}: {answer:?}") };
            assert_eq!(view.interval_ms, 700_000, "{id:?}");
            cluster.cut(first, second, false);
            cluster.believe(second, first, Liveness::Alive);
        }
    }
}

/// A node that has just returned is on the list again and holds what it was told before the delete.
/// The tombstones of the others do not answer by themselves, because those nodes know the list
/// without it.
#[test]
fn a_newer_tombstone_answers_before_an_older_copy_of_a_node_that_has_just_started() {
    let mut cluster = Cluster::new(4, true);
    for id in IDS.map(TimerId) {
        let list = cluster.list(id);
        let [first, second, third] = list[..] else { panic!("three of four nodes") };
        let other = (0..4).find(|node| !list.contains(node)).expect("the fourth");
        let three = Target { id, factor: Some(3), filter: None };
        let content = content();
        let update = Request::Update(three, definition((600, 600), 3, &content));
        assert!(matches!(cluster.ask(other, update), Answer::Done { .. }));
        cluster.cut(first, second, true);
        cluster.cut(first, third, true);
        cluster.cut(first, other, true);
        for node in [second, third, other] {
            cluster.believe(node, first, Liveness::Dead);
        }
        let answer = cluster.ask(second, Request::Delete(three));
        assert!(matches!(answer, Answer::Done { .. }), "{answer:?}");
        let until = cluster.now().mono.tick_floor() + 1_000;
        cluster.shard(first).questions.be_fresh(until);
        for node in [second, third, other] {
            cluster.cut(first, node, false);
            cluster.believe(node, first, Liveness::Alive);
        }
        for node in [second, third, other] {
            assert_eq!(cluster.ask(node, Request::Read(three)), Answer::NotFound, "{id:?} {node}");
        }
        cluster.shard(first).questions = crate::shard::parts::questions::Questions::default();
    }
}

/// No other node has what was written through the node.
#[test]
fn what_only_a_node_holds_that_has_just_started_is_read_all_the_same() {
    let mut cluster = Cluster::new(3, true);
    let one = |id| Target { id, factor: Some(1), filter: None };
    for id in IDS.map(TimerId) {
        let holder = cluster.list(id)[0];
        let until = cluster.now().mono.tick_floor() + 1_000;
        cluster.shard(holder).questions.be_fresh(until);
        let content = content();
        let definition = definition((700, 700), 1, &content);
        assert!(matches!(
            cluster.ask(holder, Request::Update(one(id), definition)),
            Answer::Done { .. }
        ));
        for node in 0..3 {
            let answer = cluster.ask(node, Request::Read(one(id)));
            assert!(matches!(answer, Answer::Found(_)), "{id:?} {node}: {answer:?}");
        }
        assert!(matches!(cluster.ask(holder, Request::Delete(one(id))), Answer::Done { .. }));
        for node in 0..3 {
            assert_eq!(cluster.ask(node, Request::Read(one(id))), Answer::NotFound);
        }
    }
}

/// The same as with a stand-in, when a node joins.
#[test]
fn a_tombstone_of_a_former_holder_does_not_hide_a_timer_that_was_written_anew() {
    let mut cluster = Cluster::new(4, true);
    for node in 0..4 {
        cluster.nodes[node].view = cluster.view_of(node, 3.max(node + 1), None);
        cluster.start(node);
    }
    (0..4).for_each(|node| cluster.meet(node));
    for id in IDS.map(TimerId) {
        cluster.put(id.0 as usize % 3, id, (600, 600), 2);
        delete(&mut cluster, id.0 as usize % 3, id);
    }
    for node in 0..3 {
        let former = cluster.nodes[node].view.clone();
        let view = cluster.view_of(node, 4, Some(&former));
        cluster.nodes[node].view = view.clone();
        cluster.handle(node, crate::shard::effects::Event::View(view));
        cluster.meet(node);
    }
    cluster.run_until(20);
    for id in IDS.map(TimerId) {
        cluster.put(id.0 as usize % 4, id, (700, 700), 2);
        assert_eq!(reads(&mut cluster, id), [Some(700); 4], "{id:?}");
    }
    cluster.audit();
}

/// Tombstones do not move, and go on naming the node that has left.
#[test]
fn what_ended_before_a_node_left_is_not_found_when_it_has_left() {
    let mut cluster = Cluster::new(3, true);
    for id in IDS.map(TimerId) {
        cluster.put(id.0 as usize % 3, id, (600, 600), 2);
        delete(&mut cluster, id.0 as usize % 3, id);
    }
    cluster.kill(2);
    for node in 0..2 {
        let former = cluster.nodes[node].view.clone();
        let view = cluster.view_of(node, 2, Some(&former));
        cluster.nodes[node].view = view.clone();
        cluster.handle(node, Event::View(view));
    }
    for id in IDS.map(TimerId) {
        for node in 0..2 {
            let answer = cluster.ask(node, Request::Read(target(id, 2)));
            assert!(matches!(answer, Answer::NotFound), "{id:?} at node {node}: {answer:?}");
        }
    }
}

/// A stand-in has a timer's copy. The node that takes a write of the timer knows the right nodes
/// alone.
#[test]
fn a_stand_in_is_told_of_a_write_that_did_not_know_of_it() {
    for id in IDS.map(TimerId) {
        let mut cluster = Cluster::new(3, true);
        let [away, _, stand_in] = cluster.list(id)[..] else { panic!("three nodes") };
        cluster.kill(away);
        cluster.put(stand_in, id, (600, 600), 2);
        assert!(cluster.holders(id).contains(&stand_in));
        cluster.return_empty(away);
        cluster.put(away, id, (700, 700), 2);
        assert_eq!(reads(&mut cluster, id), [Some(700); 3], "{id:?}");
        delete(&mut cluster, away, id);
        assert_eq!(reads(&mut cluster, id), [None; 3], "{id:?}");
        cluster.audit();
    }
}

/// A node that holds a timer for others until they have it answers for them if they do not.
#[test]
fn a_read_finds_a_copy_that_only_a_passive_holder_has() {
    let mut cluster = Cluster::new(3, true);
    let id = TimerId(7);
    let [a, b, c] = cluster.list(id)[..] else { panic!("three nodes") };
    cluster.kill(a);
    cluster.kill(b);
    cluster.put(c, id, (600, 600), 2);
    cluster.start(a);
    cluster.start(b);
    cluster.meet(a);
    cluster.meet(b);
    assert_eq!(reads(&mut cluster, id), [Some(600); 3]);
    assert_eq!(cluster.ask(a, Request::Read(target(TimerId(8), 2))), Answer::NotFound);
}

#[test]
fn what_is_fetched_has_its_age_for_its_start() {
    let mut cluster = Cluster::new(2, true);
    let id = TimerId(7);
    cluster.put(0, id, (100, 100), 2);
    cluster.run_until(3);
    let now = cluster.now();
    let bytes = cluster.shard(1).fetched(now, id).expect("a live timer");
    match decode_message(&mut &bytes[..]) {
        Ok(PeerMessage::Copy(copy)) => assert_eq!(copy.start_ms, 3_000),
        other => panic!("{other:?}"),
    }
    delete(&mut cluster, 0, id);
    let now = cluster.now();
    assert!(cluster.shard(1).fetched(now, id).is_ok(), "the end of a timer is known, too");
    assert!(cluster.shard(1).fetched(now, TimerId(8)).is_err());
}

#[test]
fn a_holder_that_has_missed_nothing_answers_reads_by_itself() {
    let mut cluster = Cluster::new(2, true);
    let id = TimerId(7);
    cluster.put(0, id, (100, 100), 2);
    cluster.mute = Some(1);
    cluster.answers.clear();
    cluster.handle(0, Event::Request { from: FROM, request: Request::Read(target(id, 2)) });
    assert!(matches!(cluster.answers[..], [Answer::Found(_)]), "{:?}", cluster.answers);
}

#[test]
fn only_an_answer_of_whom_the_read_waits_for_counts() {
    let mut cluster = Cluster::new(3, true);
    let id = TimerId(7);
    let outside = cluster.list(id)[2];
    let (now, request) = (cluster.now(), Request::Read(target(id, 2)));
    let shard = cluster.shard(outside);
    let mut outbox = Outbox::default();
    shard.handle(now, Event::Request { from: FROM, request }, &mut outbox);
    let [asked] = &outbox.to_peers[..] else { panic!("one is asked first") };
    let (peer, purpose) = (asked.peer, asked.purpose);
    let Purpose::Read(key) = purpose else { panic!("{purpose:?}") };
    let generation = key.generation.wrapping_sub(1);
    let earlier = Purpose::Read(SlotKey { generation, ..key });
    let others = shard.peers.not_dead().without(peer).without(shard.peers.own());
    let other = others.iter().next().expect("of three");
    for (peer, purpose, counts) in
        [(peer, earlier, false), (other, purpose, false), (peer, purpose, true)]
    {
        let mut outbox = Outbox::default();
        let result = PeerResult::NotFound;
        shard.handle(now, Event::PeerResult { peer, purpose, result }, &mut outbox);
        let is_silent = outbox.replies.is_empty() && outbox.to_peers.is_empty();
        assert_eq!(is_silent, !counts, "{purpose:?}");
    }
}

/// A tombstone from before stays, with the list of the nodes that hold the timer now.
#[test]
fn a_tombstone_is_left_to_those_that_hold_the_timer_now() {
    let mut cluster = Cluster::new(3, true);
    let id = TimerId(7);
    let [first, second, third] = cluster.list(id)[..] else { panic!("three") };
    delete(&mut cluster, first, id);
    let hashes = [second, third].map(|node| cluster.shard(node).peers.own_hash());
    let shard = cluster.shard(first);
    let placement = shard.placement(hashes.into_iter().collect(), Default::default(), 2);
    shard.leave_to_others(id, &placement);
    let record = *shard.records.get(shard.find(id).expect("a tombstone"));
    assert!(!record.is_live());
    assert_eq!(*shard.records.placement_of(&record), placement);
}

/// A timer moves to the right node after that was asked, from one that is asked after the move.
#[test]
fn a_read_asks_the_right_nodes_again_if_nobody_knows_of_the_timer() {
    for (count, of_list, asks) in [(4, 1, 4), (4, 0, 3), (2, 1, 1)] {
        let mut cluster = Cluster::new(count, true);
        let id = TimerId(7);
        let list = cluster.list(id);
        let reader = list[of_list * (list.len() - 1)];
        let right = cluster.peer(reader, list[0]);
        let (now, target) = (cluster.now(), Target { id, factor: Some(1), filter: None });
        let mut event = Event::Request { from: FROM, request: Request::Read(target) };
        let mut asked = Vec::new();
        loop {
            let mut outbox = Outbox::default();
            cluster.shard(reader).handle(now, event, &mut outbox);
            let Some(told) = outbox.to_peers.pop() else { break };
            asked.push(told.peer);
            let (peer, purpose, result) = (told.peer, told.purpose, PeerResult::NotFound);
            event = Event::PeerResult { peer, purpose, result };
        }
        assert_eq!(asked.len(), asks, "{count} {of_list}");
        if asks == 4 {
            assert_eq!((asked.first().copied(), asked.last().copied()), (right, right));
        }
    }
}
