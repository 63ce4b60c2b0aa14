//! Timers that follow the calendar (`timing.cron`). To a shard each pop is the only one of a timer:
//! when it is over, the node that made it writes the timer anew, with the next moment and a higher
//! version, and tells the others as after any pop. So two nodes that both made a pop agree again by
//! the version, as after two writes of a client.

use crate::base::ids::{PeerSet, Slot};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, Tick};
use crate::timer::action::rewrite;
use crate::timer::calendar::LATE_MS;
use crate::timer::definition::spread_ms;
use crate::timer::version::StateKey;
use crate::wire::attributes::CronTiming;

use super::Shard;
use super::effects::Outbox;
use super::records::{Outline, Placement, Record, Records};

/// The calendar that a live record follows.
fn timing_of<'r>(records: &'r Records, record: &Record) -> Option<CronTiming<'r>> {
    if !records.has_attributes(record) {
        return None;
    }
    records.content_of(record).attributes().cron
}

impl Shard {
    /// When the pop after the present one is due at the earliest, counted from the present one.
    pub(super) fn calendar_pause_ms(&mut self, record: &Record) -> Option<u64> {
        if self.records.is_run_ahead(record, record.sequence + 1) {
            return Some(record.due() - self.records.due(record))
                .filter(|_| timing_of(&self.records, record).is_some());
        }
        let timing = timing_of(&self.records, record)?;
        let next_ms = self.calendars.of(&timing)?.next_of(&timing, timing.due_ms)?;
        Some(next_ms - timing.due_ms)
    }

    /// Whether no pop comes after the present one that would end it.
    pub(super) fn is_without_next(&mut self, record: &Record) -> bool {
        record.schedule().is_last(record.sequence + 1) && self.calendar_pause_ms(record).is_none()
    }

    /// Whether a pop that is due was missed for longer than its client allows.
    pub(super) fn is_missed(&self, tick: Tick, record: &Record) -> bool {
        let late_ms = tick - self.records.due(record);
        late_ms > LATE_MS
            && timing_of(&self.records, record).is_some_and(|it| late_ms > it.catch_up_ms)
    }

    /// Whether no attempt at a pop has failed, and it was missed for longer than its client allows.
    pub(super) fn is_untried_missed(&self, tick: Tick, slot: Slot) -> bool {
        let record = self.records.get(slot);
        record.attempts == 0 && self.is_missed(tick, record)
    }

    /// Writes a timer anew whose pop is over, if it follows a calendar and another pop comes.
    /// False: it ends. The slot is in no list.
    pub(super) fn follow_calendar(
        &mut self,
        now: Now,
        slot: Slot,
        placement: &Placement,
        to: PeerSet,
        outbox: &mut Outbox,
    ) -> bool {
        let record = *self.records.get(slot);
        let mut content = Vec::new();
        let Some(due_ms) = self.next_definition(now, &record, &mut content) else { return false };
        let (tick, id) = (now.mono.tick_floor(), record.id);
        let interval_ms = due_ms.saturating_sub(now.wall.0);
        let version = self.clock.assign(now.wall, Some(record.version));
        let outline = Outline {
            id,
            key: StateKey { version, sequence: 0 },
            start: now.mono.tick_ceil() + spread_ms(id, &content),
            interval_ms,
            repeat_for_ms: interval_ms,
            placement: *placement,
        };
        let authority = self.records.authority_of(&record).to_owned();
        let authority = self.records.enter_authority(&authority);
        let peers = &self.peers;
        let slot = self.records.hold(peers, tick, (&outline, Some(slot)), authority, &content);
        self.tell_all(slot, placement, (to, true), outbox);
        self.look_later_if_misplaced(tick, slot);
        true
    }

    /// Encodes the content of the timer with its next pop. Returns when that is due.
    fn next_definition(&mut self, now: Now, record: &Record, out: &mut Vec<u8>) -> Option<u64> {
        let parts = self.records.content_of(record);
        let mut attributes = parts.attributes();
        let timing = attributes.cron?;
        let calendar = self.calendars.of(&timing)?;
        // A pop that was run ahead is none of the expression: that one is still to come.
        let is_ahead = self.records.is_run_ahead(record, record.sequence);
        let passed_ms = timing.due_ms.saturating_sub(u64::from(is_ahead));
        let passed = CronTiming { due_ms: passed_ms, ..timing };
        let due_ms = calendar.follow(&passed, now.wall.0)?;
        let repeats = is_planted(Bug::CalendarRepeatsSequence);
        let done = timing.done + u64::from(!repeats);
        attributes.cron = Some(CronTiming { due_ms, done, ..timing });
        // What clients did with the timer was done with the pop that is over.
        attributes.acted = None;
        rewrite(&parts, &attributes, out).then_some(due_ms)
    }
}

#[cfg(test)]
#[path = "calendars_tests.rs"]
mod tests;
