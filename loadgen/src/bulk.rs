//! Measures creates that come a line each in one request, beside creates that come a request each,
//! pipelined over as many connections. The document is the same, and so is the client.
//!
//! Rounds are interleaved, each with a fresh node, because noise of a shared machine moves both
//! alike.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use chronos::cli::progress::say;
use chronos::ring::pin_to_core;
use serde::Serialize;

use crate::child::{Child, free_address};
use crate::clock::clock_ns;
use crate::flags::BulkFlags;
use crate::machine::Machine;
use crate::report::{grouped, median};
use crate::server_cpu;

/// A short document: a timer of an hour at a host that nobody calls.
const DOCUMENT: &str = concat!(
    r#"{"timing":{"interval":3600},"#,
    r#""callback":{"http":{"uri":"http://127.0.0.1:9/call/17","opaque":"leg"}}}"#
);
/// Timers of one write.
const BATCH: u64 = 128;
/// Requests that are not answered, of all connections together, above which no more are sent.
/// Lines have no such bound: TCP pushes back.
const UNANSWERED_MAX: u64 = 2_048;
const PATIENCE: Duration = Duration::from_secs(60);

/// The figures of one run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Timers per second.
    pub per_second: f64,
    /// CPU time of the node per timer, in microseconds.
    pub cpu_us: f64,
}

/// One run of each way, one after the other.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Round {
    /// A request each.
    pub requests: Figures,
    /// A line each.
    pub lines: Figures,
}

/// The report on the whole comparison.
#[derive(Clone, Debug, Serialize)]
pub struct BulkReport {
    /// The machine of the run.
    pub machine: Machine,
    /// Connections of each run.
    pub connections: u32,
    /// The figures, round by round.
    pub rounds: Vec<Round>,
    /// The median of each figure.
    pub median: Round,
    /// CPU time of a line / CPU time of a request.
    pub cpu_ratio: f64,
}

/// How the timers are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Requests,
    Lines,
}

impl Way {
    /// What one timer is in bytes.
    fn timer(self) -> String {
        match self {
            Way::Lines => format!("{DOCUMENT}\n"),
            Way::Requests => format!(
                "POST /timers HTTP/1.1\r\nHost: 127.0.0.1:7253\r\nContent-Length: {}\r\n\r\n\
                 {DOCUMENT}",
                DOCUMENT.len()
            ),
        }
    }

    /// What stands once in every answer to a timer that was taken.
    fn mark(self) -> &'static [u8] {
        match self {
            Way::Requests => b"HTTP/1.1 200",
            Way::Lines => b"{\"location\"",
        }
    }
}

/// Runs all rounds. Error: a node does not start or end, or refuses a timer.
pub fn run(flags: &BulkFlags) -> Result<BulkReport> {
    let cores = chronos::ring::available_cores().context("which cores are there?")?;
    let other = cores.iter().copied().find(|&core| core != flags.server_core);
    let core = flags.core.or(other).unwrap_or(flags.server_core);
    let mut rounds = Vec::new();
    for number in 0..flags.rounds {
        let round = if number % 2 == 0 {
            let requests = once(flags, core, Way::Requests)?;
            Round { requests, lines: once(flags, core, Way::Lines)? }
        } else {
            let lines = once(flags, core, Way::Lines)?;
            Round { requests: once(flags, core, Way::Requests)?, lines }
        };
        say(&format!("round {} of {}: {}", number + 1, flags.rounds, round_text(&round)));
        rounds.push(round);
    }
    let of = |pick: fn(&Round) -> f64| median(&rounds.iter().map(pick).collect::<Vec<f64>>());
    let median = Round {
        requests: Figures {
            per_second: of(|round| round.requests.per_second),
            cpu_us: of(|round| round.requests.cpu_us),
        },
        lines: Figures {
            per_second: of(|round| round.lines.per_second),
            cpu_us: of(|round| round.lines.cpu_us),
        },
    };
    let cpu_ratio = median.lines.cpu_us / median.requests.cpu_us;
    let (machine, connections) = (Machine::read(), flags.connections);
    Ok(BulkReport { machine, connections, rounds, median, cpu_ratio })
}

/// Creates all timers at a fresh node. The client runs on `core`.
fn once(flags: &BulkFlags, core: usize, way: Way) -> Result<Figures> {
    let address = free_address()?;
    let binary = match &flags.node_binary {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("chronos"),
    };
    let mut command = Command::new(binary);
    let server_core = flags.server_core.to_string();
    command.args(["--listen", &address.to_string(), "--cores", &server_core, "--admin", "off"]);
    command.env("CHRONOS_NODE_PREFAULT_BYTES", flags.prefault_bytes.to_string());
    let mut node = Child::start(command)?;
    node.await_ready(address)?;
    let each = (u64::from(flags.timers) / u64::from(flags.connections)).next_multiple_of(BATCH);
    // Memory, caches and buffers are warm after the first tenth.
    load((address, core), way, flags.connections, (each / 10).next_multiple_of(BATCH))?;
    let sample = || {
        let cpu_ns = server_cpu::cpu_ns(node.pid()).context("the node has ended")?;
        anyhow::Ok((clock_ns(), cpu_ns))
    };
    let first = sample()?;
    load((address, core), way, flags.connections, each)?;
    let last = sample()?;
    node.stop()?;
    let timers = (each * u64::from(flags.connections)) as f64;
    let per_second = timers / ((last.0 - first.0) as f64 / 1e9);
    Ok(Figures { per_second, cpu_us: (last.1 - first.1) as f64 / 1e3 / timers })
}

/// Creates `each` timers over every connection.
fn load(at: (SocketAddr, usize), way: Way, connections: u32, each: u64) -> Result<()> {
    let unanswered_max = match way {
        Way::Requests => (UNANSWERED_MAX / u64::from(connections)).max(BATCH),
        Way::Lines => u64::MAX,
    };
    std::thread::scope(|scope| {
        let loads: Vec<_> = (0..connections)
            .map(|_| scope.spawn(move || load_one(at, way, each, unanswered_max)))
            .collect();
        loads.into_iter().try_for_each(|load| match load.join() {
            Ok(loaded) => loaded,
            Err(_) => bail!("a client panicked"),
        })
    })
}

fn load_one(
    (address, core): (SocketAddr, usize),
    way: Way,
    each: u64,
    unanswered_max: u64,
) -> Result<()> {
    // The reader's thread inherits it. The node's process must not.
    pin_to_core(core).context("the client's core")?;
    let mut sends = TcpStream::connect(address).context("cannot connect")?;
    sends.set_nodelay(true)?;
    sends.set_read_timeout(Some(PATIENCE))?;
    sends.set_write_timeout(Some(PATIENCE))?;
    let reads = sends.try_clone()?;
    let answered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_all(reads, way, each, &answered));
        let timer = way.timer();
        if way == Way::Lines {
            let length = timer.len() as u64 * each;
            write!(
                sends,
                "POST /timers/bulk HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
            )?;
        }
        let batch = timer.repeat(BATCH as usize);
        for sent in (0..each).step_by(BATCH as usize) {
            while sent + BATCH - answered.load(Ordering::Relaxed) > unanswered_max {
                ensure!(!reader.is_finished(), "the node does not answer all requests");
                std::thread::yield_now();
            }
            sends.write_all(batch.as_bytes())?;
        }
        match reader.join() {
            Ok(read) => read,
            Err(_) => bail!("a client panicked"),
        }
    })
}

/// Reads until all timers are answered.
fn read_all(mut reads: TcpStream, way: Way, each: u64, answered: &AtomicU64) -> Result<()> {
    let mark = way.mark();
    let mut bytes = vec![0; 256 << 10];
    let (mut kept, mut count) = (0, 0);
    while count < each {
        let read = reads.read(&mut bytes[kept..])?;
        ensure!(read > 0, "the node closed after {count} timers");
        let end = kept + read;
        let mut at = 0;
        while let Some(found) = bytes[at..end].windows(mark.len()).position(|one| one == mark) {
            at += found + mark.len();
            count += 1;
        }
        answered.store(count, Ordering::Relaxed);
        // The beginning of a mark may stand at the end.
        let from = at.max((end + 1).saturating_sub(mark.len()));
        bytes.copy_within(from..end, 0);
        kept = end - from;
    }
    Ok(())
}

fn round_text(round: &Round) -> String {
    let one = |figures: &Figures| {
        let per_second = grouped(figures.per_second.round() as u64);
        format!("{per_second:>10}/s {:>6.3} us", figures.cpu_us)
    };
    let ratio = round.lines.cpu_us / round.requests.cpu_us;
    format!("requests {}   lines {}   {ratio:.3} x", one(&round.requests), one(&round.lines))
}

impl BulkReport {
    /// The report as text for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        for (index, round) in self.rounds.iter().enumerate() {
            let _ = writeln!(text, "round {:<3} {}", index + 1, round_text(round));
        }
        let _ = writeln!(text, "median    {}", round_text(&self.median));
        let per_core = grouped((1e6 / self.median.lines.cpu_us) as u64);
        let connections = self.connections;
        let _ = writeln!(
            text,
            "{connections} connections; a core creates {per_core} timers a second of its own time"
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_however_they_are_cut() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.set_nodelay(true).unwrap();
            for byte in b"{\"location\":1}\n{\"status\":1}\n{\"location\":2}\n".repeat(3) {
                stream.write_all(&[byte]).unwrap();
            }
        });
        let answered = AtomicU64::new(0);
        let stream = TcpStream::connect(address).unwrap();
        assert!(read_all(stream, Way::Lines, 7, &answered).is_err(), "there are six");
        assert_eq!(answered.into_inner(), 6);
        server.join().unwrap();
    }

    #[test]
    fn the_document_is_sent_in_both_ways() {
        assert!(Way::Lines.timer().ends_with("}\n"));
        assert!(Way::Requests.timer().ends_with(DOCUMENT));
        assert!(serde_json::from_str::<serde_json::Value>(DOCUMENT).is_ok());
    }
}
