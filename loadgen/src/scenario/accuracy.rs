//! Scenario `accuracy`: lateness of every pop at a steady rate.

use std::sync::Arc;

use anyhow::{Result, bail};

use super::kind::Scenario;
use super::setup::{await_pops, finish_sink, plan, run_client, shape, start_sink};
use crate::arrival::Rate;
use crate::clock::clock_ns;
use crate::creator::{Creator, Due};
use crate::flags::ScenarioFlags;
use crate::ledger::Ledger;
use crate::report::Report;

/// Creates --rate timers a second of --interval-ms. Each timer pops --pops-each times.
pub fn run(flags: &ScenarioFlags) -> Result<Report> {
    let Rate::PerSecond(rate) = flags.rate else {
        bail!("accuracy needs a rate: --rate 2000");
    };
    let seconds = (flags.warm_up_s + flags.duration_s).as_secs_f64();
    // Poisson arrivals vary: the ledger has room for five standard deviations more than the mean.
    let timers = rate * seconds + 5.0 * (rate * seconds).sqrt() + 1.0;
    let ledger = Arc::new(Ledger::new(timers as usize, flags.interval_ms, flags.pops_each));
    let start_ns = clock_ns();
    let sink = start_sink(flags, &ledger)?;
    let shape = shape(flags, sink.address);
    let due = Due::AfterMs(flags.interval_ms);
    let creator = Creator::new(&shape, due, ledger.timers_max(), Some(Arc::clone(&ledger)));
    let about = flags.warm_up_s + flags.duration_s;
    let (_, outcome) = run_client("accuracy", plan(flags), about, creator)?;

    let life_ns = flags.interval_ms * 1_000_000 * u64::from(flags.pops_each);
    let until_ns = clock_ns() + life_ns + flags.drain_s.as_nanos() as u64;
    await_pops(flags, &ledger, until_ns, "last pops");
    let mut report = Report::new(Scenario::Accuracy.name());
    report.add_requests(outcome, None, flags.allow_errors);
    finish_sink(&mut report, sink, &ledger, start_ns, None)?;
    report.notes.push(
        "lateness counts from before the request was sent, so it includes the way of the request \
         to the node and of the callback back"
            .to_owned(),
    );
    if flags.server_pid.is_some() {
        report
            .notes
            .push("the server's CPU per request is that of a create and its pops".to_owned());
    }
    Ok(report)
}
