//! A cluster of which one node has a full disk: what the others acknowledge holds there, too, also
//! when the node is killed meanwhile.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use kit::client::Answer;
use kit::mounts::Mount;
use kit::runner::Story;
use kit::until::{PATIENCE, until};

use super::harness::{Node, body};

use super::sink::Sink;

pub const STORIES: &[Story] =
    &[("a_full_disk_voids_nothing_that_others_acknowledge", full_disk_of_one)];

const TIMERS: usize = 40;
/// When the timers are due. Until then they are changed, and the node with the full disk is killed.
const DUE: Duration = Duration::from_secs(40);
/// A node asks before it pops for as long as this, and the last rank waits as long.
const LATE: Duration = Duration::from_secs(12);
/// Tellings of the story on a machine that is too slow.
const TELLINGS: usize = 5;

/// What becomes of the timer of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Deleted,
    Replaced,
    Paused,
    LeftAlone,
}

fn kind(at: usize) -> Kind {
    [Kind::Deleted, Kind::Replaced, Kind::Paused, Kind::LeftAlone][at % 4]
}

fn full_disk_of_one() {
    for _ in 0..TELLINGS {
        if tell() {
            return;
        }
    }
    panic!("the changes took longer than the timers, {TELLINGS} times");
}

/// Tells the story. Returns whether the changes were made before the timers were due.
fn tell() -> bool {
    let mount = Mount::tmpfs(130);
    let sink = Sink::start();
    let mut nodes = Node::cluster(3);
    nodes[0].data = mount.path.join("data");
    nodes.iter_mut().for_each(Node::spawn);
    nodes.iter_mut().for_each(Node::await_ready);
    nodes[0].await_metric("chronos_peers_alive", |alive| alive == 2);
    let made = Instant::now();
    let due_ms = DUE.as_millis() as u64;
    let paths: Vec<String> = (0..TIMERS)
        .map(|at| {
            let text = body(&sink.uri(&format!("/old/{at}")), due_ms, 1, "x", 2);
            nodes[at % 3].create(&text)
        })
        .collect();
    nodes[0].kill();
    fill(&nodes[0], &mount);
    nodes[0].start();
    nodes[0].await_metric("chronos_journal_full", |full| full == 1);
    for (at, path) in paths.iter().enumerate() {
        let through = &nodes[1 + at / 4 % 2];
        let (method, path, text) = match kind(at) {
            Kind::Deleted => ("DELETE", path.clone(), String::new()),
            Kind::Replaced => {
                ("PUT", path.clone(), body(&sink.uri(&format!("/new/{at}")), 3_600_000, 1, "x", 2))
            }
            Kind::Paused => ("POST", format!("{path}/pause"), String::new()),
            Kind::LeftAlone => continue,
        };
        until("a change to be taken", PATIENCE, || {
            (through.request(method, &path, &text).status == 200).then_some(())
        });
    }
    all_hold(&nodes, &paths);
    nodes[0].kill();
    nodes[0].start();
    if made.elapsed() > DUE - Duration::from_secs(2) {
        return false;
    }
    all_hold(&nodes, &paths);
    thread::sleep((made + DUE + LATE).saturating_duration_since(Instant::now()));
    for at in 0..TIMERS {
        let pops = sink.sequences(&format!("/old/{at}"));
        let wanted: &[u64] = if kind(at) == Kind::LeftAlone { &[1] } else { &[] };
        assert_eq!(pops, wanted, "{at} was {:?}", kind(at));
    }
    fs::remove_file(mount.path.join("filler")).expect("it is there");
    nodes[0].await_metric("chronos_journal_full", |full| full == 0);
    until("a write through it", PATIENCE, || {
        let text = body(&sink.uri("/x"), 3_600_000, 1, "x", 2);
        (nodes[0].request("POST", "/timers", &text).status == 200).then_some(())
    });
    nodes.iter_mut().for_each(Node::kill);
    nodes.iter_mut().for_each(Node::spawn);
    nodes.iter_mut().for_each(Node::await_ready);
    all_hold(&nodes, &paths);
    assert!((0..TIMERS).all(|at| sink.sequences(&format!("/new/{at}")).is_empty()));
    nodes.iter_mut().for_each(Node::kill);
    true
}

/// Leaves a node, which does not run, no room for another segment.
fn fill(node: &Node, mount: &Mount) {
    for made_ahead in &node.segments(0)[1..] {
        fs::remove_file(made_ahead).expect("nothing stands in it");
    }
    // All that is left, to the last page. An error means that it is full.
    let _ = fs::write(mount.path.join("filler"), vec![1; 130 << 20]);
}

/// Panics unless every node answers soon with what was acknowledged, and none with anything else
/// once it has heard the others.
fn all_hold(nodes: &[Node], paths: &[String]) {
    for node in nodes {
        for (at, path) in paths.iter().enumerate() {
            let is_right = |answer: &Answer| match kind(at) {
                Kind::Deleted => answer.status == 404,
                Kind::Replaced => answer.status == 200 && answer.body.contains("/new/"),
                Kind::Paused => answer.status == 200 && answer.body.contains("\"paused\":true"),
                Kind::LeftAlone => true,
            };
            let answer = until("an answer", PATIENCE, || {
                let answer = node.request("GET", path, "");
                (answer.status != 503).then_some(answer)
            });
            assert!(
                is_right(&answer),
                "{at}, {:?}, through {}: {answer:?}",
                kind(at),
                node.address
            );
        }
    }
}
