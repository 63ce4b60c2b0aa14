//! Backups of a node that runs, and starts on them.

use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use kit::children::open_files;
use kit::client::request;
use kit::mounts::Mount;
use kit::runner::Story;
use kit::until::{PATIENCE, until};

use super::full_disk::bulk;
use super::harness::{Node, PATIENT, back_up, body};
use super::restarts::{create_some, look};

pub const STORIES: &[Story] = &[
    ("a_backup_right_after_a_start_has_what_was_read", after_start),
    ("a_backup_has_all_that_was_answered_before", while_it_runs),
    ("a_backup_is_made_beside_a_flood_of_requests", beside_a_flood),
    ("a_backup_is_made_while_files_are_short", with_few_files),
    ("a_backup_to_a_disk_that_fails_says_so", to_a_failing_disk),
    ("a_backup_to_a_disk_that_does_not_answer_holds_up_no_write", to_a_stalled_disk),
];

/// Ends the node and starts it on a backup.
fn restore(node: &mut Node, backup: &Path) {
    node.kill();
    node.data = backup.to_owned();
    node.start();
    assert_eq!(node.metric("chronos_journal_damaged"), Some(0), "{}", node.log());
}

/// Shards that have written nothing yet are in the backup, too.
fn after_start() {
    for shards in [1, 2] {
        let mut node = Node::alone();
        node.shards = shards;
        node.start();
        let paths = create_some(&node, 30);
        node.kill();
        node.start();
        let more = create_some(&node, 1);
        let backup = node.folder().join("backup");
        let (status, said) = node.back_up(&backup);
        assert!(status.success(), "{said}");
        restore(&mut node, &backup);
        look(&node, &paths, &[]);
        look(&node, &more, &[]);
    }
}

fn while_it_runs() {
    let mut node = Node::alone();
    node.start();
    let paths = create_some(&node, 30);
    assert_eq!(node.request("DELETE", &paths[7], "").status, 200);
    let backup = node.folder().join("backup");
    let (status, said) = node.back_up(&backup);
    assert!(status.success(), "{said}");
    let (status, said) = node.back_up(&backup);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("exists and is not empty"), "{said}");
    // What happens later changes no file of the backup.
    create_some(&node, 30);
    assert_eq!(node.request("DELETE", &paths[8], "").status, 200);
    // It may be read by a node with other cores.
    node.shards = 3;
    restore(&mut node, &backup);
    look(&node, &paths, &[7]);
}

/// Ends what goes on beside a test, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn beside_a_flood() {
    let mut node = Node::alone();
    node.shards = 2;
    node.start();
    let paths = create_some(&node, 30);
    let backup = node.folder().join("backup");
    let is_over = AtomicBool::new(false);
    let text = body("http://127.0.0.1:9/x", 3_600_000, 1, "flood", 1);
    let address = node.address;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    let answer = request(address, "POST", "/timers", &text).expect("it runs");
                    assert_eq!(answer.status, 200, "{answer:?}");
                }
            });
        }
        let _over = Over(&is_over);
        for turn in 0..3 {
            let more = create_some(&node, 5);
            let backup = backup.with_extension(turn.to_string());
            let (status, said) = node.back_up(&backup);
            assert!(status.success(), "{said}");
            look(&node, &more, &[]);
        }
    });
    restore(&mut node, &backup.with_extension("0"));
    look(&node, &paths, &[]);
}

/// Connections to all listeners of a node that may open few files leave those that its files take:
/// a backup by links, one to another file system, and a segment for what is written meanwhile.
fn with_few_files() {
    let mount = Mount::ext4(900);
    let mut node = Node::alone();
    node.starter = ["sh", "-c", "ulimit -n 96; exec \"$0\" \"$@\""].map(str::to_owned).to_vec();
    node.start();
    let paths = create_some(&node, 30);
    let flood = |address| (0..200).map(move |_| TcpStream::connect(address).expect("it listens"));
    let held: Vec<_> = flood(node.address).chain(flood(node.admin())).collect();
    // Of a crowd that comes at once the node takes more for a moment, and closes them.
    until("files to be free", PATIENCE, || (open_files(node.pid()) < 80).then_some(()));
    let linked = node.folder().join("backup");
    for to in [&linked, &mount.path.join("backup")] {
        let (status, said) = node.back_up(to);
        assert!(status.success(), "{said}\n{}", node.log());
    }
    drop(held);
    let more = create_some(&node, 1);
    for from in [&mount.path.join("backup"), &linked] {
        restore(&mut node, from);
        look(&node, &paths, &[]);
        assert_eq!(node.request("GET", &more[0], "").status, 404, "it was made later");
    }
    node.kill();
}

fn to_a_failing_disk() {
    let mount = Mount::ext4(64);
    let mut node = Node::alone();
    node.start();
    let paths = create_some(&node, 30);
    mount.cut_power();
    let (status, said) = node.back_up(&mount.path.join("backup"));
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("backup"), "{said}");
    // The node goes on, and another disk takes one.
    let more = create_some(&node, 1);
    let backup = node.folder().join("backup");
    let (status, said) = node.back_up(&backup);
    assert!(status.success(), "{said}");
    restore(&mut node, &backup);
    look(&node, &paths, &[]);
    look(&node, &more, &[]);
}

/// More than the segments that are there: the one that is filled, and those made ahead.
const SEGMENTS: usize = 4;

fn to_a_stalled_disk() {
    let mount = Mount::ext4(900);
    let mut node = Node::alone();
    node.lines = PATIENT.to_owned();
    node.start();
    let paths = create_some(&node, 30);
    let frozen = mount.freeze();
    let admin = node.admin();
    let backup = mount.path.join("backup");
    let made = thread::spawn(move || back_up(admin, &backup));
    let large = body("http://127.0.0.1:9/x", 3_600_000, 1, &"x".repeat(60_000), 1);
    let before = node.segments(0).len();
    while node.segments(0).len() < before + SEGMENTS {
        let told = bulk(&node, &large, 200);
        assert!(told.iter().all(|result| result["location"].is_string()), "{told:?}");
    }
    if made.is_finished() {
        panic!("it does not wait for the disk: {:?}", made.join());
    }
    let (status, said) = node.back_up(&node.folder().join("other"));
    assert!(!status.success() && said.contains("another backup"), "{said}");
    drop(frozen);
    let (status, said) = made.join().expect("no panic");
    assert!(status.success(), "{said}");
    restore(&mut node, &mount.path.join("backup"));
    look(&node, &paths, &[]);
    node.kill();
}
