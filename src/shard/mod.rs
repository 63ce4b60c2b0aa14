//! The state machine of one core: event in, effects out; the only owner of a store. No I/O, no
//! clock, no randomness of its own: the ring drives it in production, the simulator drives the same
//! code in virtual time.
//!
//! The life of a record, and the one place where its slot is at each moment:
//!
//! ```text
//! create ─▶ Armed (wheel) ─due─▶ Ready (its host's list) ─place free─▶ InFlight (nowhere) ─2xx─▶
//! Armed, or Tombstone after the last pop
//!                                        ▲                                  │ failed
//! └──due── BackingOff (wheel) ◀──────┘        Tombstone (wheel) ─due─▶ freed
//! ```

pub mod audit;
pub mod counters;
pub mod effects;
mod hosts;
mod pops;
mod record;
mod requests;

use std::sync::Arc;

use crate::base::ids::{HostId, NodeInstance, ShardCount, ShardIndex, Slot};
use crate::base::limits::{CallbackLimits, ClusterLimits};
use crate::base::time::{Now, Tick};
use crate::cluster::view::View;
use crate::store::index::Index;
use crate::store::links::Links;
use crate::store::payloads::Payloads;
use crate::store::slab::Slab;
use crate::store::wheel::{Geometry, Wheel};
use crate::timer::definition::Content;
use crate::timer::identity::Minter;
use crate::timer::version::HybridClock;

use counters::Counters;
use effects::{Attempt, Event, Outbox};
use hosts::Hosts;
use pops::OldestFailing;
use record::Record;

/// What a shard is made with. Limits are this shard's share of the node's.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Which shard of the node this is.
    pub own: ShardIndex,
    /// How many there are.
    pub shards: ShardCount,
    /// The node, in ids and versions.
    pub instance: NodeInstance,
    /// Shape of the wheel.
    pub geometry: Geometry,
    /// Small tables in the index, a power of two.
    pub index_segments: usize,
    /// Keys the hashes, so that clients cannot choose collisions.
    pub hash_seed: u64,
    /// Records (timers and tombstones).
    pub records_max: u64,
    /// Bytes of records, index and payloads.
    pub store_bytes_max: u64,
    /// Pops begun per [`Shard::tick`].
    pub pops_per_turn_max: usize,
    /// How callbacks are made.
    pub callbacks: CallbackLimits,
    /// How nodes watch and wait for each other.
    pub cluster: ClusterLimits,
    /// The cluster at the start.
    pub view: Arc<View>,
}

/// One core's timers.
pub struct Shard {
    config: ShardConfig,
    records: Slab<Record>,
    links: Links,
    wheel: Wheel,
    index: Index,
    payloads: Payloads,
    hosts: Hosts,
    clock: HybridClock,
    minter: Minter,
    /// Most milliseconds that the wall clock was ever ahead of the monotonic one.
    wall_ahead_ms: u64,
    counters: Counters,
    /// Slots that came due in this tick; kept for its memory.
    due: Vec<Slot>,
    /// Whether the last tick left due slots for the next.
    behind: bool,
    /// Set by [`Shard::stop_popping`].
    stopping: bool,
    swept_at: Tick,
    oldest_failing: OldestFailing,
}

/// How often idle hosts are looked for and the oldest overdue pop is found again.
const SWEEP_EVERY_MS: u64 = 1_000;

impl Shard {
    /// An empty shard.
    pub fn new(config: ShardConfig, now: Now) -> Self {
        let tick = now.mono.tick_floor();
        Self {
            records: Slab::new(),
            links: Links::new(),
            wheel: Wheel::new(config.geometry, tick),
            index: Index::new(config.index_segments, config.hash_seed),
            payloads: Payloads::new(),
            hosts: Hosts::new(config.hash_seed, &config.callbacks),
            clock: HybridClock::new(config.instance),
            minter: Minter::new(config.instance, config.shards, config.own, now.wall),
            wall_ahead_ms: now.wall.0.saturating_sub(tick.0),
            counters: Counters::default(),
            due: Vec::new(),
            behind: false,
            stopping: false,
            swept_at: tick,
            oldest_failing: OldestFailing::default(),
            config,
        }
    }

    /// Takes one event and writes what follows from it into `outbox`.
    pub fn handle(&mut self, now: Now, event: Event<'_>, outbox: &mut Outbox) {
        match event {
            Event::Request { from, request } => self.request(now, from, request, outbox),
            Event::CallbackFinished { ticket, outcome } => {
                self.callback_finished(now, ticket, outcome, outbox);
            }
            Event::View(_)
            | Event::Peer { .. }
            | Event::PeerMessage { .. }
            | Event::PeerResult { .. }
            | Event::PeerUnheard { .. }
            | Event::Resynchronise => todo!(),
        }
    }

    /// Turns the wheel to `now`: begins at most `pops_per_turn_max` pops, ends tombstones, moves
    /// what must move.
    pub fn tick(&mut self, now: Now, outbox: &mut Outbox) {
        let tick = now.mono.tick_floor();
        self.turn_wheel(now, tick, outbox);
        self.hosts_in_trouble(now, outbox);
        if tick - self.swept_at >= SWEEP_EVERY_MS {
            self.swept_at = tick;
            self.sweep(tick, outbox);
        }
    }

    /// When [`Shard::tick`] should next be called; a tick in the past means at once; `None` when
    /// nothing is held.
    pub fn next_wake(&self) -> Option<Tick> {
        if self.stopping {
            return None;
        }
        if self.behind || self.hosts.has_waiting_in_trouble() {
            return Some(Tick(0));
        }
        self.wheel.next_wake()
    }

    /// The content of a callback that this shard asked for in an [`Attempt`]: valid until the next
    /// event.
    pub fn content(&self, attempt: &Attempt) -> Content<'_> {
        Content::decode(self.payloads.get(self.records.get(attempt.ticket.slot).payload))
    }

    /// The authority of a callback host that this shard named in an [`Attempt`].
    pub fn authority(&self, host: HostId) -> &str {
        self.hosts.authority(host)
    }

    /// Begins no further pop: those running finish, all others stay where they are.
    pub fn stop_popping(&mut self) {
        self.stopping = true;
    }

    /// Callbacks asked for and not finished.
    pub fn in_flight(&self) -> u64 {
        self.counters.in_flight
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of memory held: records, links, wheel, index, payloads in use.
    pub fn bytes(&self) -> u64 {
        let store = self.records.bytes() + self.links.bytes() + self.wheel.bytes();
        (store + self.index.bytes() + self.payloads.used_bytes() + self.hosts.bytes()) as u64
    }

    /// Callback hosts known.
    pub fn hosts_known(&self) -> u64 {
        self.hosts.len()
    }
}
