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
//! - Where none is free, hosts that have none wait in two lists, one for hosts that answered and
//!   one for the others. The lists take turns. Nobody who comes later goes ahead.

use std::collections::VecDeque;

use crate::base::ids::HostId;
use crate::base::planted::{Bug, is_planted};

use super::hosts::{Host, Hosts};

/// The places of a core and who waits for one.
#[derive(Debug)]
pub(super) struct Places {
    /// Places of the core.
    all: u32,
    /// Places taken, and those of them that hosts have which have not answered.
    taken: u32,
    unproven: u32,
    /// Hosts without a place that have pops waiting for one: those that have not answered, those
    /// that have.
    short: [VecDeque<HostId>; 2],
    /// Which of the lists has its turn first.
    is_proven_next: bool,
    /// The host whose turn has come.
    turn: Option<HostId>,
}

impl Places {
    pub fn new(all: u32) -> Self {
        let short = [VecDeque::new(), VecDeque::new()];
        Self { all: all.max(1), taken: 0, unproven: 0, short, is_proven_next: true, turn: None }
    }

    #[inline]
    pub fn take(&mut self, is_proven: bool) {
        self.taken += 1;
        self.unproven += u32::from(!is_proven);
    }

    #[inline]
    pub fn give_back(&mut self, is_proven: bool) {
        self.taken -= 1;
        self.unproven -= u32::from(!is_proven);
    }

    /// A host with so many places has answered, or has not.
    pub fn prove(&mut self, in_flight: u32, is_proven: bool) {
        match is_proven {
            true => self.unproven -= in_flight,
            false => self.unproven += in_flight,
        }
    }

    /// Whether a host without a place may have one, whoever waits.
    fn has_first(&self, is_proven: bool) -> bool {
        let unproven_max = self.all - self.all / 8;
        self.taken < self.all && (is_proven || self.unproven < unproven_max)
    }
}

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
                let is_here = usize::from(is_proven) == list;
                if is_waiting && is_here && !self.core_places.has_first(is_proven) {
                    break;
                }
                self.core_places.short[list].pop_front();
                if is_waiting && !is_here {
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
