//! What a node must know before it pops, when it comes back with its disk: what its own site missed,
//! the other site did. A site that lived all the while is a *witness*.

use super::disturbances::{Disturbances, RECOVERY_NS, Whom};
use super::model::{Checked, Model, Write, broken};
use super::network::CoreAt;
use chronos::shard::effects::CallbackOutcome;

impl Model {
    /// Checks T3, T5 and T6 across sites, for a callback of a node that has died since, and came
    /// back: nothing pops that the witness has replaced, deleted or popped.
    pub fn has_heard_witness(
        &self,
        write: &Write,
        (place, sequence): (CoreAt, u64),
        now_ns: u64,
    ) -> Checked {
        if !self.has_sites || self.acknowledges_first {
            return Ok(());
        }
        if let Some(later) = self.superseded_by(write)
            && let Some(done_ns) = later.acknowledged_ns()
            && self.is_witnessed(place, (later.sent_ns, done_ns), now_ns)
            && !self.is_made_again(write, later)
            && !self.may_return(write, later.sent_ns.min(write.sent_ns), now_ns)
        {
            let what = format!("pop of {write:?} by {place:?} at {now_ns} after {later:?}");
            return broken("T6 witness", what);
        }
        let pops = self.pops.range((write.name, sequence)..=(write.name, u64::MAX));
        for (&(_, popped), others) in pops {
            let is_known = |other: &&super::model::Attempted| match other.told {
                Some((told_ns, CallbackOutcome::Delivered)) => {
                    self.is_witnessed(place, (other.begun_ns, told_ns), now_ns)
                }
                _ => false,
            };
            if let Some(other) = others.iter().find(is_known)
                && self.is_current(write, now_ns)
                && !self.may_be_back(write, other.begun_ns, now_ns)
            {
                let what = format!(
                    "pop {sequence} of {write:?} by {place:?} at {now_ns}, {popped} is {other:?}"
                );
                return broken("T3 witness", what);
            }
        }
        Ok(())
    }

    /// Reports whether one site has not been able to tell the other since a moment what a node of
    /// it did by then: they were cut off, and then the site died.
    pub fn is_untold(&self, (by, done_ns): (CoreAt, u64), to: CoreAt, now_ns: u64) -> bool {
        self.disturbances.never_talked((by.node, to.node), (done_ns, now_ns), self.talk_ns)
    }

    /// Reports whether a node that has died since something was done, and is back, must know of it:
    /// while it was done, and was told between sites, nothing else happened; since then nodes at
    /// most died, froze and came back; and all nodes of one site lived.
    fn is_witnessed(&self, place: CoreAt, (from_ns, done_ns): (u64, u64), now_ns: u64) -> bool {
        let told_ns = done_ns + self.talk_ns;
        told_ns < now_ns
            && self.disturbances.has_died(place.node, told_ns, now_ns)
            && self.disturbances.is_quiet(from_ns.saturating_sub(RECOVERY_NS), told_ns)
            && self.disturbances.has_only_pauses(from_ns.saturating_sub(RECOVERY_NS), now_ns)
            && self.reloads.iter().all(|reload| reload.0 > now_ns || reload.1 < from_ns)
            && self.disturbances.has_witness(from_ns, now_ns)
    }
}

impl Disturbances {
    /// Reports whether two nodes are of two sites of which no node could talk to one of the other
    /// site for so long between the two times.
    fn never_talked(&self, (one, other): (usize, usize), span: (u64, u64), least_ns: u64) -> bool {
        let Some(sites) = self.sites() else { return false };
        let of = |node: usize| {
            (0..sites.nodes).filter(move |it| sites.site_of(*it) == sites.site_of(node))
        };
        sites.site_of(one) != sites.site_of(other)
            && !of(one)
                .any(|one| of(other).any(|other| self.could_talk((one, other), span, least_ns)))
    }

    /// Reports whether a node was dead for a time that ended between the two times.
    fn has_died(&self, node: usize, from_ns: u64, to_ns: u64) -> bool {
        self.deaths().any(|(whom, _, back_ns)| {
            whom == Whom::Node(node) && (from_ns..=to_ns).contains(&back_ns)
        })
    }
}
