//! One direction of the talk between two nodes. Messages are numbered, sent and acknowledged. A
//! message that was not acknowledged is sent again on the next connection. There are no sockets and
//! no clock here: the driver opens connections, and time is an argument.
//!
//! [`Link`] is the side that sends messages, over a connection that it dialled. [`Inbound`] is the
//! side that answers.
//!
//! - A message may arrive twice: the connection broke before its result came.
//! - A message never arrives changed.
//! - A message never arrives after a later message of the same connection. Exception: a message
//!   that was answered [`PeerResult::Busy`] goes to the end.

// May panic: assertions 1, expectations 1.
// Why it does not: encoded 1, ordered 1.
// Reads the wall clock: judged 2.

mod bounds;
mod inbound;
mod queue;
mod timing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod window_tests;

use std::ops::RangeInclusive;

use crate::base::time::{MonoNs, Now, TICK_NS, WallMs};
use crate::cluster::link::queue::{Batch, Queue};
use crate::cluster::link::timing::Timing;
use crate::wire::leb128::read_leb128;
use crate::wire::peer_frame::{
    Frame, FrameKind, FrameReader, MESSAGE_BYTES_MAX, begin_frame, end_frame,
};
use crate::wire::peer_message::{PeerResult, decode_result};

pub use crate::cluster::link::bounds::{
    BUSY_PAUSE_MS, FRAME_CUT_BYTES, LinkError, LinkFull, LinkLimits, WINDOW_BYTES_MAX,
    WINDOW_BYTES_MIN, WINDOW_MESSAGES_MAX,
};
pub use crate::cluster::link::inbound::Inbound;

/// What a peer said of its wall clock.
#[derive(Clone, Copy, Debug)]
struct SaidWall {
    wall: WallMs,
    came_at: MonoNs,
    /// For how long it was under way, at most.
    delay_ns_max: u64,
}

/// The sending side. `P` is the purpose of a message, which the owner gets back with the result.
///
/// Memory: at most twice [`LinkLimits::bytes_max`] (blocks of 64 KiB grow by doubling), two or
/// three nearly empty blocks, and one incomplete frame of the peer.
#[derive(Debug)]
pub struct Link<P> {
    limits: LinkLimits,
    queue: Queue<P>,
    /// Messages that were answered [`PeerResult::Busy`]. They wait until [`Link::busy_until`].
    busy: Queue<P>,
    busy_until: MonoNs,
    reader: FrameReader,
    /// Whole frames that came from the peer, on all connections.
    frames: u64,
    /// Digest of the members that this node sees; `peer_view` is the digest that the peer said
    /// last.
    view: u32,
    peer_view: Option<u32>,
    /// The peer's wall clock as the peer said last.
    peer_wall: Option<SaidWall>,
    /// When the peer says what, by this node's clock.
    timing: Timing,
    is_open: bool,
    /// Bytes that may be under way, within the bounds of the window.
    allowed_bytes: usize,
    /// Whether a result came on this connection.
    has_results: bool,
    /// The number of the next message on this connection.
    next_number: u32,
    /// How many messages under way [`Link::clear`] forgot. Their results come before all others.
    forgotten: usize,
    /// Bytes of the window that the forgotten messages take.
    forgotten_bytes: usize,
    /// When an empty frame leaves, unless another frame leaves earlier.
    heartbeat_at: MonoNs,
}

impl<P: Copy> Link<P> {
    /// A link without a connection and without messages.
    pub fn new(limits: LinkLimits) -> Self {
        Self {
            limits,
            queue: Queue::new(),
            busy: Queue::new(),
            busy_until: MonoNs(0),
            reader: FrameReader::default(),
            frames: 0,
            view: 0,
            peer_view: None,
            peer_wall: None,
            timing: Timing::default(),
            is_open: false,
            allowed_bytes: WINDOW_BYTES_MAX,
            has_results: false,
            next_number: 0,
            forgotten: 0,
            forgotten_bytes: 0,
            heartbeat_at: MonoNs(0),
        }
    }

    /// Takes a message that `wire::peer_message` encoded. On `Err` the message was not taken, and
    /// the owner must remember that the peer misses something. A message longer than
    /// [`MESSAGE_BYTES_MAX`] is never taken. Cost: one copy.
    pub fn push(&mut self, message: &[u8], purpose: P) -> Result<(), LinkFull> {
        if message.len() > MESSAGE_BYTES_MAX
            || Queue::<P>::cost_bytes_of(message.len()) > self.left_bytes()
        {
            return Err(LinkFull);
        }
        self.queue.push(message, purpose);
        Ok(())
    }

    /// Bytes that one further message may have so that [`Link::push`] takes it.
    pub fn room_bytes(&self) -> usize {
        let beside = Queue::<P>::cost_bytes_of(MESSAGE_BYTES_MAX) - MESSAGE_BYTES_MAX;
        self.left_bytes().saturating_sub(beside).min(MESSAGE_BYTES_MAX)
    }

    /// Bytes of [`LinkLimits::bytes_max`] that the messages without a result cost.
    pub fn kept_bytes(&self) -> usize {
        self.queue.cost_bytes() + self.busy.cost_bytes()
    }

    /// How many messages have no result.
    pub fn len(&self) -> usize {
        self.queue.len() + self.busy.len()
    }

    /// Returns whether every message has its result.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tells that a connection is ready for frames. Numbers begin at 0, and every message without a
    /// result is sent again. The first [`Link::write`] has a frame for the peer, even if it is an
    /// empty one.
    pub fn opened(&mut self, now: MonoNs) {
        self.closed();
        self.is_open = true;
        self.heartbeat_at = now;
        // The process at the other end may be another one, with another clock.
        self.timing = Timing::default();
    }

    /// Tells that the connection is gone. Messages without a result wait for the next connection.
    pub fn closed(&mut self) {
        if self.is_open && self.is_under_way() && !self.has_results {
            self.allowed_bytes = WINDOW_BYTES_MIN;
        }
        self.has_results = false;
        self.is_open = false;
        self.next_number = 0;
        self.forgotten = 0;
        self.forgotten_bytes = 0;
        self.reader.reset();
        self.queue.rewind();
        self.queue.append(&mut self.busy);
    }

    /// Forgets every message that has no result, and calls `forgotten` with each purpose. The
    /// connection stays usable: results of forgotten messages are dropped when they come.
    pub fn clear(&mut self, mut forgotten: impl FnMut(P)) {
        self.forgotten += self.queue.sent();
        self.forgotten_bytes += self.queue.sent_bytes();
        self.queue.clear(&mut forgotten);
        self.busy.clear(&mut forgotten);
    }

    /// Appends the frames that may leave now: messages as far as the window allows, or a heartbeat
    /// when one is due. Frames are cut at about 64 KiB. One call appends at most a window, so call
    /// it only when the bytes of the former call have left. Cost: one copy of each message.
    pub fn write(&mut self, now: Now, out: &mut Vec<u8>) {
        if !self.is_open {
            return;
        }
        self.take_busy(now.mono);
        loop {
            let batch = Batch { cut_bytes: FRAME_CUT_BYTES, ..self.window() };
            let begins = begin_frame(out);
            let Some((count, messages)) = self.queue.take(batch) else {
                out.truncate(begins);
                break;
            };
            out.extend_from_slice(messages);
            end_frame(out, begins, FrameKind::Messages, count, self.next_number, now, self.view);
            self.next_number = self.next_number.wrapping_add(count.into());
            self.timing.sent(now.mono, Some(self.next_number));
            self.heartbeat_at = now.mono.plus_ms(self.limits.heartbeat_ms);
        }
        if now.mono >= self.heartbeat_at {
            let begins = begin_frame(out);
            end_frame(out, begins, FrameKind::Messages, 0, self.next_number, now, self.view);
            self.timing.sent(now.mono, None);
            self.heartbeat_at = now.mono.plus_ms(self.limits.heartbeat_ms);
        }
    }

    /// When [`Link::write`] has something to send although nothing happens: the next heartbeat, or
    /// a message that was answered [`PeerResult::Busy`]. Without a connection it is `None`, unless
    /// such a message waits.
    pub fn next_wake(&self) -> Option<MonoNs> {
        let heartbeat = self.is_open.then_some(self.heartbeat_at);
        let busy = (!self.busy.is_empty()).then_some(self.busy_until);
        heartbeat.into_iter().chain(busy).min()
    }

    /// Takes bytes from the peer: results, in any portions. It calls `result` for each one, in the
    /// order of the messages. A message answered [`PeerResult::Busy`] causes no call: the link
    /// keeps it and sends it again after about 20 ms.
    pub fn received(
        &mut self,
        now: MonoNs,
        bytes: &[u8],
        mut result: impl FnMut(P, PeerResult<'_>),
    ) -> Result<(), LinkError> {
        if !self.is_open {
            return Err(LinkError::Protocol("results without a connection"));
        }
        let mut reader = std::mem::take(&mut self.reader);
        let read = reader.read(bytes, |frame| self.results(now, &frame, &mut result));
        self.reader = reader;
        read
    }

    /// Sets the digest of the members that this node sees. All later frames carry it.
    pub fn set_view(&mut self, digest: u32) {
        self.view = digest;
    }

    /// The digest of the members that the peer said last. `None` before the first frame.
    pub fn peer_view(&self) -> Option<u32> {
        self.peer_view
    }

    /// What the peer's wall clock shows at `now`, at least and at most, by what the peer said last.
    /// What it said may have been under way for a while, or have waited here: it is known no better
    /// than to that time. The value outlives the connection. `None` before the first frame.
    pub fn peer_wall(&self, now: MonoNs) -> Option<RangeInclusive<WallMs>> {
        let said = self.peer_wall?;
        let least = said.wall.0.saturating_add(now.since_ns(said.came_at) / TICK_NS);
        let delay_ms = said.delay_ns_max.div_ceil(TICK_NS);
        Some(WallMs(least)..=WallMs(least.saturating_add(delay_ms)))
    }

    /// How many whole frames came. Only a whole frame proves that the peer can be understood: a
    /// length that was changed on its way makes a frame that does not end for megabytes of
    /// heartbeats.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// For a peer that is told messages one by one (the internal HTTP API). Returns the oldest
    /// message that is not under way and counts it as under way. `None` when there is none, or when
    /// the window is full. [`Link::answered`] tells the result of the oldest, [`Link::closed`] the
    /// loss of all. Do not use it together with [`Link::write`] on one connection.
    pub fn next_message(&mut self, now: MonoNs) -> Option<&[u8]> {
        self.take_busy(now);
        // A batch that is cut at 0 bytes has one message.
        let (_, mut message) = self.queue.take(self.window())?;
        read_leb128(&mut message).expect("the queue writes a length before each message");
        Some(message)
    }

    /// Takes the result of the oldest message that [`Link::next_message`] returned. `callback` is
    /// called as in [`Link::received`]. Panics when no message is under way.
    pub fn answered(
        &mut self,
        now: MonoNs,
        result: PeerResult<'_>,
        callback: impl FnOnce(P, PeerResult<'_>),
    ) {
        assert!(self.is_under_way(), "only a message that is under way is answered");
        if let Some(purpose) = self.finish(now, result) {
            callback(purpose, result);
        }
    }

    fn left_bytes(&self) -> usize {
        self.limits.bytes_max.saturating_sub(self.kept_bytes())
    }

    fn is_under_way(&self) -> bool {
        self.queue.sent() + self.forgotten > 0
    }

    /// What the window still allows. A message longer than the window leaves when no other is under
    /// way.
    fn window(&self) -> Batch {
        let window_bytes = self.limits.window_bytes.min(self.allowed_bytes);
        Batch {
            bytes_max: window_bytes.saturating_sub(self.queue.sent_bytes() + self.forgotten_bytes),
            messages_max: WINDOW_MESSAGES_MAX - self.queue.sent() - self.forgotten,
            cut_bytes: 0,
            takes_any: !self.is_under_way(),
        }
    }

    /// Puts messages that were answered [`PeerResult::Busy`] back into the queue when their pause
    /// is over.
    fn take_busy(&mut self, now: MonoNs) {
        if !self.busy.is_empty() && now >= self.busy_until {
            self.queue.append(&mut self.busy);
        }
    }

    fn results(
        &mut self,
        now: MonoNs,
        frame: &Frame<'_>,
        result: &mut impl FnMut(P, PeerResult<'_>),
    ) -> Result<(), LinkError> {
        const MALFORMED: LinkError = LinkError::Protocol("malformed results");
        self.frames += 1;
        self.peer_view = Some(frame.view);
        let last = frame.first.wrapping_add(frame.count.into());
        let delay_ns_max = self.timing.came(now, frame.sent_at, last);
        self.peer_wall = Some(SaidWall { wall: frame.wall, came_at: now, delay_ns_max });
        if frame.kind != FrameKind::Results {
            return Err(LinkError::Protocol("messages on a connection that this node dialled"));
        }
        let under_way = self.queue.sent() + self.forgotten;
        if frame.first != self.next_number.wrapping_sub(under_way as u32) {
            return Err(LinkError::Protocol("results out of order"));
        }
        if usize::from(frame.count) > under_way {
            return Err(LinkError::Protocol("results of messages that were not sent"));
        }
        let (mut left, mut body) = (u64::from(frame.count), frame.body);
        if left > 0 {
            self.has_results = true;
            self.allowed_bytes = (2 * self.allowed_bytes).min(WINDOW_BYTES_MAX);
        }
        while left > 0 {
            let held = read_leb128(&mut body).filter(|&held| held <= left).ok_or(MALFORMED)?;
            for _ in 0..held {
                self.finish(now, PeerResult::Held)
                    .into_iter()
                    .for_each(|purpose| result(purpose, PeerResult::Held));
            }
            left -= held;
            if left > 0 {
                let other = decode_result(&mut body).map_err(|_| MALFORMED)?;
                if other == PeerResult::Held {
                    return Err(MALFORMED);
                }
                self.finish(now, other).into_iter().for_each(|purpose| result(purpose, other));
                left -= 1;
            }
        }
        if body.is_empty() { Ok(()) } else { Err(MALFORMED) }
    }

    /// Takes the result of the oldest message under way. Returns the message's purpose, unless the
    /// message was forgotten or is sent again.
    fn finish(&mut self, now: MonoNs, result: PeerResult<'_>) -> Option<P> {
        if self.forgotten > 0 {
            self.forgotten -= 1;
            if self.forgotten == 0 {
                self.forgotten_bytes = 0;
            }
            return None;
        }
        let (purpose, message) = self.queue.first();
        if result == PeerResult::Busy {
            if self.busy.is_empty() {
                self.busy_until = now.plus_ms(BUSY_PAUSE_MS);
            }
            self.busy.push(message, purpose);
        }
        self.queue.pop();
        (result != PeerResult::Busy).then_some(purpose)
    }
}
