//! What jobs print on standard output. A reader that has closed its end (`| head`) is no error; an
//! output that takes nothing (a full disk) is.

use std::io::{ErrorKind, Write};

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

/// Writes a line to standard error. A line that cannot be written is dropped.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
