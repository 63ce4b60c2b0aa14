//! The handshakes of one core's clients: what they are made with, whose is next, and their counts.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::time::MonoNs;
use crate::ring::SocketId;
use crate::tls::acceptor::Acceptor;

use crate::node::clients::secured::Secured;
use crate::node::settings::TlsSettings;

/// The handshakes of one core.
#[derive(Default)]
pub struct Handshakes {
    /// What connections are accepted with; `None`: no listener speaks TLS.
    pub acceptor: Option<Arc<Acceptor>>,
    /// Time in ms for a handshake.
    timeout_ms: u64,
    /// How many handshakes have ended well.
    pub done: u64,
    /// How many of them by a ticket.
    pub resumed: u64,
    /// How many connections ended because of what came over them, before or after their handshake,
    /// or because their handshake was not over in time.
    pub failed: u64,
    /// Connections with bytes of a handshake.
    queue: VecDeque<(u32, SocketId)>,
    /// How many connections came to the queue since the last turn.
    pub came: usize,
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

    /// TLS on a connection that was accepted now.
    pub fn begin(&self, now: MonoNs) -> Secured {
        Secured::new(now.plus_ms(self.timeout_ms))
    }

    /// Lets a connection wait until its handshake goes on.
    pub fn wait(&mut self, place: u32, socket: SocketId) {
        self.came += 1;
        self.queue.push_back((place, socket));
    }

    /// The connection that has waited for the longest time.
    pub fn next(&mut self) -> Option<(u32, SocketId)> {
        self.queue.pop_front()
    }

    /// Whether connections wait for the next turn.
    pub fn has_more(&self) -> bool {
        !self.queue.is_empty()
    }
}
