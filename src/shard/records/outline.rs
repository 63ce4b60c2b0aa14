//! What a record is made from.

use super::placements::Placement;
use crate::base::ids::TimerId;
use crate::base::time::Tick;
use crate::timer::definition::Content;
use crate::timer::naming::{KEY_REMEMBERED_MS, may_be_of_key};
use crate::timer::schedule::Schedule;
use crate::timer::version::StateKey;
use crate::wire::peer_message::CopyBody;

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

    /// The outline of the end of a timer that was told with this body. `None`: its end was told.
    pub fn ended(self, tick: Tick, body: Option<CopyBody<'_>>) -> Self {
        let Some(body) = body else { return self };
        let once = || Content::decode(body.content).attributes().once;
        let numbers = (self.interval_ms, self.repeat_for_ms);
        let (interval_ms, repeat_for_ms) = ended_numbers(self.id, numbers, self.start, tick, once);
        Self { interval_ms, repeat_for_ms, ..self }
    }
}

/// Interval and repeat-for of the end of a timer that had these numbers. If a key made the timer's
/// id, the end has the digest of the body that came with the key in place of the repeat-for, and
/// stays until the key may be forgotten. A repeat-for in that place would be taken for the digest
/// of another body. `once` tells the digest; `None`: a client chose the id.
pub fn ended_numbers(
    id: TimerId,
    (interval_ms, repeat_for_ms): (u64, u64),
    start: Tick,
    tick: Tick,
    once: impl FnOnce() -> Option<u64>,
) -> (u64, u64) {
    if !may_be_of_key(id) {
        return (interval_ms, repeat_for_ms);
    }
    match once() {
        None => (interval_ms, 0),
        Some(digest) => {
            let left_ms = (start + KEY_REMEMBERED_MS).0.saturating_sub(tick.0);
            (interval_ms.max(left_ms.min(KEY_REMEMBERED_MS)), digest)
        }
    }
}
