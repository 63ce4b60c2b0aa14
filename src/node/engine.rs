//! The loop of one core under io_uring: the turn that [`crate::core::turn`] orders, then one
//! io_uring_enter, which waits until the next due tick, the next deadline, or an event.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::base::ids::{HostId, PeerIndex, ShardIndex};
use crate::base::limits::Limits;
use crate::base::time::{MonoNs, Now};
use crate::core::Core;
use crate::core::peers::actions::PeerAction;
use crate::core::turn::{Driver, turn};
use crate::ring::{Completion, Mailbox, Ring, RingError, Wait, now};
use crate::shard::effects::{Attempt, CallbackOutcome, Ticket};

use crate::node::callbacks::lanes::Lanes;
use crate::node::callbacks::listeners::ClusterListeners;
use crate::node::clients::table::Clients;
use crate::node::commands::{Command, Commands};
use crate::node::io::Io;
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

/// One core and everything that it drives.
pub struct Engine {
    /// The core without its ring.
    pub core: Core,
    /// Connections of clients, and the API.
    pub clients: Clients,
    /// Connections to callback servers.
    pub callbacks: Lanes,
    /// Connections with peers.
    pub peers: PeerSockets,
    /// Connections for timestamps, and what they and the API take from; without a listener they
    /// stay without work.
    pub timestamps: TimestampServer,
    /// The ring, with its listener.
    pub ring: Ring,
    /// What the last turn of the ring has completed.
    pub completions: Vec<Completion>,
    /// Its answers are for callbacks and peers.
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

impl Driver for Engine {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn arrivals(&mut self, now: Now) {
        self.timestamps.begin_turn(&mut Io { now, ring: &mut self.ring });
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            self.complete(now, completion);
        }
        self.completions = completions;
        let mut io = Io { now, ring: &mut self.ring };
        self.clients.hand_over(&mut io, &mut self.core, &mut self.peers);
        self.obey(now);
        let mut io = Io { now, ring: &mut self.ring };
        self.clients.resume(&mut io, &mut self.core);
        self.timestamps.resume(&mut io);
    }

    fn next_ended(&mut self) -> Option<(Ticket, CallbackOutcome)> {
        self.callbacks.next_finished()
    }

    fn present(&self, _began: Now) -> Now {
        crate::ring::now()
    }

    fn call(&mut self, now: Now, attempt: &Attempt) {
        if attempt.is_first {
            let late_ns = now.mono.since_ns(attempt.due.begins());
            self.meters[self.own].lateness.record_us(late_ns / 1_000);
        }
        let mut io = Io { now, ring: &mut self.ring };
        self.callbacks.start(&mut io, self.core.shard(), attempt);
    }

    fn release(&mut self, host: HostId) {
        self.callbacks.release(&mut self.ring, host);
    }

    fn expire(&mut self, now: Now) {
        let mut io = Io { now, ring: &mut self.ring };
        self.callbacks.expire(&mut io);
        self.clients.expire(&mut io);
        self.timestamps.expire(&mut io);
    }

    fn act(&mut self, now: Now, action: PeerAction) {
        self.peers.act(&mut Io { now, ring: &mut self.ring }, &mut self.core, action);
    }

    fn answer(&mut self, now: Now) {
        self.clients.deliver_replies(&mut self.core);
        self.issue(now);
        self.clients.flush(&mut Io { now, ring: &mut self.ring });
    }

    fn wake(&mut self, sibling: ShardIndex) {
        self.ring.wake(self.mailboxes[usize::from(sibling.0)]);
        self.meters[self.own].mesh_wakes.add(1);
    }
}

impl Engine {
    /// Runs until told to stop and done, or until the ring fails.
    pub fn run(mut self) -> Result<(), RingError> {
        let mut wait = Wait::Poll;
        let mut published = MonoNs(0);
        while !self.stop.load(Relaxed) {
            self.ring.turn(wait, &mut self.completions)?;
            let now = now();
            turn(&mut self, now);
            wait = self.measure(now, &mut published);
        }
        self.drain()
    }

    /// Serves the requests for timestamps that came over HTTP, and lets go of all that were made in
    /// this turn, if the clock, read again, still allows it.
    fn issue(&mut self, turn_began: Now) {
        let (timestamps, clients) = (&mut self.timestamps, &mut self.clients);
        clients.ask_timestamps(&mut timestamps.issuer);
        timestamps.issuer.serve_asked(turn_began.mono);
        let may_leave = !timestamps.issuer.has_made() || timestamps.issuer.may_leave(now().mono);
        clients.deliver_timestamps(&mut timestamps.issuer, may_leave);
        timestamps.flush(&mut self.ring, may_leave);
    }

    /// Hands a completion to the part whose socket it is of.
    fn complete(&mut self, now: Now, completion: Completion) {
        let Some(owner) = completion.owner() else {
            return match completion {
                Completion::Woken => self.resolved(now),
                _ => self.clients.refused += 1,
            };
        };
        let (mut io, core) = (Io { now, ring: &mut self.ring }, &mut self.core);
        match Owner::from_bits(owner) {
            Owner::Client(place) => self.clients.on(&mut io, core, place, completion),
            Owner::Callback(place) => self.callbacks.on(&mut io, place, completion),
            Owner::Peer(peer) => {
                self.peers.on_dialled(&mut io, core, PeerIndex(peer as u8), completion);
            }
            Owner::Inbound(place) => self.peers.on_inbound(&mut io, core, place, completion),
            Owner::Timestamp(place) => self.timestamps.on(&mut io, place, completion),
        }
    }

    /// Hands the answers of the resolver to those who asked.
    fn resolved(&mut self, now: Now) {
        let mut io = Io { now, ring: &mut self.ring };
        while let Some(Resolved { asker, name, addresses }) = self.resolver.next() {
            let found = (name.as_str(), addresses);
            match asker {
                Asker::Host(host) => self.callbacks.resolved(&mut io, host, found),
                Asker::Peer(peer) => {
                    self.clients.service.gate.resolved(found.0, &found.1);
                    self.peers.resolved(&mut io, &mut self.core, peer, found);
                }
            }
        }
    }

    /// Does what the control thread has asked for.
    fn obey(&mut self, now: Now) {
        while let Some(command) = self.commands.next() {
            let core = &mut self.core;
            match command {
                Command::View(view) => {
                    core.set_view(now, view.clone());
                    self.change_listeners(|listeners| listeners.set_view(&view));
                }
                Command::Resynchronise => core.resynchronise(now),
                Command::Copies(copies) => core.merge(now, &copies),
                Command::Members(addresses) => {
                    self.clients.service.gate.set_resolved(addresses.clone());
                    self.change_listeners(|listeners| listeners.set_resolved(addresses));
                }
                Command::Secrets(secrets) => {
                    self.peers.guard.secrets = Some(Arc::clone(&secrets));
                    self.clients.service.guard.secrets = Some(secrets);
                }
                Command::TimestampMaster(master) => self.timestamps.issuer.set_master(master),
            }
        }
    }

    /// Other members, or other addresses of them: no callback goes there from now on.
    fn change_listeners(&mut self, change: impl FnOnce(&mut ClusterListeners)) {
        let mut listeners = ClusterListeners::clone(&self.callbacks.listeners);
        change(&mut listeners);
        self.set_listeners(listeners);
    }

    /// Where no callback goes.
    pub fn set_listeners(&mut self, listeners: ClusterListeners) {
        let listeners = Arc::new(listeners);
        self.callbacks.listeners = Arc::clone(&listeners);
        self.clients.service.listeners = listeners;
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
        if wait != Wait::Poll || ended.since_ns(*published) >= PUBLISH_EVERY_NS {
            *published = ended;
            if publish(self) {
                return wait.at_most(ended.plus_ms(TAGS_BEHIND_MS));
            }
        }
        wait
    }

    fn next_wait(&mut self) -> Wait {
        let has_more =
            self.clients.has_more() || self.timestamps.has_more() || !self.core.mesh().may_sleep();
        if has_more {
            return Wait::Poll;
        }
        let due = self.core.next_wake();
        let due = due.map(|tick| MonoNs(tick.begins().0.saturating_sub(self.spin_ns)));
        let connections = [self.clients.next_wake(), self.timestamps.next_wake()];
        let deadlines = [due, self.callbacks.next_wake()].into_iter().chain(connections);
        match deadlines.flatten().min() {
            Some(deadline) if deadline <= now().mono => Wait::Poll,
            Some(deadline) => Wait::Until(deadline),
            None => Wait::Event,
        }
    }

    /// An orderly stop: no new connection, no new pop; running callbacks finish, answers leave.
    fn drain(&mut self) -> Result<(), RingError> {
        let began = now().mono;
        self.ring.stop_listening();
        self.core.shard_mut().stop_popping();
        self.clients.stop();
        self.timestamps.stop();
        let mut idle_since = None;
        loop {
            let at = now();
            let is_running = self.core.shard().in_flight() > 0;
            if is_running && at.mono < began.plus_ms(STOP_MS) {
                idle_since = None;
            } else {
                let since = *idle_since.get_or_insert(at.mono);
                // What the last pops told other ranks must leave, or those would pop as well.
                let is_closed = self.clients.open() == 0 && self.timestamps.open() == 0;
                let is_done = is_closed && self.core.peers_settled();
                if is_done || at.mono >= since.plus_ms(STOP_FLUSH_MS) {
                    // Nobody reads what is left to be told of tags.
                    let _ = publish(self);
                    return Ok(());
                }
            }
            turn(self, at);
            self.ring.turn(Wait::Until(at.mono.plus_ms(20)), &mut self.completions)?;
        }
    }
}
