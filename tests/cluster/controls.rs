//! Timers that clients pause, resume and run, in a cluster: the first rank dies, a node comes back
//! empty, nodes join, two clients run one timer at once.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use kit::client::{Answer, request_with};
use kit::runner::Story;

use super::harness::{Cluster, until};
use super::scaling::scale;
use super::sink::Sink;
use super::timers::Order;

pub const STORIES: &[Story] = &[
    ("a_pause_outlives_nodes_and_moves", a_pause_outlives_nodes),
    ("of_two_runs_through_two_nodes_one_is_made", two_runs_at_once),
];

const THREE: [usize; 3] = [0, 1, 2];
const TIMERS: usize = 60;

fn act(cluster: &Cluster, place: usize, (path, action): (&str, &str), headers: &str) -> Answer {
    let path = format!("{path}/{action}");
    let answer = request_with(cluster.address(place), "POST", &path, headers, "");
    answer.unwrap_or_else(|error| panic!("node {}: {error}\n{}", place + 1, cluster.logged(place)))
}

fn done(cluster: &Cluster, place: usize, act_on: (&str, &str)) -> String {
    let answer = until("the action to be taken", || {
        let answer = act(cluster, place, act_on, "");
        (answer.status != 503).then_some(answer)
    });
    assert_eq!(answer.status, 200, "{act_on:?}: {answer:?}");
    answer.header("ETag").expect("a version").to_owned()
}

/// How often each path was called, and by which number last.
fn counted(sink: &Sink) -> BTreeMap<String, Vec<u64>> {
    let pops = sink.by_path().into_iter();
    pops.map(|(path, pops)| (path, pops.iter().map(|pop| pop.sequence).collect())).collect()
}

fn is_paused(cluster: &Cluster, place: usize, path: &str) -> bool {
    cluster.request(place, "GET", path, "").body.contains("\"paused\":true")
}

fn a_pause_outlives_nodes() {
    let mut cluster = Cluster::running(&THREE);
    cluster.await_alive(&THREE);
    let sink = Sink::ok();
    // Each is due while its first node may be dead. Every third is to pop twice.
    let timers: Vec<(String, String)> = (0..TIMERS)
        .map(|at| {
            let order = Order::once(3_000).times(1 + (at % 3 / 2) as u64).factor(2);
            let document = order.document(&sink.uri(&format!("/{at}")), "x");
            let made = cluster.request(at % 3, "POST", "/timers", &document);
            let version = done(&cluster, (at + 1) % 3, (made.location(), "pause"));
            (made.location().to_owned(), version)
        })
        .collect();
    cluster.kill(0);
    thread::sleep(Duration::from_secs(9));
    assert!(sink.pops().is_empty(), "paused timers pop: {:?}", counted(&sink));
    cluster.start(0);
    cluster.await_alive(&THREE);
    // A fourth node gets its share of them.
    scale(&mut cluster, &THREE, &[3], &[]);
    for (at, (path, version)) in timers.iter().enumerate() {
        assert!(is_paused(&cluster, at % 4, path), "{at}");
        let again = done(&cluster, (at + 1) % 4, (path, "pause"));
        assert_eq!(again, *version, "nothing changes");
        let run = act(&cluster, at % 4, (path, "run-now"), "");
        assert_eq!(run.status, 409, "{run:?}");
    }
    thread::sleep(Duration::from_secs(5));
    assert!(sink.pops().is_empty(), "paused timers pop: {:?}", counted(&sink));
    for (at, (path, version)) in timers.iter().enumerate() {
        let stale = "If-Match: \"0000000000000001\"\r\n";
        assert_eq!(act(&cluster, at % 4, (path, "resume"), stale).status, 412);
        let met = format!("If-Match: {version}\r\n");
        let resumed = act(&cluster, at % 4, (path, "resume"), &met);
        assert_eq!(resumed.status, 200, "{at}: {resumed:?}");
    }
    until("each to make its last pop", || (sink.by_path().len() == TIMERS).then_some(()));
    thread::sleep(Duration::from_secs(3));
    for (path, numbers) in counted(&sink) {
        let at: usize = path[1..].parse().expect("a number");
        assert_eq!(numbers, [1 + (at % 3 / 2) as u64], "{path}");
    }
    for (path, _) in &timers {
        assert_eq!(cluster.request(1, "GET", path, "").status, 404);
    }
}

fn two_runs_at_once() {
    let cluster = Cluster::running(&THREE);
    cluster.await_alive(&THREE);
    let sink = Sink::ok();
    let document = |at: usize| {
        Order::once(3_600_000).times(5).factor(2).document(&sink.uri(&format!("/{at}")), "x")
    };
    let made: Vec<(String, String)> = (0..TIMERS)
        .map(|at| {
            let path = format!("/timers/by-name/run-{at}");
            let made = cluster.request(at % 3, "PUT", &path, &document(at));
            (path, format!("If-Match: {}\r\n", made.header("ETag").expect("a version")))
        })
        .collect();
    let run = |place: usize| {
        let (cluster, made) = (&cluster, &made);
        move || -> Vec<Answer> {
            let act = |(path, met): &(String, String)| act(cluster, place, (path, "run-now"), met);
            made.iter().map(act).collect()
        }
    };
    let (one, other) = thread::scope(|scope| {
        let (one, other) = (scope.spawn(run(0)), scope.spawn(run(1)));
        (one.join().expect("answered"), other.join().expect("answered"))
    });
    for (one, other) in one.iter().zip(&other) {
        let mut statuses = [one.status, other.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412], "{one:?} {other:?}");
    }
    until("each to be run", || (sink.by_path().len() == TIMERS).then_some(()));
    // The next one, through yet another node, and without a condition.
    for (path, _) in &made {
        until("the first pop to be known", || {
            let told = cluster.request(2, "GET", path, "");
            told.body.contains("\"sequence-number\":1").then_some(())
        });
        done(&cluster, 2, (path, "run-now"));
    }
    until("each to be run again", || (sink.pops().len() >= 2 * TIMERS).then_some(()));
    thread::sleep(Duration::from_secs(3));
    for (path, numbers) in counted(&sink) {
        assert_eq!(numbers, [1, 2], "{path}");
    }
}
