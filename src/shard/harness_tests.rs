//! Several shards that tell each other everything at once, for the tests of what ranks, masks and
//! lists do. Links and their faults are left to the simulator.

use std::sync::Arc;

use super::effects::{
    Answer, CallbackOutcome, Dialect, Event, Outbox, PeerTicket, Purpose, Request, Requester,
    Target, Ticket,
};
use super::journal::CatchUp;
use super::parts::questions::Questions;
use super::{Shard, ShardConfig, Stock};
use crate::base::ids::{NodeInstance, PeerIndex, ShardCount, ShardIndex, Slot, TimerId};
use crate::base::limits::{CallbackLimits, ClusterLimits};
use crate::base::time::{MonoNs, Now, TICK_NS, Tick, WallMs};
use crate::cluster::detector::Liveness;
use crate::cluster::view::{Membership, View};
use crate::store::wheel::Geometry;
use crate::timer::definition::{Definition, encode_content, encode_with_attributes};
use crate::wire::attributes::Attributes;
use crate::wire::peer_message::{PeerMessage, decode_message, decode_result};
use crate::wire::timer_json::Tag;

/// When a test begins.
pub const START_MS: u64 = 1_000_000;
/// The client that asks.
pub const FROM: Requester =
    Requester { shard: ShardIndex(0), connection: 0, generation: 0, request: 0 };

/// The peer's message whose result is waited for.
pub const TICKET: PeerTicket =
    PeerTicket { shard: ShardIndex(0), connection: 0, generation: 0, number: 0 };

/// A shard's configuration with room for everything; `node` makes its ids and versions differ.
pub fn config(view: Arc<View>, node: u8) -> ShardConfig {
    ShardConfig {
        own: ShardIndex(0),
        shards: ShardCount::new(1),
        instance: NodeInstance::new(node, 0),
        geometry: Geometry::TINY,
        authority_tables: 4,
        stock: Stock::none(),
        hash_seed: 5,
        records_max: 1_000_000,
        store_bytes_max: 1 << 40,
        pops_per_turn_max: 256,
        tags_max: 8,
        callbacks: CallbackLimits::default(),
        cluster: ClusterLimits::default(),
        view,
    }
}

/// A peer's message as a shard takes it. Returns the encoded result and the other effects.
pub fn tell(
    shard: &mut Shard,
    now: Now,
    from: Option<PeerIndex>,
    bytes: &[u8],
) -> (Vec<u8>, Outbox) {
    let message = decode_message(&mut &bytes[..]).expect("encoded by a shard");
    let mut outbox = Outbox::default();
    let event = Event::PeerMessage { ticket: TICKET, from, clock_offset_ns: 0, message };
    shard.handle(now, event, &mut outbox);
    let reply = outbox.peer_replies.pop().expect("every message is answered");
    (outbox.peer_bytes[reply.bytes].to_vec(), outbox)
}

/// The content of every timer.
pub fn content() -> Vec<u8> {
    let mut content = Vec::new();
    encode_content("/pop", &[Tag { kind: "CALL", count: 3 }], b"opaque", &mut content);
    content
}

/// The definition of a timer: seconds between pops, and seconds of recurrence.
pub fn definition(
    (interval_s, repeat_s): (u64, u64),
    factor: u8,
    content: &[u8],
) -> Definition<'_> {
    Definition {
        interval_ms: interval_s * 1_000,
        repeat_for_ms: repeat_s * 1_000,
        factor: Some(factor),
        authority: "host:80",
        content,
    }
}

/// A timer as a client names it.
pub fn target(id: TimerId, factor: u8) -> Target {
    Target { id, factor: Some(factor), filter: None }
}

/// A node, and its view.
pub struct Node {
    pub shard: Option<Shard>,
    pub view: Arc<View>,
    /// Most timers and tombstones of the node.
    pub records_max: u64,
    /// Most bytes of memory of the node.
    pub store_bytes_max: u64,
    /// How far the wall clock of the node is ahead.
    pub ahead_ms: u64,
}

impl Node {
    /// A node that is not started yet, with room for everything and the right time.
    pub fn seen_by(view: Arc<View>) -> Self {
        let (records_max, store_bytes_max) = (1_000_000, 1 << 40);
        Self { shard: None, view, records_max, store_bytes_max, ahead_ms: 0 }
    }
}

/// Nodes "a", "b", … that all know each other.
pub struct Cluster {
    pub names: Vec<String>,
    pub nodes: Vec<Node>,
    pub cuts: Vec<(usize, usize)>,
    /// A node that hears, and that no other node hears.
    pub mute: Option<usize>,
    /// What the mute node answered: the node that asked, the peer that answered, the purpose, the
    /// result.
    pub unheard: Vec<(usize, PeerIndex, Purpose, Vec<u8>)>,
    pub promotion: bool,
    pub now_ms: u64,
    /// Each pop: second after the start, node, sequence number.
    pub pops: Vec<(u64, usize, u64)>,
    pub answers: Vec<Answer>,
    pub outcome: fn(usize, u64) -> CallbackOutcome,
    /// A node whose callbacks get no answer until [`Cluster::answer_callbacks`].
    pub hung: Option<usize>,
    pub hanging: Vec<(usize, Ticket)>,
    /// Whether the callbacks of all nodes hang like that.
    pub all_hang: bool,
    /// Nodes that get no time.
    pub frozen: Vec<(usize, Shard)>,
}

impl Cluster {
    pub fn new(count: usize, promotion: bool) -> Self {
        let names: Vec<String> = (0..count).map(|node| format!("node-{node}:7253")).collect();
        let mut cluster = Self {
            nodes: Vec::new(),
            cuts: Vec::new(),
            mute: None,
            unheard: Vec::new(),
            promotion,
            now_ms: START_MS,
            pops: Vec::new(),
            answers: Vec::new(),
            outcome: |_, _| CallbackOutcome::Delivered,
            hung: None,
            hanging: Vec::new(),
            all_hang: false,
            frozen: Vec::new(),
            names,
        };
        for node in 0..count {
            let view = cluster.view_of(node, count, None);
            cluster.nodes.push(Node::seen_by(view));
            cluster.start(node);
        }
        for node in 0..count {
            cluster.meet(node);
        }
        // The shards have run for a while.
        for shard in cluster.nodes.iter_mut().filter_map(|node| node.shard.as_mut()) {
            shard.questions = Questions::default();
            shard.turns.held_until = Tick(0);
        }
        cluster
    }

    /// A timer of two of three nodes, due after 10 s. Returns also the nodes of the first and of
    /// the second rank.
    pub fn with_timer_of_two(id: TimerId) -> (Self, usize, usize) {
        let mut cluster = Self::new(3, true);
        let content = content();
        let target = Target { id, factor: Some(2), filter: None };
        let request = Request::Update(target, definition((10, 10), 2, &content));
        assert!(matches!(cluster.ask(0, request), Answer::Done { .. }));
        let list = cluster.list(id);
        (cluster, list[0], list[1])
    }

    pub fn view_of(&self, node: usize, members: usize, former: Option<&View>) -> Arc<View> {
        let membership = Membership {
            localhost: self.names[node].clone(),
            nodes: self.names[..members].to_vec(),
            ..Membership::default()
        };
        Arc::new(View::build(former, &membership).expect("a good configuration"))
    }

    pub fn now(&self) -> Now {
        Now { mono: MonoNs(self.now_ms * TICK_NS), wall: WallMs(self.now_ms) }
    }

    /// The clocks of a node.
    pub fn now_of(&self, node: usize) -> Now {
        let now = self.now();
        Now { wall: WallMs(now.wall.0 + self.nodes[node].ahead_ms), ..now }
    }

    pub fn shard(&mut self, node: usize) -> &mut Shard {
        self.nodes[node].shard.as_mut().expect("it runs")
    }

    pub fn start(&mut self, node: usize) {
        self.start_as(node, 0);
    }

    /// Starts a node as if it were a core of this number.
    pub fn start_as(&mut self, node: usize, own: u16) {
        let config = ShardConfig {
            own: ShardIndex(own),
            shards: ShardCount::new(own + 1),
            records_max: self.nodes[node].records_max,
            store_bytes_max: self.nodes[node].store_bytes_max,
            cluster: ClusterLimits { promotion: self.promotion, ..ClusterLimits::default() },
            ..config(self.nodes[node].view.clone(), node as u8)
        };
        self.nodes[node].shard = Some(Shard::new(config, self.now_of(node)));
    }

    pub fn is_up(&self, a: usize, b: usize) -> bool {
        let is_cut = self.cuts.iter().any(|&cut| cut == (a, b) || cut == (b, a));
        self.nodes[a].shard.is_some() && self.nodes[b].shard.is_some() && !is_cut
    }

    pub fn peer(&self, at: usize, node: usize) -> Option<PeerIndex> {
        self.nodes[at].view.node_named(&self.names[node])
    }

    /// All other nodes believe what is true of a node, and the node believes what is true of them.
    pub fn meet(&mut self, node: usize) {
        for other in 0..self.nodes.len() {
            if other == node {
                continue;
            }
            let liveness = if self.is_up(node, other) { Liveness::Alive } else { Liveness::Dead };
            for (at, about) in [(node, other), (other, node)] {
                let Some(peer) = self.peer(at, about) else { continue };
                let has_gaps = liveness == Liveness::Alive;
                let event = Event::Peer { peer, liveness, dialect: Dialect::Frames, has_gaps };
                self.handle(at, event);
            }
        }
    }

    pub fn kill(&mut self, node: usize) {
        self.nodes[node].shard = None;
        self.meet(node);
    }

    pub fn return_empty(&mut self, node: usize) {
        self.start(node);
        self.meet(node);
    }

    /// What a node holds, as its journal has it.
    pub fn held(&mut self, node: usize) -> Vec<Vec<u8>> {
        let shard = self.shard(node);
        let slots = (0..shard.records.slots()).map(Slot);
        let slots = slots.filter(|slot| shard.records.contains(*slot));
        let copy = |slot| {
            let (mut bytes, mut room) = (Vec::new(), Vec::new());
            let copy = shard.copy_of(shard.records.get(slot), &mut room);
            PeerMessage::Copy(copy).encode(&mut bytes);
            bytes
        };
        slots.map(copy).collect()
    }

    /// Starts a node that was killed with what its journal has. It has met nobody yet.
    pub fn return_with(&mut self, node: usize, held: &[Vec<u8>]) {
        self.start(node);
        let now = self.now_of(node);
        for bytes in held {
            tell(self.shard(node), now, None, bytes);
        }
        let catch_up = CatchUp { pops_per_s: 1_000, is_each: false };
        self.shard(node).end_restore(now, &catch_up, &mut Default::default());
    }

    pub fn cut(&mut self, a: usize, b: usize, is_cut: bool) {
        self.cuts.retain(|&cut| cut != (a, b));
        if is_cut {
            self.cuts.push((a, b));
        }
        self.meet(a);
    }

    pub fn handle(&mut self, node: usize, event: Event<'_>) {
        let now = self.now_of(node);
        let mut outbox = Outbox::default();
        let Some(shard) = self.nodes[node].shard.as_mut() else { return };
        shard.handle(now, event, &mut outbox);
        self.deliver(node, outbox);
    }

    pub fn tick(&mut self, node: usize) {
        let now = self.now_of(node);
        let mut outbox = Outbox::default();
        let Some(shard) = self.nodes[node].shard.as_mut() else { return };
        shard.tick(now, &mut outbox);
        self.deliver(node, outbox);
    }

    pub fn deliver(&mut self, node: usize, outbox: Outbox) {
        self.answers.extend(outbox.replies.into_iter().map(|reply| reply.answer));
        for message in outbox.to_peers {
            let name = self.nodes[node].view.name_of(message.peer).to_owned();
            let to = self.names.iter().position(|known| *known == name).expect("a member");
            let bytes = &outbox.peer_bytes[message.bytes];
            if !self.is_up(node, to) || self.mute == Some(node) {
                let (peer, purpose) = (message.peer, message.purpose);
                self.handle(node, Event::PeerUnheard { peer, purpose });
                continue;
            }
            let (now, from) = (self.now_of(to), self.peer(to, node));
            let (result, replies) = tell(self.shard(to), now, from, bytes);
            self.deliver(to, replies);
            let (peer, purpose) = (message.peer, message.purpose);
            if self.mute == Some(to) {
                self.unheard.push((node, peer, purpose, result));
                continue;
            }
            let result = decode_result(&mut &result[..]).expect("encoded by a shard");
            self.handle(node, Event::PeerResult { peer, purpose, result });
        }
        for attempt in outbox.attempts {
            let second = (self.now_ms - START_MS) / 1_000;
            let sequence = attempt.ticket.sequence;
            self.pops.push((second, node, sequence));
            if self.all_hang || self.hung == Some(node) {
                self.hanging.push((node, attempt.ticket));
                continue;
            }
            let outcome = (self.outcome)(node, sequence);
            self.handle(node, Event::CallbackFinished { ticket: attempt.ticket, outcome });
        }
    }

    /// Ends the callbacks that hang.
    pub fn answer_callbacks(&mut self, outcome: CallbackOutcome) {
        self.hung = None;
        for (node, ticket) in std::mem::take(&mut self.hanging) {
            self.handle(node, Event::CallbackFinished { ticket, outcome });
        }
    }

    /// A node gets no time from now on; the others believe it dead.
    pub fn freeze(&mut self, node: usize) {
        let shard = self.nodes[node].shard.take().expect("it is up");
        self.frozen.push((node, shard));
        self.meet(node);
    }

    /// The node goes on. It believes of the others what it believed before.
    pub fn thaw(&mut self, node: usize) {
        let place = self.frozen.iter().position(|(frozen, _)| *frozen == node);
        let (_, shard) = self.frozen.remove(place.expect("it is frozen"));
        self.nodes[node].shard = Some(shard);
    }

    /// A node believes something of another.
    pub fn believe(&mut self, at: usize, about: usize, liveness: Liveness) {
        let peer = self.peer(at, about).expect("a member");
        let dialect = Dialect::Frames;
        self.handle(at, Event::Peer { peer, liveness, dialect, has_gaps: false });
    }

    /// All nodes believe the mute node dead, or (`is_heard`) hear it after all.
    pub fn end_of_silence(&mut self, is_heard: bool) {
        let mute = self.mute.expect("a node is mute");
        if is_heard {
            self.mute = None;
        }
        for at in (0..self.nodes.len()).filter(|at| *at != mute).collect::<Vec<_>>() {
            let liveness = if is_heard { Liveness::Alive } else { Liveness::Dead };
            self.believe(at, mute, liveness);
        }
        for (at, peer, purpose, result) in std::mem::take(&mut self.unheard) {
            let result = decode_result(&mut &result[..]).expect("encoded by a shard");
            let event = match is_heard {
                true => Event::PeerResult { peer, purpose, result },
                false => Event::PeerUnheard { peer, purpose },
            };
            self.handle(at, event);
        }
    }

    pub fn run_until(&mut self, second: u64) {
        while self.now_ms < START_MS + second * 1_000 {
            self.now_ms += 100;
            for node in 0..self.nodes.len() {
                self.tick(node);
            }
        }
    }

    pub fn ask(&mut self, node: usize, request: Request<'_>) -> Answer {
        self.handle(node, Event::Request { from: FROM, request });
        self.answers.pop().expect("answered at once, for everybody answers at once")
    }

    /// A client writes a timer of a known id: seconds between pops, and seconds of recurrence.
    pub fn put(&mut self, node: usize, id: TimerId, seconds: (u64, u64), factor: u8) {
        let content = content();
        let request = Request::Update(target(id, factor), definition(seconds, factor, &content));
        let answer = self.ask(node, request);
        assert!(matches!(answer, Answer::Done { .. }), "{answer:?}");
    }

    /// The wall clock of a node.
    pub fn wall_ms(&self, node: usize) -> u64 {
        self.now_of(node).wall.0
    }

    /// Milliseconds since the start.
    pub fn passed_ms(&self) -> u64 {
        self.now_ms - START_MS
    }

    /// The first node gets no time until so many milliseconds have passed since the start.
    pub fn skip_to(&mut self, ms: u64) {
        self.now_ms = START_MS + ms;
    }

    /// Ticks every millisecond of the first node, until so many have passed since the start.
    pub fn pass_to(&mut self, ms: u64) {
        while self.now_ms < START_MS + ms {
            self.now_ms += 1;
            self.tick(0);
        }
    }

    pub fn create(&mut self, node: usize, seconds: (u64, u64), factor: u8) -> TimerId {
        self.create_at(node, "host:80", seconds, factor)
    }

    /// Creates a timer that names a host.
    pub fn create_at(
        &mut self,
        node: usize,
        authority: &str,
        seconds: (u64, u64),
        factor: u8,
    ) -> TimerId {
        let content = content();
        let definition = Definition { authority, ..definition(seconds, factor, &content) };
        match self.ask(node, Request::Create(definition)) {
            Answer::Done { id, .. } => id,
            other => panic!("{other:?}"),
        }
    }

    /// A timer with attributes.
    pub fn create_with(
        &mut self,
        node: usize,
        seconds: (u64, u64),
        factor: u8,
        attributes: &Attributes<'_>,
    ) -> TimerId {
        self.create_as(node, (seconds.0 * 1_000, seconds.1 * 1_000), factor, attributes)
    }

    /// A timer with attributes that pops once, after so many milliseconds.
    pub fn create_ms(
        &mut self,
        node: usize,
        interval_ms: u64,
        factor: u8,
        attributes: &Attributes<'_>,
    ) -> TimerId {
        self.create_as(node, (interval_ms, interval_ms), factor, attributes)
    }

    /// A timer with attributes: milliseconds between pops, and of recurrence.
    pub fn create_lasting(
        &mut self,
        node: usize,
        ms: (u64, u64),
        factor: u8,
        attributes: &Attributes<'_>,
    ) -> TimerId {
        self.create_as(node, ms, factor, attributes)
    }

    fn create_as(
        &mut self,
        node: usize,
        (interval_ms, repeat_for_ms): (u64, u64),
        factor: u8,
        attributes: &Attributes<'_>,
    ) -> TimerId {
        let (mut encoded, mut content) = (Vec::new(), Vec::new());
        attributes.write(&mut encoded);
        encode_with_attributes("/pop", &[], (&encoded, b"opaque"), &mut content);
        let plain = definition((1, 1), factor, &content);
        let definition = Definition { interval_ms, repeat_for_ms, ..plain };
        match self.ask(node, Request::Create(definition)) {
            Answer::Done { id, .. } => id,
            other => panic!("{other:?}"),
        }
    }

    /// The nodes that hold a live timer, by rank.
    pub fn list(&self, id: TimerId) -> Vec<usize> {
        let view = &self.nodes[0].view;
        let replicas = view.place(id, 3, view.new_nodes());
        let name = |node| view.name_of(view.peer_of(node).expect("a member"));
        let nodes = replicas.as_slice().iter().map(|&node| name(node).to_owned());
        nodes.map(|name| self.names.iter().position(|n| *n == name).expect("known")).collect()
    }

    pub fn holders(&self, id: TimerId) -> Vec<usize> {
        let holds = |node: &Node| {
            let shard = node.shard.as_ref()?;
            shard.find(id).map(|slot| shard.records.get(slot).is_live())
        };
        (0..self.nodes.len()).filter(|&node| holds(&self.nodes[node]) == Some(true)).collect()
    }

    /// What the tag of every timer counts, over all nodes.
    pub fn calls(&self) -> u64 {
        let shards = self.nodes.iter().filter_map(|node| node.shard.as_ref());
        shards.map(|shard| shard.records.tags().present("CALL")).sum()
    }

    pub fn audit(&self) {
        for node in &self.nodes {
            node.shard.iter().for_each(|shard| shard.audit().expect("all parts agree"));
        }
    }
}
