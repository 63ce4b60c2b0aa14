//! One direction of the talk between two nodes: messages are numbered, sent, acknowledged, sent
//! again on the next connection if they were not. No sockets and no clock: connections are opened
//! by the driver, and time is an argument.
//!
//! [`Link`] is the side that sends messages, over a connection that it dialled; [`Inbound`] the
//! side that answers. A message may arrive twice (the connection broke before its result came); it
//! never arrives changed, and never after a later message of the same connection.

use std::collections::VecDeque;

use crate::base::time::MonoNs;
use crate::wire::peer_frame::FrameError;
use crate::wire::peer_message::PeerResult;

/// Bounds of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// Bytes kept, sent or not, until their results come.
    pub bytes_max: usize,
    /// Bytes sent without a result.
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

/// The sending side. `P` is what the owner wants back with a result.
#[derive(Debug)]
pub struct Link<P> {
    limits: LinkLimits,
    /// Messages that have no result yet: the first `sent` of them are under way.
    messages: VecDeque<(P, Vec<u8>)>,
    sent: usize,
}

impl<P: Copy> Link<P> {
    /// A link without a connection, with nothing to say.
    pub fn new(limits: LinkLimits) -> Self {
        Self { limits, messages: VecDeque::new(), sent: 0 }
    }

    /// Takes a message (one that `wire::peer_message` encoded). `Err`: it was not taken; the owner
    /// remembers that the peer misses something.
    pub fn push(&mut self, message: &[u8], purpose: P) -> Result<(), LinkFull> {
        let _ = (message, purpose, self.limits, self.sent);
        todo!()
    }

    /// Bytes that [`Link::push`] would still take.
    pub fn room_bytes(&self) -> usize {
        todo!()
    }

    /// Messages without a result.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether every message has its result.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// A connection is ready for frames: numbers begin at 0, all that has no result is sent again.
    pub fn opened(&mut self, now: MonoNs) {
        let _ = now;
        todo!()
    }

    /// The connection is gone. What has no result waits for the next.
    pub fn closed(&mut self) {
        todo!()
    }

    /// Forgets everything that has no result, telling each purpose.
    pub fn clear(&mut self, forgotten: impl FnMut(P)) {
        let _ = forgotten;
        todo!()
    }

    /// Appends the frames that may leave now: messages as far as the window allows, or a heartbeat
    /// when one is due. Frames are cut at about 64 KiB. Cost: a copy of each message.
    pub fn write(&mut self, now: MonoNs, out: &mut Vec<u8>) {
        let _ = (now, out);
        todo!()
    }

    /// When [`Link::write`] next has something to say although nothing happens: the next heartbeat.
    /// `None` without a connection.
    pub fn next_wake(&self) -> Option<MonoNs> {
        todo!()
    }

    /// Bytes from the peer: results, in any portions. Calls `result` for each in the order of the
    /// messages. A message answered [`PeerResult::Busy`] is kept and sent again after a pause of
    /// about 20 ms, without a call.
    pub fn received(
        &mut self,
        now: MonoNs,
        bytes: &[u8],
        result: impl FnMut(P, PeerResult<'_>),
    ) -> Result<(), LinkError> {
        let _ = (now, bytes, result);
        todo!()
    }
}

/// The answering side of one connection.
#[derive(Debug, Default)]
pub struct Inbound {
    /// Bytes of a frame that is not complete.
    partial: Vec<u8>,
}

impl Inbound {
    /// A connection that has just been upgraded.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes from the peer, in any portions. Calls `message` for each message with its number and
    /// the frame's `sent_at` (see [`super::clock_offset`]); its result comes by
    /// [`Inbound::answer`], in any order.
    pub fn received(
        &mut self,
        now: MonoNs,
        bytes: &[u8],
        message: impl FnMut(u32, MonoNs, &[u8]),
    ) -> Result<(), LinkError> {
        let _ = (now, bytes, message, &self.partial);
        todo!()
    }

    /// The result of message `number`. Results are sent in the order of the numbers: one that is
    /// early waits.
    pub fn answer(&mut self, number: u32, result: PeerResult<'_>) {
        let _ = (number, result);
        todo!()
    }

    /// Appends the results that can leave, or an answer to a heartbeat.
    pub fn write(&mut self, now: MonoNs, out: &mut Vec<u8>) {
        let _ = (now, out);
        todo!()
    }

    /// Offset of this node's monotonic clock against the sender's, see
    /// [`super::clock_offset::ClockOffset`]; `None` before the first frame.
    pub fn clock_offset_ns(&self) -> Option<i64> {
        todo!()
    }

    /// Messages without a result yet.
    pub fn unanswered(&self) -> usize {
        todo!()
    }
}
