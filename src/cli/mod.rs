//! The command line of the binary: subcommands and exit codes. What a command does stands in
//! `control` (serving timers) or in the command's own folder here (`demo`).

#![warn(unreachable_pub)]

mod admin_client;
mod backup;
mod cluster;
mod config;
mod dead_letters;
mod demo;
mod destinations;
mod doctor;
mod ending;
mod exit;
mod flags;
mod help;
mod jobs;
mod journal;
mod key_flags;
mod lasting;
pub mod manual;
mod near;
mod node;
mod node_flags;
mod pages;
pub mod progress;
mod runtime;
mod service;
mod shown;
mod terminal;
mod timer;
mod timestamp;
mod token;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use self::config::Shown;
use self::exit::EXIT_USAGE;
use self::flags::{Flags, Tool};
use self::help::with_short_help;
use self::near::explained;
use self::node::{files_of, launch_node};
use self::terminal::{fail, is_coloured, print};
use crate::ring::let_signals_through;

/// Runs the command line of this process to its end and returns the exit code. Signals that a node
/// answers to are held ([`crate::ring::hold_signals`]) until it does.
pub fn run() -> ExitCode {
    let matches = match with_short_help(Flags::command()).try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            // Words that are no text are no command either.
            let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
            return ExitCode::from(told(&explained(error, &Flags::command(), words)));
        }
    };
    let flags = Flags::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if !flags.runs_a_node() {
        let_signals_through();
    }
    ExitCode::from(match &flags.command {
        Some(Tool::Demo) => demo::run(),
        Some(Tool::Backup(flags)) => backup::run(flags),
        Some(Tool::Cluster(flags)) => cluster::run(flags),
        Some(Tool::Config(flags)) => config::run(flags),
        Some(Tool::DeadLetters(flags)) => dead_letters::run(flags),
        Some(Tool::Destinations(flags)) => destinations::run(flags),
        Some(Tool::Doctor(flags)) => doctor::run(flags),
        Some(Tool::Jobs(flags)) => jobs::run(flags),
        Some(Tool::Journal(flags)) => journal::run(flags),
        Some(Tool::Site(flags)) => cluster::site::run(flags),
        Some(Tool::Timer(flags)) => timer::run(flags),
        Some(Tool::Timestamp(flags)) => timestamp::run(flags),
        Some(Tool::Token(flags)) => token::run(flags),
        Some(Tool::Top(flags)) => top::run(flags),
        Some(Tool::Completions(flags)) => flags.run(Flags::command()),
        Some(Tool::Man(flags)) => flags.run(Flags::command()),
        None => run_node(&flags),
    })
}

/// Prints help, the version, or what is wrong with the command line. Returns the exit code. The
/// parser's own way to do this does not see that help could not be written.
fn told(error: &clap::Error) -> u8 {
    if error.use_stderr() {
        // What cannot be written to standard error cannot be told of.
        let _ = error.print();
        return EXIT_USAGE;
    }
    let text = error.render();
    print(&if is_coloured() { text.ansi().to_string() } else { text.to_string() })
}

fn run_node(flags: &Flags) -> u8 {
    if flags.print_reference_config {
        return config::show(&flags.node, Shown::Reference, false);
    }
    if flags.check_config || flags.print_config {
        let shown = if flags.print_config { Shown::Effective } else { Shown::Check };
        return config::show(&flags.node, shown, false);
    }
    let mut files = match files_of(&flags.node) {
        Ok(files) => files,
        Err(problem) => return fail(&problem, EXIT_USAGE),
    };
    match files.load() {
        Ok(loaded) => launch_node(&flags.node.launch(), files, loaded),
        Err(error) => fail(&error, EXIT_USAGE),
    }
}
