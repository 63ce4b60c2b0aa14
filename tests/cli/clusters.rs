//! Two nodes: what is asked of all members, and waiting for them.

use std::net::IpAddr;

use kit::ports;

use super::harness::{NOWHERE, Node, run, until};

/// Two members of one cluster.
fn two() -> [Node; 2] {
    let hosts = [71, 72].map(|last| IpAddr::from([127, 0, 0, last]));
    let at = (ports::free_port(&hosts), ports::free_port(&hosts));
    let names = hosts.map(|host| format!("'{host}:{}'", at.0)).join(", ");
    let start = |place: usize| {
        let (host, id) = (hosts[place], place + 1);
        let config = format!(
            "[node]\ninstance_id = {id}\n\
             [cluster]\nlocalhost = '{host}:{}'\nnodes = [{names}]\nheartbeat_ms = 100\n",
            at.0
        );
        Node::start_at(tempfile::tempdir().expect("room"), &config, host, at)
    };
    [start(0), start(1)]
}

#[test]
fn all_members_are_asked_and_a_dead_one_is_named() {
    let [first, second] = two();
    let status = first.operate(&["cluster", "status", "--wait", "60"]);
    status.expect(0, "2 nodes, site site1");
    let id = first.create(&["--interval", "1h", "--uri", NOWHERE, "--name", "both"]);
    second.timer(&["get", &id]).expect(0, "both");
    second.timer(&["list"]).expect(0, "both");
    first.operate(&["destinations", "pause", "a.example:80"]).expect(0, "");
    until("the order to reach the other", || {
        let listed = second.operate(&["destinations", "list", "--all", "--json"]);
        let document = listed.expect(0, "").json();
        let is_paused = document["destinations"][0]["paused"] == true;
        (is_paused && document["nodes"].as_array()?.len() == 2).then_some(())
    });
    first.operate(&["top", "--once", "--every", "0.1"]).expect(0, "alive");
    let name = second.address.to_string();
    drop(second);
    let listed = first.operate(&["destinations", "list", "--all"]);
    listed.expect(1, &format!("incomplete: {name} is missing"));
    until("the doctor to see it", || {
        let told = first.operate(&["doctor"]);
        told.out.contains("is missing").then(|| told.expect(1, &name).code)
    });
}

#[test]
fn who_waits_is_told_so_and_waits_no_longer_than_it_said() {
    let told = run(&["cluster", "status", "--wait", "1", "--admin", "127.0.0.1:9"]);
    told.expect(1, "waiting for the nodes of 127.0.0.1:9, for 1 s at most");
    told.expect(1, "no node answers");
    run(&["cluster", "status", "--wait", "0"]).expect(2, "");
}
