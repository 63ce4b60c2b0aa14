//! Load on a server of timestamps over Thrift. If no server is named, the node and the bare ring
//! get the same load in turn.
//!
//! The node that is started here is its data plane alone: its cores, and an oracle that may hand
//! out timestamps for 48 hours, without the keeper that stores bounds. A keeper writes about once a
//! second, on another thread.

mod client;
mod figures;
mod server;

use std::fmt::Write;
use std::io::Read;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Serialize;

use chronos::cli::progress::say;

use crate::child::{Child, free_address};
use crate::flags::{Role, TimestampFlags};
use crate::machine::Machine;
use crate::report::{grouped, median};
use figures::Figures;

/// How long a server may take until it accepts connections.
const READY: Duration = Duration::from_secs(10);

/// The report on all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct TimestampReport {
    /// The machine of the run.
    pub machine: Machine,
    /// Number of connections.
    pub connections: u32,
    /// Requests in flight on each connection.
    pub pipeline: u32,
    /// Timestamps asked for by each request.
    pub range: u32,
    /// The figures of the named server or of the node, round by round.
    pub node: Vec<Figures>,
    /// The figures of the bare ring, round by round; empty if the bare ring was not run.
    pub echo: Vec<Figures>,
}

/// Runs all rounds. `None`: this process was a server and has nothing to report.
pub fn run(flags: &TimestampFlags) -> Result<Option<TimestampReport>> {
    chronos::ring::raise_open_files_limit();
    if let (Some(role), Some(listen)) = (flags.serve, flags.listen) {
        std::thread::spawn(|| {
            // The process that started this one holds the other end, which ends with that process.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
        match role {
            Role::Node => server::serve_node(listen, flags.server_core)?,
            Role::Echo => server::serve_echo(listen, flags.server_core)?,
        }
        return Ok(None);
    }
    let mut report = TimestampReport {
        machine: Machine::read(),
        connections: flags.connections,
        pipeline: flags.pipeline,
        range: flags.range,
        node: Vec::new(),
        echo: Vec::new(),
    };
    for number in 0..flags.rounds {
        if let Some(target) = flags.target {
            report.node.push(client::run(flags, target, flags.server_pid, flags.core)?);
        } else if number % 2 == 0 {
            report.node.push(run_beside(flags, Role::Node)?);
            report.echo.push(run_beside(flags, Role::Echo)?);
        } else {
            report.echo.push(run_beside(flags, Role::Echo)?);
            report.node.push(run_beside(flags, Role::Node)?);
        }
        say(&format!("round {} of {}", number + 1, flags.rounds));
    }
    Ok(Some(report))
}

/// Starts a server in a process of its own, and puts the load on it.
fn run_beside(flags: &TimestampFlags, role: Role) -> Result<Figures> {
    let cores = chronos::ring::available_cores().context("which cores are there?")?;
    let other = cores.into_iter().find(|&core| core != flags.server_core);
    let address = free_address()?;
    let role = role.to_possible_value().context("every role has a name")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["timestamps", "--serve", role.get_name(), "--listen", &address.to_string()]);
    command.args(["--server-core", &flags.server_core.to_string()]);
    let child = Child::start(command)?;
    let began = Instant::now();
    while TcpStream::connect(address).is_err() {
        if began.elapsed() > READY {
            bail!("the server does not accept connections at {address} in {READY:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let figures = client::run(flags, address, Some(child.pid()), flags.core.or(other))?;
    child.stop()?;
    Ok(figures)
}

fn of(figures: &[Figures], pick: impl Fn(&Figures) -> f64) -> f64 {
    median(&figures.iter().map(pick).collect::<Vec<f64>>())
}

fn line(figures: &[Figures]) -> String {
    let whole = |number: f64| grouped(number.round() as u64);
    format!(
        "{:>11} calls/s {:>12} timestamps/s  {:.3} us CPU  p50 {:.1} us  p99 {:.1} us  \
         p99.9 {:.1} us  client {:.2}",
        whole(of(figures, |run| run.calls_per_second)),
        whole(of(figures, |run| run.timestamps_per_second)),
        of(figures, |run| run.cpu_us.unwrap_or(f64::NAN)),
        of(figures, |run| run.latency_us_p50),
        of(figures, |run| run.latency_us_p99),
        of(figures, |run| run.latency_us_p999),
        of(figures, |run| run.client_core_share),
    )
}

impl TimestampReport {
    /// The report as text for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let (node, echo) = (&self.node, &self.echo);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{} connections x {} in flight, {} timestamps each, {} rounds",
            self.connections,
            self.pipeline,
            self.range,
            node.len()
        );
        for (index, run) in node.iter().enumerate() {
            let _ = writeln!(text, "  round {:<3} {}", index + 1, line(&[*run]));
            if let Some(run) = echo.get(index) {
                let _ = writeln!(text, "    ring    {}", line(&[*run]));
            }
        }
        let _ = writeln!(text, "  median    {}", line(node));
        if !echo.is_empty() {
            let _ = writeln!(text, "    ring    {}", line(echo));
            let ratio = |pick: fn(&Figures) -> f64| of(node, pick) / of(echo, pick);
            let _ = writeln!(
                text,
                "  node / ring: CPU {:.3}, p50 {:.3}, p99 {:.3}",
                ratio(|run| run.cpu_us.unwrap_or(f64::NAN)),
                ratio(|run| run.latency_us_p50),
                ratio(|run| run.latency_us_p99)
            );
        }
        text
    }
}
