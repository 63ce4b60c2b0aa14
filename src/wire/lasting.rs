//! Durations as clients write them, in whole milliseconds.

use jiff::fmt::temporal::SpanParser;

use crate::base::limits::INTERVAL_MS_MAX;
use crate::wire::timer_options::Lasting;

/// Seconds of a document in whole milliseconds. A number with up to three decimals is met exactly.
/// A number with more decimals is rounded up, so that a pop is never early. `None`: negative, not
/// finite, or above [`INTERVAL_MS_MAX`].
///
/// A binary double is at most half a unit in the last place away from the decimal that was written.
/// Times 1000 the error is below 2 units, so a product within 4 units of a whole number is that
/// number.
pub fn milliseconds(seconds: f64) -> Option<u64> {
    // What most clients write: whole seconds.
    let whole = seconds as u32;
    if f64::from(whole) == seconds {
        let ms = u64::from(whole) * 1_000;
        return (ms <= INTERVAL_MS_MAX).then_some(ms);
    }
    let ms = seconds * 1000.0;
    let nearest = ms.round();
    let ms = if (ms - nearest).abs() <= nearest * 4.0 * f64::EPSILON { nearest } else { ms.ceil() };
    // The check is of `seconds`, not of `ms`, because a number less than a millisecond below 0 is
    // rounded up to 0.
    (seconds >= 0.0 && ms <= INTERVAL_MS_MAX as f64).then_some(ms as u64)
}

/// A duration in whole milliseconds, rounded up. In text days have 24 hours and weeks 7 days;
/// months and years have no fixed length and are refused.
pub fn lasting_ms(lasting: Lasting<'_>) -> Option<u64> {
    let text = match lasting {
        Lasting::Seconds(seconds) => return milliseconds(seconds),
        Lasting::Text(text) => text,
    };
    let span = SpanParser::new().parse_span(text.as_bytes()).ok()?;
    if span.get_years() != 0 || span.get_months() != 0 || span.is_negative() {
        return None;
    }
    let hours = (i64::from(span.get_weeks()) * 7 + i64::from(span.get_days())) * 24
        + i64::from(span.get_hours());
    let seconds = (i128::from(hours) * 60 + i128::from(span.get_minutes())) * 60
        + i128::from(span.get_seconds());
    let ns = seconds * 1_000_000_000
        + i128::from(span.get_milliseconds()) * 1_000_000
        + i128::from(span.get_microseconds()) * 1_000
        + i128::from(span.get_nanoseconds());
    let ms = u64::try_from(ns).ok().map(|ns| ns.div_ceil(1_000_000));
    ms.filter(|&ms| ms <= INTERVAL_MS_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn three_decimals_are_met_exactly(ms in 0..=INTERVAL_MS_MAX) {
            let written = format!("{}.{:03}", ms / 1000, ms % 1000);
            prop_assert_eq!(milliseconds(written.parse().expect("a number")), Some(ms));
        }

        #[test]
        fn more_decimals_are_rounded_up(ms in 0..100_000_000_u64, more in 1..1_000_u64) {
            let written = format!("{}.{:03}{:03}", ms / 1000, ms % 1000, more);
            prop_assert_eq!(milliseconds(written.parse().expect("a number")), Some(ms + 1));
        }
    }

    #[test]
    fn durations_are_seconds_or_iso_8601() {
        for (text, ms) in [
            ("PT15M", 900_000),
            ("PT0S", 0),
            ("P1DT1H", 90_000_000),
            ("P1W", 604_800_000),
            ("PT1.5S", 1_500),
            ("PT0.0001S", 1),
            ("P36500D", 36_500 * 86_400_000),
        ] {
            assert_eq!(lasting_ms(Lasting::Text(text)), Some(ms), "{text}");
        }
        for text in ["", "PT", "15M", "P1M", "P1Y", "-PT1S", "PT1X", "P100000D", "15 minutes"] {
            assert_eq!(lasting_ms(Lasting::Text(text)), None, "{text}");
        }
        assert_eq!(lasting_ms(Lasting::Seconds(1.5)), Some(1_500));
        assert_eq!(lasting_ms(Lasting::Seconds(-1.0)), None);
        assert_eq!(lasting_ms(Lasting::Seconds(f64::NAN)), None);
    }
}
