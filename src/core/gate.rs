//! Who may use the internal API and who may connect as a peer: nodes at the addresses of members.

// May panic: expectations 1, indices 1.
// Why it does not: peers 1, configured 1.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use crate::base::ids::{PeerIndex, PeerSet};
use crate::base::planted::{Bug, is_planted};
use crate::cluster::view::View;

use crate::core::peers::address::{PeerAddress, place_of};
use crate::core::peers::hello::HelloRefusal;
use crate::core::peers::site_members::SiteMembers;

/// Host names of members and sites that the configuration gives by name and that were looked up,
/// each with the addresses that were found.
pub type NamedAddresses = Arc<[(String, Vec<IpAddr>)]>;

/// A node of another site, as it says who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteNode {
    /// The name of its site.
    pub site: String,
    /// Its own name.
    pub name: String,
}

/// Decides who may use the internal API and who may connect as a peer.
///
/// - The internal API is for nodes at an address of a member, at a configured address of another
///   site, or at an address that such a site has told as its member's.
/// - A node may connect as a peer when it calls from its own address.
/// - A node of another site may say who it is when it calls from an address of that site and the
///   site has told it as a member.
#[derive(Debug)]
pub struct Gate {
    accepts_strangers: bool,
    /// The view from which `members` and `names` were computed.
    view: Option<Arc<View>>,
    members: Vec<IpAddr>,
    /// Host names of members and sites. The names that were looked up are in `resolved`.
    names: Vec<String>,
    resolved: Vec<(String, Vec<IpAddr>)>,
    /// How many requests were refused.
    pub refused: u64,
}

impl Gate {
    /// A gate before any view is known. With `accepts_strangers` everybody may come in.
    pub fn new(accepts_strangers: bool) -> Self {
        Self {
            accepts_strangers,
            view: None,
            members: Vec::new(),
            names: Vec::new(),
            resolved: Vec::new(),
            refused: 0,
        }
    }

    /// Sets the addresses of members that are configured by name.
    pub fn set_resolved(&mut self, resolved: NamedAddresses) {
        self.resolved = resolved.to_vec();
    }

    /// Takes the addresses found when a member's name was looked up for a dial, so that a node that
    /// moved is let in at once.
    pub fn resolved(&mut self, name: &str, addresses: &[SocketAddr]) {
        let found = addresses.iter().map(|address| address.ip().to_canonical()).collect();
        // A name whose look-up failed keeps its last addresses.
        if let Some(known) = self.resolved.iter_mut().find(|(known, _)| known == name)
            && !addresses.is_empty()
        {
            known.1 = found;
        }
    }

    /// Returns whether the node at `address` may use the internal API. `Err` is the reason to
    /// answer with a 403, and the refusal is counted. `told` are the addresses of nodes of other
    /// sites, as these sites told them. `address` is called only when the address matters.
    pub fn admit(
        &mut self,
        view: &Arc<View>,
        told: &[IpAddr],
        address: impl FnOnce() -> Option<IpAddr>,
    ) -> Result<(), String> {
        if self.accepts_strangers {
            return Ok(());
        }
        let address = address();
        let is_told = |address: IpAddr| {
            told.contains(&address.to_canonical()) && !is_planted(Bug::SiteMembersUnknown)
        };
        if self.knows(view, address) || address.is_some_and(is_told) {
            return Ok(());
        }
        self.refused += 1;
        Err(self.stranger(address))
    }

    /// Returns whether the node at `address` is let in. Counts nothing.
    pub fn admits(&mut self, view: &Arc<View>, address: Option<IpAddr>) -> bool {
        self.accepts_strangers || self.knows(view, address)
    }

    /// Returns whether the node at `address` may connect as the peer `name`. A caller at an address
    /// of no member learns nothing of the members. A caller at another member's address may not
    /// speak for this member.
    pub fn admit_peer(
        &mut self,
        view: &Arc<View>,
        name: &str,
        address: Option<IpAddr>,
    ) -> Result<(), HelloRefusal> {
        if self.accepts_strangers {
            return Ok(());
        }
        if !self.knows(view, address) {
            let is_known = |name| self.resolved.iter().any(|(known, _)| known == name);
            return Err(if self.names.iter().all(is_known) {
                HelloRefusal::Elsewhere(self.stranger(address))
            } else {
                HelloRefusal::Unresolved
            });
        }
        let Some(peer) = view.node_named(name) else { return Ok(()) };
        let at;
        let its = match place_of(&view.peers()[peer.index()].address, 0) {
            PeerAddress::At(address) => {
                at = [address.ip().to_canonical()];
                &at[..]
            }
            PeerAddress::Named(host, _) => {
                match self.resolved.iter().find(|(known, _)| *known == host) {
                    Some((_, found)) => &found[..],
                    None => return Err(HelloRefusal::Unresolved),
                }
            }
        };
        let address = address.map(|address| address.to_canonical());
        if address.is_some_and(|it| its.contains(&it) || is_local_call(it, its)) {
            return Ok(());
        }
        let address = spoken(address);
        Err(HelloRefusal::Elsewhere(format!(
            "{name} does not have the address {address}, from which this node calls: let it have \
             the one that it calls from in [cluster], or set cluster.accept_strangers = true"
        )))
    }

    /// Returns whether the node at `address` is one of another site, as which it says that it
    /// comes. `told_by` gives what a site has told of its members.
    ///
    /// - Its site must be one of the other sites that are configured.
    /// - It must call from an address of that site, configured or told.
    /// - Its name must be one that the site has told. Until the site has told any, the name must
    ///   not contradict the address that is configured: two sites that know each other by host
    ///   names, or by addresses of a translator, could never begin to tell.
    pub fn admit_site<'t>(
        &mut self,
        view: &View,
        node: &SiteNode,
        address: Option<IpAddr>,
        told_by: impl FnOnce(PeerIndex) -> Option<&'t SiteMembers>,
    ) -> Result<(), HelloRefusal> {
        if self.accepts_strangers {
            return Ok(());
        }
        let judged = self.judge_site(view, node, address, told_by);
        self.refused += u64::from(judged.is_err());
        judged
    }

    fn judge_site<'t>(
        &self,
        view: &View,
        SiteNode { site, name }: &SiteNode,
        address: Option<IpAddr>,
        told_by: impl FnOnce(PeerIndex) -> Option<&'t SiteMembers>,
    ) -> Result<(), HelloRefusal> {
        let refused = |reason| Err(HelloRefusal::NoSite(reason));
        let Some(peer) = view.connected_sites().iter().find(|peer| view.name_of(*peer) == site)
        else {
            return refused(format!(
                "X-Chronos-Site: expected a site of [sites] remote here, got {site}"
            ));
        };
        let told = told_by(peer);
        let (mut its, names) = addresses_in(view, PeerSet::EMPTY.with(peer));
        let found_of = |name| self.resolved.iter().find(|(known, _)| known == name);
        let found = names.iter().filter_map(found_of).flat_map(|(_, found)| found.iter().copied());
        its.extend(found.chain(told.into_iter().flat_map(SiteMembers::callers)));
        let from = address.map(|address| address.to_canonical());
        if !from.is_some_and(|it| its.contains(&it) || is_local_call(it, &its)) {
            if !names.iter().all(|name| found_of(name).is_some()) {
                return Err(HelloRefusal::Unresolved);
            }
            let from = spoken(from);
            return refused(format!("the site {site} has no node at {from}, as far as known here"));
        }
        let is_member = match told {
            Some(told) => told.nodes.contains(name),
            None => view.addresses_of(peer).any(|configured| may_be(configured, name)),
        };
        match is_member {
            true => Ok(()),
            false => refused(format!("the site {site} has no member {name}, as far as known here")),
        }
    }

    /// Appends the members of this site in the form that another site reads (`SiteMembers`).
    pub fn write_members(&self, view: &View, out: &mut Vec<u8>) {
        let site = view.name_of_site(view.local_site()).expect("a site knows its own name");
        let members = view.connected_nodes().with(view.own());
        let nodes = members.iter().map(|peer| view.name_of(peer));
        let (_, names) = addresses_in(view, members);
        let found = names.iter().filter_map(|name| {
            self.resolved.iter().find(|(known, _)| known == name).map(|(_, found)| found)
        });
        SiteMembers::write(site, nodes, found.flatten().copied(), out);
    }

    /// Returns whether this is an address of a member or site.
    pub fn knows(&mut self, view: &Arc<View>, address: Option<IpAddr>) -> bool {
        if self.view.as_ref().is_none_or(|known| !Arc::ptr_eq(known, view)) {
            self.learn(view);
        }
        let Some(it) = address.map(|address| address.to_canonical()) else { return false };
        let mut named = self.resolved.iter().map(|(_, found)| found);
        self.members.contains(&it)
            || named.any(|found| found.contains(&it) || is_local_call(it, found))
    }

    /// The reason that refuses a caller at an address of no member.
    fn stranger(&self, address: Option<IpAddr>) -> String {
        let address = spoken(address.map(|address| address.to_canonical()));
        let names = if self.names.is_empty() { "" } else { " (some are configured by name)" };
        format!(
            "only for members of the cluster{names}, and {address} is none: add it to [cluster], \
             or set cluster.accept_strangers = true"
        )
    }

    fn learn(&mut self, view: &Arc<View>) {
        let (members, names) = addresses(view);
        self.members = members;
        self.names = names;
        self.view = Some(view.clone());
    }
}

fn spoken(address: Option<IpAddr>) -> String {
    address.map_or("the sender".to_owned(), |address| address.to_string())
}

/// Returns the addresses of this node and of all nodes and sites with which it keeps connections,
/// and the host names of those that are configured by name.
pub fn addresses(view: &View) -> (Vec<IpAddr>, Vec<String>) {
    addresses_in(view, view.connected_nodes().union(view.connected_sites()).with(view.own()))
}

/// Returns the addresses of some peers, and the host names of those that are configured by name.
fn addresses_in(view: &View, peers: PeerSet) -> (Vec<IpAddr>, Vec<String>) {
    let (mut literal, mut named) = (Vec::new(), Vec::new());
    for address in peers.iter().flat_map(|peer| view.addresses_of(peer)) {
        match place_of(address, 0) {
            PeerAddress::At(address) => literal.push(address.ip().to_canonical()),
            PeerAddress::Named(name, _) => named.push(name),
        }
    }
    if is_local_call(Ipv4Addr::LOCALHOST.into(), &literal) {
        literal.push(Ipv4Addr::LOCALHOST.into());
    }
    (literal, named)
}

/// Returns whether the node that is dialled at a configured address may have this name: not if both
/// name the same host with different ports.
fn may_be(configured: &str, name: &str) -> bool {
    let is_one = |port, other| port == other || port == 0 || other == 0;
    match (place_of(configured, 0), place_of(name, 0)) {
        (PeerAddress::At(here), PeerAddress::At(there)) => {
            let is_one_host = here.ip().to_canonical() == there.ip().to_canonical();
            !is_one_host || is_one(here.port(), there.port())
        }
        (PeerAddress::Named(here, port), PeerAddress::Named(there, other)) => {
            here != there || is_one(port, other)
        }
        _ => true,
    }
}

/// Returns whether `address` is the one from which a caller with one of the addresses `its` calls
/// on this machine. The kernel gives 127.0.0.1 to a caller that chooses no address, whatever
/// loopback address is the caller's own.
fn is_local_call(address: IpAddr, its: &[IpAddr]) -> bool {
    address == Ipv4Addr::LOCALHOST
        && its.iter().any(|it| matches!(it, IpAddr::V4(it) if it.is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::view::Membership;

    fn view(nodes: &[&str]) -> Arc<View> {
        let membership = Membership {
            localhost: nodes[0].into(),
            nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
            remote_sites: vec![("away".into(), "10.9.0.1:7253".into())],
            ..Membership::default()
        };
        Arc::new(View::build(None, &membership).expect("a good configuration"))
    }

    #[test]
    fn only_members_and_sites_pass_unless_told_otherwise() {
        let view = view(&["10.0.0.1:7253", "10.0.0.2", "node-3:7253"]);
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let mut gate = Gate::new(false);
        for member in ["10.0.0.1", "10.0.0.2", "10.9.0.1", "::ffff:10.0.0.2"] {
            assert_eq!(gate.admit(&view, &[], || Some(ip(member))), Ok(()), "{member}");
        }
        let reason = gate.admit(&view, &[], || Some(ip("10.0.0.3"))).expect_err("a stranger");
        assert!(reason.contains("10.0.0.3") && reason.contains("accept_strangers"), "{reason}");
        assert!(gate.admit(&view, &[], || None).is_err());
        assert_eq!(gate.refused, 2);
        let told = [ip("10.9.0.2")];
        assert_eq!(gate.admit(&view, &told, || Some(told[0])), Ok(()));
        let its = gate.admit_peer(&view, "10.0.0.2", Some(told[0]));
        assert!(its.is_err(), "it may tell copies, it is no peer");
        gate.set_resolved(Arc::new([
            ("node-3".into(), vec![ip("10.0.0.3")]),
            ("of-another-site".into(), vec![ip("10.0.0.9")]),
        ]));
        let mut members = Vec::new();
        gate.write_members(&view, &mut members);
        let members = SiteMembers::parse(&members).expect("written here");
        assert_eq!((members.nodes.len(), &members.addresses[..]), (3, &[ip("10.0.0.3")][..]));
        assert_eq!(gate.admit(&view, &[], || Some(ip("10.0.0.3"))), Ok(()));
        let other = self::view(&["10.0.0.1:7253", "10.0.0.4"]);
        assert!(
            gate.admit(&other, &[], || Some(ip("10.0.0.2"))).is_err(),
            "it is no member any more"
        );
        let unasked = || unreachable!("everybody may");
        assert_eq!(Gate::new(true).admit(&other, &[], unasked), Ok(()));
    }

    #[test]
    fn a_node_of_another_site_is_one_that_its_site_has_told() {
        let view = view(&["10.0.0.1:7253", "10.0.0.2:7253"]);
        let mut gate = Gate::new(false);
        let mut told: Option<SiteMembers> = None;
        let mut admit = |told: &Option<SiteMembers>, site: &str, name: &str, from: &str| {
            let node = SiteNode { site: site.into(), name: name.into() };
            gate.admit_site(&view, &node, from.parse().ok(), |_| told.as_ref())
        };
        // Before the site has told anybody: who does not contradict the configured address.
        for name in ["10.9.0.1:7253", "10.9.0.1", "192.168.7.1:80", "node-1.away"] {
            assert_eq!(admit(&told, "away", name, "10.9.0.1"), Ok(()), "{name}");
        }
        for (site, name, from) in [
            ("away", "10.9.0.1:7254", "10.9.0.1"),
            ("away", "10.9.0.2:7253", "10.9.0.2"),
            ("away", "10.9.0.1:7253", "10.0.0.2"),
            ("away", "10.9.0.1:7253", "nowhere"),
            ("site1", "10.9.0.1:7253", "10.9.0.1"),
            ("nosuchsite", "10.9.0.1:7253", "10.9.0.1"),
        ] {
            let refused = admit(&told, site, name, from);
            assert!(matches!(refused, Err(HelloRefusal::NoSite(_))), "{site} {name} {from}");
        }
        let nodes = vec!["10.9.0.1:7253".into(), "10.9.0.2:7253".into(), "node-3:7253".into()];
        let addresses = vec!["10.9.0.3".parse().expect("an address")];
        told = Some(SiteMembers { site: "away".into(), nodes, addresses });
        for (name, from) in [
            ("10.9.0.1:7253", "10.9.0.1"),
            ("10.9.0.2:7253", "::ffff:10.9.0.2"),
            ("node-3:7253", "10.9.0.3"),
        ] {
            assert_eq!(admit(&told, "away", name, from), Ok(()), "{name}");
        }
        for (name, from) in [("192.168.7.1:80", "10.9.0.1"), ("10.9.0.2:7253", "10.0.0.2")] {
            assert!(admit(&told, "away", name, from).is_err(), "{name} {from}");
        }
        assert_eq!(gate.refused, 8);
        let node = SiteNode { site: "nosuchsite".into(), name: "x".into() };
        let all = Gate::new(true).admit_site(&view, &node, None, |_| unreachable!("all may"));
        assert_eq!(all, Ok(()));
    }

    #[test]
    fn a_peer_must_call_from_the_address_of_its_name() {
        let nodes = ["10.0.0.1:7253", "10.0.0.2", "node-3:7253", "127.0.0.11:7253"];
        let view = view(&nodes);
        let ip = |text: &str| Some(text.parse::<IpAddr>().expect("an address"));
        let mut gate = Gate::new(false);
        let mut admit = |name: &str, from: &str| gate.admit_peer(&view, name, ip(from));
        assert_eq!(admit("10.0.0.2", "10.0.0.66"), Err(HelloRefusal::Unresolved), "may be node-3");
        gate.set_resolved(Arc::new([("node-3".into(), ip("10.0.0.3").into_iter().collect())]));
        let mut admit = |name: &str, from: &str| gate.admit_peer(&view, name, ip(from));
        let nobody = admit("10.0.0.2", "10.0.0.66");
        let Err(HelloRefusal::Elsewhere(reason)) = &nobody else { panic!("{nobody:?}") };
        assert!(!reason.contains("10.0.0.2"), "a stranger learns who is a member: {reason}");
        assert_eq!(admit("10.0.0.77", "10.0.0.66"), nobody, "the same for any name");
        for known in ["10.0.0.2 10.0.0.2", "10.0.0.2 ::ffff:10.0.0.2", "node-3:7253 10.0.0.3"] {
            let (name, address) = known.split_once(' ').expect("two");
            assert_eq!(admit(name, address), Ok(()), "{known}");
        }
        for other in ["10.0.0.1", "10.9.0.1", "10.0.0.3", "127.0.0.1"] {
            assert!(matches!(admit("10.0.0.2", other), Err(HelloRefusal::Elsewhere(_))), "{other}");
        }
        assert_eq!(admit("127.0.0.11:7253", "127.0.0.1"), Ok(()), "on this machine");
        assert!(admit("127.0.0.11:7253", "10.0.0.2").is_err());
        assert!(admit("node-3:7253", "10.0.0.2").is_err());
        assert!(admit("node-3:7253", "10.0.0.4").is_err());
        assert_eq!(admit("10.0.0.77", "10.0.0.2"), Ok(()), "its name is looked at next");
        assert!(gate.admit_peer(&view, "10.0.0.2", None).is_err());
        gate.resolved("node-3", &["10.0.0.4:7253".parse().expect("an address")]);
        gate.resolved("node-3", &[]);
        assert_eq!(gate.admit_peer(&view, "node-3:7253", ip("10.0.0.4")), Ok(()), "it moved");
        assert_eq!(gate.refused, 0, "that counts for the internal API");
        assert_eq!(Gate::new(true).admit_peer(&view, "10.0.0.2", ip("10.0.0.66")), Ok(()));
    }
}
