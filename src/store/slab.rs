//! Records of one size in chunks. A record never moves. Growth takes one chunk and initialises
//! nothing. Empty chunks go back to their source, two at a time; two that are empty are kept. A
//! slab never holds a value that owns memory, and never hands out an occupied slot.

// May panic: assertions 4, indices 8.
// Why it does not: listed 11, compiled 1.

use std::ops::Range;
use std::sync::Arc;

use super::directory::Directory;
use super::places::{GROUP, Places};
use super::source::Source;
use crate::base::ids::Slot;

/// Records of one chunk, as a power of two. With records of 64 bytes a chunk has 128 KiB. The
/// allocator takes blocks of this size from pages of 4 MiB and loses one block of a page: of 32
/// blocks here, of 16 blocks with chunks twice as large.
const CHUNK_SLOTS_LOG2: u32 = 11;
const CHUNK_SLOTS: usize = 1 << CHUNK_SLOTS_LOG2;

const _: () = assert!(GROUP.is_multiple_of(CHUNK_SLOTS), "a group of slots has whole chunks");

/// A slab of records of type `T`, with one bit of overhead a record.
pub struct Slab<T> {
    chunks: Directory<Vec<T>>,
    source: Arc<Source<T>>,
    /// How many slots were ever given out.
    fresh: u32,
    places: Places,
    /// Chunks that have memory.
    chunks_held: usize,
    /// A group of slots that was empty when it was last looked at, and was kept.
    spare: u32,
    /// The first slot of a group whose chunks were given back, until somebody asks.
    released: Option<Slot>,
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
        let (chunk_at, at) = (slot.index() >> CHUNK_SLOTS_LOG2, slot.index() % CHUNK_SLOTS);
        if at == 0 && self.chunks.get(chunk_at).is_none_or(|chunk| chunk.capacity() == 0) {
            self.open(chunk_at);
        }
        let chunk = &mut self.chunks[chunk_at];
        if at < chunk.len() {
            chunk[at] = value;
        } else {
            assert!(at == chunk.len(), "the slots of a chunk come in order");
            chunk.push(value);
            self.fresh = self.fresh.max(slot.0 + 1);
        }
        slot
    }

    /// Frees an occupied slot and returns its value. Panics if the slot is free.
    #[inline]
    pub fn remove(&mut self, slot: Slot) -> T {
        let is_group_empty = self.places.give_back(slot.0);
        let value = self.chunks[slot.index() >> CHUNK_SLOTS_LOG2][slot.index() % CHUNK_SLOTS];
        if is_group_empty {
            self.emptied(slot.0 / GROUP as u32);
        }
        value
    }

    /// The slots of chunks that were given back since the last call. Nothing else that is kept for
    /// each slot is needed for these. To be asked after each [`remove`](Self::remove).
    #[inline]
    pub fn take_released(&mut self) -> Option<Range<u32>> {
        self.released.take().map(|first| first.0..first.0 + GROUP as u32)
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
        self.chunks.bytes() + self.chunks_held * CHUNK_SLOTS * size_of::<T>() + self.places.bytes()
    }

    /// Takes a chunk for slots none of which is occupied.
    #[cold]
    fn open(&mut self, chunk_at: usize) {
        self.chunks_held += 1;
        match self.chunks.get_mut(chunk_at) {
            Some(chunk) => *chunk = self.source.take(),
            None => self.chunks.push(self.source.take()),
        }
    }

    /// Keeps the chunks of an empty group, if no other is kept, or gives them back.
    #[cold]
    fn emptied(&mut self, group: u32) {
        if self.spare == group || !self.places.is_idle(self.spare) {
            self.spare = group;
            return;
        }
        self.places.close(group);
        let first = group as usize * GROUP;
        for chunk_at in first / CHUNK_SLOTS..(first + GROUP) / CHUNK_SLOTS {
            let chunk = self.chunks.get_mut(chunk_at).map(std::mem::take).unwrap_or_default();
            self.give_back(chunk);
        }
        self.released = Some(Slot(first as u32));
    }

    fn give_back(&mut self, mut chunk: Vec<T>) {
        if chunk.capacity() > 0 {
            chunk.clear();
            self.chunks_held -= 1;
            self.source.give_back(chunk);
        }
    }
}

impl<T> From<Arc<Source<T>>> for Slab<T> {
    /// A slab without records that takes its chunks from `source`.
    fn from(source: Arc<Source<T>>) -> Self {
        Self {
            chunks: Directory::new(),
            source,
            fresh: 0,
            places: Places::new(),
            chunks_held: 0,
            spare: 0,
            released: None,
        }
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
    fn empty_chunks_go_back_two_at_a_time_and_come_again() {
        let mut slab = Slab::new();
        let slots = 4 * GROUP as u32;
        (0..slots).for_each(|record| assert_eq!(slab.insert([record; 4]), Slot(record)));
        let full = slab.bytes();
        let mut released = Vec::new();
        for slot in 0..slots {
            slab.remove(Slot(slot));
            released.extend(slab.take_released());
        }
        // Chunks of one group are kept.
        assert_eq!(released, [1, 2, 3].map(|at| at * GROUP as u32..(at + 1) * GROUP as u32));
        assert!(slab.bytes() < full / 4 + 4096, "{} of {full}", slab.bytes());
        let mut again: Vec<_> = (0..slots).map(|record| slab.insert([record; 4]).0).collect();
        assert!(slab.slots() == slots && slab.bytes() <= full + 64);
        again.sort_unstable();
        assert!(again.into_iter().eq(0..slots), "each slot once");
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
