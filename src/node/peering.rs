//! The peers of one core, without sockets: links, detectors, connections from others. The engine
//! drives it over the ring, the simulator over a network of its own.
//!
//! Each core dials every peer node once and talks over that connection about the timers that it
//! owns; what peers tell arrives over connections that they dialled, at whichever core accepted
//! them, and goes to the owners over the mesh.

use crate::base::ids::PeerIndex;
use crate::cluster::link::LinkError;
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

/// Why a peer's connection is refused, with 403 or 409; the text is logged by both sides.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloRefusal {
    /// Not a member, and `cluster.accept_strangers` is off.
    #[error("{0} is no member of this cluster as {1} is configured")]
    Stranger(String, String),
    /// Another live process says that it is this node (or it says that it is we).
    #[error("two processes say that they are {0}; stop one of them or give it another address")]
    Twins(String),
}

/// What the driver is to do for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAction {
    /// Open a connection and upgrade it; tell by `Core::peer_connected` or `Core::peer_lost`.
    Dial(PeerIndex),
    /// Close the connection that was dialled.
    Close(PeerIndex),
    /// `Core::peer_output` has something to say.
    Send(PeerIndex),
    /// `Core::inbound_output` has something to say.
    SendInbound(InboundId),
    /// Close a connection that the peer dialled.
    CloseInbound(InboundId),
}

/// A connection that a peer dialled, on this core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InboundId {
    /// Its place.
    pub place: u32,
    /// The place's life.
    pub generation: u32,
}

/// Errors that end a peer's connection.
pub type PeerError = LinkError;

/// How a dialled connection turned out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connected {
    /// Frames, if the Upgrade was accepted; else the internal HTTP API.
    pub dialect: Dialect,
    /// What the peer said of itself; an original node says nothing.
    pub hello: Option<Hello>,
}
