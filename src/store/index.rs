//! From a 64-bit key to a slot: many small hash tables that store only slots (about 8 bytes an entry) and grow one at a time.

use crate::base::ids::Slot;

/// The index of one shard. Keys are read back from the records through the closures that the calls take.
pub struct Index;

impl Index {
    /// An empty index of `segments` tables (a power of two; production 16 384), hashed under keys made from `seed`.
    pub fn new(_segments: usize, _seed: u64) -> Self {
        todo!()
    }

    /// The slot whose key is `key`.
    pub fn get(&self, _key: u64, _key_of: impl Fn(Slot) -> u64) -> Option<Slot> {
        todo!()
    }

    /// Adds a key that is not in the index.
    pub fn insert(&mut self, _key: u64, _slot: Slot, _key_of: impl Fn(Slot) -> u64) {
        todo!()
    }

    /// Removes a key; its slot.
    pub fn remove(&mut self, _key: u64, _key_of: impl Fn(Slot) -> u64) -> Option<Slot> {
        todo!()
    }

    /// Entries.
    pub fn len(&self) -> u64 {
        todo!()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        todo!()
    }
}
