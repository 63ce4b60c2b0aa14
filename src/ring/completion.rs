//! The words in which a ring tells what happened. Plain values: nothing here touches the kernel.

use crate::base::time::MonoNs;

/// A kernel error number (positive, as in errno.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// The number in `error`; `EIO` for an error that did not come from the kernel.
    pub(super) fn of(error: &std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

/// A socket owned by a ring. Stale ids (closed, reused) are recognised and ignored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SocketId {
    /// Place in the ring's table.
    pub index: u32,
    /// How often that place was reused.
    pub generation: u32,
}

/// Bytes received, lent until the next [`Ring::turn`](super::Ring::turn).
#[derive(Debug)]
pub struct Received {
    /// Which receive buffer.
    pub(super) buffer: u16,
    /// How many bytes of it.
    pub(super) length: u32,
    /// The turn in which it was lent; in no other is it readable.
    pub(super) turn: u64,
}

impl Received {
    /// How many bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.length as usize
    }
}

/// What happened. `owner` is the number given with [`Ring::set_owner`](super::Ring::set_owner),
/// [`Ring::connect`](super::Ring::connect) or [`Ring::listen_as`](super::Ring::listen_as).
#[derive(Debug)]
pub enum Completion {
    /// A client connected; give it an owner, then [`Ring::receive`](super::Ring::receive).
    Accepted {
        /// The new socket.
        socket: SocketId,
        /// The listener's owner, for the time being also the socket's.
        owner: u64,
    },
    /// The listener failed once (EMFILE, ENFILE, ENOMEM…); it is armed again after a pause by
    /// itself.
    AcceptFailed(Errno),
    /// An outgoing connection stands, or failed (then the socket is closed already).
    Connected {
        /// The socket that [`Ring::connect`](super::Ring::connect) returned.
        socket: SocketId,
        /// Its owner.
        owner: u64,
        /// How it ended.
        result: Result<(), Errno>,
    },
    /// Bytes arrived; read them with [`Ring::bytes_mut`](super::Ring::bytes_mut) before the next
    /// turn.
    Received {
        /// The socket.
        socket: SocketId,
        /// Its owner.
        owner: u64,
        /// The bytes.
        bytes: Received,
    },
    /// The peer will send nothing more (`None`), or the connection broke. The socket is still to be
    /// closed.
    Ended {
        /// The socket.
        socket: SocketId,
        /// Its owner.
        owner: u64,
        /// The error, if it broke.
        error: Option<Errno>,
    },
    /// A send ended: everything was sent, or the connection broke. The buffer comes back for reuse,
    /// cleared.
    Sent {
        /// The socket.
        socket: SocketId,
        /// Its owner.
        owner: u64,
        /// The buffer given to [`Ring::send`](super::Ring::send), cleared.
        buffer: Vec<u8>,
        /// `Err` when the connection broke before all was sent.
        result: Result<(), Errno>,
    },
    /// A sibling ring or a [`Waker`](super::Waker) woke this one; once per turn however many did.
    Woken,
}

impl Completion {
    /// Whose it is; `None`: the whole ring's.
    pub fn owner(&self) -> Option<u64> {
        match self {
            Completion::Accepted { owner, .. }
            | Completion::Connected { owner, .. }
            | Completion::Received { owner, .. }
            | Completion::Ended { owner, .. }
            | Completion::Sent { owner, .. } => Some(*owner),
            Completion::AcceptFailed(_) | Completion::Woken => None,
        }
    }
}

/// How long [`Ring::turn`](super::Ring::turn) may wait when nothing has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Submit and look, never sleep.
    Poll,
    /// Sleep until an event or this instant of the monotonic clock.
    Until(MonoNs),
    /// Sleep until an event.
    Event,
}

impl Wait {
    /// The same, but no longer than until `deadline`.
    #[must_use]
    pub fn at_most(self, deadline: MonoNs) -> Self {
        match self {
            Wait::Poll => Wait::Poll,
            Wait::Until(earlier) => Wait::Until(earlier.min(deadline)),
            Wait::Event => Wait::Until(deadline),
        }
    }
}
