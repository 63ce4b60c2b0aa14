//! What a journal keeps of timers that clients pause and resume.

use std::thread;
use std::time::{Duration, Instant};

use kit::runner::Story;
use kit::until::{PATIENCE, until};

use super::harness::{Node, body};
use super::sink::Sink;

pub const STORIES: &[Story] = &[("pauses_outlive_restarts", pauses)];

const TIMERS: usize = 30;
/// When a timer is due first. It is paused before that, on a slow machine, too.
const DUE: Duration = Duration::from_secs(5);

fn act(node: &Node, path: &str, action: &str) -> String {
    let answer = node.request("POST", &format!("{path}/{action}"), "");
    assert_eq!(answer.status, 200, "{action}: {answer:?}");
    answer.header("ETag").expect("a version").to_owned()
}

fn pauses() {
    let sink = Sink::start();
    let mut node = Node::alone();
    node.start();
    // Of each three: one stays paused, one is resumed before the end, one before it is due.
    let made: Vec<(String, String)> = (0..TIMERS)
        .map(|at| {
            let due_ms = if at % 3 == 2 { 3_600_000 } else { DUE.as_millis() as u64 };
            let path = node.create(&body(&sink.uri(&format!("/{at}")), due_ms, 2, "x", 1));
            let version = act(&node, &path, "pause");
            let is_resumed = at % 3 == 2;
            let version = if is_resumed { act(&node, &path, "resume") } else { version };
            (path, version)
        })
        .collect();
    let both_due = Instant::now() + 2 * DUE;
    for (turn, shards) in [1, 3, 3, 2].into_iter().enumerate() {
        if turn % 2 == 0 {
            node.kill()
        } else {
            node.stop()
        }
        node.shards = shards;
        thread::sleep(Duration::from_millis(900));
        node.start();
        for (at, (path, version)) in made.iter().enumerate() {
            let read = node.request("GET", path, "");
            assert_eq!(read.header("ETag"), Some(&**version), "turn {turn}: {at}: {read:?}");
            let is_paused = read.body.contains("\"paused\":true");
            assert_eq!(is_paused, at % 3 != 2, "turn {turn}: {at}");
        }
        assert!(sink.pops().is_empty(), "turn {turn}: a paused timer pops");
    }
    thread::sleep(both_due.saturating_duration_since(Instant::now()));
    for (path, _) in made.iter().enumerate().filter(|(at, _)| at % 3 == 1).map(|(_, made)| made) {
        act(&node, path, "resume");
    }
    for at in (1..TIMERS).step_by(3) {
        let path = format!("/{at}");
        until("the last pop", PATIENCE, || (!sink.sequences(&path).is_empty()).then_some(()));
        assert_eq!(sink.sequences(&path), [2], "both times have come: the latest is made");
    }
    // A run is kept as well, and what it has made is not made again.
    let (path, _) = &made[2];
    act(&node, path, "run-now");
    until("the pop that is run", PATIENCE, || (!sink.sequences("/2").is_empty()).then_some(()));
    until("the pop to be counted", PATIENCE, || {
        let read = node.request("GET", path, "");
        read.body.contains("\"sequence-number\":1").then_some(())
    });
    node.stop();
    node.start();
    thread::sleep(Duration::from_millis(900));
    assert_eq!(sink.sequences("/2"), [1]);
    assert_eq!(sink.pops().len(), TIMERS / 3 + 1, "the others wait");
    for at in (0..TIMERS).step_by(3) {
        let read = node.request("GET", &made[at].0, "");
        assert!(read.body.contains("\"paused\":true"), "{at}: {read:?}");
    }
}
