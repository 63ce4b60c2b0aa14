//! Finds HTTP/1.1 messages in a byte stream: status or request line, five headers, body by
//! Content-Length.
//!
//! The parser must not be the bottleneck. It looks at eight bytes at a time for line ends, reads
//! only the headers that the load generator needs, and never interprets bodies.

/// Most bytes that are kept of an incomplete message. A longer message comes from a broken or
/// hostile peer.
const CARRY_BYTES_MAX: usize = 1 << 20;
/// Most bytes of an incomplete head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A message head, borrowed from the bytes that it was read from.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Head<'a> {
    /// The request or status line, without its line end.
    pub line: &'a [u8],
    /// Value of `Location`; empty if absent.
    pub location: &'a [u8],
    /// Value of `Content-Length`; 0 if absent.
    pub body_bytes: usize,
    /// Value of `X-Sequence-Number`; `None` if absent or not a number.
    pub sequence: Option<u32>,
    /// Value of `X-Attempt`; `None` if absent or not a number.
    pub attempt: Option<u32>,
    /// Whether the head has `Connection: close`.
    pub close: bool,
    /// Bytes of the head with its empty line.
    pub head_bytes: usize,
}

impl Head<'_> {
    /// The status code of an answer; `None`: the line is not that of an HTTP/1 answer.
    pub fn status(&self) -> Option<u16> {
        let rest = self.line.strip_prefix(b"HTTP/1.")?;
        match rest {
            [_, b' ', a, b, c, ..] if [a, b, c].iter().all(|digit| digit.is_ascii_digit()) => {
                Some(u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0'))
            }
            _ => None,
        }
    }

    /// The path of a request as it was sent; empty if the line has none.
    pub fn path(&self) -> &[u8] {
        let mut words = self.line.split(|&byte| byte == b' ');
        words.nth(1).unwrap_or_default()
    }
}

/// Why a stream cannot be read any further.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// A head is longer than 64 KiB, or a message is longer than 1 MiB.
    #[error("a message longer than the load generator accepts")]
    TooLong,
    /// A Content-Length is not a number of at most nine digits.
    #[error("a Content-Length that is not a number")]
    Length,
    /// A message has a Transfer-Encoding. The node answers with Content-Length only.
    #[error("a Transfer-Encoding, where only Content-Length is expected")]
    Encoding,
    /// The caller did not expect this message.
    #[error("a message that was not expected here")]
    Unexpected,
}

/// Reads the head at the front of `bytes`; `None`: the head is not complete.
pub fn parse_head(bytes: &[u8]) -> Result<Option<Head<'_>>, FrameError> {
    let Some(mut end) = find_newline(bytes, 0) else {
        return incomplete(bytes);
    };
    let mut head = Head { line: without_return(&bytes[..end]), ..Head::default() };
    loop {
        let start = end + 1;
        let Some(next) = find_newline(bytes, start) else {
            return incomplete(bytes);
        };
        end = next;
        let line = without_return(&bytes[start..end]);
        let Some(first) = line.first() else {
            head.head_bytes = end + 1;
            return Ok(Some(head));
        };
        match first | 0x20 {
            b'c' => {
                if let Some(value) = value_of(line, b"content-length:") {
                    head.body_bytes = number(value).ok_or(FrameError::Length)? as usize;
                } else if let Some(value) = value_of(line, b"connection:") {
                    head.close = value.eq_ignore_ascii_case(b"close");
                }
            }
            b'l' => head.location = value_of(line, b"location:").unwrap_or(head.location),
            b'x' => {
                if let Some(value) = value_of(line, b"x-sequence-number:") {
                    head.sequence = number(value);
                } else if let Some(value) = value_of(line, b"x-attempt:") {
                    head.attempt = number(value);
                }
            }
            b't' if value_of(line, b"transfer-encoding:").is_some() => {
                return Err(FrameError::Encoding);
            }
            _ => {}
        }
    }
}

/// Joins the pieces of a stream. Copies only messages that are split between pieces.
#[derive(Debug, Default)]
pub struct Inbox {
    carry: Vec<u8>,
}

impl Inbox {
    /// Forgets the bytes that have arrived. Call this for a new connection.
    pub fn clear(&mut self) {
        self.carry.clear();
    }

    /// Calls `each` with the head of every message that `bytes` completes (head and body).
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&Head<'_>) -> Result<(), FrameError>,
    ) -> Result<(), FrameError> {
        if self.carry.is_empty() {
            let used = consume(bytes, &mut each)?;
            self.carry.extend_from_slice(&bytes[used..]);
        } else {
            self.carry.extend_from_slice(bytes);
            let used = consume(&self.carry, &mut each)?;
            self.carry.drain(..used);
        }
        if self.carry.len() > CARRY_BYTES_MAX { Err(FrameError::TooLong) } else { Ok(()) }
    }
}

/// Passes every complete message at the front of `bytes` to `each`. Returns how many bytes these
/// messages took.
fn consume(
    bytes: &[u8],
    each: &mut impl FnMut(&Head<'_>) -> Result<(), FrameError>,
) -> Result<usize, FrameError> {
    let mut used = 0;
    while used < bytes.len() {
        let Some(head) = parse_head(&bytes[used..])? else { break };
        if head.body_bytes > CARRY_BYTES_MAX {
            return Err(FrameError::TooLong);
        }
        let message_bytes = head.head_bytes + head.body_bytes;
        if bytes.len() - used < message_bytes {
            break;
        }
        each(&head)?;
        used += message_bytes;
    }
    Ok(used)
}

fn incomplete(bytes: &[u8]) -> Result<Option<Head<'_>>, FrameError> {
    if bytes.len() > HEAD_BYTES_MAX { Err(FrameError::TooLong) } else { Ok(None) }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The trimmed value of a header line; `None`: the line is not of the header `name`, which is given
/// in lower case with its colon.
fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

fn number(value: &[u8]) -> Option<u32> {
    if value.is_empty() || value.len() > 9 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
}

/// Index of the first line feed at or after `from`. Eight bytes a step: a byte of `word ^ 0x0a..`
/// is zero where a line feed stands, and subtracting 1 from each byte borrows into the top bit of
/// the lowest zero byte first.
fn find_newline(bytes: &[u8], from: usize) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut at = from;
    while let Some(chunk) = bytes.get(at..at + 8) {
        let word = u64::from_le_bytes(chunk.try_into().expect("the slice has eight bytes"));
        let difference = word ^ (ONES * 0x0a);
        let zeros = difference.wrapping_sub(ONES) & !difference & (ONES << 7);
        if zeros != 0 {
            return Some(at + zeros.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    bytes.get(at..)?.iter().position(|&byte| byte == b'\n').map(|offset| at + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERS: &[u8] =
        b"HTTP/1.1 200 OK\r\nlocation: /timers/a-1-b\r\nContent-Length: 0\r\n\r\n\
        HTTP/1.1 503 Busy\r\nContent-Length: 4\r\nConnection: Close\r\n\r\n\r\n\r\n\
        HTTP/1.0 404 X\r\n\r\n";

    fn collect(pieces: &[&[u8]]) -> Result<Vec<(u16, Vec<u8>, bool)>, FrameError> {
        let mut inbox = Inbox::default();
        let mut found = Vec::new();
        for piece in pieces {
            inbox.feed(piece, |head| {
                let status = head.status().ok_or(FrameError::Unexpected)?;
                found.push((status, head.location.to_vec(), head.close));
                Ok(())
            })?;
        }
        Ok(found)
    }

    #[test]
    fn answers_come_out_whole_however_they_are_cut() {
        let whole = collect(&[ANSWERS]).unwrap();
        assert_eq!(
            whole,
            [
                (200, b"/timers/a-1-b".to_vec(), false),
                (503, Vec::new(), true),
                (404, Vec::new(), false)
            ]
        );
        for cut in 0..=ANSWERS.len() {
            let (left, right) = ANSWERS.split_at(cut);
            assert_eq!(collect(&[left, right]).unwrap(), whole, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = ANSWERS.chunks(1).collect();
        assert_eq!(collect(&bytes).unwrap(), whole);
    }

    #[test]
    fn callback_requests_give_path_and_sequence() {
        let bytes = b"POST /pop/0000000042?x HTTP/1.1\r\nHost: a\r\nX-Sequence-Number: 17\r\n\
            Content-Length: 3\r\n\r\nabc";
        let head = parse_head(bytes).unwrap().unwrap();
        assert_eq!(head.path(), b"/pop/0000000042?x");
        assert_eq!((head.sequence, head.body_bytes, head.status()), (Some(17), 3, None));
        assert_eq!(head.head_bytes + 3, bytes.len());
    }

    #[test]
    fn broken_streams_are_errors_and_memory_is_bounded() {
        let error = |bytes: &[u8]| collect(&[bytes]).unwrap_err();
        assert_eq!(error(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), FrameError::Length);
        assert_eq!(
            error(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
            FrameError::Encoding
        );
        assert_eq!(error(b"garbage\r\n\r\n"), FrameError::Unexpected);
        assert_eq!(error(&vec![b'a'; HEAD_BYTES_MAX + 1]), FrameError::TooLong);
        let long = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n";
        assert_eq!(error(long), FrameError::TooLong);
    }

    #[test]
    fn newline_is_found_at_every_place() {
        for length in 0..40 {
            for place in 0..length {
                let mut bytes = vec![0x0b; length];
                bytes[place] = b'\n';
                assert_eq!(find_newline(&bytes, 0), Some(place));
                assert_eq!(find_newline(&bytes, place + 1), None);
            }
        }
    }
}
