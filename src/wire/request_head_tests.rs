//! Tests of [`super::request_head`]: requests that smuggle, requests that stall, and unusual
//! requests.

use super::request_head::{
    Framing, HeadProgress, Method, RequestHead, parse_request_head, seems_to_accept_problem,
};

const HEADER_BYTES_MAX: usize = 16 << 10;

fn parse(text: &str) -> RequestHead<'_> {
    let head = parse_request_head(text.as_bytes(), HEADER_BYTES_MAX)
        .unwrap_or_else(|error| panic!("{text:?}: {error}"))
        .unwrap_or_else(|| panic!("{text:?} is called partial"));
    assert!(head.head_bytes <= text.len());
    head
}

fn status(bytes: impl AsRef<[u8]>) -> u16 {
    let bytes = bytes.as_ref();
    match parse_request_head(bytes, HEADER_BYTES_MAX) {
        Err(error) => {
            assert!(!error.reason.is_empty() && !error.reason.contains(['\r', '\n']));
            error.status
        }
        Ok(head) => panic!("{} gives {head:?}", bytes.escape_ascii()),
    }
}

/// A POST with these header lines beside `Host`. Each line has its CRLF.
fn with(headers: &str) -> String {
    format!("POST /timers HTTP/1.1\r\nHost: a\r\n{headers}\r\n")
}

#[test]
fn a_usual_request() {
    let text = "POST /timers?x=1 HTTP/1.1\r\nHost: chronos:7253\r\nAccept: */*\r\n\
                Content-Type: application/json\r\nContent-Length: 207\r\n\r\n{";
    assert_eq!(
        parse(text),
        RequestHead {
            authorization: None,
            method: Method::Post,
            path: "/timers",
            query: Some("x=1"),
            framing: Framing::Length(207),
            keep_alive: true,
            expects_continue: false,
            has_conditions: false,
            is_callback: false,
            is_http10: false,
            accepts_problem: false,
            head_bytes: text.len() - 1,
        }
    );
}

#[test]
fn accept_names_the_form_of_errors() {
    let accepts = |lines: &str| parse(&with(lines)).accepts_problem;
    assert!(accepts("accept: text/html, application/problem+json;q=0.1\r\n"));
    assert!(accepts("Accept: */*\r\nAccept: application/problem+json\r\n"), "two are one list");
    assert!(!accepts("Accept: */*\r\nX-Accept: application/problem+json\r\n"));
    let begun = "POST /timers HTTP/1.1\r\nAccept: application/problem+json\r\nHo";
    assert!(seems_to_accept_problem(begun.as_bytes()));
    assert!(seems_to_accept_problem(begun.replace('\r', "").as_bytes()), "a head of bare LFs");
    let behind = begun.replace("1.1\r\n", "1.1\r\n\r\n");
    assert!(!seems_to_accept_problem(behind.as_bytes()), "in the body");
    assert!(!seems_to_accept_problem(&begun.as_bytes()[22..]), "no line before it");
    assert!(!seems_to_accept_problem(b""));
}

#[test]
fn methods() {
    for (text, method) in [
        ("GET", Method::Get),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("DELETE", Method::Delete),
        ("HEAD", Method::Head),
        ("get", Method::Other),
        ("M-SEARCH", Method::Other),
    ] {
        assert_eq!(parse(&format!("{text} / HTTP/1.1\r\nHost: a\r\n\r\n")).method, method);
    }
}

#[test]
fn every_proper_prefix_is_partial() {
    let text = with("Content-Length: 3\r\nConnection: close\r\n");
    for end in 0..text.len() {
        let prefix = &text.as_bytes()[..end];
        assert_eq!(parse_request_head(prefix, HEADER_BYTES_MAX), Ok(None), "{end}");
    }
}

#[test]
fn content_length() {
    assert_eq!(parse(&with("")).framing, Framing::Length(0), "missing means no body");
    assert_eq!(parse(&with("content-LENGTH:  12 \r\n")).framing, Framing::Length(12));
    assert_eq!(
        parse(&with("Content-Length: 18446744073709551615\r\n")).framing,
        Framing::Length(u64::MAX)
    );
    for wrong in [
        "",
        "-1",
        "+1",
        "1 2",
        "5, 5",
        "5,5",
        "0x10",
        "1.0",
        "five",
        "18446744073709551616",
        "99999999999999999999999",
    ] {
        assert_eq!(status(with(&format!("Content-Length: {wrong}\r\n"))), 400, "{wrong:?}");
    }
    assert_eq!(status(with("Content-Length: 5\r\nContent-Length: 5\r\n")), 400);
    assert_eq!(status(with("Content-Length: 5\r\ncontent-length: 6\r\n")), 400);
    assert_eq!(status(with("Content-Length : 5\r\n")), 400, "a blank before the colon");
}

#[test]
fn transfer_encoding() {
    assert_eq!(parse(&with("Transfer-Encoding: Chunked\r\n")).framing, Framing::Chunked);
    for other in
        ["identity", "gzip", "gzip, chunked", "chunked, chunked", "xchunked", "chunked;a", ""]
    {
        assert_eq!(status(with(&format!("Transfer-Encoding: {other}\r\n"))), 501, "{other:?}");
    }
    assert_eq!(status(with("Transfer-Encoding: \x0bchunked\r\n")), 400, "a control byte");
    assert_eq!(status(with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")), 400);
    assert_eq!(status(with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")), 400);
    assert_eq!(status(with("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n")), 400);
    assert_eq!(status("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
}

#[test]
fn host() {
    assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(status("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n"), 400);
    assert!(parse("GET / HTTP/1.0\r\n\r\n").is_http10);
    assert_eq!(parse("GET / HTTP/1.1\r\nHost:\r\n\r\n").path, "/", "an empty Host is a Host");
    let with_host = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    for host in ["node-1.example:7253", "10.0.0.1", "[fe80::1]:80"] {
        assert_eq!(parse(&with_host(host)).path, "/", "{host}");
    }
    for no_host in ["a b", "a/b", "a@b", "a,b", "a?b", "a#b", "\u{e9}"] {
        assert_eq!(status(with_host(no_host)), 400, "{no_host}");
    }
}

#[test]
fn keep_alive() {
    for (version, connection, stays) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: foo, CLOSE\r\n", false),
        ("1.1", "Connection: keep-alive\r\nConnection: close\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{connection}\r\n");
        assert_eq!(parse(&text).keep_alive, stays, "{text}");
    }
}

#[test]
fn a_header_that_is_as_long_as_connection_is_not_it() {
    assert!(parse("GET / HTTP/1.1\r\nHost: a\r\nX-12345678: close\r\n\r\n").keep_alive);
}

#[test]
fn expect() {
    assert!(parse(&with("Expect: 100-Continue\r\n")).expects_continue);
    assert_eq!(status(with("Expect: 200-ok\r\n")), 417);
    let old = parse("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
    assert!(!old.expects_continue, "HTTP/1.0 has no 100");
}

#[test]
fn targets() {
    let target = |target: &str| {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = parse(&text);
        (head.path.to_owned(), head.query.map(str::to_owned))
    };
    let plain = |path: &str| (path.to_owned(), None);
    assert_eq!(target("/timers%23part?x"), ("/timers%23part".to_owned(), Some("x".to_owned())));
    assert_eq!(target("/a?b?c"), ("/a".to_owned(), Some("b?c".to_owned())));
    assert_eq!(target("/?"), ("/".to_owned(), Some(String::new())));
    assert_eq!(target("*"), plain("*"));
    assert_eq!(target("http://chronos:7253/timers"), plain("/timers"));
    assert_eq!(target("HTTP://chronos"), plain("/"));
    assert_eq!(target("http://chronos?x"), ("/".to_owned(), Some("x".to_owned())));
    let cut =
        ["/timers/by-name/invoice#1", "/a?b#c", "/#", "http://chronos/a#b", "http://chronos#b"];
    let wrong = ["timers", "chronos:7253", "http:///timers", "ftp://a/b", "http:", "\u{e9}", "?x"];
    for wrong in wrong.into_iter().chain(cut) {
        assert_eq!(status(format!("GET {wrong} HTTP/1.1\r\nHost: a\r\n\r\n")), 400, "{wrong}");
    }
}

#[test]
fn versions() {
    for version in ["HTTP/2.0", "HTTP/1.2", "HTTP/0.9", "HTTP/2", "HTTP/9.9"] {
        assert_eq!(status(format!("GET / {version}\r\nHost: a\r\n\r\n")), 505, "{version}");
    }
    assert_eq!(status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
    for garbage in ["HTTQ/1.1", "http/1.1", "HTTP/1.1x", "HTTP/x.y", "", "HTTP/1.1 "] {
        assert_eq!(status(format!("GET / {garbage}\r\nHost: a\r\n\r\n")), 400, "{garbage}");
    }
    assert_eq!(status("GET /\r\n"), 400, "HTTP/0.9");
}

#[test]
fn line_ends() {
    for text in [
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\nX: b\r\n\r\n",
        "GET / HTTP/1.1\rHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\rX",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(status(text), 400, "{text:?}");
    }
}

#[test]
fn header_lines() {
    for line in [
        "no colon here",
        "nocolon",
        ": no name",
        " folded: a",
        "X: a\r\n folded",
        "X: a\r\n\tfolded",
        "X Y: a",
        "X: a\0b",
        "X: a\x1bb",
    ] {
        assert_eq!(status(with(&format!("{line}\r\n"))), 400, "{line:?}");
    }
    assert_eq!(parse(&with("X: \u{e9}\tb\r\n")).path, "/timers", "bytes above ASCII are allowed");
}

#[test]
fn empty_lines_before_the_request() {
    let text = format!("\r\n\r\n{}", with(""));
    assert_eq!(parse(&text).head_bytes, text.len());
    assert_eq!(parse_request_head(b"\r\n\r", HEADER_BYTES_MAX), Ok(None));
    assert_eq!(status("\r\n".repeat(5)), 400);
}

#[test]
fn a_method_has_so_many_letters_and_no_more() {
    let request = |letters: usize| with("").replacen("POST", &"M".repeat(letters), 1);
    assert_eq!(parse(&request(32)).method, Method::Other);
    assert_eq!(status(request(33)), 400);
    // The limit counts before the method has ended; empty lines before the method do not count.
    for empty in ["", "\r\n\r\n"] {
        let begun = |letters: usize| format!("{empty}{}", "M".repeat(letters));
        assert_eq!(parse_request_head(begun(32).as_bytes(), HEADER_BYTES_MAX), Ok(None));
        assert_eq!(status(begun(33)), 400);
    }
}

#[test]
fn garbage_is_refused_before_it_ends() {
    for garbage in [
        &b"\0"[..],
        b"\x16\x03\x01\x02\x00",
        b"GET\t",
        b"{\"timing\"",
        b" GET",
        b"GET  ",
        b"GET / X",
    ] {
        assert_eq!(status(garbage), 400, "{}", garbage.escape_ascii());
    }
    assert_eq!(status("A".repeat(33)), 400, "no method is that long");
    let whole = format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "A".repeat(33));
    assert_eq!(status(whole), 400, "in one piece or in many, the verdict is the same");
    assert_eq!(parse_request_head(b"AAAA", HEADER_BYTES_MAX), Ok(None));
}

#[test]
fn what_follows_a_good_head_is_not_looked_at() {
    let text = with("");
    let mut bytes = text.clone().into_bytes();
    bytes.extend_from_slice(b"\0\n\xff garbage");
    let head = parse_request_head(&bytes, HEADER_BYTES_MAX).expect("the head is good");
    assert_eq!(head.map(|head| head.head_bytes), Some(text.len()));
    assert_eq!(status(&bytes[text.len()..]), 400, "the garbage is the next request");
}

#[test]
fn header_count() {
    let headers = |count: usize| with(&"X: y\r\n".repeat(count - 1));
    assert_eq!(parse(&headers(64)).path, "/timers");
    assert_eq!(status(headers(65)), 431);
    assert_eq!(status(headers(1_000)), 431);
}

#[test]
fn head_length() {
    let long = "a".repeat(64 << 10);
    assert_eq!(status(with(&format!("X: {long}\r\n"))), 431);
    assert_eq!(status(format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")), 414);
    assert_eq!(status(format!("GET /{}", &long[..HEADER_BYTES_MAX])), 414, "not yet ended");
    assert_eq!(status(format!("GET / HTTP/1.1\r\nX: {}", &long[..HEADER_BYTES_MAX])), 431);

    let text = with("");
    let at_limit = |max| parse_request_head(text.as_bytes(), max);
    assert!(matches!(at_limit(text.len()), Ok(Some(_))), "exactly the limit");
    assert_eq!(at_limit(text.len() - 1).map_err(|error| error.status), Err(431));
    let all_but_one = &text.as_bytes()[..text.len() - 1];
    assert_eq!(
        parse_request_head(all_but_one, text.len() - 1).map_err(|error| error.status),
        Err(431),
        "at the limit without an end"
    );
}

#[test]
fn a_trickling_head_is_parsed_a_few_times_only() {
    let text = with(&"Header: value\r\n".repeat(60));
    let bytes = text.as_bytes();
    let mut progress = HeadProgress::default();
    let mut parses = 0;
    for end in 1..=bytes.len() {
        if progress.is_worth_parsing(&bytes[..end], HEADER_BYTES_MAX) {
            parses += 1;
            let head = parse_request_head(&bytes[..end], HEADER_BYTES_MAX).expect("it is good");
            assert_eq!(head.is_some(), end == bytes.len());
        } else {
            assert_ne!(end, bytes.len(), "a whole head must be parsed");
        }
    }
    // One parse per doubling of 947 bytes, and the last parse.
    assert!(parses <= 11, "{parses}");
}

#[test]
fn the_end_of_a_head_is_seen_however_it_is_cut() {
    let text = with("");
    for first in 1..text.len() {
        for second in first..text.len() {
            let mut progress = HeadProgress::default();
            progress.is_worth_parsing(&text.as_bytes()[..first], HEADER_BYTES_MAX);
            progress.is_worth_parsing(&text.as_bytes()[..second], HEADER_BYTES_MAX);
            assert!(progress.is_worth_parsing(text.as_bytes(), HEADER_BYTES_MAX));
        }
    }
}

#[test]
fn the_token_is_found_and_one_only() {
    let head = |lines: &str| {
        parse_request_head(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").as_bytes(), 8_192)
            .map(|head| head.expect("a whole head").authorization.map(<[u8]>::to_vec))
    };
    assert_eq!(head(""), Ok(None));
    assert_eq!(head("AUTHORIZATION:  Bearer x\r\n"), Ok(Some(b"Bearer x".to_vec())));
    let two = head("Authorization: Bearer x\r\nAuthorization: Bearer x\r\n");
    assert_eq!(two.expect_err("which one counts?").status, 400);
}
