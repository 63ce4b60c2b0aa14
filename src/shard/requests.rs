//! What clients ask: create, update, delete, read. Decides what the timer becomes here.
//! [`super::placing`] says which nodes are to hold it, [`super::writes`] brings it to the other
//! nodes before the client is answered.

// Reads the wall clock: order 1.

use crate::base::ids::{PeerSet, Slot, TimerId};
use crate::base::limits::REPLICATION_FACTOR_DEFAULT;
use crate::base::time::Now;
use crate::journal::Position;
use crate::timer::definition::{Definition, has_attributes, spread_ms};
use crate::timer::version::StateKey;

use super::Shard;
use super::effects::{
    Answer, Conditional, Internal, Outbox, Refusal, Reply, Request, Requester, Target,
};
use super::parts::writes::{NewWrite, Plan};
use super::records::Record;

pub(super) const FACTOR_DEFAULT: u8 = REPLICATION_FACTOR_DEFAULT as u8;

impl Shard {
    pub(super) fn request(
        &mut self,
        now: Now,
        from: Requester,
        request: Request<'_>,
        outbox: &mut Outbox,
    ) {
        let is_read = matches!(request, Request::Read(_) | Request::Letter(..));
        let is_write = matches!(
            request,
            Request::Create(_) | Request::Update(..) | Request::Delete(_) | Request::Conditional(_)
        );
        let is_clients = is_read || is_write;
        if let Some(refusal) = self.write_refusal.filter(|_| is_write) {
            self.counters.refused += 1;
            return outbox.reply(from, Answer::Refused(refusal));
        }
        let answer = match request {
            // What this node took would be lost with it. What it does not hold, other nodes may.
            _ if is_clients && self.peers.view.has_left() => Err(Refusal::HasLeft),
            Request::Create(ref definition)
            | Request::Update(_, ref definition)
            | Request::Conditional(Conditional { definition: Some(ref definition), .. })
                if self.cannot_be_held(definition) =>
            {
                Err(Refusal::Original)
            }
            Request::Conditional(Conditional { action: Some(_), .. }) if self.has_originals() => {
                Err(Refusal::Original)
            }
            Request::Create(definition) => self.create(now, from, &definition, outbox),
            Request::Update(target, definition) => {
                self.update(now, from, target, &definition, outbox)
            }
            Request::Delete(target) => self.delete(now, from, target, outbox),
            Request::Conditional(ask) => self.conditional(now, from, &ask, outbox),
            Request::Read(target) => Ok(self.read(now, from, (target, None), outbox)),
            Request::Letter(target, wanted, version) => {
                Ok(self.read(now, from, (target, Some((wanted, version))), outbox))
            }
            Request::Merge(copy) => self.merge(now, &copy, outbox).map(Some),
            Request::Compare(asked) => Ok(self.compare(now, from, asked, outbox)),
            Request::Collect(ask) => self.ask_for_page(now, from, ask, outbox),
            Request::Forget(references) => Ok(Some(self.forget_references(now, references))),
            Request::List(ask) => {
                let part = self.listed_part(now, ask).ok().map(Into::into);
                Ok(Some(Answer::Internal(Box::new(Internal::ListPart(part)))))
            }
        };
        let answer = answer.unwrap_or_else(|refusal| {
            self.counters.refused += 1;
            Some(Answer::Refused(refusal))
        });
        if let Some(answer) = answer {
            // What is read need not be on the disk. What is promised must be.
            let is_promise = matches!(answer, Answer::Done { .. } | Answer::Identified(_));
            let after = if is_promise { self.position() } else { Position::default() };
            outbox.replies.push(Reply { to: from, answer, after });
        }
    }

    #[inline(always)]
    fn create(
        &mut self,
        now: Now,
        from: Requester,
        definition: &Definition<'_>,
        outbox: &mut Outbox,
    ) -> Result<Option<Answer>, Refusal> {
        let id = self.free_id(now).ok_or(Refusal::IdsExhausted)?;
        let factor = definition.factor.unwrap_or(FACTOR_DEFAULT);
        let plan = self.plan_create(id, factor);
        if !fires(definition) {
            self.counters.never_firing += 1;
            return Ok(Some(self.done(id, &plan.placement)));
        }
        self.store(now, from, (id, None), &plan, definition, outbox)
    }

    /// Whether a member is an original node, which cannot hold such a timer.
    fn cannot_be_held(&self, definition: &Definition<'_>) -> bool {
        has_attributes(definition.content) && self.has_originals()
    }

    /// Replaces a timer. A PUT on an id that is not held creates the timer
    /// (docs/compat/timer-service.md §1.2).
    fn update(
        &mut self,
        now: Now,
        from: Requester,
        target: Target,
        definition: &Definition<'_>,
        outbox: &mut Outbox,
    ) -> Result<Option<Answer>, Refusal> {
        let mut content = Vec::new();
        let planned = self.plan_taken(now, definition, &mut content);
        let definition = planned.as_ref().unwrap_or(definition);
        let slot = self.find(target.id);
        let held = slot.map(|slot| *self.records.get(slot));
        let live = held.filter(Record::is_live);
        if live.is_some_and(|live| self.has_other_name(&live, definition.content)) {
            return Err(Refusal::OtherName);
        }
        let asked = definition.factor.or(target.factor);
        let held_factor = held.map(|held| self.records.placement_of(&held).factor);
        let factor = match live {
            Some(_) => held_factor,
            None => asked.or(held_factor),
        };
        let plan = self.plan_known(target, factor.unwrap_or(FACTOR_DEFAULT), held.as_ref());
        if fires(definition) {
            return self.store(now, from, (target.id, slot), &plan, definition, outbox);
        }
        self.counters.never_firing += 1;
        if live.is_none() && self.peers.is_alone() {
            return Ok(Some(self.done(target.id, &plan.placement)));
        }
        self.end(now, Some(from), (target.id, slot), &plan, outbox)
    }

    fn delete(
        &mut self,
        now: Now,
        from: Requester,
        target: Target,
        outbox: &mut Outbox,
    ) -> Result<Option<Answer>, Refusal> {
        self.counters.deletes += 1;
        let slot = self.find(target.id);
        let held = slot.map(|slot| *self.records.get(slot));
        let held_factor = held.map(|held| self.records.placement_of(&held).factor);
        let factor = held_factor.or(target.factor).unwrap_or(FACTOR_DEFAULT);
        let plan = self.plan_known(target, factor, held.as_ref());
        let is_over = held.is_some_and(|held| !held.is_live());
        if is_over && self.peers.is_alone() {
            return Ok(Some(self.done(target.id, &plan.placement)));
        }
        self.end(now, Some(from), (target.id, slot), &plan, outbox)
    }

    /// Writes a new definition. `slot` is where the timer is held.
    fn store(
        &mut self,
        now: Now,
        from: Requester,
        (id, slot): (TimerId, Option<Slot>),
        plan: &Plan,
        definition: &Definition<'_>,
        outbox: &mut Outbox,
    ) -> Result<Option<Answer>, Refusal> {
        let held = slot.map(|slot| *self.records.get(slot));
        let before = match plan.is_create {
            true => None,
            false => self.version_before(now, id, held.as_ref()),
        };
        let version = self.clock.assign(now.wall, before);
        let new = NewWrite {
            from: Some(from),
            asked_at: now.mono.tick_floor(),
            id,
            slot,
            key: StateKey { version, sequence: 0 },
            start: now.mono.tick_ceil() + spread_ms(id, definition.content),
            interval_ms: definition.interval_ms,
            repeat_for_ms: definition.repeat_for_ms,
            body: Some((definition.authority, definition.content)),
            tries: 1,
            refused: PeerSet::EMPTY,
            is_decided: false,
            gives_way: false,
            is_action: false,
        };
        let answer = self.write(now, &new, plan, outbox)?;
        match held.filter(Record::is_live) {
            Some(_) => self.counters.updates += 1,
            None => self.counters.creates += 1,
        }
        Ok(answer)
    }
}

/// Whether a timer pops at all. A timer that does not is accepted and not stored
/// (docs/compat/timer-service.md §1.4).
pub(super) fn fires(definition: &Definition<'_>) -> bool {
    definition.repeat_for_ms >= definition.interval_ms
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
