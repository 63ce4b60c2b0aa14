//! An orderly stop: running callbacks finish, nothing new begins, the process ends with 0.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::harness::{Node, PATIENCE, document, request_text, until};
use super::sink::{Reaction, Sink};

#[test]
fn an_idle_node_stops() {
    for (name, shards) in [("TERM", 1), ("INT", 2), ("TERM", 16)] {
        let node = Node::start(shards, "");
        let mut idle = node.client();
        assert_eq!(idle.request("GET", "/ping", "").status, 200);
        node.signal(name);
        assert_eq!(node.wait().code(), Some(0), "{}", node.logged());
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
        node.signal("TERM");
        assert_eq!(node.wait().code(), Some(0), "{}", node.logged());
        let took = seen[0].at.elapsed();
        assert!(took >= answered_after, "the callback was cut off after {took:?}");
        assert_eq!(sink.callbacks().len(), 1, "no pop after the signal");
    }
}

#[test]
fn a_callback_that_hangs_is_waited_for_two_seconds() {
    // The deadline of the callback itself, a minute, is beyond the patience of this test.
    let node = Node::start(1, "");
    let sink = Sink::start(|_, _| Reaction::never());
    node.create(&document("0", None, &sink.uri("/"), ""));
    sink.wait_for(1);
    let began = Instant::now();
    node.signal("TERM");
    assert_eq!(node.wait().code(), Some(0), "{}", node.logged());
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(2), "{took:?}");
}

#[test]
fn pops_that_are_due_later_are_not_made() {
    let due_after = Duration::from_millis(700);
    until("a stop before the others are due", || {
        let node = Node::start(1, "");
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let sink = Sink::start(move |callback, _| {
            if callback.path == "/running" {
                let _ = released.lock().expect("one waits").recv_timeout(PATIENCE);
            }
            Reaction::OK
        });
        node.create(&document("0", None, &sink.uri("/running"), ""));
        sink.wait_for(1);
        let first_due = Instant::now() + due_after;
        for _ in 0..20 {
            node.create(&document("0.7", None, &sink.uri("/later"), ""));
        }
        node.signal("TERM");
        // Its only core stops to listen and to pop in one step.
        until("the stop to begin", || TcpStream::connect(node.address).is_err().then_some(()));
        let is_in_time = Instant::now() < first_due;
        thread::sleep((first_due + due_after).saturating_duration_since(Instant::now()));
        // An error means that the node has waited for its 2 s and is gone.
        let _ = release.send(());
        assert_eq!(node.wait().code(), Some(0), "{}", node.logged());
        let later = sink.callbacks().iter().filter(|one| one.path == "/later").count();
        assert!(later == 0 || !is_in_time, "{later} pops after the stop began");
        is_in_time.then_some(())
    });
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
            node.signal("TERM");
            assert_eq!(node.wait().code(), Some(0), "{}", node.logged());
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
