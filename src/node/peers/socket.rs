//! One connection with a peer, plain or over TLS.

use crate::base::time::MonoNs;
use crate::node::buffer_pool::BufferPool;
use crate::ring::SocketId;
use crate::tls::names::Member;
use crate::tls::session::{Session, TlsError};

/// A connection that carries frames or HTTP.
#[derive(Debug)]
pub(super) struct Socket {
    pub id: SocketId,
    pub is_sending: bool,
    /// Bytes of the send under way, if the peer dialled.
    pub sending_bytes: usize,
    /// When the send under way began.
    pub began: MonoNs,
    /// Whether the core has something to say when the send under way has ended.
    pub has_output: bool,
    /// Whether the ring does not receive for the connection, because the peer does not take what is
    /// sent.
    pub is_paused: bool,
    /// TLS. `None`: bytes go as they are.
    tls: Option<Box<Session>>,
}

impl Socket {
    /// A connection on which nothing is sent.
    pub fn new(id: SocketId, tls: Option<Box<Session>>) -> Self {
        Self {
            id,
            is_sending: false,
            sending_bytes: 0,
            began: MonoNs(0),
            has_output: false,
            is_paused: false,
            tls,
        }
    }

    /// Whether the bytes go over TLS.
    pub fn is_secured(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether the other end has not shown, over TLS, that it is this node.
    pub fn is_another(&self, member: Member<'_>) -> bool {
        self.tls.as_ref().is_some_and(|session| !session.shows(member))
    }

    /// Whether a handshake is under way.
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.is_handshaking())
    }

    /// What the bytes that came say. `plain` is scratch. After an error nothing more is taken; an
    /// end that is announced is one, as frames need no such end.
    pub fn take<'b>(
        &mut self,
        wire: &'b [u8],
        plain: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], Option<TlsError>> {
        let Some(session) = &mut self.tls else { return Ok(wire) };
        plain.clear();
        match session.receive(wire, plain) {
            Ok(false) => Ok(plain),
            Ok(true) => Err(None),
            Err(error) => Err(Some(error)),
        }
    }

    /// The bytes that are to leave for `plain`, which is not empty. Over TLS with what is left of
    /// the handshake in front.
    pub fn seal(&mut self, plain: Vec<u8>, pool: &mut BufferPool) -> Vec<u8> {
        let Some(session) = &mut self.tls else { return plain };
        session.write(&plain);
        pool.give_back(plain);
        let mut wire = pool.take();
        session.send(&mut wire);
        wire
    }

    /// The bytes of the handshake that are to leave, if there are any.
    pub fn handshake_bytes(&mut self, pool: &mut BufferPool) -> Option<Vec<u8>> {
        let session = self.tls.as_mut().filter(|session| session.wants_to_send())?;
        let mut wire = pool.take();
        session.send(&mut wire);
        Some(wire)
    }
}
