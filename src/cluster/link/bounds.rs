//! Bounds of the talk between two nodes, and what ends it.

use crate::wire::peer_frame::FrameError;

/// Bytes at which a frame is cut; one message alone may be longer.
pub const FRAME_CUT_BYTES: usize = 64 << 10;
/// Most bytes under way on one connection, whatever [`LinkLimits`] say: the other side closes a
/// connection with more. One message alone may be longer.
pub const WINDOW_BYTES_MAX: usize = 16 << 20;
/// Most messages under way on one connection, likewise. The other side keeps 40 bytes for each:
/// 2.5 MiB.
pub const WINDOW_MESSAGES_MAX: usize = 1 << 16;
/// Pause before a message that was answered `Busy` is sent again.
pub const BUSY_PAUSE_MS: u64 = 20;

/// Bounds of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// Bytes kept, sent or not, until their results come, purposes included.
    pub bytes_max: usize,
    /// Bytes sent without a result; more than [`WINDOW_BYTES_MAX`] count as that.
    pub window_bytes: usize,
    /// Pause between frames after which an empty one is sent.
    pub heartbeat_ms: u64,
}

/// The link keeps as much as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFull;

/// What is wrong with what a peer sent; the connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// No frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A frame that has no place here.
    #[error("{0}")]
    Protocol(&'static str),
}
