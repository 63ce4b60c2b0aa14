//! The options of a run, drawn from its seed. Segments are small, so that they are filled, emptied
//! and used again all the time.

use std::sync::Arc;

use chronos::base::ids::{NodeInstance, ShardCount, ShardIndex};
use chronos::base::limits::{CallbackLimits, ClusterLimits};
use chronos::cluster::view::View;
use chronos::core::journal::Mode;
use chronos::journal::writer::Sizes;
use chronos::shard::{ShardConfig, Stock};
use chronos::store::wheel::Geometry;
use kit::simulator::random::{Purpose, Stream};

/// The name of the node.
pub const NODE: &str = "127.0.0.1:7253";

/// How much goes wrong with the disk and the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Processes die and start again, no more.
    Crashes,
    /// Machines lose power, too, and boot with another clock.
    Power,
    /// Disks are slow, stall, fill up and fail as well.
    Disk,
    /// Bits flip besides.
    Damage,
}

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    pub shards: u16,
    pub mode: Mode,
    pub sizes: Sizes,
    pub stall_ms: u64,
    pub pops_per_s: u64,
    pub is_each: bool,
    pub trouble: Trouble,
    /// Whether wall clocks step.
    pub has_steps: bool,
    /// Longest time of a usual write of the disk.
    pub write_ns_max: u64,
    pub callbacks: CallbackLimits,
    pub hosts: u32,
    pub host_trouble: bool,
    pub safety_ms: u64,
    pub operations: usize,
    pub chosen_ids: u64,
    /// How long the longest intervals are.
    pub interval_ms_max: u64,
    pub opaque_bytes_max: u64,
    pub step_ns_max: u64,
    /// The chance that a turn is cut into steps between which the process may die.
    pub interleaved_percent: u64,
}

impl Options {
    pub fn draw(seed: u64) -> Self {
        let draw = &mut Stream::new(seed, Purpose::Options);
        let batch_bytes = draw.pick(&[4_096, 16_384, 65_536]) as usize;
        let opaque_bytes_max = draw.pick(&[60, 60, 3_000, 20_000]);
        // The largest write: a batch, an entry above it, and the head of a segment.
        let blocks_least = batch_bytes as u64 / 4_096 + opaque_bytes_max / 4_096 + 6;
        let segment_blocks = (blocks_least + draw.pick(&[0, 2, 10, 60])) as u32;
        Self {
            seed,
            shards: draw.pick(&[1, 1, 2, 3]),
            mode: draw.pick(&[Mode::Sync, Mode::Sync, Mode::Interval(50), Mode::Interval(1_000)]),
            sizes: Sizes { segment_blocks, batch_bytes },
            stall_ms: draw.pick(&[1_000, 3_000]),
            pops_per_s: draw.pick(&[20, 200, 2_000]),
            is_each: draw.chance(40),
            trouble: draw.pick(&[
                Trouble::Crashes,
                Trouble::Power,
                Trouble::Power,
                Trouble::Disk,
                Trouble::Disk,
                Trouble::Damage,
            ]),
            has_steps: draw.chance(40),
            write_ns_max: draw.pick(&[200_000, 1_000_000, 20_000_000]),
            callbacks: CallbackLimits {
                timeout_ms: 500,
                retry_max_ms: 1_000,
                give_up_ms: 5_000,
                tombstone_ms_max: 10_000,
                ..CallbackLimits::default()
            },
            hosts: draw.range(1, 3) as u32,
            host_trouble: draw.chance(25),
            safety_ms: draw.range(3_000, 60_000),
            operations: draw.range(4, 150) as usize,
            chosen_ids: draw.pick(&[2, 6, 30]),
            interval_ms_max: draw.pick(&[1_000, 10_000, 60_000]),
            opaque_bytes_max,
            step_ns_max: draw.pick(&[2_000, 20_000, 150_000]),
            interleaved_percent: draw.pick(&[10, 50, 100]),
        }
    }

    /// What a core of the process number `life` is given.
    pub fn config(&self, own: u16, shards: u16, life: u64) -> ShardConfig {
        ShardConfig {
            own: ShardIndex(own),
            shards: ShardCount::new(shards),
            instance: NodeInstance::new(5, 2),
            geometry: Geometry::TINY,
            authority_tables: 4,
            stock: Stock::none(),
            hash_seed: self.seed ^ u64::from(own) ^ life << 16,
            records_max: 1 << 20,
            store_bytes_max: 1 << 40,
            pops_per_turn_max: 16,
            tags_max: 3,
            callbacks: self.callbacks.clone(),
            cluster: ClusterLimits::default(),
            view: Arc::new(View::alone(NODE)),
        }
    }
}
