//! The clock from which all times of a run are taken.

/// Nanoseconds on the monotonic clock.
pub fn clock_ns() -> u64 {
    chronos::ring::now().mono.0
}
