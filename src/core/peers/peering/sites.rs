//! Other sites as this core sees them: from where their nodes call, which of them refuse this node,
//! how their clocks go, and what they still lack.

// May panic: indices 2.
// Why it does not: peers 2.

use std::net::IpAddr;

use crate::base::ids::PeerIndex;
use crate::base::time::{MonoNs, Now};
use crate::cluster::link::LinkError;
use crate::core::peers::actions::PeerError;
use crate::core::peers::behind::Behind;
use crate::core::peers::site_members::SiteMembers;
use crate::core::peers::site_watch::SiteStanding;
use crate::shard::Shard;

use super::Peering;

/// For so long sites that have just started, or have new files, may refuse each other: they learn
/// each other's members.
const SHUT_OUT_MS: u64 = 10_000;

impl Peering {
    /// Takes what another site told of its members. `Err`: it is not the site that was dialled.
    pub(super) fn take_members(&mut self, now: MonoNs, peer: PeerIndex) -> Result<(), PeerError> {
        let Some(dialled) = self.peers[peer.index()].as_mut() else { return Ok(()) };
        if let (Some((news, asked_at)), Some(watch)) =
            (dialled.voice.take_news(), &mut dialled.watch)
        {
            let may_lack = watch.hear(now, asked_at, news, self.view.sites_digest());
            if may_lack {
                dialled.lacks(now);
                self.gapped = self.gapped.with(peer);
            }
        }
        let (Some(told), Some(site)) = (dialled.voice.take_told(), &mut dialled.site) else {
            return Ok(());
        };
        if told.site != self.view.name_of(peer) {
            self.counters.strangers += 1;
            return Err(LinkError::Protocol("a site of another name answers"));
        }
        if site.take(told) {
            self.note_callers();
        }
        Ok(())
    }

    /// Notes from where nodes of other sites call, as those sites told that are known.
    pub(super) fn note_callers(&mut self) {
        let sites = self.peers.iter().flatten().filter_map(|peer| peer.site.as_ref());
        self.site_callers = sites.flat_map(|site| site.told().callers()).collect();
    }

    /// The addresses from which nodes of other sites call, as these sites told them.
    pub fn site_callers(&self) -> &[IpAddr] {
        &self.site_callers
    }

    /// What another site told last of its members. `None`: nothing so far.
    pub fn told_by(&self, site: PeerIndex) -> Option<&SiteMembers> {
        let known = self.peers.get(site.index()).and_then(Option::as_ref);
        let told = known?.site.as_ref()?.told();
        (!told.nodes.is_empty()).then_some(told)
    }

    /// Tells that another site refused a dial.
    pub fn shut_out_by(&mut self, behind: &mut Behind<'_>, peer: PeerIndex) {
        self.note_shut_out(behind.now.mono, peer);
        self.lost(behind, peer);
    }

    pub(super) fn note_shut_out(&mut self, now: MonoNs, peer: PeerIndex) {
        let known = self.peers.get_mut(peer.index()).and_then(Option::as_mut);
        let Some(site) = known.filter(|peer| peer.site.is_some()) else { return };
        let since = *site.shut_out.get_or_insert(now);
        self.counters.site_refusals += u64::from(since.plus_ms(SHUT_OUT_MS) <= now);
    }

    /// Compares the lists of the other sites with the list of a new view.
    pub(super) fn compare_lists(&mut self, now: MonoNs) {
        let digest = self.view.sites_digest();
        let watches = self.peers.iter_mut().flatten().filter_map(|peer| peer.watch.as_mut());
        watches.for_each(|watch| watch.compare(now, digest));
    }

    /// Tells the shard how far the clocks of the sites are ahead that get its timers, and notes
    /// which sites have been offered all that they lacked.
    pub(super) fn look_at_sites(&mut self, behind: &mut Behind<'_>) {
        let gets_timers = !self.view.sites().is_empty();
        let ahead_ms = self.sites_ahead_ms(behind.now).filter(|_| gets_timers).max().unwrap_or(0);
        behind.shard.follow_site_clocks(ahead_ms.max(0).unsigned_abs());
        for peer in self.view.connected_sites().iter() {
            let Some(site) = self.peers[peer.index()].as_mut() else { continue };
            let is_complete = !site.has_gaps && behind.shard.left_to_offer(peer) == 0;
            if let Some(watch) = site.watch.as_mut().filter(|_| is_complete) {
                watch.note_complete();
            }
        }
    }

    /// How far the wall clocks of the other sites are ahead of this node's, as far as that is
    /// certain, in ms. Sites that do not tell are left out.
    pub(super) fn sites_ahead_ms(&self, now: Now) -> impl Iterator<Item = i64> {
        let watches = self.peers.iter().flatten().filter_map(|peer| peer.watch.as_ref());
        watches.filter_map(move |watch| watch.ahead_ms(now))
    }

    /// How the sites stand to which this core keeps connections, by the numbers of the peers.
    pub fn sites(
        &self,
        now: Now,
        shard: &Shard,
    ) -> impl Iterator<Item = (PeerIndex, SiteStanding)> {
        self.view.connected_sites().iter().filter_map(move |peer| {
            let site = self.peers.get(peer.index())?.as_ref()?;
            let left = shard.left_to_offer(peer);
            let to_offer = if site.has_gaps { left.max(shard.records_held()) } else { left };
            Some((peer, site.watch.as_ref()?.standing(now, site.voice.len(), to_offer)))
        })
    }
}
