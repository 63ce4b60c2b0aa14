//! Four sites with one node each, and two sites with two nodes each.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use kit::client::{Answer, request_with};
use kit::noise;
use kit::runner::{Story, disturbed};

use super::harness::{Cluster, Setup, until};
use super::sink::Sink;
use super::timers::{HUNDRED, Order, STALLED, Timers};
use super::wires::Switch;

pub const STORIES: &[Story] = &[
    ("three_of_four_sites_are_killed", three_of_four_sites_are_killed),
    ("timers_pop_once_over_four_sites", timers_pop_once_over_four_sites),
    ("timers_are_deleted_through_another_site", timers_are_deleted_through_another_site),
    ("timers_are_updated_through_another_site", timers_are_updated_through_another_site),
    ("a_site_is_known_by_one_of_its_nodes", a_site_is_known_by_one_of_its_nodes),
    ("deletes_outlive_a_cut_between_sites", deletes_outlive_a_cut_between_sites),
    ("a_killed_site_pops_nothing_that_ended", a_killed_site_pops_nothing_that_ended),
    ("a_site_that_is_away_for_long_pops_nothing_that_ended", a_site_is_away_for_long),
    ("a_site_that_is_empty_at_once_is_offered_all", a_site_that_is_empty_at_once_is_offered_all),
    ("a_list_of_sites_shrinks_and_grows", a_list_of_sites_shrinks_and_grows),
    ("what_both_sites_take_at_once_pops_once", what_both_sites_take_at_once_pops_once),
];

pub const ALL: [usize; 4] = [0, 1, 2, 3];

pub fn four_sites() -> Cluster {
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
    judgement.assert_once().assert_ranks(3);
    let prompt = HUNDRED - judgement.late().len();
    judgement.expect(prompt >= HUNDRED / 4, "those of the site that lives are on time");
}

fn timers_are_deleted_through_another_site() {
    let cluster = four_sites();
    let sink = Sink::ok();
    let timers = Timers::hundred(&cluster, &[0], Order::once(4_000).factor(1), &sink);
    for (number, timer) in timers.all.iter().enumerate() {
        let answer = cluster.request(1 + number % 3, "DELETE", &timer.location, "");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    timers.expect_none_due();
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
    first.expect_none_due();
    let second = Timers { order, all, begun };
    // Any site may be the first in the list by then.
    let judgement = second.judge_after(&new, Duration::from_millis(7_500));
    judgement.assert_once().assert_ranks(3);
    assert_eq!(old.pops().len(), 0);
}

/// Starts two sites of two nodes. Their packets see a machine for each node, because a caller is
/// recognised by its address. Waits until both sites have met.
fn two_sites() -> (Cluster, Switch, Sink) {
    two_sites_with(Setup::default())
}

/// Starts two such sites with this setup.
pub fn two_sites_with(setup: Setup) -> (Cluster, Switch, Sink) {
    meet(Switch::between(Setup { two_sites: true, ..setup }))
}

/// Starts two such sites whose nodes have data directories, and these lines in their files.
fn two_sites_with_journals(more: &str) -> (Cluster, Switch, Sink) {
    let (mut cluster, switch) = Switch::between(Setup { two_sites: true, ..Setup::default() });
    for place in ALL {
        let directory = cluster.folder().join(format!("data{place}"));
        let lines = format!("\n[journal]\ndata_dir = {}\n{more}", directory.display());
        cluster.set_local(place, &lines);
    }
    meet((cluster, switch))
}

fn meet((mut cluster, switch): (Cluster, Switch)) -> (Cluster, Switch, Sink) {
    cluster.begin(&ALL);
    let sink = Sink::on(SocketAddr::new(switch.sinks, 0), |_| 200);
    // A timer through each node reaches the site of the others.
    for place in ALL {
        let order = Order::once(60_000).factor(2);
        let document = order.document(&sink.uri("/never"), "");
        let location = cluster.request(place, "POST", "/timers", &document).location().to_owned();
        let far = (place + 2) % 4;
        until("the sites to meet", || {
            (cluster.request(far, "GET", &location, "").status == 200).then_some(())
        });
        assert_eq!(cluster.request(place, "DELETE", &location, "").status, 200);
        until("a delete to arrive", || {
            (cluster.request(far, "GET", &location, "").status == 404).then_some(())
        });
    }
    (cluster, switch, sink)
}

fn a_site_is_known_by_one_of_its_nodes() {
    lose_the_configured_nodes(two_sites());
}

/// Sites that know each other go on without the nodes that they are configured with.
pub fn lose_the_configured_nodes((mut cluster, switch, sink): (Cluster, Switch, Sink)) {
    let timers = Timers::hundred(&cluster, &ALL, Order::once(2_000).times(3).factor(2), &sink);
    // The other site would act 4 s after the first.
    timers.judge_after(&sink, Duration::from_millis(6_500)).assert_perfect();
    // The nodes that are configured end. The others go on without them.
    cluster.kill(0);
    cluster.kill(2);
    cluster.await_dead(&[1], 0);
    cluster.await_dead(&[3], 2);
    let sink = Sink::on(SocketAddr::new(switch.sinks, 0), |_| 200);
    let timers = Timers::hundred(&cluster, &[1, 3], Order::once(3_000).factor(2), &sink);
    timers.judge_after(&sink, Duration::from_millis(8_500)).assert_once();
}

fn deletes_outlive_a_cut_between_sites() {
    let (cluster, switch, sink) = two_sites();
    let order = Order::once(4_000).times(100).factor(2);
    let timers = Timers::hundred(&cluster, &ALL, order, &sink);
    let ways = [0, 1].into_iter().flat_map(|one| [2, 3].map(|other| (one, other)));
    let ways: Vec<_> = ways.flat_map(|(one, other)| [(one, other), (other, one)]).collect();
    ways.iter().for_each(|(from, to)| switch.lose(*from, *to));
    // Each site believes the other dead. Then half of the timers are deleted through each.
    thread::sleep(Duration::from_secs(4));
    for (number, timer) in timers.all.iter().enumerate() {
        let answer = cluster.request(number % 4, "DELETE", &timer.location, "");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    thread::sleep(Duration::from_secs(16));
    ways.iter().for_each(|(from, to)| switch.find(*from, *to));
    let is_gone = |place: usize| {
        timers
            .all
            .iter()
            .all(|timer| cluster.request(place, "GET", &timer.location, "").status == 404)
    };
    until("the sites to tell each other", || ALL.into_iter().all(is_gone).then_some(()));
    let before = sink.pops().len();
    // Longer than tombstones stay without a cut.
    thread::sleep(Duration::from_secs(12));
    assert_eq!(sink.pops().len(), before, "none comes back");
    assert!(ALL.into_iter().all(is_gone), "none comes back");
}

/// The nodes of a site are killed and come back with their journals. Meanwhile the other site has
/// popped, deleted and replaced what is due.
fn a_killed_site_pops_nothing_that_ended() {
    kill_a_site("", Duration::ZERO);
}

/// Tombstones would stay 10 s, and a second longer, if no site were away.
fn a_site_is_away_for_long() {
    kill_a_site("\n[cluster]\ntombstone_hold_ms = 1000\n", Duration::from_secs(16));
}

/// Kills a site with timers, of which some are deleted, some replaced and all others popped by the
/// other site. It comes back some time after that.
fn kill_a_site(lines: &str, away: Duration) {
    let (mut cluster, switch, sink) = two_sites_with_journals(lines);
    let new = Sink::on(SocketAddr::new(switch.sinks, 0), |_| 200);
    let timers = Timers::hundred(&cluster, &[0, 1], Order::once(8_000).factor(2), &sink);
    cluster.await_copies(&[2, 3], &timers);
    [0, 1].iter().for_each(|place| cluster.kill(*place));
    let later = Order::once(600_000).factor(2);
    for (number, timer) in timers.all.iter().enumerate() {
        let place = 2 + number / 3 % 2;
        let answer = match number % 3 {
            0 => continue,
            1 => cluster.request(place, "DELETE", &timer.location, ""),
            _ => {
                let document = later.document(&new.uri(&timer.path), "new");
                cluster.request(place, "PUT", &timer.location, &document)
            }
        };
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    timers.expect_none_due();
    // The site that took them would pop them at once, the other one pops them 4 s later.
    let left = timers.all.len().div_ceil(3);
    until("the other site to pop what is left", || (sink.pops().len() == left).then_some(()));
    thread::sleep(away);
    [0, 1].iter().for_each(|place| cluster.start(*place));
    let is_level = |place: usize| {
        let status =
            |number: usize| cluster.request(place, "GET", &timers.all[number].location, "").status;
        (0..timers.all.len())
            .all(|number| status(number) == if number % 3 == 2 { 200 } else { 404 })
    };
    until("the site to know", || [0, 1].into_iter().all(is_level).then_some(()));
    // Longer than a site waits that has heard nothing.
    thread::sleep(Duration::from_secs(9));
    assert_eq!(sink.pops().len(), left, "nothing pops that was popped, deleted or replaced");
    assert_eq!(new.pops().len(), 0);
}

/// All nodes of a site, which has no journals, are killed and start at once: before the other site
/// misses them. Then that site dies.
fn a_site_that_is_empty_at_once_is_offered_all() {
    let (mut cluster, _switch, sink) = two_sites();
    let timers = Timers::hundred(&cluster, &ALL, Order::once(20_000).factor(2), &sink);
    cluster.await_copies(&ALL, &timers);
    [0, 1].iter().for_each(|place| cluster.kill(*place));
    [0, 1].iter().for_each(|place| cluster.start(*place));
    timers.expect_none_due();
    cluster.await_copies(&[0, 1], &timers);
    timers.expect_none_due();
    [2, 3].iter().for_each(|place| cluster.kill(*place));
    until("each to pop", || (sink.pops().len() >= timers.all.len()).then_some(()));
}

/// The site in the middle of the lists is stopped and taken out, then comes back as the last of the
/// lists: what was written before is told between the others all the time, and the site that was
/// away has everything.
fn a_list_of_sites_shrinks_and_grows() {
    let mut cluster = four_sites();
    let sink = Sink::ok();
    let order = Order::once(600_000).factor(1);
    let timers = Timers::hundred(&cluster, &ALL, order, &sink);
    let sees = |cluster: &Cluster, places: &[usize], number: usize, status: u16| {
        let location = &timers.all[number].location;
        until("a site to be told", || {
            let is_told =
                |place: &usize| cluster.request(*place, "GET", location, "").status == status;
            places.iter().all(is_told).then_some(())
        });
    };
    (0..timers.all.len()).for_each(|number| sees(&cluster, &ALL, number, 200));
    cluster.kill(1);
    cluster.set_sites(&[0, 2, 3]);
    [0, 2, 3].iter().for_each(|place| cluster.reload_local(*place, ""));
    for number in 0..12 {
        let place = [0, 2, 3][number % 3];
        let answer = cluster.request(place, "DELETE", &timers.all[number].location, "");
        assert_eq!(answer.status, 200, "{answer:?}");
        sees(&cluster, &[0, 2, 3], number, 404);
    }
    // It runs again with its file of before. Nobody takes it for a site.
    cluster.start(1);
    let document = order.document(&sink.uri("/removed"), "");
    let strange = cluster.request(1, "POST", "/timers", &document).location().to_owned();
    let refusals = |cluster: &Cluster| cluster.metric(1, "chronos_site_refusals_total");
    until("the removed site to be told", || (refusals(&cluster) > 0).then_some(()));
    assert!(cluster.metric(0, "chronos_internal_strangers_total") > 0);
    for place in [0, 2, 3] {
        assert_eq!(cluster.request(place, "GET", &strange, "").status, 404, "{place}");
    }
    // It comes back as a new site, with nothing.
    cluster.kill(1);
    cluster.set_sites(&[0, 2, 3, 1]);
    [0, 2, 3].iter().for_each(|place| cluster.reload_local(*place, ""));
    cluster.start(1);
    for number in 12..timers.all.len() {
        sees(&cluster, &[1], number, 200);
    }
    let answer = cluster.request(1, "DELETE", &timers.all[20].location, "");
    assert_eq!(answer.status, 200, "{answer:?}");
    sees(&cluster, &ALL, 20, 404);
}

/// Names, and keys, that clients create through both sites at the same moment.
const AT_ONCE: usize = 200;

/// Asks both sites for each name or key at the same moment, through each node in turn.
fn at_both_sites(ask: impl Fn(usize, usize) -> Answer + Sync) -> Vec<[Answer; 2]> {
    let ask = &ask;
    let places = |at: usize| [at % 2, 2 + at / 2 % 2];
    let both = |at: usize| {
        thread::scope(|scope| {
            let asked = places(at).map(|place| scope.spawn(move || ask(place, at)));
            asked.map(|one| one.join().expect("each is answered"))
        })
    };
    (0..AT_ONCE).map(both).collect()
}

/// Each site takes what the other one takes at the same moment, for sites do not ask each other
/// before a write. One of the two stays, with one version, and pops once.
fn what_both_sites_take_at_once_pops_once() {
    let (cluster, _switch, sink) = two_sites();
    let begun = Instant::now();
    // Long enough for a busy machine to look at all of them first.
    let order = Order::once(40_000).factor(2);
    let ask = |place: usize, (method, path): (&str, &str), header: &str, callback: &str| {
        let document = order.document(&sink.uri(callback), "");
        let answer = request_with(cluster.address(place), method, path, header, &document);
        answer.unwrap_or_else(|error| panic!("node {}: {error}", place + 1))
    };
    let names = at_both_sites(|place, at| {
        let (path, callback) = (format!("/timers/by-name/n{at}"), format!("/name/{at}/{place}"));
        ask(place, ("PUT", &path), "If-None-Match: *\r\n", &callback)
    });
    let keys = at_both_sites(|place, at| {
        let key = format!("Idempotency-Key: k{at}\r\n");
        ask(place, ("POST", "/timers"), &key, &format!("/key/{at}"))
    });
    let due = Instant::now() + Duration::from_millis(order.interval_ms);
    for (at, [one, other]) in names.iter().chain(&keys).enumerate() {
        let statuses = [one.status, other.status];
        assert!(statuses == [200; 2] || at < AT_ONCE && statuses.contains(&200), "{statuses:?}");
        let taken = if one.status == 200 { one } else { other };
        // All nodes come to show one ETag, that of one of the answers.
        let tags = [one, other].map(|answer| answer.header("ETag"));
        until("the sites to agree", || {
            if begun.elapsed() + Duration::from_secs(2) > Duration::from_millis(order.interval_ms) {
                disturbed("timers were due too soon");
            }
            let shown = ALL.map(|place| cluster.request(place, "GET", taken.location(), ""));
            let shown = shown.each_ref().map(|answer| answer.header("ETag"));
            (shown == [shown[0]; 4] && tags.contains(&shown[0])).then_some(())
        });
    }
    // The site that acts second would do so 4 s later.
    let end = due + Duration::from_millis(6_500);
    thread::sleep(end.saturating_duration_since(Instant::now()));
    until("each to pop", || (sink.pops().len() >= 2 * AT_ONCE).then_some(()));
    let mut popped = HashMap::<String, usize>::new();
    for pop in sink.pops() {
        let timer = pop.path.split('/').take(3).collect::<Vec<_>>().join("/");
        *popped.entry(timer).or_default() += 1;
    }
    let again: Vec<_> = popped.iter().filter(|(_, count)| **count > 1).collect();
    if !again.is_empty() && noise::since(begun) >= STALLED {
        disturbed(format!("popped again: {again:?}"));
    }
    assert!(again.is_empty() && popped.len() == 2 * AT_ONCE, "{} popped: {again:?}", popped.len());
}
