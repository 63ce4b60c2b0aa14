//! The bytes of a callback (docs/compat/timer-service.md section 1.3).

use crate::base::ids::TimerId;
use crate::base::time::WallMs;
use crate::node::callbacks::signing::{Pop, Signer};
use crate::shard::told::ToldTimer;
use crate::wire::attributes::{Attributes, CallbackMethod};
use crate::wire::callback_headers::{has_timer_header, write_client_headers};
use crate::wire::dead_letter::DeadLetter;
use crate::wire::json::write_number;
use crate::wire::timer_path::write_public_id;
use crate::wire::wall_time::WallTimeWriter;

/// What a callback says.
#[derive(Clone, Copy, Debug)]
pub struct CallbackRequest<'a> {
    /// `" HTTP/1.1"` and the headers that all callbacks of the host share, up to the value of
    /// `X-Sequence-Number`.
    pub head: &'a [u8],
    /// Path and query; may be empty.
    pub target: &'a [u8],
    /// The body.
    pub opaque: &'a [u8],
    /// Which pop the callback is for.
    pub pop: Pop,
    /// What it says of its timer; `None`: nothing.
    pub told: Option<ToldTimer>,
}

/// Who makes callbacks.
#[derive(Debug)]
pub struct Sender<'a> {
    /// Signs them, and the time of the attempt; `None`: nobody does.
    pub signed: Option<(&'a Signer, WallMs)>,
    /// Writes when they were due.
    pub times: &'a mut WallTimeWriter,
}

/// The headers behind `Host`, up to the value of `X-Sequence-Number`, of a callback whose client
/// asked for nothing else.
pub const USUAL_HEADERS: &str = "Content-Type: application/octet-stream\r\nX-Sequence-Number: ";

/// Appends a callback that looks as its client asked for.
#[cold]
pub fn write_special_request(
    out: &mut Vec<u8>,
    callback: &CallbackRequest<'_>,
    attributes: &Attributes<'_>,
    sender: &mut Sender<'_>,
) {
    let letter = attributes.letter.as_ref();
    let method = if letter.is_some() { CallbackMethod::Post } else { attributes.method };
    out.extend_from_slice(method.name().as_bytes());
    out.push(b' ');
    write_target(callback.target, out);
    let usual = USUAL_HEADERS.as_bytes();
    out.extend_from_slice(callback.head.strip_suffix(usual).unwrap_or(callback.head));
    out.extend_from_slice(b"Content-Type: ");
    let content_type = attributes.content_type.unwrap_or("application/octet-stream");
    out.extend_from_slice(content_type.as_bytes());
    out.extend_from_slice(b"\r\n");
    match letter {
        // The client's headers may hold secrets, and are for another host.
        Some(letter) => write_letter(out, letter, attributes.dead_letter_uri),
        None => write_client_headers(attributes.headers, out),
    }
    let replay = attributes.replay;
    if let Some(replay) = replay.filter(|_| letter.is_none()) {
        out.extend_from_slice(b"X-Replay: ");
        write_number(replay.count.into(), out);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"X-Sequence-Number: ");
    let sequence = letter.map(|letter| letter.sequence).or(replay.map(|replay| replay.sequence));
    let sequence = sequence.or(attributes.report.map(|report| report.sequence));
    write_number(sequence.unwrap_or(callback.pop.sequence), out);
    // The body of a report says these of the pop that it reports.
    let told = callback.told.filter(|_| attributes.report.is_none());
    // Lines of the client of one of these names are of a version before them.
    let is_clients = letter.is_none() && has_timer_header(attributes.headers);
    if let Some(told) = told.filter(|_| !is_clients) {
        write_id_header(out, callback.pop.id, &told);
        // A letter is due when it was given up, and the pop was before.
        if letter.is_none() {
            write_due_header(out, &told, sender.times);
        }
        write_attempt_header(out, &told);
    }
    write_rest(out, callback, sender);
}

/// Appends a callback.
pub fn write_request(out: &mut Vec<u8>, callback: &CallbackRequest<'_>, sender: &mut Sender<'_>) {
    out.extend_from_slice(b"POST ");
    write_target(callback.target, out);
    out.extend_from_slice(callback.head);
    write_number(callback.pop.sequence, out);
    if let Some(told) = &callback.told {
        write_id_header(out, callback.pop.id, told);
        write_due_header(out, told, sender.times);
        write_attempt_header(out, told);
    }
    write_rest(out, callback, sender);
}

#[inline]
fn write_id_header(out: &mut Vec<u8>, id: TimerId, told: &ToldTimer) {
    out.extend_from_slice(b"\r\nX-Timer-Id: ");
    write_public_id(id, told.factor, told.filter, out);
}

#[inline]
fn write_due_header(out: &mut Vec<u8>, told: &ToldTimer, times: &mut WallTimeWriter) {
    out.extend_from_slice(b"\r\nX-Due-Time: ");
    times.write(told.due, out);
}

#[inline]
fn write_attempt_header(out: &mut Vec<u8>, told: &ToldTimer) {
    out.extend_from_slice(b"\r\nX-Attempt: ");
    write_number(told.attempt.into(), out);
}

/// Appends what a letter on its way says of itself. `uri` is where the pop was to go.
fn write_letter(out: &mut Vec<u8>, letter: &DeadLetter<'_>, uri: Option<&str>) {
    let mut line = |name: &str, value: &str| {
        for text in [name, ": ", value, "\r\n"] {
            out.extend_from_slice(text.as_bytes());
        }
    };
    line("X-Dead-Letter-Reason", letter.reason.name());
    line("X-Dead-Letter-Attempts", &letter.attempts.to_string());
    line("X-Dead-Letter-Failure", letter.failure.name());
    if let Some(status) = letter.status {
        line("X-Dead-Letter-Status", &status.to_string());
    }
    if let Some(uri) = uri {
        line("X-Dead-Letter-Uri", uri);
    }
}

#[inline]
fn write_target(target: &[u8], out: &mut Vec<u8>) {
    if !target.starts_with(b"/") {
        out.push(b'/');
    }
    out.extend_from_slice(target);
}

/// Appends what stands behind the headers that tell of the pop.
#[inline]
fn write_rest(out: &mut Vec<u8>, callback: &CallbackRequest<'_>, sender: &Sender<'_>) {
    let CallbackRequest { opaque, pop, .. } = callback;
    out.extend_from_slice(b"\r\nContent-Length: ");
    write_number(opaque.len() as u64, out);
    out.extend_from_slice(b"\r\n");
    if let Some((signer, at)) = sender.signed {
        signer.write_headers(out, pop, at, opaque);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(opaque);
}
