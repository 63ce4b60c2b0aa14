//! The flags of every command. One set serves all scenarios.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::against::peers::Peer;
use crate::arrival::Rate;
use crate::sink::SinkMode;

/// Where the node listens by default.
pub const TARGET: &str = "127.0.0.1:7253";

/// Flags of every scenario. `Scenario::defaults` gives the defaults that differ by scenario.
#[derive(Args, Clone, Debug)]
pub struct ScenarioFlags {
    /// The node: address and port
    #[arg(long, value_name = "ADDRESS", default_value = TARGET, help_heading = "Load")]
    pub target: SocketAddr,
    /// Requests per second over all connections (2000, 20k, 1.5M), or `max`: as fast as answers
    /// come
    #[arg(long, value_name = "RATE", help_heading = "Load")]
    pub rate: Rate,
    /// Gather requests in bursts so many microseconds apart: spares the load generator's own core
    #[arg(long, value_name = "US", value_parser = count(0, 1_000_000), help_heading = "Load")]
    pub burst_us: u32,
    /// Connections
    #[arg(long, value_name = "N", value_parser = count(1, 60_000), help_heading = "Load")]
    pub connections: u32,
    /// Requests in flight on each connection
    #[arg(long, value_name = "N", value_parser = count(1, 4096), help_heading = "Load")]
    pub pipeline: u32,
    /// Draw the gaps between requests at random (Poisson) in place of equal ones
    #[arg(long, help_heading = "Load")]
    pub poisson: bool,
    /// Seed of everything drawn at random
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub seed: u64,
    /// Seconds of load before the measured time
    #[arg(long, value_name = "S", value_parser = seconds, help_heading = "Load")]
    pub warm_up_s: Duration,
    /// Measured seconds
    #[arg(long, value_name = "S", value_parser = seconds, help_heading = "Load")]
    pub duration_s: Duration,
    /// Seconds to wait for answers and pops still owed at the end
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "5",
        help_heading = "Load")]
    pub drain_s: Duration,
    /// Milliseconds after which a request counts as unanswered
    #[arg(long, value_name = "MS", value_parser = count(1, 3_600_000), default_value = "5000",
        help_heading = "Load")]
    pub timeout_ms: u32,
    /// Core for the client's thread
    #[arg(long, value_name = "CORE", help_heading = "Load")]
    pub core: Option<usize>,
    /// Process whose CPU time and memory are measured: the node's, as `pidof chronos` tells it
    #[arg(long, value_name = "PID", help_heading = "Load")]
    pub server_pid: Option<u32>,
    /// Timers: to create, or to keep alive (churn, ralf)
    #[arg(long, value_name = "N", value_parser = count(1, 1_000_000_000), help_heading = "Timers")]
    pub timers: u32,
    /// Milliseconds to the first pop and between pops
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000),
        help_heading = "Timers")]
    pub interval_ms: u64,
    /// Pops of each timer
    #[arg(long, value_name = "N", value_parser = count(1, 1_000_000), default_value = "1",
        help_heading = "Timers")]
    pub pops_each: u32,
    /// Bytes of the opaque body
    #[arg(long, value_name = "BYTES", value_parser = count(0, 60_000), default_value = "40",
        help_heading = "Timers")]
    pub opaque_bytes: u32,
    /// Headers of the callback, of 60 bytes each, the same in all timers
    #[arg(long, value_name = "N", value_parser = count(0, 32), default_value = "0",
        help_heading = "Timers")]
    pub headers: u32,
    /// Replicas of each timer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16),
        default_value = "1", help_heading = "Timers")]
    pub replication_factor: u8,
    /// Refreshes of each session on average (churn: of each exactly)
    #[arg(long, value_name = "N", value_parser = count(0, 10_000), help_heading = "Timers")]
    pub refreshes: u32,
    /// Milliseconds to create the timers in before they come due; 0: 3 s and 10 us for each
    #[arg(long, value_name = "MS", value_parser = count(0, 3_600_000), default_value = "0",
        help_heading = "Timers")]
    pub lead_ms: u32,
    /// Milliseconds over which the due times are spread
    #[arg(long, value_name = "MS", value_parser = count(0, 3_600_000), help_heading = "Timers")]
    pub spread_ms: u32,
    /// The token that requests show, where the node wants one. Other users of the machine see the
    /// flag, and not the variable
    #[arg(
        long,
        value_name = "TOKEN",
        env = "CHRONOS_TOKEN",
        hide_env_values = true,
        help_heading = "Load"
    )]
    pub token: Option<String>,
    /// At the end delete the timers that are left: all whose callbacks go where those of this run
    /// went
    #[arg(long, help_heading = "Timers")]
    pub delete: bool,
    /// The node's admin API, for --delete [default: with --token the node itself, otherwise port
    /// 7254 of its address]
    #[arg(long, value_name = "ADDRESS", help_heading = "Timers")]
    pub admin: Option<SocketAddr>,
    #[command(flatten)]
    pub sink: SinkFlags,
    /// Print JSON in place of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Write a page with the histograms to this file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Failed requests do not fail the run (for overload tests)
    #[arg(long, help_heading = "Output")]
    pub allow_errors: bool,
}

/// Flags of the callback sink.
#[derive(Args, Clone, Debug)]
pub struct SinkFlags {
    /// Where the callback sink listens; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", help_heading = "Sink")]
    pub sink_listen: SocketAddr,
    /// Core for the sink's thread
    #[arg(long, value_name = "CORE", help_heading = "Sink")]
    pub sink_core: Option<usize>,
    /// How callbacks are answered: ok, hang, slow:MS, status:CODE, close
    #[arg(long, value_name = "MODE", default_value = "ok", help_heading = "Sink")]
    pub sink_mode: SinkMode,
}

/// Flags of the reference.
#[derive(Args, Clone, Debug)]
pub struct ReferenceFlags {
    /// Answer every request here with the same 200
    #[arg(long, value_name = "ADDRESS", required_unless_present = "call_back")]
    pub listen: Option<SocketAddr>,
    /// In place of that, send callbacks to this sink, one in flight on each connection
    #[arg(long, value_name = "ADDRESS", conflicts_with = "listen")]
    pub call_back: Option<SocketAddr>,
    /// Connections of --call-back
    #[arg(long, value_name = "N", value_parser = count(1, 10_000), default_value = "64")]
    pub connections: u32,
    /// Core for its thread
    #[arg(long, value_name = "CORE")]
    pub core: Option<usize>,
    /// End when standard input ends, so that it cannot outlive who started it
    #[arg(long)]
    pub until_stdin_ends: bool,
}

/// Flags of the comparison.
#[derive(Args, Clone, Debug)]
pub struct RatioFlags {
    /// What is compared: answers to POST, or callbacks sent
    #[arg(long, default_value = "post", value_parser = ["post", "pops"])]
    pub scenario: String,
    /// Rounds; each runs the node and the reference once
    #[arg(long, value_name = "N", value_parser = count(1, 1000), default_value = "5")]
    pub rounds: u32,
    /// Connections
    #[arg(long, value_name = "N", value_parser = count(1, 60_000), default_value = "64")]
    pub connections: u32,
    /// Requests in flight on each connection; several depths are measured one after the other
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = count(1, 4096),
        default_value = "1")]
    pub pipeline: Vec<u32>,
    /// Measured seconds of each run (post)
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "4")]
    pub duration_s: Duration,
    /// Seconds of load before the measured time (post)
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "1")]
    pub warm_up_s: Duration,
    /// Timers that come due in each run (pops)
    #[arg(long, value_name = "N", value_parser = count(1, 100_000_000), default_value = "500000")]
    pub timers: u32,
    /// Core for the node and for the reference
    #[arg(long, value_name = "CORE", default_value = "0")]
    pub server_core: usize,
    /// Core for the client and the sink [default: 1, or the server's where there is only one]
    #[arg(long, value_name = "CORE")]
    pub core: Option<usize>,
    /// The node's binary [default: `chronos` beside this program]
    #[arg(long, value_name = "FILE")]
    pub node_binary: Option<PathBuf>,
    /// Memory that the node takes and touches before it is measured (its node.prefault_bytes), so
    /// that page faults of fresh memory, which the reference never has, are not measured with it
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub prefault_bytes: u64,
    /// Print JSON in place of text
    #[arg(long)]
    pub json: bool,
}

/// Flags of the comparison with other servers.
#[derive(Args, Clone, Debug)]
pub struct AgainstFlags {
    /// The servers beside this one; those that are not installed are left out
    #[arg(
        value_name = "SERVER,SERVER",
        value_delimiter = ',',
        value_enum,
        default_value = "ring,nginx,beanstalkd,redis"
    )]
    pub servers: Vec<Peer>,
    /// Rounds; each runs every server once, with fresh processes
    #[arg(long, value_name = "N", value_parser = count(1, 1000), default_value = "5")]
    pub rounds: u32,
    /// Connections; several numbers are measured one after the other
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = count(1, 20_000),
        default_value = "1,8,64")]
    pub connections: Vec<u32>,
    /// Requests in flight on each connection; several depths are measured one after the other
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = count(1, 4096),
        default_value = "1")]
    pub pipeline: Vec<u32>,
    /// Measured seconds of each run
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "4")]
    pub duration_s: Duration,
    /// Seconds of load before the measured time
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "1")]
    pub warm_up_s: Duration,
    /// Core for the servers
    #[arg(long, value_name = "CORE", default_value = "0")]
    pub server_core: usize,
    /// Core for the client [default: 1, or the server's where there is only one]
    #[arg(long, value_name = "CORE")]
    pub core: Option<usize>,
    /// The node's binary [default: `chronos` beside this program]
    #[arg(long, value_name = "FILE")]
    pub node_binary: Option<PathBuf>,
    /// Memory that the node takes and touches at its start (its node.prefault_bytes). 0: as a node
    /// does by default
    #[arg(long, value_name = "BYTES", default_value = "0")]
    pub prefault_bytes: u64,
    /// Measure servers that speak TLS over TLS 1.3 as well, with certificates made for the run
    #[arg(long)]
    pub tls: bool,
    /// Print JSON in place of text
    #[arg(long)]
    pub json: bool,
}

/// Flags of the comparison of lines with requests.
#[derive(Args, Clone, Debug)]
pub struct BulkFlags {
    /// Rounds; each runs both ways once
    #[arg(long, value_name = "N", value_parser = count(1, 1000), default_value = "5")]
    pub rounds: u32,
    /// Timers of each run
    #[arg(long, value_name = "N", value_parser = count(1_000, 40_000_000),
        default_value = "3000000")]
    pub timers: u32,
    /// Connections
    #[arg(long, value_name = "N", value_parser = count(1, 64), default_value = "1")]
    pub connections: u32,
    /// Core for the node
    #[arg(long, value_name = "CORE", default_value = "0")]
    pub server_core: usize,
    /// Core for the client [default: 1, or the server's where there is only one]
    #[arg(long, value_name = "CORE")]
    pub core: Option<usize>,
    /// The node's binary [default: `chronos` beside this program]
    #[arg(long, value_name = "FILE")]
    pub node_binary: Option<PathBuf>,
    /// Memory that the node takes and touches before it is measured (its node.prefault_bytes)
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub prefault_bytes: u64,
    /// Print JSON in place of text
    #[arg(long)]
    pub json: bool,
}

/// Flags of lists beside pops.
#[derive(Args, Clone, Debug)]
pub struct ListFlags {
    /// Timers that the list has, beside those that pop
    #[arg(long, value_name = "N", value_parser = count(1, 40_000_000), default_value = "1000000")]
    pub timers: u32,
    /// Timers on a page
    #[arg(long, value_name = "N", value_parser = count(1, 1_000), default_value = "1000")]
    pub limit: u32,
    /// Connections that list, each all timers again and again
    #[arg(long, value_name = "N", value_parser = count(1, 64), default_value = "1")]
    pub connections: u32,
    /// Pops per second
    #[arg(long, value_name = "N", value_parser = count(1, 1_000_000), default_value = "5000")]
    pub pops: u32,
    /// Seconds of pops alone, and of pops beside lists
    #[arg(long, value_name = "S", value_parser = count(1, 3_600), default_value = "10")]
    pub duration_s: u32,
    /// Cores for the node
    #[arg(long, value_name = "CORES", default_value = "0")]
    pub server_cores: String,
    /// Core for the clients
    #[arg(long, value_name = "CORE", default_value = "1")]
    pub core: usize,
    /// The node's binary [default: `chronos` beside this program]
    #[arg(long, value_name = "FILE")]
    pub node_binary: Option<PathBuf>,
    /// Print JSON in place of text
    #[arg(long)]
    pub json: bool,
}

/// Flags of a herd of handshakes.
#[derive(Args, Clone, Debug)]
pub struct HandshakeFlags {
    /// Where the server listens for TLS
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7443")]
    pub target: SocketAddr,
    /// The authority of the server's certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub ca: PathBuf,
    /// Handshakes that begin at once
    #[arg(long, value_name = "N", value_parser = count(1, 60_000), default_value = "10000")]
    pub count: u32,
    /// Herds, one after the other
    #[arg(long, value_name = "N", value_parser = count(1, 1000), default_value = "1")]
    pub rounds: u32,
    /// Core of the client
    #[arg(long, value_name = "CORE")]
    pub core: Option<usize>,
    /// Print JSON in place of text
    #[arg(long)]
    pub json: bool,
}

/// Flags of the figures of a journal.
#[derive(Args, Clone, Debug)]
pub struct JournalFlags {
    /// Measure how long a start takes that reads the journal, in place of creates
    #[arg(long)]
    pub restart: bool,
    /// Timers to be read (with --restart)
    #[arg(long, value_name = "N", value_parser = count(1, 100_000_000), default_value = "1000000")]
    pub timers: u32,
    /// Also measure these with their logs on the same disk: beanstalkd, redis. Those that are not
    /// installed are left out
    #[arg(long, value_name = "SERVER,SERVER", value_delimiter = ',', value_enum)]
    pub against: Vec<Peer>,
    /// Rounds; each runs every server once, with fresh processes
    #[arg(long, value_name = "N", value_parser = count(1, 1000), default_value = "5")]
    pub rounds: u32,
    /// Connections
    #[arg(long, value_name = "N", value_parser = count(1, 20_000), default_value = "64")]
    pub connections: u32,
    /// Requests in flight on each connection; several depths are measured one after the other
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = count(1, 4096),
        default_value = "1,16")]
    pub pipeline: Vec<u32>,
    /// Measured seconds of each run
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "4")]
    pub duration_s: Duration,
    /// Seconds of load before the measured time
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "1")]
    pub warm_up_s: Duration,
    /// The folder whose disk is measured [default: that of temporary files]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Cores of the servers. Creates are measured on one
    #[arg(long, value_name = "CORES", default_value = "0")]
    pub server_cores: String,
    /// Core for the client [default: the last one]
    #[arg(long, value_name = "CORE")]
    pub core: Option<usize>,
    /// The node's binary [default: `chronos` beside this program]
    #[arg(long, value_name = "FILE")]
    pub node_binary: Option<PathBuf>,
    /// Memory that the node takes and touches before it is measured (its node.prefault_bytes)
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub prefault_bytes: u64,
    /// Print JSON in place of text
    #[arg(long)]
    pub json: bool,
}

/// Flags of the figures of a cluster.
#[derive(Args, Clone, Debug)]
pub struct ClusterFlags {
    /// What is measured: post, alone, bytes, lateness, kill, rebalance, restart [default: these],
    /// site-back, site-added, site-removed
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub measure: Vec<String>,
    /// Rounds; each measures everything once, with fresh processes
    #[arg(long, value_name = "N", value_parser = count(1, 1000), default_value = "3")]
    pub rounds: u32,
    /// Connections of the load
    #[arg(long, value_name = "N", value_parser = count(1, 60_000), default_value = "64")]
    pub connections: u32,
    /// Requests in flight on each connection
    #[arg(long, value_name = "N", value_parser = count(1, 4096), default_value = "1")]
    pub pipeline: u32,
    /// Measured seconds of each load
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "4")]
    pub duration_s: Duration,
    /// Seconds of load before the measured time
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "1")]
    pub warm_up_s: Duration,
    /// Pops a second when lateness is measured, and while a site is added or removed
    #[arg(long, value_name = "N", value_parser = count(1, 1_000_000), default_value = "5000")]
    pub pops_per_s: u32,
    /// Timers held when a node is killed
    #[arg(long, value_name = "N", value_parser = count(1, 10_000_000), default_value = "100000")]
    pub kill_timers: u32,
    /// Timers held when a node joins, or restarts empty
    #[arg(long, value_name = "N", value_parser = count(1, 10_000_000), default_value = "1000000")]
    pub rebalance_timers: u32,
    /// Timers created and popped a second meanwhile
    #[arg(long, value_name = "N", value_parser = count(1, 100_000), default_value = "1000")]
    pub rebalance_rate: u32,
    /// Timers held when a site goes away and comes back: some are deleted or replaced meanwhile
    #[arg(long, value_name = "N", value_parser = count(8, 10_000_000), default_value = "100000")]
    pub site_timers: u32,
    /// Seconds that a site is away; several are measured one after the other (site-back)
    #[arg(long, value_name = "S,S", value_delimiter = ',', value_parser = seconds,
        default_value = "5,15,60,300")]
    pub site_away_s: Vec<Duration>,
    /// Timers held when a site is added
    #[arg(long, value_name = "N", value_parser = count(1, 10_000_000), default_value = "1000000")]
    pub site_held_timers: u32,
    /// Mode of the nodes' journals when sites are measured
    #[arg(long, value_name = "MODE", value_parser = ["sync", "interval", "off"],
        default_value = "sync")]
    pub site_journal: String,
    /// Cores of every node
    #[arg(long, value_name = "CORES", default_value = "0,1")]
    pub cores: String,
    /// Core for client and sink [default: any]
    #[arg(long, value_name = "CORE")]
    pub core: Option<usize>,
    /// The node's binary [default: `chronos` beside this program]
    #[arg(long, value_name = "FILE")]
    pub node_binary: Option<PathBuf>,
    /// Print JSON in place of text
    #[arg(long)]
    pub json: bool,
}

/// What answers calls for timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Role {
    /// The node.
    Node,
    /// The ring alone: counts bytes and sends replies of a fixed form.
    Echo,
}

/// Flags of the load of timestamps.
#[derive(Args, Clone, Debug)]
pub struct TimestampFlags {
    /// A server that runs already [default: start the node and the bare ring in turn]
    #[arg(long, value_name = "ADDRESS")]
    pub target: Option<SocketAddr>,
    /// Process whose CPU time is measured (with --target)
    #[arg(long, value_name = "PID", requires = "target")]
    pub server_pid: Option<u32>,
    /// Connections
    #[arg(long, value_name = "N", value_parser = count(1, 20_000), default_value = "64")]
    pub connections: u32,
    /// Requests in flight on each connection
    #[arg(long, value_name = "N", value_parser = count(1, 4096), default_value = "1")]
    pub pipeline: u32,
    /// Timestamps asked for by each request
    #[arg(long, value_name = "N", value_parser = count(1, 262_144), default_value = "1")]
    pub range: u32,
    /// Rounds; without --target each runs the node and the bare ring once
    #[arg(long, value_name = "N", value_parser = count(1, 1000), default_value = "5")]
    pub rounds: u32,
    /// Measured seconds of each run
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "4")]
    pub duration_s: Duration,
    /// Seconds of load before the measured time
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "1")]
    pub warm_up_s: Duration,
    /// Core for the servers that are started
    #[arg(long, value_name = "CORE", default_value = "0")]
    pub server_core: usize,
    /// Core for the client [default: another one than the server's, where there is one]
    #[arg(long, value_name = "CORE")]
    pub core: Option<usize>,
    /// Print JSON in place of text
    #[arg(long)]
    pub json: bool,
    /// Put no load on anybody: be such a server, on --server-core, until standard input ends
    #[arg(long, value_name = "ROLE", requires = "listen", conflicts_with = "target")]
    pub serve: Option<Role>,
    /// Where it listens
    #[arg(long, value_name = "ADDRESS", requires = "serve")]
    pub listen: Option<SocketAddr>,
}

/// Parses a number from `low` to `high`, both included.
pub fn count(low: i64, high: i64) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(low..=high)
}

/// Parses seconds with decimals, at most a day, so that every run ends.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..=86_400.0).contains(&number) => Ok(Duration::from_secs_f64(number)),
        _ => Err(format!("expected seconds from 0 to 86400, found `{text}`")),
    }
}
