//! One core without its ring: shard, mesh, peers, and the routing between them. The engine drives
//! it under io_uring, the simulators in virtual time.

pub(crate) mod copies;
pub mod gate;
pub(crate) mod gather;
pub mod internal_api;
pub(crate) mod internal_document;
pub mod mesh;
pub mod peers;
pub mod turn;

use std::net::IpAddr;
use std::sync::Arc;

use crate::base::ids::{PeerIndex, ShardCount, ShardIndex, TimerId};
use crate::base::time::{MonoNs, Now, Tick};
use crate::cluster::detector::Liveness;
use crate::cluster::view::View;
use crate::cluster::wall_clocks::ClockVerdict;
use crate::shard::effects::{
    Answer, Attempt, CallbackOutcome, Dialect, Event, Internal, Outbox, Refusal, Reply, Request,
    Requester, Ticket,
};
use crate::shard::{Shard, ShardConfig};
use crate::wire::resync_json::Reference;

use crate::core::copies::Copies;
use crate::core::gather::{GATHERED, Gathers, PageAsked};
use crate::core::mesh::{MeshPort, Message, Remote};
use crate::core::peers::actions::{InboundId, PeerAction, PeerError};
use crate::core::peers::behind::Behind;
use crate::core::peers::counters::PeerCounters;
use crate::core::peers::hello::{Connected, Hello, HelloRefusal, Identity};
use crate::core::peers::inbounds::Inbounds;
use crate::core::peers::peering::Peering;

/// Messages served from siblings in one turn (a batch of a peer's messages is not cut); the rest
/// wait for the next.
pub const INBOX_PER_TURN_MAX: usize = 1_024;
/// How often in one turn messages are handed to links that follow from others having been dropped;
/// what is left waits for the next turn.
const DELIVERIES_PER_TURN_MAX: usize = 8;

/// A shard and its end of the mesh.
pub struct Core {
    own: ShardIndex,
    shards: ShardCount,
    shard: Shard,
    mesh: MeshPort,
    outbox: Outbox,
    peering: Peering,
    inbounds: Inbounds,
    gathers: Gathers,
    /// Kept for their memory.
    attempts: Vec<Attempt>,
    actions: Vec<PeerAction>,
    /// See [`Core::withheld`].
    withheld: u64,
    /// The last [`Core::tick`].
    now: Now,
}

impl Core {
    /// A core with an empty shard, of a process that nobody tells from another one: for a node
    /// alone.
    pub fn new(config: ShardConfig, mesh: MeshPort, now: Now) -> Self {
        Self::with_identity(config, mesh, Identity::default(), now)
    }

    /// A core with an empty shard. The peers of `config.view` are dialled from the first
    /// [`Core::peers`] on.
    pub fn with_identity(
        config: ShardConfig,
        mesh: MeshPort,
        identity: Identity,
        now: Now,
    ) -> Self {
        let (own, shards, view) = (config.own, config.shards, config.view.clone());
        let hello = Hello {
            name: view.name_of(view.own()).to_owned(),
            instance: config.instance.get(),
            incarnation: identity.incarnation,
            view_id: view.id(),
            shard: own.0,
            shards: shards.get(),
        };
        Self {
            own,
            shards,
            peering: Peering::new(now, hello, &config.cluster, view),
            inbounds: Inbounds::new(own, shards, identity.accepts_strangers),
            shard: Shard::new(config, now),
            gathers: Gathers::default(),
            attempts: Vec::new(),
            actions: Vec::new(),
            withheld: 0,
            now,
            mesh,
            outbox: Outbox::default(),
        }
    }

    /// Serves a client's request here, or sends it to the core that owns the timer. Answered
    /// through [`Core::replies`], at once or in a later turn.
    pub fn request(&mut self, now: Now, from: Requester, request: Request<'_>) {
        let owner = match request {
            Request::Create(_) => self.own,
            Request::Update(target, _) | Request::Delete(target) | Request::Read(target) => {
                self.shards.owner(target.id)
            }
            Request::Merge(copy) => self.shards.owner(copy.standing.id),
            Request::Collect(_) | Request::Forget(_) => {
                unreachable!("every shard is asked for its own part")
            }
        };
        let refusal = match request {
            Request::Create(_) | Request::Update(..) | Request::Delete(_) => {
                self.peering.refuses_writes()
            }
            _ => None,
        };
        if let Some(refusal) = refusal {
            let answer = Answer::Refused(refusal);
            return self.outbox.replies.push(Reply { to: from, answer });
        }
        self.ask(now, owner, from, &request);
    }

    /// Another node asks for a page of timers, over all cores. Answered like a request.
    pub fn page(&mut self, now: Now, from: Requester, asked: PageAsked) {
        // One core keeps where the asking node is, whichever core it is connected with.
        let keeper = self.shards.owner(TimerId(asked.node.0.into()));
        if keeper == self.own {
            return self.begin_page(now, from, asked);
        }
        let sent = self.mesh.send_request(now.mono, keeper, from, Remote::Page(asked));
        if sent.is_err() {
            let answer = Answer::Refused(Refusal::CoreBusy);
            self.outbox.replies.push(Reply { to: from, answer });
        }
    }

    /// Another node has taken timers over. Answered like a request.
    pub fn forget(&mut self, now: Now, from: Requester, references: &mut [Reference]) {
        references.sort_unstable_by_key(|reference| self.shards.owner(reference.id));
        let shards = self.shards;
        let parts: Vec<&[Reference]> =
            references.chunk_by(|a, b| shards.owner(a.id) == shards.owner(b.id)).collect();
        let to = self.gathers.begin_forget(self.own, from, parts.len());
        if parts.is_empty() {
            let answer = Answer::Internal(Box::new(Internal::Accepted));
            return self.outbox.replies.push(Reply { to: from, answer });
        }
        for part in parts {
            self.ask(now, shards.owner(part[0].id), to, &Request::Forget(part));
        }
    }

    /// Merges those copies that this core owns.
    pub fn merge(&mut self, now: Now, copies: &Copies) {
        let to = Requester { shard: self.own, connection: GATHERED, generation: 0, request: 0 };
        let (own, shards) = (self.own, self.shards);
        copies.merge(
            |id| shards.owner(id) == own,
            |copy| {
                self.serve(now, to, Request::Merge(copy));
                let reply = self.outbox.replies.pop().expect("a copy is answered at once");
                assert!(reply.to == to, "the last answer is the copy's");
                matches!(reply.answer, Answer::Done { .. })
            },
        );
    }

    fn begin_page(&mut self, now: Now, from: Requester, asked: PageAsked) {
        let (to, ask) = self.gathers.begin_page(now, (self.own, self.shards), from, asked);
        for shard in 0..self.shards.get() {
            self.ask(now, ShardIndex(shard), to, &Request::Collect(ask));
        }
    }

    /// Asks a shard, this one or a sibling.
    fn ask(&mut self, now: Now, owner: ShardIndex, from: Requester, request: &Request<'_>) {
        if owner == self.own {
            return self.serve(now, from, *request);
        }
        let sent = self.mesh.send_request(now.mono, owner, from, Remote::copy(request));
        if sent.is_err() {
            let answer = Answer::Refused(Refusal::CoreBusy);
            self.outbox.replies.push(Reply { to: from, answer });
        }
    }

    /// Takes what siblings sent.
    pub(crate) fn inbox(&mut self, now: Now) {
        let mut budget = INBOX_PER_TURN_MAX;
        while budget > 0 {
            let messages = match self.mesh.receive() {
                Some(Message::Request(from, request, sent)) => {
                    let served = Now { mono: now.mono.max(sent), ..now };
                    match request {
                        Remote::Page(asked) => self.begin_page(served, from, asked),
                        request => self.serve(served, from, request.borrow()),
                    }
                    1
                }
                Some(Message::Reply(reply)) => {
                    self.outbox.replies.push(reply);
                    1
                }
                Some(Message::PeerMessages(from, batch)) => {
                    let messages = batch.entries.len();
                    let (peering, inbounds, mesh, mut behind) = self.parts(now);
                    let counters = &mut peering.counters;
                    inbounds.serve_batch(from, *batch, &mut behind, mesh, counters);
                    messages
                }
                Some(Message::PeerResults(results)) => {
                    let messages = results.entries.len();
                    self.inbounds.take_results(*results);
                    messages
                }
                None => return,
            };
            budget = budget.saturating_sub(messages.max(1));
        }
    }

    /// Turns the wheel. What follows is taken by the turn that calls this ([`turn`]).
    fn tick(&mut self, now: Now) {
        self.now = now;
        self.shard.tick(now, &mut self.outbox);
    }

    /// A callback ended. What follows is taken by the turn that calls this ([`turn`]).
    fn callback_finished(&mut self, now: Now, ticket: Ticket, outcome: CallbackOutcome) {
        self.shard.handle(now, Event::CallbackFinished { ticket, outcome }, &mut self.outbox);
    }

    /// The answer to the request just made, if it was given at once.
    pub fn take_answer(&mut self, from: Requester) -> Option<Answer> {
        self.outbox.replies.pop_if(|reply| reply.to == from).map(|reply| reply.answer)
    }

    /// Moves the answers for clients of this core into `replies`, and sends the others over the
    /// mesh.
    pub fn replies(&mut self, replies: &mut Vec<Reply>) {
        for reply in self.outbox.replies.drain(..) {
            let reply = if reply.to.connection == GATHERED && reply.to.shard == self.own {
                match self.gathers.take(self.now, self.peering.view(), reply) {
                    Some(whole) => whole,
                    None => continue,
                }
            } else {
                reply
            };
            if reply.to.shard == self.own {
                replies.push(reply);
            } else {
                self.mesh.send_reply(reply);
            }
        }
    }

    /// Whether clients' writes are refused at present, for another reason than room.
    pub fn refuses_writes(&self) -> bool {
        self.peering.write_refusal().is_some() || self.view().has_left()
    }

    /// What the members' wall clocks say of this node's.
    pub fn clock(&self) -> ClockVerdict {
        self.peering.clock()
    }

    /// Callbacks that were not begun because their turn had taken too long.
    pub fn withheld(&self) -> u64 {
        self.withheld
    }

    /// When the next turn should begin although nothing happens.
    pub fn next_wake(&self) -> Option<Tick> {
        let peers = self.peering.wake_at().min(self.inbounds.wake_at());
        let peers = (peers != MonoNs(u64::MAX)).then(|| peers.tick_ceil());
        [self.shard.next_wake(), peers].into_iter().flatten().min()
    }

    /// The shard.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The shard, to be told to stop.
    pub fn shard_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }

    /// The mesh port: sleeping, waking, counters.
    pub fn mesh(&mut self) -> &mut MeshPort {
        &mut self.mesh
    }

    /// Takes a new configuration: peers that are new are dialled, those that are gone are closed.
    pub fn set_view(&mut self, now: Now, view: Arc<View>) {
        let (peering, inbounds, _, mut behind) = self.parts(now);
        peering.set_view(&mut behind, view.clone());
        inbounds.set_view(&view);
    }

    /// Compares everything with everybody.
    pub fn resynchronise(&mut self, now: Now) {
        self.parts(now).3.tell(Event::Resynchronise);
    }

    /// A dialled connection is upgraded, or answered as by an original node.
    pub fn peer_connected(&mut self, now: Now, peer: PeerIndex, connected: &Connected) {
        let (peering, inbounds, _, mut behind) = self.parts(now);
        let is_used = peering.connected(&mut behind, peer, connected);
        if let Some(hello) = connected.hello.as_ref().filter(|_| is_used) {
            inbounds.answered_at_its_address(hello);
        }
    }

    /// A dial was refused because the peer does not take this process for the node that it says it
    /// is: until some peer does, clients' writes are refused.
    pub fn peer_disowns(&mut self, now: Now, peer: PeerIndex) {
        let (peering, _, _, mut behind) = self.parts(now);
        peering.disowned_by(&mut behind, peer);
    }

    /// A dial failed, or the connection that was dialled is gone. Ignored after
    /// [`PeerAction::Close`].
    pub fn peer_lost(&mut self, now: Now, peer: PeerIndex) {
        let (peering, _, _, mut behind) = self.parts(now);
        peering.lost(&mut behind, peer);
    }

    /// Bytes over the connection that was dialled. `Err`: close it and call
    /// [`Core::peer_lost`].
    pub fn peer_received(
        &mut self,
        now: Now,
        peer: PeerIndex,
        bytes: &[u8],
    ) -> Result<(), PeerError> {
        let (peering, _, _, mut behind) = self.parts(now);
        peering.received(&mut behind, peer, bytes)
    }

    /// Appends what is to be sent over the connection that was dialled.
    pub fn peer_output(&mut self, now: Now, peer: PeerIndex, out: &mut Vec<u8>) {
        self.peering.output(now, peer, out);
    }

    /// A peer asks for an Upgrade.
    pub fn inbound_opened(&mut self, now: Now, hello: &Hello) -> Result<InboundId, HelloRefusal> {
        self.inbounds.opened(now.mono, hello, &mut self.peering)
    }

    /// An Upgrade was refused before [`Core::inbound_opened`] was asked.
    pub fn inbound_refused(&mut self, refusal: HelloRefusal) -> HelloRefusal {
        let counters = &mut self.peering.counters;
        match refusal {
            HelloRefusal::Elsewhere(_) => counters.strangers += 1,
            HelloRefusal::Unproven(_) => counters.unproven += 1,
            _ => {}
        }
        refusal
    }

    /// Bytes over a connection that a peer dialled. `Err`: close it and call
    /// [`Core::inbound_closed`].
    pub fn inbound_received(
        &mut self,
        now: Now,
        inbound: InboundId,
        bytes: &[u8],
    ) -> Result<(), PeerError> {
        let (peering, inbounds, mesh, mut behind) = self.parts(now);
        inbounds.received(inbound, bytes, &mut behind, mesh, &mut peering.counters)
    }

    /// Appends what is to be sent over a connection that a peer dialled.
    pub fn inbound_output(&mut self, now: Now, inbound: InboundId, out: &mut Vec<u8>) {
        self.inbounds.output(now, inbound, out, &mut self.peering.counters);
    }

    /// A connection that a peer dialled is gone.
    pub fn inbound_closed(&mut self, inbound: InboundId) {
        self.inbounds.closed(inbound);
    }

    /// The addresses that nodes of other sites call from, as these have told.
    pub fn site_callers(&self) -> &[IpAddr] {
        self.peering.site_callers()
    }

    /// Where a peer is dialled now; may lack a port.
    pub fn address_of(&self, peer: PeerIndex) -> &str {
        self.peering.address_of(peer)
    }

    /// What this core says of itself when it dials or is dialled.
    pub fn hello(&self) -> Hello {
        self.peering.hello().clone()
    }

    /// Heartbeats, suspicion, dialling, messages and results of this turn handed to links: once per
    /// turn, after everything else that changes the shard (answers to clients may follow from it).
    /// The actions that follow are appended. Cost without peers: a few loads.
    fn peers(&mut self, now: Now, actions: &mut Vec<PeerAction>) {
        let is_silent = self.outbox.to_peers.is_empty() && self.outbox.peer_replies.is_empty();
        if is_silent && self.peering.is_idle() && self.inbounds.is_idle() {
            return;
        }
        let (peering, inbounds, mesh, mut behind) = self.parts(now);
        if peering.wake_at() <= now.mono {
            peering.tick(&mut behind);
        }
        inbounds.tick(now.mono, peering.limits().dead_after_ms);
        peering.tell_gaps(&mut behind);
        for _ in 0..DELIVERIES_PER_TURN_MAX {
            let outbox = &mut *behind.outbox;
            if outbox.to_peers.is_empty() && outbox.peer_replies.is_empty() {
                break;
            }
            // What the shard writes while it is told of unheard messages goes into the next round.
            let mut messages = std::mem::take(&mut outbox.to_peers);
            let mut replies = std::mem::take(&mut outbox.peer_replies);
            let mut bytes = std::mem::take(&mut outbox.peer_bytes);
            inbounds.answer(&mut replies, &bytes, mesh);
            peering.send(&mut behind, &mut messages, &bytes);
            bytes.clear();
            let outbox = &mut *behind.outbox;
            if outbox.to_peers.is_empty() && outbox.peer_replies.is_empty() {
                (outbox.to_peers, outbox.peer_replies) = (messages, replies);
                outbox.peer_bytes = bytes;
            }
        }
        if !behind.outbox.to_peers.is_empty() || !behind.outbox.peer_replies.is_empty() {
            peering.wake_now();
        }
        peering.take_actions(actions);
        inbounds.take_actions(actions);
    }

    /// Whether every message that can reach its peer has been acknowledged: an orderly stop waits
    /// for it.
    pub fn peers_settled(&self) -> bool {
        self.outbox.to_peers.is_empty() && self.peering.is_settled()
    }

    /// The cluster as this core sees it.
    pub fn view(&self) -> &Arc<View> {
        self.peering.view()
    }

    /// What was counted about peers.
    pub fn peer_counters(&self) -> &PeerCounters {
        &self.peering.counters
    }

    /// What this core believes of each peer that is to be connected with.
    pub fn peers_believed(&self) -> impl Iterator<Item = (PeerIndex, Liveness, Dialect)> {
        self.peering.believed()
    }

    /// Bytes kept for each peer of the view, by number.
    pub fn peer_bytes_kept(&self) -> impl Iterator<Item = u64> {
        self.peering.bytes_kept()
    }

    /// Messages kept for peers until they acknowledge them.
    pub fn peer_messages_kept(&self) -> u64 {
        self.peering.kept()
    }

    /// Connections of peers.
    pub fn inbounds_open(&self) -> usize {
        self.inbounds.open()
    }

    /// Memory that what peers have begun takes.
    pub fn inbounds_held_bytes(&self) -> usize {
        self.inbounds.held_bytes()
    }

    fn serve(&mut self, now: Now, from: Requester, request: Request<'_>) {
        self.parts(now).3.tell(Event::Request { from, request });
    }

    /// All parts at once: the peers, those who dialled us, the mesh, and the shard behind.
    fn parts(&mut self, now: Now) -> (&mut Peering, &mut Inbounds, &mut MeshPort, Behind<'_>) {
        let behind = Behind { now, shard: &mut self.shard, outbox: &mut self.outbox };
        (&mut self.peering, &mut self.inbounds, &mut self.mesh, behind)
    }
}
