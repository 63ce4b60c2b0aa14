//! Callback hosts of one shard that have *lanes*: the pops that wait for each, how many callbacks
//! run, and whether it is in trouble. A host gets its lane when a pop for it is due, and keeps the
//! lane until it is idle and another host needs the lane.
//!
//! Isolation: every host has its own list and its own places, so a host that hangs fills only
//! these. After [`SUSPECT_FAILURES`] failures in a row a host is *in trouble*. One attempt at a
//! time probes it, its waiting pops are moved back into the wheel in portions, and pops that come
//! due go there at once. Lanes are bounded, and some are kept for hosts that answer: hosts that do
//! not answer can never have all lanes.

// May panic: expectations 4, indices 5.
// Why it does not: listed 9.

use crate::base::ids::{HostId, ShardIndex, Slot};
use crate::base::limits::CallbackLimits;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::Tick;
use crate::store::links::{Fifo, Links};

use super::authorities::{Authorities, AuthorityId};
use super::flows::{FlowId, Flows};
use super::places::Places;

/// Failures in a row, at any timer of the host, after which it is suspected. One server that died
/// behind a balancer of four fails a quarter of the attempts: eight in a row then happen once in 65
/// 536.
pub const SUSPECT_FAILURES: u32 = 8;
/// How long a host without timers is remembered, so that its connections and health survive a
/// pause.
const IDLE_HOST_MS: u64 = 60_000;
/// Most lanes that are looked at in the search for an idle one.
const LOOKS_MAX: usize = 64;

/// One callback host.
#[derive(Debug)]
pub struct Host {
    pub(super) authority: AuthorityId,
    /// Due pops waiting for a place.
    pub(super) ready: Fifo,
    /// Places taken.
    pub(super) in_flight: u32,
    /// Failures since the last success.
    pub(super) failures: u32,
    /// Pause after the next failure, while in trouble.
    pause_ms: u64,
    /// When the next probe may run, while in trouble.
    pub probe_at: Tick,
    idle_since: Tick,
    /// Whether the host stands in the list of hosts to be emptied.
    listed: bool,
    /// Whether the host waits for a place of the core.
    pub(super) is_short: bool,
    /// Whether the host answered when it was called last.
    pub(super) is_proven: bool,
    /// The rule that holds for the host, and whether the host is in the list of the rule.
    pub(super) flow: FlowId,
    pub(super) is_queued: bool,
    /// When the host was paused last. Its last pops are tried for a while after that.
    pub resumed_at: Tick,
    /// When a rule last ceased to hold and none took its place. Pops that were due by then may have
    /// waited for the rule.
    pub unruled_at: Tick,
    pub(super) pace: Pace,
}

/// How many attempts began in a second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    second: u32,
    present: u32,
    former: u32,
}

impl Pace {
    #[inline]
    fn add(&mut self, tick: Tick) {
        self.turn(tick);
        self.present = self.present.saturating_add(1);
    }

    #[inline]
    fn turn(&mut self, tick: Tick) {
        let second = (tick.0 / 1_000) as u32;
        if second != self.second {
            self.former = if second == self.second.wrapping_add(1) { self.present } else { 0 };
            (self.second, self.present) = (second, 0);
        }
    }

    /// Attempts in the last whole second.
    pub fn per_second(mut self, tick: Tick) -> u32 {
        self.turn(tick);
        self.former
    }
}

impl Host {
    /// Whether a rule of a destination holds for the host.
    pub fn has_rule(&self) -> bool {
        self.flow != FlowId::NONE
    }

    /// Failures since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Attempts in the last whole second.
    pub fn attempts_per_second(&self, tick: Tick) -> u32 {
        self.pace.per_second(tick)
    }

    /// Whether only probes are made to the host.
    pub fn is_in_trouble(&self) -> bool {
        self.failures >= SUSPECT_FAILURES
    }

    /// How many pops wait for a place.
    pub fn waiting(&self) -> u32 {
        self.ready.len()
    }

    /// Places taken by callbacks that run.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.ready.is_empty() && !self.listed && !self.is_short
    }
}

/// All callback hosts of a shard.
pub struct Hosts {
    /// The authorities that timers name, with a lane or without.
    pub(super) authorities: Authorities,
    pub(super) places: Vec<Option<Host>>,
    pub(super) flows: Flows,
    pub(super) core_places: Places,
    free: Vec<u32>,
    /// Hosts with lanes that have not answered.
    unproven: usize,
    /// Hosts in trouble that still have waiting pops.
    troubled: Vec<HostId>,
    hosts_max: usize,
    places_per_host: u32,
    retry_first_ms: u64,
    retry_max_ms: u64,
    /// Where the sweep for idle hosts goes on.
    sweep_at: usize,
    /// Where the search for an idle lane goes on.
    evict_at: usize,
}

impl Hosts {
    pub(super) fn new(authorities: Authorities, limits: &CallbackLimits, own: ShardIndex) -> Self {
        let hosts_max = limits.hosts_per_core_max as usize;
        Self {
            authorities,
            // The vector never moves. The kernel gives its pages as they are used.
            places: Vec::with_capacity(hosts_max),
            flows: Flows::new(own),
            core_places: Places::new(limits.places_per_core_max),
            free: Vec::new(),
            unproven: 0,
            troubled: Vec::new(),
            hosts_max,
            places_per_host: limits.connections_per_host_max,
            retry_first_ms: limits.retry_first_ms,
            retry_max_ms: limits.retry_max_ms,
            sweep_at: 0,
            evict_at: 0,
        }
    }

    pub fn get(&self, host: HostId) -> &Host {
        self.places[host.0 as usize].as_ref().expect("a host keeps its lane while it has work")
    }

    pub(super) fn get_mut(&mut self, host: HostId) -> &mut Host {
        self.places[host.0 as usize].as_mut().expect("a host keeps its lane while it has work")
    }

    pub fn authority(&self, host: HostId) -> &str {
        self.authorities.text(self.get(host).authority)
    }

    /// An authority that timers name, as written.
    #[inline]
    pub fn authority_named(&self, authority: AuthorityId) -> &str {
        self.authorities.text(authority)
    }

    /// Counts one more timer that names the authority. Returns also the host that has a lane under
    /// it.
    pub(super) fn enter(&mut self, authority: &str) -> (AuthorityId, Option<HostId>) {
        self.authorities.enter(authority)
    }

    /// Counts one timer fewer: a timer that named the authority is not held after all.
    pub(super) fn withdraw(&mut self, authority: AuthorityId) {
        self.authorities.leave(authority);
    }

    /// The host that has a lane under this authority.
    #[inline]
    pub fn host_of(&self, authority: AuthorityId) -> Option<&Host> {
        self.authorities.host(authority).map(|host| self.get(host))
    }

    /// See [`Authorities::tally`].
    #[inline]
    pub(super) fn tally(&mut self, authority: AuthorityId, is_more: bool) {
        self.authorities.tally(authority, is_more);
    }

    /// See [`Authorities::tallies_from`].
    pub fn tallies_from(&self, place: u32) -> impl Iterator<Item = (AuthorityId, u32)> {
        self.authorities.tallies_from(place)
    }

    /// Tallied timers of all authorities.
    pub(super) fn tallied(&self) -> u64 {
        self.tallies_from(0).map(|(_, tallied)| u64::from(tallied)).sum()
    }

    /// How many authorities timers name, or hosts with lanes have.
    pub fn known(&self) -> u64 {
        self.authorities.len()
    }

    /// Live timers that name any authority. Cost: every authority.
    pub(super) fn timers_of_all(&self) -> u64 {
        self.authorities.timers_of_all()
    }

    /// Hosts with lanes.
    pub fn len(&self) -> u64 {
        (self.places.len() - self.free.len()) as u64
    }

    pub fn bytes(&self) -> usize {
        self.places.len() * size_of::<Option<Host>>() + self.authorities.bytes()
    }

    /// The host under this authority. A host without a lane gets one, if need be that of an idle
    /// host, which is then `released`. `None`: all lanes are in use.
    #[inline]
    pub fn admit(
        &mut self,
        authority: AuthorityId,
        now: Tick,
        released: &mut Vec<HostId>,
    ) -> Option<HostId> {
        self.authorities.host(authority).or_else(|| self.give_lane(authority, now, released))
    }

    #[cold]
    fn give_lane(
        &mut self,
        authority: AuthorityId,
        now: Tick,
        released: &mut Vec<HostId>,
    ) -> Option<HostId> {
        let is_proven = self.authorities.is_proven(authority);
        // A quarter of the lanes is kept for hosts that answer.
        let unproven_max = self.hosts_max - self.hosts_max / 4;
        let only_unproven = !is_proven && self.unproven >= unproven_max;
        if only_unproven || self.len() >= self.hosts_max as u64 {
            released.push(self.take_idle(only_unproven)?);
        }
        let host = Host {
            authority,
            ready: Fifo::new(),
            in_flight: 0,
            failures: 0,
            pause_ms: self.retry_first_ms,
            probe_at: Tick(0),
            idle_since: now,
            listed: false,
            is_short: false,
            is_proven,
            flow: self.flows.of(self.authorities.text(authority)),
            is_queued: false,
            resumed_at: Tick(0),
            unruled_at: Tick(0),
            pace: Pace::default(),
        };
        self.unproven += usize::from(!is_proven);
        let place = self.free.pop().unwrap_or(self.places.len() as u32);
        match self.places.get_mut(place as usize) {
            Some(empty) => *empty = Some(host),
            None => self.places.push(Some(host)),
        }
        self.authorities.set_host(authority, Some(HostId(place)));
        Some(HostId(place))
    }

    /// Takes the lane from an idle host. Hosts take turns.
    fn take_idle(&mut self, only_unproven: bool) -> Option<HostId> {
        let looks = if is_planted(Bug::IdleHostKeepsLane) { 0 } else { LOOKS_MAX };
        for _ in 0..looks.min(self.places.len()) {
            self.evict_at = (self.evict_at + 1) % self.places.len();
            let is_wanted = |host: &Host| host.is_idle() && !(only_unproven && host.is_proven);
            if self.places[self.evict_at].as_ref().is_some_and(is_wanted) {
                let host = HostId(self.evict_at as u32);
                self.forget(host);
                return Some(host);
            }
        }
        None
    }

    /// Appends a pop, whose slot is in no list, to those that wait for the host.
    #[inline]
    pub(super) fn push_waiting(&mut self, host: HostId, links: &mut Links, slot: Slot) {
        self.get_mut(host).ready.push_back(links, slot);
    }

    /// Takes the pop that has waited longest for the host.
    #[inline]
    pub(super) fn pop_waiting(&mut self, host: HostId, links: &mut Links) -> Option<Slot> {
        self.get_mut(host).ready.pop_front(links)
    }

    /// Takes a pop out of the list of the host that it waits for.
    pub(super) fn remove_waiting(&mut self, authority: AuthorityId, links: &mut Links, slot: Slot) {
        let host = self.authorities.host(authority);
        let host = host.expect("a host keeps its lane while pops wait for it");
        self.get_mut(host).ready.remove(links, slot);
    }

    /// The pop of each host that has waited longest.
    pub(super) fn first_waiting(&self) -> impl Iterator<Item = Slot> {
        self.iter().filter_map(|host| host.ready.front())
    }

    /// A callback of the host begins: it takes a place.
    #[inline]
    pub fn take_place(&mut self, host: HostId, tick: Tick) {
        let entry = self.get_mut(host);
        entry.in_flight += 1;
        entry.pace.add(tick);
        let (flow, is_proven) = (entry.flow, entry.is_proven);
        let is_first = entry.in_flight == 1;
        self.core_places.take(is_proven, is_first);
        if flow != FlowId::NONE {
            self.flows.take(flow);
        }
    }

    /// A callback of the host has ended: it gives its place back. A place that its rule counts is
    /// kept until [`Hosts::settle`] gives it back.
    #[inline]
    pub fn give_back_place(&mut self, host: HostId) {
        let entry = self.get_mut(host);
        entry.in_flight -= 1;
        let (flow, is_proven) = (entry.flow, entry.is_proven);
        self.core_places.give_back(is_proven);
        if flow != FlowId::NONE {
            self.flows.keep(flow);
        }
    }

    /// Counts one timer fewer that names the authority.
    pub(super) fn leave(&mut self, authority: AuthorityId, now: Tick) {
        if let Some(host) = self.authorities.host(authority) {
            self.get_mut(host).idle_since = now;
        }
        self.authorities.leave(authority);
    }

    /// Whether a callback may start now. It needs a free place at the host and one of the core.
    pub fn may_start(&self, host: HostId, now: Tick) -> bool {
        self.takes_one_more(host, now) && self.has_place(host)
    }

    /// Whether the host takes one more callback. It needs a free place. While the host is in
    /// trouble, only one probe starts after each pause.
    pub fn takes_one_more(&self, host: HostId, now: Tick) -> bool {
        let host = self.get(host);
        if host.is_in_trouble() {
            return host.in_flight == 0 && now >= host.probe_at;
        }
        host.in_flight < self.places_per_host
    }

    /// Lists a host in trouble that has waiting pops, to be emptied in portions.
    pub fn list_if_troubled(&mut self, host: HostId) {
        let is_paused = self.is_paused(host);
        let entry = self.get_mut(host);
        if entry.is_in_trouble() && !entry.ready.is_empty() && !entry.listed && !is_paused {
            entry.listed = true;
            self.troubled.push(host);
        }
    }

    pub fn has_waiting_in_trouble(&self) -> bool {
        !self.troubled.is_empty()
    }

    /// Takes a waiting pop of a host in trouble, to be moved back into the wheel. A host that
    /// recovered, or that no pop waits for any more, is unlisted.
    pub(super) fn take_from_troubled(&mut self, links: &mut Links) -> Option<(HostId, Slot)> {
        while let Some(&host) = self.troubled.last() {
            let is_paused = self.is_paused(host);
            let entry = self.get_mut(host);
            if entry.is_in_trouble()
                && !is_paused
                && let Some(slot) = entry.ready.pop_front(links)
            {
                return Some((host, slot));
            }
            entry.listed = false;
            self.troubled.pop();
        }
        None
    }

    /// Notes that the host answered.
    pub fn succeeded(&mut self, host: HostId) {
        let first = self.retry_first_ms;
        let entry = self.get_mut(host);
        entry.failures = 0;
        entry.pause_ms = first;
        if !entry.is_proven {
            self.prove(host, true);
        }
    }

    /// Notes that the host did not answer. Failures of one burst count as one step of the pause.
    pub fn failed(&mut self, host: HostId, now: Tick) {
        let pause_max = self.retry_max_ms;
        if self.get(host).failures + 1 >= SUSPECT_FAILURES && self.get(host).is_proven {
            self.prove(host, false);
        }
        let host = self.get_mut(host);
        host.failures = host.failures.saturating_add(1);
        if host.is_in_trouble() && now >= host.probe_at {
            host.probe_at = now + host.pause_ms;
            host.pause_ms = (host.pause_ms * 2).min(pause_max);
        }
    }

    pub(super) fn prove(&mut self, host: HostId, is_proven: bool) {
        let entry = self.get_mut(host);
        entry.is_proven = is_proven;
        let (authority, in_flight) = (entry.authority, entry.in_flight);
        self.core_places.prove(in_flight, is_proven);
        self.authorities.set_proven(authority, is_proven);
        if is_proven { self.unproven -= 1 } else { self.unproven += 1 }
    }

    /// Takes the lanes from hosts that no timer has named for a while. Looks at `portion` places a
    /// call.
    pub fn sweep(&mut self, now: Tick, portion: usize, released: &mut Vec<HostId>) {
        for _ in 0..portion.min(self.places.len()) {
            self.sweep_at = (self.sweep_at + 1) % self.places.len();
            let is_unused = self.places[self.sweep_at].as_ref().is_some_and(|host| {
                let is_old = now - host.idle_since >= IDLE_HOST_MS;
                is_old && host.is_idle() && self.authorities.timers(host.authority) == 0
            });
            if is_unused {
                let host = HostId(self.sweep_at as u32);
                self.forget(host);
                released.push(host);
            }
        }
    }

    /// Every host, for the audit and the oldest waiting pop.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Host> {
        self.places.iter().flatten()
    }

    /// A portion of the hosts with lanes, by their places from `from` on.
    pub fn portion(&self, from: usize, portion: usize) -> impl Iterator<Item = &Host> {
        self.places.iter().skip(from).take(portion).flatten()
    }

    /// Every host with a lane has a place below this.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// The authority of a host, as written.
    pub fn authority_of(&self, host: &Host) -> &str {
        self.authorities.text(host.authority)
    }

    /// Checks that authorities, lanes and counts agree.
    pub fn audit(&self) -> Result<(), String> {
        for (place, host) in (0..).zip(&self.places) {
            let Some(host) = host else { continue };
            let named = self.authorities.host(host.authority);
            let is_proven = self.authorities.is_proven(host.authority);
            if named != Some(HostId(place)) || is_proven != host.is_proven {
                return Err(format!("host {place} is {named:?} to its authority"));
            }
        }
        let unproven = self.iter().filter(|host| !host.is_proven).count();
        if unproven != self.unproven || self.len() > self.hosts_max as u64 {
            return Err(format!("{} lanes, {unproven} unproven", self.len()));
        }
        self.audit_places()?;
        self.audit_flows()
    }

    fn forget(&mut self, host: HostId) {
        let forgotten = self.places[host.0 as usize].take();
        let forgotten = forgotten.expect("only a host with a lane is forgotten");
        self.unproven -= usize::from(!forgotten.is_proven);
        if forgotten.is_queued {
            self.flows.unqueue(forgotten.flow, host);
        }
        self.free.push(host.0);
        self.authorities.set_host(forgotten.authority, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::Slot;

    const AT: Tick = Tick(1_000_000);

    fn hosts(hosts_per_core_max: u32) -> Hosts {
        let limits = CallbackLimits { hosts_per_core_max, ..CallbackLimits::default() };
        Hosts::new(Authorities::new(2, 3), &limits, ShardIndex(0))
    }

    /// A host that timers name, with a lane if it gets one, and the hosts that lost theirs.
    fn admit(hosts: &mut Hosts, text: &str) -> (Option<HostId>, Vec<HostId>) {
        let authority = hosts.authorities.enter(text).0;
        let mut released = Vec::new();
        let host = hosts.admit(authority, AT, &mut released);
        assert_eq!(hosts.audit(), Ok(()));
        (host, released)
    }

    /// Lets so many callbacks of a host run.
    fn run(hosts: &mut Hosts, host: HostId, callbacks: u32) {
        while hosts.get(host).in_flight > callbacks {
            hosts.give_back_place(host);
        }
        while hosts.get(host).in_flight < callbacks {
            hosts.take_place(host, AT);
        }
    }

    fn busy(hosts: &mut Hosts, text: &str) -> HostId {
        let host = admit(hosts, text).0.expect("a lane is free");
        run(hosts, host, 1);
        host
    }

    fn fail(hosts: &mut Hosts, host: HostId, times: u32) {
        for _ in 0..times {
            hosts.failed(host, AT);
        }
    }

    #[test]
    fn bytes_are_lanes_and_authorities() {
        let mut hosts = hosts(4);
        assert!(hosts.authorities.bytes() > 1);
        assert_eq!(hosts.bytes(), hosts.authorities.bytes());
        busy(&mut hosts, "a");
        busy(&mut hosts, "b");
        assert_eq!(hosts.bytes(), 2 * size_of::<Option<Host>>() + hosts.authorities.bytes());
    }

    #[test]
    fn an_idle_host_gives_its_lane_to_one_that_needs_it() {
        let mut hosts = hosts(2);
        let first = busy(&mut hosts, "a");
        let (second, _) = admit(&mut hosts, "b");
        let (third, released) = admit(&mut hosts, "c");
        assert_eq!((third, released), (second, vec![HostId(1)]));
        assert_eq!(hosts.authority(HostId(1)), "c");
        assert_eq!(admit(&mut hosts, "a"), (Some(first), vec![]), "who has a lane keeps it");
        run(&mut hosts, HostId(1), 1);
        assert_eq!(admit(&mut hosts, "d"), (None, vec![]));
        run(&mut hosts, first, 0);
        assert_eq!(admit(&mut hosts, "d"), (Some(first), vec![first]));
        assert_eq!((hosts.len(), hosts.authorities.len()), (2, 4));
    }

    #[test]
    fn a_host_is_listed_once_and_only_in_trouble_with_pops_that_wait() {
        let mut hosts = hosts(1);
        let host = busy(&mut hosts, "a");
        let mut links = Links::new();
        links.ensure(Slot(0));
        for (failures, waits, listed) in
            [(0, false, 0), (0, true, 0), (SUSPECT_FAILURES, false, 0), (SUSPECT_FAILURES, true, 1)]
        {
            let entry = hosts.get_mut(host);
            entry.failures = failures;
            if waits && entry.ready.is_empty() {
                entry.ready.push_back(&mut links, Slot(0));
            } else if !waits {
                entry.ready.pop_front(&mut links);
            }
            hosts.list_if_troubled(host);
            hosts.list_if_troubled(host);
            assert_eq!(hosts.troubled.len(), listed, "{failures} {waits}");
            assert_eq!(hosts.has_waiting_in_trouble(), listed > 0);
        }
    }

    #[test]
    fn waiting_pops_keep_a_lane() {
        let mut hosts = hosts(1);
        let (host, _) = admit(&mut hosts, "a");
        let host = host.expect("the first");
        let mut links = Links::new();
        links.ensure(Slot(0));
        hosts.get_mut(host).ready.push_back(&mut links, Slot(0));
        assert_eq!(admit(&mut hosts, "b"), (None, vec![]));
        fail(&mut hosts, host, SUSPECT_FAILURES);
        hosts.list_if_troubled(host);
        assert_eq!(hosts.take_from_troubled(&mut links), Some((host, Slot(0))));
        assert_eq!(admit(&mut hosts, "b"), (None, vec![]), "it is listed still");
        assert_eq!(hosts.take_from_troubled(&mut links), None);
        assert!(!hosts.has_waiting_in_trouble());
        assert_eq!(admit(&mut hosts, "b"), (Some(host), vec![host]));
    }

    #[test]
    fn hosts_that_do_not_answer_leave_lanes_to_those_that_do() {
        let mut hosts = hosts(8);
        let good = busy(&mut hosts, "good");
        hosts.succeeded(good);
        for number in 0..6 {
            busy(&mut hosts, &format!("silent{number}"));
        }
        assert_eq!(admit(&mut hosts, "silent6"), (None, vec![]), "six of eight are theirs");
        run(&mut hosts, good, 0);
        assert_eq!(admit(&mut hosts, "silent6"), (None, vec![]), "not that of one that answers");
        let another = admit(&mut hosts, "another").0;
        assert_eq!(another, None, "one that was never called is as they are");
        // The host answered before it lost its lane.
        let known = hosts.authorities.enter("known").0;
        hosts.authorities.set_proven(known, true);
        assert_eq!(admit(&mut hosts, "known"), (Some(HostId(7)), vec![]));
        run(&mut hosts, HostId(7), 1);
        let also = hosts.authorities.enter("also known").0;
        hosts.authorities.set_proven(also, true);
        assert_eq!(admit(&mut hosts, "also known"), (Some(good), vec![good]));
        // A host that does not answer any more is no longer one of them.
        fail(&mut hosts, HostId(7), SUSPECT_FAILURES - 1);
        assert!(hosts.authorities.is_proven(known));
        fail(&mut hosts, HostId(7), 1);
        assert!(!hosts.authorities.is_proven(known));
        assert_eq!(hosts.audit(), Ok(()));
        hosts.succeeded(HostId(7));
        assert!(hosts.authorities.is_proven(known));
        assert_eq!(hosts.audit(), Ok(()));
    }

    #[test]
    fn a_search_for_an_idle_lane_looks_at_a_bounded_number() {
        let mut hosts = hosts(1_000);
        for number in 0..1_000 {
            let host = admit(&mut hosts, &format!("h{number}")).0;
            let host = host.or_else(|| {
                let known = hosts.authorities.enter(&format!("h{number}")).0;
                hosts.authorities.set_proven(known, true);
                admit(&mut hosts, &format!("h{number}")).0
            });
            run(&mut hosts, host.expect("a lane is free"), 1);
        }
        run(&mut hosts, HostId(500), 0);
        hosts.evict_at = 0;
        let mut tries = 0;
        let found = loop {
            tries += 1;
            if let (Some(host), _) = admit(&mut hosts, "late") {
                break host;
            }
        };
        assert_eq!((found, tries), (HostId(500), 500_usize.div_ceil(LOOKS_MAX)));
    }

    #[test]
    fn failures_of_one_burst_are_one_step_of_the_pause() {
        let mut hosts = hosts(4);
        let (host, _) = admit(&mut hosts, "a");
        let host = host.expect("the first");
        fail(&mut hosts, host, SUSPECT_FAILURES - 1);
        assert!(!hosts.get(host).is_in_trouble() && hosts.may_start(host, AT));
        fail(&mut hosts, host, 40);
        let limits = CallbackLimits::default();
        assert_eq!(hosts.get(host).probe_at, AT + limits.retry_first_ms);
        let mut at = AT;
        let mut pause_ms = limits.retry_first_ms;
        for _ in 0..10 {
            assert!(!hosts.may_start(host, at + (pause_ms - 1)));
            at = at + pause_ms;
            hosts.begin_turn(at);
            assert!(hosts.may_start(host, at));
            run(&mut hosts, host, 1);
            assert!(!hosts.may_start(host, at), "one probe at a time");
            run(&mut hosts, host, 0);
            hosts.failed(host, at);
            pause_ms = (pause_ms * 2).min(limits.retry_max_ms);
        }
        hosts.succeeded(host);
        assert!(hosts.may_start(host, at) && hosts.get(host).failures == 0);
        fail(&mut hosts, host, SUSPECT_FAILURES);
    }

    #[test]
    fn places_of_a_well_host_are_counted() {
        let mut hosts = hosts(4);
        let (host, _) = admit(&mut hosts, "a");
        let host = host.expect("the first");
        run(&mut hosts, host, CallbackLimits::default().connections_per_host_max - 1);
        assert!(hosts.may_start(host, AT));
        hosts.get_mut(host).in_flight += 1;
        assert!(!hosts.may_start(host, AT));
    }

    #[test]
    fn a_host_that_nothing_names_is_forgotten_after_a_while() {
        let mut hosts = hosts(8);
        let sweep = |hosts: &mut Hosts, at: Tick| {
            let mut released = Vec::new();
            hosts.sweep(at, 1_000, &mut released);
            assert_eq!(hosts.audit(), Ok(()));
            released
        };
        let (a, b) = (admit(&mut hosts, "a").0, admit(&mut hosts, "b").0);
        let (a, b) = (a.expect("a lane"), b.expect("a lane"));
        let later = AT + IDLE_HOST_MS;
        assert_eq!(sweep(&mut hosts, later), [], "timers name both");
        let authority = hosts.get(a).authority;
        hosts.leave(authority, later);
        assert_eq!(sweep(&mut hosts, later + (IDLE_HOST_MS - 1)), []);
        run(&mut hosts, a, 1);
        assert_eq!(sweep(&mut hosts, later + IDLE_HOST_MS), [], "its callback runs");
        run(&mut hosts, a, 0);
        assert_eq!(sweep(&mut hosts, later + IDLE_HOST_MS), [a]);
        assert_eq!((hosts.len(), hosts.authorities.len()), (1, 1));
        assert_eq!(hosts.authority(b), "b");
        assert_eq!(admit(&mut hosts, "c").0, Some(a), "its lane is given to the next");
    }

    #[test]
    fn a_sweep_looks_at_a_portion() {
        let mut hosts = hosts(8);
        for text in ["a", "b", "c", "d"] {
            admit(&mut hosts, text);
            let authority = hosts.authorities.enter(text).0;
            hosts.leave(authority, AT);
            hosts.leave(authority, AT);
        }
        let mut released = Vec::new();
        for swept in [1, 2, 3, 4, 4] {
            hosts.sweep(AT + IDLE_HOST_MS, 1, &mut released);
            assert_eq!(released.len(), swept);
        }
        assert_eq!((hosts.len(), hosts.authorities.len()), (0, 0));
    }
}
