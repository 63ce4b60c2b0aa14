//! A configuration that is being put together. It takes values, problems and warnings, all bounded
//! against hostile texts.

use super::error::{Origin, Problem};
use super::key::Key;
use super::settings::Config;
use super::value::{Mismatch, Value};

/// Most problems told at once: enough to repair a file in one go, bounded against a hostile file.
pub(super) const PROBLEMS_MAX: usize = 20;
/// Most warnings told at once. One more line counts the warnings that were left out.
const WARNINGS_MAX: usize = 20;

/// Collects values, problems and warnings.
pub(super) struct Loader {
    pub(super) config: Config,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<String>,
    pub(super) warnings_left_out: usize,
}

impl Loader {
    /// Starts from `config`, which holds the defaults.
    pub(super) fn new(config: Config) -> Self {
        Self { config, problems: Vec::new(), warnings: Vec::new(), warnings_left_out: 0 }
    }

    /// Sets a key to the value that was read, or takes the problem if the value did not fit.
    pub(super) fn put_read(
        &mut self,
        key: &'static Key,
        read: Result<Value, Mismatch>,
        origin: Origin,
    ) {
        match read {
            Ok(value) => {
                (key.set)(&mut self.config, &value);
                self.config.set_origin((key.section, key.name), origin);
            }
            Err(Mismatch { expected, found }) => {
                self.put(Problem::Value { origin, key: key.to_string(), expected, found });
            }
        }
    }

    /// Takes a problem. From the 21st on, problems are dropped.
    pub(super) fn put(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    /// Takes a warning. From the 21st on, warnings are only counted.
    pub(super) fn warn(&mut self, warning: String) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(warning);
        } else {
            self.warnings_left_out += 1;
        }
    }
}
