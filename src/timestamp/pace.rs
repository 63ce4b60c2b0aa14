//! What a keeper knows while it serves: what time it is and how far it has stored.

use super::Timestamp;
use super::clock::{Clock, Seen};
use super::oracle::Terms;
use super::window::Window;
use crate::base::time::{MonoNs, Now, WallMs};

/// How a [`Pace`] begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    /// Everything handed out is above this.
    pub floor: Timestamp,
    /// Another clock, if there is one.
    pub witness: Option<WallMs>,
    pub clock_jump_max_ms: u64,
    pub window: Window,
}

#[derive(Clone, Debug)]
pub(super) struct Pace {
    clock: Clock,
    window: Window,
    /// As stored.
    bound: Timestamp,
    is_refusing: bool,
}

impl Pace {
    /// Also says what is to be told of the clock.
    pub fn begin(now: Now, begin: Begin) -> (Self, Option<Seen>) {
        let (mut clock, seen) = Clock::start(now, begin.witness, begin.clock_jump_max_ms);
        clock.raise(now.mono, begin.floor.unix_ms());
        let is_refusing = seen != Seen::Agreed;
        let pace = Self { clock, window: begin.window, bound: begin.floor, is_refusing };
        (pace, is_refusing.then_some(seen))
    }

    /// Compares with the wall clock. What is to be told is told once: each step back, the first of
    /// refusals in a row, and their end.
    pub fn look(&mut self, now: Now) -> Option<Seen> {
        let seen = self.clock.look(now);
        let is_refusing = matches!(seen, Seen::RefusedMs(_));
        let is_news = is_refusing != self.is_refusing || matches!(seen, Seen::BackMs(_));
        self.is_refusing = is_refusing;
        is_news.then_some(seen)
    }

    /// The bound to be stored next: never below the present one.
    pub fn target(&self, now: MonoNs, last: Timestamp) -> Timestamp {
        let line = self.clock.line();
        self.window.target(line.wall_ms(now), line.unix_ms(now), last).max(self.bound)
    }

    /// Whether a third of what one store allows is used up.
    pub fn is_due(&self, now: MonoNs, last: Timestamp) -> bool {
        let target_ms = self.target(now, last).unix_ms();
        let told_ms = self.clock.line().unix_ms(now).max(last.unix_ms());
        self.bound.unix_ms() + target_ms.saturating_sub(told_ms) / 3 <= target_ms
    }

    /// This bound is stored.
    pub fn stored(&mut self, bound: Timestamp) {
        assert!(bound >= self.bound, "a bound is not lowered while timestamps are handed out");
        self.bound = bound;
    }

    pub fn bound(&self) -> Timestamp {
        self.bound
    }

    pub fn terms(&self, until: MonoNs) -> Terms {
        Terms { until, bound: self.bound, clock: self.clock.line() }
    }
}
