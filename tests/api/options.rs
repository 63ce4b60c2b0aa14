//! What a timer can have beyond the original's document (docs/api.md, "Beyond the original"): which
//! members are taken, what GET shows, what the callback server gets, which are refused.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::harness::{Node, until};
use super::sink::{Callback, Reaction, Sink};

/// Pauses count from the beginning of the millisecond in which the failure was seen.
const TICK: Duration = Duration::from_millis(1);

/// A timer that pops after so many seconds. `http` and `callback` are further members.
fn timer(timing: Value, uri: &str, http: Value, callback: Value) -> Value {
    let mut all_http = json!({"uri": uri, "opaque": "any text"});
    extend(&mut all_http, http);
    let mut all_callback = json!({"http": all_http});
    extend(&mut all_callback, callback);
    json!({"timing": timing, "callback": all_callback})
}

fn extend(object: &mut Value, more: Value) {
    let more = more.as_object().expect("an object").clone();
    let members = object.as_object_mut().expect("an object");
    members.extend(more);
    if members.contains_key("opaque-base64") {
        members.remove("opaque");
    }
}

fn far(http: Value, callback: Value) -> Value {
    timer(json!({"interval": 3600}), "http://127.0.0.1:9/", http, callback)
}

fn shown(node: &Node, path: &str) -> Value {
    let answer = node.request("GET", path, "");
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_slice(&answer.body).expect("JSON")
}

/// The time so many seconds from now, in the form of RFC 3339, cut to whole seconds.
fn moment(seconds: i64) -> (String, u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let at = now.saturating_add_signed(seconds);
    (jiff::Timestamp::from_second(at as i64).expect("a time").to_string(), at)
}

fn unix_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()
}

fn gaps(seen: &[Callback]) -> Vec<Duration> {
    seen.windows(2).map(|pair| pair[1].at - pair[0].at).collect()
}

fn gone(node: &Node, path: &str) {
    until("the timer to end", || (node.request("GET", path, "").status == 404).then_some(()));
}

/// Every member, each written and shown, and the document that is shown written again.
#[test]
fn every_member_is_taken_and_shown() {
    let node = Node::shared();
    let (at, _) = moment(86_400);
    let usual = json!({"max-attempts": 8, "max-age": 86400, "initial": 1, "multiplier": 2,
                       "max": 3600, "jitter": 0.2});
    let asked = json!({"max-attempts": 200, "max-age": "P366D", "initial": 0.001,
                       "multiplier": 1.5, "max": "PT1H", "jitter": 1});
    let told = json!({"max-attempts": 200, "max-age": 31_622_400, "initial": 0.001,
                      "multiplier": 1.5, "max": 3600, "jitter": 1});
    let headers = json!({"Authorization": "Bearer a b", "X-Empty": "", "x-!#$%&'*+-.^_`|~": "~"});
    let written = [
        (far(json!({"method": "PATCH"}), json!({})), "/callback/http/method", json!("PATCH")),
        (far(json!({"method": "GET"}), json!({})), "/callback/http/method", json!("GET")),
        (far(json!({"method": "POST"}), json!({})), "/callback/http/method", Value::Null),
        (
            far(json!({"content-type": "a/b; c=\"d\""}), json!({})),
            "/callback/http/content-type",
            json!("a/b; c=\"d\""),
        ),
        (far(json!({"headers": headers}), json!({})), "/callback/http/headers", headers.clone()),
        (far(json!({"headers": {}}), json!({})), "/callback/http/headers", Value::Null),
        (
            far(json!({"opaque-base64": "AAEC/w=="}), json!({})),
            "/callback/http/opaque-base64",
            json!("AAEC/w=="),
        ),
        (far(json!({"opaque-base64": ""}), json!({})), "/callback/http/opaque", Value::Null),
        (far(json!({}), json!({"retry": {}})), "/callback/retry", usual),
        (far(json!({}), json!({"retry": asked})), "/callback/retry", told),
        (far(json!({}), json!({"retry": {"max-age": 0}})), "/callback/retry/max-age", json!(0)),
        (far(json!({}), json!({"timeout": "PT15S"})), "/callback/timeout", json!(15)),
        (far(json!({}), json!({"timeout": 0.001})), "/callback/timeout", json!(0.001)),
        (far(json!({}), json!({"timeout": 300})), "/callback/timeout", json!(300)),
        (
            timer(json!({"at": at}), "http://127.0.0.1:9/", json!({}), json!({})),
            "/timing/at",
            json!(at),
        ),
        (
            timer(
                json!({"interval": 3600, "window": "PT5M"}),
                "http://127.0.0.1:9/",
                json!({}),
                json!({}),
            ),
            "/timing/window",
            json!(300),
        ),
    ];
    for (document, member, value) in written {
        let path = node.create(&document.to_string());
        let first = shown(&node, &path);
        let found = first.pointer(member).cloned().unwrap_or(Value::Null);
        assert_eq!(number(&found), number(&value), "{member} of {first}");
        // What is shown can be written.
        let again = node.request("PUT", &path, &first.to_string());
        assert_eq!(again.status, 200, "{first}: {again:?}");
        let (mut first, mut second) = (first, shown(&node, &path));
        for document in [&mut first, &mut second] {
            document["timing"]["start-time-delta"] = Value::Null;
        }
        assert_eq!(first, second);
        // A plain timer in its place has none of it.
        let plain = far(json!({}), json!({})).to_string();
        assert_eq!(node.request("PUT", &path, &plain).status, 200);
        let plain = shown(&node, &path);
        let is_left = plain.pointer(member).is_some_and(|it| *it == value && !value.is_null());
        assert!(!is_left, "{plain}");
    }
}

/// Numbers as doubles, so that 15 and 15.0 are equal.
fn number(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), number(value))).collect()
        }
        Value::Number(_) => json!(value.as_f64()),
        other => other.clone(),
    }
}

#[test]
fn intervals_may_be_durations_of_iso_8601() {
    let node = Node::shared();
    for (timing, interval, repeat_for) in [
        (json!({"interval": "PT15M"}), 900.0, 900.0),
        (json!({"interval": "PT1.5S", "repeat-for": "PT1M"}), 1.5, 60.0),
        (json!({"interval": 30, "repeat-for": "P1DT1H"}), 30.0, 90_000.0),
        (json!({"interval": "P1W", "repeat-for": 1_209_600}), 604_800.0, 1_209_600.0),
        (json!({"interval": "P36600D"}), 3_162_240_000.0, 3_162_240_000.0),
    ] {
        let uri = "http://127.0.0.1:9/";
        let document = timer(timing.clone(), uri, json!({}), json!({})).to_string();
        let shown = shown(&node, &node.create(&document));
        assert_eq!(shown["timing"]["interval"].as_f64(), Some(interval), "{timing}");
        assert_eq!(shown["timing"]["repeat-for"].as_f64(), Some(repeat_for), "{timing}");
    }
    let sink = Sink::ok();
    let timing = json!({"interval": "PT0.05S", "repeat-for": "PT0.15S"});
    node.create(&timer(timing, &sink.uri("/"), json!({}), json!({})).to_string());
    sink.wait_for(3);
    let timing = json!({"interval": "PT0S"});
    node.create(&timer(timing, &sink.uri("/"), json!({}), json!({})).to_string());
    sink.wait_for(4);
    sink.assert_no_more(&node, 4, "0.3");
}

/// The bytes of the callback: request line, headers in their order, body.
#[test]
fn the_callback_is_what_its_client_asked_for() {
    let node = Node::start(2, "[callbacks]\ntimer_headers = false\n");
    let sink = Sink::ok();
    let authority = sink.address.to_string();
    let usual = "application/octet-stream";
    let all: Vec<u8> = (0..=255).collect();
    for (http, method, content_type, headers, body) in [
        (json!({"method": "GET"}), "GET", usual, "", &b"any text"[..]),
        (json!({"method": "DELETE", "opaque": ""}), "DELETE", usual, "", b""),
        (json!({"method": "PATCH", "content-type": "a/b"}), "PATCH", "a/b", "", b"any text"),
        (json!({"method": "PUT", "opaque-base64": STANDARD.encode(&all)}), "PUT", usual, "", &all),
        (
            json!({"headers": {"X-Tenant": "blue", "Authorization": "Bearer abc", "x-Empty": ""}}),
            "POST",
            usual,
            "X-Tenant: blue\r\nAuthorization: Bearer abc\r\nx-Empty: \r\n",
            b"any text",
        ),
    ] {
        let before = sink.count();
        // The order of members in the document is the order of the headers.
        let ordered = "{\"X-Tenant\":\"blue\",\"Authorization\":\"Bearer abc\",\"x-Empty\":\"\"}";
        let mut document =
            timer(json!({"interval": 0}), &sink.uri("/a%2Fb?c=d"), http.clone(), json!({}));
        if http.get("headers").is_some() {
            document["callback"]["http"]["headers"] = json!("@");
        }
        node.create(&document.to_string().replace("\"@\"", ordered));
        let callback = sink.wait_for(before + 1).remove(before);
        let expected = format!(
            "{method} /a%2Fb?c=d HTTP/1.1\r\nHost: {authority}\r\n\
             Content-Type: {content_type}\r\n{headers}\
             X-Sequence-Number: 1\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        assert_eq!(callback.head, expected, "{http}");
        assert_eq!(callback.body, body, "{http}");
    }
}

#[test]
fn as_many_and_as_long_headers_as_are_allowed() {
    let node = Node::shared();
    let sink = Sink::ok();
    let value = "v".repeat(4096 / 32 - "x-00: \r\n".len());
    let headers: serde_json::Map<_, _> =
        (0..32).map(|at| (format!("x-{at:02}"), json!(value))).collect();
    let http = json!({"headers": headers, "content-type": "t".repeat(255)});
    let mut document = timer(json!({"interval": 0}), &sink.uri("/"), http, json!({}));
    node.create(&document.to_string());
    let callback = sink.wait_for(1).remove(0);
    assert_eq!(callback.header("Content-Type").len(), 255);
    for at in 0..32 {
        assert_eq!(callback.header(&format!("x-{at:02}")), value);
    }
    document["callback"]["http"]["headers"]["x-00"] = json!(format!("{value}v"));
    let answer = node.request("POST", "/timers", &document.to_string());
    answer.assert_refusal(400, "callback.http.headers: expected at most 4096 bytes", "a byte more");
}

/// Sends a bad document by POST and PUT; nothing of it may be stored.
fn refuse(node: &Node, document: &str, names: &str) {
    for (method, path) in [("POST", "/timers"), ("PUT", "/timers/00000000000000ba-2")] {
        let answer = node.request(method, path, document);
        answer.assert_refusal(400, names, &document.chars().take(300).collect::<String>());
    }
    assert_eq!(node.request("GET", "/timers/00000000000000ba-2", "").status, 404, "{document}");
}

#[test]
fn values_of_the_wrong_type_or_range_are_refused_by_name() {
    let node = Node::shared();
    let far = || far(json!({}), json!({}));
    let wrong = json!([null, true, [], {}, [1]]);
    let rows = [
        ("/timing/interval", "timing.interval", json!(["", "5", "PT", "-PT1S", "P1M", "P1Y", -1])),
        ("/timing/repeat-for", "timing.repeat-for", json!(["PT1X", "15 minutes", "P200Y"])),
        ("/timing/window", "timing.window", json!([-1, 3_162_240_001_u64, "P1M", "x", 1e300])),
        ("/callback/timeout", "callback.timeout", json!([0, 300.001, "PT6M", "PT0S", -5, ""])),
        ("/callback/retry", "callback.retry", json!([0, "x"])),
        (
            "/callback/retry/max-attempts",
            "callback.retry.max-attempts",
            json!([0, 201, -1, 1.5, "3", u64::MAX, i64::MIN]),
        ),
        ("/callback/retry/max-age", "callback.retry.max-age", json!([-1, "P367D", "soon"])),
        ("/callback/retry/initial", "callback.retry.initial", json!([0, "PT0S", 31_622_401])),
        ("/callback/retry/max", "callback.retry.max", json!([0, "P1M", -1])),
        ("/callback/retry/multiplier", "callback.retry.multiplier", json!([0.9, 101, -2, "2"])),
        ("/callback/retry/jitter", "callback.retry.jitter", json!([-0.1, 1.1, "0.2"])),
        (
            "/callback/http/method",
            "callback.http.method",
            json!([
                "",
                "post",
                "HEAD",
                "CONNECT",
                "GET / HTTP/1.1\r\nX: y",
                "\u{0}",
                "\u{1F600}",
                1
            ]),
        ),
        (
            "/callback/http/content-type",
            "callback.http.content-type",
            json!(["", " a/b", "a/b ", "a\r\nb: c", "a\u{7f}", "\u{e9}", "t".repeat(256), 1]),
        ),
        ("/callback/http/headers", "callback.http.headers", json!(["a: b", 1])),
        (
            "/callback/http/headers/x",
            "callback.http.headers",
            json!([1, " a", "a ", "\ta", "a\r\nb: c", "a\nb", "a\rb", "\u{0}", "\u{7f}", "\u{e9}"]),
        ),
    ];
    for (at, names, values) in rows {
        for value in wrong.as_array().into_iter().chain(values.as_array()).flatten() {
            let is_fit = matches!(at, "/callback/retry" | "/callback/http/headers");
            if is_fit && *value == json!({}) {
                continue;
            }
            let mut document = far();
            set(&mut document, at, value.clone());
            refuse(&node, &document.to_string(), &format!("{names}: expected"));
        }
    }
    node.assert_alive("wrong values");
}

/// Sets a member, whose parents are made where they are missing.
fn set(document: &mut Value, pointer: &str, value: Value) {
    let mut place = document;
    for name in pointer[1..].split('/') {
        place = &mut place[name];
    }
    *place = value;
}

#[test]
fn times_that_are_none_or_too_far_ahead_are_refused() {
    let node = Node::shared();
    for at in [
        json!(""),
        json!("now"),
        json!("2026-12-01"),
        json!("2026-12-01T09:00:00"),
        json!("2026-12-01T09:00Z"),
        json!("2026-13-01T09:00:00Z"),
        json!("2026-02-30T09:00:00Z"),
        json!("2026-12-01T25:00:00Z"),
        json!("2026-12-01T09:00:00+2"),
        json!("2026-12-01T09:00:00Z[UTC]"),
        json!("2026-12-01T09:00:00Z\r\nX: y"),
        json!("9999-12-31T23:59:59Z"),
        json!("\u{1F600}".repeat(5_000)),
        json!(1_800_000_000),
        json!(null),
        json!([]),
        json!({}),
    ] {
        let uri = "http://127.0.0.1:9/";
        let document = timer(json!({"at": at}), uri, json!({}), json!({})).to_string();
        refuse(&node, &document, "timing.at: expected");
    }
}

#[test]
fn members_that_contradict_each_other_are_refused() {
    let node = Node::shared();
    let at = moment(3_600).0;
    for more in ["\"interval\":5", "\"repeat-for\":5", "\"interval\":\"PT5S\""] {
        let uri = "http://127.0.0.1:9/";
        let document = timer(json!({"at": at}), uri, json!({}), json!({})).to_string();
        for (old, new) in [
            ("\"at\":", format!("{more},\"at\":")),
            ("},\"callback\"", format!(",{more}}},\"callback\"")),
            ("\"timing\":{", format!("\"timing\":{{{more},")),
        ] {
            let both = document.replacen(old, &new, 1);
            if both != document {
                refuse(
                    &node,
                    &both,
                    "timing: expected `at`, or `cron`, or `interval` with `repeat-for`",
                );
            }
        }
    }
    let both = far(json!({}), json!({})).to_string();
    let both = both.replace("\"opaque\":", "\"opaque-base64\":\"\",\"opaque\":");
    refuse(&node, &both, "callback.http: expected `opaque` or `opaque-base64`, got both");
}

#[test]
fn members_that_come_twice_are_refused_by_name() {
    let node = Node::shared();
    let http = json!({"method": "PUT", "content-type": "a/b", "headers": {"a": "b"}});
    let retry = json!({"max-attempts": 3, "max-age": 5, "initial": 1, "multiplier": 2, "max": 9,
                       "jitter": 0});
    let document = far(http, json!({"retry": retry, "timeout": 5})).to_string();
    let timing = document.replace("\"timing\":{", "\"timing\":{\"window\":5,");
    for (member, value, names) in [
        ("window", "5", "timing.window"),
        ("method", "\"PUT\"", "callback.http.method"),
        ("content-type", "\"a/b\"", "callback.http.content-type"),
        ("headers", "{}", "callback.http.headers"),
        ("retry", "{}", "callback.retry"),
        ("timeout", "5", "callback.timeout"),
        ("max-attempts", "3", "callback.retry.max-attempts"),
        ("max-age", "5", "callback.retry.max-age"),
        ("initial", "1", "callback.retry.initial"),
        ("multiplier", "2", "callback.retry.multiplier"),
        ("max", "9", "callback.retry.max"),
        ("jitter", "0", "callback.retry.jitter"),
    ] {
        let key = format!("\"{member}\":");
        assert!(timing.contains(&key), "{member}");
        let twice = timing.replacen(&key, &format!("{key}{value},{key}"), 1);
        refuse(&node, &twice, &format!("{names}: expected once"));
    }
}

#[test]
fn bad_intervals_and_bad_base64_are_refused_by_name() {
    let node = Node::shared();
    let document = far(json!({}), json!({})).to_string();
    for (timing, names) in [
        ("\"interval\":\"PT1S\",\"interval\":1", "timing.interval: expected once"),
        ("\"interval\":1,\"repeat-for\":2,\"repeat-for\":\"PT2S\"", "timing.repeat-for: expected"),
        ("\"interval\":\"PT0S\",\"repeat-for\":\"PT2S\"", "timing.interval: expected more than 0"),
        ("\"interval\":0,\"repeat-for\":\"PT0.5S\"", "timing.repeat-for is 0.5 s, got 0"),
        ("\"repeat-for\":\"PT2S\"", "timing.interval: missing"),
        ("\"window\":5", "timing.interval: missing"),
    ] {
        refuse(&node, &document.replace("\"interval\":3600", timing), names);
    }
    let base64 = |text: &str| {
        let key = format!("\"opaque-base64\":{text},\"uri\"");
        let without = document.replace("\"opaque\":\"any text\",", "");
        without.replace(",\"opaque\":\"any text\"", "").replace("\"uri\"", &key)
    };
    for text in ["\"a\"", "\"YQ\"", "\"YR==\"", "\"Y Q==\"", "\"YQ==\\n\"", "\"-_==\"", "1", "null"]
    {
        refuse(&node, &base64(text), "callback.http.opaque-base64: expected");
    }
    let long = base64(&json!(STANDARD.encode(vec![0; (256 << 10) + 1])).to_string());
    let answer = node.request("POST", "/timers", &long);
    answer.assert_refusal(413, "limits.opaque_bytes_max", "a byte more than is allowed");
    let longest = base64(&json!(STANDARD.encode(vec![0; 256 << 10])).to_string());
    assert_eq!(node.request("POST", "/timers", &longest).status, 200);
}

/// Headers that a callback has itself, that are for one hop, or by which Chronos believes somebody.
const OWN: [&str; 29] = [
    "Host",
    "HOST",
    "Content-Length",
    "content-type",
    "Date",
    "X-Sequence-Number",
    "Connection",
    "Keep-Alive",
    "Proxy-Connection",
    "Proxy-Authorization",
    "Proxy-Authenticate",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "HTTP2-Settings",
    "Via",
    "Expect",
    "webhook-id",
    "Webhook-Signature",
    "webhook-timestamp",
    "webhook-",
    "WebHook-Other",
    "X-Timer-Id",
    "x-due-time",
    "X-ATTEMPT",
    "X-Chronos-Order",
    "x-chronos-site",
    "X-CHRONOS-Name",
];

/// What is no name of a header.
const ODD: [&str; 24] = [
    "",
    " ",
    "a b",
    "a:",
    ":",
    "a\u{0}",
    "a\r\nb",
    "\n",
    "a\t",
    "\u{7f}",
    "\u{e9}",
    "a\u{1F600}",
    "(a)",
    "a,b",
    "a;b",
    "a=b",
    "a\"",
    "{a}",
    "[a]",
    "a/b",
    "a\\b",
    "a@b",
    "<a>",
    "a?",
];

#[test]
fn headers_that_are_not_the_clients_to_set_are_refused() {
    let node = Node::shared();
    for name in OWN.into_iter().chain(ODD) {
        let document = far(json!({"headers": {"x-good": "y", name: "a"}}), json!({})).to_string();
        refuse(&node, &document, "callback.http.headers: expected");
    }
}

#[test]
fn too_many_headers_and_control_characters_in_them_are_refused() {
    let node = Node::shared();
    for headers in [
        "{\"a\":\"b\",\"A\":\"c\"}".to_owned(),
        "{\"x-a\":\"b\",\"x-a\":\"b\"}".to_owned(),
        many(33),
        many(10_000),
    ] {
        let document = far(json!({"headers": "@"}), json!({})).to_string();
        let document = document.replace("\"@\"", &headers);
        refuse(&node, &document, "callback.http.headers: expected");
    }
    for byte in 0..=0x1f_u32 {
        for text in [format!("a\\u{byte:04x}b"), format!("\\u{byte:04x}")] {
            let document = far(json!({"headers": "@"}), json!({})).to_string();
            let in_name = document.replace("\"@\"", &format!("{{\"{text}\":\"x\"}}"));
            refuse(&node, &in_name, "callback.http.headers: expected names");
            // A tab may stand within a value.
            if byte != 9 || text.len() == 6 {
                let in_value = document.replace("\"@\"", &format!("{{\"x\":\"{text}\"}}"));
                refuse(&node, &in_value, "callback.http.headers: expected values");
            }
        }
    }
    // A header whose name merely begins like one of these is the client's.
    let http = json!({"headers": {"Hosts": "a", "webhook": "b", "Cookie": "a=b; c=\"d\""}});
    node.create(&far(http, json!({})).to_string());
    node.assert_alive("bad headers");
}

fn many(count: usize) -> String {
    let headers: Vec<_> = (0..count).map(|at| format!("\"x-{at}\":\"y\"")).collect();
    format!("{{{}}}", headers.join(","))
}

#[test]
fn a_timer_with_a_time_pops_then_and_once() {
    let node = Node::shared();
    let sink = Sink::ok();
    let uri = |path| sink.uri(path);
    let at = |at: &str, path| timer(json!({"at": at}), &uri(path), json!({}), json!({}));
    let (soon, soon_s) = moment(2);
    let path = node.create(&at(&soon, "/soon").to_string());
    let shown = shown(&node, &path);
    assert_eq!(shown["timing"]["at"], json!(soon));
    assert_eq!(shown["timing"].get("interval"), None, "{shown}");
    node.create(&at("1969-07-20T20:17:40Z", "/past").to_string());
    node.create(&at(&moment(-1).0, "/just").to_string());
    // The same moment on another clock of the world.
    let elsewhere = jiff::Timestamp::from_second(soon_s as i64).expect("a time");
    let elsewhere = elsewhere.to_zoned(jiff::tz::TimeZone::fixed(jiff::tz::offset(5)));
    let elsewhere = elsewhere.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    assert!(elsewhere.ends_with("+05:00"), "{elsewhere}");
    node.create(&at(&elsewhere, "/elsewhere").to_string());
    let two = sink.wait_for(2);
    assert!(two.iter().all(|one| one.path != "/soon" && one.path != "/elsewhere"));
    sink.wait_until("the other two", |seen| {
        seen.iter().filter(|one| matches!(&*one.path, "/soon" | "/elsewhere")).count() == 2
    });
    assert!(unix_ms() >= u128::from(soon_s) * 1_000, "not before its time");
    gone(&node, &path);
    sink.assert_no_more(&node, 4, "0.3");
}

#[test]
fn pops_come_within_their_window_at_the_same_moment_of_it() {
    const TIMERS: usize = 40;
    let node = Node::shared();
    let sink = Sink::ok();
    let timing = json!({"interval": 1, "repeat-for": 2, "window": "PT0.8S"});
    let began = Instant::now();
    for at in 0..TIMERS {
        let uri = sink.uri(&format!("/{at}"));
        node.create(&timer(timing.clone(), &uri, json!({}), json!({})).to_string());
    }
    let created = began.elapsed();
    let seen = sink.wait_for(2 * TIMERS);
    let after = |at: usize, sequence| {
        let path = format!("/{at}");
        let pop = seen.iter().find(|one| one.path == path && one.sequence() == sequence);
        pop.expect("popped").at - began
    };
    let firsts: Vec<_> = (0..TIMERS).map(|at| after(at, 1)).collect();
    assert!(firsts.iter().all(|it| *it >= Duration::from_secs(1)), "{firsts:?}");
    let early = Duration::from_millis(1_400) + created;
    assert!(firsts.iter().any(|it| *it < early), "{firsts:?}");
    assert!(firsts.iter().any(|it| *it > Duration::from_millis(1_400)), "{firsts:?}");
    for (at, first) in firsts.iter().enumerate() {
        // A pop may be late; it is never early, so the later of two pops tells the earlier's moment.
        assert!(after(at, 2) >= Duration::from_secs(2), "{first:?}");
    }
}

/// A policy of quick retries.
fn policy(more: Value) -> Value {
    let mut policy = json!({"initial": 0.1, "multiplier": 2, "max": 0.3, "jitter": 0});
    extend(&mut policy, more);
    json!({"retry": policy})
}

fn now(uri: &str, callback: Value) -> String {
    timer(json!({"interval": 0}), uri, json!({}), callback).to_string()
}

#[test]
fn attempts_and_pauses_are_those_of_the_policy() {
    let node = Node::start(2, "");
    let sink = Sink::start(|_, _| Reaction::Status(500));
    let path = node.create(&now(&sink.uri("/"), policy(json!({"max-attempts": 5}))));
    let seen = sink.wait_for(5);
    for (gap, least_ms) in gaps(&seen).iter().zip([100, 200, 300, 300]) {
        assert!(*gap + TICK >= Duration::from_millis(least_ms), "{:?}", gaps(&seen));
    }
    assert!(seen.iter().all(|one| one.sequence() == 1), "one pop");
    gone(&node, &path);
    sink.assert_no_more(&node, 5, "1");
    node.await_metric("chronos_pops_given_up_total", 1.0);
    // Too old after half a second, whatever the number of attempts.
    let sink = Sink::start(|_, _| Reaction::Status(500));
    let old = policy(json!({"max-attempts": 200, "max-age": "PT0.5S", "multiplier": 1}));
    let path = node.create(&now(&sink.uri("/"), old));
    gone(&node, &path);
    assert!((2..=6).contains(&sink.count()), "{}", sink.count());
    let sink = Sink::start(|_, _| Reaction::Status(500));
    let path = node.create(&now(&sink.uri("/"), policy(json!({"max-age": 0}))));
    gone(&node, &path);
    assert_eq!(sink.count(), 1, "the first attempt is made at any age");
}

#[test]
fn redirects_are_failures_and_410_ends_a_timer() {
    let node = Node::start(2, "");
    for status in [300, 301, 302, 303, 304, 307, 308] {
        let sink = Sink::start(move |_, _| {
            let answer = format!(
                "HTTP/1.1 {status} X\r\nLocation: http://127.0.0.1:9/\r\nRetry-After: 100\r\n\
                 Content-Length: 0\r\n\r\n"
            );
            Reaction::Bytes(answer.into())
        });
        let path = node.create(&now(&sink.uri("/"), policy(json!({"max-attempts": 2}))));
        sink.wait_for(2);
        gone(&node, &path);
    }
    assert_eq!(node.metric("chronos_timers_gone_total"), 0.0);
    let sink = Sink::start(|_, _| Reaction::Status(410));
    let hourly = json!({"interval": 0.2, "repeat-for": 3600});
    let document = timer(hourly.clone(), &sink.uri("/gone"), json!({}), policy(json!({})));
    let path = node.create(&document.to_string());
    sink.wait_for(1);
    gone(&node, &path);
    node.await_metric("chronos_timers_gone_total", 1.0);
    sink.assert_no_more(&node, 1, "0.5");
    // Without a policy 410 is a failure as any other.
    let path = node.create(&timer(hourly, &sink.uri("/on"), json!({}), json!({})).to_string());
    let is_enough = |seen: &[Callback]| seen.iter().filter(|one| one.path == "/on").count() >= 4;
    sink.wait_until("further pops", is_enough);
    assert_eq!(node.request("DELETE", &path, "").status, 200);
}

fn later(status: u16, after: &str) -> Reaction {
    let answer =
        format!("HTTP/1.1 {status} X\r\nRetry-After: {after}\r\nContent-Length: 0\r\n\r\n");
    Reaction::Bytes(answer.into())
}

#[test]
fn a_server_that_asks_for_time_gets_it() {
    let node = Node::shared();
    for (status, text, least_ms) in [
        (503, "1", 1_000),
        (429, "1", 1_000),
        // Other answers do not ask for it, and what makes no sense asks for nothing.
        (500, "100", 100),
        (503, "soon", 100),
        (503, "-5", 100),
        (429, "0", 100),
        (503, "Wed, 21 Oct 2015 07:28:00 GMT", 100),
    ] {
        let sink = Sink::start(move |_, before| match before {
            0 => later(status, text),
            _ => Reaction::OK,
        });
        node.create(&now(&sink.uri("/"), policy(json!({}))));
        let gap = gaps(&sink.wait_for(2))[0];
        assert!(gap + TICK >= Duration::from_millis(least_ms), "{status} {text}: {gap:?}");
    }
    // By a date: not before that second.
    let until_s = moment(2).1;
    let date = jiff::Timestamp::from_second(until_s as i64).expect("a time");
    let date = date.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let sink = Sink::start(move |_, before| match before {
        0 => later(503, &date),
        _ => Reaction::OK,
    });
    node.create(&now(&sink.uri("/"), policy(json!({}))));
    sink.wait_for(2);
    assert!(unix_ms() + 1 >= u128::from(until_s) * 1_000, "not before the date");
    // Without a policy it is a failure as any other.
    let sink = Sink::start(move |_, before| match before {
        0 => later(503, "100"),
        _ => Reaction::OK,
    });
    node.create(&now(&sink.uri("/"), json!({})));
    sink.wait_for(2);
    // A server that asks for longer than the pop may get old ends it.
    let sink = Sink::start(|_, _| later(503, "99999999999999999999"));
    let path = node.create(&now(&sink.uri("/"), policy(json!({"max-age": 1}))));
    gone(&node, &path);
    assert_eq!(sink.count(), 1);
}

#[test]
fn an_attempt_has_the_time_that_its_client_gave_it() {
    let node = Node::start(1, "[callbacks]\ntimeout_ms = 500\n");
    let late = || Sink::start(|_, _| Reaction::Late(Duration::from_millis(1_500)));
    // Longer than the node's own.
    let sink = late();
    let path = node.create(&now(&sink.uri("/"), json!({"timeout": "PT30S"})));
    sink.wait_for(1);
    gone(&node, &path);
    assert_eq!(sink.count(), 1, "delivered at once");
    // Shorter than the node's own.
    let sink = Sink::start(|_, before| match before {
        0 => Reaction::never(),
        _ => Reaction::OK,
    });
    let mut callback = policy(json!({"initial": 0.001, "max": 0.001}));
    callback["timeout"] = json!(0.05);
    node.create(&now(&sink.uri("/"), callback));
    let gap = gaps(&sink.wait_for(2))[0];
    assert!(gap >= Duration::from_millis(49), "{gap:?}");
    assert_eq!(node.metric("chronos_pops_timed_out_total"), 1.0);
    // The node's own still counts for others.
    let sink = late();
    node.create(&now(&sink.uri("/"), json!({})));
    sink.wait_for(2);
    assert!(node.metric("chronos_pops_timed_out_total") >= 2.0);
}
