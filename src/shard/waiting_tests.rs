//! Writes that wait: how many may, who tells those that could not be told, what ends one that was
//! not taken.

use super::super::effects::{Dialect, Event};
use super::super::harness_tests::{Cluster, FROM, START_MS, content};
use super::*;
use crate::base::ids::NodeHash;
use crate::base::ranked::{Replicas, Sites};
use crate::cluster::detector::Liveness;
use crate::wire::peer_message::decode_message;

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

/// These nodes, as the node `at` numbers them.
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
        is_create: false,
        tries: 1,
    }
}

/// One that concerns this node alone waits for nobody.
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

/// Those that have it and understand the message tell those that lack it: neither this node, nor
/// an original.
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

/// It ends above what was told, here if it is held here, and at all who were told, this node not
/// among them.
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
            shard.records.hold(&shard.peers, Tick(START_MS), &made, authority, &content());
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

/// What has popped here meanwhile is told as it is; another write begins anew.
#[test]
fn a_write_that_is_made_again_keeps_the_pops_of_its_own_version() {
    let (_, [own, second, _]) = cluster();
    for (seen_above, sequence) in [(None, 4), (Some(1), 0)] {
        let (mut cluster, _) = cluster();
        let now = cluster.now();
        let replicas = list(&cluster, &[own, second]);
        let version = Version::of_start(now.wall).0 + 9;
        let shard = cluster.shard(own);
        let placement = shard.placement(replicas, Sites::new(), 2);
        let authority = shard.records.enter_authority("host:80");
        let held = outline(placement, version, 4);
        shard.records.hold(&shard.peers, Tick(START_MS), &held, authority, &content());
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
        // A create that its client takes for refused is ended where it may be.
        let ended = usize::from(is_create && from.is_some());
        assert_eq!((shard.writes.len(), outbox.to_peers.len()), (0, ended));
    }
}

/// An original that is not to hold the timer may not know it at all.
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
