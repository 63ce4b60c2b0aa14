//! JSON documents in general: simd-json parses them in place and a cursor walks them. Also writes
//! strings and numbers.
//!
//! simd-json turns a body into a tape of nodes. One pass over the tape picks the known members. The
//! files beside this file decide which members are known.

// May panic: assertions 1, expectations 1, indices 11.
// Why it does not: found 7, fixed 2, parsed 4.

use std::borrow::Cow;

use simd_json::{Buffers, ErrorType, Node, StaticNode, Tape};

/// Longest body after which the parser's buffers are kept. A document of a real client has some 300
/// bytes.
const KEPT_BODY_BYTES_MAX: usize = 64 << 10;
/// Most JSON tokens of a body after which the buffers are kept. A token costs 24 B of tape, 24 B of
/// stack and 4 B of index, so that at most 2^13 x 52 B + 3 x 64 KiB, doubled by growth, about 1.2
/// MiB, stays held.
const KEPT_TOKENS_MAX: usize = 1 << 13;

/// Most JSON tokens of a body that is no JSON in which the place of the fault is looked for.
const TOKENS_SEARCHED_MAX: usize = 1 << 12;

/// Why a body is not the expected document: one line with the member, what was expected and what
/// came. The service answers 400.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct DocumentError(pub Cow<'static, str>);

impl DocumentError {
    #[cold]
    pub(super) fn told(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    /// The error of a member that has the wrong type or is out of range.
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

/// Memory that the parser keeps from one document to the next: at most about 1.2 MiB, whatever
/// bodies came before.
pub struct JsonScratch {
    /// The body as it came: the parser changes it, and does not tell where it is wrong.
    original: Vec<u8>,
    buffers: Buffers,
    tape: Tape<'static>,
}

impl Default for JsonScratch {
    fn default() -> Self {
        Self { original: Vec::new(), buffers: Buffers::default(), tape: Tape(Vec::new()) }
    }
}

impl JsonScratch {
    /// Bytes that the tape holds between two documents. The tape is the largest part of the memory.
    pub fn tape_bytes(&self) -> usize {
        self.tape.0.capacity() * size_of::<Node<'static>>()
    }

    /// How many tokens the last body had.
    fn tokens(&self) -> usize {
        self.buffers.structural_indexes().len()
    }

    /// Parses `body` in place and lets `read` walk the tape. Cost and memory: see
    /// [`parse_timer`](super::timer_json::parse_timer).
    pub(super) fn parse<'a, T>(
        &mut self,
        body: &'a mut [u8],
        read: impl FnOnce(&mut Cursor<'_, 'a>) -> Result<T, DocumentError>,
    ) -> Result<T, DocumentError> {
        let body_bytes = body.len();
        refuse_what_the_parser_lets_pass(body)?;
        self.original.clear();
        self.original.extend_from_slice(body);
        let mut tape: Tape<'a> = std::mem::replace(&mut self.tape, Tape(Vec::new())).reset();
        let result = match simd_json::fill_tape(body, &mut self.buffers, &mut tape) {
            Ok(()) => read(&mut Cursor { nodes: &tape.0, has_unknown: false }),
            Err(error) => Err(not_json(&self.original, self.tokens(), &error)),
        };
        if body_bytes > KEPT_BODY_BYTES_MAX || self.tokens() > KEPT_TOKENS_MAX {
            *self = JsonScratch::default();
        } else {
            self.tape = tape.reset();
        }
        result
    }
}

/// Refuses two faults that simd-json accepts. simd-json takes a NUL after a number for the end of
/// its input, and a surrogate escape without its other half for U+0000, so that the opaque data
/// would not be what was sent. Cost: a search over whole vectors, 20 ns for 300 bytes. Only a body
/// with `\u` escapes, which is rare, is walked byte by byte.
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
        // The digits are checked because `from_str_radix` accepts a sign.
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

/// Says why a body is no JSON. Bytes are counted from 0.
#[cold]
fn not_json(body: &[u8], tokens: usize, error: &simd_json::Error) -> DocumentError {
    if body.is_empty() {
        return DocumentError::told("body: empty, expected a JSON object");
    }
    match error.error() {
        ErrorType::InvalidUtf8 => {
            return DocumentError::told("body: expected UTF-8, got other bytes");
        }
        ErrorType::Eof => return DocumentError::told("body: expected a JSON object, got blanks"),
        ErrorType::InvalidNumber => {
            let at = error.index();
            return DocumentError(
                format!(
                    "body: expected JSON, got a number that is malformed or too large at byte {at}"
                )
                .into(),
            );
        }
        _ => {}
    }
    match (fault_in(body, tokens), error.index()) {
        (Some(told), _) => DocumentError(format!("body: expected JSON, got {told}").into()),
        // Errors of the parser's first stage carry no position.
        (None, 0) => DocumentError::told("body: expected a JSON object, got something else"),
        (None, at) => {
            DocumentError(format!("body: expected JSON, got an error at byte {at}").into())
        }
    }
}

/// What is wrong with a body, in words, by a parser that is slow and exact. `None`: the body is too
/// long to look at it again, or this parser does not mind.
fn fault_in(body: &[u8], tokens: usize) -> Option<String> {
    if body.len() > KEPT_BODY_BYTES_MAX || tokens > TOKENS_SEARCHED_MAX {
        return None;
    }
    let error = serde_json::from_slice::<serde::de::IgnoredAny>(body).err()?;
    let lines = body.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len);
    let before: usize = lines.take(error.line().saturating_sub(1)).sum();
    // A control character is told by the bytes before it, anything else with the byte itself.
    let (control, at) = (before + error.column(), before + error.column().saturating_sub(1));
    let is_control = error.to_string().starts_with("control character");
    Some(match body.get(control) {
        _ if error.is_eof() => format!("the end of the body at byte {}", body.len()),
        Some(0..0x20) if is_control => {
            let told = "a control character in a string at byte";
            format!("{told} {control}; write a line end as its escape")
        }
        _ => format!("an error at byte {at}"),
    })
}

/// The rest of a tape.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'t, 'a> {
    nodes: &'t [Node<'a>],
    /// Whether a member was skipped because nobody knows it.
    pub(super) has_unknown: bool,
}

impl<'a> Cursor<'_, 'a> {
    /// Takes the next node. Panics at the end of the tape, which a valid document reaches only with
    /// its last value.
    pub(super) fn next(&mut self) -> Node<'a> {
        let (first, rest) = self.nodes.split_first().expect("a container's nodes follow it");
        self.nodes = rest;
        *first
    }

    /// Skips the nodes inside of `node`, which was just taken.
    fn skip_inside(&mut self, node: Node<'a>) {
        if let Node::Object { count, .. } | Node::Array { count, .. } = node {
            self.nodes = &self.nodes[count..];
        }
    }

    /// Skips the next value with everything inside of it.
    pub(super) fn skip(&mut self) {
        let node = self.next();
        self.skip_inside(node);
    }

    /// Skips the value of a member that is not known.
    #[cold]
    pub(super) fn skip_unknown(&mut self) {
        self.has_unknown = true;
        self.skip();
    }

    /// A cursor over the next value alone. This cursor skips the value, so that the nodes behind it
    /// can be read whatever is wrong inside of the value.
    pub(super) fn value(&mut self) -> Self {
        let whole = self.nodes;
        self.skip();
        Self { nodes: &whole[..whole.len() - self.nodes.len()], has_unknown: false }
    }

    /// The next key of an object.
    pub(super) fn key(&mut self) -> &'a str {
        match self.next() {
            Node::String(key) => key,
            other => unreachable!("simd-json lets only strings be keys, not {other:?}"),
        }
    }

    /// Enters the next value, an object, and returns how many members it has.
    pub(super) fn object(&mut self, path: &str) -> Result<usize, DocumentError> {
        match self.next() {
            Node::Object { len, .. } => Ok(len),
            other => Err(DocumentError::unexpected(path, "an object", other)),
        }
    }

    /// Enters the next value, an array, and returns how many values it has.
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
        self.number_of("a number of seconds", path)
    }

    /// Takes any number, `expected` in words.
    pub(super) fn number_of(&mut self, expected: &str, path: &str) -> Result<f64, DocumentError> {
        match self.next() {
            Node::Static(StaticNode::U64(number)) => Ok(number as f64),
            Node::Static(StaticNode::I64(number)) => Ok(number as f64),
            Node::Static(StaticNode::F64(number)) => Ok(number),
            other => Err(DocumentError::unexpected(path, expected, other)),
        }
    }

    pub(super) fn boolean(&mut self, path: &str) -> Result<bool, DocumentError> {
        match self.next() {
            Node::Static(StaticNode::Bool(value)) => Ok(value),
            other => Err(DocumentError::unexpected(path, "true or false", other)),
        }
    }

    pub(super) fn whole_number(&mut self, path: &str) -> Result<i64, DocumentError> {
        match self.next() {
            Node::Static(StaticNode::U64(number)) => Ok(i64::try_from(number).unwrap_or(i64::MAX)),
            Node::Static(StaticNode::I64(number)) => Ok(number),
            other => Err(DocumentError::unexpected(path, "a whole number", other)),
        }
    }

    /// Takes a whole number from 0 to `max`.
    pub(super) fn number(&mut self, max: u64, path: &str) -> Result<u64, DocumentError> {
        self.number_from((0, max), path)
    }

    /// A whole number up to `max`. An error tells `min` as the least one; whoever calls this has
    /// more to tell of a lesser one.
    pub(super) fn number_from(
        &mut self,
        (min, max): (u64, u64),
        path: &str,
    ) -> Result<u64, DocumentError> {
        let node = self.next();
        match node {
            Node::Static(StaticNode::U64(number)) if number <= max => Ok(number),
            other => {
                let expected = format!("a whole number from {min} to {max}");
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
        .ok_or_else(|| DocumentError::unexpected(path, "a whole number from 0 to 4294967295", node))
    }
}

/// Sets a member of a document. A second value is an error.
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

/// Appends a JSON string (RFC 8259 section 7). Quotes, backslashes and control characters are
/// escaped; all other characters stay as they are.
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

/// Most bytes that [`write_string`] appends for `text`.
pub fn string_bytes_max(text: &str) -> usize {
    let escaped = |&byte: &u8| byte < 0x20 || matches!(byte, b'"' | b'\\');
    text.len() + 2 + 5 * text.bytes().filter(escaped).count()
}

/// Appends `number` in decimal digits.
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

/// Appends `number` in decimal digits, with `-` if it is negative.
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
    fn the_place_where_a_body_is_no_json_is_told() {
        let told = |body: &str| {
            let mut bytes = body.as_bytes().to_vec();
            let read = JsonScratch::default().parse(&mut bytes, |_| Ok(()));
            read.expect_err(body).0.into_owned()
        };
        let control = "body: expected JSON, got a control character in a string at byte ";
        for (body, at) in [
            ("{\"a\":\"x\ny\"}", 7),
            ("{\"a\":\"\\\"\ty\"}", 8),
            ("{\n\"a\":\"\\n\",\n\"b\":\"\r\"}", 17),
        ] {
            assert!(
                told(body).starts_with(&format!("{control}{at}; write a line end")),
                "{}",
                told(body)
            );
        }
        for (body, at) in [
            ("{\"a\":1,}", 7),
            ("{\"a\" 1}", 5),
            ("{\"a\":1 \"b\":2}", 7),
            ("{\"a\":tru}", 8),
            ("{\"a\":[1,2}", 9),
            ("{\"a\":\"\\\"\",\n\n \"b\":x}", 17),
            ("{'a':1}", 1),
            ("{\"a\":1}}", 7),
            ("{\"a\":1} x", 8),
        ] {
            assert_eq!(
                told(body),
                format!("body: expected JSON, got an error at byte {at}"),
                "{body}"
            );
        }
        for body in ["{", "{\"a\":", "{\"a\":1", "{\"a\":\"x", "[[1,2]"] {
            let end =
                format!("body: expected JSON, got the end of the body at byte {}", body.len());
            assert_eq!(told(body), end, "{body}");
        }
    }

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
