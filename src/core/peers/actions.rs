//! What the peers of a core ask of its driver, and the errors that end a connection with a peer.

use crate::base::ids::PeerIndex;
use crate::base::slots::SlotKey;
use crate::cluster::link::LinkError;

/// What the driver is to do for a peer.
///
/// A connection that the core closes ([`PeerAction::Close`], [`PeerAction::CloseInbound`]) is gone
/// for it already: the driver closes without a further call, and gives up a dial that is under way.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InboundId {
    /// Its place.
    pub place: u32,
    /// The place's life.
    pub generation: u32,
}

impl InboundId {
    /// As the core's table of these connections names it.
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

/// Another site asks for a secret, and this one has none.
pub(crate) const SITE_UNPROVEN: LinkError =
    LinkError::Protocol("another site asks for a proof of its secret");

/// After a silence as long as that in which a node is declared dead, the bytes that come are those
/// of before: from a network that was cut, or from the kernel's buffer when this process got no
/// time. Timers may have ended since, and their tombstones.
pub(crate) const STALE: PeerError =
    PeerError::Protocol("what comes after so long a silence may be outdated");
