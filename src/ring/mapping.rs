//! Memory that the kernel maps for this process, page by page, and that no allocator knows.

// May panic: expectations 1.
// Why it does not: kernel 1.

use std::io;
use std::ptr::{self, NonNull};
use std::slice;

/// Anonymous memory, initialised to zeros. It begins on a page.
pub(super) struct Mapping {
    address: NonNull<u8>,
    /// 0: the memory was given up without being unmapped.
    bytes: usize,
}

/// When the kernel provides the pages of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pages {
    /// Now, all of them.
    Now,
    /// Each at its first use.
    AtFirstUse,
}

impl Mapping {
    /// Maps `bytes`, at least 1. Error: there is no memory, or a limit of the process forbids it.
    pub(super) fn new(bytes: usize, pages: Pages) -> io::Result<Mapping> {
        let populate = if pages == Pages::Now { libc::MAP_POPULATE } else { 0 };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | populate;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice overlaps nothing.
        // The value made below owns the mapping, and its drop unmaps it.
        let address = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast()).expect("mmap never maps address 0 unasked");
        Ok(Mapping { address, bytes })
    }

    /// Where the memory begins.
    pub(super) fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Gives the memory up without unmapping it, because the kernel may still use it.
    pub(super) fn leak(&mut self) {
        self.bytes = 0;
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        // SAFETY: `new` made the mapping, and this drop unmaps it once. Whoever gave the memory to
        // the kernel keeps this value until the kernel has done with it, or leaks the memory.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

/// Pages that this process alone writes to. The kernel reads them at most.
pub(super) struct PageBytes {
    mapping: Mapping,
}

impl PageBytes {
    /// Maps `bytes` zeros, at least 1, and takes their memory now. Error: as [`Mapping::new`].
    pub(super) fn new(bytes: usize) -> io::Result<PageBytes> {
        Mapping::new(bytes, Pages::Now).map(|mapping| PageBytes { mapping })
    }

    /// All of the bytes; none after [`PageBytes::leak`].
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is mapped as long as this value lives, and initialised. Only
        // `bytes_mut` lets it be changed, which needs this value to be borrowed by nobody else.
        unsafe { slice::from_raw_parts(self.mapping.address.as_ptr(), self.mapping.bytes) }
    }

    /// Like [`PageBytes::bytes`], to be changed.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and this value is borrowed by the caller alone.
        unsafe { slice::from_raw_parts_mut(self.mapping.address.as_ptr(), self.mapping.bytes) }
    }

    /// Gives the memory up without unmapping it, because the kernel may still read it.
    pub(super) fn leak(&mut self) {
        self.mapping.leak();
    }
}
