//! The loop of one core's thread: a turn, then one io_uring_enter, which waits until the next due
//! tick, the next deadline, or an event.

// May panic: indices 2.
// Why it does not: cores 2.

use std::sync::atomic::Ordering::Relaxed;

use crate::base::time::{MonoNs, Now, earlier};
use crate::core::turn::turn;
use crate::node::engine::Engine;
use crate::node::publish::publish;
use crate::ring::{RingError, Wait, monotonic};

/// How long in ms an orderly stop waits for running callbacks.
const STOP_MS: u64 = 2_000;
/// How long in ms an orderly stop waits for unsent answers after the last callback.
const STOP_FLUSH_MS: u64 = 200;
/// The shortest time in ms between two publications of meters that nobody asked for, and the fewest
/// turns, so that short turns hardly pay for publications.
const PUBLISH_EVERY_MS: u64 = 1;
const PUBLISH_EVERY_TURNS: u32 = 64;
/// How late in ms a core with few turns publishes what they have counted. A
/// reader that cannot wait asks. A timer that ends soon is a cost of its own: in a virtual machine
/// each sleep would leave the machine to set it.
const PUBLISH_LATEST_MS: u64 = 50;
/// Pause in ms before the rest of the changes of statistics tags is told, even if nothing else
/// happens, when the control thread has not taken all of them.
const TAGS_BEHIND_MS: u64 = 100;

/// The last publication of meters.
#[derive(Default)]
struct Published {
    at: MonoNs,
    turns_since: u32,
}

impl Published {
    fn may_come_again(&self, now: MonoNs) -> bool {
        self.turns_since >= PUBLISH_EVERY_TURNS && now >= self.at.plus_ms(PUBLISH_EVERY_MS)
    }
}

impl Engine {
    /// Runs until told to stop and done, or until the ring fails.
    pub fn run(mut self) -> Result<(), RingError> {
        let mut wait = Wait::Poll;
        let mut published = Published::default();
        while !self.stop.load(Relaxed) {
            self.ring.turn(wait, &mut self.completions)?;
            let now = self.now();
            if wait.is_over(now.mono) || !self.stays_at_rest(now) {
                turn(&mut self, now);
                wait = self.measure(now, &mut published);
                if self.failed.is_some() {
                    return self.failed.take().map_or(Ok(()), Err);
                }
            }
        }
        self.drain()
    }

    /// Publishes what the turns since the last publication have counted, if it is time. Returns how
    /// long the next enter may wait.
    fn measure(&mut self, began: Now, published: &mut Published) -> Wait {
        let ended = monotonic();
        let meters = &self.meters[self.own];
        let turn_us = ended.since_ns(began.mono) / 1_000;
        meters.turns.add(1);
        meters.turn.record_us(turn_us);
        if turn_us > self.limits.turn_budget_us {
            meters.turns_over_budget.add(1);
            let requests_ns = self.clients.service.time.spent_ns();
            self.watchdog.judge((began.mono, ended), requests_ns).count(meters);
        }
        let wait = self.next_wait(ended);
        published.turns_since += 1;
        let latest = published.at.plus_ms(PUBLISH_LATEST_MS);
        // Whoever gives a command waits until the figures tell that it was obeyed.
        let told = self.meters[self.own].commands_taken.get();
        let has_obeyed = told != self.commands.taken();
        let is_awaited = has_obeyed || self.commands.is_asked();
        if ended < latest && !is_awaited && !published.may_come_again(ended) {
            return wait.at_most(latest);
        }
        *published = Published { at: ended, turns_since: 0 };
        let asked = self.commands.asked();
        let is_behind = publish(self);
        self.commands.tell(asked);
        if is_behind { wait.at_most(ended.plus_ms(TAGS_BEHIND_MS)) } else { wait }
    }

    /// How long the next enter may wait, as far as work is concerned.
    fn next_wait(&mut self, ended: MonoNs) -> Wait {
        let has_more = self.clients.has_more() || self.timestamps.has_more();
        let has_more = has_more || self.duties.surveys.has_more();
        if has_more || self.callbacks.has_more() || !self.core.mesh().may_sleep() {
            return Wait::Poll;
        }
        let due = self.core.next_wake();
        let due = due.map(|tick| MonoNs(tick.begins().0.saturating_sub(self.spin_ns)));
        let connections = earlier(self.clients.next_wake(), self.timestamps.next_wake());
        match earlier(due, earlier(self.callbacks.next_wake(), connections)) {
            Some(deadline) if deadline <= ended => Wait::Poll,
            Some(deadline) => Wait::Until(deadline),
            None => Wait::Event,
        }
    }

    /// Stops in order: no new connection, no new pop; running callbacks finish, answers leave.
    fn drain(&mut self) -> Result<(), RingError> {
        let began = self.now().mono;
        self.ring.stop_listening();
        self.core.shard_mut().stop_popping();
        self.clients.stop();
        self.timestamps.stop();
        if let Some(journal) = self.core.journal() {
            journal.stop();
        }
        let mut idle_since = None;
        loop {
            let at = self.now();
            let is_running = self.core.shard().in_flight() > 0;
            if is_running && at.mono < began.plus_ms(STOP_MS) {
                idle_since = None;
            } else {
                let since = *idle_since.get_or_insert(at.mono);
                // What the last pops told other ranks must leave, or the other ranks would pop as
                // well.
                let is_closed = self.clients.open() == 0 && self.timestamps.open() == 0;
                let is_stored = self.core.is_stored();
                let is_done = is_closed && is_stored && self.core.peers_settled();
                let may_end = is_stored || at.mono >= began.plus_ms(STOP_MS);
                if is_done || may_end && at.mono >= since.plus_ms(STOP_FLUSH_MS) {
                    // No thread reads what is left to tell of tags.
                    let _ = publish(self);
                    return Ok(());
                }
            }
            turn(self, at);
            self.ring.turn(Wait::Until(at.mono.plus_ms(20)), &mut self.completions)?;
        }
    }
}
