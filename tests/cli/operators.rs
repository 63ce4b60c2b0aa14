//! `chronos dead-letters`, `destinations`, `top` and `config`.

use serde_json::{Value, json};

use super::harness::{NOWHERE, Node, run, text, until};

/// The dead letters of a node, once there are so many.
fn letters(node: &Node, count: usize) -> Vec<Value> {
    until("dead letters", || {
        let found = node.operate(&["dead-letters", "list", "--json"]).expect(0, "").json();
        let letters = found["dead-letters"].as_array().expect("a list").clone();
        (letters.len() == count).then_some(letters)
    })
}

fn fail_one(node: &Node, tag: &str) -> String {
    node.create(&["--interval", "0", "--uri", NOWHERE, "--max-attempts", "1", "--tag", tag])
}

#[test]
fn dead_letters_are_shown_replayed_and_deleted() {
    let node = Node::start("");
    let ids = ["A", "B", "B"].map(|tag| fail_one(&node, tag));
    letters(&node, 3);
    node.operate(&["dead-letters", "list", "--tag", "A"]).expect(0, "attempts");
    node.operate(&["dead-letters", "list", "--limit", "2"]).expect(0, "there are more");
    node.operate(&["dead-letters", "show", &ids[0]]).expect(0, "dead-letter.reason");
    node.operate(&["dead-letters", "replay", &ids[0]]).expect(0, "replayed");
    until("the replay to fail", || {
        let shown = node.operate(&["dead-letters", "show", &ids[0], "--json"]);
        (shown.code == Some(0) && shown.json()["replays"] == 1).then_some(())
    });
    let replayed = node.operate(&["dead-letters", "replay", "--tag", "B", "--json"]);
    assert_eq!(replayed.expect(0, "").json()["replayed"], 2);
    letters(&node, 3);
    node.operate(&["dead-letters", "delete", &ids[0]]).expect(0, "deleted");
    node.operate(&["dead-letters", "show", &ids[0]]).expect(1, "no dead letter with this id");
    node.operate(&["dead-letters", "delete", "--all"]).expect(0, "2 deleted");
    node.operate(&["dead-letters", "list"]).expect(0, "no dead letters");
    node.operate(&["dead-letters", "replay"]).expect(2, "expected an ID, a filter");
    node.operate(&["dead-letters", "replay", "x", "--all"]).expect(2, "");
    node.operate(&["dead-letters", "list", "--reason", "bad"]).expect(1, "reason: expected");
}

#[test]
fn destinations_are_limited_paused_and_resumed() {
    let node = Node::start("");
    node.operate(&["destinations", "list"]).expect(0, "no destinations");
    node.operate(&["destinations", "show", "a.example:80"]).expect(1, "(status 404)");
    let set = ["destinations", "set", "a.example:80", "--max-in-flight", "8", "--json"];
    let shown = node.operate(&[&set[..], &["--rate-per-second", "0.5"]].concat());
    assert_eq!(shown.expect(0, "").json()["rate-per-second"], 0.5);
    let shown = node.operate(&["destinations", "pause", "a.example:80", "--json"]).json();
    let limits = (&shown["paused"], &shown["max-in-flight"], &shown["rate-per-second"]);
    assert_eq!(limits, (&json!(true), &json!(8), &json!(0.5)), "pause keeps the limits");
    node.operate(&["destinations", "pause", "b.example"]).expect(0, "paused");
    let listed = node.operate(&["destinations", "list"]);
    listed.expect(0, "a.example:80  closed");
    let shown = node.operate(&["destinations", "resume", "a.example:80", "--json"]).json();
    assert_eq!((&shown["paused"], &shown["max-in-flight"]), (&json!(false), &json!(8)));
    node.operate(&["destinations", "reset", "a.example:80"]).expect(0, "");
    node.operate(&["destinations", "pause", "[::1]:8080"]).expect(0, "[::1]:8080");
    node.operate(&["destinations", "set", "a b"]).expect(1, "(status 400)");
    node.operate(&["destinations", "set", "a", "--max-in-flight", "0"]).expect(1, "max-in-flight");
}

#[test]
fn config_does_what_the_flags_of_the_node_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = text(folder.path().join("good.toml"));
    std::fs::write(&good, "[limits]\ntimers_max = 5\n").expect("written");
    run(&["config", "check", "--config", &good]).expect(0, "configuration ok");
    let shown = run(&["config", "show", "--config", &good]);
    assert_eq!(shown.out, run(&["--print-config", "--config", &good]).out);
    let shown = run(&["config", "show", "--config", &good, "--json"]).expect(0, "").json();
    assert_eq!(shown["limits"]["timers_max"], 5);
    let reference = run(&["config", "reference"]);
    assert_eq!(reference.expect(0, "").out, run(&["--print-reference-config"]).out);
    let bad = text(folder.path().join("bad.toml"));
    std::fs::write(&bad, "[limits]\ntimers_maxx = 5\n").expect("written");
    run(&["config", "check", "--config", &bad]).expect(2, "timers_max");
    let told = run(&["config", "check", "--config", &bad, "--json"]).expect(2, "").json();
    assert_eq!(told["is-fine"], false);
}
