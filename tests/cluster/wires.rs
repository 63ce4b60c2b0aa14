//! Network namespaces: to its packets, each node is on a machine of its own. All nodes are on one
//! switch, of which a story may pull cables. Needs root and the tools of iproute2.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use kit::children::Guard;
use kit::namespaces::{self, ip, tool};
use kit::runner::cannot_run;

use super::harness::{Cluster, PLACES, Setup};

/// A switch with a port for each place, and a port for the sinks and clients, which stay where they
/// are.
pub struct Switch {
    name: String,
    /// The address at which nodes reach the sinks.
    pub sinks: IpAddr,
    nodes: Vec<IpAddr>,
    _guard: Guard,
}

impl Drop for Switch {
    fn drop(&mut self) {
        // Deleting a namespace deletes its interfaces, and the other end of each of them.
        for place in 0..PLACES {
            let _ = ip(&["netns", "del", &namespace(&self.name, place)]);
        }
        let _ = ip(&["netns", "del", &self.name]);
    }
}

impl Switch {
    /// Makes a cluster whose nodes are plugged into a switch. No node runs yet.
    pub fn between(setup: Setup) -> (Cluster, Switch) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // The range for measuring between networks (RFC 2544). The third octet is this process's
        // own.
        let number = std::process::id() * 4 + NUMBER.fetch_add(1, SeqCst);
        let host = |last| IpAddr::V4(Ipv4Addr::new(198, 18, number as u8, last));
        let name = format!("chr{number}");
        let switch = Switch {
            _guard: guard(&name),
            name,
            sinks: host(1),
            nodes: (0..PLACES).map(|place| host(11 + place as u8)).collect(),
        };
        if let Err(reason) = switch.build() {
            cannot_run(format!("no network namespaces (root and `ip` are needed): {reason}"));
        }
        let starters = (0..PLACES)
            .map(|place| {
                ["ip", "netns", "exec", &namespace(&switch.name, place)].map(str::to_owned).to_vec()
            })
            .collect();
        let hosts = switch.nodes.clone();
        (Cluster::with(Setup { hosts, starters, ..setup }), switch)
    }

    fn build(&self) -> Result<(), String> {
        let name = &self.name;
        ip(&["netns", "add", name])?;
        ip(&["-n", name, "link", "add", "switch", "type", "bridge"])?;
        ip(&["-n", name, "link", "set", "switch", "up"])?;
        // The name of an interface has at most 15 characters.
        let root = &format!("{name}r");
        ip(&["link", "add", root, "type", "veth", "peer", "name", "sinks", "netns", name])?;
        ip(&["addr", "add", &format!("{}/24", self.sinks), "dev", root])?;
        ip(&["link", "set", root, "up"])?;
        self.plug("sinks")?;
        for (place, address) in self.nodes.iter().enumerate() {
            let node = &namespace(&self.name, place);
            let port = &port(place);
            ip(&["netns", "add", node])?;
            ip(&[
                "-n", name, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns",
                node,
            ])?;
            ip(&["-n", node, "addr", "add", &format!("{address}/24"), "dev", "eth0"])?;
            ip(&["-n", node, "link", "set", "eth0", "up"])?;
            ip(&["-n", node, "link", "set", "lo", "up"])?;
            self.plug(port)?;
        }
        Ok(())
    }

    fn plug(&self, port: &str) -> Result<(), String> {
        ip(&["-n", &self.name, "link", "set", port, "master", "switch", "up"])
    }

    /// Pulls the cable of a node: no packet to the node or from it arrives.
    pub fn pull(&self, place: usize) {
        self.set(&port(place), "down");
    }

    /// Puts the cable of a node back.
    pub fn put_back(&self, place: usize) {
        self.set(&port(place), "up");
    }

    fn set(&self, port: &str, state: &str) {
        ip(&["-n", &self.name, "link", "set", port, state]).expect("it could be built");
    }

    /// Loses packets of one node to another from now on. Packets of the other node still arrive.
    pub fn lose(&self, from: usize, to: usize) {
        let (node, address) = (namespace(&self.name, from), self.nodes[to].to_string());
        namespaces::lose(&node, &address).expect("it could be built");
    }

    /// Lets packets of one node to another arrive again.
    pub fn find(&self, from: usize, to: usize) {
        let (node, address) = (namespace(&self.name, from), self.nodes[to].to_string());
        namespaces::find(&node, &address).expect("it could be built");
    }

    /// Loses, delays, doubles and exchanges packets to a node, as `tc` is told.
    pub fn disturb(&self, place: usize, how: &str) {
        let port = port(place);
        let mut words = vec!["-n", &self.name, "qdisc", "replace", "dev", &port, "root", "netem"];
        words.extend(how.split(' '));
        if let Err(reason) = tool("tc", &words) {
            cannot_run(format!("the kernel cannot lose packets at random (netem): {reason}"));
        }
    }
}

/// Returns the name of a place's namespace on a switch.
fn namespace(switch: &str, place: usize) -> String {
    format!("{switch}-{}", place + 1)
}

/// Removes the namespaces of a switch if the process ends before the switch does.
fn guard(switch: &str) -> Guard {
    let places = (0..PLACES).map(|place| namespace(switch, place));
    namespaces::guard(places.chain([switch.to_owned()]))
}

fn port(place: usize) -> String {
    format!("port{}", place + 1)
}
