//! The latest state of a timer, for whoever reads. What this node holds answers where it is known
//! to be the latest. Otherwise this node asks the nodes that may hold the timer, one after the
//! other, the right nodes first.
//!
//! A tombstone says that a timer has ended only on a node that is still to hold the timer. On
//! another node the tombstone may be older than a timer that was written anew.

use crate::base::ids::{PeerSet, Slot, TimerId};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, Tick};
use crate::wire::peer_message::{PeerMessage, PeerResult};

use super::Shard;
use super::effects::{Outbox, Purpose, Refusal, Target};
use super::parts::ages::age_of;
use super::parts::conditions::Seen;
use super::parts::reads::{Latest, READS_MAX, Reader, Waiting};

/// A peer that does not answer for this much longer than it takes to be suspected is passed over:
/// the core that owns the timer there may get no time, while other cores of its node tell that the
/// node lives.
pub(super) const BEYOND_SUSPICION_MS: u64 = 1_000;

impl Shard {
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

    pub(super) fn ask_next<'a>(
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
    pub(super) fn awaits_verdict(&self, tick: Tick, waiting: &Waiting) -> bool {
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
    pub(super) fn is_beyond_verdict(&self, tick: Tick, waiting: &Waiting) -> bool {
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

    pub(super) fn seen_here(&self, id: TimerId) -> Option<Seen> {
        let held = self.records.get(self.find(id)?);
        let content = held.is_live().then(|| self.records.content_of(held));
        Some(Seen::held(held, self.records.placement_of(held), content))
    }
}

#[cfg(test)]
#[path = "reads_tests.rs"]
mod tests;
