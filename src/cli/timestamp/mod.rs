//! `chronos timestamp`: everything about strictly increasing timestamps, except serving them beside
//! timers.

mod bench;
mod client;
mod directory;
mod get;
mod init;
mod serve;
mod servers;
mod source;
mod time;
mod translate;
mod watch;

use clap::{Args, Subcommand};

use self::bench::BenchFlags;
use self::get::GetFlags;
use self::init::InitFlags;
use self::serve::ServeFlags;
use self::servers::ServersFlags;
use self::translate::TranslateFlags;
use self::watch::WatchFlags;

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

/// Strictly increasing timestamps: serve, take, watch, translate and measure them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TimestampFlags {
    #[command(subcommand)]
    command: TimestampCommand,
}

/// The commands of `chronos timestamp`.
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

impl TimestampFlags {
    /// Whether the command is a server, which answers to signals as a node does.
    pub(super) fn serves(&self) -> bool {
        matches!(self.command, TimestampCommand::Serve(_))
    }
}

/// Runs one of the commands; returns the exit code.
pub(super) fn run(flags: &TimestampFlags) -> u8 {
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
