//! Until when a tombstone stays.

use crate::base::ids::TimerId;
use crate::base::time::Tick;
use crate::cluster::detector::Liveness;
use crate::shard::effects::{Answer, Request, Target};
use crate::shard::harness_tests::{Cluster, content, definition, target};
use crate::shard::records::Outline;
use crate::timer::version::StateKey;

/// Whether a tombstone whose time is over is kept, by what is believed of the other node.
#[test]
fn a_tombstone_ends_when_everybody_lives_and_nobody_has_just_come_back() {
    for (believed, is_kept) in [
        (vec![Liveness::Alive], false),
        (vec![Liveness::Suspect], true),
        (vec![Liveness::Dead], true),
        (vec![Liveness::Dead, Liveness::Alive], true),
    ] {
        let mut cluster = Cluster::new(2, true);
        cluster.run_until(60);
        let id = cluster.create(0, (10, 10), 2);
        let target = Target { id, factor: Some(2), filter: None };
        assert!(matches!(cluster.ask(0, Request::Delete(target)), Answer::Done { .. }));
        for liveness in &believed {
            cluster.believe(0, 1, *liveness);
        }
        let now = cluster.now();
        let shard = cluster.shard(0);
        let slot = shard.find(id).expect("a tombstone");
        shard.records.take_out(slot);
        shard.end_tombstone(now, slot);
        assert_eq!(shard.find(id).is_some(), is_kept, "{believed:?}");
        cluster.audit();
    }
}

/// The tombstone outlives copies of an earlier definition with a long interval. It does not stay as
/// long as if the timer had popped at that interval.
#[test]
fn a_tombstone_ends_although_a_member_is_dead_and_an_earlier_interval_was_long() {
    let mut cluster = Cluster::new(3, true);
    let id = TimerId(7);
    let [a, b, c] = cluster.list(id)[..] else { panic!("three nodes") };
    let target = Target { id, factor: Some(2), filter: None };
    let content = content();
    let long = Request::Update(target, definition((500, 5_000), 2, &content));
    assert!(matches!(cluster.ask(a, long), Answer::Done { .. }));
    cluster.kill(c);
    cluster.cut(a, b, true);
    let short = Request::Update(target, definition((1, 5), 2, &content));
    assert!(matches!(cluster.ask(a, short), Answer::Done { .. }));
    cluster.run_until(8);
    cluster.cut(a, b, false);
    cluster.run_until(10);
    assert!(cluster.holders(id).is_empty());
    let knows = |cluster: &Cluster| {
        cluster.nodes.iter().flat_map(|node| &node.shard).any(|shard| shard.find(id).is_some())
    };
    cluster.run_until(500);
    assert!(knows(&cluster));
    cluster.run_until(700);
    assert!(!knows(&cluster));
    assert_eq!(cluster.pops.len(), 5);
    cluster.audit();
}

/// The tombstone is as old as the delete, however many pops there had been. A node is away that may
/// have a copy.
#[test]
fn the_tombstone_of_a_delete_is_held_from_the_delete_on() {
    for (early_ms, stays) in [(1, true), (0, false)] {
        let mut cluster = Cluster::new(2, true);
        let (id, content) = (TimerId(7), content());
        let request = Request::Update(target(id, 2), definition((10, 100), 2, &content));
        cluster.ask(0, request);
        cluster.run_until(12);
        assert_eq!(cluster.pops.len(), 1);
        cluster.ask(0, Request::Delete(target(id, 2)));
        let deleted_ms = cluster.now_ms;
        cluster.believe(0, 1, Liveness::Suspect);
        let shard = cluster.shard(0);
        let slot = shard.find(id).expect("a tombstone");
        shard.records.take_out(slot);
        let held_ms = shard.records.tombstone_ms(10_000) + shard.config.cluster.tombstone_hold_ms;
        cluster.now_ms = deleted_ms + held_ms - early_ms;
        let now = cluster.now();
        let shard = cluster.shard(0);
        shard.end_tombstone(now, slot);
        assert_eq!(shard.find(id).is_some(), stays, "{early_ms}");
    }
}

/// Another site tells the end of a timer as that of one with one pop more than were made. The end
/// is as old as the last pop, and is held for a node that was dead then.
#[test]
fn the_end_that_another_site_tells_is_held_from_the_last_pop_on() {
    for (early_ms, stays) in [(1, true), (0, false)] {
        let mut cluster = Cluster::new(2, true);
        cluster.run_until(60);
        let id = cluster.create(0, (2, 24), 2);
        let ended_ms = cluster.now_ms + 24_000;
        cluster.now_ms = ended_ms;
        let now = cluster.now();
        cluster.believe(0, 1, Liveness::Dead);
        let shard = cluster.shard(0);
        let slot = shard.find(id).expect("it is held");
        let held = *shard.records.get(slot);
        let outline = Outline {
            id,
            key: StateKey { version: held.version, sequence: 12 },
            start: held.start,
            interval_ms: 2_000,
            repeat_for_ms: 13 * 2_000,
            placement: *shard.records.placement_of(&held),
        };
        let slot = shard.records.bury(now.mono.tick_floor(), &outline, Some(slot));
        shard.records.take_out(slot);
        let held_ms = shard.records.tombstone_ms(2_000) + shard.config.cluster.tombstone_hold_ms;
        cluster.now_ms = ended_ms + held_ms - early_ms;
        let now = cluster.now();
        let shard = cluster.shard(0);
        shard.end_tombstone(now, slot);
        assert_eq!(shard.find(id).is_some(), stays, "{early_ms}");
    }
}

#[test]
fn a_site_that_has_returned_is_heard_for_as_long_as_a_tombstone_is_held() {
    let mut cluster = Cluster::new(2, true);
    let shard = cluster.shard(0);
    let hold_ms = shard.config.cluster.tombstone_hold_ms;
    for (returned_at, tick, has_heard) in
        [(0, 1, true), (5, 4 + hold_ms, false), (5, 5 + hold_ms, true)]
    {
        shard.peers.site_returned_at = Tick(returned_at);
        assert_eq!(shard.has_heard_sites(Tick(tick)), has_heard, "{returned_at} {tick}");
    }
}
