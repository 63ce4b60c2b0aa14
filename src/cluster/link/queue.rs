//! Messages in the order in which they are sent, with their purposes. Messages lie in blocks of
//! bytes as they lie in the body of a frame, each behind its length. A message is copied once when
//! it comes and once when it leaves. Nothing moves when the queue grows.

// May panic: assertions 2, expectations 3, indices 13.
// Why it does not: found 9, encoded 1, ordered 8.

use std::collections::VecDeque;

use crate::wire::leb128::{leb128_bytes, read_leb128, write_leb128};

/// Bytes at which a block ends. A longer message has a block of its own.
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Number of messages at which a block ends.
const BLOCK_MESSAGES_MAX: usize = 1 << 12;
/// Most bytes of an empty block that is kept: doubling gives a full block at most this capacity.
const KEPT_BYTES_MAX: usize = 2 * BLOCK_BYTES_MAX;

/// A queue of messages. The first [`Queue::sent`] messages are under way.
#[derive(Debug)]
pub(super) struct Queue<P> {
    blocks: VecDeque<Block<P>>,
    /// An emptied block, kept for reuse.
    spare: Option<Block<P>>,
    len: usize,
    cost_bytes: usize,
    sent: usize,
    sent_bytes: usize,
    /// Where the first message that is not under way lies or will lie: the block, and the byte in
    /// it.
    unsent: (usize, usize),
}

#[derive(Debug)]
struct Block<P> {
    bytes: Vec<u8>,
    purposes: Vec<P>,
    /// How many messages of the block are no longer in the queue; `popped_bytes` are their bytes.
    popped: usize,
    popped_bytes: usize,
}

/// How much [`Queue::take`] may take at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    /// Most bytes, lengths included.
    pub bytes_max: usize,
    /// Most messages. A frame holds at most `u16::MAX`.
    pub messages_max: usize,
    /// Bytes beyond which a batch that is not empty takes no further message.
    pub cut_bytes: usize,
    /// Whether the first message is taken although it exceeds `bytes_max`.
    pub takes_any: bool,
}

impl<P: Copy> Queue<P> {
    pub fn new() -> Self {
        Self {
            blocks: VecDeque::new(),
            spare: None,
            len: 0,
            cost_bytes: 0,
            sent: 0,
            sent_bytes: 0,
            unsent: (0, 0),
        }
    }

    /// What a message of `message_bytes` bytes counts for: its length, its bytes and its purpose.
    pub fn cost_bytes_of(message_bytes: usize) -> usize {
        leb128_bytes(message_bytes as u64) + message_bytes + size_of::<P>()
    }

    /// What all messages together count for.
    pub fn cost_bytes(&self) -> usize {
        self.cost_bytes
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many messages are under way.
    pub fn sent(&self) -> usize {
        self.sent
    }

    /// Bytes under way, lengths included.
    pub fn sent_bytes(&self) -> usize {
        self.sent_bytes
    }

    pub fn push(&mut self, message: &[u8], purpose: P) {
        let bytes = leb128_bytes(message.len() as u64) + message.len();
        if !self.blocks.back().is_some_and(|block| block.has_room(bytes)) {
            self.blocks.push_back(self.spare.take().unwrap_or_else(Block::new));
        }
        let block = self.blocks.back_mut().expect("one was added if there was none");
        write_leb128(message.len() as u64, &mut block.bytes);
        block.bytes.extend_from_slice(message);
        block.purposes.push(purpose);
        self.len += 1;
        self.cost_bytes += Self::cost_bytes_of(message.len());
    }

    /// Moves all messages of `other` to the end. No message of `other` may be under way.
    pub fn append(&mut self, other: &mut Queue<P>) {
        assert!(other.sent == 0, "what is under way stays where it is");
        for block in &other.blocks {
            let mut rest = &block.bytes[block.popped_bytes..];
            for &purpose in &block.purposes[block.popped..] {
                let (bytes, message) = first_of(rest);
                self.push(message, purpose);
                rest = &rest[bytes..];
            }
        }
        other.reset();
    }

    /// Marks messages as under way. Returns how many, and their bytes as the body of a frame has
    /// them. `None` when there is none to take, or when `batch` allows none.
    pub fn take(&mut self, batch: Batch) -> Option<(u16, &[u8])> {
        let (block, begins) = self.unsent;
        let is_at_end = self.blocks.get(block)?.bytes.len() == begins;
        let (block, begins) = if is_at_end { (block + 1, 0) } else { (block, begins) };
        let bytes = &self.blocks.get(block)?.bytes[begins..];
        let messages_max = batch.messages_max.min(u16::MAX.into());
        let (mut count, mut taken) = (0, 0);
        while count < messages_max && taken < bytes.len() {
            let end = taken + first_of(&bytes[taken..]).0;
            let is_first_of_any = count == 0 && batch.takes_any;
            if (end > batch.bytes_max && !is_first_of_any) || (end > batch.cut_bytes && count > 0) {
                break;
            }
            taken = end;
            count += 1;
        }
        if count == 0 {
            return None;
        }
        self.unsent = (block, begins + taken);
        self.sent += count;
        self.sent_bytes += taken;
        Some((count as u16, &bytes[..taken]))
    }

    /// Returns the oldest message and its purpose. Panics when the queue is empty.
    pub fn first(&self) -> (P, &[u8]) {
        let block = &self.blocks[0];
        (block.purposes[block.popped], first_of(&block.bytes[block.popped_bytes..]).1)
    }

    /// Removes the oldest message. Panics when it is not under way.
    pub fn pop(&mut self) {
        assert!(self.sent > 0, "only what was sent has a result");
        let block = &mut self.blocks[0];
        let bytes = first_of(&block.bytes[block.popped_bytes..]).0;
        block.popped += 1;
        block.popped_bytes += bytes;
        self.len -= 1;
        self.cost_bytes -= bytes + size_of::<P>();
        self.sent -= 1;
        self.sent_bytes -= bytes;
        if block.popped == block.purposes.len() {
            self.drop_first_block();
        }
    }

    /// Marks all messages as not under way.
    pub fn rewind(&mut self) {
        self.sent = 0;
        self.sent_bytes = 0;
        self.unsent = (0, self.blocks.front().map_or(0, |block| block.popped_bytes));
    }

    /// Removes all messages and calls `told` with each purpose, the oldest first.
    pub fn clear(&mut self, told: &mut impl FnMut(P)) {
        for block in &self.blocks {
            block.purposes[block.popped..].iter().for_each(|&purpose| told(purpose));
        }
        self.reset();
    }

    fn reset(&mut self) {
        *self = Self { spare: self.spare.take(), ..Self::new() };
    }

    fn drop_first_block(&mut self) {
        let mut block = self.blocks.pop_front().expect("a message was popped from it");
        self.unsent = match self.unsent {
            (0, _) => (0, 0),
            (block, at) => (block - 1, at),
        };
        if block.bytes.capacity() <= KEPT_BYTES_MAX {
            block.bytes.clear();
            block.purposes.clear();
            (block.popped, block.popped_bytes) = (0, 0);
            // A queue that runs empty all the time goes on in the same block.
            if self.blocks.is_empty() {
                self.blocks.push_back(block);
            } else {
                self.spare = Some(block);
            }
        }
    }

    /// Bytes of memory that all blocks hold.
    #[cfg(test)]
    pub fn held_bytes(&self) -> usize {
        let of_block =
            |block: &Block<P>| block.bytes.capacity() + block.purposes.capacity() * size_of::<P>();
        self.blocks.iter().chain(&self.spare).map(of_block).sum()
    }
}

impl<P> Block<P> {
    fn new() -> Self {
        Self { bytes: Vec::new(), purposes: Vec::new(), popped: 0, popped_bytes: 0 }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.bytes.is_empty()
            || self.bytes.len() + bytes <= BLOCK_BYTES_MAX
                && self.purposes.len() < BLOCK_MESSAGES_MAX
    }
}

/// Returns the bytes that the first message of `bytes` takes with its length, and the message.
fn first_of(bytes: &[u8]) -> (usize, &[u8]) {
    let mut rest = bytes;
    let len = read_leb128(&mut rest).expect("a length was written before each message") as usize;
    (bytes.len() - rest.len() + len, &rest[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks_of(message_bytes: usize, messages: u32) -> Vec<usize> {
        let mut queue = Queue::new();
        (0..messages).for_each(|purpose| queue.push(&vec![1; message_bytes], purpose));
        queue.blocks.iter().map(|block| block.purposes.len()).collect()
    }

    #[test]
    fn a_block_is_filled_to_its_bounds_and_not_beyond() {
        let quarter_bytes = BLOCK_BYTES_MAX / 4;
        let beside_bytes = leb128_bytes(quarter_bytes as u64);
        assert_eq!(blocks_of(quarter_bytes - beside_bytes, 9), [4, 4, 1]);
        assert_eq!(blocks_of(quarter_bytes, 5), [3, 2]);
        assert_eq!(blocks_of(2 * BLOCK_BYTES_MAX, 2), [1, 1], "a block of its own");
        let messages_max = BLOCK_MESSAGES_MAX as u32;
        assert_eq!(blocks_of(1, messages_max + 1), [BLOCK_MESSAGES_MAX, 1]);
    }

    /// Each message has a block of its own.
    #[test]
    fn what_is_taken_next_lies_where_it_lay_when_blocks_before_it_have_gone() {
        let batch = Batch {
            bytes_max: usize::MAX,
            messages_max: 1,
            cut_bytes: usize::MAX,
            takes_any: true,
        };
        let message = |number: u8| vec![number; BLOCK_BYTES_MAX];
        let mut queue = Queue::new();
        (0..4).for_each(|number| queue.push(&message(number), number));
        let taken = |queue: &mut Queue<u8>| {
            queue.take(batch).map(|(count, body)| (count, first_of(body).1[0]))
        };
        assert_eq!(taken(&mut queue), Some((1, 0)));
        assert_eq!(taken(&mut queue), Some((1, 1)));
        assert_eq!(taken(&mut queue), Some((1, 2)));
        queue.pop();
        assert_eq!(queue.first(), (1, &message(1)[..]));
        assert_eq!(taken(&mut queue), Some((1, 3)));
        assert_eq!(taken(&mut queue), None);
        (1..4).for_each(|_| queue.pop());
        assert!(queue.is_empty());
        queue.push(&message(9), 9);
        assert_eq!(taken(&mut queue), Some((1, 9)));
    }

    #[test]
    fn a_block_is_kept_unless_a_long_message_has_made_it_large() {
        let batch = Batch {
            bytes_max: usize::MAX,
            messages_max: 1,
            cut_bytes: usize::MAX,
            takes_any: true,
        };
        for (message_bytes, is_kept) in [(100, true), (KEPT_BYTES_MAX + 1, false)] {
            let mut queue = Queue::new();
            queue.push(&vec![1; message_bytes], 0_u8);
            assert!(queue.take(batch).is_some());
            queue.pop();
            assert_eq!(queue.held_bytes() > 0, is_kept, "{message_bytes}");
        }
    }
}
