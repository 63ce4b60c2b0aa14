//! Wakes a ring from outside: from a sibling ring (MSG_RING), or from a thread without a ring
//! (eventfd).

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Address of a ring for its siblings. A wake to a ring that is gone is lost. If the descriptor was
/// reused, the wake reaches another ring once, so every ring must tolerate a
/// [`Completion::Woken`](super::Completion::Woken) without cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mailbox {
    pub(super) ring_fd: RawFd,
}

/// Wakes a ring from any thread without a ring (control, resolver). Cost of a wake: one write(2).
#[derive(Clone, Debug)]
pub struct Waker {
    event: Arc<File>,
}

impl Waker {
    pub(super) fn new() -> io::Result<Waker> {
        // SAFETY: eventfd takes no memory.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and no other code knows it.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Waker { event: Arc::new(File::from(event)) })
    }

    /// Makes [`Ring::turn`](super::Ring::turn) return with a
    /// [`Completion::Woken`](super::Completion::Woken). Several wakes before that turn may become
    /// one.
    pub fn wake(&self) {
        // The ring polls for edges and never reads, so the counter only grows. After 2^64 wakes the
        // counter would be full, and the write would fail. Nothing else can fail on an eventfd that
        // this handle keeps open.
        let _ = (&*self.event).write(&1_u64.to_ne_bytes());
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}
