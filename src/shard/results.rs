//! What the results of messages mean: each goes to the work that the message was a part of.

use crate::base::ids::{PeerIndex, PeerSet, TimerId};
use crate::base::time::{Now, Tick};
use crate::wire::peer_message::{PeerMessage, PeerRefusal, PeerResult, TimerCopy, decode_message};

use super::Shard;
use super::effects::{Answer, Internal, Outbox, Purpose, Requester};
use super::parts::ages::start_of;
use super::requesters::LISTED;

/// What was told this much before an original fell silent may have got lost, beyond the time that
/// it takes to declare it dead. A pop may be this much later than it was due.
const UNTOLD_BEFORE_MS: u64 = 7_000;

impl Shard {
    /// Takes a peer's result of a message; `None`: there will be no result.
    pub(super) fn peer_result(
        &mut self,
        now: Now,
        peer: PeerIndex,
        purpose: Purpose,
        result: Option<PeerResult<'_>>,
        outbox: &mut Outbox,
    ) {
        if let Some(PeerResult::Refused(_)) = result {
            self.counters.refused_by_peers += 1;
        }
        if result.is_some() && !self.questions.is_idle() && self.is_site(peer) {
            self.questions.note_said(peer, now.mono.tick_floor());
        }
        if result.is_none() && self.peers.originals().contains(peer) {
            let before_ms = self.config.cluster.dead_after_ms + UNTOLD_BEFORE_MS;
            let since = Tick(now.mono.tick_floor().0.saturating_sub(before_ms));
            self.peers.note_untold(peer, since);
        }
        let result = match (purpose, result) {
            // News ask only whether the peer has the timer at all.
            (Purpose::News(_), Some(PeerResult::Ahead | PeerResult::Otherwise)) => {
                Some(PeerResult::Held)
            }
            (_, result) => result,
        };
        match (purpose, result) {
            (Purpose::End { id, life }, result) => {
                self.fetch_for_end(now.mono.tick_floor(), peer, (id, life), result);
            }
            (Purpose::Question { id, life }, result) => {
                self.question_result(now, peer, (id, life), result, outbox);
            }
            (Purpose::Write(key), Some(result)) => {
                self.write_result(now, peer, key, result, outbox);
            }
            (Purpose::Write(key), None) => self.write_unheard(now, peer, key, outbox),
            (Purpose::Read(key), result) => self.read_result(now, peer, key, result, outbox),
            (Purpose::List { generation, request }, result) => {
                let part = match result {
                    Some(PeerResult::Found(part)) => Some(part.into()),
                    _ => None,
                };
                let to =
                    Requester { shard: self.config.own, connection: LISTED, generation, request };
                outbox.reply(to, Answer::Internal(Box::new(Internal::ListPart(part))));
            }
            (Purpose::Condition(key), result) => {
                self.condition_result(now, peer, key, result, outbox);
            }
            (Purpose::News(id), Some(PeerResult::Held)) => self.confirm(id, peer),
            (Purpose::News(id), Some(PeerResult::Wanted)) => {
                if let Some(slot) = self.find(id) {
                    self.tell(slot, PeerSet::EMPTY.with(peer), true, outbox);
                }
            }
            (Purpose::News(id), Some(PeerResult::Refused(PeerRefusal::Full))) => {
                self.refused_for_room(now.mono.tick_floor(), peer, id);
            }
            (Purpose::News(id), None) => self.tell_of_unheard(id, peer, outbox),
            (Purpose::News(_) | Purpose::Hint, _) => {}
            (Purpose::Offer { id, round }, result) => {
                self.offer_result(now, peer, (id, round), result, outbox);
            }
        }
    }

    /// Takes a peer's answer to a question; `None`: the peer will not answer.
    pub(super) fn question_result(
        &mut self,
        now: Now,
        peer: PeerIndex,
        (id, life): (TimerId, u8),
        result: Option<PeerResult<'_>>,
        outbox: &mut Outbox,
    ) {
        let tick = now.mono.tick_floor();
        let is_current = life == self.questions.life;
        let later = match result {
            Some(PeerResult::Found(bytes)) => Some(bytes),
            _ => None,
        };
        let Some(question) = self.questions.open.get_mut(&id.0).filter(|_| is_current) else {
            return;
        };
        question.asked = question.asked.without(peer);
        if question.outdated.contains(peer) {
            question.outdated = question.outdated.without(peer);
            return;
        }
        match result {
            Some(PeerResult::Wanted) => {
                question.waiting = question.waiting.without(peer);
                question.denied = question.denied.with(peer);
            }
            // A peer that refuses does not hold the timer, and may have had no room for it.
            Some(PeerResult::Held | PeerResult::Otherwise | PeerResult::Refused(_)) => {
                question.waiting = question.waiting.without(peer);
                question.is_known = true;
            }
            // What it tells is taken, and it is asked about that.
            Some(PeerResult::Ahead | PeerResult::Found(_)) => question.note_ahead(tick, peer),
            _ => {}
        }
        let is_over = question.waiting.is_empty();
        if let Some(later) = later {
            return self.take_later(now, later, outbox);
        }
        if result == Some(PeerResult::Ahead)
            && let Some(slot) = self.find(id)
        {
            self.leave_pop_to_others(slot);
        }
        if is_over {
            self.all_have_answered(tick, id);
        }
    }

    /// Takes a later state that another site told in answer to a question.
    pub(super) fn take_later(&mut self, now: Now, mut bytes: &[u8], outbox: &mut Outbox) {
        let Ok(PeerMessage::Copy(copy)) = decode_message(&mut bytes) else { return };
        let mut copy = TimerCopy { is_write: false, ..copy };
        copy.start_ms = start_of(now.mono.tick_ceil(), &copy).0;
        // The nodes of the other site mean nothing here.
        (copy.replicas, copy.standing.actives) = Default::default();
        copy.standing.list_digest = copy.replicas.digest();
        let _ = self.merge(now, &copy, outbox);
    }

    /// Whether a peer is another site.
    pub(super) fn is_site(&self, peer: PeerIndex) -> bool {
        self.peers.view.connected_sites().contains(peer)
    }
}
