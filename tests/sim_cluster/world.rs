//! One run of a story: virtual time, the queue of events, and what each event does.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use chronos::base::destinations::DestinationTable;
use chronos::shard::effects::{CallbackOutcome, Ticket};
use chronos::shard::inspect::Held;
use kit::simulator::callback_world::{Behaviour, CallbackWorld, Ending, Outcome};
use kit::simulator::random::{Purpose, Stream};
use kit::simulator::story::Violation;
use kit::simulator::trace::Trace;

use super::disturbances::Whom;
use super::driver::{CoreDriver, Input, Running};
use super::holds::end_of;
use super::model::{Attempted, Checked, MS, Model, broken};
use super::network::{ConnectionId, CoreAt, End, Network, Spoil};
use super::nodes::{Node, Starved};
use super::operators::{Members, Step as OperatorStep};
use super::options::{NODES_MAX, Options};
use super::requests::Asked;
use super::rules::Rules;
use super::silent_starts::Processes;
use super::story_plan::{Death, Doom, Fault, Story};
use super::twins::Twin;

/// After the end of faults, timers that still live are deleted at [`CLEAN_MS`], and all is gone at
/// [`END_MS`].
const CLEAN_MS: u64 = 20_000;
/// How often they are deleted: a node may refuse many at once. From the fourth time on few are left,
/// and another node is asked each time.
const CLEANINGS: u64 = 6;
pub const CLEANINGS_AT_ONE_NODE: u64 = 3;
const END_MS: u64 = 75_000;
/// Pause between two comparisons of the nodes with each other.
const CHECK_MS: u64 = 1_000;
/// How many events make a run endless.
const EVENTS_MAX: u64 = 6_000_000;

/// Something that happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    Operation(usize),
    Fault(usize),
    Request(usize),
    Impatient(usize),
    Refused(usize),
    Step {
        place: CoreAt,
        generation: u64,
    },
    /// A write was acknowledged in the turn before.
    Acknowledged(usize),
    /// A write was acknowledged a while ago. It is read through every node.
    Probe(usize),
    Arrive(ConnectionId, End),
    DialTimeout(ConnectionId),
    Ended {
        place: CoreAt,
        attempt: usize,
    },
    Restart {
        node: usize,
        life: u64,
    },
    Die {
        node: usize,
        life: u64,
    },
    Mend(usize),
    Accept(usize),
    Operator(OperatorStep),
    /// An orderly stop may be over.
    Stops(usize),
    TwinEnds(u64),
    WriteEnds(CoreAt),
    MakerEnds {
        node: usize,
        life: u64,
    },
    /// A disk has room again.
    Room {
        node: usize,
        until_ns: u64,
    },
    Due(usize, u64),
    /// Another process must have gone on with a pop.
    Takeover {
        name: usize,
        sequence: u64,
        died_ns: u64,
    },
    /// An action must have made a pop.
    Acted(usize),
    /// A server wanted no more of a timer a while ago.
    NoMore(u64),
    Check,
    Heal,
    Clean(u64),
    End,
}

/// The result of a run.
pub struct Report {
    pub trace: Trace,
    pub virtual_ns: u64,
    pub attempts: u64,
    pub delivered: u64,
    pub doubled: u64,
    pub requests: usize,
    pub refusals: BTreeMap<String, u64>,
    /// Every callback: node, time, write, sequence.
    pub pops: Vec<(usize, u64, usize, u64)>,
    pub violation: Option<Violation>,
}

/// The simulated cluster and everything around it.
pub struct World {
    pub options: Options,
    pub now_ns: u64,
    pub model: Model,
    pub callbacks: CallbackWorld,
    pub trace: Trace,
    pub interleaving: Stream,
    /// What disks do.
    pub disk: Stream,
    pub network: Network,
    pub nodes: Vec<Node>,
    /// The rules of destinations, as they must be seen, and the table of each node.
    pub rules: Rules,
    pub tables: Vec<Arc<DestinationTable>>,
    pub members: Members,
    pub twin: Option<Twin>,
    pub running: Vec<Running>,
    pub asked: BTreeMap<usize, Asked>,
    pub created: BTreeMap<usize, (u64, u8, u64)>,
    pub unanswered: BTreeSet<(u64, usize)>,
    pub refusals: BTreeMap<String, u64>,
    pub is_healed: bool,
    pub cleaned: usize,
    pub probes: usize,
    cuts: Vec<Option<(usize, usize)>>,
    /// A hash over everything that was carried between nodes, which is too much for the trace.
    carried: u64,
    pops: Vec<(usize, u64, usize, u64)>,
    story: Story,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    queued: u64,
    is_over: bool,
    /// A timer whose holders are told of whenever they change, and its holders.
    watched: Option<(u64, Vec<(usize, Held)>)>,
}

/// Runs a story to its end or to the first violation.
pub fn run(story: &Story, keep_trace: bool) -> Report {
    let mut world = World::new(story.clone(), keep_trace);
    let violation = world.plan().and_then(|()| world.play()).err();
    Report {
        virtual_ns: world.now_ns,
        attempts: world.model.attempts,
        delivered: world.model.delivered,
        doubled: world.model.doubled,
        requests: world.asked.len(),
        refusals: world.refusals,
        pops: world.pops,
        trace: world.trace,
        violation,
    }
}

/// Returns the id of the timer that a person watches, which failures print in hex.
fn watched() -> Option<u64> {
    u64::from_str_radix(&std::env::var("CHRONOS_SIM_WATCH").ok()?, 16).ok()
}

impl World {
    fn new(story: Story, keep_trace: bool) -> Self {
        let options = story.options.clone();
        let draw = &mut match options.variant {
            0 => Stream::new(options.seed, Purpose::Interleaving),
            variant => Stream::keyed(options.seed, Purpose::Interleaving, variant),
        };
        let network = Network::new(options.latency_ns, draw.clone());
        let nodes = (0..options.all_nodes()).map(|node| Node::new(node, &options, draw)).collect();
        let drift_ppm = options.drift_ppm_max as u64;
        let hosts = options.hosts as usize;
        let mut world = Self {
            now_ns: 0,
            model: Model::new(hosts, drift_ppm, &options.cluster, options.sites),
            callbacks: CallbackWorld::new(
                options.seed,
                options.hosts,
                options.callbacks.timeout_ms,
            ),
            trace: Trace::new(keep_trace),
            interleaving: draw.clone(),
            disk: Stream::keyed(options.seed, Purpose::Disk, 100),
            network,
            rules: Rules::new(&options),
            tables: vec![Arc::default(); options.all_nodes()],
            nodes,
            members: Members { sites: options.sites, ..Members::new(options.nodes) },
            twin: None,
            running: Vec::new(),
            asked: BTreeMap::new(),
            created: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            refusals: BTreeMap::new(),
            is_healed: false,
            cleaned: 0,
            probes: 0,
            cuts: Vec::new(),
            carried: 0,
            pops: Vec::new(),
            queue: BinaryHeap::new(),
            queued: 0,
            is_over: false,
            watched: watched().filter(|_| keep_trace).map(|id| (id, Vec::new())),
            options,
            story,
        };
        let disks = world.options.disks;
        world.model.disturbances.has_disks = disks.is_some();
        world.model.tells_ends = disks.is_some_and(|disks| disks.tells_ends(&world.options));
        world.model.keeps_all = disks.is_some_and(|disks| disks.keeps_all(&world.options));
        world.model.losses.unwritten_ns = disks.map_or(0, |disks| disks.unwritten_ns_max());
        let asks_ns = 2 * world.options.latency_ns.1;
        world.model.asks = (2 * world.options.cluster.dead_after_ms * MS, asks_ns);
        world.model.store_ns = disks.map_or(0, |disks| disks.pop_ns_max() + asks_ns);
        world.model.crowded_from = world.options.crowded_from();
        world.model.processes = world.options.has_silent_starts().then(Processes::default);
        world
    }

    fn plan(&mut self) -> Checked {
        for node in 0..self.options.nodes {
            self.boot(node)?;
        }
        for at in 0..self.story.operations.len() {
            self.schedule(self.story.operations[at].at_ns, Event::Operation(at));
        }
        for at in 0..self.story.faults.len() {
            self.schedule(self.story.faults[at].0, Event::Fault(at));
        }
        let heal_ns = self.options.safety_ms * MS;
        self.schedule(heal_ns, Event::Heal);
        for round in 0..CLEANINGS {
            self.schedule(heal_ns + (CLEAN_MS + round * 4_000) * MS, Event::Clean(round));
        }
        // Tombstones stay while a node is dead, and longer if the clock of the node that deleted is
        // ahead.
        let held_ms = match (self.options.stays_dead, self.options.sites) {
            (None, None) => 0,
            _ => 2 * self.options.cluster.tombstone_hold_ms + 20_000,
        };
        self.schedule(heal_ns + (END_MS + held_ms) * MS, Event::End);
        self.schedule(CHECK_MS * MS, Event::Check);
        Ok(())
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
            self.watch();
            if self.is_over {
                break;
            }
        }
        Ok(())
    }

    /// Adds to the trace what nodes hold of the timer that is watched, if that has changed.
    fn watch(&mut self) {
        let Some((id, former)) = &self.watched else { return };
        let holders = self.holders(*id);
        if holders != *former {
            let list = |(node, held): &(usize, Held)| {
                let lists = (held.replicas.as_slice(), held.actives);
                let state = if held.is_live { "live" } else { "ended" };
                let (version, sequence, sites) = (held.version.0, held.sequence, held.sites);
                format!("node {node} {version:x}/{sequence} {state} {lists:x?} {sites:x?}")
            };
            let text: Vec<String> = holders.iter().map(list).collect();
            eprintln!("{:>12} us held by {text:?}", self.now_ns / 1_000);
            self.watched = Some((*id, holders));
        }
    }

    fn happen(&mut self, event: Event) -> Checked {
        match event {
            Event::Operation(at) => {
                let operation = self.story.operations[at];
                self.operate(operation, 0, operation.node);
            }
            Event::Fault(at) => self.fault(self.story.faults[at].1),
            Event::Request(name) => self.request_arrives(name),
            Event::Impatient(name) | Event::Refused(name) => self.try_next(name),
            Event::Step { place, generation } => self.step(place, generation)?,
            Event::Acknowledged(name) => self.answer_checks(name)?,
            Event::Probe(name) => self.probe(name),
            Event::Arrive(id, end) => self.arrive(id, end),
            Event::DialTimeout(id) => self.dial_timeout(id),
            Event::Ended { place, attempt } => self.deliver(place, Input::Ended(attempt)),
            Event::Restart { node, life } => {
                let is_gone = self.nodes[node].life == life && !self.nodes[node].is_up();
                if is_gone && self.members.is_member(node) {
                    self.boot(node)?;
                }
            }
            Event::WriteEnds(place) => self.write_ends(place),
            Event::MakerEnds { node, life } => self.maker_ends(node, life),
            Event::Room { node, until_ns } => self.make_room(node, until_ns),
            Event::Die { node, life } => {
                if self.nodes[node].life == life {
                    self.die_of_doom(node);
                }
            }
            Event::Mend(cut) => self.mend(cut),
            Event::Accept(node) => {
                let refusals = &mut self.nodes[node].refusals;
                *refusals = refusals.saturating_sub(1);
            }
            Event::Operator(step) => self.operator_step(step),
            Event::TwinEnds(life) => self.twin_ends(life)?,
            Event::Stops(node) => self.stop_if_done(node),
            Event::Due(name, sequence) => {
                // A boot since may have made the pop later.
                let is_put_off = self.pop_deadline_ns(name, sequence) > Some(self.now_ns);
                if !is_put_off {
                    self.model.is_seen(name, sequence, self.now_ns)?;
                }
                self.schedule_pop(name, sequence + u64::from(!is_put_off));
            }
            Event::Takeover { name, sequence, died_ns } => {
                self.model.is_taken_over((name, sequence), died_ns, self.now_ns)?;
            }
            Event::Acted(name) => self.model.has_acted(name, self.now_ns)?,
            Event::NoMore(id) => self.has_no_more(id),
            Event::Check => {
                self.trace.add(self.now_ns, "check", [self.carried, 0, 0, 0]);
                self.answers_in_time()?;
                self.agree()?;
                self.schedule(self.now_ns + CHECK_MS * MS, Event::Check);
            }
            Event::Heal => self.heal()?,
            Event::Clean(round) => self.clean(round),
            Event::End => {
                self.is_over = true;
                self.at_rest()?;
            }
        }
        Ok(())
    }

    fn step(&mut self, place: CoreAt, generation: u64) -> Checked {
        let node = &mut self.nodes[place.node];
        if node.life != place.life || !node.is_up() {
            return Ok(());
        }
        let (frozen_until_ns, starved) = (node.frozen_until_ns, node.starved);
        let slot = &mut node.cores[usize::from(place.core)];
        if slot.as_ref().is_none_or(|core| core.generation != generation) {
            return Ok(());
        }
        let mut driver = slot.take().expect("one core steps at a time");
        driver.step_ns = u64::MAX;
        let waits_until_ns = frozen_until_ns.max(driver.rests_until_ns);
        let timers = driver.core.shard().counters().timers;
        let result = if waits_until_ns > self.now_ns {
            driver.schedule(self, waits_until_ns);
            Ok(())
        } else {
            let starved = starved.filter(|starved| starved.core == place.core);
            if let Some(Starved { pause_ns, .. }) =
                starved.filter(|starved| starved.until_ns > self.now_ns)
            {
                driver.rests_until_ns = self.now_ns + pause_ns;
            }
            driver.turn(self)
        };
        let moved = driver.core.shard().counters().moved;
        let has_fewer = driver.core.shard().counters().timers < timers;
        let has_moved = std::mem::replace(&mut driver.moved, moved) != moved;
        self.nodes[place.node].cores[usize::from(place.core)] = Some(driver);
        if has_fewer {
            self.note_forgotten(place);
        }
        self.stop_if_done(place.node);
        result?;
        if has_moved { self.agree() } else { Ok(()) }
    }

    /// Gives a core an event, if its process still lives.
    pub fn deliver(&mut self, place: CoreAt, input: Input) {
        let node = &mut self.nodes[place.node];
        if node.life != place.life || !node.is_up() {
            return;
        }
        let core = node.cores[usize::from(place.core)].as_mut();
        core.expect("nothing is given to a core during its turn").inputs.push_back(input);
        self.wake(place);
    }

    /// Wakes a core that sleeps. A core in its turn will notice before it sleeps.
    pub fn wake(&mut self, place: CoreAt) {
        let delay_ns = self.interleaving.range(100, 20_000);
        let Some(mut driver) = self.take_core(place) else { return };
        let at_ns = (self.now_ns + delay_ns).max(self.nodes[place.node].frozen_until_ns);
        driver.schedule(self, at_ns);
        self.nodes[place.node].cores[usize::from(place.core)] = Some(driver);
    }

    fn take_core(&mut self, place: CoreAt) -> Option<CoreDriver> {
        self.nodes[place.node].cores[usize::from(place.core)].take()
    }

    /// Begins a callback. The model checks it, and its host decides how it ends.
    pub fn attempt(&mut self, place: CoreAt, ticket: Ticket, name: usize) -> Checked {
        let Some(asked) = self.asked.get(&name) else {
            return broken("T7", format!("{ticket:?} is of {name}, which nobody asked for"));
        };
        let host = asked.ask.wish.map_or(0, |wish| wish.host);
        let numbers = [name as u64, ticket.sequence, place.node as u64, ticket.version.0];
        self.trace.add(self.now_ns, "pop", numbers);
        self.pops.push((place.node, self.now_ns, name, ticket.sequence));
        self.model.named(name, ticket.id.0)?;
        self.model.is_not_paused(ticket.id.0, name, self.now_ns)?;
        self.model.keeps_policy(place, self.now_ns, name, ticket.sequence)?;
        self.model.attempt(place, self.now_ns, name, ticket.sequence)?;
        let pops = self.model.pops.entry((name, ticket.sequence)).or_default();
        self.rules.begin(place, (host, self.now_ns), (name, ticket.sequence), pops)?;
        let at = pops.len();
        let is_doubled = pops.iter().any(|other| other.served_ns.is_some());
        let key = (name as u64) << 32 ^ ticket.sequence << 12 ^ at as u64;
        let ending = self.callbacks.attempt(host, key, (at % 3) as u32);
        let timeout_ms = self.options.callbacks.timeout_ms;
        let (outcome, after_ns) = end_of(ticket.id.0, ending, timeout_ms);
        let ended_ns = self.now_ns + after_ns;
        let served_ns = (outcome == CallbackOutcome::Delivered).then_some(ended_ns);
        self.model.doubled += u64::from(is_doubled);
        pops.push(Attempted { place, begun_ns: self.now_ns, served_ns, told: None });
        self.running.push(Running { ticket, name, outcome, at });
        let attempt = self.running.len() - 1;
        self.schedule(ended_ns, Event::Ended { place, attempt });
        self.doom(place.node, Doom::Callback);
        Ok(())
    }

    /// Schedules the check of pop `sequence` for when the pop must have been seen.
    pub fn schedule_pop(&mut self, name: usize, sequence: u64) {
        if sequence <= self.model.writes[&name].pops()
            && let Some(at_ns) = self.pop_deadline_ns(name, sequence)
        {
            self.schedule(at_ns, Event::Due(name, sequence));
        }
    }

    fn pop_deadline_ns(&self, name: usize, sequence: u64) -> Option<u64> {
        self.model.deadline_ns(name, sequence, self.options.callbacks.timeout_ms)
    }

    /// Adds bytes that reached an end of a connection to the hash.
    pub fn carried(&mut self, id: ConnectionId, end: End, bytes: &[u8]) {
        for word in [self.now_ns, id as u64, end as u64, bytes.len() as u64] {
            self.carried = (self.carried.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }

    /// Lets a process die if it is doomed to die of what it just did.
    pub fn doom(&mut self, node: usize, by: Doom) {
        if self.nodes[node].doom.is_some_and(|(when, ..)| when == by) {
            let life = self.nodes[node].life;
            self.schedule(self.now_ns + 1, Event::Die { node, life });
        }
    }

    fn fault(&mut self, fault: Fault) {
        if self.is_healed {
            return;
        }
        let now_ns = self.now_ns;
        let ms_from_now = |ms: u64| now_ns + ms * MS;
        match fault {
            Fault::Kill { node, for_ms, how } => self.kill(node, how, Some(for_ms)),
            Fault::Doom { node, for_ms, when, how } => {
                self.nodes[node].doom = Some((when, for_ms, how));
            }
            Fault::Stop { node, for_ms } => self.stop(node, Some(for_ms)),
            Fault::Freeze { node, ms } => {
                let until_ns = ms_from_now(ms);
                let frozen = &mut self.nodes[node].frozen_until_ns;
                *frozen = until_ns.max(*frozen);
                self.model.disturbances.pause(node, self.now_ns, until_ns);
            }
            Fault::Cut { from, to, ms, is_both } => {
                self.cut(from, to, ms);
                if is_both {
                    self.cut(to, from, ms);
                }
            }
            Fault::Split { mask, ms } => {
                for (from, to) in (0..NODES_MAX).flat_map(|a| (0..NODES_MAX).map(move |b| (a, b))) {
                    if (mask >> from & 1) != (mask >> to & 1) {
                        self.cut(from, to, ms);
                    }
                }
            }
            Fault::Break { one, other } => self.break_connections(one, other),
            Fault::Corrupt { from, to } => self.spoil(from, to, Spoil::Bit),
            Fault::Truncate { from, to } => self.spoil(from, to, Spoil::Tail),
            Fault::Repeat { from, to } => self.spoil(from, to, Spoil::Twice),
            Fault::Reorder { from, to } => self.spoil(from, to, Spoil::Late),
            Fault::HalfOpen { .. } | Fault::Slow { .. } | Fault::Starve { .. } => {
                self.rare_fault(fault);
            }
            Fault::Refuse { node, ms } => {
                self.nodes[node].refusals += 1;
                self.schedule(ms_from_now(ms), Event::Accept(node));
                let until_ns = ms_from_now(ms);
                self.model.disturbances.add(Whom::Node(node), self.now_ns, until_ns);
            }
            Fault::WallStep { node, ms } => {
                self.nodes[node].clocks.step(self.now_ns, ms);
                self.model.clocks.see(self.nodes[node].clocks.ahead_ms());
            }
            Fault::Host { host, behaviour } => self.host(host, behaviour),
            Fault::Rule { host, rule, site } => self.order(host, rule, site),
            Fault::FullDisk { node, ms } => self.fill_disk(node, ms),
            Fault::Change { joining, leaving } => self.operator_begins(joining, leaving),
            Fault::Twin { node, mask, ms, breaks } => self.twin_begins(node, mask, ms, breaks),
            Fault::MissFiles { node, ms } => self.hold_files(node, 0, ms),
            Fault::OldFiles { node, back, ms } => self.hold_files(node, back, ms),
        }
    }

    fn host(&mut self, host: u32, behaviour: Behaviour) {
        let now_ns = self.now_ns;
        for span in &mut self.model.unwell[host as usize] {
            span.1 = span.1.min(now_ns + self.options.callbacks.timeout_ms * MS);
        }
        if !matches!(behaviour, Behaviour::Well(_)) {
            self.model.unwell[host as usize].push((now_ns, u64::MAX));
        }
        self.callbacks.change(host, behaviour);
    }

    fn cut(&mut self, from: usize, to: usize, ms: u64) {
        if from == to {
            return;
        }
        self.network.cut(from, to);
        self.cuts.push(Some((from, to)));
        self.schedule(self.now_ns + ms * MS, Event::Mend(self.cuts.len() - 1));
        let until_ns = self.now_ns + ms * MS + 1_500 * MS;
        self.model.disturbances.add(Whom::Pair(from, to), self.now_ns, until_ns);
    }

    fn mend(&mut self, cut: usize) {
        let Some((from, to)) = self.cuts[cut].take() else { return };
        let mut arrivals = Vec::new();
        self.network.mend(self.now_ns, from, to, &mut arrivals);
        self.arrivals(arrivals);
        if self.interleaving.chance(30) {
            self.break_connections(from, to);
        }
    }

    fn spoil(&mut self, from: usize, to: usize, spoil: Spoil) {
        if from == to {
            return;
        }
        self.network.spoils.push((from, to, spoil));
        let until_ns = self.now_ns + 4_000 * MS;
        self.model.disturbances.add(Whom::Pair(from, to), self.now_ns, until_ns);
    }

    /// Ends all faults for good.
    fn heal(&mut self) -> Checked {
        self.is_healed = true;
        let life = self.twin.as_ref().map_or(0, |twin| self.nodes[twin.process].life);
        self.twin_ends(life)?;
        self.callbacks.heal();
        self.end_rules();
        for host in 0..self.options.hosts {
            self.host(host, Behaviour::Well(3));
        }
        for cut in 0..self.cuts.len() {
            self.mend(cut);
        }
        self.network.spoils.clear();
        self.network.slow.clear();
        self.network.hear_all();
        for node in 0..self.nodes.len() {
            self.nodes[node].doom = None;
            self.make_room(node, self.nodes[node].full_until_ns);
            self.nodes[node].refusals = 0;
            self.nodes[node].starved = None;
            let restart_ms = &mut self.nodes[node].restart_ms;
            *restart_ms = restart_ms.map(|ms| ms.min(1_000));
            self.nodes[node].frozen_until_ns = self.now_ns;
            let cores = self.nodes[node].cores.len() as u16;
            for core in self.nodes[node].cores.iter_mut().flatten() {
                core.rests_until_ns = 0;
            }
            let life = self.nodes[node].life;
            for core in 0..cores {
                self.wake(CoreAt { node, life, core });
            }
            let is_member = self.members.is_member(node);
            if is_member && !self.nodes[node].is_up() && self.options.stays_dead != Some(node) {
                self.boot(node)?;
            }
        }
        if let Some(node) = self.options.stays_dead
            && self.nodes[node].is_up()
        {
            self.kill(node, Death::Power, None);
        }
        self.nodes.iter_mut().for_each(|node| node.clocks.repair(self.now_ns));
        self.release_all();
        self.model.disturbances.heal(self.now_ns + 1_500 * MS);
        self.model.healed_ns = Some(self.now_ns + 1_500 * MS);
        Ok(())
    }
}

/// Returns how an attempt ends, as the shard's outcome.
pub fn outcome_of(ending: &Ending) -> CallbackOutcome {
    match ending.outcome {
        Outcome::Delivered => CallbackOutcome::Delivered,
        Outcome::Rejected => CallbackOutcome::Rejected,
        Outcome::TimedOut => CallbackOutcome::TimedOut,
        Outcome::Unreachable => CallbackOutcome::Unreachable,
        Outcome::Stale => CallbackOutcome::Stale,
    }
}
