//! Heads of HTTP answers: what a callback server says (RFC 9112).
//!
//! As strict as for requests about where a message ends, lenient where servers differ without harm: no reason phrase,
//! the same `Content-Length` twice, other transfer codings under `chunked`. What the body means is nobody's business:
//! it is skipped.

use std::mem::MaybeUninit;

use httparse::{Header, Response, Status};

use super::request_head::{Framing, has_bare_line_feed, list_holds, parse_length};
use crate::base::limits::HEADERS_MAX;

/// One answer head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnswerHead {
    /// Three digits.
    pub status: u16,
    /// How long the body is; `None`: until the connection closes.
    pub framing: Option<Framing>,
    /// Whether the server keeps the connection open.
    pub keep_alive: bool,
    /// Bytes of the head, the empty line included.
    pub head_bytes: usize,
}

/// The bytes are no HTTP/1 answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not an HTTP/1 answer: {0}")]
pub struct AnswerError(pub &'static str);

/// Parses one head (a 1xx head is returned like any other: the caller skips it). `Ok(None)`: more bytes are needed.
///
/// 1xx, 204 and 304 have no body whatever their headers say (RFC 9112 section 6.3). `Transfer-Encoding` beside
/// `Content-Length`, or in an HTTP/1.0 answer, is faulty framing: read as section 6.1 says, and the connection is not
/// used again. Errors: bytes that are no head, line ends other than CRLF, more than [`HEADERS_MAX`] headers, more than
/// `header_bytes_max` bytes, a `Content-Length` that is no number or comes with two values.
///
/// Cost: one pass over the head, no allocation; call it through [`HeadProgress`](super::request_head::HeadProgress)
/// when bytes trickle in.
pub fn parse_answer_head(
    bytes: &[u8],
    header_bytes_max: usize,
) -> Result<Option<AnswerHead>, AnswerError> {
    if matches!(bytes, [b'\r' | b'\n', ..]) {
        return Err(AnswerError("line ends before the status line"));
    }
    let mut places = [const { MaybeUninit::<Header<'_>>::uninit() }; HEADERS_MAX];
    let mut response = Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    match config.parse_response_with_uninit_headers(&mut response, bytes, &mut places) {
        Ok(Status::Complete(head_bytes)) if head_bytes <= header_bytes_max => {
            if has_bare_line_feed(&bytes[..head_bytes]) {
                return Err(AnswerError("a line ends with a bare LF"));
            }
            interpret(&response, head_bytes).map(Some)
        }
        Ok(Status::Partial) if bytes.len() < header_bytes_max => Ok(None),
        Ok(_) => Err(AnswerError("its head is longer than the limit")),
        Err(httparse::Error::TooManyHeaders) => Err(AnswerError("it has more than 64 headers")),
        Err(httparse::Error::HeaderName | httparse::Error::HeaderValue) => {
            Err(AnswerError("a header line is not `name: value`"))
        }
        Err(_) => Err(AnswerError("its status line is not `HTTP/1.1 200 OK`")),
    }
}

fn interpret(response: &Response<'_, '_>, head_bytes: usize) -> Result<AnswerHead, AnswerError> {
    let status = response.code.unwrap_or_default();
    if status < 100 {
        return Err(AnswerError("its status is below 100"));
    }
    let is_http10 = response.version == Some(0);
    let mut length = None;
    // The last coding of the last Transfer-Encoding header decides; `Some(false)`: something other than chunked.
    let mut is_chunked = None;
    let (mut closes, mut stays) = (false, false);
    for header in response.headers.iter() {
        let (name, value) = (header.name.as_bytes(), header.value);
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => {
                closes |= list_holds(value, b"close");
                stays |= list_holds(value, b"keep-alive");
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let this = parse_length(value)
                    .ok_or(AnswerError("its Content-Length is not one decimal number"))?;
                if length.replace(this).is_some_and(|before| before != this) {
                    return Err(AnswerError("it has two different Content-Lengths"));
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                let last = value.rsplit(|&byte| byte == b',').next().unwrap_or_default();
                is_chunked = Some(last.trim_ascii().eq_ignore_ascii_case(b"chunked"));
            }
            _ => {}
        }
    }
    let framing = match is_chunked {
        _ if status < 200 || status == 204 || status == 304 => Some(Framing::Length(0)),
        Some(true) if !is_http10 => Some(Framing::Chunked),
        Some(_) => None,
        None => length.map(Framing::Length),
    };
    let is_faulty = is_chunked.is_some() && (is_http10 || length.is_some());
    let keep_alive = framing.is_some() && !is_faulty && !closes && (!is_http10 || stays);
    Ok(AnswerHead { status, framing, keep_alive, head_bytes })
}
