//! The loop of one core: drives shard, connections and lanes with the completions of its ring.
//!
//! A turn is: completions (parsed and routed as they are read) -> mesh inbox -> wheel, bounded pops
//! -> callback lanes -> peers -> answers -> one io_uring_enter, which waits until the next due
//! tick, the next deadline, or an event.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::base::ids::PeerIndex;
use crate::base::limits::Limits;
use crate::base::time::{MonoNs, Now};
use crate::ring::{Completion, Mailbox, Ring, RingError, Wait, now};
use crate::shard::effects::{Attempt, CallbackOutcome};

use crate::node::callbacks::lanes::Lanes;
use crate::node::callbacks::listeners::ClusterListeners;
use crate::node::clients::server::Server;
use crate::node::commands::{Command, Commands};
use crate::node::meters::CoreMeters;
use crate::node::owner::Owner;
use crate::node::peers::sockets::PeerSockets;
use crate::node::publish::publish;
use crate::node::resolver::threads::{Asker, Resolved, Resolver};
use crate::node::timestamps::server::TimestampServer;

/// Callbacks that still run at an orderly stop are waited for this long.
const STOP_MS: u64 = 2_000;
/// After the last callback, answers still being sent are waited for this long.
const STOP_FLUSH_MS: u64 = 200;
/// Meters are published at most this often while the core is busy.
const PUBLISH_EVERY_NS: u64 = 10_000_000;
/// When the control thread has not taken all that was told of statistics tags, the rest is told
/// after this pause, even if nothing else happens.
const TAGS_BEHIND_MS: u64 = 100;

/// A turn that has taken so long begins no callback any more: the process got no time, and what is
/// due is decided anew. Well below the delay of a rank.
const FROZEN_NS: u64 = 500_000_000;

/// Everything that one core drives.
pub struct Engine {
    /// The ring, with its listener.
    pub ring: Ring,
    /// Connections and the core behind them.
    pub server: Server,
    /// Connections for timestamps, and what they and the API take from; without a listener they
    /// stay without work.
    pub timestamps: TimestampServer,
    /// Callback connections.
    pub lanes: Lanes,
    /// Connections with peers.
    pub peers: PeerSockets,
    /// Its answers are for lanes and peers.
    pub resolver: Resolver,
    /// What the control thread asks for.
    pub commands: Commands,
    /// Rings of all cores, in shard order.
    pub mailboxes: Arc<[Mailbox]>,
    /// What this core counts, for others to read.
    pub meters: Arc<[CoreMeters]>,
    /// Which of them is this core's.
    pub own: usize,
    /// Set by whoever wants the node to stop.
    pub stop: Arc<AtomicBool>,
    /// Bounds.
    pub limits: Limits,
    /// Wake that much before a due tick and spin.
    pub spin_ns: u64,
}

impl Engine {
    /// Runs until told to stop and done, or until the ring fails.
    pub fn run(mut self) -> Result<(), RingError> {
        let mut completions = Vec::new();
        let mut attempts = Vec::new();
        let mut wait = Wait::Poll;
        let mut published = MonoNs(0);
        while !self.stop.load(Relaxed) {
            self.ring.turn(wait, &mut completions)?;
            let now = now();
            self.turn(now, &mut completions, &mut attempts);
            wait = self.measure(now, &mut published);
        }
        self.drain(&mut completions, &mut attempts)
    }

    fn turn(&mut self, now: Now, completions: &mut Vec<Completion>, attempts: &mut Vec<Attempt>) {
        self.server.service.core.mesh().woke();
        self.timestamps.begin_turn(now.mono, &mut self.ring);
        for completion in completions.drain(..) {
            self.complete(now, completion);
        }
        self.server.hand_over(now, &mut self.ring, &mut self.peers);
        self.obey(now);
        self.server.resume(now, &mut self.ring);
        self.timestamps.resume(now.mono, &mut self.ring);
        self.server.service.core.inbox(now);
        self.callbacks_finished(now, attempts);
        self.server.service.core.tick(now);
        self.release_hosts();
        self.start_attempts(now, attempts);
        self.lanes.expire(now, &mut self.ring);
        self.callbacks_finished(now, attempts);
        self.server.expire(now, &mut self.ring);
        self.timestamps.expire(now.mono, &mut self.ring);
        self.peers.act(now, &mut self.ring, &mut self.server.service.core);
        self.server.deliver_replies();
        self.issue(now);
        self.server.flush(now, &mut self.ring);
        for sibling in self.server.service.core.mesh().take_wakes() {
            self.ring.wake(self.mailboxes[usize::from(sibling.0)]);
            self.meters[self.own].mesh_wakes.add(1);
        }
    }

    /// Serves the requests for timestamps that came over HTTP, and lets go of all that were made in
    /// this turn, if the clock, read again, still allows it.
    fn issue(&mut self, turn_began: Now) {
        let (timestamps, server) = (&mut self.timestamps, &mut self.server);
        server.ask_timestamps(&mut timestamps.issuer);
        timestamps.issuer.serve_asked(turn_began.mono);
        let may_leave = !timestamps.issuer.has_made() || timestamps.issuer.may_leave(now().mono);
        server.deliver_timestamps(&mut timestamps.issuer, may_leave);
        timestamps.flush(&mut self.ring, may_leave);
    }

    /// Whether the connection that it tells of was closed earlier in this turn: its place may have
    /// another by now. (The other tables compare their sockets themselves.)
    fn is_late(&self, completion: &Completion) -> bool {
        let (owner, socket) = match completion {
            Completion::Connected { owner, socket, .. }
            | Completion::Received { owner, socket, .. }
            | Completion::Ended { owner, socket, .. }
            | Completion::Sent { owner, socket, .. } => (*owner, *socket),
            Completion::Accepted { .. } | Completion::AcceptFailed(_) | Completion::Woken => {
                return false;
            }
        };
        match Owner::from_bits(owner) {
            Owner::Client(place) => !self.server.has(place, socket),
            Owner::Callback(place) => !self.lanes.has(place, socket),
            Owner::Peer(_) | Owner::Inbound(_) | Owner::Timestamp(_) => false,
        }
    }

    fn complete(&mut self, now: Now, completion: Completion) {
        if self.is_late(&completion) {
            return;
        }
        let (ring, server, lanes) = (&mut self.ring, &mut self.server, &mut self.lanes);
        let (peers, timestamps) = (&mut self.peers, &mut self.timestamps);
        match completion {
            Completion::Accepted { owner, socket } => match Owner::from_bits(owner) {
                Owner::Timestamp(_) => timestamps.accept(now.mono, ring, socket),
                _ => server.accept(now, ring, socket),
            },
            Completion::AcceptFailed(_) => server.refused += 1,
            Completion::Connected { owner, result, socket } => match Owner::from_bits(owner) {
                Owner::Callback(place) => lanes.connected(now, ring, place, result.is_ok()),
                Owner::Peer(place) => {
                    let (core, peer) = (&mut server.service.core, PeerIndex(place as u8));
                    peers.connected(now, ring, core, (peer, socket), result.is_ok());
                }
                _ => unreachable!("all others connect to us"),
            },
            Completion::Received { owner, bytes, socket } => match Owner::from_bits(owner) {
                Owner::Client(place) => server.received(now, ring, place, &bytes),
                Owner::Timestamp(place) => {
                    timestamps.received(now.mono, ring, (place, socket), &bytes);
                }
                Owner::Callback(place) => lanes.received(now, ring, place, &bytes),
                Owner::Peer(place) => {
                    let (core, peer) = (&mut server.service.core, PeerIndex(place as u8));
                    peers.received(now, ring, core, (peer, socket), &bytes);
                }
                Owner::Inbound(place) => {
                    let core = &mut server.service.core;
                    peers.inbound_received(now, ring, core, (place, socket), &bytes);
                }
            },
            Completion::Ended { owner, error, socket } => match Owner::from_bits(owner) {
                Owner::Client(place) => server.ended(ring, place, error.is_some()),
                Owner::Timestamp(place) => {
                    timestamps.ended(ring, (place, socket), error.is_some());
                }
                Owner::Callback(place) => lanes.ended(ring, place),
                Owner::Peer(place) => {
                    let (core, peer) = (&mut server.service.core, PeerIndex(place as u8));
                    peers.ended(now, ring, core, (peer, socket));
                }
                Owner::Inbound(place) => {
                    peers.inbound_ended(ring, &mut server.service.core, (place, socket));
                }
            },
            Completion::Sent { owner, buffer, result, socket } => match Owner::from_bits(owner) {
                Owner::Client(place) => server.sent(now, ring, place, buffer, result.is_ok()),
                Owner::Timestamp(place) => {
                    timestamps.sent(now.mono, ring, (place, socket), (buffer, result.is_ok()));
                }
                Owner::Callback(place) => lanes.sent(place, buffer),
                Owner::Peer(place) => {
                    let (core, peer) = (&mut server.service.core, PeerIndex(place as u8));
                    peers.sent(now, ring, core, (peer, socket), (buffer, result.is_ok()));
                }
                Owner::Inbound(place) => {
                    let core = &mut server.service.core;
                    peers.inbound_sent(now, ring, core, (place, socket), (buffer, result.is_ok()));
                }
            },
            Completion::Woken => self.resolved(now),
        }
    }

    /// Hands the answers of the resolver to those who asked.
    fn resolved(&mut self, now: Now) {
        while let Some(Resolved { asker, name, addresses }) = self.resolver.next() {
            let found = (name.as_str(), addresses);
            match asker {
                Asker::Host(host) => self.lanes.resolved(now, &mut self.ring, host, found),
                Asker::Peer(peer) => {
                    self.server.service.gate.resolved(found.0, &found.1);
                    let core = &mut self.server.service.core;
                    self.peers.resolved(now, &mut self.ring, core, peer, found);
                }
            }
        }
    }

    /// Does what the control thread has asked for.
    fn obey(&mut self, now: Now) {
        while let Some(command) = self.commands.next() {
            let core = &mut self.server.service.core;
            match command {
                Command::View(view) => {
                    core.set_view(now, view.clone());
                    self.change_listeners(|listeners| listeners.set_view(&view));
                }
                Command::Resynchronise => core.resynchronise(now),
                Command::Copies(copies) => core.merge(now, &copies),
                Command::Members(addresses) => {
                    self.server.service.gate.set_resolved(addresses.clone());
                    self.change_listeners(|listeners| listeners.set_resolved(addresses));
                }
                Command::Secrets(secrets) => {
                    self.peers.guard.secrets = Some(Arc::clone(&secrets));
                    self.server.service.guard.secrets = Some(secrets);
                }
                Command::TimestampMaster(master) => self.timestamps.issuer.set_master(master),
            }
        }
    }

    /// Other members, or other addresses of them: no callback goes there from now on.
    fn change_listeners(&mut self, change: impl FnOnce(&mut ClusterListeners)) {
        let mut listeners = ClusterListeners::clone(&self.lanes.listeners);
        change(&mut listeners);
        self.set_listeners(listeners);
    }

    /// Where no callback goes.
    pub fn set_listeners(&mut self, listeners: ClusterListeners) {
        let listeners = Arc::new(listeners);
        self.lanes.listeners = Arc::clone(&listeners);
        self.server.service.listeners = listeners;
    }

    /// Tells the shard which callbacks ended, and starts those that get their places, until none is
    /// left.
    fn callbacks_finished(&mut self, now: Now, attempts: &mut Vec<Attempt>) {
        while let Some((ticket, outcome)) = self.lanes.next_finished() {
            self.server.service.core.callback_finished(now, ticket, outcome);
            self.start_attempts(now, attempts);
        }
    }

    fn start_attempts(&mut self, now: Now, attempts: &mut Vec<Attempt>) {
        self.server.service.core.attempts(attempts);
        if attempts.is_empty() {
            return;
        }
        let again = crate::ring::now();
        if again.mono.since_ns(now.mono) >= FROZEN_NS {
            // The process was stopped in this turn: others may have done these pops by now.
            let tickets: Vec<_> = attempts.drain(..).map(|attempt| attempt.ticket).collect();
            for ticket in tickets {
                let core = &mut self.server.service.core;
                core.callback_finished(again, ticket, CallbackOutcome::Stale);
                self.start_attempts(again, attempts);
            }
            return;
        }
        for attempt in attempts.drain(..) {
            if attempt.is_first {
                let late_ns = now.mono.since_ns(attempt.due.begins());
                self.meters[self.own].lateness.record_us(late_ns / 1_000);
            }
            let shard = self.server.service.core.shard();
            self.lanes.start(now, &mut self.ring, shard, &attempt);
        }
    }

    /// Before attempts: they may go to hosts that got the lanes.
    fn release_hosts(&mut self) {
        while let Some(host) = self.server.service.core.outbox().released.pop() {
            self.lanes.release(&mut self.ring, host);
        }
    }

    /// Publishes what the turn counted and finds out how long the next may wait.
    fn measure(&mut self, began: Now, published: &mut MonoNs) -> Wait {
        let ended = now().mono;
        let meters = &self.meters[self.own];
        let turn_us = ended.since_ns(began.mono) / 1_000;
        meters.turns.add(1);
        meters.turn.record_us(turn_us);
        meters.turns_over_budget.add(u64::from(turn_us > self.limits.turn_budget_us));
        let wait = self.next_wait();
        let meters = &self.meters[self.own];
        if wait != Wait::Poll || ended.since_ns(*published) >= PUBLISH_EVERY_NS {
            *published = ended;
            let others = (&self.lanes, &self.peers, &self.timestamps);
            let commands = &self.commands;
            if publish(meters, &mut self.server, others, &self.ring, commands) {
                return wait.at_most(ended.plus_ms(TAGS_BEHIND_MS));
            }
        }
        wait
    }

    fn next_wait(&mut self) -> Wait {
        let has_more = self.server.has_more()
            || self.timestamps.has_more()
            || !self.server.service.core.mesh().may_sleep();
        if has_more {
            return Wait::Poll;
        }
        let due = self
            .server
            .service
            .core
            .next_wake()
            .map(|tick| MonoNs(tick.begins().0.saturating_sub(self.spin_ns)));
        let connections = [self.server.next_wake(), self.timestamps.next_wake()];
        let deadlines = [due, self.lanes.next_wake()].into_iter().chain(connections);
        match deadlines.flatten().min() {
            Some(deadline) if deadline <= now().mono => Wait::Poll,
            Some(deadline) => Wait::Until(deadline),
            None => Wait::Event,
        }
    }

    /// An orderly stop: no new connection, no new pop; running callbacks finish, answers leave.
    fn drain(
        &mut self,
        completions: &mut Vec<Completion>,
        attempts: &mut Vec<Attempt>,
    ) -> Result<(), RingError> {
        let began = now().mono;
        self.ring.stop_listening();
        self.server.service.core.shard_mut().stop_popping();
        self.server.stop();
        self.timestamps.stop();
        let mut idle_since = None;
        loop {
            let at = now();
            let is_running = self.server.service.core.shard().in_flight() > 0;
            if is_running && at.mono < began.plus_ms(STOP_MS) {
                idle_since = None;
            } else {
                let since = *idle_since.get_or_insert(at.mono);
                // What the last pops told other ranks must leave, or those would pop as well.
                let is_closed = self.server.open() == 0 && self.timestamps.open() == 0;
                let is_done = is_closed && self.server.service.core.peers_settled();
                if is_done || at.mono >= since.plus_ms(STOP_FLUSH_MS) {
                    let others = (&self.lanes, &self.peers, &self.timestamps);
                    let (own, commands) = (&self.meters[self.own], &self.commands);
                    let _ = publish(own, &mut self.server, others, &self.ring, commands);
                    return Ok(());
                }
            }
            self.turn(at, completions, attempts);
            self.ring.turn(Wait::Until(at.mono.plus_ms(20)), completions)?;
        }
    }
}
