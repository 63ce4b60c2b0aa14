//! Frames on a connection between two nodes (protocol version 1), after the HTTP Upgrade.
//!
//! The node that dialled sends messages and heartbeats, the other answers with results. A frame is
//! a header of 24 bytes and a body of at most [`FRAME_BODY_BYTES_MAX`]:
//!
//! ```text
//! 0  u8   protocol version, 1        12 u32  number of its first message or result
//! 1  u8   kind                       16 u64  sender's monotonic clock in ns, as it left
//! 2  u16  how many are in the body   24 body
//! 4  u32  bytes of the body
//! 8  u32  CRC-32 of the frame with these four bytes zero
//! ```

use crate::base::time::MonoNs;

/// Bytes of a header.
pub const FRAME_HEADER_BYTES: usize = 24;
/// Bytes of the largest body: one message of the largest timer fits.
pub const FRAME_BODY_BYTES_MAX: usize = 2 << 20;

/// What a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// Messages, numbered from `first`; none: a heartbeat.
    Messages = 1,
    /// Results of the messages from `first` on, one each, in order; none: a heartbeat's answer.
    Results = 2,
}

/// A whole frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// What it carries.
    pub kind: FrameKind,
    /// How many.
    pub count: u16,
    /// Number of the first; numbers wrap.
    pub first: u32,
    /// When it left, on the sender's clock.
    pub sent_at: MonoNs,
    /// The messages or results.
    pub body: &'a [u8],
}

/// Bytes that are no frame: the connection is of no more use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// Another protocol version.
    #[error("protocol version {0}, expected 1")]
    Version(u8),
    /// Neither messages nor results.
    #[error("unknown kind of frame {0}")]
    Kind(u8),
    /// A body beyond [`FRAME_BODY_BYTES_MAX`].
    #[error("a frame of {0} bytes, at most {FRAME_BODY_BYTES_MAX} are taken")]
    TooLong(u32),
    /// The bytes changed on their way.
    #[error("wrong checksum")]
    Checksum,
}

/// Begins a frame in `out` with an empty body; the body is then appended, and the frame ended with
/// [`end_frame`]. Returns where it begins.
pub fn begin_frame(out: &mut Vec<u8>) -> usize {
    let _ = out;
    todo!()
}

/// Fills in the header of the frame that begins at `begins` and ends with `out`.
pub fn end_frame(
    out: &mut Vec<u8>,
    begins: usize,
    kind: FrameKind,
    count: u16,
    first: u32,
    sent_at: MonoNs,
) {
    let _ = (out, begins, kind, count, first, sent_at);
    todo!()
}

/// Looks for a whole frame at the front of `input`: the frame and its bytes, `None` when more bytes
/// are needed (also to know that it will be refused: a header is checked as soon as it is there).
pub fn parse_frame(input: &[u8]) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let _ = input;
    todo!()
}
