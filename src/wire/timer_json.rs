//! The JSON document of a timer (seeds/002, compat section 5), parsed with simd-json in place.
//!
//! simd-json turns the body into a tape of nodes; one pass over the tape picks the members that are
//! known. Types and presence are checked here; whether a value makes sense (a negative interval, a
//! factor of 17) is not this file's business.

use std::borrow::Cow;

use simd_json::{Buffers, ErrorType, Node, StaticNode, Tape};

use crate::base::limits::{TAG_BYTES_MAX, TAGS_PER_TIMER_MAX};

/// Longest body whose buffers are kept for the next one; a document of a real client has some 300
/// bytes.
const KEPT_BODY_BYTES_MAX: usize = 64 << 10;
/// Most JSON tokens of a body whose buffers are kept. A token costs 24 B of tape, 24 B of stack and
/// 4 B of index, so that at most 2^13 x 52 B + 2 x 64 KiB, doubled by growth, about 1 MiB, stays
/// held.
const KEPT_TOKENS_MAX: usize = 1 << 13;

/// One statistics tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag<'a> {
    /// Its name.
    pub kind: &'a str,
    /// How much it counts, at least 1.
    pub count: u32,
}

/// Up to [`TAGS_PER_TIMER_MAX`] tags, without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct Tags<'a> {
    items: [Tag<'a>; TAGS_PER_TIMER_MAX],
    len: usize,
}

impl<'a> Tags<'a> {
    /// No tag.
    pub const fn none() -> Self {
        Self { items: [Tag { kind: "", count: 0 }; TAGS_PER_TIMER_MAX], len: 0 }
    }

    /// Adds one; false when there is no room.
    pub fn push(&mut self, tag: Tag<'a>) -> bool {
        let Some(place) = self.items.get_mut(self.len) else { return false };
        *place = tag;
        self.len += 1;
        true
    }

    /// The tags.
    pub fn as_slice(&self) -> &[Tag<'a>] {
        &self.items[..self.len]
    }
}

/// A timer document as a client writes it; every string is JSON-unescaped and borrows the body.
#[derive(Clone, Copy, Debug)]
pub struct TimerDocument<'a> {
    /// `timing.interval`, seconds. Any finite number.
    pub interval_s: f64,
    /// `timing.repeat-for`, seconds. Any finite number.
    pub repeat_for_s: Option<f64>,
    /// `callback.http.uri`. Not empty.
    pub uri: &'a str,
    /// `callback.http.opaque`. May be empty, may hold any character, NUL included.
    pub opaque: &'a str,
    /// `reliability.replication-factor`. Any whole number; one beyond `i64` reads as `i64::MAX`.
    pub replication_factor: Option<i64>,
    /// `statistics.tag-info`.
    pub tags: Tags<'a>,
}

/// Why a body is no timer document: one line that names the member, what was expected and what
/// came. Answered with 400.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct DocumentError(pub Cow<'static, str>);

impl DocumentError {
    #[cold]
    fn told(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    /// A member of the wrong type or out of range.
    #[cold]
    fn unexpected(path: &str, expected: &str, got: Node<'_>) -> Self {
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
    fn missing(path: &str, expected: &str) -> Self {
        Self(format!("{path}: missing, expected {expected}").into())
    }

    #[cold]
    fn twice(path: &str) -> Self {
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
}

/// Parses a timer document in place (`body` is used as scratch: escapes are resolved in it).
///
/// Unknown members are ignored, among them those that only nodes send (compat section 5). A member
/// that is read and comes twice is an error: two parsers may disagree about which one counts.
/// `callback` holds `http` and nothing else. A number above 2^64 without point or exponent, or one
/// beyond the range of `f64`, is not valid here. One limit of simd-json: the exponent of a number
/// is taken modulo 2^32, so `1e4294967296` reads as 1.
///
/// Cost: one pass over the body and one over its tokens; no allocation once `scratch` has grown to
/// the usual size. While a body of n bytes is parsed, up to 54 n bytes are held, when it consists
/// of brackets alone.
pub fn parse_timer<'a>(
    body: &'a mut [u8],
    scratch: &'a mut JsonScratch,
) -> Result<TimerDocument<'a>, DocumentError> {
    let body_bytes = body.len();
    refuse_what_the_parser_lets_pass(body)?;
    let mut tape: Tape<'a> = std::mem::replace(&mut scratch.tape, Tape(Vec::new())).reset();
    let result = match simd_json::fill_tape(body, &mut scratch.buffers, &mut tape) {
        Ok(()) => read_document(&mut Cursor { nodes: &tape.0 }),
        Err(error) => Err(not_json(body_bytes, &error)),
    };
    let tokens = scratch.buffers.structural_indexes().len();
    if body_bytes > KEPT_BODY_BYTES_MAX || tokens > KEPT_TOKENS_MAX {
        *scratch = JsonScratch::default();
    } else {
        scratch.tape = tape.reset();
    }
    result
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
struct Cursor<'t, 'a> {
    nodes: &'t [Node<'a>],
}

impl<'a> Cursor<'_, 'a> {
    /// The next node. The tape of a valid document ends with its last value.
    fn next(&mut self) -> Node<'a> {
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
    fn skip(&mut self) {
        let node = self.next();
        self.skip_inside(node);
    }

    fn key(&mut self) -> &'a str {
        match self.next() {
            Node::String(key) => key,
            other => unreachable!("simd-json lets only strings be keys, not {other:?}"),
        }
    }

    /// How many members the object has that comes next.
    fn object(&mut self, path: &str) -> Result<usize, DocumentError> {
        match self.next() {
            Node::Object { len, .. } => Ok(len),
            other => Err(DocumentError::unexpected(path, "an object", other)),
        }
    }

    fn string(&mut self, path: &str) -> Result<&'a str, DocumentError> {
        match self.next() {
            Node::String(text) => Ok(text),
            other => Err(DocumentError::unexpected(path, "a string", other)),
        }
    }

    fn seconds(&mut self, path: &str) -> Result<f64, DocumentError> {
        match self.next() {
            Node::Static(StaticNode::U64(seconds)) => Ok(seconds as f64),
            Node::Static(StaticNode::I64(seconds)) => Ok(seconds as f64),
            Node::Static(StaticNode::F64(seconds)) => Ok(seconds),
            other => Err(DocumentError::unexpected(path, "a number of seconds", other)),
        }
    }

    fn whole_number(&mut self, path: &str) -> Result<i64, DocumentError> {
        match self.next() {
            Node::Static(StaticNode::U64(number)) => Ok(i64::try_from(number).unwrap_or(i64::MAX)),
            Node::Static(StaticNode::I64(number)) => Ok(number),
            other => Err(DocumentError::unexpected(path, "a whole number", other)),
        }
    }

    fn count(&mut self, path: &str) -> Result<u32, DocumentError> {
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
fn set_once<T>(place: &mut Option<T>, value: T, path: &str) -> Result<(), DocumentError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(DocumentError::twice(path)),
    }
}

fn read_document<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<TimerDocument<'a>, DocumentError> {
    let (mut timing, mut callback, mut reliability, mut tags) = (None, None, None, None);
    for _ in 0..cursor.object("body")? {
        match cursor.key() {
            "timing" => set_once(&mut timing, read_timing(cursor)?, "timing")?,
            "callback" => set_once(&mut callback, read_callback(cursor)?, "callback")?,
            "reliability" => {
                set_once(&mut reliability, read_reliability(cursor)?, "reliability")?;
            }
            "statistics" => set_once(&mut tags, read_statistics(cursor)?, "statistics")?,
            _ => cursor.skip(),
        }
    }
    let (interval_s, repeat_for_s) =
        timing.ok_or_else(|| DocumentError::missing("timing", "an object"))?;
    let (uri, opaque) = callback.ok_or_else(|| DocumentError::missing("callback", "an object"))?;
    Ok(TimerDocument {
        interval_s,
        repeat_for_s,
        uri,
        opaque,
        replication_factor: reliability.flatten(),
        tags: tags.unwrap_or(Tags::none()),
    })
}

fn read_timing(cursor: &mut Cursor<'_, '_>) -> Result<(f64, Option<f64>), DocumentError> {
    const INTERVAL: &str = "timing.interval";
    const REPEAT_FOR: &str = "timing.repeat-for";
    let (mut interval, mut repeat_for) = (None, None);
    for _ in 0..cursor.object("timing")? {
        match cursor.key() {
            "interval" => set_once(&mut interval, cursor.seconds(INTERVAL)?, INTERVAL)?,
            "repeat-for" => set_once(&mut repeat_for, cursor.seconds(REPEAT_FOR)?, REPEAT_FOR)?,
            _ => cursor.skip(),
        }
    }
    let interval =
        interval.ok_or_else(|| DocumentError::missing(INTERVAL, "a number of seconds"))?;
    Ok((interval, repeat_for))
}

/// Exactly one mechanism, `http` (compat section 1).
fn read_callback<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<(&'a str, &'a str), DocumentError> {
    let mut http = None;
    let mut has_other = false;
    for _ in 0..cursor.object("callback")? {
        match cursor.key() {
            "http" => set_once(&mut http, read_http(cursor)?, "callback.http")?,
            _ => {
                has_other = true;
                cursor.skip();
            }
        }
    }
    let http = http.ok_or_else(|| DocumentError::missing("callback.http", "an object"))?;
    if has_other {
        return Err(DocumentError::told(
            "callback: expected the mechanism http alone, got another beside it",
        ));
    }
    Ok(http)
}

fn read_http<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<(&'a str, &'a str), DocumentError> {
    const URI: &str = "callback.http.uri";
    const OPAQUE: &str = "callback.http.opaque";
    let (mut uri, mut opaque) = (None, None);
    for _ in 0..cursor.object("callback.http")? {
        match cursor.key() {
            "uri" => set_once(&mut uri, cursor.string(URI)?, URI)?,
            "opaque" => set_once(&mut opaque, cursor.string(OPAQUE)?, OPAQUE)?,
            _ => cursor.skip(),
        }
    }
    let uri = uri.ok_or_else(|| DocumentError::missing(URI, "a string"))?;
    if uri.is_empty() {
        return Err(DocumentError::told(
            "callback.http.uri: expected http://host[:port]/path, got an empty string",
        ));
    }
    let opaque = opaque.ok_or_else(|| DocumentError::missing(OPAQUE, "a string"))?;
    Ok((uri, opaque))
}

fn read_reliability(cursor: &mut Cursor<'_, '_>) -> Result<Option<i64>, DocumentError> {
    const FACTOR: &str = "reliability.replication-factor";
    let mut factor = None;
    for _ in 0..cursor.object("reliability")? {
        match cursor.key() {
            "replication-factor" => set_once(&mut factor, cursor.whole_number(FACTOR)?, FACTOR)?,
            _ => cursor.skip(),
        }
    }
    Ok(factor)
}

fn read_statistics<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<Tags<'a>, DocumentError> {
    let mut tags = None;
    for _ in 0..cursor.object("statistics")? {
        match cursor.key() {
            "tag-info" => set_once(&mut tags, read_tags(cursor)?, "statistics.tag-info")?,
            _ => cursor.skip(),
        }
    }
    Ok(tags.unwrap_or(Tags::none()))
}

/// The same name may come several times: each counts.
fn read_tags<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<Tags<'a>, DocumentError> {
    const TAG_INFO: &str = "statistics.tag-info";
    let len = match cursor.next() {
        Node::Array { len, .. } => len,
        other => return Err(DocumentError::unexpected(TAG_INFO, "an array of objects", other)),
    };
    let mut tags = Tags::none();
    for _ in 0..len {
        if !tags.push(read_tag(cursor)?) {
            return Err(DocumentError::told("statistics.tag-info: expected at most 16 tags"));
        }
    }
    Ok(tags)
}

fn read_tag<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<Tag<'a>, DocumentError> {
    const TYPE: &str = "statistics.tag-info.type";
    const COUNT: &str = "statistics.tag-info.count";
    let (mut kind, mut count) = (None, None);
    for _ in 0..cursor.object("statistics.tag-info")? {
        match cursor.key() {
            "type" => set_once(&mut kind, cursor.string(TYPE)?, TYPE)?,
            "count" => set_once(&mut count, cursor.count(COUNT)?, COUNT)?,
            _ => cursor.skip(),
        }
    }
    let kind = kind.ok_or_else(|| DocumentError::missing(TYPE, "a string"))?;
    if kind.is_empty() || kind.len() > TAG_BYTES_MAX {
        return Err(DocumentError(
            format!("{TYPE}: expected 1 to {TAG_BYTES_MAX} bytes, got {}", kind.len()).into(),
        ));
    }
    Ok(Tag { kind, count: count.unwrap_or(1) })
}
