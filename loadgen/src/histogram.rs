//! The units of all counts over time: the histogram of nanoseconds, and the bucket of a timeline.

use hdrhistogram::Histogram;

/// Length of a timeline's bucket, in nanoseconds.
pub const BUCKET_NS: u64 = 100_000_000;
/// Most buckets of a timeline: an hour.
pub const BUCKETS_MAX: usize = 36_000;
/// Longest latency that a histogram tells exactly: an hour, in nanoseconds. A longer latency counts
/// as an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// An empty histogram of nanoseconds from 1 ns to 1 h, with three significant digits.
pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are constants that fit")
}
