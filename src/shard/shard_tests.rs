//! What a shard does by the second, and what it tells of itself.

use super::effects::{Answer, Request};
use super::harness_tests::{Cluster, START_MS, content, definition, target};
use super::*;
use crate::timer::definition::Definition;

#[test]
fn a_shard_is_swept_once_a_second() {
    let mut cluster = Cluster::new(1, true);
    for (ms, swept_ms) in
        [(1, 0), (999, 0), (1_000, 1_000), (1_999, 1_000), (2_003, 2_003), (3_002, 2_003)]
    {
        cluster.now_ms = START_MS + ms;
        cluster.tick(0);
        assert_eq!(cluster.shard(0).turns.swept_at, Tick(START_MS + swept_ms), "{ms}");
    }
}

/// The gauge stays for as long as other nodes believe in the lack of room, and as long again.
#[test]
fn a_core_is_full_for_a_while_after_it_had_no_room() {
    let mut cluster = Cluster::new(1, true);
    assert_eq!(cluster.shard(0).counters().is_full, 0);
    cluster.shard(0).full_at = Some(Tick(START_MS));
    for (ms, is_full) in [(1, 1), (2 * FULL_MS - 1, 1), (2 * FULL_MS, 0)] {
        cluster.now_ms = START_MS + ms;
        cluster.tick(0);
        assert_eq!(cluster.shard(0).counters().is_full, is_full, "{ms}");
    }
}

#[test]
fn callback_hosts_are_counted_as_long_as_timers_name_them() {
    let mut cluster = Cluster::new(1, true);
    let content = content();
    let ids = ["a:80", "b:80", "a:80"].map(|authority| {
        let definition = Definition { authority, ..definition((100, 100), 1, &content) };
        match cluster.ask(0, Request::Create(definition)) {
            Answer::Done { id, .. } => id,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!((cluster.shard(0).hosts_known(), cluster.shard(0).lanes()), (2, 0));
    for (id, left) in ids.into_iter().zip([2, 1, 0]) {
        cluster.ask(0, Request::Delete(target(id, 1)));
        assert_eq!(cluster.shard(0).hosts_known(), left);
    }
}
