//! The handshakes of dialled connections. A node that takes plain peers as well tries TLS first, in
//! each dial, and goes on without where the other end speaks none.

// May panic: indices 5.
// Why it does not: peers 5.

use crate::base::ids::PeerIndex;
use crate::core::Core;
use crate::core::peers::address::host_of;
use crate::ring::{Received, SocketId};
use crate::tls::names::Member;
use crate::tls::session::{Session, may_answer_tls};

use crate::node::io::Io;
use crate::node::peers::socket::Socket;
use crate::node::peers::sockets::{DialProgress, Dialled, PeerSockets};
use crate::node::settings::PeerTls;

impl PeerSockets {
    /// Begins what is said on a connection that stands: TLS, or the greeting.
    pub(super) fn begin(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        (peer, id): (PeerIndex, SocketId),
    ) {
        let dialled = &mut self.dialled[peer.index()];
        let speaks_tls = |tls: &&PeerTls| tls.is_required || !dialled.is_plain;
        let Some(tls) = self.tls.as_ref().filter(speaks_tls) else {
            return self.greet(io, core, peer, Socket::new(id, None));
        };
        let host = host_of(core.address_of(peer));
        let Ok(session) = Session::dial(&tls.nodes.connector, &host) else {
            self.tls_failed += 1;
            return self.lose(io, core, peer);
        };
        let socket = Socket::new(id, Some(Box::new(session)));
        dialled.stage = DialProgress::Shaking { socket, is_heard: false };
        self.shake_on(io, core, peer);
    }

    /// Takes bytes of a handshake.
    pub(super) fn shaken(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        peer: PeerIndex,
        received: &Received,
    ) {
        let DialProgress::Shaking { socket, is_heard } = &mut self.dialled[peer.index()].stage
        else {
            return;
        };
        let wire = io.ring.bytes_mut(received);
        if !std::mem::replace(is_heard, true) && !may_answer_tls(wire) {
            return self.meets_plain(io, core, peer);
        }
        match socket.take(wire, &mut self.plain) {
            Ok([]) => self.shake_on(io, core, peer),
            // The dialler speaks first.
            Ok(_) | Err(_) => {
                self.tls_failed += 1;
                self.lose(io, core, peer);
            }
        }
    }

    /// Sends what the handshake has to say, or begins the greeting when the handshake is over. What
    /// is left to say of the handshake goes with the greeting.
    pub(super) fn shake_on(&mut self, io: &mut Io<'_>, core: &mut Core, peer: PeerIndex) {
        let stage = &mut self.dialled[peer.index()].stage;
        let DialProgress::Shaking { socket, .. } = stage else { return };
        if socket.is_sending {
            return;
        }
        if socket.is_handshaking() {
            if let Some(bytes) = socket.handshake_bytes(&mut self.pool) {
                socket.is_sending = true;
                io.ring.send(socket.id, bytes);
            }
            return;
        }
        let name = core.address_of(peer);
        if socket.is_another(Member { name, host: &host_of(name) }) {
            self.tls_failed += 1;
            return self.lose(io, core, peer);
        }
        if let DialProgress::Shaking { socket, .. } = std::mem::take(stage) {
            self.dialled[peer.index()].has_spoken_tls = true;
            self.greet(io, core, peer, socket);
        }
    }

    /// Handles that the other end speaks no TLS.
    pub(super) fn meets_plain(&mut self, io: &mut Io<'_>, core: &mut Core, peer: PeerIndex) {
        if self.requires_tls() {
            self.tls_failed += 1;
            return self.lose(io, core, peer);
        }
        if self.falls_back(io, peer) {
            return;
        }
        self.close(io.ring, peer);
        let dialled = &mut self.dialled[peer.index()];
        (dialled.is_plain, dialled.is_hushed) = (true, false);
        // The next connection goes to the same address.
        dialled.next = dialled.next.wrapping_sub(1);
        self.connect(io, core, peer);
    }

    /// Whether nothing is said to a peer without TLS.
    pub(super) fn requires_tls(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_required)
    }

    /// Whether the dial of a peer is given up before the other end has said anything, where it may
    /// speak no TLS. The next dial does without.
    pub(super) fn is_hushed(&self, dialled: &Dialled) -> bool {
        let is_unheard = matches!(dialled.stage, DialProgress::Shaking { is_heard: false, .. });
        let may_be_plain = !dialled.has_spoken_tls && !self.requires_tls();
        is_unheard && may_be_plain && dialled.clear.is_none()
    }

    /// Whether a peer is talked to over TLS, over the connection that this core dialled.
    pub fn is_secured(&self, peer: PeerIndex) -> bool {
        let stage = self.dialled.get(peer.index()).map(|dialled| &dialled.stage);
        matches!(stage, Some(DialProgress::Open(open)) if open.is_secured())
    }

    /// How many connections with peers go over TLS, of either side.
    pub fn secured(&self) -> usize {
        let dialled = self.dialled.iter().filter(
            |dialled| matches!(&dialled.stage, DialProgress::Open(open) if open.is_secured()),
        );
        let inbounds = self.inbounds.iter().flatten().filter(|(_, open)| open.is_secured());
        dialled.count() + inbounds.count()
    }
}
