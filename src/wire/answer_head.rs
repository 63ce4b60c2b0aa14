//! Heads of HTTP answers, as callback servers send them (RFC 9112).
//!
//! Where a message ends is read as strictly as for requests. Differences between servers that do no
//! harm are accepted:
//!
//! - no reason phrase,
//! - the same `Content-Length` twice,
//! - other transfer codings under `chunked`.
//!
//! A body is skipped, whatever it says.

// May panic: indices 1.
// Why it does not: found 1.

use std::mem::MaybeUninit;

use httparse::{Header, Response, Status};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;

use super::request_head::{Framing, has_bare_line_feed, list_holds, parse_length};
use crate::base::limits::HEADERS_MAX;

/// The parts of an answer head that this service uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnswerHead {
    /// Status code, 100..=999.
    pub status: u16,
    /// How the body ends; `None`: when the connection closes.
    pub framing: Option<Framing>,
    /// When to ask again, if an answer 429 or 503 says so.
    pub retry_after: Option<RetryAfter>,
    /// Whether the server keeps the connection open.
    pub keep_alive: bool,
    /// Bytes of the head with its empty line.
    pub head_bytes: usize,
}

/// When a server wants to be asked again (RFC 9110 section 10.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryAfter {
    /// So many seconds after the answer.
    Seconds(u32),
    /// At this second since 1970, by the server's clock.
    At(u32),
}

/// Reads `Retry-After`. A value that makes no sense counts as none.
#[cold]
fn parse_retry_after(value: &[u8]) -> Option<RetryAfter> {
    let text = std::str::from_utf8(value).ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(RetryAfter::Seconds(text.parse().unwrap_or(u32::MAX)));
    }
    u32::try_from(http_date(text)?.as_second()).ok().map(RetryAfter::At)
}

/// Reads a date in one of the three forms of RFC 9110 section 5.6.7: that of today's servers, that
/// of RFC 850, and that of C's `asctime`. A year of two digits lies from 1969 to 2068: as long as
/// that is so, who is asked to wait reads the same year as the section says.
fn http_date(text: &str) -> Option<Timestamp> {
    if let Ok(moment) = DateTimeParser::new().parse_timestamp(text.as_bytes()) {
        return Some(moment);
    }
    let read = |form| BrokenDownTime::parse(form, text).ok()?.to_datetime().ok();
    let date = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"].into_iter().find_map(read)?;
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// The bytes are not an HTTP/1 answer. The text names the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not an HTTP/1 answer: {0}")]
pub struct AnswerError(pub &'static str);

/// Parses one head. `Ok(None)`: more bytes are needed. A 1xx head is returned like any other; the
/// caller skips it.
///
/// - 1xx, 204 and 304 have no body, whatever their headers say (RFC 9112 section 6.3).
/// - `Transfer-Encoding` beside `Content-Length` or in an HTTP/1.0 answer is faulty framing. The
///   body is read as section 6.1 says, and the connection is not used again.
///
/// Errors:
///
/// - bytes that are no head, or line ends other than CRLF,
/// - more than [`HEADERS_MAX`] headers or more than `header_bytes_max` bytes,
/// - a `Content-Length` that is no number or comes with two values.
///
/// Cost: one pass over the head, no allocation. When bytes trickle in, call the function through
/// [`HeadProgress`](super::request_head::HeadProgress).
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
            // httparse reports a head only if all of its bytes are in `bytes`, so the slice exists.
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

/// The status of the status line that `bytes` begin with. `None`: they begin with none, or its end
/// has not arrived. What follows it is not looked at. Cost: the bytes of the line.
pub fn parse_status_line(bytes: &[u8]) -> Option<u16> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line = bytes.get(..=end)?;
    // With the empty line behind it, the line is a whole head.
    let head = [line, b"\r\n"].concat();
    let mut response = Response::new(&mut []);
    let is_whole = response.parse(&head).ok()?.is_complete() && line.ends_with(b"\r\n");
    response.code.filter(|status| is_whole && *status >= 100)
}

fn interpret(response: &Response<'_, '_>, head_bytes: usize) -> Result<AnswerHead, AnswerError> {
    let status = response.code.unwrap_or_default();
    if status < 100 {
        return Err(AnswerError("its status is below 100"));
    }
    let is_http10 = response.version == Some(0);
    let mut length = None;
    // The last coding of the last Transfer-Encoding header decides. `Some(false)`: a coding other
    // than chunked.
    let mut is_chunked = None;
    let mut retry_after = None;
    let (mut closes, mut stays) = (false, false);
    for header in response.headers.iter() {
        let (name, value) = (header.name.as_bytes(), header.value);
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => {
                closes |= list_holds(value, b"close");
                stays |= list_holds(value, b"keep-alive");
            }
            11 if matches!(status, 429 | 503) && name.eq_ignore_ascii_case(b"retry-after") => {
                retry_after = parse_retry_after(value);
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
    Ok(AnswerHead { status, framing, retry_after, keep_alive, head_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER_BYTES_MAX: usize = 16 << 10;

    fn parse(text: &str) -> AnswerHead {
        parse_answer_head(text.as_bytes(), HEADER_BYTES_MAX)
            .unwrap_or_else(|error| panic!("{text:?}: {error}"))
            .unwrap_or_else(|| panic!("{text:?} is called partial"))
    }

    fn refusal(bytes: impl AsRef<[u8]>) -> &'static str {
        let bytes = bytes.as_ref();
        parse_answer_head(bytes, HEADER_BYTES_MAX).expect_err(&bytes.escape_ascii().to_string()).0
    }

    /// Framing and keep-alive of an answer 200 with these header lines.
    fn framing(version: &str, headers: &str) -> (Option<Framing>, bool) {
        let head = parse(&format!("HTTP/{version} 200 OK\r\n{headers}\r\n"));
        (head.framing, head.keep_alive)
    }

    #[test]
    fn a_server_says_when_to_come_again_in_seconds_or_by_a_date() {
        let after = |status: u16, value: &str| {
            parse(&format!("HTTP/1.1 {status} X\r\nRetry-After: {value}\r\n\r\n")).retry_after
        };
        assert_eq!(after(503, "120"), Some(RetryAfter::Seconds(120)));
        assert_eq!(after(429, " 0 "), Some(RetryAfter::Seconds(0)));
        assert_eq!(after(429, "99999999999999999999"), Some(RetryAfter::Seconds(u32::MAX)));
        let date = RetryAfter::At(1_445_412_480);
        assert_eq!(after(503, "Wed, 21 Oct 2015 07:28:00 GMT"), Some(date));
        for other_form in ["Wednesday, 21-Oct-15 07:28:00 GMT", "Wed Oct 21 07:28:00 2015"] {
            assert_eq!(after(503, other_form), Some(date), "{other_form}");
        }
        let sixth = RetryAfter::At(784_111_777);
        assert_eq!(after(429, "Sunday, 06-Nov-94 08:49:37 GMT"), Some(sixth));
        assert_eq!(after(429, "Sun Nov  6 08:49:37 1994"), Some(sixth));
        for nonsense in [
            "",
            "-1",
            "1.5",
            "soon",
            "Wed, 21 Oct 1815 07:28:00 GMT",
            "\u{e9}",
            "Wednesday, 21-Oct-15 07:28:00",
            "Wednesday, 32-Oct-15 07:28:00 GMT",
            "Wed Oct 21 07:28:00 2015 GMT",
            "Wed Oct 21 25:28:00 2015",
        ] {
            assert_eq!(after(503, nonsense), None, "{nonsense}");
        }
        assert_eq!(after(500, "120"), None, "such an answer does not ask for it");
    }

    #[test]
    fn a_usual_answer() {
        let text = "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 2\r\n\r\n";
        let head = parse(&format!("{text}ok"));
        let framing = Some(Framing::Length(2));
        assert_eq!(
            head,
            AnswerHead {
                status: 200,
                framing,
                retry_after: None,
                keep_alive: true,
                head_bytes: text.len()
            }
        );
        for end in 0..text.len() {
            assert_eq!(parse_answer_head(&text.as_bytes()[..end], HEADER_BYTES_MAX), Ok(None));
        }
    }

    #[test]
    fn status_lines_of_real_servers() {
        for line in
            ["HTTP/1.1 404", "HTTP/1.1 404 ", "HTTP/1.1 404 Not Found", "HTTP/1.0 404 n\u{e9}"]
        {
            assert_eq!(parse(&format!("{line}\r\n\r\n")).status, 404, "{line}");
        }
        assert_eq!(parse("HTTP/1.1 999 x\r\n\r\n").status, 999);
    }

    #[test]
    fn body_lengths() {
        let length = |bytes| Some(Framing::Length(bytes));
        assert_eq!(framing("1.1", ""), (None, false), "until the connection closes");
        assert_eq!(framing("1.1", "Content-Length: 1073741824\r\n"), (length(1 << 30), true));
        assert_eq!(framing("1.1", "Content-Length: 5\r\nContent-Length: 5\r\n"), (length(5), true));
        let chunked = Some(Framing::Chunked);
        assert_eq!(framing("1.1", "transfer-encoding: Chunked\r\n"), (chunked, true));
        assert_eq!(framing("1.1", "Transfer-Encoding: gzip, chunked\r\n"), (chunked, true));
        assert_eq!(framing("1.1", "Transfer-Encoding: chunked, gzip\r\n"), (None, false));
        for both in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        ] {
            assert_eq!(framing("1.1", both), (chunked, false), "faulty, so never used again");
        }
        assert_eq!(
            framing("1.0", "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n"),
            (None, false)
        );
    }

    #[test]
    fn keep_alive() {
        for (version, connection, stays) in [
            ("1.1", "", true),
            ("1.1", "Connection: Close\r\n", false),
            ("1.1", "Connection: x, close\r\n", false),
            ("1.0", "", false),
            ("1.0", "Connection: keep-alive\r\n", true),
        ] {
            let headers = format!("{connection}Content-Length: 0\r\n");
            assert_eq!(framing(version, &headers).1, stays, "{version} {connection}");
        }
    }

    #[test]
    fn answers_without_a_body() {
        for status in [100, 101, 103, 199, 204, 304] {
            for headers in ["", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
                let head = parse(&format!("HTTP/1.1 {status} x\r\n{headers}\r\n"));
                assert_eq!(head.framing, Some(Framing::Length(0)), "{status} {headers}");
                assert!(head.keep_alive);
            }
        }
        assert_eq!(parse("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").status, 200);
    }

    #[test]
    fn garbage() {
        for bytes in [
            &b"\0"[..],
            b"SSH-2.0-OpenSSH_9.2\r\n",
            b"HTTP/2.0 200 OK\r\n\r\n",
            b"HTTP/1.1 2000 OK\r\n\r\n",
            b"HTTP/1.1 abc OK\r\n\r\n",
            b"HTTP/1.1 099 low\r\n\r\n",
            b"HTTP/1.1  200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\n\n",
            b"HTTP/1.1 200 OK\r\nX: y\n\r\n",
            b"HTTP/1.1 200 OK\r\nX\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n folded\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
            b"\r\nHTTP/1.1 200 OK\r\n\r\n",
            b"POST / HTTP/1.1\r\n",
        ] {
            assert!(!refusal(bytes).is_empty());
        }
        for length in ["-1", "5, 5", "x", "", "18446744073709551616"] {
            refusal(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"));
        }
        assert_eq!(
            refusal("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
            "it has two different Content-Lengths"
        );
    }

    #[test]
    fn bounds() {
        let many = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(count));
        assert_eq!(parse(&many(64)).status, 200);
        assert_eq!(refusal(many(65)), "it has more than 64 headers");
        let long = format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(HEADER_BYTES_MAX));
        assert_eq!(refusal(&long), "its head is longer than the limit");
        assert_eq!(refusal(format!("{long}\r\n\r\n")), "its head is longer than the limit");
    }

    #[test]
    fn two_answers_are_parsed_one_at_a_time() {
        let one = "HTTP/1.1 100 Continue\r\n\r\n";
        let text = format!("{one}HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(parse(&text).head_bytes, one.len());
        assert_eq!(parse(&text[one.len()..]).status, 204);
    }
}
