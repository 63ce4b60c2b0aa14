//! When a timer pops, how often, and how long its tombstone stays (docs/compat/timer-service.md
//! §4). All times are 64-bit milliseconds: nothing wraps, and the only maximum is
//! [`INTERVAL_MS_MAX`](crate::base::limits::INTERVAL_MS_MAX).

use crate::base::limits::TOMBSTONE_MS_MIN;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::Tick;

/// When a timer pops. Pops count from the start, so they do not drift.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// When the timer was accepted.
    pub start: Tick,
    /// Milliseconds between pops.
    pub interval_ms: u64,
    /// Milliseconds after the start in which the timer pops; equal to the interval for a one-shot
    /// timer.
    pub repeat_for_ms: u64,
}

impl Schedule {
    /// How many pops the timer has: floor(repeat-for / interval). A pop at exactly repeat-for
    /// counts. Interval 0 has one pop; a repeat-for shorter than the interval has none.
    pub fn pops(&self) -> u64 {
        if is_planted(Bug::RepeatForOffByOne) && self.repeat_for_ms > self.interval_ms {
            return (self.repeat_for_ms - 1) / self.interval_ms.max(1);
        }
        self.repeat_for_ms.checked_div(self.interval_ms).unwrap_or(1)
    }

    /// When pop `sequence` (from 1) is due at rank 0.
    pub fn due(&self, sequence: u64) -> Tick {
        self.start + self.interval_ms.saturating_mul(sequence)
    }

    /// Whether pop `sequence` is the last pop.
    pub fn is_last(&self, sequence: u64) -> bool {
        sequence >= self.pops()
    }

    /// The last pop that is due at `tick`; at least 1.
    pub fn present(&self, tick: Tick) -> u64 {
        let passed = (tick - self.start).checked_div(self.interval_ms).unwrap_or(1);
        passed.min(self.pops()).max(1)
    }

    /// The last pop that has come at `tick`, or 0.
    pub fn come(&self, tick: Tick) -> u64 {
        match tick >= self.due(1) {
            true => self.present(tick),
            false => 0,
        }
    }

    /// When a failing pop is given up: at the due time of the next pop. The last pop is given up
    /// `give_up_ms` after `due`, the time at which it came due.
    pub fn give_up_at(&self, sequence: u64, due: Tick, give_up_ms: u64) -> Tick {
        if self.is_last(sequence) { due + give_up_ms } else { self.due(sequence + 1) }
    }
}

/// Milliseconds for which a tombstone stays: one interval (docs/compat/timer-service.md §4), at
/// least 10 s, at most `max_ms`.
pub fn tombstone_ms(interval_ms: u64, max_ms: u64) -> u64 {
    interval_ms.max(TOMBSTONE_MS_MIN).min(max_ms.max(TOMBSTONE_MS_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::INTERVAL_MS_MAX;

    fn schedule(interval_ms: u64, repeat_for_ms: u64) -> Schedule {
        Schedule { start: Tick(1_000), interval_ms, repeat_for_ms }
    }

    #[test]
    fn counts_pops_at_every_edge_of_a_small_domain() {
        for interval in 1..20_u64 {
            for repeat_for in 0..100_u64 {
                let expected = (1..=200).filter(|pop| pop * interval <= repeat_for).count() as u64;
                assert_eq!(
                    schedule(interval, repeat_for).pops(),
                    expected,
                    "{interval} {repeat_for}"
                );
            }
        }
        assert_eq!(schedule(0, 0).pops(), 1);
    }

    #[test]
    fn a_hundred_years_do_not_wrap() {
        let century = schedule(INTERVAL_MS_MAX, INTERVAL_MS_MAX);
        assert_eq!(century.due(1), Tick(1_000 + INTERVAL_MS_MAX));
        assert!(century.is_last(1));
        assert_eq!(schedule(1, INTERVAL_MS_MAX).pops(), INTERVAL_MS_MAX);
    }

    #[test]
    fn a_failing_pop_is_given_up_when_the_next_is_due_or_at_the_limit() {
        let twice = schedule(2_000, 4_000);
        assert_eq!(twice.give_up_at(1, twice.due(1), 60_000), twice.due(2));
        assert_eq!(twice.give_up_at(2, twice.due(2), 60_000), twice.due(2) + 60_000);
    }

    #[test]
    fn tombstones_last_an_interval_within_bounds() {
        assert_eq!(tombstone_ms(0, 86_400_000), 10_000);
        assert_eq!(tombstone_ms(300_000, 86_400_000), 300_000);
        assert_eq!(tombstone_ms(INTERVAL_MS_MAX, 86_400_000), 86_400_000);
    }
}
