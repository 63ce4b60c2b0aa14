//! The dead letters that a shard holds, from the oldest on, and how much room their contents take.

use std::collections::BTreeMap;

use crate::base::ids::{Slot, TimerId};
use crate::timer::definition::Content;

use super::{Record, Records, State};

/// When a letter was given up, in ms since 1970, then its id.
type Age = (u64, TimerId);

/// All dead letters of a shard.
#[derive(Debug, Default)]
pub struct Letters {
    by_age: BTreeMap<Age, Slot>,
    bytes: u64,
}

impl Letters {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_age.len()
    }

    /// Bytes of their contents.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The oldest.
    pub fn oldest(&self) -> Option<Slot> {
        self.by_age.first_key_value().map(|(_, slot)| *slot)
    }
}

impl Records {
    /// The dead letters.
    pub fn letters(&self) -> &Letters {
        &self.letters
    }

    /// The state in which a record with this content begins. Cost for a timer without attributes: a
    /// comparison of bytes that were written a moment ago.
    #[inline]
    pub(super) fn first_state(content: &[u8]) -> State {
        match Content::decode(content).is_parked() {
            true => State::Parked,
            false => State::Armed,
        }
    }

    fn age_of(&self, record: &Record) -> (Age, u64) {
        let content = self.payloads.get(record.payload);
        let letter = Content::decode(content).attributes().letter;
        ((letter.map_or(0, |letter| letter.given_up_ms), record.id), content.len() as u64)
    }

    /// Counts a letter that has been put at a slot.
    #[cold]
    pub(super) fn enter_letter(&mut self, slot: Slot) {
        let (age, bytes) = self.age_of(self.slab.get(slot));
        self.letters.by_age.insert(age, slot);
        self.letters.bytes += bytes;
    }

    /// Counts a letter less. Its content is still there.
    #[cold]
    pub(super) fn leave_letter(&mut self, record: &Record) {
        let (age, bytes) = self.age_of(record);
        self.letters.by_age.remove(&age);
        self.letters.bytes -= bytes;
    }
}
