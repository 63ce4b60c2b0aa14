//! One timer as the slab holds it: 64 bytes; with 16 bytes of links and about 8 of index that is 88
//! bytes and the payload.

use crate::base::ids::{HostId, TimerId};
use crate::base::time::Tick;
use crate::store::payloads::PayloadRef;
use crate::timer::schedule::Schedule;
use crate::timer::version::{StateKey, Version};

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
    /// Deleted or popped for the last time; waits for its end, in the wheel.
    Tombstone,
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
    /// Meaningless in a tombstone.
    pub host: HostId,
    pub factor: u8,
    pub state: State,
    /// Failed attempts at the present pop.
    pub attempts: u8,
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

    pub fn key(&self) -> StateKey {
        StateKey { version: self.version, sequence: self.sequence }
    }

    pub fn is_live(&self) -> bool {
        self.state != State::Tombstone
    }
}
