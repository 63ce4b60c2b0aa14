//! What cores find in layouts of as many shards, of fewer and of more, and what is told of damage.

use super::*;
use crate::base::time::{MonoNs, TICK_NS};
use crate::cluster::view::View;
use crate::core::mesh::mesh;
use crate::journal::entry::tests::{content, timer};
use crate::node::journal::reading::tests::{Drawer, SIZES, Shelf, number, stamp};
use crate::shard::ShardConfig;
use crate::shard::harness_tests::config;

const NOW: Now = Now { mono: MonoNs(2_000 * TICK_NS), wall: WallMs(5_000) };

fn core(own: u16, shards: u16) -> Core {
    let view = Arc::new(View::alone("10.0.0.1:7253"));
    let shards = ShardCount::new(shards);
    let config = ShardConfig { own: ShardIndex(own), shards, ..config(view, 1) };
    let port = mesh(shards, 16).into_iter().nth(own.into()).expect("one for each");
    Core::new(config, port, NOW)
}

fn plan(older: &[Vec<Drawer>], present: Vec<Drawer>, mode: Mode) -> Plan<Drawer> {
    let rules = JournalRules { mode, stall_ms: 1_000, boot: 1 };
    let catch_up = CatchUp { pops_per_s: 1_000, is_each: false };
    Plan::new((older, present), (rules, catch_up, SIZES), NOW).expect("the disk gives it")
}

fn recover(plan: &Plan<Drawer>, own: u16, shards: u16) -> (Recovered, Core, CoreMeters) {
    let (mut core, meters) = (core(own, shards), CoreMeters::default());
    let clock = || NOW;
    let found = plan.recover(&mut core, ShardIndex(own), (NOW, &clock), &meters);
    (found.expect("it can be read"), core, meters)
}

/// The journal of a shard with the timers of these ids, a write for each.
fn of(shard: (u16, u16), ids: impl IntoIterator<Item = u64>) -> Shelf {
    let mut shelf = Shelf::new(shard);
    ids.into_iter().for_each(|id| shelf.write(id));
    shelf
}

fn held(core: &Core, ids: impl IntoIterator<Item = u64>) -> Vec<u64> {
    ids.into_iter().filter(|id| core.shard().held(TimerId(*id)).is_some()).collect()
}

#[test]
fn a_core_has_all_that_its_shard_wrote() {
    let layout = vec![of((0, 2), 1..=7).drawer, of((1, 2), 8..=9).drawer];
    let plan = plan(&[], layout, Mode::Sync);
    let (found, core, meters) = recover(&plan, 0, 2);
    assert_eq!(held(&core, 1..=9), Vec::from_iter(1..=7));
    assert_eq!((found.restored.timers, found.used), (7, (number(1), number(3))));
    assert_eq!((&found.damage[..], &found.damaged[..]), (&[][..], &[][..]));
    assert!(!found.is_older_damaged);
    let bytes = SIZES.segment_bytes();
    assert_eq!(found.bytes, 3 * bytes);
    assert_eq!(meters.journal_recovery_bytes.get(), 4 * bytes, "one was made ahead");
    assert_eq!(meters.journal_recovered_bytes.get(), (3 + 7) * 4_096, "heads, and timers");
    assert_eq!(meters.journal_recovered_timers.get(), 7);
    assert_eq!((meters.journal_recovering.get(), meters.journal_damaged.get()), (1, 0));
    assert_eq!(core.shard().complete_since(), WallMs(3), "as the journal says");
    let (_, core, _) = recover(&plan, 1, 2);
    assert_eq!(held(&core, 1..=9), [8, 9]);
}

/// A core counts as complete from now on if its journal may lack what it acknowledged.
#[test]
fn a_journal_that_may_lack_something_makes_no_core_complete() {
    let layout = |shelf: &Shelf| vec![shelf.drawer.clone()];
    let whole = of((0, 1), 1..=5);
    let mut damaged = of((0, 1), 1..=5);
    damaged.damage(1, 2);
    let since = |plan: &Plan<Drawer>| recover(plan, 0, 1).1.shard().complete_since();
    assert_eq!(since(&plan(&[], layout(&whole), Mode::Sync)), WallMs(3));
    assert_eq!(since(&plan(&[], layout(&damaged), Mode::Sync)), NOW.wall);
    assert_eq!(since(&plan(&[], layout(&whole), Mode::Interval(9))), NOW.wall);
    let backup = Plan { is_incomplete: true, ..plan(&[], layout(&whole), Mode::Sync) };
    assert_eq!(since(&backup), NOW.wall);
    assert_eq!(since(&plan(&[], layout(&of((0, 1), [])), Mode::Sync)), NOW.wall, "it has no state");
}

#[test]
fn each_core_takes_what_it_owns_from_a_layout_of_another_number_of_shards() {
    // From two shards to one.
    let older = vec![vec![of((0, 2), 1..=4).drawer, of((1, 2), 5..=8).drawer]];
    let one = plan(&older, vec![of((0, 1), []).drawer], Mode::Sync);
    let (found, core, _) = recover(&one, 0, 1);
    assert_eq!((held(&core, 1..=8).len(), found.restored.timers), (8, 8));
    // From two shards to three.
    let present = (0..3).map(|shard| of((shard, 3), []).drawer).collect();
    let three = plan(&older, present, Mode::Sync);
    for own in 0..3 {
        let (_, core, _) = recover(&three, own, 3);
        let owned = (1..=8).filter(|id| ShardCount::new(3).owner(TimerId(*id)) == ShardIndex(own));
        assert_eq!(held(&core, 1..=8), Vec::from_iter(owned), "{own}");
    }
    // Of a layout of as many shards a core reads its own alone, whatever else is older.
    let same = vec![of((0, 2), 1..=2).drawer, of((1, 2), 3..=4).drawer];
    let present = vec![of((0, 2), 5..=6).drawer, of((1, 2), []).drawer];
    let (_, core, _) = recover(&plan(&[same], present, Mode::Sync), 0, 2);
    assert_eq!(held(&core, 1..=6), [1, 2, 5, 6]);
}

#[test]
fn one_core_tells_of_the_damage_of_an_older_layout_and_all_know() {
    let mut damaged = of((1, 2), 5..=9);
    damaged.damage(1, 1);
    damaged.damage(1, 2);
    let older = vec![vec![of((0, 2), 1..=4).drawer, damaged.drawer]];
    let present = (0..3).map(|shard| of((shard, 3), []).drawer).collect();
    let plan = plan(&older, present, Mode::Sync);
    for own in 0..3 {
        let (found, core, meters) = recover(&plan, own, 3);
        assert!(found.is_older_damaged, "{own}");
        assert_eq!(found.damage.len(), usize::from(own == 1), "{own}: {:?}", found.damage);
        assert_eq!(meters.journal_damaged.get(), u64::from(own == 1));
        assert_eq!(core.shard().complete_since(), NOW.wall);
        assert_eq!(found.damaged, [], "it is not of the present layout");
    }
    let told = &recover(&plan, 1, 3).0.damage[0];
    assert!(told.ends_with("/1: 8192 bytes at 4096 cannot be read"), "{told}");
    // So is what nobody understands.
    let mut strange = of((0, 2), 1..=5);
    let state = State { oldest: number(2), ..strange.writer.state().clone() };
    strange.writer.append_state(state);
    (6..=7).for_each(|write| strange.write(write));
    strange.files.get_mut(&1).expect("it is there").bytes.fill(7);
    let older = vec![vec![strange.drawer, of((1, 2), []).drawer]];
    let plan = self::plan(&older, vec![of((0, 1), []).drawer], Mode::Sync);
    let (found, core, _) = recover(&plan, 0, 1);
    assert!(found.is_older_damaged && found.damage.is_empty(), "{found:?}");
    assert_eq!(held(&core, 1..=7), [4, 5, 6, 7]);
}

#[test]
fn what_is_damaged_is_kept_and_its_place_is_told() {
    let mut shelf = of((0, 1), 1..=7);
    shelf.damage(1, 2);
    let (found, core, meters) = recover(&plan(&[], vec![shelf.drawer], Mode::Sync), 0, 1);
    assert_eq!(held(&core, 1..=7), [1, 3, 4, 5, 6, 7]);
    assert_eq!((found.damaged, meters.journal_damaged.get()), (vec![number(1)], 1));
    assert!(found.damage[0].ends_with("4096 bytes at 8192 cannot be read"), "{:?}", found.damage);
    // A page that says nothing.
    let mut shelf = Shelf::new((0, 1));
    let content = content(b"opaque");
    let entry = Entry::Timer(timer(1, 0, Some(&content)));
    shelf.write_entries(&[entry], stamp(1, 1, 1));
    let bytes = &mut shelf.files.get_mut(&1).expect("it is there").bytes[4_096..8_192];
    let page = crate::journal::page::open(bytes).expect("a page");
    let used = crate::journal::page::HEADER_BYTES + page.entries.len();
    let (place, stamp) = (page.place, page.stamp);
    bytes[crate::journal::page::HEADER_BYTES] = 200;
    crate::journal::page::seal(bytes, used, &place, &stamp);
    let (found, ..) = recover(&plan(&[], vec![shelf.drawer], Mode::Sync), 0, 1);
    assert!(found.damage[0].contains("/1: the page at 4096: "), "{:?}", found.damage);
}

#[test]
fn pages_whose_time_says_nothing_are_counted() {
    let shelf = of((0, 1), 1..=2);
    let damage = damage_of(&shelf.drawer, &ShardReport::default(), 2).expect("the node goes on");
    assert_eq!(damage, ["2 pages tell no time that can be used"]);
    let plan = plan(&[], vec![shelf.drawer], Mode::Sync);
    assert_eq!(recover(&plan, 0, 1).0.damage, [""; 0]);
    let unknown = Plan { clocks: Clocks::new(9, NOW, vec![]), ..plan };
    let damage = recover(&unknown, 0, 1).0.damage;
    assert_eq!(damage, ["3 pages tell no time that can be used"], "a head, and two timers");
}
