//! The admin API of nodes that are in trouble: taken out of their cluster, beside a member that
//! hangs, on a disk that keeps nothing.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use kit::until::{PATIENCE, until};

use super::contract::Contract;
use super::node::Node;
use super::public_many::query;
use super::wire::{Ask, connect};

/// A node is slow for others only after minutes.
const PATIENT: &str = "suspect_after_ms = 60000\ndead_after_ms = 120000\n";
/// Answers of all nodes that a core puts together at a time.
const ANSWERS_MAX: usize = 16;
/// How long a comparison that waits for a member is looked for before another begins, and how long
/// the member has to connect before that.
const SHOWN_WITHIN: Duration = Duration::from_secs(3);
/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Two addresses at which nodes of a cluster may listen.
fn addresses() -> [String; 2] {
    ["127.0.0.1", "127.0.0.2"].map(|host| {
        let port = kit::ports::free_port(&[host.parse().expect("an address")]);
        format!("{host}:{port}")
    })
}

fn member(own: &str, all: &[String]) -> Node {
    let cluster = format!("[cluster]\nlocalhost = {own:?}\nnodes = {all:?}\n{PATIENT}");
    Node::start_at(own, &format!("[auth]\ninsecure_open = true\n{cluster}"))
}

/// A node that was taken out of its cluster serves no timers.
pub fn a_node_that_has_left(contract: &Contract) {
    let all = addresses();
    let node = member(&all[0], &all);
    let to = node.admin;
    let alone = contract.example("changeMembers", &[]).body("{\"nodes\":[]}");
    contract.expect(to, &alone, 200);
    until("the cores to know", PATIENCE, || {
        (contract.ask(to, &contract.example("getTimer", &[])).status == 503).then_some(())
    });
    for operation in [
        "readyz",
        "getTimer",
        "deleteTimer",
        "actOnTimer",
        "getNamedTimer",
        "deleteNamedTimer",
        "actOnNamedTimer",
        "getDeadLetter",
        "deleteDeadLetter",
        "replayDeadLetter",
    ] {
        contract.refused(to, &contract.example(operation, &[]), 503);
    }
    contract.expect(to, &contract.example("alarms", &[]), 200);
    contract.expect(to, &contract.example("clusterMembers", &[]), 200);
}

/// A tag beyond the table has no figures of its own.
pub fn a_tag_beyond_the_table(contract: &Contract) {
    let node = Node::start("[limits]\ntags_max = 0\n");
    let one = contract.example("oneTag", &[("tag", "CALL")]);
    contract.expect(node.admin, &one, 200);
    let timer = serde_json::json!({
        "timing": {"interval": 600},
        "callback": {"http": {"uri": "http://127.0.0.1:9/", "opaque": ""}},
        "statistics": {"tag-info": [{"type": "CALL", "count": 1}]},
    });
    let created = kit::client::request(node.address, "POST", "/timers", &timer.to_string());
    let created = created.expect("served");
    assert_eq!(created.status, 200);
    until("the tag to be counted with the others", PATIENCE, || {
        (contract.ask(node.admin, &one).status == 404).then_some(())
    });
    contract.refused(node.admin, &one, 404);
}

/// Begins requests whose answers nobody reads.
fn hold(to: SocketAddr, ask: &Ask) -> Vec<TcpStream> {
    let begin = |_| {
        let mut stream = connect(to);
        stream.write_all(ask.text().as_bytes()).expect("taken");
        stream
    };
    (0..ANSWERS_MAX).map(begin).collect()
}

/// Stops a member so that the node waits for it with a comparison of their timers. A comparison
/// ends at once while the node is not connected, as after a stall of the machine: then it begins
/// again.
fn stop_while_it_is_asked(contract: &Contract, node: &Node, other: &Node) {
    let has_work = || {
        let told = contract.expect(node.admin, &contract.example("overview", &[]), 200).json();
        told["work"].as_array().is_some_and(|works| !works.is_empty())
    };
    until("work that goes on", PATIENCE, || {
        other.signal("STOP");
        contract.expect(node.admin, &contract.example("resync", &[]), 200);
        let until = Instant::now() + SHOWN_WITHIN;
        while Instant::now() < until {
            if has_work() {
                return Some(());
            }
            thread::sleep(LOOK_AGAIN);
        }
        other.signal("CONT");
        thread::sleep(SHOWN_WITHIN);
        None
    });
}

/// While a member says nothing, answers that need all members take long, and places run out.
pub fn a_member_that_hangs(contract: &Contract) {
    let all = addresses();
    let [node, other] = [0, 1].map(|place| member(&all[place], &all));
    let to = node.admin;
    let members = contract.example("cluster", &[]);
    until("both to know each other", PATIENCE, || {
        let told = contract.expect(to, &members, 200).json();
        (told["members"][1]["liveness"] == "alive").then_some(())
    });
    // Their admin addresses are not configured.
    for operation in ["allTags", "oneTag"] {
        let ask = contract.example(operation, &[]);
        contract.refused(to, &query(&ask, "scope=cluster"), 501);
    }
    let document = &super::public::documents()[0];
    (0..100).for_each(|_| drop(super::admin::create(&node, document)));
    stop_while_it_is_asked(contract, &node, &other);
    let problem = "Accept: application/problem+json";
    let places = [
        ("countTimers", ["countTimers", "listJobs", "getJob", "stopJob"].as_slice()),
        (
            "listTimers",
            &["listTimers", "listDeadLetters", "deleteDeadLetters", "replayDeadLetters"],
        ),
    ];
    for (held, refused) in places {
        for operation in refused {
            let ask = contract.example(operation, &[]);
            for ask in [ask.clone(), ask.with(problem)] {
                until(operation, PATIENCE, || {
                    let _held = hold(to, &contract.example(held, &[]));
                    (contract.ask(to, &ask).status == 503).then_some(())
                });
            }
        }
    }
    // A job waits for the member, too.
    let delete = query(&contract.example("deleteTimers", &[]), "tag=CALL");
    for ask in [delete.clone(), delete.with(problem)] {
        until("a job too many", PATIENCE, || (contract.ask(to, &ask).status == 429).then_some(()));
    }
    other.signal("CONT");
}

/// An order for a destination that the disk does not keep holds, and is answered so.
pub fn a_disk_that_does_not_keep(contract: &Contract) {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let node = Node::start(&format!("[journal]\ndata_dir = {data:?}\n"));
    // No file can take the place of a directory that is not empty.
    std::fs::create_dir_all(data.join("destinations/taken")).expect("a folder");
    contract.refused(node.admin, &contract.example("putDestination", &[]), 500);
    contract.expect(node.admin, &contract.example("deleteDestination", &[]), 500);
    contract.expect(node.admin, &contract.example("putDestination", &[]), 500);
    let problem = "Accept: application/problem+json";
    contract.expect(node.admin, &contract.example("deleteDestination", &[]).with(problem), 500);
}
