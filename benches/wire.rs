//! What a request costs before it means anything: `cargo bench --bench wire`. Beside each time
//! stand the bytes read and the allocations made per iteration, counted, not estimated; the bench
//! fails when the hot path allocates.

#[path = "counting.rs"]
mod counting;

use std::hint::black_box;

use chronos::base::ids::TimerId;
use chronos::base::limits::Limits;
use chronos::wire::answer_head::parse_answer_head;
use chronos::wire::callback_uri::parse_callback_uri;
use chronos::wire::chunked::ChunkedDecoder;
use chronos::wire::request_head::{Framing, parse_request_head};
use chronos::wire::timer_json::{JsonScratch, parse_timer};
use chronos::wire::timer_path::{parse_path, write_public_id};
use criterion::Criterion;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Iterations over which allocations are counted, after as many to warm up.
const COUNTED_ITERATIONS: u64 = 1_000;

/// As curl and the load generator send it.
const HEAD: &[u8] = b"POST /timers HTTP/1.1\r\nHost: 127.0.0.1:7253\r\nUser-Agent: loadgen/1\r\n\
    Accept: */*\r\nContent-Type: application/json\r\nContent-Length: 163\r\n\r\n";
const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Tue, 01 Jul 2025 00:00:00 GMT\r\n\
    Content-Type: text/plain\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n";
const BODY: &[u8] = br#"{"timing":{"interval":300,"repeat-for":600},"callback":{"http":{"uri":"http://127.0.0.1:9901/callbacks/0001","opaque":"0123456789012345678901234567890123456789"}}}"#;
/// A call session (compat section 7): escapes in the opaque data, and a tag.
const SESSION: &[u8] = br#"{"timing":{"interval":300,"repeat-for":600},"callback":{"http":{"uri":"http://ralf.example:10888/call-id/0a1b2c3d4e5f%40host?timer-interim=true","opaque":"{\"event\":{\"Service-Information\":{\"IMS-Information\":{\"Role-Of-Node\":0,\"Node-Functionality\":0}},\"Accounting-Record-Type\":3}}"}},"statistics":{"tag-info":[{"type":"CALL","count":1}]}}"#;
const PATH: &str = "/timers/0004d9f548100000-2-800000000000000f";
const URI: &str = "http://127.0.0.1:9901/callbacks/0001";

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let head_max = Limits::default().header_bytes_max as usize;
    measure(&mut criterion, "request_head", HEAD.len(), || {
        black_box(parse_request_head(black_box(HEAD), head_max).expect("a good head"));
    });
    measure(&mut criterion, "answer_head", ANSWER.len(), || {
        black_box(parse_answer_head(black_box(ANSWER), head_max).expect("a good head"));
    });
    for (name, body) in [("timer_json", BODY), ("timer_json_session", SESSION)] {
        let mut scratch = JsonScratch::default();
        let mut place = vec![0; body.len()];
        // The parser writes into the body, so each iteration copies it first: some 10 ns.
        measure(&mut criterion, name, body.len(), || {
            place.copy_from_slice(body);
            black_box(parse_timer(black_box(&mut place), &mut scratch).expect("a good document"));
        });
    }
    measure(&mut criterion, "callback_uri", URI.len(), || {
        black_box(parse_callback_uri(black_box(URI)).expect("a good URI"));
    });
    measure(&mut criterion, "timer_path", PATH.len(), || {
        black_box(parse_path(black_box(PATH)));
    });
    let mut out = Vec::with_capacity(64);
    measure(&mut criterion, "write_public_id", 35, || {
        out.clear();
        write_public_id(black_box(TimerId(0x0004_d9f5_4810_0000)), 2, black_box(5), &mut out);
        black_box(&out);
    });
    let size = format!("{:x}\r\n", BODY.len());
    let chunks = [size.as_bytes(), BODY, b"\r\n0\r\n\r\n"].concat();
    measure(&mut criterion, "chunked", chunks.len(), || {
        let mut decoder = ChunkedDecoder::new(1 << 20);
        let (_, is_complete) =
            decoder.decode(black_box(&chunks), |run| _ = black_box(run)).expect("well formed");
        assert!(is_complete);
    });
    whole_request(&mut criterion, head_max);
    criterion.final_summary();
}

/// Head, document, URI and the id of the answer: everything of this room that one POST needs.
fn whole_request(criterion: &mut Criterion, head_max: usize) {
    let request = [HEAD, BODY].concat();
    let mut place = request.clone();
    let mut scratch = JsonScratch::default();
    let mut out = Vec::with_capacity(64);
    measure(criterion, "whole_post", request.len(), || {
        place.copy_from_slice(&request);
        let (head, body) = place.split_at_mut(HEAD.len());
        let head = parse_request_head(black_box(head), head_max).expect("a good head");
        let framing = head.map(|head| head.framing);
        assert_eq!(framing, Some(Framing::Length(body.len() as u64)));
        let document = parse_timer(body, &mut scratch).expect("a good document");
        black_box(parse_callback_uri(document.uri).expect("a good URI"));
        out.clear();
        write_public_id(black_box(TimerId(0x0004_d9f5_4810_0000)), 2, black_box(5), &mut out);
    });
}

/// Counts the allocations of `work`, which must be none once warm, then times it.
fn measure(criterion: &mut Criterion, name: &str, bytes: usize, mut work: impl FnMut()) {
    (0..COUNTED_ITERATIONS).for_each(|_| work());
    let allocations = counting::allocations_of(|| (0..COUNTED_ITERATIONS).for_each(|_| work()));
    println!("{name}: {bytes} bytes, {allocations} allocations in {COUNTED_ITERATIONS} iterations");
    assert_eq!(allocations, 0, "{name} allocates on the hot path");
    criterion.bench_function(name, |bencher| bencher.iter(&mut work));
}
