//! What clients ask: create, update, delete, read. Decides which nodes are to hold the timer and
//! what the timer becomes here. [`super::writes`] brings it to the other nodes before the client is
//! answered.

// Reads the wall clock: order 3.

use crate::base::ids::{PeerSet, Slot, TimerId};
use crate::base::limits::{CLOCK_LEAD_MS_MAX, REPLICATION_FACTOR_DEFAULT, TOMBSTONE_MS_MIN};
use crate::base::ranked::{Replicas, Sites};
use crate::base::time::{Now, WallMs};
use crate::journal::Position;
use crate::timer::definition::{Definition, has_attributes, spread_ms};
use crate::timer::identity::Minter;
use crate::timer::naming::may_be_of_key;
use crate::timer::version::{StateKey, Version};
use crate::wire::callback_uri::uri_of;

use super::Shard;
use super::effects::{
    Answer, Conditional, Identified, Internal, Outbox, Refusal, Reply, Request, Requester, Target,
    TimerView,
};
use super::parts::peers::FULL_REMEMBERED_MS;
use super::parts::writes::{NewWrite, Plan};
use super::records::{Outline, Placement, Record};

/// Ids that are minted for one create before it is refused: each of them was chosen by a client.
const MINTED_MAX: u32 = 1_000;

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

    /// Whether a member is an original node.
    pub(super) fn has_originals(&self) -> bool {
        !self.peers.http().intersection(self.peers.view.connected_nodes()).is_empty()
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

    /// Ends a timer; `from` is who asked for it, if a client did. The end starts now, as that of an
    /// original node does. An original that holds the timer refuses an end that is older than the
    /// timer. What the original tells of the timer later is older than this end.
    pub(super) fn end(
        &mut self,
        now: Now,
        from: Option<Requester>,
        (id, slot): (TimerId, Option<Slot>),
        plan: &Plan,
        outbox: &mut Outbox,
    ) -> Result<Option<Answer>, Refusal> {
        let held = slot.map(|slot| *self.records.get(slot));
        let before = self.version_before(now, id, held.as_ref());
        // What the shard ends itself must not end what a client has written meanwhile, of which
        // this node may not have heard.
        let version = match (from, &held) {
            (None, Some(held)) => self.clock.just_above(held.version),
            _ => self.clock.assign(now.wall, before),
        };
        let tick = now.mono.tick_floor();
        let numbers = held.as_ref().map(|held| self.records.numbers_of_end(tick, held));
        let (interval_ms, repeat_for_ms) = numbers.unwrap_or((TOMBSTONE_MS_MIN, 0));
        let new = NewWrite {
            from,
            asked_at: tick,
            id,
            slot,
            key: StateKey { version, sequence: held.map_or(0, |held| held.sequence) },
            start: tick,
            interval_ms,
            repeat_for_ms,
            body: None,
            tries: 1,
            refused: PeerSet::EMPTY,
            is_decided: false,
            gives_way: from.is_none(),
            is_action: false,
        };
        if held.is_none() && plan.placement.own.is_some() && self.records.room(0).is_err() {
            // Other nodes stand in for this node.
            let (factor, own) = (plan.placement.factor, PeerSet::EMPTY.with(self.peers.own()));
            let target = Target { id, factor: Some(factor), filter: None };
            let others = self.plan_known_without(target, factor, None, own);
            if others.placement.own.is_none() {
                let extras = others.extras.union(plan.extras);
                return self.write(now, &new, &Plan { extras, ..others }, outbox);
            }
        }
        self.write(now, &new, plan, outbox)
    }

    /// The version that an update or a delete must lie above: that of the state held. A timer that
    /// is not held may be on its way from another site whose clock is ahead of this one's. Its
    /// client has the id, so the create is no later than the id. An id is at most
    /// 2 x [`CLOCK_LEAD_MS_MAX`] ahead of the clock that made it; one further ahead tells nothing.
    pub(super) fn version_before(
        &self,
        now: Now,
        id: TimerId,
        held: Option<&Record>,
    ) -> Option<Version> {
        if held.is_some() || self.peers.view.sites().is_empty() {
            return held.map(|held| held.version);
        }
        let minted = Minter::minted_at(id);
        let is_believed = minted.0 <= now.wall.0 + 2 * CLOCK_LEAD_MS_MAX;
        is_believed.then(|| Version::of_start(WallMs(minted.0 + 1)))
    }

    /// The plan of a timer that no node holds yet: live nodes. Nodes without room are named only
    /// where the others do not suffice.
    #[inline(always)]
    pub(super) fn plan_create(&self, id: TimerId, factor: u8) -> Plan {
        let (view, members) = (&self.peers.view, self.peers.not_dead());
        let roomy = members.minus(self.full());
        let suffice = roomy == members
            || view.place(id, factor, roomy).len() == view.place(id, factor, members).len();
        let plan = self.plan_among(id, factor, if suffice { roomy } else { members });
        Plan { is_create: true, ..plan }
    }

    /// The plan of a new timer: live nodes.
    pub(super) fn plan_new(&self, id: TimerId, factor: u8) -> Plan {
        self.plan_among(id, factor, self.peers.not_dead())
    }

    fn plan_among(&self, id: TimerId, factor: u8, members: PeerSet) -> Plan {
        let view = &self.peers.view;
        let mut replicas = view.place(id, factor, members);
        if replicas.is_empty() {
            replicas = view.place(id, factor, view.new_nodes());
        }
        let placement = self.placement(replicas, view.sites(), factor);
        Plan { placement, extras: PeerSet::EMPTY, is_create: false }
    }

    /// The plan of a timer that may have been held before. It concerns all nodes, too, that may
    /// know the timer from then (docs/compat/timer-service.md §9.1).
    pub(super) fn plan_known(&self, target: Target, factor: u8, held: Option<&Record>) -> Plan {
        self.plan_known_without(target, factor, held, PeerSet::EMPTY)
    }

    /// The same as [`Shard::plan_known`], where nodes of the list have refused the timer.
    pub(super) fn plan_known_without(
        &self,
        target: Target,
        factor: u8,
        held: Option<&Record>,
        refused: PeerSet,
    ) -> Plan {
        let mut plan = self.plan_among(target.id, factor, self.peers.not_dead().minus(refused));
        if self.peers.is_alone() {
            return plan;
        }
        let view = &self.peers.view;
        let mut extras = view.peers_of(&view.place(target.id, factor, view.new_nodes()));
        if view.is_changing() {
            extras = extras.union(view.peers_of(&view.place_old(target.id, factor)));
        }
        if let Some(filter) = target.filter {
            extras = extras.union(view.matching(filter).intersection(view.connected_nodes()));
        }
        if let Some(held) = held {
            extras = extras.union(self.acting_meanwhile(held));
            let held = self.records.placement_of(held);
            extras = extras.union(view.peers_of(&held.replicas));
            plan = self.of_sites(plan, &held.sites);
        }
        let away = self.lately_full().union(self.peers.back_lately(self.turns.at));
        if !away.is_empty() {
            let members = self.peers.not_dead().minus(away);
            extras = extras.union(view.peers_of(&view.place(target.id, factor, members)));
        }
        let told = view.peers_of(&plan.placement.replicas).with(view.own());
        plan.extras = extras.minus(told);
        plan
    }

    /// The same plan with the sites that a version of the timer has, in their order, as far as they
    /// are configured. The first site pops first. So whoever writes a version once more, or tells
    /// it on, takes the sites that were given to it: two orders, and two sites would pop.
    pub(super) fn of_sites(&self, plan: Plan, sites: &Sites) -> Plan {
        if sites.is_empty() {
            return plan;
        }
        let Placement { replicas, factor, .. } = plan.placement;
        Plan { placement: self.placement(replicas, self.present_sites(sites), factor), ..plan }
    }

    /// Members that have had no room in the last minutes, this node included: other nodes may stand
    /// in for them.
    pub(super) fn lately_full(&self) -> PeerSet {
        let full = self.peers.lately_full(self.turns.at);
        let is_own = self.full_at.is_some_and(|at| self.turns.at - at < FULL_REMEMBERED_MS);
        if is_own { full.with(self.peers.own()) } else { full }
    }

    /// The list with the stand-in for this node, if this node has had no room lately.
    pub(super) fn standing_in_for_own(&self, id: TimerId, factor: u8) -> Option<Replicas> {
        let full = self.lately_full();
        let members = self.peers.not_dead().minus(full);
        let is_meant = full.contains(self.peers.own());
        is_meant.then(|| self.peers.view.place(id, factor, members))
    }

    /// A placement in which all ranks act.
    pub(super) fn placement(&self, replicas: Replicas, sites: Sites, factor: u8) -> Placement {
        Placement {
            replicas,
            sites,
            factor,
            actives: replicas.all_ranks(),
            confirmed: 0,
            own: replicas.rank_of(self.peers.own_hash()),
            sites_ahead: self.peers.view.sites_ahead(&sites),
        }
    }

    pub(super) fn done(&self, id: TimerId, placement: &Placement) -> Answer {
        let filter = self.peers.view.filter_of(&placement.replicas);
        Answer::Done { id, factor: placement.factor, filter }
    }

    /// The answer to a write of these numbers. `is_identified`: a name or a key made the id.
    pub(super) fn done_by(&self, outline: &Outline, is_identified: bool) -> Answer {
        let Outline { id, key, placement, .. } = outline;
        if !is_identified {
            return self.done(*id, placement);
        }
        let filter = match may_be_of_key(*id) {
            true => 0,
            false => self.peers.view.filter_of(&placement.replicas),
        };
        let (factor, version) = (placement.factor, key.version);
        Answer::Identified(Box::new(Identified { id: *id, factor, filter, version }))
    }

    pub(super) fn view_of(&self, held: &Record, now: Now) -> TimerView {
        let content = self.records.content_of(held);
        let spread_ms = content.spread_ms(held.id);
        let placement = self.records.placement_of(held);
        let tags = content.tags();
        let authority = self.records.authority_of(held);
        TimerView {
            id: held.id,
            factor: placement.factor,
            filter: self.peers.view.filter_of(&placement.replicas),
            interval_ms: held.interval_ms,
            repeat_for_ms: held.repeat_for.get(),
            age_ms: now.mono.tick_floor() + spread_ms - held.start,
            sequence: held.sequence,
            version: held.version,
            uri: uri_of(authority, content.target),
            opaque: content.opaque.into(),
            attributes: content.encoded_attributes().into(),
            tags: tags.as_slice().iter().map(|tag| (tag.kind.to_owned(), tag.count)).collect(),
        }
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
