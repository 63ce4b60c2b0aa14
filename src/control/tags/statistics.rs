//! Statistics tags of the node: the counts of its cores, summed, and their past
//! (docs/compat/timer-service.md §10). Pure: time is an argument.
//!
//! At most `tags_max` tags have figures of their own. The tags beyond, here or already on a core,
//! are counted in the figures of the *overflow*. When all entries are taken, a new tag gets the
//! entry of a tag that is 0. But while the overflow counts a tag for want of an entry, no tag gets
//! an entry: a count that began in the overflow also ends there.

// May panic: assertions 3, indices 16.
// Why it does not: places 9, cores 7, ordered 3.
// Reads the wall clock: told 1.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::history::{History, Report};
use crate::base::time::{Now, Tick};
use crate::shard::tag_counts::{OVERFLOW, TagChange};

/// The figures of all tags of a node, or of a cluster: the document of `GET /statistics/tags`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TagsReport {
    /// Figures by name. A tag that is not here is 0 in every figure, if `overflow` is.
    pub tags: BTreeMap<String, Report>,
    /// Figures of the tags beyond `limits.tags_max`, together.
    pub overflow: Report,
}

impl TagsReport {
    /// Whether the figures of a tag are known: it is here, or nothing is counted elsewhere.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.tags.contains_key(name) || self.overflow == Report::default()
    }

    /// Returns the figures of one tag. A tag that was never seen is 0 in every figure.
    pub(crate) fn of(&self, name: &str) -> Report {
        self.tags.get(name).copied().unwrap_or_default()
    }

    /// Adds the figures of another node. [`Report::plus`] says what the sums mean.
    pub(crate) fn add(&mut self, other: &TagsReport) {
        for (name, report) in &other.tags {
            let sum = self.of(name).plus(report);
            self.tags.insert(name.clone(), sum);
        }
        self.overflow = self.overflow.plus(&other.overflow);
    }
}

/// The tags of one node.
#[derive(Debug)]
pub(crate) struct TagStatistics {
    /// Entry 0 is the overflow.
    entries: Vec<TagEntry>,
    by_name: BTreeMap<Box<str>, usize>,
    /// What each core said last, by core and by number of the core's slot.
    cores: Vec<Vec<TagSlot>>,
    /// How many slots have a name, count something, and are in the overflow because no entry was
    /// free when they began to count.
    homeless: usize,
    tags_max: usize,
    /// Milliseconds from the monotonic clock to the wall clock at the start. So windows begin at
    /// whole 5 minutes and never jump.
    ahead_ms: u64,
    born_ms: u64,
}

#[derive(Debug)]
struct TagEntry {
    name: Box<str>,
    history: History,
    /// How many slots of cores are counted in this entry.
    places: usize,
}

/// A slot of a core: the entry that it is counted in, and its count.
#[derive(Clone, Debug, Default)]
struct TagSlot {
    entry: usize,
    present: u64,
    /// The name under which the slot would be counted if an entry were free.
    homeless: Option<Box<str>>,
}

impl TagStatistics {
    /// Makes the statistics of `cores` cores, which have counted nothing yet. At most `tags_max`
    /// tags get figures of their own.
    pub(crate) fn new(cores: usize, tags_max: usize, now: Now) -> Self {
        let ahead_ms = now.wall.0.saturating_sub(now.mono.tick_floor().0);
        let born_ms = now.mono.tick_floor().0 + ahead_ms;
        let overflow = TagEntry { name: "".into(), history: History::new(born_ms), places: 0 };
        Self {
            entries: vec![overflow],
            by_name: BTreeMap::new(),
            cores: vec![Vec::new(); cores],
            homeless: 0,
            tags_max,
            ahead_ms,
            born_ms,
        }
    }

    /// Takes the changes of the cores, each with the number of its shard, and sorts them by time. A
    /// core's own changes must come in order. Changes of different calls are not sorted against
    /// each other.
    pub(crate) fn take(&mut self, changes: &mut Vec<(usize, TagChange)>) {
        changes.sort_by_key(|(_, change)| change.at);
        for (core, change) in changes.drain(..) {
            self.apply(core, change);
        }
    }

    /// Returns all figures at `now`. Costs a microsecond a tag.
    pub(crate) fn report(&mut self, now: Tick) -> TagsReport {
        let now_ms = now.0 + self.ahead_ms;
        let [overflow, tags @ ..] = self.entries.as_mut_slice() else {
            unreachable!("the overflow is always there")
        };
        let tags = tags.iter_mut().map(|e| (e.name.to_string(), e.history.report(now_ms)));
        TagsReport { tags: tags.collect(), overflow: overflow.history.report(now_ms) }
    }

    fn apply(&mut self, core: usize, change: TagChange) {
        let at_ms = change.at.0 + self.ahead_ms;
        let place = change.place as usize;
        let places = &mut self.cores[core];
        if places.len() <= place {
            places.resize(place + 1, TagSlot::default());
        }
        if let Some(name) = change.name {
            assert!(change.place != OVERFLOW, "the overflow has no name");
            self.settle(core, place, name, at_ms);
        } else if places[place].present == 0
            && let Some(name) = places[place].homeless.take()
        {
            self.settle(core, place, name, at_ms);
        }
        let held = &mut self.cores[core][place];
        if held.homeless.is_some() {
            self.homeless -= usize::from(held.present > 0);
            self.homeless += usize::from(change.present > 0);
        }
        let history = &mut self.entries[held.entry].history;
        let others = history.value() - held.present;
        held.present = change.present;
        let of_all = |of_core: u64| others + of_core;
        history.change(at_ms, of_all(change.present), of_all(change.low), of_all(change.high));
    }

    /// Makes a core's slot stand for the tag `name` from now on. The slot must count nothing.
    fn settle(&mut self, core: usize, place: usize, name: Box<str>, at_ms: u64) {
        let former = std::mem::take(&mut self.cores[core][place]);
        assert!(former.present == 0, "a core gives a place away only when it counts nothing");
        if former.entry != OVERFLOW as usize {
            self.entries[former.entry].places -= 1;
        }
        let entry = match self.by_name.get(&name) {
            Some(&entry) => Some(entry),
            None => self.place_for(&name, at_ms),
        };
        let held = match entry {
            Some(entry) => {
                self.entries[entry].places += 1;
                TagSlot { entry, ..TagSlot::default() }
            }
            None => TagSlot { homeless: Some(name), ..TagSlot::default() },
        };
        self.cores[core][place] = held;
    }

    /// Returns an entry for a new tag: a fresh entry, or the entry that is 0 for longest. An entry
    /// that all cores have forgotten goes before others.
    fn place_for(&mut self, name: &str, at_ms: u64) -> Option<usize> {
        if self.homeless > 0 {
            return None;
        }
        let entry = TagEntry { name: name.into(), history: History::new(self.born_ms), places: 0 };
        let place = if self.entries.len() <= self.tags_max {
            self.entries.push(entry);
            self.entries.len() - 1
        } else {
            let zero = self.entries.iter().enumerate().skip(1);
            let zero = zero.filter(|(_, entry)| entry.history.value() == 0);
            let oldest = zero.min_by_key(|(_, e)| (e.places > 0, e.history.at_ms()));
            let (place, _) = oldest?;
            self.vacate(place);
            self.entries[place] = entry;
            place
        };
        // The tag was 0 until now.
        self.entries[place].history.change(at_ms, 0, 0, 0);
        self.by_name.insert(name.into(), place);
        Some(place)
    }

    /// Takes the name away from an entry that counts nothing. Looks at every slot of every core,
    /// unless no core knows the tag any more.
    fn vacate(&mut self, entry: usize) {
        let name = &self.entries[entry].name;
        self.by_name.remove(name);
        if self.entries[entry].places == 0 {
            return;
        }
        for held in self.cores.iter_mut().flatten().filter(|held| held.entry == entry) {
            *held = TagSlot { homeless: Some(name.clone()), ..TagSlot::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::base::time::{MonoNs, WallMs};
    use crate::shard::tag_counts::{TagCounts, TagGroup};
    use crate::wire::timer_json::Tag;

    const BORN: Now = Now { mono: MonoNs(1_000_000_000), wall: WallMs(1_700_000_000_123) };

    fn tag(kind: &str) -> [Tag<'_>; 1] {
        [Tag { kind, count: 1 }]
    }

    fn hear(statistics: &mut TagStatistics, cores: &mut [TagCounts]) {
        let mut changes = Vec::new();
        for (core, counts) in cores.iter_mut().enumerate() {
            changes.extend(std::iter::from_fn(|| counts.next_change()).map(|c| (core, c)));
        }
        statistics.take(&mut changes);
    }

    proptest! {
        /// Whatever slots are given away on cores and here: a tag with figures of its own has the
        /// sum over the cores that count it under its name, and no count is lost.
        #[test]
        fn sums_over_cores_are_exact(
            steps in proptest::collection::vec((0_usize..3, 0_usize..8, any::<bool>()), 1..400),
            tags_max in 1_usize..6,
        ) {
            const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
            let mut cores: Vec<_> = (0..3).map(|core| TagCounts::new(3, core)).collect();
            let mut statistics = TagStatistics::new(3, tags_max, BORN);
            let mut counted: HashMap<(usize, usize), u64> = HashMap::new();
            for (step, (core, name, enters)) in steps.into_iter().enumerate() {
                let at = Tick(1_000 + step as u64 * 7);
                let count = counted.entry((core, name)).or_default();
                if enters {
                    cores[core].enter(TagGroup(0), &tag(NAMES[name]), at, || true);
                    *count += 1;
                } else if *count > 0 {
                    cores[core].leave(TagGroup(0), &tag(NAMES[name]), at);
                    *count -= 1;
                }
                if step % 3 == 0 {
                    continue;
                }
                hear(&mut statistics, &mut cores);
                let report = statistics.report(at);
                let all: u64 = counted.values().sum();
                let homeless = statistics.cores.iter().flatten();
                let homeless = homeless.filter(|h| h.homeless.is_some() && h.present > 0);
                prop_assert_eq!(statistics.homeless, homeless.count());
                let told = report.tags.values().map(|report| report.current).sum::<u64>();
                prop_assert_eq!(told + report.overflow.current, all);
                prop_assert!(report.tags.len() <= tags_max);
                for (name, report) in &report.tags {
                    let of_cores: u64 = cores.iter().map(|counts| counts.present(name)).sum();
                    prop_assert_eq!(report.current, of_cores, "{}", name);
                }
            }
        }
    }

    #[test]
    fn cores_are_summed_in_the_order_of_time() {
        let mut cores: Vec<_> = (0..2).map(|core| TagCounts::new(3, core)).collect();
        let mut statistics = TagStatistics::new(2, 9, BORN);
        for now in [2_000, 3_000] {
            cores[1].enter(TagGroup(0), &tag("CALL"), Tick(now), || true);
            hear(&mut statistics, &mut cores);
        }
        cores[0].enter(TagGroup(0), &tag("CALL"), Tick(4_000), || true);
        cores[1].leave(TagGroup(0), &tag("CALL"), Tick(5_000));
        hear(&mut statistics, &mut cores);
        let report = statistics.report(Tick(6_000));
        let call = report.of("CALL");
        assert_eq!(call.current, 2);
        // 0 for 1 s, 1 for 1 s, 2 for 1 s, 3 for 1 s, 2 for 1 s.
        assert_eq!((call.last_5_seconds.low, call.last_5_seconds.high), (0, 3));
        assert!((call.current_5_minutes.average - 1.6).abs() < 1e-9, "{call:?}");
        assert_eq!(report.of("never seen"), Report::default());
        assert_eq!(report.overflow, Report::default());
        let text = serde_json::to_string(&report).expect("a document");
        assert_eq!(serde_json::from_str::<TagsReport>(&text).expect("its own"), report);
    }

    #[test]
    fn an_entry_is_free_again_when_nothing_is_counted_for_want_of_one() {
        let mut cores = [TagCounts::new(3, 1)];
        let mut statistics = TagStatistics::new(1, 1, BORN);
        let mut told = |cores: &mut [TagCounts; 1], at: Tick| {
            hear(&mut statistics, cores);
            let report = statistics.report(at);
            (report.of("a").current, report.of("b").current, report.overflow.current)
        };
        cores[0].enter(TagGroup(0), &tag("a"), Tick(1_000), || true);
        cores[0].enter(TagGroup(0), &tag("b"), Tick(1_000), || true);
        let first = told(&mut cores, Tick(1_000));
        assert!([(1, 0, 1), (0, 1, 1)].contains(&first), "{first:?}");
        let (kept, other) = if first.0 == 1 { ("a", "b") } else { ("b", "a") };
        cores[0].leave(TagGroup(0), &tag(other), Tick(2_000));
        assert_eq!(told(&mut cores, Tick(2_000)).2, 0);
        // The core has forgotten the first tag and given its slot away. The second tag begins anew.
        cores[0].leave(TagGroup(0), &tag(kept), Tick(3_000));
        told(&mut cores, Tick(3_000));
        for name in ["c", "d", "e"] {
            cores[0].enter(TagGroup(0), &tag(name), Tick(4_000), || true);
        }
        assert_eq!(told(&mut cores, Tick(4_000)).2, 2);
    }

    #[test]
    fn nodes_are_summed_by_name() {
        let of = |names: &[&str]| {
            let mut counts = [TagCounts::new(3, 1)];
            names
                .iter()
                .for_each(|name| counts[0].enter(TagGroup(0), &tag(name), Tick(1_000), || true));
            let mut statistics = TagStatistics::new(1, 9, BORN);
            hear(&mut statistics, &mut counts);
            statistics.report(Tick(9_000))
        };
        let mut sum = of(&["a", "b"]);
        sum.add(&of(&["b", "c"]));
        let currents: Vec<_> = sum.tags.iter().map(|(n, r)| (n.as_str(), r.current)).collect();
        assert_eq!(currents, [("a", 1), ("b", 2), ("c", 1)]);
        assert_eq!(sum.of("b").last_5_seconds.average, 2.0);
    }
}
