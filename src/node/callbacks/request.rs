//! The bytes of a callback (docs/compat/timer-service.md section 1.3).

use crate::base::time::WallMs;
use crate::node::callbacks::signing::{Pop, Signer};
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

/// Appends a callback. `signed` is who signs it, and the time of the attempt.
pub fn write_request(
    out: &mut Vec<u8>,
    callback: &CallbackRequest<'_>,
    signed: Option<(&Signer, WallMs)>,
) {
    let CallbackRequest { head, target, opaque, pop } = callback;
    out.extend_from_slice(b"POST ");
    if !target.starts_with(b"/") {
        out.push(b'/');
    }
    out.extend_from_slice(target);
    out.extend_from_slice(head);
    write_number(pop.sequence, out);
    out.extend_from_slice(b"\r\nContent-Length: ");
    write_number(opaque.len() as u64, out);
    out.extend_from_slice(b"\r\n");
    if let Some((signer, at)) = signed {
        signer.write_headers(out, pop, at, opaque);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(opaque);
}
