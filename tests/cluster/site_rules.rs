//! Four sites with one node each, and a rule of a destination at one of them or at all: what a site
//! holds up is made by no other site while that site lives, and once.

use std::thread;
use std::time::{Duration, Instant};

use kit::noise;
use kit::runner::{Story, disturbed};

use super::destinations::{await_shown, order};
use super::harness::{Cluster, Setup, until};
use super::sink::Sink;
use super::sites::{ALL, four_sites};
use super::timers::{HUNDRED, Order, STALLED, Timers};

pub const STORIES: &[Story] = &[
    ("what_a_rule_of_one_site_holds_up_is_left_to_that_site", what_a_rule_holds_up_is_left),
    ("what_a_dead_site_held_up_is_made_by_another_one", what_a_dead_site_held_up_is_made),
    ("a_pause_of_all_sites_that_ends_lets_each_pop_be_made_once", a_pause_of_all_sites_ends),
    ("a_rule_outlives_the_restart_of_its_whole_site", a_rule_outlives_the_restart_of_its_site),
];

/// The turns of the other sites are over by then.
const ALL_TURNS: Duration = Duration::from_secs(10);

/// Pauses the sink at these nodes, and creates a hundred timers of the first site.
fn hold_up(cluster: &Cluster, sink: &Sink, paused: &[usize], interval_ms: u64) -> Timers {
    let name = sink.address.to_string();
    for place in paused {
        let answer = order(cluster, *place, "PUT", &name, r#"{"paused": true}"#);
        assert_eq!(answer.status, 200, "{answer:?}");
        await_shown(cluster, &[*place], &name, "paused", &true.into());
    }
    Timers::hundred(cluster, &[0], Order::once(interval_ms).factor(1), sink)
}

/// Waits until each site has had its turn.
fn expect_none(timers: &Timers, sink: &Sink) {
    let end = timers.due(1) + ALL_TURNS;
    thread::sleep(end.saturating_duration_since(Instant::now()));
    expect_pops(timers.begun, sink, 0);
}

/// A site that gets no time for long is taken for dead, and what it held up is made.
fn expect_pops(began: Instant, sink: &Sink, count: usize) {
    if sink.pops().len() != count && noise::since(began) >= STALLED {
        disturbed("sites may have taken each other for dead");
    }
    let mut paths: Vec<String> = sink.pops().into_iter().map(|pop| pop.path).collect();
    assert_eq!(paths.len(), count, "{paths:?}");
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), count, "one twice, one never");
}

/// Waits until each timer has popped, and for as long as another site would take to follow.
fn expect_each_once(timers: &Timers, sink: &Sink) {
    until("each to be made", || (sink.by_path().len() == HUNDRED).then_some(()));
    thread::sleep(ALL_TURNS);
    expect_pops(timers.begun, sink, HUNDRED);
}

fn resume(cluster: &Cluster, sink: &Sink, places: &[usize]) {
    for place in places {
        let answer = order(cluster, *place, "DELETE", &sink.address.to_string(), "");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

fn what_a_rule_holds_up_is_left() {
    let cluster = four_sites();
    let sink = Sink::ok();
    let timers = hold_up(&cluster, &sink, &[0], 1_000);
    expect_none(&timers, &sink);
    resume(&cluster, &sink, &[0]);
    expect_each_once(&timers, &sink);
}

fn what_a_dead_site_held_up_is_made() {
    let mut cluster = four_sites();
    let sink = Sink::ok();
    let timers = hold_up(&cluster, &sink, &[0], 1_000);
    expect_none(&timers, &sink);
    cluster.kill(0);
    expect_each_once(&timers, &sink);
}

fn a_pause_of_all_sites_ends() {
    let cluster = four_sites();
    let sink = Sink::ok();
    let timers = hold_up(&cluster, &sink, &ALL, 1_000);
    expect_none(&timers, &sink);
    resume(&cluster, &sink, &ALL);
    expect_each_once(&timers, &sink);
}

/// The order and the pops that wait for it are in the data directory of the site's only node.
fn a_rule_outlives_the_restart_of_its_site() {
    let mut cluster = Cluster::with(Setup { sites: true, ..Setup::default() });
    let directory = cluster.folder().join("data0");
    cluster.set_local(0, &format!("\n[journal]\ndata_dir = {}\n", directory.display()));
    cluster.begin(&ALL);
    let sink = Sink::ok();
    let timers = hold_up(&cluster, &sink, &[0], 20_000);
    cluster.await_copies(&[1, 2, 3], &timers);
    cluster.kill(0);
    cluster.start(0);
    await_shown(&cluster, &[0], &sink.address.to_string(), "paused", &true.into());
    timers.expect_none_due();
    expect_none(&timers, &sink);
    resume(&cluster, &sink, &[0]);
    expect_each_once(&timers, &sink);
}
