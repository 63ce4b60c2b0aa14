//! Chunks that another thread has taken from the kernel, so that growth pays no page fault on a
//! core. The thread that fills a source decides how many chunks are ready.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

/// Where a structure takes its chunks from: room for a number of `T`, without contents.
#[derive(Debug)]
pub struct Source<T> {
    ready: ArrayQueue<Vec<T>>,
    chunk_len: usize,
}

impl<T> Source<T> {
    /// A source of chunks with room for `chunk_len` elements. At most `ready_max` (at least 1) are
    /// ready.
    pub fn new(chunk_len: usize, ready_max: usize) -> Arc<Self> {
        Arc::new(Self { ready: ArrayQueue::new(ready_max.max(1)), chunk_len })
    }

    /// A source that nobody fills: every chunk comes from the allocator.
    pub fn none(chunk_len: usize) -> Arc<Self> {
        Self::new(chunk_len, 1)
    }

    /// An empty chunk: one that is ready, or else one of the allocator's. Never waits.
    pub fn take(&self) -> Vec<T> {
        self.ready.pop().unwrap_or_else(|| Vec::with_capacity(self.chunk_len))
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
        let mut chunk = Vec::with_capacity(self.chunk_len);
        touch(&mut chunk);
        assert!(chunk.is_empty(), "a chunk is handed over without contents");
        self.ready.push(chunk).is_ok()
    }

    /// A ready chunk, back from the source.
    pub fn take_back(&self) -> Option<Vec<T>> {
        self.ready.pop()
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
        let ready = source.take_back().expect("two are ready");
        assert_eq!((ready.capacity(), ready.len(), source.ready()), (8, 0, 1));
        assert_eq!(source.take().capacity(), 8);
        assert_eq!((source.ready(), source.take().capacity()), (0, 8));
    }
}
