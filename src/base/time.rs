//! Units of time. Wall time and monotonic time never convert into each other silently.

use std::ops::{Add, Sub};

/// Milliseconds since the Unix epoch on the wall clock. For ids, versions and people, never for due
/// times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WallMs(pub u64);

/// Nanoseconds on the monotonic clock. In a simulator the clock is virtual.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MonoNs(pub u64);

/// A tick: whole milliseconds on the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tick(pub u64);

/// Nanoseconds in a tick.
pub const TICK_NS: u64 = 1_000_000;

impl MonoNs {
    /// The tick that this instant lies in. Nothing due at a later tick has come due.
    #[inline]
    pub const fn tick_floor(self) -> Tick {
        Tick(self.0 / TICK_NS)
    }

    /// The first tick that does not begin before this instant. A timer counted from this tick is
    /// never early.
    #[inline]
    pub const fn tick_ceil(self) -> Tick {
        Tick(self.0.div_ceil(TICK_NS))
    }

    /// The instant `ms` milliseconds after this instant. Saturates at 2^64 - 1 ns.
    #[inline]
    pub const fn plus_ms(self, ms: u64) -> MonoNs {
        MonoNs(self.0.saturating_add(ms.saturating_mul(TICK_NS)))
    }

    /// Nanoseconds from `earlier` to this instant; 0 if `earlier` is later.
    #[inline]
    pub const fn since_ns(self, earlier: MonoNs) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The earlier of two moments that may not be. A core compares a dozen of them in each turn: this
/// costs a tenth of what iterators over arrays cost in builds of tests.
#[inline(always)]
pub fn earlier<Moment: Ord>(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (moment, None) | (None, moment) => moment,
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
    /// Milliseconds from `earlier` to this tick; 0 if `earlier` is later.
    #[inline]
    fn sub(self, earlier: Tick) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Both clocks, read together once per turn and handed down as an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Monotonic time: due times, deadlines.
    pub mono: MonoNs,
    /// Wall time: ids, versions, people.
    pub wall: WallMs,
}

impl Now {
    /// This time, or `mono` if that is later. Then the wall clock is taken to have gone on as
    /// long, rounded up to a whole millisecond.
    #[inline]
    pub fn not_before(self, mono: MonoNs) -> Now {
        let later_ms = mono.since_ns(self.mono).div_ceil(TICK_NS);
        Now { mono: self.mono.max(mono), wall: WallMs(self.wall.0.saturating_add(later_ms)) }
    }
}
