//! TLS in the table of connections: what arrives over it, and how long a turn shakes hands.
//!
//! A handshake costs as much as dozens of requests. All that arrives before the end of a handshake
//! waits in one queue, first come, first served. A turn takes from the queue until its time for
//! handshakes is over, so that a herd of new connections delays pops by no more than that.

use std::sync::Arc;

use crate::base::time::MonoNs;
use crate::core::Core;
use crate::ring::{Received, monotonic};

use crate::node::clients::secured::Progress;
use crate::node::clients::service::Api;
use crate::node::clients::table::Clients;
use crate::node::io::Io;
use crate::node::settings::PeerTls;

/// Time in us of one turn for handshakes. A turn that has begun a handshake ends it: with a key of
/// RSA that is another ms.
const TURN_US: u64 = 500;
/// As many connections that come to the queue in one turn mean that more are coming. Linux from
/// 6.13 on brings about 20 events a turn, in their order, so that answers of callback servers would
/// wait behind a herd. The turns stay short until the herd is in.
const HERD: usize = 12;
/// Until then so many us pass between two handshakes.
const HERD_PAUSE_US: u64 = 1_000;
/// The answer to plain HTTP where TLS is spoken.
const PLAIN: &str = "this port speaks TLS and found no TLS; ask for https:// here, or use the port \
                     of [node] listen";

impl Clients {
    /// Takes how nodes talk over TLS with each other.
    pub fn set_peer_tls(&mut self, tls: Option<&PeerTls>) {
        self.handshakes.nodes = tls.map(|tls| Arc::clone(&tls.nodes.acceptor));
        self.service.requires_tls = tls.is_some_and(|tls| tls.is_required);
    }

    /// Begins TLS on a plain connection whose first bytes are those of a node's handshake. Who is
    /// at an address of no node is told so, in the clear, and costs no handshake.
    pub(super) fn begin_node(&mut self, io: &mut Io<'_>, core: &mut Core, place: u32) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        let socket = connection.socket;
        let far_ends = io.ring.far_ends();
        let known = self.service.admit_handshake(core, (far_ends, socket));
        let is_member = self.service.is_peer(core, far_ends.of(socket));
        match known {
            Ok(()) => {
                let secured = self.handshakes.begin_node(io.now.mono, is_member);
                self.deadlines.set(place, &mut connection.deadline, secured.until);
                connection.secured = Some(Box::new(secured));
            }
            Err(reason) => connection.fail(&mut self.service, 403, &reason),
        }
        self.mark_dirty(place);
    }

    /// Takes bytes of a client that speaks TLS.
    pub(super) fn received_secured(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        place: u32,
        received: &Received,
    ) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        let socket = connection.socket;
        let Some(secured) = &mut connection.secured else { return };
        let wire = io.ring.bytes_mut(received);
        if secured.is_handshaking() {
            let may_go_on = secured.keep(wire);
            if !secured.is_queued {
                secured.is_queued = true;
                self.handshakes.wait(place, socket, secured.kind);
            }
            if !may_go_on && !connection.is_paused {
                connection.is_paused = true;
                io.ring.pause(socket);
            }
            return self.account(place);
        }
        let mut plain = std::mem::take(&mut self.handshakes.plain);
        let progress = secured.receive(wire, &mut plain);
        self.progressed(io, core, place, (progress, plain));
    }

    /// Goes on with the handshakes that wait, as long as the turn has time for them.
    pub(super) fn shake_hands(&mut self, io: &mut Io<'_>, core: &mut Core) {
        if !self.handshakes.has_more() {
            return;
        }
        let began = monotonic();
        let is_herd = std::mem::take(&mut self.handshakes.came) >= HERD;
        if is_herd && began.since_ns(self.handshakes.last) < HERD_PAUSE_US * 1_000 {
            return;
        }
        let until = if is_herd { began } else { MonoNs(began.0 + TURN_US * 1_000) };
        while let Some((place, socket)) = self.handshakes.next() {
            let held = self.connections.at_mut(place).filter(|held| held.socket == socket);
            let Some(connection) = held else { continue };
            if std::mem::take(&mut connection.is_paused) {
                io.ring.receive(socket);
            }
            let Some(secured) = &mut connection.secured else { continue };
            secured.is_queued = false;
            let Some(acceptor) = self.handshakes.acceptor_of(secured.kind).cloned() else {
                // The nodes have ceased to speak TLS in the meantime.
                self.break_off(place);
                continue;
            };
            let mut plain = std::mem::take(&mut self.handshakes.plain);
            let progress = secured.shake_hands(&acceptor, &mut plain);
            self.progressed(io, core, place, (progress, plain));
            self.handshakes.last = monotonic();
            if self.handshakes.last >= until {
                break;
            }
        }
    }

    /// Acts on what became of the bytes of a connection.
    fn progressed(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        place: u32,
        (progress, mut plain): (Progress, Vec<u8>),
    ) {
        match progress {
            Progress::GoesOn => {}
            Progress::Opened { is_resumed } => {
                let until = io.now.mono.plus_ms(self.limits.idle_timeout_ms);
                if let Some(connection) = self.connections.at_mut(place) {
                    let is_client = !connection.is_node();
                    self.handshakes.done += u64::from(is_client);
                    self.handshakes.resumed += u64::from(is_resumed && is_client);
                    self.deadlines.set(place, &mut connection.deadline, until);
                }
            }
            Progress::Plain => self.refuse_plain(place),
            Progress::Broken => {
                plain.clear();
                self.break_off(place);
            }
        }
        if !plain.is_empty()
            && let Some(connection) = self.connections.at_mut(place)
        {
            let (service, limits) = (&mut self.service, &self.limits);
            let mut api = Api { now: io.now, core, service, limits };
            let appetite = connection.feed(&mut api, (&mut plain, io.ring.far_ends()));
            self.after_feed(io.ring, core, place, appetite);
        }
        plain.clear();
        self.handshakes.plain = plain;
        let Some(connection) = self.connections.at_mut(place) else { return };
        let has_told_end = connection.secured.as_ref().is_some_and(|secured| secured.has_ended);
        if has_told_end || connection.has_ended {
            self.ended(io.ring, place, false);
        }
        self.account(place);
        self.mark_dirty(place);
    }

    /// Answers a client that speaks plain HTTP, and closes.
    fn refuse_plain(&mut self, place: u32) {
        self.handshakes.failed += 1;
        if let Some(connection) = self.connections.at_mut(place) {
            connection.secured = None;
            connection.fail(&mut self.service, 400, PLAIN);
        }
    }

    /// Ends a connection over which something came that is no TLS. The alert, if there is one,
    /// leaves; nobody waits for answers.
    fn break_off(&mut self, place: u32) {
        if let Some(connection) = self.connections.at_mut(place) {
            self.handshakes.note_failed(connection.kind());
            connection.break_off();
        }
        self.account(place);
        self.mark_dirty(place);
    }
}
