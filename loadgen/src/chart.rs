//! Charts as inline SVG: distributions on a logarithmic axis, percentile curves, percentiles and
//! counts over time.
//!
//! The SVG has classes but no colours: the style sheet of the page colours the classes for light
//! and dark screens. Every mark has a `<title>` with its value.

mod axis;
mod svg;

use std::fmt::Write;

use hdrhistogram::Histogram;

use crate::over_time::Moment;
use crate::report::{duration_text, grouped};
use axis::{LinearAxis, LogAxis, rate_text, round_text, tick_text};
use svg::Svg;
pub use svg::{Frame, escape};

/// Bars per factor of ten on a logarithmic axis.
const BINS_PER_DECADE: f64 = 20.0;
/// Room above a distribution for one row of labels.
const LABEL_ROW: f64 = 15.0;

/// The name and the values of a distribution, in nanoseconds.
pub type Series = (String, Histogram<u64>);

/// The percentiles that are marked, by name.
const MARKED: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// Chart of a distribution: bars on a logarithmic axis, with p50, p99 and p99.9 of the first series
/// marked.
pub fn distribution(frame: Frame, label: &str, series: &[Series]) -> String {
    let frame = Frame { top: frame.top + LABEL_ROW * (MARKED.len() - 1) as f64, ..frame };
    let axis = axis_of(series);
    let count = ((axis.high - axis.low) * BINS_PER_DECADE).round().max(1.0) as usize;
    let bins: Vec<Vec<f64>> =
        series.iter().map(|(_, values)| shares(values, &axis, count)).collect();
    let top = bins.iter().flatten().fold(0.0f64, |top, share| top.max(*share)).max(1e-3);
    let percents = LinearAxis::of(top * 100.0, 4);
    let mut svg = Svg::new(frame, label);
    for us in axis.ticks(frame.labels_max()) {
        svg.grid_x(axis.place(us), &tick_text(us));
    }
    for percent in percents.ticks() {
        svg.grid_y(percents.place(percent), &format!("{} %", round_text(percent)));
    }
    for (index, ((name, _), bins)) in series.iter().zip(&bins).enumerate() {
        for (bin, share) in bins.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            let (from, to) = (bin as f64 / count as f64, (bin + 1) as f64 / count as f64);
            let us = |place: f64| 10f64.powf(axis.low + place * (axis.high - axis.low));
            // A bar is at least one pixel high, so that a single value among millions shows.
            let y = frame.y_at(percents.place(share * 100.0)).min(frame.y_at(0.0) - 1.0);
            let gap = frame.bar_gap();
            let _ = write!(
                svg.text,
                "<rect class=\"bar s{index}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
                 height=\"{:.1}\" rx=\"1\"><title>{}: {} to {}, {:.4} %</title></rect>",
                frame.x_at(from) + gap / 2.0,
                (frame.x_at(to) - frame.x_at(from) - gap).max(0.5),
                frame.y_at(0.0) - y,
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

fn axis_of(series: &[Series]) -> LogAxis {
    let full = series.iter().filter(|(_, histogram)| !histogram.is_empty());
    let ends = full.map(|(_, histogram)| (histogram.min() as f64, histogram.max() as f64));
    LogAxis::of(ends.flat_map(|(low_ns, high_ns)| [low_ns / 1e3, high_ns / 1e3]))
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

/// Marks percentiles by dashed lines. Each label has a row of its own, so that none hides another.
fn mark_percentiles(svg: &mut Svg, values: &Histogram<u64>, axis: &LogAxis) {
    let frame = svg.frame;
    for (row, (name, quantile)) in MARKED.into_iter().enumerate() {
        let us = values.value_at_quantile(quantile) as f64 / 1e3;
        let x = frame.x_at(axis.place(us));
        let y = LABEL_ROW * (row as f64 + 1.0) - 3.0;
        let text = format!("{name} {}", duration_text(us));
        let _ = write!(
            svg.text,
            "<line class=\"mark\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\">\
             <title>{text}</title></line>",
            y + 3.0,
            frame.y_at(0.0),
        );
        // A label stands on the side that has more room.
        let is_right = axis.place(us) > 0.5;
        let (anchor, beside) = if is_right { ("end", -4.0) } else { ("start", 4.0) };
        svg.label("mark-label", (x + beside, y), anchor, &text);
    }
}

/// Chart of the value at each percentile. The axis stretches towards 100 %, so that it shows the
/// slowest values.
pub fn percentile_curve(frame: Frame, label: &str, series: &[Series]) -> String {
    const STEPS: u32 = 120;
    let axis = axis_of(series);
    let longest = series.iter().map(|(_, values)| values.len()).max().unwrap_or(1).max(1000);
    let nines = (longest as f64).log10().clamp(3.0, 6.0);
    let place = |quantile: f64| -(1.0 - quantile).max(1e-12).log10() / nines;
    let mut svg = Svg::new(frame, label);
    let names = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"];
    for (index, name) in names.iter().enumerate().filter(|(index, _)| *index as f64 <= nines) {
        // Long names need every second place in a narrow chart.
        if nines <= 4.0 || index <= 3 || index % 2 == 1 || frame.labels_max() > 6 {
            svg.grid_x(index as f64 / nines, name);
        }
    }
    for us in axis.ticks(8) {
        svg.grid_y(axis.place(us), &tick_text(us));
    }
    for (index, (name, values)) in series.iter().enumerate().filter(|(_, (_, v))| !v.is_empty()) {
        let at = |quantile: f64| values.value_at_quantile(quantile) as f64 / 1e3;
        let curve: Vec<(f64, f64)> = (0..=STEPS)
            .map(|step| {
                let share = f64::from(step) / f64::from(STEPS);
                (share, axis.place(at(1.0 - 10f64.powf(-nines * share))))
            })
            .collect();
        svg.curve(&format!("s{index}"), &curve);
        // Labels are put from the rarest on. One that the label to its right would hide is left
        // out: the table has all of them.
        let mut free_to = f64::MAX;
        for (word, quantile) in [("p99.9", 0.999), ("p99", 0.99), ("p90", 0.9), ("p50", 0.5)] {
            let us = at(quantile);
            let (x, y) = (frame.x_at(place(quantile)), frame.y_at(axis.place(us)));
            svg.dot(index, (x, y), &format!("{} {word} {}", escape(name), duration_text(us)));
            let text = match word {
                "p99.9" => format!("{word} {}", duration_text(us)),
                _ => duration_text(us),
            };
            let half = 3.4 * text.chars().count() as f64;
            if index == 0 && x + half <= free_to {
                let x = x.min(frame.width - half - 2.0).max(frame.left + half + 2.0);
                svg.label("mark-label", (x, y - 9.0), "middle", &text);
                free_to = x - half;
            }
        }
    }
    svg.end()
}

/// Chart of percentiles over time, on a logarithmic axis: median, p99 and the highest value.
/// A moment without values is a gap.
pub fn percentiles_over_time(
    frame: Frame,
    label: &str,
    moments: &[Option<Moment>],
    seconds: f64,
) -> String {
    let values = moments.iter().flatten().flat_map(|moment| [moment.p50, moment.p99, moment.max]);
    let axis = LogAxis::of(values);
    let times = LinearAxis::to(seconds, frame.labels_max());
    let mut svg = Svg::new(frame, label);
    for us in axis.ticks(8) {
        svg.grid_y(axis.place(us), &tick_text(us));
    }
    for second in times.ticks() {
        svg.grid_x(times.place(second), &format!("{} s", round_text(second)));
    }
    let place = |index: usize| (index as f64 + 0.5) / moments.len() as f64;
    let pieces: [fn(&Moment) -> f64; 3] = [|of| of.p50, |of| of.p99, |of| of.max];
    // The highest values come first, so that they lie under the others.
    for (index, value) in pieces.iter().enumerate().rev() {
        for piece in pieces_of(moments) {
            let points: Vec<(f64, f64)> = piece
                .filter_map(|at| moments[at].map(|of| (place(at), axis.place(value(&of)))))
                .collect();
            match points[..] {
                // A line of one point has no length: a dot stands for it.
                [(x, y)] => svg.dot(index, (frame.x_at(x), frame.y_at(y)), ""),
                _ => svg.curve(&format!("s{index}"), &points),
            }
        }
    }
    for (index, moment) in moments.iter().enumerate() {
        let Some(Moment { p50, p99, max }) = moment else { continue };
        let at = round_text(place(index) * seconds);
        let [p50, p99, max] = [p50, p99, max].map(|us| duration_text(*us));
        svg.hover(index, moments.len(), &format!("{at} s: p50 {p50}, p99 {p99}, max {max}"));
    }
    svg.end()
}

/// The ranges of neighbours that have values.
fn pieces_of(moments: &[Option<Moment>]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let from = next + moments[next..].iter().position(Option::is_some)?;
        let length = moments[from..].iter().position(Option::is_none);
        next = length.map_or(moments.len(), |length| from + length);
        Some(from..next)
    })
}

/// Chart of events per second over time, from counts per bucket of `bucket_s` seconds.
pub fn timeline(frame: Frame, label: &str, counts: &[u32], bucket_s: f64) -> String {
    let together = counts.len().div_ceil(frame.points_max()).max(1);
    let rates: Vec<f64> = counts
        .chunks(together)
        .map(|chunk| {
            chunk.iter().map(|&n| f64::from(n)).sum::<f64>() / (chunk.len() as f64 * bucket_s)
        })
        .collect();
    let axis = LinearAxis::of(rates.iter().fold(1.0f64, |top, rate| top.max(*rate)), 4);
    let seconds = counts.len().max(1) as f64 * bucket_s;
    let times = LinearAxis::to(seconds, frame.labels_max());
    let mut svg = Svg::new(frame, label);
    for rate in axis.ticks() {
        svg.grid_y(axis.place(rate), &rate_text(rate));
    }
    for second in times.ticks() {
        svg.grid_x(times.place(second), &format!("{} s", round_text(second)));
    }
    let place = |index: usize| (index as f64 + 0.5) / rates.len() as f64;
    let points: Vec<(f64, f64)> =
        rates.iter().enumerate().map(|(index, rate)| (place(index), axis.place(*rate))).collect();
    svg.area(&points);
    svg.curve("s0", &points);
    for (index, rate) in rates.iter().enumerate() {
        let at = round_text(place(index) * seconds);
        svg.hover(index, rates.len(), &format!("{at} s: {}/s", grouped(rate.round() as u64)));
    }
    svg.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::new_histogram;

    fn series() -> Vec<Series> {
        let mut values = new_histogram();
        (1..5000u64).for_each(|us| values.record(us * 777).unwrap());
        vec![("all".to_owned(), values)]
    }

    #[test]
    fn bins_hold_every_value() {
        let series = series();
        let sum: f64 = shares(&series[0].1, &axis_of(&series), 30).iter().sum();
        assert!((sum - 1.0).abs() < 1e-9);
    }

    #[test]
    fn each_marked_percentile_has_its_label_in_wide_and_narrow_charts() {
        // p50, p99 and p99.9 are all but the same: labels side by side would hide each other.
        let mut flat = new_histogram();
        (0..1000).for_each(|_| flat.record(2_000_000).unwrap());
        for frame in [Frame::WIDE, Frame::NARROW] {
            for series in [series(), vec![("all".to_owned(), flat.clone())]] {
                let chart = distribution(frame, "a", &series);
                for name in ["p50", "p99", "p99.9"] {
                    assert!(chart.contains(&format!(">{name} ")), "{name} in\n{chart}");
                }
                let curve = percentile_curve(frame, "a", &series);
                assert!(curve.contains("\">p99.9 "), "{curve}");
            }
        }
    }

    #[test]
    fn a_gap_in_time_is_a_gap_in_the_line() {
        let moment = |us| Some(Moment { p50: us, p99: us, max: us });
        let moments = [moment(10.0), moment(20.0), None, moment(30.0), None];
        assert_eq!(pieces_of(&moments).collect::<Vec<_>>(), [0..2, 3..4]);
        let chart = percentiles_over_time(Frame::WIDE, "a", &moments, 0.5);
        assert_eq!((chart.matches("<path").count(), chart.matches("<circle").count()), (3, 3));
        assert_eq!(chart.matches("class=\"hover\"").count(), 3);
        let empty = percentiles_over_time(Frame::NARROW, "a", &[], 0.0);
        assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
    }
}
