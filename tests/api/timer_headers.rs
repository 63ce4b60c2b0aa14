//! `X-Timer-Id`, `X-Due-Time` and `X-Attempt` (docs/api.md, "The callback"): what a callback says
//! of its timer.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::dead_letters::{hasty, server};
use super::harness::{Node, document};
use super::sink::{Callback, Reaction, Sink};

const NAMES: [&str; 3] = ["X-Timer-Id", "X-Due-Time", "X-Attempt"];
/// By how much the moments that two readings of the clocks lead to may differ.
const TICKS_MS: i64 = 2;

fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("in range")
}

/// The moment of `X-Due-Time`, in ms since 1970. Checks its form.
fn due_ms(callback: &Callback) -> i64 {
    let text = callback.header("X-Due-Time");
    assert!(text.len() == "2026-12-01T09:00:00.000Z".len() && text.ends_with('Z'), "{text}");
    text.parse::<jiff::Timestamp>().expect("RFC 3339").as_millisecond()
}

fn says(callback: &Callback, name: &str) -> bool {
    callback.head.to_lowercase().contains(&format!("\r\n{}:", name.to_lowercase()))
}

#[test]
fn a_callback_says_which_timer_it_is_of_when_it_was_due_and_which_attempt_it_is() {
    let node = Node::start(2, "[callbacks]\nretry_first_ms = 20\nretry_max_ms = 40\n");
    let sink =
        Sink::start(|_, before| if before < 2 { Reaction::Status(503) } else { Reaction::OK });
    let before_ms = wall_ms();
    let path = node.create(&document("1", Some("2"), &sink.uri("/pop"), "any text"));
    let after_ms = wall_ms();
    let seen = sink.wait_for(4);
    for (callback, (sequence, attempt)) in seen.iter().zip([(1, 1), (1, 2), (1, 3), (2, 1)]) {
        let expected = format!(
            "POST /pop HTTP/1.1\r\nHost: {}\r\nContent-Type: application/octet-stream\r\n\
             X-Sequence-Number: {sequence}\r\nX-Timer-Id: {}\r\nX-Due-Time: {}\r\n\
             X-Attempt: {attempt}\r\nContent-Length: 8\r\n\r\n",
            sink.address,
            path.strip_prefix("/timers/").expect("a timer"),
            callback.header("X-Due-Time"),
        );
        assert_eq!(callback.head, expected);
        let due_ms = due_ms(callback) - sequence * 1_000;
        let range_ms = before_ms - TICKS_MS..=after_ms + TICKS_MS;
        assert!(range_ms.contains(&due_ms), "{due_ms} in {range_ms:?}");
    }
}

#[test]
fn a_moment_that_the_client_wrote_is_told_as_it_was_written() {
    let node = Node::shared();
    let sink = Sink::ok();
    let at_ms = wall_ms() + 700;
    let at = jiff::Timestamp::from_millisecond(at_ms).expect("a time").to_string();
    let timing = json!({"at": at});
    let callback = json!({"http": {"uri": sink.uri("/at"), "opaque": "x"}});
    node.create(&json!({"timing": timing, "callback": callback}).to_string());
    let callback = sink.wait_for(1).remove(0);
    assert_eq!(due_ms(&callback), at_ms);
}

/// A timer of an hour that is run is due when it is run.
#[test]
fn a_pop_that_is_run_is_due_when_it_is_run() {
    let node = Node::shared();
    let sink = Sink::ok();
    let callback = json!({"http": {"uri": sink.uri("/run"), "opaque": "x"}});
    let document = json!({"timing": {"at": "2099-01-01T00:00:00Z"}, "callback": callback});
    let path = node.create(&document.to_string());
    let before_ms = wall_ms();
    assert_eq!(node.request("POST", &format!("{path}/run-now"), "").status, 200);
    let due_ms = due_ms(&sink.wait_for(1)[0]);
    assert!((before_ms - TICKS_MS..=wall_ms() + TICKS_MS).contains(&due_ms), "{due_ms}");
}

#[test]
fn receivers_of_the_originals_bytes_are_told_nothing() {
    let node = Node::start(1, "[callbacks]\ntimer_headers = false\n");
    let sink = Sink::ok();
    node.create(&document("0", None, &sink.uri("/"), "x"));
    let callback = sink.wait_for(1).remove(0);
    assert!(NAMES.iter().all(|name| !says(&callback, name)), "{}", callback.head);
}

/// A letter says when its pop was given up, not when it was due; the body of a report says what the
/// headers say.
#[test]
fn letters_tell_their_timer_and_reports_tell_in_their_body() {
    let node = Node::start(1, "");
    let (failing, _) = server(418);
    let (letters, reports) = (Sink::ok(), Sink::ok());
    let more = json!({
        "dead-letter": {"uri": letters.uri("/dead")},
        "on-failure": reports.uri("/failed"),
    });
    let path = node.create(&hasty(&failing.uri("/pop"), more));
    let letter = letters.wait_for(1).remove(0);
    let word = letter.header("X-Timer-Id");
    assert_eq!(word[..18], path["/timers/".len()..][..18], "the same timer");
    assert_eq!(letter.header("X-Attempt"), "1", "of the letter");
    assert!(!says(&letter, "X-Due-Time"), "{}", letter.head);
    let report = reports.wait_for(1).remove(0);
    assert!(NAMES.iter().all(|name| !says(&report, name)), "{}", report.head);
    assert_eq!(failing.wait_for(2)[1].header("X-Attempt"), "2");
}
