//! One run of a story: virtual time, the queue of events, the machine and its disk.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use chronos::base::ids::{ShardCount, ShardIndex};
use chronos::base::time::{MonoNs, Now, WallMs};
use chronos::core::Core;
use chronos::core::journal::{JournalRules, Mode};
use chronos::core::mesh::mesh;
use chronos::journal::JournalId;
use chronos::journal::page::Stamp;
use chronos::journal::writer::Piece;
use chronos::node::CoreMeters;
use chronos::node::journal::disk::WallFloor;
use chronos::node::journal::recovery::Plan;
use chronos::shard::effects::{Attempt, CallbackOutcome, Ticket};
use chronos::shard::journal::CatchUp;
use kit::simulator::callback_world::{Behaviour, CallbackWorld, Outcome};
use kit::simulator::disk::WriteId;
use kit::simulator::random::{Purpose, Stream};
use kit::simulator::story::Violation;
use kit::simulator::trace::Trace;

use super::boots::Boots;
use super::driver::{CoreDriver, Input};
use super::held::{self, Holds, Trying};
use super::model::{Begun, Checked, Life, MS, Model, broken};
use super::options::{NODE, Options};
use super::requests::{Asked, name_of};
use super::story::{Fault, Story};
use kit::simulator::store::Store;

/// How long after the end of faults everything that is due must have popped.
const QUIET_MS: u64 = 70_000;
/// Pause between two looks for pops that are late.
const CHECK_NS: u64 = 500_000_000;
/// Longest wait for an answer while the disk is well, and after it was not.
const ANSWER_NS: u64 = 500_000_000;
const ANSWER_TROUBLED_NS: u64 = 30_000_000_000;
/// A write that takes longer keeps its core waiting.
const LONG_NS: u64 = 20_000_000;
/// Longest orderly stop.
const STOP_NS: u64 = 3_000_000_000;
/// How many events make a run endless.
const EVENTS_MAX: u64 = 3_000_000;

/// Something that happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    Operation(usize),
    Fault(usize),
    Step {
        life: u64,
        core: u16,
        generation: u64,
    },
    Ended {
        life: u64,
        attempt: usize,
    },
    WriteEnds {
        life: u64,
        core: u16,
    },
    MakerEnds {
        life: u64,
    },
    /// Disks have room again.
    Room(u64),
    Boot {
        life: u64,
    },
    Stopped {
        life: u64,
        until_ns: u64,
    },
    Check,
    Heal,
    End,
}

/// A callback under way.
#[derive(Clone, Copy)]
pub struct Running {
    ticket: Ticket,
    name: usize,
    outcome: CallbackOutcome,
    /// The attempt, of a timer of `held`.
    trying: Option<Trying>,
}

/// The result of a run.
pub struct Report {
    pub trace: Trace,
    pub virtual_ns: u64,
    pub pops: u64,
    pub repeated: u64,
    pub left_out: u64,
    pub requests: usize,
    pub lives: u64,
    pub emptied: u64,
    pub reused: u64,
    pub refusals: BTreeMap<String, u64>,
    pub violation: Option<Violation>,
}

/// How the next process begins.
#[derive(Clone, Copy, Debug)]
struct Next {
    shards: u16,
    is_new_boot: bool,
}

/// The machine and everything around it.
pub struct World {
    pub options: Options,
    pub now_ns: u64,
    pub model: Model,
    pub holds: Holds,
    pub callbacks: CallbackWorld,
    pub trace: Trace,
    pub interleaving: Stream,
    pub disk: Stream,
    pub store: Store,
    pub boots: Boots,
    /// Counts the processes.
    pub life: u64,
    pub is_up: bool,
    is_stopping: bool,
    next: Next,
    floor: WallFloor,
    wall_offset_ms: i64,
    /// The cores by number. The core that takes a step is taken out.
    pub cores: Vec<Option<CoreDriver>>,
    pub running: Vec<Running>,
    pub asked: BTreeMap<usize, Asked>,
    pub unanswered: BTreeSet<(u64, usize)>,
    pub refusals: BTreeMap<String, u64>,
    /// Until when each thing is wrong with the disk.
    slow: (u64, u64),
    stalled_until_ns: u64,
    full_until_ns: u64,
    fails: Option<u64>,
    pub troubled_ns: u64,
    story: Story,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    queued: u64,
    is_healed: bool,
    is_over: bool,
}

/// Runs a story to its end or to the first violation.
pub fn run(story: &Story, keep_trace: bool) -> Report {
    let mut world = World::new(story.clone(), keep_trace);
    let violation = world.play().err();
    Report {
        virtual_ns: world.now_ns,
        pops: world.model.attempts,
        repeated: world.model.repeated,
        left_out: world.model.left_out,
        requests: world.asked.len(),
        lives: world.life,
        emptied: world.store.emptied,
        reused: world.store.reused,
        refusals: world.refusals,
        trace: world.trace,
        violation,
    }
}

impl World {
    fn new(story: Story, keep_trace: bool) -> Self {
        let options = story.options.clone();
        let is_sync = options.mode == Mode::Sync;
        let mut disk = Stream::new(options.seed, Purpose::Disk);
        let journal = JournalId(disk.next().max(1));
        let mut world = Self {
            now_ns: 0,
            model: Model::new(options.hosts, options.is_each, is_sync),
            holds: Holds::new(is_sync),
            callbacks: CallbackWorld::new(
                options.seed,
                options.hosts,
                options.callbacks.timeout_ms,
            ),
            trace: Trace::new(keep_trace),
            interleaving: Stream::new(options.seed, Purpose::Interleaving),
            store: Store::new(journal, NODE, options.sizes),
            boots: Boots::new(&mut disk),
            disk,
            life: 0,
            is_up: false,
            is_stopping: false,
            next: Next { shards: options.shards, is_new_boot: false },
            floor: WallFloor { began: Now::default() },
            wall_offset_ms: 0,
            cores: Vec::new(),
            running: Vec::new(),
            asked: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            refusals: BTreeMap::new(),
            slow: (0, 0),
            stalled_until_ns: 0,
            full_until_ns: 0,
            fails: None,
            troubled_ns: 0,
            queue: BinaryHeap::new(),
            queued: 0,
            is_healed: false,
            is_over: false,
            options,
            story,
        };
        world.plan();
        world
    }

    fn plan(&mut self) {
        self.schedule(0, Event::Boot { life: 0 });
        for at in 0..self.story.operations.len() {
            self.schedule(self.story.operations[at].at_ns, Event::Operation(at));
        }
        for at in 0..self.story.faults.len() {
            self.schedule(self.story.faults[at].0, Event::Fault(at));
        }
        let last_ns = self.story.faults.last().map_or(0, |(at_ns, _)| *at_ns);
        let heal_ns = last_ns.max(self.options.safety_ms * 1_000_000) + 1;
        self.schedule(heal_ns, Event::Heal);
        self.schedule(heal_ns + QUIET_MS * 1_000_000, Event::End);
        self.schedule(CHECK_NS, Event::Check);
    }

    pub fn schedule(&mut self, at_ns: u64, event: Event) {
        self.queued += 1;
        self.queue.push(Reverse((at_ns.max(self.now_ns), self.queued, event)));
    }

    fn play(&mut self) -> Checked {
        let mut events = 0;
        while let Some(Reverse((at_ns, _, event))) = self.queue.pop() {
            events += 1;
            if events > EVENTS_MAX {
                return broken("R3", "the run is endless".into());
            }
            self.now_ns = at_ns;
            self.happen(event)?;
            if self.is_over {
                break;
            }
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Checked {
        match event {
            Event::Operation(at) => self.operate(self.story.operations[at]),
            Event::Fault(at) => self.fault(self.story.faults[at].1)?,
            Event::Step { life, core, generation } => return self.step(life, core, generation),
            Event::Ended { life, attempt } if life == self.life && self.is_up => {
                let core = self.running[attempt].core(&self.cores);
                self.deliver(core, Input::Ended(attempt));
            }
            Event::WriteEnds { life, core } if life == self.life && self.is_up => {
                self.write_ends(core)?;
            }
            Event::MakerEnds { life } if life == self.life && self.is_up => {
                if let Some((core, made)) = self.store.finish() {
                    self.deliver(core, Input::Made(made));
                }
                self.run_maker();
            }
            Event::Room(until_ns) if until_ns == self.full_until_ns => self.store.room = None,
            Event::Boot { life } if life == self.life && !self.is_up => self.boot()?,
            Event::Stopped { life, until_ns } if life == self.life && self.is_up => {
                self.stops(until_ns);
            }
            Event::Check => {
                self.check()?;
                self.schedule(self.now_ns + CHECK_NS, Event::Check);
            }
            Event::Heal => self.heal(),
            Event::End => {
                self.is_over = true;
                self.check()?;
                if let Some((_, name)) = self.unanswered.first() {
                    return broken("R2", format!("request {name} is never answered"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check(&mut self) -> Checked {
        self.trace.add(self.now_ns, "check", [0; 4]);
        if !self.is_up {
            return Ok(());
        }
        if !self.is_stopping {
            self.model.none_is_late(self.now_ns as i64)?;
            self.holds.none_is_late(self.now_ns as i64)?;
        }
        let Some(&(asked_ns, name)) = self.unanswered.first() else { return Ok(()) };
        let is_troubled = self.troubled_ns + ANSWER_TROUBLED_NS > asked_ns;
        let within = if is_troubled { ANSWER_TROUBLED_NS } else { ANSWER_NS };
        let within = within + 8 * self.options.write_ns_max;
        if self.now_ns > asked_ns.max(self.troubled_ns) + within {
            return broken("R2", format!("request {name} is not answered"));
        }
        Ok(())
    }

    /// The time as the process reads it.
    pub fn now(&self) -> Now {
        let wall = self.true_wall();
        self.floor.raise(Now { mono: MonoNs(self.boots.mono(self.now_ns)), wall: WallMs(wall) })
    }

    fn true_wall(&self) -> u64 {
        self.boots.wall(self.now_ns).saturating_add_signed(self.wall_offset_ms)
    }

    /// The time of the world at which the clock of the machine shows `mono_ns`.
    pub fn when(&self, mono_ns: u64) -> u64 {
        self.boots.when(mono_ns)
    }

    /// Starts a process: it reads its journal.
    fn boot(&mut self) -> Checked {
        self.life += 1;
        let Next { shards, is_new_boot } = self.next;
        if is_new_boot {
            self.boots.begin(&mut self.disk, self.now_ns);
        }
        let raw =
            Now { mono: MonoNs(self.boots.mono(self.now_ns)), wall: WallMs(self.true_wall()) };
        let shifts = self.boots.shifts(self.now_ns, raw.wall.0, self.model.is_damaged);
        let (older, present) = self.store.open(shards);
        let rules = JournalRules {
            mode: self.options.mode,
            stall_ms: self.options.stall_ms,
            boot: self.boots.number(),
        };
        let pops_per_s = self.options.pops_per_s.div_ceil(shards.into());
        let catch_up = CatchUp { pops_per_s, is_each: self.options.is_each };
        let rules = (rules, catch_up, self.options.sizes);
        let plan = Plan::new((&older, present), rules, raw).expect("virtual files can be read");
        self.floor = plan.wall;
        let now = self.now();
        let ports = mesh(ShardCount::new(shards), 64);
        self.cores.clear();
        let mut damage = Vec::new();
        for (own, port) in ports.into_iter().enumerate() {
            let own = own as u16;
            let mut core = Core::new(self.options.config(own, shards, self.life), port, now);
            let meters = CoreMeters::default();
            let recovered = plan.recover(&mut core, ShardIndex(own), (now, &|| now), &meters);
            let recovered = recovered.expect("virtual files can be read");
            core.note_complete();
            damage.extend(recovered.damage);
            let (oldest, last) = recovered.used;
            self.store.keep_only(own, oldest, last);
            self.cores.push(Some(CoreDriver::new(own, core, now, self.now_ns)));
        }
        let numbers = [self.life, u64::from(shards), self.boots.number(), damage.len() as u64];
        self.trace.add(self.now_ns, "boot", numbers);
        if !self.model.is_damaged && !damage.is_empty() {
            return broken("J5 false", format!("nothing is damaged, and told is {damage:?}"));
        }
        if self.store.must_tell() && damage.is_empty() {
            return broken("J5 told", "a bit was turned over, and nothing was told".into());
        }
        (self.is_up, self.is_stopping) = (true, false);
        let timers = (self.model.timers.len() + self.holds.len()) as u64;
        let life = Life {
            number: self.life,
            boot: self.boots.index(),
            began_ns: self.now_ns as i64,
            pace_ns: (timers * 1_000 / pops_per_s) as i64 * MS,
        };
        self.model.begins(life, shards, &shifts);
        self.holds.begins(life.boot, life.began_ns + life.pace_ns);
        self.next = Next { shards, is_new_boot: false };
        self.run_maker();
        for core in 0..shards {
            let driver = self.cores[usize::from(core)].as_ref().expect("just made");
            let generation = driver.generation;
            self.schedule(self.now_ns + 1_000, Event::Step { life: self.life, core, generation });
        }
        Ok(())
    }

    fn step(&mut self, life: u64, core: u16, generation: u64) -> Checked {
        if life != self.life || !self.is_up {
            return Ok(());
        }
        let slot = &mut self.cores[usize::from(core)];
        if slot.as_ref().is_none_or(|core| core.generation != generation) {
            return Ok(());
        }
        let mut driver = slot.take().expect("one core steps at a time");
        driver.rise();
        let result = driver.step(self);
        self.cores[usize::from(core)] = Some(driver);
        result
    }

    /// Gives a core an event and wakes it.
    pub fn deliver(&mut self, core: u16, input: Input) {
        let driver = self.cores[usize::from(core)].as_mut();
        driver.expect("nothing is given to a core during its turn").inputs.push_back(input);
        self.wake(core);
    }

    pub fn wake(&mut self, core: u16) {
        let delay_ns = self.interleaving.range(100, 20_000);
        let driver = self.cores[usize::from(core)].as_mut().expect("another core steps");
        if driver.wake() {
            let generation = driver.generation;
            let at_ns = self.now_ns + delay_ns;
            self.schedule(at_ns, Event::Step { life: self.life, core, generation });
        }
    }

    fn host(&mut self, host: u32, behaviour: Behaviour) {
        let held = &mut self.model.hosts[host as usize];
        if !held.is_well {
            held.unwell_ns = (self.now_ns + self.options.callbacks.timeout_ms * 1_000_000) as i64;
        }
        held.is_well = matches!(behaviour, Behaviour::Well(_));
        self.callbacks.change(host, behaviour);
    }

    fn fault(&mut self, fault: Fault) -> Checked {
        if self.is_healed {
            return Ok(());
        }
        let until_ns = |ms: u64| self.now_ns + ms * 1_000_000;
        match fault {
            Fault::Crash { is_power, down_ms, wall_step_ms, shards } => {
                self.crash(is_power, down_ms, shards);
                self.wall_offset_ms += wall_step_ms;
            }
            Fault::Stop { down_ms, shards } => self.stop(down_ms, shards),
            Fault::Slow { each_ms, ms } => {
                self.slow = (until_ns(ms), each_ms);
                self.troubled_ns = self.troubled_ns.max(until_ns(ms + each_ms));
            }
            Fault::Stall { ms } => {
                self.stalled_until_ns = until_ns(ms);
                self.troubled_ns = self.troubled_ns.max(until_ns(ms));
            }
            Fault::Full { why, ms } => {
                self.full_until_ns = until_ns(ms);
                self.troubled_ns = self.troubled_ns.max(until_ns(ms));
                self.store.room = Some(why);
                self.schedule(until_ns(ms), Event::Room(until_ns(ms)));
            }
            Fault::WriteFails { down_ms } => self.fails = Some(down_ms),
            Fault::Flip { key } => self.flip(key),
            Fault::WallClock(step_ms) => {
                self.wall_offset_ms += step_ms;
            }
            Fault::Host(host, behaviour) => self.host(host, behaviour),
        }
        Ok(())
    }

    /// Ends the process, or the machine.
    fn crash(&mut self, is_power: bool, down_ms: u64, shards: u16) {
        self.trace.add(self.now_ns, "crash", [self.life, is_power.into(), down_ms, 0]);
        if self.is_up {
            self.dies();
        }
        if is_power {
            self.store.disk.lose_power(&mut self.disk);
        } else {
            self.store.disk.kill(&mut self.disk);
        }
        self.next.is_new_boot |= is_power;
        if shards > 0 {
            self.next.shards = shards;
        }
        let at_ns = self.now_ns + down_ms * 1_000_000;
        self.schedule(at_ns, Event::Boot { life: self.life });
    }

    fn dies(&mut self) {
        self.is_up = false;
        self.boots.dies();
        self.cores.clear();
        self.unanswered.clear();
        self.model.dies(self.now_ns);
        self.holds.dies();
    }

    /// Begins an orderly stop.
    fn stop(&mut self, down_ms: u64, shards: u16) {
        if !self.is_up || self.is_stopping {
            return;
        }
        self.is_stopping = true;
        self.trace.add(self.now_ns, "stop", [self.life, down_ms, 0, 0]);
        if shards > 0 {
            self.next.shards = shards;
        }
        for core in 0..self.cores.len() {
            let driver = self.cores[core].as_mut().expect("no core steps");
            driver.core.shard_mut().stop_popping();
            driver.core.journal().expect("it has one").stop();
            self.wake(core as u16);
        }
        let until_ns = self.now_ns + down_ms * 1_000_000 + 600_000_000;
        let looks_ns = self.now_ns + 20_000_000;
        self.schedule(looks_ns, Event::Stopped { life: self.life, until_ns });
    }

    /// Ends an orderly stop if all is stored, or after a while.
    fn stops(&mut self, until_ns: u64) {
        let is_done = self.cores.iter().flatten().all(|core| {
            core.core.is_stored() && core.core.shard().in_flight() == 0 && core.inputs.is_empty()
        });
        if !is_done && self.now_ns < until_ns + STOP_NS {
            for core in 0..self.cores.len() {
                self.wake(core as u16);
            }
            let life = self.life;
            return self.schedule(self.now_ns + 20_000_000, Event::Stopped { life, until_ns });
        }
        if is_done && self.unanswered.is_empty() {
            for core in 0..self.cores.len() {
                self.settle(core as u16, self.now_ns);
            }
        }
        self.trace.add(self.now_ns, "stopped", [self.life, is_done.into(), 0, 0]);
        self.dies();
        self.store.disk.kill(&mut self.disk);
        self.schedule(until_ns, Event::Boot { life: self.life });
    }

    fn heal(&mut self) {
        self.is_healed = true;
        self.callbacks.heal();
        for host in 0..self.options.hosts {
            self.host(host, Behaviour::Well(3));
        }
        self.slow = (0, 0);
        self.stalled_until_ns = self.now_ns;
        self.full_until_ns = self.now_ns;
        self.store.room = None;
        self.fails = None;
        self.troubled_ns = self.troubled_ns.min(self.now_ns);
        if !self.is_up {
            self.schedule(self.now_ns, Event::Boot { life: self.life });
        }
    }

    /// Turns over a bit of a segment in which something stands.
    fn flip(&mut self, key: u64) {
        if self.store.disk.is_writing() {
            return;
        }
        if let Some(bit) = self.store.flip(key) {
            self.trace.add(self.now_ns, "flip", [bit as u64, 0, 0, 0]);
            (self.model.is_damaged, self.holds.is_off) = (true, true);
        }
    }

    /// Begins a write. It ends when the disk says.
    pub fn begin_write(&mut self, core: u16, now: Now, piece: &Piece<'_>) -> WriteId {
        let id = self.store.write(core, piece);
        let stamp = Stamp { boot: self.boots.number(), mono: now.mono, wall: now.wall };
        self.boots.stamped(core, self.boots.when(now.mono.0), stamp.wall.0);
        let usual_ns = self.disk.range(20_000, self.options.write_ns_max);
        let (slow_until_ns, each_ms) = self.slow;
        let slow_ns = match slow_until_ns > self.now_ns {
            true => self.disk.range(0, each_ms * 1_000_000),
            false => 0,
        };
        let ends_ns = self.now_ns + usual_ns + slow_ns;
        self.schedule(ends_ns, Event::WriteEnds { life: self.life, core });
        let bytes = piece.bytes.len() as u64;
        self.trace.add(
            self.now_ns,
            "write",
            [u64::from(core), piece.segment.0, piece.offset, bytes],
        );
        id
    }

    fn write_ends(&mut self, core: u16) -> Checked {
        if self.now_ns < self.stalled_until_ns {
            let at_ns = self.stalled_until_ns + 1_000;
            self.schedule(at_ns, Event::WriteEnds { life: self.life, core });
            return Ok(());
        }
        if let Some(down_ms) = self.fails.take() {
            self.trace.add(self.now_ns, "EIO", [u64::from(core), 0, 0, 0]);
            self.crash(false, down_ms, 0);
            return Ok(());
        }
        let driver = self.cores[usize::from(core)].as_mut().expect("no core steps");
        let (writing, began_ns) = driver.writing.take().expect("a write was begun");
        if self.now_ns > began_ns + LONG_NS {
            driver.blocked_ns = self.now_ns;
        }
        self.store.disk.end_write(writing);
        self.boots.written(core);
        self.deliver(core, Input::Written);
        Ok(())
    }

    /// Lets the thread that makes segments take its next order.
    pub fn run_maker(&mut self) {
        if !self.store.begin() {
            return;
        }
        let usual_ns = self.disk.range(10_000, 5_000_000);
        let slow_ns = match self.slow.0 > self.now_ns {
            true => self.disk.range(0, self.slow.1 * 1_000_000),
            false => 0,
        };
        let ends_ns = (self.now_ns + usual_ns + slow_ns).max(self.stalled_until_ns);
        self.schedule(ends_ns, Event::MakerEnds { life: self.life });
    }

    /// A core sleeps, its disk is idle, and it has a segment to write to: what it did is durable.
    /// In mode `interval` also what it did before it had to wait for the disk, one interval after
    /// that.
    pub fn is_settled(&mut self, core: u16, blocked_ns: u64) {
        let until_ns = match self.options.mode {
            Mode::Sync => self.now_ns,
            Mode::Interval(ms) => self.now_ns.saturating_sub((ms + 3) * 1_000_000),
        };
        if until_ns < blocked_ns {
            return;
        }
        self.settle(core, until_ns);
    }

    fn settle(&mut self, core: u16, until_ns: u64) {
        self.model.settle(core, until_ns);
        self.holds.settle(core, self.cores.len() as u16, until_ns);
    }

    /// Begins a callback of a timer of `held`.
    fn begin_held(&mut self, own: u16, core: &Core, attempt: &Attempt) -> Checked {
        let ticket = attempt.ticket;
        let trying = self.holds.begins_attempt(core, attempt, self.now_ns)?;
        let numbers = [ticket.id.0, attempt.number.into(), ticket.sequence, u64::from(own)];
        self.trace.add(self.now_ns, "held", numbers);
        let key = self.running.len() as u64;
        let draw = &mut Stream::keyed(self.options.seed, Purpose::Callbacks, key);
        let (outcome, after_ns) = trying.ends(draw);
        self.running.push(Running { ticket, name: 0, outcome, trying: Some(trying) });
        let attempt = self.running.len() - 1;
        self.schedule(self.now_ns + after_ns, Event::Ended { life: self.life, attempt });
        Ok(())
    }

    /// Begins a callback. The model checks it, and its host decides how it ends.
    pub fn begin_attempt(&mut self, own: u16, core: &Core, attempt: &Attempt) -> Checked {
        let ticket = attempt.ticket;
        if held::is_held(ticket.id.0) {
            return self.begin_held(own, core, attempt);
        }
        let content = core.shard().content(attempt);
        let authority = core.shard().authority(ticket.host);
        let name = name_of(content.target).filter(|name| self.asked.contains_key(name));
        let Some(name) = name else {
            return broken("J5", format!("{:?} carries a path nobody asked for", ticket.id));
        };
        let host = self.same_content(name, &content, authority)?;
        self.created(name, ticket.id.0)?;
        let numbers = [ticket.id.0, name as u64, ticket.sequence, u64::from(own)];
        self.trace.add(self.now_ns, "pop", numbers);
        let story = format!("timer {:x} write {name} pop {}", ticket.id.0, ticket.sequence);
        let begun = Begun {
            id: ticket.id.0,
            name,
            sequence: ticket.sequence,
            now_ns: self.now_ns as i64,
            story: &story,
        };
        self.model.attempt(&begun)?;
        let key = (name as u64) << 32 ^ ticket.sequence << 12 ^ self.running.len() as u64;
        let ending = self.callbacks.attempt(host, key, (self.running.len() % 3) as u32);
        let outcome = match ending.outcome {
            Outcome::Delivered => CallbackOutcome::Delivered,
            Outcome::Rejected => CallbackOutcome::Rejected,
            Outcome::TimedOut => CallbackOutcome::TimedOut,
            Outcome::Unreachable => CallbackOutcome::Unreachable,
            Outcome::Stale => CallbackOutcome::Stale,
        };
        self.running.push(Running { ticket, name, outcome, trying: None });
        let attempt = self.running.len() - 1;
        let ends_ns = self.now_ns + ending.after_ns;
        self.schedule(ends_ns, Event::Ended { life: self.life, attempt });
        Ok(())
    }

    /// Tells a core how a callback ended.
    pub fn told(&mut self, core: u16, attempt: usize) -> (Ticket, CallbackOutcome) {
        let Running { ticket, name, outcome, trying } = self.running[attempt];
        if let Some(trying) = trying {
            let numbers = [ticket.id.0, ticket.sequence, outcome.number(), u64::from(core)];
            self.trace.add(self.now_ns, "held ended", numbers);
            self.holds.ended(&trying, outcome, self.now_ns, self.troubled_ns);
            return (ticket, outcome);
        }
        let is_ok = outcome == CallbackOutcome::Delivered;
        let numbers = [name as u64, ticket.sequence, outcome.number(), u64::from(core)];
        self.trace.add(self.now_ns, "ended", numbers);
        self.model.ended(ticket.id.0, name, ticket.sequence, (core, self.now_ns), is_ok);
        (ticket, outcome)
    }
}

impl Running {
    fn core(&self, cores: &[Option<CoreDriver>]) -> u16 {
        ShardCount::new(cores.len() as u16).owner(self.ticket.id).0
    }
}
