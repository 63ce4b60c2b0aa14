//! How the other sites stand as all cores of this node see them, and how long it takes until each
//! site has been offered what it lacks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::moving::Moving;
use crate::base::ids::PeerIndex;
use crate::control::estimate::left_s;
use crate::core::peers::site_watch::SiteStanding;
use crate::node::meters::CoreMeters;

/// What a site is offered at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// For how long, as far as anybody looked.
    since: Duration,
    done: u64,
    all: u64,
}

impl Offer {
    /// Seconds that are left; `None`: nothing is done yet.
    pub(crate) fn left_s(&self) -> Option<u64> {
        left_s(self.since, self.done, self.all)
    }

    /// The same as work that is told in the log.
    pub(crate) fn moving(offer: Option<Self>) -> Moving {
        offer.map_or_else(Moving::default, |offer| Moving {
            is_running: true,
            seen: offer.done,
            total: offer.all,
            ..Moving::default()
        })
    }
}

/// Since when each site is offered what it lacks, and how much that was at most.
#[derive(Debug, Default)]
pub(super) struct Offers(BTreeMap<String, (Instant, u64)>);

impl Offers {
    /// Takes how a site stands. A site that is not reached is offered nothing.
    pub(super) fn look(&mut self, site: &str, it: &SiteStanding, now: Instant) -> Option<Offer> {
        if it.to_offer == 0 || !it.is_reached {
            self.0.remove(site);
            return None;
        }
        let (begun, all) = self.0.entry(site.to_owned()).or_insert((now, it.to_offer));
        *all = it.to_offer.max(*all);
        let since = now.saturating_duration_since(*begun);
        Some(Offer { since, done: *all - it.to_offer, all: *all })
    }
}

/// How a site stands: reached if all cores reach it. `None`: no core has said so yet.
pub(super) fn standing_of(meters: &[CoreMeters], site: PeerIndex) -> Option<SiteStanding> {
    let cores: Vec<SiteStanding> = meters.iter().filter_map(|core| core.sites.get(site)).collect();
    let is_reached = !cores.is_empty() && cores.iter().all(|core| core.is_reached);
    let alike = cores.iter().filter(|core| core.is_reached == is_reached);
    let since = alike.map(|core| core.for_ms);
    let ahead = cores.iter().filter_map(|core| core.ahead_ms);
    Some(SiteStanding {
        is_reached,
        for_ms: if is_reached { since.min() } else { since.max() }?,
        waiting: cores.iter().map(|core| core.waiting).sum(),
        lag_ms: cores.iter().map(|core| core.lag_ms).max()?,
        to_offer: cores.iter().map(|core| core.to_offer).sum(),
        ahead_ms: ahead.max_by_key(|ahead_ms| ahead_ms.unsigned_abs()),
        differs_ms: cores.iter().filter_map(|core| core.differs_ms).max(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_what_all_cores_see() {
        let cores = [CoreMeters::default(), CoreMeters::default()];
        let site = PeerIndex(3);
        assert_eq!(standing_of(&cores, site), None);
        let reached = SiteStanding {
            is_reached: true,
            for_ms: 9_000,
            waiting: 2,
            lag_ms: 30,
            to_offer: 5,
            ahead_ms: Some(-300_000),
            differs_ms: None,
        };
        cores[0].sites.set(site, &reached);
        assert_eq!(standing_of(&cores[..1], site), Some(reached));
        let later = SiteStanding { for_ms: 4_000, lag_ms: 40, ahead_ms: Some(7), ..reached };
        cores[1].sites.set(site, &later);
        let both = standing_of(&cores, site).expect("both say so");
        assert_eq!((both.is_reached, both.for_ms, both.lag_ms), (true, 4_000, 40));
        assert_eq!((both.waiting, both.to_offer, both.ahead_ms), (4, 10, Some(-300_000)));
        let gone = SiteStanding {
            is_reached: false,
            for_ms: 2_000,
            ahead_ms: None,
            differs_ms: Some(8),
            ..later
        };
        cores[1].sites.set(site, &gone);
        let both = standing_of(&cores, site).expect("both say so");
        assert_eq!((both.is_reached, both.for_ms, both.differs_ms), (false, 2_000, Some(8)));
    }

    #[test]
    fn the_time_that_is_left_counts_from_when_the_site_is_reached() {
        let (mut offers, begun) = (Offers::default(), Instant::now());
        let at = |s: u64| begun + Duration::from_secs(s);
        let of = |is_reached: bool, to_offer: u64| SiteStanding {
            is_reached,
            to_offer,
            ..SiteStanding::default()
        };
        assert_eq!(offers.look("b", &of(false, 1_000), at(0)), None, "it is away");
        let first = offers.look("b", &of(true, 1_000), at(5)).expect("it is offered");
        assert_eq!(first.left_s(), None, "nothing is done yet");
        let offer = offers.look("b", &of(true, 750), at(10)).expect("it is offered");
        assert_eq!(offer.left_s(), Some(15));
        assert_eq!(Offer::moving(Some(offer)).percent(), 25);
        assert_eq!(offers.look("b", &of(true, 0), at(20)), None);
        assert!(!Offer::moving(None).is_running);
    }
}
