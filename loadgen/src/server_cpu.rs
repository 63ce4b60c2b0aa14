//! CPU time and memory of another process, read from /proc.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

/// Nanoseconds in a clock tick of `/proc/<pid>/stat`. Linux has shown 100 ticks a second to
/// programs since 2.6.
const STAT_TICK_NS: u64 = 10_000_000;

/// CPU time (user and system) of process `pid` so far, all threads together, in nanoseconds.
/// `None`: there is no such process.
///
/// The sum of `/proc/<pid>/task/*/schedstat` is exact to the nanosecond, but for the time that a
/// thread has run since its last scheduler tick, and without threads that have ended.
/// `/proc/<pid>/stat` counts those, and is exact to 10 ms. The larger one is returned. A later call
/// may return somewhat less than an earlier one, when threads ended in between. Cost: one open and
/// one read per thread, some 10 us each.
pub fn cpu_ns(pid: u32) -> Option<u64> {
    let whole_ns = stat_cpu_ns(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
    threads_cpu_ns(pid).max(whole_ns)
}

fn threads_cpu_ns(pid: u32) -> Option<u64> {
    let mut sum_ns = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        // A thread may end during the reading. Its file is gone then, and the thread does not
        // count.
        let Ok(text) = fs::read_to_string(task.ok()?.path().join("schedstat")) else { continue };
        sum_ns += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    (sum_ns > 0).then_some(sum_ns)
}

/// Reads utime and stime, fields 14 and 15. The fields are counted behind the command, which may
/// hold spaces and brackets.
fn stat_cpu_ns(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) * STAT_TICK_NS)
}

/// Whether `pid` is a process of this program: a node, or a server that the load generator is. A
/// figure of another process would be wrong and look right. Error: what is there, and what to do.
/// Also refuses a process that listens at ports of this machine, and not at that of `target`.
pub fn check(pid: u32, target: SocketAddr) -> Result<(), String> {
    let hint = "expected the process of a node, as `pidof chronos` tells it";
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    let Ok(name) = name.as_deref().map(str::trim) else {
        return Err(format!("--server-pid {pid}: there is no such process; {hint}"));
    };
    // The name of a process can be changed, and the path of its file is not told to everybody.
    let file = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let file = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if [name, &file].iter().any(|word| word.contains("chronos")) {
        return match ports_of(pid) {
            Some(ports) if !ports.is_empty() && !ports.contains(&target.port()) => Err(format!(
                "--server-pid {pid} does not listen at port {} of --target; {hint}",
                target.port()
            )),
            _ => Ok(()),
        };
    }
    Err(format!("--server-pid {pid} is `{}`, no chronos; {hint}", name.escape_default()))
}

/// The TCP ports at which a process listens. `None`: its files are not told to this user, or it has
/// a network of its own (a container), whose ports may have other numbers here.
fn ports_of(pid: u32) -> Option<BTreeSet<u16>> {
    let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    if network("self")? != network(&pid.to_string())? {
        return None;
    }
    let mut inodes = BTreeSet::new();
    for file in fs::read_dir(format!("/proc/{pid}/fd")).ok()? {
        let Ok(place) = fs::read_link(file.ok()?.path()) else { continue };
        let place = place.to_string_lossy();
        let inode = place.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inodes.extend(inode.map(str::to_owned));
    }
    let mut ports = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        let listening = text.lines().filter_map(listening_in);
        ports.extend(listening.filter(|(_, inode)| inodes.contains(*inode)).map(|(port, _)| port));
    }
    Some(ports)
}

/// The port and the inode in a line of /proc/net/tcp, if the line is of a socket that listens.
fn listening_in(line: &str) -> Option<(u16, &str)> {
    /// The number of the state, as the kernel writes it.
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, local, _, state, _, _, _, _, _, inode, ..] = fields[..] else { return None };
    let port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
    (state == LISTEN).then_some((port, inode))
}

/// Resident memory of process `pid` in bytes. `None`: there is no such process.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    resident_in(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_past_a_hostile_command_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 1 2 3 4 250 50 0 0 20 0 1 0 9 8 7";
        assert_eq!(stat_cpu_ns(stat), Some(3_000_000_000));
        assert_eq!(stat_cpu_ns("7 (a"), None);
        assert_eq!(resident_in("Name:\tx\nVmRSS:\t    1024 kB\n"), Some(1 << 20));
    }

    #[test]
    fn a_process_that_is_no_chronos_is_refused_by_its_name() {
        // The name of this test's file begins with that of the program.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        assert_eq!(check(std::process::id(), here), Ok(()));
        // Nobody listens at port 1: it belongs to a service that no machine has.
        let error = check(std::process::id(), SocketAddr::from(([127, 0, 0, 1], 1))).unwrap_err();
        assert!(error.contains("does not listen at port 1 of --target"), "{error}");
        let error = check(u32::MAX, here).unwrap_err();
        assert!(error.contains("no such process") && error.contains("pidof"), "{error}");
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let is_refused = |found: Result<(), String>| {
            found.is_err_and(|error| error.contains("is `sleep`, no chronos"))
        };
        // Between fork and exec it still has names of this process.
        let mut found = is_refused(check(other.id(), here));
        while !found && other.try_wait().unwrap().is_none() {
            std::thread::yield_now();
            found = is_refused(check(other.id(), here));
        }
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(found);
    }

    #[test]
    fn own_process_has_cpu_time_that_grows() {
        let pid = std::process::id();
        let before = cpu_ns(pid).unwrap();
        let mut work = 0u64;
        let mut after = before;
        // The loop is bounded: each round is some milliseconds of work, and the counter moves at
        // least at every scheduler tick.
        for round in 0..1000 {
            (0..1_000_000u64).for_each(|i| work = std::hint::black_box(work ^ i ^ round));
            after = cpu_ns(pid).unwrap();
            if after > before {
                break;
            }
        }
        assert!(after > before);
        // What a thread has used is not lost when it ends.
        let spend = || (0..20_000_000_u64).fold(0, |work, i| std::hint::black_box(work ^ i));
        let spent_ns = std::thread::spawn(move || {
            spend();
            chronos::ring::thread_usage().cpu_ns
        });
        let spent_ns = spent_ns.join().unwrap();
        let left_ns = cpu_ns(pid).unwrap().saturating_sub(before);
        assert!(left_ns + 2 * STAT_TICK_NS >= spent_ns, "{left_ns} of {spent_ns} ns");
        assert!(resident_bytes(pid).unwrap() > 100_000);
        assert_eq!(cpu_ns(u32::MAX), None);
    }
}
