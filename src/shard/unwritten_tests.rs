//! Nodes whose disks take nothing: what they make of clients' writes, and what they say of it.

use crate::base::ids::{Slot, TimerId};
use crate::journal::Position;
use crate::shard::effects::{Answer, CallbackOutcome, Condition, Conditional, Refusal, Request};
use crate::shard::harness_tests::{Cluster, TICKET, content, definition, target, tell};
use crate::shard::records::{Record, State};
use crate::wire::attributes::{Attributes, RetryPolicy};
use crate::wire::peer_message::{
    PeerMessage, PeerRefusal, PeerResult, Standing, TimerCopy, decode_result,
};
use crate::wire::timer_action::TimerAction::Pause;

/// A cluster that has run for a while, of which every node has a journal. From now on the disk of
/// one node takes nothing.
fn with_full_disk(count: usize, full: usize) -> Cluster {
    let mut cluster = Cluster::new(count, true);
    for node in 0..count {
        cluster.shard(node).begin_journal(false);
    }
    cluster.run_until(10);
    set_full(&mut cluster, full, true);
    cluster
}

fn set_full(cluster: &mut Cluster, node: usize, is_full: bool) {
    let refusal = is_full.then_some(Refusal::JournalFull);
    cluster.shard(node).refuse_writes(refusal, is_full);
}

/// Ids of timers of two of three nodes, whose first rank is the node.
fn ids_of(cluster: &Cluster, first: usize, count: usize) -> Vec<TimerId> {
    let is_its = |id: &TimerId| cluster.list(*id)[0] == first;
    (1..).map(TimerId).filter(is_its).take(count).collect()
}

fn is_done(answer: &Answer) -> bool {
    matches!(answer, Answer::Done { .. } | Answer::Identified(_))
}

fn put(cluster: &mut Cluster, node: usize, id: TimerId, seconds: u64) -> Answer {
    let content = content();
    let request = Request::Update(target(id, 2), definition((seconds, seconds), 2, &content));
    cluster.ask(node, request)
}

fn pause(cluster: &mut Cluster, node: usize, id: TimerId) -> Answer {
    let (target, condition) = (target(id, 2), Condition::Present);
    let action = Some(Pause);
    cluster.ask(
        node,
        Request::Conditional(Conditional { target, condition, definition: None, action }),
    )
}

/// Live records of a node.
fn live(cluster: &mut Cluster, node: usize) -> Vec<Record> {
    let records = &cluster.shard(node).records;
    let all = records.occupied_from(Slot(0)).map(|slot| *records.get(slot));
    all.filter(Record::is_live).collect()
}

/// Three timers of each kind whose first rank has a full disk: deleted, replaced, paused, left
/// alone. Each change is answered with 200 through the other nodes.
#[test]
fn what_others_acknowledge_is_in_force_at_a_node_whose_disk_takes_nothing() {
    let mut cluster = with_full_disk(3, 0);
    set_full(&mut cluster, 0, false);
    let ids = ids_of(&cluster, 0, 12);
    ids.iter().for_each(|&id| cluster.put(1, id, (10, 10), 2));
    set_full(&mut cluster, 0, true);
    for (at, &id) in ids.iter().enumerate() {
        let through = 1 + at / 4 % 2;
        let answer = match at % 4 {
            0 => cluster.ask(through, Request::Delete(target(id, 2))),
            1 => put(&mut cluster, through, id, 40),
            2 => pause(&mut cluster, through, id),
            _ => continue,
        };
        assert!(is_done(&answer), "{at}: {answer:?}");
        let others = [1, 2].iter().filter(|&&node| {
            let shard = cluster.nodes[node].shard.as_ref().expect("it is up");
            shard.find(id).is_some_and(|slot| {
                let record = shard.records.get(slot);
                record.is_live() == (at % 4 > 0) && shard.records.placement_of(record).own.is_some()
            })
        });
        assert_eq!(others.count(), 2, "{at}: the answer counts no copy that the disk has not");
        let shard = cluster.shard(0);
        let own = shard.find(id).map(|slot| *shard.records.get(slot));
        let own = own.filter(|record| record.is_live());
        assert_eq!(
            own.map(|record| record.state == State::Paused),
            match at % 4 {
                0 => None,
                1 => Some(false),
                _ => Some(true),
            }
        );
    }
    cluster.run_until(35);
    assert_eq!(cluster.pops.len(), 3, "those that were left alone: {:?}", cluster.pops);
    assert!(cluster.pops.iter().all(|(_, node, _)| *node == 0), "its disk has them");
    cluster.run_until(60);
    assert_eq!(cluster.pops.len(), 6, "and those that were replaced: {:?}", cluster.pops);
    assert!(cluster.pops[3..].iter().all(|(_, node, _)| *node != 0));
    set_full(&mut cluster, 0, false);
    cluster.run_until(100);
    for (at, &id) in ids.iter().enumerate().filter(|(at, _)| at % 4 == 2) {
        assert_eq!(cluster.holders(id).len(), 2, "{at} is where it belongs");
        assert!(cluster.holders(id).contains(&0));
    }
    cluster.audit();
}

/// No other node can stand in. The write is refused, and no node goes on with another definition.
#[test]
fn a_write_that_nobody_can_stand_in_for_is_refused_and_loses_nothing() {
    for full in [vec![0], vec![0, 1]] {
        let nodes = full.len() + 1;
        let mut cluster = with_full_disk(nodes, 0);
        set_full(&mut cluster, 0, false);
        let id = ids_of(&Cluster::new(3, true), 0, 1)[0];
        cluster.put(nodes - 1, id, (10, 10), 2);
        let before = cluster.holders(id);
        full.iter().for_each(|&node| set_full(&mut cluster, node, true));
        let answer = put(&mut cluster, nodes - 1, id, 20);
        assert_eq!(answer, Answer::Refused(Refusal::NoRoom));
        assert!(before.iter().all(|node| cluster.holders(id).contains(node)));
        cluster.run_until(60);
        assert_eq!(cluster.pops.len(), 1, "of one definition: {:?}", cluster.pops);
        cluster.audit();
    }
}

/// Its memory is lost. What its journal has pops only after the others were asked.
#[test]
fn what_was_obeyed_and_not_written_is_asked_for_after_a_restart() {
    let mut cluster = with_full_disk(3, 0);
    set_full(&mut cluster, 0, false);
    let ids = ids_of(&cluster, 0, 4);
    ids.iter().for_each(|&id| cluster.put(1, id, (30, 30), 2));
    let written = cluster.held(0);
    assert_eq!(written.len(), 4);
    set_full(&mut cluster, 0, true);
    assert!(is_done(&cluster.ask(1, Request::Delete(target(ids[0], 2)))));
    assert!(is_done(&put(&mut cluster, 2, ids[1], 200)));
    assert!(is_done(&pause(&mut cluster, 1, ids[2])));
    cluster.kill(0);
    cluster.return_with(0, &written);
    set_full(&mut cluster, 0, true);
    cluster.meet(0);
    cluster.run_until(100);
    assert_eq!(cluster.pops.len(), 1, "only what was left alone: {:?}", cluster.pops);
    cluster.audit();
}

/// A node that leaves its copy to this one must keep it.
#[test]
fn nothing_is_taken_that_is_not_held_and_no_copy_is_claimed_that_the_disk_has_not() {
    let mut cluster = with_full_disk(3, 0);
    set_full(&mut cluster, 0, false);
    let id = ids_of(&cluster, 0, 1)[0];
    cluster.put(1, id, (100, 100), 2);
    let peer = cluster.peer(0, 1);
    let now = cluster.now_of(0);
    let record = live(&mut cluster, 0)[0];
    let mut bytes = Vec::new();
    let standing = cluster.shard(0).standing_of(&record);
    let say = |cluster: &mut Cluster, message: &PeerMessage<'_>| {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let (result, _) = tell(cluster.shard(0), now, peer, &bytes);
        decode_result(&mut &result[..]).map(|result| match result {
            PeerResult::Refused(PeerRefusal::Full) => "full",
            PeerResult::Held => "held",
            PeerResult::Wanted => "wanted",
            _ => "something else",
        })
    };
    assert!(cluster.shard(0).has_changes(), "the journal has not heard of it");
    set_full(&mut cluster, 0, true);
    assert_eq!(say(&mut cluster, &PeerMessage::Standing(standing)), Ok("full"));
    while cluster.shard(0).records.changes_mut().take().is_some() {}
    assert_eq!(say(&mut cluster, &PeerMessage::Standing(standing)), Ok("held"));
    let other = Standing { id: TimerId(77_777), ..standing };
    assert_eq!(say(&mut cluster, &PeerMessage::Standing(other)), Ok("full"));
    let mut room = Vec::new();
    let copy = TimerCopy { standing: other, ..cluster.shard(0).copy_of(&record, &mut room) };
    PeerMessage::Copy(copy).encode(&mut bytes);
    let (result, _) = tell(cluster.shard(0), now, peer, &bytes);
    let full = PeerResult::Refused(PeerRefusal::Full);
    assert_eq!(decode_result(&mut &result[..]), Ok(full));
    assert_eq!(live(&mut cluster, 0).len(), 1);
    cluster.audit();
}

/// Reads and questions of others do not wait for a disk.
#[test]
fn only_what_promises_something_waits_for_the_disk() {
    let mut cluster = with_full_disk(3, 0);
    for is_stuck in [false, true] {
        cluster.shard(0).refuse_writes(Some(Refusal::JournalFull), is_stuck);
        cluster.shard(0).records.changes_mut().forgotten(TimerId(1));
        let shard = cluster.shard(0);
        let nothing = Position::default();
        assert!(shard.position() > nothing);
        for result in [
            PeerResult::Refused(PeerRefusal::Full),
            PeerResult::NotFound,
            PeerResult::Wanted,
            PeerResult::Ahead,
            PeerResult::Superseded { version: 1, factor: 2 },
        ] {
            assert_eq!(shard.promised(&result), nothing, "{result:?}");
        }
        let held = shard.promised(&PeerResult::Held);
        assert_eq!(held, if is_stuck { nothing } else { shard.position() });
    }
    assert_eq!(TICKET.number, 0);
}

#[test]
fn letters_and_reports_of_a_node_whose_disk_takes_nothing_are_kept_by_others() {
    const POLICY: RetryPolicy = RetryPolicy {
        max_attempts: 1,
        max_age_ms: 100_000,
        initial_ms: 1_000,
        max_ms: 50_000,
        multiplier_milli: 1_000,
        jitter_milli: 0,
    };
    let attributes = Attributes {
        retry: Some(POLICY),
        on_failure: Some("http://failed:80/no"),
        ..Attributes::default()
    };
    for nodes in [1, 2, 3] {
        let mut cluster = Cluster::new(nodes, true);
        (0..nodes).for_each(|node| cluster.shard(node).begin_journal(false));
        cluster.run_until(10);
        cluster.outcome = |_, _| CallbackOutcome::Rejected;
        for _ in 0..12 {
            cluster.create_with(0, (5, 5), 2, &attributes);
        }
        set_full(&mut cluster, 0, true);
        cluster.run_until(17);
        let count = |cluster: &mut Cluster, is_letter: bool| {
            let mut ids: Vec<TimerId> = Vec::new();
            for node in if nodes == 1 { 0..1 } else { 1..nodes } {
                let records = live(cluster, node);
                let meant = records.iter().filter(|it| (it.state == State::Parked) == is_letter);
                ids.extend(meant.map(|record| record.id));
            }
            ids.sort_unstable();
            ids.dedup();
            ids.len()
        };
        assert_eq!(count(&mut cluster, true), 12, "dead letters of {nodes} nodes");
        assert_eq!(count(&mut cluster, false), 12, "reports of {nodes} nodes");
        let counters = *cluster.shard(0).counters();
        assert_eq!((counters.letters_without_room, counters.reports_without_room), (0, 0));
        cluster.audit();
    }
}

/// Its callback runs as the timer is paused, and ends when other nodes have the timer.
#[test]
fn a_callback_that_is_under_way_at_a_node_whose_disk_takes_nothing_counts() {
    let mut cluster = with_full_disk(3, 0);
    set_full(&mut cluster, 0, false);
    let id = ids_of(&cluster, 0, 1)[0];
    cluster.put(1, id, (10, 100), 2);
    set_full(&mut cluster, 0, true);
    cluster.hung = Some(0);
    cluster.run_until(20);
    assert_eq!(cluster.pops.len(), 1);
    assert!(is_done(&pause(&mut cluster, 1, id)));
    cluster.run_until(21);
    cluster.answer_callbacks(CallbackOutcome::Delivered);
    for node in [1, 2] {
        let shard = cluster.shard(node);
        let record = shard.records.get(shard.find(id).expect("it stands in"));
        assert_eq!((record.state, record.sequence), (State::Paused, 1), "{node}");
    }
    cluster.run_until(40);
    assert_eq!(cluster.holders(id), [1, 2]);
    cluster.audit();
}

/// The node on its list has room again. An action gives the timer to that node, while a callback of
/// the stand-in runs.
#[test]
fn a_callback_of_a_stand_in_counts_that_an_action_has_taken_off_the_list() {
    let mut cluster = with_full_disk(3, 0);
    let id = ids_of(&cluster, 0, 1)[0];
    cluster.put(1, id, (15, 150), 1);
    let stand_in = cluster.holders(id)[0];
    assert_ne!(stand_in, 0);
    cluster.all_hang = true;
    cluster.run_until(25);
    assert_eq!(cluster.pops, [(25, stand_in, 1)]);
    set_full(&mut cluster, 0, false);
    assert!(is_done(&pause(&mut cluster, 3 - stand_in, id)));
    cluster.run_until(26);
    assert_eq!(cluster.holders(id).len(), 2, "the stand-in waits for its callback");
    cluster.answer_callbacks(CallbackOutcome::Delivered);
    let shard = cluster.shard(0);
    let record = shard.records.get(shard.find(id).expect("it has room"));
    assert_eq!((record.state, record.sequence), (State::Paused, 1));
    cluster.run_until(40);
    assert_eq!(cluster.holders(id), [0]);
    cluster.audit();
}

#[test]
fn a_write_goes_to_stand_ins_if_it_was_meant_for_this_node_and_others_can_hold_it() {
    for (nodes, stands_in) in [(3, true), (2, false)] {
        let mut cluster = with_full_disk(nodes, 0);
        set_full(&mut cluster, 0, false);
        let id = (1..).map(TimerId).find(|id| cluster.list(*id)[0] == 0).expect("one of two");
        cluster.put(0, id, (10, 10), 2);
        set_full(&mut cluster, 0, true);
        let shard = cluster.shard(0);
        let (own, mut room) = (shard.peers.own_hash(), Vec::new());
        let record = *shard.records.get(shard.find(id).expect("it is held"));
        let copy = shard.copy_of(&record, &mut room);
        let told = shard.with_stand_ins(&copy);
        assert_eq!(told.replicas.len(), 2);
        assert_eq!(told.replicas.contains(own), !stands_in, "of {nodes}");
        assert_eq!(told.standing.list_digest, told.replicas.digest());
        let ended = shard.with_stand_ins(&TimerCopy { body: None, ..copy });
        assert_eq!(ended.replicas, copy.replicas, "an end is no copy");
        if stands_in {
            let others = shard.with_stand_ins(&told);
            assert_eq!(others.replicas, told.replicas, "it was not meant for this node");
        }
    }
}
