//! `chronos timestamp`: what the binary does with strictly increasing timestamps besides serving
//! them beside timers. Holds what the tools share: where the servers are, the runtime, and how a
//! command ends.

mod bench;
mod client;
mod directory;
mod get;
mod init;
mod serve;
mod servers;
mod time;
mod translate;
mod watch;

use std::fmt::Display;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};

use self::bench::BenchFlags;
use self::directory::wrong_cluster;
use self::get::GetFlags;
use self::init::InitFlags;
use self::serve::ServeFlags;
use self::servers::ServersFlags;
use self::translate::TranslateFlags;
use self::watch::WatchFlags;
use crate::cli::{EXIT_FAILURE, EXIT_USAGE, tell};

/// Where a server listens, and `ZooKeeper`, unless said otherwise.
const SERVER: &str = "127.0.0.1:7911";
/// The original's default.
const CLUSTER: &str = "default-cluster";

const EXAMPLES: &str = "\
Examples:
  chronos timestamp init --file /var/lib/chronos/timestamp
  chronos timestamp serve --file /var/lib/chronos/timestamp
                                                    one server: Thrift on 127.0.0.1:7911
  chronos timestamp serve --coordination zookeeper --listen 10.0.0.1:7911 \\
      --zookeeper-quorum zk1:2181,zk2:2181,zk3:2181
                                                    one of several; ZooKeeper makes one the master
  chronos timestamp serve --config chronos.toml     keys of [timestamp], as in
                                                    tuning/reference.toml

  chronos timestamp get                             one timestamp, from 127.0.0.1:7911
  chronos timestamp get -n 100 -H --zookeeper 10.0.0.1:2181
                                                    a hundred, from the master of a cluster
  chronos timestamp servers --zookeeper 10.0.0.1:2181
  chronos timestamp watch --zookeeper 10.0.0.1:2181
  chronos timestamp translate 470601292516425728    what time a timestamp tells
  chronos timestamp bench --connections 50          calls per second, latency, order of all values

The tools work with servers of the original (Xiaomi chronos) as well. Each command has examples of
its own: chronos timestamp get --help

Exit codes:
    0  done, or stopped in order
    1  failed, and why is said
    2  wrong command line or configuration; nothing was started";

/// Strictly increasing timestamps: serve them, take them, watch who serves them, translate, measure
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TimestampFlags {
    #[command(subcommand)]
    command: TimestampCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum TimestampCommand {
    Serve(Box<ServeFlags>),
    Init(InitFlags),
    Get(GetFlags),
    Servers(ServersFlags),
    Watch(WatchFlags),
    Translate(TranslateFlags),
    Bench(BenchFlags),
}

/// Who is asked for timestamps.
#[derive(Debug, Args)]
pub(crate) struct PlaceFlags {
    /// A server [default: 127.0.0.1:7911]
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "zookeeper")]
    server: Option<String>,

    /// The master of a cluster, as ZooKeeper tells it there
    #[arg(long, value_name = "HOST:PORT,...")]
    zookeeper: Option<String>,

    /// The cluster's name [default: default-cluster]
    #[arg(long, value_name = "NAME", requires = "zookeeper")]
    cluster: Option<String>,
}

/// A cluster as `ZooKeeper` knows it.
#[derive(Debug, Args)]
pub(crate) struct ClusterFlags {
    /// ZooKeeper
    #[arg(long, value_name = "HOST:PORT,...", default_value = "127.0.0.1:2181")]
    pub zookeeper: String,

    /// The cluster's name
    #[arg(long, value_name = "NAME", default_value = CLUSTER)]
    pub cluster: String,
}

/// Who is asked for timestamps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// One server.
    Server(Arc<str>),
    /// Whoever is master.
    Cluster {
        /// `host:port,host:port`.
        quorum: String,
        /// The cluster's name.
        cluster: String,
    },
}

impl PlaceFlags {
    /// `Err`: what is wrong with the command line.
    pub fn place(&self) -> Result<Place, String> {
        let Some(quorum) = &self.zookeeper else {
            let server = self.server.as_deref().unwrap_or(SERVER);
            let is_address = server.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
            });
            return match is_address {
                true => Ok(Place::Server(server.into())),
                false => Err(format!("--server `{server}`: expected host:port such as {SERVER}")),
            };
        };
        let cluster = self.cluster.as_deref().unwrap_or(CLUSTER);
        let place = Place::Cluster { quorum: quorum.clone(), cluster: cluster.to_owned() };
        wrong_cluster(cluster).map_or(Ok(place), Err)
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Server(address) => write!(f, "{address}"),
            Place::Cluster { quorum, cluster } => {
                write!(f, "the master of {cluster} (ZooKeeper {quorum})")
            }
        }
    }
}

/// Runs one of the commands; returns the exit code.
pub fn run(flags: &TimestampFlags) -> u8 {
    match &flags.command {
        TimestampCommand::Serve(flags) => serve::run(flags),
        TimestampCommand::Init(flags) => init::run(flags),
        TimestampCommand::Get(flags) => get::run(flags),
        TimestampCommand::Servers(flags) => servers::run(flags),
        TimestampCommand::Watch(flags) => watch::run(flags),
        TimestampCommand::Translate(flags) => translate::run(flags),
        TimestampCommand::Bench(flags) => bench::run(flags),
    }
}

/// Runs `work` on a runtime of this thread.
pub(crate) fn on_runtime(work: impl Future<Output = u8>) -> u8 {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => failed(&format!("the runtime does not start: {error}")),
    }
}

/// Tells why a command failed.
pub(crate) fn failed(reason: &dyn Display) -> u8 {
    for line in reason.to_string().lines() {
        tell(&format!("error: {line}"));
    }
    EXIT_FAILURE
}

/// Tells what is wrong with the command line.
pub(crate) fn wrong(reason: &dyn Display) -> u8 {
    failed(reason);
    EXIT_USAGE
}

/// Milliseconds since 1970 by the wall clock of this machine.
pub(crate) fn wall_ms() -> u64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
}
