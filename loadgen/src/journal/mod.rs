//! What it costs that timers survive a restart: the node without a journal and with one, and others
//! with their logs, in turn under the same closed loop; and how long the restart takes.
//!
//! Rounds are interleaved, each with fresh processes and an empty folder. Before each round the
//! disk itself is timed, because its speed changes more than that of all else.

mod restart;
mod servers;

use std::fmt::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use chronos::cli::progress::say;

use crate::against::{self, Folder, Row, measure_running, table};
use crate::flags::JournalFlags;
use crate::machine::Machine;
use crate::ordinary::Load;
use crate::report::median;

use restart::{Restart, restart_line};
use servers::{Seat, Server, time_disk};

/// The report on a journal.
#[derive(Clone, Debug, Serialize)]
pub struct JournalReport {
    /// The machine of the run.
    pub machine: Machine,
    /// Microseconds of one durable write of 16 KiB to the disk, half of them took less; the median
    /// of each round.
    pub sync_us: Vec<f64>,
    /// Creates, shape by shape.
    pub rows: Vec<Row>,
    /// Starts that read the journal.
    pub restarts: Vec<Restart>,
}

/// Runs all rounds. Error: a server does not start, or refuses an operation.
pub fn run(flags: &JournalFlags) -> Result<JournalReport> {
    chronos::ring::raise_open_files_limit();
    let cores = chronos::ring::available_cores().context("which cores are there?")?;
    let core = flags.core.or(cores.last().copied()).context("there is a core")?;
    let node_binary = match &flags.node_binary {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("chronos"),
    };
    let folder = Folder::below(flags.folder.as_deref().unwrap_or(&std::env::temp_dir()))?;
    let seat = Seat { flags, node_binary: &node_binary, folder: &folder.0, core };
    let mut report = JournalReport {
        machine: Machine::read(),
        sync_us: Vec::new(),
        rows: Vec::new(),
        restarts: Vec::new(),
    };
    if flags.restart {
        report.restarts = restart::run(&seat, &mut report.sync_us)?;
        return Ok(report);
    }
    let servers = servers::servers(&flags.against);
    for &pipeline in &flags.pipeline {
        let (warm_up, duration) = (flags.warm_up_s, flags.duration_s);
        let load = Load { connections: flags.connections, pipeline, warm_up, duration, core };
        report.rows.extend(shape(&seat, &servers, load, &mut report.sync_us)?);
    }
    Ok(report)
}

fn shape(
    seat: &Seat<'_>,
    servers: &[Server],
    load: Load,
    sync_us: &mut Vec<f64>,
) -> Result<Vec<Row>> {
    let mut figures: Vec<Vec<against::Figures>> = vec![Vec::new(); servers.len()];
    let rounds = seat.flags.rounds as usize;
    for round in 0..rounds {
        sync_us.push(time_disk(seat.folder)?);
        // Another server begins each round.
        for at in (0..servers.len()).map(|at| (at + round) % servers.len()) {
            let server = servers[at];
            let measured = seat.start(server).and_then(|(child, address)| {
                let one = measure_running(child, server.peer(), address, load);
                seat.clear();
                one
            });
            let one = measured.with_context(|| format!("measuring {}", server.name()))?;
            say(&format!(
                "{} x {}, round {} of {rounds}: {}",
                load.connections,
                load.pipeline,
                round + 1,
                against::line(server.name(), &one)
            ));
            figures[at].push(one);
        }
    }
    let rows = servers.iter().zip(figures);
    Ok(rows.map(|(server, rounds)| Row::new(server.name(), load, rounds)).collect())
}

impl JournalReport {
    /// The report as text for a terminal.
    pub fn text(&self) -> String {
        let mut text = table(&self.rows);
        // Writing to a String cannot fail.
        for row in self.rows.iter().filter(|row| row.server.starts_with("chronos ")) {
            let is_off = |other: &&Row| other.server == "chronos off" && is_same_shape(other, row);
            let Some(off) = self.rows.iter().find(is_off) else { continue };
            if row.server != off.server {
                let _ = writeln!(
                    text,
                    "{} / off, {} x {}: CPU {:.2}, rate {:.2}, p50 {:+.0} us",
                    row.server,
                    row.connections,
                    row.pipeline,
                    row.median.cpu_us / off.median.cpu_us,
                    row.median.per_second / off.median.per_second,
                    row.median.latency_us_p50 - off.median.latency_us_p50
                );
            }
        }
        for restart in &self.restarts {
            let _ = writeln!(text, "{}", restart_line(restart));
        }
        let low = self.sync_us.iter().copied().fold(f64::MAX, f64::min);
        let high = self.sync_us.iter().copied().fold(0.0, f64::max);
        let _ = writeln!(
            text,
            "one durable write of 16 KiB: {:.0} us (rounds {low:.0} to {high:.0})",
            median(&self.sync_us)
        );
        text
    }
}

fn is_same_shape(one: &Row, other: &Row) -> bool {
    (one.connections, one.pipeline) == (other.connections, other.pipeline)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::against::Figures;

    #[test]
    fn the_report_compares_with_no_journal_and_tells_the_disk() {
        let figures = |cpu_us: f64| Figures {
            per_second: 1e6 / cpu_us,
            cpu_us,
            latency_us_p50: cpu_us * 50.0,
            latency_us_p99: 1_000.0,
            latency_us_max: 2_000.0,
            bytes: 185.0,
            client_core_share: 0.9,
        };
        let (warm_up, duration) = (Duration::ZERO, Duration::ZERO);
        let load = Load { connections: 64, pipeline: 1, warm_up, duration, core: 0 };
        let row = |name, cpu_us| Row::new(name, load, vec![figures(cpu_us)]);
        let restart = Restart {
            timers: 1_000_000,
            bytes: 134_000_000,
            seconds: 2.0,
            resident_mib_before: 200.0,
            resident_mib_after: 210.0,
        };
        let report = JournalReport {
            machine: Machine::read(),
            sync_us: vec![110.0, 130.0, 120.0],
            rows: vec![row("chronos off", 4.0), row("chronos sync", 5.0)],
            restarts: vec![restart],
        };
        let text = report.text();
        assert!(
            text.contains("chronos sync / off, 64 x 1: CPU 1.25, rate 0.80, p50 +50"),
            "{text}"
        );
        assert!(text.contains("120 us (rounds 110 to 130)"), "{text}");
        assert!(text.contains("ready after 2.00 s, 500 000/s"), "{text}");
    }
}
