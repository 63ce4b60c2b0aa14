//! Figures of a cluster. Nodes are real processes on loopback addresses, all on the same cores; the
//! load runs beside them.
//!
//! Every round starts fresh processes and takes one measure after the other. Several rounds follow
//! each other, and the report shows medians, so that noise of a shared machine moves all figures
//! alike.

mod figures;
mod nodes;
mod rebalance;
mod relay;
mod round;
mod sites;

use std::fmt::Write;

use anyhow::{Result, bail};
use serde::Serialize;

use chronos::cli::progress::say;

use crate::flags::ClusterFlags;
use crate::machine::Machine;
use crate::report::median;
use round::Round;

/// All measures, in the order of a round.
const MEASURES: [(&str, Measure); 10] = [
    ("post", figures::post),
    ("alone", figures::alone),
    ("bytes", figures::bytes),
    ("lateness", figures::lateness),
    ("kill", figures::kill),
    ("rebalance", rebalance::measure),
    ("restart", rebalance::restart),
    ("site-back", sites::back),
    ("site-added", sites::added),
    ("site-removed", sites::removed),
];

type Measure = fn(&ClusterFlags, &mut Round) -> Result<()>;

/// One figure over all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What the figure measures.
    pub name: String,
    /// Unit of the values; may be empty.
    pub unit: &'static str,
    /// The median of the rounds.
    pub median: f64,
    /// The values, round by round.
    pub rounds: Vec<f64>,
}

/// The report on all figures.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterReport {
    /// Whether no timer or pop was lost, doubled, early or refused in any round.
    pub passed: bool,
    /// What went wrong, with the round.
    pub problems: Vec<String>,
    /// The command line of the run.
    pub command_line: String,
    /// The machine of the run.
    pub machine: Machine,
    /// The figures in the order in which they were measured.
    pub figures: Vec<Figure>,
}

/// Runs all rounds. Error: the flags name a measure that does not exist, or a measure could not be
/// taken.
pub fn run(flags: &ClusterFlags) -> Result<ClusterReport> {
    let known = |name: &String| MEASURES.iter().any(|measure| measure.0 == name);
    if let Some(unknown) = flags.measure.iter().find(|name| !known(name)) {
        let names: Vec<_> = MEASURES.iter().map(|measure| measure.0).collect();
        bail!("no measure `{unknown}`; there are {}", names.join(", "));
    }
    chronos::ring::raise_open_files_limit();
    let is_wanted = |name: &str| match &flags.measure[..] {
        // Those of sites take many minutes.
        [] => !name.starts_with("site-"),
        wanted => wanted.iter().any(|each| each == name),
    };
    let mut report = ClusterReport {
        passed: true,
        problems: Vec::new(),
        command_line: format!("chronos-loadgen {}", crate::token::shown_arguments()),
        machine: Machine::read(),
        figures: Vec::new(),
    };
    for number in 1..=flags.rounds {
        let mut round = Round::default();
        for (name, measure) in MEASURES.into_iter().filter(|measure| is_wanted(measure.0)) {
            let before = round.values.len();
            measure(flags, &mut round)?;
            let told = round.values[before..].iter();
            let told = told.map(|(name, unit, value)| format!("{name} {}", text(*value, unit)));
            say(&format!(
                "round {number} of {}: {name}: {}",
                flags.rounds,
                told.collect::<Vec<_>>().join(", ")
            ));
        }
        report.take(number, round);
    }
    Ok(report)
}

impl ClusterReport {
    fn take(&mut self, number: u32, round: Round) {
        for (name, unit, value) in round.values {
            let place = self.figures.iter().position(|figure| figure.name == name);
            let place = place.unwrap_or_else(|| {
                self.figures.push(Figure { name, unit, median: 0.0, rounds: Vec::new() });
                self.figures.len() - 1
            });
            let figure = &mut self.figures[place];
            figure.rounds.push(value);
            figure.median = median(&figure.rounds);
        }
        self.passed &= round.problems.is_empty();
        let problems = round.problems.into_iter().map(|text| format!("round {number}: {text}"));
        self.problems.extend(problems);
    }

    /// The report as text for a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        for figure in &self.figures {
            let rounds: Vec<_> = figure.rounds.iter().map(|value| number(*value)).collect();
            let median = text(figure.median, figure.unit);
            let _ = writeln!(out, "{:<44} {median:>16}   ({})", figure.name, rounds.join(" "));
        }
        for problem in &self.problems {
            let _ = writeln!(out, "PROBLEM: {problem}");
        }
        out
    }
}

fn text(value: f64, unit: &str) -> String {
    format!("{} {unit}", number(value))
}

/// The value with three significant digits; from 100 on, and for whole values, without decimals.
fn number(value: f64) -> String {
    match value.abs() {
        at if at >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        at if at >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_medians_over_rounds_and_problems_name_theirs() {
        let mut report = ClusterReport {
            passed: true,
            problems: Vec::new(),
            command_line: String::new(),
            machine: Machine::read(),
            figures: Vec::new(),
        };
        for (index, value) in [3.0, 1.0, 250.4].into_iter().enumerate() {
            let mut round = Round::default();
            round.add("POST/s", "/s", value);
            if index == 1 {
                round.problems.push("7 pops lost".to_owned());
            }
            report.take(index as u32 + 1, round);
        }
        assert_eq!((report.figures.len(), report.figures[0].median), (1, 3.0));
        assert!(!report.passed);
        let text = report.text();
        assert!(text.contains("(3 1 250)") && text.contains("round 2: 7 pops lost"), "{text}");
    }
}
