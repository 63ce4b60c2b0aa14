//! A member that says well-formed nonsense. Every message and result that it sends decodes, but the
//! fields are at their extremes, the clocks are those of another century, and results answer what
//! was not asked. In between it repeats what its peers have said to it, changed, and sends messages
//! that are sound.
//!
//! It names timers of its own, timers that never existed, and clients' timers that its peers have
//! named. It never names those of [`SPARED`]. The callbacks that it asks for go to a closed port of
//! this machine.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use chronos::base::ids::{NodeHash, SiteHash, TimerId};
use chronos::base::limits::INTERVAL_MS_MAX;
use chronos::base::ranked::{Replicas, Sites};
use chronos::base::time::{MonoNs, Now, TICK_NS, WallMs};
use chronos::cluster::view::View;
use chronos::timer::definition::encode_content;
use chronos::wire::leb128::write_leb128;
use chronos::wire::peer_frame::{FrameKind, begin_frame, end_frame};
use chronos::wire::peer_message::{
    CopyBody, PeerMessage, PeerRefusal, PeerResult, SEQUENCE_MAX, START_MS_MAX, Standing,
    TimerCopy, decode_message,
};
use chronos::wire::site_question::SiteQuestion;
use chronos::wire::timer_list::{Filter, ListAsk, Place};
use kit::random::Random;

/// Ids that the peer never names.
pub const SPARED: Range<u64> = 0x0009_0000_0000_0000..0x000a_0000_0000_0000;
/// Ids of the peer's own timers. They are few, so that messages about one timer meet earlier ones.
const OWN: u64 = 0x000a_0000_0000_0000;
const OWN_IDS: u64 = 64;
/// Most messages of others that are kept to be repeated.
const HEARD_MAX: usize = 512;
const HOUR_MS: u64 = 3_600_000;
const CENTURY_MS: u64 = 100 * 366 * 24 * HOUR_MS;

/// Returns a number up to `max`: an edge, or any number.
fn number(random: &mut Random, max: u64) -> u64 {
    let edges = [0, 1, 2, 127, 128, 999, 1_000, 10_000, max / 2, max / 2 + 1, max - 1, max];
    if random.one_in(3) { random.next() % (max + 1) } else { random.pick(&edges).min(max) }
}

/// What all connections of the peer share.
pub struct Liar {
    /// Set when the peer should end.
    pub is_over: AtomicBool,
    /// How many messages the peer has sent.
    pub messages: AtomicU64,
    /// How many results the peer has sent.
    pub results: AtomicU64,
    /// How many requests of the peer were answered.
    pub requests: AtomicU64,
    /// How many connections of either direction stood.
    pub connections: AtomicU64,
    /// Hashes of the members, the peer's own among them.
    members: Vec<NodeHash>,
    /// Digest of the members, and their `cluster-view-id`, as the nodes compute them.
    digest: u32,
    view_id: u64,
    /// Messages of the peers, encoded.
    heard: Mutex<Vec<Vec<u8>>>,
    /// Messages of the peers that cannot be read.
    unreadable: Mutex<Vec<String>>,
}

impl Liar {
    /// Makes a member of this cluster.
    pub fn new(members: Vec<NodeHash>, view: &View) -> Liar {
        Liar {
            is_over: AtomicBool::new(false),
            messages: AtomicU64::new(0),
            results: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            members,
            digest: view.digest(),
            view_id: view.id(),
            heard: Mutex::new(Vec::new()),
            unreadable: Mutex::new(Vec::new()),
        }
    }

    /// Notes a message of a peer that cannot be read.
    pub fn wonder(&self, what: &str) {
        self.unreadable.lock().expect("nobody panics with it").push(what.to_owned());
    }

    /// Returns the messages of peers that could not be read.
    pub fn unreadable(&self) -> Vec<String> {
        self.unreadable.lock().expect("nobody panics with it").clone()
    }

    /// Keeps a message of a peer.
    pub fn hear(&self, random: &mut Random, message: &[u8]) {
        let mut heard = self.heard.lock().expect("nobody panics with it");
        if heard.len() < HEARD_MAX {
            heard.push(message.to_vec());
        } else {
            heard[random.below(HEARD_MAX)] = message.to_vec();
        }
    }

    /// Returns an encoded message: any message, or one of a peer, as it was or with changed bits.
    pub fn message(&self, random: &mut Random) -> Vec<u8> {
        if random.one_in(3)
            && let Some(message) = self.repeated(random)
        {
            return message;
        }
        let mut content = Vec::new();
        let path = random.pick(&["/nonsense", "", "?a=b", "/%00%ff/../"]);
        let opaque = "x".repeat(random.pick(&[0, 1, 100, 3_000]));
        encode_content(path, &[], opaque.as_bytes(), &mut content);
        let mut ask = Vec::new();
        let filter = Filter { states: random.pick(&[1, 0x1f]), ..Filter::ALL };
        let walk = random.pick(&[0, 1, 2, u64::MAX]);
        let from = Place(random.pick(&[0, 1 << 63, u64::MAX]));
        ListAsk { walk, from, limit: random.pick(&[1, 1_000]), filter }.encode(&mut ask);
        let message = match random.below(13) {
            12 => {
                let (id, version) = (self.id(random), random.pick(&[0, 1, u64::MAX]));
                let site = SiteHash(random.pick(&[0, 7]));
                PeerMessage::Compare(SiteQuestion { id, version, sequence: 0, site })
            }
            11 => PeerMessage::List { shard: random.pick(&[0, 0, 1, u16::MAX]), ask: &ask },
            0 => PeerMessage::Fetch(self.id(random)),
            1 => PeerMessage::Missed { id: self.id(random), by: self.node(random) },
            2 => PeerMessage::NoRoom { id: self.id(random), at: self.node(random) },
            10 => {
                PeerMessage::Orders(random.pick(&[&b""[..], b"1 2 a:80 paused\n", b"\xff\n1 2\n"]))
            }
            3 => {
                let list = self.list(random);
                PeerMessage::Trying(self.standing(random, &list))
            }
            4 | 5 => {
                let list = self.list(random);
                PeerMessage::Standing(self.standing(random, &list))
            }
            6 => {
                let copy = TimerCopy { is_write: true, ..self.copy(random, &content) };
                PeerMessage::Conditional { seen: copy.standing.version / 2, copy }
            }
            _ => PeerMessage::Copy(self.copy(random, &content)),
        };
        let mut encoded = Vec::new();
        message.encode(&mut encoded);
        encoded
    }

    /// Returns a peer's message, perhaps with changed bits. `None` if the message no longer
    /// decodes, or names a timer of [`SPARED`].
    fn repeated(&self, random: &mut Random) -> Option<Vec<u8>> {
        let heard = self.heard.lock().expect("nobody panics with it");
        if heard.is_empty() {
            return None;
        }
        let mut message = heard[random.below(heard.len())].clone();
        drop(heard);
        for _ in 0..random.pick(&[0, 1, 1, 2, 8]) {
            let at = random.below(message.len());
            message[at] ^= 1 << random.below(8);
        }
        let mut rest = &message[..];
        let decoded = decode_message(&mut rest).ok().filter(|_| rest.is_empty())?;
        (!SPARED.contains(&id_of(&decoded).0)).then_some(message)
    }

    fn id(&self, random: &mut Random) -> TimerId {
        let heard = self.heard.lock().expect("nobody panics with it");
        if random.one_in(3) && !heard.is_empty() {
            let message = &heard[random.below(heard.len())];
            let decoded = decode_message(&mut &message[..]).expect("kept as it came");
            return id_of(&decoded);
        }
        let edges = [0, 1, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];
        let id = if random.one_in(6) { random.pick(&edges) } else { OWN + random.next() % OWN_IDS };
        TimerId(id)
    }

    fn node(&self, random: &mut Random) -> NodeHash {
        let edges = [0, 1, i32::MAX as u32, 1 << 31, u32::MAX - 1, u32::MAX];
        if random.one_in(5) { NodeHash(random.pick(&edges)) } else { random.pick(&self.members) }
    }

    /// Returns a list of any length, from no node to as many as there can be. A list that decodes
    /// names no node twice.
    fn list(&self, random: &mut Random) -> Replicas {
        let mut list = Replicas::new();
        for _ in 0..random.pick(&[0, 1, 2, 2, 3, 3, 5, 16, 40]) {
            let node =
                if random.one_in(9) { NodeHash(random.next() as u32) } else { self.node(random) };
            if !list.contains(node) && !list.is_full() {
                list.push(node);
            }
        }
        list
    }

    fn standing(&self, random: &mut Random, list: &Replicas) -> Standing {
        Standing {
            id: self.id(random),
            version: version(random),
            sequence: number(random, SEQUENCE_MAX),
            actives: random.pick(&[0, 1, 2, 3, list.all_ranks(), 0x7fff, 0x8000, 0xfffe, 0xffff]),
            list_digest: random.pick(&[list.digest(), list.digest(), 0, u32::MAX]),
        }
    }

    fn copy<'a>(&self, random: &mut Random, content: &'a [u8]) -> TimerCopy<'a> {
        let replicas = self.list(random);
        let standing = self.standing(random, &replicas);
        let own_ms = chronos::ring::now().mono.0 / TICK_NS;
        let near = own_ms.saturating_sub(random.below(3_000) as u64);
        let edges = [0, 1, own_ms + 5, own_ms + HOUR_MS, START_MS_MAX - 1, START_MS_MAX];
        let hosts = ["127.0.0.1:1", "127.0.0.1:9", "[::1]:1", "127.0.0.2:65535"];
        let mut sites = Sites::new();
        (0..random.pick(&[0, 0, 1, 8])).for_each(|site| sites.push(SiteHash(site)));
        let body = CopyBody { authority: random.pick(&hosts), content };
        TimerCopy {
            standing: Standing {
                actives: standing.actives & replicas.all_ranks(),
                list_digest: replicas.digest(),
                ..standing
            },
            is_write: random.one_in(3),
            replicas,
            factor: random.pick(&[1, 2, 3, 15, 16]),
            sites,
            start_ms: if random.one_in(2) { near } else { random.pick(&edges) },
            interval_ms: number(random, INTERVAL_MS_MAX),
            repeat_for_ms: number(random, INTERVAL_MS_MAX),
            body: (!random.one_in(4)).then_some(body),
        }
    }

    /// Appends a result of any kind to the body of a frame. `held` counts the results `Held` that
    /// stand before it.
    pub fn result(&self, random: &mut Random, held: &mut u64, body: &mut Vec<u8>) {
        let copy = match random.below(3) {
            0 => b"no message".to_vec(),
            _ => self.message(random),
        };
        let result = match random.below(12) {
            0..=2 => {
                *held += 1;
                return;
            }
            3 => PeerResult::Wanted,
            4 => {
                let factor = random.pick(&[1, 2, 16]);
                PeerResult::Superseded { version: version(random), factor }
            }
            5 => PeerResult::Busy,
            6 => PeerResult::Refused(PeerRefusal::FutureVersion),
            7 => PeerResult::Refused(random.pick(&[PeerRefusal::Full, PeerRefusal::Malformed])),
            8 => PeerResult::Found(&copy),
            9 => PeerResult::NotFound,
            10 => PeerResult::Ahead,
            _ => PeerResult::Otherwise,
        };
        write_leb128(*held, body);
        *held = 0;
        result.encode(body);
    }

    /// Returns a request of one node to another: method, path and body. `names` are the members.
    pub fn request(&self, random: &mut Random, names: &[String]) -> (&'static str, String, String) {
        let id = OWN + random.next() % OWN_IDS;
        let name = &names[random.below(names.len())];
        match random.below(4) {
            0 => {
                let rank = random.pick(&[0, 0, 1, 15, 16]);
                let body = format!("{{\"IDs\":[{{\"ID\":{id},\"ReplicaIndex\":{rank}}}]}}");
                ("DELETE", "/timers/references".to_owned(), body)
            }
            1 => {
                let from = number(random, u64::MAX - 1);
                let path = format!(
                    "/timers?node-for-replicas={name}&cluster-view-id={}&time-from={from}",
                    self.view_id
                );
                ("GET", path, String::new())
            }
            _ => {
                let path = format!("/timers/{id:016x}-{}", random.pick(&[1, 2, 16]));
                ("PUT", path, self.document(random, names))
            }
        }
    }

    /// Returns a timer as a node writes it in JSON.
    fn document(&self, random: &mut Random, names: &[String]) -> String {
        let (start_ms, sequence) = (number(random, START_MS_MAX), number(random, SEQUENCE_MAX));
        let (interval_ms, repeat_ms) =
            (number(random, INTERVAL_MS_MAX), number(random, INTERVAL_MS_MAX));
        let version = version(random);
        let actives = random.pick(&[0_u16, 1, 3, 0xffff]);
        let uri = random.pick(&["", "http://127.0.0.1:1/told", "HTTP://[::1]:1?a b"]);
        let mut replicas: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        replicas.truncate(random.below(names.len() + 1));
        format!(
            "{{\"timing\":{{\"start-time-delta\":-{start_ms},\"sequence-number\":{sequence},\
             \"interval\":0,\"chronos-interval-ms\":{interval_ms},\
             \"chronos-repeat-for-ms\":{repeat_ms}}},\
             \"callback\":{{\"http\":{{\"uri\":\"{uri}\",\"opaque\":\"\"}}}},\
             \"reliability\":{{\"cluster-view-id\":\"{}\",\"replicas\":[{}],\
             \"chronos-version\":\"{version}\",\"chronos-actives\":{actives}}}}}",
            self.view_id,
            replicas.join(",")
        )
    }

    /// Returns a whole frame. The clocks are right half of the time, and so are the members.
    pub fn frame(
        &self,
        random: &mut Random,
        kind: FrameKind,
        (first, count): (u32, u16),
        body: &[u8],
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let begins = begin_frame(&mut out);
        out.extend_from_slice(body);
        let digest = if random.one_in(16) { random.next() as u32 } else { self.digest };
        end_frame(&mut out, begins, kind, count, first, clocks(random), digest);
        out
    }
}

/// Returns a version: of now, of the farthest future that is believed, beyond that, of the past, or
/// none.
fn version(random: &mut Random) -> u64 {
    let at = |wall_ms: u64| wall_ms << 22;
    let (wall_ms, low) = (chronos::ring::now().wall.0, random.next() & 0x3f_ffff);
    random.pick(&[
        0,
        1,
        at(wall_ms),
        at(wall_ms) + low,
        at(wall_ms - HOUR_MS) + low,
        at(wall_ms + 60_000),
        at(wall_ms + HOUR_MS) | 0x3f_ffff,
        i64::MAX as u64,
        1 << 63,
        u64::MAX - 1,
        u64::MAX,
    ])
}

fn clocks(random: &mut Random) -> Now {
    let now = chronos::ring::now();
    let lie = |random: &mut Random, truth: u64, unit: u64| match random.below(20) {
        0..=9 => truth,
        10 => truth.wrapping_add(HOUR_MS * unit),
        11 => truth.wrapping_sub(HOUR_MS * unit),
        12 => truth.wrapping_add(CENTURY_MS * unit),
        13 => truth.wrapping_sub(CENTURY_MS * unit),
        _ => random.pick(&[0, 1, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX]),
    };
    Now { mono: MonoNs(lie(random, now.mono.0, TICK_NS)), wall: WallMs(lie(random, now.wall.0, 1)) }
}

/// Returns the timer that a message is about.
pub fn id_of(message: &PeerMessage<'_>) -> TimerId {
    match message {
        PeerMessage::Standing(standing) | PeerMessage::Trying(standing) => standing.id,
        PeerMessage::Compare(asked) => asked.id,
        PeerMessage::Copy(copy) | PeerMessage::Conditional { copy, .. } => copy.standing.id,
        PeerMessage::Fetch(id)
        | PeerMessage::Missed { id, .. }
        | PeerMessage::NoRoom { id, .. } => *id,
        PeerMessage::Orders(_) => TimerId(0),
        // It is about no timer.
        PeerMessage::List { .. } => TimerId(0),
    }
}
