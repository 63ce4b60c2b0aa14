//! The list of nodes that a timer is to have by now: members come and go, live and die, and have
//! room or not.

use crate::base::ids::{PeerSet, Slot};
use crate::base::planted::{Bug, is_planted};
use crate::base::ranked::Replicas;
use crate::base::time::Tick;

use super::Shard;
use super::records::Record;

impl Shard {
    /// The list of a timer that is held already: the first of these that fits. A list fits if every
    /// node that would have to get the timer is alive and has room.
    ///
    /// - The list that the configuration means, while none of its nodes is dead.
    /// - The list of live nodes, where all nodes look for the timer. It changes when a node returns
    ///   that stands in before the present holders.
    /// - The list that the configuration means, with its dead nodes.
    /// - The present list.
    pub(super) fn right_list(&self, record: &Record) -> Replicas {
        self.right_list_without(record, self.full())
    }

    /// The list of a timer after a pop that is made now. A node that has had no room lately is not
    /// left in charge of the timer before it has a copy.
    pub(super) fn list_after_pop(&self, record: &Record) -> Replicas {
        let is_ready = self.reconcile.ready.contains(&record.id.0);
        let full = if is_ready { PeerSet::EMPTY } else { self.peers.lately_full(self.turns.at) };
        // Nor is this node, while its disk takes nothing.
        let own = self.full().intersection(PeerSet::EMPTY.with(self.peers.own()));
        self.right_list_without(record, full.union(own))
    }

    pub(super) fn right_list_without(&self, record: &Record, full: PeerSet) -> Replicas {
        self.right_list_among(record, self.peers.alive(), full)
    }

    /// The same, where nodes of `able` that are not `full` can get the timer.
    pub(super) fn right_list_among(
        &self,
        record: &Record,
        able: PeerSet,
        full: PeerSet,
    ) -> Replicas {
        let list = self.records.placement_of(record).replicas;
        let configured = self.configured(record);
        // The last holder, which was handing the timer over, has it back when the others are dead.
        let is_gone = record.is_live()
            && self.ranks_of(&list, self.peers.dead()) == list.all_ranks()
            && !is_planted(Bug::LastHolderStaysBehindTheDead);
        if configured == list && !is_gone || configured.is_empty() {
            return list;
        }
        let view = &self.peers.view;
        let fits = |wanted: &Replicas| {
            let new = view.peers_of(wanted).minus(view.peers_of(&list));
            new.minus(able.minus(full)).is_empty()
        };
        let factor = self.records.placement_of(record).factor;
        let live = view.place(record.id, factor, self.peers.not_dead());
        let roomy = view.place(record.id, factor, self.peers.not_dead().minus(full));
        let live = if roomy.len() == live.len() { roomy } else { live };
        let is_whole = self.ranks_of(&configured, self.peers.dead()) == 0;
        if fits(&configured) && (is_whole || live.is_empty() || !fits(&live)) {
            return configured;
        }
        if !live.is_empty() && fits(&live) { live } else { list }
    }

    /// Whether a timer is not where it belongs.
    pub(super) fn is_misplaced(&self, record: &Record) -> bool {
        let placement = self.records.placement_of(record);
        // A timer with stand-ins for nodes without room is not where it belongs, either.
        let is_elsewhere = self.right_list_without(record, PeerSet::EMPTY) != placement.replicas;
        is_elsewhere || record.is_live() && placement.own.is_none()
    }

    /// Whether a timer belongs to a node that is suspected here: another node has taken that node
    /// for dead, and has given the timer to others. No walk begins when a suspect is back.
    pub(super) fn is_a_suspects(&self, record: &Record) -> bool {
        let able = self.peers.not_dead();
        if able.minus(self.peers.alive()).without(self.peers.own()).is_empty() {
            return false;
        }
        let list = self.records.placement_of(record).replicas;
        record.is_live()
            && self.right_list_among(record, able, PeerSet::EMPTY) != list
            && !is_planted(Bug::StandInOfSuspectStays)
    }

    /// Files a timer to be looked at soon, if it is misplaced, or will be when a suspect is back.
    pub(super) fn look_later_if_misplaced(&mut self, tick: Tick, slot: Slot) {
        if self.peers.is_alone() {
            return;
        }
        let record = *self.records.get(slot);
        if self.is_misplaced(&record) || self.is_a_suspects(&record) {
            self.reconcile.look_again(tick, record.id);
        }
    }
}
