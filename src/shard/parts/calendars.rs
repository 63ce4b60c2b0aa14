//! The cron expressions of a shard's timers, read.

use std::collections::BTreeMap;

use crate::timer::calendar::Calendar;
use crate::wire::attributes::CronTiming;

/// Expressions that are kept read, over all timers of a shard. One has about 200 bytes.
const CALENDARS_MAX: usize = 1_024;

/// Expressions that were read, by zone and expression.
#[derive(Debug, Default)]
pub struct Calendars {
    known: BTreeMap<Box<str>, Option<Calendar>>,
}

impl Calendars {
    /// The calendar of a timing; `None`: this version cannot read it.
    pub fn of(&mut self, timing: &CronTiming<'_>) -> Option<&Calendar> {
        let name = format!("{} {}", timing.zone, timing.expression);
        if !self.known.contains_key(&*name) {
            if self.known.len() >= CALENDARS_MAX {
                self.known.clear();
            }
            self.known.insert(name.clone().into(), Calendar::kept(timing).ok());
        }
        self.known.get(&*name)?.as_ref()
    }
}
