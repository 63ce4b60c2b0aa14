//! An orderly stop: running callbacks finish, nothing new begins, the process ends with 0.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use super::harness::{Node, document, request_text, until};
use super::sink::{Reaction, Sink};

/// How long an orderly stop may take beyond the wait for callbacks.
const SLACK: Duration = Duration::from_secs(3);

#[test]
fn an_idle_node_stops_at_once() {
    for (name, shards) in [("TERM", 1), ("INT", 2), ("TERM", 16)] {
        let node = Node::start(shards, "");
        let mut idle = node.client();
        assert_eq!(idle.request("GET", "/ping", "").status, 200);
        let began = Instant::now();
        node.signal(name);
        assert_eq!(node.wait().code(), Some(0), "{}", node.logged());
        assert!(began.elapsed() < SLACK, "{:?}", began.elapsed());
        let mut rest = Vec::new();
        idle.stream().read_to_end(&mut rest).expect("closed in order");
        assert!(TcpStream::connect(node.address).is_err());
    }
}

#[test]
fn a_running_callback_finishes() {
    for shards in [1, 2] {
        let node = Node::start(shards, "");
        let answered_after = Duration::from_millis(700);
        let sink = Sink::start(move |_, _| Reaction::Late(answered_after));
        node.create(&document("0.05", Some("100"), &sink.uri("/"), ""));
        let seen = sink.wait_for(1);
        let began = Instant::now();
        node.signal("TERM");
        assert_eq!(node.wait().code(), Some(0), "{}", node.logged());
        let took = seen[0].at.elapsed();
        assert!(took >= answered_after, "the callback was cut off after {took:?}");
        assert!(began.elapsed() < Duration::from_secs(2) + SLACK);
        assert_eq!(sink.callbacks().len(), 1, "no pop after the signal");
    }
}

#[test]
fn a_callback_that_hangs_is_waited_for_two_seconds() {
    let node = Node::start(1, "");
    let sink = Sink::start(|_, _| Reaction::never());
    node.create(&document("0", None, &sink.uri("/"), ""));
    sink.wait_for(1);
    let began = Instant::now();
    node.signal("TERM");
    assert_eq!(node.wait().code(), Some(0), "{}", node.logged());
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(1_500) && took < Duration::from_secs(2) + SLACK,
        "{took:?}"
    );
}

#[test]
fn pops_that_are_due_later_are_not_made() {
    let node = Node::start(2, "");
    let sink = Sink::start(|_, _| Reaction::Late(Duration::from_millis(1_000)));
    node.create(&document("0", None, &sink.uri("/running"), ""));
    for _ in 0..20 {
        node.create(&document("0.4", None, &sink.uri("/later"), ""));
    }
    sink.wait_for(1);
    node.signal("TERM");
    assert_eq!(node.wait().code(), Some(0), "{}", node.logged());
    let later = sink.callbacks().iter().filter(|one| one.path == "/later").count();
    assert!(later == 0 || later == 20, "{later} of the later ones: before the signal all, or none");
}

#[test]
fn answers_under_way_leave() {
    let node = Node::start(2, "");
    let mut client = node.client();
    client.send("GET /ping HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100));
    until("the first answers", || client.has_answer().then_some(()));
    node.signal("TERM");
    assert_eq!(client.answer().status, 200);
    assert_eq!(node.wait().code(), Some(0), "{}", node.logged());
}

#[test]
fn a_busy_node_stops_in_order() {
    for shards in [2, 16] {
        let node = Node::start(shards, "");
        let sink = Sink::ok();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for own in 0..3_u64 {
                let (node, sink, is_over) = (&node, &sink, &is_over);
                scope.spawn(move || load(node, sink, own, is_over));
            }
            sink.wait_for(200);
            let began = Instant::now();
            node.signal("TERM");
            assert_eq!(node.wait().code(), Some(0), "{}", node.logged());
            assert!(began.elapsed() < Duration::from_secs(2) + SLACK, "{:?}", began.elapsed());
            is_over.store(true, SeqCst);
        });
    }
}

/// Sends pipelined requests that cross cores, with timers that pop, until the node is gone.
fn load(node: &Node, sink: &Sink, own: u64, is_over: &AtomicBool) {
    for round in 0..u64::MAX {
        let Ok(mut stream) = TcpStream::connect(node.address) else { return };
        let body = document("0.01", Some("0.02"), &sink.uri("/"), "x");
        let text: String = (0..50)
            .map(|at| {
                request_text(
                    "PUT",
                    &format!("/timers/{:016x}-2", own << 48 | round << 16 | at),
                    &body,
                )
            })
            .collect();
        let _ = stream.write_all(text.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answers = Vec::new();
        let _ = stream.read_to_end(&mut answers);
        if is_over.load(SeqCst) {
            return;
        }
    }
}
