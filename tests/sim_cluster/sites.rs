//! A second site in some of the runs: which nodes each site has, how each site is configured at the
//! other, and the internal HTTP API through which they talk, as a node's engine serves it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chronos::base::ids::ShardIndex;
use chronos::shard::effects::{Answer, Internal, Reply, Request, Requester};
use chronos::timer::admission::admit_told;
use chronos::wire::internal_json::parse_any;
use chronos::wire::site_question::{COMPARES_HEADER, SiteQuestion};
use chronos::wire::timer_json::JsonScratch;
use chronos::wire::timer_path::{TimerPath, parse_path};
use kit::simulator::random::{Purpose, Stream};

use super::driver::CoreDriver;
use super::network::{ConnectionId, End, Packet};
use super::nodes::node_name;
use super::options::{NODES_MAX, Options, Trouble};
use super::rarities::Rarity;
use super::story_plan::Fault;
use super::world::World;

/// How many in a hundred have two sites of the seeds that can.
const PERCENT: u64 = 25;
/// Stands in place of the number of a client's connection for a copy from another site.
pub const FROM_SITE: u32 = 3;

/// A connection that another site dialled.
#[derive(Default)]
pub struct FromSite {
    /// Bytes that are no whole request yet.
    bytes: Vec<u8>,
    /// Whole requests that came.
    requests: u32,
    /// Answers that were sent.
    sent: u32,
    /// Answers that wait for those before them, by the numbers of their requests.
    waiting: BTreeMap<u32, Vec<u8>>,
}

/// Two sites: nodes from 0 on, and from `second` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sites {
    pub second: usize,
    pub nodes: usize,
    /// Whether each site is configured with the addresses of all nodes of the other site. Otherwise
    /// it has the address of the first node.
    pub has_all_addresses: bool,
}

impl Sites {
    pub fn draw(options: &Options) -> Option<Self> {
        let draw = &mut Stream::keyed(options.seed, Purpose::Rarities, 50);
        let is_able = options.nodes > 1
            && options.spares == 0
            && options.trouble != Trouble::Plot
            && !options.rarities.kinds.contains(&Rarity::Twins);
        if !is_able || !draw.chance(PERCENT) {
            return None;
        }
        let second = draw.range(1, options.nodes as u64 - 1) as usize;
        Some(Self { second, nodes: options.nodes, has_all_addresses: draw.chance(50) })
    }

    /// Returns the nodes of each site.
    pub fn masks(&self) -> [u8; 2] {
        let below = |node: usize| ((1_u16 << node) - 1) as u8;
        [below(self.second), below(self.nodes) & !below(self.second)]
    }

    pub fn site_of(&self, node: usize) -> usize {
        usize::from(node >= self.second)
    }

    /// Returns how the other site is written in a node's file.
    pub fn remote(&self, node: usize) -> Vec<(String, String)> {
        let other = 1 - self.site_of(node);
        let nodes = (0..NODES_MAX).filter(|node| self.masks()[other] >> node & 1 == 1);
        let count = if self.has_all_addresses { NODES_MAX } else { 1 };
        nodes.take(count).map(|node| (site_name(other), node_name(node))).collect()
    }

    /// Reports whether a node may die. The other site learns of this site's nodes only from the
    /// nodes that it is configured with, so these must not die.
    pub fn may_die(&self, node: usize) -> bool {
        self.has_all_addresses || ![0, self.second].contains(&node)
    }

    /// Removes the faults that two sites do not stand, and adds cuts between the sites.
    pub fn faults(&self, options: &Options, made: &mut Vec<(u64, Fault)>) {
        made.retain(|(_, fault)| match *fault {
            Fault::Kill { node, .. } | Fault::Doom { node, .. } | Fault::Stop { node, .. } => {
                self.may_die(node)
            }
            _ => true,
        });
        // Nor may the nodes that the other site is configured with leave.
        for (_, fault) in made.iter_mut() {
            if let Fault::Change { leaving, .. } = fault {
                let may_leave = (0..NODES_MAX).filter(|node| self.may_die(*node));
                *leaving &= may_leave.fold(0, |mask, node| mask | 1 << node);
            }
        }
        if options.trouble == Trouble::None {
            return;
        }
        let draw = &mut Stream::keyed(options.seed, Purpose::Rarities, 51);
        for _ in 0..draw.range(0, 2) {
            let ms = draw.pick(&[600, 4_000, 9_000, 20_000]);
            let at_ns = draw.range(2_000, options.safety_ms) * 1_000_000;
            made.push((at_ns, Fault::Split { mask: self.masks()[0], ms }));
        }
    }
}

pub fn site_name(site: usize) -> String {
    format!("site{}", site + 1)
}

/// Returns the first whole request: its line, its body, and how many bytes it took.
fn request_in(bytes: &[u8]) -> Option<(String, Vec<u8>, usize)> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]);
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length = length.map_or(0, |length| length.parse().expect("written by a node"));
    let body = bytes.get(end..end + length)?.to_vec();
    Some((head.lines().next()?.to_owned(), body, end + length))
}

impl CoreDriver {
    /// Takes bytes of another site over a connection that the other site dialled.
    pub fn site_bytes(&mut self, world: &mut World, id: ConnectionId, bytes: &[u8]) {
        self.from_sites.entry(id).or_default().bytes.extend_from_slice(bytes);
        while let Some((line, body, count)) = request_in(&self.from_sites[&id].bytes) {
            let from_site = self.from_sites.get_mut(&id).expect("looked at");
            from_site.bytes.drain(..count);
            from_site.requests += 1;
            self.site_request(world, id, &line, body);
        }
    }

    fn site_request(&mut self, world: &mut World, id: ConnectionId, line: &str, mut body: Vec<u8>) {
        let number = self.from_sites[&id].requests;
        let from = node_name(world.network.connections[id].dialler.node);
        let address: IpAddr = from.split(':').next().expect("a host").parse().expect("an address");
        let view = self.core.view().clone();
        let is_known = self.gate.admit(&view, self.core.site_callers(), || Some(address)).is_ok();
        if !is_known || self.core.speaks_for_site().is_err() {
            world.trace.add(world.now_ns, "stranger", [self.place.node as u64, id as u64, 0, 0]);
            return self.site_answer(world, (id, number), (403, ""), b"");
        }
        let mut words = line.split(' ');
        let (method, target) = (words.next().expect("one"), words.next().expect("a target"));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        match (method, parse_path(path)) {
            ("GET", TimerPath::Ping) if query == "members" => {
                let mut members = Vec::new();
                self.gate.write_members(&view, &mut members);
                let news = self.core.site_news(self.now).header();
                let headers = format!("{COMPARES_HEADER}{news}");
                self.site_answer(world, (id, number), (200, &headers), &members);
            }
            ("GET", TimerPath::Ping) if let Some(question) = SiteQuestion::parse(query) => {
                self.core.request(
                    self.now,
                    self.from_site((id, number)),
                    Request::Compare(question),
                );
            }
            ("PUT", TimerPath::Timer(named)) => {
                let scratch = &mut JsonScratch::default();
                let document = parse_any(&mut body, scratch).expect("written by a node");
                let part = document.internal.expect("a copy");
                let mut content = Vec::new();
                let told = admit_told(&document.timer, &mut content);
                let mut told = told.expect("what a node holds is valid");
                let whole = part.content.map(|content| STANDARD.decode(content).expect("base64"));
                if let (Some(whole), Some(body)) = (&whole, &mut told.body) {
                    body.content = whole;
                }
                let factor = document.timer.replication_factor;
                let (now, view) = (self.now, self.core.view());
                let copy =
                    chronos::core::internal_api::copy_of(now, view, named, factor, &part, told);
                self.core.request(now, self.from_site((id, number)), Request::Merge(copy));
            }
            other => panic!("a node asks another site for {other:?}: {line}"),
        }
    }

    /// Who asks over a connection of another site.
    fn from_site(&self, (id, number): (ConnectionId, u32)) -> Requester {
        Requester {
            shard: ShardIndex(self.place.core),
            connection: FROM_SITE,
            generation: number,
            request: id as u32,
        }
    }

    /// Answers another site what the shard says of its copy or of its question. Answers leave in
    /// the order of the requests, as a server of HTTP sends them.
    pub fn site_reply(&mut self, world: &mut World, reply: &Reply) {
        let to = (reply.to.request as ConnectionId, reply.to.generation);
        match &reply.answer {
            Answer::Done { .. } => self.site_answer(world, to, (200, ""), b""),
            Answer::Internal(internal) => match &**internal {
                Internal::Compared(answer) => {
                    self.site_answer(world, to, (200, &answer.header()), answer.body());
                }
                other => panic!("a site asks for nothing that is answered with {other:?}"),
            },
            _ => self.site_answer(world, to, (503, ""), b""),
        }
    }

    fn site_answer(
        &mut self,
        world: &mut World,
        (id, number): (ConnectionId, u32),
        (status, header): (u16, &str),
        body: &[u8],
    ) {
        let is_open = world.network.connections[id].is_open[End::Acceptor as usize];
        let Some(from_site) = self.from_sites.get_mut(&id).filter(|_| is_open) else { return };
        let length = body.len();
        let head = format!("HTTP/1.1 {status} So\r\n{header}Content-Length: {length}\r\n\r\n");
        from_site.waiting.insert(number, [head.as_bytes(), body].concat());
        while let Some(answer) = from_site.waiting.remove(&(from_site.sent + 1)) {
            from_site.sent += 1;
            world.send(id, End::Dialler, Packet::Bytes(answer));
        }
    }
}
