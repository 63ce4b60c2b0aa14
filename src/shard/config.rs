//! What a shard is made with.

use std::sync::Arc;

use crate::base::ids::{NodeInstance, ShardCount, ShardIndex};
use crate::base::limits::{CallbackLimits, ClusterLimits};
use crate::cluster::view::View;
use crate::store::wheel::Geometry;

/// What a shard is made with. Limits are this shard's share of the node's.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Which shard of the node this is.
    pub own: ShardIndex,
    /// How many there are.
    pub shards: ShardCount,
    /// The node, in ids and versions.
    pub instance: NodeInstance,
    /// Shape of the wheel.
    pub geometry: Geometry,
    /// Small tables in the index, a power of two.
    pub index_segments: usize,
    /// Keys the hashes, so that clients cannot choose collisions.
    pub hash_seed: u64,
    /// Records (timers and tombstones).
    pub records_max: u64,
    /// Bytes of records, index and payloads.
    pub store_bytes_max: u64,
    /// Pops begun per [`Shard::tick`].
    pub pops_per_turn_max: usize,
    /// How callbacks are made.
    pub callbacks: CallbackLimits,
    /// Statistics tags with figures of their own.
    pub tags_max: usize,
    /// How nodes watch and wait for each other.
    pub cluster: ClusterLimits,
    /// The cluster at the start.
    pub view: Arc<View>,
}
