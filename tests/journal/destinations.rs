//! What operators ordered for destinations is in the data directory.

use std::fs;

use kit::client::{Answer, request_with};
use kit::runner::Story;
use kit::until::{PATIENCE, until};

use super::harness::{Node, body};
use super::sink::Sink;

pub const STORIES: &[Story] =
    &[("a_paused_destination_stays_paused_when_all_nodes_restart", stays_paused)];

fn order(node: &Node, method: &str, name: &str, body: &str) -> Answer {
    let path = format!("/destinations/{name}");
    let headers = "X-Chronos-Order: 1\r\n";
    request_with(node.admin(), method, &path, headers, body).expect("an answer")
}

fn stays_paused() {
    let sink = Sink::start();
    let uri = sink.uri("/pop");
    let name = uri.trim_start_matches("http://").trim_end_matches("/pop").to_owned();
    let mut node = Node::alone();
    node.start();
    assert_eq!(order(&node, "PUT", &name, r#"{"paused":true}"#).status, 200);
    assert_eq!(order(&node, "PUT", "other", r#"{"max-in-flight":1}"#).status, 200);
    for _ in 0..20 {
        node.create(&body(&uri, 100, 1, "x", 1));
    }
    for _ in 0..2 {
        node.kill();
        let file = node.data.join("destinations");
        let text = fs::read_to_string(&file).expect("kept");
        let orders = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
        assert_eq!(orders.count(), 2, "{text}");
        // A line that is damaged costs no other.
        fs::write(&file, format!("{text}\u{0}nonsense\n")).expect("written");
        node.start();
        until("the pops to wait", PATIENCE, || {
            order(&node, "GET", &name, "").body.contains("\"queue\": 20").then_some(())
        });
        assert_eq!(sink.pops().len(), 0);
    }
    assert_eq!(order(&node, "PUT", &name, "{}").status, 200);
    until("the pops", PATIENCE, || (sink.pops().len() == 20).then_some(()));
}
