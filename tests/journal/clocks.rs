//! Wall clocks that are wrong after a start, and boots of the machine.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use kit::children::{Tied, command};
use kit::runner::{Story, cannot_run};
use kit::until::{PATIENCE, until};

use super::harness::{Node, body};
use super::sink::Sink;

pub const STORIES: &[Story] = &[
    ("a_wall_clock_that_is_behind_is_told_and_nothing_is_early", behind),
    ("a_wall_clock_that_is_ahead_moves_nothing_in_one_boot", ahead),
    ("due_times_survive_a_boot_of_the_machine", boot),
];

const DUE_MS: u64 = 6_000;

/// Words that start a program with a shifted wall clock. The story cannot run without faketime,
/// which tells what it sets. The program is no child of faketime: to kill faketime would leave it.
fn shifted(by: &str) -> Vec<String> {
    let told = command("faketime").args(["-f", by, "env"]).output_tied();
    let Some(told) = told.ok().filter(|told| told.status.success()) else {
        cannot_run("not run on this machine: no faketime");
    };
    let text = String::from_utf8(told.stdout).expect("text");
    let library = text.lines().find(|line| line.starts_with("LD_PRELOAD="));
    let library = library.expect("faketime preloads a library").to_owned();
    let words = ["env".into(), "DONT_FAKE_MONOTONIC=1".into(), format!("FAKETIME={by}"), library];
    words.to_vec()
}

/// Creates timers, kills the node, starts it as `starter` says, and waits for the pops. None may
/// be early. Returns how late the first was.
fn across(node: &mut Node, starter: Vec<String>) -> Duration {
    let sink = Sink::start();
    node.start();
    node.create(&body("http://127.0.0.1:9/x", 3_600_000, 1, "x", 1));
    let begun = Instant::now();
    for number in 0..10 {
        node.create(&body(&sink.uri(&format!("/{number}")), DUE_MS, 1, "x", 1));
    }
    node.kill();
    node.starter = starter;
    node.start();
    until("all pops", PATIENCE, || (sink.pops().len() >= 10).then_some(()));
    let first = sink.pops().iter().map(|pop| pop.at).min().expect("ten");
    let passed = first - begun;
    assert!(passed >= Duration::from_millis(DUE_MS), "a pop after {passed:?}");
    passed - Duration::from_millis(DUE_MS)
}

fn behind() {
    let mut node = Node::alone();
    let late = across(&mut node, shifted("-2h"));
    let behind = node.metric("chronos_journal_clock_behind_seconds").expect("it answers");
    assert!((7_100..=7_300).contains(&behind), "{behind} s\n{}", node.log());
    node.await_log("clock");
    println!("a wall clock 2 h behind: the first pop came {late:?} after its time");
}

fn ahead() {
    let mut node = Node::alone();
    let late = across(&mut node, shifted("+2h"));
    println!("a wall clock 2 h ahead: the first pop came {late:?} after its time");
    assert_eq!(node.metric("chronos_journal_clock_behind_seconds"), Some(0));
}

/// Seconds since the machine was booted, as a program that is started by these words sees them.
fn uptime(words: &[String]) -> Option<i64> {
    let done = command(words.first()?).args(&words[1..]).arg("/proc/uptime").output_tied().ok()?;
    String::from_utf8(done.stdout).ok()?.split('.').next()?.parse().ok()
}

/// Words that start a program in another boot of the machine: with another boot id, and a
/// monotonic clock that shows so many seconds more. The story cannot run where the kernel has no
/// time namespaces, or puts only children into a new one (before Linux 6.1).
fn booted(folder: &Path, number: u64, later_s: i64) -> Vec<String> {
    let file = folder.join(format!("boot{number}"));
    fs::write(&file, format!("{number:08x}-1111-4222-8333-444444444444\n")).expect("room");
    let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
    let (monotonic, boottime) = (format!("--monotonic={later_s}"), format!("--boottime={later_s}"));
    let file = file.to_str().expect("our paths are text");
    let words = ["unshare", "--mount", "--time", &monotonic, &boottime, "sh", "-c", script, file];
    let words: Vec<_> = words.map(str::to_owned).to_vec();
    let shown = uptime(&[&words[..], &["cat".to_owned()]].concat());
    let wanted = uptime(&["cat".to_owned()]).expect("every machine tells") + later_s;
    if shown.is_none_or(|shown| shown.abs_diff(wanted) > 10) {
        cannot_run("not run on this machine: no time namespace of its own");
    }
    words
}

fn boot() {
    // A wait of the ring ends by the clock of the machine, so that no node pops in a namespace
    // whose clock is ahead of it. Such a node only writes here.
    let up_s = uptime(&["cat".to_owned()]).expect("every machine tells");
    for (first_s, second_s) in [(1_000_000, 0), (-up_s / 2, 0)] {
        let mut node = Node::alone();
        node.starter = booted(node.folder(), 1, first_s);
        let starter = booted(node.folder(), 2, second_s);
        let late = across(&mut node, starter);
        println!("a boot whose clock was {first_s} s ahead: the first pop came {late:?} late");
        assert_eq!(node.metric("chronos_journal_damaged"), Some(0), "{}", node.log());
    }
}
