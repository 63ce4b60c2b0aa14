//! What a request costs its core, whatever it says: no request of up to 64 KiB takes a core a
//! millisecond, and none that is refused a fifth of that.
//!
//! A clock on the wall says nothing on a busy machine, and builds of tests are slow. So the costs
//! are times of the thread, the least of several tries, and are compared with the cost of a plain
//! create in the same build, of which a release does a million in a second.

use crate::base::time::{MonoNs, Now, WallMs};
use crate::node::clients::connection_tests::{Fixture, NOW};
use crate::ring::thread_usage;

/// How many plain creates a request may cost, and one that is refused. The rule for a release, 1 ms
/// and 0.2 ms, would be 1 000 and 200. In builds of tests some code is slower than other code: 64
/// KiB that lack `timing` cost 330 to 400 there.
const TAKEN_MAX: f64 = 1_500.0;
const REFUSED_MAX: f64 = 600.0;
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
    let request = timer(INTERVAL, "");
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

/// Requests by name that are long, or that mean much work in few bytes.
type Named = Vec<(String, String)>;

const INTERVAL: &str = "\"interval\":300";

fn named(all: impl IntoIterator<Item = (&'static str, String)>) -> Named {
    all.into_iter().map(|(name, request)| (name.to_owned(), request)).collect()
}

fn calendars() -> Named {
    let mut all = Vec::new();
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
            all.push((format!("cron {expression} {zone}"), timer(&timing, "")));
        }
    }
    let stars = "*,".repeat(59) + "* * * * *";
    let zone = "A/".repeat(20_000);
    let decimals = "1".repeat(60_000);
    all.extend(named([
        ("cron of many items", timer(&format!("\"cron\":\"{stars}\""), "")),
        ("long zone", timer(&format!("\"cron\":\"@daily\",\"time-zone\":\"{zone}\""), "")),
        ("long at", timer(&format!("\"at\":\"2030-01-01T00:00:00.{decimals}Z\""), "")),
        ("long window", timer(&format!("{INTERVAL},\"window\":\"P{}\"", "1D".repeat(30_000)), "")),
    ]));
    all
}

fn unknown_members() -> Named {
    let unknown = |value: String| timer(INTERVAL, &format!(",\"z\":{value}"));
    let array = |item: &str| unknown(format!("[{}0]", many(|_| item.to_owned())));
    let text = |part: &str| unknown(format!("\"{}\"", many(|_| part.to_owned())));
    let tags =
        |tags: String| timer(INTERVAL, &format!(",\"statistics\":{{\"tag-info\":[{tags}]}}"));
    let wrong_tags = many(|at| format!("{{\"type\":\"t\",\"cuont{at}\":1}},"));
    named([
        ("long name", timer(INTERVAL, &format!(",\"{}\":1", "q".repeat(60_000)))),
        ("many members", timer(INTERVAL, &many(|at| format!(",\"repeat_fo{at:x}\":1")))),
        ("many numbers", array("0,")),
        ("long numbers", array("1.7976931348623157e308,")),
        ("a long number", unknown(format!("1{}", "0".repeat(60_000)))),
        ("a long fraction", unknown(format!("0.{}", "1".repeat(60_000)))),
        ("deep arrays", unknown("[".repeat(30_000) + &"]".repeat(30_000))),
        ("deep objects", unknown("{\"a\":".repeat(9_000) + "1" + &"}".repeat(9_000))),
        ("many strings", array("\"\",")),
        ("many objects", array("{},")),
        ("escapes", text("\\u0041")),
        ("pairs of surrogates", text("\\ud83d\\ude00")),
        ("short escapes", text("\\n")),
        ("a member again and again", timer(INTERVAL, &many(|_| format!(",{CALLBACK}")))),
        ("many tags", tags(many(|at| format!("{{\"type\":\"t{at}\"}},")) + "{}")),
        ("tags of nothing", tags(many(|_| "{},".to_owned()) + "{}")),
        ("arrays in tags", tags("[".repeat(30_000) + &"]".repeat(30_000))),
        ("unknown members of tags", tags(wrong_tags + "{}")),
    ])
}

fn callbacks() -> Named {
    let http = |members: String| {
        post(&format!("{{\"timing\":{{{INTERVAL}}},\"callback\":{{\"http\":{{{members}}}}}}}"))
    };
    let to_host = |members: String| http(format!("\"uri\":\"http://h/\",{members}"));
    let headers =
        |headers: String| to_host(format!("\"opaque\":\"\",\"headers\":{{{headers}\"Z\":\"\"}}"));
    let some = |at| format!("\"X-{at}-{}\":\"{}\",", "n".repeat(60), "y".repeat(60));
    let base64 = "QUJD".repeat(15_000);
    let uri = |uri: String| http(format!("\"uri\":\"{uri}\",\"opaque\":\"\""));
    named([
        ("many headers", headers(many(|at| format!("\"X-{at}\":\"y\",")))),
        ("a long header", headers(format!("\"X-Y\":\"{}\",", "y".repeat(60_000)))),
        ("31 headers", headers((0..31).map(some).collect())),
        ("base64", to_host(format!("\"opaque-base64\":\"{base64}\""))),
        ("no base64", to_host(format!("\"opaque-base64\":\"{base64}!\""))),
        ("long opaque", to_host(format!("\"opaque\":\"{}\"", "\u{e9}".repeat(30_000)))),
        ("long path", uri(format!("http://h/{}", "%41/".repeat(15_000)))),
        ("long host", uri(format!("http://{}/", "a.".repeat(30_000)))),
        ("long query", uri(format!("http://h/?{}", "a=b&".repeat(15_000)))),
        ("long scheme", uri("a".repeat(60_000))),
        ("letters beyond ASCII", uri(format!("http://h/{}", "\u{e9}".repeat(30_000)))),
    ])
}

fn no_timers() -> Named {
    let zeros = many(|_| "0,".to_owned());
    let escapes = many(|_| "\\u0041".to_owned());
    let line_end = format!(",\"z\":\"{}\n\"", "x".repeat(60_000));
    named([
        ("no object", post(&format!("[{zeros}0]"))),
        ("no end", post(&"[".repeat(60_000))),
        ("no timing", post(&format!("{{\"z\":[{zeros}0]}}"))),
        ("no timing, members", post(&format!("{{{}\"z\":0}}", many(|_| "\"a\":0,".to_owned())))),
        ("an end too many", post(&format!("{{\"z\":[{zeros}0]}}}}"))),
        ("blanks", post(&" ".repeat(60_000))),
        ("no JSON", post(&"x".repeat(60_000))),
        ("a control character", timer(INTERVAL, &line_end)),
        ("half a surrogate", timer(INTERVAL, &format!(",\"z\":\"{escapes}\\ud800\""))),
    ])
}

fn heads() -> Named {
    const LONG: usize = 15_000;
    let head = |line: &str, headers: &str| format!("{line} HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
    let get = |headers: String| head("GET /timers/by-name/a", &headers);
    let count = |count: usize, value: &str| {
        get((0..count).map(|at| format!("X-{at}: {value}\r\n")).collect())
    };
    let types = "application/problem+json;q=0.1,".repeat(LONG / 31);
    let mut all = named([
        ("long target", head(&format!("GET /{}", "a/".repeat(LONG / 2)), "")),
        ("long timer", head(&format!("GET /timers/by-name/{}", "%41".repeat(LONG / 3)), "")),
        ("long cursor", head(&format!("GET /timers?after={}", "A".repeat(LONG)), "")),
        ("conditions", get(format!("If-Match: {}\"1\"\r\n", "\"1\",".repeat(LONG / 4)))),
        ("no condition", get(format!("If-None-Match: {}\r\n", "*,".repeat(LONG / 2)))),
        ("accepted types", get(format!("Accept: {types}a/b\r\n"))),
        ("a token", get(format!("Authorization: Bearer {}\r\n", "a".repeat(LONG)))),
        ("a connection", get(format!("Connection: {}\r\n", "a,".repeat(LONG / 2)))),
        ("a key", get(format!("Idempotency-Key: {}\r\n", "a".repeat(LONG)))),
        ("63 headers", count(62, &"y".repeat(200))),
        ("65 headers", count(64, "y")),
    ]);
    for filter in ["tag=a&", "state=paused&", "name-prefix=%41&", "host=h&", "limit=1&", "x=1&"] {
        let query = filter.repeat(LONG / filter.len());
        for line in ["GET /timers", "GET /timers/count", "DELETE /timers"] {
            all.push((format!("{line} of {filter}"), head(&format!("{line}?{query}"), "")));
        }
    }
    all
}

fn chunks() -> Named {
    let body = timer(INTERVAL, "");
    let body = body.split("\r\n\r\n").nth(1).unwrap_or_default();
    let chunks =
        |text: &str| -> String { text.chars().map(|byte| format!("1\r\n{byte}\r\n")).collect() };
    let post = |body: String| {
        format!(
            "POST /timers HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{body}0\r\n\r\n"
        )
    };
    let extended = "1;a=b\r\n \r\n".repeat(3_000);
    let blanks = " ".repeat(8_000);
    named([
        ("chunks of a byte", post(chunks(&format!("{blanks}{body}")))),
        ("chunks with extensions", post(extended + &chunks(body))),
    ])
}

/// Bodies of words that mean something, in any order: what nobody has thought of.
fn nonsense() -> Named {
    const WORDS: [&str; 24] = [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\\",
        "\\u0041",
        "\\ud83d",
        "\n",
        " ",
        "0",
        "-1e308",
        "null",
        "\"timing\":",
        "\"cron\":\"* * * 1 2 +MON#5\"",
        "\"interval\":1",
        "\"headers\":{",
        "\"a\":",
        "\"tag-info\":[",
        "\"statistics\":{",
        "{\"type\":\"t\"},",
        CALLBACK,
    ];
    let mut state: u64 = 7;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    (0..40)
        .map(|at| {
            let mut body = "{".to_owned();
            // Few words again and again, as a parser's worst cases are.
            let few: Vec<&str> = (0..=next() % 6).map(|_| WORDS[next() % WORDS.len()]).collect();
            let stray_every = 1 + next() % 5_000;
            while body.len() < BYTES_MAX - 1_024 {
                few.iter().for_each(|word| body.push_str(word));
                if next() % stray_every == 0 {
                    body.push_str(WORDS[next() % WORDS.len()]);
                }
            }
            (format!("nonsense {at} {few:?}"), post(&body))
        })
        .collect()
}

fn dear() -> Named {
    let all =
        [calendars(), unknown_members(), callbacks(), no_timers(), heads(), chunks(), nonsense()];
    let all: Named = all.into_iter().flatten().collect();
    for (name, request) in &all {
        assert!(request.len() <= BYTES_MAX, "{name}: {} bytes", request.len());
    }
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
            let us = least * plain_ns / 1_000.0;
            println!("{us:>8.1} us {least:>8.1} {status:>4} {name}");
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
