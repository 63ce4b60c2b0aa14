//! The loop of one core: drives shard, connections and lanes with the completions of its ring.
//!
//! A turn is: completions (parsed and routed as they are read) -> mesh inbox -> wheel, bounded pops
//! -> callback lanes -> one io_uring_enter, which waits until the next due tick, the next deadline,
//! or an event.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::base::limits::Limits;
use crate::base::time::{MonoNs, Now};
use crate::ring::{Completion, Mailbox, Ring, RingError, Wait, now};
use crate::shard::effects::Attempt;

use super::lanes::Lanes;
use super::meters::CoreMeters;
use super::owner::Owner;
use super::publish::publish;
use super::server::Server;

/// Callbacks that still run at an orderly stop are waited for this long.
const STOP_MS: u64 = 2_000;
/// After the last callback, answers still being sent are waited for this long.
const STOP_FLUSH_MS: u64 = 200;
/// Meters are published at most this often while the core is busy.
const PUBLISH_EVERY_NS: u64 = 10_000_000;

/// Everything that one core drives.
pub struct Engine {
    /// The ring, with its listener.
    pub ring: Ring,
    /// Connections and the core behind them.
    pub server: Server,
    /// Callback connections.
    pub lanes: Lanes,
    /// Rings of all cores, in shard order.
    pub mailboxes: Arc<[Mailbox]>,
    /// What this core counts, for others to read.
    pub meters: Arc<[CoreMeters]>,
    /// Which of them is this core's.
    pub own: usize,
    /// Set by whoever wants the node to stop.
    pub stop: Arc<AtomicBool>,
    /// Bounds.
    pub limits: Limits,
    /// Wake that much before a due tick and spin.
    pub spin_ns: u64,
}

impl Engine {
    /// Runs until told to stop and done, or until the ring fails.
    pub fn run(mut self) -> Result<(), RingError> {
        let mut completions = Vec::new();
        let mut attempts = Vec::new();
        let mut wait = Wait::Poll;
        let mut published = MonoNs(0);
        while !self.stop.load(Relaxed) {
            self.ring.turn(wait, &mut completions)?;
            let now = now();
            self.turn(now, &mut completions, &mut attempts);
            wait = self.measure(now, &mut published);
        }
        self.drain(&mut completions, &mut attempts)
    }

    fn turn(&mut self, now: Now, completions: &mut Vec<Completion>, attempts: &mut Vec<Attempt>) {
        self.server.service.core.mesh().woke();
        for completion in completions.drain(..) {
            self.complete(now, completion);
        }
        self.server.resume(now, &mut self.ring);
        self.server.service.core.inbox(now);
        self.callbacks_finished(now, attempts);
        self.server.service.core.tick(now);
        self.start_attempts(now, attempts);
        self.lanes.expire(now, &mut self.ring);
        self.callbacks_finished(now, attempts);
        self.release_hosts();
        self.server.expire(now, &mut self.ring);
        self.server.deliver_replies();
        self.server.flush(now, &mut self.ring);
        for sibling in self.server.service.core.mesh().take_wakes() {
            self.ring.wake(self.mailboxes[usize::from(sibling.0)]);
            self.meters[self.own].mesh_wakes.add(1);
        }
    }

    fn complete(&mut self, now: Now, completion: Completion) {
        let (ring, server, lanes) = (&mut self.ring, &mut self.server, &mut self.lanes);
        match completion {
            Completion::Accepted { socket } => server.accept(now, ring, socket),
            Completion::AcceptFailed(_) => server.refused += 1,
            Completion::Connected { owner, result, .. } => match Owner::from_bits(owner) {
                Owner::Callback(place) => lanes.connected(now, ring, place, result.is_ok()),
                Owner::Client(_) => unreachable!("clients connect to us"),
            },
            Completion::Received { owner, bytes, .. } => match Owner::from_bits(owner) {
                Owner::Client(place) => server.received(now, ring, place, &bytes),
                Owner::Callback(place) => lanes.received(now, ring, place, &bytes),
            },
            Completion::Ended { owner, error, .. } => match Owner::from_bits(owner) {
                Owner::Client(place) => server.ended(ring, place, error.is_some()),
                Owner::Callback(place) => lanes.ended(ring, place),
            },
            Completion::Sent { owner, buffer, result, .. } => match Owner::from_bits(owner) {
                Owner::Client(place) => server.sent(now, ring, place, buffer, result.is_ok()),
                Owner::Callback(place) => lanes.sent(place, buffer),
            },
            Completion::Woken => lanes.resolved(now, ring),
        }
    }

    /// Tells the shard which callbacks ended, and starts those that get their places, until none is
    /// left.
    fn callbacks_finished(&mut self, now: Now, attempts: &mut Vec<Attempt>) {
        while let Some((ticket, outcome)) = self.lanes.next_finished() {
            self.server.service.core.callback_finished(now, ticket, outcome);
            self.start_attempts(now, attempts);
        }
    }

    fn start_attempts(&mut self, now: Now, attempts: &mut Vec<Attempt>) {
        self.server.service.core.attempts(attempts);
        for attempt in attempts.drain(..) {
            if attempt.is_first {
                let late_ns = now.mono.since_ns(attempt.due.begins());
                self.meters[self.own].lateness.record_us(late_ns / 1_000);
            }
            let shard = self.server.service.core.shard();
            self.lanes.start(now, &mut self.ring, shard, &attempt);
        }
    }

    fn release_hosts(&mut self) {
        while let Some(host) = self.server.service.core.outbox().released.pop() {
            self.lanes.release(&mut self.ring, host);
        }
    }

    /// Publishes what the turn counted and finds out how long the next may wait.
    fn measure(&mut self, began: Now, published: &mut MonoNs) -> Wait {
        let ended = now().mono;
        let meters = &self.meters[self.own];
        let turn_us = ended.since_ns(began.mono) / 1_000;
        meters.turns.add(1);
        meters.turn.record_us(turn_us);
        meters.turns_over_budget.add(u64::from(turn_us > self.limits.turn_budget_us));
        let wait = self.next_wait();
        let meters = &self.meters[self.own];
        if wait != Wait::Poll || ended.since_ns(*published) >= PUBLISH_EVERY_NS {
            *published = ended;
            publish(meters, &mut self.server, &self.lanes, &self.ring);
        }
        wait
    }

    fn next_wait(&mut self) -> Wait {
        let has_more = self.server.has_more() || !self.server.service.core.mesh().may_sleep();
        if has_more {
            return Wait::Poll;
        }
        let due = self
            .server
            .service
            .core
            .next_wake()
            .map(|tick| MonoNs(tick.begins().0.saturating_sub(self.spin_ns)));
        let deadline = [due, self.server.next_wake(), self.lanes.next_wake()].into_iter().flatten();
        match deadline.min() {
            Some(deadline) if deadline <= now().mono => Wait::Poll,
            Some(deadline) => Wait::Until(deadline),
            None => Wait::Event,
        }
    }

    /// An orderly stop: no new connection, no new pop; running callbacks finish, answers leave.
    fn drain(
        &mut self,
        completions: &mut Vec<Completion>,
        attempts: &mut Vec<Attempt>,
    ) -> Result<(), RingError> {
        let began = now().mono;
        self.ring.stop_listening();
        self.server.service.core.shard_mut().stop_popping();
        self.server.stop();
        let mut idle_since = None;
        loop {
            let at = now();
            let is_running = self.server.service.core.shard().in_flight() > 0;
            if is_running && at.mono < began.plus_ms(STOP_MS) {
                idle_since = None;
            } else {
                let since = *idle_since.get_or_insert(at.mono);
                if self.server.open() == 0 || at.mono >= since.plus_ms(STOP_FLUSH_MS) {
                    publish(&self.meters[self.own], &mut self.server, &self.lanes, &self.ring);
                    return Ok(());
                }
            }
            self.turn(at, completions, attempts);
            self.ring.turn(Wait::Until(at.mono.plus_ms(20)), completions)?;
        }
    }
}
