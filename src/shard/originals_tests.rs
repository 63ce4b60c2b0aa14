//! Copies of original nodes, which send no versions: which write a copy tells of, and that all
//! nodes that hear of one write hold it alike.

use std::sync::Arc;

use crate::base::ids::{PeerIndex, PeerSet, Slot, TimerId};
use crate::base::limits::ClusterLimits;
use crate::base::ranked::Replicas;
use crate::base::time::{MonoNs, Now, TICK_NS, Tick, WallMs};
use crate::cluster::detector::Liveness;
use crate::cluster::view::{Membership, View};
use crate::shard::effects::{Answer, CallbackOutcome, Dialect, Event, Outbox, Request, Target};
use crate::shard::harness_tests::{FROM, START_MS, TICKET, config};
use crate::shard::parts::readings::Readings;
use crate::shard::records::Record;
use crate::shard::{Shard, ShardConfig};
use crate::timer::definition::encode_content;
use crate::timer::version::Version;
use crate::wire::peer_message::{
    CopyBody, PeerMessage, PeerResult, Standing, TimerCopy, decode_message, decode_result,
};

const NAMES: [&str; 3] = ["ours-0", "ours-1", "original"];
const ORIGINAL: usize = 2;
/// The wall clock runs with the monotonic one, so much ahead of it.
const WALL_AHEAD_MS: u64 = 1_700_000_000_000;

/// What an original node says of a timer, except for its callback.
#[derive(Clone, Copy, Debug)]
struct Told {
    id: TimerId,
    sequence: u64,
    /// On the monotonic clock of the node that hears it: the start, and the time that the message
    /// took.
    start_ms: u64,
    /// The start, on the wall clock of the original.
    wall_ms: u64,
    interval_ms: u64,
    repeat_for_ms: u64,
}

impl Told {
    /// A timer that the original took at this moment, as heard so much later.
    fn at(id: TimerId, taken_ms: u64, delay_ms: u64) -> Self {
        let wall_ms = WALL_AHEAD_MS + taken_ms;
        let start_ms = taken_ms + delay_ms;
        Self { id, sequence: 0, start_ms, wall_ms, interval_ms: 10_000, repeat_for_ms: 40_000 }
    }

    fn popped(self, sequence: u64) -> Self {
        Self { sequence, ..self }
    }

    fn copy<'a>(
        &self,
        version: Version,
        replicas: Replicas,
        body: Option<CopyBody<'a>>,
    ) -> TimerCopy<'a> {
        let standing = Standing {
            id: self.id,
            version: version.0,
            sequence: self.sequence,
            actives: replicas.all_ranks(),
            list_digest: replicas.digest(),
        };
        TimerCopy {
            standing,
            is_write: false,
            replicas,
            factor: 2,
            sites: Default::default(),
            start_ms: self.start_ms,
            interval_ms: self.interval_ms,
            repeat_for_ms: self.repeat_for_ms,
            body,
        }
    }
}

fn content_of(opaque: &str) -> Vec<u8> {
    let mut content = Vec::new();
    encode_content("/pop", &[], opaque.as_bytes(), &mut content);
    content
}

/// One node of ours.
struct Node {
    shard: Shard,
    view: Arc<View>,
    now_ms: u64,
    own: usize,
    pops: Vec<u64>,
    /// What was sent to the original: live or not, sequence, start.
    told: Vec<(bool, u64, u64)>,
}

impl Node {
    fn new(own: usize) -> Self {
        let membership = Membership {
            localhost: NAMES[own].into(),
            nodes: NAMES.map(str::to_owned).to_vec(),
            ..Membership::default()
        };
        let view = Arc::new(View::build(None, &membership).expect("a good configuration"));
        let config =
            ShardConfig { records_max: 1_000, store_bytes_max: 1 << 20, ..config(view.clone(), 0) };
        let now = Now { mono: MonoNs(START_MS * TICK_NS), wall: WallMs(WALL_AHEAD_MS + START_MS) };
        let shard = Shard::new(config, now);
        let mut node =
            Self { shard, view, now_ms: START_MS, own, pops: Vec::new(), told: Vec::new() };
        for other in (0..NAMES.len()).filter(|other| *other != own) {
            let dialect = if other == ORIGINAL { Dialect::Http } else { Dialect::Frames };
            let (peer, liveness) = (node.peer(other), Liveness::Alive);
            let event = Event::Peer { peer, liveness, dialect, has_gaps: false };
            node.handle(event);
        }
        node
    }

    fn now(&self) -> Now {
        Now { mono: MonoNs(self.now_ms * TICK_NS), wall: WallMs(WALL_AHEAD_MS + self.now_ms) }
    }

    fn peer(&self, node: usize) -> PeerIndex {
        self.view.node_named(NAMES[node]).expect("a member")
    }

    /// A list of these nodes.
    fn list(&self, nodes: &[usize]) -> Replicas {
        let placed = self.view.place(TimerId(1), 3, self.view.new_nodes());
        let hash = |node: &usize| {
            let is_it = |hash: &&_| self.view.peer_of(**hash) == Some(self.peer(*node));
            *placed.as_slice().iter().find(is_it).expect("all three hold it")
        };
        nodes.iter().map(hash).collect()
    }

    /// Takes an event. Callbacks that it brings are done at once.
    fn handle(&mut self, event: Event<'_>) -> Outbox {
        let mut outbox = Outbox::default();
        self.shard.handle(self.now(), event, &mut outbox);
        self.deliver(&mut outbox);
        outbox
    }

    fn deliver(&mut self, outbox: &mut Outbox) {
        for attempt in std::mem::take(&mut outbox.attempts) {
            self.pops.push(attempt.ticket.sequence);
            let outcome = CallbackOutcome::Delivered;
            let event = Event::CallbackFinished { ticket: attempt.ticket, outcome };
            self.shard.handle(self.now(), event, outbox);
        }
        let to = self.peer(ORIGINAL);
        for message in outbox.to_peers.iter().filter(|message| message.peer == to) {
            let bytes = &outbox.peer_bytes[message.bytes.clone()];
            let told = decode_message(&mut &bytes[..]).expect("encoded by a shard");
            let PeerMessage::Copy(copy) = told else {
                panic!("an original understands copies only, not {told:?}");
            };
            self.told.push((copy.body.is_some(), copy.standing.sequence, copy.start_ms));
        }
    }

    /// Time passes, with a tick at its end.
    fn pass_to(&mut self, ms: u64) -> Outbox {
        let mut outbox = Outbox::default();
        while self.now_ms < ms {
            self.now_ms = (self.now_ms + 100).min(ms);
            self.shard.tick(self.now(), &mut outbox);
        }
        self.deliver(&mut outbox);
        outbox
    }

    /// An original tells of a timer with this opaque data; `None`: a tombstone.
    fn hear(&mut self, told: Told, list: &[usize], opaque: Option<&str>) {
        let content = content_of(opaque.unwrap_or_default());
        let body = opaque.map(|_| CopyBody { authority: "host:80", content: &content });
        let copy = told.copy(Version::of_start(WallMs(told.wall_ms)), self.list(list), body);
        let event = Event::Request { from: FROM, request: Request::Merge(copy) };
        let answered = self.handle(event).replies.pop().map(|reply| reply.answer);
        assert!(matches!(answered, Some(Answer::Done { .. })), "{answered:?}");
    }

    /// A node of ours tells of a timer that a client wrote at a node of ours.
    fn hear_of_write(&mut self, told: Told, version: Version, opaque: &str) {
        let content = content_of(opaque);
        let body = Some(CopyBody { authority: "host:80", content: &content });
        let copy = told.copy(version, self.list(&[0, 1]), body);
        let from = Some(self.peer(1 - self.own));
        let message = PeerMessage::Copy(TimerCopy { is_write: true, ..copy });
        self.handle(Event::PeerMessage { ticket: TICKET, from, clock_offset_ns: 0, message });
        self.live(told.id);
    }

    fn record(&self, id: TimerId) -> Option<Record> {
        self.shard.find(id).map(|slot| *self.shard.records.get(slot))
    }

    fn live(&self, id: TimerId) -> Record {
        self.record(id).filter(Record::is_live).expect("a live timer")
    }

    fn opaque(&self, id: TimerId) -> Vec<u8> {
        self.shard.records.content_of(&self.live(id)).opaque.to_vec()
    }

    fn is_over(&self, id: TimerId) -> bool {
        self.record(id).is_none_or(|record| !record.is_live())
    }

    fn delete(&mut self, id: TimerId) -> Outbox {
        let target = Target { id, factor: Some(2), filter: None };
        self.handle(Event::Request { from: FROM, request: Request::Delete(target) })
    }
}

/// Hands on what `from` sends to `to` over frames, and its results, until both are silent.
fn talk(from: &mut Node, to: &mut Node, outbox: &Outbox) {
    let peer = from.peer(to.own);
    for message in outbox.to_peers.iter().filter(|one| one.peer == peer) {
        let bytes = &outbox.peer_bytes[message.bytes.clone()];
        let told = decode_message(&mut &bytes[..]).expect("encoded by a shard");
        let teller = Some(to.peer(from.own));
        let ticket = TICKET;
        let event = Event::PeerMessage { ticket, from: teller, clock_offset_ns: 0, message: told };
        let heard = to.handle(event);
        let reply = heard.peer_replies.last().expect("every message is answered");
        let result = heard.peer_bytes[reply.bytes.clone()].to_vec();
        talk(to, from, &heard);
        let result: PeerResult<'_> = decode_result(&mut &result[..]).expect("encoded by a shard");
        let event = Event::PeerResult { peer, purpose: message.purpose, result };
        let more = from.handle(event);
        talk(from, to, &more);
    }
}

/// A timer that these nodes are to hold, in this order.
fn id_of(list: &[usize]) -> TimerId {
    let node = Node::new(0);
    let is_theirs = |id: &TimerId| {
        node.view.place(*id, list.len() as u8, node.view.new_nodes()) == node.list(list)
    };
    (0x0004_d9f5_4810_0000..).map(TimerId).find(is_theirs).expect("every sixth")
}

#[test]
fn both_holders_pop_once_what_an_original_took_whenever_its_copies_arrive() {
    let id = id_of(&[0, 1]);
    for (first_ms, second_ms) in [(0, 5), (5, 0), (1, 1), (2, 300)] {
        let (mut primary, mut backup) = (Node::new(0), Node::new(1));
        primary.hear(Told::at(id, START_MS, first_ms), &[0, 1], Some("one"));
        backup.hear(Told::at(id, START_MS, second_ms), &[0, 1], Some("one"));
        assert_eq!(primary.live(id).key(), backup.live(id).key());
        for pop in 1..=4 {
            let due_ms = START_MS + pop * 10_000;
            backup.pass_to(due_ms + 900);
            let told = primary.pass_to(due_ms + 900);
            talk(&mut primary, &mut backup, &told);
        }
        assert_eq!((&primary.pops[..], &backup.pops[..]), (&[1, 2, 3, 4][..], &[][..]));
        assert!(primary.is_over(id) && backup.is_over(id));
    }
}

/// One of the two nodes took the write itself, or was told by a node that did. An original told the
/// other as it left the timer to that node. Or two originals told the two nodes, each with its
/// delay.
#[test]
fn one_write_that_is_known_by_two_versions_pops_once() {
    let id = id_of(&[0, 1]);
    let ours = Version(Version::of_start(WallMs(WALL_AHEAD_MS + START_MS)).0 | 0x401);
    for (first_is_ours, later_ms) in [(true, 0), (true, 47), (false, 0), (false, 1), (false, 300)] {
        for popped in [0, 1] {
            let mut nodes = [Node::new(0), Node::new(1)];
            let known = usize::from(!first_is_ours);
            let told = Told::at(id, START_MS, 0).popped(popped);
            nodes[known].hear_of_write(told, ours, "one");
            let late =
                Told { wall_ms: told.wall_ms + later_ms, ..Told::at(id, START_MS, later_ms) };
            nodes[1 - known].hear(late.popped(popped), &[0, 1], Some("one"));
            let [primary, backup] = &mut nodes;
            assert_ne!(primary.live(id).version, backup.live(id).version);
            for pop in popped + 1..=4 {
                let due_ms = START_MS + pop * 10_000;
                let told = primary.pass_to(due_ms + 900);
                backup.now_ms = due_ms + 900;
                talk(primary, backup, &told);
                let told = backup.pass_to(due_ms + 950);
                primary.now_ms = due_ms + 950;
                talk(backup, primary, &told);
            }
            let all: Vec<u64> = (popped + 1..=4).collect();
            assert_eq!((&primary.pops, &backup.pops), (&all, &vec![]), "{known} {later_ms}");
            assert!(primary.is_over(id) && backup.is_over(id));
            assert_eq!(primary.record(id).map(|it| it.key()), backup.record(id).map(|it| it.key()));
        }
    }
}

#[test]
fn what_an_original_changes_within_a_millisecond_is_a_later_write() {
    let id = id_of(&[0, 1]);
    let (mut node, told) = (Node::new(0), Told::at(id, START_MS, 0));
    for (opaque, later_ms) in [("one", 0), ("two", 1)] {
        node.hear(told, &[0, 1], Some(opaque));
        assert_eq!(node.opaque(id), opaque.as_bytes());
        assert_eq!(node.live(id).version, Version::of_start(WallMs(told.wall_ms + later_ms)));
    }
}

/// The first version is of a start nearly as old, but the write is another one.
#[test]
fn another_write_of_nearly_the_same_start_is_done_from_its_beginning() {
    let id = id_of(&[0, 1]);
    let ours = Version(Version::of_start(WallMs(WALL_AHEAD_MS + START_MS)).0 | 0x401);
    let told = Told::at(id, START_MS, 0);
    let others = [
        (Told { interval_ms: 20_000, ..told }, "one"),
        (told, "two"),
        (Told { start_ms: told.start_ms + 500, ..told }, "one"),
        (Told { wall_ms: told.wall_ms - 500, ..told }, "one"),
    ];
    for (other, opaque) in others {
        let (mut primary, mut backup) = (Node::new(0), Node::new(1));
        primary.hear_of_write(told, ours, "one");
        backup.hear(other.popped(1), &[0, 1], Some(opaque));
        let from = backup.live(id);
        let outbox = {
            let mut outbox = Outbox::default();
            let slot = backup.shard.find(id).expect("held");
            let to = PeerSet::EMPTY.with(backup.peer(0));
            backup.shard.tell(slot, to, false, &mut outbox);
            outbox
        };
        talk(&mut backup, &mut primary, &outbox);
        let (one, two) = (primary.live(id), backup.live(id));
        assert_eq!(one.key(), two.key());
        let newest = if from.version > ours { (from.version, 1) } else { (ours, 0) };
        assert_eq!((one.version, one.sequence), newest, "{other:?} {opaque}");
    }
}

#[test]
fn a_copy_whose_pops_are_all_done_is_a_tombstone() {
    let id = id_of(&[0, ORIGINAL]);
    for (sequence, is_over) in [(0, false), (3, false), (4, true)] {
        let mut node = Node::new(0);
        node.hear(Told::at(id, START_MS, 0).popped(sequence), &[0, ORIGINAL], Some("x"));
        assert_eq!(node.is_over(id), is_over, "{sequence}");
        assert_eq!(node.shard.counters().peer_messages, 1);
        let (original, ours) = (node.peer(ORIGINAL), node.peer(1));
        assert!(node.shard.peers.speaks_http(original) && !node.shard.peers.speaks_http(ours));
    }
}

#[test]
fn an_update_that_an_original_took_is_one_write_for_both_holders() {
    let id = id_of(&[0, 1]);
    let (mut primary, mut backup) = (Node::new(0), Node::new(1));
    // The timer is from a client of ours, whose wall clock is ahead: its version is the higher one.
    for node in [&mut primary, &mut backup] {
        node.hear(Told::at(id, START_MS + 2_000, 0), &[0, 1], Some("one"));
    }
    let later = Told { wall_ms: WALL_AHEAD_MS + START_MS, ..Told::at(id, START_MS + 5_000, 0) };
    let former = primary.live(id).key();
    primary.hear(Told { start_ms: later.start_ms + 1, ..later }, &[0, 1], Some("two"));
    backup.hear(Told { start_ms: later.start_ms + 7, ..later }, &[0, 1], Some("two"));
    assert_eq!(primary.live(id).key(), backup.live(id).key());
    assert!(primary.live(id).key() > former);
    assert_eq!((primary.opaque(id), backup.opaque(id)), (b"two".to_vec(), b"two".to_vec()));
}

#[test]
fn a_write_told_again_is_that_write_and_keeps_its_start() {
    let id = id_of(&[0, ORIGINAL]);
    let mut node = Node::new(0);
    node.hear(Told::at(id, START_MS, 3), &[0, ORIGINAL], Some("one"));
    let held = node.live(id);
    // News of its pop: told by a clock that is read anew, over a slower way.
    for (sequence, delay_ms, wall_off_ms) in [(1, 40, 1), (2, 0, 0), (2, 499, 60_000), (3, 2, 1)] {
        let told = Told::at(id, START_MS, delay_ms).popped(sequence);
        let told = Told { wall_ms: told.wall_ms + wall_off_ms, ..told };
        node.hear(told, &[0, ORIGINAL], Some("one"));
        let record = node.live(id);
        assert_eq!((record.version, record.sequence), (held.version, sequence));
        assert_eq!(record.start, held.start);
    }
    // A copy that comes late changes nothing.
    node.hear(Told::at(id, START_MS, 0).popped(1), &[0, ORIGINAL], Some("one"));
    assert_eq!(node.live(id).sequence, 3);
    // The end of the timer.
    node.hear(Told::at(id, START_MS, 1).popped(4), &[0, ORIGINAL], None);
    assert!(node.is_over(id));
    node.hear(Told::at(id, START_MS, 80).popped(3), &[0, ORIGINAL], Some("one"));
    assert!(node.is_over(id), "what has ended does not come back");
}

#[test]
fn an_update_soon_after_a_write_is_another_write() {
    let id = id_of(&[0, ORIGINAL]);
    let mut node = Node::new(0);
    node.hear(Told::at(id, START_MS, 0), &[0, ORIGINAL], Some("one"));
    node.hear(Told::at(id, START_MS + 30, 0), &[0, ORIGINAL], Some("two"));
    assert_eq!((node.opaque(id), node.live(id).start), (b"two".to_vec(), Tick(START_MS + 30)));
    node.hear(Told::at(id, START_MS, 0), &[0, ORIGINAL], Some("one"));
    assert_eq!(node.opaque(id), b"two", "the older one comes late");
    let longer = Told { interval_ms: 11_000, ..Told::at(id, START_MS + 60, 0) };
    node.hear(longer, &[0, ORIGINAL], Some("two"));
    assert_eq!(node.live(id).interval_ms, 11_000);
}

#[test]
fn of_two_writes_the_one_that_started_later_counts() {
    let id = id_of(&[0, ORIGINAL]);
    let mut node = Node::new(0);
    node.hear(Told::at(id, START_MS, 0), &[0, ORIGINAL], Some("old"));
    let first = node.live(id);
    // The same words half a second later set the timer anew.
    node.hear(Told::at(id, START_MS + 500, 0), &[0, ORIGINAL], Some("old"));
    assert_eq!(node.live(id).start, first.start + 500);
    assert!(node.live(id).version > first.version);
    node.hear(Told::at(id, START_MS, 0).popped(1), &[0, ORIGINAL], Some("old"));
    assert_eq!((node.live(id).start, node.live(id).sequence), (first.start + 500, 0));
    node.hear(Told::at(id, START_MS, 0).popped(1), &[0, ORIGINAL], None);
    assert!(!node.is_over(id), "the end of an older write");
    node.hear(Told::at(id, START_MS + 501, 0), &[0, ORIGINAL], None);
    assert!(node.is_over(id), "a delete, right after it");
}

#[test]
fn an_original_whose_wall_clock_is_ahead_is_believed_by_its_delays() {
    let id = id_of(&[0, ORIGINAL]);
    let mut node = Node::new(0);
    let hour = 3_600_000;
    let told = Told::at(id, START_MS - 70, 70);
    node.hear(Told { wall_ms: told.wall_ms + hour, ..told }, &[0, ORIGINAL], Some("ahead"));
    assert_eq!(node.live(id).version, Version::of_start(WallMs(WALL_AHEAD_MS + START_MS)));
    let edge = ClusterLimits::default().clock_skew_max_ms;
    let at_edge = Told { id: TimerId(5), wall_ms: WALL_AHEAD_MS + START_MS + edge, ..told };
    node.hear(at_edge, &[0, ORIGINAL], Some("at the edge"));
    assert_eq!(node.live(TimerId(5)).version, Version::of_start(WallMs(at_edge.wall_ms)));
    let behind = Told { id: TimerId(6), wall_ms: WALL_AHEAD_MS - hour, ..told };
    node.hear(behind, &[0, ORIGINAL], Some("behind"));
    assert_eq!(node.live(TimerId(6)).start, Tick(START_MS));
}

#[test]
fn a_delete_is_told_to_an_original_as_of_now_and_outlives_what_it_says() {
    let id = id_of(&[0, ORIGINAL]);
    let mut node = Node::new(0);
    node.hear(Told::at(id, START_MS, 0), &[0, ORIGINAL], Some("one"));
    node.pass_to(START_MS + 10_050);
    let deleted_ms = START_MS + 19_999;
    node.pass_to(deleted_ms);
    assert_eq!(node.pops, [1]);
    node.told.clear();
    node.delete(id);
    assert_eq!(node.told, [(false, 1, deleted_ms)]);
    // The timer has popped meanwhile, and the copy says so.
    node.hear(Told::at(id, START_MS, 2).popped(2), &[0, ORIGINAL], Some("one"));
    assert!(node.is_over(id), "a timer that was deleted does not come back");
    // A client writes it again through the original.
    node.hear(Told::at(id, deleted_ms + 30, 0), &[0, ORIGINAL], Some("two"));
    assert_eq!(node.opaque(id), b"two");
    // An id that no node knows.
    let unknown = node.delete(TimerId(9));
    assert!(unknown.to_peers.iter().all(|message| {
        let bytes = &unknown.peer_bytes[message.bytes.clone()];
        let told = decode_message(&mut &bytes[..]).expect("encoded by a shard");
        matches!(told, PeerMessage::Copy(copy) if copy.interval_ms == 10_000)
    }));
}

#[test]
fn what_was_deleted_a_moment_after_it_was_written_stays_deleted() {
    let id = id_of(&[0, ORIGINAL]);
    let mut node = Node::new(0);
    node.hear(Told::at(id, START_MS, 0), &[0, ORIGINAL], Some("one"));
    node.delete(id);
    node.hear(Told::at(id, START_MS, 0), &[0, ORIGINAL], Some("one"));
    assert!(node.is_over(id), "as old as the delete");
    node.pass_to(START_MS + 200);
    node.hear(Told::at(id, START_MS + 150, 0), &[0, ORIGINAL], Some("two"));
    assert_eq!(node.opaque(id), b"two");
}

impl Node {
    /// The connection with the original breaks, and what is sent to it gets lost.
    fn lose_original(&mut self, outbox: &Outbox) {
        let peer = self.peer(ORIGINAL);
        for message in outbox.to_peers.iter().filter(|message| message.peer == peer) {
            self.handle(Event::PeerUnheard { peer, purpose: message.purpose });
        }
    }

    fn believe_original(&mut self, liveness: Liveness) {
        let (peer, dialect) = (self.peer(ORIGINAL), Dialect::Http);
        let has_gaps = liveness == Liveness::Alive;
        self.handle(Event::Peer { peer, liveness, dialect, has_gaps });
    }

    /// This node is frozen, and goes on at a moment.
    fn freeze_until(&mut self, ms: u64) {
        self.now_ms = ms;
        self.shard.tick(self.now(), &mut Outbox::default());
    }

    /// This node has just begun with a journal that has what it holds.
    fn begin_with_journal(&mut self) {
        let began_at = self.now().mono.tick_floor();
        let readings = Readings::new(self.now().wall, PeerSet::EMPTY, began_at);
        self.shard.readings = Some(readings);
    }
}

/// Ids of timers with the holders of `id_of(list)`.
fn ids_of<const COUNT: usize>(list: &[usize]) -> [TimerId; COUNT] {
    let first = id_of(list);
    let mut next =
        (0..).filter(|more| id_is_like(first, *more)).map(|more| TimerId(first.0 + more));
    std::array::from_fn(|_| next.next().expect("every sixth"))
}

#[test]
fn an_original_is_told_what_changed_while_it_was_silent_and_nothing_else() {
    for list in [[0, ORIGINAL], [ORIGINAL, 0]] {
        let mut node = Node::new(0);
        let [quiet, deleted, changed] = ids_of(&list);
        for id in [quiet, deleted, changed] {
            let told = Told { interval_ms: 100_000, ..Told::at(id, START_MS, 0) };
            node.hear(told, &list, Some("one"));
        }
        node.pass_to(START_MS + 20_000);
        node.believe_original(Liveness::Suspect);
        let outbox = node.delete(deleted);
        node.lose_original(&outbox);
        let later = Told { interval_ms: 100_000, ..Told::at(changed, START_MS + 20_000, 0) };
        node.hear(later, &list, Some("two"));
        node.believe_original(Liveness::Dead);
        node.told.clear();
        node.believe_original(Liveness::Alive);
        node.pass_to(START_MS + 20_100);
        node.told.sort_unstable();
        let now_ms = START_MS + 20_000;
        assert_eq!(node.told, [(false, 0, now_ms), (true, 0, now_ms)]);
        node.told.clear();
        node.pass_to(START_MS + 25_000);
        assert!(node.told.is_empty(), "told once");
    }
}

#[test]
fn copies_that_waited_while_this_node_was_frozen_are_ordered_by_the_wall_clock() {
    let list = [0, ORIGINAL];
    let id = id_of(&list);
    let mut node = Node::new(0);
    node.pass_to(START_MS + 8_000);
    node.hear(Told::at(id, START_MS, 0), &list, Some("one"));
    node.freeze_until(START_MS + 15_000);
    let now_ms = START_MS + 15_000;
    let waited = |taken_ms: u64| Told::at(id, taken_ms, now_ms - taken_ms);
    // The update was told over one connection, and news of the former definition over another.
    node.hear(waited(START_MS + 11_000), &list, Some("two"));
    node.hear(
        Told { start_ms: START_MS + 4_500, ..waited(START_MS) }.popped(1),
        &list,
        Some("one"),
    );
    node.hear(waited(START_MS).popped(1), &list, Some("one"));
    assert_eq!((node.opaque(id), node.live(id).sequence), (b"two".to_vec(), 0));
    // The start was told too late. The next copy tells it better, and is of the same write.
    node.hear(Told::at(id, START_MS + 11_000, 3).popped(1), &list, Some("two"));
    let held = node.live(id);
    assert_eq!((held.sequence, held.start), (1, Tick(START_MS + 11_003)));
    node.hear(waited(START_MS + 13_000), &list, None);
    node.hear(waited(START_MS + 11_000).popped(2), &list, Some("two"));
    assert!(node.is_over(id), "what was deleted meanwhile stays deleted");
}

#[test]
fn without_an_absence_a_wall_clock_that_is_behind_orders_nothing() {
    let list = [0, ORIGINAL];
    let id = id_of(&list);
    let mut node = Node::new(0);
    node.hear(Told::at(id, START_MS, 0), &list, Some("one"));
    let behind = Told { wall_ms: WALL_AHEAD_MS - 5_000, ..Told::at(id, START_MS + 2_000, 0) };
    node.hear(behind, &list, Some("two"));
    assert_eq!(node.opaque(id), b"two");
}

#[test]
fn what_originals_no_longer_list_when_this_node_returns_has_ended_there() {
    let list = [0, ORIGINAL];
    let [kept, deleted, changed] = ids_of(&list);
    let told = |id| Told::at(id, START_MS, 0);
    let returned = || {
        let mut node = Node::new(0);
        [kept, deleted, changed].iter().for_each(|&id| node.hear(told(id), &list, Some("one")));
        node.pass_to(START_MS + 8_000);
        node.begin_with_journal();
        node
    };
    let mut node = returned();
    node.pass_to(START_MS + 14_000);
    assert!(node.pops.is_empty() && node.told.is_empty(), "the original is to be read first");
    node.hear(told(kept).popped(1), &list, Some("one"));
    node.hear(Told::at(changed, START_MS + 13_000, 0), &list, Some("two"));
    let original = node.peer(ORIGINAL);
    node.shard.note_read(original);
    node.pass_to(START_MS + 14_200);
    assert!(node.record(deleted).is_none());
    assert_eq!((node.live(kept).sequence, node.opaque(changed)), (1, b"two".to_vec()));
    assert_eq!(node.shard.counters().ended_away, 1);

    // An original that has lost its memory lists nothing that only it and this node could know.
    let mut node = returned();
    node.hear(Told::at(changed, START_MS + 7_000, 0), &list, Some("two"));
    node.shard.note_read(original);
    node.pass_to(START_MS + 14_000);
    assert_eq!((node.live(kept).sequence, node.live(deleted).sequence), (1, 1));
    assert_eq!(node.pops, [1, 1]);

    // An original that cannot be read keeps pops waiting for a while.
    let mut node = returned();
    node.pass_to(START_MS + 19_000);
    assert_eq!(node.pops, [1, 1, 1]);

    // An original that may never have been told proves nothing.
    let mut node = returned();
    node.shard.readings.as_mut().expect("begun").lacking = PeerSet::EMPTY.with(original);
    node.hear(told(kept), &list, Some("one"));
    node.shard.note_read(original);
    node.pass_to(START_MS + 9_000);
    assert!(node.live(deleted).is_live());
}

/// Our nodes and the original, which leaves.
fn leaving(own: usize) -> Membership {
    Membership {
        localhost: NAMES[own].into(),
        nodes: NAMES[..ORIGINAL].iter().map(|name| (*name).to_owned()).collect(),
        leaving: vec![NAMES[ORIGINAL].into()],
        ..Membership::default()
    }
}

impl Node {
    fn reload(&mut self, membership: &Membership) -> Outbox {
        let view = View::build(Some(&self.view), membership).expect("a good configuration");
        self.view = Arc::new(view);
        let view = self.view.clone();
        self.handle(Event::View(view))
    }
}

#[test]
fn a_timer_that_moves_away_from_an_original_ends_there_before_both_pop_it() {
    let id = id_of(&[ORIGINAL, 0]);
    let (mut one, mut two) = (Node::new(0), Node::new(1));
    // `soon` is due soon and stays where it is until it has popped. `id` is moved at once.
    let soon = TimerId(id.0 + (1..).find(|more| id_is_like(id, *more)).expect("every sixth"));
    one.hear(Told::at(id, START_MS - 2_000, 0), &[ORIGINAL, 0], Some("one"));
    one.hear(Told::at(soon, START_MS - 8_500, 0), &[ORIGINAL, 0], Some("soon"));
    two.reload(&leaving(1));
    let mut told = one.reload(&leaving(0));
    for _ in 0..20 {
        talk(&mut one, &mut two, &told);
        two.pass_to(one.now_ms);
        told = one.pass_to(one.now_ms + 20);
    }
    assert!(two.live(id).is_live() && two.record(soon).is_none());
    let [(is_live, sequence, start_ms)] = one.told[..] else { panic!("{:?}", one.told) };
    assert_eq!((is_live, sequence), (false, 0));
    assert!(start_ms >= START_MS, "as of now, not of the timer's start: {start_ms}");
    // The next pop of `soon` moves it. A node that has just started asks others before it pops.
    while one.now_ms < START_MS + 4_000 {
        told = one.pass_to(one.now_ms + 20);
        talk(&mut one, &mut two, &told);
        two.pass_to(one.now_ms);
    }
    assert!(one.told[1..].iter().any(|told| told.1 == 1), "{:?}", one.told);
}

#[test]
fn what_an_original_moved_away_is_not_deleted() {
    let id = id_of(&[0, 1]);
    let (mut one, mut two) = (Node::new(0), Node::new(1));
    for node in [&mut one, &mut two] {
        node.hear(Told::at(id, START_MS, 2), &[0, 1], Some("one"));
    }
    // The original has read the timer from this node and holds it now, with the other node.
    one.hear(Told::at(id, START_MS, 3), &[ORIGINAL, 1], None);
    assert_eq!(one.live(id).key(), two.live(id).key());
    let told = one.pass_to(START_MS + 10_100);
    talk(&mut one, &mut two, &told);
    assert!(one.pops.is_empty() && !two.is_over(id), "who is listed acts");
    // A delete names all nodes, and starts now.
    one.hear(Told::at(id, START_MS + 10_100, 0), &[ORIGINAL, 1], None);
    assert!(one.is_over(id));
}

/// Whether the id that is so much higher has the same holders.
fn id_is_like(id: TimerId, more: u64) -> bool {
    let node = Node::new(0);
    let place = |id| node.view.place(id, 2, node.view.new_nodes());
    place(TimerId(id.0 + more)) == place(id)
}

#[test]
fn a_walk_over_what_was_read_from_originals_wakes_a_core() {
    let mut node = Node::new(0);
    assert_eq!(node.shard.reads_at(), None);
    node.begin_with_journal();
    assert_eq!(node.shard.reads_at(), None, "nothing is read yet");
    node.shard.readings.as_mut().expect("begun").next = Some(Slot(3));
    let next = node.shard.turns.at + 1;
    assert_eq!(node.shard.reads_at(), Some(next));
    assert!(node.shard.next_wake().is_some_and(|wake| wake <= next));
}
