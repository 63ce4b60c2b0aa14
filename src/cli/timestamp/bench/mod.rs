//! `chronos timestamp bench`: puts load on timestamp servers and checks every value, or sums up
//! logs of the original's benchmark.

mod log;
mod order;
mod outages;
mod report;
mod worker;

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::sync::{mpsc, watch};

use self::log::LogSummary;
use self::order::Highest;
use self::report::{Run, Summary};
use self::worker::{Left, Load, News};
use crate::cli::exit::{EXIT_FAILURE, EXIT_OK, EXIT_USAGE};
use crate::cli::lasting::whole_seconds_in;
use crate::cli::progress::{Progress, silence};
use crate::cli::runtime::{on_runtime, wall_ms};
use crate::cli::terminal::{failed, print, tell};
use crate::cli::timestamp::directory::follow_master;
use crate::cli::timestamp::get::Finder;
use crate::cli::timestamp::source::{SourceFlags, TimestampSource};
use crate::timestamp::RANGE_MAX;

/// Most reports of threads that wait to be read.
const NEWS_WAITING_MAX: usize = 256;
/// How often the first timestamp is tried before the load begins.
const FIRST_TRIES: u32 = 3;

const EXAMPLES: &str = "\
Examples:
  chronos timestamp bench                                   10 connections to 127.0.0.1:7911, 10 s
  chronos timestamp bench --zookeeper 10.0.0.1:2181 --connections 50 --duration 60
  chronos timestamp bench --rate 20000 --range 100 --json   open loop: 20 000 calls per second
  chronos timestamp bench --duration 0                      until Ctrl-C: kill masters meanwhile
  chronos timestamp bench --read-log client.log             sums a log of the original's benchmark

Closed loop: each connection calls again when it has its answer. Open loop (--rate): calls are due
at fixed times; one that is late because the server was is measured from when it was due.

Checked: every answer is above every answer that had arrived, on any connection, before its call was
sent; no value comes twice. A failed call is made again, through ZooKeeper with whoever is master
then, until it is answered; how long that took is told for each failover, from the last answer to
the next, and from the first error as the original's benchmark counts.

Exit codes: 0 every value was larger and none came twice; 1 not so, or no answers, or the log holds
such an error; 2 wrong command line";

/// Measure calls per second and latency, check the order of all values, time failovers
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchFlags {
    #[command(flatten)]
    source: SourceFlags,

    /// Connections, each with one call at a time
    #[arg(long, short = 'c', value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,

    /// Timestamps per call
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(RANGE_MAX)))]
    range: u32,

    /// Length of the run; 0: until Ctrl-C
    #[arg(long, value_name = "DURATION", default_value_t = 10, value_parser = length)]
    duration: u64,

    /// Make an open loop: this many calls per second, of all connections together
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,

    /// Threads [default: one per core, at most one per connection]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_024))]
    threads: Option<u32>,

    /// Longest wait for a connection, and for an answer
    #[arg(long, value_name = "MS", default_value_t = 3_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    timeout_ms: u64,

    /// Sum up this log of the original's benchmark instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "server", "zookeeper"])]
    read_log: Option<PathBuf>,

    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

fn length(text: &str) -> Result<u64, String> {
    whole_seconds_in(text, &(0..=31_536_000))
}

/// Reads calls per second.
fn rate(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| (0.001..=1e9).contains(value));
    value.ok_or_else(|| "expected calls per second, above 0".into())
}

/// Runs the command; returns the exit code.
pub(crate) fn run(flags: &BenchFlags) -> u8 {
    if let Some(file) = &flags.read_log {
        return read_log(file, flags.json);
    }
    match flags.source.chosen() {
        Ok(source) => on_runtime(bench(flags, source)),
        Err(error) => failed(flags.json, &error, EXIT_USAGE),
    }
}

fn read_log(file: &Path, is_json: bool) -> u8 {
    let opened = std::fs::File::open(file);
    match opened.and_then(|file| LogSummary::read(&mut BufReader::new(file))) {
        Err(error) => failed(is_json, &format!("{}: {error}", file.display()), EXIT_FAILURE),
        Ok(summary) => {
            let text = match is_json {
                true => format!("{:#}\n", summary.document()),
                false => summary.text(),
            };
            let is_good = summary.breaches == 0 && summary.qps.count + summary.failover_s.count > 0;
            if summary.qps.count + summary.failover_s.count == 0 {
                tell("error: nothing in it was written by the original's benchmark");
            }
            (if is_good { EXIT_OK } else { EXIT_FAILURE }).max(print(&text))
        }
    }
}

async fn bench(flags: &BenchFlags, source: TimestampSource) -> u8 {
    let limit = Duration::from_millis(flags.timeout_ms);
    let mut finder = Finder::new(source.clone());
    // A source that does not answer is reported before the run.
    let server = match finder.take_patiently(flags.range, limit, FIRST_TRIES, |_| {}).await {
        Ok((_, server)) => server,
        Err(error) => return failed(flags.json, &error, EXIT_FAILURE),
    };
    let (master_sender, master) = watch::channel(Some(server));
    let (stop_sender, stop) = watch::channel(None);
    let begun = Instant::now();
    let connections = flags.connections as usize;
    let every = flags.rate.map(|rate| Duration::from_secs_f64(connections as f64 / rate));
    let plan = Load {
        range: flags.range,
        limit,
        every,
        begun,
        master,
        stop,
        highest: Arc::new(Highest::default()),
    };
    let run = Run {
        source: source.to_string(),
        connections,
        threads: threads(flags),
        range: flags.range,
        rate: flags.rate,
        begun_ms: wall_ms(),
    };
    let (sender, news) = mpsc::channel(NEWS_WAITING_MAX);
    let threads = match start(&run, &plan, &sender) {
        Ok(threads) => threads,
        Err(error) => {
            stop_sender.send_replace(Some(begun));
            let told = format!("a thread does not start: {error}");
            return failed(flags.json, &told, EXIT_FAILURE);
        }
    };
    drop((sender, plan));
    let summary = Summary::new(run);
    let following = async {
        if let TimestampSource::Cluster { quorum, cluster } = &source {
            follow_master(quorum, cluster, &master_sender).await;
        }
        std::future::pending::<()>().await;
    };
    let mut summary = tokio::select! {
        summary = collect(summary, news, flags, begun, &stop_sender) => summary,
        () = following => unreachable!("it waits for ever"),
    };
    for thread in threads {
        match thread.join() {
            Ok(Ok(left)) => summary.leave(left),
            Ok(Err(error)) => return failed(flags.json, &error, EXIT_FAILURE),
            Err(_) => {
                let told = "a thread of the benchmark panicked: this is a bug";
                return failed(flags.json, &told, EXIT_FAILURE);
            }
        }
    }
    let text = match flags.json {
        true => format!("{:#}\n", summary.document()),
        false => summary.text(),
    };
    let code = if summary.is_good() { EXIT_OK } else { EXIT_FAILURE };
    code.max(print(&text))
}

fn threads(flags: &BenchFlags) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    flags.threads.map_or(cores, |threads| threads as usize).min(flags.connections as usize)
}

type Thread = std::thread::JoinHandle<std::io::Result<Left>>;

fn start(run: &Run, plan: &Load, news: &mpsc::Sender<News>) -> std::io::Result<Vec<Thread>> {
    let thread = |thread: usize| {
        let connections: Vec<usize> = (thread..run.connections).step_by(run.threads).collect();
        let (plan, news, of_all) = (plan.clone(), news.clone(), run.connections);
        std::thread::Builder::new()
            .name(format!("bench-{thread}"))
            .spawn(move || worker::run(thread, connections, of_all, &plan, &news))
    };
    (0..run.threads).map(thread).collect()
}

/// Reads reports until all threads have ended. Stops the threads when the run is over.
async fn collect(
    mut summary: Summary,
    mut news: mpsc::Receiver<News>,
    flags: &BenchFlags,
    begun: Instant,
    stop: &watch::Sender<Option<Instant>>,
) -> Summary {
    let end = async {
        match flags.duration {
            0 => std::future::pending().await,
            seconds => {
                tokio::time::sleep_until((begun + Duration::from_secs(seconds)).into()).await;
            }
        }
    };
    let mut end = std::pin::pin!(end);
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    if flags.json {
        silence();
    }
    let progress = Progress::begin("timestamps");
    let mut is_ending = false;
    let mut shown_at = begun;
    loop {
        tokio::select! {
            told = news.recv() => match told {
                Some(told) => summary.add(told),
                None => break,
            },
            () = &mut end, if !is_ending => {
                is_ending = true;
                summary.stopped(stop_now(begun, stop));
            }
            _ = &mut interrupted, if !is_ending => {
                is_ending = true;
                summary.stopped(stop_now(begun, stop));
            }
        }
        if shown_at.elapsed() >= Duration::from_secs(1) {
            let text = summary.progress(shown_at.elapsed());
            progress.show(begun.elapsed().as_secs(), flags.duration, &text);
            shown_at = Instant::now();
        }
    }
    summary
}

/// Ends the load and returns how long it lasted.
fn stop_now(begun: Instant, stop: &watch::Sender<Option<Instant>>) -> Duration {
    let now = Instant::now();
    stop.send_replace(Some(now));
    now.duration_since(begun)
}
