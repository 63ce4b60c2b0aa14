//! How a peer is talked to: frames, or the internal HTTP API. The same calls for both, so that the
//! room above knows dialects only by name.

use crate::base::time::{MonoNs, Now};
use crate::cluster::link::{Link, LinkError, LinkFull, LinkLimits};
use crate::cluster::view::View;
use crate::shard::effects::{Dialect, Purpose};
use crate::wire::peer_message::PeerResult;

use super::http_link::HttpLink;

/// The talk to one peer.
pub(super) enum Voice {
    /// A node of ours.
    Frames(Box<Link<Purpose>>),
    /// An original node, or another site.
    Http(Box<HttpLink>),
}

impl Voice {
    /// Frames, nothing said yet.
    pub fn frames(limits: LinkLimits) -> Self {
        Voice::Frames(Box::new(Link::new(limits)))
    }

    /// HTTP, nothing said yet.
    pub fn http(limits: LinkLimits) -> Self {
        Voice::Http(Box::new(HttpLink::new(limits)))
    }

    /// Which of them.
    pub fn dialect(&self) -> Dialect {
        match self {
            Voice::Frames(_) => Dialect::Frames,
            Voice::Http(_) => Dialect::Http,
        }
    }

    /// See [`Link::push`].
    pub fn push(&mut self, message: &[u8], purpose: Purpose) -> Result<(), LinkFull> {
        match self {
            Voice::Frames(link) => link.push(message, purpose),
            Voice::Http(link) => link.push(message, purpose),
        }
    }

    /// See [`Link::room_bytes`].
    pub fn room_bytes(&self) -> usize {
        match self {
            Voice::Frames(link) => link.room_bytes(),
            Voice::Http(link) => link.room_bytes(),
        }
    }

    /// See [`Link::is_empty`].
    pub fn is_empty(&self) -> bool {
        match self {
            Voice::Frames(link) => link.is_empty(),
            Voice::Http(link) => link.is_empty(),
        }
    }

    /// See [`Link::opened`].
    pub fn opened(&mut self, now: MonoNs) {
        match self {
            Voice::Frames(link) => link.opened(now),
            Voice::Http(link) => link.opened(now),
        }
    }

    /// See [`Link::closed`].
    pub fn closed(&mut self) {
        match self {
            Voice::Frames(link) => link.closed(),
            Voice::Http(link) => link.closed(),
        }
    }

    /// See [`Link::clear`].
    pub fn clear(&mut self, forgotten: impl FnMut(Purpose)) {
        match self {
            Voice::Frames(link) => link.clear(forgotten),
            Voice::Http(link) => link.clear(forgotten),
        }
    }

    /// See [`Link::write`].
    pub fn write(&mut self, now: Now, view: &View, out: &mut Vec<u8>) {
        match self {
            Voice::Frames(link) => link.write(now.mono, out),
            Voice::Http(link) => link.write(now, view, out),
        }
    }

    /// See [`Link::next_wake`].
    pub fn next_wake(&self) -> Option<MonoNs> {
        match self {
            Voice::Frames(link) => link.next_wake(),
            Voice::Http(link) => link.next_wake(),
        }
    }

    /// See [`Link::received`].
    pub fn received(
        &mut self,
        now: MonoNs,
        bytes: &[u8],
        result: impl FnMut(Purpose, PeerResult<'_>),
    ) -> Result<(), LinkError> {
        match self {
            Voice::Frames(link) => link.received(now, bytes, result),
            Voice::Http(link) => link.received(now, bytes, result),
        }
    }
}
