//! The memory of the process, taken and touched before the first request, and kept.

// May panic: assertions 1.
// Why it does not: ordered 1.

use std::ffi::{c_int, c_long};

/// `mi_option_purge_delay` of mimalloc 3. The sys crate exposes the call but not the number. The
/// test below checks it.
const PURGE_DELAY: i32 = 15;
const NEVER: c_long = -1;
/// Size of the pieces in which [`prefault`] takes memory.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of the smallest page of memory.
const PAGE_BYTES: usize = 4096;

/// Makes the allocator keep freed memory for the next use instead of giving it back to the kernel.
/// Giving memory back is a system call, and taking it again is a page fault; both would come inside
/// a core's turn. Call this once, before other threads run.
pub fn keep_freed_memory() {
    // SAFETY: the call writes one word of mimalloc's own option table. The call is not thread safe;
    // the caller makes it before any other thread exists.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, NEVER) }
}

/// Lets this process have no huge pages. The kernel clears a huge page of 2 MiB at its first touch,
/// in the middle of a turn, and gives it whole although the allocator uses a part: a timer took 188
/// bytes in place of 160, and a create twice the time while timers grow (docs/performance.md).
/// Where the kernel does not know the call, all stays as it was. Call this before memory is taken.
pub fn refuse_huge_pages() {
    // SAFETY: the call changes a flag of this process and takes numbers only.
    let _ = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
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

/// Brings the memory of an empty chunk into the process, so that the first use of it pays no page
/// fault. If the kernel has no memory, the first use pays, or the kernel's OOM killer decides.
/// Cost: the kernel clears the memory.
pub fn populate<T>(chunk: &mut Vec<T>) {
    // The pages at the ends belong to neighbours as well; to populate them does no harm.
    advise(chunk, 0, libc::MADV_POPULATE_WRITE);
}

/// Gives the memory of an empty chunk back to the kernel. The next use pays page faults again.
pub fn discard<T>(chunk: &mut Vec<T>) {
    advise(chunk, PAGE_BYTES - 1, libc::MADV_DONTNEED);
}

/// Advises the kernel of the pages of an empty chunk: of those that the chunk shares with others as
/// well (`inwards` 0), or of those that are the chunk's alone (`inwards` a page less one).
fn advise<T>(chunk: &mut Vec<T>, inwards: usize, advice: c_int) {
    assert!(chunk.is_empty(), "advice is given of memory without contents");
    let room = chunk.spare_capacity_mut().as_mut_ptr_range();
    let (begin, end) = (room.start.addr() + inwards, room.end.addr() + PAGE_BYTES - 1 - inwards);
    let (first, end) = (begin / PAGE_BYTES * PAGE_BYTES, end / PAGE_BYTES * PAGE_BYTES);
    let Some(bytes) = end.checked_sub(first).filter(|&bytes| bytes > 0) else { return };
    let first = room.start.cast::<u8>().wrapping_sub(room.start.addr()).wrapping_add(first);
    // SAFETY: populating changes no contents. Pages that are given up read as zeros afterwards, and
    // they hold nothing but room of `chunk`, which this call borrows and which has no contents. The
    // kernel checks that the pages are this process's.
    let _ = unsafe { libc::madvise(first.cast(), bytes, advice) };
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::ring::thread_usage;

    #[global_allocator]
    static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

    fn resident_bytes() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
        let pages = statm.split(' ').nth(1).expect("the second field is the resident set");
        pages.parse::<u64>().expect("a number") * 4096
    }

    #[test]
    fn huge_pages_can_be_refused() {
        // The flag is the whole process's; tests beside this one do not mind.
        refuse_huge_pages();
        // SAFETY: the call takes numbers only.
        assert_eq!(unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) }, 1);
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

    #[test]
    fn a_populated_chunk_is_used_without_page_faults_and_a_discarded_one_with_some() {
        const LEN: usize = 8 << 20;
        let faults_of_use = |chunk: &mut Vec<u64>| {
            let before = thread_usage().page_faults;
            chunk.resize(LEN, 7);
            assert!(chunk.iter().all(|&number| number == 7));
            chunk.clear();
            thread_usage().page_faults - before
        };
        let mut chunk = Vec::with_capacity(LEN);
        populate(&mut chunk);
        let populated = faults_of_use(&mut chunk);
        discard(&mut chunk);
        let discarded = faults_of_use(&mut chunk);
        // Pages may be huge: the 64 MiB are 32 of them at least. The test's stack may grow.
        assert!(populated <= 8 && discarded >= 16, "{populated} faults, then {discarded}");
    }

    #[test]
    fn a_chunk_within_one_page_loses_nothing_when_it_is_discarded() {
        let mut held = vec![9_u8; 100];
        let mut chunk = Vec::<u8>::with_capacity(100);
        populate(&mut chunk);
        discard(&mut chunk);
        discard(&mut Vec::<u8>::new());
        held.push(9);
        assert!(held.iter().all(|&byte| byte == 9));
    }
}
