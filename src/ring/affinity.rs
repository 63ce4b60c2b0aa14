//! Placement of threads on CPU cores, and their CPU time.

// May panic: assertions 1, indices 1.
// Why it does not: fixed 1, kernel 1.

use std::io;

use super::clock;

/// Words of a CPU mask: 8192 cores, the most that Linux is built for.
const MASK_WORDS: usize = 128;

/// The cores that this process may run on (sched_getaffinity), in ascending order.
pub fn available_cores() -> io::Result<Vec<usize>> {
    let mut mask = [0_u64; MASK_WORDS];
    // SAFETY: the kernel writes at most the size given, to `mask`, which outlives the call.
    let result = unsafe {
        libc::sched_getaffinity(0, size_of_val(&mask), (&raw mut mask).cast::<libc::cpu_set_t>())
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let is_set = |core: &usize| mask[core / 64] >> (core % 64) & 1 == 1;
    Ok((0..MASK_WORDS * 64).filter(is_set).collect())
}

/// Pins the calling thread to one core. `EINVAL`: the machine, or the set of this process, does not
/// have the core.
pub fn pin_to_core(core: usize) -> io::Result<()> {
    let mut mask = [0_u64; MASK_WORDS];
    let Some(word) = mask.get_mut(core / 64) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    *word = 1 << (core % 64);
    // SAFETY: the kernel reads the size given from `mask`, which outlives the call.
    let result = unsafe {
        libc::sched_setaffinity(0, size_of_val(&mask), (&raw const mask).cast::<libc::cpu_set_t>())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the calling thread's timer slack (prctl PR_SET_TIMERSLACK), so that a wait ends on time.
/// The smallest slack is 1 ns. `ns` of 0 restores the slack with which the thread began (prctl(2)).
pub fn set_timer_slack_ns(ns: u64) -> io::Result<()> {
    // SAFETY: PR_SET_TIMERSLACK takes a number, no memory.
    let result = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns as libc::c_ulong, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What a thread has used since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadUsage {
    /// CPU time, user and system, in nanoseconds (the kernel tells microseconds).
    pub cpu_ns: u64,
    /// Page faults, with and without input.
    pub page_faults: u64,
}

/// What the calling thread has used. Cost: one system call.
pub fn thread_usage() -> ThreadUsage {
    // SAFETY: `rusage` is numbers only, for which zeros are values.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes to `usage`, which outlives the call.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    assert!(result == 0, "a thread may ask for its own usage");
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    ThreadUsage {
        cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
        page_faults: (usage.ru_minflt + usage.ru_majflt) as u64,
    }
}

/// CPU time (user + system) of the whole process, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    clock::read_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinning_leaves_one_core() {
        std::thread::spawn(|| {
            let cores = available_cores().expect("the mask can be read");
            let last = *cores.last().expect("this thread runs somewhere");
            pin_to_core(last).expect("an available core can be pinned to");
            assert_eq!(available_cores().expect("the mask can be read"), [last]);
        })
        .join()
        .expect("no assertion failed");
    }

    #[test]
    fn absent_cores_are_errors() {
        for core in [MASK_WORDS * 64 - 1, MASK_WORDS * 64, usize::MAX] {
            assert!(pin_to_core(core).is_err(), "core {core}");
        }
    }

    #[test]
    fn timer_slack_is_taken() {
        std::thread::spawn(|| {
            set_timer_slack_ns(1).expect("one's own slack can be set");
            // SAFETY: PR_GET_TIMERSLACK takes no memory.
            assert_eq!(unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) }, 1);
        })
        .join()
        .expect("no assertion failed");
    }

    #[test]
    fn cpu_time_grows_with_work_of_this_thread_only() {
        // The process is read first, so that the work between the two readings counts for the
        // process, too.
        let process = process_cpu_ns();
        let thread = thread_usage().cpu_ns;
        let mut sum = 0_u64;
        while thread_usage().cpu_ns < thread + 1_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(process_cpu_ns() >= process + 1_000_000);
    }
}
