//! Buffers for sends, used again. The kernel gives a buffer back when its bytes have left.

/// Emptied buffers for one kind of connections.
#[derive(Debug)]
pub struct BufferPool {
    buffers: Vec<Vec<u8>>,
    buffers_max: usize,
    kept_bytes_max: usize,
}

impl BufferPool {
    /// An empty pool. It keeps at most `buffers_max` buffers, each with at most `kept_bytes_max`
    /// bytes of memory. Other buffers go back to the allocator.
    pub const fn new(buffers_max: usize, kept_bytes_max: usize) -> Self {
        Self { buffers: Vec::new(), buffers_max, kept_bytes_max }
    }

    /// Returns an empty buffer: one that was given back, or a new one without memory.
    pub fn take(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    /// Empties a buffer and keeps it for [`BufferPool::take`], if the pool has room for it.
    pub fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.buffers.len() < self.buffers_max && buffer.capacity() <= self.kept_bytes_max {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_keeps_few_small_buffers_and_forgets_what_they_held() {
        let mut pool = BufferPool::new(2, 64);
        pool.give_back(vec![1; 10]);
        pool.give_back(Vec::with_capacity(65));
        pool.give_back(vec![2; 64]);
        pool.give_back(vec![3; 10]);
        let capacities = [pool.take(), pool.take(), pool.take()].map(|buffer| {
            assert!(buffer.is_empty());
            buffer.capacity()
        });
        assert_eq!(capacities, [64, 10, 0]);
    }
}
