//! How much each statistics tag counts on this shard (docs/compat/timer-service.md §10): the sum of
//! its counts over the live timers of which this node is the first to pop.
//!
//! The code that changes a record calls this file. A live timer with tags is *held* in the group of
//! its placement.
//!
//! - The timer enters when it begins to live here.
//! - It leaves with the same tags when that ends: update, last pop, delete, forgotten.
//! - It moves when its placement changes.
//! - A timer without tags never gets here.
//!
//! Groups are *counted* or not. When a node dies or returns, this node becomes the first to pop of
//! some groups and ceases to be that of others. These groups are told in one go, without a look at
//! the timers.
//!
//! At most `tags_max` names have counts of their own. What is beyond is counted in one number, the
//! *overflow*. A name gets a place of its own only while the overflow holds nothing. So no timer
//! ever enters under the overflow and leaves under a name.

// May panic: assertions 1, expectations 2, indices 23.
// Why it does not: places 23, ordered 3.

use std::collections::VecDeque;

use ahash::RandomState;
use hashbrown::HashTable;

use crate::base::time::Tick;
use crate::wire::timer_json::Tag;

/// The place that counts the tags beyond the bound. It never has a name.
pub const OVERFLOW: u32 = 0;

/// What became of one tag since the last change was told. A value that another one followed within
/// the same millisecond is not told: an update that takes a timer out and puts it in again is no
/// change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagChange {
    /// The tag's place; [`OVERFLOW`]: all tags beyond the bound.
    pub place: u32,
    /// The name that the place stands for from now on. It is told once.
    pub name: Option<Box<str>>,
    /// The lowest value since the last change was told.
    pub low: u64,
    /// The highest value since the last change was told.
    pub high: u64,
    /// The present value.
    pub present: u64,
    /// When the tag got its present value.
    pub at: Tick,
}

/// Timers that are counted, or not counted, together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TagGroup(pub u32);

/// The counts of one shard.
pub struct TagCounts {
    tags: Vec<Counted>,
    /// What each group holds of each tag. Every timer with tags is in it.
    holdings: HashTable<Holding>,
    /// The groups by their numbers.
    groups: Vec<Group>,
    by_name: HashTable<u32>,
    hasher: RandomState,
    /// Places whose change is to be told, in the order in which they first changed.
    changed: VecDeque<u32>,
    tags_max: usize,
    name_bytes: usize,
    /// Where the search for a place that counts nothing goes on.
    hand: usize,
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    group: TagGroup,
    place: u32,
    /// At least 1.
    count: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    is_counted: bool,
    /// Tags of which the group holds something.
    holdings: u32,
}

#[derive(Debug)]
struct Counted {
    name: Box<str>,
    /// What all groups hold of the tag.
    held: u64,
    /// What the counted groups hold of the tag.
    present: u64,
    /// Values that stood at the end of a millisecond since the last change was told; `low > high`:
    /// none yet.
    low: u64,
    high: u64,
    at: Tick,
    is_changed: bool,
    is_told: bool,
}

impl Counted {
    fn new(name: &str) -> Self {
        let (low, high) = (u64::MAX, 0);
        Self {
            name: name.into(),
            held: 0,
            present: 0,
            low,
            high,
            at: Tick(0),
            is_changed: false,
            is_told: false,
        }
    }

    fn mark(&mut self) {
        self.low = self.low.min(self.present);
        self.high = self.high.max(self.present);
    }
}

impl TagCounts {
    /// No counts yet. At most `tags_max` names get counts of their own, hashed with a key of this
    /// process.
    pub fn new(tags_max: usize, hash_seed: u64) -> Self {
        let mut overflow = Counted::new("");
        overflow.is_told = true;
        Self {
            tags: vec![overflow],
            holdings: HashTable::new(),
            groups: Vec::new(),
            by_name: HashTable::new(),
            hasher: RandomState::with_seeds(hash_seed, !hash_seed, hash_seed.rotate_left(41), 17),
            changed: VecDeque::with_capacity(1),
            tags_max,
            name_bytes: 0,
            hand: 0,
        }
    }

    /// Counts a timer with these tags from now on. `is_counted` is called when the group holds
    /// nothing. Cost: two look-ups a tag; an allocation only for a name or a group never seen.
    pub fn enter(
        &mut self,
        group: TagGroup,
        tags: &[Tag<'_>],
        at: Tick,
        is_counted: impl FnOnce() -> bool,
    ) {
        let number = group.0 as usize;
        if number >= self.groups.len() {
            self.groups.resize(number + 1, Group::default());
        }
        if self.groups[number].holdings == 0 {
            self.groups[number].is_counted = is_counted();
        }
        for tag in tags.iter().filter(|tag| tag.count > 0) {
            let place = self.find(tag.kind).or_else(|| self.name(tag.kind)).unwrap_or(OVERFLOW);
            self.hold_more(group, place, tag.count.into());
            self.tags[place as usize].held += u64::from(tag.count);
            if self.groups[number].is_counted {
                self.touch(place, at).present += u64::from(tag.count);
            }
        }
    }

    /// Counts a timer no more. `tags` are the very tags with which it entered this group. Cost: two
    /// look-ups a tag.
    pub fn leave(&mut self, group: TagGroup, tags: &[Tag<'_>], at: Tick) {
        for tag in tags.iter().filter(|tag| tag.count > 0) {
            let place = self.find(tag.kind).unwrap_or(OVERFLOW);
            self.hold_less(group, place, tag.count.into());
            self.tags[place as usize].held -= u64::from(tag.count);
            if self.groups[group.0 as usize].is_counted {
                self.touch(place, at).present -= u64::from(tag.count);
            }
        }
    }

    /// Counts the groups anew after beliefs about other nodes have changed. `is_counted` says of
    /// every group that holds anything whether it is counted from now on. Cost: one step for each
    /// tag of each group.
    pub fn recount(&mut self, at: Tick, is_counted: impl Fn(TagGroup) -> bool) {
        let mut changed = false;
        let before: Vec<bool> = self.groups.iter().map(|group| group.is_counted).collect();
        for (number, group) in self.groups.iter_mut().enumerate() {
            if group.holdings > 0 {
                group.is_counted = is_counted(TagGroup(number as u32));
                changed |= group.is_counted != before[number];
            }
        }
        if !changed {
            return;
        }
        // The table is borrowed while tags change, so it stands aside for a moment.
        let holdings = std::mem::take(&mut self.holdings);
        for holding in &holdings {
            let number = holding.group.0 as usize;
            match (before[number], self.groups[number].is_counted) {
                (false, true) => self.touch(holding.place, at).present += holding.count,
                (true, false) => self.touch(holding.place, at).present -= holding.count,
                _ => {}
            }
        }
        self.holdings = holdings;
    }

    /// Whether any timer is held. If not, the tags of a timer that ends need no look.
    pub fn holds_any(&self) -> bool {
        !self.holdings.is_empty()
    }

    /// The next change that has not been told. The caller must keep it. Called until it returns
    /// `None`, at most once a turn, after everything else.
    pub fn next_change(&mut self) -> Option<TagChange> {
        let place = self.changed.pop_front()?;
        let counted = &mut self.tags[place as usize];
        counted.mark();
        counted.is_changed = false;
        let name = (!counted.is_told).then(|| counted.name.clone());
        counted.is_told = true;
        let Counted { low, high, present, at, .. } = *counted;
        (counted.low, counted.high) = (u64::MAX, 0);
        Some(TagChange { place, name, low, high, present, at })
    }

    /// Whether changes wait to be told.
    pub fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// What a group holds of every tag by name, and of the overflow under the empty name.
    pub fn held(&self) -> impl Iterator<Item = (TagGroup, &str, u64)> {
        self.holdings
            .iter()
            .map(|holding| (holding.group, &*self.tags[holding.place as usize].name, holding.count))
    }

    /// What a tag counts now; 0 for one never seen, and for one that the overflow counts.
    pub fn present(&self, name: &str) -> u64 {
        self.find(name).map_or(0, |place| self.tags[place as usize].present)
    }

    /// What the tags beyond the bound count now, together.
    pub fn overflow(&self) -> u64 {
        self.tags[OVERFLOW as usize].present
    }

    /// Every tag that has a name, and what it counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.tags[1..].iter().map(|counted| (&*counted.name, counted.present))
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.tags.capacity() * size_of::<Counted>()
            + self.by_name.capacity() * (size_of::<u32>() + 1)
            + self.holdings.capacity() * (size_of::<Holding>() + 1)
            + self.groups.capacity() * size_of::<Group>()
            + self.changed.capacity() * size_of::<u32>()
            + self.name_bytes
    }

    fn find(&self, name: &str) -> Option<u32> {
        let same = |&place: &u32| *self.tags[place as usize].name == *name;
        self.by_name.find(self.hasher.hash_one(name), same).copied()
    }

    /// A place for a new name: a fresh place, or the place of a tag that no group holds and whose
    /// last change was told.
    fn name(&mut self, name: &str) -> Option<u32> {
        if self.tags[OVERFLOW as usize].held > 0 {
            return None;
        }
        let place = if self.tags.len() <= self.tags_max {
            self.tags.push(Counted::new(name));
            // Telling never allocates: the list has room for every place.
            self.changed.reserve(self.tags.len() - self.changed.len());
            (self.tags.len() - 1) as u32
        } else {
            let place = self.idle()?;
            self.unname(place);
            self.tags[place as usize] = Counted::new(name);
            place
        };
        self.name_bytes += name.len();
        let (tags, hasher) = (&self.tags, &self.hasher);
        let rehash = |&place: &u32| hasher.hash_one(&*tags[place as usize].name);
        self.by_name.insert_unique(hasher.hash_one(name), place, rehash);
        Some(place)
    }

    fn hash_of(hasher: &RandomState, group: TagGroup, place: u32) -> u64 {
        hasher.hash_one(u64::from(group.0) << 32 | u64::from(place))
    }

    fn hold_more(&mut self, group: TagGroup, place: u32, count: u64) {
        let hasher = &self.hasher;
        let found = self.holdings.find_mut(Self::hash_of(hasher, group, place), |holding| {
            (holding.group, holding.place) == (group, place)
        });
        if let Some(holding) = found {
            holding.count += count;
            return;
        }
        self.groups[group.0 as usize].holdings += 1;
        self.holdings.insert_unique(
            Self::hash_of(hasher, group, place),
            Holding { group, place, count },
            |holding| Self::hash_of(hasher, holding.group, holding.place),
        );
    }

    fn hold_less(&mut self, group: TagGroup, place: u32, count: u64) {
        let hash = Self::hash_of(&self.hasher, group, place);
        let found = self
            .holdings
            .find_entry(hash, |holding| (holding.group, holding.place) == (group, place));
        let entered = "a timer leaves the group, and with the tags, that it entered with";
        let mut found = found.unwrap_or_else(|_| panic!("{entered}"));
        let left = found.get().count.checked_sub(count).expect(entered);
        found.get_mut().count = left;
        if left == 0 {
            found.remove();
            self.groups[group.0 as usize].holdings -= 1;
        }
    }

    fn idle(&mut self) -> Option<u32> {
        let names = self.tags.len() - 1;
        let found = (0..names).map(|step| 1 + (self.hand + step) % names).find(|&place| {
            let counted = &self.tags[place];
            counted.held == 0 && !counted.is_changed
        })?;
        self.hand = found;
        Some(found as u32)
    }

    fn unname(&mut self, place: u32) {
        let name = &self.tags[place as usize].name;
        self.name_bytes -= name.len();
        let found = self.by_name.find_entry(self.hasher.hash_one(&**name), |&p| p == place);
        found.expect("every name is in the table").remove();
    }

    /// The tag, about to change at `at`. Its value at the end of an earlier millisecond is kept.
    fn touch(&mut self, place: u32, at: Tick) -> &mut Counted {
        let counted = &mut self.tags[place as usize];
        if !counted.is_changed {
            counted.is_changed = true;
            self.changed.push_back(place);
        } else if counted.at < at {
            counted.mark();
        }
        counted.at = at;
        counted
    }
}

#[cfg(test)]
#[path = "tag_counts_tests.rs"]
mod tests;
