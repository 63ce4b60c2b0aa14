//! The one door to the kernel: io_uring, buffers, sockets, durable files, clocks, affinity. The
//! only room with `unsafe`.
//!
//! A [`Ring`] belongs to the thread that made it. [`Ring::turn`] is the one place that enters the
//! kernel, and everything that happens on the ring comes back from it as [`Completion`]s. The ring
//! owns the sockets, the files that it writes to, and every byte that the kernel may still touch.
//! Callers hold [`SocketId`]s and places of files, hand over `Vec<u8>`s, and have what goes to a
//! file copied. So no caller can free memory under a running operation.

mod accepting;
mod affinity;
mod buffers;
mod clock;
mod completion;
mod disk;
mod error;
mod files;
mod kernel;
mod listen;
mod mapping;
mod memory;
mod probe;
mod process;
mod random;
mod signals;
mod sockets;
mod token;
mod traffic;
mod uring;
mod wait_area;
mod waker;
mod writing;

pub use affinity::{
    available_cores, pin_to_core, process_cpu_ns, set_timer_slack_ns, thread_usage,
};
pub use clock::{clock_discipline, monotonic, now};
pub use completion::{Completion, Errno, Received, SocketId, Wait};
pub use disk::{DiskRegistrations, DurableFile};
pub use error::RingError;
pub use files::{
    DirectoryLock, boot_id, create_anew, create_zeroed, measure_sync, open_at_once, sync_directory,
};
pub use listen::{Listener, is_of_this_machine, raise_open_files_limit};
pub use memory::{discard, keep_freed_memory, populate, prefault, refuse_huge_pages};
pub use probe::{KernelSupport, probe};
pub use process::{
    Daemon, Launcher, daemonise, lock_file, redirect_standard_error, refuse_core_dumps, user_id,
    write_standard_error,
};
pub use random::unpredictable;
pub use signals::{hold_signals, ignore_meaningless_signals, let_signals_through};
pub use uring::{FarEnds, Ring, RingConfig};
pub use waker::{Mailbox, Waker};
