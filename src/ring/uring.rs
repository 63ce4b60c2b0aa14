//! The ring itself: the calls that users of a ring make, and its turn.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::buffers::BufferRing;
use super::clock;
use super::completion::{Completion, Errno, Received, SocketId, Wait};
use super::disk::{Disk, DiskRegistrations, DurableFile};
use super::error::{RingError, Step};
use super::kernel::{Event, Kernel};
use super::listen::{Listener, ListenerSlot};
use super::sockets::SocketTable;
use super::token::{Kind, Token};
use super::waker::{Mailbox, Waker};

/// How many turns a dropped ring waits for its operations to end, each at most [`DROP_TURN_MS`]:
/// together 1 s.
const DROP_TURNS_MAX: u32 = 100;
/// Longest sleep in one turn of a dropped ring, in milliseconds.
const DROP_TURN_MS: u64 = 10;

/// The sizes of a ring.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// Entries of the submission queue (a power of two). The completion queue gets four times as
    /// many.
    pub entries: u32,
    /// Receive buffers that all connections of this ring share (a power of two up to 32768).
    pub buffers: u16,
    /// Bytes of one receive buffer, at least 1.
    pub buffer_bytes: u32,
    /// Whether waits have their arguments in memory that the kernel shares, if it can (Linux 6.13).
    pub shares_waits: bool,
    /// Whether durable writes go through registered files and a registered buffer, if the kernel
    /// lets them. Matters only to a ring with [`Ring::prepare_disk`].
    pub registers_disk: bool,
}

impl Default for RingConfig {
    fn default() -> Self {
        Self {
            entries: 4096,
            buffers: 256,
            buffer_bytes: 16 << 10,
            shares_waits: true,
            registers_disk: true,
        }
    }
}

/// One io_uring, its buffers and its sockets. Not `Send`: a ring stays on the thread that made it.
pub struct Ring {
    pub(super) kernel: Kernel,
    pub(super) buffers: BufferRing,
    pub(super) sockets: SocketTable,
    pub(super) listeners: Vec<ListenerSlot>,
    /// Sockets whose receive ended because every buffer was lent, the first one first.
    pub(super) starved: VecDeque<SocketId>,
    /// How many of them receive again in one turn: half as many as there are buffers. The other
    /// half is for sockets whose bytes come meanwhile, so that a herd does not keep the buffers
    /// from all others, nor makes each turn long for receives that find none.
    fed_per_turn: usize,
    /// Files and the buffer for durable writes; `None`: this ring writes none.
    pub(super) disk: Option<Box<Disk>>,
    pub(super) registers_disk: bool,
    /// Number of the present turn, counted from 1.
    pub(super) turn: u64,
    waker: Waker,
    /// Completions of the present turn as the kernel wrote them. The vector is kept for its
    /// allocation.
    events: Vec<Event>,
    completions_per_turn: usize,
    /// Makes the ring not `Send`: with SINGLE_ISSUER only the thread that made the ring may enter
    /// it.
    not_send: PhantomData<*const ()>,
}

/// The addresses at the other ends of a ring's connections.
#[derive(Clone, Copy)]
pub struct FarEnds<'r> {
    sockets: &'r SocketTable,
}

impl FarEnds<'_> {
    /// The address at the other end; `None`: the socket is closed or not connected. Cost: a system
    /// call.
    pub fn of(&self, socket: SocketId) -> Option<SocketAddr> {
        self.sockets.peer_of(socket)
    }
}

impl Ring {
    /// Makes a ring on the calling thread (SINGLE_ISSUER, DEFER_TASKRUN, COOP_TASKRUN, SUBMIT_ALL).
    pub fn new(config: &RingConfig) -> Result<Ring, RingError> {
        let kernel = Kernel::new(config.entries, config.shares_waits)?;
        let buffers = BufferRing::new(config.buffers, config.buffer_bytes)
            .map_err(|error| RingError::new(Step::MapBuffers, error))?;
        // SAFETY: this ring owns both. Its drop ends every receive before it frees the buffers, or
        // leaks the buffers.
        unsafe { kernel.register_buffers(&buffers)? };
        let waker = Waker::new().map_err(|error| RingError::new(Step::MakeWaker, error))?;
        let mut ring = Ring {
            kernel,
            buffers,
            sockets: SocketTable::default(),
            listeners: Vec::new(),
            starved: VecDeque::new(),
            fed_per_turn: usize::from(config.buffers / 2).max(1),
            disk: None,
            registers_disk: config.registers_disk,
            turn: 0,
            waker,
            events: Vec::new(),
            completions_per_turn: config.entries as usize,
            not_send: PhantomData,
        };
        ring.watch_waker();
        Ok(ring)
    }

    /// Begins to accept on `listener` (multishot). The ring owns the listener until
    /// [`Ring::stop_listening`]. Accepted sockets have the owner 0.
    pub fn listen(&mut self, listener: Listener) {
        self.listen_as(listener, 0);
    }

    /// Like [`Ring::listen`]. Accepted sockets have the owner `owner`.
    pub fn listen_as(&mut self, listener: Listener, owner: u64) {
        self.add_listener(listener, owner);
    }

    /// Stops accepting and closes the listeners. The port is free after the next turn.
    pub fn stop_listening(&mut self) {
        self.remove_listeners();
    }

    /// Begins to connect. The result comes as [`Completion::Connected`]. Error: no socket can be
    /// made (EMFILE). Cost: two system calls here; the connect itself is submitted with the next
    /// turn.
    pub fn connect(&mut self, address: SocketAddr, owner: u64) -> Result<SocketId, Errno> {
        self.connect_from(&[], address, owner)
    }

    /// Like [`Ring::connect`], from the first of `sources` that this machine has. If it has none of
    /// them, the kernel chooses an address.
    pub fn connect_from(
        &mut self,
        sources: &[IpAddr],
        address: SocketAddr,
        owner: u64,
    ) -> Result<SocketId, Errno> {
        let socket = new_socket(address).map_err(|error| Errno::of(&error))?;
        let _ =
            sources.iter().any(|source| socket.bind(&SocketAddr::new(*source, 0).into()).is_ok());
        Ok(self.begin_connecting(socket.into(), SockAddr::from(address), owner))
    }

    /// Takes ownership of a connected stream socket that other code made.
    pub(super) fn adopt(&mut self, socket: OwnedFd, owner: u64) -> SocketId {
        self.sockets.insert(socket, owner)
    }

    /// Sets the number that completions of this socket carry. An accepted socket has its listener's
    /// owner before this call.
    pub fn set_owner(&mut self, socket: SocketId, owner: u64) {
        if let Some(socket) = self.sockets.get(socket) {
            socket.owner = owner;
        }
    }

    /// Begins to receive (multishot, provided buffers), or resumes after [`Ring::pause`]. Nothing
    /// is received after [`Completion::Ended`].
    pub fn receive(&mut self, socket: SocketId) {
        if let Some(found) = self.sockets.get(socket) {
            found.wants_bytes = true;
            self.begin_receiving(socket);
        }
    }

    /// Stops receiving, so that TCP pushes back. Bytes that the ring already has may still be
    /// delivered.
    pub fn pause(&mut self, socket: SocketId) {
        self.stop_receiving(socket);
    }

    /// Sends the whole of `buffer`. The ring owns the buffer until [`Completion::Sent`]. Panics if
    /// another send of the socket is in flight. A send to a stale id is dropped.
    pub fn send(&mut self, socket: SocketId, buffer: Vec<u8>) {
        self.begin_sending(socket, buffer);
    }

    /// Tells the other end that nothing more will be sent (shutdown of the write side). Bytes are
    /// still received, so that the other end reads the last answer before it can see a reset. Cost:
    /// one system call; needed only when this node ends a connection.
    pub fn finish(&mut self, socket: SocketId) {
        if let Some(found) = self.sockets.get(socket) {
            // The call fails if the other end is gone; the receive tells that.
            let _ = found.socket_ref().shutdown(std::net::Shutdown::Write);
        }
    }

    /// Closes the socket. No completion of the socket is delivered after this call. A buffer in
    /// flight is dropped when the kernel has completed its send. Stale ids are ignored.
    ///
    /// Bytes that the kernel has accepted are still sent. Bytes that the kernel has not accepted (a
    /// send without its [`Completion::Sent`]) are not.
    pub fn close(&mut self, socket: SocketId) {
        self.begin_closing(socket);
    }

    /// The bytes of a [`Completion::Received`] of the last turn, to be parsed in place. Panics if
    /// another turn was taken.
    pub fn bytes_mut(&mut self, received: &Received) -> &mut [u8] {
        self.buffers.bytes_mut(received.buffer, received.length, received.turn)
    }

    /// Like [`Ring::bytes_mut`], together with the addresses at the other ends, which can be asked
    /// while the bytes are parsed.
    pub fn bytes_and_ends(&mut self, received: &Received) -> (&mut [u8], FarEnds<'_>) {
        let Received { buffer, length, turn, .. } = *received;
        (self.buffers.bytes_mut(buffer, length, turn), FarEnds { sockets: &self.sockets })
    }

    /// The addresses at the other ends of the connections.
    pub fn far_ends(&self) -> FarEnds<'_> {
        FarEnds { sockets: &self.sockets }
    }

    /// Gets this ring ready for durable writes to up to `files` files, of at most `buffer_bytes` (a
    /// multiple of 4096, up to 1 GiB) each. Files and buffer are registered with the kernel. What
    /// the kernel does not register (RLIMIT_MEMLOCK, RLIMIT_NOFILE) is used without, and costs each
    /// write more ([`Ring::disk_registrations`]). Error: the buffer cannot be mapped. Panics if the
    /// ring is ready already. Cost: three system calls, and the buffer's memory is taken now.
    pub fn prepare_disk(&mut self, files: u32, buffer_bytes: usize) -> Result<(), RingError> {
        self.add_disk(files, buffer_bytes)
            .map_err(|error| RingError::new(Step::MapWriteBuffer, error))
    }

    /// What the kernel has registered for durable writes; `None`: the ring was not prepared.
    pub fn disk_registrations(&self) -> Option<DiskRegistrations> {
        self.disk.as_deref().map(Disk::registrations)
    }

    /// Puts `file` at `place`, below the number given to [`Ring::prepare_disk`]. The file that was
    /// there is closed with the next turn. Panics if a write to the place is in flight. Cost: one
    /// system call, none if files are not registered.
    pub fn keep_file(&mut self, place: u32, file: DurableFile) {
        self.replace_file(place, Some(file));
    }

    /// Closes the file at `place` with the next turn, if one is there. Panics if a write to the
    /// place is in flight. Cost: as [`Ring::keep_file`].
    pub fn drop_file(&mut self, place: u32) {
        self.replace_file(place, None);
    }

    /// Begins to write all of `bytes` at `offset` of the file at `place`. The write is submitted
    /// with the next turn, and its end comes as [`Completion::Written`]. It cannot be cancelled.
    /// Panics if a write is in flight, if no file is at the place, or if `bytes` or `offset` do not
    /// fit: both are multiples of 4096, and `bytes` is neither empty nor larger than the buffer.
    /// Cost: a copy of `bytes`, about 15 us per MiB.
    pub fn write_durably(&mut self, place: u32, offset: u64, bytes: &[u8]) {
        self.begin_writing(place, offset, bytes);
    }

    /// Whether a durable write is in flight: begun, without its [`Completion::Written`].
    pub fn is_writing(&self) -> bool {
        self.disk.as_deref().is_some_and(Disk::is_writing)
    }

    /// Gives the buffers of the last turn back, submits everything that was begun, waits as `wait`
    /// says, and fills `completions` (cleared first) in the order of events. A turn brings at most
    /// `entries` completions, and may end early without any. Cost: one io_uring_enter; none for a
    /// poll with nothing to submit or fetch.
    pub fn turn(&mut self, wait: Wait, completions: &mut Vec<Completion>) -> Result<(), RingError> {
        completions.clear();
        self.turn += 1;
        self.buffers.recycle();
        for _ in 0..self.fed_per_turn {
            let Some(socket) = self.starved.pop_front() else { break };
            self.begin_receiving(socket);
        }
        // Those that are left have bytes to be received.
        self.kernel.enter(if self.starved.is_empty() { wait } else { Wait::Poll })?;
        let mut events = std::mem::take(&mut self.events);
        self.kernel.fetch(self.completions_per_turn, &mut events);
        let mut woken = false;
        for event in events.drain(..) {
            match event.token.kind() {
                Kind::Receive => self.on_receive(event, completions),
                Kind::Send => self.on_send(event, completions),
                Kind::Connect => self.on_connect(event, completions),
                Kind::Accept => self.on_accept(event, completions),
                Kind::AcceptPause => self.on_accept_pause(event),
                Kind::WakerPoll => {
                    self.on_waker(event);
                    woken |= event.result >= 0;
                }
                Kind::Message => woken = true,
                Kind::Write => self.on_write(event, completions),
                Kind::Ignored => {}
            }
        }
        self.events = events;
        if woken {
            completions.push(Completion::Woken);
        }
        Ok(())
    }

    /// The address to which siblings send wakes.
    pub fn mailbox(&self) -> Mailbox {
        self.kernel.mailbox()
    }

    /// Wakes a sibling with MSG_RING, submitted with the next turn. A sibling that is gone is
    /// ignored.
    pub fn wake(&mut self, sibling: Mailbox) {
        self.kernel.message(sibling);
    }

    /// A handle with which threads without a ring wake this ring.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// How many sockets the ring holds, without listeners. A closed socket counts until its last
    /// operation has completed; the turn after that closes its descriptor.
    pub fn sockets(&self) -> usize {
        self.sockets.open()
    }

    /// How often the ring called io_uring_enter.
    pub fn enters(&self) -> u64 {
        self.kernel.enters()
    }

    /// How many of [`Ring::enters`] came between turns because the submission queue was full.
    pub fn early_submits(&self) -> u64 {
        self.kernel.early_submits()
    }

    /// How many of [`Ring::enters`] failed because the kernel had no memory.
    pub fn shortages(&self) -> u64 {
        self.kernel.shortages()
    }

    /// Whether the kernel has every operation that the ring uses.
    pub(super) fn has_operations(&self) -> Result<bool, RingError> {
        self.kernel.has_operations()
    }

    fn watch_waker(&mut self) {
        self.kernel.poll_readable(self.waker.raw_fd(), Token::of(Kind::WakerPoll));
    }

    fn on_waker(&mut self, event: Event) {
        if event.more() {
            return;
        }
        self.kernel.operation_ended();
        if event.result >= 0 {
            self.watch_waker();
        }
    }
}

impl Drop for Ring {
    /// Ends every operation and waits until the kernel has completed them. Memory of operations
    /// that have not completed within a second is leaked, never freed under the kernel. A socket
    /// operation has no reason to take so long. A write may: the disk decides, and nothing ends the
    /// write before.
    fn drop(&mut self) {
        self.remove_listeners();
        for socket in self.sockets.ids() {
            self.begin_closing(socket);
        }
        self.kernel.cancel(Token::of(Kind::WakerPoll));
        let mut completions = Vec::new();
        for _ in 0..DROP_TURNS_MAX {
            if self.kernel.operations() == 0 && !self.kernel.has_unsubmitted() {
                return;
            }
            let wait = if self.kernel.operations() == 0 {
                Wait::Poll
            } else {
                Wait::Until(clock::monotonic().plus_ms(DROP_TURN_MS))
            };
            if self.turn(wait, &mut completions).is_err() {
                break;
            }
            // The kernel accepted this socket during the drop: close it like the others.
            for completion in &completions {
                if let Completion::Accepted { socket, .. } = completion {
                    self.begin_closing(*socket);
                }
            }
        }
        self.sockets.leak_operations();
        self.buffers.leak();
        if let Some(disk) = &mut self.disk {
            disk.leak_write();
        }
    }
}

fn new_socket(address: SocketAddr) -> std::io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket)
}
