//! What the process as a whole uses: memory, CPU time and files, read from /proc at each request.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The figures of the process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessUse {
    /// Resident memory in bytes; 0 where /proc is not mounted.
    pub resident_bytes: u64,
    /// Memory in bytes that the process has addresses for; 0 where /proc is not mounted.
    pub virtual_bytes: u64,
    /// User and system time in nanoseconds.
    pub cpu_ns: u64,
    /// Open file descriptors; 0 where /proc is not mounted.
    pub open_files: u64,
    /// Most file descriptors that it may open; 0 where /proc is not mounted or there is no limit.
    pub open_files_max: u64,
    /// When the control thread began to serve, since 1970, by the wall clock of the reading.
    pub began: Duration,
    /// Time since the control thread began to serve.
    pub uptime: Duration,
}

/// Reads the figures of this process. `started` is when the control thread began to serve. Costs
/// some system calls and one more per open file, so only the control thread may call it.
pub(super) fn read(started: Instant) -> ProcessUse {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ProcessUse {
        resident_bytes: bytes_after("VmRSS:", &status).unwrap_or(0),
        virtual_bytes: bytes_after("VmSize:", &status).unwrap_or(0),
        open_files_max: open_files_max(&limits).unwrap_or(0),
        began: now.saturating_sub(started.elapsed()),
        cpu_ns: crate::ring::process_cpu_ns(),
        open_files: std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64),
        uptime: started.elapsed(),
    }
}

/// Reads a line such as `VmRSS: 1234 kB` of /proc/self/status and returns bytes. kB are 1024 bytes
/// there.
fn bytes_after(name: &str, status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Reads the soft limit in `Max open files   1024   4096   files` of /proc/self/limits.
fn open_files_max(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        let status = "Name:\tchronos\nVmHWM:\t    9 kB\nVmRSS:\t    1234 kB\nThreads:\t3\n";
        assert_eq!(bytes_after("VmRSS:", status), Some(1234 * 1024));
        assert_eq!(bytes_after("VmHWM:", status), Some(9 * 1024));
        for other in ["", "VmRSS:", "VmRSS: x kB", "VmRSS: 12 MB", "VmRSS: 99999999999999999999 kB"]
        {
            assert_eq!(bytes_after("VmRSS:", other), None, "{other}");
        }
    }

    #[test]
    fn the_limit_of_open_files_is_the_soft_one() {
        let limits = "Limit      Soft Limit  Hard Limit  Units\n\
                      Max open files            1024          4096        files     \n";
        assert_eq!(open_files_max(limits), Some(1024));
        for other in ["", "Max open files", "Max open files unlimited unlimited files"] {
            assert_eq!(open_files_max(other), None, "{other}");
        }
    }
}
