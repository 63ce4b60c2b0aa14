//! Names, conditions and keys in a cluster: two nodes at once, a split, the death of the node that
//! took a request.

use std::collections::BTreeSet;
use std::thread;

use kit::client::{Answer, request_with};
use kit::runner::Story;

use super::harness::{Cluster, Setup, until};
use super::proxies::{Network, Way};
use super::timers::Order;

pub const STORIES: &[Story] = &[
    ("two_nodes_at_once_make_one_timer_of_a_name", two_nodes_at_once),
    ("a_split_makes_two_timers_of_a_name_and_its_end_one", a_split),
    ("a_key_outlives_the_node_that_took_it", a_death),
];

const THREE: [usize; 3] = [0, 1, 2];
const NAMES: usize = 1_000;
const ABSENT: &str = "If-None-Match: *\r\n";

fn ask(
    cluster: &Cluster,
    place: usize,
    (method, path): (&str, &str),
    headers: &str,
    opaque: &str,
) -> Answer {
    let document = Order::once(3_600_000).factor(2).document("http://127.0.0.1:9/never", opaque);
    let body = if matches!(method, "POST" | "PUT") { &*document } else { "" };
    let answer = request_with(cluster.address(place), method, path, headers, body);
    answer.unwrap_or_else(|error| panic!("node {}: {error}\n{}", place + 1, cluster.logged(place)))
}

fn put(cluster: &Cluster, place: usize, name: &str, headers: &str) -> Answer {
    let path = format!("/timers/by-name/{name}");
    ask(cluster, place, ("PUT", &path), headers, &format!("by node {place}"))
}

fn get(cluster: &Cluster, place: usize, name: &str) -> Answer {
    ask(cluster, place, ("GET", &format!("/timers/by-name/{name}")), "", "")
}

fn post(cluster: &Cluster, place: usize, key: &str) -> Answer {
    let header = format!("Idempotency-Key: {key}\r\n");
    ask(cluster, place, ("POST", "/timers"), &header, key)
}

/// Waits until these nodes together hold so many copies.
fn await_held(cluster: &Cluster, places: &[usize], copies: usize) {
    until("all copies to be held", || {
        let held = places.iter().map(|place| cluster.look(*place)?["timers"].as_u64());
        let held: u64 = held.collect::<Option<Vec<_>>>()?.iter().sum();
        (held == copies as u64).then_some(())
    });
}

/// What each of two nodes answers, asked at the same time for the same names.
fn at_once(ask: impl Fn(usize, usize) -> Answer + Sync) -> Vec<[Answer; 2]> {
    let ask = &ask;
    let answers = |place: usize| move || (0..NAMES).map(|at| ask(place, at)).collect::<Vec<_>>();
    let (one, other) = thread::scope(|scope| {
        let (one, other) = (scope.spawn(answers(0)), scope.spawn(answers(1)));
        (one.join().expect("all are answered"), other.join().expect("all are answered"))
    });
    one.into_iter().zip(other).map(|(one, other)| [one, other]).collect()
}

fn two_nodes_at_once() {
    let cluster = Cluster::running(&THREE);
    cluster.await_alive(&THREE);
    let mut ids = BTreeSet::new();
    let id = |answer: &Answer| answer.location()[..24].to_owned();
    let made = at_once(|place, at| put(&cluster, place, &format!("free-{at}"), ""));
    for pair in &made {
        assert_eq!(id(&pair[0]), id(&pair[1]), "a name makes one id");
        ids.insert(id(&pair[0]));
    }
    assert_eq!(ids.len(), NAMES);
    await_held(&cluster, &THREE, 2 * NAMES);

    let made = at_once(|place, at| put(&cluster, place, &format!("n-{at}"), ABSENT));
    for (at, pair) in made.iter().enumerate() {
        let mut statuses = [pair[0].status, pair[1].status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412], "{at}: {pair:?}");
        let winner = usize::from(pair[1].status == 200);
        for place in THREE {
            let read = get(&cluster, place, &format!("n-{at}"));
            assert!(read.body.contains(&format!("by node {winner}")), "{at}: {read:?}");
            assert_eq!(read.header("ETag"), pair[winner].header("ETag"), "{at}");
        }
    }
    await_held(&cluster, &THREE, 4 * NAMES);

    let made = at_once(|place, at| post(&cluster, place, &format!("key-{at}")));
    for pair in &made {
        assert_eq!(pair[0].location(), pair[1].location());
        ids.insert(id(&pair[0]));
    }
    assert_eq!(ids.len(), 2 * NAMES);
    await_held(&cluster, &THREE, 6 * NAMES);
}

fn a_split() {
    let (mut cluster, network) = Network::around(Setup::default());
    cluster.begin(&THREE);
    cluster.await_alive(&THREE);
    for at in 0..20 {
        assert_eq!(put(&cluster, at % 3, &format!("before-{at}"), ABSENT).status, 200);
    }
    network.set_around(0, Way::Cut);
    cluster.await_belief(&[0], &[1, 2], "dead");
    cluster.await_belief(&[1, 2], &[0], "dead");
    // Each side decides for itself about what neither side has.
    let mut later = Vec::new();
    for at in 0..20 {
        let name = format!("during-{at}");
        let others = put(&cluster, 1 + at % 2, &name, ABSENT);
        assert_eq!(others.status, 200, "{others:?}");
        let mine = put(&cluster, 0, &name, ABSENT);
        assert_eq!(mine.status, 200, "{mine:?}");
        assert_eq!(put(&cluster, 0, &name, ABSENT).status, 412);
        assert_eq!(put(&cluster, 1, &name, ABSENT).status, 412);
        later.push(mine.header("ETag").max(others.header("ETag")).map(str::to_owned));
    }
    network.set_around(0, Way::Open);
    cluster.await_alive(&THREE);
    // The write with the higher version stays, everywhere.
    until("all nodes to have one timer of each name", || {
        let is_one = |at: usize| {
            let tag = |place| {
                let read = get(&cluster, place, &format!("during-{at}"));
                read.header("ETag").map(str::to_owned)
            };
            THREE.into_iter().all(|place| tag(place) == later[at])
        };
        (0..20).all(is_one).then_some(())
    });
    for at in 0..20 {
        for name in [format!("before-{at}"), format!("during-{at}")] {
            let refused = put(&cluster, at % 3, &name, ABSENT);
            assert_eq!(refused.status, 412, "{name}: {refused:?}");
        }
    }
    await_held(&cluster, &THREE, 80);
}

fn a_death() {
    let mut cluster = Cluster::running(&THREE);
    cluster.await_alive(&THREE);
    let (live, deleted): (Vec<_>, Vec<_>) = (0..100)
        .map(|at| (post(&cluster, 0, &format!("l{at}")), post(&cluster, 0, &format!("d{at}"))))
        .unzip();
    for timer in &deleted {
        assert_eq!(ask(&cluster, 0, ("DELETE", timer.location()), "", "").status, 200);
    }
    cluster.kill(0);
    // At once, and when the node is known to be dead.
    for round in 0..2 {
        for at in 0..100 {
            for (kind, first) in [("l", &live[at]), ("d", &deleted[at])] {
                let key = format!("{kind}{at}");
                let again = post(&cluster, 1 + at % 2, &key);
                assert_eq!(again.location(), first.location(), "round {round}: {key}");
                let header = format!("Idempotency-Key: {key}\r\n");
                let path = ("POST", "/timers");
                let other = ask(&cluster, 1 + at % 2, path, &header, "another body");
                assert_eq!(other.status, 422, "round {round}: {key}: {other:?}");
            }
            let gone = ask(&cluster, 1, ("GET", deleted[at].location()), "", "");
            // The dead node may know better, so the answer may be that nobody can tell.
            assert!([404, 503].contains(&gone.status), "{gone:?}");
        }
        cluster.await_dead(&[1, 2], 0);
    }
}
