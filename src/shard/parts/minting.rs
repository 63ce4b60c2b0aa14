//! The ids of new timers.

// Reads the wall clock: ids 2.

use crate::base::ids::TimerId;
use crate::base::time::{Now, WallMs};
use crate::timer::identity::Minter;

/// Mints ids from the wall clock. When the wall clock steps back, the clock for ids goes on from
/// where it was: a clock that stood still would soon have no id left.
pub struct Minting {
    minter: Minter,
    /// The most milliseconds that the wall clock was ever ahead of the monotonic clock.
    wall_ahead_ms: u64,
}

impl Minting {
    /// Starts with the clocks as they stand.
    pub fn new(minter: Minter, now: Now) -> Self {
        Self { minter, wall_ahead_ms: now.wall.0.saturating_sub(now.mono.tick_floor().0) }
    }

    /// A new id; `None`: the ids of the millisecond are used up.
    pub fn mint(&mut self, now: Now) -> Option<TimerId> {
        let mono_ms = now.mono.tick_floor().0;
        self.wall_ahead_ms = self.wall_ahead_ms.max(now.wall.0.saturating_sub(mono_ms));
        self.minter.mint(WallMs(mono_ms + self.wall_ahead_ms))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::base::ids::{NodeInstance, ShardCount, ShardIndex};
    use crate::base::time::{MonoNs, TICK_NS};

    #[test]
    fn ids_go_on_and_stay_different_when_the_wall_clock_steps_back() {
        let now =
            |mono_ms: u64, wall_ms| Now { mono: MonoNs(mono_ms * TICK_NS), wall: WallMs(wall_ms) };
        let (shards, start) = (ShardCount::new(1), now(1_000, 9_000_000));
        let minter = Minter::new(NodeInstance::new(0, 0), shards, ShardIndex(0), start.wall);
        let mut minting = Minting::new(minter, start);
        let mut ids = HashSet::new();
        for (mono_ms, wall_ms) in [(1_000, 9_000_000), (1_001, 5_000_000), (1_002, 5_000_001)] {
            for number in 0..4_000 {
                let id = minting.mint(now(mono_ms, wall_ms));
                assert!(id.is_some_and(|id| ids.insert(id)), "{mono_ms} {number}");
            }
        }
    }
}
