//! Scenario `post`: creates alone.

use anyhow::Result;

use super::kind::Scenario;
use super::setup::{nobody, plan, run_client, shape};
use crate::creator::{Creator, Due};
use crate::flags::ScenarioFlags;
use crate::leftover;
use crate::report::Report;

/// Creates timers that pop late, at --rate or as fast as they are answered.
pub fn run(flags: &ScenarioFlags) -> Result<Report> {
    let due = Due::AfterMs(flags.interval_ms);
    let creator = Creator::new(&shape(flags, nobody()), due, u64::from(flags.timers), None);
    let about = flags.warm_up_s + flags.duration_s;
    let (_, outcome) = run_client("post", plan(flags), about, creator)?;
    let mut report = Report::new(Scenario::Post.name());
    let created = outcome.recorder.answered_in_all;
    report.add_requests(outcome, None, flags.allow_errors);
    leftover::tell(&mut report, flags, created, nobody());
    Ok(report)
}
