//! A cluster of which one node has a full disk: what the others acknowledge holds there, too, also
//! when the node is killed meanwhile. And a node alone: what is refused, whatever form it has.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use kit::client::{Answer, request_with};
use kit::mounts::Mount;
use kit::runner::Story;
use kit::until::{PATIENCE, until};
use serde_json::Value;

use super::harness::{Node, PATIENT, body};
use super::sink::Sink;

pub const STORIES: &[Story] = &[
    ("a_full_disk_voids_nothing_that_others_acknowledge", full_disk_of_one),
    ("a_full_disk_refuses_each_form_of_a_write_and_nothing_else", each_form),
    ("a_disk_that_stalls_refuses_each_form_of_a_write_and_nothing_else", on_a_stalled_disk),
];

/// Room for the four segments that the documents ask for, and a little. A start begins a segment of
/// its own, so a node that is started twice needs room for more than one.
const ROOM_MIB: u64 = 270;
const TIMERS: usize = 40;
/// When the timers are due. Until then they are changed, and the node with the full disk is killed.
const DUE: Duration = Duration::from_secs(40);
/// A node asks before it pops for as long as this, and the last rank waits as long.
const LATE: Duration = Duration::from_secs(12);
/// Tellings of the story on a machine that is too slow.
const TELLINGS: usize = 5;

/// What becomes of the timer of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Deleted,
    Replaced,
    Paused,
    LeftAlone,
}

fn kind(at: usize) -> Kind {
    [Kind::Deleted, Kind::Replaced, Kind::Paused, Kind::LeftAlone][at % 4]
}

fn full_disk_of_one() {
    for _ in 0..TELLINGS {
        if tell() {
            return;
        }
    }
    panic!("the changes took longer than the timers, {TELLINGS} times");
}

/// Tells the story. Returns whether the changes were made before the timers were due.
fn tell() -> bool {
    let mount = Mount::tmpfs(ROOM_MIB);
    let sink = Sink::start();
    let mut nodes = Node::cluster(3);
    nodes[0].data = mount.path.join("data");
    nodes.iter_mut().for_each(Node::spawn);
    nodes.iter_mut().for_each(Node::await_ready);
    nodes[0].await_metric("chronos_peers_alive", |alive| alive == 2);
    let made = Instant::now();
    let due_ms = DUE.as_millis() as u64;
    let paths: Vec<String> = (0..TIMERS)
        .map(|at| {
            let text = body(&sink.uri(&format!("/old/{at}")), due_ms, 1, "x", 2);
            nodes[at % 3].create(&text)
        })
        .collect();
    nodes[0].kill();
    fill(&nodes[0], &mount);
    start_full(&mut nodes[0]);
    for (at, path) in paths.iter().enumerate() {
        let through = &nodes[1 + at / 4 % 2];
        let (method, path, text) = match kind(at) {
            Kind::Deleted => ("DELETE", path.clone(), String::new()),
            Kind::Replaced => {
                ("PUT", path.clone(), body(&sink.uri(&format!("/new/{at}")), 3_600_000, 1, "x", 2))
            }
            Kind::Paused => ("POST", format!("{path}/pause"), String::new()),
            Kind::LeftAlone => continue,
        };
        until("a change to be taken", PATIENCE, || {
            (through.request(method, &path, &text).status == 200).then_some(())
        });
    }
    all_hold(&nodes, &paths);
    nodes[0].kill();
    start_full(&mut nodes[0]);
    if made.elapsed() > DUE - Duration::from_secs(2) {
        return false;
    }
    all_hold(&nodes, &paths);
    thread::sleep((made + DUE + LATE).saturating_duration_since(Instant::now()));
    for at in 0..TIMERS {
        let pops = sink.sequences(&format!("/old/{at}"));
        let wanted: &[u64] = if kind(at) == Kind::LeftAlone { &[1] } else { &[] };
        assert_eq!(pops, wanted, "{at} was {:?}", kind(at));
    }
    fs::remove_file(mount.path.join("filler")).expect("it is there");
    nodes[0].await_metric("chronos_journal_full", |full| full == 0);
    until("a write through it", PATIENCE, || {
        let text = body(&sink.uri("/x"), 3_600_000, 1, "x", 2);
        (nodes[0].request("POST", "/timers", &text).status == 200).then_some(())
    });
    nodes.iter_mut().for_each(Node::kill);
    nodes.iter_mut().for_each(Node::spawn);
    nodes.iter_mut().for_each(Node::await_ready);
    all_hold(&nodes, &paths);
    assert!((0..TIMERS).all(|at| sink.sequences(&format!("/new/{at}")).is_empty()));
    nodes.iter_mut().for_each(Node::kill);
    true
}

/// Leaves a node, which does not run, no room for another segment.
fn fill(node: &Node, mount: &Mount) {
    let segments = node.segments(0);
    let folder = segments[0].parent().expect("a shard's");
    let files = fs::read_dir(folder).expect("a folder").map(|file| file.expect("one").path());
    // A segment that was being made as the node was killed is removed at its next start.
    for made_ahead in files.filter(|file| *file != segments[0]) {
        fs::remove_file(made_ahead).expect("nothing stands in it");
    }
    // All that is left, to the last page. An error means that it is full.
    let _ = fs::write(mount.path.join("filler"), vec![1; (ROOM_MIB as usize) << 20]);
}

/// Starts a node whose disk is full. It is not ready for clients' writes.
fn start_full(node: &mut Node) {
    node.spawn();
    node.await_metric("chronos_journal_full", |full| full == 1);
}

/// Panics unless every node answers soon with what was acknowledged, and none with anything else
/// once it has heard the others.
fn all_hold(nodes: &[Node], paths: &[String]) {
    for node in nodes {
        for (at, path) in paths.iter().enumerate() {
            let is_right = |answer: &Answer| match kind(at) {
                Kind::Deleted => answer.status == 404,
                Kind::Replaced => answer.status == 200 && answer.body.contains("/new/"),
                Kind::Paused => answer.status == 200 && answer.body.contains("\"paused\":true"),
                Kind::LeftAlone => true,
            };
            let answer = until("an answer", PATIENCE, || {
                let answer = node.request("GET", path, "");
                (answer.status != 503).then_some(answer)
            });
            assert!(
                is_right(&answer),
                "{at}, {:?}, through {}: {answer:?}",
                kind(at),
                node.address
            );
        }
    }
}

/// The results of a bulk request.
pub fn bulk(node: &Node, line: &str, count: usize) -> Vec<Value> {
    let body = format!("{line}\n").repeat(count);
    let mut stream = TcpStream::connect(node.address).expect("the node accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let length = body.len();
    let head = format!(
        "POST /timers/bulk HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    let mut sends = stream.try_clone().expect("a socket");
    let sender = thread::spawn(move || sends.write_all(format!("{head}{body}").as_bytes()));
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the node answers");
    sender.join().expect("no panic").expect("the node takes it");
    let lines = answer.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn order(node: &Node, (method, path): (&str, &str), body: &str) -> Answer {
    let headers = "X-Chronos-Order: 1\r\n";
    request_with(node.admin(), method, path, headers, body).expect("an answer")
}

/// Timers of the host, by list and by count.
fn numbers(node: &Node) -> [u64; 2] {
    let json = |path: &str| -> Value {
        serde_json::from_str(&order(node, ("GET", path), "").body).expect("JSON")
    };
    let listed =
        json("/timers?limit=1000&host=127.0.0.1:9")["timers"].as_array().map_or(0, Vec::len);
    let counted = &json("/timers/count")["by-host"]["127.0.0.1:9"];
    [listed as u64, counted.as_u64().expect("a number")]
}

/// Deletes all timers of the host in a job. Returns how many it deleted, and how many it could not.
fn delete_all(node: &Node) -> [u64; 2] {
    let ordered = order(node, ("DELETE", "/timers?host=127.0.0.1:9"), "");
    assert_eq!(ordered.status, 202, "{ordered:?}");
    let path = ordered.header("Location").expect("a job").to_owned();
    let told = until("the job to end", PATIENCE, || {
        let told: Value = serde_json::from_str(&order(node, ("GET", &path), "").body).ok()?;
        (told["state"] == "done").then_some(told)
    });
    ["deleted", "failed"].map(|member| told[member].as_u64().expect("a number"))
}

/// What a node alone has: a timer under a name, one under a key, those of a bulk request.
struct Forms {
    far: String,
    /// The version of the timer under a name.
    tag: String,
    /// The path of the timer under a key.
    keyed: String,
}

const NAMED: (&str, &str) = ("PUT", "/timers/by-name/old");
const FRESH: &str = "/timers/by-name/new";
const KEY: &str = "Idempotency-Key: old\r\n";
const ALL: u64 = TIMERS as u64 + 2;

impl Forms {
    fn make(node: &Node) -> Forms {
        let far = body("http://127.0.0.1:9/far", 3_600_000, 1, "x", 1);
        let (tag, keyed) = (String::new(), String::new());
        let mut forms = Forms { far, tag, keyed };
        let named = forms.ask(node, NAMED, "");
        named.header("ETag").expect("a version").clone_into(&mut forms.tag);
        forms.keyed = forms.ask(node, ("POST", "/timers"), KEY).location().to_owned();
        let lines = bulk(node, &forms.far, TIMERS);
        assert!(lines.iter().all(|line| line["location"].is_string()), "{lines:?}");
        forms
    }

    fn ask(&self, node: &Node, (method, path): (&str, &str), headers: &str) -> Answer {
        request_with(node.address, method, path, headers, &self.far).expect("an answer")
    }

    /// Panics unless every form of a write is refused, and what only reads goes on.
    fn all_are_refused(&self, node: &Node) {
        let met = format!("If-Match: {}\r\n", self.tag);
        let run = format!("{}/run-now", self.keyed);
        for (request, headers) in [
            (NAMED, ""),
            (NAMED, &*met),
            (("PUT", FRESH), "If-None-Match: *\r\n"),
            (("POST", "/timers"), "Idempotency-Key: new\r\n"),
            (("POST", &*run), ""),
        ] {
            let answer = self.ask(node, request, headers);
            let reason = answer.header("Reason").unwrap_or_default();
            let is_refused = answer.status == 503 && reason.contains("data directory");
            assert!(is_refused, "{request:?}: {answer:?}");
        }
        let lines = bulk(node, &self.far, TIMERS);
        let is_refused = |line: &Value| line["status"] == 503;
        assert!(lines.len() == TIMERS && lines.iter().all(is_refused), "{lines:?}");
        assert_eq!(delete_all(node), [0, ALL]);
        assert_eq!(numbers(node), [ALL; 2]);
    }

    /// Panics unless all is as it was, and can be deleted.
    fn nothing_was_done(&self, node: &Node) {
        // A segment to write to is made while the node starts. The key is known: this changes
        // nothing.
        until("a segment to write to", PATIENCE, || {
            (self.ask(node, ("POST", "/timers"), KEY).status != 503).then_some(())
        });
        assert_eq!(numbers(node), [ALL; 2]);
        let read = node.request("GET", NAMED.1, "");
        assert_eq!((read.status, read.header("ETag")), (200, Some(&*self.tag)), "{read:?}");
        assert_eq!(node.request("GET", FRESH, "").status, 404);
        assert_eq!(self.ask(node, ("POST", "/timers"), KEY).location(), self.keyed, "it is known");
        assert_eq!(delete_all(node), [ALL, 0]);
    }
}

/// All forms are there after a kill. On the full disk each is refused, a job tells so, a backup and
/// an order that cannot be kept say so, and nothing is half done.
fn each_form() {
    let mount = Mount::tmpfs(ROOM_MIB);
    let mut node = Node::alone();
    node.data = mount.path.join("data");
    node.start();
    let forms = Forms::make(&node);
    node.kill();
    fill(&node, &mount);
    start_full(&mut node);
    forms.all_are_refused(&node);
    let (status, said) = node.back_up(&mount.path.join("backup"));
    assert!(!status.success() && said.contains("backup"), "{said}");
    let ruled = order(&node, ("PUT", "/destinations/127.0.0.1:9"), r#"{"paused":true}"#);
    assert!(ruled.status == 500 && ruled.body.contains("the order holds"), "{ruled:?}");
    fs::remove_file(mount.path.join("filler")).expect("it is there");
    node.await_metric("chronos_journal_full", |full| full == 0);
    node.kill();
    node.start();
    forms.nothing_was_done(&node);
    node.kill();
}

/// A disk that does not answer is met in the same way. Pops of the calendar go on, each once.
fn on_a_stalled_disk() {
    let mount = Mount::ext4(900);
    let sink = Sink::start();
    let mut node = Node::alone();
    node.data = mount.path.join("data");
    node.lines = PATIENT.to_owned();
    node.start();
    let forms = Forms::make(&node);
    let http = format!(r#"{{"http":{{"uri":"{}","opaque":"x"}}}}"#, sink.uri("/cron"));
    node.create(&format!(r#"{{"timing":{{"cron":"* * * * * *"}},"callback":{http}}}"#));
    node.stop();
    node.lines = PATIENT.replace("60", "1");
    node.start();
    // Answered: there is a segment to write to.
    let other = body("http://127.0.0.1:8/x", 3_600_000, 1, "x", 1);
    until("a write", PATIENCE, || {
        (node.request("POST", "/timers", &other).status == 200).then_some(())
    });
    let frozen = mount.freeze();
    // The first write waits, and is refused when the disk has not answered for a second. A pop may
    // have begun a write before.
    assert_eq!(node.request("POST", "/timers", &other).status, 503);
    node.await_metric("chronos_journal_stalled", |stalled| stalled == 1);
    let before = sink.pops().len();
    until("pops meanwhile", PATIENCE, || (sink.pops().len() > before + 2).then_some(()));
    forms.all_are_refused(&node);
    // An order holds at once, and keeps nobody from asking how the node is.
    let ruled = order(&node, ("PUT", "/destinations/127.0.0.1:9"), r#"{"paused":true}"#);
    assert!(ruled.status == 500 && ruled.body.contains("the disk has not answered"), "{ruled:?}");
    assert_eq!(order(&node, ("GET", "/healthz"), "").status, 200);
    let shown = order(&node, ("GET", "/destinations/127.0.0.1:9"), "");
    assert!(shown.body.contains("\"paused\": true"), "{shown:?}");
    drop(frozen);
    node.await_metric("chronos_journal_stalled", |stalled| stalled == 0);
    let numbers = sink.sequences("/cron");
    assert!(numbers.is_sorted_by(|one, next| one < next), "each once: {numbers:?}");
    node.kill();
    // Other cores read what the one has written.
    node.shards = 3;
    node.lines = PATIENT.to_owned();
    node.start();
    forms.nothing_was_done(&node);
    node.kill();
}
