//! How far this node's monotonic clock is ahead of another's, from the frames that come in.
//!
//! Every frame says when it left. The least difference `received - sent` of the last seconds is the
//! offset plus the least delay of the network: a start converted with it is never before the true
//! one, so a timer never pops early, and late by no more than that least delay (tens of
//! microseconds), even when frames queue.

use crate::base::time::MonoNs;

/// Windows of which the present and the former count: at 500 ppm of drift, two of them are worth 2
/// ms.
pub const WINDOW_MS: u64 = 2_000;

/// The offset to one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    present_ns: Option<i64>,
    former_ns: Option<i64>,
    turned_at: MonoNs,
}

impl ClockOffset {
    /// A frame that left at `sent_at` (the peer's clock) came at `now`.
    pub fn see(&mut self, now: MonoNs, sent_at: MonoNs) {
        let _ = (now, sent_at, self.present_ns, self.former_ns, self.turned_at);
        todo!()
    }

    /// Own clock minus the peer's, in ns, never below the truth; `None` before the first frame.
    pub fn offset_ns(&self) -> Option<i64> {
        todo!()
    }
}
