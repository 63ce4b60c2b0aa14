//! The bounds of a link and an inbound, and the errors that end a connection.

use crate::wire::peer_frame::FrameError;

/// Bytes at which a frame is cut. A frame with a single message may be longer.
pub const FRAME_CUT_BYTES: usize = 64 << 10;
/// Most bytes under way on one connection, whatever [`LinkLimits`] say. The other side closes a
/// connection with more. A single message may be longer.
pub const WINDOW_BYTES_MAX: usize = 16 << 20;
/// Most messages under way on one connection, whatever [`LinkLimits`] say. The other side keeps 40
/// bytes for each message: 2.5 MiB.
pub const WINDOW_MESSAGES_MAX: usize = 1 << 16;
/// Bytes that a connection may have under way at first if the one before broke with all that it
/// carried. Each frame of results doubles them. Otherwise a line that changes a bit in every few
/// kilobytes would never carry what has gathered meanwhile.
pub const WINDOW_BYTES_MIN: usize = 1 << 10;
/// Pause in ms before a message that was answered `Busy` is sent again.
pub const BUSY_PAUSE_MS: u64 = 20;

/// Bounds of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// Bytes that the link keeps, sent or not, until their results come. Purposes count, too.
    pub bytes_max: usize,
    /// Bytes that may be under way without a result. A value above [`WINDOW_BYTES_MAX`] counts as
    /// [`WINDOW_BYTES_MAX`].
    pub window_bytes: usize,
    /// Pause in ms after a frame before an empty frame is sent.
    pub heartbeat_ms: u64,
}

/// The link already keeps as many bytes as it may. The message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFull;

/// What is wrong with the bytes of a peer. The driver must close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The bytes are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The bytes are a frame that may not come here: of the wrong kind, out of order, malformed, or
    /// beyond the window.
    #[error("{0}")]
    Protocol(&'static str),
}
