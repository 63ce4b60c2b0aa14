//! Nodes die, come back empty, and freeze.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use kit::client::request;
use kit::runner::Story;

use super::files::Roles;
use super::harness::{Cluster, until};
use super::sink::Sink;
use super::timers::{Judgement, NEWS, Order, Timer, Timers};

pub const STORIES: &[Story] = &[
    ("each_node_is_restarted_in_turn", each_node_is_restarted_in_turn),
    ("one_node_is_killed_again_and_again", one_node_is_killed_again_and_again),
    ("the_node_that_acknowledged_is_killed_at_once", the_node_that_acknowledged_is_killed),
    ("one_of_three_is_killed", one_of_three_is_killed),
    ("the_log_tells_who_died_and_who_came_back", the_log_tells_who_died),
    ("a_node_restarts_empty_and_the_other_is_killed", restart_empty_then_kill_the_other),
    ("a_node_freezes_for_five_seconds", a_node_freezes_for_five_seconds),
    ("two_of_three_are_killed", two_of_three_are_killed),
    ("new_timers_are_placed_on_live_nodes", new_timers_are_placed_on_live_nodes),
    ("an_orderly_stop_delays_nothing_beyond_one_rank", an_orderly_stop_delays_one_rank),
];

fn one_of_three_is_killed() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::ok();
    let order = Order::once(4_000).times(3).factor(2);
    let timers = Timers::hundred(&cluster, &[0, 1, 2], order, &sink);
    timers.sleep_until(Duration::from_millis(2_500));
    cluster.kill(0);
    let judgement = timers.judge(&sink);
    judgement.assert_once().assert_ranks(1);
    let late = judgement.late();
    // About a third of the timers have the dead node as their first rank. A hundred draws with
    // probability 1/3 lie outside 10..60 once in a billion runs.
    judgement.expect((10..=60).contains(&late.len()), format_args!("late {late:?}"));
    assert_late_once(&judgement);
}

fn the_log_tells_who_died() {
    let mut cluster = Cluster::running(&[0, 1]);
    let name = cluster.address(1).to_string();
    let told = |cluster: &Cluster, what: &str| {
        let line = format!("{name} {what}");
        until(&format!("node 1 to log that {line}"), || {
            cluster.logged(0).contains(&line).then_some(())
        });
    };
    told(&cluster, "answers");
    cluster.kill(1);
    told(&cluster, "does not answer");
    cluster.start(1);
    told(&cluster, "answers again, after");
    assert_eq!(cluster.logged(0).matches("does not answer").count(), 1);
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
    judgement.assert_once().assert_ranks(2);
    assert_late_once(&judgement);
}

/// Checks that only the first pop of a timer waited for another rank.
fn assert_late_once(judgement: &Judgement) {
    let late = judgement.late();
    judgement.expect(late.iter().all(|pop| pop.sequence == 1), format_args!("again {late:?}"));
}

fn restart_empty_then_kill_the_other() {
    let mut cluster = Cluster::running(&[0, 1]);
    let sink = Sink::ok();
    let order = Order::once(9_000).times(2);
    let timers = Timers::hundred(&cluster, &[0, 1], order, &sink);
    cluster.kill(0);
    thread::sleep(Duration::from_millis(500));
    cluster.start(0);
    cluster.await_copies(&[0, 1], &timers);
    timers.expect_none_due();
    cluster.kill(1);
    let judgement = timers.judge(&sink);
    judgement.assert_once().assert_ranks(1);
    assert_late_once(&judgement);
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
    judgement.assert_none_lost().assert_ranks(1);
    let doubled = judgement.doubled();
    let is_expected = doubled.iter().all(|pop| pop.earlier == 1 && pop.sequence <= 2);
    judgement.expect(is_expected, format_args!("doubled {doubled:?}"));
    // Pop 3 is due at 9 s, when the node has been back for 2.5 s.
    let late = judgement.late();
    judgement.expect(late.iter().all(|pop| pop.sequence <= 2), format_args!("late {late:?}"));
}

fn new_timers_are_placed_on_live_nodes() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::ok();
    cluster.await_alive(&[0, 1, 2]);
    cluster.kill(1);
    cluster.await_dead(&[0, 2], 1);
    // Factor 1: each timer has one node, and that node must live.
    let timers = Timers::hundred(&cluster, &[0, 2], Order::once(4_000).factor(1), &sink);
    // No write waits for the dead node. That would take a second for each timer that is placed
    // there.
    timers.expect_none_due();
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
    cluster.stop(0);
    let judgement = timers.judge(&sink);
    judgement.assert_once().assert_ranks(1);
    let late = judgement.late();
    judgement.expect(late.iter().all(|pop| pop.sequence <= 3), format_args!("late {late:?}"));
}

fn each_node_is_restarted_in_turn() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::ok();
    let order = Order::once(2_000).times(11).factor(2);
    let timers = Timers::hundred(&cluster, &[0, 1, 2], order, &sink);
    // As a rolling upgrade does: a node is restarted when the node before has its share again.
    timers.sleep_until(Duration::from_millis(2_900));
    for place in [0, 1, 2] {
        cluster.stop(place);
        cluster.start(place);
        cluster.await_alive(&[0, 1, 2]);
        cluster.await_settled(&[0, 1, 2], &Roles::staying(&[0, 1, 2]));
        cluster.await_copies(&[0, 1, 2], &timers);
        // The steps take so long that pops fall into each of them.
        thread::sleep(Duration::from_millis(2_300));
    }
    timers.judge(&sink).assert_once().assert_ranks(1);
}

fn one_node_is_killed_again_and_again() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::ok();
    let order = Order::once(2_000).times(11).factor(2);
    let timers = Timers::hundred(&cluster, &[0, 1, 2], order, &sink);
    let mut deaths = Vec::new();
    for round in 0..8 {
        timers.sleep_until(Duration::from_millis(2_300 + 2_300 * round));
        cluster.kill(1);
        let killed = Instant::now();
        // The node restarts empty before any node declares it dead.
        thread::sleep(Duration::from_millis(100 * round));
        cluster.start(1);
        deaths.push((killed, Instant::now()));
    }
    // A callback is made again if the node died before it read the answer or sent the news: at most
    // one for each timer and death, and only if the death came soon after the callback. A busy sink
    // may read a callback after the death of the node that sent it.
    let judgement = timers.judge(&sink);
    judgement.assert_none_lost().assert_ranks(1);
    let doubled = judgement.doubled();
    let is_cut_off = |first: Instant| {
        deaths.iter().any(|(killed, returned)| first + NEWS >= *killed && first <= *returned)
    };
    let unexpected: Vec<_> = doubled
        .iter()
        .map(|pop| (pop, judgement.first_at(pop)))
        .filter(|(pop, first)| pop.earlier > 1 || !is_cut_off(*first))
        .collect();
    judgement.expect(unexpected.is_empty(), format_args!("{unexpected:?}, deaths {deaths:?}"));
}

fn the_node_that_acknowledged_is_killed() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    // The links stand, so writes wait for the other replicas.
    cluster.await_alive(&[0, 1, 2]);
    let sink = Sink::ok();
    let order = Order::once(5_000).factor(2);
    let to = cluster.address(0);
    let begun = Instant::now();
    let count = AtomicUsize::new(0);
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
            count.fetch_add(1, SeqCst);
        }
        acknowledged
    };
    let all: Vec<Timer> = thread::scope(|scope| {
        let create = &create;
        let clients: Vec<_> = (0..4).map(|client| scope.spawn(move || create(client))).collect();
        until("two hundred timers", || (count.load(SeqCst) > 200).then_some(()));
        cluster.kill(0);
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    });
    let timers = Timers { order, all, begun };
    timers.expect_none_due();
    let mut judgement = timers.judge(&sink);
    // A timer whose answer was never read may exist or not.
    judgement.strange.clear();
    judgement.assert_once().assert_ranks(1);
}
