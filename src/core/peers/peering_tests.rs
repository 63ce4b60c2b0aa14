//! Cores that talk to each other over a network in memory: what connections, incarnations, meshes
//! and full links do. The shard's tests and the simulator test what becomes of the timers.

use std::sync::Arc;

use crate::base::ids::{NodeInstance, PeerIndex, ShardCount, ShardIndex, TimerId};
use crate::base::limits::{CallbackLimits, ClusterLimits};
use crate::base::time::{MonoNs, Now, TICK_NS, WallMs};
use crate::cluster::view::{Membership, View};
use crate::core::Core;
use crate::core::mesh::mesh;
use crate::core::peers::actions::{InboundId, PeerAction, PeerError, STALE};
use crate::core::peers::hello::{Connected, Hello, HelloRefusal, Identity};
use crate::shard::effects::{Answer, Dialect, Refusal, Reply, Request, Requester, Target};
use crate::shard::{ShardConfig, Stock};
use crate::store::wheel::Geometry;
use crate::timer::definition::{Definition, encode_content};
use crate::wire::peer_frame::{FrameKind, PROTOCOL_VERSION, begin_frame, end_frame};

const START_MS: u64 = 1_000_000;

/// A network of nodes, by their places. `None`: the node does not run.
struct Network {
    now_ms: u64,
    limits: ClusterLimits,
    nodes: Vec<Option<Vec<Core>>>,
    incarnations: Vec<u64>,
    connections: Vec<Connection>,
    /// Pairs of nodes between which nothing travels.
    cuts: Vec<(usize, usize)>,
    /// Nodes that get no time. Their machines take dials.
    frozen: Vec<usize>,
    /// Counts accepted connections, so that the cores of a node accept by turns.
    accepting: usize,
    replies: Vec<Reply>,
    /// For each node, how far its wall clock is ahead in ms.
    ahead_ms: Vec<u64>,
    /// After this many milliseconds timers pop, once.
    interval_ms: u64,
}

struct Connection {
    dialler: (usize, usize, PeerIndex),
    acceptor: (usize, usize, InboundId),
    to_dialler: Vec<u8>,
    to_acceptor: Vec<u8>,
}

fn name(node: usize) -> String {
    format!("10.0.0.{}:7253", node + 1)
}

fn view(node: usize, members: usize, former: Option<&View>) -> Arc<View> {
    let membership = Membership {
        localhost: name(node),
        nodes: (0..members).map(name).collect(),
        ..Membership::default()
    };
    Arc::new(View::build(former, &membership).expect("a good configuration"))
}

impl Network {
    /// One node for each entry of `shards`, with that many cores.
    fn new(shards: &[u16]) -> Self {
        Self::with_limits(shards, ClusterLimits::default())
    }

    fn with_limits(shards: &[u16], limits: ClusterLimits) -> Self {
        let mut network = Self {
            now_ms: START_MS,
            limits,
            nodes: shards.iter().map(|_| None).collect(),
            incarnations: vec![0; shards.len()],
            connections: Vec::new(),
            cuts: Vec::new(),
            frozen: Vec::new(),
            accepting: 0,
            replies: Vec::new(),
            ahead_ms: vec![0; shards.len()],
            interval_ms: 1_000_000,
        };
        for (node, count) in shards.iter().enumerate() {
            network.start(node, *count);
        }
        network
    }

    fn now(&self) -> Now {
        Now { mono: MonoNs(self.now_ms * TICK_NS), wall: WallMs(self.now_ms) }
    }

    fn now_of(&self, node: usize) -> Now {
        let now = self.now();
        Now { wall: WallMs(now.wall.0 + self.ahead_ms[node]), ..now }
    }

    fn start(&mut self, node: usize, shards: u16) {
        self.start_with(node, shards, view(node, self.nodes.len(), None));
    }

    fn start_with(&mut self, node: usize, shards: u16, view: Arc<View>) {
        self.incarnations[node] += 1;
        let shards = ShardCount::new(shards);
        let core = |(own, port)| {
            let config = ShardConfig {
                own: ShardIndex(own as u16),
                shards,
                instance: NodeInstance::new(node as u8, 0),
                geometry: Geometry::TINY,
                authority_tables: 4,
                stock: Stock::none(),
                hash_seed: 5,
                records_max: 1_000_000,
                store_bytes_max: 1 << 40,
                pops_per_turn_max: 256,
                tags_max: 8,
                callbacks: CallbackLimits::default(),
                cluster: self.limits.clone(),
                view: view.clone(),
            };
            let incarnation = (node as u64) << 32 | self.incarnations[node];
            let identity = Identity { incarnation, ..Identity::default() };
            Core::with_identity(config, port, identity, self.now())
        };
        let cores = mesh(shards, 64).into_iter().enumerate().map(core).collect();
        self.nodes[node] = Some(cores);
    }

    /// Ends the process of a node. The kernels tell the other nodes.
    fn kill(&mut self, node: usize) {
        self.nodes[node] = None;
        let now = self.now();
        for at in (0..self.connections.len()).rev() {
            let (dialler, acceptor) = (self.connections[at].dialler, self.connections[at].acceptor);
            if dialler.0 != node && acceptor.0 != node {
                continue;
            }
            self.connections.swap_remove(at);
            if dialler.0 != node {
                self.core(dialler.0, dialler.1).peer_lost(now, dialler.2);
            }
            if acceptor.0 != node {
                self.core(acceptor.0, acceptor.1).inbound_closed(acceptor.2);
            }
        }
    }

    fn core(&mut self, node: usize, core: usize) -> &mut Core {
        &mut self.nodes[node].as_mut().expect("it runs")[core]
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cuts.contains(&(a, b)) || self.cuts.contains(&(b, a))
    }

    /// Lets `ms` milliseconds pass, with turns of every core in each.
    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_ms += 1;
            // Twice, so that an answer arrives in the millisecond of its message.
            for _ in 0..2 {
                self.turn();
                self.deliver();
            }
        }
    }

    fn turn(&mut self) {
        for node in 0..self.nodes.len() {
            if self.frozen.contains(&node) {
                continue;
            }
            let now = self.now_of(node);
            let count = self.nodes[node].as_ref().map_or(0, Vec::len);
            for at in 0..count {
                let (mut actions, mut replies) = (Vec::new(), Vec::new());
                let core = self.core(node, at);
                core.inbox(now);
                core.tick(now);
                core.peers(now, &mut actions);
                core.replies(&mut replies);
                while core.mesh().next_wake().is_some() {}
                self.replies.append(&mut replies);
                for action in actions {
                    self.act(node, at, action);
                }
            }
        }
    }

    fn act(&mut self, node: usize, core: usize, action: PeerAction) {
        let now = self.now_of(node);
        match action {
            PeerAction::Dial(peer) => self.dial(node, core, peer),
            PeerAction::Close(peer) => {
                let is_meant = |it: &Connection| it.dialler == (node, core, peer);
                self.close(is_meant, true);
            }
            PeerAction::CloseInbound(inbound) => {
                let is_meant = |it: &Connection| it.acceptor == (node, core, inbound);
                self.close(is_meant, false);
            }
            PeerAction::Send(peer) => {
                let mut out = Vec::new();
                self.core(node, core).peer_output(now, peer, &mut out);
                let mut all = self.connections.iter_mut();
                if let Some(it) = all.find(|it| it.dialler == (node, core, peer)) {
                    it.to_acceptor.append(&mut out);
                }
            }
            PeerAction::SendInbound(inbound) => {
                let mut out = Vec::new();
                self.core(node, core).inbound_output(now, inbound, &mut out);
                let mut all = self.connections.iter_mut();
                if let Some(it) = all.find(|it| it.acceptor == (node, core, inbound)) {
                    it.to_dialler.append(&mut out);
                }
            }
        }
    }

    /// Closes a connection from one end. The other end is told unless the network is cut.
    fn close(&mut self, is_meant: impl Fn(&Connection) -> bool, by_dialler: bool) {
        let Some(at) = self.connections.iter().position(is_meant) else { return };
        let Connection { dialler, acceptor, .. } = self.connections.swap_remove(at);
        let now = self.now();
        let told = if by_dialler { acceptor.0 } else { dialler.0 };
        if self.is_cut(dialler.0, acceptor.0) || self.frozen.contains(&told) {
            return;
        }
        if by_dialler {
            self.core(acceptor.0, acceptor.1).inbound_closed(acceptor.2);
        } else {
            self.core(dialler.0, dialler.1).peer_lost(now, dialler.2);
        }
    }

    fn dial(&mut self, node: usize, core: usize, peer: PeerIndex) {
        let now = self.now();
        let wanted = self.core(node, core).view().name_of(peer).to_owned();
        let other = (0..self.nodes.len()).find(|other| name(*other) == wanted).expect("known");
        let hello = self.core(node, core).hello();
        let Some(count) = self.nodes[other].as_ref().map(Vec::len) else {
            return self.core(node, core).peer_lost(now, peer);
        };
        if self.is_cut(node, other) {
            // No node answers, and the core gives up by itself.
            return;
        }
        self.core(node, core).peer_taken(peer);
        if self.frozen.contains(&other) {
            return;
        }
        self.accepting += 1;
        let accepting = self.accepting % count;
        match self.core(other, accepting).inbound_opened(now, &hello) {
            Ok(inbound) => {
                let hello = Some(self.core(other, accepting).hello());
                self.connections.push(Connection {
                    dialler: (node, core, peer),
                    acceptor: (other, accepting, inbound),
                    to_dialler: Vec::new(),
                    to_acceptor: Vec::new(),
                });
                let connected = Connected { dialect: Dialect::Frames, hello };
                self.core(node, core).peer_connected(now, peer, &connected);
            }
            Err(HelloRefusal::Twins(_) | HelloRefusal::Stranger(..)) => {
                self.core(node, core).peer_disowns(now, peer);
            }
            Err(_) => self.core(node, core).peer_lost(now, peer),
        }
    }

    fn deliver(&mut self) {
        for at in (0..self.connections.len()).rev() {
            let (dialler, acceptor) = (self.connections[at].dialler, self.connections[at].acceptor);
            if self.is_cut(dialler.0, acceptor.0) {
                // The bytes stay and go later, as with TCP.
                continue;
            }
            let connection = &mut self.connections[at];
            let (mut to_dialler, mut to_acceptor) = (Vec::new(), Vec::new());
            if !self.frozen.contains(&dialler.0) {
                to_dialler.append(&mut connection.to_dialler);
            }
            if !self.frozen.contains(&acceptor.0) {
                to_acceptor.append(&mut connection.to_acceptor);
            }
            if !to_acceptor.is_empty() {
                let now = self.now_of(acceptor.0);
                let core = self.core(acceptor.0, acceptor.1);
                if let Err(stale) = core.inbound_received(now, acceptor.2, &to_acceptor) {
                    self.close_stale(at, &stale);
                    continue;
                }
            }
            if !to_dialler.is_empty() {
                let now = self.now_of(dialler.0);
                let core = self.core(dialler.0, dialler.1);
                if let Err(stale) = core.peer_received(now, dialler.2, &to_dialler) {
                    self.close_stale(at, &stale);
                }
            }
        }
    }

    fn close_stale(&mut self, at: usize, stale: &PeerError) {
        assert_eq!(stale.to_string(), STALE.to_string(), "frames");
        let Connection { dialler, acceptor, .. } = self.connections.swap_remove(at);
        let now = self.now();
        self.core(dialler.0, dialler.1).peer_lost(now, dialler.2);
        self.core(acceptor.0, acceptor.1).inbound_closed(acceptor.2);
    }

    /// A client's POST. The reply comes into `replies`.
    fn create(&mut self, node: usize, core: usize, factor: u8, opaque: &[u8]) {
        let mut content = Vec::new();
        encode_content("/", &[], opaque, &mut content);
        let definition = Definition {
            interval_ms: self.interval_ms,
            repeat_for_ms: self.interval_ms,
            factor: Some(factor),
            authority: "127.0.0.1:1",
            content: &content,
        };
        let shard = ShardIndex(core as u16);
        let from = Requester { shard, connection: 0, generation: 0, request: 0 };
        let now = self.now_of(node);
        self.core(node, core).request(now, from, Request::Create(definition));
    }

    fn timers(&self, node: usize) -> u64 {
        let cores = self.nodes[node].iter().flatten();
        cores.map(|core| core.shard().counters().timers).sum()
    }

    fn believed(&mut self, node: usize) -> [u64; 3] {
        let mut count = [0; 3];
        for (_, liveness, _) in self.core(node, 0).peers_believed() {
            count[liveness as usize] += 1;
        }
        count
    }

    fn done(&mut self) -> usize {
        let is_done = |reply: &Reply| matches!(reply.answer, Answer::Done { .. });
        std::mem::take(&mut self.replies).iter().filter(|reply| is_done(reply)).count()
    }
}

fn hello(name: &str, incarnation: u64) -> Hello {
    Hello {
        name: name.to_owned(),
        instance: 77,
        incarnation,
        view_id: 0,
        shard: 0,
        shards: 1,
        complete_since: None,
        site: None,
    }
}

#[test]
fn a_write_is_answered_when_the_other_node_has_it() {
    let mut network = Network::new(&[1, 1]);
    network.run(10);
    assert_eq!(network.believed(0), [1, 0, 0]);
    for _ in 0..100 {
        network.create(0, 0, 2, b"x");
    }
    assert_eq!(network.done(), 0, "nobody else has it yet");
    network.run(2);
    assert_eq!(network.done(), 100);
    assert_eq!((network.timers(0), network.timers(1)), (100, 100));
    assert!(network.core(0, 0).peers_settled());
}

#[test]
fn messages_reach_the_core_that_owns_their_timers() {
    let mut network = Network::new(&[3, 2]);
    network.run(20);
    for at in 0..300 {
        network.create(0, at % 3, 2, b"x");
        network.create(1, at % 2, 2, b"x");
    }
    network.run(10);
    assert_eq!(network.done(), 600);
    assert_eq!((network.timers(0), network.timers(1)), (600, 600));
    for (node, cores) in [(0, 3), (1, 2)] {
        for core in 0..cores {
            let held = network.core(node, core).shard().counters().timers;
            assert!(held > 100, "core {core} of node {node} holds {held}");
        }
    }
}

#[test]
fn a_node_that_returns_empty_is_offered_everything() {
    let mut network = Network::new(&[2, 2]);
    network.run(20);
    for at in 0..200 {
        network.create(0, at % 2, 2, b"x");
    }
    network.run(5);
    assert_eq!(network.done(), 200);
    network.kill(1);
    network.run(2);
    assert_eq!(network.believed(0), [0, 1, 0], "its connection broke");
    network.run(3_100);
    assert_eq!(network.believed(0), [0, 0, 1]);
    network.start(1, 2);
    network.run(2_000);
    assert_eq!(network.believed(0), [1, 0, 0]);
    assert_eq!(network.timers(1), 200);
}

#[test]
fn silence_is_noticed_on_both_sides_and_forgiven() {
    let mut network = Network::new(&[1, 1]);
    network.run(100);
    network.cuts.push((0, 1));
    network.run(1_100);
    assert_eq!(network.believed(0), [0, 1, 0], "suspected within a second");
    network.run(2_200);
    assert_eq!(network.believed(0), [0, 0, 1], "dead within three");
    assert_eq!(network.core(0, 0).inbounds_open(), 0, "and not listened to any more");
    network.create(0, 0, 2, b"x");
    network.cuts.clear();
    network.run(2_000);
    assert_eq!(network.believed(0), [1, 0, 0]);
    assert_eq!(network.timers(1), 1, "told what it missed");
}

#[test]
fn what_does_not_fit_the_link_is_offered_when_there_is_room() {
    let limits = ClusterLimits { link_bytes_max: 64 << 10, ..ClusterLimits::default() };
    let mut network = Network::with_limits(&[1, 1], limits);
    network.run(100);
    network.cuts.push((0, 1));
    // Node 1 counts as alive, and nothing comes back from it.
    for _ in 0..200 {
        network.create(0, 0, 2, &[7; 1_000]);
    }
    network.run(1);
    assert!(network.core(0, 0).peer_counters().messages_dropped > 100);
    network.cuts.clear();
    network.run(5_000);
    assert_eq!(network.timers(1), 200);
}

#[test]
fn twins_and_strangers_are_refused() {
    let mut network = Network::new(&[1, 1]);
    network.run(100);
    let now = network.now();
    let refused = |network: &mut Network, name: &str, incarnation| {
        network.core(0, 0).inbound_opened(now, &hello(name, incarnation)).err()
    };
    let stranger = refused(&mut network, "10.9.9.9:7253", 5);
    assert!(matches!(stranger, Some(HelloRefusal::Stranger(..))));
    let ourselves = refused(&mut network, &name(0), 5);
    assert_eq!(ourselves, Some(HelloRefusal::Twins(name(0))));
    let twin = refused(&mut network, &name(1), 5);
    assert_eq!(twin, Some(HelloRefusal::Twins(name(1))), "the other one is heard");
    assert_eq!(refused(&mut network, &name(1), 1 << 32 | 1), None, "it is that one");
    let counters = network.core(0, 0).peer_counters();
    assert_eq!((counters.strangers, counters.twins), (1, 2));
    network.kill(1);
    network.core(0, 0).inbound_closed(InboundId { place: 1, generation: 0 });
    assert_eq!(refused(&mut network, &name(1), 5), None, "the other one is gone");
}

#[test]
fn who_answers_at_the_address_of_a_node_is_that_node() {
    let mut network = Network::new(&[1, 1]);
    let now = network.now();
    let core = network.core(0, 0);
    let mut actions = Vec::new();
    core.peers(now, &mut actions);
    let peer = core.view().node_named(&name(1)).expect("a member");
    let twin = core.inbound_opened(now, &hello(&name(1), 5)).expect("nobody else is heard");
    let connected = Connected { dialect: Dialect::Frames, hello: Some(hello(&name(1), 6)) };
    core.peer_connected(now, peer, &connected);
    actions.clear();
    core.peers(now, &mut actions);
    assert!(actions.contains(&PeerAction::CloseInbound(twin)), "{actions:?}");
    let again = core.inbound_opened(now, &hello(&name(1), 5));
    assert_eq!(again, Err(HelloRefusal::Twins(name(1))));
    assert!(core.inbound_opened(now, &hello(&name(1), 6)).is_ok());
}

/// A write that this process took would be in its memory alone, and lost when the operator stops
/// it.
#[test]
fn a_process_that_is_refused_as_a_twin_takes_no_writes() {
    let mut network = Network::new(&[1, 1, 1]);
    let refuses = |network: &mut Network| {
        network.create(0, 0, 3, b"x");
        let mut replies = Vec::new();
        network.core(0, 0).replies(&mut replies);
        replies.iter().any(|reply| reply.answer == Answer::Refused(Refusal::Twin))
    };
    let now = network.now();
    let mut actions = Vec::new();
    network.core(0, 0).peers(now, &mut actions);
    let peers = [1, 2].map(|node| network.core(0, 0).view().node_named(&name(node)).expect("one"));
    assert_eq!(actions, peers.map(PeerAction::Dial));
    assert!(!refuses(&mut network), "nobody has said anything");
    assert!(network.core(0, 0).speaks_for_site().is_ok());
    network.core(0, 0).peer_disowns(now, peers[0]);
    assert!(refuses(&mut network), "nobody else believes it");
    let outside = network.core(0, 0).speaks_for_site();
    assert!(outside.is_err_and(|reason| reason.contains("no member")), "it hands over to nobody");
    let connected = Connected { dialect: Dialect::Frames, hello: Some(hello(&name(2), 6)) };
    network.core(0, 0).peer_connected(now, peers[1], &connected);
    assert!(!refuses(&mut network), "one takes it for the node");
    assert!(network.core(0, 0).speaks_for_site().is_ok());
    network.core(0, 0).peer_lost(now, peers[1]);
    assert!(refuses(&mut network));
    network.now_ms += 1_000;
    let now = network.now();
    network.core(0, 0).peers(now, &mut actions);
    network.core(0, 0).peer_lost(now, peers[0]);
    assert!(!refuses(&mut network), "the one that refused is gone: alone like any other");
}

/// The view of a node while node `joining` joins the first `members` nodes.
fn view_joining(node: usize, members: usize, joining: usize, former: &View) -> Arc<View> {
    let membership = Membership {
        localhost: name(node),
        nodes: (0..members).map(name).collect(),
        joining: vec![name(joining)],
        ..Membership::default()
    };
    Arc::new(View::build(Some(former), &membership).expect("a good configuration"))
}

fn set_view(network: &mut Network, node: usize, next: impl Fn(&View) -> Arc<View>) {
    let (now, next) = (network.now(), next(network.core(node, 0).view()));
    network.core(node, 0).set_view(now, next);
}

/// Such a node must not answer 200 to a write that it alone would keep.
#[test]
fn a_node_that_was_taken_out_of_its_cluster_takes_no_requests() {
    let mut network = Network::new(&[1, 1, 1]);
    network.run(100);
    let out = |former: &View| {
        let membership = Membership { localhost: name(2), ..Membership::default() };
        Arc::new(View::build(Some(former), &membership).expect("no members"))
    };
    let from = Requester { shard: ShardIndex(0), connection: 0, generation: 0, request: 0 };
    let target = Target { id: TimerId(7), factor: Some(2), filter: None };
    for _ in 0..2 {
        set_view(&mut network, 2, out);
        let now = network.now();
        let core = network.core(2, 0);
        core.request(now, from, Request::Delete(target));
        core.request(now, from, Request::Read(target));
        network.create(2, 0, 2, b"x");
        let mut replies = Vec::new();
        network.core(2, 0).replies(&mut replies);
        let answers: Vec<_> = replies.into_iter().map(|reply| reply.answer).collect();
        assert_eq!(answers, vec![Answer::Refused(Refusal::HasLeft); 3], "read again, the same");
    }
    set_view(&mut network, 2, |former| view(2, 3, Some(former)));
    network.run(2_000);
    assert!(!matches!(answer_at_once(&mut network, 2), Some(Answer::Refused(_))), "a member again");
}

#[test]
fn a_node_that_never_had_other_members_takes_writes() {
    let mut network = Network::new(&[1]);
    set_view(&mut network, 0, |former| view(0, 1, Some(former)));
    assert!(matches!(answer_at_once(&mut network, 0), Some(Answer::Done { .. })));
}

/// A GET through a member that does not know the joining node answers 404 for what is written
/// through the joining node.
#[test]
fn a_node_that_joins_takes_writes_when_all_members_know_it() {
    let refused = Some(Answer::Refused(Refusal::Joining));
    let mut network = Network::new(&[1, 1, 1]);
    for node in 0..2 {
        set_view(&mut network, node, |former| view(node, 2, Some(former)));
    }
    network.run(100);
    set_view(&mut network, 2, |former| view_joining(2, 2, 2, former));
    let takes_none = |network: &mut Network| {
        matches!(
            answer_at_once(network, 2),
            Some(Answer::Refused(Refusal::Joining | Refusal::Twin))
        )
    };
    assert!(takes_none(&mut network));
    network.run(5_000);
    assert!(takes_none(&mut network), "nobody knows it, and all seem to be dead");
    assert!(!matches!(answer_at_once(&mut network, 0), Some(Answer::Refused(_))), "members go on");
    set_view(&mut network, 0, |former| view_joining(0, 2, 2, former));
    network.run(5_000);
    assert_eq!(answer_at_once(&mut network, 2), refused, "one of them does not know it");
    set_view(&mut network, 1, |former| view_joining(1, 2, 2, former));
    network.run(1_000);
    assert_ne!(answer_at_once(&mut network, 2), refused);
    network.cuts = vec![(0, 2), (1, 2)];
    network.run(5_000);
    assert_ne!(answer_at_once(&mut network, 2), refused, "they knew it, and that is enough");
}

/// A member needs no leave from the node that is being added.
#[test]
fn a_node_alone_takes_writes_while_the_first_other_does_not_know_yet_that_it_joins() {
    let mut network = Network::new(&[1, 1]);
    for node in 0..2 {
        let own = Membership { localhost: name(node), ..Membership::default() };
        network.start_with(node, 1, Arc::new(View::build(None, &own).expect("alone")));
    }
    set_view(&mut network, 0, |former| view_joining(0, 1, 1, former));
    network.run(200);
    assert!(!matches!(answer_at_once(&mut network, 0), Some(Answer::Refused(_))));
}

/// Returns the answer to a create that is given at once. `None`: the create waits for other nodes.
fn answer_at_once(network: &mut Network, node: usize) -> Option<Answer> {
    let mut replies = Vec::new();
    network.core(node, 0).replies(&mut replies);
    network.create(node, 0, 2, b"x");
    network.core(node, 0).replies(&mut replies);
    replies.pop().map(|reply| reply.answer)
}

#[test]
fn a_node_whose_clock_most_others_contradict_takes_no_writes_until_it_is_right() {
    let refused = Some(Answer::Refused(Refusal::Clock));
    let mut network = Network::new(&[1, 1, 1]);
    network.run(600);
    assert_ne!(answer_at_once(&mut network, 1), refused);
    // What is said is known to within the round trip.
    for ahead_ms in [3_600_000, 60_100] {
        network.ahead_ms = vec![0, ahead_ms, 0];
        network.run(300);
        assert_eq!(answer_at_once(&mut network, 1), refused);
        assert_ne!(answer_at_once(&mut network, 0), refused, "it is not the wrong one");
        assert_eq!(network.core(0, 0).clock().apart_ms, ahead_ms);
        network.cuts = vec![(0, 1), (1, 2)];
        network.run(5_000);
        assert_eq!(answer_at_once(&mut network, 1), refused, "cut off, it remembers");
        network.cuts.clear();
        network.ahead_ms = vec![0; 3];
        network.run(5_000);
        assert_ne!(answer_at_once(&mut network, 1), refused, "repaired");
    }
    network.ahead_ms = vec![3_600_000, 0, 3_600_000];
    network.run(300);
    assert_eq!(answer_at_once(&mut network, 1), refused, "behind the two others");
    let counters = network.core(1, 0).peer_counters();
    assert_eq!((counters.clocks_refused, counters.clocks_apart), (3, 3), "told once each");
}

#[test]
fn of_two_nodes_nobody_knows_whose_clock_is_wrong() {
    let mut network = Network::new(&[1, 1]);
    network.ahead_ms[1] = 3_600_000;
    network.run(600);
    network.create(0, 0, 2, b"x");
    network.create(1, 0, 2, b"x");
    network.run(5);
    assert_eq!((network.done(), network.timers(0), network.timers(1)), (2, 2, 2));
    let told = [0, 1].map(|node| network.core(node, 0).peer_counters().clocks_apart);
    assert_eq!(told, [1, 1], "both say that they differ");
}

#[test]
fn another_node_than_the_one_dialled_is_not_believed() {
    let mut network = Network::new(&[1, 1]);
    let now = network.now();
    let mut actions = Vec::new();
    network.core(0, 0).peers(now, &mut actions);
    let peer = network.core(0, 0).view().node_named(&name(1)).expect("a member");
    assert_eq!(actions, [PeerAction::Dial(peer)]);
    let hello = Some(hello("10.0.0.3:7253", 1));
    let connected = Connected { dialect: Dialect::Frames, hello };
    network.core(0, 0).peer_connected(now, peer, &connected);
    actions.clear();
    network.core(0, 0).peers(now, &mut actions);
    assert_eq!(actions, [PeerAction::Close(peer)]);
    assert_eq!(network.believed(0), [0, 1, 0]);
    assert_eq!(network.core(0, 0).peer_counters().strangers, 1);
}

#[test]
fn a_message_without_sense_is_refused_and_the_connection_goes_on() {
    let mut network = Network::new(&[1, 1]);
    network.run(100);
    let at = network.connections.iter().position(|it| it.acceptor.0 == 0).expect("one");
    let mut frame = Vec::new();
    let begins = begin_frame(&mut frame);
    // A message of one byte, of a kind that does not exist.
    frame.extend_from_slice(&[1, 0xee]);
    end_frame(&mut frame, begins, FrameKind::Messages, 1, 0, network.now(), 0);
    let acceptor = network.connections[at].acceptor;
    let now = network.now();
    network.core(0, acceptor.1).inbound_received(now, acceptor.2, &frame).expect("a frame");
    assert_eq!(network.core(0, 0).peer_counters().messages_malformed, 1);
    let mut out = Vec::new();
    let mut actions = Vec::new();
    network.core(0, 0).peers(now, &mut actions);
    assert!(actions.contains(&PeerAction::SendInbound(acceptor.2)));
    network.core(0, 0).inbound_output(now, acceptor.2, &mut out);
    assert!(!out.is_empty(), "it is answered");
    assert!(network.core(0, 0).inbound_received(now, acceptor.2, b"no frame").is_err());
}

#[test]
fn frames_that_do_not_end_cost_their_sender_its_connections() {
    let mut network = Network::new(&[1, 1, 1]);
    let now = network.now();
    let core = network.core(0, 0);
    let mut endless = vec![PROTOCOL_VERSION, FrameKind::Messages as u8, 1, 0];
    endless.extend_from_slice(&(2_u32 << 20).to_le_bytes());
    endless.resize(2 << 20, 0);
    let honest = core.inbound_opened(now, &hello(&name(2), 7)).expect("nobody else is heard");
    core.inbound_received(now, honest, &endless[..1 << 20]).expect("it may still end");
    for _ in 0..100 {
        let id = core.inbound_opened(now, &hello(&name(1), 5)).expect("nobody else is heard");
        core.inbound_received(now, id, &endless).expect("it may still end");
        assert!(core.inbounds_held_bytes() <= 64 << 20, "{}", core.inbounds_held_bytes());
    }
    let shed = core.peer_counters().shed;
    assert!((60..100).contains(&shed), "{shed}: less than 64 MiB are held, or nothing is");
    let mut actions = Vec::new();
    core.peers(now, &mut actions);
    let closed = actions.iter().filter(|it| matches!(it, PeerAction::CloseInbound(_))).count();
    assert_eq!(closed as u64, shed);
    assert!(!actions.contains(&PeerAction::CloseInbound(honest)), "another node holds most");
    // Nor does a node use up the connections of other nodes.
    let opened = (0..600).map_while(|_| core.inbound_opened(now, &hello(&name(1), 5)).ok());
    let kept = opened.count() as u64 + 100 - shed;
    assert_eq!(kept, 512);
    let refused = core.inbound_opened(now, &hello(&name(1), 5));
    assert_eq!(refused, Err(HelloRefusal::TooMany));
    assert!(core.inbound_opened(now, &hello(&name(2), 7)).is_ok());
    let later = Now { mono: now.mono.plus_ms(60_000), ..now };
    core.peers(later, &mut actions);
    assert_eq!(core.inbounds_held_bytes(), 0, "silence ends them");
}

#[test]
fn a_removed_member_is_closed_and_a_new_one_dialled() {
    let mut network = Network::new(&[1, 1, 1]);
    network.run(100);
    assert_eq!(network.believed(0), [2, 0, 0]);
    for node in 0..2 {
        let now = network.now();
        let smaller = view(node, 2, Some(network.core(node, 0).view()));
        network.core(node, 0).set_view(now, smaller);
    }
    network.run(10);
    assert_eq!(network.believed(0), [1, 0, 0]);
    assert_eq!(network.core(0, 0).inbounds_open(), 1);
    for node in 0..2 {
        let now = network.now();
        let larger = view(node, 3, Some(network.core(node, 0).view()));
        network.core(node, 0).set_view(now, larger);
    }
    network.run(2_000);
    assert_eq!(network.believed(0), [2, 0, 0]);
    assert_eq!(network.core(0, 0).inbounds_open(), 2);
}

#[test]
fn a_connection_takes_the_place_of_the_one_that_stands() {
    let mut network = Network::new(&[1, 1]);
    network.run(10);
    network.create(0, 0, 2, b"x");
    let peer = network.connections[0].dialler.2;
    let core = network.connections[0].dialler.0;
    let losses = network.core(core, 0).peer_counters().lost;
    network.connections.remove(0);
    network.dial(core, 0, peer);
    network.run(10);
    assert_eq!(network.core(core, 0).peer_counters().lost, losses);
    assert_eq!((network.believed(0), network.believed(1)), ([1, 0, 0], [1, 0, 0]));
    assert_eq!((network.done(), network.timers(1 - core)), (1, 1));
    // To another process it is the first one.
    let hello = Some(hello(&name(1 - core), 77));
    let connected = Connected { dialect: Dialect::Frames, hello };
    let now = network.now();
    network.core(core, 0).peer_connected(now, peer, &connected);
    assert_eq!(network.core(core, 0).peer_counters().lost, losses + 1);
    assert_eq!(network.believed(core), [1, 0, 0]);
}

#[path = "peering_silence_tests.rs"]
mod silence;
