//! The units of every count over time: the histogram of nanoseconds, and the bucket of a timeline.

use hdrhistogram::Histogram;

/// Length of a bucket of every timeline.
pub const BUCKET_NS: u64 = 100_000_000;
/// Most buckets of a timeline: an hour.
pub const BUCKETS_MAX: usize = 36_000;
/// Longest latency told exactly: an hour. Anything longer counts as an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// An empty histogram of nanoseconds, three significant digits, 1 ns to 1 h.
pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are constants that fit")
}
