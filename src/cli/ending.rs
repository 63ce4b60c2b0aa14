//! How a command on a node ends: its text or its document, and the exit code.

use std::fmt::Display;

use serde_json::{Value, json};

use super::exit::{EXIT_FAILURE, EXIT_USAGE};
use super::service::Failure;
use super::shown::json_text;
use super::terminal::{fail, print, tell};

/// What a command has to say.
#[derive(Debug)]
pub(super) struct Ending {
    /// For people.
    pub(super) text: String,
    /// For programs.
    pub(super) document: Value,
    /// Beside the text, on standard error.
    pub(super) notes: Vec<String>,
    /// 0, or 1 where it was done in part.
    pub(super) code: u8,
}

impl Ending {
    /// The end of a command that did what it should.
    pub(super) fn done(text: String, document: Value) -> Self {
        Self { text, document, notes: Vec::new(), code: 0 }
    }
}

/// Why a command did not do what it should.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotDone {
    /// The node refused, or did not answer.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// It is not what was expected. The text says what to do.
    #[error("{0}")]
    Other(String),
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
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
pub(super) fn failed_by(
    is_json: bool,
    reason: &dyn Display,
    status: Option<u16>,
    code: u8,
) -> u8 {
    if is_json {
        print(&json_text(&failure(reason, status)));
    }
    fail(reason, code)
}

/// Prints how a command ended, and returns the exit code.
pub(super) fn end(is_json: bool, result: Result<Ending, NotDone>) -> u8 {
    match result {
        Ok(ending) => {
            ending.notes.iter().for_each(|note| tell(note));
            let printed = if is_json { json_text(&ending.document) } else { ending.text };
            print(&printed).max(ending.code)
        }
        Err(error) => {
            let code = match &error {
                NotDone::Usage(_) => EXIT_USAGE,
                _ => EXIT_FAILURE,
            };
            let status = match &error {
                NotDone::Failed(Failure::Refused { status, .. }) => Some(*status),
                _ => None,
            };
            failed_by(is_json, &error, status, code)
        }
    }
}
