//! Bytes that are no good HTTP. The node answers each with a status and a reason, and closes the
//! connection in order (no reset loses the answer). The node takes nothing behind the bad bytes for
//! a request.

use std::thread;

use super::harness::{End, Node, far_document};

const PING: &str = "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n";
/// The head of the request that a smuggler wants the node to obey.
const SMUGGLED: &str = "PUT /timers/00000000000000ad-2 HTTP/1.1\r\nHost: x\r\nContent-Length: ";

fn smuggled() -> String {
    let body = far_document();
    format!("{SMUGGLED}{}\r\n\r\n{body}", body.len())
}

/// Sends the bytes, alone and behind a good request, with and without a smuggled request behind
/// them. Expects the good answer, one refusal, and the end.
fn refuse(node: &Node, bytes: &[u8], status: u16, names: &str) {
    let what: String = bytes.escape_ascii().to_string().chars().take(100).collect();
    for before in ["", PING] {
        for behind in [String::new(), smuggled()] {
            let mut client = node.client();
            // The node may refuse and close before all bytes are sent, but not before it has
            // answered.
            let mut writer = client.stream().try_clone().expect("a second handle");
            let all = [before.as_bytes(), bytes, behind.as_bytes()].concat();
            let sender = thread::spawn(move || {
                let _ = std::io::Write::write_all(&mut writer, &all);
            });
            if !before.is_empty() {
                assert_eq!(client.answer().status, 200, "before {what}");
            }
            let answer = client.answer();
            answer.assert_refusal(status, names, &what);
            assert!(answer.says_close(), "{what}: {answer:?}");
            assert_eq!(client.end(), End::Closed, "{what}");
            sender.join().expect("no panic");
        }
    }
    node.assert_alive(&what);
}

fn refuse_all(rows: &[(&str, u16, &str)]) {
    let node = Node::shared();
    for (text, status, names) in rows {
        refuse(&node, text.as_bytes(), *status, names);
    }
    let smuggled = node.request("GET", "/timers/00000000000000ad-2", "");
    assert_eq!(smuggled.status, 404, "nothing behind bad bytes is taken");
}

/// Returns a POST with these header lines and a body of 5 bytes.
fn post(headers: &str) -> String {
    format!("POST /timers HTTP/1.1\r\nHost: x\r\n{headers}\r\nabcde")
}

fn chunked(body: &str) -> String {
    format!("POST /timers HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
}

#[test]
fn bad_request_lines() {
    refuse_all(&[
        ("garbage\r\n\r\n", 400, "request line"),
        ("GET\r\n\r\n", 400, "request line"),
        ("GET /ping\r\n\r\n", 400, "request line"),
        ("GET  /ping HTTP/1.1\r\nHost: x\r\n\r\n", 400, "request line"),
        ("GET /ping HTTP/1.1 x\r\nHost: x\r\n\r\n", 400, ""),
        ("GET /pi ng HTTP/1.1\r\nHost: x\r\n\r\n", 400, "request line"),
        ("GET /ping HTTP/9.9\r\nHost: x\r\n\r\n", 505, "version"),
        ("GET /ping HTTP/2.0\r\nHost: x\r\n\r\n", 505, "version"),
        ("GET /ping http/1.1\r\nHost: x\r\n\r\n", 400, "request line"),
        ("GET /ping ICY/1.1\r\nHost: x\r\n\r\n", 400, "request line"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "version"),
        ("GET ping HTTP/1.1\r\nHost: x\r\n\r\n", 400, "target"),
        ("CONNECT a:80 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "target"),
        ("GET /pi\x00ng HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""),
        ("G\u{1}T /ping HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""),
        ("\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}\u{3}\u{3}", 400, ""),
        ("\n\n\n", 400, "request line"),
        ("\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET /ping HTTP/1.1\r\n", 400, "request line"),
    ]);
    let node = Node::shared();
    let mut client = node.client();
    client.send("X".repeat(100));
    client.answer().assert_refusal(400, "request line", "a method without end");
    assert_eq!(client.end(), End::Closed);
}

#[test]
fn bad_headers() {
    refuse_all(&[
        ("GET /ping HTTP/1.1\r\n\r\n", 400, "Host"),
        ("GET /ping HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400, "Host"),
        ("GET /ping HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "Host"),
        ("GET /ping HTTP/1.1\r\nHost: a, b\r\n\r\n", 400, "Host"),
        ("GET /ping HTTP/1.1\r\nHost: a@b\r\n\r\n", 400, "Host"),
        ("GET /ping HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, "Host"),
        (&post("no colon\r\n"), 400, "header line"),
        (&post(": no name\r\n"), 400, "header line"),
        (&post("na me: x\r\n"), 400, "header line"),
        (&post("Content-Length : 5\r\n"), 400, "header line"),
        (&post("X: a\r\n folded\r\n"), 400, "header"),
        (&post("X: a\r\n\tfolded\r\n"), 400, "header"),
        (&post("X: a\rb\r\n"), 400, ""),
        (&post("X: a\0b\r\n"), 400, "header value"),
        (&post("X: a\u{7}b\r\n"), 400, "header value"),
        ("GET /ping HTTP/1.1\r\nHost: x\n\r\n", 400, "LF"),
        ("GET /ping HTTP/1.1\nHost: x\n\n", 400, "LF"),
        ("GET /ping HTTP/1.1\rHost: x\r\r", 400, ""),
        ("GET /ping HTTP/1.1\r\nHost: x\r\n\n", 400, "LF"),
        (&post("Expect: 200-fine\r\nContent-Length: 5\r\n"), 417, "Expect"),
    ]);
}

#[test]
fn ambiguous_lengths_are_refused() {
    refuse_all(&[
        (&post("Content-Length: x\r\n"), 400, "Content-Length"),
        (&post("Content-Length:\r\n"), 400, "Content-Length"),
        (&post("Content-Length: -5\r\n"), 400, "Content-Length"),
        (&post("Content-Length: +5\r\n"), 400, "Content-Length"),
        (&post("Content-Length: 5.0\r\n"), 400, "Content-Length"),
        (&post("Content-Length: 0x5\r\n"), 400, "Content-Length"),
        (&post("Content-Length: 5 5\r\n"), 400, "Content-Length"),
        (&post("Content-Length: 5, 5\r\n"), 400, "Content-Length"),
        (&post("Content-Length: 99999999999999999999\r\n"), 400, "Content-Length"),
        (&post("Content-Length: 5\r\nContent-Length: 5\r\n"), 400, "Content-Length"),
        (&post("Content-Length: 5\r\nContent-Length: 6\r\n"), 400, "Content-Length"),
        (&post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400, "Content-Length"),
        (&post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), 400, "Content-Length"),
        (&post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400, "Transfer-"),
        (&post("Transfer-Encoding: gzip\r\n"), 501, "Transfer-Encoding"),
        (&post("Transfer-Encoding: gzip, chunked\r\n"), 501, "Transfer-Encoding"),
        (&post("Transfer-Encoding: chunked, identity\r\n"), 501, "Transfer-Encoding"),
        (&post("Transfer-Encoding: xchunked\r\n"), 501, "Transfer-Encoding"),
        (&post("Transfer-Encoding:\r\n"), 501, "Transfer-Encoding"),
        (&post("Transfer-Encoding: \u{b}chunked\r\n"), 400, ""),
        ("POST /timers HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "Transfer-"),
        (&post("Content-Length: 1048577\r\n"), 413, "limits.body_bytes_max"),
        (&post("Content-Length: 18446744073709551615\r\n"), 413, "limits.body_bytes_max"),
    ]);
}

#[test]
fn bad_chunks() {
    let extension = format!("1;{}\r\n", "x".repeat(300));
    let trailers = format!("0\r\nX: {}\r\n\r\n", "y".repeat(300));
    refuse_all(&[
        (&chunked("x\r\n"), 400, "chunk"),
        (&chunked("\r\n"), 400, "chunk"),
        (&chunked("-5\r\nabcde\r\n"), 400, "chunk"),
        (&chunked("+5\r\nabcde\r\n"), 400, "chunk"),
        (&chunked("0x5\r\nabcde\r\n"), 400, "chunk"),
        (&chunked(" 5\r\nabcde\r\n"), 400, "chunk"),
        (&chunked("5\nabcde\r\n"), 400, "chunk"),
        (&chunked("5 \r\nabcde\r\n0\r\n\r\n"), 400, "chunk"),
        (&chunked("5\r\nabcde\r\n0 \r\n\r\n"), 400, "chunk"),
        (&chunked("5\rabcde\r\n"), 400, "chunk"),
        (&chunked("5\r\nabcdef\r\n"), 400, "chunk"),
        (&chunked("5\r\nabcde\n0\r\n\r\n"), 400, "chunk"),
        (&chunked("5\r\nabcde0\r\n\r\n"), 400, "chunk"),
        (&chunked("00000000000000000\r\n"), 400, "chunk"),
        (&chunked("fffffffffffffffff\r\n"), 400, "chunk"),
        (&chunked("ffffffffffffffff\r\n"), 413, "chunk"),
        (&chunked("7fffffff\r\n"), 413, "chunk"),
        (&chunked("100001\r\n"), 413, "chunk"),
        (&chunked(&extension), 400, "chunk"),
        (&chunked("1;a\x00b\r\n"), 400, "chunk"),
        (&chunked("0\r\nno colon\r\n\r\n"), 400, "chunk"),
        (&chunked("0\r\n X: folded\r\n\r\n"), 400, "chunk"),
        (&chunked("0\r\nX: a\n\r\n"), 400, "chunk"),
        (&chunked(&trailers), 400, "chunk"),
    ]);
}

#[test]
fn heads_beyond_the_limits() {
    let headers: String = (0..1_000).map(|at| format!("X-{at}: y\r\n")).collect();
    let long = "y".repeat(64 << 10);
    let fits = "y".repeat(15 << 10);
    refuse_all(&[
        (&post(&headers), 431, "head"),
        (&post(&format!("X: {long}\r\n")), 431, "head"),
        (&post(&format!("{long}: x\r\n")), 431, "head"),
        (&format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"), 414, "request line"),
        (&format!("GET /ping?{long}"), 414, "request line"),
    ]);
    let node = Node::shared();
    let mut client = node.client();
    client.send(format!("GET /ping?{fits} HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert_eq!(client.answer().status, 200);
    client.send(format!("GET /ping HTTP/1.1\r\nHost: x\r\nX: {fits}\r\n\r\n"));
    assert_eq!(client.answer().status, 200);
}

#[test]
fn bodies_beyond_the_limit_are_refused_while_they_are_sent() {
    let node = Node::shared();
    let digits = "9".repeat(10 << 20);
    let length = digits.len();
    refuse(
        &node,
        format!("POST /timers HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{digits}")
            .as_bytes(),
        413,
        "limits.body_bytes_max",
    );
    let mut pieces = chunked("");
    for _ in 0..640 {
        pieces += &format!("4000\r\n{}\r\n", "9".repeat(0x4000));
    }
    refuse(&node, pieces.as_bytes(), 413, "chunk");
    // The node reads as many digits as it allows, and refuses them as a number that is too large.
    let digits = &digits[..1 << 20];
    let answer = node.request("POST", "/timers", digits);
    answer.assert_refusal(400, "body", "1 MiB of digits");
}

#[test]
fn every_byte_as_the_only_one() {
    let node = Node::shared();
    // Whatever the byte is, 64 of them are refused before the limit on heads.
    for byte in 0..=255_u8 {
        let mut client = node.client();
        let _ = client.try_send(&[byte; 64]);
        let answer = client.answer();
        assert_eq!(answer.status, 400, "{byte}: {answer:?}");
        assert_eq!(client.end(), End::Closed, "{byte}");
    }
    node.assert_alive("single bytes");
}

#[test]
fn a_good_request_before_garbage_counts() {
    let node = Node::shared();
    let path = "/timers/00000000000000af-2";
    let body = far_document();
    for garbage in ["\0\0\0\0", "GET", "}{", "HTTP/1.1 200 OK\r\n\r\n"] {
        let mut client = node.client();
        let put = format!(
            "PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}{garbage}",
            body.len()
        );
        client.send(put);
        client.half_close();
        assert_eq!(client.answer().status, 200, "{garbage:?}");
        assert_eq!(node.request("GET", path, "").status, 200, "{garbage:?}");
        assert_eq!(node.request("DELETE", path, "").status, 200, "{garbage:?}");
    }
}

#[test]
fn a_length_that_is_missing_or_wrong_spoils_no_other_request() {
    let node = Node::shared();
    let body = far_document();
    let path = "/timers/00000000000000ae-2";
    let put =
        |length: String| format!("PUT {path} HTTP/1.1\r\nHost: x\r\n{length}\r\n{body}{PING}");
    for (what, length) in [
        ("missing", String::new()),
        ("none", "Content-Length: 0\r\n".to_owned()),
        ("short", format!("Content-Length: {}\r\n", body.len() - 5)),
        ("long", format!("Content-Length: {}\r\n", body.len() + 5)),
    ] {
        let mut client = node.client();
        client.send(put(length));
        // The document is cut or runs on. What is left of it is no request line.
        client.answer().assert_refusal(400, "body", what);
        let answer = client.answer();
        answer.assert_refusal(400, "request line", what);
        assert!(answer.says_close(), "{what}");
        assert_eq!(client.end(), End::Closed, "{what}");
        assert_eq!(node.request("GET", path, "").status, 404, "{what}");
    }
}
