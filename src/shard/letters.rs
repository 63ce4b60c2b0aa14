//! Dead letters: pops that are given up and kept.
//!
//! - A dead letter is a timer that is *parked*: its content has the attribute of a letter, and it
//!   waits in the wheel for the end of its time. So replicas, moves, the journal and restarts keep
//!   it as they keep any timer.
//! - The last pop of a timer makes a dead letter of the timer itself, under its id. Its version
//!   lies just above that of the timer: whatever a client writes later wins, whoever heard of it
//!   first.
//! - An earlier pop of a repeating timer becomes a record of its own under a new id, and the timer
//!   goes on.
//! - With a URI for dead letters the record is a callback to that URI instead, which has one pop.
//!   It is parked only if that pop is given up in turn.
//! - A replay makes a callback to the first URI of the record again.
//! - Letters are bounded by number, bytes and age. The oldest leaves first.

// Reads the wall clock: told 3.

use crate::base::ids::{PeerSet, Slot, TimerId};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::Now;
use crate::timer::definition::{Content, encode_with_attributes, with_owner};
use crate::timer::version::{StateKey, Version};
use crate::wire::attributes::{ATTRIBUTES_BYTES_MAX, Attributes};
use crate::wire::callback_uri::{parse_told_uri, uri_of};
use crate::wire::dead_letter::{DeadLetter, Failure, GivenUp, Replay};
use crate::wire::timer_path::write_public_id;

use super::Shard;
use super::effects::{CallbackOutcome, Letter, Outbox, Refusal, Target, Ticket};
use super::parts::writes::NewWrite;
use super::records::Record;
use super::reports::PopEnd;

/// Letters that leave for lack of room in one tick.
const LEAVING_PER_TICK_MAX: usize = 64;

/// A record that a pop becomes when it is given up, or tried again.
struct Next {
    authority: String,
    content: Vec<u8>,
    is_parked: bool,
}

impl Shard {
    /// Notes the answer of a callback server to an attempt that failed, or that is reported.
    /// [`super::effects::Event::CallbackFinished`] follows.
    pub fn note_answer(&mut self, ticket: &Ticket, status: u16, answer: &[u8]) {
        let held = self.records.contains(ticket.slot).then(|| self.records.get(ticket.slot));
        // A client may have done something with the timer since the attempt began.
        let is_continued =
            |held: &&Record| held.id == ticket.id && self.records.continues(held, ticket.version);
        let version = held.filter(is_continued).map_or(ticket.version, |held| held.version);
        self.said.note(&Ticket { version, ..*ticket }, status, answer);
    }

    /// Notes how an attempt failed at a pop of a timer that has a policy.
    pub(super) fn note_failure(&mut self, record: &Record, outcome: CallbackOutcome) {
        let failure = match outcome {
            CallbackOutcome::Unreachable => Failure::Unreachable,
            CallbackOutcome::TimedOut => Failure::TimedOut,
            _ => Failure::Status,
        };
        self.said.failed((record.id, record.version, record.sequence + 1), failure);
    }

    /// Ends a pop that is given up. The slot is in no list.
    pub(super) fn give_up(&mut self, now: Now, slot: Slot, reason: GivenUp, outbox: &mut Outbox) {
        self.counters.given_up += 1;
        self.report(now, slot, PopEnd::GivenUp(reason), outbox);
        let record = *self.records.get(slot);
        self.note_give_up(&record, reason);
        let is_last = self.is_without_next(&record);
        if self.has_letter(&record, is_last) && !is_planted(Bug::GivenUpLeavesNoLetter) {
            match self.write_letter(now, (slot, &record, is_last), reason, outbox) {
                Ok(()) if is_last => return,
                Ok(()) => {}
                Err(_) => self.counters.letters_without_room += 1,
            }
        }
        self.pop_over(now, slot, false, outbox);
    }

    /// Notes a pop that is given up, for the log.
    fn note_give_up(&mut self, record: &Record, reason: GivenUp) {
        let (records, peers) = (&self.records, &self.peers);
        let host = records.authority_of(record);
        self.give_ups.note(host, reason, || {
            let placement = records.placement_of(record);
            let (factor, filter) = (placement.factor, peers.view.filter_of(&placement.replicas));
            let mut timer = Vec::new();
            write_public_id(record.id, factor, filter, &mut timer);
            let target = records.content_of(record).target;
            let timer = String::from_utf8_lossy(&timer).into_owned();
            (timer, uri_of(host, target))
        });
    }

    /// Whether a pop that is given up becomes a dead letter.
    fn has_letter(&self, record: &Record, is_last: bool) -> bool {
        let limits = &self.config.callbacks.dead_letters;
        let attributes = self.attributes_of(record);
        if attributes.report.is_some() {
            return false;
        }
        let has_uri = attributes.dead_letter_uri.is_some() && attributes.letter.is_none();
        if limits.per_core_max == 0 && !has_uri {
            return false;
        }
        attributes.retry.is_some()
            || attributes.replay.is_some()
            || attributes.letter.is_some()
            || limits.plain && is_last && !self.has_originals()
    }

    fn write_letter(
        &mut self,
        now: Now,
        (slot, record, is_last): (Slot, &Record, bool),
        reason: GivenUp,
        outbox: &mut Outbox,
    ) -> Result<(), Refusal> {
        let last = self.said.take((record.id, record.version, record.sequence + 1));
        let keep_ms = self.config.callbacks.dead_letters.keep_ms;
        // Of a timer that follows the calendar each pop is the only one of a record.
        let done = self.attributes_of(record).cron.map_or(0, |cron| cron.done);
        let letter = DeadLetter {
            is_on_its_way: false,
            uri_failed: false,
            reason,
            failure: last.failure,
            attempts: record.attempts.into(),
            status: last.status,
            given_up_ms: now.wall.0,
            until_ms: now.wall.0.saturating_add(keep_ms),
            sequence: record.sequence + 1 + done,
            answer: &last.answer,
        };
        let Next { authority, content, is_parked } =
            self.given_up_as((record, is_last), letter).ok_or(Refusal::BytesFull)?;
        let factor = self.records.placement_of(record).factor;
        let (id, at, version, plan) = if is_last {
            let target = Target { id: record.id, factor: Some(factor), filter: None };
            let without = self.own_if_replaced(record.id, factor);
            let plan = self.plan_known_without(target, factor, Some(record), without);
            (record.id, Some(slot), self.clock.just_above(record.version), plan)
        } else {
            let id = self.free_id(now).ok_or(Refusal::IdsExhausted)?;
            (id, None, self.clock.assign(now.wall, None), self.plan_create(id, factor))
        };
        let start = now.mono.tick_ceil() + if is_parked { keep_ms } else { 0 };
        let new = NewWrite {
            from: None,
            asked_at: now.mono.tick_floor(),
            id,
            slot: at,
            key: StateKey { version, sequence: 0 },
            start,
            interval_ms: 0,
            repeat_for_ms: 0,
            body: Some((&authority, &content)),
            tries: 1,
            refused: PeerSet::EMPTY,
            is_decided: false,
            gives_way: true,
            is_action: false,
        };
        self.write(now, &new, &plan, outbox)?;
        let count = match is_parked {
            true => &mut self.counters.letters_kept,
            false => &mut self.counters.letters_sent,
        };
        *count += 1;
        Ok(())
    }

    /// What a pop that is given up becomes: a callback to its URI for dead letters, or a letter
    /// that is parked. `None`: it would be too long.
    fn given_up_as(
        &self,
        (record, is_last): (&Record, bool),
        letter: DeadLetter<'_>,
    ) -> Option<Next> {
        let content = self.records.content_of(record);
        let authority = self.records.authority_of(record);
        let attributes = content.attributes();
        let here = uri_of(authority, content.target);
        // What belongs to the times of the timer says nothing of the letter: its pops, and what
        // clients did with them. A letter that went on with them would have ended.
        let acted = attributes.acted.filter(|_| is_planted(Bug::LetterCountsPopsOfTimer));
        let mut next = Attributes {
            at_ms: None,
            window_ms: None,
            cron: None,
            acted,
            is_paused: false,
            ..attributes
        };
        // A key is remembered by the id that it made.
        next.once = next.once.filter(|_| is_last);
        let there = attributes.dead_letter_uri.and_then(|uri| parse_told_uri(uri).ok());
        let sequence = attributes.replay.map_or(letter.sequence, |replay| replay.sequence);
        next.letter = Some(match (attributes.letter, there) {
            (Some(sent), _) => DeadLetter {
                is_on_its_way: false,
                uri_failed: true,
                until_ms: letter.until_ms,
                ..sent
            },
            (None, Some(_)) => DeadLetter { is_on_its_way: true, sequence, ..letter },
            (None, None) => DeadLetter { sequence, ..letter },
        });
        let is_parked = there.is_none() || attributes.letter.is_some();
        let (authority, target) = match there {
            Some(there) => {
                next.dead_letter_uri = Some(&here);
                (there.authority, there.target.as_bytes())
            }
            None => (authority, content.target),
        };
        Some(Next {
            authority: authority.to_owned(),
            content: content_of(&content, target, &next)?,
            is_parked,
        })
    }

    /// Ends a letter whose time is over. The slot is in no list.
    pub(super) fn letter_is_over(&mut self, now: Now, slot: Slot, outbox: &mut Outbox) {
        self.counters.letters_too_old += 1;
        self.pop_over(now, slot, true, outbox);
    }

    /// Whether there are more letters, or more bytes of them, than may be.
    #[inline]
    pub(super) fn has_too_many_letters(&self) -> bool {
        let limits = &self.config.callbacks.dead_letters;
        let letters = self.records.letters();
        let is_bounded = letters.len() as u64 <= limits.per_core_max.into()
            && letters.bytes() <= limits.bytes_per_core_max;
        !is_bounded && !is_planted(Bug::LettersWithoutBound)
    }

    /// Ends the oldest letters while there are more than may be.
    #[cold]
    pub(super) fn drop_old_letters(&mut self, now: Now, outbox: &mut Outbox) {
        for _ in 0..LEAVING_PER_TICK_MAX {
            let Some(slot) = self.records.letters().oldest() else { return };
            if !self.has_too_many_letters() {
                return;
            }
            let record = *self.records.get(slot);
            let factor = self.records.placement_of(&record).factor;
            let target = Target { id: record.id, factor: Some(factor), filter: None };
            let plan = self.plan_known(target, factor, Some(&record));
            let is_counted = !is_planted(Bug::LetterLeavesUncounted);
            self.counters.letters_pushed_out += u64::from(is_counted);
            if self.end(now, None, (record.id, Some(slot)), &plan, outbox).is_err() {
                return self.records.forget(now.mono.tick_floor(), slot);
            }
        }
    }

    /// A letter as a copy of a timer has it; `None`: the timer is none.
    pub(super) fn letter_of(
        (id, version, factor): (TimerId, Version, u8),
        authority: &str,
        content: &[u8],
    ) -> Option<Letter> {
        Content::decode(content).is_parked().then(|| Letter {
            id,
            version,
            factor,
            authority: authority.into(),
            content: content.into(),
        })
    }
}

/// The content with another target and other attributes. `None`: these are too long.
fn content_of(former: &Content<'_>, target: &[u8], attributes: &Attributes<'_>) -> Option<Vec<u8>> {
    let (mut encoded, mut content) = (Vec::new(), Vec::new());
    attributes.write(&mut encoded);
    let target = std::str::from_utf8(target).ok()?;
    if encoded.len() > ATTRIBUTES_BYTES_MAX {
        return None;
    }
    let tags = former.tags();
    encode_with_attributes(target, tags.as_slice(), (&encoded, former.opaque), &mut content);
    let Some(owner) = former.owner() else { return Some(content) };
    let mut owned = Vec::new();
    with_owner(&content, owner, &mut owned);
    Some(owned)
}

/// The content of a letter that is tried again.
pub(super) fn replayed(content: &[u8]) -> Option<Vec<u8>> {
    let content = Content::decode(content);
    let attributes = content.attributes();
    let count = attributes.replay.map_or(0, |replay| replay.count).saturating_add(1);
    let sequence = attributes.letter.map_or(1, |letter| letter.sequence);
    let replay = Some(Replay { count, sequence });
    content_of(&content, content.target, &Attributes { letter: None, replay, ..attributes })
}

#[cfg(test)]
#[path = "letters_tests.rs"]
mod tests;
