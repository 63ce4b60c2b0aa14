//! Newline-delimited JSON: the lines of a body that arrives in pieces. A line ends with LF or CRLF,
//! the last one with the body. Blank lines are skipped.
//!
//! The result does not depend on how the body is cut into pieces. What is held is bounded: the
//! piece that came last, and the beginning of one line of at most the limit.

// May panic: indices 3, cuts 1.
// Why it does not: found 4.

/// Bytes of memory above which it is given back when no line is held.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Blank lines that are skipped together. They take the time of one line that is read.
const BLANK_LINES_MAX: u32 = 64;

/// One line.
#[derive(PartialEq, Eq, Debug)]
pub enum Line<'a> {
    /// Its bytes without the line's end, which a parser may overwrite. They are not all blank.
    Text(&'a mut [u8]),
    /// It is longer than the limit, and was thrown away.
    TooLong,
    /// Many blank lines came in a row. They are told, so that whoever counts lines to bound its
    /// work can count them.
    Blank,
}

/// The lines that have arrived and were not taken yet.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Where the next line begins.
    at: usize,
    /// Up to where no end of the next line was found.
    searched: usize,
    line_bytes_max: usize,
    /// Whether the rest of the present line is thrown away.
    is_skipping: bool,
    /// The lines before the next one, blank ones too.
    lines: u64,
}

impl LineBuffer {
    /// A buffer for lines of at most so many bytes, their ends not counted.
    pub fn new(line_bytes_max: usize) -> Self {
        let bytes = Vec::new();
        Self { bytes, at: 0, searched: 0, line_bytes_max, is_skipping: false, lines: 0 }
    }

    /// Takes the next piece of the body. Call it when [`LineBuffer::next`] has nothing more, so
    /// that what is held stays bounded.
    pub fn extend(&mut self, piece: &[u8]) {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            }
        } else {
            self.bytes.drain(..self.at);
        }
        self.searched -= self.at;
        self.at = 0;
        self.bytes.extend_from_slice(piece);
    }

    /// Tells that the body is complete. Its last line need not have an end.
    pub fn end(&mut self) {
        self.bytes.push(b'\n');
    }

    /// Takes the next line that is whole, or known to be too long. Returns its number in the body,
    /// from 1, with it.
    pub fn next_line(&mut self) -> Option<(u64, Line<'_>)> {
        let mut blank_lines = 0;
        loop {
            let Some(length) = line_feed(&self.bytes[self.searched..]) else {
                return self.end_of_pieces();
            };
            let (begin, end) = (self.at, self.searched + length);
            (self.at, self.searched) = (end + 1, end + 1);
            self.lines += 1;
            if std::mem::take(&mut self.is_skipping) {
                continue;
            }
            let line = &self.bytes[begin..end];
            let bytes = line.strip_suffix(b"\r").unwrap_or(line).len();
            if bytes > self.line_bytes_max {
                return Some((self.lines, Line::TooLong));
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some((self.lines, Line::Text(&mut self.bytes[begin..begin + bytes])));
            }
            blank_lines += 1;
            if blank_lines == BLANK_LINES_MAX {
                return Some((self.lines, Line::Blank));
            }
        }
    }

    /// Takes note that the next line has no end yet. Tells that it is too long as soon as it is.
    fn end_of_pieces(&mut self) -> Option<(u64, Line<'_>)> {
        self.searched = self.bytes.len();
        let begun = self.bytes.len() - self.at;
        // The last byte may be the CR of the line's end.
        if !self.is_skipping && begun <= self.line_bytes_max + 1 {
            return None;
        }
        self.at = self.bytes.len();
        let is_told = std::mem::replace(&mut self.is_skipping, true);
        (!is_told).then_some((self.lines + 1, Line::TooLong))
    }

    /// The number of the line that comes next, or that is being thrown away.
    pub fn number(&self) -> u64 {
        self.lines + 1
    }

    /// Whether bytes are held that [`LineBuffer::next`] has not looked at.
    pub fn has_more(&self) -> bool {
        self.searched < self.bytes.len()
    }

    /// Bytes of memory held.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// The place of the first LF. Eight bytes are looked at together: a quarter of the time of a search
/// byte by byte.
#[inline]
fn line_feed(bytes: &[u8]) -> Option<usize> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = bytes.as_chunks();
    for (at, word) in words.iter().enumerate() {
        let differs = u64::from_le_bytes(*word) ^ (EACH * u64::from(b'\n'));
        let is_zero = differs.wrapping_sub(EACH) & !differs & (EACH << 7);
        if is_zero != 0 {
            return Some(8 * at + is_zero.trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|&byte| byte == b'\n')?;
    Some(8 * words.len() + at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The lines of a body that comes in pieces; `None` stands for a line that is too long.
    fn lines_in(body: &[u8], piece_bytes: usize, max: usize) -> Vec<(u64, Option<String>)> {
        let mut buffer = LineBuffer::new(max);
        let mut lines = Vec::new();
        let mut take = |buffer: &mut LineBuffer| {
            while let Some((number, line)) = buffer.next_line() {
                let text = match line {
                    Line::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
                    Line::TooLong => None,
                    Line::Blank => continue,
                };
                lines.push((number, text));
            }
            assert!(!buffer.has_more());
        };
        for piece in body.chunks(piece_bytes) {
            buffer.extend(piece);
            take(&mut buffer);
            assert!(buffer.bytes.len() <= max + 1 + piece_bytes, "bounded");
        }
        buffer.end();
        take(&mut buffer);
        lines
    }

    fn texts(body: &str) -> Vec<(u64, Option<String>)> {
        lines_in(body.as_bytes(), body.len().max(1), 10)
    }

    fn text(number: u64, text: &str) -> (u64, Option<String>) {
        (number, Some(text.to_owned()))
    }

    #[test]
    fn lines_end_with_lf_or_crlf_or_the_body() {
        assert_eq!(texts("a\nb\r\nc"), [text(1, "a"), text(2, "b"), text(3, "c")]);
        assert_eq!(texts("a\n"), [text(1, "a")]);
        assert_eq!(texts("\n\r\n  \t\nb\n\n"), [text(4, "b")]);
        assert_eq!(texts("a\rb\n"), [text(1, "a\rb")]);
        assert_eq!(texts(""), []);
        assert_eq!(texts("\r"), []);
    }

    #[test]
    fn a_line_above_the_limit_is_told_once_and_thrown_away() {
        let (fits, long) = ("1234567890", "12345678901");
        for (body, expected) in [
            (format!("{fits}\r\n{long}\nb"), vec![text(1, fits), (2, None), text(3, "b")]),
            (long.to_owned(), vec![(1, None)]),
            (fits.to_owned(), vec![text(1, fits)]),
            (format!("{long}{long}{long}\n{long}\r\n"), vec![(1, None), (2, None)]),
            (format!("{}\nb", " ".repeat(12)), vec![(1, None), text(2, "b")]),
        ] {
            for piece_bytes in 1..body.len() + 1 {
                assert_eq!(lines_in(body.as_bytes(), piece_bytes, 10), expected, "{body:?}");
            }
        }
    }

    #[test]
    fn many_blank_lines_count_like_a_few_others() {
        let mut buffer = LineBuffer::new(10);
        buffer.extend("\n \r\n".repeat(BLANK_LINES_MAX as usize).as_bytes());
        buffer.extend(b"a\n");
        let many = u64::from(BLANK_LINES_MAX);
        assert_eq!(buffer.next_line(), Some((many, Line::Blank)));
        assert_eq!(buffer.next_line(), Some((2 * many, Line::Blank)));
        assert_eq!(buffer.next_line(), Some((2 * many + 1, Line::Text(&mut [b'a']))));
        assert_eq!(buffer.next_line(), None);
    }

    #[test]
    fn memory_is_given_back() {
        let mut buffer = LineBuffer::new(1 << 20);
        buffer.extend(&[b'x'; 1 << 20]);
        buffer.extend(b"\n");
        assert!(matches!(buffer.next_line(), Some((1, Line::Text(text))) if text.len() == 1 << 20));
        assert!(buffer.next_line().is_none() && buffer.held_bytes() >= 1 << 20);
        buffer.extend(b"y");
        assert!(buffer.held_bytes() < 100);
    }

    #[test]
    fn the_first_line_feed_is_found() {
        for before in 0..40 {
            for other in [0, 9, 11, 0x0a ^ 0x80, 0xff, b'x'] {
                let bytes = [&vec![other; before][..], b"\n\n\x0b"].concat();
                assert_eq!(line_feed(&bytes), Some(before));
                assert_eq!(line_feed(&bytes[..before]), None);
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(body in "[ab\r\n \u{e9}]{0,60}", piece_bytes in 1..9_usize) {
            let whole = lines_in(body.as_bytes(), body.len().max(1), 5);
            prop_assert_eq!(lines_in(body.as_bytes(), piece_bytes, 5), whole);
        }
    }
}
