//! What a pause of a destination holds up, and what it does not.

use super::*;

/// A node is back, and asks about pops that others keep for a destination that is paused. It gives
/// whoever lacks them copies of all other timers meanwhile, however long that lasts.
#[test]
fn a_pause_keeps_no_copy_from_a_node_that_lacks_it() {
    let mut cluster = Cluster::new(3, true);
    (0..3).for_each(|node| set(&mut cluster, node, Some(PAUSED)));
    for node in [0, 1, 2].repeat(10) {
        cluster.create(node, (2, 2), 2);
    }
    let far = [0; 30].map(|node| cluster.create(node, (9_000, 9_000), 2));
    cluster.run_until(10);
    cluster.freeze(1);
    cluster.run_until(20);
    cluster.thaw(1);
    cluster.meet(1);
    cluster.run_until(40);
    assert!(!cluster.shard(1).questions.is_idle(), "others keep pops");
    cluster.kill(2);
    cluster.run_until(41);
    cluster.return_empty(2);
    set(&mut cluster, 2, Some(PAUSED));
    cluster.meet(2);
    cluster.run_until(90);
    for id in far {
        let mut list = cluster.list(id)[..2].to_vec();
        list.sort_unstable();
        assert_eq!(cluster.holders(id), list, "{id:?}");
    }
    (0..3).for_each(|node| set(&mut cluster, node, None));
    cluster.run_until(120);
    assert_eq!(cluster.pops.len(), 30, "{:?}", cluster.pops);
    assert!((0..3).all(|node| cluster.shard(node).questions.is_idle()));
    assert!((0..3).all(|node| !cluster.shard(node).reconcile.owes()));
    cluster.audit();
}
