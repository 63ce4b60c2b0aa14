//! A ring's sockets: receive, send, connect, close, and their completions.

// May panic: assertions 1, expectations 5, indices 1.
// Why it does not: ordered 5, kernel 2.

use std::os::fd::OwnedFd;

use socket2::SockAddr;

use super::completion::{Completion, Errno, Received, SocketId};
use super::kernel::Event;
use super::sockets::{Receiving, Sending};
use super::token::Kind;
use super::uring::Ring;

impl Ring {
    pub(super) fn begin_connecting(
        &mut self,
        fd: OwnedFd,
        address: SockAddr,
        owner: u64,
    ) -> SocketId {
        let id = self.sockets.insert(fd, owner);
        let socket = self.sockets.get(id).expect("it was just put in");
        let (fd, token) = (socket.raw_fd(), socket.token(Kind::Connect, id.index));
        let address = &**socket.connecting.insert(Box::new(address));
        // SAFETY: the slot owns the box, and neither replaces nor drops it before the completion
        // (`on_connect`). A ring that is dropped before waits for the completion or leaks the box.
        unsafe { self.kernel.connect(fd, address, token) };
        id
    }

    pub(super) fn begin_receiving(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get(id) else { return };
        if !socket.wants_bytes || socket.ended || socket.receiving != Receiving::Idle {
            return;
        }
        socket.receiving = Receiving::Armed;
        let (fd, token) = (socket.raw_fd(), socket.token(Kind::Receive, id.index));
        self.kernel.receive(fd, token);
    }

    pub(super) fn stop_receiving(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get(id) else { return };
        socket.wants_bytes = false;
        if socket.receiving == Receiving::Armed {
            socket.receiving = Receiving::Cancelled;
            let token = socket.token(Kind::Receive, id.index);
            self.kernel.cancel(token);
        }
    }

    pub(super) fn begin_sending(&mut self, id: SocketId, buffer: Vec<u8>) {
        let Some(socket) = self.sockets.get(id) else { return };
        assert!(socket.sending.is_none(), "one send at a time per socket");
        socket.sending = Some(Sending { buffer, offset: 0 });
        self.send_rest(id);
    }

    /// Sends the unsent rest of a socket's buffer.
    fn send_rest(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get(id) else { return };
        let (fd, token) = (socket.raw_fd(), socket.token(Kind::Send, id.index));
        let sending = socket.sending.as_ref().expect("the caller has put it there");
        let rest = &sending.buffer[sending.offset..];
        // SAFETY: the bytes are on the heap of a vector that the slot owns. No code changes, moves
        // out or drops the vector before the completion (`on_send`). A ring that is dropped before
        // waits for the completion or leaks the vector.
        unsafe { self.kernel.send(fd, rest, token) };
    }

    /// Asks every operation of the socket to end. The last of their completions closes the
    /// descriptor.
    pub(super) fn begin_closing(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get(id) else { return };
        socket.closing = true;
        if socket.receiving == Receiving::Armed {
            socket.receiving = Receiving::Cancelled;
            let token = socket.token(Kind::Receive, id.index);
            self.kernel.cancel(token);
        }
        if socket.sending.is_some() {
            let token = socket.token(Kind::Send, id.index);
            self.kernel.cancel(token);
        }
        if socket.connecting.is_some() {
            let token = socket.token(Kind::Connect, id.index);
            self.kernel.cancel(token);
        }
        if !socket.is_busy() {
            let fd = self.sockets.remove(id.index);
            self.kernel.close(fd);
        }
    }

    pub(super) fn on_receive(&mut self, event: Event, completions: &mut Vec<Completion>) {
        let index = event.token.index();
        let turn = self.turn;
        if let Some(buffer) = event.buffer() {
            self.buffers.lend(buffer, turn);
        }
        let socket = self.sockets.of_token(event.token);
        if !event.more() {
            socket.receiving = Receiving::Idle;
            self.kernel.operation_ended();
        }
        if socket.closing {
            self.close_if_idle(index);
            return;
        }
        let (id, owner) = (socket.id(index), socket.owner);
        match event.result {
            1.. => {
                let buffer = event.buffer().expect("received bytes lie in a provided buffer");
                let bytes = Received { buffer, length: event.result as u32, turn };
                completions.push(Completion::Received { socket: id, owner, bytes });
            }
            0 => {
                socket.ended = true;
                completions.push(Completion::Ended { socket: id, owner, error: None });
            }
            result => match -result {
                // Every buffer was lent. The receive begins again after the buffers were given
                // back.
                libc::ENOBUFS => {
                    self.starved.push_back(id);
                    return;
                }
                libc::ECANCELED | libc::EINTR | libc::EAGAIN => {}
                errno => {
                    socket.ended = true;
                    let error = Some(Errno(errno));
                    completions.push(Completion::Ended { socket: id, owner, error });
                }
            },
        }
        self.begin_receiving(id);
    }

    pub(super) fn on_send(&mut self, event: Event, completions: &mut Vec<Completion>) {
        let index = event.token.index();
        self.kernel.operation_ended();
        let socket = self.sockets.of_token(event.token);
        if socket.closing {
            socket.sending = None;
            self.close_if_idle(index);
            return;
        }
        let (id, owner) = (socket.id(index), socket.owner);
        let sending = socket.sending.as_mut().expect("it stays until its completion");
        let result = match event.result {
            count @ 0.. => {
                let begun = sending.offset;
                sending.offset += count as usize;
                let left = sending.buffer.len() - sending.offset;
                if left > 0 && sending.offset > begun {
                    return self.send_rest(id);
                }
                if left == 0 { Ok(()) } else { Err(Errno(libc::EPIPE)) }
            }
            error => match -error {
                libc::EINTR | libc::EAGAIN => return self.send_rest(id),
                errno => Err(Errno(errno)),
            },
        };
        let mut buffer = socket.sending.take().expect("it was there a moment ago").buffer;
        buffer.clear();
        completions.push(Completion::Sent { socket: id, owner, buffer, result });
    }

    pub(super) fn on_connect(&mut self, event: Event, completions: &mut Vec<Completion>) {
        let index = event.token.index();
        self.kernel.operation_ended();
        let socket = self.sockets.of_token(event.token);
        socket.connecting = None;
        if socket.closing {
            self.close_if_idle(index);
            return;
        }
        let (id, owner) = (socket.id(index), socket.owner);
        let result = if event.result < 0 { Err(Errno(-event.result)) } else { Ok(()) };
        if result.is_err() {
            self.begin_closing(id);
        }
        completions.push(Completion::Connected { socket: id, owner, result });
    }

    /// Closes the descriptor of a closing socket if no operation is left on it.
    fn close_if_idle(&mut self, index: u32) {
        if !self.sockets.at(index).is_busy() {
            let fd = self.sockets.remove(index);
            self.kernel.close(fd);
        }
    }
}
