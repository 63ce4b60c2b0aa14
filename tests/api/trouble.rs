//! What an operator learns of callback hosts in trouble: the log, `/destinations`, `/status`
//! (docs/operations.md, "Where to look").

use std::sync::atomic::Ordering::SeqCst;

use serde_json::{Value, json};

use super::dead_letters::server;
use super::harness::{Answer, Client, Node, document, until};

/// One attempt for each pop.
const ONE_ATTEMPT: &str = "[callbacks]\ngive_up_ms = 0\n";

fn admin(node: &Node, path: &str) -> Answer {
    let mut client = Client::connect(node.admin);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"));
    client.answer()
}

fn look(node: &Node, path: &str) -> Value {
    let answer = admin(node, path);
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    serde_json::from_slice(&answer.body).expect("JSON")
}

fn gone(node: &Node, path: &str) {
    until("the timer to end", || (node.request("GET", path, "").status == 404).then_some(()));
}

#[test]
fn the_first_pop_of_a_host_that_is_given_up_is_told_in_the_log() {
    const LINE: &str = "a pop was given up";
    let node = Node::start(2, ONE_ATTEMPT);
    let (sink, _) = server(500);
    let first = node.create(&document("0", None, &sink.uri("/pop/a?token=secret"), "x"));
    gone(&node, &first);
    until("the log to tell", || node.logged().contains(LINE).then_some(()));
    for _ in 0..9 {
        let path = node.create(&document("0", None, &sink.uri("/pop/b?token=secret"), "x"));
        gone(&node, &path);
    }
    // Another host has a line of its own. Cores tell once a second, so what the first host had to
    // tell would be there, too.
    let (other, _) = server(404);
    gone(&node, &node.create(&document("0", None, &other.uri("/other"), "x")));
    let of = |uri: &str| {
        let logged = node.logged();
        let lines = logged.lines().filter(|line| line.contains(LINE) && line.contains(uri));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    until("the other host", || (!of(&other.uri("/other")).is_empty()).then_some(()));
    let lines = of(&sink.uri(""));
    assert_eq!(lines.len(), 1, "{}", node.logged());
    let told = &lines[0];
    assert!(!node.logged().contains("secret"), "{told}");
    let id = first.strip_prefix("/timers/").expect("a timer");
    assert!(told.contains(id), "{told}");
    assert!(told.contains(&sink.uri("/pop/a")), "{told}");
    assert!(told.contains("\"reason\":\"age\""), "{told}");
}

#[test]
fn a_host_that_answers_with_errors_is_shown_until_it_takes_a_callback() {
    let node = Node::start(2, ONE_ATTEMPT);
    let (sink, status) = server(503);
    let name = sink.address.to_string();
    let path = format!("/destinations/{name}");
    assert_eq!(admin(&node, &path).status, 404, "nothing is known");
    for _ in 0..3 {
        gone(&node, &node.create(&document("0", None, &sink.uri("/"), "x")));
    }
    let failing = look(&node, &path)["failing"].clone();
    assert_eq!((&failing["attempts"], &failing["status"]), (&json!(3), &json!(503)), "{failing}");
    assert_eq!(failing["failure"], "status");
    let (since, last_at) = (failing["since"].as_str(), failing["last-at"].as_str());
    assert!(since.is_some_and(|since| since.ends_with('Z')) && since <= last_at, "{failing}");
    let all = look(&node, "/destinations");
    let names = all["destinations"].as_array().expect("a list").iter();
    assert!(names.map(|one| &one["destination"]).any(|one| *one == name), "{all}");
    status.store(200, SeqCst);
    // Each core has connections of its own, and counts for itself.
    until("each core to deliver", || {
        gone(&node, &node.create(&document("0", None, &sink.uri("/"), "x")));
        (admin(&node, &path).status == 404).then_some(())
    });
}

#[test]
fn a_host_that_does_not_answer_at_all_is_shown_as_such() {
    let node = Node::start(1, ONE_ATTEMPT);
    gone(&node, &node.create(&document("0", None, "http://127.0.0.1:9/", "x")));
    let failing = look(&node, "/destinations/127.0.0.1:9")["failing"].clone();
    assert_eq!((&failing["failure"], &failing["status"]), (&json!("unreachable"), &Value::Null));
}

#[test]
fn the_status_is_short_unless_all_of_it_is_asked_for() {
    let node = Node::start(2, "");
    let short = look(&node, "/status");
    assert_eq!((&short["state"], &short["totals"]["timers"]), (&json!("serving"), &json!(0)));
    assert!(admin(&node, "/status").text().lines().count() < 60, "{short:#}");
    let all = look(&node, "/status?all");
    assert_eq!(all["per_core"].as_array().map(Vec::len), Some(2));
    let known = all["totals"].as_object().expect("an object");
    assert!(short["totals"].as_object().expect("one").keys().all(|name| known.contains_key(name)));
    assert_eq!(admin(&node, "/status?some").status, 400);
}
