//! Why a ring cannot be made or driven, and what the operator can do. Pure but for the kernel's
//! release: error number in, sentence out.

use std::io;

/// What a container's seccomp profile must allow.
const ALLOW: &str = "allow io_uring_setup, io_uring_enter and io_uring_register in its seccomp \
                     profile, as tuning/seccomp.json does";

/// Why a ring could not be made or driven. The text says what to change.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// A system call failed.
    #[error("{what}: {source}. {remedy}")]
    Kernel {
        /// What the ring tried to do.
        what: &'static str,
        /// The error of the system call.
        source: io::Error,
        /// What the operator can do.
        remedy: String,
    },
}

/// What a ring was doing when the kernel refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// io_uring_setup with flags that Linux 6.1 introduced.
    Setup,
    /// Mapping the receive buffers.
    MapBuffers,
    /// Registering the receive buffers.
    RegisterBuffers,
    /// Mapping the buffer of durable writes.
    MapWriteBuffer,
    /// Making the waker's eventfd.
    MakeWaker,
    /// Making two connected sockets on which features are tried.
    MakeSockets,
    /// Trying a multishot receive.
    MultishotReceive,
    /// Asking the kernel which operations it has.
    Operations,
    /// Sending a MSG_RING to the ring itself.
    MessageRing,
    /// Entering the kernel in a turn.
    Enter,
}

impl Step {
    const fn what(self) -> &'static str {
        match self {
            Step::Setup => {
                "cannot make an io_uring (io_uring_setup with SINGLE_ISSUER, DEFER_TASKRUN, \
                 COOP_TASKRUN, SUBMIT_ALL)"
            }
            Step::MapBuffers => "cannot map receive buffers (mmap)",
            Step::RegisterBuffers => "cannot register receive buffers (IORING_REGISTER_PBUF_RING)",
            Step::MapWriteBuffer => "cannot map the buffer of durable writes (mmap)",
            Step::MakeWaker => "cannot make an eventfd",
            Step::MakeSockets => "cannot make a socket pair",
            Step::MultishotReceive => "multishot receive does not work (IORING_OP_RECV)",
            Step::Operations => {
                "io_uring lacks an operation (ACCEPT, CONNECT, SEND, RECV, CLOSE, POLL_ADD, \
                 TIMEOUT, ASYNC_CANCEL, MSG_RING)"
            }
            Step::MessageRing => "messages between rings do not work (IORING_OP_MSG_RING)",
            Step::Enter => "io_uring_enter failed",
        }
    }
}

impl RingError {
    /// The error of `source` at `step`, with the remedy for the running kernel.
    pub(super) fn new(step: Step, source: io::Error) -> RingError {
        let errno = source.raw_os_error().unwrap_or(libc::EIO);
        let remedy = remedy(errno, step, &kernel_release());
        RingError::Kernel { what: step.what(), source, remedy }
    }
}

/// The running kernel's release, as `uname -r` prints it, or `unknown`.
pub(super) fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |release| release.trim().to_owned())
}

/// What the operator can do about `errno` at `step` on a kernel of this `release`.
pub(super) fn remedy(errno: i32, step: Step, release: &str) -> String {
    let old = is_older_than_6_1(release);
    match errno {
        libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP if old != Some(false) => {
            format!("Linux 6.1 or later is needed, this is {release}: upgrade the kernel")
        }
        libc::ENOSYS => format!(
            "Linux {release} is new enough, so io_uring is compiled out (CONFIG_IO_URING=y is \
             needed) or hidden by a seccomp profile: in a container {ALLOW}"
        ),
        libc::EPERM | libc::EACCES => format!(
            "io_uring is forbidden here: run `sysctl kernel.io_uring_disabled=0`, and in a \
             container {ALLOW}"
        ),
        libc::ENOMEM => "Not enough memory may be locked or mapped: raise `ulimit -l` (systemd: \
             LimitMEMLOCK=infinity) or the memory limit of the container"
            .to_owned(),
        libc::EMFILE => {
            "Too few files may be open: raise `ulimit -n` (systemd: LimitNOFILE=1048576)".to_owned()
        }
        libc::ENFILE => {
            "The whole system has too many files open: raise `sysctl fs.file-max`".to_owned()
        }
        libc::EBADR if step == Step::Enter => {
            "The kernel had no memory for completions and dropped some, so this node's state is \
             unknown: give it more memory and restart it"
                .to_owned()
        }
        _ => format!("Unexpected on Linux {release} (6.1 or later is needed): please report it"),
    }
}

/// Whether a release such as `5.15.0-91-generic` is below 6.1; `None`: the release has another
/// form.
fn is_older_than_6_1(release: &str) -> Option<bool> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let major: u32 = numbers.next()?.parse().ok()?;
    let minor: u32 = numbers.next()?.parse().ok()?;
    Some((major, minor) < (6, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_names_its_remedy() {
        let new = "6.18.1-arch";
        let cases = [
            (
                libc::EINVAL,
                Step::Setup,
                "5.15.0-91-generic",
                "6.1 or later is needed, this is 5.15.0",
            ),
            (libc::ENOSYS, Step::Setup, "4.19.0", "upgrade the kernel"),
            (libc::EINVAL, Step::RegisterBuffers, "unknown", "this is unknown: upgrade"),
            (libc::ENOSYS, Step::Setup, new, "seccomp profile"),
            (libc::ENOSYS, Step::Setup, new, "CONFIG_IO_URING=y"),
            (libc::EPERM, Step::Setup, new, "sysctl kernel.io_uring_disabled=0"),
            (libc::EPERM, Step::Setup, new, "seccomp profile"),
            (libc::ENOMEM, Step::Setup, new, "ulimit -l"),
            (libc::ENOMEM, Step::RegisterBuffers, new, "LimitMEMLOCK"),
            (libc::EMFILE, Step::MakeWaker, new, "ulimit -n"),
            (libc::ENFILE, Step::MakeSockets, new, "fs.file-max"),
            (libc::EBADR, Step::Enter, new, "dropped some"),
            (libc::EINVAL, Step::MultishotReceive, new, "Unexpected on Linux 6.18.1-arch"),
        ];
        for (errno, step, release, expected) in cases {
            let text = remedy(errno, step, release);
            assert!(text.contains(expected), "{errno} at {step:?} on {release}: {text}");
        }
    }

    #[test]
    fn releases_are_compared_as_numbers() {
        for (release, older) in [
            ("5.19.17", Some(true)),
            ("6.0.9-rc1", Some(true)),
            ("6.1.0-18-amd64", Some(false)),
            ("6.10.1", Some(false)),
            ("10.0", Some(false)),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(is_older_than_6_1(release), older, "{release}");
        }
    }

    #[test]
    fn the_whole_sentence_reads_well() {
        let error = RingError::Kernel {
            what: Step::Setup.what(),
            source: io::Error::from_raw_os_error(libc::EPERM),
            remedy: remedy(libc::EPERM, Step::Setup, "6.8.0"),
        };
        assert_eq!(
            error.to_string(),
            "cannot make an io_uring (io_uring_setup with SINGLE_ISSUER, DEFER_TASKRUN, \
             COOP_TASKRUN, SUBMIT_ALL): Operation not permitted (os error 1). io_uring is \
             forbidden here: run `sysctl kernel.io_uring_disabled=0`, and in a container allow \
             io_uring_setup, io_uring_enter and io_uring_register in its seccomp profile, as \
             tuning/seccomp.json does"
        );
    }
}
