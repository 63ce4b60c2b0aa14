//! TLS in the table of connections: what arrives over it, and what becomes of a handshake.

use std::sync::Arc;

use crate::core::Core;
use crate::core::peers::hello::HelloRefusal;
use crate::ring::Received;

use crate::node::clients::service::Api;
use crate::node::clients::table::Clients;
use crate::node::handshakes::queue::Waiting;
use crate::node::handshakes::secured::{Kept, Progress};
use crate::node::io::Io;
use crate::node::settings::PeerTls;
use crate::tls::session::may_be_tls;

/// The answer to plain HTTP where TLS is spoken.
const PLAIN: &str = "this port speaks TLS and found no TLS; ask for https:// here, or use the port \
                     of [node] listen";

/// The same where nothing is taken in the clear at all.
const PLAIN_NOWHERE: &str =
    "this port speaks TLS and found no TLS; ask for https:// here ([node] plain_clients = false)";

/// The answer to whatever comes in the clear where only nodes connect, over TLS.
const CLOSED: &str = "nothing is taken here in the clear ([node] plain_clients = false); ask for \
                      https:// at the port of [node] listen_tls";

impl Clients {
    /// Takes how nodes talk over TLS with each other.
    pub fn set_peer_tls(&mut self, tls: Option<&PeerTls>) {
        self.handshakes.nodes = tls.map(|tls| Arc::clone(&tls.nodes.acceptor));
        self.service.requires_tls = tls.is_some_and(|tls| tls.is_required);
    }

    /// Looks at the first bytes of a connection to the plain listener: a node may speak TLS there,
    /// and where clients do so at another port nobody may speak in the clear.
    #[cold]
    pub(super) fn judge_first(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        place: u32,
        received: &Received,
    ) {
        if may_be_tls(io.ring.bytes_mut(received)) && self.handshakes.nodes.is_some() {
            return self.begin_node(io, core, place);
        }
        let Some(connection) = self.connections.at_mut(place) else { return };
        if !self.takes_plain {
            let far_end = io.ring.far_ends().of(connection.socket);
            if self.service.is_peer(core, far_end) {
                core.inbound_refused(HelloRefusal::Plain);
            }
            connection.fail(&mut self.service, 403, CLOSED);
            self.mark_dirty(place);
        }
    }

    /// Begins TLS on a plain connection whose first bytes are those of a node's handshake. Who is
    /// at an address of no node is told so, in the clear, and costs no handshake.
    fn begin_node(&mut self, io: &mut Io<'_>, core: &mut Core, place: u32) {
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
        if secured.is_broken() {
            return;
        }
        let wire = io.ring.bytes_mut(received);
        if secured.is_handshaking() {
            let kept = secured.keep(wire);
            match kept {
                Kept::Hungry | Kept::Full => {}
                Kept::Plain => {
                    return self.progressed(io, core, place, (Progress::Plain, Vec::new()));
                }
                Kept::Nonsense => return self.break_off(place),
            }
            if !secured.is_queued {
                secured.is_queued = true;
                self.handshakes.wait(Waiting { kind: secured.kind, place, socket });
            }
            if kept == Kept::Full && !connection.is_paused {
                connection.is_paused = true;
                io.ring.pause(socket);
            }
            return self.account(place);
        }
        let mut plain = std::mem::take(&mut self.handshakes.plain);
        let progress = secured.receive(wire, &mut plain);
        self.progressed(io, core, place, (progress, plain));
    }

    /// Goes on with a handshake. Returns whether there was anything to do: the connection may have
    /// ended in the meantime.
    pub fn shake_hands(&mut self, io: &mut Io<'_>, core: &mut Core, next: Waiting) -> bool {
        let Waiting { place, socket, .. } = next;
        let held = self.connections.at_mut(place).filter(|held| held.socket == socket);
        let Some(connection) = held else { return false };
        if std::mem::take(&mut connection.is_paused) {
            io.ring.receive(socket);
        }
        let Some(secured) = &mut connection.secured else { return false };
        secured.is_queued = false;
        let Some(acceptor) = self.handshakes.acceptor_of(secured.kind).cloned() else {
            // The nodes have ceased to speak TLS in the meantime.
            self.break_off(place);
            return false;
        };
        let mut plain = std::mem::take(&mut self.handshakes.plain);
        let progress = secured.shake_hands(&acceptor, &mut plain);
        self.progressed(io, core, place, (progress, plain));
        true
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
                    self.handshakes.note_done(connection.kind(), is_resumed);
                    self.deadlines.set(place, &mut connection.deadline, until);
                }
            }
            Progress::Plain => {
                plain.clear();
                self.refuse_plain(place);
            }
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
        let told = if self.takes_plain { PLAIN } else { PLAIN_NOWHERE };
        if let Some(connection) = self.connections.at_mut(place) {
            connection.secured = None;
            connection.fail(&mut self.service, 400, told);
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
