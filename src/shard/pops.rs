//! From due to delivered: pops, attempts, retries, giving up.
//!
//! 1. A pop waits for a place at its host and is attempted.
//! 2. A pop that fails is left to the next rank.
//! 3. The last rank tries again, with growing pauses, until the next pop is due. The last pop of a
//!    timer is tried until a limit.
//! 4. Then the pop is given up and counted. A repeating timer goes on with its next interval.

// May panic: assertions 1.
// Why it does not: ordered 1.

use crate::base::ids::{HostId, Slot, mix};
use crate::base::limits::RANK_DELAY_MS;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, Tick};
use crate::wire::attributes::Attributes;
use crate::wire::dead_letter::GivenUp;

use super::Shard;
use super::effects::{CallbackOutcome, Outbox, Target, Ticket};
use super::records::{Host, Next, Record, State};
use super::reports::PopEnd;

/// Waiting pops of hosts in trouble that are moved back into the wheel per tick.
const MOVED_BACK_PER_TICK_MAX: usize = 256;
/// Least pause of a pop whose host is in trouble: 100 000 of them then cost at most 200 000 looks a
/// second.
const DEFERRED_MS_MIN: u64 = 500;
/// Places in the table of hosts looked at per sweep.
const HOSTS_PER_SWEEP: usize = 1_024;

impl Shard {
    /// Looks at what has come due.
    pub(super) fn turn_wheel(&mut self, now: Now, tick: Tick, outbox: &mut Outbox) {
        if self.pops.is_stopping {
            return;
        }
        let was_behind = self.pops.is_behind;
        let mut due = std::mem::take(&mut self.pops.due);
        let advanced = self.records.come_due(tick, self.config.pops_per_turn_max, &mut due);
        self.pops.is_behind = !advanced.caught_up;
        self.counters.wheel_moved += advanced.moved;
        for slot in due.drain(..) {
            match self.records.get(slot).state {
                State::Armed | State::BackingOff => {
                    self.pop(now, slot, was_behind, outbox);
                }
                State::HandedOver => self.take_back(now, slot, outbox),
                State::Parked => self.letter_is_over(now, slot, outbox),
                State::Tombstone => self.end_tombstone(now, slot),
                state => unreachable!("a slot in state {state:?} is not in the wheel"),
            }
        }
        self.pops.due = due;
    }

    /// Moves waiting pops of hosts in trouble back into the wheel, a portion per tick.
    pub(super) fn hosts_in_trouble(&mut self, now: Now, outbox: &mut Outbox) {
        if self.pops.is_stopping {
            return;
        }
        for _ in 0..MOVED_BACK_PER_TICK_MAX {
            let Some(slot) = self.records.next_in_trouble() else { return };
            self.pop(now, slot, true, outbox);
        }
    }

    /// Releases idle hosts and finds out how overdue the oldest waiting pop is. Called once a
    /// second.
    pub(super) fn sweep(&mut self, tick: Tick, outbox: &mut Outbox) {
        self.records.hosts_mut().sweep(tick, HOSTS_PER_SWEEP, &mut outbox.released);
        self.give_ups.sweep();
        let waiting = self.records.oldest_waiting();
        let oldest = waiting.into_iter().chain(self.pops.oldest_failing.get(tick)).min();
        self.counters.oldest_overdue_ms = oldest.map_or(0, |due| tick - due);
    }

    /// Begins a pop that is due, or due to be tried again. `has_waited`: the pop may have waited
    /// here for so long that the next rank makes it.
    fn pop(&mut self, now: Now, slot: Slot, has_waited: bool, outbox: &mut Outbox) {
        let tick = now.mono.tick_floor();
        let record = *self.records.get(slot);
        if self.records.hosts().has_rules() && self.is_left_while_paused(tick, slot, &record) {
            if !is_planted(Bug::PauseLeavesQuestionOpen) {
                // What it asked just before the pause is asked anew after that.
                self.questions.open.remove(&record.id.0);
            }
            let again = self.look_again_at(tick, &record);
            return self.records.transition(slot, Next::Armed(again));
        }
        if self.waits_for_others(tick, slot, outbox) {
            return;
        }
        let hosts = self.records.hosts_mut();
        let host = hosts.admit(record.authority, tick, &mut outbox.released);
        if let Some(host) = host.filter(|host| hosts.is_paused(*host)) {
            return self.wait_at_host(slot, host);
        }
        let (is_in_trouble, takes_one) = match host.map(|host| (host, hosts.get(host))) {
            Some((host, entry)) => {
                let is_next = entry.waiting() == 0 || entry.is_in_trouble();
                (entry.is_in_trouble(), is_next && hosts.takes_one_more(host, tick))
            }
            // All lanes are taken. That says nothing of the host.
            None => (false, true),
        };
        let may_start = takes_one && host.is_some_and(|host| hosts.has_place(host));
        self.counters.without_lane += u64::from(host.is_none());
        if record.attempts == 0 && self.is_missed(tick, &record) {
            self.counters.missed += 1;
            return self.pop_over(now, slot, false, outbox);
        }
        let is_held_back = is_in_trouble || host.is_none();
        if is_held_back || record.attempts > 0 {
            self.pops.oldest_failing.see(self.records.due(&record));
            let give_up_at = self.give_up_at(&record);
            // After a long turn even a new pop may be past this moment. A pop that may be tried is
            // not given up untried, nor is one that this node alone keeps from being tried.
            let is_kept = may_start || takes_one && !is_planted(Bug::LackGivesUp);
            if tick >= give_up_at && (record.attempts > 0 || !is_kept) {
                return self.give_up(now, slot, GivenUp::Age, outbox);
            }
        }
        let is_stuck = !may_start && is_held_back && self.is_left_to_others(&record);
        if is_stuck || has_waited && self.is_next_ranks_turn(tick, &record) {
            return self.hand_over(tick, slot);
        }
        match host {
            Some(host) if may_start && self.records.hosts_mut().may_begin(host, now) => {
                self.attempt(now, slot, &record, host, outbox);
            }
            Some(host) if !is_in_trouble => self.wait_at_host(slot, host),
            Some(_) if may_start || !takes_one => self.back_off(now, slot, &record, None),
            _ => self.put_off(tick, slot, &record),
        }
    }

    /// Whether another rank tries a pop that this one cannot try.
    fn is_left_to_others(&self, record: &Record) -> bool {
        self.has_backup(record) && self.policy_of(record).is_none()
    }

    /// Files a slot that is in no list until this node may have what it lacks for the pop: a lane,
    /// a file, a port, memory. However long that takes, the pop is not given up for it.
    fn put_off(&mut self, tick: Tick, slot: Slot, record: &Record) {
        let spread_ms = mix(record.id.0 ^ tick.0) % (DEFERRED_MS_MIN / 2);
        self.records.transition(slot, Next::BackingOff(tick + DEFERRED_MS_MIN + spread_ms));
    }

    /// Handles that this node could not make an attempt, because it lacked something.
    fn lacked(&mut self, tick: Tick, slot: Slot) {
        let record = *self.records.get(slot);
        if self.is_left_to_others(&record) {
            return self.hand_over(tick, slot);
        }
        self.put_off(tick, slot, &record);
    }

    pub(super) fn callback_finished(
        &mut self,
        now: Now,
        ticket: Ticket,
        outcome: CallbackOutcome,
        outbox: &mut Outbox,
    ) {
        let tick = now.mono.tick_floor();
        self.count(outcome);
        self.counters.in_flight -= 1;
        let hosts = self.records.hosts_mut();
        if !is_planted(Bug::LeakCredit) || outcome != CallbackOutcome::TimedOut {
            hosts.give_back_place(ticket.host);
        }
        match outcome {
            CallbackOutcome::Delivered
            | CallbackOutcome::Rejected
            | CallbackOutcome::Gone
            | CallbackOutcome::Later(_) => hosts.succeeded(ticket.host),
            CallbackOutcome::Unreachable | CallbackOutcome::TimedOut => {
                hosts.failed(ticket.host, tick);
            }
            CallbackOutcome::Lacking if is_planted(Bug::LackCountsAgainstHost) => {
                hosts.failed(ticket.host, tick);
            }
            CallbackOutcome::Denied | CallbackOutcome::Stale | CallbackOutcome::Lacking => {}
        }
        if !self.is_current(&ticket) {
            if !self.ends_before_action(now, (&ticket, outcome), outbox) {
                self.counters.outdated += 1;
            }
        } else {
            match outcome {
                CallbackOutcome::Delivered => self.pop_over(now, ticket.slot, true, outbox),
                CallbackOutcome::Denied => {
                    self.give_up(now, ticket.slot, GivenUp::Denied, outbox);
                }
                CallbackOutcome::Stale if self.waits_for_others(tick, ticket.slot, outbox) => {}
                // The process may have been stopped since the attempt was decided.
                CallbackOutcome::Stale if self.is_untried_missed(tick, ticket.slot) => {
                    self.counters.missed += 1;
                    self.pop_over(now, ticket.slot, false, outbox);
                }
                CallbackOutcome::Stale if self.is_retry_too_old(tick, ticket.slot) => {
                    self.give_up(now, ticket.slot, GivenUp::Age, outbox);
                }
                CallbackOutcome::Stale if self.records.hosts().is_paused(ticket.host) => {
                    self.wait_at_host(ticket.slot, ticket.host);
                }
                CallbackOutcome::Stale => {
                    let record = *self.records.get(ticket.slot);
                    self.attempt(now, ticket.slot, &record, ticket.host, outbox);
                }
                CallbackOutcome::Lacking if !is_planted(Bug::LackCountsAsAttempt) => {
                    self.lacked(tick, ticket.slot);
                }
                CallbackOutcome::Gone if self.end_by_server(now, ticket.slot, outbox) => {}
                CallbackOutcome::Later(after) => {
                    let pause_ms = self.asked_pause_ms(now, after);
                    self.pop_failed(now, (ticket.slot, outcome), pause_ms, outbox);
                }
                _ => self.pop_failed(now, (ticket.slot, outcome), 0, outbox),
            }
        }
        self.start_short(now, outbox);
        self.start_waiting(now, ticket.host, outbox);
    }

    /// Starts waiting pops of a host as far as places allow. Lists the host if it is in trouble.
    pub(super) fn start_waiting(&mut self, now: Now, host: HostId, outbox: &mut Outbox) {
        let tick = now.mono.tick_floor();
        if let Some(flow) = self.records.hosts().flow_of(host) {
            return self.start_by_rule(now, host, flow, outbox);
        }
        while !self.pops.is_stopping && self.records.hosts().may_start(host, tick) {
            let Some(slot) = self.records.next_waiting(host) else { return };
            let record = self.without_missed(tick, slot);
            if self.is_next_ranks_turn(tick, &record) {
                self.hand_over(tick, slot);
            } else if record.attempts > 0 && self.is_too_old(tick, &record) {
                self.give_up(now, slot, GivenUp::Age, outbox);
            } else if !self.waits_for_others(tick, slot, outbox) {
                self.attempt(now, slot, &record, host, outbox);
            }
        }
        self.records.hosts_mut().list_if_troubled(host);
        self.list_if_short(host);
    }

    /// Starts pops of hosts that wait for a place of the core, as far as places are free.
    #[inline]
    pub(super) fn start_short(&mut self, now: Now, outbox: &mut Outbox) {
        while !self.pops.is_stopping
            && let Some(host) = self.records.hosts_mut().next_short()
        {
            self.start_waiting(now, host, outbox);
        }
    }

    /// Whether the record is in the state that the ticket was written for and waits for this
    /// result.
    fn is_current(&self, ticket: &Ticket) -> bool {
        self.records.contains(ticket.slot) && {
            let record = self.records.get(ticket.slot);
            record.id == ticket.id
                && (record.version == ticket.version
                    || self.records.continues(record, ticket.version)
                    || is_planted(Bug::AcceptLowerVersion))
                && record.sequence + 1 == ticket.sequence
                && record.state == State::InFlight
        }
    }

    /// Whether another rank, or another site, tries after this one.
    fn has_backup(&self, record: &Record) -> bool {
        let placement = self.records.placement_of(record);
        let behind = placement.actives_behind();
        if behind == 0 {
            return placement.has_sites_behind();
        }
        behind & !self.ranks_of(&placement.replicas, self.peers.dead()) != 0
            || placement.has_sites_behind()
    }

    /// Whether a pop has waited here until the next rank began with it, for a place at its host or
    /// because this core had no time. If this rank began, too, both ranks would make most pops of a
    /// herd that takes longer than that.
    pub(super) fn is_next_ranks_turn(&self, tick: Tick, record: &Record) -> bool {
        let placement = self.records.placement_of(record);
        let behind = placement.actives_behind();
        behind != 0
            && record.attempts == 0
            && tick >= self.records.pops_at(record) + RANK_DELAY_MS
            && behind & !self.ranks_of(&placement.replicas, self.peers.dead()) != 0
            && self.policy_of(record).is_none()
            && !self.is_ruled(record)
    }

    /// Handles that an attempt failed. `pause_ms` is how long the server wants to be left alone.
    fn pop_failed(
        &mut self,
        now: Now,
        (slot, outcome): (Slot, CallbackOutcome),
        pause_ms: u64,
        outbox: &mut Outbox,
    ) {
        let tick = now.mono.tick_floor();
        if is_planted(Bug::ForgetFailure) {
            return self.pop_over(now, slot, true, outbox);
        }
        let record = self.records.fail(slot);
        let Attributes { retry: policy, on_failure, .. } = self.attributes_of(&record);
        let is_told = policy.is_some() || on_failure.is_some();
        if is_told || self.config.callbacks.dead_letters.plain {
            self.note_failure(&record, outcome);
        }
        match policy {
            Some(policy) if Self::is_exhausted(&policy, &record) => {
                self.give_up(now, slot, GivenUp::Attempts, outbox);
            }
            Some(_) => self.back_off(now, slot, &record, Some(pause_ms)),
            None if self.has_backup(&record) => self.hand_over(tick, slot),
            None => self.back_off(now, slot, &record, Some(0)),
        }
    }

    /// Leaves a pop to the next rank. This rank waits until all others have had their try, and
    /// takes the pop back if none has told of it by then. The slot is in no list.
    pub(super) fn hand_over(&mut self, tick: Tick, slot: Slot) {
        let record = *self.records.get(slot);
        let placement = *self.records.placement_of(&record);
        let ranks = u64::from(placement.replicas.len());
        let sites = u64::from(placement.sites.len()) * u64::from(placement.factor);
        let others_ms = (ranks + sites) * RANK_DELAY_MS + self.config.callbacks.timeout_ms;
        let due = self.records.due(&record);
        let give_up_at = match self.waits_by_rule(&record) {
            true if self.is_without_next(&record) => Tick(u64::MAX),
            // The next pop has its turn here.
            true => self.give_up_at(&record) + placement.delay_ms(self.config.cluster.promotion),
            false => self.give_up_at(&record),
        };
        let back_at = (due.max(tick) + others_ms).min(give_up_at).max(tick + 1);
        self.counters.handed_over += 1;
        self.records.transition(slot, Next::HandedOver(back_at));
    }

    /// Takes a pop back, because no other rank has told of it.
    fn take_back(&mut self, now: Now, slot: Slot, outbox: &mut Outbox) {
        let tick = now.mono.tick_floor();
        let record = self.without_missed(tick, slot);
        if self.waits_by_rule(&record) {
            // The other rank has the same rule. It may be waiting still.
            self.skip_missed(tick, slot);
            return self.pop(now, slot, true, outbox);
        }
        let give_up_at = self.give_up_at(&record);
        // A pop that was left to others untried is tried first.
        if tick >= give_up_at && record.attempts > 0 {
            return self.give_up(now, slot, GivenUp::Age, outbox);
        }
        self.pop(now, slot, false, outbox);
    }

    /// Files a slot that is in no list for its next attempt. `asked_ms` is how long the server
    /// wants to be left alone; `None`: the pop was put off without an attempt.
    ///
    /// - The pause doubles with the failures of the timer, or is what its policy says, and at least
    ///   what the server asked for. A pop with a policy that was put off has made its pause before.
    /// - For a host in trouble the pause lasts until the next probe at least.
    /// - The pause is spread by the id, so that a herd does not come back as one.
    /// - No pause goes beyond the moment of giving up.
    fn back_off(&mut self, now: Now, slot: Slot, record: &Record, asked_ms: Option<u64>) {
        let tick = now.mono.tick_floor();
        let limits = &self.config.callbacks;
        let doublings = u32::from(record.attempts.saturating_sub(1)).min(16);
        let policy = self.policy_of(record).map(|policy| match asked_ms {
            Some(asked_ms) => {
                let (pause_ms, stretch_ms) = Self::pause_by(&policy, record);
                (pause_ms.max(asked_ms), stretch_ms)
            }
            None => (0, DEFERRED_MS_MIN / 2),
        });
        let mut pause_ms = match policy {
            Some((pause_ms, _)) => pause_ms,
            None => (limits.retry_first_ms << doublings).min(limits.retry_max_ms),
        };
        let host = self.records.hosts().host_of(record.authority);
        if host.is_some_and(Host::is_in_trouble) {
            let probe_ms = host.map_or(0, |host| host.probe_at - tick);
            pause_ms = pause_ms.max(probe_ms).max(DEFERRED_MS_MIN);
        }
        let stretch_ms = policy.map_or(pause_ms / 2, |(_, stretch_ms)| stretch_ms);
        let spread_ms = mix(record.id.0 ^ tick.0) % (stretch_ms + 1);
        let give_up_at = self.give_up_at(record);
        // A pause that was asked for is no shorter by a part of a millisecond.
        let from = if policy.is_some() { now.mono.tick_ceil() } else { tick };
        let again = (from + pause_ms + spread_ms).min(give_up_at).max(tick + 1);
        self.records.transition(slot, Next::BackingOff(again));
    }

    fn count(&mut self, outcome: CallbackOutcome) {
        match outcome {
            CallbackOutcome::Delivered => self.counters.delivered += 1,
            CallbackOutcome::Rejected
            | CallbackOutcome::Gone
            | CallbackOutcome::Later(_)
            | CallbackOutcome::Unreachable
            | CallbackOutcome::Denied => self.counters.failed += 1,
            CallbackOutcome::TimedOut => {
                self.counters.failed += 1;
                self.counters.timed_out += 1;
            }
            CallbackOutcome::Stale => self.counters.stale += 1,
            CallbackOutcome::Lacking => self.counters.without_means += 1,
        }
    }

    /// Starts what the rules of destinations let start now.
    #[inline]
    pub(super) fn turn_flows(&mut self, now: Now, outbox: &mut Outbox) {
        if self.records.hosts().has_rules() || !self.pops.released.is_empty() {
            self.start_flows(now, outbox);
        }
    }

    #[inline(never)]
    pub(super) fn start_flows(&mut self, now: Now, outbox: &mut Outbox) {
        let tick = now.mono.tick_floor();
        for host in std::mem::take(&mut self.pops.released) {
            self.start_waiting(now, host, outbox);
        }
        while let Some(flow) = self.records.hosts_mut().next_flow(tick) {
            self.start_flow(now, flow, outbox);
        }
    }

    /// Ends a timer whose server says that there is nothing any more: as a DELETE does. A dead
    /// letter on its way is kept here. False: it could not be ended so.
    pub(super) fn end_by_server(&mut self, now: Now, slot: Slot, outbox: &mut Outbox) -> bool {
        let record = *self.records.get(slot);
        let attributes = self.attributes_of(&record);
        if attributes.letter.is_some_and(|letter| letter.is_on_its_way) {
            // The URI for dead letters takes none.
            self.give_up(now, slot, GivenUp::Attempts, outbox);
            return true;
        }
        if attributes.retry.is_none() || attributes.letter.is_some() {
            return false;
        }
        self.report(now, slot, PopEnd::Gone, outbox);
        let factor = self.records.placement_of(&record).factor;
        let target = Target { id: record.id, factor: Some(factor), filter: None };
        let plan = self.plan_known(target, factor, Some(&record));
        let ended = self.end(now, None, (record.id, Some(slot)), &plan, outbox);
        self.counters.gone += u64::from(ended.is_ok());
        ended.is_ok()
    }

    /// Takes how a callback ended that was under way as a client did something with its timer. If
    /// the host has taken the pop, the pop is done; if it answered 410, the timer ends, also if the
    /// pop was made again meanwhile and is done. False: the end of the callback changes nothing.
    pub(super) fn ends_before_action(
        &mut self,
        now: Now,
        (ticket, outcome): (&Ticket, CallbackOutcome),
        outbox: &mut Outbox,
    ) -> bool {
        let is_gone =
            outcome == CallbackOutcome::Gone && !is_planted(Bug::GoneBeforeActionUnheeded);
        let is_heeded = outcome == CallbackOutcome::Delivered || is_gone;
        let is_it = is_heeded && self.records.contains(ticket.slot) && {
            let record = self.records.get(ticket.slot);
            let is_next = record.sequence + 1 == ticket.sequence;
            record.id == ticket.id
                && record.is_live()
                && (is_gone || record.state != State::InFlight)
                && (is_next || is_gone && record.sequence >= ticket.sequence)
                && self.records.continues(record, ticket.version)
        };
        if is_it && is_gone {
            return self.end_by_server(now, ticket.slot, outbox);
        }
        if is_it {
            self.pop_over(now, ticket.slot, true, outbox);
        }
        is_it
    }
}

#[cfg(test)]
#[path = "pops_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "pops_alone_tests.rs"]
mod alone_tests;
