//! How the popping goes: what has come due, and how late the pops are that fail.

use crate::base::ids::{HostId, Slot};
use crate::base::time::Tick;

/// How the popping goes.
#[derive(Debug, Default)]
pub struct Pops {
    /// Slots that came due in this tick. Empty between ticks, kept for its memory.
    pub due: Vec<Slot>,
    /// Whether the last tick left due slots for the next.
    pub is_behind: bool,
    /// Whether the node stops: no further pop begins.
    pub is_stopping: bool,
    /// Hosts with waiting pops for which other rules hold since the last tick.
    pub released: Vec<HostId>,
    pub oldest_failing: OldestFailing,
    /// No last pop is given up before this moment: a restart has made it late.
    pub none_given_up_before: Tick,
}

/// Due time of the oldest pop seen failing in the last two windows. A pop that backs off is looked
/// at again within `retry_max_ms` and half of it (7.5 s by default), so that none slips through a
/// window.
#[derive(Debug, Default)]
pub struct OldestFailing {
    present: Option<Tick>,
    former: Option<Tick>,
    turned_at: Tick,
}

impl OldestFailing {
    const WINDOW_MS: u64 = 8_000;

    /// Notes a failing pop that was due at `due`.
    pub fn see(&mut self, due: Tick) {
        self.present = Some(self.present.map_or(due, |oldest| oldest.min(due)));
    }

    /// When the oldest failing pop was due; `None`: no pop was seen failing.
    pub fn get(&mut self, now: Tick) -> Option<Tick> {
        if now - self.turned_at >= Self::WINDOW_MS {
            self.former = self.present.take();
            self.turned_at = now;
        }
        self.present.into_iter().chain(self.former).min()
    }
}

#[cfg(test)]
#[path = "pops_tests.rs"]
mod tests;
