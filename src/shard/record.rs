//! One timer as the slab holds it: 64 bytes; with 16 bytes of links and about 8 of index that is 88
//! bytes and the payload.

use crate::base::ids::{HostId, TimerId};
use crate::base::limits::HOSTS_PER_CORE_MAX;
use crate::base::time::Tick;
use crate::store::payloads::PayloadRef;
use crate::timer::schedule::Schedule;
use crate::timer::version::{StateKey, Version};

use super::placements::PlacementId;

/// Where a record is in its life; says in which list its slot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum State {
    /// Waits for its next pop, in the wheel.
    Armed,
    /// Due, waits for a place at its host, in the host's list.
    Ready,
    /// Its callback runs; in no list.
    InFlight,
    /// Its callback failed or its host is in trouble; waits for the next attempt, in the wheel.
    BackingOff,
    /// Its callback failed here and the next rank is to try; waits, in the wheel, for the news that
    /// it did, or for the moment at which the pop is given up.
    HandedOver,
    /// Deleted or popped for the last time; waits for its end, in the wheel.
    Tombstone,
}

impl State {
    /// The states of a timer that has pops left.
    pub const LIVE: [State; 5] =
        [State::Armed, State::Ready, State::InFlight, State::BackingOff, State::HandedOver];
    /// The states in which a slot is in the wheel.
    pub const FILED: [State; 4] =
        [State::Armed, State::BackingOff, State::HandedOver, State::Tombstone];
}

/// A timer or a tombstone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub id: TimerId,
    pub version: Version,
    pub start: Tick,
    pub interval_ms: u64,
    pub repeat_for_ms: u64,
    /// Pops done.
    pub sequence: u64,
    pub payload: PayloadRef,
    /// Who holds it, and in which order they act.
    pub placement: PlacementId,
    /// Meaningless in a tombstone.
    pub host: HostId16,
    pub state: State,
    /// Failed attempts at the present pop.
    pub attempts: u8,
}

/// A [`HostId`] in two bytes: a shard knows at most [`HOSTS_PER_CORE_MAX`] hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HostId16(u16);

const _: () = assert!(HOSTS_PER_CORE_MAX < u16::MAX as u32, "a host's number fits two bytes");

impl HostId16 {
    /// No host: a tombstone's.
    pub const NONE: HostId16 = HostId16(u16::MAX);
}

impl From<HostId> for HostId16 {
    fn from(host: HostId) -> Self {
        Self(u16::try_from(host.0).expect("at most HOSTS_PER_CORE_MAX hosts are known"))
    }
}

const _: () = assert!(size_of::<Record>() == 64, "a record is one cache line");

impl Record {
    pub fn schedule(&self) -> Schedule {
        Schedule {
            start: self.start,
            interval_ms: self.interval_ms,
            repeat_for_ms: self.repeat_for_ms,
        }
    }

    pub fn host(&self) -> HostId {
        HostId(self.host.0.into())
    }

    pub fn key(&self) -> StateKey {
        StateKey { version: self.version, sequence: self.sequence }
    }

    pub fn is_live(&self) -> bool {
        self.state != State::Tombstone
    }
}
