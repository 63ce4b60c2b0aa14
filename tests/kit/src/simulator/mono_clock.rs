//! A monotonic clock with a base and a drift of its own.

use super::random::Stream;

/// A clock that shows another time than the world's clock, and goes faster or slower.
#[derive(Clone, Copy, Debug)]
pub struct MonoClock {
    base_ns: u64,
    ppm: i64,
}

impl MonoClock {
    /// Makes a clock that begins at any time and drifts by `ppm` millionths.
    pub fn draw(draw: &mut Stream, ppm: i64) -> MonoClock {
        MonoClock { base_ns: draw.range(1, 1 << 50), ppm }
    }

    /// Begins a boot of the machine: the clock shows another time, and drifts as before.
    pub fn reboot(&mut self, draw: &mut Stream) {
        self.base_ns = draw.range(1 << 45, 1 << 50);
    }

    /// Returns the nanoseconds that the clock shows at a time of the world.
    pub fn at(&self, world_ns: u64) -> u64 {
        let drift_ns = i128::from(world_ns) * i128::from(self.ppm) / 1_000_000;
        (i128::from(self.base_ns) + i128::from(world_ns) + drift_ns) as u64
    }

    /// Returns the first time of the world at which the clock shows at least `mono_ns`.
    pub fn when(&self, mono_ns: u64) -> u64 {
        let since = i128::from(mono_ns.saturating_sub(self.base_ns));
        let mut world_ns = (since * 1_000_000 / (1_000_000 + i128::from(self.ppm))) as u64;
        while self.at(world_ns) < mono_ns {
            world_ns += 1;
        }
        world_ns
    }
}
