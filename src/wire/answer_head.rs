//! Heads of HTTP answers: what a callback server says (RFC 9112).

use super::request_head::Framing;

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
pub fn parse_answer_head(
    _bytes: &[u8],
    _header_bytes_max: usize,
) -> Result<Option<AnswerHead>, AnswerError> {
    todo!()
}
