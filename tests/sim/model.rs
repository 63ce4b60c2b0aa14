//! What may and what must happen to every timer. The model knows only requests, answers, attempts
//! and their endings.
//!
//! A *write* is an update or a delete of one id (a create is the first). Clients act at the same
//! time, so the model never knows an exact order. A write may be the current one from the moment it
//! is asked until another write, asked after its answer, is answered itself. Duties (a pop must
//! come) are kept only for timers with exactly one possible write.

use std::collections::{BTreeMap, BTreeSet};

use chronos::base::destinations::DestinationTable;
use chronos::base::time::Now;
use chronos::wire::attributes::RetryPolicy;
use kit::simulator::story::Violation;

use super::actions::{Acting, Acts};
use super::clients::Wish;
use super::clocks::Clocks;
use super::extras::Windows;
use super::invariants::authority;
use super::options::Options;
use super::rules::HostRules;

/// The order of events across all cores. Virtual time alone does not order them.
pub type Moment = u64;

/// Consecutive failures after which a host is in trouble.
pub const TROUBLE_FAILURES: u32 = 8;
/// Least life of a tombstone in milliseconds, less the longest turn.
const TOMBSTONE_MS: u64 = 10_000 - 10;
/// Longest time for which cores may get no time between a request and its being taken.
const STALLS_MS: u64 = 50_000;
/// More pops of a calendar than a run gives up.
pub const CALENDAR_POPS_MAX: u64 = 100_000;

pub type Checked = Result<(), Violation>;

pub fn broken(invariant: &'static str, what: String) -> Checked {
    Err(Violation { invariant, what })
}

/// How far the present pop of a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pop {
    Waiting,
    Running,
    Failed,
}

/// One state that a client asked for.
#[derive(Clone, Debug)]
pub struct Write {
    pub name: usize,
    /// The timer that was asked for. `None`: no timer afterwards (a delete, or a timer that never
    /// fires).
    pub wish: Option<Wish>,
    pub asked: Moment,
    pub asked_ns: u64,
    pub answered: Option<Moment>,
    pub answered_ns: u64,
    pub version: Option<u64>,
    /// The tick of acceptance. `None` until a pop has shown it.
    pub start: Option<u64>,
    /// The number of the pop that comes next or runs.
    pub next: u64,
    pub pop: Pop,
    /// How many attempts at this pop failed, and the tick at which the last one did.
    pub failed: u32,
    pub failed_at: u64,
    /// How many attempts at any pop there were. The number decides how the next attempt ends.
    pub attempts: u64,
    pub stale_in_a_row: u32,
    /// The tick before which its policy allows no further attempt at this pop, and the tick by
    /// which one is to be made.
    pub not_before: u64,
    pub again_by: u64,
    pub has_ended: bool,
    /// The tick at which the pop before was over.
    pub over_at: u64,
    /// How much later than its moments it pops, once a pop has shown it.
    pub offset_ms: Option<u64>,
    /// Whether the timer follows the calendar and has popped: its pop counts from when the one
    /// before was over, which stands in `asked_ns` and `answered_ns`.
    pub is_anew: bool,
    /// The tick under which the duty is filed; `None` without a duty.
    pub filed: Option<u64>,
    /// What clients did with the timer since.
    pub acts: Acts,
}

impl Write {
    pub fn new(name: usize, wish: Option<Wish>, asked: Moment, asked_ns: u64) -> Self {
        Self {
            name,
            wish: wish.filter(|wish| wish.repeat_for_ms >= wish.interval_ms),
            asked,
            asked_ns,
            answered: None,
            answered_ns: 0,
            version: None,
            start: None,
            next: 1,
            pop: Pop::Waiting,
            failed: 0,
            failed_at: 0,
            attempts: 0,
            stale_in_a_row: 0,
            not_before: 0,
            again_by: 0,
            has_ended: false,
            over_at: 0,
            offset_ms: None,
            is_anew: false,
            filed: None,
            acts: Acts::default(),
        }
    }

    /// Returns how many pops the timer has: the largest k with k x interval <= repeat-for, or 1
    /// without an interval.
    pub fn pops(&self) -> u64 {
        let wish = self.wish.expect("only timers pop");
        wish.repeat_for_ms.checked_div(wish.interval_ms).unwrap_or(1)
    }

    /// Returns the latest tick at which pop `sequence` is due.
    pub fn due(&self, sequence: u64) -> u64 {
        self.brought_forward(sequence, self.own_due(sequence))
    }

    /// The same by the schedule, whatever clients did with the timer.
    pub fn own_due(&self, sequence: u64) -> u64 {
        let wish = self.wish.expect("only timers pop");
        let latest = self.answered_ns.div_ceil(1_000_000) + self.window_ms();
        let start = self.start.unwrap_or(latest);
        start.saturating_add(wish.interval_ms.saturating_mul(sequence))
    }

    /// Returns how much earlier than [`Write::due`] a pop may be due. The start of a write that has
    /// not popped lies between its request and its answer.
    pub fn unknown_ms(&self) -> u64 {
        self.own_unknown_ms().max(self.forward_unknown_ms())
    }

    /// The same by the schedule, whatever clients did with the timer.
    pub fn own_unknown_ms(&self) -> u64 {
        let ticks = |ns: u64| ns.div_ceil(1_000_000);
        let by_request = ticks(self.answered_ns.max(self.asked_ns)) - ticks(self.asked_ns);
        if self.start.is_some() { 0 } else { by_request + self.window_ms() }
    }

    pub fn window_ms(&self) -> u64 {
        self.wish.and_then(|wish| wish.extras.window_ms).unwrap_or(0)
    }

    pub fn policy(&self) -> Option<RetryPolicy> {
        self.wish.and_then(|wish| wish.extras.policy)
    }

    /// Ends the present pop, delivered or given up. Returns whether it was the last.
    pub fn pop_over(&mut self, now: Now) -> bool {
        self.over_at = now.mono.tick_floor().0;
        if self.follow(now) {
            return false;
        }
        self.has_ended = self.next == self.pops();
        (self.next, self.pop, self.failed) = (self.next + 1, Pop::Waiting, 0);
        self.has_ended
    }

    /// Returns the tick from which the pop may be given up.
    pub fn give_up_at(&self, sequence: u64, give_up_ms: u64) -> u64 {
        let (due, next) = (self.due(sequence), self.own_due(sequence + 1));
        if let Some(cron) = self.cron() {
            let lasts_ms = self.policy().map_or(give_up_ms, |policy| policy.max_age_ms);
            return due + lasts_ms.min(cron.pause_ms());
        }
        match self.policy().map(|policy| due.saturating_add(policy.max_age_ms)) {
            Some(too_old) if sequence < self.pops() => too_old.min(next),
            Some(too_old) => too_old,
            None if sequence < self.pops() => next,
            None => due.saturating_add(give_up_ms),
        }
    }

    /// Returns the tick by which a pop that failed, at a host that last answered at `ended_at`, is
    /// to be looked at again.
    fn again_by(&self, ended_at: u64, give_up_ms: u64) -> u64 {
        let by = ended_at.max(self.due(self.next)).max(self.again_by);
        let is_given_up = by >= self.give_up_at(self.next, give_up_ms) - self.unknown_ms();
        // What may be given up is not tried again. The next pop comes in its time.
        match (self.policy(), self.cron()) {
            (_, Some(cron)) if is_given_up => {
                by.max(self.due(1) + cron.pause_ms() + self.window_ms())
            }
            (Some(_), None) if is_given_up => by.max(self.due(self.next + 1)),
            _ => by,
        }
    }
}

/// All that is known of one id.
#[derive(Clone, Debug, Default)]
pub struct Timer {
    pub owner: u16,
    /// Writes that may be the current one, in the order in which they were asked.
    pub writes: Vec<Write>,
    /// Writes that certainly are no longer the current one, and since when.
    pub gone: Vec<(usize, Moment)>,
    /// The highest version seen while the shard held something of the timer, and the write that it
    /// belonged to.
    pub version: Option<(u64, usize)>,
    /// Whether a write had a policy.
    pub had_policy: bool,
    /// What a client does with the timer.
    pub acting: Option<Acting>,
}

impl Timer {
    /// Returns the write that certainly is the current one; `None` if several may be.
    pub fn certain(&self) -> Option<&Write> {
        match &self.writes[..] {
            _ if self.acting.is_some() => None,
            [only] if only.answered.is_some() && !only.acts.is_vague => Some(only),
            _ => None,
        }
    }
}

/// A callback host as one core must see it.
#[derive(Clone, Debug, Default)]
pub struct HostMirror {
    pub in_flight: u64,
    pub failures: u32,
    /// The tick at which the host was last seen in trouble.
    pub troubled_at: Option<u64>,
    /// The tick at which pops of the core were last put off for want of a lane.
    pub put_off_at: Option<u64>,
    /// The tick at which an attempt last ended.
    pub ended_at: u64,
    /// Duties: the tick by which an attempt must have begun, and the timer.
    pub duties: BTreeSet<(u64, u64)>,
    /// Whether a rule holds for the host, and the tick at which that last changed.
    pub is_ruled: bool,
    pub ruled_at: Option<u64>,
}

impl HostMirror {
    pub fn is_in_trouble(&self) -> bool {
        self.failures >= TROUBLE_FAILURES
    }

    pub fn was_in_trouble_since(&self, tick: u64) -> bool {
        let was_ruled = self.is_ruled || self.ruled_at.is_some_and(|at| at >= tick);
        was_ruled || self.held_back_since(tick)
    }

    /// Whether the host was in trouble. What the node lacks is no reason to give a pop up.
    pub fn held_back_since(&self, tick: u64) -> bool {
        self.is_in_trouble() || self.troubled_at.is_some_and(|at| at >= tick)
    }

    /// Whether the host was in trouble, or perhaps without a lane.
    pub fn was_kept_since(&self, tick: u64) -> bool {
        self.held_back_since(tick) || self.put_off_at.is_some_and(|at| at >= tick)
    }

    /// The tick from which on nothing held the host's pops back.
    pub fn held_back_until(&self) -> u64 {
        self.troubled_at.max(self.put_off_at).unwrap_or(0)
    }
}

/// What the counters of all shards together must count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub stored: u64,
    pub never_firing: u64,
    pub deletes: u64,
    pub reads: u64,
    pub refused: u64,
    pub delivered: u64,
    pub failed: u64,
    pub timed_out: u64,
    pub stale: u64,
    pub without_means: u64,
    pub retried: u64,
    pub attempts: u64,
    pub given_up_min: u64,
    pub given_up_max: u64,
    pub outdated_min: u64,
    pub outdated_max: u64,
    /// Pops of timers with a policy that certainly were given up.
    pub letters_min: u64,
    /// Writes of ids that had a timer with a policy: each may have taken the place of a dead letter.
    pub letters_replaced_max: u64,
    pub gone_min: u64,
    pub gone_max: u64,
    /// Actions that changed a timer.
    pub acted: u64,
}

/// Everything that the model knows of one run.
pub struct Model {
    pub timers: BTreeMap<u64, Timer>,
    /// The hosts, by core and number.
    pub hosts: Vec<Vec<HostMirror>>,
    /// The rules of the hosts, and whether there has been any.
    pub rules: Vec<HostRules>,
    pub has_rules: bool,
    pub tally: Tally,
    pub windows: Windows,
    pub give_up_ms: u64,
    pub has_clock_steps: bool,
    /// The places of a core for callbacks, and by core how many reports have one.
    pub places_per_core: u64,
    pub reporting: Vec<u64>,
    /// By core: the tick at which there was last no place for a host without callbacks.
    pub crowded_until: Vec<u64>,
    /// By core: the tick in which callbacks last began, and how many did.
    pub begun: Vec<(u64, u32)>,
    /// The time by which each core's calendars go.
    pub clocks: Clocks,
    has_stalls: bool,
    /// What the wall clock shows when the run begins.
    pub wall_ms: u64,
    /// Longest time from a failure, or from a host's recovery, to the next look at a pop.
    pub look_ms: u64,
    /// By core: the tick until which an id is certainly a tombstone.
    buried: Vec<BTreeMap<u64, u64>>,
    /// By core: between which ticks it last got no time.
    stalls: Vec<(u64, u64)>,
}

impl Model {
    pub fn new(cores: usize, options: &Options) -> Self {
        let hosts = options.hosts as usize;
        let longest = options.callbacks.retry_max_ms.max(500);
        Self {
            timers: BTreeMap::new(),
            hosts: vec![vec![HostMirror::default(); hosts]; cores],
            rules: vec![HostRules::new(cores); hosts],
            has_rules: false,
            tally: Tally::default(),
            windows: Windows::default(),
            give_up_ms: options.callbacks.give_up_ms,
            has_clock_steps: options.has_clock_steps,
            places_per_core: options.callbacks.places_per_core_max.into(),
            reporting: vec![0; cores],
            crowded_until: vec![0; cores],
            begun: vec![(0, 0); cores],
            clocks: Clocks::new(options.shards),
            has_stalls: options.has_stalls,
            wall_ms: options.wall_ms,
            look_ms: longest + longest / 2 + 2,
            buried: vec![BTreeMap::new(); cores],
            stalls: vec![(0, 0); cores],
        }
    }

    /// Notes that a core gets no time between two ticks.
    pub fn stalls(&mut self, core: u16, from: u64, until: u64) {
        let (former_from, former_until) = self.stalls[usize::from(core)];
        let is_one = from <= former_until + 1_000;
        self.stalls[usize::from(core)] = (if is_one { former_from } else { from }, until);
    }

    /// The tick from which on a core looked at what had come due by a tick, as far as it got time.
    pub fn looks_at(&self, core: usize, due: u64) -> u64 {
        let (from, until) = self.stalls[core];
        if due >= from { due.max(until) } else { due }
    }

    /// Notes that a core takes rules of destinations.
    pub fn take_rules(&mut self, core: u16, table: &DestinationTable, now_ns: u64) {
        self.has_rules = true;
        let core = usize::from(core);
        for (host, rules) in (0..).zip(&mut self.rules) {
            let rule = table.find(&authority(host)).map(|found| found.rule);
            if rules.take(core, rule, now_ns) {
                let mirror = &mut self.hosts[core][host as usize];
                (mirror.is_ruled, mirror.ruled_at) = (rule.is_some(), Some(now_ns / 1_000_000));
            }
        }
    }

    /// Checks F4: a core does not sleep over a pop that its rule lets begin.
    pub fn goes_on(&self, core: usize, tick: u64, places: u32) -> Checked {
        let cores = self.hosts.len() as u64;
        for (host, rules) in
            self.hosts[core].iter().zip(&self.rules).filter(|(host, _)| host.is_ruled)
        {
            let Some(after) = rules.must_begin_after(core, cores) else { continue };
            let overdue = host.duties.range(..=(tick, u64::MAX));
            let mut overdue = overdue.filter(|(_, id)| {
                !self.may_have_ended(*id, tick) && !self.may_wait_beside_rule(*id, tick)
            });
            let Some(&(by, id)) = overdue.next() else { continue };
            let settled = (host.held_back_until() + self.look_ms).max(host.ended_at);
            let by = by.max(after).max(settled) + self.look_ms;
            let has_place = host.in_flight < u64::from(places) && self.has_place(core, host);
            if !host.is_in_trouble() && has_place && tick > by {
                return broken("F4", format!("timer {id:x} waits at {tick}, at {by} it may begin"));
            }
        }
        Ok(())
    }

    /// Whether a core certainly has a place for a callback of a host: it has enough of them, or the
    /// host has none and few are taken.
    pub fn has_place(&self, core: usize, host: &HostMirror) -> bool {
        let all = self.places_per_core;
        all == u64::from(u32::MAX) || host.in_flight == 0 && self.taken(core) < all - all / 8
    }

    /// Notes that the places of a core may be taken. Call it before one is given back.
    pub fn note_places(&mut self, core: usize, tick: u64) {
        if !self.has_place(core, &HostMirror::default()) {
            self.crowded_until[core] = tick;
        }
    }

    /// The places of a core that are taken.
    pub fn taken(&self, core: usize) -> u64 {
        self.hosts[core].iter().map(|host| host.in_flight).sum::<u64>() + self.reporting[core]
    }

    /// Notes that a client asks for a write of an id.
    pub fn asked(&mut self, id: u64, owner: u16, write: Write) {
        self.unfile(id);
        let buried = self.buried[usize::from(owner)].remove(&id);
        let timer = self.timers.entry(id).or_default();
        timer.owner = owner;
        let was_live = timer.certain().is_some_and(|held| held.wish.is_some() && !held.has_ended);
        let tick = write.asked_ns / 1_000_000;
        let is_live = was_live && !self.may_have_ended(id, tick);
        // A core that gets no time takes the request later.
        let taken = tick + if self.has_stalls { STALLS_MS } else { 0 };
        if !is_live && buried.is_none_or(|until| until <= taken) {
            // The shard need not hold anything of the timer. After the wall clock was set back the
            // version may be lower.
            self.timers.get_mut(&id).expect("entered above").version = None;
        }
        if write.wish.is_none() {
            let until = if is_live { Some(tick + TOMBSTONE_MS) } else { buried };
            if let Some(until) = until {
                self.buried[usize::from(owner)].insert(id, until);
            }
        }
        let timer = self.timers.get_mut(&id).expect("entered above");
        self.tally.letters_replaced_max += u64::from(timer.had_policy);
        timer.had_policy |= write.policy().is_some();
        timer.writes.push(write);
    }

    /// Notes that a write took effect.
    pub fn accepted(&mut self, id: u64, name: usize, moment: Moment, now_ns: u64) {
        let timer = self.timers.get_mut(&id).expect("asked before");
        if let Some(write) = timer.writes.iter_mut().find(|write| write.name == name) {
            write.answered = Some(moment);
            if !write.is_anew {
                write.answered_ns = now_ns;
            }
        }
        self.prune(id, moment, now_ns / 1_000_000);
        self.file(id);
    }

    /// Notes that a write was refused, so that it never took effect.
    pub fn refused(&mut self, id: u64, name: usize) -> Checked {
        let timer = self.timers.get_mut(&id).expect("asked before");
        let at = timer.writes.iter().position(|write| write.name == name);
        let Some(at) = at else { return Ok(()) };
        let write = timer.writes.remove(at);
        // With the write goes what it was believed to have done.
        self.buried[usize::from(timer.owner)].remove(&id);
        if write.version.is_some() {
            return broken("T7", format!("write {name} was refused and popped"));
        }
        self.file(id);
        Ok(())
    }

    /// Drops writes that certainly were replaced.
    fn prune(&mut self, id: u64, moment: Moment, tick: u64) {
        let timer = self.timers.get_mut(&id).expect("asked before");
        let answered = timer.writes.iter().filter(|write| write.answered.is_some());
        let Some(newest) = answered.map(|write| write.asked).max() else { return };
        let is_gone = |write: &Write| write.answered.is_some_and(|at| at < newest);
        let gone: Vec<Write> = timer.writes.extract_if(.., |write| is_gone(write)).collect();
        timer.gone.extend(gone.iter().map(|write| (write.name, moment)));
        gone.iter().for_each(|write| self.may_have_given_up(id, write, tick));
    }

    /// Notes which of several writes is the current one, as a pop has shown. If all writes are
    /// answered, the others are gone.
    pub fn settle(&mut self, id: u64, name: usize, moment: Moment, tick: u64) {
        let timer = self.timers.get_mut(&id).expect("asked before");
        if timer.writes.len() < 2 || timer.writes.iter().any(|write| write.answered.is_none()) {
            return;
        }
        let gone: Vec<Write> = timer.writes.extract_if(.., |write| write.name != name).collect();
        timer.gone.extend(gone.iter().map(|write| (write.name, moment)));
        gone.iter().for_each(|write| self.may_have_given_up(id, write, tick));
    }

    /// Counts pops of a replaced write that may have been given up unseen.
    fn may_have_given_up(&mut self, id: u64, write: &Write, tick: u64) {
        let Some(wish) = write.wish.filter(|_| !write.has_ended) else { return };
        if write.acts.is_vague {
            self.tally.given_up_max += (write.pops() + 1).saturating_sub(write.next);
            return;
        }
        let host = self.host(id, wish.host);
        let had_reason = write.failed > 0 || host.was_in_trouble_since(0);
        let tick = tick + write.unknown_ms();
        if had_reason && tick >= write.give_up_at(write.next, self.give_up_ms) {
            if write.cron().is_some() {
                self.tally.given_up_max += CALENDAR_POPS_MAX;
                return;
            }
            let passed = tick.saturating_sub(write.due(0)) / wish.interval_ms.max(1);
            // What a client ran may be given up before its own time.
            let given_up = (passed.min(write.pops()) + 1).saturating_sub(write.next).max(1);
            self.tally.given_up_max += given_up;
        }
    }

    /// Reports whether the current write may have ended unseen, by giving up.
    pub fn may_have_ended(&self, id: u64, tick: u64) -> bool {
        let Some(write) = self.timers[&id].certain() else { return true };
        let Some(wish) = write.wish else { return true };
        if let Some(cron) = write.cron() {
            let host = self.host(id, wish.host);
            let core = usize::from(self.timers[&id].owner);
            let may_wait =
                || self.calendar_may_wait(write, tick, core, |at| host.was_in_trouble_since(at));
            return write.has_ended || cron.end_ms.is_some() && may_wait();
        }
        if write.acts.is_paused {
            return write.has_ended;
        }
        let give_up_at = write.give_up_at(write.pops(), self.give_up_ms) - write.unknown_ms();
        let failed = write.next == write.pops() && write.failed > 0;
        let had_reason = failed || self.host(id, wish.host).was_in_trouble_since(give_up_at);
        write.has_ended || (tick >= give_up_at && had_reason)
    }

    /// Returns how many attempts a write had, and how many of the last were stale in a row.
    pub fn attempts_of(&self, id: u64, name: usize) -> (u64, u32) {
        let mut writes = self.timers[&id].writes.iter();
        let write = writes.find(|write| write.name == name).expect("its attempt was checked");
        (write.attempts, write.stale_in_a_row)
    }

    /// Notes that a host loses its lane.
    pub fn forgotten(&mut self, core: u16, host: u32, tick: u64) -> Checked {
        let in_flight = self.hosts[usize::from(core)][host as usize].in_flight;
        if in_flight > 0 {
            return broken("R4", format!("host {host} loses its lane with {in_flight} callbacks"));
        }
        let mirror = &mut self.hosts[usize::from(core)][host as usize];
        if mirror.is_in_trouble() {
            mirror.troubled_at = Some(tick);
        }
        mirror.failures = 0;
        Ok(())
    }

    /// Notes that pops of some hosts of a core were put off for want of a lane.
    pub fn put_off(&mut self, core: u16, tick: u64) {
        self.hosts[usize::from(core)].iter_mut().for_each(|host| host.put_off_at = Some(tick));
    }

    /// Checks R4: pops are put off only while other hosts need their lanes. A host whose pops wait
    /// has callbacks, or is in trouble.
    pub fn is_crowded(&self, core: u16, hosts_max: usize) -> Checked {
        if self.places_per_core < u64::from(u32::MAX) {
            // Hosts whose pops wait for a place of the core need their lanes as well.
            return Ok(());
        }
        let hosts = &self.hosts[usize::from(core)];
        let is_busy = |host: &&HostMirror| {
            host.in_flight > 0 || host.is_in_trouble() || host.is_ruled || host.ruled_at.is_some()
        };
        let busy = hosts.iter().filter(is_busy).count();
        if busy < hosts_max - hosts_max / 4 {
            return broken("R4", format!("{busy} hosts need their lanes, a pop is put off"));
        }
        Ok(())
    }

    /// Returns the host as the timer's core sees it.
    pub fn host(&self, id: u64, host: u32) -> &HostMirror {
        &self.hosts[usize::from(self.timers[&id].owner)][host as usize]
    }

    /// Notes that a timer popped for the last time.
    pub fn ended(&mut self, id: u64, tick: u64) {
        let owner = usize::from(self.timers[&id].owner);
        self.buried[owner].insert(id, tick + TOMBSTONE_MS);
    }

    /// Returns how many ids certainly are tombstones of a core at `tick`.
    pub fn tombstones_min(&mut self, core: usize, tick: u64) -> u64 {
        self.buried[core].retain(|_, until| *until > tick);
        let timers = &self.timers;
        let is_certain = |id: &&u64| timers[*id].certain().is_some();
        self.buried[core].keys().filter(is_certain).count() as u64
    }

    /// Files the next duty of an id's current write, if that write is certain.
    pub fn file(&mut self, id: u64) {
        self.unfile(id);
        let timer = &self.timers[&id];
        let is_going = |write: &&Write| !write.has_ended && !write.acts.is_paused;
        let Some(write) = timer.certain().filter(is_going) else { return };
        let Some(wish) = write.wish.filter(|_| write.pop != Pop::Running) else { return };
        let mut by = write.due(write.next);
        if write.pop == Pop::Failed {
            let host = &self.hosts[usize::from(timer.owner)][wish.host as usize];
            by = write.again_by(host.ended_at, self.give_up_ms) + self.look_ms;
        }
        let host = &mut self.hosts[usize::from(timer.owner)][wish.host as usize];
        host.duties.insert((by, id));
        self.timers.get_mut(&id).expect("found above").writes[0].filed = Some(by);
    }

    /// Removes the duty of an id, if there is one.
    pub fn unfile(&mut self, id: u64) {
        let Some(timer) = self.timers.get_mut(&id) else { return };
        for write in &mut timer.writes {
            if let (Some(by), Some(wish)) = (write.filed.take(), write.wish) {
                let host = &mut self.hosts[usize::from(timer.owner)][wish.host as usize];
                host.duties.remove(&(by, id));
            }
        }
    }
}
