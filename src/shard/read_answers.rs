//! Reads of clients: what other nodes answer, and what the client is answered.

use crate::base::ids::{PeerIndex, Slot};
use crate::base::slots::SlotKey;
use crate::base::time::Now;
use crate::journal::Position;
use crate::timer::definition::Content;
use crate::timer::version::{StateKey, Version};
use crate::wire::callback_uri::uri_of;
use crate::wire::dead_letter::LetterUse;
use crate::wire::peer_message::{PeerMessage, PeerResult, Standing, TimerCopy, decode_message};

use super::Shard;
use super::effects::{Answer, Internal, Letter, Outbox, Reply, Requester, Target, TimerView};
use super::parts::ages::start_of;
use super::parts::conditions::Seen;
use super::parts::reads::{Latest, LetterAsk, Reader, Waiting};
use super::reads::BEYOND_SUSPICION_MS;
use super::records::{Record, State};

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

    /// Does what a client wants done with the dead letter that was found, or answers the read.
    /// `None`: the answer comes when other nodes have the write.
    pub(super) fn conclude(
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

    pub(super) fn answer_of(
        &self,
        now: Now,
        latest: Latest<'_>,
        wanted: Option<LetterUse>,
    ) -> Answer {
        match latest {
            Latest::Held(slot) => self.answer_of_held(now, slot, wanted),
            Latest::Told(copy) => self.found(now, copy, wanted),
            Latest::Ended(_) | Latest::Nothing => Answer::NotFound,
            Latest::Unsure(refusal) => Answer::Refused(refusal),
        }
    }

    pub(super) fn answer_of_held(&self, now: Now, slot: Slot, wanted: Option<LetterUse>) -> Answer {
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

    /// The answer of a copy that another node sent for a read. The sender has turned the start into
    /// an age.
    pub(super) fn found(
        &self,
        now: Now,
        copy: &TimerCopy<'_>,
        wanted: Option<LetterUse>,
    ) -> Answer {
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
    pub(super) fn found_out(
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
    pub(super) fn settle_suspected(&mut self, now: Now, key: SlotKey, outbox: &mut Outbox) {
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
    pub(super) fn fetched_by<'a>(
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

    pub(super) fn view_of(&self, held: &Record, now: Now) -> TimerView {
        let content = self.records.content_of(held);
        let spread_ms = content.spread_ms(held.id);
        let placement = self.records.placement_of(held);
        let tags = content.tags();
        let authority = self.records.authority_of(held);
        TimerView {
            id: held.id,
            factor: placement.factor,
            filter: self.peers.view.filter_of(&placement.replicas),
            interval_ms: held.interval_ms,
            repeat_for_ms: held.repeat_for.get(),
            age_ms: now.mono.tick_floor() + spread_ms - held.start,
            sequence: held.sequence,
            version: held.version,
            uri: uri_of(authority, content.target),
            opaque: content.opaque.into(),
            attributes: content.encoded_attributes().into(),
            tags: tags.as_slice().iter().map(|tag| (tag.kind.to_owned(), tag.count)).collect(),
        }
    }
}

fn found_letter(letter: Option<Letter>) -> Answer {
    letter.map_or(Answer::NotFound, |letter| Answer::Internal(Box::new(Internal::Letter(letter))))
}
