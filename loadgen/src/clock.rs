//! The clock that all times of a run are taken from.

/// Monotonic nanoseconds.
pub fn clock_ns() -> u64 {
    chronos::ring::now().mono.0
}
