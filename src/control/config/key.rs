//! What a configuration key and a section are.

use std::fmt;

use super::settings::Config;
use super::value::{Value, ValueKind};

/// One section of the configuration file.
#[derive(Debug)]
pub struct Section {
    /// The name as written between the brackets.
    pub name: &'static str,
    /// What the section is for, in one sentence of the reference file.
    pub(crate) help: &'static str,
}

/// One configuration key.
pub struct Key {
    /// The name of the section that the key stands in.
    pub section: &'static str,
    /// The key's name. The unit of a number comes last, e.g. `_ms`.
    pub name: &'static str,
    /// Which values the key accepts.
    pub(crate) kind: ValueKind,
    /// The command-line flag that overrides the key; `None` where there is none.
    pub(crate) flag: Option<&'static str>,
    /// What the key does, for the reader of the reference file and of `--help`.
    pub(crate) help: &'static str,
    /// Reads the setting.
    pub(crate) get: fn(&Config) -> Value,
    /// Writes the setting. Panics if the `Value` is not of the kind that [`Key::kind`] reads.
    pub(crate) set: fn(&mut Config, &Value),
}

impl Key {
    /// Returns the environment variable that overrides the key, e.g. `CHRONOS_LIMITS_TIMERS_MAX`.
    pub(crate) fn variable(&self) -> String {
        format!("CHRONOS_{}_{}", self.section, self.name).to_ascii_uppercase()
    }
}

/// Writes `[section] name`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.section, self.name)
    }
}
