//! Nodes are added and removed while timers run.

use std::time::Duration;

use kit::runner::Story;

use super::files::Roles;
use super::harness::{Cluster, until};
use super::sink::Sink;
use super::timers::{Order, Timers};

pub const STORIES: &[Story] = &[
    ("up_and_then_down_onto_the_new_nodes", up_and_then_down_onto_the_new_nodes),
    ("up_from_two_to_four", up_from_two_to_four),
    ("down_from_four_to_two", down_from_four_to_two),
    ("up_and_then_the_old_node_is_killed", up_and_then_the_old_node_is_killed),
    ("up_and_then_both_old_nodes_are_killed", up_and_then_both_old_nodes_are_killed),
    ("requests_and_pops_go_on_while_nodes_join", requests_and_pops_go_on_while_nodes_join),
];

/// Carries out the three steps of docs/compat/timer-service.md §9.2, as a script does. `stay` and
/// `join` are the cluster at the end, `leave` are stopped.
pub fn scale(cluster: &mut Cluster, stay: &[usize], join: &[usize], leave: &[usize]) {
    let roles = Roles::staying(stay).with_joining(join).with_leaving(leave);
    cluster.start_with(join, &roles);
    let remaining = [stay, join].concat();
    let all = [stay, join, leave].concat();
    let asked: Vec<_> = remaining.iter().map(|place| resyncs(cluster, *place)).collect();
    cluster.reload(&[stay, leave].concat(), &roles);
    cluster.signal_all(&remaining, "USR1");
    for (place, asked) in remaining.iter().zip(asked) {
        until("the signal to be taken", || (resyncs(cluster, *place) > asked).then_some(()));
    }
    // Scripts of existing users wait for some seconds, so that this state is reached.
    cluster.await_settled(&all, &roles);
    leave.iter().for_each(|place| cluster.stop(*place));
    let roles = Roles::staying(&remaining);
    cluster.reload(&remaining, &roles);
    cluster.await_settled(&remaining, &roles);
}

/// Returns how often a node has been told to compare its timers.
fn resyncs(cluster: &Cluster, place: usize) -> usize {
    cluster.logged(place).matches("SIGUSR1: comparing all timers").count()
}

fn up_from_two_to_four() {
    let mut cluster = Cluster::running(&[0, 1]);
    let sink = Sink::ok();
    let timers = Timers::hundred(&cluster, &[0, 1], Order::once(6_000), &sink);
    scale(&mut cluster, &[0, 1], &[2, 3], &[]);
    timers.judge(&sink).assert_perfect();
}

fn down_from_four_to_two() {
    let mut cluster = Cluster::running(&[0, 1, 2, 3]);
    let sink = Sink::ok();
    let timers = Timers::hundred(&cluster, &[0, 1, 2, 3], Order::once(7_000), &sink);
    scale(&mut cluster, &[0, 1], &[], &[2, 3]);
    timers.judge(&sink).assert_perfect();
}

fn up_and_then_down_onto_the_new_nodes() {
    let mut cluster = Cluster::running(&[0, 1]);
    let sink = Sink::ok();
    let order = Order::once(5_000).times(4);
    let timers = Timers::hundred(&cluster, &[0, 1], order, &sink);
    scale(&mut cluster, &[0, 1], &[2, 3], &[]);
    scale(&mut cluster, &[2, 3], &[], &[0, 1]);
    timers.judge(&sink).assert_perfect();
    // A timer of the first cluster can still be named by the location that its client got then.
    let answer = cluster.request(2, "DELETE", &timers.all[0].location, "");
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn up_and_then_the_old_node_is_killed() {
    let mut cluster = Cluster::running(&[0]);
    let sink = Sink::ok();
    let timers = Timers::hundred(&cluster, &[0], Order::once(7_000), &sink);
    scale(&mut cluster, &[0], &[1], &[]);
    timers.expect_none_due();
    cluster.kill(0);
    // Timers whose first rank was the dead node are late by one rank.
    timers.judge(&sink).assert_once().assert_ranks(1);
}

fn up_and_then_both_old_nodes_are_killed() {
    let mut cluster = Cluster::running(&[0, 1]);
    let sink = Sink::ok();
    let timers = Timers::hundred(&cluster, &[0, 1], Order::once(8_000).factor(3), &sink);
    scale(&mut cluster, &[0, 1], &[2, 3], &[]);
    timers.expect_none_due();
    cluster.kill(0);
    cluster.kill(1);
    // With two nodes, factor 3 meant two replicas. Of three of the four nodes, at least one is new.
    let judgement = timers.judge_after(&sink, Duration::from_millis(6_500));
    judgement.assert_once().assert_ranks(2);
}

fn requests_and_pops_go_on_while_nodes_join() {
    let mut cluster = Cluster::running(&[0, 1]);
    let sink = Sink::ok();
    let order = Order::once(1_000).times(10).factor(2);
    let timers = Timers::hundred(&cluster, &[0, 1], order, &sink);
    let (other, before) = (Sink::ok(), Sink::ok());
    let kept = Timers::hundred(&cluster, &[0, 1], Order::once(60_000), &before);
    scale(&mut cluster, &[0, 1], &[2, 3], &[]);
    // The timers are created under one view and changed under another, by nodes that were not
    // there.
    let updated = Order::once(1_500).factor(2);
    for (number, timer) in kept.all.iter().enumerate() {
        let document = updated.document(&other.uri(&timer.path), "");
        cluster.request(2 + number % 2, "PUT", &timer.location, &document).location();
    }
    scale(&mut cluster, &[1, 2, 3], &[], &[0]);
    timers.judge(&sink).assert_perfect();
    until("the updated ones to pop", || (other.by_path().len() >= kept.all.len()).then_some(()));
    assert_eq!(other.pops().len(), kept.all.len());
    assert_eq!(before.pops().len(), 0);
}
