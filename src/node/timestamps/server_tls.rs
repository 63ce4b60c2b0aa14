//! TLS in the table of connections for timestamps: what arrives over it, and what becomes of a
//! handshake.

use crate::base::time::MonoNs;
use crate::ring::{Received, SocketId};
use crate::wire::thrift::{ExceptionKind, refuse_first};

use crate::node::handshakes::queue::{Handshakes, Waiting};
use crate::node::handshakes::secured::{Kept, Kind, Progress};
use crate::node::io::Io;
use crate::node::timestamps::server::{TimestampServer, of};

/// The answer to a call in the clear where TLS is spoken.
const PLAIN: &str = "this port speaks TLS and found a call in the clear; speak TLS here, or use \
                     the port of [timestamp] listen";

/// The same where there is no such port.
const PLAIN_NOWHERE: &str = "this port speaks TLS and found a call in the clear; speak TLS here";

impl TimestampServer {
    /// Takes bytes of a client that speaks TLS.
    #[inline(never)]
    pub(super) fn received_secured(
        &mut self,
        io: &mut Io<'_>,
        handshakes: &mut Handshakes,
        (place, socket): (u32, SocketId),
        received: &Received,
    ) {
        let Some(connection) = of(&mut self.connections, (place, socket)) else { return };
        let Some(secured) = &mut connection.secured else { return };
        let wire = io.ring.bytes_mut(received);
        if secured.is_handshaking() {
            let kept = secured.keep(wire);
            let progress = match kept {
                Kept::Hungry | Kept::Full => None,
                Kept::Plain => Some(Progress::Plain),
                Kept::Nonsense => Some(Progress::Broken),
            };
            if let Some(progress) = progress {
                let mut plain = std::mem::take(&mut handshakes.plain);
                if progress == Progress::Plain {
                    plain.extend_from_slice(wire);
                }
                return self.progressed(io, handshakes, (place, socket), (progress, plain));
            }
            if !secured.is_queued {
                secured.is_queued = true;
                handshakes.wait(Waiting { kind: secured.kind, place, socket });
            }
            if kept == Kept::Full && !connection.is_paused {
                connection.is_paused = true;
                io.ring.pause(socket);
            }
            return self.account(io.ring, place);
        }
        connection.deadline.extend(io.now.mono.plus_ms(self.idle_timeout_ms));
        let mut plain = std::mem::take(&mut handshakes.plain);
        let progress = secured.receive(wire, &mut plain);
        self.progressed(io, handshakes, (place, socket), (progress, plain));
    }

    /// Goes on with a handshake. Returns whether there was anything to do: the connection may have
    /// ended in the meantime.
    pub fn shake_hands(
        &mut self,
        io: &mut Io<'_>,
        handshakes: &mut Handshakes,
        next: Waiting,
    ) -> bool {
        let Waiting { kind, place, socket } = next;
        let Some(connection) = of(&mut self.connections, (place, socket)) else { return false };
        let Some(acceptor) = handshakes.acceptor_of(kind).cloned() else { return false };
        if connection.is_closing {
            return false;
        }
        if std::mem::take(&mut connection.is_paused) {
            io.ring.receive(socket);
        }
        let Some(secured) = &mut connection.secured else { return false };
        secured.is_queued = false;
        let mut plain = std::mem::take(&mut handshakes.plain);
        let progress = secured.shake_hands(&acceptor, &mut plain);
        self.progressed(io, handshakes, (place, socket), (progress, plain));
        true
    }

    /// Handles that bytes have left to a client that speaks TLS. TLS may have more of its own.
    #[inline(never)]
    pub(super) fn sent_secured(&mut self, now: MonoNs, place: u32) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        if !connection.is_handshaking() && !connection.is_closing {
            connection.deadline.extend(now.plus_ms(self.idle_timeout_ms));
            if connection.is_paused && !connection.is_waiting {
                self.resume_later(place);
            }
        }
        self.mark_dirty(place);
    }

    /// Sends what is to leave over TLS, or closes a connection that is done.
    #[inline(never)]
    pub(super) fn flush_secured(&mut self, io: &mut Io<'_>, place: u32) {
        let Some(connection) = self.connections.at_mut(place) else { return };
        let Some(secured) = &mut connection.secured else { return };
        let is_last = connection.is_closing;
        if let Some(bytes) = secured.next_send(&mut connection.out, is_last, &mut self.pool) {
            connection.sending_bytes = bytes.len();
            io.ring.send(connection.socket, bytes);
        } else if connection.is_closing {
            self.finish(io, place);
        }
    }

    /// Acts on what became of the bytes of a connection.
    fn progressed(
        &mut self,
        io: &mut Io<'_>,
        handshakes: &mut Handshakes,
        (place, socket): (u32, SocketId),
        (progress, mut plain): (Progress, Vec<u8>),
    ) {
        let Some(connection) = of(&mut self.connections, (place, socket)) else { return };
        match progress {
            Progress::GoesOn => {}
            Progress::Opened { is_resumed } => {
                handshakes.note_done(Kind::Timestamps, is_resumed);
                let until = io.now.mono.plus_ms(self.idle_timeout_ms);
                self.deadlines.set(place, &mut connection.deadline, until);
            }
            Progress::Plain => {
                handshakes.note_failed(Kind::Timestamps);
                connection.secured = None;
                connection.is_closing = true;
                let told = if self.takes_plain { PLAIN } else { PLAIN_NOWHERE };
                let why = (ExceptionKind::InternalError, told);
                refuse_first(&mut connection.out, self.form, &plain, why);
                plain.clear();
            }
            Progress::Broken => {
                handshakes.note_failed(Kind::Timestamps);
                connection.break_off();
                plain.clear();
            }
        }
        if !plain.is_empty() {
            let appetite = connection.feed(io.now.mono, &plain, &mut self.issuer, self.form);
            self.after_feed(io, place, appetite);
        }
        plain.clear();
        handshakes.plain = plain;
        let Some(connection) = of(&mut self.connections, (place, socket)) else { return };
        let has_told_end = connection.secured.as_ref().is_some_and(|secured| secured.has_ended);
        if has_told_end || connection.has_ended {
            self.ended(io.ring, (place, socket), false);
        }
        self.account(io.ring, place);
        self.mark_dirty(place);
    }
}
