//! What this node goes on holding: until when a tombstone stays, and what is left to other nodes.

// Reads the wall clock: age 2.

use crate::base::ids::{PeerSet, Slot, TimerId};
use crate::base::limits::TOMBSTONE_MS_MIN;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, Tick};
use crate::journal::Position;

use super::Shard;
use super::records::{Next, Placement};

/// How much longer the tombstone of a timer that several sites hold stays while a node or site that
/// may have a copy is away. A site may be away for hours. When it is back, nobody else can say that
/// the timer has ended: a site that holds nothing of a timer may as well never have heard of it.
const HOLD_FOR_SITES_MS: u64 = 24 * 3_600 * 1_000;
/// How long a site that is back, on a slow machine and disk, takes to ask about one timer.
const ASKS_MS_EACH: u64 = 2;
/// The longest pause between two looks at such a tombstone. The pauses are an eighth of its age, so
/// that millions of tombstones cost little, and stay little longer than they must.
const LOOK_AGAIN_MS_MAX: u64 = 600_000;

/// Ids that are minted for one create before it is refused: each of them was chosen by a client.
const MINTED_MAX: u32 = 1_000;

impl Shard {
    #[inline]
    pub(super) fn find(&self, id: TimerId) -> Option<Slot> {
        self.records.find(id)
    }

    /// Ends a tombstone that has stayed its time. It stays longer while a member or a site of the
    /// timer, which may have a copy, cannot be reached or has only just come back. Where several
    /// sites hold the timer it stays much longer, as long as there is room. Any member counts: the
    /// list of a delete leaves dead nodes out, and these may hold the timer from before.
    pub(super) fn end_tombstone(&mut self, now: Now, slot: Slot) {
        let tick = now.mono.tick_floor();
        let record = *self.records.get(slot);
        let sites = self.peers.sites_of(&self.records.placement_of(&record).sites);
        let sites = if is_planted(Bug::TombstoneNotHeldForSites) { PeerSet::EMPTY } else { sites };
        let concerned = self.peers.view.connected_nodes().union(sites);
        let away = concerned.minus(self.peers.alive());
        let is_settled = self.is_settled(tick) && (sites.is_empty() || self.has_heard_sites(tick));
        if self.peers.is_alone() || away.is_empty() && is_settled {
            return self.records.forget(tick, slot);
        }
        // A delete is as old as its version, and starts when it is made. A timer that came to its
        // end is as old as its last pop. The interval may be that of an earlier definition, whose
        // copies the tombstone is to outlive.
        let schedule = record.schedule();
        let last_pop = schedule.due(record.sequence).min(record.start + record.repeat_for.get());
        // Another site tells an end as that of a timer with one pop more than were made, whether it
        // was deleted or came to its end. That of a delete is held a little longer for it.
        let told_ms = record.interval_ms.saturating_mul(record.sequence + 1);
        let is_told =
            record.repeat_for.get() == told_ms && !is_planted(Bug::EndOfSiteHeldFromStart);
        let has_popped = (schedule.is_last(record.sequence) || is_told) && last_pop <= tick;
        let ended = if has_popped { last_pop } else { record.start };
        // If no clock can tell the age of a version, the last pop tells it: the last pop was at
        // most an interval before.
        let since_delete_ms = match self.clock.is_far(now.wall, record.version) {
            true => u64::MAX,
            false => now.wall.0.saturating_sub(record.version.wall().0),
        };
        let age_ms = (tick - ended.min(tick)).min(since_delete_ms);
        let stays_ms = self.records.tombstone_ms(record.interval_ms);
        let hold_ms = self.config.cluster.tombstone_hold_ms;
        let is_for_sites = !sites.is_empty() && (!away.is_empty() || !self.has_heard_sites(tick));
        let held_ms = match is_for_sites && self.records.has_room_for_tombstones() {
            true => hold_ms.max(HOLD_FOR_SITES_MS),
            false => hold_ms,
        };
        if age_ms >= stays_ms + held_ms {
            self.counters.tombstones_ended_early += u64::from(is_for_sites);
            return self.records.forget(tick, slot);
        }
        let pause_ms = hold_ms.clamp(1, TOMBSTONE_MS_MIN);
        let pause_ms = match age_ms >= stays_ms + hold_ms {
            true => pause_ms.max((age_ms / 8).min(LOOK_AGAIN_MS_MAX)),
            false => pause_ms,
        };
        let again = tick + pause_ms;
        self.records.transition(slot, Next::Tombstone(again));
    }

    /// Records that this shard holds.
    pub(crate) fn records_held(&self) -> u64 {
        let counts = self.records.counts();
        counts.timers + counts.tombstones
    }

    /// Whether all peers that were away have been shown what they missed. A peer that answers a
    /// dial and falls silent again seems alive until it is declared dead.
    pub(super) fn is_settled(&self, tick: Tick) -> bool {
        let silence_ms = 2 * self.config.cluster.dead_after_ms;
        self.peers.returned_at + silence_ms <= tick && !self.reconcile.owes()
    }

    /// Whether no site has returned lately. A site that is back asks about all that it holds, about
    /// as much as this core holds, and tells its copies one after the other, each in a round trip.
    /// A copy that the site wrote down before it heard of the tombstone may come long after.
    fn has_heard_sites(&self, tick: Tick) -> bool {
        let back_at = self.peers.site_returned_at;
        let asks_ms = self.records_held() * ASKS_MS_EACH;
        back_at == Tick(0) || back_at + self.config.cluster.tombstone_hold_ms + asks_ms <= tick
    }

    /// Changes the placement of a record. A timer that waits for its pop waits anew if its delay
    /// changed.
    pub(super) fn place(&mut self, slot: Slot, placement: &Placement) {
        self.records.place(&self.peers, self.turns.at, slot, placement);
    }

    /// Notes the placement of a timer that was written anew for other nodes. A tombstone from
    /// before stays here, for older copies may still come.
    pub(super) fn leave_to_others(&mut self, id: TimerId, placement: &Placement) {
        if let Some(slot) = self.find(id) {
            self.place(slot, placement);
        }
    }

    /// Everything that this shard has done up to now is durable at this position.
    #[inline]
    pub fn position(&self) -> Position {
        self.records.changes().position()
    }

    /// A new id that no record has. A client may have chosen any id, and may have put a timer back
    /// that a crash took with its id.
    #[inline(always)]
    pub(super) fn free_id(&mut self, now: Now) -> Option<TimerId> {
        (0..MINTED_MAX).find_map(|_| {
            let id = self.minting.mint(now)?;
            self.find(id).is_none().then_some(id)
        })
    }

    /// Whether a member is an original node.
    pub(super) fn has_originals(&self) -> bool {
        !self.peers.http().intersection(self.peers.view.connected_nodes()).is_empty()
    }
}

#[cfg(test)]
#[path = "keep_tests.rs"]
mod tests;
