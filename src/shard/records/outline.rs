//! What a record is made from.

use super::placements::Placement;
use crate::base::ids::TimerId;
use crate::base::time::Tick;
use crate::timer::schedule::Schedule;
use crate::timer::version::StateKey;

/// All of a state except what is only carried. It comes from a client's write or from a peer's
/// copy.
#[derive(Clone, Copy, Debug)]
pub struct Outline {
    pub id: TimerId,
    pub key: StateKey,
    pub start: Tick,
    pub interval_ms: u64,
    pub repeat_for_ms: u64,
    pub placement: Placement,
}

impl Outline {
    pub fn schedule(&self) -> Schedule {
        Schedule {
            start: self.start,
            interval_ms: self.interval_ms,
            repeat_for_ms: self.repeat_for_ms,
        }
    }
}
