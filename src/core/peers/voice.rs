//! How a peer is talked to: in frames, or over the internal HTTP API. Both have the same calls. One
//! link keeps the messages that are not acknowledged.

use std::ops::RangeInclusive;

use crate::base::ids::PeerIndex;
use crate::base::time::{MonoNs, Now, WallMs};
use crate::cluster::link::{Link, LinkError, LinkFull, LinkLimits};
use crate::cluster::view::View;
use crate::shard::effects::{Dialect, Purpose};
use crate::wire::peer_message::PeerResult;
use crate::wire::site_news::SiteNews;

use crate::core::peers::http_talk::HttpTalk;
use crate::core::peers::site_members::SiteMembers;

/// The talk to one peer.
pub(crate) struct Voice {
    limits: LinkLimits,
    to_site: bool,
    link: Link<Purpose>,
    dialect: Dialect,
    /// The talk on the present connection, if it speaks HTTP.
    http: Option<Box<HttpTalk>>,
}

impl Voice {
    /// A voice without a connection. Other sites are talked to over HTTP alone.
    pub fn new(limits: LinkLimits, to_site: bool) -> Self {
        let dialect = if to_site { Dialect::Http } else { Dialect::Frames };
        Self { limits, to_site, link: Link::new(limits), dialect, http: None }
    }

    /// The dialect of the present connection, or of the last one.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// See [`Link::push`].
    pub fn push(&mut self, message: &[u8], purpose: Purpose) -> Result<(), LinkFull> {
        self.link.push(message, purpose)
    }

    /// See [`Link::room_bytes`].
    pub fn room_bytes(&self) -> usize {
        self.link.room_bytes()
    }

    /// See [`Link::len`].
    pub fn len(&self) -> usize {
        self.link.len()
    }

    /// See [`Link::kept_bytes`].
    pub fn kept_bytes(&self) -> usize {
        self.link.kept_bytes()
    }

    /// Returns whether the peer was heard since `frames` was the count of [`Voice::frames`]. Over
    /// HTTP any bytes count, because no length is guessed there.
    pub fn has_heard(&self, frames: u64) -> bool {
        self.dialect == Dialect::Http || self.link.frames() != frames
    }

    /// See [`Link::frames`].
    pub fn frames(&self) -> u64 {
        self.link.frames()
    }

    /// See [`Link::set_view`].
    pub fn set_view(&mut self, digest: u32) {
        self.link.set_view(digest);
    }

    /// See [`Link::peer_view`].
    pub fn peer_view(&self) -> Option<u32> {
        self.link.peer_view().filter(|_| self.dialect == Dialect::Frames)
    }

    /// See [`Link::peer_wall`].
    pub fn peer_wall(&self, now: MonoNs) -> Option<RangeInclusive<WallMs>> {
        self.link.peer_wall(now).filter(|_| self.dialect == Dialect::Frames)
    }

    /// See [`Link::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.link.is_empty()
    }

    /// Returns whether the other end of the connection takes what this node says.
    pub fn is_greeted(&self) -> bool {
        self.http.as_ref().is_none_or(|http| http.is_greeted())
    }

    /// Takes what another site told of its members since the last call.
    pub fn take_told(&mut self) -> Option<SiteMembers> {
        self.http.as_mut()?.take_told()
    }

    /// Takes what another site said of itself since the last call, and when it was asked.
    pub fn take_news(&mut self) -> Option<(SiteNews, MonoNs)> {
        self.http.as_mut()?.take_news()
    }

    /// Tells that a connection is ready.
    pub fn opened(&mut self, now: MonoNs, dialect: Dialect) {
        self.closed();
        self.dialect = dialect;
        match dialect {
            Dialect::Frames => self.link.opened(now),
            Dialect::Http => {
                let talk = HttpTalk::new(now, self.limits.heartbeat_ms, self.to_site);
                self.http = Some(Box::new(talk));
            }
        }
    }

    /// Tells that the connection is gone. Messages without a result wait for the next connection.
    pub fn closed(&mut self) {
        self.http = None;
        self.link.closed();
    }

    /// See [`Link::clear`].
    pub fn clear(&mut self, forgotten: impl FnMut(Purpose)) {
        self.link.clear(forgotten);
    }

    /// See [`Link::write`]. `to` is the peer.
    pub fn write(&mut self, now: Now, view: &View, to: PeerIndex, out: &mut Vec<u8>) {
        match &mut self.http {
            None => self.link.write(now, out),
            Some(http) => http.write(now, (view, to), &mut self.link, out),
        }
    }

    /// See [`Link::next_wake`].
    pub fn next_wake(&self) -> Option<MonoNs> {
        match &self.http {
            None => self.link.next_wake(),
            // A link without frames wakes only for messages that were answered `Busy`.
            Some(http) => {
                let ping = http.next_wake()?;
                Some(self.link.next_wake().map_or(ping, |busy| busy.min(ping)))
            }
        }
    }

    /// See [`Link::received`].
    pub fn received(
        &mut self,
        now: MonoNs,
        bytes: &[u8],
        result: impl FnMut(Purpose, PeerResult<'_>),
    ) -> Result<(), LinkError> {
        match &mut self.http {
            None => self.link.received(now, bytes, result),
            Some(http) => http.received(now, bytes, &mut self.link, result),
        }
    }
}
