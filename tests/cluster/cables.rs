//! Real packets that are lost: nodes in network namespaces, on a switch whose cables are pulled.

use std::net::SocketAddr;
use std::time::Duration;

use kit::runner::Story;

use super::harness::Setup;
use super::sink::Sink;
use super::timers::{Order, PROMPT, Timers};
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
    judgement.assert_none_lost().assert_within(Duration::from_millis(2_100));
    let doubled = judgement.doubled();
    let is_expected = |sequence: u64, earlier: usize| DURING.contains(&sequence) && earlier <= 1;
    assert!(
        doubled.iter().all(|pop| is_expected(pop.sequence, pop.earlier)),
        "{judgement}: {doubled:?}"
    );
    let late = judgement.later_than(PROMPT);
    assert!(late.iter().all(|pop| DURING.contains(&pop.sequence)), "{judgement}: {late:?}");
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
    let judgement = timers.judge(&sink);
    judgement.assert_none_lost().assert_within(Duration::from_millis(2_100));
    let doubled = judgement.doubled();
    let is_expected = |sequence: u64, earlier: usize| DURING.contains(&sequence) && earlier <= 1;
    assert!(
        doubled.iter().all(|pop| is_expected(pop.sequence, pop.earlier)),
        "{judgement}: {doubled:?}"
    );
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
    // A packet is lost four times in a row once in six million; only then is a pop later than a
    // rank.
    timers.judge(&sink).assert_once().assert_within(Duration::from_millis(2_100));
}
