//! What the disks of nodes may have lost, as far as clients can tell: in mode `interval`, what was
//! acknowledged just before a death (J2).

use super::disturbances::RECOVERY_NS;
use super::model::{Model, Write};

/// What disks may have lost.
#[derive(Default)]
pub struct Losses {
    /// How long after its acknowledgement a write may not be on a disk; 0: it is there before.
    pub unwritten_ns: u64,
    /// Nodes whose process ended while it may have had something to write, and when.
    pub crashes: Vec<(usize, u64)>,
}

impl Losses {
    /// Notes that all was on the disk of a node that has just ended.
    pub fn lost_nothing(&mut self, node: usize, now_ns: u64) {
        self.crashes.retain(|crash| *crash != (node, now_ns));
    }
}

impl Model {
    /// Reports whether an acknowledged write may be on no disk: each node that had it died, and one
    /// of them before it had the time to write it down.
    pub fn may_be_unwritten(&self, write: &Write) -> bool {
        let Losses { unwritten_ns, crashes } = &self.losses;
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
