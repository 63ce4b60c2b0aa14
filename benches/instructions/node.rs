//! A node under callgrind, and what callgrind has counted.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::ops::Add;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use kit::children::{Tied, command};
use kit::client::request;
use kit::ports::free_port;
use kit::until::until;
use tempfile::TempDir;

/// Longest start of a node under callgrind.
const PATIENCE: Duration = Duration::from_secs(300);

/// What was counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Counts {
    pub instructions: u64,
    branches: u64,
    mispredicted: u64,
    level1_misses: u64,
    last_level_misses: u64,
}

impl Counts {
    /// The heads of the columns of [`Counts::line`].
    pub fn headings() -> String {
        let simulated = "  branches  mispredicted  L1 misses  LL misses";
        let simulated = WITH_CACHES.get().map_or("", |_| simulated);
        format!("{:<28} instructions{simulated}", "operation")
    }

    /// One of `count` operations.
    pub fn of_one(self, count: u64) -> Counts {
        Counts {
            instructions: self.instructions / count,
            branches: self.branches / count,
            mispredicted: self.mispredicted / count,
            level1_misses: self.level1_misses / count,
            last_level_misses: self.last_level_misses / count,
        }
    }

    pub fn line(&self, name: &str) -> String {
        let Counts { instructions, branches, mispredicted, level1_misses, last_level_misses } =
            self;
        let simulated = format!(
            " {branches:>9} {mispredicted:>13} {level1_misses:>10} {last_level_misses:>10}"
        );
        let simulated = WITH_CACHES.get().map_or("", |_| &simulated);
        format!("{name:<28} {instructions:>12}{simulated}")
    }

    /// Reads the totals of callgrind's output.
    fn read(text: &str) -> Counts {
        let after = |word: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(word));
            line.unwrap_or_else(|| panic!("callgrind's output has no line {word}"))
        };
        let events: Vec<&str> = after("events: ").split_whitespace().collect();
        let sums: Vec<u64> = after("totals: ")
            .split_whitespace()
            .map(|sum| sum.parse().expect("callgrind writes numbers"))
            .collect();
        let sum = |wanted: &[&str]| {
            let all = events.iter().zip(&sums).filter(|(event, _)| wanted.contains(event));
            all.map(|(_, sum)| sum).sum()
        };
        Counts {
            instructions: sum(&["Ir"]),
            branches: sum(&["Bc", "Bi"]),
            mispredicted: sum(&["Bcm", "Bim"]),
            level1_misses: sum(&["I1mr", "D1mr", "D1mw"]),
            last_level_misses: sum(&["ILmr", "DLmr", "DLmw"]),
        }
    }
}

impl Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts {
            instructions: self.instructions + other.instructions,
            branches: self.branches + other.branches,
            mispredicted: self.mispredicted + other.mispredicted,
            level1_misses: self.level1_misses + other.level1_misses,
            last_level_misses: self.last_level_misses + other.last_level_misses,
        }
    }
}

/// Set if caches and branches are simulated: then a node takes three times as long.
pub static WITH_CACHES: OnceLock<()> = OnceLock::new();
/// The function of the C library before which callgrind writes its counts. A node calls it to end a
/// connection of a client, and at no other time.
const WRITES_AT: &str = "shutdown";
/// More threads than a node of one shard has.
const THREADS_MAX: usize = 50;
/// The variable that names another binary to count.
const BINARY: &str = "CHRONOS_INSTRUCTIONS_OF";

/// The binary that is counted.
pub fn binary() -> PathBuf {
    let built = || PathBuf::from(env!("CARGO_BIN_EXE_chronos"));
    std::env::var_os(BINARY).map_or_else(built, PathBuf::from)
}

/// The beginning of a command line that counts the binary and writes the counts into this folder.
fn under_callgrind(folder: &Path) -> Command {
    let mut line = command("valgrind");
    line.args(["--tool=callgrind", "--quiet"])
        .args(["--vgdb=no", "--separate-threads=yes"])
        .arg(format!("--dump-before={WRITES_AT}"))
        .arg(format!("--callgrind-out-file={}", folder.join("counts").display()));
    if WITH_CACHES.get().is_some() {
        line.args(["--cache-sim=yes", "--branch-sim=yes"]);
    }
    line.arg(binary());
    line
}

/// A running node. Dropping the value kills it.
pub struct Node {
    pub address: SocketAddr,
    process: Child,
    folder: TempDir,
}

impl Drop for Node {
    fn drop(&mut self) {
        // An error means that the process has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Node {
    /// Starts a node of one shard with these further arguments at a free port, under callgrind.
    /// Waits until it listens.
    pub fn start(arguments: &[&str]) -> Node {
        let address = SocketAddr::new(LOCALHOST, free_port(&[LOCALHOST]));
        Node::start_at(address, true, arguments, &[])
    }

    /// Starts a node of one shard at this address, with these further arguments and variables:
    /// under callgrind if it is counted. Waits until it listens.
    pub fn start_at(
        address: SocketAddr,
        is_counted: bool,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Node {
        let folder = tempfile::tempdir().expect("room for files");
        let mut line = if is_counted { under_callgrind(folder.path()) } else { command(binary()) };
        line.args(arguments).args(["--listen", &address.to_string(), "--no-pin", "--shards", "1"]);
        line.env_remove(BINARY).args(["--log-level", "warn"]).envs(variables.iter().copied());
        // Memory that comes ahead comes when the machine has time, which differs from run to run.
        line.env("CHRONOS_NODE_MEMORY_AHEAD_BYTES", "0").current_dir(folder.path());
        // Valgrind is slow, so that turns go over their budget, and each step of a turn is timed.
        line.env("CHRONOS_LIMITS_TURN_BUDGET_US", "1000000");
        let log = std::fs::File::create(folder.path().join("log")).expect("room for a file");
        line.stdin(Stdio::null()).stdout(log.try_clone().expect("a second handle")).stderr(log);
        let process = line.spawn_tied().expect("setpriv of util-linux starts processes");
        let mut node = Node { address, process, folder };
        until("a node to listen", PATIENCE, || {
            if let Some(status) = node.process.try_wait().expect("a child can be asked for") {
                panic!("the node ended with {status}: {}", node.log());
            }
            TcpStream::connect(address).ok()
        });
        node
    }

    /// A command of the same binary.
    pub fn command() -> Command {
        let mut line = command(binary());
        line.env_remove(BINARY);
        line
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("it was made")
    }

    /// Waits until the node serves timers.
    pub fn serving(self) -> Node {
        until("a node to serve", PATIENCE, || {
            request(self.address, "GET", "/ping", "").ok().filter(|answer| answer.status == 200)
        });
        self
    }

    /// Counts what the node's core computes while `work` is done.
    pub fn count(&self, work: impl FnOnce()) -> Counts {
        self.write_counts();
        let before = self.written().len();
        work();
        self.write_counts();
        let written = self.written();
        assert!(written.len() > before && before > 0, "callgrind has written counts twice");
        written[before..].iter().fold(Counts::default(), |sum, counts| sum + *counts)
    }

    /// Has callgrind write what was counted since it did so last. A request that asks for the end
    /// of its connection makes the node call [`WRITES_AT`], and the end is seen afterwards. (An
    /// order by `callgrind_control` would need a poor guess: a program under valgrind takes it
    /// between two steps, and a core that waits for its ring takes none.)
    fn write_counts(&self) {
        let mut stream = TcpStream::connect(self.address).expect("the node listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes the option");
        let asked = b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(asked).expect("the node reads");
        stream.read_to_end(&mut Vec::new()).expect("the node ends the connection");
    }

    /// What callgrind has written, the oldest first. It writes the counts of the thread that called
    /// the function, which is the core: other threads work as time passes.
    fn written(&self) -> Vec<Counts> {
        let of_thread = |time: usize, thread: usize| {
            let file = self.folder.path().join(format!("counts.{time}-{thread:02}"));
            std::fs::read_to_string(file).ok()
        };
        let text = |time| (1..=THREADS_MAX).find_map(|thread| of_thread(time, thread));
        (1..).map_while(text).map(|text| Counts::read(&text)).collect()
    }
}

/// A connection that sends requests in batches, each batch with one send, and waits for all answers.
pub struct Client {
    stream: TcpStream,
    answers: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the node listens");
        stream.set_nodelay(true).expect("a socket takes the option");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes the option");
        Client { stream, answers: Vec::new() }
    }

    /// Sends a batch and returns the answers when `is_whole` has found them all.
    pub fn exchange(&mut self, batch: &[u8], is_whole: impl Fn(&[u8]) -> bool) -> &[u8] {
        self.stream.write_all(batch).expect("the node reads");
        self.answers.clear();
        while !is_whole(&self.answers) {
            let mut piece = [0; 65_536];
            let read = self.stream.read(&mut piece).expect("the node answers");
            assert!(read > 0, "the node closed the connection: {:?}", self.answers);
            self.answers.extend_from_slice(&piece[..read]);
        }
        &self.answers
    }
}

/// The address of a node that is alone.
pub const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
