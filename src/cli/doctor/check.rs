//! A thing that was looked at, and what was found.

use serde_json::{Value, json};

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// As it should be.
    Ok,
    /// A node runs, worse than it could, or not for long.
    Warn,
    /// A node does not start, or does not do what it is to do.
    Fail,
}

impl Verdict {
    /// The word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        }
    }
}

/// A line of the doctor.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) what: String,
    pub(super) verdict: Verdict,
    pub(super) found: String,
    /// What to do; empty where all is well.
    pub(super) remedy: String,
}

impl Check {
    /// All is well.
    pub(super) fn ok(what: impl Into<String>, found: impl Into<String>) -> Self {
        let (what, found) = (what.into(), found.into());
        Self { what, verdict: Verdict::Ok, found, remedy: String::new() }
    }

    /// Something could be better.
    pub(super) fn warn(
        what: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Warn, remedy: remedy.into(), ..Self::ok(what, found) }
    }

    /// Something must be repaired.
    pub(super) fn fail(
        what: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Fail, remedy: remedy.into(), ..Self::ok(what, found) }
    }

    /// The element of `--json`.
    pub(super) fn document(&self) -> Value {
        json!({
            "what": self.what, "verdict": self.verdict.word(), "found": self.found,
            "remedy": self.remedy,
        })
    }
}
