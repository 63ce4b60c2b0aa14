//! The places of a core for callbacks that run, at all hosts together: as many as it has files for.
//!
//! A lack of places is no failure of a host. So a pop that finds none waits in the list of its
//! host, and nothing is counted against the host, the pop or the timer. These rules keep hosts that
//! hang from having all places:
//!
//! - A host that has places gets another only while it has fewer than are free beyond a quarter of
//!   all. So the first hosts that hang leave as much as each of them takes, and always a quarter.
//! - A host that has none gets one as long as any is free. Hosts that have not answered when they
//!   were called last share seven eighths.
//! - In a millisecond only a few hosts begin that have no place and have not answered. To call a
//!   host that is dead costs as much as to call one that answers, so a herd of dead ones would
//!   delay all others.
//! - Where none is free, hosts that have none wait in two lists, one for hosts that answered and
//!   one for the others. The lists take turns. Nobody who comes later goes ahead.

// May panic: indices 6.
// Why it does not: fixed 6.

use std::collections::VecDeque;

use crate::base::ids::HostId;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::Tick;

use super::hosts::{Host, Hosts};
use super::places::STRANGERS_PER_TICK_MAX;

impl Hosts {
    /// Whether this core has a place for one more callback of a host.
    #[inline]
    pub fn has_place(&self, host: HostId) -> bool {
        let (places, entry) = (&self.core_places, self.get(host));
        if is_planted(Bug::HungHostTakesLastPlace) {
            return places.taken < places.all;
        }
        if entry.in_flight > 0 {
            return entry.in_flight + places.taken + places.all / 4 < places.all;
        }
        let is_first =
            places.turn == Some(host) || places.short[usize::from(entry.is_proven)].is_empty();
        is_first && places.has_first(entry.is_proven)
    }

    /// Lists a host that has pops waiting, and no place because the core has none for it. Returns
    /// whether it is listed now and was not before.
    pub fn list_if_short(&mut self, host: HostId) -> bool {
        let entry = self.get(host);
        let is_short = entry.in_flight == 0 && !entry.ready.is_empty() && !entry.is_in_trouble();
        if !is_short || entry.is_short || self.is_paused(host) || self.has_place(host) {
            return false;
        }
        let is_proven = entry.is_proven;
        self.get_mut(host).is_short = true;
        self.core_places.short[usize::from(is_proven)].push_back(host);
        true
    }

    /// Notes the tick of a turn.
    #[inline]
    pub fn begin_turn(&mut self, tick: Tick) {
        if tick != self.core_places.tick {
            (self.core_places.tick, self.core_places.strangers) = (tick, 0);
        }
    }

    /// Whether hosts wait that may begin in the next tick.
    #[inline]
    pub fn waits_for_tick(&self) -> bool {
        let places = &self.core_places;
        places.strangers >= STRANGERS_PER_TICK_MAX
            && !places.short[0].is_empty()
            && places.taken < places.all
    }

    /// Takes the host that has waited longest for a place that is free now. The turn lasts until
    /// the next call.
    pub fn next_short(&mut self) -> Option<HostId> {
        self.core_places.turn = None;
        if is_planted(Bug::FreedPlaceWakesNobody) {
            return None;
        }
        let first = usize::from(self.core_places.is_proven_next);
        for list in [first, 1 - first] {
            while let Some(&host) = self.core_places.short[list].front() {
                let entry = self.get(host);
                let is_waiting = entry.in_flight == 0 && !entry.ready.is_empty();
                let is_proven = entry.is_proven;
                let is_blocked = is_waiting && !self.core_places.has_first(is_proven);
                if is_blocked && usize::from(is_proven) == list {
                    break;
                }
                self.core_places.short[list].pop_front();
                if is_blocked {
                    // It has answered since, or has not.
                    self.core_places.short[1 - list].push_back(host);
                    continue;
                }
                self.get_mut(host).is_short = false;
                if is_waiting {
                    self.core_places.is_proven_next = list == 0;
                    self.core_places.turn = Some(host);
                    return Some(host);
                }
            }
        }
        None
    }

    /// Checks that places and hosts agree.
    pub(super) fn audit_places(&self) -> Result<(), String> {
        let places = &self.core_places;
        let sum = |of: fn(&Host) -> bool| -> u32 {
            self.iter().filter(|host| of(host)).map(|host| host.in_flight).sum()
        };
        let (taken, unproven) = (sum(|_| true), sum(|host| !host.is_proven));
        let listed = self.iter().filter(|host| host.is_short).count();
        let short: usize = places.short.iter().map(VecDeque::len).sum();
        if (taken, unproven, listed) != (places.taken, places.unproven, short) {
            return Err(format!("{taken} run, {unproven} unproven, {listed} short: {places:?}"));
        }
        match taken <= places.all {
            true => Ok(()),
            false => Err(format!("{taken} run at {} places", places.all)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::authorities::Authorities;
    use super::*;
    use crate::base::ids::{ShardIndex, Slot};
    use crate::base::limits::CallbackLimits;
    use crate::store::links::Links;

    const AT: Tick = Tick(1_000_000);

    fn hosts(places_per_core_max: u32) -> Hosts {
        let limits = CallbackLimits { places_per_core_max, ..CallbackLimits::default() };
        Hosts::new(Authorities::new(2, 3), &limits, ShardIndex(0))
    }

    fn host(hosts: &mut Hosts, text: &str) -> HostId {
        let authority = hosts.authorities.enter(text).0;
        hosts.admit(authority, AT, &mut Vec::new()).expect("a lane is free")
    }

    /// Lets as many callbacks of a host run as may. Returns how many.
    fn fill(hosts: &mut Hosts, host: HostId) -> u32 {
        while hosts.may_start(host, AT) {
            hosts.take_place(host, AT);
        }
        assert_eq!(hosts.audit(), Ok(()));
        hosts.get(host).in_flight
    }

    /// Lets a pop wait for a host.
    fn wait(hosts: &mut Hosts, links: &mut Links, host: HostId, slot: u32) -> bool {
        links.ensure(Slot(slot));
        hosts.push_waiting(host, links, Slot(slot));
        hosts.list_if_short(host)
    }

    #[test]
    fn a_host_that_hangs_has_a_share_and_leaves_a_place_to_each_other() {
        let mut many = hosts(u32::MAX);
        let mut hosts = hosts(124);
        let mut taken = 0;
        for number in 0..8 {
            hosts.begin_turn(AT + number);
            let host = host(&mut hosts, &format!("hung{number}"));
            taken += fill(&mut hosts, host);
            assert!(taken < 124, "the last place is nobody's second");
        }
        for number in 8..20 {
            hosts.begin_turn(AT + number);
            let host = host(&mut hosts, &format!("late{number}"));
            assert!(fill(&mut hosts, host) > 0, "{number}");
        }
        // With many files nobody notices: a host has as many as its own limit.
        let one = host(&mut many, "one");
        assert_eq!(fill(&mut many, one), CallbackLimits::default().connections_per_host_max);
    }

    #[test]
    fn hosts_that_never_answered_leave_an_eighth_to_those_that_did() {
        let mut hosts = hosts(16);
        let known = host(&mut hosts, "known");
        hosts.take_place(known, AT);
        hosts.give_back_place(known);
        hosts.succeeded(known);
        let mut with_one = 0;
        for number in 0..20 {
            let host = host(&mut hosts, &format!("hung{number}"));
            with_one += u32::from(fill(&mut hosts, host) > 0);
        }
        assert_eq!(hosts.core_places.unproven, 14, "{with_one}");
        assert!(fill(&mut hosts, known) > 0);
    }

    #[test]
    fn hosts_without_a_place_take_turns_and_nobody_goes_ahead() {
        let mut hosts = hosts(2);
        let mut links = Links::new();
        let all: Vec<_> = (0..5).map(|it| host(&mut hosts, &format!("h{it}"))).collect();
        for at in [0, 1] {
            assert_eq!(fill(&mut hosts, all[at]), 1);
        }
        for (at, slot) in [(2, 0), (3, 1)] {
            assert!(wait(&mut hosts, &mut links, all[at], slot));
            assert!(!hosts.list_if_short(all[at]), "once");
        }
        assert_eq!(hosts.next_short(), None, "no place is free");
        hosts.give_back_place(all[0]);
        assert!(!hosts.has_place(all[4]), "others came before");
        assert_eq!(hosts.next_short(), Some(all[2]));
        assert!(hosts.has_place(all[2]) && !hosts.has_place(all[0]));
        hosts.pop_waiting(all[2], &mut links);
        hosts.take_place(all[2], AT);
        assert_eq!((hosts.next_short(), hosts.audit()), (None, Ok(())));
        // A host whose pops are gone is passed over.
        hosts.pop_waiting(all[3], &mut links);
        hosts.give_back_place(all[1]);
        assert_eq!((hosts.next_short(), hosts.audit()), (None, Ok(())));
        assert!(hosts.has_place(all[4]));
    }

    #[test]
    fn few_hosts_that_have_not_answered_begin_in_a_tick() {
        let mut hosts = hosts(1_000);
        let mut links = Links::new();
        let known = host(&mut hosts, "known");
        hosts.prove(known, true);
        let dead: Vec<_> = (0..20).map(|it| host(&mut hosts, &format!("dead{it}"))).collect();
        let mut begun = Vec::new();
        for (slot, &host) in (0..).zip(&dead) {
            if hosts.may_start(host, AT) {
                hosts.take_place(host, AT);
                begun.push(host);
            } else {
                assert!(wait(&mut hosts, &mut links, host, slot));
            }
        }
        assert_eq!(begun.len() as u32, STRANGERS_PER_TICK_MAX);
        assert!(hosts.has_place(known) && hosts.next_short().is_none());
        assert!(hosts.waits_for_tick());
        hosts.begin_turn(AT);
        hosts.begin_turn(AT);
        let mut ticks = 1;
        while let Some(host) = hosts.next_short() {
            assert!(hosts.may_start(host, AT));
            hosts.pop_waiting(host, &mut links);
            hosts.take_place(host, AT);
            begun.push(host);
            if hosts.waits_for_tick() {
                hosts.begin_turn(AT + ticks);
                ticks += 1;
            }
        }
        assert_eq!((begun, ticks, hosts.audit()), (dead, 2, Ok(())), "in their order");
    }

    #[test]
    fn a_host_that_answers_meanwhile_waits_with_those_that_answer() {
        let mut hosts = hosts(1);
        let mut links = Links::new();
        let (first, second) = (host(&mut hosts, "a"), host(&mut hosts, "b"));
        fill(&mut hosts, first);
        assert!(wait(&mut hosts, &mut links, second, 0));
        hosts.prove(second, true);
        hosts.give_back_place(first);
        assert_eq!(hosts.next_short(), Some(second));
        assert_eq!(hosts.audit(), Ok(()));
    }
}
