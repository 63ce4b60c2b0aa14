//! Limits of a token's name in a cluster: each node counts what it holds, wherever that came from.

use std::os::unix::fs::PermissionsExt;

use kit::client::{Answer, request_with};
use kit::runner::Story;
use tempfile::TempDir;

use super::harness::{Cluster, Setup, until};
use super::proxies::{Network, Way};
use super::timers::Order;

pub const STORIES: &[Story] = &[
    ("a_limit_holds_after_a_node_lost_all_it_had", a_limit_holds_after_a_node_lost_all_it_had),
    ("a_limit_holds_on_each_side_of_a_split_and_after_it", a_limit_holds_in_a_split),
];

const TWO: [usize; 2] = [0, 1];
const LIMIT: usize = 40;
/// Tokens, and the SHA-256 of each.
const TENANT: (&str, &str) =
    ("hello", "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
const OTHER: (&str, &str) =
    ("world", "486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7");

fn ask(cluster: &Cluster, place: usize, (method, path): (&str, &str), token: &str) -> Answer {
    let document = Order::once(3_600_000).factor(2).document("http://127.0.0.1:9/never", "x");
    let body = if matches!(method, "POST" | "PUT") { &document } else { "" };
    let header = format!("Authorization: Bearer {token}\r\n");
    let answer = request_with(cluster.address(place), method, path, &header, body);
    answer.unwrap_or_else(|error| panic!("node {}: {error}\n{}", place + 1, cluster.logged(place)))
}

/// With factor 2 both nodes hold all timers.
fn await_held(cluster: &Cluster, timers: usize) {
    until("both nodes to hold them all", || {
        let held = TWO.map(|place| cluster.look(place)?["timers"].as_u64());
        (held == [Some(timers as u64); 2]).then_some(())
    });
}

/// The setup of nodes with these tokens. The folder has their file.
fn limited(folder: &TempDir) -> Setup {
    let file = folder.path().join("tokens");
    let lines = format!("tenant client {} timers={LIMIT}\nother client {}\n", TENANT.1, OTHER.1);
    std::fs::write(&file, lines).expect("written");
    let permissions = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&file, permissions).expect("its own file");
    let local = format!("\n[auth]\ntokens_file = {}\n", file.display());
    Setup { local, ..Setup::default() }
}

fn post(cluster: &Cluster, place: usize, token: &str) -> Answer {
    ask(cluster, place, ("POST", "/timers"), token)
}

fn assert_full(cluster: &Cluster, place: usize) {
    let refused = post(cluster, place, TENANT.0);
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.body.contains("tenant has all its 40 timers"), "{refused:?}");
}

fn a_limit_holds_after_a_node_lost_all_it_had() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut cluster = Cluster::with(limited(&folder));
    cluster.begin(&TWO);
    cluster.await_alive(&TWO);
    let mut made = Vec::new();
    for at in 0..LIMIT {
        made.push(post(&cluster, at % 2, TENANT.0).location().to_owned());
    }
    TWO.iter().for_each(|place| assert_full(&cluster, *place));
    await_held(&cluster, LIMIT);

    cluster.kill(1);
    cluster.await_dead(&[0], 1);
    assert_full(&cluster, 0);
    cluster.start(1);
    cluster.await_alive(&TWO);
    await_held(&cluster, LIMIT);
    TWO.iter().for_each(|place| assert_full(&cluster, *place));
    assert_eq!(post(&cluster, 1, OTHER.0).status, 200, "another tenant");
    assert_eq!(ask(&cluster, 1, ("PUT", &made[0]), TENANT.0).status, 200, "an own timer");

    for location in &made[..3] {
        assert_eq!(ask(&cluster, 1, ("DELETE", location), TENANT.0).status, 200);
    }
    for at in 0..3 {
        assert_eq!(post(&cluster, at % 2, TENANT.0).status, 200);
    }
    TWO.iter().for_each(|place| assert_full(&cluster, *place));
    await_held(&cluster, LIMIT + 1);
}

/// What both sides take counts when they hear each other again, and none of it is lost.
fn a_limit_holds_in_a_split() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut cluster, network) = Network::around(limited(&folder));
    cluster.begin(&TWO);
    cluster.await_alive(&TWO);
    for at in 0..LIMIT / 2 {
        post(&cluster, at % 2, TENANT.0).location();
    }
    await_held(&cluster, LIMIT / 2);
    network.set_around(0, Way::Cut);
    cluster.await_dead(&[0], 1);
    cluster.await_dead(&[1], 0);
    for place in TWO {
        for _ in 0..LIMIT / 2 {
            post(&cluster, place, TENANT.0).location();
        }
        assert_full(&cluster, place);
    }
    network.set_around(0, Way::Open);
    cluster.await_alive(&TWO);
    await_held(&cluster, LIMIT / 2 * 3);
    TWO.iter().for_each(|place| assert_full(&cluster, *place));
    assert_eq!(post(&cluster, 1, OTHER.0).status, 200, "another tenant");
}
