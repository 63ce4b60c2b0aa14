//! Pops that were given up, on their way from one core to the control thread, which logs them.

use crossbeam_queue::ArrayQueue;

use crate::shard::give_ups::GivenUpPops;

/// Most messages that wait. A core has one a second.
const UNTOLD_MAX: usize = 4;

/// The way of one core.
#[derive(Debug)]
pub struct GiveUpFeed(ArrayQueue<GivenUpPops>);

impl Default for GiveUpFeed {
    fn default() -> Self {
        Self(ArrayQueue::new(UNTOLD_MAX))
    }
}

impl GiveUpFeed {
    /// Whether a message has room. What has none is counted on in the core.
    pub(super) fn has_room(&self) -> bool {
        !self.0.is_full()
    }

    /// Gives a message to the control thread. Only the owning core may call this.
    pub(super) fn give(&self, pops: GivenUpPops) {
        let _ = self.0.push(pops);
    }

    /// Takes a message.
    pub(crate) fn take(&self) -> Option<GivenUpPops> {
        self.0.pop()
    }
}
