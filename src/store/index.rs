//! The index leads from a 64-bit key to a slot. It has many small hash tables that grow one at a
//! time. One table of ten million entries would stall one insert for more than a second when it
//! doubles; of 2 048 tables each holds about 4 900.
//!
//! An entry is a slot and 32 bits of its key's hash, so that growth reads no record. Neighbouring
//! keys, such as the ids that are minted in one millisecond, share a table, so a burst of creates
//! touches few tables. The hash is keyed. So clients that choose their ids can choose neither the
//! table (except that neighbours share one) nor the bucket.

use ahash::RandomState;

use crate::base::ids::{Slot, mix};

/// How many low bits of a key neighbours may differ in: 512 of the 4096 ids of a millisecond share
/// a table.
const NEIGHBOURS_BITS: u32 = 9;
/// Most tables of an index. More tables are never useful.
const SEGMENTS_MAX: usize = 1 << 24;

/// A slot, and the hash by which its table finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    hash: u32,
    slot: u32,
}

impl Entry {
    /// A place without an entry. The slab never hands out this slot.
    const NONE: Entry = Entry { hash: u32::MAX, slot: u32::MAX };
}

/// A hash table with linear probing: an entry stands at the place that its hash says, or at the
/// first place after it that was free. So a lookup reads one cache line, seldom two. After a
/// removal the entries behind the hole move up, so that no search ends too soon.
#[derive(Default)]
struct Table {
    places: Vec<Entry>,
    len: usize,
}

impl Table {
    /// Places of the smallest table: a cache line.
    const PLACES_MIN: usize = 8;

    /// The place where an entry with this hash belongs. Of two hashes the greater one does not
    /// belong before the other.
    #[inline]
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.places.len() as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        if place + 1 == self.places.len() { 0 } else { place + 1 }
    }

    /// The place of the entry with this hash that `is_it` accepts.
    #[inline]
    fn find(&self, hash: u32, is_it: impl Fn(Slot) -> bool) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        let mut place = self.home(hash);
        loop {
            let entry = self.places[place];
            if entry == Entry::NONE {
                return None;
            }
            if entry.hash == hash && is_it(Slot(entry.slot)) {
                return Some(place);
            }
            place = self.after(place);
        }
    }

    /// Whether the table must grow before another entry. At most 4/5 of the places are taken.
    #[inline]
    fn is_full(&self) -> bool {
        (self.len + 1) * 5 > self.places.len() * 4
    }

    /// Adds an entry to a table that is not full.
    #[inline]
    fn insert(&mut self, entry: Entry) {
        let mut place = self.home(entry.hash);
        while self.places[place] != Entry::NONE {
            place = self.after(place);
        }
        self.places[place] = entry;
        self.len += 1;
    }

    /// Grows to the next size: 8, 12, 16, 24, 32, 48 ... places. Cost: moves every entry.
    #[cold]
    fn grow(&mut self) {
        let places = self.places.len();
        let more = match places {
            0 => Self::PLACES_MIN,
            _ if places.is_power_of_two() => places + places / 2,
            _ => places / 3 * 4,
        };
        let former = std::mem::replace(&mut self.places, vec![Entry::NONE; more]);
        self.len = 0;
        let entries = former.into_iter().filter(|entry| *entry != Entry::NONE);
        entries.for_each(|entry| self.insert(entry));
    }

    /// Takes the entry at a place out. Moves the entries behind it up, as far as they belong.
    #[inline]
    fn remove(&mut self, place: usize) -> Entry {
        let removed = self.places[place];
        let (mut hole, mut next) = (place, self.after(place));
        while self.places[next] != Entry::NONE {
            let home = self.home(self.places[next].hash);
            // How far the entry stands, and the hole lies, behind where the entry belongs.
            let count = self.places.len();
            let behind =
                |place: usize| if place >= home { place - home } else { place + count - home };
            if behind(hole) < behind(next) {
                self.places[hole] = self.places[next];
                hole = next;
            }
            next = self.after(next);
        }
        self.places[hole] = Entry::NONE;
        self.len -= 1;
        removed
    }

    fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Entry>()
    }
}

/// The index of one shard. The index stores no keys; calls read a slot's key back from its record
/// through the closure `key_of`.
pub struct Index {
    segments: Box<[Table]>,
    segment_mask: usize,
    hasher: RandomState,
    len: u64,
    table_bytes: usize,
}

impl Index {
    /// An empty index of `segments` tables (a power of two; a node uses 2 048: 64 KiB). The keys of
    /// the hash are made from `seed`.
    pub fn new(segments: usize, seed: u64) -> Self {
        assert!(
            segments.is_power_of_two() && segments <= SEGMENTS_MAX,
            "an index has a power of two of tables, at most {SEGMENTS_MAX}, not {segments}"
        );
        let key = |number: u64| mix(seed ^ mix(number));
        Self {
            segments: (0..segments).map(|_| Table::default()).collect(),
            segment_mask: segments - 1,
            hasher: RandomState::with_seeds(key(1), key(2), key(3), key(4)),
            len: 0,
            table_bytes: 0,
        }
    }

    /// The slot of `key`. Usually calls `key_of` for one slot.
    #[inline]
    pub fn get(&self, key: u64, key_of: impl Fn(Slot) -> u64) -> Option<Slot> {
        let table = &self.segments[self.segment_of(key)];
        let place = table.find(self.hash(key), |slot| key_of(slot) == key)?;
        Some(Slot(table.places[place].slot))
    }

    /// Adds a key. Panics if the key is in the index. Usually calls `key_of` for no slot. Cost:
    /// when the key's table is full, all of its entries are moved.
    #[inline]
    pub fn insert(&mut self, key: u64, slot: Slot, key_of: impl Fn(Slot) -> u64) {
        let hash = self.hash(key);
        let at = self.segment_of(key);
        let table = &mut self.segments[at];
        let known = table.find(hash, |slot| key_of(slot) == key);
        assert!(known.is_none(), "key {key:016x} is in the index already");
        if table.is_full() {
            let before = table.bytes();
            table.grow();
            self.table_bytes = self.table_bytes - before + table.bytes();
        }
        table.insert(Entry { hash, slot: slot.0 });
        self.len += 1;
    }

    /// Removes a key and returns its slot; `None`: the key is not in the index.
    #[inline]
    pub fn remove(&mut self, key: u64, key_of: impl Fn(Slot) -> u64) -> Option<Slot> {
        let hash = self.hash(key);
        let at = self.segment_of(key);
        let table = &mut self.segments[at];
        let place = table.find(hash, |slot| key_of(slot) == key)?;
        self.len -= 1;
        Some(Slot(table.remove(place).slot))
    }

    /// How many keys the index has.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the index has no key.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory, as reserved.
    pub fn bytes(&self) -> usize {
        self.segments.len() * size_of::<Table>() + self.table_bytes
    }

    #[inline]
    fn hash(&self, key: u64) -> u32 {
        self.hasher.hash_one(key) as u32
    }

    #[inline]
    fn segment_of(&self, key: u64) -> usize {
        (self.hasher.hash_one(key >> NEIGHBOURS_BITS) >> 32) as usize & self.segment_mask
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

    #[test]
    fn a_table_grows_by_halves_and_thirds_and_loses_nothing() {
        let mut table = Table::default();
        let mut sizes = Vec::new();
        for slot in 0..40 {
            if table.is_full() {
                table.grow();
                sizes.push(table.places.len());
            }
            table.insert(Entry { hash: slot << 26, slot });
        }
        assert_eq!(sizes, [8, 12, 16, 24, 32, 48, 64]);
        assert!((0..40).all(|slot| table.find(slot << 26, |it| it == Slot(slot)).is_some()));
    }

    /// Entries that belong to the last place of a table, beyond its end and before its begin.
    #[test]
    fn a_hole_is_closed_across_the_end_of_a_table() {
        for removed in 0..5_u32 {
            let mut table = Table::default();
            table.grow();
            let hash = |slot: u32| if slot < 4 { u32::MAX - slot } else { 1 << 28 };
            (0..5).for_each(|slot| table.insert(Entry { hash: hash(slot), slot }));
            assert_eq!(table.places[7].slot, 0, "the last place, and then the first ones");
            let place = table.find(hash(removed), |slot| slot.0 == removed).expect("inserted");
            assert_eq!(table.remove(place).slot, removed);
            for slot in 0..5 {
                let found = table.find(hash(slot), |it| it.0 == slot);
                assert_eq!(found.is_some(), slot != removed, "{slot} after {removed}");
            }
        }
    }

    #[test]
    fn an_empty_index_holds_the_heads_of_its_tables() {
        let mut index = Index::new(512, 7);
        assert!(index.is_empty() && index.bytes() == 512 * 32);
        index.insert(5, Slot(0), |_| 5);
        assert!(!index.is_empty() && index.bytes() == 512 * 32 + index.table_bytes);
        assert!(index.table_bytes > 0);
    }

    /// Ids as a node mints them: bursts of neighbours, here 100 of the 4096 in each millisecond.
    fn minted(number: u32) -> u64 {
        u64::from(number / 100) << 22 | u64::from(number % 100)
    }

    #[test]
    fn growth_is_bounded_and_an_entry_costs_at_most_sixteen_bytes() {
        let mut index = Index::new(512, 42);
        let asked = Cell::new(0_u64);
        let key_of = |slot: Slot| {
            asked.set(asked.get() + 1);
            minted(slot.0)
        };
        for number in 0..512 * 600 {
            asked.set(0);
            index.insert(minted(number), Slot(number), key_of);
            assert!(asked.get() <= 2, "an insert read {} records", asked.get());
        }
        let longest = index.segments.iter().map(|table| table.len).max();
        assert!(longest < Some(8 * 600), "tables are balanced: {longest:?}");
        assert!(index.bytes() as u64 <= 16 * index.len(), "{} bytes", index.bytes());
        for number in 0..512 * 600 {
            assert_eq!(index.get(minted(number), key_of), Some(Slot(number)));
        }
        let recounted: usize = index.segments.iter().map(Table::bytes).sum();
        assert_eq!(index.table_bytes, recounted);
    }

    #[test]
    fn a_key_of_the_same_hash_is_another_key() {
        let index = Index::new(1, 44);
        let mut seen = HashMap::new();
        // Of 2^19 keys some 30 pairs share their 32 bits.
        let pair = (0..1 << 19).find_map(|key| Some((seen.insert(index.hash(key), key)?, key)));
        let keys = pair.expect("two keys of one hash");
        let key_of = |slot: Slot| if slot == Slot(0) { keys.0 } else { keys.1 };
        let mut index = Index::new(1, 44);
        index.insert(keys.0, Slot(0), key_of);
        assert_eq!(index.get(keys.1, key_of), None);
        assert_eq!(index.remove(keys.1, key_of), None);
        index.insert(keys.1, Slot(1), key_of);
        assert_eq!(index.remove(keys.1, key_of), Some(Slot(1)));
        assert_eq!(index.get(keys.0, key_of), Some(Slot(0)));
        assert_eq!(index.len(), 1);
    }

    #[test]
    fn neighbours_chosen_by_a_client_fill_no_table() {
        let mut index = Index::new(512, 43);
        let spacing = 1_u64 << NEIGHBOURS_BITS;
        let key_of = |slot: Slot| u64::from(slot.0) * spacing;
        (0..51_200).for_each(|number| index.insert(key_of(Slot(number)), Slot(number), key_of));
        let longest = index.segments.iter().map(|table| table.len).max().expect("512 tables");
        assert!(longest < 200, "{longest} entries where 100 are the mean");
    }

    #[test]
    fn neighbours_share_a_table() {
        let index = Index::new(512, 43);
        let block = |number: u64, at: u64| index.segment_of(number << NEIGHBOURS_BITS | at);
        let last = (1 << NEIGHBOURS_BITS) - 1;
        assert!((0..100).all(|number| block(number, 0) == block(number, last)));
        assert!((0..100).any(|number| block(number, last) != block(number + 1, 0)));
    }

    #[test]
    fn the_seed_changes_the_order() {
        let (one, other) = (Index::new(1024, 1), Index::new(1024, 2));
        let keys = (0..1000_u64).map(|number| number << NEIGHBOURS_BITS);
        let same = keys.filter(|&key| one.segment_of(key) == other.segment_of(key));
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
