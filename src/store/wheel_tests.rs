//! The wheel against a model (a map from ticks to slots), and counted budgets of its work.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::links::Links;
use super::wheel::{Advanced, Geometry, Wheel};
use crate::base::ids::{Slot, mix};
use crate::base::time::Tick;

const YEAR_MS: u64 = 366 * 24 * 3600 * 1000;
const SLOTS: u32 = 64;

/// A wheel, and the model of what it should hold.
struct Pair {
    links: Links,
    wheel: Wheel,
    model: BTreeMap<u64, BTreeSet<u32>>,
    due_of: BTreeMap<u32, u64>,
    now: u64,
    /// Every slot due at this tick or before was popped.
    popped_to: u64,
}

impl Pair {
    fn new(geometry: Geometry, now: u64) -> Self {
        let mut links = Links::new();
        links.ensure(Slot(SLOTS - 1));
        Self {
            links,
            wheel: Wheel::new(geometry, Tick(now)),
            model: BTreeMap::new(),
            due_of: BTreeMap::new(),
            now,
            popped_to: now,
        }
    }

    fn forget(&mut self, slot: u32) -> u64 {
        let due = self.due_of.remove(&slot).expect("only called for what is held");
        let set = self.model.get_mut(&due).expect("both maps hold the same");
        set.remove(&slot);
        if set.is_empty() {
            self.model.remove(&due);
        }
        due
    }

    fn note(&mut self, slot: u32, due: u64) {
        self.due_of.insert(slot, due);
        self.model.entry(due).or_default().insert(slot);
    }

    fn insert_or_rearm(&mut self, slot: u32, due: u64) {
        if slot % 2 == 1 {
            if self.due_of.contains_key(&slot) {
                self.forget(slot);
            }
            self.wheel.put(&mut self.links, Slot(slot), Tick(due));
        } else if self.due_of.contains_key(&slot) {
            self.forget(slot);
            self.wheel.rearm(&mut self.links, Slot(slot), Tick(due));
        } else {
            self.wheel.insert(&mut self.links, Slot(slot), Tick(due));
        }
        self.note(slot, due);
    }

    fn remove(&mut self, slot: u32) {
        if self.due_of.contains_key(&slot) {
            self.forget(slot);
            self.wheel.remove(&mut self.links, Slot(slot));
        }
    }

    /// Calls `advance` once. Checks the bound and the order of the popped slots, and that no slot
    /// comes early.
    fn advance_once(&mut self, due_max: usize) -> Advanced {
        let mut due = vec![Slot(u32::MAX)];
        let advanced = self.wheel.advance(&mut self.links, Tick(self.now), due_max, &mut due);
        assert!(due.len() - 1 <= due_max, "more than asked for");
        let mut latest = 0;
        for slot in &due[1..] {
            let due = self.forget(slot.0);
            assert!(due <= self.now, "{slot:?} is early: due {due}, now {}", self.now);
            // A slot that was filed late counts with the tick at which the wheel stood.
            let counted = due.max(self.popped_to);
            assert!(counted >= latest, "{slot:?} due {due} came behind one due {latest}");
            latest = counted;
            assert!(!self.links.is_linked(*slot));
        }
        self.popped_to = self.wheel.stands_at().0;
        if let Some((&earliest, _)) = self.model.first_key_value() {
            assert!(earliest > self.now || !advanced.caught_up, "due {earliest} was left");
        }
        advanced
    }

    fn check(&self) {
        assert_eq!(self.wheel.len(), self.due_of.len() as u64);
        let wake = self.wheel.next_wake();
        match self.model.first_key_value() {
            None => assert_eq!(wake, None),
            Some((&earliest, _)) => {
                let wake = wake.expect("something is filed").0;
                assert!(wake <= earliest.max(self.wheel.stands_at().0), "{wake} after {earliest}");
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Files a slot or re-arms it, due so many ticks from now, or before now.
    Set(u32, i64),
    Remove(u32),
    /// Lets so many ticks pass and calls `advance` once with this bound.
    Advance(u64, usize),
    /// Lets so many ticks pass and calls `advance` with this bound until the wheel has caught up.
    CatchUp(u64, usize),
    /// Goes from one wake to the next, so many times.
    Sleep(u8),
}

/// Delays that meet every edge of the levels, up to `longest`.
fn delays(geometry: Geometry, longest: u64) -> impl Strategy<Value = u64> + Clone {
    let window = u64::from(geometry.0[0]);
    let coarse = window * u64::from(geometry.0[1]);
    let horizon = coarse * u64::from(geometry.0[2]);
    prop_oneof![
        6 => 0..window,
        3 => window - 2..2 * window + 3,
        4 => 0..coarse,
        2 => coarse - 2..2 * coarse + 3,
        3 => 0..horizon,
        2 => horizon..4 * horizon,
        1 => 0..longest,
    ]
}

fn step_of(geometry: Geometry) -> impl Strategy<Value = Step> {
    let delay = delays(geometry, 100 * YEAR_MS);
    // A timer far beyond the horizon is filed again once a round. The tiny wheel turns round in 1
    // 024 ticks, and would move such a timer three billion times in 100 years.
    let jump = match geometry {
        Geometry::TINY => delays(geometry, 1 << 16),
        _ => delays(geometry, 100 * YEAR_MS),
    };
    let bound = prop_oneof![0_usize..4, Just(1000)];
    prop_oneof![
        8 => (0..SLOTS, delay).prop_map(|(slot, after)| Step::Set(slot, after as i64)),
        1 => (0..SLOTS, 0_i64..40).prop_map(|(slot, before)| Step::Set(slot, -before)),
        2 => (0..SLOTS).prop_map(Step::Remove),
        3 => (0_u64..40, bound.clone()).prop_map(|(ticks, bound)| Step::Advance(ticks, bound)),
        1 => (jump.clone(), bound.clone()).prop_map(|(ticks, bound)| Step::Advance(ticks, bound)),
        1 => (jump, bound).prop_map(|(ticks, bound)| Step::CatchUp(ticks, bound)),
        2 => (1_u8..20).prop_map(Step::Sleep),
    ]
}

fn run(geometry: Geometry, start: u64, steps: Vec<Step>) {
    let mut pair = Pair::new(geometry, start);
    for step in steps {
        match step {
            Step::Set(slot, after) => {
                pair.insert_or_rearm(slot, pair.now.saturating_add_signed(after))
            }
            Step::Remove(slot) => pair.remove(slot),
            Step::Advance(ticks, bound) => {
                pair.now += ticks;
                pair.advance_once(bound);
            }
            Step::CatchUp(ticks, bound) => {
                pair.now += ticks;
                let calls_max = 10_000;
                let caught_up = (0..calls_max).any(|_| pair.advance_once(bound.max(1)).caught_up);
                assert!(caught_up, "{calls_max} calls did not catch up");
            }
            Step::Sleep(wakes) => {
                for _ in 0..wakes {
                    let Some(wake) = pair.wheel.next_wake() else { break };
                    pair.now = pair.now.max(wake.0);
                    pair.advance_once(1000);
                    pair.check();
                }
            }
        }
        pair.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn tiny_behaves_like_a_map(
        start in 0_u64..2000,
        steps in prop::collection::vec(step_of(Geometry::TINY), 1..200)
    ) {
        run(Geometry::TINY, start, steps);
    }

    #[test]
    fn production_behaves_like_a_map(
        start in 0_u64..1 << 33,
        steps in prop::collection::vec(step_of(Geometry::PRODUCTION), 1..200)
    ) {
        run(Geometry::PRODUCTION, start, steps);
    }
}

/// The first share of level 2 and a new window of level 1 come in one step.
#[test]
fn a_step_may_begin_a_window_of_two_levels() {
    run(Geometry::TINY, 0, vec![Step::Set(0, 512), Step::Sleep(20)]);
}

/// Windows are counted from tick 0, however far away that tick is.
#[test]
fn a_wheel_may_stand_at_a_large_power_of_two() {
    for shift in [32, 42, 47] {
        let steps = vec![Step::Set(0, 3 << 22), Step::Set(1, 3 << 12), Step::Sleep(20)];
        run(Geometry::PRODUCTION, 1 << shift, steps);
    }
}

/// Entries moved by single ticks of a wheel that always has `timers` timers, spread evenly over
/// `horizon_ms`. The ticks begin shortly before a window of level 2.
struct Load {
    moved: u64,
    moved_max: u64,
    popped: u64,
}

fn load_of(timers: u32, horizon_ms: u64, ticks: u64) -> Load {
    let coarse_window = 4096 * 1024;
    let mut now = 100 * coarse_window - ticks / 2;
    let (mut links, mut wheel) = (Links::new(), Wheel::new(Geometry::PRODUCTION, Tick(now)));
    for slot in 0..timers {
        links.ensure(Slot(slot));
        wheel.insert(&mut links, Slot(slot), Tick(now + 1 + mix(slot.into()) % horizon_ms));
    }
    let mut load = Load { moved: 0, moved_max: 0, popped: 0 };
    let mut due = Vec::new();
    for _ in 0..ticks {
        now += 1;
        let advanced = wheel.advance(&mut links, Tick(now), usize::MAX, &mut due);
        assert!(advanced.caught_up);
        load.moved += advanced.moved;
        load.moved_max = load.moved_max.max(advanced.moved);
        load.popped += due.len() as u64;
        for slot in due.drain(..) {
            wheel.insert(&mut links, slot, Tick(now + horizon_ms));
        }
    }
    load
}

/// The counted promise of the wheel: beyond the slots that it pops, a tick moves at most twice as
/// many entries as the average tick, and one per level for rounding up.
#[test]
fn no_tick_moves_more_than_twice_the_average() {
    let (hour_ms, timers, ticks) = (3_600_000, 1_000_000, 60_000);
    for (horizon_ms, levels) in [(2_000, 0), (60_000, 1), (hour_ms, 1), (24 * hour_ms, 2)] {
        let load = load_of(timers, horizon_ms, ticks);
        let average = u64::from(timers) * levels / horizon_ms;
        assert!(load.popped > 0, "nothing came due");
        assert!(
            load.moved_max <= 2 * average + levels,
            "horizon {horizon_ms}: a tick moved {}, average {average}",
            load.moved_max
        );
        assert!(
            load.moved <= levels * 2 * (load.popped + u64::from(timers)),
            "moved once per level"
        );
    }
}

/// All timers are due at one tick. Their bucket of level 1 trickles down, and no tick takes it
/// whole.
#[test]
fn a_herd_trickles_down() {
    let (timers, after) = (100_000_u32, 1_000_000_u64);
    let (mut links, mut wheel) = (Links::new(), Wheel::new(Geometry::PRODUCTION, Tick(0)));
    for slot in 0..timers {
        links.ensure(Slot(slot));
        wheel.insert(&mut links, Slot(slot), Tick(after));
    }
    let (mut due, mut moved) = (Vec::new(), 0);
    for now in 1..after {
        let advanced = wheel.advance(&mut links, Tick(now), 256, &mut due);
        assert!(advanced.caught_up && due.is_empty());
        assert!(advanced.moved <= u64::from(timers).div_ceil(4096));
        moved += advanced.moved;
    }
    assert_eq!(moved, u64::from(timers), "each goes down a level once");
    for call in 1..=timers.div_ceil(256) {
        let advanced = wheel.advance(&mut links, Tick(after + u64::from(call)), 256, &mut due);
        assert_eq!(due.len(), timers.min(call * 256) as usize);
        assert_eq!(advanced.caught_up, call == timers.div_ceil(256));
    }
}

/// A core with a million far timers sleeps: it wakes seldom, and each wake moves few entries.
#[test]
fn far_timers_let_the_core_sleep() {
    let (timers, day_ms) = (200_000_u32, 24 * 3_600_000);
    let (mut links, mut wheel) = (Links::new(), Wheel::new(Geometry::PRODUCTION, Tick(0)));
    for slot in 0..timers {
        links.ensure(Slot(slot));
        wheel.insert(&mut links, Slot(slot), Tick(2 * day_ms + mix(slot.into()) % day_ms));
    }
    let (mut wakes, mut now, mut due) = (0, 0, Vec::new());
    while now < 2 * day_ms {
        now = wheel.next_wake().expect("timers are filed").0;
        let advanced = wheel.advance(&mut links, Tick(now), 256, &mut due);
        assert!(advanced.moved <= 512 + 64, "a wake moved {}", advanced.moved);
        wakes += 1;
    }
    // 64 ms lie between two wakes while a bucket is drained: 15.6 wakes a second.
    assert!(wakes <= 2 * day_ms / 64, "{wakes} wakes in two days");
    assert!(due.is_empty() || now >= 2 * day_ms);
}

/// A pause of hours with many timers is caught up in calls of bounded work, and the due slots come
/// in order.
#[test]
fn a_long_pause_is_caught_up_in_portions() {
    let (timers, hour_ms) = (100_000_u32, 3_600_000);
    let due_at = |slot: u32| 1 + mix(slot.into()) % (30 * hour_ms);
    let (mut links, mut wheel) = (Links::new(), Wheel::new(Geometry::PRODUCTION, Tick(0)));
    for slot in 0..timers {
        links.ensure(Slot(slot));
        wheel.insert(&mut links, Slot(slot), Tick(due_at(slot)));
    }
    let mut due = Vec::new();
    let caught_up = (0..2_000).any(|_| {
        let popped = due.len();
        let advanced = wheel.advance(&mut links, Tick(20 * hour_ms), 256, &mut due);
        assert!(due.len() - popped <= 256 && advanced.moved <= 2048 + 2 * 512);
        advanced.caught_up
    });
    assert!(caught_up, "2000 calls did not catch up");
    assert!(due.is_sorted_by_key(|slot| due_at(slot.0)));
    assert_eq!(due.len(), (0..timers).filter(|&slot| due_at(slot) <= 20 * hour_ms).count());
}

/// A century is exact to the millisecond, with and without sleep.
#[test]
fn a_hundred_years_are_exact() {
    for wake_by_wake in [false, true] {
        let (start, century) = (123_456_789, 100 * YEAR_MS);
        let (mut links, mut wheel) = (Links::new(), Wheel::new(Geometry::PRODUCTION, Tick(start)));
        links.ensure(Slot(0));
        wheel.insert(&mut links, Slot(0), Tick(start + century));
        let (mut due, mut wakes) = (Vec::new(), 0);
        while wake_by_wake && wheel.next_wake().expect("it is filed").0 < start + century {
            let wake = wheel.next_wake().expect("it is filed");
            wheel.advance(&mut links, wake, 1, &mut due);
            wakes += 1;
        }
        assert!(wakes < 1_000, "{wakes} wakes for one timer in a century");
        wheel.advance(&mut links, Tick(start + century - 1), 1, &mut due);
        assert!(due.is_empty());
        assert!(wheel.advance(&mut links, Tick(start + century), 1, &mut due).caught_up);
        assert_eq!(due, [Slot(0)]);
        assert_eq!(wheel.next_wake(), None);
    }
}

/// A re-arm to a later tick costs nothing until the old bucket comes, however often the slot is
/// re-armed.
#[test]
fn a_later_rearm_is_only_written_down() {
    let mut pair = Pair::new(Geometry::PRODUCTION, 0);
    pair.insert_or_rearm(0, 100);
    for due in 101..10_000 {
        pair.insert_or_rearm(0, due);
    }
    pair.now = 100;
    assert_eq!(pair.advance_once(1), Advanced { caught_up: true, moved: 1 });
    pair.now = 9_999;
    assert!(pair.advance_once(1).caught_up);
    assert!(pair.due_of.is_empty());
}

/// The planted bugs of this room do harm that a caller sees.
#[cfg(feature = "planted")]
mod planted {
    use super::*;
    use crate::base::planted::{Bug, plant};

    #[test]
    #[should_panic(expected = "is early")]
    fn filing_two_ahead_pops_early() {
        plant(Some(Bug::FileTwoAhead));
        run(Geometry::TINY, 0, vec![Step::Set(0, 10), Step::Sleep(20)]);
    }

    #[test]
    #[should_panic(expected = "entries are not drained")]
    fn draining_one_too_few_is_noticed() {
        plant(Some(Bug::DrainOneTooFew));
        run(Geometry::TINY, 0, vec![Step::Set(0, 40), Step::Sleep(40)]);
    }
}
