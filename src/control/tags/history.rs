//! One number over time: time-weighted mean and variance, low and high water mark over the last 5
//! s, the current 5 minutes and the previous 5 minutes (docs/compat/timer-service.md §10). Pure:
//! time is an argument, in milliseconds of a clock that never goes back.
//!
//! The last 5 s slide in steps of a tenth of a second: 49 whole tenths and the current one. The 5
//! minutes begin at whole multiples of 5 minutes.

// May panic: indices 2.
// Why it does not: fixed 2.

use serde::{Deserialize, Serialize};

/// Length of a step of the short window.
pub(crate) const STEP_MS: u64 = 100;
/// Steps in the short window, the current one included.
pub(crate) const STEPS: usize = 50;
/// Length of a long window.
pub(crate) const LONG_MS: u64 = 300_000;

/// Figures of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WindowReport {
    /// Time-weighted mean.
    pub average: f64,
    /// Time-weighted variance (of the population: the mean squared distance from the average).
    pub variance: f64,
    /// Low water mark.
    pub low: u64,
    /// High water mark.
    pub high: u64,
}

/// All figures of one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The number at the time of the report.
    pub current: u64,
    /// The window of the last 5 s, less up to a tenth of a second.
    pub last_5_seconds: WindowReport,
    /// The window since the last whole multiple of 5 minutes.
    pub current_5_minutes: WindowReport,
    /// The window of the 5 minutes before [`Report::current_5_minutes`].
    pub previous_5_minutes: WindowReport,
}

impl Report {
    /// Returns the windows by name.
    pub(crate) fn windows(&self) -> [(&'static str, &WindowReport); 3] {
        [
            ("last_5_seconds", &self.last_5_seconds),
            ("current_5_minutes", &self.current_5_minutes),
            ("previous_5_minutes", &self.previous_5_minutes),
        ]
    }

    /// Returns the figures of the sum of two numbers, as far as they follow from the figures of
    /// each.
    ///
    /// - The current number and the averages are exact.
    /// - The variance is that of numbers that move independently.
    /// - The true low water mark is at least the one returned, the true high water mark at most.
    #[must_use]
    pub(crate) fn plus(&self, other: &Report) -> Report {
        let sum = |a: &WindowReport, b: &WindowReport| WindowReport {
            average: a.average + b.average,
            variance: a.variance + b.variance,
            low: a.low.saturating_add(b.low),
            high: a.high.saturating_add(b.high),
        };
        Report {
            current: self.current.saturating_add(other.current),
            last_5_seconds: sum(&self.last_5_seconds, &other.last_5_seconds),
            current_5_minutes: sum(&self.current_5_minutes, &other.current_5_minutes),
            previous_5_minutes: sum(&self.previous_5_minutes, &other.previous_5_minutes),
        }
    }
}

/// A stretch of time: mean and squared distances in West's incremental form, which loses no
/// precision where a large number varies little.
#[derive(Clone, Copy, Debug)]
struct Span {
    weight_ms: f64,
    mean: f64,
    squares: f64,
    /// The least value. `low > high` means that the stretch has no value yet.
    low: u64,
    high: u64,
}

impl Span {
    const EMPTY: Span = Span { weight_ms: 0.0, mean: 0.0, squares: 0.0, low: u64::MAX, high: 0 };

    fn mark(&mut self, low: u64, high: u64) {
        self.low = self.low.min(low);
        self.high = self.high.max(high);
    }

    /// Adds `length_ms` in which the number was `value`.
    fn add(&mut self, value: u64, length_ms: u64) {
        if length_ms > 0 {
            self.join(&Span { weight_ms: length_ms as f64, ..Span::of(value) });
        }
    }

    fn of(value: u64) -> Span {
        Span { weight_ms: 0.0, mean: value as f64, squares: 0.0, low: value, high: value }
    }

    /// Adds another stretch (Chan's formula for two parts).
    fn join(&mut self, other: &Span) {
        let weight_ms = self.weight_ms + other.weight_ms;
        if weight_ms > 0.0 {
            let distance = other.mean - self.mean;
            let share = other.weight_ms / weight_ms;
            self.squares += other.squares + distance * distance * self.weight_ms * share;
            self.mean += distance * share;
            self.weight_ms = weight_ms;
        }
        self.mark(other.low, other.high);
    }

    /// Returns the figures. While no time has passed yet, the average is `value`.
    fn report(&self, value: u64) -> WindowReport {
        let is_marked = self.low <= self.high;
        if self.weight_ms == 0.0 {
            let (low, high) = if is_marked { (self.low, self.high) } else { (value, value) };
            return WindowReport { average: value as f64, variance: 0.0, low, high };
        }
        let variance = (self.squares / self.weight_ms).max(0.0);
        WindowReport { average: self.mean, variance, low: self.low, high: self.high }
    }
}

/// One number and its past. Takes about 2 KiB of memory.
#[derive(Clone, Debug)]
pub(crate) struct History {
    value: u64,
    /// The time up to which the windows are filled.
    at_ms: u64,
    /// Tenths of seconds. A tenth stands at its number modulo [`STEPS`].
    steps: [Span; STEPS],
    current: Span,
    /// The previous 5 minutes; `None` if the number was not known then.
    previous: Option<Span>,
}

impl History {
    /// Makes a number that is 0 since `born_ms`.
    pub(crate) fn new(born_ms: u64) -> Self {
        Self {
            value: 0,
            at_ms: born_ms,
            steps: [Span::EMPTY; STEPS],
            current: Span::EMPTY,
            previous: None,
        }
    }

    /// Returns the number as of the last change.
    pub(crate) fn value(&self) -> u64 {
        self.value
    }

    /// Returns up to which time the windows are filled.
    pub(crate) fn at_ms(&self) -> u64 {
        self.at_ms
    }

    /// Sets the number to `value` from `now_ms` on. On its way the number went down to `low` and up
    /// to `high`. A time before the last change counts as the time of the last change.
    pub(crate) fn change(&mut self, now_ms: u64, value: u64, low: u64, high: u64) {
        self.advance(now_ms);
        self.steps[step_of(self.at_ms)].mark(low, high);
        self.current.mark(low, high);
        self.value = value;
    }

    /// Returns all figures at `now_ms`. Costs a microsecond.
    pub(crate) fn report(&mut self, now_ms: u64) -> Report {
        self.advance(now_ms);
        let mut last = Span::EMPTY;
        self.steps.iter().for_each(|step| last.join(step));
        Report {
            current: self.value,
            last_5_seconds: last.report(self.value),
            current_5_minutes: self.current.report(self.value),
            previous_5_minutes: self.previous.map_or(WindowReport::default(), |s| s.report(0)),
        }
    }

    /// Fills the windows up to `now_ms`: the number stayed as it is.
    fn advance(&mut self, now_ms: u64) {
        let now_ms = now_ms.max(self.at_ms);
        self.advance_steps(now_ms);
        self.advance_long(now_ms);
        self.at_ms = now_ms;
    }

    fn advance_steps(&mut self, now_ms: u64) {
        let (first, last) = (self.at_ms / STEP_MS, now_ms / STEP_MS);
        // Of a long pause only the steps that are still in the window count.
        let oldest = (last + 1).saturating_sub(STEPS as u64);
        for step in first.max(oldest)..=last {
            let begins = step * STEP_MS;
            let span = &mut self.steps[step_of(begins)];
            if begins > self.at_ms {
                *span = Span::EMPTY;
            }
            let from_ms = begins.max(self.at_ms);
            span.add(self.value, now_ms.min(begins + STEP_MS) - from_ms);
        }
    }

    fn advance_long(&mut self, now_ms: u64) {
        let (former, present) = (self.at_ms / LONG_MS, now_ms / LONG_MS);
        if former == present {
            self.current.add(self.value, now_ms - self.at_ms);
            return;
        }
        let mut finished = self.current;
        finished.add(self.value, (former + 1) * LONG_MS - self.at_ms);
        let constant = || {
            let mut span = Span::EMPTY;
            span.add(self.value, LONG_MS);
            span
        };
        self.previous = Some(if former + 1 == present { finished } else { constant() });
        self.current = Span::EMPTY;
        self.current.add(self.value, now_ms - present * LONG_MS);
    }
}

fn step_of(at_ms: u64) -> usize {
    (at_ms / STEP_MS) as usize % STEPS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The values of a number and since when. Its figures are computed from all values.
    struct Naive {
        born_ms: u64,
        values: Vec<(u64, u64)>,
    }

    impl Naive {
        fn window(&self, from_ms: u64, until_ms: u64) -> WindowReport {
            let from_ms = from_ms.max(self.born_ms);
            let value = self.values.last().map_or(0, |(_, value)| *value);
            if until_ms <= from_ms {
                return WindowReport {
                    average: value as f64,
                    low: value,
                    high: value,
                    variance: 0.0,
                };
            }
            let ends = self.values.iter().skip(1).map(|(at, _)| *at).chain([until_ms]);
            let parts: Vec<(f64, u64)> = self
                .values
                .iter()
                .zip(ends)
                .map(|((at, value), end)| (end.min(until_ms), (*at).max(from_ms), *value))
                .filter(|(end, at, _)| end > at)
                .map(|(end, at, value)| ((end - at) as f64, value))
                .collect();
            let length = (until_ms - from_ms) as f64;
            let average = parts.iter().map(|(w, v)| w * *v as f64).sum::<f64>() / length;
            let squares = parts.iter().map(|(w, v)| w * (*v as f64 - average).powi(2));
            WindowReport {
                average,
                variance: squares.sum::<f64>() / length,
                low: parts.iter().map(|(_, v)| *v).min().expect("a window has a value"),
                high: parts.iter().map(|(_, v)| *v).max().expect("a window has a value"),
            }
        }
    }

    fn near(found: &WindowReport, expected: &WindowReport) -> bool {
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (1.0 + b.abs());
        // Squares of large numbers lose digits in the naive sum as well.
        let scale = 1.0 + expected.average * expected.average;
        close(found.average, expected.average)
            && (found.variance - expected.variance).abs() <= 1e-9 * scale
            && (found.low, found.high) == (expected.low, expected.high)
    }

    fn pause() -> impl Strategy<Value = u64> {
        prop_oneof![6 => 1_u64..400, 2 => 400_u64..8_000, 1 => 8_000_u64..900_000]
    }

    proptest! {
        #[test]
        fn figures_are_those_of_a_naive_model(
            born_ms in 0_u64..10_000_000,
            changes in proptest::collection::vec((pause(), 0_u64..1_000, any::<bool>()), 1..80),
            large in prop_oneof![Just(0_u64), Just(1_000_000_000)],
        ) {
            let mut history = History::new(born_ms);
            let mut naive = Naive { born_ms, values: vec![(born_ms, 0)] };
            let mut now_ms = born_ms;
            for (pause_ms, value, is_read) in changes {
                now_ms += pause_ms;
                if !is_read {
                    let value = value + large;
                    history.change(now_ms, value, value, value);
                    naive.values.push((now_ms, value));
                    continue;
                }
                let report = history.report(now_ms);
                let last = (now_ms / STEP_MS + 1).saturating_sub(STEPS as u64) * STEP_MS;
                let expected = naive.window(last, now_ms);
                prop_assert!(near(&report.last_5_seconds, &expected),
                    "{:?} {expected:?}", report.last_5_seconds);
                let long = now_ms / LONG_MS * LONG_MS;
                let expected = naive.window(long, now_ms);
                prop_assert!(near(&report.current_5_minutes, &expected),
                    "{:?} {expected:?}", report.current_5_minutes);
                if born_ms < long {
                    let before = naive.window(long.saturating_sub(LONG_MS), long);
                    prop_assert!(near(&report.previous_5_minutes, &before),
                        "{:?} {before:?}", report.previous_5_minutes);
                } else {
                    prop_assert_eq!(report.previous_5_minutes, WindowReport::default());
                }
            }
        }
    }

    #[test]
    fn marks_on_the_way_count_and_time_never_goes_back() {
        let mut history = History::new(1_000);
        history.change(2_000, 5, 3, 9);
        history.change(1_500, 6, 6, 6);
        let report = history.report(2_000);
        assert_eq!((report.current, report.last_5_seconds.high), (6, 9));
        assert_eq!(report.last_5_seconds.low, 0, "it was 0 for a second");
        assert_eq!(report.last_5_seconds.average, 0.0);
        let later = history.report(20_000);
        let steady = WindowReport { average: 6.0, variance: 0.0, low: 6, high: 6 };
        assert_eq!(later.last_5_seconds, steady);
        assert_eq!((later.current_5_minutes.low, later.current_5_minutes.high), (0, 9));
    }

    #[test]
    fn a_value_ends_with_its_window() {
        let mut history = History::new(0);
        history.change(1, 9, 9, 9);
        history.change(LONG_MS, 4, 4, 4);
        let report = history.report(LONG_MS + 10);
        assert_eq!((report.current_5_minutes.low, report.current_5_minutes.high), (4, 4));
        assert_eq!((report.previous_5_minutes.low, report.previous_5_minutes.high), (0, 9));
        history.change(LONG_MS + 20, 0, 0, 0);
        assert_ne!(history.report(LONG_MS * 2 + 20), Report::default());
        assert_eq!(history.report(LONG_MS * 3 + 20), Report::default());
        assert_eq!(history.report(LONG_MS * 9), Report::default());
    }

    #[test]
    fn sums_of_reports() {
        let (mut one, mut other) = (History::new(0), History::new(0));
        one.change(0, 4, 4, 4);
        other.change(0, 6, 6, 6);
        other.change(3_000, 8, 8, 8);
        let sum = one.report(4_000).plus(&other.report(4_000));
        assert_eq!(sum.current, 12);
        assert_eq!(sum.last_5_seconds.average, 4.0 + (6.0 * 3.0 + 8.0) / 4.0);
        assert_eq!((sum.last_5_seconds.low, sum.last_5_seconds.high), (10, 12));
        assert_eq!(sum.plus(&Report::default()), sum);
    }
}
