//! A node that returns to its cluster when tombstones are gone.

use std::thread;
use std::time::{Duration, Instant};

use kit::runner::Story;
use kit::until::{PATIENCE, until};

use super::harness::{Node, body};
use super::sink::Sink;

pub const STORIES: &[Story] =
    &[("what_was_deleted_while_a_node_was_away_stays_deleted", deleted_while_away)];

/// Tombstones stay this long: the interval, but at least 10 s.
const INTERVAL_MS: u64 = 10_000;
const REPEATS: u64 = 30;
const TIMERS: usize = 24;
/// How far apart wall clocks may be. All nodes have one here.
const SKEW: Duration = Duration::from_millis(100);

/// How long a node lives on that has noted who missed a write: the skew, the time to a suspicion
/// (1 s), and another second.
const LIVED_ON: Duration = Duration::from_millis(2_200);

/// Three nodes have timers. One is killed. Half of the timers are deleted, and their tombstones end.
/// The node returns, and forgets those, and no others.
fn deleted_while_away() {
    let sink = Sink::start();
    let mut nodes = Node::cluster(3);
    for node in &mut nodes {
        node.lines = "tombstone_hold_ms = 1000\nclock_skew_max_ms = 100\n".to_owned();
        node.spawn();
    }
    nodes.iter_mut().for_each(Node::await_ready);
    nodes[0].await_metric("chronos_peers_alive", |alive| alive == 2);
    // The journal has this before the timers, which are answered when they are on the disk.
    nodes[2].await_metric("chronos_peers_lacking", |lacking| lacking == 0);
    // The memory of all nodes must be older than the timers for certain.
    thread::sleep(5 * SKEW);
    let create = |number: usize| {
        let uri = sink.uri(&format!("/{number}"));
        nodes[number % 3].create(&body(&uri, INTERVAL_MS, REPEATS, "x", 3))
    };
    let paths: Vec<String> = (0..TIMERS).map(create).collect();
    nodes[2].await_metric("chronos_timers", |timers| timers == TIMERS as u64);
    // It must have lived on for a while after the writes, and have written a page since.
    thread::sleep(LIVED_ON);
    let written = nodes[2].metric("chronos_journal_writes_total").expect("it is ready");
    nodes[2].await_metric("chronos_journal_writes_total", |writes| writes > written);
    nodes[2].kill();
    for path in &paths[..TIMERS / 2] {
        until("a delete", PATIENCE, || {
            (nodes[0].request("DELETE", path, "").status == 200).then_some(())
        });
    }
    let deleted = Instant::now();
    for node in &nodes[..2] {
        node.await_metric("chronos_tombstones", |tombstones| tombstones == 0);
    }

    nodes[2].start();
    nodes[2].await_metric("chronos_timers_ended_away_total", |ended| ended == TIMERS as u64 / 2);
    let returned = Instant::now();
    for node in &nodes {
        node.await_metric("chronos_timers", |timers| timers == TIMERS as u64 / 2);
    }
    let pops_again = |number: usize| {
        let path = format!("/{number}");
        let pops = sink.pops();
        pops.iter().any(|pop| pop.path == path && pop.at > returned)
    };
    until("a pop of each timer that was kept", PATIENCE, || {
        (TIMERS / 2..TIMERS).all(pops_again).then_some(())
    });
    let is_deleted = |path: &str| (0..TIMERS / 2).any(|number| path == format!("/{number}"));
    // One may have been under way.
    let late = deleted + Duration::from_secs(2);
    let wrong: Vec<String> = sink
        .pops()
        .iter()
        .filter(|pop| pop.at > late && is_deleted(&pop.path))
        .map(|pop| pop.path.clone())
        .collect();
    assert!(wrong.is_empty(), "deleted timers popped: {wrong:?}");
}
