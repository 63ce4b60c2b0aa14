//! Attributes that many timers have alike (`wire::common_attributes`), each set kept once for all
//! timers that have it. The content of such a timer has a stand-in in their place, and its record
//! says so. A timer without attributes never gets here.
//!
//! - A set enters when it is met the second time within a while. So sets that are all different
//!   fill no table; the first timer of a set keeps attributes of its own.
//! - A set leaves with its last timer.
//! - Sets are bounded by number and bytes. Where they are full a timer keeps its own attributes.

// May panic: assertions 2, indices 6.
// Why it does not: fixed 1, listed 7.

use ahash::RandomState;
use hashbrown::HashTable;

use crate::base::planted::{Bug, is_planted};
use crate::timer::definition::{Content, with_attributes};
use crate::wire::common_attributes::{STAND_IN_BYTES, common_of, own_of};

/// Most sets of a shard.
const SETS_MAX: usize = 4_096;
/// Most bytes of all sets of a shard.
const SET_BYTES_MAX: usize = 1 << 20;
/// Shortest set. A shorter one would save less than two size classes of a content.
const SET_BYTES_MIN: usize = 32;
/// Hashes of sets that were met once.
const MET_MAX: usize = 4_096;

/// A set of attributes.
struct Set {
    /// Empty where no set is.
    attributes: Box<[u8]>,
    hash: u32,
    timers: u32,
}

/// A set's number and its hash. Growth moves these eight bytes and reads no attributes.
#[derive(Clone, Copy)]
struct Entry {
    hash: u32,
    number: u32,
}

impl Entry {
    /// Spreads a hash as the table wants it: the table takes buckets from the low bits and a tag
    /// from the top seven.
    fn spread(hash: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(hash)
    }
}

/// All sets of a shard.
pub(super) struct Commons {
    /// By number.
    sets: Vec<Set>,
    /// Numbers that no set has, to be used again.
    free: Vec<u32>,
    entries: HashTable<Entry>,
    /// The hashes of sets that were met, by their low bits. Empty before the first one.
    met: Box<[u32]>,
    hasher: RandomState,
    set_bytes: usize,
    /// Bytes of memory held, kept up to date.
    bytes: usize,
    /// By how much the contents of all timers are shorter than they would be.
    spared_bytes: u64,
    /// The set that is looked for.
    wanted: Vec<u8>,
}

impl Commons {
    /// No set yet.
    pub fn new(hash_seed: u64) -> Self {
        let hasher = RandomState::with_seeds(hash_seed, hash_seed, !hash_seed, 23);
        Self {
            sets: Vec::new(),
            free: Vec::new(),
            entries: HashTable::new(),
            met: Box::default(),
            hasher,
            set_bytes: 0,
            bytes: 0,
            spared_bytes: 0,
            wanted: Vec::new(),
        }
    }

    /// The content of one more timer, which has attributes, as the shard keeps it. `None`: as it
    /// is.
    pub fn enter(&mut self, content: &[u8]) -> Option<Vec<u8>> {
        let content = Content::decode(content);
        let attributes = content.encoded_attributes();
        self.wanted.clear();
        common_of(&attributes, &mut self.wanted);
        if self.wanted.len() < SET_BYTES_MIN {
            return None;
        }
        let hash = self.hasher.hash_one(&self.wanted) as u32;
        let number = self.find(hash).or_else(|| self.insert(hash))?;
        let Set { attributes: set, timers, .. } = &mut self.sets[number as usize];
        *timers += 1;
        self.spared_bytes += spared(set);
        let (mut own, mut kept) = (Vec::new(), Vec::new());
        own_of(&attributes, number, &mut own);
        with_attributes(&content, &own, &mut kept);
        Some(kept)
    }

    /// Counts a timer less that has the set of this number.
    pub fn leave(&mut self, number: u32) {
        let set = &mut self.sets[number as usize];
        assert!(set.timers > 0, "a set of attributes has left before its timers");
        self.spared_bytes -= spared(&set.attributes);
        set.timers -= 1;
        if set.timers == u32::from(is_planted(Bug::CommonsLeaveEarly)) {
            self.remove(number);
        }
    }

    /// The attributes of the set of this number, which a timer has.
    pub fn get(&self, number: u32) -> &[u8] {
        let set = &self.sets[number as usize];
        assert!(!set.attributes.is_empty(), "a set of attributes is read that has left");
        &set.attributes
    }

    /// By how much the contents of all timers are shorter than they would be, in bytes.
    pub fn spared_bytes(&self) -> u64 {
        self.spared_bytes
    }

    /// By how much a content is shorter that has the set of this number, in bytes.
    pub fn spared_by(&self, number: u32) -> usize {
        spared(self.get(number)) as usize
    }

    /// Bytes of memory held.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many timers have each set.
    pub fn timers(&self) -> impl Iterator<Item = (u32, u32)> {
        let numbered = (0..).zip(&self.sets);
        numbered.filter(|(_, set)| set.timers > 0).map(|(number, set)| (number, set.timers))
    }

    fn find(&self, hash: u32) -> Option<u32> {
        let is_it = |entry: &Entry| {
            entry.hash == hash && *self.sets[entry.number as usize].attributes == *self.wanted
        };
        self.entries.find(Entry::spread(hash), is_it).map(|entry| entry.number)
    }

    /// Takes in the set that is wanted, if it was met before and there is room.
    fn insert(&mut self, hash: u32) -> Option<u32> {
        let set_bytes = self.set_bytes + self.wanted.len();
        let has_room = self.entries.len() < SETS_MAX && set_bytes <= SET_BYTES_MAX;
        if !self.was_met(hash) || !has_room {
            return None;
        }
        let set = Set { attributes: (&*self.wanted).into(), hash, timers: 0 };
        self.set_bytes = set_bytes;
        let number = self.free.pop().unwrap_or(self.sets.len() as u32);
        match self.sets.get_mut(number as usize) {
            Some(place) => *place = set,
            None => self.sets.push(set),
        }
        let entry = Entry { hash, number };
        self.entries.insert_unique(Entry::spread(hash), entry, |entry| Entry::spread(entry.hash));
        self.count_bytes();
        Some(number)
    }

    fn remove(&mut self, number: u32) {
        let set = &mut self.sets[number as usize];
        let is_it = |entry: &Entry| entry.number == number;
        if let Ok(entry) = self.entries.find_entry(Entry::spread(set.hash), is_it) {
            entry.remove();
        }
        self.set_bytes -= set.attributes.len();
        set.attributes = Box::default();
        self.free.push(number);
        self.count_bytes();
    }

    /// Whether a set of this hash was met before, and no other in its place since. Notes it.
    fn was_met(&mut self, hash: u32) -> bool {
        if self.met.is_empty() {
            self.met = vec![0; MET_MAX].into();
            self.count_bytes();
        }
        let place = &mut self.met[hash as usize % MET_MAX];
        // 0 is nothing met.
        let mark = hash | 1 << 31;
        std::mem::replace(place, mark) == mark
    }

    /// Forgets which sets were met.
    #[cfg(test)]
    pub fn forget_met(&mut self) {
        self.met = Box::default();
    }

    fn count_bytes(&mut self) {
        self.bytes = self.set_bytes
            + self.sets.capacity() * size_of::<Set>()
            + self.free.capacity() * size_of::<u32>()
            + self.entries.allocation_size()
            + size_of_val(&*self.met);
    }
}

/// By how much a content is shorter that has these attributes elsewhere.
fn spared(attributes: &[u8]) -> u64 {
    attributes.len().saturating_sub(STAND_IN_BYTES) as u64
}

#[cfg(test)]
#[path = "commons_tests.rs"]
pub(super) mod tests;
