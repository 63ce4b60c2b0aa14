//! Charts as inline SVG: distributions on a logarithmic axis, percentile curves, counts over time.
//!
//! The SVG has classes but no colours: the style sheet of the page colours the classes for light
//! and dark screens. Every mark has a `<title>` with its value.

use std::fmt::Write;

use hdrhistogram::Histogram;

use crate::report::{duration_text, grouped};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 34.0;
/// Bars per factor of ten on a logarithmic axis.
const BINS_PER_DECADE: f64 = 20.0;
/// Most points of a timeline: one per two pixels.
const POINTS_MAX: usize = 340;

/// The name and the values of a distribution, in nanoseconds.
pub type Series = (String, Histogram<u64>);

/// A logarithmic axis of microseconds, as decimal logarithms. It begins and ends at a step of 1, 2
/// or 5.
struct LogAxis {
    low: f64,
    high: f64,
}

impl LogAxis {
    /// An axis wide enough for all values. It begins at 1 us or later and spans at least a factor
    /// of five.
    fn of(series: &[Series]) -> LogAxis {
        let full = series.iter().filter(|(_, histogram)| !histogram.is_empty());
        let (mut low, mut high) = (f64::MAX, 1.0f64);
        for (_, histogram) in full {
            low = low.min(histogram.min() as f64 / 1e3);
            high = high.max(histogram.max() as f64 / 1e3);
        }
        let low = step_below(low.clamp(1.0, high));
        LogAxis { low: low.log10(), high: step_above(high.max(low * 5.0)).log10() }
    }

    /// Place of a value on the axis, from 0 to 1.
    fn place(&self, us: f64) -> f64 {
        ((us.max(1e-3).log10() - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// The values to label: 1, 2 and 5 of each decade, or only the decades of a wide axis.
    fn ticks(&self) -> Vec<f64> {
        let factors: &[f64] = if self.high - self.low > 3.2 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decades = self.low.floor() as i32..=self.high.ceil() as i32;
        let all = decades.flat_map(|decade| factors.iter().map(move |f| f * 10f64.powi(decade)));
        all.filter(|us| (self.low - 1e-9..=self.high + 1e-9).contains(&us.log10())).collect()
    }
}

fn step_below(us: f64) -> f64 {
    let decade = 10f64.powf(us.log10().floor());
    [5.0, 2.0, 1.0].map(|factor| factor * decade).into_iter().find(|&s| s <= us).unwrap_or(decade)
}

fn step_above(us: f64) -> f64 {
    let decade = 10f64.powf(us.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade);
    steps.into_iter().find(|&step| step >= us).unwrap_or(10.0 * decade)
}

/// A duration as an axis shows it: `100 µs`, `2 ms`.
fn tick_text(us: f64) -> String {
    match us {
        us if us < 999.0 => format!("{us} µs"),
        us if us < 999_000.0 => format!("{} ms", (us / 1e3).round()),
        us => format!("{} s", (us / 1e6).round()),
    }
}

fn x_at(share: f64) -> f64 {
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

fn y_at(share: f64) -> f64 {
    HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
}

/// An SVG under construction. Writing to a String cannot fail, so results of writes are dropped.
struct Svg(String);

impl Svg {
    fn new(label: &str) -> Svg {
        Svg(format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(label)
        ))
    }

    fn grid_x(&mut self, share: f64, label: &str) {
        let (x, bottom) = (x_at(share), y_at(0.0));
        // A centred label at the right edge would be cut off.
        let anchor = if share > 0.98 { "end" } else { "middle" };
        let _ = write!(
            self.0,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{label}</text>",
            bottom + 18.0
        );
    }

    fn grid_y(&mut self, share: f64, label: &str) {
        let (y, right) = (y_at(share), x_at(1.0));
        let _ = write!(
            self.0,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 8.0,
            y + 4.0
        );
    }

    /// Draws a curve through points, given as shares of both axes.
    fn curve(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut path = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", x_at(*x), y_at(*y));
        }
        let _ = write!(self.0, "<path class=\"line {class}\" d=\"{path}\"/>");
    }

    fn end(mut self) -> String {
        self.0.push_str("</svg>");
        self.0
    }
}

/// Chart of a distribution: bars on a logarithmic axis, with p50, p99 and p99.9 of the first series
/// marked.
pub fn distribution(label: &str, series: &[Series]) -> String {
    let axis = LogAxis::of(series);
    let count = ((axis.high - axis.low) * BINS_PER_DECADE).round().max(1.0) as usize;
    let bins: Vec<Vec<f64>> =
        series.iter().map(|(_, values)| shares(values, &axis, count)).collect();
    let top = bins.iter().flatten().fold(0.0f64, |top, share| top.max(*share)).max(1e-9);
    let top = (top * 20.0).ceil() / 20.0;
    let mut svg = Svg::new(label);
    for us in axis.ticks() {
        svg.grid_x(axis.place(us), &tick_text(us));
    }
    for step in 0..=4 {
        let share = f64::from(step) / 4.0;
        svg.grid_y(share, &format!("{} %", round_text(share * top * 100.0)));
    }
    for (index, ((name, _), bins)) in series.iter().zip(&bins).enumerate() {
        for (bin, share) in bins.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            let (from, to) = (bin as f64 / count as f64, (bin + 1) as f64 / count as f64);
            let us = |place: f64| 10f64.powf(axis.low + place * (axis.high - axis.low));
            // A bar is at least one pixel high, so that a single value among millions shows.
            let y = y_at(share / top).min(y_at(0.0) - 1.0);
            let _ = write!(
                svg.0,
                "<rect class=\"bar s{index}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
                 height=\"{:.1}\" rx=\"1.5\"><title>{}: {} to {}, {:.4} %</title></rect>",
                x_at(from) + 0.7,
                (x_at(to) - x_at(from) - 1.4).max(0.5),
                y_at(0.0) - y,
                escape(name),
                duration_text(us(from)),
                duration_text(us(to)),
                share * 100.0
            );
        }
    }
    if let Some((_, values)) = series.first().filter(|(_, values)| !values.is_empty()) {
        mark_percentiles(&mut svg, values, &axis);
    }
    svg.end()
}

/// The share of the values in each bin of the axis.
fn shares(values: &Histogram<u64>, axis: &LogAxis, count: usize) -> Vec<f64> {
    let mut bins = vec![0.0; count];
    for value in values.iter_recorded() {
        let us = value.value_iterated_to() as f64 / 1e3;
        let bin = (axis.place(us) * count as f64) as usize;
        bins[bin.min(count - 1)] += value.count_at_value() as f64 / values.len() as f64;
    }
    bins
}

fn mark_percentiles(svg: &mut Svg, values: &Histogram<u64>, axis: &LogAxis) {
    // A label that would overlap the label before is left out. The table has all percentiles.
    let mut free_from = 0.0;
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        let us = values.value_at_quantile(quantile) as f64 / 1e3;
        let x = x_at(axis.place(us));
        let _ = write!(
            svg.0,
            "<line class=\"mark\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\">\
             <title>{name} {}</title></line>",
            TOP - 4.0,
            y_at(0.0),
            duration_text(us)
        );
        if x >= free_from {
            let anchor = if x > WIDTH - 90.0 { "end" } else { "start" };
            let _ = write!(
                svg.0,
                "<text class=\"mark-label\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">\
                 {name} {}</text>",
                TOP - 10.0,
                duration_text(us)
            );
            free_from = x + 96.0;
        }
    }
}

/// Chart of the value at each percentile. The axis stretches towards 100 %, so that it shows the
/// slowest values.
pub fn percentile_curve(label: &str, series: &[Series]) -> String {
    let axis = LogAxis::of(series);
    let longest = series.iter().map(|(_, values)| values.len()).max().unwrap_or(1).max(100);
    let nines = (longest as f64).log10().clamp(2.0, 6.0);
    let place = |quantile: f64| -(1.0 - quantile).max(1e-12).log10() / nines;
    let mut svg = Svg::new(label);
    let names = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"];
    for (index, name) in names.iter().enumerate().filter(|(index, _)| *index as f64 <= nines) {
        svg.grid_x(index as f64 / nines, name);
    }
    for us in axis.ticks() {
        svg.grid_y(axis.place(us), &tick_text(us));
    }
    for (index, (name, values)) in series.iter().enumerate().filter(|(_, (_, v))| !v.is_empty()) {
        let curve: Vec<(f64, f64)> = (0..=120)
            .map(|step| {
                let quantile = 1.0 - 10f64.powf(-nines * f64::from(step) / 120.0);
                let us = values.value_at_quantile(quantile) as f64 / 1e3;
                (f64::from(step) / 120.0, axis.place(us))
            })
            .collect();
        svg.curve(&format!("s{index}"), &curve);
        for (word, quantile) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)] {
            let us = values.value_at_quantile(quantile) as f64 / 1e3;
            if place(quantile) <= 1.0 {
                let _ = write!(
                    svg.0,
                    "<circle class=\"dot s{index}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\">\
                     <title>{} {word} {}</title></circle>",
                    x_at(place(quantile)),
                    y_at(axis.place(us)),
                    escape(name),
                    duration_text(us)
                );
            }
        }
    }
    svg.end()
}

/// Chart of events per second over time, from counts per bucket of `bucket_s` seconds.
pub fn timeline(label: &str, counts: &[u32], bucket_s: f64) -> String {
    let together = counts.len().div_ceil(POINTS_MAX).max(1);
    let rates: Vec<f64> = counts
        .chunks(together)
        .map(|chunk| {
            chunk.iter().map(|&n| f64::from(n)).sum::<f64>() / (chunk.len() as f64 * bucket_s)
        })
        .collect();
    let top = step_above(rates.iter().fold(1.0f64, |top, rate| top.max(*rate)));
    let seconds = counts.len().max(1) as f64 * bucket_s;
    let mut svg = Svg::new(label);
    for step in 0..=4 {
        let share = f64::from(step) / 4.0;
        svg.grid_y(share, &rate_text(top * share));
        svg.grid_x(share, &format!("{} s", round_text(seconds * share)));
    }
    let place = |index: usize| (index as f64 + 0.5) / rates.len() as f64;
    let points: Vec<(f64, f64)> =
        rates.iter().enumerate().map(|(index, rate)| (place(index), rate / top)).collect();
    if let (Some(first), Some(last)) = (points.first(), points.last()) {
        let mut area = format!("M{:.1} {:.1}", x_at(first.0), y_at(0.0));
        for (x, y) in &points {
            let _ = write!(area, "L{:.1} {:.1}", x_at(*x), y_at(*y));
        }
        let _ = write!(
            svg.0,
            "<path class=\"area s0\" d=\"{area}L{:.1} {:.1}Z\"/>",
            x_at(last.0),
            y_at(0.0)
        );
        svg.curve("s0", &points);
    }
    for (index, rate) in rates.iter().enumerate() {
        let width = (WIDTH - LEFT - RIGHT) / rates.len() as f64;
        let _ = write!(
            svg.0,
            "<rect class=\"hover\" x=\"{:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{:.1}\">\
             <title>{} s: {}/s</title></rect>",
            x_at(index as f64 / rates.len() as f64),
            y_at(0.0) - TOP,
            round_text(place(index) * seconds),
            grouped(rate.round() as u64)
        );
    }
    svg.end()
}

fn rate_text(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{} M", round_text(rate / 1e6)),
        rate if rate >= 1e3 => format!("{} k", round_text(rate / 1e3)),
        rate => round_text(rate),
    }
}

/// The value with at most two decimals and without trailing zeros.
fn round_text(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Escapes text for HTML and for attributes in double quotes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::new_histogram;

    #[test]
    fn axis_covers_all_values_in_steps_of_one_two_five() {
        let mut values = new_histogram();
        [37_000, 810_000].iter().for_each(|ns| values.record(*ns).unwrap());
        let axis = LogAxis::of(&[("a".to_owned(), values)]);
        assert_eq!(axis.ticks(), [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert!(axis.place(37.0) > 0.0 && axis.place(810.0) < 1.0);
        let empty = LogAxis::of(&[("a".to_owned(), new_histogram())]);
        assert!(empty.high > empty.low && empty.place(0.0) == 0.0);
    }

    #[test]
    fn bins_hold_every_value() {
        let mut values = new_histogram();
        (1..5000u64).for_each(|us| values.record(us * 777).unwrap());
        let axis = LogAxis::of(&[("a".to_owned(), values.clone())]);
        let sum: f64 = shares(&values, &axis, 30).iter().sum();
        assert!((sum - 1.0).abs() < 1e-9);
    }

    #[test]
    fn labels_are_short_and_escaped() {
        assert_eq!([500.0, 2000.0, 1.5e6].map(rate_text), ["500", "2 k", "1.5 M"]);
        assert_eq!([1.0, 2000.0, 5e6].map(tick_text), ["1 µs", "2 ms", "5 s"]);
        assert_eq!(escape("<a b=\"c\">&"), "&lt;a b=&quot;c&quot;&gt;&amp;");
    }
}
