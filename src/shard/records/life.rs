//! How a record begins, changes and ends. Each step takes and gives back all that the record names:
//! its payload, its placement, its host's authority, its tags, its owner, its entry in the index.

// May panic: assertions 2.
// Why it does not: listed 2.

use super::record::Ms45;
use super::{
    AuthorityId, Former, Next, Outline, Placement, PlacementId, Record, Records, State,
    ended_numbers,
};
use crate::base::ids::{Slot, TimerId};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::Tick;
use crate::shard::parts::peers::Peers;
use crate::store::payloads::PayloadRef;
use crate::timer::definition::has_attributes;
use crate::timer::naming::{KEY_REMEMBERED_MS, is_digest, may_be_of_key};
use crate::timer::schedule::tombstone_ms;

impl Records {
    /// Holds a live state in place of what is held at `slot`, which is what is held under the id;
    /// `None`: nothing is. The caller has asked for room before ([`Records::room`]) and has entered
    /// the authority for the state ([`Records::enter_authority`]).
    pub fn hold(
        &mut self,
        peers: &Peers,
        tick: Tick,
        (outline, slot): (&Outline, Option<Slot>),
        authority: AuthorityId,
        content: &[u8],
    ) -> Slot {
        let held = slot.map(|slot| *self.slab.get(slot));
        let (payload, state, repeat_for) = if has_attributes(content) {
            self.begin_special(tick, outline, held.as_ref(), content)
        } else {
            held.iter().for_each(|held| self.release(tick, held));
            let repeat_for = Ms45::new(outline.repeat_for_ms);
            (self.payloads.insert(content), State::Armed, repeat_for)
        };
        let mut record = Record {
            id: outline.id,
            version: outline.key.version,
            start: outline.start,
            interval_ms: outline.interval_ms,
            repeat_for,
            sequence: outline.key.sequence,
            payload,
            placement: self.placements.enter(&outline.placement),
            authority,
            state,
            attempts: 0,
        };
        self.counts.timers += 1;
        self.enter_tallies(peers, &mut record);
        self.enter_counts(peers, tick, &record);
        let pops_at = self.takes_over_at(&record, tick);
        let slot = self.put(slot.zip(held), record, pops_at);
        if record.state == State::Parked {
            self.enter_letter(slot);
        }
        slot
    }

    /// Holds a tombstone in place of what is held at `slot`, as [`Records::hold`] does. The
    /// tombstone stays for at least the longer of both intervals.
    pub fn bury(&mut self, tick: Tick, outline: &Outline, slot: Option<Slot>) -> Slot {
        let held = slot.map(|slot| *self.slab.get(slot));
        let former_ms = held.map_or(0, |held| held.interval_ms);
        let interval_ms = former_ms.max(outline.interval_ms);
        let (interval_ms, repeat_for_ms) = match held.filter(|held| may_be_of_key(held.id)) {
            Some(held) => self.remembered(tick, &held, (interval_ms, outline.repeat_for_ms)),
            None => (interval_ms, outline.repeat_for_ms),
        };
        if let Some(held) = &held {
            self.release(tick, held);
        }
        let record = Record {
            id: outline.id,
            version: outline.key.version,
            start: outline.start,
            interval_ms,
            repeat_for: Ms45::new(repeat_for_ms),
            sequence: outline.key.sequence,
            payload: PayloadRef::EMPTY,
            placement: self.placements.enter(&outline.placement),
            authority: AuthorityId::NONE,
            state: State::Tombstone,
            attempts: 0,
        };
        self.counts.tombstones += 1;
        let stays_ms = self.stays_ms(outline.id, (interval_ms, repeat_for_ms));
        self.put(slot.zip(held), record, tick + stays_ms)
    }

    /// Makes a tombstone of a timer. The numbers of the timer have been brought up to date.
    pub fn entomb(&mut self, tick: Tick, slot: Slot) {
        let record = *self.slab.get(slot);
        self.leave_tallies(&record);
        self.leave_counts(tick, &record);
        let (interval_ms, repeat_for_ms) = self.numbers_of_end(tick, &record);
        let id = record.id;
        if record.state == State::Parked {
            self.leave_letter(&record);
        }
        if record.repeat_for.is_common() {
            self.leave_commons(&record);
        }
        let record = self.slab.get_mut(slot);
        let former = Former::of(record);
        let payload = record.payload;
        record.repeat_for = record.repeat_for.marked(false);
        record.state = State::Tombstone;
        record.payload = PayloadRef::EMPTY;
        record.authority = AuthorityId::NONE;
        (record.interval_ms, record.repeat_for) = (interval_ms, Ms45::new(repeat_for_ms));
        self.changes.progress(slot);
        self.payloads.remove(payload);
        self.hosts.leave(former.authority, tick);
        self.counts.timers -= 1;
        self.counts.tombstones += 1;
        let stays_ms = self.stays_ms(id, (interval_ms, repeat_for_ms));
        self.file(slot, former, tick + stays_ms);
    }

    /// Forgets a record altogether: its time is over, or other nodes hold it.
    pub fn forget(&mut self, tick: Tick, slot: Slot) {
        let former = Former::of(self.slab.get(slot));
        self.unlink(slot, former);
        let slab = &self.slab;
        let id = slab.get(slot).id;
        let removed = self.index.remove(id.0, |slot| slab.get(slot).id.0);
        assert_eq!(removed, Some(slot), "the index names every record");
        let record = self.slab.remove(slot);
        if let Some(slots) = self.slab.take_released() {
            self.links.release(slots);
        }
        // The journal may hold the timer still: it has not heard yet that the timer ended.
        self.departures = self.departures.wrapping_add(u32::from(record.is_live()));
        if record.is_live() || self.changes.is_pending(slot) {
            self.changes.forgotten(record.id);
        }
        self.release(tick, &record);
    }

    /// Takes over that another rank has done pops of a timer, `sequence` in all, or has given them
    /// up. The timer waits for the next pop, in the placement that the rank told, or ends with the
    /// last pop.
    pub fn catch_up(
        &mut self,
        peers: &Peers,
        tick: Tick,
        slot: Slot,
        sequence: u64,
        placement: &Placement,
    ) {
        self.replace(peers, tick, slot, placement);
        let record = self.reach(slot, sequence);
        if record.schedule().is_last(sequence) {
            return self.entomb(tick, slot);
        }
        if record.state == State::Paused {
            return;
        }
        let pops_at = self.takes_over_at(&record, tick);
        self.transition(slot, Next::waiting(&record, pops_at));
    }

    /// Notes that so many pops of a timer are done, and that no attempt at the next pop has failed.
    /// Returns the record as it is then.
    #[inline]
    pub fn reach(&mut self, slot: Slot, sequence: u64) -> Record {
        let record = self.slab.get_mut(slot);
        record.sequence = sequence;
        record.attempts = 0;
        self.changes.progress(slot);
        *record
    }

    /// Notes that an attempt at the present pop has failed. Returns the record as it is then.
    pub fn fail(&mut self, slot: Slot) -> Record {
        let record = self.slab.get_mut(slot);
        record.attempts = record.attempts.saturating_add(1);
        *record
    }

    /// Changes the placement of a record. The time of its pop stays. Returns the record as it is
    /// then.
    #[inline]
    pub fn replace(
        &mut self,
        peers: &Peers,
        tick: Tick,
        slot: Slot,
        placement: &Placement,
    ) -> Record {
        let entered = self.placements.enter(placement);
        let record = self.slab.get_mut(slot);
        let former = std::mem::replace(&mut record.placement, entered);
        let record = *record;
        if entered != former {
            self.note_placement(slot, former, placement);
        }
        self.move_tags(peers, tick, &record, former);
        self.placements.leave(former);
        if entered != former {
            self.tally_again(peers, slot);
        }
        *self.slab.get(slot)
    }

    /// Changes the placement of a record. A timer that waits for its pop waits anew if its delay
    /// changed.
    pub fn place(&mut self, peers: &Peers, tick: Tick, slot: Slot, placement: &Placement) {
        let former = *self.slab.get(slot);
        let former_at = self.pops_at(&former);
        let record = self.replace(peers, tick, slot, placement);
        if record.placement != former.placement
            && matches!(former.state, State::Armed | State::Parked)
            && self.pops_at(&record) != former_at
        {
            let pops_at = self.takes_over_at(&record, tick);
            self.wheel.rearm(&mut self.links, slot, pops_at);
        }
    }

    /// Notes for the journal what of a placement is another. Which ranks are known to hold the
    /// timer is found out anew after a restart.
    fn note_placement(&mut self, slot: Slot, former: PlacementId, placement: &Placement) {
        let former = self.placements.get(former);
        if (former.replicas, former.sites, former.factor)
            != (placement.replicas, placement.sites, placement.factor)
        {
            self.changes.whole(slot);
        } else if former.actives != placement.actives {
            self.changes.progress(slot);
        }
    }

    /// How long a tombstone of a timer with this interval stays.
    pub fn tombstone_ms(&self, interval_ms: u64) -> u64 {
        if is_planted(Bug::DropTombstone) {
            return 0;
        }
        tombstone_ms(interval_ms, self.limits.tombstone_ms_max)
    }

    /// How long the tombstone of a timer with this id stays; the numbers are those that it keeps.
    fn stays_ms(&self, id: TimerId, (interval_ms, repeat_for_ms): (u64, u64)) -> u64 {
        match may_be_of_key(id) && is_digest(repeat_for_ms) {
            true if interval_ms > self.limits.tombstone_ms_max => {
                interval_ms.min(KEY_REMEMBERED_MS)
            }
            _ => self.tombstone_ms(interval_ms),
        }
    }

    /// Interval and repeat-for of the tombstone of a timer whose id a key may have made. The
    /// tombstone stays until the key may be forgotten. Its repeat-for, which means nothing any
    /// more, is the digest of the body that came with the key. So the journal and the other nodes
    /// learn the digest as they learn of the tombstone.
    #[cold]
    fn remembered(
        &self,
        tick: Tick,
        held: &Record,
        (interval_ms, repeat_for_ms): (u64, u64),
    ) -> (u64, u64) {
        if !held.is_live() {
            let known = Some(held.repeat_for.get()).filter(|digest| is_digest(*digest));
            return (interval_ms, known.unwrap_or(repeat_for_ms));
        }
        let once = || self.content_of(held).attributes().once;
        ended_numbers(held.id, (interval_ms, repeat_for_ms), held.start, tick, once)
    }

    /// Interval and repeat-for that the end of a record has, as it is told to other nodes.
    pub fn numbers_of_end(&self, tick: Tick, held: &Record) -> (u64, u64) {
        let numbers = (held.interval_ms, held.repeat_for.get());
        match may_be_of_key(held.id) {
            true => self.remembered(tick, held, numbers),
            false => numbers,
        }
    }

    /// Frees the content of a timer that still names it. This is a planted bug.
    pub fn lose_content(&mut self, record: &Record) {
        self.payloads.remove(record.payload);
    }

    /// Gives back what a record held beyond its slot: payload, host, placement, its count.
    pub(super) fn release(&mut self, tick: Tick, held: &Record) {
        if held.is_live() {
            self.leave_tallies(held);
            self.leave_counts(tick, held);
        }
        if held.state == State::Parked {
            self.leave_letter(held);
        }
        self.placements.leave(held.placement);
        if held.is_live() {
            if held.repeat_for.is_common() {
                self.leave_commons(held);
            }
            self.payloads.remove(held.payload);
            self.hosts.leave(held.authority, tick);
            self.counts.timers -= 1;
        } else {
            self.counts.tombstones -= 1;
        }
    }

    fn put(&mut self, held: Option<(Slot, Record)>, record: Record, due: Tick) -> Slot {
        if let Some((slot, held)) = held {
            assert!(held.id == record.id, "a state takes the place of the same timer's");
            *self.slab.get_mut(slot) = record;
            if !State::FILED.contains(&record.state) {
                self.unlink(slot, Former::of(&held));
            } else if !is_planted(Bug::KeepOldSchedule) || held.state != State::Armed {
                self.file(slot, Former::of(&held), due);
            }
            if !is_left_out(held.state, record.state) {
                self.changes.whole(slot);
            }
            return slot;
        }
        let slot = self.slab.insert(record);
        self.arrivals.note(slot);
        self.changes.whole(slot);
        self.links.ensure(slot);
        let slab = &self.slab;
        self.index.insert(record.id.0, slot, |slot| slab.get(slot).id.0);
        if State::FILED.contains(&record.state) {
            self.wheel.insert(&mut self.links, slot, due);
        }
        slot
    }
}

/// Whether a planted bug keeps the journal from hearing that a record goes from one state to
/// another.
fn is_left_out(former: State, present: State) -> bool {
    match (former, present) {
        (_, State::Paused) => is_planted(Bug::JournalSkipsPause),
        (State::Paused, State::Armed) => is_planted(Bug::JournalSkipsResume),
        (State::Parked, State::Tombstone) => is_planted(Bug::JournalSkipsDeletedLetter),
        (State::Parked, _) => is_planted(Bug::JournalSkipsReplay),
        (_, State::Parked) => is_planted(Bug::JournalSkipsLetter),
        _ => false,
    }
}
