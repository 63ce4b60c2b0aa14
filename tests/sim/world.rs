//! One run of a story: virtual time, the queue of events, and the requests under way.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use chronos::base::destinations::{DestinationTable, Rule};
use chronos::base::ids::ShardCount;
use chronos::base::time::{MonoNs, Now, WallMs};
use chronos::core::Core;
use chronos::core::mesh::mesh;
use chronos::shard::counters::Counters;
use chronos::shard::effects::{CallbackOutcome, Ticket};
use kit::simulator::callback_world::CallbackWorld;
use kit::simulator::random::{Purpose, Stream};
use kit::simulator::story::Violation;
use kit::simulator::trace::Trace;

use super::clients::{Fault, Kind, Operation, Story, Target};
use super::driver::{CoreDriver, Running};
use super::model::{Checked, Model, Moment, Write, broken};
use super::options::Options;
use super::reports::{REPORT, Reports, TAKEN_NS};
use super::requests::Asked;
use super::rules;

/// The monotonic time at which runs begin. It is not on a tick.
pub const START_NS: u64 = 12_345_678_901;
/// Longest wait for an answer, unless a core got no time.
const ANSWER_NS: u64 = 100_000_000;
/// Longest wait for an answer when cores may stall for three seconds, several times, and once for
/// longer.
const ANSWER_STALLED_NS: u64 = 50_000_000_000;
/// Timers that live longer than this after the end of faults are deleted by the cleaning client.
const CLEAN_AFTER_MS: u64 = 20_000;
/// How long after the end of faults everything must have ended.
const QUIET_MS: u64 = 400_000;
/// Keys what is drawn for lacks otherwise than what is drawn for answers.
const LACKS: u64 = 1 << 63;
/// The names of the cleaning client's requests begin here.
const CLEANING: usize = 1 << 30;
/// How many events make a run endless.
const EVENTS_MAX: u64 = 40_000_000;

/// Something that happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    Operation(usize),
    Fault(usize),
    /// A core goes on, unless it was rescheduled since.
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

/// The result of a run.
pub struct Report {
    pub trace: Trace,
    pub virtual_ns: u64,
    /// How many attempts there were.
    pub pops: u64,
    pub delivered: u64,
    pub given_up: u64,
    pub requests: usize,
    /// Answers per refusal, to show that limits were met.
    pub refusals: BTreeMap<String, u64>,
    pub violation: Option<Violation>,
}

/// The simulated node and everything around it.
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
    pub reports: Reports,
    /// The cores by number. The core that takes a step is taken out.
    pub cores: Vec<Option<CoreDriver>>,
    /// The rules of the hosts, and the table of them.
    rules: Vec<Option<Rule>>,
    table: Arc<DestinationTable>,
    story: Story,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    queued: u64,
    wall_offset_ms: i64,
    pub unanswered: BTreeSet<(u64, usize)>,
    /// By core: requests to its sibling that are sent or about to be, and not answered.
    pub remote_under_way: Vec<u32>,
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
        delivered: world.model.tally.delivered,
        given_up: world.counters().iter().map(|counters| counters.given_up).sum(),
        requests: world.asked.len(),
        refusals: world.refusals,
        trace: world.trace,
        violation,
    }
}

impl World {
    fn new(story: Story, keep_trace: bool) -> Self {
        let options = story.options.clone();
        let now = Now { mono: MonoNs(START_NS), wall: WallMs(options.wall_ms) };
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
            model: Model::new(shards, &options),
            callbacks: CallbackWorld::new(options.seed, options.hosts, limits.timeout_ms),
            trace: Trace::new(keep_trace),
            interleaving: Stream::new(options.seed, Purpose::Interleaving),
            running: Vec::new(),
            asked: BTreeMap::new(),
            refusals: BTreeMap::new(),
            reports: Reports::default(),
            cores: ports.into_iter().enumerate().map(make).collect(),
            queue: BinaryHeap::new(),
            queued: 0,
            wall_offset_ms: 0,
            unanswered: BTreeSet::new(),
            remote_under_way: vec![0; shards],
            cleaning: Stream::new(options.seed, Purpose::Cleaning),
            cleaned: 0,
            is_healed: false,
            rules: vec![None; hosts],
            table: Arc::default(),
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
        let ms = self.options.wall_ms + (self.now_ns - START_NS) / 1_000_000;
        WallMs(ms.saturating_add_signed(self.wall_offset_ms))
    }

    /// What the wall clock would show if nobody had ever set it.
    pub fn right_wall(&self) -> Option<WallMs> {
        let ms = self.options.wall_ms + (self.now_ns - START_NS) / 1_000_000;
        (!self.options.has_clock_steps).then_some(WallMs(ms))
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

    /// Whether the node lacks something for an attempt. In the end nothing is lacking.
    pub fn lacks_something(&self, key: u64) -> bool {
        let (percent, key) = (self.options.lack_percent, key ^ LACKS);
        let draw = &mut Stream::keyed(self.options.seed, Purpose::Rarities, key);
        percent > 0 && !self.is_healed && draw.chance(percent)
    }

    /// Begins the attempt at a report, which is taken.
    pub fn begin_report(&mut self, core: u16, ticket: Ticket) {
        self.trace.add(self.now_ns, "report", [ticket.id.0, ticket.version.0, 0, 0]);
        let outcome = CallbackOutcome::Delivered;
        self.running.push(Running { ticket, name: REPORT, host: 0, outcome });
        let attempt = self.running.len() - 1;
        self.schedule(self.now_ns + TAKEN_NS, Event::Ended { core, attempt });
    }

    /// Notes the report that follows from the end of an attempt.
    pub fn owe_report(&mut self, pop: &Ticket, name: usize, outcome: CallbackOutcome) {
        let Some(timer) = self.model.timers.get(&pop.id.0) else { return };
        let write = timer.writes.iter().find(|write| write.name == name);
        let asks = |write: &Write| write.wish.is_some_and(|wish| wish.extras.has_reports);
        if outcome == CallbackOutcome::Delivered && write.is_some_and(asks) {
            let is_certain = timer.certain().is_some();
            self.reports.owe(pop, is_certain);
        }
    }

    /// Gives a core an event and wakes it.
    pub fn deliver(&mut self, core: u16, give: impl FnOnce(&mut CoreDriver)) {
        give(self.core_mut(core));
        self.wake(core);
    }

    /// Wakes a core that sleeps. A core that is awake will notice before it sleeps.
    pub fn wake(&mut self, core: u16) {
        let delay_ns = self.interleaving.range(100, self.options.step_ns_max);
        if let Some(generation) = self.core_mut(core).wake() {
            self.schedule(self.now_ns + delay_ns, Event::Step { core, generation });
        }
    }

    fn fault(&mut self, fault: Fault) {
        // A lie ends whatever else is over.
        if self.is_healed && !matches!(fault, Fault::WallClock(_)) {
            return;
        }
        match fault {
            Fault::Host(host, behaviour) => self.callbacks.change(host, behaviour),
            Fault::Rule(host, rule) => self.order(host, rule),
            Fault::WallClock(step_ms) => self.wall_offset_ms += step_ms,
            Fault::Stall { core, phase, ms } => self.core_mut(core).stall(phase, ms * 1_000_000),
        }
    }

    /// Gives a host another rule. The cores take it in their next turns.
    fn order(&mut self, host: u32, rule: Option<Rule>) {
        self.rules[host as usize] = rule;
        self.trace.add(self.now_ns, "rule", [u64::from(host), u64::from(rule.is_some()), 0, 0]);
        for (rules, rule) in self.model.rules.iter_mut().zip(&self.rules) {
            rules.order(*rule);
        }
        self.table = rules::table(&self.rules, &self.table);
        for core in 0..self.options.shards {
            let table = Arc::clone(&self.table);
            self.deliver(core, |core| core.ordered(table));
        }
    }

    fn heal(&mut self) {
        self.is_healed = true;
        self.callbacks.heal();
        for host in 0..self.rules.len() {
            if self.rules[host].is_some() {
                self.order(host as u32, None);
            }
        }
        self.schedule(self.now_ns + 1_000_000, Event::Clean);
    }

    /// Deletes timers that would live on. Requests may be refused, so the client looks again until
    /// no such timer is left.
    fn clean(&mut self) -> Checked {
        let horizon = self.now_ns / 1_000_000 + CLEAN_AFTER_MS;
        let lives_on = |write: &Write| {
            write.wish.is_some()
                && !write.has_ended
                && (write.cron().is_some()
                    || write.acts.is_paused
                    || write.due(write.pops()) > horizon)
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
        let last = self.story.operations.last();
        let is_over = last.is_none_or(|last| START_NS + last.at_ns < self.now_ns);
        if !far.is_empty() || !self.unanswered.is_empty() || !is_over {
            self.schedule(self.now_ns + 200_000_000, Event::Clean);
        }
        Ok(())
    }

    pub fn core_mut(&mut self, core: u16) -> &mut CoreDriver {
        self.cores[usize::from(core)].as_mut().expect("a step ends before the next begins")
    }

    /// Checks R2: no request waits for ever.
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

    /// Checks T6, T10 and R2 when nothing moves any more.
    fn at_rest(&mut self) -> Checked {
        if let Some((_, name)) = self.unanswered.first() {
            return broken("R2", format!("request {name} is never answered"));
        }
        for core in self.cores.iter().flatten() {
            core.audit()?;
        }
        self.model.all_done(self.now_ns / 1_000_000)?;
        let mut sum = self.sum_at_rest()?;
        sum.refused += self.cores.iter_mut().flatten().map(CoreDriver::mesh_refused).sum::<u64>();
        let withheld: u64 = self.cores.iter().flatten().map(CoreDriver::withheld).sum();
        let tally = self.model.tally;
        let exact = [
            ("stored", sum.creates, tally.stored),
            ("deletes", sum.deletes, tally.deletes),
            ("reads", sum.reads, tally.reads),
            ("never firing", sum.never_firing, tally.never_firing),
            ("refused", sum.refused, tally.refused),
            ("acted", sum.acted, tally.acted),
            ("delivered", sum.delivered, tally.delivered),
            ("failed", sum.failed, tally.failed),
            ("timed out", sum.timed_out, tally.timed_out),
            ("stale", sum.stale, tally.stale + withheld),
            ("without means", sum.without_means, tally.without_means),
        ];
        if let Some((what, counted, known)) = exact.iter().find(|(_, a, b)| a != b) {
            return broken("T10", format!("{what}: counted {counted}, happened {known}"));
        }
        // A retry that the turn gave back is made, and counted, again.
        let retried = tally.retried..=tally.retried + withheld;
        if !retried.contains(&sum.retried) {
            let what = format!("retried: counted {}, happened {retried:?}", sum.retried);
            return broken("T10", what);
        }
        let given_up = tally.given_up_min..=tally.given_up_max;
        let outdated = tally.outdated_min..=tally.outdated_max;
        if !given_up.contains(&sum.given_up) || !outdated.contains(&sum.outdated) {
            let (up, old) = (sum.given_up, sum.outdated);
            let what = format!("given up {up} of {given_up:?}, outdated {old} of {outdated:?}");
            return broken("T9", what);
        }
        let gone = tally.gone_min..=tally.gone_max;
        if !gone.contains(&sum.gone) {
            return broken("T9", format!("ended by servers: {} of {gone:?}", sum.gone));
        }
        self.reports.all_done(&sum)?;
        self.letters_agree(&sum)
    }

    /// The counters of all cores. Checks T6: nothing is left.
    fn sum_at_rest(&self) -> Result<Counters, Violation> {
        let mut sum = Counters::default();
        for held in self.counters() {
            if (held.timers, held.tombstones, held.in_flight, held.waiting) != (0, 0, 0, 0) {
                broken("T6 leak", format!("at rest: {held:?}"))?;
            }
            sum.creates += held.creates + held.updates;
            sum.deletes += held.deletes;
            sum.reads += held.reads;
            sum.never_firing += held.never_firing;
            sum.refused += held.refused;
            sum.acted += held.acted;
            sum.delivered += held.delivered;
            sum.failed += held.failed;
            sum.timed_out += held.timed_out;
            sum.stale += held.stale;
            sum.without_means += held.without_means;
            sum.retried += held.retried;
            sum.given_up += held.given_up;
            sum.outdated += held.outdated;
            sum.gone += held.gone;
            sum.reports_made += held.reports_made;
            sum.reports_without_room += held.reports_without_room;
            sum.letters_kept += held.letters_kept;
            sum.letters_without_room += held.letters_without_room;
            sum.letters_pushed_out += held.letters_pushed_out;
            sum.letters_too_old += held.letters_too_old;
        }
        Ok(sum)
    }

    /// Checks T13: every pop of a timer with a policy that was given up is in a dead letter. At the
    /// end none is left. Each was counted as it left, or gave way to what a client wrote.
    fn letters_agree(&self, sum: &Counters) -> Checked {
        let letters = sum.letters_kept + sum.letters_without_room;
        let least = match self.options.callbacks.dead_letters.per_core_max {
            0 => 0,
            _ => self.model.tally.letters_min,
        };
        if letters < least || letters > sum.given_up {
            let what = format!("{letters} letters of {least} to {}", sum.given_up);
            return broken("T13", what);
        }
        let left = sum.letters_pushed_out + sum.letters_too_old;
        let replaced_max = self.model.tally.letters_replaced_max;
        if !(left..=left + replaced_max).contains(&sum.letters_kept) {
            let what = format!("kept {}, left {left}, replaced {replaced_max}", sum.letters_kept);
            return broken("T13 count", what);
        }
        Ok(())
    }
}
