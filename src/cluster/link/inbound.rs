//! The answering side of one connection: it takes messages and sends their results.

// May panic: assertions 2, expectations 1.
// Why it does not: ordered 2, compiled 1.

use std::collections::VecDeque;

use super::bounds::{FRAME_CUT_BYTES, LinkError, WINDOW_BYTES_MAX, WINDOW_MESSAGES_MAX};
use crate::base::time::{MonoNs, Now};
use crate::cluster::clock_offset::ClockOffset;
use crate::wire::leb128::{read_leb128, write_leb128};
use crate::wire::peer_frame::{
    Frame, FrameKind, FrameReader, MESSAGE_BYTES_MAX, begin_frame, end_frame,
};
use crate::wire::peer_message::{PeerRefusal, PeerResult};

/// Most bytes of copies that wait to be sent. A fetch beyond them is answered [`PeerResult::Busy`]
/// and comes again. The largest copy fits twice.
const FOUND_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;

/// Number of messages for which memory is kept when all results are written.
const KEPT_MESSAGES_MAX: usize = 16 << 10;

/// The answering side of one connection.
///
/// Memory: one incomplete frame, 40 bytes for each message whose result is not written yet (at most
/// [`WINDOW_MESSAGES_MAX`] messages), and 4 MiB of copies.
#[derive(Debug, Default)]
pub struct Inbound {
    reader: FrameReader,
    /// Messages whose results are not written yet. The first of them has the number `first`.
    messages: VecDeque<Message>,
    pub(super) first: u32,
    /// Bytes that the messages in `messages` had.
    message_bytes: usize,
    /// How many of the messages in `messages` have no result.
    unanswered: usize,
    /// Bytes of copies in the results that are not written yet.
    found_bytes: usize,
    owes_heartbeat: bool,
    /// Digest of the members that this node sees.
    view: u32,
    clock_offset: ClockOffset,
}

#[derive(Debug)]
struct Message {
    bytes: usize,
    answer: Answer,
}

/// A [`PeerResult`] that waits to be written.
#[derive(Debug)]
enum Answer {
    None,
    Found(Box<[u8]>),
    Other(PeerResult<'static>),
}

const _: () = assert!(size_of::<Message>() <= 40, "the memory told above is for 40 bytes each");

impl Answer {
    fn result(&self) -> Option<PeerResult<'_>> {
        match self {
            Answer::None => None,
            Answer::Found(copy) => Some(PeerResult::Found(copy)),
            Answer::Other(other) => Some(*other),
        }
    }
}

impl Inbound {
    /// The answering side of a connection that has just been upgraded.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes from the peer, in any portions. It calls `message` for each message with the
    /// message's number and the frame's `sent_at` (see `cluster::clock_offset`). The
    /// caller gives the result to [`Inbound::answer`], in any order. This function does not look at
    /// what a message says.
    pub fn received(
        &mut self,
        now: MonoNs,
        bytes: &[u8],
        mut message: impl FnMut(u32, MonoNs, &[u8]),
    ) -> Result<(), LinkError> {
        let mut reader = std::mem::take(&mut self.reader);
        let read = reader.read(bytes, |frame| self.messages(now, &frame, &mut message));
        self.reader = reader;
        read
    }

    /// Takes the result of message `number`. Results are sent in the order of the numbers: an early
    /// result waits. Panics when the message did not come or has its result already.
    pub fn answer(&mut self, number: u32, result: PeerResult<'_>) {
        let place = number.wrapping_sub(self.first) as usize;
        let message = self.messages.get_mut(place).expect("only messages that came are answered");
        assert!(matches!(message.answer, Answer::None), "message {number} is answered twice");
        message.answer = match result {
            // A node configured for larger timers may hold a copy that is too long to be sent.
            PeerResult::Found(copy) if copy.len() > MESSAGE_BYTES_MAX => {
                Answer::Other(PeerResult::Refused(PeerRefusal::Full))
            }
            PeerResult::Found(copy) if self.found_bytes + copy.len() > FOUND_BYTES_MAX => {
                Answer::Other(PeerResult::Busy)
            }
            PeerResult::Found(copy) => {
                self.found_bytes += copy.len();
                Answer::Found(copy.into())
            }
            PeerResult::Held => Answer::Other(PeerResult::Held),
            PeerResult::Wanted => Answer::Other(PeerResult::Wanted),
            PeerResult::Superseded { version, factor } => {
                Answer::Other(PeerResult::Superseded { version, factor })
            }
            PeerResult::Busy => Answer::Other(PeerResult::Busy),
            PeerResult::Refused(reason) => Answer::Other(PeerResult::Refused(reason)),
            PeerResult::NotFound => Answer::Other(PeerResult::NotFound),
            PeerResult::Ahead => Answer::Other(PeerResult::Ahead),
            PeerResult::Otherwise => Answer::Other(PeerResult::Otherwise),
        };
        self.unanswered -= 1;
    }

    /// Sets the digest of the members that this node sees. All later frames carry it.
    pub fn set_view(&mut self, digest: u32) {
        self.view = digest;
    }

    /// Appends the results that can leave, or the answer to a heartbeat. Call it only when the
    /// bytes of the former call have left. Then the bytes owed to a peer that does not read are
    /// bounded.
    pub fn write(&mut self, now: Now, out: &mut Vec<u8>) {
        while self.owes_heartbeat || self.has_answer() {
            let (begins, first) = (begin_frame(out), self.first);
            let count = self.write_results(out);
            end_frame(out, begins, FrameKind::Results, count, first, now, self.view);
            self.owes_heartbeat = false;
        }
    }

    /// This node's monotonic clock minus the peer's in ns, see `ClockOffset`. `None` before the
    /// first frame.
    pub fn clock_offset_ns(&self) -> Option<i64> {
        self.clock_offset.offset_ns()
    }

    /// How many messages have no result yet.
    pub fn unanswered(&self) -> usize {
        self.unanswered
    }

    fn has_answer(&self) -> bool {
        self.messages.front().is_some_and(|message| message.answer.result().is_some())
    }

    /// Moves results to the body of a frame. Returns how many.
    fn write_results(&mut self, out: &mut Vec<u8>) -> u16 {
        let begins = out.len();
        let (mut count, mut held) = (0, 0);
        while count < u16::MAX
            && let Some(message) = self.messages.front()
            && let Some(result) = message.answer.result()
        {
            if count > 0 && out.len() - begins + result.encoded_bytes() > FRAME_CUT_BYTES {
                break;
            }
            if result == PeerResult::Held {
                held += 1;
            } else {
                write_leb128(held, out);
                held = 0;
                result.encode(out);
            }
            if let PeerResult::Found(copy) = result {
                self.found_bytes -= copy.len();
            }
            self.message_bytes -= message.bytes;
            self.messages.pop_front();
            self.first = self.first.wrapping_add(1);
            count += 1;
        }
        if held > 0 {
            write_leb128(held, out);
        }
        if self.messages.is_empty() {
            self.messages.shrink_to(KEPT_MESSAGES_MAX);
        }
        count
    }

    fn messages(
        &mut self,
        now: MonoNs,
        frame: &Frame<'_>,
        message: &mut impl FnMut(u32, MonoNs, &[u8]),
    ) -> Result<(), LinkError> {
        const MALFORMED: LinkError = LinkError::Protocol("malformed messages");
        if frame.kind != FrameKind::Messages {
            return Err(LinkError::Protocol("results on a connection that the peer dialled"));
        }
        let mut number = self.first.wrapping_add(self.messages.len() as u32);
        if frame.first != number {
            return Err(LinkError::Protocol("messages out of order"));
        }
        self.clock_offset.see(now, frame.sent_at);
        self.owes_heartbeat |= frame.count == 0;
        let mut rest = frame.body;
        for _ in 0..frame.count {
            let bytes = read_leb128(&mut rest).ok_or(MALFORMED)?;
            let bytes = usize::try_from(bytes).map_err(|_| MALFORMED)?;
            let (taken, behind) = rest.split_at_checked(bytes).ok_or(MALFORMED)?;
            rest = behind;
            let has_room = self.message_bytes + bytes <= WINDOW_BYTES_MAX
                && self.messages.len() < WINDOW_MESSAGES_MAX;
            if !has_room && !self.messages.is_empty() {
                return Err(LinkError::Protocol("more messages without a result than are allowed"));
            }
            self.messages.push_back(Message { bytes, answer: Answer::None });
            self.message_bytes += bytes;
            self.unanswered += 1;
            message(number, frame.sent_at, taken);
            number = number.wrapping_add(1);
        }
        if rest.is_empty() { Ok(()) } else { Err(MALFORMED) }
    }

    /// Bytes of memory that the peer has caused: an incomplete frame, messages whose results are
    /// not written, and copies that the peer asked for.
    pub fn held_bytes(&self) -> usize {
        let messages_bytes = self.messages.len() * size_of::<Message>();
        self.reader.held_bytes() + messages_bytes + self.found_bytes
    }
}
