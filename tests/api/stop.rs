//! An orderly stop: running callbacks finish, nothing new begins, the process ends with 0.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::harness::{Node, document, until};
use super::sink::{Reaction, Sink};

/// What an orderly stop may take beyond the wait for callbacks.
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
