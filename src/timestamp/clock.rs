//! The time that timestamps tell: the wall clock, believed within limits.
//!
//! The keeper reads the wall clock through the monotonic clock and an offset, so between two looks
//! no step of the wall clock is followed. A look
//!
//! - takes over a small step forward,
//! - turns a step back, or a start above the wall clock, into half speed until the wall clock has
//!   caught up,
//! - refuses a large step forward, because timestamps cannot be taken back.
//!
//! A large step forward is followed in two cases: it corrects an earlier step back, so that it
//! leads no further than the wall clock was believed before; or another clock, a [`Witness`], tells
//! the same time.

use crate::base::planted::{Bug, is_planted};
use crate::base::time::{MonoNs, Now, WallMs};

/// Nanoseconds in a millisecond. The wall clock is read in whole milliseconds, rounded down.
const MS: u64 = 1_000_000;

/// A clock that any thread can read: wall time plus a lead. The lead shrinks by half of the time
/// that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockLine {
    /// Wall clock minus monotonic clock in nanoseconds. Wraps, so that a wall clock below the
    /// monotonic clock has an offset, too.
    pub wall_offset_ns: u64,
    /// How far this clock was ahead of the wall clock at `ahead_at`, in nanoseconds.
    pub ahead_ns: u64,
    /// When `ahead_ns` was measured.
    pub ahead_at: MonoNs,
}

impl ClockLine {
    /// The clock whose wall time is the monotonic time.
    pub const ZERO: ClockLine = ClockLine { wall_offset_ns: 0, ahead_ns: 0, ahead_at: MonoNs(0) };

    /// How far this clock is ahead of the wall clock at `now`, in nanoseconds.
    #[inline]
    pub const fn ahead_ns(&self, now: MonoNs) -> u64 {
        // At half speed the lead shrinks by half of the time that passes.
        self.ahead_ns.saturating_sub(now.since_ns(self.ahead_at) / 2)
    }

    /// Milliseconds since the Unix epoch, as timestamps tell them at `now`.
    #[inline]
    pub const fn unix_ms(&self, now: MonoNs) -> u64 {
        self.unix_ns(now) / MS
    }

    #[inline]
    const fn unix_ns(&self, now: MonoNs) -> u64 {
        self.wall_ns(now).saturating_add(self.ahead_ns(now))
    }

    /// The wall clock at `now`, as far as this clock follows it, in nanoseconds.
    #[inline]
    const fn wall_ns(&self, now: MonoNs) -> u64 {
        self.wall_offset_ns.wrapping_add(now.0)
    }

    /// The wall clock at `now`, as far as this clock follows it, in milliseconds.
    pub const fn wall_ms(&self, now: MonoNs) -> u64 {
        self.wall_ns(now) / MS
    }
}

/// A time that another clock told: the clock of the `ZooKeeper` servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    /// The time that the other clock told.
    pub told: WallMs,
    /// When the other clock was asked. It told `told` at this instant or later.
    pub asked: MonoNs,
    /// When the answer was here. It told `told` at this instant or earlier. An election of
    /// `ZooKeeper` may lie between both.
    pub heard: MonoNs,
}

impl Witness {
    /// The earliest time that the other clock can tell at `now`. A step that leads beyond it is not
    /// confirmed: if the answer was held up, the other clock may have told its time at the end. The
    /// next answer that comes at once confirms what is right. A witness grows older with the
    /// monotonic clock, so that an old time is never taken for the present.
    pub fn earliest(&self, now: MonoNs) -> WallMs {
        WallMs(self.told.0.saturating_add(now.since_ns(self.heard) / MS))
    }
}

/// What a look at the wall clock found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The wall clock is followed.
    Agreed,
    /// The wall clock was set back by so many milliseconds. Timestamps go on at half speed until
    /// the wall clock has caught up.
    BackMs(u64),
    /// The wall clock is ahead by so many milliseconds, more than the limit. It is not followed.
    RefusedMs(u64),
}

/// The clock of the keeper, which alone follows the wall clock.
#[derive(Clone, Debug)]
pub struct Clock {
    line: ClockLine,
    jump_max_ms: u64,
    /// How far the wall clock is behind the time that was believed before it was set back.
    set_back_ns: u64,
}

impl Clock {
    /// Begins with the wall clock. A wall clock ahead of the witness by more than `jump_max_ms` is
    /// refused, and the clock begins with the witness.
    pub fn start(now: Now, witness: Option<Witness>, jump_max_ms: u64) -> (Self, Seen) {
        let ahead_of = |witness: Witness| now.wall.0.saturating_sub(witness.earliest(now.mono).0);
        let ahead_ms = witness.map_or(0, ahead_of);
        let is_refused = ahead_ms > jump_max_ms && !is_planted(Bug::ClockJumpFollowed);
        let (wall, seen) = match witness {
            Some(witness) if is_refused => (witness.earliest(now.mono), Seen::RefusedMs(ahead_ms)),
            _ => (now.wall, Seen::Agreed),
        };
        let wall_offset_ns = wall.0.saturating_mul(MS).wrapping_sub(now.mono.0);
        let line = ClockLine { wall_offset_ns, ahead_ns: 0, ahead_at: now.mono };
        (Self { line, jump_max_ms, set_back_ns: 0 }, seen)
    }

    /// Compares with the wall clock. The time that timestamps tell never goes back.
    pub fn look(&mut self, now: Now, witness: Option<Witness>) -> Seen {
        let followed_ns = self.line.wall_ns(now.mono);
        // The wall clock is rounded down, so its true reading lies between these two.
        let least_ns = now.wall.0.saturating_mul(MS);
        let most_ns = least_ns.saturating_add(MS - 1);
        if followed_ns < least_ns {
            let step_ms = (least_ns - followed_ns) / MS;
            if self.may_follow(now, step_ms, witness) {
                self.forward(now.mono, least_ns);
            } else {
                // Wall clock and witness agree that it is at least as late as the witness tells.
                let told = witness.map_or(WallMs(0), |witness| witness.earliest(now.mono));
                self.forward(now.mono, told.0.saturating_mul(MS).min(least_ns));
                return Seen::RefusedMs(step_ms);
            }
        } else if let Some(back_ns) = followed_ns.checked_sub(most_ns) {
            self.follow(now.mono, most_ns);
            let step_ms = back_ns / MS;
            // A step back below a millisecond is the usual correction of a clock, and is not
            // reported.
            if step_ms > 0 {
                self.set_back_ns = self.set_back_ns.saturating_add(back_ns);
                return Seen::BackMs(step_ms);
            }
        }
        Seen::Agreed
    }

    /// Whether a wall clock that is `step_ms` ahead of the followed time is believed.
    fn may_follow(&self, now: Now, step_ms: u64, witness: Option<Witness>) -> bool {
        // A step back may have come before this process, which then began ahead of the wall clock.
        // Then the lead counts as believed. A witness makes the lead needless.
        let ahead_ns = if witness.is_none() { self.line.ahead_ns(now.mono) } else { 0 };
        let believed_ms = match is_planted(Bug::CorrectionRefused) {
            true => 0,
            false => self.set_back_ns.max(ahead_ns) / MS,
        };
        let reaches = |ms: u64| now.wall.0 <= ms.saturating_add(self.jump_max_ms);
        step_ms <= self.jump_max_ms.saturating_add(believed_ms)
            || witness.is_some_and(|witness| reaches(witness.earliest(now.mono).0))
            || is_planted(Bug::ClockJumpFollowed)
    }

    fn forward(&mut self, now: MonoNs, wall_ns: u64) {
        let step_ns = wall_ns.saturating_sub(self.line.wall_ns(now));
        if step_ns > 0 {
            self.set_back_ns = self.set_back_ns.saturating_sub(step_ns);
            self.follow(now, wall_ns);
        }
    }

    fn follow(&mut self, now: MonoNs, wall_ns: u64) {
        let told_ns = self.line.unix_ns(now);
        self.line = ClockLine {
            wall_offset_ns: wall_ns.wrapping_sub(now.0),
            ahead_ns: told_ns.saturating_sub(wall_ns),
            ahead_at: now,
        };
    }

    /// Raises the clock to at least `unix_ms`: the time of timestamps that were handed out before
    /// the start.
    pub fn raise(&mut self, now: MonoNs, unix_ms: u64) {
        let wanted_ns = unix_ms.saturating_mul(MS);
        if self.line.unix_ns(now) < wanted_ns {
            self.line.ahead_ns = wanted_ns.saturating_sub(self.line.wall_ns(now));
            self.line.ahead_at = now;
        }
    }

    /// The clock in the form that cores read.
    pub fn line(&self) -> ClockLine {
        self.line
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT_MS: u64 = 10_000;

    fn at(mono_ms: u64, wall_ms: u64) -> Now {
        Now { mono: MonoNs(mono_ms * MS), wall: WallMs(wall_ms) }
    }

    fn started() -> Clock {
        Clock::start(at(1_000, 50_000), None, LIMIT_MS).0
    }

    fn witness(mono_ms: u64, told_ms: u64) -> Option<Witness> {
        let asked = MonoNs(mono_ms * MS);
        Some(Witness { told: WallMs(told_ms), asked, heard: asked })
    }

    #[test]
    fn it_tells_the_wall_clock() {
        let mut clock = started();
        assert_eq!(clock.line().unix_ms(MonoNs(1_000 * MS)), 50_000);
        assert_eq!(clock.look(at(3_000, 52_000), None), Seen::Agreed);
        assert_eq!(clock.line().unix_ms(MonoNs(3_000 * MS)), 52_000);
    }

    #[test]
    fn a_small_step_forward_is_taken_over() {
        let mut clock = started();
        assert_eq!(clock.look(at(2_000, 51_000 + LIMIT_MS), None), Seen::Agreed);
        assert_eq!(clock.line().unix_ms(MonoNs(2_000 * MS)), 51_000 + LIMIT_MS);
    }

    #[test]
    fn a_large_step_forward_is_refused() {
        let mut clock = started();
        let step_ms = LIMIT_MS + 1;
        assert_eq!(clock.look(at(2_000, 51_000 + step_ms), None), Seen::RefusedMs(step_ms));
        assert_eq!(clock.line().unix_ms(MonoNs(2_000 * MS)), 51_000);
        assert_eq!(clock.look(at(3_000, 52_000), None), Seen::Agreed);
    }

    #[test]
    fn a_step_back_never_shows() {
        let mut clock = started();
        assert_eq!(clock.look(at(2_000, 47_000), None), Seen::BackMs(3_999));
        let told = |clock: &Clock, mono_ms: u64| clock.line().unix_ms(MonoNs(mono_ms * MS));
        assert_eq!(told(&clock, 2_000), 51_000);
        // A lead of four seconds takes eight seconds at half speed.
        assert_eq!(told(&clock, 6_000), 53_000);
        assert_eq!(clock.look(at(6_000, 51_000), None), Seen::Agreed);
        assert_eq!(told(&clock, 6_000), 53_000);
        assert_eq!(told(&clock, 10_000), 55_000);
        assert_eq!(told(&clock, 11_000), 56_000);
    }

    #[test]
    fn a_step_forward_shortens_the_lead_first() {
        let mut clock = started();
        clock.raise(MonoNs(1_000 * MS), 53_000);
        assert_eq!(clock.look(at(1_000, 52_000), None), Seen::Agreed);
        assert_eq!(clock.line().unix_ms(MonoNs(1_000 * MS)), 53_000);
        assert_eq!(clock.line().ahead_ns(MonoNs(1_000 * MS)), 1_000 * MS);
    }

    #[test]
    fn a_witness_holds_a_wrong_clock_down() {
        let now = at(1_000, 3_600_000);
        let (clock, seen) = Clock::start(now, witness(1_000, 50_000), LIMIT_MS);
        assert_eq!(seen, Seen::RefusedMs(3_550_000));
        assert_eq!(clock.line().unix_ms(now.mono), 50_000);
        let (clock, seen) = Clock::start(now, witness(1_000, 3_600_000 - LIMIT_MS), LIMIT_MS);
        assert_eq!((clock.line().unix_ms(now.mono), seen), (3_600_000, Seen::Agreed));
    }

    #[test]
    fn a_witness_grows_older() {
        let told = witness(1_000, 50_000).expect("one");
        assert_eq!(told.earliest(MonoNs(1_000 * MS)), WallMs(50_000));
        assert_eq!(told.earliest(MonoNs(61_999 * MS)), WallMs(110_999));
        let now = at(61_000, 110_000 + LIMIT_MS);
        let (clock, seen) = Clock::start(now, Some(told), LIMIT_MS);
        assert_eq!((clock.line().unix_ms(now.mono), seen), (now.wall.0, Seen::Agreed));
    }

    /// An election may hold up the answer. The time may have been told before it, or after it.
    #[test]
    fn what_a_late_answer_leaves_open_moves_no_clock_forward() {
        let late = Witness { heard: MonoNs(31_000 * MS), ..witness(1_000, 50_000).expect("one") };
        let now = at(32_000, 3_600_000);
        assert_eq!(late.earliest(now.mono), WallMs(51_000));
        let (clock, seen) = Clock::start(now, Some(late), LIMIT_MS);
        assert_eq!((clock.line().unix_ms(now.mono), seen), (51_000, Seen::RefusedMs(3_549_000)));
        let mut clock = Clock::start(at(1_000, 20_000), None, LIMIT_MS).0;
        assert!(matches!(clock.look(now, Some(late)), Seen::RefusedMs(_)));
        assert_eq!(clock.line().unix_ms(now.mono), 51_000);
        // Nor does it confirm a step that is within what it leaves open.
        let now = at(33_000, 75_000);
        assert_eq!(clock.look(now, Some(late)), Seen::RefusedMs(23_000));
        assert_eq!(clock.look(now, witness(33_000, 70_000)), Seen::Agreed, "a prompt answer does");
    }

    #[test]
    fn a_step_that_a_witness_confirms_is_followed() {
        let mut clock = started();
        let step = at(2_000, 3_600_000);
        let (least, no) = (3_600_000 - LIMIT_MS, 3_600_000 - LIMIT_MS - 1);
        assert_eq!(clock.look(step, witness(2_000, 50_000)), Seen::RefusedMs(3_549_000));
        assert_eq!(clock.line().unix_ms(step.mono), 51_000);
        assert_eq!(clock.look(step, witness(2_000, no)), Seen::RefusedMs(3_549_000));
        assert_eq!(clock.line().unix_ms(step.mono), no, "that late it is by both");
        assert_eq!(clock.look(step, witness(2_000, least)), Seen::Agreed);
        assert_eq!(clock.line().unix_ms(step.mono), 3_600_000);
        // A witness that does not confirm a small step does not forbid the step.
        assert_eq!(clock.look(at(2_000, 3_601_000), witness(2_000, 0)), Seen::Agreed);
    }

    /// The correction may come late.
    #[test]
    fn a_correction_of_a_step_back_is_followed() {
        for late_ms in [3_000, 600_000] {
            let mut clock = started();
            assert_eq!(clock.look(at(2_000, 11_000), None), Seen::BackMs(39_999));
            let (mono_ms, back_ms) = (2_000 + late_ms, 11_000 + late_ms);
            assert_eq!(clock.look(at(mono_ms, back_ms), None), Seen::Agreed);
            assert_eq!(clock.look(at(mono_ms, back_ms + 40_000), None), Seen::Agreed);
            assert_eq!(clock.line().unix_ms(MonoNs(mono_ms * MS)), back_ms + 40_000);
            // The time before the step back was believed once. A step beyond it is a step like any
            // other.
            let more = at(mono_ms, back_ms + 40_000 + LIMIT_MS + 1);
            assert_eq!(clock.look(more, None), Seen::RefusedMs(LIMIT_MS + 1));
        }
    }

    #[test]
    fn a_correction_leads_no_further_than_what_was_believed_before_and_a_small_step() {
        for (beyond_ms, is_followed) in [(LIMIT_MS, true), (LIMIT_MS + 1, false)] {
            let mut clock = started();
            // Both the step back and the correction come in two parts.
            assert_eq!(clock.look(at(2_000, 31_000), None), Seen::BackMs(19_999));
            assert_eq!(clock.look(at(2_000, 11_000), None), Seen::BackMs(20_000));
            assert_eq!(clock.look(at(202_000, 211_000), None), Seen::Agreed);
            assert_eq!(clock.look(at(202_000, 231_000), None), Seen::Agreed);
            let rest = clock.look(at(202_000, 251_000 + beyond_ms), None);
            assert_eq!(rest == Seen::Agreed, is_followed, "{rest:?}");
        }
    }

    /// The step back came before this process began; only the bound shows it.
    #[test]
    fn a_correction_of_a_clock_that_began_behind_the_bound_is_followed() {
        for (after_ms, is_followed) in [(20_000, true), (20_002, false)] {
            let mut clock = started();
            clock.raise(MonoNs(1_000 * MS), 3_650_000);
            let seen = clock.look(at(1_000 + after_ms, 3_650_000 + after_ms), None);
            assert_eq!(seen == Seen::Agreed, is_followed, "{seen:?}");
        }
    }

    #[test]
    fn a_wall_clock_below_the_monotonic_one_and_an_absurd_bound_are_survived() {
        let now = at(5_000, 1);
        let (mut clock, _) = Clock::start(now, None, LIMIT_MS);
        assert_eq!(clock.line().unix_ms(MonoNs(6_000 * MS)), 1_001);
        clock.raise(now.mono, i64::MAX as u64);
        assert_eq!(clock.line().unix_ms(now.mono), u64::MAX / MS);
        clock.look(at(6_000, u64::MAX), None);
        clock.look(at(7_000, 0), None);
    }

    proptest! {
        #[test]
        fn no_clock_ever_goes_back(looks in prop::collection::vec(
            (0u64..5_000, -8_000i64..8_000, any::<bool>()), 1..50,
        )) {
            let (mut mono_ms, mut wall_ms) = (1_000, 1_000_000u64);
            let (mut clock, _) = Clock::start(at(mono_ms, wall_ms), None, LIMIT_MS);
            let mut told_ms = clock.line().unix_ms(MonoNs(mono_ms * MS));
            for (pass_ms, step_ms, is_raise) in looks {
                mono_ms += pass_ms;
                wall_ms = (wall_ms + pass_ms).saturating_add_signed(step_ms);
                let now = at(mono_ms, wall_ms);
                let before_ms = clock.line().unix_ms(now.mono);
                // The clock runs at least at half speed and at most at full speed.
                prop_assert!(before_ms >= told_ms + pass_ms / 2);
                prop_assert!(before_ms <= told_ms + pass_ms + 1);
                if is_raise {
                    clock.raise(now.mono, before_ms + 500);
                }
                clock.look(now, None);
                told_ms = clock.line().unix_ms(now.mono);
                prop_assert!(told_ms >= before_ms);
                prop_assert!(told_ms + 1 >= wall_ms, "no step here is refused");
            }
        }
    }
}
