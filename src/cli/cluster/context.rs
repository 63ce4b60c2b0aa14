//! What the commands on a cluster share: the operator's flags, and how a command ends well.

use std::io::Write;
use std::time::Duration;

use crate::cli::admin_client::AdminClient;

/// The flags that all commands share.
pub(crate) struct Context {
    pub admin: Vec<String>,
    pub client: AdminClient,
    pub json: bool,
    pub timeout: Duration,
}

/// What a command that succeeded tells.
pub(crate) struct Success {
    /// What was done, in one sentence.
    pub text: String,
    /// Whether anything had to be done.
    pub is_change: bool,
    /// How many copies of timers were moved.
    pub moved: u64,
    /// The members at the end.
    pub members: Vec<String>,
    /// A sentence for each part of the work that could not be done.
    pub incomplete: Vec<String>,
}

impl Context {
    /// Writes a line about progress to standard error, unless the output is JSON.
    pub(super) fn say(&self, line: &str) {
        if !self.json {
            // A line that cannot be written does not stop the command.
            let _ = writeln!(std::io::stderr().lock(), "{line}");
        }
    }
}
