//! Attempts at a pop: a callback begins, or its host has no place for it.

// May panic: assertions 1.
// Why it does not: ordered 1.

use crate::base::ids::{HostId, Slot};
use crate::base::time::Now;

use super::Shard;
use super::effects::{Attempt, Outbox, Ticket};
use super::records::{Next, Record};

impl Shard {
    /// Asks for the callback of a slot that is in no list.
    pub(super) fn attempt(
        &mut self,
        now: Now,
        slot: Slot,
        record: &Record,
        host: HostId,
        outbox: &mut Outbox,
    ) {
        self.records.transition(slot, Next::InFlight);
        let sequence = record.sequence + 1;
        let ticket = Ticket { slot, host, id: record.id, version: record.version, sequence };
        let number = u16::from(record.attempts) + 1;
        let attempt = Attempt { ticket, due: self.records.due(record), number };
        assert!(attempt.due.begins() <= now.mono, "a pop is never early");
        self.records.hosts_mut().take_place(ticket.host, now.mono.tick_floor());
        self.counters.in_flight += 1;
        self.counters.retried += u64::from(number > 1);
        outbox.attempts.push(attempt);
    }

    /// Lists a host whose pops wait for a place of the core.
    #[inline]
    pub(super) fn list_if_short(&mut self, host: HostId) {
        let is_new = self.records.hosts_mut().list_if_short(host);
        self.counters.without_place += u64::from(is_new);
    }
}
