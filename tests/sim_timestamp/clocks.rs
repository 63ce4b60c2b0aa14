//! The clocks of one server: a monotonic one with a base and a drift of its own, a wall clock that
//! is off and steps.

use chronos::base::time::{MonoNs, Now, WallMs};

use super::random::Stream;

/// The true time at which runs begin.
pub const TRUE_MS: u64 = 1_800_000_000_000;

pub struct Clocks {
    base_ns: u64,
    ppm: i64,
    ahead_ms: i64,
}

impl Clocks {
    pub fn new(draw: &mut Stream, drift_ppm_max: i64, skew_ms_max: i64) -> Self {
        let mut between = |most: i64| draw.range(0, 2 * most as u64) as i64 - most;
        let (ppm, ahead_ms) = (between(drift_ppm_max), between(skew_ms_max));
        Self { base_ns: draw.range(1, 1 << 50), ppm, ahead_ms }
    }

    /// Both clocks at a time of the world.
    pub fn now(&self, world_ns: u64) -> Now {
        let wall_ms = TRUE_MS as i64 + (world_ns / 1_000_000) as i64 + self.ahead_ms;
        Now { mono: self.mono(world_ns), wall: WallMs(wall_ms as u64) }
    }

    pub fn mono(&self, world_ns: u64) -> MonoNs {
        let drift_ns = i128::from(world_ns) * i128::from(self.ppm) / 1_000_000;
        MonoNs((i128::from(self.base_ns) + i128::from(world_ns) + drift_ns) as u64)
    }

    /// The first time of the world at which the monotonic clock shows at least this.
    pub fn when(&self, mono: MonoNs) -> u64 {
        let since = i128::from(mono.0.saturating_sub(self.base_ns));
        let mut world_ns = (since * 1_000_000 / (1_000_000 + i128::from(self.ppm))) as u64;
        while self.mono(world_ns) < mono {
            world_ns += 1;
        }
        world_ns
    }

    pub fn step(&mut self, ms: i64) {
        self.ahead_ms += ms;
    }
}
