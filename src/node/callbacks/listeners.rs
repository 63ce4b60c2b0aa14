//! Addresses where the nodes of this deployment listen themselves. No callback goes there: a timer
//! that POSTs to `/timers` would make timers for ever, and one that POSTs to an admin API might
//! give orders.
//!
//! An address is refused where a client names it. An address to which a name resolves is refused
//! when the callback connects, as a failed attempt. Other ports of the same machines may get
//! callbacks.
//!
//! A node knows one address of each peer. Peers usually listen on the same ports as this node, so
//! at the peers' hosts the ports of this node's own listeners are refused as well.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::cluster::view::View;
use crate::wire::callback_uri::{Host, default_port, parse_authority};

use crate::core::gate::NamedAddresses;
use crate::core::peers::address::{PeerAddress, place_of};
use crate::ring::is_of_this_machine;

/// Listeners that are known when the node starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Listeners of this process: clients, admin API, timestamps.
    pub own: Vec<SocketAddr>,
    /// Admin APIs of members, as `host:port`.
    pub named: Vec<String>,
}

/// All known listeners of the deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterListeners {
    reserved: Reserved,
    /// The port of members whose names have none.
    port: u16,
    addresses: Vec<SocketAddr>,
    /// Ports on which this process listens at all addresses of the machine.
    everywhere: Vec<u16>,
    /// Listeners that are configured by name, with their ports.
    names: Vec<(String, u16)>,
    /// Addresses of the members that are configured by name, as they were looked up.
    resolved: NamedAddresses,
    /// The same of members' admin APIs.
    resolved_admins: NamedAddresses,
    /// All ports of the listeners. For most callbacks a look at their port decides.
    ports: Vec<u16>,
}

impl ClusterListeners {
    /// The listeners of a node with the members of `view`. `port` belongs to members named without
    /// a port.
    pub fn new(reserved: Reserved, port: u16, view: &View) -> Self {
        let mut listeners = Self { reserved, port, ..Self::default() };
        listeners.set_view(view);
        listeners
    }

    /// Takes another view.
    pub fn set_view(&mut self, view: &View) {
        let (mut addresses, mut everywhere, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for own in &self.reserved.own {
            if own.ip().is_unspecified() {
                everywhere.push(own.port());
            } else {
                addresses.push(canonical(*own));
            }
        }
        let mut add = |place| match place {
            PeerAddress::At(address) => addresses.push(canonical(address)),
            PeerAddress::Named(name, port) => names.push((name, port)),
        };
        let peers = view.connected_nodes().union(view.connected_sites());
        for peer in peers.iter().flat_map(|peer| view.addresses_of(peer)) {
            let place = place_of(peer, self.port);
            for own in &self.reserved.own {
                add(at_port(&place, own.port()));
            }
            add(place);
        }
        let named = self.reserved.named.iter().map(String::as_str);
        for listener in view.addresses_of(view.own()).chain(named) {
            add(place_of(listener, self.port));
        }
        let ports = addresses.iter().map(SocketAddr::port).chain(everywhere.iter().copied());
        let mut ports: Vec<u16> = ports.chain(names.iter().map(|(_, port)| *port)).collect();
        ports.sort_unstable();
        ports.dedup();
        (self.addresses, self.everywhere, self.names, self.ports) =
            (addresses, everywhere, names, ports);
    }

    /// Takes the addresses to which names of members were resolved.
    pub fn set_resolved(&mut self, resolved: NamedAddresses) {
        self.resolved = resolved;
    }

    /// Takes the addresses to which names of members' admin APIs were resolved.
    pub fn set_resolved_admins(&mut self, resolved: NamedAddresses) {
        self.resolved_admins = resolved;
    }

    /// Returns whether a node of the deployment listens at an address.
    pub fn has(&self, address: SocketAddr) -> bool {
        self.ports.contains(&address.port()) && self.is_one(canonical(address))
    }

    /// Returns whether a node of the deployment listens at `host:port`, as far as that is known
    /// without asking a resolver. Cost where no listener has the port: the look at the port.
    pub fn has_authority(&self, authority: &str) -> bool {
        if !self.ports.contains(&port_of(authority)) {
            return false;
        }
        let Ok((host, port)) = parse_authority(authority) else { return false };
        match host {
            Host::Address(ip) => self.is_one(canonical(SocketAddr::new(ip, port))),
            Host::Name(name) => {
                let name = name.trim_end_matches('.');
                let is_same = |(other, at): &(String, u16)| {
                    *at == port && other.trim_end_matches('.').eq_ignore_ascii_case(name)
                };
                let here = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                (name.eq_ignore_ascii_case("localhost") && self.is_one(here))
                    || self.names.iter().any(is_same)
            }
        }
    }

    fn is_one(&self, address: SocketAddr) -> bool {
        let (ip, port) = (address.ip(), address.port());
        let leads_there = |(name, at): &(String, u16)| {
            let is_found = |(known, found): &(String, Vec<IpAddr>)| {
                known == name && found.iter().any(|found| found.to_canonical() == ip)
            };
            let mut resolved = self.resolved.iter().chain(self.resolved_admins.iter());
            *at == port && resolved.any(is_found)
        };
        self.addresses.contains(&address)
            || (self.everywhere.contains(&port) && (ip.is_loopback() || is_of_this_machine(ip)))
            || self.names.iter().any(leads_there)
    }
}

/// Another port of the same host.
fn at_port(place: &PeerAddress, port: u16) -> PeerAddress {
    match place {
        PeerAddress::At(address) => PeerAddress::At(SocketAddr::new(address.ip(), port)),
        PeerAddress::Named(name, _) => PeerAddress::Named(name.clone(), port),
    }
}

/// Returns the port of a well-formed authority.
fn port_of(authority: &str) -> u16 {
    let (mut port, mut unit) = (0_u16, 1_u16);
    for byte in authority.bytes().rev() {
        match byte {
            b'0'..=b'9' => port = port.wrapping_add(unit.wrapping_mul(u16::from(byte - b'0'))),
            b':' => return port,
            _ => break,
        }
        unit = unit.wrapping_mul(10);
    }
    default_port(authority)
}

/// Returns the one form of an address for comparisons. The unspecified address and the loopback
/// address of IPv6 become 127.0.0.1, because the kernel takes the unspecified address for this
/// machine.
fn canonical(address: SocketAddr) -> SocketAddr {
    let ip = address.ip().to_canonical();
    let here = if ip.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { ip };
    let is_here = here == IpAddr::from(Ipv6Addr::LOCALHOST);
    SocketAddr::new(if is_here { Ipv4Addr::LOCALHOST.into() } else { here }, address.port())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::view::Membership;

    fn listeners(own: &[&str]) -> ClusterListeners {
        let membership = Membership {
            localhost: "10.0.0.1:7253".into(),
            nodes: ["10.0.0.1:7253", "10.0.0.2", "node-3.example:7253"].map(Into::into).into(),
            remote_sites: vec![("away".into(), "10.9.0.1:7000".into())],
            ..Membership::default()
        };
        let view = View::build(None, &membership).expect("a good configuration");
        let own = own.iter().map(|address| address.parse().expect("an address")).collect();
        let named = vec!["10.0.0.2:7254".into(), "admin-3:7254".into()];
        ClusterListeners::new(Reserved { own, named }, 7253, &view)
    }

    #[test]
    fn what_nodes_listen_on_is_known_however_it_is_written() {
        let known = listeners(&["10.0.0.1:7253", "127.0.0.1:7254", "[::1]:7911"]);
        for authority in [
            "10.0.0.1:7253",
            "10.0.0.2:7253",
            "[::ffff:10.0.0.2]:7253",
            "10.0.0.2:7254",
            "10.9.0.1:7000",
            "127.0.0.1:7254",
            "localhost:7254",
            "LOCALHOST.:7254",
            "0.0.0.0:7254",
            "[::]:7254",
            "[::1]:7911",
            "Node-3.example.:7253",
            "admin-3:7254",
            // Where peers listen if they use the ports of this node.
            "10.0.0.2:7911",
            "node-3.example:7254",
            "10.9.0.1:7253",
        ] {
            assert!(known.has_authority(authority), "{authority}");
        }
        for authority in [
            "10.0.0.1",
            "10.0.0.1:80",
            "10.0.0.1:7254",
            "10.0.0.3:7253",
            "127.0.0.2:7254",
            "node-3.example:7443",
            "10.0.0.2:7443",
            "admin-3:7911",
            "other:7253",
            "localhost:7253",
        ] {
            assert!(!known.has_authority(authority), "{authority}");
        }
    }

    #[test]
    fn the_scheme_tells_the_port_where_none_is_written() {
        let known = listeners(&["10.0.0.1:443", "127.0.0.1:80"]);
        for authority in ["https://10.0.0.1", "HTTPS://10.0.0.1", "10.0.0.1:443", "localhost"] {
            assert!(known.has_authority(authority), "{authority}");
        }
        for authority in ["10.0.0.1", "https://localhost", "https://10.0.0.1:80"] {
            assert!(!known.has_authority(authority), "{authority}");
        }
    }

    #[test]
    fn the_port_is_that_of_the_whole_parser() {
        let plain = ["a", "a:1", "10.0.0.1", "10.0.0.1:65535", "[::1]", "[::1]:80", "1a:007"];
        let secure = plain.map(|authority| format!("https://{authority}"));
        for authority in plain.into_iter().chain(secure.iter().map(String::as_str)) {
            let (_, port) = parse_authority(authority).expect("well-formed");
            assert_eq!(port_of(authority), port, "{authority}");
        }
    }

    #[test]
    fn a_listener_on_all_addresses_is_met_at_each_address_of_the_machine() {
        let known = listeners(&["0.0.0.0:7253", "[::]:7254"]);
        for at in
            ["127.0.0.1:7253", "127.9.9.9:7254", "[::1]:7253", "0.0.0.0:7254", "10.0.0.1:7253"]
        {
            assert!(known.has(at.parse().expect("an address")), "{at}");
        }
        // An address of no machine (RFC 5737).
        assert!(!known.has("192.0.2.1:7254".parse().expect("an address")));
    }

    #[test]
    fn names_lead_to_members_once_they_are_resolved() {
        let mut known = listeners(&["10.0.0.1:7253"]);
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        assert!(!known.has(at("10.0.0.3:7253")));
        let found = vec!["10.0.0.3".parse().expect("an address")];
        known.set_resolved(Arc::new([("node-3.example".into(), found)]));
        assert!(known.has(at("10.0.0.3:7253")));
        assert!(known.has(at("[::ffff:10.0.0.3]:7253")));
        assert!(!known.has(at("10.0.0.3:9000")));
    }

    #[test]
    fn names_lead_to_the_other_listeners_of_members_as_well() {
        let mut known = listeners(&["10.0.0.1:7253", "127.0.0.1:7911"]);
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let found = |text: &str| vec![text.parse().expect("an address")];
        known.set_resolved(Arc::new([("node-3.example".into(), found("10.0.0.3"))]));
        assert!(known.has(at("10.0.0.3:7911")), "timestamps, at the port of this node");
        assert!(!known.has(at("10.0.0.4:7254")));
        known.set_resolved_admins(Arc::new([("admin-3".into(), found("10.0.0.4"))]));
        assert!(known.has(at("10.0.0.4:7254")));
        assert!(!known.has(at("10.0.0.4:7253")), "a host of admin APIs alone");
        assert!(known.has(at("10.0.0.3:7253")), "one list leaves the other as it is");
    }
}
