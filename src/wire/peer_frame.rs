//! Frames on a connection between two nodes (protocol version 2), after the HTTP Upgrade.
//!
//! The node that dialled sends messages and heartbeats. The other node answers with results. A
//! frame is a header of 36 bytes and a body of at most [`FRAME_BODY_BYTES_MAX`]:
//!
//! ```text
//! 0  u8   protocol version, 2        12 u32  number of its first message or result
//! 1  u8   kind                       16 u64  sender's monotonic clock in ns, as it left
//! 2  u16  how many are in the body   24 u32  digest of the members that the sender sees
//! 4  u32  bytes of the body
//! 8  u32  CRC-32 of the frame with       28 u64  sender's wall clock in ms, as it left
//!         these four bytes zero      36 body
//! ```
//!
//! A body of messages holds for each message its length (LEB128) and its bytes.
//!
//! A body of results is a sequence of runs. A run is the number of
//! [`Held`](super::peer_message::PeerResult::Held) results (LEB128, may be 0), followed by one
//! other result. The sequence ends after as many results as the header says. So thousands of the
//! most frequent result take two bytes.

// May panic: assertions 1, indices 18, cuts 7.
// Why it does not: found 3, fixed 22, bounded 1.

use std::ops::Range;

use crate::base::limits::{TAG_BYTES_MAX, TAGS_PER_TIMER_MAX, URI_TOLD_BYTES_MAX};
use crate::base::time::{MonoNs, Now, WallMs};

/// The version of the protocol; the first byte of every frame.
pub const PROTOCOL_VERSION: u8 = 2;
/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 36;
/// Most bytes of a frame's body: one message of the largest timer fits.
pub const FRAME_BODY_BYTES_MAX: usize = 2 << 20;
/// Most bytes of a message, or of a copy in a result: a body without the bytes before the message,
/// which are two lengths of at most 4 bytes each and a kind.
pub const MESSAGE_BYTES_MAX: usize = FRAME_BODY_BYTES_MAX - 16;
/// Most bytes of opaque data in a message, beside the longest URI, all tags (each with a length and
/// a count), and a kilobyte for the numbers.
pub const OPAQUE_TOLD_BYTES_MAX: u32 =
    (MESSAGE_BYTES_MAX - URI_TOLD_BYTES_MAX - TAGS_PER_TIMER_MAX * (TAG_BYTES_MAX + 16) - 1_024)
        as u32;
/// Most memory that a [`FrameReader`] keeps after a frame is complete.
const KEPT_BYTES_MAX: usize = 64 << 10;
const CHECKSUM_AT: Range<usize> = 8..12;

/// What the body of a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// Messages, numbered from `first`. A frame without messages is a heartbeat.
    Messages = 1,
    /// Results of the messages from `first` on, one for each, in order. A frame without results
    /// answers a heartbeat.
    Results = 2,
}

/// A whole frame, borrowed from the bytes it was parsed from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// What the body carries.
    pub kind: FrameKind,
    /// How many messages or results the body carries.
    pub count: u16,
    /// Number of the first message, also for results. Numbers wrap at 2^32.
    pub first: u32,
    /// The sender's monotonic clock when the frame left.
    pub sent_at: MonoNs,
    /// [`View::digest`](crate::cluster::view::View::digest) of the sender's view.
    pub view: u32,
    /// The sender's wall clock when the frame left.
    pub wall: WallMs,
    /// The encoded messages or results.
    pub body: &'a [u8],
}

/// The bytes are no frame. The connection cannot be used any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The first byte is not [`PROTOCOL_VERSION`].
    #[error("protocol version {0}, expected {PROTOCOL_VERSION}")]
    Version(u8),
    /// The kind is neither messages nor results.
    #[error("unknown kind of frame {0}")]
    Kind(u8),
    /// The body is longer than [`FRAME_BODY_BYTES_MAX`].
    #[error("a frame of {0} bytes, at most {FRAME_BODY_BYTES_MAX} are taken")]
    TooLong(u32),
    /// The checksum is wrong: bytes changed on their way.
    #[error("wrong checksum")]
    Checksum,
}

/// Begins a frame in `out` and returns where the frame begins. The caller appends the body and then
/// calls [`end_frame`].
pub fn begin_frame(out: &mut Vec<u8>) -> usize {
    let begins = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
    begins
}

/// Fills in the header of the frame from `begins` to the end of `out`. Panics if the body is longer
/// than [`FRAME_BODY_BYTES_MAX`]. Cost: the checksum, some 20 GB/s.
pub fn end_frame(
    out: &mut [u8],
    begins: usize,
    kind: FrameKind,
    count: u16,
    first: u32,
    now: Now,
    view: u32,
) {
    let frame = &mut out[begins..];
    let body_bytes = frame.len() - FRAME_HEADER_BYTES;
    assert!(body_bytes <= FRAME_BODY_BYTES_MAX, "a frame of {body_bytes} bytes is too long");
    frame[0] = PROTOCOL_VERSION;
    frame[1] = kind as u8;
    frame[2..4].copy_from_slice(&count.to_le_bytes());
    frame[4..8].copy_from_slice(&(body_bytes as u32).to_le_bytes());
    frame[CHECKSUM_AT].fill(0);
    frame[12..16].copy_from_slice(&first.to_le_bytes());
    frame[16..24].copy_from_slice(&now.mono.0.to_le_bytes());
    frame[24..28].copy_from_slice(&view.to_le_bytes());
    frame[28..36].copy_from_slice(&now.wall.0.to_le_bytes());
    let checksum = crc32fast::hash(frame);
    frame[CHECKSUM_AT].copy_from_slice(&checksum.to_le_bytes());
}

/// The frame at the front of `input` and how many bytes it has; `None`: more bytes are needed.
/// Version, kind and length are checked as soon as their bytes are there, so that a frame that will
/// be refused is not waited for.
pub fn parse_frame(input: &[u8]) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some(frame_bytes) = frame_bytes(input)? else { return Ok(None) };
    let Some((header, body)) =
        input.get(..frame_bytes).and_then(|frame| frame.split_first_chunk::<FRAME_HEADER_BYTES>())
    else {
        return Ok(None);
    };
    let mut unsigned = *header;
    unsigned[CHECKSUM_AT].fill(0);
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&unsigned);
    checksum.update(body);
    if checksum.finalize().to_le_bytes() != header[CHECKSUM_AT] {
        return Err(FrameError::Checksum);
    }
    let word = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let frame = Frame {
        kind: kind_of(header[1])?,
        count: word(2) as u16,
        first: word(12),
        sent_at: MonoNs(u64::from(word(20)) << 32 | u64::from(word(16))),
        view: word(24),
        wall: WallMs(u64::from(word(32)) << 32 | u64::from(word(28))),
        body,
    };
    Ok(Some((frame, frame_bytes)))
}

fn kind_of(byte: u8) -> Result<FrameKind, FrameError> {
    match byte {
        1 => Ok(FrameKind::Messages),
        2 => Ok(FrameKind::Results),
        other => Err(FrameError::Kind(other)),
    }
}

/// Bytes of the frame at the front of `input`; `None`: the length has not arrived.
fn frame_bytes(input: &[u8]) -> Result<Option<usize>, FrameError> {
    match *input {
        [version, ..] if version != PROTOCOL_VERSION => return Err(FrameError::Version(version)),
        [_, kind, ..] => kind_of(kind)?,
        _ => return Ok(None),
    };
    let [_, _, _, _, b0, b1, b2, b3, ..] = *input else { return Ok(None) };
    let body_bytes = u32::from_le_bytes([b0, b1, b2, b3]);
    if body_bytes as usize > FRAME_BODY_BYTES_MAX {
        return Err(FrameError::TooLong(body_bytes));
    }
    Ok(Some(FRAME_HEADER_BYTES + body_bytes as usize))
}

/// Finds frames in bytes that arrive in portions of any size. The reader holds at most one frame. A
/// frame that lies whole in a portion is not copied.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// The bytes of an incomplete frame.
    partial: Vec<u8>,
}

impl FrameReader {
    /// Calls `frame` for each frame that `bytes` completes, in order. After an error the connection
    /// cannot be used any more.
    pub fn read<E: From<FrameError>>(
        &mut self,
        mut bytes: &[u8],
        mut frame: impl FnMut(Frame<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !self.partial.is_empty() {
            let wanted = frame_bytes(&self.partial)?.unwrap_or(FRAME_HEADER_BYTES);
            let taken = (wanted - self.partial.len()).min(bytes.len());
            self.partial.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            match parse_frame(&self.partial)? {
                Some((complete, _)) => frame(complete)?,
                None if bytes.is_empty() => return Ok(()),
                None => continue,
            }
            self.partial.clear();
            self.partial.shrink_to(KEPT_BYTES_MAX);
        }
        while let Some((complete, frame_bytes)) = parse_frame(bytes)? {
            frame(complete)?;
            bytes = &bytes[frame_bytes..];
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Bytes that have arrived of the incomplete frame.
    pub fn partial_bytes(&self) -> usize {
        self.partial.len()
    }

    /// Bytes of memory that the incomplete frame takes; 0 without such a frame.
    pub fn held_bytes(&self) -> usize {
        if self.partial.is_empty() { 0 } else { self.partial.capacity() }
    }

    /// Forgets the incomplete frame. Call this when another connection begins.
    pub fn reset(&mut self) {
        self.partial.clear();
        self.partial.shrink_to(KEPT_BYTES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: FrameKind, count: u16, first: u32, body: &[u8]) -> Vec<u8> {
        let mut out = b"before".to_vec();
        let begins = begin_frame(&mut out);
        out.extend_from_slice(body);
        let now = Now { mono: MonoNs(0x0102_0304_0506_0708), wall: WallMs(0x0a0b_0c0d) };
        end_frame(&mut out, begins, kind, count, first, now, 9);
        out.split_off(6)
    }

    #[test]
    fn a_frame_is_these_bytes() {
        let bytes = frame(FrameKind::Results, 0x0203, 0x0405_0607, b"body");
        assert_eq!(bytes[..8], [2, 2, 3, 2, 4, 0, 0, 0]);
        let header =
            *b"\x07\x06\x05\x04\x08\x07\x06\x05\x04\x03\x02\x01\x09\0\0\0\x0d\x0c\x0b\x0a\0\0\0\0";
        assert_eq!(bytes[12..], [&header[..], b"body"].concat());
        // CRC-32 is that of Ethernet and zlib (ISO-HDLC), as the check value of "123456789" shows.
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
        let (parsed, frame_bytes) = parse_frame(&bytes).expect("valid").expect("whole");
        assert_eq!(frame_bytes, bytes.len());
        let sent_at = MonoNs(0x0102_0304_0506_0708);
        let kind = FrameKind::Results;
        let (first, wall) = (0x0405_0607, WallMs(0x0a0b_0c0d));
        let expected = Frame { kind, count: 0x0203, first, sent_at, view: 9, wall, body: b"body" };
        assert_eq!(parsed, expected);
    }

    #[test]
    fn frames_without_a_body_are_read_however_they_are_cut() {
        let bytes = frame(FrameKind::Messages, 0, 7, b"").repeat(3);
        for cut in 0..bytes.len() {
            let (mut reader, mut frames) = (FrameReader::default(), 0);
            for part in [&bytes[..cut], &bytes[cut..]] {
                let read = reader.read(part, |_| {
                    frames += 1;
                    Ok::<(), FrameError>(())
                });
                assert!(read.is_ok(), "{cut}");
            }
            assert_eq!(frames, 3, "{cut}");
        }
    }

    #[test]
    fn every_bit_is_watched() {
        let bytes = frame(FrameKind::Messages, 1, 7, b"hello");
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // A length that grew makes the reader wait. A length that shrank makes the checksum
            // wrong.
            let waits = matches!(parse_frame(&changed), Ok(None));
            assert!(waits && (32..64).contains(&bit) || parse_frame(&changed).is_err(), "{bit}");
        }
    }

    #[test]
    fn what_will_be_refused_is_not_waited_for() {
        assert_eq!(parse_frame(b""), Ok(None));
        assert_eq!(parse_frame(&[1]), Err(FrameError::Version(1)));
        assert_eq!(parse_frame(b"GET / HTTP"), Err(FrameError::Version(b'G')));
        assert_eq!(parse_frame(&[2, 0]), Err(FrameError::Kind(0)));
        assert_eq!(parse_frame(&[2, 3]), Err(FrameError::Kind(3)));
        let header = |body_bytes: u32| [&[2, 1, 0, 0], &body_bytes.to_le_bytes()[..]].concat();
        let max = FRAME_BODY_BYTES_MAX as u32;
        assert_eq!(parse_frame(&header(max)), Ok(None));
        assert_eq!(parse_frame(&header(max + 1)), Err(FrameError::TooLong(max + 1)));
        assert_eq!(parse_frame(&header(u32::MAX)), Err(FrameError::TooLong(u32::MAX)));
        let whole = frame(FrameKind::Messages, 1, 0, b"hello");
        for cut in 0..whole.len() {
            assert_eq!(parse_frame(&whole[..cut]), Ok(None), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn frames_in_any_portions(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..8),
            portions in prop::collection::vec(1..60_usize, 1..20),
        ) {
            let mut bytes = Vec::new();
            for (number, body) in bodies.iter().enumerate() {
                bytes.extend(frame(FrameKind::Messages, 1, number as u32, body));
            }
            let (mut reader, mut seen, mut rest) = (FrameReader::default(), Vec::new(), &bytes[..]);
            for portion in portions.iter().cycle() {
                let (now, later) = rest.split_at((*portion).min(rest.len()));
                let read = reader.read::<FrameError>(now, |frame| {
                    assert_eq!(frame.first as usize, seen.len());
                    seen.push(frame.body.to_vec());
                    Ok(())
                });
                prop_assert_eq!(read, Ok(()));
                prop_assert!(reader.partial_bytes() < FRAME_HEADER_BYTES + 100);
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(seen, bodies);
            prop_assert_eq!(reader.partial_bytes(), 0);
        }
    }
}
