//! The only place that reads clocks.

// May panic: assertions 1.
// Why it does not: kernel 1.

use crate::base::time::{MonoNs, Now, WallMs};

/// How much more this service's monotonic clock shows than the kernel's: 30 years, in nanoseconds.
/// So a timer that another node started before this machine was booted starts at a positive tick
/// here.
const BASE_NS: u64 = 30 * 366 * 24 * 3600 * 1_000_000_000;

/// Both clocks now: CLOCK_BOOTTIME plus 30 years, and CLOCK_REALTIME. Cost: two vDSO calls, some 40
/// ns.
pub fn now() -> Now {
    // The wall clock first: a process that gets no time between the two then pops what follows the
    // wall clock late, not early.
    let wall = WallMs(read_ns(libc::CLOCK_REALTIME) / 1_000_000);
    Now { mono: monotonic(), wall }
}

/// The monotonic clock now. It goes on while the machine is suspended, so that a suspension makes
/// no timer due later and no lease end later. Cost: one vDSO call, about 20 ns.
pub fn monotonic() -> MonoNs {
    MonoNs(BASE_NS + read_ns(libc::CLOCK_BOOTTIME))
}

/// What the kernel's CLOCK_BOOTTIME shows at this instant, in nanoseconds; 0: before the boot.
pub(super) fn kernels(instant: MonoNs) -> u64 {
    instant.0.saturating_sub(BASE_NS)
}

/// Reads a clock of this process or thread, in nanoseconds. A clock before 1970 reads 0.
pub(super) fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to `time`, which outlives the call.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert!(result == 0, "clock {clock} exists on every supported kernel");
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + time.tv_nsec as u64
}

/// How the kernel keeps the wall clock: by how many microseconds it may be wrong, as NTP has told
/// the kernel; `None` where nobody keeps it. Error: the kernel does not tell.
pub fn clock_discipline() -> std::io::Result<Option<i64>> {
    // SAFETY: all fields are numbers, for which zeros are values. Zero modes change nothing.
    let mut told: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes to `told`, which outlives the call.
    if unsafe { libc::adjtimex(&mut told) } == -1 {
        return Err(std::io::Error::last_os_error());
    }
    Ok((told.status & libc::STA_UNSYNC == 0).then_some(told.maxerror))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_tell_the_time_that_std_tells() {
        let before = std::time::SystemTime::now();
        let wall = now().wall.0;
        let after = std::time::SystemTime::now();
        let ms = |time: std::time::SystemTime| {
            time.duration_since(std::time::UNIX_EPOCH).expect("it is past 1970").as_millis() as u64
        };
        assert!((ms(before)..=ms(after)).contains(&wall));
        let first = now().mono;
        assert!(now().mono >= first && first.0 > 0);
    }

    /// /proc/uptime includes the time in which the machine was suspended.
    #[test]
    fn the_monotonic_clock_tells_the_time_since_boot() {
        let since_boot_s = (now().mono.0 - BASE_NS) as f64 / 1e9;
        let told = std::fs::read_to_string("/proc/uptime").expect("procfs is mounted");
        let uptime_s: f64 = told.split(' ').next().expect("a number").parse().expect("seconds");
        assert!((-0.02..60.0).contains(&(uptime_s - since_boot_s)), "{uptime_s} {since_boot_s}");
    }
}
