//! What a command tells the person or the program that runs it: documents on standard output, lines
//! on standard error.

use std::fmt::Display;
use std::io::Write;

use super::exit::{EXIT_FAILURE, EXIT_OK};

/// Writes a document to standard output. A reader that has gone (`| head`) is no failure of ours.
pub(super) fn print(text: &str) -> u8 {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => fail(&error, EXIT_FAILURE),
        _ => EXIT_OK,
    }
}

/// Tells on standard error why a command fails, every line marked as an error; returns `code`.
pub(super) fn fail(reason: &dyn Display, code: u8) -> u8 {
    for line in reason.to_string().lines() {
        tell(&format!("error: {line}"));
    }
    code
}

/// A line on standard error; where nobody can read it there is nothing left to do.
pub(super) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
