//! What two nodes tell each other as they meet, and why one of them does not want the other.

use crate::shard::effects::Dialect;

/// What the two ends of a connection tell each other in the headers of its HTTP Upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The node's name, exactly as members write it.
    pub name: String,
    /// Its instance bits in ids and versions.
    pub instance: u16,
    /// Drawn when the process starts: another one means that it may have lost everything.
    pub incarnation: u64,
    /// Its `cluster-view-id`.
    pub view_id: u64,
    /// The core at this end.
    pub shard: u16,
    /// Cores of the node.
    pub shards: u16,
}

/// Why a peer's connection is refused, with 403 or 409 (503 when that passes). The text goes to the
/// peer; both sides count it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloRefusal {
    /// Not a member, and `cluster.accept_strangers` is off.
    #[error("{0} is no member of this cluster as {1} is configured")]
    Stranger(String, String),
    /// Another live process says that it is this node (or it says that it is we).
    #[error("two processes say that they are {0}; stop one of them or give it another address")]
    Twins(String),
    /// It does not call from the address of the node that it says it is; the text says more.
    #[error("{0}")]
    Elsewhere(String),
    /// It does not prove that it knows the cluster's secret; the text says more.
    #[error("{0}")]
    Unproven(&'static str),
    /// It is no site that this one is configured with; the text says more.
    #[error("{0}")]
    NoSite(String),
    /// It wants a proof of a secret that this node does not have.
    #[error("expected Upgrade: chronos-peer/1; this node has no cluster.secret_file")]
    NoSecret,
    /// Members are configured by names that this node has not looked up yet.
    #[error("the addresses of some members are not known here yet; try again in a moment")]
    Unresolved,
    /// More connections than all cores of all peers need.
    #[error("too many connections between nodes end at this core")]
    TooMany,
}

/// How a dialled connection turned out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connected {
    /// Frames, if the Upgrade was accepted; else the internal HTTP API.
    pub dialect: Dialect,
    /// What the peer said of itself; an original node says nothing.
    pub hello: Option<Hello>,
}

/// What a core is told of the process that it is part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Drawn when the process starts; the same on all of its cores.
    pub incarnation: u64,
    /// Whether nodes that are no members may connect (`cluster.accept_strangers`).
    pub accepts_strangers: bool,
}
