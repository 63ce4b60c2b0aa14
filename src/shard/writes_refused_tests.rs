//! Nodes without room: a replica that refuses has no copy.

use crate::base::ids::TimerId;
use crate::base::limits::Acknowledge;
use crate::base::time::Tick;
use crate::shard::effects::{Answer, Event, Refusal, Request, Target};
use crate::shard::harness_tests::{Cluster, FROM, content, definition};
use crate::timer::definition::encode_content;

/// A cluster of which one node has no room at all.
fn with_full(count: usize, full: usize) -> Cluster {
    let mut cluster = Cluster::new(count, true);
    set_room(&mut cluster, full, 0);
    cluster
}

fn set_room(cluster: &mut Cluster, node: usize, records: u64) {
    cluster.nodes[node].records_max = records;
    cluster.shard(node).records.set_records_max(records);
}

fn long_content() -> Vec<u8> {
    let mut content = Vec::new();
    encode_content("/pop", &[], &[b'x'; 900], &mut content);
    content
}

fn put(cluster: &mut Cluster, node: usize, id: TimerId, seconds: u64, content: &[u8]) -> Answer {
    let target = Target { id, factor: Some(2), filter: None };
    cluster.ask(node, Request::Update(target, definition((seconds, seconds), 2, content)))
}

#[test]
fn another_node_stands_in_for_one_without_room() {
    let mut cluster = with_full(4, 3);
    let ids: Vec<TimerId> = (0..60).map(|at| cluster.create(at % 3, (20, 60), 2)).collect();
    for &id in &ids {
        let holders = cluster.holders(id);
        assert_eq!(holders.len(), 2, "{holders:?}");
        assert!(!holders.contains(&3));
    }
    cluster.run_until(10);
    cluster.kill(0);
    cluster.run_until(70);
    let all = ids.len() * 3;
    assert_eq!(cluster.pops.len(), all, "each pop once, whoever died");
    cluster.audit();
}

#[test]
fn timers_go_where_they_belong_when_there_is_room_again() {
    let mut cluster = with_full(3, 2);
    let ids: Vec<TimerId> = (0..30).map(|at| cluster.create(at % 2, (100, 100), 2)).collect();
    cluster.run_until(15);
    let misplaced = |cluster: &mut Cluster| -> u64 {
        (0..3).map(|node| cluster.shard(node).counters().misplaced).sum()
    };
    assert!(misplaced(&mut cluster) > 0, "an operator sees that it is not done");
    assert_eq!(cluster.shard(2).counters().is_full, 1);
    assert!(cluster.shard(2).counters().copies_refused > 0);
    set_room(&mut cluster, 2, 1_000);
    cluster.run_until(60);
    for &id in &ids {
        let mut meant = cluster.list(id)[..2].to_vec();
        meant.sort_unstable();
        assert_eq!(cluster.holders(id), meant);
    }
    assert_eq!(misplaced(&mut cluster), 0);
    assert_eq!(cluster.shard(2).counters().is_full, 0);
    cluster.run_until(110);
    assert_eq!(cluster.pops.len(), 30);
    cluster.audit();
}

/// The holders do not find out at one moment that a full node has room again. The one that still
/// believes it full believes the other one, and does not pop by a list of its own.
#[test]
fn a_node_that_was_full_is_on_the_list_again_for_all_at_once() {
    for late in [0, 1] {
        let mut cluster = with_full(3, 2);
        let ids: Vec<TimerId> = (0..30).map(|at| cluster.create(at % 2, (30, 90), 2)).collect();
        set_room(&mut cluster, 2, 1_000);
        let full = cluster.peer(late, 2).expect("a member");
        cluster.shard(late).peers.note_full(full, Tick(u64::MAX / 2));
        cluster.run_until(100);
        assert_eq!(cluster.pops.len(), ids.len() * 3, "each pop once");
        cluster.audit();
    }
}

#[test]
fn a_write_that_no_other_can_stand_in_for_is_refused_and_a_create_taken_back() {
    let mut cluster = with_full(2, 1);
    let content = content();
    for _ in 0..5 {
        let create = Request::Create(definition((5, 5), 2, &content));
        assert_eq!(cluster.ask(0, create), Answer::Refused(Refusal::NoRoom));
    }
    cluster.run_until(30);
    assert_eq!(cluster.pops, [], "nobody knows these timers");
    assert_eq!(cluster.shard(0).counters().timers, 0);
    let create = Request::Create(definition((5, 5), 1, &content));
    let answers: Vec<Answer> = (0..8).map(|_| cluster.ask(0, create)).collect();
    let is_done = |answer: &Answer| matches!(answer, Answer::Done { .. });
    assert!(answers.iter().all(is_done), "one copy fits: {answers:?}");
    cluster.audit();
}

/// A holder of the old definition has no room for the longer one. It must not pop the old one.
#[test]
fn an_update_that_does_not_fit_ends_what_it_replaces() {
    let mut cluster = Cluster::new(3, true);
    let long = long_content();
    for at in 0..20 {
        let id = cluster.create(at % 3, (10, 10), 2);
        let [full, other, stand_in] = cluster.list(id)[..] else { panic!("three") };
        let bytes = cluster.shard(full).bytes();
        cluster.shard(full).records.set_bytes_max(bytes);
        let through = if at % 2 == 0 { other } else { stand_in };
        let answer = put(&mut cluster, through, id, 30, &long);
        assert!(matches!(answer, Answer::Done { .. }), "{answer:?}");
        let mut holders = vec![other, stand_in];
        holders.sort_unstable();
        assert_eq!(cluster.holders(id), holders);
        cluster.handle(
            full,
            Event::Request {
                from: FROM,
                request: Request::Read(Target { id, factor: Some(2), filter: None }),
            },
        );
        assert!(matches!(cluster.answers.pop(), Some(Answer::Found(_))), "others are asked");
        cluster.shard(full).records.set_bytes_max(1 << 40);
    }
    cluster.run_until(20);
    assert_eq!(cluster.pops, [], "the old definitions would have popped");
    cluster.run_until(40);
    assert_eq!(cluster.pops.len(), 20);
    cluster.audit();
}

#[test]
fn what_takes_no_more_room_always_fits() {
    let mut cluster = Cluster::new(3, true);
    let (long, short) = (long_content(), content());
    let id = TimerId(7);
    assert!(matches!(put(&mut cluster, 0, id, 50, &long), Answer::Done { .. }));
    let mut meant = cluster.list(id)[..2].to_vec();
    meant.sort_unstable();
    for node in 0..3 {
        cluster.shard(node).records.set_bytes_max(1);
        cluster.shard(node).records.set_records_max(1);
    }
    for content in [&long, &short] {
        assert!(matches!(put(&mut cluster, 0, id, 50, content), Answer::Done { .. }));
        assert_eq!(cluster.holders(id), meant);
    }
    let answer = put(&mut cluster, meant[0], id, 50, &long);
    assert_eq!(answer, Answer::Refused(Refusal::BytesFull));
    assert_eq!(cluster.holders(id), meant, "nothing has changed");
    let target = Target { id, factor: Some(2), filter: None };
    assert!(matches!(cluster.ask(2, Request::Delete(target)), Answer::Done { .. }));
    assert!(cluster.holders(id).is_empty());
    cluster.audit();
}

/// A node comes back smaller than it was. Its share does not fit, and that is told.
#[test]
fn copies_that_a_returned_node_has_no_room_for_are_missed_until_it_has() {
    for nodes in [2, 3] {
        let mut cluster = Cluster::new(nodes, true);
        let ids: Vec<TimerId> = (0..20).map(|at| cluster.create(at % 2, (100, 100), 2)).collect();
        cluster.kill(1);
        cluster.run_until(5);
        cluster.nodes[1].records_max = 0;
        cluster.return_empty(1);
        cluster.run_until(20);
        let told = |cluster: &mut Cluster| -> (u64, u64) {
            let shard = cluster.shard(0).counters();
            (shard.lacking, shard.misplaced)
        };
        let (lacking, misplaced) = told(&mut cluster);
        if nodes == 2 {
            assert_eq!((lacking, misplaced), (20, 20));
        } else {
            assert_eq!(lacking, 0, "the third node stands in");
            assert!(ids.iter().all(|&id| cluster.holders(id) == [0, 2]));
        }
        set_room(&mut cluster, 1, 1_000);
        cluster.run_until(50);
        assert_eq!(told(&mut cluster), (0, 0));
        assert!(ids.iter().all(|&id| cluster.holders(id).len() == 2));
        cluster.run_until(110);
        assert_eq!(cluster.pops.len(), 20);
        cluster.audit();
    }
}

/// Neither the node that takes the delete nor the full node knows the stand-in.
#[test]
fn a_delete_reaches_those_who_stand_in() {
    for has_room_again in [false, true] {
        let mut cluster = with_full(4, 3);
        let content = content();
        let mut deleted = 0;
        for id in (0..40).map(TimerId) {
            assert!(matches!(put(&mut cluster, 0, id, 30, &content), Answer::Done { .. }));
            if !cluster.list(id)[..2].contains(&3) {
                continue;
            }
            set_room(&mut cluster, 3, if has_room_again { 1_000 } else { 0 });
            let holders = cluster.holders(id);
            let outside = (0..3).find(|node| !holders.contains(node)).expect("two hold it");
            let target = Target { id, factor: Some(2), filter: None };
            let answer = cluster.ask(outside, Request::Delete(target));
            assert!(matches!(answer, Answer::Done { .. }), "{answer:?}");
            assert!(cluster.holders(id).is_empty(), "{id:?}: {:?}", cluster.holders(id));
            set_room(&mut cluster, 3, 0);
            deleted += 1;
        }
        assert!(deleted > 5);
        cluster.run_until(40);
        assert_eq!(cluster.pops.len(), 40 - deleted);
        cluster.audit();
    }
}

#[test]
fn a_create_that_was_answered_by_the_first_is_not_taken_back() {
    let mut cluster = with_full(2, 1);
    for node in 0..2 {
        cluster.shard(node).config.cluster.acknowledge = Acknowledge::First;
    }
    let id = cluster.create(0, (5, 15), 2);
    assert_eq!(cluster.holders(id), [0]);
    assert_eq!(cluster.shard(0).counters().lacking, 0, "told at the next tick");
    cluster.run_until(2);
    assert_eq!(cluster.shard(0).counters().lacking, 1);
    cluster.run_until(30);
    assert_eq!(cluster.pops.len(), 3, "{:?}", cluster.pops);
    cluster.audit();
}

/// A pop that left the timer to the full node would make the next pop late.
#[test]
fn those_who_stand_in_pop_on_time_for_as_long_as_there_is_no_room() {
    let mut cluster = with_full(3, 2);
    let content = content();
    let id = (0..100).map(TimerId).find(|&id| cluster.list(id)[0] == 2).expect("of a third");
    assert!(matches!(put(&mut cluster, 0, id, 3, &content), Answer::Done { .. }));
    let target = Target { id, factor: Some(1), filter: None };
    let update = Request::Update(target, definition((3, 300), 1, &content));
    assert!(matches!(cluster.ask(0, update), Answer::Done { .. }));
    cluster.run_until(310);
    let late: Vec<_> =
        cluster.pops.iter().filter(|(second, _, sequence)| *second > sequence * 3).collect();
    assert!(late.is_empty(), "{late:?}");
    assert_eq!(cluster.pops.len(), 100);
    cluster.audit();
}

/// Two of three nodes have the timer when the third refuses, and no other node can stand in.
#[test]
fn a_create_that_one_replica_refuses_leaves_nothing_at_the_others() {
    let mut cluster = with_full(3, 2);
    let content = content();
    let answer = cluster.ask(0, Request::Create(definition((20, 20), 3, &content)));
    assert_eq!(answer, Answer::Refused(Refusal::NoRoom));
    let held = |cluster: &mut Cluster, node| cluster.shard(node).counters().timers;
    assert_eq!([0, 1, 2].map(|node| held(&mut cluster, node)), [0; 3]);
    cluster.run_until(60);
    assert_eq!(cluster.pops, []);
    cluster.audit();
}

/// The full node has no room for the tombstone, and no timer.
#[test]
fn a_delete_of_a_timer_that_a_full_node_cannot_hold_is_done() {
    let mut cluster = with_full(2, 1);
    for id in (0..5).map(TimerId) {
        let target = Target { id, factor: Some(2), filter: None };
        let answer = cluster.ask(0, Request::Delete(target));
        assert!(matches!(answer, Answer::Done { id: done, .. } if done == id), "{answer:?}");
        let counters = *cluster.shard(0).counters();
        assert_eq!((counters.replicated, counters.refused), (id.0 + 1, 0));
        assert_eq!(cluster.shard(0).writes.len(), 0);
    }
}
