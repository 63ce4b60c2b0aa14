//! The invariants. Every attempt, every ending, every answer and every sleep of a core is compared
//! with the model.

use chronos::base::time::{Now, Tick, WallMs};
use chronos::shard::effects::{Answer, Attempt, CallbackOutcome, Ticket, TimerView};
use chronos::wire::attributes::{Attributes, CronTiming};
use chronos::wire::dead_letter::DeadLetter;

use super::actions::{self, Acting};
use super::clients::Wish;
use super::extras::{headers, keeps_policy, pause_ms};
use super::model::{
    CALENDAR_POPS_MAX, Checked, HostMirror, Model, Moment, Pop, TROUBLE_FAILURES, Tally, Write,
    broken,
};

/// Callbacks to hosts that have not answered, of which no more begin on a core in a tick.
const STRANGERS_MAX: u32 = 8;
/// A pop that has been due for so long is in the list of its host, if the core got any time.
const WAITED_MS: u64 = 600;

/// Returns the content of a callback. It is made from the name of the write, so that any mix-up
/// shows.
pub fn opaque(name: usize, bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| b'a' + ((name as u32).wrapping_mul(31) + at) as u8 % 26).collect()
}

/// Returns the path of a callback, which names the write.
pub fn target(name: usize) -> String {
    format!("/{name}")
}

/// Returns the write that a path names.
pub fn name_of(target: &[u8]) -> Option<usize> {
    std::str::from_utf8(target).ok()?.strip_prefix('/')?.parse().ok()
}

/// Returns the authority of a host.
pub fn authority(host: u32) -> String {
    format!("host{host}:80")
}

/// An attempt as the driver sees it begin.
pub struct Begun<'a> {
    pub core: u16,
    pub now: Now,
    pub moment: Moment,
    pub attempt: &'a Attempt,
    pub name: usize,
    pub opaque: &'a [u8],
    pub headers: &'a str,
    pub authority: &'a str,
    /// Which pop of a calendar it is.
    pub cron: Option<CronTiming<'a>>,
    /// How much later than its moments the timer pops.
    pub offset_ms: u64,
    /// The present, as calendars go by it.
    pub wall: WallMs,
    /// When the core had begun its turn before this one, in ticks.
    pub away_since: Tick,
}

impl Begun<'_> {
    /// Whether the version may have risen since another pop of this write: each pop of a calendar
    /// is a new version.
    fn is_anew(&self, by: usize) -> bool {
        by == self.name && self.cron.is_some()
    }
}

impl Model {
    /// Checks T2 to T8 for an attempt that begins.
    pub fn attempt(&mut self, begun: &Begun<'_>, places: u32, late: f64) -> Checked {
        let ticket = &begun.attempt.ticket;
        let (id, sequence) = (ticket.id.0, ticket.sequence);
        let story = format!("timer {id:x} write {} pop {sequence}", begun.name);
        let Some(timer) = self.timers.get(&id) else {
            return broken("T7", format!("{story}: nobody asked for it"));
        };
        let Some(at) = timer.writes.iter().position(|write| write.name == begun.name) else {
            let is_deleted = timer.writes.iter().all(|write| write.wish.is_none());
            let invariant = if is_deleted { "T6" } else { "T7" };
            return broken(invariant, format!("{story}: pops though it was replaced or deleted"));
        };
        self.heeds_actions(begun, at, &story)?;
        self.follows(begun, at, &story)?;
        self.keeps_to_wall(begun, &story)?;
        let mut write = self.timers[&id].writes[at].clone();
        let Some(wish) = write.wish else {
            return broken("T8", format!("{story}: never fires"));
        };
        same_content(begun, &wish, &story)?;
        Self::comes_forward(begun, &write, &story)?;
        keeps_policy(begun, &write, &story)?;
        let is_anew = self.clocks.has_moved(usize::from(begun.core)) && begun.cron.is_some();
        if !write.is_brought_forward(begun) && !is_anew {
            same_start(begun, &write, &wish, &story)?;
            let start = begun.attempt.due.0 - wish.interval_ms.saturating_mul(sequence);
            self.windows.see(id, &write, start, &story)?;
            write.start = Some(start);
        }
        let start = write.start;
        self.next_in_order(begun, &write, &story)?;
        self.makes_up_for_none(begun, &write, &story)?;
        self.version_rises(begun, &story)?;
        let failed = if sequence == write.next { write.failed } else { 0 };
        let number = begun.attempt.number;
        if (number == 1) != (failed == 0) {
            return broken("T9", format!("{story}: {failed} failures, attempt {number}"));
        }
        let is_again = write.stale_in_a_row > 0;
        self.leaves_places(usize::from(begun.core), wish.host, is_again, &story)?;
        self.note_begun(usize::from(begun.core), begun.now.mono.tick_floor().0);
        let host = &mut self.hosts[usize::from(begun.core)][wish.host as usize];
        host.in_flight += 1;
        if host.in_flight > u64::from(places) {
            return broken("R1", format!("{story}: {} callbacks at one host", host.in_flight));
        }
        if host.failures >= TROUBLE_FAILURES && host.in_flight > 1 && !is_again {
            return broken("R4", format!("{story}: more than a probe at a host in trouble"));
        }
        let (core, now_ns) = (usize::from(begun.core), begun.now.mono.0);
        let rules = &mut self.rules[wish.host as usize];
        rules.begin(core, now_ns, is_again, late, &story)?;
        self.tally.attempts += 1;
        self.tally.retried += u64::from(number > 1);
        let skipped = sequence - write.next;
        // What a resume leaves out is not given up.
        self.tally.given_up_min += sequence - write.next.max(write.acts.skips_to).min(sequence);
        self.tally.given_up_max += skipped;
        self.unfile(id);
        let write = &mut self.timers.get_mut(&id).expect("found above").writes[at];
        (write.start, write.offset_ms) = (start, Some(begun.offset_ms));
        (write.next, write.failed, write.pop) = (sequence, failed, Pop::Running);
        write.version = Some(ticket.version.0);
        write.attempts += 1;
        write.acts.is_anew = false;
        self.settle(id, begun.name, begun.moment, begun.now.mono.tick_floor().0);
        Ok(())
    }

    /// Checks R1 and R4: a core has a place for an attempt, and the last place is for a host that
    /// has none.
    fn leaves_places(&self, core: usize, host: u32, is_again: bool, story: &str) -> Checked {
        let taken = self.taken(core) + 1;
        if taken > self.places_per_core {
            return broken("R1", format!("{story}: {taken} callbacks on one core"));
        }
        let has_others = self.hosts[core][host as usize].in_flight > 0;
        if has_others && taken == self.places_per_core && !is_again {
            return broken("R4", format!("{story}: takes the last place beside its own"));
        }
        Ok(())
    }

    fn next_in_order(&self, begun: &Begun<'_>, write: &Write, story: &str) -> Checked {
        let sequence = begun.attempt.ticket.sequence;
        if write.pop == Pop::Running {
            return broken("T3", format!("{story}: pop {} still runs", write.next));
        }
        if sequence < write.next || write.has_ended {
            return broken("T3", format!("{story}: {} is next", write.next));
        }
        if sequence > write.pops() {
            return broken("T8", format!("{story}: only {} pops", write.pops()));
        }
        let wish = write.wish.expect("asked before");
        let host = &self.hosts[usize::from(begun.core)][wish.host as usize];
        for skipped in write.next.max(write.acts.skips_to)..sequence {
            let give_up_at = write.give_up_at(skipped, self.give_up_ms);
            let give_up_at = give_up_at.saturating_sub(write.own_unknown_ms());
            let failed = skipped == write.next && write.failed > 0;
            // What waits as its rule is taken away may then wait for a place.
            // A client may have run it since.
            let came_due = write.due(write.next).min(write.own_due(write.next));
            let has_waited = host.ruled_at.is_some_and(|at| at >= came_due);
            let had_reason = failed || has_waited || host.was_in_trouble_since(give_up_at);
            if begun.now.mono.tick_floor().0 < give_up_at || !had_reason {
                return broken("T5", format!("{story}: skips {skipped} without a failure"));
            }
        }
        Ok(())
    }

    /// Checks F6: when the rule of a host is taken away, a repeating timer makes its present pop, and
    /// none that it missed.
    fn makes_up_for_none(&self, begun: &Begun<'_>, write: &Write, story: &str) -> Checked {
        let wish = write.wish.expect("asked before");
        let host = &self.hosts[usize::from(begun.core)][wish.host as usize];
        let Some(unruled_at) = host.ruled_at.filter(|_| !host.is_ruled) else { return Ok(()) };
        let (sequence, due) = (begun.attempt.ticket.sequence, begun.attempt.due.0);
        let is_untried = begun.attempt.number == 1 && write.stale_in_a_row == 0;
        let is_next = sequence == write.next && write.pop == Pop::Waiting && is_untried;
        let is_next = is_next && !write.is_brought_forward(begun);
        // A core without time may not have come to the pop before.
        let looks_at = self.looks_at(usize::from(begun.core), due.max(write.over_at));
        let has_waited = is_next && looks_at + WAITED_MS <= unruled_at;
        let next_due = due.saturating_add(wish.interval_ms);
        let is_missed = sequence < write.pops() && next_due <= begun.now.mono.tick_floor().0;
        if has_waited && is_missed && write.cron().is_none() && !host.was_kept_since(due) {
            return broken("F6", format!("{story}: due at {due}, no rule since {unruled_at}"));
        }
        Ok(())
    }

    fn version_rises(&mut self, begun: &Begun<'_>, story: &str) -> Checked {
        let ticket = &begun.attempt.ticket;
        let timer = self.timers.get_mut(&ticket.id.0).expect("found by the caller");
        let (version, name) = (ticket.version.0, begun.name);
        let is_it = |write: &Write| write.name == name && write.acts.is_anew;
        let is_acted =
            timer.version.is_some_and(|(_, by)| by == name) && timer.writes.iter().any(is_it);
        if let Some((held, by)) = timer.version
            && (version < held
                || (version == held) != (by == name) && !begun.is_anew(by) && !is_acted)
        {
            return broken("T7", format!("{story}: version {version:x} after {held:x}"));
        }
        timer.version = Some((version, name));
        Ok(())
    }

    /// Checks T9 for an attempt that ended.
    pub fn ending(
        &mut self,
        (core, host): (u16, u32),
        ticket: &Ticket,
        name: usize,
        outcome: CallbackOutcome,
        now: Now,
    ) {
        let id = ticket.id.0;
        let tick = now.mono.tick_floor().0;
        self.note_places(usize::from(core), tick);
        self.hosts[usize::from(core)][host as usize].end(outcome, tick);
        self.rules[host as usize].end(tick);
        self.tally.ends(outcome);
        if self.stray_ended(ticket, name, outcome, now) {
            return;
        }
        let tally = &mut self.tally;
        let timer = self.timers.get_mut(&id).expect("attempts were checked");
        let is_certain = timer.certain().is_some();
        // The attempts may count anew since.
        let is_doubtful = timer.acting.as_ref().is_some_and(Acting::is_doubtful);
        let write = timer.writes.iter_mut().find(|write| write.name == name);
        let Some(write) = write else {
            tally.outdated_min += 1;
            tally.outdated_max += 1;
            return;
        };
        tally.outdated_max += u64::from(!is_certain);
        write.stale_in_a_row =
            if outcome == CallbackOutcome::Stale { write.stale_in_a_row + 1 } else { 0 };
        let mut has_ended = false;
        let policy = write.wish.and_then(|wish| wish.extras.policy);
        match outcome {
            CallbackOutcome::Delivered => has_ended = write.pop_over(now),
            CallbackOutcome::Stale => write.pop = Pop::Waiting,
            // It is looked at again after a pause. Nothing is counted.
            CallbackOutcome::Lacking => write.pop = Pop::Failed,
            CallbackOutcome::Gone if policy.is_some() => {
                tally.gone_min += u64::from(is_certain);
                tally.gone_max += 1;
                (write.has_ended, has_ended) = (true, true);
            }
            _ => {
                (write.pop, write.failed) = (Pop::Failed, write.failed + 1);
                write.failed_at = tick;
                if let Some(policy) = policy {
                    let (least_ms, most_ms) = pause_ms(&policy, write.failed, outcome, now);
                    let from = now.mono.tick_ceil().0;
                    (write.not_before, write.again_by) = (from + least_ms, from + most_ms);
                    let is_last = write.failed >= policy.max_attempts.into();
                    if is_last && is_doubtful {
                        tally.given_up_max += 1;
                        write.becomes_vague();
                    } else if is_last {
                        tally.given_up_min += u64::from(is_certain);
                        tally.letters_min += u64::from(is_certain);
                        tally.given_up_max += 1;
                        has_ended = write.pop_over(now);
                    }
                }
            }
        }
        if has_ended && is_certain {
            self.ended(id, tick);
        }
        self.file(id);
    }

    /// Checks T1, R4 and the time at which the core wakes: a core sleeps only when everything is
    /// done that can be done.
    pub fn sleeps(&self, core: usize, tick: u64, until: Option<Tick>, places: u32) -> Checked {
        for (number, host) in self.hosts[core].iter().enumerate() {
            let mut ahead = host.duties.range((tick + 1, 0)..);
            if let Some(&(by, id)) = ahead.find(|(by, id)| self.earliest(*by, *id) > tick)
                && until.is_none_or(|until| until.0 > by)
                && !self.may_have_ended(id, by)
                && !self.may_be_planned_anew(core, id)
            {
                let what = format!("core {core} sleeps until {until:?}, {id:x} is due at {by}");
                return broken("T1 wake", what);
            }
            let overdue = host.duties.range(..=(tick, u64::MAX));
            let mut overdue = overdue.filter(|(_, id)| {
                !self.may_have_ended(*id, tick) && !self.may_wait_for_next(*id, tick)
            });
            let Some(&(by, id)) = overdue.next() else { continue };
            if self.must_start(core, host, by, tick, places)
                && !self.waits_for_tick(core, tick, until)
            {
                let what = format!(
                    "timer {id:x} was to pop by {by}, core {core} sleeps at {tick}; \
                     host {number} has {} callbacks, {} failures, ended at {}",
                    host.in_flight, host.failures, host.ended_at
                );
                return broken("T1", what);
            }
        }
        Ok(())
    }

    fn note_begun(&mut self, core: usize, tick: u64) {
        let (at, begun) = self.begun[core];
        self.begun[core] = (tick, if at == tick { begun + 1 } else { 1 });
    }

    /// Reports whether so many callbacks began in this tick that one to a host that has not answered
    /// waits for the next tick, in which the core looks again.
    fn waits_for_tick(&self, core: usize, tick: u64, until: Option<Tick>) -> bool {
        let (at, begun) = self.begun[core];
        at == tick && begun >= STRANGERS_MAX && until.is_some_and(|until| until.0 <= tick + 1)
    }

    /// Reports whether the pop that is owed may have been given up by a policy, perhaps untried
    /// because its host was in trouble, so that the timer waits for its next pop.
    fn may_wait_for_next(&self, id: u64, tick: u64) -> bool {
        self.may_be_skipped(id, tick, HostMirror::was_in_trouble_since)
    }

    /// As [`Model::may_wait_for_next`], of a host that has a rule: a pop that waits for the rule
    /// alone is not given up untried.
    pub fn may_wait_beside_rule(&self, id: u64, tick: u64) -> bool {
        self.may_be_skipped(id, tick, HostMirror::held_back_since)
    }

    fn may_be_skipped(
        &self,
        id: u64,
        tick: u64,
        had_reason: impl Fn(&HostMirror, u64) -> bool,
    ) -> bool {
        let write = self.timers[&id].certain().expect("duties are of certain writes");
        let Some(wish) = write.wish.filter(|_| write.cron().is_some() || write.policy().is_some())
        else {
            return false;
        };
        let host = self.host(id, wish.host);
        if write.cron().is_some() {
            let core = usize::from(self.timers[&id].owner);
            return self.calendar_may_wait(write, tick, core, |due| had_reason(host, due));
        }
        let is_over = |sequence: u64| {
            let is_late = write.give_up_at(sequence, self.give_up_ms) - write.unknown_ms() <= tick;
            let had_failed = sequence == write.next && write.failed > 0;
            let due = write.due(sequence) - write.unknown_ms();
            is_late && (had_failed || had_reason(host, due))
        };
        let next = (write.next..=write.pops()).find(|sequence| !is_over(*sequence));
        next.is_none_or(|next| next > write.next && tick <= write.due(next) + self.look_ms)
    }

    /// Returns the earliest tick at which a pop with a duty until tick `by` may have come due.
    /// Before the first pop the start is known only to lie between request and answer.
    fn earliest(&self, by: u64, id: u64) -> u64 {
        let write = self.timers[&id].certain().expect("duties are of certain writes");
        if write.pop == Pop::Failed {
            // A second attempt may come due at any time, and then wait for its host.
            return 0;
        }
        by - write.unknown_ms()
    }

    /// Reports whether the host must not be idle, because a pop was to begin at tick `by`.
    fn must_start(&self, core: usize, host: &HostMirror, by: u64, tick: u64, places: u32) -> bool {
        if !self.has_place(core, host) {
            return false;
        }
        if host.is_in_trouble() && !host.is_ruled {
            // A pop that finds no place looks again after a pause, for its host is in trouble.
            let crowded_until = self.crowded_until[core];
            let by = by.max(host.ended_at).max(host.ruled_at.unwrap_or(0)).max(crowded_until);
            let by = by + 2 * self.look_ms;
            return host.in_flight == 0 && tick > by;
        }
        if host.is_ruled {
            return false;
        }
        let by = host.ruled_at.map_or(by, |at| by.max(at + self.look_ms));
        let by = by.max(host.held_back_until() + self.look_ms);
        host.in_flight < u64::from(places) && tick > by
    }

    /// Checks T7 for a read.
    pub fn read(&self, id: u64, asked: Moment, tick: u64, answer: &Answer) -> Checked {
        let Some(timer) = self.timers.get(&id) else {
            return match answer {
                Answer::NotFound => Ok(()),
                other => broken("T7", format!("timer {id:x}, which nobody wrote: {other:?}")),
            };
        };
        match answer {
            Answer::Found(view) => {
                let name =
                    view.uri.find("80/").and_then(|at| name_of(&view.uri.as_bytes()[at + 2..]));
                let held = timer.writes.iter().find(|write| Some(write.name) == name);
                let was = timer.gone.iter().any(|(gone, at)| Some(*gone) == name && *at > asked);
                match held {
                    Some(write) if is_letter(write, view) => Ok(()),
                    Some(write) => same_view(write, view, timer.acting.is_none(), asked),
                    None if was => Ok(()),
                    None => broken("T7", format!("timer {id:x}: a read shows {:?}", view.uri)),
                }
            }
            _ => {
                let was_there = timer.certain().is_some_and(|write| {
                    write.answered < Some(asked)
                        && write.wish.is_some()
                        && write.next <= write.pops()
                });
                if was_there && !self.may_have_ended(id, tick) {
                    return broken("T7", format!("timer {id:x} is not found"));
                }
                Ok(())
            }
        }
    }

    /// Checks at the end that every timer has popped as often as it should, or that the model knows
    /// why not.
    pub fn all_done(&mut self, tick: u64) -> Checked {
        let ids: Vec<u64> = self.timers.keys().copied().collect();
        for id in ids {
            let Some(write) = self.timers[&id].certain() else {
                let unsure: Vec<Write> = self.timers[&id].writes.clone();
                for write in unsure.iter().filter(|write| write.wish.is_some()) {
                    if write.cron().is_some() {
                        self.tally.given_up_max += CALENDAR_POPS_MAX;
                    }
                    self.tally.given_up_max += write.pops().saturating_sub(write.next) + 1;
                }
                continue;
            };
            if write.wish.is_none() || write.has_ended {
                continue;
            }
            if !self.may_have_ended(id, tick) {
                let (next, pops, name) = (write.next, write.pops(), write.name);
                let what = format!("timer {id:x} write {name}: pop {next} of {pops} never came");
                return broken("T1 lost", what);
            }
            if write.cron().is_some() {
                self.tally.given_up_max += CALENDAR_POPS_MAX;
                continue;
            }
            let missed = write.pops() + 1 - write.next;
            self.tally.given_up_min += missed;
            self.tally.given_up_max += missed;
        }
        Ok(())
    }
}

impl Tally {
    /// Counts an attempt that ended.
    fn ends(&mut self, outcome: CallbackOutcome) {
        match outcome {
            CallbackOutcome::Delivered => self.delivered += 1,
            CallbackOutcome::Rejected
            | CallbackOutcome::Gone
            | CallbackOutcome::Later(_)
            | CallbackOutcome::Unreachable => self.failed += 1,
            CallbackOutcome::TimedOut => {
                self.failed += 1;
                self.timed_out += 1;
            }
            CallbackOutcome::Stale => self.stale += 1,
            CallbackOutcome::Lacking => self.without_means += 1,
            CallbackOutcome::Denied => unreachable!("hosts of this world are denied to nobody"),
        }
    }
}

impl HostMirror {
    fn end(&mut self, outcome: CallbackOutcome, tick: u64) {
        self.in_flight -= 1;
        self.ended_at = tick;
        if self.is_in_trouble() {
            self.troubled_at = Some(tick);
        }
        match outcome {
            CallbackOutcome::Delivered
            | CallbackOutcome::Rejected
            | CallbackOutcome::Gone
            | CallbackOutcome::Later(_) => self.failures = 0,
            CallbackOutcome::Unreachable | CallbackOutcome::TimedOut => self.failures += 1,
            CallbackOutcome::Denied | CallbackOutcome::Stale | CallbackOutcome::Lacking => {}
        }
        if self.is_in_trouble() {
            self.troubled_at = Some(tick);
        }
    }
}

fn same_content(begun: &Begun<'_>, wish: &Wish, story: &str) -> Checked {
    if begun.opaque != opaque(begun.name, wish.opaque_bytes) {
        return broken("T7", format!("{story}: carries other bytes than were asked for"));
    }
    if begun.headers != headers(begun.name) {
        return broken("T7", format!("{story}: carries the headers {:?}", begun.headers));
    }
    if begun.authority != authority(wish.host) {
        return broken("T7", format!("{story}: goes to {}", begun.authority));
    }
    Ok(())
}

/// Checks T2: no attempt before the due time, which counts from a start between request and answer.
fn same_start(begun: &Begun<'_>, write: &Write, wish: &Wish, story: &str) -> Checked {
    let attempt = begun.attempt;
    let after_ms = wish.interval_ms.saturating_mul(attempt.ticket.sequence);
    let asked_ns = write.asked_ns.saturating_add(after_ms.saturating_mul(1_000_000));
    if begun.now.mono.0 < attempt.due.begins().0 || begun.now.mono.0 < asked_ns {
        let early_ns = asked_ns.max(attempt.due.begins().0) - begun.now.mono.0;
        return broken("T2", format!("{story}: {early_ns} ns early"));
    }
    let start = attempt.due.0.checked_sub(after_ms);
    let window_ms = wish.extras.window_ms.unwrap_or(0);
    let latest = write.answered_ns.div_ceil(1_000_000) + window_ms;
    let latest = write.answered.map_or(u64::MAX, |_| latest);
    let is_known = write.start.is_none() || write.start == start;
    if !is_known || start.is_none_or(|start| start > latest) {
        return broken(
            "T8",
            format!("{story}: due at {:?}, start moved to {start:?}", attempt.due),
        );
    }
    Ok(())
}

/// Whether a read shows a dead letter that the timer may have left, with what the timer had.
fn is_letter(write: &Write, view: &TimerView) -> bool {
    let Some(wish) = write.wish.filter(|wish| wish.extras.policy.is_some()) else { return false };
    let attributes = Attributes::read(&view.attributes).expect("a shard encodes them");
    let is_last = |letter: &DeadLetter<'_>| letter.sequence == write.pops();
    attributes.letter.as_ref().is_some_and(is_last)
        && attributes.retry == wish.extras.policy
        && *view.opaque == opaque(write.name, wish.opaque_bytes)
}

fn same_view(write: &Write, view: &TimerView, is_settled: bool, asked: Moment) -> Checked {
    let Some(wish) = write.wish else {
        return broken("T7", format!("write {} has no timer, a read shows one", write.name));
    };
    let expected = opaque(write.name, wish.opaque_bytes);
    if let Some(cron) = wish.extras.cron {
        let shown = Attributes::read(&view.attributes).ok().and_then(|shown| shown.cron);
        let is_fit = shown.is_some_and(|shown| cron.may_show(&shown));
        return match is_fit && *view.opaque == expected && view.sequence == 0 {
            true => Ok(()),
            false => broken("T7", format!("write {}: a read shows {view:?}", write.name)),
        };
    }
    let same = *view.opaque == expected
        && actions::as_written(view) == wish.extras.encoded(write.name)
        && (!is_settled || write.shows_actions(view, asked))
        && (view.interval_ms, view.repeat_for_ms) == (wish.interval_ms, wish.repeat_for_ms);
    if !same || view.sequence >= write.pops() {
        return broken("T7", format!("write {}: a read shows {view:?}", write.name));
    }
    Ok(())
}
