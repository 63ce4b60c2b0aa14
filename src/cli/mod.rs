//! The command line of the one binary: subcommands, exit codes, and nothing else. What a command
//! does lives in `control` (`serve`) or in a folder of its own here (`demo`).

mod cluster;
mod demo;
mod flags;
mod timestamp;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::control::config::files::{ConfigFiles, IniFiles, LOCAL_FILE};
use crate::control::config::load::{Loaded, Origin, Problem};
use crate::control::config::text::{print_effective, print_reference};
use crate::control::launch::{self, Launch, LaunchError};
use flags::{Command, Flags};

/// An orderly end.
pub const EXIT_OK: u8 = 0;
/// The command was understood and failed: a port in use, a kernel without io_uring, a core that
/// failed, missing pops.
pub const EXIT_FAILURE: u8 = 1;
/// The command line or the configuration is wrong; nothing was started. The argument parser uses
/// the same code.
pub const EXIT_USAGE: u8 = 2;

/// Runs the command line of this process to its end.
pub fn run() -> ExitCode {
    let flags = Flags::parse();
    ExitCode::from(match &flags.command {
        Some(Command::Demo) => demo::run(),
        Some(Command::Cluster(flags)) => cluster::run(flags),
        Some(Command::Timestamp(flags)) => timestamp::run(flags),
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

/// Runs a node to its end.
fn launch_node(launch: &Launch, files: ConfigFiles, loaded: Loaded) -> u8 {
    match launch::launch(launch, files, loaded) {
        Ok(()) => EXIT_OK,
        Err(LaunchError::Told) => EXIT_FAILURE,
        Err(error) => fail(&error, EXIT_FAILURE),
    }
}

/// Collects file, environment and flags without judging them.
fn files_of(flags: &Flags) -> Result<ConfigFiles, Problem> {
    let environment = environment()?;
    // A machine that has the files of the original service and no other is one of its deployment.
    let is_found = || flags.config.is_none() && Path::new(LOCAL_FILE).exists();
    let ini = flags.ini_files().or_else(|| is_found().then(IniFiles::default));
    Ok(ConfigFiles::new(flags.config.as_deref(), ini.as_ref(), environment, flags.settings()))
}

/// The variables that are ours.
fn environment() -> Result<Vec<(String, String)>, Problem> {
    let mut environment = Vec::new();
    for (name, value) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CHRONOS_") {
            environment.push((name.clone(), value.into_string().map_err(|_| not_utf8(name))?));
        }
    }
    Ok(environment)
}

fn not_utf8(variable: String) -> Problem {
    Problem::Value {
        key: "value of a variable".into(),
        origin: Origin::Environment(variable),
        expected: "UTF-8 text".into(),
        found: "other bytes".into(),
    }
}

/// Writes a document to standard output. A reader that has gone (`| head`) is no failure of ours.
fn print(text: &str) -> u8 {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => fail(&error, EXIT_FAILURE),
        _ => EXIT_OK,
    }
}

/// Tells an error on standard error, every line marked as one.
fn fail(error: &dyn std::error::Error, code: u8) -> u8 {
    for line in error.to_string().lines() {
        tell(&format!("error: {line}"));
    }
    code
}

/// A line on standard error; where nobody can read it there is nothing left to do.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
