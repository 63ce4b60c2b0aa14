//! The wall time by which timers follow the calendar.
//!
//! Whoever sets a wall clock wrong for some seconds would move all calendars: each node would wait
//! for moments of the wrong time. So calendars go by a clock of their own: the monotonic clock, and
//! how far the wall clock is ahead of it. That distance changes only when somebody sets the wall
//! clock. While it is in doubt whether the new time is right, the former distance is *held*:
//!
//! - Most members agree with one of the two times: that one counts, for as long as they do.
//! - Most members agree on a third time: theirs counts.
//! - Nobody knows better (a node alone, clocks that all differ): the former time counts for 30 s
//!   more, then the wall clock is believed. A clock that steps and steps back before leaves no
//!   trace.
//!
//! Whenever the distance has changed, or a doubt is over, the moments of all calendars are planned
//! anew.
//!
//! A process that starts with a journal of the same boot of the machine begins with the distance
//! that the newest page tells. Any other believes the wall clock.

// Reads the wall clock: calendar 1.

use super::wall_clocks::{Stand, stand};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, Tick, WallMs};

/// A change of less is followed at once: nobody reads two clocks at the same moment, and a leap
/// second is no doubt.
const STEP_MS: u64 = 1_500;
/// How long a node that hears no other clock holds the former time.
pub const FOLLOW_AFTER_MS: u64 = 30_000;
/// How often a node with nothing to do looks at its clocks, and how often while it is in doubt.
const LOOK_EVERY_MS: u64 = 5_000;
const LOOK_AGAIN_MS: u64 = 1_000;

/// The clock of calendars.
#[derive(Clone, Debug)]
pub struct CalendarClock {
    /// How far the wall time that counts is ahead of the monotonic clock.
    held_ms: i64,
    /// The same when calendars were planned last.
    planned_ms: i64,
    /// The wall clock that is not believed, and since when.
    doubted: Option<(i64, Tick)>,
    /// The time to which a step forward has led.
    jumped_to: WallMs,
    /// How far the members' wall clocks are ahead of the monotonic clock here.
    others_ms: Vec<i64>,
    /// Room for one judgement.
    scratch: Vec<i64>,
    skew_max_ms: u64,
    looked_at: Tick,
}

/// How far a wall clock is ahead of the monotonic clock.
fn ahead_ms(now: Now) -> i64 {
    now.wall.0.wrapping_sub(now.mono.tick_floor().0) as i64
}

impl CalendarClock {
    /// A clock that believes the wall clock.
    pub fn new(now: Now, skew_max_ms: u64) -> Self {
        let held_ms = ahead_ms(now);
        Self {
            held_ms,
            planned_ms: held_ms,
            doubted: None,
            jumped_to: WallMs(0),
            others_ms: Vec::new(),
            scratch: Vec::new(),
            skew_max_ms,
            looked_at: now.mono.tick_floor(),
        }
    }

    /// Goes on from the distance that a former process knew: whether it was right to set the wall
    /// clock meanwhile is in doubt as if it had been set just now. Returns whether calendars are to
    /// be planned anew.
    pub fn go_on(&mut self, now: Now, held_ms: i64) -> bool {
        (self.held_ms, self.planned_ms) = (held_ms, held_ms);
        self.look(now)
    }

    /// The wall time that counts.
    pub fn wall(&self, now: Now) -> WallMs {
        WallMs(now.mono.tick_floor().0.saturating_add_signed(self.held_ms))
    }

    /// Whether another time counts than the one that the wall clock shows.
    pub fn is_in_doubt(&self) -> bool {
        self.doubted.is_some()
    }

    /// The time to which the last step forward led that was followed. What lies before it and was
    /// not popped then was jumped over. 0: there was none since the clock was last set back.
    pub fn jumped_to(&self) -> WallMs {
        self.jumped_to
    }

    /// Whether a time that counted for another core just now is one that no longer counts: that
    /// core has not looked at its clocks since.
    pub fn is_former(&self, now: Now, counted: WallMs) -> bool {
        let wall = self.wall(now);
        let was_before = counted < self.jumped_to && counted.0 + STEP_MS <= wall.0;
        !self.is_in_doubt() && (was_before || counted.0 >= wall.0 + STEP_MS)
    }

    /// Whether the wall clock shows another time than the one that counts. Cost: a subtraction.
    #[inline]
    pub fn is_off(&self, now: Now) -> bool {
        self.doubted.is_some() || ahead_ms(now).abs_diff(self.held_ms) >= STEP_MS
    }

    /// Takes what the members' wall clocks show at this moment, and looks. Returns whether
    /// calendars are to be planned anew.
    pub fn hear(&mut self, now: Now, walls: impl Iterator<Item = WallMs>) -> bool {
        self.note_look(now);
        let mono_ms = now.mono.tick_floor().0;
        self.others_ms.clear();
        self.others_ms.extend(walls.map(|wall| wall.0.wrapping_sub(mono_ms) as i64));
        self.settle(now)
    }

    /// Looks at both clocks. Returns whether calendars are to be planned anew.
    #[inline]
    pub fn look(&mut self, now: Now) -> bool {
        self.note_look(now);
        if self.is_off(now) {
            return self.settle(now);
        }
        self.held_ms = ahead_ms(now);
        self.has_moved()
    }

    /// Notes that the clocks are looked at. What they showed before a longer pause says nothing of
    /// what they showed meanwhile: the doubt begins anew.
    #[inline]
    fn note_look(&mut self, now: Now) {
        let tick = now.mono.tick_floor();
        if let Some((_, since)) = &mut self.doubted
            && tick - self.looked_at > LOOK_EVERY_MS
        {
            *since = tick;
        }
        self.looked_at = tick;
    }

    /// When the clocks are to be looked at again at the latest.
    pub fn next_look(&self) -> Tick {
        let pause_ms = if self.is_in_doubt() { LOOK_AGAIN_MS } else { LOOK_EVERY_MS };
        self.looked_at + pause_ms
    }

    #[cold]
    fn settle(&mut self, now: Now) -> bool {
        let (shown_ms, tick) = (ahead_ms(now), now.mono.tick_floor());
        if is_planted(Bug::CalendarBelievesEachClock) {
            self.held_ms = shown_ms;
            return self.has_moved();
        }
        let is_apart = shown_ms.abs_diff(self.held_ms) >= STEP_MS;
        let (shown, held) = (self.stand(shown_ms), self.stand(self.held_ms));
        let followed = match (shown, held) {
            (Stand::Among, _) if !is_apart => Some(shown_ms),
            (Stand::Among, Stand::Against(_) | Stand::Unknown) => Some(shown_ms),
            // The monotonic clock and the members say the same.
            (Stand::Against(_) | Stand::Unknown, Stand::Among) => None,
            (Stand::Against(by_ms), _) => Some(shown_ms.saturating_add(by_ms)),
            (Stand::Among, Stand::Among) | (Stand::Unknown, _) => match self.doubted {
                _ if !is_apart => Some(shown_ms),
                Some((doubted_ms, since)) if doubted_ms.abs_diff(shown_ms) < STEP_MS => {
                    (tick - since >= FOLLOW_AFTER_MS).then_some(shown_ms)
                }
                _ => None,
            },
        };
        if let Some(to_ms) = followed {
            self.follow(now, to_ms);
        }
        let is_apart = shown_ms.abs_diff(self.held_ms) >= STEP_MS;
        let known = self.doubted.filter(|(ms, _)| ms.abs_diff(shown_ms) < STEP_MS);
        let was_in_doubt = self.is_in_doubt();
        self.doubted = is_apart.then_some(known.unwrap_or((shown_ms, tick)));
        self.has_moved() || was_in_doubt && !is_apart
    }

    fn follow(&mut self, now: Now, to_ms: i64) {
        if to_ms.abs_diff(self.held_ms) >= STEP_MS {
            let is_forward = to_ms > self.held_ms;
            self.held_ms = to_ms;
            self.jumped_to = if is_forward { self.wall(now) } else { WallMs(0) };
        }
        self.held_ms = to_ms;
    }

    /// Whether the time that counts is another one than calendars were planned by.
    fn has_moved(&mut self) -> bool {
        let has_moved = self.held_ms.abs_diff(self.planned_ms) >= STEP_MS;
        if has_moved {
            self.planned_ms = self.held_ms;
        }
        has_moved
    }

    /// Where a clock stands among the members' that is so far ahead of the monotonic clock.
    fn stand(&mut self, clock_ms: i64) -> Stand {
        let others = self.others_ms.iter();
        self.scratch.clear();
        self.scratch.extend(others.map(|other_ms| other_ms.wrapping_sub(clock_ms)));
        stand(&mut self.scratch, self.skew_max_ms)
    }
}

#[cfg(test)]
#[path = "calendar_clock_tests.rs"]
mod tests;
