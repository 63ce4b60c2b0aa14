//! Errors as `application/problem+json`, for clients that accept it.

use super::harness::{Answer, Client, Node, document, far_document};

const ACCEPT: &str = "Accept: application/problem+json";
const TIMER: &str = "/timers/00000000000000ab-2";

/// Sends a request with a header line of its own.
fn asked(client: &mut Client, line: &str, header: &str, body: &str) -> Answer {
    let length = body.len();
    client.send(format!(
        "{line} HTTP/1.1\r\nHost: x\r\n{header}\r\nContent-Length: {length}\r\n\r\n{body}"
    ));
    client.answer()
}

/// The last word of the type, and the member. Asserts all else that a problem has.
fn problem(answer: &Answer) -> (String, Option<String>) {
    assert_eq!(answer.header("Content-Type"), Some("application/problem+json"), "{answer:?}");
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(problem["status"], answer.status, "{problem}");
    assert_eq!(problem["detail"].as_str(), answer.header("Reason"), "{problem}");
    assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()), "{problem}");
    let kind = problem["type"].as_str().expect("a URN");
    let word = kind.strip_prefix("urn:chronos:error:").expect("one of ours").to_owned();
    (word, problem["member"].as_str().map(str::to_owned))
}

#[test]
fn every_error_is_a_problem_for_those_who_accept_it() {
    let node =
        Node::start(1, "[callbacks]\ndeny = ['denied.example']\n[limits]\nopaque_bytes_max = 4\n");
    let mut client = node.client();
    let uri = "http://127.0.0.1:9/";
    let negative = document("-1", None, uri, "x");
    let denied = document("1", None, "http://denied.example/", "x");
    let long = document("1", None, uri, "12345");
    let factor = far_document().replacen('{', r#"{"reliability":{"replication-factor":99},"#, 1);
    for (line, body, status, word, member) in [
        ("POST /timers", negative.as_str(), 400, "document", Some("timing.interval")),
        ("POST /timers", "{", 400, "document", None),
        ("POST /timers", "{}", 400, "document", Some("timing")),
        ("POST /timers", &factor, 400, "document", Some("reliability.replication-factor")),
        ("POST /timers", &denied, 403, "document", Some("callback.http.uri")),
        ("POST /timers", &long, 413, "too-long", Some("callback.http.opaque")),
        ("GET /timers/00000000000000ab-2", "", 404, "no-timer", None),
        ("GET /nothing", "", 404, "no-path", None),
        ("PATCH /timers", "", 405, "method", None),
        ("POST /timestamps", "", 404, "no-path", None),
    ] {
        let answer = asked(&mut client, line, ACCEPT, body);
        assert_eq!(answer.status, status, "{line} {body}: {answer:?}");
        assert_eq!(problem(&answer), (word.to_owned(), member.map(str::to_owned)), "{line} {body}");
    }
    let answer = asked(&mut client, "PATCH /timers", ACCEPT, "");
    assert_eq!(answer.header("Allow"), Some("GET, HEAD, POST, DELETE"), "other headers stay");
    // What is no error has no other form.
    let created = asked(&mut client, "POST /timers", ACCEPT, &document("9", None, uri, "x"));
    assert_eq!((created.status, created.body.len()), (200, 0));
}

#[test]
fn who_does_not_name_the_type_gets_text() {
    let node = Node::shared();
    let mut client = node.client();
    for accept in [
        "X-Accept: application/problem+json",
        "Accept: */*",
        "Accept: application/*",
        "Accept: application/json, text/plain",
        "Accept: application/problem+json;q=0",
        "Accept: application/problem+json;q=1e9",
        "Accept: application/problem+json;q=-0.5",
        "Accept: application/problem+json;q=0.00000001",
        "Accept: x/y;a=\"application/problem+json,application/problem+json",
        "Accept:",
    ] {
        let answer = asked(&mut client, &format!("GET {TIMER}"), accept, "");
        answer.assert_refusal(404, "no timer with this id", accept);
    }
    for accept in [
        "Accept: */*;q=0.1, application/problem+json;q=0.001",
        "accept: text/html\r\nAccept: APPLICATION/PROBLEM+JSON",
        "Accept: application/problem+json;q=9\r\nAccept: application/problem+json",
    ] {
        let answer = asked(&mut client, &format!("GET {TIMER}"), accept, "");
        assert_eq!(problem(&answer).0, "no-timer", "{accept}");
    }
}

/// Heads of the same bytes are remembered with what their `Accept` says.
#[test]
fn requests_of_one_connection_have_each_its_own_form() {
    let node = Node::shared();
    let mut client = node.client();
    for _ in 0..3 {
        let plain = asked(&mut client, "POST /timers", "Accept: */*", "{}");
        plain.assert_refusal(400, "timing: missing", "text");
        let answer = asked(&mut client, "POST /timers", ACCEPT, "{}");
        assert_eq!(problem(&answer), ("document".to_owned(), Some("timing".to_owned())));
    }
}

#[test]
fn long_values_of_accept() {
    let node = Node::shared();
    let mut client = node.client();
    let nonsense = "application/problem+json;q=nonsense,".repeat(400);
    let answer = asked(&mut client, "GET /nothing", &format!("Accept: {nonsense}"), "");
    answer.assert_refusal(404, "no such path", "a long value");
    let header = format!("Accept: {nonsense}application/problem+json");
    assert_eq!(problem(&asked(&mut client, "GET /nothing", &header, "")).0, "no-path");
    let header = format!("{ACCEPT}\r\nAccept: {}", "x".repeat(17_000));
    let answer = asked(&mut client, "GET /nothing", &header, "");
    assert_eq!((answer.status, problem(&answer).0.as_str()), (431, "too-long"));
}

/// What is refused before it is a request, or before it is complete.
#[test]
fn requests_that_are_none_or_not_complete() {
    let node = Node::start(1, "[limits]\nidle_timeout_ms = 1000\n");
    for (request, status, word) in [
        (format!("GET / HTTP/1.1\r\n{ACCEPT}\r\n\r\n"), 400, "request"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{ACCEPT}\r\nExpect: 7\r\n\r\n"), 417, "request"),
        (format!("GET / HTTP/2.0\r\nHost: a\r\n{ACCEPT}\r\n\r\n"), 505, "not-implemented"),
        (
            format!(
                "POST /timers HTTP/1.1\r\nHost: a\r\n{ACCEPT}\r\nContent-Length: 9999999\r\n\r\n"
            ),
            413,
            "too-long",
        ),
        (
            format!(
                "POST /timers HTTP/1.1\r\nHost: a\r\n{ACCEPT}\r\nTransfer-Encoding: chunked\r\n\r\nx"
            ),
            400,
            "request",
        ),
        (
            format!("POST /timers HTTP/1.1\r\nHost: a\r\n{ACCEPT}\r\nContent-Length: 9\r\n\r\nx"),
            408,
            "too-slow",
        ),
        (format!("POST /timers HTTP/1.1\r\nHost: a\r\n{ACCEPT}\r\nCont"), 408, "too-slow"),
    ] {
        let mut client = node.client();
        client.send(&request);
        let answer = client.answer();
        assert_eq!((answer.status, problem(&answer).0.as_str()), (status, word), "{request}");
        assert!(answer.says_close(), "{request}");
    }
    let mut client = node.client();
    client.send("GET / HTTP/1.1\r\nAccept: application/problem+json;q=0\r\n\r\n");
    client.answer().assert_refusal(400, "Host: missing", "not accepted");
}

#[test]
fn an_answer_to_head_has_no_body() {
    let node = Node::shared();
    let mut client = node.client();
    client.send(format!(
        "HEAD {TIMER} HTTP/1.1\r\nHost: x\r\n{ACCEPT}\r\n\r\nGET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
    ));
    let answer = client.answer_to_head();
    assert_eq!(answer.header("Content-Type"), Some("application/problem+json"));
    assert_eq!(client.answer().text(), "OK");
}
