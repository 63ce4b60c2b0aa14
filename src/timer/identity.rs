//! Ids of new timers: 42 bits of wall milliseconds (139 years), 10 bits of node instance, 12 bits
//! of counter.
//!
//! A shard mints only ids that it owns, so that a POST never leaves its core. The shards of a node
//! share the 4096 ids of each millisecond by ownership, without talking to each other.

use crate::base::ids::{NodeInstance, ShardCount, ShardIndex, TimerId};
use crate::base::limits::CLOCK_LEAD_MS_MAX;
use crate::base::time::WallMs;

const COUNTER_BITS: u32 = 12;
const IDS_PER_MS: u64 = 1 << COUNTER_BITS;
const WALL_BITS: u32 = 64 - COUNTER_BITS - NodeInstance::BITS;

/// Mints the ids of one shard.
#[derive(Clone, Debug)]
pub struct Minter {
    shards: ShardCount,
    own: ShardIndex,
    instance: NodeInstance,
    /// The millisecond of the next id. Under a burst it runs ahead of the wall clock.
    ms: u64,
    /// The counter of the next id in that millisecond.
    counter: u64,
    /// Exclusive-or of this number and the counter makes the counter bits of an id.
    salt: u64,
}

impl Minter {
    /// A minter that begins [`CLOCK_LEAD_MS_MAX`] ahead of the wall clock. An earlier process of
    /// this node mints at most twice as far ahead. So no id comes again unless that process had run
    /// to its limit and this process starts less than [`CLOCK_LEAD_MS_MAX`] after that process's
    /// last id.
    pub fn new(instance: NodeInstance, shards: ShardCount, own: ShardIndex, wall: WallMs) -> Self {
        Self { shards, own, instance, ms: wall.0 + CLOCK_LEAD_MS_MAX, counter: 0, salt: 0 }
    }

    /// Takes the ids of a millisecond in another order. Two processes that claim to be the same
    /// node then seldom mint the same id, as long as each mints few.
    pub fn salted(self, salt: u64) -> Self {
        Self { salt: salt & (IDS_PER_MS - 1), ..self }
    }

    /// A new id that this shard owns. `None`: this shard has used all of its ids in every
    /// millisecond up to 2 x [`CLOCK_LEAD_MS_MAX`] ahead of the wall clock. Cost: on average one
    /// hash per shard of the node.
    pub fn mint(&mut self, wall: WallMs) -> Option<TimerId> {
        if self.ms < wall.0 {
            (self.ms, self.counter) = (wall.0, 0);
        }
        loop {
            if self.counter == IDS_PER_MS {
                if self.ms >= wall.0 + 2 * CLOCK_LEAD_MS_MAX {
                    return None;
                }
                (self.ms, self.counter) = (self.ms + 1, 0);
            }
            let id = self.compose();
            self.counter += 1;
            if self.shards.owner(id) == self.own {
                return Some(id);
            }
        }
    }

    /// The wall millisecond in which a node minted an id. Of an id that a client chose it says
    /// nothing.
    pub fn minted_at(id: TimerId) -> WallMs {
        WallMs(id.0 >> (64 - WALL_BITS))
    }

    fn compose(&self) -> TimerId {
        let ms = self.ms & ((1 << WALL_BITS) - 1);
        let instance = u64::from(self.instance.get());
        let counter = self.counter ^ self.salt;
        TimerId(ms << (64 - WALL_BITS) | instance << COUNTER_BITS | counter)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn minters(shards: u16, wall: WallMs) -> Vec<Minter> {
        let count = ShardCount::new(shards);
        (0..shards)
            .map(|own| Minter::new(NodeInstance::new(5, 2), count, ShardIndex(own), wall))
            .collect()
    }

    #[test]
    fn shards_mint_distinct_ids_that_they_own() {
        let mut seen = HashSet::new();
        for (own, minter) in minters(16, WallMs(1_000_000)).iter_mut().enumerate() {
            for i in 0..2_000 {
                let id = minter.mint(WallMs(1_000_000 + i / 100)).expect("far below the limit");
                assert_eq!(usize::from(ShardCount::new(16).owner(id).0), own);
                assert!(Minter::minted_at(id) >= WallMs(1_000_000 + CLOCK_LEAD_MS_MAX));
                assert!(Minter::minted_at(id) <= WallMs(1_000_020 + CLOCK_LEAD_MS_MAX));
                assert!(seen.insert(id));
            }
        }
    }

    #[test]
    fn a_node_mints_at_least_4096_ids_in_every_millisecond() {
        let mut minted = [0_u64; 3];
        for (own, minter) in minters(3, WallMs(0)).iter_mut().enumerate() {
            while minter.mint(WallMs(0)).is_some() {
                minted[own] += 1;
            }
        }
        assert_eq!(minted.iter().sum::<u64>(), IDS_PER_MS * (CLOCK_LEAD_MS_MAX + 1));
    }

    #[test]
    fn a_restarted_process_never_mints_an_id_again() {
        let mut before = minters(1, WallMs(0)).remove(0);
        let mut last = TimerId(0);
        while let Some(id) = before.mint(WallMs(50_000)) {
            assert!(id > last);
            last = id;
        }
        let first_after =
            minters(1, WallMs(50_000 + CLOCK_LEAD_MS_MAX + 1)).remove(0).mint(WallMs(51_001));
        assert!(first_after.expect("fresh") > last);
    }

    #[test]
    fn a_salt_orders_the_same_ids_otherwise() {
        let mint = |salt| {
            let mut minter = minters(1, WallMs(0)).remove(0).salted(salt);
            let ids = (0..IDS_PER_MS).map(move |_| minter.mint(WallMs(2_000)).expect("fresh"));
            ids.collect::<Vec<_>>()
        };
        let (one, other) = (mint(0x1234_5678), mint(0x8765_4321));
        assert!(one.iter().zip(&other).all(|(one, other)| one != other));
        assert_eq!(one.iter().collect::<HashSet<_>>(), other.iter().collect::<HashSet<_>>());
    }

    #[test]
    fn ids_do_not_fall_when_the_wall_clock_steps_back() {
        let mut minter = minters(1, WallMs(9_000_000)).remove(0);
        let first = minter.mint(WallMs(9_000_000)).expect("fresh");
        let second = minter.mint(WallMs(8_999_900)).expect("fresh");
        assert!(second > first);
    }

    #[test]
    fn every_bit_of_a_salt_below_the_ids_of_a_millisecond_counts() {
        let first = |salt: u64| {
            let minter = minters(1, WallMs(0)).remove(0);
            minter.salted(salt).mint(WallMs(0)).expect("the first of many")
        };
        let bits = (0..IDS_PER_MS.ilog2()).map(|bit| first(1 << bit));
        let mut seen: HashSet<TimerId> = bits.collect();
        seen.insert(first(0));
        assert_eq!(seen.len(), IDS_PER_MS.ilog2() as usize + 1);
        assert_eq!(first(IDS_PER_MS), first(0));
    }
}
