//! Scenario `pops`: as many due callbacks as possible.

use std::sync::Arc;

use anyhow::Result;

use super::kind::Scenario;
use super::setup::{
    await_pops, cpu_per_pop, create_ahead, finish_sink, lead_ns, shape, start_sink,
};
use crate::clock::clock_ns;
use crate::flags::ScenarioFlags;
use crate::ledger::Ledger;
use crate::report::Report;

/// Creates --timers timers due at one time, then measures how fast they pop.
pub fn run(flags: &ScenarioFlags) -> Result<Report> {
    let ledger = Arc::new(Ledger::new(flags.timers as usize, 1, 1));
    let start_ns = clock_ns();
    let sink = start_sink(flags, &ledger)?;
    let due_ns = clock_ns() + lead_ns(flags);
    let shape = crate::request::TimerShape { pops_each: 1, ..shape(flags, sink.address) };
    let created = create_ahead(flags, &shape, due_ns, flags.spread_ms, Some(Arc::clone(&ledger)))?;
    let until_ns = due_ns + flags.duration_s.as_nanos() as u64;
    let samples = await_pops(flags, &ledger, until_ns, "pops");

    let mut report = Report::new(Scenario::Pops.name());
    report.add_requests(created, None, flags.allow_errors);
    finish_sink(&mut report, sink, &ledger, start_ns, None)?;
    if let Some((cpu_us, cores)) = cpu_per_pop(&samples) {
        report.server.cpu_us_per_pop = Some(cpu_us);
        report.server.cores_busy = Some(cores);
    }
    report.notes.push("requests are those that created the timers beforehand".to_owned());
    Ok(report)
}
