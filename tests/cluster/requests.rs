//! Any node takes any request for any timer.

use std::thread;
use std::time::{Duration, Instant};

use kit::runner::Story;
use serde_json::Value;

use super::harness::{Cluster, Setup, until};
use super::sink::Sink;
use super::timers::{HUNDRED, Order, QUIET, RANK_DELAY, Timers};

pub const STORIES: &[Story] = &[
    ("first_pop_is_refused_by_its_host", first_pop_is_refused_by_its_host),
    ("timers_pop_once_on_one_of_three_replicas", timers_pop_once_on_one_of_three_replicas),
    ("repeating_timers_pop_once_each_time", repeating_timers_pop_once_each_time),
    ("nodes_without_identity_do_not_collide", nodes_without_identity_do_not_collide),
    ("deleted_timers_do_not_pop", deleted_timers_do_not_pop),
    ("updates_reach_all_replicas", updates_reach_all_replicas),
    ("any_node_reads_any_timer", any_node_reads_any_timer),
    ("clients_choose_ids_at_any_node", clients_choose_ids_at_any_node),
];

fn timers_pop_once_on_one_of_three_replicas() {
    let cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::ok();
    let timers = Timers::hundred(&cluster, &[0, 1, 2], Order::once(2_000).factor(3), &sink);
    timers.judge(&sink).assert_perfect();
}

fn repeating_timers_pop_once_each_time() {
    let cluster = Cluster::running(&[0, 1, 2, 3]);
    let sink = Sink::ok();
    // The default factor is 2. Every timer must end by itself.
    let timers = Timers::hundred(&cluster, &[0, 1, 2, 3], Order::once(1_000).times(5), &sink);
    timers.judge(&sink).assert_perfect();
    for timer in &timers.all {
        let answer = cluster.request(3, "GET", &timer.location, "");
        assert_eq!(answer.status, 404, "{answer:?}");
    }
}

fn nodes_without_identity_do_not_collide() {
    // Existing deployments often leave `[identity]` out, so their nodes have the same identity.
    let setup = Setup { without_identity: true, ..Setup::default() };
    let mut cluster = Cluster::with(setup);
    cluster.begin(&[0, 1, 2, 3]);
    let sink = Sink::ok();
    let order = Order::once(3_000).factor(2);
    let all: Vec<Timers> = thread::scope(|scope| {
        let one = |place| {
            let (cluster, sink) = (&cluster, &sink);
            scope.spawn(move || Timers::some(cluster, &[place], order, sink, HUNDRED))
        };
        let threads: Vec<_> = (0..4).map(one).collect();
        threads.into_iter().map(|thread| thread.join().expect("all answered")).collect()
    });
    let mut locations: Vec<_> =
        all.iter().flat_map(|some| some.all.iter().map(|timer| &timer.location[..])).collect();
    locations.sort_unstable();
    locations.dedup_by_key(|location| location.split('-').next().expect("an id"));
    assert_eq!(locations.len(), 4 * HUNDRED, "two timers have one id");
    let last = all.iter().map(|some| some.due(1)).max().expect("four");
    thread::sleep(last.saturating_duration_since(Instant::now()) + QUIET);
    until("all to pop", || (sink.pops().len() >= 4 * HUNDRED).then_some(()));
    assert_eq!(sink.pops().len(), 4 * HUNDRED);
}

fn first_pop_is_refused_by_its_host() {
    let cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::start(|earlier| if earlier == 0 { 503 } else { 200 });
    let order = Order::once(2_000).factor(3);
    let timers = Timers::hundred(&cluster, &[0, 1, 2], order, &sink);
    // The second rank calls 2 s after the first. The third must keep silent at 4 s.
    let end = timers.due(1) + Duration::from_secs(6);
    thread::sleep(end.saturating_duration_since(Instant::now()));
    until("the second tries", || (sink.pops().len() >= 2 * HUNDRED).then_some(()));
    let pops = sink.pops();
    let with = |status| pops.iter().filter(|pop| pop.status == status).count();
    assert_eq!((with(503), with(200), pops.len()), (HUNDRED, HUNDRED, 2 * HUNDRED));
    let by_path = sink.by_path();
    for timer in &timers.all {
        let pops = &by_path[&timer.path];
        assert!(pops.iter().all(|pop| pop.sequence == 1), "{pops:?}");
        let due = timer.asked + Duration::from_millis(order.interval_ms);
        assert!(pops[0].at >= due && pops[1].at >= due + RANK_DELAY, "{due:?}: {pops:?}");
    }
}

fn deleted_timers_do_not_pop() {
    let cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::ok();
    let timers = Timers::hundred(&cluster, &[0], Order::once(8_000), &sink);
    for (number, timer) in timers.all.iter().enumerate() {
        let answer = cluster.request(number % 3, "DELETE", &timer.location, "");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    timers.expect_none_due();
    let end = timers.due(1) + QUIET;
    thread::sleep(end.saturating_duration_since(Instant::now()));
    assert_eq!(sink.pops().len(), 0);
}

fn updates_reach_all_replicas() {
    let cluster = Cluster::running(&[0, 1, 2, 3]);
    let (old, new) = (Sink::ok(), Sink::ok());
    let first = Timers::hundred(&cluster, &[0, 1, 2, 3], Order::once(4_000).factor(2), &old);
    let order = Order::once(5_000).factor(2);
    let begun = Instant::now();
    let mut all = Vec::new();
    for (number, timer) in first.all.iter().enumerate() {
        // This is not the node that took the first request.
        let place = (number + 1 + number / 4 % 3) % 4;
        let mut updated = timer.clone();
        updated.asked = Instant::now();
        let document = order.document(&new.uri(&timer.path), "new");
        let answer = cluster.request(place, "PUT", &timer.location, &document);
        updated.location = answer.location().to_owned();
        updated.answered = Instant::now();
        all.push(updated);
    }
    first.expect_none_due();
    let second = Timers { order, all, begun };
    second.judge(&new).assert_perfect();
    assert_eq!(old.pops().len(), 0, "the old callbacks are gone");
    assert!(new.pops().iter().all(|pop| pop.body == "new"));
}

fn any_node_reads_any_timer() {
    let cluster = Cluster::running(&[0, 1, 2, 3]);
    let sink = Sink::ok();
    let order = Order::once(3_600_000).times(3).factor(2);
    let timers = Timers::some(&cluster, &[0, 1, 2, 3], order, &sink, 20);
    for (number, timer) in timers.all.iter().enumerate() {
        for place in 0..4 {
            let answer = cluster.request(place, "GET", &timer.location, "");
            assert_eq!(answer.status, 200, "node {}: {answer:?}", place + 1);
            let read: Value = serde_json::from_str(&answer.body).expect("JSON");
            assert_eq!(read["timing"]["interval"], 3_600, "{read}");
            assert_eq!(read["timing"]["repeat-for"], 10_800, "{read}");
            let http = &read["callback"]["http"];
            assert_eq!(http["uri"], sink.uri(&timer.path), "{read}");
            assert_eq!(http["opaque"], format!("opaque {number}"), "{read}");
            assert_eq!(read["reliability"]["replication-factor"], 2, "{read}");
        }
    }
    let unknown = "/timers/00000000075bcd15-2";
    (0..4).for_each(|place| assert_eq!(cluster.request(place, "GET", unknown, "").status, 404));
}

fn clients_choose_ids_at_any_node() {
    let cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::ok();
    let order = Order::once(2_500).factor(2);
    let begun = Instant::now();
    let mut all = Vec::new();
    for number in 0..HUNDRED {
        let path = format!("/pop/{number}");
        let document = order.document(&sink.uri(&path), "");
        let id = format!("/timers/{:016x}-2", 0x1234_5678_0000_0000_u64 + number as u64);
        let asked = Instant::now();
        // Two nodes get the same PUT. The later write wins, and the timer pops once.
        cluster.request(number % 3, "PUT", &id, &document).location();
        let answer = cluster.request((number + 1) % 3, "PUT", &id, &document);
        let location = answer.location().to_owned();
        all.push(super::timers::Timer { path, location, asked, answered: Instant::now() });
    }
    Timers { order, all, begun }.judge(&sink).assert_perfect();
}
