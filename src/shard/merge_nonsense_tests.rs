//! What a member says that is well-formed and makes no sense. A shard takes it as far as it can,
//! and does not end.

use crate::base::ids::{PeerIndex, TimerId};
use crate::base::ranked::{Replicas, Sites};
use crate::shard::effects::Answer;
use crate::shard::effects::{Event, Internal, Outbox, Purpose, Request};
use crate::shard::harness_tests::{Cluster, FROM, TICKET, content};
use crate::shard::records::State;
use crate::timer::definition::encode_content;
use crate::wire::peer_message::{
    CopyBody, PeerMessage, PeerRefusal, PeerResult, Standing, TimerCopy, decode_message,
    decode_result,
};
use crate::wire::resync_json::Reference;

/// The node that hears the lies.
const HONEST: usize = 0;
const LIAR: usize = 1;

struct Story {
    cluster: Cluster,
    liar: PeerIndex,
}

impl Story {
    fn new(count: usize) -> Self {
        let cluster = Cluster::new(count, true);
        let liar = cluster.peer(HONEST, LIAR).expect("a member");
        Self { cluster, liar }
    }

    fn handle(&mut self, event: Event<'_>) -> Outbox {
        let (now, mut outbox) = (self.cluster.now_of(HONEST), Outbox::default());
        self.cluster.shard(HONEST).handle(now, event, &mut outbox);
        self.cluster.shard(HONEST).audit().expect("all parts agree");
        outbox
    }

    fn tick(&mut self) -> Outbox {
        let (now, mut outbox) = (self.cluster.now_of(HONEST), Outbox::default());
        self.cluster.shard(HONEST).tick(now, &mut outbox);
        outbox
    }

    /// Lets a tenth of a second pass. Returns what the node asks about a pop, if it asks.
    fn question_of_next_tick(&mut self) -> Option<Purpose> {
        self.cluster.now_ms += 100;
        let outbox = self.tick();
        assert!(outbox.attempts.is_empty());
        let mut purposes = outbox.to_peers.iter().map(|told| told.purpose);
        purposes.find(|purpose| matches!(purpose, Purpose::Question { .. }))
    }

    /// The liar says something. Returns the answer.
    fn say(&mut self, message: PeerMessage<'_>) -> PeerResult<'static> {
        let from = Some(self.liar);
        let mut outbox =
            self.handle(Event::PeerMessage { ticket: TICKET, from, clock_offset_ns: 0, message });
        let reply = outbox.peer_replies.pop().expect("every message is answered");
        match decode_result(&mut &outbox.peer_bytes[reply.bytes]).expect("a result") {
            PeerResult::Held => PeerResult::Held,
            PeerResult::Refused(reason) => PeerResult::Refused(reason),
            other => panic!("{other:?}"),
        }
    }

    /// The hashes of these nodes.
    fn list(&self, nodes: &[usize]) -> Replicas {
        let view = &self.cluster.nodes[HONEST].view;
        let hash = |node: &usize| view.hash_of(self.cluster.peer(HONEST, *node).expect("a member"));
        nodes.iter().map(hash).collect()
    }

    /// A timer of these nodes, which started so many milliseconds ago.
    fn copy<'a>(&self, id: TimerId, list: Replicas, age_ms: i64, content: &'a [u8]) -> Copy<'a> {
        Copy(TimerCopy {
            standing: Standing {
                id,
                version: 1 << 30,
                sequence: 0,
                actives: list.all_ranks(),
                list_digest: list.digest(),
            },
            is_write: false,
            replicas: list,
            factor: 2,
            sites: Sites::new(),
            start_ms: self.cluster.now_ms.saturating_add_signed(-age_ms),
            interval_ms: 10_000,
            repeat_for_ms: 100_000,
            body: Some(CopyBody { authority: "host:80", content }),
        })
    }
}

struct Copy<'a>(TimerCopy<'a>);

impl Copy<'_> {
    fn of(mut self, version: u64, sequence: u64) -> Self {
        (self.0.standing.version, self.0.standing.sequence) = (version, sequence);
        self
    }
}

/// No version is below 0 that could end what a state without room replaces.
#[test]
fn a_state_of_version_0_that_finds_no_room_ends_what_it_replaces() {
    let mut story = Story::new(2);
    let (id, list, short) = (TimerId(5), story.list(&[HONEST, LIAR]), content());
    let mut long = Vec::new();
    encode_content("/pop", &[], &[b'x'; 900], &mut long);
    let told = story.copy(id, list, 0, &short).of(0, 0).0;
    assert_eq!(story.say(PeerMessage::Copy(told)), PeerResult::Held);
    story.cluster.shard(HONEST).records.set_bytes_max(0);
    let told = story.copy(id, list, 0, &long).of(0, 1).0;
    let full = PeerResult::Refused(PeerRefusal::Full);
    assert_eq!(story.say(PeerMessage::Copy(told)), full);
    let shard = story.cluster.shard(HONEST);
    let record = *shard.records.get(shard.find(id).expect("a tombstone"));
    assert_eq!((record.version.0, record.sequence, record.is_live()), (0, 0, false));
    shard.records.set_bytes_max(1 << 40);
    assert_eq!(story.say(PeerMessage::Copy(told)), PeerResult::Held);
    assert_eq!(story.cluster.holders(id), [HONEST], "it is taken when there is room");
}

/// A standing tells ranks without the list that they are of.
#[test]
fn ranks_that_a_list_lacks_do_not_act() {
    let mut story = Story::new(2);
    let (id, list, content) = (TimerId(5), story.list(&[HONEST, LIAR]), content());
    let told = story.copy(id, list, 0, &content).0;
    assert_eq!(story.say(PeerMessage::Copy(told)), PeerResult::Held);
    let popped = Standing { sequence: 1, actives: 0xfff1, ..told.standing };
    assert_eq!(story.say(PeerMessage::Standing(popped)), PeerResult::Held);
    let shard = story.cluster.shard(HONEST);
    let record = shard.records.get(shard.find(id).expect("it is held"));
    let mut room = Vec::new();
    let copy = shard.copy_of(record, &mut room);
    assert_eq!(copy.standing.actives, 0b01);
    let mut encoded = Vec::new();
    PeerMessage::Copy(copy).encode(&mut encoded);
    assert!(decode_message(&mut &encoded[..]).is_ok(), "others understand it");
}

/// A timer is due and waits for what the liar says of it. It is forgotten, because the liar has
/// taken it over, and told anew under the same key with another start. Only then the liar answers.
#[test]
fn an_answer_to_an_old_question_makes_no_pop_early() {
    let mut story = Story::new(3);
    let content = content();
    let is_others = |cluster: &Cluster, id| !cluster.list(id)[..2].contains(&HONEST);
    let id = (1..100).map(TimerId).find(|id| is_others(&story.cluster, *id)).expect("one in three");
    let list = story.list(&[LIAR, HONEST]);
    // The second rank's turn comes 12 s after the start.
    let told = story.copy(id, list, 9_500, &content).0;
    assert_eq!(story.say(PeerMessage::Copy(told)), PeerResult::Held);
    let question = (0..30).find_map(|_| story.question_of_next_tick()).expect("it asks first");
    let references = [0, 1].map(|rank| Reference { id, rank });
    let outbox = story.handle(Event::Request { from: FROM, request: Request::Forget(&references) });
    let accepted = Answer::Internal(Box::new(Internal::Accepted));
    assert_eq!(outbox.replies[0].answer, accepted);
    assert_eq!(story.cluster.shard(HONEST).find(id), None, "it is forgotten");
    let told = story.copy(id, list, -3_600_000, &content).0;
    assert_eq!(story.say(PeerMessage::Copy(told)), PeerResult::Held);
    let result = PeerResult::Held;
    story.handle(Event::PeerResult { peer: story.liar, purpose: question, result });
    story.cluster.now_ms += 1;
    assert!(story.tick().attempts.is_empty(), "it is due in an hour");
    let shard = story.cluster.shard(HONEST);
    let slot = shard.find(id).expect("it is held");
    assert_eq!(shard.records.get(slot).state, State::Armed);
}
