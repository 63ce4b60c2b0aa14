//! The placements of timers: which nodes hold a timer, in which order, and which of them act. A
//! placement is kept once for all timers that have it. A cluster of N nodes has at most N!/(N-f)!
//! lists of f nodes, and few masks at a time.

// May panic: expectations 1, indices 8.
// Why it does not: places 9.

use ahash::RandomState;
use hashbrown::HashTable;

use crate::base::limits::RANK_DELAY_MS;
use crate::base::ranked::{Replicas, Sites};

/// A place in the table of placements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacementId(u32);

impl PlacementId {
    /// The number of the place. Numbers are small. A number is given to another placement when no
    /// timer has this one.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The nodes that hold a timer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Placement {
    pub replicas: Replicas,
    pub sites: Sites,
    /// The factor that the client asked for. The list is shorter when the cluster is smaller.
    pub factor: u8,
    /// The mask: ranks that pop in their order.
    pub actives: u16,
    /// Ranks outside of `actives` that hold the timer, as far as this node knows. They act after
    /// the next pop.
    pub confirmed: u16,
    /// Rank of this node; `None`: this node is not to hold the timer.
    pub own: Option<u8>,
    /// Sites ahead of this one.
    pub sites_ahead: u8,
}

impl Placement {
    /// How much later than due this node pops.
    pub fn delay_ms(&self, promotion: bool) -> u64 {
        self.delay_of(self.own, promotion)
    }

    /// How much later than due the node with a rank pops; `None`: a node that is not on the list.
    pub fn delay_of(&self, rank: Option<u8>, promotion: bool) -> u64 {
        let all = u32::from(self.replicas.len());
        let ahead = match rank {
            None => all,
            // A passive rank waits behind all acting ranks and behind the passive ranks before it.
            // If no rank of this list acts, it waits behind as many former holders as the list is
            // long.
            Some(own) if self.actives >> own & 1 == 0 => {
                let passives_below = !self.actives & ((1 << own) - 1);
                let acting =
                    if promotion && self.actives != 0 { self.actives.count_ones() } else { all };
                acting + passives_below.count_ones()
            }
            Some(own) if promotion => (self.actives & ((1 << own) - 1)).count_ones(),
            Some(own) => u32::from(own),
        };
        u64::from(ahead) * RANK_DELAY_MS + self.delay_of_sites_ms()
    }

    /// How much of the delay is for the sites ahead.
    pub fn delay_of_sites_ms(&self) -> u64 {
        u64::from(self.sites_ahead) * u64::from(self.factor) * RANK_DELAY_MS
    }

    /// Ranks behind this node that act.
    pub fn actives_behind(&self) -> u16 {
        let Some(own) = self.own else { return 0 };
        if self.actives >> own & 1 == 0 { 0 } else { self.actives & !(((2_u32 << own) - 1) as u16) }
    }

    /// Whether sites behind this one hold the timer, too.
    pub fn has_sites_behind(&self) -> bool {
        self.sites_ahead + 1 < self.sites.len()
    }
}

#[derive(Debug)]
struct Entry {
    placement: Placement,
    timers: u64,
    /// Whether this node is the first to pop, as far as it knows which nodes live; `None`: not
    /// looked at yet.
    is_first: Option<bool>,
}

/// All placements of a shard.
#[derive(Debug)]
pub(super) struct Placements {
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_placement: HashTable<u32>,
    hasher: RandomState,
    /// The placement found last: timers of one kind come in rows.
    last: u32,
}

impl Placements {
    pub fn new(hash_seed: u64) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_placement: HashTable::new(),
            hasher: RandomState::with_seeds(hash_seed, !hash_seed, hash_seed.rotate_left(29), 13),
            last: 0,
        }
    }

    pub fn get(&self, id: PlacementId) -> &Placement {
        &self.entries[id.0 as usize].placement
    }

    /// The placement with that number.
    pub fn numbered(&self, number: u32) -> &Placement {
        &self.entries[number as usize].placement
    }

    /// Counts one more timer that has the placement. Returns the place of the placement.
    pub fn enter(&mut self, placement: &Placement) -> PlacementId {
        let place = self.find_or_insert(placement);
        self.entries[place as usize].timers += 1;
        self.last = place;
        PlacementId(place)
    }

    /// Counts one timer fewer that has the placement.
    pub fn leave(&mut self, id: PlacementId) {
        let entry = &mut self.entries[id.0 as usize];
        entry.timers -= 1;
        if entry.timers > 0 {
            return;
        }
        let hash = self.hasher.hash_one(entry.placement);
        let found = self.by_placement.find_entry(hash, |&place| place == id.0);
        found.expect("every placement in use is in the table").remove();
        self.free.push(id.0);
    }

    /// Whether this node is the first to pop; `None`: nobody has looked.
    #[inline]
    pub fn first_of(&self, id: PlacementId) -> Option<bool> {
        self.entries[id.0 as usize].is_first
    }

    /// Keeps whether this node is the first to pop.
    pub fn note_first(&mut self, id: PlacementId, is_first: bool) {
        self.entries[id.0 as usize].is_first = Some(is_first);
    }

    /// Forgets of all placements whether this node is the first to pop.
    pub fn forget_firsts(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.is_first = None);
    }

    /// Timers and tombstones, over all placements.
    pub fn timers(&self) -> u64 {
        self.entries.iter().map(|entry| entry.timers).sum()
    }

    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    fn find_or_insert(&mut self, placement: &Placement) -> u32 {
        if let Some(last) = self.entries.get(self.last as usize)
            && last.timers > 0
            && last.placement == *placement
        {
            return self.last;
        }
        let entries = &self.entries;
        let hash = self.hasher.hash_one(placement);
        let same = |&place: &u32| entries[place as usize].placement == *placement;
        if let Some(&place) = self.by_placement.find(hash, same) {
            return place;
        }
        let entry = Entry { placement: *placement, timers: 0, is_first: None };
        let place = self.free.pop().unwrap_or(self.entries.len() as u32);
        match self.entries.get_mut(place as usize) {
            Some(free) => *free = entry,
            None => self.entries.push(entry),
        }
        let (entries, hasher) = (&self.entries, &self.hasher);
        let rehash = |&place: &u32| hasher.hash_one(entries[place as usize].placement);
        self.by_placement.insert_unique(hash, place, rehash);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{NodeHash, SiteHash};

    fn placement(nodes: u8, actives: u16, own: Option<u8>) -> Placement {
        Placement {
            replicas: (0..nodes).map(|node| NodeHash(node.into())).collect(),
            sites: Sites::new(),
            factor: nodes,
            actives,
            confirmed: 0,
            own,
            sites_ahead: 0,
        }
    }

    #[test]
    fn ranks_wait_for_those_that_act_before_them() {
        let delays = |actives, promotion| {
            [0, 1, 2].map(|own| placement(3, actives, Some(own)).delay_ms(promotion) / 1_000)
        };
        assert_eq!(delays(0b111, true), [0, 2, 4]);
        assert_eq!(delays(0b110, true), [4, 0, 2], "a holder that does not act is behind all");
        assert_eq!(delays(0b100, true), [2, 4, 0], "no two at one time");
        assert_eq!(delays(0, true), [6, 8, 10], "those of the former list act");
        assert_eq!(delays(0b111, false), [0, 2, 4]);
        assert_eq!(delays(0b110, false), [6, 2, 4]);
        assert_eq!(placement(3, 0b111, None).delay_ms(true), 6_000);
        let elsewhere = Placement { sites_ahead: 2, ..placement(2, 0b11, Some(1)) };
        assert_eq!(elsewhere.delay_ms(true), (1 + 2 * 2) * 2_000);
    }

    #[test]
    fn those_behind_are_the_higher_ranks_that_act() {
        assert_eq!(placement(3, 0b111, Some(0)).actives_behind(), 0b110);
        assert_eq!(placement(3, 0b011, Some(1)).actives_behind(), 0);
        assert_eq!(placement(3, 0b110, Some(0)).actives_behind(), 0, "it does not act itself");
        assert_eq!(placement(16, u16::MAX, Some(15)).actives_behind(), 0);
    }

    #[test]
    fn sites_behind_are_those_after_this_one() {
        let sites = |count: u32, ahead: u8| Placement {
            sites: (0..count).map(SiteHash).collect(),
            sites_ahead: ahead,
            ..placement(1, 1, Some(0))
        };
        assert!(sites(2, 0).has_sites_behind() && sites(3, 1).has_sites_behind());
        assert!(!sites(2, 1).has_sites_behind() && !sites(3, 2).has_sites_behind());
        assert!(!sites(0, 0).has_sites_behind(), "it is not replicated across sites");
    }

    #[test]
    fn one_entry_serves_all_timers_of_a_kind_and_is_given_back() {
        let mut table = Placements::new(7);
        let one = placement(2, 0b11, Some(0));
        let two = placement(2, 0b10, Some(1));
        let first = table.enter(&one);
        assert_eq!(table.enter(&one), first);
        let second = table.enter(&two);
        assert_ne!(second, first);
        assert_eq!(*table.get(second), two);
        table.leave(first);
        table.leave(first);
        assert_eq!(table.enter(&two), second);
        assert_eq!(table.enter(&placement(3, 1, None)), first, "its place is used again");
        assert_eq!(table.timers(), 3);
    }
}
