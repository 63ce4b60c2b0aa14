//! A node of this service and an original node in the same cluster, in both directions.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use kit::client::request_with;
use kit::runner::{Story, disturbed};
use serde_json::{Value, json};

use super::bulk::bulk;
use super::harness::{Cluster, PATIENCE, Setup, until};
use super::original::{Message, Original, ask_from, page_target};
use super::placement;
use super::sink::Sink;
use super::timers::{Order, QUIET, Timer, Timers, ranks_between};

pub const STORIES: &[Story] = &[
    ("an_original_node_is_told_what_it_understands", it_is_told_what_it_understands),
    ("an_original_node_tells_and_is_understood", it_tells_and_is_understood),
    ("what_only_an_original_takes_is_held", what_only_an_original_takes_is_held),
    ("an_original_node_reads_pages_of_timers", it_reads_pages_of_timers),
    ("timers_are_read_from_an_original_node_at_start", timers_are_read_from_it_at_start),
    ("an_original_node_that_leaves_hands_its_timers_over", one_that_leaves_hands_over),
    ("strangers_are_refused_by_the_internal_api", strangers_are_refused),
    ("what_an_original_does_not_know_goes_on_beside_it", what_it_does_not_know_goes_on),
];

const OURS: usize = 0;
const ITS: usize = 1;

/// A node that suspects nobody: the recorder shares this machine with all other stories, and a
/// write does not wait for a peer that was silent for a second.
const PATIENT: &str = "\n[cluster]\nsuspect_after_ms = 60000\ndead_after_ms = 120000\n";

/// Starts a node of this service at place 0, and the recorder of an original at place 1. Both know
/// each other.
pub fn mixed() -> (Cluster, Original) {
    let mut cluster = Cluster::with(Setup { local: PATIENT.to_owned(), ..Setup::default() });
    let original = Original::start(cluster.address(ITS));
    let roles = super::files::Roles::staying(&[OURS, ITS]);
    cluster.start_with(&[OURS], &roles);
    // Each core has asked the recorder for an Upgrade, got 404, and asked whether the recorder is
    // there.
    until("both to know each other", || {
        (original.messages("GET").iter().filter(|one| one.target == "/ping").count() >= 2)
            .then_some(())
    });
    cluster.await_belief(&[OURS], &[ITS], "alive");
    (cluster, original)
}

fn names(cluster: &Cluster) -> [&str; 2] {
    [&cluster.names[OURS], &cluster.names[ITS]]
}

/// Returns the id in `/timers/<16 hex>...`.
fn id_in(path: &str) -> u64 {
    let rest = path.strip_prefix("/timers/").unwrap_or_else(|| panic!("no timer: {path}"));
    u64::from_str_radix(&rest[..16], 16).expect("16 hex digits")
}

/// Returns the replica list of a timer, as names of the cluster.
fn replicas_of(cluster: &Cluster, id: u64) -> Vec<String> {
    let names = names(cluster);
    let places = placement::replicas(&names, id, 2);
    places.into_iter().map(|place| names[place].to_owned()).collect()
}

/// Returns `cluster-view-id`: the decimal text of the filters of both nodes together.
fn view_id(cluster: &Cluster) -> String {
    let filter = |name| chronos::cluster::bloom::node_bits(name);
    names(cluster).into_iter().fold(0, |all, name| all | filter(name)).to_string()
}

/// Returns an id of which this node is the primary, from `from` on.
fn id_with_primary(cluster: &Cluster, primary: usize, from: u64) -> u64 {
    let is_wanted = |id: &u64| placement::replicas(&names(cluster), *id, 2)[0] == primary;
    (from..).find(is_wanted).expect("every second")
}

/// Checks everything about a copy that does not depend on the timer.
fn assert_is_understood(message: &Message, cluster: &Cluster) {
    assert_eq!(message.header("Content-Type"), Some("application/json"), "{}", message.head);
    assert_eq!(message.header("Host"), Some(&cluster.names[ITS][..]), "{}", message.head);
    let body = &message.body;
    let id = id_in(&message.target);
    assert_eq!(message.target, format!("/timers/{id:016x}-2"), "no suffix: {message:?}");
    let timing = &body["timing"];
    // An original takes integers only.
    for member in ["start-time", "start-time-delta", "sequence-number", "interval", "repeat-for"] {
        assert!(timing[member].is_i64() || timing[member].is_u64(), "{member} in {body}");
    }
    assert!(timing["start-time-delta"].as_i64() <= Some(0), "{body}");
    assert!(timing["start-time"].as_u64().expect("a number") < 1 << 32, "{body}");
    assert!(body["callback"]["http"]["uri"].is_string(), "{body}");
    assert!(body["callback"]["http"]["opaque"].is_string(), "{body}");
    let reliability = &body["reliability"];
    assert_eq!(reliability["replicas"], json!(replicas_of(cluster, id)), "{body}");
    assert_eq!(reliability["cluster-view-id"], view_id(cluster), "{body}");
    assert!(body["statistics"]["tag-info"].is_array(), "{body}");
}

fn it_is_told_what_it_understands() {
    let (cluster, original) = mixed();
    let sink = Sink::ok();
    let order = Order::once(2_000).times(2).factor(2);
    let timers = Timers::some(&cluster, &[OURS], order, &sink, 20);
    // An acknowledged timer is one that the other replica has answered, too.
    let told = original.messages("PUT");
    assert_eq!(told.len(), 20, "one copy of each");
    for timer in &timers.all {
        let is_its = |message: &&Message| id_in(&message.target) == id_in(&timer.location);
        let message = told.iter().find(is_its).expect("each timer was told");
        assert_is_understood(message, &cluster);
        let timing = &message.body["timing"];
        assert_eq!((&timing["interval"], &timing["repeat-for"]), (&json!(2), &json!(4)));
        assert_eq!(timing["sequence-number"], 0);
        let delta_ms = timing["start-time-delta"].as_i64().expect("checked");
        let age_ms = (message.at - timer.asked).as_millis() as i64 + 1;
        assert!(delta_ms >= -age_ms, "asked for {age_ms} ms ago: {timing}");
        assert_eq!(message.body["callback"]["http"]["uri"], sink.uri(&timer.path));
    }
    // The node pops on time as the primary, and 2 s later as the backup, because the recorder never
    // pops. Each pop is told with the sequence advanced and the start unchanged, the last pop as a
    // tombstone.
    original.forget();
    let judgement = timers.judge(&sink);
    judgement.assert_once().assert_ranks(1);
    let told = original.wait_for("PUT", 2 * timers.all.len(), PATIENCE);
    for timer in &timers.all {
        let id = id_in(&timer.location);
        let of: Vec<_> = told.iter().filter(|message| id_in(&message.target) == id).collect();
        assert_eq!(of.len(), 2, "{of:?}");
        of.iter().for_each(|message| assert_is_understood(message, &cluster));
        let first = &of[0].body;
        assert_eq!(first["timing"]["sequence-number"], 1, "{first}");
        let delta = first["timing"]["start-time-delta"].as_i64().expect("checked");
        let start = of[0].at - Duration::from_millis(delta.unsigned_abs());
        // The start in a message is older by as long as the message took. If it is off by an
        // interval or more, it is the start of the next pop.
        let off = start.saturating_duration_since(timer.answered);
        judgement.expect(off < Duration::from_secs(2), format_args!("moved by {off:?}: {first}"));
        let last = &of[1].body;
        assert_eq!(last["callback"]["http"], json!({"uri": "", "opaque": ""}), "{last}");
        assert_eq!(last["timing"]["sequence-number"], 2, "{last}");
        assert_eq!(last["timing"]["repeat-for"], 6, "interval x (sequence + 1): {last}");
    }
    // A deleted timer is told as a tombstone of at least 10 s, and as of now. An original refuses
    // the end of a timer that, by the original's clock, is older than the timer.
    let far = Timers::some(&cluster, &[OURS], Order::once(60_000).factor(2), &sink, 1);
    original.forget();
    thread::sleep(Duration::from_secs(4));
    let asked = Instant::now();
    cluster.request(OURS, "DELETE", &far.all[0].location, "");
    let told = original.wait_for("PUT", 1, PATIENCE);
    assert_is_understood(&told[0], &cluster);
    assert_eq!(told[0].body["callback"]["http"], json!({"uri": "", "opaque": ""}));
    assert!(told[0].body["timing"]["interval"].as_u64() >= Some(10), "{:?}", told[0].body);
    let delta_ms = told[0].body["timing"]["start-time-delta"].as_i64().expect("checked");
    assert!(delta_ms >= -(asked.elapsed().as_millis() as i64), "{:?}", told[0].body);
}

/// Returns the document that an original sends about a timer.
fn its_copy(cluster: &Cluster, uri: &str, id: u64, sequence: u64, delta_ms: i64) -> String {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("later");
    let start_ms = (since_1970.as_millis() as u64).wrapping_add_signed(delta_ms) as u32;
    json!({
        "timing": {"start-time": start_ms, "start-time-delta": delta_ms,
            "sequence-number": sequence, "interval": 2, "repeat-for": 4},
        "callback": {"http": {"uri": uri, "opaque": "OPAQUE-DATA"}},
        "reliability": {"cluster-view-id": view_id(cluster), "replicas": replicas_of(cluster, id),
            "sites": ["site1"]},
        "statistics": {"tag-info": [{"type": "A", "count": 2}, {"type": "B", "count": 1}]},
    })
    .to_string()
}

fn it_tells_and_is_understood() {
    let (cluster, original) = mixed();
    let sink = Sink::ok();
    let to = cluster.address(OURS);
    let put = |id: u64, body: &str| {
        let answer = original.ask(to, "PUT", &format!("/timers/{id:016x}-2"), body);
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let begun = Instant::now();
    let ours = id_with_primary(&cluster, OURS, 0x0004_d9f5_4810_0000);
    let its = id_with_primary(&cluster, ITS, 0x0004_d9f5_4820_0000);
    let popped = id_with_primary(&cluster, OURS, 0x0004_d9f5_4830_0000);
    let deleted = id_with_primary(&cluster, OURS, 0x0004_d9f5_4840_0000);
    // The timers started half a second ago, so they are due in 1.5 s.
    put(ours, &its_copy(&cluster, &sink.uri("/ours"), ours, 0, -500));
    put(its, &its_copy(&cluster, &sink.uri("/its"), its, 0, -500));
    put(popped, &its_copy(&cluster, &sink.uri("/popped"), popped, 0, -500));
    put(deleted, &its_copy(&cluster, &sink.uri("/deleted"), deleted, 0, -500));
    assert_eq!(original.messages("PUT").len(), 0, "what has replicas is not replicated further");
    // The original has popped the third timer and deleted the fourth.
    put(popped, &its_copy(&cluster, &sink.uri("/popped"), popped, 1, -520));
    let tombstone = its_copy(&cluster, "", deleted, 0, 0)
        .replace("OPAQUE-DATA", "")
        .replace("\"interval\":2", "\"interval\":10")
        .replace("\"repeat-for\":4", "\"repeat-for\":10");
    put(deleted, &tombstone);
    // An older copy that comes late changes nothing.
    put(deleted, &its_copy(&cluster, &sink.uri("/deleted"), deleted, 0, -540));
    if begun.elapsed() >= Duration::from_millis(1_460) {
        disturbed("timers were due before all was told of them");
    }
    thread::sleep((begun + Duration::from_secs(8)).saturating_duration_since(Instant::now()));
    until("five pops", || (sink.pops().len() >= 5).then_some(()));
    let mut by_path = sink.by_path();
    let mut expect = |path: &str, told: &[(u64, u64)]| {
        let pops = by_path.remove(path).unwrap_or_default();
        let sequences: Vec<_> = pops.iter().map(|pop| pop.sequence).collect();
        assert_eq!(sequences, told.iter().map(|one| one.1).collect::<Vec<_>>(), "{path}");
        for (pop, (due_ms, _)) in pops.iter().zip(told) {
            let due = begun + Duration::from_millis(*due_ms);
            assert!(pop.at >= due, "{path} {} is early", pop.sequence);
            if ranks_between(due, pop.at) > 0 {
                disturbed(format!("{path} {} came later than a rank", pop.sequence));
            }
        }
    };
    // Pairs of milliseconds after the story's begin and sequence number.
    expect("/ours", &[(1_500, 1), (3_500, 2)]);
    // The second rank makes these pops.
    expect("/its", &[(3_500, 1), (5_500, 2)]);
    expect("/popped", &[(3_480, 2)]);
    expect("/deleted", &[]);
}

/// URIs and opaque data that clients may not write here are taken from an original, because the
/// original's client has had its 200.
fn what_only_an_original_takes_is_held() {
    let (cluster, original) = mixed();
    let sink = Sink::ok();
    let to = cluster.address(OURS);
    let mut id = 0x0004_d9f5_4860_0000;
    let mut tell = |path: &str, opaque: &str| {
        id = id_with_primary(&cluster, OURS, id + 1);
        let copy = its_copy(&cluster, &sink.uri(path), id, 1, -3_000);
        let copy = copy.replace("OPAQUE-DATA", opaque);
        original.ask(to, "PUT", &format!("/timers/{id:016x}-2"), &copy).status
    };
    let long = format!("/long?{}", "u".repeat(3_000));
    assert_eq!(tell(&long, "opaque"), 200);
    assert_eq!(tell("/caf\u{e9} 1?\u{4e2d} 2", "opaque"), 200);
    let opaques = [900_000, 2_000_000].map(|bytes| "o".repeat(bytes));
    assert_eq!(tell("/opaque-0", &opaques[0]), 200);
    assert_eq!(tell("/opaque-1", &opaques[1]), 200);
    assert_eq!(tell("/beyond", &"o".repeat(2_100_000)), 413);
    assert_eq!(tell(&format!("/beyond?{}", "u".repeat(40_000)), ""), 400);
    let pops = until("the pops", || {
        let pops = sink.by_path();
        (pops.len() >= 4).then_some(pops)
    });
    assert_eq!(pops[&long].len(), 1);
    assert_eq!(pops["/caf%c3%a9%201?%e4%b8%ad+2"].len(), 1, "{:?}", pops.keys());
    for (path, opaque) in ["/opaque-0", "/opaque-1"].iter().zip(&opaques) {
        assert!(pops[*path][0].body == *opaque, "{} bytes", pops[*path][0].body.len());
    }
    // A client that sends the same is refused, whatever address it has.
    let document = Order::once(1_000).document(&sink.uri(&long), "");
    assert_eq!(original.ask(to, "POST", "/timers", &document).status, 400);
    let document = Order::once(1_000).document(&sink.uri("/x"), &opaques[1]);
    assert_eq!(original.ask(to, "PUT", "/timers/0000000000000001-2", &document).status, 413);
}

fn it_reads_pages_of_timers() {
    let (cluster, original) = mixed();
    let sink = Sink::ok();
    let to = cluster.address(OURS);
    let order = Order::once(3_600_000).factor(2);
    let timers = Timers::some(&cluster, &[OURS], order, &sink, 250);
    let wanted: BTreeSet<u64> = timers.all.iter().map(|one| id_in(&one.location)).collect();
    let node = &cluster.names[ITS];
    let view = view_id(&cluster);
    let mut seen = BTreeSet::new();
    let mut from = None;
    let mut pages = 0;
    loop {
        let answer = original.ask(to, "GET", &page_target(node, &view, from), "");
        let body: Value = serde_json::from_str(&answer.body).expect("JSON");
        let page = body["Timers"].as_array().unwrap_or_else(|| panic!("no Timers in {body}"));
        for entry in page {
            let id = entry["TimerID"].as_u64().expect("a number");
            seen.insert(id);
            assert_eq!(entry["OldReplicas"], json!(replicas_of(&cluster, id)), "{entry}");
            let timer = &entry["Timer"];
            assert_eq!(timer["reliability"]["replicas"], json!(replicas_of(&cluster, id)));
            assert_eq!(timer["timing"]["interval"], 3_600, "{entry}");
        }
        pages += 1;
        assert!(pages <= 10, "the same timers are served again and again");
        if answer.status == 200 {
            break;
        }
        assert_eq!(answer.status, 206, "{answer:?}");
        assert_eq!(answer.header("Content-Range"), Some("100"), "{}", answer.head);
        assert_eq!(page.len(), 100);
        // An original asks in the same way: with the time to the last timer's pop.
        let last = &page.last().expect("100")["Timer"]["timing"];
        let delta = last["start-time-delta"].as_i64().expect("a number");
        from = Some(3_600_000 + delta);
    }
    assert_eq!(seen, wanted);
    assert!(pages >= 3);
    let status = |target: &str| original.ask(to, "GET", target, "").status;
    assert_eq!(status(&format!("/timers?node-for-replicas={node}")), 400);
    assert_eq!(status(&format!("/timers?cluster-view-id={view}")), 400);
    assert_eq!(status(&page_target(node, "1", None)), 400);
    assert_eq!(status(&page_target("127.0.0.99:1", &view, None)), 404);
    // Elsewhere the query is written with `&`.
    assert_eq!(status(&page_target(node, &view, Some(1)).replace(';', "&")), 206);
    let reference = |body: &str| original.ask(to, "DELETE", "/timers/references", body).status;
    let id = wanted.first().expect("250");
    assert_eq!(reference(&json!({"IDs": [{"ID": id, "ReplicaIndex": 0}]}).to_string()), 202);
    assert_eq!(reference("{\"IDs\": 1}"), 400);
    assert_eq!(reference("no JSON"), 400);
    // No node leaves, so a reference to a timer that stays here deletes nothing.
    let kept = timers.all.iter().find(|one| id_in(&one.location) == *id).expect("it was seen");
    assert_eq!(cluster.request(OURS, "GET", &kept.location, "").status, 200);
}

fn timers_are_read_from_it_at_start() {
    let mut cluster = Cluster::new();
    let original = Original::start(cluster.address(ITS));
    let sink = Sink::ok();
    let begun = Instant::now();
    let mut entries = Vec::new();
    let mut all = Vec::new();
    for number in 0..150_u64 {
        let id = 0x0004_d9f5_4900_0000 + number;
        let path = format!("/pop/{number}");
        let mut timer: Value =
            serde_json::from_str(&its_copy(&cluster, &sink.uri(&path), id, 0, 0)).expect("JSON");
        // The timer is due 8 s after it is served.
        timer["timing"]["interval"] = json!(8);
        timer["timing"]["repeat-for"] = json!(8);
        let replicas = replicas_of(&cluster, id);
        entries.push(json!({"TimerID": id, "OldReplicas": replicas, "Timer": timer}));
        all.push((id, path));
    }
    original.serve_timers(entries);
    let roles = super::files::Roles::staying(&[OURS, ITS]);
    cluster.start_with(&[OURS], &roles);
    let pages: Vec<_> = until("two pages to be asked for", || {
        let asked = original.messages("GET").into_iter();
        let pages = asked.filter(|one| one.parameter("node-for-replicas").is_some());
        Some(pages.collect::<Vec<_>>()).filter(|pages| pages.len() >= 2)
    });
    let name = &cluster.names[OURS];
    for page in &pages {
        let node = page.parameter("node-for-replicas").expect("filtered").replace("%3A", ":");
        assert_eq!(&node, name, "{page:?}");
        assert_eq!(page.parameter("cluster-view-id"), Some(&view_id(&cluster)[..]), "{page:?}");
        assert_eq!(page.header("Range"), Some("100"), "{page:?}");
    }
    assert_eq!(pages[0].parameter("time-from"), None, "{pages:?}");
    assert!(pages[1].parameter("time-from").is_some(), "{pages:?}");
    // All timers pop here: on time where this node is the primary, the others by the second rank.
    let order = Order { interval_ms: 8_000, pops: 1, factor: Some(2) };
    let (asked, answered) = (pages[0].at, pages[1].at);
    let timers = all
        .into_iter()
        .map(|(id, path)| Timer { path, location: format!("/timers/{id:016x}-2"), asked, answered })
        .collect();
    let timers = Timers { order, all: timers, begun };
    timers.judge(&sink).assert_once().assert_ranks(1);
}

fn one_that_leaves_hands_over() {
    let mut cluster = Cluster::new();
    let original = Original::start(cluster.address(ITS));
    let sink = Sink::ok();
    let (ours, its) = (cluster.names[OURS].clone(), cluster.names[ITS].clone());
    let view = chronos::cluster::bloom::node_bits(&ours).to_string();
    let entry = |number: u64| {
        let uri = sink.uri(&format!("/pop/{number}"));
        json!({"TimerID": 0x0004_d9f5_4a00_0000 + number, "OldReplicas": [its], "Timer": {
            "timing": {"start-time": 0, "start-time-delta": -1_000, "sequence-number": 1,
                "interval": 5, "repeat-for": 10},
            "callback": {"http": {"uri": uri, "opaque": "opaque"}},
            "reliability": {"cluster-view-id": view, "replicas": [ours], "sites": ["site1"]},
            "statistics": {"tag-info": []},
        }})
    };
    original.serve_timers((0..120).map(entry).collect());
    let roles = super::files::Roles::staying(&[OURS]).with_leaving(&[ITS]);
    let begun = Instant::now();
    cluster.start_with(&[OURS], &roles);
    // The original is told the end of each timer, and which timers were taken over. It does not
    // understand the latter.
    let is_end = |one: &Message| one.body["callback"]["http"]["uri"] == "";
    let told = original.wait_for("PUT", 120, PATIENCE);
    assert_eq!(told.len(), 120, "{told:?}");
    for one in &told {
        assert!(is_end(one), "{one:?}");
        let timing = &one.body["timing"];
        let told = (&timing["sequence-number"], &timing["interval"], &timing["repeat-for"]);
        assert_eq!(told, (&json!(1), &json!(5), &json!(10)), "interval x (sequence + 1)");
    }
    let references = original.wait_for("DELETE", 1, PATIENCE);
    assert_eq!(references[0].target, "/timers/references");
    let ids = references[0].body["IDs"].as_array().expect("a list");
    assert_eq!((ids.len(), &ids[0]["ReplicaIndex"]), (100, &json!(0)));
    // Each timer pops here, once, at its time: 9 s after it was read.
    thread::sleep((begun + Duration::from_secs(16)).saturating_duration_since(Instant::now()));
    until("all to pop", || (sink.by_path().len() >= 120).then_some(()));
    let by_path = sink.by_path();
    assert_eq!(by_path.len(), 120);
    for pops in by_path.values() {
        assert_eq!((pops.len(), pops[0].sequence), (1, 2), "{pops:?}");
        let at = pops[0].at - begun;
        assert!(at >= Duration::from_secs(9), "{at:?}");
    }
    // The original is read again on SIGUSR1.
    original.forget();
    cluster.signal(OURS, "USR1");
    until("a page to be asked for", || {
        let mut asked = original.messages("GET").into_iter();
        asked.find(|one| one.parameter("node-for-replicas").is_some())
    });
}

fn strangers_are_refused() {
    let (cluster, original) = mixed();
    let sink = Sink::ok();
    let to = cluster.address(OURS);
    let stranger = "127.0.0.77:0".parse().expect("an address");
    let id = id_with_primary(&cluster, OURS, 0x0004_d9f5_4850_0000);
    let body = its_copy(&cluster, &sink.uri("/stranger"), id, 0, 0);
    let path = format!("/timers/{id:016x}-2");
    let answer = ask_from(stranger, to, "PUT", &path, &body);
    assert_eq!(answer.status, 403, "{answer:?}");
    let target = page_target(&cluster.names[ITS], &view_id(&cluster), None);
    assert_eq!(ask_from(stranger, to, "GET", &target, "").status, 403);
    let ids = json!({"IDs": [{"ID": id, "ReplicaIndex": 0}]}).to_string();
    assert_eq!(ask_from(stranger, to, "DELETE", "/timers/references", &ids).status, 403);
    // The public API serves every address.
    let document = Order::once(1_000).document(&sink.uri("/public"), "");
    assert_eq!(ask_from(stranger, to, "POST", "/timers", &document).status, 200);
    assert_eq!(original.ask(to, "PUT", &path, &body).status, 200);
    thread::sleep(Duration::from_secs(3) + QUIET);
    until("three pops", || (sink.pops().len() >= 3).then_some(()));
    let by_path = sink.by_path();
    assert_eq!(by_path["/stranger"].len(), 2, "from the member, not from the stranger");
    assert_eq!(by_path["/public"].len(), 1);
}

/// A bulk request makes timers that the original is told of. Lists and counts say that it was not
/// asked, a rule holds for the pops of this node, and what a job deletes the original is told to
/// end.
fn what_it_does_not_know_goes_on() {
    const TIMERS: usize = 20;
    let (cluster, original) = mixed();
    let sink = Sink::ok();
    let host = sink.address.to_string();
    let order = |method: &str, path: &str, body: &str| -> (u16, Value) {
        let headers = "X-Chronos-Order: 1\r\n";
        let answer = request_with(cluster.admin(OURS), method, path, headers, body);
        let answer = answer.expect("an answer");
        (answer.status, serde_json::from_str(&answer.body).unwrap_or_default())
    };
    let rule = format!("/destinations/{host}");
    assert_eq!(order("PUT", &rule, r#"{"paused":true}"#).0, 200);
    let far = Order::once(3_600_000).factor(2).document(&sink.uri("/far"), "x");
    let told = bulk(cluster.address(OURS), vec![far; TIMERS].join("\n"));
    assert!(told.iter().all(|result| result["location"].is_string()), "{told:?}");
    assert_eq!(original.messages("PUT").len(), TIMERS, "told before the lines are answered");
    // A timer that this node pops first, which is due at once.
    let id = id_with_primary(&cluster, OURS, 0x0123_4567_89ab_0001);
    let near = Order::once(0).factor(2).document(&sink.uri("/near"), "x");
    cluster.request(OURS, "PUT", &format!("/timers/{id:016x}-2"), &near).location();

    let name = &cluster.names[ITS];
    let says_so = |told: &Value| {
        let sentence = told["incomplete"][0].as_str().unwrap_or_default();
        assert!(sentence.starts_with(name.as_str()) && sentence.contains("original"), "{told}");
    };
    let (_, page) = order("GET", "/timers?limit=100", "");
    says_so(&page);
    assert_eq!(page["timers"].as_array().map(Vec::len), Some(TIMERS + 1), "{page}");
    let (_, counts) = order("GET", "/timers/count", "");
    says_so(&counts);
    assert!(counts["timers"].as_u64() <= Some(TIMERS as u64 + 1), "{counts}");
    assert_eq!(sink.pops().len(), 0, "the rule holds");
    assert_eq!(order("DELETE", &rule, "").0, 200);
    until("the pop that waited", || (sink.pops().len() == 1).then_some(()));

    original.forget();
    let (status, job) = order("DELETE", &format!("/timers?host={host}"), "");
    assert_eq!(status, 202, "{job}");
    let path = format!("/jobs/{}", job["id"].as_str().expect("text"));
    let ended = until("the job to end", || {
        let (_, told) = order("GET", &path, "");
        (told["state"] == "done").then_some(told)
    });
    assert_eq!((&ended["deleted"], &ended["complete"]), (&TIMERS.into(), &false.into()), "{ended}");
    let tombstones = original.wait_for("PUT", TIMERS, PATIENCE);
    let is_end = |message: &&Message| message.body["callback"]["http"]["uri"] == "";
    let ends: BTreeSet<u64> =
        tombstones.iter().filter(is_end).map(|message| id_in(&message.target)).collect();
    assert!(ends.len() >= TIMERS, "{tombstones:?}");
}
