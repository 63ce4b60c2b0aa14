//! Timestamps and their times, as text in a time zone.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::timestamp::Timestamp;

/// Numbers below this are milliseconds, other numbers are timestamps. As a timestamp this number
/// would lie in February 1970; as milliseconds it is beyond what a timestamp can hold.
const LEAST_TIMESTAMP: u64 = 1_000_000_000_000_000;
/// The last millisecond that a timestamp can hold: in the year 3084.
const UNIX_MS_MAX: u64 = Timestamp(i64::MAX as u64).unix_ms();

/// Why a text is no timestamp and no time.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TimeError {
    #[error(
        "`{0}` is neither a timestamp nor a time: expected a number such as 470601292516425728, \
         milliseconds since 1970 such as 1795200000000, or a time such as 2026-11-20T19:04:23Z or \
         '2026-11-20 19:04:23.5'"
    )]
    Unknown(String),
    #[error("{0} is outside what a timestamp can tell: 1970 to 3084")]
    Range(String),
    #[error("there is no time zone `{0}` here: expected a name such as Europe/Berlin, or UTC")]
    Zone(String),
}

/// What a user wrote, and what is wanted for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// A timestamp. Its time is wanted.
    Timestamp(Timestamp),
    /// A time. The first timestamp of this time is wanted.
    Time(Timestamp),
}

/// How a number is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum NumberIs {
    /// Below 10^15 milliseconds since 1970, from there on a timestamp
    #[default]
    Either,
    /// Always a timestamp
    Timestamp,
    /// Always milliseconds since 1970
    Ms,
}

/// Returns the zone of this name. `None`: the zone of `TZ`, or else of the machine.
pub(crate) fn zone(name: Option<&str>) -> Result<TimeZone, TimeError> {
    match name {
        None => {
            let variable = || std::env::var("TZ").unwrap_or_default();
            TimeZone::try_system().map_err(|_| TimeError::Zone(variable()))
        }
        Some(name) if name.eq_ignore_ascii_case("utc") => Ok(TimeZone::UTC),
        Some(name) => TimeZone::get(name).map_err(|_| TimeError::Zone(name.to_owned())),
    }
}

/// Reads a timestamp or a time.
///
/// - A time without an offset is a time of `zone`.
/// - Of a time that the clocks show twice the earlier is meant.
/// - A time that the clocks skip is moved on by as much as they skip.
pub(crate) fn read(text: &str, number: NumberIs, zone: &TimeZone) -> Result<Written, TimeError> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return read_number(text, number);
    }
    let instant = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        let local: DateTime = text.parse().ok()?;
        Some(zone.to_ambiguous_zoned(local).compatible().ok()?.timestamp())
    });
    let instant = instant.ok_or_else(|| TimeError::Unknown(text.to_owned()))?;
    // Rounded down to the millisecond, before 1970 as well.
    let unix_ms = instant.as_nanosecond().div_euclid(1_000_000);
    let unix_ms = u64::try_from(unix_ms).ok().filter(|&ms| ms <= UNIX_MS_MAX);
    let unix_ms = unix_ms.ok_or_else(|| TimeError::Range(text.to_owned()))?;
    Ok(Written::Time(Timestamp::of_unix_ms(unix_ms)))
}

fn read_number(text: &str, number: NumberIs) -> Result<Written, TimeError> {
    let value: Option<u64> = text.parse().ok().filter(|&value| value <= i64::MAX as u64);
    let value = value.ok_or_else(|| TimeError::Range(text.to_owned()))?;
    let is_timestamp = match number {
        NumberIs::Either => value >= LEAST_TIMESTAMP,
        NumberIs::Timestamp => true,
        NumberIs::Ms => false,
    };
    if is_timestamp {
        return Ok(Written::Timestamp(Timestamp(value)));
    }
    if value > UNIX_MS_MAX {
        return Err(TimeError::Range(text.to_owned()));
    }
    Ok(Written::Time(Timestamp::of_unix_ms(value)))
}

/// Returns the time of a timestamp, such as `2026-11-20 19:04:23.762 +0000`.
pub(crate) fn human(timestamp: Timestamp, zone: &TimeZone) -> String {
    format(timestamp, zone, "%Y-%m-%d %H:%M:%S%.3f %z")
}

/// Returns the time in whole seconds, as the original's tools show it: `2026-11-20 19:04:23 +0000`.
pub(crate) fn human_seconds(timestamp: Timestamp, zone: &TimeZone) -> String {
    format(timestamp, zone, "%Y-%m-%d %H:%M:%S %z")
}

/// Returns the time by RFC 3339, for programs: `2026-11-20T19:04:23.762+00:00`.
pub(crate) fn rfc3339(timestamp: Timestamp, zone: &TimeZone) -> String {
    format(timestamp, zone, "%Y-%m-%dT%H:%M:%S%.3f%:z")
}

fn format(timestamp: Timestamp, zone: &TimeZone, pattern: &str) -> String {
    let unix_ms = timestamp.unix_ms().min(UNIX_MS_MAX);
    let instant = jiff::Timestamp::from_millisecond(unix_ms as i64);
    let instant = instant.expect("the year 3084 is within what the library knows");
    instant.to_zoned(zone.clone()).strftime(pattern).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn berlin() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a rule")
    }

    fn read_utc(text: &str) -> Result<Written, TimeError> {
        read(text, NumberIs::Either, &TimeZone::UTC)
    }

    #[test]
    fn a_timestamp_of_the_original_tells_its_time() {
        let written = read_utc("365565981241901056").expect("a timestamp");
        assert_eq!(written, Written::Timestamp(Timestamp(365_565_981_241_901_056)));
        let timestamp = Timestamp(365_565_981_241_901_056);
        assert_eq!(human_seconds(timestamp, &TimeZone::UTC), "2014-03-11 07:39:09 +0000");
        assert_eq!(human(timestamp, &TimeZone::UTC), "2014-03-11 07:39:09.049 +0000");
        assert_eq!(human(timestamp, &berlin()), "2014-03-11 08:39:09.049 +0100");
        assert_eq!(rfc3339(timestamp, &berlin()), "2014-03-11T08:39:09.049+01:00");
    }

    #[test]
    fn times_in_every_form_are_read() {
        let first = |ms: u64| Ok(Written::Time(Timestamp(ms << 18)));
        for text in [
            "2026-11-20T19:04:23.062Z",
            "2026-11-20t19:04:23.062z",
            "2026-11-20 19:04:23.062",
            "2026-11-20T20:04:23.062+01:00",
            "1795201463062",
            " 1795201463062\n",
            "2026-11-20T19:04:23.0629999",
        ] {
            assert_eq!(read_utc(text), first(1_795_201_463_062), "{text}");
        }
        assert_eq!(read_utc("2026-11-20 19:04:23"), first(1_795_201_463_000));
        assert_eq!(read_utc("0"), first(0));
        let local = |text| read(text, NumberIs::Either, &berlin());
        assert_eq!(local("2026-11-20 20:04:23.062"), first(1_795_201_463_062));
        // Of the hour that is shown twice the earlier counts. The hour that is skipped is moved on.
        assert_eq!(local("2026-10-25 02:30:00"), first(1_792_888_200_000));
        assert_eq!(local("2026-03-29 02:30:00"), local("2026-03-29 03:30:00"));
    }

    #[test]
    fn a_number_is_what_it_is_said_to_be() {
        let as_ms = read("470601292516425728", NumberIs::Ms, &TimeZone::UTC);
        assert_eq!(as_ms, Err(TimeError::Range("470601292516425728".into())));
        let small = read("262145", NumberIs::Timestamp, &TimeZone::UTC);
        assert_eq!(small, Ok(Written::Timestamp(Timestamp(262_145))));
        let either = |value: u64| read_utc(&value.to_string());
        let edge = LEAST_TIMESTAMP;
        assert_eq!(either(edge), Ok(Written::Timestamp(Timestamp(edge))));
        assert_eq!(either(edge - 1), Err(TimeError::Range((edge - 1).to_string())));
        let last_ms = Timestamp::of_unix_ms(UNIX_MS_MAX);
        assert_eq!(either(UNIX_MS_MAX), Ok(Written::Time(last_ms)));
    }

    #[test]
    fn what_is_no_time_is_told() {
        for text in ["", "now", "-1", "0x10", "2026-13-01", "2026-11-20 25:00:00", "1e18", "19:04"]
        {
            assert_eq!(read_utc(text), Err(TimeError::Unknown(text.to_owned())), "{text}");
        }
        for text in ["9223372036854775808", "99999999999999999999999", "1969-12-31T23:59:59.999Z"] {
            assert_eq!(read_utc(text), Err(TimeError::Range(text.to_owned())), "{text}");
        }
        assert!(matches!(read_utc("9223372036854775807"), Ok(Written::Timestamp(_))));
        assert!(matches!(read_utc("9000-12-31T00:00:00Z"), Err(TimeError::Range(_))));
        assert_eq!(zone(Some("Atlantis/Centre")), Err(TimeError::Zone("Atlantis/Centre".into())));
        assert_eq!(zone(Some("utc")), Ok(TimeZone::UTC));
    }

    #[test]
    fn the_last_timestamp_has_a_time() {
        let last = human(Timestamp(i64::MAX as u64), &TimeZone::UTC);
        assert!(last.starts_with("3084-"), "{last}");
        assert_eq!(human(Timestamp(u64::MAX), &TimeZone::UTC), last);
    }
}
