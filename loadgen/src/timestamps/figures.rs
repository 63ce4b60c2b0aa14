//! The figures of one run against one server of timestamps.

use serde::Serialize;

/// One run against one server.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Calls answered per second.
    pub calls_per_second: f64,
    /// Timestamps per second.
    pub timestamps_per_second: f64,
    /// Server CPU per call in microseconds; absent if no process is named.
    pub cpu_us: Option<f64>,
    /// Latency of a call in microseconds, from when the client had it ready to send.
    pub latency_us_p50: f64,
    /// The same, of 99 in 100.
    pub latency_us_p99: f64,
    /// The same, of 999 in 1000.
    pub latency_us_p999: f64,
    /// Share of the client's core in use; near 1, the client was the limit.
    pub client_core_share: f64,
}
