//! When a timer pops that follows the calendar: a cron expression in a time zone.
//!
//! The expressions are those of the crate `croner` (the Open Cron Pattern Specification,
//! <https://github.com/open-source-cron/ocps>). The rules of zones are those of the IANA database
//! that this program is built with, so that all nodes of one version agree whatever their systems
//! have.
//!
//! When the clocks of a zone change, some times of the day are left out or shown twice:
//!
//! - An expression whose seconds, minutes and hours have no `*` is *fixed*: each of its times comes
//!   once a day. A time that is left out comes at the change, and a time that is shown twice comes
//!   when it is shown first. So the expression is searched on a clock that never changes (UTC's),
//!   and what is found there is looked up in the zone.
//! - Any other expression follows the time that passes: `croner` walks along the zone's clock, and
//!   leaves out and repeats what that clock does.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, Zoned};

use crate::wire::attributes::{CRON_BYTES_MAX, CronTiming};

/// How many years ahead a moment is looked for: two turns of the calendar of weekdays, so that a 29
/// February that is a Monday is found across the year 2100. A search in vain takes 0.5 ms.
const YEARS_AHEAD: i16 = 60;

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
    cron: Cron,
    zone: TimeZone,
    /// Whether each of its times comes once a day, whatever the clocks of the zone do.
    is_fixed: bool,
}

impl Calendar {
    /// Reads an expression and the name of a zone. `wall_ms` is the present; the years from it on
    /// are looked at. Cost: some 20 us.
    pub fn parse(expression: &str, zone: &str, wall_ms: u64) -> Result<Self, CalendarError> {
        let name = zone;
        let zone = TimeZoneDatabase::bundled().get(name);
        let zone = zone.map_err(|_| CalendarError::Zone(shortened(name)))?;
        let year = moment(wall_ms, &zone).map_or(1970, |now| now.year());
        let pattern = with_years(expression, year)?;
        let parser = CronParser::builder().seconds(Seconds::Required).year(Year::Required).build();
        let cron = parser.parse(&pattern);
        let wrong = |error: croner::errors::CronError| {
            CalendarError::Expression(shortened(&format!("got {expression} ({error})")))
        };
        Ok(Self { cron: cron.map_err(wrong)?, zone, is_fixed: is_fixed(&pattern) })
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
        let next_ms = match self.is_fixed {
            true => {
                // What is shown for the second time has come.
                let (shown, is_first) = match repeated_until(&after) {
                    Some(end) => (end, true),
                    None => (after.datetime(), false),
                };
                let shown = shown.to_zoned(TimeZone::UTC).ok()?;
                let next = self.cron.find_next_occurrence(&shown, is_first).ok()?;
                ms_of(first_shown(next.datetime(), &self.zone)?)?
            }
            false => ms_of(self.cron.find_next_occurrence(&after, false).ok()?.timestamp())?,
        };
        // A search that does not go on would pop for ever at one moment.
        (next_ms > wall_ms).then_some(next_ms)
    }

    /// The latest moment that has come.
    fn at_or_before(&self, until: &Zoned) -> Option<u64> {
        if !self.is_fixed {
            return ms_of(self.cron.find_previous_occurrence(until, true).ok()?.timestamp());
        }
        let shown = match repeated_until(until) {
            Some(end) => end.checked_sub(SignedDuration::from_secs(1)).ok()?,
            None => until.datetime(),
        };
        let shown = shown.to_zoned(TimeZone::UTC).ok()?;
        let found = self.cron.find_previous_occurrence(&shown, true).ok()?;
        ms_of(first_shown(found.datetime(), &self.zone)?)
    }
}

fn moment(wall_ms: u64, zone: &TimeZone) -> Option<Zoned> {
    let at = Timestamp::from_millisecond(i64::try_from(wall_ms).ok()?).ok()?;
    Some(at.to_zoned(zone.clone()))
}

fn ms_of(at: Timestamp) -> Option<u64> {
    u64::try_from(at.as_millisecond()).ok()
}

/// Whether an expression of seven fields names its seconds, minutes and hours.
fn is_fixed(pattern: &str) -> bool {
    !pattern.split_ascii_whitespace().take(3).any(|field| field.contains('*'))
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

/// The expression with seven fields: seconds in front, years behind. A year that the client wrote
/// stays; without one the search is bounded by years, so that an expression that never fires costs
/// little.
fn with_years(expression: &str, year: i16) -> Result<String, CalendarError> {
    let wrong = |text: &str| CalendarError::Expression(text.into());
    if expression.len() > CRON_BYTES_MAX {
        return Err(wrong(&format!("got more than {CRON_BYTES_MAX} bytes")));
    }
    if !expression.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
        return Err(wrong("got characters that no expression has"));
    }
    let years = format!("{year}-{}", year.saturating_add(YEARS_AHEAD));
    let expression = nickname(expression.trim()).unwrap_or(expression);
    let fields: Vec<&str> = expression.split_ascii_whitespace().collect();
    match fields[..] {
        [_, _, _, _, _] => Ok(format!("0 {} {years}", fields.join(" "))),
        [_, _, _, _, _, _] => Ok(format!("{} {years}", fields.join(" "))),
        [ref six @ .., "*"] if six.len() == 6 => Ok(format!("{} {years}", six.join(" "))),
        [_, _, _, _, _, _, _] => Ok(fields.join(" ")),
        _ => Err(wrong(&format!("got {} fields", fields.len()))),
    }
}

/// What a name as `@daily` stands for.
fn nickname(name: &str) -> Option<&'static str> {
    match name.to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => Some("0 0 1 1 *"),
        "@monthly" => Some("0 0 1 * *"),
        "@weekly" => Some("0 0 * * 0"),
        "@daily" | "@midnight" => Some("0 0 * * *"),
        "@hourly" => Some("0 * * * *"),
        _ => None,
    }
}

fn shortened(text: &str) -> Box<str> {
    text.chars().take(100).map(|c| if (' '..='~').contains(&c) { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(text: &str) -> u64 {
        text.parse::<Timestamp>().expect("a timestamp").as_millisecond() as u64
    }

    /// The next moments after one, in UTC.
    fn next(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let mut at = ms(after);
        let calendar = Calendar::parse(expression, zone, at).expect(expression);
        let mut found = Vec::new();
        for _ in 0..count {
            let Some(next) = calendar.next_after(at) else { break };
            at = next;
            let told = Timestamp::from_millisecond(at as i64).expect("in range").to_string();
            found.push(told.replace(":00Z", "Z"));
        }
        found
    }

    #[test]
    fn fields_mean_what_they_do_in_cron() {
        let after = "2026-11-25T10:33:46Z";
        assert_eq!(
            next("0 0 9 * * MON-FRI", "UTC", after, 3),
            ["2026-11-26T09:00Z", "2026-11-27T09:00Z", "2026-11-30T09:00Z"]
        );
        assert_eq!(next("0 9 * * MON-FRI", "UTC", after, 1), ["2026-11-26T09:00Z"], "five fields");
        assert_eq!(
            next("*/30 * * * * *", "UTC", after, 2),
            ["2026-11-25T10:34Z", "2026-11-25T10:34:30Z"]
        );
        assert_eq!(next("0 0 29 2 *", "UTC", after, 2), ["2028-02-29T00:00Z", "2032-02-29T00:00Z"]);
        assert_eq!(next("0 0 29 2 +MON", "UTC", after, 1), ["2044-02-29T00:00Z"]);
        assert_eq!(next("@daily", "UTC", after, 1), ["2026-11-26T00:00Z"]);
        assert_eq!(next("0 0 L * *", "UTC", after, 1), ["2026-11-30T00:00Z"]);
        assert_eq!(
            next("0 0 12 1 1 * 2030", "UTC", after, 2),
            ["2030-01-01T12:00Z"],
            "and no more"
        );
    }

    #[test]
    fn a_fixed_time_comes_once_a_day_when_clocks_change() {
        // 2027-03-28 01:00 UTC: 01:00 becomes 02:00 in London. 2027-10-31 01:00 UTC: 02:00 becomes
        // 01:00.
        let london = |expression, after, count| next(expression, "Europe/London", after, count);
        assert_eq!(
            london("0 30 9 * * *", "2027-03-27T10:00:00Z", 2),
            ["2027-03-28T08:30Z", "2027-03-29T08:30Z"]
        );
        let skipped = london("0 30 1 * * *", "2027-03-27T10:00:00Z", 2);
        assert_eq!(skipped, ["2027-03-28T01:00Z", "2027-03-29T00:30Z"], "a time that there is not");
        let twice = london("0 30 1 * * *", "2027-10-30T10:00:00Z", 2);
        assert_eq!(twice, ["2027-10-31T00:30Z", "2027-11-01T01:30Z"], "a time that comes twice");
        // What comes each half hour goes on doing so.
        assert_eq!(
            london("0 */30 * * * *", "2027-10-31T00:00:00Z", 4),
            ["2027-10-31T00:30Z", "2027-10-31T01:00Z", "2027-10-31T01:30Z", "2027-10-31T02:00Z"]
        );
        assert_eq!(
            london("0 */30 * * * *", "2027-03-28T00:00:00Z", 3),
            ["2027-03-28T00:30Z", "2027-03-28T01:00Z", "2027-03-28T01:30Z"]
        );
    }

    #[test]
    fn each_of_several_fixed_times_comes_once_a_day_when_clocks_change() {
        let london = |expression, after, count| next(expression, "Europe/London", after, count);
        let (spring, autumn) = ("2027-03-27T20:00:00Z", "2027-10-30T20:00:00Z");
        // What is left out comes at the change, all of it as one.
        assert_eq!(
            london("0 0,30 1 * * *", spring, 3),
            ["2027-03-28T01:00Z", "2027-03-29T00:00Z", "2027-03-29T00:30Z"]
        );
        assert_eq!(
            london("0 30 0-2 * * *", spring, 3),
            ["2027-03-28T00:30Z", "2027-03-28T01:00Z", "2027-03-28T01:30Z"]
        );
        assert_eq!(
            london("0 0 1,2,3 * * *", spring, 2),
            ["2027-03-28T01:00Z", "2027-03-28T02:00Z"],
            "1 o'clock is left out, and 2 o'clock is the change"
        );
        // What is shown twice comes when it is shown first.
        assert_eq!(
            london("0 0 1,13 * * *", autumn, 3),
            ["2027-10-31T00:00Z", "2027-10-31T13:00Z", "2027-11-01T01:00Z"]
        );
        assert_eq!(
            london("0 0-30/15 1,2 * * *", autumn, 4),
            ["2027-10-31T00:00Z", "2027-10-31T00:15Z", "2027-10-31T00:30Z", "2027-10-31T02:00Z"]
        );
        // A star follows the time that passes.
        assert_eq!(
            london("0 */30 1 * * *", autumn, 5),
            [
                "2027-10-31T00:00Z",
                "2027-10-31T00:30Z",
                "2027-10-31T01:00Z",
                "2027-10-31T01:30Z",
                "2027-11-01T01:00Z"
            ]
        );
        assert_eq!(
            london("0 30 * * * *", spring, 5)[3..],
            ["2027-03-27T23:30Z".to_owned(), "2027-03-28T00:30Z".to_owned()]
        );
        assert_eq!(london("0 */30 1 * * *", spring, 1), ["2027-03-29T00:00Z"]);
        // Half an hour, and midnight.
        assert_eq!(
            next("0 0,15,45 2 * * *", "Australia/Lord_Howe", "2027-10-02T12:00:00Z", 3),
            ["2027-10-02T15:30Z", "2027-10-02T15:45Z", "2027-10-03T15:00Z"]
        );
        assert_eq!(
            next("@daily", "Africa/Cairo", "2027-04-29T12:00:00Z", 1),
            ["2027-04-29T22:00Z"]
        );
        assert_eq!(
            next("0 30 23 * * *", "Africa/Cairo", "2027-10-28T12:00:00Z", 2),
            ["2027-10-28T20:30Z", "2027-10-29T21:30Z"]
        );
    }

    /// The moments of a fixed expression are those at which a clock that is never put back would
    /// pass one of its times.
    #[test]
    fn fixed_times_come_when_the_clock_first_reaches_or_passes_them() {
        let cases = [
            ("Europe/London", ["2027-03-27T12:00:00Z", "2027-10-30T12:00:00Z"]),
            ("America/New_York", ["2027-03-13T12:00:00Z", "2027-11-06T12:00:00Z"]),
            ("Australia/Lord_Howe", ["2027-04-03T00:00:00Z", "2027-10-02T00:00:00Z"]),
            ("Africa/Cairo", ["2027-04-29T00:00:00Z", "2027-10-28T00:00:00Z"]),
            ("UTC", ["2027-01-01T00:00:00Z", "2027-12-31T00:00:00Z"]),
        ];
        let lists = [
            ([0, 15, 30, 45].as_slice(), [0, 1, 2, 3].as_slice()),
            (&[0], &[1, 13]),
            (&[5, 59], &[0, 1, 2, 23]),
            (&[30], &[2]),
        ];
        let joined = |numbers: &[i8]| {
            let texts: Vec<String> = numbers.iter().map(i8::to_string).collect();
            texts.join(",")
        };
        for ((zone, changes), (minutes, hours)) in
            cases.iter().flat_map(|case| lists.iter().map(move |list| (case, list)))
        {
            let expression = format!("0 {} {} * * *", joined(minutes), joined(hours));
            for begin in changes {
                let begin = ms(begin);
                let calendar = Calendar::parse(&expression, zone, begin).expect("an expression");
                let shown = |at_ms: u64| moment(at_ms, &calendar.zone).expect("a time").datetime();
                let is_listed =
                    |at: &DateTime| minutes.contains(&at.minute()) && hours.contains(&at.hour());
                let (mut reached, mut expected) = (shown(begin), Vec::new());
                for minute in 1..=3 * 24 * 60 {
                    let at_ms = begin + minute * 60_000;
                    let mut passed = Vec::new();
                    while reached < shown(at_ms) {
                        reached = reached.checked_add(SignedDuration::from_mins(1)).expect("fits");
                        passed.push(reached);
                    }
                    expected.extend(passed.iter().any(is_listed).then_some(at_ms));
                }
                let found = std::iter::successors(Some(begin), |at| calendar.next_after(*at));
                let found: Vec<u64> = found.skip(1).take(expected.len()).collect();
                assert_eq!(found, expected, "{expression} in {zone}");
                let until_ms = begin + 3 * 24 * 3_600_000;
                let timing = CronTiming {
                    expression: &expression,
                    zone,
                    due_ms: 0,
                    done: 0,
                    catch_up_ms: 0,
                    end_ms: None,
                };
                for at_ms in (expected[0]..until_ms).step_by(450_000) {
                    let last = expected.iter().rfind(|ms| **ms <= at_ms).copied();
                    let latest = Some(calendar.latest(&timing, at_ms));
                    assert_eq!(latest, last, "{expression} in {zone} at {at_ms}");
                }
            }
        }
    }

    #[test]
    fn the_latest_moment_that_has_come_is_found() {
        let start = ms("2026-11-25T10:33:46Z");
        let calendar = Calendar::parse("*/15 * * * *", "UTC", start).expect("an expression");
        let due_ms = calendar.next_after(start).expect("one");
        let timing = CronTiming {
            expression: "*/15 * * * *",
            zone: "UTC",
            due_ms,
            done: 0,
            catch_up_ms: 0,
            end_ms: Some(ms("2026-11-25T12:20:00Z")),
        };
        let latest = |now: &str| calendar.latest(&timing, ms(now));
        assert_eq!(latest("2026-11-25T10:40:00Z"), ms("2026-11-25T10:45:00Z"), "none has come");
        assert_eq!(latest("2026-11-25T10:45:00Z"), ms("2026-11-25T10:45:00Z"));
        assert_eq!(latest("2026-11-25T11:29:59.999Z"), ms("2026-11-25T11:15:00Z"));
        assert_eq!(latest("2026-11-25T11:30:00Z"), ms("2026-11-25T11:30:00Z"));
        assert_eq!(latest("2026-11-26T11:30:00Z"), ms("2026-11-25T12:15:00Z"), "it has ended");
    }

    #[test]
    fn what_is_no_expression_or_zone_or_never_fires_is_told() {
        let parse = |expression: &str, zone: &str| {
            let now = ms("2026-11-25T10:00:00Z");
            Calendar::parse(expression, zone, now).map(|calendar| calendar.next_after(now))
        };
        for bad in
            ["", "* * *", "a b c d e", "60 * * * *", "* * * * * * * *", "@reboot", "0 0 0 0 0"]
        {
            let error = parse(bad, "UTC").expect_err(bad).to_string();
            assert!(error.starts_with("timing.cron: expected an expression"), "{error}");
            assert!(error.len() < 200, "{error}");
        }
        assert!(parse(&"*".repeat(CRON_BYTES_MAX + 1), "UTC").is_err());
        assert!(parse("\u{e9} * * * *", "UTC").is_err());
        for bad in ["", "Mars/Base", "../../etc/passwd", "GMT+1:00"] {
            let error = parse("* * * * *", bad).expect_err(bad).to_string();
            assert!(error.starts_with("timing.time-zone: expected a zone"), "{error}");
        }
        for never in ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 0 1 1 * 1999"] {
            assert_eq!(parse(never, "Europe/London").expect("an expression"), None, "{never}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_fail(
            text in "[-0-9*/,?LW#+@A-Za-z ]{0,40}",
            zone in "[A-Za-z/_+0-9-]{0,20}",
        ) {
            if let Ok(calendar) = Calendar::parse(&text, &zone, 1_795_600_000_000) {
                calendar.next_after(1_795_600_000_000);
            }
            if let Ok(calendar) = Calendar::parse(&text, "America/New_York", 1_795_600_000_000) {
                let next = calendar.next_after(1_795_600_000_000);
                prop_assert!(next.is_none_or(|next| next > 1_795_600_000_000));
            }
        }
    }
}
