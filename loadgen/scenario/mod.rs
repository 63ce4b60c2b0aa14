//! The scenarios: each in a file of its own, all built from the client, the sink and the ledger.

mod accuracy;
#[cfg(test)]
mod faulty_node;
mod fill;
mod herd;
mod isolation;
mod pops;
mod post;
mod session;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use crate::arrival::Rate;
use crate::client::{Client, Outcome, Plan, Workload, clock_ns};
use crate::creator::{Creator, Due};
use crate::flags::ScenarioFlags;
use crate::ledger::Ledger;
use crate::progress::Progress;
use crate::report::{Report, grouped};
use crate::request::TimerShape;
use crate::server::ServerThread;
use crate::server_cpu;
use crate::sink::Sink;

/// Where callbacks of timers go that are not meant to pop: the discard port.
const NOBODY: &str = "127.0.0.1:9";
/// How often waiting threads look and bars move.
const LOOK: Duration = Duration::from_millis(20);

/// What can be run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scenario {
    /// Create only.
    Post,
    /// Create, update, delete.
    Churn,
    /// Lateness of every pop at a steady rate.
    Accuracy,
    /// As many due callbacks as possible.
    Pops,
    /// All due in the same millisecond while requests go on.
    Herd,
    /// Call sessions of a charging function.
    Ralf,
    /// A hung callback host beside a good one.
    Isolation,
    /// Memory per timer.
    Fill,
}

impl Scenario {
    /// All, in the order of the help.
    pub const ALL: [Scenario; 8] = [
        Scenario::Post,
        Scenario::Churn,
        Scenario::Accuracy,
        Scenario::Pops,
        Scenario::Herd,
        Scenario::Ralf,
        Scenario::Isolation,
        Scenario::Fill,
    ];

    /// Its subcommand.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Post => "post",
            Scenario::Churn => "churn",
            Scenario::Accuracy => "accuracy",
            Scenario::Pops => "pops",
            Scenario::Herd => "herd",
            Scenario::Ralf => "ralf",
            Scenario::Isolation => "isolation",
            Scenario::Fill => "fill",
        }
    }

    /// One line for the help.
    pub fn about(self) -> &'static str {
        match self {
            Scenario::Post => "Create timers an hour ahead: requests per second and their latency",
            Scenario::Churn => "Create, update and delete in equal parts, --timers alive at a time",
            Scenario::Accuracy => {
                "Create --rate timers a second of --interval-ms: lateness of every pop, and which \
                 were early, lost or doubled"
            }
            Scenario::Pops => "--timers due at one time: how fast callbacks are sent and answered",
            Scenario::Herd => {
                "--timers due in the same millisecond while --rate requests a second go on"
            }
            Scenario::Ralf => {
                "Call sessions as a charging function makes them: POST, PUT at a refresh, DELETE \
                 at hang-up"
            }
            Scenario::Isolation => {
                "--timers due at a host that never answers: how late are another host's pops?"
            }
            Scenario::Fill => "Create --timers far ahead: memory of the server per timer",
        }
    }

    /// Arguments of an example.
    pub fn example(self) -> &'static str {
        match self {
            Scenario::Post => "post --connections 64 --pipeline 16 --core 1 --server-pid 4711",
            Scenario::Churn => "churn --rate 50k --timers 200000 --html churn.html",
            Scenario::Accuracy => "accuracy --rate 20k --duration-s 60 --core 1 --sink-core 1",
            Scenario::Pops => "pops --timers 2000000 --server-pid 4711",
            Scenario::Herd => "herd --timers 1000000 --rate 2000",
            Scenario::Ralf => "ralf --rate 30k --timers 500000 --poisson --duration-s 30",
            Scenario::Isolation => "isolation --timers 100000 --rate 2000",
            Scenario::Fill => "fill --timers 10000000 --server-pid 4711",
        }
    }

    /// Defaults of flags that differ between scenarios.
    pub fn defaults(self) -> [(&'static str, &'static str); 10] {
        // rate, connections, pipeline, warm-up, duration, timers, interval, refreshes, spread,
        // burst
        let values = match self {
            Scenario::Post => ["max", "64", "1", "1", "10", "1000000000", "3600000", "0", "0", "0"],
            Scenario::Churn => ["max", "64", "1", "1", "10", "100000", "3600000", "1", "0", "0"],
            Scenario::Accuracy => ["2000", "16", "16", "1", "10", "1", "1000", "0", "0", "250"],
            Scenario::Pops => ["max", "64", "16", "0", "60", "1000000", "1", "0", "0", "0"],
            Scenario::Herd => ["1000", "16", "16", "0", "30", "1000000", "3600000", "0", "0", "0"],
            Scenario::Ralf => ["10000", "64", "16", "1", "10", "50000", "300000", "4", "0", "0"],
            Scenario::Isolation => {
                ["2000", "16", "16", "1", "20", "100000", "1000", "0", "0", "250"]
            }
            Scenario::Fill => ["max", "64", "16", "0", "3600", "1000000", "3600000", "0", "0", "0"],
        };
        let flags = [
            "rate",
            "connections",
            "pipeline",
            "warm_up_s",
            "duration_s",
            "timers",
            "interval_ms",
            "refreshes",
            "spread_ms",
            "burst_us",
        ];
        std::array::from_fn(|index| (flags[index], values[index]))
    }

    /// Flags that mean nothing here; the help leaves them out.
    pub fn unused(self) -> &'static [&'static str] {
        match self {
            Scenario::Post | Scenario::Fill => &[
                "refreshes",
                "lead_ms",
                "spread_ms",
                "sink_listen",
                "sink_core",
                "sink_mode",
                "pops_each",
            ],
            Scenario::Churn => {
                &["lead_ms", "spread_ms", "sink_listen", "sink_core", "sink_mode", "pops_each"]
            }
            Scenario::Ralf => &["lead_ms", "spread_ms", "opaque_bytes"],
            Scenario::Accuracy => &["timers", "refreshes", "lead_ms", "spread_ms"],
            Scenario::Pops => {
                &["rate", "burst_us", "poisson", "refreshes", "interval_ms", "pops_each"]
            }
            Scenario::Herd | Scenario::Isolation => &["refreshes", "pops_each"],
        }
    }

    /// Runs it.
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

/// The plan that the flags ask for.
pub fn plan(flags: &ScenarioFlags) -> Plan {
    Plan {
        target: flags.target,
        connections: flags.connections as usize,
        pipeline: flags.pipeline as usize,
        rate: flags.rate,
        burst: Duration::from_micros(u64::from(flags.burst_us)),
        poisson: flags.poisson,
        seed: flags.seed,
        warm_up: flags.warm_up_s,
        duration: flags.duration_s,
        drain: flags.drain_s,
        timeout: Duration::from_millis(u64::from(flags.timeout_ms)),
        core: flags.core,
        server_pid: flags.server_pid,
        split_ns: None,
        progress: Arc::new(AtomicU64::new(0)),
    }
}

/// The plan of creating timers as fast as possible, without warm-up.
fn fill_plan(flags: &ScenarioFlags) -> Plan {
    Plan {
        rate: Rate::Max,
        pipeline: flags.pipeline.max(16) as usize,
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(3600),
        ..plan(flags)
    }
}

/// The timers that the flags ask for.
fn shape(flags: &ScenarioFlags, callback: SocketAddr) -> TimerShape {
    TimerShape {
        target: flags.target,
        callback,
        interval_ms: Some(flags.interval_ms),
        pops_each: flags.pops_each,
        opaque_bytes: flags.opaque_bytes as usize,
        replication_factor: flags.replication_factor,
        ralf: false,
    }
}

fn nobody() -> SocketAddr {
    NOBODY.parse().expect("the constant is an address")
}

/// Runs a client on a thread of its own and shows a bar meanwhile. `about` is how long it takes.
pub fn run_client<W: Workload>(
    what: &str,
    plan: Plan,
    about: Duration,
    workload: W,
) -> Result<(W, Outcome)> {
    let progress = Progress::start(what, about);
    let count = Arc::clone(&plan.progress);
    let thread = std::thread::Builder::new()
        .name("client".into())
        .spawn(move || Client::run(plan, workload))?;
    while !thread.is_finished() {
        progress.show(format!("{} answers", grouped(count.load(Ordering::Relaxed))));
        std::thread::sleep(LOOK);
    }
    thread.join().unwrap_or_else(|_| Err(anyhow!("the client's thread panicked")))
}

/// A sink that judges by this ledger, started as the flags say.
fn start_sink(flags: &ScenarioFlags, ledger: &Arc<Ledger>) -> Result<ServerThread<Sink>> {
    let sink = Sink::new(flags.sink.sink_mode, Some(Arc::clone(ledger)));
    sink.start(flags.sink.sink_listen, flags.sink.sink_core)
}

/// Stops the sink and takes its tally into the report; `start_ns` is when it was started.
fn finish_sink(
    report: &mut Report,
    sink: ServerThread<Sink>,
    ledger: &Ledger,
    start_ns: u64,
    during: Option<&str>,
) -> Result<()> {
    let (sink, cpu_ns) = sink.stop()?;
    let passed_ns = (clock_ns() - start_ns).max(1);
    report.loadgen.sink_core_share = Some(cpu_ns as f64 / passed_ns as f64);
    report.add_pops(ledger, sink.into_tally().context("the sink has a ledger")?, during);
    Ok(())
}

/// How long before their due time timers are created.
fn lead_ns(flags: &ScenarioFlags) -> u64 {
    match flags.lead_ms {
        0 => 3_000_000_000 + u64::from(flags.timers) * 10_000,
        ms => u64::from(ms) * 1_000_000,
    }
}

/// Creates all timers for one due time, and fails if that takes until then.
fn create_ahead(
    flags: &ScenarioFlags,
    shape: &TimerShape,
    due_ns: u64,
    spread_ms: u32,
    ledger: Option<Arc<Ledger>>,
) -> Result<Outcome> {
    let spread_ns = u64::from(spread_ms) * 1_000_000;
    let due = Due::At { at_ns: due_ns, spread_ns };
    let creator = Creator::new(shape, due, u64::from(flags.timers), ledger);
    let about = Duration::from_nanos(due_ns.saturating_sub(clock_ns()));
    let (_, outcome) = run_client("creating timers", fill_plan(flags), about, creator)?;
    if clock_ns() >= due_ns {
        bail!(
            "creating {} timers took longer than there was time before they came due: \
             give more with --lead-ms",
            grouped(u64::from(flags.timers))
        );
    }
    Ok(outcome)
}

/// One look at the server while pops arrive.
#[derive(Clone, Copy, Debug)]
struct Sample {
    ns: u64,
    cpu_ns: Option<u64>,
    distinct: u64,
}

/// Waits until every owed pop has arrived or `until_ns`, and at least `quiet` after that for
/// doubled ones. Samples the server's CPU time on the way.
fn await_pops(flags: &ScenarioFlags, ledger: &Ledger, until_ns: u64, what: &str) -> Vec<Sample> {
    let mut samples = Vec::new();
    let about = Duration::from_nanos(until_ns.saturating_sub(clock_ns()));
    let progress = Progress::start(what, about);
    loop {
        let (ns, distinct) = (clock_ns(), ledger.distinct());
        let cpu_ns = flags.server_pid.and_then(server_cpu::cpu_ns);
        samples.push(Sample { ns, cpu_ns, distinct });
        if distinct >= ledger.owed() || ns >= until_ns {
            break;
        }
        progress.show(format!("{} of {} pops", grouped(distinct), grouped(ledger.owed())));
        std::thread::sleep(LOOK);
    }
    // Doubled pops come later than their first: a callback time-out (2 s) is when a node would try
    // again.
    std::thread::sleep(flags.drain_s.min(Duration::from_millis(2500)));
    samples
}

/// The server's CPU per pop in microseconds and cores busy, between the first sample with pops and
/// the last before all.
fn cpu_per_pop(samples: &[Sample]) -> Option<(f64, f64)> {
    let last_count = samples.last()?.distinct;
    let first = samples.iter().find(|sample| sample.distinct > 0)?;
    let last = samples.iter().rev().find(|sample| sample.distinct < last_count)?;
    let pops = last.distinct.checked_sub(first.distinct).filter(|pops| *pops > 0)?;
    let cpu_ns = last.cpu_ns?.checked_sub(first.cpu_ns?)? as f64;
    Some((cpu_ns / 1e3 / pops as f64, cpu_ns / (last.ns - first.ns) as f64))
}
