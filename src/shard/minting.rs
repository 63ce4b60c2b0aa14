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
