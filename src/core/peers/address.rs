//! Where a peer is dialled, and from where, by what the configuration calls it.

use std::net::{IpAddr, SocketAddr};

/// Where a peer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// An IP address and a port.
    At(SocketAddr),
    /// A host name and a port.
    Named(String, u16),
}

/// Reads `10.0.0.1:7253`, `10.0.0.1`, `[fd00::1]:7253`, `fd00::1`, `node-1:7253` or `node-1`. An
/// address without a port gets `port`.
pub fn place_of(address: &str, port: u16) -> PeerAddress {
    if let Ok(whole) = address.parse::<SocketAddr>() {
        return PeerAddress::At(whole);
    }
    let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Ok(ip) = bare.unwrap_or(address).parse::<IpAddr>() {
        return PeerAddress::At(SocketAddr::new(ip, port));
    }
    let named = address.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?)));
    match named {
        Some((name, port)) => PeerAddress::Named(name.to_owned(), port),
        None => PeerAddress::Named(address.to_owned(), port),
    }
}

/// Returns the name or the IP address in an address, without port and brackets.
pub fn host_of(address: &str) -> String {
    match place_of(address, 0) {
        PeerAddress::At(at) => at.ip().to_canonical().to_string(),
        PeerAddress::Named(name, _) => name,
    }
}

/// Returns the addresses from which a node may call the node at `to` so that `to` knows the caller
/// by its address: first the address that is the node's name, then the address on which the node
/// listens.
pub fn sources(own: &str, listen: IpAddr, to: IpAddr) -> Vec<IpAddr> {
    let called = match place_of(own, 0) {
        PeerAddress::At(address) => Some(address.ip()),
        PeerAddress::Named(..) => None,
    };
    // A connection between addresses of different kinds does not come about.
    let leads_there = |from: &IpAddr| {
        !from.is_unspecified()
            && from.is_ipv4() == to.is_ipv4()
            && from.is_loopback() == to.is_loopback()
    };
    called.into_iter().chain([listen]).filter(leads_there).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_calls_from_the_address_that_others_know() {
        let from = |own: &str, listen: &str, to: &str| {
            let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
            let found = sources(own, ip(listen), ip(to));
            found.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(from("10.0.0.1:7253", "0.0.0.0", "10.0.0.2"), "10.0.0.1");
        assert_eq!(from("10.0.0.1:7253", "192.168.0.1", "10.0.0.2"), "10.0.0.1 192.168.0.1");
        assert_eq!(from("node-1:7253", "192.168.0.1", "10.0.0.2"), "192.168.0.1");
        assert_eq!(from("node-1", "0.0.0.0", "10.0.0.2"), "", "the kernel chooses");
        assert_eq!(from("10.0.0.1", "::", "fd00::2"), "", "another family");
        assert_eq!(from("127.0.0.11:80", "127.0.0.11", "127.0.0.12"), "127.0.0.11 127.0.0.11");
        assert_eq!(from("127.0.0.1:80", "127.0.0.1", "10.0.0.2"), "", "not beyond this machine");
        assert_eq!(from("10.0.0.1:80", "10.0.0.1", "127.0.0.1"), "");
    }

    #[test]
    fn addresses_with_and_without_ports() {
        let at = |text: &str| PeerAddress::At(text.parse().expect("an address"));
        let named = |name: &str, port| PeerAddress::Named(name.to_owned(), port);
        for (address, place) in [
            ("10.0.0.1:80", at("10.0.0.1:80")),
            ("10.0.0.1", at("10.0.0.1:7253")),
            ("[fd00::1]:80", at("[fd00::1]:80")),
            ("[fd00::1]", at("[fd00::1]:7253")),
            ("fd00::1", at("[fd00::1]:7253")),
            ("node-1:80", named("node-1", 80)),
            ("node-1.example", named("node-1.example", 7253)),
            ("node-1:http", named("node-1:http", 7253)),
        ] {
            assert_eq!(place_of(address, 7253), place, "{address}");
        }
        for (address, host) in [
            ("10.0.0.1:80", "10.0.0.1"),
            ("[fd00::1]:80", "fd00::1"),
            ("[::ffff:10.0.0.1]:80", "10.0.0.1"),
            ("node-1:80", "node-1"),
        ] {
            assert_eq!(host_of(address), host);
        }
    }
}
