//! Unpredictable bytes from the kernel.

// May panic: expectations 1.
// Why it does not: kernel 1.

/// `BYTES` unpredictable bytes. Cost: one system call, so not for the hot path.
pub fn unpredictable<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)
        .expect("a kernel with io_uring has getrandom(2), which does not fail");
    bytes
}
