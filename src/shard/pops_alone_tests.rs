//! Pops of one node without peers: when the node tries again, which pops wait, and which results
//! count.

use crate::base::ids::TimerId;
use crate::base::limits::CallbackLimits;
use crate::shard::effects::{CallbackOutcome, Event, Request, Ticket};
use crate::shard::harness_tests::{Cluster, target};

/// Ends the callback of a ticket.
fn finish(cluster: &mut Cluster, ticket: Ticket, outcome: CallbackOutcome) {
    cluster.hung = Some(0);
    cluster.handle(0, Event::CallbackFinished { ticket, outcome });
}

#[test]
fn a_failed_callback_is_tried_again_after_its_pause_and_up_to_half_more() {
    let mut cluster = Cluster::new(1, true);
    for _ in 0..40 {
        cluster.create(0, (1, 1), 1);
    }
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    cluster.pass_to(1_000);
    assert_eq!(cluster.pops.len(), 40);
    cluster.outcome = |_, _| CallbackOutcome::Delivered;
    let mut at_ms = Vec::new();
    for ms in 1_001..2_000 {
        cluster.pass_to(ms);
        at_ms.resize(cluster.pops.len() - 40, ms);
    }
    assert_eq!(at_ms.len(), 40);
    assert!(at_ms.iter().all(|ms| (1_100..=1_150).contains(ms)), "{at_ms:?}");
    at_ms.dedup();
    assert!(at_ms.len() > 10, "they do not come together: {at_ms:?}");
}

#[test]
fn pauses_double_up_to_their_bound_until_the_pop_is_given_up() {
    let mut cluster = Cluster::new(1, true);
    cluster.create(0, (1, 1), 1);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    let mut at_ms = Vec::new();
    for ms in 1..=70_000 {
        cluster.pass_to(ms);
        at_ms.resize(cluster.pops.len(), ms);
    }
    let limits = CallbackLimits::default();
    assert_eq!(at_ms[0], 1_000);
    let bounds = (0..).map(|doubled| (limits.retry_first_ms << doubled).min(limits.retry_max_ms));
    for (pair, pause_ms) in at_ms.windows(2).zip(bounds) {
        let gap_ms = pair[1] - pair[0];
        assert!((pause_ms..=pause_ms * 3 / 2).contains(&gap_ms), "{gap_ms} {pause_ms}");
    }
    let last_ms = *at_ms.last().expect("some");
    assert!(last_ms < 1_000 + limits.give_up_ms, "none is tried when its time is over");
    assert!(last_ms > 1_000 + limits.give_up_ms - 8_000);
    assert_eq!(cluster.shard(0).counters().given_up, 1);
    cluster.audit();
}

#[test]
fn a_pop_whose_time_was_over_when_it_came_up_is_tried_all_the_same() {
    let mut cluster = Cluster::new(1, true);
    cluster.create(0, (1, 1), 1);
    cluster.now_ms += 100_000;
    cluster.tick(0);
    let counters = *cluster.shard(0).counters();
    assert_eq!((cluster.pops.len(), counters.delivered, counters.given_up), (1, 1, 0));
}

/// A host that is denied may be well, and the next pop may find the rules changed.
#[test]
fn a_pop_that_is_denied_is_given_up_at_once_and_the_next_one_comes() {
    let mut cluster = Cluster::new(1, true);
    cluster.create(0, (1, 3), 1);
    cluster.outcome = |_, _| CallbackOutcome::Denied;
    cluster.pass_to(2_000);
    let counters = *cluster.shard(0).counters();
    assert_eq!((cluster.pops.len(), counters.given_up, counters.failed), (2, 2, 2));
    cluster.outcome = |_, _| CallbackOutcome::Delivered;
    cluster.pass_to(3_000);
    let counters = *cluster.shard(0).counters();
    assert_eq!((cluster.pops.len(), counters.delivered, counters.timers), (3, 1, 0));
    cluster.audit();
}

/// A callback runs while its timer is replaced and pops again.
#[test]
fn a_result_of_an_earlier_definition_changes_nothing() {
    let mut cluster = Cluster::new(1, true);
    cluster.hung = Some(0);
    let id = cluster.create(0, (1, 5), 1);
    cluster.pass_to(1_000);
    cluster.put(0, id, (1, 5), 1);
    cluster.pass_to(2_000);
    let [(_, former), (_, present)] = cluster.hanging[..] else { panic!("two") };
    assert_eq!((former.sequence, present.sequence), (1, 1));
    finish(&mut cluster, former, CallbackOutcome::Delivered);
    let counters = *cluster.shard(0).counters();
    assert_eq!((counters.outdated, counters.in_flight, counters.delivered), (1, 1, 1));
    cluster.pass_to(3_500);
    assert_eq!(cluster.hanging.len(), 2, "the present pop goes on");
    finish(&mut cluster, present, CallbackOutcome::Delivered);
    cluster.pass_to(4_000);
    assert_eq!(cluster.hanging.last().expect("the second pop").1.sequence, 2);
    assert_eq!(cluster.shard(0).counters().outdated, 1);
    cluster.audit();
}

#[test]
fn an_attempt_that_met_a_closed_connection_is_made_again_at_once() {
    let mut cluster = Cluster::new(1, true);
    cluster.hung = Some(0);
    cluster.create(0, (1, 1), 1);
    cluster.pass_to(1_000);
    let (_, first) = cluster.hanging[0];
    finish(&mut cluster, first, CallbackOutcome::Stale);
    assert_eq!((cluster.hanging.len(), cluster.hanging[1].1), (2, first));
    finish(&mut cluster, first, CallbackOutcome::Delivered);
    let counters = *cluster.shard(0).counters();
    assert_eq!((counters.stale, counters.failed, counters.retried), (1, 0, 0));
    assert_eq!((counters.delivered, counters.in_flight, counters.timers), (1, 0, 0));
}

#[test]
fn pops_that_wait_for_a_place_are_counted_until_they_leave_it_in_whatever_way() {
    let mut cluster = Cluster::new(1, true);
    let places = CallbackLimits::default().connections_per_host_max as usize;
    let ids: Vec<TimerId> = (0..places + 3).map(|_| cluster.create(0, (1, 1), 1)).collect();
    cluster.hung = Some(0);
    cluster.pass_to(1_000);
    let counted = |cluster: &mut Cluster| {
        let counters = cluster.shard(0).counters();
        (counters.in_flight as usize, counters.waiting)
    };
    assert_eq!(counted(&mut cluster), (places, 3));
    let is_waiting = |cluster: &Cluster, id: &TimerId| {
        cluster.hanging.iter().all(|(_, ticket)| ticket.id != *id)
    };
    let waiting: Vec<TimerId> = ids.into_iter().filter(|id| is_waiting(&cluster, id)).collect();
    cluster.put(0, waiting[0], (100, 100), 1);
    assert_eq!(counted(&mut cluster), (places, 2));
    cluster.ask(0, Request::Delete(target(waiting[1], 1)));
    assert_eq!(counted(&mut cluster), (places, 1));
    cluster.answer_callbacks(CallbackOutcome::Delivered);
    assert_eq!(counted(&mut cluster), (0, 0));
    assert_eq!(cluster.shard(0).counters().delivered as usize, places + 1);
    cluster.audit();
}

/// The pops are looked at again one by one.
#[test]
fn pops_that_wait_for_a_host_that_gets_into_trouble_do_not_wait_any_more() {
    let mut cluster = Cluster::new(1, true);
    let places = CallbackLimits::default().connections_per_host_max as usize;
    (0..places + 20).for_each(|_| {
        cluster.create(0, (1, 1), 1);
    });
    cluster.hung = Some(0);
    cluster.pass_to(1_000);
    assert_eq!(cluster.shard(0).counters().waiting, 20);
    for (_, ticket) in cluster.hanging.clone() {
        finish(&mut cluster, ticket, CallbackOutcome::Unreachable);
    }
    assert!(cluster.shard(0).counters().waiting > 1, "most have not been begun");
    cluster.pass_to(1_001);
    assert_eq!(cluster.shard(0).counters().waiting, 0);
    cluster.audit();
}

#[test]
fn the_shortest_pause_is_one_millisecond() {
    let mut cluster = Cluster::new(1, true);
    let callbacks = &mut cluster.shard(0).config.callbacks;
    (callbacks.retry_first_ms, callbacks.retry_max_ms) = (1, 1);
    cluster.create(0, (1, 1), 1);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    cluster.pass_to(1_010);
    assert_eq!(cluster.pops.len(), 11);
}
