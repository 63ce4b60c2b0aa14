//! Which moment of a calendar a timer pops at next.
//!
//! The plan is fixed: each pop comes at a moment of the expression, plus the same share of the
//! window each time. It never depends on when the pop before came, however late that was. What a
//! pop that comes late can do is to leave out those behind it.

use crate::base::planted::{Bug, is_planted};
use crate::wire::attributes::CronTiming;

use super::calendar::{Calendar, LATE_MS};

/// Most moments left out that are counted at once. Each costs a search.
const COUNTED_MAX: u64 = 32;

/// The present, as a plan sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanTime {
    /// The time by which calendars go, in ms since 1970.
    pub wall_ms: u64,
    /// How much later than a moment its pop comes.
    pub offset_ms: u64,
    /// Where the last step of that time led that was followed: moments before it were jumped over.
    pub jumped_to_ms: u64,
    /// A moment that is further ahead of the present than this cannot have been popped: it was
    /// planned by a clock that was wrong.
    pub skew_max_ms: u64,
}

/// What a timer does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The moment of the next pop, without the offset.
    pub due_ms: u64,
    /// How many moments are left out before it, as far as they are counted.
    pub left_out: u64,
}

impl PlanTime {
    /// The moments up to this one have had their time.
    fn passed_ms(&self) -> u64 {
        self.wall_ms.saturating_sub(self.offset_ms)
    }

    /// The latest pop of a timing whose time has come; its own, if none has come since.
    pub fn latest(&self, calendar: &Calendar, timing: &CronTiming<'_>) -> u64 {
        calendar.latest(timing, self.passed_ms())
    }

    /// The pop after the one at `timing.due_ms`, which is over. `None`: there is none.
    pub fn after_pop(&self, calendar: &Calendar, timing: &CronTiming<'_>) -> Option<Planned> {
        let over_ms = match timing.due_ms > self.passed_ms().saturating_add(self.skew_max_ms) {
            true => self.passed_ms(),
            false => timing.due_ms,
        };
        self.after(calendar, timing, over_ms)
    }

    /// The next pop, where the one at `timing.due_ms` was planned before the time changed. `None`:
    /// there is none.
    pub fn anew(&self, calendar: &Calendar, timing: &CronTiming<'_>) -> Option<Planned> {
        // What came in the last minute may have been popped, before the time was set back.
        let latest_ms = calendar.next_after(self.passed_ms().saturating_add(self.skew_max_ms));
        let over_ms = match latest_ms.is_some_and(|latest_ms| timing.due_ms > latest_ms) {
            true => self.passed_ms(),
            false => timing.due_ms.saturating_sub(1),
        };
        self.after(calendar, timing, over_ms)
    }

    fn after(&self, calendar: &Calendar, timing: &CronTiming<'_>, over_ms: u64) -> Option<Planned> {
        let catch_up_ms = match timing.catch_up_ms {
            _ if is_planted(Bug::CalendarMakesUpForAll) => u64::MAX,
            _ if is_planted(Bug::CalendarMakesUpForNothing) => 0,
            catch_up_ms => catch_up_ms.max(LATE_MS),
        };
        // What is missed for long is left out.
        let missed_ms = self.passed_ms().saturating_sub(catch_up_ms.saturating_add(1));
        let mut since_ms = over_ms.max(missed_ms);
        // Nobody knows whether there was time in which the clock jumped: that comes as one pop.
        let jumped_to_ms = self.jumped_to_ms.saturating_sub(self.offset_ms);
        if since_ms < jumped_to_ms && !is_planted(Bug::CalendarMakesUpForJumps) {
            let none = CronTiming { due_ms: 0, ..*timing };
            let latest_ms = calendar.latest(&none, jumped_to_ms);
            since_ms = since_ms.max(latest_ms.saturating_sub(1));
        }
        let due_ms = calendar.next_of(timing, since_ms)?;
        let left_out = match since_ms > over_ms {
            true => {
                let after = |ms: &u64| calendar.next_after(*ms);
                let moments = std::iter::successors(calendar.next_after(over_ms), after);
                moments.take(COUNTED_MAX as usize).take_while(|ms| *ms < due_ms).count() as u64
            }
            false => 0,
        };
        Some(Planned { due_ms, left_out })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;
    /// 15 January 2027, 08:00 UTC.
    const NOW_MS: u64 = 1_800_000_000_000;

    fn planned(
        expression: &str,
        due_ms: u64,
        time: PlanTime,
        plan: fn(&PlanTime, &Calendar, &CronTiming<'_>) -> Option<Planned>,
    ) -> (i64, u64) {
        let calendar = Calendar::parse(expression, "UTC").expect("a calendar");
        let timing = CronTiming {
            expression,
            zone: "UTC",
            due_ms,
            done: 0,
            catch_up_ms: 60_000,
            end_ms: None,
        };
        let Planned { due_ms, left_out } = plan(&time, &calendar, &timing).expect("it goes on");
        (due_ms as i64 - time.wall_ms as i64, left_out)
    }

    fn at(wall_ms: u64, offset_ms: u64) -> PlanTime {
        PlanTime { wall_ms, offset_ms, jumped_to_ms: 0, skew_max_ms: 60_000 }
    }

    const EACH_SECOND: &str = "* * * * * *";
    const EACH_MINUTE: &str = "* * * * *";

    #[test]
    fn each_pop_comes_at_its_moment_of_the_plan_whatever_the_offset() {
        for offset_ms in [0, 900, 3_600, 59_900, 3 * HOUR_MS] {
            for late_ms in [0, 400, 4_700] {
                let due_ms = NOW_MS - 60_000;
                let time = at(due_ms + offset_ms + late_ms, offset_ms);
                let (ahead_ms, left_out) = planned(EACH_SECOND, due_ms, time, PlanTime::after_pop);
                let next_ms = (time.wall_ms as i64 + ahead_ms) as u64;
                assert_eq!((next_ms, left_out), (due_ms + 1_000, 0), "{offset_ms} {late_ms}");
            }
        }
    }

    #[test]
    fn what_is_left_out_is_counted_up_to_a_bound() {
        let long_ago = |minutes: u64| NOW_MS - minutes * 60_000;
        let time = at(NOW_MS + 500, 0);
        let after = |minutes| planned(EACH_MINUTE, long_ago(minutes), time, PlanTime::after_pop);
        assert_eq!(after(1), (-500, 0));
        assert_eq!(after(4), (-500, 3), "but for what is 60 s late");
        assert_eq!(after(10_000), (-500, 32));
    }

    #[test]
    fn what_a_clock_jumps_over_comes_as_one_pop() {
        let landed = NOW_MS + HOUR_MS + 700;
        let time = PlanTime { jumped_to_ms: landed, ..at(landed + 50, 0) };
        let due_ms = NOW_MS + 1_000;
        assert_eq!(planned(EACH_SECOND, due_ms, time, PlanTime::anew).0, -750);
        assert_eq!(planned(EACH_SECOND, due_ms, time, PlanTime::after_pop).0, -750);
        let next = NOW_MS + HOUR_MS;
        assert_eq!(planned(EACH_SECOND, next, time, PlanTime::after_pop), (250, 0));
        // A daily one that was jumped over just now is made up for, one of half an hour ago is not.
        let daily = "0 0 9 * * *";
        assert_eq!(planned(daily, NOW_MS + HOUR_MS, time, PlanTime::anew), (-750, 0));
        let later = PlanTime { jumped_to_ms: landed, ..at(landed + HOUR_MS / 2, 0) };
        assert!(planned(daily, NOW_MS + HOUR_MS, later, PlanTime::anew).0 > 22 * 3_600_000);
    }

    #[test]
    fn a_clock_that_is_set_back_by_an_hour_silences_nothing() {
        let time = at(NOW_MS + 200, 0);
        for ahead_ms in [HOUR_MS, 400 * 24 * HOUR_MS] {
            let due_ms = NOW_MS + ahead_ms;
            assert_eq!(planned(EACH_SECOND, due_ms, time, PlanTime::anew), (800, 0));
            assert_eq!(planned(EACH_SECOND, due_ms, time, PlanTime::after_pop), (800, 0));
        }
    }

    #[test]
    fn what_was_popped_before_a_small_step_back_is_not_popped_again() {
        // The pop of 08:00 was made; then the clock was set back by 2 s.
        let (time, day) = (at(NOW_MS - 2_000, 0), 24 * HOUR_MS);
        let daily = "0 0 8 * * *";
        let tomorrow = (day as i64 + 2_000, 0);
        assert_eq!(planned(daily, NOW_MS, time, PlanTime::after_pop), tomorrow);
        assert_eq!(planned(daily, NOW_MS + day, time, PlanTime::anew), tomorrow);
        // By an hour: the clock was wrong, and 08:00 is still to come.
        let time = at(NOW_MS - HOUR_MS, 0);
        assert_eq!(planned(daily, NOW_MS + day, time, PlanTime::anew), (HOUR_MS as i64, 0));
    }
}
