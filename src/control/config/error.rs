//! What can be wrong with a configuration, and where a value came from: words only, no reading.

use super::secret_file::SecretFileError;

/// Bytes of a configuration file: a reference file with every key is 10 KiB, so 1 MiB is a wrong
/// file.
pub(crate) const CONFIG_BYTES_MAX: usize = 1 << 20;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// A line of the configuration file.
    File {
        /// The file as the operator named it.
        name: String,
        /// 1-based.
        line: usize,
    },
    /// A variable of the environment.
    Environment(String),
    /// A flag.
    Flag(String),
    /// Made from the node's name, where it has one or the cluster has other members.
    OwnName,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { name, line } => write!(f, "{name}:{line}"),
            Origin::Environment(variable) => write!(f, "environment {variable}"),
            Origin::Flag(flag) => write!(f, "flag {flag}"),
            Origin::OwnName => f.write_str("from the node's name"),
        }
    }
}

/// One thing wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file cannot be read.
    #[error(
        "{file}: cannot be read: {reason}. Give a file that exists and that this user may read, or \
         none for the defaults"
    )]
    Unreadable {
        /// The file as named.
        file: String,
        /// The kernel's answer.
        reason: String,
    },
    /// The file is not a configuration file.
    #[error(
        "{file}: larger than {CONFIG_BYTES_MAX} bytes, the most that a configuration has. Is it \
         the right file?"
    )]
    TooLarge {
        /// The file as named.
        file: String,
    },
    /// Neither TOML nor INI.
    #[error("{origin}: not valid {language}: {reason}")]
    Syntax {
        /// File and line.
        origin: Origin,
        /// What the file is to be.
        language: &'static str,
        /// What its parser says.
        reason: String,
    },
    /// A name that is not in the table.
    #[error("{origin}: unknown {what} {name}; {remedy}")]
    Unknown {
        /// Where it stands.
        origin: Origin,
        /// `section`, `key` or `variable`.
        what: &'static str,
        /// The name, quoted.
        name: String,
        /// The nearest known name, or where to find all.
        remedy: String,
    },
    /// A value of the wrong kind or out of range.
    #[error("{origin}: {key}: expected {expected}, found {found}")]
    Value {
        /// Where it stands.
        origin: Origin,
        /// `[section] name`.
        key: String,
        /// What the key accepts.
        expected: String,
        /// What stood there.
        found: String,
    },
    /// The secret of the cluster cannot be used.
    #[error("[cluster] secret_file: {0}")]
    Secret(SecretFileError),
    /// Values that are fine alone and not together; the text says which and what to change.
    #[error("{0}")]
    Conflict(String),
}

impl Problem {
    /// Stable code, for scripts and tests.
    pub fn code(&self) -> &'static str {
        match self {
            Problem::Unreadable { .. } => "unreadable",
            Problem::TooLarge { .. } => "too-large",
            Problem::Syntax { .. } => "syntax",
            Problem::Unknown { .. } => "unknown",
            Problem::Value { .. } => "value",
            Problem::Secret(_) => "secret",
            Problem::Conflict(_) => "conflict",
        }
    }
}

/// Everything wrong with the configuration, one problem a line (at most 20).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Never empty.
    pub problems: Vec<Problem>,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines: Vec<String> = self.problems.iter().map(Problem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigError {}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }
}
