//! The members of a site as one node sees them, and where they put timers (compat section 3).
//!
//! A view never changes: a new configuration makes a new one that knows the peers of the former
//! under the same numbers.

use crate::base::ids::{NodeHash, PeerIndex, PeerSet, SiteHash, TimerId};
use crate::base::ranked::{Replicas, Sites};

/// What the configuration says (compat section 2, `[cluster]` and `[sites]`).
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
    /// The site of this node.
    pub local_site: String,
    /// Other sites: name, and an address of it or a host name that means any of its nodes.
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
    /// What it is.
    pub kind: PeerKind,
    /// Its bits in filters (nodes).
    pub filter_bits: u64,
}

/// The cluster as one node sees it.
#[derive(Clone, Debug)]
pub struct View {
    own: PeerIndex,
    peers: Vec<Peer>,
    /// Nodes and joining nodes: where timers are to be.
    new: Vec<PeerIndex>,
    /// Nodes and leaving nodes: where timers were.
    old: Vec<PeerIndex>,
    id: u64,
    sites: Sites,
}

impl View {
    /// A cluster of this node alone.
    pub fn alone(name: &str) -> Self {
        let _ = name;
        todo!()
    }

    /// The view that a configuration means; peers of `former` keep their numbers. Refused: an
    /// address listed twice (in one list or in two), a node that is not in any list although lists
    /// exist, more peers than [`crate::base::limits::PEERS_MAX`], an empty name.
    pub fn build(former: Option<&View>, membership: &Membership) -> Result<View, MembershipError> {
        let _ = (former, membership);
        todo!()
    }

    /// This node.
    pub fn own(&self) -> PeerIndex {
        self.own
    }

    /// The hash of this node.
    pub fn own_hash(&self) -> NodeHash {
        todo!()
    }

    /// All peers, this node and former members included, in the order of their numbers.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Nodes of the new or the old cluster, without this one: those to be connected with.
    pub fn connected_nodes(&self) -> PeerSet {
        todo!()
    }

    /// Sites to be connected with.
    pub fn connected_sites(&self) -> PeerSet {
        todo!()
    }

    /// Nodes where timers are to be (staying and joining), this one included if it is one.
    pub fn new_nodes(&self) -> PeerSet {
        todo!()
    }

    /// Whether nodes join or leave at present.
    pub fn is_changing(&self) -> bool {
        todo!()
    }

    /// The peer with this hash.
    pub fn peer_of(&self, node: NodeHash) -> Option<PeerIndex> {
        let _ = node;
        todo!()
    }

    /// The peer that is this site.
    pub fn peer_of_site(&self, site: SiteHash) -> Option<PeerIndex> {
        let _ = site;
        todo!()
    }

    /// The known nodes of a list.
    pub fn peers_of(&self, replicas: &Replicas) -> PeerSet {
        let _ = replicas;
        todo!()
    }

    /// The replicas of a timer: the first `factor` of the new cluster in rendezvous order, those
    /// not in `live` left out as if they were no members. Cost: one hash of 8 bytes per node.
    pub fn place(&self, id: TimerId, factor: u8, live: PeerSet) -> Replicas {
        let _ = (id, factor, live);
        todo!()
    }

    /// The replicas under the old cluster.
    pub fn place_old(&self, id: TimerId, factor: u8) -> Replicas {
        let _ = (id, factor);
        todo!()
    }

    /// Known nodes whose bits are all in the filter.
    pub fn matching(&self, filter: u64) -> PeerSet {
        let _ = filter;
        todo!()
    }

    /// The bloom filter of a list.
    pub fn filter_of(&self, replicas: &Replicas) -> u64 {
        let _ = replicas;
        todo!()
    }

    /// `cluster-view-id`: the filters of the new cluster's nodes, united.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The sites of a new timer, this one first; empty when there is no other, or timers are not
    /// replicated across sites.
    pub fn sites(&self) -> Sites {
        self.sites
    }

    /// The sites of a timer after its next pop: those it has that are still configured, in their
    /// order, and those that were added. Empty stays empty when timers are not replicated.
    pub fn next_sites(&self, held: &Sites) -> Sites {
        let _ = held;
        todo!()
    }

    /// This site.
    pub fn local_site(&self) -> SiteHash {
        todo!()
    }

    /// The name of a node or site, for the JSON that original nodes read.
    pub fn name_of(&self, peer: PeerIndex) -> &str {
        &self.peers[peer.index()].name
    }
}
