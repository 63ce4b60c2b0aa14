//! Retry policies, in a node alone and in a cluster.

use crate::shard::effects::{Answer, CallbackOutcome, Request};
use crate::shard::harness_tests::{Cluster, START_MS, target};
use crate::wire::answer_head::RetryAfter;
use crate::wire::attributes::{Attributes, RetryPolicy};

/// Four attempts with pauses of 1, 3 and 9 s, within 100 s.
const POLICY: RetryPolicy = RetryPolicy {
    max_attempts: 4,
    max_age_ms: 100_000,
    initial_ms: 1_000,
    max_ms: 50_000,
    multiplier_milli: 3_000,
    jitter_milli: 0,
};

fn with(retry: RetryPolicy) -> Attributes<'static> {
    Attributes { retry: Some(retry), ..Attributes::default() }
}

/// When attempts begin, by the millisecond, up to `until_ms`.
fn attempts(cluster: &mut Cluster, until_ms: u64) -> Vec<u64> {
    let mut at_ms = Vec::new();
    for ms in 1..=until_ms {
        cluster.pass_to(ms);
        at_ms.resize(cluster.pops.len(), ms);
    }
    at_ms
}

#[test]
fn attempts_and_pauses_are_those_of_the_policy() {
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    cluster.create_with(0, (1, 1), 1, &with(POLICY));
    assert_eq!(attempts(&mut cluster, 60_000), [1_000, 2_000, 5_000, 14_000]);
    assert_eq!(cluster.shard(0).counters().given_up, 1);
    cluster.audit();
}

#[test]
fn a_policy_ends_when_the_pop_is_too_old_or_the_next_one_is_due() {
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    cluster.create_with(0, (1, 1), 1, &with(RetryPolicy { max_age_ms: 3_000, ..POLICY }));
    assert_eq!(attempts(&mut cluster, 60_000), [1_000, 2_000]);
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    cluster.create_with(0, (3, 6), 1, &with(POLICY));
    assert_eq!(attempts(&mut cluster, 30_000), [3_000, 4_000, 6_001, 7_001, 10_001, 19_001]);
    assert_eq!(cluster.shard(0).counters().given_up, 2);
    // Its age ends a pop before the next one is due as well.
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    cluster.create_with(0, (30, 60), 1, &with(RetryPolicy { max_age_ms: 2_000, ..POLICY }));
    assert_eq!(attempts(&mut cluster, 70_000), [30_000, 31_000, 60_000, 61_000]);
}

/// Whether the timer has a policy, how late it is, and whether it is too old.
#[test]
fn the_age_of_a_policy_ends_a_pop_at_the_millisecond() {
    let policy = RetryPolicy { max_age_ms: 3_000, ..POLICY };
    for (retry, late_ms, is_too_old) in [
        (Some(policy), 2_999, false),
        (Some(policy), 3_000, true),
        (None, 2_999, false),
        (None, 1_000_000, false),
    ] {
        let mut cluster = Cluster::new(1, true);
        let id = cluster.create_with(0, (1, 1), 1, &Attributes { retry, ..Attributes::default() });
        let shard = cluster.shard(0);
        let record = *shard.records.get(shard.find(id).expect("it is held"));
        let tick = shard.records.due(&record) + late_ms;
        assert_eq!(shard.is_too_old(tick, &record), is_too_old, "{retry:?} {late_ms}");
    }
}

#[test]
fn jitter_stretches_pauses_by_its_share_at_most() {
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    let policy = RetryPolicy { max_attempts: 2, jitter_milli: 200, ..POLICY };
    for _ in 0..40 {
        cluster.create_with(0, (1, 1), 1, &with(policy));
    }
    let mut second = attempts(&mut cluster, 5_000).split_off(40);
    assert!(second.iter().all(|ms| (2_000..=2_200).contains(ms)), "{second:?}");
    second.dedup();
    assert!(second.len() > 10, "they do not come together: {second:?}");
}

#[test]
fn a_server_that_asks_for_time_gets_it() {
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Later(RetryAfter::Seconds(20));
    cluster.create_with(0, (1, 1), 1, &with(RetryPolicy { max_attempts: 3, ..POLICY }));
    assert_eq!(attempts(&mut cluster, 60_000), [1_000, 21_000, 41_000]);
    // Without a policy such an answer is a failure like any other.
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Later(RetryAfter::Seconds(20));
    cluster.create(0, (1, 1), 1);
    assert!(attempts(&mut cluster, 5_000).len() > 3);
    // A moment that is past, or after the end, changes nothing or ends the pop at its age.
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Later(RetryAfter::At(7));
    cluster.create_with(0, (1, 1), 1, &with(POLICY));
    assert_eq!(attempts(&mut cluster, 10_000), [1_000, 2_000, 5_000]);
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Later(RetryAfter::Seconds(u32::MAX));
    cluster.create_with(0, (1, 1), 1, &with(POLICY));
    assert_eq!(attempts(&mut cluster, 110_000), [1_000]);
    assert_eq!(cluster.shard(0).counters().given_up, 1);
}

#[test]
fn a_moment_that_a_server_names_is_waited_for_whatever_a_clock_shows_meanwhile() {
    for ahead_ms in [0, 3_600_000] {
        let mut cluster = Cluster::new(1, true);
        // 20 s after the start.
        cluster.outcome = |_, _| CallbackOutcome::Later(RetryAfter::At(1_020));
        cluster.create_with(0, (1, 1), 1, &with(RetryPolicy { max_attempts: 2, ..POLICY }));
        cluster.nodes[0].ahead_ms = ahead_ms;
        assert_eq!(attempts(&mut cluster, 25_000), [1_000, 20_000], "{ahead_ms}");
    }
}

#[test]
fn a_pop_that_is_put_off_does_not_make_its_pause_once_more() {
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Unreachable;
    let hourly = RetryPolicy { initial_ms: 60_000, max_ms: 60_000, ..POLICY };
    let id = cluster.create_with(0, (1, 1), 1, &with(hourly));
    let plain: Vec<_> = (0..12).map(|_| cluster.create(0, (1, 200), 1)).collect();
    assert!(!plain.contains(&id));
    (1..=61_200).for_each(|ms| cluster.pass_to(ms));
    assert!(!cluster.holders(id).is_empty());
    cluster.outcome = |_, _| CallbackOutcome::Delivered;
    (61_201..=70_000).for_each(|ms| cluster.pass_to(ms));
    assert!(cluster.holders(id).is_empty(), "delivered soon after its host is well again");
}

/// Three nodes that have long been up.
fn three(outcome: fn(usize, u64) -> CallbackOutcome) -> Cluster {
    let mut cluster = Cluster::new(3, true);
    cluster.outcome = outcome;
    cluster.run_until(10);
    cluster
}

#[test]
fn gone_ends_a_repeating_timer_on_all_nodes() {
    let mut cluster = three(|_, _| CallbackOutcome::Gone);
    let id = cluster.create_with(0, (1, 60), 3, &with(POLICY));
    cluster.run_until(20);
    assert_eq!(cluster.pops.len(), 1);
    assert!(cluster.holders(id).is_empty());
    // A timer without a policy goes on.
    let id = cluster.create(0, (1, 60), 3);
    cluster.run_until(25);
    assert!(cluster.pops.len() > 2, "{:?}", cluster.pops);
    assert_eq!(cluster.holders(id).len(), 3);
}

/// When attempts at the only timer begin, in seconds after its start, and at which nodes.
fn tries(cluster: &Cluster) -> Vec<(u64, usize)> {
    cluster.pops.iter().map(|(second, node, _)| (second - 10, *node)).collect()
}

#[test]
fn the_node_that_has_begun_keeps_the_pop_while_it_lives() {
    let mut cluster = three(|_, _| CallbackOutcome::Rejected);
    let id = cluster.create_with(0, (1, 1), 3, &with(POLICY));
    let first = cluster.list(id)[0];
    cluster.run_until(70);
    assert_eq!(tries(&cluster), [1, 2, 5, 14].map(|second| (second, first)));
    let kept: Vec<u64> = (0..3).map(|node| cluster.shard(node).counters().letters).collect();
    assert_eq!(kept, [1, 1, 1], "all nodes know that it was given up, and hold it");
}

/// The first rank has given the first pop up, and does not act at the second. It stands before the
/// one that acts in the list all the same, and asks.
#[test]
fn a_rank_that_does_not_act_leaves_a_pop_to_the_one_that_tries() {
    for promotion in [true, false] {
        let mut cluster = Cluster::new(3, promotion);
        cluster.outcome = |_, _| CallbackOutcome::Rejected;
        cluster.run_until(10);
        let every_second = RetryPolicy { max_attempts: 100, multiplier_milli: 1_000, ..POLICY };
        let id = cluster.create_with(0, (12, 24), 3, &with(every_second));
        let first = cluster.list(id)[0];
        cluster.run_until(70);
        let (before, after): (Vec<_>, Vec<_>) =
            tries(&cluster).into_iter().partition(|(second, _)| *second < 24);
        assert!(before.len() > 8 && before.iter().all(|(_, node)| *node == first), "{before:?}");
        assert!(after.len() > 20 && after[0].1 != first, "{after:?}");
        assert!(after.iter().all(|(_, node)| *node == after[0].1), "{after:?}");
    }
}

#[test]
fn one_other_rank_takes_a_pop_over_from_a_dead_node_and_counts_anew() {
    let mut cluster = three(|_, _| CallbackOutcome::Rejected);
    let id = cluster.create_with(0, (1, 1), 3, &with(POLICY));
    let first = cluster.list(id)[0];
    cluster.run_until(17);
    cluster.kill(first);
    cluster.run_until(90);
    let tries = tries(&cluster);
    let (before, after) = tries.split_at(3);
    assert_eq!(before, [1, 2, 5].map(|second| (second, first)));
    assert_eq!(after.len(), 4, "{tries:?}");
    let next = after[0].1;
    assert!(next != first && after.iter().all(|(_, node)| *node == next), "{tries:?}");
    assert!(after[0].0 <= 7 + 3, "within a quarter of the age of the pop: {tries:?}");
}

#[test]
fn a_pop_that_hangs_for_long_is_not_made_twice() {
    let attributes = Attributes { timeout_ms: Some(60_000), ..Attributes::default() };
    let mut cluster = three(|_, _| CallbackOutcome::Delivered);
    let id = cluster.create_with(0, (1, 1), 3, &attributes);
    cluster.hung = Some(cluster.list(id)[0]);
    cluster.run_until(60);
    assert_eq!(tries(&cluster).len(), 1);
    cluster.answer_callbacks(CallbackOutcome::Delivered);
    cluster.run_until(90);
    assert_eq!(tries(&cluster).len(), 1);
    assert!(cluster.holders(id).is_empty());
}

#[test]
fn a_window_spreads_pops_over_itself_by_id() {
    let mut cluster = Cluster::new(1, true);
    let attributes = Attributes { window_ms: Some(10_000), ..Attributes::default() };
    let ids: Vec<_> = (0..60).map(|_| cluster.create_with(0, (1, 1), 1, &attributes)).collect();
    let at_ms = attempts(&mut cluster, 12_000);
    assert_eq!(at_ms.len(), 60);
    assert!(at_ms.iter().all(|ms| (1_000..=11_000).contains(ms)), "{at_ms:?}");
    let early = at_ms.iter().filter(|ms| **ms < 6_000).count();
    assert!((15..45).contains(&early), "{at_ms:?}");
    // What a client reads counts from what it asked for.
    let id = cluster.create_with(0, (100, 100), 1, &attributes);
    assert!(!ids.contains(&id));
    cluster.pass_to(13_000);
    match cluster.ask(0, Request::Read(target(id, 1))) {
        Answer::Found(view) => assert_eq!(view.age_ms, 1_000, "{START_MS}"),
        other => panic!("{other:?}"),
    }
}

/// A callback that is to be made again at once may be too old by then, but only if one has failed.
#[test]
fn an_attempt_that_is_made_again_at_once_is_not_made_too_late() {
    for (has_failed, late_ms, is_too_old) in
        [(true, 2_999, false), (true, 3_000, true), (false, 3_000, false), (false, 0, false)]
    {
        let mut cluster = Cluster::new(1, true);
        cluster.outcome = |_, _| CallbackOutcome::Rejected;
        let slow = RetryPolicy { max_age_ms: 3_000, initial_ms: 50_000, ..POLICY };
        let id = cluster.create_with(0, (1, 1), 1, &with(slow));
        if has_failed {
            cluster.pass_to(1_002);
        }
        let shard = cluster.shard(0);
        let slot = shard.find(id).expect("it is held");
        let record = *shard.records.get(slot);
        assert_eq!(record.attempts, u8::from(has_failed));
        let tick = shard.records.due(&record) + late_ms;
        assert_eq!(shard.is_retry_too_old(tick, slot), is_too_old, "{has_failed} {late_ms}");
    }
}
