//! The console on a bad night: a member that is dead, a node that is gone.

use kit::runner::Story;

use crate::browser::Browser;
use crate::node::{Node, callback_server, place, timer};

pub const STORIES: &[Story] = &[
    ("trouble::a_dead_member_is_seen_by_the_others", a_dead_member_is_seen_by_the_others),
    ("trouble::a_node_that_is_gone_is_said_in_words", a_node_that_is_gone_is_said_in_words),
    ("trouble::a_node_that_has_left_is_said_to_have", a_node_that_has_left_is_said_to_have),
];

fn a_dead_member_is_seen_by_the_others() {
    let addresses = [place(), place(), place()];
    let admins = [place(), place(), place()];
    let quoted = |list: &[std::net::SocketAddr]| {
        list.iter().map(|one| format!("\"{one}\"")).collect::<Vec<_>>().join(", ")
    };
    let (nodes, all) = (quoted(&addresses), quoted(&admins));
    let mut cluster: Vec<Node> = (0..3)
        .map(|n| {
            let lines = format!(
                "[node]\ninstance_id = {}\n[cluster]\nlocalhost = \"{}\"\nnodes = [{nodes}]\n\
                 admin_addresses = [{all}]\n",
                n + 1,
                addresses[n]
            );
            Node::start_at(addresses[n], admins[n], &lines)
        })
        .collect();
    let browser = Browser::open(&cluster[0].console());
    browser.page("/cluster", "Cluster");
    let pills = |word: &str, least: u32| {
        format!(
            "return [...document.querySelectorAll('main .pill')].filter((one) => \
             one.innerText === '{word}').length >= {least}"
        )
    };
    browser.wait("all alive", &pills("alive", 6));
    browser.picture("cluster-of-three-1280");
    cluster[2].kill();
    browser.wait("two believe it", &pills("dead", 2));
    browser.wait_for_text("did not say how it sees the cluster");
    browser.wait("no answer", &pills("no answer", 1));
    browser.picture("cluster-one-dead-1280");
    browser.size(420);
    browser.picture("cluster-one-dead-420");
    browser.page("/alarms", "Alarms");
    browser.wait_for_text("Members of the cluster do not answer.");
    browser.wait_for_text("Another death may lose");
    // A timer is held by the nodes that it says.
    let (host, _) = callback_server(200);
    let path = cluster[0].create(&timer(600.0, host));
    browser.size(1_280);
    browser.page(&format!("/timer/{}", path.trim_start_matches("/timers/")), "Timer");
    browser.wait("replicas", "return document.querySelectorAll('main tbody tr').length === 2");
}

fn a_node_that_has_left_is_said_to_have() {
    let (own, other) = (place(), place());
    let lines = format!("[cluster]\nlocalhost = \"{own}\"\nnodes = [\"{own}\", \"{other}\"]\n");
    let node = Node::start_at(own, place(), &lines);
    let browser = Browser::open(&node.console());
    let state =
        |word: &str| format!("return document.getElementById('node-state').innerText === '{word}'");
    browser.wait("the state", &state("serving"));
    let alone = r#"{"nodes":[],"joining":[],"leaving":[]}"#;
    let told = node.order("PUT", "/cluster/membership", alone);
    assert_eq!(told.status, 200, "{told:?}");
    browser.wait("the state", &state("left its cluster"));
    browser.wait_for_text("This node has left its cluster. It holds no timers");
}

fn a_node_that_is_gone_is_said_in_words() {
    let mut node = Node::start("");
    let browser = Browser::open(&node.console());
    browser.page("/journal", "Journal");
    browser.wait_for_text("segment");
    node.kill();
    browser.wait(
        "the state",
        "return document.getElementById('node-state').innerText === \
                  'no answer'",
    );
    browser.wait_for_text("What is shown is");
    browser.wait_for_text("Is the process running");
    browser.picture("journal-gone-1280");
    browser.script("location.hash = '/cluster'", &[]);
    browser.wait_for_text("The node does not answer");
    browser.wait_for_text("Try again");
    browser.picture("cluster-gone-1280");
    let again = Node::start_at(node.address, node.admin, "");
    browser.press("Try again");
    browser.wait_for_text("Who believes whom");
    browser.wait(
        "the state",
        "return document.getElementById('node-state').innerText === \
                  'serving'",
    );
    drop(again);
}
