//! Unpredictable bytes from the kernel.

/// `BYTES` unpredictable bytes. Cost: one system call, so not for the hot path.
pub fn unpredictable<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)
        .expect("a kernel with io_uring has getrandom(2), which does not fail");
    bytes
}
