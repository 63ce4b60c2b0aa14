//! How far ahead of the clock the bound is stored.
//!
//! - While the clock is right, the bound lies a window of a few seconds above the clock.
//! - While the clock is ahead (after a failover), the bound allows only the time until the next
//!   write. So no number of failovers takes timestamps further ahead than about one window.

use super::Timestamp;

/// How far a stored bound lies above the clock.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Milliseconds of the clock that one write allows while the clock is right.
    pub window_ms: u64,
    /// Milliseconds of the clock that one write allows while the clock is ahead; at least two
    /// periods of writing.
    pub least_ms: u64,
}

impl Window {
    /// The bound to store next. `wall_ms` is the wall clock as far as it is followed. `physical_ms`
    /// is the time that timestamps tell, at least `wall_ms`. `last` is the last timestamp handed
    /// out.
    pub fn target(&self, wall_ms: u64, physical_ms: u64, last: Timestamp) -> Timestamp {
        let told_ms = physical_ms.max(last.unix_ms());
        Timestamp::of_unix_ms((wall_ms + self.window_ms).max(told_ms + self.least_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { window_ms: 3_000, least_ms: 500 };

    #[test]
    fn a_clock_that_is_right_gets_the_whole_window() {
        assert_eq!(WINDOW.target(10_000, 10_000, Timestamp(0)), Timestamp::of_unix_ms(13_000));
        assert_eq!(WINDOW.target(10_000, 12_499, Timestamp(0)), Timestamp::of_unix_ms(13_000));
    }

    #[test]
    fn a_clock_that_is_ahead_gets_the_least() {
        assert_eq!(WINDOW.target(10_000, 60_000, Timestamp(0)), Timestamp::of_unix_ms(60_500));
        let last = Timestamp::of_unix_ms(70_000);
        assert_eq!(WINDOW.target(10_000, 60_000, last), Timestamp::of_unix_ms(70_500));
    }

    #[test]
    fn failovers_in_a_row_do_not_add_up() {
        let (mut wall_ms, mut stored) = (100_000, Timestamp(0));
        for _ in 0..100 {
            let told_ms = stored.unix_ms().max(wall_ms);
            stored = WINDOW.target(wall_ms, told_ms, Timestamp(0));
            assert!(stored.unix_ms() <= wall_ms + WINDOW.window_ms + WINDOW.least_ms);
            wall_ms += WINDOW.least_ms;
        }
    }
}
