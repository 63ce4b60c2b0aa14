//! Scenario `herd`: all timers are due in the same millisecond while requests go on.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::kind::Scenario;
use super::setup::{
    await_pops, create_ahead, finish_sink, lead_ns, nobody, plan, run_client, shape, start_sink,
};
use crate::client::Plan;
use crate::clock::clock_ns;
use crate::creator::{Creator, Due};
use crate::flags::ScenarioFlags;
use crate::ledger::Ledger;
use crate::leftover;
use crate::report::Report;
use crate::request::TimerShape;

/// How long requests run before the herd, to compare with the time during the herd.
const BEFORE: Duration = Duration::from_secs(2);

/// Creates --timers timers due at one instant. Then sends --rate requests a second, from two
/// seconds before that instant until all timers have popped.
pub fn run(flags: &ScenarioFlags) -> Result<Report> {
    let ledger = Arc::new(Ledger::new(flags.timers as usize, 1, 1));
    let start_ns = clock_ns();
    let sink = start_sink(flags, &ledger)?;
    let due_ns = clock_ns() + lead_ns(flags) + BEFORE.as_nanos() as u64;
    let one_pop = TimerShape { pops_each: 1, ..shape(flags, sink.address) };
    let herd = Some(Arc::clone(&ledger));
    let created = create_ahead(flags, &one_pop, due_ns, flags.spread_ms, herd)?;

    let begin_ns = due_ns - BEFORE.as_nanos() as u64;
    std::thread::sleep(Duration::from_nanos(begin_ns.saturating_sub(clock_ns())));
    let seen = Arc::clone(&ledger);
    let creator = Creator::new(&shape(flags, nobody()), Due::AfterMs(3_600_000), u64::MAX, None)
        .until(Box::new(move || seen.distinct() >= seen.owed()));
    let plan = Plan {
        warm_up: Duration::ZERO,
        duration: BEFORE + flags.duration_s,
        split_ns: Some(due_ns),
        ..plan(flags)
    };
    let about = BEFORE + Duration::from_micros(u64::from(flags.timers) * 6);
    let (_, outcome) = run_client("herd", plan, about, creator)?;
    await_pops(flags, &ledger, clock_ns() + flags.drain_s.as_nanos() as u64, "last pops");

    let mut report = Report::new(Scenario::Herd.name());
    let beside = outcome.recorder.answered_in_all;
    report.add_requests(outcome, Some("during the herd"), flags.allow_errors);
    report.server.cpu_us_per_request = None;
    for (failure, count) in created.recorder.failures {
        report.problem(format!("{count} timers of the herd not created: {}", failure.name()));
    }
    finish_sink(&mut report, sink, &ledger, start_ns, None)?;
    report.notes.push(
        "each timer's interval is counted to one instant; what the requests take on their way \
         spreads the herd by that much"
            .to_owned(),
    );
    leftover::tell(&mut report, flags, beside, nobody());
    Ok(report)
}
