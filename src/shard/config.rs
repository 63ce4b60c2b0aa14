//! The configuration of one shard.

use std::sync::Arc;

use crate::base::ids::{NodeInstance, ShardCount, ShardIndex};
use crate::base::limits::{CallbackLimits, ClusterLimits};
use crate::cluster::view::View;
use crate::store::wheel::Geometry;

use super::records::Stock;

/// The configuration of one shard. Limits are this shard's share of the node's.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Which shard of the node this is.
    pub own: ShardIndex,
    /// How many shards the node has.
    pub shards: ShardCount,
    /// The node's number in ids and versions.
    pub instance: NodeInstance,
    /// Shape of the wheel.
    pub geometry: Geometry,
    /// Small tables of the authorities of callback hosts, a power of two.
    pub authority_tables: usize,
    /// Where the memory of timers comes from.
    pub stock: Stock,
    /// Keys the hashes, so that clients cannot choose collisions.
    pub hash_seed: u64,
    /// Most records: timers and tombstones.
    pub records_max: u64,
    /// Most bytes of records, index and payloads.
    pub store_bytes_max: u64,
    /// Most pops begun per [`Shard::tick`](super::Shard::tick).
    pub pops_per_turn_max: usize,
    /// Timeouts, retries and lanes of callbacks.
    pub callbacks: CallbackLimits,
    /// Most statistics tags with counts of their own.
    pub tags_max: usize,
    /// How nodes watch each other and wait for each other.
    pub cluster: ClusterLimits,
    /// The view at the start.
    pub view: Arc<View>,
}
