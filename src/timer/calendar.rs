//! When a timer pops that follows the calendar: a cron expression ([`Expression`]) in a time zone.
//!
//! The rules of zones are those of the IANA database that this program is built with, so that all
//! nodes of one version agree whatever their systems have.
//!
//! When the clocks of a zone change, some times of the day are left out or shown twice:
//!
//! - An expression whose seconds, minutes and hours have no `*` is *fixed*: each of its times comes
//!   once a day. A time that is left out comes at the change, and a time that is shown twice comes
//!   when it is shown first. So the expression is searched on a clock that never changes, and what
//!   is found there is looked up in the zone.
//! - Any other expression follows the time that passes. A time that is left out does not come, and
//!   a time that is shown twice comes twice.
//!
//! A search is short whatever the expression and the zone: see [`super::cron`], and
//! [`CHANGES_MAX`].

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, Zoned};

use super::cron::{Search, Way};
use super::cron_text::{Expression, Reading};
use crate::base::limits::INTERVAL_MS_MAX;
use crate::wire::attributes::CronTiming;

/// How many years ahead a moment is looked for, as far as intervals go. A 29 February that is a
/// Monday comes within 40 years, across the year 2100.
const YEARS_AHEAD: i16 = 100;
/// No clock shows times that differ more than this: offsets lie between -12 h and +14 h.
const OFFSETS: SignedDuration = SignedDuration::from_hours(26);
const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// How many changes of a clock a search passes over. Each may leave out the time that was found. A
/// zone leaves out times once a year, twice where it goes by the moon.
const CHANGES_MAX: u32 = 2 * (YEARS_AHEAD as u32 + 1);

/// A pop that is at most so late is made, whatever its client allows: the one before may have been
/// tried until then, and other ranks pop some seconds late.
pub const LATE_MS: u64 = 10_000;

/// Why there is no calendar.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CalendarError {
    /// The expression is none.
    #[error("timing.cron: expected an expression of five to seven fields, {0}")]
    Expression(Box<str>),
    /// The zone is not in the database.
    #[error("timing.time-zone: expected a zone of the IANA database as Europe/London, got {0}")]
    Zone(Box<str>),
    /// The expression names no moment in the years that are looked at.
    #[error(
        "timing.cron: expected an expression that fires, got one that does not within \
         {YEARS_AHEAD} years"
    )]
    Never,
}

/// An expression in its zone.
#[derive(Clone, Debug)]
pub struct Calendar {
    expression: Expression,
    zone: TimeZone,
}

impl Calendar {
    /// Reads an expression and the name of a zone.
    pub fn parse(expression: &str, zone: &str) -> Result<Self, CalendarError> {
        Self::read(expression, zone, Reading::Strict)
    }

    /// Reads an expression and a zone of a timer that was taken, maybe by a former version.
    pub fn kept(timing: &CronTiming<'_>) -> Result<Self, CalendarError> {
        Self::read(timing.expression, timing.zone, Reading::Kept)
    }

    fn read(expression: &str, name: &str, reading: Reading) -> Result<Self, CalendarError> {
        let expression = Expression::parse(expression, reading);
        let expression =
            expression.map_err(|wrong| CalendarError::Expression(wrong.to_string().into()))?;
        let zone = TimeZoneDatabase::bundled().get(name);
        let zone = zone.map_err(|_| CalendarError::Zone(shortened(name)))?;
        Ok(Self { expression, zone })
    }

    /// The first moment after `wall_ms` at which a timer pops. `None`: it does not.
    pub fn next_of(&self, timing: &CronTiming<'_>, wall_ms: u64) -> Option<u64> {
        let next_ms = self.next_after(wall_ms)?;
        timing.end_ms.is_none_or(|end_ms| next_ms <= end_ms).then_some(next_ms)
    }

    /// The latest moment of a timing that has come at `wall_ms`; its own, if none has come since.
    pub fn latest(&self, timing: &CronTiming<'_>, wall_ms: u64) -> u64 {
        let until_ms = timing.end_ms.unwrap_or(wall_ms).min(wall_ms);
        let found = moment(until_ms, &self.zone).and_then(|until| self.at_or_before(&until));
        found.filter(|found_ms| *found_ms <= until_ms).unwrap_or(0).max(timing.due_ms)
    }

    /// The first moment after `wall_ms`, in ms since 1970. `None`: there is none within the years
    /// that are looked at.
    pub fn next_after(&self, wall_ms: u64) -> Option<u64> {
        let after = moment(wall_ms, &self.zone)?;
        let next_ms = self.found(&mut self.search(Way::Ahead, &after), &after)?;
        // A search that does not go on would pop for ever at one moment.
        (next_ms > wall_ms && next_ms - wall_ms <= INTERVAL_MS_MAX).then_some(next_ms)
    }

    /// The latest moment that has come.
    fn at_or_before(&self, until: &Zoned) -> Option<u64> {
        self.found(&mut self.search(Way::Back, until), until)
    }

    fn search(&self, way: Way, from: &Zoned) -> Search<'_> {
        Search::new(&self.expression, way, (from.year(), YEARS_AHEAD + 1))
    }

    /// The nearest moment after a time, or up to it.
    fn found(&self, search: &mut Search<'_>, from: &Zoned) -> Option<u64> {
        match self.expression.is_fixed() {
            true => self.fixed(search, from),
            false => self.passing(search, from),
        }
        .and_then(ms_of)
    }

    /// The nearest moment of a fixed expression.
    fn fixed(&self, search: &mut Search<'_>, from: &Zoned) -> Option<Timestamp> {
        // What is shown for the second time has come.
        let shown = match (search.way(), repeated_until(from)) {
            (Way::Ahead, Some(end)) => end,
            (Way::Ahead, None) => from.datetime().checked_add(SECOND).ok()?,
            (Way::Back, Some(end)) => end.checked_sub(SECOND).ok()?,
            (Way::Back, None) => from.datetime(),
        };
        first_shown(search.from(shown)?, &self.zone)
    }

    /// The nearest moment of an expression that follows the time that passes.
    fn passing(&self, search: &mut Search<'_>, from: &Zoned) -> Option<Timestamp> {
        let (way, second) = (search.way(), Timestamp::from_second(from.timestamp().as_second()));
        let mut at = match way {
            Way::Ahead => second.ok()?.checked_add(SECOND).ok()?,
            Way::Back => second.ok()?,
        };
        // Near a change of the clock a time may be shown again that the search has passed: it goes
        // from change to change, and looks at what the clock shows between them.
        for _ in 0..CHANGES_MAX {
            let offset = self.zone.to_offset(at);
            let shown = search.from(offset.to_datetime(at))?;
            let found = offset.to_timestamp(shown).ok()?;
            let change = match way {
                Way::Ahead => self.zone.following(at).next().map(|change| change.timestamp()),
                Way::Back => last_change(at, &self.zone),
            };
            let Some(change) = change else { return Some(found) };
            match way {
                Way::Ahead if found < change => return Some(found),
                Way::Back if found >= change => return Some(found),
                _ if change.duration_since(at).abs() > OFFSETS => return self.shown(search, shown),
                Way::Ahead => at = change,
                Way::Back => at = change.checked_sub(SECOND).ok()?,
            }
        }
        None
    }

    /// The moment of a time that the search has found, or of the next one that the clock shows.
    fn shown(&self, search: &mut Search<'_>, mut shown: DateTime) -> Option<Timestamp> {
        for _ in 0..CHANGES_MAX {
            let offset = match (search.way(), self.zone.to_ambiguous_timestamp(shown).offset()) {
                (_, AmbiguousOffset::Unambiguous { offset }) => offset,
                (Way::Ahead, AmbiguousOffset::Fold { before, .. }) => before,
                (Way::Back, AmbiguousOffset::Fold { after, .. }) => after,
                (way, AmbiguousOffset::Gap { before, after }) => {
                    let change = last_change(before.to_timestamp(shown).ok()?, &self.zone)?;
                    let goes_on = match way {
                        Way::Ahead => after.to_datetime(change),
                        Way::Back => before.to_datetime(change).checked_sub(SECOND).ok()?,
                    };
                    shown = search.from(goes_on)?;
                    continue;
                }
            };
            return offset.to_timestamp(shown).ok();
        }
        None
    }
}

fn moment(wall_ms: u64, zone: &TimeZone) -> Option<Zoned> {
    let at = Timestamp::from_millisecond(i64::try_from(wall_ms).ok()?).ok()?;
    Some(at.to_zoned(zone.clone()))
}

fn ms_of(at: Timestamp) -> Option<u64> {
    u64::try_from(at.as_millisecond()).ok()
}

/// The moment at which the clock of a zone shows a time first. Of a time that the clock leaves out:
/// the moment at which the clock changes.
fn first_shown(shown: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(shown).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(shown).ok(),
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(shown).ok(),
        // By the clock of before, the time lies behind the change.
        AmbiguousOffset::Gap { before, .. } => last_change(before.to_timestamp(shown).ok()?, zone),
    }
}

/// The end of the times that a clock shows again, if it shows one of them for the second time.
fn repeated_until(at: &Zoned) -> Option<DateTime> {
    let zone = at.time_zone();
    match zone.to_ambiguous_timestamp(at.datetime()).offset() {
        AmbiguousOffset::Fold { before, after } if at.offset() == after => {
            Some(before.to_datetime(last_change(at.timestamp(), zone)?))
        }
        _ => None,
    }
}

/// The last moment up to `at` at which a zone's clock changed.
fn last_change(at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let behind = at.checked_add(SignedDuration::from_nanos(1)).ok()?;
    zone.preceding(behind).next().map(|change| change.timestamp())
}

fn shortened(text: &str) -> Box<str> {
    text.chars().take(100).map(|c| if (' '..='~').contains(&c) { c } else { '?' }).collect()
}

#[cfg(test)]
#[path = "calendar_tests.rs"]
mod tests;
