//! Writes on their way: clocks that are wrong, limits of waiting, replicas that could not be told
//! or do not take a write, and how a write is made again.

use super::super::effects::{Dialect, Event, Request};
use super::super::harness_tests::{
    Cluster, FROM, START_MS, TICKET, content, definition, target, tell,
};
use super::super::parts::writes::{Body, Writes};
use super::*;
use crate::base::ids::{NodeHash, TimerId};
use crate::base::ranked::{Replicas, Sites};
use crate::base::time::WallMs;
use crate::cluster::detector::Liveness;
use crate::journal::Position;
use crate::wire::peer_message::{Standing, decode_message, decode_result};

const ID: TimerId = TimerId(7);

/// Three nodes, in the order in which they are to hold the timer.
fn cluster() -> (Cluster, [usize; 3]) {
    let cluster = Cluster::new(3, true);
    let list = cluster.list(ID);
    (cluster, [list[0], list[1], list[2]])
}

fn hash(cluster: &Cluster, node: usize) -> NodeHash {
    let peer = cluster.peer(node, node).expect("a member");
    cluster.nodes[node].view.hash_of(peer)
}

fn list(cluster: &Cluster, nodes: &[usize]) -> Replicas {
    nodes.iter().map(|node| hash(cluster, *node)).collect()
}

/// The peers of these nodes, as the node `at` numbers them.
fn peers(cluster: &Cluster, at: usize, nodes: &[usize]) -> PeerSet {
    let peers = nodes.iter().map(|node| cluster.peer(at, *node).expect("a member"));
    peers.fold(PeerSet::EMPTY, PeerSet::with)
}

fn outline(placement: Placement, version: u64, sequence: u64) -> Outline {
    Outline {
        id: ID,
        key: StateKey { version: Version(version), sequence },
        start: Tick(START_MS),
        interval_ms: 10_000,
        repeat_for_ms: 90_000,
        placement,
    }
}

fn body() -> Option<Body> {
    Some(Body { authority: "host:80".to_owned(), content: content() })
}

fn waiting(outline: Outline) -> Waiting {
    Waiting {
        from: None,
        asked_at: Tick(START_MS),
        outline,
        body: None,
        waiting: PeerSet::EMPTY,
        asked: PeerSet::EMPTY,
        held: PeerSet::EMPTY,
        refused: PeerSet::EMPTY,
        reason: Refusal::NoRoom,
        gives_way: false,
        is_create: false,
        tries: 1,
        is_decided: false,
        is_identified: false,
        position: Position::default(),
    }
}

/// A write that concerns this node alone does not wait.
#[test]
fn a_write_needs_room_to_wait_if_any_other_node_is_to_hear_of_it() {
    let (mut cluster, [own, second, third]) = cluster();
    let [alone, both, elsewhere] =
        [&[own][..], &[own, second], &[second]].map(|nodes| list(&cluster, nodes));
    let extras = peers(&cluster, own, &[third]);
    for writes_max in [0, 1, 2] {
        let shard = cluster.shard(own);
        shard.config.cluster.writes_waiting_max = writes_max;
        shard.writes = Writes::default();
        let placement = shard.placement(both, Sites::new(), 2);
        shard.writes.waiting.insert(waiting(outline(placement, 1 << 30, 0)));
        for (replicas, extras, waits) in [
            (alone, PeerSet::EMPTY, false),
            (alone, extras, true),
            (both, PeerSet::EMPTY, true),
            (elsewhere, PeerSet::EMPTY, true),
        ] {
            let placement = shard.placement(replicas, Sites::new(), 2);
            let plan = Plan { placement, extras, is_create: false };
            let room = if waits && writes_max < 2 { Err(Refusal::WritesFull) } else { Ok(()) };
            assert_eq!(shard.room_for_a_write(&plan), room, "{replicas:?} {writes_max}");
        }
    }
}

/// The nodes that have a write and understand the message are told. This node and originals are
/// not.
#[test]
fn those_that_have_a_write_are_told_who_lacks_it() {
    let (mut cluster, all) = cluster();
    let [own, second, third] = all;
    for (held, is_original, expected) in [
        (&[own, second, third][..], false, vec![]),
        (&[second, third], false, vec![(second, own), (third, own)]),
        (&[own, second], false, vec![(second, third)]),
        (&[second], false, vec![(second, own), (second, third)]),
        (&[own], false, vec![]),
        (&[], false, vec![]),
        (&[second, third], true, vec![(third, own)]),
    ] {
        let peer = cluster.peer(own, second).expect("a member");
        let dialect = if is_original { Dialect::Http } else { Dialect::Frames };
        let liveness = Liveness::Alive;
        cluster.handle(own, Event::Peer { peer, liveness, dialect, has_gaps: false });
        let (replicas, had) = (list(&cluster, &all), peers(&cluster, own, held));
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(to, by)| (cluster.peer(own, to).expect("a member"), hash(&cluster, by)))
            .collect();
        let shard = cluster.shard(own);
        let write = waiting(outline(shard.placement(replicas, Sites::new(), 3), 1 << 30, 0));
        let mut outbox = Outbox::default();
        shard.tell_of_missing(&write, had, &mut outbox);
        let told: Vec<_> = outbox
            .to_peers
            .iter()
            .map(|message| {
                assert_eq!(message.purpose, Purpose::News(ID));
                let bytes = &outbox.peer_bytes[message.bytes.clone()];
                match decode_message(&mut &bytes[..]).expect("encoded by a shard") {
                    PeerMessage::Missed { id: ID, by } => (message.peer, by),
                    other => panic!("{other:?}"),
                }
            })
            .collect();
        let is_told = |one: &_| told.contains(one);
        assert!(expected.iter().all(is_told) && told.len() == expected.len(), "{held:?} {told:?}");
    }
}

/// The end has a version above the one that was told. It is held here if the timer is, and goes to
/// all nodes that were told, except this node.
#[test]
fn a_create_that_was_not_taken_is_ended_wherever_it_may_be() {
    for is_held in [false, true] {
        let (mut cluster, [own, second, third]) = cluster();
        let now = cluster.now();
        let (replicas, told) =
            (list(&cluster, &[own, second]), peers(&cluster, own, &[own, second, third]));
        let version = Version::of_start(now.wall).0 + 9;
        let shard = cluster.shard(own);
        let placement = shard.placement(replicas, Sites::new(), 2);
        let made = Outline {
            start: Tick(START_MS - 5),
            interval_ms: 70_000,
            repeat_for_ms: 140_000,
            ..outline(placement, version, 3)
        };
        if is_held {
            let authority = shard.records.enter_authority("host:80");
            let at = Tick(START_MS);
            shard.records.hold(&shard.peers, at, (&made, None), authority, &content());
        }
        let mut outbox = Outbox::default();
        shard.undo(now, told, &made, &mut outbox);
        let to = outbox.to_peers.iter().map(|message| message.peer);
        let to = to.fold(PeerSet::EMPTY, PeerSet::with);
        assert_eq!(to, told.without(shard.peers.own()));
        let mut ended_at = None;
        for message in &outbox.to_peers {
            assert_eq!(message.purpose, Purpose::News(ID));
            let bytes = &outbox.peer_bytes[message.bytes.clone()];
            let ended = match decode_message(&mut &bytes[..]).expect("encoded by a shard") {
                PeerMessage::Copy(ended) => ended,
                other => panic!("{other:?}"),
            };
            let later = ended.standing.version;
            assert!(later > version);
            let key = StateKey { version: Version(later), ..made.key };
            // Only standings without their list are sent with its digest.
            let standing = Standing { list_digest: 0, ..ended.standing };
            let expected = bare_copy(&Outline { key, ..made });
            assert_eq!(TimerCopy { standing, ..ended }, expected);
            assert!(!ended.is_write && ended.body.is_none());
            assert_eq!((ended.start_ms, ended.interval_ms), (START_MS - 5, 70_000));
            assert_eq!((ended.standing.sequence, ended.replicas), (3, replicas));
            ended_at = Some(later);
        }
        let slot = shard.find(ID);
        assert_eq!(slot.is_some(), is_held, "what is not held needs no tombstone");
        if let Some(slot) = slot {
            let record = *shard.records.get(slot);
            assert!(!record.is_live());
            assert_eq!((Some(record.version.0), record.sequence), (ended_at, 3));
            assert_eq!((record.start, record.interval_ms), (Tick(START_MS - 5), 70_000));
            assert_eq!(shard.records.placement_of(&record).replicas, replicas);
        }
        shard.audit().expect("all parts agree");
    }
}

/// A write made again keeps the pops that were made here meanwhile, with its own version and above
/// another one.
#[test]
fn a_write_that_is_made_again_keeps_the_pops_that_were_made() {
    let (_, [own, second, _]) = cluster();
    for (seen_above, sequence) in [(None, 4), (Some(1), 4)] {
        let (mut cluster, _) = cluster();
        let now = cluster.now();
        let replicas = list(&cluster, &[own, second]);
        let version = Version::of_start(now.wall).0 + 9;
        let shard = cluster.shard(own);
        let placement = shard.placement(replicas, Sites::new(), 2);
        let authority = shard.records.enter_authority("host:80");
        let held = outline(placement, version, 4);
        shard.records.hold(&shard.peers, Tick(START_MS), (&held, None), authority, &content());
        let write = waiting(outline(placement, version, 0));
        let key = shard.writes.waiting.insert(Waiting { body: body(), ..write });
        let seen = seen_above.map(|more: u64| Version(version + more));
        let mut outbox = Outbox::default();
        shard.write_again(now, key, (seen, 2), &mut outbox);
        let [told] = &outbox.to_peers[..] else { panic!("{:?}", outbox.to_peers.len()) };
        let bytes = &outbox.peer_bytes[told.bytes.clone()];
        match decode_message(&mut &bytes[..]).expect("encoded by a shard") {
            PeerMessage::Copy(copy) => {
                assert_eq!(copy.standing.sequence, sequence);
                let is_same = copy.standing.version == version;
                assert_eq!(is_same, seen.is_none());
                assert!(seen.is_none_or(|seen| copy.standing.version > seen.0));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(shard.writes.len(), 1);
    }
}

#[test]
fn a_write_that_was_made_too_often_is_refused_and_counted() {
    for (seen, from, is_create, refusal) in [
        (None, Some(FROM), false, Some(Refusal::Unanswered)),
        (Some(Version(1)), Some(FROM), false, Some(Refusal::Contended)),
        (Some(Version(1)), Some(FROM), true, Some(Refusal::Contended)),
        (Some(Version(1)), None, true, None),
    ] {
        let (mut cluster, [own, second, _]) = cluster();
        let (now, replicas) = (cluster.now(), list(&cluster, &[own, second]));
        let asked = peers(&cluster, own, &[second]);
        let shard = cluster.shard(own);
        let placement = shard.placement(replicas, Sites::new(), 2);
        let write = waiting(outline(placement, 1 << 30, 0));
        let write = Waiting { body: body(), from, asked, is_create, ..write };
        let key = shard.writes.waiting.insert(Waiting { tries: TRIES_MAX, ..write });
        let mut outbox = Outbox::default();
        shard.write_again(now, key, (seen, 2), &mut outbox);
        let answers: Vec<_> = outbox.replies.into_iter().map(|reply| reply.answer).collect();
        let expected: Vec<_> = refusal.into_iter().map(Answer::Refused).collect();
        assert_eq!(answers, expected);
        assert_eq!(shard.counters.refused, expected.len() as u64);
        // A create that its client takes for refused is ended wherever it may be.
        let ended = usize::from(is_create && from.is_some());
        assert_eq!((shard.writes.len(), outbox.to_peers.len()), (0, ended));
    }
}

/// No node has the write, and none is left that may have it.
#[test]
fn a_write_that_nobody_has_is_not_answered_as_done() {
    let (mut cluster, [own, second, _]) = cluster();
    let (now, replicas) = (cluster.now(), list(&cluster, &[second]));
    let shard = cluster.shard(own);
    let write = waiting(outline(shard.placement(replicas, Sites::new(), 1), 1 << 30, 0));
    let write = Waiting { from: Some(FROM), tries: TRIES_MAX, ..write };
    let key = shard.writes.waiting.insert(write);
    let mut outbox = Outbox::default();
    shard.settle_write(now, key, &mut outbox);
    let answers: Vec<_> = outbox.replies.into_iter().map(|reply| reply.answer).collect();
    assert_eq!(answers, [Answer::Refused(Refusal::NoReplica)]);
    assert_eq!((shard.counters.refused, shard.writes.len()), (1, 0));
}

/// An original that is not to hold the timer may not know the timer at all.
#[test]
fn whoever_does_not_take_a_write_has_refused_it_but_for_originals_beside_the_list() {
    for (dialect, is_listed, is_refused) in [
        (Dialect::Frames, true, true),
        (Dialect::Frames, false, true),
        (Dialect::Http, true, true),
        (Dialect::Http, false, false),
    ] {
        let (mut cluster, [own, second, third]) = cluster();
        let (about, other) = if is_listed { (second, third) } else { (third, second) };
        let (peer, liveness) = (cluster.peer(own, about).expect("a member"), Liveness::Alive);
        cluster.handle(own, Event::Peer { peer, liveness, dialect, has_gaps: false });
        let (now, both) = (cluster.now(), peers(&cluster, own, &[about, other]));
        let replicas = list(&cluster, &[own, second]);
        let shard = cluster.shard(own);
        let write = waiting(outline(shard.placement(replicas, Sites::new(), 2), 1 << 30, 0));
        let key = shard.writes.waiting.insert(Waiting { waiting: both, asked: both, ..write });
        let result = PeerResult::Otherwise;
        shard.write_result(now, peer, key, result, &mut Outbox::default());
        let write = shard.writes.waiting.get(key).expect("it waits for the other");
        assert_eq!(write.refused.contains(peer), is_refused, "{dialect:?} {is_listed}");
        assert_eq!(write.reason == Refusal::NotTaken, is_refused);
        assert!(!write.waiting.contains(peer));
    }
}

const HOUR_MS: u64 = 3_600_000;

fn version_of(cluster: &mut Cluster, node: usize, id: TimerId) -> Option<Version> {
    let shard = cluster.shard(node);
    shard.find(id).map(|slot| shard.records.get(slot).version)
}

/// What a node answers to a message of another node, told as bytes.
fn told(cluster: &mut Cluster, to: usize, from: usize, message: &PeerMessage<'_>) -> Vec<u8> {
    let (now, from) = (cluster.now_of(to), cluster.peer(to, from));
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    tell(cluster.shard(to), now, from, &bytes).0
}

#[test]
fn the_last_write_wins_whatever_the_clocks_say() {
    let mut cluster = Cluster::new(3, true);
    for (at, wrong) in [(0, 0), (1, 1), (2, 2)] {
        let id = TimerId(100 + at);
        let [.., outside] = cluster.list(id)[..] else { panic!("three") };
        cluster.nodes[wrong].ahead_ms = HOUR_MS;
        cluster.put(wrong, id, (10, 10), 2);
        for node in [outside, 0, 1, 2, outside] {
            cluster.put(node, id, (20, 20), 2);
        }
        cluster.nodes[wrong].ahead_ms = 0;
        cluster.put(wrong, id, (30, 30), 2);
        cluster.put(outside, id, (40, 40), 2);
    }
    let begun = cluster.now_ms;
    cluster.run_until((begun - START_MS) / 1_000 + 60);
    assert_eq!(cluster.pops.len(), 3, "the last definitions alone: {:?}", cluster.pops);
    assert!(cluster.pops.iter().all(|(second, ..)| *second >= 40));
    for node in 0..3 {
        let id = cluster.create(node, (10, 10), 2);
        let now = cluster.now();
        let holder = cluster.holders(id)[0];
        let version = version_of(&mut cluster, holder, id).expect("held");
        assert_eq!(version.wall(), now.wall, "no clock has learnt of the wrong one");
        let answer = cluster.ask(node, Request::Delete(target(id, 2)));
        assert!(matches!(answer, Answer::Done { .. }));
        assert!(cluster.holders(id).is_empty());
    }
    cluster.audit();
}

#[test]
fn a_node_that_is_an_hour_behind_hears_of_pops_and_writes() {
    let mut cluster = Cluster::new(2, true);
    cluster.nodes[0].ahead_ms = HOUR_MS;
    let ids: Vec<TimerId> = (0..20).map(|at| cluster.create(at % 2, (10, 20), 2)).collect();
    assert!(ids.iter().all(|&id| cluster.holders(id) == [0, 1]));
    cluster.run_until(15);
    assert_eq!(cluster.pops.len(), 20);
    cluster.kill(0);
    cluster.run_until(40);
    assert_eq!(cluster.pops.len(), 40, "each once: {:?}", cluster.pops);
    cluster.audit();
}

#[test]
fn what_no_clock_can_have_given_out_is_refused() {
    let mut cluster = Cluster::new(2, true);
    let id = cluster.create(0, (10, 10), 2);
    let shard = cluster.shard(0);
    let record = *shard.records.get(shard.find(id).expect("held"));
    let standing = shard.standing_of(&record);
    for version in [u64::MAX, Version::of_start(Version::WALL_MAX).0 + (1 << 22)] {
        let standing = Standing { version, ..standing };
        let answer = told(&mut cluster, 1, 0, &PeerMessage::Standing(standing));
        assert!(matches!(decode_result(&mut &answer[..]), Ok(PeerResult::Refused(_))));
    }
    assert_eq!(cluster.shard(1).counters().refused, 2);
    let mut impossible = Vec::new();
    let mut room = Vec::new();
    let mut copy = cluster.shard(0).copy_of(&record, &mut room);
    copy.standing.version = u64::MAX;
    PeerMessage::Copy(copy).encode(&mut impossible);
    let message = decode_message(&mut &impossible[..]).expect("encoded above");
    let refused = cluster.shard(1).counters().refused;
    let answer = told(&mut cluster, 1, 0, &message);
    assert!(matches!(decode_result(&mut &answer[..]), Ok(PeerResult::Refused(_))));
    assert_eq!(cluster.shard(1).counters().refused, refused + 1);
    let held = version_of(&mut cluster, 1, id);
    let answer = told(&mut cluster, 1, 0, &PeerMessage::Standing(standing));
    assert_eq!(decode_result(&mut &answer[..]), Ok(PeerResult::Held), "the same is held");
    let ahead = Standing { version: standing.version + 1, ..standing };
    let answer = told(&mut cluster, 1, 0, &PeerMessage::Standing(ahead));
    assert_eq!(decode_result(&mut &answer[..]), Ok(PeerResult::Wanted));
    assert_eq!(version_of(&mut cluster, 1, id), held);
}

/// Two connections may carry one write. Two writes may have one version, if the clock of their node
/// was set back between them.
#[test]
fn a_write_that_comes_twice_is_one_and_another_of_its_version_is_not() {
    let mut cluster = Cluster::new(2, true);
    let id = cluster.create(0, (100, 100), 2);
    let shard = cluster.shard(0);
    let mut bytes = Vec::new();
    let record = *shard.records.get(shard.find(id).expect("held"));
    let mut room = Vec::new();
    let mut copy = shard.copy_of(&record, &mut room);
    copy.is_write = true;
    PeerMessage::Copy(copy).encode(&mut bytes);
    copy.start_ms += 60_000;
    let mut other = Vec::new();
    PeerMessage::Copy(copy).encode(&mut other);
    for (bytes, is_same) in [(bytes, true), (other, false)] {
        let message = decode_message(&mut &bytes[..]).expect("encoded above");
        let answer = told(&mut cluster, 1, 0, &message);
        let result = decode_result(&mut &answer[..]).expect("encoded by a shard");
        assert_eq!(result == PeerResult::Held, is_same, "{result:?}");
        assert_eq!(matches!(result, PeerResult::Superseded { .. }), !is_same);
    }
}

/// The node that takes a write cannot reach one of the replicas. Other nodes can.
#[test]
fn a_replica_that_could_not_be_told_is_told_by_another() {
    let mut cluster = Cluster::new(3, true);
    let id = TimerId(7);
    let [first, second, outside] = cluster.list(id)[..] else { panic!("three") };
    cluster.cuts.push((outside, second));
    cluster.believe(outside, second, Liveness::Suspect);
    cluster.put(outside, id, (100, 100), 2);
    let mut both = vec![first, second];
    both.sort_unstable();
    assert_eq!(cluster.holders(id), both);
    cluster.audit();
}

#[test]
fn so_many_writes_and_reads_wait_and_no_more() {
    let mut cluster = Cluster::new(2, true);
    cluster.shard(0).config.cluster.writes_waiting_max = 2;
    cluster.mute = Some(1);
    let content = content();
    let create = |cluster: &mut Cluster| {
        let request = Request::Create(definition((100, 100), 2, &content));
        cluster.handle(0, Event::Request { from: FROM, request });
        cluster.answers.pop()
    };
    assert_eq!([create(&mut cluster), create(&mut cluster)], [None, None]);
    assert_eq!(create(&mut cluster), Some(Answer::Refused(Refusal::WritesFull)));
    cluster.end_of_silence(true);
    assert_eq!(cluster.answers.len(), 2);
    cluster.answers.clear();
    assert!(matches!(create(&mut cluster), Some(Answer::Done { .. })), "their places are free");
    cluster.mute = Some(1);
    for at in 0..65_537_u64 {
        let request = Request::Read(target(TimerId(at), 1));
        cluster.handle(0, Event::Request { from: FROM, request });
    }
    assert_eq!(cluster.answers, [Answer::Refused(Refusal::WritesFull)]);
}

/// The node's connections to peers come after its clients. Alone it would answer for others that
/// hold the timer.
#[test]
fn a_node_that_has_just_started_answers_no_write_alone() {
    let mut cluster = Cluster::new(2, true);
    let id = TimerId(7);
    cluster.put(1, id, (100, 100), 2);
    cluster.nodes[0].shard = None;
    cluster.start(0);
    cluster.mute = Some(1);
    let request = Request::Delete(target(id, 2));
    cluster.handle(0, Event::Request { from: FROM, request });
    assert_eq!(cluster.answers, [], "the other one is there, as far as anybody knows");
    cluster.end_of_silence(true);
    assert!(matches!(cluster.answers[..], [Answer::Done { .. }]), "{:?}", cluster.answers);
    assert!(cluster.holders(id).is_empty());

    cluster.nodes[1].shard = None;
    cluster.nodes[0].shard = None;
    cluster.answers.clear();
    cluster.start(0);
    cluster.mute = None;
    cluster.handle(0, Event::Request { from: FROM, request });
    cluster.run_until((cluster.now_ms - START_MS) / 1_000 + 2);
    assert!(matches!(cluster.answers[..], [Answer::Done { .. }]), "{:?}", cluster.answers);
}

/// A node that is taken out of its cluster keeps nothing. It ends, with everything that it has.
#[test]
fn a_node_that_has_left_answers_no_write_alone() {
    let mut cluster = Cluster::new(3, true);
    let id = (1..).map(TimerId).find(|id| cluster.list(*id)[0] == 0).expect("one in three");
    let content = content();
    let update = || Request::Update(target(id, 1), definition((100, 100), 1, &content));
    cluster.mute = Some(0);
    cluster.handle(2, Event::Request { from: FROM, request: update() });
    assert_eq!(cluster.answers, [], "it waits for the holder");
    let former = cluster.nodes[2].view.clone();
    cluster.nodes[2].view = cluster.view_of(2, 0, Some(&former));
    let view = cluster.nodes[2].view.clone();
    cluster.handle(2, Event::View(view));
    for (at, peer, purpose, _) in std::mem::take(&mut cluster.unheard) {
        cluster.handle(at, Event::PeerUnheard { peer, purpose });
    }
    assert_eq!(cluster.answers, [Answer::Refused(Refusal::NoReplica)], "the one that waited");
    let create = Request::Create(definition((100, 100), 1, &content));
    let (delete, read) = (Request::Delete(target(id, 1)), Request::Read(target(id, 1)));
    for request in [update(), create, delete, read] {
        assert_eq!(cluster.ask(2, request), Answer::Refused(Refusal::HasLeft));
    }
    assert_eq!(cluster.shard(2).counters().timers, 0);
}

/// By default 3 s until a node is declared dead, and 5 s more.
#[test]
fn a_write_waits_for_eight_seconds_and_not_a_millisecond_longer() {
    let mut cluster = Cluster::new(2, true);
    cluster.mute = Some(1);
    let content = content();
    let request = Request::Create(definition((100, 100), 2, &content));
    cluster.handle(0, Event::Request { from: FROM, request });
    let mut outbox = Outbox::default();
    cluster.shard(0).end_writes(Tick(START_MS + 7_999), &mut outbox);
    assert_eq!(outbox.replies, []);
    cluster.shard(0).end_writes(Tick(START_MS + 8_000), &mut outbox);
    let answers: Vec<_> = outbox.replies.into_iter().map(|reply| reply.answer).collect();
    assert_eq!(answers, [Answer::Refused(Refusal::Unanswered)]);
    assert_eq!(cluster.shard(0).counters().refused, 1);
    let peer = cluster.peer(0, 1).expect("a member");
    let (liveness, dialect) = (Liveness::Dead, Dialect::Frames);
    cluster.handle(0, Event::Peer { peer, liveness, dialect, has_gaps: false });
    assert_eq!(cluster.answers, [], "it is not answered twice");
}

#[test]
fn copies_that_lie_ahead_of_all_clocks_are_counted() {
    let mut cluster = Cluster::new(2, true);
    let id = cluster.create(0, (100, 100), 2);
    for (ahead_ms, counted) in [(0, 0), (100 * HOUR_MS, 1), (200 * HOUR_MS, 2)] {
        let wall = WallMs(cluster.now_ms + 10 + ahead_ms);
        let shard = cluster.shard(0);
        let record = *shard.records.get(shard.find(id).expect("held"));
        let mut room = Vec::new();
        let mut copy = shard.copy_of(&record, &mut room);
        copy.standing.version = Version::of_start(wall).0;
        let mut bytes = Vec::new();
        PeerMessage::Copy(copy).encode(&mut bytes);
        let message = decode_message(&mut &bytes[..]).expect("encoded above");
        let answer = told(&mut cluster, 1, 0, &message);
        assert_eq!(decode_result(&mut &answer[..]), Ok(PeerResult::Held));
        assert_eq!(cluster.shard(1).counters().future_versions, counted, "{ahead_ms}");
    }
}

/// A client that wants an answer soon gets it from the first node that has the timer. A client that
/// wants the timer safe gets it when all live nodes have the timer.
#[test]
fn a_write_is_answered_when_as_many_have_it_as_is_asked_for() {
    for (acknowledge, is_answered) in [(Acknowledge::First, true), (Acknowledge::Replicas, false)] {
        let mut cluster = Cluster::new(3, true);
        let id = TimerId(7);
        let [first, second, outside] = cluster.list(id)[..] else { panic!("three") };
        cluster.mute = Some(second);
        for node in [first, outside] {
            cluster.shard(node).config.cluster.acknowledge = acknowledge;
            let content = content();
            let request = Request::Update(target(id, 2), definition((60, 60), 2, &content));
            cluster.answers.clear();
            cluster.handle(node, Event::Request { from: FROM, request });
            assert_eq!(cluster.answers.len(), usize::from(is_answered), "{acknowledge:?}");
        }
        cluster.end_of_silence(true);
        assert_eq!(cluster.answers.len(), if is_answered { 1 } else { 2 });
        assert!(cluster.answers.iter().all(|answer| matches!(answer, Answer::Done { .. })));
        cluster.audit();
    }
}

#[test]
fn a_peer_that_tells_of_an_earlier_write_is_told_of_the_present_one() {
    let mut cluster = Cluster::new(2, true);
    let id = cluster.create(0, (100, 100), 2);
    let shard = cluster.shard(0);
    let mut earlier = Vec::new();
    let record = *shard.records.get(shard.find(id).expect("held"));
    PeerMessage::Copy(shard.copy_of(&record, &mut Vec::new())).encode(&mut earlier);
    cluster.now_ms += 10;
    cluster.put(0, id, (50, 50), 2);
    let present = version_of(&mut cluster, 1, id).expect("held");
    let (now, from) = (cluster.now_of(1), cluster.peer(1, 0));
    let message = decode_message(&mut &earlier[..]).expect("encoded above");
    let event = Event::PeerMessage { ticket: TICKET, from, clock_offset_ns: 0, message };
    let mut outbox = Outbox::default();
    cluster.shard(1).handle(now, event, &mut outbox);
    let [told] = &outbox.to_peers[..] else { panic!("{:?}", outbox.to_peers.len()) };
    assert_eq!(Some(told.peer), from);
    let bytes = &outbox.peer_bytes[told.bytes.clone()];
    match decode_message(&mut &bytes[..]).expect("encoded by a shard") {
        PeerMessage::Copy(TimerCopy { standing, .. }) | PeerMessage::Standing(standing) => {
            assert_eq!(standing.version, present.0);
        }
        other => panic!("{other:?}"),
    }
}

/// A node that is told of its own lack of room knows better.
#[test]
fn a_peer_without_room_is_heard_of_from_others() {
    let mut cluster = Cluster::new(3, true);
    let (own, other) = (cluster.peer(0, 0), cluster.peer(0, 2).expect("a member"));
    for (at, full) in [(own.expect("a member"), vec![]), (other, vec![other])] {
        let at = cluster.nodes[0].view.hash_of(at);
        told(&mut cluster, 0, 1, &PeerMessage::NoRoom { id: TimerId(7), at });
        let now = cluster.now().mono.tick_floor();
        assert_eq!(cluster.shard(0).peers.full(now).iter().collect::<Vec<_>>(), full);
    }
}

#[test]
fn writes_that_others_have_are_counted() {
    let mut cluster = Cluster::new(2, true);
    for written in 1..=3 {
        cluster.create(0, (100, 100), 2);
        let counters = *cluster.shard(0).counters();
        assert_eq!((counters.replicated, counters.refused), (written, 0));
    }
    // The node is no holder of this timer, and the only holder is dead.
    let id = (0..100).map(TimerId).find(|id| cluster.list(*id)[0] == 1).expect("half of them");
    cluster.mute = Some(1);
    let content = content();
    let request = Request::Update(target(id, 1), definition((100, 100), 1, &content));
    cluster.answers.clear();
    cluster.handle(0, Event::Request { from: FROM, request });
    assert_eq!(cluster.answers, []);
    cluster.end_of_silence(false);
    assert!(matches!(cluster.answers[..], [Answer::Done { .. }]), "{:?}", cluster.answers);
}
