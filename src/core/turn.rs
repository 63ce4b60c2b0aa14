//! The order of one turn of a core, for the engine under io_uring and for the simulators in virtual
//! time. This module decides when a step is done; the driver does it.

use crate::base::ids::{HostId, ShardIndex};
use crate::base::time::Now;
use crate::core::Core;
use crate::core::peers::actions::PeerAction;
use crate::shard::effects::{Attempt, CallbackOutcome, Ticket};

/// A turn that has taken this long begins no further callback. The process got no time, and the
/// shard decides anew about what is due. 500 ms are well below the delay of a rank (2 s).
const FROZEN_NS: u64 = 500_000_000;

/// What stands around a core: sockets and clocks in production, a world in the simulators.
pub trait Driver {
    /// The core that is driven.
    fn core(&mut self) -> &mut Core;

    /// Hands the core what has arrived since the last turn: requests, what peers say, orders.
    fn arrivals(&mut self, now: Now);

    /// Returns the next callback that has ended.
    fn next_ended(&mut self) -> Option<(Ticket, CallbackOutcome)>;

    /// Reads the present time. `began` is when the turn began.
    fn present(&self, began: Now) -> Now;

    /// Begins a callback. The driver must copy the content of the attempt from the shard at once,
    /// because the content may change as soon as this returns.
    fn call(&mut self, now: Now, attempt: &Attempt);

    /// Tells that a host has lost its lane: no due timer names the host.
    fn release(&mut self, host: HostId);

    /// Ends what is overdue, callbacks among it.
    fn expire(&mut self, now: Now);

    /// Does what the core asks for a peer.
    fn act(&mut self, now: Now, action: PeerAction);

    /// Does what the core's journal asks for: its pieces and its orders. Called only for a core
    /// with a journal.
    fn store(&mut self, now: Now);

    /// Sends what the turn has produced. Answers to clients leave here: the messages for peers on
    /// which the answers rest have been handed to their links.
    fn answer(&mut self, now: Now);

    /// Wakes a sibling that sleeps and was sent something.
    fn wake(&mut self, sibling: ShardIndex);

    /// Takes note that a step has ended.
    #[inline]
    fn step_ended(&mut self, _step: Step) {}
}

/// A part of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The core gets what has arrived.
    Arrivals,
    /// The core takes requests and replies of sibling cores.
    Siblings,
    /// Callbacks that ended are told to the shard, and callbacks that get their places begin.
    Ended,
    /// The wheel turns, and callbacks that are due begin.
    Wheel,
    /// What is overdue ends.
    Overdue,
    /// Messages for peers go to their links, and peers are dialled and watched.
    Peers,
    /// What has changed goes to the journal, if there is one.
    Journal,
    /// Answers leave.
    Answers,
    /// Siblings are woken.
    Wakes,
}

/// The steps of a turn, in order.
pub const STEPS: [Step; 9] = [
    Step::Arrivals,
    Step::Siblings,
    Step::Ended,
    Step::Wheel,
    Step::Overdue,
    Step::Peers,
    Step::Journal,
    Step::Answers,
    Step::Wakes,
];

/// Takes one whole turn, which began at `now`.
#[inline]
pub fn turn(driver: &mut impl Driver, now: Now) {
    for step in STEPS {
        take(step, driver, now);
        driver.step_ended(step);
    }
}

/// Takes one step of a turn, which began at `now`.
#[inline]
pub fn take(step: Step, driver: &mut impl Driver, now: Now) {
    match step {
        Step::Arrivals => {
            driver.core().mesh().woke();
            driver.core().look_at_clock(now);
            driver.arrivals(now);
        }
        Step::Siblings => driver.core().inbox(now),
        Step::Ended => callbacks_ended(driver, now),
        Step::Wheel => {
            driver.core().tick(now);
            // Hosts are released before callbacks begin, because callbacks may go to hosts that got
            // the lanes.
            while let Some(host) = driver.core().outbox.released.pop() {
                driver.release(host);
            }
            begin_callbacks(driver, now);
        }
        Step::Overdue => {
            driver.expire(now);
            callbacks_ended(driver, now);
        }
        Step::Peers => {
            let mut actions = std::mem::take(&mut driver.core().actions);
            driver.core().peers(now, &mut actions);
            for action in actions.drain(..) {
                driver.act(now, action);
            }
            driver.core().actions = actions;
        }
        Step::Journal => {
            if driver.core().journal_turn(now) {
                driver.store(now);
            }
        }
        Step::Answers => driver.answer(now),
        Step::Wakes => {
            while let Some(sibling) = driver.core().shard_mut().next_woken() {
                driver.wake(sibling);
            }
            while let Some(sibling) = driver.core().mesh().next_wake() {
                driver.wake(sibling);
            }
        }
    }
}

/// Tells the shard which callbacks ended, and begins the callbacks that get their places, until no
/// ended callback is left.
fn callbacks_ended(driver: &mut impl Driver, now: Now) {
    while let Some((ticket, outcome)) = driver.next_ended() {
        driver.core().callback_finished(now, ticket, outcome);
        begin_callbacks(driver, now);
    }
}

/// Begins the callbacks that the shard has asked for, before anything else changes the shard.
fn begin_callbacks(driver: &mut impl Driver, now: Now) {
    if driver.core().outbox.attempts.is_empty() {
        return;
    }
    let core = driver.core();
    let empty = std::mem::take(&mut core.attempts);
    let mut attempts = std::mem::replace(&mut core.outbox.attempts, empty);
    let present = driver.present(now);
    if present.mono.since_ns(now.mono) >= FROZEN_NS {
        // The process was stopped in this turn. Other nodes may have done these pops meanwhile.
        for attempt in attempts.drain(..) {
            driver.core().withheld += 1;
            driver.core().callback_finished(present, attempt.ticket, CallbackOutcome::Stale);
            begin_callbacks(driver, present);
        }
    }
    for attempt in attempts.drain(..) {
        driver.call(now, &attempt);
    }
    driver.core().attempts = attempts;
}
