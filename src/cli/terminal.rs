//! What a command writes to its user: documents on standard output, lines on standard error.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use serde_json::{Value, json};

use super::exit::{EXIT_FAILURE, EXIT_OK};
use super::shown::{clean, json_text};
use crate::control::log;

/// Writes a document to standard output and returns the exit code. A reader that has closed its end
/// (`| head`) is no error.
pub(super) fn print(text: &str) -> u8 {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => fail(&error, EXIT_FAILURE),
        _ => EXIT_OK,
    }
}

/// Writes to standard error why a command fails, with `error:` before every line, and with control
/// characters escaped: the reason may be a server's. Returns `code`.
pub(super) fn fail(reason: &dyn Display, code: u8) -> u8 {
    for line in reason.to_string().lines() {
        tell(&format!("error: {}", clean(line)));
    }
    code
}

/// The document of a failure. `status`: of the answer that refused, if there is one.
pub(super) fn failure(reason: &dyn Display, status: Option<u16>) -> Value {
    json!({ "error": reason.to_string(), "status": status })
}

/// Says why a command fails, with `--json` also as a document, and returns `code`.
pub(super) fn failed(is_json: bool, reason: &dyn Display, code: u8) -> u8 {
    failed_by(is_json, reason, None, code)
}

/// The same of a failure that may be an answer with a status.
pub(super) fn failed_by(is_json: bool, reason: &dyn Display, status: Option<u16>, code: u8) -> u8 {
    if is_json {
        print(&json_text(&failure(reason, status)));
    }
    fail(reason, code)
}

/// Writes a line to standard error. A line that cannot be written is dropped.
pub(super) fn tell(line: &str) {
    log::say(&format!("{line}\n"));
}

/// Whether standard output takes colours: it is a terminal, and `NO_COLOR` is not set.
pub(super) fn is_coloured() -> bool {
    let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    is_wanted && !is_plain() && std::io::stdout().is_terminal()
}

/// Whether the terminal, if there is one, can do nothing but write lines.
pub(super) fn is_plain() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term == "dumb")
}
