//! Runs this service and others in turn under the same closed loop of one ordinary client, and
//! tells what an operation costs in each: CPU time, latency, memory.
//!
//! Rounds are interleaved, each with fresh processes, so that noise of the machine moves all alike.

pub mod peers;

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use chronos::cli::progress::say;
use chronos::tls::connector::Connector;
use serde::Serialize;

use crate::child::Child;
use crate::flags::AgainstFlags;
use crate::machine::Machine;
use crate::ordinary::{self, Load};
use crate::report::{grouped, median};
use crate::server_cpu;

use peers::{Peer, Seat, Started};

/// The figures of one run of one server.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Operations per second.
    pub per_second: f64,
    /// CPU time of the server per operation, in microseconds.
    pub cpu_us: f64,
    /// Latency in microseconds: half of the operations took less.
    pub latency_us_p50: f64,
    /// Latency in microseconds: 99 of 100 operations took less.
    pub latency_us_p99: f64,
    /// The longest latency in microseconds.
    pub latency_us_max: f64,
    /// Growth of the server's resident memory per operation, in bytes; 0 where it keeps nothing.
    pub bytes: f64,
    /// Share of the client's core in use. Near 1, the client was the limit.
    pub client_core_share: f64,
}

/// All rounds of one server at one number of connections and one depth.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The server.
    pub server: &'static str,
    /// Number of connections.
    pub connections: u32,
    /// Requests in flight on each connection.
    pub pipeline: u32,
    /// The figures, round by round.
    pub rounds: Vec<Figures>,
    /// The median of each figure over the rounds.
    pub median: Figures,
}

impl Row {
    /// The rounds of a server under this load, with their medians.
    pub fn new(server: &'static str, load: Load, rounds: Vec<Figures>) -> Self {
        let of = |pick: fn(&Figures) -> f64| median(&rounds.iter().map(pick).collect::<Vec<f64>>());
        let median = Figures {
            per_second: of(|one| one.per_second),
            cpu_us: of(|one| one.cpu_us),
            latency_us_p50: of(|one| one.latency_us_p50),
            latency_us_p99: of(|one| one.latency_us_p99),
            latency_us_max: of(|one| one.latency_us_max),
            bytes: of(|one| one.bytes),
            client_core_share: of(|one| one.client_core_share),
        };
        let (connections, pipeline) = (load.connections, load.pipeline);
        Row { server, connections, pipeline, rounds, median }
    }
}

/// The report on all servers.
#[derive(Clone, Debug, Serialize)]
pub struct AgainstReport {
    /// The machine of the run.
    pub machine: Machine,
    /// The rows, shape by shape, in each shape the servers in the order of the command line.
    pub rows: Vec<Row>,
}

/// Runs all rounds. Error: a server does not start, or refuses an operation.
pub fn run(flags: &AgainstFlags) -> Result<AgainstReport> {
    chronos::ring::raise_open_files_limit();
    let cores = chronos::ring::available_cores().context("which cores are there?")?;
    let other = cores.iter().copied().find(|&core| core != flags.server_core);
    let core = flags.core.or(other).unwrap_or(flags.server_core);
    let folder = Folder::new()?;
    let node_binary = match &flags.node_binary {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("chronos"),
    };
    let seat = Seat {
        core: flags.server_core,
        node_binary: &node_binary,
        prefault_bytes: flags.prefault_bytes,
        folder: &folder.0,
    };
    let connector = if flags.tls { Some(seat.make_certificates()?) } else { None };
    let servers = contenders(&servers(&flags.servers)?, flags.tls);
    let mut rows = Vec::new();
    for &pipeline in &flags.pipeline {
        for &connections in &flags.connections {
            let (warm_up, duration) = (flags.warm_up_s, flags.duration_s);
            let load = Load { connections, pipeline, warm_up, duration, core };
            rows.extend(shape(&seat, &servers, (load, connector.as_ref()), flags.rounds)?);
        }
    }
    Ok(AgainstReport { machine: Machine::read(), rows })
}

/// The servers that are compared: this one and those asked for, or those that are installed.
fn servers(asked: &[Peer]) -> Result<Vec<Peer>> {
    let mut servers = vec![Peer::Chronos];
    for &peer in asked.iter().filter(|&&peer| peer != Peer::Chronos) {
        if peer.is_there() {
            servers.push(peer);
        } else {
            eprintln!("{} is not installed and left out", peer.name());
        }
    }
    anyhow::ensure!(servers.len() > 1, "none of the servers is installed: there is no comparison");
    Ok(servers)
}

/// A server, and whether it is asked over TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Contender {
    peer: Peer,
    name: &'static str,
    is_secure: bool,
}

/// The servers without TLS and, if it is asked for, those that speak it over TLS as well.
fn contenders(servers: &[Peer], with_tls: bool) -> Vec<Contender> {
    let both = |&peer: &Peer| {
        let plain = Contender { peer, name: peer.name(), is_secure: false };
        let name = peer.name_over_tls().filter(|_| with_tls);
        let secure = name.map(|name| Contender { peer, name, is_secure: true });
        std::iter::once(plain).chain(secure)
    };
    servers.iter().flat_map(both).collect()
}

fn shape(
    seat: &Seat<'_>,
    servers: &[Contender],
    (load, connector): (Load, Option<&Connector>),
    rounds: u32,
) -> Result<Vec<Row>> {
    let mut figures: Vec<Vec<Figures>> = vec![Vec::new(); servers.len()];
    for round in 0..rounds as usize {
        // Another server begins each round.
        for at in (0..servers.len()).map(|at| (at + round) % servers.len()) {
            let server = servers[at];
            let one = measure(seat, server, load, connector)
                .with_context(|| format!("measuring {}", server.name))?;
            say(&format!(
                "{} x {}, round {} of {rounds}: {}",
                load.connections,
                load.pipeline,
                round + 1,
                line(server.name, &one)
            ));
            figures[at].push(one);
        }
    }
    let rows = servers.iter().zip(figures);
    Ok(rows.map(|(server, rounds)| Row::new(server.name, load, rounds)).collect())
}

fn measure(
    seat: &Seat<'_>,
    Contender { peer, is_secure, .. }: Contender,
    load: Load,
    connector: Option<&Connector>,
) -> Result<Figures> {
    let connector = connector.filter(|_| is_secure);
    let Started { child, address, secure } = seat.start(peer, is_secure)?;
    let figures = measure_over(child, peer, secure.unwrap_or(address), (load, connector))?;
    Ok(Figures { bytes: if peer.keeps() { figures.bytes } else { 0.0 }, ..figures })
}

/// Puts the load on a server that runs, and stops the server.
pub fn measure_running(
    server: Child,
    peer: Peer,
    address: SocketAddr,
    load: Load,
) -> Result<Figures> {
    measure_over(server, peer, address, (load, None))
}

fn measure_over(
    server: Child,
    peer: Peer,
    address: SocketAddr,
    (load, connector): (Load, Option<&Connector>),
) -> Result<Figures> {
    let before = server_cpu::resident_bytes(server.pid()).context("it has ended")?;
    let outcome =
        ordinary::run(&*peer.protocol(address), (address, server.pid()), load, connector)?;
    let after = server_cpu::resident_bytes(server.pid()).context("it has ended")?;
    server.stop()?;
    let bytes = after.saturating_sub(before) as f64 / outcome.replies as f64;
    let us = |quantile| outcome.latency.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Figures {
        per_second: outcome.per_second,
        cpu_us: outcome.cpu_us,
        latency_us_p50: us(0.5),
        latency_us_p99: us(0.99),
        latency_us_max: outcome.latency.max() as f64 / 1e3,
        bytes,
        client_core_share: outcome.client_core_share,
    })
}

/// The figures in one line, behind a name.
pub fn line(name: &str, figures: &Figures) -> String {
    let Figures { per_second, cpu_us, latency_us_p50, latency_us_p99, latency_us_max, .. } =
        figures;
    let per_second = grouped(per_second.round() as u64);
    let bytes = match figures.bytes {
        0.0 => String::from("     -"),
        bytes => format!("{bytes:6.0}"),
    };
    format!(
        "{name:<18} {cpu_us:>8.2} us {per_second:>11}/s   {latency_us_p50:>8.0} \
         {latency_us_p99:>8.0} {latency_us_max:>8.0} us  {bytes} B   {:.2}",
        figures.client_core_share
    )
}

impl AgainstReport {
    /// The report as text for a terminal.
    pub fn text(&self) -> String {
        table(&self.rows)
    }
}

/// The medians of all rows as text, shape by shape.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut shape = (0, 0);
    // Writing to a String cannot fail.
    for row in rows {
        if std::mem::replace(&mut shape, (row.connections, row.pipeline)) != shape {
            let _ = writeln!(
                text,
                "\n{} connections x {} in flight, medians of {} rounds\n{:<18} {:>11} {:>13}   \
                 {:>8} {:>8} {:>8}     {:>6}    client",
                row.connections,
                row.pipeline,
                row.rounds.len(),
                "",
                "CPU each",
                "rate",
                "p50",
                "p99",
                "max",
                "memory"
            );
        }
        let _ = writeln!(text, "{}", line(row.server, &row.median));
    }
    text
}

/// A folder for files of servers. Dropping the value removes it.
pub struct Folder(pub PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        Self::below(&std::env::temp_dir())
    }

    /// Makes the folder in another one.
    pub fn below(folder: &Path) -> Result<Self> {
        let folder = folder.join(format!("chronos-loadgen-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {folder:?}"))?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Files that are left over do no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shape_has_a_heading_and_each_server_a_line() {
        let figures = Figures {
            per_second: 123_456.0,
            cpu_us: 8.1,
            latency_us_p50: 70.0,
            latency_us_p99: 90.0,
            latency_us_max: 1_000.0,
            bytes: 185.4,
            client_core_share: 0.9,
        };
        let row = |server, connections, bytes| Row {
            server,
            connections,
            pipeline: 1,
            rounds: vec![Figures { bytes, ..figures }],
            median: Figures { bytes, ..figures },
        };
        let rows = vec![row("chronos", 1, 185.4), row("ring", 1, 0.0), row("chronos", 8, 185.4)];
        let text = AgainstReport { machine: Machine::read(), rows }.text();
        assert_eq!(text.matches("in flight, medians of 1 rounds").count(), 2, "{text}");
        assert_eq!(text.lines().filter(|line| line.contains("123 456/s")).count(), 3, "{text}");
        assert!(text.contains("185 B") && text.contains("- B"), "{text}");
    }

    #[test]
    fn over_tls_are_those_that_speak_it() {
        let names = |with_tls| -> Vec<&str> {
            let all = contenders(&[Peer::Chronos, Peer::Ring, Peer::Nginx], with_tls);
            all.iter().map(|server| server.name).collect()
        };
        assert_eq!(names(false), ["chronos", "ring", "nginx"]);
        assert_eq!(names(true), ["chronos", "chronos, TLS", "ring", "nginx", "nginx, TLS"]);
    }

    #[test]
    fn this_service_is_always_compared_and_once() {
        assert_eq!(servers(&[Peer::Ring, Peer::Chronos]).unwrap(), [Peer::Chronos, Peer::Ring]);
        assert!(servers(&[]).is_err());
    }
}
