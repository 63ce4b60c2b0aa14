//! The smallest HTTP server on the ring. The server finds requests in the stream, asks a handler,
//! and makes one send per connection and turn.
//!
//! The callback sink and the reference are handlers. The server reads heads and Content-Length
//! only.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use chronos::base::time::MonoNs;
use chronos::ring::{Completion, Listener, Ring, RingConfig, SocketId, Wait, pin_to_core};

use crate::clock::clock_ns;
use crate::frames::{Head, Inbox};

/// Most bytes of answers that the server keeps for a peer that does not read. With more, the
/// connection is closed.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// Nanoseconds between two looks whether the server should stop.
const STOP_CHECK_NS: u64 = 50_000_000;
const BACKLOG: u32 = 4096;

/// What the server does with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The handler has appended the answer.
    Answered,
    /// The request is never answered.
    Hang,
    /// [`Handler::late_answer`] is appended after so many milliseconds. A handler must use the same
    /// delay for all requests.
    AnswerAfterMs(u64),
    /// The connection is closed without an answer.
    Close,
}

/// Decides what a server does with requests.
pub trait Handler: Send + 'static {
    /// Takes a complete request. The handler may append an answer to `out`.
    fn request(&mut self, head: &Head<'_>, now_ns: u64, out: &mut Vec<u8>) -> Verdict;
    /// Appends the answer to a request that was put off.
    fn late_answer(&self, _out: &mut Vec<u8>) {}
    /// Called after all completions of a turn were handled.
    fn turn_ended(&mut self, _now_ns: u64) {}
}

/// A server on a thread of its own.
pub struct ServerThread<H> {
    /// The address at which the server listens.
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(H, u64)>>,
}

impl<H: Handler> ServerThread<H> {
    /// Starts `handler` on a thread of its own, pinned if `core` names a core. Returns after the
    /// server has begun to listen.
    pub fn start(listen: SocketAddr, core: Option<usize>, handler: H) -> Result<ServerThread<H>> {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let stop_there = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("server".into()).spawn(move || {
            let ready = |address| sender.send(address).expect("start() waits for the address");
            run(listen, core, handler, &stop_there, ready)
        })?;
        match receiver.recv() {
            Ok(address) => Ok(ServerThread { address, stop, thread }),
            // The server ended before it was ready. Its own error says why.
            Err(_) => Err(join(thread).err().unwrap_or_else(|| anyhow!("the server ended"))),
        }
    }

    /// Stops the server. Returns the handler, and the CPU time of the server's thread in
    /// nanoseconds.
    pub fn stop(self) -> Result<(H, u64)> {
        self.stop.store(true, Ordering::Release);
        join(self.thread)
    }
}

fn join<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of the load generator panicked")))
}

/// Serves on the calling thread until `stop` is set. Calls `ready` with the address. Returns the
/// handler, and the CPU time of the thread in nanoseconds.
pub fn run<H: Handler>(
    listen: SocketAddr,
    core: Option<usize>,
    handler: H,
    stop: &AtomicBool,
    ready: impl FnOnce(SocketAddr),
) -> Result<(H, u64)> {
    if let Some(core) = core {
        pin_to_core(core).with_context(|| format!("cannot run on core {core}"))?;
    }
    chronos::ring::set_timer_slack_ns(1).context("cannot set the timer slack")?;
    let mut ring = Ring::new(&RingConfig::default()).context("cannot make the server's ring")?;
    let listener =
        Listener::bind(listen, BACKLOG).with_context(|| format!("cannot listen on {listen}"))?;
    ready(listener.local_address());
    ring.listen(listener);
    let mut server = Server {
        ring,
        handler,
        slots: Vec::new(),
        free: Vec::new(),
        touched: Vec::new(),
        late: VecDeque::new(),
    };
    let mut completions = Vec::new();
    while !stop.load(Ordering::Acquire) {
        server.turn(&mut completions)?;
    }
    Ok((server.handler, chronos::ring::thread_usage().cpu_ns))
}

/// One accepted connection.
#[derive(Debug, Default)]
struct Slot {
    socket: Option<SocketId>,
    inbox: Inbox,
    out: Vec<u8>,
    spare: Vec<u8>,
    sending: bool,
    touched: bool,
}

/// An answer that was put off.
#[derive(Debug)]
struct Late {
    due_ns: u64,
    slot: u32,
    socket: SocketId,
}

struct Server<H> {
    ring: Ring,
    handler: H,
    slots: Vec<Slot>,
    free: Vec<u32>,
    touched: Vec<u32>,
    /// Answers that were put off, in the order of their due times. The order holds because the
    /// delay of a handler is constant.
    late: VecDeque<Late>,
}

impl<H: Handler> Server<H> {
    fn turn(&mut self, completions: &mut Vec<Completion>) -> Result<()> {
        let mut until_ns = clock_ns() + STOP_CHECK_NS;
        if let Some(late) = self.late.front() {
            until_ns = until_ns.min(late.due_ns);
        }
        self.ring.turn(Wait::Until(MonoNs(until_ns)), completions)?;
        let now_ns = clock_ns();
        for completion in completions.drain(..) {
            self.completed(completion, now_ns);
        }
        self.answer_late(now_ns);
        self.handler.turn_ended(now_ns);
        self.flush();
        Ok(())
    }

    fn completed(&mut self, completion: Completion, now_ns: u64) {
        match completion {
            Completion::Accepted { socket, .. } => {
                let index = self.free.pop().unwrap_or_else(|| {
                    self.slots.push(Slot::default());
                    self.slots.len() as u32 - 1
                });
                self.slots[index as usize].socket = Some(socket);
                self.ring.set_owner(socket, u64::from(index));
                self.ring.receive(socket);
            }
            Completion::Received { socket, owner, bytes } => {
                let index = owner as usize;
                if self.slots[index].socket == Some(socket) {
                    self.received(index, socket, &bytes, now_ns);
                }
            }
            Completion::Sent { socket, owner, buffer, result } => {
                let slot = &mut self.slots[owner as usize];
                if slot.socket != Some(socket) {
                    return;
                }
                slot.sending = false;
                slot.spare = buffer;
                match result {
                    Ok(()) if slot.out.is_empty() => {}
                    Ok(()) => self.touch(owner as usize),
                    Err(_) => self.close(owner as usize),
                }
            }
            Completion::Ended { socket, owner, .. } => {
                if self.slots[owner as usize].socket == Some(socket) {
                    self.close(owner as usize);
                }
            }
            Completion::Connected { .. }
            | Completion::AcceptFailed(_)
            | Completion::Written { .. }
            | Completion::Woken => {}
        }
    }

    fn received(
        &mut self,
        index: usize,
        socket: SocketId,
        bytes: &chronos::ring::Received,
        now_ns: u64,
    ) {
        let Slot { inbox, out, .. } = &mut self.slots[index];
        let (handler, late) = (&mut self.handler, &mut self.late);
        let mut close = false;
        let result = inbox.feed(self.ring.bytes_mut(bytes), |head| {
            match handler.request(head, now_ns, out) {
                Verdict::Answered | Verdict::Hang => {}
                Verdict::Close => close = true,
                Verdict::AnswerAfterMs(ms) => {
                    let due_ns = now_ns + ms * 1_000_000;
                    late.push_back(Late { due_ns, slot: index as u32, socket });
                }
            }
            close |= head.close;
            Ok(())
        });
        if result.is_err() || close || out.len() > OUTPUT_BYTES_MAX {
            self.close(index);
        } else if !self.slots[index].out.is_empty() {
            self.touch(index);
        }
    }

    fn touch(&mut self, index: usize) {
        if !std::mem::replace(&mut self.slots[index].touched, true) {
            self.touched.push(index as u32);
        }
    }

    fn answer_late(&mut self, now_ns: u64) {
        while self.late.front().is_some_and(|late| late.due_ns <= now_ns) {
            let Some(late) = self.late.pop_front() else { return };
            if self.slots[late.slot as usize].socket == Some(late.socket) {
                self.handler.late_answer(&mut self.slots[late.slot as usize].out);
                self.touch(late.slot as usize);
            }
        }
    }

    fn close(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if let Some(socket) = slot.socket.take() {
            self.ring.close(socket);
            slot.inbox.clear();
            slot.out.clear();
            slot.sending = false;
            self.free.push(index as u32);
        }
    }

    fn flush(&mut self) {
        for index in self.touched.drain(..) {
            let slot = &mut self.slots[index as usize];
            slot.touched = false;
            let Some(socket) = slot.socket else { continue };
            if !slot.sending && !slot.out.is_empty() {
                slot.sending = true;
                let output = std::mem::replace(&mut slot.out, std::mem::take(&mut slot.spare));
                self.ring.send(socket, output);
            }
        }
    }
}
