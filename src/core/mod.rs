//! One core without its ring: shard, mesh, peers, and the routing between them. The engine drives
//! it under io_uring, the simulators in virtual time.

// May panic: assertions 2, expectations 1, indices 1.
// Why it does not: ordered 4.

mod asked;
pub(crate) mod asking;
pub(crate) mod copies;
pub(crate) mod counts;
pub mod gate;
pub(crate) mod gather;
pub mod internal_api;
pub(crate) mod internal_document;
pub(crate) mod jobs;
pub mod journal;
pub(crate) mod letter_jobs;
pub(crate) mod lists;
pub mod mesh;
pub mod peers;
mod site_views;
pub mod turn;

use std::net::IpAddr;
use std::sync::Arc;

use crate::base::destinations::DestinationTable;
use crate::base::ids::{PeerIndex, ShardCount, ShardIndex, TimerId};
use crate::base::time::{MonoNs, Now, Tick, WallMs, earlier};
use crate::cluster::detector::Liveness;
use crate::cluster::view::View;
use crate::cluster::wall_clocks::ClockVerdict;
use crate::journal::Position;
use crate::shard::effects::{
    Answer, Attempt, CallbackOutcome, Dialect, Event, Internal, Outbox, PeerReply, Purpose,
    Refusal, Reply, Request, Requester, Ticket,
};
use crate::shard::{Shard, ShardConfig};
use crate::wire::dead_letter::LetterUse;
use crate::wire::peer_message::PeerMessage;
use crate::wire::resync_json::Reference;

use crate::base::jobs::JobPlaces;
use crate::core::asking::{Order, Whom};
use crate::core::copies::Copies;
use crate::core::counts::{Counts, IS_COUNT};
use crate::core::gather::{Gathers, PageAsked};
use crate::core::jobs::Jobs;
use crate::core::journal::{CoreJournal, JournalCounters, WaitingResult};
use crate::core::letter_jobs::{LetterJobs, LetterOrder};
use crate::core::lists::Lists;
use crate::core::mesh::{MeshPort, Message, Remote};
use crate::core::peers::actions::{InboundId, PeerAction, PeerError};
use crate::core::peers::behind::Behind;
use crate::core::peers::counters::PeerCounters;
use crate::core::peers::hello::{CompleteSince, Connected, Hello, HelloRefusal, Identity};
use crate::core::peers::inbounds::Inbounds;
use crate::core::peers::peering::Peering;
use crate::core::peers::site_members::SiteMembers;
use crate::shard::requesters::{GATHERED, JOBBED, LETTERS, LISTED};

/// Messages of siblings that are served in one turn. A batch of a peer's messages is not cut.
/// Further messages wait for the next turn.
pub const INBOX_PER_TURN_MAX: usize = 1_024;
/// How often in one turn messages are handed to links. A message that a link drops may make the
/// shard send others. Messages that are left over wait for the next turn.
const DELIVERIES_PER_TURN_MAX: usize = 8;

/// A shard, its end of the mesh, and its talk with peers.
pub struct Core {
    own: ShardIndex,
    shards: ShardCount,
    shard: Shard,
    mesh: MeshPort,
    outbox: Outbox,
    peering: Peering,
    inbounds: Inbounds,
    gathers: Gathers,
    lists: Lists,
    counts: Counts,
    letter_jobs: LetterJobs,
    jobs: Jobs,
    job_places: Arc<JobPlaces>,
    journal: Option<Box<CoreJournal>>,
    /// Since when all shards of the node are complete, and since when this one told that it is.
    complete_since: CompleteSince,
    told_complete: WallMs,
    /// Kept for their memory between turns.
    attempts: Vec<Attempt>,
    actions: Vec<PeerAction>,
    /// See [`Core::withheld`].
    withheld: u64,
    /// The time of the last [`Core::tick`].
    now: Now,
}

impl Core {
    /// A core with an empty shard and the default identity, for a node alone.
    pub fn new(config: ShardConfig, mesh: MeshPort, now: Now) -> Self {
        Self::with_identity(config, mesh, Identity::default(), now)
    }

    /// A core with an empty shard. The first turn dials the peers of `config.view`.
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
            complete_since: None,
            site: view.name_of_site(view.local_site()).map(str::to_owned),
        };
        Self {
            own,
            shards,
            peering: Peering::new(now, hello, &config.cluster, view),
            inbounds: Inbounds::new(own, shards, identity.accepts_strangers),
            shard: Shard::new(config, now),
            gathers: Gathers::default(),
            lists: Lists::default(),
            counts: Counts::default(),
            letter_jobs: LetterJobs::default(),
            jobs: Jobs::default(),
            job_places: Arc::default(),
            journal: None,
            complete_since: identity.complete_since,
            told_complete: WallMs(0),
            attempts: Vec::new(),
            actions: Vec::new(),
            withheld: 0,
            now,
            mesh,
            outbox: Outbox::default(),
        }
    }

    /// From now on everything that this core holds goes into a journal, and answers wait for the
    /// disk as the journal's rules say.
    pub fn begin_journal(&mut self, journal: CoreJournal) {
        self.shard.begin_journal(journal.is_late());
        self.journal = Some(Box::new(journal));
    }

    /// Tells that the core, which was made a while ago and has heard nobody, serves from now on.
    pub fn begin(&mut self, now: Now) {
        self.now = now;
        self.peering.begin(now.mono);
    }

    /// The journal; `None`: the core has none.
    pub fn journal(&mut self) -> Option<&mut CoreJournal> {
        self.journal.as_deref_mut()
    }

    /// Begins a backup of the journal, if there is one.
    pub fn back_up(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.back_up(&self.shard);
        }
    }

    /// What the journal has counted; `None`: there is none.
    pub fn journal_counters(&self) -> Option<&JournalCounters> {
        self.journal.as_ref().map(|journal| journal.counters())
    }

    /// Does the journal's part of a turn. Returns whether there is a journal.
    fn journal_turn(&mut self, now: Now) -> bool {
        let Some(journal) = &mut self.journal else { return false };
        journal.turn(now, &mut self.shard);
        true
    }

    /// Whether the disk has all that this core holds, as far as a journal is to have it.
    pub fn is_stored(&self) -> bool {
        self.journal.as_ref().is_none_or(|journal| journal.is_settled(&self.shard))
    }

    /// Serves a client's request here, or sends it to the core that owns the timer.
    /// [`Core::replies`] gives the answer, in this turn or a later one.
    pub fn request(&mut self, now: Now, from: Requester, request: Request<'_>) {
        let owner = match request {
            Request::Create(_) => self.own,
            Request::Update(target, _)
            | Request::Delete(target)
            | Request::Read(target)
            | Request::Letter(target, ..) => self.shards.owner(target.id),
            Request::Conditional(ask) => self.shards.owner(ask.target.id),
            Request::Merge(copy) => self.shards.owner(copy.standing.id),
            Request::Compare(question) => self.shards.owner(question.id),
            Request::Collect(_) | Request::Forget(_) | Request::List(_) => {
                unreachable!("every shard is asked for its own part")
            }
        };
        let refusal = match request {
            Request::Create(_)
            | Request::Update(..)
            | Request::Delete(_)
            | Request::Conditional(_)
            | Request::Letter(_, LetterUse::Replay | LetterUse::Delete, _) => {
                self.peering.refuses_writes()
            }
            _ => None,
        };
        if let Some(refusal) = refusal {
            let answer = Answer::Refused(refusal);
            return self.outbox.reply(from, answer);
        }
        self.ask(now, owner, from, &request);
    }

    /// Takes another node's question for a page of timers of all cores. [`Core::replies`] gives the
    /// answer.
    pub fn page(&mut self, now: Now, from: Requester, asked: PageAsked) {
        // One core keeps the asking node's cursor, whichever core the node is connected with.
        let keeper = self.shards.owner(TimerId(asked.node.0.into()));
        if keeper == self.own {
            return self.begin_page(now, from, asked);
        }
        let sent = self.mesh.send_request(now.mono, keeper, from, Remote::Page(asked));
        if sent.is_err() {
            let answer = Answer::Refused(Refusal::CoreBusy);
            self.outbox.reply(from, answer);
        }
    }

    /// Asks shards and nodes for the lists and numbers that are being put together.
    fn list_on(&mut self, now: Now) {
        let mut orders = Vec::new();
        let view = self.peering.view().clone();
        let of = (self.own, &*view);
        let before = self.outbox.replies.len();
        self.lists.tick(now, of, &mut orders, &mut self.outbox.replies);
        self.counts.tick(now, of, &mut orders, &mut self.outbox.replies);
        if self.outbox.replies.len() > before {
            self.use_late_pages(now);
        }
        for Order { whom, from, ask } in orders {
            match whom {
                Whom::Shard(shard) => self.ask(now, shard, from, &Request::List(&ask)),
                Whom::Peer(peer, shard) => {
                    let (generation, request) = (from.generation, from.request);
                    let bytes = self.outbox.encode(&PeerMessage::List { shard, ask: &ask });
                    self.outbox.tell(peer, Purpose::List { generation, request }, bytes);
                }
            }
        }
    }

    /// Does what clients want done with the letters of pages that end without all that was asked
    /// for. Other answers stay.
    #[cold]
    fn use_late_pages(&mut self, now: Now) {
        for page in std::mem::take(&mut self.outbox.replies) {
            let page = self.letter_jobs.begin(self.own, page);
            self.outbox.replies.extend(page);
        }
        self.use_letters(now);
    }

    fn use_letters(&mut self, now: Now) {
        for LetterOrder { from, target, wanted, version } in self.letter_jobs.take_orders() {
            self.request(now, from, Request::Letter(target, wanted, Some(version)));
        }
    }

    /// Takes note of timers that another node has taken over. [`Core::replies`] gives the answer.
    /// Sorts `references`.
    pub fn forget(&mut self, now: Now, from: Requester, references: &mut [Reference]) {
        references.sort_unstable_by_key(|reference| self.shards.owner(reference.id));
        let shards = self.shards;
        let parts: Vec<&[Reference]> =
            references.chunk_by(|a, b| shards.owner(a.id) == shards.owner(b.id)).collect();
        let to = self.gathers.begin_forget(self.own, from, parts.len());
        if parts.is_empty() {
            let answer = Answer::Internal(Box::new(Internal::Accepted));
            return self.outbox.reply(from, answer);
        }
        for part in parts {
            self.ask(now, shards.owner(part[0].id), to, &Request::Forget(part));
        }
    }

    /// Merges the copies that this core owns.
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

    /// Asks a shard: this core's or a sibling's.
    fn ask(&mut self, now: Now, owner: ShardIndex, from: Requester, request: &Request<'_>) {
        if owner == self.own {
            return self.serve(now, from, *request);
        }
        let sent = self.mesh.send_request(now.mono, owner, from, Remote::copy(request));
        if sent.is_err() {
            let answer = Answer::Refused(Refusal::CoreBusy);
            self.outbox.reply(from, answer);
        }
    }

    /// Takes what siblings sent, at most [`INBOX_PER_TURN_MAX`] messages. Then asks what lists
    /// need: later in the turn callbacks are about to begin, and nothing may be asked of the shard.
    pub(crate) fn inbox(&mut self, now: Now) {
        self.take_messages(now);
        if !self.jobs.is_empty() {
            self.jobs_on(now);
        }
        if !self.lists.is_empty() || !self.counts.is_empty() {
            self.list_on(now);
        }
    }

    fn take_messages(&mut self, now: Now) {
        let mut budget = INBOX_PER_TURN_MAX;
        while budget > 0 {
            let messages = match self.mesh.receive() {
                Some(Message::Request(from, request, sent)) => {
                    let served = now.not_before(sent);
                    match request {
                        Remote::Page(asked) => self.begin_page(served, from, asked),
                        request => self.serve(served, from, request.borrow()),
                    }
                    1
                }
                Some(Message::Reply(reply)) => {
                    // The sibling has waited for its disk.
                    self.outbox.reply(reply.to, reply.answer);
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

    /// Looks at the clocks as a turn begins, so that nothing is decided by a wall clock that was
    /// just set, before the members' clocks have judged it.
    pub(crate) fn look_at_clock(&mut self, now: Now) {
        if self.shard.is_clock_off(now) {
            self.judge_clock(now);
        }
    }

    #[cold]
    fn judge_clock(&mut self, now: Now) {
        self.peering.judge_clock(now);
        self.shard.hear_clocks(now, self.peering.member_walls(now));
    }

    /// The wall time that calendars go by.
    pub fn calendar_wall(&self, now: Now) -> WallMs {
        self.shard.calendar_wall(now)
    }

    /// Turns the wheel. The [`turn`] that calls this takes the effects.
    fn tick(&mut self, now: Now) {
        self.now = now;
        self.shard.tick(now, &mut self.outbox);
        self.note_complete();
    }

    /// Tells the other cores, and peers that meet this node, since when this shard is complete.
    /// Cost: a comparison, if nothing has changed.
    pub fn note_complete(&mut self) {
        let since = self.shard.complete_since();
        if self.told_complete != since {
            // It is told first when the shard has what its journal knows.
            self.complete_since.note(since, self.told_complete == WallMs(0));
            self.told_complete = since;
        }
    }

    /// Tells the shard that a callback ended. The [`turn`] that calls this takes the effects.
    fn callback_finished(&mut self, now: Now, ticket: Ticket, outcome: CallbackOutcome) {
        self.shard.handle(now, Event::CallbackFinished { ticket, outcome }, &mut self.outbox);
    }

    /// Returns the answer to the request just made, if it was answered at once.
    pub fn take_answer(&mut self, from: Requester) -> Option<Answer> {
        let journal = self.journal.as_ref();
        let may_leave = |after| journal.is_none_or(|journal| journal.may_leave(after));
        let is_it = |reply: &mut Reply| reply.to == from && may_leave(reply.after);
        self.outbox.replies.pop_if(is_it).map(|reply| reply.answer)
    }

    /// Moves the answers for clients of this core into `replies`, and sends the other answers over
    /// the mesh.
    pub fn replies(&mut self, replies: &mut Vec<Reply>) {
        self.sort_replies(replies);
        // What is asked for letters of a page may be answered at once, and end the page.
        while self.letter_jobs.has_orders() {
            self.use_letters(self.now);
            self.sort_replies(replies);
        }
    }

    fn sort_replies(&mut self, replies: &mut Vec<Reply>) {
        if let Some(journal) = &mut self.journal {
            let replies = &mut self.outbox.replies;
            let is_held = |reply: &mut Reply| !journal.may_leave(reply.after);
            let held: Vec<Reply> = replies.extract_if(.., is_held).collect();
            held.into_iter().for_each(|reply| journal.hold_reply(reply));
            replies.extend(std::iter::from_fn(|| journal.next_reply()));
        }
        for reply in self.outbox.replies.drain(..) {
            let reply = if reply.to.connection == GATHERED && reply.to.shard == self.own {
                match self.gathers.take(self.now, self.peering.view(), reply) {
                    Some(whole) => whole,
                    None => continue,
                }
            } else if reply.to.connection == LISTED && reply.to.shard == self.own {
                let (now, view) = (self.now, self.peering.view());
                let whole = match reply.to.request & IS_COUNT {
                    0 => self.lists.take(now, view, reply),
                    _ => self.counts.take(now, view, reply),
                };
                match whole.and_then(|page| self.letter_jobs.begin(self.own, page)) {
                    Some(whole) => whole,
                    None => continue,
                }
            } else if reply.to.connection == LETTERS && reply.to.shard == self.own {
                match self.letter_jobs.take(&reply) {
                    Some(page) => page,
                    None => continue,
                }
            } else {
                reply
            };
            if reply.to.connection == JOBBED && reply.to.shard == self.own {
                self.jobs.take(self.now, self.shard.jobs_mut(), reply);
                continue;
            }
            if reply.to.shard == self.own {
                replies.push(reply);
            } else {
                self.mesh.send_reply(reply);
            }
        }
    }

    /// Returns whether clients' writes are refused at present for another reason than lack of room.
    pub fn refuses_writes(&self) -> bool {
        self.peering.write_refusal().is_some() || self.view().has_left()
    }

    /// Returns whether this node may be told and asked by other sites. `Err`: why not.
    pub fn speaks_for_site(&self) -> Result<(), String> {
        self.peering.speaks_for_site()
    }

    /// What the members' wall clocks say of this node's.
    pub fn clock(&self) -> ClockVerdict {
        self.peering.clock()
    }

    /// How many callbacks were not begun because their turn had taken too long.
    pub fn withheld(&self) -> u64 {
        self.withheld
    }

    /// When the next turn should begin although nothing happens. `None`: not before something
    /// happens.
    pub fn next_wake(&self) -> Option<Tick> {
        let peers = self.peering.wake_at().min(self.inbounds.wake_at());
        let peers = (peers != MonoNs(u64::MAX)).then(|| peers.tick_ceil());
        let journal = self.journal.as_ref().and_then(|journal| journal.next_wake(self.now.mono));
        let journal = journal.map(MonoNs::tick_ceil);
        let own = earlier(self.shard.next_wake(), earlier(peers, journal));
        let is_asked = !(self.lists.is_empty() && self.counts.is_empty() && self.jobs.is_empty());
        if is_asked { earlier(own, self.asks_wake()) } else { own }
    }

    /// When a list, a count or a job is to go on.
    #[cold]
    fn asks_wake(&self) -> Option<Tick> {
        earlier(self.lists.next_wake(), earlier(self.counts.next_wake(), self.jobs.next_wake()))
    }

    /// This core's shard.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// This core's shard, for the order to stop.
    pub fn shard_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }

    /// This core's end of the mesh: sleeping, waking, counters.
    pub fn mesh(&mut self) -> &mut MeshPort {
        &mut self.mesh
    }

    /// Takes a new view. Peers that are new are dialled, connections with peers that are gone are
    /// closed.
    pub fn set_view(&mut self, now: Now, view: Arc<View>) {
        let (peering, inbounds, _, mut behind) = self.parts(now);
        peering.set_view(&mut behind, view.clone());
        inbounds.set_view(&view);
    }

    /// Begins a walk: the shard compares all its timers with all peers.
    pub fn resynchronise(&mut self, now: Now) {
        self.parts(now).3.tell(Event::Resynchronise);
    }

    /// Tells that the peer's machine took the connection that is dialled. Nothing is known yet of
    /// the process that listens there.
    pub fn peer_taken(&mut self, peer: PeerIndex) {
        self.peering.taken(&mut self.shard, peer);
    }

    /// Tells that a dialled connection is upgraded, or that the peer answered as an original node
    /// does.
    pub fn peer_connected(&mut self, now: Now, peer: PeerIndex, connected: &Connected) {
        let (peering, inbounds, _, mut behind) = self.parts(now);
        let is_used = peering.connected(&mut behind, peer, connected);
        if is_used {
            let since = connected.hello.as_ref().and_then(|hello| hello.complete_since);
            behind.tell(Event::PeerComplete { peer, since });
        }
        if let Some(hello) = connected.hello.as_ref().filter(|_| is_used) {
            inbounds.answered_at_its_address(hello);
        }
    }

    /// Tells that the peer refused a dial because it does not take this process for the node that
    /// this process says it is. Clients' writes are refused until some peer accepts it.
    pub fn peer_disowns(&mut self, now: Now, peer: PeerIndex) {
        let (peering, _, _, mut behind) = self.parts(now);
        peering.disowned_by(&mut behind, peer);
    }

    /// Tells that another site refused a dial: it does not know this node.
    pub fn peer_shuts_out(&mut self, now: Now, peer: PeerIndex) {
        let (peering, _, _, mut behind) = self.parts(now);
        peering.shut_out_by(&mut behind, peer);
    }

    /// Tells that a dial failed, or that the dialled connection is gone. The call is ignored after
    /// [`PeerAction::Close`].
    pub fn peer_lost(&mut self, now: Now, peer: PeerIndex) {
        let (peering, _, _, mut behind) = self.parts(now);
        peering.lost(&mut behind, peer);
    }

    /// Takes bytes that came over the dialled connection. On `Err` the driver must close the
    /// connection and call [`Core::peer_lost`].
    pub fn peer_received(
        &mut self,
        now: Now,
        peer: PeerIndex,
        bytes: &[u8],
    ) -> Result<(), PeerError> {
        let (peering, _, _, mut behind) = self.parts(now);
        peering.received(&mut behind, peer, bytes)
    }

    /// Appends the bytes to send over the dialled connection.
    pub fn peer_output(&mut self, now: Now, peer: PeerIndex, out: &mut Vec<u8>) {
        self.peering.output(now, peer, out);
    }

    /// Takes a peer's Upgrade. `Err` is the reason to refuse it.
    pub fn inbound_opened(&mut self, now: Now, hello: &Hello) -> Result<InboundId, HelloRefusal> {
        self.inbounds.opened(now.mono, hello, &mut self.peering)
    }

    /// Counts an Upgrade that was refused before [`Core::inbound_opened`] was called. Returns the
    /// refusal.
    pub fn inbound_refused(&mut self, refusal: HelloRefusal) -> HelloRefusal {
        let counters = &mut self.peering.counters;
        match refusal {
            HelloRefusal::Elsewhere(_) => counters.strangers += 1,
            HelloRefusal::Unproven(_) => counters.unproven += 1,
            HelloRefusal::Plain => counters.plain += 1,
            HelloRefusal::Misnamed(_) => counters.misnamed += 1,
            _ => {}
        }
        refusal
    }

    /// Takes bytes that came over a connection that a peer dialled. On `Err` the driver must close
    /// the connection and call [`Core::inbound_closed`].
    pub fn inbound_received(
        &mut self,
        now: Now,
        inbound: InboundId,
        bytes: &[u8],
    ) -> Result<(), PeerError> {
        let (peering, inbounds, mesh, mut behind) = self.parts(now);
        inbounds.received(inbound, bytes, &mut behind, mesh, &mut peering.counters)
    }

    /// Appends the bytes to send over a connection that a peer dialled.
    pub fn inbound_output(&mut self, now: Now, inbound: InboundId, out: &mut Vec<u8>) {
        self.inbounds.output(now, inbound, out, &mut self.peering.counters);
    }

    /// Tells that a connection that a peer dialled is gone.
    pub fn inbound_closed(&mut self, inbound: InboundId) {
        self.inbounds.closed(inbound);
    }

    /// The addresses from which nodes of other sites call, as these sites told them.
    pub fn site_callers(&self) -> &[IpAddr] {
        self.peering.site_callers()
    }

    /// What another site told last of its members; nothing if it has told nothing yet.
    pub fn told_by(&self, site: PeerIndex) -> Option<&SiteMembers> {
        self.peering.told_by(site)
    }

    /// The address at which a peer is dialled at present. It may lack a port.
    pub fn address_of(&self, peer: PeerIndex) -> &str {
        self.peering.address_of(peer)
    }

    /// What this core says of itself when it dials or is dialled.
    pub fn hello(&self) -> Hello {
        Hello { complete_since: self.complete_since.get(), ..self.peering.hello().clone() }
    }

    /// Does the peers' part of a turn: heartbeats, suspicion, dialling, and handing this turn's
    /// messages and results to links. Call it once per turn, after everything else that changes the
    /// shard, because answers to clients may follow from it. Appends the actions for the driver.
    /// Cost without peers: a few loads.
    fn peers(&mut self, now: Now, actions: &mut Vec<PeerAction>) {
        self.release_results();
        let is_silent = self.outbox.to_peers.is_empty() && self.outbox.peer_replies.is_empty();
        if is_silent && self.peering.is_idle() && self.inbounds.is_idle() {
            return;
        }
        let mut journal = self.journal.take();
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
            // Messages that the shard writes while it is told of unheard messages go into the next
            // round.
            let mut messages = std::mem::take(&mut outbox.to_peers);
            let mut replies = std::mem::take(&mut outbox.peer_replies);
            let mut bytes = std::mem::take(&mut outbox.peer_bytes);
            if let Some(journal) = &mut journal {
                journal.hold_results(&mut replies, &bytes);
            }
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
        self.journal = journal;
    }

    /// Takes the rules of destinations that hold from now on.
    pub fn set_flow_rules(&mut self, now: Now, table: Arc<DestinationTable>) {
        self.shard.set_flow_rules(now, table);
    }

    /// Tells all other nodes of the site lines of orders (`wire::destination`).
    pub fn tell_orders(&mut self, lines: &[u8]) {
        let bytes = self.outbox.encode(&PeerMessage::Orders(lines));
        for peer in self.peering.view().connected_nodes().iter() {
            self.outbox.tell(peer, Purpose::Hint, bytes.clone());
        }
    }

    /// Whether another node told of orders.
    #[inline]
    pub fn has_orders(&self) -> bool {
        !self.outbox.orders.is_empty()
    }

    /// Takes the lines of orders that other nodes told, in their order.
    pub fn take_orders(&mut self) -> impl Iterator<Item = (PeerIndex, Box<[u8]>)> {
        self.outbox.orders.drain(..)
    }

    /// Returns whether every message that can reach its peer has been acknowledged. An orderly stop
    /// waits for it.
    pub fn peers_settled(&self) -> bool {
        self.outbox.to_peers.is_empty() && self.peering.is_settled()
    }

    /// The cluster as this core sees it.
    pub fn view(&self) -> &Arc<View> {
        self.peering.view()
    }

    /// What this core counted about its peers.
    pub fn peer_counters(&self) -> &PeerCounters {
        &self.peering.counters
    }

    /// What this core believes of each peer with which it keeps connections, and how it talks to
    /// the peer.
    pub fn peers_believed(&self) -> impl Iterator<Item = (PeerIndex, Liveness, Dialect)> {
        self.peering.believed()
    }

    /// Bytes that links keep for each peer of the view, in the order of peer numbers.
    pub fn peer_bytes_kept(&self) -> impl Iterator<Item = u64> {
        self.peering.bytes_kept()
    }

    /// How many messages links keep until peers acknowledge them.
    pub fn peer_messages_kept(&self) -> u64 {
        self.peering.kept()
    }

    /// How many connections that peers dialled are open.
    pub fn inbounds_open(&self) -> usize {
        self.inbounds.open()
    }

    /// Bytes of memory that peers have caused on connections that they dialled.
    pub fn inbounds_held_bytes(&self) -> usize {
        self.inbounds.held_bytes()
    }

    /// Lets peers' results go that the disk has.
    fn release_results(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        while let Some(WaitingResult { ticket, bytes, .. }) = journal.next_result() {
            let begins = self.outbox.peer_bytes.len();
            self.outbox.peer_bytes.extend_from_slice(&bytes);
            let bytes = begins..self.outbox.peer_bytes.len();
            let after = Position::default();
            self.outbox.peer_replies.push(PeerReply { ticket, bytes, after });
        }
    }

    fn serve(&mut self, now: Now, from: Requester, request: Request<'_>) {
        self.parts(now).3.tell(Event::Request { from, request });
    }

    /// Lends all parts at once: the peering, the inbounds, the mesh, and the shard with its outbox.
    fn parts(&mut self, now: Now) -> (&mut Peering, &mut Inbounds, &mut MeshPort, Behind<'_>) {
        let behind = Behind { now, shard: &mut self.shard, outbox: &mut self.outbox };
        (&mut self.peering, &mut self.inbounds, &mut self.mesh, behind)
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
