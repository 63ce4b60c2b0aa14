//! Bulk requests in a cluster: a result tells what the answer to a POST tells.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use kit::runner::Story;
use serde_json::Value;

use super::harness::{Cluster, PATIENCE, until};
use super::sink::Sink;
use super::timers::{Order, QUIET, RANK_DELAY};

pub const STORIES: &[Story] = &[(
    "what_a_bulk_request_is_told_survives_its_node",
    what_a_bulk_request_is_told_survives_its_node,
)];

/// More than may be under way on a connection.
const LINES: usize = 3_000;
/// This line is no timer.
const BAD: usize = 1_234;

/// The results of a body, in order.
fn bulk(cluster: &Cluster, place: usize, body: String) -> Vec<Value> {
    let mut stream = TcpStream::connect(cluster.address(place)).expect("the node accepts");
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
    let results = bulk(&cluster, 0, lines.join("\n"));
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
