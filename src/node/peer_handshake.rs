//! How a connection between two nodes begins: an HTTP/1.1 Upgrade (RFC 9110 section 7.8) on the
//! clients' port, in which both ends say who they are.
//!
//! ```text
//! GET /peer HTTP/1.1                      HTTP/1.1 101 Switching Protocols
//! Host: <address dialled>                 Connection: Upgrade
//! Connection: Upgrade                     Upgrade: chronos-peer/1
//! Upgrade: chronos-peer/1                 X-Chronos-Name: ... and so on
//! X-Chronos-Name: 10.0.0.2:7253
//! X-Chronos-Instance: 2
//! X-Chronos-Incarnation: 0123456789abcdef
//! X-Chronos-View: 5030520784871784460
//! X-Chronos-Shard: 0
//! X-Chronos-Shards: 2
//! ```
//!
//! Refused with 403 (no member; with `X-Chronos-Refused: address` not at its address), 409 (two
//! processes of one name), 426 (another protocol), 503 (too many connections, or a name that is
//! not resolved yet), each with a `Reason`. Nobody is told anything before its address was looked
//! at. A node that knows nothing of this answers 404 or the like: it is talked to over the internal
//! HTTP API.

use std::io::Write;
use std::mem::MaybeUninit;

use httparse::{Header, Request, Response, Status};

use crate::base::limits::HEADERS_MAX;

use super::peering::{Hello, HelloRefusal};

/// The path that is upgraded.
pub const PATH: &str = "/peer";
/// The protocol and its version, which is that of `wire::peer_frame`.
const PROTOCOL: &str = "chronos-peer/1";
/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of a node's name: a host name has at most 253, a port 6.
const NAME_BYTES_MAX: usize = 260;

/// Appends the request of an Upgrade.
pub fn write_request(out: &mut Vec<u8>, host: &str, hello: &Hello) {
    write!(out, "GET {PATH} HTTP/1.1\r\nHost: {host}\r\n").expect("memory does not fail");
    write_headers(out, hello);
}

/// Appends the answer that accepts it.
pub fn write_acceptance(out: &mut Vec<u8>, hello: &Hello) {
    out.extend_from_slice(b"HTTP/1.1 101 Switching Protocols\r\n");
    write_headers(out, hello);
}

fn write_headers(out: &mut Vec<u8>, hello: &Hello) {
    write!(
        out,
        "Connection: Upgrade\r\nUpgrade: {PROTOCOL}\r\nX-Chronos-Name: {}\r\n\
         X-Chronos-Instance: {}\r\nX-Chronos-Incarnation: {:016x}\r\nX-Chronos-View: {}\r\n\
         X-Chronos-Shard: {}\r\nX-Chronos-Shards: {}\r\n\r\n",
        hello.name, hello.instance, hello.incarnation, hello.view_id, hello.shard, hello.shards
    )
    .expect("memory does not fail");
}

/// Reads the head of a request for [`PATH`] that has been found to be a whole request head. `Err`:
/// the status and reason to refuse it with.
pub fn parse_request(head: &[u8]) -> Result<Hello, (u16, &'static str)> {
    let mut places = [const { MaybeUninit::<Header<'_>>::uninit() }; HEADERS_MAX];
    let mut request = Request::new(&mut []);
    // Empty lines before a request line are tolerated by the parser of requests.
    match request.parse_with_uninit_headers(head.trim_ascii_start(), &mut places) {
        Ok(Status::Complete(_)) => hello_of(request.headers),
        _ => Err((400, "expected a request head")),
    }
}

/// The status for a refused hello, and a header line.
pub fn refusal_of(refusal: &HelloRefusal) -> (u16, &'static str) {
    match refusal {
        HelloRefusal::Stranger(..) => (403, ""),
        HelloRefusal::Elsewhere(_) => (403, "X-Chronos-Refused: address\r\n"),
        HelloRefusal::Twins(_) => (409, ""),
        HelloRefusal::Unresolved | HelloRefusal::TooMany => (503, ""),
    }
}

/// What the node that was dialled said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It speaks frames from here on. The number of bytes that its head took.
    Upgraded(Hello, usize),
    /// It does not know the Upgrade: an original node.
    Original,
    /// It refused.
    Refused,
    /// It cannot say yet, or not now.
    Busy,
    /// It does not take this process for the node that it says it is: another one is, or this one
    /// calls from another address.
    Disowned,
}

/// Reads the answer to an Upgrade. `Ok(None)`: more bytes are needed. `Err`: no HTTP, or no answer
/// that makes sense.
pub fn parse_answer(bytes: &[u8]) -> Result<Option<Answered>, ()> {
    let mut places = [const { MaybeUninit::<Header<'_>>::uninit() }; HEADERS_MAX];
    let mut response = Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let head_bytes =
        match config.parse_response_with_uninit_headers(&mut response, bytes, &mut places) {
            Ok(Status::Complete(head_bytes)) => head_bytes,
            Ok(Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
            _ => return Err(()),
        };
    match response.code {
        Some(101) => match hello_of(response.headers) {
            Ok(hello) => Ok(Some(Answered::Upgraded(hello, head_bytes))),
            Err(_) => Err(()),
        },
        // 426 is a later version of ours that does not speak this protocol any more.
        Some(400 | 404 | 405 | 426 | 501) => Ok(Some(Answered::Original)),
        Some(409) => Ok(Some(Answered::Disowned)),
        Some(403) if value_of(response.headers, "X-Chronos-Refused") == Some("address") => {
            Ok(Some(Answered::Disowned))
        }
        Some(503) => Ok(Some(Answered::Busy)),
        Some(_) => Ok(Some(Answered::Refused)),
        None => Err(()),
    }
}

fn value_of<'h>(headers: &[Header<'h>], name: &str) -> Option<&'h str> {
    let found = headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
    std::str::from_utf8(found.value).ok().map(str::trim)
}

fn hello_of(headers: &[Header<'_>]) -> Result<Hello, (u16, &'static str)> {
    let value_of = |name: &str| value_of(headers, name);
    let upgrades = value_of("Connection").is_some_and(|list| {
        list.split(',').any(|item| item.trim().eq_ignore_ascii_case("upgrade"))
    });
    if !upgrades || value_of("Upgrade") != Some(PROTOCOL) {
        return Err((426, "expected Connection: Upgrade and Upgrade: chronos-peer/1"));
    }
    let name = value_of("X-Chronos-Name").filter(|name| {
        (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic())
    });
    let number = |name| value_of(name)?.parse().ok();
    let hello = || {
        Some(Hello {
            name: name?.to_owned(),
            instance: value_of("X-Chronos-Instance")?.parse().ok()?,
            incarnation: u64::from_str_radix(value_of("X-Chronos-Incarnation")?, 16).ok()?,
            view_id: value_of("X-Chronos-View")?.parse().ok()?,
            shard: number("X-Chronos-Shard")?,
            shards: number("X-Chronos-Shards")?,
        })
    };
    hello().ok_or((400, "expected X-Chronos-Name, -Instance, -Incarnation, -View, -Shard, -Shards"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            name: "10.0.0.2:7253".into(),
            instance: 513,
            incarnation: 0x0123_4567_89ab_cdef,
            view_id: 5_030_520_784_871_784_460,
            shard: 3,
            shards: 4,
        }
    }

    #[test]
    fn both_ends_read_what_the_other_says() {
        let mut request = Vec::new();
        write_request(&mut request, "10.0.0.3:7253", &hello());
        assert_eq!(parse_request(&request), Ok(hello()));
        let mut answer = Vec::new();
        write_acceptance(&mut answer, &hello());
        let head_bytes = answer.len();
        for end in 0..head_bytes {
            assert_eq!(parse_answer(&answer[..end]), Ok(None), "{end} bytes");
        }
        answer.extend_from_slice(b"frames");
        assert_eq!(parse_answer(&answer), Ok(Some(Answered::Upgraded(hello(), head_bytes))));
    }

    #[test]
    fn other_answers_tell_what_is_there() {
        let read = |line: &str| parse_answer(format!("HTTP/1.1 {line}\r\n\r\n").as_bytes());
        for original in ["404 Not Found", "400 Bad Request", "405 No", "426 Upgrade Required"] {
            assert_eq!(read(original), Ok(Some(Answered::Original)), "{original}");
        }
        for refused in ["403 Forbidden", "200 OK", "302 Found"] {
            assert_eq!(read(refused), Ok(Some(Answered::Refused)), "{refused}");
        }
        let refusals = [
            (HelloRefusal::Twins("10.0.0.2:7253".into()), Answered::Disowned),
            (HelloRefusal::Elsewhere("from there".into()), Answered::Disowned),
            (HelloRefusal::Stranger("a".into(), "b".into()), Answered::Refused),
            (HelloRefusal::Unresolved, Answered::Busy),
            (HelloRefusal::TooMany, Answered::Busy),
        ];
        for (refusal, answered) in refusals {
            let (status, header) = refusal_of(&refusal);
            let line = format!("{status} No\r\n{}", header.trim_end());
            assert_eq!(read(line.trim_end()), Ok(Some(answered)), "{refusal}");
        }
        assert_eq!(read("101 Switching Protocols"), Err(()), "without saying who it is");
        assert_eq!(parse_answer(b"\x16\x03\x01"), Err(()));
        assert_eq!(parse_answer(&vec![b'H'; HEAD_BYTES_MAX]), Err(()));
    }

    #[test]
    fn a_request_is_refused_with_what_it_lacks() {
        let mut whole = Vec::new();
        write_request(&mut whole, "h", &hello());
        let whole = String::from_utf8(whole).expect("text");
        let refused = |text: &str| parse_request(text.as_bytes()).map_err(|(status, _)| status);
        assert_eq!(refused(&whole.replace("chronos-peer/1", "chronos-peer/2")), Err(426));
        assert_eq!(refused(&whole.replace("Connection: Upgrade", "Connection: close")), Err(426));
        for (is, becomes) in [
            ("X-Chronos-Name: 10.0.0.2:7253", "X-Chronos-Name: "),
            ("X-Chronos-Name: 10.0.0.2:7253", "X-Chronos-Name: two words"),
            ("X-Chronos-Instance: 513", "X-Chronos-Instance: 65536"),
            ("0123456789abcdef", "0123456789abcdefg"),
            ("X-Chronos-View: 5", "X-Chronos-View: -5"),
            ("X-Chronos-Shards: 4", "X-Shards: 4"),
        ] {
            assert!(whole.contains(is), "{is}");
            assert_eq!(refused(&whole.replace(is, becomes)), Err(400), "{becomes}");
        }
        let long = format!("X-Chronos-Name: {}", "n".repeat(NAME_BYTES_MAX + 1));
        assert_eq!(refused(&whole.replace("X-Chronos-Name: 10.0.0.2:7253", &long)), Err(400));
    }
}
