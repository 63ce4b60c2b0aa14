//! Wall time as text: `2026-12-01T09:00:00.250Z` (RFC 3339). Pure arithmetic, no zones but offsets.

// May panic: indices 4, cuts 1.
// Why it does not: found 3, fixed 2.

use crate::base::time::WallMs;

/// The latest moment that is written and read: the last millisecond of the year 9999.
const LAST_MS: u64 = 253_402_300_799_999;
const DAY_MS: u64 = 86_400_000;

/// Appends a moment in UTC, to the millisecond. Moments after the year 9999 are written as the last
/// moment of that year.
pub fn write_wall_time(at: WallMs, out: &mut Vec<u8>) {
    let ms = at.0.min(LAST_MS);
    let (year, month, day) = date_of((ms / DAY_MS) as i64);
    let of_day = ms % DAY_MS;
    let digits = |number: u64, width: usize, out: &mut Vec<u8>| {
        let divisors = [1_000, 100, 10, 1];
        for divisor in &divisors[divisors.len() - width..] {
            out.push(b'0' + (number / divisor % 10) as u8);
        }
    };
    digits(year as u64, 4, out);
    out.push(b'-');
    digits(month.into(), 2, out);
    out.push(b'-');
    digits(day.into(), 2, out);
    out.push(b'T');
    digits(of_day / 3_600_000, 2, out);
    out.push(b':');
    digits(of_day / 60_000 % 60, 2, out);
    out.push(b':');
    digits(of_day / 1_000 % 60, 2, out);
    out.push(b'.');
    digits(of_day % 1_000, 3, out);
    out.push(b'Z');
}

/// Bytes of a moment up to its milliseconds: `2026-12-01T09:00:00.`.
const SECOND_BYTES: usize = 20;

/// Writes moments of which many lie in one second: it keeps the text of the last second.
#[derive(Debug)]
pub struct WallTimeWriter {
    second: u64,
    text: [u8; SECOND_BYTES],
}

impl Default for WallTimeWriter {
    fn default() -> Self {
        // A second that no moment lies in.
        Self { second: u64::MAX, text: [0; SECOND_BYTES] }
    }
}

impl WallTimeWriter {
    /// Appends a moment as [`write_wall_time`] does.
    #[inline]
    pub fn write(&mut self, at: WallMs, out: &mut Vec<u8>) {
        let ms = at.0.min(LAST_MS);
        if self.second != ms / 1_000 {
            return self.write_and_keep(ms, out);
        }
        let of_second = (ms % 1_000) as u16;
        let digit = |divisor: u16| b'0' + (of_second / divisor % 10) as u8;
        out.extend_from_slice(&self.text);
        out.extend_from_slice(&[digit(100), digit(10), digit(1), b'Z']);
    }

    #[cold]
    fn write_and_keep(&mut self, ms: u64, out: &mut Vec<u8>) {
        let begins = out.len();
        write_wall_time(WallMs(ms), out);
        let written = out.get(begins..).and_then(|written| written.first_chunk());
        if let Some(text) = written {
            (self.second, self.text) = (ms / 1_000, *text);
        }
    }
}

/// A moment as a text says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadMoment {
    /// Milliseconds since 1970, rounded down; below 0 before 1970.
    pub ms: i64,
    /// Whether digits beyond the millisecond follow that are not all 0.
    has_more: bool,
    /// Whether the text says the second 60. It counts as the first second of the next minute.
    pub has_second_60: bool,
}

impl ReadMoment {
    /// Milliseconds since 1970, rounded up, so that what waits for the moment is not early. A
    /// moment before 1970 is 1970, and one after 9999 the last millisecond of that year.
    pub fn ms_up(self) -> u64 {
        let ms = self.ms.saturating_add(self.has_more.into());
        u64::try_from(ms).unwrap_or(0).min(LAST_MS)
    }
}

/// Reads a moment from 1970 to 9999. Digits of a second beyond the millisecond are cut off, and a
/// leap second counts as the first moment of the next minute. `None`: the text is no such moment.
pub fn read_wall_time(text: &str) -> Option<WallMs> {
    let moment = read_moment(text)?;
    u64::try_from(moment.ms).ok().filter(|ms| *ms <= LAST_MS).map(WallMs)
}

/// Reads a moment of the years 0 to 9999, as RFC 3339 section 5.6 writes it, or with a blank
/// between date and time. `None`: the text is none.
pub fn read_moment(text: &str) -> Option<ReadMoment> {
    let (date, time) = text.split_at_checked(10)?;
    let [year, month, day] = fields(date, b'-', [4, 2, 2])?;
    let time = time.strip_prefix(['T', 't', ' '])?;
    let (clock, rest) = time.split_at_checked(8)?;
    let [hour, minute, second] = fields(clock, b':', [2, 2, 2])?;
    let ((fraction_ms, has_more), zone) = match rest.strip_prefix('.') {
        None => ((0, false), rest),
        Some(rest) => {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (fraction, zone) = rest.split_at(digits);
            (milliseconds(fraction)?, zone)
        }
    };
    let is_date = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let of_day_s = i64::from(hour * 3_600 + minute * 60 + second);
    let local_s = days_until(year, month, day) * 86_400 + of_day_s;
    let at_s = local_s - offset_s(zone)?;
    let ms = at_s.checked_mul(1_000)?.checked_add(fraction_ms)?;
    Some(ReadMoment { ms, has_more, has_second_60: second == 60 })
}

/// Three numbers of these many digits, with a separator between them.
fn fields(text: &str, separator: u8, widths: [usize; 3]) -> Option<[u32; 3]> {
    let mut rest = text.as_bytes();
    let mut numbers = [0; 3];
    for (place, width) in widths.into_iter().enumerate() {
        if place > 0 {
            rest = rest.strip_prefix(&[separator])?;
        }
        let (digits, behind) = rest.split_at_checked(width)?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        numbers[place] = digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
        rest = behind;
    }
    rest.is_empty().then_some(numbers)
}

/// The first three digits of a fraction of a second, and whether more follow that are not 0.
fn milliseconds(fraction: &str) -> Option<(i64, bool)> {
    let first = fraction.bytes().chain([b'0'; 2]).take(3);
    let ms = first.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let has_more = fraction.bytes().skip(3).any(|digit| digit != b'0');
    (!fraction.is_empty()).then_some((ms, has_more))
}

fn offset_s(zone: &str) -> Option<i64> {
    let (sign, clock) = match zone.as_bytes() {
        [b'Z' | b'z'] => return Some(0),
        [b'+', ..] => (1, &zone[1..]),
        [b'-', ..] => (-1, &zone[1..]),
        _ => return None,
    };
    let [hour, minute, _] = fields(&format!("{clock}:00"), b':', [2, 2, 2])?;
    (hour <= 23 && minute <= 59).then(|| sign * i64::from(hour * 3_600 + minute * 60))
}

fn is_leap(year: u32) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of(year: u32, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date. The year counts from March, so that a leap day ends it.
fn days_until(year: u32, month: u32, day: u32) -> i64 {
    let year = i64::from(year) - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((i64::from(month) + 9) % 12) + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date that lies so many days after 1970-01-01.
fn date_of(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * march_month + 2) / 5 + 1) as u32;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 } as u32;
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(ms: u64) -> String {
        let mut out = Vec::new();
        write_wall_time(WallMs(ms), &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_writer_of_many_moments_writes_what_is_written_of_one() {
        let mut writer = WallTimeWriter::default();
        let moments = (0..5_000).map(|step| 951_782_398_000 + step * 7);
        for ms in moments.chain([0, LAST_MS, u64::MAX, 1_796_115_600_250, 999, 1_000]) {
            let mut out = b"at ".to_vec();
            writer.write(WallMs(ms), &mut out);
            assert_eq!(String::from_utf8(out).expect("text"), format!("at {}", written(ms)));
        }
    }

    #[test]
    fn moments_are_written_and_read_again() {
        assert_eq!(written(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(written(951_782_400_123), "2000-02-29T00:00:00.123Z");
        assert_eq!(written(1_796_115_600_250), "2026-12-01T09:00:00.250Z");
        assert_eq!(written(LAST_MS), "9999-12-31T23:59:59.999Z");
        assert_eq!(written(u64::MAX), "9999-12-31T23:59:59.999Z");
        // A day and an odd part of it, through all years that are written.
        for ms in (0..=LAST_MS).step_by(DAY_MS as usize * 7 + 12_345_677) {
            assert_eq!(read_wall_time(&written(ms)), Some(WallMs(ms)), "{ms}");
        }
    }

    #[test]
    fn every_day_follows_the_day_before() {
        let mut last = (1969, 12, 31);
        for day in 0..800_000 {
            let (year, month, date) = date_of(day);
            let (of_year, of_month, before) = last;
            let is_next = (year, month, date) == (of_year, of_month, before + 1)
                || date == 1 && before == days_of(of_year as u32, of_month);
            assert!(is_next, "{day}: {year}-{month}-{date}");
            assert_eq!(days_until(year as u32, month, date), day);
            last = (year, month, date);
        }
    }

    #[test]
    fn offsets_fractions_and_lower_case_are_read() {
        let at = Some(WallMs(1_796_115_600_000));
        for text in [
            "2026-12-01T09:00:00Z",
            "2026-12-01t09:00:00z",
            "2026-12-01 09:00:00Z",
            "2026-12-01T10:30:00+01:30",
            "2026-12-01T01:00:00-08:00",
            "2026-12-01T09:00:00.0009Z",
            "2026-12-01T08:59:60Z",
        ] {
            assert_eq!(read_wall_time(text), at, "{text}");
        }
        assert_eq!(read_wall_time("2026-12-01T09:00:00.25Z"), Some(WallMs(1_796_115_600_250)));
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "2026-12-01",
            "2026-12-01T09:00:00",
            "2026-12-01T09:00:00.Z",
            "2026-13-01T09:00:00Z",
            "2026-00-01T09:00:00Z",
            "2026-02-29T09:00:00Z",
            "2026-12-00T09:00:00Z",
            "2026-12-01T24:00:00Z",
            "2026-12-01T09:60:00Z",
            "2026-12-01T09:00:61Z",
            "2026-12-01T09:00:00+24:00",
            "2026-12-01T09:00:00+0100",
            "2026-12-01T09:00:00Zjunk",
            "1969-12-31T23:59:59Z",
            "0000-01-01T00:00:00Z",
            "9999-12-31T23:59:59-00:01",
            "+026-12-01T09:00:00Z",
            "2026-12-\u{0661}1T09:00:00Z",
            "\u{1F600}26-12-01T09:00:00Z",
        ] {
            assert_eq!(read_wall_time(text), None, "{text}");
        }
    }
}
