//! One core under io_uring: what each step of a turn does. [`crate::core::turn`] orders the steps.

// May panic: indices 4.
// Why it does not: cores 4.
// Reads the wall clock: whole 1.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::base::ids::{HostId, PeerIndex, ShardIndex};
use crate::base::limits::Limits;
use crate::base::time::Now;
use crate::core::Core;
use crate::core::peers::actions::PeerAction;
use crate::core::turn::{Driver, Step};
use crate::node::list_orders::Ordered;
use crate::ring::{Completion, Errno, Mailbox, Ring, RingError, now};
use crate::shard::effects::{Attempt, CallbackOutcome, Ticket};

use crate::node::callbacks::lanes::{Ended, Lanes};
use crate::node::callbacks::policy::{Destinations, Rules};
use crate::node::clients::table::Clients;
use crate::node::commands::{Command, Commands};
use crate::node::destinations::Duties;
use crate::node::handshakes::secured::Kind;
use crate::node::io::Io;
use crate::node::journal::disk::Disk;
use crate::node::meters::CoreMeters;
use crate::node::owner::Owner;
use crate::node::peers::sockets::PeerSockets;
use crate::node::resolver::threads::{Asker, Resolved, Resolver};
use crate::node::timestamps::server::TimestampServer;
use crate::node::watchdog::Watchdog;

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
    /// Connections for timestamps, and the issuer from which they and the API take. Without a
    /// listener for timestamps there are no connections.
    pub timestamps: TimestampServer,
    /// The core's ring, with its listeners.
    pub ring: Ring,
    /// What the last turn of the ring has completed.
    pub completions: Vec<Completion>,
    /// The resolver's end for this core. Callbacks and peers wait for its answers.
    pub resolver: Resolver,
    /// Commands of the control thread.
    pub commands: Commands,
    /// Mailboxes of the rings of all cores, in shard order.
    pub mailboxes: Arc<[Mailbox]>,
    /// What all cores count, for other threads to read.
    pub meters: Arc<[CoreMeters]>,
    /// The index of this core's meters in `meters`.
    pub own: usize,
    /// Set by a thread that wants the node to stop.
    pub stop: Arc<AtomicBool>,
    /// What operators and peers want of destinations.
    pub duties: Duties,
    /// The limits for clients and turns.
    pub limits: Limits,
    /// The disk of the core's journal, if it has one.
    pub disk: Option<Disk>,
    /// Why the core cannot go on.
    pub failed: Option<RingError>,
    /// Tells what turns over their budget have done.
    pub watchdog: Watchdog,
    /// How long in ns before a due tick the core wakes and spins.
    pub spin_ns: u64,
}

impl Driver for Engine {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn arrivals(&mut self, now: Now) {
        self.timestamps.begin_turn(&mut Io { now, ring: &mut self.ring });
        self.clients.service.time.begin_turn(now.mono);
        self.watchdog.begin(now.mono);
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            self.complete(now, completion);
        }
        self.completions = completions;
        let mut io = Io { now, ring: &mut self.ring };
        self.clients.hand_over(&mut io, &mut self.core, &mut self.peers);
        self.obey(now);
        if self.duties.surveys.has_more() {
            self.duties.surveys.go_on(now, self.core.shard(), &self.callbacks.failing);
        }
        self.shake_hands(now);
        let mut io = Io { now, ring: &mut self.ring };
        self.clients.resume(&mut io, &mut self.core);
        let is_late = self.clients.handshakes.last > now.mono;
        self.callbacks.shake_hands(&mut io, is_late);
        self.timestamps.resume(&mut io);
    }

    fn next_ended(&mut self) -> Option<(Ticket, CallbackOutcome)> {
        let ended = self.callbacks.next_finished()?;
        let disk = self.disk.as_ref();
        let wall = || disk.map_or_else(now, |disk| disk.now(now())).wall;
        self.callbacks.note_end(&ended, wall);
        if ended.said.is_some() {
            self.note_answer(&ended);
        }
        Some((ended.ticket, ended.outcome))
    }

    fn present(&self, _began: Now) -> Now {
        self.now()
    }

    fn call(&mut self, now: Now, attempt: &Attempt) {
        if attempt.number == 1 {
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
        self.timestamps.expire(&mut io, &mut self.clients.handshakes);
    }

    fn act(&mut self, now: Now, action: PeerAction) {
        self.peers.act(&mut Io { now, ring: &mut self.ring }, &mut self.core, action);
    }

    fn store(&mut self, now: Now) {
        if let (Some(disk), Some(journal)) = (&mut self.disk, self.core.journal()) {
            disk.obey(now, &mut self.ring, journal);
        }
    }

    fn answer(&mut self, now: Now) {
        if self.core.has_orders()
            && let Some(heard) = &self.duties.heard
        {
            self.core.take_orders().for_each(|told| heard.push(told));
        }
        self.clients.deliver_replies(&mut self.core);
        self.issue(now);
        self.clients.flush(&mut Io { now, ring: &mut self.ring });
    }

    #[inline]
    fn step_ended(&mut self, step: Step) {
        self.watchdog.ended(step);
    }

    fn wake(&mut self, sibling: ShardIndex) {
        self.ring.wake(self.mailboxes[usize::from(sibling.0)]);
        self.meters[self.own].mesh_wakes.add(1);
    }
}

impl Engine {
    /// Tells the shard what a server said to an attempt, just before the shard is told that the
    /// attempt has ended: so nothing said to another pop takes its place.
    #[cold]
    fn note_answer(&mut self, ended: &Ended) {
        if let (Some(status), Some(answer)) = (ended.status, &ended.said) {
            self.core.shard_mut().note_answer(&ended.ticket, status, answer);
        }
    }

    /// Both clocks now.
    pub fn now(&self) -> Now {
        let now = now();
        self.disk.as_ref().map_or(now, |disk| disk.now(now))
    }

    /// Takes what became of a piece of the journal.
    fn written(&mut self, now: Now, result: Result<(), Errno>) {
        let (Some(disk), Some(journal)) = (&mut self.disk, self.core.journal()) else { return };
        match disk.written(now, result, journal) {
            Ok(us) => self.meters[self.own].journal_sync.record_us(us),
            Err(failure) => self.failed = Some(failure),
        }
    }

    /// Goes on with the handshakes that wait, as long as the turn has time for them.
    fn shake_hands(&mut self, now: Now) {
        let (clients, timestamps) = (&mut self.clients, &mut self.timestamps);
        if !clients.handshakes.has_more() {
            return;
        }
        let Some(until) = clients.handshakes.begin_turn() else { return };
        let mut io = Io { now, ring: &mut self.ring };
        while let Some(next) = clients.handshakes.next() {
            let was_there = match next.kind {
                Kind::Timestamps => timestamps.shake_hands(&mut io, &mut clients.handshakes, next),
                _ => clients.shake_hands(&mut io, &mut self.core, next),
            };
            if was_there && !clients.handshakes.end_step(until) {
                break;
            }
        }
    }

    /// Serves the requests for timestamps that came over HTTP. Then lets all timestamps of this
    /// turn leave, if the clock, read again, still allows it.
    fn issue(&mut self, turn_began: Now) {
        let (timestamps, clients) = (&mut self.timestamps, &mut self.clients);
        clients.ask_timestamps(&mut timestamps.issuer);
        timestamps.issuer.serve_asked(turn_began.mono);
        let may_leave = !timestamps.issuer.has_made() || timestamps.issuer.may_leave(now().mono);
        clients.deliver_timestamps(&mut timestamps.issuer, may_leave);
        timestamps.flush(&mut Io { now: turn_began, ring: &mut self.ring }, may_leave);
    }

    /// Takes the completions of a core that waits, if they tell nothing but that what it sent has
    /// left. Returns whether nothing follows from them, so that the core goes on waiting without a
    /// turn. That is the usual case after answers: the kernel tells at once that they have left.
    pub fn stays_at_rest(&mut self, now: Now) -> bool {
        if !self.completions.iter().all(Engine::tells_only_that_bytes_left) {
            return false;
        }
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            self.complete(now, completion);
        }
        self.completions = completions;
        let has_more = self.callbacks.has_more();
        self.clients.is_at_rest() && self.timestamps.is_at_rest() && !has_more
    }

    /// Whether a completion tells that a whole send has left, on a connection whose next step does
    /// not depend on it. A link to a peer sends its next frames when the ones before have left.
    fn tells_only_that_bytes_left(completion: &Completion) -> bool {
        let Completion::Sent { owner, result: Ok(()), .. } = completion else { return false };
        !matches!(Owner::from_bits(*owner), Owner::Peer(_) | Owner::Inbound(_))
    }

    /// Gives a completion to the part that owns the socket.
    fn complete(&mut self, now: Now, completion: Completion) {
        let Some(owner) = completion.owner() else {
            return match completion {
                Completion::Woken => self.woken(now),
                Completion::Written { result, .. } => self.written(now, result),
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
            Owner::Timestamp(place) => {
                let handshakes = &mut self.clients.handshakes;
                self.timestamps.on(&mut io, handshakes, place, completion);
            }
        }
    }

    /// Takes what other threads have for this core.
    fn woken(&mut self, now: Now) {
        if let (Some(disk), Some(journal)) = (&mut self.disk, self.core.journal()) {
            disk.take_made(now, &mut self.ring, journal);
        }
        self.resolved(now);
    }

    /// Gives the resolver's answers to the parts that asked.
    fn resolved(&mut self, now: Now) {
        let mut io = Io { now, ring: &mut self.ring };
        while let Some(Resolved { asker, name, found }) = self.resolver.next() {
            match asker {
                Asker::Host(host) => self.callbacks.resolved(&mut io, host, (&name, found)),
                Asker::Peer(peer) => {
                    let addresses = found.addresses();
                    self.clients.service.gate.resolved(&name, addresses);
                    let found = (name.as_str(), addresses.to_vec());
                    self.peers.resolved(&mut io, &mut self.core, peer, found);
                }
            }
        }
    }

    /// Obeys the commands of the control thread.
    fn obey(&mut self, now: Now) {
        while let Some(command) = self.commands.next() {
            let core = &mut self.core;
            match command {
                Command::View(view) => {
                    core.set_view(now, view.clone());
                    self.change_destinations(|them| them.listeners.set_view(&view));
                }
                Command::BackUp => core.back_up(),
                Command::List(order) => {
                    match self.clients.ordered.begin(ShardIndex(self.own as u16), order) {
                        Some((from, Ordered::List(asked))) => core.list(now, from, asked),
                        Some((from, Ordered::Timer(target, wanted))) => {
                            core.request(now, from, wanted.request(target));
                        }
                        None => {}
                    }
                }
                Command::Resynchronise => core.resynchronise(now),
                Command::Copies(copies) => core.merge(now, &copies),
                Command::Read(original) => core.shard_mut().note_read(original),
                Command::Members(addresses) => {
                    self.clients.service.gate.set_resolved(addresses.clone());
                    self.change_destinations(|them| them.listeners.set_resolved(addresses));
                }
                Command::Admins(addresses) => {
                    self.change_destinations(|them| them.listeners.set_resolved_admins(addresses));
                }
                Command::Secrets(secrets) => {
                    self.peers.guard.secrets = Some(Arc::clone(&secrets));
                    self.clients.service.guard.secrets = Some(secrets);
                }
                Command::Tokens(tokens) => {
                    core.shard_mut().set_quotas(Arc::clone(tokens.quotas()));
                    self.clients.service.tokens = Some(tokens);
                }
                Command::Signer(signer) => self.callbacks.signer = Some(signer),
                Command::Connector(connector) => {
                    self.callbacks.set_connector(&mut self.ring, connector);
                }
                Command::Rules(rules) => {
                    self.change_destinations(|them| them.rules = Rules::clone(&rules));
                }
                Command::StaticNames(names) => {
                    self.resolver.set_statics(names);
                    self.callbacks.forget_addresses(&mut self.ring);
                }
                Command::Acceptor(acceptor) => self.clients.handshakes.acceptor = Some(acceptor),
                Command::PeerTls(tls) => {
                    self.clients.set_peer_tls(tls.as_ref());
                    self.peers.set_tls(&mut Io { now, ring: &mut self.ring }, core, tls);
                }
                Command::Destinations(rules) => {
                    core.set_flow_rules(now, Arc::clone(&rules.table));
                    self.duties.heard = Some(rules.heard.clone());
                    if self.own == 0 {
                        rules.tell.iter().for_each(|lines| core.tell_orders(lines));
                        if core.shard_mut().set_orders(Arc::clone(&rules.all)) {
                            // Nodes that were connected before have heard nothing yet.
                            rules.all.iter().for_each(|lines| core.tell_orders(lines));
                            core.tell_orders(&[]);
                        }
                    }
                }
                Command::Survey(survey) => self.duties.surveys.push(survey),
                Command::TimestampMaster(master) => self.timestamps.issuer.set_master(master),
            }
        }
    }

    /// Changes where callbacks may go, because members, their addresses or the rules changed.
    fn change_destinations(&mut self, change: impl FnOnce(&mut Destinations)) {
        let mut destinations = Destinations::clone(&self.clients.service.destinations);
        change(&mut destinations);
        // Names are told again and again; a change closes the connections that callbacks keep.
        if destinations != *self.clients.service.destinations {
            self.set_destinations(destinations);
        }
    }

    /// Sets where callbacks may go.
    pub fn set_destinations(&mut self, destinations: Destinations) {
        let destinations = Arc::new(destinations);
        self.callbacks.set_destinations(&mut self.ring, Arc::clone(&destinations));
        self.clients.service.destinations = destinations;
    }
}
