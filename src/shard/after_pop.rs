//! What comes after a pop: the next one or the end, by whom, and who is told.

use crate::base::ids::{PeerSet, Slot};
use crate::base::planted::{Bug, is_planted};
use crate::base::ranked::Replicas;
use crate::base::time::{Now, Tick};

use super::Shard;
use super::effects::Outbox;
use super::records::{Next, Placement, Record, State};
use super::reports::PopEnd;

impl Shard {
    /// Ends a pop that was delivered or given up: arms the next pop or buries the timer, and tells
    /// the other nodes. Before that a pop that was delivered is reported. The slot is in no list.
    ///
    /// This node decides which nodes act next: those that acted and live, and those that were found
    /// to hold the timer since.
    pub(super) fn pop_over(
        &mut self,
        now: Now,
        slot: Slot,
        is_delivered: bool,
        outbox: &mut Outbox,
    ) {
        let tick = now.mono.tick_floor();
        let record = *self.records.get(slot);
        let is_special = self.records.has_attributes(&record);
        if is_special && is_delivered {
            self.report(now, slot, PopEnd::Delivered, outbox);
        }
        let placement = self.next_placement(tick, &record, is_delivered);
        let stood_in = self.records.placement_of(&record).own > Some(0);
        let reuses = is_planted(Bug::ReuseSequence) && record.sequence % 5 == 3
            || is_planted(Bug::ReuseSequenceAfterFailover) && stood_in && record.sequence % 5 == 1;
        let record = self.records.reach(slot, record.sequence + u64::from(!reuses));
        if is_planted(Bug::PayloadFreedEarly) && record.sequence == 2 {
            self.records.lose_content(&record);
        }
        let (record, told) = self.retell(&record, slot, &placement);
        if record.schedule().is_last(record.sequence) {
            if is_special && self.follow_calendar(now, slot, &placement, told.0, outbox) {
                return;
            }
            self.records.entomb(tick, slot);
            self.tell_all(slot, &placement, told, outbox);
        } else {
            if record.state != State::Paused {
                let pops_at = self.records.pops_at(&record);
                self.records.transition(slot, Next::Armed(pops_at));
            } else if is_planted(Bug::PopWhilePausedArmsNext) {
                self.records.transition(slot, Next::Armed(record.due()));
            }
            self.tell_all(slot, &placement, told, outbox);
            self.look_later_if_misplaced(tick, slot);
        }
    }

    /// The placement after a pop here: the right list, the sites as configured, and the mask.
    pub(super) fn next_placement(
        &mut self,
        tick: Tick,
        record: &Record,
        is_delivered: bool,
    ) -> Placement {
        let former = *self.records.placement_of(record);
        if self.peers.is_alone() {
            return former;
        }
        let list = self.list_after_pop(record);
        let sites = self.peers.view.next_sites(&former.sites);
        let mut placement = self.placement(list, sites, former.factor);
        let dead = self.ranks_of(&list, self.peers.dead());
        let own = placement.own.map_or(0, |own| 1 << own);
        // The other ranks would wait at every pop for a node that has no room for the timer.
        let lacking = self.ranks_of(&list, self.reconcile.lacking_of(record.id)) & !own;
        let carried = self.carried_actives(&former, &list) & !lacking | own;
        // Without promotion ranks wait by their position in the list. So new holders must act at
        // once, as in an original: the old holders have moved back.
        let is_by_rank = !self.config.cluster.promotion && list != former.replicas;
        placement.actives = match carried & !dead {
            carried if carried == 0 || is_by_rank => list.all_ranks() & !dead,
            carried => self.able(tick, &list, (carried, own), is_delivered),
        };
        placement
    }

    /// The ranks that can act, of those that are to:
    ///
    /// - without this node, if it gave the pop up and others can try the next one;
    /// - without nodes that were dead and have delivered nothing since, if one of them would be the
    ///   first to act. Now and then such a node gets one timer, which shows whether it can deliver.
    pub(super) fn able(
        &mut self,
        tick: Tick,
        list: &Replicas,
        (carried, own): (u16, u16),
        is_delivered: bool,
    ) -> u16 {
        let failing = if is_delivered { 0 } else { own };
        let unproven = self.ranks_of(list, self.peers.unproven()) & carried;
        let acting = carried & !failing;
        let is_first = unproven & acting & acting.wrapping_neg() != 0;
        let is_barred = is_first
            && acting & !unproven != 0
            && !is_planted(Bug::ReturnedRankActsAtOnce)
            && !self.peers.may_try(tick);
        let able = acting & !if is_barred { unproven } else { 0 };
        if able == 0 { carried } else { able }
    }

    /// Gives a record its next placement. Returns the record as it is then, the peers that are to
    /// be told, and whether the list is new to them.
    pub(super) fn retell(
        &mut self,
        record: &Record,
        slot: Slot,
        placement: &Placement,
    ) -> (Record, (PeerSet, bool)) {
        if self.peers.is_alone() {
            let record = self.records.replace(&self.peers, self.turns.at, slot, placement);
            return (record, (PeerSet::EMPTY, false));
        }
        let former = *self.records.placement_of(record);
        let lists = (former.replicas, placement.replicas);
        let record = self.records.replace(&self.peers, self.turns.at, slot, placement);
        let view = &self.peers.view;
        let mut to = view.peers_of(&lists.0).union(view.peers_of(&lists.1));
        if !self.peers.dead().is_empty() {
            // A move that a death ended has left copies. These would pop beside the holders.
            to = to.union(view.peers_of(&self.configured(&record)));
        }
        if view.is_changing() {
            let factor = placement.factor;
            let held_it = view.peers_of(&view.place_old(record.id, factor));
            // An original that holds the timer from before may have popped it since, and keeps it.
            let is_new = former.own.is_some_and(|own| former.actives >> own & 1 == 0);
            let is_told = is_new && !is_planted(Bug::NewHolderTellsNoFormerOnes);
            // A node to which the timer moves does not act before the former holders have told
            // that they are done. They may still be trying this pop.
            to = to.union(if is_told { held_it } else { held_it.intersection(self.peers.http()) });
        }
        if !self.peers.lately_full(self.turns.at).is_empty() {
            // A move that a node on the list refused has left copies, too.
            let factor = placement.factor;
            to = to.union(view.peers_of(&view.place(record.id, factor, self.peers.not_dead())));
        }
        (record, (to.without(self.peers.own()).minus(self.peers.dead()), lists.0 != lists.1))
    }
}
