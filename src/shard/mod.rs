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

pub(crate) mod audit;
mod authorities;
mod collect;
#[cfg(test)]
mod collect_tests;
#[cfg(test)]
mod alone_tests;
#[cfg(test)]
mod harness_tests;
#[cfg(test)]
mod refusal_tests;
#[cfg(test)]
mod write_tests;
#[cfg(test)]
mod cluster_tests;
pub mod counters;
pub mod effects;
mod hosts;
pub mod inspect;
mod keep;
#[cfg(test)]
mod liar_tests;
mod merge;
#[cfg(test)]
mod merge_tests;
mod news;
mod peers;
mod placements;
mod pops;
mod questions;
#[cfg(test)]
mod questions_tests;
mod reads;
#[cfg(test)]
mod reads_tests;
mod reconcile;
mod record;
mod requests;
#[cfg(test)]
mod site_tests;
pub(crate) mod tag_counts;
mod tags;
mod writes;

use std::sync::Arc;

use crate::base::ids::{HostId, NodeInstance, PeerIndex, PeerSet, ShardCount, ShardIndex, Slot};
use crate::base::limits::{CallbackLimits, ClusterLimits};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, Tick};
use crate::cluster::detector::Liveness;
use crate::cluster::view::View;
use crate::store::index::Index;
use crate::store::links::Links;
use crate::store::payloads::Payloads;
use crate::store::slab::Slab;
use crate::store::wheel::{Geometry, Wheel};
use crate::timer::definition::Content;
use crate::timer::identity::Minter;
use crate::timer::version::HybridClock;

use authorities::Authorities;
use collect::Collect;
use counters::Counters;
use effects::{Attempt, Dialect, Event, Outbox};
use hosts::Hosts;
use merge::Teller;
use peers::Peers;
use placements::Placements;
use pops::OldestFailing;
use questions::Questions;
use reads::Reads;
use reconcile::Reconcile;
use record::Record;
use tag_counts::TagCounts;
use writes::Writes;

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
    /// Statistics tags with figures of their own.
    pub tags_max: usize,
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
    placements: Placements,
    peers: Peers,
    writes: Writes,
    reads: Reads,
    questions: Questions,
    reconcile: Reconcile,
    collect: Collect,
    clock: HybridClock,
    minter: Minter,
    /// Most milliseconds that the wall clock was ever ahead of the monotonic one.
    wall_ahead_ms: u64,
    counters: Counters,
    tags: TagCounts,
    /// The present turn.
    turn_at: Tick,
    /// Slots that came due in this tick; kept for its memory.
    due: Vec<Slot>,
    /// Whether the last tick left due slots for the next.
    behind: bool,
    /// Set by [`Shard::stop_popping`].
    stopping: bool,
    swept_at: Tick,
    /// When [`Shard::tick`] was called last.
    ticked_at: Tick,
    /// Until when writes wait for all who are not declared dead, see [`HOLD_MS`].
    held_until: Tick,
    /// Since when it was away last.
    away_since: Tick,
    /// When a copy was last refused for lack of room.
    full_at: Option<Tick>,
    oldest_failing: OldestFailing,
}

/// For how long a peer that has refused a timer for lack of room is believed to have none.
const FULL_MS: u64 = 10_000;

/// How often idle hosts are looked for and the oldest overdue pop is found again.
const SWEEP_EVERY_MS: u64 = 1_000;

/// After a core got no time for longer than it takes to be suspected (its process was stopped, its
/// machine froze), and after its start, a client's write waits so long for peers that it cannot
/// talk to yet: that there are no connections says that this core was away, not that they are. They
/// are dialled anew at most every 500 ms. Pops of timers that an original node holds, too, wait as
/// long: it cannot be asked about them.
const HOLD_MS: u64 = 1_000;

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
            hosts: Hosts::new(
                Authorities::new(config.index_segments, config.hash_seed),
                &config.callbacks,
            ),
            placements: Placements::new(config.hash_seed),
            peers: Peers::new(config.view.clone()),
            writes: Writes::default(),
            reads: Reads::default(),
            questions: Questions::new(tick, &config.cluster),
            reconcile: Reconcile::default(),
            collect: Collect::default(),
            clock: HybridClock::new(config.instance, config.cluster.clock_skew_max_ms),
            minter: Minter::new(config.instance, config.shards, config.own, now.wall)
                .salted(config.hash_seed),
            wall_ahead_ms: now.wall.0.saturating_sub(tick.0),
            counters: Counters::default(),
            tags: TagCounts::new(config.tags_max, config.hash_seed),
            turn_at: tick,
            due: Vec::new(),
            behind: false,
            stopping: false,
            swept_at: tick,
            ticked_at: tick,
            held_until: tick + HOLD_MS,
            away_since: Tick(0),
            full_at: None,
            oldest_failing: OldestFailing::default(),
            config,
        }
    }

    /// Takes one event and writes what follows from it into `outbox`.
    pub fn handle(&mut self, now: Now, event: Event<'_>, outbox: &mut Outbox) {
        self.turn_at = now.mono.tick_floor();
        self.notice_absence();
        match event {
            Event::Request { from, request } => self.request(now, from, request, outbox),
            Event::CallbackFinished { ticket, outcome } => {
                self.callback_finished(now, ticket, outcome, outbox);
            }
            Event::View(view) => self.set_view(now, view, outbox),
            Event::Peer { peer, liveness, dialect, has_gaps } => {
                self.believe(now, peer, (liveness, dialect), has_gaps, outbox);
            }
            Event::OtherViews(peers) => self.peers.other_view = peers,
            Event::PeerMessage { ticket, from, clock_offset_ns, message } => {
                let teller = Teller { peer: from, clock_offset_ns };
                self.peer_message(now, ticket, teller, message, outbox);
            }
            Event::PeerResult { peer, purpose, result } => {
                self.peer_result(now, peer, purpose, Some(result), outbox);
            }
            Event::PeerUnheard { peer, purpose } => {
                self.peer_result(now, peer, purpose, None, outbox);
            }
            Event::Resynchronise => {
                let view = &self.peers.view;
                self.walk(view.connected_nodes().union(view.connected_sites()));
            }
        }
    }

    /// Turns the wheel to `now`: begins at most `pops_per_turn_max` pops, ends tombstones, moves
    /// what must move.
    pub fn tick(&mut self, now: Now, outbox: &mut Outbox) {
        let tick = now.mono.tick_floor();
        self.turn_at = tick;
        self.notice_absence();
        self.ticked_at = tick;
        self.turn_wheel(now, tick, outbox);
        self.hosts_in_trouble(now, outbox);
        if tick - self.swept_at >= SWEEP_EVERY_MS {
            self.swept_at = tick;
            self.sweep(tick, outbox);
            self.end_writes(tick, outbox);
            self.settle_writes(now, outbox);
            self.settle_reads(now, outbox);
            self.reconcile.forget_settled();
        }
        self.ask_on(now, outbox);
        self.reconcile(now, outbox);
        self.collect(now, outbox);
        self.counters.misplaced = self.reconcile.misplaced();
        self.counters.lacking = self.reconcile.lacking();
        let is_full = self.full_at.is_some_and(|at| tick - at < 2 * FULL_MS);
        self.counters.is_full = u64::from(is_full);
        self.counters.walk_seen = self.reconcile.seen().unwrap_or(0);
        self.counters.walks = u64::from(self.reconcile.seen().is_some());
        self.counters.offers_waiting = self.reconcile.offers_waiting();
        self.counters.writes_waiting = self.writes.len() as u64;
    }

    /// Whether this core has not been given time for long: with peers it ticks with every
    /// heartbeat. Others may have suspected it a while before it was away for as long as that
    /// takes, for they count from its last heartbeat.
    fn notice_absence(&mut self) {
        let limits = &self.config.cluster;
        let away_ms = self.turn_at - self.ticked_at;
        let least_ms = (limits.suspect_after_ms / 2).max(2 * limits.heartbeat_ms);
        if away_ms <= least_ms || self.peers.is_alone() || self.away_since == self.ticked_at {
            return;
        }
        self.away_since = self.ticked_at;
        self.questions.was_away(self.turn_at, away_ms >= limits.dead_after_ms);
        if away_ms > limits.suspect_after_ms {
            self.held_until = self.turn_at + HOLD_MS;
            if !is_planted(Bug::WokenCorePopsUnheard) {
                self.questions.be_fresh(self.held_until);
            }
        }
    }

    /// Whether this core was away lately, so that its links have dropped what they had to tell.
    fn is_back_lately(&self) -> bool {
        self.away_since > Tick(0) && self.turn_at < self.held_until
    }

    fn set_view(&mut self, now: Now, view: Arc<View>, outbox: &mut Outbox) {
        let own = self.peers.own_hash();
        assert!(view.own_hash() == own, "a node keeps its name while it runs");
        if self.peers.is_alone() {
            // Nobody has done anything for this node.
            self.ticked_at = self.turn_at;
        }
        self.peers.view = view;
        self.recount_tags(now.mono.tick_floor());
        self.settle_writes(now, outbox);
        self.collect.forget_windows();
        self.walk(PeerSet::EMPTY);
    }

    fn believe(
        &mut self,
        now: Now,
        peer: PeerIndex,
        (liveness, dialect): (Liveness, Dialect),
        has_gaps: bool,
        outbox: &mut Outbox,
    ) {
        let former = self.peers.believe(peer, liveness, dialect);
        if liveness == Liveness::Alive && former != Liveness::Alive {
            self.peers.returned(now.mono.tick_floor(), peer, former);
        }
        if (former == Liveness::Dead) != (liveness == Liveness::Dead) {
            self.recount_tags(now.mono.tick_floor());
        }
        if liveness != Liveness::Alive {
            self.settle_writes(now, outbox);
            self.settle_reads(now, outbox);
            self.abandon_moves(now, peer);
        } else if has_gaps || former == Liveness::Dead || self.peers.owed.contains(peer) {
            self.peers.owed = self.peers.owed.without(peer);
            self.walk(PeerSet::EMPTY.with(peer));
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
        let work = [self.reconcile.next_wake(), self.questions.next_wake()];
        let wakes = [self.wheel.next_wake(), self.collect.next_wake()].into_iter().chain(work);
        wakes.flatten().min()
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

    /// What statistics tags count, to be told after every turn.
    pub fn tags_mut(&mut self) -> &mut TagCounts {
        &mut self.tags
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of memory held: records, links, wheel, index, payloads in use.
    pub fn bytes(&self) -> u64 {
        let store = self.records.bytes() + self.links.bytes() + self.wheel.bytes();
        let tables = self.index.bytes() + self.hosts.bytes() + self.placements.bytes();
        (store + tables + self.payloads.used_bytes()) as u64
    }

    /// Callback hosts that timers name.
    pub fn hosts_known(&self) -> u64 {
        self.hosts.authorities.len()
    }

    /// Callback hosts with a lane.
    pub fn lanes(&self) -> u64 {
        self.hosts.len()
    }
}
