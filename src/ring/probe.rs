//! Checks that the kernel has what the ring needs, and says what is missing and how to get it.

// May panic: indices 1.
// Why it does not: fixed 1.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;

use super::completion::{Completion, Wait};
use super::error::{RingError, Step, kernel_release};
use super::uring::{Ring, RingConfig};
use super::{SocketId, clock};

/// Longest wait for an answer that needs no other process, in milliseconds. A busy machine takes
/// less.
const ANSWER_MS_MAX: u64 = 2_000;

/// What the kernel has, for the lines that a node logs at its start.
#[derive(Clone, Debug)]
pub struct KernelSupport {
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// Names of the features in use, e.g. `DEFER_TASKRUN`, `multishot recv`, `buffer rings`,
    /// `MSG_RING`.
    pub features: Vec<&'static str>,
}

/// Tries each needed feature on a small ring. The error names the missing feature and the remedy
/// (kernel below 6.1, `kernel.io_uring_disabled`, seccomp, memlock, open files). Cost: well below a
/// millisecond.
pub fn probe() -> Result<KernelSupport, RingError> {
    let small = RingConfig { entries: 8, buffers: 2, buffer_bytes: 64, ..RingConfig::default() };
    let mut ring = Ring::new(&small)?;
    if !ring.has_operations()? {
        return Err(RingError::new(Step::Operations, io::Error::from_raw_os_error(libc::ENOSYS)));
    }
    try_receiving(&mut ring)?;
    try_messages(&mut ring)?;
    Ok(KernelSupport {
        release: kernel_release(),
        // Multishot accept (5.19) is older than DEFER_TASKRUN (6.1), so a ring that was made has
        // it.
        features: vec![
            "SINGLE_ISSUER",
            "DEFER_TASKRUN",
            "multishot accept",
            "multishot recv",
            "buffer rings",
            "MSG_RING",
        ],
    })
}

/// Tries a multishot receive: receives twice into provided buffers.
fn try_receiving(ring: &mut Ring) -> Result<(), RingError> {
    let fail = |error| RingError::new(Step::MultishotReceive, error);
    let (ours, mut theirs) =
        UnixStream::pair().map_err(|error| RingError::new(Step::MakeSockets, error))?;
    let socket = ring.adopt(ours.into(), 0);
    ring.receive(socket);
    for byte in [b'1', b'2'] {
        theirs.write_all(&[byte]).map_err(fail)?;
        let got = receive_one(ring, socket, fail)?;
        if got != byte {
            return Err(fail(io::Error::from_raw_os_error(libc::EIO)));
        }
    }
    ring.close(socket);
    Ok(())
}

fn receive_one(
    ring: &mut Ring,
    socket: SocketId,
    fail: impl Fn(io::Error) -> RingError,
) -> Result<u8, RingError> {
    let give_up = clock::monotonic().plus_ms(ANSWER_MS_MAX);
    let mut completions = Vec::new();
    while clock::monotonic() < give_up {
        ring.turn(Wait::Until(give_up), &mut completions)?;
        for completion in &completions {
            match completion {
                Completion::Received { socket: from, bytes, .. } if *from == socket => {
                    return Ok(ring.bytes_mut(bytes)[0]);
                }
                Completion::Ended { error, .. } => {
                    let errno = error.map_or(libc::EIO, |errno| errno.0);
                    return Err(fail(io::Error::from_raw_os_error(errno)));
                }
                _ => {}
            }
        }
    }
    Err(fail(io::Error::from_raw_os_error(libc::ETIMEDOUT)))
}

/// Sends the ring a message from itself.
fn try_messages(ring: &mut Ring) -> Result<(), RingError> {
    ring.wake(ring.mailbox());
    let give_up = clock::monotonic().plus_ms(ANSWER_MS_MAX);
    let mut completions = Vec::new();
    while clock::monotonic() < give_up {
        ring.turn(Wait::Until(give_up), &mut completions)?;
        if completions.iter().any(|completion| matches!(completion, Completion::Woken)) {
            return Ok(());
        }
    }
    Err(RingError::new(Step::MessageRing, io::Error::from_raw_os_error(libc::ETIMEDOUT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_has_everything() {
        let support = probe().expect("these tests need Linux 6.1 or later with io_uring enabled");
        assert!(support.features.contains(&"DEFER_TASKRUN"));
        assert!(!support.release.is_empty());
    }
}
