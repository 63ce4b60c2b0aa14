//! Reports (docs/api.md) in a cluster: they come although the node that made them is gone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use kit::callbacks::{Callback, Reaction, serve};
use kit::client::request_with;
use kit::runner::Story;
use serde_json::{Value, json};

use super::harness::{Cluster, Setup, until};

pub const STORIES: &[Story] = &[
    ("a_report_outlives_the_node_that_made_the_pop", outlives),
    ("each_pop_is_reported_however_many_nodes_there_are", each_pop),
];

const ALL: [usize; 3] = [0, 1, 2];

/// A server that records what it takes, and fails until it is told to be well.
struct Server {
    uri: String,
    is_well: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Callback>>>,
}

impl Server {
    fn start(is_well: bool) -> Server {
        let is_well = Arc::new(AtomicBool::new(is_well));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (well, all) = (is_well.clone(), seen.clone());
        let (address, _) = serve("127.0.0.1:0".parse().expect("an address"), move |callback| {
            let is_well = well.load(SeqCst);
            if is_well {
                all.lock().expect("nobody panics with it").push(callback.clone());
            }
            Reaction::Status(if is_well { 200 } else { 503 })
        });
        Server { uri: format!("http://{address}"), is_well, seen }
    }

    fn taken(&self) -> Vec<Callback> {
        self.seen.lock().expect("nobody panics with it").clone()
    }
}

fn create(cluster: &Cluster, place: usize, timing: Value, uris: [&str; 2]) -> String {
    let document = json!({
        "timing": timing,
        "callback": {
            "http": {"uri": uris[0], "opaque": "any text"},
            "on-success": uris[1],
        },
        "reliability": {"replication-factor": 2},
    });
    let answer = request_with(cluster.address(place), "POST", "/timers", "", &document.to_string());
    answer.unwrap_or_else(|error| panic!("node {}: {error}", place + 1)).location().to_owned()
}

fn id_of(text: &str) -> String {
    text.trim_start_matches("/timers/").chars().take(16).collect()
}

/// How often each timer was reported.
fn counts(reports: &Server) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for report in reports.taken() {
        let body: Value = serde_json::from_slice(&report.body).expect("JSON");
        *counts.entry(id_of(body["id"].as_str().expect("text"))).or_default() += 1;
    }
    counts
}

fn running() -> Cluster {
    let mut cluster = Cluster::with(Setup::default());
    cluster.begin(&ALL);
    cluster.await_alive(&ALL);
    cluster
}

fn outlives() {
    let mut cluster = running();
    let (pops, reports) = (Server::start(true), Server::start(false));
    let uris = [pops.uri.as_str(), reports.uri.as_str()];
    let timers: Vec<String> =
        (0..30).map(|at| id_of(&create(&cluster, at % 3, json!({"interval": 0}), uris))).collect();
    until("all pops", || (pops.taken().len() == timers.len()).then_some(()));
    until("a report for each", || {
        let made = ALL.map(|place| cluster.metric(place, "chronos_reports_made_total"));
        (made.iter().sum::<u64>() == timers.len() as u64).then_some(())
    });
    // The news of pops and the copies of reports leave together; this is time for both.
    std::thread::sleep(std::time::Duration::from_millis(500));
    cluster.kill(0);
    cluster.await_dead(&[1, 2], 0);
    reports.is_well.store(true, SeqCst);
    until("each report", || {
        let counts = counts(&reports);
        timers.iter().all(|timer| counts.contains_key(timer)).then_some(())
    });
    assert_eq!(counts(&reports).len(), timers.len());
    assert_eq!(pops.taken().len(), timers.len(), "no pop was made again");
}

fn each_pop() {
    let cluster = running();
    let (pops, reports) = (Server::start(true), Server::start(true));
    let uris = [pops.uri.as_str(), reports.uri.as_str()];
    let timing = json!({"interval": 1, "repeat-for": 3});
    let timers: Vec<String> =
        (0..12).map(|at| id_of(&create(&cluster, at % 3, timing.clone(), uris))).collect();
    until("three reports of each", || {
        let counts = counts(&reports);
        timers.iter().all(|timer| counts.get(timer) == Some(&3)).then_some(())
    });
    until("the end", || {
        let left = ALL.map(|place| cluster.metric(place, "chronos_timers"));
        left.iter().all(|timers| *timers == 0).then_some(())
    });
    assert_eq!(reports.taken().len(), 36);
}
