//! What two nodes tell each other as they meet, and why one of them refuses the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::base::time::WallMs;
use crate::shard::effects::Dialect;

/// What the two ends of a connection tell each other in the headers of its HTTP Upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The node's name, exactly as members write it.
    pub name: String,
    /// The node's instance bits in ids and versions.
    pub instance: u16,
    /// A number drawn when the process starts. Another number means that the node may have lost
    /// everything.
    pub incarnation: u64,
    /// The node's `cluster-view-id`.
    pub view_id: u64,
    /// The number of the core at this end.
    pub shard: u16,
    /// How many cores the node has.
    pub shards: u16,
    /// Since when, by its wall clock, the node holds everything that it acknowledged and that has
    /// not ended. `None`: the node does not tell.
    pub complete_since: Option<WallMs>,
    /// What the node's site calls itself. `None`: the node does not tell.
    pub site: Option<String>,
}

/// Why a peer, or a request of one, is refused that comes without TLS.
pub const PLAIN: &str = "the nodes of this cluster speak TLS with each other, and this one came \
    without: give it a certificate of the cluster's authority and cluster.tls = \"accept-both\" \
    or \"required\". Nodes of the original service cannot be members beside it";

/// Why a peer's connection is refused: with 403, 409 or 426, or with 503 when the reason will pass.
/// The text goes to the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloRefusal {
    /// The peer is no member, and `cluster.accept_strangers` is off.
    #[error("{0} is no member of this cluster as {1} is configured")]
    Stranger(String, String),
    /// Two live processes say that they are one node. The peer says that it is this node, or
    /// another process is the node that the peer says it is.
    #[error(
        "two processes say that they are {0}; stop one of the two, or give one of them another \
         address"
    )]
    Twins(String),
    /// The peer does not call from the address of the node that it says it is. The text says more.
    #[error("{0}")]
    Elsewhere(String),
    /// The peer does not prove that it knows the cluster's secret. The text says more.
    #[error("{0}")]
    Unproven(&'static str),
    /// The peer speaks no TLS, and this node takes peers over TLS only.
    #[error("{PLAIN}")]
    Plain,
    /// The certificate that the peer has shown does not have the peer's name.
    #[error(
        "the certificate that this node shows does not have its name {0}: make one that has it \
         (chronos cluster certs --node)"
    )]
    Misnamed(String),
    /// The peer belongs to no site that is configured here. The text says more.
    #[error("{0}")]
    NoSite(String),
    /// The peer wants a proof of a secret, and this node has no secret.
    #[error("expected Upgrade: chronos-peer/1; this node has no cluster.secret_file")]
    NoSecret,
    /// Members are configured by names that this node has not looked up yet.
    #[error("the addresses of some members are not known here yet; try again in a moment")]
    Unresolved,
    /// There are more connections than all cores of all peers need.
    #[error("too many connections between nodes end at this core")]
    TooMany,
}

/// How a dialled connection turned out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connected {
    /// Frames if the Upgrade was accepted, else the internal HTTP API.
    pub dialect: Dialect,
    /// What the peer said of itself. An original node says nothing.
    pub hello: Option<Hello>,
}

/// Since when all shards of a node hold what they acknowledged: the latest of them counts. The
/// cores of a node share one.
#[derive(Clone, Debug, Default)]
pub struct CompleteSince {
    since: Arc<AtomicU64>,
    at_start: Arc<AtomicU64>,
}

impl CompleteSince {
    /// Tells that a shard has been complete since a moment, and not before; `is_start`: as the
    /// process begins.
    pub fn note(&self, since: WallMs, is_start: bool) {
        self.since.fetch_max(since.0, Relaxed);
        if is_start {
            self.at_start.fetch_max(since.0, Relaxed);
        }
    }

    /// Since when all of them are complete; `None`: nothing was told yet.
    pub fn get(&self) -> Option<WallMs> {
        moment(&self.since)
    }

    /// Since when all of them were complete as the process began. What they refused since, for lack
    /// of room, does not count.
    pub fn at_start(&self) -> Option<WallMs> {
        moment(&self.at_start)
    }
}

fn moment(since: &AtomicU64) -> Option<WallMs> {
    Some(WallMs(since.load(Relaxed))).filter(|since| since.0 > 0)
}

/// What a core knows of its process.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// A number drawn when the process starts. All cores of the process have the same.
    pub incarnation: u64,
    /// Whether nodes that are no members may connect (`cluster.accept_strangers`).
    pub accepts_strangers: bool,
    /// Since when the shards of the process are complete.
    pub complete_since: CompleteSince,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_later_does_not_count_as_lost_at_the_start() {
        let complete = CompleteSince::default();
        assert_eq!((complete.get(), complete.at_start()), (None, None));
        [3, 5, 4].iter().for_each(|since| complete.note(WallMs(*since), true));
        complete.clone().note(WallMs(9), false);
        assert_eq!(complete.get(), Some(WallMs(9)), "the latest of all shards");
        assert_eq!(complete.at_start(), Some(WallMs(5)));
    }
}
