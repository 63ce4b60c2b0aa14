//! The bytes of a callback (docs/compat/timer-service.md section 1.3).

use crate::base::time::WallMs;
use crate::node::callbacks::signing::{Pop, Signer};
use crate::wire::attributes::{Attributes, CallbackMethod};
use crate::wire::dead_letter::DeadLetter;
use crate::wire::json::write_number;

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
    signed: Option<(&Signer, WallMs)>,
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
        None => out.extend_from_slice(attributes.headers.as_bytes()),
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
    write_rest(out, callback, sequence.unwrap_or(callback.pop.sequence), signed);
}

/// Appends a callback. `signed` is who signs it, and the time of the attempt.
pub fn write_request(
    out: &mut Vec<u8>,
    callback: &CallbackRequest<'_>,
    signed: Option<(&Signer, WallMs)>,
) {
    out.extend_from_slice(b"POST ");
    write_target(callback.target, out);
    out.extend_from_slice(callback.head);
    write_rest(out, callback, callback.pop.sequence, signed);
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

/// Appends what stands behind `X-Sequence-Number: `.
#[inline]
fn write_rest(
    out: &mut Vec<u8>,
    callback: &CallbackRequest<'_>,
    sequence: u64,
    signed: Option<(&Signer, WallMs)>,
) {
    let CallbackRequest { opaque, pop, .. } = callback;
    write_number(sequence, out);
    out.extend_from_slice(b"\r\nContent-Length: ");
    write_number(opaque.len() as u64, out);
    out.extend_from_slice(b"\r\n");
    if let Some((signer, at)) = signed {
        signer.write_headers(out, pop, at, opaque);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(opaque);
}
