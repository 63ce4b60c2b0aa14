//! A model of a `ZooKeeper` ensemble. The leader orders writes and counts sessions. Followers
//! answer reads from what they have applied, and tell the leader of sessions only in their answers
//! to its pings. Each way between them keeps its order and may be stuck. A follower that is cut off
//! goes on answering for a while.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use chronos::timestamp::coordinator::{Nodes, StoredBound};
use chronos::timestamp::{COUNTER_BITS, Timestamp};

use super::clocks::TRUE_MS;
use super::model::MS;
use super::world::{Event, World};

pub type LinkId = usize;
pub type Session = i64;

/// The content of the master's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MasterIs {
    pub server: usize,
    pub owner: Session,
    pub created_ns: u64,
}

/// What the ensemble stores after some writes.
#[derive(Clone, Debug)]
pub struct State {
    pub master: Option<MasterIs>,
    /// The number of the write that last changed the master's node.
    pub master_at: usize,
    pub nodes: Nodes,
    /// The bound; the last one, if its node is missing.
    pub bound: StoredBound,
    pub backups: BTreeMap<usize, Session>,
}

/// What a client can ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Open,
    Resume(Session),
    Ping,
    FindNodes,
    /// Makes the nodes of the cluster that are missing.
    MakeCluster,
    CreateMaster,
    ReadMaster,
    CreateBackup,
    DeleteBackup,
    ReadBound,
    /// Deletes the master's node, whichever server owns it. Only an original asks this.
    DeleteMaster,
    /// Sets the bound if its version matches; -1 matches every version.
    SetBound {
        bound: Timestamp,
        version: i32,
        needs_master: bool,
    },
    Release {
        bound: Timestamp,
        version: i32,
    },
    Close,
}

impl Op {
    /// Returns the name for traces.
    pub fn name(self) -> &'static str {
        match self {
            Op::Open => "open",
            Op::Resume(_) => "resume",
            Op::Ping => "ping",
            Op::FindNodes => "find",
            Op::MakeCluster => "make",
            Op::CreateMaster => "create",
            Op::ReadMaster => "look",
            Op::CreateBackup => "register",
            Op::DeleteBackup => "unregister",
            Op::ReadBound => "read",
            Op::DeleteMaster => "delete",
            Op::SetBound { .. } => "set",
            Op::Release { .. } => "release",
            Op::Close => "close",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Reply {
    Session(Session),
    Resumed,
    Pong,
    Done,
    Exists,
    Conflict,
    Expired,
    Master(Option<MasterIs>, usize),
    Nodes(Nodes),
    Bound(StoredBound),
    NoBound,
    /// The bound was written at this time, by the clock of the leader.
    Written(u64),
    /// The peer reads its state when this reply arrives there.
    Synced,
    MasterChanged,
}

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub link: LinkId,
    pub xid: u64,
    pub op: Op,
}

/// A message between the leader and another server.
#[derive(Clone, Debug)]
pub enum Message {
    Ask(Request),
    Pong(Vec<Session>),
    Ping,
    Commit(usize),
    Reply { link: LinkId, xid: u64, reply: Reply },
}

/// One direction of a connection. It keeps its order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Way {
    pub floor_ns: u64,
    pub stuck_until_ns: u64,
}

impl Way {
    /// Returns when a message that is sent now arrives.
    pub fn arrival(&mut self, now_ns: u64, latency_ns: u64) -> u64 {
        let at_ns = (now_ns + latency_ns).max(self.floor_ns).max(self.stuck_until_ns + 1);
        self.floor_ns = at_ns;
        at_ns
    }
}

/// A server of the ensemble.
#[derive(Debug, Default)]
pub struct Peer {
    pub is_up: bool,
    pub is_cut: bool,
    /// How often this server was cut off from the leader or came back. Events of an earlier count
    /// are dropped.
    pub cut: u64,
    applied: usize,
    touched: BTreeSet<Session>,
    pub to_leader: Way,
    pub from_leader: Way,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    expires_ns: u64,
    peer: usize,
}

/// A connection of a client with a peer.
#[derive(Debug)]
pub struct Link {
    pub server: usize,
    pub life: u64,
    pub peer: usize,
    pub session: Option<Session>,
    pub is_open: bool,
    pub is_watching: bool,
    pub to_peer: Way,
    pub to_client: Way,
}

/// What the leader has ordered: up to which state, at which peer, and the reply.
type Ordered = (usize, usize, Option<(LinkId, u64, Reply)>);

pub struct Ensemble {
    pub peers: Vec<Peer>,
    pub leader: Option<usize>,
    pub epoch: u64,
    pub frozen_until_ns: u64,
    history: Vec<State>,
    sessions: BTreeMap<Session, Held>,
    next_session: Session,
    commits: VecDeque<Ordered>,
    commit_floor_ns: u64,
}

impl Ensemble {
    pub fn new(peers: usize, nodes: Nodes, bound: Timestamp) -> Self {
        let bound = StoredBound { bound, version: 3 };
        let first = State { master: None, master_at: 0, nodes, bound, backups: BTreeMap::new() };
        Self {
            peers: (0..peers).map(|_| Peer::default()).collect(),
            leader: None,
            epoch: 0,
            frozen_until_ns: 0,
            history: vec![first],
            sessions: BTreeMap::new(),
            next_session: 1,
            commits: VecDeque::new(),
            commit_floor_ns: 0,
        }
    }

    /// Returns the state that the leader knows.
    pub fn head(&self) -> &State {
        self.history.last().expect("there is a first one")
    }

    fn seen_by(&self, peer: usize) -> &State {
        &self.history[self.peers[peer].applied]
    }
}

impl World {
    fn round_up_to_tick(&self, ns: u64) -> u64 {
        let tick_ns = self.options.tick_ms * MS;
        (ns / tick_ns + 1) * tick_ns
    }

    fn expiry_ns(&self) -> u64 {
        self.round_up_to_tick(self.now_ns + self.options.session_ms * MS)
    }

    fn latency(&mut self) -> u64 {
        let (low, high) = self.options.latency_ns;
        self.network.range(low, high)
    }

    /// Sends a message between the leader and a peer, which may be the leader itself.
    fn between(&mut self, peer: usize, is_to_leader: bool, message: Message) {
        let Some(leader) = self.zoo.leader else { return };
        let latency_ns = if leader == peer { 0 } else { self.latency() };
        let other = &mut self.zoo.peers[peer];
        if other.is_cut {
            return;
        }
        let way = if is_to_leader { &mut other.to_leader } else { &mut other.from_leader };
        let at_ns = way.arrival(self.now_ns, latency_ns);
        let (cut, epoch) = (other.cut, self.zoo.epoch);
        let message = self.keep(message);
        self.schedule(at_ns, Event::Between { peer, is_to_leader, cut, epoch, message });
    }

    pub fn arrives_between(&mut self, event: Event) {
        let Event::Between { peer, is_to_leader, cut, epoch, message } = event else { return };
        let other = &self.zoo.peers[peer];
        if epoch != self.zoo.epoch || cut != other.cut {
            return;
        }
        let way = if is_to_leader { other.to_leader } else { other.from_leader };
        let frozen_until_ns = if is_to_leader { self.zoo.frozen_until_ns } else { 0 };
        let not_before_ns = way.stuck_until_ns.max(frozen_until_ns);
        if not_before_ns > self.now_ns {
            return self.schedule(not_before_ns, event);
        }
        match self.messages[message].take().expect("a message arrives once") {
            Message::Ask(request) => self.order(peer, request),
            Message::Pong(sessions) => {
                for session in sessions {
                    self.heard_of(session);
                }
            }
            Message::Ping => {
                let touched = std::mem::take(&mut self.zoo.peers[peer].touched);
                self.between(peer, true, Message::Pong(touched.into_iter().collect()));
            }
            Message::Commit(at) => self.apply(peer, at),
            Message::Reply { link, xid, reply } => {
                let reply = match reply {
                    Reply::Synced => {
                        let state = self.zoo.seen_by(peer);
                        match state.nodes {
                            Nodes::Whole => Reply::Bound(state.bound),
                            Nodes::NoBound | Nodes::None => Reply::NoBound,
                        }
                    }
                    other => other,
                };
                if let Reply::Session(session) = reply {
                    self.links[link].session = Some(session);
                }
                self.send_to_client(link, xid, reply);
            }
        }
    }

    fn heard_of(&mut self, session: Session) {
        let expires_ns = self.expiry_ns();
        if let Some(held) = self.zoo.sessions.get_mut(&session) {
            held.expires_ns = expires_ns;
        }
    }

    fn apply(&mut self, peer: usize, at: usize) {
        let applied = &mut self.zoo.peers[peer].applied;
        *applied = at.max(*applied);
        if self.zoo.history[at].master_at != at {
            return;
        }
        for link in 0..self.links.len() {
            let one = &mut self.links[link];
            if one.peer == peer && one.is_open && std::mem::take(&mut one.is_watching) {
                self.send_to_client(link, 0, Reply::MasterChanged);
            }
        }
    }

    /// Takes a request of a client at its peer.
    pub fn peer_takes(&mut self, request: Request) {
        let peer = self.links[request.link].peer;
        let is_leader = self.zoo.leader == Some(peer);
        if is_leader && self.zoo.frozen_until_ns > self.now_ns {
            return self.schedule_request(self.zoo.frozen_until_ns, request);
        }
        if !self.zoo.peers[peer].is_up {
            return;
        }
        if let Some(session) = self.links[request.link].session {
            if is_leader {
                self.heard_of(session);
            } else {
                self.zoo.peers[peer].touched.insert(session);
            }
        }
        match request.op {
            Op::Ping => self.send_to_client(request.link, request.xid, Reply::Pong),
            Op::ReadMaster => {
                self.links[request.link].is_watching = true;
                let state = self.zoo.seen_by(peer);
                let reply = Reply::Master(state.master, state.master_at);
                self.send_to_client(request.link, request.xid, reply);
            }
            Op::FindNodes => {
                let reply = Reply::Nodes(self.zoo.seen_by(peer).nodes);
                self.send_to_client(request.link, request.xid, reply);
            }
            _ => self.between(peer, true, Message::Ask(request)),
        }
    }

    /// Watches again for a client on a new connection. A change since the client looked is told at
    /// once.
    pub fn watch_again(&mut self, link: LinkId, seen: usize) {
        let peer = self.links[link].peer;
        if self.zoo.seen_by(peer).master_at > seen {
            self.send_to_client(link, 0, Reply::MasterChanged);
        } else {
            self.links[link].is_watching = true;
        }
    }

    /// Takes a request at the leader.
    fn order(&mut self, peer: usize, request: Request) {
        let Request { link, xid, op } = request;
        let expires_ns = self.expiry_ns();
        match op {
            Op::Open => {
                let session = self.zoo.next_session;
                self.zoo.next_session += 1;
                self.zoo.sessions.insert(session, Held { expires_ns, peer });
                return self.commit(None, peer, Some((link, xid, Reply::Session(session))));
            }
            Op::Resume(session) => {
                let reply = match self.zoo.sessions.get_mut(&session) {
                    Some(held) => {
                        *held = Held { expires_ns, peer };
                        Reply::Resumed
                    }
                    None => Reply::Expired,
                };
                return self.between(peer, false, Message::Reply { link, xid, reply });
            }
            _ => {}
        }
        let Some(session) = self.links[link].session else { return };
        match self.zoo.sessions.get(&session) {
            // As far as the leader knows, the session has moved to another peer.
            Some(held) if held.peer != peer => self.break_link(link),
            Some(_) => {
                let server = self.links[link].server;
                let (state, reply) = self.execute(server, session, op);
                self.commit(state, peer, Some((link, xid, reply)));
                if op == Op::Close {
                    self.zoo.sessions.remove(&session);
                }
            }
            None => {
                let reply = Reply::Expired;
                self.between(peer, false, Message::Reply { link, xid, reply });
            }
        }
    }

    fn execute(&mut self, server: usize, session: Session, op: Op) -> (Option<State>, Reply) {
        let mut state = self.zoo.head().clone();
        let at = self.zoo.history.len();
        let has_bound = state.nodes == Nodes::Whole;
        let fits = |version: i32| has_bound && (version == -1 || version == state.bound.version);
        match op {
            Op::CreateMaster if state.master.is_some() => return (None, Reply::Exists),
            Op::CreateMaster => {
                let created_ns = self.now_ns;
                state.master = Some(MasterIs { server, owner: session, created_ns });
                state.master_at = at;
            }
            Op::CreateBackup if state.backups.contains_key(&server) => {
                return (None, Reply::Exists);
            }
            Op::CreateBackup => drop(state.backups.insert(server, session)),
            Op::DeleteBackup => drop(state.backups.remove(&server)),
            Op::ReadBound => return (None, Reply::Synced),
            Op::DeleteMaster => {
                state.master = None;
                state.master_at = at;
            }
            Op::SetBound { bound, version, needs_master } => {
                if !fits(version) || needs_master && state.master.is_none() {
                    return (None, Reply::Conflict);
                }
                state.bound = StoredBound { bound, version: state.bound.version + 1 };
                self.model.stored(bound);
                return (Some(state), Reply::Written(TRUE_MS + self.now_ns / MS));
            }
            Op::MakeCluster if has_bound => return (None, Reply::Exists),
            Op::MakeCluster => {
                self.model.makes_cluster(state.nodes == Nodes::None);
                state.nodes = Nodes::Whole;
                state.bound = StoredBound { bound: Timestamp(0), version: 0 };
            }
            Op::Release { bound, version } => {
                if !fits(version) || state.master.is_none() {
                    return (None, Reply::Conflict);
                }
                state.bound = StoredBound { bound, version: state.bound.version + 1 };
                state.master = None;
                state.master_at = at;
            }
            Op::Close => {
                self.zoo.without(&mut state, session);
            }
            Op::FindNodes | Op::Open | Op::Resume(_) | Op::Ping | Op::ReadMaster => {
                return (None, Reply::Done);
            }
        }
        (Some(state), Reply::Done)
    }

    fn commit(&mut self, state: Option<State>, peer: usize, reply: Option<(LinkId, u64, Reply)>) {
        if let Some(state) = state {
            let numbers = [state.bound.bound.0, state.bound.version as u64, 0, 0];
            self.trace.add(self.now_ns, "write", numbers);
            self.zoo.history.push(state);
        }
        let (low, high) = self.options.quorum_ns;
        let at_ns = (self.now_ns + self.network.range(low, high)).max(self.zoo.commit_floor_ns);
        self.zoo.commit_floor_ns = at_ns;
        self.zoo.commits.push_back((self.zoo.history.len() - 1, peer, reply));
        self.schedule(at_ns, Event::Commit { epoch: self.zoo.epoch });
    }

    pub fn committed(&mut self, epoch: u64) {
        if epoch != self.zoo.epoch {
            return;
        }
        if self.zoo.frozen_until_ns > self.now_ns {
            return self.schedule(self.zoo.frozen_until_ns, Event::Commit { epoch });
        }
        let (at, origin, reply) = self.zoo.commits.pop_front().expect("one event for each");
        for peer in 0..self.zoo.peers.len() {
            self.between(peer, false, Message::Commit(at));
        }
        if let Some((link, xid, reply)) = reply {
            self.between(origin, false, Message::Reply { link, xid, reply });
        }
    }

    /// Pings the followers. Runs twice in a tick.
    pub fn ping_peers(&mut self, epoch: u64) {
        if epoch != self.zoo.epoch {
            return;
        }
        if self.zoo.frozen_until_ns > self.now_ns {
            return self.schedule(self.zoo.frozen_until_ns, Event::PingPeers { epoch });
        }
        for peer in 0..self.zoo.peers.len() {
            if self.zoo.leader != Some(peer) {
                self.between(peer, false, Message::Ping);
            }
        }
        self.schedule(self.now_ns + self.options.ping_ms() * MS, Event::PingPeers { epoch });
    }

    /// Ends sessions that are over. Runs once in a tick.
    pub fn expire(&mut self, epoch: u64) {
        if epoch != self.zoo.epoch {
            return;
        }
        if self.zoo.frozen_until_ns > self.now_ns {
            return self.schedule(self.zoo.frozen_until_ns, Event::Expire { epoch });
        }
        let now_ns = self.now_ns;
        let over: Vec<Session> = self
            .zoo
            .sessions
            .iter()
            .filter(|(_, held)| held.expires_ns <= now_ns)
            .map(|(&session, _)| session)
            .collect();
        for session in over {
            self.trace.add(self.now_ns, "expired", [session as u64, 0, 0, 0]);
            self.zoo.sessions.remove(&session);
            let mut state = self.zoo.head().clone();
            if self.zoo.without(&mut state, session) {
                self.commit(Some(state), 0, None);
            }
            for link in 0..self.links.len() {
                let one = &self.links[link];
                if one.session == Some(session) && !self.zoo.peers[one.peer].is_cut {
                    self.break_link(link);
                }
            }
        }
        self.schedule(self.round_up_to_tick(self.now_ns), Event::Expire { epoch });
    }

    /// Deletes the master's node, as a person does by hand. Returns the server that owned it.
    pub fn delete_master(&mut self) -> Option<usize> {
        self.zoo.leader?;
        let mut state = self.zoo.head().clone();
        let server = state.master.take()?.server;
        state.master_at = self.zoo.history.len();
        self.commit(Some(state), 0, None);
        Some(server)
    }

    /// Writes the bound above its present value, as a person does by hand.
    pub fn write_bound_by_hand(&mut self, ahead_ms: u64) {
        let mut state = self.zoo.head().clone();
        if self.zoo.leader.is_none() || state.nodes != Nodes::Whole {
            return;
        }
        let bound = Timestamp(state.bound.bound.0 + (ahead_ms << COUNTER_BITS));
        state.bound = StoredBound { bound, version: state.bound.version + 1 };
        self.model.stored(bound);
        self.commit(Some(state), 0, None);
    }

    /// Deletes the bound's node, as a person does by hand. Returns whether it was there.
    pub fn delete_bound(&mut self) -> bool {
        let mut state = self.zoo.head().clone();
        if self.zoo.leader.is_none() || state.nodes != Nodes::Whole {
            return false;
        }
        state.nodes = Nodes::NoBound;
        self.commit(Some(state), 0, None);
        true
    }

    /// Makes the bound anew, above all that was stored, as an operator does.
    pub fn make_bound(&mut self) {
        let mut state = self.zoo.head().clone();
        if self.zoo.leader.is_none() {
            return self.schedule(self.now_ns + 100 * MS, Event::MakeBound);
        }
        if state.nodes == Nodes::NoBound {
            state.nodes = Nodes::Whole;
            state.bound = StoredBound { bound: self.model.highest(), version: 0 };
            self.commit(Some(state), 0, None);
        }
    }

    /// Cuts a peer off from the leader. The peer goes on answering for a while. If the peer is the
    /// leader, another leader is elected.
    pub fn cut_off(&mut self, peer: usize, answers_ms: u64, ms: u64) {
        if self.zoo.leader == Some(peer) {
            return self.change_leader(1_000, Some(answers_ms));
        }
        let cut = self.zoo.peers.iter().filter(|peer| peer.is_cut).count();
        let other = &mut self.zoo.peers[peer];
        if self.zoo.leader.is_none() || other.is_cut || cut + 1 > (self.options.peers - 1) / 2 {
            return;
        }
        other.is_cut = true;
        other.cut += 1;
        let cut = other.cut;
        self.trace.add(self.now_ns, "cut", [peer as u64, answers_ms, ms, 0]);
        self.schedule(self.now_ns + answers_ms * MS, Event::PeerDown { peer, cut });
        self.schedule(self.now_ns + ms.max(1) * MS, Event::PeerBack { peer, cut });
    }

    pub fn peer_down(&mut self, peer: usize, cut: u64) {
        if self.zoo.peers[peer].cut == cut && self.zoo.peers[peer].is_up {
            self.zoo.peers[peer].is_up = false;
            self.break_links_of(peer);
        }
    }

    pub fn peer_back(&mut self, peer: usize, cut: u64) {
        if self.zoo.peers[peer].cut != cut {
            return;
        }
        if self.zoo.leader.is_none() {
            return self.schedule(self.now_ns + 100 * MS, Event::PeerBack { peer, cut });
        }
        self.break_links_of(peer);
        self.join(peer);
    }

    fn join(&mut self, peer: usize) {
        let applied = self.zoo.history.len() - 1;
        let cut = self.zoo.peers[peer].cut + 1;
        self.zoo.peers[peer] = Peer { is_up: true, cut, applied, ..Peer::default() };
    }

    /// Removes the leader, so that another is elected. An old leader that was only cut off may go
    /// on answering.
    pub fn change_leader(&mut self, election_ms: u64, answers_ms: Option<u64>) {
        let Some(old) = self.zoo.leader.take() else { return };
        self.trace.add(self.now_ns, "election", [old as u64, election_ms, 0, 0]);
        self.zoo.epoch += 1;
        self.zoo.commits.clear();
        self.zoo.frozen_until_ns = 0;
        let answers_ms = answers_ms.filter(|_| self.options.peers > 1);
        for peer in 0..self.zoo.peers.len() {
            if peer != old || answers_ms.is_none() {
                let cut = self.zoo.peers[peer].cut;
                self.peer_down(peer, cut);
            }
        }
        if let Some(answers_ms) = answers_ms {
            let one = &mut self.zoo.peers[old];
            one.is_cut = true;
            one.cut += 1;
            let (peer, cut) = (old, one.cut);
            self.schedule(self.now_ns + answers_ms * MS, Event::PeerDown { peer, cut });
            self.schedule(self.now_ns + (answers_ms + 500) * MS, Event::PeerBack { peer, cut });
        }
        self.schedule(self.now_ns + election_ms * MS, Event::Elect { epoch: self.zoo.epoch });
    }

    /// Makes a new leader. Every session begins anew.
    pub fn elect(&mut self, epoch: u64) {
        if epoch != self.zoo.epoch || self.zoo.leader.is_some() {
            return;
        }
        let able: Vec<usize> =
            (0..self.zoo.peers.len()).filter(|&peer| !self.zoo.peers[peer].is_up).collect();
        if 2 * able.len() <= self.zoo.peers.len() {
            return self.schedule(self.now_ns + 100 * MS, Event::Elect { epoch });
        }
        self.zoo.leader = Some(self.network.pick(&able));
        self.zoo.commit_floor_ns = 0;
        for peer in able {
            self.join(peer);
        }
        let expires_ns = self.expiry_ns();
        for held in self.zoo.sessions.values_mut() {
            held.expires_ns = expires_ns;
        }
        self.schedule(self.now_ns + self.options.ping_ms() * MS, Event::PingPeers { epoch });
        self.schedule(self.round_up_to_tick(self.now_ns), Event::Expire { epoch });
    }

    fn break_links_of(&mut self, peer: usize) {
        for link in 0..self.links.len() {
            if self.links[link].peer == peer {
                self.break_link(link);
            }
        }
    }
}

impl Ensemble {
    /// Removes the nodes that a session owned. Returns whether there were any.
    fn without(&self, state: &mut State, session: Session) -> bool {
        let backups = state.backups.len();
        state.backups.retain(|_, owner| *owner != session);
        let is_master = state.master.is_some_and(|master| master.owner == session);
        if is_master {
            state.master = None;
            state.master_at = self.history.len();
        }
        is_master || state.backups.len() != backups
    }
}
