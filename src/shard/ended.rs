//! Timers that ended while this node was away for longer than tombstones stay.
//!
//! A node that starts with a journal holds such a timer, and no other node knows it any more. The
//! core finds out in two steps. Both are parts of a question ([`crate::shard::questions`]), so
//! meanwhile the timer does not pop, answers no read, and is told to no node.
//!
//! 1. It tells the timer's other holders what it holds, as always. All of them want the copy: they
//!    hold an older state, or none.
//! 2. It fetches the timer from every other node, twice. If every one of them says twice that it
//!    does not hold the timer, the timer has ended, and is forgotten.
//!
//! Why that is so: one of the other holders on the timer's list is not known to have missed
//! anything, so it had the timer. (A write is answered without a holder only when that one is not
//! heard any more, and this node did not hear it either, if it lived a while longer.) That holder
//! still belongs on the list, so it has handed the timer over to nobody, this node least of all.
//! Every other node is complete: it holds all that it acknowledged since before the write, unless
//! that has ended, or has been handed over to nodes that hold it. So one of them would hold the
//! timer. They are asked twice because the timer may be handed over between two answers.
//!
//! A timer that a node has told of since the start is kept: it may have been handed over to this
//! node, which may be the only one that holds it. Not if this node asked for the copy and never
//! got it: then the other node had no reason to forget what it held.
//!
//! Where this cannot be concluded the timer is kept, and may come back:
//!
//! - It has one replica, or lives on two sites or on original nodes. Or the first replica answers.
//! - Another node is not alive, lost its disk, or joined since the write.
//! - All other holders on its list may have missed something when this node died, or it does not
//!   belong there any more.
//! - Members change, or another node sees other members.
//! - Less time than clocks may be apart lies between the write and the start of another node's
//!   memory. Or between the write and the last page of this node's last process: [`HEARD_MS`] more.

use crate::base::ids::{PeerIndex, PeerSet, TimerId};
use crate::base::limits::Acknowledge;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::Tick;
use crate::wire::peer_message::PeerResult;

use super::Shard;
use super::parts::questions::Question;
use super::parts::returned::TOLD_MAX;
use super::records::Record;

/// How often every other node must say that it does not hold the timer.
const ROUNDS: u8 = 2;

/// For so long beyond a suspicion this node must have lived after a write, to have noted which of
/// the other holders may have missed it.
const HEARD_MS: u64 = 1_000;

impl Shard {
    /// A peer has told of a timer, and may count on this node to hold it. Cost: a comparison, but
    /// for the first seconds after a start.
    #[inline]
    pub(super) fn note_told(&mut self, id: TimerId) {
        if let Some(returned) = &mut self.returned {
            let has_asked = self.questions.is_idle();
            if has_asked || returned.told.len() >= TOLD_MAX {
                self.returned = None;
            } else {
                returned.told.insert(id.0);
            }
        }
    }

    /// All peers have answered a question about a timer: goes on with it, or ends it.
    pub(super) fn all_have_answered(&mut self, tick: Tick, id: TimerId) {
        let Some(question) = self.questions.open.get(&id.0).copied() else { return };
        let others = self.others();
        let next = match question.fetches {
            0 if !question.is_known && !question.denied.is_empty() => 1,
            fetches if fetches > 0 && others.minus(question.denied).is_empty() => fetches + 1,
            _ => return self.question_answered(tick, id),
        };
        let slot = self.find(id).filter(|&slot| {
            let record = self.records.get(slot);
            record.key() == question.key && self.may_have_ended(record)
        });
        let Some(slot) = slot else { return self.question_answered(tick, id) };
        if next > ROUNDS {
            self.questions.open.remove(&id.0);
            self.counters.ended_away += 1;
            return self.records.forget(tick, slot);
        }
        let denied = PeerSet::EMPTY;
        let question = Question { waiting: others, since: tick, fetches: next, denied, ..question };
        self.questions.open.insert(id.0, question);
    }

    /// Takes a peer's answer to a fetch; `None`: the peer will not answer.
    pub(super) fn fetch_for_end(
        &mut self,
        tick: Tick,
        peer: PeerIndex,
        (id, life): (TimerId, u8),
        result: Option<PeerResult<'_>>,
    ) {
        let is_current = life == self.questions.life;
        let question = self.questions.open.get_mut(&id.0).filter(|_| is_current);
        let Some(question) = question.filter(|question| question.fetches > 0) else { return };
        question.asked = question.asked.without(peer);
        match result {
            Some(PeerResult::NotFound) => question.denied = question.denied.with(peer),
            None => return,
            Some(_) => {}
        }
        question.waiting = question.waiting.without(peer);
        if question.waiting.is_empty() {
            self.all_have_answered(tick, id);
        }
    }

    fn others(&self) -> PeerSet {
        self.peers.view.connected_nodes().without(self.peers.own())
    }

    /// Whether a timer that no other node holds has ended for certain.
    fn may_have_ended(&self, record: &Record) -> bool {
        let Some(returned) = &self.returned else { return false };
        let limits = &self.config.cluster;
        let placement = self.records.placement_of(record);
        let others = self.others();
        let view = &self.peers.view;
        let belong = view.peers_of(&self.configured(record));
        let listed = view.peers_of(&placement.replicas).intersection(belong);
        let listed = listed.intersection(others);
        let is_stable = !view.is_changing() && self.peers.other_view.is_empty();
        let wrote_ms = record.version.wall().0;
        let (first_ms, last_ms) = self.planned_between(record).unwrap_or((wrote_ms, wrote_ms));
        let is_before = |earlier: u64, later: u64| earlier + limits.clock_skew_max_ms < later;
        let is_complete = |peer| {
            let since = self.peers.complete_since(peer);
            since.is_some_and(|since| is_before(since.0, first_ms))
        };
        let has_had =
            is_planted(Bug::EndsWhatPeersMissed) || !listed.minus(returned.lacking).is_empty();
        record.is_live()
            && has_had
            && is_stable
            && !is_planted(Bug::ReturningNodeKeepsEnded)
            && limits.acknowledge == Acknowledge::Replicas
            && placement.replicas.len() > 1
            && self.peers.sites_of(&placement.sites).is_empty()
            && is_before(last_ms + limits.suspect_after_ms + HEARD_MS, returned.seen_at.0)
            && !returned.told.contains(&record.id.0)
            && others.minus(self.peers.alive()).is_empty()
            && others.intersection(self.peers.http()).is_empty()
            && others.iter().all(is_complete)
    }
}

#[cfg(test)]
#[path = "ended_tests.rs"]
mod tests;
