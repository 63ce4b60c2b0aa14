//! CPU placement and accounting of threads.

use std::io;

/// The cores this process may run on (sched_getaffinity), ascending.
pub fn available_cores() -> io::Result<Vec<usize>> {
    todo!()
}

/// Pins the calling thread to one core.
pub fn pin_to_core(_core: usize) -> io::Result<()> {
    todo!()
}

/// Sets the calling thread's timer slack (prctl PR_SET_TIMERSLACK), so that a wait ends when it should.
pub fn set_timer_slack_ns(_ns: u64) -> io::Result<()> {
    todo!()
}

/// CPU time (user + system) of the calling thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    todo!()
}

/// CPU time (user + system) of the whole process, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    todo!()
}
