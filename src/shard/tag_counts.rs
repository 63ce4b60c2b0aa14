//! How much each statistics tag counts on this shard (seeds/002 "Statistics"): the sum of its
//! counts over the live timers of which this node is the first to pop.
//!
//! Who calls: whoever changes a record. A timer is *counted* exactly while its record is live and
//! its placement says that this node pops first; it enters when that becomes true and leaves, with
//! the same tags, when that ends, whatever the reason (update, last pop, delete, another node acts
//! first, forgotten). A timer without tags must not get here: its content need not even be read.
//!
//! Never more than `tags_max` names: what is beyond is counted in one number, the *overflow*. A
//! name gets a place of its own only while the overflow counts nothing, so that no timer ever
//! enters under the overflow and leaves under a name.

use std::collections::VecDeque;

use ahash::RandomState;
use hashbrown::HashTable;

use crate::base::time::Tick;
use crate::wire::timer_json::Tag;

/// The place that counts the tags beyond the bound; it never has a name.
pub const OVERFLOW: u32 = 0;

/// What became of one tag since it was told last. Values that another followed within the same
/// millisecond are not told: an update that takes a timer out and puts it in again is no change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagChange {
    /// The tag's place; [`OVERFLOW`] is not a tag's.
    pub place: u32,
    /// The tag that the place stands for from now on, told once.
    pub name: Option<Box<str>>,
    /// The lowest value since.
    pub low: u64,
    /// The highest value since.
    pub high: u64,
    /// The present value.
    pub present: u64,
    /// Since when it is that.
    pub at: Tick,
}

/// The counts of one shard.
pub struct TagCounts {
    tags: Vec<Counted>,
    by_name: HashTable<u32>,
    hasher: RandomState,
    /// Places whose change is to be told, in the order in which they first changed.
    changed: VecDeque<u32>,
    tags_max: usize,
    name_bytes: usize,
    /// Where the search for a place that counts nothing goes on.
    hand: usize,
}

#[derive(Debug)]
struct Counted {
    name: Box<str>,
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
    /// Nothing counted; at most `tags_max` names, hashed with a key of this process.
    pub fn new(tags_max: usize, hash_seed: u64) -> Self {
        let mut overflow = Counted::new("");
        overflow.is_told = true;
        Self {
            tags: vec![overflow],
            by_name: HashTable::new(),
            hasher: RandomState::with_seeds(hash_seed, !hash_seed, hash_seed.rotate_left(41), 17),
            changed: VecDeque::with_capacity(1),
            tags_max,
            name_bytes: 0,
            hand: 0,
        }
    }

    /// A timer with these tags is counted from now on. Cost: one look-up a tag; an allocation only
    /// for a name never seen.
    pub fn enter(&mut self, tags: &[Tag<'_>], at: Tick) {
        for tag in tags.iter().filter(|tag| tag.count > 0) {
            let place = self.find(tag.kind).or_else(|| self.name(tag.kind)).unwrap_or(OVERFLOW);
            let counted = self.touch(place, at);
            counted.present += u64::from(tag.count);
        }
    }

    /// A timer with these tags, the very ones that it entered with, is counted no more. Cost: one
    /// look-up a tag.
    pub fn leave(&mut self, tags: &[Tag<'_>], at: Tick) {
        for tag in tags.iter().filter(|tag| tag.count > 0) {
            let place = self.find(tag.kind).unwrap_or(OVERFLOW);
            let counted = self.touch(place, at);
            let left = counted.present.checked_sub(tag.count.into());
            counted.present = left.expect("a timer leaves with the tags that it entered with");
        }
    }

    /// The next change that has not been told; whoever takes it must keep it. Asked for at most
    /// once a turn until it is `None`, after everything else.
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
            + self.changed.capacity() * size_of::<u32>()
            + self.name_bytes
    }

    fn find(&self, name: &str) -> Option<u32> {
        let same = |&place: &u32| *self.tags[place as usize].name == *name;
        self.by_name.find(self.hasher.hash_one(name), same).copied()
    }

    /// A place for a new name: a fresh one, or that of a tag that counts nothing and has told it.
    fn name(&mut self, name: &str) -> Option<u32> {
        if self.overflow() > 0 {
            return None;
        }
        let place = if self.tags.len() <= self.tags_max {
            self.tags.push(Counted::new(name));
            // Telling never allocates: every place fits into the list.
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

    fn idle(&mut self) -> Option<u32> {
        let names = self.tags.len() - 1;
        let found = (0..names).map(|step| 1 + (self.hand + step) % names).find(|&place| {
            let counted = &self.tags[place];
            counted.present == 0 && !counted.is_changed
        })?;
        self.hand = found % names;
        Some(found as u32)
    }

    fn unname(&mut self, place: u32) {
        let name = &self.tags[place as usize].name;
        self.name_bytes -= name.len();
        let found = self.by_name.find_entry(self.hasher.hash_one(&**name), |&p| p == place);
        found.expect("every name is in the table").remove();
    }

    /// The tag, about to change at `at`: what it was at the end of an earlier millisecond is kept.
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
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 9] = ["CALL", "REG", "a", "b", "c", "d", "e", "f", "g"];
    const TAGS_MAX: usize = 4;

    fn tag(kind: &str, count: u32) -> Tag<'_> {
        Tag { kind, count }
    }

    fn changes(counts: &mut TagCounts) -> Vec<TagChange> {
        std::iter::from_fn(|| counts.next_change()).collect()
    }

    #[derive(Clone, Debug)]
    enum Step {
        Enter(Vec<(usize, u32)>),
        Leave(prop::sample::Index),
        Tell(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let tags = proptest::collection::vec((0..NAMES.len(), 0_u32..5), 0..4);
        prop_oneof![
            4 => tags.prop_map(Step::Enter),
            4 => any::<prop::sample::Index>().prop_map(Step::Leave),
            2 => (0_usize..6).prop_map(Step::Tell),
        ]
    }

    /// Who listens: names and values by place.
    #[derive(Default)]
    struct Listener(BTreeMap<u32, (String, u64)>);

    impl Listener {
        fn hear(&mut self, change: TagChange) {
            let held = self.0.entry(change.place).or_default();
            if let Some(name) = change.name {
                assert_eq!(held.1, 0, "a place is given away only when it counts nothing");
                held.0 = name.into();
            }
            assert!((change.low..=change.high).contains(&change.present));
            held.1 = change.present;
        }
    }

    proptest! {
        #[test]
        fn counts_are_the_sums_over_the_timers_counted(
            steps in proptest::collection::vec(step(), 1..300),
        ) {
            let mut counts = TagCounts::new(TAGS_MAX, 5);
            let mut listener = Listener::default();
            let mut timers: Vec<Vec<Tag<'_>>> = Vec::new();
            for (now, step) in steps.into_iter().enumerate() {
                let at = Tick(now as u64 / 3);
                match step {
                    Step::Enter(tags) => {
                        let tags: Vec<_> = tags.iter().map(|(n, c)| tag(NAMES[*n], *c)).collect();
                        counts.enter(&tags, at);
                        timers.push(tags);
                    }
                    Step::Leave(_) if timers.is_empty() => {}
                    Step::Leave(index) => {
                        let tags = timers.swap_remove(index.index(timers.len()));
                        counts.leave(&tags, at);
                    }
                    Step::Tell(some) => {
                        let told = std::iter::from_fn(|| counts.next_change()).take(some);
                        told.collect::<Vec<_>>().into_iter().for_each(|c| listener.hear(c));
                    }
                }
                let mut sums: HashMap<&str, u64> = HashMap::new();
                for tag in timers.iter().flatten() {
                    *sums.entry(tag.kind).or_default() += u64::from(tag.count);
                }
                for (name, present) in counts.iter() {
                    prop_assert_eq!(present, sums.remove(name).unwrap_or(0), "{}", name);
                }
                prop_assert_eq!(counts.overflow(), sums.values().sum::<u64>());
                prop_assert!(counts.iter().count() <= TAGS_MAX);
            }
            for tags in timers {
                counts.leave(&tags, Tick(1_000));
            }
            changes(&mut counts).into_iter().for_each(|change| listener.hear(change));
            prop_assert!(listener.0.values().all(|(_, value)| *value == 0));
            prop_assert!(counts.iter().all(|(_, value)| value == 0) && counts.overflow() == 0);
            for (place, (name, _)) in &listener.0 {
                prop_assert_eq!(&*counts.tags[*place as usize].name, name.as_str());
            }
        }

        #[test]
        fn marks_are_those_of_values_that_stood(
            deltas in proptest::collection::vec((0_u64..2, any::<bool>()), 1..100),
        ) {
            let mut counts = TagCounts::new(1, 5);
            counts.enter(&[tag("T", 1_000)], Tick(0));
            counts.next_change();
            let (mut now, mut value) = (1, 1_000_u64);
            let mut at_ends = BTreeMap::new();
            for (pause, enters) in deltas {
                now += pause;
                if enters {
                    counts.enter(&[tag("T", 1)], Tick(now));
                    value += 1;
                } else {
                    counts.leave(&[tag("T", 1)], Tick(now));
                    value -= 1;
                }
                at_ends.insert(now, value);
            }
            let change = counts.next_change().expect("it changed");
            prop_assert_eq!(Some(&change.low), at_ends.values().min());
            prop_assert_eq!(Some(&change.high), at_ends.values().max());
            prop_assert_eq!((change.present, change.at), (value, Tick(now)));
            prop_assert!(!counts.has_changes());
        }
    }

    #[test]
    fn an_update_within_a_turn_leaves_no_mark() {
        let mut counts = TagCounts::new(8, 1);
        counts.enter(&[tag("CALL", 2)], Tick(5));
        let first = counts.next_change().expect("new");
        assert_eq!(first.name.as_deref(), Some("CALL"));
        assert_eq!((first.low, first.high, first.present, first.at), (2, 2, 2, Tick(5)));
        counts.leave(&[tag("CALL", 2)], Tick(9));
        counts.enter(&[tag("CALL", 2)], Tick(9));
        let second = counts.next_change().expect("touched");
        assert_eq!((second.name, second.low, second.high), (None, 2, 2));
    }

    #[test]
    fn what_is_beyond_the_bound_is_one_number_until_it_is_nothing() {
        let mut counts = TagCounts::new(1, 1);
        counts.enter(&[tag("a", 1)], Tick(0));
        counts.enter(&[tag("b", 2)], Tick(0));
        counts.enter(&[tag("c", 3)], Tick(0));
        assert_eq!((counts.present("a"), counts.present("b"), counts.overflow()), (1, 0, 5));
        changes(&mut counts);
        counts.leave(&[tag("a", 1)], Tick(1));
        changes(&mut counts);
        counts.enter(&[tag("b", 2)], Tick(1));
        assert_eq!(counts.overflow(), 7, "b is in the overflow already: there it stays");
        for (name, count) in [("b", 2), ("b", 2), ("c", 3)] {
            counts.leave(&[tag(name, count)], Tick(2));
        }
        counts.enter(&[tag("b", 2)], Tick(3));
        assert_eq!((counts.present("b"), counts.overflow()), (2, 0));
        let told = changes(&mut counts);
        assert!(told.iter().any(|change| change.name.as_deref() == Some("b")), "{told:?}");
        assert_eq!(TagCounts::new(0, 1).iter().count(), 0);
    }

    #[test]
    #[should_panic(expected = "leaves with the tags that it entered with")]
    fn who_did_not_enter_cannot_leave() {
        let mut counts = TagCounts::new(8, 1);
        counts.enter(&[tag("CALL", 1)], Tick(0));
        counts.leave(&[tag("CALL", 2)], Tick(0));
    }

    #[test]
    fn known_tags_cost_no_allocation() {
        let mut counts = TagCounts::new(NAMES.len(), 1);
        let tags: Vec<_> = NAMES.iter().map(|name| tag(name, 1)).collect();
        counts.enter(&tags, Tick(0));
        changes(&mut counts);
        let bytes = counts.bytes();
        for now in 0..100 {
            counts.leave(&tags, Tick(now));
            counts.enter(&tags, Tick(now));
            assert_eq!(counts.bytes(), bytes);
        }
        assert_eq!(changes(&mut counts).len(), NAMES.len());
        assert_eq!(counts.bytes(), bytes);
    }
}
