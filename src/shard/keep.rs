//! How records come, change and go: the only writer of slab, index, wheel, payloads, placements and
//! host counts together.

use crate::base::ids::{HostId, PeerSet, Slot, TimerId};
use crate::base::limits::{RANK_DELAY_MS, TOMBSTONE_MS_MIN};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, Tick};
use crate::store::payloads::{PayloadRef, Payloads};
use crate::timer::definition::Definition;
use crate::timer::schedule::{Schedule, tombstone_ms};
use crate::timer::version::StateKey;

use super::Shard;
use super::authorities::AuthorityId;
use super::effects::Refusal;
use super::placements::Placement;
use super::record::{Ms48, Record, State};

/// All of a state but what is only carried: a client's write, a peer's copy.
#[derive(Clone, Copy)]
pub(super) struct Outline {
    pub id: TimerId,
    pub key: StateKey,
    pub start: Tick,
    pub interval_ms: u64,
    pub repeat_for_ms: u64,
    pub placement: Placement,
}

impl Outline {
    pub fn schedule(&self) -> Schedule {
        Schedule {
            start: self.start,
            interval_ms: self.interval_ms,
            repeat_for_ms: self.repeat_for_ms,
        }
    }
}

impl Shard {
    pub(super) fn find(&self, id: TimerId) -> Option<Slot> {
        self.index.get(id.0, |slot| self.records.get(slot).id.0)
    }

    /// When the record pops here, if it has pops left.
    pub(super) fn pops_at(&self, record: &Record) -> Tick {
        let delay_ms =
            self.placements.get(record.placement).delay_ms(self.config.cluster.promotion);
        if is_planted(Bug::RankOnePopsWithoutDelay) && delay_ms == RANK_DELAY_MS {
            return record.schedule().due(record.sequence + 1);
        }
        record.schedule().due(record.sequence + 1) + delay_ms
    }

    /// When a record that others told of pops here. Of a pop that is overdue already, ranks wait
    /// for each other from now on: counted from its due time all of them would do it at once.
    pub(super) fn takes_over_at(&self, record: &Record, tick: Tick) -> Tick {
        let due = record.schedule().due(record.sequence + 1);
        let delay_ms = self.pops_at(record) - due;
        if is_planted(Bug::OverdueRanksActAtOnce) {
            due + delay_ms
        } else {
            due.max(tick) + delay_ms
        }
    }

    /// Holds a live state in place of whatever is held under the id. What can refuse has been asked
    /// before; the authority has been entered for it.
    pub(super) fn hold(
        &mut self,
        tick: Tick,
        outline: &Outline,
        authority: AuthorityId,
        content: &[u8],
    ) -> Slot {
        let found = self.find(outline.id);
        let held = found.map(|slot| *self.records.get(slot));
        if let Some(held) = &held {
            self.release(tick, held);
        }
        let record = Record {
            id: outline.id,
            version: outline.key.version,
            start: outline.start,
            interval_ms: outline.interval_ms,
            repeat_for: Ms48::new(outline.repeat_for_ms),
            sequence: outline.key.sequence,
            payload: self.payloads.insert(content),
            placement: self.placements.enter(&outline.placement),
            authority,
            state: State::Armed,
            attempts: 0,
        };
        self.counters.timers += 1;
        self.enter_tags(&record);
        let pops_at = self.takes_over_at(&record, tick);
        self.put(found.zip(held), record, pops_at)
    }

    /// Holds a tombstone in place of whatever is held under the id, for at least the interval of
    /// either.
    pub(super) fn bury(&mut self, tick: Tick, outline: &Outline) -> Slot {
        let found = self.find(outline.id);
        let held = found.map(|slot| *self.records.get(slot));
        let interval_ms = held.map_or(0, |held| held.interval_ms).max(outline.interval_ms);
        if let Some(held) = &held {
            self.release(tick, held);
        }
        let record = Record {
            id: outline.id,
            version: outline.key.version,
            start: outline.start,
            interval_ms,
            repeat_for: Ms48::new(outline.repeat_for_ms),
            sequence: outline.key.sequence,
            payload: PayloadRef::EMPTY,
            placement: self.placements.enter(&outline.placement),
            authority: AuthorityId::NONE,
            state: State::Tombstone,
            attempts: 0,
        };
        self.counters.tombstones += 1;
        let stays_ms = self.tombstone_ms(interval_ms);
        self.put(found.zip(held), record, tick + stays_ms)
    }

    /// Makes a tombstone of a live record, whose numbers have been brought up to date; `former`
    /// says which list it is in.
    pub(super) fn entomb(&mut self, tick: Tick, slot: Slot, former: &Record) {
        self.leave_tags(&self.records.get(slot).clone());
        let record = self.records.get_mut(slot);
        let (payload, authority) = (record.payload, record.authority);
        record.state = State::Tombstone;
        record.payload = PayloadRef::EMPTY;
        record.authority = AuthorityId::NONE;
        let interval_ms = record.interval_ms;
        self.payloads.remove(payload);
        self.hosts.leave(authority, tick);
        self.counters.timers -= 1;
        self.counters.tombstones += 1;
        let stays_ms = tombstone_ms(interval_ms, self.config.callbacks.tombstone_ms_max);
        self.refile(slot, former, tick + stays_ms);
    }

    /// A tombstone has stayed its time: it ends, unless a member or a site of the timer cannot be
    /// reached, or has only just come back, and may have a copy. Any member: the list of a delete
    /// leaves out those that are dead, and these are the ones that may hold the timer from before.
    pub(super) fn end_tombstone(&mut self, now: Now, slot: Slot) {
        let tick = now.mono.tick_floor();
        let record = *self.records.get(slot);
        let sites = self.peers.sites_of(&self.placements.get(record.placement).sites);
        let sites = if is_planted(Bug::TombstoneNotHeldForSites) { PeerSet::EMPTY } else { sites };
        let concerned = self.peers.view.connected_nodes().union(sites);
        let away = concerned.minus(self.peers.alive());
        let is_settled = self.is_settled(tick) && (sites.is_empty() || self.has_heard_sites(tick));
        if self.peers.is_alone() || away.is_empty() && is_settled {
            return self.remove(tick, slot);
        }
        // A delete is as old as its version, and starts when it is made; a timer that came to its
        // end is as old as its last pop. The interval may be that of an earlier definition, whose
        // copies are to be outlived.
        let schedule = record.schedule();
        let last_pop = schedule.due(record.sequence).min(record.start + record.repeat_for.get());
        let has_popped = schedule.is_last(record.sequence) && last_pop <= tick;
        let ended = if has_popped { last_pop } else { record.start };
        // Of a version that no clock can tell the age of, the last pop tells it: that was at most
        // an interval before.
        let since_delete_ms = match self.clock.is_far(now.wall, record.version) {
            true => u64::MAX,
            false => now.wall.0.saturating_sub(record.version.wall().0),
        };
        let age_ms = (tick - ended.min(tick)).min(since_delete_ms);
        let held_ms = self.config.cluster.tombstone_hold_ms;
        if age_ms >= self.tombstone_ms(record.interval_ms) + held_ms {
            return self.remove(tick, slot);
        }
        self.wheel.insert(&mut self.links, slot, tick + held_ms.clamp(1, TOMBSTONE_MS_MIN));
    }

    /// Whether whoever was away has been shown what it missed. One that answers a dial and falls
    /// silent again seems alive until it is declared dead.
    pub(super) fn is_settled(&self, tick: Tick) -> bool {
        let silence_ms = 2 * self.config.cluster.dead_after_ms;
        self.peers.returned_at + silence_ms <= tick && !self.reconcile.owes()
    }

    /// Whether no site has returned lately. A site tells its copies one after the other, each in a
    /// round trip: what it wrote down before it heard of the tombstone may come long after.
    fn has_heard_sites(&self, tick: Tick) -> bool {
        self.peers.site_returned_at == Tick(0)
            || self.peers.site_returned_at + self.config.cluster.tombstone_hold_ms <= tick
    }

    /// Forgets a record altogether: others hold it.
    pub(super) fn forget(&mut self, tick: Tick, slot: Slot) {
        let record = *self.records.get(slot);
        match record.state {
            State::Armed | State::BackingOff | State::HandedOver | State::Tombstone => {
                self.wheel.remove(&mut self.links, slot);
            }
            State::Ready => {
                let host = self.host_waited_for(&record);
                self.hosts.get_mut(host).ready.remove(&mut self.links, slot);
                self.counters.waiting -= 1;
            }
            State::InFlight => {}
        }
        self.remove(tick, slot);
    }

    /// Removes a record that is in no list.
    pub(super) fn remove(&mut self, tick: Tick, slot: Slot) {
        let records = &self.records;
        let id = records.get(slot).id;
        let removed = self.index.remove(id.0, |slot| records.get(slot).id.0);
        assert_eq!(removed, Some(slot), "the index names every record");
        let record = self.records.remove(slot);
        self.release(tick, &record);
    }

    /// Changes who holds a record; an armed one is filed anew if its delay changed.
    pub(super) fn place(&mut self, slot: Slot, placement: &Placement) {
        let former = *self.records.get(slot);
        let former_at = self.pops_at(&former);
        let entered = self.placements.enter(placement);
        self.move_tags(&former, entered);
        self.placements.leave(former.placement);
        if entered == former.placement {
            return;
        }
        self.records.get_mut(slot).placement = entered;
        let record = *self.records.get(slot);
        if former.state == State::Armed && self.pops_at(&record) != former_at {
            let pops_at = self.takes_over_at(&record, self.turn_at);
            self.wheel.rearm(&mut self.links, slot, pops_at);
        }
    }

    /// A timer was written anew that this node is not to hold. A tombstone of before stays, for
    /// older copies may still come; but the others hold the timer.
    pub(super) fn leave_to_others(&mut self, id: TimerId, placement: &Placement) {
        if let Some(slot) = self.find(id) {
            self.place(slot, placement);
        }
    }

    /// Gives back what a record held beyond its slot: payload, host, placement, its count.
    pub(super) fn release(&mut self, tick: Tick, held: &Record) {
        if held.is_live() {
            self.leave_tags(held);
        }
        self.placements.leave(held.placement);
        if held.is_live() {
            self.payloads.remove(held.payload);
            self.hosts.leave(held.authority, tick);
            self.counters.timers -= 1;
        } else {
            self.counters.tombstones -= 1;
        }
    }

    pub(super) fn tombstone_ms(&self, interval_ms: u64) -> u64 {
        if is_planted(Bug::DropTombstone) {
            return 0;
        }
        tombstone_ms(interval_ms, self.config.callbacks.tombstone_ms_max)
    }

    /// Files a slot in the wheel, from whichever list the record's former state had it in.
    pub(super) fn refile(&mut self, slot: Slot, former: &Record, due: Tick) {
        match former.state {
            State::Armed | State::BackingOff | State::HandedOver | State::Tombstone => {
                self.wheel.rearm(&mut self.links, slot, due);
            }
            State::Ready => {
                let host = self.host_waited_for(former);
                self.hosts.get_mut(host).ready.remove(&mut self.links, slot);
                self.counters.waiting -= 1;
                self.wheel.insert(&mut self.links, slot, due);
            }
            State::InFlight => self.wheel.insert(&mut self.links, slot, due),
        }
    }

    /// The host of a record that waits for a place there.
    fn host_waited_for(&self, record: &Record) -> HostId {
        let host = self.hosts.authorities.host(record.authority);
        host.expect("a host keeps its lane while pops wait for it")
    }

    /// The authority of a new definition, entered for it, unless too many pops wait for the host.
    pub(super) fn admit_authority(&mut self, authority: &str) -> Result<AuthorityId, Refusal> {
        let (authority, host) = self.hosts.authorities.enter(authority);
        let waiting = host.map_or(0, |host| self.hosts.get(host).ready.len());
        if waiting >= self.config.callbacks.queue_per_host_max {
            self.hosts.authorities.leave(authority);
            return Err(Refusal::HostQueueFull);
        }
        Ok(authority)
    }

    /// Whether one more record with so much content fits.
    pub(super) fn room(&self, content_bytes: usize) -> Result<(), Refusal> {
        if self.records.len() >= self.config.records_max {
            return Err(Refusal::TimersFull);
        }
        self.room_for_bytes(content_bytes)
    }

    pub(super) fn room_for_bytes(&self, content_bytes: usize) -> Result<(), Refusal> {
        let needed = self.bytes() + Payloads::cost_bytes(content_bytes) as u64;
        if needed > self.config.store_bytes_max { Err(Refusal::BytesFull) } else { Ok(()) }
    }

    /// Whether content fits in place of what is held. What takes no more than that always does.
    pub(super) fn room_for_change(
        &self,
        held: &Record,
        content_bytes: usize,
    ) -> Result<(), Refusal> {
        let former_bytes = Payloads::cost_bytes(held.payload.len() as usize);
        match Payloads::cost_bytes(content_bytes).checked_sub(former_bytes) {
            None | Some(0) => Ok(()),
            Some(more_bytes) => self.room_for_bytes(more_bytes),
        }
    }

    fn put(&mut self, held: Option<(Slot, Record)>, record: Record, due: Tick) -> Slot {
        if let Some((slot, held)) = held {
            *self.records.get_mut(slot) = record;
            if !is_planted(Bug::KeepOldSchedule) || held.state != State::Armed {
                self.refile(slot, &held, due);
            }
            return slot;
        }
        let slot = self.records.insert(record);
        self.links.ensure(slot);
        let records = &self.records;
        self.index.insert(record.id.0, slot, |slot| records.get(slot).id.0);
        self.wheel.insert(&mut self.links, slot, due);
        slot
    }
}

/// Whether a timer pops at all. One that does not is accepted and not stored
/// (docs/compat/timer-service.md §1.4).
pub(super) fn fires(definition: &Definition<'_>) -> bool {
    definition.repeat_for_ms >= definition.interval_ms
}
