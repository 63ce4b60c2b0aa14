//! Facts about the machine, so that a figure can be judged and measured again.

use std::fs;

use serde::Serialize;

/// The machine on which the figures were measured.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model name from /proc/cpuinfo, or `unknown`.
    pub cpu: String,
    /// How many cores this process may use; 0: not known.
    pub cores: usize,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// Physical memory in MiB; 0: not known.
    pub memory_mib: u64,
}

impl Machine {
    /// Reads /proc. A fact that cannot be read is no error.
    pub fn read() -> Machine {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (cpuinfo, meminfo) = (text("/proc/cpuinfo"), text("/proc/meminfo"));
        let cpu = field(&cpuinfo, "model name").or_else(|| field(&cpuinfo, "CPU part"));
        let memory = field(&meminfo, "MemTotal")
            .and_then(|kb| kb.trim_end_matches("kB").trim().parse::<u64>().ok());
        Machine {
            cpu: cpu.unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_mib: memory.unwrap_or(0) / 1024,
        }
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_once(':')?.1.trim())
}

/// A Unix time in milliseconds as `2026-01-31 23:59:59 UTC`.
pub fn utc_text(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (days, second) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Civil date from days (Hinnant, "chrono-compatible low-level date algorithms"). Years begin in
    // March, so that the leap day is the last day of its year. 719 468 days lie between 0000-03-01
    // and 1970-01-01.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_around_leap_days_and_the_epoch() {
        assert_eq!(utc_text(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc_text(951_782_399_000), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc_text(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc_text(951_868_800_000), "2000-03-01 00:00:00 UTC");
        assert_eq!(utc_text(1_767_225_599_999), "2025-12-31 23:59:59 UTC");
    }

    #[test]
    fn this_machine_has_a_kernel_and_cores() {
        let machine = Machine::read();
        assert!(machine.cores > 0 && !machine.kernel.is_empty() && machine.memory_mib > 0);
        assert_eq!(field("a: b\nmodel name\t: X Y\n", "model name"), Some("X Y"));
    }
}
