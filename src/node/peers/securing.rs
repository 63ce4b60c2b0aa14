//! Connections with peers that stand in the clear although this node offers TLS: the other end
//! spoke none, or was too busy to answer, or the configuration has changed since. TLS is tried
//! beside them, so that a cluster whose nodes all speak TLS ends without a connection in the clear.

// May panic: indices 4.
// Why it does not: peers 4.

use crate::base::ids::PeerIndex;
use crate::cluster::detector::DIAL_MS_MAX;
use crate::core::Core;
use crate::core::peers::hello::Connected;

use crate::node::io::Io;
use crate::node::peers::socket::Socket;
use crate::node::peers::sockets::{DialProgress, PeerSockets, SECURE_PAUSE_MS_FIRST};
use crate::node::settings::PeerTls;

/// The longest pause in ms before TLS is tried again. An original, which never speaks TLS, is asked
/// twice a minute by each core.
const SECURE_PAUSE_MS_MAX: u64 = 30_000;

impl PeerSockets {
    /// Tries TLS beside a connection in the clear, if the time has come, or gives up a try that has
    /// taken too long. The connection in the clear carries what is said until the other end has
    /// accepted the new one.
    pub(super) fn secure(&mut self, io: &mut Io<'_>, core: &mut Core, peer: PeerIndex) {
        let is_due = |at| at <= io.now.mono;
        let Some(dialled) = self.dialled.get_mut(peer.index()) else { return };
        if !dialled.secure_at.is_some_and(is_due) || self.falls_back(io, peer) {
            return;
        }
        let dialled = &mut self.dialled[peer.index()];
        // Nothing but a connection that stands has a time for this.
        let DialProgress::Open(clear) = std::mem::take(&mut dialled.stage) else { return };
        dialled.clear = Some(clear);
        dialled.secure_at = Some(io.now.mono.plus_ms(DIAL_MS_MAX));
        dialled.begin(io.now.mono, false);
        // The new connection goes to the same address.
        dialled.next = dialled.next.wrapping_sub(1);
        self.connect(io, core, peer);
    }

    /// Gives up a try of TLS beside a connection in the clear, which goes on. Returns whether there
    /// was one.
    pub(super) fn falls_back(&mut self, io: &mut Io<'_>, peer: PeerIndex) -> bool {
        let dialled = self.dialled.get(peer.index());
        if dialled.is_none_or(|dialled| dialled.clear.is_none()) {
            return false;
        }
        self.close_stage(io.ring, peer);
        let dialled = &mut self.dialled[peer.index()];
        if let Some(clear) = dialled.clear.take() {
            dialled.stage = DialProgress::Open(clear);
        }
        dialled.secure_pause_ms = (2 * dialled.secure_pause_ms).min(SECURE_PAUSE_MS_MAX);
        dialled.secure_at = Some(io.now.mono.plus_ms(dialled.secure_pause_ms));
        true
    }

    /// Takes a connection that the other end has accepted, in place of one in the clear.
    pub(super) fn stands(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        (peer, open): (PeerIndex, Socket),
        connected: &Connected,
    ) {
        let dialled = &mut self.dialled[peer.index()];
        if let Some(clear) = dialled.clear.take() {
            io.ring.close(clear.id);
        }
        if open.is_secured() {
            dialled.secure_pause_ms = SECURE_PAUSE_MS_FIRST;
        }
        let wants_tls = self.tls.is_some() && !open.is_secured();
        let secure_at = io.now.mono.plus_ms(dialled.secure_pause_ms);
        dialled.secure_at = wants_tls.then_some(secure_at);
        dialled.stage = DialProgress::Open(open);
        core.peer_connected(io.now, peer, connected);
    }

    /// Takes what further connections are dialled with. If no peer is talked to without TLS from
    /// now on, connections without end; if peers are talked to both ways, TLS is tried beside them.
    pub fn set_tls(&mut self, io: &mut Io<'_>, core: &mut Core, tls: Option<PeerTls>) {
        self.tls = tls;
        if !self.requires_tls() {
            return self.set_tries(io);
        }
        let peers = (0..).map(PeerIndex).zip(&self.dialled);
        let plain = peers.filter_map(|(peer, dialled)| match &dialled.stage {
            _ if dialled.clear.is_some() => Some(peer),
            DialProgress::Open(open) | DialProgress::Greeting { socket: open, .. } => {
                (!open.is_secured()).then_some(peer)
            }
            _ => None,
        });
        let plain: Vec<_> = plain.collect();
        plain.into_iter().for_each(|peer| self.lose_all(io, core, peer));
        let inbounds = self.inbounds.iter().flatten().filter(|(_, open)| !open.is_secured());
        let plain: Vec<_> = inbounds.map(|(inbound, _)| *inbound).collect();
        plain.into_iter().for_each(|inbound| self.lose_inbound(io.ring, core, inbound));
    }

    /// Says anew when TLS is tried beside connections in the clear.
    fn set_tries(&mut self, io: &mut Io<'_>) {
        for peer in (0..self.dialled.len() as u8).map(PeerIndex) {
            self.falls_back(io, peer);
            let dialled = &mut self.dialled[peer.index()];
            let is_clear = matches!(&dialled.stage, DialProgress::Open(open) if !open.is_secured());
            let secure_at = io.now.mono.plus_ms(SECURE_PAUSE_MS_FIRST);
            dialled.secure_pause_ms = SECURE_PAUSE_MS_FIRST;
            dialled.secure_at = (is_clear && self.tls.is_some()).then_some(secure_at);
        }
    }
}
