//! Numbers of one shard while its timers live, and of a cluster in which several nodes hold each.

use super::*;
use crate::base::ids::TimerId;
use crate::cluster::detector::Liveness;
use crate::shard::effects::{Answer, CallbackOutcome, Condition, Conditional, Internal, Request};
use crate::shard::harness_tests::{Cluster, target};
use crate::wire::timer_action::TimerAction;

/// The numbers of one node.
fn of_node(cluster: &mut Cluster, node: usize) -> Numbers {
    let mut ask = Vec::new();
    CountAsk { walk: 1, has_spans: true }.encode(&mut ask);
    for _ in 0..10_000 {
        let Answer::Internal(answer) = cluster.ask(node, Request::List(&ask)) else {
            panic!("numbers are asked for")
        };
        let Internal::ListPart(Some(part)) = *answer else { panic!("{answer:?}") };
        let part = CountPart::decode(&part).expect("numbers");
        if let Some(numbers) = part.numbers {
            return numbers;
        }
        cluster.now_ms += u64::from(part.is_starved);
    }
    panic!("it does not end")
}

/// The numbers of all nodes that live.
fn of_all(cluster: &mut Cluster) -> Numbers {
    let mut sum = Numbers::default();
    for node in 0..cluster.nodes.len() {
        if cluster.nodes[node].shard.is_some() {
            sum.add(of_node(cluster, node));
        }
    }
    sum
}

fn settle(cluster: &mut Cluster) {
    for node in 0..cluster.nodes.len() {
        for _ in 0..3 {
            cluster.tick(node);
        }
    }
    cluster.audit();
}

#[test]
fn numbers_follow_the_lives_of_timers() {
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    cluster.put(0, TimerId(1), (5, 5), 1);
    cluster.put(0, TimerId(2), (500, 500), 1);
    cluster.put(0, TimerId(3), (2, 200_000), 1);
    cluster.put(0, TimerId(3), (90_000, 90_000), 1);
    let numbers = of_node(&mut cluster, 0);
    assert_eq!((numbers.states, numbers.spans), ([3, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 1]));
    assert_eq!((numbers.tags["CALL"], numbers.hosts["host:80"]), (9, 3));
    cluster.run_until(6);
    let numbers = of_node(&mut cluster, 0);
    assert_eq!((numbers.states, numbers.spans), ([2, 0, 0, 1, 0, 0], [1, 0, 0, 1, 0, 1]));
    cluster.ask(0, Request::Delete(target(TimerId(1), 1)));
    cluster.ask(0, Request::Delete(target(TimerId(3), 1)));
    let numbers = of_node(&mut cluster, 0);
    assert_eq!((numbers.states, numbers.spans), ([1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0]));
    assert_eq!((numbers.tags["CALL"], numbers.hosts["host:80"]), (3, 1));
    for (action, states, spans) in [
        (TimerAction::Pause, [0, 0, 0, 0, 0, 1], [0; 6]),
        (TimerAction::Resume, [1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0]),
    ] {
        let (target, condition, definition) = (target(TimerId(2), 1), Condition::Present, None);
        let action = Some(action);
        let ask = Conditional { target, condition, definition, action };
        cluster.ask(0, Request::Conditional(ask));
        let numbers = of_node(&mut cluster, 0);
        assert_eq!((numbers.states, numbers.spans), (states, spans), "{action:?}");
        assert_eq!((numbers.tags["CALL"], numbers.hosts["host:80"]), (3, 1));
        cluster.audit();
    }
    cluster.ask(0, Request::Delete(target(TimerId(2), 1)));
    assert_eq!(of_node(&mut cluster, 0), Numbers::default());
    cluster.audit();
}

#[test]
fn a_timer_that_several_nodes_hold_counts_once() {
    let mut cluster = Cluster::new(4, true);
    for at in 0..60 {
        cluster.create(at % 4, (100, 100), 1 + (at % 3) as u8);
    }
    settle(&mut cluster);
    let numbers = of_all(&mut cluster);
    assert_eq!((numbers.states, numbers.spans), ([60, 0, 0, 0, 0, 0], [0, 0, 0, 60, 0, 0]));
    assert_eq!((numbers.tags["CALL"], numbers.hosts["host:80"]), (180, 60));
    cluster.kill(2);
    settle(&mut cluster);
    let lost = 60 - of_all(&mut cluster).states[0];
    assert!(lost < 20, "those alone that nobody else held: {lost}");
    let numbers = of_all(&mut cluster);
    assert_eq!((numbers.spans[3], numbers.hosts["host:80"]), (60 - lost, 60 - lost));
    cluster.return_empty(2);
    // It is given what it is to hold.
    cluster.run_until(10);
    settle(&mut cluster);
    assert_eq!(of_all(&mut cluster).states[0], 60 - lost);
    // All believe another thing for a moment.
    for at in [1, 2, 3] {
        cluster.believe(at, 0, Liveness::Dead);
    }
    settle(&mut cluster);
    for at in [1, 2, 3] {
        cluster.believe(at, 0, Liveness::Alive);
    }
    settle(&mut cluster);
    assert_eq!(of_all(&mut cluster).states[0], 60 - lost);
}

#[test]
fn marks_are_brought_up_to_date_in_portions() {
    let mut cluster = Cluster::new(2, true);
    for id in 1..=10_000 {
        cluster.put(0, TimerId(id), (1_000, 1_000), 2);
    }
    let first = |cluster: &mut Cluster, node| of_node(cluster, node).states[0];
    let own = first(&mut cluster, 0);
    assert_eq!(own + first(&mut cluster, 1), 10_000);
    cluster.nodes[1].shard = None;
    cluster.believe(0, 1, Liveness::Dead);
    let mut ticks = 0;
    while !cluster.shard(0).records.tallies().is_settled() {
        assert_eq!(cluster.shard(0).next_wake(), Some(crate::base::time::Tick(0)));
        cluster.tick(0);
        ticks += 1;
    }
    assert_eq!((ticks, first(&mut cluster, 0)), (2, 10_000));
    cluster.audit();
}
