//! Looks over all records and says where the tables that hold them disagree. For the simulator and
//! tests. Cost: every record.

// May panic: indices 2.
// Why it does not: fixed 2.

use std::collections::BTreeMap;

use super::tags::pops_first;
use super::{Records, State};
use crate::base::ids::Slot;
use crate::shard::parts::peers::Peers;
use crate::timer::definition::Content;

impl Records {
    /// Checks all records. The error names the first disagreement. What must hold:
    ///
    /// - Every record is in exactly one of wheel, waiting list and in flight.
    /// - The index names every record.
    /// - Counts equal what is counted afresh.
    /// - As many callbacks run as places of hosts are taken.
    pub fn audit(&self, peers: &Peers, in_flight: u64) -> Result<(), String> {
        let mut by_state = [0_u64; State::LIVE.len() + 1];
        for slot in self.slab.occupied_from(Slot(0)) {
            let record = self.slab.get(slot);
            by_state[record.state as usize] += 1;
            if self.find(record.id) != Some(slot) {
                return Err(format!("the index does not name {:?} at {slot:?}", record.id));
            }
            let lists = (self.links.is_in_wheel(slot), self.links.is_in_fifo(slot));
            if lists != (State::FILED.contains(&record.state), record.state == State::Ready) {
                return Err(format!("{slot:?} in state {:?} is in other lists", record.state));
            }
        }
        let count = |states: &[State]| states.iter().map(|state| by_state[*state as usize]).sum();
        let waiting: u64 = self.hosts.iter().map(|host| u64::from(host.waiting())).sum();
        let named = self.hosts.timers_of_all();
        let places: u64 = self.hosts.iter().map(|host| u64::from(host.in_flight())).sum();
        let live = count(&State::LIVE);
        let filed = count(&State::FILED);
        let checks = [
            ("records in the index", self.index.len(), self.slab.len()),
            ("records in the wheel", self.wheel.len(), filed),
            ("records in waiting lists", waiting, count(&[State::Ready])),
            ("pops waiting, counted", self.counts.waiting, waiting),
            ("timers counted", self.counts.timers, live),
            ("timers that name authorities", named, live),
            ("records named by placements", self.placements.timers(), self.slab.len()),
            ("tombstones counted", self.counts.tombstones, count(&[State::Tombstone])),
            ("places taken at hosts", places, in_flight),
            ("dead letters", self.letters.len() as u64, count(&[State::Parked])),
        ];
        self.audit_tags(peers)?;
        self.audit_commons()?;
        self.audit_owners()?;
        self.audit_tallies(peers)?;
        self.hosts.audit()?;
        match checks.iter().find(|(_, found, expected)| found != expected) {
            Some((what, found, expected)) => Err(format!("{what}: {found}, expected {expected}")),
            None => Ok(()),
        }
    }

    /// Checks that as many timers are counted for each owner as it has.
    fn audit_owners(&self) -> Result<(), String> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        let records = self.slab.occupied_from(Slot(0)).map(|slot| self.slab.get(slot));
        for record in records.filter(|record| record.is_live()) {
            let content = Content::decode(self.payloads.get(record.payload));
            content.owner().into_iter().for_each(|owner| *sums.entry(owner).or_default() += 1);
        }
        let counted: BTreeMap<&str, u64> = self.owners.iter().collect();
        let is_right = counted == sums;
        is_right.then_some(()).ok_or_else(|| format!("owners: {counted:?}, expected {sums:?}"))
    }

    /// Checks that as many timers are counted for each set of attributes as have it, and that
    /// records say which these are.
    fn audit_commons(&self) -> Result<(), String> {
        let mut sums: BTreeMap<u32, u32> = BTreeMap::new();
        let records = self.slab.occupied_from(Slot(0)).map(|slot| self.slab.get(slot));
        for record in records.filter(|record| record.is_live()) {
            let number = Content::decode(self.payloads.get(record.payload)).common_number();
            if number.is_some() != record.repeat_for.is_common() {
                return Err(format!("{record:?} has attributes elsewhere: {number:?}"));
            }
            number.into_iter().for_each(|number| *sums.entry(number).or_default() += 1);
        }
        let counted: BTreeMap<u32, u32> = self.commons.timers().collect();
        let is_right = counted == sums;
        is_right.then_some(()).ok_or_else(|| format!("commons: {counted:?}, expected {sums:?}"))
    }

    /// Checks that what tags hold and count equals what is summed up afresh. Tags beyond the bound
    /// are summed up together.
    fn audit_tags(&self, peers: &Peers) -> Result<(), String> {
        let mut sums: BTreeMap<(u32, String), u64> = BTreeMap::new();
        for slot in self.slab.occupied_from(Slot(0)) {
            let record = self.slab.get(slot);
            if !record.is_live() || record.state == State::Parked {
                continue;
            }
            let content = Content::decode(self.payloads.get(record.payload));
            for tag in content.tags().as_slice() {
                let is_named = self.tags.iter().any(|(name, _)| name == tag.kind);
                let name = if is_named { tag.kind.to_owned() } else { String::new() };
                let sum = sums.entry((record.placement.number(), name)).or_default();
                *sum += u64::from(tag.count);
            }
        }
        sums.retain(|_, sum| *sum > 0);
        let held = self.tags.held();
        let held: BTreeMap<_, _> =
            held.map(|(group, name, count)| ((group.0, name.to_owned()), count)).collect();
        if held != sums {
            return Err(format!("tags held: {held:?}, expected {sums:?}"));
        }
        let named = self.tags.iter().chain([("", self.tags.overflow())]);
        for (name, present) in named {
            let of_name = sums.iter().filter(|((_, other), _)| other == name);
            let counted = of_name
                .filter(|((group, _), _)| pops_first(peers, self.placements.numbered(*group)));
            let expected: u64 = counted.map(|(_, sum)| sum).sum();
            if present != expected {
                return Err(format!("tag {name:?}: {present}, expected {expected}"));
            }
        }
        Ok(())
    }
}
