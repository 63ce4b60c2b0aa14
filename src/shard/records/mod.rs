//! Every timer and tombstone that a shard holds, all that they name, and the one place where the
//! slot of each is. Only this room changes slab, index, wheel, links, payloads, placements, hosts'
//! lists and tag counts, so that they always agree; [`Records::audit`] counts them again.
//!
//! The state of a record says in which list its slot is:
//!
//! | state        | list of the slot                    | what ends the state                   |
//! |--------------|-------------------------------------|---------------------------------------|
//! | `Armed`      | wheel, until the next pop           | the pop is due                        |
//! | `Ready`      | waiting list of the callback's host | a place at the host is free           |
//! | `InFlight`   | none                                | the callback ends                     |
//! | `BackingOff` | wheel, until the next attempt       | the attempt is due                    |
//! | `HandedOver` | wheel, until the pop is taken back  | news of another rank, or time is over |
//! | `Parked`     | wheel, until its time is over       | replay, delete, or the time is over   |
//! | `Paused`     | none                                | a client resumes it                   |
//! | `Tombstone`  | wheel, until its end                | the record is forgotten               |
//!
//! Between two of its lists a slot is in none: [`Records::come_due`], [`Records::next_waiting`] and
//! [`Records::next_in_trouble`] take a slot out and leave its state as it was;
//! [`Records::transition`] gives the slot its next state and place. Nobody else moves a slot.

// May panic: assertions 1.
// Why it does not: listed 1.

mod acted;
mod arrivals;
mod audit;
mod authorities;
mod changes;
mod commons;
mod contents;
mod flows;
mod hosts;
mod letters;
mod life;
mod outline;
mod owners;
mod parked;
mod placements;
mod places;
mod record;
mod room;
mod ruled;
mod sharing;
mod stock;
mod tags;
mod tallies;
mod tally;

pub use authorities::AuthorityId;
pub use changes::{Change, Changes};
pub use flows::FlowId;
#[cfg(test)]
pub use hosts::SUSPECT_FAILURES;
pub use hosts::{Host, Hosts};
pub use outline::{Outline, ended_numbers};
pub use placements::{Placement, PlacementId};
pub use record::{Record, State};
pub use stock::Stock;

use std::sync::Arc;

use crate::base::ids::{HostId, Slot, TimerId};
use crate::base::limits::RANK_DELAY_MS;
use crate::base::planted::{Bug, is_planted};
use crate::base::quota::Quotas;
use crate::base::time::Tick;
use crate::store::index::Index;
use crate::store::links::Links;
use crate::store::payloads::Payloads;
use crate::store::slab::Slab;
use crate::store::wheel::{Advanced, Wheel};

use super::config::ShardConfig;
use super::tag_counts::TagCounts;
use arrivals::Arrivals;
use authorities::Authorities;
use commons::Commons;
use letters::Letters;
use owners::Owners;
use placements::Placements;
use tallies::Tallies;

/// The state that a record gets next, and where its slot then is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Waits in the wheel for the next pop.
    Armed(Tick),
    /// Waits in the list of this host.
    Ready(HostId),
    /// Its callback runs.
    InFlight,
    /// Waits in the wheel for the next attempt.
    BackingOff(Tick),
    /// Waits in the wheel for the news that another rank has popped.
    HandedOver(Tick),
    /// Waits in the wheel for the end of its time as a dead letter. Only for a record that is one.
    Parked(Tick),
    /// Waits in the wheel for its end. Only for a record that is a tombstone already.
    Tombstone(Tick),
}

/// How many records there are of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Timers.
    pub timers: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Timers in the lists of hosts.
    pub waiting: u64,
}

/// The part of the configuration that says how many records there may be and when they pop.
#[derive(Clone, Copy, Debug)]
struct Limits {
    records_max: u64,
    bytes_max: u64,
    waiting_per_host_max: u32,
    tombstone_ms_max: u64,
    promotion: bool,
}

/// All records of a shard.
pub struct Records {
    slab: Slab<Record>,
    links: Links,
    wheel: Wheel,
    index: Index,
    payloads: Payloads,
    commons: Commons,
    placements: Placements,
    hosts: Hosts,
    tags: TagCounts,
    owners: Owners,
    letters: Letters,
    counts: Counts,
    limits: Limits,
    changes: Changes,
    tallies: Tallies,
    arrivals: Arrivals,
    /// Timers that other nodes hold in place of this one, since the start; wraps.
    departures: u32,
    /// Whether there was a timer with attributes since the start.
    has_had_special: bool,
}

impl Records {
    /// No record yet; the wheel stands at `tick`.
    pub fn new(config: &ShardConfig, tick: Tick) -> Self {
        let authorities = Authorities::new(config.authority_tables, config.hash_seed);
        Self {
            slab: config.stock.records.clone().into(),
            links: config.stock.links.clone().into(),
            wheel: Wheel::new(config.geometry, tick),
            index: Index::new(config.stock.entries.clone(), config.hash_seed),
            payloads: Payloads::new(config.stock.payloads.clone(), config.stock.spans.clone()),
            commons: Commons::new(config.hash_seed),
            placements: Placements::new(config.hash_seed),
            hosts: Hosts::new(authorities, &config.callbacks, config.own),
            tags: TagCounts::new(config.tags_max, config.hash_seed),
            owners: Owners::new(config.hash_seed),
            letters: Letters::default(),
            counts: Counts::default(),
            limits: Limits {
                records_max: config.records_max,
                bytes_max: config.store_bytes_max,
                waiting_per_host_max: config.callbacks.queue_per_host_max,
                tombstone_ms_max: config.callbacks.tombstone_ms_max,
                promotion: config.cluster.promotion,
            },
            changes: Changes::default(),
            tallies: Tallies::default(),
            arrivals: Arrivals::default(),
            departures: 0,
            has_had_special: false,
        }
    }

    /// Where the record of a timer or of its tombstone is.
    #[inline]
    pub fn find(&self, id: TimerId) -> Option<Slot> {
        self.index.get(id.0, |slot| self.slab.get(slot).id.0)
    }

    /// The record of a slot that is in use (asserted).
    #[inline]
    pub fn get(&self, slot: Slot) -> &Record {
        self.slab.get(slot)
    }

    /// Whether a slot is in use.
    #[inline]
    pub fn contains(&self, slot: Slot) -> bool {
        self.slab.contains(slot)
    }

    /// Every slot in use is below this number.
    pub fn slots(&self) -> u32 {
        self.slab.slots()
    }

    /// Bytes of the contents of all timers, about, if each had a memory of its own.
    pub fn payload_bytes(&self) -> u64 {
        self.payloads.used_bytes() as u64 + self.commons.spared_bytes()
    }

    /// Slots in use from `next` on, in their order.
    pub fn occupied_from(&self, next: Slot) -> impl Iterator<Item = Slot> {
        self.slab.occupied_from(next)
    }

    /// Whether a timer of this shard may follow a calendar.
    pub fn has_had_special(&self) -> bool {
        self.has_had_special
    }

    /// The nodes that hold a record, in their order.
    #[inline]
    pub fn placement_of(&self, record: &Record) -> &Placement {
        self.placements.get(record.placement)
    }

    /// The authority of a timer's callback host, as written.
    #[inline]
    pub fn authority_of(&self, record: &Record) -> &str {
        self.hosts.authority_named(record.authority)
    }

    /// The callback hosts.
    #[inline]
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// The callback hosts, to note how they do. Their waiting lists change by transitions alone.
    #[inline]
    pub fn hosts_mut(&mut self) -> &mut Hosts {
        &mut self.hosts
    }

    /// What the journal has not heard of.
    #[inline]
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// What the journal has not heard of, to take it or to note more.
    pub fn changes_mut(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// The records that began while somebody goes through all of them.
    pub fn arrivals_mut(&mut self) -> &mut Arrivals {
        &mut self.arrivals
    }

    /// How many timers have moved to other nodes; wraps.
    pub fn departures(&self) -> u32 {
        self.departures
    }

    /// What the tags of timers count.
    pub fn tags(&self) -> &TagCounts {
        &self.tags
    }

    /// What the tags of timers count, to tell of changes.
    pub fn tags_mut(&mut self) -> &mut TagCounts {
        &mut self.tags
    }

    /// Takes the quotas of owners that count from now on.
    pub fn set_quotas(&mut self, quotas: Arc<Quotas>) {
        self.owners.set_quotas(quotas);
    }

    /// How many records there are of each kind.
    #[inline]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes of memory held: records, links, wheel, index, hosts, placements, payloads in use, and
    /// what these have in common.
    pub fn bytes(&self) -> u64 {
        let store = self.slab.bytes() + self.links.bytes() + self.wheel.bytes();
        let tables = self.index.bytes() + self.hosts.bytes() + self.placements.bytes();
        let contents = self.payloads.used_bytes() + self.commons.bytes();
        (store + tables + contents + self.changes.bytes()) as u64
    }

    /// The same, with what chunks and spans have left of the contents' memory.
    #[inline]
    pub fn held_bytes(&self) -> u64 {
        self.bytes() + self.unused_bytes()
    }

    /// Bytes of chunks and spans that hold no contents, and were not given back.
    #[inline]
    fn unused_bytes(&self) -> u64 {
        (self.payloads.held_bytes().saturating_sub(self.payloads.used_bytes())) as u64
    }

    /// When a slot next comes due, or the wheel has work; `None`: no slot is in the wheel.
    #[inline]
    pub fn next_wake(&self) -> Option<Tick> {
        self.wheel.next_wake()
    }

    /// When the timer pops here, if it has pops left.
    pub fn pops_at(&self, record: &Record) -> Tick {
        let delay_ms = self.placement_of(record).delay_ms(self.limits.promotion);
        if is_planted(Bug::RankOnePopsWithoutDelay) && delay_ms == RANK_DELAY_MS {
            return self.due(record);
        }
        self.due(record) + delay_ms
    }

    /// When a timer pops here after another node told of it. If the pop is overdue already, ranks
    /// wait for each other from `tick` on. Counted from its due time, all of them would do the pop
    /// at once.
    pub fn takes_over_at(&self, record: &Record, tick: Tick) -> Tick {
        let due = self.due(record);
        let delay_ms = self.pops_at(record) - due;
        if is_planted(Bug::OverdueRanksActAtOnce) {
            due + delay_ms
        } else {
            due.max(tick) + delay_ms
        }
    }
}

/// The places of slots.
impl Records {
    /// Turns the wheel to `tick` and appends at most `due_max` slots that have come due to `due`.
    /// Each of these slots is then in no list, in the state in which it was filed, and needs its
    /// next state.
    #[inline]
    pub fn come_due(&mut self, tick: Tick, due_max: usize, due: &mut Vec<Slot>) -> Advanced {
        self.wheel.advance(&mut self.links, tick, due_max, due)
    }

    /// Takes the pop that has waited longest for a host out of the host's list. The slot is then in
    /// no list and needs its next state.
    #[inline]
    pub fn next_waiting(&mut self, host: HostId) -> Option<Slot> {
        let slot = self.hosts.pop_waiting(host, &mut self.links)?;
        self.counts.waiting -= 1;
        Some(slot)
    }

    /// Takes a waiting pop of a host in trouble out of the host's list. The slot is then in no list
    /// and needs its next state.
    #[inline]
    pub fn next_in_trouble(&mut self) -> Option<Slot> {
        let (_, slot) = self.hosts.take_from_troubled(&mut self.links)?;
        self.counts.waiting -= 1;
        Some(slot)
    }

    /// When the oldest was due of the pops that are first in the lists of their hosts. Cost: every
    /// host.
    pub fn oldest_waiting(&self) -> Option<Tick> {
        self.hosts.first_waiting().map(|slot| self.due(self.slab.get(slot))).min()
    }

    /// Gives a record its next state and moves its slot from the list in which it is, if it is in
    /// one, to the list of that state. Constant work. A record does not end or come back to life by
    /// a transition: [`Records::entomb`], [`Records::bury`] and [`Records::hold`] do that.
    #[inline]
    pub fn transition(&mut self, slot: Slot, next: Next) {
        let record = self.slab.get_mut(slot);
        let (former, was_live) = (Former::of(record), record.is_live());
        record.state = next.state();
        if record.repeat_for.is_marked() {
            self.tallies.pass(former.state, record.state);
        }
        assert!(record.is_live() == was_live, "a tombstone has given back what a timer holds");
        match next {
            Next::Armed(at)
            | Next::BackingOff(at)
            | Next::HandedOver(at)
            | Next::Parked(at)
            | Next::Tombstone(at) => {
                self.file(slot, former, at);
            }
            Next::Ready(host) => {
                self.unlink(slot, former);
                self.hosts.push_waiting(host, &mut self.links, slot);
                self.counts.waiting += 1;
            }
            Next::InFlight => self.unlink(slot, former),
        }
    }

    /// Changes when a slot in the wheel (asserted) comes due. Its state stays.
    pub fn rearm(&mut self, slot: Slot, at: Tick) {
        self.wheel.rearm(&mut self.links, slot, at);
    }

    /// Files a slot in the wheel, from whichever list its former state had it in.
    #[inline]
    fn file(&mut self, slot: Slot, former: Former, at: Tick) {
        if former.state == State::Ready && self.links.is_linked(slot) {
            self.stop_waiting(slot, former);
        }
        self.wheel.put(&mut self.links, slot, at);
    }

    /// Takes a slot out of the list that its former state had it in, unless it came out before.
    #[inline]
    fn unlink(&mut self, slot: Slot, former: Former) {
        if !self.links.is_linked(slot) {
            return;
        }
        match former.state {
            State::Ready => self.stop_waiting(slot, former),
            _ => self.wheel.remove(&mut self.links, slot),
        }
    }

    fn stop_waiting(&mut self, slot: Slot, former: Former) {
        self.hosts.remove_waiting(former.authority, &mut self.links, slot);
        self.counts.waiting -= 1;
    }
}

/// The part of a record that says in which list its slot is.
#[derive(Clone, Copy)]
struct Former {
    state: State,
    authority: AuthorityId,
}

impl Former {
    #[inline]
    fn of(record: &Record) -> Self {
        Self { state: record.state, authority: record.authority }
    }
}

impl Next {
    /// The state of a live record that nobody is at: it waits for its pop, or for its end, if it is
    /// a dead letter.
    #[inline]
    pub fn waiting(record: &Record, at: Tick) -> Self {
        match record.state {
            State::Parked => Self::Parked(at),
            _ => Self::Armed(at),
        }
    }

    #[inline]
    fn state(self) -> State {
        match self {
            Next::Armed(_) => State::Armed,
            Next::Ready(_) => State::Ready,
            Next::InFlight => State::InFlight,
            Next::BackingOff(_) => State::BackingOff,
            Next::HandedOver(_) => State::HandedOver,
            Next::Parked(_) => State::Parked,
            Next::Tombstone(_) => State::Tombstone,
        }
    }
}

/// What tests do to records that nothing else does.
#[cfg(test)]
impl Records {
    /// How many timers an owner has here.
    pub fn timers_of(&self, owner: &str) -> u64 {
        self.owners.iter().find(|(name, _)| *name == owner).map_or(0, |(_, timers)| timers)
    }

    /// Takes a slot out of the list that it is in, as if it had come due.
    pub fn take_out(&mut self, slot: Slot) {
        let former = Former::of(self.slab.get(slot));
        self.unlink(slot, former);
    }

    /// When a slot in the wheel comes due.
    pub fn filed_at(&self, slot: Slot) -> Tick {
        self.wheel.due(&self.links, slot)
    }

    /// From now on there is room for so many records.
    pub fn set_records_max(&mut self, records_max: u64) {
        self.limits.records_max = records_max;
    }

    /// From now on there is room for so many bytes.
    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        self.limits.bytes_max = bytes_max;
    }
}

#[cfg(test)]
mod records_tests;
