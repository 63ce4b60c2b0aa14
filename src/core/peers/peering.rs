//! The peers of one core, without sockets: links, detectors and dials. The engine drives it over
//! the ring, the simulator over a network of its own.
//!
//! Each core dials every peer node once. Over that connection it talks about the timers that it
//! owns. What peers tell arrives over connections that the peers dialled, at the core that accepted
//! them ([`super::inbounds`]), and goes to the owners over the mesh. No clock, no socket, no random
//! source: drivers differ only in how bytes travel.

// May panic: indices 18.
// Why it does not: encoded 1, peers 17.

mod sites;
mod write_refusals;

use std::net::IpAddr;
use std::sync::Arc;

use crate::base::ids::{PeerIndex, PeerSet, mix};
use crate::base::limits::ClusterLimits;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{MonoNs, Now, TICK_NS};
use crate::cluster::detector::{Detector, Liveness, Verdict};
use crate::cluster::link::LinkLimits;
use crate::cluster::view::{PeerKind, View};
use crate::cluster::wall_clocks::ClockVerdict;
use crate::shard::Shard;
use crate::shard::effects::{Dialect, Event, Purpose, ToPeer};
use crate::wire::peer_message::{PeerRefusal, PeerResult};

use crate::core::peers::actions::STALE;
use crate::core::peers::actions::{PeerAction, PeerError};
use crate::core::peers::actions::{SITE_REFUSES, SITE_UNPROVEN};
use crate::core::peers::behind::Behind;
use crate::core::peers::counters::PeerCounters;
use crate::core::peers::hello::Connected;
use crate::core::peers::hello::Hello;
use crate::core::peers::site_members::SiteBook;
use crate::core::peers::site_watch::SiteWatch;
use crate::core::peers::voice::Voice;

/// Bytes of room that a link must have before its peer is offered again what did not fit. They are
/// for the offers of a shard that wait for results (1 024 of some 40 bytes) and the copies wanted
/// of them.
const GAPS_ROOM_BYTES: usize = 1 << 20;

/// Pause in ms between two looks at a peer that has something due and is not sent to.
const LOOK_AGAIN_MS: u64 = 10;

/// The state of the connection to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DialState {
    Closed,
    Dialling,
    Open,
}

/// A peer with which this core keeps a connection.
struct Peer {
    stage: DialState,
    detector: Detector,
    voice: Voice,
    /// The incarnation of the process that was heard last.
    incarnation: Option<u64>,
    /// When the peer was heard last.
    heard_at: MonoNs,
    /// Whether the peer may lack something that it should have been told, and the shard does not
    /// know yet.
    has_gaps: bool,
    /// How many connections were lost. The count spreads dials.
    losses: u64,
    /// Whether the peer refused the last dial, because it does not take this process for this node
    /// or knows no such node.
    disowns: bool,
    /// Where to dial the peer, if it is another site.
    site: Option<SiteBook>,
    /// Whether the peer's end of the connection takes what this node says.
    is_greeted: bool,
    /// Whether the peer's machine took the dial that is under way.
    is_taken: bool,
    /// Since when a site refuses this node.
    shut_out: Option<MonoNs>,
    /// What is known of the peer, if it is another site.
    watch: Option<SiteWatch>,
}

impl Peer {
    /// Notes that the peer may lack something that it was to be told.
    fn lacks(&mut self, now: MonoNs) {
        self.has_gaps = true;
        if let Some(watch) = &mut self.watch {
            watch.note_lack(now);
        }
    }

    /// Takes note that the connection is gone or that its dial is given up.
    fn close(&mut self) {
        if self.stage == DialState::Open {
            self.voice.closed();
        }
        self.stage = DialState::Closed;
        self.is_taken = false;
        self.disowns = false;
        if let Some(site) = &mut self.site {
            site.turn();
        }
    }
}

/// The dialling side of all peers of a core.
pub(crate) struct Peering {
    /// What this core says of itself.
    hello: Hello,
    limits: ClusterLimits,
    view: Arc<View>,
    /// The peers, by their numbers in the view.
    peers: Vec<Option<Peer>>,
    /// The peers that are in `peers`.
    known: PeerSet,
    /// The peers with something to send.
    talking: PeerSet,
    /// The peers of whose gaps the shard is to be told.
    gapped: PeerSet,
    /// Digest of the members of the view; `other_views` are the peers whose frames told another
    /// digest.
    digest: u32,
    other_views: PeerSet,
    actions: Vec<PeerAction>,
    /// When [`Peering::tick`] is due next.
    wake_at: MonoNs,
    /// When the next tick was due at the latest, as the last tick computed it.
    expected_at: MonoNs,
    unheard: Vec<(PeerIndex, Purpose)>,
    /// Whether the members know this node, or it is one of them.
    is_introduced: bool,
    /// What the members' wall clocks said of this node's at the last tick.
    clock: ClockVerdict,
    /// How far each member's clock is ahead, in ms. Kept for its memory.
    clocks_ahead_ms: Vec<i64>,
    /// The addresses of nodes of other sites, as these sites told them.
    site_callers: Vec<IpAddr>,
    /// What this core counted about its peers.
    pub counters: PeerCounters,
}

impl Peering {
    /// The peers of a view, none of them heard yet.
    pub fn new(now: Now, hello: Hello, limits: &ClusterLimits, view: Arc<View>) -> Self {
        let mut peering = Self {
            hello,
            limits: limits.clone(),
            view: view.clone(),
            peers: Vec::new(),
            known: PeerSet::EMPTY,
            talking: PeerSet::EMPTY,
            gapped: PeerSet::EMPTY,
            digest: view.digest(),
            other_views: PeerSet::EMPTY,
            actions: Vec::new(),
            wake_at: MonoNs(u64::MAX),
            expected_at: MonoNs(u64::MAX),
            unheard: Vec::new(),
            is_introduced: !view.is_joining(),
            clock: ClockVerdict::default(),
            clocks_ahead_ms: Vec::new(),
            site_callers: Vec::new(),
            counters: PeerCounters::default(),
        };
        peering.know(now.mono, view);
        peering
    }

    /// Tells that the core begins to serve now. To read a journal takes seconds, in which it heard
    /// nobody: without this call it would take all peers for dead at its first tick, and ask none
    /// of them before it pops.
    pub fn begin(&mut self, now: MonoNs) {
        for peer in self.peers.iter_mut().flatten() {
            (peer.detector, peer.heard_at) = (Detector::new(now), now);
        }
    }

    /// What this core says of itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The cluster as this node sees it.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The cluster's bounds and delays.
    pub fn limits(&self) -> &ClusterLimits {
        &self.limits
    }

    /// Takes a new view. First the shard gets the view, then the peers that are gone are closed and
    /// new peers are noted.
    pub fn set_view(&mut self, behind: &mut Behind<'_>, view: Arc<View>) {
        behind.tell(Event::View(view.clone()));
        let gone = self.know(behind.now.mono, view);
        for peer in gone.iter() {
            let Some(mut former) = self.peers[peer.index()].take() else { continue };
            if former.stage != DialState::Closed {
                self.actions.push(PeerAction::Close(peer));
            }
            let dialect = former.voice.dialect();
            behind.shard.note_listening(peer, false);
            former.voice.clear(|purpose| behind.tell(Event::PeerUnheard { peer, purpose }));
            behind.tell(Event::Peer { peer, liveness: Liveness::Dead, dialect, has_gaps: false });
        }
        // Nobody is let in any more because a site that was removed has told of it.
        self.note_callers();
        self.compare_lists(behind.now.mono);
        let is_other = |peer: &PeerIndex| {
            let voice = self.peers[peer.index()].as_ref().map(|peer| &peer.voice);
            let seen = voice.and_then(Voice::peer_view);
            seen.is_some_and(|seen| seen != self.digest)
        };
        let others = self.known.iter().filter(is_other);
        self.other_views = others.fold(PeerSet::EMPTY, PeerSet::with);
        behind.tell(Event::OtherViews(self.other_views));
    }

    /// Notes the peers with which to keep connections. Returns the peers that are no longer among
    /// them.
    fn know(&mut self, now: MonoNs, view: Arc<View>) -> PeerSet {
        let wanted = view.connected_nodes().union(view.connected_sites());
        let gone = self.known.minus(wanted);
        if self.known.is_empty() {
            // Without peers no tick was due.
            self.expected_at = MonoNs(u64::MAX);
        }
        if self.peers.len() < view.peers().len() {
            self.peers.resize_with(view.peers().len(), || None);
        }
        for peer in wanted.minus(self.known).iter() {
            let is_site = matches!(view.peers()[peer.index()].kind, PeerKind::Site(_));
            self.peers[peer.index()] = Some(Peer {
                stage: DialState::Closed,
                detector: Detector::new(now),
                voice: Voice::new(self.link_limits(), is_site),
                incarnation: None,
                heard_at: now,
                has_gaps: false,
                losses: 0,
                disowns: false,
                site: is_site.then(|| SiteBook::new(view.addresses_of(peer))),
                is_greeted: false,
                is_taken: false,
                shut_out: None,
                watch: is_site.then(|| SiteWatch::new(now)),
            });
        }
        for peer in view.connected_sites().iter() {
            if let Some(site) = self.peers[peer.index()].as_mut().and_then(|it| it.site.as_mut()) {
                site.configure(view.addresses_of(peer));
            }
        }
        let digest = view.digest();
        self.digest = digest;
        let was_joining = self.view.is_joining();
        self.is_introduced = !view.is_joining() || was_joining && self.is_introduced;
        for peer in self.peers.iter_mut().flatten() {
            peer.voice.set_view(digest);
        }
        self.known = wanted;
        self.talking = self.talking.intersection(wanted);
        self.gapped = self.gapped.intersection(wanted);
        self.hello.view_id = view.id();
        self.hello.site = view.name_of_site(view.local_site()).map(str::to_owned);
        self.view = view;
        if !wanted.is_empty() {
            self.wake_at = now;
        }
        gone
    }

    fn link_limits(&self) -> LinkLimits {
        LinkLimits {
            bytes_max: self.limits.link_bytes_max as usize,
            window_bytes: self.limits.link_window_bytes as usize,
            heartbeat_ms: self.limits.heartbeat_ms,
        }
    }

    /// Takes note that a peer's machine took a dial: a process listens there, whether it says
    /// anything or not.
    pub fn taken(&mut self, shard: &mut Shard, peer: PeerIndex) {
        let dialled = self.peers.get_mut(peer.index()).and_then(Option::as_mut);
        if let Some(dialled) = dialled.filter(|dialled| dialled.stage == DialState::Dialling) {
            dialled.is_taken = true;
            shard.note_listening(peer, true);
        }
    }

    /// Takes a dialled connection that is ready, the first one or one in place of the one that
    /// stands. Returns whether it is used.
    pub fn connected(
        &mut self,
        behind: &mut Behind<'_>,
        peer: PeerIndex,
        connected: &Connected,
    ) -> bool {
        let now = behind.now.mono;
        if let Some(hello) = &connected.hello
            && !self.is_whom_was_dialled(peer, hello)
        {
            self.actions.push(PeerAction::Close(peer));
            self.lost(behind, peer);
            return false;
        }
        let incarnation = connected.hello.as_ref().map(|hello| hello.incarnation);
        if self.is_open_to_another(peer, incarnation) {
            self.lost(behind, peer);
        }
        let Some(dialled) = self.peers.get_mut(peer.index()).and_then(Option::as_mut) else {
            return false;
        };
        self.counters.connected += 1;
        dialled.stage = DialState::Open;
        behind.shard.note_listening(peer, true);
        dialled.disowns = false;
        dialled.heard_at = now;
        if dialled.voice.dialect() != Dialect::Http && connected.dialect == Dialect::Http {
            // HTTP cannot tell everything that frames can.
            dialled.has_gaps |= !dialled.voice.is_empty();
            dialled.voice.clear(|purpose| behind.tell(Event::PeerUnheard { peer, purpose }));
        }
        match incarnation {
            Some(heard) if dialled.incarnation != Some(heard) => {
                dialled.incarnation = Some(heard);
                dialled.has_gaps = true;
            }
            Some(_) => {}
            // Nothing tells the processes of an original node apart. The first contact counts as
            // another process, and so does each contact after the node was dead.
            None if dialled.incarnation.is_none() => {
                dialled.incarnation = Some(0);
                dialled.has_gaps = true;
            }
            None => {}
        }
        if let Some(hello) = &connected.hello
            && hello.view_id != self.hello.view_id
        {
            self.counters.other_view += 1;
        }
        dialled.voice.opened(now, connected.dialect);
        self.talking = self.talking.with(peer);
        dialled.is_greeted = false;
        self.greet(behind, peer);
        self.wake_at = now;
        true
    }

    /// Returns whether the connection that stands is one to another process than this one.
    fn is_open_to_another(&self, peer: PeerIndex, incarnation: Option<u64>) -> bool {
        let dialled = self.peers.get(peer.index()).and_then(Option::as_ref);
        dialled.is_some_and(|dialled| {
            dialled.stage == DialState::Open
                && incarnation.is_some_and(|heard| dialled.incarnation != Some(heard))
        })
    }

    /// Counts the peer as alive once its end takes what this node says. Another site must have
    /// answered first.
    fn greet(&mut self, behind: &mut Behind<'_>, peer: PeerIndex) {
        let Some(dialled) = self.peers[peer.index()].as_mut() else { return };
        if !dialled.is_greeted && dialled.voice.is_greeted() {
            dialled.is_greeted = true;
            dialled.shut_out = None;
            let verdict = dialled.detector.connected(behind.now.mono);
            self.follow(behind, peer, verdict);
        }
    }

    /// The address at which a peer is dialled.
    pub fn address_of(&self, peer: PeerIndex) -> &str {
        let known = self.peers.get(peer.index()).and_then(Option::as_ref);
        match known.and_then(|peer| peer.site.as_ref()) {
            Some(site) => site.address(),
            None => &self.view.peers()[peer.index()].address,
        }
    }

    /// Tells that the peer refused a dial, because it does not take this process for this node.
    pub fn disowned_by(&mut self, behind: &mut Behind<'_>, peer: PeerIndex) {
        self.lost(behind, peer);
        if let Some(dialled) = self.peers.get_mut(peer.index()).and_then(Option::as_mut) {
            dialled.disowns = true;
        }
    }

    /// Returns whether the node that answered a dial is the node that was dialled.
    fn is_whom_was_dialled(&mut self, peer: PeerIndex, hello: &Hello) -> bool {
        let is_meant = self.view.name_of(peer) == hello.name;
        self.counters.strangers += u64::from(!is_meant);
        let is_alike = hello.instance == self.hello.instance;
        self.counters.same_instance += u64::from(is_meant && is_alike);
        is_meant
    }

    /// Tells that a dial failed or that the connection is gone.
    pub fn lost(&mut self, behind: &mut Behind<'_>, peer: PeerIndex) {
        let now = behind.now.mono;
        let Some(dialled) = self.peers.get_mut(peer.index()).and_then(Option::as_mut) else {
            return;
        };
        if dialled.stage == DialState::Closed {
            return;
        }
        self.counters.lost += 1;
        if dialled.stage == DialState::Dialling {
            behind.shard.note_listening(peer, false);
        }
        dialled.close();
        dialled.losses += 1;
        let seed = self.hello.incarnation ^ u64::from(peer.0) << 32;
        let spread = mix(seed.wrapping_add(dialled.losses << 40 | u64::from(self.hello.shard)));
        let verdict = dialled.detector.lost(now, spread);
        self.follow(behind, peer, verdict);
        self.wake_at = now;
    }

    /// Takes bytes of the dialled connection. On `Err` the connection must be closed.
    pub fn received(
        &mut self,
        behind: &mut Behind<'_>,
        peer: PeerIndex,
        bytes: &[u8],
    ) -> Result<(), PeerError> {
        let now = behind.now.mono;
        let Some(dialled) = self.peers.get_mut(peer.index()).and_then(Option::as_mut) else {
            return Ok(());
        };
        self.counters.bytes_received += bytes.len() as u64;
        if dialled.stage != DialState::Open {
            return Ok(());
        }
        if dialled.heard_at.plus_ms(self.limits.dead_after_ms) <= now {
            // What they say may be outdated. That they are here says that the peer spoke while this
            // core got no time, so it is not dead: its silence counts from now.
            if !is_planted(Bug::StaleBytesAreNoSign) {
                dialled.detector.was_away(now);
            }
            return Err(STALE);
        }
        let frames = dialled.voice.frames();
        let is_site = dialled.site.is_some();
        let mut refused = 0;
        let taken = dialled.voice.received(now, bytes, |purpose, result| {
            let is_refused = result == PeerResult::Refused(PeerRefusal::Malformed);
            refused += u64::from(is_site && is_refused);
            behind.tell(Event::PeerResult { peer, purpose, result });
        });
        self.counters.site_refusals += refused;
        match taken {
            Err(SITE_UNPROVEN) => self.counters.unproven += 1,
            Err(SITE_REFUSES) => self.note_shut_out(now, peer),
            Err(_) => self.counters.broken += 1,
            Ok(()) => {}
        }
        if taken.is_ok() {
            self.take_members(behind.now.mono, peer)?;
            self.greet(behind, peer);
        }
        let Some(dialled) = self.peers[peer.index()].as_mut() else { return taken };
        // Results make room in the window.
        if !dialled.voice.is_empty() {
            self.talking = self.talking.with(peer);
        }
        if taken.is_ok() && dialled.voice.has_heard(frames) {
            dialled.heard_at = now;
            let is_other = dialled.voice.peer_view().is_some_and(|seen| seen != self.digest);
            if is_other != self.other_views.contains(peer) {
                self.other_views = self.other_views.without(peer);
                if is_other {
                    self.other_views = self.other_views.with(peer);
                }
                behind.tell(Event::OtherViews(self.other_views));
            }
            let Some(dialled) = self.peers[peer.index()].as_mut() else { return taken };
            let verdict = dialled.detector.heard(now);
            if verdict != Verdict::default() {
                self.follow(behind, peer, verdict);
            }
        }
        taken
    }

    /// Appends the bytes to send over the dialled connection.
    pub fn output(&mut self, now: Now, peer: PeerIndex, out: &mut Vec<u8>) {
        let dialled = self.peers.get_mut(peer.index()).and_then(Option::as_mut);
        let Some(dialled) = dialled.filter(|dialled| dialled.stage == DialState::Open) else {
            return;
        };
        let begins = out.len();
        dialled.voice.write(now, &self.view, peer, out);
        self.counters.bytes_sent += (out.len() - begins) as u64;
        // A link may pause by itself because a receiver was busy. The link says when it goes on.
        if let Some(wake) = dialled.voice.next_wake() {
            self.wake_at = self.wake_at.min(wake);
        }
    }

    /// Returns whether there is nothing to do until a peer dials this core or the view changes.
    pub fn is_idle(&self) -> bool {
        self.known.is_empty() && self.actions.is_empty()
    }

    /// When [`Peering::tick`] is due next.
    pub fn wake_at(&self) -> MonoNs {
        // Without peers nothing is looked at, and a time that has come would come for ever.
        if self.is_idle() { MonoNs(u64::MAX) } else { self.wake_at }
    }

    /// Asks for a tick in the next turn.
    pub fn wake_now(&mut self) {
        self.wake_at = MonoNs(0);
    }

    /// Tells the time: it looks for suspicion, dials and heartbeats that are due.
    pub fn tick(&mut self, behind: &mut Behind<'_>) {
        let now = behind.now.mono;
        if now > self.expected_at.plus_ms(self.limits.suspect_after_ms) {
            self.was_away(behind);
        }
        for peer in self.known.iter() {
            let Some(dialled) = self.peers[peer.index()].as_mut() else { continue };
            let is_open = dialled.stage == DialState::Open;
            if is_open && dialled.voice.next_wake().is_some_and(|wake| wake <= now) {
                self.talking = self.talking.with(peer);
            }
            let verdict = dialled.detector.tick(now, &self.limits);
            self.follow(behind, peer, verdict);
        }
        self.judge_clock(behind.now);
        behind.shard.hear_clocks(behind.now, self.member_walls(behind.now));
        self.look_at_sites(behind);
        self.wake_at = self.next_wake(now);
        self.expected_at = self.wake_at;
    }

    /// Handles that this core got no time for longer than suspicion takes (a stopped process, a
    /// frozen machine). This core heard nobody meanwhile, which says nothing of the peers. After an
    /// absence that is as long as the silence of a dead peer, kept messages are too old to be told:
    /// they are dropped as for dead peers.
    fn was_away(&mut self, behind: &mut Behind<'_>) {
        let now = behind.now.mono;
        let away_ns = now.since_ns(self.expected_at);
        for peer in self.known.iter() {
            let Some(dialled) = self.peers[peer.index()].as_mut() else { continue };
            dialled.detector.was_away(now);
            if away_ns >= self.limits.dead_after_ms * TICK_NS {
                dialled.lacks(now);
                self.gapped = self.gapped.with(peer);
                dialled.voice.clear(|purpose| self.unheard.push((peer, purpose)));
                if dialled.stage != DialState::Closed {
                    self.actions.push(PeerAction::Close(peer));
                }
                self.lost(behind, peer);
            }
        }
        self.tell_unheard(behind);
    }

    fn next_wake(&self, now: MonoNs) -> MonoNs {
        // What is due has been asked for. A driver that cannot send it now sends it when it can.
        let soonest = now.plus_ms(LOOK_AGAIN_MS);
        let wake_of = |peer: &Peer| {
            let of_detector = peer.detector.next_wake(&self.limits);
            match peer.voice.next_wake() {
                Some(of_voice) if peer.stage == DialState::Open => {
                    of_detector.min(of_voice.max(soonest))
                }
                _ => of_detector,
            }
        };
        let wakes = self.peers.iter().flatten().map(wake_of);
        wakes.min().unwrap_or(MonoNs(u64::MAX))
    }

    /// Gives the shard's messages to the links. The shard is told that a message is unheard when
    /// the link has no room for it or its peer is dead. Told long afterwards, the message could
    /// bring back a timer that has ended and is forgotten since. The peer is offered everything
    /// again when it is alive and its link has room.
    pub fn send(&mut self, behind: &mut Behind<'_>, messages: &mut Vec<ToPeer>, bytes: &[u8]) {
        for ToPeer { peer, purpose, bytes: range } in messages.drain(..) {
            let Some(Some(to)) = self.peers.get_mut(peer.index()) else {
                self.unheard.push((peer, purpose));
                continue;
            };
            let is_dead = to.detector.liveness() == Liveness::Dead;
            if !is_dead && to.voice.push(&bytes[range], purpose).is_ok() {
                self.counters.messages_sent += 1;
                self.talking = self.talking.with(peer);
                if let Some(watch) = &mut to.watch {
                    watch.pushed(behind.now.mono, to.voice.len());
                }
            } else {
                // A question for a list tells nothing that the peer could lack.
                if !matches!(purpose, Purpose::List { .. }) {
                    to.lacks(behind.now.mono);
                    self.gapped = self.gapped.with(peer);
                }
                self.unheard.push((peer, purpose));
            }
        }
        self.tell_unheard(behind);
    }

    fn tell_unheard(&mut self, behind: &mut Behind<'_>) {
        self.counters.messages_dropped += self.unheard.len() as u64;
        let mut unheard = std::mem::take(&mut self.unheard);
        for (peer, purpose) in unheard.drain(..) {
            behind.tell(Event::PeerUnheard { peer, purpose });
        }
        self.unheard = unheard;
    }

    /// Tells the shard of living peers that missed something, as soon as their links have room for
    /// what follows.
    pub fn tell_gaps(&mut self, behind: &mut Behind<'_>) {
        let room_bytes = (self.limits.link_bytes_max as usize / 2).min(GAPS_ROOM_BYTES);
        for peer in self.gapped.iter() {
            let Some(dialled) = self.peers[peer.index()].as_mut() else { continue };
            let has_room = dialled.voice.room_bytes() >= room_bytes;
            let liveness = dialled.detector.liveness();
            if liveness != Liveness::Alive || !has_room {
                continue;
            }
            self.gapped = self.gapped.without(peer);
            if std::mem::take(&mut dialled.has_gaps) {
                let dialect = dialled.voice.dialect();
                behind.tell(Event::Peer { peer, liveness, dialect, has_gaps: true });
            }
        }
    }

    /// Appends what the driver is to do.
    pub fn take_actions(&mut self, actions: &mut Vec<PeerAction>) {
        actions.append(&mut self.actions);
        for peer in self.talking.iter() {
            let is_open = self.peers[peer.index()]
                .as_ref()
                .is_some_and(|talking| talking.stage == DialState::Open);
            if is_open {
                actions.push(PeerAction::Send(peer));
            }
        }
        self.talking = PeerSet::EMPTY;
    }

    /// Returns whether every message that could be delivered has its result.
    pub fn is_settled(&self) -> bool {
        let mut open = self.peers.iter().flatten().filter(|peer| peer.stage == DialState::Open);
        open.all(|peer| peer.voice.is_empty())
    }

    /// What this core believes of each peer, and how it talks to the peer.
    pub fn believed(&self) -> impl Iterator<Item = (PeerIndex, Liveness, Dialect)> {
        self.known.iter().filter_map(|index| {
            let peer = self.peers[index.index()].as_ref()?;
            Some((index, peer.detector.liveness(), peer.voice.dialect()))
        })
    }

    /// Bytes that links keep for each peer, in the order of peer numbers.
    pub fn bytes_kept(&self) -> impl Iterator<Item = u64> {
        let kept = |peer: &Peer| peer.voice.kept_bytes() as u64;
        self.peers.iter().map(move |peer| peer.as_ref().map_or(0, kept))
    }

    /// How many messages links keep until peers acknowledge them.
    pub fn kept(&self) -> u64 {
        self.peers.iter().flatten().map(|peer| peer.voice.len() as u64).sum()
    }

    /// Returns whether the process that answers this core's dials as `name` lives and has another
    /// incarnation.
    pub fn answers_as_another(&self, now: MonoNs, name: &str, incarnation: u64) -> bool {
        let suspect_ns = self.limits.suspect_after_ms * 1_000_000;
        self.known.iter().any(|peer| {
            self.view.name_of(peer) == name
                && self.peers[peer.index()].as_ref().is_some_and(|peer| {
                    peer.stage == DialState::Open
                        && peer.voice.dialect() == Dialect::Frames
                        && peer.incarnation.is_some_and(|heard| heard != incarnation)
                        && now.since_ns(peer.heard_at) < suspect_ns
                })
        })
    }

    /// Does what a detector says.
    fn follow(&mut self, behind: &mut Behind<'_>, peer: PeerIndex, verdict: Verdict) {
        let Some(dialled) = self.peers[peer.index()].as_mut() else { return };
        if let Some(liveness) = verdict.changed {
            let dialect = dialled.voice.dialect();
            if let Some(watch) = &mut dialled.watch {
                watch.note_reached(behind.now.mono, liveness == Liveness::Alive);
            }
            if liveness == Liveness::Dead {
                // A message kept for long could come after its timer's tombstone has ended, and
                // bring the timer back. The messages are dropped. The nodes that still hold the
                // timers offer them when the peer is back.
                dialled.lacks(behind.now.mono);
                dialled.voice.clear(|purpose| self.unheard.push((peer, purpose)));
            }
            let has_gaps = liveness == Liveness::Alive && std::mem::take(&mut dialled.has_gaps);
            if has_gaps {
                self.gapped = self.gapped.without(peer);
            }
            behind.tell(Event::Peer { peer, liveness, dialect, has_gaps });
            self.tell_unheard(behind);
        }
        let Some(dialled) = self.peers[peer.index()].as_mut() else { return };
        if verdict.close && dialled.stage != DialState::Closed {
            if dialled.stage == DialState::Dialling && !dialled.is_taken {
                behind.shard.note_listening(peer, false);
            }
            dialled.close();
            self.actions.push(PeerAction::Close(peer));
        }
        if verdict.dial && dialled.stage == DialState::Closed {
            dialled.stage = DialState::Dialling;
            self.actions.push(PeerAction::Dial(peer));
        }
    }
}
