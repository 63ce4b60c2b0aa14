//! What one core's connections to `https` servers are dialled with, whose handshake is next, and
//! why handshakes failed.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use crate::ring::SocketId;
use crate::tls::connector::Connector;
use crate::tls::session::{TlsError, TlsFault};

/// Failures that wait for the control thread. More of them are counted and not told.
const UNTOLD_MAX: usize = 16;
/// What is told of a callback that cannot be made.
pub(super) const NO_AUTHORITIES: &str = "this system has no authorities, callbacks.ca names none";

/// Kinds of reasons for which a callback over TLS failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// No authority that is believed has signed the server's certificate.
    Authority,
    /// The server's certificate is of another name.
    Name,
    /// The server's certificate has expired, or does not hold yet.
    Time,
    /// The server's certificate is bad for another reason.
    Certificate,
    /// The server has told an error.
    Alert,
    /// What the server sent is no TLS, or none that both ends speak, or too much of it.
    Protocol,
    /// The server has closed the connection within the handshake, or did not end it in time.
    Unfinished,
    /// This node believes no authority.
    NoAuthorities,
}

impl Failure {
    /// All of them.
    pub const ALL: [Failure; 8] = [
        Failure::Authority,
        Failure::Name,
        Failure::Time,
        Failure::Certificate,
        Failure::Alert,
        Failure::Protocol,
        Failure::Unfinished,
        Failure::NoAuthorities,
    ];

    /// The kind of what TLS complains of.
    pub(super) fn of(error: &TlsError) -> Failure {
        match error.kind {
            TlsFault::Authority => Failure::Authority,
            TlsFault::Name => Failure::Name,
            TlsFault::Time => Failure::Time,
            TlsFault::Certificate => Failure::Certificate,
            TlsFault::Alert => Failure::Alert,
            TlsFault::Protocol => Failure::Protocol,
        }
    }

    /// What to do about it.
    fn remedy(self) -> &'static str {
        match self {
            Failure::Authority => {
                "name the authority that signed the server's certificate in callbacks.ca, and let \
                 the server send the certificates between the two"
            }
            Failure::Name => "the host of the callback URI must be a name in the certificate",
            Failure::Time => "renew the server's certificate, and look at this node's clock",
            Failure::Certificate => "give the server another certificate",
            Failure::Alert => {
                "look at the server's log; a server that asks for a certificate needs \
                 callbacks.client_cert and client_key"
            }
            Failure::Protocol => "the server must speak TLS 1.2 or 1.3 at this port",
            Failure::Unfinished => "look at the server's log",
            Failure::NoAuthorities => {
                "set callbacks.ca, or install the authorities (Debian: ca-certificates), and \
                 restart the node or send SIGHUP"
            }
        }
    }
}

/// One failure, to be told in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToldFailure {
    /// The authority of the callback URI.
    pub host: String,
    /// The reason in words, and what to do.
    pub reason: String,
}

/// Failures on their way from one core to the control thread.
#[derive(Debug)]
pub struct FailureFeed(ArrayQueue<ToldFailure>);

impl Default for FailureFeed {
    fn default() -> Self {
        Self(ArrayQueue::new(UNTOLD_MAX))
    }
}

impl FailureFeed {
    /// Gives a failure to the control thread. Only the owning core may call this.
    pub(crate) fn give(&self, failure: ToldFailure) {
        // One for which there is no room is counted, as all are.
        let _ = self.0.push(failure);
    }

    /// Takes a failure.
    pub fn take(&self) -> Option<ToldFailure> {
        self.0.pop()
    }
}

/// What one core's connections are dialled with, and whose handshake is next.
#[derive(Debug, Default)]
pub struct Dialling {
    /// What the node was given. `None`: this node believes no authority.
    given: Option<Arc<Connector>>,
    /// The same with tickets of this core alone, once one is needed.
    own: Option<Connector>,
    /// Counts changes of the connector.
    pub(super) age: u32,
    /// Connections whose handshake begins or goes on.
    queue: VecDeque<(u32, SocketId)>,
    /// Plaintext of the connection at hand. Kept for its allocation.
    pub(super) plain: Vec<u8>,
    /// How many handshakes have ended well.
    pub done: u64,
    /// How many of them by a ticket.
    pub resumed: u64,
    /// How many attempts failed, in the order of [`Failure::ALL`].
    pub failed: [u64; Failure::ALL.len()],
    /// The last failures that the control thread has not got.
    untold: Vec<ToldFailure>,
    /// Whether a count has changed since [`Dialling::has_news`] was asked.
    is_changed: bool,
}

impl Dialling {
    /// Takes another connector for further connections.
    pub(super) fn set_connector(&mut self, given: Option<Arc<Connector>>) {
        (self.given, self.own) = (given, None);
        self.age = self.age.wrapping_add(1);
    }

    /// Whether this node believes any authority.
    pub(super) fn is_possible(&self) -> bool {
        self.given.is_some()
    }

    /// What connections are dialled with.
    pub(super) fn connector(&mut self) -> Option<&Connector> {
        if self.own.is_none() {
            self.own = self.given.as_ref().map(|given| given.with_own_tickets());
        }
        self.own.as_ref()
    }

    /// Lets a connection wait until its handshake goes on.
    pub(super) fn wait(&mut self, place: u32, socket: SocketId) {
        self.queue.push_back((place, socket));
    }

    /// The connection that has waited for the longest time.
    pub(super) fn next(&mut self) -> Option<(u32, SocketId)> {
        self.queue.pop_front()
    }

    /// Whether connections wait.
    pub(super) fn has_more(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Counts a handshake that has ended well. `is_resumed`: by a ticket.
    pub(super) fn opened(&mut self, is_resumed: bool) {
        self.is_changed = true;
        self.done += 1;
        self.resumed += u64::from(is_resumed);
    }

    /// Whether a count has changed since this was last asked. Most turns change none.
    pub(crate) fn has_news(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Counts a failure, and keeps it for the control thread.
    pub(super) fn failed(&mut self, host: &str, failure: Failure, what: &str) {
        self.is_changed = true;
        if let Some(count) = self.failed.get_mut(failure as usize) {
            *count += 1;
        }
        let is_known = self.untold.iter().any(|untold| untold.host == host);
        if !is_known && self.untold.len() < UNTOLD_MAX {
            let reason = format!("{what}; {}", failure.remedy());
            self.untold.push(ToldFailure { host: host.to_owned(), reason });
        }
    }

    /// Gives what is not told yet to the control thread.
    pub(crate) fn tell(&mut self, feed: &FailureFeed) {
        self.untold.drain(..).for_each(|failure| feed.give(failure));
    }
}
