//! The members of a site as one node sees them, and where they put timers
//! (docs/compat/timer-service.md §3).
//!
//! A view never changes: a new configuration makes a new one that knows the peers of the former
//! under the same numbers.

use std::net::{Ipv6Addr, SocketAddr};

use super::bloom::{may_hold, node_bits};
use super::murmur3::x86_32;
use super::rendezvous::{Member, Rendezvous};
use crate::base::ids::{NodeHash, PeerIndex, PeerSet, SiteHash, TimerId, mix};
use crate::base::limits::{PEERS_MAX, SITES_PER_TIMER_MAX};
use crate::base::ranked::{Replicas, Sites};
use crate::wire::callback_uri::is_authority;

/// The site of a node that names none (docs/compat/timer-service.md §2).
pub const LOCAL_SITE_DEFAULT: &str = "site1";

/// What the configuration says (docs/compat/timer-service.md §2, `[cluster]` and `[sites]`).
/// Without any list the cluster is `localhost` alone.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Membership {
    /// This node, exactly as every member writes it.
    pub localhost: String,
    /// Nodes that are members and stay so.
    pub nodes: Vec<String>,
    /// Nodes that are being added.
    pub joining: Vec<String>,
    /// Nodes that are being removed.
    pub leaving: Vec<String>,
    /// The site of this node; empty means [`LOCAL_SITE_DEFAULT`].
    pub local_site: String,
    /// Other sites: name, and the address of one of its nodes or a host name that means any of
    /// them. Named again with another address, a site is dialled there as well.
    pub remote_sites: Vec<(String, String)>,
    /// Whether new timers are replicated to the other sites.
    pub replicate_across_sites: bool,
}

/// Why a configuration is no cluster; the text says what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MembershipError(pub String);

/// What a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    /// A node of this site, this node included; whether it still is a member is told by the sets.
    Node(NodeHash),
    /// Another site.
    Site(SiteHash),
}

/// One peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// As configured: hashed for placement and filters, compared with what a peer says it is.
    pub name: String,
    /// Where to dial: `name` for a node, the address for a site. May lack a port.
    pub address: String,
    /// Where else to dial a site.
    pub others: Vec<String>,
    /// What it is.
    pub kind: PeerKind,
    /// Its bits in filters (nodes).
    pub filter_bits: u64,
}

/// The cluster as one node sees it.
#[derive(Clone, Debug)]
pub struct View {
    own: PeerIndex,
    own_hash: NodeHash,
    peers: Vec<Peer>,
    /// Nodes by their hashes, members before former members, so that a member is found where both
    /// have the same.
    by_hash: Vec<(NodeHash, PeerIndex)>,
    /// Nodes and joining nodes: where timers are to be.
    new: Rendezvous,
    /// Nodes and leaving nodes: where timers were.
    old: Rendezvous,
    id: u64,
    local_site: (String, SiteHash),
    remote_sites: Vec<(SiteHash, PeerIndex)>,
    sites: Sites,
    has_left: bool,
}

impl View {
    /// A cluster of this node alone.
    pub fn alone(name: &str) -> Self {
        let localhost = if name.is_empty() { "localhost" } else { name };
        let membership = Membership { localhost: localhost.to_owned(), ..Membership::default() };
        Self::build(None, &membership).expect("a node alone contradicts nobody")
    }

    /// The view that a configuration means; peers of `former` keep their numbers. Refused: an
    /// address listed twice (in one list or in two), a node that is not in any list although lists
    /// exist, more peers than [`crate::base::limits::PEERS_MAX`] (former ones included), an empty
    /// name; a site named twice with one address, or like this one; another `localhost` than that
    /// of `former`.
    pub fn build(former: Option<&View>, membership: &Membership) -> Result<View, MembershipError> {
        check_nodes(former, membership)?;
        check_sites(membership)?;
        let mut peers = former.map_or_else(Vec::new, |former| former.peers.clone());
        let alone = [membership.localhost.clone()];
        let lists = [&membership.nodes, &membership.joining, &membership.leaving];
        let is_alone = lists.iter().all(|list| list.is_empty());
        let nodes = if is_alone { &alone[..] } else { &membership.nodes };
        let mut taken = Vec::new();
        let mut number = |names: &[String]| -> Result<Vec<Member>, MembershipError> {
            names.iter().map(|name| number_node(&mut peers, &mut taken, name)).collect()
        };
        let staying = number(nodes)?;
        let joining = number(&membership.joining)?;
        let leaving = number(&membership.leaving)?;
        let mut remote_sites: Vec<(SiteHash, PeerIndex)> = Vec::new();
        for (name, address) in &membership.remote_sites {
            match remote_sites.iter().find(|(known, _)| *known == site_hash(name)) {
                Some((_, peer)) => peers[peer.index()].others.push(address.clone()),
                None => remote_sites.push(number_site(&mut peers, name, address)?),
            }
        }
        let own = staying.iter().chain(&joining).chain(&leaving);
        let own = own.copied().find(|m| peers[m.peer.index()].name == membership.localhost);
        let own = own.expect("checked: this node is in a list");
        let local_site = local_site_of(membership);
        let new = Rendezvous::of([&staying[..], &joining].concat());
        let was_member = |former: &View| former.has_left || !former.connected_nodes().is_empty();
        let filters = new.members().iter().map(|member| peers[member.peer.index()].filter_bits);
        Ok(Self {
            own: own.peer,
            own_hash: own.node,
            by_hash: by_hash(&peers, &[&staying[..], &joining, &leaving].concat()),
            id: filters.fold(0, |id, bits| id | bits),
            sites: sites_of(site_hash(local_site), &remote_sites, membership),
            new,
            old: Rendezvous::of([&staying[..], &leaving].concat()),
            local_site: (local_site.to_owned(), site_hash(local_site)),
            remote_sites,
            peers,
            has_left: is_alone && former.is_some_and(was_member),
        })
    }

    /// This node.
    pub fn own(&self) -> PeerIndex {
        self.own
    }

    /// The hash of this node.
    pub fn own_hash(&self) -> NodeHash {
        self.own_hash
    }

    /// All peers, this node and former members included, in the order of their numbers.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Nodes of the new or the old cluster, without this one: those to be connected with.
    pub fn connected_nodes(&self) -> PeerSet {
        self.new.everybody().union(self.old.everybody()).without(self.own)
    }

    /// Sites to be connected with: all others that are configured. Also when new timers are not
    /// replicated across sites: older ones may still be.
    pub fn connected_sites(&self) -> PeerSet {
        self.remote_sites.iter().fold(PeerSet::EMPTY, |set, (_, peer)| set.with(*peer))
    }

    /// Nodes where timers are to be (staying and joining), this one included if it is one.
    pub fn new_nodes(&self) -> PeerSet {
        self.new.everybody()
    }

    /// Nodes where timers were (staying and leaving), this one included if it is one.
    pub fn old_nodes(&self) -> PeerSet {
        self.old.everybody()
    }

    /// Whether nodes join or leave at present.
    pub fn is_changing(&self) -> bool {
        self.new.everybody() != self.old.everybody()
    }

    /// Whether this node had other members and its lists have none any more: it was taken out of
    /// its cluster, and runs on. One that is started without lists is a cluster of itself.
    pub fn has_left(&self) -> bool {
        self.has_left
    }

    /// Whether this node is being added: others hold timers, it is to hold some.
    pub fn is_joining(&self) -> bool {
        let others = self.old.everybody();
        !others.contains(self.own) && !others.is_empty()
    }

    /// The hash of a node; that of no node for a site.
    pub fn hash_of(&self, peer: PeerIndex) -> NodeHash {
        let found = self.by_hash.iter().find(|(_, known)| *known == peer);
        found.map_or(NodeHash(u32::MAX), |(hash, _)| *hash)
    }

    /// The peer with this hash, former members included. Cost: one comparison per node.
    pub fn peer_of(&self, node: NodeHash) -> Option<PeerIndex> {
        self.by_hash.iter().find(|(hash, _)| *hash == node).map(|(_, peer)| *peer)
    }

    /// The peer that is this site; none for the own one, and for one that is configured no more.
    pub fn peer_of_site(&self, site: SiteHash) -> Option<PeerIndex> {
        self.remote_sites.iter().find(|(hash, _)| *hash == site).map(|(_, peer)| *peer)
    }

    /// The known nodes of a list, former members included.
    pub fn peers_of(&self, replicas: &Replicas) -> PeerSet {
        let known = replicas.as_slice().iter().filter_map(|node| self.peer_of(*node));
        known.fold(PeerSet::EMPTY, PeerSet::with)
    }

    /// The replicas of a timer: the first `factor` of the new cluster in rendezvous order, those
    /// not in `live` left out as if they were no members; nobody if none is left. `live` has this
    /// node in it where this node is to be considered. Cost: one hash of 8 bytes per node.
    pub fn place(&self, id: TimerId, factor: u8, live: PeerSet) -> Replicas {
        self.new.first(id, factor, live)
    }

    /// The replicas under the old cluster.
    pub fn place_old(&self, id: TimerId, factor: u8) -> Replicas {
        self.old.first(id, factor, self.old.everybody())
    }

    /// Known nodes whose bits are all in the filter, this node and former members included. All
    /// that were put in are among them; others may be.
    pub fn matching(&self, filter: u64) -> PeerSet {
        let nodes = self.by_hash.iter().map(|(_, peer)| *peer);
        nodes
            .filter(|peer| may_hold(filter, self.peers[peer.index()].filter_bits))
            .fold(PeerSet::EMPTY, PeerSet::with)
    }

    /// The bloom filter of a list; nodes that were never members here are left out.
    pub fn filter_of(&self, replicas: &Replicas) -> u64 {
        let known = replicas.as_slice().iter().filter_map(|node| self.peer_of(*node));
        known.fold(0, |filter, peer| filter | self.peers[peer.index()].filter_bits)
    }

    /// `cluster-view-id`: the filters of the new cluster's nodes, united.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// 32 bits that tell clusters apart in which timers are placed differently: the hashes of the
    /// new cluster's nodes, in any order.
    pub fn digest(&self) -> u32 {
        let nodes = self.new.members().iter().map(|member| mix(member.node.0.into()));
        let sum = nodes.fold(0, u64::wrapping_add);
        (sum ^ sum >> 32) as u32
    }

    /// The sites of a new timer, this one first; empty when there is no other, or timers are not
    /// replicated across sites.
    pub fn sites(&self) -> Sites {
        self.sites
    }

    /// The sites of a timer after its next pop: those it has that are still configured, in their
    /// order, and those that were added. Empty stays empty when timers are not replicated.
    pub fn next_sites(&self, held: &Sites) -> Sites {
        if self.sites.is_empty() {
            return Sites::new();
        }
        let stays = held.as_slice().iter().filter(|site| self.sites.contains(**site));
        let added = self.sites.as_slice().iter().filter(|site| !held.contains(**site));
        stays.chain(added).copied().collect()
    }

    /// The node with this name, former members included.
    pub fn node_named(&self, name: &str) -> Option<PeerIndex> {
        let is_meant = |peer: &Peer| peer.name == name && matches!(peer.kind, PeerKind::Node(_));
        self.peers.iter().position(is_meant).map(|number| PeerIndex(number as u8))
    }

    /// This site.
    pub fn local_site(&self) -> SiteHash {
        self.local_site.1
    }

    /// The name of this or a configured other site, for the JSON that original nodes read.
    pub fn name_of_site(&self, site: SiteHash) -> Option<&str> {
        if site == self.local_site.1 {
            return Some(&self.local_site.0);
        }
        self.peer_of_site(site).map(|peer| self.name_of(peer))
    }

    /// Where a peer may be dialled: several addresses for a site.
    pub fn addresses_of(&self, peer: PeerIndex) -> impl Iterator<Item = &str> + Clone {
        let peer = &self.peers[peer.index()];
        std::iter::once(&peer.address).chain(&peer.others).map(String::as_str)
    }

    /// The name of a node or site, for the JSON that original nodes read.
    pub fn name_of(&self, peer: PeerIndex) -> &str {
        &self.peers[peer.index()].name
    }
}

/// The hash of a site's name.
pub fn site_hash(name: &str) -> SiteHash {
    SiteHash(x86_32(name.as_bytes(), 0))
}

fn local_site_of(membership: &Membership) -> &str {
    let name = membership.local_site.as_str();
    if name.is_empty() { LOCAL_SITE_DEFAULT } else { name }
}

fn refused<T>(text: String) -> Result<T, MembershipError> {
    Err(MembershipError(text))
}

/// Whether a text can be the name of a node: its address, as `host`, `host:port` or an IPv6
/// address. Names stand in files of lines, in commands and in documents: nothing else may look like
/// one. Port 0 is that of a node alone that takes a free one.
pub fn is_node_name(text: &str) -> bool {
    let is_address = || text.parse::<Ipv6Addr>().is_ok() || text.parse::<SocketAddr>().is_ok();
    is_authority(text) || is_address()
}

fn check_nodes(former: Option<&View>, membership: &Membership) -> Result<(), MembershipError> {
    let own = membership.localhost.as_str();
    if own.is_empty() {
        return refused("localhost is empty; set it to the address of this node".to_owned());
    }
    if !is_node_name(own) {
        return refused(format!(
            "localhost is {own:?}, which is no address of a node; expected host:port as all \
             members write it"
        ));
    }
    let before = former.map_or(own, |former| former.name_of(former.own));
    if before != own {
        return refused(format!(
            "localhost is \"{own}\", but this node runs as \"{before}\"; \
             restart it to give it another address"
        ));
    }
    let mut seen: Vec<(&str, &str)> = Vec::new();
    let lists = [
        ("node", &membership.nodes),
        ("joining", &membership.joining),
        ("leaving", &membership.leaving),
    ];
    for (list, name) in lists.iter().flat_map(|(list, names)| names.iter().map(|n| (*list, n))) {
        if name.is_empty() {
            return refused(format!("an address under \"{list}\" is empty; remove it"));
        }
        if !is_node_name(name) {
            return refused(format!(
                "{name:?} is no address of a node; expected host:port as all members write it"
            ));
        }
        match seen.iter().find(|(_, other)| other == name) {
            Some((first, _)) if *first == list => {
                return refused(format!(
                    "\"{name}\" is listed twice under \"{list}\"; list it once"
                ));
            }
            Some((first, _)) => {
                return refused(format!(
                    "\"{name}\" is listed under \"{first}\" and under \"{list}\"; a node that \
                     stays is under \"node\" only, one that is being added under \"joining\" \
                     only, one that is being removed under \"leaving\" only"
                ));
            }
            None => seen.push((list, name)),
        }
    }
    if !seen.is_empty() && !seen.iter().any(|(_, name)| *name == own) {
        return refused(format!(
            "this node is \"{own}\" (localhost), and no list has that address; add it under \
             \"node\" (\"joining\" while it is being added), written exactly like this, or set \
             localhost to the address under which it is listed"
        ));
    }
    Ok(())
}

fn check_sites(membership: &Membership) -> Result<(), MembershipError> {
    let local = local_site_of(membership);
    let mut seen = vec![(local, "")];
    for (name, address) in &membership.remote_sites {
        if name.is_empty() || address.is_empty() {
            return refused(format!(
                "the remote site \"{name}={address}\" lacks its name or its address; write it as \
                 name=address"
            ));
        }
        if !is_node_name(address) {
            return refused(format!(
                "the remote site \"{name}={address}\" has no address; expected the host:port of a \
                 node there, or a host name that means any of them"
            ));
        }
        if name == local || seen.contains(&(name, address)) {
            return refused(format!(
                "the site \"{name}\" is named twice (the local site counts); list every other \
                 site once, or with another address each time"
            ));
        }
        let is_alike = |other: &&str| *other != name && site_hash(other) == site_hash(name);
        if let Some(other) = seen.iter().map(|(other, _)| *other).find(is_alike) {
            return refused(format!(
                "the sites \"{name}\" and \"{other}\" have the same hash; rename one of them"
            ));
        }
        seen.push((name, address));
    }
    Ok(())
}

/// The node's number, old or new, and its hash: that of its name, decremented until none of `taken`
/// is the same. An original node makes hashes unique within the new and within the old cluster;
/// here they are within both together, which differs when a joining and a leaving node collide (one
/// pair in 4 000 000 000).
fn number_node(
    peers: &mut Vec<Peer>,
    taken: &mut Vec<NodeHash>,
    name: &str,
) -> Result<Member, MembershipError> {
    let mut node = NodeHash(x86_32(name.as_bytes(), 0));
    while taken.contains(&node) {
        node = NodeHash(node.0.wrapping_sub(1));
    }
    taken.push(node);
    let peer = Peer {
        name: name.to_owned(),
        address: name.to_owned(),
        others: Vec::new(),
        kind: PeerKind::Node(node),
        filter_bits: node_bits(name),
    };
    number_peer(peers, peer).map(|peer| Member { peer, node })
}

fn number_site(
    peers: &mut Vec<Peer>,
    name: &str,
    address: &str,
) -> Result<(SiteHash, PeerIndex), MembershipError> {
    let site = site_hash(name);
    let peer = Peer {
        name: name.to_owned(),
        address: address.to_owned(),
        others: Vec::new(),
        kind: PeerKind::Site(site),
        filter_bits: 0,
    };
    number_peer(peers, peer).map(|peer| (site, peer))
}

/// Puts a peer in the place of the one of its name, or at the end.
fn number_peer(peers: &mut Vec<Peer>, peer: Peer) -> Result<PeerIndex, MembershipError> {
    let is_site = |peer: &Peer| matches!(peer.kind, PeerKind::Site(_));
    let known = |p: &Peer| p.name == peer.name && is_site(p) == is_site(&peer);
    if let Some(number) = peers.iter().position(known) {
        peers[number] = peer;
        return Ok(PeerIndex(number as u8));
    }
    if peers.len() == PEERS_MAX {
        return refused(format!(
            "\"{}\" is one peer too many: a process knows at most {PEERS_MAX} nodes and sites, \
             those that left since it started included; list fewer, or restart it",
            peer.name
        ));
    }
    peers.push(peer);
    Ok(PeerIndex((peers.len() - 1) as u8))
}

/// All nodes, members first.
fn by_hash(peers: &[Peer], members: &[Member]) -> Vec<(NodeHash, PeerIndex)> {
    let mut nodes: Vec<_> = members.iter().map(|member| (member.node, member.peer)).collect();
    for (number, peer) in peers.iter().enumerate() {
        let number = PeerIndex(number as u8);
        match peer.kind {
            PeerKind::Node(node) if members.iter().all(|member| member.peer != number) => {
                nodes.push((node, number));
            }
            PeerKind::Node(_) | PeerKind::Site(_) => {}
        }
    }
    nodes
}

fn sites_of(
    local_site: SiteHash,
    remote_sites: &[(SiteHash, PeerIndex)],
    membership: &Membership,
) -> Sites {
    if !membership.replicate_across_sites || remote_sites.is_empty() {
        return Sites::new();
    }
    let sites = std::iter::once(local_site).chain(remote_sites.iter().map(|(site, _)| *site));
    sites.take(SITES_PER_TIMER_MAX).collect()
}
