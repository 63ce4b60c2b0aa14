//! What a journal keeps of names and keys.

use kit::client::{Answer, request_with};
use kit::runner::Story;
use kit::until::{PATIENCE, until};

use super::harness::{Node, body};
use super::sink::Sink;

pub const STORIES: &[Story] = &[("names_and_keys_outlive_restarts", names_and_keys)];

/// No timer of this story comes due unless it is to.
const LATER_MS: u64 = 3_600_000;

fn ask(node: &Node, (method, path): (&str, &str), headers: &str, body: &str) -> Answer {
    let answer = request_with(node.address, method, path, headers, body);
    answer.unwrap_or_else(|error| panic!("{method} {path}: {error}\n{}", node.log()))
}

fn post(node: &Node, key: &str, body: &str) -> Answer {
    ask(node, ("POST", "/timers"), &format!("Idempotency-Key: {key}\r\n"), body)
}

fn names_and_keys() {
    let sink = Sink::start();
    let mut node = Node::alone();
    node.start();
    let later = body("http://127.0.0.1:9/x", LATER_MS, 1, "later", 1);
    let soon = |number: usize| body(&sink.uri(&format!("/{number}")), 50, 1, "soon", 1);
    let (absent, is_known) = ("If-None-Match: *\r\n", 412);
    let (mut tags, mut keys) = (Vec::new(), Vec::new());
    for number in 0..20 {
        let name = format!("/timers/by-name/n{number}");
        let made = ask(&node, ("PUT", &name), absent, &later);
        tags.push((name, made.header("ETag").expect("a tag").to_owned()));
        for (kind, body) in [("live", &later), ("deleted", &later), ("popped", &soon(number))] {
            let key = format!("{kind}-{number}");
            let made = post(&node, &key, body);
            keys.push((key, body.to_owned(), made.location().to_owned()));
            if kind == "deleted" {
                assert_eq!(node.request("DELETE", made.location(), "").status, 200);
            }
        }
    }
    for number in 0..20 {
        let path = format!("/{number}");
        until("a pop", PATIENCE, || (!sink.sequences(&path).is_empty()).then_some(()));
    }
    let popped = |keys: &[(String, String, String)]| {
        keys.iter().filter(|(key, ..)| key.starts_with("popped")).map(|key| key.2.clone()).collect()
    };
    let popped: Vec<String> = popped(&keys);
    let is_over =
        |node: &Node| popped.iter().all(|path| node.request("GET", path, "").status == 404);
    until("the ends of the timers", PATIENCE, || is_over(&node).then_some(()));
    // With other cores each timer is written anew, and its tombstone as well.
    for (turn, shards) in [1, 3, 3, 2].into_iter().enumerate() {
        if turn % 2 == 0 {
            node.kill()
        } else {
            node.stop()
        }
        node.shards = shards;
        node.start();
        until("the ends of the timers", PATIENCE, || is_over(&node).then_some(()));
        for (name, tag) in &tags {
            let read = ask(&node, ("GET", name), "", "");
            assert_eq!((read.status, read.header("ETag")), (200, Some(&**tag)), "turn {turn}");
            assert_eq!(ask(&node, ("PUT", name), absent, &later).status, is_known);
        }
        for (key, body, location) in &keys {
            let again = post(&node, key, body);
            assert_eq!(again.location(), location, "turn {turn}: {key}");
            let other = post(&node, key, &format!("{body} "));
            assert_eq!(other.status, 422, "turn {turn}: {key}: {other:?}");
            let is_live = key.starts_with("live");
            let read = node.request("GET", location, "");
            assert_eq!(read.status, if is_live { 200 } else { 404 }, "turn {turn}: {key}");
        }
    }
    let repeated = sink.pops().len() - 20;
    assert!(repeated <= 20, "only what was under way at a kill comes again: {repeated}");
    let match_first = format!("If-Match: {}\r\n", tags[0].1);
    assert_eq!(ask(&node, ("PUT", &tags[0].0), &match_first, &later).status, 200);
    assert_eq!(ask(&node, ("PUT", &tags[0].0), &match_first, &later).status, 412);
}
