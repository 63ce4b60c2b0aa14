//! Connections between nodes: ordered byte streams with delay, which are cut, broken and corrupted.
//!
//! A packet arrives by one event of the world's queue. While its direction is cut, the event is
//! swallowed. When the cut ends, as many new events are made as were swallowed.

use std::collections::VecDeque;

use chronos::base::ids::PeerIndex;
use chronos::core::peers::actions::InboundId;
use chronos::core::peers::hello::Hello;
use kit::simulator::random::Stream;

use super::options::PROCESSES_MAX;

/// The number of a connection.
pub type ConnectionId = usize;

/// One core of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoreAt {
    pub node: usize,
    /// The number of the process. A node lives several times.
    pub life: u64,
    pub core: u16,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Dialler = 0,
    Acceptor = 1,
}

impl End {
    pub fn other(self) -> Self {
        if self == End::Dialler { End::Acceptor } else { End::Dialler }
    }
}

/// A packet on its way to an end.
#[derive(Clone, Debug)]
pub enum Packet {
    /// The dialler asks for a connection and its Upgrade.
    Dial(Hello),
    /// The Upgrade was accepted.
    Accepted(Hello),
    /// No process listens there, or the Upgrade was refused.
    Refused,
    /// The Upgrade was refused, because to the acceptor the dialler is a stranger or a second
    /// process.
    Disowned,
    Bytes(Vec<u8>),
    /// The connection is closed.
    Closed,
}

/// A connection between two nodes, and what is on its way over it.
pub struct Pipe {
    pub dialler: CoreAt,
    /// The target as the dialler numbers it.
    pub peer: PeerIndex,
    pub target: usize,
    pub acceptor: Option<CoreAt>,
    pub inbound: Option<InboundId>,
    /// Whether the connection leads to another site. It then carries HTTP, whose bytes only TCP
    /// protects.
    pub is_to_site: bool,
    /// By end: whether the connection still exists there.
    pub is_open: [bool; 2],
    /// Whether the dialler has been told how the dial ended.
    pub is_settled: bool,
    /// By receiving end: the packets on their way.
    flight: [VecDeque<Packet>; 2],
    last_ns: [u64; 2],
    swallowed: [u32; 2],
    /// By receiving end: whether nothing arrives any more.
    is_deaf: [bool; 2],
    /// By receiving end: bytes that later bytes overtake.
    overtaken: [Vec<u8>; 2],
}

impl Pipe {
    pub fn place(&self, end: End) -> Option<CoreAt> {
        if end == End::Dialler { Some(self.dialler) } else { self.acceptor }
    }

    pub fn node(&self, end: End) -> usize {
        if end == End::Dialler { self.dialler.node } else { self.target }
    }
}

/// All connections of a run, and what happens to their bytes.
pub struct Network {
    pub connections: Vec<Pipe>,
    /// How many cuts there are from one node to another.
    cuts: [[u32; PROCESSES_MAX]; PROCESSES_MAX],
    /// How the next bytes from one node to another are spoilt.
    pub spoils: Vec<(usize, usize, Spoil)>,
    /// Slow ways: from, to, until when, and how much longer at most.
    pub slow: Vec<(usize, usize, u64, u64)>,
    latency_ns: (u64, u64),
    draw: Stream,
}

/// How bytes are spoilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoil {
    Bit,
    Tail,
    Twice,
    Late,
}

/// An event to make: at a time, something arrives at an end.
pub type Arrival = (u64, ConnectionId, End);

impl Network {
    pub fn new(latency_ns: (u64, u64), draw: Stream) -> Self {
        Self {
            connections: Vec::new(),
            cuts: Default::default(),
            spoils: Vec::new(),
            slow: Vec::new(),
            latency_ns,
            draw,
        }
    }

    pub fn latency_ns(&mut self) -> u64 {
        self.draw.range(self.latency_ns.0, self.latency_ns.1)
    }

    /// Dials a node from a core.
    pub fn dial(
        &mut self,
        now_ns: u64,
        dialler: CoreAt,
        peer: PeerIndex,
        target: usize,
        hello: Hello,
        arrivals: &mut Vec<Arrival>,
    ) -> ConnectionId {
        self.connections.push(Pipe {
            dialler,
            peer,
            target,
            acceptor: None,
            inbound: None,
            is_to_site: false,
            is_open: [true, false],
            is_settled: false,
            flight: Default::default(),
            last_ns: [0; 2],
            swallowed: [0; 2],
            is_deaf: [false; 2],
            overtaken: Default::default(),
        });
        let id = self.connections.len() - 1;
        self.send(now_ns, id, End::Acceptor, Packet::Dial(hello), arrivals);
        id
    }

    /// Sends to an end. Bytes arrive in portions.
    pub fn send(
        &mut self,
        now_ns: u64,
        id: ConnectionId,
        to: End,
        packet: Packet,
        arrivals: &mut Vec<Arrival>,
    ) {
        let nodes = {
            let connection = &self.connections[id];
            (connection.node(to.other()), connection.node(to))
        };
        match packet {
            Packet::Bytes(mut bytes) => {
                let is_sound = self.connections[id].is_to_site;
                let is_meant = |spoil: &(usize, usize, Spoil)| (spoil.0, spoil.1) == nodes;
                let spoil = self.spoils.iter().position(|spoil| !is_sound && is_meant(spoil));
                let spoil = spoil.map(|at| self.spoils.swap_remove(at).2);
                match spoil {
                    Some(Spoil::Bit) => {
                        let bit = self.draw.range(0, bytes.len() as u64 * 8 - 1) as usize;
                        bytes[bit / 8] ^= 1 << (bit % 8);
                    }
                    Some(Spoil::Tail) => {
                        let keep = self.draw.range(0, bytes.len() as u64 - 1) as usize;
                        bytes.truncate(keep);
                    }
                    Some(Spoil::Twice) => {
                        self.post(now_ns, id, to, Packet::Bytes(bytes.clone()), arrivals);
                    }
                    Some(Spoil::Late) => {
                        return self.connections[id].overtaken[to as usize].append(&mut bytes);
                    }
                    None => {}
                }
                bytes.append(&mut self.connections[id].overtaken[to as usize]);
                if bytes.len() > 1 && self.draw.chance(10) {
                    let cut = self.draw.range(1, bytes.len() as u64 - 1) as usize;
                    let tail = bytes.split_off(cut);
                    self.post(now_ns, id, to, Packet::Bytes(bytes), arrivals);
                    bytes = tail;
                }
                self.post(now_ns, id, to, Packet::Bytes(bytes), arrivals);
                if spoil == Some(Spoil::Tail) {
                    self.post(now_ns, id, to, Packet::Closed, arrivals);
                    self.post(now_ns, id, to.other(), Packet::Closed, arrivals);
                }
            }
            other => self.post(now_ns, id, to, other, arrivals),
        }
    }

    fn post(
        &mut self,
        now_ns: u64,
        id: ConnectionId,
        to: End,
        packet: Packet,
        arrivals: &mut Vec<Arrival>,
    ) {
        let mut at_ns = now_ns + self.latency_ns();
        let connection = &mut self.connections[id];
        let nodes = (connection.node(to.other()), connection.node(to));
        for &(from, to, until_ns, extra_ns) in &self.slow {
            if (from, to) == nodes && now_ns < until_ns {
                at_ns += self.draw.range(0, extra_ns);
            }
        }
        let last_ns = &mut connection.last_ns[to as usize];
        *last_ns = at_ns.max(*last_ns);
        connection.flight[to as usize].push_back(packet);
        arrivals.push((*last_ns, id, to));
    }

    /// Returns the packet of an arrival; `None` while the way is cut.
    pub fn arrive(&mut self, id: ConnectionId, to: End) -> Option<Packet> {
        let connection = &mut self.connections[id];
        let (from, at) = (connection.node(to.other()), connection.node(to));
        if self.cuts[from][at] > 0 {
            connection.swallowed[to as usize] += 1;
            return None;
        }
        let packet = connection.flight[to as usize].pop_front();
        packet.filter(|_| !connection.is_deaf[to as usize])
    }

    /// Loses what one node sends to another over the present connections, from now on.
    pub fn deafen(&mut self, from: usize, to: usize) {
        for id in self.between(from, to) {
            let connection = &mut self.connections[id];
            let end = if connection.target == to { End::Acceptor } else { End::Dialler };
            connection.is_deaf[end as usize] = true;
        }
    }

    /// Makes all ends hear again. What was lost meanwhile is missing.
    pub fn hear_all(&mut self) {
        self.connections.iter_mut().for_each(|connection| connection.is_deaf = [false; 2]);
    }

    /// Loses what was on its way from this end (loss of power).
    pub fn lose_unsent(&mut self, id: ConnectionId, from: End) {
        let flight = &mut self.connections[id].flight[from.other() as usize];
        flight.clear();
    }

    pub fn cut(&mut self, from: usize, to: usize) {
        self.cuts[from][to] += 1;
    }

    /// Ends one cut. What was held back arrives within the time that TCP takes to try again.
    pub fn mend(&mut self, now_ns: u64, from: usize, to: usize, arrivals: &mut Vec<Arrival>) {
        self.cuts[from][to] -= 1;
        if self.cuts[from][to] > 0 {
            return;
        }
        for id in 0..self.connections.len() {
            for end in [End::Dialler, End::Acceptor] {
                let connection = &mut self.connections[id];
                if connection.swallowed[end as usize] == 0
                    || (connection.node(end.other()), connection.node(end)) != (from, to)
                {
                    continue;
                }
                let at_ns = now_ns + self.draw.range(1_000_000, 1_500_000_000);
                let connection = &mut self.connections[id];
                connection.last_ns[end as usize] = connection.last_ns[end as usize].max(at_ns);
                for _ in 0..std::mem::take(&mut connection.swallowed[end as usize]) {
                    arrivals.push((at_ns, id, end));
                }
            }
        }
    }

    /// Returns the live connections between two nodes.
    pub fn between(&self, one: usize, other: usize) -> Vec<ConnectionId> {
        let is_between = |connection: &Pipe| {
            let nodes = (connection.dialler.node, connection.target);
            nodes == (one, other) || nodes == (other, one)
        };
        let all = self.connections.iter().enumerate();
        all.filter(|(_, connection)| is_between(connection) && connection.is_open != [false; 2])
            .map(|(id, _)| id)
            .collect()
    }
}
