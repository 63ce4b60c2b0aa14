//! Heads of HTTP/1.1 and 1.0 requests (RFC 9112). The parser is strict where laxness lets requests
//! be smuggled.
//!
//! httparse splits the head. This file decides what the head means, and refuses every head that two
//! parsers could read differently. It never guesses a length and never repairs a line.

// May panic: indices 12.
// Why it does not: found 10, fixed 2.

use std::mem::MaybeUninit;

use httparse::{Error as SplitError, Header, Request, Status};

use crate::base::limits::HEADERS_MAX;
use crate::wire::accept::accepts;
use crate::wire::callback_headers::SEQUENCE_HEADER;
use crate::wire::problem::PROBLEM_TYPE;

/// Most empty lines (CRLF) before a request line. RFC 9112 section 2.2 asks for at least one, and
/// some clients send one after a body. These lines count into the head's bytes.
const LEADING_EMPTY_LINES_MAX: usize = 4;
/// Most bytes of a method. The longest registered method has 17; more bytes without a space are
/// garbage.
const METHOD_BYTES_MAX: usize = 32;
const LONG_METHOD: HeadError =
    refused(400, "request line: expected a method, got no space for 32 bytes");

/// Why a target with a fragment is refused, here and by the admin API.
pub const FRAGMENT: &str = "target: expected no `#`; in a name it is written as %23";

/// The methods that the service tells apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// `GET`.
    Get,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `DELETE`.
    Delete,
    /// `HEAD`. It has a variant of its own because its answer has no body.
    Head,
    /// `OPTIONS`, `PATCH`, or any other token.
    Other,
}

/// How the end of a body is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// The body has as many bytes as Content-Length says; 0 without that header.
    Length(u64),
    /// The body is chunked (`Transfer-Encoding: chunked`).
    Chunked,
}

/// One request head, borrowed from the bytes it was parsed from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHead<'a> {
    /// What the client asks for.
    pub method: Method,
    /// Path of the target without query, also for a target in absolute form. Begins with `/`, or is
    /// `*`.
    pub path: &'a str,
    /// The part of the target behind `?`; `None`: the target has no `?`.
    pub query: Option<&'a str>,
    /// How the end of the body is found.
    pub framing: Framing,
    /// Whether the connection stays open after the answer, by version and `Connection`.
    pub keep_alive: bool,
    /// The value of `Authorization`, if there is one.
    pub authorization: Option<&'a [u8]>,
    /// Whether the client waits for an answer 100 before it sends the body (`Expect:
    /// 100-continue`).
    pub expects_continue: bool,
    /// Whether there is `If-Match`, `If-None-Match` or `Idempotency-Key` (`wire::conditions`).
    pub has_conditions: bool,
    /// Whether the request says that it is a callback (`wire::callback_headers`).
    pub is_callback: bool,
    /// Whether the request is HTTP/1.0.
    pub is_http10: bool,
    /// Whether `Accept` names `application/problem+json`, the form of errors.
    pub accepts_problem: bool,
    /// Bytes of the head with its empty line, and with empty lines before the request line.
    pub head_bytes: usize,
}

/// Why a head is refused. The service answers `status`, with the sentence as `Reason` and body, and
/// closes the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{status} {reason}")]
pub struct HeadError {
    /// HTTP status: 400, 414, 417, 431, 501 or 505.
    pub status: u16,
    /// One line: what was expected, and what came.
    pub reason: &'static str,
}

/// Tells when a head that arrives in pieces is worth another parse. A parse reads from the start,
/// so without this type a client that sends byte by byte would cost the square of the head's
/// length. With it, all parses of one head read at most four times the head's bytes: one parse each
/// time the length has doubled (so that garbage is refused early), and one parse when the head's
/// end arrives.
///
/// A connection needs one value for its partial head, and `default()` before each new head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeadProgress {
    scanned_bytes: u32,
    tried_bytes: u32,
}

impl HeadProgress {
    /// Whether another parse can tell more than the parse before. `bytes` is all that has arrived
    /// of the head. Always true for the first bytes, and once `header_bytes_max` bytes are there.
    /// Cost: one pass over the new bytes.
    pub fn is_worth_parsing(&mut self, bytes: &[u8], header_bytes_max: usize) -> bool {
        let tried = self.tried_bytes as usize;
        // The empty line can begin up to three bytes before the new bytes: CR LF CR | LF.
        let from = (self.scanned_bytes as usize).saturating_sub(3).min(bytes.len());
        let worth = bytes.len() >= header_bytes_max
            || bytes.len() >= tried.saturating_mul(2).max(1)
            || bytes[from..].windows(2).any(|pair| pair == b"\n\n")
            || bytes[from..].windows(3).any(|three| three == b"\n\r\n");
        self.scanned_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if worth {
            self.tried_bytes = self.scanned_bytes;
        }
        worth
    }
}

/// Parses one head. `Ok(None)`: more bytes are needed, and `bytes` is shorter than
/// `header_bytes_max`.
///
/// Refused with 414: a request line that does not fit `header_bytes_max`. Refused with 431: a head
/// that does not fit, or more than [`HEADERS_MAX`] headers. Refused with 505: a version other than
/// 1.0 and 1.1. Refused with 501: a transfer coding other than exactly `chunked`. Refused with 417:
/// an expectation other than `100-continue`.
///
/// Refused with 400, because RFC 9112 does not allow it:
///
/// - line ends other than CRLF; header lines that are folded or have no colon,
/// - a `Content-Length` that is not one decimal number, or stands beside `Transfer-Encoding`
///   (section 6.3),
/// - `Transfer-Encoding` in HTTP/1.0 (section 6.1),
/// - HTTP/1.1 without `Host`, two `Host` headers, or a `Host` with bytes that no host has (section
///   3.2),
/// - two `Authorization` headers.
///
/// `Expect` in HTTP/1.0 is ignored (RFC 9110 section 10.1.1).
///
/// Cost: one pass over the head, no allocation (benches/wire.rs). When bytes trickle in, call the
/// function through [`HeadProgress`].
pub fn parse_request_head(
    bytes: &[u8],
    header_bytes_max: usize,
) -> Result<Option<RequestHead<'_>>, HeadError> {
    let Some(start) = skip_empty_lines(bytes)? else { return Ok(None) };
    let mut places = [const { MaybeUninit::<Header<'_>>::uninit() }; HEADERS_MAX];
    let mut request = Request::new(&mut []);
    match request.parse_with_uninit_headers(&bytes[start..], &mut places) {
        Ok(Status::Complete(split_bytes)) => {
            let head_bytes = start + split_bytes;
            if head_bytes > header_bytes_max {
                return Err(too_long(&bytes[..header_bytes_max]));
            }
            if has_bare_line_feed(&bytes[start..head_bytes]) {
                return Err(refused(400, "line end: expected CRLF, got a bare LF"));
            }
            interpret(&request, head_bytes).map(Some)
        }
        Ok(Status::Partial) if bytes.len() >= header_bytes_max => Err(too_long(bytes)),
        Ok(Status::Partial)
            if request.method.map_or(bytes.len() - start, str::len) > METHOD_BYTES_MAX =>
        {
            Err(LONG_METHOD)
        }
        Ok(Status::Partial) => Ok(None),
        Err(error) => Err(refusal_of(error, &bytes[start..])),
    }
}

/// Whether the bytes of a head that is refused, or not complete, have an `Accept` that names
/// `application/problem+json`. Cost: one pass up to the empty line, for refusals alone.
#[cold]
pub fn seems_to_accept_problem(bytes: &[u8]) -> bool {
    let lines = bytes.trim_ascii_start().split(|&byte| byte == b'\n').skip(1);
    let mut headers = lines.take_while(|line| !line.trim_ascii().is_empty());
    headers.any(|line| {
        let Some((name, value)) = line.split_at_checked(b"accept:".len()) else { return false };
        name.eq_ignore_ascii_case(b"accept:") && accepts(value, PROBLEM_TYPE.as_bytes())
    })
}

/// Whether any line ends without CR. The search compares each byte with its neighbour over whole
/// vectors: 10 ns for 300 bytes. A search per line would cost more than the parse of the head.
pub(super) fn has_bare_line_feed(head: &[u8]) -> bool {
    head.first() == Some(&b'\n')
        || head
            .iter()
            .zip(&head[1.min(head.len())..])
            .fold(false, |found, (&before, &byte)| found | ((byte == b'\n') & (before != b'\r')))
}

/// The bytes that a host with a port can have (RFC 3986 section 3.2.2): those of addresses, names
/// and escapes.
const HOST_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let is_other = matches!(byte as u8, b'-' | b'.' | b'_' | b'~' | b'%' | b':' | b'[' | b']')
            || matches!(
                byte as u8,
                b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b';' | b'='
            );
        table[byte] = (byte as u8).is_ascii_alphanumeric() || is_other;
        byte += 1;
    }
    table
};

/// Whether a `Host` header has only bytes of a host. An empty value is allowed (RFC 9112 section
/// 3.2).
fn is_host(value: &[u8]) -> bool {
    value.iter().fold(true, |is_host, &byte| is_host & HOST_BYTES[usize::from(byte)])
}

/// Whether a comma-separated header value (RFC 9110 section 5.6.1) holds `token`, in upper or lower
/// case.
pub(super) fn list_holds(value: &[u8], token: &[u8]) -> bool {
    value.split(|&byte| byte == b',').any(|item| item.trim_ascii().eq_ignore_ascii_case(token))
}

/// Reads a `Content-Length`: digits only, no sign, no list, at most 2^64 - 1.
pub(super) fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0_u64, |length, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        length.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

const fn refused(status: u16, reason: &'static str) -> HeadError {
    HeadError { status, reason }
}

/// Offset of the request line; `None`: only a part of the empty lines has arrived.
fn skip_empty_lines(bytes: &[u8]) -> Result<Option<usize>, HeadError> {
    let mut start = 0;
    loop {
        match &bytes[start..] {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] if start < 2 * LEADING_EMPTY_LINES_MAX => start += 2,
            [b'\r' | b'\n', ..] => {
                return Err(refused(400, "request line: expected a method, got line ends"));
            }
            _ => return Ok(Some(start)),
        }
    }
}

/// The refusal of a head that is too long: 414 while the request line has no end, else 431.
fn too_long(bytes: &[u8]) -> HeadError {
    if bytes.trim_ascii_start().contains(&b'\n') {
        refused(431, "head: longer than the limit on header bytes")
    } else {
        refused(414, "request line: longer than the limit on header bytes")
    }
}

fn refusal_of(error: SplitError, bytes: &[u8]) -> HeadError {
    match error {
        SplitError::TooManyHeaders => refused(431, "head: more than 64 headers"),
        SplitError::Version if names_another_version(bytes) => {
            refused(505, "version: expected HTTP/1.1 or HTTP/1.0, got another")
        }
        SplitError::HeaderName => refused(400, "header line: expected `name: value` on one line"),
        SplitError::HeaderValue => {
            refused(400, "header value: expected visible characters up to CRLF, got a control byte")
        }
        SplitError::NewLine => refused(400, "line end: expected CRLF, got something else"),
        SplitError::Token | SplitError::Status | SplitError::Version => {
            refused(400, "request line: expected `method target HTTP/1.1`")
        }
    }
}

/// Whether the third word of the request line is an HTTP version, which the service does not speak.
fn names_another_version(bytes: &[u8]) -> bool {
    let version = bytes.splitn(3, |&byte| byte == b' ').nth(2).unwrap_or_default();
    matches!(version, [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', ..])
}

/// What the headers say that decide how the request is read. Every other header is skipped by the
/// length of its name alone.
#[derive(Default)]
struct Deciding<'a> {
    authorization: Option<&'a [u8]>,
    length: Option<u64>,
    is_chunked: bool,
    hosts: u32,
    closes: bool,
    stays: bool,
    expects_continue: bool,
    accepts_problem: bool,
    has_conditions: bool,
    is_callback: bool,
}

fn interpret<'a>(
    request: &Request<'_, 'a>,
    head_bytes: usize,
) -> Result<RequestHead<'a>, HeadError> {
    let is_http10 = request.version == Some(0);
    let decided = read_headers(request.headers, is_http10)?;
    if !is_http10 && decided.hosts == 0 {
        return Err(refused(400, "Host: missing, HTTP/1.1 needs one"));
    }
    let (path, query) = split_target(request.path.unwrap_or_default())?;
    let framing = match (decided.is_chunked, decided.length) {
        (true, Some(_)) => {
            return Err(refused(400, "Content-Length: not allowed beside Transfer-Encoding"));
        }
        (true, None) => Framing::Chunked,
        (false, length) => Framing::Length(length.unwrap_or(0)),
    };
    let method = match request.method.unwrap_or_default() {
        method if method.len() > METHOD_BYTES_MAX => return Err(LONG_METHOD),
        "GET" => Method::Get,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "HEAD" => Method::Head,
        _ => Method::Other,
    };
    Ok(RequestHead {
        method,
        path,
        query,
        framing,
        keep_alive: !decided.closes && (!is_http10 || decided.stays),
        authorization: decided.authorization,
        expects_continue: decided.expects_continue && !is_http10,
        has_conditions: decided.has_conditions,
        is_callback: decided.is_callback,
        is_http10,
        accepts_problem: decided.accepts_problem,
        head_bytes,
    })
}

fn read_headers<'a>(headers: &[Header<'a>], is_http10: bool) -> Result<Deciding<'a>, HeadError> {
    let mut decided = Deciding::default();
    for header in headers {
        let (name, value) = (header.name.as_bytes(), header.value);
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                decided.hosts += 1;
                if decided.hosts > 1 {
                    return Err(refused(400, "Host: expected one, got two"));
                }
                if !is_host(value) {
                    return Err(refused(400, "Host: expected host[:port], got something else"));
                }
            }
            6 if name.eq_ignore_ascii_case(b"expect") && !is_http10 => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(refused(417, "Expect: only 100-continue is understood"));
                }
                decided.expects_continue = true;
            }
            6 if name.eq_ignore_ascii_case(b"accept") => {
                decided.accepts_problem |= accepts(value, PROBLEM_TYPE.as_bytes());
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                decided.closes |= list_holds(value, b"close");
                decided.stays |= list_holds(value, b"keep-alive");
            }
            13 if name.eq_ignore_ascii_case(b"authorization") => {
                let other = decided.authorization.replace(value);
                other.map_or(Ok(()), |_| {
                    Err(refused(400, "Authorization: expected one, got two"))
                })?;
            }
            8 if name.eq_ignore_ascii_case(b"if-match") => decided.has_conditions = true,
            13 if name.eq_ignore_ascii_case(b"if-none-match") => decided.has_conditions = true,
            15 if name.eq_ignore_ascii_case(b"idempotency-key") => decided.has_conditions = true,
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = parse_length(value)
                    .ok_or(refused(400, "Content-Length: expected one decimal number"))?;
                if decided.length.replace(length).is_some() {
                    return Err(refused(400, "Content-Length: expected one, got two"));
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                read_transfer_encoding(value, is_http10, &mut decided)?;
            }
            17 if name.eq_ignore_ascii_case(SEQUENCE_HEADER.as_bytes()) => {
                decided.is_callback = true;
            }
            _ => {}
        }
    }
    Ok(decided)
}

fn read_transfer_encoding(
    value: &[u8],
    is_http10: bool,
    decided: &mut Deciding<'_>,
) -> Result<(), HeadError> {
    if is_http10 {
        return Err(refused(400, "Transfer-Encoding: not allowed in HTTP/1.0"));
    }
    if !value.eq_ignore_ascii_case(b"chunked") {
        return Err(refused(501, "Transfer-Encoding: only `chunked` is understood"));
    }
    if decided.is_chunked {
        return Err(refused(400, "Transfer-Encoding: expected one, got two"));
    }
    decided.is_chunked = true;
    Ok(())
}

/// Path and query of a target. The target has origin form, absolute form of scheme `http` or
/// `https`, or is `*` (RFC 9112 section 3.2).
fn split_target(target: &str) -> Result<(&str, Option<&str>), HeadError> {
    let local = if target.starts_with('/') || target == "*" {
        target
    } else {
        let scheme_bytes = ["http://", "https://"]
            .iter()
            .find(|scheme| {
                target.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
            })
            .map(|scheme| scheme.len())
            .ok_or(refused(400, "target: expected `/path`, an http URI, or `*`"))?;
        let authority_and_path = &target[scheme_bytes..];
        let authority_bytes =
            authority_and_path.find(['/', '?', '#']).unwrap_or(authority_and_path.len());
        if authority_bytes == 0 {
            return Err(refused(400, "target: expected a host after the scheme"));
        }
        &authority_and_path[authority_bytes..]
    };
    // A target has no fragment. To cut one off would make `invoice` of the name `invoice#1`.
    if local.contains('#') {
        return Err(refused(400, FRAGMENT));
    }
    let (path, query) = match local.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (local, None),
    };
    Ok((if path.is_empty() { "/" } else { path }, query))
}
