//! Receive buffers that all sockets of a ring share (a provided-buffer ring,
//! io_uring_register_buf_ring(3)).
//!
//! One mapping holds the ring of entries, which hands buffers to the kernel, and behind the entries
//! the buffers. At any time a buffer belongs either to the kernel (published, not yet in a
//! completion) or to this process (lent, from its completion until the next turn). This file reads
//! and writes lent buffers only.

// May panic: assertions 7, indices 3.
// Why it does not: kernel 9, compiled 1.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use super::mapping::{Mapping, Pages};

/// Number of a ring's only buffer group.
pub(super) const GROUP: u16 = 0;
/// Alignment of the mapping's parts. The ring of entries must begin on a page, and the buffers
/// should. No page of the supported machines is larger.
const ALIGNMENT_BYTES: usize = 64 << 10;
/// Most entries that the kernel takes (io_uring_register_buf_ring(3)).
const BUFFERS_MAX: u16 = 1 << 15;

/// One entry as the kernel reads it (struct io_uring_buf). The last field of entry 0 is the ring's
/// tail.
#[repr(C)]
struct Entry {
    address: u64,
    length: u32,
    buffer: u16,
    tail: u16,
}

const _: () = assert!(size_of::<Entry>() == 16);

/// The mapping, and the owner of each buffer in it.
pub(super) struct BufferRing {
    mapping: Mapping,
    entries_bytes: usize,
    buffer_bytes: u32,
    buffers: u16,
    /// How many entries were published, modulo 2^16. The kernel's head follows this tail.
    tail: u16,
    /// Buffers that completions of the present turn brought, ignored completions included.
    lent: Vec<u16>,
    /// For each buffer the turn in which it was lent last; 0 while the kernel owns the buffer.
    lent_in_turn: Vec<u64>,
}

impl BufferRing {
    /// Maps memory and publishes every buffer in it. The caller registers [`BufferRing::address`]
    /// with the kernel. `buffers` must be a power of two up to 32768, and `buffer_bytes` at least 1
    /// (asserted). Cost: all of the memory is taken from the kernel now, and no turn pays for it.
    pub(super) fn new(buffers: u16, buffer_bytes: u32) -> io::Result<BufferRing> {
        assert!(
            buffers.is_power_of_two() && buffers <= BUFFERS_MAX,
            "receive buffers must be a power of two up to {BUFFERS_MAX}, not {buffers}"
        );
        assert!(buffer_bytes > 0, "a receive buffer holds at least one byte");
        let entries_bytes =
            (usize::from(buffers) * size_of::<Entry>()).next_multiple_of(ALIGNMENT_BYTES);
        let mapping_bytes = entries_bytes + usize::from(buffers) * buffer_bytes as usize;
        let mapping = Mapping::new(mapping_bytes, Pages::Now)?;
        let mut ring = BufferRing {
            mapping,
            entries_bytes,
            buffer_bytes,
            buffers,
            tail: 0,
            lent: Vec::with_capacity(buffers.into()),
            lent_in_turn: vec![0; buffers.into()],
        };
        for buffer in 0..buffers {
            ring.publish(buffer);
        }
        ring.store_tail();
        Ok(ring)
    }

    /// Address of the ring of entries, to register for group [`GROUP`].
    pub(super) fn address(&self) -> u64 {
        self.mapping.address().as_ptr() as u64
    }

    /// How many buffers the ring has.
    pub(super) fn count(&self) -> u16 {
        self.buffers
    }

    /// Notes that a completion brought `buffer`. The buffer is lent until [`BufferRing::recycle`].
    pub(super) fn lend(&mut self, buffer: u16, turn: u64) {
        let owner = &mut self.lent_in_turn[usize::from(buffer)];
        assert!(*owner == 0, "the kernel gave buffer {buffer} twice");
        *owner = turn;
        self.lent.push(buffer);
    }

    /// Gives every lent buffer back to the kernel, with one release store for all of them.
    pub(super) fn recycle(&mut self) {
        if self.lent.is_empty() {
            return;
        }
        while let Some(buffer) = self.lent.pop() {
            self.lent_in_turn[usize::from(buffer)] = 0;
            self.publish(buffer);
        }
        self.store_tail();
    }

    /// The first `length` bytes of `buffer`. Panics unless the buffer was lent in `turn`.
    pub(super) fn bytes_mut(&mut self, buffer: u16, length: u32, turn: u64) -> &mut [u8] {
        assert!(
            self.lent_in_turn[usize::from(buffer)] == turn && turn != 0,
            "received bytes are readable only until the next turn"
        );
        assert!(length <= self.buffer_bytes, "the kernel wrote beyond a buffer");
        let address = self.buffer_address(buffer);
        // SAFETY: the buffer lies within the mapping, is initialised (anonymous pages are zero) and
        // is lent (asserted above), so the kernel does not touch it before `recycle`, which needs
        // the `&mut self` that the slice holds.
        unsafe { std::slice::from_raw_parts_mut(address, length as usize) }
    }

    /// Gives the mapping up without unmapping it, because the kernel may still write to it.
    pub(super) fn leak(&mut self) {
        self.mapping.leak();
    }

    fn buffer_address(&self, buffer: u16) -> *mut u8 {
        assert!(buffer < self.buffers, "buffer {buffer} of {}", self.buffers);
        let offset = self.entries_bytes + usize::from(buffer) * self.buffer_bytes as usize;
        // SAFETY: `offset` lies within the mapping, because `buffer` is below the count for which
        // the mapping was sized.
        unsafe { self.mapping.address().as_ptr().add(offset) }
    }

    /// Writes the entry of `buffer` behind the last entry. The kernel sees the entry after
    /// [`BufferRing::store_tail`].
    fn publish(&mut self, buffer: u16) {
        let address = self.buffer_address(buffer) as u64;
        let place = usize::from(self.tail & (self.buffers - 1));
        let entry = self.mapping.address().as_ptr().cast::<Entry>();
        // SAFETY: `place` is below the number of entries with which the mapping begins. The kernel
        // does not read this entry before the tail passes it. At most `buffers` entries are
        // published at once, because a buffer is published only when it is new or lent. The tail
        // field is left alone: the kernel reads it in entry 0 at any time.
        unsafe {
            let entry = entry.add(place);
            (&raw mut (*entry).address).write(address);
            (&raw mut (*entry).length).write(self.buffer_bytes);
            (&raw mut (*entry).buffer).write(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    fn store_tail(&self) {
        let first = self.mapping.address().as_ptr().cast::<Entry>();
        // SAFETY: the tail lies in entry 0 at the start of the mapping, aligned to 2 bytes. Only
        // this thread (atomically, here) and the kernel access it.
        let tail = unsafe { AtomicU16::from_ptr(&raw mut (*first).tail) };
        tail.store(self.tail, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_buffers_lent_in_this_turn_are_readable() {
        let mut ring = BufferRing::new(2, 16).expect("32 bytes can be mapped");
        ring.lend(1, 7);
        assert_eq!(ring.bytes_mut(1, 16, 7).len(), 16);
        ring.recycle();
        let stale = std::panic::AssertUnwindSafe(|| ring.bytes_mut(1, 16, 7).len());
        assert!(std::panic::catch_unwind(stale).is_err());
    }

    #[test]
    #[should_panic(expected = "gave buffer 0 twice")]
    fn a_buffer_cannot_be_lent_twice() {
        let mut ring = BufferRing::new(1, 16).expect("16 bytes can be mapped");
        ring.lend(0, 1);
        ring.lend(0, 1);
    }
}
