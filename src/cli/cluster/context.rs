//! What the commands on a cluster share: what the operator asked for, and how a command ends well.

use std::io::Write;
use std::time::Duration;

/// One command in the making.
pub(crate) struct Context {
    pub admin: Vec<String>,
    pub json: bool,
    pub timeout: Duration,
}

/// How a command ended well.
pub(crate) struct Success {
    /// One sentence.
    pub text: String,
    /// Whether anything had to be done.
    pub is_change: bool,
    /// Timers that were moved.
    pub moved: u64,
    /// The members at the end.
    pub members: Vec<String>,
}

impl Context {
    /// A line for whoever watches; none for programs.
    pub(super) fn say(&self, line: &str) {
        if !self.json {
            // Where nobody can read it, the command goes on all the same.
            let _ = writeln!(std::io::stderr().lock(), "{line}");
        }
    }
}
