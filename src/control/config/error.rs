//! What can be wrong with a configuration, and where a value came from. Types and texts only:
//! nothing is read here.

use super::callback_tls::CallbackTlsError;
use super::peer_tls::PeerTlsError;
use super::secret_file::SecretFileError;
use super::tls::TlsFileError;

/// Most bytes of a configuration file. A reference file with every key is 10 KiB, so a file of 1
/// MiB is a wrong file.
pub(crate) const CONFIG_BYTES_MAX: usize = 1 << 20;

/// Where a value came from. `Display` writes it for messages, e.g. `chronos.toml:12`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default that is built in.
    Default,
    /// A line of the configuration file.
    File {
        /// The file as the operator named it.
        name: String,
        /// The line's number, from 1.
        line: usize,
    },
    /// The environment variable of this name.
    Environment(String),
    /// The command-line flag of this name.
    Flag(String),
    /// The value was made from the node's name. Used where the node has a name or the cluster
    /// has other members.
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

/// One thing that is wrong with the configuration. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file cannot be read.
    #[error(
        "{file}: cannot be read: {reason}. Give a file that exists and that this user may read, or \
         none for the defaults"
    )]
    Unreadable {
        /// The file as the operator named it.
        file: String,
        /// The error that the kernel returned.
        reason: String,
    },
    /// The file is not a configuration file.
    #[error(
        "{file}: larger than {CONFIG_BYTES_MAX} bytes, the most that a configuration has. Is it \
         the right file?"
    )]
    TooLarge {
        /// The file as the operator named it.
        file: String,
    },
    /// The file's text is not the language that was expected.
    #[error("{origin}: not valid {language}: {reason}")]
    Syntax {
        /// The file and the line of the error.
        origin: Origin,
        /// The language that was expected: `TOML` or `INI`.
        language: &'static str,
        /// The parser's message.
        reason: String,
    },
    /// A name that is not in the table of keys.
    #[error("{origin}: unknown {what} {name}; {remedy}")]
    Unknown {
        /// Where the name or value stands.
        origin: Origin,
        /// `section`, `key` or `variable`.
        what: &'static str,
        /// The name, quoted.
        name: String,
        /// The nearest known name, or the place that lists every name.
        remedy: String,
    },
    /// A value of the wrong kind or out of range.
    #[error("{origin}: {key}: expected {expected}, found {found}")]
    Value {
        /// Where the name or value stands.
        origin: Origin,
        /// The key, as `[section] name`.
        key: String,
        /// What the key accepts.
        expected: String,
        /// The value that was found, shortened and made printable.
        found: String,
    },
    /// The file of the cluster's secret cannot be used.
    #[error("[cluster] secret_file: {0}")]
    Secret(SecretFileError),
    /// A file of `[tls]` cannot be used.
    #[error("[tls] {0}")]
    Tls(TlsFileError),
    /// A file of TLS between nodes cannot be used.
    #[error("[cluster] {0}")]
    PeerTls(PeerTlsError),
    /// The file of the tokens cannot be used.
    #[error("[auth] tokens_file: {0}")]
    Tokens(SecretFileError),
    /// The file of the secrets that callbacks are signed with cannot be used.
    #[error("[callbacks] signing_secrets_file: {0}")]
    Signing(SecretFileError),
    /// A file that callbacks over TLS need cannot be used.
    #[error("[callbacks] {0}")]
    CallbackTls(CallbackTlsError),
    /// Values that are valid alone and contradict each other. The text names them and says what to
    /// change.
    #[error("{0}")]
    Conflict(String),
}

impl Problem {
    /// Returns a stable code for scripts and tests, e.g. `conflict`.
    pub fn code(&self) -> &'static str {
        match self {
            Problem::Unreadable { .. } => "unreadable",
            Problem::TooLarge { .. } => "too-large",
            Problem::Syntax { .. } => "syntax",
            Problem::Unknown { .. } => "unknown",
            Problem::Value { .. } => "value",
            Problem::Secret(_) => "secret",
            Problem::Tokens(_) => "tokens",
            Problem::Signing(_) => "signing",
            Problem::CallbackTls(_) => "callback-tls",
            Problem::Tls(_) => "tls",
            Problem::PeerTls(_) => "peer-tls",
            Problem::Conflict(_) => "conflict",
        }
    }
}

/// Everything that is wrong with the configuration. `Display` writes at most 20 problems, one a
/// line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The problems, in the order in which they were found. Never empty.
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
