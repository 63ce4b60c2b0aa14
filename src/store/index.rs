//! From a 64-bit key to a slot: many small hash tables that store only slots (about 8 bytes an
//! entry) and grow one at a time. One table of ten million entries stalls one insert for more than
//! a second when it doubles; of 16 384 tables each holds about 600, and doubling one moves no more
//! than those. Never holds a key: it is read back from the record, and the hash is keyed, so that
//! clients who choose their ids cannot choose their bucket.

use ahash::RandomState;
use hashbrown::HashTable;

use crate::base::ids::{Slot, mix};

/// Bits of the hash that choose the table. The table itself uses the low bits for the bucket and
/// the top seven as tag.
const SEGMENT_SHIFT: u32 = 32;
/// More tables than this would share bits with the tag.
const SEGMENTS_MAX: usize = 1 << 24;

/// The index of one shard. Keys are read back from the records through the closures that the calls
/// take.
pub struct Index {
    segments: Box<[HashTable<u32>]>,
    segment_mask: usize,
    hasher: RandomState,
    len: u64,
    table_bytes: usize,
}

impl Index {
    /// An empty index of `segments` tables (a power of two; production 16 384: 512 KiB), hashed
    /// under keys made from `seed`.
    pub fn new(segments: usize, seed: u64) -> Self {
        assert!(
            segments.is_power_of_two() && segments <= SEGMENTS_MAX,
            "an index has a power of two of tables, at most {SEGMENTS_MAX}, not {segments}"
        );
        let key = |number: u64| mix(seed ^ mix(number));
        Self {
            segments: (0..segments).map(|_| HashTable::new()).collect(),
            segment_mask: segments - 1,
            hasher: RandomState::with_seeds(key(1), key(2), key(3), key(4)),
            len: 0,
            table_bytes: 0,
        }
    }

    /// The slot whose key is `key`. `key_of` is asked for about one slot.
    #[inline]
    pub fn get(&self, key: u64, key_of: impl Fn(Slot) -> u64) -> Option<Slot> {
        let hash = self.hasher.hash_one(key);
        let segment = &self.segments[self.segment_of(hash)];
        segment.find(hash, |&slot| key_of(Slot(slot)) == key).map(|&slot| Slot(slot))
    }

    /// Adds a key that is not in the index (asserted). `key_of` is asked for every slot of one
    /// table when that table grows, and must answer for the slots that are in the index already.
    #[inline]
    pub fn insert(&mut self, key: u64, slot: Slot, key_of: impl Fn(Slot) -> u64) {
        let hash = self.hasher.hash_one(key);
        let at = self.segment_of(hash);
        let segment = &mut self.segments[at];
        let known = segment.find(hash, |&slot| key_of(Slot(slot)) == key);
        assert!(known.is_none(), "key {key:016x} is in the index already");
        let before = segment.allocation_size();
        segment.insert_unique(hash, slot.0, |&slot| self.hasher.hash_one(key_of(Slot(slot))));
        self.table_bytes = self.table_bytes - before + segment.allocation_size();
        self.len += 1;
    }

    /// Removes a key; its slot.
    #[inline]
    pub fn remove(&mut self, key: u64, key_of: impl Fn(Slot) -> u64) -> Option<Slot> {
        let hash = self.hasher.hash_one(key);
        let at = self.segment_of(hash);
        let segment = &mut self.segments[at];
        let entry = segment.find_entry(hash, |&slot| key_of(Slot(slot)) == key).ok()?;
        self.len -= 1;
        Some(Slot(entry.remove().0))
    }

    /// Entries.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// None.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.segments.len() * size_of::<HashTable<u32>>() + self.table_bytes
    }

    #[inline]
    fn segment_of(&self, hash: u64) -> usize {
        (hash >> SEGMENT_SHIFT) as usize & self.segment_mask
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    #[should_panic(expected = "in the index already")]
    fn a_key_enters_once() {
        let mut index = Index::new(4, 7);
        index.insert(5, Slot(0), |_| 5);
        index.insert(5, Slot(1), |_| 5);
    }

    /// Consecutive keys, the way this service makes ids: no insert may touch more than one small
    /// table.
    #[test]
    fn growth_is_bounded_and_an_entry_costs_at_most_twelve_bytes() {
        let mut index = Index::new(512, 42);
        let asked = Cell::new(0_u64);
        let key_of = |slot: Slot| {
            asked.set(asked.get() + 1);
            0x1234_5678_0000 + u64::from(slot.0)
        };
        let mut asked_max = 0;
        for slot in 0..512 * 600 {
            asked.set(0);
            index.insert(0x1234_5678_0000 + u64::from(slot), Slot(slot), key_of);
            asked_max = asked_max.max(asked.get());
        }
        assert!(asked_max > 200, "tables did grow");
        assert!(asked_max <= 2 * 512, "one insert read {asked_max} records");
        assert!(index.bytes() as u64 <= 12 * index.len(), "{} bytes", index.bytes());
        for slot in 0..512 * 600 {
            assert_eq!(index.get(0x1234_5678_0000 + u64::from(slot), key_of), Some(Slot(slot)));
        }
        let recounted: usize = index.segments.iter().map(HashTable::allocation_size).sum();
        assert_eq!(index.table_bytes, recounted);
    }

    #[test]
    fn the_seed_changes_the_order() {
        let (one, other) = (Index::new(1024, 1), Index::new(1024, 2));
        let same = (0..1000_u64).filter(|key| {
            one.segment_of(one.hasher.hash_one(key)) == other.segment_of(other.hasher.hash_one(key))
        });
        assert!(same.count() < 50);
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(
            segments_log2 in 0_u32..5,
            steps in prop::collection::vec((0_u8..3, 0_u64..64), 1..500)
        ) {
            let mut index = Index::new(1 << segments_log2, 9);
            let (mut keys, mut model) = (Vec::new(), HashMap::new());
            for (step, key) in steps {
                let known = model.get(&key).copied();
                let key_of = |slot: Slot| keys[slot.index()];
                prop_assert_eq!(index.get(key, key_of), known);
                match step {
                    0 | 1 if known.is_none() => {
                        let slot = Slot(keys.len() as u32);
                        index.insert(key, slot, key_of);
                        keys.push(key);
                        model.insert(key, slot);
                    }
                    2 => {
                        prop_assert_eq!(index.remove(key, key_of), known);
                        model.remove(&key);
                    }
                    _ => {}
                }
                prop_assert_eq!(index.len(), model.len() as u64);
            }
        }
    }
}
