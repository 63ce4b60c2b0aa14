//! Versions, and the one rule for merges.
//!
//! Every client write gets a version from a hybrid logical clock. A version is never below the wall
//! clock's millisecond, lies above every version that the clock has learnt, and differs from the
//! versions of other nodes. The key of a state is (version, sequence), and the higher key wins. So
//! merges are commutative, associative and idempotent, in whatever order messages arrive.

use crate::base::ids::NodeInstance;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::WallMs;

const COUNTER_BITS: u32 = 12;
/// By how much the counter of a version rises with a pop that makes another state.
const POP_STEP: u64 = 64;

/// How far behind the clock of another site a clock may be that follows it. Less would follow what
/// clocks that are set by NTP differ by.
pub const FOLLOWS_BY_MS: u64 = 500;

/// When and where a write was accepted: 42 bits of wall milliseconds, 12 bits of counter, 10 bits
/// of node instance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Version(pub u64);

impl Version {
    /// The latest wall millisecond that a version may have: about a year before the end of the
    /// bits. A version beyond it is refused, so that a later version exists for every state that a
    /// node holds.
    pub const WALL_MAX: WallMs =
        WallMs((1 << (64 - COUNTER_BITS - NodeInstance::BITS)) - (1 << 35));

    /// Whether the version lies beyond [`Version::WALL_MAX`]: no clock can have given it out.
    pub fn is_impossible(self) -> bool {
        self.wall() > Self::WALL_MAX
    }

    /// The wall millisecond of the version.
    pub const fn wall(self) -> WallMs {
        WallMs(self.0 >> (COUNTER_BITS + NodeInstance::BITS))
    }

    /// Whether a clock of this instance gave the version out.
    pub fn is_of(self, instance: NodeInstance) -> bool {
        self.0 & ((1 << NodeInstance::BITS) - 1) == u64::from(instance.get())
    }

    /// The version of a write from a node that sends no version (docs/compat/timer-service.md §4):
    /// the least version in the wall millisecond of the timer's start, which that node tells all
    /// nodes alike. A clock never gives out such a version.
    pub const fn of_start(wall: WallMs) -> Self {
        Self(wall.0 << (COUNTER_BITS + NodeInstance::BITS))
    }

    /// Whether [`Version::of_start`] made the version.
    pub const fn is_of_start(self) -> bool {
        self.0 & ((1 << (COUNTER_BITS + NodeInstance::BITS)) - 1) == 0
    }
}

/// By what states of a timer compare: first the version, then the sequence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StateKey {
    /// The write that made the state.
    pub version: Version,
    /// How many pops are done since the write.
    pub sequence: u64,
}

impl StateKey {
    /// The key of these numbers, as a message has them.
    pub fn of(version: u64, sequence: u64) -> Self {
        Self { version: Version(version), sequence }
    }
}

/// Whether a state with key `incoming` replaces the held state. Equal keys are the same state, so
/// nothing is replaced.
pub fn supersedes(incoming: StateKey, held: Option<StateKey>) -> bool {
    if is_planted(Bug::AcceptLowerVersion) {
        return true;
    }
    held.is_none_or(|held| incoming > held)
}

/// A hybrid logical clock. A shard has one, so within a node all versions of a timer come from one
/// clock.
///
/// The clock learns only versions that are at most `skew_max_ms` ahead of the wall clock. A timer
/// can have a version further ahead: from a node whose clock is wrong, or from this node before its
/// clock was set back. Such a timer gets a later version for its own writes, but the clock does not
/// follow, so the versions of other timers stay near the wall clock.
///
/// Sites order writes by their wall clocks, and nobody knows which of two sites is right. So the
/// clock of the site that is behind is raised until it is [`FOLLOWS_BY_MS`] behind the other one
/// ([`HybridClock::follow`]): whichever is wrong, a write through one site decides nothing about a
/// write that the other takes more than that later.
#[derive(Clone, Debug)]
pub struct HybridClock {
    /// Milliseconds and counter of the last version within the bound that this clock gave out or
    /// learnt.
    last: u64,
    /// Milliseconds and counter of the last version beyond the bound that this clock gave out.
    far: u64,
    /// How far this node's wall clock counts as ahead of what it shows.
    raised_ms: u64,
    skew_max_ms: u64,
    instance: NodeInstance,
}

impl HybridClock {
    /// A clock that has given out no version.
    pub fn new(instance: NodeInstance, skew_max_ms: u64) -> Self {
        Self { last: 0, far: 0, raised_ms: 0, skew_max_ms, instance }
    }

    /// Takes how far the wall clock of another site is ahead of this node's.
    pub fn follow(&mut self, ahead_ms: u64) {
        self.raised_ms = ahead_ms.saturating_sub(FOLLOWS_BY_MS);
    }

    /// What the wall clock counts as.
    fn raised(&self, wall: WallMs) -> WallMs {
        WallMs(wall.0.saturating_add(self.raised_ms)).min(Version::WALL_MAX)
    }

    /// Learns a version that another node gave out: later versions lie above it. A version further
    /// ahead than the bound is ignored.
    pub fn observe(&mut self, wall: WallMs, version: Version) {
        if !self.is_far(wall, version) || is_planted(Bug::LearnFutureVersion) {
            self.last = self.last.max(version.0 >> NodeInstance::BITS);
        }
    }

    /// Whether a version is so far ahead of the wall clock that no clock learns it.
    pub fn is_far(&self, wall: WallMs, version: Version) -> bool {
        version.0 >> NodeInstance::BITS > self.bound(self.raised(wall))
    }

    /// A new version above `held`, the version to replace. It differs from every version that this
    /// clock gave out before. As long as the wall clock is not set back, it also lies above every
    /// version that this clock has learnt.
    pub fn assign(&mut self, wall: WallMs, held: Option<Version>) -> Version {
        let wall = self.raised(wall);
        let bound = self.bound(wall);
        if self.last > bound && !is_planted(Bug::LearnFutureVersion) {
            // The wall clock was set back, so this clock is set back, too. `far` keeps the versions
            // that were given out from being given out again.
            self.far = self.far.max(self.last);
            self.last = 0;
        }
        if self.far <= bound {
            self.last = self.last.max(self.far);
        }
        let seen = held.map_or(0, |held| held.0 >> NodeInstance::BITS);
        let near = (wall.0 << COUNTER_BITS).max(self.last + 1);
        let next = if seen < bound || is_planted(Bug::LearnFutureVersion) {
            self.last = of_no_start(near.max(seen + 1));
            self.last
        } else {
            self.far = of_no_start(self.far.max(seen) + 1);
            self.far
        };
        Version(next << NodeInstance::BITS | u64::from(self.instance.get()))
    }

    /// The least version of this node above `held`, for a state that follows from the one of `held`
    /// and from no client's write: such writes made since lie above it, if they were not made
    /// within the same millisecond.
    pub fn just_above(&self, held: Version) -> Version {
        let next = of_no_start((held.0 >> NodeInstance::BITS) + 1);
        Version(next << NodeInstance::BITS | u64::from(self.instance.get()))
    }

    /// The version of this node for the state that follows a pop of the state of `held`, where that
    /// is another state: see [`HybridClock::just_above`]. It lies above all states that were made
    /// from `held` without a pop, a few dozen at most, so that a pop that was made stays made.
    /// There is room for 64 pops a millisecond.
    pub fn after_pop(&self, held: Version) -> Version {
        let next = of_no_start((held.0 >> NodeInstance::BITS) + POP_STEP);
        Version(next << NodeInstance::BITS | u64::from(self.instance.get()))
    }

    /// Milliseconds and counter of the latest version that this clock learns at `wall`, raised.
    fn bound(&self, wall: WallMs) -> u64 {
        let latest_ms = wall.0.saturating_add(self.skew_max_ms).min(Version::WALL_MAX.0);
        latest_ms << COUNTER_BITS | ((1 << COUNTER_BITS) - 1)
    }
}

/// The least milliseconds and counter from `next` on whose counter is not 0. The counter 0 belongs
/// to [`Version::of_start`].
fn of_no_start(next: u64) -> u64 {
    next + u64::from(next.is_multiple_of(1 << COUNTER_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(version: u64, sequence: u64) -> StateKey {
        StateKey { version: Version(version), sequence }
    }

    fn clock(instance: u8) -> HybridClock {
        HybridClock::new(NodeInstance::new(instance, 0), 60_000)
    }

    fn merge(held: Option<StateKey>, incoming: StateKey) -> Option<StateKey> {
        if supersedes(incoming, held) { Some(incoming) } else { held }
    }

    #[test]
    fn merge_is_commutative_associative_idempotent_on_all_of_a_small_domain() {
        let all: Vec<_> = (0..4).flat_map(|v| (0..4).map(move |s| key(v, s))).collect();
        for &a in &all {
            assert_eq!(merge(merge(None, a), a), Some(a));
            for &b in &all {
                assert_eq!(merge(merge(None, a), b), merge(merge(None, b), a));
                for &c in &all {
                    let left = merge(merge(merge(None, a), b), c);
                    let right = merge(
                        merge(None, a),
                        merge(merge(None, b), c).expect("two states merge to one"),
                    );
                    assert_eq!(left, right);
                }
            }
        }
    }

    #[test]
    fn versions_rise_when_the_wall_clock_stands_or_steps_back() {
        let mut clock = clock(3);
        let mut last = Version(0);
        for wall in [1_000_000, 1_000_000, 999_000, 950_000, 1_000_001] {
            for _ in 0..5_000 {
                let next = clock.assign(WallMs(wall), None);
                assert!(next > last);
                last = next;
            }
        }
    }

    #[test]
    fn a_clock_learns_nothing_beyond_the_bound_and_returns_when_the_wall_clock_does() {
        let (now, ahead) = (WallMs(1_000_000), WallMs(4_600_000));
        let (mut wrong, mut right) = (clock(1), clock(2));
        let far = wrong.assign(ahead, None);
        assert!(right.is_far(now, far));
        right.observe(now, far);
        assert_eq!(right.assign(now, None).wall(), now);
        let above = right.assign(now, Some(far));
        assert!(above > far, "a timer that has it is written all the same");
        assert!(right.assign(now, Some(far)) > above, "and no version is given out twice");
        assert_eq!(right.assign(now, None).wall(), now, "no other timer is dragged along");
        assert_eq!(wrong.assign(now, None).wall(), now, "repaired");
        let again = wrong.assign(ahead, None);
        assert!(again > far, "nor is it when the wall clock is there once more");
        let latest = Version::of_start(WallMs(now.0 + 60_000));
        assert!(!right.is_far(now, latest));
        right.observe(now, latest);
        assert!(right.assign(now, None) > latest, "the bound itself is learnt");
        assert!(right.is_far(now, Version::of_start(WallMs(now.0 + 60_001))));
    }

    /// Site A is right, site B five minutes ahead. Nobody knows which one is wrong.
    #[test]
    fn a_wrong_clock_of_another_site_decides_nothing_beyond_half_a_second() {
        let (here, there) = (WallMs(1_000_000), WallMs(1_300_000));
        let (mut right, mut wrong) = (clock(1), clock(2));
        right.follow(there.0 - here.0);
        let first = wrong.assign(there, None);
        assert!(!right.is_far(here, first), "what the site tells is learnt");
        let at_once = right.assign(here, None);
        assert!(at_once < first, "two writes at one moment: the clocks decide");
        let later = right.assign(WallMs(here.0 + FOLLOWS_BY_MS + 1), None);
        assert!(later > first, "the later write is the later one");
        // The other way round nothing is raised.
        wrong.follow(0);
        assert_eq!(wrong.assign(WallMs(there.0 + 10), None).wall(), WallMs(there.0 + 10));
        // The clock is repaired: versions are near the wall clock again, and none is repeated.
        right.follow(0);
        let repaired = right.assign(WallMs(here.0 + 3_000), None);
        assert_eq!(repaired.wall(), WallMs(here.0 + 3_000));
        assert!(right.assign(WallMs(here.0 + 3_000), Some(later)) > later);
        right.follow(u64::MAX);
        assert!(!right.assign(here, None).is_impossible(), "nonsense is survived");
        right.follow(FOLLOWS_BY_MS);
        let near = WallMs(here.0 + 9_000);
        assert_eq!(right.assign(near, None).wall(), near, "what clocks differ by is not followed");
    }

    /// Sites tell their wall clocks as these show, not as they count, and learn each other's
    /// versions. So they do not drive each other on: no version is later than the latest that any
    /// wall clock has shown, however often they hear each other, and whoever is set right.
    #[test]
    fn sites_that_follow_each_other_do_not_rise_without_end() {
        for wrong_ms in [30_000, 100_000, 3_600_000] {
            let mut clocks = [clock(1), clock(2), clock(3)];
            let mut highest = 0;
            for round in 0..6_000 {
                let now_ms = 1_000_000 + round * 100;
                let is_wrong = (1_000..3_000).contains(&round);
                let walls = [0, 400, if is_wrong { wrong_ms } else { 0 }].map(|ms| now_ms + ms);
                let latest = walls[1].max(walls[2]);
                highest = latest.max(highest);
                for at in [0, 1, 2] {
                    clocks[at].follow(latest - walls[at]);
                    let version = clocks[at].assign(WallMs(walls[at]), None);
                    assert!(version.wall().0 <= highest + 1, "{wrong_ms} {round} {at}");
                    let is_just_right = round == 3_000 && wrong_ms > 60_000;
                    assert!(!is_just_right || version.wall().0 <= latest + 1, "{wrong_ms} {at}");
                    for other in [0, 1, 2] {
                        clocks[other].observe(WallMs(walls[other]), version);
                    }
                }
            }
        }
    }

    #[test]
    fn every_version_that_is_held_can_be_superseded() {
        let last = Version(Version::of_start(WallMs(Version::WALL_MAX.0 + 1)).0 - 1);
        assert!(!last.is_impossible());
        assert!(Version(last.0 + 1).is_impossible());
        assert!(Version(u64::MAX).is_impossible());
        for wall in [WallMs(0), Version::WALL_MAX, WallMs(u64::MAX)] {
            let mut clock = clock(1);
            let first = clock.assign(wall, None);
            assert!(clock.assign(wall, Some(last)) > last);
            assert!(clock.assign(wall, None) > first);
            clock.assign(wall, Some(Version(u64::MAX)));
        }
    }

    #[test]
    fn a_wall_millisecond_is_read_as_it_was_written() {
        assert_eq!(Version::of_start(WallMs(1_234)).wall(), WallMs(1_234));
        assert_eq!(Version::of_start(WallMs(1)).0, 1 << 22);
        let first = Version(Version::of_start(WallMs(5)).0 | 1 << NodeInstance::BITS | 1);
        assert_eq!(clock(1).assign(WallMs(5), None), first);
    }

    #[test]
    fn a_version_is_above_the_one_it_replaces_even_from_a_faster_clock() {
        let mut fast = clock(9);
        let mut slow = clock(1);
        let held = fast.assign(WallMs(5_000), None);
        assert!(slow.assign(WallMs(10), Some(held)) > held);
        assert_eq!(held.wall(), WallMs(5_000));
    }

    #[test]
    fn the_version_of_a_start_is_below_all_that_clocks_give_out_in_its_millisecond() {
        let of_start = Version::of_start(WallMs(7));
        assert_eq!((of_start.wall(), of_start.is_of_start()), (WallMs(7), true));
        let mut clock = clock(0);
        let mut wall = WallMs(0);
        // Twice as many versions as a millisecond has counters.
        for given in 0..10_000 {
            let version = clock.assign(WallMs(7), None);
            assert!(!version.is_of_start(), "{given}");
            assert!(version > Version::of_start(version.wall()), "{given}");
            assert!(version.wall() >= wall, "{given}");
            wall = version.wall();
        }
        assert!(wall > WallMs(7));
    }

    #[test]
    fn a_clock_goes_on_above_what_it_has_seen() {
        let seen = clock(5).assign(WallMs(9_000), None);
        let mut clock = clock(1);
        clock.observe(WallMs(10), seen);
        assert!(clock.assign(WallMs(10), None) > seen);
        clock.observe(WallMs(10), Version::of_start(WallMs(3)));
        assert!(clock.assign(WallMs(10), None) > seen, "what is older changes nothing");
    }

    #[test]
    fn versions_of_two_nodes_in_one_millisecond_differ() {
        let a = clock(1).assign(WallMs(7), None);
        let b = clock(2).assign(WallMs(7), None);
        assert_ne!(a, b);
    }

    #[test]
    fn a_pop_lies_above_what_was_made_without_it_and_below_a_later_write() {
        let mut clock = clock(1);
        let held = clock.assign(WallMs(1_000), None);
        let replanned = (0..20).fold(held, |version, _| clock.just_above(version));
        let popped = clock.after_pop(held);
        assert!(popped > replanned);
        let many = (0..60).fold(held, |version, _| clock.after_pop(version));
        assert!(many > popped && many < clock.assign(WallMs(1_002), None));
    }
}
