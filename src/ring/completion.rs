//! The words in which a ring tells what happened: plain values, which do not touch the kernel.

use crate::base::time::MonoNs;

/// A kernel error number (positive, as in errno.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// The number in `error`; `EIO` if the error did not come from the kernel.
    pub(super) fn of(error: &std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }

    /// Whether this machine or process lacks what the call needs, so that the failure says nothing
    /// of the other end: descriptors, memory, or room in a table of the kernel. A lack of local
    /// ports is told apart by [`Errno::is_without_address`].
    pub fn is_lack(self) -> bool {
        matches!(self.0, libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN)
    }

    /// Whether no local address and port is left for a connection. To an address that was reached
    /// before that is a lack of ports. Otherwise this machine may have no address of that kind.
    pub fn is_without_address(self) -> bool {
        self.0 == libc::EADDRNOTAVAIL
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

/// Names a socket of a ring. The ring recognises the id of a closed socket and ignores it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SocketId {
    /// Place of the socket in the ring's table.
    pub index: u32,
    /// How many sockets the place had before this socket; wraps.
    pub generation: u32,
}

/// Received bytes in a buffer that is lent until the next [`Ring::turn`](super::Ring::turn).
#[derive(Debug)]
pub struct Received {
    /// Number of the receive buffer.
    pub(super) buffer: u16,
    /// How many bytes of the buffer were received.
    pub(super) length: u32,
    /// The turn in which the buffer was lent. The bytes can be read in this turn only.
    pub(super) turn: u64,
}

impl Received {
    /// How many bytes were received.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.length as usize
    }
}

/// What happened on a ring. `owner` is the number given to
/// [`Ring::set_owner`](super::Ring::set_owner), [`Ring::connect`](super::Ring::connect) or
/// [`Ring::listen_as`](super::Ring::listen_as).
#[derive(Debug)]
pub enum Completion {
    /// A client connected. The caller sets an owner and then calls
    /// [`Ring::receive`](super::Ring::receive).
    Accepted {
        /// The new socket.
        socket: SocketId,
        /// The listener's owner. The socket has the same owner until
        /// [`Ring::set_owner`](super::Ring::set_owner).
        owner: u64,
    },
    /// An accept failed (EMFILE, ENFILE, ENOMEM…). The ring accepts again after a pause, without a
    /// call.
    AcceptFailed(Errno),
    /// An outgoing connection is established or has failed. The socket of a failed connection is
    /// closed.
    Connected {
        /// The socket that [`Ring::connect`](super::Ring::connect) returned.
        socket: SocketId,
        /// The owner of the socket.
        owner: u64,
        /// `Err`: the connection failed, for this reason.
        result: Result<(), Errno>,
    },
    /// Bytes arrived. Read them with [`Ring::bytes_mut`](super::Ring::bytes_mut) before the next
    /// turn.
    Received {
        /// The socket on which bytes arrived.
        socket: SocketId,
        /// The owner of the socket.
        owner: u64,
        /// The lent bytes.
        bytes: Received,
    },
    /// The other end will send nothing more, or the connection broke. The caller must close the
    /// socket.
    Ended {
        /// The socket that ended.
        socket: SocketId,
        /// The owner of the socket.
        owner: u64,
        /// Why the connection broke; `None`: the other end finished its stream.
        error: Option<Errno>,
    },
    /// A send ended: every byte was sent, or the connection broke.
    Sent {
        /// The socket that sent.
        socket: SocketId,
        /// The owner of the socket.
        owner: u64,
        /// The buffer given to [`Ring::send`](super::Ring::send), cleared for reuse.
        buffer: Vec<u8>,
        /// `Err`: the connection broke before every byte was sent.
        result: Result<(), Errno>,
    },
    /// A durable write ended. Every [`Ring::write_durably`](super::Ring::write_durably) brings
    /// exactly one.
    Written {
        /// The place of the file that was written to.
        place: u32,
        /// `Ok`: the disk has every byte. `Err`: it may have any part of the bytes.
        result: Result<(), Errno>,
    },
    /// A sibling ring or a [`Waker`](super::Waker) woke this ring. Comes once per turn, however
    /// many woke the ring.
    Woken,
}

impl Completion {
    /// The owner of the socket or listener; `None`: the completion belongs to the whole ring.
    pub fn owner(&self) -> Option<u64> {
        match self {
            Completion::Accepted { owner, .. }
            | Completion::Connected { owner, .. }
            | Completion::Received { owner, .. }
            | Completion::Ended { owner, .. }
            | Completion::Sent { owner, .. } => Some(*owner),
            Completion::AcceptFailed(_) | Completion::Written { .. } | Completion::Woken => None,
        }
    }
}

/// How long [`Ring::turn`](super::Ring::turn) may wait when nothing has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Submit and look for completions; never sleep.
    Poll,
    /// Sleep until an event or this instant of the monotonic clock.
    Until(MonoNs),
    /// Sleep until an event.
    Event,
}

impl Wait {
    /// Whether there is nothing left to wait for at `now`, if nothing happens.
    pub fn is_over(self, now: MonoNs) -> bool {
        match self {
            Wait::Poll => true,
            Wait::Until(instant) => instant <= now,
            Wait::Event => false,
        }
    }

    /// The shorter of this wait and a wait until `deadline`.
    #[must_use]
    pub fn at_most(self, deadline: MonoNs) -> Self {
        match self {
            Wait::Poll => Wait::Poll,
            Wait::Until(earlier) => Wait::Until(earlier.min(deadline)),
            Wait::Event => Wait::Until(deadline),
        }
    }
}
