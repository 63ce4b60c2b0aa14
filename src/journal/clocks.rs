//! Time across restarts. Timers are due by the monotonic clock, which a boot of the machine resets.
//! Each page has both clocks and the boot. An entry of this boot keeps its time, whatever happened
//! to the wall clock. An entry of an earlier boot is brought over by wall time: by the newest pair
//! of clocks of its boot, because the wall clock may have been set right since the entry was
//! written.
//!
//! A wall clock that shows less than the newest page is not believed: the page was written before.
//! The wall time of that page counts as the present.
//!
//! Nor is a wall clock that shows another distance from the monotonic clock than the newest page of
//! this boot: somebody has set it meanwhile, rightly or not. The clock of calendars goes on from
//! that distance (`cluster::calendar_clock`).

// Reads the wall clock: reboot 7.

use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, TICK_NS, Tick, WallMs};

use super::page::Stamp;

/// The newest pair of clocks of each boot that wrote to the journal, and the present.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// The present boot, with the present time.
    present: Stamp,
    /// How far the wall clock shows less than the newest page, in ms.
    behind_ms: u64,
    boots: Vec<Stamp>,
}

impl Clocks {
    /// The clocks of a journal whose pages have these stamps, at the present. `boot` is the
    /// present boot; 0: the machine does not tell, and every boot counts as an earlier one.
    pub fn new(boot: u64, now: Now, stamps: impl IntoIterator<Item = Stamp>) -> Self {
        let mut boots: Vec<Stamp> = Vec::new();
        for stamp in stamps {
            match boots.iter_mut().find(|known| known.boot == stamp.boot) {
                Some(known) if known.mono < stamp.mono => *known = stamp,
                Some(_) => {}
                None => boots.push(stamp),
            }
        }
        // Of a boot the newest page counts, because a wall clock that was ahead may have been set
        // right since.
        let newest = boots.iter().map(|stamp| stamp.wall).max().unwrap_or(WallMs(0));
        let behind_ms = newest.0.saturating_sub(now.wall.0);
        let wall = now.wall.max(newest);
        Self { present: Stamp { boot, mono: now.mono, wall }, behind_ms, boots }
    }

    /// How far the wall clock shows less than the newest page, in ms. It must count as set forward
    /// by as much until it has caught up.
    pub fn behind_ms(&self) -> u64 {
        self.behind_ms
    }

    /// The least that the wall clock is to show from now on. 0: it is not behind the newest page.
    pub fn least_wall(&self) -> WallMs {
        if self.behind_ms > 0 { self.present.wall } else { WallMs(0) }
    }

    /// How far the wall clock was ahead of the monotonic one when the newest page was written, in
    /// ms. `None`: the machine has booted since.
    pub fn ahead_ms(&self) -> Option<i64> {
        let mut pairs = self.boots.iter().filter(|pair| self.is_present(pair));
        pairs.next().map(|pair| pair.wall.0.wrapping_sub(pair.mono.tick_floor().0) as i64)
    }

    /// Whether a pair of clocks is of the present boot.
    fn is_present(&self, pair: &Stamp) -> bool {
        pair.boot == self.present.boot && pair.boot != 0 && pair.mono <= self.present.mono
    }

    /// A moment of the clock of `boot` on the present clock, never before the true one. `None`: no
    /// page of that boot is known.
    pub fn translate(&self, boot: u64, at: Tick) -> Option<Tick> {
        let pair = self.boots.iter().find(|known| known.boot == boot)?;
        if self.is_present(pair) || is_planted(Bug::JournalKeepsOldBoot) {
            return Some(at);
        }
        // How long before the present the moment was, by the wall clock.
        let since_pair_ms = self.present.wall.0.saturating_sub(pair.wall.0);
        let pair_tick = i128::from(pair.mono.0 / TICK_NS);
        let ago_ms = i128::from(since_pair_ms) + pair_tick - i128::from(at.0);
        let present = i128::from(self.present.mono.0.div_ceil(TICK_NS)) + 1;
        Some(Tick((present - ago_ms).clamp(0, i128::from(u64::MAX)) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::MonoNs;

    const MS: u64 = TICK_NS;

    fn stamp(boot: u64, mono_ms: u64, wall_ms: u64) -> Stamp {
        Stamp { boot, mono: MonoNs(mono_ms * MS), wall: WallMs(wall_ms) }
    }

    fn now(mono_ms: u64, wall_ms: u64) -> Now {
        Now { mono: MonoNs(mono_ms * MS), wall: WallMs(wall_ms) }
    }

    #[test]
    fn times_of_this_boot_stay_whatever_the_wall_clock_does() {
        let stamps = [stamp(1, 1_000, 50_000), stamp(1, 2_000, 9_000)];
        let clocks = Clocks::new(1, now(3_000, 70_000), stamps);
        assert_eq!(clocks.translate(1, Tick(1_500)), Some(Tick(1_500)));
        assert_eq!(clocks.translate(2, Tick(1_500)), None, "no page of that boot");
    }

    #[test]
    fn times_of_another_boot_follow_the_wall_clock() {
        // The machine was down from wall 52 000 to wall 60 000 and booted to 100 ms since.
        let clocks = Clocks::new(2, now(100, 60_000), [stamp(1, 900_000, 52_000)]);
        let due = clocks.translate(1, Tick(910_000)).expect("the boot is known");
        // 10 s after the pair, of which 8 s have passed.
        assert_eq!(due, Tick(100 + 2_000 + 1));
        let due_before_the_boot = clocks.translate(1, Tick(890_000)).expect("known");
        assert_eq!(due_before_the_boot, Tick(0), "the clock of production begins at 30 years");
        let unknown = Clocks::new(0, now(950_000, 60_000), [stamp(0, 900_000, 52_000)]);
        let due = unknown.translate(0, Tick(910_000)).expect("known");
        assert_eq!(due, Tick(952_001), "boots that nobody can tell apart count as different");
    }

    #[test]
    fn the_newest_pair_of_a_boot_counts() {
        // The wall clock was an hour behind when the timer was written, and was set right since.
        let hour = 3_600_000;
        let stamps = [stamp(1, 1_000, hour), stamp(1, 2_000, 2 * hour + 1_000)];
        let clocks = Clocks::new(2, now(500, 2 * hour + 2_000), stamps);
        assert_eq!(clocks.translate(1, Tick(11_000)), Some(Tick(500 + 8_000 + 1)));
    }

    #[test]
    fn a_wall_clock_behind_the_newest_page_is_not_believed() {
        let stamps = [stamp(1, 1_000, 90_000), stamp(1, 500, 50_000)];
        let clocks = Clocks::new(2, now(100, 20_000), stamps);
        assert_eq!(clocks.behind_ms(), 70_000);
        // The present counts as 90 000, the time of the newest pair.
        assert_eq!(clocks.translate(1, Tick(42_000)), Some(Tick(100 + 41_000 + 1)));
    }

    #[test]
    fn a_wall_clock_that_was_ahead_and_was_set_right_leaves_nothing_behind() {
        let hour = 3_600_000;
        let stamps = [stamp(1, 1_000, 2 * hour), stamp(1, 2_000, hour + 1_000)];
        let clocks = Clocks::new(2, now(500, hour + 2_000), stamps);
        assert_eq!(clocks.behind_ms(), 0);
        assert_eq!(clocks.translate(1, Tick(11_000)), Some(Tick(500 + 8_000 + 1)));
    }

    #[test]
    fn only_a_wall_clock_that_is_behind_is_held_up() {
        let hour = 3_600_000;
        let newest = stamp(1, 2_000, hour);
        for (boot, wall_ms, least_ms) in
            [(1, hour - 1, hour), (1, hour, 0), (1, 9 * hour, 0), (2, 1_000, hour)]
        {
            let clocks =
                Clocks::new(boot, now(5_000, wall_ms), [stamp(1, 1_000, 3 * hour), newest]);
            assert_eq!(clocks.least_wall(), WallMs(least_ms), "{boot} {wall_ms}");
        }
        assert_eq!(Clocks::new(1, now(5_000, hour), []).least_wall(), WallMs(0));
    }

    #[test]
    fn within_a_boot_the_newest_page_tells_how_far_the_wall_clock_was_ahead() {
        let stamps = [stamp(1, 1_000, 50_000), stamp(1, 2_000, 9_000), stamp(3, 500, 70_000)];
        let ahead_ms =
            |boot, mono_ms| Clocks::new(boot, now(mono_ms, 3_600_000), stamps).ahead_ms();
        assert_eq!(ahead_ms(1, 3_000), Some(7_000));
        assert_eq!(ahead_ms(1, 1_999), None, "it went backwards: another boot");
        assert_eq!(ahead_ms(2, 3_000), None);
        let unknown = Clocks::new(0, now(3_000, 60_000), [stamp(0, 1_000, 50_000)]);
        assert_eq!(unknown.ahead_ms(), None, "nobody can say that it is the same boot");
    }

    #[test]
    fn a_clock_that_went_backwards_within_a_boot_is_another_boot() {
        let clocks = Clocks::new(1, now(10, 60_000), [stamp(1, 900_000, 52_000)]);
        assert_eq!(clocks.translate(1, Tick(910_000)), Some(Tick(10 + 2_000 + 1)));
    }
}
