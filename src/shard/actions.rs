//! Timers that a client pauses, resumes or runs ([`crate::timer::action`]). To the cluster each
//! action is a write with a condition (`shard::conditions`): the node that decides about the timer
//! decides about it, and what it makes of the timer is a new version on all replicas.
//!
//! A write of a client begins to count pops anew. An action does not: pops that were made of the
//! version before, by whichever node, are done.
//!
//! - A node that decides about an action and knows of a later pop says so, and the action is judged
//!   again.
//! - A pop that another node tells of, or that this node has made, counts for the version that an
//!   action has made of the timer since. Whoever finds that out tells the others.
//! - A callback that runs while the timer is paused or resumed ends as it ends. If the host has
//!   taken the pop, the pop is done. If the host answers 410, the timer ends, also if the pop was
//!   made again meanwhile. A node that an action takes off the list keeps the timer so long.

use crate::base::ids::Slot;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::Now;
use crate::timer::action::{Acting, Present, act, rewrite};
use crate::timer::definition::{Content, Definition, OwnedDefinition, has_attributes};
use crate::timer::schedule::Schedule;
use crate::timer::version::{StateKey, Version};
use crate::wire::attributes::{Acted, CronTiming};
use crate::wire::peer_message::{CopyBody, Standing, TimerCopy};
use crate::wire::timer_action::TimerAction;

use super::Shard;
use super::effects::{Outbox, Refusal};
use super::parts::conditions::Asked;
use super::parts::peers::Teller;
use super::records::{Outline, Record, State};

/// What clients did with a timer of this content.
fn acted_in(content: &[u8]) -> Option<Acted> {
    if !has_attributes(content) {
        return None;
    }
    Content::decode(content).attributes().acted
}

/// Whether what is held is of the same write as a later version with this content.
pub(super) fn is_continued(held: &Record, version: Version, content: &[u8]) -> bool {
    let is_since = |acted: Acted| acted.root <= held.version.0 && held.version <= version;
    acted_in(content).is_some_and(is_since)
}

/// The key of a state with this content, with all pops that are known of it here.
pub(super) fn joined(key: StateKey, copy: &Schedule, content: &[u8], held: &Record) -> StateKey {
    // A tombstone whose pops are not done was deleted.
    let counts = |held: &Record| held.is_live() || copy.is_last(held.sequence);
    match held.sequence > key.sequence && is_continued(held, key.version, content) && counts(held) {
        true => StateKey { sequence: held.sequence, ..key },
        false => key,
    }
}

/// Whether a copy is of the write that is held, or of an action that goes back to it.
pub(super) fn is_same_write(held: &Record, key: StateKey, copy: &TimerCopy<'_>) -> bool {
    let is_continued = |body: CopyBody<'_>| is_continued(held, key.version, body.content);
    held.version == key.version || copy.body.is_some_and(is_continued)
}

impl Shard {
    /// The key of a copy, with the pops that are known of it here.
    #[inline]
    pub(super) fn with_known_pops(
        &self,
        key: StateKey,
        copy: &TimerCopy<'_>,
        held: Option<&Record>,
    ) -> StateKey {
        let (Some(body), Some(held)) = (copy.body, held) else { return key };
        let (interval_ms, repeat_for_ms) = (copy.interval_ms, copy.repeat_for_ms);
        let schedule = Schedule { start: held.start, interval_ms, repeat_for_ms };
        joined(key, &schedule, body.content, held)
    }

    /// Makes the definition of an action from what is known of the timer. Returns whether it is
    /// another one.
    pub(super) fn act(&mut self, now: Now, asked: &mut Asked) -> Result<bool, Refusal> {
        let (Some(action), Some(seen)) = (asked.action, asked.seen.as_ref()) else {
            return Ok(true);
        };
        let Some((authority, content)) = &seen.body else { return Err(Refusal::Contended) };
        let (interval_ms, repeat_for_ms) = (seen.interval_ms, seen.repeat_for_ms);
        let schedule = Schedule { start: seen.start, interval_ms, repeat_for_ms };
        let is_elsewhere = seen.sites.len() > 1;
        let present =
            Present { id: asked.target.id, key: seen.key, schedule, content, is_elsewhere };
        let offset_ms = Content::decode(content).spread_ms(asked.target.id);
        let time = self.calendars.time(now, offset_ms);
        let calendars = &mut self.calendars;
        let mut made = Vec::new();
        let acting = act(
            action,
            &present,
            now,
            |cron| calendars.of(cron).map_or(cron.due_ms, |it| time.latest(it, cron)),
            &mut made,
        );
        let (sequence, content, is_changed) = match acting {
            Acting::Same => (seen.key.sequence, &**content, false),
            Acting::Changed(sequence) => (sequence, &made[..], true),
            Acting::Paused => return Err(Refusal::Paused),
            Acting::TooLong => return Err(Refusal::NoteTooLong),
        };
        let definition =
            Definition { interval_ms, repeat_for_ms, factor: None, authority, content };
        let forgets = is_planted(Bug::ResumeForgetsMissed)
            && action == TimerAction::Resume
            && schedule.pops() == 1
            && schedule.come(now.mono.tick_floor()) > 0;
        asked.definition = (!forgets).then(|| OwnedDefinition::copy(&definition));
        (asked.start, asked.sequence) = (seen.start, sequence);
        if action == TimerAction::RunNow && is_planted(Bug::RunMovesSchedule) {
            asked.start = now.mono.tick_ceil();
        }
        Ok(is_changed)
    }

    /// How many paused timers there are of which this node is the first to pop.
    pub fn timers_paused(&self) -> u64 {
        let states = self.records.tallies().states();
        states.get(State::Paused as usize).copied().unwrap_or(0)
    }

    /// The content of an action that was judged before a pop of the calendar that is held was
    /// planned, with that plan. `None`: the action knows the plan, or there is none.
    pub(super) fn with_later_plan(
        &self,
        held: &Record,
        version: Version,
        content: &[u8],
    ) -> Option<Vec<u8>> {
        let root = acted_in(content)?.root;
        if !held.is_live() || root >= held.version.0 || held.version >= version {
            return None;
        }
        let planned = self.records.content_of(held).attributes();
        let CronTiming { due_ms, done, .. } = planned.cron.filter(|_| planned.acted.is_none())?;
        let parts = Content::decode(content);
        let mut attributes = parts.attributes();
        attributes.cron = Some(CronTiming { due_ms, done, ..attributes.cron? });
        let mut made = Vec::new();
        rewrite(&parts, &attributes, &mut made).then_some(made)
    }

    /// Goes on by the plan of `held` with a timer that an action has replaced, which did not know
    /// that plan, and tells all holders.
    pub(super) fn keep_plan(
        &mut self,
        slot: Slot,
        held: &Record,
        content: &[u8],
        outbox: &mut Outbox,
    ) {
        let record = *self.records.get(slot);
        if !record.is_live() {
            return;
        }
        let version = self.clock.just_above(record.version);
        let outline = Outline {
            id: record.id,
            key: StateKey { version, sequence: 0 },
            start: held.start,
            interval_ms: held.interval_ms,
            repeat_for_ms: held.repeat_for.get(),
            placement: *self.records.placement_of(&record),
        };
        let authority = self.records.authority_of(&record).to_owned();
        let authority = self.records.enter_authority(&authority);
        let place = (&outline, Some(slot));
        let slot = self.records.hold(&self.peers, self.turns.at, place, authority, content);
        let holders = self.peers.view.peers_of(&outline.placement.replicas);
        let holders = holders.without(self.peers.own()).minus(self.peers.dead());
        self.tell_all(slot, &outline.placement, (holders, true), outbox);
    }

    /// Whether an action was judged without a pop that this node knows of.
    pub(super) fn is_behind(held: &Record, seen: Version, copy: &TimerCopy<'_>) -> bool {
        let body = copy.body.filter(|_| held.version == seen);
        body.is_some_and(|body| {
            held.sequence > copy.standing.sequence && acted_in(body.content).is_some()
        })
    }

    /// Takes over that another node, or another site, has made pops of the version before an
    /// action. Returns whether it has.
    pub(super) fn takes_earlier_pops(
        &mut self,
        now: Now,
        slot: Slot,
        told: StateKey,
        outbox: &mut Outbox,
    ) -> bool {
        let held = *self.records.get(slot);
        let is_news = told.version < held.version
            && held.is_live()
            && told.sequence > held.sequence
            && self.records.continues(&held, told.version)
            && !is_planted(Bug::PopsBeforeActionUntold);
        if is_news {
            let (tick, placement) = (now.mono.tick_floor(), *self.records.placement_of(&held));
            self.records.catch_up(&self.peers, tick, slot, told.sequence, &placement);
            self.tell_holders(slot, outbox);
        }
        is_news
    }

    /// Tells what is known of a copy beyond what it says.
    pub(super) fn tell_more(
        &mut self,
        slot: Slot,
        (key, told): (StateKey, &Standing),
        teller: Teller,
        outbox: &mut Outbox,
    ) {
        if key.version.0 != told.version {
            // The teller knows the write by another version.
            self.tell_back(slot, teller, outbox);
        } else if key.sequence != told.sequence {
            self.tell_holders(slot, outbox);
        }
    }

    /// Tells all other holders, and the other sites, how far a timer is.
    pub(super) fn tell_holders(&mut self, slot: Slot, outbox: &mut Outbox) {
        let placement = *self.records.placement_of(self.records.get(slot));
        let others = self.peers.view.peers_of(&placement.replicas).without(self.peers.own());
        let others = others.minus(self.peers.dead());
        if is_planted(Bug::PopsBeforeActionUntold) {
            return self.tell(slot, others, false, outbox);
        }
        self.tell_all(slot, &placement, (others, false), outbox);
    }
}

#[cfg(test)]
#[path = "actions_tests.rs"]
mod tests;
