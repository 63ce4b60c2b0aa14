//! How a duration is spread in each tenth of a second, coarsely: what a chart over time needs, in
//! some 900 bytes a tenth and a few instructions a value.

use crate::histogram::{BUCKET_NS, BUCKETS_MAX};

/// Durations below 2 to this power nanoseconds (1 us) share a cell.
const FIRST_BITS: u32 = 10;
/// Durations from 2 to this power nanoseconds (69 s) on share a cell.
const LAST_BITS: u32 = 36;
/// Cells per doubling, as a power of two. A cell is at most an eighth wider than its lower end.
const STEPS_BITS: u32 = 3;
const CELLS: usize = (((LAST_BITS - FIRST_BITS) << STEPS_BITS) + 2) as usize;

/// The durations of one tenth of a second.
#[derive(Clone, Debug)]
struct Slice {
    counts: [u32; CELLS],
    longest_ns: u64,
}

impl Slice {
    const EMPTY: Slice = Slice { counts: [0; CELLS], longest_ns: 0 };

    fn add(&mut self, other: &Slice) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum = sum.saturating_add(*count);
        }
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    /// The duration that this share of the values does not exceed, in microseconds.
    fn quantile_us(&self, total: u64, share: f64) -> f64 {
        let wanted = ((total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (cell, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return middle_ns(cell).min(self.longest_ns as f64) / 1e3;
            }
        }
        self.longest_ns as f64 / 1e3
    }
}

/// What a chart shows of one moment, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Moment {
    /// The median.
    pub p50: f64,
    /// The value that 99 % of the values do not exceed.
    pub p99: f64,
    /// The highest value, exactly.
    pub max: f64,
}

/// Durations by the time at which they were known.
#[derive(Clone, Debug, Default)]
pub struct OverTime {
    slices: Vec<Slice>,
}

impl OverTime {
    /// Notes a duration that was known `after_ns` behind the beginning. Beyond an hour nothing is
    /// noted.
    pub fn note(&mut self, after_ns: u64, duration_ns: u64) {
        let place = (after_ns / BUCKET_NS) as usize;
        if place >= BUCKETS_MAX {
            return;
        }
        if place >= self.slices.len() {
            self.slices.resize(place + 1, Slice::EMPTY);
        }
        let slice = &mut self.slices[place];
        let count = &mut slice.counts[cell_of(duration_ns)];
        *count = count.saturating_add(1);
        slice.longest_ns = slice.longest_ns.max(duration_ns);
    }

    /// How long the time is in which something was noted.
    pub fn seconds(&self) -> f64 {
        (self.slices.len() as u64 * BUCKET_NS) as f64 / 1e9
    }

    /// At most `points_max` moments, equally far apart; `None`: nothing was noted there.
    pub fn moments(&self, points_max: usize) -> Vec<Option<Moment>> {
        let together = self.slices.len().div_ceil(points_max.max(1)).max(1);
        let moment = |slices: &[Slice]| {
            let mut sum = Slice::EMPTY;
            slices.iter().for_each(|slice| sum.add(slice));
            let total = sum.counts.iter().map(|count| u64::from(*count)).sum::<u64>();
            let at = |share| sum.quantile_us(total, share);
            (total > 0).then(|| Moment {
                p50: at(0.5),
                p99: at(0.99),
                max: sum.longest_ns as f64 / 1e3,
            })
        };
        self.slices.chunks(together).map(moment).collect()
    }
}

fn cell_of(ns: u64) -> usize {
    if ns < 1 << FIRST_BITS {
        return 0;
    }
    let bits = ns.ilog2();
    if bits >= LAST_BITS {
        return CELLS - 1;
    }
    // The bits behind the highest one say which part of the doubling it is.
    let part = (ns >> (bits - STEPS_BITS)) & ((1 << STEPS_BITS) - 1);
    1 + (((bits - FIRST_BITS) << STEPS_BITS) as usize) + part as usize
}

/// The duration in the middle of a cell, in nanoseconds.
fn middle_ns(cell: usize) -> f64 {
    if cell == 0 {
        return f64::from(1u32 << (FIRST_BITS - 1));
    }
    let steps = f64::from(1u32 << STEPS_BITS);
    let (doublings, part) = ((cell - 1) >> STEPS_BITS, (cell - 1) & ((1 << STEPS_BITS) - 1));
    let low = 2f64.powi(FIRST_BITS as i32 + doublings as i32);
    low * (1.0 + (part as f64 + 0.5) / steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_tells_its_durations_to_a_sixteenth() {
        let mut ns = 1 << FIRST_BITS;
        let mut last = 0;
        while ns < 1u64 << LAST_BITS {
            let cell = cell_of(ns);
            assert!(cell == last || cell == last + 1, "{ns}: {cell} behind {last}");
            let error = (middle_ns(cell) - ns as f64).abs() / ns as f64;
            assert!(error <= 1.0 / 16.0 + 1e-9, "{ns} ns: {error}");
            last = cell;
            ns += ns / 37;
        }
        assert_eq!([cell_of(0), cell_of(1023)], [0, 0]);
        assert_eq!([cell_of(1 << LAST_BITS), cell_of(u64::MAX)], [CELLS - 1, CELLS - 1]);
    }

    #[test]
    fn moments_tell_what_was_noted_in_them_and_gaps_are_gaps() {
        let mut times = OverTime::default();
        for us in 1..=100u64 {
            times.note(0, us * 1000);
        }
        times.note(2 * BUCKET_NS, 7_000_000);
        let moments = times.moments(10);
        let first = moments[0].unwrap();
        assert!((47.0..=53.0).contains(&first.p50) && (93.0..=100.0).contains(&first.p99));
        assert_eq!((first.max, moments[1], moments[2].unwrap().max), (100.0, None, 7000.0));
        assert_eq!((moments.len(), times.seconds()), (3, 0.3));
        // Two slices a point: the gap is filled by its neighbour.
        let together = times.moments(2);
        assert_eq!((together.len(), together[1].unwrap().max), (2, 7000.0));
        assert!(OverTime::default().moments(5).is_empty());
    }

    #[test]
    fn nothing_is_noted_beyond_an_hour() {
        let mut times = OverTime::default();
        times.note(BUCKETS_MAX as u64 * BUCKET_NS, 1);
        assert_eq!(times.seconds(), 0.0);
    }
}
