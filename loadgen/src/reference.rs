//! The reference: what the ring alone costs. The reference sends a fixed answer 200 to every
//! complete request, or fixed callbacks as fast as they are answered. It has no JSON and no timers.
//! The node is compared with it on the same machine at the same time.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use chronos::ring::{Completion, Ring, RingConfig, SocketId, Wait, pin_to_core};

use crate::frames::{Head, Inbox};
use crate::server::{Handler, Verdict};

/// As long as the node's answer to a POST.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Location: /timers/0123456789abcdef-2-fedcba9876543210\r\n\
    Content-Location: /timers/0123456789abcdef-2-fedcba9876543210\r\n\
    Content-Length: 0\r\n\r\n";
/// The end of a callback, as long as the node's with a 40-byte opaque body. The host is put before
/// it.
const CALLBACK_TAIL: &str = "\r\nContent-Type: application/octet-stream\r\n\
    X-Sequence-Number: 1\r\nContent-Length: 40\r\n\r\ncall-leg-9f3c/terminating;sequence=0042/";

/// A server that gives every request the same answer.
#[derive(Debug)]
pub struct Reference;

impl Handler for Reference {
    fn request(&mut self, _head: &Head<'_>, _now_ns: u64, out: &mut Vec<u8>) -> Verdict {
        out.extend_from_slice(ANSWER);
        Verdict::Answered
    }
}

/// One connection of the caller.
#[derive(Debug, Default)]
struct Call {
    inbox: Inbox,
    buffer: Vec<u8>,
    /// Whether a send is in flight. Its completion may come a turn later than the answer.
    sending: bool,
    /// Whether the last callback was answered, so that the next callback should be sent.
    answered: bool,
}

/// Sends callbacks to `sink` on this many connections, one in flight on each, until the sink has
/// closed all of them: the reference for pops. Runs on the calling thread.
pub fn call_back(sink: SocketAddr, connections: u32, core: Option<usize>) -> Result<()> {
    if let Some(core) = core {
        pin_to_core(core).with_context(|| format!("cannot run on core {core}"))?;
    }
    let request = format!("POST /pop/0000000000 HTTP/1.1\r\nHost: {sink}{CALLBACK_TAIL}");
    let mut ring = Ring::new(&RingConfig::default())?;
    let mut calls: Vec<Call> = (0..connections).map(|_| Call::default()).collect();
    for index in 0..connections {
        let socket = ring.connect(sink, u64::from(index));
        socket.map_err(|errno| anyhow::anyhow!("cannot make a socket: errno {}", errno.0))?;
    }
    let mut completions = Vec::new();
    let mut touched: Vec<(SocketId, usize)> = Vec::new();
    let mut open = connections;
    while open > 0 {
        ring.turn(Wait::Event, &mut completions)?;
        for completion in completions.drain(..) {
            match completion {
                Completion::Connected { socket, owner, result: Ok(()) } => {
                    ring.receive(socket);
                    calls[owner as usize].answered = true;
                    touched.push((socket, owner as usize));
                }
                Completion::Connected { .. } => open -= 1,
                Completion::Received { socket, owner, bytes } => {
                    let Call { inbox, answered, .. } = &mut calls[owner as usize];
                    inbox.feed(ring.bytes_mut(&bytes), |_| {
                        *answered = true;
                        Ok(())
                    })?;
                    touched.push((socket, owner as usize));
                }
                Completion::Sent { socket, owner, buffer, .. } => {
                    let call = &mut calls[owner as usize];
                    (call.buffer, call.sending) = (buffer, false);
                    touched.push((socket, owner as usize));
                }
                Completion::Ended { socket, owner, .. } => {
                    ring.close(socket);
                    calls[owner as usize].answered = false;
                    open -= 1;
                }
                _ => {}
            }
        }
        for (socket, index) in touched.drain(..) {
            let call = &mut calls[index];
            if call.answered && !call.sending {
                (call.answered, call.sending) = (false, true);
                call.buffer.extend_from_slice(request.as_bytes());
                ring.send(socket, std::mem::take(&mut call.buffer));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::parse_head;

    #[test]
    fn the_answer_is_whole_and_as_long_as_the_nodes() {
        let head = parse_head(ANSWER).unwrap().unwrap();
        assert_eq!((head.status(), head.body_bytes, head.head_bytes), (Some(200), 0, ANSWER.len()));
        assert_eq!(head.location.len(), 43);
        let callback = format!("POST / HTTP/1.1\r\nHost: a{CALLBACK_TAIL}");
        let head = parse_head(callback.as_bytes()).unwrap().unwrap();
        assert_eq!(head.head_bytes + head.body_bytes, callback.len());
    }
}
