//! How long a start takes that reads the journal of a node that was killed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use super::servers::{Seat, Server, bytes_below, time_disk};
use chronos::cli::progress::say;

use crate::child::{Child, free_address};
use crate::command::{Job, command, job};
use crate::report::grouped;
use crate::server_cpu::resident_bytes;

/// How long a start may take.
const READY: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(5);
const MIB: f64 = 1024.0 * 1024.0;

/// One start.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Restart {
    /// Timers that came back.
    pub timers: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Seconds from the start of the process until `/readyz` was 200.
    pub seconds: f64,
    /// Resident memory of the node that was killed.
    pub resident_mib_before: f64,
    /// Resident memory of the node when it was ready.
    pub resident_mib_after: f64,
}

/// Fills a node, kills it, and starts it again round by round, killing each.
pub fn run(seat: &Seat<'_>, sync_us: &mut Vec<f64>) -> Result<Vec<Restart>> {
    let (node, address) = seat.start(Server::Chronos("sync"))?;
    fill(seat, address, node.pid()).context("filling the node")?;
    let mut before = resident(&node)?;
    node.kill()?;
    let mut restarts = Vec::new();
    for round in 0..seat.flags.rounds {
        sync_us.push(time_disk(seat.folder)?);
        let bytes = bytes_below(&seat.data());
        let (address, admin) = (address, free_address()?);
        let began = Instant::now();
        let mut node = Child::start(seat.node("sync", address, &admin.to_string()))?;
        while get(admin, "/readyz").is_none_or(|(status, _)| status != 200) {
            if let Some(end) = node.ended()? {
                bail!("the node ended before it was ready: {end}");
            }
            ensure!(began.elapsed() < READY, "the node was not ready within {READY:?}");
            std::thread::sleep(LOOK);
        }
        let seconds = began.elapsed().as_secs_f64();
        let timers = held(admin).context("the node does not tell how many timers came back")?;
        let after = resident(&node)?;
        let restart = Restart {
            timers,
            bytes,
            seconds,
            resident_mib_before: before,
            resident_mib_after: after,
        };
        say(&format!("start {}: {}", round + 1, restart_line(&restart)));
        restarts.push(restart);
        before = after;
        node.kill()?;
    }
    seat.clear();
    Ok(restarts)
}

fn resident(node: &Child) -> Result<f64> {
    Ok(resident_bytes(node.pid()).context("the node has ended")? as f64 / MIB)
}

/// Creates the timers, as the scenario `fill` does.
fn fill(seat: &Seat<'_>, target: SocketAddr, pid: u32) -> Result<()> {
    let line = format!(
        "chronos-loadgen fill --target {target} --server-pid {pid} --core {} --timers {}",
        seat.core, seat.flags.timers
    );
    let Job::Scenario(scenario, flags) = job(&command().try_get_matches_from(line.split(' '))?)?
    else {
        unreachable!("the line names a scenario")
    };
    let report = scenario.run(&flags)?;
    ensure!(report.passed, "{}", report.problems.join("; "));
    Ok(())
}

/// The timers that the start has taken from the journal.
fn held(admin: SocketAddr) -> Option<u64> {
    let (_, text) = get(admin, "/metrics")?;
    let name = "chronos_journal_recovered_timers";
    let values = text.lines().filter(|line| line.starts_with(name));
    values
        .map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum::<Option<f64>>()
        .map(|sum| sum as u64)
}

/// The status and the text of an answer; `None`: there is none.
fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, text))
}

/// A start in one line.
pub fn restart_line(restart: &Restart) -> String {
    format!(
        "{} timers from {} MB: ready after {:.2} s, {}/s; resident {:.0} MiB before, {:.0} after",
        grouped(restart.timers),
        restart.bytes / 1_000_000,
        restart.seconds,
        grouped((restart.timers as f64 / restart.seconds) as u64),
        restart.resident_mib_before,
        restart.resident_mib_after
    )
}
