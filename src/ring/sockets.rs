//! The table of sockets: the owner of each socket, and the operations that the kernel still has on
//! it.
//!
//! A slot is freed only after its last operation has completed, so the memory that an operation
//! uses lives in the slot.

// May panic: assertions 1, expectations 3.
// Why it does not: ordered 4.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use socket2::{SockAddr, SockRef};

use crate::base::slots::{SlotKey, Slots};

use super::completion::SocketId;
use super::token::{Kind, Token};

/// The state of a socket's multishot receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Receiving {
    /// The kernel has no receive.
    Idle,
    /// The kernel has the receive, whose last completion is still to come.
    Armed,
    /// The kernel has the receive and was asked to end it.
    Cancelled,
}

/// A send in flight. The kernel reads `buffer` from `offset` on.
pub(super) struct Sending {
    pub(super) buffer: Vec<u8>,
    pub(super) offset: usize,
}

/// One socket, from the moment in which the ring takes it until its last operation has completed.
pub(super) struct Socket {
    fd: OwnedFd,
    generation: u32,
    pub(super) owner: u64,
    pub(super) receiving: Receiving,
    /// Whether the caller wants bytes. If so, a receive that ends begins again.
    pub(super) wants_bytes: bool,
    /// Whether the end of the stream or an error was told. Nothing more is received then.
    pub(super) ended: bool,
    /// Whether the caller has closed the socket. No more completions of it are delivered then.
    pub(super) closing: bool,
    pub(super) sending: Option<Sending>,
    /// The address that a connect in flight may read.
    pub(super) connecting: Option<Box<SockAddr>>,
}

impl Socket {
    pub(super) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(super) fn socket_ref(&self) -> SockRef<'_> {
        SockRef::from(&self.fd)
    }

    /// Whether the kernel has an operation on this socket.
    pub(super) fn is_busy(&self) -> bool {
        self.receiving != Receiving::Idle || self.sending.is_some() || self.connecting.is_some()
    }

    pub(super) fn id(&self, index: u32) -> SocketId {
        SocketId { index, generation: self.generation }
    }

    pub(super) fn token(&self, kind: Kind, index: u32) -> Token {
        Token::of_slot(kind, index, self.generation)
    }
}

/// All sockets of a ring.
#[derive(Default)]
pub(super) struct SocketTable {
    slots: Slots<Socket>,
}

impl SocketTable {
    /// Takes ownership of a socket that is connected or will connect.
    pub(super) fn insert(&mut self, fd: OwnedFd, owner: u64) -> SocketId {
        let key = self.slots.insert_with(|SlotKey { generation, .. }| Socket {
            fd,
            generation,
            owner,
            receiving: Receiving::Idle,
            wants_bytes: false,
            ended: false,
            closing: false,
            sending: None,
            connecting: None,
        });
        SocketId { index: key.index, generation: key.generation }
    }

    /// The socket; `None`: the id is stale, or the socket is closing.
    pub(super) fn get(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.slots.get_mut(key_of(id)).filter(|socket| !socket.closing)
    }

    /// The address at the other end; `None`: the socket is closed or not connected.
    pub(super) fn peer_of(&self, id: SocketId) -> Option<SocketAddr> {
        self.slots.get(key_of(id))?.socket_ref().peer_addr().ok()?.as_socket()
    }

    /// The socket that a completion belongs to. Panics if its slot was reused.
    pub(super) fn of_token(&mut self, token: Token) -> &mut Socket {
        let socket = self.slots.at_mut(token.index());
        let socket = socket.filter(|socket| token.is_of_generation(socket.generation));
        socket.expect("a slot is not reused before its last completion")
    }

    /// The socket at a place, whatever its generation. Panics if the place is free.
    pub(super) fn at(&self, index: u32) -> &Socket {
        self.slots.at(index).expect("asked of sockets that are not freed")
    }

    /// Frees a slot and returns its descriptor, which the caller closes. Panics if an operation is
    /// left on the socket.
    pub(super) fn remove(&mut self, index: u32) -> OwnedFd {
        let socket = self.slots.remove_at(index).expect("a slot is freed once");
        if socket.is_busy() {
            // The memory that the kernel may still read must outlive the panic.
            std::mem::forget(socket);
            panic!("a socket with operations in the kernel cannot be freed");
        }
        socket.fd
    }

    /// How many sockets have an open descriptor.
    pub(super) fn open(&self) -> usize {
        self.slots.len()
    }

    /// The ids of all sockets that are open and not closing.
    pub(super) fn ids(&self) -> Vec<SocketId> {
        let open = self.slots.iter().filter(|(_, socket)| !socket.closing);
        open.map(|(key, socket)| socket.id(key.index)).collect()
    }

    /// Leaks the memory of every operation that the kernel has not completed.
    pub(super) fn leak_operations(&mut self) {
        for (_, socket) in self.slots.iter_mut() {
            std::mem::forget(socket.sending.take());
            std::mem::forget(socket.connecting.take());
        }
    }
}

fn key_of(id: SocketId) -> SlotKey {
    SlotKey { index: id.index, generation: id.generation }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("it exists").into()
    }

    #[test]
    fn a_reused_slot_has_another_id() {
        let mut table = SocketTable::default();
        let first = table.insert(descriptor(), 1);
        drop(table.remove(first.index));
        assert!(table.get(first).is_none());
        let second = table.insert(descriptor(), 2);
        assert_eq!(first.index, second.index);
        assert!(table.get(first).is_none());
        assert_eq!(table.get(second).map(|socket| socket.owner), Some(2));
        assert_eq!(table.open(), 1);
    }

    #[test]
    #[should_panic(expected = "cannot be freed")]
    fn a_busy_slot_is_not_freed() {
        let mut table = SocketTable::default();
        let id = table.insert(descriptor(), 0);
        table.get(id).expect("it is open").receiving = Receiving::Cancelled;
        table.remove(id.index);
    }

    #[test]
    #[should_panic(expected = "not reused before its last completion")]
    fn a_late_completion_is_recognised() {
        let mut table = SocketTable::default();
        let first = table.insert(descriptor(), 0);
        let token = table.of_token(Token::of_slot(Kind::Send, first.index, 0)).token(Kind::Send, 0);
        drop(table.remove(first.index));
        table.insert(descriptor(), 0);
        table.of_token(token);
    }
}
