//! Two cores of one node, whose turns begin at different times.

use std::sync::Arc;

use super::*;
use crate::base::ids::TimerId;
use crate::base::time::{MonoNs, TICK_NS, WallMs};
use crate::cluster::view::View;
use crate::core::mesh::mesh;
use crate::shard::effects::Target;
use crate::shard::harness_tests::config;

fn at(ms: u64) -> Now {
    Now { mono: MonoNs(ms * TICK_NS), wall: WallMs(1_000_000 + ms) }
}

fn two_cores() -> Vec<Core> {
    let shards = ShardCount::new(2);
    let view = Arc::new(View::alone("10.0.0.1:7253"));
    let config = |own| ShardConfig { own: ShardIndex(own), shards, ..config(view.clone(), 1) };
    let ports = mesh(shards, 16).into_iter().zip(0..);
    ports.map(|(port, own)| Core::new(config(own), port, at(0))).collect()
}

/// A core that gets no time in its turn finds requests that came after the turn began.
#[test]
fn what_a_sibling_sends_is_not_served_before_it_was_sent() {
    let mut cores = two_cores();
    let owned = |id: &TimerId| ShardCount::new(2).owner(*id) == ShardIndex(1);
    let id = (1..).map(TimerId).find(owned).expect("half of all");
    let from = Requester { shard: ShardIndex(0), connection: 0, generation: 0, request: 0 };
    let target = Target { id, factor: Some(1), filter: None };
    cores[0].request(at(150), from, Request::Delete(target));
    cores[1].inbox(at(100));
    let version = cores[1].shard().held(id).expect("a tombstone").version;
    assert_eq!(version.wall(), at(150).wall);
}
