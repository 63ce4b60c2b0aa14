//! Networks that split, leak, crawl and lie.

use std::thread;
use std::time::{Duration, Instant};

use kit::runner::Story;

use super::harness::Setup;
use super::proxies::{Network, Way};
use super::sink::Sink;
use super::timers::{Judged, Judgement, NEWS, Order, Timers};

pub const STORIES: &[Story] = &[
    ("a_node_is_cut_off_and_comes_back", a_node_is_cut_off_and_comes_back),
    ("a_link_is_cut_in_both_directions", a_link_is_cut_in_both_directions),
    ("a_link_is_cut_in_one_direction", a_link_is_cut_in_one_direction),
    ("bytes_are_corrupted_between_nodes", bytes_are_corrupted_between_nodes),
    ("connections_between_nodes_break_all_the_time", connections_break_all_the_time),
    ("bytes_between_nodes_are_slow", bytes_between_nodes_are_slow),
];

const THREE: [usize; 3] = [0, 1, 2];
/// The timers repeat every 2 s for 16 s. The fault begins before the second pop and ends after the
/// fifth.
const BEGIN: Duration = Duration::from_millis(3_000);
const END: Duration = Duration::from_millis(10_500);
/// The numbers of pops that the fault may affect. They are due while the fault lasts, or within a
/// rank's delay after it. The first pop is among them, because its news may be on the way when the
/// fault begins.
const DURING: std::ops::RangeInclusive<u64> = 1..=6;

fn order() -> Order {
    Order::once(2_000).times(8).factor(2)
}

/// Checks what a split may do.
///
/// - No pop is lost.
/// - A pop is doubled at most once, and only while the fault lasts.
/// - A pop is late by at most a rank, and only while the fault lasts.
fn assert_as_in_a_split(judgement: &Judgement) {
    judgement.assert_none_lost().assert_ranks(1);
    let doubled = judgement.doubled();
    let is_expected = |sequence: u64, earlier: usize| DURING.contains(&sequence) && earlier <= 1;
    let are_expected = doubled.iter().all(|pop| is_expected(pop.sequence, pop.earlier));
    judgement.expect(are_expected, format_args!("doubled {doubled:?}"));
    let late = judgement.late();
    let are_expected = late.iter().all(|pop| DURING.contains(&pop.sequence));
    judgement.expect(are_expected, format_args!("late {late:?}"));
}

fn a_node_is_cut_off_and_comes_back() {
    let (mut cluster, network) = Network::around(Setup::default());
    cluster.begin(&THREE);
    let sink = Sink::ok();
    let timers = Timers::hundred(&cluster, &THREE, order(), &sink);
    timers.sleep_until(BEGIN);
    network.set_around(0, Way::Cut);
    // Both sides take new timers during the split. They are due after the split, and each pops
    // once.
    timers.sleep_until(BEGIN + Duration::from_millis(4_000));
    let (alone, others) = (Sink::ok(), Sink::ok());
    let created_alone = Timers::hundred(&cluster, &[0], Order::once(6_000), &alone);
    let created_there = Timers::hundred(&cluster, &[1, 2], Order::once(6_000), &others);
    timers.sleep_until(END);
    network.set_around(0, Way::Open);
    assert_as_in_a_split(&timers.judge(&sink));
    created_alone.judge(&alone).assert_perfect();
    created_there.judge(&others).assert_perfect();
}

fn a_link_is_cut_in_both_directions() {
    let (mut cluster, network) = Network::around(Setup::default());
    cluster.begin(&THREE);
    let sink = Sink::ok();
    let timers = Timers::hundred(&cluster, &THREE, order(), &sink);
    timers.sleep_until(BEGIN);
    network.set_both(0, 1, Way::Cut);
    timers.sleep_until(END);
    network.set_both(0, 1, Way::Open);
    assert_as_in_a_split(&timers.judge(&sink));
}

fn a_link_is_cut_in_one_direction() {
    let (mut cluster, network) = Network::around(Setup::default());
    cluster.begin(&THREE);
    let sink = Sink::ok();
    let timers = Timers::hundred(&cluster, &THREE, order(), &sink);
    timers.sleep_until(BEGIN);
    network.set(1, 2, Way::Cut);
    timers.sleep_until(END);
    network.set(1, 2, Way::Open);
    assert_as_in_a_split(&timers.judge(&sink));
}

fn bytes_are_corrupted_between_nodes() {
    let (mut cluster, network) = Network::around(Setup::default());
    cluster.begin(&THREE);
    let sink = Sink::ok();
    let timers = Timers::hundred(&cluster, &THREE, order(), &sink);
    // The news of a pop takes some 30 B, a heartbeat takes 36, so a connection lives for seconds.
    // The copies of a hundred timers at once would be a frame that never passes.
    network.set_both(0, 1, Way::Corrupt(2_500));
    network.set(2, 0, Way::Corrupt(4_000));
    let also = Sink::ok();
    let meanwhile = Timers::some(&cluster, &THREE, order(), &also, 10);
    let judgement = timers.judge(&sink);
    judgement.assert_none_lost().assert_ranks(1);
    meanwhile.judge(&also).assert_none_lost();
    // A message is lost with its connection and sent again on the next. Some messages are lost
    // again and again, until the second rank acts.
    let doubled = judgement.doubled();
    let are_few = doubled.len() <= 16 && doubled.iter().all(|pop| pop.earlier == 1);
    judgement.expect(are_few, format_args!("doubled {doubled:?}"));
    assert!(network.corrupted() >= 10, "{} bits", network.corrupted());
    THREE
        .iter()
        .for_each(|place| assert_eq!(cluster.request(*place, "GET", "/ping", "").status, 200));
}

fn connections_break_all_the_time() {
    let (mut cluster, network) = Network::around(Setup::default());
    cluster.begin(&THREE);
    let sink = Sink::ok();
    let (timers, broken, mended) = thread::scope(|scope| {
        let breaking = scope.spawn(|| {
            let break_soon = |_| {
                thread::sleep(Duration::from_millis(100));
                network.break_used()
            };
            (0..60).map(break_soon).sum::<usize>()
        });
        let order = Order::once(2_000).times(4).factor(2);
        let timers = Timers::hundred(&cluster, &THREE, order, &sink);
        (timers, breaking.join().expect("no panic"), Instant::now())
    });
    let judgement = timers.judge(&sink);
    judgement.assert_none_lost().assert_ranks(1);
    // News of a pop is sent again on the next connection, which breaks as well, now and then so
    // often that the second rank acts.
    let doubled = judgement.doubled();
    let is_cut_off = |pop: &&Judged| pop.earlier == 1 && judgement.first_at(pop) < mended + NEWS;
    let are_few = doubled.len() <= 16 && doubled.iter().all(is_cut_off);
    judgement.expect(are_few, format_args!("doubled {doubled:?}"));
    assert!(broken > 60, "{broken} connections");
}

fn bytes_between_nodes_are_slow() {
    let (mut cluster, network) = Network::around(Setup::default());
    cluster.begin(&THREE);
    THREE.iter().for_each(|place| {
        network.set_around(*place, Way::Slow(Duration::from_millis(150)));
    });
    // Heartbeats take as long, so no node is suspected.
    cluster.await_alive(&THREE);
    let sink = Sink::ok();
    let order = Order::once(2_000).times(2).factor(3);
    let timers = Timers::some(&cluster, &THREE, order, &sink, 10);
    for timer in &timers.all {
        let took = timer.answered - timer.asked;
        assert!(took >= Duration::from_millis(300), "answered before it was held: {took:?}");
    }
    timers.judge(&sink).assert_perfect();
}
