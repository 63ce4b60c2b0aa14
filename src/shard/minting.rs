//! The ids of new timers.

use crate::base::ids::TimerId;
use crate::base::time::{Now, WallMs};
use crate::timer::identity::Minter;

use super::ShardConfig;

/// Mints ids from the wall clock. When the wall clock steps back, the clock for ids goes on from
/// where it was: a clock that stood still would soon have no id left.
pub(super) struct Minting {
    minter: Minter,
    /// Most milliseconds that the wall clock was ever ahead of the monotonic one.
    wall_ahead_ms: u64,
}

impl Minting {
    pub fn new(config: &ShardConfig, now: Now) -> Self {
        let minter = Minter::new(config.instance, config.shards, config.own, now.wall)
            .salted(config.hash_seed);
        Self { minter, wall_ahead_ms: now.wall.0.saturating_sub(now.mono.tick_floor().0) }
    }

    /// A new id; `None`: as many are given out as a millisecond has.
    pub fn mint(&mut self, now: Now) -> Option<TimerId> {
        let mono_ms = now.mono.tick_floor().0;
        self.wall_ahead_ms = self.wall_ahead_ms.max(now.wall.0.saturating_sub(mono_ms));
        self.minter.mint(WallMs(mono_ms + self.wall_ahead_ms))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::*;
    use crate::base::time::{MonoNs, TICK_NS};
    use crate::cluster::view::View;
    use crate::shard::harness_tests::config;

    #[test]
    fn ids_go_on_and_stay_different_when_the_wall_clock_steps_back() {
        let now =
            |mono_ms: u64, wall_ms| Now { mono: MonoNs(mono_ms * TICK_NS), wall: WallMs(wall_ms) };
        let config = config(Arc::new(View::alone("node-0:7253")), 0);
        let mut minting = Minting::new(&config, now(1_000, 9_000_000));
        let mut ids = HashSet::new();
        for (mono_ms, wall_ms) in [(1_000, 9_000_000), (1_001, 5_000_000), (1_002, 5_000_001)] {
            for number in 0..4_000 {
                let id = minting.mint(now(mono_ms, wall_ms));
                assert!(id.is_some_and(|id| ids.insert(id)), "{mono_ms} {number}");
            }
        }
    }
}
