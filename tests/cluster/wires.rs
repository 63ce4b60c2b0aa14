//! Network namespaces: to its packets, each node is on a machine of its own. All nodes are on one
//! switch, of which a story may pull cables. Needs root and the tools of iproute2.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use kit::namespaces::{self, tool};
use kit::runner::cannot_run;

use super::harness::{Cluster, PLACES, Setup};

/// A switch with a port for each place, and a port for the sinks and clients, which stay where they
/// are.
pub struct Switch {
    switch: namespaces::Switch,
    /// The address at which nodes reach the sinks.
    pub sinks: IpAddr,
    nodes: Vec<IpAddr>,
}

impl Switch {
    /// Makes a cluster whose nodes are plugged into a switch. No node runs yet.
    pub fn between(setup: Setup) -> (Cluster, Switch) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // The range for measuring between networks (RFC 2544). The third octet is this process's
        // own.
        let number = std::process::id() * 4 + NUMBER.fetch_add(1, SeqCst);
        let host = |last| IpAddr::V4(Ipv4Addr::new(198, 18, number as u8, last));
        let nodes: Vec<_> = (0..PLACES).map(|place| host(11 + place as u8)).collect();
        let machines: Vec<_> = nodes.iter().map(|node| vec![*node]).collect();
        let made = namespaces::Switch::new(&format!("chr{number}"), host(1), &machines);
        let switch = made.unwrap_or_else(|reason| {
            cannot_run(format!("no network namespaces (root and `ip` are needed): {reason}"))
        });
        let starters = (0..PLACES).map(|place| switch.starter(place)).collect();
        let hosts = nodes.clone();
        let cluster = Cluster::with(Setup { hosts, starters, ..setup });
        (cluster, Switch { switch, sinks: host(1), nodes })
    }

    /// Pulls the cable of a node: no packet to the node or from it arrives.
    pub fn pull(&self, place: usize) {
        self.switch.set_plugged(place, false);
    }

    /// Puts the cable of a node back.
    pub fn put_back(&self, place: usize) {
        self.switch.set_plugged(place, true);
    }

    /// Loses packets of one node to another from now on. Packets of the other node still arrive.
    pub fn lose(&self, from: usize, to: usize) {
        self.switch.set_cut(from, self.nodes[to], true);
    }

    /// Lets packets of one node to another arrive again.
    pub fn find(&self, from: usize, to: usize) {
        self.switch.set_cut(from, self.nodes[to], false);
    }

    /// Loses, delays, doubles and exchanges packets to a node, as `tc` is told.
    pub fn disturb(&self, place: usize, how: &str) {
        let (name, port) = (self.switch.name(), self.switch.port(place));
        let mut words = vec!["-n", name, "qdisc", "replace", "dev", &port, "root", "netem"];
        words.extend(how.split(' '));
        if let Err(reason) = tool("tc", &words) {
            cannot_run(format!("the kernel cannot lose packets at random (netem): {reason}"));
        }
    }
}
