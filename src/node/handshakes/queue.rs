//! The handshakes of one core's clients, those of timestamps among them, and of the nodes that dial
//! it: what they are made with, whose is next, how long a turn shakes hands, and their counts.
//!
//! A handshake costs as much as dozens of requests. All that arrives before the end of a handshake
//! waits in one queue, first come, first served, whichever listener it came to. A turn takes from
//! the queue until its time for handshakes is over, so that a herd of new connections delays pops
//! by no more than that.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::time::MonoNs;
use crate::cluster::detector::DIAL_MS_MAX;
use crate::ring::{SocketId, monotonic};
use crate::tls::acceptor::Acceptor;

use crate::node::handshakes::secured::{Kind, Secured};
use crate::node::settings::TlsSettings;

/// Time in ms for the handshake of a node. A dial is given up after half of it.
const NODE_TIMEOUT_MS: u64 = 2 * DIAL_MS_MAX;
/// Time in us of one turn for handshakes. A turn that has begun a handshake ends it: with a key of
/// RSA that is another ms.
const TURN_US: u64 = 500;
/// As many connections that come to the queue in one turn mean that more are coming. Linux from
/// 6.13 on brings about 20 events a turn, in their order, so that answers of callback servers would
/// wait behind a herd. The turns stay short until the herd is in.
const HERD: usize = 12;
/// Until then so many us pass between two handshakes.
const HERD_PAUSE_US: u64 = 1_000;

/// A connection that waits until its handshake goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Who is at the other end, which tells the table that has the connection.
    pub kind: Kind,
    /// Its place in that table.
    pub place: u32,
    /// Its socket. Another connection may have the place by now.
    pub socket: SocketId,
}

/// The handshakes of one core.
#[derive(Default)]
pub struct Handshakes {
    /// What connections are accepted with; `None`: no listener speaks TLS.
    pub acceptor: Option<Arc<Acceptor>>,
    /// What nodes are accepted with on the listener of plain clients; `None`: not over TLS.
    pub nodes: Option<Arc<Acceptor>>,
    /// Time in ms for a handshake.
    timeout_ms: u64,
    /// How many handshakes of clients have ended well.
    pub done: u64,
    /// How many of them by a ticket.
    pub resumed: u64,
    /// How many connections ended because of what came over them, before or after their handshake,
    /// or because their handshake was not over in time.
    pub failed: u64,
    /// How many connections of nodes ended because of what came over them, before they were taken.
    pub nodes_failed: u64,
    /// Connections with bytes of a handshake.
    queue: VecDeque<Waiting>,
    /// Those of members. They take turns with all others, so that a herd of clients keeps no member
    /// out.
    members: VecDeque<Waiting>,
    /// Whether it is the members' turn.
    are_members_next: bool,
    /// How many connections came to the queue since the last turn.
    came: usize,
    /// When a handshake last went on.
    pub last: MonoNs,
    /// Plaintext of the connection at hand. Kept for its allocation.
    pub plain: Vec<u8>,
}

impl Handshakes {
    /// No handshake yet. `None`: no listener speaks TLS.
    pub fn new(settings: Option<&TlsSettings>) -> Self {
        Self {
            acceptor: settings.map(|tls| Arc::clone(&tls.acceptor)),
            timeout_ms: settings.map_or(0, |tls| tls.handshake_timeout_ms),
            ..Self::default()
        }
    }

    /// TLS on a client's connection that was accepted now.
    pub fn begin(&self, now: MonoNs, kind: Kind) -> Secured {
        Secured::new(now.plus_ms(self.timeout_ms), kind)
    }

    /// TLS on a connection over which a node's first bytes have come.
    pub fn begin_node(&self, now: MonoNs, is_member: bool) -> Secured {
        let kind = if is_member { Kind::Member } else { Kind::Node };
        Secured::new(now.plus_ms(NODE_TIMEOUT_MS), kind)
    }

    /// What such a connection is accepted with.
    pub fn acceptor_of(&self, kind: Kind) -> Option<&Arc<Acceptor>> {
        match kind {
            Kind::Client | Kind::Timestamps => self.acceptor.as_ref(),
            Kind::Node | Kind::Member => self.nodes.as_ref(),
        }
    }

    /// Counts a connection that ended because of what came over it.
    pub fn note_failed(&mut self, kind: Kind) {
        match kind {
            Kind::Client | Kind::Timestamps => self.failed += 1,
            Kind::Node | Kind::Member => self.nodes_failed += 1,
        }
    }

    /// Lets a connection wait until its handshake goes on.
    pub fn wait(&mut self, waiting: Waiting) {
        self.came += 1;
        match waiting.kind {
            Kind::Member => self.members.push_back(waiting),
            Kind::Client | Kind::Timestamps | Kind::Node => self.queue.push_back(waiting),
        }
    }

    /// Counts a handshake that has ended well.
    pub fn note_done(&mut self, kind: Kind, is_resumed: bool) {
        if matches!(kind, Kind::Client | Kind::Timestamps) {
            self.done += 1;
            self.resumed += u64::from(is_resumed);
        }
    }

    /// Begins a turn in which connections wait. Returns until when it may shake hands; `None`: all
    /// wait for a later turn.
    pub fn begin_turn(&mut self) -> Option<MonoNs> {
        let began = monotonic();
        let is_herd = std::mem::take(&mut self.came) >= HERD;
        if is_herd && began.since_ns(self.last) < HERD_PAUSE_US * 1_000 {
            return None;
        }
        Some(if is_herd { began } else { MonoNs(began.0 + TURN_US * 1_000) })
    }

    /// Ends a step of a handshake. Returns whether the turn has time for another one.
    pub fn end_step(&mut self, until: MonoNs) -> bool {
        self.last = monotonic();
        self.last < until
    }

    /// The connection whose turn it is: of members and of all others in turn the one that has
    /// waited for the longest time.
    pub fn next(&mut self) -> Option<Waiting> {
        self.are_members_next = !self.are_members_next;
        let Self { queue, members, are_members_next, .. } = self;
        let (first, second) = if *are_members_next { (members, queue) } else { (queue, members) };
        first.pop_front().or_else(|| second.pop_front())
    }

    /// Whether connections wait for the next turn.
    #[inline]
    pub fn has_more(&self) -> bool {
        !self.queue.is_empty() || !self.members.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::SocketId;

    #[test]
    fn members_and_all_others_take_turns() {
        let mut handshakes = Handshakes::default();
        let socket = SocketId { index: 0, generation: 0 };
        let mut wait = |place, kind| handshakes.wait(Waiting { kind, place, socket });
        (0..1_000)
            .for_each(|place| wait(place, [Kind::Client, Kind::Timestamps][place as usize % 2]));
        (5_000..5_002).for_each(|place| wait(place, Kind::Member));
        wait(9_000, Kind::Node);
        let order: Vec<_> =
            std::iter::from_fn(|| handshakes.next()).map(|next| next.place).collect();
        assert_eq!(order[..5], [5_000, 0, 5_001, 1, 2], "a herd of clients keeps no member out");
        assert_eq!((order.len(), order.last()), (1_003, Some(&9_000)), "who says so waits");
    }
}
