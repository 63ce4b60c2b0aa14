//! TLS on one accepted connection: what waits for a handshake's turn, and which bytes leave.

use crate::base::time::MonoNs;
use crate::node::buffer_pool::BufferPool;
use crate::tls::acceptor::Acceptor;
use crate::tls::session::{
    DECODE_ERROR, FIRST_FLIGHT_BYTES, FIRST_HEADS_BYTES, Session, TlsError, may_be_client_hello,
    may_be_tls,
};

/// Most bytes of a handshake. A chain of certificates with keys of RSA has some 10 KiB.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// Bytes that wait for a handshake's turn above which nothing more is received. A client that is
/// ready sends its first requests before the server is.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// How far a connection has come.
#[derive(Debug)]
enum Stage {
    /// No byte has been looked at.
    New,
    /// The handshake is under way.
    Shaking(Session),
    /// The handshake is over: plaintext goes both ways.
    Open(Session),
    /// Nothing more is read or written but what is left to send, an alert.
    Broken(Option<Session>),
}

/// What became of bytes of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The connection goes on.
    GoesOn,
    /// The handshake has ended with these bytes. `is_resumed`: by a ticket.
    Opened {
        /// Whether the client had a ticket of a former connection.
        is_resumed: bool,
    },
    /// The first byte is none of TLS: the client speaks in the clear, or nonsense. What it said is
    /// in the plaintext.
    Plain,
    /// The connection cannot go on.
    Broken,
}

/// What to do after bytes of a handshake have come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// Receive more. The handshake goes on when the core has time for it.
    Hungry,
    /// Receive no more until then.
    Full,
    /// The client speaks in the clear, or nonsense. Nothing was kept.
    Plain,
    /// No TLS begins like that. Only an alert leaves, and nothing more is read.
    Nonsense,
}

/// TLS on one connection.
#[derive(Debug)]
pub struct Secured {
    stage: Stage,
    /// Bytes of the wire that wait until the core has time for a handshake.
    waiting: Vec<u8>,
    /// Bytes that the handshake has taken.
    handshake_bytes: usize,
    /// When the handshake must be over.
    pub until: MonoNs,
    /// Whether the connection is in the queue of those whose handshakes go on.
    pub is_queued: bool,
    /// Whether the client has said that it sends nothing more (close_notify).
    pub has_ended: bool,
    /// Whether the server has said so.
    has_closed: bool,
    /// Whether the server has sent anything of the handshake.
    has_spoken: bool,
    /// Whether the client's first bytes were none of TLS: nobody waits for more than an alert.
    pub is_nonsense: bool,
    /// Whether that alert has to leave.
    owes_alert: bool,
    /// Which queue the connection waits in, and with what it is accepted.
    pub kind: Kind,
}

/// Who is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A client of timers.
    Client,
    /// A client of timestamps.
    Timestamps,
    /// A node, or whoever says so, at an address that is not known to be a member's.
    Node,
    /// A node at an address of a member, or whoever says so there.
    Member,
}

impl Secured {
    /// A connection on which nothing has come yet.
    pub fn new(until: MonoNs, kind: Kind) -> Self {
        Self {
            stage: Stage::New,
            waiting: Vec::new(),
            handshake_bytes: 0,
            until,
            is_queued: false,
            has_ended: false,
            has_closed: false,
            has_spoken: false,
            is_nonsense: false,
            owes_alert: false,
            kind,
        }
    }

    /// Whether the handshake has not ended, well or badly.
    pub fn is_handshaking(&self) -> bool {
        matches!(self.stage, Stage::New | Stage::Shaking(_))
    }

    /// Whether nothing more is read or written.
    pub fn is_broken(&self) -> bool {
        matches!(self.stage, Stage::Broken(_))
    }

    /// TLS itself, if the handshake is over.
    pub fn session(&self) -> Option<&Session> {
        match &self.stage {
            Stage::Open(session) => Some(session),
            _ => None,
        }
    }

    /// Gives TLS to whoever takes the connection over, if the handshake is over.
    pub fn into_session(self) -> Option<Session> {
        match self.stage {
            Stage::Open(session) => Some(session),
            _ => None,
        }
    }

    /// Bytes of memory held for a handshake: those that wait, and those that the library may keep
    /// of messages that are not complete.
    pub fn waiting_bytes(&self) -> usize {
        let taken = if self.is_handshaking() { self.handshake_bytes } else { 0 };
        self.waiting.capacity() + taken
    }

    /// Keeps bytes until the core has time for the handshake. What no TLS begins with does not get
    /// that far.
    pub fn keep(&mut self, wire: &[u8]) -> Kept {
        let is_new = matches!(self.stage, Stage::New);
        if is_new && self.waiting.is_empty() && !wire.is_empty() && !may_be_tls(wire) {
            return Kept::Plain;
        }
        // The heads are complete in the first bytes, or cut by whoever sends them.
        let judged_bytes = self.waiting.len();
        self.waiting.extend_from_slice(wire);
        if is_new && judged_bytes < FIRST_HEADS_BYTES && !may_be_client_hello(&self.waiting) {
            (self.is_nonsense, self.owes_alert) = (true, true);
            self.give_up();
            return Kept::Nonsense;
        }
        let bytes_max = if is_new { FIRST_FLIGHT_BYTES } else { WAITING_BYTES_MAX };
        if self.waiting.len() <= bytes_max { Kept::Hungry } else { Kept::Full }
    }

    /// Goes on with the handshake. What follows it is appended to `plain`.
    pub fn shake_hands(&mut self, acceptor: &Acceptor, plain: &mut Vec<u8>) -> Progress {
        let wire = std::mem::take(&mut self.waiting);
        if matches!(self.stage, Stage::New) {
            if !may_be_tls(&wire) {
                plain.extend_from_slice(&wire);
                return if wire.is_empty() { Progress::GoesOn } else { Progress::Plain };
            }
            match Session::accept(acceptor) {
                Ok(session) => self.stage = Stage::Shaking(session),
                Err(_) => return self.broken(),
            }
        }
        self.handshake_bytes += wire.len();
        let progress = self.receive(&wire, plain);
        self.is_nonsense = !self.has_spoken && progress == Progress::Broken;
        match std::mem::replace(&mut self.stage, Stage::Broken(None)) {
            Stage::Shaking(session) if !session.is_handshaking() => {
                let is_resumed = session.is_resumed();
                self.stage = Stage::Open(session);
                Progress::Opened { is_resumed }
            }
            Stage::Shaking(session) if self.handshake_bytes > HANDSHAKE_BYTES_MAX => {
                self.stage = Stage::Shaking(session);
                self.broken()
            }
            stage => {
                self.stage = stage;
                progress
            }
        }
    }

    /// Takes bytes of the wire and appends what they say to `plain`.
    pub fn receive(&mut self, wire: &[u8], plain: &mut Vec<u8>) -> Progress {
        let (Stage::Shaking(session) | Stage::Open(session)) = &mut self.stage else {
            return Progress::Broken;
        };
        match session.receive(wire, plain) {
            Ok(has_ended) => {
                self.has_ended |= has_ended;
                Progress::GoesOn
            }
            Err(TlsError { .. }) => self.broken(),
        }
    }

    /// Gives the connection up: only an alert may still leave.
    pub fn give_up(&mut self) {
        self.broken();
        self.waiting = Vec::new();
    }

    fn broken(&mut self) -> Progress {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Broken(None)) {
            Stage::Shaking(session) | Stage::Open(session) => Stage::Broken(Some(session)),
            Stage::New => Stage::Broken(None),
            broken @ Stage::Broken(_) => broken,
        };
        Progress::Broken
    }

    /// Whether bytes of a handshake, or an alert, are to leave.
    pub fn wants_to_send(&self) -> bool {
        match &self.stage {
            Stage::New => false,
            Stage::Shaking(session) | Stage::Open(session) => session.wants_to_send(),
            Stage::Broken(session) => {
                self.owes_alert || session.as_ref().is_some_and(Session::wants_to_send)
            }
        }
    }

    /// The bytes that are to leave now, with the answers in `out`, if there are any. `is_last`:
    /// nothing follows these answers.
    pub fn next_send(
        &mut self,
        out: &mut Vec<u8>,
        is_last: bool,
        pool: &mut BufferPool,
    ) -> Option<Vec<u8>> {
        let session = match &mut self.stage {
            Stage::New => return None,
            Stage::Shaking(session) => session,
            Stage::Open(session) => {
                if !out.is_empty() {
                    let answers = std::mem::replace(out, pool.take());
                    session.write(&answers);
                    pool.give_back(answers);
                }
                if is_last && !self.has_closed {
                    self.has_closed = true;
                    session.close();
                }
                session
            }
            Stage::Broken(session) => {
                *out = Vec::new();
                if std::mem::take(&mut self.owes_alert) {
                    let mut wire = pool.take();
                    wire.extend_from_slice(&DECODE_ERROR);
                    return Some(wire);
                }
                session.as_mut()?
            }
        };
        if !session.wants_to_send() {
            return None;
        }
        self.has_spoken = true;
        let mut wire = pool.take();
        session.send(&mut wire);
        Some(wire)
    }
}
