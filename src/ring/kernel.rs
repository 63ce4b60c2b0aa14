//! The submission and completion queues. Only this file writes requests for the kernel and calls
//! io_uring_enter. This file does not know the state of sockets and files.

// May panic: expectations 1.
// Why it does not: kernel 1.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode};
use socket2::SockAddr;

use super::buffers::{self, BufferRing};
use super::clock;
use super::completion::Wait;
use super::error::{RingError, Step};
use super::token::{Kind, Token};
use super::wait_area::{self, WaitArea, WaitArgument};
use super::waker::Mailbox;

/// Flag of io_uring_enter(2): look for completions and run deferred task work. Nothing else runs
/// deferred task work.
const ENTER_GETEVENTS: u32 = 1 << 0;
/// Flag of io_uring_enter(2): the argument is a struct io_uring_getevents_arg, used here for its
/// timeout.
const ENTER_EXT_ARG: u32 = 1 << 3;
/// Entries of the completion queue per entry of the submission queue. A multishot operation
/// completes many times.
const COMPLETIONS_PER_ENTRY: u32 = 4;
/// Most bytes of one send operation, 1 MiB. Further bytes follow in another operation. Answers are
/// far shorter, so the limit costs them nothing, and every test with a longer answer tests partial
/// sends.
const SEND_BYTES_MAX: usize = 1 << 20;
/// Longest wait for an instant, in nanoseconds: 1 s, where the kernel waits by a clock that stands
/// still while the machine is suspended. Events that came due meanwhile are seen within this time.
const WAIT_NS_MAX: u64 = 1_000_000_000;
/// Pause after a call for which the kernel had no memory.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(1);
/// Pause after a failed accept, 100 ms, so that a process without free descriptors does not spin on
/// its backlog.
static ACCEPT_PAUSE: Timespec = Timespec::new().nsec(100_000_000);

/// Stands for no file in the table of registered files.
const NO_FILE: RawFd = -1;
/// Place of the only registered buffer, which holds the bytes of durable writes.
const WRITE_BUFFER: u16 = 0;

/// Where a write goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteTarget {
    pub(super) file: WriteFile,
    /// Where in the file the first byte goes.
    pub(super) offset: u64,
    /// Whether the bytes lie in the buffer that was given to [`Kernel::register_write_buffer`].
    pub(super) is_buffer_registered: bool,
}

/// How a write names its file.
#[derive(Clone, Copy, Debug)]
pub(super) enum WriteFile {
    /// By its descriptor.
    Descriptor(RawFd),
    /// By its place in the table of registered files.
    Place(u32),
}

/// One completion, copied out of the completion queue.
#[derive(Clone, Copy)]
pub(super) struct Event {
    pub(super) token: Token,
    /// A count, a descriptor, or a negative error number, depending on the operation.
    pub(super) result: i32,
    flags: u32,
}

impl Event {
    /// Whether the operation continues and will complete again.
    pub(super) fn more(&self) -> bool {
        cqueue::more(self.flags)
    }

    /// The receive buffer that the kernel lends with this completion.
    pub(super) fn buffer(&self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }
}

/// An io_uring and the requests that wait for room in it.
pub(super) struct Kernel {
    uring: IoUring,
    /// Where waits have their arguments, if the kernel can read them there. It outlives the ring.
    waits: Option<WaitArea>,
    /// Requests that found the submission queue full. They are submitted first, in order.
    backlog: VecDeque<Entry>,
    /// How many operations have begun without a last completion that the ring has seen.
    operations: usize,
    enters: u64,
    shortages: u64,
    early_submits: u64,
}

impl Kernel {
    /// Makes an io_uring for the calling thread alone. If `entries` is more than the kernel allows,
    /// the ring gets as many as the kernel allows. `shares_waits`: see
    /// [`RingConfig`](super::RingConfig).
    pub(super) fn new(entries: u32, shares_waits: bool) -> Result<Kernel, RingError> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_clamp()
            .setup_r_disabled()
            .setup_cqsize(entries.saturating_mul(COMPLETIONS_PER_ENTRY))
            .build(entries)
            .map_err(|error| RingError::new(Step::Setup, error))?;
        let waits = if shares_waits { WaitArea::register(&uring) } else { None };
        uring
            .submitter()
            .register_enable_rings()
            .map_err(|error| RingError::new(Step::Setup, error))?;
        Ok(Kernel {
            uring,
            waits,
            backlog: VecDeque::new(),
            operations: 0,
            enters: 0,
            shortages: 0,
            early_submits: 0,
        })
    }

    /// Registers receive buffers with the kernel.
    ///
    /// # Safety
    ///
    /// `buffers` must outlive every receive operation of this kernel, or be leaked.
    pub(super) unsafe fn register_buffers(&self, buffers: &BufferRing) -> Result<(), RingError> {
        let submitter = self.uring.submitter();
        // SAFETY: the mapping begins with `count` entries and lives as long as the caller promises.
        unsafe {
            submitter.register_buf_ring_with_flags(
                buffers.address(),
                buffers.count(),
                buffers::GROUP,
                0,
            )
        }
        .map_err(|error| RingError::new(Step::RegisterBuffers, error))
    }

    /// Registers a table for `places` files, which are put in later.
    pub(super) fn register_files(&self, places: u32) -> io::Result<()> {
        self.uring.submitter().register_files_sparse(places)
    }

    /// Puts a file at a place of the registered table, or takes the file that is there out. The
    /// table keeps a file open of its own, so the caller may close `fd`. Cost: one system call.
    pub(super) fn put_file(&self, place: u32, fd: Option<RawFd>) -> io::Result<()> {
        self.uring.submitter().register_files_update(place, &[fd.unwrap_or(NO_FILE)]).map(drop)
    }

    /// Registers the buffer of durable writes: the kernel pins its pages once, and no write pays
    /// for it. Error: too much memory would be locked (RLIMIT_MEMLOCK).
    ///
    /// # Safety
    ///
    /// `buffer` must stay mapped as long as this kernel has a write, or be leaked.
    pub(super) unsafe fn register_write_buffer(&self, buffer: &[u8]) -> io::Result<()> {
        let start = buffer.as_ptr().cast_mut().cast();
        let buffer = libc::iovec { iov_base: start, iov_len: buffer.len() };
        // SAFETY: the caller promises that the memory stays.
        unsafe { self.uring.submitter().register_buffers(&[buffer]) }
    }

    /// Whether the kernel has every operation that each ring uses. The writes of rings with a disk
    /// are older than what [`Kernel::new`] asks for.
    pub(super) fn has_operations(&self) -> Result<bool, RingError> {
        let mut probe = Probe::new();
        self.uring
            .submitter()
            .register_probe(&mut probe)
            .map_err(|error| RingError::new(Step::Operations, error))?;
        let needed = [
            opcode::Accept::CODE,
            opcode::AsyncCancel::CODE,
            opcode::Close::CODE,
            opcode::Connect::CODE,
            opcode::MsgRingData::CODE,
            opcode::PollAdd::CODE,
            opcode::Recv::CODE,
            opcode::Send::CODE,
            opcode::Timeout::CODE,
        ];
        Ok(needed.iter().all(|&code| probe.is_supported(code)))
    }

    /// Begins a multishot receive into the registered buffers.
    pub(super) fn receive(&mut self, fd: RawFd, token: Token) {
        self.begin(opcode::RecvMulti::new(Fd(fd), buffers::GROUP).build(), token);
    }

    /// Begins to send `bytes`, at most [`SEND_BYTES_MAX`] of them. The kernel waits for room by
    /// itself (MSG_WAITALL).
    ///
    /// # Safety
    ///
    /// `bytes` must stay in place, unchanged, until the completion with `token` has been seen.
    pub(super) unsafe fn send(&mut self, fd: RawFd, bytes: &[u8], token: Token) {
        let length = bytes.len().min(SEND_BYTES_MAX) as u32;
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        self.begin(opcode::Send::new(Fd(fd), bytes.as_ptr(), length).flags(flags).build(), token);
    }

    /// Begins to write `bytes`, at most 1 GiB. The kernel may write fewer.
    ///
    /// # Safety
    ///
    /// `bytes` must stay in place, unchanged, until the completion with `token` has been seen. They
    /// lie in the registered buffer if `target` says so.
    pub(super) unsafe fn write(&mut self, target: WriteTarget, bytes: &[u8], token: Token) {
        let (fd, flags) = match target.file {
            WriteFile::Descriptor(fd) => (Fd(fd), Flags::empty()),
            WriteFile::Place(place) => (Fd(place as RawFd), Flags::FIXED_FILE),
        };
        let (start, length) = (bytes.as_ptr(), bytes.len() as u32);
        let entry = if target.is_buffer_registered {
            let write = opcode::WriteFixed::new(fd, start, length, WRITE_BUFFER);
            write.offset(target.offset).build()
        } else {
            opcode::Write::new(fd, start, length).offset(target.offset).build()
        };
        self.begin(entry.flags(flags), token);
    }

    /// Begins to connect `fd` to `address`.
    ///
    /// # Safety
    ///
    /// `address` must stay in place until the completion with `token` has been seen.
    pub(super) unsafe fn connect(&mut self, fd: RawFd, address: &SockAddr, token: Token) {
        let entry = opcode::Connect::new(Fd(fd), address.as_ptr().cast(), address.len()).build();
        self.begin(entry, token);
    }

    /// Begins a multishot accept.
    pub(super) fn accept(&mut self, fd: RawFd, token: Token) {
        self.begin(opcode::AcceptMulti::new(Fd(fd)).flags(libc::SOCK_CLOEXEC).build(), token);
    }

    /// Begins the pause after a failed accept.
    pub(super) fn pause_accepting(&mut self, token: Token) {
        self.begin(opcode::Timeout::new(&raw const ACCEPT_PAUSE).build(), token);
    }

    /// Begins a multishot poll for readability.
    pub(super) fn poll_readable(&mut self, fd: RawFd, token: Token) {
        self.begin(opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32).multi(true).build(), token);
    }

    /// Asks the operation with `token` to end. The operation still completes, with ECANCELED if the
    /// request came in time.
    pub(super) fn cancel(&mut self, token: Token) {
        self.request(opcode::AsyncCancel::new(token.bits()).build());
    }

    /// Closes a descriptor. No operation on it may be left.
    pub(super) fn close(&mut self, fd: OwnedFd) {
        self.request(opcode::Close::new(Fd(fd.into_raw_fd())).build());
    }

    /// Makes a sibling's turn end.
    pub(super) fn message(&mut self, sibling: Mailbox) {
        let token = Token::of(Kind::Message);
        self.request(opcode::MsgRingData::new(Fd(sibling.ring_fd), 0, token.bits(), None).build());
    }

    /// Notes that the last completion of an operation has been seen.
    pub(super) fn operation_ended(&mut self) {
        self.operations = self
            .operations
            .checked_sub(1)
            .expect("every last completion belongs to an operation that was begun");
    }

    /// How many operations have begun without a last completion that the ring has seen.
    pub(super) fn operations(&self) -> usize {
        self.operations
    }

    /// Whether requests wait to be submitted.
    pub(super) fn has_unsubmitted(&mut self) -> bool {
        !self.backlog.is_empty() || !self.uring.submission().is_empty()
    }

    /// The address to which siblings send messages.
    pub(super) fn mailbox(&self) -> Mailbox {
        use std::os::fd::AsRawFd;
        Mailbox { ring_fd: self.uring.as_raw_fd() }
    }

    /// How often this ring called io_uring_enter.
    pub(super) fn enters(&self) -> u64 {
        self.enters
    }

    /// How many of [`Kernel::enters`] failed because the kernel had no memory.
    pub(super) fn shortages(&self) -> u64 {
        self.shortages
    }

    /// How many of [`Kernel::enters`] came in the middle of a turn because the submission queue was
    /// full.
    pub(super) fn early_submits(&self) -> u64 {
        self.early_submits
    }

    /// Submits requests, runs deferred work of the kernel, and waits as `wait` says. Cost: one
    /// io_uring_enter; none if `wait` is over and there is nothing to submit or fetch.
    pub(super) fn enter(&mut self, wait: Wait) -> Result<(), RingError> {
        self.move_backlog();
        let submission = self.uring.submission();
        let to_submit = submission.len() as u32;
        let flagged = submission.taskrun() || submission.cq_overflow();
        drop(submission);
        let outcome = match wait {
            Wait::Event => self.call(to_submit, 1, None),
            Wait::Until(instant) => match &mut self.waits {
                Some(_) if to_submit == 0 && !flagged && instant <= clock::monotonic() => Ok(()),
                Some(waits) => {
                    waits.set(instant);
                    self.call_until(to_submit)
                }
                None => match instant.since_ns(clock::monotonic()) {
                    0 if to_submit == 0 && !flagged => Ok(()),
                    0 => self.call(to_submit, 0, None),
                    ns => self.call(to_submit, 1, Some(ns.min(WAIT_NS_MAX))),
                },
            },
            Wait::Poll if to_submit == 0 && !flagged => Ok(()),
            Wait::Poll => self.call(to_submit, 0, None),
        };
        match outcome.as_ref().err().and_then(io::Error::raw_os_error) {
            // Time is up, a signal came, or completions must be fetched first. Requests that were
            // not submitted stay in the queue for the next turn.
            None | Some(libc::ETIME | libc::EINTR | libc::EBUSY) => Ok(()),
            // The kernel has no memory: a short sleep gives the rest of the machine time to free
            // some.
            Some(libc::EAGAIN | libc::ENOMEM) => {
                self.shortages += 1;
                std::thread::sleep(SHORTAGE_PAUSE);
                Ok(())
            }
            Some(_) => outcome.map_err(|error| RingError::new(Step::Enter, error)),
        }
    }

    /// Copies at most `limit` completions to `events` and gives their places back to the kernel.
    pub(super) fn fetch(&mut self, limit: usize, events: &mut Vec<Event>) {
        events.extend(self.uring.completion().take(limit).map(|entry| Event {
            token: Token::from_bits(entry.user_data()),
            result: entry.result(),
            flags: entry.flags(),
        }));
    }

    /// Begins an operation. An operation completes at least once.
    fn begin(&mut self, entry: Entry, token: Token) {
        self.operations += 1;
        self.push(entry.user_data(token.bits()));
    }

    /// Makes a request whose outcome does not matter. A request completes only if it fails.
    fn request(&mut self, entry: Entry) {
        let token = Token::of(Kind::Ignored);
        self.push(entry.flags(Flags::SKIP_SUCCESS).user_data(token.bits()));
    }

    fn push(&mut self, entry: Entry) {
        if self.backlog.is_empty() && self.try_push(&entry) {
            return;
        }
        self.backlog.push_back(entry);
        if self.backlog.len() == 1 {
            self.early_submits += 1;
            // An error here comes again in the turn's own enter, which reports it.
            let queued = self.uring.submission().len() as u32;
            let _ = self.call_flags(queued, 0, 0, None);
            self.move_backlog();
        }
    }

    fn move_backlog(&mut self) {
        while let Some(entry) = self.backlog.pop_front() {
            if !self.try_push(&entry) {
                self.backlog.push_front(entry);
                return;
            }
        }
    }

    fn try_push(&mut self, entry: &Entry) -> bool {
        // SAFETY: only this file builds entries. Of the entries that name memory, the callers of a
        // send, a connect and a write promise that the memory stays until the completion, and the
        // accept pause is static.
        unsafe { self.uring.submission().push(entry) }.is_ok()
    }

    /// Waits for an event until the instant that stands in the registered area.
    fn call_until(&mut self, to_submit: u32) -> io::Result<()> {
        self.enters += 1;
        let flags = ENTER_GETEVENTS | ENTER_EXT_ARG | wait_area::ENTER_FLAGS;
        // SAFETY: `to_submit` entries stand in the queue. No argument is passed: its place is the
        // offset 0 of the registered area, which holds a `WaitArgument`.
        unsafe { self.uring.submitter().enter::<WaitArgument>(to_submit, 1, flags, None) }.map(drop)
    }

    fn call(&mut self, to_submit: u32, minimum: u32, timeout_ns: Option<u64>) -> io::Result<()> {
        self.call_flags(to_submit, minimum, ENTER_GETEVENTS, timeout_ns).map(drop)
    }

    fn call_flags(
        &mut self,
        to_submit: u32,
        minimum: u32,
        flags: u32,
        timeout_ns: Option<u64>,
    ) -> io::Result<usize> {
        self.enters += 1;
        let submitter = self.uring.submitter();
        let Some(ns) = timeout_ns else {
            // SAFETY: no argument is passed, and `to_submit` entries stand in the queue.
            return unsafe { submitter.enter::<libc::sigset_t>(to_submit, minimum, flags, None) };
        };
        let timeout = Timespec::new().sec(ns / 1_000_000_000).nsec((ns % 1_000_000_000) as u32);
        let arguments = SubmitArgs::new().timespec(&timeout);
        let flags = flags | ENTER_EXT_ARG;
        // SAFETY: `arguments` is the structure that EXT_ARG announces. `arguments` and `timeout`
        // outlive the call.
        unsafe { submitter.enter(to_submit, minimum, flags, Some(&arguments)) }
    }
}
