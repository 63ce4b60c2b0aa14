//! `POST /timestamps`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use chronos::node::settings::NodeSettings;
use chronos::node::start;
use chronos::timestamp::Timestamp;
use serde_json::Value;

use super::harness::*;

struct Http(BufReader<TcpStream>);

fn request(method: &str, target: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
}

/// Status, head and body.
type Answer = (u16, String, String);

impl Http {
    fn connect(address: SocketAddr) -> Http {
        let stream = TcpStream::connect(address).expect("the node accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Http(BufReader::new(stream))
    }

    fn send(&mut self, method: &str, target: &str) {
        let text = request(method, target);
        self.0.get_mut().write_all(text.as_bytes()).expect("the node takes them");
    }

    fn answer(&mut self) -> Answer {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(self.0.read_line(&mut head).expect("an answer") > 0, "closed: {head}");
        }
        let length = head.split("Content-Length: ").nth(1).expect("a length");
        let length = length.split('\r').next().expect("a line").parse().expect("a number");
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a body");
        let status = head[9..12].parse().expect("a status");
        (status, head, String::from_utf8(body).expect("text"))
    }

    fn ask(&mut self, method: &str, target: &str) -> Answer {
        self.send(method, target);
        self.answer()
    }
}

/// The members `first`, `count` and `unix_ms` of an answer that must have them and no others.
fn values((status, head, body): &Answer) -> (u64, u64, u64) {
    assert_eq!(*status, 200, "{head}{body}");
    assert!(head.contains("Content-Type: application/json\r\n"), "{head}");
    let document: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(document.as_object().expect("an object").len(), 3, "{body}");
    let member = |name: &str| document[name].as_u64().unwrap_or_else(|| panic!("{name}: {body}"));
    (member("first"), member("count"), member("unix_ms"))
}

#[test]
fn timestamps_are_had_over_http_and_share_the_order_with_thrift() {
    let node = Node::master();
    let mut http = Http::connect(node.handle().address);
    let mut thrift = node.client();
    let mut last = 0;
    for count in [1, 100, 262_144] {
        let (first, told, unix_ms) =
            values(&http.ask("POST", &format!("/timestamps?count={count}")));
        assert_eq!((told, unix_ms), (count, first >> 18));
        assert!(first > last);
        last = thrift.call(1).value();
        assert!(last >= first + count);
    }
    let (first, count, _) = values(&http.ask("POST", "/timestamps"));
    assert_eq!(count, 1);
    assert!(first > last);
    node.await_sum("timestamps", 1 + 100 + 262_144 + 3 + 1);
}

#[test]
fn pipelined_posts_are_answered_in_order_and_wait_when_they_must() {
    let node = Node::master();
    let mut http = Http::connect(node.handle().address);
    let mut last = 0;
    // A machine that takes a millisecond for each lets none wait: then once more.
    until("requests that must wait", || {
        let one = request("POST", "/timestamps?count=262144") + &request("GET", "/ping");
        http.0.get_mut().write_all(one.repeat(20).as_bytes()).expect("the node takes them");
        for _ in 0..20 {
            let (first, ..) = values(&http.answer());
            assert!(first > last);
            last = first;
            assert_eq!(http.answer().2, "OK");
        }
        (node.sum("timestamp_waits") > 0).then_some(())
    });
}

#[test]
fn wrong_requests_are_told_what_is_right() {
    let node = Node::master();
    let mut http = Http::connect(node.handle().address);
    for query in
        ["count=0", "count=262145", "count=-1", "count=+1", "count=x", "count=", "n=1", "", "1"]
    {
        let (status, _, body) = http.ask("POST", &format!("/timestamps?{query}"));
        assert_eq!(status, 400, "{query}: {body}");
        assert_eq!(body, "count: expected ?count=n with n from 1 to 262144");
    }
    for method in ["GET", "PUT", "DELETE"] {
        let (status, head, _) = http.ask(method, "/timestamps");
        assert_eq!(status, 405, "{method}");
        assert!(head.contains("Allow: POST\r\n"), "{head}");
    }
    assert_eq!(http.ask("POST", "/timestamp").0, 404);
    assert_eq!(node.oracle.last(), Timestamp(0), "nothing was handed out");
}

#[test]
fn who_is_not_master_answers_503_and_says_who_is() {
    let node = Node::start(|_| ());
    let mut http = Http::connect(node.handle().address);
    let (status, head, body) = http.ask("POST", "/timestamps");
    assert_eq!((status, body.as_str()), (503, "not the master, and no master is known; try again"));
    assert!(head.contains("Retry-After: 1\r\n") && !head.contains("Timestamp-Master"), "{head}");
    node.tell_master(Some("10.0.0.7:7911"));
    let (status, head, body) = http.ask("POST", "/timestamps");
    assert_eq!((status, body.as_str()), (503, "not the master; the master is 10.0.0.7:7911"));
    assert!(head.contains("Timestamp-Master: 10.0.0.7:7911\r\n"), "{head}");
    node.begin();
    values(&http.ask("POST", "/timestamps"));
}

#[test]
fn where_timestamps_are_off_the_remedy_is_told() {
    let settings = NodeSettings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        shards: Some(1),
        pin: false,
        ..NodeSettings::default()
    };
    let node = start(&settings).unwrap_or_else(|error| panic!("{error}"));
    assert!(node.oracle.is_none() && node.timestamp_address.is_none());
    let (status, _, body) = Http::connect(node.address).ask("POST", "/timestamps");
    assert_eq!(status, 404);
    assert_eq!(body, "timestamps are off; set enabled = true in [timestamp]");
    node.stop();
    node.join().expect("no core has failed");
}
