//! Bulk requests: a timer a line in, a result a line out, both streaming.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use super::harness::{Client, Node, PATIENCE, document, far_document, until};
use super::sink::Sink;

const HEAD: &str = "POST /timers/bulk HTTP/1.1\r\nHost: x\r\n";
const MIB: usize = 1 << 20;

/// A bulk request under way.
pub struct Bulk {
    sends: TcpStream,
    reads: BufReader<TcpStream>,
    /// Bytes of the present chunk of the answer that were not read.
    left: usize,
}

impl Bulk {
    /// Sends the head, with these further header lines.
    pub fn begin(node: &Node, headers: &str) -> Bulk {
        let sends = TcpStream::connect(node.address).expect("the node accepts");
        sends.set_nodelay(true).expect("a socket");
        sends.set_read_timeout(Some(PATIENCE)).expect("a socket");
        sends.set_write_timeout(Some(PATIENCE)).expect("a socket");
        let reads = BufReader::new(sends.try_clone().expect("a socket"));
        let mut bulk = Bulk { sends, reads, left: 0 };
        bulk.send(format!("{HEAD}{headers}\r\n"));
        bulk
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.sends.write_all(bytes.as_ref()).expect("the node takes them");
    }

    /// Sends bytes as a chunk.
    pub fn send_chunk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.send([format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat());
    }

    fn line_of_http(&mut self) -> String {
        let mut line = String::new();
        self.reads.read_line(&mut line).expect("the node answers");
        line.strip_suffix("\r\n").unwrap_or_else(|| panic!("{line:?} has no end")).to_owned()
    }

    /// Reads the head of the answer. Returns its lines.
    pub fn head(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.line_of_http();
            if line.is_empty() {
                return lines;
            }
            lines.push(line);
        }
    }

    /// Reads the head of an answer that has lines.
    pub fn begins(&mut self) -> Vec<String> {
        let head = self.head();
        assert_eq!(head[0], "HTTP/1.1 200 OK");
        assert!(head.iter().any(|line| line == "Content-Type: application/x-ndjson"), "{head:?}");
        assert!(head.iter().any(|line| line == "Transfer-Encoding: chunked"), "{head:?}");
        head
    }

    fn byte(&mut self) -> Option<u8> {
        if self.left == 0 {
            let size = self.line_of_http();
            self.left = usize::from_str_radix(&size, 16).expect("a size");
            if self.left == 0 {
                assert_eq!(self.line_of_http(), "");
                return None;
            }
        }
        let mut byte = [0];
        self.reads.read_exact(&mut byte).expect("the rest of the chunk");
        self.left -= 1;
        if self.left == 0 {
            assert_eq!(self.line_of_http(), "");
        }
        Some(byte[0])
    }

    /// The next result; nothing: the answer is complete.
    pub fn result(&mut self) -> Option<serde_json::Value> {
        let mut line = Vec::new();
        loop {
            match self.byte() {
                Some(b'\n') => return Some(serde_json::from_slice(&line).expect("JSON")),
                Some(byte) => line.push(byte),
                None => {
                    assert_eq!(line.escape_ascii().to_string(), "", "a line without its end");
                    return None;
                }
            }
        }
    }

    /// The remaining results.
    pub fn results(&mut self) -> Vec<serde_json::Value> {
        std::iter::from_fn(|| self.result()).collect()
    }

    fn assert_closed(&mut self) {
        let mut rest = Vec::new();
        match self.reads.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(rest.escape_ascii().to_string(), ""),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
}

/// The results of one body. The connection goes on after it.
fn bulk(node: &Node, body: &[u8]) -> Vec<serde_json::Value> {
    let mut bulk = Bulk::begin(node, &format!("Content-Length: {}\r\n", body.len()));
    let mut sends = bulk.sends.try_clone().expect("a socket");
    let body = body.to_vec();
    let sender = thread::spawn(move || sends.write_all(&body).expect("the node takes them"));
    bulk.begins();
    let results = bulk.results();
    sender.join().expect("all is sent");
    bulk.send("GET /ping HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(bulk.head()[0], "HTTP/1.1 200 OK", "the connection goes on");
    results
}

pub fn location(result: &serde_json::Value) -> &str {
    let location = result["location"].as_str();
    let path = location.unwrap_or_else(|| panic!("not created: {result}"));
    assert!(path.starts_with("/timers/") && result.as_object().expect("one").len() == 1);
    path
}

/// Asserts that a line was refused. Returns its number.
fn assert_refused(result: &serde_json::Value, status: u64, names: &str) -> u64 {
    assert_eq!(result["status"], status, "{result}");
    assert!(result["reason"].as_str().is_some_and(|reason| reason.contains(names)), "{result}");
    let kind = result["type"].as_str().unwrap_or_default();
    assert!(kind.starts_with("urn:chronos:error:"), "{result}");
    result["line"].as_u64().unwrap_or_else(|| panic!("no number: {result}"))
}

fn numbered(count: usize) -> Vec<String> {
    let of = |at: usize| document("3600", None, &format!("http://127.0.0.1:9/{at}"), "x");
    (0..count).map(of).collect()
}

/// The URI of a timer.
fn uri_of(client: &mut Client, path: &str) -> String {
    let answer = client.request("GET", path, "");
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    let timer: serde_json::Value = serde_json::from_str(answer.text()).expect("JSON");
    timer["callback"]["http"]["uri"].as_str().expect("a URI").to_owned()
}

#[test]
fn a_timer_a_line_and_a_result_a_line_in_order() {
    let node = Node::start(2, "");
    let results = bulk(&node, (numbered(3_000).join("\n") + "\n").as_bytes());
    assert_eq!(results.len(), 3_000);
    let mut client = node.client();
    for (at, result) in results.iter().enumerate().step_by(101) {
        assert_eq!(uri_of(&mut client, location(result)), format!("http://127.0.0.1:9/{at}"));
    }
    assert_eq!(node.metric("chronos_timers"), 3_000.0);
}

#[test]
fn timers_of_a_bulk_request_pop() {
    let node = Node::start(1, "");
    let sink = Sink::ok();
    let lines: Vec<_> = (0..500)
        .map(|at| document("0.05", None, &sink.uri(&format!("/{at}")), &format!("o{at}")))
        .collect();
    assert_eq!(bulk(&node, lines.join("\r\n").as_bytes()).len(), 500);
    let seen = sink.wait_for(500);
    for at in 0..500 {
        let path = format!("/{at}");
        let of_it: Vec<_> = seen.iter().filter(|one| one.path == path).collect();
        assert_eq!(of_it.len(), 1, "{path}");
    }
}

#[test]
fn a_bad_line_fails_and_the_others_stand() {
    let node = Node::shared();
    let good = far_document();
    let negative = document("-1", None, "http://127.0.0.1:9/", "x");
    let body = format!("{good}\n{negative}\n{{\n\u{0}\n[]\n{good}\nnot json\n{good}\n");
    let results = bulk(&node, body.as_bytes());
    assert_eq!(results.len(), 8);
    for at in [0, 5, 7] {
        location(&results[at]);
    }
    for (at, names) in [
        (1, "timing.interval: expected seconds"),
        (2, "body: expected JSON, got the end of the body at byte 1"),
        (3, "body: expected JSON, got a NUL"),
        (4, "body: expected an object"),
        (6, "body: expected JSON, got an error at byte 1"),
    ] {
        assert_eq!(assert_refused(&results[at], 400, names), at as u64 + 1);
    }
    assert_eq!(results[1]["member"], "timing.interval");
    assert_eq!(results[1]["type"], "urn:chronos:error:document");
    let refused = bulk(&node, b"\xff\xfe\n");
    assert_refused(&refused[0], 400, "body: expected");
}

#[test]
fn blank_lines_crlf_and_a_last_line_without_end() {
    let node = Node::shared();
    let good = far_document();
    for (body, created) in [
        (format!("\n\r\n \t \n{good}\r\n\n{good}"), 2),
        (format!("{good}\r"), 1),
        (format!("  {good}  \n"), 1),
        ("\n\n\n\n".to_owned(), 0),
        ("\r\n".to_owned(), 0),
        (String::new(), 0),
    ] {
        let results = bulk(&node, body.as_bytes());
        assert_eq!(results.len(), created, "{body:?}");
        results.iter().for_each(|result| _ = location(result));
    }
    let results = bulk(&node, format!("\n\n{good}\n\nx\n").as_bytes());
    assert_eq!(assert_refused(&results[1], 400, "body"), 5, "blank lines count");
}

#[test]
fn results_come_while_lines_are_sent() {
    let node = Node::shared();
    let mut bulk = Bulk::begin(&node, "Transfer-Encoding: chunked\r\n");
    let good = far_document();
    bulk.send_chunk(format!("{good}\n{good}\n{}", &good[..20]));
    bulk.begins();
    location(&bulk.result().expect("the first"));
    location(&bulk.result().expect("the second"));
    bulk.send_chunk(&good[20..]);
    bulk.send_chunk("\n");
    location(&bulk.result().expect("the third"));
    bulk.send("0\r\n\r\n");
    assert_eq!(bulk.results().len(), 0);
}

#[test]
fn bodies_in_pieces_of_any_size() {
    let node = Node::shared();
    let body = numbered(40).join("\r\n");
    for piece_bytes in [1, 7, 100, 1_000] {
        let mut bulk = Bulk::begin(&node, "Transfer-Encoding: chunked\r\n");
        body.as_bytes().chunks(piece_bytes).for_each(|piece| bulk.send_chunk(piece));
        bulk.send("0\r\n\r\n");
        bulk.begins();
        assert_eq!(bulk.results().len(), 40, "chunks of {piece_bytes}");
    }
    let mut bulk = Bulk::begin(&node, &format!("Content-Length: {}\r\n", body.len()));
    body.as_bytes().chunks(1).for_each(|byte| bulk.send(byte));
    bulk.begins();
    assert_eq!(bulk.results().len(), 40, "byte by byte");
}

#[test]
fn bodies_are_of_any_length() {
    // 20 MB, twenty times limits.body_bytes_max.
    let node = Node::start(1, "");
    let opaque = "o".repeat(20_000);
    let line = document("3600", None, "http://127.0.0.1:9/", &opaque) + "\n";
    let body = line.repeat(1_000);
    let results = bulk(&node, body.as_bytes());
    assert_eq!(results.len(), 1_000);
    results.iter().for_each(|result| _ = location(result));
}

#[test]
fn a_line_above_the_limit_fails_and_memory_stays_bounded() {
    let node = Node::start(1, "[node]\nmemory_ahead_bytes = 0\n");
    let good = far_document();
    bulk(&node, format!("{good}\n{}\n", " ".repeat(MIB)).as_bytes());
    let before = node.resident_bytes();
    for _ in 0..8 {
        let long = document("3600", None, "http://127.0.0.1:9/", &"o".repeat(10 * MIB));
        let results = bulk(&node, format!("{good}\n{long}\n{good}\n").as_bytes());
        assert_eq!(results.len(), 3);
        location(&results[0]);
        assert_eq!(assert_refused(&results[1], 413, "line: expected at most 1048576 bytes"), 2);
        location(&results[2]);
    }
    let long = document("3600", None, "http://127.0.0.1:9/", &"o".repeat(300_000));
    let results = bulk(&node, long.as_bytes());
    assert_refused(&results[0], 413, "callback.http.opaque: expected at most");
    let grown = node.resident_bytes().saturating_sub(before);
    assert!(grown < 16 * MIB as u64, "grew by {grown} bytes");
}

#[test]
fn a_stream_that_stops_half_way() {
    let node = Node::start(1, "");
    let good = far_document();
    // The client says that nothing more comes.
    let mut bulk = Bulk::begin(&node, "Content-Length: 1000000\r\n");
    bulk.send(format!("{good}\n{good}\n{}", &good[..30]));
    bulk.begins();
    let first = bulk.result().expect("the first");
    bulk.sends.shutdown(Shutdown::Write).expect("open until now");
    let rest = bulk.results();
    assert_eq!(rest.len(), 2);
    assert_eq!(assert_refused(&rest[1], 400, "got the end of the connection"), 3);
    bulk.assert_closed();
    // The client is gone.
    let mut gone = Bulk::begin(&node, "Transfer-Encoding: chunked\r\n");
    gone.send_chunk(format!("{good}\n{good}"));
    gone.begins();
    let last = gone.result().expect("the first line");
    drop(gone);
    until("the connection to be gone", || {
        (node.metric("chronos_connections") <= 0.0).then_some(())
    });
    for path in [location(&first), location(&rest[0]), location(&last)] {
        assert_eq!(node.request("GET", path, "").status, 200, "what was answered stands");
    }
    assert_eq!(node.metric("chronos_timers"), 3.0, "half a line is no timer");
}

#[test]
fn bad_framing_ends_the_stream_with_a_line() {
    let node = Node::shared();
    let mut bulk = Bulk::begin(&node, "Transfer-Encoding: chunked\r\n");
    bulk.send_chunk(far_document() + "\n");
    bulk.begins();
    location(&bulk.result().expect("created"));
    bulk.send("nonsense\r\n");
    let rest = bulk.results();
    assert_eq!((rest.len(), assert_refused(&rest[0], 400, "chunked body: ")), (1, 2));
    bulk.assert_closed();
    // Before the first result an error is an error.
    let mut bulk = Bulk::begin(&node, "Transfer-Encoding: chunked\r\n");
    bulk.send("nonsense\r\n");
    assert_eq!(bulk.head()[0], "HTTP/1.1 400 Bad Request");
}

#[test]
fn silence_in_a_stream_ends_it_and_progress_does_not() {
    let node = Node::start(1, "[limits]\nidle_timeout_ms = 600\n");
    let mut bulk = Bulk::begin(&node, "Transfer-Encoding: chunked\r\n");
    let line = far_document() + "\n";
    bulk.send_chunk(&line);
    bulk.begins();
    location(&bulk.result().expect("created"));
    for _ in 0..6 {
        thread::sleep(Duration::from_millis(250));
        bulk.send_chunk(&line);
        location(&bulk.result().expect("longer than the limit, line by line"));
    }
    // A line that trickles has the time of a request.
    let mut sends = bulk.sends.try_clone().expect("a socket");
    let trickle = thread::spawn(move || {
        for _ in 0..40 {
            thread::sleep(Duration::from_millis(50));
            if sends.write_all(b"1\r\n \r\n").is_err() {
                return;
            }
        }
    });
    let rest = bulk.results();
    assert_eq!((rest.len(), assert_refused(&rest[0], 408, "limits.idle_timeout_ms")), (1, 8));
    trickle.join().expect("it ends");
}

#[test]
fn expect_continue_is_answered_before_the_results() {
    let node = Node::shared();
    let line = far_document();
    let headers = format!("Content-Length: {}\r\nExpect: 100-continue\r\n", line.len());
    let mut bulk = Bulk::begin(&node, &headers);
    assert_eq!(bulk.head(), ["HTTP/1.1 100 Continue"]);
    bulk.send(&line);
    bulk.begins();
    assert_eq!(bulk.results().len(), 1);
}

#[test]
fn pipelined_with_other_requests() {
    let node = Node::shared();
    let body = numbered(300).join("\n");
    let mut bulk = Bulk::begin(&node, &format!("Content-Length: {}\r\n", body.len()));
    let ping = "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n";
    let again = format!("{HEAD}Connection: close\r\nContent-Length: 1\r\n\r\nx");
    bulk.send(format!("{body}{ping}{again}{ping}"));
    bulk.begins();
    assert_eq!(bulk.results().len(), 300);
    assert_eq!(bulk.head()[0], "HTTP/1.1 200 OK");
    let mut pong = [0; 2];
    bulk.reads.read_exact(&mut pong).expect("the pong");
    let head = bulk.begins();
    assert!(head.iter().any(|line| line == "Connection: close"), "{head:?}");
    let refused = bulk.results();
    assert_eq!((refused.len(), assert_refused(&refused[0], 400, "body")), (1, 1));
    bulk.assert_closed();
}

#[test]
fn other_methods_and_http_1_0() {
    let node = Node::shared();
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        let answer = node.request(method, "/timers/bulk", "");
        assert_eq!((answer.status, answer.header("Allow")), (405, Some("POST")), "{method}");
    }
    let mut client = node.client();
    client.send("POST /timers/bulk HTTP/1.0\r\nContent-Length: 1\r\n\r\nx");
    client.answer().assert_refusal(505, "expected HTTP/1.1 for /timers/bulk", "no chunks");
}

/// The node takes no more from a client that reads nothing, and goes on when it reads.
#[test]
fn a_client_that_never_reads_holds_little_and_delays_nobody() {
    let node = Node::start(1, "[node]\nmemory_ahead_bytes = 0\n[limits]\ntimers_max = 100\n");
    let before = node.resident_bytes();
    let line = far_document() + "\n";
    let piece = line.repeat(1_000);
    let mut deaf: Vec<_> =
        (0..10).map(|_| Bulk::begin(&node, "Content-Length: 1000000000000\r\n")).collect();
    let mut sent = 0;
    for bulk in &mut deaf {
        bulk.sends.set_write_timeout(Some(Duration::from_millis(200))).expect("a socket");
        let mut one = 0;
        while bulk.sends.write_all(piece.as_bytes()).is_ok() {
            one += piece.len();
            assert!(one < 64 * MIB, "the node takes lines without end");
        }
        sent += one;
    }
    node.assert_alive("clients that never read");
    let grown = node.resident_bytes().saturating_sub(before);
    eprintln!("{sent} bytes sent, grew by {} KiB", grown >> 10);
    assert!(grown < 64 * MIB as u64, "grew by {grown} bytes");
    let mut bulk = deaf.pop().expect("ten");
    bulk.begins();
    for _ in 0..5_000 {
        assert!(bulk.result().is_some(), "it goes on when it is read");
    }
}

#[test]
fn limits_of_the_node_are_told_line_by_line() {
    let node = Node::start(1, "[limits]\ntimers_max = 10\n");
    let results = bulk(&node, numbered(15).join("\n").as_bytes());
    results[..10].iter().for_each(|result| _ = location(result));
    for (at, result) in results[10..].iter().enumerate() {
        assert_eq!(assert_refused(result, 503, "limits.timers_max"), at as u64 + 11);
        assert_eq!(result["type"], "urn:chronos:error:limit");
    }
}

/// With a journal answers wait for the disk, so that many lines are under way.
#[test]
fn results_wait_for_the_journal() {
    let data = tempfile::tempdir().expect("a folder");
    let config = format!("[journal]\ndata_dir = {:?}\n", data.path());
    let node = Node::start(1, &config);
    let mut lines = numbered(5_000);
    lines[2_500] = "x".to_owned();
    let results = bulk(&node, lines.join("\n").as_bytes());
    assert_eq!(results.len(), 5_000);
    assert_refused(&results[2_500], 400, "body");
    let mut client = node.client();
    for at in [0, 1_023, 1_024, 2_499, 2_501, 4_999] {
        let uri = uri_of(&mut client, location(&results[at]));
        assert_eq!(uri, format!("http://127.0.0.1:9/{at}"), "in order");
    }
}

#[test]
fn a_node_that_stops_ends_the_stream_with_a_line() {
    let node = Node::start(1, "");
    let mut bulk = Bulk::begin(&node, "Transfer-Encoding: chunked\r\n");
    bulk.send_chunk(far_document() + "\n");
    bulk.begins();
    location(&bulk.result().expect("created"));
    node.signal("TERM");
    let rest = bulk.results();
    assert_eq!((rest.len(), assert_refused(&rest[0], 503, "the node stops")), (1, 2));
    assert!(node.wait().success());
}

#[test]
fn streams_at_full_speed_beside_each_other() {
    let node = Node::start(1, "");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let results = bulk(&node, numbered(10_000).join("\n").as_bytes());
                assert_eq!(results.len(), 10_000);
                results.iter().for_each(|result| _ = location(result));
            });
        }
    });
    assert_eq!(node.metric("chronos_timers"), 80_000.0);
}

/// One core serves a stream that never ends, and others.
#[test]
fn a_stream_delays_neither_requests_nor_pops() {
    let node = Node::start(1, "[limits]\ntimers_max = 1000\n");
    let sink = Sink::ok();
    let mut bulk = Bulk::begin(&node, "Content-Length: 1000000000000\r\n");
    let mut sends = bulk.sends.try_clone().expect("a socket");
    let piece = (far_document() + "\n").repeat(1_000);
    let sender = thread::spawn(move || while sends.write_all(piece.as_bytes()).is_ok() {});
    let reader = thread::spawn(move || {
        bulk.begins();
        for _ in 0..20_000 {
            assert!(bulk.result().is_some());
        }
        bulk.sends.shutdown(Shutdown::Both).expect("open until now");
    });
    let mut client = node.client();
    let body = document("0.2", None, &sink.uri("/near"), "x");
    let created = client.request("PUT", "/timers/0000000000000001-1", &body);
    let ping = |_| {
        let began = std::time::Instant::now();
        assert_eq!(client.request("GET", "/ping", "").text(), "OK");
        began.elapsed()
    };
    let mut pings: Vec<Duration> = (0..50).map(ping).collect();
    pings.sort();
    // One that is slow may be the machine's.
    assert!(pings[25] < Duration::from_secs(2), "{pings:?}");
    if created.status == 200 {
        sink.wait_for(1);
    }
    reader.join().expect("it reads");
    sender.join().expect("it ends");
}

/// A stream that is under way needs no file for a line, and its timers find one for their callbacks.
#[test]
fn a_stream_goes_on_while_files_are_short() {
    const LINES: usize = 50;
    let node = Node::start_with_open_files(1, "", 64);
    let mut bulk = Bulk::begin(&node, "Transfer-Encoding: chunked\r\n");
    bulk.send_chunk(far_document() + "\n");
    bulk.begins();
    location(&bulk.result().expect("the first"));
    let flood: Vec<_> = (0..100).map(|_| node.client()).collect();
    let sink = Sink::ok();
    for at in 0..LINES {
        bulk.send_chunk(document("0", None, &sink.uri(&format!("/{at}")), "x") + "\n");
        location(&bulk.result().expect("its result"));
    }
    bulk.send("0\r\n\r\n");
    assert_eq!(bulk.results().len(), 0);
    sink.wait_for(LINES);
    drop(flood);
}
