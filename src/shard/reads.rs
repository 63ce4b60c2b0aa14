//! Reads. What this node holds answers where it is known to be the latest. Otherwise this node asks
//! the nodes that may hold the timer, one after the other, the right nodes first.
//!
//! A tombstone says that a timer has ended only on a node that is still to hold the timer. On
//! another node the tombstone may be older than a timer that was written anew.

use crate::base::ids::{PeerIndex, PeerSet, Slot, TimerId};
use crate::base::planted::{Bug, is_planted};
use crate::base::slots::SlotKey;
use crate::base::time::{Now, Tick};
use crate::journal::Position;
use crate::timer::definition::Content;
use crate::timer::version::{StateKey, Version};
use crate::wire::callback_uri::uri_of;
use crate::wire::dead_letter::LetterUse;
use crate::wire::peer_message::{PeerMessage, PeerResult, Standing, TimerCopy, decode_message};

use super::Shard;
use super::effects::{
    Answer, Internal, Letter, Outbox, Purpose, Refusal, Reply, Requester, Target, TimerView,
};
use super::parts::ages::{age_of, start_of};
use super::parts::conditions::Seen;
use super::parts::reads::{Latest, LetterAsk, READS_MAX, Reader, Waiting};
use super::records::State;

/// A peer that does not answer for this much longer than it takes to be suspected is passed over:
/// the core that owns the timer there may get no time, while other cores of its node tell that the
/// node lives.
const BEYOND_SUSPICION_MS: u64 = 1_000;

impl Shard {
    /// Answers a client from what is held here; `None`: the answer comes from other nodes.
    pub(super) fn read(
        &mut self,
        now: Now,
        from: Requester,
        (target, wanted): (Target, Option<LetterAsk>),
        outbox: &mut Outbox,
    ) -> Option<Answer> {
        self.counters.reads += 1;
        let reader = match wanted {
            None => Reader::Client(from),
            Some(wanted) => Reader::Letter(from, wanted),
        };
        let latest = self.look(now, reader, target, outbox)?;
        self.conclude(now, (from, wanted), latest, outbox)
    }

    /// Finds the latest state of a timer; `None`: other nodes are asked, and the reader is told.
    pub(super) fn look(
        &mut self,
        now: Now,
        from: Reader,
        target: Target,
        outbox: &mut Outbox,
    ) -> Option<Latest<'static>> {
        let asked_at = now.mono.tick_floor();
        let slot = self.find(target.id);
        if let Some(slot) =
            slot.filter(|slot| self.peers.is_alone() || self.is_trusted(asked_at, *slot))
        {
            return Some(Latest::Held(slot));
        }
        let held = slot.map(|slot| *self.records.get(slot));
        if self.peers.is_alone() {
            return Some(Latest::Nothing);
        }
        if self.reads.len() >= READS_MAX {
            return Some(Latest::Unsure(Refusal::WritesFull));
        }
        let factor = target.factor.unwrap_or(crate::base::limits::REPLICATION_FACTOR_MAX as u8);
        let plan = self.plan_known(target, factor, held.as_ref());
        let own = self.peers.own();
        let members = self.peers.view.connected_nodes();
        let listed = self.peers.view.peers_of(&plan.placement.replicas);
        // The last to be asked are all peers that are not dead: stand-ins may have the timer that
        // have not handed it over yet.
        let others = members.minus(self.peers.dead());
        let others = others.minus(self.peers.http());
        // A node that has left tells nothing any more.
        let concerned = listed.union(plan.extras).intersection(members);
        let mut left = concerned.union(others).without(own);
        // What only a dead node knows does not hold up writes, with or without a condition.
        let is_write = matches!(from, Reader::Condition(_));
        if is_write || slot.is_some_and(|slot| self.is_unheard(slot, target.id)) {
            left = left.minus(self.peers.dead());
        }
        let id = target.id;
        let waiting = Waiting {
            from,
            id,
            asked: own,
            asked_at,
            since: asked_at,
            left,
            listed,
            is_unsure: false,
            doubtful: None,
            ended: None,
            is_again: false,
            takes_doubtful: false,
        };
        self.ask_next(now, waiting, outbox)
    }

    /// Does what a client wants done with the dead letter that was found, or answers the read.
    /// `None`: the answer comes when other nodes have the write.
    fn conclude(
        &mut self,
        now: Now,
        (from, asked): (Requester, Option<LetterAsk>),
        latest: Latest<'_>,
        outbox: &mut Outbox,
    ) -> Option<Answer> {
        let answer = self.answer_of(now, latest, asked.map(|(wanted, _)| wanted));
        let Answer::Internal(internal) = &answer else { return Some(answer) };
        let (Internal::Letter(letter), Some(asked)) = (&**internal, asked) else {
            return Some(answer);
        };
        let done = self.use_letter(now, from, (letter, asked), outbox);
        done.unwrap_or_else(|refusal| {
            self.counters.refused += 1;
            Some(Answer::Refused(refusal))
        })
    }

    /// Whether what is held here answers reads. A node that has just started may not have been told
    /// yet what other nodes keep for it.
    pub(super) fn is_trusted(&self, tick: Tick, slot: Slot) -> bool {
        !self.questions.is_fresh(tick) && self.is_latest(slot)
    }

    /// Whether what is held here is the latest state of a timer, as far as this node can tell.
    ///
    /// - A node that was away may have missed a write.
    /// - A node that is not on the list any more is not told of writes.
    fn is_latest(&self, slot: Slot) -> bool {
        let held = self.records.get(slot);
        let is_own = self.records.placement_of(held).own.is_some();
        let is_planted = is_planted(Bug::TombstoneOffTheListAnswersReads);
        is_own
            && !self.is_unheard(slot, held.id)
            && (held.is_live() || is_planted || !self.is_misplaced(held))
    }

    fn answer_of(&self, now: Now, latest: Latest<'_>, wanted: Option<LetterUse>) -> Answer {
        match latest {
            Latest::Held(slot) => self.answer_of_held(now, slot, wanted),
            Latest::Told(copy) => self.found(now, copy, wanted),
            Latest::Ended(_) | Latest::Nothing => Answer::NotFound,
            Latest::Unsure(refusal) => Answer::Refused(refusal),
        }
    }

    fn answer_of_held(&self, now: Now, slot: Slot, wanted: Option<LetterUse>) -> Answer {
        let held = self.records.get(slot);
        // A timer whose last pop was given up is over.
        if wanted.is_some() != (held.state == State::Parked) {
            return Answer::NotFound;
        }
        if wanted.is_some_and(|wanted| wanted != LetterUse::Show) {
            let of = (held.id, held.version, self.records.placement_of(held).factor);
            let authority = self.records.authority_of(held);
            let mut room = Vec::new();
            let content = self.records.whole_content_of(held, &mut room);
            return found_letter(Self::letter_of(of, authority, content));
        }
        match held.is_live() {
            true => Answer::Found(Box::new(self.view_of(held, now))),
            false => Answer::NotFound,
        }
    }

    fn ask_next<'a>(
        &mut self,
        now: Now,
        mut waiting: Waiting,
        outbox: &mut Outbox,
    ) -> Option<Latest<'a>> {
        let able_of =
            |left: PeerSet| left.intersection(self.peers.alive()).minus(self.peers.http());
        if able_of(waiting.left).is_empty()
            && let Some((_, Some(peer))) = waiting.doubtful
        {
            waiting.doubtful = None;
            waiting.left = waiting.left.with(peer);
            waiting.takes_doubtful = true;
        }
        let tick = now.mono.tick_floor();
        let able = able_of(waiting.left);
        let first = able.intersection(waiting.listed);
        let Some(peer) = first.iter().chain(able.iter()).next() else {
            let again = self.to_ask_again(&waiting);
            if !again.is_empty() {
                (waiting.left, waiting.is_again) = (again, true);
                return self.ask_next(now, waiting, outbox);
            }
            if self.awaits_verdict(tick, &waiting) {
                waiting.asked = self.peers.own();
                waiting.asked_at = tick;
                self.reads.insert(waiting);
                return None;
            }
            return Some(self.latest_without_others(waiting));
        };
        waiting.asked = peer;
        waiting.asked_at = tick;
        waiting.left = waiting.left.without(peer);
        let bytes = outbox.encode(&PeerMessage::Fetch(waiting.id));
        let key = self.reads.insert(waiting);
        outbox.tell(peer, Purpose::Read(key), bytes);
        None
    }

    /// The right nodes, where no node knows of the timer: it may have come to them after they were
    /// asked, from a node that was asked after it had given the timer away. A node that decides
    /// about a condition is the first of them itself.
    fn to_ask_again(&self, waiting: &Waiting) -> PeerSet {
        let own = self.peers.own();
        let others = self.peers.alive().minus(waiting.listed).without(own);
        let is_unknown = waiting.left.is_empty()
            && !others.is_empty()
            && !waiting.is_unsure
            && waiting.doubtful.is_none()
            && waiting.ended.is_none()
            && self.find(waiting.id).is_none();
        let is_final = waiting.is_again
            || waiting.listed.contains(own)
            || matches!(waiting.from, Reader::Condition(_))
            || is_planted(Bug::ReadLooksOnce);
        match is_unknown && !is_final {
            true => waiting.listed.intersection(self.peers.alive()).minus(self.peers.http()),
            false => PeerSet::EMPTY,
        }
    }

    /// Whether a write with a condition waits until the nodes that are left to be asked are back
    /// or dead: what only a dead node knows does not hold it up. A client that was told to retry
    /// would ask again until then. A node may be suspected, back and suspected for long.
    fn awaits_verdict(&self, tick: Tick, waiting: &Waiting) -> bool {
        let suspects = waiting.left.minus(self.peers.alive()).minus(self.peers.dead());
        let is_key_known = || {
            let ended = waiting.ended.as_deref();
            ended.is_some_and(|ended| ended.once.is_some())
                || self.seen_here(waiting.id).is_some_and(|seen| seen.once.is_some())
        };
        matches!(waiting.from, Reader::Condition(_))
            && !self.is_beyond_verdict(tick, waiting)
            && !waiting.is_unsure
            && !self.find(waiting.id).is_some_and(|slot| self.is_latest(slot))
            && !is_key_known()
            && !suspects.is_empty()
            && waiting.left.minus(suspects).minus(self.peers.dead()).is_empty()
            && suspects.intersection(self.peers.http()).is_empty()
    }

    /// Whether a read has waited for longer than it takes to declare a node dead.
    fn is_beyond_verdict(&self, tick: Tick, waiting: &Waiting) -> bool {
        tick - waiting.since >= self.config.cluster.dead_after_ms + BEYOND_SUSPICION_MS
            && !is_planted(Bug::VerdictAwaitedForEver)
    }

    /// The answer when no other node knows of the timer: what is held here. If a peer was not
    /// heard, what is held answers only if nothing can have been missed.
    fn latest_without_others<'a>(&self, waiting: Waiting) -> Latest<'a> {
        let is_unsure = waiting.is_unsure || !waiting.left.is_empty();
        let slot = self.find(waiting.id);
        let is_live = slot.is_some_and(|slot| self.records.get(slot).is_live());
        // Another node that may have missed something has told of a later end of the timer.
        let is_older = |slot| {
            let held = self.records.get(slot).key();
            waiting.doubtful.is_some_and(|(newest, _)| newest > held)
        };
        match slot {
            Some(slot) if !is_older(slot) && (self.is_latest(slot) || is_live && !is_unsure) => {
                Latest::Held(slot)
            }
            // That a key was used is known for certain.
            _ if is_unsure => match waiting.ended.filter(|ended| ended.once.is_some()) {
                Some(ended) => Latest::Ended(ended),
                None => Latest::Unsure(Refusal::NoReplica),
            },
            _ => waiting.ended.map_or(Latest::Nothing, Latest::Ended),
        }
    }

    pub(super) fn read_result(
        &mut self,
        now: Now,
        peer: PeerIndex,
        key: SlotKey,
        result: Option<PeerResult<'_>>,
        outbox: &mut Outbox,
    ) {
        if self.reads.get(key).is_none_or(|waiting| waiting.asked != peer) {
            return;
        }
        let Some(mut waiting) = self.reads.remove(key) else { return };
        let from = waiting.from;
        if let Reader::Ranks(from, asked) = from {
            return self.rank_answered(now, (from, asked), (waiting, result), outbox);
        }
        let found = match result {
            Some(PeerResult::Found(mut bytes)) => Some(decode_message(&mut bytes)),
            _ => None,
        };
        let latest = match (&found, result) {
            (Some(Ok(PeerMessage::Copy(copy))), _) => {
                self.fetched_by(now, waiting, peer, copy, outbox)
            }
            (Some(_), _) => Some(Latest::Nothing),
            (None, Some(PeerResult::NotFound)) => self.ask_next(now, waiting, outbox),
            (None, _) if self.peers.alive().contains(peer) => {
                waiting.is_unsure = true;
                self.ask_next(now, waiting, outbox)
            }
            (None, _) => {
                waiting.left = waiting.left.with(peer);
                self.ask_next(now, waiting, outbox)
            }
        };
        self.found_out(now, from, latest, outbox);
    }

    /// Tells the reader what was found; `None`: another node is asked.
    fn found_out(
        &mut self,
        now: Now,
        from: Reader,
        latest: Option<Latest<'_>>,
        outbox: &mut Outbox,
    ) {
        let Some(latest) = latest else { return };
        let (from, wanted) = match from {
            Reader::Client(from) => (from, None),
            Reader::Letter(from, wanted) => (from, Some(wanted)),
            Reader::Condition(key) => return self.condition_read(now, key, latest, outbox),
            Reader::Site(from, asked) | Reader::Ranks(from, asked) => {
                let answer = self.compared(now, (from, asked), latest, outbox);
                return answer.into_iter().for_each(|answer| outbox.reply(from, answer));
            }
        };
        if let Some(answer) = self.conclude(now, (from, wanted), latest, outbox) {
            // What is read need not be on the disk. What is promised must be.
            let is_promise = matches!(answer, Answer::Done { .. } | Answer::Identified(_));
            let after = if is_promise { self.position() } else { Position::default() };
            outbox.replies.push(Reply { to: from, answer, after });
        }
    }

    /// Reads whose peer is not believed alive any more, or has not answered for long, ask the next
    /// peer.
    pub(super) fn settle_reads(&mut self, now: Now, outbox: &mut Outbox) {
        let patience_ms = self.config.cluster.suspect_after_ms + BEYOND_SUSPICION_MS;
        let tick = now.mono.tick_floor();
        for index in 0..self.reads.places() {
            let Some(key) = self.reads.key_at(index) else { continue };
            let Some(waiting) = self.reads.get(key) else { continue };
            let (asked, asked_at) = (waiting.asked, waiting.asked_at);
            let is_late = tick - asked_at >= patience_ms;
            if asked == self.peers.own() {
                self.settle_suspected(now, key, outbox);
            } else if is_late || !self.peers.alive().contains(asked) {
                self.read_result(now, asked, key, None, outbox);
            }
        }
    }

    /// Goes on with a read that waits for what becomes of nodes, once they are back or dead.
    fn settle_suspected(&mut self, now: Now, key: SlotKey, outbox: &mut Outbox) {
        let tick = now.mono.tick_floor();
        if self.reads.get(key).is_some_and(|waiting| self.awaits_verdict(tick, waiting)) {
            return;
        }
        let Some(mut waiting) = self.reads.remove(key) else { return };
        let is_late = self.is_beyond_verdict(tick, &waiting);
        let from = waiting.from;
        waiting.left = waiting.left.minus(self.peers.dead());
        waiting.is_unsure = is_late;
        let latest = self.ask_next(now, waiting, outbox);
        self.found_out(now, from, latest, outbox);
    }

    /// Takes a copy that a peer sent for a read. The copy answers the read, with two exceptions:
    ///
    /// - This node knows a newer state.
    /// - The copy may have missed a write, and other peers are still to be asked.
    fn fetched_by<'a>(
        &mut self,
        now: Now,
        mut waiting: Waiting,
        peer: PeerIndex,
        copy: &'a TimerCopy<'a>,
        outbox: &mut Outbox,
    ) -> Option<Latest<'a>> {
        let Standing { id, version, sequence, .. } = copy.standing;
        let key = StateKey { version: Version(version), sequence };
        if let Some(slot) = self.find(id).filter(|slot| self.records.get(*slot).key() > key) {
            return Some(Latest::Held(slot));
        }
        let newest = waiting.doubtful.map(|(newest, _)| newest);
        let is_doubtful = copy.is_write || newest.is_some_and(|newest| newest > key);
        // Another site takes whatever is later than what it holds, and asks again.
        let is_news = match waiting.from {
            Reader::Site(_, asked) => key > StateKey::of(asked.version, asked.sequence),
            _ => false,
        };
        if waiting.takes_doubtful || !is_doubtful || is_news {
            return Some(Latest::Told(copy));
        }
        if newest.is_none_or(|newest| newest < key) {
            let is_end = copy.body.is_none() && matches!(waiting.from, Reader::Condition(_));
            waiting.ended = is_end.then(|| Box::new(Seen::told(now, copy)));
            waiting.doubtful = Some((key, copy.body.is_some().then_some(peer)));
        }
        self.ask_next(now, waiting, outbox)
    }

    /// The answer of a copy that another node sent for a read. The sender has turned the start into
    /// an age.
    fn found(&self, now: Now, copy: &TimerCopy<'_>, wanted: Option<LetterUse>) -> Answer {
        let Some(body) = copy.body else { return Answer::NotFound };
        let (tick, content) = (now.mono.tick_floor(), Content::decode(body.content));
        match wanted {
            wanted if wanted.is_some() != content.is_parked() => return Answer::NotFound,
            None | Some(LetterUse::Show) => {}
            Some(LetterUse::Replay | LetterUse::Delete) => {
                let of = (copy.standing.id, Version(copy.standing.version), copy.factor);
                return found_letter(Self::letter_of(of, body.authority, body.content));
            }
        }
        Answer::Found(Box::new(TimerView {
            id: copy.standing.id,
            factor: copy.factor,
            filter: self.peers.view.filter_of(&copy.replicas),
            interval_ms: copy.interval_ms,
            repeat_for_ms: copy.repeat_for_ms,
            age_ms: tick + content.spread_ms(copy.standing.id) - start_of(tick, copy),
            sequence: copy.standing.sequence,
            version: Version(copy.standing.version),
            uri: uri_of(body.authority, content.target),
            opaque: content.opaque.into(),
            attributes: content.encoded_attributes().into(),
            tags: content
                .tags()
                .as_slice()
                .iter()
                .map(|tag| (tag.kind.to_owned(), tag.count))
                .collect(),
        }))
    }

    /// The answer to a peer's fetch: the state held here. `Err`: this node has no state, or may
    /// have missed something about it.
    ///
    /// The copy carries the timer's age in place of its start, because the asking node knows
    /// nothing of this node's clock. `is_write` marks a doubtful copy; in this answer it means
    /// nothing else. A copy is doubtful in two cases:
    ///
    /// - This node has just started or woken, so that it may have heard of an earlier state from
    ///   other nodes since.
    /// - The copy is a tombstone and this node is off the list, so that it is not told of writes.
    pub(super) fn fetched(
        &mut self,
        now: Now,
        id: TimerId,
    ) -> Result<Vec<u8>, PeerResult<'static>> {
        let slot = self.find(id).ok_or(PeerResult::NotFound)?;
        if self.is_unheard(slot, id) {
            return Err(PeerResult::Wanted);
        }
        let record = *self.records.get(slot);
        let tick = now.mono.tick_floor();
        let is_doubtful =
            self.questions.is_fresh(tick) || !record.is_live() && !self.is_latest(slot);
        let mut room = Vec::new();
        let mut copy = self.copy_of(&record, &mut room);
        copy.is_write = is_doubtful;
        copy.start_ms = age_of(tick, &copy);
        let mut bytes = Vec::new();
        PeerMessage::Copy(copy).encode(&mut bytes);
        Ok(bytes)
    }
}

fn found_letter(letter: Option<Letter>) -> Answer {
    letter.map_or(Answer::NotFound, |letter| Answer::Internal(Box::new(Internal::Letter(letter))))
}

#[cfg(test)]
#[path = "reads_tests.rs"]
mod tests;
