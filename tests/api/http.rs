//! HTTP as clients speak it: versions, keep-alive, pipelining, chunks, and bytes that come in any
//! portions.

use std::io::Read;
use std::thread;
use std::time::Duration;

use super::harness::{Answer, Client, End, Node, document, far_document, request_text};

const PING: &str = "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n";

fn chunked(method: &str, path: &str, pieces: &[&str], trailers: &str) -> String {
    let mut text =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for piece in pieces {
        text.push_str(&format!("{:X};name=value\r\n{piece}\r\n", piece.len()));
    }
    text + "0\r\n" + trailers + "\r\n"
}

fn is_pong(answer: &Answer) -> bool {
    answer.status == 200 && answer.text() == "OK"
}

#[test]
fn connections_persist_as_version_and_header_say() {
    let node = Node::shared();
    for (version, header, stays, told) in [
        ("1.1", "", true, None),
        ("1.1", "Connection: keep-alive\r\n", true, None),
        ("1.1", "Connection: close\r\n", false, Some("close")),
        ("1.1", "connection: x, CLOSE\r\n", false, Some("close")),
        ("1.0", "", false, Some("close")),
        ("1.0", "Connection: keep-alive\r\n", true, Some("keep-alive")),
        ("1.0", "Connection: close\r\n", false, Some("close")),
    ] {
        for (path, status) in [("/ping", 200), ("/timers/0000000000000001-1", 404), ("/ping/", 404)]
        {
            let what = format!("{path} {version} {header:?}");
            let mut client = node.client();
            client.send(format!("GET {path} HTTP/{version}\r\nHost: x\r\n{header}\r\n"));
            let answer = client.answer();
            assert_eq!(answer.status, status, "{what}");
            assert_eq!(answer.header("Connection"), told, "{what}");
            if stays {
                assert_eq!(client.request("GET", "/ping", "").status, 200, "{what}");
            } else {
                assert_eq!(client.end(), End::Closed, "{what}");
            }
        }
    }
}

#[test]
fn http10_needs_no_host_and_creates_timers() {
    let node = Node::shared();
    let mut client = node.client();
    let body = far_document();
    client.send(format!("POST /timers HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    let answer = client.answer();
    assert_eq!(answer.status, 200);
    assert!(answer.says_close());
    assert_eq!(client.end(), End::Closed);
}

#[test]
fn an_absolute_target_is_understood() {
    let node = Node::shared();
    let mut client = node.client();
    client.send("GET http://somewhere:1/ping?x HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(is_pong(&client.answer()));
}

#[test]
fn pipelined_answers_come_in_the_order_of_requests() {
    for shards in [1, 2, 16] {
        let node = Node::start(shards, "");
        let mut client = node.client();
        // Other cores answer for the ids that they own, and the rest is answered at once. Only the
        // order tells the answers apart.
        let paths: Vec<_> =
            (0..400_u64).map(|at| format!("/timers/{:016x}-{}", at * 7 + 1, at % 16 + 1)).collect();
        let mut text = String::new();
        for path in &paths {
            text += &request_text("PUT", path, &far_document());
            text += PING;
            text += &request_text("GET", path, "");
            text += &request_text("GET", "/nowhere", "");
            text += &request_text("DELETE", path, "");
            text += &request_text("GET", path, "");
        }
        let mut writer = client.stream().try_clone().expect("a second handle");
        let sender = thread::spawn(move || {
            std::io::Write::write_all(&mut writer, text.as_bytes()).expect("taken");
        });
        for path in &paths {
            let put = client.answer();
            assert_eq!(put.status, 200, "{put:?}");
            assert!(put.header("Location").expect("one").starts_with(path.as_str()), "{path}");
            assert!(is_pong(&client.answer()));
            let got = client.answer();
            assert_eq!(got.header("Content-Type"), Some("application/json"), "{got:?}");
            assert!(client.answer().text().contains("no such path"));
            let deleted = client.answer();
            assert!(deleted.header("Location").expect("one").starts_with(path.as_str()));
            assert!(client.answer().text().contains("no timer"));
        }
        sender.join().expect("no panic");
    }
}

#[test]
fn requests_after_one_that_closes_are_not_taken() {
    let node = Node::start(2, "");
    for first in ["GET /ping", "GET /timers/0000000000000001-1", "GET /timers/0000000000000002-1"] {
        let mut client = node.client();
        let close = format!("{first} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        client.send(close + &request_text("PUT", "/timers/00000000000000cc-1", &far_document()));
        assert!(client.answer().says_close(), "{first}");
        assert_eq!(client.end(), End::Closed, "{first}");
        assert_eq!(node.request("GET", "/timers/00000000000000cc-1", "").status, 404);
    }
}

#[test]
fn chunked_bodies() {
    let node = Node::shared();
    let body = far_document();
    let mut client = node.client();
    client.send(chunked("POST", "/timers", &[&body], ""));
    assert_eq!(client.answer().status, 200);
    client.send(chunked("POST", "/timers", &[&body[..1], &body[1..9], &body[9..]], "A: b\r\n"));
    assert_eq!(client.answer().status, 200);
    let bytes: Vec<_> = (0..body.len()).map(|at| &body[at..=at]).collect();
    client.send(chunked("POST", "/timers", &bytes, "") + PING);
    assert_eq!(client.answer().status, 200);
    assert!(is_pong(&client.answer()), "what follows a chunked body is a request");
    client.send(chunked("DELETE", "/timers/00000000000000dd-1", &["ignored"], ""));
    assert_eq!(client.answer().status, 200);
    client.send(chunked("POST", "/timers", &[], ""));
    client.answer().assert_refusal(400, "body: empty", "no chunk");
}

#[test]
fn a_client_that_expects_100_continue_is_asked_for_the_body() {
    let node = Node::shared();
    let body = far_document();
    let head = |length: usize| {
        format!(
            "POST /timers HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\n\
             Content-Length: {length}\r\n\r\n"
        )
    };
    let mut client = node.client();
    for _ in 0..2 {
        client.send(head(body.len()));
        assert_eq!(client.answer().status, 100);
        client.send(&body);
        assert_eq!(client.answer().status, 200);
    }
    // Behind a request that another core answers, the interim answer waits for its turn.
    for id in 1..20 {
        let first = format!("GET /timers/{id:016x}-2 HTTP/1.1\r\nHost: x\r\n\r\n");
        client.send(first + &head(body.len()));
        assert_eq!(client.answer().status, 404);
        assert_eq!(client.answer().status, 100);
        client.send(&body);
        assert_eq!(client.answer().status, 200);
    }
    // A client that does not wait needs no interim answer.
    client.send(head(body.len()) + &body);
    let mut answer = client.answer();
    if answer.status == 100 {
        answer = client.answer();
    }
    assert_eq!(answer.status, 200);
    // A client whose body would be refused is told so instead.
    client.send(head(1 << 30));
    client.answer().assert_refusal(413, "limits.body_bytes_max", "1 GiB");
    assert_eq!(client.end(), End::Closed);
    // HTTP/1.0 knows no interim answers (RFC 9110 section 10.1.1).
    let mut client = node.client();
    client.send(head(body.len()).replace("HTTP/1.1", "HTTP/1.0"));
    client.send(&body);
    assert_eq!(client.answer().status, 200);
}

#[test]
fn bytes_may_come_one_by_one() {
    let node = Node::shared();
    let body = far_document();
    let whole = request_text("POST", "/timers", &body)
        + &chunked("PUT", "/timers/00000000000000ee-2", &[&body[..50], &body[50..]], "T: r\r\n")
        + PING;
    let mut client = node.client();
    for byte in whole.as_bytes() {
        client.send([*byte]);
    }
    assert_eq!(client.answer().status, 200);
    assert_eq!(client.answer().status, 200);
    assert!(is_pong(&client.answer()));
}

#[test]
fn a_request_may_be_split_at_every_byte() {
    let node = Node::shared();
    let body = document("3600", None, "http://127.0.0.1:9/", "o");
    let known = request_text("PUT", "/timers/00000000000000ff-2", &body);
    let in_chunks = chunked("PUT", "/timers/00000000000000ff-2", &[&body], "T: r\r\n");
    for whole in [known, in_chunks] {
        // There is one connection per cut. All are open at once, so that no cut waits for another.
        let mut clients: Vec<_> = (1..whole.len())
            .map(|at| {
                let mut client = node.client();
                client.send(&whole[..at]);
                (at, client)
            })
            .collect();
        for (at, client) in &mut clients {
            client.assert_silent(&format!("{at} of {}", whole.len()));
            client.send(format!("{}{PING}", &whole[*at..]));
        }
        for (at, client) in &mut clients {
            assert_eq!(client.answer().status, 200, "cut at {at}");
            assert!(is_pong(&client.answer()), "cut at {at}");
        }
    }
}

#[test]
fn a_client_that_sends_no_more_still_gets_its_answers() {
    for shards in [1, 2] {
        let node = Node::start(shards, "");
        for count in [1, 2, 127, 128, 129, 1_000, 5_000] {
            let mut client = node.client();
            let mut text = PING.repeat(count - 1);
            text += &request_text("GET", "/timers/0000000000000003-2", "");
            let mut writer = client.stream().try_clone().expect("a second handle");
            let sender = thread::spawn(move || {
                std::io::Write::write_all(&mut writer, text.as_bytes()).expect("taken");
                writer.shutdown(std::net::Shutdown::Write).expect("open until now");
            });
            for at in 1..count {
                assert!(is_pong(&client.answer()), "{at} of {count}");
            }
            assert_eq!(client.answer().status, 404, "the last of {count}");
            assert_eq!(client.end(), End::Closed);
            sender.join().expect("no panic");
        }
    }
}

#[test]
fn half_a_request_before_the_end_is_no_request() {
    let node = Node::shared();
    let path = "/timers/00000000000000fa-2";
    let whole = request_text("PUT", path, &far_document());
    for cut in [1, 20, whole.len() - 1] {
        let mut client = node.client();
        client.send(format!("{PING}{}", &whole[..cut]));
        client.half_close();
        assert!(is_pong(&client.answer()));
        let mut rest = Vec::new();
        client.stream().read_to_end(&mut rest).expect("closed in order");
        let text = String::from_utf8_lossy(&rest);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 400"), "{cut}: {text}");
    }
    assert_eq!(node.request("GET", path, "").status, 404);
}

#[test]
fn empty_lines_between_requests_are_skipped() {
    let node = Node::shared();
    let mut client = node.client();
    client.send(format!("\r\n{PING}\r\n\r\n{PING}"));
    assert!(is_pong(&client.answer()));
    assert!(is_pong(&client.answer()));
}

#[test]
fn many_clients_at_once_get_their_own_answers() {
    let node = Node::start(16, "");
    let threads: Vec<_> = (0..16_u64)
        .map(|own| {
            let address = node.address;
            thread::spawn(move || {
                let mut client = Client::connect(address);
                for at in 0..100_u64 {
                    let path = format!("/timers/{:016x}-2", own << 32 | at);
                    let opaque = format!("{own} {at}");
                    let body = document("3600", None, "http://127.0.0.1:9/", &opaque);
                    let batch = request_text("PUT", &path, &body) + &request_text("GET", &path, "");
                    client.send(batch);
                    assert!(client.answer().header("Location").expect("one").starts_with(&path));
                    let shown: serde_json::Value =
                        serde_json::from_slice(&client.answer().body).expect("JSON");
                    assert_eq!(shown["callback"]["http"]["opaque"], opaque);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("every client was served");
    }
}

#[test]
fn a_client_that_reads_late_gets_everything() {
    let node = Node::shared();
    let mut client = node.client();
    let mut writer = client.stream().try_clone().expect("a second handle");
    writer.set_write_timeout(Some(super::harness::PATIENCE)).expect("a socket");
    let sender = thread::spawn(move || {
        std::io::Write::write_all(&mut writer, PING.repeat(100_000).as_bytes()).expect("taken");
    });
    // Longer than the node needs to fill every buffer between the two.
    thread::sleep(Duration::from_millis(300));
    for _ in 0..100_000 {
        assert!(is_pong(&client.answer()));
    }
    sender.join().expect("no panic");
}

#[test]
fn answers_of_a_client_that_is_gone_reach_nobody_else() {
    let node = Node::start(16, "");
    for round in 0..100_u64 {
        let mut gone = node.client();
        let text: String = (0..50)
            .map(|at| {
                request_text(
                    "PUT",
                    &format!("/timers/{:016x}-3", round << 32 | at),
                    &far_document(),
                )
            })
            .collect();
        gone.send(text);
        if round % 2 == 0 {
            let socket = socket2::SockRef::from(gone.stream());
            socket.set_linger(Some(Duration::ZERO)).expect("a TCP socket");
        }
        drop(gone);
        // The client takes the place that became free on its core, or another place.
        let mut client = node.client();
        let answer = client.request("GET", "/timers/ffffffffffffffff-5", "");
        answer.assert_refusal(404, "no timer", "the answer to another's request");
        assert!(is_pong(&client.request("GET", "/ping", "")));
        client.send("GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(is_pong(&client.answer()));
        assert_eq!(client.end(), End::Closed);
    }
}

#[test]
fn large_bodies_follow_each_other() {
    const BODIES: usize = 8;
    let node = Node::start(2, "");
    // An unknown member fills the body up to its limit.
    let document = far_document();
    let filler = "f".repeat((1 << 20) - document.len() - 10);
    let body = document.replacen('{', &format!("{{\"more\":\"{filler}\","), 1);
    assert!(body.len() <= 1 << 20 && body.len() > (1 << 20) - 16, "{}", body.len());
    thread::scope(|scope| {
        for own in 0..6 {
            let (node, body) = (&node, &body);
            scope.spawn(move || {
                let mut client = node.client();
                let mut writer = client.stream().try_clone().expect("a second handle");
                let one = match own % 2 {
                    0 => request_text("POST", "/timers", body),
                    _ => chunked("POST", "/timers", &[&body[..1_000], &body[1_000..]], ""),
                };
                let text = one.repeat(BODIES) + PING;
                scope.spawn(move || {
                    std::io::Write::write_all(&mut writer, text.as_bytes()).expect("taken");
                });
                for at in 0..BODIES {
                    assert_eq!(client.answer().status, 200, "{at}");
                }
                assert!(is_pong(&client.answer()));
            });
        }
    });
}

#[test]
fn large_answers_arrive_whole() {
    let node = Node::start(2, "");
    let opaques: Vec<_> = (0..4).map(|own| format!("{own}-").repeat((256 << 10) / 2)).collect();
    let paths: Vec<_> = opaques
        .iter()
        .map(|opaque| node.create(&document("3600", None, "http://127.0.0.1:9/", opaque)))
        .collect();
    let mut client = node.client();
    let text: String = paths.iter().map(|path| request_text("GET", path, "")).collect();
    client.send(text.repeat(10));
    for _ in 0..10 {
        for opaque in &opaques {
            let shown: serde_json::Value =
                serde_json::from_slice(&client.answer().body).expect("JSON");
            assert!(shown["callback"]["http"]["opaque"] == opaque.as_str());
        }
    }
}
