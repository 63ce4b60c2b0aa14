//! When a timer pops that follows the calendar: a cron expression in a time zone.
//!
//! The expressions and what they do at the changes of a zone's clocks are those of the crate
//! `croner` (the Open Cron Pattern Specification, <https://github.com/open-source-cron/ocps>). The
//! rules of zones are those of the IANA database that this program is built with, so that all nodes
//! of one version agree whatever their systems have.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::wire::attributes::{CRON_BYTES_MAX, CronTiming};

/// How many years ahead a moment is looked for: two turns of the calendar of weekdays, so that a 29
/// February that is a Monday is found across the year 2100. A search in vain takes 0.5 ms.
const YEARS_AHEAD: i16 = 60;

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
        Ok(Self { cron: cron.map_err(wrong)?, zone })
    }

    /// When the pop after the present one is due, without those that are missed for longer than the
    /// timer allows; `None`: the timer has no further pop.
    pub fn follow(&self, timing: &CronTiming<'_>, wall_ms: u64) -> Option<u64> {
        // What is missed for long is left out.
        let since_ms = timing.due_ms.max(wall_ms.saturating_sub(timing.catch_up_ms + 1));
        let next_ms = self.next_after(since_ms)?;
        timing.end_ms.is_none_or(|end_ms| next_ms <= end_ms).then_some(next_ms)
    }

    /// The latest moment of a timing that has come at `wall_ms`; its own, if none has come since.
    pub fn latest(&self, timing: &CronTiming<'_>, wall_ms: u64) -> u64 {
        let until_ms = timing.end_ms.unwrap_or(wall_ms).min(wall_ms);
        let found = moment(until_ms, &self.zone)
            .and_then(|until| self.cron.find_previous_occurrence(&until, true).ok())
            .and_then(|found| u64::try_from(found.timestamp().as_millisecond()).ok());
        found.filter(|found_ms| *found_ms <= until_ms).unwrap_or(0).max(timing.due_ms)
    }

    /// The first moment after `wall_ms`, in ms since 1970. `None`: there is none within the years
    /// that are looked at.
    pub fn next_after(&self, wall_ms: u64) -> Option<u64> {
        let after = moment(wall_ms, &self.zone)?;
        let next = self.cron.find_next_occurrence(&after, false).ok()?;
        let next_ms = u64::try_from(next.timestamp().as_millisecond()).ok()?;
        // A search that does not go on would pop for ever at one moment.
        (next_ms > wall_ms).then_some(next_ms)
    }
}

fn moment(wall_ms: u64, zone: &TimeZone) -> Option<jiff::Zoned> {
    let at = Timestamp::from_millisecond(i64::try_from(wall_ms).ok()?).ok()?;
    Some(at.to_zoned(zone.clone()))
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
