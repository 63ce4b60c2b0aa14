//! Disks that are full, fail, stall and lose power. Each story makes a file system of its own,
//! which takes rights that not every machine gives.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use kit::client::{Answer, request};
use kit::mounts::Mount;
use kit::runner::Story;
use kit::until::{PATIENCE, until};

use super::client::Client;
use super::harness::{Node, body, turns};
use super::judge::Outage;
use super::kills::{await_judgement, await_load};
use super::load::Load;
use super::sink::Sink;

pub const STORIES: &[Story] = &[
    ("power_loss_under_load", power_loss),
    ("a_full_disk_refuses_writes_and_goes_on_when_there_is_room", full),
    ("a_disk_that_stalls_refuses_writes_and_nothing_else", stalled),
    ("a_directory_in_memory_works", in_memory),
    ("nothing_is_acknowledged_while_the_data_directory_is_away", away),
];

/// Losses of power in the gate.
const TURNS: usize = 2;
const CLIENTS: usize = 4;

fn power_loss() {
    let mut mount = Mount::ext4(1_200);
    let sink = Sink::start();
    let mut node = Node::alone();
    node.data = mount.path.join("data");
    node.start();
    let load = Load::start(&[node.address], &sink, CLIENTS, 1);
    let mut outages = Vec::new();
    for _ in 0..turns(TURNS) {
        await_load(&load);
        let ended = Instant::now();
        mount.cut_power();
        // A write fails, and what the disk has of it is not known.
        let status = node.await_end();
        let said = node.log();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains("writing the journal") && said.contains("dmesg"), "{said}");
        mount.come_back();
        let started = Instant::now();
        node.start();
        outages.push(Outage { ended, started, served: Instant::now() });
    }
    await_load(&load);
    await_judgement("power loss", &load.end(), &sink, &outages, Duration::from_secs(1));
    assert_eq!(node.metric("chronos_journal_damaged"), Some(0), "{}", node.log());
    node.kill();
}

/// Opaque data that fills a disk soon.
fn large(number: usize) -> String {
    format!("{number}-{}", "x".repeat(60_000))
}

/// Panics unless a write was refused with a reason, and not for ever.
fn assert_refused(status: u16, reason: Option<&str>) {
    assert_eq!(status, 503);
    assert!(reason.is_some_and(|reason| reason.contains("data directory")), "Reason: {reason:?}");
}

fn full() {
    let mount = Mount::tmpfs(280);
    let sink = Sink::start();
    let filler = mount.path.join("filler");
    fs::write(&filler, vec![1; 70 << 20]).expect("room");
    let mut node = Node::alone();
    node.data = mount.path.join("data");
    node.start();
    node.create(&body(&sink.uri("/repeats"), 500, 1_000, "x", 1));
    let mut client = Client::new(node.address);
    let mut paths = Vec::new();
    let reason = loop {
        let text = body("http://127.0.0.1:9/x", 3_600_000, 1, &large(paths.len()), 1);
        let answer = client.request("POST", "/timers", &text).expect("it runs");
        if answer.status == 200 {
            paths.push(answer.header("Location").expect("an id").to_owned());
            assert!(paths.len() < 6_000, "the disk is full by now");
            continue;
        }
        break (answer.status, answer.header("Reason").map(str::to_owned));
    };
    assert_refused(reason.0, reason.1.as_deref());
    let look = |paths: &[String]| {
        for (number, path) in paths.iter().enumerate() {
            let answer: Answer = node.request("GET", path, "");
            assert!(answer.status == 200 && answer.body.contains(&format!("\"{number}-x")));
        }
    };
    look(&paths);
    let before = sink.pops().len();
    until("pops meanwhile", PATIENCE, || (sink.pops().len() > before + 3).then_some(()));
    assert_eq!(node.metric("chronos_journal_full"), Some(1));
    node.await_log("Free some room on that disk");
    assert_refused_delete(&node, &paths[0]);
    fs::remove_file(&filler).expect("it is there");
    until("writes to be taken again", PATIENCE, || {
        let text = body("http://127.0.0.1:9/x", 3_600_000, 1, &large(paths.len()), 1);
        let answer = node.request("POST", "/timers", &text);
        (answer.status == 200).then(|| paths.push(answer.header("Location").expect("").to_owned()))
    });
    assert_eq!(node.metric("chronos_journal_full"), Some(0));
    node.kill();
    let before = sink.pops().len();
    node.start();
    for (number, path) in paths.iter().enumerate() {
        let answer = node.request("GET", path, "");
        assert!(answer.status == 200 && answer.body.contains(&format!("\"{number}-x")));
    }
    until("pops go on", PATIENCE, || (sink.pops().len() > before).then_some(()));
    let sequences = sink.sequences("/repeats");
    assert!(sequences.is_sorted(), "{sequences:?}");
    println!("a full disk: {} timers of 60 kB fit", paths.len());
    node.kill();
}

fn assert_refused_delete(node: &Node, path: &str) {
    let answer = node.request("DELETE", path, "");
    assert_refused(answer.status, answer.header("Reason"));
    assert_eq!(node.request("GET", path, "").status, 200, "it was refused");
}

fn stalled() {
    let mount = Mount::ext4(500);
    let sink = Sink::start();
    let mut node = Node::alone();
    node.data = mount.path.join("data");
    node.lines = "[journal]\nstall_ms = 1000\n".to_owned();
    node.start();
    let kept = node.create(&body("http://127.0.0.1:9/x", 3_600_000, 1, "kept", 1));
    node.create(&body(&sink.uri("/repeats"), 500, 1_000, "x", 1));
    // To freeze takes a while, and a write that a pop began meanwhile waits from then on.
    let begun = Instant::now();
    let frozen = mount.freeze();
    let text = body("http://127.0.0.1:9/x", 3_600_000, 1, "stalled", 1);
    // A write waits, and is refused when the disk has not answered for a second.
    let mut client = Client::new(node.address);
    let answer = client.request("POST", "/timers", &text).expect("it runs");
    assert_refused(answer.status, answer.header("Reason"));
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    node.await_metric("chronos_journal_stalled", |value| value == 1);
    assert_refused_delete(&node, &kept);
    let before = sink.pops().len();
    until("pops meanwhile", PATIENCE, || (sink.pops().len() > before + 3).then_some(()));
    assert_eq!(node.request("GET", &kept, "").status, 200);
    drop(frozen);
    node.await_metric("chronos_journal_stalled", |value| value == 0);
    let after = until("writes to be taken again", PATIENCE, || {
        let answer = client.request("POST", "/timers", &text).expect("it runs");
        (answer.status == 200).then(|| answer.header("Location").expect("an id").to_owned())
    });
    node.kill();
    node.start();
    for path in [&kept, &after] {
        assert_eq!(node.request("GET", path, "").status, 200, "{path}");
    }
    let sequences = sink.sequences("/repeats");
    assert!(sequences.is_sorted(), "{sequences:?}");
    node.kill();
}

/// Whatever is acknowledged after the node has said that its directory is gone, and after it is
/// back, is there after a restart.
fn away() {
    let mut node = Node::alone();
    node.start();
    let sink = Sink::start();
    let before = node.create(&body("http://127.0.0.1:9/x", 3_600_000, 1, "before", 1));
    node.create(&body(&sink.uri("/repeats"), 500, 1_000, "x", 1));
    let elsewhere = node.folder().join("elsewhere");
    fs::rename(&node.data, &elsewhere).expect("on one disk");
    node.await_metric("chronos_journal_away", |value| value == 1);
    let text = body("http://127.0.0.1:9/x", 3_600_000, 1, "away", 1);
    for _ in 0..3 {
        let answer = node.request("POST", "/timers", &text);
        assert_refused(answer.status, answer.header("Reason"));
    }
    assert_refused_delete(&node, &before);
    let ready = request(node.admin(), "GET", "/readyz", "").expect("an answer");
    assert_eq!((ready.status, ready.body.contains("data directory")), (503, true));
    let alarms = request(node.admin(), "GET", "/alarms", "").expect("an answer").body;
    assert!(alarms.contains("journal-away"), "{alarms}");
    let pops = sink.pops().len();
    until("pops meanwhile", PATIENCE, || (sink.pops().len() > pops + 1).then_some(()));
    // The directory below a mount is another one.
    fs::create_dir(&node.data).expect("made");
    assert_refused(node.request("POST", "/timers", &text).status, Some("data directory"));
    fs::remove_dir(&node.data).expect("nothing was put into it");
    fs::rename(&elsewhere, &node.data).expect("back");
    node.await_metric("chronos_journal_away", |value| value == 0);
    let after = until("writes to be taken again", PATIENCE, || {
        let answer = node.request("POST", "/timers", &text);
        (answer.status == 200).then(|| answer.header("Location").expect("an id").to_owned())
    });
    node.kill();
    node.start();
    for path in [&before, &after] {
        assert_eq!(node.request("GET", path, "").status, 200, "{path}");
    }
    node.kill();
}

fn in_memory() {
    if File::open("/dev/shm").is_err() {
        kit::runner::cannot_run("not run on this machine: there is no /dev/shm");
    }
    let folder = tempfile::Builder::new().prefix("chronos-journal-").tempdir_in("/dev/shm");
    let folder = folder.expect("room");
    let mut node = Node::alone();
    node.data = folder.path().join("data");
    node.start();
    let path = node.create(&body("http://127.0.0.1:9/x", 3_600_000, 1, "x", 1));
    node.kill();
    node.start();
    assert_eq!(node.request("GET", &path, "").status, 200);
    node.stop();
}
