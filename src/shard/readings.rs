//! Timers that ended at original nodes while this node was away, and that its journal still has.
//!
//! An original cannot be asked for a timer, and lists no tombstones. It lists all live timers that
//! this node is to hold, too. So a core that began with a journal waits until the originals have
//! been read: timers that only originals hold besides do not pop meanwhile, and no original is told
//! of them. A timer that none of its holders lists has ended there, by a delete or its last pop.
//!
//! Unless they forgot it: an original keeps nothing over its own restart. One that lists a timer
//! which it can have from before this node's death alone has not restarted since. Without such a
//! witness the timer is kept, and pops: a cluster that lost its power has everything back.
//!
//! An original that is just making a pop does not list the timer. It tells of the pop afterwards,
//! and brings the timer back.

// Reads the wall clock: original 1.

use crate::base::ids::{PeerIndex, PeerSet, Slot};
use crate::base::time::{Now, Tick};
use crate::wire::peer_message::TimerCopy;

use super::Shard;
use super::records::Record;

/// Records looked at per tick, once all originals were read.
const LOOKS_PER_TICK: usize = 1_024;
/// For so long beyond a suspicion this node must have lived after a write, to have noted which
/// holders may have missed it.
const HEARD_MS: u64 = 1_000;

impl Shard {
    /// An original was read from its first page to its last, and everything on them was taken.
    pub(crate) fn note_read(&mut self, original: PeerIndex) {
        if let Some(readings) = &mut self.readings {
            readings.read = readings.read.with(original);
        }
    }

    /// Takes note of a copy that came over HTTP and was merged. `before`: what was held.
    pub(super) fn note_listed(&mut self, now: Now, copy: &TimerCopy<'_>, before: Option<Record>) {
        let id = copy.standing.id;
        if self.readings.is_none() || copy.body.is_none() {
            return;
        }
        let after = self.find(id).map(|slot| *self.records.get(slot));
        let same = before.zip(after).filter(|(before, after)| before.version == after.version);
        let others = same.and_then(|(held, _)| self.told_holders(now, &held));
        if let Some(readings) = &mut self.readings {
            readings.note_listed(id);
            others.into_iter().for_each(|others| readings.note_running(others));
        }
    }

    /// The other holders of a timer that the journal had, if all of them were told of it. Which of
    /// them are originals this core may not know yet.
    fn told_holders(&self, now: Now, record: &Record) -> Option<PeerSet> {
        let readings = self.readings.as_ref()?;
        let age_ms = now.mono.tick_floor() - record.start;
        let wrote_ms = now.wall.0.saturating_sub(age_ms);
        let noted_ms = wrote_ms + self.config.cluster.suspect_after_ms + HEARD_MS;
        let placement = self.records.placement_of(record);
        let others = self.peers.view.peers_of(&placement.replicas).without(self.peers.own());
        let is_told = others.intersection(readings.lacking).is_empty();
        (!others.is_empty() && is_told && noted_ms < readings.seen_at.0).then_some(others)
    }

    /// Whether a pop waits because originals, the only other holders, are still to be read.
    pub(super) fn waits_for_originals(&self, record: &Record) -> bool {
        if self.readings.is_none() {
            return false;
        }
        let replicas = &self.records.placement_of(record).replicas;
        let others = self.peers.view.peers_of(replicas).without(self.peers.own());
        let others = others.minus(self.peers.dead());
        !others.is_empty() && others.minus(self.peers.originals()).is_empty()
    }

    /// Whether originals are to be told nothing yet: what they tell of a timer is to be theirs.
    pub(super) fn keeps_from_originals(&self) -> bool {
        self.readings.is_some() && !self.peers.originals().is_empty()
    }

    /// Does the portion of a tick: ends what has ended, once all originals were read.
    pub(super) fn read_on(&mut self, now: Now) {
        let tick = now.mono.tick_floor();
        let Some(readings) = &self.readings else { return };
        let originals = self.peers.originals().intersection(self.peers.alive());
        let unknown = self.peers.not_alive().minus(self.peers.dead());
        let is_alone = unknown.is_empty() && originals.is_empty();
        if readings.is_over(tick) || is_alone {
            self.readings = None;
            return;
        }
        let is_read = unknown.is_empty() && originals.minus(readings.read).is_empty();
        let Some(next) = readings.next.or(is_read.then_some(Slot(0))) else { return };
        let portion: Vec<Slot> = self.records.occupied_from(next).take(LOOKS_PER_TICK).collect();
        for &slot in &portion {
            if self.has_ended_at_originals(now, slot) {
                self.counters.ended_away += 1;
                self.records.forget(tick, slot);
            }
        }
        match (portion.last(), &mut self.readings) {
            (Some(last), Some(readings)) => readings.next = Some(Slot(last.0 + 1)),
            _ => self.readings = None,
        }
    }

    /// When there is something to do, given that nothing arrives.
    pub(super) fn reads_at(&self) -> Option<Tick> {
        let is_walking = self.readings.as_ref().is_some_and(|readings| readings.next.is_some());
        is_walking.then_some(self.turns.at + 1)
    }

    fn has_ended_at_originals(&self, now: Now, slot: Slot) -> bool {
        let record = self.records.get(slot);
        let Some(readings) = &self.readings else { return false };
        let Some(others) = self.told_holders(now, record) else { return false };
        let placement = self.records.placement_of(record);
        let doubtful = self.peers.dead().union(readings.lacking);
        let is_stable = !self.peers.view.is_changing() && self.peers.other_view.is_empty();
        record.is_live()
            && is_stable
            && others.minus(self.peers.originals()).is_empty()
            && placement.own.is_some()
            && placement.replicas == self.configured(record)
            && self.peers.sites_of(&placement.sites).is_empty()
            && !self.records.has_attributes(record)
            && !readings.is_listed(record.id)
            && readings.has_run(others, doubtful)
    }
}
