//! Clients that send what is no request, too much, or do not read.

use std::io::{ErrorKind, Write};

use chronos::wire::thrift::{STRING_BYTES_MAX, write_get_timestamp};

use super::harness::*;

#[test]
fn what_is_no_request_closes_the_connection_and_is_counted() {
    let node = Node::master();
    let mut too_long = unhex("8001000100002801");
    too_long.resize(too_long.len() + STRING_BYTES_MAX + 1, b'x');
    let mut endless = unhex("800100010000000d67657454696d657374616d707300000008");
    endless.extend_from_slice(&[12, 0, 1].repeat(40));
    let old = unhex("0000000c67657454696d657374616d70010000000100");
    let framed = unhex("00000019800100010000000c67657454696d657374616d700000000100");
    let version = unhex("800200010000000c67657454696d657374616d700000000100");
    let compact = unhex("8221010c67657454696d657374616d7000");
    let reply = unhex("800100020000000c67657454696d657374616d700000000100");
    let cases: [(&str, &[u8]); 8] = [
        ("the old form", &old),
        ("a framed message", &framed),
        ("another version", &version),
        ("the compact protocol", &compact),
        ("a name above 10240 bytes", &too_long),
        ("structs without end", &endless),
        ("a reply", &reply),
        ("HTTP", b"POST /timestamps HTTP/1.1\r\n\r\n"),
    ];
    for (count, (what, bytes)) in (1..).zip(cases) {
        let mut client = node.client();
        // It may be closed before all is sent.
        let _ = client.stream().write_all(bytes);
        client.assert_closed(what);
        node.await_sum("timestamp_protocol_errors", count);
    }
    node.await_sum("timestamp_connections", 0);
    assert_eq!(node.sum("timestamps"), 0);
    node.client().call(1).value();
}

#[test]
fn what_came_before_it_is_answered() {
    let node = Node::master();
    let mut client = node.client();
    let mut bytes = Vec::new();
    write_get_timestamp(&mut bytes, 1);
    write_get_timestamp(&mut bytes, 2);
    bytes.extend_from_slice(b"\x00\x00");
    client.send(&bytes);
    assert_eq!(client.reply().0, 1);
    assert_eq!(client.reply().0, 2);
    client.assert_closed("after the last reply");
}

#[test]
fn who_does_not_read_is_not_read_from_and_disturbs_nobody() {
    let node = Node::master();
    let mut slow = node.client();
    let mut calls = Vec::new();
    for seqid in 0..1_000 {
        write_get_timestamp(&mut calls, seqid);
    }
    // Until neither side's kernel takes more: some megabytes.
    slow.stream().set_nonblocking(true).expect("a socket");
    let mut sent_bytes = 0;
    let mut quiet_since = std::time::Instant::now();
    let call_bytes = calls.len() / 1_000;
    while quiet_since.elapsed().as_millis() < 300 {
        match slow.stream().write(&calls[sent_bytes % calls.len()..]) {
            Ok(count) => {
                sent_bytes += count;
                quiet_since = std::time::Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(sent_bytes < 256 << 20, "the node takes requests without end");
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    let mut others: Vec<_> = (0..8).map(|_| node.client()).collect();
    for other in &mut others {
        other.call(1).value();
    }
    slow.stream().set_nonblocking(false).expect("a socket");
    let mut last = 0;
    for number in 0..sent_bytes / call_bytes {
        let (seqid, said) = slow.reply();
        assert_eq!(seqid as usize, number % 1_000);
        let value = said.value();
        assert!(value > last);
        last = value;
    }
    let begun = sent_bytes % calls.len() % call_bytes;
    let at = sent_bytes % calls.len();
    if begun > 0 {
        slow.send(&calls[at..at + call_bytes - begun]);
        slow.reply().1.value();
    }
    slow.call(1).value();
}

#[test]
fn connections_beyond_the_limit_are_closed_and_counted() {
    let node = Node::start(|settings| {
        settings.shards = Some(1);
        settings.timestamp.as_mut().expect("on").connections_per_core_max = 3;
    });
    node.begin();
    let mut kept: Vec<_> = (0..3).map(|_| node.client()).collect();
    for client in &mut kept {
        client.call(1).value();
    }
    node.client().assert_closed("the fourth");
    node.await_sum("timestamp_connections_refused", 1);
    drop(kept.pop());
    node.await_sum("timestamp_connections", 2);
    let mut again = node.client();
    again.call(1).value();
    assert_eq!(node.sum("timestamp_connections_accepted"), 4);
}

#[test]
fn a_thousand_connections_come_and_go() {
    let node = Node::master();
    for _ in 0..3 {
        let mut clients: Vec<_> = (0..350).map(|_| node.client()).collect();
        let mut last = 0;
        for client in &mut clients {
            let value = client.call(1).value();
            assert!(value > last);
            last = value;
        }
    }
    node.await_sum("timestamp_connections", 0);
    node.await_sum("timestamp_connections_accepted", 1_050);
}
