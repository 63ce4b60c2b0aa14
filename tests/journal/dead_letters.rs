//! Dead letters (docs/api.md) outlive the process, and the whole cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use kit::callbacks::{Reaction, serve};
use kit::runner::Story;
use kit::until::{PATIENCE, until};
use serde_json::{Value, json};

use super::harness::Node;

pub const STORIES: &[Story] = &[
    ("dead_letters_survive_a_kill", survive_a_kill),
    ("dead_letters_survive_the_kill_of_one_and_of_all", survive_all),
];

/// A server that fails until it is told to be well. Returns its URI.
fn server() -> (String, Arc<AtomicBool>) {
    let is_well = Arc::new(AtomicBool::new(false));
    let well = is_well.clone();
    let (address, _) = serve("127.0.0.1:0".parse().expect("an address"), move |_| {
        Reaction::Status(if well.load(SeqCst) { 200 } else { 500 })
    });
    (format!("http://{address}"), is_well)
}

fn hasty(uri: &str, timing: Value, factor: u8) -> String {
    json!({
        "timing": timing,
        "callback": {
            "http": {"uri": uri, "opaque": "any text"},
            "retry": {"max-attempts": 2, "initial": 0.02, "jitter": 0},
        },
        "reliability": {"replication-factor": factor},
    })
    .to_string()
}

fn letter(node: &Node, timer: &str) -> Option<Value> {
    let answer = node.request("GET", &timer.replace("/timers/", "/dead-letters/"), "");
    (answer.status == 200).then(|| serde_json::from_str(&answer.body).expect("JSON"))
}

fn await_letter(node: &Node, timer: &str) -> Value {
    until("a dead letter", PATIENCE, || letter(node, timer))
}

fn survive_a_kill() {
    let (uri, is_well) = server();
    let mut node = Node::alone();
    node.start();
    let timer = node.create(&hasty(&uri, json!({"interval": 0}), 1));
    let repeating = node.create(&hasty(&uri, json!({"interval": 1, "repeat-for": 3600}), 1));
    let before = await_letter(&node, &timer);
    node.await_metric("chronos_dead_letters", |count| count >= 3);
    node.kill();
    node.shards = 3;
    node.start();
    let after = await_letter(&node, &timer);
    assert_eq!(after["dead-letter"], before["dead-letter"]);
    node.await_metric("chronos_dead_letters", |count| count >= 3);
    assert_eq!(node.request("GET", &repeating, "").status, 200, "it goes on");
    is_well.store(true, SeqCst);
    let replay = format!("{}/replay", timer.replace("/timers/", "/dead-letters/"));
    assert_eq!(node.request("POST", &replay, "").status, 200);
    node.await_metric("chronos_pops_delivered_total", |count| count >= 1);
    node.kill();
    node.start();
    assert_eq!(letter(&node, &timer), None, "it was delivered");
}

fn survive_all() {
    let (uri, _) = server();
    let mut nodes = Node::cluster(3);
    nodes.iter_mut().for_each(Node::start);
    nodes[0].await_metric("chronos_peers_alive", |count| count == 2);
    let timers: Vec<String> =
        (0..12).map(|at| nodes[at % 3].create(&hasty(&uri, json!({"interval": 0}), 2))).collect();
    timers.iter().for_each(|timer| drop(await_letter(&nodes[0], timer)));
    nodes[1].kill();
    timers.iter().for_each(|timer| drop(await_letter(&nodes[0], timer)));
    timers.iter().for_each(|timer| drop(await_letter(&nodes[2], timer)));
    nodes[1].start();
    nodes.iter_mut().for_each(Node::kill);
    nodes.iter_mut().for_each(Node::start);
    for node in &nodes {
        timers.iter().for_each(|timer| drop(await_letter(node, timer)));
    }
    let path = timers[0].replace("/timers/", "/dead-letters/");
    assert_eq!(nodes[2].request("DELETE", &path, "").status, 200);
    for node in &nodes {
        until("its end", PATIENCE, || letter(node, &timers[0]).is_none().then_some(()));
    }
}
