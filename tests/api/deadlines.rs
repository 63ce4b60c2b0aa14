//! Connections that stay silent or trickle are closed in time, and no others.

use std::time::{Duration, Instant};

use super::harness::{End, Node, far_document, until};

/// The deadline of the nodes here, in ms.
const IDLE_MS: u64 = 500;
/// How long after a deadline the connection may still be open on a busy machine.
const LATE_MAX: Duration = Duration::from_secs(3);

fn node() -> Node {
    Node::start(2, &format!("[limits]\nidle_timeout_ms = {IDLE_MS}\n"))
}

fn assert_in_time(since: Instant, what: &str) {
    let took = since.elapsed();
    let least = Duration::from_millis(IDLE_MS);
    assert!(took >= least && took <= least + LATE_MAX, "{what}: after {took:?}");
}

#[test]
fn an_idle_connection_closes_without_a_word() {
    let node = node();
    let began = Instant::now();
    let mut fresh = node.client();
    let mut used = node.client();
    assert_eq!(used.request("GET", "/ping", "").status, 200);
    let last = Instant::now();
    assert_eq!(fresh.end(), End::Closed);
    assert_in_time(began, "never used");
    assert_eq!(used.end(), End::Closed);
    assert_in_time(last - Duration::from_millis(20), "used once");
}

#[test]
fn a_used_connection_stays_open() {
    let node = node();
    let mut client = node.client();
    let began = Instant::now();
    let mut last = began;
    while began.elapsed() < Duration::from_millis(3 * IDLE_MS) {
        std::thread::sleep(Duration::from_millis(IDLE_MS / 5));
        if last.elapsed() > Duration::from_millis(IDLE_MS) {
            return; // The machine was away for too long: nothing can be said.
        }
        last = Instant::now();
        assert_eq!(client.request("GET", "/ping", "").status, 200);
    }
}

#[test]
fn half_a_request_is_answered_408() {
    let node = node();
    let body = far_document();
    let head =
        format!("POST /timers HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    let chunked = "POST /timers HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let begun = [
        "G".to_owned(),
        "GET /ping HTTP/1.1\r\nHost: x\r\n".to_owned(),
        head.clone(),
        format!("{head}{}", &body[..10]),
        chunked.to_owned(),
        format!("{chunked}5\r\nab"),
        format!("{chunked}2\r\nab\r\n0\r\n"),
    ];
    let clients: Vec<_> = begun
        .iter()
        .map(|begun| {
            let mut client = node.client();
            let began = Instant::now();
            client.send(begun);
            (client, began, begun)
        })
        .collect();
    for (mut client, began, begun) in clients {
        let answer = client.answer();
        assert_in_time(began, begun);
        answer.assert_refusal(408, "limits.idle_timeout_ms", begun);
        assert!(answer.says_close());
        assert_eq!(client.end(), End::Closed);
    }
    node.assert_alive("half requests");
}

#[test]
fn a_trickling_request_does_not_move_its_deadline() {
    let node = node();
    let mut client = node.client();
    let began = Instant::now();
    let mut sent = client.try_send(b"GET /ping HTTP/1.1\r\nHost: x\r\nX: ");
    while sent.is_ok() && began.elapsed() < Duration::from_millis(IDLE_MS) + LATE_MAX {
        std::thread::sleep(Duration::from_millis(20));
        sent = client.try_send(b"y");
        if client.has_answer() {
            break;
        }
    }
    assert_eq!(client.answer().status, 408);
    assert_in_time(began, "a byte every 20 ms");
}

#[test]
fn the_deadline_begins_anew_with_every_request() {
    let node = node();
    let mut client = node.client();
    let began = Instant::now();
    let mut last = began;
    // Each send ends one request and begins the next.
    client.send("GET /ping HTTP/1.1\r\nHost: x\r\n");
    while began.elapsed() < Duration::from_millis(3 * IDLE_MS) {
        std::thread::sleep(Duration::from_millis(IDLE_MS / 5));
        if last.elapsed() > Duration::from_millis(IDLE_MS) {
            return; // The machine was away for too long: nothing can be said.
        }
        last = Instant::now();
        client.send("\r\nGET /ping HTTP/1.1\r\nHost: x\r\n");
        assert_eq!(client.answer().status, 200);
    }
}

#[test]
fn a_client_that_never_reads_is_closed() {
    let node = node();
    let mut client = node.client();
    client.stream().set_write_timeout(Some(Duration::from_millis(100))).expect("a socket");
    let pings = "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n".repeat(10_000);
    let mut sent_bytes = 0;
    while client.try_send(pings.as_bytes()).is_ok() {
        sent_bytes += pings.len();
        assert!(sent_bytes < 1 << 30, "the node takes requests without end");
    }
    until("the connection to be closed", || {
        (node.metric("chronos_connections") == 0.0).then_some(())
    });
    node.assert_alive("a client that never reads");
}
