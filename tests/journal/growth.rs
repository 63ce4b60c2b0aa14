//! Timers that change for long: the journal does not grow with what has gone.

use std::fs;
use std::path::Path;
use std::thread;

use kit::runner::Story;

use super::client::Client;
use super::harness::{Node, body};

pub const STORIES: &[Story] = &[("segments_are_emptied_and_used_again", churn)];

const SEGMENT: u64 = 64 << 20;
/// Bytes of the opaque data of each timer.
const OPAQUE: usize = 60_000;
/// Live timers, and how often each is replaced: 720 MB in all.
const TIMERS: usize = 120;
const ROUNDS: usize = 100;
const CLIENTS: usize = 4;

/// Bytes of all files below a folder.
fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let paths = entries.flatten().map(|entry| entry.path());
    let bytes = paths.map(|path| match fs::metadata(&path) {
        Ok(found) if found.is_dir() => bytes_below(&path),
        Ok(found) => found.len(),
        // It has been removed meanwhile.
        Err(_) => 0,
    });
    bytes.sum()
}

fn text(timer: usize, round: usize) -> String {
    let opaque = format!("{timer}-{round}-{}", "x".repeat(OPAQUE));
    body("http://127.0.0.1:9/x", 3_600_000, 1, &opaque, 1)
}

/// Defines a share of the timers again and again, each under an id of its own.
fn define(node: std::net::SocketAddr, share: usize) {
    let mut client = Client::new(node);
    for round in 1..=ROUNDS {
        for timer in (share..TIMERS).step_by(CLIENTS) {
            let answer = client.request("PUT", &path(timer), &text(timer, round)).expect("it runs");
            assert_eq!(answer.status, 200, "round {round}");
        }
    }
}

fn path(timer: usize) -> String {
    format!("/timers/{:016x}-1-0000000000000000", 0x7000_0000_0000_0000_u64 + timer as u64)
}

fn churn() {
    let mut node = Node::alone();
    node.start();
    let address = node.address;
    let shares: Vec<_> =
        (0..CLIENTS).map(|share| thread::spawn(move || define(address, share))).collect();
    let (mut most, mut live) = (0, 0);
    while !shares.iter().all(thread::JoinHandle::is_finished) {
        most = most.max(bytes_below(&node.data));
        live = live.max(node.metric("chronos_journal_live_bytes").unwrap_or(0));
        thread::sleep(std::time::Duration::from_millis(50));
    }
    shares.into_iter().for_each(|share| share.join().expect("no client panics"));
    let emptied = node.metric("chronos_journal_emptied_total").expect("it answers");
    println!(
        "growth: {} MB written, {} MB live, at most {} MB of files, {emptied} segments emptied",
        TIMERS * ROUNDS * OPAQUE / 1_000_000,
        live / 1_000_000,
        most / 1_000_000
    );
    assert!(emptied >= 4, "{emptied} segments were emptied");
    let bound = live * 5 / 2 + 4 * SEGMENT;
    assert!(most <= bound, "{most} bytes of files, and {bound} are allowed for {live} live");
    for kill in [true, false] {
        if kill {
            node.kill()
        } else {
            node.stop()
        }
        node.start();
        for timer in 0..TIMERS {
            let answer = node.request("GET", &path(timer), "");
            assert_eq!(answer.status, 200, "timer {timer}");
            let wanted = format!("\"{timer}-{ROUNDS}-x");
            assert!(answer.body.contains(&wanted), "timer {timer}: {}", &answer.body[..200]);
        }
        assert_eq!(node.metric("chronos_journal_damaged"), Some(0), "{}", node.log());
    }
}
