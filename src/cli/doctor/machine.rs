//! What the machine gives a process: kernel features, limits, clocks.

use super::check::Check;
use crate::ring;

/// Fewest open files that a node can do anything with.
const FILES_MIN: u64 = 1_024;
/// Open files for two cores full of connections and callbacks.
const FILES_WANTED: u64 = 65_536;
/// Locked memory for the registered buffers of the journal, in bytes: what systemd gives.
const MEMLOCK_WANTED: u64 = 8 << 20;
/// An estimated error of the wall clock that is worth a word, in microseconds: 1 s.
const ERROR_US_MAX: i64 = 1_000_000;

/// Looks at the machine.
pub(super) fn checks() -> Vec<Check> {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    vec![
        kernel(),
        open_files(limit(&limits, "Max open files")),
        locked_memory(limit(&limits, "Max locked memory")),
        clock(),
    ]
}

fn kernel() -> Check {
    match ring::probe() {
        Ok(support) => {
            let features = support.features.join(", ");
            Check::ok("kernel", format!("Linux {}: {features}", support.release))
        }
        Err(error) => Check::fail("kernel", "io_uring cannot be used", error.to_string()),
    }
}

/// The hard limit of a line of /proc/self/limits; `None`: there is no such line.
fn limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let hard = line.split_whitespace().nth(1)?;
    if hard == "unlimited" { Some(u64::MAX) } else { hard.parse().ok() }
}

fn open_files(hard: Option<u64>) -> Check {
    let what = "open files";
    let remedy = format!(
        "raise it: ulimit -Hn {FILES_WANTED}, or LimitNOFILE={FILES_WANTED} in \
                          the unit"
    );
    match hard {
        None => Check::warn(what, "the limit is not known", "look at ulimit -Hn"),
        Some(u64::MAX) => Check::ok(what, "unlimited"),
        Some(hard) if hard < FILES_MIN => Check::fail(what, format!("at most {hard}"), remedy),
        Some(hard) if hard < FILES_WANTED => Check::warn(what, format!("at most {hard}"), remedy),
        Some(hard) => Check::ok(what, format!("at most {hard}")),
    }
}

fn locked_memory(hard: Option<u64>) -> Check {
    let what = "locked memory";
    match hard {
        None => Check::warn(what, "the limit is not known", "look at ulimit -Hl"),
        Some(u64::MAX) => Check::ok(what, "unlimited"),
        Some(hard) if hard < MEMLOCK_WANTED => Check::warn(
            what,
            format!("at most {} KiB", hard >> 10),
            "raise it: ulimit -Hl 8192, or LimitMEMLOCK=8M in the unit",
        ),
        Some(hard) => Check::ok(what, format!("at most {} KiB", hard >> 10)),
    }
}

fn clock() -> Check {
    let what = "wall clock";
    match ring::clock_discipline() {
        Err(error) => Check::warn(
            what,
            format!("the kernel does not tell whether it is kept: {error}"),
            "look at chronyc tracking or timedatectl",
        ),
        Ok(None) => Check::warn(
            what,
            "no NTP keeps it, as far as the kernel knows",
            "start chrony or systemd-timesyncd; on a virtual machine see that its host does",
        ),
        Ok(Some(error_us)) if error_us > ERROR_US_MAX => Check::warn(
            what,
            format!("kept by NTP, wrong by up to {} ms", error_us / 1_000),
            "look at chronyc tracking: the servers are far or silent",
        ),
        Ok(Some(error_us)) => {
            Check::ok(what, format!("kept by NTP, wrong by up to {} ms", error_us / 1_000))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::check::Verdict;

    #[test]
    fn hard_limits_are_read_and_judged() {
        let limits = "Limit     Soft Limit  Hard Limit  Units\n\
                      Max open files            1024                 4096                 files\n\
                      Max locked memory         8388608              unlimited            bytes\n";
        assert_eq!(limit(limits, "Max open files"), Some(4096));
        assert_eq!(limit(limits, "Max locked memory"), Some(u64::MAX));
        assert_eq!(limit(limits, "Max msgqueue size"), None);
        assert_eq!(open_files(Some(1_023)).verdict, Verdict::Fail);
        assert_eq!(open_files(Some(4_096)).verdict, Verdict::Warn);
        assert_eq!(open_files(Some(65_536)).verdict, Verdict::Ok);
        assert_eq!(locked_memory(Some(64 << 10)).verdict, Verdict::Warn);
        assert_eq!(locked_memory(Some(u64::MAX)).verdict, Verdict::Ok);
    }
}
