//! What is no TLS, what is broken, and what never ends.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use kit::until::until;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection};

use super::authorities::{Authority, Files};
use super::harness::{Client, Node, PATIENCE, connect, session};

/// All that comes until the end of a connection, in whichever way it ends.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection stays open: {error}"),
    }
    all
}

fn started() -> (Node, Authority, Files) {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    (Node::start(&files.config("")), authority, files)
}

fn assert_alive(node: &Node, config: &Arc<ClientConfig>) {
    Client::connect(node, config).create();
    let answer = kit::client::request(node.plain, "GET", "/ping", "").expect("an answer");
    assert_eq!(answer.status, 200);
}

/// Hands everything over that the client has to say, in pieces of this size.
fn send_in_pieces(client: &mut ClientConnection, stream: &mut TcpStream, bytes: usize) {
    let mut wire = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut wire).expect("memory");
    }
    for piece in wire.chunks(bytes) {
        stream.write_all(piece).expect("taken");
    }
}

/// A client whose handshake is over, and its connection.
fn shake_hands(node: &Node, config: &Arc<ClientConfig>) -> (ClientConnection, TcpStream) {
    let (mut client, mut stream) = (session(config), connect(node.secure));
    while client.is_handshaking() {
        client.complete_io(&mut stream).expect("a handshake");
    }
    (client, stream)
}

#[test]
fn plain_http_on_the_port_of_tls_is_told_where_it_is() {
    let (node, authority, _files) = started();
    for ask in ["GET /ping HTTP/1.1\r\nHost: x\r\n\r\n", "POST", "x", "\r\n"] {
        let mut stream = connect(node.secure);
        stream.write_all(ask.as_bytes()).expect("taken");
        let told = String::from_utf8(rest(&mut stream)).expect("text");
        assert!(told.starts_with("HTTP/1.1 400 "), "{ask:?}: {told}");
        assert!(told.contains("this port speaks TLS") && told.contains("https://"), "{told}");
    }
    // A client that ends at once is told as well.
    let mut stream = connect(node.secure);
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("taken");
    stream.shutdown(std::net::Shutdown::Write).expect("open");
    assert!(rest(&mut stream).starts_with(b"HTTP/1.1 400 "));
    assert_alive(&node, &authority.trusting(&[&TLS13], None));
}

#[test]
fn tls_on_the_plain_port_is_told_so() {
    let (node, authority, _files) = started();
    for version in [&TLS12, &TLS13] {
        let mut stream = connect(node.plain);
        let mut client = session(&authority.trusting(&[version], None));
        send_in_pieces(&mut client, &mut stream, 16 << 10);
        let told = String::from_utf8(rest(&mut stream)).expect("text");
        assert!(told.starts_with("HTTP/1.1 400 "), "{told}");
        assert!(told.contains("this port speaks no TLS"), "{told}");
    }
    assert_alive(&node, &authority.trusting(&[&TLS13], None));
}

#[test]
fn a_handshake_byte_by_byte_is_one() {
    let (node, authority, _files) = started();
    for version in [&TLS12, &TLS13] {
        for bytes in [1, 3, 100] {
            let config = authority.trusting(&[version], None);
            let (mut client, mut stream) = (session(&config), connect(node.secure));
            let ask = b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            while client.is_handshaking() {
                send_in_pieces(&mut client, &mut stream, bytes);
                if client.wants_read() && client.is_handshaking() {
                    assert!(client.read_tls(&mut stream).expect("bytes") > 0);
                    client.process_new_packets().expect("good");
                }
            }
            client.writer().write_all(ask).expect("memory");
            send_in_pieces(&mut client, &mut stream, bytes);
            let mut answer = Vec::new();
            let mut whole = rustls::Stream::new(&mut client, &mut stream);
            whole.read_to_end(&mut answer).expect("an answer and its end");
            assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", answer.escape_ascii());
        }
    }
}

/// An alert is a record of type 21. What is encrypted cannot be told from other records in TLS 1.3.
#[test]
fn wrong_bytes_end_in_an_alert() {
    let (node, authority, _files) = started();
    let record = |kind: u8, length: u16, body: &[u8]| {
        [&[kind, 3, 3][..], &length.to_be_bytes(), body].concat()
    };
    for (what, wire) in [
        ("no hello", record(22, 4, &[1, 0, 0, 0])),
        ("a hello of nonsense", record(22, 40, &[1; 40])),
        ("a record that is too long", record(22, 0xffff, &[1; 100])),
        ("an empty record", record(22, 0, &[])),
        ("a hello of 16 MiB", record(22, 100, &[&[1, 0xff, 0xff, 0xff][..], &[0; 96]].concat())),
        ("a version of nobody", [&[22, 9, 9, 0, 5][..], &[1; 5]].concat()),
    ] {
        let mut stream = connect(node.secure);
        stream.write_all(&wire).expect("taken");
        let told = rest(&mut stream);
        assert_eq!(told.first(), Some(&21), "{what}: {}", told.escape_ascii());
    }
    node.await_metric("chronos_tls_failed_total", 6);
    assert_alive(&node, &authority.trusting(&[&TLS13], None));
}

/// What no TLS begins with ends the connection as soon as it can be told, before the message is
/// complete, and nothing more is read.
#[test]
fn nonsense_ends_at_its_first_bytes() {
    let (node, authority, _files) = started();
    let heads: [&[u8]; 5] = [
        &[22, 9],
        &[22, 3, 3, 0xff, 0xff],
        &[22, 3, 3, 0, 0],
        &[22, 3, 1, 0x40, 0, 2],
        &[22, 3, 1, 0x40, 0, 1, 0xff, 0, 0],
    ];
    for head in heads {
        let mut stream = connect(node.secure);
        stream.write_all(head).expect("taken");
        let told = rest(&mut stream);
        assert_eq!(told.first(), Some(&21), "{head:?}: {}", told.escape_ascii());
        until("the other end to be closed", PATIENCE, || stream.write_all(&[0; 1_000]).err());
    }
    // However much follows, it is one that failed.
    for head in heads {
        let mut stream = connect(node.secure);
        let _ = stream.write_all(&[head, &[0x5a; 128 << 10]].concat());
        let _ = rest(&mut stream);
    }
    node.await_metric("chronos_tls_failed_total", 10);
    assert_alive(&node, &authority.trusting(&[&TLS13], None));
}

#[test]
fn a_record_that_was_changed_ends_the_connection() {
    let (node, authority, _files) = started();
    for version in [&TLS12, &TLS13] {
        let config = authority.trusting(&[version], None);
        let (mut client, mut stream) = shake_hands(&node, &config);
        let ask = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n";
        client.writer().write_all(ask).expect("memory");
        let mut wire = Vec::new();
        client.write_tls(&mut wire).expect("memory");
        *wire.last_mut().expect("a record") ^= 1;
        stream.write_all(&wire).expect("taken");
        let mut whole = rustls::Stream::new(&mut client, &mut stream);
        let error = whole.read_to_end(&mut Vec::new()).expect_err("an alert");
        assert!(error.to_string().contains("BadRecordMac"), "{error}");
    }
    node.await_metric("chronos_tls_failed_total", 2);
    assert_alive(&node, &authority.trusting(&[&TLS13], None));
}

#[test]
fn a_client_that_goes_away_leaves_nothing() {
    let (node, authority, _files) = started();
    let config = authority.trusting(&[&TLS13], None);
    let mut wire = Vec::new();
    session(&config).write_tls(&mut wire).expect("memory");
    for cut in [0, 1, 5, 60, wire.len() - 1, wire.len()] {
        let mut stream = connect(node.secure);
        stream.write_all(&wire[..cut]).expect("taken");
        drop(stream);
    }
    let (_, stream) = shake_hands(&node, &config);
    drop(stream);
    node.await_metric("chronos_connections", 0);
    assert_alive(&node, &config);
}

#[test]
fn a_handshake_that_never_ends_is_ended() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let node = Node::start(&files.config("handshake_timeout_ms = 300"));
    let config = authority.trusting(&[&TLS13], None);
    let mut wire = Vec::new();
    session(&config).write_tls(&mut wire).expect("memory");
    // Nothing at all, a part of the first message, and all of it without the second.
    for bytes in [0, 20, wire.len()] {
        let mut stream = connect(node.secure);
        stream.write_all(&wire[..bytes]).expect("taken");
        rest(&mut stream);
    }
    // One that was in time has no such end.
    let (mut client, mut stream) = shake_hands(&node, &config);
    let mut waiting = connect(node.secure);
    rest(&mut waiting);
    let mut whole = rustls::Stream::new(&mut client, &mut stream);
    whole.write_all(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n").expect("open");
    let mut first = [0; 12];
    whole.read_exact(&mut first).expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 200");
    node.await_metric("chronos_tls_failed_total", 4);
}

/// What handshakes hold is counted, and bounded over all connections of a core.
#[test]
fn handshakes_that_are_never_complete_have_a_bound_together() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let limits = "[limits]\nbody_bytes_max = 65536\nopaque_bytes_max = 65536\n\
                  header_bytes_max = 65536\npartial_bytes_per_core_max = 200000";
    let node = Node::start(&files.config(limits));
    let first = [&[22, 3, 1, 0, 4][..], &[1, 0, 0xff, 0xff]].concat();
    let piece = [&[22, 3, 1, 0x38, 0][..], &[0; 0x3800]].concat();
    let begin = || {
        let mut stream = connect(node.secure);
        // Whether the node ends it before its last bytes are sent is chance.
        let _ = stream.write_all(&first);
        let _ = (0..4).try_for_each(|_| stream.write_all(&piece));
        stream
    };
    let one = begin();
    let held = || (node.metric("chronos_partial_bytes") > 4 * 0x3800).then_some(());
    kit::until::until("the bytes of a handshake to be counted", PATIENCE, held);
    // Two cores of 200 000 bytes have room for six.
    let many: Vec<_> = (0..40).map(|_| begin()).collect();
    let few = || (node.metric("chronos_connections") <= 6).then_some(());
    kit::until::until("most of them to end", PATIENCE, few);
    assert!(node.metric("chronos_partial_bytes") <= 400_000);
    drop((one, many));
    assert_alive(&node, &authority.trusting(&[&TLS13], None));
}

/// More than any handshake has, in records that never make a message.
#[test]
fn a_handshake_without_bounds_is_ended() {
    let (node, authority, _files) = started();
    let mut stream = connect(node.secure);
    // A message of 65 535 bytes, which is the longest that is waited for, begins and goes on.
    let piece = [&[22, 3, 1, 0x40, 0][..], &[0; 0x4000]].concat();
    let first = [&[22, 3, 1, 0, 4][..], &[1, 0, 0xff, 0xff]].concat();
    let mut result = stream.write_all(&first);
    for _ in 0..64 {
        result = result.and_then(|()| stream.write_all(&piece));
    }
    // Whether the node's end reaches the client before its last bytes are sent is chance.
    drop(result);
    rest(&mut stream);
    assert_alive(&node, &authority.trusting(&[&TLS13], None));
}

/// A client that is ready sends its requests behind its last message of the handshake: all of this
/// comes at once, and more than any handshake has.
#[test]
fn requests_may_come_with_the_end_of_the_handshake() {
    let (node, authority, _files) = started();
    for version in [&TLS12, &TLS13] {
        let config = authority.trusting(&[version], None);
        let (mut client, mut stream) = (session(&config), connect(node.secure));
        client.set_buffer_limit(None);
        let opaque = "o".repeat(250_000);
        let timer = super::harness::TIMER.replace("\"x\"", &format!("\"{opaque}\""));
        let head = format!(
            "POST /timers HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            timer.len()
        );
        client.writer().write_all(&[head, timer].concat().into_bytes()).expect("memory");
        let mut whole = rustls::Stream::new(&mut client, &mut stream);
        let mut answer = Vec::new();
        whole.read_to_end(&mut answer).expect("an answer and its end");
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", answer.escape_ascii());
    }
}

/// Nodes connect to the plain port, over TLS of their own or without: not here.
#[test]
fn no_node_connects_over_tls() {
    let (node, authority, _files) = started();
    let mut client = Client::connect(&node, &authority.trusting(&[&TLS13], None));
    let ask = "GET /peer HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n\
               Upgrade: chronos-peer/1\r\n\r\n";
    client.stream.write_all(ask.as_bytes()).expect("taken");
    let answer = client.answer().expect("an answer");
    assert!(answer.head.contains("the port of [node] listen"), "{}", answer.head);
    assert_alive(&node, &authority.trusting(&[&TLS13], None));
}

#[test]
fn the_last_place_is_not_paid_for_with_a_handshake() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let config = format!("[limits]\nconnections_per_core_max = 1\n{}", files.config(""));
    let node = Node::start(&config);
    let trusting = authority.trusting(&[&TLS13], None);
    let try_one = || {
        let mut client = Client::connect(&node, &trusting);
        client.send("GET", "/ping", "").and_then(|()| client.answer()).map(|_| client)
    };
    // Two cores have a place each; who of many gets one is chance.
    let all: Vec<_> = (0..12).map(|_| try_one()).collect();
    let served = all.iter().filter(|one| one.is_ok()).count();
    assert!((1..=2).contains(&served), "{served} served");
}

/// The answer comes at the head, and the client may still be sending: it is read, not reset away.
#[test]
fn a_client_that_is_refused_at_the_head_reads_why() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let line = "x client 0000000000000000000000000000000000000000000000000000000000000000\n";
    files.write("tokens", line, 0o600);
    let tokens = files.path("tokens");
    let node = Node::start(&format!("auth.tokens_file = {tokens:?}\n{}", files.config("")));
    let body = "x".repeat(1 << 20);
    for _ in 0..30 {
        let mut client = Client::connect(&node, &authority.trusting(&[&TLS13], None));
        client.send("POST", "/timers", &body).expect("taken and thrown away");
        let answer = client.answer().expect("the answer, and no reset");
        assert!(answer.head.starts_with("HTTP/1.1 401 "), "{}", answer.head);
    }
}
