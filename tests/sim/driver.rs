//! Drives one production core through its turns, which `chronos::core::turn` orders. A turn may be
//! cut into its steps. Between steps time passes and other cores act.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use chronos::base::destinations::DestinationTable;
use chronos::base::ids::{HostId, ShardIndex};
use chronos::base::time::{MonoNs, Now, Tick};
use chronos::core::Core;
use chronos::core::peers::actions::PeerAction;
use chronos::core::turn::{Driver, STEPS, Step, take};
use chronos::shard::ShardConfig;
use chronos::shard::effects::{Attempt, CallbackOutcome, Reply, Ticket};
use kit::simulator::story::Violation;

use super::extras::outcome_of;
use super::invariants::{Begun, name_of};
use super::model::{Checked, Moment, broken};
use super::reports::REPORT;
use super::world::{Event, World};

/// Most waiting pops of hosts in trouble that one tick may look at, besides the pops that come due.
const MOVED_BACK_MAX: usize = 256;
/// Most entries that the wheel may move in one tick: 2 048 and one step.
const WHEEL_MOVES_MAX: u64 = 2_048 + 512;
/// After how long an attempt ends that the node lacks something for.
const LACK_NS: u64 = 20_000;
/// One turn in this many counts tombstones.
const TOMBSTONES_EVERY: u64 = 16;

/// A callback under way.
#[derive(Clone, Copy)]
pub struct Running {
    pub ticket: Ticket,
    pub name: usize,
    pub host: u32,
    pub outcome: CallbackOutcome,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Begin,
    /// The step of this index in [`STEPS`].
    Turn(usize),
    Sleep,
    Asleep,
}

impl Phase {
    /// Returns the number by which stalls name the phase.
    fn number(self) -> u64 {
        match self {
            Phase::Begin => 0,
            Phase::Turn(at) => 1 + at as u64,
            Phase::Sleep => 1 + STEPS.len() as u64,
            Phase::Asleep => u64::MAX,
        }
    }
}

/// How many phases there are before which a core may stall.
pub const PHASES: u64 = STEPS.len() as u64 + 2;
/// The phase in which requests are taken.
pub const REQUESTS: u64 = 1;

/// When each limit was last seen to be met.
#[derive(Clone, Copy, Default)]
pub struct LimitsMet {
    pub records: Option<Moment>,
    pub bytes: Option<Moment>,
    pub host_queue: Option<Moment>,
    pub mesh: Option<Moment>,
}

/// One core, and what the kernel would hold for that core.
pub struct CoreDriver {
    own: u16,
    core: Core,
    phase: Phase,
    generation: u64,
    now: Now,
    /// When the turn before began.
    away_since: Tick,
    /// Requests in sockets, and how many of them this turn takes.
    requests: VecDeque<usize>,
    requests_now: usize,
    /// Callbacks that ended, and how many of them this turn takes.
    results: VecDeque<usize>,
    results_now: usize,
    /// Rules of destinations that the core has not taken.
    rules: Option<Arc<DestinationTable>>,
    is_woken: bool,
    is_cut: bool,
    /// The phase before which the core will get no time, and for how long.
    stall: Option<(u64, u64)>,
    replies: Vec<Reply>,
    limits_met: LimitsMet,
    records_max: u64,
    bytes_max: u64,
    hosts_max: usize,
    /// Pops put off for want of a lane, so far.
    without_lane: u64,
    queue_max: u64,
    moved: u64,
    turns: u64,
    /// Hosts as this core numbers them.
    hosts: BTreeMap<HostId, u32>,
}

impl CoreDriver {
    pub fn new(own: u16, config: &ShardConfig, core: Core, now: Now) -> Self {
        Self {
            own,
            core,
            phase: Phase::Begin,
            generation: 0,
            now,
            away_since: now.mono.tick_floor(),
            requests: VecDeque::new(),
            requests_now: 0,
            results: VecDeque::new(),
            results_now: 0,
            rules: None,
            is_woken: false,
            is_cut: false,
            stall: None,
            replies: Vec::new(),
            limits_met: LimitsMet::default(),
            records_max: config.records_max,
            bytes_max: config.store_bytes_max,
            hosts_max: config.callbacks.hosts_per_core_max as usize,
            without_lane: 0,
            queue_max: u64::from(config.callbacks.queue_per_host_max),
            moved: 0,
            turns: 0,
            hosts: BTreeMap::new(),
        }
    }

    pub fn own(&self) -> u16 {
        self.own
    }

    pub fn core(&self) -> &Core {
        &self.core
    }

    pub fn limits_met(&self) -> LimitsMet {
        self.limits_met
    }

    /// Returns how many callbacks the turn gave back because the process had been stopped in it.
    pub fn withheld(&self) -> u64 {
        self.core.withheld()
    }

    /// Returns how many requests were refused because the queue to a sibling was full.
    pub fn mesh_refused(&mut self) -> u64 {
        self.core.mesh().refused
    }

    /// Puts a request into this core's socket.
    pub fn asked(&mut self, name: usize) {
        self.requests.push_back(name);
    }

    /// Notes that a callback ended.
    pub fn ended(&mut self, attempt: usize) {
        self.results.push_back(attempt);
    }

    /// Orders rules of destinations.
    pub fn ordered(&mut self, rules: Arc<DestinationTable>) {
        self.rules = Some(rules);
    }

    /// Stalls the core: it gets no time for `for_ns` once it comes to this phase of its turn.
    pub fn stall(&mut self, phase: u64, for_ns: u64) {
        self.stall = Some((phase, for_ns));
    }

    /// Ends a sleep and returns the generation of the step to schedule. Returns `None` if the core
    /// is awake; it then does not sleep at the end of its turn.
    pub fn wake(&mut self) -> Option<u64> {
        self.is_woken = true;
        if self.phase != Phase::Asleep {
            return None;
        }
        self.phase = Phase::Begin;
        self.generation += 1;
        Some(self.generation)
    }

    /// Checks T10: the shard's audit finds nothing.
    pub fn audit(&self) -> Checked {
        match self.core.shard().audit() {
            Ok(()) => Ok(()),
            Err(what) => broken("T10", what),
        }
    }

    /// Reports whether a step was scheduled for a sleep that has ended since.
    pub fn is_outdated(&self, generation: u64) -> bool {
        generation != self.generation
    }

    /// Runs one step of the turn, or the whole turn.
    pub fn step(&mut self, world: &mut World) -> Checked {
        loop {
            let number = self.phase.number();
            if let Some((_, for_ns)) = self.stall.take_if(|(phase, _)| *phase == number) {
                let until_ns = world.now_ns + for_ns;
                let (from, until) = (self.now.mono.tick_floor().0, until_ns / 1_000_000 + 1);
                world.model.stalls(self.own, from, until);
                self.next_step(world, until_ns);
                return Ok(());
            }
            self.phase(world)?;
            if self.phase == Phase::Asleep {
                return Ok(());
            }
            if self.is_cut || self.phase == Phase::Begin {
                let pause_ns = world.interleaving.range(50, world.options.step_ns_max);
                self.next_step(world, world.now_ns + pause_ns);
                return Ok(());
            }
        }
    }

    fn next_step(&mut self, world: &mut World, at_ns: u64) {
        self.generation += 1;
        world.schedule(at_ns, Event::Step { core: self.own, generation: self.generation });
    }

    fn phase(&mut self, world: &mut World) -> Checked {
        // Limits are looked at before and after the steps that can meet them, because a turn may
        // come away from a limit again.
        let step = match self.phase {
            Phase::Turn(at) => Some(STEPS[at]),
            _ => None,
        };
        let serves = matches!(step, Some(Step::Arrivals | Step::Siblings));
        if serves {
            self.see_limits(world);
        }
        let next = match self.phase {
            Phase::Begin | Phase::Asleep => self.begin(world),
            Phase::Turn(at) => {
                self.turn(world, STEPS[at])?;
                if at + 1 < STEPS.len() { Phase::Turn(at + 1) } else { Phase::Sleep }
            }
            Phase::Sleep => self.sleep(world)?,
        };
        if serves {
            self.see_limits(world);
        }
        self.phase = next;
        Ok(())
    }

    fn begin(&mut self, world: &mut World) -> Phase {
        self.is_woken = false;
        self.away_since = self.now.mono.tick_floor();
        self.now = Now { mono: MonoNs(world.now_ns), wall: world.wall() };
        self.is_cut = world.interleaving.chance(world.options.interleaved_percent);
        (self.requests_now, self.results_now) = (self.requests.len(), self.results.len());
        Phase::Turn(0)
    }

    /// Runs one step of the turn and checks what must hold after it.
    fn turn(&mut self, world: &mut World, step: Step) -> Checked {
        let now = self.now;
        let mut turn = Turn { driver: self, world, step, begun: 0, results_left: 0, broken: None };
        if step == Step::Ended {
            turn.results_left = std::mem::take(&mut turn.driver.results_now);
        }
        take(step, &mut turn, now);
        let Turn { begun, broken, .. } = turn;
        if let Some(violation) = broken {
            return Err(violation);
        }
        let shown = self.core.calendar_wall(now);
        world.model.clocks.see(self.own, now, shown, world.right_wall())?;
        if step == Step::Wheel { self.has_ticked(world, begun) } else { Ok(()) }
    }

    fn has_ticked(&mut self, world: &mut World, begun: usize) -> Checked {
        if self.is_crowded(world) {
            world.model.is_crowded(self.own, self.hosts_max)?;
        }
        if begun > world.options.pops_per_turn_max + MOVED_BACK_MAX {
            broken("R3", format!("{begun} pops in a turn"))?;
        }
        let counters = self.core.shard().counters();
        self.without_lane = counters.without_lane;
        let moved = counters.wheel_moved;
        if moved - self.moved > WHEEL_MOVES_MAX {
            broken("R3", format!("the wheel moved {} in a turn", moved - self.moved))?;
        }
        self.moved = moved;
        Ok(())
    }

    /// Reports whether pops were put off for want of a lane in this tick, and tells the model.
    fn is_crowded(&self, world: &mut World) -> bool {
        let is_crowded = self.core.shard().counters().without_lane > self.without_lane;
        if is_crowded {
            world.model.put_off(self.own, self.now.mono.tick_floor().0);
        }
        is_crowded
    }

    fn begin_attempt(&mut self, world: &mut World, now: Now, attempt: &Attempt) -> Checked {
        let ticket = attempt.ticket;
        let shard = self.core.shard();
        let content = shard.content(attempt);
        let authority = shard.authority(ticket.host);
        if content.attributes().report.is_some() {
            world.reports.begin(self.own, &ticket, content.opaque)?;
            world.begin_report(self.own, ticket);
            return Ok(());
        }
        let Some(name) = name_of(content.target).filter(|name| world.asked.contains_key(name))
        else {
            return broken("T7", format!("{:?} carries a path nobody asked for", ticket.id));
        };
        world.created_by_pop(name, ticket.id.0, self.own)?;
        let moment = world.next_moment();
        let core = self.own;
        let opaque = content.opaque;
        let attributes = content.attributes();
        let begun = Begun {
            core,
            now,
            moment,
            attempt,
            name,
            opaque,
            headers: attributes.headers,
            authority,
            cron: attributes.cron,
            offset_ms: content.spread_ms(ticket.id),
            wall: shard.calendar_wall(now),
            away_since: self.away_since,
        };
        let late = if world.options.has_stalls { f64::from(world.options.shards) } else { 0.0 };
        world.model.reporting[usize::from(core)] = world.reports.in_flight(core);
        world.model.attempt(&begun, world.options.callbacks.connections_per_host_max, late)?;
        let host = world.host_of(name);
        self.hosts.insert(ticket.host, host);
        let (attempts, stale) = world.model.attempts_of(ticket.id.0, name);
        let key = (name as u64) << 32 ^ ticket.sequence << 12 ^ attempts;
        let ending = world.callbacks.attempt(host, key, stale);
        world.trace.add(
            world.now_ns,
            "pop",
            [ticket.id.0, name as u64, ticket.sequence, ticket.version.0],
        );
        let wall_s = (self.core.calendar_wall(now).0 / 1_000) as u32;
        let (outcome, after_ns) = match world.lacks_something(key) {
            true => (CallbackOutcome::Lacking, LACK_NS),
            false => (outcome_of(world.options.seed, key, &ending, wall_s), ending.after_ns),
        };
        world.running.push(Running { ticket, name, host, outcome });
        let attempt = world.running.len() - 1;
        world.schedule(world.now_ns + after_ns, Event::Ended { core, attempt });
        Ok(())
    }

    fn sleep(&mut self, world: &mut World) -> Result<Phase, Violation> {
        let (own, tick) = (usize::from(self.own), self.now.mono.tick_floor().0);
        self.counts_agree(world)?;
        let has_more =
            !self.requests.is_empty() || !self.results.is_empty() || self.rules.is_some();
        if has_more || !self.core.mesh().may_sleep() || self.is_woken {
            return Ok(Phase::Begin);
        }
        let until = self.core.next_wake();
        if until.is_some_and(|until| until.begins().0 <= world.now_ns) {
            return Ok(Phase::Begin);
        }
        self.letters_are_bounded(world)?;
        let places = world.options.callbacks.connections_per_host_max;
        world.model.reporting[own] = world.reports.in_flight(self.own);
        world.model.sleeps(own, tick, until, places)?;
        if !world.options.has_stalls {
            world.model.goes_on(own, tick, places)?;
        }
        if world.interleaving.next().is_multiple_of(world.options.audit_every) {
            self.audit()?;
        }
        if let Some(Tick(until)) = until {
            let late_ns = world.interleaving.range(0, 60_000);
            self.next_step(world, Tick(until).begins().0.saturating_add(late_ns));
        }
        Ok(Phase::Asleep)
    }

    /// Checks R5: a core sleeps with no more dead letters than may be.
    fn letters_are_bounded(&self, world: &World) -> Checked {
        let limits = &world.options.callbacks.dead_letters;
        let held = self.core.shard().counters();
        if held.letters > limits.per_core_max.into()
            || held.letter_bytes > limits.bytes_per_core_max
        {
            let what = format!("{} letters of {} bytes", held.letters, held.letter_bytes);
            return broken("R5 letters", what);
        }
        Ok(())
    }

    /// Checks R1, T6 and T10 by cheap comparisons, at the end of every turn.
    fn counts_agree(&mut self, world: &mut World) -> Checked {
        let (own, tick) = (usize::from(self.own), self.now.mono.tick_floor().0);
        let counters = *self.core.shard().counters();
        let held = counters.timers + counters.tombstones;
        if held > self.records_max {
            return broken("R1", format!("{held} records"));
        }
        let in_flight: u64 = world.model.hosts[own].iter().map(|host| host.in_flight).sum();
        let in_flight = in_flight + world.reports.in_flight(self.own);
        if counters.in_flight != in_flight {
            return broken("T10", format!("{in_flight} run, {} counted", counters.in_flight));
        }
        self.turns += 1;
        if !self.turns.is_multiple_of(TOMBSTONES_EVERY) {
            return Ok(());
        }
        let tombstones = world.model.tombstones_min(own, tick);
        // Dead letters are not tombstones yet, or were for a shorter time.
        let letters = counters.letters + counters.letters_pushed_out + counters.letters_too_old;
        if counters.tombstones + letters < tombstones {
            let what = format!("{} tombstones, at least {tombstones} due", counters.tombstones);
            return broken("T6 tombstone", what);
        }
        Ok(())
    }

    fn see_limits(&mut self, world: &World) {
        let met = |limit: &mut Option<Moment>, is_met: bool| {
            if is_met {
                *limit = Some(world.moment);
            }
        };
        let shard = self.core.shard();
        let counters = shard.counters();
        let limits = &mut self.limits_met;
        met(&mut limits.records, counters.timers + counters.tombstones >= self.records_max);
        // The longest content of the clients is below 71 000 bytes.
        met(&mut limits.bytes, shard.bytes() + 71_000 > self.bytes_max);
        met(&mut limits.host_queue, counters.waiting >= self.queue_max);
        // A quarter of a queue is for messages of peers alone.
        let queue_max = world.options.mesh_queue_max;
        let of_clients_max = queue_max - queue_max.div_ceil(4).min(queue_max - 1);
        let under_way = world.remote_under_way[usize::from(self.own)];
        met(&mut limits.mesh, under_way >= of_clients_max);
    }
}

/// A core in a step of its turn, and the world around it.
struct Turn<'a> {
    driver: &'a mut CoreDriver,
    world: &'a mut World,
    step: Step,
    /// Callbacks begun in this step, or since the last one ended.
    begun: usize,
    /// How many callbacks that ended before the turn began the core has yet to hear of.
    results_left: usize,
    /// The first violation. Nothing is checked after it.
    broken: Option<Violation>,
}

impl Turn<'_> {
    fn note(&mut self, checked: Checked) {
        if let Err(violation) = checked {
            self.broken.get_or_insert(violation);
        }
    }

    /// Checks R3: one callback that ends lets no more callbacks begin than its host has connections,
    /// and as many of hosts that had no place.
    fn few_have_begun(&mut self) {
        let begun = std::mem::take(&mut self.begun);
        let callbacks = &self.world.options.callbacks;
        let is_limited = callbacks.places_per_core_max < u32::MAX;
        let hosts = if is_limited { self.world.options.hosts as usize + 1 } else { 0 };
        if begun > callbacks.connections_per_host_max as usize + hosts {
            self.note(broken("R3", format!("{begun} callbacks begin as one ends")));
        }
    }
}

impl Driver for Turn<'_> {
    fn core(&mut self) -> &mut Core {
        &mut self.driver.core
    }

    fn arrivals(&mut self, now: Now) {
        let driver = &mut *self.driver;
        let mut checked = Ok(());
        for name in driver.requests.drain(..driver.requests_now) {
            let taken = self.world.hand_over(&mut driver.core, driver.own, now, name);
            checked = checked.and(taken);
        }
        if let Some(rules) = driver.rules.take() {
            driver.core.set_flow_rules(now, Arc::clone(&rules));
            self.world.model.take_rules(driver.own, &rules, now.mono.0);
        }
        self.note(checked);
    }

    fn next_ended(&mut self) -> Option<(Ticket, CallbackOutcome)> {
        self.few_have_begun();
        self.results_left = self.results_left.checked_sub(1)?;
        let at = self.driver.results.pop_front().expect("counted when the turn began");
        let Running { ticket, name, host, outcome } = self.world.running[at];
        let numbers = [name as u64, ticket.sequence, outcome.number(), 0];
        self.world.trace.add(self.world.now_ns, "ended", numbers);
        let (own, now) = (self.driver.own, self.driver.now);
        if name == REPORT {
            let core = usize::from(own);
            self.world.model.reporting[core] = self.world.reports.in_flight(own);
            self.world.model.note_places(core, now.mono.tick_floor().0);
            self.world.reports.end(own);
            self.world.model.tally.delivered += 1;
            return Some((ticket, outcome));
        }
        self.world.owe_report(&ticket, name, outcome);
        let now = Now { wall: self.driver.core.calendar_wall(now), ..now };
        self.world.model.ending((own, host), &ticket, name, outcome, now);
        Some((ticket, outcome))
    }

    fn present(&self, _began: Now) -> Now {
        Now { mono: MonoNs(self.world.now_ns), wall: self.world.wall() }
    }

    fn call(&mut self, now: Now, attempt: &Attempt) {
        if self.broken.is_none() {
            if self.step == Step::Wheel {
                // The model must know before it looks at the callbacks.
                self.driver.is_crowded(self.world);
            }
            self.begun += 1;
            let begun = self.driver.begin_attempt(self.world, now, attempt);
            self.note(begun);
        }
    }

    /// Checks R4: a host that loses its lane has no callback under way. Its health is forgotten
    /// with its lane.
    fn release(&mut self, host: HostId) {
        self.world.trace.add(self.world.now_ns, "released", [u64::from(host.0), 0, 0, 0]);
        let Some(number) = self.driver.hosts.remove(&host) else { return };
        let tick = self.driver.now.mono.tick_floor().0;
        let forgotten = self.world.model.forgotten(self.driver.own, number, tick);
        self.note(forgotten);
    }

    fn expire(&mut self, _now: Now) {
        // The world ends callbacks by itself.
    }

    fn act(&mut self, _now: Now, action: PeerAction) {
        unreachable!("a node alone has no peer: {action:?}");
    }

    fn store(&mut self, _now: Now) {
        unreachable!("this world has no disk");
    }

    fn answer(&mut self, _now: Now) {
        let mut replies = std::mem::take(&mut self.driver.replies);
        self.driver.core.replies(&mut replies);
        for reply in replies.drain(..) {
            let answered = self.world.answered(self.driver, &reply);
            self.note(answered);
        }
        self.driver.replies = replies;
    }

    fn wake(&mut self, sibling: ShardIndex) {
        self.world.trace.add(self.world.now_ns, "wake", [u64::from(sibling.0), 0, 0, 0]);
        self.world.wake(sibling.0);
    }
}
