//! Bringing copies where they belong, in the background and in portions: after a peer returned,
//! after the configuration changed, on request.
//!
//! A *walk* looks at every record once.
//!
//! - A timer whose list is right is *offered* to the peers that the walk is for. A peer that lacks
//!   the timer says so and gets a copy.
//! - A timer whose list is wrong is *moved*. Every node on the right list is offered the timer.
//!   When all of them have it, this node takes the new list over, or forgets the timer if it is not
//!   on that list. So at every instant as many nodes hold the timer as before.
//! - A timer that is due soon is copied to its new holders and not handed over: the old holders may
//!   be stopped. The new holders wait behind the old ones. The next pop moves the timer.

use std::ops::Range;

use crate::base::ids::{NodeHash, PeerIndex, PeerSet, SiteHash, Slot, TimerId};
use crate::base::planted::{Bug, is_planted};
use crate::base::ranked::Replicas;
use crate::base::time::{Now, Tick};
use crate::wire::peer_message::{PeerMessage, PeerRefusal, PeerResult, Standing, TimerCopy};

use super::Shard;
use super::effects::{Outbox, Purpose};
use super::parts::peers::FULL_MS;
use super::parts::reconcile::{Move, NO_MOVE};
use super::records::{Outline, Placement, Record, State};

/// What an offer costs, in looks of some 150 ns each: some 5 us of the cluster's CPU for each timer
/// that a peer lacks, about half of it here.
const LOOKS_PER_OFFER: u32 = 16;
/// A timer that is due sooner is copied to its new holders and not handed over. The messages must
/// arrive before the pop, or old and new holders would both pop. The next pop moves the timer.
const FINISH_GUARD_MS: u64 = 1_000;
/// A node that is told over HTTP acts on every list that names it, until it is told the end of the
/// timer. So a timer that is due sooner is neither copied to such a node nor moved away from it.
/// The next pop moves the timer.
const HTTP_GUARD_MS: u64 = 3_000;
impl Shard {
    /// Does the portion of a tick.
    pub(super) fn reconcile(&mut self, now: Now, outbox: &mut Outbox) {
        let tick = now.mono.tick_floor();
        if !self.reconcile.begin_portion(tick) {
            return;
        }
        if self.questions.is_idle() {
            self.reconcile.make_up();
        } else if !self.questions.are_of_kept_alone() {
            // What is held here may be outdated. The core asks about it before it gives it away.
            return self.reconcile.pace.pause();
        }
        if self.keeps_from_originals() {
            return self.reconcile.pace.pause();
        }
        let mut looks = self.reconcile.pace.begin(tick, self.pops.is_behind);
        while looks > 0 {
            if self.reconcile.is_full() {
                return;
            }
            let offers = self.reconcile.offers;
            if let Some(id) = self.reconcile.take_later(tick) {
                match self.find(id) {
                    Some(slot) if self.is_unheard(slot, id) => self.reconcile.look_again(tick, id),
                    Some(slot) => self.look_at(tick, slot, PeerSet::EMPTY, outbox),
                    None => {}
                }
            } else if !self.walk_on(tick, outbox) {
                return;
            }
            let offered = self.reconcile.offers - offers;
            looks = looks.saturating_sub(1 + offered * LOOKS_PER_OFFER);
        }
        self.reconcile.pace.used_up(tick);
    }

    fn walk_on(&mut self, tick: Tick, outbox: &mut Outbox) -> bool {
        let Some(mut walk) = self.reconcile.walk else { return false };
        let Some(slot) = self.records.occupied_from(walk.next).next() else {
            self.reconcile.end_walk();
            return false;
        };
        walk.next = Slot(slot.0 + 1);
        walk.seen += 1;
        self.reconcile.walk = Some(walk);
        match self.is_unheard(slot, self.records.get(slot).id) {
            // A peer keeps its pop, maybe for long. The others do not wait for that.
            true => self.reconcile.postpone(walk.offer_to),
            false => self.look_at(tick, slot, walk.offer_to, outbox),
        }
        true
    }

    /// Offers or moves one timer.
    fn look_at(&mut self, tick: Tick, slot: Slot, offer_to: PeerSet, outbox: &mut Outbox) {
        self.follow_sites(slot);
        let record = *self.records.get(slot);
        self.offer_to_sites(slot, offer_to, outbox);
        if let Some(lacking) = self.reconcile.lacking.remove(&record.id.0)
            && self.look_at_lacking(tick, slot, lacking, outbox)
        {
            return;
        }
        let right = self.right_list(&record);
        let is_misplaced = self.is_misplaced(&record);
        let placement = self.records.placement_of(&record);
        if is_misplaced && record.is_live() {
            if right != placement.replicas || placement.own.is_none() {
                self.end_outdated(tick, slot, offer_to, outbox);
                return self.begin_move(tick, slot, right, outbox);
            }
            // The right nodes have no room now.
            self.reconcile.look_again(tick, record.id);
        } else if self.is_a_suspects(&record) {
            self.reconcile.look_again(tick, record.id);
        }
        let holders = self.peers.view.peers_of(&right).without(self.peers.own());
        self.offer_copies(&record, holders.intersection(offer_to), outbox);
        // A tombstone does not move. A node that believed the right nodes dead may have left it
        // with stand-ins. Then the right nodes are shown it.
        let offer_to = if is_misplaced && !record.is_live() { holders } else { offer_to };
        let to = holders.intersection(offer_to).minus(self.peers.http());
        let is_carried = record.is_live() || !is_planted(Bug::DropTombstonesAtRestart);
        if to.is_empty() || !is_carried {
            return;
        }
        let bytes = outbox.encode(&PeerMessage::Standing(self.standing_of(&record)));
        to.iter().for_each(|peer| self.offer(peer, record.id, bytes.clone(), outbox));
    }

    /// Offers a timer to originals, as a whole copy, if it may have changed since they were told
    /// everything. An original cannot say what it lacks, and it goes on with what it knew.
    fn offer_copies(&mut self, record: &Record, to: PeerSet, outbox: &mut Outbox) {
        let to = self.untold(record, to);
        if to.is_empty() {
            return;
        }
        let bytes = outbox.encode(&PeerMessage::Copy(self.copy_of(record, &mut Vec::new())));
        to.iter().for_each(|peer| self.offer(peer, record.id, bytes.clone(), outbox));
    }

    /// Ends what originals hold of a timer that other nodes hold now, and that is due too soon to
    /// be moved back: they would pop what they knew.
    fn end_outdated(&self, tick: Tick, slot: Slot, to: PeerSet, outbox: &mut Outbox) {
        let record = self.records.get(slot);
        let listed = self.peers.view.peers_of(&self.records.placement_of(record).replicas);
        if self.records.due(record) <= tick + HTTP_GUARD_MS {
            self.end_at(tick, slot, self.untold(record, to.minus(listed)), outbox);
        }
    }

    /// The originals of `to` that may not have been told how a timer changed last.
    fn untold(&self, record: &Record, to: PeerSet) -> PeerSet {
        let changed_at = record.start.max(record.schedule().due(record.sequence));
        let is_untold = |peer: &PeerIndex| {
            self.peers.untold_since(*peer).is_some_and(|since| since <= changed_at)
        };
        let to = to.intersection(self.peers.originals()).iter().filter(is_untold);
        to.fold(PeerSet::EMPTY, PeerSet::with)
    }

    /// Notes that a peer has no room for a timer that it was told of. If the peer is to hold the
    /// timer, another node stands in.
    pub(super) fn refused_for_room(&mut self, tick: Tick, peer: PeerIndex, id: TimerId) {
        self.peers.note_full(peer, tick + FULL_MS);
        self.peers.may_lack(peer);
        let Some(slot) = self.find(id) else { return };
        let record = *self.records.get(slot);
        let replicas = self.records.placement_of(&record).replicas;
        if record.is_live() && self.peers.view.peers_of(&replicas).contains(peer) {
            let lacking = self.reconcile.lacking.entry(id.0).or_insert(PeerSet::EMPTY);
            *lacking = lacking.with(peer);
            self.reconcile.look_again(tick, id);
        }
    }

    /// Looks at a timer that nodes on its list had no room for. Other nodes stand in, or those
    /// nodes are asked again after a while. Returns whether nothing else is to be done.
    fn look_at_lacking(
        &mut self,
        tick: Tick,
        slot: Slot,
        lacking: PeerSet,
        outbox: &mut Outbox,
    ) -> bool {
        let record = *self.records.get(slot);
        let placement = *self.records.placement_of(&record);
        let (view, full) = (&self.peers.view, self.peers.full(tick));
        let able = self.peers.alive().intersection(view.peers_of(&placement.replicas));
        let lacking = lacking.intersection(able).minus(self.peers.http());
        if lacking.is_empty() || !record.is_live() || placement.own.is_none() {
            return false;
        }
        if lacking.intersection(full).is_empty() {
            let bytes = outbox.encode(&PeerMessage::Standing(self.standing_of(&record)));
            lacking.iter().for_each(|peer| self.offer(peer, record.id, bytes.clone(), outbox));
            return true;
        }
        let members = self.peers.not_dead().minus(full);
        let list = view.place(record.id, placement.factor, members);
        self.reconcile.lacking.insert(record.id.0, lacking);
        match list.len() >= placement.replicas.len() && list != placement.replicas {
            true => self.begin_move(tick, slot, list, outbox),
            false => self.reconcile.look_again(tick, record.id),
        }
        true
    }

    /// Sends an encoded message of this work, and counts it as an offer until its result comes.
    fn offer(&mut self, peer: PeerIndex, id: TimerId, bytes: Range<usize>, outbox: &mut Outbox) {
        self.offer_in(NO_MOVE, peer, id, bytes, outbox);
    }

    /// As [`Shard::offer`], as a part of a move.
    pub(super) fn offer_in(
        &mut self,
        round: u8,
        peer: PeerIndex,
        id: TimerId,
        bytes: Range<usize>,
        outbox: &mut Outbox,
    ) {
        self.reconcile.offers += 1;
        outbox.tell(peer, Purpose::Offer { id, round }, bytes);
    }

    /// Offers a timer to a peer that another node could not tell of it: a node that is to hold the
    /// timer, or another site.
    pub(super) fn offer_missed(&mut self, id: TimerId, by: NodeHash, outbox: &mut Outbox) {
        let view = &self.peers.view;
        let missing = view.peer_of(by).or_else(|| view.peer_of_site(SiteHash(by.0)));
        let Some(peer) = missing.filter(|peer| *peer != self.peers.own()) else { return };
        self.peers.may_lack(peer);
        if !self.peers.alive().contains(peer) {
            self.peers.owed = self.peers.owed.with(peer);
            self.peers.may_lack(peer);
        } else if let Some(slot) = self.find(id) {
            let record = *self.records.get(slot);
            let bytes = match self.peers.speaks_http(peer) {
                true => outbox.encode(&PeerMessage::Copy(self.copy_of(&record, &mut Vec::new()))),
                false => outbox.encode(&PeerMessage::Standing(self.standing_of(&record))),
            };
            self.offer(peer, id, bytes, outbox);
        }
    }

    /// Offers a timer to other sites, as a whole copy. Every holder does so. A holder does not know
    /// what the other nodes of its site could not tell, and those nodes may die before the other
    /// site is back.
    fn offer_to_sites(&mut self, slot: Slot, offer_to: PeerSet, outbox: &mut Outbox) {
        let record = *self.records.get(slot);
        let sites = self.peers.sites_of(&self.records.placement_of(&record).sites);
        let to = sites.intersection(offer_to);
        if to.is_empty() {
            return;
        }
        let bytes = outbox.encode(&PeerMessage::Copy(self.copy_of(&record, &mut Vec::new())));
        to.iter().for_each(|peer| self.offer(peer, record.id, bytes.clone(), outbox));
    }

    /// Begins to move a timer to `list`.
    fn begin_move(&mut self, tick: Tick, slot: Slot, list: Replicas, outbox: &mut Outbox) {
        let record = *self.records.get(slot);
        if self.reconcile.moves.contains_key(&record.id.0) {
            return;
        }
        let former = *self.records.placement_of(&record);
        let view = &self.peers.view;
        let waiting = view.peers_of(&list).without(self.peers.own()).minus(self.peers.dead());
        let full = waiting.minus(view.peers_of(&former.replicas));
        let full = full.intersection(self.peers.full(tick));
        let is_reachable = waiting.minus(self.peers.alive()).union(full).is_empty();
        let agrees = self.agrees(&former.replicas, &list);
        let mut placement = self.placement(list, former.sites, former.factor);
        // The last live holder does not forget the timer.
        let is_last = waiting.is_empty() && placement.own.is_none();
        let due = self.records.due(&record);
        let left = view.peers_of(&former.replicas).minus(view.peers_of(&list));
        let is_acted_upon = !waiting.union(left).intersection(self.peers.http()).is_empty();
        let is_early = due <= tick + HTTP_GUARD_MS && former.own.is_some() && is_acted_upon;
        if is_early || !is_reachable || is_last || !agrees {
            return self.reconcile.look_again(tick, record.id);
        }
        placement.actives = self.actives_meanwhile(&former, &list);
        let round = self.reconcile.next_round();
        let key = record.key();
        let moving = Move { key, placement, waiting, round, is_passed_on: false };
        self.reconcile.moves.insert(record.id.0, moving);
        // Peers on both lists are asked, too, whether they hold the timer and agree: a peer that
        // believes a new holder dead would go on with the former list. All nodes take the new list
        // over together, when the move is finished. If all ranks of the new list act already, a
        // peer told of that list would take it over at once. So that peer is only asked whether it
        // holds the timer.
        let is_under_way = self.is_under_way(&list, placement.actives);
        let held = self.standing_of(&record);
        let moved = Standing { actives: placement.actives, list_digest: list.digest(), ..held };
        let held_bytes = outbox.encode(&PeerMessage::Standing(held));
        let moved_bytes = outbox.encode(&PeerMessage::Standing(moved));
        let holders = self.peers.view.peers_of(&former.replicas);
        for peer in waiting.iter() {
            if self.peers.speaks_http(peer) {
                self.send_moved(slot, peer, &moving, outbox);
                continue;
            }
            let is_holder = holders.contains(peer);
            let bytes = if is_holder && !is_under_way { &held_bytes } else { &moved_bytes };
            self.offer_in(round, peer, record.id, bytes.clone(), outbox);
        }
        if waiting.is_empty() || is_planted(Bug::DropBeforeNewHolderAcknowledged) {
            self.finish_move(tick, record.id, outbox);
        }
    }

    /// Begins to pass on to its holders what another site has told, if this node keeps it and is no
    /// holder. Returns the round of that move.
    pub(super) fn begin_to_pass_on(&mut self, outline: &Outline, holders: PeerSet) -> Option<u8> {
        let (id, key, placement) = (outline.id, outline.key, outline.placement);
        let slot = self.find(id).filter(|slot| self.records.get(*slot).is_live())?;
        if placement.own.is_some() {
            return None;
        }
        if holders.is_empty() || self.reconcile.is_full() {
            // The timer is moved later.
            self.look_later_if_misplaced(self.turns.at, slot);
            return None;
        }
        let round = self.reconcile.next_round();
        let moving = Move { key, placement, waiting: holders, round, is_passed_on: true };
        self.reconcile.moves.insert(id.0, moving);
        Some(round)
    }

    /// The ranks of `list` that act while a timer moves there. If a node that leaves acts, too, no
    /// rank is told of. So a new holder waits behind all acting nodes.
    fn actives_meanwhile(&self, former: &Placement, list: &Replicas) -> u16 {
        let acting = former.actives | former.confirmed;
        let ranks = former.replicas.as_slice().iter().zip(0_u8..);
        let mut leaving = ranks.filter(|(node, _)| list.rank_of(**node).is_none());
        let do_leavers_act = leaving.any(|(_, rank)| acting >> rank & 1 == 1);
        if do_leavers_act { 0 } else { self.carried_actives(former, list) }
    }

    fn send_moved(&mut self, slot: Slot, peer: PeerIndex, moving: &Move, outbox: &mut Outbox) {
        let to = &moving.placement;
        let record = *self.records.get(slot);
        let mut room = Vec::new();
        let copy = self.copy_of(&record, &mut room);
        let moved = TimerCopy {
            standing: Standing { actives: to.actives, ..copy.standing },
            replicas: to.replicas,
            ..copy
        };
        let bytes = outbox.encode(&PeerMessage::Copy(moved));
        self.offer_in(moving.round, peer, record.id, bytes, outbox);
    }

    /// Takes a peer's result of an offer. A result counts for a move only if the offer was a part
    /// of that move: what a peer held during an earlier one, it may have given away.
    pub(super) fn offer_result(
        &mut self,
        now: Now,
        peer: PeerIndex,
        (id, round): (TimerId, u8),
        result: Option<PeerResult<'_>>,
        outbox: &mut Outbox,
    ) {
        self.reconcile.offers -= 1;
        let tick = now.mono.tick_floor();
        let moving = self.reconcile.moves.get(&id.0).copied();
        let moving = moving.filter(|moving| moving.round == round);
        let slot = self.find(id);
        // What a core held through an absence may be outdated. The core gives nothing away before
        // the nodes that know better have told.
        let is_behind = slot.is_some_and(|slot| self.is_unheard(slot, id));
        match (moving, slot, result) {
            (None, Some(_), Some(PeerResult::Wanted)) if is_behind => {
                self.reconcile.start_walk(PeerSet::EMPTY.with(peer));
            }
            (None, Some(_), Some(PeerResult::Ahead | PeerResult::Otherwise)) => {
                self.confirm(id, peer);
            }
            (None, Some(slot), Some(PeerResult::Wanted)) => {
                let record = *self.records.get(slot);
                if record.is_live() && !self.is_to_hold(peer, &record) {
                    return self.look_later_if_misplaced(tick, slot);
                }
                let bytes =
                    outbox.encode(&PeerMessage::Copy(self.copy_of(&record, &mut Vec::new())));
                self.offer(peer, id, bytes, outbox);
            }
            (None, Some(_), Some(PeerResult::Held)) => self.confirm(id, peer),
            (None, Some(_), Some(PeerResult::Refused(PeerRefusal::Full))) => {
                self.refused_for_room(tick, peer, id);
            }
            (None, ..) => {}
            (Some(_), None, _) => {
                self.reconcile.moves.remove(&id.0);
            }
            (Some(_), Some(_), Some(PeerResult::Refused(PeerRefusal::Full))) => {
                self.reconcile.moves.remove(&id.0);
                self.refused_for_room(tick, peer, id);
                self.reconcile.look_again(tick, id);
            }
            (Some(moving), Some(slot), Some(PeerResult::Wanted))
                if self.records.get(slot).key() == moving.key && !is_behind =>
            {
                self.reconcile.is_wanted(id);
                self.send_moved(slot, peer, &moving, outbox);
            }
            (Some(moving), Some(_), Some(PeerResult::Held | PeerResult::Ahead))
                if result == Some(PeerResult::Held) || moving.placement.own.is_none() =>
            {
                let waiting = moving.waiting.without(peer);
                self.reconcile.moves.insert(id.0, Move { waiting, ..moving });
                if waiting.is_empty() {
                    self.finish_move(tick, id, outbox);
                }
            }
            (Some(_), Some(_), _) => {
                self.reconcile.moves.remove(&id.0);
                self.reconcile.look_again(tick, id);
            }
        }
    }

    /// Whether a peer is another site, or stands on the timer's list.
    fn is_to_hold(&self, peer: PeerIndex, record: &Record) -> bool {
        let view = &self.peers.view;
        let replicas = self.records.placement_of(record).replicas;
        view.connected_sites().union(view.peers_of(&replicas)).contains(peer)
    }

    /// Ends a move: every node on the new list has the timer.
    fn finish_move(&mut self, tick: Tick, id: TimerId, outbox: &mut Outbox) {
        let Some(moving) = self.reconcile.moves.remove(&id.0) else { return };
        let Some(slot) = self.find(id) else { return };
        let record = *self.records.get(slot);
        if !record.is_live() {
            return;
        }
        let mut placement = moving.placement;
        let former = self.records.placement_of(&record).replicas;
        // The new holders may have done pops since. This node can forget the timer all the same.
        let is_same = match placement.own {
            Some(_) => record.key() == moving.key,
            None => record.version == moving.key.version,
        };
        let is_known = !self.is_unheard(slot, id);
        let is_called = record.state == State::InFlight || self.reconcile.is_called(tick, id);
        let is_settled = is_same && is_known && !is_called;
        if !is_settled || !self.agrees(&former, &placement.replicas) {
            return self.reconcile.look_again(tick, id);
        }
        if self.is_too_late_to_finish(tick, &record, &placement) {
            if !self.peers.lately_full(tick).is_empty() {
                self.reconcile.ready.insert(id.0);
            }
            return self.reconcile.look_again(tick, id);
        }
        if placement.own.is_none() && former == placement.replicas {
            // Those nodes have been on the list for a while. It is not for this node to say which
            // of them act.
            if moving.is_passed_on || self.reconcile.may_forget(tick, id) {
                self.records.forget(tick, slot);
            }
            return;
        }
        let dead = self.ranks_of(&placement.replicas, self.peers.dead());
        // All live ranks act: a list of which a live rank does not act is taken for a move under
        // way.
        placement.actives = placement.replicas.all_ranks() & !dead;
        placement.confirmed = 0;
        // All nodes of the former list are told, too, whether they are on the new list or not. They
        // may have found the timer due too soon to move it themselves, and would pop beside the new
        // holders. They get the whole copy, for this node may have forgotten the timer when they
        // ask for it.
        let view = &self.peers.view;
        let deaf = self.peers.dead().union(self.peers.http()).with(self.peers.own());
        let holders = view.peers_of(&former).minus(deaf);
        let others = view.peers_of(&placement.replicas).minus(deaf).minus(holders);
        let left = view.peers_of(&former).minus(view.peers_of(&placement.replicas));
        let left = left.intersection(self.peers.http()).minus(self.peers.dead());
        self.place(slot, &placement);
        self.counters.moved += 1;
        self.end_at(tick, slot, left, outbox);
        self.tell(slot, others, false, outbox);
        self.tell(slot, holders, true, outbox);
        match placement.own {
            None if self.reconcile.may_forget(tick, id) => self.records.forget(tick, slot),
            None => {}
            // A node may have died or returned meanwhile.
            Some(_) => self.look_later_if_misplaced(tick, slot),
        }
    }

    /// Whether holders of the former list may be about to pop, and would not hear of the new list
    /// before they do. This node may be one of them. If it is not, it may still be about to act
    /// beside them, and then leaves to them the pop that they are about to make.
    fn is_too_late_to_finish(&self, tick: Tick, record: &Record, next: &Placement) -> bool {
        let (due, former) = (self.records.due(record), self.records.placement_of(record));
        if former.own.is_some() {
            return due <= tick + FINISH_GUARD_MS;
        }
        let holders = self.peers.view.peers_of(&former.replicas).minus(self.peers.dead());
        let is_new = former.replicas != next.replicas && !is_planted(Bug::BesideListTakesPop);
        is_new && !holders.is_empty() && due.0.abs_diff(tick.0) <= FINISH_GUARD_MS
    }

    /// Tells nodes that act on whatever they hold that a timer has ended there, because other nodes
    /// hold it. The end starts at this tick, as that of a delete does: a node that knows a later
    /// start would refuse it.
    fn end_at(&self, tick: Tick, slot: Slot, left: PeerSet, outbox: &mut Outbox) {
        if left.is_empty() {
            return;
        }
        let record = self.records.get(slot);
        let mut room = Vec::new();
        let copy = self.copy_of(record, &mut room);
        let ended = TimerCopy { start_ms: tick.0, body: None, ..copy };
        let bytes = outbox.encode(&PeerMessage::Copy(ended));
        left.iter().for_each(|peer| outbox.tell(peer, Purpose::News(record.id), bytes.clone()));
    }

    /// Whether all live nodes of both lists see the same members as this node. A node that sees
    /// other members would not know that the timer moves, and would pop it where it was.
    fn agrees(&self, former: &Replicas, list: &Replicas) -> bool {
        let view = &self.peers.view;
        let concerned = view.peers_of(former).union(view.peers_of(list)).without(self.peers.own());
        let frames = concerned.intersection(self.peers.alive()).minus(self.peers.http());
        frames.intersection(self.peers.other_view).is_empty()
    }
}

#[cfg(test)]
#[path = "reconcile_tests.rs"]
mod tests;
