//! Timers that were read from an original node. Every core gets all of them and merges those that
//! it owns.

// May panic: indices 1.
// Why it does not: places 1.

use std::sync::atomic::{
    AtomicU8,
    Ordering::{Acquire, Release},
};

use crate::base::ids::TimerId;
use crate::wire::peer_message::{PeerMessage, TimerCopy, decode_message};

/// Copies of timers for the cores, and the result of each.
#[derive(Debug)]
pub struct Copies {
    /// The id of each timer, and its copy encoded as a message.
    copies: Vec<(TimerId, Box<[u8]>)>,
    results: Vec<AtomicU8>,
}

/// The values of a result in `Copies::results`.
const WAITING: u8 = 0;
const MERGED: u8 = 1;
const REFUSED: u8 = 2;

impl Copies {
    /// Takes copies that no core has merged yet.
    pub fn of<'a>(copies: impl Iterator<Item = TimerCopy<'a>>) -> Self {
        let copies: Vec<_> = copies
            .map(|copy| {
                let mut bytes = Vec::new();
                PeerMessage::Copy(copy).encode(&mut bytes);
                (copy.standing.id, bytes.into_boxed_slice())
            })
            .collect();
        let results = copies.iter().map(|_| AtomicU8::new(WAITING)).collect();
        Self { copies, results }
    }

    /// Calls `merge` with each copy whose id `is_own` says belongs to the calling core. `merge`
    /// returns whether the copy is merged.
    pub(crate) fn merge(
        &self,
        is_own: impl Fn(TimerId) -> bool,
        mut merge: impl FnMut(TimerCopy<'_>) -> bool,
    ) {
        for ((id, bytes), result) in self.copies.iter().zip(&self.results) {
            if !is_own(*id) {
                continue;
            }
            let is_merged = match decode_message(&mut &bytes[..]) {
                Ok(PeerMessage::Copy(copy)) => merge(copy),
                _ => false,
            };
            result.store(if is_merged { MERGED } else { REFUSED }, Release);
        }
    }

    /// Returns whether every copy has been taken by its core.
    pub fn are_taken(&self) -> bool {
        self.results.iter().all(|result| result.load(Acquire) != WAITING)
    }

    /// Returns whether the copy number `place`, counted from 0, is merged.
    pub fn is_merged(&self, place: usize) -> bool {
        self.results[place].load(Acquire) == MERGED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ranked::{Replicas, Sites};
    use crate::wire::peer_message::Standing;

    #[test]
    fn copies_are_taken_when_every_core_has_taken_its_own() {
        let copy = |id| TimerCopy {
            standing: Standing {
                id: TimerId(id),
                version: 1,
                sequence: 0,
                actives: 0,
                list_digest: 0,
            },
            is_write: false,
            replicas: Replicas::new(),
            factor: 1,
            sites: Sites::new(),
            start_ms: 1,
            interval_ms: 1,
            repeat_for_ms: 1,
            body: None,
        };
        let copies = Copies::of([1, 2, 3].map(copy).into_iter());
        copies.merge(|id| id.0 != 2, |copy| copy.standing.id.0 != 3);
        assert!(!copies.are_taken());
        copies.merge(|id| id.0 == 2, |_| true);
        assert!(copies.are_taken());
        assert_eq!([0, 1, 2].map(|place| copies.is_merged(place)), [true, true, false]);
    }
}
