//! Whether this node takes clients' writes, by what its peers say and know of it. A write that this
//! node took alone would be lost with it, or would not be found by other nodes.

// Reads the wall clock: judged 2.

use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, WallMs};
use crate::cluster::detector::Liveness;
use crate::cluster::wall_clocks::{ClockVerdict, judge};
use crate::shard::effects::{Dialect, Refusal};

use super::{DialState, Peer, Peering};

/// Why a node that is no member of its cluster any more refuses other sites.
const OUTSIDE: &str = "this node is no member of its site any more: ask one that is";

impl Peer {
    /// Returns whether this node is connected with the peer and the peer sees the same members.
    /// Original nodes do not tell their members.
    fn sees(&self, digest: u32) -> bool {
        let is_original = self.voice.dialect() == Dialect::Http;
        self.stage == DialState::Open && (is_original || self.voice.peer_view() == Some(digest))
    }
}

impl Peering {
    /// Returns why this node takes no writes of clients at present. `None`: it takes them.
    pub fn refuses_writes(&mut self) -> Option<Refusal> {
        // A node that is known once stays known, however the lists change while it joins.
        self.is_introduced = self.is_introduced();
        self.write_refusal()
    }

    /// The same as [`Peering::refuses_writes`], for a caller that only looks.
    pub fn write_refusal(&self) -> Option<Refusal> {
        if self.known.is_empty() {
            None
        } else if self.is_disowned() {
            Some(Refusal::Twin)
        } else if self.clock.is_refused {
            Some(Refusal::Clock)
        } else {
            (!self.is_introduced()).then_some(Refusal::Joining)
        }
    }

    /// Returns whether the members know this node, if it is being added. A member that does not
    /// know this node would not find what is written here.
    fn is_introduced(&self) -> bool {
        let is_there = |peer: &&Peer| peer.disowns || peer.detector.liveness() != Liveness::Dead;
        let knows_it = || {
            let mut there = self.members().filter(is_there).peekable();
            there.peek().is_some() && there.all(|peer| peer.sees(self.digest))
        };
        self.is_introduced || knows_it()
    }

    /// Returns whether this node speaks for its site: it is a member. `Err`: why not. A node that
    /// has left, or that the members do not know any more, can hand over to nobody what another
    /// site tells, and would tell that it alone is the site.
    pub fn speaks_for_site(&self) -> Result<(), String> {
        let is_outside = self.view.has_left() || self.is_disowned();
        match is_outside && !is_planted(Bug::LeftNodeSpeaksForSite) {
            true => Err(OUTSIDE.to_owned()),
            false => Ok(()),
        }
    }

    /// Returns whether no node that can be reached takes this process for this node. What a client
    /// writes here would be in this process alone, and lost when it is stopped.
    fn is_disowned(&self) -> bool {
        // A node that is being added does not count, because it may not know yet that it is being
        // added. Nor do other sites.
        let mut nodes = self.peers.iter().flatten().filter(|peer| peer.site.is_none());
        self.members().any(|peer| peer.disowns) && nodes.all(|peer| peer.stage != DialState::Open)
    }

    /// The other nodes of the old cluster. They hold timers from before.
    fn members(&self) -> impl Iterator<Item = &Peer> {
        self.view.old_nodes().iter().filter_map(|peer| self.peers.get(peer.index())?.as_ref())
    }

    /// What the members' wall clocks say of this node's. A refused clock refuses writes.
    pub fn clock(&self) -> ClockVerdict {
        self.clock
    }

    /// What the wall clocks of the members that were heard show now. What may be this node's time
    /// is taken for it: only what is certain contradicts a clock.
    pub(crate) fn member_walls(&self, now: Now) -> impl Iterator<Item = WallMs> {
        let walls =
            self.peers.iter().flatten().filter_map(move |peer| peer.voice.peer_wall(now.mono));
        walls.map(move |wall| now.wall.max(*wall.start()).min(*wall.end()))
    }

    /// Compares this node's wall clock with the clocks of the members, as the members told them
    /// last. A member that cannot be reached counts, too: a node that is cut off must not trust a
    /// clock that was refused.
    pub(crate) fn judge_clock(&mut self, now: Now) {
        let mut ahead_ms = std::mem::take(&mut self.clocks_ahead_ms);
        ahead_ms.clear();
        let walls = self.member_walls(now);
        ahead_ms.extend(walls.map(|wall| wall.0.wrapping_sub(now.wall.0) as i64));
        self.clocks_ahead_ms = ahead_ms;
        let (skew_max_ms, former) = (self.limits.clock_skew_max_ms, self.clock);
        self.clock = judge(&mut self.clocks_ahead_ms, skew_max_ms);
        // Nobody knows which of two sites is right, so a site's clock refuses no writes.
        let of_sites = self.sites_ahead_ms(now).map(i64::unsigned_abs).max().unwrap_or(0);
        self.clock.apart_ms = self.clock.apart_ms.max(of_sites);
        let is_apart = |clock: ClockVerdict| clock.apart_ms > skew_max_ms;
        self.counters.clocks_apart += u64::from(is_apart(self.clock) && !is_apart(former));
        self.counters.clocks_refused += u64::from(self.clock.is_refused && !former.is_refused);
    }
}
