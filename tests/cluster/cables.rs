//! Real packets that are lost: nodes in network namespaces, on a switch whose cables are pulled.

use std::net::SocketAddr;
use std::time::Duration;

use kit::runner::Story;

use super::harness::Setup;
use super::sink::Sink;
use super::timers::{Judgement, Order, Timers};
use super::wires::Switch;

pub const STORIES: &[Story] = &[
    ("a_cable_is_pulled_and_put_back", a_cable_is_pulled_and_put_back),
    ("packets_are_lost_in_one_direction", packets_are_lost_in_one_direction),
    ("packets_are_lost_delayed_and_doubled_at_random", packets_are_disturbed_at_random),
];

const THREE: [usize; 3] = [0, 1, 2];
const BEGIN: Duration = Duration::from_millis(3_000);
const END: Duration = Duration::from_millis(10_500);
/// The numbers of pops that the fault may affect. They are due while the fault lasts, or while TCP
/// has not noticed its end: TCP sends again after pauses that double, so after 7.5 s without an
/// answer it may send up to 6.4 s later. The first pop is among them, because its news or its
/// answer may be on the way when the fault begins.
const DURING: std::ops::RangeInclusive<u64> = 1..=8;

fn sink_at(switch: &Switch) -> Sink {
    Sink::on(SocketAddr::new(switch.sinks, 0), |_| 200)
}

fn a_cable_is_pulled_and_put_back() {
    let (mut cluster, switch) = Switch::between(Setup::default());
    cluster.begin(&THREE);
    let sink = sink_at(&switch);
    let order = Order::once(2_000).times(10).factor(2);
    let timers = Timers::hundred(&cluster, &THREE, order, &sink);
    timers.sleep_until(BEGIN);
    switch.pull(1);
    timers.sleep_until(END);
    switch.put_back(1);
    let judgement = timers.judge(&sink);
    assert_doubled_during(&judgement);
    let late = judgement.late();
    let are_expected = late.iter().all(|pop| DURING.contains(&pop.sequence));
    judgement.expect(are_expected, format_args!("late {late:?}"));
}

/// Checks that no pop was lost, that none waited for more than one rank, and that a pop was doubled
/// at most once and only while the fault lasted.
fn assert_doubled_during(judgement: &Judgement) {
    judgement.assert_none_lost().assert_ranks(1);
    let doubled = judgement.doubled();
    let is_expected = |sequence: u64, earlier: usize| DURING.contains(&sequence) && earlier <= 1;
    let are_expected = doubled.iter().all(|pop| is_expected(pop.sequence, pop.earlier));
    judgement.expect(are_expected, format_args!("doubled {doubled:?}"));
}

fn packets_are_lost_in_one_direction() {
    let (mut cluster, switch) = Switch::between(Setup::default());
    cluster.begin(&THREE);
    let sink = sink_at(&switch);
    let order = Order::once(2_000).times(10).factor(2);
    let timers = Timers::hundred(&cluster, &THREE, order, &sink);
    timers.sleep_until(BEGIN);
    switch.lose(0, 2);
    timers.sleep_until(END);
    switch.find(0, 2);
    assert_doubled_during(&timers.judge(&sink));
}

fn packets_are_disturbed_at_random() {
    let (mut cluster, switch) = Switch::between(Setup::default());
    THREE.iter().for_each(|place| {
        switch.disturb(*place, "delay 10ms 5ms loss 2% duplicate 2% reorder 10%");
    });
    cluster.begin(&THREE);
    let sink = sink_at(&switch);
    let order = Order::once(2_000).times(5).factor(2);
    let timers = Timers::hundred(&cluster, &THREE, order, &sink);
    // A packet is lost four times in a row once in six million. Only then does a pop wait for more
    // than a rank.
    timers.judge(&sink).assert_once().assert_ranks(1);
}
