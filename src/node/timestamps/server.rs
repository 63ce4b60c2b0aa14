//! The connections for timestamps of one core, from accept to close.

// May panic: assertions 1, expectations 1, indices 1.
// Why it does not: found 1, ordered 2.

use std::collections::VecDeque;

use crate::base::slots::Slots;
use crate::base::time::{MonoNs, earlier};
use crate::ring::{Completion, Received, Ring, SocketId};
use crate::wire::thrift::Form;

use crate::node::buffer_pool::BufferPool;
use crate::node::deadlines::Deadlines;
use crate::node::handshakes::queue::Handshakes;
use crate::node::handshakes::secured::Kind;
use crate::node::io::Io;
use crate::node::owner::Owner;
use crate::node::settings::TimestampSettings;
use crate::node::timestamps::connection::{Appetite, TimestampConnection};
use crate::node::timestamps::issuer::Issuer;

/// The place in the owner of a connection that is just accepted: by which listener.
pub const PLAIN_LISTENER: u32 = 0;
pub const TLS_LISTENER: u32 = 1;
/// Most bytes of requests not taken and of handshakes, over all connections of a core. Above it the
/// connection that holds most of them is closed.
const PARTIAL_BYTES_MAX: usize = 32 << 20;
/// Number of send buffers kept for reuse; below it the largest kept buffer in bytes.
const POOL_MAX: usize = 1_024;
const POOLED_BYTES_MAX: usize = 64 << 10;

/// How long in ms a client that sent something else than a request may take to read the replies
/// before it, and one that speaks TLS what it was sent last.
const LINGER_MS: u64 = 1_000;

/// The connections for timestamps of one core.
#[derive(Debug)]
pub struct TimestampServer {
    /// How many connections were accepted since the start.
    pub accepted: u64,
    /// How many connections were closed at a limit, or not accepted.
    pub refused: u64,
    /// How many connections were closed because something came that was no request.
    pub protocol_errors: u64,
    /// Where requests take their timestamps.
    pub issuer: Issuer,
    pub(super) form: Form,
    /// Whether there is a port for calls in the clear.
    pub(super) takes_plain: bool,
    connections_max: usize,
    pub(super) idle_timeout_ms: u64,
    pub(super) connections: Slots<TimestampConnection>,
    /// Places of connections that may have something to send.
    dirty: Vec<u32>,
    /// Places of connections to be fed again in the next turn.
    resume: Vec<u32>,
    /// Connections whose first request waits, in the order in which they began to wait. A place may
    /// have another connection since.
    waiting: VecDeque<(u32, SocketId)>,
    pub(super) deadlines: Deadlines,
    due: Vec<u32>,
    pub(super) pool: BufferPool,
    partial_bytes: usize,
    is_stopping: bool,
}

impl TimestampServer {
    /// A server without connections.
    pub fn new(settings: &TimestampSettings, issuer: Issuer, now: MonoNs) -> Self {
        Self {
            issuer,
            accepted: 0,
            refused: 0,
            protocol_errors: 0,
            form: if settings.strict_replies { Form::Strict } else { Form::Old },
            takes_plain: settings.listen.is_some(),
            connections_max: settings.connections_per_core_max as usize,
            idle_timeout_ms: settings.idle_timeout_ms,
            connections: Slots::new(),
            dirty: Vec::new(),
            resume: Vec::new(),
            waiting: VecDeque::new(),
            deadlines: Deadlines::new(now),
            due: Vec::new(),
            pool: BufferPool::new(POOL_MAX, POOLED_BYTES_MAX),
            partial_bytes: 0,
            is_stopping: false,
        }
    }

    /// Handles a completion of the connection at a place.
    pub fn on(
        &mut self,
        io: &mut Io<'_>,
        handshakes: &mut Handshakes,
        place: u32,
        completion: Completion,
    ) {
        match completion {
            Completion::Accepted { socket, .. } => {
                let is_tls = place == TLS_LISTENER;
                self.accept(io, socket, is_tls.then_some(&*handshakes));
            }
            Completion::Received { socket, bytes, .. } => {
                self.received(io, handshakes, (place, socket), &bytes);
            }
            Completion::Ended { socket, error, .. } => {
                self.ended(io.ring, (place, socket), error.is_some());
            }
            Completion::Sent { socket, buffer, result, .. } => {
                self.sent(io, (place, socket), (buffer, result.is_ok()));
            }
            _ => unreachable!("clients connect to us"),
        }
    }

    /// Takes a new connection. `over_tls`: it came to the listener of those who speak TLS.
    fn accept(&mut self, io: &mut Io<'_>, socket: SocketId, over_tls: Option<&Handshakes>) {
        let (now, ring) = (io.now.mono, &mut *io.ring);
        if self.connections.len() >= self.connections_max || self.is_stopping {
            self.refused += 1;
            return ring.close(socket);
        }
        self.accepted += 1;
        let idle_until = now.plus_ms(self.idle_timeout_ms);
        let deadlines = &mut self.deadlines;
        let key = self.connections.insert_with(|key| {
            TimestampConnection::new(socket, deadlines.begin(key.index, idle_until))
        });
        ring.set_owner(socket, Owner::Timestamp(key.index).to_bits());
        ring.receive(socket);
        if let Some(handshakes) = over_tls
            && let Some(connection) = self.connections.get_mut(key)
        {
            let secured = handshakes.begin(now, Kind::Timestamps);
            self.deadlines.set(key.index, &mut connection.deadline, secured.until);
            connection.secured = Some(Box::new(secured));
            connection.may_linger = true;
        }
    }

    /// Takes bytes of a client.
    fn received(
        &mut self,
        io: &mut Io<'_>,
        handshakes: &mut Handshakes,
        from: (u32, SocketId),
        received: &Received,
    ) {
        let now = io.now.mono;
        let Some(connection) = of(&mut self.connections, from) else { return };
        if connection.is_closing {
            return;
        }
        if connection.secured.is_some() {
            return self.received_secured(io, handshakes, from, received);
        }
        connection.deadline.extend(now.plus_ms(self.idle_timeout_ms));
        let bytes = io.ring.bytes_mut(received);
        let appetite = connection.feed(now, bytes, &mut self.issuer, self.form);
        self.after_feed(io, from.0, appetite);
    }

    /// Handles that a client will send nothing more.
    pub(super) fn ended(&mut self, ring: &mut Ring, from: (u32, SocketId), is_broken: bool) {
        let Some(connection) = of(&mut self.connections, from) else { return };
        connection.has_ended = true;
        if let Some(secured) = &connection.secured
            && secured.is_handshaking()
            && !is_broken
        {
            // What came before the end may be a call in the clear, which is answered in its turn.
            if !secured.is_queued {
                self.close(ring, from.0);
            }
            return;
        }
        // Requests that were received and not taken are answered first.
        let has_more = connection.is_waiting || connection.is_paused || connection.is_resuming;
        connection.is_closing |= !has_more;
        if is_broken {
            return self.close(ring, from.0);
        }
        self.mark_dirty(from.0);
    }

    /// Handles that a send ended.
    fn sent(&mut self, io: &mut Io<'_>, from: (u32, SocketId), (buffer, is_ok): (Vec<u8>, bool)) {
        self.pool.give_back(buffer);
        let Some(connection) = of(&mut self.connections, from) else { return };
        connection.sending_bytes = 0;
        if !is_ok {
            return self.close(io.ring, from.0);
        }
        if connection.secured.is_some() {
            return self.sent_secured(io.now.mono, from.0);
        }
        let has_output = !connection.out.is_empty() || connection.is_closing;
        if !connection.is_closing {
            connection.deadline.extend(io.now.mono.plus_ms(self.idle_timeout_ms));
        }
        if connection.is_paused && !connection.is_waiting {
            self.resume_later(from.0);
        }
        if has_output {
            self.mark_dirty(from.0);
        }
    }

    /// Begins a turn. If it is time, requests that had to wait are tried again in the order in
    /// which they came, before requests that have come since.
    pub fn begin_turn(&mut self, io: &mut Io<'_>) {
        let now = io.now.mono;
        if !self.issuer.begin_retry(now) {
            return;
        }
        for _ in 0..self.waiting.len() {
            let Some(waiting) = self.waiting.pop_front() else { return };
            let Some(connection) = of(&mut self.connections, waiting) else { continue };
            connection.is_waiting = false;
            let appetite = connection.feed(now, &[], &mut self.issuer, self.form);
            self.after_feed(io, waiting.0, appetite);
        }
    }

    /// Feeds the connections that had their share in the last turn, or whose replies have left
    /// since.
    pub fn resume(&mut self, io: &mut Io<'_>) {
        for place in std::mem::take(&mut self.resume) {
            let Some(connection) = self.connections.at_mut(place) else { continue };
            // Another connection may have taken the place.
            let is_wanted = std::mem::replace(&mut connection.is_resuming, false);
            if is_wanted && !connection.is_closing && !connection.is_waiting {
                let appetite = connection.feed(io.now.mono, &[], &mut self.issuer, self.form);
                self.after_feed(io, place, appetite);
            }
        }
    }

    /// Sends what the turn produced, with one send per connection, and closes connections that are
    /// done. If the timestamps of this turn may not leave, closes the connections for which they
    /// were made.
    pub fn flush(&mut self, io: &mut Io<'_>, may_leave: bool) {
        for index in 0..self.dirty.len() {
            let place = self.dirty[index];
            let Some(connection) = self.connections.at_mut(place) else { continue };
            connection.is_dirty = false;
            let fresh = std::mem::replace(&mut connection.fresh, 0);
            if fresh > 0 && !may_leave {
                self.issuer.counters.withheld += u64::from(fresh);
                self.close(io.ring, place);
            } else if connection.sending_bytes > 0 {
                continue;
            } else if connection.secured.is_some() {
                self.flush_secured(io, place);
            } else if !connection.out.is_empty() {
                let empty = self.pool.take();
                connection.sending_bytes = connection.out.len();
                io.ring.send(connection.socket, std::mem::replace(&mut connection.out, empty));
            } else if connection.is_closing {
                self.finish(io, place);
            }
        }
        self.dirty.clear();
    }

    /// Closes connections that are overdue.
    pub fn expire(&mut self, io: &mut Io<'_>, handshakes: &mut Handshakes) {
        let now = io.now.mono;
        let mut due = std::mem::take(&mut self.due);
        self.deadlines.advance(now, &mut due);
        for place in due.drain(..) {
            let Some(connection) = self.connections.at_mut(place) else { continue };
            if self.deadlines.is_over(place, &mut connection.deadline, now) {
                if connection.is_handshaking() {
                    handshakes.note_failed(Kind::Timestamps);
                }
                self.close(io.ring, place);
            }
        }
        self.due = due;
    }

    /// When a turn should begin although nothing happens.
    pub fn next_wake(&self) -> Option<MonoNs> {
        let retry_at = self.issuer.retry_at();
        let retry_at = (retry_at != MonoNs(u64::MAX)).then_some(retry_at);
        earlier(retry_at, self.deadlines.next_wake())
    }

    /// Returns whether connections wait for the next turn, so that the core must not sleep.
    pub fn has_more(&self) -> bool {
        !self.resume.is_empty()
    }

    /// Returns whether no connection wants anything of this turn.
    pub fn is_at_rest(&self) -> bool {
        self.dirty.is_empty() && self.resume.is_empty()
    }

    /// How many connections have a first request that waits.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Begins to stop: no new connection, no new request. Replies under way still leave.
    pub fn stop(&mut self) {
        self.is_stopping = true;
        for place in 0..self.connections.places() {
            if let Some(connection) = self.connections.at_mut(place) {
                connection.is_closing = true;
                connection.drop_partial();
                if connection.is_handshaking() {
                    connection.break_off();
                }
                self.mark_dirty(place);
            }
        }
        self.waiting.clear();
        self.resume.clear();
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.connections.len()
    }

    pub(super) fn after_feed(&mut self, io: &mut Io<'_>, place: u32, appetite: Appetite) {
        let (now, ring) = (io.now.mono, &mut *io.ring);
        self.account(ring, place);
        let Some(connection) = self.connections.at_mut(place) else { return };
        let must_pause = match appetite {
            Appetite::Hungry => false,
            Appetite::BackedUp => true,
            Appetite::HadItsShare | Appetite::Waits => connection.is_full(),
            Appetite::Broken => {
                self.protocol_errors += 1;
                connection.is_closing = true;
                // Bytes that still come are thrown away until the replies before them have left.
                let until = now.plus_ms(LINGER_MS);
                self.deadlines.set(place, &mut connection.deadline, until);
                connection.is_paused
            }
        };
        if must_pause != connection.is_paused {
            connection.is_paused = must_pause;
            if must_pause {
                ring.pause(connection.socket);
            } else {
                ring.receive(connection.socket);
            }
        }
        match appetite {
            Appetite::Hungry => connection.is_closing |= connection.has_ended,
            Appetite::HadItsShare => self.resume_later(place),
            Appetite::Waits if !connection.is_waiting => {
                connection.is_waiting = true;
                self.waiting.push_back((place, connection.socket));
            }
            Appetite::Waits | Appetite::BackedUp | Appetite::Broken => {}
        }
        self.mark_dirty(place);
    }

    pub(super) fn resume_later(&mut self, place: u32) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        if !connection.is_resuming {
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

    /// Keeps the sum of bytes not taken within its limit, and closes the connection that holds
    /// most.
    #[inline]
    pub(super) fn account(&mut self, ring: &mut Ring, place: u32) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        let held = connection.partial_bytes();
        self.partial_bytes = self.partial_bytes + held - connection.accounted_bytes;
        connection.accounted_bytes = held;
        while self.partial_bytes > PARTIAL_BYTES_MAX {
            let accounted = |place: &u32| {
                self.connections.at(*place).map_or(0, |connection| connection.accounted_bytes)
            };
            let largest = (0..self.connections.places()).max_by_key(accounted);
            self.refused += 1;
            self.close(ring, largest.expect("a sum above 0 has parts"));
        }
    }

    /// Closes a connection to which all is sent. A client that speaks TLS is told the end first: it
    /// may have sent its first call before it reads that its certificate is not taken.
    #[cold]
    pub(super) fn finish(&mut self, io: &mut Io<'_>, place: u32) {
        let ring = &mut *io.ring;
        let Some(connection) = self.connections.at_mut(place) else { return };
        let is_nonsense = connection.secured.as_ref().is_some_and(|secured| secured.is_nonsense);
        if !connection.may_linger || is_nonsense || connection.has_ended || self.is_stopping {
            return self.close(ring, place);
        }
        if !connection.is_lingering {
            connection.is_lingering = true;
            let until = io.now.mono.plus_ms(LINGER_MS);
            self.deadlines.set(place, &mut connection.deadline, until);
            if std::mem::take(&mut connection.is_paused) {
                ring.receive(connection.socket);
            }
            ring.finish(connection.socket);
        }
    }

    /// Closes the connection at a place, if there is one.
    fn close(&mut self, ring: &mut Ring, place: u32) {
        let Some(connection) = self.connections.remove_at(place) else { return };
        self.partial_bytes -= connection.accounted_bytes;
        ring.close(connection.socket);
    }
}

/// Returns the connection at a place, unless the place has another socket than the completion
/// names.
pub(super) fn of(
    connections: &mut Slots<TimestampConnection>,
    (place, socket): (u32, SocketId),
) -> Option<&mut TimestampConnection> {
    connections.at_mut(place).filter(|connection| connection.socket == socket)
}
