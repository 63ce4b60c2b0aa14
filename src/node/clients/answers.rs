//! Answers to clients as bytes.

// May panic: assertions 2, expectations 1.
// Why it does not: bounded 1, ordered 1, memory 1.

use std::io::Write;

use crate::base::quota::Quota;
use crate::shard::effects::{Answer, Identified, Internal, Refusal};
use crate::timestamp::Timestamp;
use crate::wire::conditions::write_tag;
use crate::wire::problem::{Kind, PROBLEM_TYPE, write_problem};
use crate::wire::site_news::SiteNews;
use crate::wire::site_question::COMPARES_HEADER;
use crate::wire::timer_path::write_public_id;

use super::document::write_document;
use crate::node::clients::job_answers::{NO_JOB, job_path, write_job, write_jobs};
use crate::node::clients::list_answers::{write_count, write_list};

/// Most characters of a reason that is sent. The reason may quote what a client sent.
pub(super) const REASON_BYTES_MAX: usize = 200;
/// Seconds that a client is asked to wait after 503.
const RETRY_AFTER_S: u32 = 1;

/// The form of an error, in one byte: an answer to a plain create carries it along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorForm(u8);

impl ErrorForm {
    /// `accepts_problem`: the client accepts `application/problem+json`. `is_of_name`: the path
    /// names a timer by a name of the client's own.
    pub const fn of(accepts_problem: bool, is_of_name: bool) -> Self {
        Self(accepts_problem as u8 | (is_of_name as u8) << 1)
    }

    fn accepts_problem(self) -> bool {
        self.0 & 1 != 0
    }

    /// Says that there is no such timer, in the client's own terms.
    fn no_timer(self) -> &'static str {
        if self.0 & 2 != 0 { "no timer with this name" } else { "no timer with this id" }
    }
}

/// How the connection goes on after an answer, and which form an error has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Persistence {
    /// Whether the connection stays open.
    pub keep_alive: bool,
    /// Whether the client speaks HTTP/1.0. Such a client must be told that the connection stays
    /// open.
    pub is_http10: bool,
    /// The form of an error.
    pub errors: ErrorForm,
    /// Whether the answer has no body, whatever length its head tells (RFC 9110 section 9.3.2).
    pub is_head: bool,
}

impl Persistence {
    /// The connection closes after the answer.
    pub const CLOSE: Persistence = Persistence {
        keep_alive: false,
        is_http10: false,
        errors: ErrorForm::of(false, false),
        is_head: false,
    };

    pub(super) fn header(self) -> &'static str {
        match self {
            Persistence { keep_alive: false, .. } => "Connection: close\r\n",
            Persistence { is_http10: true, .. } => "Connection: keep-alive\r\n",
            _ => "",
        }
    }
}

/// Appends the answer of a shard.
pub fn write_answer(out: &mut Vec<u8>, answer: &Answer, persistence: Persistence) {
    match answer {
        Answer::Done { id, factor, filter } => {
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\nLocation: /timers/");
            let begins = out.len();
            write_public_id(*id, *factor, *filter, out);
            let ends = out.len();
            out.extend_from_slice(b"\r\nContent-Location: /timers/");
            out.extend_from_within(begins..ends);
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(persistence.header().as_bytes());
            out.extend_from_slice(b"Content-Length: 0\r\n\r\n");
        }
        Answer::Identified(done) => {
            let Identified { id, factor, filter, version } = **done;
            let mut path = b"/timers/".to_vec();
            write_public_id(id, factor, filter, &mut path);
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\nLocation: ");
            out.extend_from_slice(&path);
            out.extend_from_slice(b"\r\nContent-Location: ");
            out.extend_from_slice(&path);
            out.extend_from_slice(b"\r\nETag: ");
            write_tag(version.0, out);
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(persistence.header().as_bytes());
            out.extend_from_slice(b"Content-Length: 0\r\n\r\n");
        }
        Answer::Found(view) => {
            let mut body = Vec::new();
            let is_identified = write_document(view, &mut body);
            let mut tag = Vec::new();
            if is_identified {
                tag.extend_from_slice(b"ETag: ");
                write_tag(view.version.0, &mut tag);
                tag.extend_from_slice(b"\r\n");
            }
            let tag = String::from_utf8_lossy(&tag);
            write_body(out, "200 OK", "application/json", &tag, &body, persistence);
        }
        Answer::NotFound | Answer::Refused(Refusal::NoTimer) => {
            let reason = persistence.errors.no_timer();
            write_failure(out, (404, Kind::NoTimer), "", reason, persistence);
        }
        Answer::Refused(Refusal::TokenFull) => write_token_full(out, None, persistence),
        Answer::Refused(refusal) => {
            let kind = kind_of(*refusal);
            // A job ends at some time, and makes room for another.
            let later = format!("Retry-After: {RETRY_AFTER_S}\r\n");
            let header = if kind.0 == 429 { &*later } else { "" };
            write_failure(out, kind, header, &refusal.to_string(), persistence);
        }
        Answer::Internal(internal) => write_internal_answer(out, internal, persistence),
    }
}

/// Appends 429 to a request for one timer more than the name of its token may have. No time after
/// which there is room is known.
#[cold]
pub fn write_token_full(out: &mut Vec<u8>, quota: Option<&Quota>, persistence: Persistence) {
    write_error(out, 429, &token_full(quota), persistence);
}

/// The reason of [`write_token_full`].
pub(super) fn token_full(quota: Option<&Quota>) -> String {
    let limited = quota.and_then(|quota| Some((&quota.name, quota.limits.timers?)));
    match limited {
        None => Refusal::TokenFull.to_string(),
        Some((name, timers)) => format!(
            "the token {name} has all its {timers} timers on a node; delete some, wait for pops, \
             or ask for more (timers= in auth.tokens_file)"
        ),
    }
}

/// Appends 429 to a write beyond the rate of its token's name. The rate has room for one again
/// within a second.
#[cold]
pub fn write_too_many_creates(out: &mut Vec<u8>, quota: &Quota, persistence: Persistence) {
    let header = format!("Retry-After: {RETRY_AFTER_S}\r\n");
    write_error_with(out, 429, &header, &too_many_creates(quota), persistence);
}

/// The reason of [`write_too_many_creates`].
pub(super) fn too_many_creates(quota: &Quota) -> String {
    let rate = quota.limits.creates_per_second.unwrap_or(0);
    format!(
        "the token {} may create, replace and delete {rate} timers a second on this node; slow \
         down, or ask for more (creates_per_s= in auth.tokens_file)",
        quota.name
    )
}

/// Appends an answer to another node (docs/compat/timer-service.md §5.2 and §5.3), or of many
/// timers.
fn write_internal_answer(out: &mut Vec<u8>, internal: &Internal, persistence: Persistence) {
    match internal {
        Internal::Page { body, count, has_more } => {
            let (status, extra) = if *has_more {
                ("206 Partial Content", format!("Content-Range: {count}\r\n"))
            } else {
                ("200 OK", String::new())
            };
            write_body(out, status, "application/json", &extra, body, persistence);
        }
        Internal::Accepted => write_body(out, "202 Accepted", "text/plain", "", b"", persistence),
        Internal::List(page) => {
            let mut body = Vec::with_capacity(page.bytes + page.timers.len() * 256 + 256);
            write_list(page, write_document, &mut body);
            write_body(out, "200 OK", "application/json", "", &body, persistence);
        }
        Internal::Count(count) => {
            let mut body = Vec::new();
            write_count(count, &mut body);
            write_body(out, "200 OK", "application/json", "", &body, persistence);
        }
        Internal::JobBegun(job) => {
            let (mut body, path) = (Vec::new(), job_path(job.id));
            write_job(job, &mut body);
            let extra = format!("Location: {path}\r\n");
            write_body(out, "202 Accepted", "application/json", &extra, &body, persistence);
        }
        Internal::Jobs(jobs) => {
            let mut body = Vec::new();
            match write_jobs(jobs, &mut body) {
                true => write_body(out, "200 OK", "application/json", "", &body, persistence),
                false => write_failure(out, (404, Kind::NoPath), "", NO_JOB, persistence),
            }
        }
        Internal::Compared(answer) => {
            let (header, kind) = (answer.header(), "application/octet-stream");
            write_body(out, "200 OK", kind, &header, answer.body(), persistence);
        }
        Internal::Part(_) | Internal::ListPart(_) | Internal::Letter(_) => {
            unreachable!("what is part of an answer is put together before")
        }
    }
}

/// Appends the answer to GET /ping.
pub fn write_pong(out: &mut Vec<u8>, persistence: Persistence) {
    write_body(out, "200 OK", "text/plain", "", b"OK", persistence);
}

/// Appends the answer to GET /ping?members: that this site answers questions, what it says of
/// itself, and its members.
pub fn write_members(out: &mut Vec<u8>, news: SiteNews, members: &[u8], persistence: Persistence) {
    let headers = format!("{COMPARES_HEADER}{}", news.header());
    write_body(out, "200 OK", "text/plain", &headers, members, persistence);
}

/// Appends the answer to POST /timestamps.
pub fn write_timestamps(out: &mut Vec<u8>, first: Timestamp, count: u32, persistence: Persistence) {
    let (value, unix_ms) = (first.0, first.unix_ms());
    let body = format!("{{\"first\":{value},\"count\":{count},\"unix_ms\":{unix_ms}}}");
    write_body(out, "200 OK", "application/json", "", body.as_bytes(), persistence);
}

/// Appends 503 to POST /timestamps. `master` is the address of the master, if it is known.
pub fn write_no_timestamps(
    out: &mut Vec<u8>,
    reason: &str,
    master: Option<&str>,
    persistence: Persistence,
) {
    let reason = one_line(reason);
    let mut extra = format!("Reason: {reason}\r\nRetry-After: {RETRY_AFTER_S}\r\n");
    if let Some(master) = master {
        extra.push_str(&format!("Timestamp-Master: {}\r\n", one_line(master)));
    }
    write_reason(out, (503, Kind::Unavailable), &extra, &reason, persistence);
}

/// Appends 405 with the methods that the path allows.
pub fn write_not_allowed(out: &mut Vec<u8>, allow: &str, persistence: Persistence) {
    let reason = format!("method not allowed here; allowed: {allow}");
    let extra = format!("Allow: {allow}\r\nReason: {reason}\r\n");
    write_reason(out, (405, Kind::Method), &extra, &reason, persistence);
}

/// Appends an error: the reason as `Reason` header, and as body or in a problem.
pub fn write_error(out: &mut Vec<u8>, status: u16, reason: &str, persistence: Persistence) {
    write_error_with(out, status, "", reason, persistence);
}

/// Appends an error with a further header line, which must end with CRLF.
pub fn write_error_with(
    out: &mut Vec<u8>,
    status: u16,
    header: &str,
    reason: &str,
    persistence: Persistence,
) {
    write_failure(out, (status, Kind::of(status, reason)), header, reason, persistence);
}

/// Status and kind of a refused write.
pub(super) fn kind_of(refusal: Refusal) -> (u16, Kind) {
    match refusal {
        // No later try would succeed: the sender must send something else.
        Refusal::FutureVersion => (400, Kind::Request),
        Refusal::NoTimer => (404, Kind::NoTimer),
        Refusal::Original | Refusal::OtherName | Refusal::Paused | Refusal::NoteTooLong => {
            (409, Kind::Conflict)
        }
        Refusal::Unmet => (412, Kind::Conflict),
        Refusal::OtherBody => (422, Kind::Conflict),
        Refusal::TokenFull | Refusal::JobsOfNameFull => (429, Kind::Quota),
        Refusal::TimersFull
        | Refusal::BytesFull
        | Refusal::HostQueueFull
        | Refusal::IdsExhausted
        | Refusal::ListsFull
        | Refusal::ListsOfNameFull
        | Refusal::JobsFull
        | Refusal::WritesFull
        | Refusal::CoreBusy => (503, Kind::Limit),
        Refusal::NoReplica
        | Refusal::NoRoom
        | Refusal::NotTaken
        | Refusal::Unanswered
        | Refusal::Contended => (503, Kind::Unconfirmed),
        Refusal::Clock
        | Refusal::Twin
        | Refusal::HasLeft
        | Refusal::Joining
        | Refusal::JournalFull
        | Refusal::JournalStalled => (503, Kind::Unavailable),
    }
}

fn write_failure(
    out: &mut Vec<u8>,
    (status, kind): (u16, Kind),
    header: &str,
    reason: &str,
    persistence: Persistence,
) {
    let reason = one_line(reason);
    let mut extra = format!("Reason: {reason}\r\n{header}");
    if status == 426 {
        extra.push_str("Upgrade: chronos-peer/1\r\n");
    }
    if status == 503 {
        extra.push_str(&format!("Retry-After: {RETRY_AFTER_S}\r\n"));
    }
    write_reason(out, (status, kind), &extra, &reason, persistence);
}

/// Appends an error whose header lines are complete: as a problem, if the client accepts it.
fn write_reason(
    out: &mut Vec<u8>,
    (status, kind): (u16, Kind),
    extra: &str,
    reason: &str,
    persistence: Persistence,
) {
    let line = status_line(status);
    if !persistence.errors.accepts_problem() {
        return write_body(out, line, "text/plain", extra, reason.as_bytes(), persistence);
    }
    let mut body = Vec::new();
    write_problem(kind, status, reason, &mut body);
    write_body(out, line, PROBLEM_TYPE, extra, &body, persistence);
}

/// Appends the interim answer to `Expect: 100-continue`.
pub fn write_continue(out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
}

fn write_body(
    out: &mut Vec<u8>,
    status: &str,
    content_type: &str,
    extra: &str,
    body: &[u8],
    persistence: Persistence,
) {
    let connection = persistence.header();
    let length = body.len();
    // What clients wrote is in it, and no browser is to take it for a page.
    let is_json = content_type == "application/json";
    let unsniffed = if is_json { "X-Content-Type-Options: nosniff\r\n" } else { "" };
    write!(
        out,
        "HTTP/1.1 {status}\r\n{extra}{connection}Content-Type: {content_type}\r\n{unsniffed}\
         Content-Length: {length}\r\n\r\n"
    )
    .expect("writing to memory does not fail");
    if !persistence.is_head {
        out.extend_from_slice(body);
    }
}

fn status_line(status: u16) -> &'static str {
    match status {
        400 => "400 Bad Request",
        401 => "401 Unauthorized",
        403 => "403 Forbidden",
        404 => "404 Not Found",
        405 => "405 Method Not Allowed",
        408 => "408 Request Timeout",
        409 => "409 Conflict",
        412 => "412 Precondition Failed",
        413 => "413 Content Too Large",
        414 => "414 URI Too Long",
        417 => "417 Expectation Failed",
        422 => "422 Unprocessable Content",
        426 => "426 Upgrade Required",
        429 => "429 Too Many Requests",
        431 => "431 Request Header Fields Too Large",
        501 => "501 Not Implemented",
        503 => "503 Service Unavailable",
        505 => "505 HTTP Version Not Supported",
        other => unreachable!("no room answers with status {other}"),
    }
}

/// Makes a reason fit for a header: one line of visible ASCII, at most [`REASON_BYTES_MAX`]
/// characters.
pub(super) fn one_line(reason: &str) -> String {
    let visible = |c: char| if (' '..='~').contains(&c) { c } else { '?' };
    reason.chars().take(REASON_BYTES_MAX).map(visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::TimerId;
    use crate::shard::effects::{Refusal, TimerView};
    use crate::timer::version::Version;

    const KEEP: Persistence = Persistence { keep_alive: true, ..Persistence::CLOSE };

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("answers are text")
    }

    #[test]
    fn a_stored_timer_is_answered_with_its_id_twice() {
        let done = Answer::Done { id: TimerId(0x0004_d9f5_4810_0000), factor: 2, filter: 0xff };
        let answer = text(|out| write_answer(out, &done, KEEP));
        let id = "/timers/0004d9f548100000-2-00000000000000ff";
        assert_eq!(
            answer,
            format!(
                "HTTP/1.1 200 OK\r\nLocation: {id}\r\nContent-Location: {id}\r\n\
                 Content-Length: 0\r\n\r\n"
            )
        );
    }

    #[test]
    fn a_refusal_says_why_and_when_to_come_back() {
        let full = Answer::Refused(Refusal::TimersFull);
        let answer = text(|out| write_answer(out, &full, KEEP));
        assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\nReason: the node holds"));
        assert!(answer.contains("\r\nRetry-After: 1\r\n"));
    }

    #[test]
    fn a_reason_cannot_split_the_answer() {
        let answer =
            text(|out| write_error(out, 400, "bad\r\nX-Evil: 1\u{e9}", Persistence::CLOSE));
        assert!(answer.contains("Reason: bad??X-Evil: 1?\r\nConnection: close\r\n"), "{answer}");
    }

    #[test]
    fn a_timer_is_shown_as_it_was_written() {
        let view = TimerView {
            id: TimerId(1),
            factor: 2,
            filter: 0,
            interval_ms: 1_500,
            repeat_for_ms: 300_000,
            age_ms: 20,
            sequence: 3,
            version: Version(9),
            uri: "http://h/\"".into(),
            opaque: b"\0\n\x1f\\"[..].into(),
            attributes: Box::default(),
            tags: vec![("a".into(), 1), ("b".into(), 2)],
        };
        let answer = text(|out| write_answer(out, &Answer::Found(Box::new(view.clone())), KEEP));
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.ends_with(&format!("\r\nContent-Length: {}", body.len())), "{head}");
        let expected = concat!(
            r#"{"callback":{"http":{"opaque":"\u0000\n\u001f\\","uri":"http://h/\""}},"#,
            r#""reliability":{"replication-factor":2},"statistics":{"tag-info":["#,
            r#"{"count":1,"type":"a"},{"count":2,"type":"b"}]},"timing":{"interval":1.5,"#,
            r#""repeat-for":300,"sequence-number":3,"start-time-delta":-20}}"#,
        );
        assert_eq!(body, expected);
        serde_json::from_str::<serde_json::Value>(body).expect("JSON");
    }
}
