//! The ring itself.

use std::net::SocketAddr;

use super::Listener;
use crate::base::time::MonoNs;

/// What a ring is made with.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// Entries of the submission queue (a power of two); the completion queue gets four times as many.
    pub entries: u32,
    /// Receive buffers shared by all connections of this ring (a power of two).
    pub buffers: u16,
    /// Bytes of one receive buffer.
    pub buffer_bytes: u32,
}

impl Default for RingConfig {
    fn default() -> Self {
        Self { entries: 4096, buffers: 256, buffer_bytes: 16 << 10 }
    }
}

/// Why a ring could not be made or driven; the text says what to change.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// A system call failed.
    #[error("{what}: {source}. {remedy}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        source: std::io::Error,
        /// What the operator can do.
        remedy: &'static str,
    },
}

/// A kernel error number (positive, as in errno.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

/// A socket owned by a ring. Stale ids (closed, reused) are recognised and ignored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SocketId {
    /// Place in the ring's table.
    pub index: u32,
    /// How often that place was reused.
    pub generation: u32,
}

/// Bytes received, lent until the next [`Ring::turn`].
#[derive(Debug)]
pub struct Received;

impl Received {
    /// How many bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        todo!()
    }
}

/// What happened. `owner` is the number given with [`Ring::set_owner`] or [`Ring::connect`].
#[derive(Debug)]
pub enum Completion {
    /// A client connected; give it an owner, then [`Ring::receive`].
    Accepted {
        /// The new socket.
        socket: SocketId,
    },
    /// The listener failed once (EMFILE, ENFILE, ENOMEM…); it is armed again after a pause by itself.
    AcceptFailed(Errno),
    /// An outgoing connection stands, or failed (then the socket is closed already).
    Connected {
        /// The socket that [`Ring::connect`] returned.
        socket: SocketId,
        /// Its owner.
        owner: u64,
        /// How it ended.
        result: Result<(), Errno>,
    },
    /// Bytes arrived; read them with [`Ring::bytes_mut`] before the next turn.
    Received {
        /// The socket.
        socket: SocketId,
        /// Its owner.
        owner: u64,
        /// The bytes.
        bytes: Received,
    },
    /// The peer will send nothing more (`None`), or the connection broke. The socket is still to be closed.
    Ended {
        /// The socket.
        socket: SocketId,
        /// Its owner.
        owner: u64,
        /// The error, if it broke.
        error: Option<Errno>,
    },
    /// A send ended: everything was sent, or the connection broke. The buffer comes back for reuse, cleared.
    Sent {
        /// The socket.
        socket: SocketId,
        /// Its owner.
        owner: u64,
        /// The buffer given to [`Ring::send`], cleared.
        buffer: Vec<u8>,
        /// `Err` when the connection broke before all was sent.
        result: Result<(), Errno>,
    },
    /// A sibling ring or a [`Waker`] woke this one.
    Woken,
}

/// How long [`Ring::turn`] may wait when nothing has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Submit and look, never sleep.
    Poll,
    /// Sleep until an event or this instant of the monotonic clock.
    Until(MonoNs),
    /// Sleep until an event.
    Event,
}

/// Address of a ring for its siblings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mailbox;

/// Wakes a ring from any thread that has no ring (control, resolver). Costs one write(2).
#[derive(Clone, Debug)]
pub struct Waker;

impl Waker {
    /// Makes the ring's [`Ring::turn`] return with a [`Completion::Woken`].
    pub fn wake(&self) {
        todo!()
    }
}

/// One io_uring, its buffers and its sockets. Not `Send`: lives and dies on one thread.
pub struct Ring;

impl Ring {
    /// Makes a ring on the calling thread (SINGLE_ISSUER, DEFER_TASKRUN, COOP_TASKRUN, SUBMIT_ALL).
    pub fn new(_config: &RingConfig) -> Result<Ring, RingError> {
        todo!()
    }

    /// Accepts on `listener` from now on (multishot). The ring owns it; see [`Ring::stop_listening`].
    pub fn listen(&mut self, _listener: Listener) {
        todo!()
    }

    /// Stops accepting and closes the listeners.
    pub fn stop_listening(&mut self) {
        todo!()
    }

    /// Begins to connect; the result comes as [`Completion::Connected`]. Fails at once when no socket can be made (EMFILE).
    pub fn connect(&mut self, _address: SocketAddr, _owner: u64) -> Result<SocketId, Errno> {
        todo!()
    }

    /// Sets the number that this socket's completions carry.
    pub fn set_owner(&mut self, _socket: SocketId, _owner: u64) {
        todo!()
    }

    /// Receives from now on (multishot, provided buffers). Also resumes after [`Ring::pause`].
    pub fn receive(&mut self, _socket: SocketId) {
        todo!()
    }

    /// Stops receiving, so that TCP pushes back. Bytes that the ring already has may still be delivered.
    pub fn pause(&mut self, _socket: SocketId) {
        todo!()
    }

    /// Sends `buffer`, whole; the ring owns it until [`Completion::Sent`]. One send at a time per socket (asserted).
    pub fn send(&mut self, _socket: SocketId, _buffer: Vec<u8>) {
        todo!()
    }

    /// Closes: no completion of this socket is delivered after this call. A buffer still being sent is dropped when the
    /// kernel has let go of it. Stale ids are ignored.
    pub fn close(&mut self, _socket: SocketId) {
        todo!()
    }

    /// The bytes of a [`Completion::Received`] of the last turn, to be parsed in place.
    pub fn bytes_mut(&mut self, _received: &Received) -> &mut [u8] {
        todo!()
    }

    /// Gives the buffers of the last turn back, submits everything begun since, waits as told, and fills `completions`
    /// (cleared first) in the order in which they happened. One io_uring_enter. At most `entries` completions a turn.
    pub fn turn(
        &mut self,
        _wait: Wait,
        _completions: &mut Vec<Completion>,
    ) -> Result<(), RingError> {
        todo!()
    }

    /// This ring's address for its siblings.
    pub fn mailbox(&self) -> Mailbox {
        todo!()
    }

    /// Wakes a sibling with MSG_RING (submitted with the next turn).
    pub fn wake(&mut self, _sibling: Mailbox) {
        todo!()
    }

    /// A handle that wakes this ring from threads without a ring.
    pub fn waker(&self) -> Waker {
        todo!()
    }

    /// Open sockets, listeners not counted.
    pub fn sockets(&self) -> usize {
        todo!()
    }

    /// io_uring_enter calls so far.
    pub fn enters(&self) -> u64 {
        todo!()
    }
}
