//! Backups of a node that runs, and starts on them.

use std::path::Path;

use kit::runner::Story;

use super::harness::Node;
use super::restarts::{create_some, look};

pub const STORIES: &[Story] = &[
    ("a_backup_right_after_a_start_has_what_was_read", after_start),
    ("a_backup_has_all_that_was_answered_before", while_it_runs),
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
