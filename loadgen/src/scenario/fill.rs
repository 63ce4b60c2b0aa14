//! Scenario `fill`: memory of the server per timer.

use std::time::Duration;

use anyhow::Result;

use super::kind::Scenario;
use super::setup::{fill_plan, nobody, run_client, shape};
use crate::creator::{Creator, Due};
use crate::flags::ScenarioFlags;
use crate::leftover;
use crate::report::Report;
use crate::server_cpu::resident_bytes;

const MIB: f64 = 1024.0 * 1024.0;
/// How long connections get to close and buffers to be given back.
const SETTLE: Duration = Duration::from_secs(1);

/// Creates --timers timers that pop late, as fast as possible, and reports by how much the server's
/// resident memory grew.
pub fn run(flags: &ScenarioFlags) -> Result<Report> {
    let timers = u64::from(flags.timers);
    let before = flags.server_pid.and_then(resident_bytes);
    let due = Due::AfterMs(flags.interval_ms);
    let creator = Creator::new(&shape(flags, nobody()), due, timers, None);
    // A guess for the bar alone: 200 000 creates a second.
    let about = Duration::from_micros(timers * 5);
    let plan = crate::client::Plan { duration: flags.duration_s, ..fill_plan(flags) };
    let (creator, outcome) = run_client("fill", plan, about, creator)?;
    std::thread::sleep(SETTLE);
    let after = flags.server_pid.and_then(resident_bytes);

    let mut report = Report::new(Scenario::Fill.name());
    let created = outcome.recorder.answered_in_all;
    if creator.asked() < timers {
        report.problem(format!("only {} of {timers} timers in --duration-s", creator.asked()));
    }
    report.add_requests(outcome, None, flags.allow_errors);
    report.server.resident_mib_before = before.map(|bytes| bytes as f64 / MIB);
    report.server.resident_mib_after = after.map(|bytes| bytes as f64 / MIB);
    report.server.bytes_per_timer = before
        .zip(after)
        .map(|(before, after)| (after as f64 - before as f64) / created.max(1) as f64);
    if flags.server_pid.is_none() {
        report.notes.push("memory is measured with --server-pid".to_owned());
    }
    leftover::tell(&mut report, flags, created, nobody());
    Ok(report)
}
