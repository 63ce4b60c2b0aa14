//! Two nodes that both hold every timer. One is counted, the other is an ordinary process.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use kit::client::request;
use kit::ports::free_port;
use kit::until::until;
use serde_json::Value;

use super::node::Node;

/// Longest wait of one node for the other.
const PATIENCE: Duration = Duration::from_secs(300);
/// Addresses of the counted and the ordinary node. Nodes are told apart by their addresses.
const HOSTS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11)), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 12))];
/// Nodes under callgrind are slow. So no silence means anything while they are counted, and no sign
/// of life is among what is counted.
const UNHURRIED: [(&str, &str); 3] = [
    ("CHRONOS_CLUSTER_HEARTBEAT_MS", "60000"),
    ("CHRONOS_CLUSTER_SUSPECT_AFTER_MS", "600000"),
    ("CHRONOS_CLUSTER_DEAD_AFTER_MS", "1200000"),
];

/// A cluster of two nodes.
pub struct Pair {
    pub counted: Node,
    pub plain: Node,
    /// Where the ordinary node tells of itself. The counted node's admin API does not answer: a
    /// core that sleeps in its ring holds valgrind's lock, so other threads of the process do not
    /// run.
    admin: SocketAddr,
}

impl Pair {
    /// Starts both nodes. Waits until the ordinary one believes the counted one alive.
    pub fn start() -> Pair {
        let port = free_port(&HOSTS);
        let [counted, plain] = HOSTS.map(|host| SocketAddr::new(host, port));
        let admin = SocketAddr::new(HOSTS[1], free_port(&HOSTS));
        let start = |at: SocketAddr, admin: &str, instance: &str, is_counted| {
            let members = format!("{counted},{plain}");
            let own = at.to_string();
            let mut variables = UNHURRIED.to_vec();
            variables.push(("CHRONOS_CLUSTER_NODES", &members));
            variables.push(("CHRONOS_CLUSTER_LOCALHOST", &own));
            variables.push(("CHRONOS_IDENTITY_INSTANCE_ID", instance));
            Node::start_at(at, is_counted, &["--admin", admin], &variables)
        };
        let plain = start(plain, &admin.to_string(), "2", false);
        let counted = start(counted, "off", "1", true).serving();
        let pair = Pair { counted, plain, admin };
        pair.await_that("the counted node to be alive", |told| {
            let mut members = told["members"].as_array().expect("members").iter();
            members.any(|member| member["liveness"] == "alive")
        });
        pair
    }

    /// Waits until the ordinary node holds as many timers. What it does not take the client for it
    /// has from the counted node. So then that node's link is up, and it waits for this replica.
    pub fn await_timers(&self, count: usize) {
        self.await_that("the ordinary node to hold all timers", |told| told["timers"] == count);
    }

    fn await_that(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        until(what, PATIENCE, || {
            let answer = request(self.admin, "GET", "/cluster", "").ok()?;
            let told: Value = serde_json::from_str(&answer.body).ok()?;
            is_so(&told).then_some(())
        });
    }
}
