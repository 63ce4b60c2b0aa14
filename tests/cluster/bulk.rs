//! Bulk requests in a cluster: a result tells what the answer to a POST tells.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use kit::noise;
use kit::runner::{Story, disturbed};
use serde_json::Value;

use super::harness::{Cluster, PATIENCE, Setup, until};
use super::proxies::{Network, Way};
use super::scaling::scale;
use super::sink::Sink;
use super::timers::{Order, QUIET, RANK_DELAY, STALLED};

pub const STORIES: &[Story] = &[
    (
        "what_a_bulk_request_is_told_survives_its_node",
        what_a_bulk_request_is_told_survives_its_node,
    ),
    ("a_bulk_request_goes_on_beside_a_frozen_node", beside_a_frozen_node),
    ("a_bulk_request_goes_on_on_both_sides_of_a_split", in_a_split),
    ("a_bulk_request_goes_on_while_nodes_join", while_nodes_join),
];

/// More than may be under way on a connection.
const LINES: usize = 3_000;
/// This line is no timer.
const BAD: usize = 1_234;

/// The results of a body, in order.
pub fn bulk(node: SocketAddr, body: String) -> Vec<Value> {
    let mut stream = TcpStream::connect(node).expect("the node accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut sends = stream.try_clone().expect("a socket");
    let sender = thread::spawn(move || {
        let length = body.len();
        let head = format!(
            "POST /timers/bulk HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        sends.write_all(head.as_bytes()).and_then(|()| sends.write_all(body.as_bytes()))
    });
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the node answers");
    sender.join().expect("no panic").expect("the node takes all");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n0\r\n\r\n"), "{answer}");
    // A line is never cut in two chunks.
    let lines = answer.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Each result waits for all replicas, and many lines are under way at a time. So nothing is lost
/// with the node that told it.
fn what_a_bulk_request_is_told_survives_its_node() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::ok();
    let order = Order::once(12_000).factor(3);
    let mut lines: Vec<String> = (0..LINES)
        .map(|at| order.document(&sink.uri(&format!("/{at}")), &format!("opaque {at}")))
        .collect();
    lines[BAD] = "no timer".to_owned();
    let begun = Instant::now();
    let results = bulk(cluster.address(0), lines.join("\n"));
    assert_eq!(results.len(), LINES);
    for (at, result) in results.iter().enumerate() {
        match at {
            BAD => {
                assert_eq!((&result["status"], &result["line"]), (&400.into(), &(BAD + 1).into()))
            }
            _ => assert!(result["location"].is_string(), "line {at}: {result}"),
        }
    }
    for at in [0, 1_023, 1_024, BAD + 1, LINES - 1] {
        let location = results[at]["location"].as_str().expect("created");
        let answer = cluster.request(2, "GET", location, "");
        assert!(answer.body.contains(&format!("/{at}\"")), "in order: {at}: {answer:?}");
    }
    cluster.kill(0);
    let due = begun + Duration::from_millis(order.interval_ms) + RANK_DELAY + QUIET;
    thread::sleep(due.saturating_duration_since(Instant::now()));
    until("all to pop", || (sink.pops().len() >= LINES - 1).then_some(()));
    let pops = sink.by_path();
    assert_eq!(pops.len(), LINES - 1, "each of them");
    assert_eq!(sink.pops().len(), LINES - 1, "and none twice");
}

/// Timers of bulk requests, and when they are due at the latest.
struct Bulks {
    sink: Sink,
    begun: Instant,
    due: Instant,
    count: usize,
}

impl Bulks {
    const ORDER: Order = Order { interval_ms: 12_000, pops: 1, factor: Some(2) };

    fn new() -> Bulks {
        let now = Instant::now();
        Bulks { sink: Sink::ok(), begun: now, due: now, count: 0 }
    }

    /// Has a node make so many timers. Panics unless it says that it made each.
    fn make(&mut self, node: SocketAddr, count: usize) {
        let numbers = self.count..self.count + count;
        let uri = |at: usize| self.sink.uri(&format!("/{at}"));
        let lines: Vec<String> = numbers.map(|at| Self::ORDER.document(&uri(at), "x")).collect();
        let results = bulk(node, lines.join("\n"));
        assert_eq!(results.len(), count);
        let is_made = |result: &Value| result["location"].is_string();
        assert!(results.iter().all(is_made), "{:?}", results.iter().find(|one| !is_made(one)));
        self.count += count;
        self.due = Instant::now() + Duration::from_millis(Self::ORDER.interval_ms);
    }

    /// Panics unless each timer pops once.
    fn judge(&self) {
        until("all to pop", || (self.sink.by_path().len() >= self.count).then_some(()));
        thread::sleep((self.due + QUIET).saturating_duration_since(Instant::now()));
        let pops = self.sink.pops().len();
        if pops > self.count && noise::since(self.begun) >= STALLED {
            disturbed(format!("{pops} pops of {} timers", self.count));
        }
        assert_eq!((pops, self.sink.by_path().len()), (self.count, self.count), "each once");
    }
}

/// Lines wait for the silent node until it is suspected, and then for the others alone.
fn beside_a_frozen_node() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    cluster.await_alive(&[0, 1, 2]);
    let mut bulks = Bulks::new();
    cluster.freeze(2);
    bulks.make(cluster.address(0), 1_500);
    bulks.make(cluster.address(1), 500);
    cluster.thaw(2);
    bulks.judge();
}

fn in_a_split() {
    let (mut cluster, network) = Network::around(Setup::default());
    cluster.begin(&[0, 1, 2]);
    cluster.await_alive(&[0, 1, 2]);
    let mut bulks = Bulks::new();
    network.set_around(0, Way::Cut);
    bulks.make(cluster.address(0), 500);
    bulks.make(cluster.address(1), 500);
    network.set_around(0, Way::Open);
    cluster.await_alive(&[0, 1, 2]);
    bulks.judge();
}

fn while_nodes_join() {
    let mut cluster = Cluster::running(&[0, 1]);
    let mut bulks = Bulks::new();
    let nodes = [cluster.address(0), cluster.address(1)];
    thread::scope(|scope| {
        let bulks = &mut bulks;
        let (is_over, over) = channel::<()>();
        let making = scope.spawn(move || {
            for node in nodes.into_iter().cycle() {
                bulks.make(node, 100);
                // The other end is gone when the nodes have joined.
                if over.recv_timeout(Duration::from_millis(50))
                    == Err(RecvTimeoutError::Disconnected)
                {
                    break;
                }
            }
        });
        scale(&mut cluster, &[0, 1], &[2, 3], &[]);
        drop(is_over);
        making.join().expect("no panic");
    });
    bulks.make(cluster.address(3), 100);
    bulks.judge();
}
