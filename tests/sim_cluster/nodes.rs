//! Nodes: how they start, die and stop, and the ends of their connections.

use std::sync::Arc;

use chronos::base::ids::{PeerIndex, ShardCount};
use chronos::cluster::view::{PeerKind, View};
use chronos::core::Core;
use chronos::core::mesh::mesh;
use chronos::core::peers::hello::{Hello, Identity};
use kit::simulator::random::Stream;

use super::boots::Boots;
use super::clocks::Clocks;
use super::disturbances::Whom;
use super::driver::{CoreDriver, Input};
use super::model::{Checked, MS};
use super::network::{ConnectionId, CoreAt, End, Packet, Pipe};
use super::options::Options;
use super::story_plan::{Death, Doom};
use super::world::{Event, World};
use kit::simulator::store::Store;

/// A dial that has not ended is given up after this.
const DIAL_NS: u64 = 1_500 * MS;
/// Shortest orderly stop.
const SETTLES_NS: u64 = 200 * MS;
/// Longest orderly stop.
const STOP_NS: u64 = 2_200 * MS;

/// Whether a node's process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// The process runs.
    Up,
    /// The process has been stopping in order since this time.
    Stopping(u64),
    /// The process is gone, or was never started. The machine answers.
    Gone,
    /// The machine is gone.
    Off,
}

/// A core that has to share its CPU.
#[derive(Clone, Copy, Debug)]
pub struct Starved {
    pub core: u16,
    pub until_ns: u64,
    pub pause_ns: u64,
}

/// One node, or one process that claims to be a node.
pub struct Node {
    pub name: String,
    pub life: u64,
    pub power: Power,
    pub clocks: Clocks,
    pub frozen_until_ns: u64,
    /// A core that gets a turn only now and then, and until when.
    pub starved: Option<Starved>,
    /// Dials are refused while this is above zero.
    pub refusals: u32,
    pub doom: Option<(Doom, u64, Death)>,
    pub view: Arc<View>,
    pub cores: Vec<Option<CoreDriver>>,
    /// How long after an orderly stop the node starts again; `None`: not by itself.
    pub restart_ms: Option<u64>,
    /// The disk, if the node has one.
    pub store: Option<Store>,
    /// Until when that disk is full.
    pub full_until_ns: u64,
    pub boots: Boots,
    /// Whether the machine boots before the node starts again.
    pub is_next_boot: bool,
}

impl Node {
    pub fn new(node: usize, options: &Options, draw: &mut Stream) -> Self {
        let clocks = Clocks::new(draw, options.drift_ppm_max, options.skew_ms_max);
        let name = node_name(node);
        let disks = options.disks.as_ref();
        let store = disks.map(|disks| disks.store(options.seed, (node, &name)));
        let is_any = disks.is_some_and(|disks| disks.is_damaged);
        Self { store, boots: Boots::of(is_any), ..Self::with_clocks(name, clocks) }
    }

    /// Makes a node that was never started.
    pub fn with_clocks(name: String, clocks: Clocks) -> Self {
        Self {
            life: 0,
            power: Power::Gone,
            clocks,
            frozen_until_ns: 0,
            starved: None,
            refusals: 0,
            doom: None,
            view: Arc::new(View::alone(&name)),
            cores: Vec::new(),
            restart_ms: None,
            store: None,
            full_until_ns: 0,
            boots: Boots::default(),
            is_next_boot: false,
            name,
        }
    }

    pub fn is_up(&self) -> bool {
        matches!(self.power, Power::Up | Power::Stopping(_))
    }

    pub fn takes_requests(&self) -> bool {
        self.power == Power::Up
    }
}

/// Returns the name of a node, as all members write it.
pub fn node_name(node: usize) -> String {
    format!("10.0.0.{}:7253", node + 1)
}

impl World {
    /// Starts a node with nothing in memory but what its disk has.
    pub fn boot(&mut self, node: usize) -> Checked {
        let member = self.member_of(node);
        let view = self.members.view(member, None);
        let life = self.nodes[node].life + 1;
        self.begin_boot(node);
        let booted = &mut self.nodes[node];
        booted.clocks.restarted(self.now_ns);
        self.model.clocks.see(booted.clocks.ahead_ms());
        let now = booted.clocks.now(self.now_ns);
        booted.life = life;
        booted.power = Power::Up;
        booted.frozen_until_ns = 0;
        booted.starved = None;
        booted.doom = None;
        booted.view = view.clone();
        let shards = self.options.shards[node];
        let incarnation = (node as u64) << 32 | life;
        let identity = Identity { incarnation, ..Identity::default() };
        let ports = mesh(ShardCount::new(shards), self.options.mesh_queue_max);
        let make = |(own, port)| {
            let place = CoreAt { node, life, core: own };
            let config = self.options.config((node, member), own, view.clone());
            let mut core = Core::with_identity(config, port, identity.clone(), now);
            if let Some(rules) = self.rules_at_start(place) {
                core.set_flow_rules(now, rules);
            }
            Some(CoreDriver::new(place, core, now))
        };
        let cores = (0..).zip(ports).map(make).collect();
        self.nodes[node].cores = cores;
        self.read_disk(node)?;
        if let Some(processes) = &mut self.model.processes {
            processes.start(node, life, self.now_ns);
        }
        self.model.disturbances.up(node, self.now_ns);
        self.trace.add(self.now_ns, "boot", [node as u64, life, 0, 0]);
        for core in 0..shards {
            self.wake(CoreAt { node, life, core });
        }
        Ok(())
    }

    /// Ends the process of a node at once.
    pub fn kill(&mut self, node: usize, how: Death, for_ms: Option<u64>) {
        if !self.nodes[node].is_up() {
            return;
        }
        let life = self.nodes[node].life;
        self.trace.add(self.now_ns, "kill", [node as u64, life, how as u64, 0]);
        let killed = &mut self.nodes[node];
        killed.power = if how == Death::Power { Power::Off } else { Power::Gone };
        killed.cores.clear();
        killed.doom = None;
        self.model.processes.iter_mut().for_each(|processes| processes.end(node));
        self.leave_disk(node, how);
        if self.members.is_member(node) {
            self.model.disturbances.down(node, self.now_ns);
            self.leave_pops(node, life);
        }
        for id in 0..self.network.connections.len() {
            for end in [End::Dialler, End::Acceptor] {
                let connection = &mut self.network.connections[id];
                let is_own =
                    connection.place(end).is_some_and(|at| (at.node, at.life) == (node, life));
                if !is_own || !std::mem::take(&mut connection.is_open[end as usize]) {
                    continue;
                }
                match how {
                    Death::Process => self.send(id, end.other(), Packet::Closed),
                    Death::Power => self.network.lose_unsent(id, end),
                }
            }
        }
        if how == Death::Process {
            let waiting = self.asked.iter().filter(|(_, asked)| {
                (asked.node, asked.life) == (node, Some(life)) && !asked.is_answered
            });
            let waiting: Vec<usize> = waiting.map(|(name, _)| *name).collect();
            for name in waiting {
                let latency_ns = self.network.latency_ns();
                self.schedule(self.now_ns + latency_ns, Event::Refused(name));
            }
        }
        if let Some(for_ms) = for_ms {
            self.schedule(self.now_ns + for_ms * MS, Event::Restart { node, life });
        }
    }

    pub fn die_of_doom(&mut self, node: usize) {
        if let Some((_, for_ms, how)) = self.nodes[node].doom.take() {
            self.kill(node, how, Some(for_ms));
        }
    }

    /// Begins an orderly stop.
    pub fn stop(&mut self, node: usize, restart_ms: Option<u64>) {
        if self.nodes[node].power != Power::Up {
            return;
        }
        self.trace.add(self.now_ns, "stop", [node as u64, 0, 0, 0]);
        let life = self.nodes[node].life;
        self.nodes[node].power = Power::Stopping(self.now_ns);
        self.nodes[node].restart_ms = restart_ms;
        if self.members.is_member(node) {
            let until_ns = self.now_ns + STOP_NS;
            self.model.disturbances.pause(node, self.now_ns, until_ns);
        }
        for core in 0..self.options.shards[node] {
            self.deliver(CoreAt { node, life, core }, Input::StopPopping);
        }
        // A node without peers does nothing more by itself, so these events look whether the stop
        // is over.
        for after_ns in [SETTLES_NS, STOP_NS] {
            self.schedule(self.now_ns + after_ns + 1, Event::Stops(node));
        }
    }

    /// Ends a stopping node when its callbacks have ended and were told.
    pub fn stop_if_done(&mut self, node: usize) {
        let Power::Stopping(since_ns) = self.nodes[node].power else { return };
        let cores = self.nodes[node].cores.iter().flatten();
        let is_done = cores.clone().all(|core| {
            let is_settled = core.core.peers_settled() && core.core.is_stored();
            core.core.shard().in_flight() == 0 && is_settled
        }) && self.now_ns > since_ns + SETTLES_NS;
        if is_done || self.now_ns > since_ns + STOP_NS {
            let restart_ms = self.nodes[node].restart_ms;
            self.kill(node, Death::Process, restart_ms);
            if is_done {
                self.model.losses.lost_nothing(node, self.now_ns);
            }
        }
    }

    /// Dials a peer from a core.
    pub fn dial(
        &mut self,
        place: CoreAt,
        (peer, name): (PeerIndex, &str),
        hello: Hello,
    ) -> ConnectionId {
        let target = (0..self.nodes.len()).find(|node| self.nodes[*node].name == name);
        let target = target.expect("only nodes of the run are members");
        let target = self.twin_reached(place.node, target);
        let mut arrivals = Vec::new();
        let id = self.network.dial(self.now_ns, place, peer, target, hello, &mut arrivals);
        let kind = self.nodes[place.node].view.peers()[peer.index()].kind;
        self.network.connections[id].is_to_site = matches!(kind, PeerKind::Site(_));
        self.arrivals(arrivals);
        self.schedule(self.now_ns + DIAL_NS, Event::DialTimeout(id));
        id
    }

    pub fn send(&mut self, id: ConnectionId, to: End, packet: Packet) {
        let mut arrivals = Vec::new();
        self.network.send(self.now_ns, id, to, packet, &mut arrivals);
        self.arrivals(arrivals);
    }

    pub fn arrivals(&mut self, arrivals: Vec<(u64, ConnectionId, End)>) {
        for (at_ns, id, end) in arrivals {
            self.schedule(at_ns, Event::Arrive(id, end));
        }
    }

    /// Closes a connection from one end.
    pub fn close(&mut self, id: ConnectionId, end: End) {
        if std::mem::take(&mut self.network.connections[id].is_open[end as usize]) {
            self.send(id, end.other(), Packet::Closed);
        }
    }

    /// Resets all connections between two nodes.
    pub fn break_connections(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        let until_ns = self.now_ns + 1_000 * MS;
        self.model.disturbances.add(Whom::Pair(one, other), self.now_ns, until_ns);
        for id in self.network.between(one, other) {
            for end in [End::Dialler, End::Acceptor] {
                self.network.lose_unsent(id, end);
                self.send(id, end, Packet::Closed);
            }
        }
    }

    pub fn dial_timeout(&mut self, id: ConnectionId) {
        let connection = &self.network.connections[id];
        if !connection.is_settled && connection.is_open[End::Dialler as usize] {
            let place = connection.dialler;
            self.deliver(place, Input::Closed(id, End::Dialler));
            self.send(id, End::Acceptor, Packet::Closed);
        }
    }

    /// Takes the packet that reaches an end of a connection.
    pub fn arrive(&mut self, id: ConnectionId, end: End) {
        let Some(packet) = self.network.arrive(id, end) else { return };
        let connection = &mut self.network.connections[id];
        let node = connection.node(end);
        if self.nodes[node].power == Power::Off {
            return;
        }
        if let Packet::Dial(hello) = packet {
            return self.dial_arrives(id, node, hello);
        }
        let place = connection.place(end);
        let is_open = connection.is_open[end as usize];
        let Some(place) = place.filter(|at| is_open && self.nodes[node].life == at.life) else {
            // This end no longer has the connection. The sender is told, unless it has just said
            // that itself.
            if !matches!(packet, Packet::Closed | Packet::Refused | Packet::Disowned) {
                self.send(id, end.other(), Packet::Closed);
            }
            return;
        };
        match packet {
            Packet::Dial(_) => unreachable!("handled above"),
            Packet::Accepted(hello) => {
                connection.is_settled = true;
                self.deliver(place, Input::Connected(id, hello));
            }
            Packet::Bytes(bytes) => {
                self.carried(id, end, &bytes);
                self.deliver(place, Input::Bytes(id, end, bytes));
            }
            Packet::Disowned => {
                connection.is_settled = true;
                self.deliver(place, Input::Disowned(id));
            }
            Packet::Refused | Packet::Closed => {
                connection.is_settled = true;
                self.deliver(place, Input::Closed(id, end));
            }
        }
    }

    /// Tells the core that dials that the other machine took the dial, as a kernel does: whether the
    /// process there has time or not. This wakes no core.
    fn taken(&mut self, id: ConnectionId) {
        let Pipe { dialler, peer, .. } = self.network.connections[id];
        let node = &mut self.nodes[dialler.node];
        if node.life == dialler.life && node.is_up() {
            let core = node.cores[usize::from(dialler.core)].as_mut();
            core.expect("no core is in its turn").core.peer_taken(peer);
        }
    }

    fn dial_arrives(&mut self, id: ConnectionId, node: usize, hello: Hello) {
        let target = &self.nodes[node];
        if target.power != Power::Up || target.refusals > 0 {
            return self.send(id, End::Dialler, Packet::Refused);
        }
        let life = target.life;
        self.taken(id);
        let shards = u64::from(self.options.shards[node]);
        let core = self.interleaving.range(0, shards - 1) as u16;
        let place = CoreAt { node, life, core };
        let connection = &mut self.network.connections[id];
        connection.acceptor = Some(place);
        connection.is_open[End::Acceptor as usize] = true;
        self.deliver(place, Input::Dialled(id, hello));
    }
}
