//! From a complete request to a request for the shard, or to an answer at once.

use crate::base::time::Now;
use crate::shard::effects::{Request, Requester, Target};
use crate::timer::admission::{Rejection, admit};
use crate::wire::request_head::{Method, RequestHead};
use crate::wire::timer_json::{JsonScratch, parse_timer};
use crate::wire::timer_path::{PublicId, TimerPath, parse_path};

use super::answers::{Persistence, cut_body, write_error, write_not_allowed, write_pong};
use super::core::Core;

/// Content buffers above this are given back to the allocator after use.
const CONTENT_BYTES_KEPT: usize = 64 << 10;

/// What is kept of a request's head once the head's bytes are gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestLine {
    /// The method.
    pub method: Method,
    /// What the path names.
    pub path: TimerPath,
    /// How the connection goes on.
    pub persistence: Persistence,
}

impl RequestLine {
    /// Takes from a head what the rest of the request needs.
    pub fn of(head: &RequestHead<'_>) -> Self {
        let persistence = Persistence { keep_alive: head.keep_alive, is_http10: head.is_http10 };
        Self { method: head.method, path: parse_path(head.path), persistence }
    }
}

/// Where the answer to a request comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Served {
    /// From the core's replies, in this turn or a later one.
    Later,
    /// It has been written.
    Written,
}

/// The API of one core.
pub struct Service {
    /// The core that the requests go to.
    pub core: Core,
    /// Requests answered here, without a shard.
    pub written: u64,
    /// Requests answered 4xx.
    pub bad: u64,
    opaque_bytes_max: u32,
    json: JsonScratch,
    content: Vec<u8>,
}

impl Service {
    /// The API before a core.
    pub fn new(core: Core, opaque_bytes_max: u32) -> Self {
        let (json, content) = (JsonScratch::default(), Vec::new());
        Self { core, written: 0, bad: 0, opaque_bytes_max, json, content }
    }

    /// Serves one complete request. An answer known at once is appended to `out`; `body` is used as
    /// scratch.
    pub fn serve(
        &mut self,
        now: Now,
        from: Requester,
        line: &RequestLine,
        body: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Served {
        let begins = out.len();
        let served = self.route(now, from, line, body, out);
        if line.method == Method::Head {
            cut_body(out, begins);
        }
        self.written += u64::from(served == Served::Written);
        served
    }

    fn route(
        &mut self,
        now: Now,
        from: Requester,
        line: &RequestLine,
        body: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Served {
        let persistence = line.persistence;
        let request = match (line.path, line.method) {
            (TimerPath::Collection, Method::Post) => return self.store(now, from, line, body, out),
            (TimerPath::Timer(_), Method::Put) => return self.store(now, from, line, body, out),
            (TimerPath::Timer(named), Method::Delete) => Request::Delete(target_of(named)),
            (TimerPath::Timer(named), Method::Get) => Request::Read(target_of(named)),
            (TimerPath::Ping, Method::Get) => {
                write_pong(out, persistence);
                return Served::Written;
            }
            (TimerPath::Collection, _) => return self.not_allowed(out, "POST", persistence),
            (TimerPath::Timer(_), _) => {
                return self.not_allowed(out, "GET, PUT, DELETE", persistence);
            }
            (TimerPath::Ping, _) => return self.not_allowed(out, "GET", persistence),
            (TimerPath::References | TimerPath::Unknown, _) => {
                let reason = "no such path; expected /timers, /timers/<id> or /ping";
                self.bad += 1;
                write_error(out, 404, reason, persistence);
                return Served::Written;
            }
        };
        self.core.request(now, from, request);
        Served::Later
    }

    /// POST and PUT: the body is a timer.
    fn store(
        &mut self,
        now: Now,
        from: Requester,
        line: &RequestLine,
        body: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Served {
        let target = match line.path {
            TimerPath::Timer(target) => Some(target),
            _ => None,
        };
        let document = match parse_timer(body, &mut self.json) {
            Ok(document) => document,
            Err(error) => {
                self.bad += 1;
                write_error(out, 400, &error.0, line.persistence);
                return Served::Written;
            }
        };
        let factor_in_path = target.and_then(|target| target.factor);
        if self.content.capacity() > CONTENT_BYTES_KEPT {
            self.content = Vec::new();
        }
        match admit(&document, factor_in_path, self.opaque_bytes_max, &mut self.content) {
            Ok(definition) => {
                let request = match target {
                    Some(named) => Request::Update(target_of(named), definition),
                    None => Request::Create(definition),
                };
                self.core.request(now, from, request);
                Served::Later
            }
            Err(rejection) => {
                self.bad += 1;
                let too_long = matches!(rejection, Rejection::OpaqueTooLong { .. });
                let status = if too_long { 413 } else { 400 };
                write_error(out, status, &rejection.to_string(), line.persistence);
                Served::Written
            }
        }
    }

    /// Appends the answer to bytes that are no request, or to a request that is not taken.
    pub fn refuse(&mut self, out: &mut Vec<u8>, status: u16, reason: &str) {
        self.written += 1;
        self.bad += u64::from(status < 500);
        write_error(out, status, reason, Persistence::CLOSE);
    }

    fn not_allowed(&mut self, out: &mut Vec<u8>, allow: &str, persistence: Persistence) -> Served {
        self.bad += 1;
        write_not_allowed(out, allow, persistence);
        Served::Written
    }
}

/// A timer as the path names it.
fn target_of(named: PublicId) -> Target {
    Target { id: named.id, factor: named.factor, filter: named.filter }
}
