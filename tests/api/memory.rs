//! Memory stays bounded whatever clients and callback servers do, and other clients are served
//! meanwhile.

use std::thread;
use std::time::Duration;

use super::harness::{Client, Node, document, far_document, request_text, until};
use super::sink::{Reaction, Sink};

const MIB: u64 = 1 << 20;
const PING: &str = "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n";

/// A node that takes no memory ahead of timers, so that what grows has another reason.
fn quiet_node(shards: u16, config: &str) -> Node {
    Node::start(shards, &format!("[node]\nmemory_ahead_bytes = 0\n{config}"))
}

/// Asserts that memory has grown by at most `growth_max` bytes since it was `before`, and that a
/// healthy client is served.
fn assert_bounded(node: &Node, before: u64, growth_max: u64, what: &str) {
    node.assert_alive(what);
    let grown = node.resident_bytes().saturating_sub(before);
    eprintln!("{what}: grew by {} KiB", grown / 1024);
    assert!(grown <= growth_max, "{what}: grew by {} KiB", grown / 1024);
}

/// Sends to a node until the node takes no more, or `bytes_max` bytes are sent. Returns how many
/// were.
fn flood(client: &mut Client, piece: &[u8], bytes_max: usize) -> usize {
    client.stream().set_write_timeout(Some(Duration::from_millis(200))).expect("a socket");
    let mut sent = 0;
    while sent < bytes_max && client.try_send(piece).is_ok() {
        sent += piece.len();
    }
    sent
}

#[test]
fn clients_that_never_read() {
    let node = quiet_node(2, "");
    let before = node.resident_bytes();
    let pings = PING.repeat(2_000);
    let mut clients: Vec<_> = (0..200).map(|_| node.client()).collect();
    thread::scope(|scope| {
        for client in &mut clients {
            let pings = pings.as_bytes();
            scope.spawn(move || {
                let sent = flood(client, pings, 64 << 20);
                assert!(sent < 64 << 20, "the node takes requests without end");
            });
        }
    });
    // - Bytes that the clients sent and nobody answers yet: partial_bytes_per_core_max bounds them
    //   to 32 MiB for each of two cores, and a buffer that grows leaves as much with the allocator:
    //   128 MiB.
    // - Each client has an answer buffer being sent and one waiting, of twice
    //   unsent_bytes_per_connection_max after growth: 50 MiB.
    // - The receive buffers of the rings are touched for the first time: 8 MiB.
    assert_bounded(&node, before, 186 * MIB, "200 clients that never read");
    drop(clients);
    until("them to be gone", || (node.metric("chronos_connections") == 0.0).then_some(()));
}

/// Returns a timer whose opaque data take six times as many bytes in JSON: 170 kB are a megabyte.
fn large_document() -> String {
    document("3600", None, "http://127.0.0.1:9/never", &"\0".repeat(170_000))
}

fn reads(path: &str, count: usize) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").repeat(count)
}

#[test]
fn reads_of_a_large_timer_that_nobody_takes() {
    let node = quiet_node(2, "[limits]\nunsent_bytes_per_core_max = 4194304\n");
    let path = node.create(&large_document());
    let small = node.create(&far_document());
    let answer_bytes = node.request("GET", &path, "").body.len() as u64;
    assert!(answer_bytes > 1_020_000);
    let before = node.resident_bytes();
    let requests = reads(&path, 128);
    let mut clients: Vec<_> = (0..16).map(|_| node.client()).collect();
    for client in &mut clients {
        client.send(&requests);
    }
    // Each core makes answers until it holds 4 MiB. The sockets take some of them.
    until("the room to be used up", || {
        (node.metric("chronos_answers_refused_total") > 0.0).then_some(())
    });
    let held = node.metric("chronos_unsent_bytes") as u64;
    // One answer may be above the limit, and each connection has 64 KiB for short answers.
    let held_max = 2 * (4 * MIB + answer_bytes) + 16 * 64 * 1024;
    assert!(held <= held_max, "{held} bytes of answers");
    // The allocator may keep the same again for each of three things: the documents that answers
    // are made from, buffers outgrown, and what is on its way between the cores. Which connections
    // have the room changes, and the allocator may keep a large answer of each, and as much again
    // for the buffers that this answer outgrew. The receive buffers of the rings are touched for
    // the first time: 8 MiB. All that was asked for would be 2048 MiB.
    let growth_max = 4 * held_max + 2 * 16 * answer_bytes + 8 * MIB;
    assert_bounded(&node, before, growth_max, "2048 reads of a megabyte that nobody takes");
    assert_eq!(node.request("GET", &small, "").status, 200, "short answers need no room");
    // Clients that do not take their answers give way.
    until("room", || (node.request("GET", &path, "").status == 200).then_some(()));
    let grown = node.resident_bytes().saturating_sub(before);
    assert!(grown <= growth_max, "grew by {} KiB", grown / 1024);
    drop(clients);
    until("the answers to be let go", || {
        (node.metric("chronos_unsent_bytes") == 0.0).then_some(())
    });
}

#[test]
fn reads_of_large_timers_by_a_client_that_takes_them() {
    for shards in [1, 2] {
        let node = quiet_node(shards, "");
        // Timers of both cores, wherever the clients were connected.
        let paths: Vec<_> = (0..6).map(|_| node.create(&large_document())).collect();
        let before = node.resident_bytes();
        let mut client = node.client();
        let requests: String = paths.iter().map(|path| reads(path, 1)).collect();
        client.send(requests.repeat(5));
        for at in 0..30 {
            let answer = client.answer();
            assert_eq!(answer.status, 200, "answer {at}");
            assert!(answer.body.len() > 6 * 170_000, "answer {at}");
        }
        assert_eq!(node.metric("chronos_answers_refused_total"), 0.0);
        assert_bounded(&node, before, 24 * MIB, "30 large answers, one after the other");
    }
}

#[test]
fn pipelined_garbage() {
    let node = quiet_node(2, "");
    let before = node.resident_bytes();
    let garbage: Vec<u8> =
        (0..1_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let piece = [PING.as_bytes(), &garbage].concat();
    for _ in 0..30 {
        let mut clients: Vec<_> = (0..10).map(|_| node.client()).collect();
        for client in &mut clients {
            let _ = flood(client, &piece, piece.len());
            assert_eq!(client.answer().status, 200);
            assert_eq!(client.answer().status, 400);
        }
    }
    assert_bounded(&node, before, 48 * MIB, "300 MiB of garbage");
}

#[test]
fn clients_that_send_byte_by_byte() {
    let node = quiet_node(2, "");
    let before = node.resident_bytes();
    let mut clients: Vec<_> = (0..500).map(|_| node.client()).collect();
    for byte in PING.as_bytes() {
        for client in &mut clients {
            client.send([*byte]);
        }
    }
    for client in &mut clients {
        assert_eq!(client.answer().status, 200);
        client.send("POST /timers HTTP/1.1\r\nX: ");
    }
    for _ in 0..20 {
        for client in &mut clients {
            client.send("y");
        }
    }
    // The receive buffers of the rings, 4 MiB for each of two cores, are touched for the first time
    // here and stay. 32 KiB for each client leave room for 16 MiB more.
    assert_bounded(&node, before, 24 * MIB, "500 clients in the middle of a head");
}

#[test]
fn bodies_that_never_end() {
    let node = quiet_node(1, "");
    let before = node.resident_bytes();
    let length = MIB as usize - 1;
    let body = vec![b'x'; length - 1];
    let known = format!("POST /timers HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    let chunked = format!(
        "POST /timers HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n"
    );
    let mut clients: Vec<_> = (0..200).map(|_| node.client()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        let head = if at % 2 == 0 { &known } else { &chunked };
        let _ = client.try_send(head.as_bytes());
        let _ = client.try_send(&body);
    }
    until("refusals", || {
        (clients.iter().filter(|client| client.has_answer()).count() >= 100).then_some(())
    });
    // The clients sent 200 MiB. partial_bytes_per_core_max allows 64 MiB, and a buffer that grows
    // is copied once.
    assert_bounded(&node, before, 160 * MIB, "200 bodies of 1 MiB without their last byte");
    drop(clients);
    until("the bytes to be let go", || (node.metric("chronos_partial_bytes") == 0.0).then_some(()));
}

#[test]
fn documents_made_to_be_expensive() {
    let node = quiet_node(1, "");
    let before = node.resident_bytes();
    let mut client = node.client();
    for unit in ["[", "{\"\":", "0,", "\"\\u0000\","] {
        let body = format!("[{}", unit.repeat((1 << 20) / unit.len() - 1));
        for _ in 0..5 {
            assert_eq!(client.request("POST", "/timers", &body).status, 400);
        }
    }
    // Parsing takes 54 bytes per byte of body (wire/timer_json.rs), which the allocator may keep.
    assert_bounded(&node, before, 128 * MIB, "bodies of brackets");
}

#[test]
fn callback_servers_that_answer_without_end() {
    let node = quiet_node(1, "[callbacks]\ntimeout_ms = 400\n");
    let before = node.resident_bytes();
    let long = vec![b'y'; 8 << 20];
    let begins = [
        "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: ",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40000000\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;",
        "",
    ];
    let sink = Sink::start(move |callback, _| {
        let begin = begins[callback.path[1..].parse::<usize>().expect("a number")].as_bytes();
        Reaction::BytesThenNothing([begin, &long].concat())
    });
    for kind in 0..begins.len() {
        for _ in 0..4 {
            node.create(&document("0", None, &sink.uri(&format!("/{kind}")), "x"));
        }
    }
    sink.wait_for(4 * begins.len());
    until("no callback in flight", || (node.metric("chronos_pops_in_flight") == 0.0).then_some(()));
    assert_bounded(&node, before, 48 * MIB, "answers of 8 MiB");
}

#[test]
fn connections_that_come_and_go_leave_nothing() {
    let node = quiet_node(2, "");
    let open_files = || node.metric("process_open_fds");
    node.assert_alive("the first connection");
    node.await_metric("chronos_connections", 0.0);
    let before = open_files();
    for at in 0..2_000 {
        let mut client = node.client();
        match at % 4 {
            0 => client.send("GET /pi"),
            1 => client.send("garbage\r\n\r\n"),
            2 => assert_eq!(client.request("GET", "/ping", "").status, 200),
            _ => {}
        }
    }
    node.await_metric("chronos_connections", 0.0);
    until("the files to be closed", || (open_files() <= before + 4.0).then_some(()));
}

#[test]
fn timers_that_come_and_go_leave_little() {
    let node = quiet_node(1, "");
    let mut client = node.client();
    let body = document("3600", None, "http://127.0.0.1:9/", &"x".repeat(10_000));
    let path = client.create(&body);
    let before = node.resident_bytes();
    // 100 MB of opaque data in all, one timer's worth at a time.
    for _ in 0..10_000 {
        assert_eq!(client.request("PUT", &path, &body).status, 200);
    }
    for _ in 0..1_000 {
        let path = client.create(&body);
        assert_eq!(client.request("DELETE", &path, "").status, 200);
    }
    assert_eq!(client.request("POST", "/timers", &far_document()).status, 200);
    assert_bounded(&node, before, 16 * MIB, "timers replaced and deleted");
}

/// Creates many timers that are alike but for a number, on one connection.
fn create_alike(client: &mut Client, document: &str, numbers: std::ops::Range<u32>) {
    let numbers: Vec<_> = numbers.collect();
    for some in numbers.chunks(100) {
        let text: String = some
            .iter()
            .map(|number| document.replace("00000000", &format!("{number:08}")))
            .map(|document| request_text("POST", "/timers", &document))
            .collect();
        client.send(text);
        some.iter().for_each(|_| assert_eq!(client.answer().status, 200));
    }
}

/// What three headers of 60 bytes each cost a timer: hardly anything if other timers have the same,
/// else their text and little beside it.
#[test]
fn headers_that_timers_share_cost_their_text_once() {
    const TIMERS: u32 = 60_000;
    const HEADERS: [(&str, usize); 3] =
        [("Authorization", 45), ("X-Tenant-Id-Of-Client", 37), ("X-Trace-Parent-Name", 39)];
    let headers = HEADERS.map(|(name, bytes)| format!("\"{name}\":\"{}\"", "v".repeat(bytes)));
    let text_bytes: usize = HEADERS.iter().map(|(name, bytes)| name.len() + bytes + 4).sum();
    let uri = "http://127.0.0.1:9/call/00000000";
    let plain = document("86400", None, uri, &"x".repeat(40));
    let special = format!("\"headers\":{{{}}},\"uri\"", headers.join(","));
    let shared = plain.replace("\"uri\"", &special);
    let different = shared.replace("vvvvvvvv", "00000000");
    let [plain, shared, different] = [plain, shared, different].map(|document| {
        let node = quiet_node(1, "");
        let mut client = node.client();
        // The first timers pay for tables and buffers.
        create_alike(&mut client, &document, 0..TIMERS / 2);
        let before = node.resident_bytes();
        create_alike(&mut client, &document, TIMERS / 2..TIMERS / 2 + TIMERS);
        (node.resident_bytes() - before) as f64 / f64::from(TIMERS)
    });
    let cost = format!("{shared:.0} B if all timers have the same, else {different:.0} B");
    eprintln!("a timer takes {plain:.0} B; with {text_bytes} B of headers {cost}");
    assert!(shared - plain < 40.0, "{plain:.0} B, with headers {shared:.0} B");
    let more = different - plain;
    assert!(more < text_bytes as f64 * 1.5, "{plain:.0} B, with headers {different:.0} B");
}
