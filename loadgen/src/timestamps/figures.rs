//! The figures of one run against one server of timestamps.

use serde::Serialize;

/// The figures of one run against one server.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Calls answered per second.
    pub calls_per_second: f64,
    /// Timestamps received per second.
    pub timestamps_per_second: f64,
    /// CPU time of the server per call in microseconds; `None`: no process is named.
    pub cpu_us: Option<f64>,
    /// Median latency of a call in microseconds, from the moment in which the client had the call
    /// ready to send.
    pub latency_us_p50: f64,
    /// Latency in microseconds that 99 % of the calls do not exceed.
    pub latency_us_p99: f64,
    /// Latency in microseconds that 99.9 % of the calls do not exceed.
    pub latency_us_p999: f64,
    /// Share of the client's core in use. Near 1, the client was the limit.
    pub client_core_share: f64,
}
