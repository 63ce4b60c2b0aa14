//! Durations as people type them: `90`, `1.5`, `15m`, `1h30m`, `2d`, `PT15M`.

use std::ops::RangeInclusive;

use jiff::SignedDuration;

/// Reads numbers with the units d, h, m and s, each at most once and in this order.
pub(super) fn with_units(text: &str) -> Option<u64> {
    let (mut total, mut rest) = (0_u64, text);
    for (unit, length) in [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)] {
        if let Some((count, behind)) = rest.split_once(unit) {
            let count: u64 = count.parse().ok()?;
            total = total.checked_add(count.checked_mul(length)?)?;
            rest = behind;
        }
    }
    (rest.is_empty() && !text.is_empty()).then_some(total)
}

/// Reads a duration in seconds that is in a range.
pub(super) fn seconds_in(text: &str, range: &RangeInclusive<f64>) -> Result<f64, String> {
    let iso = || text.starts_with('P').then(|| text.parse::<SignedDuration>().ok()).flatten();
    let read = text.parse().ok();
    let read = read.or_else(|| with_units(text).map(|seconds| seconds as f64));
    let read = read.or_else(|| iso().map(|duration| duration.as_secs_f64()));
    read.filter(|seconds| range.contains(seconds)).ok_or_else(|| {
        let (from, to) = (range.start(), range.end());
        format!("expected {from} to {to} seconds, as 90, 1.5, 15m, 1h30m, 2d or PT15M")
    })
}

/// Reads a duration of whole seconds that is in a range.
pub(super) fn whole_seconds_in(text: &str, range: &RangeInclusive<u64>) -> Result<u64, String> {
    let seconds = seconds_in(text, &(*range.start() as f64..=*range.end() as f64))?;
    match seconds.fract() == 0.0 {
        true => Ok(seconds as u64),
        false => Err("expected whole seconds".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_numbers_of_seconds_or_have_units() {
        let range = 0.1..=172_800.0;
        for (text, seconds) in [
            ("0.1", 0.1),
            ("90", 90.0),
            ("90s", 90.0),
            ("1m", 60.0),
            ("1h30m", 5_400.0),
            ("2d", 172_800.0),
        ] {
            assert_eq!(seconds_in(text, &range), Ok(seconds));
        }
        for bad in ["", "0", "0s", "3d", "nan", "inf", "-1", "1x", "m", "1m1h", "1.5m", "1e400"] {
            let told = seconds_in(bad, &range).expect_err(bad);
            assert!(told.starts_with("expected 0.1 to 172800 seconds, as 90, 1.5, 15m"), "{told}");
        }
        assert_eq!(seconds_in("PT1M30S", &range), Ok(90.0));
        assert_eq!(whole_seconds_in("2m", &(1..=120)), Ok(120));
        for bad in ["1.5", "0", "121", "3m", ""] {
            assert!(whole_seconds_in(bad, &(1..=120)).is_err(), "{bad}");
        }
    }
}
