//! The figures of a cluster at rest, and of a cluster that loses a node.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use super::nodes::{Nodes, Roles};
use super::relay;
use super::round::Round;
use crate::clock::clock_ns;
use crate::command::{Job, command, job};
use crate::creator::{Creator, Due};
use crate::flags::{ClusterFlags, ScenarioFlags};
use crate::ledger::Ledger;
use crate::report::{Percentiles, Report};
use crate::request::TimerShape;
use crate::scenario::kind::Scenario;
use crate::scenario::setup::{plan, run_client};
use crate::sink::{Sink, SinkMode};

const THREE: usize = 3;
/// Pops of each timer when a node is killed. The first pop may be late, the two others may not.
const KILL_POPS: u32 = 3;
/// Milliseconds between pops. All timers are created within half of this time, and the node is
/// killed before the first pop.
const KILL_INTERVAL_MS: u64 = 14_000;
/// Opaque bytes of the timers whose bytes on the wire are counted.
const OPAQUE_BYTES: u64 = 40;

/// Runs a scenario with flags that pass through the command line of the load generator.
pub fn scenario(flags: &ClusterFlags, name: &str, more: &[(&str, String)]) -> Result<Report> {
    let mut line = vec!["chronos-loadgen".to_owned(), name.to_owned()];
    let mut add = |flag: &str, value: String| line.extend([flag.to_owned(), value]);
    more.iter().for_each(|(flag, value)| add(flag, value.clone()));
    if let Some(core) = flags.core {
        add("--core", core.to_string());
        if name == "accuracy" {
            add("--sink-core", core.to_string());
        }
    }
    let (scenario, flags) = scenario_flags(line)?;
    scenario.run(&flags)
}

/// The scenario and the flags that a command line names.
pub fn scenario_flags<T: Into<OsString> + Clone>(
    line: impl IntoIterator<Item = T>,
) -> Result<(Scenario, ScenarioFlags)> {
    let Job::Scenario(scenario, flags) = job(&command().try_get_matches_from(line)?)? else {
        unreachable!("the line names a scenario")
    };
    Ok((scenario, flags))
}

/// Creates timers as fast as the node answers. Returns the report, and the microseconds of CPU time
/// of all nodes per create.
fn creates(flags: &ClusterFlags, nodes: &Nodes, factor: u8) -> Result<(Report, f64)> {
    let load = |seconds: Duration| {
        let more = [
            ("--target", nodes.addresses[0].to_string()),
            ("--connections", flags.connections.to_string()),
            ("--pipeline", flags.pipeline.to_string()),
            ("--replication-factor", factor.to_string()),
            ("--warm-up-s", "0".to_owned()),
            ("--duration-s", seconds.as_secs_f64().to_string()),
        ];
        scenario(flags, "post", &more)
    };
    load(flags.warm_up_s)?;
    let before = nodes.cpu_ns()?;
    let report = load(flags.duration_s)?;
    let cpu_ns = nodes.cpu_ns()? - before;
    let answered = report.requests.as_ref().context("a report of requests")?.answered.max(1);
    Ok((report, cpu_ns as f64 / 1e3 / answered as f64))
}

/// Measures POSTs to one of three nodes, with factors 1, 2 and 3.
pub fn post(flags: &ClusterFlags, round: &mut Round) -> Result<()> {
    let mut cpu_us = [0.0; THREE];
    for factor in 1..=THREE {
        let nodes = Nodes::started(flags, THREE)?;
        let (report, us) = creates(flags, &nodes, factor as u8)?;
        cpu_us[factor - 1] = us;
        let requests = report.requests.as_ref().context("a report of requests")?;
        round.add(format!("POST/s, factor {factor}"), "/s", requests.per_second);
        round.add(format!("CPU of 3 nodes per create, factor {factor}"), "us", us);
        round.add(
            format!("latency p99 of creates, factor {factor}"),
            "ms",
            requests.latency_us.p99 / 1e3,
        );
        let share = report.loadgen.client_core_share;
        round.add(format!("client's share of a core, factor {factor}"), "", share);
        let told = report.problems.into_iter().map(|text| format!("factor {factor}: {text}"));
        round.problems.extend(told);
    }
    round.add("CPU per create, factor 2 / factor 1", "x", cpu_us[1] / cpu_us[0]);
    round.add("CPU per create, factor 3 / factor 1", "x", cpu_us[2] / cpu_us[0]);
    Ok(())
}

/// Measures POSTs to a node without a cluster, and to two nodes with factor 2. In both cases the
/// node that takes a request holds the timer, so that the two show the price of replication.
pub fn alone(flags: &ClusterFlags, round: &mut Round) -> Result<()> {
    let nodes = Nodes::started(flags, 1)?;
    let (report, us) = creates(flags, &nodes, 1)?;
    let requests = report.requests.as_ref().context("a report of requests")?;
    round.add("POST/s, one node alone", "/s", requests.per_second);
    round.add("CPU per create, one node alone", "us", us);
    drop(nodes);
    let pair = Nodes::started(flags, 2)?;
    let (_, replicated_us) = creates(flags, &pair, 2)?;
    round.add("CPU of 2 nodes per create, factor 2", "us", replicated_us);
    round.add("CPU, 2 nodes factor 2 / one node alone", "x", replicated_us / us);
    Ok(())
}

/// Measures the bytes between two nodes per create. Each create makes exactly one copy.
pub fn bytes(flags: &ClusterFlags, round: &mut Round) -> Result<()> {
    let mut nodes = Nodes::new(flags, true)?;
    let bytes = Arc::new(AtomicU64::new(0));
    for place in 0..2 {
        relay::start(nodes.name(place), nodes.addresses[place], Arc::clone(&bytes))?;
    }
    nodes.start(&[0, 1], Roles { staying: &[0, 1], joining: &[] })?;
    let idle = bytes.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_secs(2));
    let idle = (bytes.load(Ordering::Relaxed) - idle) as f64 / 2.0;
    round.add("bytes/s between two idle nodes", "B/s", idle);
    let before = bytes.load(Ordering::Relaxed);
    let more = [
        ("--target", nodes.addresses[0].to_string()),
        ("--connections", flags.connections.to_string()),
        ("--replication-factor", "2".to_owned()),
        ("--opaque-bytes", OPAQUE_BYTES.to_string()),
        ("--warm-up-s", "0".to_owned()),
        ("--duration-s", flags.duration_s.as_secs_f64().to_string()),
    ];
    let report = scenario(flags, "post", &more)?;
    let sent = (bytes.load(Ordering::Relaxed) - before) as f64;
    let requests = report.requests.as_ref().context("a report of requests")?;
    let each = sent / requests.answered.max(1) as f64;
    // The payload is `127.0.0.1:9`, `/pop/0123456789`, and the opaque data.
    let payload = (11 + 15 + OPAQUE_BYTES) as f64;
    round.add("bytes per replicated create", "B", each);
    round.add("bytes beyond its payload", "B", each - payload);
    round.problems.extend(report.problems);
    Ok(())
}

/// Measures the lateness of pops with factor 2 on a cluster at rest.
pub fn lateness(flags: &ClusterFlags, round: &mut Round) -> Result<()> {
    let nodes = Nodes::started(flags, THREE)?;
    let more = [
        ("--target", nodes.addresses[0].to_string()),
        ("--rate", flags.pops_per_s.to_string()),
        ("--replication-factor", "2".to_owned()),
        ("--duration-s", flags.duration_s.as_secs_f64().max(5.0).to_string()),
        // A second rank would act 2 s later.
        ("--drain-s", "4".to_owned()),
    ];
    let report = scenario(flags, "accuracy", &more)?;
    add_pops(round, "lateness", &report.pops.as_ref().context("a report of pops")?.lateness_us);
    let doubled = report.pops.as_ref().map_or(0, |pops| pops.doubled);
    round.add("doubled pops", "", doubled as f64);
    round.problems.extend(report.problems);
    Ok(())
}

pub fn add_pops(round: &mut Round, what: &str, of: &Percentiles) {
    round.add(format!("{what} p50"), "ms", of.p50 / 1e3);
    round.add(format!("{what} p99"), "ms", of.p99 / 1e3);
    round.add(format!("{what} max"), "ms", of.max / 1e3);
}

/// Kills one of three nodes that hold timers of factor 2, and counts lost, doubled and late pops.
pub fn kill(flags: &ClusterFlags, round: &mut Round) -> Result<()> {
    let mut nodes = Nodes::started(flags, THREE)?;
    let timers = flags.kill_timers as usize;
    let ledger = Arc::new(Ledger::new(timers, KILL_INTERVAL_MS, KILL_POPS));
    let sink = Sink::new(SinkMode::Ok, Some(Arc::clone(&ledger)));
    let sink = sink.start(SocketAddr::from(([127, 0, 0, 1], 0)), flags.core)?;
    let shape = TimerShape {
        target: nodes.addresses[0],
        callback: sink.address,
        interval_ms: Some(KILL_INTERVAL_MS),
        pops_each: KILL_POPS,
        opaque_bytes: 40,
        headers: 0,
        replication_factor: 2,
        ralf: false,
        token: None,
    };
    let due = Due::AfterMs(KILL_INTERVAL_MS);
    let begun_ns = clock_ns();
    // Pops are spread like the creates: over half an interval.
    let rate = timers as f64 / (KILL_INTERVAL_MS as f64 / 2e3);
    let creator = Creator::new(&shape, due, timers as u64, Some(Arc::clone(&ledger)));
    let (target, rate) = (nodes.addresses[0].to_string(), rate.to_string());
    let (_, post) = scenario_flags(["x", "post", "--target", &target, "--rate", &rate])?;
    let about = Duration::from_millis(KILL_INTERVAL_MS / 2);
    let plan = crate::client::Plan { warm_up: Duration::ZERO, duration: about * 2, ..plan(&post) };
    let (_, outcome) = run_client("creating timers", plan, about, creator)?;
    for (failure, count) in outcome.recorder.failures {
        round.problems.push(format!("{count} timers not created: {}", failure.name()));
    }
    // From this instant on come the second and third pops.
    ledger.split_at(begun_ns + 2 * KILL_INTERVAL_MS * 1_000_000);
    nodes.kill(2)?;
    let last_ns = clock_ns() + u64::from(KILL_POPS) * KILL_INTERVAL_MS * 1_000_000;
    let left = Duration::from_nanos(last_ns.saturating_sub(clock_ns())) + Duration::from_secs(3);
    std::thread::sleep(left);
    let (sink, _) = sink.stop()?;
    let tally = sink.into_tally().context("the sink has a ledger")?;
    let lost = tally.lost(&ledger);
    for (word, count) in [("lost", lost), ("doubled", tally.doubled), ("early", tally.early)] {
        round.add(format!("kill -9: {word}"), "", count as f64);
        if count > 0 {
            round.problems.push(format!("kill -9: {count} pops {word}"));
        }
    }
    round.add("kill -9: owed", "", ledger.owed() as f64);
    let late = tally.before.count_between(1_000_000_000, u64::MAX) as f64
        / tally.before.len().max(1) as f64;
    round.add("kill -9: first pops later than 1 s", "%", late * 100.0);
    add_pops(round, "kill -9: first pop late", &Percentiles::of(&tally.before));
    add_pops(round, "kill -9: later pops late", &Percentiles::of(&tally.after));
    Ok(())
}
