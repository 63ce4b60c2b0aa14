//! Heads of HTTP/1.1 and 1.0 requests (RFC 9112), strict where laxness is how requests are smuggled.

/// Methods that the service knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// GET
    Get,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// HEAD, OPTIONS, PATCH, or any other token.
    Other,
}

/// How long the body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// Content-Length, or 0 when there is none.
    Length(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
}

/// One request head, borrowed from the bytes it was parsed from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: Method,
    /// Path of the target without query and fragment (the path of an absolute-form target, too). Begins with `/`, or is `*`.
    pub path: &'a str,
    /// What follows `?`, without it.
    pub query: Option<&'a str>,
    /// How long the body is.
    pub framing: Framing,
    /// Whether the connection stays open after the answer (version and `Connection`).
    pub keep_alive: bool,
    /// `Expect: 100-continue`.
    pub expects_continue: bool,
    /// HTTP/1.0.
    pub is_http10: bool,
    /// Bytes of the head, the empty line included.
    pub head_bytes: usize,
}

/// Why a head is refused: the status to answer with, and the sentence for `Reason` and body. The connection closes after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{status} {reason}")]
pub struct HeadError {
    /// HTTP status: 400, 414, 417, 431, 501, 505.
    pub status: u16,
    /// One line: what was expected, what came.
    pub reason: &'static str,
}

/// Parses one head. `Ok(None)`: more bytes are needed (and `bytes` is still shorter than `header_bytes_max`).
pub fn parse_request_head(
    _bytes: &[u8],
    _header_bytes_max: usize,
) -> Result<Option<RequestHead<'_>>, HeadError> {
    todo!()
}
