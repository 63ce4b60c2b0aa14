//! Where callbacks may go: `callbacks.allow` and `callbacks.deny`, and what is denied without them.

use std::time::Duration;

use super::harness::{Node, document, until};
use super::sink::{Reaction, Sink};

const DENIED: &str = "chronos_callbacks_denied_rule_total";

#[test]
fn metadata_services_and_link_local_addresses_are_refused_where_they_are_named() {
    let node = Node::shared();
    for host in ["169.254.169.254", "169.254.0.1:8080", "[fe80::1]", "[::ffff:169.254.169.254]:80"]
    {
        let uri = format!("http://{host}/latest/meta-data/");
        let refused = node.request("POST", "/timers", &document("0", None, &uri, "x"));
        refused.assert_refusal(403, "callback.http.uri", host);
        assert!(refused.text().contains("callbacks.allow"), "{}", refused.text());
    }
}

/// The name is fine, and what it leads to is not: known only when the resolver has answered.
#[test]
fn each_address_of_a_name_is_judged_before_a_connection() {
    let node = Node::start(2, "[callbacks]\ndeny = [\"127.0.0.0/8\", \"[::1]\"]\n");
    let sink = Sink::ok();
    let port = sink.address.port();
    let uri = format!("http://localhost:{port}/");
    let once = node.create(&document("0", None, &uri, "x"));
    until("the pop is given up", || (node.request("GET", &once, "").status == 404).then_some(()));
    let repeated = node.create(&document("0.05", Some("0.2"), &uri, "x"));
    until("each is", || (node.request("GET", &repeated, "").status == 404).then_some(()));
    until("they are counted", || (node.metric(DENIED) >= 5.0).then_some(()));
    assert_eq!(node.metric(DENIED), 5.0, "one attempt for each pop");
    assert_eq!(node.metric("chronos_pops_given_up_total"), 5.0);
    assert_eq!((sink.count(), sink.connections()), (0, 0));
    let refused = node.request("POST", "/timers", &document("0", None, &sink.uri("/"), "x"));
    refused.assert_refusal(403, "callbacks.deny", "the address itself");
}

#[test]
fn rules_are_read_again_while_connections_stand() {
    let node = Node::start(1, "[callbacks]\n");
    let sink = Sink::ok();
    let host = format!("localhost:{}", sink.address.port());
    let uri = format!("http://{host}/");
    node.create(&document("0", None, &uri, "x"));
    sink.wait_for(1);
    until("the connection is kept", || (sink.open() == 1).then_some(()));
    node.reconfigure(&format!("[callbacks]\nallow = [\"*\"]\ndeny = [\"{host}\"]\n"));
    until("it is closed", || (sink.open() == 0).then_some(()));
    let refused = node.request("POST", "/timers", &document("0", None, &uri, "x"));
    refused.assert_refusal(403, "callbacks.deny", "the name");
    node.reconfigure("[callbacks]\nallow = [\"*.example.com\"]\n");
    let is_other = || {
        let refused = node.request("POST", "/timers", &document("0", None, &uri, "x"));
        refused.text().contains("callbacks.allow").then_some(())
    };
    until("other rules are in force", is_other);
    node.reconfigure("[callbacks]\nallow = [\"nonsense here\"]\n");
    until("the mistake is told", || node.logged().contains("callbacks").then_some(()));
    assert!(is_other().is_some(), "a mistake changes nothing");
    node.reconfigure(&format!("[callbacks]\nallow = [\"{host}\"]\n"));
    let is_taken =
        || node.request("POST", "/timers", &document("0", None, &uri, "x")).status == 200;
    until("it is allowed again", || is_taken().then_some(()));
    sink.wait_for(2);
}

/// Pops wait for the one connection of a slow host as the host is denied.
#[test]
fn a_connection_that_is_busy_takes_no_further_pop_of_a_host_that_is_denied() {
    const TIMERS: usize = 40;
    let limit = "[callbacks]\nconnections_per_host_max = 1\n";
    let node = Node::start(1, limit);
    let sink = Sink::start(|_, _| Reaction::Late(Duration::from_millis(300)));
    let host = format!("localhost:{}", sink.address.port());
    for _ in 0..TIMERS {
        node.create(&document("0", None, &format!("http://{host}/"), "x"));
    }
    sink.wait_for(2);
    node.reconfigure(&format!("{limit}deny = [\"{host}\"]\n"));
    let ended = || node.metric(DENIED) + node.metric("chronos_pops_delivered_total");
    until("each pop to have ended", || (ended() >= TIMERS as f64).then_some(()));
    // The rules are read while a callback runs, and perhaps a second one on a slow machine.
    assert!(node.metric(DENIED) >= (TIMERS / 2) as f64, "{} were denied", node.metric(DENIED));
    assert_eq!(sink.connections(), 1);
    until("the connection to be closed", || (sink.open() == 0).then_some(()));
}
