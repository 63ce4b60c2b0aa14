//! Four sites with one node each.

use std::thread;
use std::time::{Duration, Instant};

use super::harness::{Cluster, Setup};
use super::runner::Story;
use super::sink::Sink;
use super::timers::{HUNDRED, Order, PROMPT, Timers};

pub const STORIES: &[Story] = &[
    ("three_of_four_sites_are_killed", three_of_four_sites_are_killed),
    ("timers_pop_once_over_four_sites", timers_pop_once_over_four_sites),
    ("timers_are_deleted_through_another_site", timers_are_deleted_through_another_site),
    ("timers_are_updated_through_another_site", timers_are_updated_through_another_site),
];

const ALL: [usize; 4] = [0, 1, 2, 3];

fn four_sites() -> Cluster {
    let mut cluster = Cluster::with(Setup { sites: true, ..Setup::default() });
    cluster.begin(&ALL);
    cluster
}

fn timers_pop_once_over_four_sites() {
    let cluster = four_sites();
    let sink = Sink::ok();
    let order = Order::once(2_000).times(2).factor(1);
    let timers = Timers::hundred(&cluster, &ALL, order, &sink);
    // The fourth site would act 6 s after the first.
    let judgement = timers.judge_after(&sink, Duration::from_millis(6_500));
    judgement.assert_perfect();
}

fn three_of_four_sites_are_killed() {
    let mut cluster = four_sites();
    let sink = Sink::ok();
    let timers = Timers::hundred(&cluster, &ALL, Order::once(4_000).factor(1), &sink);
    timers.sleep_until(Duration::from_millis(2_500));
    [0, 1, 2].iter().for_each(|place| cluster.kill(*place));
    // Each site ahead is worth factor x 2 s.
    let judgement = timers.judge_after(&sink, Duration::from_millis(7_500));
    judgement.assert_once().assert_within(Duration::from_millis(6_200));
    let prompt = HUNDRED - judgement.later_than(PROMPT).len();
    assert!(prompt >= HUNDRED / 4, "those of the site that lives are on time: {judgement}");
}

fn timers_are_deleted_through_another_site() {
    let cluster = four_sites();
    let sink = Sink::ok();
    let timers = Timers::hundred(&cluster, &[0], Order::once(4_000).factor(1), &sink);
    for (number, timer) in timers.all.iter().enumerate() {
        let answer = cluster.request(1 + number % 3, "DELETE", &timer.location, "");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let end = timers.due(1) + Duration::from_millis(6_500);
    thread::sleep(end.saturating_duration_since(Instant::now()));
    assert_eq!(sink.pops().len(), 0);
}

fn timers_are_updated_through_another_site() {
    let cluster = four_sites();
    let (old, new) = (Sink::ok(), Sink::ok());
    let first = Timers::hundred(&cluster, &ALL, Order::once(3_000).factor(1), &old);
    let order = Order::once(4_000).factor(1);
    let begun = Instant::now();
    let mut all = first.all.clone();
    for (number, timer) in all.iter_mut().enumerate() {
        timer.asked = Instant::now();
        let document = order.document(&new.uri(&timer.path), "new");
        let place = (number + 1) % 4;
        timer.location =
            cluster.request(place, "PUT", &timer.location, &document).location().to_owned();
        timer.answered = Instant::now();
    }
    let second = Timers { order, all, begun };
    // Whichever site is first in the list now.
    let judgement = second.judge_after(&new, Duration::from_millis(7_500));
    judgement.assert_once().assert_within(Duration::from_millis(6_200));
    assert_eq!(old.pops().len(), 0);
}
