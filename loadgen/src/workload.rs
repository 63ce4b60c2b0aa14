//! What a client sends, and what the answers mean to the sender.

use crate::frames::Head;
use crate::recorder::Operation;

/// What the workload wants sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// A request has been appended.
    Sent(Operation, u64),
    /// Nothing until some answer arrives.
    Later,
    /// Nothing any more.
    Finished,
}

/// What to send, and what answers mean.
pub trait Workload: Send + 'static {
    /// Appends the next request to `out`. `now_ns` is taken before the request can leave this
    /// process.
    fn next(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Next;
    /// A request was answered with 200.
    fn answered(&mut self, operation: Operation, tag: u64, head: &Head<'_>);
    /// A request failed, or its fate is unknown.
    fn failed(&mut self, operation: Operation, tag: u64);
    /// The measured time begins.
    fn measuring(&mut self, _now_ns: u64) {}
}
