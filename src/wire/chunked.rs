//! Chunked bodies (RFC 9112 section 7.1), decoded as they arrive.
//!
//! The decoder hands body bytes on in runs and keeps none. It reads framing strictly: every line
//! ends with CRLF, and the framing of a body costs a bounded number of bytes.

// May panic: indices 3.
// Why it does not: found 3.

use crate::base::limits::CHUNK_LINE_BYTES_MAX;

/// Most bytes of chunk extensions in one body, all chunks together. Clients do not use extensions.
/// Without a bound each body byte could bring a line of [`CHUNK_LINE_BYTES_MAX`].
pub const EXTENSION_BYTES_MAX: u32 = 4096;
/// Most hex digits of a chunk size: 16 digits are 64 bits.
const SIZE_DIGITS_MAX: u32 = 16;

/// Why a chunked body is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChunkError {
    /// The framing is wrong: a size that is not hex, a line without CRLF, a size line that is too
    /// long, or a malformed trailer.
    #[error("chunked body: {0}")]
    Malformed(&'static str),
    /// The decoded body would exceed the limit.
    #[error("chunked body: longer than the limit")]
    TooLong,
}

/// The part of a body that the next byte belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expects {
    /// Digits of a chunk size, of which `digits` were read.
    Size { digits: u32 },
    /// Blanks between size and extension.
    SizeBlank,
    /// A chunk extension, skipped.
    Extension,
    /// The LF that ends a size line.
    SizeLineFeed,
    /// Body bytes, of which `left` remain in the chunk.
    Data { left: u64 },
    /// The CR behind the data of a chunk.
    DataReturn,
    /// The LF behind the data of a chunk.
    DataLineFeed,
    /// A trailer line, or the CR of the last line.
    TrailerStart,
    /// A trailer's name, up to the colon.
    TrailerName,
    /// A trailer's value, skipped.
    TrailerValue,
    /// The LF that ends a trailer line.
    TrailerLineFeed,
    /// The LF that ends the body.
    LastLineFeed,
    /// Nothing: the body is complete.
    Nothing,
}

/// The state of a chunked body between two pieces of input.
#[derive(Clone, Debug)]
pub struct ChunkedDecoder {
    expects: Expects,
    /// Size of the chunk whose size line is being read.
    size: u64,
    /// Decoded bytes that the limit still allows.
    body_bytes_left: u64,
    /// Bytes of the present size line, or of all trailers together.
    line_bytes: usize,
    extension_bytes: u32,
}

impl ChunkedDecoder {
    /// A decoder at the start of a body that may have `body_bytes_max` decoded bytes.
    pub fn new(body_bytes_max: u64) -> Self {
        Self {
            expects: Expects::Size { digits: 0 },
            size: 0,
            body_bytes_left: body_bytes_max,
            line_bytes: 0,
            extension_bytes: 0,
        }
    }

    /// Decodes from `input` and hands each run of body bytes to `body`. Trailers and extensions are
    /// skipped.
    ///
    /// Returns how many bytes of `input` were used (all bytes, unless the body ended), and whether
    /// the body with its trailers is complete. The result does not depend on how the input is cut
    /// into pieces. A chunk that would pass the limit is refused when its size is read, before its
    /// data. After an error the decoder cannot be used again.
    ///
    /// Cost: one step per byte of framing, and what `body` does with the data; no allocation.
    pub fn decode(
        &mut self,
        input: &[u8],
        mut body: impl FnMut(&[u8]),
    ) -> Result<(usize, bool), ChunkError> {
        let mut used = 0;
        while used < input.len() && self.expects != Expects::Nothing {
            if let Expects::Data { left } = self.expects {
                let rest = &input[used..];
                let run = usize::try_from(left).map_or(rest.len(), |left| rest.len().min(left));
                body(&rest[..run]);
                used += run;
                let left = left - run as u64;
                self.expects = if left == 0 { Expects::DataReturn } else { Expects::Data { left } };
            } else {
                self.step(input[used])?;
                used += 1;
            }
        }
        Ok((used, self.expects == Expects::Nothing))
    }

    /// Takes one byte of framing. The decoder is not inside the data of a chunk.
    fn step(&mut self, byte: u8) -> Result<(), ChunkError> {
        self.expects = match (self.expects, byte) {
            (
                Expects::Size { .. }
                | Expects::SizeBlank
                | Expects::Extension
                | Expects::SizeLineFeed,
                _,
            ) => self.step_size_line(byte)?,
            (Expects::DataReturn, b'\r') => Expects::DataLineFeed,
            (Expects::DataLineFeed, b'\n') => Expects::Size { digits: 0 },
            (Expects::DataReturn | Expects::DataLineFeed, _) => {
                return Err(ChunkError::Malformed("expected CRLF after the data of a chunk"));
            }
            _ => self.step_trailers(byte)?,
        };
        Ok(())
    }

    fn step_size_line(&mut self, byte: u8) -> Result<Expects, ChunkError> {
        self.count_line_byte("a size line is longer than 256 bytes")?;
        match (self.expects, byte) {
            (Expects::Size { digits }, _) if byte.is_ascii_hexdigit() => {
                if digits == SIZE_DIGITS_MAX {
                    return Err(ChunkError::Malformed("a chunk size has more than 16 digits"));
                }
                self.size = self.size << 4 | u64::from(hex_digit(byte));
                Ok(Expects::Size { digits: digits + 1 })
            }
            (Expects::Size { digits: 0 }, _) => {
                Err(ChunkError::Malformed("expected a chunk size in hex"))
            }
            (Expects::SizeLineFeed, b'\n') => self.end_size_line(),
            (Expects::SizeLineFeed, _) => {
                Err(ChunkError::Malformed("expected LF after CR in a size line"))
            }
            // Behind a blank only an extension may follow (RFC 9112 section 7.1.1), because two
            // parsers could disagree where a size with a blank ends.
            (Expects::Size { .. } | Expects::Extension, b'\r') => Ok(Expects::SizeLineFeed),
            (Expects::Extension, b'\t' | b' '..=b'~' | 0x80..) | (_, b';') => {
                self.extension_bytes += 1;
                if self.extension_bytes > EXTENSION_BYTES_MAX {
                    return Err(ChunkError::Malformed("too many bytes of chunk extensions"));
                }
                Ok(Expects::Extension)
            }
            (Expects::Size { .. } | Expects::SizeBlank, b' ' | b'\t') => Ok(Expects::SizeBlank),
            _ => Err(ChunkError::Malformed("expected CRLF or `;` after a chunk size")),
        }
    }

    fn end_size_line(&mut self) -> Result<Expects, ChunkError> {
        let left = std::mem::take(&mut self.size);
        self.line_bytes = 0;
        if left == 0 {
            return Ok(Expects::TrailerStart);
        }
        self.body_bytes_left = self.body_bytes_left.checked_sub(left).ok_or(ChunkError::TooLong)?;
        Ok(Expects::Data { left })
    }

    /// Skips trailers; RFC 9112 section 7.1.2 allows this. `line_bytes` counts the bytes of all
    /// trailers together.
    fn step_trailers(&mut self, byte: u8) -> Result<Expects, ChunkError> {
        self.count_line_byte("the trailers are longer than 256 bytes")?;
        match (self.expects, byte) {
            (Expects::TrailerStart, b'\r') => Ok(Expects::LastLineFeed),
            (Expects::LastLineFeed, b'\n') => Ok(Expects::Nothing),
            (Expects::TrailerName, b':') => Ok(Expects::TrailerValue),
            (Expects::TrailerStart | Expects::TrailerName, _) if is_token_byte(byte) => {
                Ok(Expects::TrailerName)
            }
            (Expects::TrailerValue, b'\r') => Ok(Expects::TrailerLineFeed),
            (Expects::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => Ok(Expects::TrailerValue),
            (Expects::TrailerLineFeed, b'\n') => Ok(Expects::TrailerStart),
            _ => Err(ChunkError::Malformed("expected a trailer `name: value` or CRLF")),
        }
    }

    fn count_line_byte(&mut self, too_long: &'static str) -> Result<(), ChunkError> {
        self.line_bytes += 1;
        if self.line_bytes > CHUNK_LINE_BYTES_MAX {
            return Err(ChunkError::Malformed(too_long));
        }
        Ok(())
    }
}

/// Value of a hex digit. The low four bits of digits count from 0; those of letters count from 1,
/// and letters have bit 6 set. The byte must be `is_ascii_hexdigit`.
const fn hex_digit(byte: u8) -> u8 {
    (byte & 0x0f) + 9 * (byte >> 6)
}

/// Whether the byte is a `tchar` of RFC 9110 section 5.6.2.
pub(super) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `input` in pieces of `piece_bytes`. Returns the body, the bytes used, and whether
    /// the body is complete.
    fn decode(
        input: &[u8],
        piece_bytes: usize,
        body_bytes_max: u64,
    ) -> Result<(Vec<u8>, usize, bool), ChunkError> {
        let mut decoder = ChunkedDecoder::new(body_bytes_max);
        let (mut body, mut used, mut is_complete) = (Vec::new(), 0, false);
        for piece in input.chunks(piece_bytes) {
            let (bytes, complete) = decoder.decode(piece, |run| body.extend_from_slice(run))?;
            used += bytes;
            is_complete = complete;
            assert!(complete || bytes == piece.len(), "all is used unless the body ended");
        }
        Ok((body, used, is_complete))
    }

    fn accept(input: &str) -> String {
        let whole = decode(input.as_bytes(), input.len(), 1 << 20).expect(input);
        assert_eq!((whole.1, whole.2), (input.len(), true), "{input:?}");
        for piece_bytes in 1..input.len() {
            assert_eq!(decode(input.as_bytes(), piece_bytes, 1 << 20), Ok(whole.clone()));
        }
        String::from_utf8(whole.0).expect("these tests send text")
    }

    fn refuse(input: impl AsRef<[u8]>) {
        let input = input.as_ref();
        for piece_bytes in [1, 2, 3, input.len()] {
            match decode(input, piece_bytes, 1 << 20) {
                Err(ChunkError::Malformed(_)) => {}
                other => panic!("{} gives {other:?}", input.escape_ascii()),
            }
        }
    }

    #[test]
    fn chunks() {
        assert_eq!(accept("0\r\n\r\n"), "");
        assert_eq!(accept("5\r\nhello\r\n0\r\n\r\n"), "hello");
        assert_eq!(accept("1\r\na\r\nA\r\n0123456789\r\n0000\r\n\r\n"), "a0123456789");
        assert_eq!(accept("0000000000000002\r\n\r\n\r\n0\r\n\r\n"), "\r\n");
    }

    #[test]
    fn extensions_and_trailers_are_skipped() {
        assert_eq!(accept("1;name=\"v\u{e9}lo ;\"\r\na\r\n0;last\r\n\r\n"), "a");
        assert_eq!(accept("1 ; x\r\na\r\n0\t;\r\n\r\n"), "a");
        assert_eq!(accept("1\r\na\r\n0\r\nX-Sum: 5\r\nContent-Length: 7\r\nY:\r\n\r\n"), "a");
    }

    #[test]
    fn what_follows_the_body_is_left() {
        for after in ["GET / HTTP/1.1\r\n", "0\r\n\r\n", "\0"] {
            let input = format!("1\r\na\r\n0\r\n\r\n{after}");
            let mut decoder = ChunkedDecoder::new(10);
            let used = input.len() - after.len();
            assert_eq!(decoder.decode(input.as_bytes(), |_| {}), Ok((used, true)));
            assert_eq!(
                decoder.decode(after.as_bytes(), |_| panic!("no body is left")),
                Ok((0, true))
            );
        }
    }

    #[test]
    fn malformed_framing() {
        for input in [
            "g\r\n",
            "\r\n",
            " 5\r\nhello\r\n",
            "-5\r\n",
            "+5\r\n",
            "0x5\r\n",
            "5 5\r\n",
            "5\nhello\r\n0\r\n\r\n",
            "5\rhello",
            "5\r\nhelloo\r\n",
            "5\r\nhello\n",
            "5\r\nhello\rX",
            "5\r\nhello0\r\n\r\n",
            "5;a\nb\r\n",
            "5;a\rb\r\n",
            "5;\0\r\n",
            "1 \r\na\r\n0\r\n\r\n",
            "1\t\r\na\r\n0\r\n\r\n",
            "1\r\na\r\n0 \r\n\r\n",
            "0\r\n\n",
            "0\r\n\rX",
            "0\r\nno colon\r\n\r\n",
            "0\r\nnocolon\r\n\r\n",
            "0\r\n: x\r\n\r\n",
            "0\r\n folded: x\r\n\r\n",
            "0\r\nX: a\nY: b\r\n\r\n",
            "0\r\nX: a\rb\r\n\r\n",
            "0\r\nX: \0\r\n\r\n",
        ] {
            refuse(input);
        }
    }

    #[test]
    fn huge_sizes() {
        for size in ["ffffffffffffffff", "FFFFFFFFFFFFFFFF", "100001", "fffffff"] {
            assert_eq!(
                decode(format!("{size}\r\n").as_bytes(), 1, 1 << 20),
                Err(ChunkError::TooLong)
            );
        }
        refuse("10000000000000000\r\n");
        refuse("0".repeat(17));
    }

    #[test]
    fn the_limit_counts_decoded_bytes_of_all_chunks() {
        let input = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert!(decode(input, 1, 5).expect("exactly the limit").2);
        assert_eq!(decode(input, 1, 4), Err(ChunkError::TooLong));
        assert_eq!(decode(b"0\r\n\r\n", 1, 0), Ok((Vec::new(), 5, true)));
    }

    #[test]
    fn framing_is_bounded() {
        let extension = |bytes: usize| format!("1;{}\r\na\r\n", "x".repeat(bytes - 4));
        assert!(decode(extension(CHUNK_LINE_BYTES_MAX).as_bytes(), 1, 10).is_ok());
        refuse(extension(CHUNK_LINE_BYTES_MAX + 1));
        refuse(extension(200).repeat(30));
        // 32 sizes, each with a `;` and 127 more bytes behind it, have exactly 4096 bytes of
        // extensions.
        let full = extension(131).repeat(EXTENSION_BYTES_MAX as usize / 128);
        assert_eq!(decode(full.as_bytes(), 1, 100).expect("just fits").0, [b'a'; 32]);
        refuse("1\r;x\r\na\r\n0\r\n\r\n");
        refuse(full + "1;\r\na\r\n");
        let trailer = |bytes: usize| format!("0\r\nX:{}\r\n\r\n", "y".repeat(bytes - 6));
        assert!(decode(trailer(CHUNK_LINE_BYTES_MAX).as_bytes(), 1, 10).expect("just fits").2);
        refuse(trailer(CHUNK_LINE_BYTES_MAX + 1));
        refuse(format!("0\r\n{}\r\n", "X: y\r\n".repeat(50)));
    }

    #[test]
    fn runs_are_as_long_as_the_input_allows() {
        let mut runs = Vec::new();
        let mut decoder = ChunkedDecoder::new(100);
        for piece in [&b"8\r\nab"[..], b"cdef", b"gh\r\n1\r\ni"] {
            decoder.decode(piece, |run| runs.push(run.to_vec())).expect("well formed");
        }
        assert_eq!(runs, [&b"ab"[..], b"cdef", b"gh", b"i"]);
    }

    #[test]
    fn hex_digits_have_their_values() {
        for (value, text) in "0123456789abcdef".bytes().enumerate() {
            assert_eq!(usize::from(hex_digit(text)), value);
            assert_eq!(usize::from(hex_digit(text.to_ascii_uppercase())), value);
        }
    }
}
