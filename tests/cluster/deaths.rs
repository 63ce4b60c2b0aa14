//! Nodes die, come back empty, and freeze.

use std::thread;
use std::time::{Duration, Instant};

use kit::client::request;
use kit::runner::Story;

use super::harness::Cluster;
use super::sink::Sink;
use super::timers::{Order, PROMPT, RANK_DELAY, Timer, Timers};

pub const STORIES: &[Story] = &[
    ("each_node_is_restarted_in_turn", each_node_is_restarted_in_turn),
    ("one_node_is_killed_again_and_again", one_node_is_killed_again_and_again),
    ("the_node_that_acknowledged_is_killed_at_once", the_node_that_acknowledged_is_killed),
    ("one_of_three_is_killed", one_of_three_is_killed),
    ("a_node_restarts_empty_and_the_other_is_killed", restart_empty_then_kill_the_other),
    ("a_node_freezes_for_five_seconds", a_node_freezes_for_five_seconds),
    ("two_of_three_are_killed", two_of_three_are_killed),
    ("new_timers_are_placed_on_live_nodes", new_timers_are_placed_on_live_nodes),
    ("an_orderly_stop_delays_nothing_beyond_one_rank", an_orderly_stop_delays_one_rank),
];

/// How late a pop may be whose first rank is dead: one rank's delay, and the time that everything
/// takes.
const ONE_RANK: Duration = Duration::from_millis(2_100);
/// When a silent node is declared dead, and one heartbeat more.
const DEAD: Duration = Duration::from_millis(3_300);

fn one_of_three_is_killed() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::ok();
    let order = Order::once(4_000).times(3).factor(2);
    let timers = Timers::hundred(&cluster, &[0, 1, 2], order, &sink);
    timers.sleep_until(Duration::from_millis(2_500));
    cluster.kill(0);
    let judgement = timers.judge(&sink);
    judgement.assert_once().assert_within(ONE_RANK);
    let late = judgement.later_than(PROMPT);
    // About a third of the timers have the dead node as their first rank. A hundred draws with
    // probability 1/3 lie outside 10..60 once in a billion runs.
    assert!((10..=60).contains(&late.len()), "{judgement}: {late:?}");
    assert!(late.iter().all(|pop| pop.sequence == 1), "{judgement}: late again: {late:?}");
    let behind = |pop: &&&super::timers::Judged| pop.late < RANK_DELAY - PROMPT;
    assert_eq!(late.iter().filter(behind).count(), 0, "late by less than a rank: {late:?}");
}

fn two_of_three_are_killed() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::ok();
    let order = Order::once(5_000).times(3).factor(3);
    let timers = Timers::hundred(&cluster, &[0, 1, 2], order, &sink);
    timers.sleep_until(Duration::from_millis(3_500));
    cluster.kill(2);
    cluster.kill(1);
    let judgement = timers.judge_after(&sink, Duration::from_millis(5_500));
    judgement.assert_once().assert_within(RANK_DELAY + ONE_RANK);
    let late_again = judgement.later_than(PROMPT).into_iter().filter(|pop| pop.sequence > 1);
    assert_eq!(late_again.count(), 0, "{judgement}");
}

fn restart_empty_then_kill_the_other() {
    let mut cluster = Cluster::running(&[0, 1]);
    let sink = Sink::ok();
    let order = Order::once(9_000).times(2);
    let timers = Timers::hundred(&cluster, &[0, 1], order, &sink);
    cluster.kill(0);
    thread::sleep(Duration::from_millis(500));
    cluster.start(0);
    // All timers are created at once. A hundred timers take some milliseconds.
    thread::sleep(Duration::from_secs(2));
    cluster.kill(1);
    let judgement = timers.judge(&sink);
    judgement.assert_once().assert_within(ONE_RANK);
    let late_again = judgement.later_than(PROMPT).into_iter().filter(|pop| pop.sequence > 1);
    assert_eq!(late_again.count(), 0, "{judgement}");
}

fn a_node_freezes_for_five_seconds() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::ok();
    let order = Order::once(3_000).times(4).factor(2);
    let timers = Timers::hundred(&cluster, &[0, 1, 2], order, &sink);
    timers.sleep_until(Duration::from_millis(1_500));
    cluster.freeze(1);
    timers.sleep_until(Duration::from_millis(6_500));
    cluster.thaw(1);
    let judgement = timers.judge(&sink);
    // The node wakes with pops that other nodes have made meanwhile. Such a pop may come twice,
    // with the same sequence number, and no more often than there are replicas.
    judgement.assert_none_lost().assert_within(ONE_RANK);
    let doubled = judgement.doubled();
    assert!(doubled.iter().all(|pop| pop.earlier == 1 && pop.sequence <= 2), "{doubled:?}");
    // Pop 3 is due at 9 s, when the node has been back for 2.5 s.
    let late = judgement.later_than(PROMPT);
    assert!(late.iter().all(|pop| pop.sequence <= 2), "{judgement}: {late:?}");
}

fn new_timers_are_placed_on_live_nodes() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::ok();
    thread::sleep(Duration::from_millis(500));
    cluster.kill(1);
    thread::sleep(DEAD);
    // Factor 1: each timer has one node, and that node must live.
    let timers = Timers::hundred(&cluster, &[0, 2], Order::once(4_000).factor(1), &sink);
    let took = timers.begun.elapsed();
    assert!(took < Duration::from_secs(3), "nobody waits for the dead: {took:?}");
    // The node comes back empty before the timers are due. The timers that it should hold are moved
    // to it once.
    cluster.start(1);
    timers.judge(&sink).assert_perfect();
}

fn an_orderly_stop_delays_one_rank() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::ok();
    let order = Order::once(2_000).times(4).factor(2);
    let timers = Timers::hundred(&cluster, &[0, 1, 2], order, &sink);
    timers.sleep_until(Duration::from_millis(2_900));
    let began = Instant::now();
    cluster.stop(0);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(3), "no callback is under way: {took:?}");
    let judgement = timers.judge(&sink);
    judgement.assert_once().assert_within(ONE_RANK);
    let late = judgement.later_than(PROMPT);
    assert!(late.iter().all(|pop| pop.sequence <= 3), "{judgement}: {late:?}");
}

fn each_node_is_restarted_in_turn() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::ok();
    let order = Order::once(2_000).times(11).factor(2);
    let timers = Timers::hundred(&cluster, &[0, 1, 2], order, &sink);
    // As a rolling upgrade does: a node is restarted when the node before has its share again.
    for place in [0, 1, 2] {
        timers.sleep_until(Duration::from_millis(2_900 + 6_000 * place as u64));
        cluster.stop(place);
        cluster.start(place);
    }
    let judgement = timers.judge(&sink);
    judgement.assert_once().assert_within(ONE_RANK);
}

fn one_node_is_killed_again_and_again() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::ok();
    let order = Order::once(2_000).times(11).factor(2);
    let timers = Timers::hundred(&cluster, &[0, 1, 2], order, &sink);
    for round in 0..8 {
        timers.sleep_until(Duration::from_millis(2_300 + 2_300 * round));
        cluster.kill(1);
        // The node restarts empty before any node declares it dead.
        thread::sleep(Duration::from_millis(100 * round));
        cluster.start(1);
    }
    // A callback is made again if the node died before it read the answer or sent the news: at most
    // one for each timer and death.
    let judgement = timers.judge(&sink);
    judgement.assert_none_lost().assert_within(ONE_RANK);
    let doubled = judgement.doubled();
    assert!(doubled.iter().all(|pop| pop.earlier == 1), "{doubled:?}");
    assert!(doubled.len() <= 20, "{judgement}: {doubled:?}");
}

fn the_node_that_acknowledged_is_killed() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    // The links stand, so writes wait for the other replicas.
    thread::sleep(Duration::from_secs(1));
    let sink = Sink::ok();
    let order = Order::once(5_000).factor(2);
    let to = cluster.address(0);
    let begun = Instant::now();
    let create = |client: usize| -> Vec<Timer> {
        let mut acknowledged = Vec::new();
        for number in 0..10_000 {
            let path = format!("/pop/{client}-{number}");
            let document = order.document(&sink.uri(&path), "");
            let asked = Instant::now();
            let Ok(answer) = request(to, "POST", "/timers", &document) else { break };
            assert_eq!(answer.status, 200, "{answer:?}");
            let location = answer.location().to_owned();
            acknowledged.push(Timer { path, location, asked, answered: Instant::now() });
        }
        acknowledged
    };
    let all: Vec<Timer> = thread::scope(|scope| {
        let create = &create;
        let clients: Vec<_> = (0..4).map(|client| scope.spawn(move || create(client))).collect();
        thread::sleep(Duration::from_millis(400));
        cluster.kill(0);
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    });
    assert!(all.len() > 100, "{} timers", all.len());
    let timers = Timers { order, all, begun };
    let mut judgement = timers.judge(&sink);
    // A timer whose answer was never read may exist or not.
    judgement.strange.clear();
    judgement.assert_once().assert_within(ONE_RANK);
}
