//! Clients' writes on their way to the replicas. A client is answered when every replica that is
//! believed alive has its write, or when the first replica has it, if so configured. A write that
//! no node has is answered 503, never 200.
//!
//! A write may lose against a state that this node did not know, for this node need not be a
//! replica. Then the write is made again with a version above that state. The client has no answer
//! yet, so the write may count as the later one.

// May panic: expectations 4.
// Why it does not: found 4.
// Reads the wall clock: order 4.

use crate::base::ids::{PeerIndex, PeerSet, Slot, TimerId};
use crate::base::limits::{Acknowledge, CLOCK_LEAD_MS_MAX, TOMBSTONE_MS_MIN};
use crate::base::planted::{Bug, is_planted};
use crate::base::slots::SlotKey;
use crate::base::time::{Now, Tick, WallMs};
use crate::cluster::view::View;
use crate::timer::identity::Minter;
use crate::timer::naming::may_be_of_key;
use crate::timer::version::{StateKey, Version};
use crate::wire::peer_message::{CopyBody, PeerMessage, PeerRefusal, PeerResult, TimerCopy};

use super::Shard;
use super::effects::{Answer, Identified, Outbox, Purpose, Refusal, Reply, Requester, Target};
use super::parts::peers::FULL_MS;
use super::parts::writes::{Body, NewWrite, Plan, Waiting, bare_copy};
use super::records::{Outline, Placement, Record, State};

/// How often a write is made before the client is told to retry.
const TRIES_MAX: u8 = 4;
/// A write that waits for this much longer than it takes to declare a node dead is refused. Then a
/// replica is not dead and does not answer: the core that owns the timer there may get no time,
/// while other cores of its node tell that the node lives.
const BEYOND_DEATH_MS: u64 = 5_000;

impl Shard {
    /// Makes a write here, if this node is to hold the timer or holds it, and tells it to all other
    /// nodes that it concerns. `None`: the client is answered when those nodes have the write.
    ///
    /// The end of a timer that is not held leaves a tombstone, too. A create that is still under
    /// way then loses against it. Without room there is no tombstone. No promise to a client is
    /// broken by that.
    pub(super) fn write(
        &mut self,
        now: Now,
        new: &NewWrite<'_>,
        plan: &Plan,
        outbox: &mut Outbox,
    ) -> Result<Option<Answer>, Refusal> {
        self.room_for_a_write(plan)?;
        let tick = now.mono.tick_floor();
        let held = new.slot.map(|slot| *self.records.get(slot));
        let is_own = plan.placement.own.is_some();
        match new.body {
            Some((authority, content)) if is_own || held.is_some_and(|held| held.is_live()) => {
                self.records.room_of_owner(held.as_ref(), content)?;
                match &held {
                    Some(held) => self.records.room_for_change(held, content.len())?,
                    None => self.records.room(content.len())?,
                }
                let authority = match new.from {
                    Some(_) => self.records.admit_authority(authority)?,
                    None => self.records.enter_authority(authority),
                };
                let outline = new.outline(plan.placement);
                let (records, peers) = (&mut self.records, &self.peers);
                let slot = records.hold(peers, tick, (&outline, new.slot), authority, content);
                self.note_callback(tick, held.as_ref(), slot);
                self.look_later_if_misplaced(tick, slot);
            }
            None if held.is_some()
                || (is_own || self.peers.has_silent_original())
                    && self.records.room(0).is_ok()
                    && !is_planted(Bug::DropTombstone) =>
            {
                let slot = self.records.bury(tick, &new.outline(plan.placement), new.slot);
                self.look_later_if_misplaced(tick, slot);
            }
            Some(_) => self.leave_to_others(new.id, &plan.placement),
            None => {}
        }
        self.replicate(now, new, plan, outbox)
    }

    /// Refuses a write that has to wait when as many wait as may.
    fn room_for_a_write(&self, plan: &Plan) -> Result<(), Refusal> {
        let waits = plan.placement.replicas.len() > 1
            || plan.placement.own.is_none()
            || !plan.extras.is_empty();
        if waits && self.writes.len() >= self.config.cluster.writes_waiting_max as usize {
            return Err(Refusal::WritesFull);
        }
        Ok(())
    }

    /// Tells a write that is made here to all other nodes that it concerns. `None`: the client is
    /// answered when those nodes have the write.
    pub(super) fn replicate(
        &mut self,
        now: Now,
        new: &NewWrite<'_>,
        plan: &Plan,
        outbox: &mut Outbox,
    ) -> Result<Option<Answer>, Refusal> {
        let placement = &plan.placement;
        if self.peers.is_alone() {
            return Ok(Some(self.done_by(&new.outline(*placement), new.is_identified())));
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
            return Ok(Some(self.done_by(&outline, new.is_identified())));
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
            gives_way: new.gives_way,
            tries: new.tries,
            is_decided: new.is_decided,
            is_identified: new.is_identified(),
            position: self.position(),
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

    /// Takes a peer's result of a write.
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
            // The state that the peer holds was written after the condition was met.
            PeerResult::Superseded { .. } if write.is_decided => {
                write.waiting = write.waiting.without(peer);
                write.held = write.held.with(peer);
            }
            PeerResult::Superseded { .. } if write.gives_way => {
                return self.drop_write(key, Refusal::Contended, outbox);
            }
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
            PeerResult::Refused(PeerRefusal::TokenFull) => {
                write.waiting = write.waiting.without(peer);
                write.refused = write.refused.with(peer);
                write.reason = Refusal::TokenFull;
            }
            PeerResult::Refused(PeerRefusal::OtherName) => {
                write.waiting = write.waiting.without(peer);
                write.refused = write.refused.with(peer);
                write.reason = Refusal::OtherName;
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

    /// Notes that a peer will not answer a write.
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
            // be well, so the write is made again.
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
                outbox.reply(to, Answer::Refused(Refusal::Unanswered));
            }
        }
    }

    /// Looks at all waiting writes after beliefs about peers have changed: a write may have no peer
    /// left to wait for.
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
            // No replica has the write yet, or this core was away. A peer that is not known to be
            // dead may still take the write.
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
            // All nodes that were to hold the timer died meanwhile: other nodes stand in.
            let Outline { id, placement, .. } = write.outline;
            let factor = placement.factor;
            if self.plan_new(id, factor).placement.replicas != placement.replicas {
                return self.write_again(now, key, (None, factor), outbox);
            }
        }
        let write = self.writes.end(key).expect("looked at above");
        let after = write.position;
        let answer = if held.is_empty() && !is_planted(Bug::WriteAnsweredBeforeReplicas) {
            self.counters.refused += 1;
            Answer::Refused(Refusal::NoReplica)
        } else {
            self.counters.replicated += 1;
            self.tell_of_missing(&write, held, outbox);
            self.done_by(&write.outline, write.is_identified)
        };
        if let Some(to) = write.from {
            outbox.replies.push(Reply { to, answer, after });
        }
    }

    /// Finds others for replicas that refuse a write, or answers it with a refusal. A replica that
    /// refuses for another reason than lack of room may hold an earlier state and go on with it. So
    /// others stand in for such a replica only on a create. Nobody stands in for a replica that
    /// holds as many timers of the owner as the owner may have.
    fn replace_refusing(&mut self, now: Now, key: SlotKey, outbox: &mut Outbox) {
        let Some(write) = self.writes.waiting.get(key) else { return };
        let (id, factor) = (write.outline.id, write.outline.placement.factor);
        let members = self.peers.not_dead();
        let able = self.peers.view.place(id, factor, members.minus(write.refused));
        let suffice = able.len() == self.peers.view.place(id, factor, members).len();
        let is_end = write.body.is_none();
        // The stand-ins must hear of a delete, however few they are.
        let untold = self.peers.view.peers_of(&able).minus(write.asked).without(self.peers.own());
        let helps = suffice && !able.is_empty() || is_end && !untold.is_empty();
        let is_full = write.reason == Refusal::TokenFull;
        let may_replace = write.reason == Refusal::NoRoom || write.is_create && !is_full;
        if may_replace && helps {
            return self.write_again(now, key, (None, factor), outbox);
        }
        if is_end && write.reason == Refusal::NoRoom {
            // A timer that has ended lacks no copy.
            return self.answer_end(key, outbox);
        }
        let write = self.writes.end(key).expect("looked at above");
        self.counters.refused += u64::from(write.from.is_some());
        // A write that was answered already stays with the nodes that have it.
        if write.is_create && write.from.is_some() {
            self.undo(now, write.asked, &write.outline, outbox);
        } else {
            self.tell_of_missing(&write, write.held, outbox);
            let full = write.refused.iter().filter(|_| write.reason == Refusal::NoRoom);
            full.for_each(|peer| self.refused_for_room(now.mono.tick_floor(), peer, id));
        }
        if let Some(to) = write.from {
            outbox.reply(to, Answer::Refused(write.reason));
        }
    }

    /// Answers a delete that all nodes have heard of. A node without room for the tombstone has no
    /// timer.
    fn answer_end(&mut self, key: SlotKey, outbox: &mut Outbox) {
        let write = self.writes.end(key).expect("its caller looked at it");
        self.counters.replicated += 1;
        let answer = self.done(write.outline.id, &write.outline.placement);
        if let Some(to) = write.from {
            outbox.replies.push(Reply { to, answer, after: write.position });
        }
    }

    /// Ends a new timer after the client was told that it was not taken: some nodes may hold it.
    fn undo(&mut self, now: Now, told: PeerSet, made: &Outline, outbox: &mut Outbox) {
        let id = made.id;
        let version = self.clock.assign(now.wall, Some(made.key.version));
        let key = StateKey { version, ..made.key };
        let Placement { replicas, sites, factor, .. } = made.placement;
        let placement = self.placement(replicas, sites, factor);
        if let Some(slot) = self.find(id) {
            let ended = Outline { key, placement, ..*made };
            self.records.bury(now.mono.tick_floor(), &ended, Some(slot));
        }
        let ended = Outline { key, ..*made };
        let bytes = outbox.encode(&PeerMessage::Copy(bare_copy(&ended)));
        self.tell_sites(&placement, bytes.clone(), id, outbox);
        for peer in told.without(self.peers.own()).iter() {
            outbox.tell(peer, Purpose::News(id), bytes.clone());
        }
    }

    /// Tells all nodes that a write concerns which nodes of its list have no room, so that they
    /// take the list without them.
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

    /// Tells the nodes that have a write which replicas lack it, so that they offer those replicas
    /// the timer. This node may not hold the timer, or may die before it can tell the replicas.
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

    /// Answers a write that one replica has. The write still waits for the other replicas: one of
    /// them may know a newer state, and then the write is made again.
    fn answer_early(&mut self, key: SlotKey, outbox: &mut Outbox) {
        let Some(write) = self.writes.waiting.get_mut(key) else { return };
        let Some(to) = write.from.take() else { return };
        let (outline, is_identified, after) = (write.outline, write.is_identified, write.position);
        let answer = self.done_by(&outline, is_identified);
        outbox.replies.push(Reply { to, answer, after });
    }

    /// Notes the pops of a write that were made here, as another state takes the place of the write
    /// that still waits for replicas. If the write is made again, they are not made again. Cost: a
    /// look at all writes that wait, if the write is so young that it may.
    pub(super) fn note_pops_made(&mut self, held: &Record) {
        let is_own = held.version.is_of(self.config.instance);
        let waits_ms = self.config.cluster.dead_after_ms + BEYOND_DEATH_MS;
        let is_young = held.start + waits_ms >= self.turns.at;
        if held.sequence == 0 || !is_own || !is_young || is_planted(Bug::WriteMadeAgainRepeatsPops)
        {
            return;
        }
        for index in 0..self.writes.waiting.places() {
            let key = self.writes.waiting.key_at(index);
            let Some(write) = key.and_then(|key| self.writes.waiting.get_mut(key)) else {
                continue;
            };
            let Outline { id, key, .. } = &mut write.outline;
            if (*id, key.version) == (held.id, held.version) {
                key.sequence = key.sequence.max(held.sequence);
            }
        }
    }

    /// Why a write is not made again:
    ///
    /// - This node has left its cluster. The nodes that were to hold the timer are no peers any
    ///   more, and this node is not to hold it.
    /// - It gives way, and this node has heard of a newer state meanwhile.
    fn is_unwanted(&self, key: SlotKey) -> Option<Refusal> {
        if self.peers.view.has_left() {
            return Some(Refusal::NoReplica);
        }
        let write = self.writes.waiting.get(key).filter(|write| write.gives_way)?;
        let held = self.records.get(self.find(write.outline.id)?).version;
        (held > write.outline.key.version).then_some(Refusal::Contended)
    }

    /// Ends a write that is not made again.
    fn drop_write(&mut self, key: SlotKey, reason: Refusal, outbox: &mut Outbox) {
        let Some(write) = self.writes.end(key) else { return };
        self.counters.refused += u64::from(write.from.is_some());
        if let Some(to) = write.from {
            outbox.reply(to, Answer::Refused(reason));
        }
    }

    /// The key of a write that is made again: its version, unless the write lost, and the pops of
    /// it that are made.
    fn key_again(
        &mut self,
        now: Now,
        made: StateKey,
        held: Option<&Record>,
        seen: Option<Version>,
    ) -> StateKey {
        let newest = held.map_or(made.version, |held| held.version.max(made.version));
        let version = match seen {
            None if newest == made.version => made.version,
            seen => self.clock.assign(now.wall, Some(newest.max(seen.unwrap_or(made.version)))),
        };
        // A timer that is held already may be popping, or have popped.
        let before = held.filter(|held| held.version == made.version);
        let done = before.map_or(0, |held| held.sequence);
        StateKey { version, sequence: made.sequence.max(done) }
    }

    /// Makes a write again, with the factor of the timer held.
    ///
    /// - `seen` is the version that the write lost against: the write gets a version above it.
    /// - `None`: the nodes that were to hold the timer are dead, and the write keeps its version.
    ///   Those nodes may be cut off only, have the write and pop. When they are back, all that is
    ///   known of the write is merged.
    fn write_again(
        &mut self,
        now: Now,
        key: SlotKey,
        (seen, factor): (Option<Version>, u8),
        outbox: &mut Outbox,
    ) {
        if let Some(reason) = self.is_unwanted(key) {
            return self.drop_write(key, reason, outbox);
        }
        let Some(mut write) = self.writes.waiting.remove(key) else { return };
        let (slot, body) = (self.find(write.outline.id), write.body.take());
        let Outline { id, key: made, start, interval_ms, repeat_for_ms, .. } = write.outline;
        let held = slot.map(|slot| *self.records.get(slot));
        let key = self.key_again(now, made, held.as_ref(), seen);
        let made_here = held.filter(|held| held.version == key.version);
        let is_above = key.version != made.version;
        // Where all pops are made, what is left is to end the state that the write lost against.
        let is_end = is_above && key.sequence > 0 && write.outline.schedule().is_last(key.sequence);
        let new = NewWrite {
            from: write.from,
            asked_at: write.asked_at,
            id,
            slot,
            key,
            start,
            interval_ms,
            repeat_for_ms,
            body: body.as_ref().filter(|_| !is_end).map(Body::parts),
            // A try with stand-ins for nodes that refused does not count: fewer are left each time.
            tries: write.tries + u8::from(write.refused.is_empty() || seen.is_some()),
            refused: write.refused,
            is_decided: write.is_decided,
            gives_way: write.gives_way,
            is_action: write.is_identified,
        };
        let target = Target { id, factor: Some(factor), filter: None };
        let mut plan = self.plan_known_without(target, factor, held.as_ref(), write.refused);
        if !is_above {
            plan = self.of_sites(plan, &write.outline.placement.sites);
        }
        plan.is_create = write.is_create;
        let told = self.peers.view.peers_of(&plan.placement.replicas).union(write.refused);
        plan.extras = plan.extras.union(write.asked).minus(told.with(self.peers.own()));
        self.tell_of_refusing(&write, &plan, outbox);
        // It popped to its end here, or it was decided, and written over since.
        let is_over = new.body.is_some() && made_here.is_some_and(|held| !held.is_live())
            || write.is_decided && is_above;
        let answer = match (write.tries, made_here.and(slot)) {
            _ if is_over => Ok(Some(self.done_by(&write.outline, write.is_identified))),
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
            outbox.replies.push(Reply { to, answer, after: self.position() });
        }
        self.writes.recycle(body);
    }

    /// Ends a timer; `from` is who asked for it, if a client did. The end starts now, as that of an
    /// original node does. An original that holds the timer refuses an end that is older than the
    /// timer. What the original tells of the timer later is older than this end.
    pub(super) fn end(
        &mut self,
        now: Now,
        from: Option<Requester>,
        (id, slot): (TimerId, Option<Slot>),
        plan: &Plan,
        outbox: &mut Outbox,
    ) -> Result<Option<Answer>, Refusal> {
        let held = slot.map(|slot| *self.records.get(slot));
        let before = self.version_before(now, id, held.as_ref());
        // What the shard ends itself must not end what a client has written meanwhile, of which
        // this node may not have heard.
        let version = match (from, &held) {
            (None, Some(held)) => self.clock.just_above(held.version),
            _ => self.clock.assign(now.wall, before),
        };
        let tick = now.mono.tick_floor();
        let numbers = held.as_ref().map(|held| self.records.numbers_of_end(tick, held));
        let (interval_ms, repeat_for_ms) = numbers.unwrap_or((TOMBSTONE_MS_MIN, 0));
        let new = NewWrite {
            from,
            asked_at: tick,
            id,
            slot,
            key: StateKey { version, sequence: held.map_or(0, |held| held.sequence) },
            start: tick,
            interval_ms,
            repeat_for_ms,
            body: None,
            tries: 1,
            refused: PeerSet::EMPTY,
            is_decided: false,
            gives_way: from.is_none(),
            is_action: false,
        };
        if held.is_none() && plan.placement.own.is_some() && self.records.room(0).is_err() {
            // Other nodes stand in for this node.
            let (factor, own) = (plan.placement.factor, PeerSet::EMPTY.with(self.peers.own()));
            let target = Target { id, factor: Some(factor), filter: None };
            let others = self.plan_known_without(target, factor, None, own);
            if others.placement.own.is_none() {
                let extras = others.extras.union(plan.extras);
                return self.write(now, &new, &Plan { extras, ..others }, outbox);
            }
        }
        self.write(now, &new, plan, outbox)
    }

    /// The version that an update or a delete must lie above: that of the state held. A timer that
    /// is not held may be on its way from another site whose clock is ahead of this one's. Its
    /// client has the id, so the create is no later than the id. An id is at most
    /// 2 x [`CLOCK_LEAD_MS_MAX`] ahead of the clock that made it; one further ahead tells nothing.
    pub(super) fn version_before(
        &self,
        now: Now,
        id: TimerId,
        held: Option<&Record>,
    ) -> Option<Version> {
        if held.is_some() || self.peers.view.sites().is_empty() {
            return held.map(|held| held.version);
        }
        let minted = Minter::minted_at(id);
        let is_believed = minted.0 <= now.wall.0 + 2 * CLOCK_LEAD_MS_MAX;
        is_believed.then(|| Version::of_start(WallMs(minted.0 + 1)))
    }

    pub(super) fn done(&self, id: TimerId, placement: &Placement) -> Answer {
        let filter = self.peers.view.filter_of(&placement.replicas);
        Answer::Done { id, factor: placement.factor, filter }
    }

    /// The answer to a write of these numbers. `is_identified`: a name or a key made the id.
    pub(super) fn done_by(&self, outline: &Outline, is_identified: bool) -> Answer {
        let Outline { id, key, placement, .. } = outline;
        if !is_identified {
            return self.done(*id, placement);
        }
        let filter = match may_be_of_key(*id) {
            true => 0,
            false => self.peers.view.filter_of(&placement.replicas),
        };
        let (factor, version) = (placement.factor, key.version);
        Answer::Identified(Box::new(Identified { id: *id, factor, filter, version }))
    }

    /// Notes that a callback is under way as a client does something with its timer. If the timer
    /// moves to other nodes, this node keeps it until the callback has ended: who has forgotten the
    /// timer does not know what the end means.
    pub(super) fn note_callback(&mut self, tick: Tick, former: Option<&Record>, slot: Slot) {
        let Some(former) = former.filter(|former| former.state == State::InFlight) else { return };
        let record = *self.records.get(slot);
        if self.records.continues(&record, former.version)
            && !is_planted(Bug::CallbackOfFormerHolderLost)
        {
            let own_ms = self.attributes_of(&record).timeout_ms;
            let until = tick + own_ms.unwrap_or(self.config.callbacks.timeout_ms);
            self.reconcile.note_called(record.id, until);
        }
    }
}

#[cfg(test)]
#[path = "writes_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "writes_refused_tests.rs"]
mod refused_tests;
