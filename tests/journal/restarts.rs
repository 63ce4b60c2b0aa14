//! Starts on a data directory: with other cores, on a copy, on what is not the node's, on what it
//! may not use.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use kit::children::{Tied, command};
use kit::mounts::Mount;
use kit::runner::{Story, cannot_run};
use kit::until::{PATIENCE, until};

use super::harness::{Node, body};
use super::sink::Sink;

pub const STORIES: &[Story] = &[
    ("timers_move_to_other_numbers_of_cores", other_cores),
    ("a_copy_of_the_directory_holds_all_timers", copies),
    ("a_directory_in_use_is_refused", twice),
    ("another_nodes_directory_is_refused", another_name),
    ("what_is_no_directory_is_refused", no_directory),
    ("a_read_only_directory_is_refused", read_only),
    ("a_directory_of_another_user_is_refused", no_permission),
    ("a_lost_identity_is_told_and_can_be_restored", lost_identity),
    ("a_directory_that_is_removed_meanwhile_harms_no_pop", removed_meanwhile),
    ("mode_off_says_that_a_journal_is_not_read", off_meanwhile),
];

/// Timers of a story.
const TIMERS: usize = 120;
/// No timer of these stories comes due unless it is to.
const LATER_MS: u64 = 3_600_000;

/// Creates timers that come due later, each with its own opaque data. Returns their paths.
pub fn create_some(node: &Node, count: usize) -> Vec<String> {
    let create = |number: usize| {
        node.create(&body("http://127.0.0.1:9/x", LATER_MS, 1, &format!("opaque-{number}"), 1))
    };
    (0..count).map(create).collect()
}

/// Looks at all these timers; those whose number is in `deleted` must be gone.
pub fn look(node: &Node, paths: &[String], deleted: &[usize]) {
    for (number, path) in paths.iter().enumerate() {
        let answer = node.request("GET", path, "");
        if deleted.contains(&number) {
            assert_eq!(answer.status, 404, "{path} was deleted: {answer:?}");
        } else {
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            let opaque = format!("\"opaque-{number}\"");
            assert!(answer.body.contains(&opaque), "{path}: {}", answer.body);
        }
    }
}

fn other_cores() {
    let sink = Sink::start();
    let mut node = Node::alone();
    node.start();
    let paths = create_some(&node, TIMERS);
    for number in 0..20 {
        node.create(&body(&sink.uri(&format!("/soon/{number}")), 5_000, 1, "soon", 1));
    }
    let mut deleted = Vec::new();
    for (turn, shards) in [3, 2, 2, 4, 1].into_iter().enumerate() {
        if turn % 2 == 0 {
            node.stop()
        } else {
            node.kill()
        }
        node.shards = shards;
        node.start();
        look(&node, &paths, &deleted);
        for (number, path) in paths.iter().enumerate().skip(turn * 10).take(5) {
            assert_eq!(node.request("DELETE", path, "").status, 200);
            deleted.push(number);
        }
        look(&node, &paths, &deleted);
    }
    for number in 0..20 {
        let path = format!("/soon/{number}");
        until("a pop", PATIENCE, || (!sink.sequences(&path).is_empty()).then_some(()));
    }
    node.kill();
    node.start();
    look(&node, &paths, &deleted);
    assert_eq!(node.metric("chronos_journal_damaged"), Some(0), "{}", node.log());
    let repeated = sink.pops().len() - 20;
    // Only a pop under way at a kill may come twice, and none is at most of them.
    assert!(repeated <= 20, "{repeated} pops came again");
    until("the old layouts to be removed", PATIENCE, || {
        let entries = fs::read_dir(&node.data).expect("it is there");
        let folders = entries.filter(|entry| entry.as_ref().expect("an entry").path().is_dir());
        (folders.count() == 1).then_some(())
    });
}

/// Copies a directory.
pub fn copy(from: &Path, to: &Path) {
    let done = command("cp").args(["-a", "--sparse=always"]).args([from, to]).output_tied();
    assert!(done.expect("cp runs").status.success());
}

fn copies() {
    let mut node = Node::alone();
    node.start();
    let paths = create_some(&node, TIMERS);
    node.kill();
    let copied = node.folder().join("copied");
    copy(&node.data, &copied);
    let linked = node.folder().join("linked");
    std::os::unix::fs::symlink(&copied, &linked).expect("a link in the story's folder");
    node.data = linked;
    node.start();
    look(&node, &paths, &[]);
    node.stop();
    let told = format!("kept in {}: {TIMERS} timers", node.data.display());
    assert!(node.log().contains(&told), "{}", node.log());
}

fn twice() {
    let mut node = Node::alone();
    node.start();
    let mut second = Node::alone();
    second.data = node.data.clone();
    let (status, said) = second.start_in_vain();
    assert_eq!(status.code(), Some(1), "{said}");
    let wanted = format!("in use by process {}", node.pid());
    assert!(said.contains(&wanted) && said.contains("--data-dir"), "{said}");
    assert_eq!(node.request("GET", "/ping", "").status, 200);
    let paths = create_some(&node, 3);
    look(&node, &paths, &[]);
}

fn another_name() {
    let mut node = Node::alone();
    node.start();
    node.stop();
    let mut other = Node::alone();
    other.data = node.data.clone();
    let (status, said) = other.start_in_vain();
    assert_eq!(status.code(), Some(1), "{said}");
    let wanted = format!("is the data directory of node {}", node.address);
    assert!(said.contains(&wanted) && said.contains(&other.address.to_string()), "{said}");
    node.start();
}

fn no_directory() {
    let mut node = Node::alone();
    fs::write(&node.data, "a file").expect("a file in the story's folder");
    let (status, said) = node.start_in_vain();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("is not a directory"), "{said}");
    node.data = node.data.join("below");
    let (status, said) = node.start_in_vain();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("not a directory"), "{said}");
}

fn read_only() {
    let mount = Mount::tmpfs(400);
    let mut node = Node::alone();
    node.data = mount.path.join("data");
    node.start();
    node.stop();
    mount.remount_read_only();
    let (status, said) = node.start_in_vain();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("mounted read-only"), "{said}");
}

fn no_permission() {
    let mut node = Node::alone();
    node.start();
    node.stop();
    fs::set_permissions(node.folder(), fs::Permissions::from_mode(0o755)).expect("its own");
    fs::set_permissions(&node.data, fs::Permissions::from_mode(0o700)).expect("its own");
    let binary = env!("CARGO_BIN_EXE_chronos");
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let nobody = nobody.map(str::to_owned).to_vec();
    let tried = command(&nobody[0]).args(&nobody[1..]).args([binary, "--version"]).output_tied();
    if !tried.is_ok_and(|done| done.status.success()) {
        cannot_run("not run on this machine: the binary cannot be started as another user");
    }
    node.starter = nobody;
    node.starter.extend(["--pdeathsig", "KILL"].map(str::to_owned));
    let (status, said) = node.start_in_vain();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("Permission denied") && said.contains("owner"), "{said}");
}

fn lost_identity() {
    let mut node = Node::alone();
    node.start();
    let paths = create_some(&node, 10);
    node.stop();
    let file = node.data.join("node.toml");
    for damage in ["", "node = 7", "\u{0}\u{0}\u{0}\u{0}"] {
        if damage.is_empty() {
            fs::remove_file(&file).expect("it is there");
        } else {
            fs::write(&file, damage).expect("a file of the story");
        }
        let (status, said) = node.start_in_vain();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains("is damaged") && said.contains("make this its text"), "{said}");
        // The operator does as told.
        let text = said.split("make this its text:").nth(1).expect("told");
        let lines = text.lines().map(|line| line.trim_start_matches("error: "));
        let lines: Vec<&str> = lines.filter(|line| line.contains(" = ")).collect();
        fs::write(&file, lines.join("\n")).expect("a file of the story");
        node.start();
        look(&node, &paths, &[]);
        node.stop();
    }
}

fn removed_meanwhile() {
    let sink = Sink::start();
    let mut node = Node::alone();
    node.start();
    for number in 0..10 {
        node.create(&body(&sink.uri(&format!("/{number}")), 2_000, 1, "x", 1));
    }
    fs::remove_dir_all(&node.data).expect("removed by mistake");
    for number in 0..10 {
        let path = format!("/{number}");
        until("a pop", PATIENCE, || (!sink.sequences(&path).is_empty()).then_some(()));
    }
    thread::sleep(Duration::from_millis(100));
    assert_eq!(node.request("GET", "/ping", "").status, 200);
}

fn off_meanwhile() {
    let mut node = Node::alone();
    node.start();
    let paths = create_some(&node, 3);
    node.stop();
    node.lines = "[journal]\nmode = \"off\"\n".to_owned();
    node.start();
    node.await_log("has a journal, and mode off does not read it");
    look(&node, &paths, &[0, 1, 2]);
    node.stop();
    node.lines.clear();
    node.start();
    look(&node, &paths, &[]);
}
