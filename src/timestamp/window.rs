//! How far ahead the bound is stored. While the clock is right: a window of a few seconds above it.
//! While it is ahead (after a failover): only as much as lasts until the next write, so that no
//! number of failovers takes timestamps further ahead than about one window.

use super::Timestamp;

/// Bounds above a clock.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Milliseconds of the clock that one write allows.
    pub window_ms: u64,
    /// Milliseconds of the clock that one write allows while the clock is ahead; at least two
    /// periods of writing.
    pub least_ms: u64,
}

impl Window {
    /// The bound to be stored next. `wall_ms`: the wall clock as followed; `physical_ms`: what
    /// timestamps tell, at least that.
    pub fn target(&self, wall_ms: u64, physical_ms: u64, last: Timestamp) -> Timestamp {
        let ms = (wall_ms + self.window_ms).max(physical_ms + self.least_ms);
        Timestamp::of_unix_ms(ms.max(last.unix_ms() + self.least_ms))
    }
}
