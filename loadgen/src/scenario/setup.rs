//! The parts of which scenarios are built: the plan and the timers that the flags ask for, the
//! client, the sink, and the wait for pops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use chronos::cli::progress::Progress;

use crate::arrival::Rate;
use crate::client::{Client, Outcome, Plan};
use crate::clock::clock_ns;
use crate::creator::{Creator, Due};
use crate::flags::ScenarioFlags;
use crate::interrupt;
use crate::ledger::Ledger;
use crate::report::{Report, grouped};
use crate::request::TimerShape;
use crate::server::ServerThread;
use crate::server_cpu;
use crate::sink::Sink;
use crate::workload::Workload;

/// Address of callbacks for timers that should not pop: the discard port.
const NOBODY: &str = "127.0.0.1:9";
/// How often waiting threads look, and bars move.
const LOOK: Duration = Duration::from_millis(20);

/// The client's plan that the flags ask for.
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

/// The client's plan for creating timers as fast as possible, without warm-up.
pub fn fill_plan(flags: &ScenarioFlags) -> Plan {
    Plan {
        rate: Rate::Max,
        pipeline: flags.pipeline.max(16) as usize,
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(3600),
        ..plan(flags)
    }
}

/// The timers that the flags ask for, with callbacks to `callback`.
pub fn shape(flags: &ScenarioFlags, callback: SocketAddr) -> TimerShape {
    interrupt::note_host(callback);
    TimerShape {
        target: flags.target,
        callback,
        interval_ms: Some(flags.interval_ms),
        pops_each: flags.pops_each,
        opaque_bytes: flags.opaque_bytes as usize,
        headers: flags.headers,
        replication_factor: flags.replication_factor,
        ralf: false,
        token: flags.token.clone(),
    }
}

/// An address at which no callback server listens.
pub fn nobody() -> SocketAddr {
    NOBODY.parse().expect("the constant is an address")
}

/// Runs a client on a thread of its own and shows a bar. `about` is how long the run takes,
/// roughly.
pub fn run_client<W: Workload>(
    what: &str,
    plan: Plan,
    about: Duration,
    workload: W,
) -> Result<(W, Outcome)> {
    let progress = Progress::begin(what);
    let (begun, about_ms) = (Instant::now(), about.as_millis() as u64);
    let count = Arc::clone(&plan.progress);
    interrupt::note_answers(&count);
    let thread = std::thread::Builder::new()
        .name("client".into())
        .spawn(move || Client::run(plan, workload))?;
    while !thread.is_finished() {
        let answers = grouped(count.load(Ordering::Relaxed));
        progress.show(begun.elapsed().as_millis() as u64, about_ms, &format!("{answers} answers"));
        std::thread::sleep(LOOK);
    }
    thread.join().unwrap_or_else(|_| Err(anyhow!("the client's thread panicked")))
}

/// Starts a sink that judges pops by `ledger`, as the flags say.
pub fn start_sink(flags: &ScenarioFlags, ledger: &Arc<Ledger>) -> Result<ServerThread<Sink>> {
    let sink = Sink::new(flags.sink.sink_mode, Some(Arc::clone(ledger)));
    sink.start(flags.sink.sink_listen, flags.sink.sink_core)
}

/// Stops the sink and adds its tally to the report. `start_ns` is when the sink was started.
pub fn finish_sink(
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

/// How long before their due time timers are created, in nanoseconds.
pub fn lead_ns(flags: &ScenarioFlags) -> u64 {
    match flags.lead_ms {
        0 => 3_000_000_000 + u64::from(flags.timers) * 10_000,
        ms => u64::from(ms) * 1_000_000,
    }
}

/// Creates all timers for one due time. Error: the creates were not finished by then.
pub fn create_ahead(
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

/// A reading of the server's figures while pops arrive.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When the reading was taken, in monotonic nanoseconds.
    pub ns: u64,
    /// CPU time of the server until then, in nanoseconds; `None`: not known.
    pub cpu_ns: Option<u64>,
    /// How many distinct pops had arrived.
    pub distinct: u64,
}

/// Waits until every owed pop has arrived, or until `until_ns`. Then waits for doubled pops,
/// --drain-s but at most 2.5 s. Returns samples of the server's CPU time.
pub fn await_pops(
    flags: &ScenarioFlags,
    ledger: &Ledger,
    until_ns: u64,
    what: &str,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    let progress = Progress::begin(what);
    loop {
        let (ns, distinct) = (clock_ns(), ledger.distinct());
        let cpu_ns = flags.server_pid.and_then(server_cpu::cpu_ns);
        samples.push(Sample { ns, cpu_ns, distinct });
        if distinct >= ledger.owed() || ns >= until_ns {
            break;
        }
        let owed = ledger.owed();
        let text = format!("{} of {} pops", grouped(distinct), grouped(owed));
        progress.show(distinct, owed, &text);
        std::thread::sleep(LOOK);
    }
    // A doubled pop comes later than the first pop: a node tries again after a callback time-out (2
    // s).
    std::thread::sleep(flags.drain_s.min(Duration::from_millis(2500)));
    samples
}

/// CPU time of the server per pop in microseconds, and its busy cores, between the first sample
/// with pops and the last sample before all pops had come. `None`: the samples do not suffice.
pub fn cpu_per_pop(samples: &[Sample]) -> Option<(f64, f64)> {
    let last_count = samples.last()?.distinct;
    let first = samples.iter().find(|sample| sample.distinct > 0)?;
    let last = samples.iter().rev().find(|sample| sample.distinct < last_count)?;
    let pops = last.distinct.checked_sub(first.distinct).filter(|pops| *pops > 0)?;
    let cpu_ns = last.cpu_ns?.checked_sub(first.cpu_ns?)? as f64;
    Some((cpu_ns / 1e3 / pops as f64, cpu_ns / (last.ns - first.ns) as f64))
}
