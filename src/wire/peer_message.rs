//! What nodes tell each other about timers, one message at a time. Bytes only: what a message
//! means for a timer is the shard's business.
//!
//! A message is: kind u8, then its fields, little-endian; counts and durations as LEB128. Nothing
//! is aligned, nothing is padded: a copy takes about 50 bytes and its payload.

use crate::base::ids::TimerId;
use crate::base::ranked::{Replicas, Sites};

/// How far a copy of a timer is. Two copies compare by (version, sequence); at the same key the
/// ranks that act are united.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The timer.
    pub id: TimerId,
    /// The write that made it, as [`crate::timer::version::Version`] has it.
    pub version: u64,
    /// Pops done since.
    pub sequence: u64,
    /// Ranks (bits) that pop in their order; the others hold the timer and wait behind them.
    pub actives: u16,
    /// [`Replicas::digest`] of the list.
    pub list_digest: u32,
}

/// A whole timer, or its tombstone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimerCopy<'a> {
    /// How far it is; `list_digest` is not sent, but computed from `replicas`.
    pub standing: Standing,
    /// Whether a client's write is carried: one that loses must be answered so.
    pub is_write: bool,
    /// The nodes that hold it, by rank.
    pub replicas: Replicas,
    /// The replication factor as asked.
    pub factor: u8,
    /// The sites that hold it, by rank; empty when it is not replicated across sites.
    pub sites: Sites,
    /// When it was accepted: milliseconds on the monotonic clock of the sender.
    pub start_ms: u64,
    /// Milliseconds between pops.
    pub interval_ms: u64,
    /// Milliseconds of recurrence.
    pub repeat_for_ms: u64,
    /// Authority of the callback URI and content (`timer::definition`); `None`: a tombstone.
    pub body: Option<CopyBody<'a>>,
}

/// What is only carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyBody<'a> {
    /// Authority of the callback URI.
    pub authority: &'a str,
    /// Encoded content.
    pub content: &'a [u8],
}

/// A message between nodes. Each is answered by one [`PeerResult`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerMessage<'a> {
    /// "I hold this timer, so far": after a pop, and when copies are compared.
    Standing(Standing),
    /// A timer or tombstone to be merged.
    Copy(TimerCopy<'a>),
    /// Asks for the copy held.
    Fetch(TimerId),
}

/// The answer to a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerResult<'a> {
    /// The receiver holds this state or a later one.
    Held,
    /// The receiver does not know enough: it wants the copy.
    Wanted,
    /// A client's write lost against what is held: it is to be tried again with a version above
    /// this one, and with this factor.
    Superseded {
        /// The version held.
        version: u64,
        /// The factor of the timer held.
        factor: u8,
    },
    /// Not now: a queue is full. To be sent again.
    Busy,
    /// Never: see the reason.
    Refused(PeerRefusal),
    /// To a fetch: the copy, encoded as a message.
    Found(&'a [u8]),
    /// To a fetch: not held, or deleted.
    NotFound,
}

/// Why a message is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PeerRefusal {
    /// The version lies further ahead than `cluster.clock_skew_max_ms`.
    FutureVersion = 1,
    /// No room for one more timer.
    Full = 2,
    /// The message makes no sense.
    Malformed = 3,
}

/// Bytes that are no message, or one beyond the limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("peer message: {0}")]
pub struct PeerMessageError(pub &'static str);

impl PeerMessage<'_> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let _ = out;
        todo!()
    }
}

/// Takes one message off the front of `input`, checking every bound; the rest is left.
pub fn decode_message<'a>(input: &mut &'a [u8]) -> Result<PeerMessage<'a>, PeerMessageError> {
    let _ = input;
    todo!()
}

impl PeerResult<'_> {
    /// Appends the result.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let _ = out;
        todo!()
    }
}

/// Takes one result off the front of `input`.
pub fn decode_result<'a>(input: &mut &'a [u8]) -> Result<PeerResult<'a>, PeerMessageError> {
    let _ = input;
    todo!()
}
