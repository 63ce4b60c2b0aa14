//! Requests and answers over TLS.

use std::io::{Read, Write};
use std::net::Shutdown;

use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, ProtocolVersion};

use super::authorities::{Authority, Files};
use super::harness::{Client, Node};

#[test]
fn a_timer_lives_over_both_versions() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let node = Node::start(&files.config(""));
    for (version, told) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)]
    {
        let config = authority.trusting(&[version], None);
        let mut client = Client::connect(&node, &config);
        let path = client.create();
        assert_eq!(client.stream.conn.protocol_version(), Some(told));
        for _ in 0..20 {
            let answer = client.request("GET", &path, "");
            assert!(String::from_utf8_lossy(&answer.body).contains("3600"), "{answer:?}");
        }
        let answer = client.request("DELETE", &path, "");
        assert!(answer.head.starts_with("HTTP/1.1 200 "), "{answer:?}");
        // The plain port serves the same timers.
        let plain = kit::client::request(node.plain, "GET", &path, "").expect("an answer");
        assert_eq!(plain.status, 404);
    }
    node.await_metric("chronos_tls_handshakes_total", 2);
    assert_eq!(node.metric("chronos_tls_failed_total"), 0);
}

#[test]
fn requests_in_a_row_are_answered_in_order() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let node = Node::start(&files.config(""));
    let mut client = Client::connect(&node, &authority.trusting(&[&TLS13], None));
    let all: String = (0..500)
        .map(|at| match at % 2 {
            0 => "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
            _ => format!("GET /timers/{at:016x}-2-0 HTTP/1.1\r\nHost: x\r\n\r\n"),
        })
        .collect();
    client.stream.write_all(all.as_bytes()).expect("taken");
    for at in 0..500 {
        let answer = client.answer().expect("an answer");
        let wanted = if at % 2 == 0 { "HTTP/1.1 200 " } else { "HTTP/1.1 404 " };
        assert!(answer.head.starts_with(wanted), "answer {at}: {}", answer.head);
    }
}

#[test]
fn a_bulk_request_over_tls() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let node = Node::start(&files.config(""));
    let mut client = Client::connect(&node, &authority.trusting(&[&TLS13], None));
    let line = "{\"timing\":{\"interval\":3600},\"callback\":{\"http\":{\"uri\":\"http://127.0.0.1:9/\",\
                \"opaque\":\"x\"}}}\n";
    let body = line.repeat(400) + "bad\n" + &line.repeat(400);
    let head = "POST /timers/bulk HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: ";
    let request = format!("{head}{}\r\n\r\n{body}", body.len());
    client.stream.write_all(request.as_bytes()).expect("taken");
    let mut answer = String::new();
    client.stream.read_to_string(&mut answer).expect("the node ends it in order");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n0\r\n\r\n"));
    let results: Vec<&str> = answer.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(results.len(), 801);
    for (at, result) in results.iter().enumerate() {
        let begins = if at == 400 { "{\"status\":400," } else { "{\"location\":\"/timers/" };
        assert!(result.starts_with(begins), "{at}: {result}");
    }
}

#[test]
fn a_large_timer_comes_back_as_it_was() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let node = Node::start(&files.config(""));
    for version in [&TLS12, &TLS13] {
        let mut client = Client::connect(&node, &authority.trusting(&[version], None));
        let opaque: String = (0..150_000).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
        let document = format!(
            "{{\"timing\":{{\"interval\":3600}},\"callback\":{{\"http\":{{\"uri\":\
             \"http://127.0.0.1:9/never\",\"opaque\":\"{opaque}\"}}}}}}"
        );
        let answer = client.request("POST", "/timers", &document);
        let path = answer.header("Location").expect("created").to_owned();
        for _ in 0..5 {
            let body = client.request("GET", &path, "").body;
            assert!(kit::http::find(&body, opaque.as_bytes()).is_some());
        }
    }
}

/// Tickets are those of all cores: which one accepts the next connection is chance.
#[test]
fn a_client_goes_on_with_its_ticket_on_any_core() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let node = Node::start(&files.config(""));
    for version in [&TLS12, &TLS13] {
        let config = authority.trusting(&[version], None);
        for round in 0..20 {
            let mut client = Client::connect(&node, &config);
            client.create();
            let kind = client.stream.conn.handshake_kind();
            let wanted = if round == 0 { HandshakeKind::Full } else { HandshakeKind::Resumed };
            assert_eq!(kind, Some(wanted), "round {round}");
        }
    }
    node.await_metric("chronos_tls_resumed_total", 38);
}

#[test]
fn the_node_tells_its_end_before_it_closes() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let node = Node::start(&files.config(""));
    for version in [&TLS12, &TLS13] {
        let config = authority.trusting(&[version], None);
        let mut client = Client::connect(&node, &config);
        let ask = "GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        client.stream.write_all(ask.as_bytes()).expect("taken");
        assert_eq!(client.answer().expect("an answer").body, b"OK");
        assert!(client.end_is_told());
        // A mistake in HTTP is answered, and ends the connection as well.
        let mut client = Client::connect(&node, &config);
        client.stream.write_all(b"GET /ping HTTP/1.1\r\nno colon\r\n\r\n").expect("taken");
        assert!(client.answer().expect("an answer").head.starts_with("HTTP/1.1 400 "));
        assert!(client.end_is_told());
    }
}

#[test]
fn a_client_that_ends_gets_its_answers_first() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let node = Node::start(&files.config(""));
    for version in [&TLS12, &TLS13] {
        for tells in [true, false] {
            let mut client = Client::connect(&node, &authority.trusting(&[version], None));
            client.create();
            client.send("POST", "/timers", super::harness::TIMER).expect("taken");
            if tells {
                client.stream.conn.send_close_notify();
                client.stream.flush().expect("taken");
            } else {
                client.stream.sock.shutdown(Shutdown::Write).expect("open");
            }
            let answer = client.answer().expect("an answer");
            assert!(answer.head.starts_with("HTTP/1.1 200 "), "{}", answer.head);
            assert!(client.end_is_told(), "told: {tells}");
        }
    }
}

#[test]
fn an_orderly_stop_tells_the_end() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let node = Node::start(&files.config(""));
    let mut client = Client::connect(&node, &authority.trusting(&[&TLS13], None));
    client.create();
    // A second connection has not even begun its handshake.
    let idle = super::harness::connect(node.secure);
    node.stop();
    assert!(client.end_is_told());
    drop(idle);
}

#[test]
fn only_http_1_1_is_agreed_on() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let node = Node::start(&files.config(""));
    let with = |names: &[&str]| {
        let mut config = (*authority.trusting(&[&TLS13], None)).clone();
        config.alpn_protocols = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        let mut client = Client::connect(&node, &std::sync::Arc::new(config));
        let answer = client.send("GET", "/ping", "").and_then(|()| client.answer());
        answer.map(|_| client.stream.conn.alpn_protocol().map(<[u8]>::to_vec))
    };
    assert_eq!(with(&["h2", "http/1.1"]).expect("agreed"), Some(b"http/1.1".to_vec()));
    assert_eq!(with(&[]).expect("nothing to agree on"), None);
    let error = with(&["h2"]).expect_err("nothing in common").to_string();
    assert!(error.contains("NoApplicationProtocol"), "{error}");
}
