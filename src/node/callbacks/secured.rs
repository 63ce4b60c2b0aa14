//! TLS on one connection to a callback server: which bytes wait for the core's time, and how much a
//! server may send without saying anything.

use crate::tls::connector::Connector;
use crate::tls::session::{Session, TlsError};

/// Most bytes of a handshake. A chain of certificates with keys of RSA has some 10 KiB.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// Most bytes that say nothing (tickets, new keys), after those that did. A server gives a few
/// tickets of some 300 bytes each.
const QUIET_BYTES_MAX: usize = 64 << 10;

/// A server has sent more than it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TooMuch(pub &'static str);

/// TLS on one connection.
#[derive(Debug)]
pub(super) struct Secured {
    /// `None`: the handshake has not begun.
    session: Option<Session>,
    /// Bytes of the wire that wait until the core has time for a handshake.
    waiting: Vec<u8>,
    /// Bytes that have come since something was said, those of the handshake first.
    quiet_bytes: usize,
    /// Whether the connection is in the queue of those whose handshakes go on.
    pub is_queued: bool,
    /// The age of the connector that it was dialled with.
    pub age: u32,
}

impl Secured {
    /// A connection on which nothing was sent or has come. `age`: of the connector.
    pub fn new(age: u32) -> Self {
        Self { session: None, waiting: Vec::new(), quiet_bytes: 0, is_queued: false, age }
    }

    /// Whether the handshake is not over.
    pub fn is_handshaking(&self) -> bool {
        self.session.as_ref().is_none_or(Session::is_handshaking)
    }

    /// Whether the handshake went on where a former connection ended.
    pub fn is_resumed(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_resumed)
    }

    /// Keeps bytes until the core has time for the handshake.
    pub fn keep(&mut self, wire: &[u8]) -> Result<(), TooMuch> {
        self.quiet_bytes += wire.len();
        if self.quiet_bytes > HANDSHAKE_BYTES_MAX {
            return Err(TooMuch("a handshake of more than 64 KiB"));
        }
        self.waiting.extend_from_slice(wire);
        Ok(())
    }

    /// Begins the handshake or goes on with it. What follows it is appended to `plain`. Returns
    /// whether the server has said that nothing more comes.
    pub fn shake_hands(
        &mut self,
        connector: &Connector,
        server: &str,
        plain: &mut Vec<u8>,
    ) -> Result<bool, TlsError> {
        let session = match &mut self.session {
            Some(session) => session,
            None => self.session.insert(Session::dial(connector, server)?),
        };
        let has_ended = session.receive(&self.waiting, plain)?;
        if session.is_handshaking() {
            self.waiting.clear();
        } else {
            (self.waiting, self.quiet_bytes) = (Vec::new(), 0);
        }
        Ok(has_ended)
    }

    /// Takes bytes of the wire and appends what they say to `plain`. Returns whether the server has
    /// said that nothing more comes. For connections whose handshake is over.
    pub fn receive(
        &mut self,
        wire: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<Result<bool, TooMuch>, TlsError> {
        let Some(session) = &mut self.session else { return Ok(Ok(false)) };
        let has_ended = session.receive(wire, plain)?;
        if !plain.is_empty() {
            self.quiet_bytes = 0;
        } else {
            self.quiet_bytes += wire.len();
            if self.quiet_bytes > QUIET_BYTES_MAX {
                return Ok(Err(TooMuch("64 KiB and more that say nothing")));
            }
        }
        Ok(Ok(has_ended))
    }

    /// Encrypts a request. For connections whose handshake is over.
    pub fn write(&mut self, request: &[u8]) {
        if let Some(session) = &mut self.session {
            session.write(request);
        }
    }

    /// Says that nothing more comes, if that can be said yet.
    pub fn close(&mut self) {
        if let Some(session) = self.session.as_mut().filter(|session| !session.is_handshaking()) {
            session.close();
        }
    }

    /// Whether [`Secured::send`] has bytes.
    pub fn wants_to_send(&self) -> bool {
        self.session.as_ref().is_some_and(Session::wants_to_send)
    }

    /// Appends the bytes that are to leave.
    pub fn send(&mut self, wire: &mut Vec<u8>) {
        if let Some(session) = &mut self.session {
            session.send(wire);
        }
    }
}
