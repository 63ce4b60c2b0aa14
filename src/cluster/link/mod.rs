//! One direction of the talk between two nodes: messages are numbered, sent, acknowledged, sent
//! again on the next connection if they were not. No sockets and no clock: connections are opened
//! by the driver, and time is an argument.
//!
//! [`Link`] is the side that sends messages, over a connection that it dialled; [`Inbound`] the
//! side that answers. A message may arrive twice (the connection broke before its result came); it
//! never arrives changed, and never after a later message of the same connection, unless it was
//! answered [`PeerResult::Busy`]: then it goes to the end.

mod bounds;
mod inbound;
mod queue;
#[cfg(test)]
mod tests;

use crate::base::time::{MonoNs, Now, TICK_NS, WallMs};
use crate::cluster::link::queue::{Batch, Queue};
use crate::wire::leb128::read_leb128;
use crate::wire::peer_frame::{
    Frame, FrameKind, FrameReader, MESSAGE_BYTES_MAX, begin_frame, end_frame,
};
use crate::wire::peer_message::{PeerResult, decode_result};

pub use crate::cluster::link::bounds::{
    BUSY_PAUSE_MS, FRAME_CUT_BYTES, LinkError, LinkFull, LinkLimits, WINDOW_BYTES_MAX,
    WINDOW_MESSAGES_MAX,
};
pub use crate::cluster::link::inbound::Inbound;

/// The sending side. `P` is what the owner wants back with a result.
///
/// Memory: at most twice [`LinkLimits::bytes_max`] (blocks of 64 KiB grow by doubling), two or
/// three blocks that are nearly empty, and one frame of the peer that is not complete.
#[derive(Debug)]
pub struct Link<P> {
    limits: LinkLimits,
    queue: Queue<P>,
    /// Messages that were answered [`PeerResult::Busy`], until [`Link::busy_until`].
    busy: Queue<P>,
    busy_until: MonoNs,
    reader: FrameReader,
    /// Whole frames of the peer, on all connections.
    frames: u64,
    /// Digest of the members that this node sees, and of those that the peer saw last.
    view: u32,
    peer_view: Option<u32>,
    /// The peer's wall clock as it said last, and when that was.
    peer_wall: Option<(WallMs, MonoNs)>,
    is_open: bool,
    /// The number of the next message on this connection.
    next_number: u32,
    /// Messages under way that [`Link::clear`] forgot: their results come before all others.
    forgotten: usize,
    /// Bytes of the window that these take.
    forgotten_bytes: usize,
    /// When an empty frame leaves if none else did.
    heartbeat_at: MonoNs,
}

impl<P: Copy> Link<P> {
    /// A link without a connection, with nothing to say.
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
            is_open: false,
            next_number: 0,
            forgotten: 0,
            forgotten_bytes: 0,
            heartbeat_at: MonoNs(0),
        }
    }

    /// Takes a message (one that `wire::peer_message` encoded). `Err`: it was not taken; the owner
    /// remembers that the peer misses something. A message beyond [`MESSAGE_BYTES_MAX`] is never
    /// taken. Cost: one copy.
    pub fn push(&mut self, message: &[u8], purpose: P) -> Result<(), LinkFull> {
        if message.len() > MESSAGE_BYTES_MAX
            || Queue::<P>::cost_bytes_of(message.len()) > self.left_bytes()
        {
            return Err(LinkFull);
        }
        self.queue.push(message, purpose);
        Ok(())
    }

    /// Bytes that [`Link::push`] would still take as one message.
    pub fn room_bytes(&self) -> usize {
        let beside = Queue::<P>::cost_bytes_of(MESSAGE_BYTES_MAX) - MESSAGE_BYTES_MAX;
        self.left_bytes().saturating_sub(beside).min(MESSAGE_BYTES_MAX)
    }

    /// Bytes that those without a result cost, of the link's bound.
    pub fn kept_bytes(&self) -> usize {
        self.queue.cost_bytes() + self.busy.cost_bytes()
    }

    /// Messages without a result.
    pub fn len(&self) -> usize {
        self.queue.len() + self.busy.len()
    }

    /// Whether every message has its result.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A connection is ready for frames: numbers begin at 0, all that has no result is sent again.
    /// The first [`Link::write`] has a frame for the peer, be it empty.
    pub fn opened(&mut self, now: MonoNs) {
        self.closed();
        self.is_open = true;
        self.heartbeat_at = now;
    }

    /// The connection is gone. What has no result waits for the next.
    pub fn closed(&mut self) {
        self.is_open = false;
        self.next_number = 0;
        self.forgotten = 0;
        self.forgotten_bytes = 0;
        self.reader.reset();
        self.queue.rewind();
        self.queue.append(&mut self.busy);
    }

    /// Forgets everything that has no result, telling each purpose. The connection stays usable:
    /// results of what was under way are dropped when they come.
    pub fn clear(&mut self, mut forgotten: impl FnMut(P)) {
        self.forgotten += self.queue.sent();
        self.forgotten_bytes += self.queue.sent_bytes();
        self.queue.clear(&mut forgotten);
        self.busy.clear(&mut forgotten);
    }

    /// Appends the frames that may leave now: messages as far as the window allows, or a heartbeat
    /// when one is due. Frames are cut at about 64 KiB. At most a window is appended, so call it
    /// only when what was written before has left. Cost: a copy of each message.
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
            self.heartbeat_at = now.mono.plus_ms(self.limits.heartbeat_ms);
        }
        if now.mono >= self.heartbeat_at {
            let begins = begin_frame(out);
            end_frame(out, begins, FrameKind::Messages, 0, self.next_number, now, self.view);
            self.heartbeat_at = now.mono.plus_ms(self.limits.heartbeat_ms);
        }
    }

    /// When [`Link::write`] next has something to say although nothing happens: the next heartbeat,
    /// or a message that was answered [`PeerResult::Busy`]. `None` without a connection (unless
    /// such a message waits for [`Link::next_message`]).
    pub fn next_wake(&self) -> Option<MonoNs> {
        let heartbeat = self.is_open.then_some(self.heartbeat_at);
        let busy = (!self.busy.is_empty()).then_some(self.busy_until);
        heartbeat.into_iter().chain(busy).min()
    }

    /// Bytes from the peer: results, in any portions. Calls `result` for each in the order of the
    /// messages. A message answered [`PeerResult::Busy`] is kept and sent again after a pause of
    /// about 20 ms, without a call.
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

    /// What frames say from now on of the members that this node sees.
    pub fn set_view(&mut self, digest: u32) {
        self.view = digest;
    }

    /// Digest of the members that the peer sees, as it said last.
    pub fn peer_view(&self) -> Option<u32> {
        self.peer_view
    }

    /// What the peer's wall clock shows now, by what it said last; kept when the connection breaks.
    pub fn peer_wall(&self, now: MonoNs) -> Option<WallMs> {
        let (wall, at) = self.peer_wall?;
        Some(WallMs(wall.0.saturating_add(now.since_ns(at) / TICK_NS)))
    }

    /// Whole frames that came. Only they prove that the peer can be understood: a length that was
    /// changed on its way makes a frame that does not end for megabytes of heartbeats.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// For a peer that is told one message at a time (the internal HTTP API): the oldest message
    /// that is not under way, which then is; `None` while one is under way, or when there is none.
    /// Its result is told by [`Link::answered`], its loss by [`Link::closed`]. Not to be mixed with
    /// [`Link::write`] on one connection.
    pub fn next_message(&mut self, now: MonoNs) -> Option<&[u8]> {
        self.take_busy(now);
        if self.is_under_way() {
            return None;
        }
        // Cut at 0 bytes, a batch has one message.
        let (_, mut message) = self.queue.take(self.window())?;
        read_leb128(&mut message).expect("the queue writes a length before each message");
        Some(message)
    }

    /// The result of the message that [`Link::next_message`] gave, as [`Link::received`] has it.
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

    /// What the window still allows. A message longer than the window leaves when it is alone.
    fn window(&self) -> Batch {
        let window_bytes = self.limits.window_bytes.min(WINDOW_BYTES_MAX);
        Batch {
            bytes_max: window_bytes.saturating_sub(self.queue.sent_bytes() + self.forgotten_bytes),
            messages_max: WINDOW_MESSAGES_MAX - self.queue.sent() - self.forgotten,
            cut_bytes: 0,
            takes_any: !self.is_under_way(),
        }
    }

    /// Queues what was answered [`PeerResult::Busy`] again when its pause is over.
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
        self.peer_wall = Some((frame.wall, now));
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

    /// The oldest message under way has its result. Its purpose, unless it is forgotten or kept.
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
