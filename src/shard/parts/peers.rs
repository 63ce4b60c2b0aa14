//! What this shard believes of its peers: who lives, and how each is talked to.

// May panic: indices 1.
// Why it does not: peers 1.

use std::sync::Arc;

use crate::base::destinations::Share;
use crate::base::ids::{NodeHash, PeerIndex, PeerSet};
use crate::base::ranked::Sites;
use crate::base::time::{MonoNs, TICK_NS, Tick, WallMs};
use crate::cluster::detector::Liveness;
use crate::cluster::view::View;
use crate::wire::peer_message::START_MS_MAX;

use crate::shard::effects::Dialect;

/// Pause between two timers that are given back to members that have been dead, before they have
/// shown that they reach callback hosts. If they do not, one pop in this time may be late or given
/// up.
const TRIAL_MS: u64 = 1_000;
/// For so long after members returned other nodes may not have seen it, and may not have given
/// their timers back: the time until they are connected, and until they look at a timer again.
const LATELY_MS: u64 = 5_000;
/// For how long a peer that has refused a timer for lack of room is believed to have none.
pub const FULL_MS: u64 = 10_000;
/// For so long after a peer had no room, timers may have copies where a move was refused.
pub const FULL_REMEMBERED_MS: u64 = 600_000;

/// The sender of a message, and how its clock stands.
#[derive(Clone, Copy)]
pub struct Teller {
    /// `None`: no peer of this node's view.
    pub peer: Option<PeerIndex>,
    /// Own monotonic clock minus the sender's.
    pub clock_offset_ns: i64,
}

impl Teller {
    /// A start on the teller's clock as a tick of the own clock, never before the true one.
    pub fn start(self, start_ms: u64) -> Tick {
        let ns = start_ms.saturating_mul(TICK_NS).saturating_add_signed(self.clock_offset_ns);
        // Rounded up, the last start would be beyond what can be told to others.
        MonoNs(ns).tick_ceil().min(Tick(START_MS_MAX))
    }
}

/// The cluster as this shard believes it to be.
#[derive(Clone, Debug)]
pub struct Peers {
    pub view: Arc<View>,
    alive: PeerSet,
    dead: PeerSet,
    http: PeerSet,
    /// Peers whose machines took the last dial: a process listens there.
    listening: PeerSet,
    /// Peers that are to be offered everything that they are to hold when they are alive again:
    /// another node could not tell them something.
    pub owed: PeerSet,
    /// Peers that see other members than this node does.
    pub other_view: PeerSet,
    /// When a peer was last believed alive again.
    pub returned_at: Tick,
    /// Members that were dead and have not told of a pop since. They may not reach callback hosts
    /// yet, so their stand-ins go on.
    unproven: PeerSet,
    /// Members that were dead and returned within [`LATELY_MS`] of each other, and when the last of
    /// them did.
    back: (PeerSet, Tick),
    /// When an unproven member is next given a timer back, to show that it can deliver.
    trial_at: Tick,
    /// When another site was last believed alive again.
    pub site_returned_at: Tick,
    /// Peers that have refused a timer for lack of room, each with the tick until which that is
    /// believed.
    full: Vec<(PeerIndex, Tick)>,
    /// Peers that may lack something that they were to be told, since they were last shown
    /// everything. They outlive a restart in the journal.
    lacking: PeerSet,
    /// Since when each peer is complete, as it told.
    complete_since: Vec<Option<WallMs>>,
    /// Originals that were not told everything, each with the tick since when.
    untold: Vec<(PeerIndex, Tick)>,
}

impl Peers {
    pub fn new(view: Arc<View>) -> Self {
        let alive = PeerSet::EMPTY.with(view.own());
        let lacking = view.connected_nodes().minus(alive);
        Self {
            view,
            alive,
            dead: PeerSet::EMPTY,
            http: PeerSet::EMPTY,
            listening: PeerSet::EMPTY,
            other_view: PeerSet::EMPTY,
            owed: PeerSet::EMPTY,
            returned_at: Tick(0),
            unproven: PeerSet::EMPTY,
            back: (PeerSet::EMPTY, Tick(0)),
            trial_at: Tick(0),
            site_returned_at: Tick(0),
            full: Vec::new(),
            lacking,
            complete_since: Vec::new(),
            untold: Vec::new(),
        }
    }

    /// Takes a new view. New members have been shown nothing.
    pub fn see(&mut self, view: Arc<View>) {
        self.view = view;
        self.lacking = self.lacking.union(self.view.connected_nodes().minus(self.alive));
    }

    /// Notes that a peer may lack something that it was to be told.
    pub fn may_lack(&mut self, peer: PeerIndex) {
        self.lacking = self.lacking.with(peer);
    }

    /// Notes that all peers that live have been shown everything.
    pub fn all_were_told(&mut self) {
        let told = self.alive.minus(self.owed);
        self.lacking = self.lacking.minus(told);
        self.untold.retain(|(peer, _)| !told.contains(*peer));
    }

    /// Peers that may lack something that they were to be told.
    pub fn lacking(&self) -> PeerSet {
        self.lacking
    }

    /// Notes since when a peer is complete.
    pub fn note_complete(&mut self, peer: PeerIndex, since: Option<WallMs>) {
        if self.complete_since.len() <= peer.index() {
            self.complete_since.resize(peer.index() + 1, None);
        }
        self.complete_since[peer.index()] = since;
    }

    /// Since when a peer is complete; `None`: it has not told.
    pub fn complete_since(&self, peer: PeerIndex) -> Option<WallMs> {
        self.complete_since.get(peer.index()).copied().flatten()
    }

    /// Notes what is believed of a peer. Returns what was believed before.
    pub fn believe(&mut self, peer: PeerIndex, liveness: Liveness, dialect: Dialect) -> Liveness {
        let former = self.liveness(peer);
        self.alive = self.alive.without(peer);
        self.dead = self.dead.without(peer);
        match liveness {
            Liveness::Alive => self.alive = self.alive.with(peer),
            Liveness::Suspect => {}
            Liveness::Dead => self.dead = self.dead.with(peer),
        }
        self.http = self.http.without(peer);
        if dialect == Dialect::Http {
            self.http = self.http.with(peer);
        }
        former
    }

    /// This node's share of what rules of destinations allow to the site: its members that are not
    /// dead, in the order of their hashes, which all members know.
    pub fn share(&self) -> Share {
        let members = self.view.old_nodes().union(self.view.new_nodes()).minus(self.dead);
        let living = members.with(self.view.own());
        let own = self.view.own_hash();
        let before = living.iter().filter(|peer| self.view.hash_of(*peer) < own);
        Share { nodes: living.iter().count() as u32, own: before.count() as u32 }
    }

    pub fn liveness(&self, peer: PeerIndex) -> Liveness {
        if self.alive.contains(peer) {
            Liveness::Alive
        } else if self.dead.contains(peer) {
            Liveness::Dead
        } else {
            Liveness::Suspect
        }
    }

    /// Notes that a peer is believed alive again.
    pub fn returned(&mut self, tick: Tick, peer: PeerIndex, former: Liveness) {
        self.returned_at = tick;
        if former == Liveness::Dead {
            self.unproven = self.unproven.with(peer);
            self.back = (self.back_lately(tick).with(peer), tick);
        }
        if self.view.connected_sites().contains(peer) {
            self.site_returned_at = tick;
        }
    }

    /// Members that were dead and have just returned: other nodes may still believe them dead, and
    /// stand in for them.
    pub fn back_lately(&self, tick: Tick) -> PeerSet {
        let (peers, at) = self.back;
        if tick - at < LATELY_MS { peers } else { PeerSet::EMPTY }
    }

    /// Members that may not be able to deliver yet. Originals are left out: an original acts on
    /// every list that names it.
    pub fn unproven(&self) -> PeerSet {
        self.unproven.minus(self.http)
    }

    /// Notes that a peer has told of a pop that it did.
    pub fn prove(&mut self, peer: PeerIndex) {
        self.unproven = self.unproven.without(peer);
    }

    /// Whether a timer may be given back to an unproven member now. Then the next one may
    /// [`TRIAL_MS`] later.
    pub fn may_try(&mut self, tick: Tick) -> bool {
        let may_try = tick >= self.trial_at;
        if may_try {
            self.trial_at = tick + TRIAL_MS;
        }
        may_try
    }

    /// The other sites of a timer that are still configured.
    pub fn sites_of(&self, sites: &Sites) -> PeerSet {
        let others = sites.as_slice().iter().filter_map(|site| self.view.peer_of_site(*site));
        others.fold(PeerSet::EMPTY, PeerSet::with)
    }

    pub fn own(&self) -> PeerIndex {
        self.view.own()
    }

    pub fn own_hash(&self) -> NodeHash {
        self.view.own_hash()
    }

    /// Nodes that were heard lately, this node included.
    pub fn alive(&self) -> PeerSet {
        self.alive
    }

    /// Peers that are suspected or dead.
    pub fn not_alive(&self) -> PeerSet {
        self.view.connected_nodes().minus(self.alive)
    }

    pub fn dead(&self) -> PeerSet {
        self.dead
    }

    /// Notes whether a peer's machine takes dials.
    pub fn note_listening(&mut self, peer: PeerIndex, is_listening: bool) {
        self.listening = self.listening.without(peer);
        if is_listening {
            self.listening = self.listening.with(peer);
        }
    }

    /// Peers whose machines took the last dial, whatever is believed of the peers.
    pub fn listening(&self) -> PeerSet {
        self.listening
    }

    /// Members that are not declared dead, this node included.
    pub fn not_dead(&self) -> PeerSet {
        self.view.new_nodes().minus(self.dead)
    }

    /// Notes that a peer has no room for one more timer. After `until` it may have room again.
    pub fn note_full(&mut self, peer: PeerIndex, until: Tick) {
        self.full.retain(|(known, _)| *known != peer);
        self.full.push((peer, until));
    }

    /// Peers that have said lately that they have no room.
    pub fn full(&self, tick: Tick) -> PeerSet {
        let still = self.full.iter().filter(|(_, until)| *until > tick);
        still.fold(PeerSet::EMPTY, |full, (peer, _)| full.with(*peer))
    }

    /// Peers that have had no room in the last minutes.
    pub fn lately_full(&self, tick: Tick) -> PeerSet {
        self.full(Tick(tick.0.saturating_sub(FULL_REMEMBERED_MS)))
    }

    /// Whether a peer understands whole copies only.
    pub fn speaks_http(&self, peer: PeerIndex) -> bool {
        self.http.contains(peer)
    }

    pub fn http(&self) -> PeerSet {
        self.http
    }

    /// Whether originals may tell others late: all their threads wait for one that does not answer,
    /// or did not lately.
    pub fn may_tell_late(&self, tick: Tick) -> bool {
        let is_back = !self.originals().is_empty() && tick - self.returned_at < LATELY_MS;
        is_back || self.has_silent_original()
    }

    /// Whether an original is not heard. The other holders of a timer may be originals, too, and
    /// tell that one nothing when it is back: this node does.
    pub fn has_silent_original(&self) -> bool {
        !self.originals().minus(self.alive).is_empty()
    }

    /// Members that understand whole copies only. Other sites do, too, and are none.
    pub fn originals(&self) -> PeerSet {
        self.http.intersection(self.view.connected_nodes())
    }

    /// Notes that an original was not told something. What has changed since `since` is offered to
    /// it when it is alive and can be told.
    pub fn note_untold(&mut self, peer: PeerIndex, since: Tick) {
        self.owed = self.owed.with(peer);
        if self.untold_since(peer).is_none() {
            self.untold.push((peer, since));
        }
    }

    /// Since when an original may not have been told what changed; `None`: it was told everything.
    pub fn untold_since(&self, peer: PeerIndex) -> Option<Tick> {
        self.untold.iter().find(|(untold, _)| *untold == peer).map(|(_, since)| *since)
    }

    /// Whether there is no other node and no other site to replicate to.
    pub fn is_alone(&self) -> bool {
        self.view.connected_nodes().is_empty() && self.view.connected_sites().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::harness_tests::Cluster;

    #[test]
    fn who_has_no_room_is_remembered_until_it_may_have_some() {
        let mut cluster = Cluster::new(3, true);
        let (one, other) = (PeerIndex(1), PeerIndex(2));
        let peers = &mut cluster.shard(0).peers;
        peers.note_full(one, Tick(10));
        peers.note_full(other, Tick(20));
        let full = |peers: &Peers, at| peers.full(Tick(at)).iter().collect::<Vec<_>>();
        assert_eq!(full(peers, 9), [one, other]);
        assert_eq!(full(peers, 10), [other]);
        peers.note_full(one, Tick(15));
        assert_eq!(full(peers, 10), [one, other]);
        assert_eq!(full(peers, 20), []);
        assert!(
            !peers.lately_full(Tick(21)).is_empty() && peers.lately_full(Tick(u64::MAX)).is_empty()
        );
    }
}
