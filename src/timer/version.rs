//! Versions and the one merge rule (architecture section 4).
//!
//! Every client write gets a version from a hybrid logical clock: never below the wall clock's
//! millisecond, always above every version seen before, distinct between nodes. A state is keyed by
//! (version, sequence); the higher key wins. So merge is commutative, associative and idempotent in
//! whatever order messages arrive.

use crate::base::ids::NodeInstance;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::WallMs;

const COUNTER_BITS: u32 = 12;

/// When and where a write was accepted: 42 bits of wall milliseconds, 12 bits of counter, 10 bits
/// of node instance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Version(pub u64);

impl Version {
    /// The wall millisecond in it.
    pub const fn wall(self) -> WallMs {
        WallMs(self.0 >> (COUNTER_BITS + NodeInstance::BITS))
    }

    /// The least version of a wall millisecond: for a timer of a node that sends none (compat
    /// section 4), derived from its start.
    pub const fn at(wall: WallMs) -> Self {
        Self(wall.0 << (COUNTER_BITS + NodeInstance::BITS))
    }
}

/// What a state is compared by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StateKey {
    /// The write that made it.
    pub version: Version,
    /// Pops done since.
    pub sequence: u64,
}

/// Whether a state with key `incoming` replaces the one held. Equal keys are the same state:
/// nothing to do.
pub fn supersedes(incoming: StateKey, held: Option<StateKey>) -> bool {
    if is_planted(Bug::AcceptLowerVersion) {
        return true;
    }
    held.is_none_or(|held| incoming > held)
}

/// A hybrid logical clock: one per shard, so versions of one timer come from one clock in their
/// node.
#[derive(Clone, Debug)]
pub struct HybridClock {
    /// Milliseconds and counter of the last version given out or seen.
    last: u64,
    instance: NodeInstance,
}

impl HybridClock {
    /// A clock that has given out nothing.
    pub fn new(instance: NodeInstance) -> Self {
        Self { last: 0, instance }
    }

    /// Goes on above a version that another node gave out, whose wall time was checked before: one
    /// far ahead would drag every later version with it.
    pub fn observe(&mut self, version: Version) {
        self.last = self.last.max(version.0 >> NodeInstance::BITS);
    }

    /// A version above every earlier one of this clock and above `held`, the version it is to
    /// replace.
    pub fn assign(&mut self, wall: WallMs, held: Option<Version>) -> Version {
        let seen = held.map_or(0, |held| held.0 >> NodeInstance::BITS);
        self.last = (wall.0 << COUNTER_BITS).max(self.last + 1).max(seen + 1);
        Version(self.last << NodeInstance::BITS | u64::from(self.instance.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(version: u64, sequence: u64) -> StateKey {
        StateKey { version: Version(version), sequence }
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
        let mut clock = HybridClock::new(NodeInstance::new(3, 1));
        let mut last = Version(0);
        for wall in [1_000_000, 1_000_000, 999_000, 0, 1_000_001] {
            for _ in 0..5_000 {
                let next = clock.assign(WallMs(wall), None);
                assert!(next > last);
                last = next;
            }
        }
    }

    #[test]
    fn a_version_is_above_the_one_it_replaces_even_from_a_faster_clock() {
        let mut fast = HybridClock::new(NodeInstance::new(9, 0));
        let mut slow = HybridClock::new(NodeInstance::new(1, 0));
        let held = fast.assign(WallMs(5_000), None);
        assert!(slow.assign(WallMs(10), Some(held)) > held);
        assert_eq!(held.wall(), WallMs(5_000));
    }

    #[test]
    fn versions_of_two_nodes_in_one_millisecond_differ() {
        let a = HybridClock::new(NodeInstance::new(1, 0)).assign(WallMs(7), None);
        let b = HybridClock::new(NodeInstance::new(2, 0)).assign(WallMs(7), None);
        assert_ne!(a, b);
    }
}
