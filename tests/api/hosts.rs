//! Callback hosts: where they are, what hostile hosts answer, and that a host in trouble disturbs
//! no other host.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kit::ports;

use super::harness::{Client, Node, document, far_document, until};
use super::sink::{Reaction, Sink};

/// A node that tries failed callbacks again within milliseconds.
fn hasty_node() -> Node {
    Node::start(2, "[callbacks]\nretry_first_ms = 20\nretry_max_ms = 50\n")
}

/// The same, whose callbacks time out after so many milliseconds.
fn hasty_node_with_timeout(ms: u64) -> Node {
    Node::start(
        2,
        &format!("[callbacks]\ntimeout_ms = {ms}\nretry_first_ms = 20\nretry_max_ms = 50\n"),
    )
}

#[test]
fn hosts_by_name_and_address() {
    let node = Node::shared();
    let four = Sink::ok();
    let port = four.address.port();
    let hosts =
        [format!("localhost:{port}"), format!("LocalHost:{port}"), four.address.to_string()];
    for host in &hosts {
        let before = four.callbacks().len();
        node.create(&document("0", None, &format!("http://{host}/"), "x"));
        assert_eq!(four.wait_for(before + 1)[before].header("Host"), host);
    }
    let six = Sink::on("[::1]:0", |_, _| Reaction::OK);
    node.create(&document("0", None, &six.uri("/six"), "x"));
    assert_eq!(six.wait_for(1)[0].header("Host"), six.address.to_string());
}

#[test]
fn a_name_that_does_not_resolve_loses_nothing() {
    let node = hasty_node();
    let path = node.create(&document("0", None, "http://no-such-host.invalid/", "x"));
    until("a failed try", || (node.metric("chronos_pops_failed_total") >= 1.0).then_some(()));
    assert_eq!(node.request("GET", &path, "").status, 200);
    let sink = Sink::ok();
    let good = document("0", None, &sink.uri("/"), "moved");
    assert_eq!(node.request("PUT", &path, &good).status, 200);
    assert_eq!(sink.wait_for(1)[0].body, b"moved");
}

#[test]
fn names_that_do_not_resolve_hold_up_no_other() {
    const UNKNOWN: usize = 2_000;
    // Looking a name up is part of an attempt, and takes no longer than an attempt may.
    let node = Node::start_as_installed(2);
    let mut client = node.client();
    for at in 0..UNKNOWN {
        let uri = format!("http://n{at}.silent.example:9/");
        client.create(&document("0.2", Some("3600"), &uri, "x"));
    }
    let sink = Sink::ok();
    let named = format!("http://localhost:{}/", sink.address.port());
    for at in 1..=20 {
        client.create(&document("0", None, &named, "x"));
        sink.wait_for(at);
    }
    let delivered = || node.metric("chronos_pops_delivered_total");
    until("what the sink has seen is counted", || (delivered() >= 20.0).then_some(()));
    assert_eq!(delivered(), 20.0);
}

#[test]
fn a_host_that_refuses_connections_is_tried_until_it_is_there() {
    let node = hasty_node();
    let host = "127.0.0.1".parse().expect("an address");
    let address = format!("{host}:{}", ports::free_port(&[host]));
    for at in 0..20 {
        node.create(&document("0", None, &format!("http://{address}/{at}"), "x"));
    }
    until("failed tries", || (node.metric("chronos_pops_failed_total") >= 20.0).then_some(()));
    let sink = Sink::on(&address, |_, _| Reaction::OK);
    let seen = sink.wait_for(20);
    let mut paths: Vec<_> = seen.iter().map(|one| one.path.clone()).collect();
    paths.sort();
    paths.dedup();
    assert_eq!((seen.len(), paths.len()), (20, 20), "each once");
}

/// Answers a pop first with `reaction`, then with 200. Returns how often the pop was tried when it
/// is over.
fn tries(node: &Node, what: &str, reaction: Reaction) -> usize {
    let sink = Sink::start(move |_, before| match before {
        0 => reaction.clone(),
        _ => Reaction::OK,
    });
    let path = node.create(&document("0", None, &sink.uri("/"), "x"));
    until(what, || (node.request("GET", &path, "").status == 404).then_some(()));
    let seen = sink.callbacks();
    assert!(seen.iter().all(|one| one.sequence() == 1 && one.body == b"x"), "{what}: {seen:?}");
    node.assert_alive(what);
    seen.len()
}

#[test]
fn answers_that_count_in_spite_of_all() {
    // An answer that hangs ends with its attempt.
    let node = hasty_node_with_timeout(5_000);
    let bytes = |text: &str| Reaction::Bytes(text.as_bytes().to_vec());
    let then_close = |text: &str| Reaction::BytesThenClose(text.as_bytes().to_vec());
    let in_chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
    let trickled = format!("HTTP/1.1 100 X\r\n\r\n{in_chunks}");
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (what, reaction) in [
        ("100-continue first", bytes(&format!("HTTP/1.1 100 Continue\r\n\r\n{ok}"))),
        (
            "several interim answers",
            bytes(&format!("{}{ok}", "HTTP/1.1 103 X\r\nA: b\r\n\r\n".repeat(5))),
        ),
        ("two answers", bytes(&ok.repeat(2))),
        ("200 then 500", bytes(&format!("{ok}HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"))),
        ("an answer and garbage", bytes(&format!("{ok}garbage"))),
        ("no length, closed", then_close("HTTP/1.1 200 OK\r\n\r\nbody until the end")),
        ("HTTP/1.0", then_close("HTTP/1.0 200 OK\r\n\r\n")),
        ("chunked", bytes(in_chunks)),
        ("no phrase", bytes("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n")),
        ("closed in the body", then_close("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")),
        ("byte by byte", Reaction::ByteByByte(trickled.into_bytes())),
        ("a body of 1 GiB", Reaction::Gigabyte),
        (
            "a body that hangs",
            Reaction::BytesThenNothing(
                b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_vec(),
            ),
        ),
        ("closed in the head", then_close("HTTP/1.1 200 OK\r\nContent-Le")),
        ("a head that hangs", Reaction::BytesThenNothing(b"HTTP/1.1 200 OK\r\n".to_vec())),
        ("a bad length", bytes("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n")),
        (
            "a head of 100 kB",
            bytes(&format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(100_000))),
        ),
        ("65 headers", bytes(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(65)))),
        ("1 000 headers", bytes(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(1_000)))),
        (
            "Connection: close",
            then_close("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"),
        ),
    ] {
        assert_eq!(tries(&node, what, reaction), 1, "{what}");
    }
}

#[test]
fn answers_that_do_not_count_are_tried_again() {
    let node = hasty_node_with_timeout(400);
    let then_close = |bytes: &[u8]| Reaction::BytesThenClose(bytes.to_vec());
    for (what, reaction) in [
        ("closed at once", then_close(b"")),
        ("broken off", Reaction::Break),
        ("closed in the status line", then_close(b"HTTP/1.1 200 OK")),
        ("a status line that hangs", Reaction::BytesThenNothing(b"HTTP/1.1 20".to_vec())),
        ("nothing", Reaction::never()),
        ("too late", Reaction::Late(Duration::from_millis(800))),
        ("garbage", Reaction::Bytes(b"\0\x01\x02garbage\r\n\r\n".to_vec())),
        ("another protocol", Reaction::Bytes(b"220 smtp.example ESMTP\r\n".to_vec())),
        ("status 0", Reaction::Bytes(b"HTTP/1.1 000 X\r\nContent-Length: 0\r\n\r\n".to_vec())),
        ("status 2", Reaction::Bytes(b"HTTP/1.1 2 X\r\nContent-Length: 0\r\n\r\n".to_vec())),
        (
            "only 100-continue",
            Reaction::BytesThenNothing(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()),
        ),
        ("interim answers without end", Reaction::Bytes(b"HTTP/1.1 100 X\r\n\r\n".repeat(10_000))),
        ("switching protocols", Reaction::Bytes(b"HTTP/1.1 101 X\r\nUpgrade: x\r\n\r\n".to_vec())),
        ("a line of 100 kB", Reaction::Bytes([b'y'; 100_000].to_vec())),
    ] {
        // Twice, if the second answer has come within the time-out.
        assert!(tries(&node, what, reaction) >= 2, "{what}");
    }
}

#[test]
fn a_kept_connection_that_closes_under_a_request_costs_no_pop() {
    // A pause after a failure would be longer than anything is waited for.
    let node = Node::start(
        1,
        "[callbacks]\nconnections_per_host_max = 1\nretry_first_ms = 3600000\n\
         retry_max_ms = 3600000\n",
    );
    // The second callback of the first connection is read and not answered, as by a server that
    // closes an idle connection.
    let sink = Sink::start(|callback, before| match before {
        1 if callback.connection == 0 => Reaction::Break,
        _ => Reaction::OK,
    });
    for (count, path) in [(1, "/first"), (3, "/second")] {
        let timer = node.create(&document("0", None, &sink.uri(path), "x"));
        sink.wait_for(count);
        until("success", || (node.request("GET", &timer, "").status == 404).then_some(()));
    }
    let seen = sink.callbacks();
    let told: Vec<_> = seen.iter().map(|one| (one.path.as_str(), one.connection)).collect();
    assert_eq!(told, [("/first", 0), ("/second", 0), ("/second", 1)], "tried again at once");
    assert!(seen.iter().all(|one| one.sequence() == 1));
}

#[test]
fn an_answer_to_no_request_is_never_taken_for_the_next() {
    let node = Node::start(1, "[callbacks]\nconnections_per_host_max = 1\nretry_first_ms = 20\n");
    // A second answer, 200, waits on the connection when the next callback is made. That callback
    // fails.
    let sink = Sink::start(|callback, _| match callback.path.as_str() {
        "/first" => Reaction::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".repeat(2)),
        "/second" => Reaction::Status(500),
        _ => Reaction::OK,
    });
    node.create(&document("0", None, &sink.uri("/first"), "x"));
    sink.wait_for(1);
    let second = node.create(&document("0", None, &sink.uri("/second"), "x"));
    sink.wait_until("tries", |seen| seen.iter().filter(|one| one.path == "/second").count() >= 3);
    assert_eq!(node.request("GET", &second, "").status, 200, "not delivered by a stray answer");
}

#[test]
fn a_hung_host_does_not_delay_another() {
    const GOOD: usize = 500;
    // The hung callbacks end after a minute: what waited for one of them would be waited for in
    // vain.
    let node = Node::start(2, "");
    let hung = Sink::start(|_, _| Reaction::never());
    let good = Sink::ok();
    let mut client = node.client();
    for _ in 0..3_000 {
        client.create(&document("0.3", None, &hung.uri("/"), "x"));
    }
    hung.wait_for(1);
    for at in 0..GOOD {
        client.create(&document("0.3", None, &good.uri(&format!("/{at}")), "x"));
    }
    let seen = good.wait_for(GOOD);
    let paths: HashSet<_> = seen.iter().map(|one| &one.path).collect();
    assert_eq!(paths.len(), GOOD, "each once");
    assert!(!hung.callbacks().is_empty(), "the other host did hang");
    assert!(hung.open_max() <= 2 * 64, "{} connections", hung.open_max());
    assert_eq!(node.request("POST", "/timers", &far_document()).status, 200);
}

#[test]
fn a_host_that_recovers_gets_every_pop() {
    const TIMERS: usize = 300;
    let node = hasty_node();
    let is_well = Arc::new(AtomicBool::new(false));
    let health = is_well.clone();
    let delivered = Arc::new(Mutex::new(HashMap::new()));
    let counts = delivered.clone();
    let sink = Sink::start(move |callback, _| {
        if !health.load(SeqCst) {
            return Reaction::Break;
        }
        *counts.lock().expect("no panic").entry(callback.path.clone()).or_insert(0) += 1;
        Reaction::OK
    });
    let mut client = node.client();
    for at in 0..TIMERS {
        client.create(&document("0.1", None, &sink.uri(&format!("/{at}")), "x"));
    }
    // So many failures that the host is held back (8 in a row on each core).
    sink.wait_for(40);
    is_well.store(true, SeqCst);
    until("every pop", || (delivered.lock().expect("no panic").len() == TIMERS).then_some(()));
    until("no timer", || (node.metric("chronos_timers") == 0.0).then_some(()));
    let delivered = delivered.lock().expect("no panic").clone();
    let doubled: Vec<_> = delivered.iter().filter(|entry| *entry.1 > 1).collect();
    assert!(doubled.is_empty(), "delivered more than once: {doubled:?}");
}

#[test]
fn a_name_with_an_address_where_nobody_listens_costs_no_try() {
    // On most machines `localhost` is `::1`, too, where this server does not listen. On a machine
    // where it has a single address this test shows less.
    let node = Node::start(1, "");
    let sink = Sink::ok();
    let uri = format!("http://localhost:{}/", sink.address.port());
    for at in 1..=10 {
        node.create(&document("0", None, &uri, "x"));
        sink.wait_for(at);
    }
    until("success", || (node.metric("chronos_pops_delivered_total") == 10.0).then_some(()));
    assert_eq!(node.metric("chronos_pops_failed_total"), 0.0);
    assert_eq!(node.metric("chronos_pops_retried_total"), 0.0);
}

/// Hosts that hang, in whatever number and for however long, leave a place to one that answers. Its
/// pops need a connection each. Nothing is given up for lack of files, and no host that is well is
/// called failing.
#[test]
fn hosts_that_hang_leave_places_to_others_however_few_files_there_are() {
    const HUNG: usize = 12;
    const POPS: usize = 100;
    let node = Node::start_with_open_files(1, "[callbacks]\ngive_up_ms = 1\n", 256);
    let hung: Vec<_> = (0..HUNG).map(|_| Sink::start(|_, _| Reaction::never())).collect();
    let long = |uri: &str| {
        let callback = format!(r#"{{"http":{{"uri":"{uri}","opaque":"x"}},"timeout":"PT300S"}}"#);
        format!(r#"{{"timing":{{"interval":0}},"callback":{callback}}}"#)
    };
    for sink in &hung {
        (0..40).for_each(|_| _ = node.create(&long(&sink.uri("/hung"))));
    }
    let held = || hung.iter().map(Sink::open).sum::<usize>();
    until("all to hang that can", || (held() >= HUNG).then_some(()));
    let closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let sink = Sink::start(|_, _| Reaction::BytesThenClose(closing.to_vec()));
    (0..POPS).for_each(|_| _ = node.create(&document("0.5", None, &sink.uri("/well"), "x")));
    sink.wait_for(POPS);
    until("the answers to be counted", || {
        (node.metric("chronos_pops_delivered_total") >= POPS as f64).then_some(())
    });
    assert_eq!(sink.count(), POPS);
    assert_eq!(node.metric("chronos_pops_given_up_total"), 0.0);
    assert_eq!(node.metric("chronos_pops_failed_total"), 0.0);
}

/// A server that answers a burst with an error has its status told, and so has each dead letter.
#[test]
fn a_burst_of_errors_is_told_with_its_status() {
    const POPS: usize = 100;
    let node = Node::start(1, "");
    let sink = Sink::start(|_, _| Reaction::Status(500));
    let uri = sink.uri("/");
    let callback =
        format!(r#"{{"http":{{"uri":"{uri}","opaque":"x"}},"retry":{{"max-attempts":1}}}}"#);
    let timer = format!(r#"{{"timing":{{"interval":1}},"callback":{callback}}}"#);
    (0..POPS).for_each(|_| _ = node.create(&timer));
    until("all to be given up", || {
        (node.metric("chronos_pops_given_up_total") >= POPS as f64).then_some(())
    });
    let ask = |path: &str| {
        let mut client = Client::connect(node.admin);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"));
        String::from_utf8(client.answer().body).expect("text").replace(' ', "")
    };
    let shown = ask(&format!("/destinations/{}", sink.address));
    assert!(shown.contains(r#""status":500"#), "{shown}");
    let letters = ask("/dead-letters?limit=1000");
    assert_eq!(letters.matches(r#""status":500"#).count(), POPS, "{letters}");
}
