//! What the process as a whole uses: memory, CPU time and files, read from /proc at each request.

use std::time::{Duration, Instant};

/// The figures of the process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessUse {
    /// Resident memory in bytes; 0 where /proc is not mounted.
    pub resident_bytes: u64,
    /// User and system time in nanoseconds.
    pub cpu_ns: u64,
    /// Open file descriptors; 0 where /proc is not mounted.
    pub open_files: u64,
    /// Time since the control thread began to serve.
    pub uptime: Duration,
}

/// Reads the figures of this process. `started` is when the control thread began to serve. Costs
/// some system calls and one more per open file, so only the control thread may call it.
pub(super) fn read(started: Instant) -> ProcessUse {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ProcessUse {
        resident_bytes: resident_bytes(&status).unwrap_or(0),
        cpu_ns: crate::ring::process_cpu_ns(),
        open_files: std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64),
        uptime: started.elapsed(),
    }
}

/// Reads `VmRSS: 1234 kB` of /proc/self/status and returns bytes. kB are 1024 bytes there.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        let status = "Name:\tchronos\nVmHWM:\t    9 kB\nVmRSS:\t    1234 kB\nThreads:\t3\n";
        assert_eq!(resident_bytes(status), Some(1234 * 1024));
        for other in ["", "VmRSS:", "VmRSS: x kB", "VmRSS: 12 MB", "VmRSS: 99999999999999999999 kB"]
        {
            assert_eq!(resident_bytes(other), None, "{other}");
        }
    }
}
