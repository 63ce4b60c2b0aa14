//! Clients' writes on their way to the replicas. A client is answered when every replica that is
//! believed alive has its write (or the first, if so configured); one that no node has is answered
//! 503, never 200.
//!
//! A write that lost against a state this node did not know (it need not be a replica) is made
//! again with a version above it: it was not answered yet, so it may count as the later one.

use crate::base::ids::{PeerIndex, PeerSet};
use crate::base::limits::Acknowledge;
use crate::base::planted::{Bug, is_planted};
use crate::base::slots::SlotKey;
use crate::base::time::{Now, Tick};
use crate::cluster::view::View;
use crate::timer::version::{StateKey, Version};
use crate::wire::peer_message::{
    CopyBody, PeerMessage, PeerRefusal, PeerResult, Standing, TimerCopy,
};

use super::Shard;
use super::effects::{Answer, Outbox, Purpose, Refusal, Reply, Target};
use super::parts::peers::FULL_MS;
use super::parts::writes::{NewWrite, Plan, Waiting};
use super::records::{Outline, Placement};

/// How often a write is made again before the client is told to retry.
const TRIES_MAX: u8 = 4;
/// A write that waits for so much longer than it takes to declare a node dead is refused: a replica
/// is not dead and does not answer. The core that owns the timer there may get no time, while
/// others of its node tell that the node lives.
const BEYOND_DEATH_MS: u64 = 5_000;

impl Shard {
    /// Makes a write here, if this node is to hold the timer or holds it, and tells it to everybody
    /// else whom it concerns. `None`: it is answered when they have it.
    ///
    /// An id that is not held gets a tombstone, too, so that a create still under way loses against
    /// it; without room there is none: nothing is lost by that which a client was promised.
    pub(super) fn write(
        &mut self,
        now: Now,
        new: &NewWrite<'_>,
        plan: &Plan,
        outbox: &mut Outbox,
    ) -> Result<Option<Answer>, Refusal> {
        self.room_for_a_write(plan)?;
        let tick = now.mono.tick_floor();
        let held = self.find(new.id).map(|slot| *self.records.get(slot));
        let is_own = plan.placement.own.is_some();
        match new.body {
            Some((authority, content)) if is_own || held.is_some_and(|held| held.is_live()) => {
                match &held {
                    Some(held) => self.records.room_for_change(held, content.len())?,
                    None => self.records.room(content.len())?,
                }
                let authority = self.records.admit_authority(authority)?;
                let outline = new.outline(plan.placement);
                let slot = self.records.hold(&self.peers, tick, &outline, authority, content);
                self.look_later_if_misplaced(tick, slot);
            }
            None if held.is_some()
                || is_own && self.records.room(0).is_ok() && !is_planted(Bug::DropTombstone) =>
            {
                let slot = self.records.bury(tick, &new.outline(plan.placement));
                self.look_later_if_misplaced(tick, slot);
            }
            Some(_) => self.leave_to_others(new.id, &plan.placement),
            None => {}
        }
        self.replicate(now, new, plan, outbox)
    }

    /// Whether one more write may wait, if it has to.
    fn room_for_a_write(&self, plan: &Plan) -> Result<(), Refusal> {
        let waits = plan.placement.replicas.len() > 1
            || plan.placement.own.is_none()
            || !plan.extras.is_empty();
        if waits && self.writes.len() >= self.config.cluster.writes_waiting_max as usize {
            return Err(Refusal::WritesFull);
        }
        Ok(())
    }

    /// Tells a write, already made here, to everybody else whom it concerns. `None`: it is answered
    /// when they have it.
    fn replicate(
        &mut self,
        now: Now,
        new: &NewWrite<'_>,
        plan: &Plan,
        outbox: &mut Outbox,
    ) -> Result<Option<Answer>, Refusal> {
        let placement = &plan.placement;
        if self.peers.is_alone() {
            return Ok(Some(self.done(new.id, placement)));
        }
        let outline = new.outline(*placement);
        let body = new.body.map(|(authority, content)| CopyBody { authority, content });
        let copy = TimerCopy { is_write: true, body, ..bare_copy(&outline) };
        let bytes = outbox.encode(&PeerMessage::Copy(copy));
        self.tell_sites(placement, bytes.clone(), new.id, outbox);
        let own = self.peers.own();
        let replicas = self.peers.view.peers_of(&placement.replicas);
        let targets = replicas.union(plan.extras).without(own);
        if targets.is_empty() {
            return Ok(Some(self.done(new.id, placement)));
        }
        let held = if placement.own.is_some() { PeerSet::EMPTY.with(own) } else { PeerSet::EMPTY };
        let waiting = Waiting {
            from: new.from,
            asked_at: new.asked_at,
            outline,
            body: new.body.map(|body| self.writes.keep(body)),
            waiting: targets,
            asked: targets,
            held,
            refused: new.refused,
            reason: Refusal::NoRoom,
            is_create: plan.is_create,
            tries: new.tries,
        };
        let key = self.writes.waiting.insert(waiting);
        for peer in targets.iter() {
            if is_planted(Bug::SkipOneReplica) && Some(peer) == targets.iter().last() {
                self.writes.forget(key, peer);
                continue;
            }
            outbox.tell(peer, Purpose::Write(key), bytes.clone());
        }
        self.settle_write(now, key, outbox);
        Ok(None)
    }

    /// A replica answered.
    pub(super) fn write_result(
        &mut self,
        now: Now,
        peer: PeerIndex,
        key: SlotKey,
        result: PeerResult<'_>,
        outbox: &mut Outbox,
    ) {
        let speaks_http = self.peers.speaks_http(peer);
        let replicas =
            |view: &View, write: &Waiting| view.peers_of(&write.outline.placement.replicas);
        let Some(write) = self.writes.waiting.get_mut(key) else { return };
        match result {
            PeerResult::Superseded { version, factor } if !Version(version).is_impossible() => {
                let again = (Some(Version(version)), factor);
                return self.write_again(now, key, again, outbox);
            }
            PeerResult::Held | PeerResult::Wanted => {
                write.waiting = write.waiting.without(peer);
                write.held = write.held.with(peer);
            }
            PeerResult::Refused(PeerRefusal::Full) => {
                write.waiting = write.waiting.without(peer);
                write.refused = write.refused.with(peer);
                self.peers.note_full(peer, now.mono.tick_floor() + FULL_MS);
            }
            _ => {
                write.waiting = write.waiting.without(peer);
                // An original that is not on the list may not know the timer at all.
                if !speaks_http || replicas(&self.peers.view, write).contains(peer) {
                    write.refused = write.refused.with(peer);
                    write.reason = Refusal::NotTaken;
                }
            }
        }
        self.settle_write(now, key, outbox);
    }

    /// A replica will not answer.
    pub(super) fn write_unheard(
        &mut self,
        now: Now,
        peer: PeerIndex,
        key: SlotKey,
        outbox: &mut Outbox,
    ) {
        let (own, is_dead) = (self.peers.own(), self.peers.dead().contains(peer));
        let is_back_lately = self.turns.is_back_lately();
        let Some(write) = self.writes.waiting.get_mut(key) else { return };
        let is_only_here = write.held.without(own).is_empty();
        if is_only_here && !is_dead && is_back_lately {
            // This core was away, and its links dropped what was too old to be told. The peer may
            // be well: it is told again.
            let factor = write.outline.placement.factor;
            return self.write_again(now, key, (None, factor), outbox);
        }
        write.waiting = write.waiting.without(peer);
        self.settle_write(now, key, outbox);
    }

    /// Refuses writes that have waited for too long.
    pub(super) fn end_writes(&mut self, tick: Tick, outbox: &mut Outbox) {
        let patience_ms = self.config.cluster.dead_after_ms + BEYOND_DEATH_MS;
        for index in 0..self.writes.waiting.places() {
            let waiting = self.writes.waiting.at(index);
            if waiting.is_none_or(|write| tick - write.asked_at < patience_ms) {
                continue;
            }
            let key = self.writes.waiting.key_at(index);
            let write = key.and_then(|key| self.writes.end(key)).expect("looked at above");
            if let Some(to) = write.from {
                self.counters.refused += 1;
                outbox.replies.push(Reply { to, answer: Answer::Refused(Refusal::Unanswered) });
            }
        }
    }

    /// What is believed of peers changed: writes may wait for nobody any more.
    pub(super) fn settle_writes(&mut self, now: Now, outbox: &mut Outbox) {
        for index in 0..self.writes.waiting.places() {
            if let Some(key) = self.writes.waiting.key_at(index) {
                self.settle_write(now, key, outbox);
            }
        }
    }

    /// Answers a write that has waited enough.
    fn settle_write(&mut self, now: Now, key: SlotKey, outbox: &mut Outbox) {
        let Some(write) = self.writes.waiting.get(key) else { return };
        let replicas = self.peers.view.peers_of(&write.outline.placement.replicas);
        let held = write.held.intersection(replicas);
        let waiting = if held.is_empty() || self.turns.is_held() {
            // Nobody has it yet, or this core was away: whoever is not known to be dead may still
            // take it.
            write.waiting.minus(self.peers.dead())
        } else {
            write.waiting.intersection(self.peers.alive())
        };
        let is_first = self.config.cluster.acknowledge == Acknowledge::First;
        if is_first && !held.is_empty() && !waiting.is_empty() {
            return self.answer_early(key, outbox);
        }
        if !waiting.is_empty() && !is_planted(Bug::WriteAnsweredBeforeReplicas) {
            return;
        }
        let is_refused = !write.refused.intersection(replicas).is_empty()
            || write.reason == Refusal::NotTaken && !write.is_create;
        if is_refused && !is_planted(Bug::RefusalCountsAsAnswered) {
            return self.replace_refusing(now, key, outbox);
        }
        if held.is_empty()
            && write.tries < TRIES_MAX
            && !is_planted(Bug::WriteAnsweredBeforeReplicas)
        {
            // All that were to hold it died meanwhile: others stand in.
            let Outline { id, placement, .. } = write.outline;
            let factor = placement.factor;
            if self.plan_new(id, factor).placement.replicas != placement.replicas {
                return self.write_again(now, key, (None, factor), outbox);
            }
        }
        let write = self.writes.end(key).expect("looked at above");
        let answer = if held.is_empty() && !is_planted(Bug::WriteAnsweredBeforeReplicas) {
            self.counters.refused += 1;
            Answer::Refused(Refusal::NoReplica)
        } else {
            self.counters.replicated += 1;
            self.tell_of_missing(&write, held, outbox);
            self.done(write.outline.id, &write.outline.placement)
        };
        if let Some(to) = write.from {
            outbox.replies.push(Reply { to, answer });
        }
    }

    /// Replicas refuse a write: others stand in for them, or it is not answered with 200. One that
    /// may hold an earlier state and refuses, not for lack of room, goes on with that.
    fn replace_refusing(&mut self, now: Now, key: SlotKey, outbox: &mut Outbox) {
        let Some(write) = self.writes.waiting.get(key) else { return };
        let (id, factor) = (write.outline.id, write.outline.placement.factor);
        let members = self.peers.not_dead();
        let able = self.peers.view.place(id, factor, members.minus(write.refused));
        let suffice = able.len() == self.peers.view.place(id, factor, members).len();
        let is_end = write.body.is_none();
        // Who stands in must hear of a delete, however few these are.
        let untold = self.peers.view.peers_of(&able).minus(write.asked).without(self.peers.own());
        let helps = suffice && !able.is_empty() || is_end && !untold.is_empty();
        let may_replace = write.reason == Refusal::NoRoom || write.is_create;
        if may_replace && helps {
            return self.write_again(now, key, (None, factor), outbox);
        }
        if is_end && write.reason == Refusal::NoRoom {
            // Nobody lacks a timer that has ended.
            return self.answer_end(key, outbox);
        }
        let write = self.writes.end(key).expect("looked at above");
        self.counters.refused += u64::from(write.from.is_some());
        // One that is answered already stays with those that have it.
        if write.is_create && write.from.is_some() {
            self.undo(now, write.asked, &write.outline, outbox);
        } else {
            self.tell_of_missing(&write, write.held, outbox);
            let full = write.refused.iter().filter(|_| write.reason == Refusal::NoRoom);
            full.for_each(|peer| self.refused_for_room(now.mono.tick_floor(), peer, id));
        }
        if let Some(to) = write.from {
            outbox.replies.push(Reply { to, answer: Answer::Refused(write.reason) });
        }
    }

    /// Answers a delete that all have heard of: who has no room for its tombstone has no timer.
    fn answer_end(&mut self, key: SlotKey, outbox: &mut Outbox) {
        let write = self.writes.end(key).expect("its caller looked at it");
        self.counters.replicated += 1;
        let answer = self.done(write.outline.id, &write.outline.placement);
        if let Some(to) = write.from {
            outbox.replies.push(Reply { to, answer });
        }
    }

    /// Ends a new timer of which the client is told that it was not taken: some may hold it.
    fn undo(&mut self, now: Now, told: PeerSet, made: &Outline, outbox: &mut Outbox) {
        let id = made.id;
        let version = self.clock.assign(now.wall, Some(made.key.version));
        let key = StateKey { version, ..made.key };
        let Placement { replicas, sites, factor, .. } = made.placement;
        let placement = self.placement(replicas, sites, factor);
        if self.find(id).is_some() {
            let ended = Outline { key, placement, ..*made };
            self.records.bury(now.mono.tick_floor(), &ended);
        }
        let ended = Outline { key, ..*made };
        let bytes = outbox.encode(&PeerMessage::Copy(bare_copy(&ended)));
        self.tell_sites(&placement, bytes.clone(), id, outbox);
        for peer in told.without(self.peers.own()).iter() {
            outbox.tell(peer, Purpose::News(id), bytes.clone());
        }
    }

    /// Tells all whom a write concerns which of those that are to hold the timer have no room, so
    /// that they take the list without them.
    fn tell_of_refusing(&self, write: &Waiting, plan: &Plan, outbox: &mut Outbox) {
        let view = &self.peers.view;
        let deaf = self.peers.http().with(self.peers.own());
        let told = view.peers_of(&plan.placement.replicas).union(plan.extras).minus(deaf);
        for &at in write.outline.placement.replicas.as_slice() {
            if !view.peer_of(at).is_some_and(|peer| write.refused.contains(peer)) {
                continue;
            }
            let bytes = outbox.encode(&PeerMessage::NoRoom { id: write.outline.id, at });
            told.iter().for_each(|peer| outbox.tell(peer, Purpose::Hint, bytes.clone()));
        }
    }

    /// Replicas that could not be told are offered the timer by those that have it: this node may
    /// not hold it, or die before it can tell them.
    fn tell_of_missing(&self, write: &Waiting, held: PeerSet, outbox: &mut Outbox) {
        let tellable = held.minus(self.peers.http()).without(self.peers.own());
        for &by in write.outline.placement.replicas.as_slice() {
            let has_it = self.peers.view.peer_of(by).is_none_or(|peer| held.contains(peer));
            if has_it || tellable.is_empty() {
                continue;
            }
            let bytes = outbox.encode(&PeerMessage::Missed { id: write.outline.id, by });
            let purpose = Purpose::News(write.outline.id);
            tellable.iter().for_each(|peer| outbox.tell(peer, purpose, bytes.clone()));
        }
    }

    /// Answers a write that one replica has. It still waits for the others: one of them may know
    /// better, and then it is made again.
    fn answer_early(&mut self, key: SlotKey, outbox: &mut Outbox) {
        let Some(write) = self.writes.waiting.get_mut(key) else { return };
        let Some(to) = write.from.take() else { return };
        let Outline { id, placement, .. } = write.outline;
        let answer = self.done(id, &placement);
        outbox.replies.push(Reply { to, answer });
    }

    /// Refuses a write when this node has left: those that were to hold the timer are no peers any
    /// more, and this node is none of them.
    fn leave_unwritten(&mut self, key: SlotKey, outbox: &mut Outbox) {
        let Some(write) = self.writes.end(key) else { return };
        self.counters.refused += u64::from(write.from.is_some());
        let answer = Answer::Refused(Refusal::NoReplica);
        outbox.replies.extend(write.from.map(|to| Reply { to, answer }));
    }

    /// Makes a write again, with the factor of the timer held: above the version `seen` that it
    /// lost against, or (`None`: those that were to hold it are dead) as the write that it is. For
    /// these may have it, and pop it, and be only cut off: then what all know of it is merged.
    fn write_again(
        &mut self,
        now: Now,
        key: SlotKey,
        (seen, factor): (Option<Version>, u8),
        outbox: &mut Outbox,
    ) {
        if self.peers.view.has_left() {
            return self.leave_unwritten(key, outbox);
        }
        let Some(mut write) = self.writes.waiting.remove(key) else { return };
        let body = write.body.take();
        let Outline { id, key: made, start, interval_ms, repeat_for_ms, .. } = write.outline;
        let held = self.find(id).map(|slot| *self.records.get(slot));
        let newest = held.map_or(made.version, |held| held.version.max(made.version));
        let version = match seen {
            None if newest == made.version => made.version,
            seen => self.clock.assign(now.wall, Some(newest.max(seen.unwrap_or(made.version)))),
        };
        let done = held.filter(|held| held.version == version).map_or(0, |held| held.sequence);
        let new = NewWrite {
            from: write.from,
            asked_at: write.asked_at,
            id,
            key: StateKey { version, sequence: made.sequence.max(done) },
            start,
            interval_ms,
            repeat_for_ms,
            body: body.as_ref().map(|body| (&*body.authority, &*body.content)),
            // Where others stand in for those that refused, these are fewer each time.
            tries: write.tries + u8::from(write.refused.is_empty() || seen.is_some()),
            refused: write.refused,
        };
        let target = Target { id, factor: Some(factor), filter: None };
        let mut plan = self.plan_known_without(target, factor, held.as_ref(), write.refused);
        plan.is_create = write.is_create;
        let replicas = self.peers.view.peers_of(&plan.placement.replicas);
        let told = replicas.union(write.refused).with(self.peers.own());
        plan.extras = plan.extras.union(write.asked).minus(told);
        self.tell_of_refusing(&write, &plan, outbox);
        // It popped here to its end, as a holder that was not to have it.
        let is_over = new.body.is_some()
            && held.is_some_and(|held| held.version == version && !held.is_live());
        // What is held already may be popping.
        let made_here = held.filter(|held| held.version == version).and(self.find(id));
        let answer = match (write.tries, made_here) {
            _ if is_over => Ok(Some(self.done(id, &plan.placement))),
            (TRIES_MAX.., _) if seen.is_none() => Err(Refusal::Unanswered),
            (TRIES_MAX.., _) => Err(Refusal::Contended),
            (_, Some(slot)) => {
                self.place(slot, &plan.placement);
                self.replicate(now, &new, &plan, outbox)
            }
            (_, None) => self.write(now, &new, &plan, outbox),
        };
        let answer = answer.unwrap_or_else(|refusal| {
            self.counters.refused += u64::from(write.from.is_some());
            if write.is_create && write.from.is_some() {
                self.undo(now, write.asked, &write.outline, outbox);
            }
            Some(Answer::Refused(refusal.after_others()))
        });
        if let (Some(to), Some(answer)) = (write.from, answer) {
            outbox.replies.push(Reply { to, answer });
        }
        self.writes.recycle(body);
    }
}

/// A copy that ends a timer; of a write that ends none, all but what it gives the timer.
fn bare_copy(outline: &Outline) -> TimerCopy<'static> {
    let Outline { id, key, start, interval_ms, repeat_for_ms, placement } = outline;
    TimerCopy {
        standing: Standing {
            id: *id,
            version: key.version.0,
            sequence: key.sequence,
            actives: placement.actives,
            list_digest: 0,
        },
        is_write: false,
        replicas: placement.replicas,
        factor: placement.factor,
        sites: placement.sites,
        start_ms: start.0,
        interval_ms: *interval_ms,
        repeat_for_ms: *repeat_for_ms,
        body: None,
    }
}

#[cfg(test)]
#[path = "writes_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "writes_refused_tests.rs"]
mod refused_tests;
