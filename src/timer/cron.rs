//! The search for the next or the last time that a clock shows and an expression has. No zones: see
//! [`super::calendar`].
//!
//! Whatever the expression, a search is short. Within a day it looks at three sets. For a date it
//! looks at months, and only at months that the expression has: the days of a month are made of a
//! few sets at once. A year has one of fourteen forms (leap or not, and the weekday on which it
//! begins), so a year of a form in which the search found nothing is passed over. That makes at
//! most fourteen whole years and what is left of the first one.

use jiff::civil::{Date, DateTime, Time};

use super::cron_text::{Days, EACH_WEEK, Expression, YEARS};

/// Most months that one search looks at: the one where it begins, what is left of that year, and a
/// year of each form.
#[cfg(test)]
const STEPS_MAX: u32 = 1 + 12 + FORMS * 12;

/// The forms of years: common years by the weekday on which they begin, then leap years.
const FORMS: u32 = 14;
/// Days of a common year before each month.
const DAYS_BEFORE: [u16; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

/// Where a search goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// To later times.
    Ahead,
    /// To earlier times.
    Back,
}

impl Way {
    /// The nearest number of a set from `from` on.
    fn nearest(self, set: u64, from: u32) -> Option<u32> {
        match self {
            Way::Ahead => {
                let rest = set.checked_shr(from)?;
                (rest != 0).then(|| from + rest.trailing_zeros())
            }
            Way::Back => {
                let rest = set & (u64::MAX >> 63_u32.saturating_sub(from));
                rest.checked_ilog2()
            }
        }
    }

    /// The nearest number of a set behind `at`.
    fn beyond(self, set: u64, at: u32) -> Option<u32> {
        match self {
            Way::Ahead => self.nearest(set, at + 1),
            Way::Back => self.nearest(set, at.checked_sub(1)?),
        }
    }

    /// The number of a set that the search meets first.
    fn first(self, set: u64) -> Option<u32> {
        self.nearest(set, self.begin())
    }

    /// Where a set begins.
    fn begin(self) -> u32 {
        match self {
            Way::Ahead => 0,
            Way::Back => 63,
        }
    }
}

/// The form of a year.
#[derive(Clone, Copy)]
struct Form {
    is_leap: bool,
    /// The weekday of 1 January, from Sunday on.
    begins: u32,
}

impl Form {
    fn of(year: i16) -> Self {
        let before = i32::from(year) - 1;
        let leaps = before / 4 - before / 100 + before / 400;
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        Self { is_leap, begins: ((1 + before + leaps) % 7) as u32 }
    }

    fn bit(self) -> u16 {
        1 << (self.begins + if self.is_leap { FORMS / 2 } else { 0 })
    }

    /// The weekday on which a month begins, and how many days the month has.
    fn month(self, month: u32) -> (u32, u32) {
        let before = |at: u32| DAYS_BEFORE.get(at as usize).map_or(365, |days| u32::from(*days));
        let (begins, ends) = (before(month - 1), before(month));
        let leap = u32::from(self.is_leap);
        let begins_at = self.begins + begins + if month > 2 { leap } else { 0 };
        (begins_at % 7, ends - begins + if month == 2 { leap } else { 0 })
    }
}

impl Days {
    /// The days of a month that begins on this weekday and has so many days.
    fn of(&self, (begins, length): (u32, u32)) -> u64 {
        let all: u64 = (2 << length) - 2;
        let weekday = |day: u32| (begins + day - 1) % 7;
        let mut numbers = u64::from(self.by_number) & all;
        if self.has_last {
            numbers |= 1 << length;
        }
        if self.has_last_working {
            numbers |= 1 << nearest_working(length, weekday(length), length);
        }
        let mut nearest = u64::from(self.nearest) & all;
        while let Some(day) = Way::Ahead.first(nearest) {
            numbers |= 1 << nearest_working(day, weekday(day), length);
            nearest &= nearest - 1;
        }
        let mut weekdays = 0;
        for (of_week, days) in (0..).zip(self.by_weekday) {
            let first = 1 + (of_week + 7 - begins) % 7;
            weekdays |= u64::from(days) << first;
            if self.last >> of_week & 1 == 1 {
                let last = Way::Back.nearest(u64::from(EACH_WEEK) << first & all, length);
                weekdays |= last.map_or(0, |last| 1 << last);
            }
        }
        match self.needs_both {
            true => numbers & weekdays,
            false => (numbers | weekdays) & all,
        }
    }
}

/// The working day of the same month that is nearest to a day.
fn nearest_working(day: u32, weekday: u32, length: u32) -> u32 {
    match weekday {
        6 if day > 1 => day - 1,
        6 => day + 2,
        0 if day < length => day + 1,
        0 => day - 2,
        _ => day,
    }
}

impl Expression {
    /// The nearest hour, minute and second of a day, from these on.
    fn time_from(&self, way: Way, [hour, minute, second]: [u32; 3]) -> Option<[u32; 3]> {
        if way.nearest(self.hours, hour) == Some(hour) {
            if way.nearest(self.minutes, minute) == Some(minute)
                && let Some(second) = way.nearest(self.seconds, second)
            {
                return Some([hour, minute, second]);
            }
            if let Some(minute) = way.beyond(self.minutes, minute) {
                return Some([hour, minute, way.first(self.seconds)?]);
            }
        }
        let hour = way.beyond(self.hours, hour)?;
        Some([hour, way.first(self.minutes)?, way.first(self.seconds)?])
    }
}

/// Searches for times of one expression, each from where the one before left off or from further
/// on.
pub struct Search<'c> {
    cron: &'c Expression,
    way: Way,
    /// The last year that is looked at.
    last_year: i16,
    /// The forms of years in which there is no date.
    empty: u16,
    /// Months that were looked at.
    pub steps: u32,
}

impl<'c> Search<'c> {
    /// A search that begins in a year, and looks at no more than so many years ahead, and at none
    /// beyond [`YEARS`].
    pub fn new(cron: &'c Expression, way: Way, (year, years_ahead): (i16, i16)) -> Self {
        let last_year = match way {
            Way::Ahead => year.saturating_add(years_ahead).min(YEARS.1),
            Way::Back => YEARS.0,
        };
        Self { cron, way, last_year, empty: 0, steps: 0 }
    }

    /// Where the search goes.
    pub fn way(&self) -> Way {
        self.way
    }

    /// The nearest time from this one on, whose parts of a second do not count.
    pub fn from(&mut self, at: DateTime) -> Option<DateTime> {
        let way = self.way;
        let [month, day] = [at.month(), at.day()].map(|part| part.unsigned_abs().into());
        let time = [at.hour(), at.minute(), at.second()].map(|part| part.unsigned_abs().into());
        let date = self.date_from(at.year(), month, Some(day))?;
        if date == at.date() {
            if let Some(time) = self.cron.time_from(way, time) {
                return on(date, time);
            }
            let beyond = match way {
                Way::Ahead => Some(day + 1),
                Way::Back => day.checked_sub(1),
            };
            let date = self.date_from(at.year(), month, beyond)?;
            return on(date, self.edge()?);
        }
        on(date, self.edge()?)
    }

    /// The time of a day that the search meets first.
    fn edge(&self) -> Option<[u32; 3]> {
        let (way, cron) = (self.way, self.cron);
        Some([way.first(cron.hours)?, way.first(cron.minutes)?, way.first(cron.seconds)?])
    }

    /// The nearest date from this one on. `None` for the day: none of this month.
    fn date_from(&mut self, year: i16, month: u32, day: Option<u32>) -> Option<Date> {
        let (mut year, mut from, mut is_whole) = (year, Some((month, day)), false);
        match self.way {
            Way::Ahead if year < YEARS.0 => (year, from) = (YEARS.0, None),
            Way::Back if year > YEARS.1 => (year, from) = (YEARS.1, None),
            _ => {}
        }
        loop {
            let is_beyond = match self.way {
                Way::Ahead => year > self.last_year,
                Way::Back => year < self.last_year,
            };
            if is_beyond {
                return None;
            }
            let form = Form::of(year);
            if self.cron.years.has(year) && self.empty & form.bit() == 0 {
                if let Some((month, day)) = self.in_year(form, from) {
                    return Date::new(year, month as i8, day as i8).ok();
                }
                self.empty |= if is_whole { form.bit() } else { 0 };
            }
            (from, is_whole) = (None, true);
            year += if self.way == Way::Ahead { 1 } else { -1 };
        }
    }

    /// The nearest month and day of a year, from a date on or at all.
    fn in_year(&mut self, form: Form, from: Option<(u32, Option<u32>)>) -> Option<(u32, u32)> {
        let (way, cron) = (self.way, self.cron);
        let mut next = match from {
            Some((month, _)) => way.nearest(cron.months, month),
            None => way.first(cron.months),
        };
        while let Some(month) = next {
            self.steps += 1;
            let days = cron.days.of(form.month(month));
            let day = match from {
                Some((first, day)) if first == month => day.and_then(|it| way.nearest(days, it)),
                _ => way.first(days),
            };
            if let Some(day) = day {
                return Some((month, day));
            }
            next = way.beyond(cron.months, month);
        }
        None
    }
}

fn on(date: Date, time: [u32; 3]) -> Option<DateTime> {
    let [hour, minute, second] = time.map(|part| part as i8);
    Time::new(hour, minute, second, 0).ok().map(|time| date.to_datetime(time))
}

#[cfg(test)]
#[path = "cron_tests.rs"]
pub(super) mod tests;
