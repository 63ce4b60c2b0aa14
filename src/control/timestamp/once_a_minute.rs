//! Limits a line of the log that would come again and again to one a minute.

use std::time::{Duration, Instant};

/// Pause between two lines about the same thing.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// When something was told last.
#[derive(Debug, Default)]
pub(super) struct OnceAMinute(Option<Instant>);

impl OnceAMinute {
    /// Returns whether the line is due. If it is, notes the time.
    pub(super) fn is_due(&mut self) -> bool {
        let is_due = self.0.is_none_or(|told| told.elapsed() >= TELL_EVERY);
        if is_due {
            self.0 = Some(Instant::now());
        }
        is_due
    }

    /// Notes that the condition is over, so the next line is due at once. Returns whether a line
    /// had been logged.
    pub(super) fn reset(&mut self) -> bool {
        self.0.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_told_at_once_and_then_seldom() {
        let mut told = OnceAMinute::default();
        assert!(told.is_due() && !told.is_due());
        assert!(told.reset() && !told.reset());
        assert!(told.is_due());
    }
}
