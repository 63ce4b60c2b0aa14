//! Where chunks come from, and where empty ones go. Another thread has taken chunks from the kernel
//! before they are needed, so that growth pays no page fault on a core, and gives the kernel the
//! memory of those that came back and are not needed. That thread decides how many are ready.

// May panic: assertions 2.
// Why it does not: ordered 2.

use std::sync::Arc;

use crossbeam_queue::{ArrayQueue, SegQueue};

/// Where a structure takes its chunks from: room for a number of `T`, without contents. No chunk
/// goes to the allocator while a thread tends the source: the allocator keeps a page of each in
/// memory, and lends none to another kind of chunk.
#[derive(Debug)]
pub struct Source<T> {
    /// Chunks that are in memory.
    ready: ArrayQueue<Vec<T>>,
    /// Chunks that came back when enough were ready. They are in memory still.
    returned: SegQueue<Vec<T>>,
    /// Chunks whose memory the kernel has.
    empty: SegQueue<Vec<T>>,
    /// Memory of other lengths that is to go back to the kernel and to the allocator.
    given_up: SegQueue<Vec<T>>,
    chunk_len: usize,
    is_tended: bool,
}

impl<T> Source<T> {
    /// A source of chunks with room for `chunk_len` elements, which a thread tends. At most
    /// `ready_max` (at least 1) are ready.
    pub fn new(chunk_len: usize, ready_max: usize) -> Arc<Self> {
        Self::made(chunk_len, ready_max, true)
    }

    /// A source that nobody tends: every chunk comes from the allocator and goes back there.
    pub fn none(chunk_len: usize) -> Arc<Self> {
        Self::made(chunk_len, 1, false)
    }

    fn made(chunk_len: usize, ready_max: usize, is_tended: bool) -> Arc<Self> {
        Arc::new(Self {
            ready: ArrayQueue::new(ready_max.max(1)),
            returned: SegQueue::new(),
            empty: SegQueue::new(),
            given_up: SegQueue::new(),
            chunk_len,
            is_tended,
        })
    }

    /// An empty chunk: one that is in memory, or else one that was, or one of the allocator's.
    /// Never waits.
    pub fn take(&self) -> Vec<T> {
        let held = self.ready.pop().or_else(|| self.returned.pop()).or_else(|| self.empty.pop());
        held.unwrap_or_else(|| Vec::with_capacity(self.chunk_len))
    }

    /// Takes back a chunk of [`take`](Self::take), without contents. Never waits.
    pub fn give_back(&self, chunk: Vec<T>) {
        assert!(chunk.is_empty() && chunk.capacity() > 0, "a chunk comes back without contents");
        if self.is_tended
            && let Err(chunk) = self.ready.push(chunk)
        {
            self.returned.push(chunk);
        }
    }

    /// Takes memory of any length whose contents are not needed any more.
    pub fn give_up(&self, mut memory: Vec<T>) {
        if self.is_tended {
            memory.clear();
            self.given_up.push(memory);
        }
    }

    /// How many chunks are ready.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_len * size_of::<T>()
    }

    /// Adds a chunk that `touch` has brought into memory. False: enough chunks are ready.
    pub fn add(&self, touch: impl FnOnce(&mut Vec<T>)) -> bool {
        if self.ready.is_full() {
            return false;
        }
        let empty = self.empty.pop();
        let mut chunk = empty.unwrap_or_else(|| Vec::with_capacity(self.chunk_len));
        touch(&mut chunk);
        assert!(chunk.is_empty(), "a chunk is handed over without contents");
        self.ready.push(chunk).is_ok()
    }

    /// Gives the kernel, by `discard`, the memory of at most `surplus` of the ready chunks, and of
    /// what came back beyond them, until `bytes_max` bytes were discarded. True: there is no more.
    pub fn discard(
        &self,
        surplus: usize,
        bytes_max: usize,
        mut discard: impl FnMut(&mut Vec<T>),
    ) -> bool {
        let mut bytes = 0;
        while let Some(mut memory) = self.given_up.pop() {
            discard(&mut memory);
            bytes += memory.capacity() * size_of::<T>();
            if bytes >= bytes_max {
                return false;
            }
        }
        let ready = (0..surplus).map_while(|_| self.ready.pop());
        for mut chunk in std::iter::from_fn(|| self.returned.pop()).chain(ready) {
            discard(&mut chunk);
            bytes += self.chunk_bytes();
            self.empty.push(chunk);
            if bytes >= bytes_max {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_chunks_come_first_and_are_bounded() {
        let source = Source::<u64>::new(8, 2);
        let touched = [source.add(|_| ()), source.add(|_| ()), source.add(|_| ())];
        assert_eq!((touched, source.ready(), source.chunk_bytes()), ([true, true, false], 2, 64));
        let ready = source.take();
        assert_eq!((ready.capacity(), ready.len(), source.ready()), (8, 0, 1));
        assert_eq!(source.take().capacity(), 8);
        assert_eq!((source.ready(), source.take().capacity()), (0, 8));
    }

    #[test]
    fn what_comes_back_is_given_out_again_or_its_memory_goes_to_the_kernel() {
        let source = Source::<u64>::new(8, 1);
        let addresses = |chunks: &[Vec<u64>]| chunks.iter().map(Vec::as_ptr).collect::<Vec<_>>();
        let chunks: Vec<_> = (0..3).map(|_| source.take()).collect();
        let first = addresses(&chunks);
        chunks.into_iter().for_each(|chunk| source.give_back(chunk));
        source.give_up(vec![7; 20]);
        let (mut discarded, mut lens) = (Vec::new(), Vec::new());
        let mut discard = |surplus, bytes_max| {
            source.discard(surplus, bytes_max, |memory| {
                discarded.push(memory.as_ptr());
                lens.push(memory.capacity());
            })
        };
        assert!(!discard(0, 20 * 8), "so many bytes at a time");
        assert!(discard(0, 1 << 20));
        assert_eq!((lens, &discarded[1..]), (vec![20, 8, 8], &first[1..]));
        assert_eq!(source.ready(), 1, "the ready one is no surplus");
        let again: Vec<_> = (0..3).map(|_| source.take()).collect();
        assert_eq!(addresses(&again), first, "none is another one of the allocator's");
    }
}
