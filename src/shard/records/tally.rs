//! When a timer is tallied: it is to pop, and this node is the first to do so ([`super::tallies`]).

// May panic: indices 1.
// Why it does not: fixed 1.

use super::tags::pops_first;
use super::{Record, Records, State, Tallies};
use crate::base::ids::Slot;
use crate::shard::parts::peers::Peers;

/// Records that a portion of the walk looks at, some 10 ns each.
const PORTION: usize = 4_096;

impl Records {
    /// What is tallied.
    pub fn tallies(&self) -> &Tallies {
        &self.tallies
    }

    /// Tallies a live record that is about to be put in, if this node is the first to pop.
    #[inline]
    pub(super) fn enter_tallies(&mut self, peers: &Peers, record: &mut Record) {
        let is_first = record.state != State::Parked && self.pops_first(peers, record);
        record.repeat_for = record.repeat_for.marked(is_first);
        if is_first {
            self.tallies.enter(record.state);
            self.hosts.tally(record.authority, true);
        }
    }

    /// Takes a live record that goes or ends out of the tallies. It still names its host.
    #[inline]
    pub(super) fn leave_tallies(&mut self, record: &Record) {
        if record.repeat_for.is_marked() {
            self.tallies.leave(record.state);
            self.hosts.tally(record.authority, false);
        }
    }

    /// Brings the mark of a live record up to date, because its placement is another.
    pub(super) fn tally_again(&mut self, peers: &Peers, slot: Slot) {
        let record = *self.slab.get(slot);
        let may_pop = record.is_live() && record.state != State::Parked;
        let is_first = may_pop && self.pops_first(peers, &record);
        if !may_pop || is_first == record.repeat_for.is_marked() {
            return;
        }
        self.leave_tallies(&record);
        let mut changed = record;
        self.enter_tallies(peers, &mut changed);
        self.slab.get_mut(slot).repeat_for = changed.repeat_for;
    }

    /// Begins to bring all marks up to date, with the first portion.
    pub(super) fn retally(&mut self, peers: &Peers) {
        self.tallies.next = (!self.slab.is_empty()).then_some(Slot(0));
        self.tally_on(peers);
    }

    /// Goes on to bring marks up to date, by one portion.
    #[inline]
    pub fn tally_on(&mut self, peers: &Peers) {
        if self.tallies.next.is_some() {
            self.tally_portion(peers);
        }
    }

    #[inline(never)]
    fn tally_portion(&mut self, peers: &Peers) {
        for _ in 0..PORTION {
            let Some(next) = self.tallies.next else { return };
            let slot = self.slab.occupied_from(next).next();
            self.tallies.next = slot.map(|slot| Slot(slot.0 + 1));
            let Some(slot) = slot else { return };
            self.tally_again(peers, slot);
        }
    }

    /// Whether this node is the first to pop. The answer is kept with the placement.
    #[inline]
    fn pops_first(&mut self, peers: &Peers, record: &Record) -> bool {
        match self.placements.first_of(record.placement) {
            Some(is_first) => is_first,
            None => {
                let is_first = pops_first(peers, self.placements.get(record.placement));
                self.placements.note_first(record.placement, is_first);
                is_first
            }
        }
    }

    /// Checks that the tallies are those of the marks, and the marks right where all are up to
    /// date.
    pub(super) fn audit_tallies(&self, peers: &Peers) -> Result<(), String> {
        let mut states = [0; State::POPPING.len()];
        let mut marked = 0;
        for slot in self.slab.occupied_from(Slot(0)) {
            let record = self.slab.get(slot);
            let is_marked = record.repeat_for.is_marked();
            if is_marked && (!record.is_live() || record.state == State::Parked) {
                return Err(format!("{slot:?} does not pop any more, and is tallied"));
            }
            if is_marked {
                states[record.state as usize] += 1;
                marked += 1;
            }
            let may_pop = record.is_live() && record.state != State::Parked;
            let is_first = may_pop && self.is_first(peers, record);
            if self.tallies.is_settled() && is_marked != is_first {
                return Err(format!("{:?} is tallied: {is_marked}, not {is_first}", record.id));
            }
        }
        let of_hosts = self.hosts.tallied();
        if (self.tallies.states(), of_hosts) != (states, marked) {
            let found = self.tallies.states();
            return Err(format!("tallies: {found:?} {of_hosts}, expected {states:?} {marked}"));
        }
        Ok(())
    }
}
