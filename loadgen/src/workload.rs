//! What a client sends, and what the answers mean to the workload.

use crate::frames::Head;
use crate::recorder::Operation;

/// What a workload wants the client to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Send the request that was appended. The number is the workload's tag of the request.
    Sent(Operation, u64),
    /// Send nothing before another answer has arrived.
    Later,
    /// Send nothing any more.
    Finished,
}

/// Decides what a client sends, and learns what became of each request.
pub trait Workload: Send + 'static {
    /// Appends the next request to `out`. `now_ns` is read before the request can leave this
    /// process.
    fn next(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Next;
    /// Learns that a request was answered with 200.
    fn answered(&mut self, operation: Operation, tag: u64, head: &Head<'_>);
    /// Learns that a request failed, or that its fate is unknown.
    fn failed(&mut self, operation: Operation, tag: u64);
    /// Learns that the measured time begins.
    fn measuring(&mut self, _now_ns: u64) {}
}
