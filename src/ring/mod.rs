//! The one door to the kernel: io_uring, buffers, sockets, clocks, affinity. The only room with
//! `unsafe`.
//!
//! A [`Ring`] belongs to the thread that made it. [`Ring::turn`] is the one place that enters the
//! kernel, and everything that happens on the ring comes back from it as [`Completion`]s. The ring
//! owns the sockets and every byte that the kernel may still touch. Callers hold [`SocketId`]s and
//! hand over `Vec<u8>`s, so no caller can free memory under a running operation.

mod accepting;
mod affinity;
mod buffers;
mod clock;
mod completion;
mod error;
mod kernel;
mod listen;
mod mapping;
mod memory;
mod probe;
mod process;
mod random;
mod sockets;
mod token;
mod traffic;
mod uring;
mod wait_area;
mod waker;

pub use affinity::{
    available_cores, pin_to_core, process_cpu_ns, set_timer_slack_ns, thread_usage,
};
pub use clock::{monotonic, now};
pub use completion::{Completion, Errno, Received, SocketId, Wait};
pub use error::RingError;
pub use listen::{Listener, raise_open_files_limit};
pub use memory::{discard, keep_freed_memory, populate, prefault, refuse_huge_pages};
pub use probe::{KernelSupport, probe};
pub use process::{Daemon, Launcher, daemonise, lock_file, redirect_standard_error, user_id};
pub use random::unpredictable;
pub use uring::{FarEnds, Ring, RingConfig};
pub use waker::{Mailbox, Waker};
