//! Drives one production core through its turns, which `chronos::core::turn` orders. A turn may be
//! cut into its steps. Between steps time passes, other cores act, and the process may die.

use std::collections::VecDeque;

use chronos::base::ids::{HostId, ShardIndex};
use chronos::base::time::Now;
use chronos::core::Core;
use chronos::core::journal::Order;
use chronos::core::peers::actions::PeerAction;
use chronos::core::turn::{Driver, STEPS, take};
use chronos::shard::effects::{Attempt, CallbackOutcome, Reply, Ticket};
use kit::simulator::disk::WriteId;
use kit::simulator::story::Violation;

use super::model::{Checked, broken};
use super::world::{Event, World};
use kit::simulator::store::Made;

/// Something that a core hears of at its next turn.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    Request(usize),
    Ended(usize),
    Written,
    Made(Made),
}

/// One core, and what the kernel would hold for it.
pub struct CoreDriver {
    pub own: u16,
    pub core: Core,
    pub inputs: VecDeque<Input>,
    inputs_now: usize,
    ended: VecDeque<usize>,
    /// The next step of the turn; `None`: the core sleeps.
    at: Option<usize>,
    pub generation: u64,
    now: Now,
    is_woken: bool,
    is_cut: bool,
    /// A write under way, and when it began.
    pub writing: Option<(WriteId, u64)>,
    /// Whether a segment that was asked for is there.
    has_segments: bool,
    /// When the core last had to wait for its disk for long.
    pub blocked_ns: u64,
    replies: Vec<Reply>,
}

impl CoreDriver {
    pub fn new(own: u16, core: Core, now: Now, began_ns: u64) -> Self {
        Self {
            own,
            core,
            inputs: VecDeque::new(),
            inputs_now: 0,
            ended: VecDeque::new(),
            at: Some(0),
            generation: 0,
            now,
            is_woken: false,
            is_cut: false,
            writing: None,
            has_segments: false,
            blocked_ns: began_ns,
            replies: Vec::new(),
        }
    }

    /// Ends a sleep. Returns whether a step is to be scheduled.
    pub fn wake(&mut self) -> bool {
        self.is_woken = true;
        let slept = self.at.is_none();
        if slept {
            self.at = Some(0);
            self.generation += 1;
        }
        slept
    }

    /// Takes a step of the turn, or what is left of it.
    pub fn step(&mut self, world: &mut World) -> Checked {
        loop {
            let at = self.at.expect("a core that sleeps has no step");
            if at == 0 {
                self.is_woken = false;
                self.now = world.now();
                self.is_cut = world.interleaving.chance(world.options.interleaved_percent);
                self.inputs_now = self.inputs.len();
            }
            if at == STEPS.len() {
                return self.sleep(world);
            }
            let now = self.now;
            let mut turn = Turn { driver: self, world, broken: None };
            take(STEPS[at], &mut turn, now);
            if let Some(violation) = turn.broken {
                return Err(violation);
            }
            self.at = Some(at + 1);
            if self.is_cut {
                let pause_ns = world.interleaving.range(50, world.options.step_ns_max);
                self.next_step(world, world.now_ns + pause_ns);
                return Ok(());
            }
        }
    }

    fn next_step(&mut self, world: &mut World, at_ns: u64) {
        self.generation += 1;
        let (life, core) = (world.life, self.own);
        world.schedule(at_ns, Event::Step { life, core, generation: self.generation });
    }

    fn sleep(&mut self, world: &mut World) -> Checked {
        if self.is_woken || !self.inputs.is_empty() || !self.core.mesh().may_sleep() {
            self.at = Some(0);
            self.next_step(world, world.now_ns + 100);
            return Ok(());
        }
        if !self.has_segments {
            self.blocked_ns = world.now_ns;
        } else if self.writing.is_none() {
            world.is_settled(self.own, self.blocked_ns);
        }
        let until = self.core.next_wake().map(|until| world.when(until.begins().0));
        if until.is_some_and(|until| until <= world.now_ns) {
            self.at = Some(0);
            self.next_step(world, world.now_ns + 100);
            return Ok(());
        }
        if world.interleaving.next().is_multiple_of(64)
            && let Err(what) = self.core.shard().audit()
        {
            return broken("T10", what);
        }
        self.at = None;
        if let Some(until) = until {
            let late_ns = world.interleaving.range(0, 60_000);
            self.next_step(world, until + late_ns);
        }
        Ok(())
    }

    /// Goes on after a sleep whose time is over.
    pub fn rise(&mut self) {
        self.at.get_or_insert(0);
    }
}

/// A core in a step of its turn, and the world around it.
struct Turn<'a> {
    driver: &'a mut CoreDriver,
    world: &'a mut World,
    broken: Option<Violation>,
}

impl Turn<'_> {
    fn note(&mut self, checked: Checked) {
        if let Err(violation) = checked {
            self.broken.get_or_insert(violation);
        }
    }
}

impl Driver for Turn<'_> {
    fn core(&mut self) -> &mut Core {
        &mut self.driver.core
    }

    fn arrivals(&mut self, now: Now) {
        let driver = &mut *self.driver;
        for input in driver.inputs.drain(..driver.inputs_now) {
            let journal = driver.core.journal();
            match input {
                Input::Request(name) => {
                    self.world.hand_over(&mut driver.core, driver.own, now, name);
                }
                Input::Ended(attempt) => driver.ended.push_back(attempt),
                Input::Written => journal.expect("it has one").written(),
                Input::Made(Made::Segment(segment)) => {
                    driver.has_segments = true;
                    journal.expect("it has one").prepared(segment);
                }
                Input::Made(Made::None(why)) => {
                    journal.expect("it has one").not_prepared(now, why);
                }
            }
        }
    }

    fn next_ended(&mut self) -> Option<(Ticket, CallbackOutcome)> {
        let attempt = self.driver.ended.pop_front()?;
        Some(self.world.told(self.driver.own, attempt))
    }

    fn present(&self, _began: Now) -> Now {
        self.world.now()
    }

    fn call(&mut self, _now: Now, attempt: &Attempt) {
        if self.broken.is_none() {
            let begun = self.world.begin_attempt(self.driver.own, &self.driver.core, attempt);
            self.note(begun);
        }
    }

    fn release(&mut self, _host: HostId) {}

    fn expire(&mut self, _now: Now) {
        // The world ends callbacks by itself.
    }

    fn act(&mut self, _now: Now, action: PeerAction) {
        unreachable!("a node alone has no peer: {action:?}");
    }

    fn store(&mut self, now: Now) {
        let own = self.driver.own;
        let journal = self.driver.core.journal().expect("only a core with a journal stores");
        while let Some(order) = journal.next_order() {
            if let Order::Prepare { .. } = order {
                self.driver.has_segments = false;
            }
            self.world.store.order(own, order);
        }
        if let Some(piece) = journal.next_piece() {
            let writing = self.world.begin_write(own, now, &piece);
            self.driver.writing = Some((writing, self.world.now_ns));
        }
        self.world.run_maker();
    }

    fn answer(&mut self, _now: Now) {
        let mut replies = std::mem::take(&mut self.driver.replies);
        self.driver.core.replies(&mut replies);
        for reply in replies.drain(..) {
            let answered = self.world.answered(self.driver.own, &reply);
            self.note(answered);
        }
        self.driver.replies = replies;
    }

    fn wake(&mut self, sibling: ShardIndex) {
        self.world.wake(sibling.0);
    }
}
