//! The timers whose statistics tags count here: the live timers of which this node is the first to
//! pop, as far as it knows which nodes live. The same places count the timers of owners.

// May panic: indices 2.
// Why it does not: found 2.

use super::{Placement, PlacementId, Record, Records, State};
use crate::base::time::Tick;
use crate::shard::parts::peers::Peers;
use crate::shard::tag_counts::TagGroup;
use crate::timer::definition::Content;

impl Records {
    /// Counts the tags and the owner of a live record that has been put in. Its content was written
    /// a moment ago, so that looking at it costs nothing.
    #[inline]
    pub(super) fn enter_counts(&mut self, peers: &Peers, at: Tick, record: &Record) {
        let content = Content::decode(self.payloads.get(record.payload));
        if content.is_counted() {
            self.enter_owner(record);
            self.enter_tags(peers, at, record);
        }
    }

    #[inline(never)]
    fn enter_owner(&mut self, record: &Record) {
        let content = Content::decode(self.payloads.get(record.payload));
        content.owner().into_iter().for_each(|owner| self.owners.enter(owner));
    }

    #[inline(never)]
    fn leave_owner(&mut self, record: &Record) {
        let content = Content::decode(self.payloads.get(record.payload));
        content.owner().into_iter().for_each(|owner| self.owners.leave(owner));
    }

    /// Takes the tags and the owner of a live record out of the counts, because the record goes or
    /// ends. Its payload and its placement are still there.
    #[inline]
    pub(super) fn leave_counts(&mut self, at: Tick, record: &Record) {
        if !self.owners.is_empty() {
            self.leave_owner(record);
        }
        self.leave_tags(at, record);
    }

    fn enter_tags(&mut self, peers: &Peers, at: Tick, record: &Record) {
        let content = Content::decode(self.payloads.get(record.payload));
        // Tags count timers that are to pop, not dead letters.
        if !content.is_counted() || record.state == State::Parked {
            return;
        }
        let placement = self.placements.get(record.placement);
        let group = TagGroup(record.placement.number());
        let is_counted = || pops_first(peers, placement);
        self.tags.enter(group, content.tags().as_slice(), at, is_counted);
    }

    fn leave_tags(&mut self, at: Tick, record: &Record) {
        if !self.tags.holds_any() || record.state == State::Parked {
            return;
        }
        let content = Content::decode(self.payloads.get(record.payload));
        if content.is_counted() {
            let group = TagGroup(record.placement.number());
            self.tags.leave(group, content.tags().as_slice(), at);
        }
    }

    /// Counts the tags of a record under its new placement. The record has not left its `former`
    /// one yet.
    #[inline]
    pub(super) fn move_tags(
        &mut self,
        peers: &Peers,
        at: Tick,
        record: &Record,
        former: PlacementId,
    ) {
        if record.is_live() && record.placement != former {
            self.leave_tags(at, &Record { placement: former, ..*record });
            self.enter_tags(peers, at, record);
        }
    }

    /// Whether this node is the first of the nodes of its site that hold a timer and live.
    pub fn is_first_of_site(&self, peers: &Peers, record: &Record) -> bool {
        is_first_of_site(peers, self.placements.get(record.placement))
    }

    /// Whether this node is the first to pop of the nodes that hold a timer and live.
    pub fn is_first(&self, peers: &Peers, record: &Record) -> bool {
        pops_first(peers, self.placements.get(record.placement))
    }

    /// Counts all tags anew: another node died or returned, or there is another configuration.
    pub fn recount_tags(&mut self, peers: &Peers, tick: Tick) {
        self.placements.forget_firsts();
        self.retally(peers);
        let placements = &self.placements;
        self.tags.recount(tick, |group| pops_first(peers, placements.numbered(group.0)));
    }
}

/// Whether this node is the first to pop of the nodes that are not dead: the first of the first
/// site that lives.
pub(super) fn pops_first(peers: &Peers, placement: &Placement) -> bool {
    let view = &peers.view;
    let ahead = &placement.sites.as_slice()[..usize::from(placement.sites_ahead)];
    let is_gone = |site| view.peer_of_site(site).is_none_or(|peer| peers.dead().contains(peer));
    is_first_of_site(peers, placement) && ahead.iter().copied().all(is_gone)
}

/// Whether this node is the first of its site: it has the lowest rank that acts and lives. Where no
/// acting rank lives, the lowest rank that holds the timer is the first.
fn is_first_of_site(peers: &Peers, placement: &Placement) -> bool {
    let view = &peers.view;
    let lives = |rank: &u32| {
        let node = placement.replicas.as_slice()[*rank as usize];
        !view.peer_of(node).is_some_and(|peer| peers.dead().contains(peer))
    };
    let ranks = || (0..u32::from(placement.replicas.len())).filter(lives);
    let acts = |rank: &u32| placement.actives >> rank & 1 == 1;
    let first = ranks().find(acts).or_else(|| ranks().next());
    placement.own.map(u32::from) == first && first.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::detector::Liveness;
    use crate::shard::harness_tests::Cluster;

    #[test]
    fn the_lowest_rank_that_acts_and_lives_is_the_first_to_pop() {
        let mut cluster = Cluster::new(3, true);
        let id = cluster.create(0, (10, 10), 3);
        let list = cluster.list(id);
        let (own, other) = (list[1], list[0]);
        let first = |cluster: &mut Cluster, actives: u16| {
            let shard = cluster.shard(own);
            let record = *shard.records.get(shard.find(id).expect("all three hold it"));
            let placement = Placement { actives, ..*shard.records.placement_of(&record) };
            assert_eq!(placement.own, Some(1));
            pops_first(&shard.peers, &placement)
        };
        for (actives, is_first) in
            [(0b111, false), (0b110, true), (0b010, true), (0b100, false), (0b001, false)]
        {
            assert_eq!(first(&mut cluster, actives), is_first, "{actives:b}");
        }
        assert!(!first(&mut cluster, 0), "where none acts, the lowest");
        cluster.believe(own, other, Liveness::Dead);
        for (actives, is_first) in [(0b111, true), (0b001, true), (0b100, false), (0, true)] {
            assert_eq!(first(&mut cluster, actives), is_first, "{actives:b}");
        }
    }
}
