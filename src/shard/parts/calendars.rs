//! What a shard knows of calendars: the expressions of its timers, read, and the time by which they
//! go.

use std::collections::BTreeMap;

use crate::base::ids::Slot;
use crate::base::time::Now;
use crate::cluster::calendar_clock::CalendarClock;
use crate::timer::calendar::Calendar;
use crate::timer::calendar_plan::PlanTime;
use crate::wire::attributes::CronTiming;

/// Expressions that are kept read, over all timers of a shard. One has about 200 bytes.
const CALENDARS_MAX: usize = 1_024;

/// The calendars of a shard.
#[derive(Debug)]
pub struct Calendars {
    known: Expressions,
    /// The time by which they go.
    pub clock: CalendarClock,
    /// Where the walk goes on that plans all calendars anew; `None`: there is none.
    pub walk: Option<Slot>,
    skew_max_ms: u64,
}

/// Expressions that were read, by zone and expression.
#[derive(Debug, Default)]
pub struct Expressions(BTreeMap<Box<str>, Option<Calendar>>);

impl Expressions {
    /// The calendar of a timing; `None`: this version cannot read it.
    pub fn of(&mut self, timing: &CronTiming<'_>) -> Option<&Calendar> {
        let name = format!("{} {}", timing.zone, timing.expression);
        if !self.0.contains_key(&*name) {
            if self.0.len() >= CALENDARS_MAX {
                self.0.clear();
            }
            self.0.insert(name.clone().into(), Calendar::kept(timing).ok());
        }
        self.0.get(&*name)?.as_ref()
    }
}

impl Calendars {
    /// No calendars. Two clocks agree when they are at most `skew_max_ms` apart.
    pub fn new(now: Now, skew_max_ms: u64) -> Self {
        let clock = CalendarClock::new(now, skew_max_ms);
        Self { known: Expressions::default(), clock, walk: None, skew_max_ms }
    }

    /// The calendar of a timing; `None`: this version cannot read it.
    pub fn of(&mut self, timing: &CronTiming<'_>) -> Option<&Calendar> {
        self.known.of(timing)
    }

    /// The present, for a timer whose pops come so much later than its moments.
    pub fn time(&self, now: Now, offset_ms: u64) -> PlanTime {
        PlanTime {
            wall_ms: self.clock.wall(now).0,
            offset_ms,
            jumped_to_ms: self.clock.jumped_to().0,
            skew_max_ms: self.skew_max_ms,
        }
    }
}
