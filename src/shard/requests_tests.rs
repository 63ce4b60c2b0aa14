//! Which nodes are to hold what a client asks for, and what is counted of it.

use super::*;
use crate::cluster::detector::Liveness;
use crate::shard::effects::{CallbackOutcome, Event};
use crate::shard::harness_tests::{Cluster, content, definition, target};
use crate::shard::records::Placement;

const ID: TimerId = TimerId(7);

#[test]
fn every_request_and_every_end_of_a_callback_is_counted_once() {
    let mut cluster = Cluster::new(1, true);
    let ids: Vec<TimerId> = (0..3).map(|_| cluster.create(0, (1, 1), 1)).collect();
    cluster.put(0, ids[0], (1, 1), 1);
    cluster.put(0, ids[0], (1, 1), 1);
    cluster.put(0, TimerId(77), (100, 100), 1);
    cluster.put(0, TimerId(78), (10, 5), 1);
    for id in [ids[1], TimerId(77)] {
        let answer = cluster.ask(0, Request::Read(target(id, 1)));
        assert!(matches!(answer, Answer::Found(_)), "{answer:?}");
    }
    cluster.ask(0, Request::Delete(target(TimerId(77), 1)));
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    cluster.pass_to(1_000);
    let counters = *cluster.shard(0).counters();
    assert_eq!((counters.creates, counters.updates, counters.deletes), (4, 2, 1));
    assert_eq!((counters.reads, counters.never_firing, counters.refused), (2, 1, 0));
    assert_eq!((counters.failed, counters.timed_out, counters.delivered), (3, 0, 0));
    cluster.outcome = |_, _| CallbackOutcome::TimedOut;
    cluster.pass_to(1_150);
    let counters = *cluster.shard(0).counters();
    assert_eq!((counters.failed, counters.timed_out, counters.retried), (6, 3, 3));
    cluster.outcome = |_, _| CallbackOutcome::Delivered;
    cluster.pass_to(2_000);
    let counters = *cluster.shard(0).counters();
    assert_eq!((counters.delivered, counters.failed, counters.retried), (3, 6, 6));
    assert_eq!((counters.timers, counters.in_flight, counters.waiting), (0, 0, 0));
    assert_eq!((counters.outdated, counters.given_up), (0, 0));
    cluster.audit();
}

#[test]
fn who_stands_in_for_this_node_is_known_while_it_has_no_room() {
    let mut cluster = Cluster::new(3, true);
    let id = TimerId(7);
    let own = cluster.list(id)[0];
    let (hash, now) = (cluster.shard(own).peers.own_hash(), cluster.now().mono.tick_floor());
    let shard = cluster.shard(own);
    assert_eq!(shard.standing_in_for_own(id, 2), None);
    shard.full_at = Some(now);
    let stand_ins = shard.standing_in_for_own(id, 2).expect("it has no room");
    assert!(stand_ins.len() == 2 && !stand_ins.contains(hash), "{stand_ins:?}");
}

/// A timer is placed on a node without room only where the others do not suffice.
#[test]
fn a_new_timer_is_not_offered_to_a_node_that_is_known_to_have_no_room() {
    for (factor, is_asked) in [(2, false), (3, true)] {
        let mut cluster = Cluster::new(3, true);
        let full = cluster.peer(0, 2).expect("a member");
        let until = cluster.now().mono.tick_floor() + 10_000;
        cluster.shard(0).peers.note_full(full, until);
        (0..20).for_each(|_| {
            cluster.create(0, (100, 100), factor);
        });
        let told = cluster.shard(2).counters().peer_messages;
        assert_eq!(told, if is_asked { 20 } else { 0 }, "factor {factor}");
    }
}

#[test]
fn an_update_keeps_the_factor_of_a_live_timer_and_gives_an_ended_one_the_factor_asked_for() {
    let mut cluster = Cluster::new(3, true);
    let content = content();
    let factor_after = |cluster: &mut Cluster, asked: u8| {
        let request = Request::Update(target(ID, asked), definition((100, 100), asked, &content));
        match cluster.ask(0, request) {
            Answer::Done { factor, .. } => factor,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(factor_after(&mut cluster, 2), 2);
    assert_eq!(factor_after(&mut cluster, 3), 2, "it lives");
    cluster.ask(0, Request::Delete(target(ID, 1)));
    assert_eq!(factor_after(&mut cluster, 3), 3);
    cluster.audit();
}

#[test]
fn a_definition_that_never_pops_is_accepted_and_ends_what_is_held() {
    let mut cluster = Cluster::new(1, true);
    let live = |cluster: &mut Cluster, id| {
        let shard = cluster.shard(0);
        shard.find(id).map(|slot| shard.records.get(slot).is_live())
    };
    let created = cluster.create(0, (10, 9), 1);
    assert_eq!(live(&mut cluster, created), None, "it is not stored");
    cluster.put(0, ID, (10, 9), 1);
    assert_eq!(live(&mut cluster, ID), None);
    cluster.put(0, ID, (10, 10), 1);
    assert_eq!(live(&mut cluster, ID), Some(true));
    cluster.put(0, ID, (10, 9), 1);
    assert_eq!(live(&mut cluster, ID), Some(false));
    assert_eq!(cluster.shard(0).counters().never_firing, 3);
    cluster.audit();
}

#[test]
fn a_delete_of_a_timer_that_is_not_held_leaves_a_tombstone_and_a_second_one_changes_nothing() {
    let mut cluster = Cluster::new(1, true);
    let version = |cluster: &mut Cluster| {
        assert!(matches!(cluster.ask(0, Request::Delete(target(ID, 1))), Answer::Done { .. }));
        let shard = cluster.shard(0);
        let record = *shard.records.get(shard.find(ID).expect("a tombstone"));
        assert!(!record.is_live());
        record.version
    };
    let first = version(&mut cluster);
    cluster.now_ms += 1;
    assert_eq!(version(&mut cluster), first);
    assert_eq!(cluster.shard(0).counters().deletes, 2);
}

#[test]
fn a_new_timer_is_held_by_nodes_that_are_not_dead() {
    let mut cluster = Cluster::new(3, true);
    let list = cluster.list(ID);
    let own = list[2];
    for (dead, factor, ranks) in [(vec![], 2, 2), (vec![0], 2, 2), (vec![0, 1], 2, 1)] {
        for rank in &dead {
            cluster.believe(own, list[*rank], Liveness::Dead);
        }
        let gone: Vec<_> = dead.iter().map(|rank| cluster.peer(own, list[*rank])).collect();
        let shard = cluster.shard(own);
        let replicas = shard.plan_new(ID, factor).placement.replicas;
        assert_eq!(replicas.len(), ranks, "{dead:?}");
        let holders = shard.peers.view.peers_of(&replicas);
        assert!(gone.iter().flatten().all(|peer| !holders.contains(*peer)), "{dead:?}");
    }
}

/// Extras are the dead right node, the nodes that the path's filter matches, and the nodes on the
/// list of the record that is held.
#[test]
fn a_write_concerns_all_that_may_hold_the_timer_from_before() {
    let mut cluster = Cluster::new(4, true);
    let dead = cluster.list(ID)[0];
    let own = (dead + 1) % 4;
    let peer_of = |cluster: &Cluster, node| cluster.peer(own, node).expect("a member");
    let gone = peer_of(&cluster, dead);
    cluster.believe(own, dead, Liveness::Dead);
    let shard = cluster.shard(own);
    let view = shard.peers.view.clone();
    let plan = shard.plan_known(target(ID, 1), 1, None);
    let holders = view.peers_of(&plan.placement.replicas);
    assert!(!holders.contains(gone) && plan.extras.contains(gone));
    let others = view.connected_nodes().minus(holders.with(gone).with(view.own()));
    let other = others.iter().next().expect("one of four");
    assert!(!plan.extras.contains(other));
    let filter = view.filter_of(&[view.hash_of(other)].into_iter().collect());
    let filtered = Target { filter: Some(filter), ..target(ID, 1) };
    assert!(shard.plan_known(filtered, 1, None).extras.contains(other));
    let held = Placement {
        actives: 1,
        ..shard.placement(view.place(ID, 4, view.new_nodes()), view.sites(), 4)
    };
    let slot = {
        cluster.put(own, ID, (100, 100), 3);
        let shard = cluster.shard(own);
        let slot = shard.find(ID).expect("three of the four that live hold it");
        shard.place(slot, &held);
        slot
    };
    let shard = cluster.shard(own);
    let record = *shard.records.get(slot);
    let plan = shard.plan_known(target(ID, 1), 1, Some(&record));
    assert!(plan.extras.contains(other) && !plan.extras.contains(view.own()));
    assert!(plan.extras.intersection(view.peers_of(&plan.placement.replicas)).is_empty());
}

#[test]
fn a_node_that_has_left_refuses_clients_and_serves_peers() {
    let mut cluster = Cluster::new(3, true);
    let former = cluster.nodes[2].view.clone();
    cluster.nodes[2].view = cluster.view_of(2, 0, Some(&former));
    let view = cluster.nodes[2].view.clone();
    cluster.handle(2, Event::View(view));
    let refused = Answer::Refused(Refusal::HasLeft);
    assert_eq!(cluster.ask(2, Request::Read(target(ID, 1))), refused);
    assert_eq!(cluster.ask(2, Request::Delete(target(ID, 1))), refused);
    assert_eq!(cluster.shard(2).counters().refused, 2);
    let answer = cluster.ask(2, Request::Forget(&[]));
    assert!(matches!(answer, Answer::Internal(_)), "{answer:?}");
}
