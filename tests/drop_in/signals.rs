//! Every signal at every moment: from the first millisecond, while the node serves, at its end.

use std::process::{Child, Stdio};

use kit::children::{Tied, signal};

use super::{Node, request, until};

/// SIGHUP, as a bit of what /proc tells.
const HANG_UP: u64 = 1;
/// Signals that end no node. The numbers are the first and the last real-time signal.
const HARMLESS: [&str; 13] = [
    "HUP", "USR1", "USR2", "ALRM", "VTALRM", "PROF", "IO", "PWR", "STKFLT", "XFSZ", "PIPE", "34",
    "64",
];

impl Node {
    /// Starts the process, and returns as soon as it may no longer be ended by SIGHUP: its first
    /// statement is done, and nothing else is.
    fn spawn(&mut self) -> u32 {
        let log = std::fs::File::options().create(true).append(true).open(self.file("log"));
        let log = log.expect("a file in the test's folder");
        let process = self.command().stdout(Stdio::null()).stderr(log).spawn_tied();
        let pid = self.process.insert(process.expect("the binary runs")).id();
        until("the first statement", || {
            let (held, caught) = (of_status(pid, "SigBlk")?, of_status(pid, "SigCgt")?);
            ((held | caught) & HANG_UP != 0).then_some(())
        });
        pid
    }

    fn await_pid_file(&self) -> u32 {
        until("a pid file", || self.pid())
    }
}

/// A mask of signals in what /proc tells of a process.
fn of_status(pid: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok()
}

#[test]
fn no_signal_ends_a_start() {
    for name in ["HUP", "USR1", "USR2", "34"] {
        let mut node = Node::new(14);
        let pid = node.spawn();
        assert!(signal(pid, name).success());
        node.await_ping();
        assert!(node.end().success(), "{name}: {}", node.logged());
    }
    // Whoever reads the number may send signals at once.
    let mut node = Node::new(14);
    let pid = node.spawn();
    let named = node.await_pid_file();
    let caught = of_status(named, "SigCgt").expect("it runs");
    assert_eq!((pid, caught & HANG_UP), (named, HANG_UP), "handlers first");
    // The library holds all signals back for a moment while it makes a thread.
    until("signals to come through", || (of_status(named, "SigBlk")? & HANG_UP == 0).then_some(()));
    // All of them, again and again, until it serves.
    let served = || request(node.bind, "GET", "/ping", "").is_some();
    let mut rounds = 0;
    while rounds == 0 || !served() {
        rounds += 1;
        for name in HARMLESS {
            assert!(signal(pid, name).success(), "it has ended: {name}, round {rounds}");
        }
    }
    node.await_ping();
    assert!(node.end().success(), "{}", node.logged());
}

#[test]
fn a_stop_in_the_middle_of_a_start_is_a_stop_in_order() {
    let mut node = Node::new(15);
    node.spawn();
    let pid = node.await_pid_file();
    assert!(signal(pid, "TERM").success());
    let mut process: Child = node.process.take().expect("it was started");
    let ended = until("the end", || process.try_wait().expect("a child can be asked"));
    assert!(ended.success(), "{ended:?}: {}", node.logged());
    assert!(node.pid().is_none(), "the pid file goes with the process");
}

#[test]
fn no_signal_ends_a_node_that_serves() {
    let mut node = Node::new(16);
    node.start();
    for name in HARMLESS.iter().chain(&HARMLESS) {
        node.signal(name);
        let answer = request(node.bind, "GET", "/ping", "").map(|answer| answer.status);
        assert_eq!(answer, Some(200), "{name}: {}", node.logged());
    }
    for word in ["SIGHUP: reading", "SIGUSR1: comparing", "SIGUSR2: reading"] {
        node.await_log(word, 1);
    }
    assert!(node.end().success(), "{}", node.logged());
}
