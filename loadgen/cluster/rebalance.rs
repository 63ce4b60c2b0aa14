//! A fourth node joins three that hold many timers, while requests and pops go on.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Round;
use super::figures::{add_pops, scenario};
use super::nodes::{Nodes, Roles};
use crate::flags::ClusterFlags;

/// After this, a rebalance has failed.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often nodes are asked how far they are.
const LOOK: Duration = Duration::from_millis(200);

/// Fills three nodes, lets a fourth join, and waits for the end.
pub fn measure(flags: &ClusterFlags, round: &mut Round) -> Result<()> {
    let mut nodes = Nodes::started(flags, 3)?;
    let fill = [
        ("--target", nodes.addresses[0].to_string()),
        ("--timers", flags.rebalance_timers.to_string()),
        ("--replication-factor", "2".to_owned()),
    ];
    let report = scenario(flags, "fill", &fill)?;
    round.problems.extend(report.problems);
    let copies = || -> Result<u64> { (0..3).map(|place| held(nodes.admins[place])).sum() };
    let before = copies()?;
    round.add("rebalance: copies before", "", before as f64);

    let roles = Roles { staying: &[0, 1, 2], joining: &[3] };
    nodes.start(&[3], roles)?;
    let target = nodes.addresses[1].to_string();
    let load_flags = flags.clone();
    // Begins before the rebalance and is meant to outlast it.
    let seconds = flags.rebalance_load_s.as_secs_f64();
    let load = std::thread::spawn(move || {
        let more = [
            ("--target", target),
            ("--rate", load_flags.rebalance_rate.to_string()),
            ("--replication-factor", "2".to_owned()),
            ("--duration-s", seconds.to_string()),
            ("--warm-up-s", "2".to_owned()),
            ("--drain-s", "4".to_owned()),
        ];
        scenario(&load_flags, "accuracy", &more)
    });
    std::thread::sleep(Duration::from_secs(3));
    let began = Instant::now();
    for place in 0..3 {
        nodes.write_roles(place, roles)?;
        nodes.signal(place, "HUP")?;
    }
    for place in 0..4 {
        nodes.signal(place, "USR1")?;
    }
    let took = await_end(&nodes, began)?;
    let report = load.join().unwrap_or_else(|_| bail!("the load's thread panicked"))?;
    round.add("rebalance 3 to 4 nodes", "s", took.as_secs_f64());
    round.add("rebalance: timers on the new node", "", held(nodes.admins[3])? as f64);
    // Those of the load have popped.
    let after = (0..4).map(|place| held(nodes.admins[place])).sum::<Result<u64>>()?;
    if after != before {
        round.problems.push(format!("rebalance: {before} copies before, {after} after"));
    }
    if took > flags.rebalance_load_s {
        round.problems.push(format!("rebalance: the load ended before it, after {seconds} s"));
    }
    let pops = report.pops.as_ref().context("a report of pops")?;
    add_pops(round, "rebalance: lateness", &pops.lateness_us);
    let requests = report.requests.as_ref().context("a report of requests")?;
    round.add("rebalance: latency p99", "ms", requests.latency_us.p99 / 1e3);
    round.problems.extend(report.problems.into_iter().map(|text| format!("rebalance: {text}")));
    Ok(())
}

/// Waits until no node has anything left to compare, twice in a row.
fn await_end(nodes: &Nodes, began: Instant) -> Result<Duration> {
    let mut ended: Option<Duration> = None;
    loop {
        std::thread::sleep(LOOK);
        let mut is_idle = true;
        for place in 0..4 {
            is_idle &= !is_rebalancing(&status(nodes.admins[place])?);
        }
        match (is_idle, ended) {
            (true, Some(took)) => return Ok(took),
            (true, None) => ended = Some(began.elapsed()),
            (false, _) => ended = None,
        }
        if began.elapsed() > PATIENCE {
            bail!("the rebalance did not end within {PATIENCE:?}");
        }
    }
}

fn held(admin: SocketAddr) -> Result<u64> {
    status(admin)?["totals"]["timers"].as_u64().context("no totals.timers in /status")
}

/// Whether a node still compares or moves timers.
fn is_rebalancing(status: &Value) -> bool {
    let totals = &status["totals"];
    let busy = |name: &str| totals[name].as_u64().unwrap_or(0) > 0;
    busy("walks") || busy("timers_misplaced")
}

fn status(admin: SocketAddr) -> Result<Value> {
    let mut stream = TcpStream::connect(admin).context("no admin listener")?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET /status HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let body = text.split_once("\r\n\r\n").context("no answer of /status")?.1;
    Ok(serde_json::from_str(body)?)
}
