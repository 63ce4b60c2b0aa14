//! Writes that are made only if the timer is as the client expects: `If-Match`, `If-None-Match`,
//! `Idempotency-Key`.
//!
//! Any node may take such a write, and two nodes may take two of them at the same time. So one node
//! decides: the first one on the timer's list that lives. All nodes name the same one while they
//! believe the same of each other.
//!
//! 1. The node that has the request finds out what the timer is, as a read does, and judges the
//!    condition by that. Where every node is well nothing is asked: the deciding node knows best.
//! 2. It sends the write to the deciding node, with the version on which the judgement depends.
//! 3. The deciding node takes the write if it holds no later version. Otherwise it answers with
//!    what it holds, and the condition is judged again by that.
//! 4. The write is decided. It goes to all replicas as any other write does (`shard::writes`). If
//!    one of them holds a later version, that version was written after this one.
//!
//! If the deciding node dies before it answers, the next one on the list is asked, with the same
//! version: the dead one may have told the write to others.

// Reads the wall clock: order 1.

use crate::base::ids::{PeerIndex, PeerSet};
use crate::base::limits::TOMBSTONE_MS_MIN;
use crate::base::planted::{Bug, is_planted};
use crate::base::slots::SlotKey;
use crate::base::time::{Now, Tick};
use crate::timer::definition::{Content, Definition, OwnedDefinition, spread_ms};
use crate::timer::version::{StateKey, Version};
use crate::wire::dead_letter::LetterUse;
use crate::wire::peer_message::{
    CopyBody, PeerMessage, PeerRefusal, PeerResult, TimerCopy, decode_message,
};

use super::Shard;
use super::actions::{is_continued, joined};
use super::effects::{
    Answer, Condition, Conditional, Letter, Outbox, Purpose, Refusal, Reply, Requester, Target,
};
use super::letters::replayed;
use super::parts::conditions::{Asked, Seen, Verdict};
use super::parts::peers::FULL_MS;
use super::parts::reads::{Latest, LetterAsk, Reader};
use super::parts::writes::{NewWrite, Plan, bare_copy};
use super::records::Record;
use super::requests::{FACTOR_DEFAULT, fires};

/// How often a condition is judged before the client is told to retry.
const TRIES_MAX: u8 = 8;
/// A deciding node that does not answer for this much longer than it takes to be suspected is
/// passed over, as in a read.
const BEYOND_SUSPICION_MS: u64 = 1_000;

type Decided = Result<Option<Answer>, Refusal>;

impl Shard {
    /// Takes a write with a condition. `None`: the client is answered later.
    pub(super) fn conditional(
        &mut self,
        now: Now,
        from: Requester,
        ask: &Conditional<'_>,
        outbox: &mut Outbox,
    ) -> Decided {
        if self.conditions.len() >= self.config.cluster.writes_waiting_max as usize {
            return Err(Refusal::WritesFull);
        }
        let Conditional { target, condition, mut definition, action } = *ask;
        let mut content = Vec::new();
        if let Some(taken) = &definition
            && let Some(planned) = self.plan_taken(now, taken, &mut content)
        {
            definition = Some(planned);
        }
        let asked_at = now.mono.tick_floor();
        let start = definition.map_or(asked_at, |definition| {
            now.mono.tick_ceil() + spread_ms(target.id, definition.content)
        });
        let asked = Asked {
            from,
            asked_at,
            start,
            target,
            condition,
            definition: definition.as_ref().map(OwnedDefinition::copy),
            action,
            sequence: 0,
            seen: None,
            made: None,
            decider: None,
            refused: PeerSet::EMPTY,
            tries: 0,
        };
        // The deciding node corrects who takes a timer for absent. Nobody corrects a refusal.
        let is_absent_met = matches!(condition, Condition::Absent | Condition::Once)
            && definition.is_some_and(|definition| fires(&definition));
        let is_corrected = is_absent_met && self.is_quiet(asked_at);
        match self.find(target.id).is_none() && is_corrected {
            true => self.judge(now, asked, None, outbox),
            false => self.find_out(now, asked, outbox),
        }
    }

    /// Whether nothing has been amiss for a while: the first node on a list holds the timer if any
    /// node does. A node that is back gets what it missed, in as long as tombstones are held for
    /// it.
    fn is_quiet(&self, tick: Tick) -> bool {
        let peers = &self.peers;
        let uneasy = [peers.other_view, peers.http(), peers.not_alive()];
        peers.is_alone()
            || uneasy.into_iter().all(PeerSet::is_empty)
                && peers.lacking().intersection(peers.view.connected_nodes()).is_empty()
                && self.lately_full().is_empty()
                && !peers.view.is_changing()
                && tick - peers.returned_at >= self.config.cluster.tombstone_hold_ms
                && !self.questions.is_fresh(tick)
                && !self.reconcile.owes()
    }

    /// Finds out what the timer is, and judges the condition.
    fn find_out(&mut self, now: Now, asked: Asked, outbox: &mut Outbox) -> Decided {
        let target = asked.target;
        let key = self.conditions.insert(asked);
        let Some(latest) = self.look(now, Reader::Condition(key), target, outbox) else {
            return Ok(None);
        };
        let Some(asked) = self.conditions.remove(key) else { return Ok(None) };
        self.judge_latest(now, asked, latest, outbox)
    }

    /// Takes what a read has found for a condition.
    pub(super) fn condition_read(
        &mut self,
        now: Now,
        key: SlotKey,
        latest: Latest<'_>,
        outbox: &mut Outbox,
    ) {
        let Some(asked) = self.conditions.remove(key) else { return };
        let from = asked.from;
        let decided = self.judge_latest(now, asked, latest, outbox);
        self.deliver(from, decided, outbox);
    }

    fn judge_latest(
        &mut self,
        now: Now,
        asked: Asked,
        latest: Latest<'_>,
        outbox: &mut Outbox,
    ) -> Decided {
        let is_key_known = self.seen_here(asked.target.id).is_some_and(|seen| seen.once.is_some());
        let seen = match latest {
            Latest::Held(_) | Latest::Nothing => None,
            Latest::Told(copy) => Some(Self::told(now, &asked, copy)),
            Latest::Ended(seen) => Some(*seen),
            // That a key was used is known for certain.
            Latest::Unsure(_) if is_key_known => None,
            Latest::Unsure(refusal) => return Err(refusal),
        };
        self.judge(now, asked, seen, outbox)
    }

    /// What is known here of the timer that a write is about.
    fn known_here(&self, asked: &Asked) -> Option<Seen> {
        let seen = self.seen_here(asked.target.id)?;
        let held = self.find(asked.target.id).map(|slot| self.records.get(slot));
        let held = held.filter(|held| asked.action.is_some() && held.is_live());
        let mut room = Vec::new();
        Some(seen.with(held.map(|held| CopyBody {
            authority: self.records.authority_of(held),
            content: self.records.whole_content_of(held, &mut room),
        })))
    }

    /// What another node told of the timer that a write is about.
    fn told(now: Now, asked: &Asked, copy: &TimerCopy<'_>) -> Seen {
        Seen::told(now, copy).with(copy.body.filter(|_| asked.action.is_some()))
    }

    /// Judges a condition by what is known now, and has the write decided if it is met.
    pub(super) fn judge(
        &mut self,
        now: Now,
        mut asked: Asked,
        seen: Option<Seen>,
        outbox: &mut Outbox,
    ) -> Decided {
        let id = asked.target.id;
        let known = [seen, self.known_here(&asked)].into_iter().flatten();
        // Of two ends that are equal, one may not know of the key.
        asked.seen = known.max_by_key(|seen| (seen.key, seen.once.is_some()));
        let seen_version = asked.seen.as_ref().map(|seen| seen.key.version);
        if asked.made.is_some_and(|(version, _)| Some(version) == seen_version) {
            // A node that was asked before has taken the write.
            return self.write_decided(now, asked, outbox);
        }
        match asked.verdict() {
            Verdict::Write if asked.action.is_some() => {
                if !self.act(now, &mut asked)? {
                    return self.confirm_made(now, asked, outbox);
                }
            }
            Verdict::Write => {}
            Verdict::Same => return self.confirm_made(now, asked, outbox),
            Verdict::Refused(refusal) => return Err(refusal),
        }
        self.note_own_room(&mut asked);
        let plan = self.plan_of(&asked);
        if asked.definition().is_some_and(|definition| !fires(&definition)) {
            self.counters.never_firing += 1;
            if asked.seen.as_ref().is_none_or(|seen| !seen.is_live) {
                return Ok(Some(self.done(id, &plan.placement)));
            }
            asked.definition = None;
        }
        if asked.definition.is_some() && !self.others_suffice(&asked, plan.placement.factor) {
            return Err(Refusal::NoRoom);
        }
        let able = self.peers.alive().minus(self.peers.http());
        let listed = plan.placement.replicas;
        let listed = listed.as_slice().iter().filter_map(|node| self.peers.view.peer_of(*node));
        match { listed }.find(|peer| able.contains(*peer)) {
            None => Err(Refusal::NoReplica),
            Some(own) if own == self.peers.own() => self.write_decided(now, asked, outbox),
            Some(decider) => self.ask_decider(now, asked, (decider, &plan), outbox),
        }
    }

    /// Leaves a timer to other nodes that this node does not hold and has no room for. It does not
    /// decide about the timer, for it could not tell later that it did.
    fn note_own_room(&mut self, asked: &mut Asked) {
        let bytes = asked.definition().map(|definition| definition.content.len());
        let is_new = self.find(asked.target.id).is_none() && !self.peers.is_alone();
        if bytes.is_some_and(|bytes| is_new && self.records.room(bytes).is_err()) {
            self.full_at = Some(self.turns.at);
            asked.refused = asked.refused.with(self.peers.own());
        }
    }

    /// Whether as many nodes can hold the timer without those that have no room.
    fn others_suffice(&self, asked: &Asked, factor: u8) -> bool {
        let (members, view) = (self.peers.not_dead(), &self.peers.view);
        let count = |members| view.place(asked.target.id, factor, members).len();
        asked.refused.is_empty() || count(members.minus(asked.refused)) == count(members)
    }

    /// The nodes that the write concerns.
    fn plan_of(&self, asked: &Asked) -> Plan {
        let seen = asked.seen.as_ref();
        let live = seen.filter(|seen| seen.is_live).map(|seen| seen.factor);
        let wished = asked.definition().and_then(|definition| definition.factor);
        let wished = wished.or(asked.target.factor).or(seen.map(|seen| seen.factor));
        let factor = live.or(wished).unwrap_or(FACTOR_DEFAULT);
        let held = self.find(asked.target.id).map(|slot| *self.records.get(slot));
        let plan = self.plan_known_without(asked.target, factor, held.as_ref(), asked.refused);
        match asked.made {
            Some((_, sites)) if !is_planted(Bug::OrderOfSitesDecidedTwice) => {
                self.of_sites(plan, &sites)
            }
            _ => plan,
        }
    }

    /// The write, with its version. What is known of the timer is older.
    fn new_write<'a>(&mut self, now: Now, asked: &'a Asked) -> NewWrite<'a> {
        let id = asked.target.id;
        let slot = self.find(id);
        let held = slot.map(|slot| *self.records.get(slot));
        let seen = asked.seen.as_ref();
        let version = asked.made.map(|(version, _)| version).unwrap_or_else(|| {
            let before = self.version_before(now, id, held.as_ref());
            self.clock.assign(now.wall, before.max(seen.map(|seen| seen.key.version)))
        });
        let definition = asked.definition();
        let (sequence, (interval_ms, repeat_for_ms)) = match &definition {
            Some(definition) => {
                (asked.sequence, (definition.interval_ms, definition.repeat_for_ms))
            }
            None => seen.map_or((0, (TOMBSTONE_MS_MIN, 0)), |seen| {
                (seen.key.sequence, seen.numbers_of_end(id, asked.asked_at))
            }),
        };
        NewWrite {
            from: Some(asked.from),
            asked_at: asked.asked_at,
            id,
            slot,
            key: StateKey { version, sequence },
            start: asked.start,
            interval_ms,
            repeat_for_ms,
            body: definition.map(|definition| (definition.authority, definition.content)),
            tries: 1,
            refused: asked.refused,
            is_decided: true,
            gives_way: false,
            is_action: asked.action.is_some(),
        }
    }

    /// Sends the write to the node that decides.
    fn ask_decider(
        &mut self,
        now: Now,
        mut asked: Asked,
        (decider, plan): (PeerIndex, &Plan),
        outbox: &mut Outbox,
    ) -> Decided {
        let new = self.new_write(now, &asked);
        let body = new.body.map(|(authority, content)| CopyBody { authority, content });
        let bare = bare_copy(&new.outline(plan.placement));
        let seen = asked.seen.as_ref().map_or(0, |seen| seen.key.version.0);
        let copy = TimerCopy { is_write: true, body, ..bare };
        let bytes = outbox.encode(&PeerMessage::Conditional { seen, copy });
        asked.made = Some((new.key.version, plan.placement.sites));
        asked.decider = Some((decider, now.mono.tick_floor()));
        let key = self.conditions.insert(asked);
        outbox.tell(decider, Purpose::Condition(key), bytes);
        Ok(None)
    }

    /// Takes the answer of the node that decides; `None`: it will not answer.
    pub(super) fn condition_result(
        &mut self,
        now: Now,
        peer: PeerIndex,
        key: SlotKey,
        result: Option<PeerResult<'_>>,
        outbox: &mut Outbox,
    ) {
        let is_awaited = |asked: &Asked| asked.decider.is_some_and(|(decider, _)| decider == peer);
        if !self.conditions.get(key).is_some_and(is_awaited) {
            return;
        }
        let Some(asked) = self.conditions.remove(key) else { return };
        let from = asked.from;
        let decided = self.take_decision(now, asked, (peer, result), outbox);
        self.deliver(from, decided, outbox);
    }

    fn take_decision(
        &mut self,
        now: Now,
        mut asked: Asked,
        (peer, result): (PeerIndex, Option<PeerResult<'_>>),
        outbox: &mut Outbox,
    ) -> Decided {
        asked.decider = None;
        asked.tries += 1;
        let is_last = asked.tries >= TRIES_MAX;
        match result {
            Some(PeerResult::Held) => self.write_decided(now, asked, outbox),
            Some(PeerResult::Found(mut bytes)) => {
                let Ok(PeerMessage::Copy(copy)) = decode_message(&mut bytes) else {
                    return Err(Refusal::NotTaken);
                };
                asked.made = None;
                let seen = Some(Self::told(now, &asked, &copy));
                if is_last { Err(Refusal::Contended) } else { self.judge(now, asked, seen, outbox) }
            }
            Some(PeerResult::Superseded { .. }) if !is_last => {
                asked.made = None;
                self.find_out(now, asked, outbox)
            }
            Some(PeerResult::Superseded { .. }) => Err(Refusal::Contended),
            Some(PeerResult::Refused(PeerRefusal::Full)) => {
                self.peers.note_full(peer, now.mono.tick_floor() + FULL_MS);
                asked.refused = asked.refused.with(peer);
                let seen = asked.seen.take();
                if is_last { Err(Refusal::NoRoom) } else { self.judge(now, asked, seen, outbox) }
            }
            Some(PeerResult::Refused(PeerRefusal::TokenFull)) => Err(Refusal::TokenFull),
            Some(PeerResult::Refused(PeerRefusal::OtherName)) => Err(Refusal::OtherName),
            Some(PeerResult::Refused(_)) => Err(Refusal::NotTaken),
            None if !is_last => {
                let seen = asked.seen.take();
                self.judge(now, asked, seen, outbox)
            }
            _ => Err(Refusal::Unanswered),
        }
    }

    /// Gives up waiting for deciding nodes that are not believed alive, or do not answer.
    pub(super) fn settle_conditions(&mut self, now: Now, outbox: &mut Outbox) {
        let patience_ms = self.config.cluster.suspect_after_ms + BEYOND_SUSPICION_MS;
        let tick = now.mono.tick_floor();
        for index in 0..self.conditions.places() {
            let Some(key) = self.conditions.key_at(index) else { continue };
            let decider = self.conditions.get(key).and_then(|asked| asked.decider);
            let Some((decider, since)) = decider else { continue };
            if !self.peers.alive().contains(decider) || tick - since >= patience_ms {
                self.condition_result(now, decider, key, None, outbox);
            }
        }
    }

    /// Makes a write whose condition is met, here and on the other replicas.
    fn write_decided(&mut self, now: Now, asked: Asked, outbox: &mut Outbox) -> Decided {
        let plan = self.plan_of(&asked);
        let new = self.new_write(now, &asked);
        let is_live = asked.seen.as_ref().is_some_and(|seen| seen.is_live);
        let answer = self.spread(now, new, &plan, outbox);
        // Another node has the write already.
        let answer = answer.map_err(|refusal| match asked.made {
            Some(_) => refusal.after_others(),
            None => refusal,
        })?;
        let is_letter = matches!(asked.condition, Condition::Letter(_));
        match (&asked.definition, is_live) {
            (Some(_), _) if is_letter => self.counters.letters_replayed += 1,
            (None, _) if is_letter => self.counters.letters_deleted += 1,
            _ if asked.action.is_some() => self.counters.acted += 1,
            (None, _) => self.counters.deletes += 1,
            (Some(_), true) => self.counters.updates += 1,
            (Some(_), false) => self.counters.creates += 1,
        }
        Ok(answer)
    }

    /// Answers a create that was made before as the first time. The node that took it then may have
    /// died before all replicas had the timer, so they get it now.
    fn confirm_made(&mut self, now: Now, mut asked: Asked, outbox: &mut Outbox) -> Decided {
        asked.made = asked.seen.as_ref().map(|seen| (seen.key.version, seen.sites));
        let plan = self.plan_of(&asked);
        let Some(seen) = asked.seen.take() else { return Err(Refusal::Contended) };
        let mut new = self.new_write(now, &asked);
        new.key = seen.key;
        new.start = seen.start;
        (new.interval_ms, new.repeat_for_ms) = (seen.interval_ms, seen.repeat_for_ms);
        let is_made = seen.once.is_some() || asked.action.is_some();
        if !seen.is_live || !is_made || self.peers.is_alone() {
            return Ok(Some(self.done_by(&new.outline(plan.placement), true)));
        }
        self.spread(now, new, &plan, outbox)
    }

    /// Makes a decided write, unless this node holds it already, or what was written after it.
    fn spread(
        &mut self,
        now: Now,
        mut new: NewWrite<'_>,
        plan: &Plan,
        outbox: &mut Outbox,
    ) -> Decided {
        let slot = new.slot;
        let Some((slot, held)) = slot.map(|slot| (slot, *self.records.get(slot))) else {
            return self.write(now, &new, plan, outbox);
        };
        if held.version < new.key.version {
            let planned = new.body.and_then(|(authority, content)| {
                Some((authority, self.with_later_plan(&held, new.key.version, content)?))
            });
            if let Some((authority, content)) = &planned {
                // This node has made a pop of the calendar since.
                let version = self.clock.just_above(new.key.version);
                let (interval_ms, repeat_for_ms) = (held.interval_ms, held.repeat_for.get());
                let (key, body) = (StateKey { version, ..new.key }, Some((*authority, &**content)));
                let start = held.start;
                let new = NewWrite { key, start, interval_ms, repeat_for_ms, body, ..new };
                return self.write(now, &new, plan, outbox);
            }
            if let Some((_, content)) = new.body
                && is_continued(&held, new.key.version, content)
            {
                // This node knows the start, and may have made a pop since.
                if !is_planted(Bug::RunMovesSchedule) {
                    new.start = held.start;
                }
                let schedule = new.outline(plan.placement).schedule();
                new.key = joined(new.key, &schedule, content, &held);
                if !held.is_live() && schedule.is_last(new.key.sequence) {
                    return self.replicate(now, &new, plan, outbox);
                }
            }
            return self.write(now, &new, plan, outbox);
        }
        // What ended by itself needs no telling. The end that this write makes does: who told this
        // node of it need not tell all.
        let is_this_end = held.version == new.key.version && new.body.is_none();
        if held.version > new.key.version || !held.is_live() && !is_this_end {
            let is_identified = new.is_identified();
            return Ok(Some(self.done_by(&new.outline(plan.placement), is_identified)));
        }
        new.key.sequence = held.sequence;
        self.place(slot, &plan.placement);
        self.replicate(now, &new, plan, outbox)
    }

    fn deliver(&mut self, to: Requester, decided: Decided, outbox: &mut Outbox) {
        match decided {
            Ok(None) => {}
            Ok(Some(answer)) => {
                outbox.replies.push(Reply { to, answer, after: self.position() });
            }
            Err(refusal) => {
                self.counters.refused += 1;
                outbox.reply(to, Answer::Refused(refusal));
            }
        }
    }

    /// What this node holds, if that is later than what a condition was judged by.
    pub(super) fn newer_than(
        &mut self,
        now: Now,
        seen: Version,
        copy: &TimerCopy<'_>,
    ) -> Option<Result<Vec<u8>, PeerResult<'static>>> {
        let id = copy.standing.id;
        let held = self.records.get(self.find(id)?);
        let is_newer = held.version > seen && held.version.0 != copy.standing.version
            || Self::is_behind(held, seen, copy);
        (is_newer && !is_planted(Bug::ConditionNotJudged)).then(|| self.fetched(now, id))
    }

    /// Whether a timer that is held has another name than content that a client writes.
    pub(super) fn has_other_name(&self, held: &Record, content: &[u8]) -> bool {
        let new = Content::decode(content);
        if !new.has_attributes() {
            return false;
        }
        let held = self.records.content_of(held).attributes().name;
        matches!((new.attributes().name, held), (Some(new), Some(held)) if new != held)
    }

    /// Does with a letter that was found what a client asked for. `Err`: it cannot be done now.
    ///
    /// Several nodes may be asked for the same at the same time. So this is a write on condition
    /// that the letter is the one that was found (`shard::conditions`): one node decides, and
    /// whoever comes second finds no letter.
    pub(super) fn use_letter(
        &mut self,
        now: Now,
        from: Requester,
        (letter, (wanted, version)): (&Letter, LetterAsk),
        outbox: &mut Outbox,
    ) -> Result<Option<Answer>, Refusal> {
        if let Some(refusal) = self.write_refusal {
            return Err(refusal);
        }
        if self.conditions.len() >= self.config.cluster.writes_waiting_max as usize {
            return Err(Refusal::WritesFull);
        }
        let content = match wanted {
            LetterUse::Replay => Some(replayed(&letter.content).ok_or(Refusal::BytesFull)?),
            LetterUse::Delete | LetterUse::Show => None,
        };
        let definition = content.as_deref().map(|content| {
            let (interval_ms, repeat_for_ms, factor) = (0, 0, None);
            let authority = &letter.authority;
            OwnedDefinition::copy(&Definition {
                interval_ms,
                repeat_for_ms,
                factor,
                authority,
                content,
            })
        });
        let start = now.mono.tick_ceil();
        let asked = Asked {
            from,
            asked_at: now.mono.tick_floor(),
            start,
            target: Target { id: letter.id, factor: Some(letter.factor), filter: None },
            condition: Condition::Letter(version.unwrap_or(letter.version)),
            definition,
            action: None,
            sequence: 0,
            seen: None,
            made: None,
            decider: None,
            refused: PeerSet::EMPTY,
            tries: 0,
        };
        let seen = Some(Seen::letter((letter.version, letter.factor), start));
        match self.judge(now, asked, seen, outbox) {
            Err(Refusal::NoTimer) => Ok(Some(Answer::NotFound)),
            decided => decided,
        }
    }
}

#[cfg(test)]
#[path = "conditions_tests.rs"]
mod tests;
