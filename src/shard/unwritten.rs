//! What a node does that has no room, and what it does while its disk takes nothing: the disk is
//! full, or does not answer.
//!
//! - What a client's write changes, of what this node holds, it changes in memory at once: the
//!   state from before would pop, be read, and come back. The journal has it when there is room.
//! - This node says all the same that it has no copy. Other nodes stand in for it. This node holds
//!   the new state for them, behind all of them, until they have it.
//! - Of what it does not hold it takes nothing, and it does not decide about conditions.
//!
//! A process that is killed meanwhile starts with the state from before. It asks the other holders
//! and the stand-ins about all that it holds before it pops (`src/shard/questions.rs`). So it needs
//! no mark of what its journal lacks.

// Reads the wall clock: order 2.

use crate::base::ids::TimerId;
use crate::base::time::{Now, WallMs};
use crate::journal::Position;
use crate::wire::peer_message::{PeerMessage, PeerRefusal, PeerResult};

use super::Shard;
use super::effects::{Outbox, Purpose, Refusal};
use super::parts::peers::FULL_MS;
use super::records::Record;

/// Pause before peers are told again that this core has no room. It is short enough that no peer
/// forgets the lack of room.
const FULL_TOLD_MS: u64 = FULL_MS / 2;
/// While the disk takes nothing, the journal is told so often that this shard is not complete.
const STATE_EVERY_MS: u64 = 10_000;

impl Shard {
    /// Refuses clients' writes for this reason, or takes them again. `is_stuck`: nothing that is
    /// not on the disk yet will be there before somebody makes room.
    pub fn refuse_writes(&mut self, refusal: Option<Refusal>, is_stuck: bool) {
        (self.write_refusal, self.is_stuck) = (refusal, is_stuck);
    }

    /// Whether there is room for a copy. What is not held, or has ended, is one record more.
    pub(super) fn room_for_copy(&self, bytes: usize, held: Option<&Record>) -> Result<(), Refusal> {
        match (held, self.write_refusal) {
            (Some(held), None) => self.records.room_for_change(held, bytes),
            (Some(held), Some(_)) if held.is_live() => self.records.room_for_change(held, bytes),
            (_, Some(refusal)) => Err(refusal),
            (None, None) => self.records.room(bytes),
        }
    }

    /// Refuses a copy for lack of room. Now and then tells all peers of the lack, so that no peer
    /// moves timers to this node and forgets them.
    pub(super) fn refuse_for_room(
        &mut self,
        now: Now,
        id: TimerId,
        outbox: &mut Outbox,
    ) -> PeerResult<'static> {
        let tick = now.mono.tick_floor();
        self.counters.copies_refused += 1;
        self.complete_since = match self.write_refusal {
            None => now.wall,
            // Each state takes a block of what room is left.
            Some(_) => WallMs(now.wall.0.next_multiple_of(STATE_EVERY_MS)),
        };
        if self.full_at.is_none_or(|at| tick - at >= FULL_TOLD_MS) {
            self.full_at = Some(tick);
            let others = self.peers.alive().without(self.peers.own()).minus(self.peers.http());
            let bytes = outbox.encode(&PeerMessage::NoRoom { id, at: self.peers.own_hash() });
            others.iter().for_each(|peer| outbox.tell(peer, Purpose::Hint, bytes.clone()));
        }
        PeerResult::Refused(PeerRefusal::Full)
    }

    /// What this node may say of a state that it holds now. While its disk takes nothing, it has no
    /// copy of what its disk has not.
    pub(super) fn as_stored(
        &mut self,
        now: Now,
        id: TimerId,
        result: PeerResult<'static>,
        outbox: &mut Outbox,
    ) -> PeerResult<'static> {
        let is_unwritten = |slot| self.records.changes().is_whole_pending(slot);
        if self.is_stuck && result == PeerResult::Held && self.find(id).is_some_and(is_unwritten) {
            return self.refuse_for_room(now, id, outbox);
        }
        result
    }

    /// What must be on the disk before a result leaves. A result that says no more than what this
    /// node lacks, or knows, promises nothing; and what is held by now and was written down earlier
    /// is on the disk, if the disk takes nothing more.
    pub(super) fn promised(&self, result: &PeerResult<'_>) -> Position {
        match result {
            PeerResult::Held if !self.is_stuck => self.position(),
            _ => Position::default(),
        }
    }
}

#[cfg(test)]
#[path = "unwritten_tests.rs"]
mod tests;
