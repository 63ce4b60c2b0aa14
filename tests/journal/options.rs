//! What timers have beyond the original's document (docs/api.md, "Beyond the original") outlives
//! the process, and so do pops that wait for their next attempt.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kit::callbacks::{Callback, Reaction, serve};
use kit::mounts::Mount;
use kit::runner::Story;
use kit::until::{PATIENCE, until};
use serde_json::{Value, json};

use super::harness::{Node, PATIENT};

pub const STORIES: &[Story] = &[
    ("what_the_original_does_not_have_survives_a_kill", survives),
    ("a_pop_in_back_off_is_tried_again_after_a_kill", tried_again),
    ("a_policy_is_kept_while_the_disk_does_not_answer", on_a_stalled_disk),
    ("a_timer_of_the_calendar_goes_on_after_a_kill", calendar_goes_on),
];

/// A callback server that fails until it is told to be well.
struct Server {
    uri: String,
    is_well: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Callback>>>,
}

impl Server {
    fn start() -> Server {
        let (is_well, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (well, all) = (is_well.clone(), seen.clone());
        let (address, _) = serve("127.0.0.1:0".parse().expect("an address"), move |callback| {
            let callback: Callback = callback.clone();
            all.lock().expect("nobody panics with it").push(callback);
            Reaction::Status(if well.load(SeqCst) { 200 } else { 500 })
        });
        Server { uri: format!("http://{address}"), is_well, seen }
    }

    fn seen(&self, path: &str) -> Vec<Callback> {
        let seen = self.seen.lock().expect("nobody panics with it");
        seen.iter().filter(|one| one.path == path).cloned().collect()
    }

    fn await_callbacks(&self, path: &str, count: usize) -> Vec<Callback> {
        let what = format!("{count} callbacks of {path}");
        until(&what, PATIENCE, || Some(self.seen(path)).filter(|seen| seen.len() >= count))
    }
}

fn shown(node: &Node, path: &str) -> Value {
    let answer = node.request("GET", path, "");
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    serde_json::from_str(&answer.body).expect("JSON")
}

/// A timer with all that the original does not have.
fn document(server: &Server, path: &str, timing: Value) -> Value {
    let uri = format!("{}{path}", server.uri);
    json!({
        "timing": timing,
        "callback": {
            "http": {
                "uri": uri,
                "opaque-base64": "AAEC/w==",
                "method": "PUT",
                "content-type": "image/png",
                "headers": {"X-Tenant": "blue"},
            },
            "retry": {"max-attempts": 5, "initial": 0.2, "max": 0.4, "jitter": 0},
            "timeout": 7.5,
        },
    })
}

fn survives() {
    let server = Server::start();
    server.is_well.store(true, SeqCst);
    let mut node = Node::alone();
    node.start();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() + 6;
    let at = jiff::Timestamp::from_second(now as i64).expect("a time").to_string();
    let timings = [
        ("/later", json!({"interval": "PT1H", "repeat-for": "P1D", "window": "PT2H"})),
        ("/far", json!({"at": "2090-02-03T04:05:06.789Z"})),
        ("/soon", json!({"at": at})),
    ];
    let made: Vec<_> = timings
        .into_iter()
        .map(|(path, timing)| node.create(&document(&server, path, timing).to_string()))
        .collect();
    let before: Vec<_> = made.iter().map(|path| shown(&node, path)).collect();
    node.kill();
    // Each timer comes to another core, with all that it has.
    node.shards = 3;
    node.start();
    for (path, before) in made.iter().zip(&before).take(2) {
        let mut after = shown(&node, path);
        let start = |shown: &Value| shown["timing"]["start-time-delta"].as_i64().expect("told");
        // The start stays: seconds have passed, not the two hours of the window.
        let passed_ms = start(before) - start(&after);
        assert!((0..600_000).contains(&passed_ms), "{before}, then {after}");
        after["timing"]["start-time-delta"] = before["timing"]["start-time-delta"].clone();
        assert_eq!(*before, after);
    }
    let callback = server.await_callbacks("/soon", 1).remove(0);
    let ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    assert!(ms >= u128::from(now) * 1_000, "not before its time");
    assert!(callback.head.starts_with("PUT /soon HTTP/1.1\r\n"), "{}", callback.head);
    assert_eq!(callback.header("Content-Type"), "image/png");
    assert_eq!(callback.header("X-Tenant"), "blue");
    assert_eq!(callback.body, [0, 1, 2, 255]);
    assert_eq!(node.metric("chronos_journal_damaged"), Some(0), "{}", node.log());
    node.stop();
}

fn await_end(node: &Node, path: &str) {
    let has_ended = || node.request("GET", path, "").status == 404;
    until("the pop to be delivered", PATIENCE, || has_ended().then_some(()));
}

fn tried_again() {
    let server = Server::start();
    let mut node = Node::alone();
    node.start();
    let create = |node: &Node, path: &str, retry: Value| {
        let mut document = document(&server, path, json!({"interval": 0}));
        document["callback"]["retry"] = retry;
        node.create(&document.to_string())
    };
    // The first is between attempts that follow quickly, the second waits for an hour.
    let quick = json!({"max-attempts": 200, "initial": 0.2, "max": 0.2, "jitter": 0});
    let hourly = json!({"max-attempts": 200, "initial": "PT1H", "max": "PT1H", "jitter": 0});
    let timers = [create(&node, "/quick", quick), create(&node, "/hourly", hourly)];
    server.await_callbacks("/quick", 3);
    server.await_callbacks("/hourly", 1);
    node.kill();
    let quick_before = server.seen("/quick").len();
    assert_eq!(server.seen("/hourly").len(), 1);
    std::thread::sleep(Duration::from_millis(300));
    node.start();
    // The node counts and pauses anew.
    server.await_callbacks("/quick", quick_before + 2);
    let hourly = server.await_callbacks("/hourly", 2);
    assert!(hourly.iter().all(|one| one.sequence() == 1), "the same pop");
    assert!(timers.iter().all(|path| node.request("GET", path, "").status == 200));
    server.is_well.store(true, SeqCst);
    await_end(&node, &timers[0]);
    // Again: what was delivered does not come back. A create is answered when all before it is on
    // the disk.
    let last = json!({"interval": 3600});
    node.create(&document(&server, "/last", last).to_string());
    let quick_before = server.seen("/quick").len();
    node.kill();
    node.start();
    let hourly = server.await_callbacks("/hourly", 3);
    await_end(&node, &timers[1]);
    assert_eq!((hourly.len(), server.seen("/quick").len()), (3, quick_before));
    node.stop();
}

/// Attempts and pauses are those of the policy while nothing can be written, none comes twice, and
/// what became of each pop is on the disk when it answers again.
fn on_a_stalled_disk() {
    let mount = Mount::ext4(900);
    let server = Server::start();
    let mut node = Node::alone();
    node.data = mount.path.join("data");
    node.lines = PATIENT.to_owned();
    node.start();
    let create = |path: &str, retry: Value| {
        let mut document = document(&server, path, json!({"interval": 0}));
        document["callback"]["retry"] = retry;
        node.create(&document.to_string())
    };
    let policy = |most: u64| json!({"max-attempts": most, "initial": 0.5, "max": 0.5, "jitter": 0});
    let (lasting, ending) = (create("/lasting", policy(200)), create("/ending", policy(8)));
    server.await_callbacks("/ending", 1);
    let frozen = mount.freeze();
    server.await_callbacks("/ending", 8);
    let letter = ending.replace("/timers/", "/dead-letters/");
    let has_letter = |node: &Node| node.request("GET", &letter, "").status == 200;
    until("the letter", PATIENCE, || has_letter(&node).then_some(()));
    server.is_well.store(true, SeqCst);
    await_end(&node, &lasting);
    drop(frozen);
    for path in ["/lasting", "/ending"] {
        let seen = server.seen(path);
        let attempts: Vec<_> = seen.iter().map(|one| one.header("X-Attempt").to_owned()).collect();
        let wanted: Vec<_> = (1..=seen.len()).map(|attempt| attempt.to_string()).collect();
        assert_eq!(attempts, wanted, "{path}");
        let pauses = seen.windows(2).map(|two| two[1].at - two[0].at);
        let pauses: Vec<_> = pauses.collect();
        assert!(pauses.iter().all(|pause| *pause >= Duration::from_millis(495)), "{pauses:?}");
    }
    let before = ["/lasting", "/ending"].map(|path| server.seen(path).len());
    // Once this is answered, what came before it is on the disk.
    node.create(&document(&server, "/far", json!({"interval": 3_600})).to_string());
    node.kill();
    node.start();
    assert_eq!(node.request("GET", &lasting, "").status, 404, "it was taken");
    assert!(has_letter(&node), "it was given up");
    assert_eq!(["/lasting", "/ending"].map(|path| server.seen(path).len()), before);
    node.kill();
}

/// What came while no process ran is made up for, under the next numbers. A pop that the process
/// could not write down any more comes again.
fn calendar_goes_on() {
    let server = Server::start();
    server.is_well.store(true, SeqCst);
    let mut node = Node::alone();
    node.start();
    let timing = json!({"cron": "* * * * * *", "catch-up-window": "PT10M"});
    let path = node.create(&document(&server, "/tick", timing).to_string());
    let seen = server.await_callbacks("/tick", 3);
    let sequences = |seen: &[Callback]| seen.iter().map(Callback::sequence).collect::<Vec<_>>();
    assert_eq!(sequences(&seen), (1..=seen.len() as u64).collect::<Vec<_>>(), "none is doubled");
    for kills in 1..=2 {
        // A write is answered when all before it is on the disk of its core: some for each core.
        for id in 1..=16 {
            let last = document(&server, "/last", json!({"interval": 3600})).to_string();
            let put = node.request("PUT", &format!("/timers/{id:016x}-1"), &last);
            assert_eq!(put.status, 200, "{put:?}");
        }
        node.kill();
        node.shards = 1 + kills;
        let before = server.seen("/tick").len();
        std::thread::sleep(Duration::from_secs(3));
        node.start();
        let seen = sequences(&server.await_callbacks("/tick", before + 6));
        let mut firsts = seen.clone();
        firsts.dedup();
        assert_eq!(firsts, (1..=firsts.len() as u64).collect::<Vec<_>>(), "{seen:?}");
        assert!(seen.len() - firsts.len() <= kills, "{seen:?}");
    }
    let done = shown(&node, &path)["timing"]["sequence-number"].as_u64();
    assert!(done >= Some(12), "{done:?}");
    assert_eq!(node.request("DELETE", &path, "").status, 200);
    let seen = server.seen("/tick").len();
    node.kill();
    node.start();
    assert_eq!(node.request("GET", &path, "").status, 404);
    std::thread::sleep(Duration::from_millis(1_500));
    // One may have been under way when the timer was deleted.
    assert!(server.seen("/tick").len() <= seen + 1);
    node.stop();
}
