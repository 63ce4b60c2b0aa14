//! What a keeper knows while it serves: the time, and the stored bound.

// May panic: assertions 1.
// Why it does not: ordered 1.

use super::Timestamp;
use super::clock::{Clock, Seen, Witness};
use super::oracle::Terms;
use super::window::Window;
use crate::base::time::{MonoNs, Now};

/// How a [`Pace`] begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    /// The stored bound: every timestamp lies above it.
    pub floor: Timestamp,
    /// The time that another clock told, if there is one.
    pub witness: Option<Witness>,
    pub clock_jump_max_ms: u64,
    pub window: Window,
}

#[derive(Clone, Debug)]
pub(super) struct Pace {
    clock: Clock,
    window: Window,
    /// The bound as it is stored.
    bound: Timestamp,
    is_refusing: bool,
}

impl Pace {
    /// Begins above the floor. Also returns what operators should hear of the clock.
    pub fn begin(now: Now, begin: Begin) -> (Self, Option<Seen>) {
        let (mut clock, seen) = Clock::start(now, begin.witness, begin.clock_jump_max_ms);
        clock.raise(now.mono, begin.floor.unix_ms());
        let is_refusing = seen != Seen::Agreed;
        let pace = Self { clock, window: begin.window, bound: begin.floor, is_refusing };
        (pace, is_refusing.then_some(seen))
    }

    /// Compares with the wall clock and returns what operators should hear: each step back, the
    /// first of several refusals in a row, and the end of the refusals.
    pub fn look(&mut self, now: Now, witness: Option<Witness>) -> Option<Seen> {
        let seen = self.clock.look(now, witness);
        let is_refusing = matches!(seen, Seen::RefusedMs(_));
        let is_news = is_refusing != self.is_refusing || matches!(seen, Seen::BackMs(_));
        self.is_refusing = is_refusing;
        is_news.then_some(seen)
    }

    /// The bound to store next. Never below the present bound.
    pub fn target(&self, now: MonoNs, last: Timestamp) -> Timestamp {
        let line = self.clock.line();
        self.window.target(line.wall_ms(now), line.unix_ms(now), last).max(self.bound)
    }

    /// Whether a third of the time that one store allows is used up.
    pub fn is_due(&self, now: MonoNs, last: Timestamp) -> bool {
        let target_ms = self.target(now, last).unix_ms();
        let told_ms = self.clock.line().unix_ms(now).max(last.unix_ms());
        self.bound.unix_ms() + target_ms.saturating_sub(told_ms) / 3 <= target_ms
    }

    /// Takes note that `bound` is stored. Panics if `bound` is below the present bound.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::WallMs;

    const WINDOW: Window = Window { window_ms: 3_000, least_ms: 500 };
    const LIMIT_MS: u64 = 10_000;

    fn at(mono_ms: u64, wall_ms: u64) -> Now {
        Now { mono: MonoNs(0).plus_ms(mono_ms), wall: WallMs(wall_ms) }
    }

    fn begun(floor_ms: u64, witness_ms: Option<u64>) -> (Pace, Option<Seen>) {
        let witness = witness_ms.map(|ms| {
            let asked = at(1_000, 0).mono;
            Witness { told: WallMs(ms), asked, heard: asked }
        });
        let floor = Timestamp::of_unix_ms(floor_ms);
        let begin = Begin { floor, witness, clock_jump_max_ms: LIMIT_MS, window: WINDOW };
        Pace::begin(at(1_000, 50_000), begin)
    }

    fn told_ms(pace: &Pace, mono_ms: u64) -> u64 {
        pace.terms(MonoNs(u64::MAX)).clock.unix_ms(at(mono_ms, 0).mono)
    }

    #[test]
    fn it_begins_with_the_clock_above_the_floor() {
        let (pace, seen) = begun(40_000, None);
        assert_eq!((told_ms(&pace, 1_000), seen), (50_000, None));
        assert_eq!(pace.bound(), Timestamp::of_unix_ms(40_000));
        let (pace, seen) = begun(60_000, None);
        assert_eq!((told_ms(&pace, 1_000), seen), (60_000, None));
        let (pace, seen) = begun(0, Some(39_999));
        assert_eq!((told_ms(&pace, 1_000), seen), (39_999, Some(Seen::RefusedMs(10_001))));
        assert_eq!(begun(0, Some(40_000)).1, None);
    }

    #[test]
    fn a_refusal_is_told_once_and_so_is_its_end() {
        let (mut pace, _) = begun(0, None);
        assert_eq!(pace.look(at(2_000, 51_000), None), None);
        assert_eq!(pace.look(at(3_000, 99_000), None), Some(Seen::RefusedMs(47_000)));
        assert_eq!(pace.look(at(4_000, 99_000), None), None);
        assert_eq!(pace.look(at(5_000, 54_000), None), Some(Seen::Agreed));
        assert_eq!(pace.look(at(6_000, 55_000), None), None);
        assert_eq!(pace.look(at(7_000, 99_000), None), Some(Seen::RefusedMs(43_000)));
        // A refusal that was told at the start is not told again.
        let (mut pace, _) = begun(0, Some(1_000));
        assert_eq!(pace.look(at(2_000, 51_000), None), None);
        assert_eq!(pace.look(at(3_000, 3_000), None), Some(Seen::Agreed));
    }

    #[test]
    fn each_step_back_is_told() {
        let (mut pace, _) = begun(0, None);
        assert_eq!(pace.look(at(2_000, 48_000), None), Some(Seen::BackMs(2_999)));
        assert_eq!(pace.look(at(3_000, 49_000), None), None);
        assert_eq!(pace.look(at(4_000, 49_000), None), Some(Seen::BackMs(1_000)));
        // A step back is told also as the end of a refusal.
        assert_eq!(pace.look(at(5_000, 99_000), None), Some(Seen::RefusedMs(48_999)));
        assert_eq!(pace.look(at(6_000, 50_000), None), Some(Seen::BackMs(1_000)));
    }

    #[test]
    fn it_is_due_when_a_third_is_used_up() {
        let (mut pace, _) = begun(0, None);
        assert!(pace.is_due(at(1_000, 0).mono, Timestamp(0)), "nothing is stored yet");
        let target = pace.target(at(1_000, 0).mono, Timestamp(0));
        assert_eq!(target, Timestamp::of_unix_ms(53_000));
        pace.stored(target);
        assert_eq!(pace.bound(), target);
        assert!(!pace.is_due(at(1_999, 0).mono, Timestamp(0)));
        assert!(pace.is_due(at(2_000, 0).mono, Timestamp(0)));
        // The last timestamp handed out may lie ahead of the clock.
        let last = Timestamp::of_unix_ms(52_900);
        assert!(pace.is_due(at(1_500, 0).mono, last));
        assert_eq!(pace.target(at(1_500, 0).mono, last), Timestamp::of_unix_ms(53_500));
    }

    #[test]
    fn a_bound_is_never_lowered() {
        let (mut pace, _) = begun(60_000, None);
        let least = pace.target(at(1_000, 0).mono, Timestamp(0));
        assert_eq!(least, Timestamp::of_unix_ms(60_500));
        pace.stored(Timestamp::of_unix_ms(90_000));
        assert_eq!(pace.target(at(1_000, 0).mono, Timestamp(0)), pace.bound());
    }
}
