//! How many records the background work looks at per tick: as many as the core has time for.
//!
//! A shard knows no load, but it knows when it is given time. While a walk goes on, the core wakes
//! with every tick. A portion that comes later than it was wanted says that the core had something
//! else to do: requests, pops, messages of peers, or another process on the same CPU. So the pace
//! is raised a little after each portion that came on time, and halved after each late one.

use crate::base::time::Tick;

/// Looks per tick that are always allowed, so that every walk ends: a sixteenth of a core.
pub const LOOKS_MIN: u32 = 192;
/// Looks per tick that are never exceeded: a third of a core, because what is offered costs the
/// peer as much. With 150 ns for a look a portion takes at most 0.2 ms, so a pop that comes due
/// meanwhile is not delayed by a whole tick. Twice as many moved a million timers in 6 s in place
/// of 9, and pops were twice as late meanwhile.
pub const LOOKS_MAX: u32 = 1_152;
/// What a portion that came on time adds to the pace: one offer. A free core reaches the highest
/// pace within 60 ms.
const RAISE: u32 = 16;

/// The pace of a shard's background work.
#[derive(Debug)]
pub struct Pace {
    looks: u32,
    /// The tick of the next portion. `None`: the work pauses, so the next portion is never late.
    wanted: Option<Tick>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { looks: LOOKS_MIN, wanted: None }
    }
}

impl Pace {
    /// Begins the portion of `tick` and returns how many looks it may take. `is_behind`: pops that
    /// are due wait for the next tick.
    pub fn begin(&mut self, tick: Tick, is_behind: bool) -> u32 {
        let is_late = self.wanted.is_some_and(|wanted| tick > wanted);
        if is_late || is_behind {
            self.looks = (self.looks / 2).max(LOOKS_MIN);
        } else if self.wanted.is_some() {
            self.looks = (self.looks + RAISE).min(LOOKS_MAX);
        }
        self.wanted = None;
        self.looks
    }

    /// Ends a portion that has taken all its looks in `tick`. The next is wanted a tick later.
    /// A portion that ends otherwise, because nothing is left to do or because too many offers
    /// wait for their results, wants no other.
    pub fn used_up(&mut self, tick: Tick) {
        self.wanted = Some(tick + 1);
    }

    /// Tells that the work pauses for another reason than a lack of time.
    pub fn pause(&mut self) {
        self.wanted = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes portions at `ticks`, each of which uses up its looks. Returns the looks of the last.
    fn looks_after(pace: &mut Pace, ticks: impl IntoIterator<Item = u64>) -> u32 {
        ticks.into_iter().fold(0, |_, tick| {
            let looks = pace.begin(Tick(tick), false);
            pace.used_up(Tick(tick));
            looks
        })
    }

    #[test]
    fn portions_on_time_raise_the_pace_up_to_its_bound() {
        let mut pace = Pace::default();
        assert_eq!(looks_after(&mut pace, [70]), LOOKS_MIN);
        assert_eq!(looks_after(&mut pace, [71]), LOOKS_MIN + RAISE);
        let last = 70 + u64::from((LOOKS_MAX - LOOKS_MIN) / RAISE);
        assert_eq!(looks_after(&mut pace, 72..last), LOOKS_MAX - RAISE);
        assert_eq!(looks_after(&mut pace, last..300), LOOKS_MAX);
    }

    #[test]
    fn a_late_portion_halves_the_pace_down_to_its_floor() {
        let mut pace = Pace::default();
        assert_eq!(looks_after(&mut pace, 70..300), LOOKS_MAX);
        assert_eq!(looks_after(&mut pace, [301]), LOOKS_MAX / 2);
        assert_eq!(looks_after(&mut pace, [400]), LOOKS_MAX / 4, "however late it is");
        assert_eq!(looks_after(&mut pace, (410..500).step_by(10)), LOOKS_MIN);
    }

    #[test]
    fn pops_that_are_behind_halve_the_pace() {
        let mut pace = Pace::default();
        looks_after(&mut pace, 70..300);
        assert_eq!(pace.begin(Tick(300), true), LOOKS_MAX / 2);
        assert_eq!(pace.begin(Tick(301), true), LOOKS_MAX / 4, "after a pause, too");
    }

    #[test]
    fn a_portion_after_a_pause_is_neither_late_nor_on_time() {
        let mut pace = Pace::default();
        let looks = looks_after(&mut pace, 70..100);
        pace.pause();
        assert_eq!(pace.begin(Tick(500), false), looks);
        assert_eq!(pace.begin(Tick(600), false), looks, "the work was done, or offers waited");
    }
}
