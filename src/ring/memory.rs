//! The memory of the process, taken and touched before the first request, and kept.

use std::ffi::c_long;

/// `mi_option_purge_delay` of mimalloc 3. The sys crate exposes the call but not the number. The
/// test below checks it.
const PURGE_DELAY: i32 = 15;
const NEVER: c_long = -1;
/// Size of the pieces in which [`prefault`] takes memory.
const PIECE_BYTES: usize = 1 << 20;

/// Makes the allocator keep freed memory for the next use instead of giving it back to the kernel.
/// Giving memory back is a system call, and taking it again is a page fault; both would come inside
/// a core's turn. Call this once, before other threads run.
pub fn keep_freed_memory() {
    // SAFETY: the call writes one word of mimalloc's own option table. The call is not thread safe;
    // the caller makes it before any other thread exists.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, NEVER) }
}

/// Takes `bytes` from the kernel, touches every page, and leaves the memory to the allocator of the
/// calling thread, so that the first timers pay no page faults. The memory stays only after
/// [`keep_freed_memory`]. Cost: the kernel clears the memory, about 0.3 s per GiB on ordinary
/// machines.
pub fn prefault(bytes: u64) {
    let pieces = usize::try_from(bytes).unwrap_or(usize::MAX) / PIECE_BYTES;
    let touched: Vec<Vec<u8>> = (0..pieces).map(|_| vec![1; PIECE_BYTES]).collect();
    drop(std::hint::black_box(touched));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[global_allocator]
    static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

    fn resident_bytes() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
        let pages = statm.split(' ').nth(1).expect("the second field is the resident set");
        pages.parse::<u64>().expect("a number") * 4096
    }

    #[test]
    fn memory_once_touched_stays() {
        const BYTES: u64 = 128 << 20;
        const ALONE: &str = "CHRONOS_TEST_ALONE";
        // The test runs in a process of its own, because other tests of this binary take and free
        // memory at the same time.
        if std::env::var_os(ALONE).is_none() {
            let test = "ring::memory::tests::memory_once_touched_stays";
            let mut own = Command::new(std::env::current_exe().expect("this binary is known"));
            let output = own.args(["--exact", test]).env(ALONE, "1").output().expect("it runs");
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && told.contains("1 passed"), "{told}");
            return;
        }
        keep_freed_memory();
        let before = resident_bytes();
        prefault(BYTES);
        // Frees of other sizes would make the allocator purge memory that is due.
        for _ in 0..100 {
            drop(std::hint::black_box(vec![1_u8; 300 << 10]));
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let kept = resident_bytes().saturating_sub(before);
        assert!(kept >= BYTES * 9 / 10, "{kept} bytes of {BYTES} kept");
    }
}
