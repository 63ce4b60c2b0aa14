//! A ring's listeners: multishot accept, the pause after a failed accept, and the end of listening.

// May panic: indices 4.
// Why it does not: places 4.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::completion::{Completion, Errno};
use super::kernel::Event;
use super::listen::{Accepting, Listener, ListenerSlot};
use super::token::{Kind, Token};
use super::uring::Ring;

impl Ring {
    pub(super) fn add_listener(&mut self, listener: Listener, owner: u64) {
        let slot = ListenerSlot { listener: Some(listener), owner, accepting: Accepting::Idle };
        let is_free =
            |slot: &ListenerSlot| slot.listener.is_none() && slot.accepting == Accepting::Idle;
        let place = self.listeners.iter().position(is_free).unwrap_or(self.listeners.len());
        match self.listeners.get_mut(place) {
            Some(free) => *free = slot,
            None => self.listeners.push(slot),
        }
        self.begin_accepting(place);
    }

    pub(super) fn remove_listeners(&mut self) {
        for (place, slot) in (0_u32..).zip(&mut self.listeners) {
            if slot.listener.take().is_none() {
                continue;
            }
            match slot.accepting {
                Accepting::Idle => {}
                Accepting::Armed => self.kernel.cancel(Token::of_slot(Kind::Accept, place, 0)),
                Accepting::Pausing => {
                    self.kernel.cancel(Token::of_slot(Kind::AcceptPause, place, 0));
                }
            }
        }
    }

    pub(super) fn on_accept(&mut self, event: Event, completions: &mut Vec<Completion>) {
        let place = event.token.index() as usize;
        let slot = &mut self.listeners[place];
        if !event.more() {
            slot.accepting = Accepting::Idle;
            self.kernel.operation_ended();
        }
        let (is_wanted, owner) = (slot.listener.is_some(), slot.owner);
        if event.result >= 0 {
            // SAFETY: the kernel made this descriptor for this completion, which the ring sees
            // once; no other code knows the descriptor.
            let fd = unsafe { OwnedFd::from_raw_fd(event.result) };
            if is_wanted {
                let socket = self.sockets.insert(fd, owner);
                completions.push(Completion::Accepted { socket, owner });
            }
        } else if is_wanted {
            match -event.result {
                // The client went away before the accept, or the accept was interrupted: no failure
                // of the listener.
                libc::ECONNABORTED | libc::EINTR | libc::EAGAIN | libc::ECANCELED => {}
                errno => {
                    completions.push(Completion::AcceptFailed(Errno(errno)));
                    if !event.more() {
                        self.begin_pause(place);
                    }
                }
            }
        }
        self.begin_accepting(place);
    }

    pub(super) fn on_accept_pause(&mut self, event: Event) {
        let place = event.token.index() as usize;
        self.kernel.operation_ended();
        self.listeners[place].accepting = Accepting::Idle;
        self.begin_accepting(place);
    }

    fn begin_accepting(&mut self, place: usize) {
        let slot = &mut self.listeners[place];
        if slot.accepting != Accepting::Idle {
            return;
        }
        let Some(listener) = &slot.listener else { return };
        slot.accepting = Accepting::Armed;
        let token = Token::of_slot(Kind::Accept, place as u32, 0);
        self.kernel.accept(listener.socket.as_raw_fd(), token);
    }

    fn begin_pause(&mut self, place: usize) {
        self.listeners[place].accepting = Accepting::Pausing;
        self.kernel.pause_accepting(Token::of_slot(Kind::AcceptPause, place as u32, 0));
    }
}
