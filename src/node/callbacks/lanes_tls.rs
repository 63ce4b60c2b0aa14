//! TLS in the lanes: what `https` servers send, and how long a turn shakes hands with them.
//!
//! A handshake costs as much as dozens of callbacks. Its steps wait in one queue, first come, first
//! served. A turn takes from the queue until its time for handshakes is over, so that a herd of new
//! connections delays pops by no more than that.

use crate::base::time::MonoNs;
use crate::ring::{Received, Ring, monotonic};
use crate::shard::effects::CallbackOutcome;

use crate::node::callbacks::dialling::{Failure, NO_AUTHORITIES};
use crate::node::callbacks::lanes::{Call, CallbackConnection, Ended, Lanes, State, answered};
use crate::node::callbacks::secured::TooMuch;
use crate::node::io::Io;

/// Time in us of one turn for handshakes. A turn that has begun a step ends it.
const TURN_US: u64 = 500;

impl Lanes {
    /// Goes on with the handshakes that wait, as long as the turn has time for them. `is_late`: the
    /// turn has spent its time on the handshakes of clients, so one step is all.
    pub fn shake_hands(&mut self, io: &mut Io<'_>, is_late: bool) {
        if !self.dialling.has_more() {
            return;
        }
        let began = monotonic();
        let until = if is_late { began } else { MonoNs(began.0 + TURN_US * 1_000) };
        while let Some((place, socket)) = self.dialling.next() {
            if !self.has(place, socket) {
                continue;
            }
            self.shake_hands_at(io, place);
            if monotonic() >= until {
                break;
            }
        }
    }

    /// Whether handshakes wait for the next turn.
    pub fn has_more(&self) -> bool {
        self.dialling.has_more()
    }

    /// Begins the handshake of a connection that stands. The call's request waits for its end.
    pub(super) fn begin_handshake(&mut self, ring: &mut Ring, place: u32, call: Call) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        ring.receive(connection.socket);
        connection.state = State::Securing(call);
        if let Some(secured) = &mut connection.secured {
            secured.is_queued = true;
            self.dialling.wait(place, connection.socket);
        }
    }

    fn shake_hands_at(&mut self, io: &mut Io<'_>, place: u32) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        let Some(secured) = &mut connection.secured else { return };
        secured.is_queued = false;
        if !matches!(connection.state, State::Securing(_)) {
            return;
        }
        let lane = self.lanes.get(connection.host.0 as usize).and_then(Option::as_ref);
        let Some(server) = lane.and_then(|lane| lane.server.as_deref()) else { return };
        let mut plain = std::mem::take(&mut self.dialling.plain);
        let Some(connector) = self.dialling.connector() else {
            return self.fail(io.ring, place, Failure::NoAuthorities, NO_AUTHORITIES);
        };
        let has_ended = match secured.shake_hands(connector, server, &mut plain) {
            Ok(has_ended) => has_ended,
            Err(error) => {
                return self.fail(io.ring, place, Failure::of(&error), &error.to_string());
            }
        };
        if !secured.is_handshaking() {
            self.dialling.opened(secured.is_resumed());
            match std::mem::replace(&mut connection.state, State::Idle) {
                State::Securing(call) => self.send(io.ring, place, call, false),
                other => connection.state = other,
            }
        }
        self.said(io, place, (plain, has_ended));
    }

    /// Takes bytes of a server over TLS. Whatever they are, they end at most this attempt and its
    /// connection.
    pub(super) fn received_secured(&mut self, io: &mut Io<'_>, place: u32, received: &Received) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        let Some(secured) = &mut connection.secured else { return };
        if matches!(connection.state, State::Leaving) {
            return;
        }
        let wire = io.ring.bytes_mut(received);
        if secured.is_handshaking() {
            match secured.keep(wire) {
                Ok(()) if !secured.is_queued => {
                    secured.is_queued = true;
                    self.dialling.wait(place, connection.socket);
                }
                Ok(()) => {}
                Err(TooMuch(what)) => self.fail(io.ring, place, Failure::Protocol, what),
            }
            return;
        }
        let mut plain = std::mem::take(&mut self.dialling.plain);
        match secured.receive(wire, &mut plain) {
            Ok(Ok(has_ended)) => self.said(io, place, (plain, has_ended)),
            Ok(Err(TooMuch(what))) => self.fail(io.ring, place, Failure::Protocol, what),
            Err(error) => {
                // What came before the error counts: the attempt may have its answer.
                self.said(io, place, (plain, false));
                let is_open = |it: &CallbackConnection| !matches!(it.state, State::Leaving);
                if self.connections.at(place).is_some_and(is_open) {
                    self.fail(io.ring, place, Failure::of(&error), &error.to_string());
                }
            }
        }
    }

    /// Acts on what a server has said.
    fn said(&mut self, io: &mut Io<'_>, place: u32, (mut plain, has_ended): (Vec<u8>, bool)) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        if !plain.is_empty() {
            let progress = connection.read(&plain);
            self.progressed(io, place, progress);
        }
        plain.clear();
        self.dialling.plain = plain;
        // The place is empty now, or has the same connection: none is opened meanwhile.
        if has_ended {
            return self.ended(io, place);
        }
        self.flush(io.ring, place);
    }

    /// Goes on behind bytes that have left.
    pub(super) fn sent_secured(&mut self, ring: &mut Ring, place: u32) {
        self.flush(ring, place);
        let is_over =
            |it: &CallbackConnection| matches!(it.state, State::Leaving) && !it.is_sending;
        if self.connections.at(place).is_some_and(is_over) {
            self.drop_connection(ring, place);
        }
    }

    /// Sends what TLS has to send, if nothing is on its way.
    pub(super) fn flush(&mut self, ring: &mut Ring, place: u32) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        let Some(secured) = &mut connection.secured else { return };
        if connection.is_sending || !secured.wants_to_send() {
            return;
        }
        let mut wire = self.pool.take();
        secured.send(&mut wire);
        connection.is_sending = true;
        ring.send(connection.socket, wire);
    }

    /// Ends the attempt of a connection over which something came that ends it, if there is an
    /// attempt. The alert, if there is one, leaves first.
    pub(super) fn fail(&mut self, ring: &mut Ring, place: u32, failure: Failure, what: &str) {
        self.note(place, failure, what);
        let Some(connection) = self.connections.at_mut(place) else { return };
        let host = connection.host;
        match std::mem::replace(&mut connection.state, State::Leaving) {
            State::Connecting(call) | State::Securing(call) => {
                self.end(call, CallbackOutcome::Unreachable);
            }
            state @ State::Busy { ticket, .. } => {
                let broken = Ended::without_answer(ticket, CallbackOutcome::Unreachable);
                self.finished.push(answered(&state).unwrap_or(broken));
            }
            State::Idle => self.forget_idle(host, place),
            State::Leaving => {}
        }
        self.make_spare(place);
        self.leave(ring, place);
    }

    /// Counts why a connection failed, and has it told in the log.
    pub(super) fn note(&mut self, place: u32, failure: Failure, what: &str) {
        let host = self.connections.at(place).map(|connection| connection.host.0 as usize);
        let lane = host.and_then(|host| self.lanes.get(host)).and_then(Option::as_ref);
        self.dialling.failed(lane.map_or("", |lane| &lane.authority), failure, what);
    }

    /// Closes a connection that nothing is expected of any more, behind what TLS has to say.
    pub(super) fn part(&mut self, ring: &mut Ring, place: u32) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        let Some(secured) = &mut connection.secured else {
            return self.drop_connection(ring, place);
        };
        secured.close();
        let host = connection.host;
        if let State::Idle = std::mem::replace(&mut connection.state, State::Leaving) {
            self.forget_idle(host, place);
        }
        self.make_spare(place);
        self.leave(ring, place);
    }

    /// Lets what TLS has to say leave, and closes. Its deadline bounds it: a server that takes
    /// nothing gets nothing.
    fn leave(&mut self, ring: &mut Ring, place: u32) {
        self.flush(ring, place);
        if self.connections.at(place).is_some_and(|connection| !connection.is_sending) {
            self.drop_connection(ring, place);
        }
    }
}
