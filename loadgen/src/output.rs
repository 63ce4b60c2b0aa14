//! What jobs print on standard output. A reader that has closed its end (`| head`) is no error; an
//! output that takes nothing (a full disk) is.

use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Serialize;

/// Prints a report: one JSON document, or text.
pub fn show<R: Serialize>(is_json: bool, report: &R, text: impl FnOnce() -> String) -> Result<()> {
    let shown = match is_json {
        true => format!("{}\n", serde_json::to_string_pretty(report)?),
        false => text(),
    };
    print(&shown).map(|_| ())
}

/// Prints a text. Returns whether somebody still reads.
pub fn print(text: &str) -> Result<bool> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.context("cannot write to standard output").map(|()| true),
    }
}

/// Prints help or the version.
pub fn help(asked: &clap::Error) -> ExitCode {
    let text = asked.render();
    let no_colours = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_coloured = std::io::stdout().is_terminal() && !no_colours;
    let text = if is_coloured { text.ansi().to_string() } else { text.to_string() };
    match print(&text) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("chronos-loadgen: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes a line to standard error. A line that cannot be written is dropped.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
