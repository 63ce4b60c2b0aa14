//! One run of a story: virtual time, the queue of events, the requests under way.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use chronos::base::ids::{ShardCount, ShardIndex, TimerId};
use chronos::base::time::{MonoNs, Now, WallMs};
use chronos::node::core::Core;
use chronos::node::mesh::mesh;
use chronos::shard::counters::Counters;
use chronos::shard::effects::{Answer, Refusal, Reply, Request, Requester};
use chronos::timer::definition::{Definition, encode_content};

use super::callback_world::CallbackWorld;
use super::clients::{Fault, Kind, Operation, Story, Target, Wish};
use super::driver::{CoreDriver, Running};
use super::invariants::{authority, opaque, target};
use super::model::{Checked, Model, Moment, Violation, Write, broken};
use super::options::Options;
use super::random::{Purpose, Stream};
use super::trace::Trace;

/// Virtual monotonic time at which runs begin: not on a tick.
const START_NS: u64 = 12_345_678_901;
/// Wall clock at which runs begin.
const WALL_MS: u64 = 1_800_000_000_000;
/// A request is answered within this time unless a core got no time.
const ANSWER_NS: u64 = 100_000_000;
/// The same when cores may stall for three seconds, several times.
const ANSWER_STALLED_NS: u64 = 30_000_000_000;
/// Timers that live longer than this after the end of faults are deleted by the cleaning client.
const CLEAN_AFTER_MS: u64 = 20_000;
/// Everything must have ended so long after the end of faults.
const QUIET_MS: u64 = 400_000;
/// Names of the cleaning client's requests.
const CLEANING: usize = 1 << 30;
/// Events after which a run is called endless.
const EVENTS_MAX: u64 = 40_000_000;

/// Something that happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    Operation(usize),
    Fault(usize),
    /// A core goes on, unless it has been rescheduled since.
    Step {
        core: u16,
        generation: u64,
    },
    /// A callback ended.
    Ended {
        core: u16,
        attempt: usize,
    },
    /// Faults end.
    Heal,
    /// The cleaning client looks for timers that would live on.
    Clean,
}

/// A request and its fate.
pub struct Asked {
    pub operation: Operation,
    pub id: Option<u64>,
    pub asked: Moment,
    pub asked_ns: u64,
    pub is_answered: bool,
    pub is_remote: bool,
}

/// What a run came to.
pub struct Report {
    pub trace: Trace,
    pub virtual_ns: u64,
    pub pops: u64,
    pub requests: usize,
    /// Answers per refusal, to show that limits were met.
    pub refusals: BTreeMap<String, u64>,
    pub violation: Option<Violation>,
}

/// The simulated node and all around it.
pub struct World {
    pub options: Options,
    pub now_ns: u64,
    pub moment: Moment,
    pub model: Model,
    pub callbacks: CallbackWorld,
    pub trace: Trace,
    pub interleaving: Stream,
    pub running: Vec<Running>,
    pub asked: BTreeMap<usize, Asked>,
    pub refusals: BTreeMap<String, u64>,
    /// By number; the one that takes a step is out.
    cores: Vec<Option<CoreDriver>>,
    story: Story,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    queued: u64,
    wall_offset_ms: i64,
    unanswered: BTreeSet<(u64, usize)>,
    cleaning: Stream,
    cleaned: usize,
    is_healed: bool,
}

/// Runs a story to its end or to the first violation.
pub fn run(story: &Story, keep_trace: bool) -> Report {
    let mut world = World::new(story.clone(), keep_trace);
    let ended = world.play();
    let violation = ended.and_then(|()| world.at_rest()).err();
    Report {
        virtual_ns: world.now_ns - START_NS,
        pops: world.model.tally.attempts,
        requests: world.asked.len(),
        refusals: world.refusals,
        trace: world.trace,
        violation,
    }
}

impl World {
    fn new(story: Story, keep_trace: bool) -> Self {
        let options = story.options.clone();
        let now = Now { mono: MonoNs(START_NS), wall: WallMs(WALL_MS) };
        let ports = mesh(ShardCount::new(options.shards), options.mesh_queue_max);
        let make = |(own, port)| {
            let config = options.config(own as u16, now);
            Some(CoreDriver::new(own as u16, &config, Core::new(config.clone(), port, now), now))
        };
        let limits = &options.callbacks;
        let (shards, hosts) = (usize::from(options.shards), options.hosts as usize);
        let mut world = Self {
            now_ns: START_NS,
            moment: 0,
            model: Model::new(shards, hosts, limits.give_up_ms, limits.retry_max_ms),
            callbacks: CallbackWorld::new(options.seed, options.hosts, limits),
            trace: Trace::new(keep_trace),
            interleaving: Stream::new(options.seed, Purpose::Interleaving),
            running: Vec::new(),
            asked: BTreeMap::new(),
            refusals: BTreeMap::new(),
            cores: ports.into_iter().enumerate().map(make).collect(),
            queue: BinaryHeap::new(),
            queued: 0,
            wall_offset_ms: 0,
            unanswered: BTreeSet::new(),
            cleaning: Stream::new(options.seed, Purpose::Cleaning),
            cleaned: 0,
            is_healed: false,
            options,
            story,
        };
        world.plan();
        world
    }

    fn plan(&mut self) {
        for at in 0..self.story.operations.len() {
            self.schedule(START_NS + self.story.operations[at].at_ns, Event::Operation(at));
        }
        for at in 0..self.story.faults.len() {
            self.schedule(START_NS + self.story.faults[at].0, Event::Fault(at));
        }
        let acting_ms = self.options.safety_ms + self.options.pause_ms;
        self.schedule(START_NS + acting_ms * 1_000_000, Event::Heal);
        for core in 0..self.options.shards {
            self.schedule(START_NS, Event::Step { core, generation: 0 });
        }
    }

    pub fn schedule(&mut self, at_ns: u64, event: Event) {
        self.queued += 1;
        self.queue.push(Reverse((at_ns.max(self.now_ns), self.queued, event)));
    }

    pub fn wall(&self) -> WallMs {
        let ms = WALL_MS + (self.now_ns - START_NS) / 1_000_000;
        WallMs(ms.saturating_add_signed(self.wall_offset_ms))
    }

    pub fn next_moment(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    fn play(&mut self) -> Checked {
        let acting_ms = self.options.safety_ms + self.options.pause_ms;
        let end_ns = START_NS + (acting_ms + QUIET_MS) * 1_000_000;
        while let Some(Reverse((at_ns, _, event))) = self.queue.pop() {
            if let Event::Step { core, generation } = event
                && self.core_mut(core).is_outdated(generation)
            {
                continue;
            }
            if at_ns > end_ns || self.trace.events() > EVENTS_MAX {
                return broken("T6 leak", format!("not at rest: {:?}", self.counters()));
            }
            self.now_ns = at_ns;
            self.answers_in_time()?;
            match event {
                Event::Operation(at) => self.operate(self.story.operations[at])?,
                Event::Fault(at) => self.fault(self.story.faults[at].1),
                Event::Step { core, .. } => self.step(core)?,
                Event::Ended { core, attempt } => self.deliver(core, |core| core.ended(attempt)),
                Event::Heal => self.heal(),
                Event::Clean => self.clean()?,
            }
        }
        Ok(())
    }

    fn step(&mut self, core: u16) -> Checked {
        let mut driver = self.cores[usize::from(core)].take().expect("one core steps at a time");
        let result = driver.step(self);
        self.cores[usize::from(core)] = Some(driver);
        result
    }

    /// Gives a core something of its own to do, which wakes it.
    fn deliver(&mut self, core: u16, give: impl FnOnce(&mut CoreDriver)) {
        give(self.core_mut(core));
        self.wake(core);
    }

    /// Wakes a core that sleeps; one that does not will notice before it sleeps.
    pub fn wake(&mut self, core: u16) {
        let delay_ns = self.interleaving.range(100, self.options.step_ns_max);
        if let Some(generation) = self.core_mut(core).wake() {
            self.schedule(self.now_ns + delay_ns, Event::Step { core, generation });
        }
    }

    fn fault(&mut self, fault: Fault) {
        if self.is_healed {
            return;
        }
        match fault {
            Fault::Host(host, behaviour) => self.callbacks.change(host, behaviour),
            Fault::WallClock(step_ms) => self.wall_offset_ms += step_ms,
            Fault::Stall { core, phase, ms } => self.core_mut(core).stall(phase, ms * 1_000_000),
        }
    }

    fn heal(&mut self) {
        self.is_healed = true;
        self.callbacks.heal();
        self.schedule(self.now_ns + 1_000_000, Event::Clean);
    }

    /// Deletes what would live on. Requests may be refused, so it looks again until nothing is left.
    fn clean(&mut self) -> Checked {
        let horizon = self.now_ns / 1_000_000 + CLEAN_AFTER_MS;
        let lives_on = |write: &Write| {
            write.wish.is_some() && !write.has_ended && write.due(write.pops()) > horizon
        };
        let far: Vec<u64> = self
            .model
            .timers
            .iter()
            .filter(|(_, timer)| timer.writes.iter().any(lives_on))
            .map(|(id, _)| *id)
            .collect();
        for id in &far {
            self.cleaned += 1;
            let operation = Operation {
                name: CLEANING + self.cleaned,
                at_ns: self.now_ns,
                core: self.cleaning.range(0, u64::from(self.options.shards) - 1) as u16,
                kind: Kind::Delete(Target::Chosen(*id)),
            };
            self.operate(operation)?;
        }
        if !far.is_empty() || !self.unanswered.is_empty() {
            self.schedule(self.now_ns + 200_000_000, Event::Clean);
        }
        Ok(())
    }

    /// A client sends a request; it lies in the core's socket until the core's next turn.
    fn operate(&mut self, operation: Operation) -> Checked {
        let id = match operation.kind {
            Kind::Create(_) => None,
            Kind::Update(target, _) | Kind::Delete(target) | Kind::Read(target) => {
                match self.resolve(target) {
                    Some(id) => Some(id),
                    None => return Ok(()),
                }
            }
        };
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
        }
        self.unanswered.insert((asked_ns, name));
        let entry = Asked { operation, id, asked, asked_ns, is_answered: false, is_remote };
        self.asked.insert(name, entry);
        self.deliver(core, |core| core.asked(name));
        Ok(())
    }

    fn resolve(&self, target: Target) -> Option<u64> {
        match target {
            Target::Chosen(id) => Some(id),
            Target::CreatedBy(name) => self.asked.get(&name)?.id,
        }
    }

    /// Hands a request to its core.
    pub fn hand_over(&mut self, core: &mut Core, own: u16, now: Now, name: usize) {
        let asked = &self.asked[&name];
        let id = TimerId(asked.id.unwrap_or(0));
        let request = name as u32;
        let from = Requester { shard: ShardIndex(own), connection: 1, generation: 2, request };
        let mut content = Vec::new();
        match asked.operation.kind {
            Kind::Create(wish) | Kind::Update(_, wish) => {
                let host = authority(wish.host);
                let opaque = opaque(name, wish.opaque_bytes);
                encode_content(&target(name), &[], &opaque, &mut content);
                let Wish { interval_ms, repeat_for_ms, .. } = wish;
                let (factor, authority, content) = (None, &host[..], &content[..]);
                let definition =
                    Definition { interval_ms, repeat_for_ms, factor, authority, content };
                let request = match asked.operation.kind {
                    Kind::Create(_) => Request::Create(definition),
                    _ => Request::Update(id, definition),
                };
                core.request(now, from, request);
            }
            Kind::Delete(_) => core.request(now, from, Request::Delete { id, factor: None }),
            Kind::Read(_) => core.request(now, from, Request::Read(id)),
        }
    }

    /// The pop of a create can come before its answer.
    pub fn created_by_pop(&mut self, name: usize, id: u64, core: u16) -> Checked {
        match self.asked[&name].operation.kind {
            Kind::Create(_) => self.created(name, id, core),
            _ => Ok(()),
        }
    }

    /// The host that a write names.
    pub fn host_of(&self, name: usize) -> u32 {
        match self.asked[&name].operation.kind {
            Kind::Create(wish) | Kind::Update(_, wish) => wish.host,
            kind => unreachable!("{kind:?} names no host"),
        }
    }

    /// Requests that a core has sent over the mesh, or is about to, without an answer.
    pub fn remote_under_way(&self, core: u16) -> u32 {
        let asked = self.unanswered.iter().map(|(_, name)| &self.asked[name]);
        asked.filter(|asked| asked.is_remote && asked.operation.core == core).count() as u32
    }

    fn core_mut(&mut self, core: u16) -> &mut CoreDriver {
        self.cores[usize::from(core)].as_mut().expect("a step ends before the next begins")
    }

    /// The id of a create becomes known, from its answer or from its first pop.
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

    /// R2, R1: an answer reaches its client.
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
        let text = match &reply.answer {
            Answer::Done { .. } => 1,
            Answer::Found(view) => 1_000 + view.sequence,
            Answer::NotFound => 2,
            Answer::Refused(refusal) => 10 + *refusal as u64,
        };
        self.trace.add(self.now_ns, "answer", [name as u64, text, id.unwrap_or(0), 0]);
        if let Answer::Refused(refusal) = reply.answer {
            *self.refusals.entry(format!("{refusal:?}")).or_default() += 1;
            self.model.tally.refused += 1;
            self.is_at_limit(core, refusal, id, since)?;
            let Some(id) = id.filter(|_| !matches!(kind, Kind::Read(_))) else { return Ok(()) };
            return self.model.refused(id, name);
        }
        self.model.tally.reads += u64::from(matches!(kind, Kind::Read(_)));
        self.model.tally.deletes += u64::from(matches!(kind, Kind::Delete(_)));
        match (kind, &reply.answer) {
            (Kind::Read(_), Answer::Found(_) | Answer::NotFound) => {
                let id = id.expect("reads name an id");
                return self.model.read(id, since, self.now_ns / 1_000_000, &reply.answer);
            }
            (Kind::Create(wish), Answer::Done { id, factor: 2 }) => {
                self.created(name, id.0, core.own())?;
                self.stored(wish);
            }
            (Kind::Update(_, wish), Answer::Done { id: done, factor: 2 }) if id == Some(done.0) => {
                self.stored(wish);
            }
            (Kind::Delete(_), Answer::Done { id: done, .. }) if id == Some(done.0) => {}
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

    /// R1: a refusal only at a limit that was met since the request was asked.
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
            Refusal::HostsFull => limits.hosts,
            Refusal::HostQueueFull => limits.host_queue,
            Refusal::CoreBusy => asker.limits_met().mesh,
            Refusal::IdsExhausted => None,
        };
        if met.is_none_or(|met| met < since) {
            let what =
                format!("refused with {refusal:?}, limit last met at {met:?}, asked {since}");
            return broken("R1", what);
        }
        Ok(())
    }

    /// R2: nobody waits for ever.
    fn answers_in_time(&self) -> Checked {
        let Some(&(asked_ns, name)) = self.unanswered.first() else { return Ok(()) };
        let within = if self.options.has_stalls { ANSWER_STALLED_NS } else { ANSWER_NS };
        if self.now_ns > asked_ns + within {
            return broken("R2", format!("request {name} is not answered"));
        }
        Ok(())
    }

    fn counters(&self) -> Vec<Counters> {
        self.cores.iter().flatten().map(|core| *core.core().shard().counters()).collect()
    }

    /// T6, T10, R2 when nothing moves any more.
    fn at_rest(&mut self) -> Checked {
        if let Some((_, name)) = self.unanswered.first() {
            return broken("R2", format!("request {name} is never answered"));
        }
        for core in self.cores.iter().flatten() {
            core.audit()?;
        }
        self.model.all_done(self.now_ns / 1_000_000)?;
        let mut sum = Counters::default();
        for held in self.counters() {
            if (held.timers, held.tombstones, held.in_flight, held.waiting) != (0, 0, 0, 0) {
                return broken("T6 leak", format!("at rest: {held:?}"));
            }
            sum.creates += held.creates + held.updates;
            sum.deletes += held.deletes;
            sum.reads += held.reads;
            sum.never_firing += held.never_firing;
            sum.refused += held.refused;
            sum.delivered += held.delivered;
            sum.failed += held.failed;
            sum.timed_out += held.timed_out;
            sum.stale += held.stale;
            sum.retried += held.retried;
            sum.given_up += held.given_up;
            sum.outdated += held.outdated;
        }
        sum.refused += self.cores.iter_mut().flatten().map(CoreDriver::mesh_refused).sum::<u64>();
        let tally = self.model.tally;
        let exact = [
            ("stored", sum.creates, tally.stored),
            ("deletes", sum.deletes, tally.deletes),
            ("reads", sum.reads, tally.reads),
            ("never firing", sum.never_firing, tally.never_firing),
            ("refused", sum.refused, tally.refused),
            ("delivered", sum.delivered, tally.delivered),
            ("failed", sum.failed, tally.failed),
            ("timed out", sum.timed_out, tally.timed_out),
            ("stale", sum.stale, tally.stale),
            ("retried", sum.retried, tally.retried),
        ];
        if let Some((what, counted, known)) = exact.iter().find(|(_, a, b)| a != b) {
            return broken("T10", format!("{what}: counted {counted}, happened {known}"));
        }
        let given_up = tally.given_up_min..=tally.given_up_max;
        let outdated = tally.outdated_min..=tally.outdated_max;
        if !given_up.contains(&sum.given_up) || !outdated.contains(&sum.outdated) {
            let (up, old) = (sum.given_up, sum.outdated);
            let what = format!("given up {up} of {given_up:?}, outdated {old} of {outdated:?}");
            return broken("T9", what);
        }
        Ok(())
    }
}
