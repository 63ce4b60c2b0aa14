//! Units of time. Wall time and monotonic time never convert into each other silently.

use std::ops::{Add, Sub};

/// Milliseconds since the Unix epoch, as the wall clock tells them. Used for identities, versions
/// and people, never for due times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WallMs(pub u64);

/// Nanoseconds on the monotonic clock (virtual in the simulator).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MonoNs(pub u64);

/// A tick of the wheel: whole milliseconds on the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tick(pub u64);

/// Nanoseconds in a tick.
pub const TICK_NS: u64 = 1_000_000;

impl MonoNs {
    /// The tick that has begun: nothing due later than this has come due.
    #[inline]
    pub const fn tick_floor(self) -> Tick {
        Tick(self.0 / TICK_NS)
    }

    /// The first tick that does not begin before this instant: a timer counted from here is never
    /// early.
    #[inline]
    pub const fn tick_ceil(self) -> Tick {
        Tick(self.0.div_ceil(TICK_NS))
    }

    /// This instant and `ms` milliseconds.
    #[inline]
    pub const fn plus_ms(self, ms: u64) -> MonoNs {
        MonoNs(self.0.saturating_add(ms.saturating_mul(TICK_NS)))
    }

    /// Nanoseconds since `earlier`, 0 if that is later.
    #[inline]
    pub const fn since_ns(self, earlier: MonoNs) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Tick {
    /// The instant at which this tick begins.
    #[inline]
    pub const fn begins(self) -> MonoNs {
        MonoNs(self.0.saturating_mul(TICK_NS))
    }
}

impl Add<u64> for Tick {
    type Output = Tick;
    #[inline]
    fn add(self, ms: u64) -> Tick {
        Tick(self.0.saturating_add(ms))
    }
}

impl Sub<Tick> for Tick {
    type Output = u64;
    /// Milliseconds between two ticks, 0 if `earlier` is later.
    #[inline]
    fn sub(self, earlier: Tick) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Both clocks, read together once per loop turn and handed down as an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Monotonic time: due times, deadlines.
    pub mono: MonoNs,
    /// Wall time: ids and versions.
    pub wall: WallMs,
}
