//! An allocator that counts, for benches that print allocations beside time. Benches only: never
//! part of the service.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting each allocation and each growth per thread.
pub struct Counting;

// SAFETY: every call goes to `System` with the arguments it came with, so its guarantees are ours;
// the counter is a thread-local `Cell` without a destructor, which itself never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` with this layout, through `alloc` or `realloc`
        // above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: `pointer` came from `System` with this layout, through `alloc` or `realloc`
        // above.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

/// Allocations that `work` makes on this thread.
pub fn allocations_of(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}
