//! What disks may do to timers, as far as clients can tell. In mode `interval`, what was
//! acknowledged just before a death may be lost (J2). A boot brings due times over by the wall clock
//! (J6).

use chronos::base::limits::TOMBSTONE_MS_MIN;

use super::disturbances::RECOVERY_NS;
use super::model::{MS, Model, Write};

/// What disks may have lost.
#[derive(Default)]
pub struct Losses {
    /// How long after its acknowledgement a write may not be on a disk; 0: it is there before.
    pub unwritten_ns: u64,
    /// Nodes whose process ended while it may have had something to write, and when.
    pub crashes: Vec<(usize, u64)>,
    /// When a start brought times of earlier boots over by the wall clock, and by how much at most
    /// they came to seem longer ago, and less long ago.
    pub shifts: Vec<(u64, u64, u64)>,
}

impl Losses {
    /// Returns by how much a start that was noted at `at_ns` may seem to be earlier, and later, by
    /// the boots since. Any node may have had it from one that booted.
    pub fn shifted_ns(&self, at_ns: u64) -> (u64, u64) {
        let since = self.shifts.iter().filter(|shift| shift.0 >= at_ns);
        since.fold((0, 0), |(early, late), shift| (early + shift.1, late + shift.2))
    }

    /// Notes that all was on the disk of a node that has just ended.
    pub fn lost_nothing(&mut self, node: usize, now_ns: u64) {
        self.crashes.retain(|crash| *crash != (node, now_ns));
    }
}

impl Model {
    /// Returns how long a node must have been away to bring back a timer that has ended since. A node
    /// that returns with its disk may reach the other site and not its own, which holds tombstones
    /// for it. The other site holds none: it reaches the first one all the while (seed 2102990).
    pub fn away_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let is_split = self.has_sites && self.disturbances.has_dead_cut_off(from_ns, to_ns);
        if is_split && self.disturbances.has_disks { TOMBSTONE_MS_MIN * MS } else { self.away_ns }
    }

    /// Reports whether an acknowledged write may be on no disk: each node that had it died, and one
    /// of them before it had the time to write it down.
    pub fn may_be_unwritten(&self, write: &Write) -> bool {
        let Losses { unwritten_ns, crashes, .. } = &self.losses;
        let Some(done_ns) = write.acknowledged_ns().filter(|_| *unwritten_ns > 0) else {
            return false;
        };
        let from_ns = write.sent_ns.saturating_sub(RECOVERY_NS);
        let is_unwritten = |&(node, at_ns): &(usize, u64)| {
            let written_ns = self.disturbances.has_had_ns(node, done_ns, *unwritten_ns);
            at_ns >= write.sent_ns && at_ns <= written_ns
        };
        let last = crashes.iter().filter(|crash| is_unwritten(crash)).map(|crash| crash.1).max();
        last.is_some_and(|last_ns| {
            self.disturbances.impaired_max(from_ns, last_ns) >= write.replicas
        })
    }

    /// Reports whether damage may have taken the newest states of a write from a disk, and with them
    /// the end of its timer.
    pub fn may_be_damaged(&self, write: &Write) -> bool {
        self.damaged_ns.is_some_and(|at_ns| at_ns > write.sent_ns)
    }

    /// Reports whether all nodes but one hold everything since before a write. In mode `interval` a
    /// node that died counts as complete only since its return.
    pub fn are_others_complete(&self, write: &Write, now_ns: u64) -> bool {
        let from_ns = write.sent_ns.saturating_sub(RECOVERY_NS);
        let deaths =
            self.losses.crashes.iter().filter(|(_, at_ns)| (from_ns..=now_ns).contains(at_ns));
        let mut nodes = deaths.map(|(node, _)| node);
        let first = nodes.next();
        self.losses.unwritten_ns == 0 || nodes.all(|node| Some(node) == first)
    }
}
