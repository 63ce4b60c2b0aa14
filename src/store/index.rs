//! The index leads from a 64-bit key to a slot. It is a hash table of pages of 4 KiB that split one
//! at a time (extendible hashing): so no insert moves more than the entries of one page, and memory
//! is taken in pieces of one size, none of which is outgrown. Two pages that come from one and have
//! few entries left are merged, so the memory goes back as it came.
//!
//! An entry is a slot and 32 bits of its key's hash, so that a split reads no record. Keys that
//! differ in their last six bits only are a *block*: such as ids that are minted in one
//! millisecond. The keys of a block share a page, each on a cache line of its own, so a burst of
//! creates touches few pages and compares few entries. The hash of a block is keyed. So clients
//! that choose their ids can choose neither page nor line.

// May panic: assertions 2, expectations 1, indices 35.
// Why it does not: fixed 9, listed 29.

use std::sync::Arc;

use ahash::RandomState;

use super::directory::Directory;
use super::source::Source;
use crate::base::ids::{Slot, mix};

/// Entries of a cache line.
const LINE: usize = 8;
/// The low bits of a key by which the keys of a block differ; as many as name a line of a page.
const LINE_BITS: u32 = 6;
/// Entries of a page: 64 lines, 4 KiB.
const PAGE: usize = LINE << LINE_BITS;
/// Most entries in a page that can still be split.
const PAGE_LEN_MAX: usize = PAGE / 16 * 15;
/// Most entries of two pages that are merged: far fewer than make a page split.
const MERGED_LEN_MAX: usize = PAGE / 4;
/// Pages of a chunk.
const CHUNK_PAGES: usize = 4;
/// Most bits of a prefix, by which a page is found: those that an entry keeps.
const DEPTH_MAX: u32 = u32::BITS - LINE_BITS;

/// A slot, and of its key's hash the bits by which the page splits, above, and the line, below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    hash: u32,
    slot: u32,
}

impl Entry {
    /// A place without an entry. The slab never hands out this slot.
    const NONE: Entry = Entry { hash: u32::MAX, slot: u32::MAX };
}

/// What is known of a page beside its entries.
#[derive(Clone, Copy)]
struct Page {
    len: u16,
    /// How many bits all hashes of the page have in common.
    depth: u8,
}

/// The place where the line of an entry with this hash begins.
#[inline]
fn home(hash: u32) -> usize {
    (hash as usize % (1 << LINE_BITS)) * LINE
}

/// The places of one page, with linear probing. The entries between two free places stand in the
/// order of their lines (Robin Hood hashing), so that a search for a key that is not there ends
/// where the next line's entries begin, however full the page is. A page has a free place always.
type Places = [Entry; PAGE];

/// How far `place` lies behind the line of the entry that stands there.
#[inline]
fn behind(place: usize, entry: Entry) -> usize {
    place.wrapping_sub(home(entry.hash)) % PAGE
}

/// The place of the entry with this hash that `is_it` accepts, or else the place where such an
/// entry belongs.
#[inline]
fn find(places: &Places, hash: u32, is_it: impl Fn(Slot) -> bool) -> Result<usize, usize> {
    let (home, mut step) = (home(hash), 0);
    loop {
        let place = (home + step) % PAGE;
        let entry = places[place];
        if entry == Entry::NONE || behind(place, entry) < step {
            return Err(place);
        }
        if entry.hash == hash && is_it(Slot(entry.slot)) {
            return Ok(place);
        }
        step += 1;
    }
}

/// The place where another entry with this hash belongs.
#[inline]
fn place_of_new(places: &Places, hash: u32) -> usize {
    find(places, hash, |_| false).unwrap_or_else(|place| place)
}

/// Puts an entry at the place where it belongs. Entries from there on move to the next free place.
#[inline]
fn put_in(places: &mut Places, place: usize, entry: Entry) {
    let (mut place, mut moved) = (place, entry);
    while moved != Entry::NONE {
        moved = std::mem::replace(&mut places[place], moved);
        place = (place + 1) % PAGE;
    }
}

/// Takes the entry at a place out. Moves the entries behind it up, as far as they belong.
#[inline]
fn take_out(places: &mut Places, place: usize) -> Entry {
    let removed = places[place];
    let (mut hole, mut next) = (place, (place + 1) % PAGE);
    while places[next] != Entry::NONE && behind(next, places[next]) > 0 {
        places[hole] = places[next];
        (hole, next) = (next, (next + 1) % PAGE);
    }
    places[hole] = Entry::NONE;
    removed
}

/// The index of one shard. The index stores no keys; calls read a slot's key back from its record
/// through the closure `key_of`.
pub struct Index {
    /// The page of each prefix of `depth` bits.
    prefixes: Vec<u32>,
    depth: u32,
    pages: Vec<Page>,
    chunks: Directory<Vec<Entry>>,
    /// Pages in use of each chunk.
    chunk_pages: Vec<u8>,
    /// Numbers that no page has; their chunks may have no memory.
    free_pages: Vec<u32>,
    chunks_held: usize,
    source: Arc<Source<Entry>>,
    hasher: RandomState,
    len: u64,
}

impl Index {
    /// Entries of a chunk.
    pub const CHUNK_LEN: usize = CHUNK_PAGES * PAGE;

    /// An empty index: one page. The keys of the hash are made from `seed`.
    pub fn new(source: Arc<Source<Entry>>, seed: u64) -> Self {
        let key = |number: u64| mix(seed ^ mix(number));
        let mut index = Self {
            prefixes: vec![0],
            depth: 0,
            pages: Vec::new(),
            chunks: Directory::new(),
            chunk_pages: Vec::new(),
            free_pages: Vec::new(),
            chunks_held: 0,
            source,
            hasher: RandomState::with_seeds(key(1), key(2), key(3), key(4)),
            len: 0,
        };
        index.new_page(0);
        index
    }

    /// The slot of `key`. Usually calls `key_of` for one slot.
    #[inline]
    pub fn get(&self, key: u64, key_of: impl Fn(Slot) -> u64) -> Option<Slot> {
        let hash = self.hash(key);
        let places = self.places(self.page_of(hash));
        let place = find(places, hash, |slot| key_of(slot) == key).ok()?;
        Some(Slot(places[place].slot))
    }

    /// Adds a key. Panics if the key is in the index. Usually calls `key_of` for no slot. Cost:
    /// when the key's page is full, its 480 entries are moved, and of 2^n pages about one split
    /// doubles the list of prefixes: 4 bytes a page.
    #[inline]
    pub fn insert(&mut self, key: u64, slot: Slot, key_of: impl Fn(Slot) -> u64) {
        let hash = self.hash(key);
        let mut page = self.page_of(hash);
        let Err(mut place) = find(self.places(page), hash, |slot| key_of(slot) == key) else {
            panic!("key {key:016x} is in the index already")
        };
        while usize::from(self.pages[page].len) >= PAGE_LEN_MAX && self.split(page) {
            page = self.page_of(hash);
            place = place_of_new(self.places(page), hash);
        }
        let len = &mut self.pages[page].len;
        *len += 1;
        assert!(usize::from(*len) < PAGE, "a page keeps a free place");
        put_in(self.places_mut(page), place, Entry { hash, slot: slot.0 });
        self.len += 1;
    }

    /// Removes a key and returns its slot; `None`: the key is not in the index.
    #[inline]
    pub fn remove(&mut self, key: u64, key_of: impl Fn(Slot) -> u64) -> Option<Slot> {
        let hash = self.hash(key);
        let page = self.page_of(hash);
        let places = self.places_mut(page);
        let place = find(places, hash, |slot| key_of(slot) == key).ok()?;
        let removed = take_out(places, place);
        let len = &mut self.pages[page].len;
        *len -= 1;
        self.len -= 1;
        if usize::from(*len) <= MERGED_LEN_MAX / 2 {
            self.merge(page, hash);
        }
        Some(Slot(removed.slot))
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
        self.chunks.bytes()
            + self.chunks_held * CHUNK_PAGES * size_of::<Places>()
            + self.chunk_pages.capacity()
            + self.free_pages.capacity() * size_of::<u32>()
            + self.pages.capacity() * size_of::<Page>()
            + self.prefixes.capacity() * size_of::<u32>()
    }

    /// Gives the upper half of a page's hashes a page of their own. False: the page's hashes have
    /// no bit more to differ in.
    #[cold]
    fn split(&mut self, page: usize) -> bool {
        let depth = u32::from(self.pages[page].depth);
        if depth == DEPTH_MAX {
            return false;
        }
        if depth == self.depth {
            self.prefixes = self.prefixes.iter().flat_map(|&page| [page, page]).collect();
            self.depth += 1;
        }
        let former = std::mem::replace(self.places_mut(page), [Entry::NONE; PAGE]);
        self.pages[page] = Page { len: 0, depth: depth as u8 + 1 };
        let upper = self.new_page(depth as u8 + 1);
        let mut prefix = None;
        for entry in former.into_iter().filter(|&entry| entry != Entry::NONE) {
            prefix = Some(entry.hash);
            let is_upper = entry.hash << depth >> (u32::BITS - 1) == 1;
            let to = if is_upper { upper } else { page };
            self.pages[to].len += 1;
            let places = self.places_mut(to);
            put_in(places, place_of_new(places, entry.hash), entry);
        }
        // The prefixes that led to the page: a run, of which the upper half leads to the new page.
        let prefix = prefix.expect("a page that splits is full") >> (u32::BITS - self.depth);
        let run = 1 << (self.depth - depth);
        let begin = prefix as usize & !(run - 1);
        self.prefixes[begin + run / 2..begin + run].fill(upper as u32);
        true
    }

    /// Merges a page, to which entries with this hash belong, with the other half of the page that
    /// was split into both, if both have few entries.
    #[cold]
    fn merge(&mut self, page: usize, hash: u32) {
        let depth = u32::from(self.pages[page].depth);
        if depth == 0 {
            return;
        }
        let other = self.page_of(hash ^ 1 << (u32::BITS - depth));
        let (len, other_page) = (self.pages[page].len, self.pages[other]);
        if u32::from(other_page.depth) != depth
            || usize::from(len + other_page.len) > MERGED_LEN_MAX
        {
            return;
        }
        let moved = std::mem::replace(self.places_mut(page), [Entry::NONE; PAGE]);
        let places = self.places_mut(other);
        for entry in moved.into_iter().filter(|&entry| entry != Entry::NONE) {
            put_in(places, place_of_new(places, entry.hash), entry);
        }
        self.pages[other] = Page { len: len + other_page.len, depth: depth as u8 - 1 };
        let run = 1_usize << (self.depth - depth);
        let prefix = (hash >> (u32::BITS - self.depth)) as usize;
        let begin = prefix & !(run - 1);
        self.prefixes[begin..begin + run].fill(other as u32);
        self.free_page(page);
    }

    /// Adds a page without entries and returns its number.
    fn new_page(&mut self, depth: u8) -> usize {
        let page = self.free_pages.pop().map_or(self.pages.len(), |page| page as usize);
        let chunk_at = page / CHUNK_PAGES;
        if page == self.pages.len() {
            self.pages.push(Page { len: 0, depth });
        }
        if chunk_at == self.chunks.len() {
            self.chunks.push(Vec::new());
            self.chunk_pages.push(0);
        }
        if self.chunk_pages[chunk_at] == 0 {
            self.chunks[chunk_at] = self.source.take();
            self.chunks_held += 1;
        }
        self.chunk_pages[chunk_at] += 1;
        self.pages[page] = Page { len: 0, depth };
        let end = (page % CHUNK_PAGES + 1) * PAGE;
        let chunk = &mut self.chunks[chunk_at];
        if chunk.len() < end {
            chunk.resize(end, Entry::NONE);
        }
        page
    }

    /// Gives back a page without entries, and its chunk with the last of its pages.
    fn free_page(&mut self, page: usize) {
        let chunk_at = page / CHUNK_PAGES;
        self.free_pages.push(page as u32);
        self.pages[page].len = 0;
        self.chunk_pages[chunk_at] -= 1;
        if self.chunk_pages[chunk_at] == 0 {
            let mut chunk = std::mem::take(&mut self.chunks[chunk_at]);
            chunk.clear();
            self.chunks_held -= 1;
            self.source.give_back(chunk);
        }
    }

    /// The number of the page to which entries with this hash belong.
    #[inline]
    fn page_of(&self, hash: u32) -> usize {
        // At depth 0 the shift is by all 32 bits.
        self.prefixes[(u64::from(hash) >> (u32::BITS - self.depth)) as usize] as usize
    }

    #[inline]
    fn places(&self, page: usize) -> &Places {
        let (pages, _) = self.chunks[page / CHUNK_PAGES].as_chunks();
        &pages[page % CHUNK_PAGES]
    }

    #[inline]
    fn places_mut(&mut self, page: usize) -> &mut Places {
        let (pages, _) = self.chunks[page / CHUNK_PAGES].as_chunks_mut();
        &mut pages[page % CHUNK_PAGES]
    }

    /// Of the key's block the bits by which pages split, and the key's line.
    #[inline]
    fn hash(&self, key: u64) -> u32 {
        let block = self.hasher.hash_one(key >> LINE_BITS);
        let line = (key ^ block) as u32 % (1 << LINE_BITS);
        uneven((block >> u32::BITS) as u32) & !((1 << LINE_BITS) - 1) | line
    }
}

/// Maps numbers that are spread evenly so that about twice as many lie at the lower end as at the
/// upper end: u -> (2 u + u^2) / 3, all of them fractions of 2^32. So pages fill up one after the
/// other. Spread evenly they would all split at the same time, and be half empty after that.
#[inline]
fn uneven(number: u32) -> u32 {
    let u = u64::from(number);
    ((2 * u + ((u * u) >> u32::BITS)) / 3) as u32
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn index(seed: u64) -> Index {
        Index::new(Source::none(Index::CHUNK_LEN), seed)
    }

    fn longest(index: &Index) -> usize {
        index.pages.iter().map(|page| usize::from(page.len)).max().expect("page 0")
    }

    #[test]
    #[should_panic(expected = "in the index already")]
    fn a_key_enters_once() {
        let mut index = index(7);
        index.insert(5, Slot(0), |_| 5);
        index.insert(5, Slot(1), |_| 5);
    }

    /// Entries that belong to the last line of a page, beyond its end and before its begin.
    #[test]
    fn a_hole_is_closed_across_the_end_of_a_page() {
        let hash = |slot: u32| if slot < 10 { slot << LINE_BITS | 63 } else { slot << LINE_BITS };
        let orders: [Vec<u32>; 2] = [(0..12).collect(), (0..12).rev().collect()];
        for (removed, order) in (0..12_u32).zip(orders.iter().cycle()) {
            let mut places = [Entry::NONE; PAGE];
            for &slot in order {
                let place = place_of_new(&places, hash(slot));
                put_in(&mut places, place, Entry { hash: hash(slot), slot });
            }
            let lines = |places: &Places| {
                let stand = (PAGE - 8..PAGE + 4).map(|place| places[place % PAGE]);
                stand.filter(|&entry| entry != Entry::NONE).map(|entry| home(entry.hash)).collect()
            };
            let last_line = PAGE - LINE;
            assert_eq!(lines(&places), [vec![last_line; 10], vec![0; 2]].concat(), "{order:?}");
            let find = |places: &Places, slot: u32| find(places, hash(slot), |it| it.0 == slot);
            let place = find(&places, removed).expect("inserted");
            assert_eq!(take_out(&mut places, place).slot, removed);
            for slot in 0..12 {
                assert_eq!(find(&places, slot).is_ok(), slot != removed, "{slot} after {removed}");
            }
            let left: Vec<usize> = lines(&places);
            assert!(left.len() == 11 && left.is_sorted_by_key(|&home| home == 0), "{left:?}");
            assert_eq!(places.iter().filter(|&&entry| entry != Entry::NONE).count(), 11);
        }
    }

    #[test]
    fn a_search_for_a_key_that_is_not_there_ends_with_its_line() {
        let mut places = [Entry::NONE; PAGE];
        for slot in 0..PAGE as u32 - 1 {
            let hash = (slot << LINE_BITS) | (slot / LINE as u32);
            let place = place_of_new(&places, hash);
            put_in(&mut places, place, Entry { hash, slot });
        }
        for line in 0..PAGE / LINE - 1 {
            assert_eq!(place_of_new(&places, line as u32), (line + 1) * LINE, "a full page");
        }
    }

    #[test]
    fn memory_is_chunks_of_pages_and_eight_bytes_a_page() {
        let mut index = index(7);
        let chunk = CHUNK_PAGES * 4096;
        assert!(index.is_empty());
        assert!((chunk..chunk + 200).contains(&index.bytes()), "{}", index.bytes());
        (0..10_000).for_each(|key| index.insert(key, Slot(key as u32), |slot| slot.0.into()));
        let chunks = index.pages.len().div_ceil(CHUNK_PAGES);
        let beside = index.bytes() - chunks * chunk;
        assert!(beside <= 16 * index.pages.len() + 200, "{beside} for {}", index.pages.len());
    }

    /// Ids as a node mints them: bursts of neighbours, here 100 of the 4096 in each millisecond.
    fn minted(number: u32) -> u64 {
        u64::from(number / 100) << 22 | u64::from(number % 100)
    }

    /// At every length alike, because pages fill up one after the other.
    #[test]
    fn an_entry_costs_less_than_fourteen_bytes_and_an_insert_reads_no_record() {
        let mut index = index(42);
        let asked = Cell::new(0_u64);
        let key_of = |slot: Slot| {
            asked.set(asked.get() + 1);
            minted(slot.0)
        };
        for number in 0..512 * 600 {
            index.insert(minted(number), Slot(number), key_of);
            if number > 30_000 {
                let bytes = index.bytes() as f64 / index.len() as f64;
                assert!((11.0..14.5).contains(&bytes), "{bytes} bytes an entry at {number}");
            }
        }
        assert!(asked.get() < 300, "inserts read {} records", asked.get());
        assert!(longest(&index) <= PAGE_LEN_MAX, "{}", longest(&index));
        for number in 0..512 * 600 {
            assert_eq!(index.get(minted(number), key_of), Some(Slot(number)));
        }
    }

    #[test]
    fn a_key_of_the_same_hash_is_another_key() {
        let mut index = index(44);
        let mut seen = HashMap::new();
        // Of 2^19 blocks some thousand pairs share their 26 bits.
        let keys = (0..1 << 19).map(|block| block << LINE_BITS);
        let pair = { keys }.find_map(|key| Some((seen.insert(index.hash(key), key)?, key)));
        let keys = pair.expect("two keys of one hash");
        let key_of = |slot: Slot| if slot == Slot(0) { keys.0 } else { keys.1 };
        index.insert(keys.0, Slot(0), key_of);
        assert_eq!(index.get(keys.1, key_of), None);
        assert_eq!(index.remove(keys.1, key_of), None);
        index.insert(keys.1, Slot(1), key_of);
        assert_eq!(index.remove(keys.1, key_of), Some(Slot(1)));
        assert_eq!(index.get(keys.0, key_of), Some(Slot(0)));
        assert_eq!(index.len(), 1);
    }

    /// Blocks with one key each, all of the same last bits.
    #[test]
    fn keys_chosen_by_a_client_fill_no_line() {
        let mut index = index(43);
        let key_of = |slot: Slot| u64::from(slot.0) << LINE_BITS;
        (0..51_200).for_each(|number| index.insert(key_of(Slot(number)), Slot(number), key_of));
        assert!(index.pages.len() < 51_200 / 240, "{} pages", index.pages.len());
        let first = index.places(0);
        let entries = || first.iter().enumerate().filter(|(_, entry)| **entry != Entry::NONE);
        let sum: usize = entries().map(|(place, entry)| behind(place, *entry)).sum();
        assert!(sum < entries().count() * 16, "an entry stands {sum} places behind its line");
    }

    #[test]
    fn neighbours_share_a_page_and_no_line() {
        let mut index = index(43);
        let key_of = |slot: Slot| u64::from(slot.0) << 20;
        (0..51_200).for_each(|number| index.insert(key_of(Slot(number)), Slot(number), key_of));
        for block in 0..100_u64 {
            let hashes = (0..64).map(|at| index.hash(block << LINE_BITS | at));
            let mut lines = hashes.clone().map(home).collect::<Vec<_>>();
            lines.sort_unstable();
            assert!(lines.into_iter().eq((0..64).map(|line| line * LINE)));
            let pages = hashes.map(|hash| index.page_of(hash)).collect::<Vec<_>>();
            assert!(pages.iter().all(|page| *page == pages[0]));
        }
    }

    #[test]
    fn the_seed_changes_the_order() {
        let (one, other) = (index(1), index(2));
        let same =
            (0..1000_u64).filter(|&key| one.hash(key << 6) >> 22 == other.hash(key << 6) >> 22);
        assert!(same.count() < 50);
    }

    /// 480 keys whose hashes differ in the last of their 26 bits only: the page splits 26 times.
    #[test]
    fn a_page_splits_as_often_as_its_entries_ask_for() {
        let mut index = index(5);
        let mut of_prefix = HashMap::<u32, Vec<u64>>::new();
        for block in 0..1 << 20 {
            let key = block << LINE_BITS;
            of_prefix.entry(index.hash(key) >> 17).or_default().push(key);
        }
        let keys = of_prefix.into_values().max_by_key(Vec::len).expect("some");
        let key_of = |slot: Slot| keys[slot.index() / 64] | (slot.index() % 64) as u64;
        let slots = || (0..64 * keys.len() as u32).map(Slot);
        slots().for_each(|slot| index.insert(key_of(slot), slot, key_of));
        assert!(slots().all(|slot| index.get(key_of(slot), key_of) == Some(slot)));
        assert!(index.depth > 15, "{} bits", index.depth);
        assert!(slots().all(|slot| index.remove(key_of(slot), key_of) == Some(slot)));
        assert!(index.is_empty() && longest(&index) == 0);
    }

    #[test]
    fn pages_are_merged_as_their_entries_go_and_the_memory_goes_back() {
        let mut index = index(42);
        let idle = index.bytes();
        let slots = || (0..200_000).map(Slot);
        let key_of = |slot: Slot| minted(slot.0);
        slots().for_each(|slot| index.insert(key_of(slot), slot, key_of));
        let full = index.bytes();
        for step in 0..10 {
            let part = || slots().skip(step).step_by(10);
            assert!(part().all(|slot| index.remove(key_of(slot), key_of) == Some(slot)));
            let mut left = (step + 1..10).flat_map(|step| slots().skip(step).step_by(10));
            assert!(left.all(|slot| index.get(key_of(slot), key_of) == Some(slot)));
        }
        assert!(index.bytes() < idle + full / 8, "{} bytes left of {full}", index.bytes());
        slots().for_each(|slot| index.insert(key_of(slot), slot, key_of));
        assert!(index.bytes() <= full + full / 16, "{} bytes after {full}", index.bytes());
        assert!(slots().all(|slot| index.get(key_of(slot), key_of) == Some(slot)));
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(
            spread in 0_u32..20,
            steps in prop::collection::vec((0_u8..3, 0_u64..2000), 1..5000)
        ) {
            let mut index = index(9);
            let (mut keys, mut model) = (Vec::new(), HashMap::new());
            for (step, key) in steps {
                let key = key << spread;
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
