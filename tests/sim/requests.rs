//! Requests of clients: how they reach a core, and which answers they may get.

use chronos::base::ids::{ShardCount, ShardIndex, TimerId};
use chronos::base::limits::INTERVAL_MS_MAX;
use chronos::base::time::{Now, WallMs};
use chronos::core::Core;
use chronos::shard::effects::{self, Answer, Refusal, Reply, Request, Requester};
use chronos::timer::definition::{Definition, encode_with_attributes};
use chronos::wire::timer_json::Tag;

use super::actions;
use super::clients::{Kind, Operation, Target, Wish};
use super::driver::CoreDriver;
use super::extras::interval_until;
use super::invariants::{authority, opaque, target};
use super::model::{Checked, Moment, Write, broken};
use super::world::World;

/// A request, and what became of it.
pub struct Asked {
    pub operation: Operation,
    pub id: Option<u64>,
    pub asked: Moment,
    pub asked_ns: u64,
    pub is_answered: bool,
    pub is_remote: bool,
}

impl World {
    /// Sends a client's request. The request lies in the core's socket until the core's next turn.
    pub fn operate(&mut self, operation: Operation) -> Checked {
        let id = match operation.kind {
            Kind::Create(_) => None,
            Kind::Update(target, _)
            | Kind::Delete(target)
            | Kind::Read(target)
            | Kind::Act(target, _) => match self.resolve(target) {
                Some(id) => Some(id),
                None => return Ok(()),
            },
        };
        let is_read = matches!(operation.kind, Kind::Read(_));
        if !is_read && id.is_some_and(|id| self.model.is_busy(id)) {
            return Ok(());
        }
        let operation = self.said(operation);
        let core = operation.core;
        let (asked, asked_ns) = (self.next_moment(), self.now_ns);
        let owner = id.map(|id| ShardCount::new(self.options.shards).owner(TimerId(id)));
        let is_remote = owner.is_some_and(|owner| owner != ShardIndex(core));
        let name = operation.name;
        self.trace.add(self.now_ns, "ask", [u64::from(core), name as u64, id.unwrap_or(0), 0]);
        if let (Some(id), Some(owner)) = (id, owner) {
            let write = match operation.kind {
                Kind::Update(_, wish) => Some(Some(wish)),
                Kind::Delete(_) => Some(None),
                _ => None,
            };
            if let Some(wish) = write {
                self.model.asked(id, owner.0, Write::new(name, wish, asked, asked_ns));
            }
            if let Kind::Act(_, action) = operation.kind {
                self.model.acts((id, owner.0), action, asked_ns);
            }
        }
        self.unanswered.insert((asked_ns, name));
        self.remote_under_way[usize::from(core)] += u32::from(is_remote);
        let entry = Asked { operation, id, asked, asked_ns, is_answered: false, is_remote };
        self.asked.insert(name, entry);
        self.deliver(core, |core| core.asked(name));
        Ok(())
    }

    /// The request as the client writes it: a time counts from the client's present.
    fn said(&self, mut operation: Operation) -> Operation {
        if let Kind::Create(wish) | Kind::Update(_, wish) = &mut operation.kind
            && wish.extras.has_time
        {
            // Where the clock is set back before the node reads it, the time is further ahead.
            let is_wrong = self.options.has_clock_steps || self.options.has_lies;
            let spare_ms = if is_wrong { 500 * 24 * 3_600_000 } else { 0 };
            let ahead_ms = wish.interval_ms.min(INTERVAL_MS_MAX - spare_ms);
            wish.extras.at_ms = Some(self.wall().0 + ahead_ms);
        }
        operation
    }

    /// Notes which interval the node has made of a time.
    fn take_time(&mut self, name: usize, (now, calendar): (Now, WallMs)) -> Checked {
        let asked = self.asked.get_mut(&name).expect("asked before");
        let (Kind::Create(wish) | Kind::Update(_, wish)) = &mut asked.operation.kind else {
            return Ok(());
        };
        let taken = match (wish.extras.at_ms, &mut wish.extras.cron) {
            (_, Some(cron)) => cron.take(Now { wall: calendar, ..now }),
            (Some(at_ms), None) => interval_until(at_ms, now),
            (None, None) => return Ok(()),
        };
        let interval_ms = match taken {
            Ok(interval_ms) => interval_ms,
            Err(what) => return broken("T2 time", what),
        };
        (wish.interval_ms, wish.repeat_for_ms) = (interval_ms, interval_ms);
        let (wish, id) = (*wish, asked.id);
        let timer = id.and_then(|id| self.model.timers.get_mut(&id));
        let mut writes = timer.into_iter().flat_map(|timer| &mut timer.writes);
        if let Some(write) = writes.find(|write| write.name == name) {
            write.wish = Some(wish);
        }
        Ok(())
    }

    fn resolve(&self, target: Target) -> Option<u64> {
        match target {
            Target::Chosen(id) => Some(id),
            Target::CreatedBy(name) => self.asked.get(&name)?.id,
        }
    }

    /// Gives a request to its core.
    pub fn hand_over(&mut self, core: &mut Core, own: u16, now: Now, name: usize) -> Checked {
        self.take_time(name, (now, core.calendar_wall(now)))?;
        let asked = &self.asked[&name];
        let id = TimerId(asked.id.unwrap_or(0));
        let request = name as u32;
        let from = Requester { shard: ShardIndex(own), connection: 1, generation: 2, request };
        let mut content = Vec::new();
        match asked.operation.kind {
            Kind::Create(wish) | Kind::Update(_, wish) => {
                let host = authority(wish.host);
                let opaque = opaque(name, wish.opaque_bytes);
                let tags = tags_of(u64::from(request));
                let attributes = wish.extras.encoded(name);
                let parts = (&attributes[..], &opaque[..]);
                encode_with_attributes(&target(name), tags, parts, &mut content);
                let Wish { interval_ms, repeat_for_ms, .. } = wish;
                let (factor, authority, content) = (None, &host[..], &content[..]);
                let definition =
                    Definition { interval_ms, repeat_for_ms, factor, authority, content };
                let request = match asked.operation.kind {
                    Kind::Create(_) => Request::Create(definition),
                    _ => Request::Update(target_of(id), definition),
                };
                core.request(now, from, request);
            }
            Kind::Delete(_) => core.request(now, from, Request::Delete(target_of(id))),
            Kind::Read(_) => core.request(now, from, Request::Read(target_of(id))),
            Kind::Act(_, action) => {
                core.request(now, from, actions::request(target_of(id), action));
            }
        }
        Ok(())
    }

    /// Notes the id of a create whose pop came before its answer.
    pub fn created_by_pop(&mut self, name: usize, id: u64, core: u16) -> Checked {
        match self.asked[&name].operation.kind {
            Kind::Create(_) => self.created(name, id, core),
            _ => Ok(()),
        }
    }

    /// Returns the host that a write names.
    pub fn host_of(&self, name: usize) -> u32 {
        match self.asked[&name].operation.kind {
            Kind::Create(wish) | Kind::Update(_, wish) => wish.host,
            kind => unreachable!("{kind:?} names no host"),
        }
    }

    /// Notes the id of a create, from its answer or from its first pop.
    pub fn created(&mut self, name: usize, id: u64, core: u16) -> Checked {
        let known = self.asked[&name].id;
        if known.is_some_and(|known| known != id) {
            return broken("R2", format!("create {name} made {known:x?} and {id:x}"));
        }
        if known.is_none() {
            if self.model.timers.contains_key(&id) {
                return broken("T7", format!("create {name} got {id:x}, which is taken"));
            }
            let asked = self.asked.get_mut(&name).expect("asked before");
            asked.id = Some(id);
            let Kind::Create(wish) = asked.operation.kind else {
                return broken("R2", format!("{name} is no create"));
            };
            let write = Write::new(name, Some(wish), asked.asked, asked.asked_ns);
            self.model.asked(id, core, write);
        }
        Ok(())
    }

    /// Checks R2 and R1 for an answer that reaches its client.
    pub fn answered(&mut self, core: &CoreDriver, reply: &Reply) -> Checked {
        let name = reply.to.request as usize;
        let moment = self.next_moment();
        let asked = self.asked.get_mut(&name);
        let Some(asked) = asked.filter(|asked| !asked.is_answered) else {
            return broken("R2", format!("a second answer, or one to no request: {reply:?}"));
        };
        asked.is_answered = true;
        let (since, kind) = (asked.asked, asked.operation.kind);
        let (is_remote, id, asked_ns) = (asked.is_remote, asked.id, asked.asked_ns);
        self.unanswered.remove(&(asked_ns, name));
        self.remote_under_way[usize::from(core.own())] -= u32::from(is_remote);
        let text = match &reply.answer {
            Answer::Done { .. } => 1,
            Answer::Found(view) => 1_000 + view.sequence,
            Answer::NotFound => 2,
            Answer::Refused(refusal) => 10 + *refusal as u64,
            Answer::Internal(_) => unreachable!("no client asks for what nodes ask for"),
            Answer::Identified(_) => 3,
        };
        self.trace.add(self.now_ns, "answer", [name as u64, text, id.unwrap_or(0), 0]);
        if let Answer::Refused(refusal) = reply.answer {
            *self.refusals.entry(format!("{refusal:?}")).or_default() += 1;
            self.model.tally.refused += 1;
            let is_act = matches!(kind, Kind::Act(..));
            if !is_act || !matches!(refusal, Refusal::NoTimer | Refusal::Paused) {
                self.is_at_limit(core, refusal, id, since)?;
            }
            let Some(id) = id.filter(|_| !matches!(kind, Kind::Read(_))) else { return Ok(()) };
            if is_act {
                return self.model.acted(id, &reply.answer, moment, self.now_ns);
            }
            return self.model.refused(id, name);
        }
        self.model.tally.reads += u64::from(matches!(kind, Kind::Read(_)));
        self.model.tally.deletes += u64::from(matches!(kind, Kind::Delete(_)));
        match (kind, &reply.answer) {
            (Kind::Read(_), Answer::Found(_) | Answer::NotFound) => {
                let id = id.expect("reads name an id");
                return self.model.read(id, since, self.now_ns / 1_000_000, &reply.answer);
            }
            (Kind::Create(wish), Answer::Done { id, factor: 2, .. }) => {
                self.created(name, id.0, core.own())?;
                self.stored(wish);
            }
            (Kind::Update(_, wish), Answer::Done { id: done, factor: 2, .. })
                if id == Some(done.0) =>
            {
                self.stored(wish);
            }
            (Kind::Delete(_), Answer::Done { id: done, .. }) if id == Some(done.0) => {}
            (Kind::Act(..), answer) => {
                let id = id.expect("actions name an id");
                return self.model.acted(id, answer, moment, self.now_ns);
            }
            (kind, answer) => {
                return broken("R2", format!("{kind:?} (remote: {is_remote}) answered {answer:?}"));
            }
        }
        let id = self.asked[&name].id.expect("known by now");
        self.model.accepted(id, name, moment, self.now_ns);
        Ok(())
    }

    fn stored(&mut self, wish: Wish) {
        let fires = wish.repeat_for_ms >= wish.interval_ms;
        self.model.tally.stored += u64::from(fires);
        self.model.tally.never_firing += u64::from(!fires);
    }

    /// Reports for R1 whether the limit of a refusal was met since the request was asked.
    fn is_at_limit(
        &self,
        asker: &CoreDriver,
        refusal: Refusal,
        id: Option<u64>,
        since: Moment,
    ) -> Checked {
        let shards = ShardCount::new(self.options.shards);
        let owner = id.map_or(asker.own(), |id| shards.owner(TimerId(id)).0);
        let limits = if owner == asker.own() {
            asker.limits_met()
        } else {
            self.cores[usize::from(owner)].as_ref().expect("another core steps").limits_met()
        };
        let met = match refusal {
            Refusal::TimersFull => limits.records,
            Refusal::BytesFull => limits.bytes,
            Refusal::HostQueueFull => limits.host_queue,
            Refusal::CoreBusy => asker.limits_met().mesh,
            Refusal::IdsExhausted
            | Refusal::ListsFull
            | Refusal::ListsOfNameFull
            | Refusal::JobsFull
            | Refusal::JobsOfNameFull
            | Refusal::HasLeft
            | Refusal::Joining
            | Refusal::NoReplica
            | Refusal::Unanswered
            | Refusal::NoRoom
            | Refusal::NotTaken
            | Refusal::Contended
            | Refusal::FutureVersion
            | Refusal::Clock
            | Refusal::Twin
            | Refusal::Original
            | Refusal::Unmet
            | Refusal::OtherBody
            | Refusal::OtherName
            | Refusal::JournalFull
            | Refusal::JournalStalled
            | Refusal::WritesFull
            // No token of these cores has limits.
            | Refusal::TokenFull
            | Refusal::NoTimer
            | Refusal::Paused
            | Refusal::NoteTooLong => None,
        };
        if met.is_none_or(|met| met < since) {
            let what =
                format!("refused with {refusal:?}, limit last met at {met:?}, asked {since}");
            return broken("R1", what);
        }
        Ok(())
    }
}

fn target_of(id: TimerId) -> effects::Target {
    effects::Target { id, factor: None, filter: None }
}

/// Returns the statistics tags of a request's timer: more names than a shard has places for, and
/// for some timers none.
fn tags_of(number: u64) -> &'static [Tag<'static>] {
    const TAGS: [Tag<'static>; 5] = [
        Tag { kind: "CALL", count: 1 },
        Tag { kind: "REG", count: 2 },
        Tag { kind: "a", count: 3 },
        Tag { kind: "b", count: 4 },
        Tag { kind: "CALL", count: 5 },
    ];
    let first = (number % 6) as usize;
    &TAGS[first.min(5)..(first + 2).min(5)]
}
