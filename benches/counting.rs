//! An allocator that counts what the present thread asks of it, for benches that count work beside
//! time. The product's allocator, mimalloc, does everything. Every bench that counts includes this
//! file.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

/// What was asked of the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    /// Calls that returned memory. A reallocation is one call.
    pub allocations: u64,
    /// Bytes that these calls returned.
    pub bytes: u64,
    /// Bytes that were given back.
    pub freed_bytes: u64,
}

impl Asked {
    /// What this thread has asked since it began.
    pub fn by_this_thread() -> Self {
        ASKED.get()
    }

    /// What this thread has asked since an earlier reading.
    pub fn since(earlier: Self) -> Self {
        let now = Self::by_this_thread();
        Self {
            allocations: now.allocations - earlier.allocations,
            bytes: now.bytes - earlier.bytes,
            freed_bytes: now.freed_bytes - earlier.freed_bytes,
        }
    }
}

thread_local! {
    // Constants initialise it and it has no destructor. So a reading allocates nothing, at any
    // moment of a thread's life.
    static ASKED: Cell<Asked> =
        const { Cell::new(Asked { allocations: 0, bytes: 0, freed_bytes: 0 }) };
}

fn count(allocated: usize, freed: usize) {
    let before = ASKED.get();
    ASKED.set(Asked {
        allocations: before.allocations + u64::from(allocated > 0),
        bytes: before.bytes + allocated as u64,
        freed_bytes: before.freed_bytes + freed as u64,
    });
}

// SAFETY: every call is handed to mimalloc with its arguments unchanged, so mimalloc's guarantees
// hold here. Counting writes to this thread's own cell, which neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        count(new_bytes, layout.size());
        // SAFETY: `block` came from mimalloc with this layout, as every block here does. The rest
        // is the caller's contract.
        unsafe { MiMalloc.realloc(block, layout, new_bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: `block` came from mimalloc with this layout, as every block here does.
        unsafe { MiMalloc.dealloc(block, layout) }
    }
}
