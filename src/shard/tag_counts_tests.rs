//! Tag counts against sums over the timers held.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 9] = ["CALL", "REG", "a", "b", "c", "d", "e", "f", "g"];
const TAGS_MAX: usize = 4;
const GROUPS: u32 = 3;
const ONE: TagGroup = TagGroup(0);

fn tag(kind: &str, count: u32) -> Tag<'_> {
    Tag { kind, count }
}

fn enter(counts: &mut TagCounts, tags: &[Tag<'_>], at: u64) {
    counts.enter(ONE, tags, Tick(at), || true);
}

fn changes(counts: &mut TagCounts) -> Vec<TagChange> {
    std::iter::from_fn(|| counts.next_change()).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Enter(u32, Vec<(usize, u32)>),
    Leave(prop::sample::Index),
    Recount(u32),
    Tell(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let tags = proptest::collection::vec((0..NAMES.len(), 0_u32..5), 0..4);
    prop_oneof![
        4 => (0..GROUPS, tags).prop_map(|(group, tags)| Step::Enter(group, tags)),
        4 => any::<prop::sample::Index>().prop_map(Step::Leave),
        1 => (0_u32..1 << GROUPS).prop_map(Step::Recount),
        2 => (0_usize..6).prop_map(Step::Tell),
    ]
}

/// A listener: names and values by place.
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

/// Sums over the timers of which the group is in the mask.
fn sums<'a>(timers: &[(u32, Vec<Tag<'a>>)], mask: u32) -> HashMap<&'a str, u64> {
    let mut sums = HashMap::new();
    let counted = timers.iter().filter(|(group, _)| mask >> group & 1 == 1);
    for tag in counted.flat_map(|(_, tags)| tags) {
        *sums.entry(tag.kind).or_default() += u64::from(tag.count);
    }
    sums
}

proptest! {
    #[test]
    fn counts_are_the_sums_over_the_timers_counted(
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let mut counts = TagCounts::new(TAGS_MAX, 5);
        let mut listener = Listener::default();
        let mut timers: Vec<(u32, Vec<Tag<'_>>)> = Vec::new();
        let mut mask = 0b001;
        for (now, step) in steps.into_iter().enumerate() {
            let at = Tick(now as u64 / 3);
            match step {
                Step::Enter(group, tags) => {
                    let tags: Vec<_> = tags.iter().map(|(n, c)| tag(NAMES[*n], *c)).collect();
                    counts.enter(TagGroup(group), &tags, at, || mask >> group & 1 == 1);
                    timers.push((group, tags));
                }
                Step::Leave(_) if timers.is_empty() => {}
                Step::Leave(index) => {
                    let (group, tags) = timers.swap_remove(index.index(timers.len()));
                    counts.leave(TagGroup(group), &tags, at);
                }
                Step::Recount(now) => {
                    mask = now;
                    counts.recount(at, |group| mask >> group.0 & 1 == 1);
                }
                Step::Tell(some) => {
                    let told = std::iter::from_fn(|| counts.next_change()).take(some);
                    told.collect::<Vec<_>>().into_iter().for_each(|c| listener.hear(c));
                }
            }
            let mut expected = sums(&timers, mask);
            for (name, present) in counts.iter() {
                prop_assert_eq!(present, expected.remove(name).unwrap_or(0), "{}", name);
            }
            prop_assert_eq!(counts.overflow(), expected.values().sum::<u64>());
            prop_assert!(counts.iter().count() <= TAGS_MAX);
            let held: u64 = counts.held().map(|(_, _, count)| count).sum();
            prop_assert_eq!(held, sums(&timers, u32::MAX).values().sum::<u64>());
            prop_assert_eq!(counts.holds_any(), held > 0);
        }
        for (group, tags) in timers {
            counts.leave(TagGroup(group), &tags, Tick(1_000));
        }
        changes(&mut counts).into_iter().for_each(|change| listener.hear(change));
        prop_assert!(listener.0.values().all(|(_, value)| *value == 0));
        prop_assert!(counts.iter().all(|(_, value)| value == 0) && counts.overflow() == 0);
        prop_assert!(!counts.holds_any());
        for (place, (name, _)) in &listener.0 {
            let counted = &counts.tags[*place as usize];
            prop_assert!(*counted.name == **name || !counted.is_told);
        }
    }

    #[test]
    fn marks_are_those_of_values_that_stood(
        deltas in proptest::collection::vec((0_u64..2, any::<bool>()), 1..100),
    ) {
        let mut counts = TagCounts::new(1, 5);
        enter(&mut counts, &[tag("T", 1_000)], 0);
        counts.next_change();
        let (mut now, mut value) = (1, 1_000_u64);
        let mut at_ends = BTreeMap::new();
        for (pause, enters) in deltas {
            now += pause;
            if enters {
                enter(&mut counts, &[tag("T", 1)], now);
                value += 1;
            } else {
                counts.leave(ONE, &[tag("T", 1)], Tick(now));
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
    enter(&mut counts, &[tag("CALL", 2)], 5);
    let first = counts.next_change().expect("new");
    assert_eq!(first.name.as_deref(), Some("CALL"));
    assert_eq!((first.low, first.high, first.present, first.at), (2, 2, 2, Tick(5)));
    counts.leave(ONE, &[tag("CALL", 2)], Tick(9));
    enter(&mut counts, &[tag("CALL", 2)], 9);
    let second = counts.next_change().expect("touched");
    assert_eq!((second.name, second.low, second.high), (None, 2, 2));
}

#[test]
fn a_backup_counts_nothing_until_it_is_the_first() {
    let mut counts = TagCounts::new(8, 1);
    counts.enter(TagGroup(7), &[tag("CALL", 2)], Tick(5), || false);
    assert!(counts.next_change().is_none() && counts.present("CALL") == 0);
    counts.recount(Tick(8), |group| group == TagGroup(7));
    counts.enter(TagGroup(7), &[tag("CALL", 1)], Tick(8), || unreachable!("asked once"));
    let change = counts.next_change().expect("promoted");
    assert_eq!((change.name.as_deref(), change.present), (Some("CALL"), 3));
    counts.recount(Tick(9), |_| false);
    assert_eq!(counts.next_change().expect("stepped back").present, 0);
}

#[test]
fn what_is_beyond_the_bound_is_one_number_until_it_is_nothing() {
    let mut counts = TagCounts::new(1, 1);
    enter(&mut counts, &[tag("a", 1)], 0);
    enter(&mut counts, &[tag("b", 2)], 0);
    enter(&mut counts, &[tag("c", 3)], 0);
    assert_eq!((counts.present("a"), counts.present("b"), counts.overflow()), (1, 0, 5));
    changes(&mut counts);
    counts.leave(ONE, &[tag("a", 1)], Tick(1));
    changes(&mut counts);
    enter(&mut counts, &[tag("b", 2)], 1);
    assert_eq!(counts.overflow(), 7, "b is in the overflow already: there it stays");
    for (name, count) in [("b", 2), ("b", 2), ("c", 3)] {
        counts.leave(ONE, &[tag(name, count)], Tick(2));
    }
    enter(&mut counts, &[tag("b", 2)], 3);
    assert_eq!((counts.present("b"), counts.overflow()), (2, 0));
    let told = changes(&mut counts);
    assert!(told.iter().any(|change| change.name.as_deref() == Some("b")), "{told:?}");
    assert_eq!(TagCounts::new(0, 1).iter().count(), 0);
}

#[test]
#[should_panic(expected = "with the tags, that it entered with")]
fn who_did_not_enter_cannot_leave() {
    let mut counts = TagCounts::new(8, 1);
    enter(&mut counts, &[tag("CALL", 1)], 0);
    counts.leave(ONE, &[tag("CALL", 2)], Tick(0));
}

#[test]
fn known_tags_cost_no_allocation() {
    let mut counts = TagCounts::new(NAMES.len(), 1);
    let tags: Vec<_> = NAMES.iter().map(|name| tag(name, 1)).collect();
    enter(&mut counts, &tags, 0);
    changes(&mut counts);
    let bytes = counts.bytes();
    for now in 0..100 {
        counts.leave(ONE, &tags, Tick(now));
        enter(&mut counts, &tags, now);
        assert_eq!(counts.bytes(), bytes);
    }
    assert_eq!(changes(&mut counts).len(), NAMES.len());
    assert_eq!(counts.bytes(), bytes);
}

#[test]
fn names_that_come_and_go_take_no_memory() {
    let mut counts = TagCounts::new(4, 1);
    let mut bytes = None;
    for number in 1_000..2_000_u64 {
        let name = format!("NAME-{number}");
        enter(&mut counts, &[tag(&name, 1)], number);
        changes(&mut counts);
        counts.leave(ONE, &[tag(&name, 1)], Tick(number));
        changes(&mut counts);
        if number == 1_010 {
            bytes = Some(counts.bytes());
        }
    }
    assert_eq!((counts.overflow(), Some(counts.bytes())), (0, bytes));
    assert_eq!(counts.name_bytes, 4 * "NAME-1000".len());
}

#[test]
fn bytes_are_tables_lists_and_names() {
    let mut counts = TagCounts::new(8, 1);
    let changes_reserved = counts.changed.capacity();
    assert_eq!(counts.bytes(), size_of::<Counted>() + 4 * changes_reserved);
    counts.enter(TagGroup(2), &[tag("CALL", 1), tag("REG", 1)], Tick(0), || true);
    let held = [
        counts.tags.capacity() * size_of::<Counted>(),
        // A byte beside each place of a table.
        counts.by_name.capacity() * 5,
        counts.holdings.capacity() * 17,
        counts.groups.capacity() * 8,
        counts.changed.capacity() * 4,
        "CALL".len() + "REG".len(),
    ];
    assert!(held.iter().all(|bytes| *bytes > 1), "{held:?}");
    assert_eq!(counts.bytes(), held.iter().sum::<usize>());
}

#[test]
fn what_groups_hold_of_tags_is_spread_over_the_table() {
    let counts = TagCounts::new(8, 1);
    let of = |group, place| TagCounts::hash_of(&counts.hasher, TagGroup(group), place);
    let pairs = (0..64).flat_map(|group| (0..64).map(move |place| of(group, place)));
    assert_eq!(pairs.collect::<std::collections::HashSet<_>>().len(), 64 * 64);
}
