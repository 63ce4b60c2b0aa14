//! Looks over a whole shard and says where its parts disagree. For the simulator and tests; cost:
//! every record.

use std::collections::BTreeMap;

use crate::base::ids::Slot;
use crate::timer::definition::Content;

use super::Shard;
use super::record::State;
use super::tags::pops_first;

impl Shard {
    /// Checks that every record is in exactly one of wheel, waiting list, in flight; that the index
    /// names every record; and that counters equal what is counted afresh (simulator T10). The
    /// error names the first disagreement.
    pub fn audit(&self) -> Result<(), String> {
        let mut by_state = [0_u64; 6];
        for slot in self.records.occupied_from(Slot(0)) {
            let record = self.records.get(slot);
            by_state[record.state as usize] += 1;
            if self.find(record.id) != Some(slot) {
                return Err(format!("the index does not name {:?} at {slot:?}", record.id));
            }
        }
        let count = |states: &[State]| states.iter().map(|state| by_state[*state as usize]).sum();
        let waiting: u64 = self.hosts.iter().map(|host| u64::from(host.ready.len())).sum();
        let named = self.hosts.authorities.timers_of_all();
        let places: u64 = self.hosts.iter().map(|host| u64::from(host.in_flight)).sum();
        let live = count(&State::LIVE);
        let filed = count(&State::FILED);
        let checks = [
            ("records in the index", self.index.len(), self.records.len()),
            ("records in the wheel", self.wheel.len(), filed),
            ("records in waiting lists", waiting, count(&[State::Ready])),
            ("pops waiting, counted", self.counters.waiting, waiting),
            ("timers counted", self.counters.timers, live),
            ("timers that name authorities", named, live),
            ("records named by placements", self.placements.timers(), self.records.len()),
            ("tombstones counted", self.counters.tombstones, count(&[State::Tombstone])),
            ("places taken at hosts", places, self.counters.in_flight),
        ];
        self.audit_tags()?;
        self.hosts.audit()?;
        match checks.iter().find(|(_, found, expected)| found != expected) {
            Some((what, found, expected)) => Err(format!("{what}: {found}, expected {expected}")),
            None => Ok(()),
        }
    }

    /// What tags hold and count equals what is summed up afresh; those beyond the bound together.
    fn audit_tags(&self) -> Result<(), String> {
        let mut sums: BTreeMap<(u32, String), u64> = BTreeMap::new();
        for slot in self.records.occupied_from(Slot(0)) {
            let record = self.records.get(slot);
            if !record.is_live() {
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
            let counted = of_name.filter(|((group, _), _)| {
                pops_first(&self.peers, self.placements.numbered(*group))
            });
            let expected: u64 = counted.map(|(_, sum)| sum).sum();
            if present != expected {
                return Err(format!("tag {name:?}: {present}, expected {expected}"));
            }
        }
        Ok(())
    }
}
