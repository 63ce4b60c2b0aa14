//! The clocks of one node: a monotonic one, and a wall clock that is off and steps.

use chronos::base::time::{Now, WallMs};

use super::mono_clock::MonoClock;
use super::random::Stream;

/// Wall clock at which runs begin.
const WALL_MS: i64 = 1_800_000_000_000;
/// A process that starts never finds a wall clock behind that of the one before it: ids would be
/// given out again, which nothing without a disk can prevent.
const RESTART_MS: i64 = 2;

/// Clocks of a node.
pub struct Clocks {
    pub mono: MonoClock,
    ahead_ms: i64,
    highest_ms: i64,
}

impl Clocks {
    pub fn new(draw: &mut Stream, drift_ppm_max: i64, skew_ms_max: i64) -> Self {
        let mut between = |most: i64| draw.range(0, 2 * most as u64) as i64 - most;
        let (ppm, ahead_ms) = (between(drift_ppm_max), between(skew_ms_max));
        Self { mono: MonoClock::draw(draw, ppm), ahead_ms, highest_ms: 0 }
    }

    /// Both clocks at a time of the world.
    pub fn now(&mut self, world_ns: u64) -> Now {
        let wall_ms = WALL_MS + (world_ns / 1_000_000) as i64 + self.ahead_ms;
        self.highest_ms = self.highest_ms.max(wall_ms);
        Now { mono: self.mono.at(world_ns), wall: WallMs(wall_ms as u64) }
    }

    /// Steps of all time sum up to at most 20 s, far below `cluster.clock_skew_max_ms`.
    pub fn step(&mut self, ms: i64) {
        self.ahead_ms = (self.ahead_ms + ms).clamp(-20_000, 20_000);
    }

    /// How far the wall clock is ahead of the world's.
    pub fn ahead_ms(&self) -> i64 {
        self.ahead_ms
    }

    pub fn restarted(&mut self, world_ns: u64) {
        let wall_ms = WALL_MS + (world_ns / 1_000_000) as i64 + self.ahead_ms;
        self.ahead_ms += (self.highest_ms + RESTART_MS - wall_ms).max(0);
    }
}
