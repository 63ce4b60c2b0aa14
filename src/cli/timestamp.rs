//! `chronos timestamp`: what the binary does with strictly increasing timestamps besides serving
//! them beside timers.

use clap::{Args, Subcommand};

use super::timestamp_init::{self, InitFlags};
use super::timestamp_serve::{self, ServeFlags};

const EXAMPLES: &str = "\
Examples:
  chronos timestamp init --file /var/lib/chronos/timestamp
  chronos timestamp serve --file /var/lib/chronos/timestamp
                                             one server: Thrift on 127.0.0.1:7911
  chronos timestamp serve --coordination zookeeper --listen 10.0.0.1:7911 \\
      --zookeeper-quorum zk1:2181,zk2:2181,zk3:2181
                                             one of several; ZooKeeper makes one the master
  chronos timestamp serve --config chronos.toml
                                             keys of [timestamp], as in tuning/reference.toml

Exit codes:
    0  done, or stopped in order
    1  failed, and why is said
    2  wrong command line or configuration; nothing was started";

/// Serve strictly increasing timestamps, and make the file that keeps their bound
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TimestampFlags {
    #[command(subcommand)]
    command: TimestampCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum TimestampCommand {
    Serve(ServeFlags),
    Init(InitFlags),
}

/// Runs one of the commands; returns the exit code.
pub fn run(flags: &TimestampFlags) -> u8 {
    match &flags.command {
        TimestampCommand::Serve(flags) => timestamp_serve::run(flags),
        TimestampCommand::Init(flags) => timestamp_init::run(flags),
    }
}
