//! How a command on a node ends: its text or its document, and the exit code.

use serde_json::Value;

use super::exit::{EXIT_FAILURE, EXIT_USAGE};
use super::service::Failure;
use super::shown::json_text;
use super::terminal::{failed_by, print, tell};

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
