//! The contract that clients see: docs/compat/timer-service.md §1.4, the column *here*, row by row,
//! as far as one node shows it.

use serde_json::{Value, json};

use super::harness::{Answer, Node, document, far_document, until};
use super::sink::Sink;

/// Returns the three parts of the identity after `/timers/`, and checks their form.
fn identity(answer: &Answer) -> (String, String, String) {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.body, b"", "{answer:?}");
    let location = answer.header("Location").expect("a Location");
    assert_eq!(answer.header("Content-Location"), Some(location));
    let parts: Vec<_> = location.strip_prefix("/timers/").expect(location).split('-').collect();
    let is_hex = |text: &str| {
        text.len() == 16 && text.bytes().all(|byte| b"0123456789abcdef".contains(&byte))
    };
    let [id, factor, filter] = parts[..] else { panic!("three parts, not {location}") };
    assert!(is_hex(id) && is_hex(filter), "{location}");
    assert!((1..=16).contains(&factor.parse::<u8>().expect(location)), "{location}");
    (id.into(), factor.into(), filter.into())
}

fn with_factor(factor: &str) -> String {
    let document = far_document();
    let inner = document.strip_suffix('}').expect("an object");
    format!("{inner},\"reliability\":{{\"replication-factor\":{factor}}}}}")
}

fn with_statistics(statistics: &str) -> String {
    let document = far_document();
    let inner = document.strip_suffix('}').expect("an object");
    format!("{inner},\"statistics\":{statistics}}}")
}

fn shown(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("Content-Type"), Some("application/json"));
    serde_json::from_slice(&answer.body).expect("JSON")
}

#[test]
fn create_answers_with_both_locations() {
    let node = Node::shared();
    for path in ["/timers", "/timers/", "/timers?a=b", "/timers/?x"] {
        let answer = node.request("POST", path, &far_document());
        let (_, factor, filter) = identity(&answer);
        assert_eq!(factor, "2", "the default factor");
        assert_ne!(filter, "0000000000000000");
    }
}

#[test]
fn ids_differ_and_lead_to_their_timers() {
    let node = Node::shared();
    let mut client = node.client();
    let paths: Vec<_> = (0..50).map(|_| client.create(&far_document())).collect();
    for (at, path) in paths.iter().enumerate() {
        assert!(!paths[..at].contains(path));
        assert_eq!(client.request("GET", path, "").status, 200);
    }
}

#[test]
fn delete_is_idempotent_and_answers_200_with_location() {
    let node = Node::shared();
    let path = node.create(&far_document());
    for _ in 0..3 {
        let answer = node.request("DELETE", &path, "");
        identity(&answer);
        assert_eq!(answer.header("Location"), Some(path.as_str()));
        assert_eq!(node.request("GET", &path, "").status, 404);
    }
    let unknown = node.request("DELETE", "/timers/00000000000000aa-3", "");
    let (id, factor, _) = identity(&unknown);
    assert_eq!((id.as_str(), factor.as_str()), ("00000000000000aa", "3"));
}

#[test]
fn delete_under_another_factor_hits_the_timer() {
    let node = Node::shared();
    let path = node.create(&with_factor("3"));
    let id = &path["/timers/".len()..][..16];
    let (_, factor, _) = identity(&node.request("DELETE", &format!("/timers/{id}-1"), ""));
    assert_eq!(factor, "3", "the holder knows the true one");
    assert_eq!(node.request("GET", &path, "").status, 404);
}

#[test]
fn put_creates_what_is_unknown_or_deleted() {
    let node = Node::shared();
    let path = "/timers/0123456789abcdef-4";
    let (id, factor, _) = identity(&node.request("PUT", path, &far_document()));
    assert_eq!((id.as_str(), factor.as_str()), ("0123456789abcdef", "4"));
    assert_eq!(node.request("GET", path, "").status, 200);
    assert_eq!(node.request("DELETE", path, "").status, 200);
    assert_eq!(node.request("GET", path, "").status, 404);
    identity(&node.request("PUT", path, &far_document()));
    assert_eq!(node.request("GET", path, "").status, 200);
}

#[test]
fn put_replaces_the_whole_timer() {
    let node = Node::shared();
    let path = node.create(&with_statistics(r#"{"tag-info":[{"type":"CALL","count":2}]}"#));
    let changed = document("7200", Some("14400"), "http://127.0.0.1:9/changed?q", "other");
    let answer = node.request("PUT", &path, &changed);
    assert_eq!(answer.header("Location"), Some(path.as_str()), "the same identity");
    let timer = shown(&node.request("GET", &path, ""));
    assert_eq!(timer["timing"]["interval"], 7200);
    assert_eq!(timer["timing"]["repeat-for"], 14400);
    assert_eq!(timer["callback"]["http"]["uri"], "http://127.0.0.1:9/changed?q");
    assert_eq!(timer["callback"]["http"]["opaque"], "other");
    assert_eq!(timer["statistics"]["tag-info"], json!([]));
}

#[test]
fn get_shows_what_was_written() {
    let node = Node::shared();
    let opaque = "\u{0} \"é\" \u{1F600}";
    let tags = json!([{"type": "CALL", "count": 1}, {"type": "REG", "count": u32::MAX}]);
    let written = json!({
        "timing": {"interval": 1500.25, "repeat-for": 3600000},
        "callback": {"http": {"uri": "http://[::1]:9/a%20b?c=d", "opaque": opaque}},
        "reliability": {"replication-factor": 16},
        "statistics": {"tag-info": tags},
    });
    let path = node.create(&written.to_string());
    let timer = shown(&node.request("GET", &path, ""));
    for member in ["callback", "reliability", "statistics"] {
        assert_eq!(timer[member], written[member], "{member}");
    }
    assert_eq!(timer["timing"]["interval"], 1500.25);
    assert_eq!(timer["timing"]["repeat-for"], 3600000);
    assert_eq!(timer["timing"]["sequence-number"], 0);
    let delta = timer["timing"]["start-time-delta"].as_i64().expect("whole milliseconds");
    assert!((-20_000..=0).contains(&delta), "{delta}");
    let again = node.request("PUT", &path, &timer.to_string());
    assert_eq!(again.status, 200, "what GET shows can be PUT");
}

#[test]
fn tags_default_to_a_count_of_one() {
    let node = Node::shared();
    let path = node.create(&with_statistics(r#"{"tag-info":[{"type":"CALL"}]}"#));
    let timer = shown(&node.request("GET", &path, ""));
    assert_eq!(timer["statistics"]["tag-info"], json!([{"type": "CALL", "count": 1}]));
}

/// A registration whose phone has not subscribed yet.
#[test]
fn a_tag_that_counts_nothing_is_taken_and_adds_nothing() {
    let node = Node::shared();
    let tags = r#"[{"type":"BIND","count":1},{"type":"REG","count":1},{"type":"SUB","count":0}]"#;
    let body = with_statistics(&format!(r#"{{"tag-info":{tags}}}"#));
    let path = node.create(&body);
    let kept = json!([{"type": "BIND", "count": 1}, {"type": "REG", "count": 1}]);
    let shown_tags = || shown(&node.request("GET", &path, ""))["statistics"]["tag-info"].clone();
    assert_eq!(shown_tags(), kept);
    let subscribed = body.replace(r#""count":0"#, r#""count":1"#);
    assert_eq!(node.request("PUT", &path, &subscribed).status, 200);
    assert_eq!(shown_tags().as_array().map(Vec::len), Some(3));
    assert_eq!(node.request("PUT", &path, &body).status, 200);
    assert_eq!(shown_tags(), kept);
}

#[test]
fn bad_tags_are_refused_by_name() {
    let node = Node::shared();
    for (statistics, names) in [
        ("7", "statistics"),
        ("[]", "statistics"),
        ("\"x\"", "statistics"),
        (r#"{"tag-info":{}}"#, "statistics.tag-info"),
        (r#"{"tag-info":[7]}"#, "statistics.tag-info"),
        (r#"{"tag-info":[{"count":1}]}"#, "statistics.tag-info.type"),
        (r#"{"tag-info":[{"type":"","count":1}]}"#, "statistics.tag-info.type"),
        (r#"{"tag-info":[{"type":5,"count":1}]}"#, "statistics.tag-info.type"),
        (r#"{"tag-info":[{"type":"A","count":-1}]}"#, "statistics.tag-info.count"),
        (r#"{"tag-info":[{"type":"A","count":1.5}]}"#, "statistics.tag-info.count"),
        (r#"{"tag-info":[{"type":"A","count":"1"}]}"#, "statistics.tag-info.count"),
    ] {
        let answer = node.request("POST", "/timers", &with_statistics(statistics));
        answer.assert_refusal(400, names, statistics);
    }
}

#[test]
fn factors_are_echoed_bounded_and_fixed() {
    let node = Node::shared();
    for factor in ["1", "2", "15", "16"] {
        let answer = node.request("POST", "/timers", &with_factor(factor));
        assert_eq!(identity(&answer).1, factor);
    }
    for factor in ["0", "-1", "17", "1000000000", "1e3", "\"2\"", "null", "1.5"] {
        let answer = node.request("POST", "/timers", &with_factor(factor));
        answer.assert_refusal(400, "reliability.replication-factor", factor);
    }
    let path = node.create(&with_factor("3"));
    let answer = node.request("PUT", &path, &with_factor("2"));
    answer.assert_refusal(400, "reliability.replication-factor", "changed");
    assert_eq!(identity(&node.request("PUT", &path, &with_factor("3"))).1, "3");
    let timer = shown(&node.request("GET", &path, ""));
    assert_eq!(timer["reliability"]["replication-factor"], 3);
}

#[test]
fn unknown_members_are_ignored_and_other_mechanisms_refused() {
    let node = Node::shared();
    let http = r#""http":{"uri":"http://127.0.0.1:9/","opaque":"","more":[1]}"#;
    let empty = r#""reliability":{},"statistics":{}"#;
    let wide = format!(
        r#"{{"a":{{"b":[null]}},"timing":{{"interval":3600,"c":1}},"callback":{{{http}}},{empty}}}"#
    );
    node.create(&wide);
    for (callback, names) in [
        (format!(r#"{{{http},"diameter":{{}}}}"#), "callback"),
        (r#"{"diameter":{}}"#.into(), "callback.http"),
        ("{}".into(), "callback.http"),
    ] {
        let body = format!(r#"{{"timing":{{"interval":3600}},"callback":{callback}}}"#);
        node.request("POST", "/timers", &body).assert_refusal(400, names, &callback);
    }
}

#[test]
fn times_as_decided() {
    let node = Node::shared();
    let uri = "http://127.0.0.1:9/";
    let hundred_years = (100_u64 * 365 * 86_400).to_string();
    for accepted in ["1.5", "2147483.648", "4294968", "1e4", hundred_years.as_str()] {
        let path = node.create(&document(accepted, None, uri, ""));
        let timer = shown(&node.request("GET", &path, ""));
        let expected: f64 = accepted.parse().expect("a number");
        assert_eq!(timer["timing"]["interval"].as_f64(), Some(expected));
    }
    for (interval, repeat_for, names) in [
        ("-1", None, "timing.interval"),
        ("-0.001", None, "timing.interval"),
        ("1", Some("-1"), "timing.repeat-for"),
        ("0", Some("10"), "timing.interval"),
        ("1e15", None, "timing.interval"),
        ("1", Some("1e15"), "timing.repeat-for"),
    ] {
        let body = document(interval, repeat_for, uri, "");
        node.request("POST", "/timers", &body).assert_refusal(400, names, &body);
    }
}

#[test]
fn repeat_for_below_interval_is_accepted_and_never_pops() {
    let node = Node::start(1, "");
    let sink = Sink::ok();
    let answer =
        node.request("POST", "/timers", &document("0.1", Some("0.05"), &sink.uri("/a"), ""));
    identity(&answer);
    let path = answer.header("Location").expect("an identity").to_owned();
    assert_eq!(node.request("GET", &path, "").status, 404, "nothing is stored");
    // A later timer that pops shows that the first timer would have popped by then.
    node.create(&document("0.3", Some("0.3"), &sink.uri("/b"), ""));
    let seen = sink.wait_for(1);
    assert_eq!(seen[0].path, "/b");
    // A PUT of a timer that never pops ends the timer that is there.
    let path = node.create(&document("0.2", None, &sink.uri("/c"), ""));
    let never = document("0.2", Some("0.1"), &sink.uri("/c"), "");
    identity(&node.request("PUT", &path, &never));
    node.create(&document("0.4", None, &sink.uri("/d"), ""));
    let seen = sink.wait_for(2);
    assert_eq!(seen.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["/b", "/d"]);
    until("the metric", || (node.metric("chronos_never_firing_total") == 2.0).then_some(()));
}

#[test]
fn interval_zero_pops_once_at_once() {
    let node = Node::shared();
    let sink = Sink::ok();
    let path = node.create(&document("0", None, &sink.uri("/plain"), ""));
    let other = node.create(&document("0", Some("0"), &sink.uri("/zero"), ""));
    let seen = sink.wait_for(2);
    assert!(seen.iter().all(|one| one.sequence() == 1));
    for path in [path, other] {
        until("the timer to end", || (node.request("GET", &path, "").status == 404).then_some(()));
    }
    assert_eq!(sink.callbacks().len(), 2);
}

#[test]
fn a_timer_is_gone_after_its_last_pop() {
    let node = Node::shared();
    let sink = Sink::ok();
    let asked = std::time::Instant::now();
    let path = node.create(&document("0.05", Some("0.1"), &sink.uri("/"), ""));
    let is_held = node.request("GET", &path, "").status == 200;
    // On a slow machine the last pop may be over before the question.
    assert!(is_held || asked.elapsed() >= std::time::Duration::from_millis(100));
    sink.wait_for(2);
    until("the timer to end", || (node.request("GET", &path, "").status == 404).then_some(()));
    sink.assert_no_more(&node, 2, "0.1");
}

#[test]
fn ids_in_every_accepted_form() {
    let node = Node::shared();
    let path = node.create(&with_factor("2"));
    let full = &path["/timers/".len()..];
    let (id, filter) = (&full[..16], &full[19..]);
    let escaped: String = full.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for form in [
        full.to_owned(),
        full.to_uppercase(),
        format!("{id}-2"),
        format!("{id}-2-and-whatever-follows"),
        format!("{id}-2/more"),
        format!("{id}{filter}"),
        format!("{}-2", id.to_uppercase()),
        format!("{full}?query=1&other"),
        full.replace('-', "%2D"),
        escaped,
    ] {
        let answer = node.request("GET", &format!("/timers/{form}"), "");
        assert_eq!(answer.status, 200, "{form}: {answer:?}");
        let (again, ..) =
            identity(&node.request("PUT", &format!("/timers/{form}"), &far_document()));
        assert_eq!(again, id, "{form}");
    }
}

#[test]
fn malformed_ids_and_other_paths_are_404() {
    let node = Node::shared();
    let digits = "1".repeat(23);
    for path in [
        "/timers/0",
        "/timers/0123456789abcdef",
        "/timers/0123456789abcde-2",
        "/timers/0123456789abcdef0-2",
        "/timers/0123456789abcdeg-2",
        "/timers/0123456789abcdef-",
        "/timers/0123456789abcdef-x",
        "/timers/0123456789abcdef-0",
        "/timers/0123456789abcdef-17",
        "/timers/0123456789abcdef--1",
        &format!("/timers/0123456789abcdef-{digits}"),
        "/timers/0123456789abcdef0123456789abcdeg",
        "/timers/0123456789abcdef0123456789abcdef0",
        "/timers/%2e%2e",
        "/timers/..",
        "/timers/../ping",
        "/timers//0123456789abcdef-2",
        "/timers/0123456789abcdef%2d",
        "/timersx",
        "/Timers",
        "/ping/",
        "/pingx",
        "/",
        "/%00",
    ] {
        for method in ["GET", "PUT", "DELETE", "POST"] {
            let answer = node.request(method, path, &far_document());
            let told = match path.strip_prefix("/timers/") {
                Some(_) => "is not the id of a timer",
                None => "no such path",
            };
            answer.assert_refusal(404, told, &format!("{method} {path}"));
        }
    }
    let unknown = node.request("GET", "/timers/00000000000000bb-2", "");
    unknown.assert_refusal(404, "no timer with this id", "GET");
}

#[test]
fn wrong_methods_are_405_with_allow() {
    let node = Node::shared();
    let timer = "/timers/00000000000000bb-2";
    for (path, allow, refused) in [
        ("/timers", "GET, HEAD, POST, DELETE", &["PUT", "PATCH", "OPTIONS", "get", "post"][..]),
        ("/timers/", "GET, HEAD, POST, DELETE", &["PUT"]),
        ("/jobs", "GET, HEAD", &["POST", "PUT", "DELETE"]),
        ("/jobs/00000000000000bb", "GET, HEAD, DELETE", &["POST", "PUT"]),
        (timer, "GET, HEAD, PUT, DELETE", &["POST", "PATCH", "OPTIONS", "BREW"]),
        ("/ping", "GET, HEAD", &["POST", "PUT", "DELETE", "OPTIONS"]),
    ] {
        let mut client = node.client();
        for method in refused {
            let answer = client.request(method, path, &far_document());
            answer.assert_refusal(405, allow, &format!("{method} {path}"));
            assert_eq!(answer.header("Allow"), Some(allow), "{method} {path}");
        }
        assert_eq!(client.request("GET", "/ping", "").status, 200, "the connection goes on");
    }
}

/// A client that takes its own word for an id is told how timers are named.
#[test]
fn a_path_without_an_id_says_how_timers_are_named() {
    let node = Node::shared();
    for (method, told) in [
        ("PUT", "a name of your own goes to PUT /timers/by-name/order-42"),
        ("GET", "a timer with a name is at /timers/by-name/order-42"),
        ("DELETE", "a timer with a name is at /timers/by-name/order-42"),
    ] {
        let answer = node.request(method, "/timers/order-42", &far_document());
        answer.assert_refusal(404, "order-42 is not the id of a timer: ", method);
        answer.assert_refusal(404, told, method);
    }
    let long = node.request("PUT", &format!("/timers/{}%00\u{e9}", "n".repeat(900)), "");
    assert!(long.header("Reason").is_some_and(|reason| reason.len() <= 200), "{long:?}");
    for path in ["/nowhere", "/timer/order-42"] {
        node.request("PUT", path, &far_document()).assert_refusal(404, "no such path", path);
    }
}

#[test]
fn ping_answers_ok() {
    let node = Node::shared();
    for path in ["/ping", "/ping?x=y"] {
        let answer = node.request("GET", path, "");
        assert_eq!((answer.status, answer.text()), (200, "OK"));
    }
}

#[test]
fn put_under_another_factor_replaces_the_timer_and_keeps_its_factor() {
    let node = Node::shared();
    let path = node.create(&with_factor("3"));
    let id = &path["/timers/".len()..][..16];
    let changed = document("7200", None, "http://127.0.0.1:9/", "changed");
    let answer = node.request("PUT", &format!("/timers/{id}-1"), &changed);
    assert_eq!(identity(&answer).1, "3", "the holder knows the true one");
    let timer = shown(&node.request("GET", &path, ""));
    assert_eq!(timer["callback"]["http"]["opaque"], "changed");
    assert_eq!(timer["reliability"]["replication-factor"], 3);
}

#[test]
fn timers_with_equal_content_are_timers_of_their_own() {
    let node = Node::shared();
    let mut client = node.client();
    let paths: Vec<_> = (0..20).map(|_| client.create(&far_document())).collect();
    let (kept, deleted) = paths.split_at(10);
    for path in deleted {
        assert_eq!(client.request("DELETE", path, "").status, 200);
    }
    for path in kept {
        let timer = shown(&client.request("GET", path, ""));
        assert_eq!(timer["callback"]["http"]["opaque"], "x");
    }
}
