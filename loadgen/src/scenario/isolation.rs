//! Scenario `isolation`: a callback host that hangs beside a host that answers.

use std::sync::Arc;

use anyhow::{Result, bail};

use super::kind::Scenario;
use super::setup::{
    await_pops, create_ahead, finish_sink, lead_ns, plan, run_client, shape, start_sink,
};
use crate::arrival::Rate;
use crate::clock::clock_ns;
use crate::creator::{Creator, Due};
use crate::flags::ScenarioFlags;
use crate::ledger::Ledger;
use crate::leftover;
use crate::report::{Report, grouped};
use crate::request::TimerShape;
use crate::sink::{Sink, SinkMode};

/// By how many microseconds the p99 of the host that answers may move.
const MOVE_US_MAX: f64 = 1000.0;

/// Lets --timers timers come due at a host that accepts and never answers, in the middle of a
/// steady run of --rate timers a second at another host. Compares the lateness at the other host
/// before and after.
pub fn run(flags: &ScenarioFlags) -> Result<Report> {
    let Rate::PerSecond(rate) = flags.rate else {
        bail!("isolation needs a rate: --rate 2000");
    };
    let seconds = (flags.warm_up_s + flags.duration_s).as_secs_f64();
    let timers = rate * seconds + 5.0 * (rate * seconds).sqrt() + 1.0;
    let ledger = Arc::new(Ledger::new(timers as usize, flags.interval_ms, flags.pops_each));
    let hung = Sink::new(SinkMode::Hang, None);
    let hung_callbacks = hung.counter();
    let hung = hung.start("127.0.0.1:0".parse()?, flags.sink.sink_core)?;

    // The pops of the host that answers begin one interval after their requests. The pops of the
    // host that hangs come due in the middle of them.
    let before_ns = flags.warm_up_s.as_nanos() as u64 + flags.duration_s.as_nanos() as u64 / 2;
    let hung_due_ns = clock_ns() + lead_ns(flags) + before_ns + flags.interval_ms * 1_000_000;
    let hung_shape = TimerShape { pops_each: 1, ..shape(flags, hung.address) };
    let hung_address = hung.address;
    let created = create_ahead(flags, &hung_shape, hung_due_ns, flags.spread_ms, None)?;

    let start_ns = clock_ns();
    let sink = start_sink(flags, &ledger)?;
    let begin_ns = hung_due_ns - before_ns - flags.interval_ms * 1_000_000;
    let left_ns = begin_ns.saturating_sub(clock_ns());
    std::thread::sleep(std::time::Duration::from_nanos(left_ns));
    ledger.split_at(hung_due_ns);
    let due = Due::AfterMs(flags.interval_ms);
    let shape = shape(flags, sink.address);
    let creator = Creator::new(&shape, due, ledger.timers_max(), Some(Arc::clone(&ledger)));
    let about = flags.warm_up_s + flags.duration_s;
    let (_, outcome) = run_client("isolation", plan(flags), about, creator)?;
    let life_ns = flags.interval_ms * 1_000_000 * u64::from(flags.pops_each);
    let until_ns = clock_ns() + life_ns + flags.drain_s.as_nanos() as u64;
    await_pops(flags, &ledger, until_ns, "last pops");

    let mut report = Report::new(Scenario::Isolation.name());
    report.add_requests(outcome, None, flags.allow_errors);
    let unanswered = created.recorder.answered_in_all;
    for (failure, count) in created.recorder.failures {
        report.problem(format!("{count} timers not created: {}", failure.name()));
    }
    finish_sink(&mut report, sink, &ledger, start_ns, Some("while the other host hangs"))?;
    hung.stop()?;
    judge(&mut report, hung_callbacks.load(std::sync::atomic::Ordering::Relaxed));
    // The node tries these again until it gives their pops up.
    leftover::tell(&mut report, flags, unanswered, hung_address);
    Ok(report)
}

fn judge(report: &mut Report, hung_callbacks: u64) {
    let Some(pops) = &report.pops else { return };
    let during = pops.lateness_us_during.unwrap_or_default();
    let moved_us = during.p99 - pops.lateness_us.p99;
    let counts = (pops.lateness_us.count, during.count);
    report.notes.push(format!(
        "p99 moved by {moved_us:.0} us while {} callbacks hung at the other host",
        grouped(hung_callbacks)
    ));
    if counts.0 == 0 || counts.1 == 0 {
        report.problem("no pops on one side of the hang: a longer --duration-s".to_owned());
    }
    if hung_callbacks == 0 {
        report.problem("the hung host was never called".to_owned());
    }
    if moved_us > MOVE_US_MAX {
        report.problem(format!("p99 moved by {moved_us:.0} us, more than {MOVE_US_MAX} us"));
    }
}
