//! Whose turn to pop comes before that of this node: other ranks of its site, and other sites.

use crate::base::ids::{PeerIndex, PeerSet, SiteHash};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::Tick;

use super::Shard;
use super::records::Record;

/// A core waits for a site that is believed alive and answers nothing: so much longer than it takes
/// to declare a peer dead.
const BEYOND_DEATH_MS: u64 = 5_000;

impl Shard {
    /// The nodes that make a pop before this one does.
    pub(super) fn ranks_before(&self, record: &Record) -> PeerSet {
        let placement = self.records.placement_of(record);
        let promotion = self.config.cluster.promotion;
        let own_ms = placement.delay_ms(promotion);
        let ranks = placement.replicas.as_slice().iter().zip(0_u8..);
        let before = ranks.filter(|(_, rank)| placement.delay_of(Some(*rank), promotion) < own_ms);
        let peers = before.filter_map(|(&node, _)| self.peers.view.peer_of(node));
        peers.fold(PeerSet::EMPTY, PeerSet::with).without(self.peers.own())
    }

    /// The sites that make a pop before this one does, where the turn of this one has come. Those
    /// that are dead do not.
    pub(super) fn sites_before(&self, tick: Tick, record: &Record) -> PeerSet {
        let placement = self.records.placement_of(record);
        if placement.sites_ahead == 0
            || tick < self.records.due(record) + placement.delay_of_sites_ms()
            || is_planted(Bug::SiteTakesOverUnasked)
        {
            return PeerSet::EMPTY;
        }
        let own = self.local_site();
        let before = placement.sites.as_slice().iter().take_while(|site| **site != own);
        let peers = before.filter_map(|site| self.peers.view.peer_of_site(*site));
        peers.fold(PeerSet::EMPTY, PeerSet::with).minus(self.peers.dead())
    }

    /// The other sites of a timer that may know it better after an absence of this core. After a
    /// short one they know no better: what they told waits in the links.
    pub(super) fn sites_to_ask(&self, record: &Record) -> PeerSet {
        match !self.questions.asks_sites || is_planted(Bug::ReturningSiteAsksNoSite) {
            true => PeerSet::EMPTY,
            false => self.peers.sites_of(&self.records.placement_of(record).sites),
        }
    }

    /// Sites that are believed alive and have answered nothing for long.
    pub(super) fn mute_sites(&self, tick: Tick) -> PeerSet {
        let patience_ms = self.config.cluster.dead_after_ms + BEYOND_DEATH_MS;
        let is_mute = |site: &PeerIndex| tick - self.questions.said_at(*site) >= patience_ms;
        let mute = self.peers.view.connected_sites().iter().filter(is_mute);
        mute.fold(PeerSet::EMPTY, PeerSet::with)
    }

    pub(super) fn local_site(&self) -> SiteHash {
        self.peers.view.local_site()
    }
}
