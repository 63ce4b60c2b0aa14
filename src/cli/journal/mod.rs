//! `chronos journal`: looks into the data directory of a node that does not run, and repairs it.
//! This file has the flags of the four commands; each has its own file.

mod check;
mod dump;
mod ledger;
mod place;
mod repair;
mod stats;
mod survey;

use clap::{Args, Subcommand};

use self::dump::DumpFlags;
use self::place::Place;
use self::repair::RepairFlags;
use crate::cli::exit::EXIT_USAGE;
use crate::cli::progress::silence;
use crate::cli::shown::json_text;
use crate::cli::terminal::{fail, failure, print};

const EXAMPLES: &str = "\
Examples:
  chronos journal check --data-dir /var/lib/chronos     is all there, and can it be read?
  chronos journal stats --data-dir /var/lib/chronos     timers, bytes, how much of them is live
  chronos journal dump --data-dir /var/lib/chronos --id 687ebc01f9400001
                                                        all that was written of one timer
  chronos journal dump --data-dir /var/lib/chronos --json | jq 'select(.kind == \"timer\")'
  chronos journal repair --data-dir /var/lib/chronos    what a repair would do
  chronos journal repair --data-dir /var/lib/chronos --yes

The node must not run: a running node tells of its journal at /status and /metrics. A node that is
killed, or whose machine loses power, leaves a torn write behind. That is no damage: nobody was
told that the write was done.

Damage is told at the start of a node as well. In a cluster the other replicas give back what they
hold, and nothing is to be done. A node without a cluster runs on with what can be read.

Exit codes:
    0  all can be read, or what was asked is done
    1  something is damaged, missing, or of another journal
    2  wrong command line, or the directory cannot be read: in use, no rights, a newer format";

/// Check, measure, print and repair what a stopped node keeps on its disk
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct JournalFlags {
    #[command(subcommand)]
    command: JournalCommand,
}

/// The commands of `chronos journal`.
#[derive(Debug, Subcommand)]
enum JournalCommand {
    /// Read everything and tell what is torn, damaged, missing or foreign
    Check(Place),
    /// Tell how many timers and bytes there are, and how many of them are live
    Stats(Place),
    Dump(DumpFlags),
    Repair(RepairFlags),
}

impl JournalCommand {
    fn place(&self) -> &Place {
        match self {
            JournalCommand::Check(place) | JournalCommand::Stats(place) => place,
            JournalCommand::Dump(flags) => &flags.place,
            JournalCommand::Repair(flags) => &flags.place,
        }
    }
}

/// Runs one of the commands; returns the exit code.
pub(super) fn run(flags: &JournalFlags) -> u8 {
    let place = flags.command.place();
    if place.json {
        silence();
    }
    let result = match &flags.command {
        JournalCommand::Check(place) => check::run(place),
        JournalCommand::Stats(place) => stats::run(place),
        JournalCommand::Dump(flags) => dump::run(flags),
        JournalCommand::Repair(flags) => repair::run(flags),
    };
    result.unwrap_or_else(|error| {
        if place.json {
            let document = failure(&error, None);
            match &flags.command {
                // A line for each document, as all that it prints.
                JournalCommand::Dump(_) => print(&format!("{document}\n")),
                _ => print(&json_text(&document)),
            };
        }
        fail(&error, EXIT_USAGE)
    })
}
