//! Timers that follow the calendar (docs/api.md, "The calendar"): which expressions are taken, what
//! GET shows, when pops come, what is refused.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::harness::{Node, until};
use super::sink::Sink;

fn timer(timing: Value, uri: &str) -> String {
    json!({"timing": timing, "callback": {"http": {"uri": uri, "opaque": "any text"}}}).to_string()
}

fn shown(node: &Node, path: &str) -> Option<Value> {
    let answer = node.request("GET", path, "");
    (answer.status == 200).then(|| serde_json::from_slice(&answer.body).expect("JSON"))
}

fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    since.as_millis() as i64
}

fn ms_of(moment: &Value) -> i64 {
    let text = moment.as_str().expect("a time");
    text.parse::<jiff::Timestamp>().expect("a time of RFC 3339").as_millisecond()
}

#[test]
fn pops_come_each_second_with_growing_numbers_and_never_early() {
    let node = Node::shared();
    let sink = Sink::ok();
    let path = node.create(&timer(json!({"cron": "* * * * * *"}), &sink.uri("/tick")));
    let mut next_ms = 0;
    for count in 1..=4 {
        let before = shown(&node, &path).map_or(0, |it| ms_of(&it["timing"]["next-at"]));
        assert!(before >= next_ms, "the next pop is shown");
        next_ms = before;
        let seen = sink.wait_for(count);
        assert_eq!(seen[count - 1].sequence(), count as u64);
        // The pop of the number is not the one before that which was shown.
        assert!(unix_ms() >= next_ms - 1_000, "a pop of {next_ms} at {}", unix_ms());
    }
    let document = shown(&node, &path).expect("it goes on");
    assert!(document["timing"]["sequence-number"].as_u64() >= Some(3), "{document}");
    assert_eq!(node.request("DELETE", &path, "").status, 200);
    until("the end", || shown(&node, &path).is_none().then_some(()));
}

#[test]
fn the_first_pop_is_at_the_moment_that_is_shown() {
    let node = Node::shared();
    let sink = Sink::ok();
    let path = node.create(&timer(json!({"cron": "*/2 * * * * *"}), &sink.uri("/even")));
    let due_ms = ms_of(&shown(&node, &path).expect("it waits")["timing"]["next-at"]);
    assert_eq!(due_ms % 2_000, 0);
    sink.wait_for(1);
    assert!(unix_ms() >= due_ms, "never early");
    node.request("DELETE", &path, "");
}

#[test]
fn the_members_are_shown_and_the_document_can_be_sent_again() {
    let node = Node::shared();
    let timing = json!({"cron": "0 0 9 * * MON-FRI", "time-zone": "Europe/London",
                        "catch-up-window": "PT15M", "end-at": "9999-12-31T23:59:59Z"});
    let path = node.create(&timer(timing, "http://127.0.0.1:9/"));
    let document = shown(&node, &path).expect("it waits");
    let timing = &document["timing"];
    assert_eq!(timing["cron"], "0 0 9 * * MON-FRI");
    assert_eq!(timing["time-zone"], "Europe/London");
    assert_eq!(timing["catch-up-window"], 900);
    assert_eq!(timing["end-at"], "9999-12-31T23:59:59Z");
    assert_eq!(timing["sequence-number"], 0);
    assert!(timing.get("interval").is_none() && timing.get("repeat-for").is_none());
    let next = timing["next-at"].as_str().expect("a time").parse::<jiff::Timestamp>();
    let next = next.expect("RFC 3339").in_tz("Europe/London").expect("a zone");
    assert_eq!((next.hour(), next.minute(), next.second()), (9, 0, 0));
    let again = node.create(&document.to_string());
    let again = shown(&node, &again).expect("it waits");
    assert_eq!(again["timing"]["next-at"], timing["next-at"]);
    // A PUT turns it into a timer with an interval, and back.
    for (timing, member) in [
        (json!({"interval": 3600}), "interval"),
        (json!({"cron": "@daily"}), "cron"),
        (json!({"at": "2099-01-01T00:00:00Z"}), "at"),
    ] {
        let body = timer(timing.clone(), "http://127.0.0.1:9/");
        assert_eq!(node.request("PUT", &path, &body).status, 200);
        let document = shown(&node, &path).expect("it waits");
        assert_eq!(document["timing"][member], timing[member], "{document}");
    }
}

#[test]
fn the_last_moment_ends_it() {
    let node = Node::shared();
    let sink = Sink::ok();
    let end = jiff::Timestamp::from_millisecond(unix_ms() + 3_500).expect("a time").to_string();
    let timing = json!({"cron": "* * * * * *", "end-at": end});
    let path = node.create(&timer(timing, &sink.uri("/end")));
    until("the end", || shown(&node, &path).is_none().then_some(()));
    let seen = sink.callbacks();
    assert!((2..=4).contains(&seen.len()), "{}", seen.len());
}

#[test]
fn what_makes_no_sense_is_refused_by_name_and_nothing_is_stored() {
    let node = Node::start(1, "");
    let long = "0 ".repeat(70);
    for (timing, said) in [
        (json!({"cron": ""}), "timing.cron: expected an expression"),
        (json!({"cron": "* * * *"}), "timing.cron: expected an expression"),
        (json!({"cron": "61 * * * *"}), "timing.cron: expected an expression"),
        (json!({"cron": "* * * * *\u{0}"}), "timing.cron: expected an expression"),
        (json!({"cron": "* * * * *\r\nX: y"}), "timing.cron: expected an expression"),
        (json!({"cron": long}), "timing.cron: expected an expression"),
        (json!({"cron": "0 0 30 2 *"}), "timing.cron: expected an expression that fires"),
        (json!({"cron": "0 0 0 1 1 * 1999"}), "timing.cron: expected an expression that fires"),
        (json!({"cron": 5}), "timing.cron: expected a string"),
        (json!({"cron": null}), "timing.cron: expected a string"),
        (json!({"cron": "@daily", "time-zone": "Mars/Base"}), "timing.time-zone: expected a zone"),
        (json!({"cron": "@daily", "time-zone": ""}), "timing.time-zone: expected a zone"),
        (json!({"cron": "@daily", "time-zone": "../etc"}), "timing.time-zone: expected a zone"),
        (json!({"cron": "@daily", "time-zone": 1}), "timing.time-zone: expected a string"),
        (json!({"cron": "@daily", "catch-up-window": -1}), "timing.catch-up-window: expected"),
        (json!({"cron": "@daily", "catch-up-window": "P1M"}), "timing.catch-up-window: expected"),
        (json!({"cron": "@daily", "end-at": "soon"}), "timing.end-at: expected a time"),
        (
            json!({"cron": "@daily", "end-at": "2020-01-01T00:00:00Z"}),
            "timing.end-at: expected a time from the first pop on, ",
        ),
        (json!({"cron": ", * * * * *"}), "timing.cron: expected an expression of five"),
        (json!({"cron": "0 9, 17 * * *"}), "timing.cron: expected an expression of five"),
        (json!({"cron": "* * * 1 2 +MON#5"}), "timing.cron: expected an expression that fires"),
        (json!({"cron": "@daily", "interval": 5}), "timing: expected"),
        (json!({"cron": "@daily", "repeat-for": 5}), "timing: expected"),
        (json!({"cron": "@daily", "at": "2099-01-01T00:00:00Z"}), "timing: expected"),
        (json!({"interval": 5, "time-zone": "UTC"}), "timing.time-zone: expected"),
        (json!({"interval": 5, "catch-up-window": 5}), "timing.catch-up-window: expected"),
        (json!({"at": "2099-01-01T00:00:00Z", "end-at": "2099-01-01T00:00:00Z"}), "timing.end-at"),
    ] {
        let answer = node.request("POST", "/timers", &timer(timing.clone(), "http://127.0.0.1:9/"));
        answer.assert_refusal(400, said, &timing.to_string());
    }
    let twice = timer(json!({"cron": "@daily"}), "http://127.0.0.1:9/")
        .replace("\"cron\"", "\"cron\":\"@daily\",\"cron\"");
    node.request("POST", "/timers", &twice).assert_refusal(
        400,
        "timing.cron: expected once",
        "twice",
    );
    node.await_metric("chronos_timers", 0.0);
}
