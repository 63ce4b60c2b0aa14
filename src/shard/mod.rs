//! The state machine of one core: event in, effects out; the only owner of a store. No I/O, no
//! clock, no randomness of its own: the ring drives it in production, the simulator drives the same
//! code in virtual time.
//!
//! The life of a record, and where its slot is at each moment:
//!
//! ```text
//! create ──▶ Armed ──due──▶ Ready ──place free──▶ InFlight ──2xx──▶ Armed, after the last
//!            wheel          host's list           no list           pop Tombstone
//!                             ▲                     │
//!                             │                     │ failed, nobody else is to try
//!                             ├─due── BackingOff ◀──┤
//!                             │       wheel         │
//!                             │                     │ failed, the next rank is to try
//!                             └─late─ HandedOver ◀──┘
//!                                     wheel ──the next rank has popped──▶ Armed or Tombstone
//!
//! Ready, BackingOff ──given up, the dead letter is kept──▶ Parked ──replay──▶ Armed
//!                                                          wheel
//! any live state ──pause──▶ Paused ──resume──▶ Armed
//!                           no list
//! any state ──delete──▶ Tombstone ──due──▶ freed
//!                       wheel
//! ```
//!
//! How to read the room, from the bottom to the top:
//!
//! - [`effects`] is what a shard is told and what it asks for.
//! - [`records`] holds the records and is the only room that moves their slots.
//! - [`parts`] is everything else that a shard is made of.
//! - This file makes a [`Shard`] of them, and gives every event and every tick to the rules.
//! - All other files with an `impl Shard` are the rules, which call each other as methods. They
//!   stand in floors, and call their own floor and those below it; no two of them call each other
//!   (`tests/tidy`, `self_circles`). From the bottom to the top:
//!   1. **Places**: `keep`, `placing`, `right_lists`, `whose_turn`, `readings`, `unwritten`.
//!   2. **Words**: `news`, and what only reads: `list`, `count`, `collect`, `inspect`.
//!   3. **Plans**: `calendars`, `policies`, `told`, `questions`, `ended`.
//!   4. **Replicas**: `reconcile`, `writes`, `reports`.
//!   5. **Pops**: `after_pop`, `attempts`, `letters`, `flow`, `pops`.
//!   6. **States**: `reads`, `actions`, `conditions`, `sites`, `originals`, `far_ends`,
//!      `merge`.
//!   7. **The desk**: `read_answers`, `results`, `requests`, `mod`, `journal`.

// May panic: assertions 1.
// Why it does not: configured 1.
// Reads the wall clock: order 2.

mod actions;
mod after_pop;
mod answer_bytes;
mod attempts;
mod calendars;
mod collect;
mod conditions;
mod config;
mod count;
pub mod counters;
pub mod effects;
mod ended;
mod far_ends;
mod flow;
pub mod inspect;
pub mod journal;
mod keep;
mod letters;
mod list;
mod merge;
mod news;
mod originals;
mod parts;
mod placing;
mod policies;
mod pops;
mod questions;
mod read_answers;
mod readings;
mod reads;
mod reconcile;
mod records;
mod reports;
pub(crate) mod requesters;
mod requests;
mod results;
mod right_lists;
mod sites;
pub(crate) mod tag_counts;
pub(crate) mod told;
mod unwritten;
mod whose_turn;
mod writes;

use std::sync::Arc;

use crate::base::ids::{HostId, PeerIndex, PeerSet};
use crate::base::planted::{Bug, is_planted};
use crate::base::quota::Quotas;
use crate::base::time::{Now, Tick, WallMs, earlier};
use crate::cluster::detector::Liveness;
use crate::cluster::view::View;
use crate::timer::definition::Content;
use crate::timer::identity::Minter;
use crate::timer::version::HybridClock;

pub use config::ShardConfig;
use counters::Counters;
use effects::{Attempt, Dialect, Event, Outbox, Refusal};
use parts::calendars::Calendars;
use parts::collect::Collect;
use parts::conditions::Conditions;
use parts::count::Countings;
pub(crate) use parts::give_ups;
use parts::give_ups::{GiveUps, GivenUpPops};
pub(crate) use parts::jobs;
use parts::jobs::Jobs;
use parts::list::Lists;
use parts::minting::Minting;
use parts::peers::{FULL_MS, Peers, Teller};
use parts::pops::Pops;
use parts::questions::Questions;
use parts::readings::Readings;
use parts::reads::Reads;
use parts::reconcile::Reconcile;
use parts::returned::Return;
use parts::said::Said;
use parts::turns::{HOLD_MS, Turns};
use parts::writes::Writes;
use records::Records;
pub use records::Stock;
use tag_counts::TagCounts;

/// The timers of one core, and the state machine over them.
pub struct Shard {
    config: ShardConfig,
    records: Records,
    pops: Pops,
    peers: Peers,
    writes: Writes,
    reads: Reads,
    conditions: Conditions,
    questions: Questions,
    reconcile: Reconcile,
    collect: Collect,
    calendars: Calendars,
    lists: Lists,
    countings: Countings,
    jobs: Jobs,
    clock: HybridClock,
    minting: Minting,
    turns: Turns,
    said: Said,
    give_ups: GiveUps,
    counters: Counters,
    /// When a copy was last refused for lack of room.
    full_at: Option<Tick>,
    /// Why clients' writes are refused although there is room: the journal cannot take them.
    write_refusal: Option<Refusal>,
    /// Whether nothing more reaches the disk before somebody makes room.
    is_stuck: bool,
    /// Since when this shard holds everything that it acknowledged and that has not ended.
    complete_since: WallMs,
    /// `None`: this process did not begin with what a journal has.
    returned: Option<Return>,
    /// `None`: this process did not begin with a journal, or what originals hold is known.
    readings: Option<Readings>,
    /// Messages for nodes that return, with what operators ordered for destinations.
    orders: Option<Arc<Vec<Box<[u8]>>>>,
}

/// How often idle hosts are looked for and the oldest overdue pop is looked up.
const SWEEP_EVERY_MS: u64 = 1_000;

impl Shard {
    /// An empty shard.
    pub fn new(config: ShardConfig, now: Now) -> Self {
        let tick = now.mono.tick_floor();
        let minter = Minter::new(config.instance, config.shards, config.own, now.wall)
            .salted(config.hash_seed);
        let (mut records, peers) = (Records::new(&config, tick), Peers::new(config.view.clone()));
        records.hosts_mut().set_share(peers.share());
        Self {
            records,
            pops: Pops::default(),
            peers,
            writes: Writes::default(),
            reads: Reads::default(),
            conditions: Conditions::default(),
            questions: Questions::new(tick, &config.cluster),
            reconcile: Reconcile::default(),
            collect: Collect::default(),
            calendars: Calendars::new(now, config.cluster.clock_skew_max_ms),
            lists: Lists::default(),
            countings: Countings::default(),
            jobs: Jobs::default(),
            clock: HybridClock::new(config.instance, config.cluster.clock_skew_max_ms),
            minting: Minting::new(minter, now),
            turns: Turns::new(tick),
            said: Said::default(),
            give_ups: GiveUps::default(),
            counters: Counters::default(),
            full_at: None,
            write_refusal: None,
            is_stuck: false,
            complete_since: now.wall,
            returned: None,
            readings: None,
            orders: None,
            config,
        }
    }

    /// Takes one event and writes what follows from it into `outbox`.
    pub fn handle(&mut self, now: Now, event: Event<'_>, outbox: &mut Outbox) {
        self.turns.at = now.mono.tick_floor();
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
            Event::PeerComplete { peer, since } => self.peers.note_complete(peer, since),
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
                self.reconcile.start_walk(view.connected_nodes().union(view.connected_sites()));
            }
        }
        self.count_records();
    }

    /// Turns the wheel to `now`: begins at most `pops_per_turn_max` pops, ends tombstones, moves
    /// what must move.
    pub fn tick(&mut self, now: Now, outbox: &mut Outbox) {
        let tick = now.mono.tick_floor();
        self.turns.at = tick;
        self.notice_absence();
        self.turns.ticked_at = tick;
        self.records.hosts_mut().begin_turn(tick);
        self.look_at_clock(now);
        self.start_short(now, outbox);
        self.plan_calendars(now, outbox);
        self.turn_flows(now, outbox);
        self.turn_wheel(now, tick, outbox);
        self.hosts_in_trouble(now, outbox);
        if self.turns.may_sweep(SWEEP_EVERY_MS) {
            self.sweep(tick, outbox);
            self.end_writes(tick, outbox);
            self.settle_writes(now, outbox);
            self.settle_reads(now, outbox);
            self.settle_conditions(now, outbox);
            self.reconcile.forget_settled(tick);
            if !self.reconcile.owes() {
                self.peers.all_were_told();
            }
        }
        if self.has_too_many_letters() {
            self.drop_old_letters(now, outbox);
        }
        self.ask_on(now, outbox);
        self.read_on(now);
        self.reconcile(now, outbox);
        self.collect(now, outbox);
        self.records.tally_on(&self.peers);
        if self.lists.end_idle(tick) {
            self.records.arrivals_mut().watch(false);
        }
        self.counters.misplaced = self.reconcile.misplaced();
        self.counters.lacking = self.reconcile.lacking();
        let lacking = self.peers.lacking().intersection(self.peers.view.connected_nodes());
        self.counters.peers_lacking = lacking.len() as u64;
        let is_full = self.full_at.is_some_and(|at| tick - at < 2 * FULL_MS);
        self.counters.is_full = u64::from(is_full);
        self.counters.walk_seen = self.reconcile.seen().unwrap_or(0);
        self.counters.walks = u64::from(self.reconcile.seen().is_some());
        self.counters.offers_waiting = self.reconcile.offers_waiting();
        self.counters.writes_waiting = self.writes.len() as u64;
        self.counters.letters = self.records.letters().len() as u64;
        self.counters.letter_bytes = self.records.letters().bytes();
        self.count_records();
    }

    #[inline]
    fn count_records(&mut self) {
        let counts = self.records.counts();
        self.counters.timers = counts.timers;
        self.counters.tombstones = counts.tombstones;
        self.counters.waiting = counts.waiting;
    }

    /// Notes that this core got no time for long. A core with peers ticks with every heartbeat.
    /// Peers count from its last heartbeat, so they may suspect it before it was away for as long
    /// as a suspicion takes. So more than half of that time, but at least two heartbeats, counts as
    /// an absence.
    fn notice_absence(&mut self) {
        let limits = &self.config.cluster;
        let away_ms = self.turns.away_ms();
        let least_ms = (limits.suspect_after_ms / 2).max(2 * limits.heartbeat_ms);
        if away_ms <= least_ms || self.peers.is_alone() || !self.turns.note_absence() {
            return;
        }
        let (is_suspected, is_dead) =
            (away_ms > limits.suspect_after_ms, away_ms >= limits.dead_after_ms);
        match is_dead {
            true => self.missed_much(self.turns.at),
            false => self.questions.was_away(self.turns.at, None),
        }
        if is_suspected {
            self.turns.held_until = self.turns.at + HOLD_MS;
            if !is_planted(Bug::WokenCorePopsUnheard) {
                self.questions.be_fresh(self.turns.held_until);
            }
        }
    }

    fn set_view(&mut self, now: Now, view: Arc<View>, outbox: &mut Outbox) {
        let own = self.peers.own_hash();
        assert!(view.own_hash() == own, "a node keeps its name while it runs");
        if self.peers.is_alone() {
            // No node has done anything for this node.
            self.turns.ticked_at = self.turns.at;
        }
        self.peers.see(view);
        self.records.hosts_mut().set_share(self.peers.share());
        self.records.recount_tags(&self.peers, now.mono.tick_floor());
        self.settle_writes(now, outbox);
        self.collect.forget_windows();
        self.reconcile.start_walk(PeerSet::EMPTY);
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
        if liveness != Liveness::Alive {
            self.peers.may_lack(peer);
        }
        if liveness == Liveness::Alive && former != Liveness::Alive {
            self.peers.returned(now.mono.tick_floor(), peer, former);
        }
        if (former == Liveness::Dead) != (liveness == Liveness::Dead) {
            self.records.hosts_mut().set_share(self.peers.share());
            self.records.recount_tags(&self.peers, now.mono.tick_floor());
        }
        if liveness == Liveness::Alive && (has_gaps || former != Liveness::Alive) {
            self.tell_orders(peer, outbox);
        }
        if liveness != Liveness::Alive {
            self.settle_writes(now, outbox);
            self.settle_reads(now, outbox);
            self.settle_conditions(now, outbox);
            self.reconcile.abandon_moves(now.mono.tick_floor(), peer);
            if liveness == Liveness::Dead && former != Liveness::Dead && self.is_site(peer) {
                self.relay_for_site(peer);
            }
        } else if has_gaps || former == Liveness::Dead || self.peers.owed.contains(peer) {
            self.peers.owed = self.peers.owed.without(peer);
            self.reconcile.start_walk(PeerSet::EMPTY.with(peer));
        }
    }

    /// When [`Shard::tick`] should next be called. A tick in the past means at once; `None`: only
    /// an event brings new work.
    pub fn next_wake(&self) -> Option<Tick> {
        if self.pops.is_stopping {
            return None;
        }
        let is_behind = self.pops.is_behind || !self.pops.released.is_empty();
        let is_tallying = !self.records.tallies().is_settled();
        let has_work = self.records.hosts().has_waiting_in_trouble() || self.has_too_many_letters();
        if is_behind || is_tallying || has_work {
            return Some(Tick(0));
        }
        let shown = earlier(self.lists.next_wake(), self.collect.next_wake());
        let asked = earlier(self.reconcile.next_wake(), self.questions.next_wake());
        let asked = earlier(asked, self.reads_at());
        let own = earlier(self.records.next_wake(), self.calendars_wake());
        let wake = earlier(own, earlier(shown, asked));
        let hosts = self.records.hosts();
        let wake = match hosts.waits_for_tick() {
            true => earlier(wake, Some(self.turns.at + 1)),
            false => wake,
        };
        if hosts.has_rules() { earlier(wake, hosts.flows_wake()) } else { wake }
    }

    /// The content of a callback that this shard asked for in an [`Attempt`]. Valid until the next
    /// event.
    pub fn content(&self, attempt: &Attempt) -> Content<'_> {
        self.records.content_of(self.records.get(attempt.ticket.slot))
    }

    /// The authority of a callback host that this shard named in an [`Attempt`].
    pub fn authority(&self, host: HostId) -> &str {
        self.records.hosts().authority(host)
    }

    /// Whether pops were given up of which the log is to be told.
    #[inline]
    pub(crate) fn has_given_up(&self) -> bool {
        self.give_ups.is_due()
    }

    /// Takes the pops that were given up since this was last called.
    pub(crate) fn take_given_up(&mut self) -> GivenUpPops {
        self.give_ups.take()
    }

    /// Begins no further pop. Running pops finish, all others stay where they are.
    pub fn stop_popping(&mut self) {
        self.pops.is_stopping = true;
    }

    /// Callbacks asked for and not finished.
    pub fn in_flight(&self) -> u64 {
        self.counters.in_flight
    }

    /// The counts of statistics tags. The driver takes their changes after every turn.
    pub fn tags_mut(&mut self) -> &mut TagCounts {
        self.records.tags_mut()
    }

    /// Takes the quotas of owners that count from now on. The driver shares them with other shards.
    pub fn set_quotas(&mut self, quotas: Arc<Quotas>) {
        self.records.set_quotas(quotas);
    }

    /// The jobs of this core. The core runs them.
    pub(crate) fn jobs_mut(&mut self) -> &mut Jobs {
        &mut self.jobs
    }

    /// What was counted until the last event or tick.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of memory in use: records, links, wheel, index, payloads.
    pub fn bytes(&self) -> u64 {
        self.records.bytes()
    }

    /// Bytes of memory held: in use, or left over between payloads.
    pub fn held_bytes(&self) -> u64 {
        self.records.held_bytes()
    }

    /// Callback hosts that timers name.
    pub fn hosts_known(&self) -> u64 {
        self.records.hosts().known()
    }

    /// Callback hosts with a lane.
    pub fn lanes(&self) -> u64 {
        self.records.hosts().len()
    }
}

#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
pub(crate) mod harness_tests;
#[cfg(test)]
mod owners_tests;
#[cfg(test)]
mod shard_tests;
#[cfg(test)]
mod site_tests;
