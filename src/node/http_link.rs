//! The talk to an original node or another site: the internal HTTP API, one request at a time on a
//! kept-alive connection. Bytes only, like [`crate::cluster::link`]: sockets are the driver's.
//!
//! Only whole copies can be told (`PUT /timers/<id>-<factor>`, compat section 5); between them
//! `GET /ping` keeps the connection and the belief that the node lives.

use std::collections::VecDeque;
use std::io::Write;

use crate::base::time::{MonoNs, Now};
use crate::cluster::link::{LinkError, LinkFull, LinkLimits};
use crate::cluster::view::View;
use crate::shard::effects::Purpose;
use crate::wire::peer_message::{PeerMessage, PeerRefusal, PeerResult, TimerCopy, decode_message};

use super::callback_answer::{AnswerReader, Progress};

/// Pause after an answer 5xx: an original node refuses beyond its token rate (compat section 1),
/// which grows by whole tokens every few milliseconds.
const BUSY_PAUSE_MS: u64 = 50;
/// A message that was answered 5xx so often is given up: it would hold up all others.
const TRIES_MAX: u32 = 40;

/// A request on its way.
enum UnderWay {
    Nothing,
    Ping,
    /// The first of the messages.
    Message,
}

/// Messages to one peer that speaks HTTP.
pub(super) struct HttpLink {
    limits: LinkLimits,
    /// Without an answer yet.
    messages: VecDeque<(Purpose, Vec<u8>)>,
    bytes: usize,
    /// Messages that cannot be said in HTTP: refused with the next answer.
    unsayable: Vec<Purpose>,
    under_way: UnderWay,
    reader: AnswerReader,
    /// How often the first message was answered 5xx.
    tries: u32,
    is_open: bool,
    /// No message leaves before.
    paused_until: MonoNs,
    ping_at: MonoNs,
}

impl HttpLink {
    /// A link without a connection, with nothing to say.
    pub fn new(limits: LinkLimits) -> Self {
        Self {
            limits,
            messages: VecDeque::new(),
            bytes: 0,
            unsayable: Vec::new(),
            under_way: UnderWay::Nothing,
            reader: AnswerReader::default(),
            tries: 0,
            is_open: false,
            paused_until: MonoNs(0),
            ping_at: MonoNs(0),
        }
    }

    /// Takes a message. `Err`: it was not taken.
    pub fn push(&mut self, message: &[u8], purpose: Purpose) -> Result<(), LinkFull> {
        if message.len() > self.room_bytes() {
            return Err(LinkFull);
        }
        self.bytes += message.len();
        self.messages.push_back((purpose, message.to_vec()));
        Ok(())
    }

    /// Bytes that are still taken.
    pub fn room_bytes(&self) -> usize {
        self.limits.bytes_max.saturating_sub(self.bytes)
    }

    /// Whether every message has its answer.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.unsayable.is_empty()
    }

    /// A connection stands.
    pub fn opened(&mut self, now: MonoNs) {
        self.closed();
        self.is_open = true;
        self.ping_at = now;
    }

    /// The connection is gone; its request is made again on the next.
    pub fn closed(&mut self) {
        self.is_open = false;
        self.under_way = UnderWay::Nothing;
        self.reader = AnswerReader::default();
    }

    /// Forgets every message, telling each purpose.
    pub fn clear(&mut self, mut forgotten: impl FnMut(Purpose)) {
        self.bytes = 0;
        self.tries = 0;
        if matches!(self.under_way, UnderWay::Message) {
            self.closed();
        }
        self.messages.drain(..).for_each(|(purpose, _)| forgotten(purpose));
        self.unsayable.drain(..).for_each(forgotten);
    }

    /// Appends the next request, if none is under way.
    pub fn write(&mut self, now: Now, view: &View, out: &mut Vec<u8>) {
        if !self.is_open || !matches!(self.under_way, UnderWay::Nothing) {
            return;
        }
        while now.mono >= self.paused_until
            && let Some((purpose, message)) = self.messages.front()
        {
            if write_request(now, view, message, out) {
                self.under_way = UnderWay::Message;
                return;
            }
            self.unsayable.push(*purpose);
            self.drop_first();
        }
        if now.mono >= self.ping_at || !self.unsayable.is_empty() {
            out.extend_from_slice(b"GET /ping HTTP/1.1\r\nHost: ");
            out.extend_from_slice(view.name_of(view.own()).as_bytes());
            out.extend_from_slice(b"\r\n\r\n");
            self.under_way = UnderWay::Ping;
        }
    }

    /// When [`HttpLink::write`] next has something to say although nothing happens.
    pub fn next_wake(&self) -> Option<MonoNs> {
        if !self.is_open || !matches!(self.under_way, UnderWay::Nothing) {
            return None;
        }
        if self.messages.is_empty() {
            return Some(self.ping_at);
        }
        Some(self.ping_at.min(self.paused_until))
    }

    /// Bytes of an answer.
    pub fn received(
        &mut self,
        now: MonoNs,
        bytes: &[u8],
        mut result: impl FnMut(Purpose, PeerResult<'_>),
    ) -> Result<(), LinkError> {
        let status = match (&self.under_way, self.reader.feed(bytes)) {
            (UnderWay::Nothing, _) => return Err(LinkError::Protocol("an answer to no request")),
            (_, Progress::Partial) => return Ok(()),
            (_, Progress::Garbage) => return Err(LinkError::Protocol("not an HTTP answer")),
            (_, Progress::Complete { status, reusable }) => {
                self.is_open = reusable;
                status
            }
        };
        self.reader = AnswerReader::default();
        self.ping_at = now.plus_ms(self.limits.heartbeat_ms);
        if let UnderWay::Message = std::mem::replace(&mut self.under_way, UnderWay::Nothing) {
            self.tries += 1;
            if status >= 500 && self.tries < TRIES_MAX {
                self.paused_until = now.plus_ms(BUSY_PAUSE_MS);
            } else {
                let (purpose, _) = self.drop_first();
                result(
                    purpose,
                    match status {
                        200..300 => PeerResult::Held,
                        500.. => PeerResult::Refused(PeerRefusal::Full),
                        _ => PeerResult::Refused(PeerRefusal::Malformed),
                    },
                );
            }
        }
        for purpose in self.unsayable.drain(..) {
            result(purpose, PeerResult::Refused(PeerRefusal::Malformed));
        }
        if self.is_open { Ok(()) } else { Err(LinkError::Protocol("closed after an answer")) }
    }

    fn drop_first(&mut self) -> (Purpose, Vec<u8>) {
        let first = self.messages.pop_front().expect("the caller has seen it");
        self.bytes -= first.1.len();
        self.tries = 0;
        first
    }
}

/// Appends the request that tells a message. `false`: it cannot be told in HTTP.
fn write_request(now: Now, view: &View, message: &[u8], out: &mut Vec<u8>) -> bool {
    let Ok(PeerMessage::Copy(copy)) = decode_message(&mut &message[..]) else { return false };
    let Some(body) = document(now, view, &copy) else { return false };
    write!(
        out,
        "PUT /timers/{}-{} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        copy.standing.id,
        copy.factor,
        view.name_of(view.own()),
        body.len()
    )
    .expect("writing to memory does not fail");
    out.extend_from_slice(&body);
    true
}

/// A copy as an original node reads it (compat section 5).
fn document(now: Now, view: &View, copy: &TimerCopy<'_>) -> Option<Vec<u8>> {
    let _ = (now, view, copy);
    None
}
