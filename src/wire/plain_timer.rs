//! Timer documents as nearly all clients write them, read in one pass without a parser's tape:
//! two thirds of the instructions of the general way.
//!
//! A document is *plain* if it has only members that clients write, each once, of the right types,
//! if its strings are printable ASCII with no escapes but those of two characters, such as `\"`,
//! and if its numbers are whole and have at most 15 digits. All others are left to simd-json
//! (`timer_json`), which also says what is wrong with a document. Of a plain document both read the
//! same; the fuzz target `internal_json` and the tests below compare them.

// May panic: assertions 1, expectations 4, indices 10.
// Why it does not: found 15.

use crate::base::limits::{TAG_BYTES_MAX, TAGS_PER_TIMER_MAX};
use crate::wire::timer_json::{Tag, Tags, TimerDocument};

/// Longest body that is looked at, in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Most digits of a number: a `f64` holds each such number.
const DIGITS_MAX: usize = 15;

/// Where a string lies in the body.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Span {
    begin: u32,
    end: u32,
    has_escapes: bool,
}

impl Span {
    /// Resolves the escapes in place.
    fn unescape(&mut self, body: &mut [u8]) {
        let bytes = &mut body[self.begin as usize..self.end as usize];
        let (mut from, mut to) = (0, 0);
        while from < bytes.len() {
            let mut byte = bytes[from];
            if byte == b'\\' {
                from += 1;
                byte = unescaped(bytes[from]).expect("the escape was read before");
            }
            bytes[to] = byte;
            (from, to) = (from + 1, to + 1);
        }
        self.end = self.begin + to as u32;
        self.has_escapes = false;
    }

    fn of(self, body: &[u8]) -> &str {
        let bytes = &body[self.begin as usize..self.end as usize];
        str::from_utf8(bytes).expect("a plain string is ASCII")
    }
}

/// What a plain document says.
#[derive(Default)]
pub(super) struct PlainTimer {
    interval_s: Option<u64>,
    repeat_for_s: Option<u64>,
    uri: Option<Span>,
    opaque: Option<Span>,
    replication_factor: Option<u64>,
    tags: [(Span, u32); TAGS_PER_TIMER_MAX],
    tags_len: usize,
}

impl PlainTimer {
    /// Reads a document into an empty value. False: the document is not plain, and the value is of
    /// no use.
    pub(super) fn read(&mut self, body: &[u8]) -> bool {
        let mut reader = Reader { body, at: 0 };
        body.len() <= BODY_BYTES_MAX
            && self.read_members(&mut reader).is_some()
            && reader.is_at_end()
    }

    fn read_members(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        reader.object(&mut Known::default(), |reader, known, key| match key {
            b"timing" => known.once(0, self.read_timing(reader)),
            b"callback" => known.once(1, self.read_callback(reader)),
            b"reliability" => known.once(2, self.read_reliability(reader)),
            b"statistics" => known.once(3, self.read_statistics(reader)),
            _ => None,
        })?;
        let _ = (self.interval_s?, self.uri?, self.opaque?);
        Some(())
    }

    /// The document. `body` is what it was read from. The escapes in it are resolved in place.
    pub(super) fn document<'a>(&mut self, body: &'a mut [u8]) -> TimerDocument<'a> {
        let strings = [&mut self.uri, &mut self.opaque].into_iter().flatten();
        strings.filter(|span| span.has_escapes).for_each(|span| span.unescape(body));
        let body = &*body;
        let string = |span: Option<Span>| span.expect("a plain document has both").of(body);
        let mut tags = Tags::none();
        for &(kind, count) in &self.tags[..self.tags_len] {
            assert!(tags.push(Tag { kind: kind.of(body), count }), "there are as many places");
        }
        TimerDocument {
            interval_s: self.interval_s.expect("a plain document has it") as f64,
            repeat_for_s: self.repeat_for_s.map(|seconds| seconds as f64),
            uri: string(self.uri),
            opaque: string(self.opaque),
            replication_factor: self.replication_factor.map(|factor| factor as i64),
            tags,
            options: None,
        }
    }

    fn read_timing(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        reader.object(&mut Known::default(), |reader, known, key| match key {
            b"interval" => known.once(0, reader.number().map(|it| self.interval_s = Some(it))),
            b"repeat-for" => known.once(1, reader.number().map(|it| self.repeat_for_s = Some(it))),
            _ => None,
        })
    }

    fn read_callback(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        reader.object(&mut Known::default(), |reader, known, key| match key {
            b"http" => known.once(0, self.read_http(reader)),
            _ => None,
        })
    }

    fn read_http(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        reader.object(&mut Known::default(), |reader, known, key| match key {
            b"uri" => {
                let uri = reader.string().filter(|uri| uri.begin < uri.end);
                known.once(0, uri.map(|uri| self.uri = Some(uri)))
            }
            b"opaque" => known.once(1, reader.string().map(|it| self.opaque = Some(it))),
            _ => None,
        })
    }

    fn read_reliability(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        reader.object(&mut Known::default(), |reader, known, key| match key {
            b"replication-factor" => {
                let factor = reader.number();
                known.once(0, factor.map(|it| self.replication_factor = Some(it)))
            }
            _ => None,
        })
    }

    fn read_statistics(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        reader.object(&mut Known::default(), |reader, known, key| match key {
            b"tag-info" => known.once(0, self.read_tags(reader)),
            _ => None,
        })
    }

    fn read_tags(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        reader.take(b'[')?;
        loop {
            let (mut kind, mut count) = (None, 1);
            reader.object(&mut Known::default(), |reader, known, key| match key {
                b"type" => known.once(0, reader.string().map(|it| kind = Some(it))),
                b"count" => known.once(1, reader.number().map(|it| count = it)),
                _ => None,
            })?;
            let kind = kind.filter(|it| (1..=TAG_BYTES_MAX as u32).contains(&(it.end - it.begin)));
            let kind = kind.filter(|it| !it.has_escapes);
            let (kind, count) = (kind?, u32::try_from(count).ok()?);
            if count > 0 {
                *self.tags.get_mut(self.tags_len)? = (kind, count);
                self.tags_len += 1;
            }
            match reader.next()? {
                b',' => {}
                b']' => return Some(()),
                _ => return None,
            }
        }
    }
}

/// Which of an object's members have come.
#[derive(Default)]
struct Known {
    seen: u8,
}

impl Known {
    /// Takes note of a member that was read, or was not plain. `None`, too, if it came before.
    #[inline]
    fn once(&mut self, number: u8, read: Option<()>) -> Option<()> {
        let bit = 1 << number;
        let is_first = self.seen & bit == 0;
        self.seen |= bit;
        read.filter(|()| is_first)
    }
}

/// Walks over a body. Each call gives `None` when what comes is not plain.
struct Reader<'b> {
    body: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    #[inline]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.body.get(self.at) {
            self.at += 1;
        }
    }

    /// The next byte that is no white space.
    #[inline]
    fn next(&mut self) -> Option<u8> {
        self.skip_space();
        let byte = *self.body.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    #[inline]
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.at == self.body.len()
    }

    /// Reads an object with a member at least. `each` reads the value of a member by its key.
    #[inline]
    fn object(
        &mut self,
        known: &mut Known,
        mut each: impl FnMut(&mut Self, &mut Known, &'b [u8]) -> Option<()>,
    ) -> Option<()> {
        self.take(b'{')?;
        loop {
            let Span { begin, end, has_escapes: false } = self.string()? else { return None };
            self.take(b':')?;
            each(self, known, &self.body[begin as usize..end as usize])?;
            match self.next()? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    #[inline]
    fn string(&mut self) -> Option<Span> {
        self.take(b'"')?;
        let begin = self.at;
        let mut has_escapes = false;
        loop {
            self.at += plain_bytes(&self.body[self.at..]);
            match self.body[self.at..] {
                [b'"', ..] => break,
                [b'\\', escaped, ..] => _ = unescaped(escaped)?,
                _ => return None,
            }
            has_escapes = true;
            self.at += 2;
        }
        let end = self.at as u32;
        self.at += 1;
        Some(Span { begin: begin as u32, end, has_escapes })
    }

    #[inline]
    fn number(&mut self) -> Option<u64> {
        self.skip_space();
        let begin = self.at;
        let mut number = 0;
        while let Some(byte @ b'0'..=b'9') = self.body.get(self.at) {
            if self.at - begin == DIGITS_MAX {
                return None;
            }
            number = number * 10 + u64::from(byte - b'0');
            self.at += 1;
        }
        let is_decimal = match self.at - begin {
            0 => false,
            1 => true,
            _ => self.body[begin] != b'0',
        };
        is_decimal.then_some(number)
    }
}

/// What a backslash and this byte stand for.
fn unescaped(byte: u8) -> Option<u8> {
    Some(match byte {
        b'"' | b'\\' | b'/' => byte,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        _ => return None,
    })
}

/// How many bytes at the beginning can stand in a plain string. Eight are looked at together.
#[inline]
fn plain_bytes(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks();
    for (at, word) in words.iter().enumerate() {
        let stops = stops(u64::from_le_bytes(*word));
        if stops != 0 {
            return 8 * at + stops.trailing_zeros() as usize / 8;
        }
    }
    let is_plain = |byte: &u8| stops(u64::from(*byte) | u64::MAX << 8) & 0x80 == 0;
    8 * words.len() + rest.iter().take_while(|byte| is_plain(byte)).count()
}

/// The top bit of the first byte that cannot stand in a plain string, and perhaps of others behind
/// it; 0: all can.
#[inline]
fn stops(bytes: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // A byte that is 0 or less than 0x20 borrows from the next: what lies behind it may be wrong.
    let is_zero = |bytes: u64| bytes.wrapping_sub(EACH) & !bytes;
    let is = |byte: u8| is_zero(bytes ^ (EACH * u64::from(byte)));
    let is_control = bytes.wrapping_sub(EACH * 0x20) & !bytes;
    (is(b'"') | is(b'\\') | is(0x7f) | is_control | bytes) & (EACH << 7)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::timer_json::{JsonScratch, parse_timer};

    /// What both ways say of a document: what simd-json reads, and whether it is plain. Panics if
    /// they differ.
    fn both(text: &str) -> (bool, bool) {
        let mut scratch = JsonScratch::default();
        let mut body = text.as_bytes().to_vec();
        let general = parse_timer(&mut body, &mut scratch);
        let mut plain = PlainTimer::default();
        let is_plain = plain.read(text.as_bytes());
        if is_plain {
            let mut body = text.as_bytes().to_vec();
            let document = plain.document(&mut body);
            let general = general.as_ref().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(format!("{document:?}"), format!("{general:?}"), "{text}");
        }
        (is_plain, general.is_ok())
    }

    const USUAL: &str = r#"{"timing":{"interval":3600,"repeat-for":7200},"callback":{"http":{"uri":
        "http://ralf:10888/call-id/1?x=y","opaque":"a b~/;=[{"}},"reliability":{"replication-factor"
        :3},"statistics":{"tag-info":[{"type":"CALL","count":2},{"type":"REG"}]}}"#;

    #[test]
    fn what_clients_write_is_plain() {
        assert_eq!(both(USUAL), (true, true));
        let spaced = USUAL.replace("\":", "\" :\t").replace("},", "}\r\n, ") + " \n";
        assert_eq!(both(&spaced), (true, true));
        assert_eq!(both(&USUAL.replace("3600", "0")), (true, true));
        assert_eq!(both(&USUAL.replace("3600", "999999999999999")), (true, true));
        let escaped = USUAL.replace("a b~", r#"{\"a\":\"\\\\\/\b\f\n\r\t\"}"#);
        assert_eq!(both(&escaped.replace("//ralf", r"\/\/ralf")), (true, true));
        let least = r#"{"callback":{"http":{"opaque":"","uri":"x"}},"timing":{"interval":1}}"#;
        assert_eq!(both(least), (true, true));
    }

    #[test]
    fn what_is_left_to_the_general_way() {
        for (part, other) in [
            ("3600", "36e2"),
            ("3600", "3600.5"),
            ("3600", "-1"),
            ("3600", "1000000000000000"),
            ("3600", "\"3600\""),
            ("\"CALL\"", r#""CA\/LL""#),
            ("\"reliability\"", r#""\/""#),
            ("a b~", "a \\u0062"),
            ("a b~", "\u{e9}"),
            ("a b~", "\u{7f}"),
            ("\"REG\"", "\"REG\",\"other\":[1]"),
            ("\"reliability\"", "\"other\""),
            ("[{\"type\":\"CALL\",\"count\":2},{\"type\":\"REG\"}]", "[]"),
        ] {
            assert_eq!(both(&USUAL.replace(part, other)), (false, true), "{other}");
        }
        for (part, other) in [
            ("3600", "03600"),
            ("3600", ""),
            ("\"count\":2", "\"count\":4294967296"),
            ("\"CALL\"", "\"\""),
            ("\"http://ralf:10888/call-id/1?x=y\"", "\"\""),
            ("\"repeat-for\"", "\"interval\""),
            ("\"reliability\"", "\"timing\""),
            ("\"http\"", "\"smtp\""),
            ("a b~", "a\tb"),
            ("a b~", r"a\x"),
            ("a b~", r"a\ "),
            ("a b~", "a\0b"),
        ] {
            assert_eq!(both(&USUAL.replace(part, other)), (false, false), "{other}");
        }
        for end in [0, 1, USUAL.len() / 2, USUAL.len() - 1] {
            assert_eq!(both(&USUAL[..end]), (false, false), "{end} bytes");
        }
        assert_eq!(both(&format!("{USUAL}x")), (false, false));
        assert_eq!(both(&format!("{USUAL}\0")), (false, false));
    }

    #[test]
    fn a_count_of_zero_is_read_and_not_kept() {
        assert_eq!(both(&USUAL.replace("\"count\":2", "\"count\":0")), (true, true));
    }

    #[test]
    fn as_many_tags_as_a_timer_may_have() {
        let tags = |count: usize| {
            let tags: Vec<_> = (0..count).map(|at| format!("{{\"type\":\"T{at}\"}}")).collect();
            USUAL.replace("{\"type\":\"REG\"}", &tags.join(","))
        };
        assert_eq!(both(&tags(15)), (true, true));
        assert_eq!(both(&tags(16)), (false, false));
    }

    #[test]
    fn a_string_ends_at_its_first_special_byte() {
        for length in 0..50 {
            for special in [b'"', b'\\', 0x1f, 0x7f, 0x80, 0xff] {
                let mut bytes = vec![b'~'; length];
                bytes.extend([special, b' ', b'"']);
                assert_eq!(plain_bytes(&bytes), length, "before {special:#x}");
            }
        }
    }

    proptest! {
        /// Whatever is put in place of whatever, nothing is plain that simd-json refuses or reads
        /// otherwise.
        #[test]
        fn both_ways_agree(
            changes in prop::collection::vec(
                (0..USUAL.len(), 0..8_usize, r#"[ -~]{0,4}|(\\[\\"/bfnrtux]){1,3}"#), 1..4)
        ) {
            let mut text = USUAL.to_owned();
            for (at, removed, put) in changes {
                let at = at.min(text.len());
                text.replace_range(at..(at + removed).min(text.len()), &put);
            }
            both(&text);
        }
    }
}
