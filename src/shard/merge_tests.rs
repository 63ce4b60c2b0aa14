//! What a copy changes: which of two lists wins, which nodes are told of what another site has
//! told, and what ends where there is no room.

use super::super::effects::{Event, Request};
use super::super::harness_tests::{Cluster, FROM, START_MS, content};
use super::*;
use crate::base::ids::{NodeHash, TimerId};
use crate::base::ranked::Sites;
use crate::base::time::WallMs;
use crate::wire::peer_message::decode_message;

const ID: TimerId = TimerId(7);

/// Four nodes: those that are meant to hold the timer, by rank, and the fourth.
fn cluster() -> (Cluster, [usize; 4]) {
    let cluster = Cluster::new(4, true);
    let list = cluster.list(ID);
    let fourth = (0..4).find(|node| !list.contains(node)).expect("one is not on it");
    (cluster, [list[0], list[1], list[2], fourth])
}

fn hash(cluster: &Cluster, node: usize) -> NodeHash {
    let peer = cluster.peer(node, node).expect("a member");
    cluster.nodes[node].view.hash_of(peer)
}

fn list(cluster: &Cluster, nodes: &[usize]) -> Replicas {
    nodes.iter().map(|node| hash(cluster, *node)).collect()
}

/// A copy of the timer on this list, of this version; these ranks act.
fn copy(content: &[u8], replicas: Replicas, (version, actives): (u64, u16)) -> TimerCopy<'_> {
    let list_digest = replicas.digest();
    TimerCopy {
        standing: Standing { id: ID, version, sequence: 0, actives, list_digest },
        is_write: false,
        replicas,
        factor: 2,
        sites: Sites::new(),
        start_ms: START_MS,
        interval_ms: 10_000,
        repeat_for_ms: 20_000,
        body: Some(CopyBody { authority: "host:80", content }),
    }
}

fn hear(cluster: &mut Cluster, node: usize, copy: TimerCopy<'_>) -> PeerResult<'static> {
    let (now, peer) = (cluster.now_of(node), cluster.peer(node, (node + 1) % 4));
    let teller = Teller { peer, clock_offset_ns: 0 };
    cluster.shard(node).merge_copy(now, teller, &copy, &mut Outbox::default())
}

fn held(shard: &Shard) -> (Slot, Record, Placement) {
    let slot = shard.find(ID).expect("it is held");
    let record = *shard.records.get(slot);
    (slot, record, *shard.records.placement_of(&record))
}

/// The first node that is meant to hold the timer is dead. Then the list of live nodes counts
/// before the list that is meant, and that one before any other.
#[test]
fn of_two_lists_at_one_key_the_preferred_one_is_taken() {
    const MEANT: usize = 0;
    const LIVE: usize = 1;
    const ODD: usize = 2;
    const ODDER: usize = 3;
    // What becomes of the list that is told: it is taken, the teller hears of the one that is
    // held, or neither.
    let (taken, told_back, left) = ((true, false), (false, true), (false, false));
    for (former, told, (is_taken, is_told_back)) in [
        (MEANT, LIVE, taken),
        (ODD, LIVE, taken),
        (ODD, MEANT, taken),
        (LIVE, MEANT, told_back),
        (LIVE, ODD, told_back),
        (MEANT, ODD, told_back),
        (ODD, ODDER, left),
        (ODDER, ODD, left),
    ] {
        let (mut cluster, [dead, own, third, fourth]) = cluster();
        cluster.kill(dead);
        let not_dead = cluster.shard(own).peers.not_dead();
        let lists = [
            list(&cluster, &[dead, own]),
            cluster.nodes[own].view.place(ID, 2, not_dead),
            list(&cluster, &[third, own, fourth]),
            list(&cluster, &[fourth, own, third]),
        ];
        let content = content();
        let (former, told) = (lists[former], lists[told]);
        let version = Version::of_start(WallMs(START_MS)).0;
        hear(&mut cluster, own, copy(&content, former, (version, former.all_ranks())));
        assert_eq!(held(cluster.shard(own)).2.replicas, former);
        let (now, peer) = (cluster.now_of(own), cluster.peer(own, third));
        let (teller, mut outbox) = (Teller { peer, clock_offset_ns: 0 }, Outbox::default());
        let copy = copy(&content, told, (version, told.all_ranks()));
        cluster.shard(own).merge_copy(now, teller, &copy, &mut outbox);
        let expected = if is_taken { told } else { former };
        let placement = held(cluster.shard(own)).2;
        assert_eq!(placement.replicas, expected, "{former:?} {told:?}");
        assert_eq!(placement.actives, expected.all_ranks(), "{former:?} {told:?}");
        let hears = outbox.to_peers.iter().any(|message| Some(message.peer) == peer);
        assert!(is_taken || hears == is_told_back, "{former:?} {told:?}");
    }
}

/// A node that is not on the list of a copy does not take it. The teller must not count on it.
#[test]
fn a_copy_for_other_nodes_is_not_held() {
    let (mut cluster, [first, second, _, fourth]) = cluster();
    let content = content();
    let replicas = list(&cluster, &[first, second]);
    let version = Version::of_start(WallMs(START_MS)).0;
    let told = copy(&content, replicas, (version, 0b11));
    assert_eq!(hear(&mut cluster, fourth, told), PeerResult::Otherwise);
    assert_eq!(cluster.shard(fourth).find(ID), None);
    assert_eq!(hear(&mut cluster, second, told), PeerResult::Held);
}

#[test]
fn of_one_list_at_one_key_all_act_that_act_in_either() {
    let (mut cluster, [first, second, ..]) = cluster();
    let content = content();
    let replicas = list(&cluster, &[first, second]);
    let version = Version::of_start(WallMs(START_MS)).0;
    hear(&mut cluster, first, copy(&content, replicas, (version, 0b01)));
    assert_eq!(held(cluster.shard(first)).2.actives, 0b01);
    hear(&mut cluster, first, copy(&content, replicas, (version, 0b110)));
    let shard = cluster.shard(first);
    let (slot, _, placement) = held(shard);
    assert_eq!(placement.actives, 0b11, "there are two ranks");
    // Who has confirmed that a rank acts is asked again only if another rank acts since.
    for (actives, told, confirmed) in [(0b11, 0b11, 0b01), (0b11, 0b01, 0b01), (0b01, 0b10, 0)] {
        shard.place(slot, &Placement { actives, confirmed: 0b01, ..placement });
        shard.unite(slot, told);
        let placement = held(shard).2;
        assert_eq!((placement.actives, placement.confirmed), (0b11, confirmed), "{told:b}");
    }
}

#[test]
fn a_tombstone_keeps_its_list_and_a_copy_without_one_changes_none() {
    let (mut cluster, [first, second, ..]) = cluster();
    let content = content();
    let replicas = list(&cluster, &[first, second]);
    let version = Version::of_start(WallMs(START_MS)).0;
    let live = copy(&content, replicas, (version, 0b01));
    for (held_body, told) in [
        (live.body, TimerCopy { replicas: Replicas::new(), ..live }),
        (None, TimerCopy { body: None, ..live }),
    ] {
        hear(&mut cluster, first, TimerCopy { body: held_body, ..live });
        let shard = cluster.shard(first);
        let (slot, record, before) = held(shard);
        assert_eq!(record.is_live(), held_body.is_some());
        let standing = Standing { actives: 0b10, ..told.standing };
        let teller = Teller { peer: None, clock_offset_ns: 0 };
        let (tick, copy) = (Tick(START_MS), TimerCopy { standing, ..told });
        shard.unite_copies(tick, slot, teller, &copy, &mut Outbox::default());
        assert_eq!(held(shard).2, before);
        shard.records.forget(Tick(START_MS), slot);
    }
}

/// The nodes that are to hold the timer, and those that held it so far, get it as it is held here.
#[test]
fn what_another_site_has_told_goes_to_all_others_whom_it_concerns() {
    let (mut cluster, [own, second, third, fourth]) = cluster();
    let content = content();
    let of = |nodes: &[usize]| list(&cluster, nodes);
    let (right, former) = (of(&[own, second]), of(&[third, own]));
    let told = copy(&content, Replicas::new(), (0, 0));
    let told = TimerCopy { is_write: true, ..told };
    let peers = [second, third, fourth].map(|node| cluster.peer(own, node).expect("a member"));
    for (former, expected) in [(None, &peers[..1]), (Some(former), &peers[..2])] {
        let shard = cluster.shard(own);
        let placement = Placement { actives: 0b10, ..shard.placement(right, Sites::new(), 2) };
        let outline = Outline {
            id: ID,
            key: StateKey { version: Version(55), sequence: 3 },
            start: Tick(77),
            interval_ms: told.interval_ms,
            repeat_for_ms: told.repeat_for_ms,
            placement,
        };
        let mut outbox = Outbox::default();
        shard.pass_on(&outline, &told, former, &mut outbox);
        let mut to: Vec<_> = outbox.to_peers.iter().map(|message| message.peer).collect();
        to.sort_unstable_by_key(|peer| peer.index());
        let mut expected = expected.to_vec();
        expected.sort_unstable_by_key(|peer| peer.index());
        assert_eq!(to, expected);
        for message in &outbox.to_peers {
            assert_eq!(message.purpose, Purpose::News(ID));
            let bytes = &outbox.peer_bytes[message.bytes.clone()];
            let passed = decode_message(&mut &bytes[..]).expect("encoded by a shard");
            let list_digest = right.digest();
            let standing =
                Standing { id: ID, version: 55, sequence: 3, actives: 0b10, list_digest };
            let expected =
                TimerCopy { standing, is_write: false, replicas: right, start_ms: 77, ..told };
            assert_eq!(passed, PeerMessage::Copy(expected));
        }
    }
}

/// The state that does not fit is still taken when there is room.
#[test]
fn what_is_buried_for_lack_of_room_is_just_below_what_did_not_fit() {
    for (version, below) in [(56, 55), (1, 0), (0, 0)] {
        let (mut cluster, [own, second, third, _]) = cluster();
        let content = content();
        let replicas = list(&cluster, &[own, second]);
        hear(&mut cluster, own, copy(&content, replicas, (0, 0b11)));
        let next = list(&cluster, &[third, own, second]);
        let (others, tick) = (list(&cluster, &[third, second]), Tick(START_MS));
        let shard = cluster.shard(own);
        let (_, record, _) = held(shard);
        let outline = Outline {
            id: ID,
            key: StateKey { version: Version(version), sequence: 9 },
            start: Tick(START_MS + 5),
            interval_ms: 30_000,
            repeat_for_ms: 60_000,
            placement: shard.placement(next, Sites::new(), 3),
        };
        shard.bury_below(tick, &outline, &record);
        let (_, buried, placement) = held(shard);
        assert!(!buried.is_live());
        assert_eq!(buried.key(), StateKey { version: Version(below), sequence: 0 });
        assert_eq!((placement.replicas, placement.own, placement.factor), (others, None, 3));
        assert_eq!((buried.start, buried.interval_ms), (Tick(START_MS + 5), 30_000));
        assert_eq!(buried.repeat_for.get(), 60_000);
    }
}

/// The copy comes over the internal HTTP API.
#[test]
fn a_copy_that_is_not_taken_is_refused_for_its_reason() {
    let (mut cluster, [first, second, ..]) = cluster();
    let content = content();
    let replicas = list(&cluster, &[first, second]);
    let version = Version::of_start(WallMs(START_MS)).0 + 1;
    let mut answer = |version: u64, records_max: u64| {
        cluster.shard(first).records.set_records_max(records_max);
        let request = Request::Merge(copy(&content, replicas, (version, 0b11)));
        cluster.handle(first, Event::Request { from: FROM, request });
        cluster.answers.pop()
    };
    assert_eq!(answer(u64::MAX, 10), Some(Answer::Refused(Refusal::FutureVersion)));
    assert_eq!(answer(version, 0), Some(Answer::Refused(Refusal::TimersFull)));
    let done = answer(version, 10);
    assert!(matches!(done, Some(Answer::Done { id: ID, factor: 2, .. })), "{done:?}");
}

/// The timer ends here alone, and goes on at the listed nodes.
#[test]
fn an_end_that_names_others_is_of_the_timer_held_if_it_starts_within_half_a_second() {
    let (mut cluster, [own, second, third, _]) = cluster();
    let content = content();
    let meant = list(&cluster, &[own, second]);
    let others = list(&cluster, &[second, third]);
    let version = Version::of_start(WallMs(START_MS)).0;
    hear(&mut cluster, own, copy(&content, meant, (version, 0b11)));
    let (_, record, _) = held(cluster.shard(own));
    let teller = Teller { peer: None, clock_offset_ns: 0 };
    let told = TimerCopy { body: None, ..copy(&content, others, (version, 0b11)) };
    for (start_ms, is_near) in
        [(START_MS, true), (START_MS + 499, true), (START_MS + 500, false), (START_MS - 500, false)]
    {
        let told = TimerCopy { start_ms, ..told };
        assert_eq!(cluster.shard(own).is_moved_away(teller, &told, &record), is_near, "{start_ms}");
    }
    let shard = cluster.shard(own);
    let further = Standing { sequence: 1, ..told.standing };
    for other in [
        TimerCopy { replicas: meant, ..told },
        TimerCopy { replicas: Replicas::new(), ..told },
        TimerCopy { standing: further, ..told },
        copy(&content, others, (version, 0b11)),
    ] {
        assert!(!shard.is_moved_away(teller, &other, &record), "{other:?}");
    }
    let frames = Teller { peer: Some(shard.peers.own()), ..teller };
    assert!(!shard.is_moved_away(frames, &told, &record), "one of ours");
}

#[test]
fn what_a_site_tells_is_refused_where_nobody_else_of_this_site_may_have_room() {
    for (nodes, is_taken) in [(1, false), (2, true)] {
        let mut cluster = Cluster::new(nodes, true);
        cluster.shard(0).records.set_records_max(0);
        let content = content();
        let version = Version::of_start(WallMs(START_MS)).0;
        let (now, told) = (cluster.now(), copy(&content, Replicas::new(), (version, 0)));
        let teller = Teller { peer: None, clock_offset_ns: 0 };
        let answer = cluster.shard(0).merge_copy(now, teller, &told, &mut Outbox::default());
        let refused = PeerResult::Refused(PeerRefusal::Full);
        assert_eq!(answer, if is_taken { PeerResult::Held } else { refused });
    }
}

/// A rank that lives does not act yet: until it does, the ranks of the former list act.
#[test]
fn a_list_to_which_a_timer_still_moves_is_not_taken() {
    for (actives, is_taken) in [(0b01, false), (0b10, false), (0b111, false), (0b11, true)] {
        let (mut cluster, [dead, own, ..]) = cluster();
        cluster.kill(dead);
        let not_dead = cluster.shard(own).peers.not_dead();
        let former = list(&cluster, &[dead, own]);
        let next = cluster.nodes[own].view.place(ID, 2, not_dead);
        let (content, version) = (content(), Version::of_start(WallMs(START_MS)).0);
        hear(&mut cluster, own, copy(&content, former, (version, former.all_ranks())));
        hear(&mut cluster, own, copy(&content, next, (version, actives)));
        let expected = if is_taken { next } else { former };
        assert_eq!(held(cluster.shard(own)).2.replicas, expected, "{actives:b}");
    }
}
