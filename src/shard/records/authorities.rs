//! The authorities of callback hosts (`host:port`, as written). Each is kept once for all timers
//! that name it. Authorities are bounded by the memory for timers, of which they are a part: no
//! client can use up a table of hosts for others. What a host needs while its callbacks run stands
//! in [`Hosts`](super::hosts::Hosts).

// May panic: assertions 1, expectations 1, indices 7.
// Why it does not: fixed 4, listed 5.

use ahash::RandomState;
use hashbrown::HashTable;

use crate::base::ids::{HostId, Slot};
use crate::store::directory::Directory;
use crate::store::slab::Slab;

/// An interned authority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuthorityId(u32);

impl AuthorityId {
    /// No authority: that of a tombstone.
    pub const NONE: AuthorityId = AuthorityId(u32::MAX);

    /// The number of its place.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The authority at the place with this number.
    pub const fn numbered(number: u32) -> Self {
        Self(number)
    }

    fn slot(self) -> Slot {
        Slot(self.0)
    }
}

#[derive(Clone, Copy, Debug)]
struct Authority {
    /// Live timers that name the authority.
    timers: u32,
    /// Those of them of which this node is the first to pop.
    tallied: u32,
    /// The host of the authority, while the host has a lane.
    host: Option<HostId>,
    /// Whether the host answered when it was called last.
    is_proven: bool,
}

/// An authority's place, and 32 bits of its hash. Growth moves these eight bytes and reads no text.
#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    place: u32,
}

impl Entry {
    /// Spreads a hash as the table wants it: the table takes buckets from the low bits and a tag
    /// from the top seven.
    fn spread(hash: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(hash)
    }
}

/// All authorities of a shard: many small tables that grow one at a time, as the index of timers
/// does.
pub(super) struct Authorities {
    all: Slab<Authority>,
    /// Texts by place; empty where none is kept.
    texts: Directory<Box<str>>,
    text_bytes: usize,
    segments: Box<[HashTable<Entry>]>,
    hasher: RandomState,
    table_bytes: usize,
}

impl Authorities {
    /// No authority yet; `segments` is a power of two.
    pub fn new(segments: usize, hash_seed: u64) -> Self {
        assert!(segments.is_power_of_two(), "authorities lie in a power of two of tables");
        Self {
            all: Slab::new(),
            texts: Directory::new(),
            text_bytes: 0,
            segments: (0..segments).map(|_| HashTable::new()).collect(),
            hasher: RandomState::with_seeds(hash_seed, !hash_seed, hash_seed.rotate_left(17), 11),
            table_bytes: 0,
        }
    }

    /// Counts one more timer that names the authority. Returns also the host that has a lane under
    /// it.
    pub fn enter(&mut self, text: &str) -> (AuthorityId, Option<HostId>) {
        let (at, hash) = self.place_of(text);
        if let Some(place) = self.find(at, hash, text) {
            let known = self.all.get_mut(Slot(place));
            known.timers += 1;
            return (AuthorityId(place), known.host);
        }
        self.text_bytes += text_bytes(text);
        let slot =
            self.all.insert(Authority { timers: 1, tallied: 0, host: None, is_proven: false });
        if slot.index() == self.texts.len() {
            self.texts.push(text.into());
        } else {
            self.texts[slot.index()] = text.into();
        }
        let segment = &mut self.segments[at];
        let before = segment.allocation_size();
        let entry = Entry { hash, place: slot.0 };
        segment.insert_unique(Entry::spread(hash), entry, |entry| Entry::spread(entry.hash));
        self.table_bytes += segment.allocation_size() - before;
        (AuthorityId(slot.0), None)
    }

    /// Counts one timer fewer. The authority is forgotten with its last timer, unless its host has
    /// a lane.
    pub fn leave(&mut self, id: AuthorityId) {
        let known = self.all.get_mut(id.slot());
        known.timers -= 1;
        if known.timers == 0 {
            self.forget_if_unused(id);
        }
    }

    /// The authority as written.
    pub fn text(&self, id: AuthorityId) -> &str {
        &self.texts[id.slot().index()]
    }

    /// The host that has a lane under this authority.
    #[inline]
    pub fn host(&self, id: AuthorityId) -> Option<HostId> {
        self.all.get(id.slot()).host
    }

    /// Notes the host that got a lane under the authority; `None`: the host lost its lane.
    pub fn set_host(&mut self, id: AuthorityId, host: Option<HostId>) {
        self.all.get_mut(id.slot()).host = host;
        self.forget_if_unused(id);
    }

    /// Whether the host of the authority answered when it was called last.
    pub fn is_proven(&self, id: AuthorityId) -> bool {
        self.all.get(id.slot()).is_proven
    }

    pub fn set_proven(&mut self, id: AuthorityId, is_proven: bool) {
        self.all.get_mut(id.slot()).is_proven = is_proven;
    }

    /// Live timers that name the authority.
    pub fn timers(&self, id: AuthorityId) -> u32 {
        self.all.get(id.slot()).timers
    }

    /// Counts one more timer, or one fewer, of which this node is the first to pop.
    #[inline]
    pub fn tally(&mut self, id: AuthorityId, is_more: bool) {
        let known = self.all.get_mut(id.slot());
        known.tallied = if is_more { known.tallied + 1 } else { known.tallied - 1 };
    }

    /// Timers of which this node is the first to pop, of each authority from a place on.
    pub fn tallies_from(&self, place: u32) -> impl Iterator<Item = (AuthorityId, u32)> {
        let places = self.all.occupied_from(Slot(place));
        places.map(|slot| (AuthorityId(slot.0), self.all.get(slot).tallied))
    }

    /// Live timers that name any authority.
    pub fn timers_of_all(&self) -> u64 {
        self.all.occupied_from(Slot(0)).map(|slot| u64::from(self.all.get(slot).timers)).sum()
    }

    pub fn len(&self) -> u64 {
        self.all.len()
    }

    pub fn bytes(&self) -> usize {
        let tables = self.segments.len() * size_of::<HashTable<Entry>>() + self.table_bytes;
        self.all.bytes() + self.texts.bytes() + self.text_bytes + tables
    }

    fn forget_if_unused(&mut self, id: AuthorityId) {
        let known = self.all.get(id.slot());
        if known.timers > 0 || known.host.is_some() {
            return;
        }
        let (at, hash) = self.place_of(self.text(id));
        let is_it = |entry: &Entry| entry.place == id.0;
        let entry = self.segments[at].find_entry(Entry::spread(hash), is_it);
        entry.expect("every authority is in its table").remove();
        self.all.remove(id.slot());
        let text = std::mem::take(&mut self.texts[id.slot().index()]);
        self.text_bytes -= text_bytes(&text);
    }

    /// Table and hash of an authority.
    fn place_of(&self, text: &str) -> (usize, u32) {
        let hash = self.hasher.hash_one(text);
        ((hash >> 32) as usize & (self.segments.len() - 1), hash as u32)
    }

    fn find(&self, at: usize, hash: u32, text: &str) -> Option<u32> {
        let is_it =
            |entry: &Entry| entry.hash == hash && *self.texts[entry.place as usize] == *text;
        self.segments[at].find(Entry::spread(hash), is_it).map(|entry| entry.place)
    }
}

/// Bytes that a text takes: allocators give multiples of 16 bytes.
fn text_bytes(text: &str) -> usize {
    text.len().next_multiple_of(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorities() -> Authorities {
        Authorities::new(4, 7)
    }

    #[test]
    fn one_is_kept_for_all_timers_that_name_it_and_ends_with_the_last() {
        let mut all = authorities();
        let first = all.enter("a.example:80").0;
        assert_eq!(all.enter("a.example:80").0, first);
        let other = all.enter("A.example:80").0;
        assert_ne!(other, first);
        assert_eq!((all.text(first), all.text(other)), ("a.example:80", "A.example:80"));
        assert_eq!((all.timers(first), all.timers_of_all(), all.len()), (2, 3, 2));
        all.leave(first);
        assert_eq!(all.len(), 2);
        all.leave(first);
        assert_eq!(all.len(), 1);
        let again = all.enter("a.example:80").0;
        assert_eq!((all.timers(again), all.text(other)), (1, "A.example:80"));
    }

    #[test]
    fn a_lane_keeps_one_that_no_timer_names() {
        let mut all = authorities();
        let id = all.enter("a.example").0;
        all.set_host(id, Some(HostId(3)));
        all.set_proven(id, true);
        all.leave(id);
        assert_eq!(all.enter("a.example").0, id);
        assert!(all.is_proven(id) && all.host(id) == Some(HostId(3)));
        all.leave(id);
        all.set_host(id, None);
        assert_eq!(all.len(), 0);
        let id = all.enter("a.example").0;
        assert!(!all.is_proven(id), "what was known of it is forgotten, too");
    }

    #[test]
    fn bucket_and_tag_of_a_table_come_from_all_bits_of_a_hash() {
        assert_eq!(Entry::spread(0x89ab_cdef), 0x89ab_cdef_89ab_cdef);
    }

    #[test]
    fn bytes_are_places_texts_in_use_and_tables() {
        let mut all = authorities();
        assert_eq!(all.bytes(), 4 * 32);
        let id = all.enter("a.example").0;
        assert!(all.table_bytes > 0);
        assert_eq!(
            all.bytes(),
            all.all.bytes() + all.texts.bytes() + 16 + 4 * 32 + all.table_bytes
        );
        all.leave(id);
        assert_eq!(all.bytes(), all.all.bytes() + all.texts.bytes() + 4 * 32 + all.table_bytes);
    }

    #[test]
    fn many_come_and_go_and_their_memory_is_counted_and_returns() {
        let mut all = authorities();
        let empty = all.bytes();
        let name = |number: u32| format!("host-{number}.example:{}", number % 60_000 + 1);
        let ids: Vec<_> = (0..20_000).map(|number| all.enter(&name(number)).0).collect();
        let held = all.bytes() - empty;
        assert!(held > 20_000 * (size_of::<Authority>() + 24), "{held}");
        for (number, id) in (0..).zip(&ids) {
            assert_eq!(all.text(*id), name(number));
            assert_eq!(all.enter(&name(number)).0, *id);
            all.leave(*id);
        }
        ids.iter().for_each(|id| all.leave(*id));
        assert_eq!((all.len(), all.timers_of_all(), all.text_bytes), (0, 0, 0));
        assert!(all.segments.iter().all(HashTable::is_empty));
        let again: Vec<_> = (0..20_000).map(|number| all.enter(&name(number)).0).collect();
        assert_eq!(again.len(), 20_000);
        assert!(all.bytes() - empty < held + held / 2, "freed places are used again");
    }
}
