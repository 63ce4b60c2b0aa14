//! When a pop is left to the next rank, and when it is taken back.

use super::super::effects::{Answer, Dialect, Event, Request};
use super::super::harness_tests::{Cluster, START_MS, TICKET, content, definition};
use super::super::parts::peers::Teller;
use super::super::records::{Placement, SUSPECT_FAILURES};
use super::*;
use crate::base::ids::{SiteHash, TimerId};
use crate::base::limits::CallbackLimits;
use crate::base::ranked::Replicas;
use crate::base::time::WallMs;
use crate::cluster::detector::Liveness;
use crate::cluster::view::{Membership, View};
use crate::timer::definition::Definition;
use crate::timer::version::Version;
use crate::wire::peer_message::PeerMessage;
use crate::wire::peer_message::{CopyBody, Standing, TimerCopy};

const ID: TimerId = TimerId(7);

fn cluster() -> (Cluster, usize, usize) {
    Cluster::with_timer_of_two(ID)
}

#[test]
fn a_pop_that_waited_is_left_to_the_next_rank_when_that_ones_turn_comes() {
    let (mut cluster, first, second) = cluster();
    let is_left = |cluster: &Cluster, node: usize, after_due_ms: u64, attempts: u8| {
        let shard = cluster.nodes[node].shard.as_ref().expect("it is up");
        let held = *shard.records.get(shard.find(ID).expect("it is held"));
        let record = Record { attempts, ..held };
        shard.is_next_ranks_turn(record.schedule().due(1) + after_due_ms, &record)
    };
    assert!(!is_left(&cluster, first, 0, 0));
    assert!(!is_left(&cluster, first, RANK_DELAY_MS - 1, 0));
    assert!(is_left(&cluster, first, RANK_DELAY_MS, 0));
    assert!(!is_left(&cluster, first, RANK_DELAY_MS, 1), "it was tried here");
    assert!(!is_left(&cluster, second, 10 * RANK_DELAY_MS, 0), "nobody is behind");
    cluster.believe(first, second, Liveness::Suspect);
    assert!(is_left(&cluster, first, RANK_DELAY_MS, 0));
    cluster.believe(first, second, Liveness::Dead);
    assert!(!is_left(&cluster, first, RANK_DELAY_MS, 0), "nobody lives behind");
}

/// A pop that the others did not make either is given up when its time is over, but not before this
/// node tried it.
#[test]
fn a_pop_is_taken_back_before_it_is_given_up_untried() {
    for (attempts, is_over, is_given_up) in
        [(0, false, false), (0, true, false), (1, false, false), (1, true, true)]
    {
        let (mut cluster, first, second) = cluster();
        cluster.believe(first, second, Liveness::Dead);
        let shard = cluster.nodes[first].shard.as_mut().expect("it is up");
        let slot = shard.find(ID).expect("it is held");
        shard.records.transition(slot, Next::HandedOver(Tick(0)));
        shard.records.take_out(slot);
        (0..attempts).for_each(|_| _ = shard.records.fail(slot));
        let (record, give_up_ms) = (shard.records.get(slot), shard.config.callbacks.give_up_ms);
        let give_up_at = record.schedule().give_up_at(1, record.due(), give_up_ms);
        cluster.now_ms = give_up_at.0 - u64::from(!is_over);
        let now = cluster.now();
        let shard = cluster.nodes[first].shard.as_mut().expect("it is up");
        // The core got time all the while.
        shard.turns.ticked_at = now.mono.tick_floor();
        let mut outbox = Outbox::default();
        shard.take_back(now, slot, &mut outbox);
        assert_eq!(shard.counters.given_up, u64::from(is_given_up), "{attempts} {is_over}");
        assert_eq!(outbox.attempts.len(), usize::from(!is_given_up));
    }
}

#[test]
fn a_rank_behind_is_a_backup_while_it_lives() {
    let (mut cluster, first, second) = cluster();
    let has_backup = |cluster: &Cluster, node: usize| {
        let shard = cluster.nodes[node].shard.as_ref().expect("it is up");
        shard.has_backup(shard.records.get(shard.find(ID).expect("it is held")))
    };
    assert!(has_backup(&cluster, first) && !has_backup(&cluster, second));
    cluster.believe(first, second, Liveness::Suspect);
    assert!(has_backup(&cluster, first));
    cluster.believe(first, second, Liveness::Dead);
    assert!(!has_backup(&cluster, first));
}

/// The pop comes back after two ranks of two seconds each, as many in each of the sites, and as
/// long as a callback may take.
#[test]
fn a_pop_that_was_handed_over_comes_back_when_all_others_had_their_try() {
    for sites in [0, 3] {
        let (mut cluster, first, _) = cluster();
        let shard = cluster.nodes[first].shard.as_mut().expect("it is up");
        let slot = shard.find(ID).expect("it is held");
        let held = *shard.records.placement_of(shard.records.get(slot));
        let all = (0..sites).map(SiteHash).collect();
        shard.place(slot, &Placement { sites: all, ..held });
        shard.records.take_out(slot);
        let due = shard.records.get(slot).schedule().due(1);
        shard.hand_over(due + 5, slot);
        let ranks = 2 + 2 * u64::from(sites);
        let back_at = due + 5 + ranks * RANK_DELAY_MS + shard.config.callbacks.timeout_ms;
        assert_eq!(shard.records.filed_at(slot), back_at);
        assert_eq!(shard.records.get(slot).state, State::HandedOver);
        assert_eq!(shard.counters.handed_over, 1);
    }
}

/// A pop is left to the next rank in two cases: its host is in trouble, whenever that is; or it
/// waited here until the next rank's turn came. That rank is suspected, so that no peer is asked.
#[test]
fn a_pop_is_begun_unless_it_is_the_next_ranks_or_its_host_is_in_trouble() {
    for (after_due_ms, has_waited, is_in_trouble, is_begun) in [
        (0, false, false, true),
        (0, true, false, true),
        (RANK_DELAY_MS, false, false, true),
        (RANK_DELAY_MS, true, false, false),
        (0, false, true, false),
        (RANK_DELAY_MS, true, true, false),
    ] {
        let (mut cluster, first, second) = cluster();
        cluster.believe(first, second, Liveness::Suspect);
        let shard = cluster.shard(first);
        let slot = shard.find(ID).expect("it is held");
        shard.records.take_out(slot);
        let record = *shard.records.get(slot);
        let tick = record.schedule().due(1) + after_due_ms;
        if is_in_trouble {
            let host = shard.records.hosts_mut().admit(record.authority, tick, &mut Vec::new());
            let host = host.expect("there are lanes");
            (0..SUSPECT_FAILURES).for_each(|_| shard.records.hosts_mut().failed(host, tick));
        }
        cluster.now_ms = tick.0;
        let now = cluster.now();
        let shard = cluster.shard(first);
        let mut outbox = Outbox::default();
        shard.pop(now, slot, has_waited, &mut outbox);
        let case = (after_due_ms, has_waited, is_in_trouble);
        assert_eq!(outbox.attempts.len(), usize::from(is_begun), "{case:?}");
        let state = if is_begun { State::InFlight } else { State::HandedOver };
        assert_eq!(shard.records.get(slot).state, state, "{case:?}");
    }
}

/// Of four nodes `at` holds the timer, on a list on which these ranks act, and has popped. Returns
/// the list that the timer gets, by the places of its nodes in the order of the configuration, and
/// the ranks that act there.
fn after_a_pop(
    promotion: bool,
    at: usize,
    (former, actives): (&[usize], u16),
    (dead, suspect): (&[usize], &[usize]),
) -> (Vec<usize>, u16) {
    let mut cluster = Cluster::new(4, promotion);
    let mut order = cluster.list(ID);
    order.extend((0..4).find(|node| !order.contains(node)));
    let hashes: Vec<_> = order
        .iter()
        .map(|&node| {
            let peer = cluster.peer(node, node).expect("a member");
            cluster.nodes[node].view.hash_of(peer)
        })
        .collect();
    let own = order[at];
    for (nodes, liveness) in [(dead, Liveness::Dead), (suspect, Liveness::Suspect)] {
        nodes.iter().for_each(|&node| cluster.believe(own, order[node], liveness));
    }
    let replicas: Replicas = former.iter().map(|node| hashes[*node]).collect();
    let version = Version::of_start(WallMs(START_MS)).0;
    let list_digest = replicas.digest();
    let content = content();
    let copy = TimerCopy {
        standing: Standing { id: ID, version, sequence: 0, actives, list_digest },
        is_write: false,
        replicas,
        factor: 2,
        sites: Default::default(),
        start_ms: START_MS,
        interval_ms: 10_000,
        repeat_for_ms: 20_000,
        body: Some(CopyBody { authority: "host:80", content: &content }),
    };
    let (now, peer) = (cluster.now(), cluster.peer(own, (own + 1) % 4));
    let teller = Teller { peer, clock_offset_ns: 0 };
    let shard = cluster.shard(own);
    let mut outbox = Outbox::default();
    shard.peer_message(now, TICKET, teller, PeerMessage::Copy(copy), &mut outbox);
    let record = *shard.records.get(shard.find(ID).expect("it is held"));
    let placement = shard.next_placement(Tick(START_MS), &record, true);
    let place = |node: &_| hashes.iter().position(|hash| hash == node).expect("one of the four");
    (placement.replicas.as_slice().iter().map(place).collect(), placement.actives)
}

/// An original still has its copy, and does not learn from other nodes which node pops. Another
/// node may still be trying a pop that the first one on the new list makes.
#[test]
fn whoever_leaves_and_may_pop_is_told_of_pops_though_it_is_on_no_list() {
    let (mut cluster, first, second) = cluster();
    let others = (0..3).filter(|node| *node != second);
    let membership = Membership {
        localhost: cluster.names[first].clone(),
        nodes: others.map(|node| cluster.names[node].clone()).collect(),
        leaving: vec![cluster.names[second].clone()],
        ..Membership::default()
    };
    let view = View::build(Some(&cluster.nodes[first].view), &membership);
    let view = std::sync::Arc::new(view.expect("a good configuration"));
    cluster.nodes[first].view = view.clone();
    let (now, peer) = (cluster.now(), cluster.peer(first, second).expect("a member"));
    let shard = cluster.shard(first);
    let list = view.place(ID, 2, view.new_nodes());
    shard.handle(now, Event::View(view), &mut Outbox::default());
    let slot = shard.find(ID).expect("it is held");
    let placed = shard.placement(list, Default::default(), 2);
    let all = placed.actives;
    let (frames, http) = (Dialect::Frames, Dialect::Http);
    for (dialect, actives, is_told) in
        [(frames, all, false), (http, all, true), (frames, 0, true), (http, 0, true)]
    {
        let placement = Placement { actives, ..placed };
        let event = Event::Peer { peer, liveness: Liveness::Alive, dialect, has_gaps: false };
        shard.handle(now, event, &mut Outbox::default());
        let record = *shard.records.get(slot);
        let (record, _) = shard.retell(&record, slot, &placement);
        let (_, (to, _)) = shard.retell(&record, slot, &placement);
        assert_eq!(to.contains(peer), is_told, "{dialect:?} {actives}");
    }
}

#[test]
fn those_who_acted_and_live_act_after_a_pop() {
    for promotion in [false, true] {
        let after = |held, gone| after_a_pop(promotion, 1, (&[0, 1], held), gone);
        assert_eq!(after(0b11, (&[], &[])), (vec![0, 1], 0b11));
        assert_eq!(after(0b10, (&[], &[])), (vec![0, 1], 0b10));
        assert_eq!(after(0b01, (&[], &[])), (vec![0, 1], 0b11), "and whoever did it");
        // The other nodes are dead or suspected: none can stand in.
        assert_eq!(after(0b11, (&[0], &[2, 3])), (vec![0, 1], 0b10));
        assert_eq!(after(0b11, (&[], &[0])), (vec![0, 1], 0b11), "a suspect lives");
    }
}

/// A timer goes back from stand-ins. With promotion the nodes that acted go on, and a new node acts
/// after the next pop. Without promotion all ranks wait by their places, and so all act at once.
#[test]
fn who_is_new_on_a_list_acts_at_once_only_without_promotion() {
    let after = |promotion, at, former, gone| after_a_pop(promotion, at, former, gone);
    let nobody: (&[usize], &[usize]) = (&[], &[]);
    assert_eq!(after(true, 1, (&[1, 2], 0b11), nobody), (vec![0, 1], 0b10));
    assert_eq!(after(false, 1, (&[1, 2], 0b11), nobody), (vec![0, 1], 0b11));
    for promotion in [false, true] {
        // No node that acts stays.
        assert_eq!(after(promotion, 2, (&[1, 2], 0b10), nobody), (vec![0, 1], 0b11));
    }
    // The first node of the new list is dead, and its stand-in, the fourth node, is suspected.
    for promotion in [false, true] {
        let gone: (&[usize], &[usize]) = (&[0], &[3]);
        assert_eq!(after(promotion, 2, (&[0, 2], 0b11), gone), (vec![0, 1], 0b10));
    }
}

#[test]
fn whoever_had_no_room_for_a_timer_does_not_act_after_its_next_pop() {
    for is_refused in [false, true] {
        let (mut cluster, first, second) = cluster();
        let (tick, peer) = (Tick(START_MS), cluster.peer(first, second).expect("a member"));
        let shard = cluster.shard(first);
        if is_refused {
            shard.refused_for_room(tick, peer, ID);
        }
        let record = *shard.records.get(shard.find(ID).expect("it is held"));
        let placement = shard.next_placement(tick, &record, true);
        assert_eq!(placement.actives, if is_refused { 0b01 } else { 0b11 });
        assert_eq!(placement.replicas.len(), 2);
    }
}

/// A node alone, with a timer that is due after a second at a host in trouble.
fn troubled(probe_at: Tick) -> (Cluster, Slot) {
    let mut cluster = Cluster::new(1, true);
    let id = cluster.create(0, (1, 1), 1);
    let limits = cluster.shard(0).config.callbacks.clone();
    let shard = cluster.shard(0);
    let slot = shard.find(id).expect("it is held");
    shard.records.take_out(slot);
    let authority = shard.records.get(slot).authority;
    let at = Tick(probe_at.0 - limits.retry_first_ms);
    let host =
        shard.records.hosts_mut().admit(authority, at, &mut Vec::new()).expect("there are lanes");
    (0..SUSPECT_FAILURES).for_each(|_| shard.records.hosts_mut().failed(host, at));
    assert!(shard.records.hosts().may_start(host, probe_at));
    assert!(!shard.records.hosts().may_start(host, Tick(probe_at.0 - 1)));
    (cluster, slot)
}

/// An untried pop is given up only if it may not be tried.
#[test]
fn a_pop_of_a_host_in_trouble_is_given_up_when_its_time_is_over() {
    for (attempts, may_start, is_over, is_given_up, is_begun) in [
        (0, false, false, false, false),
        (0, true, false, false, true),
        (0, true, true, false, true),
        (0, false, true, true, false),
        (1, true, true, true, false),
        (1, true, false, false, true),
    ] {
        let over_at = START_MS + 1_000 + CallbackLimits::default().give_up_ms;
        let tick = Tick(over_at - u64::from(!is_over));
        let (mut cluster, slot) = troubled(tick + u64::from(!may_start));
        cluster.now_ms = tick.0;
        let now = cluster.now();
        let shard = cluster.shard(0);
        (0..attempts).for_each(|_| _ = shard.records.fail(slot));
        let mut outbox = Outbox::default();
        shard.pop(now, slot, false, &mut outbox);
        let case = (attempts, may_start, is_over);
        assert_eq!(shard.counters.given_up, u64::from(is_given_up), "{case:?}");
        assert_eq!(outbox.attempts.len(), usize::from(is_begun), "{case:?}");
        if !is_given_up && !is_begun {
            assert_eq!(shard.records.get(slot).state, State::BackingOff, "not in the host's row");
        }
        assert_eq!(shard.records.counts().waiting, 0);
    }
}

/// A pop that is tried for the first time at a host that is well is not overdue because of the
/// host.
#[test]
fn only_a_pop_that_has_failed_or_is_held_back_counts_as_failing() {
    for (attempts, is_failing) in [(0, false), (1, true)] {
        let (mut cluster, first, _) = cluster();
        let shard = cluster.shard(first);
        let slot = shard.find(ID).expect("it is held");
        shard.records.take_out(slot);
        (0..attempts).for_each(|_| _ = shard.records.fail(slot));
        let due = shard.records.get(slot).schedule().due(1);
        cluster.now_ms = due.0;
        let now = cluster.now();
        let shard = cluster.shard(first);
        shard.pop(now, slot, false, &mut Outbox::default());
        assert_eq!(shard.pops.oldest_failing.get(due), is_failing.then_some(due), "{attempts}");
        assert_eq!(shard.counters.without_lane, 0);
    }
}

#[test]
fn each_look_at_a_pop_without_a_lane_is_counted() {
    let mut cluster = Cluster::new(1, true);
    let now = cluster.now();
    let mut config = cluster.shard(0).config.clone();
    config.callbacks.hosts_per_core_max = 4;
    cluster.nodes[0].shard = Some(Shard::new(config, now));
    cluster.hung = Some(0);
    let content = content();
    for host in 0..6 {
        let authority = format!("host-{host}:80");
        let definition = Definition { authority: &authority, ..definition((1, 1), 1, &content) };
        let answer = cluster.ask(0, Request::Create(definition));
        assert!(matches!(answer, Answer::Done { .. }), "{answer:?}");
    }
    cluster.run_until(1);
    let begun = cluster.pops.len() as u64;
    // A quarter of the lanes is kept for hosts that answer.
    assert_eq!((begun, cluster.shard(0).counters.without_lane), (3, 3));
    assert_eq!(cluster.shard(0).lanes(), 3);
    cluster.run_until(2);
    assert_eq!(cluster.shard(0).counters.without_lane, 6, "each is looked at once more");
}

/// No age ends a pop that only this node kept from being tried.
#[test]
fn what_this_node_lacks_counts_against_nobody() {
    let mut cluster = Cluster::new(1, true);
    let id = cluster.create(0, (1, 1), 1);
    cluster.now_ms = START_MS + 2_000 + CallbackLimits::default().give_up_ms;
    let now = cluster.now();
    let shard = cluster.shard(0);
    let slot = shard.find(id).expect("it is held");
    let mut outbox = Outbox::default();
    for tick in 0..3 * u64::from(SUSPECT_FAILURES) {
        shard.records.hosts_mut().begin_turn(Tick(tick));
        shard.records.take_out(slot);
        shard.pop(now, slot, false, &mut outbox);
        let attempt = outbox.attempts.pop().expect("it is tried");
        assert_eq!(attempt.number, 1);
        shard.callback_finished(now, attempt.ticket, CallbackOutcome::Lacking, &mut outbox);
        let record = shard.records.get(slot);
        assert_eq!((record.state, record.attempts), (State::BackingOff, 0));
        assert_eq!(shard.records.hosts().get(attempt.ticket.host).failures(), 0);
    }
    let counters = &shard.counters;
    assert_eq!((counters.given_up, counters.failed, counters.retried), (0, 0, 0));
    assert_eq!(counters.without_means, u64::from(3 * SUSPECT_FAILURES));
}

#[test]
fn a_pop_without_a_lane_is_not_given_up_for_it() {
    let mut cluster = Cluster::new(1, true);
    let now = cluster.now();
    let mut config = cluster.shard(0).config.clone();
    config.callbacks.hosts_per_core_max = 1;
    config.callbacks.give_up_ms = 100;
    cluster.nodes[0].shard = Some(Shard::new(config, now));
    cluster.hung = Some(0);
    let content = content();
    for host in 0..2 {
        let authority = format!("host-{host}:80");
        let definition = Definition { authority: &authority, ..definition((1, 1), 1, &content) };
        let answer = cluster.ask(0, Request::Create(definition));
        assert!(matches!(answer, Answer::Done { .. }), "{answer:?}");
    }
    cluster.run_until(5);
    let counters = &cluster.shard(0).counters;
    assert!(counters.without_lane > 3, "{counters:?}");
    assert_eq!(counters.given_up, 0);
}

/// The rank did nothing since it was dead. A timer now and then is given back to it all the same.
/// Behind another rank it makes no pop late.
#[test]
fn a_returned_rank_that_has_shown_nothing_is_the_first_only_if_nobody_else_can() {
    const FIRST: u16 = 0b01;
    const SECOND: u16 = 0b10;
    for (returned, carried, is_delivered, may_try, able, is_tried) in [
        (FIRST, 0b11, true, false, 0b10, false),
        (FIRST, 0b11, true, true, 0b11, true),
        (FIRST, 0b11, false, false, 0b01, false),
        (FIRST, 0b01, true, true, 0b01, false),
        (FIRST, 0b10, true, true, 0b10, false),
        (SECOND, 0b11, true, false, 0b11, false),
        (SECOND, 0b11, true, true, 0b11, false),
        (SECOND, 0b11, false, false, 0b10, false),
        (SECOND, 0b10, true, true, 0b10, false),
        (SECOND, 0b01, true, true, 0b01, false),
        (SECOND, 0b01, false, true, 0b01, false),
    ] {
        let (mut cluster, first, second) = cluster();
        let is_first = returned == FIRST;
        let (own, other) = if is_first { (second, first) } else { (first, second) };
        let (own_rank, case) = (0b11 & !returned, (returned, carried, is_delivered, may_try));
        let returned = cluster.peer(own, other).expect("a member");
        let tick = Tick(START_MS);
        let shard = cluster.shard(own);
        let record = *shard.records.get(shard.find(ID).expect("it is held"));
        let list = shard.records.placement_of(&record).replicas;
        shard.peers.returned(tick, returned, Liveness::Dead);
        if !may_try {
            shard.peers.may_try(tick);
        }
        let is_able = shard.able(tick, &list, (carried, own_rank), is_delivered);
        assert_eq!(is_able, able, "{case:?}");
        assert_eq!(shard.peers.may_try(tick), may_try && !is_tried, "{case:?}");
    }
}
