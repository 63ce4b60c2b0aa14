//! One connection for timestamps: Thrift requests in, replies out, in the order of the requests.
//!
//! A request that has to wait stays at the front of the bytes that were received and not taken.
//! Everything behind it waits with it. Memory stays bounded whatever the client does: a connection
//! whose bytes are not taken is soon paused, and replies are not made while the client does not
//! read.

// May panic: indices 2, cuts 1.
// Why it does not: found 3.

use crate::base::time::MonoNs;
use crate::ring::SocketId;
use crate::wire::thrift::{
    ExceptionKind, Form, Method, Request, parse_request, write_exception, write_unknown_method,
    write_value,
};

use crate::node::deadlines::Deadline;
use crate::node::handshakes::secured::Secured;
use crate::node::timestamps::issuer::{Denial, Denied, Issuer};

/// Most requests taken from one connection in one turn: some 20 us of work.
const REQUESTS_PER_TURN_MAX: u32 = 512;
/// Bytes of unsent replies above which no further request is taken. They are more than the requests
/// of one turn make.
const UNSENT_BYTES_MAX: usize = 32 << 10;
/// Bytes received and not taken above which the connection is paused. A whole request fits.
const PARTIAL_BYTES_MAX: usize = 16 << 10;

/// What the server must do with a connection after the connection was fed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Appetite {
    /// Go on receiving.
    Hungry,
    /// Feed the connection again in the next turn, because it had its share of this turn.
    HadItsShare,
    /// Feed the connection again when waiting requests are tried again, because its first request
    /// waits.
    Waits,
    /// Feed the connection again when some replies have left, because the client does not read
    /// them.
    BackedUp,
    /// Send what is to be sent, then close, because something came that is no request.
    Broken,
}

/// A connection for timestamps.
#[derive(Debug)]
pub struct TimestampConnection {
    /// The connection's socket.
    pub socket: SocketId,
    /// Replies to be sent, in order.
    pub out: Vec<u8>,
    /// Bytes of the send that is under way; 0 when none is.
    pub sending_bytes: usize,
    /// How many requests of this turn have their timestamps in `out`.
    pub fresh: u32,
    /// Whether the ring does not receive for the connection.
    pub is_paused: bool,
    /// Whether the connection is closed when `out` is sent.
    pub is_closing: bool,
    /// Whether the client sends nothing more.
    pub has_ended: bool,
    /// Whether the connection is in the list of connections to be fed again in the next turn.
    pub is_resuming: bool,
    /// Whether the connection is in the list of connections to be flushed.
    pub is_dirty: bool,
    /// Whether the connection is in the list of connections whose first request waits.
    pub is_waiting: bool,
    /// When the first request began to wait.
    waits_since: Option<MonoNs>,
    /// When the connection closes unless something happens before.
    pub deadline: Deadline,
    /// Bytes that the server last counted for the connection.
    pub accounted_bytes: usize,
    /// TLS, if the client speaks it.
    pub secured: Option<Box<Secured>>,
    /// Whether the client may still send for a while after all is sent, so that it reads what was
    /// sent before a reset.
    pub may_linger: bool,
    /// Whether all is sent and the end has been announced. Bytes that still come are thrown away.
    pub is_lingering: bool,
    /// Bytes received and not taken.
    partial: Vec<u8>,
}

impl TimestampConnection {
    /// A connection that has just been accepted.
    pub fn new(socket: SocketId, deadline: Deadline) -> Self {
        Self {
            socket,
            out: Vec::new(),
            sending_bytes: 0,
            fresh: 0,
            is_paused: false,
            is_closing: false,
            has_ended: false,
            is_resuming: false,
            is_dirty: false,
            is_waiting: false,
            waits_since: None,
            deadline,
            accounted_bytes: 0,
            secured: None,
            may_linger: false,
            is_lingering: false,
            partial: Vec::new(),
        }
    }

    /// Takes the requests in `input` and keeps what is left over. Empty input takes what was kept
    /// before. Nothing is taken while the first request waits.
    pub fn feed(&mut self, now: MonoNs, input: &[u8], issuer: &mut Issuer, form: Form) -> Appetite {
        let appetite = if self.is_waiting {
            self.partial.extend_from_slice(input);
            Appetite::Waits
        } else if self.partial.is_empty() {
            let (appetite, taken) = self.take(now, input, issuer, form);
            self.partial.extend_from_slice(&input[taken..]);
            appetite
        } else {
            self.partial.extend_from_slice(input);
            let mut kept = std::mem::take(&mut self.partial);
            let (appetite, taken) = self.take(now, &kept, issuer, form);
            kept.drain(..taken);
            self.partial = kept;
            appetite
        };
        if self.partial.is_empty() {
            self.partial = Vec::new();
        }
        appetite
    }

    /// Bytes of memory held for requests that were not taken, and for a handshake.
    pub fn partial_bytes(&self) -> usize {
        let requests = self.partial.capacity();
        match &self.secured {
            None => requests,
            Some(secured) => requests + secured.waiting_bytes(),
        }
    }

    /// Returns whether the client speaks TLS and the handshake is not over.
    #[inline]
    pub fn is_handshaking(&self) -> bool {
        self.secured.as_ref().is_some_and(|secured| secured.is_handshaking())
    }

    /// Gives up a connection over which something came that is no TLS. Nothing leaves but an alert.
    pub fn break_off(&mut self) {
        self.is_closing = true;
        self.drop_partial();
        if let Some(secured) = &mut self.secured {
            secured.give_up();
        }
    }

    /// Returns whether so many bytes wait that the connection should be paused.
    pub fn is_full(&self) -> bool {
        self.partial.len() >= PARTIAL_BYTES_MAX
    }

    /// Forgets the bytes that were not taken.
    pub fn drop_partial(&mut self) {
        self.partial = Vec::new();
    }

    fn is_backed_up(&self) -> bool {
        self.out.len() + self.sending_bytes > UNSENT_BYTES_MAX
    }

    /// Takes requests from the front of `input`. Returns how many bytes were used.
    fn take(
        &mut self,
        now: MonoNs,
        input: &[u8],
        issuer: &mut Issuer,
        form: Form,
    ) -> (Appetite, usize) {
        let mut at = 0;
        for _ in 0..REQUESTS_PER_TURN_MAX {
            if at == input.len() {
                return (Appetite::Hungry, at);
            }
            if self.is_backed_up() {
                return (Appetite::BackedUp, at);
            }
            match parse_request(&input[at..]) {
                Ok(Some((request, used))) => {
                    if !self.serve(now, &request, issuer, form) {
                        self.waits_since.get_or_insert(now);
                        return (Appetite::Waits, at);
                    }
                    self.waits_since = None;
                    at += used;
                }
                Ok(None) => return (Appetite::Hungry, at),
                Err(_) => return (Appetite::Broken, input.len()),
            }
        }
        (Appetite::HadItsShare, at)
    }

    /// Answers a request. Returns `false` when the request must wait.
    #[inline]
    fn serve(
        &mut self,
        now: MonoNs,
        request: &Request<'_>,
        issuer: &mut Issuer,
        form: Form,
    ) -> bool {
        let count = match request.method {
            Method::GetTimestamp => 1,
            // A value that is no count is out of range.
            Method::GetTimestamps { range } => {
                range.and_then(|range| u32::try_from(range).ok()).unwrap_or(0)
            }
            Method::Unknown => {
                write_unknown_method(&mut self.out, form, request);
                issuer.counters.unknown_methods += 1;
                return true;
            }
        };
        match issuer.take(now, count, self.waits_since) {
            Ok(first) => {
                self.fresh += 1;
                write_value(&mut self.out, form, request, first.0 as i64);
            }
            Err(Denied::Wait) => return false,
            Err(Denied::Refused(denial)) => {
                let kind = match denial {
                    Denial::Range => ExceptionKind::ProtocolError,
                    Denial::NotServing | Denial::Waited => ExceptionKind::InternalError,
                };
                let reason = issuer.reason(denial);
                write_exception(&mut self.out, form, request, (kind, &reason));
            }
        }
        true
    }
}
