//! The axes of charts: where a value stands, and which values are labelled.

/// A logarithmic axis of microseconds, as decimal logarithms. It begins and ends at a step of 1, 2
/// or 5.
pub(super) struct LogAxis {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl LogAxis {
    /// An axis wide enough for all values. It begins at 1 us or later and spans at least a factor
    /// of five.
    pub(super) fn of(values_us: impl Iterator<Item = f64>) -> LogAxis {
        let (mut low, mut high) = (f64::MAX, 1.0f64);
        for us in values_us {
            low = low.min(us);
            high = high.max(us);
        }
        let low = step_below(low.clamp(1.0, high));
        LogAxis { low: low.log10(), high: step_above(high.max(low * 5.0)).log10() }
    }

    /// Place of a value on the axis, from 0 to 1.
    pub(super) fn place(&self, us: f64) -> f64 {
        ((us.max(1e-3).log10() - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// The values to label, at most so many: 1 us, 10 us, 100 us, with 2 and 5 between them only
    /// where two factors of ten or less leave too few.
    pub(super) fn ticks(&self, ticks_max: usize) -> Vec<f64> {
        let factors: &[f64] = if self.high - self.low > 2.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decades = self.low.floor() as i32..=self.high.ceil() as i32;
        let all = decades.flat_map(|decade| factors.iter().map(move |f| f * 10f64.powi(decade)));
        let is_inside = |us: &f64| (self.low - 1e-9..=self.high + 1e-9).contains(&us.log10());
        let all: Vec<f64> = all.filter(is_inside).collect();
        let every = all.len().div_ceil(ticks_max.max(1)).max(1);
        all.into_iter().step_by(every).collect()
    }
}

fn step_below(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let steps = [5.0, 2.0, 1.0].map(|factor| factor * decade);
    steps.into_iter().find(|&step| step <= value).unwrap_or(decade)
}

fn step_above(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade);
    steps.into_iter().find(|&step| step >= value).unwrap_or(10.0 * decade)
}

/// An axis from 0 on whose labels are 1, 2 or 5 apart, times a power of ten.
pub(super) struct LinearAxis {
    top: f64,
    step: f64,
}

impl LinearAxis {
    /// An axis that ends at a label, at or above `top`, with about so many steps.
    pub(super) fn of(top: f64, steps: usize) -> LinearAxis {
        let axis = LinearAxis::to(top, steps);
        LinearAxis { top: (axis.top / axis.step - 1e-9).ceil() * axis.step, step: axis.step }
    }

    /// An axis that ends at `top`, with at most so many steps.
    pub(super) fn to(top: f64, steps: usize) -> LinearAxis {
        let top = top.max(1e-3);
        LinearAxis { top, step: step_above(top / steps.max(1) as f64) }
    }

    /// Place of a value on the axis, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        (value / self.top).clamp(0.0, 1.0)
    }

    /// The values to label.
    pub(super) fn ticks(&self) -> impl Iterator<Item = f64> {
        let count = (self.top / self.step + 1e-9).floor() as u32;
        (0..=count).map(|number| f64::from(number) * self.step)
    }
}

/// A duration as an axis shows it: `100 µs`, `2 ms`.
pub(super) fn tick_text(us: f64) -> String {
    match us {
        us if us < 999.0 => format!("{} µs", round_text(us)),
        us if us < 999_000.0 => format!("{} ms", round_text(us / 1e3)),
        us => format!("{} s", round_text(us / 1e6)),
    }
}

/// A rate as an axis shows it: `500`, `10 k`.
pub(super) fn rate_text(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{} M", round_text(rate / 1e6)),
        rate if rate >= 1e3 => format!("{} k", round_text(rate / 1e3)),
        rate => round_text(rate),
    }
}

/// The value with at most two decimals and without trailing zeros.
pub(super) fn round_text(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_axis_covers_all_values_and_its_labels_are_powers_of_ten() {
        let axis = LogAxis::of([37.0, 81_000.0].into_iter());
        assert_eq!(axis.ticks(8), [100.0, 1_000.0, 10_000.0, 100_000.0]);
        assert!(axis.place(37.0) > 0.0 && axis.place(81_000.0) < 1.0);
        let short = LogAxis::of([37.0, 810.0].into_iter());
        assert_eq!(short.ticks(8), [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert_eq!(short.ticks(3), [20.0, 100.0, 500.0]);
        let empty = LogAxis::of(std::iter::empty());
        assert!(empty.high > empty.low && empty.place(0.0) == 0.0);
    }

    #[test]
    fn a_linear_axis_has_plain_steps() {
        let ticks = |axis: LinearAxis| axis.ticks().map(rate_text).collect::<Vec<_>>();
        assert_eq!(ticks(LinearAxis::of(18_700.0, 4)), ["0", "5 k", "10 k", "15 k", "20 k"]);
        assert_eq!(ticks(LinearAxis::of(20_000.0, 4)), ["0", "5 k", "10 k", "15 k", "20 k"]);
        assert_eq!(ticks(LinearAxis::to(9.7, 5)), ["0", "2", "4", "6", "8"]);
        assert_eq!(
            ticks(LinearAxis::to(0.3, 6)),
            ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"]
        );
        assert_eq!(LinearAxis::to(0.0, 0).place(5.0), 1.0);
    }

    #[test]
    fn labels_are_short() {
        assert_eq!([500.0, 2000.0, 1.5e6].map(rate_text), ["500", "2 k", "1.5 M"]);
        assert_eq!([1.0, 2000.0, 5e6].map(tick_text), ["1 µs", "2 ms", "5 s"]);
        assert_eq!([2.5, 2500.0, 2.5e6].map(tick_text), ["2.5 µs", "2.5 ms", "2.5 s"]);
        assert_eq!(tick_text(3.0 * 0.1e6), "300 ms");
    }
}
