//! From the bytes of a `POST /timers` to an admitted timer and back to its id: time, bytes and
//! allocations of each step. Beside it the JSON parser against a typed serde_json in the same run.

mod counting;

use std::borrow::Cow;
use std::hint::black_box;
use std::time::{Duration, Instant};

use chronos::base::ids::TimerId;
use chronos::base::time::WallMs;
use chronos::timer::admission::admit;
use chronos::wire::callback_uri::AuthorityMemory;
use chronos::wire::internal_json::parse_any;
use chronos::wire::request_head::{Framing, parse_request_head};
use chronos::wire::timer_json::{JsonScratch, parse_timer};
use chronos::wire::timer_path::{TimerPath, parse_path, write_public_id};
use counting::Asked;
use criterion::{Criterion, criterion_group, criterion_main};
use serde::Deserialize;

/// A body as a call-session client writes it: 120 bytes of opaque data, a path with the call's id.
const BODY: &str = concat!(
    r#"{"timing":{"interval":60,"repeat-for":3600},"callback":{"http":{"uri":"#,
    r#""http://10.0.0.7:10888/call-id/5f0c1b7a9e?timer-interim=true","opaque":"#,
    r#""{\"call\":\"5f0c1b7a9e@host-17.example\",\"role\":\"originating\",\"method\":\"INVITE\","#,
    r#"\"ccfs\":[\"10.0.0.9\"],\"peer\":\"sip:b@x.example\"}"}},"#,
    r#""reliability":{"replication-factor":2}}"#
);
const HEADER_BYTES_MAX: usize = 16 << 10;
const OPAQUE_BYTES_MAX: u32 = 256 << 10;
/// Operations over which allocations are counted. As many operations before may grow buffers.
const COUNTED: u64 = 1_000;
/// Rounds of the comparison. Their medians are printed.
const ROUNDS: usize = 31;
const PER_ROUND: u32 = 10_000;

fn request() -> Vec<u8> {
    let head =
        "POST /timers HTTP/1.1\r\nHost: 127.0.0.1:7253\r\nContent-Type: application/json\r\n";
    format!("{head}Content-Length: {}\r\n\r\n{BODY}", BODY.len()).into_bytes()
}

/// The buffers that a core keeps between two requests.
#[derive(Default)]
struct Buffers {
    body: Vec<u8>,
    json: JsonScratch,
    authorities: AuthorityMemory,
    content: Vec<u8>,
    out: Vec<u8>,
}

impl Buffers {
    /// Does everything that a POST costs before the shard sees it, and writes the id of its answer.
    fn post(&mut self, request: &[u8]) -> usize {
        let head = parse_request_head(request, HEADER_BYTES_MAX).expect("valid").expect("whole");
        assert!(parse_path(head.path) == TimerPath::Collection);
        let Framing::Length(length) = head.framing else { unreachable!("it has a length") };
        let body = &request[head.head_bytes..head.head_bytes + length as usize];
        self.take(body);
        let document = parse_any(&mut self.body, &mut self.json).expect("a timer").timer;
        let (limits, authorities) = ((None, OPAQUE_BYTES_MAX, WallMs(0)), &mut self.authorities);
        let definition = admit(&document, limits, authorities, &mut self.content);
        let definition = definition.expect("admitted");
        black_box(definition);
        self.out.clear();
        write_public_id(TimerId(0x0004_d9f5_4810_0000), 2, 0x1234, &mut self.out);
        self.out.len()
    }

    fn take(&mut self, body: &[u8]) {
        self.body.clear();
        self.body.extend_from_slice(body);
    }

    /// Copies the body and parses it in place. Returns a number that depends on it.
    fn parse(&mut self, body: &[u8]) -> usize {
        self.take(body);
        let document = parse_timer(&mut self.body, &mut self.json).expect("a timer");
        document.opaque.len() + document.uri.len() + document.interval_s as usize
    }
}

/// The same document for serde_json, borrowed where nothing is escaped.
#[derive(Deserialize)]
struct Reference<'a> {
    timing: ReferenceTiming,
    #[serde(borrow)]
    callback: ReferenceCallback<'a>,
    reliability: Option<ReferenceReliability>,
}

#[derive(Deserialize)]
struct ReferenceTiming {
    interval: f64,
    #[serde(rename = "repeat-for")]
    repeat_for: Option<f64>,
}

#[derive(Deserialize)]
struct ReferenceCallback<'a> {
    #[serde(borrow)]
    http: ReferenceHttp<'a>,
}

#[derive(Deserialize)]
struct ReferenceHttp<'a> {
    #[serde(borrow)]
    uri: Cow<'a, str>,
    #[serde(borrow)]
    opaque: Cow<'a, str>,
}

#[derive(Deserialize)]
struct ReferenceReliability {
    #[serde(rename = "replication-factor")]
    replication_factor: Option<i64>,
}

fn parse_reference(body: &[u8]) -> usize {
    let timer: Reference<'_> = serde_json::from_slice(body).expect("a timer");
    black_box(timer.timing.repeat_for);
    black_box(timer.reliability.and_then(|reliability| reliability.replication_factor));
    let http = timer.callback.http;
    http.opaque.len() + http.uri.len() + timer.timing.interval as usize
}

fn steps(criterion: &mut Criterion) {
    let request = request();
    let mut buffers = Buffers::default();
    let head_bytes = request.len() - BODY.len();
    let mut group = criterion.benchmark_group("wire");
    group.bench_function("head", |b| {
        b.iter(|| parse_request_head(black_box(&request), HEADER_BYTES_MAX).is_ok());
    });
    group.bench_function("body", |b| b.iter(|| buffers.parse(black_box(BODY.as_bytes()))));
    let (mut body, mut json, mut content) =
        (BODY.as_bytes().to_vec(), JsonScratch::default(), vec![]);
    let document = parse_timer(&mut body, &mut json).expect("a timer");
    let (limits, mut authorities) =
        ((None, OPAQUE_BYTES_MAX, WallMs(0)), AuthorityMemory::default());
    group.bench_function("admission", |b| {
        b.iter(|| admit(black_box(&document), limits, &mut authorities, &mut content).is_ok());
    });
    let mut out = Vec::new();
    group.bench_function("id_write", |b| {
        b.iter(|| {
            out.clear();
            write_public_id(black_box(TimerId(0x0004_d9f5_4810_0000)), 2, 0x1234, &mut out);
        });
    });
    group.bench_function("id_parse", |b| {
        let path = "/timers/0004d9f548100000-2-0000000000001234";
        b.iter(|| parse_path(black_box(path)));
    });
    group.bench_function("post", |b| b.iter(|| buffers.post(black_box(&request))));
    group.finish();
    println!("counted work, one POST of {head_bytes} bytes of head and {} of body:", BODY.len());
    count("head", || usize::from(parse_request_head(&request, HEADER_BYTES_MAX).is_ok()));
    count("body", || buffers.parse(BODY.as_bytes()));
    count("whole POST", || buffers.post(&request));
    count("serde_json, the body", || parse_reference(BODY.as_bytes()));
}

/// Counts the allocations of an operation whose buffers have grown.
fn count(name: &str, mut operation: impl FnMut() -> usize) {
    for _ in 0..COUNTED {
        black_box(operation());
    }
    let before = Asked::by_this_thread();
    for _ in 0..COUNTED {
        black_box(operation());
    }
    let asked = Asked::since(before);
    println!(
        "  {name}: {} allocations and {} bytes asked for in {COUNTED} operations",
        asked.allocations, asked.bytes
    );
}

/// Runs both JSON parsers by turns, so that noise meets both.
fn against_serde_json(_: &mut Criterion) {
    let mut buffers = Buffers::default();
    let body = BODY.as_bytes();
    assert_eq!(buffers.parse(body), parse_reference(body), "both read the same");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(per_operation_ns(|| buffers.parse(black_box(body))));
        theirs.push(per_operation_ns(|| parse_reference(black_box(body))));
    }
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    println!(
        "body of {} bytes, medians of {ROUNDS} rounds in turn: simd-json in place {ours:.0} ns, \
         serde_json typed {theirs:.0} ns, ratio {:.2}",
        body.len(),
        ours / theirs
    );
}

fn per_operation_ns(mut operation: impl FnMut() -> usize) -> f64 {
    let begin = Instant::now();
    for _ in 0..PER_ROUND {
        black_box(operation());
    }
    begin.elapsed().as_nanos() as f64 / f64::from(PER_ROUND)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

criterion_group! {
    name = wire;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1));
    targets = steps, against_serde_json
}
criterion_main!(wire);
