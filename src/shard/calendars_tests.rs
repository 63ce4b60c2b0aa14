//! Timers that follow the calendar, in a node alone and in a cluster.

use super::LOOKS_PER_TICK;
use crate::base::ids::{Slot, TimerId};
use crate::shard::effects::{
    Answer, CallbackOutcome, Condition, Conditional, Event, Outbox, Purpose, Request, TimerView,
};
use crate::shard::harness_tests::{Cluster, FROM, content, definition, target, tell};
use crate::timer::calendar::Calendar;
use crate::timer::definition::{Definition, encode_with_attributes};
use crate::wire::attributes::{Attributes, CronTiming};
use crate::wire::peer_message::decode_result;
use crate::wire::timer_action::TimerAction;

/// A timer that pops at each moment of an expression, from now on.
fn follow(cluster: &mut Cluster, timing: CronTiming<'_>, factor: u8) -> TimerId {
    follow_within(cluster, timing, factor, None)
}

/// The same, with a window.
fn follow_within(
    cluster: &mut Cluster,
    timing: CronTiming<'_>,
    factor: u8,
    window_ms: Option<u64>,
) -> TimerId {
    let wall_ms = cluster.wall_ms(0);
    let calendar = Calendar::parse(timing.expression, timing.zone).expect("a calendar");
    let due_ms = calendar.next_after(wall_ms).expect("a moment");
    let cron = Some(CronTiming { due_ms, ..timing });
    let attributes = Attributes { cron, window_ms, ..Attributes::default() };
    cluster.create_ms(0, due_ms - wall_ms, factor, &attributes)
}

const EACH_TEN_SECONDS: CronTiming<'static> = CronTiming {
    expression: "*/10 * * * * *",
    zone: "UTC",
    due_ms: 0,
    done: 0,
    catch_up_ms: 60_000,
    end_ms: None,
};

fn read(cluster: &mut Cluster, id: TimerId) -> Option<TimerView> {
    match cluster.ask(0, Request::Read(target(id, 1))) {
        Answer::Found(view) => Some(*view),
        Answer::NotFound => None,
        other => panic!("{other:?}"),
    }
}

/// The wall times of pops, in ms after the start.
fn pops(cluster: &mut Cluster, until_ms: u64) -> Vec<u64> {
    let begun = cluster.pops.len();
    let mut at = Vec::new();
    for ms in cluster.passed_ms() + 1..=until_ms {
        cluster.pass_to(ms);
        at.resize(cluster.pops.len() - begun, cluster.wall_ms(0));
    }
    at
}

#[test]
fn pops_come_at_the_moments_of_the_expression_and_never_early() {
    let mut cluster = Cluster::new(1, true);
    let id = follow(&mut cluster, EACH_TEN_SECONDS, 1);
    let at = pops(&mut cluster, 45_000);
    assert_eq!(at.len(), 4, "{at:?}");
    assert!(at.iter().all(|wall_ms| wall_ms % 10_000 <= 2), "{at:?}");
    let view = read(&mut cluster, id).expect("it goes on");
    let cron = Attributes::read(&view.attributes).expect("attributes").cron.expect("a calendar");
    assert_eq!((cron.done, view.sequence), (4, 0));
    cluster.audit();
    assert!(matches!(cluster.ask(0, Request::Delete(target(id, 1))), Answer::Done { .. }));
    assert!(pops(&mut cluster, 70_000).is_empty());
}

/// The process was down meanwhile, and the machine has not booted.
#[test]
fn a_wall_clock_that_was_set_while_no_process_ran_makes_no_pop_of_moments_that_never_were() {
    for hours in [1, 400 * 24] {
        let mut cluster = Cluster::new(1, true);
        cluster.nodes[0].ahead_ms = hours * 3_600_000;
        cluster.start(0);
        let (right, started) = (cluster.now(), cluster.now_of(0));
        let ahead_ms = (right.wall.0 - right.mono.tick_floor().0) as i64;
        cluster.shard(0).go_on_with_calendars(started, ahead_ms);
        let moment_ms = cluster.shard(0).calendar_wall(started).0.next_multiple_of(10_000);
        let cron = Some(CronTiming { due_ms: moment_ms, ..EACH_TEN_SECONDS });
        let attributes = Attributes { cron, ..Attributes::default() };
        let first_ms = moment_ms - right.wall.0;
        cluster.create_ms(0, first_ms, 1, &attributes);
        let mut begun_ms = Vec::new();
        while cluster.passed_ms() < 29_000 {
            cluster.pass_to(cluster.passed_ms() + 1);
            begun_ms.resize(cluster.pops.len(), cluster.passed_ms());
        }
        let wanted = (0..).map(|pop| first_ms + pop * 10_000).take_while(|ms| *ms < 29_000);
        let is_near = |(begun, due): (&u64, u64)| *begun >= due && *begun <= due + 2;
        assert_eq!(begun_ms.len(), wanted.clone().count(), "{begun_ms:?}");
        assert!(begun_ms.iter().zip(wanted).all(is_near), "{begun_ms:?} {first_ms}");
    }
}

/// While its node lacks a file, say, a pop waits for the moment after it and no longer. What was
/// missed is made up for.
#[test]
fn what_a_node_lacks_costs_no_moment_of_a_calendar() {
    let mut cluster = Cluster::new(1, true);
    let id = follow(&mut cluster, EACH_TEN_SECONDS, 1);
    cluster.outcome = |_, _| CallbackOutcome::Lacking;
    let tried = pops(&mut cluster, 29_000).len();
    assert!(tried > 3, "{tried}");
    cluster.outcome = |_, _| CallbackOutcome::Delivered;
    pops(&mut cluster, 61_000);
    let counters = cluster.shard(0).counters();
    assert_eq!((counters.failed, counters.missed, counters.delivered), (0, 0, 6));
    let view = read(&mut cluster, id).expect("it goes on");
    let cron = Attributes::read(&view.attributes).expect("attributes").cron.expect("a calendar");
    assert_eq!(cron.done, 6, "each moment once");
    cluster.audit();
}

#[test]
fn the_last_moment_ends_the_timer() {
    let mut cluster = Cluster::new(1, true);
    let end_ms = Some(cluster.wall_ms(0) + 25_000);
    let id = follow(&mut cluster, CronTiming { end_ms, ..EACH_TEN_SECONDS }, 1);
    assert_eq!(pops(&mut cluster, 60_000).len(), 2);
    assert_eq!(read(&mut cluster, id), None);
}

#[test]
fn a_failing_pop_is_given_up_when_the_next_is_due() {
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    let id = follow(&mut cluster, EACH_TEN_SECONDS, 1);
    pops(&mut cluster, 35_000);
    let given_up = cluster.shard(0).counters().given_up;
    assert!((2..=3).contains(&given_up), "{given_up}");
    cluster.outcome = |_, _| CallbackOutcome::Delivered;
    pops(&mut cluster, 60_000);
    let view = read(&mut cluster, id).expect("it goes on");
    let cron = Attributes::read(&view.attributes).expect("attributes").cron.expect("a calendar");
    assert!(cron.done >= 5, "what is given up leaves a gap: {}", cron.done);
}

/// No pop comes at the moment after the end, so nothing is to be ready for it.
#[test]
fn the_last_pop_is_retried_beyond_the_end() {
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    let end_ms = Some(cluster.wall_ms(0) + 15_000);
    let id = follow(&mut cluster, CronTiming { end_ms, ..EACH_TEN_SECONDS }, 1);
    pops(&mut cluster, 35_000);
    assert_eq!(cluster.shard(0).counters().given_up, 0);
    cluster.outcome = |_, _| CallbackOutcome::Delivered;
    pops(&mut cluster, 60_000);
    assert_eq!(cluster.shard(0).counters().delivered, 1);
    assert_eq!(read(&mut cluster, id), None);
}

#[test]
fn what_is_missed_is_made_up_for_within_the_window_and_left_out_beyond() {
    for (catch_up_ms, made_up) in [(25_000, 2..=3), (0, 0..=1), (600_000, 9..=11)] {
        let mut cluster = Cluster::new(1, true);
        let timing = CronTiming { catch_up_ms, ..EACH_TEN_SECONDS };
        let id = follow(&mut cluster, timing, 1);
        cluster.skip_to(100_500);
        let at = pops(&mut cluster, 101_500);
        assert!(made_up.contains(&at.len()), "{catch_up_ms}: {at:?}");
        assert!(read(&mut cluster, id).is_some());
        let later = pops(&mut cluster, 125_000);
        assert!((2..=3).contains(&later.len()), "{later:?}");
        assert!(later.iter().all(|wall_ms| wall_ms % 10_000 <= 2), "{later:?}");
    }
}

#[test]
fn a_pop_is_missed_if_it_is_later_than_its_client_allows_and_than_ten_seconds() {
    for (catch_up_ms, late_ms, is_missed) in
        [(60_000, 60_000, false), (60_000, 60_001, true), (0, 10_000, false), (0, 10_001, true)]
    {
        let mut cluster = Cluster::new(1, true);
        let id = follow(&mut cluster, CronTiming { catch_up_ms, ..EACH_TEN_SECONDS }, 1);
        let shard = cluster.shard(0);
        let record = *shard.records.get(shard.find(id).expect("it is held"));
        let tick = shard.records.due(&record) + late_ms;
        assert_eq!(shard.is_missed(tick, &record), is_missed, "{catch_up_ms} {late_ms}");
    }
}

#[test]
fn what_is_at_most_ten_seconds_late_comes_whatever_the_window() {
    let mut cluster = Cluster::new(1, true);
    let timing = CronTiming { expression: "*/2 * * * * *", catch_up_ms: 0, ..EACH_TEN_SECONDS };
    follow(&mut cluster, timing, 1);
    cluster.skip_to(9_500);
    let at = pops(&mut cluster, 9_600);
    assert!((4..=5).contains(&at.len()), "{at:?}");
}

/// The process was stopped after it had decided to make the callback.
#[test]
fn a_pop_whose_callback_did_not_leave_in_its_window_is_left_out() {
    for (late_ms, made, missed) in [(9_000, 2, 0), (10_500, 1, 1)] {
        let mut cluster = Cluster::new(1, true);
        let id = follow(&mut cluster, CronTiming { catch_up_ms: 0, ..EACH_TEN_SECONDS }, 1);
        cluster.hung = Some(0);
        while cluster.pops.is_empty() {
            let passed_ms = cluster.passed_ms();
            cluster.pass_to(passed_ms + 1);
        }
        let (due_ms, done) = timing_of(&mut cluster, id);
        let passed_ms = cluster.passed_ms();
        cluster.skip_to(passed_ms + late_ms);
        cluster.answer_callbacks(CallbackOutcome::Stale);
        assert_eq!((cluster.pops.len(), cluster.shard(0).counters().missed), (made, missed));
        assert_eq!(timing_of(&mut cluster, id), (due_ms + 10_000, done + 1));
        cluster.audit();
    }
}

#[test]
fn all_replicas_follow_and_the_next_rank_goes_on_after_a_death() {
    let mut cluster = Cluster::new(3, true);
    cluster.run_until(10);
    let id = follow(&mut cluster, EACH_TEN_SECONDS, 3);
    let [first, second] = [0, 1].map(|rank| cluster.list(id)[rank]);
    cluster.run_until(45);
    let before = cluster.pops.len();
    assert!((3..=4).contains(&before), "{:?}", cluster.pops);
    assert!(cluster.pops.iter().all(|(_, node, _)| *node == first), "{:?}", cluster.pops);
    assert_eq!(cluster.holders(id).len(), 3);
    cluster.kill(first);
    cluster.run_until(95);
    let after = &cluster.pops[before..];
    assert!((4..=6).contains(&after.len()), "{after:?}");
    assert!(after.iter().all(|(_, node, _)| *node == second), "{after:?}");
    cluster.audit();
}

/// A pop is no write: the sides of a split pop by themselves, and what a client does on one of them
/// holds on both.
#[test]
fn a_pop_of_who_has_not_heard_of_a_write_does_not_undo_it() {
    for is_delete in [true, false] {
        let mut cluster = Cluster::new(3, true);
        cluster.run_until(10);
        let id = follow(&mut cluster, EACH_TEN_SECONDS, 2);
        let [first, second] = [0, 1].map(|rank| cluster.list(id)[rank]);
        let third = 3 - first - second;
        cluster.run_until(12);
        let cut = |cluster: &mut Cluster, is_cut| {
            [second, third].iter().for_each(|other| cluster.cut(first, *other, is_cut));
        };
        cut(&mut cluster, true);
        let content = content();
        let asked = match is_delete {
            true => Request::Delete(target(id, 2)),
            false => Request::Update(target(id, 2), definition((300, 300), 2, &content)),
        };
        assert!(matches!(cluster.ask(second, asked), Answer::Done { .. }));
        let passed = (cluster.passed_ms() / 1_000) + 25;
        cluster.run_until(passed);
        let apart = cluster.pops.len();
        assert!((2..=3).contains(&apart), "it pops where nobody knows: {:?}", cluster.pops);
        cut(&mut cluster, false);
        cluster.run_until(passed + 60);
        assert_eq!(cluster.pops.len(), apart, "{is_delete}: {:?}", cluster.pops);
        let held = cluster.holders(id);
        assert_eq!(held.is_empty(), is_delete, "{held:?}");
        cluster.audit();
    }
}

/// One node decides about a write with a condition while another one's callback ends.
#[test]
fn a_pop_that_ends_beside_a_decided_write_does_not_undo_it() {
    for action in [None, Some(TimerAction::Pause), Some(TimerAction::RunNow)] {
        let mut cluster = Cluster::new(3, true);
        cluster.run_until(10);
        let id = follow(&mut cluster, EACH_TEN_SECONDS, 2);
        let [first, second] = [0, 1].map(|rank| cluster.list(id)[rank]);
        let third = 3 - first - second;
        cluster.kill(first);
        cluster.run_until(25);
        cluster.return_empty(first);
        cluster.hung = Some(second);
        while cluster.hanging.is_empty() {
            let passed_ms = cluster.passed_ms();
            cluster.pass_to(passed_ms + 1);
        }
        let (due_ms, done) = timing_of(&mut cluster, id);
        let (now, mut outbox) = (cluster.now_of(third), Outbox::default());
        let (target, condition, definition) = (target(id, 2), Condition::Present, None);
        let ask = Conditional { target, condition, definition, action };
        let request = Request::Conditional(ask);
        cluster.shard(third).handle(now, Event::Request { from: FROM, request }, &mut outbox);
        // It finds out what the timer is, and asks the first node to decide.
        let decide = loop {
            let message = outbox.to_peers.pop().expect("a question");
            let bytes = outbox.peer_bytes[message.bytes.clone()].to_vec();
            let to = if message.peer == cluster.peer(third, first).expect("known") {
                first
            } else {
                second
            };
            let (now, from) = (cluster.now_of(to), cluster.peer(to, third));
            let (result, replies) = tell(cluster.shard(to), now, from, &bytes);
            cluster.deliver(to, replies);
            if matches!(message.purpose, Purpose::Condition(_)) {
                break (message, result);
            }
            let result = decode_result(&mut &result[..]).expect("encoded by a shard");
            let (peer, purpose) = (message.peer, message.purpose);
            let event = Event::PeerResult { peer, purpose, result };
            cluster.shard(third).handle(now, event, &mut outbox);
        };
        cluster.answer_callbacks(CallbackOutcome::Delivered);
        let (message, result) = decide;
        let result = decode_result(&mut &result[..]).expect("encoded by a shard");
        let (peer, purpose) = (message.peer, message.purpose);
        cluster.handle(third, Event::PeerResult { peer, purpose, result });
        assert!(matches!(cluster.answers.pop(), Some(Answer::Identified(_) | Answer::Done { .. })));
        let made = cluster.pops.len();
        let passed = cluster.passed_ms() / 1_000;
        cluster.run_until(passed + 5);
        match action {
            None => assert!(cluster.holders(id).is_empty()),
            Some(_) => assert_eq!(timing_of(&mut cluster, id).0, due_ms + 10_000),
        }
        let runs = usize::from(action == Some(TimerAction::RunNow));
        assert_eq!(cluster.pops.len(), made + runs, "{action:?}: {:?}", cluster.pops);
        cluster.run_until(passed + 60);
        let goes_on = cluster.pops.len() > made + runs;
        assert_eq!(goes_on, runs > 0, "{action:?}: {:?}", cluster.pops);
        if action == Some(TimerAction::Pause) {
            assert_eq!(timing_of(&mut cluster, id), (due_ms + 10_000, done + 1));
        }
        cluster.audit();
    }
}

fn run_now(cluster: &mut Cluster, id: TimerId) {
    let (target, condition, definition) = (target(id, 1), Condition::Present, None);
    let action = Some(TimerAction::RunNow);
    let ask = Conditional { target, condition, definition, action };
    let answer = cluster.ask(0, Request::Conditional(ask));
    assert!(matches!(answer, Answer::Identified(_)), "{answer:?}");
}

fn timing_of(cluster: &mut Cluster, id: TimerId) -> (u64, u64) {
    let view = read(cluster, id).expect("it goes on");
    let cron = Attributes::read(&view.attributes).expect("attributes").cron.expect("a calendar");
    (cron.due_ms, cron.done)
}

#[test]
fn a_run_uses_up_no_pop_of_the_expression() {
    let mut cluster = Cluster::new(1, true);
    let id = follow(&mut cluster, CronTiming { expression: "@yearly", ..EACH_TEN_SECONDS }, 1);
    let (due_ms, _) = timing_of(&mut cluster, id);
    for run in 1..=100 {
        run_now(&mut cluster, id);
        let passed_ms = cluster.passed_ms();
        cluster.pass_to(passed_ms + 10);
        assert_eq!(cluster.pops.len() as u64, run);
        assert_eq!(timing_of(&mut cluster, id), (due_ms, run), "runs have numbers of their own");
    }
    cluster.audit();
}

#[test]
fn pops_of_the_expression_come_beside_those_that_are_run() {
    let mut cluster = Cluster::new(1, true);
    let end_ms = Some(cluster.wall_ms(0) + 35_000);
    let id = follow(&mut cluster, CronTiming { end_ms, ..EACH_TEN_SECONDS }, 1);
    let mut at = pops(&mut cluster, 12_000);
    run_now(&mut cluster, id);
    at.extend(pops(&mut cluster, 27_000));
    run_now(&mut cluster, id);
    run_now(&mut cluster, id);
    at.extend(pops(&mut cluster, 60_000));
    let (own, run): (Vec<u64>, Vec<u64>) = at.into_iter().partition(|ms| ms % 10_000 <= 2);
    assert_eq!((own.len(), run.len()), (3, 2), "of two runs before a pop one is made");
    assert_eq!(read(&mut cluster, id), None, "the last one ends it");
}

#[test]
fn a_run_that_fails_until_the_next_moment_is_given_up_then() {
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    let id = follow(&mut cluster, EACH_TEN_SECONDS, 1);
    let (due_ms, _) = timing_of(&mut cluster, id);
    run_now(&mut cluster, id);
    let until_ms = due_ms - cluster.wall_ms(0) + cluster.passed_ms();
    pops(&mut cluster, until_ms - 1);
    assert_eq!(cluster.shard(0).counters().given_up, 0);
    pops(&mut cluster, until_ms + 5_000);
    assert_eq!(cluster.shard(0).counters().given_up, 1);
    assert_eq!(timing_of(&mut cluster, id), (due_ms, 1), "its own moment is tried");
}

const HOUR_MS: u64 = 3_600_000;

/// Passes time, and notes when pops are made, in ms after the start.
fn pops_until(cluster: &mut Cluster, until_ms: u64, made: &mut Vec<u64>) {
    let mut known = cluster.pops.len();
    for ms in cluster.passed_ms() + 1..=until_ms {
        cluster.now_ms += 1;
        (0..cluster.nodes.len()).for_each(|node| cluster.tick(node));
        made.extend((known..cluster.pops.len()).map(|_| ms));
        known = cluster.pops.len();
    }
}

fn longest_pause_ms(made: &[u64]) -> u64 {
    made.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(u64::MAX)
}

#[test]
fn a_wall_clock_that_lies_for_some_seconds_moves_no_pop() {
    for nodes in [1, 3] {
        let mut cluster = Cluster::new(nodes, true);
        for node in 0..nodes {
            cluster.nodes[node].ahead_ms = 0;
        }
        follow(&mut cluster, EACH_TEN_SECONDS, nodes as u8);
        let mut made = Vec::new();
        pops_until(&mut cluster, 15_000, &mut made);
        for lie_ms in [HOUR_MS, 400 * 24 * HOUR_MS, 20_000] {
            let begun_ms = cluster.passed_ms();
            cluster.nodes[0].ahead_ms = lie_ms;
            pops_until(&mut cluster, begun_ms + 25_000, &mut made);
            assert!(cluster.shard(0).doubts_clock());
            cluster.nodes[0].ahead_ms = 0;
            pops_until(&mut cluster, begun_ms + 35_000, &mut made);
            assert!(!cluster.shard(0).doubts_clock());
        }
        let passed_ms = cluster.passed_ms();
        assert_eq!(made.len() as u64, passed_ms / 10_000, "{nodes}: {made:?}");
        assert!((9_900..10_100).contains(&longest_pause_ms(&made)), "{made:?}");
        cluster.audit();
    }
}

#[test]
fn a_wall_clock_that_was_believed_and_is_set_right_silences_nothing_and_makes_no_burst() {
    for (first_ms, then_ms) in [(0, HOUR_MS), (HOUR_MS, 0), (0, 400 * 24 * HOUR_MS)] {
        for nodes in [1, 3] {
            let mut cluster = Cluster::new(nodes, true);
            (0..nodes).for_each(|node| cluster.nodes[node].ahead_ms = first_ms);
            (0..nodes).for_each(|node| cluster.start(node));
            (0..nodes).for_each(|node| cluster.meet(node));
            let timing = CronTiming { expression: "*/2 * * * * *", ..EACH_TEN_SECONDS };
            follow(&mut cluster, timing, nodes as u8);
            let mut made = Vec::new();
            pops_until(&mut cluster, 20_000, &mut made);
            for ahead_ms in [then_ms, first_ms] {
                let until_ms = cluster.passed_ms() + 60_000;
                (0..nodes).for_each(|node| cluster.nodes[node].ahead_ms = ahead_ms);
                pops_until(&mut cluster, until_ms, &mut made);
            }
            // At each change a pop may come for what was jumped over.
            assert!((69..=72).contains(&made.len()), "{first_ms} {then_ms}: {made:?}");
            assert!(longest_pause_ms(&made) <= 4_000, "{first_ms} {then_ms}: {made:?}");
            cluster.audit();
        }
    }
}

/// Cores look at the clock by themselves, so one may not have seen yet what another one follows.
#[test]
fn what_a_core_plans_by_a_former_time_is_planned_anew() {
    let year_ms = 365 * 24 * HOUR_MS;
    for (begin_ms, is_conditional) in [(0, false), (0, true), (year_ms, false)] {
        let mut cluster = Cluster::new(1, true);
        cluster.nodes[0].ahead_ms = begin_ms;
        cluster.start(0);
        let id = follow(&mut cluster, EACH_TEN_SECONDS, 1);
        let end_ms = if begin_ms == 0 { year_ms + 17_000 } else { 0 };
        cluster.nodes[0].ahead_ms = end_ms;
        pops(&mut cluster, 60_000);
        assert!(!cluster.shard(0).doubts_clock());
        let former_ms = cluster.wall_ms(0) - end_ms + begin_ms;
        let hourly = CronTiming { expression: "0 0 * * * *", ..EACH_TEN_SECONDS };
        let calendar = Calendar::parse(hourly.expression, hourly.zone).expect("a calendar");
        let due_ms = calendar.next_after(former_ms).expect("a moment");
        let cron = Some(CronTiming { due_ms, ..hourly });
        let mut encoded = Vec::new();
        Attributes { cron, ..Attributes::default() }.write(&mut encoded);
        let mut content = Vec::new();
        encode_with_attributes("/pop", &[], (&encoded, b"x"), &mut content);
        let interval_ms = due_ms - former_ms;
        let plain = definition((1, 1), 1, &content);
        let definition = Definition { interval_ms, repeat_for_ms: interval_ms, ..plain };
        let request = match is_conditional {
            false => Request::Update(target(id, 1), definition),
            true => Request::Conditional(Conditional {
                target: target(id, 1),
                condition: Condition::Present,
                definition: Some(definition),
                action: None,
            }),
        };
        let answer = cluster.ask(0, request);
        assert!(matches!(answer, Answer::Done { .. } | Answer::Identified(_)), "{answer:?}");
        let wanted = calendar.next_after(cluster.wall_ms(0)).expect("a moment");
        assert_eq!(timing_of(&mut cluster, id), (wanted, 0));
        let shard = cluster.shard(0);
        let record = *shard.records.get(shard.find(id).expect("it is held"));
        let due_at = record.due().0 - cluster.now_ms;
        assert!(due_at.abs_diff(wanted - cluster.wall_ms(0)) <= 1, "{due_at}");
    }
}

#[test]
fn a_window_longer_than_the_period_moves_each_pop_by_as_much() {
    for (expression, period_ms) in [("* * * * * *", 1_000), ("*/5 * * * * *", 5_000)] {
        for window_ms in [1_900, 40_000] {
            let mut cluster = Cluster::new(1, true);
            let timing = CronTiming { expression, ..EACH_TEN_SECONDS };
            let id = follow_within(&mut cluster, timing, 1, Some(window_ms));
            assert!(read(&mut cluster, id).is_some());
            let mut made = Vec::new();
            pops_until(&mut cluster, 200_000, &mut made);
            let paces: Vec<u64> = made.windows(2).map(|two| two[1] - two[0]).collect();
            let is_even = paces.iter().all(|pace| pace.abs_diff(period_ms) <= 2);
            assert!(is_even, "{expression} {window_ms}: {paces:?}");
            assert!(made.len() as u64 >= (200_000 - window_ms) / period_ms - 1, "{made:?}");
            assert_eq!(cluster.shard(0).counters().missed, 0);
        }
    }
}

#[test]
fn what_is_run_between_its_moment_and_its_pop_is_beside_the_expression() {
    let mut cluster = Cluster::new(1, true);
    let id = follow_within(&mut cluster, EACH_TEN_SECONDS, 1, Some(9_000));
    let slot = cluster.shard(0).records.find(id).expect("held");
    let record = *cluster.shard(0).records.get(slot);
    let offset_ms = cluster.shard(0).records.content_of(&record).spread_ms(id);
    assert!(offset_ms > 100, "{offset_ms}");
    let (due_ms, _) = timing_of(&mut cluster, id);
    let to_moment_ms = due_ms - cluster.wall_ms(0);
    let mut made = Vec::new();
    pops_until(&mut cluster, to_moment_ms + offset_ms / 2, &mut made);
    assert!(made.is_empty());
    run_now(&mut cluster, id);
    pops_until(&mut cluster, to_moment_ms + offset_ms + 5, &mut made);
    assert_eq!(made.len(), 2, "the run, and the pop of the moment: {made:?}");
}

#[test]
fn what_is_planned_right_is_not_written_anew() {
    let mut cluster = Cluster::new(1, true);
    let follow = |cluster: &mut Cluster| follow_within(cluster, EACH_TEN_SECONDS, 1, Some(5_000));
    let ids = [(); 8].map(|()| follow(&mut cluster));
    let versions = |cluster: &mut Cluster| ids.map(|id| read(cluster, id).map(|it| it.version));
    let before = versions(&mut cluster);
    cluster.shard(0).calendars.walk = Some(Slot(0));
    cluster.pass_to(10);
    assert_eq!(cluster.shard(0).calendars.walk, None, "all have been looked at");
    assert_eq!(versions(&mut cluster), before);
}

#[test]
fn a_walk_looks_at_so_many_timers_in_a_tick() {
    let mut cluster = Cluster::new(1, true);
    for _ in 0..LOOKS_PER_TICK + 9 {
        cluster.create(0, (600, 600), 1);
    }
    let now = cluster.now();
    let shard = cluster.shard(0);
    shard.calendars.walk = Some(Slot(0));
    shard.plan_calendars(now, &mut Outbox::default());
    assert_eq!(shard.calendars.walk, Some(Slot(LOOKS_PER_TICK)));
    shard.plan_calendars(now, &mut Outbox::default());
    assert_eq!(shard.calendars.walk, None);
}

/// A pop is no write of a client: it does not undo what a client has done on the other side.
#[test]
fn what_is_written_on_one_side_of_a_split_stays_whatever_pops_on_the_other() {
    for popping in [0, 1] {
        let mut cluster = Cluster::new(2, true);
        let [deleted, replaced] = [(); 2].map(|()| follow(&mut cluster, EACH_TEN_SECONDS, 2));
        cluster.run_until(15);
        cluster.cut(0, 1, true);
        cluster.cut(1, 0, true);
        cluster.run_until(21);
        let writing = 1 - popping;
        let done = cluster.ask(writing, Request::Delete(target(deleted, 2)));
        assert!(matches!(done, Answer::Done { .. }));
        let content = content();
        let once = definition((600, 600), 2, &content);
        let done = cluster.ask(writing, Request::Update(target(replaced, 2), once));
        assert!(matches!(done, Answer::Done { .. }));
        cluster.run_until(75);
        cluster.cut(0, 1, false);
        cluster.cut(1, 0, false);
        cluster.run_until(79);
        let done = cluster.pops.len();
        assert!(cluster.holders(deleted).is_empty(), "node {popping} pops");
        cluster.run_until(200);
        assert_eq!(cluster.pops.len(), done);
        assert_eq!(cluster.holders(replaced).len(), 2);
        cluster.audit();
    }
}

#[test]
fn a_plan_was_made_at_most_the_spread_of_its_timer_before_it_starts() {
    let mut cluster = Cluster::new(1, true);
    let id = follow_within(&mut cluster, EACH_TEN_SECONDS, 1, Some(5_000));
    let plain = cluster.create(0, (10, 10), 1);
    let now_ms = cluster.wall_ms(0);
    let shard = cluster.shard(0);
    let record = |shard: &super::Shard, id| *shard.records.get(shard.find(id).expect("held"));
    let followed = record(shard, id);
    let spread_ms = shard.records.content_of(&followed).spread_ms(id);
    let planned = shard.planned_between(&followed).expect("it follows a calendar");
    assert!(planned.0.abs_diff(now_ms) <= 1, "{planned:?} {now_ms}");
    assert_eq!(planned.1 - planned.0, spread_ms);
    assert_eq!(shard.planned_between(&record(shard, plain)), None);
}

#[test]
fn a_core_goes_on_by_the_time_of_the_last_process_and_plans_all_anew() {
    let mut cluster = Cluster::new(1, true);
    let now = cluster.now();
    let shard = cluster.shard(0);
    let ahead_ms = now.wall.0.cast_signed() - now.mono.tick_floor().0.cast_signed() + 60_000;
    shard.go_on_with_calendars(now, ahead_ms);
    assert_eq!(shard.calendar_wall(now).0, now.wall.0 + 60_000);
    assert!(shard.is_clock_off(now));
}

#[test]
fn a_core_whose_timers_have_ended_looks_at_no_clock() {
    let mut cluster = Cluster::new(1, true);
    assert_eq!(cluster.shard(0).calendars_wake(), None);
    let id = follow(&mut cluster, EACH_TEN_SECONDS, 1);
    assert!(cluster.shard(0).calendars_wake().is_some());
    cluster.ask(0, Request::Delete(target(id, 1)));
    assert_eq!(cluster.shard(0).calendars_wake(), None);
}
