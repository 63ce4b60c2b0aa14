//! Scenarios of sessions: `churn` with as many creates as updates and deletes, and `ralf` with
//! sessions like the calls of a charging function.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;

use super::kind::Scenario;
use super::setup::{fill_plan, nobody, plan, run_client, shape};
use crate::flags::ScenarioFlags;
use crate::leftover;
use crate::report::{Report, grouped};
use crate::request::TimerShape;
use crate::sessions::{Manners, Sessions};
use crate::sink::Sink;

/// One call in so many is never ended by a DELETE. Its timer ends by itself after repeat-for.
const MISSED_ONE_IN: u64 = 100;

/// Runs sessions: create, update --refreshes times, delete.
pub fn churn(flags: &ScenarioFlags) -> Result<Report> {
    let manners = Manners {
        live: flags.timers as usize,
        refreshes: flags.refreshes,
        random: false,
        missed_one_in: 0,
        ramp: true,
    };
    run(Scenario::Churn, flags, &shape(flags, nobody()), manners)
}

/// Runs calls: interval 5 minutes, repeat-for twice as long, refreshed --refreshes times on
/// average.
pub fn ralf(flags: &ScenarioFlags) -> Result<Report> {
    // The sink only counts, because a call's timer may pop or not, depending on when it is
    // refreshed.
    let sink = Sink::new(flags.sink.sink_mode, None);
    let pops = sink.counter();
    let sink = sink.start(flags.sink.sink_listen, flags.sink.sink_core)?;
    let shape =
        TimerShape { ralf: true, pops_each: flags.pops_each.max(2), ..shape(flags, sink.address) };
    let manners = Manners {
        live: flags.timers as usize,
        refreshes: flags.refreshes,
        random: true,
        missed_one_in: MISSED_ONE_IN,
        ramp: true,
    };
    let mut report = run(Scenario::Ralf, flags, &shape, manners)?;
    sink.stop()?;
    let pops = Arc::clone(&pops).load(Ordering::Relaxed);
    report.notes.push(format!("{} callbacks arrived meanwhile", grouped(pops)));
    Ok(report)
}

fn run(
    scenario: Scenario,
    flags: &ScenarioFlags,
    shape: &TimerShape,
    manners: Manners,
) -> Result<Report> {
    let sessions = Sessions::new(shape, manners, flags.seed);
    let about = Duration::from_micros(u64::from(flags.timers) * 5);
    let (sessions, ramp) = run_client("first sessions", fill_plan(flags), about, sessions)?;
    let sessions = sessions.ramped();
    let about = flags.warm_up_s + flags.duration_s;
    let (sessions, outcome) = run_client(scenario.name(), plan(flags), about, sessions)?;
    let mut report = Report::new(scenario.name());
    report.add_requests(outcome, None, flags.allow_errors);
    for (failure, count) in ramp.recorder.failures {
        report.problem(format!("{count} requests failed in the ramp: {}", failure.name()));
    }
    if sessions.bad_locations > 0 {
        report.problem(format!("{} answers without a usable Location", sessions.bad_locations));
    }
    let (live, missed) = (sessions.live() as u64, sessions.missed);
    report.notes.push(format!(
        "{} sessions alive at the end, {} never ended on purpose",
        grouped(live),
        grouped(missed)
    ));
    leftover::tell(&mut report, flags, live + missed, shape.callback);
    Ok(report)
}
