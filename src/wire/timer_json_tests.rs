//! Tests of [`super::timer_json`]: every member missing, doubled and of every wrong type, and
//! hostile bodies.

use super::timer_json::{JsonScratch, Tag, parse_timer};

const TIMING: &str = r#""timing":{"interval":30,"repeat-for":600}"#;
const CALLBACK: &str = r#""callback":{"http":{"uri":"http://a/b","opaque":"c"}}"#;

fn refusal(body: impl AsRef<[u8]>) -> String {
    let mut bytes = body.as_ref().to_vec();
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    match parse_timer(&mut bytes, &mut JsonScratch::default()) {
        Ok(document) => panic!("{shown} gives {document:?}"),
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains(|character: char| character.is_control()), "{text:?}");
            text
        }
    }
}

/// A valid document with `members` beside the mandatory members.
fn with(members: &str) -> String {
    format!("{{{TIMING},{CALLBACK},{members}}}")
}

fn with_timing(timing: &str) -> String {
    format!(r#"{{"timing":{timing},{CALLBACK}}}"#)
}

fn with_callback(callback: &str) -> String {
    format!(r#"{{{TIMING},"callback":{callback}}}"#)
}

fn with_http(http: &str) -> String {
    with_callback(&format!(r#"{{"http":{http}}}"#))
}

fn with_tags(tags: &str) -> String {
    with(&format!(r#""statistics":{{"tag-info":{tags}}}"#))
}

fn interval_s(number: &str) -> f64 {
    let mut body = with_timing(&format!(r#"{{"interval":{number}}}"#)).into_bytes();
    parse_timer(&mut body, &mut JsonScratch::default()).expect("a good document").interval_s
}

#[test]
fn a_whole_document() {
    let mut body = with(
        r#""reliability":{"replication-factor":3},
           "statistics":{"tag-info":[{"type":"CALL","count":2},{"type":"REG"},{"type":"CALL"}]}"#,
    )
    .into_bytes();
    let mut scratch = JsonScratch::default();
    let document = parse_timer(&mut body, &mut scratch).expect("a good document");
    assert_eq!((document.interval_s, document.repeat_for_s), (30.0, Some(600.0)));
    assert_eq!((document.uri, document.opaque), ("http://a/b", "c"));
    assert_eq!(document.replication_factor, Some(3));
    let tags = [("CALL", 2), ("REG", 1), ("CALL", 1)].map(|(kind, count)| Tag { kind, count });
    assert_eq!(document.tags.as_slice(), tags);
}

#[test]
fn a_least_document() {
    let mut body = with_timing(r#"{"interval":1}"#).into_bytes();
    let mut scratch = JsonScratch::default();
    let document = parse_timer(&mut body, &mut scratch).expect("a good document");
    assert_eq!((document.repeat_for_s, document.replication_factor), (None, None));
    assert_eq!(document.tags.as_slice(), []);
}

#[test]
fn the_real_documents_of_the_original() {
    let peer = r#"{"timing":{"start-time":4200796160,"start-time-delta":-4004,"sequence-number":1,
        "interval":2,"repeat-for":4},
        "callback":{"http":{"uri":"http://127.0.0.1:9901/ok/repl0","opaque":"OPAQUE-DATA"}},
        "reliability":{"cluster-view-id":"5030520784871784460","replicas":["127.0.0.9","127.0.0.1"],
        "sites":["site1"]},"statistics":{"tag-info":[]}}"#;
    let client = r#"{"timing":{"interval":300,"repeat-for":600},
        "callback":{"http":{"uri":"http://ralf.example:10888/call-id/x?timer-interim=true",
        "opaque":"{\"event\":{\"Accounting-Record-Type\":3}}"}},
        "statistics":{"tag-info":[{"type":"CALL","count":1}]}}"#;
    let mut scratch = JsonScratch::default();
    let mut peer = peer.as_bytes().to_vec();
    assert_eq!(parse_timer(&mut peer, &mut scratch).expect("good").interval_s, 2.0);
    let mut client = client.as_bytes().to_vec();
    let document = parse_timer(&mut client, &mut scratch).expect("good");
    assert_eq!(document.opaque, r#"{"event":{"Accounting-Record-Type":3}}"#);
}

#[test]
fn members_in_any_order_and_unknown_ones() {
    let body = format!(
        r#"{{"a":null,"b":[1,{{"c":[]}}],"timing":{{"x":{{"interval":9}},"interval":1,"y":[[]]}},
           "a":"unknown ones may come twice",{CALLBACK},"z":{{}},"reliability":{{"sites":[]}}}}"#
    );
    let (_, reversed) = (body.len(), format!("{{{CALLBACK},{TIMING}}}"));
    for text in [body, reversed] {
        let mut bytes = text.into_bytes();
        let mut scratch = JsonScratch::default();
        assert_eq!(parse_timer(&mut bytes, &mut scratch).expect("good").uri, "http://a/b");
    }
}

#[test]
fn escapes_and_nul_in_opaque() {
    let mut body = with_http(r#"{"uri":"http:\/\/a","opaque":"\u0000\"\\\n\u00e9\ud83d\ude00é"}"#)
        .into_bytes();
    let mut scratch = JsonScratch::default();
    let document = parse_timer(&mut body, &mut scratch).expect("a good document");
    assert_eq!(document.opaque, "\0\"\\\n\u{e9}\u{1f600}\u{e9}");
    assert_eq!(document.uri, "http://a");
}

#[test]
fn numbers_of_seconds() {
    for (text, seconds) in [
        ("0", 0.0),
        ("-1", -1.0),
        ("1.5", 1.5),
        ("1e-9", 1e-9),
        ("1e15", 1e15),
        ("1000000000000000", 1e15),
        ("18446744073709551615", 1.8446744073709552e19),
        ("0.0004", 0.0004),
        ("1E+2", 100.0),
    ] {
        assert_eq!(interval_s(text), seconds, "{text}");
    }
    for wrong in ["NaN", "Infinity", "1e400", "-1e400", "01", "+1", ".5", "1.", "0x10", "1e", "--1"]
    {
        let text = refusal(with_timing(&format!(r#"{{"interval":{wrong}}}"#)));
        assert!(text.starts_with("body: expected"), "{wrong}: {text}");
    }
}

/// A value of every type, and its name in a refusal.
const VALUES: [(&str, &str); 8] = [
    ("null", "null"),
    ("true", "true or false"),
    (r#""5""#, "a string"),
    ("[5]", "an array"),
    (r#"{"a":5}"#, "an object"),
    ("5", "5"),
    ("-5", "-5"),
    ("5.5", "5.5"),
];

type Place = (&'static str, &'static str, fn(&str) -> String, &'static [&'static str]);

const DURATIONS: &[&str] = &["5", "-5", "5.5", "a string"];

/// Every member: its path, the type that is expected, a document with a given value there, and the
/// types that fit.
const PLACES: [Place; 12] = [
    ("timing", "an object", with_timing, &["an object"]),
    ("callback", "an object", with_callback, &["an object"]),
    ("callback.http", "an object", with_http, &["an object"]),
    (
        "timing.interval",
        "a number of seconds, or a duration as PT15M",
        |value| with_timing(&format!(r#"{{"interval":{value}}}"#)),
        DURATIONS,
    ),
    (
        "timing.repeat-for",
        "a number of seconds, or a duration as PT15M",
        |value| with_timing(&format!(r#"{{"interval":1,"repeat-for":{value}}}"#)),
        DURATIONS,
    ),
    (
        "callback.http.uri",
        "a string",
        |value| with_http(&format!(r#"{{"uri":{value},"opaque":""}}"#)),
        &["a string"],
    ),
    (
        "callback.http.opaque",
        "a string",
        |value| with_http(&format!(r#"{{"uri":"http://a","opaque":{value}}}"#)),
        &["a string"],
    ),
    (
        "reliability",
        "an object",
        |value| with(&format!(r#""reliability":{value}"#)),
        &["an object"],
    ),
    (
        "reliability.replication-factor",
        "a whole number",
        |value| with(&format!(r#""reliability":{{"replication-factor":{value}}}"#)),
        &["5", "-5"],
    ),
    ("statistics", "an object", |value| with(&format!(r#""statistics":{value}"#)), &["an object"]),
    ("statistics.tag-info", "an array of objects", with_tags, &["an array"]),
    (
        "statistics.tag-info.type",
        "a string",
        |value| with_tags(&format!(r#"[{{"type":{value}}}]"#)),
        &["a string"],
    ),
];

#[test]
fn wrong_types_name_the_member() {
    for (path, expected, document, fitting) in PLACES {
        for (value, got) in VALUES {
            if !fitting.contains(&got) {
                let text = refusal(document(value));
                assert_eq!(text, format!("{path}: expected {expected}, got {got}"));
            }
        }
    }
}

#[test]
fn tags() {
    for wrong in ["-1", "1.0", "1.5", "4294967296", r#""1""#, "null"] {
        let text = refusal(with_tags(&format!(r#"[{{"type":"A","count":{wrong}}}]"#)));
        assert!(
            text.starts_with("statistics.tag-info.count: expected a whole number from 0"),
            "{text}"
        );
    }
    let name = |bytes: usize| with_tags(&format!(r#"[{{"type":"{}"}}]"#, "x".repeat(bytes)));
    assert_eq!(refusal(name(0)), "statistics.tag-info.type: expected 1 to 64 bytes, got 0");
    assert_eq!(refusal(name(65)), "statistics.tag-info.type: expected 1 to 64 bytes, got 65");
    assert_eq!(refusal(with_tags("[{}]")), "statistics.tag-info.type: missing, expected a string");
    assert_eq!(refusal(with_tags("[1]")), "statistics.tag-info: expected an object, got 1");

    let many = |count: usize| with_tags(&format!("[{}]", vec![r#"{"type":"A"}"#; count].join(",")));
    assert_eq!(refusal(many(17)), "statistics.tag-info: expected at most 16 tags");
    for good in [many(16), name(64), with_tags(r#"[{"type":"A","count":4294967295}]"#)] {
        let mut body = good.into_bytes();
        parse_timer(&mut body, &mut JsonScratch::default()).expect("within the bounds");
    }
}

/// As clients of the original write what a timer may count later.
#[test]
fn a_count_of_zero_adds_nothing() {
    let tags = |text: &str| {
        let mut body = with_tags(text).into_bytes();
        let mut scratch = JsonScratch::default();
        let document = parse_timer(&mut body, &mut scratch).expect("within the bounds");
        let tags = document.tags.as_slice().iter();
        tags.map(|tag| format!("{}={}", tag.kind, tag.count)).collect::<Vec<_>>()
    };
    let registration =
        r#"[{"type":"BIND","count":1},{"type":"REG","count":1},{"type":"SUB","count":0}]"#;
    assert_eq!(tags(registration), ["BIND=1", "REG=1"]);
    assert_eq!(tags(r#"[{"type":"SUB","count":0}]"#), [""; 0]);
    let many = vec![r#"{"type":"SUB","count":0}"#; 17].join(",");
    assert_eq!(tags(&format!(r#"[{many},{{"type":"REG"}}]"#)), ["REG=1"], "they take no place");
}

#[test]
fn missing_members_are_named() {
    for (body, text) in [
        ("{}".to_owned(), "timing: missing, expected an object"),
        (format!("{{{CALLBACK}}}"), "timing: missing, expected an object"),
        (format!("{{{TIMING}}}"), "callback: missing, expected an object"),
        (with_timing("{}"), "timing.interval: missing, expected a number of seconds"),
        (with_callback("{}"), "callback.http: missing, expected an object"),
        (with_callback(r#"{"smtp":{}}"#), "callback.http: missing, expected an object"),
        (with_http(r#"{"opaque":"a"}"#), "callback.http.uri: missing, expected a string"),
        (with_http(r#"{"uri":"http://a"}"#), "callback.http.opaque: missing, expected a string"),
        (
            with_http(r#"{"uri":"","opaque":""}"#),
            "callback.http.uri: expected http://host[:port]/path, got an empty string",
        ),
    ] {
        assert_eq!(refusal(body), text);
    }
}

#[test]
fn one_callback_mechanism() {
    for other in [r#""smtp":{}"#, r#""HTTP":null"#, r#""":[[],{}]"#] {
        let http = r#""http":{"uri":"http://a","opaque":""}"#;
        let text = "callback: expected the mechanism http alone, got another beside it";
        assert_eq!(refusal(with_callback(&format!("{{{http},{other}}}"))), text);
        assert_eq!(refusal(with_callback(&format!("{{{other},{http}}}"))), text);
    }
}

#[test]
fn duplicate_members() {
    for (body, path) in [
        (with(TIMING), "timing"),
        (with(CALLBACK), "callback"),
        (with(r#""reliability":{},"reliability":{}"#), "reliability"),
        (with(r#""statistics":{},"statistics":{}"#), "statistics"),
        (with_timing(r#"{"interval":1,"interval":1}"#), "timing.interval"),
        (with_timing(r#"{"interval":1,"repeat-for":1,"repeat-for":1}"#), "timing.repeat-for"),
        (
            with_callback(
                r#"{"http":{"uri":"http://a","opaque":""},"http":{"uri":"http://a","opaque":""}}"#,
            ),
            "callback.http",
        ),
        (with_http(r#"{"uri":"http://a","uri":"http://b","opaque":""}"#), "callback.http.uri"),
        (with_http(r#"{"uri":"http://a","opaque":"","opaque":""}"#), "callback.http.opaque"),
        (
            with(r#""reliability":{"replication-factor":1,"replication-factor":2}"#),
            "reliability.replication-factor",
        ),
        (with(r#""statistics":{"tag-info":[],"tag-info":[]}"#), "statistics.tag-info"),
        (with_tags(r#"[{"type":"A","type":"B"}]"#), "statistics.tag-info.type"),
        (with_tags(r#"[{"type":"A","count":1,"count":1}]"#), "statistics.tag-info.count"),
        (with_timing(r#"{"interval":1,"\u0069nterval":1}"#), "timing.interval"),
    ] {
        assert_eq!(refusal(body), format!("{path}: expected once, got it twice"));
    }
}

#[test]
fn replication_factors() {
    for (text, factor) in [
        ("0", 0),
        ("-1", -1),
        ("17", 17),
        ("1000000000", 1_000_000_000),
        ("18446744073709551615", i64::MAX),
    ] {
        let mut body =
            with(&format!(r#""reliability":{{"replication-factor":{text}}}"#)).into_bytes();
        let mut scratch = JsonScratch::default();
        let document = parse_timer(&mut body, &mut scratch).expect("a whole number");
        assert_eq!(document.replication_factor, Some(factor));
    }
    assert_eq!(
        refusal(with(r#""reliability":{"replication-factor":1e9}"#)),
        "reliability.replication-factor: expected a whole number, got 1000000000.0"
    );
    let digits = with(r#""reliability":{"replication-factor":12345678901234567890123}"#);
    assert!(refusal(digits).contains("too large"));
}

#[test]
fn bodies_that_are_no_object() {
    assert_eq!(refusal(""), "body: empty, expected a JSON object");
    assert_eq!(refusal(" \r\n\t "), "body: expected a JSON object, got blanks");
    for (body, got) in [("[]", "an array"), ("[{}]", "an array"), ("7", "7"), ("-1.5", "-1.5")] {
        assert_eq!(refusal(body), format!("body: expected an object, got {got}"));
    }
    assert_eq!(refusal(r#""timer""#), "body: expected an object, got a string");
    assert_eq!(refusal("null"), "body: expected an object, got null");
    assert_eq!(refusal("true"), "body: expected an object, got true or false");
}

#[test]
fn bodies_that_are_no_json() {
    for body in [
        "timer",
        "{",
        "}",
        "{]",
        "{{}}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{'a':1}",
        "{a:1}",
        "{} {}",
        "{}x",
        "\"",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12\"}",
        "{\"a\":\"\n\"}",
        "<timer/>",
        "{\"a\":tru}",
        "{\"a\":1\u{0}}",
        "\u{feff}{}",
        "{\"a\":\"\\ud800\"}",
    ] {
        let text = refusal(body);
        assert!(text.starts_with("body: expected"), "{body:?}: {text}");
    }
    for body in ["{\"a\":1\0}", "{\"a\":1\0,\"b\":2\0}"] {
        assert_eq!(refusal(body), "body: expected JSON, got a NUL byte");
    }
    for bytes in
        [&b"{\"a\":\"\xff\"}"[..], b"\xff\xfe{}", b"{\"a\":\"\xed\xa0\x80\"}", b"{\"\xc0\x80\":1}"]
    {
        assert_eq!(refusal(bytes), "body: expected UTF-8, got other bytes");
    }
    let good = with_timing(r#"{"interval":1}"#);
    for end in 0..good.len() {
        refusal(&good[..end]);
    }
}

#[test]
fn unicode_escapes() {
    let opaque = |text: &str| with_http(&format!(r#"{{"uri":"http://a","opaque":"{text}"}}"#));
    for (text, meant) in [
        (r"\ud83d\ude00", "\u{1f600}"),
        (r"\uD800\uDC00x", "\u{10000}x"),
        (r"\udbff\udfff", "\u{10ffff}"),
        (r"\ud7ff\ue000", "\u{d7ff}\u{e000}"),
        (r"\\ud800", r"\ud800"),
        (r"\\\u0041\\", r"\A\"),
    ] {
        let mut body = opaque(text).into_bytes();
        let mut scratch = JsonScratch::default();
        assert_eq!(parse_timer(&mut body, &mut scratch).expect(text).opaque, meant);
    }
    for broken in [
        r"\ud800",
        r"\ud800x",
        r"\ud800\n",
        r"\ud800\u0041",
        r"\ud800\ud800",
        r"\ud800\ue000",
        r"\udc00",
        r"\udc00\ud800",
        r"\u+123",
        r"\u12",
        r"\u123g",
        r"\u",
    ] {
        assert_eq!(refusal(opaque(broken)), r"body: expected JSON, got a broken \u escape");
    }
}

#[test]
fn deep_nesting() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let inside = if open == "[" { "" } else { "1" };
        let deep = format!("{}{inside}{}", open.repeat(100_000), close.repeat(100_000));
        let mut ignored = with(&format!(r#""x":{deep}"#)).into_bytes();
        parse_timer(&mut ignored, &mut JsonScratch::default())
            .expect("an unknown member is skipped");
        refusal(&deep);
        refusal(open.repeat(100_000));
        refusal(close.repeat(100_000));
        refusal(with_timing(&format!(r#"{{"interval":{deep}}}"#)));
    }
}

#[test]
fn ten_megabytes_of_digits() {
    let digits = "1".repeat(10_000_000);
    assert!(refusal(&digits).contains("too large"));
    assert!(refusal(with_timing(&format!(r#"{{"interval":{digits}}}"#))).contains("too large"));
    let tiny = with_timing(&format!(r#"{{"interval":0.{digits}}}"#)).into_bytes();
    let mut tiny = tiny;
    let mut scratch = JsonScratch::default();
    let document = parse_timer(&mut tiny, &mut scratch).expect("many digits are still a number");
    assert!((document.interval_s - 1.0 / 9.0).abs() < 1e-15);
}

#[test]
fn one_scratch_for_good_and_bad_bodies() {
    let mut scratch = JsonScratch::default();
    let huge = with(&format!(r#""x":"{}""#, "y".repeat(1 << 20)));
    let many = with(&format!(r#""x":[{}1]"#, "1,".repeat(100_000)));
    for round in 0..3 {
        for (body, is_good) in [
            (with_timing(r#"{"interval":1}"#), true),
            (huge.clone(), true),
            ("{\"timing\":[".to_owned(), false),
            (many.clone(), true),
            (String::new(), false),
            (with_timing("7"), false),
        ] {
            let mut bytes = body.into_bytes();
            assert_eq!(parse_timer(&mut bytes, &mut scratch).is_ok(), is_good, "round {round}");
        }
    }
}

#[test]
fn no_body_can_make_the_scratch_keep_much() {
    for body in [
        with(&format!(r#""x":[{}1]"#, "1,".repeat(500_000))),
        with(&format!(r#""x":"{}""#, "y".repeat(1 << 20))),
        "[".repeat(1 << 20),
        with(&format!(r#""x":[{}1]"#, "1,".repeat(4_000))),
    ] {
        let mut scratch = JsonScratch::default();
        let mut bytes = body.into_bytes();
        let _ = parse_timer(&mut bytes, &mut scratch);
        assert!(scratch.tape_bytes() <= 512 << 10, "{}", scratch.tape_bytes());
    }
}

#[test]
fn buffers_are_kept_for_short_bodies_of_few_tokens_only() {
    let tape_bytes_after = |members: String| {
        let mut scratch = JsonScratch::default();
        parse_timer(&mut with(&members).into_bytes(), &mut scratch).expect("a good document");
        scratch.tape_bytes()
    };
    assert!(tape_bytes_after(r#""x":[1]"#.into()) > 0);
    assert_eq!(tape_bytes_after(format!(r#""x":[{}1]"#, "1,".repeat(8_200))), 0, "many tokens");
    let longest = (64 << 10) - with(r#""x":"""#).len();
    assert!(tape_bytes_after(format!(r#""x":"{}""#, "y".repeat(longest))) > 0);
    assert_eq!(tape_bytes_after(format!(r#""x":"{}""#, "y".repeat(longest + 1))), 0, "a long body");
}
