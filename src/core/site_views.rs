//! What a core tells of itself to other sites, and what it knows of them.

// Reads the wall clock: judged 1.

use crate::base::ids::PeerIndex;
use crate::base::time::{Now, WallMs};
use crate::core::peers::site_watch::SiteStanding;
use crate::wire::site_news::SiteNews;

use super::Core;

impl Core {
    /// What this node says of itself to another site that asks for its members.
    pub fn site_news(&self, now: Now) -> SiteNews {
        let since = self.complete_since.at_start().unwrap_or(WallMs(0));
        SiteNews { wall: now.wall, sites: self.view().sites_digest(), since }
    }

    /// How the other sites stand, by the numbers of the peers.
    pub fn sites(&self, now: Now) -> impl Iterator<Item = (PeerIndex, SiteStanding)> {
        self.peering.sites(now, &self.shard)
    }
}
