//! Writes with a condition, by one node and by three.

use super::*;
use crate::base::ids::TimerId;
use crate::base::limits::ClusterLimits;
use crate::cluster::detector::Liveness;
use crate::shard::effects::{Dialect, Event, Request, Target};
use crate::shard::harness_tests::{Cluster, FROM, definition, tell};
use crate::shard::records::State;
use crate::timer::definition::{Definition, encode_with_attributes};
use crate::timer::naming::{KEY_REMEMBERED_MS, digest_of, id_of_key, id_of_name};
use crate::wire::attributes::{Acted, Attributes, CronTiming};
use crate::wire::peer_message::decode_result;
use crate::wire::timer_action::TimerAction;

fn content(attributes: &Attributes<'_>) -> Vec<u8> {
    let (mut encoded, mut content) = (Vec::new(), Vec::new());
    attributes.write(&mut encoded);
    encode_with_attributes("/pop", &[], (&encoded, b"opaque"), &mut content);
    content
}

fn named(name: &str) -> Vec<u8> {
    content(&Attributes { name: Some(name), ..Attributes::default() })
}

fn keyed(body: &str) -> Vec<u8> {
    content(&Attributes { once: Some(digest_of(body.as_bytes())), ..Attributes::default() })
}

fn target(id: TimerId) -> Target {
    Target { id, factor: None, filter: None }
}

fn ask<'a>(id: TimerId, condition: Condition, definition: Option<Definition<'a>>) -> Request<'a> {
    Request::Conditional(Conditional { target: target(id), condition, definition, action: None })
}

fn put(cluster: &mut Cluster, node: usize, name: &str, condition: Condition) -> Answer {
    let content = named(name);
    let new = definition((600, 600), 2, &content);
    cluster.ask(node, ask(id_of_name(name), condition, Some(new)))
}

fn post(cluster: &mut Cluster, node: usize, (key, body): (&str, &str), s: (u64, u64)) -> Answer {
    let content = keyed(body);
    let new = definition(s, 2, &content);
    cluster.ask(node, ask(id_of_key("", key.as_bytes()), Condition::Once, Some(new)))
}

fn version(answer: &Answer) -> Version {
    match answer {
        Answer::Identified(done) => done.version,
        other => panic!("{other:?}"),
    }
}

fn is_done(answer: &Answer) -> bool {
    matches!(answer, Answer::Identified(_))
}

fn refused(refusal: Refusal) -> Answer {
    Answer::Refused(refusal)
}

/// Lets all nodes show each other what they hold, so that nothing is amiss.
fn settled(count: usize) -> Cluster {
    let mut cluster = Cluster::new(count, true);
    cluster.run_until(140);
    for node in 0..count {
        let tick = Tick(cluster.now_ms);
        assert!(cluster.shard(node).is_quiet(tick), "node {node} of {count}");
    }
    cluster
}

#[test]
fn each_condition_is_kept_on_every_node() {
    for count in [1, 2, 3, 5] {
        let mut cluster = settled(count);
        for node in 0..count {
            let name = format!("timer {node}");
            let other = (node + 1) % count;
            let (absent, present) = (Condition::Absent, Condition::Present);
            let id = id_of_name(&name);
            assert_eq!(put(&mut cluster, node, &name, present), refused(Refusal::Unmet));
            let first = version(&put(&mut cluster, node, &name, absent));
            assert_eq!(put(&mut cluster, other, &name, absent), refused(Refusal::Unmet));
            assert_eq!(put(&mut cluster, node, &name, absent), refused(Refusal::Unmet));
            let second = version(&put(&mut cluster, other, &name, Condition::Version(first)));
            assert!(second > first);
            let stale = Condition::Version(first);
            assert_eq!(put(&mut cluster, node, &name, stale), refused(Refusal::Unmet));
            assert_eq!(cluster.ask(other, ask(id, stale, None)), refused(Refusal::Unmet));
            let third = version(&put(&mut cluster, node, &name, present));
            assert_eq!(cluster.holders(id).len(), count.min(2));
            let ended = cluster.ask(other, ask(id, Condition::Version(third), None));
            assert!(matches!(ended, Answer::Done { .. }), "{ended:?}");
            assert!(cluster.holders(id).is_empty());
            assert_eq!(cluster.ask(node, ask(id, present, None)), refused(Refusal::Unmet));
            assert!(is_done(&put(&mut cluster, other, &name, absent)), "it has ended");
        }
        cluster.audit();
    }
}

#[test]
fn the_deciding_node_takes_one_of_two_creates() {
    let mut cluster = settled(3);
    let id = id_of_name("one");
    let decider = cluster.list(id)[0];
    let others: Vec<usize> = (0..3).filter(|node| *node != decider).collect();
    // Both nodes ask before either hears the answer.
    let content = named("one");
    let mut asked = Vec::new();
    for &node in &others {
        let request = ask(id, Condition::Absent, Some(definition((600, 600), 2, &content)));
        let (now, mut outbox) = (cluster.now_of(node), Outbox::default());
        cluster.shard(node).handle(now, Event::Request { from: FROM, request }, &mut outbox);
        assert!(outbox.replies.is_empty() && outbox.to_peers.len() == 1, "it asks the first alone");
        assert_eq!(cluster.shard(node).find(id), None, "it holds nothing that is not decided");
        asked.push((node, outbox));
    }
    asked.into_iter().for_each(|(node, outbox)| cluster.deliver(node, outbox));
    assert_eq!(cluster.answers.iter().filter(|answer| is_done(answer)).count(), 1);
    assert!(cluster.answers.contains(&refused(Refusal::Unmet)));
    assert_eq!(cluster.holders(id).len(), 2);
}

#[test]
fn a_write_without_a_condition_wins_over_a_decided_one_that_came_before() {
    let mut cluster = settled(3);
    let id = id_of_name("one");
    let list = cluster.list(id);
    let content = named("one");
    let new = || definition((600, 600), 2, &content);
    // The deciding node has taken the write. Before its sender tells the other replica, somebody
    // replaces the timer.
    let (now, mut outbox) = (cluster.now_of(list[2]), Outbox::default());
    let request = ask(id, Condition::Absent, Some(new()));
    cluster.shard(list[2]).handle(now, Event::Request { from: FROM, request }, &mut outbox);
    let message = outbox.to_peers.pop().expect("to the deciding node");
    let (from, bytes) = (cluster.peer(list[0], list[2]), outbox.peer_bytes[message.bytes].to_vec());
    let now = cluster.now_of(list[0]);
    let (held, _) = crate::shard::harness_tests::tell(cluster.shard(list[0]), now, from, &bytes);
    assert_eq!(decode_result(&mut &held[..]), Ok(PeerResult::Held));
    let later = version(&cluster.ask(list[1], Request::Update(target(id), new())));
    let (peer, purpose) = (message.peer, message.purpose);
    cluster.handle(list[2], Event::PeerResult { peer, purpose, result: PeerResult::Held });
    let first = version(&cluster.answers.pop().expect("both are answered"));
    assert!(first < later);
    for node in &list[..2] {
        let shard = cluster.shard(*node);
        let slot = shard.find(id).expect("held");
        assert_eq!(shard.records.get(slot).version, later);
    }
}

/// The deciding node may tell others of what it decided, and does not tell all.
#[test]
fn an_end_that_others_have_told_first_is_still_told_to_all() {
    let mut cluster = settled(3);
    let id = id_of_name("one");
    let list = cluster.list(id);
    let content = named("one");
    let made = ask(id, Condition::Absent, Some(definition((600, 600), 3, &content)));
    assert!(is_done(&cluster.ask(list[0], made)));
    assert_eq!(cluster.holders(id).len(), 3);
    let (now, mut outbox) = (cluster.now_of(list[1]), Outbox::default());
    let request = ask(id, Condition::Present, None);
    cluster.shard(list[1]).handle(now, Event::Request { from: FROM, request }, &mut outbox);
    let message = outbox.to_peers.pop().expect("to the deciding node");
    let (from, bytes) = (cluster.peer(list[0], list[1]), outbox.peer_bytes[message.bytes].to_vec());
    let (result, _) = tell(cluster.shard(list[0]), now, from, &bytes);
    assert_eq!(decode_result(&mut &result[..]), Ok(PeerResult::Held));
    let from = cluster.peer(list[1], list[0]);
    for copy in cluster.held(list[0]) {
        tell(cluster.shard(list[1]), now, from, &copy);
    }
    let (peer, purpose) = (message.peer, message.purpose);
    cluster.handle(list[1], Event::PeerResult { peer, purpose, result: PeerResult::Held });
    let answer = cluster.answers.pop();
    assert!(matches!(answer, Some(Answer::Done { .. })), "{answer:?}");
    assert!(cluster.holders(id).is_empty(), "{:?}", cluster.holders(id));
}

#[test]
fn when_the_deciding_node_dies_the_next_one_decides() {
    for is_taken in [true, false] {
        let mut cluster = settled(3);
        let id = id_of_name("one");
        let list = cluster.list(id);
        let content = named("one");
        let mut outbox = Outbox::default();
        let now = cluster.now_of(list[2]);
        let request = ask(id, Condition::Absent, Some(definition((600, 600), 2, &content)));
        cluster.shard(list[2]).handle(now, Event::Request { from: FROM, request }, &mut outbox);
        if is_taken {
            // It takes the write, and its answer is lost.
            cluster.mute = Some(list[0]);
            cluster.deliver(list[2], outbox);
            cluster.mute = None;
            cluster.unheard.clear();
        }
        cluster.kill(list[0]);
        assert!(is_done(&cluster.answers.pop().expect("answered")), "{is_taken}");
        let mut rest = list[1..].to_vec();
        rest.sort_unstable();
        assert_eq!(cluster.holders(id), rest);
        assert_eq!(put(&mut cluster, list[1], "one", Condition::Absent), refused(Refusal::Unmet));
    }
}

#[test]
fn a_node_that_returned_empty_does_not_decide_by_what_it_lacks() {
    let mut cluster = settled(3);
    let id = id_of_name("one");
    let list = cluster.list(id);
    assert!(is_done(&put(&mut cluster, list[1], "one", Condition::Absent)));
    cluster.kill(list[0]);
    cluster.return_empty(list[0]);
    for node in list {
        assert_eq!(put(&mut cluster, node, "one", Condition::Absent), refused(Refusal::Unmet));
    }
}

#[test]
fn a_key_makes_one_timer_while_it_is_remembered() {
    for count in [1, 3] {
        let mut cluster = settled(count);
        let id = id_of_key("", b"k");
        for end_by_delete in [true, false] {
            let key = if end_by_delete { "deleted" } else { "popped" };
            let first = post(&mut cluster, 0, (key, "body"), (10, 10));
            for node in 0..count {
                assert_eq!(post(&mut cluster, node, (key, "body"), (10, 10)), first);
                let other = post(&mut cluster, node, (key, "other"), (10, 10));
                assert_eq!(other, refused(Refusal::OtherBody));
            }
            let id = id_of_key("", key.as_bytes());
            match end_by_delete {
                true => drop(cluster.ask(count - 1, Request::Delete(target(id)))),
                false => cluster.run_until(cluster.now_ms / 1_000 - 1_000 + 15),
            }
            assert!(cluster.holders(id).is_empty());
            let again = post(&mut cluster, count - 1, (key, "body"), (10, 10));
            let (Answer::Identified(first), Answer::Identified(again)) = (&first, &again) else {
                panic!("{again:?}");
            };
            assert_eq!((first.id, first.factor, first.filter), (again.id, again.factor, 0));
            let other = post(&mut cluster, 0, (key, "other"), (10, 10));
            assert_eq!(other, refused(Refusal::OtherBody));
            assert!(cluster.holders(id).is_empty(), "nothing was made anew");
        }
        assert!(cluster.holders(id).is_empty());
        cluster.audit();
    }
}

#[test]
fn a_key_is_forgotten_a_day_after_its_timer_began() {
    let mut cluster = settled(1);
    let id = id_of_key("", b"k");
    let begun = cluster.now_ms;
    assert!(is_done(&post(&mut cluster, 0, ("k", "body"), (10, 10))));
    cluster.run_until(cluster.now_ms / 1_000 - 1_000 + 15);
    assert!(cluster.shard(0).find(id).is_some(), "its tombstone");
    for (before_ms, is_known) in [(1_000, true), (0, false)] {
        cluster.now_ms = begun + KEY_REMEMBERED_MS - before_ms + u64::from(!is_known) * 1_000;
        for _ in 0..100 {
            cluster.now_ms += 1;
            cluster.tick(0);
        }
        assert_eq!(cluster.shard(0).find(id).is_some(), is_known);
    }
    assert!(is_done(&post(&mut cluster, 0, ("k", "other"), (10, 10))));
    assert_eq!(cluster.holders(id), [0]);
}

#[test]
fn a_key_outlives_the_node_that_took_it() {
    let mut cluster = settled(3);
    let id = id_of_key("", b"k");
    let list = cluster.list(id);
    // The node that takes the create dies when the deciding node alone has it.
    let content = keyed("body");
    let request = ask(id, Condition::Once, Some(definition((600, 600), 2, &content)));
    let (now, mut outbox) = (cluster.now_of(list[2]), Outbox::default());
    cluster.shard(list[2]).handle(now, Event::Request { from: FROM, request }, &mut outbox);
    let message = outbox.to_peers.pop().expect("to the deciding node");
    let (from, bytes) = (cluster.peer(list[0], list[2]), outbox.peer_bytes[message.bytes].to_vec());
    let now = cluster.now_of(list[0]);
    crate::shard::harness_tests::tell(cluster.shard(list[0]), now, from, &bytes);
    cluster.kill(list[2]);
    assert_eq!(cluster.holders(id), [list[0]]);
    let again = post(&mut cluster, list[1], ("k", "body"), (600, 600));
    assert!(is_done(&again), "{again:?}");
    assert_eq!(cluster.holders(id).len(), 2, "an answer promises all replicas");
    // The deciding node dies as well, and the other replica ends the timer.
    cluster.kill(list[0]);
    drop(cluster.ask(list[1], Request::Delete(target(id))));
    let again = post(&mut cluster, list[1], ("k", "body"), (600, 600));
    assert!(is_done(&again) && cluster.holders(id).is_empty(), "{again:?}");
}

#[test]
fn another_name_under_an_id_is_found() {
    for count in [1, 3] {
        let mut cluster = settled(count);
        let id = id_of_name("one");
        assert!(is_done(&put(&mut cluster, 0, "one", Condition::Absent)));
        let content = named("two");
        let new = || definition((600, 600), 2, &content);
        for node in 0..count {
            let answer = cluster.ask(node, Request::Update(target(id), new()));
            assert_eq!(answer, refused(Refusal::OtherName), "{node} of {count}");
            for condition in [Condition::Absent, Condition::Present] {
                let answer = cluster.ask(node, ask(id, condition, Some(new())));
                assert_eq!(answer, refused(Refusal::OtherName), "{node} of {count}");
            }
        }
    }
}

#[test]
fn a_write_that_never_pops_meets_its_condition_first() {
    let mut cluster = settled(3);
    let id = id_of_name("one");
    let content = named("one");
    let never = || Some(definition((600, 1), 2, &content));
    assert_eq!(cluster.ask(0, ask(id, Condition::Present, never())), refused(Refusal::Unmet));
    assert!(matches!(cluster.ask(0, ask(id, Condition::Absent, never())), Answer::Done { .. }));
    assert!(cluster.holders(id).is_empty());
    assert!(is_done(&put(&mut cluster, 1, "one", Condition::Absent)));
    assert_eq!(cluster.ask(2, ask(id, Condition::Absent, never())), refused(Refusal::Unmet));
    assert!(matches!(cluster.ask(2, ask(id, Condition::Present, never())), Answer::Done { .. }));
    assert!(cluster.holders(id).is_empty());
    let counted = (0..3).map(|node| cluster.shard(node).counters().never_firing);
    assert_eq!(counted.sum::<u64>(), 2);
}

#[test]
fn a_full_deciding_node_leaves_the_decision_to_the_next() {
    let mut cluster = settled(3);
    let id = id_of_name("one");
    let list = cluster.list(id);
    let content = named("one");
    let request = ask(id, Condition::Absent, Some(definition((600, 600), 2, &content)));
    let (now, mut outbox) = (cluster.now_of(list[2]), Outbox::default());
    cluster.shard(list[2]).handle(now, Event::Request { from: FROM, request }, &mut outbox);
    let message = outbox.to_peers.pop().expect("to the deciding node");
    let (peer, purpose) = (message.peer, message.purpose);
    let result = PeerResult::Refused(PeerRefusal::Full);
    cluster.handle(list[2], Event::PeerResult { peer, purpose, result });
    assert!(is_done(&cluster.answers.pop().expect("answered")));
    assert_eq!(cluster.holders(id).len(), 2);
    assert!(!cluster.holders(id).contains(&list[0]));
}

/// A timer that a key made ends while the first node is away. The first node is back, and knows of
/// the key when it is asked first.
#[test]
fn a_node_that_was_away_is_shown_the_keys_of_timers_that_ended() {
    for returns_empty in [true, false] {
        let mut cluster = settled(3);
        let id = id_of_key("", b"k");
        let list = cluster.list(id);
        assert!(is_done(&post(&mut cluster, list[2], ("k", "body"), (10, 10))));
        if returns_empty {
            cluster.kill(list[0]);
        } else {
            list[1..].iter().for_each(|other| cluster.cut(list[0], *other, true));
        }
        cluster.run_until(160);
        assert_eq!(cluster.shard(list[1]).find(id).map(|_| ()), Some(()), "its tombstone");
        if returns_empty {
            cluster.return_empty(list[0]);
        } else {
            list[1..].iter().for_each(|other| cluster.cut(list[0], *other, false));
        }
        cluster.run_until(300);
        for node in list {
            let tick = Tick(cluster.now_ms);
            assert!(cluster.shard(node).is_quiet(tick));
            let again = post(&mut cluster, node, ("k", "body"), (10, 10));
            assert!(is_done(&again), "{again:?}");
            let other = post(&mut cluster, node, ("k", "other"), (10, 10));
            assert_eq!(other, refused(Refusal::OtherBody));
        }
        assert!(cluster.holders(id).is_empty());
    }
}

/// The node that is to decide has no room. Each node, itself among them, finds the timer with the
/// node that decided in its place.
#[test]
fn a_node_without_room_does_not_decide() {
    for taker in 0..3 {
        let mut cluster = Cluster::new(3, true);
        let id = id_of_name("one");
        let full = cluster.list(id)[0];
        cluster.kill(full);
        cluster.nodes[full].records_max = 0;
        cluster.return_empty(full);
        cluster.run_until(40);
        let first = put(&mut cluster, taker, "one", Condition::Absent);
        assert!(is_done(&first), "node {taker}, {full} is full: {first:?}");
        assert!(!cluster.holders(id).contains(&full));
        assert_eq!(cluster.holders(id).len(), 2);
        for node in 0..3 {
            let again = put(&mut cluster, node, "one", Condition::Absent);
            assert_eq!(again, refused(Refusal::Unmet), "node {node}, {full} is full");
        }
    }
}

#[test]
fn the_end_of_a_key_told_by_a_node_that_never_held_it_forgets_nothing() {
    let mut cluster = settled(3);
    let id = id_of_key("", b"k");
    let list = cluster.list(id);
    assert!(is_done(&post(&mut cluster, list[2], ("k", "body"), (600, 600))));
    // Twice, so that the second tombstone takes the place of the first.
    for _ in 0..2 {
        drop(cluster.ask(list[2], Request::Delete(target(id))));
    }
    for node in &list[..2] {
        let slot = cluster.shard(*node).find(id).expect("a tombstone");
        let held = *cluster.shard(*node).records.get(slot);
        assert_eq!(held.repeat_for.get(), digest_of(b"body"));
        assert!(held.interval_ms > KEY_REMEMBERED_MS - 60_000 && !held.is_live());
    }
}

/// A node that is to hold the timer, and does not yet, hears of the key by its end alone.
#[test]
fn the_end_of_a_key_tells_its_body_and_not_how_often_the_timer_popped() {
    for is_conditional in [false, true] {
        let mut cluster = settled(3);
        let id = id_of_key("", b"k");
        let list = cluster.list(id);
        let first = post(&mut cluster, list[0], ("k", "body"), (600, 6_000));
        // It has lost the timer, as if it had just joined.
        cluster.kill(list[1]);
        cluster.return_empty(list[1]);
        let end = match is_conditional {
            true => ask(id, Condition::Version(version(&first)), None),
            false => Request::Delete(target(id)),
        };
        drop(cluster.ask(list[0], end));
        for node in &list[..2] {
            let slot = cluster.shard(*node).find(id).expect("a tombstone");
            let held = *cluster.shard(*node).records.get(slot);
            assert!(!held.is_live() && held.repeat_for.get() == digest_of(b"body"), "{held:?}");
            assert!(held.interval_ms > KEY_REMEMBERED_MS - 60_000);
        }
        cluster.run_until(cluster.now_ms / 1_000 - 1_000 + 10);
        for node in list {
            assert!(is_done(&post(&mut cluster, node, ("k", "body"), (600, 6_000))), "{node}");
        }
    }
}

/// A node that is silent may have taken the key, as far as others know, until it is back or dead.
#[test]
fn a_keyed_create_waits_for_what_becomes_of_a_silent_node() {
    for becomes in [Liveness::Dead, Liveness::Alive] {
        let mut cluster = settled(3);
        let id = id_of_key("", b"k");
        let list = cluster.list(id);
        (1..3).for_each(|other| cluster.cut(list[0], list[other], true));
        (1..3).for_each(|other| cluster.believe(list[other], list[0], Liveness::Suspect));
        let content = keyed("body");
        let new = definition((600, 600), 2, &content);
        let request = ask(id, Condition::Once, Some(new));
        cluster.handle(list[1], Event::Request { from: FROM, request });
        cluster.run_until(cluster.now_ms / 1_000 - 1_000 + 2);
        assert!(cluster.answers.is_empty(), "{:?}", cluster.answers);
        if becomes == Liveness::Alive {
            (1..3).for_each(|other| cluster.cut(list[0], list[other], false));
        }
        (1..3).for_each(|other| cluster.believe(list[other], list[0], becomes));
        cluster.run_until(cluster.now_ms / 1_000 - 1_000 + 2);
        assert!(cluster.answers.iter().all(is_done), "{:?}", cluster.answers);
        assert_eq!((cluster.answers.len(), cluster.holders(id).len()), (1, 2), "{becomes:?}");
    }
}

#[test]
fn a_node_is_quiet_only_if_nothing_at_all_was_amiss() {
    type Change = fn(&mut Shard, PeerIndex, Tick);
    let changes: [(&str, bool, Change); 9] = [
        ("", true, |_, _, _| {}),
        ("sees other members", false, |shard, peer, _| {
            shard.peers.other_view = PeerSet::EMPTY.with(peer);
        }),
        ("is an original", false, |shard, peer, _| {
            shard.peers.believe(peer, Liveness::Alive, Dialect::Http);
        }),
        ("is not heard", false, |shard, peer, _| {
            shard.peers.believe(peer, Liveness::Suspect, Dialect::Frames);
        }),
        ("may lack something", false, |shard, peer, _| shard.peers.may_lack(peer)),
        ("had no room", false, |shard, peer, tick| shard.peers.note_full(peer, tick + 1)),
        ("returned a while ago", true, |shard, _, tick| {
            let hold_ms = shard.config.cluster.tombstone_hold_ms;
            shard.peers.returned_at = Tick(tick.0 - hold_ms);
        }),
        ("returned lately", false, |shard, _, tick| {
            let hold_ms = shard.config.cluster.tombstone_hold_ms;
            shard.peers.returned_at = Tick(tick.0 - hold_ms) + 1;
        }),
        ("is fresh", false, |shard, _, tick| shard.questions.be_fresh(tick + 1)),
    ];
    for (why, is_quiet, change) in changes {
        let mut cluster = settled(3);
        let peer = cluster.peer(0, 1).expect("a member");
        let tick = cluster.now().mono.tick_floor();
        change(cluster.shard(0), peer, tick);
        assert_eq!(cluster.shard(0).is_quiet(tick), is_quiet, "{why}");
    }
}

#[test]
fn a_refusal_of_the_deciding_node_is_the_answer() {
    for (result, refusal) in [
        (PeerRefusal::TokenFull, Refusal::TokenFull),
        (PeerRefusal::OtherName, Refusal::OtherName),
        (PeerRefusal::Malformed, Refusal::NotTaken),
    ] {
        let mut cluster = settled(3);
        let id = id_of_name("one");
        let asker = cluster.list(id)[2];
        let content = named("one");
        let request = ask(id, Condition::Absent, Some(definition((600, 600), 2, &content)));
        let (now, mut outbox) = (cluster.now_of(asker), Outbox::default());
        cluster.shard(asker).handle(now, Event::Request { from: FROM, request }, &mut outbox);
        let message = outbox.to_peers.pop().expect("to the deciding node");
        let (peer, purpose) = (message.peer, message.purpose);
        let result = PeerResult::Refused(result);
        cluster.handle(asker, Event::PeerResult { peer, purpose, result });
        assert_eq!(cluster.answers.pop(), Some(refused(refusal)));
        assert!(cluster.holders(id).is_empty());
    }
}

/// The deciding node takes a pause. Meanwhile the timer pops for the last time at the node that
/// asked.
#[test]
fn an_action_revives_no_timer_that_has_popped_for_the_last_time_meanwhile() {
    let mut cluster = settled(3);
    let id = id_of_name("one");
    assert!(is_done(&put(&mut cluster, 0, "one", Condition::Absent)));
    let list = cluster.list(id);
    let (decider, asker) = (list[0], list[1]);
    let (condition, action) = (Condition::Present, Some(TimerAction::Pause));
    let pause = Conditional { target: target(id), condition, definition: None, action };
    let request = Request::Conditional(pause);
    let (now, mut outbox) = (cluster.now_of(asker), Outbox::default());
    cluster.shard(asker).handle(now, Event::Request { from: FROM, request }, &mut outbox);
    let message = outbox.to_peers.pop().expect("to the deciding node");
    let (peer, purpose) = (message.peer, message.purpose);
    let (from, bytes) = (cluster.peer(decider, asker), outbox.peer_bytes[message.bytes].to_vec());
    let (result, _) = crate::shard::harness_tests::tell(cluster.shard(decider), now, from, &bytes);
    let result = decode_result(&mut &result[..]).expect("encoded by a shard");
    assert_eq!(result, PeerResult::Held);
    let shard = cluster.shard(asker);
    let slot = shard.find(id).expect("it is held");
    let placement = *shard.records.placement_of(shard.records.get(slot));
    shard.records.catch_up(&shard.peers, now.mono.tick_floor(), slot, 1, &placement);
    cluster.handle(asker, Event::PeerResult { peer, purpose, result });
    assert!(is_done(&cluster.answers.pop().expect("answered")));
    assert!(cluster.holders(id).is_empty());
}

/// It is heard now and then, and never answers.
#[test]
fn a_write_with_a_condition_does_not_wait_for_ever_for_a_node_that_comes_and_goes() {
    let mut cluster = settled(3);
    let id = id_of_key("", b"k");
    let list = cluster.list(id);
    cluster.mute = Some(list[0]);
    let believe = |cluster: &mut Cluster, liveness| {
        (1..3).for_each(|other| cluster.believe(list[other], list[0], liveness));
        cluster.run_until(cluster.now_ms / 1_000 - 1_000 + 1);
    };
    believe(&mut cluster, Liveness::Suspect);
    let content = keyed("body");
    let new = definition((600, 600), 2, &content);
    let request = ask(id, Condition::Once, Some(new));
    cluster.handle(list[1], Event::Request { from: FROM, request });
    for _ in 0..4 {
        believe(&mut cluster, Liveness::Alive);
        believe(&mut cluster, Liveness::Suspect);
    }
    let answers = &cluster.answers[..];
    assert!(matches!(answers, [Answer::Refused(Refusal::NoReplica)]), "{answers:?}");
}

#[test]
fn what_is_not_known_for_certain_is_refused_unless_a_key_is() {
    let mut cluster = settled(3);
    let Answer::Identified(keyed) = post(&mut cluster, 0, ("key", "body"), (100, 100)) else {
        panic!("a timer is made")
    };
    let keyed = keyed.id;
    let asker = cluster.holders(keyed)[0];
    let now = cluster.now();
    let asked = |id| Asked {
        from: FROM,
        asked_at: now.mono.tick_floor(),
        start: now.mono.tick_floor(),
        target: target(id),
        condition: Condition::Present,
        definition: None,
        action: None,
        sequence: 0,
        seen: None,
        made: None,
        decider: None,
        refused: PeerSet::EMPTY,
        tries: 0,
    };
    let mut decided = |asked| {
        let (shard, latest) = (cluster.shard(asker), Latest::Unsure(Refusal::Unanswered));
        shard.judge_latest(now, asked, latest, &mut Outbox::default())
    };
    assert_eq!(decided(asked(id_of_name("one"))), Err(Refusal::Unanswered));
    assert_ne!(decided(asked(keyed)), Err(Refusal::Unanswered));
}

#[test]
fn each_kind_of_decided_write_is_counted_as_such() {
    let mut cluster = settled(1);
    let id = id_of_name("one");
    let counted = |cluster: &mut Cluster| {
        let counters = cluster.shard(0).counters();
        [counters.creates, counters.updates, counters.acted, counters.deletes]
    };
    assert!(is_done(&put(&mut cluster, 0, "one", Condition::Absent)));
    assert_eq!(counted(&mut cluster), [1, 0, 0, 0]);
    assert!(is_done(&put(&mut cluster, 0, "one", Condition::Present)));
    assert_eq!(counted(&mut cluster), [1, 1, 0, 0]);
    let (condition, action) = (Condition::Present, Some(TimerAction::Pause));
    let pause = Conditional { target: target(id), condition, definition: None, action };
    assert!(is_done(&cluster.ask(0, Request::Conditional(pause))));
    assert_eq!(counted(&mut cluster), [1, 1, 1, 0]);
    drop(cluster.ask(0, ask(id, Condition::Present, None)));
    assert_eq!(counted(&mut cluster), [1, 1, 1, 1]);
}

/// A node that has asked another one to decide, which has not answered.
fn undecided() -> (Cluster, usize, PeerIndex) {
    let mut cluster = settled(3);
    let id = id_of_name("one");
    let list = cluster.list(id);
    let decider = cluster.peer(list[2], list[0]).expect("a member");
    let (now, content) = (cluster.now(), named("one"));
    let new = definition((600, 600), 2, &content);
    let request = ask(id, Condition::Absent, Some(new));
    let shard = cluster.shard(list[2]);
    shard.handle(now, Event::Request { from: FROM, request }, &mut Outbox::default());
    assert_eq!(shard.conditions.len(), 1);
    (cluster, list[2], decider)
}

#[test]
fn a_condition_is_judged_so_often_and_no_more() {
    let superseded = || Some(PeerResult::Superseded { version: 9, factor: 2 });
    for (tries, result, refusal) in [
        (TRIES_MAX - 2, None, None),
        (TRIES_MAX - 1, None, Some(Refusal::Unanswered)),
        (TRIES_MAX - 2, superseded(), None),
        (TRIES_MAX - 1, superseded(), Some(Refusal::Contended)),
    ] {
        let (mut cluster, node, decider) = undecided();
        let (now, mut outbox) = (cluster.now(), Outbox::default());
        let shard = cluster.shard(node);
        let key = shard.conditions.key_at(0).expect("one waits");
        shard.conditions.get_mut(key).expect("one waits").tries = tries;
        shard.condition_result(now, decider, key, result, &mut outbox);
        let answers: Vec<_> = outbox.replies.into_iter().map(|reply| reply.answer).collect();
        assert_eq!(answers, Vec::from_iter(refusal.map(Answer::Refused)), "{tries}");
        assert_eq!(shard.conditions.len(), usize::from(refusal.is_none()), "{tries}");
    }
}

#[test]
fn a_deciding_node_that_lives_is_waited_for_a_second_longer_than_a_suspicion() {
    for (early_ms, tries) in [(1, 0), (0, 1)] {
        let (mut cluster, node, _) = undecided();
        let patience_ms = ClusterLimits::default().suspect_after_ms + BEYOND_SUSPICION_MS;
        cluster.now_ms += patience_ms - early_ms;
        let now = cluster.now();
        let shard = cluster.shard(node);
        shard.settle_conditions(now, &mut Outbox::default());
        let key = shard.conditions.key_at(0).expect("one waits");
        assert_eq!(shard.conditions.get(key).map(|asked| asked.tries), Some(tries));
    }
}

/// This node has made a pop since the action was judged.
#[test]
fn an_action_goes_on_by_the_plan_of_a_calendar_that_is_held() {
    let mut cluster = settled(1);
    let wall_ms = cluster.wall_ms(0);
    let cron = CronTiming {
        expression: "*/10 * * * * *",
        zone: "UTC",
        due_ms: wall_ms + 10_000,
        done: 3,
        catch_up_ms: 60_000,
        end_ms: None,
    };
    let follows = Attributes { cron: Some(cron), ..Attributes::default() };
    let id = cluster.create_ms(0, 10_000, 1, &follows);
    let now = cluster.now();
    let shard = cluster.shard(0);
    let slot = shard.find(id).expect("it is held");
    let held = *shard.records.get(slot);
    let acted = Acted { root: held.version.0 - 1, at_ms: 7, pop: 0 };
    let before = CronTiming { due_ms: wall_ms, done: 2, ..cron };
    let (cron, is_paused) = (Some(before), true);
    let judged = Attributes { cron, acted: Some(acted), is_paused, ..Attributes::default() };
    let (judged, version) = (content(&judged), Version(held.version.0 + 5));
    let new = NewWrite {
        from: Some(FROM),
        asked_at: now.mono.tick_floor(),
        id,
        slot: Some(slot),
        key: StateKey { version, sequence: 0 },
        start: Tick(1),
        interval_ms: 1,
        repeat_for_ms: 1,
        body: Some(("host:80", &judged)),
        tries: 1,
        refused: PeerSet::EMPTY,
        is_decided: true,
        gives_way: false,
        is_action: true,
    };
    let plan = shard.plan_known(target(id), 1, None);
    let written = shard.spread(now, new, &plan, &mut Outbox::default());
    assert!(matches!(written, Ok(Some(Answer::Identified(_)))), "{written:?}");
    let record = *shard.records.get(shard.find(id).expect("it is held"));
    assert!(record.version > version && record.state == State::Paused);
    let times = |record: &Record| (record.start, record.interval_ms, record.repeat_for.get());
    assert_eq!(times(&record), times(&held));
    let content = shard.records.content_of(&record);
    let Attributes { cron, acted: by, .. } = content.attributes();
    assert_eq!(
        (cron.map(|cron| (cron.due_ms, cron.done)), by),
        (Some((wall_ms + 10_000, 3)), Some(acted))
    );
}
