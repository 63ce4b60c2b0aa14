//! What a request costs its core, whatever it says: no request of up to 64 KiB takes a core a
//! millisecond, and none that is refused a fifth of that.
//!
//! A clock on the wall says nothing on a busy machine, and builds of tests are slow. So the costs
//! are times of the thread, the least of several tries, and are compared with the cost of a plain
//! create in the same build, of which a release does a million in a second.

use std::fmt::Write as _;

use crate::base::time::{MonoNs, Now, WallMs};
use crate::node::clients::connection_tests::{Fixture, NOW};
use crate::ring::thread_usage;

/// How many plain creates a request may cost, and one that is refused.
const TAKEN_MAX: f64 = 1_000.0;
const REFUSED_MAX: f64 = 200.0;
/// Plain creates that are measured together.
const PLAIN: u32 = 2_000;
/// How often a request is tried before it is too dear.
const TRIES: usize = 20;
const BYTES_MAX: usize = 64 << 10;

const CALLBACK: &str = r#""callback":{"http":{"uri":"http://h/","opaque":"x"}}"#;

fn post(body: &str) -> String {
    format!("POST /timers HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn timer(timing: &str, more: &str) -> String {
    post(&format!("{{\"timing\":{{{timing}}},{CALLBACK}{more}}}"))
}

/// An item so often that all have the bytes of a long request.
fn many(item: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for at in 0.. {
        let item = item(at);
        if text.len() + item.len() > BYTES_MAX - 512 {
            return text;
        }
        text.push_str(&item);
    }
    text
}

/// Time of the thread for one request, in ns, and the status of its answer.
fn cost_of(request: &str) -> (u64, String) {
    let mut fixture = Fixture::new();
    let began = thread_usage().cpu_ns;
    fixture.feed(request);
    let ns = thread_usage().cpu_ns - began;
    (ns, fixture.status())
}

fn plain_ns() -> f64 {
    let request = timer("\"interval\":300", "");
    let tries = (0..5).map(|_| {
        let mut fixture = Fixture::new();
        let began = thread_usage().cpu_ns;
        for _ in 0..PLAIN {
            fixture.feed(&request);
            assert_eq!(fixture.status(), "200");
        }
        (thread_usage().cpu_ns - began) / u64::from(PLAIN)
    });
    tries.min().map_or(0.0, |ns| ns.max(1) as f64)
}

/// Requests that are long, or that mean much work in few bytes.
fn dear() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |name: &str, request: String| {
        assert!(request.len() <= BYTES_MAX, "{name}: {} bytes", request.len());
        all.push((name.to_owned(), request));
    };
    let interval = "\"interval\":300";
    for expression in [
        ", * * * * *",
        "* * * 1 2 +MON#5",
        "* * * 1-28 * +MON#5",
        "* * * 31 2,4,6,9,11 *",
        "* * * 8-31 * +MON#1",
        "* * * 1-28 * +MON#5,TUE#5,WED#5,THU#5,FRI#5,SAT#5,SUN#5",
        "* 0 2 8-14 3 +SUN#2",
        "*/30 2 8-14 3 +SUN",
        "* * 3 29 2 +MON",
        "* * * * * * 1970-2199,1970-2199,1970-2199,1970-2199,1970-2199,1970-2199,1970-2199",
        "0 0 0 31 2 *",
    ] {
        for zone in ["UTC", "America/New_York", "Africa/Casablanca", "Australia/Lord_Howe"] {
            let timing = format!("\"cron\":\"{expression}\",\"time-zone\":\"{zone}\"");
            add(&format!("cron {expression} {zone}"), timer(&timing, ""));
        }
    }
    let stars = "*,".repeat(59) + "* * * * *";
    add("cron of many items", timer(&format!("\"cron\":\"{stars}\""), ""));
    let zone = "A/".repeat(20_000);
    add("long zone", timer(&format!("\"cron\":\"@daily\",\"time-zone\":\"{zone}\""), ""));
    add("long at", timer(&format!("\"at\":\"2030-01-01T00:00:00.{}Z\"", "1".repeat(60_000)), ""));
    add("long window", timer(&format!("{interval},\"window\":\"P{}\"", "1D".repeat(30_000)), ""));

    let unknown = |value: String| timer(interval, &format!(",\"z\":{value}"));
    add("long name", timer(interval, &format!(",\"{}\":1", "q".repeat(60_000))));
    add("many unknown members", timer(interval, &many(|at| format!(",\"repeat_fo{at:x}\":1"))));
    add("many numbers", unknown(format!("[{}0]", many(|_| "0,".to_owned()))));
    add("long numbers", unknown(format!("[{}0]", many(|_| "1.7976931348623157e308,".to_owned()))));
    add("a long number", unknown(format!("1{}", "0".repeat(60_000))));
    add("a long fraction", unknown(format!("0.{}", "1".repeat(60_000))));
    add("deep arrays", unknown("[".repeat(30_000) + &"]".repeat(30_000)));
    add("deep objects", unknown("{\"a\":".repeat(10_000) + "1" + &"}".repeat(10_000)));
    add("many strings", unknown(format!("[{}0]", many(|_| "\"\",".to_owned()))));
    add("many objects", unknown(format!("[{}0]", many(|_| "{},".to_owned()))));
    add("escapes", unknown(format!("\"{}\"", many(|_| "\\u0041".to_owned()))));
    add("pairs of surrogates", unknown(format!("\"{}\"", many(|_| "\\ud83d\\ude00".to_owned()))));
    add("short escapes", unknown(format!("\"{}\"", many(|_| "\\n".to_owned()))));
    add("a member again and again", timer(interval, &many(|_| format!(",{CALLBACK}"))));
    let tags =
        |tags: String| timer(interval, &format!(",\"statistics\":{{\"tag-info\":[{tags}]}}"));
    add("many tags", tags(many(|at| format!("{{\"type\":\"t{at}\"}},")) + "{\"type\":\"t\"}"));
    add("tags of nothing", tags(many(|_| "{},".to_owned()) + "{}"));
    add("arrays in tags", tags("[".repeat(30_000) + &"]".repeat(30_000)));
    add(
        "unknown members of tags",
        tags(many(|at| format!("{{\"type\":\"t\",\"cuont{at}\":1}},")) + "{}"),
    );

    let http = |members: String| {
        post(&format!(
            "{{\"timing\":{{{interval}}},\"callback\":{{\"http\":{{\"uri\":\"http://h/\",{members}}}}}}}"
        ))
    };
    let headers =
        |headers: String| http(format!("\"opaque\":\"\",\"headers\":{{{headers}\"Z\":\"\"}}"));
    add("many headers", headers(many(|at| format!("\"X-{at}\":\"y\","))));
    add("a long header", headers(format!("\"X-Y\":\"{}\",", "y".repeat(60_000))));
    let some: String = (0..31).fold(String::new(), |mut some, at| {
        let _ = write!(some, "\"X-{at}-{}\":\"{}\",", "n".repeat(60), "y".repeat(60));
        some
    });
    add("31 headers", headers(some));
    add("base64", http(format!("\"opaque-base64\":\"{}\"", "QUJD".repeat(15_000))));
    add("no base64", http(format!("\"opaque-base64\":\"{}!\"", "QUJD".repeat(15_000))));
    add("long opaque", http(format!("\"opaque\":\"{}\"", "\u{e9}".repeat(30_000))));
    let uri = |uri: String| {
        post(&format!(
            "{{\"timing\":{{{interval}}},\"callback\":{{\"http\":{{\"uri\":\"{uri}\",\"opaque\":\"\"}}}}}}"
        ))
    };
    add("long path", uri(format!("http://h/{}", "%41/".repeat(15_000))));
    add("long host", uri(format!("http://{}/", "a.".repeat(30_000))));
    add("long query", uri(format!("http://h/?{}", "a=b&".repeat(15_000))));
    add("long scheme", uri("a".repeat(60_000)));
    add("letters beyond ASCII", uri(format!("http://h/{}", "\u{e9}".repeat(30_000))));

    add("no object", post(&format!("[{}0]", many(|_| "0,".to_owned()))));
    add("no end", post(&"[".repeat(60_000)));
    add("no timing", post(&format!("{{\"z\":[{}0]}}", many(|_| "0,".to_owned()))));
    add("no timing, members", post(&format!("{{{}\"z\":0}}", many(|_| "\"a\":0,".to_owned()))));
    add(
        "an end without a beginning",
        post(&format!("{{\"z\":[{}0]}}}}", many(|_| "0,".to_owned()))),
    );
    add("blanks", post(&" ".repeat(60_000)));
    add("no JSON", post(&"x".repeat(60_000)));
    add("a control character", timer(interval, &format!(",\"z\":\"{}\n\"", "x".repeat(60_000))));
    add("bad escapes", unknown(format!("\"{}\\ud800\"", many(|_| "\\u0041".to_owned()))));

    let get =
        |line: String, headers: String| format!("{line} HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
    let (none, long) = (String::new(), 15_000);
    add("long target", get(format!("GET /{}", "a/".repeat(long / 2)), none.clone()));
    add(
        "long name of a timer",
        get(format!("GET /timers/by-name/{}", "%41".repeat(long / 3)), none.clone()),
    );
    for filter in ["tag=a&", "state=paused&", "name-prefix=%41&", "host=h&", "limit=1&", "x=1&"] {
        let query = filter.repeat(long / filter.len());
        add(&format!("query of {filter}"), get(format!("GET /timers?{query}"), none.clone()));
        add(&format!("count of {filter}"), get(format!("GET /timers/count?{query}"), none.clone()));
        add(&format!("job of {filter}"), get(format!("DELETE /timers?{query}"), none.clone()));
    }
    add("long cursor", get(format!("GET /timers?after={}", "A".repeat(long)), none));
    let by_name = || "GET /timers/by-name/a".to_owned();
    for (name, header) in [
        ("conditions", format!("If-Match: {}\"1\"\r\n", "\"1\",".repeat(long / 4))),
        ("no condition", format!("If-None-Match: {}\r\n", "*,".repeat(long / 2))),
        (
            "accepted types",
            format!("Accept: {}a/b\r\n", "application/problem+json;q=0.1,".repeat(long / 31)),
        ),
        ("a token", format!("Authorization: Bearer {}\r\n", "a".repeat(long))),
        ("a connection", format!("Connection: {}\r\n", "a,".repeat(long / 2))),
        ("a key", format!("Idempotency-Key: {}\r\n", "a".repeat(long))),
        (
            "63 headers",
            (0..62)
                .fold(String::new(), |all, at| all + &format!("X-{at}: {}\r\n", "y".repeat(200))),
        ),
        ("65 headers", (0..65).fold(String::new(), |all, at| all + &format!("X-{at}: y\r\n"))),
    ] {
        add(name, get(by_name(), header));
    }
    let body = timer(interval, "");
    let body = body.split("\r\n\r\n").nth(1).unwrap_or_default();
    let chunks = |text: &str| {
        text.bytes().fold(String::new(), |all, at| {
            all + "1\r\n" + char::from(at).encode_utf8(&mut [0; 4]) + "\r\n"
        })
    };
    let chunked = |body: &str| {
        format!(
            "POST /timers HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{body}0\r\n\r\n"
        )
    };
    add("chunks of a byte", chunked(&chunks(&format!("{}{body}", " ".repeat(8_000)))));
    add(
        "chunks with extensions",
        chunked(&format!("{}{}", many(|_| "1;a=b\r\n \r\n".to_owned()), chunks(body))),
    );
    all
}

#[test]
fn no_request_is_dear() {
    let plain_ns = plain_ns();
    let mut told = Vec::new();
    for (name, request) in dear() {
        let mut least = f64::INFINITY;
        let mut status = String::new();
        let mut max = TAKEN_MAX;
        for _ in 0..TRIES {
            let (ns, got) = cost_of(&request);
            max = if got.starts_with('4') { REFUSED_MAX } else { TAKEN_MAX };
            (least, status) = (least.min(ns as f64 / plain_ns), got);
            if least <= max {
                break;
            }
        }
        if std::env::var_os("CHRONOS_SHOW_COSTS").is_some() {
            println!("{least:>8.1} {status:>4} {name}");
        }
        if least > max {
            told.push(format!("{name}: as {least:.0} plain creates, answered {status}"));
        }
    }
    assert!(told.is_empty(), "{}", told.join("\n"));
}

/// A turn takes no further line when its time is over, and goes on in the next.
#[test]
fn a_turn_takes_lines_for_a_time() {
    let mut fixture = Fixture::new();
    let line = format!("{{\"timing\":{{\"cron\":\"* * * 1 2 +MON#5\"}},{CALLBACK}}}\n");
    let body = line.repeat(100);
    // The time of each turn is over as soon as the clock is read: after each line with a calendar.
    fixture.begin_turn(MonoNs(0));
    fixture.feed(&format!(
        "POST /timers/bulk HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(fixture.lines_answered(), 1);
    for turn in 2..=100 {
        fixture.begin_turn(MonoNs(turn));
        let now = Now { mono: MonoNs(NOW.mono.0 + turn), wall: WallMs(NOW.wall.0) };
        fixture.feed_at(now, "");
        assert_eq!(fixture.lines_answered() as u64, turn);
    }
}

/// So it is with requests that come in one piece.
#[test]
fn a_turn_takes_requests_for_a_time() {
    let mut fixture = Fixture::new();
    let request = timer("\"cron\":\"@daily\"", "");
    fixture.begin_turn(MonoNs(0));
    fixture.feed(&request.repeat(3));
    assert_eq!(fixture.answered(), 1);
    fixture.begin_turn(MonoNs(0));
    fixture.feed("");
    assert_eq!(fixture.answered(), 2);
    fixture.begin_turn(crate::ring::monotonic().plus_ms(3_600_000));
    fixture.feed(&timer("\"interval\":300", "").repeat(10));
    assert_eq!(fixture.answered(), 13, "a turn with time takes all");
}
