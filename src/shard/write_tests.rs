//! Writes on their way: clocks that are wrong, replicas that could not be told, limits of waiting.

use super::effects::{Answer, Dialect, Event, Outbox, Refusal, Request, Target};
use super::harness_tests::{Cluster, FROM, START_MS, TICKET, content, definition};
use crate::base::ids::TimerId;
use crate::base::limits::Acknowledge;
use crate::base::time::{Tick, WallMs};
use crate::cluster::detector::Liveness;
use crate::timer::version::Version;
use crate::wire::peer_message::{
    PeerMessage, PeerResult, Standing, TimerCopy, decode_message, decode_result,
};

const HOUR_MS: u64 = 3_600_000;

fn target(id: TimerId, factor: u8) -> Target {
    Target { id, factor: Some(factor), filter: None }
}

fn put(cluster: &mut Cluster, node: usize, id: TimerId, seconds: u64) {
    let content = content();
    let request = Request::Update(target(id, 2), definition((seconds, seconds), 2, &content));
    let answer = cluster.ask(node, request);
    assert!(matches!(answer, Answer::Done { .. }), "{answer:?}");
}

fn version_of(cluster: &mut Cluster, node: usize, id: TimerId) -> Option<Version> {
    let shard = cluster.shard(node);
    shard.find(id).map(|slot| shard.records.get(slot).version)
}

/// What a node answers to a message of another, told as bytes.
fn told(cluster: &mut Cluster, to: usize, from: usize, message: &PeerMessage<'_>) -> Vec<u8> {
    let (now, from) = (cluster.now_of(to), cluster.peer(to, from));
    let (mut bytes, mut outbox) = (Vec::new(), Outbox::default());
    message.encode(&mut bytes);
    let message = decode_message(&mut &bytes[..]).expect("encoded above");
    let event = Event::PeerMessage { ticket: TICKET, from, clock_offset_ns: 0, message };
    cluster.shard(to).handle(now, event, &mut outbox);
    let reply = outbox.peer_replies.pop().expect("every message is answered");
    outbox.peer_bytes[reply.bytes].to_vec()
}

#[test]
fn the_last_write_wins_whatever_the_clocks_say() {
    let mut cluster = Cluster::new(3, true);
    for (at, wrong) in [(0, 0), (1, 1), (2, 2)] {
        let id = TimerId(100 + at);
        let [.., outside] = cluster.list(id)[..] else { panic!("three") };
        cluster.nodes[wrong].ahead_ms = HOUR_MS;
        put(&mut cluster, wrong, id, 10);
        for node in [outside, 0, 1, 2, outside] {
            put(&mut cluster, node, id, 20);
        }
        cluster.nodes[wrong].ahead_ms = 0;
        put(&mut cluster, wrong, id, 30);
        put(&mut cluster, outside, id, 40);
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
    let mut impossible = Vec::new();
    let mut copy = cluster.shard(0).copy_of(&record);
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

/// Two connections may carry one write; and two writes may have one version, when the clock of
/// their node was set back between them.
#[test]
fn a_write_that_comes_twice_is_one_and_another_of_its_version_is_not() {
    let mut cluster = Cluster::new(2, true);
    let id = cluster.create(0, (100, 100), 2);
    let shard = cluster.shard(0);
    let mut bytes = Vec::new();
    let record = *shard.records.get(shard.find(id).expect("held"));
    let mut copy = shard.copy_of(&record);
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

/// The node that takes a write cannot reach one of the replicas, others can.
#[test]
fn a_replica_that_could_not_be_told_is_told_by_another() {
    let mut cluster = Cluster::new(3, true);
    let id = TimerId(7);
    let [first, second, outside] = cluster.list(id)[..] else { panic!("three") };
    cluster.cuts.push((outside, second));
    cluster.believe(outside, second, Liveness::Suspect);
    put(&mut cluster, outside, id, 100);
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

/// Its connections come after its clients: alone it would answer for others that hold the timer.
#[test]
fn a_node_that_has_just_started_answers_no_write_alone() {
    let mut cluster = Cluster::new(2, true);
    let id = TimerId(7);
    put(&mut cluster, 1, id, 100);
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

/// A node that is taken out of its cluster keeps nothing: it ends, and what it has with it.
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
        let mut copy = shard.copy_of(&record);
        copy.standing.version = Version::of_start(wall).0;
        let mut bytes = Vec::new();
        PeerMessage::Copy(copy).encode(&mut bytes);
        let message = decode_message(&mut &bytes[..]).expect("encoded above");
        let answer = told(&mut cluster, 1, 0, &message);
        assert_eq!(decode_result(&mut &answer[..]), Ok(PeerResult::Held));
        assert_eq!(cluster.shard(1).counters().future_versions, counted, "{ahead_ms}");
    }
}

/// Whoever wants an answer soon gets it from the first that has the timer; whoever wants it safe,
/// when all who live have it.
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
    PeerMessage::Copy(shard.copy_of(&record)).encode(&mut earlier);
    cluster.now_ms += 10;
    put(&mut cluster, 0, id, 50);
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

/// A node that is told that it has no room itself knows better.
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
    // Of this timer the node is no holder, and the only one is dead.
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

/// It is as old as the delete, however many pops there had been. A node is away that may have a
/// copy.
#[test]
fn the_tombstone_of_a_delete_is_held_from_the_delete_on() {
    for (early_ms, stays) in [(1, true), (0, false)] {
        let mut cluster = Cluster::new(2, true);
        let (id, content) = (TimerId(7), content());
        let request = Request::Update(target(id, 2), definition((10, 100), 2, &content));
        cluster.ask(0, request);
        cluster.run_until(12);
        assert_eq!(cluster.pops.len(), 1);
        cluster.ask(0, Request::Delete(target(id, 2)));
        let deleted_ms = cluster.now_ms;
        cluster.believe(0, 1, Liveness::Suspect);
        let shard = cluster.shard(0);
        let slot = shard.find(id).expect("a tombstone");
        shard.records.take_out(slot);
        let held_ms = shard.records.tombstone_ms(10_000) + shard.config.cluster.tombstone_hold_ms;
        cluster.now_ms = deleted_ms + held_ms - early_ms;
        let now = cluster.now();
        let shard = cluster.shard(0);
        shard.end_tombstone(now, slot);
        assert_eq!(shard.find(id).is_some(), stays, "{early_ms}");
    }
}
