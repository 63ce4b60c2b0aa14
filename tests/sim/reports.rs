//! Reports of pops. Their host takes each at the first attempt. Checks T14: each pop that was
//! delivered, and whose timer asks for it, is reported once, under the id that follows from the pop.

use std::collections::{BTreeMap, BTreeSet};

use chronos::base::ids::TimerId;
use chronos::shard::counters::Counters;
use chronos::shard::effects::Ticket;
use chronos::timer::naming::id_of_report;
use chronos::wire::report::ReportKind;

use super::model::{Checked, broken};

/// What stands in the place of the name of a write.
pub const REPORT: usize = usize::MAX;
/// Where reports go.
pub const URI: &str = "http://reports:80/done";
/// How long their server takes.
pub const TAKEN_NS: u64 = 700_000;

/// The reports of a run, by their ids.
#[derive(Default)]
pub struct Reports {
    /// Those that may come, and whether they must.
    owed: BTreeMap<u64, (u64, bool)>,
    taken: BTreeSet<u64>,
    /// By core: how many are under way.
    in_flight: BTreeMap<u16, u64>,
}

impl Reports {
    /// Notes that a pop was delivered whose timer asks for reports. `is_certain`: the timer was
    /// certainly not replaced meanwhile.
    pub fn owe(&mut self, pop: &Ticket, is_certain: bool) {
        let id = id_of_report(pop.id, pop.version, pop.sequence, ReportKind::Success);
        self.owed.insert(id.0, (pop.version.0, is_certain));
    }

    /// Checks a report that begins.
    pub fn begin(&mut self, core: u16, report: &Ticket, body: &[u8]) -> Checked {
        let TimerId(id) = report.id;
        let what = format!("report {id:x}: {}", String::from_utf8_lossy(body));
        if self.owed.get(&id).is_none_or(|(version, _)| *version != report.version.0) {
            return broken("T14", format!("{what}: of no pop that was delivered"));
        }
        if !self.taken.insert(id) {
            return broken("T14", format!("{what}: comes again"));
        }
        *self.in_flight.entry(core).or_default() += 1;
        Ok(())
    }

    /// Notes that a report was taken.
    pub fn end(&mut self, core: u16) {
        *self.in_flight.entry(core).or_default() -= 1;
    }

    pub fn in_flight(&self, core: u16) -> u64 {
        self.in_flight.get(&core).copied().unwrap_or_default()
    }

    /// Checks at the end that none is missing but for lack of room.
    pub fn all_done(&self, sum: &Counters) -> Checked {
        let taken = self.taken.len() as u64;
        let is_missing = |id: &u64| !self.taken.contains(id);
        let must = self.owed.iter().filter(|(_, (_, is_certain))| *is_certain);
        let missing = must.filter(|(id, _)| is_missing(id)).count() as u64;
        if missing > sum.reports_without_room || taken != sum.reports_made {
            let made = sum.reports_made;
            return broken("T14", format!("{missing} missing, {made} made, {taken} taken"));
        }
        Ok(())
    }
}
