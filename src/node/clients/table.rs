//! The connections of one core's clients, from accept to close.

// May panic: expectations 1, indices 1.
// Why it does not: found 1, ordered 1.

use crate::base::ids::ShardIndex;
use crate::base::limits::Limits;
use crate::base::slots::{SlotKey, Slots};
use crate::base::time::MonoNs;
use crate::core::Core;
use crate::ring::{Completion, Received, Ring, SocketId, unpredictable};
use crate::shard::effects::Reply;

use crate::core::peers::handshake::{Protocol, write_acceptance};
use crate::core::peers::secret::Word;
use crate::node::buffer_pool::BufferPool;
use crate::node::clients::answer_room::SHORT_BYTES_MAX;
use crate::node::clients::answers::{write_no_timestamps, write_timestamps};
use crate::node::clients::connection::{Appetite, ClientConnection, Home};
use crate::node::clients::service::{Admitted, Api, Service};
use crate::node::deadlines::Deadlines;
use crate::node::handshakes::queue::Handshakes;
use crate::node::handshakes::secured::Kind;
use crate::node::io::Io;
use crate::node::list_orders::ListOrders;
use crate::node::owner::Owner;
use crate::node::peers::sockets::PeerSockets;
use crate::node::timestamps::issuer::{Denial, Issued, Issuer};

/// The place in the owner of a connection that is just accepted: by which listener.
pub const PLAIN_LISTENER: u32 = 0;
pub const TLS_LISTENER: u32 = 1;
/// Connections beyond the limit that are answered 503. Further connections are closed without an
/// answer.
pub const REFUSALS_MAX: usize = 64;
/// Connections of peers that are served beyond the limit and [`REFUSALS_MAX`].
const PEERS_BEYOND_MAX: usize = 64;
/// How long in ms a client may still send after its last answer, so that it reads the answer before
/// a reset.
const LINGER_MS: u64 = 1_000;
/// Most bytes thrown away in that time.
const LINGER_BYTES_MAX: usize = 32 << 20;
/// Time in ms for a client to take its answers. A client that takes longer gives way when there is
/// no room for the answers of other clients.
const STUCK_MS: u64 = 1_000;
/// Number of send buffers kept for reuse; below it the largest kept buffer in bytes.
const POOL_MAX: usize = 1_024;
const POOLED_BYTES_MAX: usize = 64 << 10;

/// The connections of one core's clients, and the API that serves them.
pub struct Clients {
    /// The API of the core.
    pub service: Service,
    /// How many connections were accepted since the start.
    pub accepted: u64,
    /// How many connections were refused at the limit.
    pub refused: u64,
    /// How many requests were answered after they were served, since the start.
    pub answered: u64,
    /// How many connections were closed because their clients took no answers while the answers of
    /// other clients had no room.
    pub stuck_closed: u64,
    /// TLS, for the clients of timestamps as well.
    pub handshakes: Handshakes,
    /// Whether clients are served in the clear.
    pub takes_plain: bool,
    /// What the control thread asks for, which is answered as clients are.
    pub ordered: ListOrders,
    own: ShardIndex,
    pub(super) limits: Limits,
    pub(super) connections: Slots<ClientConnection>,
    /// Places of connections that may have something to send.
    dirty: Vec<u32>,
    /// Places of connections to be fed again in this turn.
    resume: Vec<u32>,
    /// Places of connections that asked for an Upgrade in this turn.
    upgrading: Vec<u32>,
    pub(super) deadlines: Deadlines,
    due: Vec<u32>,
    pool: BufferPool,
    replies: Vec<Reply>,
    partial_bytes: usize,
    is_stopping: bool,
}

impl Clients {
    /// A table without connections.
    pub fn new(service: Service, own: ShardIndex, limits: &Limits, now: MonoNs) -> Self {
        Self {
            service,
            accepted: 0,
            refused: 0,
            answered: 0,
            stuck_closed: 0,
            handshakes: Handshakes::default(),
            takes_plain: true,
            ordered: ListOrders::default(),
            own,
            limits: limits.clone(),
            connections: Slots::new(),
            dirty: Vec::new(),
            resume: Vec::new(),
            upgrading: Vec::new(),
            deadlines: Deadlines::new(now),
            due: Vec::new(),
            pool: BufferPool::new(POOL_MAX, POOLED_BYTES_MAX),
            replies: Vec::new(),
            partial_bytes: 0,
            is_stopping: false,
        }
    }

    /// Handles a completion of the connection at a place. A completion of a connection that was
    /// closed earlier in this turn is ignored, because its place may have another connection.
    pub fn on(&mut self, io: &mut Io<'_>, core: &mut Core, place: u32, completion: Completion) {
        match completion {
            Completion::Accepted { socket, .. } => {
                self.accept(io, core, socket, place == TLS_LISTENER);
            }
            Completion::Received { socket, bytes, .. } if self.has(place, socket) => {
                self.received(io, core, place, &bytes);
            }
            Completion::Ended { socket, error, .. } if self.has(place, socket) => {
                self.ended(io.ring, place, error.is_some());
            }
            Completion::Sent { socket, buffer, result, .. } if self.has(place, socket) => {
                self.sent(io, place, buffer, result.is_ok());
            }
            _ => {}
        }
    }

    fn accept(&mut self, io: &mut Io<'_>, core: &mut Core, socket: SocketId, is_tls: bool) {
        let (now, ring) = (io.now, &mut *io.ring);
        let limit = self.limits.connections_per_core_max as usize;
        let is_beyond = self.connections.len() >= limit;
        // Peers connect here, too, and clients must not keep them out.
        let is_peer = is_beyond && self.service.is_peer(core, ring.far_ends().of(socket));
        let beyond_max = REFUSALS_MAX.min(limit) + if is_peer { PEERS_BEYOND_MAX } else { 0 };
        if self.connections.len() >= limit + beyond_max || self.is_stopping {
            self.refused += 1;
            return ring.close(socket);
        }
        self.accepted += 1;
        let idle_until = now.mono.plus_ms(self.limits.idle_timeout_ms);
        let (shard, deadlines) = (self.own, &mut self.deadlines);
        let key = self.connections.insert_with(|key| {
            ClientConnection::new(
                Home { socket, shard, key },
                deadlines.begin(key.index, idle_until),
            )
        });
        let place = key.index;
        ring.set_owner(socket, Owner::Client(place).to_bits());
        ring.receive(socket);
        if let Some(connection) = self.connections.get_mut(key) {
            let is_judged = self.handshakes.nodes.is_some() || !self.takes_plain;
            connection.is_judged_first = !is_tls && is_judged;
        }
        if is_tls && let Some(connection) = self.connections.get_mut(key) {
            let secured = self.handshakes.begin(now.mono, Kind::Client);
            self.deadlines.set(place, &mut connection.deadline, secured.until);
            connection.secured = Some(Box::new(secured));
        }
        if is_beyond
            && !is_peer
            && let Some(connection) = self.connections.get_mut(key)
        {
            self.refused += 1;
            let reason = "too many connections (limits.connections_per_core_max)";
            connection.fail(&mut self.service, 503, reason);
        }
        self.mark_dirty(place);
    }

    /// Returns whether the connection at this place still has this socket.
    fn has(&self, place: u32, socket: SocketId) -> bool {
        self.connections.at(place).is_some_and(|held| held.socket == socket)
    }

    /// Takes bytes of a client.
    fn received(&mut self, io: &mut Io<'_>, core: &mut Core, place: u32, received: &Received) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        if connection.is_lingering {
            connection.lingered_bytes += received.len();
            if connection.lingered_bytes > LINGER_BYTES_MAX {
                self.close(io.ring, place);
            }
            return;
        }
        if std::mem::take(&mut connection.is_judged_first) {
            self.judge_first(io, core, place, received);
        }
        let Some(connection) = self.connections.at_mut(place) else { return };
        if connection.secured.is_some() {
            return self.received_secured(io, core, place, received);
        }
        let (service, limits) = (&mut self.service, &self.limits);
        let mut api = Api { now: io.now, core, service, limits };
        let appetite = connection.feed(&mut api, io.ring.bytes_and_ends(received));
        self.after_feed(io.ring, core, place, appetite);
    }

    /// Handles that a client will send nothing more.
    pub(super) fn ended(&mut self, ring: &mut Ring, place: u32, is_broken: bool) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        connection.has_ended = true;
        if let Some(secured) = &connection.secured
            && secured.is_handshaking()
            && !is_broken
        {
            // What came before the end may be plain HTTP, which is answered in its turn.
            if !secured.is_queued {
                self.close(ring, place);
            }
            return;
        }
        // A paused connection still holds requests beyond its share of the turn. They are answered
        // first.
        if !connection.is_paused {
            connection.end_requests(&mut self.service, false);
        }
        if is_broken || connection.is_lingering {
            return self.close(ring, place);
        }
        self.mark_dirty(place);
    }

    /// Handles that a send ended.
    fn sent(&mut self, io: &mut Io<'_>, place: u32, buffer: Vec<u8>, is_ok: bool) {
        self.pool.give_back(buffer);
        let Some(connection) = self.connections.at_mut(place) else { return };
        connection.sending_bytes = 0;
        if !is_ok {
            return self.close(io.ring, place);
        }
        if !connection.is_mid_request() && !connection.is_handshaking() {
            connection.deadline.extend(io.now.mono.plus_ms(self.limits.idle_timeout_ms));
        }
        let has_more = connection.has_more_to_send() || connection.is_closing;
        self.recount(place);
        self.resume_if_paused(place);
        if has_more {
            self.mark_dirty(place);
        }
    }

    /// Feeds the connections that had more than their share in the last turn, or whose answers have
    /// left since. Connections that this turn has no room for come first in the next turn.
    pub fn resume(&mut self, io: &mut Io<'_>, core: &mut Core) {
        self.service.room.begin_portion();
        if !self.resume.is_empty() {
            self.service.time.begin_rest();
        }
        let mut deferred = Vec::new();
        for place in std::mem::take(&mut self.resume) {
            let Some(connection) = self.connections.at_mut(place) else { continue };
            connection.is_resuming = false;
            let (service, limits) = (&mut self.service, &self.limits);
            let mut api = Api { now: io.now, core, service, limits };
            let appetite = connection.feed(&mut api, (&mut [], io.ring.far_ends()));
            if appetite == Appetite::Deferred {
                connection.is_resuming = true;
                deferred.push(place);
            }
            self.after_feed(io.ring, core, place, appetite);
        }
        if !deferred.is_empty() {
            deferred.append(&mut self.resume);
            self.resume = deferred;
        }
        self.service.room.begin_portion();
    }

    /// Decides about the peers that asked for an Upgrade in this turn. A connection that the core
    /// accepts leaves this table; the other peers are told why they are refused. Call it when all
    /// completions of the turn have been taken, because some of them may still name the client.
    pub fn hand_over(&mut self, io: &mut Io<'_>, core: &mut Core, peers: &mut PeerSockets) {
        let mut unsent = Vec::new();
        while let Some(place) = self.upgrading.pop() {
            let Some(connection) = self.connections.at_mut(place) else { continue };
            if connection.sending_bytes > 0 {
                // The kernel has not told yet that the challenge left.
                unsent.push(place);
                continue;
            }
            let Some(asked) = connection.upgrade.take() else { continue };
            if connection.has_ended {
                self.close(io.ring, place);
                continue;
            }
            let challenge = connection.challenge.take().map(|nonce| *nonce);
            let caller = connection.caller(io.ring.far_ends());
            let shown = connection.secured.as_ref().and_then(|secured| secured.session());
            let upgrade = (&*asked, challenge, shown);
            let admitted = self.service.admit_upgrade((io.now, core), upgrade, caller);
            match admitted {
                Ok(Admitted::Peer(inbound, proof)) => {
                    let (rest, socket) = (connection.take_rest(), connection.socket);
                    let secured = connection.secured.take();
                    let tls = secured.and_then(|secured| secured.into_session()).map(Box::new);
                    self.forget(place);
                    peers.adopt(io, core, (inbound, socket), (&rest, proof, tls));
                    continue;
                }
                // The other end must wait for the answer before it sends more.
                Ok(_) if !connection.take_rest().is_empty() => {
                    let reason = "a request that waits for no answer came behind an Upgrade";
                    connection.fail(&mut self.service, 400, reason);
                }
                Ok(Admitted::Challenged) => connection.challenge(Word(unpredictable())),
                Ok(Admitted::Site(proof)) => {
                    connection.is_proven = proof.is_some();
                    connection.is_certified = caller.is_node;
                    connection.site_node = asked.site_node().map(Box::new);
                    let own = core.hello();
                    write_acceptance(&mut connection.out, Protocol::Site, &own, proof);
                }
                Err(refusal) => connection.refuse_peer(&mut self.service, &refusal),
            }
            self.recount(place);
            self.mark_dirty(place);
        }
        self.upgrading = unsent;
    }

    /// Returns whether connections wait for the next turn, so that the core must not sleep.
    pub fn has_more(&self) -> bool {
        !self.resume.is_empty() || self.handshakes.has_more()
    }

    /// Returns whether no connection wants anything of this turn.
    pub fn is_at_rest(&self) -> bool {
        self.dirty.is_empty() && !self.has_more() && self.upgrading.is_empty()
    }

    /// Writes the answers of shards to the connections that wait for them.
    pub fn deliver_replies(&mut self, core: &mut Core) {
        let mut replies = std::mem::take(&mut self.replies);
        core.replies(&mut replies);
        for reply in replies.drain(..) {
            let place = reply.to.connection;
            let key = SlotKey { index: place, generation: reply.to.generation };
            let Some(connection) = self.connections.get_mut(key) else {
                self.ordered.end(reply);
                continue;
            };
            connection.answer(reply.to.request, &reply.answer, &mut self.service);
            self.recount(place);
            self.resume_if_paused(place);
            self.answered += 1;
            self.mark_dirty(place);
        }
        self.replies = replies;
    }

    /// Gives this turn's requests for timestamps to the issuer.
    pub fn ask_timestamps(&mut self, issuer: &mut Issuer) {
        let Some(asks) = &mut self.service.timestamp_asks else { return };
        asks.drain(..).for_each(|(from, count)| issuer.ask(from, count));
    }

    /// Writes the answers to requests for timestamps.
    pub fn deliver_timestamps(&mut self, issuer: &mut Issuer, may_leave: bool) {
        while let Some(Issued { to, count, result }) = issuer.next_issued(may_leave) {
            let key = SlotKey { index: to.connection, generation: to.generation };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            connection.answer_by(to.request, |out, persistence| match result {
                Ok(first) => write_timestamps(out, first, count, persistence),
                Err(denial) => {
                    let master = issuer.master().filter(|_| denial == Denial::NotServing);
                    write_no_timestamps(out, &issuer.reason(denial), master, persistence);
                }
            });
            self.resume_if_paused(to.connection);
            self.answered += 1;
            self.mark_dirty(to.connection);
        }
    }

    /// Sends what the turn produced, with one send per connection, and closes connections that are
    /// done.
    pub fn flush(&mut self, io: &mut Io<'_>) {
        for index in 0..self.dirty.len() {
            let place = self.dirty[index];
            let Some(connection) = self.connections.at_mut(place) else { continue };
            connection.is_dirty = false;
            if connection.sending_bytes > 0 {
                continue;
            }
            if let Some(bytes) = connection.next_send(&mut self.pool) {
                connection.sending_bytes = bytes.len();
                connection.sending_since = io.now.mono;
                io.ring.send(connection.socket, bytes);
            } else if connection.is_done() {
                self.finish(io, place);
            }
        }
        self.dirty.clear();
        if self.service.room.take_wanted() {
            self.make_room(io);
        }
    }

    /// Makes room after an answer found none: of the clients that take long over their answers,
    /// closes the connection that holds most. Cost: a look at every connection, once in a turn that
    /// refuses an answer.
    #[cold]
    fn make_room(&mut self, io: &mut Io<'_>) {
        let is_stuck = |connection: &ClientConnection| {
            connection.sending_bytes > 0
                && connection.sending_since.plus_ms(STUCK_MS) <= io.now.mono
                && connection.unsent_bytes() > SHORT_BYTES_MAX
        };
        let held = |place: &u32| {
            let connection = self.connections.at(*place).filter(|one| is_stuck(one));
            connection.map(ClientConnection::unsent_bytes)
        };
        let largest =
            (0..self.connections.places()).max_by_key(held).filter(|at| held(at).is_some());
        if let Some(place) = largest {
            self.stuck_closed += 1;
            self.close(io.ring, place);
        }
    }

    /// Closes connections that are overdue.
    pub fn expire(&mut self, io: &mut Io<'_>) {
        let now = io.now.mono;
        let mut due = std::mem::take(&mut self.due);
        self.deadlines.advance(now, &mut due);
        for place in due.drain(..) {
            let Some(connection) = self.connections.at_mut(place) else { continue };
            if !self.deadlines.is_over(place, &mut connection.deadline, now) {
                continue;
            }
            if connection.is_handshaking() {
                self.handshakes.note_failed(connection.kind());
            }
            if connection.is_mid_request() && connection.sending_bytes == 0 {
                let reason = "the request was not complete in time (limits.idle_timeout_ms)";
                connection.fail(&mut self.service, 408, reason);
                let until = now.plus_ms(LINGER_MS);
                self.deadlines.set(place, &mut connection.deadline, until);
                self.mark_dirty(place);
            } else {
                self.close(io.ring, place);
            }
        }
        self.due = due;
    }

    /// When [`Clients::expire`] should next be called.
    pub fn next_wake(&self) -> Option<MonoNs> {
        self.deadlines.next_wake()
    }

    /// Begins to stop: no new connection, no new request. Answers under way still leave.
    pub fn stop(&mut self) {
        self.is_stopping = true;
        for place in 0..self.connections.places() {
            if let Some(connection) = self.connections.at_mut(place) {
                connection.end_requests(&mut self.service, true);
                if connection.is_handshaking() {
                    connection.break_off();
                }
                self.mark_dirty(place);
            }
        }
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.connections.len()
    }

    /// Bytes of memory held for requests that are not complete.
    pub fn partial_bytes(&self) -> usize {
        self.partial_bytes
    }

    pub(super) fn after_feed(
        &mut self,
        ring: &mut Ring,
        core: &mut Core,
        place: u32,
        appetite: Appetite,
    ) {
        self.account(place);
        let Some(connection) = self.connections.at_mut(place) else { return };
        if connection.upgrade.is_some() && !self.upgrading.contains(&place) {
            self.upgrading.push(place);
        }
        match appetite {
            Appetite::Full | Appetite::Deferred => {
                if !connection.is_paused {
                    connection.is_paused = true;
                    ring.pause(connection.socket);
                }
                if !connection.is_backed_up(&self.limits) {
                    self.resume_if_paused(place);
                }
            }
            Appetite::Hungry if connection.has_ended => {
                connection.is_paused = false;
                connection.end_requests(&mut self.service, false);
            }
            // Bytes that still come are thrown away once the last answer has left. Until then TCP
            // pushes back, or a client that never reads could send without end.
            Appetite::Hungry if connection.is_closing && connection.sending_bytes > 0 => {
                if !connection.is_paused {
                    connection.is_paused = true;
                    ring.pause(connection.socket);
                }
            }
            Appetite::Hungry if connection.is_paused => {
                connection.is_paused = false;
                ring.receive(connection.socket);
            }
            Appetite::Hungry => {}
        }
        self.mark_dirty(place);
        self.deliver_replies(core);
    }

    /// Keeps the sum of begun requests within its limit. The connection that holds most of it is
    /// refused, so that no client is refused for what others hold. Cost at the limit: a look at
    /// every connection. For that the refused client must have sent at least the limit's average
    /// share.
    pub(super) fn account(&mut self, place: u32) {
        self.recount(place);
        while self.partial_bytes as u64 > self.limits.partial_bytes_per_core_max {
            let accounted = |place: &u32| {
                self.connections.at(*place).map_or(0, |connection| connection.accounted_bytes)
            };
            let largest = (0..self.connections.places()).max_by_key(accounted);
            let largest = largest.expect("a sum above 0 has parts");
            if let Some(connection) = self.connections.at_mut(largest) {
                if connection.is_closing {
                    connection.drop_partial();
                } else {
                    let reason =
                        "too many bytes of incomplete requests (limits.partial_bytes_per_core_max)";
                    connection.fail(&mut self.service, 503, reason);
                }
            }
            self.mark_dirty(largest);
            self.recount(largest);
        }
    }

    fn recount(&mut self, place: u32) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        let held = connection.partial_bytes();
        self.partial_bytes = self.partial_bytes + held - connection.accounted_bytes;
        connection.accounted_bytes = held;
        let unsent = connection.unsent_bytes();
        let room = &mut self.service.room;
        room.held_bytes = room.held_bytes + unsent - connection.accounted_unsent_bytes;
        connection.accounted_unsent_bytes = unsent;
    }

    /// Lets a paused connection be fed again in the next turn.
    fn resume_if_paused(&mut self, place: u32) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        if connection.is_paused && !connection.is_resuming {
            connection.is_resuming = true;
            self.resume.push(place);
        }
    }

    pub(super) fn mark_dirty(&mut self, place: u32) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        if !connection.is_dirty {
            connection.is_dirty = true;
            self.dirty.push(place);
        }
    }

    /// Announces the end to the client after all is sent. The connection closes when the client has
    /// closed, or after [`LINGER_MS`].
    fn finish(&mut self, io: &mut Io<'_>, place: u32) {
        let ring = &mut *io.ring;
        let Some(connection) = self.connections.at_mut(place) else { return };
        let is_nonsense = connection.secured.as_ref().is_some_and(|secured| secured.is_nonsense);
        if connection.has_ended || is_nonsense || self.is_stopping {
            return self.close(ring, place);
        }
        if !connection.is_lingering {
            connection.is_lingering = true;
            let until = io.now.mono.plus_ms(LINGER_MS);
            self.deadlines.set(place, &mut connection.deadline, until);
            if connection.is_paused {
                connection.is_paused = false;
                ring.receive(connection.socket);
            }
            ring.finish(connection.socket);
        }
    }

    fn close(&mut self, ring: &mut Ring, place: u32) {
        if let Some(socket) = self.forget(place) {
            ring.close(socket);
        }
    }

    /// Takes a connection out of the table. Returns its socket.
    fn forget(&mut self, place: u32) -> Option<SocketId> {
        let connection = self.connections.remove_at(place)?;
        self.partial_bytes -= connection.accounted_bytes;
        self.service.room.held_bytes -= connection.accounted_unsent_bytes;
        Some(connection.socket)
    }
}
