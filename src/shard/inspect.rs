//! A look at what a shard holds, for the simulator and tests. Changes nothing.

use crate::base::ids::{Slot, TimerId};
use crate::base::ranked::{Replicas, Sites};
use crate::timer::version::Version;

use super::Shard;
use super::records::State;

/// What is held of one timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The write that made the state.
    pub version: Version,
    /// Pops done.
    pub sequence: u64,
    /// Whether the record is a timer, not a tombstone.
    pub is_live: bool,
    /// Whether the record is a dead letter.
    pub is_parked: bool,
    /// How many nodes are meant to hold the timer.
    pub factor: u8,
    /// The nodes that are to hold the timer.
    pub replicas: Replicas,
    /// The mask: ranks that pop in their order.
    pub actives: u16,
    /// The sites that hold the timer, the one that pops first.
    pub sites: Sites,
}

impl Shard {
    /// Checks that slab, index, wheel, hosts and tag counts agree, see `records/audit.rs`. The
    /// error names the first disagreement. Cost: every record.
    pub fn audit(&self) -> Result<(), String> {
        self.records.audit(&self.peers, self.counters.in_flight)
    }

    /// What is held of a timer. Cost: one lookup.
    pub fn held(&self, id: TimerId) -> Option<Held> {
        let record = self.records.get(self.find(id)?);
        let placement = self.records.placement_of(record);
        Some(Held {
            version: record.version,
            sequence: record.sequence,
            is_live: record.is_live(),
            is_parked: record.state == State::Parked,
            factor: placement.factor,
            replicas: placement.replicas,
            actives: placement.actives,
            sites: placement.sites,
        })
    }

    /// Timers held, tombstones left out. Cost: every record.
    pub fn live_ids(&self) -> impl Iterator<Item = TimerId> {
        let records = self.records.occupied_from(Slot(0)).map(|slot| self.records.get(slot));
        records.filter(|record| record.is_live()).map(|record| record.id)
    }
}
