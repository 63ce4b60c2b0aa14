//! A fourth node joins three nodes that hold many timers, while requests and pops go on.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::figures::{add_pops, scenario, scenario_flags};
use super::nodes::{Nodes, Roles};
use super::round::Round;
use crate::client::{Outcome, Plan};
use crate::clock::clock_ns;
use crate::creator::{Creator, Due};
use crate::flags::ClusterFlags;
use crate::ledger::Ledger;
use crate::report::Percentiles;
use crate::request::TimerShape;
use crate::scenario::setup::{plan, run_client};
use crate::server::ServerThread;
use crate::sink::{Sink, SinkMode};

/// How long a rebalance may take. After this it has failed.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Milliseconds from a create of the load to the timer's pop.
const LOAD_INTERVAL_MS: u64 = 1_000;
/// How long the load runs before the rebalance, to compare with the time during it.
const BEFORE: Duration = Duration::from_secs(4);
/// How often nodes are asked how far the rebalance is.
pub const LOOK: Duration = Duration::from_millis(200);

/// Fills three nodes, lets a fourth node join, and waits until the rebalance has ended.
pub fn measure(flags: &ClusterFlags, round: &mut Round) -> Result<()> {
    let mut nodes = Nodes::started(flags, 3)?;
    fill(flags, nodes.addresses[0], flags.rebalance_timers, round)?;
    let before = (0..3).map(|place| held(nodes.admins[place])).sum::<Result<u64>>()?;
    round.add("rebalance: copies before", "", before as f64);

    let roles = Roles { staying: &[0, 1, 2], joining: &[3] };
    nodes.start(&[3], roles)?;
    let load = Load::start(flags, nodes.addresses[1], flags.rebalance_rate)?;
    load.await_split();
    let began = Instant::now();
    for place in 0..3 {
        nodes.write_roles(place, roles)?;
        nodes.signal(place, "HUP")?;
    }
    for place in 0..4 {
        nodes.signal(place, "USR1")?;
    }
    let took = await_end(&nodes, began)?;
    // A second rank would make a pop 2 s later.
    load.finish("rebalance", Duration::from_millis(2_500), round)?;
    round.add("rebalance 3 to 4 nodes", "s", took.as_secs_f64());
    round.add("rebalance: timers on the new node", "", held(nodes.admins[3])? as f64);
    // The timers of the load have popped by then.
    let after: u64 = (0..4).map(|place| held(nodes.admins[place])).sum::<Result<u64>>()?;
    if after != before {
        round.problems.push(format!("rebalance: {before} copies before, {after} after"));
    }
    Ok(())
}

/// Creates timers that pop late.
pub fn fill(
    flags: &ClusterFlags,
    target: SocketAddr,
    timers: u32,
    round: &mut Round,
) -> Result<()> {
    let fill = [
        ("--target", target.to_string()),
        ("--timers", timers.to_string()),
        ("--replication-factor", "2".to_owned()),
    ];
    let report = scenario(flags, "fill", &fill)?;
    round.problems.extend(report.problems);
    Ok(())
}

/// A load of timers that are created and pop before a change of a cluster and during it.
pub struct Load {
    split_ns: u64,
    is_over: Arc<AtomicBool>,
    ledger: Arc<Ledger>,
    sink: ServerThread<Sink>,
    thread: JoinHandle<Result<(Creator, Outcome)>>,
}

impl Load {
    /// Begins to create so many timers a second, 4 s before the split.
    pub fn start(flags: &ClusterFlags, target: SocketAddr, rate: u32) -> Result<Load> {
        let most = PATIENCE.as_secs() * u64::from(rate) * 2;
        let ledger = Arc::new(Ledger::new(most as usize, LOAD_INTERVAL_MS, 1));
        let sink = Sink::new(SinkMode::Ok, Some(Arc::clone(&ledger)));
        let sink = sink.start(SocketAddr::from(([127, 0, 0, 1], 0)), flags.core)?;
        let shape = TimerShape {
            target,
            callback: sink.address,
            interval_ms: Some(LOAD_INTERVAL_MS),
            pops_each: 1,
            opaque_bytes: 40,
            headers: 0,
            replication_factor: 2,
            ralf: false,
            token: None,
        };
        let due = Due::AfterMs(LOAD_INTERVAL_MS);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let creator = Creator::new(&shape, due, most, Some(Arc::clone(&ledger)))
            .until(Box::new(move || over.load(Ordering::Relaxed)));
        let (target, rate) = (target.to_string(), rate.to_string());
        let (_, post) = scenario_flags(["x", "post", "--target", &target, "--rate", &rate])?;
        let split_ns = clock_ns() + BEFORE.as_nanos() as u64;
        ledger.split_at(split_ns);
        let plan = Plan {
            warm_up: Duration::ZERO,
            duration: PATIENCE * 2,
            core: flags.core,
            split_ns: Some(split_ns),
            ..plan(&post)
        };
        let thread = std::thread::spawn(move || run_client("load", plan, PATIENCE, creator));
        Ok(Load { split_ns, is_over, ledger, sink, thread })
    }

    /// Waits for the instant that divides the time before the change from the time during it.
    pub fn await_split(&self) {
        std::thread::sleep(Duration::from_nanos(self.split_ns.saturating_sub(clock_ns())));
    }

    /// Ends the load of the measure `name` and reports what it saw before the split and after it.
    /// Another node makes a pop again after `turn` at most.
    pub fn finish(self, name: &str, turn: Duration, round: &mut Round) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        let joined = self.thread.join().unwrap_or_else(|_| bail!("the load's thread panicked"));
        let (_, outcome) = joined?;
        std::thread::sleep(Duration::from_millis(LOAD_INTERVAL_MS) + turn);
        let (sink, _) = self.sink.stop()?;
        let tally = sink.into_tally().context("the sink has a ledger")?;
        for (failure, count) in &outcome.recorder.failures {
            round.problems.push(format!("{name}: {count} requests failed: {}", failure.name()));
        }
        let lost = tally.lost(&self.ledger);
        for (word, count) in [("lost", lost), ("doubled", tally.doubled), ("early", tally.early)] {
            if count > 0 {
                round.problems.push(format!("{name}: {count} pops {word}"));
            }
        }
        add_pops(round, &format!("{name}: lateness before"), &Percentiles::of(&tally.before));
        add_pops(round, &format!("{name}: lateness during"), &Percentiles::of(&tally.after));
        let during = Percentiles::of(&outcome.recorder.after_split);
        round.add(format!("{name}: latency p99 during"), "ms", during.p99 / 1e3);
        Ok(())
    }
}

/// Kills one of three nodes that hold many timers, starts the node again, empty, and waits until it
/// holds its share.
pub fn restart(flags: &ClusterFlags, round: &mut Round) -> Result<()> {
    let mut nodes = Nodes::started(flags, 3)?;
    fill(flags, nodes.addresses[0], flags.rebalance_timers, round)?;
    let share = held(nodes.admins[2])?;
    nodes.kill(2)?;
    let began = Instant::now();
    nodes.start(&[2], Roles { staying: &[0, 1, 2], joining: &[] })?;
    while held(nodes.admins[2])? < share {
        if began.elapsed() > PATIENCE {
            bail!("a node that restarted empty did not get its share within {PATIENCE:?}");
        }
        std::thread::sleep(LOOK);
    }
    round.add("restart empty: share", "timers", share as f64);
    round.add("restart empty: until it is back", "s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Waits until all nodes are seen idle twice in a row. Returns the time from `began` to the first
/// of the two looks.
fn await_end(nodes: &Nodes, began: Instant) -> Result<Duration> {
    let mut ended: Option<Duration> = None;
    loop {
        std::thread::sleep(LOOK);
        let mut is_idle = true;
        for place in 0..4 {
            is_idle &= !is_rebalancing(&look(nodes.admins[place], "/status?all")?);
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

/// How many timers a node holds.
pub fn held(admin: SocketAddr) -> Result<u64> {
    look(admin, "/status?all")?["totals"]["timers"]
        .as_u64()
        .context("no totals.timers in /status?all")
}

/// Whether a node still compares or moves timers.
fn is_rebalancing(status: &Value) -> bool {
    let totals = &status["totals"];
    let busy = |name: &str| totals[name].as_u64().unwrap_or(0) > 0;
    busy("walks") || busy("timers_misplaced")
}

/// What a node answers to a `GET` at its admin API.
pub fn look(admin: SocketAddr, path: &str) -> Result<Value> {
    let mut stream = TcpStream::connect(admin).context("no admin listener")?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let body = text.split_once("\r\n\r\n").with_context(|| format!("no answer to GET {path}"))?.1;
    Ok(serde_json::from_str(body)?)
}
