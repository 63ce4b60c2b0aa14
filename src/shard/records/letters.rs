//! The dead letters that a shard holds, from the oldest on, and how much room their contents take.

use std::collections::BTreeMap;

use crate::base::ids::{Slot, TimerId};

/// When a letter was given up, in ms since 1970, then its id.
pub type Age = (u64, TimerId);

/// All dead letters of a shard.
#[derive(Debug, Default)]
pub struct Letters {
    by_age: BTreeMap<Age, Slot>,
    bytes: u64,
}

impl Letters {
    /// Counts a letter that has been put at a slot.
    pub fn enter(&mut self, (age, bytes): (Age, u64), slot: Slot) {
        self.by_age.insert(age, slot);
        self.bytes += bytes;
    }

    /// Counts a letter less.
    pub fn leave(&mut self, (age, bytes): (Age, u64)) {
        self.by_age.remove(&age);
        self.bytes -= bytes;
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.by_age.len()
    }

    /// Bytes of their contents.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The oldest.
    pub fn oldest(&self) -> Option<Slot> {
        self.by_age.first_key_value().map(|(_, slot)| *slot)
    }
}
