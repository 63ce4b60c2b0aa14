//! One node without peers: what it counts, when it tries again, and which results count.

use super::FULL_MS;
use super::effects::{Answer, CallbackOutcome, Event, Request, Target, Ticket};
use super::harness_tests::{Cluster, START_MS, content, definition};
use crate::base::ids::TimerId;
use crate::base::limits::CallbackLimits;
use crate::base::time::Tick;
use crate::timer::definition::Definition;

fn target(id: TimerId) -> Target {
    Target { id, factor: Some(1), filter: None }
}

fn put(cluster: &mut Cluster, id: TimerId, seconds: (u64, u64)) {
    let content = content();
    let answer = cluster.ask(0, Request::Update(target(id), definition(seconds, 1, &content)));
    assert!(matches!(answer, Answer::Done { .. }), "{answer:?}");
}

/// Every millisecond until this many have passed since the start.
fn pass_to(cluster: &mut Cluster, ms: u64) {
    while cluster.now_ms < START_MS + ms {
        cluster.now_ms += 1;
        cluster.tick(0);
    }
}

/// The callback of this ticket ends.
fn finish(cluster: &mut Cluster, ticket: Ticket, outcome: CallbackOutcome) {
    cluster.hung = Some(0);
    cluster.handle(0, Event::CallbackFinished { ticket, outcome });
}

#[test]
fn every_request_and_every_end_of_a_callback_is_counted_once() {
    let mut cluster = Cluster::new(1, true);
    let ids: Vec<TimerId> = (0..3).map(|_| cluster.create(0, (1, 1), 1)).collect();
    put(&mut cluster, ids[0], (1, 1));
    put(&mut cluster, ids[0], (1, 1));
    put(&mut cluster, TimerId(77), (100, 100));
    put(&mut cluster, TimerId(78), (10, 5));
    for id in [ids[1], TimerId(77)] {
        let answer = cluster.ask(0, Request::Read(target(id)));
        assert!(matches!(answer, Answer::Found(_)), "{answer:?}");
    }
    cluster.ask(0, Request::Delete(target(TimerId(77))));
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    pass_to(&mut cluster, 1_000);
    let counters = *cluster.shard(0).counters();
    assert_eq!((counters.creates, counters.updates, counters.deletes), (4, 2, 1));
    assert_eq!((counters.reads, counters.never_firing, counters.refused), (2, 1, 0));
    assert_eq!((counters.failed, counters.timed_out, counters.delivered), (3, 0, 0));
    cluster.outcome = |_, _| CallbackOutcome::TimedOut;
    pass_to(&mut cluster, 1_150);
    let counters = *cluster.shard(0).counters();
    assert_eq!((counters.failed, counters.timed_out, counters.retried), (6, 3, 3));
    cluster.outcome = |_, _| CallbackOutcome::Delivered;
    pass_to(&mut cluster, 2_000);
    let counters = *cluster.shard(0).counters();
    assert_eq!((counters.delivered, counters.failed, counters.retried), (3, 6, 6));
    assert_eq!((counters.timers, counters.in_flight, counters.waiting), (0, 0, 0));
    assert_eq!((counters.outdated, counters.given_up), (0, 0));
    cluster.audit();
}

#[test]
fn a_failed_callback_is_tried_again_after_its_pause_and_up_to_half_more() {
    let mut cluster = Cluster::new(1, true);
    for _ in 0..40 {
        cluster.create(0, (1, 1), 1);
    }
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    pass_to(&mut cluster, 1_000);
    assert_eq!(cluster.pops.len(), 40);
    cluster.outcome = |_, _| CallbackOutcome::Delivered;
    let mut at_ms = Vec::new();
    for ms in 1_001..2_000 {
        pass_to(&mut cluster, ms);
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
        pass_to(&mut cluster, ms);
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

/// A callback runs while its timer is replaced and pops again.
#[test]
fn a_result_of_an_earlier_definition_changes_nothing() {
    let mut cluster = Cluster::new(1, true);
    cluster.hung = Some(0);
    let id = cluster.create(0, (1, 5), 1);
    pass_to(&mut cluster, 1_000);
    put(&mut cluster, id, (1, 5));
    pass_to(&mut cluster, 2_000);
    let [(_, former), (_, present)] = cluster.hanging[..] else { panic!("two") };
    assert_eq!((former.sequence, present.sequence), (1, 1));
    finish(&mut cluster, former, CallbackOutcome::Delivered);
    let counters = *cluster.shard(0).counters();
    assert_eq!((counters.outdated, counters.in_flight, counters.delivered), (1, 1, 1));
    pass_to(&mut cluster, 3_500);
    assert_eq!(cluster.hanging.len(), 2, "the present pop goes on");
    finish(&mut cluster, present, CallbackOutcome::Delivered);
    pass_to(&mut cluster, 4_000);
    assert_eq!(cluster.hanging.last().expect("the second pop").1.sequence, 2);
    assert_eq!(cluster.shard(0).counters().outdated, 1);
    cluster.audit();
}

#[test]
fn an_attempt_that_met_a_closed_connection_is_made_again_at_once() {
    let mut cluster = Cluster::new(1, true);
    cluster.hung = Some(0);
    cluster.create(0, (1, 1), 1);
    pass_to(&mut cluster, 1_000);
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
    pass_to(&mut cluster, 1_000);
    let counted = |cluster: &mut Cluster| {
        let counters = cluster.shard(0).counters();
        (counters.in_flight as usize, counters.waiting)
    };
    assert_eq!(counted(&mut cluster), (places, 3));
    let is_waiting = |cluster: &Cluster, id: &TimerId| {
        cluster.hanging.iter().all(|(_, ticket)| ticket.id != *id)
    };
    let waiting: Vec<TimerId> = ids.into_iter().filter(|id| is_waiting(&cluster, id)).collect();
    put(&mut cluster, waiting[0], (100, 100));
    assert_eq!(counted(&mut cluster), (places, 2));
    cluster.ask(0, Request::Delete(target(waiting[1])));
    assert_eq!(counted(&mut cluster), (places, 1));
    cluster.answer_callbacks(CallbackOutcome::Delivered);
    assert_eq!(counted(&mut cluster), (0, 0));
    assert_eq!(cluster.shard(0).counters().delivered as usize, places + 1);
    cluster.audit();
}

/// They are looked at again one by one.
#[test]
fn pops_that_wait_for_a_host_that_gets_into_trouble_do_not_wait_any_more() {
    let mut cluster = Cluster::new(1, true);
    let places = CallbackLimits::default().connections_per_host_max as usize;
    (0..places + 20).for_each(|_| {
        cluster.create(0, (1, 1), 1);
    });
    cluster.hung = Some(0);
    pass_to(&mut cluster, 1_000);
    assert_eq!(cluster.shard(0).counters().waiting, 20);
    for (_, ticket) in cluster.hanging.clone() {
        finish(&mut cluster, ticket, CallbackOutcome::Unreachable);
    }
    assert!(cluster.shard(0).counters().waiting > 1, "most have not been begun");
    pass_to(&mut cluster, 1_001);
    assert_eq!(cluster.shard(0).counters().waiting, 0);
    cluster.audit();
}

#[test]
fn a_shard_is_swept_once_a_second() {
    let mut cluster = Cluster::new(1, true);
    for (ms, swept_ms) in
        [(1, 0), (999, 0), (1_000, 1_000), (1_999, 1_000), (2_003, 2_003), (3_002, 2_003)]
    {
        cluster.now_ms = START_MS + ms;
        cluster.tick(0);
        assert_eq!(cluster.shard(0).turns.swept_at, Tick(START_MS + swept_ms), "{ms}");
    }
}

/// As long as others believe it, and as long again.
#[test]
fn a_core_is_full_for_a_while_after_it_had_no_room() {
    let mut cluster = Cluster::new(1, true);
    assert_eq!(cluster.shard(0).counters().is_full, 0);
    cluster.shard(0).full_at = Some(Tick(START_MS));
    for (ms, is_full) in [(1, 1), (2 * FULL_MS - 1, 1), (2 * FULL_MS, 0)] {
        cluster.now_ms = START_MS + ms;
        cluster.tick(0);
        assert_eq!(cluster.shard(0).counters().is_full, is_full, "{ms}");
    }
}

#[test]
fn callback_hosts_are_counted_as_long_as_timers_name_them() {
    let mut cluster = Cluster::new(1, true);
    let content = content();
    let ids = ["a:80", "b:80", "a:80"].map(|authority| {
        let definition = Definition { authority, ..definition((100, 100), 1, &content) };
        match cluster.ask(0, Request::Create(definition)) {
            Answer::Done { id, .. } => id,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!((cluster.shard(0).hosts_known(), cluster.shard(0).lanes()), (2, 0));
    for (id, left) in ids.into_iter().zip([2, 1, 0]) {
        cluster.ask(0, Request::Delete(target(id)));
        assert_eq!(cluster.shard(0).hosts_known(), left);
    }
}

#[test]
fn the_shortest_pause_is_one_millisecond() {
    let mut cluster = Cluster::new(1, true);
    let callbacks = &mut cluster.shard(0).config.callbacks;
    (callbacks.retry_first_ms, callbacks.retry_max_ms) = (1, 1);
    cluster.create(0, (1, 1), 1);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    pass_to(&mut cluster, 1_010);
    assert_eq!(cluster.pops.len(), 11);
}
