//! The clocks of one server: a monotonic clock, and a wall clock that is off and steps.

use chronos::base::time::{MonoNs, Now, WallMs};
use kit::simulator::mono_clock::MonoClock;
use kit::simulator::random::Stream;

use super::options::Options;

/// The true time at which runs begin.
pub const TRUE_MS: u64 = 1_800_000_000_000;
/// Steps of fewer milliseconds than this are small.
pub const SMALL_MS: u64 = 1_000;

pub struct Clocks {
    pub mono: MonoClock,
    ahead_ms: i64,
    /// The sum of the large steps.
    pub far_ms: i64,
    /// The sum of the small steps, whatever their direction.
    pub small_steps_ms: u64,
    /// When the last step came, in the time of the world.
    pub stepped_ns: u64,
    /// By how much the large step that sets the clock right leads beyond what was believed before:
    /// the sum of the small steps since the first large one.
    beyond_ms: i64,
    jump_max_ms: i64,
}

impl Clocks {
    pub fn new(draw: &mut Stream, options: &Options) -> Self {
        let mut between = |most: i64| draw.range(0, 2 * most as u64) as i64 - most;
        let ppm = between(options.drift_ppm_max);
        let ahead_ms = between(options.skew_ms_max);
        let mono = MonoClock::draw(draw, ppm);
        Self {
            mono,
            ahead_ms,
            far_ms: 0,
            small_steps_ms: 0,
            stepped_ns: 0,
            beyond_ms: 0,
            jump_max_ms: options.clock_jump_max_ms as i64,
        }
    }

    /// Returns both clocks at a time of the world.
    pub fn now(&self, world_ns: u64) -> Now {
        let wall_ms = TRUE_MS as i64 + (world_ns / 1_000_000) as i64 + self.ahead_ms;
        Now { mono: MonoNs(self.mono.at(world_ns)), wall: WallMs(wall_ms as u64) }
    }

    pub fn step(&mut self, ms: i64, world_ns: u64) {
        self.ahead_ms += ms;
        self.stepped_ns = world_ns;
        match ms.unsigned_abs() {
            small if small < SMALL_MS => {
                self.small_steps_ms += small;
                self.beyond_ms += ms;
            }
            _ => self.far_ms += ms,
        }
        if self.far_ms == 0 && !self.is_refused() {
            self.beyond_ms = 0;
        }
    }

    /// Whether a server without a witness refuses the clock, though it is right again: the step led
    /// further beyond what was believed than one small step may.
    pub fn is_refused(&self) -> bool {
        self.beyond_ms > self.jump_max_ms
    }
}
