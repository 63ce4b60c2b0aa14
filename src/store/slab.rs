//! Records of one size in chunks. A record never moves. Growth allocates one chunk and initialises
//! nothing. A slab never holds a value that owns memory, and never hands out an occupied slot.

use std::sync::Arc;

use super::directory::Directory;
use super::places::Places;
use super::source::Source;
use crate::base::ids::Slot;

/// Records of one chunk, as a power of two. With records of 64 bytes a chunk has 128 KiB. The
/// allocator takes blocks of this size from pages of 4 MiB and loses one block of a page: of 32
/// blocks here, of 16 blocks with chunks twice as large.
const CHUNK_SLOTS_LOG2: u32 = 11;
const CHUNK_SLOTS: usize = 1 << CHUNK_SLOTS_LOG2;

/// A slab of records of type `T`, with one bit of overhead a record.
pub struct Slab<T> {
    chunks: Directory<Vec<T>>,
    source: Arc<Source<T>>,
    /// How many slots were ever given out. Every slot below has a record, occupied or freed.
    fresh: u32,
    places: Places,
}

impl<T: Copy> Slab<T> {
    /// Records of a chunk.
    pub const CHUNK_LEN: usize = CHUNK_SLOTS;

    /// A slab without records.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self::from(Source::none(CHUNK_SLOTS))
    }

    /// Stores `value`, in a freed slot if there is one, and returns its slot. Slots that were never
    /// given out come in the order 0, 1, 2 ... Cost: at most one chunk.
    #[inline]
    pub fn insert(&mut self, value: T) -> Slot {
        let slot = Slot(self.places.take());
        if slot.0 < self.fresh {
            self.chunks[slot.index() >> CHUNK_SLOTS_LOG2][slot.index() % CHUNK_SLOTS] = value;
            return slot;
        }
        assert!(slot.0 == self.fresh, "fresh places come in order");
        if slot.index().is_multiple_of(CHUNK_SLOTS) {
            self.chunks.push(self.source.take());
        }
        self.chunks.last_mut().expect("a chunk holds slot 0 onwards").push(value);
        self.fresh += 1;
        slot
    }

    /// Frees an occupied slot and returns its value. Panics if the slot is free.
    #[inline]
    pub fn remove(&mut self, slot: Slot) -> T {
        self.places.give_back(slot.0);
        self.chunks[slot.index() >> CHUNK_SLOTS_LOG2][slot.index() % CHUNK_SLOTS]
    }

    /// The value of an occupied slot. Panics if the slot is free.
    #[inline]
    pub fn get(&self, slot: Slot) -> &T {
        assert!(self.places.contains(slot.0), "slot {} is read, but free", slot.0);
        &self.chunks[slot.index() >> CHUNK_SLOTS_LOG2][slot.index() % CHUNK_SLOTS]
    }

    /// The value of an occupied slot, to change. Panics if the slot is free.
    #[inline]
    pub fn get_mut(&mut self, slot: Slot) -> &mut T {
        assert!(self.places.contains(slot.0), "slot {} is changed, but free", slot.0);
        &mut self.chunks[slot.index() >> CHUNK_SLOTS_LOG2][slot.index() % CHUNK_SLOTS]
    }

    /// Whether a slot is occupied. False for a slot that was never given out.
    #[inline]
    pub fn contains(&self, slot: Slot) -> bool {
        self.places.contains(slot.0)
    }

    /// The occupied slots from `from` on, in ascending order. A sweep in portions starts here
    /// again.
    pub fn occupied_from(&self, from: Slot) -> impl Iterator<Item = Slot> + '_ {
        std::iter::successors(self.places.first_from(from.0), |&last| {
            self.places.first_from(last + 1)
        })
        .map(Slot)
    }

    /// How many slots were ever given out. Every occupied slot is below.
    pub fn slots(&self) -> u32 {
        self.fresh
    }

    /// How many slots are occupied.
    #[inline]
    pub fn len(&self) -> u64 {
        self.places.len()
    }

    /// Whether no slot is occupied.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory, as reserved.
    pub fn bytes(&self) -> usize {
        self.chunks.bytes() + self.chunks.len() * CHUNK_SLOTS * size_of::<T>() + self.places.bytes()
    }
}

impl<T> From<Arc<Source<T>>> for Slab<T> {
    /// A slab without records that takes its chunks from `source`.
    fn from(source: Arc<Source<T>>) -> Self {
        Self { chunks: Directory::new(), source, fresh: 0, places: Places::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    #[should_panic(expected = "freed, but was not taken")]
    fn freeing_twice_stops() {
        let mut slab = Slab::new();
        let slot = slab.insert(1_u64);
        slab.insert(2);
        slab.remove(slot);
        slab.remove(slot);
    }

    #[test]
    #[should_panic(expected = "is read, but free")]
    fn reading_a_freed_slot_stops() {
        let mut slab = Slab::new();
        let slot = slab.insert(1_u64);
        slab.remove(slot);
        slab.get(slot);
    }

    #[test]
    fn memory_is_the_records_and_an_eighth_of_a_byte() {
        let mut slab = Slab::new();
        for record in 0..10 * CHUNK_SLOTS as u64 {
            let before = slab.bytes();
            slab.insert([record; 6]);
            assert!(slab.bytes() - before <= CHUNK_SLOTS * 48 + 2048, "one chunk at a time");
        }
        assert!(slab.bytes() <= 10 * CHUNK_SLOTS * 48 + 8 * 1024);
        let full = slab.bytes();
        for slot in 0..10 * CHUNK_SLOTS as u32 {
            slab.remove(Slot(slot));
        }
        for record in 0..10 * CHUNK_SLOTS as u64 {
            slab.insert([record; 6]);
        }
        assert!(slab.bytes() <= full + 1024, "freed slots are used again");
    }

    #[test]
    fn bytes_are_whole_chunks_their_directory_and_the_places() {
        let mut slab = Slab::new();
        assert!(slab.is_empty() && slab.bytes() == 0);
        for record in 0..=CHUNK_SLOTS as u64 {
            slab.insert([record; 6]);
        }
        assert!(!slab.is_empty());
        let directory = 4 * 24 + 4 * 24;
        assert_eq!(slab.bytes(), directory + 2 * CHUNK_SLOTS * 48 + slab.places.bytes());
    }

    proptest! {
           #[test]
           fn behaves_like_a_map(steps in prop::collection::vec((0_u8..5, any::<u16>()), 1..400)) {
               let (mut slab, mut model) = (Slab::new(), BTreeMap::new());
               for (step, value) in steps {
                   let picked = model.keys().nth(usize::from(value) % model.len().max(1)).copied();
                   match (step, picked) {
                       (0..=2, _) => {
                           let slot = slab.insert(value);
                           prop_assert!(model.insert(slot, value).is_none());
                       }
                       (3, Some(slot)) => {
    let removed = Some(slab.remove(slot));
    prop_assert_eq!(removed, model.remove(&slot));
    }
                       (4, Some(slot)) => {
                           *slab.get_mut(slot) ^= 1;
                           *model.get_mut(&slot).expect("picked from the model") ^= 1;
                       }
                       _ => {}
                   }
                   prop_assert_eq!(slab.len(), model.len() as u64);
                   prop_assert!(model.iter().all(|(&slot, value)| slab.get(slot) == value));
                   let from = Slot(u32::from(value) % 32);
                   let expected = model.range(from..).map(|(&slot, _)| slot);
    prop_assert!(slab.occupied_from(from).eq(expected));
               }
           }
       }
}
