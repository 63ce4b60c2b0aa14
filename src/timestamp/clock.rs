//! What time timestamps tell: the wall clock, believed within limits. It is read through the
//! monotonic clock and an offset, so that between two looks nothing that sets the wall clock is
//! followed; a look takes over a small step forward, refuses a large one, and turns a step back, or
//! a start above the wall clock, into going at half speed until the wall clock has caught up.

use crate::base::time::{MonoNs, Now, WallMs};

/// A clock that any thread can read: wall time plus what is ahead of it, which halves its lead in
/// real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockLine {
    /// Wall clock minus monotonic clock.
    pub wall_offset_ns: u64,
    /// How far this clock was ahead of the wall clock at `ahead_at`.
    pub ahead_ns: u64,
    /// When that was.
    pub ahead_at: MonoNs,
}

impl ClockLine {
    /// The beginning of time.
    pub const ZERO: ClockLine = ClockLine { wall_offset_ns: 0, ahead_ns: 0, ahead_at: MonoNs(0) };

    /// How far it is ahead of the wall clock.
    #[inline]
    pub const fn ahead_ns(&self, now: MonoNs) -> u64 {
        // At half speed the lead shrinks by half of what passes.
        self.ahead_ns.saturating_sub(now.since_ns(self.ahead_at) / 2)
    }

    /// Milliseconds since the Unix epoch.
    #[inline]
    pub const fn unix_ms(&self, now: MonoNs) -> u64 {
        (self.wall_offset_ns + now.0 + self.ahead_ns(now)) / 1_000_000
    }
}

/// What a look at the wall clock found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It is followed.
    Agreed,
    /// It was set back: timestamps go on at half speed until it has caught up.
    BackMs(u64),
    /// It is further ahead than the limit: not followed.
    RefusedMs(u64),
}

/// The clock as the keeper holds it.
#[derive(Clone, Debug)]
pub struct Clock {
    line: ClockLine,
    jump_max_ms: u64,
}

impl Clock {
    /// Begins with the wall clock, but not above `witness` (another clock: that of the servers of
    /// `ZooKeeper`) by more than the limit.
    pub fn start(_now: Now, _witness: Option<WallMs>, _jump_max_ms: u64) -> (Self, Seen) {
        todo!()
    }

    /// Compares with the wall clock.
    pub fn look(&mut self, _now: Now) -> Seen {
        todo!()
    }

    /// The clock must not tell less than this: what was handed out before the start.
    pub fn raise(&mut self, _now: MonoNs, _unix_ms: u64) {
        todo!()
    }

    /// For the cores.
    pub fn line(&self) -> ClockLine {
        self.line
    }

    /// The largest step forward that is followed.
    pub fn jump_max_ms(&self) -> u64 {
        self.jump_max_ms
    }
}
