//! The command line of the binary: subcommands and exit codes. What a command does stands in
//! `control` (serving timers) or in the command's own folder here (`demo`).

#![warn(unreachable_pub)]

mod admin_client;
mod backup;
mod cluster;
mod demo;
mod exit;
mod flags;
mod journal;
mod key_flags;
pub mod manual;
mod node;
mod runtime;
mod terminal;
mod timestamp;
mod token;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use self::exit::EXIT_USAGE;
use self::flags::{Flags, Tool};
use self::node::{environment, launch_node};
use self::terminal::{fail, print, tell};
use crate::control::config::error::Problem;
use crate::control::config::files::{ConfigFiles, IniFiles, LOCAL_FILE};
use crate::control::config::text::{print_effective, print_reference};

/// Runs the command line of this process to its end and returns the exit code.
pub fn run() -> ExitCode {
    let flags = Flags::parse();
    ExitCode::from(match &flags.command {
        Some(Tool::Demo) => demo::run(),
        Some(Tool::Backup(flags)) => backup::run(flags),
        Some(Tool::Cluster(flags)) => cluster::run(flags),
        Some(Tool::Journal(flags)) => journal::run(flags),
        Some(Tool::Timestamp(flags)) => timestamp::run(flags),
        Some(Tool::Token(flags)) => token::run(flags),
        Some(Tool::Completions(flags)) => flags.run(Flags::command()),
        Some(Tool::Man(flags)) => flags.run(Flags::command()),
        None => run_node(&flags),
    })
}

fn run_node(flags: &Flags) -> u8 {
    if flags.print_reference_config {
        return print(&print_reference());
    }
    let mut files = match files_of(flags) {
        Ok(files) => files,
        Err(problem) => return fail(&problem, EXIT_USAGE),
    };
    let loaded = match files.load() {
        Ok(loaded) => loaded,
        Err(error) => return fail(&error, EXIT_USAGE),
    };
    if flags.check_config || flags.print_config {
        for warning in &loaded.warnings {
            tell(&format!("warning: {warning}"));
        }
        if flags.print_config {
            return print(&print_effective(&loaded.config));
        }
        return print(&format!("configuration ok ({})\n", files.names()));
    }
    launch_node(&flags.launch(), files, loaded)
}

/// Collects file, environment and flags without checking them.
fn files_of(flags: &Flags) -> Result<ConfigFiles, Problem> {
    let environment = environment()?;
    // A machine that has the original service's files, and no file named by --config, is a
    // deployment of the original.
    let is_found = || flags.config.is_none() && Path::new(LOCAL_FILE).exists();
    let ini = flags.ini_files().or_else(|| is_found().then(IniFiles::default));
    Ok(ConfigFiles::new(flags.config.as_deref(), ini.as_ref(), environment, flags.settings()))
}
