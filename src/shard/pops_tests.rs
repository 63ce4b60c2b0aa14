//! When a pop is left to the next rank, and when it is taken back.

use super::super::effects::{Answer, Request, Target};
use super::super::harness_tests::{Cluster, content, definition};
use super::*;
use crate::base::ids::TimerId;
use crate::cluster::detector::Liveness;

const ID: TimerId = TimerId(7);

/// A timer of two of three nodes, due after 10 s; first and second rank.
fn cluster() -> (Cluster, usize, usize) {
    let mut cluster = Cluster::new(3, true);
    let content = content();
    let target = Target { id: ID, factor: Some(2), filter: None };
    let request = Request::Update(target, definition((10, 10), 2, &content));
    assert!(matches!(cluster.ask(0, request), Answer::Done { .. }));
    let list = cluster.list(ID);
    (cluster, list[0], list[1])
}

#[test]
fn a_pop_that_waited_is_left_to_the_next_rank_when_that_ones_turn_comes() {
    let (mut cluster, first, second) = cluster();
    let is_left = |cluster: &Cluster, node: usize, after_due_ms: u64, attempts: u8| {
        let shard = cluster.nodes[node].shard.as_ref().expect("it is up");
        let held = *shard.records.get(shard.find(ID).expect("it is held"));
        let record = Record { attempts, ..held };
        shard.is_next_ranks_turn(record.schedule().due(1) + after_due_ms, &record)
    };
    assert!(!is_left(&cluster, first, 0, 0));
    assert!(!is_left(&cluster, first, RANK_DELAY_MS - 1, 0));
    assert!(is_left(&cluster, first, RANK_DELAY_MS, 0));
    assert!(!is_left(&cluster, first, RANK_DELAY_MS, 1), "it was tried here");
    assert!(!is_left(&cluster, second, 10 * RANK_DELAY_MS, 0), "nobody is behind");
    cluster.believe(first, second, Liveness::Suspect);
    assert!(is_left(&cluster, first, RANK_DELAY_MS, 0));
    cluster.believe(first, second, Liveness::Dead);
    assert!(!is_left(&cluster, first, RANK_DELAY_MS, 0), "nobody lives behind");
}

/// What others did not do either is given up when its time is over, but not before it was tried.
#[test]
fn a_pop_is_taken_back_before_it_is_given_up_untried() {
    for (attempts, is_over, is_given_up) in
        [(0, false, false), (0, true, false), (1, false, false), (1, true, true)]
    {
        let (mut cluster, first, second) = cluster();
        cluster.believe(first, second, Liveness::Dead);
        let shard = cluster.nodes[first].shard.as_mut().expect("it is up");
        let slot = shard.find(ID).expect("it is held");
        shard.wheel.remove(&mut shard.links, slot);
        let record = shard.records.get_mut(slot);
        (record.state, record.attempts) = (State::HandedOver, attempts);
        let give_up_at = record.schedule().give_up_at(1, shard.config.callbacks.give_up_ms);
        cluster.now_ms = give_up_at.0 - u64::from(!is_over);
        let now = cluster.now();
        let shard = cluster.nodes[first].shard.as_mut().expect("it is up");
        // It was given time all the while.
        shard.ticked_at = now.mono.tick_floor();
        let mut outbox = Outbox::default();
        shard.take_back(now, slot, &mut outbox);
        assert_eq!(shard.counters.given_up, u64::from(is_given_up), "{attempts} {is_over}");
        assert_eq!(outbox.attempts.len(), usize::from(!is_given_up));
    }
}

#[test]
fn a_rank_behind_is_a_backup_while_it_lives() {
    let (mut cluster, first, second) = cluster();
    let has_backup = |cluster: &Cluster, node: usize| {
        let shard = cluster.nodes[node].shard.as_ref().expect("it is up");
        shard.has_backup(shard.records.get(shard.find(ID).expect("it is held")))
    };
    assert!(has_backup(&cluster, first) && !has_backup(&cluster, second));
    cluster.believe(first, second, Liveness::Suspect);
    assert!(has_backup(&cluster, first));
    cluster.believe(first, second, Liveness::Dead);
    assert!(!has_backup(&cluster, first));
}

/// Two ranks of two seconds each, and as long as a callback may take.
#[test]
fn a_pop_that_was_handed_over_comes_back_when_all_others_had_their_try() {
    let (mut cluster, first, _) = cluster();
    let shard = cluster.nodes[first].shard.as_mut().expect("it is up");
    let slot = shard.find(ID).expect("it is held");
    shard.wheel.remove(&mut shard.links, slot);
    let due = shard.records.get(slot).schedule().due(1);
    shard.hand_over(due + 5, slot);
    let back_at = due + 5 + 2 * RANK_DELAY_MS + shard.config.callbacks.timeout_ms;
    assert_eq!(shard.wheel.due(&shard.links, slot), back_at);
    assert_eq!(shard.records.get(slot).state, State::HandedOver);
    assert_eq!(shard.counters.handed_over, 1);
}
