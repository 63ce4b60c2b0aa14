//! Telling peers how far a timer is: which of them hear of it, and in which words.

// May panic: indices 1.
// Why it does not: peers 1.

use crate::base::ids::{NodeHash, PeerIndex, PeerSet, Slot, TimerId};
use crate::base::planted::{Bug, is_planted};
use crate::cluster::view::PeerKind;
use crate::wire::peer_message::{CopyBody, PeerMessage, Standing, TimerCopy};

use super::Shard;
use super::effects::{Outbox, Purpose};
use super::parts::peers::Teller;
use super::records::{Placement, Record};

impl Shard {
    /// A record as the message "I hold this timer, so far".
    pub(super) fn standing_of(&self, record: &Record) -> Standing {
        let placement = self.records.placement_of(record);
        Standing {
            id: record.id,
            version: record.version.0,
            sequence: record.sequence,
            actives: placement.actives,
            list_digest: placement.replicas.digest(),
        }
    }

    /// A record as the message that carries the whole timer or its tombstone. `room` is used if the
    /// content has to be put together.
    pub(super) fn copy_of<'a>(&'a self, record: &Record, room: &'a mut Vec<u8>) -> TimerCopy<'a> {
        let placement = self.records.placement_of(record);
        let body = record.is_live().then(|| CopyBody {
            authority: self.records.authority_of(record),
            content: self.records.whole_content_of(record, room),
        });
        TimerCopy {
            standing: self.standing_of(record),
            is_write: false,
            replicas: placement.replicas,
            factor: placement.factor,
            sites: placement.sites,
            start_ms: record.start.0,
            interval_ms: record.interval_ms,
            repeat_for_ms: record.repeat_for.get(),
            body,
        }
    }

    /// Tells peers how far a record is. A peer that understands nothing else gets the whole copy.
    /// If the record `is_new` to the peers, all of them get the whole copy.
    pub(super) fn tell(&mut self, slot: Slot, to: PeerSet, is_new: bool, outbox: &mut Outbox) {
        if to.is_empty() || is_planted(Bug::DoNotTellReplicasOfPop) && !is_new {
            return;
        }
        let record = *self.records.get(slot);
        let purpose = Purpose::News(record.id);
        let whole = if is_new { to } else { to.intersection(self.peers.http()) };
        let brief = to.minus(whole);
        if !brief.is_empty() {
            let bytes = outbox.encode(&PeerMessage::Standing(self.standing_of(&record)));
            brief.iter().for_each(|peer| outbox.tell(peer, purpose, bytes.clone()));
        }
        if !whole.is_empty() {
            let bytes = outbox.encode(&PeerMessage::Copy(self.copy_of(&record, &mut Vec::new())));
            whole.iter().for_each(|peer| outbox.tell(peer, purpose, bytes.clone()));
        }
    }

    /// Sends an encoded copy to the other sites that hold a timer.
    pub(super) fn tell_sites(
        &self,
        placement: &Placement,
        bytes: std::ops::Range<usize>,
        id: TimerId,
        outbox: &mut Outbox,
    ) {
        let view = &self.peers.view;
        for &site in placement.sites.as_slice() {
            if site == view.local_site() {
                continue;
            }
            if let Some(peer) = view.peer_of_site(site) {
                outbox.tell(peer, Purpose::News(id), bytes.clone());
            }
        }
    }

    /// Tells other nodes that a peer could not be told of a timer, where they are needed to tell
    /// it:
    ///
    /// - A node of this site is offered what this node holds when it is back. Of a timer that this
    ///   node only passes on, the holders must know.
    /// - Another site is told at once by any node that can reach it.
    pub(super) fn tell_of_unheard(&mut self, id: TimerId, peer: PeerIndex, outbox: &mut Outbox) {
        let by = match self.peers.view.peers()[peer.index()].kind {
            PeerKind::Site(site) => NodeHash(site.0),
            PeerKind::Node(node) if self.find(id).is_none() => node,
            PeerKind::Node(_) => return,
        };
        let nodes = self.peers.view.connected_nodes().intersection(self.peers.alive());
        let tellable = nodes.minus(self.peers.http()).without(peer);
        if tellable.is_empty() {
            return;
        }
        let bytes = outbox.encode(&PeerMessage::Missed { id, by });
        tellable.iter().for_each(|to| outbox.tell(to, Purpose::Hint, bytes.clone()));
    }

    /// Notes that a peer holds a timer. If the peer did not act so far, it acts after the next pop.
    pub(super) fn confirm(&mut self, id: TimerId, peer: PeerIndex) {
        let Some(slot) = self.find(id) else { return };
        let mut placement = *self.records.placement_of(self.records.get(slot));
        if placement.actives | placement.confirmed == placement.replicas.all_ranks() {
            return;
        }
        let rank = placement
            .replicas
            .as_slice()
            .iter()
            .position(|&node| self.peers.view.peer_of(node) == Some(peer));
        let Some(rank) = rank else { return };
        if placement.actives >> rank & 1 == 0 && placement.confirmed >> rank & 1 == 0 {
            placement.confirmed |= 1 << rank;
            self.place(slot, &placement);
        }
    }

    /// Tells replicas and other sites of a pop. `placement` is the placement after the pop.
    pub(super) fn tell_all(
        &mut self,
        slot: Slot,
        placement: &Placement,
        (to, is_new): (PeerSet, bool),
        outbox: &mut Outbox,
    ) {
        self.tell(slot, to, is_new, outbox);
        if placement.sites.len() > 1 {
            let record = *self.records.get(slot);
            let bytes = outbox.encode(&PeerMessage::Copy(self.copy_of(&record, &mut Vec::new())));
            self.tell_sites(placement, bytes, record.id, outbox);
        }
    }

    /// Tells a peer that it is behind.
    pub(super) fn tell_back(&mut self, slot: Slot, teller: Teller, outbox: &mut Outbox) {
        if let Some(peer) = teller.peer
            && !self.peers.speaks_http(peer)
        {
            self.tell(slot, PeerSet::EMPTY.with(peer), false, outbox);
        }
    }
}
