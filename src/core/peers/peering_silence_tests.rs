//! Peers that say nothing, or whose word comes too late.

use super::*;

/// Both pauses together are longer than the silence of a dead peer. None of them is.
#[test]
fn a_peer_that_spoke_while_this_core_got_no_time_is_not_dead() {
    let mut network = Network::new(&[1, 1]);
    network.run(1_000);
    for (node, ms) in [(1, 2_200), (0, 990)] {
        network.frozen = vec![node];
        network.run(ms);
    }
    network.frozen.clear();
    network.deliver();
    network.turn();
    assert_eq!(network.believed(0), [0, 1, 0], "what it said is too old to be obeyed");
    network.run(1_000);
    assert_eq!(network.believed(0), [1, 0, 0], "dialled anew");
}

/// It reads its journal meanwhile.
#[test]
fn a_core_that_serves_long_after_it_was_made_takes_nobody_for_dead() {
    let mut network = Network::new(&[1, 1]);
    network.kill(1);
    network.start(0, 1);
    network.now_ms += 10_000;
    let now = network.now();
    network.core(0, 0).begin(now);
    network.run(1);
    assert_eq!(network.believed(0), [0, 1, 0], "suspected until it is heard");
    network.run(ClusterLimits::default().dead_after_ms);
    assert_eq!(network.believed(0), [0, 0, 1]);
}

/// Both nodes got no time. One goes on. If the other one is silent, it may have popped just before.
#[test]
fn a_machine_that_takes_dials_is_not_taken_for_a_node_that_has_gone() {
    let limits = ClusterLimits::default();
    for (what, least_ms) in [("gone", 0_u64), ("cut off", 0), ("silent", 8_000)] {
        let mut network = Network::new(&[1, 1]);
        network.run(100);
        network.interval_ms = 5_000;
        (0..20).for_each(|_| network.create(0, 0, 2, b""));
        network.run(100);
        network.frozen = vec![0, 1];
        network.run(10_000);
        network.frozen = vec![1];
        match what {
            "gone" => network.kill(1),
            "cut off" => network.cuts.push((0, 1)),
            _ => {}
        }
        network.run(least_ms.saturating_sub(1));
        assert_eq!(network.core(0, 0).shard().in_flight(), 0, "{what}: asked first");
        network.run(limits.dead_after_ms.max(least_ms) + 1_500 - least_ms);
        assert_eq!(network.core(0, 0).shard().in_flight(), 20, "{what}");
    }
}

#[test]
fn a_node_alone_has_nothing_to_do() {
    let mut network = Network::new(&[1]);
    network.run(10);
    assert_eq!(network.core(0, 0).next_wake(), None);
    let mut actions = Vec::new();
    let now = network.now();
    network.core(0, 0).peers(now, &mut actions);
    assert!(actions.is_empty());
}
