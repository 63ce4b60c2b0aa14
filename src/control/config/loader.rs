//! A configuration that is being put together: values go in, or the problems that they are, and
//! warnings, all bounded against hostile texts.

use super::error::{Origin, Problem};
use super::keys::Key;
use super::settings::Config;
use super::value::{Mismatch, Value};

/// Problems told at once: enough to repair a file in one go, bounded against a hostile one.
pub(super) const PROBLEMS_MAX: usize = 20;
/// Warnings told: as many, and one that counts the rest.
const WARNINGS_MAX: usize = 20;

/// A configuration that is being put together.
pub(super) struct Loader {
    pub(super) config: Config,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<String>,
    pub(super) warnings_left_out: usize,
}

impl Loader {
    /// Starts from the defaults.
    pub(super) fn new(config: Config) -> Self {
        Self { config, problems: Vec::new(), warnings: Vec::new(), warnings_left_out: 0 }
    }

    /// Takes a value that was read, or the problem that it was.
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

    /// Takes a problem, unless there are many already.
    pub(super) fn put(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    /// Takes a warning, or counts it where there are many already.
    pub(super) fn warn(&mut self, warning: String) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(warning);
        } else {
            self.warnings_left_out += 1;
        }
    }
}
