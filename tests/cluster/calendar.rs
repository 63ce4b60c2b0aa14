//! Timers that follow the calendar (docs/api.md, "The calendar") in a cluster: whichever node makes
//! a pop, each moment is popped once and in order, under the next number.

use std::time::Instant;

use kit::noise;
use kit::runner::{Story, disturbed};
use serde_json::{Value, json};

use super::harness::{Cluster, Setup, until};
use super::placement;
use super::proxies::{Network, Way};
use super::sink::Sink;
use super::timers::STALLED;

pub const STORIES: &[Story] = &[
    ("a_timer_of_the_calendar_goes_on_after_its_owner_is_killed", goes_on_after_a_kill),
    ("a_timer_of_the_calendar_goes_on_on_both_sides_of_a_split", goes_on_in_a_split),
];

const THREE: [usize; 3] = [0, 1, 2];
/// Pops before each death.
const POPS: usize = 5;

fn sequences(sink: &Sink) -> Vec<u64> {
    sink.pops().iter().map(|pop| pop.sequence).collect()
}

/// The numbers, without those that came again.
fn first_times(sequences: &[u64]) -> Vec<u64> {
    let is_first = |(at, number): &(usize, &u64)| !sequences[..*at].contains(number);
    sequences.iter().enumerate().filter(is_first).map(|(_, number)| *number).collect()
}

/// Makes a timer that pops each second. Returns its location, and its holders in their order.
fn make(cluster: &Cluster, sink: &Sink, factor: u8) -> (String, Vec<usize>) {
    let body = json!({
        "timing": {"cron": "* * * * * *", "time-zone": "Asia/Kolkata"},
        "callback": {"http": {"uri": sink.uri("/tick"), "opaque": "any text"}},
        "reliability": {"replication-factor": factor},
    });
    let location = cluster.request(0, "POST", "/timers", &body.to_string()).location().to_owned();
    let id = u64::from_str_radix(&location["/timers/".len()..][..16], 16).expect("an id");
    let names: Vec<&str> = cluster.names.iter().take(3).map(String::as_str).collect();
    (location, placement::replicas(&names, id, factor.into()))
}

fn goes_on_after_a_kill() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::ok();
    let begun = Instant::now();
    let (location, ranks) = make(&cluster, &sink, 3);
    until("the first pops", || (sink.pops().len() >= POPS).then_some(()));
    let before = sequences(&sink);
    let in_order: Vec<u64> = (1..=before.len() as u64).collect();
    if before != in_order && noise::since(begun) >= STALLED {
        disturbed(format!("{before:?}"));
    }
    assert_eq!(before, in_order, "nothing is doubled while nothing fails");
    // Each death may double one pop: the node could not tell of it any more.
    for (deaths, rank) in [(1, ranks[0]), (2, ranks[1])] {
        let killed = Instant::now();
        cluster.kill(rank);
        let count = sink.pops().len();
        until("another node to go on", || (sink.pops().len() >= count + POPS).then_some(()));
        let all = sequences(&sink);
        let firsts = first_times(&all);
        let in_order: Vec<u64> = (1..=firsts.len() as u64).collect();
        assert_eq!(firsts, in_order, "{all:?}");
        let doubled = all.len() - firsts.len();
        if doubled > deaths && noise::since(killed) >= STALLED {
            disturbed(format!("{all:?}"));
        }
        assert!(doubled <= deaths, "{doubled} doubled: {all:?}");
    }
    let last = ranks[2];
    let answer = cluster.request(last, "GET", &location, "");
    let shown: Value = serde_json::from_str(&answer.body).expect("JSON");
    let done = shown["timing"]["sequence-number"].as_u64().expect("told");
    assert!(done >= 3 * POPS as u64 - 2, "{shown}");
    assert_eq!(cluster.request(last, "DELETE", &location, "").status, 200);
    assert_eq!(cluster.request(last, "GET", &location, "").status, 404);
}

/// Both sides pop while they do not hear each other. No moment is lost, and each is popped once
/// when they do again.
fn goes_on_in_a_split() {
    let (mut cluster, network) = Network::around(Setup::default());
    cluster.begin(&THREE);
    cluster.await_alive(&THREE);
    let sink = Sink::ok();
    let (_, ranks) = make(&cluster, &sink, 2);
    until("the first pops", || (sink.pops().len() >= POPS).then_some(()));
    network.set_around(ranks[0], Way::Cut);
    cluster.await_dead(&[ranks[1]], ranks[0]);
    let count = sink.pops().len();
    until("pops of both", || (sink.pops().len() >= count + 3 * POPS).then_some(()));
    network.set_around(ranks[0], Way::Open);
    cluster.await_alive(&THREE);
    let together = Instant::now();
    let last = || sequences(&sink).into_iter().max().expect("some");
    let healed = last();
    until("pops of one", || (last() >= healed + 3 * POPS as u64).then_some(()));
    let all = sequences(&sink);
    let firsts = first_times(&all);
    let in_order: Vec<u64> = (1..=firsts.len() as u64).collect();
    assert_eq!(firsts, in_order, "{all:?}");
    // What was due as they met may have been under way at both.
    let later: Vec<u64> =
        all.iter().copied().filter(|number| *number > healed + POPS as u64).collect();
    if first_times(&later) != later && noise::since(together) >= STALLED {
        disturbed(format!("{all:?}"));
    }
    assert_eq!(first_times(&later), later, "{all:?}");
}
