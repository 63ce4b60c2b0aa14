//! What sites ask each other before they pop.
//!
//! Two things make a site ask, as they make a node ask the nodes of its own site
//! ([`crate::shard::questions`]):
//!
//! - It was *away*, and may have missed pops, writes and ends that the other sites made. It asks
//!   all sites of the timer.
//! - Its turn to pop has come, because the sites before it have not told of the pop. They may be at
//!   it: a rule of the destination holds it up, its retry policy does, or its callback takes long.
//!   The sites that come before are asked, and again after 1 to 30 s, for as long as they say that
//!   they are at it. Rules differ from site to site, so only the site that has a rule knows.
//!
//! A question reaches any node of a site. That node finds the latest state as for a read, and,
//! where the pop is due, asks the other ranks of its site whether they are at it. It answers:
//!
//! - *later*, with the state, if its site knows better. The asker takes it, and asks again.
//! - *ahead*, if its site makes the pop itself, and if it does not reach the asker's site yet,
//!   which then would not hear of what is written from now on. The asker asks again in a while.
//! - *held* or *wanted*: the asker may pop.
//!
//! So that two sites do not wait for each other, a site whose turn has come leaves the pop to a
//! site before it that asks, unless it has begun with it, or has it in the list of its host.

use std::cmp::Ordering;

use crate::base::ids::{PeerIndex, PeerSet, SiteHash, Slot};
use crate::base::ranked::Replicas;
use crate::base::time::{Now, Tick};
use crate::timer::definition::Content;
use crate::timer::schedule::Schedule;
use crate::timer::version::StateKey;
use crate::wire::peer_message::{PeerMessage, PeerResult, TimerCopy};
use crate::wire::site_question::{SiteAnswer, SiteQuestion};

use super::Shard;
use super::effects::{Answer, Internal, Outbox, Purpose, Refusal, Requester, Target};
use super::parts::ages::{age_of, start_of};
use super::parts::reads::{Latest, READS_MAX, Reader, Waiting};
use super::records::{Placement, Record, State};

/// A site whose turn to pop comes within this time makes the pop: a site that was told to go on
/// would not be done before.
const TURN_NEAR_MS: u64 = 500;

impl Shard {
    /// Takes how far the wall clock of another site is ahead of this node's, the one that is
    /// farthest.
    pub(crate) fn follow_site_clocks(&mut self, ahead_ms: u64) {
        self.clock.follow(ahead_ms);
    }

    /// Records that are still to be looked at, and offered to another site if they are to be there,
    /// until it has all that it may lack.
    pub(crate) fn left_to_offer(&self, site: PeerIndex) -> u64 {
        let held = self.records_held();
        let is_told = self.peers.alive().contains(site) && !self.peers.owed.contains(site);
        match self.reconcile.left_for(site, held) {
            0 if is_told || !self.peers.lacking().contains(site) => 0,
            0 => held,
            left => left,
        }
    }

    /// Answers another site's question about a timer; `None`: the answer comes from other nodes.
    pub(super) fn compare(
        &mut self,
        now: Now,
        from: Requester,
        asked: SiteQuestion,
        outbox: &mut Outbox,
    ) -> Option<Answer> {
        if let Some(slot) = self.find(asked.id)
            && self.records.get(slot).key() > key_of(&asked)
        {
            return self.compared(now, (from, asked), Latest::Held(slot), outbox);
        }
        let target = Target { id: asked.id, factor: None, filter: None };
        let latest = self.look(now, Reader::Site(from, asked), target, outbox)?;
        self.compared(now, (from, asked), latest, outbox)
    }

    /// The answer to another site's question, when the latest state of the timer was found; `None`:
    /// the other ranks are asked.
    pub(super) fn compared(
        &mut self,
        now: Now,
        (from, asked): (Requester, SiteQuestion),
        latest: Latest<'_>,
        outbox: &mut Outbox,
    ) -> Option<Answer> {
        let (answer, ranks) = match latest {
            Latest::Held(slot) => self.compared_with_held(now, asked, slot),
            Latest::Told(copy) => self.compared_with_told(now, asked, copy),
            Latest::Ended(_) | Latest::Nothing => (SiteAnswer::Wanted, PeerSet::EMPTY),
            // Another node of this site may be back in a moment. If none may, this node was away
            // as the asker was, and says what it holds.
            Latest::Unsure(refusal) if refusal != Refusal::NoReplica || self.may_hear_more() => {
                return Some(Answer::Refused(refusal));
            }
            Latest::Unsure(_) => match self.find(asked.id) {
                Some(slot) => self.compared_with_held(now, asked, slot),
                None => (SiteAnswer::Wanted, PeerSet::EMPTY),
            },
        };
        match ranks.is_empty() {
            true => Some(says(answer)),
            false => self.ask_ranks(now, (from, asked), ranks, outbox),
        }
    }

    /// Whether a node of this site that is not heard may be back.
    fn may_hear_more(&self) -> bool {
        !self.peers.not_alive().minus(self.peers.dead()).is_empty()
    }

    /// The answer by what is held here, and the ranks of this site that are to be asked first.
    fn compared_with_held(
        &self,
        now: Now,
        asked: SiteQuestion,
        slot: Slot,
    ) -> (SiteAnswer, PeerSet) {
        let record = *self.records.get(slot);
        let (held, theirs) = (record.key(), key_of(&asked));
        if held > theirs {
            let mut room = Vec::new();
            let mut copy = self.copy_of(&record, &mut room);
            copy.start_ms = age_of(now.mono.tick_floor(), &copy);
            return (later(&copy), PeerSet::EMPTY);
        }
        if !self.reaches(asked.site) {
            return (SiteAnswer::Ahead, PeerSet::EMPTY);
        }
        if held < theirs {
            return (SiteAnswer::Wanted, PeerSet::EMPTY);
        }
        if self.is_on_it_before(now, slot, asked.site) {
            return (SiteAnswer::Ahead, PeerSet::EMPTY);
        }
        let placement = self.records.placement_of(&record);
        let is_awaited = !matches!(record.state, State::Paused | State::Parked | State::Tombstone);
        let ranks = match is_awaited && is_turn(now, self.records.due(&record), placement) {
            true => self.ranks_to_ask(&placement.replicas),
            false => PeerSet::EMPTY,
        };
        (SiteAnswer::Held, ranks)
    }

    fn compared_with_told(
        &self,
        now: Now,
        asked: SiteQuestion,
        copy: &TimerCopy<'_>,
    ) -> (SiteAnswer, PeerSet) {
        let told = StateKey::of(copy.standing.version, copy.standing.sequence);
        if told > key_of(&asked) {
            return (later(copy), PeerSet::EMPTY);
        }
        if !self.reaches(asked.site) {
            return (SiteAnswer::Ahead, PeerSet::EMPTY);
        }
        if told < key_of(&asked) {
            return (SiteAnswer::Wanted, PeerSet::EMPTY);
        }
        let Some(body) = copy.body else { return (SiteAnswer::Held, PeerSet::EMPTY) };
        let content = Content::decode(body.content);
        let waits = content.is_parked() || content.attributes().is_paused;
        let start = start_of(now.mono.tick_ceil(), copy);
        let (interval_ms, repeat_for_ms) = (copy.interval_ms, copy.repeat_for_ms);
        let due = Schedule { start, interval_ms, repeat_for_ms }.due(copy.standing.sequence + 1);
        let placement = self.placement(copy.replicas, copy.sites, copy.factor);
        let ranks = match !waits && is_turn(now, due, &placement) {
            true => self.ranks_to_ask(&copy.replicas),
            false => PeerSet::EMPTY,
        };
        (SiteAnswer::Held, ranks)
    }

    /// Whether this node makes a pop, or is about to, before the site that asks may.
    fn is_on_it_before(&self, now: Now, slot: Slot, asker: SiteHash) -> bool {
        let record = *self.records.get(slot);
        let placement = self.records.placement_of(&record);
        let due = self.records.due(&record);
        match record.state {
            State::InFlight => true,
            State::Ready => due <= now.mono.tick_floor(),
            // A site asks those before it again when its own turn comes, if it reaches them. One
            // that was told that the asker is at the pop leaves it to the asker.
            State::Armed | State::BackingOff => {
                self.keeps_pop(now.mono.tick_floor(), &record)
                    || is_turn(now, due, placement)
                        && !self.is_left_to(&record, asker)
                        && (is_before(placement, asker, self.local_site()) || !self.reaches(asker))
            }
            State::HandedOver | State::Paused | State::Parked | State::Tombstone => false,
        }
    }

    /// Whether another site has said, in answer to a question of this core, that it makes a pop.
    fn is_left_to(&self, record: &Record, site: SiteHash) -> bool {
        let question = self.questions.open.get(&record.id.0);
        let question = question.filter(|question| question.key == record.key());
        let peer = self.peers.view.peer_of_site(site);
        peer.zip(question).is_some_and(|(peer, question)| question.ahead.contains(peer))
    }

    /// The other ranks of this site, as far as they may be at a pop and can be asked.
    fn ranks_to_ask(&self, replicas: &Replicas) -> PeerSet {
        let ranks = self.peers.view.peers_of(replicas).without(self.peers.own());
        ranks.minus(self.peers.http()).minus(self.peers.dead())
    }

    /// Asks the other ranks, one after the other, whether they make a pop. Returns the answer to
    /// the site that asks; `None`: it comes later.
    fn ask_ranks(
        &mut self,
        now: Now,
        (from, asked): (Requester, SiteQuestion),
        ranks: PeerSet,
        outbox: &mut Outbox,
    ) -> Option<Answer> {
        let (own, tick) = (self.peers.own(), now.mono.tick_floor());
        if self.reads.len() >= READS_MAX {
            return Some(Answer::Refused(Refusal::WritesFull));
        }
        let waiting = Waiting {
            from: Reader::Ranks(from, asked),
            id: asked.id,
            asked: own,
            asked_at: tick,
            since: tick,
            left: ranks,
            listed: ranks,
            is_unsure: false,
            doubtful: None,
            ended: None,
            is_again: false,
            takes_doubtful: false,
        };
        self.ask_next_rank(now, asked, waiting, outbox).map(says)
    }

    fn ask_next_rank(
        &mut self,
        now: Now,
        asked: SiteQuestion,
        mut waiting: Waiting,
        outbox: &mut Outbox,
    ) -> Option<SiteAnswer> {
        let left = waiting.left.minus(self.peers.dead());
        let Some(peer) = left.intersection(self.peers.alive()).iter().next() else {
            // A rank that is not heard, and not dead, may be at it.
            return Some(if left.is_empty() { SiteAnswer::Held } else { SiteAnswer::Ahead });
        };
        (waiting.asked, waiting.asked_at) = (peer, now.mono.tick_floor());
        waiting.left = left.without(peer);
        let bytes = outbox.encode(&PeerMessage::Compare(asked));
        let key = self.reads.insert(waiting);
        outbox.tell(peer, Purpose::Read(key), bytes);
        None
    }

    /// Takes what a rank says of a pop that another site asks about; `None`: it says nothing. A
    /// rank that lives and gets no time makes no pop before the other ranks of this site do.
    pub(super) fn rank_answered(
        &mut self,
        now: Now,
        (from, asked): (Requester, SiteQuestion),
        (mut waiting, result): (Waiting, Option<PeerResult<'_>>),
        outbox: &mut Outbox,
    ) {
        if result.is_none() && !self.peers.alive().contains(waiting.asked) {
            waiting.left = waiting.left.with(waiting.asked);
        }
        let answer = match result {
            Some(PeerResult::Ahead) => Some(SiteAnswer::Ahead),
            _ => self.ask_next_rank(now, asked, waiting, outbox),
        };
        answer.into_iter().for_each(|answer| outbox.reply(from, says(answer)));
    }

    /// The result of another site's question for a node of this site, whose rank this node is.
    pub(super) fn compared_as_rank(&self, now: Now, asked: SiteQuestion) -> PeerResult<'static> {
        let Some(slot) = self.find(asked.id) else { return PeerResult::NotFound };
        match self.records.get(slot).key().cmp(&key_of(&asked)) {
            Ordering::Less => PeerResult::Wanted,
            Ordering::Equal if !self.is_on_it_before(now, slot, asked.site) => PeerResult::Held,
            Ordering::Equal | Ordering::Greater => PeerResult::Ahead,
        }
    }

    /// Offers the other sites all that this one holds: a site has died, and may not have told them
    /// what it told this one, if they were cut from it meanwhile.
    pub(super) fn relay_for_site(&mut self, dead: PeerIndex) {
        let others = self.peers.view.connected_sites().intersection(self.peers.alive());
        let others = others.without(dead);
        if !others.is_empty() {
            self.reconcile.start_walk(others);
        }
    }

    /// Whether this core reaches a site, so that the site hears of what is written from now on.
    fn reaches(&self, site: SiteHash) -> bool {
        let peer = self.peers.view.peer_of_site(site);
        peer.is_none_or(|peer| self.peers.alive().contains(peer))
    }
}

fn key_of(asked: &SiteQuestion) -> StateKey {
    StateKey::of(asked.version, asked.sequence)
}

fn says(answer: SiteAnswer) -> Answer {
    Answer::Internal(Box::new(Internal::Compared(answer)))
}

fn later(copy: &TimerCopy<'_>) -> SiteAnswer {
    let mut bytes = Vec::new();
    PeerMessage::Copy(TimerCopy { is_write: false, ..*copy }).encode(&mut bytes);
    SiteAnswer::Later(bytes.into())
}

/// Whether the turn of this site to make a pop that is due at `due` has come, or is near.
fn is_turn(now: Now, due: Tick, placement: &Placement) -> bool {
    due + placement.delay_of_sites_ms() <= now.mono.tick_floor() + TURN_NEAR_MS
}

/// Whether this site makes pops of a timer before the other.
fn is_before(placement: &Placement, other: SiteHash, own: SiteHash) -> bool {
    let rank = |site| placement.sites.rank_of(site).unwrap_or(u8::MAX);
    rank(own) < rank(other)
}

#[cfg(test)]
#[path = "sites_tests.rs"]
mod tests;
