//! What the peers of a core ask of its driver, and the errors that end a connection with a peer.

use crate::base::ids::PeerIndex;
use crate::base::slots::SlotKey;
use crate::cluster::link::LinkError;

/// What the driver is to do for a peer.
///
/// A connection that the core closes ([`PeerAction::Close`], [`PeerAction::CloseInbound`]) no
/// longer exists for the core. The driver closes it without a further call, and gives up a dial
/// that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAction {
    /// Open a connection and upgrade it. Then call `Core::peer_connected` or `Core::peer_lost`.
    Dial(PeerIndex),
    /// Close the connection that was dialled.
    Close(PeerIndex),
    /// Call `Core::peer_output` and send what it appends.
    Send(PeerIndex),
    /// Call `Core::inbound_output` and send what it appends.
    SendInbound(InboundId),
    /// Close a connection that the peer dialled.
    CloseInbound(InboundId),
}

/// A connection that a peer dialled, on this core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InboundId {
    /// The entry in the core's table of these connections.
    pub place: u32,
    /// Tells the present connection in this entry from former ones.
    pub generation: u32,
}

impl InboundId {
    /// The key of this connection in the core's table.
    pub(crate) fn key(self) -> SlotKey {
        SlotKey { index: self.place, generation: self.generation }
    }
}

impl From<SlotKey> for InboundId {
    fn from(key: SlotKey) -> Self {
        Self { place: key.index, generation: key.generation }
    }
}

/// Errors that end a peer's connection.
pub type PeerError = LinkError;

/// Another site asks for a proof of a secret, and this site has no secret.
pub(crate) const SITE_UNPROVEN: LinkError =
    LinkError::Protocol("another site asks for a proof of its secret");

/// Another site does not know this one, or this node.
pub(crate) const SITE_REFUSES: LinkError =
    LinkError::Protocol("another site does not know this node");

/// Bytes came after a silence as long as the one after which a node is declared dead. Such bytes
/// are old: they come from a network that was cut, or from the kernel's buffer when this process
/// got no time. The timers that they tell of may have ended since, and the tombstones of these
/// timers, too.
pub(crate) const STALE: PeerError =
    PeerError::Protocol("what comes after so long a silence may be outdated");
