//! What operators order for destinations at one node holds in the whole cluster, outlives restarts,
//! and makes no pop come twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kit::callbacks::{Reaction, serve};
use kit::client::{Answer, request_with};
use kit::noise;
use kit::runner::{Story, disturbed};
use serde_json::Value;

use super::harness::{Cluster, until};
use super::sink::Sink;
use super::timers::{Order, STALLED};

pub const STORIES: &[Story] = &[
    ("an_order_reaches_all_nodes_and_one_that_returns_empty", an_order_reaches_all),
    ("a_node_that_returns_with_nothing_calls_no_paused_destination", a_node_that_returns_waits),
    ("the_living_nodes_share_a_rate", the_living_nodes_share_a_rate),
    ("pops_that_wait_for_a_rule_come_one_at_a_time_and_in_order", one_at_a_time_and_in_order),
];

const TWO: [usize; 2] = [0, 1];

pub fn order(cluster: &Cluster, place: usize, method: &str, name: &str, body: &str) -> Answer {
    let path = format!("/destinations/{name}");
    let headers = "X-Chronos-Order: 1\r\n";
    request_with(cluster.admin(place), method, &path, headers, body).expect("an answer")
}

/// Waits until these nodes say this of a destination.
pub fn await_shown(cluster: &Cluster, places: &[usize], name: &str, member: &str, wanted: &Value) {
    for place in places {
        until(&format!("node {} to say {member}: {wanted}", place + 1), || {
            let answer = order(cluster, *place, "GET", name, "");
            let document: Value = serde_json::from_str(&answer.body).ok()?;
            (document[member] == *wanted).then_some(())
        });
    }
}

fn create(cluster: &Cluster, count: usize, sink: &Sink, order: Order) {
    for timer in 0..count {
        let document = order.document(&sink.uri(&format!("/{timer}")), "x");
        let answer = cluster.request(TWO[timer % 2], "POST", "/timers", &document);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

fn paths(sink: &Sink) -> Vec<String> {
    let mut paths: Vec<_> = sink.pops().into_iter().map(|pop| pop.path).collect();
    paths.sort();
    paths
}

fn an_order_reaches_all() {
    let mut cluster = Cluster::running(&TWO);
    let sink = Sink::ok();
    let name = sink.address.to_string();
    let answer = order(&cluster, 0, "PUT", &name, r#"{"paused": true}"#);
    assert_eq!(answer.status, 200, "{answer:?}");
    await_shown(&cluster, &TWO, &name, "paused", &true.into());
    create(&cluster, 40, &sink, Order::once(1_000).factor(2));
    // It returns with nothing, and learns of the order from the other one.
    cluster.kill(1);
    cluster.start(1);
    cluster.await_alive(&TWO);
    await_shown(&cluster, &TWO, &name, "paused", &true.into());
    // Long after rank 1 would have made the pops of rank 0.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(sink.pops().len(), 0, "{:?}", paths(&sink));
    // The later order counts, wherever it is given.
    assert_eq!(order(&cluster, 1, "DELETE", &name, "").status, 200);
    until("all to be made", || (sink.pops().len() >= 40).then_some(()));
    std::thread::sleep(Duration::from_secs(4));
    let mut seen = paths(&sink);
    let all = seen.len();
    seen.dedup();
    assert_eq!((seen.len(), all), (40, 40), "none is lost, none comes twice");
    let gone = order(&cluster, 0, "GET", &name, "");
    assert_eq!(gone.status, 404, "{gone:?}");
}

/// Some timer is due at every moment, so that a node which did not know the rule for a moment would
/// show it.
fn a_node_that_returns_waits() {
    let mut cluster = Cluster::running(&TWO);
    let (sink, other) = (Sink::ok(), Sink::ok());
    let name = sink.address.to_string();
    assert_eq!(order(&cluster, 0, "PUT", &name, r#"{"paused": true}"#).status, 200);
    await_shown(&cluster, &TWO, &name, "paused", &true.into());
    create(&cluster, 100, &sink, Order::once(1_000).times(600).factor(2));
    create(&cluster, 10, &other, Order::once(1_000).times(600).factor(2));
    for round in 0..4 {
        cluster.kill(1);
        cluster.start(1);
        cluster.await_alive(&TWO);
        let before = other.pops().len();
        until("the other destination to be called on", || {
            (other.pops().len() >= before + 40).then_some(())
        });
        assert_eq!(sink.pops().len(), 0, "round {round}: {:?}", paths(&sink));
    }
    // With nobody to tell the rule, the node begins soon.
    cluster.kill(1);
    cluster.kill(0);
    let before = other.pops().len();
    cluster.start(1);
    create_at(&cluster, 1, &other);
    until("a node alone to call", || (other.pops().len() > before).then_some(()));
}

fn create_at(cluster: &Cluster, place: usize, sink: &Sink) {
    let document = Order::once(100).document(&sink.uri("/alone"), "x");
    until("the node to take a timer", || {
        let answer = cluster.request(place, "POST", "/timers", &document);
        (answer.status == 200).then_some(())
    });
}

fn the_living_nodes_share_a_rate() {
    let mut cluster = Cluster::running(&TWO);
    let sink = Sink::ok();
    let name = sink.address.to_string();
    assert_eq!(order(&cluster, 0, "PUT", &name, r#"{"rate-per-second": 20}"#).status, 200);
    await_shown(&cluster, &TWO, &name, "rate-per-second", &20.0.into());
    let began = Instant::now();
    create(&cluster, 200, &sink, Order::once(1_000).factor(2));
    until("half to be made", || (sink.pops().len() >= 100).then_some(()));
    let mut at: Vec<Duration> = sink.pops().iter().map(|pop| pop.at - began).collect();
    at.sort();
    // Two nodes: one more each. Where cores are busy, some callbacks are read together: half a
    // second more. Each node with the whole rate would make twice as many.
    for (begin, end) in (0..at.len()).flat_map(|end| (0..end).map(move |begin| (begin, end))) {
        let window = (at[end] - at[begin]).as_secs_f64() + 0.5;
        let most = 20.0 * window + 3.0;
        assert!(((end - begin + 1) as f64) < most, "{} in {window} s", end - begin + 1);
    }
    cluster.kill(1);
    cluster.await_dead(&[0], 1);
    let before = (Instant::now(), sink.pops().len());
    until("the rest to be made", || (paths(&sink).len() >= 200).then_some(()));
    let rate = (sink.pops().len() - before.1) as f64 / before.0.elapsed().as_secs_f64();
    // Pops that were left to the dead node come back after some seconds.
    assert!(rate <= 22.0, "{rate} a second");
    let mut seen = paths(&sink);
    seen.dedup();
    until("each to be made", || {
        let mut seen = paths(&sink);
        seen.dedup();
        (seen.len() == 200).then_some(())
    });
    assert!(sink.pops().len() <= 203, "{}", sink.pops().len());
}

/// What has begun of a timer: when, its number, and when it was over.
type Calls = BTreeMap<String, Vec<(Instant, u64, Option<Instant>)>>;

/// The server takes half a second, so two ranks that act at once are seen. No timer has a policy.
fn one_at_a_time_and_in_order() {
    let cluster = Cluster::running(&[0, 1, 2]);
    let calls: Arc<Mutex<Calls>> = Arc::default();
    let noted = Arc::clone(&calls);
    let (address, _) = serve("127.0.0.1:0".parse().expect("an address"), move |callback| {
        let place = {
            let mut calls = noted.lock().expect("nobody panics with it");
            let of_timer = calls.entry(callback.path.clone()).or_default();
            of_timer.push((callback.at, callback.sequence(), None));
            of_timer.len() - 1
        };
        std::thread::sleep(Duration::from_millis(500));
        let mut calls = noted.lock().expect("nobody panics with it");
        calls.get_mut(&callback.path).expect("it was noted")[place].2 = Some(Instant::now());
        Reaction::Status(200)
    });
    let name = address.to_string();
    let began = Instant::now();
    assert_eq!(order(&cluster, 0, "PUT", &name, r#"{"paused": true}"#).status, 200);
    await_shown(&cluster, &[0, 1, 2], &name, "paused", &true.into());
    for timer in 0..60 {
        let each = Order::once(1_000).times(600).factor(3);
        let document = each.document(&format!("http://{address}/{timer}"), "x");
        let answer = cluster.request(timer % 3, "POST", "/timers", &document);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let begun = || {
        let calls = calls.lock().expect("nobody panics with it");
        calls.values().map(Vec::len).sum::<usize>()
    };
    // The second and the third rank have had their turn, too.
    std::thread::sleep(Duration::from_secs(6));
    for rule in [r#"{"max-in-flight": 6}"#, r#"{"rate-per-second": 30}"#, ""] {
        let method = if rule.is_empty() { "DELETE" } else { "PUT" };
        assert_eq!(order(&cluster, 1, method, &name, rule).status, 200);
        let before = begun();
        until("pops to be made", || (begun() >= before + 100).then_some(()));
    }
    for (path, calls) in calls.lock().expect("nobody panics with it").iter() {
        for pair in calls.windows(2) {
            let is_over = pair[0].2.is_some_and(|over| over <= pair[1].0);
            let is_right = is_over && pair[0].1 < pair[1].1;
            if !is_right && noise::since(began) >= STALLED {
                disturbed("nodes may have taken each other for dead");
            }
            assert!(is_right, "{path}: {pair:?} of {calls:?}");
        }
    }
}
