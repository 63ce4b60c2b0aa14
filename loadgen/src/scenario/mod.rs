//! The scenarios, each in a file of its own. All are built from the client, the sink and the
//! ledger.

pub mod accuracy;
#[cfg(test)]
mod faulty_node;
mod fill;
mod herd;
mod isolation;
pub mod kind;
mod pops;
mod post;
mod session;
pub mod setup;
#[cfg(test)]
mod tests;

use anyhow::Result;

use crate::flags::ScenarioFlags;
use crate::report::Report;
use kind::Scenario;

impl Scenario {
    /// Runs the scenario and reports on it. Error: the scenario could not be run.
    pub fn run(self, flags: &ScenarioFlags) -> Result<Report> {
        chronos::ring::raise_open_files_limit();
        match self {
            Scenario::Post => post::run(flags),
            Scenario::Churn => session::churn(flags),
            Scenario::Ralf => session::ralf(flags),
            Scenario::Accuracy => accuracy::run(flags),
            Scenario::Pops => pops::run(flags),
            Scenario::Herd => herd::run(flags),
            Scenario::Isolation => isolation::run(flags),
            Scenario::Fill => fill::run(flags),
        }
    }
}
