//! Callback lanes: for each callback host the connections that carry its callbacks, one request at
//! a time on each.
//!
//! A lane decides nothing about pops. The shard gives a lane at most as many attempts as the host
//! has places, and is told how each ended. One attempt (name, connection, request, answer) has one
//! deadline.

// May panic: assertions 2, expectations 6, indices 4.
// Why it does not: encoded 1, places 4, ordered 7.
// Reads the wall clock: told 1.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::ids::{HostId, Slot};
use crate::base::limits::CallbackLimits;
use crate::base::slots::Slots;
use crate::base::time::{MonoNs, WallMs};
use crate::ring::{Completion, Errno, Received, Ring, SocketId};
use crate::shard::Shard;
use crate::shard::effects::{Attempt, CallbackOutcome, Ticket};
use crate::store::links::{Fifo, Links};
use crate::wire::callback_uri::{Host, host_and_port, is_secure, parse_authority};

use crate::node::buffer_pool::BufferPool;
use crate::node::callbacks::dialling::{Dialling, Failure, NO_AUTHORITIES};
use crate::node::callbacks::failing::FailingHosts;
use crate::node::callbacks::location::{Location, Next};
use crate::node::callbacks::policy::{Denial, Destinations};
use crate::node::callbacks::request::{
    CallbackRequest, Sender, USUAL_HEADERS, write_request, write_special_request,
};
use crate::node::callbacks::secured::Secured;
use crate::node::callbacks::signing::{Pop, Signer};
use crate::node::deadlines::{Deadline, Deadlines};
use crate::node::io::Io;
use crate::node::owner::Owner;
use crate::node::resolver::threads::{Found, Resolver};
use crate::tls::connector::Connector;
use crate::wire::answer_reader::{AnswerReader, Progress, Verdict};
use crate::wire::wall_time::WallTimeWriter;

/// Number of request buffers kept for reuse; below it the largest kept buffer in bytes.
const POOL_MAX: usize = 1_024;
const POOLED_BYTES_MAX: usize = 64 << 10;
/// Least pause in ms between two questions for the name of a host.
const ASK_AGAIN_MS: u64 = 1_000;

/// An attempt that waits for its connection, with its request.
#[derive(Debug)]
pub(super) struct Call {
    ticket: Ticket,
    request: Vec<u8>,
    deadline: MonoNs,
    /// Whether the shard wants to know what the server says if the attempt fails, and whether it
    /// wants to know the status of a success.
    keeps_answer: bool,
    tells_success: bool,
    /// How many connections were begun for the call, each to another address of the host.
    tries: usize,
}

#[derive(Debug)]
pub(super) struct Lane {
    /// The authority of the callback URIs.
    pub(super) authority: Box<str>,
    /// The name or address that the server's certificate must have. `None`: there is no TLS.
    pub(super) server: Option<Box<str>>,
    location: Location,
    /// Whether a connection to the host has stood since the lane was made.
    has_stood: bool,
    /// Counts the moves of the host to other addresses.
    moves: u32,
    /// `" HTTP/1.1"`, `Host` and the other headers that all callbacks of the host share.
    head: Vec<u8>,
    /// Places of connections without a request, the most recently used last.
    idle: Vec<u32>,
    /// Calls that wait for the name's addresses.
    unresolved: Vec<Call>,
    /// Whether the host has failed since its last success.
    is_failing: bool,
}

/// An attempt that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The attempt.
    pub ticket: Ticket,
    /// How it ended.
    pub outcome: CallbackOutcome,
    /// The status of the answer; `None`: there was none.
    pub status: Option<u16>,
    /// The first bytes of the answer, if the shard wants to know what was said.
    pub said: Option<Box<[u8]>>,
}

#[derive(Debug)]
pub(super) enum State {
    /// The connection is being opened, and the call's request waits for it.
    Connecting(Call),
    /// The connection stands, TLS shakes hands, and the call's request waits.
    Securing(Call),
    /// The request has been sent, and the answer is awaited.
    Busy {
        ticket: Ticket,
        is_reused: bool,
        reader: AnswerReader,
    },
    Idle,
    /// The last bytes of TLS leave, and the connection closes behind them.
    Leaving,
}

#[derive(Debug)]
pub(super) struct CallbackConnection {
    pub(super) socket: SocketId,
    pub(super) host: HostId,
    pub(super) state: State,
    pub(super) is_sending: bool,
    /// TLS, where the lane speaks it.
    pub(super) secured: Option<Box<Secured>>,
    /// [`Lanes::age`] and [`Lane::moves`] when it was opened.
    age: u32,
    moves: u32,
    deadline: Deadline,
}

/// All lanes of one core.
pub struct Lanes {
    pub(super) lanes: Vec<Option<Lane>>,
    pub(super) connections: Slots<CallbackConnection>,
    open_max: usize,
    /// Connections of which nothing is expected, the one that has been so for longest first: these
    /// give way to new ones.
    spare: Fifo,
    links: Links,
    deadlines: Deadlines,
    due: Vec<u32>,
    /// Deadlines of calls that wait, or waited, for the name of a host, with the host's number.
    resolving: BTreeSet<(MonoNs, u32)>,
    resolver: Resolver,
    destinations: Arc<Destinations>,
    /// Hosts that have failed since their last success.
    pub failing: FailingHosts,
    /// Signs callbacks. `None`: nobody does.
    pub signer: Option<Arc<Signer>>,
    /// Counts changes of the destinations.
    age: u32,
    /// How many attempts were denied, in the order of [`Denial::ALL`].
    pub denied: [u64; Denial::ALL.len()],
    /// What connections over TLS are dialled with.
    pub dialling: Dialling,
    limits: CallbackLimits,
    times: WallTimeWriter,
    pub(super) pool: BufferPool,
    pub(super) finished: Vec<Ended>,
}

impl Lanes {
    /// No lane yet. `open_max` is the most connections of all hosts together.
    pub fn new(resolver: Resolver, limits: &CallbackLimits, open_max: u32, now: MonoNs) -> Self {
        Self {
            lanes: Vec::new(),
            connections: Slots::new(),
            open_max: open_max as usize,
            spare: Fifo::new(),
            links: Links::new(),
            deadlines: Deadlines::new(now),
            due: Vec::new(),
            resolving: BTreeSet::new(),
            resolver,
            destinations: Arc::default(),
            age: 0,
            failing: FailingHosts::default(),
            signer: None,
            denied: Default::default(),
            dialling: Dialling::default(),
            limits: limits.clone(),
            times: WallTimeWriter::default(),
            pool: BufferPool::new(POOL_MAX, POOLED_BYTES_MAX),
            finished: Vec::new(),
        }
    }

    /// Sets where callbacks may go. Connections that stand are closed, at once or when their
    /// request is over: they may lead where no callback may go now.
    pub fn set_destinations(&mut self, ring: &mut Ring, destinations: Arc<Destinations>) {
        self.destinations = destinations;
        self.age = self.age.wrapping_add(1);
        let hosts = 0..self.lanes.len() as u32;
        hosts.for_each(|host| self.drop_idle(ring, HostId(host)));
    }

    /// Has all names looked up again, because they may lead elsewhere. Connections that stand are
    /// closed, at once or when their request is over.
    pub fn forget_addresses(&mut self, ring: &mut Ring) {
        for lane in self.lanes.iter_mut().flatten() {
            lane.location.forget();
        }
        self.set_destinations(ring, Arc::clone(&self.destinations));
    }

    /// Sets what connections over TLS are dialled with; `None`: this node believes no authority.
    /// Those that stand are closed, at once or when their request is over.
    pub fn set_connector(&mut self, ring: &mut Ring, connector: Option<Arc<Connector>>) {
        self.dialling.set_connector(connector);
        let speaks_tls = |lane: &Option<Lane>| lane.as_ref().is_some_and(|it| it.server.is_some());
        for host in (0..self.lanes.len() as u32).map(HostId) {
            if self.lanes.get(host.0 as usize).is_some_and(speaks_tls) {
                self.drop_idle(ring, host);
            }
        }
    }

    /// Begins an attempt: copies its content from the shard into a request, and sends the request
    /// as soon as there is a connection.
    pub fn start(&mut self, io: &mut Io<'_>, shard: &Shard, attempt: &Attempt) {
        let host = attempt.ticket.host;
        if self.lanes.len() <= host.0 as usize {
            self.lanes.resize_with(host.0 as usize + 1, || None);
        }
        let (lane, failing) = (&mut self.lanes[host.0 as usize], &self.failing);
        let lane = lane.get_or_insert_with(|| {
            let authority = shard.authority(host);
            Lane::new(authority, failing.has(authority))
        });
        let mut request = self.pool.take();
        let content = shard.content(attempt);
        let Ticket { id, version, sequence, .. } = attempt.ticket;
        let mut callback = CallbackRequest {
            head: &lane.head,
            target: content.target,
            opaque: content.opaque,
            pop: Pop { id, version, sequence },
            told: self.limits.timer_headers.then(|| shard.told_timer(io.now, attempt)),
        };
        let signed = self.signer.as_deref().map(|signer| (signer, io.now.wall));
        let mut sender = Sender { signed, times: &mut self.times };
        let mut timeout_ms = self.limits.timeout_ms;
        let (mut keeps_answer, mut tells_success) = (self.limits.dead_letters.plain, false);
        if content.has_attributes() {
            let attributes = content.attributes();
            callback.pop.sequence += attributes.cron.map_or(0, |cron| cron.done);
            write_special_request(&mut request, &callback, &attributes, &mut sender);
            timeout_ms = attributes.timeout_ms.unwrap_or(timeout_ms);
            tells_success = attributes.on_success.is_some() && attributes.letter.is_none();
            let is_told = tells_success || attributes.on_failure.is_some();
            keeps_answer |= is_told || attributes.retry.is_some() || attributes.replay.is_some();
        } else {
            write_request(&mut request, &callback, &mut sender);
        }
        let deadline = io.now.mono.plus_ms(timeout_ms);
        let ticket = attempt.ticket;
        let call = Call { ticket, request, deadline, keeps_answer, tells_success, tries: 0 };
        match lane.idle.pop() {
            Some(place) => {
                let fresh_ms = self.limits.resolve_ttl_ms;
                lane.location.ask_if_old(host, io.now.mono, &self.resolver, fresh_ms);
                self.send(io.ring, place, call, true);
            }
            None => self.open_connection(io, call),
        }
    }

    /// Handles a completion of the connection at a place. A completion of a connection that was
    /// closed earlier in this turn is ignored, because its place may have another connection.
    pub fn on(&mut self, io: &mut Io<'_>, place: u32, completion: Completion) {
        match completion {
            Completion::Connected { socket, result, .. } if self.has(place, socket) => {
                self.connected(io, place, result);
            }
            Completion::Received { socket, bytes, .. } if self.has(place, socket) => {
                self.received(io, place, &bytes);
            }
            Completion::Ended { socket, .. } if self.has(place, socket) => {
                self.ended(io, place);
            }
            Completion::Sent { socket, buffer, .. } if self.has(place, socket) => {
                self.sent(io.ring, place, buffer);
            }
            _ => {}
        }
    }

    /// Returns whether the connection at this place still has this socket.
    pub(super) fn has(&self, place: u32, socket: SocketId) -> bool {
        self.connections.at(place).is_some_and(|held| held.socket == socket)
    }

    /// Handles that a connection stands or failed. A name with several addresses has failed when
    /// all of its addresses have.
    fn connected(&mut self, io: &mut Io<'_>, place: u32, result: Result<(), Errno>) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        let host = connection.host;
        let State::Connecting(call) = std::mem::replace(&mut connection.state, State::Idle) else {
            // The ring tells the end of a connect once, and tells nothing of a socket that was
            // closed.
            unreachable!("a connection is told once that it stands");
        };
        let lane = self.lanes[host.0 as usize].as_mut().expect("a lane outlives its attempts");
        let Err(errno) = result else {
            lane.has_stood = true;
            if connection.secured.is_some() {
                return self.begin_handshake(io.ring, place, call);
            }
            io.ring.receive(connection.socket);
            return self.send(io.ring, place, call, false);
        };
        let addresses = lane.location.addresses();
        let is_lack = errno.is_lack() || errno.is_without_address() && lane.has_stood;
        self.drop_connection(io.ring, place);
        if call.tries < addresses {
            return self.open_connection(io, call);
        }
        if is_lack {
            return self.end(call, CallbackOutcome::Lacking);
        }
        self.doubt(host, io.now.mono);
        self.end(call, CallbackOutcome::Unreachable);
    }

    /// Asks again where a host is that does not answer there: it may have moved.
    pub(super) fn doubt(&mut self, host: HostId, now: MonoNs) {
        if let Some(Some(lane)) = self.lanes.get_mut(host.0 as usize) {
            lane.location.ask_if_old(host, now, &self.resolver, ASK_AGAIN_MS);
        }
    }

    /// Takes bytes of a callback server. Whatever they are, they end at most this attempt and its
    /// connection. `place` names a connection that stands, because late completions are ignored.
    /// The lane exists, because the shard still counts an attempt at its host.
    fn received(&mut self, io: &mut Io<'_>, place: u32, received: &Received) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        if connection.secured.is_some() {
            return self.received_secured(io, place, received);
        }
        let progress = connection.read(io.ring.bytes_mut(received));
        self.progressed(io, place, progress);
    }

    /// Acts on how much of an answer has arrived. `None`: nobody waits for one.
    pub(super) fn progressed(
        &mut self,
        io: &mut Io<'_>,
        place: u32,
        progress: Option<(Ticket, Progress)>,
    ) {
        let Some(connection) = self.connections.at(place) else { return };
        let host = connection.host;
        match progress {
            Some((_, Progress::Partial)) => return,
            Some((_, Progress::Complete { reusable, .. })) => {
                self.finished.extend(answered(&connection.state));
                if reusable && !connection.is_sending && self.is_of_today(connection) {
                    return self.make_idle(io.now.mono, place);
                }
                return self.part(io.ring, place);
            }
            Some((ticket, Progress::Garbage)) => {
                self.finished.push(Ended::without_answer(ticket, CallbackOutcome::Unreachable));
                self.doubt(host, io.now.mono);
            }
            // An answer to no request: nothing that follows on this connection can be trusted.
            None => {}
        }
        self.drop_connection(io.ring, place);
    }

    /// Whether the connection was opened under the destinations, the connector and the addresses of
    /// now.
    fn is_of_today(&self, connection: &CallbackConnection) -> bool {
        let is_known = |secured: &Secured| secured.age == self.dialling.age;
        let lane = self.lanes.get(connection.host.0 as usize).and_then(Option::as_ref);
        connection.age == self.age
            && lane.is_some_and(|lane| lane.moves == connection.moves)
            && connection.secured.as_deref().is_none_or(is_known)
    }

    /// Handles that a callback server closed the connection or that it broke.
    pub(super) fn ended(&mut self, io: &mut Io<'_>, place: u32) {
        let (now, ring) = (io.now.mono, &mut *io.ring);
        let Some(connection) = self.connections.at_mut(place) else { return };
        let host = connection.host;
        match &connection.state {
            State::Busy { ticket, is_reused, reader } => {
                let is_stale = *is_reused && !reader.has_begun;
                let outcome = match is_stale {
                    true => CallbackOutcome::Stale,
                    false => CallbackOutcome::Unreachable,
                };
                let (ticket, ended) = (*ticket, answered(&connection.state));
                if is_stale {
                    // The other idle connections have been idle for longer. The next attempt must
                    // not meet the same.
                    self.drop_idle(ring, host);
                } else if ended.is_none() {
                    self.doubt(host, now);
                }
                self.finished.push(ended.unwrap_or(Ended::without_answer(ticket, outcome)));
            }
            // Receiving begins when the connection stands, so it cannot have ended before.
            State::Connecting(_) => unreachable!("nothing is received before a connection stands"),
            State::Securing(_) => {
                return self.fail(
                    ring,
                    place,
                    Failure::Unfinished,
                    "the server closed within the handshake",
                );
            }
            State::Idle | State::Leaving => {}
        }
        self.drop_connection(ring, place);
    }

    /// Handles that a request was sent, or that the connection broke under it. In the second case
    /// the connection's end is told as well.
    fn sent(&mut self, ring: &mut Ring, place: u32, buffer: Vec<u8>) {
        self.pool.give_back(buffer);
        if let Some(connection) = self.connections.at_mut(place) {
            connection.is_sending = false;
            if connection.secured.is_some() {
                self.sent_secured(ring, place);
            }
        }
    }

    /// Takes the resolver's answer.
    pub fn resolved(&mut self, io: &mut Io<'_>, host: HostId, (asked_for, found): (&str, Found)) {
        let lane = self.lanes.get_mut(host.0 as usize).and_then(Option::as_mut);
        let Some(lane) = lane else { return };
        let Some(has_moved) = lane.location.found(asked_for, &found) else { return };
        let waiting = std::mem::take(&mut lane.unresolved);
        if found == Found::Lacking && lane.location.addresses() == 0 {
            return waiting.into_iter().for_each(|call| self.end(call, CallbackOutcome::Lacking));
        }
        if has_moved {
            lane.moves = lane.moves.wrapping_add(1);
            self.drop_idle(io.ring, host);
        }
        for call in waiting {
            self.open_connection(io, call);
        }
    }

    /// Ends what is overdue: attempts without an answer, and connections idle for too long.
    pub fn expire(&mut self, io: &mut Io<'_>) {
        let now = io.now.mono;
        let mut due = std::mem::take(&mut self.due);
        self.deadlines.advance(now, &mut due);
        for place in due.drain(..) {
            let Some(connection) = self.connections.at_mut(place) else { continue };
            if !self.deadlines.is_over(place, &mut connection.deadline, now) {
                continue;
            }
            let host = connection.host;
            match &connection.state {
                State::Connecting(call) => {
                    let ended = Ended::without_answer(call.ticket, CallbackOutcome::TimedOut);
                    self.finished.push(ended);
                    self.doubt(host, now);
                }
                State::Busy { ticket, .. } => {
                    let ended = answered(&connection.state);
                    let late = Ended::without_answer(*ticket, CallbackOutcome::TimedOut);
                    if ended.is_none() {
                        self.doubt(host, now);
                    }
                    self.finished.push(ended.unwrap_or(late));
                }
                // The server has done its part, and this core had no time for its own.
                State::Securing(call) if connection.is_queued() => {
                    let ended = Ended::without_answer(call.ticket, CallbackOutcome::Lacking);
                    self.finished.push(ended);
                }
                State::Securing(call) => {
                    let ended = Ended::without_answer(call.ticket, CallbackOutcome::TimedOut);
                    self.finished.push(ended);
                    self.note(place, Failure::Unfinished, "no end of the handshake in time");
                }
                State::Idle if connection.secured.is_some() => {
                    let until = now.plus_ms(self.limits.timeout_ms);
                    self.deadlines.set(place, &mut connection.deadline, until);
                    self.part(io.ring, place);
                    continue;
                }
                State::Idle | State::Leaving => {}
            }
            self.drop_connection(io.ring, place);
        }
        self.due = due;
        self.expire_unresolved(now);
    }

    /// When [`Lanes::expire`] should next be called.
    pub fn next_wake(&self) -> Option<MonoNs> {
        let unresolved = self.resolving.first().map(|(deadline, _)| *deadline);
        unresolved.into_iter().chain(self.deadlines.next_wake()).min()
    }

    /// Takes note of an attempt that ended, for whoever asks how hosts are. `now` reads the clock.
    #[inline]
    pub fn note_end(&mut self, ended: &Ended, now: impl Fn() -> WallMs) {
        let Some(Some(lane)) = self.lanes.get_mut(ended.ticket.host.0 as usize) else { return };
        match ended.outcome {
            CallbackOutcome::Delivered if !lane.is_failing => {}
            CallbackOutcome::Delivered => {
                lane.is_failing = false;
                self.failing.succeeded(&lane.authority);
            }
            // These say nothing of the host, or that it is in order.
            CallbackOutcome::Denied
            | CallbackOutcome::Stale
            | CallbackOutcome::Gone
            | CallbackOutcome::Lacking => {}
            outcome => {
                lane.is_failing = true;
                self.failing.failed(&lane.authority, (outcome, ended.status), now());
            }
        }
    }

    /// Takes an attempt that ended, in no order.
    pub fn next_finished(&mut self) -> Option<Ended> {
        self.finished.pop()
    }

    /// Drops the lane of a host that no timer names any more.
    pub fn release(&mut self, ring: &mut Ring, host: HostId) {
        self.drop_idle(ring, host);
        if let Some(lane) = self.lanes.get_mut(host.0 as usize) {
            *lane = None;
        }
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.connections.len()
    }

    fn open_connection(&mut self, io: &mut Io<'_>, mut call: Call) {
        let (now, ring) = (io.now.mono, &mut *io.ring);
        let host = call.ticket.host;
        let lane = self.lanes[host.0 as usize].as_mut().expect("made by the attempt");
        let is_secure = lane.server.is_some();
        if is_secure && !self.dialling.is_possible() {
            self.dialling.failed(&lane.authority, Failure::NoAuthorities, NO_AUTHORITIES);
            return self.end(call, CallbackOutcome::Unreachable);
        }
        let destinations = &self.destinations;
        let address =
            match lane.location.next(host, now, &self.resolver, &self.limits, destinations) {
                Next::Address(address) => address,
                Next::Asked => {
                    self.resolving.insert((call.deadline, host.0));
                    return lane.unresolved.push(call);
                }
                Next::Nowhere => return self.end(call, CallbackOutcome::Unreachable),
                Next::Lacking => return self.end(call, CallbackOutcome::Lacking),
                Next::Denied(denial) => {
                    if let Some(count) = self.denied.get_mut(denial as usize) {
                        *count += 1;
                    }
                    return self.end(call, CallbackOutcome::Denied);
                }
            };
        let moves = lane.moves;
        if self.connections.len() >= self.open_max && !self.drop_one_spare(ring) {
            return self.end(call, CallbackOutcome::Lacking);
        }
        let socket = match ring.connect(address, 0) {
            Ok(socket) => socket,
            Err(errno) if errno.is_lack() => return self.end(call, CallbackOutcome::Lacking),
            Err(_) => return self.end(call, CallbackOutcome::Unreachable),
        };
        call.tries += 1;
        let (deadlines, age) = (&mut self.deadlines, self.age);
        let secured = is_secure.then(|| Box::new(Secured::new(self.dialling.age)));
        let key = self.connections.insert_with(|key| {
            let deadline = deadlines.begin(key.index, call.deadline);
            let state = State::Connecting(call);
            let is_sending = false;
            CallbackConnection { socket, host, state, is_sending, secured, age, moves, deadline }
        });
        self.links.ensure(Slot(key.index));
        ring.set_owner(socket, Owner::Callback(key.index).to_bits());
    }

    /// Ends an attempt that has no connection.
    pub(super) fn end(&mut self, call: Call, outcome: CallbackOutcome) {
        self.finished.push(Ended::without_answer(call.ticket, outcome));
        self.pool.give_back(call.request);
    }

    pub(super) fn send(&mut self, ring: &mut Ring, place: u32, call: Call, is_reused: bool) {
        let connection = self.connections.at_mut(place).expect("an idle connection is open");
        let reader = match call.keeps_answer {
            true => AnswerReader::keeping(call.tells_success),
            false => AnswerReader::default(),
        };
        connection.state = State::Busy { ticket: call.ticket, is_reused, reader };
        if is_reused {
            self.spare.remove(&mut self.links, Slot(place));
        }
        self.deadlines.set(place, &mut connection.deadline, call.deadline);
        if let Some(secured) = &mut connection.secured {
            secured.write(&call.request);
            self.pool.give_back(call.request);
            return self.flush(ring, place);
        }
        connection.is_sending = true;
        ring.send(connection.socket, call.request);
    }

    fn make_idle(&mut self, now: MonoNs, place: u32) {
        let connection = self.connections.at_mut(place).expect("it was busy just now");
        connection.state = State::Idle;
        let idle_until = now.plus_ms(self.limits.idle_timeout_ms);
        self.deadlines.set(place, &mut connection.deadline, idle_until);
        let lane = self.lanes[connection.host.0 as usize].as_mut();
        lane.expect("a lane outlives its attempts").idle.push(place);
        self.make_spare(place);
    }

    /// Notes that nothing is expected of a connection any more.
    pub(super) fn make_spare(&mut self, place: u32) {
        if !self.links.is_linked(Slot(place)) {
            self.spare.push_back(&mut self.links, Slot(place));
        }
    }

    fn drop_idle(&mut self, ring: &mut Ring, host: HostId) {
        let lane = self.lanes.get_mut(host.0 as usize).and_then(Option::as_mut);
        let idle = lane.map(|lane| std::mem::take(&mut lane.idle)).unwrap_or_default();
        for place in idle {
            self.part(ring, place);
        }
    }

    /// Makes room for another connection by closing the one of which nothing is expected for the
    /// longest time. Returns `false` when something is expected of all.
    fn drop_one_spare(&mut self, ring: &mut Ring) -> bool {
        let Some(place) = self.spare.front() else { return false };
        self.drop_connection(ring, place.0);
        true
    }

    pub(super) fn drop_connection(&mut self, ring: &mut Ring, place: u32) {
        let Some(connection) = self.connections.remove_at(place) else { return };
        ring.close(connection.socket);
        if self.links.is_linked(Slot(place)) {
            self.spare.remove(&mut self.links, Slot(place));
        }
        if matches!(connection.state, State::Idle) {
            self.forget_idle(connection.host, place);
        }
    }

    /// Takes a connection out of those that wait for a call.
    pub(super) fn forget_idle(&mut self, host: HostId, place: u32) {
        if let Some(Some(lane)) = self.lanes.get_mut(host.0 as usize) {
            lane.idle.retain(|idle| *idle != place);
        }
    }

    /// Ends calls whose name was not resolved in time.
    fn expire_unresolved(&mut self, now: MonoNs) {
        while let Some(&(deadline, host)) = self.resolving.first() {
            if now < deadline {
                return;
            }
            self.resolving.pop_first();
            let Some(Some(lane)) = self.lanes.get_mut(host as usize) else { continue };
            for call in lane.unresolved.extract_if(.., |call| now >= call.deadline) {
                let ended = Ended::without_answer(call.ticket, CallbackOutcome::TimedOut);
                self.finished.push(ended);
            }
        }
    }
}

impl Lane {
    fn new(authority: &str, is_failing: bool) -> Self {
        let parsed = parse_authority(authority);
        let (host, port) = parsed.expect("authorities are parsed before they are stored");
        let server = is_secure(authority).then(|| match host {
            Host::Address(address) => address.to_string().into(),
            Host::Name(name) => name.into(),
        });
        let location = Location::of(host, port);
        let head = format!(" HTTP/1.1\r\nHost: {}\r\n{USUAL_HEADERS}", host_and_port(authority));
        Self {
            authority: authority.into(),
            server,
            location,
            has_stood: false,
            moves: 0,
            head: head.into_bytes(),
            idle: Vec::new(),
            unresolved: Vec::new(),
            is_failing,
        }
    }
}

impl Ended {
    /// An attempt without an answer.
    pub(super) fn without_answer(ticket: Ticket, outcome: CallbackOutcome) -> Self {
        Self { ticket, outcome, status: None, said: None }
    }
}

impl CallbackConnection {
    /// Reads bytes of the answer that is awaited. `None`: none is.
    #[inline]
    pub(super) fn read(&mut self, bytes: &[u8]) -> Option<(Ticket, Progress)> {
        let State::Busy { ticket, reader, .. } = &mut self.state else { return None };
        Some((*ticket, reader.feed(bytes)))
    }

    /// Whether the handshake waits for this core's time.
    fn is_queued(&self) -> bool {
        self.secured.as_ref().is_some_and(|secured| secured.is_queued)
    }
}

/// How the attempt of a connection ended, if a status has arrived. `None`: none has, or there is no
/// attempt.
#[inline]
pub(super) fn answered(state: &State) -> Option<Ended> {
    let State::Busy { ticket, reader, .. } = state else { return None };
    let verdict = reader.end()?;
    let said = reader.said().map(|(_, answer)| answer.into());
    let (ticket, status) = (*ticket, Some(verdict.status));
    Some(Ended { ticket, outcome: outcome(verdict), status, said })
}

fn outcome(verdict: Verdict) -> CallbackOutcome {
    match (verdict.status, verdict.retry_after) {
        (200..300, _) => CallbackOutcome::Delivered,
        (410, _) => CallbackOutcome::Gone,
        (_, Some(after)) => CallbackOutcome::Later(after),
        _ => CallbackOutcome::Rejected,
    }
}
