//! How far work is, in percent, and how long it takes until it is done.

use std::time::Duration;

/// The whole percents of what is done; `None`: nobody knows how much there is.
pub(crate) fn percent(done: u64, all: u64) -> Option<u64> {
    (all > 0).then(|| (u128::from(done.min(all)) * 100 / u128::from(all)) as u64)
}

/// Seconds that are left if work goes on as it did. `None`: nothing is done yet.
pub(crate) fn left_s(since: Duration, done: u64, all: u64) -> Option<u64> {
    let left = all.saturating_sub(done) as f64;
    (done > 0).then(|| (since.as_secs_f64() * left / done as f64).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_and_estimates_bear_all_figures() {
        assert_eq!(percent(u64::MAX, u64::MAX), Some(100));
        assert_eq!((percent(1, 3), percent(1, 0)), (Some(33), None));
        assert_eq!(left_s(Duration::from_secs(2), 0, 9), None);
        assert_eq!(left_s(Duration::from_secs(2), 9, 3), Some(0));
    }
}
