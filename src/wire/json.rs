//! JSON documents in general: parsed with simd-json in place, walked by a cursor; and strings and
//! numbers written.
//!
//! simd-json turns a body into a tape of nodes; one pass over the tape picks the members that are
//! known. Which these are is the business of the files beside this one.

use std::borrow::Cow;

use simd_json::{Buffers, ErrorType, Node, StaticNode, Tape};

/// Longest body whose buffers are kept for the next one; a document of a real client has some 300
/// bytes.
const KEPT_BODY_BYTES_MAX: usize = 64 << 10;
/// Most JSON tokens of a body whose buffers are kept. A token costs 24 B of tape, 24 B of stack and
/// 4 B of index, so that at most 2^13 x 52 B + 2 x 64 KiB, doubled by growth, about 1 MiB, stays
/// held.
const KEPT_TOKENS_MAX: usize = 1 << 13;

/// Why a body is not the document expected: one line that names the member, what was expected and
/// what came. Answered with 400.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct DocumentError(pub Cow<'static, str>);

impl DocumentError {
    #[cold]
    pub(super) fn told(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    /// A member of the wrong type or out of range.
    #[cold]
    pub(super) fn unexpected(path: &str, expected: &str, got: Node<'_>) -> Self {
        let kind = match got {
            Node::String(_) => "a string",
            Node::Object { .. } => "an object",
            Node::Array { .. } => "an array",
            Node::Static(StaticNode::Null) => "null",
            Node::Static(StaticNode::Bool(_)) => "true or false",
            Node::Static(StaticNode::I64(number)) => {
                return Self(format!("{path}: expected {expected}, got {number}").into());
            }
            Node::Static(StaticNode::U64(number)) => {
                return Self(format!("{path}: expected {expected}, got {number}").into());
            }
            Node::Static(StaticNode::F64(number)) => {
                return Self(format!("{path}: expected {expected}, got {number:?}").into());
            }
        };
        Self(format!("{path}: expected {expected}, got {kind}").into())
    }

    #[cold]
    pub(super) fn missing(path: &str, expected: &str) -> Self {
        Self(format!("{path}: missing, expected {expected}").into())
    }

    #[cold]
    pub(super) fn twice(path: &str) -> Self {
        Self(format!("{path}: expected once, got it twice").into())
    }
}

/// Memory that the parser keeps from one document to the next: at most about 1 MiB, whatever bodies
/// came before.
pub struct JsonScratch {
    buffers: Buffers,
    tape: Tape<'static>,
}

impl Default for JsonScratch {
    fn default() -> Self {
        Self { buffers: Buffers::default(), tape: Tape(Vec::new()) }
    }
}

impl JsonScratch {
    /// Bytes that the tape, the largest part, holds between two documents.
    pub fn tape_bytes(&self) -> usize {
        self.tape.0.capacity() * size_of::<Node<'static>>()
    }

    /// Parses `body` in place and lets `read` walk it. Cost and memory as told at
    /// [`parse_timer`](super::timer_json::parse_timer).
    pub(super) fn parse<'a, T>(
        &mut self,
        body: &'a mut [u8],
        read: impl FnOnce(&mut Cursor<'_, 'a>) -> Result<T, DocumentError>,
    ) -> Result<T, DocumentError> {
        let body_bytes = body.len();
        refuse_what_the_parser_lets_pass(body)?;
        let mut tape: Tape<'a> = std::mem::replace(&mut self.tape, Tape(Vec::new())).reset();
        let result = match simd_json::fill_tape(body, &mut self.buffers, &mut tape) {
            Ok(()) => read(&mut Cursor { nodes: &tape.0 }),
            Err(error) => Err(not_json(body_bytes, &error)),
        };
        let tokens = self.buffers.structural_indexes().len();
        if body_bytes > KEPT_BODY_BYTES_MAX || tokens > KEPT_TOKENS_MAX {
            *self = JsonScratch::default();
        } else {
            self.tape = tape.reset();
        }
        result
    }
}

/// simd-json takes a NUL after a number for the end of its input, and a surrogate escape without
/// its other half for U+0000: the opaque data would not be what was sent. Both are looked for in
/// vectors, 20 ns for 300 bytes; a body with `\u` escapes, which is rare, is walked.
fn refuse_what_the_parser_lets_pass(body: &[u8]) -> Result<(), DocumentError> {
    let next = &body[1.min(body.len())..];
    let (has_nul, has_unicode_escape) =
        body.iter().zip(next).fold((false, false), |(nul, escape), (&byte, &next)| {
            (nul | (byte == 0), escape | ((byte == b'\\') & (next == b'u')))
        });
    if has_nul || body.last() == Some(&0) {
        return Err(DocumentError::told("body: expected JSON, got a NUL byte"));
    }
    if has_unicode_escape && !pairs_surrogates(body) {
        return Err(DocumentError::told("body: expected JSON, got a broken \\u escape"));
    }
    Ok(())
}

/// Whether every `\u` escape has four hex digits, and every surrogate its other half (RFC 8259
/// section 7).
#[cold]
fn pairs_surrogates(body: &[u8]) -> bool {
    let code_unit = |rest: &[u8]| {
        let [b'\\', b'u', digits @ ..] = rest else { return None };
        let digits = std::str::from_utf8(digits.first_chunk::<4>()?).ok()?;
        // `from_str_radix` takes a sign.
        digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(())?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut rest = body;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        rest = &rest[at..];
        let escape_bytes = match (rest.get(1), code_unit(rest)) {
            (Some(b'u'), Some(0xd800..=0xdbff)) => match code_unit(&rest[6..]) {
                Some(0xdc00..=0xdfff) => 12,
                _ => return false,
            },
            (Some(b'u'), None | Some(0xdc00..=0xdfff)) => return false,
            (Some(b'u'), Some(_)) => 6,
            (Some(_), _) => 2,
            (None, _) => 1,
        };
        rest = &rest[escape_bytes..];
    }
    true
}

#[cold]
fn not_json(body_bytes: usize, error: &simd_json::Error) -> DocumentError {
    if body_bytes == 0 {
        return DocumentError::told("body: empty, expected a JSON object");
    }
    let at = error.index();
    match error.error() {
        ErrorType::InvalidUtf8 => DocumentError::told("body: expected UTF-8, got other bytes"),
        ErrorType::Eof => DocumentError::told("body: expected a JSON object, got blanks"),
        ErrorType::InvalidNumber => DocumentError(
            format!(
                "body: expected JSON, got a number that is malformed or too large at byte {at}"
            )
            .into(),
        ),
        // Errors of the first stage carry no place.
        _ if at == 0 => DocumentError::told("body: expected a JSON object, got something else"),
        _ => DocumentError(format!("body: expected JSON, got an error at byte {at}").into()),
    }
}

/// What is left of the tape.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'t, 'a> {
    nodes: &'t [Node<'a>],
}

impl<'a> Cursor<'_, 'a> {
    /// The next node. The tape of a valid document ends with its last value.
    pub(super) fn next(&mut self) -> Node<'a> {
        let (first, rest) = self.nodes.split_first().expect("a container's nodes follow it");
        self.nodes = rest;
        *first
    }

    /// Skips what is inside of `node`, just taken.
    fn skip_inside(&mut self, node: Node<'a>) {
        if let Node::Object { count, .. } | Node::Array { count, .. } = node {
            self.nodes = &self.nodes[count..];
        }
    }

    /// Skips a whole value.
    pub(super) fn skip(&mut self) {
        let node = self.next();
        self.skip_inside(node);
    }

    /// A cursor over the whole value that comes next, which is skipped here: whatever is wrong
    /// inside of it, what follows can be read.
    pub(super) fn value(&mut self) -> Self {
        let whole = self.nodes;
        self.skip();
        Self { nodes: &whole[..whole.len() - self.nodes.len()] }
    }

    /// A key of an object.
    pub(super) fn key(&mut self) -> &'a str {
        match self.next() {
            Node::String(key) => key,
            other => unreachable!("simd-json lets only strings be keys, not {other:?}"),
        }
    }

    /// How many members the object has that comes next.
    pub(super) fn object(&mut self, path: &str) -> Result<usize, DocumentError> {
        match self.next() {
            Node::Object { len, .. } => Ok(len),
            other => Err(DocumentError::unexpected(path, "an object", other)),
        }
    }

    /// How many values the array has that comes next.
    pub(super) fn array(&mut self, path: &str, expected: &str) -> Result<usize, DocumentError> {
        match self.next() {
            Node::Array { len, .. } => Ok(len),
            other => Err(DocumentError::unexpected(path, expected, other)),
        }
    }

    pub(super) fn string(&mut self, path: &str) -> Result<&'a str, DocumentError> {
        match self.next() {
            Node::String(text) => Ok(text),
            other => Err(DocumentError::unexpected(path, "a string", other)),
        }
    }

    pub(super) fn seconds(&mut self, path: &str) -> Result<f64, DocumentError> {
        match self.next() {
            Node::Static(StaticNode::U64(seconds)) => Ok(seconds as f64),
            Node::Static(StaticNode::I64(seconds)) => Ok(seconds as f64),
            Node::Static(StaticNode::F64(seconds)) => Ok(seconds),
            other => Err(DocumentError::unexpected(path, "a number of seconds", other)),
        }
    }

    pub(super) fn whole_number(&mut self, path: &str) -> Result<i64, DocumentError> {
        match self.next() {
            Node::Static(StaticNode::U64(number)) => Ok(i64::try_from(number).unwrap_or(i64::MAX)),
            Node::Static(StaticNode::I64(number)) => Ok(number),
            other => Err(DocumentError::unexpected(path, "a whole number", other)),
        }
    }

    /// A whole number from 0 to `max`.
    pub(super) fn number(&mut self, max: u64, path: &str) -> Result<u64, DocumentError> {
        let node = self.next();
        match node {
            Node::Static(StaticNode::U64(number)) if number <= max => Ok(number),
            other => {
                let expected = format!("a whole number from 0 to {max}");
                Err(DocumentError::unexpected(path, &expected, other))
            }
        }
    }

    pub(super) fn count(&mut self, path: &str) -> Result<u32, DocumentError> {
        let node = self.next();
        match node {
            Node::Static(StaticNode::U64(count)) => u32::try_from(count).ok(),
            _ => None,
        }
        .filter(|&count| count != 0)
        .ok_or_else(|| DocumentError::unexpected(path, "a whole number from 1 to 4294967295", node))
    }
}

/// Sets a member that may come once.
pub(super) fn set_once<T>(
    place: &mut Option<T>,
    value: T,
    path: &str,
) -> Result<(), DocumentError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(DocumentError::twice(path)),
    }
}

/// Appends a JSON string (RFC 8259 section 7): quotes, backslashes and control characters are
/// escaped, all else is as it is.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte < 0x20 || matches!(byte, b'"' | b'\\')) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => {
                let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[digit(control >> 4), digit(control & 15)]);
            }
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Bytes that [`write_string`] appends at most.
pub fn string_bytes_max(text: &str) -> usize {
    let escaped = |&byte: &u8| byte < 0x20 || matches!(byte, b'"' | b'\\');
    text.len() + 2 + 5 * text.bytes().filter(escaped).count()
}

/// Appends a whole number.
pub fn write_number(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut begins = digits.len();
    let mut rest = number;
    loop {
        begins -= 1;
        digits[begins] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[begins..]);
}

/// Appends a whole number that may be negative.
pub fn write_signed(number: i64, out: &mut Vec<u8>) {
    if number < 0 {
        out.push(b'-');
    }
    write_number(number.unsigned_abs(), out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_numbers_read_the_same() {
        for text in
            ["", "plain", "\"\\/\u{8}\u{c}\n\r\t\0\u{1f}\u{7f}", "\u{e9}\u{1f600}", "\\\\u0000"]
        {
            let mut out = Vec::new();
            write_string(text, &mut out);
            assert!(out.len() <= string_bytes_max(text));
            let read: String = serde_json::from_slice(&out).expect("a JSON string");
            assert_eq!(read, text);
        }
        for number in [0, 9, 10, 99, u64::MAX / 10, u64::MAX] {
            let mut out = Vec::new();
            write_number(number, &mut out);
            assert_eq!(String::from_utf8(out), Ok(number.to_string()));
        }
        for number in [0, -1, 10, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            write_signed(number, &mut out);
            assert_eq!(String::from_utf8(out), Ok(number.to_string()));
        }
    }
}
