//! What a read is answered, through every node.

use super::effects::{Answer, Event, Request, Target};
use super::harness_tests::{Cluster, FROM, content, definition};
use crate::base::ids::TimerId;
use crate::wire::peer_message::{PeerMessage, decode_message};

const IDS: std::ops::Range<u64> = 1..60;

fn target(id: TimerId) -> Target {
    Target { id, factor: Some(2), filter: None }
}

fn put(cluster: &mut Cluster, node: usize, id: TimerId, interval_s: u64) {
    let content = content();
    let definition = definition((interval_s, interval_s), 2, &content);
    let answer = cluster.ask(node, Request::Update(target(id), definition));
    assert!(matches!(answer, Answer::Done { .. }), "{answer:?}");
}

fn delete(cluster: &mut Cluster, node: usize, id: TimerId) {
    let answer = cluster.ask(node, Request::Delete(target(id)));
    assert!(matches!(answer, Answer::Done { .. }), "{answer:?}");
}

/// What every node says of a timer: its interval.
fn reads(cluster: &mut Cluster, id: TimerId) -> Vec<Option<u64>> {
    let nodes = 0..cluster.nodes.len();
    let answers = nodes.map(|node| cluster.ask(node, Request::Read(target(id))));
    let intervals = answers.map(|answer| match answer {
        Answer::Found(view) => Some(view.interval_ms / 1_000),
        Answer::NotFound => None,
        other => panic!("{other:?}"),
    });
    intervals.collect()
}

/// Timers are deleted while a node is away, and written anew after its return: its stand-ins hold
/// tombstones, and are not told.
#[test]
fn a_tombstone_of_a_stand_in_does_not_hide_a_timer_that_was_written_anew() {
    let mut cluster = Cluster::new(3, true);
    for id in IDS.map(TimerId) {
        put(&mut cluster, id.0 as usize % 3, id, 600);
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
        put(&mut cluster, id.0 as usize % 3, id, 700);
        assert_eq!(reads(&mut cluster, id), [Some(700); 3], "{id:?}");
    }
    cluster.run_until(60);
    for id in IDS.map(TimerId) {
        assert_eq!(reads(&mut cluster, id), [Some(700); 3], "{id:?}");
        assert_eq!(cluster.holders(id).len(), 2);
    }
    cluster.audit();
}

/// The same when a node joins.
#[test]
fn a_tombstone_of_a_former_holder_does_not_hide_a_timer_that_was_written_anew() {
    let mut cluster = Cluster::new(4, true);
    for node in 0..4 {
        cluster.nodes[node].view = cluster.view_of(node, 3.max(node + 1), None);
        cluster.start(node);
    }
    (0..4).for_each(|node| cluster.meet(node));
    for id in IDS.map(TimerId) {
        put(&mut cluster, id.0 as usize % 3, id, 600);
        delete(&mut cluster, id.0 as usize % 3, id);
    }
    for node in 0..3 {
        let former = cluster.nodes[node].view.clone();
        let view = cluster.view_of(node, 4, Some(&former));
        cluster.nodes[node].view = view.clone();
        cluster.handle(node, super::effects::Event::View(view));
        cluster.meet(node);
    }
    cluster.run_until(20);
    for id in IDS.map(TimerId) {
        put(&mut cluster, id.0 as usize % 4, id, 700);
        assert_eq!(reads(&mut cluster, id), [Some(700); 4], "{id:?}");
    }
    cluster.audit();
}

/// A stand-in has a timer's copy; whoever takes a write of it knows the right holders alone.
#[test]
fn a_stand_in_is_told_of_a_write_that_did_not_know_of_it() {
    for id in IDS.map(TimerId) {
        let mut cluster = Cluster::new(3, true);
        let [away, _, stand_in] = cluster.list(id)[..] else { panic!("three nodes") };
        cluster.kill(away);
        put(&mut cluster, stand_in, id, 600);
        assert!(cluster.holders(id).contains(&stand_in));
        cluster.return_empty(away);
        put(&mut cluster, away, id, 700);
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
    put(&mut cluster, c, id, 600);
    cluster.start(a);
    cluster.start(b);
    cluster.meet(a);
    cluster.meet(b);
    assert_eq!(reads(&mut cluster, id), [Some(600); 3]);
    assert_eq!(cluster.ask(a, Request::Read(target(TimerId(8)))), Answer::NotFound);
}

#[test]
fn what_is_fetched_has_its_age_for_its_start() {
    let mut cluster = Cluster::new(2, true);
    let id = TimerId(7);
    put(&mut cluster, 0, id, 100);
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
    put(&mut cluster, 0, id, 100);
    cluster.mute = Some(1);
    cluster.answers.clear();
    cluster.handle(0, Event::Request { from: FROM, request: Request::Read(target(id)) });
    assert!(matches!(cluster.answers[..], [Answer::Found(_)]), "{:?}", cluster.answers);
}
