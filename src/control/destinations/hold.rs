//! Callbacks of a node that starts wait until the other members have told it what operators ordered
//! for destinations. Otherwise it would call destinations that are paused.

use std::time::{Duration, Instant};

use crate::base::ids::{PeerIndex, PeerSet};
use crate::cluster::detector::Liveness;
use crate::node::meters::CoreMeters;
use crate::shard::effects::Dialect;

/// A member that is not reached is waited for so long after the start, as pops wait for it anyhow.
const REACH: Duration = Duration::from_secs(1);
/// A member that is reached is waited for so long. An older version never says that it has told
/// all.
const LONGEST: Duration = Duration::from_secs(3);

/// What is waited for.
#[derive(Debug)]
pub(super) struct Hold {
    members: PeerSet,
    told: PeerSet,
    since: Instant,
}

impl Hold {
    /// Waits for these nodes from now on. `None`: there is none.
    pub(super) fn new(members: PeerSet, now: Instant) -> Option<Self> {
        let is_alone = members.is_empty();
        (!is_alone).then_some(Self { members, told: PeerSet::EMPTY, since: now })
    }

    /// A node has told all orders that it knows.
    pub(super) fn note(&mut self, peer: PeerIndex) {
        self.told = self.told.with(peer);
    }

    /// Whether nobody is waited for any more.
    pub(super) fn is_over(&self, meters: &[CoreMeters], now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since);
        let is_awaited = |peer: PeerIndex| {
            let beliefs = || meters.iter().filter_map(|core| core.beliefs.get(peer));
            // Originals keep no rules.
            let is_original = beliefs().any(|(_, dialect)| dialect == Dialect::Http);
            let is_reached = beliefs().any(|(liveness, _)| liveness == Liveness::Alive);
            !is_original && (is_reached || passed < REACH)
        };
        passed >= LONGEST || !self.members.minus(self.told).iter().any(is_awaited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_is_waited_for_until_it_has_told_all_or_is_not_there() {
        let began = Instant::now();
        let (one, two) = (PeerIndex(1), PeerIndex(2));
        let members = PeerSet::EMPTY.with(one).with(two);
        assert!(Hold::new(PeerSet::EMPTY, began).is_none(), "a node alone waits for nobody");
        let hold = || Hold::new(members, began).expect("two members");
        let meters = [CoreMeters::default(), CoreMeters::default()];
        let is_over =
            |hold: &Hold, ms: u64| hold.is_over(&meters, began + Duration::from_millis(ms));
        let unreached = hold();
        assert!(!is_over(&unreached, 999) && is_over(&unreached, 1_000));
        let mut told = hold();
        told.note(one);
        assert!(!is_over(&told, 0));
        told.note(two);
        assert!(is_over(&told, 0));
        meters[1].beliefs.set(two, Liveness::Alive, Dialect::Frames, false);
        let mut silent = hold();
        silent.note(one);
        assert!(!is_over(&silent, 2_999) && is_over(&silent, 3_000));
        meters[0].beliefs.set(two, Liveness::Alive, Dialect::Http, false);
        assert!(is_over(&silent, 0), "an original");
    }
}
