//! Does this kernel have what the ring needs? If not: what is missing and how to get it.

use super::RingError;

/// What was found, for the start-up lines.
#[derive(Clone, Debug)]
pub struct KernelSupport {
    /// `uname -r`.
    pub release: String,
    /// Names of the features in use, e.g. `DEFER_TASKRUN`, `multishot recv`, `buffer rings`, `MSG_RING`.
    pub features: Vec<&'static str>,
}

/// Tries each needed feature on a small ring. The error names the missing thing and the remedy
/// (kernel below 6.1, `kernel.io_uring_disabled`, seccomp, memlock, open files).
pub fn probe() -> Result<KernelSupport, RingError> {
    todo!()
}
