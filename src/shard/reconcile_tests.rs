//! Timers on their way to other nodes: which nodes act meanwhile, and what ends a move.

use super::super::effects::{CallbackOutcome, Dialect, Event, Request, Target};
use super::super::harness_tests::{Cluster, TICKET, content, definition, target};
use super::super::parts::reconcile::LOOK_AGAIN_MS;
use super::*;
use crate::cluster::detector::Liveness;
use crate::shard::Shard;
use crate::shard::records::Next;
use crate::timer::version::StateKey;

const ID: TimerId = TimerId(7);
const IDS: Range<u64> = 1..20;

fn shard(cluster: &mut Cluster, node: usize) -> &mut Shard {
    cluster.nodes[node].shard.as_mut().expect("it is up")
}

fn record_of(cluster: &mut Cluster, node: usize, id: TimerId) -> Record {
    let shard = shard(cluster, node);
    *shard.records.get(shard.find(id).expect("it is held"))
}

fn placement_of(cluster: &mut Cluster, node: usize, id: TimerId) -> Placement {
    let record = record_of(cluster, node, id);
    *shard(cluster, node).records.placement_of(&record)
}

/// A timer that is due too soon to be handed over is copied home from both of its stand-ins. The
/// node that has got it waits behind both of them, whichever told it: one of them is not on its
/// list.
#[test]
fn a_node_that_has_got_a_copy_does_not_act_before_the_move_is_finished() {
    for id in IDS.map(TimerId) {
        let mut cluster = Cluster::new(3, true);
        let [returning, first, _] = cluster.list(id)[..] else { panic!("three nodes") };
        cluster.kill(returning);
        cluster.put(first, id, (10, 30), 2);
        cluster.run_until(9);
        let run_300_ms = |cluster: &mut Cluster| {
            for _ in 0..3 {
                cluster.now_ms += 100;
                (0..3).for_each(|node| cluster.tick(node));
            }
        };
        run_300_ms(&mut cluster);
        cluster.return_empty(returning);
        run_300_ms(&mut cluster);
        let placement = placement_of(&mut cluster, returning, id);
        assert_eq!((placement.own, placement.actives), (Some(0), 0), "{id:?}");
        assert_eq!(placement.delay_ms(true), 4_000, "{id:?}");
        cluster.run_until(60);
        let pops: Vec<_> = cluster.pops.iter().map(|pop| (pop.0, pop.2)).collect();
        assert_eq!(pops, [(10, 1), (20, 2), (30, 3)]);
        assert_ne!(cluster.pops[0].1, returning);
        cluster.audit();
    }
}

/// The timer popped, or was written, after the move had begun. The nodes of the new list hold the
/// state from before.
#[test]
fn a_move_of_an_earlier_state_is_not_finished() {
    let mut cluster = Cluster::new(3, true);
    let id = TimerId(7);
    let [returning, first, _] = cluster.list(id)[..] else { panic!("three nodes") };
    cluster.kill(returning);
    cluster.put(first, id, (100, 300), 2);
    let record = record_of(&mut cluster, first, id);
    let held = placement_of(&mut cluster, first, id);
    let tick = cluster.now().mono.tick_floor();
    let shard = shard(&mut cluster, first);
    let right = shard.configured(&record);
    let placement = shard.placement(right, held.sites, held.factor);
    assert!(placement.own.is_some() && placement.replicas != held.replicas);
    let (key, waiting) = (record.key(), PeerSet::EMPTY);
    let earlier = StateKey { sequence: key.sequence + 1, ..key };
    for (key, is_finished) in [(earlier, false), (key, true)] {
        let moving = Move { key, placement, waiting, round: 1, is_passed_on: false };
        shard.reconcile.moves.insert(id.0, moving);
        shard.finish_move(tick, id, &mut Outbox::default());
        let slot = shard.find(id).expect("it is held");
        let present = shard.records.placement_of(shard.records.get(slot)).replicas;
        assert_eq!(present == right, is_finished);
        assert_eq!(shard.counters.moved, u64::from(is_finished));
        assert!(shard.reconcile.queued.contains(&id.0), "it is looked at again");
    }
}

/// Two copies of one state whose masks differ, as after a split: the ranks of both act. Another
/// list, which is not preferred, says nothing, and its teller hears of the preferred one.
#[test]
fn masks_of_two_copies_at_one_key_are_united() {
    for (is_same_list, expected) in [(true, 0b11), (false, 0b01)] {
        let mut cluster = Cluster::new(3, true);
        let id = TimerId(7);
        cluster.put(0, id, (100, 300), 2);
        let [first, second, third] = cluster.list(id)[..] else { panic!("three nodes") };
        let now = cluster.now();
        let from = cluster.peer(first, second);
        let record = record_of(&mut cluster, first, id);
        let placement = placement_of(&mut cluster, first, id);
        let other = cluster.nodes[third].view.own_hash();
        let shard = shard(&mut cluster, first);
        let slot = shard.find(id).expect("it is held");
        let mine = shard.ranks_of(&placement.replicas, PeerSet::EMPTY.with(shard.peers.own()));
        assert_eq!(mine, 0b01);
        shard.place(slot, &Placement { actives: mine, ..placement });
        let content = shard.records.whole_content_of(&record, &mut Vec::new()).to_vec();
        let mut room = Vec::new();
        let mut copy = shard.copy_of(&record, &mut room);
        copy.body =
            Some(crate::wire::peer_message::CopyBody { authority: "host:80", content: &content });
        copy.standing.actives = 0b10;
        if !is_same_list {
            copy.replicas = [other, placement.replicas.as_slice()[0]].into_iter().collect();
        }
        let mut message = Vec::new();
        PeerMessage::Copy(copy).encode(&mut message);
        let message = crate::wire::peer_message::decode_message(&mut &message[..]).expect("whole");
        let event = Event::PeerMessage { ticket: TICKET, from, clock_offset_ns: 0, message };
        let mut outbox = Outbox::default();
        shard.handle(now, event, &mut outbox);
        let told: Vec<_> = outbox.to_peers.iter().map(|told| Some(told.peer)).collect();
        assert_eq!(told, if is_same_list { vec![] } else { vec![from] });
        let present = placement_of(&mut cluster, first, id);
        assert_eq!((present.replicas, present.actives), (placement.replicas, expected));
    }
}

/// A node that has just come back may fall silent again, or has not been shown all that it missed.
#[test]
fn a_return_is_settled_when_all_was_shown_and_some_time_has_passed() {
    let mut cluster = Cluster::new(2, true);
    cluster.run_until(20);
    let tick = cluster.now().mono.tick_floor();
    let shard = shard(&mut cluster, 0);
    let silence_ms = 2 * shard.config.cluster.dead_after_ms;
    shard.peers.returned_at = tick;
    assert!(!shard.is_settled(tick) && !shard.is_settled(tick + (silence_ms - 1)));
    assert!(shard.is_settled(tick + silence_ms));
    shard.reconcile.offers = 1;
    assert!(!shard.is_settled(tick + silence_ms));
}

#[test]
fn a_timer_moves_only_between_nodes_that_see_the_same_members() {
    let mut cluster = Cluster::new(3, true);
    let list = cluster.list(TimerId(7));
    cluster.put(0, TimerId(7), (10, 10), 2);
    let (holder, other, outside) = (list[0], list[1], list[2]);
    let replicas = placement_of(&mut cluster, holder, TimerId(7)).replicas;
    let set = |peer: Option<PeerIndex>| PeerSet::EMPTY.with(peer.expect("a member"));
    let (other, outside) = (cluster.peer(holder, other), cluster.peer(holder, outside));
    for (with_another_view, agrees) in
        [(PeerSet::EMPTY, true), (set(other), false), (set(outside), true)]
    {
        cluster.handle(holder, Event::OtherViews(with_another_view));
        assert_eq!(shard(&mut cluster, holder).agrees(&replicas, &replicas), agrees);
    }
}

#[test]
fn a_peer_that_may_have_missed_something_is_shown_everything() {
    for (former, has_gaps, is_shown) in [
        (Liveness::Suspect, false, false),
        (Liveness::Suspect, true, true),
        (Liveness::Dead, false, true),
        (Liveness::Alive, false, false),
    ] {
        let mut cluster = Cluster::new(2, true);
        cluster.put(0, TimerId(7), (100, 100), 2);
        cluster.run_until(5);
        cluster.believe(0, 1, former);
        cluster.run_until(20);
        assert!(!shard(&mut cluster, 0).reconcile.owes());
        let peer = cluster.peer(0, 1).expect("a member");
        let (liveness, dialect) = (Liveness::Alive, Dialect::Frames);
        cluster.handle(0, Event::Peer { peer, liveness, dialect, has_gaps });
        assert_eq!(shard(&mut cluster, 0).reconcile.owes(), is_shown, "{former:?} {has_gaps}");
    }
}

/// Otherwise the holder that leaves and the one that has come would both be the second to try.
#[test]
fn a_pop_that_fails_during_a_move_is_tried_by_one() {
    let mut cluster = Cluster::new(3, true);
    let content = content();
    let ids = (0..200).map(TimerId).filter(|&id| cluster.list(id)[..2] == [1, 0]);
    let ids: Vec<TimerId> = ids.collect();
    assert!(ids.len() > 10);
    cluster.freeze(0);
    cluster.outcome = |node, _| match node {
        1 => CallbackOutcome::Rejected,
        _ => CallbackOutcome::Delivered,
    };
    for &id in &ids {
        let target = Target { id, factor: Some(2), filter: None };
        cluster.ask(1, Request::Update(target, definition((10, 10), 2, &content)));
        assert_eq!(cluster.holders(id), [1, 2]);
    }
    cluster.run_until(9);
    cluster.now_ms += 200;
    cluster.thaw(0);
    cluster.meet(0);
    cluster.run_until(30);
    let served = cluster.pops.iter().filter(|(_, node, _)| *node != 1).count();
    assert_eq!(served, ids.len(), "{:?}", cluster.pops);
    cluster.audit();
}

#[test]
fn a_rank_that_is_found_to_hold_a_timer_acts_after_the_next_pop() {
    let mut cluster = Cluster::new(3, true);
    let id = cluster.create(0, (100, 100), 3);
    let list = cluster.list(id);
    let placement = placement_of(&mut cluster, list[0], id);
    let peers = [1, 2].map(|rank| cluster.peer(list[0], list[rank]).expect("a member"));
    let shard = shard(&mut cluster, list[0]);
    let slot = shard.find(id).expect("it is held");
    shard.place(slot, &Placement { actives: 0b001, confirmed: 0, ..placement });
    for (peer, confirmed) in [(peers[1], 0b100), (peers[1], 0b100), (peers[0], 0b110)] {
        shard.confirm(id, peer);
        let placement = shard.records.placement_of(shard.records.get(slot));
        assert_eq!((placement.actives, placement.confirmed), (0b001, confirmed));
    }
}

/// Each offer costs sixteen looks beside its own: of 192 at first, of 208 and 224 in the next two,
/// and of 192 again in a tick that comes late.
#[test]
fn so_many_timers_are_offered_in_a_tick_and_no_more() {
    let mut cluster = Cluster::new(2, true);
    (0..100).for_each(|id| cluster.put(0, TimerId(id), (100, 100), 2));
    let (now, peer) = (cluster.now(), cluster.peer(0, 1).expect("a member"));
    let shard = shard(&mut cluster, 0);
    shard.reconcile.start_walk(PeerSet::EMPTY.with(peer));
    for (tick, offers) in [(1, 12), (1, 12), (2, 25), (3, 39), (5, 51)] {
        let now = Now { mono: now.mono.plus_ms(tick), ..now };
        shard.reconcile(now, &mut Outbox::default());
        assert_eq!(shard.reconcile.offers, offers);
        assert_eq!(shard.reconcile.seen(), Some(offers.into()), "one offer for each");
    }
}

/// Three nodes with a timer of two of them, or its tombstone. Returns also the first two nodes on
/// its list.
fn held(id: TimerId, is_deleted: bool) -> (Cluster, usize, usize) {
    let mut cluster = Cluster::new(3, true);
    let [first, second, _] = cluster.list(id)[..] else { panic!("three nodes") };
    cluster.put(first, id, (100, 100), 2);
    if is_deleted {
        cluster.ask(first, Request::Delete(target(id, 2)));
    }
    (cluster, first, second)
}

/// A timer, too, is offered only to the peers that the walk is for.
#[test]
fn a_tombstone_that_is_where_it_belongs_is_shown_to_nobody_else() {
    for (is_deleted, is_offered) in [(false, false), (false, true), (true, false), (true, true)] {
        let id = TimerId(7);
        let (mut cluster, first, second) = held(id, is_deleted);
        let (tick, peer) = (cluster.now().mono.tick_floor(), cluster.peer(first, second));
        let peer = peer.expect("a member");
        let shard = shard(&mut cluster, first);
        let slot = shard.find(id).expect("it is held");
        let offer_to = if is_offered { PeerSet::EMPTY.with(peer) } else { PeerSet::EMPTY };
        let mut outbox = Outbox::default();
        shard.look_at(tick, slot, offer_to, &mut outbox);
        let told: Vec<_> = outbox.to_peers.iter().map(|message| message.peer).collect();
        assert_eq!(told, if is_offered { vec![peer] } else { vec![] }, "{is_deleted}");
    }
}

/// A dead node may come back. Its timers have their other holders meanwhile.
#[test]
fn a_timer_that_is_where_it_is_meant_to_be_stays_there_when_a_holder_dies() {
    let mut cluster = Cluster::new(4, true);
    let id = TimerId(7);
    let [first, second, _] = cluster.list(id)[..] else { panic!("three of four") };
    cluster.put(first, id, (100, 100), 2);
    cluster.kill(first);
    let record = record_of(&mut cluster, second, id);
    let meant = placement_of(&mut cluster, second, id).replicas;
    let shard = shard(&mut cluster, second);
    let live = shard.peers.view.place(id, 2, shard.peers.not_dead());
    assert_ne!(live, meant);
    assert_eq!(shard.right_list(&record), meant);
    assert!(!shard.is_misplaced(&record));
}

/// The node to which a timer was handed over died before the node that had it forgot it.
#[test]
fn the_last_holder_has_a_timer_back_when_all_of_its_list_are_dead() {
    let mut cluster = Cluster::new(3, true);
    let id = TimerId(7);
    let right = cluster.list(id)[0];
    cluster.kill(right);
    cluster.put((right + 1) % 3, id, (10, 20), 1);
    let [last] = cluster.holders(id)[..] else { panic!("one holder") };
    let held = placement_of(&mut cluster, last, id);
    let shard = shard(&mut cluster, last);
    let slot = shard.find(id).expect("it is held");
    let handed = shard.configured(shard.records.get(slot));
    assert_ne!(handed, held.replicas);
    let tick = shard.turns.at;
    let behind = shard.placement(handed, held.sites, 1);
    assert_eq!(behind.own, None);
    shard.place(slot, &behind);
    shard.look_later_if_misplaced(tick, slot);
    cluster.run_until(30);
    assert_eq!(cluster.pops, [(10, last, 1), (20, last, 2)]);
}

/// The node that takes a write believes the right node dead. The stand-in only suspects it, and
/// sees no return from the dead.
#[test]
fn a_timer_that_came_while_its_node_was_suspected_goes_home_when_that_node_is_back() {
    let mut cluster = Cluster::new(3, true);
    let id = TimerId(7);
    let [right, one, other] = cluster.list(id)[..] else { panic!("three nodes") };
    cluster.kill(right);
    let peers = &shard(&mut cluster, one).peers;
    let is_one = peers.view.place(id, 1, peers.not_dead()).rank_of(peers.own_hash()).is_some();
    let (stand_in, taker) = if is_one { (one, other) } else { (other, one) };
    cluster.believe(stand_in, right, Liveness::Suspect);
    cluster.put(taker, id, (100, 100), 1);
    assert_eq!(cluster.holders(id), [stand_in]);
    assert!(shard(&mut cluster, stand_in).reconcile.queued.contains(&id.0));
    cluster.run_until(5);
    assert_eq!(cluster.holders(id), [stand_in]);
    cluster.start(right);
    cluster.believe(stand_in, right, Liveness::Alive);
    cluster.believe(right, stand_in, Liveness::Alive);
    cluster.run_until(10);
    assert_eq!(cluster.holders(id), [right]);
}

/// The node keeps what it has, and is given no more.
#[test]
fn a_holder_without_room_keeps_its_place_on_the_list_that_is_meant() {
    let mut cluster = Cluster::new(4, true);
    let id = TimerId(7);
    let [first, second, _] = cluster.list(id)[..] else { panic!("three of four") };
    cluster.kill(first);
    cluster.put(second, id, (100, 100), 2);
    cluster.start(first);
    cluster.believe(second, first, Liveness::Alive);
    let full = PeerSet::EMPTY.with(cluster.peer(second, second).expect("a member"));
    let record = record_of(&mut cluster, second, id);
    let held = placement_of(&mut cluster, second, id).replicas;
    let shard = shard(&mut cluster, second);
    let meant = shard.configured(&record);
    assert_ne!(held, meant);
    assert_eq!(shard.right_list_without(&record, full), meant);
}

/// A timer that this node is not to hold is not offered again, either.
#[test]
fn a_tombstone_lacks_no_copies() {
    for (is_deleted, is_lacking, is_all) in
        [(false, true, true), (false, false, false), (true, true, false)]
    {
        let id = TimerId(7);
        let (mut cluster, first, second) = held(id, is_deleted);
        let (tick, peer) = (cluster.now().mono.tick_floor(), cluster.peer(first, second));
        let peer = PeerSet::EMPTY.with(peer.expect("a member"));
        let shard = shard(&mut cluster, first);
        let slot = shard.find(id).expect("it is held");
        let lacking = if is_lacking { peer } else { PeerSet::EMPTY };
        let mut outbox = Outbox::default();
        assert_eq!(shard.look_at_lacking(tick, slot, lacking, &mut outbox), is_all);
        assert_eq!(outbox.to_peers.len(), usize::from(is_all), "{is_deleted} {is_lacking}");
    }
}

/// The nodes that acted and stay. If a node acts that leaves, new holders wait behind all.
#[test]
fn those_who_act_while_a_timer_moves_are_told_unless_one_of_them_leaves() {
    let cluster = Cluster::new(3, true);
    let view = &cluster.nodes[0].view;
    let hashes = [0, 1, 2].map(|node| view.hash_of(cluster.peer(0, node).expect("a member")));
    let list = |nodes: &[usize]| nodes.iter().map(|node| hashes[*node]).collect::<Replicas>();
    for (actives, confirmed, to, meanwhile) in [
        (0b11, 0, &[1, 0][..], 0b11),
        (0b01, 0, &[1, 0], 0b10),
        (0b01, 0, &[0, 2], 0b01),
        (0b10, 0, &[0, 2], 0),
        (0b01, 0b10, &[0, 2], 0),
        (0b11, 0, &[2, 0, 1], 0b110),
    ] {
        let shard = cluster.nodes[0].shard.as_ref().expect("it is up");
        let former = shard.placement(list(&[0, 1]), Default::default(), 2);
        let former = Placement { actives, confirmed, ..former };
        let told = shard.actives_meanwhile(&former, &list(to));
        assert_eq!(told, meanwhile, "{actives:b} {confirmed:b} {to:?}");
    }
}

/// A timer of two of three nodes, due after 100 s. Returns also its first node, and its other node
/// as the first numbers it.
fn offered() -> (Cluster, usize, PeerIndex) {
    let mut cluster = Cluster::new(3, true);
    cluster.put(0, ID, (100, 100), 2);
    cluster.run_until(5);
    let list = cluster.list(ID);
    let other = cluster.peer(list[0], list[1]).expect("a member");
    (cluster, list[0], other)
}

/// The second walk offers what was asked for during the first.
#[test]
fn a_walk_looks_at_every_record_once_and_another_one_follows_it() {
    let mut cluster = Cluster::new(2, true);
    (0..5).for_each(|id| cluster.put(0, TimerId(id), (100, 100), 2));
    cluster.run_until(5);
    let peer = PeerSet::EMPTY.with(cluster.peer(0, 1).expect("a member"));
    let shard = cluster.shard(0);
    shard.reconcile.start_walk(PeerSet::EMPTY);
    shard.reconcile.start_walk(peer);
    shard.reconcile.start_walk(peer);
    assert_eq!((shard.reconcile.seen(), shard.reconcile.owes()), (Some(0), true));
    for (after_ms, offers, seen) in [(1, 0, Some(0)), (2, 5, None), (3, 5, None)] {
        cluster.now_ms += 1;
        let now = cluster.now();
        let shard = cluster.shard(0);
        shard.reconcile(now, &mut Outbox::default());
        assert_eq!((shard.reconcile.offers, shard.reconcile.seen()), (offers, seen), "{after_ms}");
    }
}

#[test]
fn a_portion_is_done_once_a_tick_and_only_while_nothing_is_asked_about() {
    for (is_asking, is_again, is_done) in
        [(false, false, true), (true, false, false), (false, true, false)]
    {
        let (mut cluster, own, other) = offered();
        cluster.now_ms += 1;
        let now = cluster.now();
        let shard = cluster.shard(own);
        if is_again {
            shard.reconcile(now, &mut Outbox::default());
        }
        if is_asking {
            shard.questions.was_away(now.mono.tick_floor(), None);
        }
        shard.reconcile.start_walk(PeerSet::EMPTY.with(other));
        shard.reconcile(now, &mut Outbox::default());
        assert_eq!(shard.reconcile.offers > 0, is_done, "{is_asking} {is_again}");
    }
}

#[test]
fn a_timer_waits_once_to_be_looked_at_again() {
    let (mut cluster, own, _) = offered();
    let tick = cluster.now().mono.tick_floor();
    let shard = cluster.shard(own);
    (0..3).for_each(|_| shard.reconcile.look_again(tick, ID));
    assert_eq!(shard.reconcile.misplaced(), 1);
    assert_eq!(shard.reconcile.next_wake(), Some(tick + LOOK_AGAIN_MS));
    cluster.now_ms += LOOK_AGAIN_MS;
    let now = cluster.now();
    let shard = cluster.shard(own);
    shard.reconcile(now, &mut Outbox::default());
    assert_eq!(shard.reconcile.misplaced(), 0, "it is where it belongs");
}

/// Messages that follow, timers that lack a copy, timers that are to be looked at again.
#[test]
fn what_a_peer_says_to_an_offer_decides_what_it_gets() {
    let full = PeerResult::Refused(PeerRefusal::Full);
    let other = PeerResult::Refused(PeerRefusal::FutureVersion);
    for (result, told, lacking, looked_at) in [
        (Some(PeerResult::Wanted), 1, 0, 0),
        (Some(PeerResult::Held), 0, 0, 0),
        (Some(PeerResult::Otherwise), 0, 0, 0),
        (Some(PeerResult::Ahead), 0, 0, 0),
        (Some(full), 0, 1, 1),
        (Some(other), 0, 0, 0),
        (None, 0, 0, 0),
    ] {
        let (mut cluster, own, peer) = offered();
        let now = cluster.now();
        let shard = cluster.shard(own);
        shard.reconcile.offers = 1;
        let mut outbox = Outbox::default();
        shard.offer_result(now, peer, (ID, NO_MOVE), result, &mut outbox);
        assert_eq!(outbox.to_peers.len(), told, "{result:?}");
        let waiting = (shard.reconcile.lacking(), shard.reconcile.misplaced());
        assert_eq!(waiting, (lacking, looked_at), "{result:?}");
        assert_eq!(shard.reconcile.offers, told as u32, "a copy is an offer, too");
    }
}

/// What a peer said to an offer of an earlier move, or of none, says nothing about this move: the
/// peer may have given the timer away since. Otherwise the timer would be lost with its last
/// holder.
#[test]
fn a_move_is_finished_by_results_of_its_own_offers_alone() {
    let (mut cluster, own, peer) = offered();
    let now = cluster.now();
    let shard = cluster.shard(own);
    let list = [shard.peers.view.hash_of(peer)].into_iter().collect();
    let slot = shard.find(ID).expect("it is held");
    let sites = shard.records.placement_of(shard.records.get(slot)).sites;
    let placement = shard.placement(list, sites, 1);
    let waiting = PeerSet::EMPTY.with(peer);
    let key = shard.records.get(slot).key();
    shard
        .reconcile
        .moves
        .insert(ID.0, Move { key, placement, waiting, round: 7, is_passed_on: false });
    shard.reconcile.offers = 3;
    for (round, is_forgotten) in [(NO_MOVE, false), (6, false), (7, true)] {
        let held = Some(PeerResult::Held);
        shard.offer_result(now, peer, (ID, round), held, &mut Outbox::default());
        assert_eq!(shard.find(ID).is_none(), is_forgotten, "round {round}");
    }
}

/// Finishes a move to two other nodes, both of which have the timer, after `prepare` got the slot
/// and the new placement. Returns whether the timer is forgotten here, how many timers are
/// misplaced, and how many messages other nodes are told.
fn moved_away(
    early_ms: u64,
    prepare: impl FnOnce(&mut Shard, Slot, &Placement),
) -> (bool, u64, usize) {
    let (mut cluster, own, _) = offered();
    let others = (0..3).filter(|node| *node != own);
    let peers: Vec<_> = others.map(|node| cluster.peer(own, node).expect("a member")).collect();
    let shard = cluster.shard(own);
    let list = peers.iter().map(|peer| shard.peers.view.hash_of(*peer)).collect();
    let slot = shard.find(ID).expect("it is held");
    let sites = shard.records.placement_of(shard.records.get(slot)).sites;
    let placement = shard.placement(list, sites, 2);
    prepare(shard, slot, &placement);
    let record = *shard.records.get(slot);
    let moving = Move {
        key: record.key(),
        placement,
        waiting: PeerSet::EMPTY,
        round: 1,
        is_passed_on: false,
    };
    shard.reconcile.moves.insert(ID.0, moving);
    let (tick, mut outbox) = (Tick(record.due().0 - early_ms), Outbox::default());
    shard.finish_move(tick, ID, &mut outbox);
    (shard.find(ID).is_none(), shard.reconcile.misplaced(), outbox.to_peers.len())
}

/// Nodes that are new on the list hear from this node that they act. Nodes that have been on the
/// list for a while do not.
#[test]
fn a_node_that_forgets_a_timer_tells_those_who_are_new_on_the_list() {
    let (is_forgotten, _, told) = moved_away(2 * FINISH_GUARD_MS, |_, _, _| ());
    assert!(is_forgotten && told > 0);
    let listed_before =
        |shard: &mut Shard, slot, placement: &Placement| shard.place(slot, placement);
    let (is_forgotten, _, told) = moved_away(2 * FINISH_GUARD_MS, listed_before);
    assert!(is_forgotten && told == 0);
}

#[test]
fn a_timer_that_is_due_soon_is_not_handed_over_but_looked_at_again() {
    assert_eq!(moved_away(FINISH_GUARD_MS, |_, _, _| ()), (false, 1, 0));
    let (is_forgotten, misplaced, _) = moved_away(FINISH_GUARD_MS + 1, |_, _, _| ());
    assert_eq!((is_forgotten, misplaced), (true, 0));
}

/// A node that has come back holds a copy beside the list of those that stood in for it, and moves
/// the timer home. They would pop beside it what is due before they have heard of that.
#[test]
fn a_node_beside_the_list_does_not_act_on_a_pop_that_the_holders_are_about_to_make() {
    let finished = |at: fn(u64) -> u64, are_dead: bool| {
        let (mut cluster, own, _) = offered();
        let others: Vec<_> = (0..3).filter(|node| *node != own).collect();
        if are_dead {
            others.iter().for_each(|node| cluster.believe(own, *node, Liveness::Dead));
        }
        let peers: Vec<_> =
            others.iter().map(|node| cluster.peer(own, *node).expect("a member")).collect();
        let shard = cluster.shard(own);
        let view = &shard.peers.view;
        let beside = peers.iter().map(|peer| view.hash_of(*peer)).collect();
        let home = [shard.peers.own_hash(), view.hash_of(peers[0])].into_iter().collect();
        let slot = shard.find(ID).expect("it is held");
        let sites = shard.records.placement_of(shard.records.get(slot)).sites;
        let former = shard.placement(beside, sites, 2);
        shard.place(slot, &former);
        let record = *shard.records.get(slot);
        let placement = shard.placement(home, sites, 2);
        let (key, waiting) = (record.key(), PeerSet::EMPTY);
        let moving = Move { key, placement, waiting, round: 1, is_passed_on: false };
        shard.reconcile.moves.insert(ID.0, moving);
        shard.finish_move(Tick(at(record.due().0)), ID, &mut Outbox::default());
        shard.records.placement_of(shard.records.get(slot)).replicas == home
    };
    assert!(!finished(|due| due - FINISH_GUARD_MS, false), "they are about to pop");
    assert!(!finished(|due| due + FINISH_GUARD_MS, false), "they may be at it");
    assert!(finished(|due| due - FINISH_GUARD_MS - 1, false), "they hear of it in time");
    assert!(finished(|due| due + FINISH_GUARD_MS + 1, false), "something keeps them from it");
    assert!(finished(|due| due, true), "nobody else would pop");
}

#[test]
fn a_timer_whose_callback_runs_is_not_handed_over_but_looked_at_again() {
    let runs =
        |shard: &mut Shard, slot, _: &Placement| shard.records.transition(slot, Next::InFlight);
    assert_eq!(moved_away(2 * FINISH_GUARD_MS, runs), (false, 1, 0));
}

#[test]
fn whoever_could_not_be_told_is_offered_the_timer_or_everything_when_it_returns() {
    for (liveness, told, is_owed) in
        [(Liveness::Alive, 1, false), (Liveness::Suspect, 0, true), (Liveness::Dead, 0, true)]
    {
        let (mut cluster, own, _) = offered();
        let missing = cluster.list(ID)[1];
        cluster.believe(own, missing, liveness);
        let peer = cluster.peer(own, missing).expect("a member");
        let shard = cluster.shard(own);
        shard.peers.owed = PeerSet::EMPTY;
        let by = shard.peers.view.hash_of(peer);
        let mut outbox = Outbox::default();
        shard.offer_missed(ID, by, &mut outbox);
        assert_eq!((outbox.to_peers.len(), !shard.peers.owed.is_empty()), (told, is_owed));
        let own_hash = shard.peers.own_hash();
        shard.offer_missed(ID, own_hash, &mut outbox);
        assert_eq!(outbox.to_peers.len(), told, "a node does not offer to itself");
    }
}
