//! A peer that sends well-formed nonsense to a shard: every message decodes, but its fields are at
//! their extremes, and its results answer what was not asked. Nothing may panic, every message gets
//! one result, and the parts of the shard agree after each event. The same story every time from
//! one seed; `CHRONOS_FUZZ_SECONDS` goes on with further seeds for as long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chronos::base::ids::{
    NodeHash, NodeInstance, PeerIndex, ShardCount, ShardIndex, SiteHash, TimerId,
};
use chronos::base::limits::{CallbackLimits, ClusterLimits, INTERVAL_MS_MAX};
use chronos::base::ranked::{Replicas, Sites};
use chronos::base::time::{MonoNs, Now, TICK_NS, Tick, WallMs};
use chronos::cluster::detector::Liveness;
use chronos::cluster::view::{Membership, PeerKind, View};
use chronos::shard::effects::{
    CallbackOutcome, Condition, Conditional, Dialect, Event, Outbox, PageAsk, PeerTicket, Purpose,
    Request, Requester, Target,
};
use chronos::shard::{Shard, ShardConfig, Stock};
use chronos::store::wheel::Geometry;
use chronos::timer::definition::{Content, Definition, encode_with_attributes};
use chronos::timer::version::Version;
use chronos::wire::attributes::{Acted, Attributes};
use chronos::wire::dead_letter::{GivenUp, LetterUse};
use chronos::wire::peer_message::{
    CopyBody, PeerMessage, PeerRefusal, PeerResult, SEQUENCE_MAX, START_MS_MAX, Standing,
    TimerCopy, decode_message, decode_result,
};
use chronos::wire::resync_json::Reference;
use chronos::wire::site_question::SiteQuestion;
use chronos::wire::timer_action::TimerAction;
use chronos::wire::timer_count::{CountAsk, CountPart};
use chronos::wire::timer_list::{Filter, ListAsk, Place, read_listed, read_part};
use kit::random::Random;

/// Events of one story, and stories of a test run.
const EVENTS: u32 = 4_000;
const STORIES: u64 = 6;
/// Timers that everything is about.
const IDS: usize = 24;
const START_MS: u64 = 1_700_000_000_000;

struct World {
    random: Random,
    shard: Shard,
    view: Arc<View>,
    now: Now,
    content: Vec<u8>,
    /// What was told to peers and has no result yet.
    told: Vec<(PeerIndex, Purpose)>,
    running: Vec<chronos::shard::effects::Ticket>,
}

fn view() -> Arc<View> {
    let names = |numbers: std::ops::RangeInclusive<u8>| {
        numbers.map(|number| format!("10.0.0.{number}:7253")).collect::<Vec<_>>()
    };
    let membership = Membership {
        localhost: "10.0.0.1:7253".into(),
        nodes: names(1..=3),
        joining: names(4..=4),
        local_site: "home".into(),
        remote_sites: vec![("away".into(), "10.1.0.1:7253".into())],
        replicate_across_sites: true,
        ..Membership::default()
    };
    Arc::new(View::build(None, &membership).expect("a good configuration"))
}

impl World {
    fn new(seed: u64) -> Self {
        let (view, mut content) = (view(), Vec::new());
        let mut attributes = Vec::new();
        if seed.is_multiple_of(2) {
            let once = Some(1 + seed % 3);
            Attributes { once, ..Attributes::default() }.write(&mut attributes);
        }
        encode_with_attributes("/pop", &[], (&attributes, b"opaque"), &mut content);
        let now = Now { mono: MonoNs(1_000_000 * TICK_NS), wall: WallMs(START_MS) };
        let config = ShardConfig {
            own: ShardIndex(0),
            shards: ShardCount::new(1),
            instance: NodeInstance::new(1, 0),
            geometry: Geometry::TINY,
            authority_tables: 4,
            stock: Stock::none(),
            hash_seed: 5,
            records_max: 20,
            store_bytes_max: 1 << 30,
            pops_per_turn_max: 8,
            tags_max: 2,
            callbacks: CallbackLimits::default(),
            cluster: ClusterLimits::default(),
            view: view.clone(),
        };
        let shard = Shard::new(config, now);
        let random = Random::new(seed);
        Self { random, shard, view, now, content, told: Vec::new(), running: Vec::new() }
    }

    fn step(&mut self) {
        match self.random.below(16) {
            0..=6 => self.message(),
            7..=9 => self.result(),
            10 => self.request(),
            11 => self.belief(),
            12 | 13 => self.callback(),
            _ => self.pass(),
        }
        self.shard.audit().expect("all parts agree");
    }

    /// A number up to `max`: an edge or anything.
    fn number(&mut self, max: u64) -> u64 {
        let edges = [0, 1, 2, 999, 10_000, max / 2, max - 1, max];
        match self.random.below(3) {
            0 => self.random.next() % (max / 2 + 1) * 2 % (max / 2 + 1),
            _ => (*self.random.of(&edges)).min(max),
        }
    }

    fn id(&mut self) -> TimerId {
        match self.random.below(IDS) {
            0 => TimerId(0),
            1 => TimerId(u64::MAX),
            some => TimerId((some as u64) << 40),
        }
    }

    fn version(&mut self) -> u64 {
        let present = Version::of_start(self.now.wall).0;
        let skew = ClusterLimits::default().clock_skew_max_ms;
        let ahead = Version::of_start(WallMs(self.now.wall.0 + skew)).0;
        let low = self.random.next() & 0x3f_ffff;
        *self.random.of(&[
            0,
            1,
            present,
            present + low,
            present - low,
            ahead,
            ahead | 0x3f_ffff,
            u64::MAX,
        ])
    }

    fn node(&mut self) -> NodeHash {
        let peers = self.view.peers();
        match peers[self.random.below(peers.len())].kind {
            PeerKind::Node(node) if self.random.below(8) > 0 => node,
            _ => NodeHash(*self.random.of(&[0, 1, u32::MAX, 0x8000_0000, 7, 9, 11, 13])),
        }
    }

    fn sites(&mut self) -> Sites {
        let sites = [self.view.local_site(), SiteHash(0), SiteHash(u32::MAX), SiteHash(5)];
        let configured = self.view.sites();
        match self.random.below(4) {
            0 => Sites::new(),
            1 => sites.into_iter().collect(),
            _ => configured,
        }
    }

    /// A standing or a copy with fields of any value that the wire lets pass.
    /// The content of a timer, which clients may have done something with.
    fn content(&mut self) -> Vec<u8> {
        if self.random.below(3) > 0 {
            return self.content.clone();
        }
        let held = Content::decode(&self.content).attributes();
        let once = held.once;
        let version = self.version();
        let root = *self.random.of(&[0, 1, version, u64::MAX]);
        let at_ms = self.number(u64::MAX - 1);
        let pop = *self.random.of(&[0, 1, 2, 3, u64::MAX]);
        let acted = (self.random.below(4) > 0).then_some(Acted { root, at_ms, pop });
        let is_paused = self.random.below(2) == 0;
        let (mut attributes, mut content) = (Vec::new(), Vec::new());
        Attributes { once, is_paused, acted, ..Attributes::default() }.write(&mut attributes);
        encode_with_attributes("/pop", &[], (&attributes, b"opaque"), &mut content);
        content
    }

    fn told_message<'a>(&mut self, content: &'a [u8]) -> PeerMessage<'a> {
        let mut replicas = Replicas::new();
        for _ in 0..self.random.below(17) {
            let node = self.node();
            if !replicas.contains(node) {
                replicas.push(node);
            }
        }
        let mask = *self.random.of(&[0, 1, 2, 3, 0x8000, 0xfffe, 0xffff]);
        let id = self.id();
        if self.random.below(3) == 0 {
            replicas = self.view.place(id, 2, self.view.new_nodes());
        }
        let standing = Standing {
            id,
            version: self.version(),
            sequence: self.number(SEQUENCE_MAX),
            actives: mask,
            list_digest: *self.random.of(&[replicas.digest(), 0, u32::MAX]),
        };
        let Standing { version, sequence, .. } = standing;
        let site = *self.random.of(&[self.view.local_site(), SiteHash(7)]);
        match self.random.below(7) {
            0 => return PeerMessage::Standing(standing),
            1 => return PeerMessage::Trying(standing),
            2 => return PeerMessage::Compare(SiteQuestion { id, version, sequence, site }),
            _ => {}
        }
        let own_ms = self.now.mono.0 / TICK_NS;
        let near = own_ms - self.random.below(3_000) as u64;
        let start_ms =
            *self.random.of(&[near, near, 0, own_ms + 5, START_MS_MAX - 1, START_MS_MAX]);
        let authority = *self.random.of(&["host:80", "[::1]:1", "a", "other.example:65535"]);
        let body = CopyBody { authority, content };
        let actives = standing.actives & replicas.all_ranks();
        PeerMessage::Copy(TimerCopy {
            standing: Standing { actives, list_digest: replicas.digest(), ..standing },
            is_write: self.random.below(3) == 0,
            replicas,
            factor: *self.random.of(&[1, 2, 3, 16]),
            sites: self.sites(),
            start_ms,
            interval_ms: self.number(INTERVAL_MS_MAX),
            repeat_for_ms: self.number(INTERVAL_MS_MAX),
            body: (self.random.below(4) > 0).then_some(body),
        })
    }

    /// A question for a part of a list; now and then it is none.
    fn list_ask(&mut self) -> Vec<u8> {
        let (tag, host) =
            (*self.random.of(&[None, Some("CALL")]), *self.random.of(&[None, Some("h")]));
        let mut at = || WallMs(self.number(u64::MAX));
        let (due_after, due_before) = (at(), at());
        let filter = Filter {
            states: *self.random.of(&[1, 2, 4, 0x1f, 0x20]),
            tag,
            host,
            name_prefix: Some("a").filter(|_| due_after.0 % 3 == 0),
            due_after: Some(due_after).filter(|at| at.0 % 2 == 0),
            due_before: Some(due_before).filter(|at| at.0 % 2 == 0),
            reason: Some(GivenUp::Age).filter(|_| due_before.0 % 3 == 0),
        };
        let from = Place(self.number(u64::MAX));
        let walk = self.random.below(40) as u64;
        let mut ask = Vec::new();
        ListAsk { walk, from, limit: *self.random.of(&[1, 7, 1_000]), filter }.encode(&mut ask);
        if self.random.below(4) == 0 {
            ask.clear();
            CountAsk { walk, has_spans: walk.is_multiple_of(2) }.encode(&mut ask);
        }
        ask.truncate(ask.len() - usize::from(self.random.below(20) == 0));
        ask
    }

    fn message(&mut self) {
        let content = self.content();
        let ask = self.list_ask();
        let message = match self.random.below(10) {
            9 => PeerMessage::List { shard: self.random.below(2) as u16, ask: &ask },
            0 => PeerMessage::Fetch(self.id()),
            1 => PeerMessage::Missed { id: self.id(), by: self.node() },
            2 => PeerMessage::NoRoom { id: self.id(), at: self.node() },
            3 => PeerMessage::Orders(b"1 2 a:80 paused\nnonsense\n"),
            4 => match self.told_message(&content) {
                PeerMessage::Copy(copy) => {
                    let copy = TimerCopy { is_write: true, ..copy };
                    PeerMessage::Conditional { seen: self.version(), copy }
                }
                other => other,
            },
            _ => self.told_message(&content),
        };
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let message = decode_message(&mut &bytes[..]).expect("well-formed");
        let peers = self.view.peers().len();
        let from = (self.random.below(5) > 0).then(|| PeerIndex(self.random.below(peers) as u8));
        let clock_offset_ns =
            *self.random.of(&[0, 0, 0, 1, -1, i64::MIN, i64::MAX, -(1 << 62), 1 << 62]);
        let ticket = PeerTicket { shard: ShardIndex(0), connection: 1, generation: 2, number: 3 };
        let before = self.handle(Event::PeerMessage { ticket, from, clock_offset_ns, message });
        assert_eq!(before, 1, "one result for each message");
    }

    /// A result, of what was told or of what never was.
    fn result(&mut self) {
        let (peer, purpose) = match self.told.len() {
            0 => return,
            told => self.told.swap_remove(self.random.below(told)),
        };
        let mut copy = Vec::new();
        let content = self.content();
        self.told_message(&content).encode(&mut copy);
        let result = match self.random.below(13) {
            0 => {
                self.handle(Event::PeerUnheard { peer, purpose });
                return;
            }
            1 | 2 => PeerResult::Held,
            3 => PeerResult::Wanted,
            4 | 5 => {
                let factor = *self.random.of(&[1, 2, 16]);
                PeerResult::Superseded { version: self.version(), factor }
            }
            6 => PeerResult::Refused(PeerRefusal::FutureVersion),
            7 => PeerResult::Refused(PeerRefusal::Full),
            8 => PeerResult::Found(&copy),
            9 => PeerResult::Found(b"no message"),
            10 => PeerResult::Ahead,
            11 => PeerResult::Otherwise,
            _ => PeerResult::NotFound,
        };
        self.handle(Event::PeerResult { peer, purpose, result });
    }

    fn request(&mut self) {
        let content = self.content.clone();
        let definition = Definition {
            interval_ms: self.number(INTERVAL_MS_MAX),
            repeat_for_ms: self.number(INTERVAL_MS_MAX),
            factor: None,
            authority: "host:80",
            content: &content,
        };
        let filter = *self.random.of(&[None, Some(0), Some(u64::MAX)]);
        let target = Target { id: self.id(), factor: Some(2), filter };
        let references = [Reference { id: target.id, rank: self.random.below(16) as u8 }];
        let ask = PageAsk {
            node: self.node(),
            from: (Tick(self.number(u64::MAX - 1)), self.id()),
            count: self.random.below(3) as u32,
            is_fresh: self.random.below(2) == 0,
        };
        let copy = self.told_message(&content);
        let version = Version(self.version());
        let condition = *self.random.of(&[
            Condition::Absent,
            Condition::Present,
            Condition::Version(version),
            Condition::Once,
        ]);
        let action = Some(*self.random.of(&TimerAction::ALL));
        let request = match (self.random.below(13), copy) {
            (0, _) => Request::Create(definition),
            (1, _) => Request::Update(target, definition),
            (2, _) => Request::Delete(target),
            (3, _) => Request::Forget(&references),
            (4, _) => Request::Collect(ask),
            (5, PeerMessage::Copy(copy)) => Request::Merge(copy),
            (6, _) => {
                let (definition, action) = (None, None);
                Request::Conditional(Conditional { target, condition, definition, action })
            }
            (7, _) => {
                let (definition, action) = (Some(definition), None);
                Request::Conditional(Conditional { target, condition, definition, action })
            }
            (8 | 9, _) => {
                let definition = None;
                Request::Conditional(Conditional { target, condition, definition, action })
            }
            (10, _) => Request::Letter(target, LetterUse::Replay, None),
            (11, _) => Request::Letter(target, LetterUse::Delete, None),
            _ => Request::Read(target),
        };
        let from = Requester { shard: ShardIndex(0), connection: 0, generation: 0, request: 0 };
        self.handle(Event::Request { from, request });
    }

    fn belief(&mut self) {
        let others: Vec<_> = (0..self.view.peers().len() as u8)
            .map(PeerIndex)
            .filter(|peer| *peer != self.view.own())
            .collect();
        let peer = *self.random.of(&others);
        let liveness = *self.random.of(&[Liveness::Alive, Liveness::Suspect, Liveness::Dead]);
        let is_site = matches!(self.view.peers()[peer.index()].kind, PeerKind::Site(_));
        let dialect = if is_site { Dialect::Http } else { Dialect::Frames };
        let has_gaps = liveness == Liveness::Alive && self.random.below(2) == 0;
        self.handle(Event::Peer { peer, liveness, dialect, has_gaps });
    }

    fn callback(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let ticket = self.running.swap_remove(self.random.below(self.running.len()));
        let outcome = *self.random.of(&[
            CallbackOutcome::Delivered,
            CallbackOutcome::Rejected,
            CallbackOutcome::Unreachable,
            CallbackOutcome::TimedOut,
            CallbackOutcome::Lacking,
        ]);
        self.handle(Event::CallbackFinished { ticket, outcome });
    }

    fn pass(&mut self) {
        let ms = *self.random.of(&[0, 1, 7, 100, 600, 2_500, 15_000]);
        self.now = Now { mono: self.now.mono.plus_ms(ms), wall: WallMs(self.now.wall.0 + ms) };
        let mut outbox = Outbox::default();
        self.shard.tick(self.now, &mut outbox);
        self.take(outbox);
    }

    fn handle(&mut self, event: Event<'_>) -> usize {
        let mut outbox = Outbox::default();
        self.shard.handle(self.now, event, &mut outbox);
        self.take(outbox)
    }

    /// What a shard says must make sense to any peer. Returns how many results it gave.
    fn take(&mut self, outbox: Outbox) -> usize {
        for told in outbox.to_peers {
            let mut bytes = &outbox.peer_bytes[told.bytes];
            decode_message(&mut bytes).expect("a shard says what others understand");
            self.told.push((told.peer, told.purpose));
        }
        for reply in &outbox.peer_replies {
            let mut bytes = &outbox.peer_bytes[reply.bytes.clone()];
            if let PeerResult::Found(found) = decode_result(&mut bytes).expect("a result") {
                let is_copy = decode_message(&mut &found[..]).is_ok();
                assert!(is_copy || is_part(found), "what is found can be read: {found:?}");
            }
        }
        self.running.extend(outbox.attempts.into_iter().map(|attempt| attempt.ticket));
        outbox.peer_replies.len()
    }
}

/// Whether bytes are a part of a list, or numbers.
fn is_part(mut bytes: &[u8]) -> bool {
    if CountPart::decode(bytes).is_ok() {
        return true;
    }
    let is_begun = read_part(&mut bytes).is_ok();
    while is_begun && !bytes.is_empty() {
        if read_listed(&mut bytes).is_err() {
            return false;
        }
    }
    is_begun
}

#[test]
fn well_formed_nonsense_ends_nothing() {
    let seconds = std::env::var("CHRONOS_FUZZ_SECONDS");
    let seconds = seconds.ok().map(|text| text.parse().expect("a number of seconds"));
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let goes_on = |story| until.map_or(story < STORIES, |until| Instant::now() < until);
    let mut story = 0;
    while goes_on(story) {
        let mut world = World::new(story);
        for event in 0..EVENTS {
            let step = std::panic::AssertUnwindSafe(|| world.step());
            std::panic::catch_unwind(step).unwrap_or_else(|panic| {
                eprintln!("story {story}, event {event}");
                std::panic::resume_unwind(panic)
            });
        }
        story += 1;
    }
    println!("{story} stories of {EVENTS} events");
}
