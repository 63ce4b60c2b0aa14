//! The members of a site as one node sees them, and where they put timers
//! (docs/compat/timer-service.md §3).
//!
//! A view never changes. A new configuration makes a new view, which knows the peers of the former
//! view under the same numbers.

// May panic: expectations 2, indices 8.
// Why it does not: peers 8, configured 2.

use std::net::{Ipv6Addr, SocketAddr};

use super::bloom::{may_hold, node_bits};
use super::murmur3::x86_32;
use super::rendezvous::{Member, Rendezvous};
use crate::base::ids::{NodeHash, PeerIndex, PeerSet, SiteHash, TimerId, mix};
use crate::base::limits::{PEERS_MAX, SITES_PER_TIMER_MAX};
use crate::base::ranked::{Replicas, Sites};
use crate::wire::callback_uri::is_host_and_port;

/// The site of a node whose configuration names no site (docs/compat/timer-service.md §2).
pub const LOCAL_SITE_DEFAULT: &str = "site1";

/// The members that the configuration names (docs/compat/timer-service.md §2, `[cluster]` and
/// `[sites]`). When all three lists are empty the cluster is `localhost` alone.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Membership {
    /// The name of this node, exactly as every member writes it.
    pub localhost: String,
    /// Nodes that are members and stay members.
    pub nodes: Vec<String>,
    /// Nodes that are being added.
    pub joining: Vec<String>,
    /// Nodes that are being removed.
    pub leaving: Vec<String>,
    /// The site of this node. Empty means [`LOCAL_SITE_DEFAULT`].
    pub local_site: String,
    /// Other sites: the name of the site, and the address of one of its nodes or a host name that
    /// means any of them. A site may stand here several times with different addresses; each is
    /// dialled.
    pub remote_sites: Vec<(String, String)>,
    /// Whether new timers are replicated to the other sites.
    pub replicate_across_sites: bool,
}

/// Why a configuration makes no cluster. The text says what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MembershipError(pub String);

/// What kind of peer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    /// A node of this site, this node included. Whether the node still is a member is told by
    /// [`View::new_nodes`] and [`View::old_nodes`].
    Node(NodeHash),
    /// Another site as a whole.
    Site(SiteHash),
}

/// One peer of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The name as configured. It is hashed for placement and filters, and compared with the name
    /// that a peer says it has.
    pub name: String,
    /// Where to dial: the name of a node, or the address of a site. It may lack a port.
    pub address: String,
    /// Further addresses at which a site is dialled.
    pub others: Vec<String>,
    /// Whether the peer is a node or a site, with its hash.
    pub kind: PeerKind,
    /// The bits of a node in filters; 0 for a site.
    pub filter_bits: u64,
}

/// The cluster as one node sees it.
#[derive(Clone, Debug)]
pub struct View {
    own: PeerIndex,
    own_hash: NodeHash,
    peers: Vec<Peer>,
    /// Nodes by their hashes. Members stand before former members, so that a search finds the
    /// member where both have the same hash.
    by_hash: Vec<(NodeHash, PeerIndex)>,
    /// Staying and joining nodes: where timers are to be.
    new: Rendezvous,
    /// Staying and leaving nodes: where timers were.
    old: Rendezvous,
    id: u64,
    local_site: (String, SiteHash),
    remote_sites: Vec<(SiteHash, PeerIndex)>,
    sites: Sites,
    has_left: bool,
}

impl View {
    /// A cluster of this node alone. An empty name means `localhost`.
    pub fn alone(name: &str) -> Self {
        let localhost = if name.is_empty() { "localhost" } else { name };
        let membership = Membership { localhost: localhost.to_owned(), ..Membership::default() };
        Self::build(None, &membership).expect("a node alone contradicts nobody")
    }

    /// Returns the view that a configuration means. Peers of `former` keep their numbers. Refuses:
    ///
    /// - a name that is empty or no address, and an address listed twice, in one list or in two
    /// - a configuration whose lists do not name this node, unless all lists are empty
    /// - more peers than [`crate::base::limits::PEERS_MAX`], former peers included
    /// - a site named twice with one address, or named like this node's site
    /// - two sites whose names have the same hash
    /// - another `localhost` than that of `former`
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

    /// The number of this node.
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

    /// Nodes of the new or the old cluster without this node. This node keeps connections with
    /// them.
    pub fn connected_nodes(&self) -> PeerSet {
        self.new.everybody().union(self.old.everybody()).without(self.own)
    }

    /// All other sites that are configured. This node keeps connections with them, even when new
    /// timers are not replicated across sites, because older timers may be.
    pub fn connected_sites(&self) -> PeerSet {
        self.remote_sites.iter().fold(PeerSet::EMPTY, |set, (_, peer)| set.with(*peer))
    }

    /// Nodes where timers are to be: staying and joining nodes. This node is included if it is one.
    pub fn new_nodes(&self) -> PeerSet {
        self.new.everybody()
    }

    /// Nodes where timers were: staying and leaving nodes. This node is included if it is one.
    pub fn old_nodes(&self) -> PeerSet {
        self.old.everybody()
    }

    /// Returns whether nodes join or leave at present.
    pub fn is_changing(&self) -> bool {
        self.new.everybody() != self.old.everybody()
    }

    /// Returns whether this node was taken out of its cluster and runs on: it had other members,
    /// and its lists are empty. A node that is started without lists is a cluster of its own and
    /// has not left.
    pub fn has_left(&self) -> bool {
        self.has_left
    }

    /// Returns whether this node is being added to a cluster in which other nodes hold the timers.
    pub fn is_joining(&self) -> bool {
        let others = self.old.everybody();
        !others.contains(self.own) && !others.is_empty()
    }

    /// Returns the hash of a node. For a site it returns `u32::MAX`, the hash of no node.
    pub fn hash_of(&self, peer: PeerIndex) -> NodeHash {
        let found = self.by_hash.iter().find(|(_, known)| *known == peer);
        found.map_or(NodeHash(u32::MAX), |(hash, _)| *hash)
    }

    /// Returns the node with this hash, former members included. Cost: one comparison per node.
    pub fn peer_of(&self, node: NodeHash) -> Option<PeerIndex> {
        self.by_hash.iter().find(|(hash, _)| *hash == node).map(|(_, peer)| *peer)
    }

    /// Returns the peer that stands for this site. `None` for this node's site, and for a site that
    /// is no longer configured.
    pub fn peer_of_site(&self, site: SiteHash) -> Option<PeerIndex> {
        self.remote_sites.iter().find(|(hash, _)| *hash == site).map(|(_, peer)| *peer)
    }

    /// Returns the nodes of a list that this view knows, former members included.
    pub fn peers_of(&self, replicas: &Replicas) -> PeerSet {
        let known = replicas.as_slice().iter().filter_map(|node| self.peer_of(*node));
        known.fold(PeerSet::EMPTY, PeerSet::with)
    }

    /// Returns the replicas of a timer: the first `factor` nodes of the new cluster in rendezvous
    /// order. Nodes that are not in `live` are left out as if they were no members; the result may
    /// be empty. `live` contains this node where this node is to be considered. Cost: one hash of 8
    /// bytes per node.
    pub fn place(&self, id: TimerId, factor: u8, live: PeerSet) -> Replicas {
        self.new.first(id, factor, live)
    }

    /// Returns the replicas of a timer under the old cluster, dead nodes included.
    pub fn place_old(&self, id: TimerId, factor: u8) -> Replicas {
        self.old.first(id, factor, self.old.everybody())
    }

    /// Returns the known nodes whose bits are all in the filter, this node and former members
    /// included. The result contains every node that was put in the filter, and may contain others.
    pub fn matching(&self, filter: u64) -> PeerSet {
        let nodes = self.by_hash.iter().map(|(_, peer)| *peer);
        nodes
            .filter(|peer| may_hold(filter, self.peers[peer.index()].filter_bits))
            .fold(PeerSet::EMPTY, PeerSet::with)
    }

    /// Returns the bloom filter of a list. Nodes that this view does not know are left out.
    pub fn filter_of(&self, replicas: &Replicas) -> u64 {
        let known = replicas.as_slice().iter().filter_map(|node| self.peer_of(*node));
        known.fold(0, |filter, peer| filter | self.peers[peer.index()].filter_bits)
    }

    /// The `cluster-view-id`: the united filter bits of the new cluster's nodes.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns 32 bits that differ between clusters that place timers differently. They are
    /// computed from the hashes of the new cluster's nodes, in any order.
    pub fn digest(&self) -> u32 {
        let nodes = self.new.members().iter().map(|member| mix(member.node.0.into()));
        let sum = nodes.fold(0, u64::wrapping_add);
        (sum ^ sum >> 32) as u32
    }

    /// Returns 32 bits that differ between lists of sites: computed from the hashes of the names of
    /// all sites, this node's included, in any order. All sites mean the same list by it, whatever
    /// addresses they have of each other.
    pub fn sites_digest(&self) -> u32 {
        let others = self.remote_sites.iter().map(|(site, _)| *site);
        let hashes = others.chain([self.local_site.1]).map(|site| mix(site.0.into()));
        let sum = hashes.fold(0, u64::wrapping_add);
        (sum ^ sum >> 32) as u32
    }

    /// The sites of a new timer, this node's site first. Empty when there is no other site, or when
    /// timers are not replicated across sites.
    pub fn sites(&self) -> Sites {
        self.sites
    }

    /// Returns the sites of a timer after its next pop: first the timer's sites that are still
    /// configured, in their order, then the sites that were added. Empty when timers are not
    /// replicated across sites.
    pub fn next_sites(&self, held: &Sites) -> Sites {
        if self.sites.is_empty() {
            return Sites::new();
        }
        let stays = held.as_slice().iter().filter(|site| self.sites.contains(**site));
        let added = self.sites.as_slice().iter().filter(|site| !held.contains(**site));
        // A site that took the timer first comes first. All sites add others in one order.
        let mut added: Vec<SiteHash> = added.copied().collect();
        added.sort_unstable_by_key(|site| (*site != self.local_site() || !held.is_empty(), site.0));
        stays.copied().chain(added).collect()
    }

    /// Returns how many sites pop a timer before this one: those before it in the timer's list that
    /// are still configured.
    pub fn sites_ahead(&self, sites: &Sites) -> u8 {
        let Some(own) = sites.rank_of(self.local_site()) else { return 0 };
        let ahead = sites.as_slice().iter().take(usize::from(own));
        ahead.filter(|site| self.peer_of_site(**site).is_some()).count() as u8
    }

    /// Returns the node with this name, former members included.
    pub fn node_named(&self, name: &str) -> Option<PeerIndex> {
        let is_meant = |peer: &Peer| peer.name == name && matches!(peer.kind, PeerKind::Node(_));
        self.peers.iter().position(is_meant).map(|number| PeerIndex(number as u8))
    }

    /// The hash of this node's site.
    pub fn local_site(&self) -> SiteHash {
        self.local_site.1
    }

    /// Returns the name of this node's site or of another configured site, for the JSON that
    /// original nodes read.
    pub fn name_of_site(&self, site: SiteHash) -> Option<&str> {
        if site == self.local_site.1 {
            return Some(&self.local_site.0);
        }
        self.peer_of_site(site).map(|peer| self.name_of(peer))
    }

    /// Returns the addresses at which a peer may be dialled: one for a node, one or more for a
    /// site.
    pub fn addresses_of(&self, peer: PeerIndex) -> impl Iterator<Item = &str> + Clone {
        let peer = &self.peers[peer.index()];
        std::iter::once(&peer.address).chain(&peer.others).map(String::as_str)
    }

    /// Returns the name of a node or site, for the JSON that original nodes read.
    pub fn name_of(&self, peer: PeerIndex) -> &str {
        &self.peers[peer.index()].name
    }
}

/// Returns the hash of a site's name.
pub fn site_hash(name: &str) -> SiteHash {
    SiteHash(x86_32(name.as_bytes(), 0))
}

/// Returns the name of this node's own site.
pub(crate) fn local_site_of(membership: &Membership) -> &str {
    let name = membership.local_site.as_str();
    if name.is_empty() { LOCAL_SITE_DEFAULT } else { name }
}

fn refused<T>(text: String) -> Result<T, MembershipError> {
    Err(MembershipError(text))
}

/// Returns whether a text can be the name of a node: its address as `host`, `host:port` or an IPv6
/// address. Names stand in files of lines, in commands and in documents, so no other text may look
/// like a name. Port 0 belongs to a node alone that takes a free port.
pub fn is_node_name(text: &str) -> bool {
    let is_address = || text.parse::<Ipv6Addr>().is_ok() || text.parse::<SocketAddr>().is_ok();
    is_host_and_port(text) || is_address()
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

/// Returns the node's number, old or new, and its hash. The hash is the hash of the name,
/// decremented until it is not in `taken`. An original node makes hashes unique within the new
/// cluster and within the old cluster. This function makes them unique within both together. The
/// two differ when a joining and a leaving node collide (one pair in 4 000 000 000).
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

/// Replaces the peer of the same name and kind, or appends the peer. Refuses a peer beyond
/// [`PEERS_MAX`].
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

/// Returns all nodes with their hashes, members first.
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
