//! The table of sockets: who owns each, and which operations the kernel still has on it.
//!
//! A slot is freed only when its last operation has completed, so memory that an operation uses
//! lives in the slot.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use socket2::{SockAddr, SockRef};

use crate::base::slots::{SlotKey, Slots};

use super::completion::SocketId;
use super::token::{Kind, Token};

/// State of a socket's multishot receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Receiving {
    /// The kernel has none.
    Idle,
    /// The kernel has it; its last completion is still to come.
    Armed,
    /// As armed, and asked to end.
    Cancelled,
}

/// A send in flight: the kernel reads `buffer` from `offset` on.
pub(super) struct Sending {
    pub(super) buffer: Vec<u8>,
    pub(super) offset: usize,
}

/// One socket, from its first operation until the last has completed.
pub(super) struct Socket {
    fd: OwnedFd,
    generation: u32,
    pub(super) owner: u64,
    pub(super) receiving: Receiving,
    /// The caller wants bytes: a receive that ends is begun again.
    pub(super) wants_bytes: bool,
    /// The end of the stream or an error was told: nothing more is received.
    pub(super) ended: bool,
    /// The caller has closed it: nothing more is told.
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
    /// Takes ownership of a connected or connecting socket.
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

    /// The socket, unless the id is stale or the socket closing.
    pub(super) fn get(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.slots.get_mut(key_of(id)).filter(|socket| !socket.closing)
    }

    /// Whom the socket is connected with; `None` also of one that is gone.
    pub(super) fn peer_of(&self, id: SocketId) -> Option<SocketAddr> {
        self.slots.get(key_of(id))?.socket_ref().peer_addr().ok()?.as_socket()
    }

    /// The socket that a completion belongs to.
    pub(super) fn of_token(&mut self, token: Token) -> &mut Socket {
        let socket = self.slots.at_mut(token.index());
        let socket = socket.filter(|socket| token.is_of_generation(socket.generation));
        socket.expect("a slot is not reused before its last completion")
    }

    /// The socket at a place, whatever its generation.
    pub(super) fn at(&self, index: u32) -> &Socket {
        self.slots.at(index).expect("asked of sockets that are not freed")
    }

    /// Frees a slot on which no operation is left and returns its descriptor, to be closed.
    pub(super) fn remove(&mut self, index: u32) -> OwnedFd {
        let socket = self.slots.remove_at(index).expect("a slot is freed once");
        if socket.is_busy() {
            // What the kernel may still read must outlive the panic.
            std::mem::forget(socket);
            panic!("a socket with operations in the kernel cannot be freed");
        }
        socket.fd
    }

    /// Sockets whose descriptors are open.
    pub(super) fn open(&self) -> usize {
        self.slots.len()
    }

    /// The ids of all sockets that are open and not closing.
    pub(super) fn ids(&self) -> Vec<SocketId> {
        let open = self.slots.iter().filter(|(_, socket)| !socket.closing);
        open.map(|(key, socket)| socket.id(key.index)).collect()
    }

    /// Gives up the memory of every operation that the kernel has not let go of.
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
