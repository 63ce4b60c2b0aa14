//! Reports of pops, in a node alone and in a cluster.

use crate::base::ids::{Slot, TimerId};
use crate::shard::effects::{Answer, CallbackOutcome, Condition, Conditional, Request};
use crate::shard::harness_tests::{Cluster, START_MS, target};
use crate::timer::naming::id_of_report;
use crate::wire::attributes::{Attributes, CronTiming, RetryPolicy};
use crate::wire::dead_letter::LetterUse;
use crate::wire::report::ReportKind;
use crate::wire::timer_action::TimerAction;
use crate::wire::timer_path::hex_digits;
use crate::wire::wall_time::write_wall_time;

/// Two attempts, a second apart, within 100 s.
const POLICY: RetryPolicy = RetryPolicy {
    max_attempts: 2,
    max_age_ms: 100_000,
    initial_ms: 1_000,
    max_ms: 50_000,
    multiplier_milli: 1_000,
    jitter_milli: 0,
};

fn both() -> Attributes<'static> {
    Attributes {
        retry: Some(POLICY),
        on_success: Some("http://done:9000/yes?a"),
        on_failure: Some("https://failed/no"),
        ..Attributes::default()
    }
}

/// The reports that a node holds: where each goes, and what it says.
fn reports(cluster: &mut Cluster, node: usize) -> Vec<(String, String)> {
    let records = &cluster.shard(node).records;
    let mut found = Vec::new();
    for slot in records.occupied_from(Slot(0)) {
        let record = records.get(slot);
        if !record.is_live() {
            continue;
        }
        let content = records.content_of(record);
        let attributes = content.attributes();
        if attributes.report.is_some() {
            assert_eq!(attributes.content_type, Some("application/json"));
            assert_eq!((record.interval_ms, record.sequence), (0, 0));
            let target = String::from_utf8_lossy(content.target);
            let uri = format!("{}{target}", records.authority_of(record));
            found.push((uri, String::from_utf8_lossy(content.opaque).into_owned()));
        }
    }
    found.sort();
    found
}

fn made(cluster: &mut Cluster) -> u64 {
    let nodes = 0..cluster.nodes.len();
    let up: Vec<usize> = nodes.filter(|node| cluster.nodes[*node].shard.is_some()).collect();
    up.into_iter().map(|node| cluster.shard(node).counters().reports_made).sum()
}

fn time(ms: u64) -> String {
    let mut out = Vec::new();
    write_wall_time(crate::base::time::WallMs(START_MS + ms), &mut out);
    String::from_utf8(out).expect("text")
}

/// Lets a pop that hangs end so, and its report hang in turn.
fn end(cluster: &mut Cluster, outcome: CallbackOutcome) {
    cluster.answer_callbacks(outcome);
    cluster.hung = Some(0);
}

#[test]
fn a_success_is_reported_by_a_timer_of_its_own() {
    let mut cluster = Cluster::new(1, true);
    cluster.hung = Some(0);
    let id = cluster.create_with(0, (1, 1), 1, &both());
    cluster.pass_to(1_000);
    assert!(reports(&mut cluster, 0).is_empty());
    end(&mut cluster, CallbackOutcome::Delivered);
    let digits = String::from_utf8(hex_digits(id.0).to_vec()).expect("digits");
    let body = |rest: &str| format!(r#"{{"id":"{digits}-1-{rest}"#);
    let found = reports(&mut cluster, 0);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, "done:9000/yes?a");
    assert!(found[0].1.starts_with(&body("")), "{}", found[0].1);
    let rest = format!(r#""sequence-number":1,"due":"{}","attempts":1}}"#, time(1_000));
    assert!(found[0].1.ends_with(&rest), "{}", found[0].1);
    assert_eq!(cluster.ask(0, Request::Read(target(id, 1))), Answer::NotFound, "it is over");
    cluster.pass_to(2_000);
    assert_eq!(cluster.hanging.len(), 1, "the report is on its way");
    end(&mut cluster, CallbackOutcome::Delivered);
    assert!(reports(&mut cluster, 0).is_empty());
    cluster.pass_to(200_000);
    let counters = *cluster.shard(0).counters();
    assert_eq!((counters.reports_made, counters.delivered, counters.timers), (1, 2, 0));
    cluster.audit();
}

/// The timer is paused between the attempt and the answer, so the pop is one of a later version.
#[test]
fn a_pop_whose_timer_is_paused_while_it_runs_is_reported_with_what_the_server_said() {
    for (outcome, status, uri, says) in [
        (CallbackOutcome::Delivered, 202, "done:9000/yes?a", r#""attempts":1,"status":202}"#),
        (CallbackOutcome::Gone, 410, "failed", r#""attempts":1,"status":410,"reason":"gone"}"#),
    ] {
        let mut cluster = Cluster::new(1, true);
        cluster.hung = Some(0);
        let id = cluster.create_with(0, (1, 10), 1, &both());
        cluster.pass_to(1_000);
        let pause = Conditional {
            target: target(id, 1),
            condition: Condition::Present,
            definition: None,
            action: Some(TimerAction::Pause),
        };
        let paused = cluster.ask(0, Request::Conditional(pause));
        assert!(matches!(paused, Answer::Identified(_)), "{paused:?}");
        let ticket = cluster.hanging[0].1;
        cluster.shard(0).note_answer(&ticket, status, b"");
        end(&mut cluster, outcome);
        let found = reports(&mut cluster, 0);
        assert_eq!(found.len(), 1, "{outcome:?}: {found:?}");
        assert!(found[0].0.contains(uri), "{found:?}");
        let due = format!(r#""sequence-number":1,"due":"{}","#, time(1_000));
        assert!(found[0].1.contains(&due) && found[0].1.ends_with(says), "{found:?}");
        assert_eq!(made(&mut cluster), 1);
        cluster.audit();
    }
}

#[test]
fn each_pop_of_a_repeating_timer_is_reported_with_its_number() {
    let mut cluster = Cluster::new(1, true);
    cluster.create_with(0, (10, 30), 1, &both());
    cluster.outcome = |_, sequence| match sequence {
        2 => CallbackOutcome::Rejected,
        _ => CallbackOutcome::Delivered,
    };
    for (until_ms, uri, number) in
        [(10_000, "done:9000/yes?a", 1), (21_000, "https://failed/no", 2), (30_000, "done", 3)]
    {
        // The report of this pop does not begin within the millisecond.
        cluster.pass_to(until_ms);
        let found = reports(&mut cluster, 0);
        let says = format!(r#""sequence-number":{number},"due":"{}""#, time(number * 10_000));
        let is_it = |(to, body): &(String, String)| to.starts_with(uri) && body.contains(&says);
        assert!(found.len() == 1 && is_it(&found[0]), "{says} {found:?}");
        cluster.pass_to(until_ms + 10);
        assert!(reports(&mut cluster, 0).is_empty(), "it was taken");
    }
    assert_eq!(made(&mut cluster), 3);
    cluster.audit();
}

#[test]
fn a_failure_tells_why_beside_its_letter() {
    for (outcome, reason, attempts) in [
        (CallbackOutcome::Rejected, "attempts", 2),
        (CallbackOutcome::Denied, "denied", 0),
        (CallbackOutcome::Gone, "gone", 1),
    ] {
        let mut cluster = Cluster::new(1, true);
        cluster.hung = Some(0);
        cluster.create_with(0, (1, 1), 1, &both());
        cluster.pass_to(1_000);
        let ticket = cluster.hanging[0].1;
        cluster.shard(0).note_answer(&ticket, 503, b"busy");
        end(&mut cluster, outcome);
        if outcome == CallbackOutcome::Rejected {
            cluster.pass_to(2_000);
            cluster.shard(0).note_answer(&ticket, 503, b"busy");
            end(&mut cluster, outcome);
        }
        let found = reports(&mut cluster, 0);
        assert_eq!((found.len(), found[0].0.as_str()), (1, "https://failed/no"), "{reason}");
        let says = format!(r#""attempts":{attempts},"status":503,"reason":"{reason}"}}"#);
        assert!(found[0].1.ends_with(&says), "{}", found[0].1);
        let letters = cluster.shard(0).counters().letters_kept;
        assert_eq!(letters, u64::from(outcome != CallbackOutcome::Gone), "{reason}");
        cluster.audit();
    }
    // Without a policy a pop is given up at its age.
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    let on_failure = Attributes { retry: None, ..both() };
    cluster.create_with(0, (1, 1), 1, &on_failure);
    (1..62).for_each(|second| cluster.pass_to(second * 1_000));
    let found = reports(&mut cluster, 0);
    assert!(found.len() == 1 && found[0].1.contains(r#""reason":"age"}"#), "{found:?}");
}

#[test]
fn a_report_ends_counted_and_is_neither_reported_nor_kept() {
    for outcome in [CallbackOutcome::Rejected, CallbackOutcome::Denied, CallbackOutcome::Gone] {
        let mut cluster = Cluster::new(1, true);
        cluster.shard(0).config.callbacks.dead_letters.plain = true;
        cluster.hung = Some(0);
        cluster.create_with(0, (1, 1), 1, &both());
        cluster.pass_to(1_000);
        cluster.answer_callbacks(CallbackOutcome::Delivered);
        cluster.outcome = match outcome {
            CallbackOutcome::Rejected => |_, _| CallbackOutcome::Rejected,
            CallbackOutcome::Denied => |_, _| CallbackOutcome::Denied,
            _ => |_, _| CallbackOutcome::Gone,
        };
        cluster.pass_to(400_000);
        let counters = *cluster.shard(0).counters();
        assert_eq!((counters.reports_made, counters.reports_given_up), (1, 1), "{outcome:?}");
        assert_eq!((counters.timers, counters.letters), (0, 0), "{outcome:?}");
        let attempts = if outcome == CallbackOutcome::Rejected { 8 } else { 1 };
        assert_eq!(cluster.pops.len(), 1 + attempts, "{outcome:?}");
        cluster.audit();
    }
}

#[test]
fn a_letter_on_its_way_is_not_reported_again_and_a_replay_is() {
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    let to = Attributes { dead_letter_uri: Some("http://letters/dead"), ..both() };
    let id = cluster.create_with(0, (1, 1), 1, &to);
    cluster.pass_to(10_000);
    assert_eq!((cluster.shard(0).counters().letters, made(&mut cluster)), (1, 1));
    cluster.hung = Some(0);
    let replay = Request::Letter(target(id, 1), LetterUse::Replay, None);
    assert!(matches!(cluster.ask(0, replay), Answer::Done { .. }));
    cluster.pass_to(10_010);
    end(&mut cluster, CallbackOutcome::Delivered);
    let found = reports(&mut cluster, 0);
    let done = found.iter().find(|(uri, _)| uri == "done:9000/yes?a");
    let (_, body) = done.unwrap_or_else(|| panic!("{found:?}"));
    assert!(body.contains(r#""sequence-number":1,"#), "{body}");
    cluster.audit();
}

#[test]
fn names_numbers_and_due_times_are_those_of_the_timer() {
    let mut cluster = Cluster::new(1, true);
    let cron = CronTiming {
        expression: "*/10 * * * * *",
        zone: "UTC",
        due_ms: START_MS + 10_000,
        done: 6,
        catch_up_ms: 60_000,
        end_ms: None,
    };
    let named = Attributes { cron: Some(cron), name: Some("a \u{20ac}"), ..both() };
    cluster.create_ms(0, 10_003, 1, &named);
    cluster.pass_to(10_003);
    let found = reports(&mut cluster, 0);
    assert_eq!(found.len(), 1);
    let says = format!(
        r#""name":"a {}","sequence-number":7,"due":"{}","attempts":1}}"#,
        '\u{20ac}',
        time(10_000)
    );
    assert!(found[0].1.ends_with(&says), "{}", found[0].1);
    cluster.pass_to(21_000);
    assert_eq!(made(&mut cluster), 2, "the pop after it, too");
    // The moment of `at` is told as it was written, with what its window adds.
    let at = Attributes { at_ms: Some(START_MS + 30_000), ..both() };
    cluster.create_ms(0, 9_002, 1, &at);
    let at_ms = 21_000 + 9_002;
    cluster.pass_to(at_ms - 1);
    cluster.pass_to(at_ms);
    let found = reports(&mut cluster, 0);
    let says = format!(r#""due":"{}""#, time(30_000));
    assert!(found.iter().any(|(_, body)| body.contains(&says)), "{found:?}");
}

#[test]
fn without_room_a_report_is_counted_and_the_pop_is_over_all_the_same() {
    let mut cluster = Cluster::new(1, true);
    let id = cluster.create_with(0, (1, 1), 1, &both());
    cluster.shard(0).records.set_bytes_max(0);
    cluster.pass_to(5_000);
    let counters = *cluster.shard(0).counters();
    assert_eq!((counters.reports_made, counters.reports_without_room), (0, 1));
    assert!(cluster.holders(id).is_empty());
    cluster.audit();
}

#[test]
fn a_report_takes_no_id_from_another_timer() {
    let mut cluster = Cluster::new(1, true);
    let id = cluster.create_with(0, (1, 1), 1, &both());
    let shard = cluster.shard(0);
    let version = shard.records.get(shard.find(id).expect("it is held")).version;
    let other = id_of_report(id, version, 1, ReportKind::Success);
    cluster.put(0, other, (500, 500), 1);
    cluster.pass_to(5_000);
    let counters = *cluster.shard(0).counters();
    assert_eq!((counters.reports_made, counters.reports_without_room), (0, 1));
    assert_eq!(cluster.holders(other), [0]);
}

#[test]
fn timers_that_do_not_ask_are_not_reported() {
    let mut cluster = Cluster::new(1, true);
    cluster.create(0, (1, 3), 1);
    cluster.create_with(0, (1, 3), 1, &Attributes { retry: Some(POLICY), ..Attributes::default() });
    cluster.create_with(0, (1, 3), 1, &Attributes { on_success: None, ..both() });
    cluster.pass_to(10_000);
    assert_eq!((made(&mut cluster), cluster.pops.len()), (0, 9));
}

#[test]
fn a_report_outlives_the_node_that_made_it() {
    let mut cluster = Cluster::new(3, true);
    cluster.run_until(10);
    let id = cluster.create_with(0, (10, 10), 2, &both());
    let (first, second) = (cluster.list(id)[0], cluster.list(id)[1]);
    cluster.hung = Some(first);
    cluster.run_until(21);
    // No node makes the report while these hang.
    cluster.answer_callbacks(CallbackOutcome::Delivered);
    let holders = |cluster: &mut Cluster| -> Vec<usize> {
        (0..3).filter(|node| !reports(cluster, *node).is_empty()).collect()
    };
    assert_eq!(holders(&mut cluster).len(), 2, "as many replicas as the timer has");
    cluster.kill(first);
    cluster.pops.clear();
    cluster.run_until(60);
    assert_eq!(cluster.pops.len(), 1, "{:?}", cluster.pops);
    assert_ne!(cluster.pops[0].1, first);
    assert!(cluster.holders(id).is_empty() && second != first);
    cluster.audit();
}

/// The ids of the reports that nodes hold or have held.
fn ids(cluster: &mut Cluster, timer: TimerId, version: u64) -> Vec<(usize, bool)> {
    let version = crate::timer::version::Version(version);
    let id = crate::timer::naming::id_of_report(timer, version, 1, ReportKind::Success);
    let held = |node: usize| cluster.shard(node).held(id).map(|held| (node, held.is_live));
    (0..3).filter_map(held).collect()
}

#[test]
fn two_nodes_that_report_one_pop_make_one_timer() {
    let mut cluster = Cluster::new(3, true);
    cluster.run_until(10);
    let id = cluster.create_with(0, (10, 10), 2, &both());
    let list = cluster.list(id);
    let (first, second) = (list[0], list[1]);
    let version = cluster.shard(first).held(id).expect("held").version.0;
    // The first rank delivers while nobody hears it; the second rank delivers as well.
    (0..3).filter(|node| *node != first).for_each(|other| cluster.cut(first, other, true));
    cluster.run_until(26);
    let by = |cluster: &Cluster, node| cluster.pops.iter().filter(|pop| pop.1 == node).count();
    assert!(by(&cluster, first) >= 2 && by(&cluster, second) >= 1, "{:?}", cluster.pops);
    assert_eq!(made(&mut cluster), 2);
    (0..3).filter(|node| *node != first).for_each(|other| cluster.cut(first, other, false));
    cluster.pops.clear();
    cluster.run_until(60);
    assert!(cluster.pops.is_empty(), "no more comes of it: {:?}", cluster.pops);
    assert!(ids(&mut cluster, id, version).iter().all(|(_, is_live)| !is_live));
    assert_eq!(made(&mut cluster), 2);
    cluster.audit();
}
