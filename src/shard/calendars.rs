//! Timers that follow the calendar (`timing.cron`). To a shard each pop is the only one of a timer:
//! when it is over, the node that made it writes the timer anew, with the next moment and a version
//! a little higher, and tells the others as after any pop. So two nodes that both made a pop agree
//! again by the version.
//!
//! A pop is no write of a client: its version is a little above the one before, so below that of
//! every write made since, by whichever node. A node that pops and has not heard of a delete,
//! because it was cut off or because the delete is still on its way, does not undo the delete.
//!
//! Moments are told by a clock of calendars (`cluster::calendar_clock`). When the time that it
//! tells changes, the shard walks through its timers, and plans the pops anew that it is the first
//! to make.

use crate::base::ids::{PeerSet, Slot};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, Tick, WallMs};
use crate::timer::action::rewrite;
use crate::timer::calendar::LATE_MS;
use crate::timer::calendar_plan::{PlanTime, Planned};
use crate::timer::definition::{Content, Definition, has_attributes};
use crate::timer::version::{StateKey, Version};
use crate::wire::attributes::CronTiming;
use crate::wire::peer_message::TimerCopy;

use super::Shard;
use super::effects::Outbox;
use super::records::{Outline, Placement, Record, Records, State};

/// Looks per tick of a walk that plans all calendars anew, and what a timer costs that follows one.
/// A look costs some 100 ns, a plan some 10 us: 0.1 to 0.2 ms a tick.
const LOOKS_PER_TICK: u32 = 1_024;
const LOOKS_PER_PLAN: u32 = 64;
/// A pop that is this near to its plan stays where it is: the clocks of two nodes differ.
const MOVED_MS: u64 = 500;

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

    /// Between which wall times the present pop of a calendar was planned, and told to all holders
    /// as a write is. `None`: the timer follows none.
    pub(super) fn planned_between(&self, record: &Record) -> Option<(u64, u64)> {
        timing_of(&self.records, record)?;
        let spread_ms = self.records.content_of(record).spread_ms(record.id);
        let wall_of = |tick: Tick| {
            let now = Now { mono: tick.begins(), wall: WallMs(0) };
            self.calendars.clock.wall(now).0
        };
        let latest = wall_of(record.start);
        Some((latest.saturating_sub(spread_ms), latest))
    }

    /// Whether a copy says what is held, further back in its calendar. Who made the later pops
    /// tells of them. An answer to what comes late would come late as well, and be answered in
    /// turn: the sites of a busy line would tell each other more and more, as long as pops come.
    pub(super) fn is_earlier_pop(&self, held: &Record, copy: &TimerCopy<'_>) -> bool {
        let body = copy.body.filter(|body| held.is_live() && has_attributes(body.content));
        let Some((body, present)) = body.zip(timing_of(&self.records, held)) else { return false };
        let parts = Content::decode(body.content);
        let mut attributes = parts.attributes();
        let Some(told) = attributes.cron else { return false };
        let CronTiming { due_ms, done, .. } = present;
        attributes.cron = Some(CronTiming { due_ms, done, ..told });
        let (mut made, mut room) = (Vec::new(), Vec::new());
        rewrite(&parts, &attributes, &mut made)
            && made == self.records.whole_content_of(held, &mut room)
            && self.records.authority_of(held) == body.authority
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
        let parts = self.records.content_of(&record);
        let mut attributes = parts.attributes();
        let Some(timing) = attributes.cron else { return false };
        let time = self.calendars.time(now, parts.spread_ms(record.id));
        // A pop that was run ahead is none of the expression: that one is still to come.
        let is_ahead = self.records.is_run_ahead(&record, record.sequence);
        let passed_ms = timing.due_ms.saturating_sub(u64::from(is_ahead));
        let passed = CronTiming { due_ms: passed_ms, ..timing };
        let calendar = self.calendars.of(&passed);
        let planned = calendar.and_then(|calendar| time.after_pop(calendar, &passed));
        let Some(Planned { due_ms, left_out }) = planned else { return false };
        let repeats = is_planted(Bug::CalendarRepeatsSequence);
        let done = timing.done + u64::from(!repeats);
        attributes.cron = Some(CronTiming { due_ms, done, ..timing });
        // What clients did with the timer was done with the pop that is over.
        attributes.acted = None;
        let mut content = Vec::new();
        if !rewrite(&parts, &attributes, &mut content) {
            return false;
        }
        self.counters.missed += left_out;
        let version = self.clock.after_pop(record.version);
        let slot = self.write_plan(now, (slot, version, placement), (&content, &time, due_ms));
        self.tell_all(slot, placement, (to, true), outbox);
        self.look_later_if_misplaced(now.mono.tick_floor(), slot);
        true
    }

    /// Writes the definition with the next pop of a calendar. That comes at its moment of the plan,
    /// or at once, if the moment has come.
    fn write_plan(
        &mut self,
        now: Now,
        (slot, version, placement): (Slot, Version, &Placement),
        (content, time, due_ms): (&[u8], &PlanTime, u64),
    ) -> Slot {
        let (tick, record) = (now.mono.tick_floor(), *self.records.get(slot));
        let interval_ms = due_ms.saturating_sub(time.wall_ms);
        // Of the offset, what is left since the moment.
        let passed_ms = match is_planted(Bug::CalendarWindowCountsFromPop) {
            true => 0,
            false => time.wall_ms.saturating_sub(due_ms),
        };
        let offset_ms = time.offset_ms.saturating_sub(passed_ms);
        let outline = Outline {
            id: record.id,
            key: StateKey { version, sequence: 0 },
            start: now.mono.tick_ceil() + offset_ms,
            interval_ms,
            repeat_for_ms: interval_ms,
            placement: *placement,
        };
        let authority = self.records.authority_of(&record).to_owned();
        let authority = self.records.enter_authority(&authority);
        self.records.hold(&self.peers, tick, (&outline, Some(slot)), authority, content)
    }

    /// A definition that another core has taken by a time that no longer counts here, planned by
    /// the time that does: the walk that plans all calendars anew may be over. `None`: it is
    /// right.
    pub(super) fn plan_taken<'a>(
        &mut self,
        now: Now,
        definition: &Definition<'a>,
        made: &'a mut Vec<u8>,
    ) -> Option<Definition<'a>> {
        if !has_attributes(definition.content) || is_planted(Bug::CalendarTakenAsItComes) {
            return None;
        }
        let parts = Content::decode(definition.content);
        let mut attributes = parts.attributes();
        let timing = attributes.cron?;
        let counted = WallMs(timing.due_ms.saturating_sub(definition.interval_ms));
        if !self.calendars.clock.is_former(now, counted) {
            return None;
        }
        let wall_ms = self.calendars.clock.wall(now).0;
        let due_ms = self.calendars.of(&timing)?.next_of(&timing, wall_ms)?;
        attributes.cron = Some(CronTiming { due_ms, ..timing });
        let interval_ms = due_ms - wall_ms;
        let is_made = rewrite(&parts, &attributes, made);
        let content = &*made;
        is_made.then_some(Definition {
            interval_ms,
            repeat_for_ms: interval_ms,
            content,
            ..*definition
        })
    }

    /// Begins with the time by which the last process went, on the same boot of the machine: the
    /// wall clock was `ahead_ms` ahead of the monotonic one. Call it after [`Shard::end_restore`].
    pub fn go_on_with_calendars(&mut self, now: Now, ahead_ms: i64) {
        if self.calendars.clock.go_on(now, ahead_ms) {
            self.calendars.walk = Some(Slot(0));
        }
    }

    /// Looks whether somebody has set the wall clock.
    #[inline]
    pub(super) fn look_at_clock(&mut self, now: Now) {
        if self.calendars.clock.look(now) {
            self.calendars.walk = Some(Slot(0));
        }
    }

    /// Whether the wall clock shows another time than the one that calendars go by.
    #[inline]
    pub fn is_clock_off(&self, now: Now) -> bool {
        self.calendars.clock.is_off(now)
    }

    /// Takes what the wall clocks of the members show now.
    pub fn hear_clocks(&mut self, now: Now, walls: impl Iterator<Item = WallMs>) {
        if self.calendars.clock.hear(now, walls) {
            self.calendars.walk = Some(Slot(0));
        }
    }

    /// The time that calendars go by.
    pub fn calendar_wall(&self, now: Now) -> WallMs {
        self.calendars.clock.wall(now)
    }

    /// Whether calendars go by another time than the wall clock shows.
    pub fn doubts_clock(&self) -> bool {
        self.calendars.clock.is_in_doubt()
    }

    /// When this shard looks at its clocks, or plans on. A core without timers that may follow a
    /// calendar need not.
    pub(super) fn calendars_wake(&self) -> Option<Tick> {
        match self.calendars.walk {
            Some(_) => Some(self.turns.at + 1),
            None => {
                let may_follow = self.records.has_had_special() && self.records.counts().timers > 0;
                may_follow.then(|| self.calendars.clock.next_look())
            }
        }
    }

    /// Goes on with the walk that plans all calendars anew.
    #[inline]
    pub(super) fn plan_calendars(&mut self, now: Now, outbox: &mut Outbox) {
        if self.calendars.walk.is_some() {
            self.plan_portion(now, outbox);
        }
    }

    #[cold]
    fn plan_portion(&mut self, now: Now, outbox: &mut Outbox) {
        let mut looks = LOOKS_PER_TICK;
        while looks > 0
            && let Some(next) = self.calendars.walk
        {
            let slot = self.records.occupied_from(next).next();
            self.calendars.walk = slot.map(|slot| Slot(slot.0 + 1));
            let Some(slot) = slot else { return };
            let is_planned = self.plan_anew(now, slot, outbox);
            looks = looks.saturating_sub(if is_planned { LOOKS_PER_PLAN } else { 1 });
        }
    }

    /// Plans the next pop of a timer anew, if it follows a calendar, this node decides about it,
    /// and its pop is to come. Returns whether it follows one.
    fn plan_anew(&mut self, now: Now, slot: Slot, outbox: &mut Outbox) -> bool {
        let record = *self.records.get(slot);
        let is_waiting = matches!(record.state, State::Armed | State::Paused);
        if !is_waiting || !self.records.has_attributes(&record) {
            return false;
        }
        let parts = self.records.content_of(&record);
        let mut attributes = parts.attributes();
        let Some(timing) = attributes.cron else { return false };
        let is_forward = attributes.acted.is_some_and(|acted| acted.pop == record.sequence + 1);
        let before = self.ranks_before(&record).minus(self.peers.dead());
        if is_forward || record.attempts > 0 || !self.peers.is_alone() && !before.is_empty() {
            return true;
        }
        let time = self.calendars.time(now, parts.spread_ms(record.id));
        let calendar = self.calendars.of(&timing);
        let planned = calendar.and_then(|calendar| time.anew(calendar, &timing));
        // A timer is not ended because a clock was set beyond its end.
        let Some(Planned { due_ms, left_out }) = planned else { return true };
        let left_ms = (due_ms + time.offset_ms).saturating_sub(time.wall_ms);
        let is_right = (record.due() - now.mono.tick_floor()).abs_diff(left_ms) < MOVED_MS;
        attributes.cron = Some(CronTiming { due_ms, ..timing });
        let mut content = Vec::new();
        if due_ms == timing.due_ms && is_right || !rewrite(&parts, &attributes, &mut content) {
            return true;
        }
        self.counters.missed += left_out;
        let version = self.clock.just_above(record.version);
        let placement = *self.records.placement_of(&record);
        let slot = self.write_plan(now, (slot, version, &placement), (&content, &time, due_ms));
        let to = self.peers.view.peers_of(&placement.replicas).without(self.peers.own());
        let to = to.minus(self.peers.dead());
        self.tell_all(slot, &placement, (to, true), outbox);
        true
    }
}

#[cfg(test)]
#[path = "calendars_tests.rs"]
mod tests;
