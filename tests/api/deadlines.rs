//! Connections that stay silent or trickle are closed when their deadline has passed and not
//! before, and only they.
//!
//! A machine that is away for a whole deadline lets a node close what a test has not used yet. Such
//! a try tells nothing, and the test tries again.

use std::thread;
use std::time::{Duration, Instant};

use super::harness::{Answer, Client, End, Node, PATIENCE, far_document, until};

/// The deadline of the nodes here, in ms.
const IDLE_MS: u64 = 500;
const IDLE: Duration = Duration::from_millis(IDLE_MS);
const PING: &str = "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n";

fn node() -> Node {
    Node::start(2, &format!("[limits]\nidle_timeout_ms = {IDLE_MS}\n"))
}

/// Asserts that the deadline of what began then has passed.
fn assert_not_early(since: Instant, what: &str) {
    let took = since.elapsed();
    assert!(took >= IDLE, "{what}: after {took:?}");
}

/// A client that has sent these bytes.
struct Begun {
    client: Client,
    /// Before the client connected.
    connecting: Instant,
    /// Before the bytes left.
    sending: Instant,
    /// After the bytes left.
    sent: Instant,
}

impl Begun {
    fn with(node: &Node, bytes: &str) -> Begun {
        let connecting = Instant::now();
        let mut client = node.client();
        let sending = Instant::now();
        // An error means that the node has closed: the next answer tells.
        let _ = client.try_send(bytes.as_bytes());
        Begun { client, connecting, sending, sent: Instant::now() }
    }

    /// The next answer. Nothing: the bytes may have come too late.
    fn answer(&mut self) -> Option<Answer> {
        let answer = self.client.answer_or_end();
        let took = self.sent - self.connecting;
        assert!(answer.is_some() || took >= IDLE, "closed although sent after {took:?}");
        answer
    }
}

#[test]
fn an_idle_connection_closes_without_a_word() {
    let node = node();
    let began = Instant::now();
    let mut fresh = node.client();
    let mut used = until("an answer before the deadline", || {
        let mut used = Begun::with(&node, PING);
        used.answer().map(|answer| {
            assert_eq!(answer.status, 200);
            used
        })
    });
    assert_eq!(fresh.end(), End::Closed);
    assert_not_early(began, "never used");
    assert_eq!(used.client.end(), End::Closed);
    assert_not_early(used.sending, "used once");
}

/// Sends a piece every fifth of the deadline, for three deadlines: each piece must be answered.
fn assert_stays_open(first: &str, piece: &str) {
    let node = node();
    until("a run without a stall", || {
        let Begun { mut client, connecting, .. } = Begun::with(&node, first);
        let mut last = connecting;
        while connecting.elapsed() < 3 * IDLE {
            thread::sleep(IDLE / 5);
            let sending = Instant::now();
            let sent = client.try_send(piece.as_bytes());
            let answer = sent.ok().and_then(|()| client.answer_or_end());
            if last.elapsed() >= IDLE {
                return None;
            }
            assert_eq!(answer.expect("it stays open").status, 200);
            last = sending;
        }
        Some(())
    });
}

#[test]
fn a_used_connection_stays_open() {
    assert_stays_open("", PING);
}

#[test]
fn the_deadline_begins_anew_with_every_request() {
    // Each piece ends one request and begins the next.
    let begins = "GET /ping HTTP/1.1\r\nHost: x\r\n";
    assert_stays_open(begins, &format!("\r\n{begins}"));
}

#[test]
fn half_a_request_is_answered_408() {
    let node = node();
    let body = far_document();
    let head =
        format!("POST /timers HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    let chunked = "POST /timers HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let pieces = [
        "G".to_owned(),
        "GET /ping HTTP/1.1\r\nHost: x\r\n".to_owned(),
        head.clone(),
        format!("{head}{}", &body[..10]),
        chunked.to_owned(),
        format!("{chunked}5\r\nab"),
        format!("{chunked}2\r\nab\r\n0\r\n"),
    ];
    let all_at_once: Vec<_> = pieces.iter().map(|piece| Begun::with(&node, piece)).collect();
    for (begun, piece) in all_at_once.into_iter().zip(&pieces) {
        let mut first = Some(begun);
        let (mut begun, answer) = until("an answer to half a request", || {
            let mut begun = first.take().unwrap_or_else(|| Begun::with(&node, piece));
            begun.answer().map(|answer| (begun, answer))
        });
        assert_not_early(begun.sending, piece);
        answer.assert_refusal(408, "limits.idle_timeout_ms", piece);
        assert!(answer.says_close());
        assert_eq!(begun.client.end(), End::Closed);
    }
    node.assert_alive("half requests");
}

#[test]
fn a_trickling_request_does_not_move_its_deadline() {
    let node = node();
    until("an answer to a trickle", || {
        let mut begun = Begun::with(&node, "GET /ping HTTP/1.1\r\nHost: x\r\nX: ");
        while !begun.client.has_answer() && begun.client.try_send(b"y").is_ok() {
            assert!(begun.sending.elapsed() < PATIENCE, "each byte moves the deadline");
            thread::sleep(Duration::from_millis(20));
        }
        let answer = begun.answer()?;
        assert_eq!(answer.status, 408);
        assert_not_early(begun.sending, "a byte every 20 ms");
        Some(())
    });
}

#[test]
fn a_client_that_never_reads_is_closed() {
    let node = node();
    let mut client = node.client();
    client.stream().set_write_timeout(Some(Duration::from_millis(100))).expect("a socket");
    let pings = PING.repeat(10_000);
    let mut sent_bytes = 0;
    while client.try_send(pings.as_bytes()).is_ok() {
        sent_bytes += pings.len();
        assert!(sent_bytes < 1 << 30, "the node takes requests without end");
    }
    node.await_metric("chronos_connections", 0.0);
    node.assert_alive("a client that never reads");
}
