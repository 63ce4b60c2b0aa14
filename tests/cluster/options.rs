//! What timers have beyond the original's document (docs/api.md, "Beyond the original") in a
//! cluster: replicas and other sites hold it, one node makes the attempts of a retry policy, and an
//! original node keeps such timers out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use kit::callbacks::{Callback, Reaction, serve};
use kit::client::request_with;
use kit::runner::Story;
use serde_json::{Value, json};

use super::files::Roles;
use super::harness::{Cluster, Setup, until};
use super::mixed::mixed;
use super::placement;
use super::sink::Sink;

pub const STORIES: &[Story] = &[
    ("the_node_that_retries_is_killed_and_the_next_goes_on", the_next_goes_on),
    ("replicas_hold_what_the_original_does_not_have", replicas_hold_it),
    ("other_sites_hold_what_the_original_does_not_have", other_sites_hold_it),
    ("410_ends_a_timer_on_all_nodes", gone_on_all_nodes),
    ("an_original_node_keeps_out_what_it_cannot_hold", an_original_keeps_it_out),
];

/// A timer with all that the original does not have.
fn document(uri: &str, timing: Value, factor: u8) -> Value {
    json!({
        "timing": timing,
        "callback": {
            "http": {
                "uri": uri,
                "opaque-base64": "AAEC/w==",
                "method": "PUT",
                "content-type": "image/png",
                "headers": {"X-Tenant": "blue", "X-Empty": ""},
            },
            "retry": {"max-attempts": 50, "initial": 0.5, "max": 0.5, "multiplier": 1, "jitter": 0},
            "timeout": 7.5,
        },
        "reliability": {"replication-factor": factor},
    })
}

fn shown(cluster: &Cluster, place: usize, path: &str) -> Value {
    let answer = cluster.request(place, "GET", path, "");
    assert_eq!(answer.status, 200, "{path} through node {}: {answer:?}", place + 1);
    serde_json::from_str(&answer.body).expect("JSON")
}

/// What GET shows without the time, and the start in milliseconds from now.
fn parts(mut shown: Value) -> (Value, i64) {
    let start = shown["timing"]["start-time-delta"].take();
    (shown, start.as_i64().expect("told"))
}

/// A server that remembers the callbacks as they came.
fn recorder() -> (String, std::sync::mpsc::Receiver<Callback>) {
    let (told, callbacks) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let (address, _) = serve("127.0.0.1:0".parse().expect("an address"), move |callback| {
        let sent = told.lock().expect("nobody panics with it").send(callback.clone());
        // An error means that the story is over.
        drop(sent);
        Reaction::OK
    });
    (format!("http://{address}"), callbacks)
}

fn assert_is_special(callback: &Callback) {
    assert!(callback.head.starts_with("PUT /pop HTTP/1.1\r\n"), "{}", callback.head);
    for header in ["Content-Type: image/png", "X-Empty: ", "X-Tenant: blue", "X-Sequence-Number: 1"]
    {
        assert!(callback.head.contains(&format!("\r\n{header}\r\n")), "{}", callback.head);
    }
    assert_eq!(callback.body, [0, 1, 2, 255]);
}

fn replicas_hold_it() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let (uri, callbacks) = recorder();
    let later = json!({"interval": 3600, "repeat-for": 36_000, "window": "PT2H"});
    let later = document(&format!("{uri}/later"), later, 3).to_string();
    let later = cluster.request(0, "POST", "/timers", &later).location().to_owned();
    let soon = document(&format!("{uri}/pop"), json!({"interval": 3}), 3).to_string();
    cluster.request(0, "POST", "/timers", &soon);
    let (first, start_ms) = parts(shown(&cluster, 0, &later));
    assert_eq!(first["callback"]["http"]["opaque-base64"], "AAEC/w==");
    // Two of three hold the timers alone; one of them makes the pop.
    cluster.kill(0);
    for place in [1, 2] {
        let (here, here_ms) = parts(shown(&cluster, place, &later));
        assert_eq!(here, first);
        assert!((here_ms - start_ms).abs() < 60_000, "{here_ms} and {start_ms}");
    }
    cluster.kill(1);
    cluster.start(0);
    until("the timer to come to the empty node", || {
        (cluster.look(0)?["timers"].as_u64()? > 0).then_some(())
    });
    assert_eq!(parts(shown(&cluster, 0, &later)).0, first);
    let callback = callbacks.recv_timeout(Duration::from_secs(30)).expect("the pop");
    assert_is_special(&callback);
}

fn other_sites_hold_it() {
    let mut cluster = Cluster::with(Setup { sites: true, ..Setup::default() });
    cluster.begin(&[0, 1, 2, 3]);
    let (uri, callbacks) = recorder();
    let later = json!({"interval": 3600, "repeat-for": 36_000, "window": "P100D"});
    let later = document(&format!("{uri}/later"), later, 1).to_string();
    let later = cluster.request(0, "POST", "/timers", &later).location().to_owned();
    let soon = document(&format!("{uri}/pop"), json!({"interval": 8}), 1).to_string();
    let soon = cluster.request(0, "POST", "/timers", &soon).location().to_owned();
    let (first, start_ms) = parts(shown(&cluster, 0, &later));
    for place in [1, 2, 3] {
        let (here, here_ms) = parts(until("a site to hear of a timer", || {
            let answer = cluster.request(place, "GET", &later, "");
            (answer.status == 200).then(|| serde_json::from_str(&answer.body).expect("JSON"))
        }));
        assert_eq!(here, first);
        // The start of a timer with a window may lie far ahead, here up to a hundred days.
        assert!((here_ms - start_ms).abs() < 60_000, "{here_ms} and {start_ms}");
    }
    // Sites tell one timer after the other.
    until("the last site to hear of the other timer", || {
        (cluster.request(3, "GET", &soon, "").status == 200).then_some(())
    });
    [0, 1, 2].iter().for_each(|place| cluster.kill(*place));
    let callback = callbacks.recv_timeout(Duration::from_secs(40)).expect("the pop");
    assert_is_special(&callback);
}

fn the_next_goes_on() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let is_well = Arc::new(AtomicBool::new(false));
    let well = is_well.clone();
    let sink = Sink::start(move |_| if well.load(SeqCst) { 200 } else { 500 });
    let mut document = document(&sink.uri("/pop"), json!({"interval": 1}), 3);
    document["callback"]["http"]["opaque-base64"] = json!("dGV4dA==");
    let location = cluster.request(0, "POST", "/timers", &document.to_string());
    let location = location.location().to_owned();
    let id = u64::from_str_radix(&location["/timers/".len()..][..16], 16).expect("an id");
    let names: Vec<&str> = cluster.names.iter().take(3).map(String::as_str).collect();
    let ranks = placement::replicas(&names, id, 3);
    // The second rank would act after 2 s, the third after 4 s.
    until("twelve attempts", || (sink.pops().len() >= 12).then_some(()));
    let pops = sink.pops();
    let gaps: Vec<_> = pops.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    // One node makes all attempts: two would not keep the pause.
    assert!(gaps.iter().all(|gap| *gap >= Duration::from_millis(495)), "{gaps:?}");
    let age = pops.last().expect("twelve").at - pops[0].at;
    cluster.kill(ranks[0]);
    let (killed, before) = (Instant::now(), sink.pops().len());
    until("another node to go on", || (sink.pops().len() > before).then_some(()));
    let after = killed.elapsed();
    // A quarter of the age, the time to notice the death, and this machine.
    let most = age / 4 + Duration::from_secs(8);
    assert!(after < most, "taken over after {after:?}, at an age of {age:?}");
    until("three more", || (sink.pops().len() >= before + 3).then_some(()));
    cluster.kill(ranks[1]);
    let before = sink.pops().len();
    until("the third node to go on", || (sink.pops().len() > before).then_some(()));
    is_well.store(true, SeqCst);
    let last = ranks[2];
    until("the timer to end", || {
        (cluster.request(last, "GET", &location, "").status == 404).then_some(())
    });
    let pops = sink.pops();
    let gaps: Vec<_> = pops.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    assert!(gaps.iter().all(|gap| *gap >= Duration::from_millis(495)), "{gaps:?}");
    assert!(pops.iter().all(|pop| pop.sequence == 1), "one pop");
    assert_eq!(pops.iter().filter(|pop| pop.status == 200).count(), 1);
}

fn gone_on_all_nodes() {
    let cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::start(|_| 410);
    let mut document = document(&sink.uri("/pop"), json!({"interval": 1, "repeat-for": 3600}), 3);
    document["callback"]["http"]["opaque-base64"] = json!("dGV4dA==");
    let location = cluster.request(1, "POST", "/timers", &document.to_string());
    let location = location.location().to_owned();
    for place in [0, 1, 2] {
        until("the timer to end", || {
            (cluster.request(place, "GET", &location, "").status == 404).then_some(())
        });
    }
    // Later pops of the second and the third rank would come within 6 s.
    thread::sleep(Duration::from_secs(7));
    assert_eq!(sink.pops().len(), 1);
}

fn an_original_keeps_it_out() {
    const OURS: usize = 0;
    let (cluster, original) = mixed();
    let uri = "http://127.0.0.1:9/";
    let plain = json!({"uri": uri, "opaque": "x"});
    let at = "2090-01-01T00:00:00Z";
    let with = |timing: Value, http: Value, more: Value| {
        let mut callback = json!({"http": plain});
        let members = http.as_object().expect("an object").clone();
        callback["http"].as_object_mut().expect("an object").extend(members);
        let members = more.as_object().expect("an object").clone();
        callback.as_object_mut().expect("an object").extend(members);
        json!({"timing": timing, "callback": callback}).to_string()
    };
    let hourly = || json!({"interval": 3600});
    let refused = [
        with(json!({"at": at}), json!({}), json!({})),
        with(json!({"interval": 3600, "window": 5}), json!({}), json!({})),
        with(hourly(), json!({"method": "PUT"}), json!({})),
        with(hourly(), json!({"content-type": "a/b"}), json!({})),
        with(hourly(), json!({"headers": {"a": "b"}}), json!({})),
        with(hourly(), json!({}), json!({"retry": {}})),
        with(hourly(), json!({}), json!({"timeout": 5})),
        with(json!({"cron": "0 3 * * *"}), json!({}), json!({})),
        with(hourly(), json!({}), json!({"on-success": uri})),
        with(hourly(), json!({}), json!({})).replace("\"opaque\":\"x\"", "\"opaque-base64\":\"\""),
    ];
    let known = cluster.request(OURS, "POST", "/timers", &with(hourly(), json!({}), json!({})));
    let known = known.location().to_owned();
    original.forget();
    for document in &refused {
        for (method, path) in [("POST", "/timers"), ("PUT", known.as_str())] {
            let answer = cluster.request(OURS, method, path, document);
            assert_eq!(answer.status, 409, "{document}: {answer:?}");
            let reason = answer.header("Reason").expect("told");
            assert!(reason.starts_with("a node of the original service is a member"), "{reason}");
        }
    }
    // Names and keys are kept with a timer, and an original has no place for them.
    let plain = with(hourly(), json!({}), json!({}));
    let named = cluster.request(OURS, "PUT", "/timers/by-name/n", &plain);
    let (address, key) = (cluster.address(OURS), "Idempotency-Key: k\r\n");
    let keyed = request_with(address, "POST", "/timers", key, &plain).expect("an answer");
    assert_eq!((named.status, keyed.status), (409, 409), "{named:?} {keyed:?}");
    assert_eq!(original.messages("PUT").len(), 0, "nothing of them was told");
    assert_eq!(shown(&cluster, OURS, &known)["timing"]["interval"], 3600, "it stays as it was");
    // Text is only another way to write seconds, which an original understands.
    let timing = json!({"interval": "PT1H", "repeat-for": "P1D"});
    let answer = cluster.request(OURS, "POST", "/timers", &with(timing, json!({}), json!({})));
    assert_eq!(answer.status, 200, "{answer:?}");
    let told = original.wait_for("PUT", 1, super::harness::PATIENCE);
    let timing = &told[0].body["timing"];
    assert_eq!((&timing["interval"], &timing["repeat-for"]), (&json!(3_600), &json!(86_400)));
    // Without the original they are taken.
    cluster.reload(&[OURS], &Roles::staying(&[OURS]));
    for document in &refused {
        until("the node to be alone", || {
            (cluster.request(OURS, "POST", "/timers", document).status == 200).then_some(())
        });
    }
}
