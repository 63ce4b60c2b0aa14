//! The shard's side of the journal: what it appends, what it takes back after a restart, and which
//! records it appends again so that an old segment can go.

// Reads the wall clock: order 1.

use ahash::AHashSet;

use crate::base::ids::{PeerSet, Slot, TimerId};
use crate::base::limits::RANK_DELAY_MS;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, Tick, WallMs};
use crate::journal::SegmentNumber;
use crate::journal::clocks::Clocks;
use crate::journal::entry::{Entry, State};
use crate::journal::writer::Writer;
use crate::timer::version::{StateKey, Version};
use crate::wire::peer_message::{Standing, TimerCopy};

use super::Shard;
use super::parts::readings::Readings;
use super::parts::returned::Return;
use super::parts::turns::HOLD_MS;
use super::records::{Change, Next, Outline, Record};

/// Bytes of an entry beside authority and content, about, and at most.
const ENTRY_BYTES: u64 = 64;
const ENTRY_BYTES_MAX: usize = 300;

/// What happens to pops that came due while nobody was there to make them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CatchUp {
    /// Most overdue pops of this shard a second.
    pub pops_per_s: u64,
    /// Whether each missed pop of a repeating timer is made. Otherwise only the last one is.
    pub is_each: bool,
}

/// Where entries come from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The segment, if it is one of this journal; 0: it is of an earlier layout.
    pub segment: SegmentNumber,
    /// The boot that the times of the entries belong to.
    pub boot: u64,
    /// The clocks of the journal.
    pub clocks: &'a Clocks,
}

/// What a restart found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Restored {
    /// Timers held.
    pub timers: u64,
    /// Timers with a pop that is overdue.
    pub overdue: u64,
    /// Pops of repeating timers that are left out because a later one is overdue, too.
    pub left_out: u64,
    /// Entries that say how far a timer is that no entry has.
    pub without_timer: u64,
    /// Timers that are forgotten last. Only a planted bug does this.
    forgotten_late: Vec<TimerId>,
}

impl Shard {
    /// From now on every change is noted for the journal. `is_late`: answers do not wait for the
    /// disk, here and on the other nodes. Then a timer that was given away is kept for a second,
    /// because its only holder may be killed before its disk has the timer.
    pub fn begin_journal(&mut self, is_late: bool) {
        self.records.changes_mut().turn_on();
        self.reconcile.keeps_given = is_late;
    }

    /// Since when this shard holds everything that it acknowledged and that has not ended.
    pub fn complete_since(&self) -> WallMs {
        self.complete_since
    }

    /// What the journal is to know of this shard, if it is not what `state` says.
    pub fn other_state(&self, state: &State) -> Option<State> {
        let view = &self.peers.view;
        let owed = self.peers.lacking().intersection(view.connected_nodes());
        let is_known = state.complete_since == self.complete_since
            && state.owed.len() == owed.len() as usize
            && state
                .owed
                .iter()
                .all(|&node| view.peer_of(node).is_some_and(|peer| owed.contains(peer)));
        (!is_known).then(|| State {
            oldest: state.oldest,
            complete_since: self.complete_since,
            owed: owed.iter().map(|peer| view.hash_of(peer)).collect(),
        })
    }

    /// Takes back what the journal knew of this shard. Call it after [`Shard::end_restore`].
    /// `seen_at`: when the last process wrote its last page. `is_all`: the journal knew all that
    /// this process knew.
    pub fn restore_state(&mut self, state: &State, (seen_at, is_all): (WallMs, bool)) {
        self.complete_since = state.complete_since;
        let view = self.peers.view.clone();
        let owed = state.owed.iter().filter_map(|&node| view.peer_of(node));
        let lacking = owed.fold(PeerSet::EMPTY, PeerSet::with);
        lacking.iter().for_each(|peer| self.peers.may_lack(peer));
        self.readings = Some(Readings::new(seen_at, lacking, self.turns.ticked_at));
        let returned = Return { seen_at, lacking, told: AHashSet::new() };
        self.returned = is_all.then_some(returned);
    }

    /// Bytes that the journal would have if it held each timer once, about.
    pub fn journal_bytes(&self) -> u64 {
        let counts = self.records.counts();
        (counts.timers + counts.tombstones) * ENTRY_BYTES + self.records.payload_bytes()
    }

    /// Appends changes to the journal, as far as it has room, in the state that the records have
    /// now. Returns whether a change has no place, for want of a segment; it stays noted. Cost: one
    /// copy of the content of each changed timer.
    pub fn append_changes(&mut self, writer: &mut Writer) -> bool {
        let mut room = Vec::new();
        let (is_free, mut is_blocked) = (writer.spares() > 0, false);
        while writer.has_room() {
            if !is_free && self.has_changes() && !writer.takes(self.first_entry_bytes()) {
                is_blocked = true;
                break;
            }
            let Some(change) = self.records.changes_mut().take() else { break };
            match change {
                Change::Whole(slot) if self.records.contains(slot) => {
                    let record = self.records.get(slot);
                    writer.append(&Entry::Timer(self.copy_of(record, &mut room)));
                    self.records.changes_mut().stands_in(slot, writer.segment());
                }
                Change::Progress(slot) if self.records.contains(slot) => {
                    let record = self.records.get(slot);
                    if !is_planted(Bug::JournalSkipsProgress) {
                        writer.append(&Entry::Progress(self.standing_of(record)));
                    }
                }
                Change::Whole(_) | Change::Progress(_) => {}
                // A timer that has come back since is told of on its own.
                Change::Forgotten(id) if self.find(id).is_none() => {
                    writer.append(&Entry::Forgotten(id));
                }
                Change::Forgotten(_) => {}
            }
        }
        writer.cover(self.records.changes().taken());
        is_blocked
    }

    /// How many bytes the entry of the first change has at most.
    #[cold]
    fn first_entry_bytes(&self) -> usize {
        let slot = self.records.changes().first_slot();
        let slot = slot.filter(|slot| self.records.contains(*slot));
        let record = slot.map(|slot| self.records.get(slot)).filter(|record| record.is_live());
        let own =
            |record| self.records.authority_of(record).len() + self.records.content_bytes(record);
        ENTRY_BYTES_MAX + record.map_or(0, own)
    }

    /// Whether changes wait to be appended.
    pub fn has_changes(&self) -> bool {
        !self.records.changes().is_empty()
    }

    /// Notes the records that need a segment, or an older one, as changed: at most `copies` of
    /// them, looking at `looks` slots from `from` on. Returns the slot to go on at; `None`: all
    /// slots have been looked at. Cost: 1 to 2 ns a look.
    pub fn free_segment(
        &mut self,
        segment: SegmentNumber,
        from: Slot,
        looks: u32,
        copies: u32,
    ) -> Option<Slot> {
        let end = self.records.slots();
        let mut left = copies;
        for slot in from.0..end.min(from.0.saturating_add(looks)) {
            let slot = Slot(slot);
            if !self.records.changes().needs(slot, segment) || !self.records.contains(slot) {
                continue;
            }
            if left == 0 {
                return Some(slot);
            }
            left -= 1;
            let is_live = self.records.get(slot).is_live();
            if (is_live || !is_planted(Bug::JournalDropsTombstones))
                && !is_planted(Bug::JournalReusesLiveSegment)
            {
                self.records.changes_mut().whole(slot);
            }
        }
        let next = from.0.saturating_add(looks);
        (next < end).then_some(Slot(next))
    }

    /// Takes an entry back. Entries come in their order, and the last one of a timer counts. The
    /// wheel does not turn meanwhile.
    pub fn restore(
        &mut self,
        now: Now,
        origin: &Origin<'_>,
        entry: &Entry<'_>,
        restored: &mut Restored,
    ) {
        match entry {
            Entry::Timer(copy) => self.restore_timer(now, origin, copy),
            Entry::Progress(standing) => {
                let is_known = self.restore_progress(now, standing);
                restored.without_timer += u64::from(!is_known);
            }
            Entry::Forgotten(id) if is_planted(Bug::JournalForgetsOutOfOrder) => {
                restored.forgotten_late.push(*id);
            }
            Entry::Forgotten(id) => {
                if let Some(slot) = self.find(*id) {
                    self.records.forget(now.mono.tick_floor(), slot);
                }
            }
            Entry::Head(_) | Entry::State(_) => {}
        }
    }

    fn restore_timer(&mut self, now: Now, origin: &Origin<'_>, copy: &TimerCopy<'_>) {
        let Some(start) = origin.clocks.translate(origin.boot, Tick(copy.start_ms)) else { return };
        let Standing { id, version, sequence, actives, .. } = copy.standing;
        let key = StateKey { version: Version(version), sequence };
        // What was written later is the later state, also with a lower version: a state that is
        // long over may have had a version from a wall clock that was far ahead.
        let slot = self.find(id);
        self.clock.observe(now.wall, key.version);
        let tick = now.mono.tick_floor();
        let mut placement = self.placement(copy.replicas, copy.sites, copy.factor);
        placement.actives = actives & copy.replicas.all_ranks();
        let (interval_ms, repeat_for_ms) = (copy.interval_ms, copy.repeat_for_ms);
        let outline = Outline { id, key, start, interval_ms, repeat_for_ms, placement };
        let has_ended = sequence > 0 && outline.schedule().is_last(sequence);
        let slot = match copy.body.filter(|_| !has_ended) {
            Some(body) => {
                let authority = self.records.enter_authority(body.authority);
                let (records, peers) = (&mut self.records, &self.peers);
                records.hold(peers, tick, (&outline, slot), authority, body.content)
            }
            None => self.records.bury(tick, &outline.ended(tick, copy.body), slot),
        };
        self.records.changes_mut().stands_in(slot, origin.segment);
    }

    fn restore_progress(&mut self, now: Now, standing: &Standing) -> bool {
        let Some(slot) = self.find(standing.id) else { return false };
        let held = *self.records.get(slot);
        let is_same = held.version == Version(standing.version) && held.is_live();
        if !is_same || standing.sequence < held.sequence {
            return true;
        }
        let mut placement = *self.records.placement_of(&held);
        if placement.replicas.digest() == standing.list_digest {
            placement.actives = standing.actives & placement.replicas.all_ranks();
        }
        let tick = now.mono.tick_floor();
        self.records.catch_up(&self.peers, tick, slot, standing.sequence, &placement);
        true
    }

    /// Ends the restart: pops that came due meanwhile are filed, oldest first, so many a second.
    /// New pops come due on time beside them. Cost: a look at every record, and a sort of those
    /// that are overdue.
    pub fn end_restore(&mut self, now: Now, catch_up: &CatchUp, restored: &mut Restored) {
        let tick = now.mono.tick_floor();
        for id in restored.forgotten_late.drain(..) {
            self.find(id).into_iter().for_each(|slot| self.records.forget(tick, slot));
        }
        let mut overdue: Vec<(Tick, Slot)> = Vec::new();
        let slots = self.records.slots();
        for slot in (0..slots).map(Slot) {
            if !self.records.contains(slot) {
                continue;
            }
            let record = *self.records.get(slot);
            if !record.is_live() || self.records.due(&record) > tick {
                continue;
            }
            let mut due = self.records.due(&record);
            if !catch_up.is_each {
                let missed_ms = tick.0.saturating_sub(self.turns_of_others_ms(&record));
                let last = last_missed(&record, Tick(missed_ms));
                if last > record.sequence + 1 {
                    restored.left_out += last - 1 - record.sequence;
                    let record = self.records.reach(slot, last - 1);
                    due = self.records.due(&record);
                }
            }
            overdue.push((due, slot));
        }
        overdue.sort_unstable();
        let per_s = catch_up.pops_per_s.max(1);
        for (place, &(_, slot)) in overdue.iter().enumerate() {
            let record = *self.records.get(slot);
            let turn = tick + place as u64 * 1_000 / per_s;
            let delay_ms = self.records.pops_at(&record) - self.records.due(&record);
            self.records.transition(slot, Next::waiting(&record, turn + delay_ms));
        }
        let caught_up_at = tick + overdue.len() as u64 * 1_000 / per_s;
        self.pops.none_given_up_before = caught_up_at + self.config.callbacks.give_up_ms;
        if !self.peers.is_alone() {
            // Other nodes may have changed, popped and ended what is held here, as if this core had
            // got no time since its last page.
            self.missed_much(tick);
            self.turns.held_until = tick + HOLD_MS;
            self.questions.be_fresh(self.turns.held_until);
        }
        self.turns.ticked_at = tick;
        restored.timers = self.records.counts().timers;
        restored.overdue = overdue.len() as u64;
        self.count_records();
    }
}

impl Shard {
    /// For how many ms a pop that is due may wait for the turns of other holders, and so was not
    /// missed for certain.
    fn turns_of_others_ms(&self, record: &Record) -> u64 {
        let holders = self.records.placement_of(record).replicas.len() as u64;
        match self.peers.is_alone() {
            true => 0,
            false => (holders + 1) * RANK_DELAY_MS + self.config.cluster.dead_after_ms,
        }
    }
}

/// The number of the last pop of a timer that is due at `tick`.
fn last_missed(record: &Record, tick: Tick) -> u64 {
    let schedule = record.schedule();
    let due = (tick - schedule.start).checked_div(schedule.interval_ms).unwrap_or(1);
    due.min(schedule.pops())
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
