//! The options of a run, drawn from its seed. Limits are small, so that edges are met.

use std::sync::Arc;

use chronos::base::ids::{NodeInstance, ShardCount, ShardIndex};
use chronos::base::limits::{CallbackLimits, ClusterLimits, DeadLetterLimits};
use chronos::base::time::Now;
use chronos::cluster::view::View;
use chronos::shard::{Shard, ShardConfig, Stock};
use chronos::store::wheel::Geometry;
use kit::simulator::random::{Purpose, Stream};

use super::calendar;

/// The key of what is drawn for dead letters.
const DEAD_LETTERS: u64 = u64::MAX;
/// The key of what is drawn for what nodes lack.
const LACKS: u64 = u64::MAX - 1;

/// The key of what is drawn for clocks that lie.
pub const LIES: u64 = u64::MAX - 2;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    pub shards: u16,
    pub is_tiny: bool,
    pub authority_tables: usize,
    pub mesh_queue_max: u32,
    pub records_max: u64,
    /// How many bytes the store may take above what an empty shard takes.
    pub store_bytes_extra: u64,
    pub pops_per_turn_max: usize,
    pub callbacks: CallbackLimits,
    /// How many callback hosts clients name.
    pub hosts: u32,
    /// How long clients and faults act.
    pub safety_ms: u64,
    pub operations: usize,
    /// How long clients pause, so that idle hosts are forgotten.
    pub pause_ms: u64,
    /// How many ids clients choose from. They are few, so that they collide.
    pub chosen_ids: u64,
    pub far_percent: u64,
    pub retry_percent: u64,
    pub faults: usize,
    pub has_stalls: bool,
    pub has_clock_steps: bool,
    /// Whether the wall clock lies for some seconds now and then, and is right again.
    pub has_lies: bool,
    /// Whether some timers follow the calendar, and what the wall clock shows when the run begins.
    pub has_calendars: bool,
    pub wall_ms: u64,
    /// Longest time of one step of a core.
    pub step_ns_max: u64,
    /// The chance that a turn is cut into steps between which other cores act.
    pub interleaved_percent: u64,
    /// How many timers that never fire are created in a burst: more ids than a millisecond has.
    pub burst: usize,
    /// One sleep in this many is followed by an audit.
    pub audit_every: u64,
    /// Whether timers are those of call sessions instead of timers around the edges.
    pub is_crowd: bool,
    /// Whether some timers have their pops reported. Their host needs a lane of its own.
    pub has_reports: bool,
    /// The chance that the node lacks something for an attempt: a file, a port, memory.
    pub lack_percent: u64,
}

impl Options {
    pub fn draw(seed: u64) -> Self {
        let mut options = Self::draw_usual(seed);
        let draw = &mut Stream::keyed(seed, Purpose::Rarities, DEAD_LETTERS);
        options.callbacks.dead_letters = DeadLetterLimits {
            per_core_max: draw.pick(&[0, 1, 3, 1_000, 1_000]),
            bytes_per_core_max: draw.pick(&[500, 1 << 20, 1 << 20]),
            keep_ms: draw.pick(&[1_000, 3_000, 20_000]),
            plain: false,
        };
        let draw_lies = &mut Stream::keyed(seed, Purpose::Calendars, LIES);
        let may_lie = options.has_calendars && !options.has_clock_steps && !options.has_stalls;
        options.has_lies = may_lie && draw_lies.chance(50);
        options.has_reports = options.callbacks.hosts_per_core_max > 8 && draw.chance(50);
        // Calendars leave out what they miss. Their model does not know of pops that wait so long.
        let draw = &mut Stream::keyed(seed, Purpose::Rarities, LACKS);
        if !options.has_calendars && draw.chance(40) {
            options.callbacks.places_per_core_max = draw.pick(&[1, 2, 3, 5, 8]) as u32;
            options.lack_percent = draw.pick(&[0, 0, 30, 95]);
        }
        options
    }

    fn draw_usual(seed: u64) -> Self {
        let draw = &mut Stream::new(seed, Purpose::Options);
        let is_faulty = draw.chance(75);
        let faults = if is_faulty { draw.range(1, 24) as usize } else { 0 };
        let safety_ms = draw.range(2_000, 40_000);
        let has_clock_steps = draw.chance(30);
        let is_tight = draw.chance(20);
        let calendars = &mut Stream::new(seed, Purpose::Calendars);
        let has_calendars = calendars.chance(40);
        let usual_or_near = calendar::wall_ms(calendars, safety_ms);
        Self {
            seed,
            shards: draw.pick(&[1, 2, 2]),
            is_tiny: draw.chance(85),
            authority_tables: draw.pick(&[1, 4, 4, 64]),
            mesh_queue_max: draw.pick(&[1, 2, 2, 3]) as u32,
            records_max: draw.pick(&[4, 20, 1_000, 1_000, 1_000]),
            store_bytes_extra: if is_tight { draw.range(5_000, 60_000) } else { 1 << 30 },
            pops_per_turn_max: draw.pick(&[1, 2, 4, 4, 4, 256]),
            callbacks: Self::callbacks(draw),
            hosts: draw.range(1, 5) as u32,
            safety_ms,
            operations: draw.range(4, 160) as usize,
            pause_ms: if draw.chance(15) { draw.range(55_000, 70_000) } else { 0 },
            chosen_ids: draw.pick(&[1, 3, 10, 40]),
            far_percent: draw.pick(&[0, 0, 5, 20]),
            retry_percent: draw.pick(&[0, 5, 30]),
            faults,
            has_stalls: is_faulty && draw.chance(30),
            has_clock_steps,
            has_lies: false,
            has_calendars,
            wall_ms: if has_calendars { usual_or_near } else { calendar::WALL_MS },
            step_ns_max: draw.pick(&[2_000, 20_000, 20_000, 150_000]),
            interleaved_percent: draw.pick(&[10, 50, 100]),
            burst: if has_clock_steps && draw.chance(10) { 5_000 } else { 0 },
            audit_every: 24,
            is_crowd: false,
            has_reports: false,
            lack_percent: 0,
        }
    }

    /// Makes the options of many timers of call sessions with the limits of production, for the
    /// speed of the simulator itself.
    pub fn crowd(seed: u64, timers: usize, safety_ms: u64) -> Self {
        Self {
            shards: 2,
            is_tiny: false,
            authority_tables: 1_024,
            mesh_queue_max: 1_024,
            records_max: 10 * timers as u64,
            store_bytes_extra: 1 << 30,
            pops_per_turn_max: 256,
            callbacks: CallbackLimits { tombstone_ms_max: 15_000, ..CallbackLimits::default() },
            hosts: 5,
            safety_ms,
            operations: timers,
            pause_ms: 0,
            chosen_ids: timers as u64 * 1_000,
            far_percent: 0,
            retry_percent: 0,
            faults: 40,
            has_stalls: false,
            has_calendars: false,
            has_lies: false,
            wall_ms: calendar::WALL_MS,
            interleaved_percent: 10,
            burst: 0,
            audit_every: 2_000,
            is_crowd: true,
            has_reports: false,
            lack_percent: 0,
            ..Self::draw(seed)
        }
    }

    fn callbacks(draw: &mut Stream) -> CallbackLimits {
        CallbackLimits {
            timeout_ms: draw.pick(&[200, 500, 2_000]),
            connections_per_host_max: draw.pick(&[1, 2, 2, 2, 4]),
            hosts_per_core_max: draw.pick(&[2, 4, 16, 16]),
            queue_per_host_max: draw.pick(&[1, 4, 1_000, 1_000]),
            retry_first_ms: draw.pick(&[1, 10, 100]),
            retry_max_ms: draw.pick(&[100, 400, 5_000]),
            give_up_ms: draw.pick(&[1, 1_000, 10_000]),
            tombstone_ms_max: draw.pick(&[10_000, 15_000]),
            ..CallbackLimits::default()
        }
    }

    pub fn config(&self, own: u16, now: Now) -> ShardConfig {
        let mut config = ShardConfig {
            own: ShardIndex(own),
            shards: ShardCount::new(self.shards),
            instance: NodeInstance::new(5, 2),
            geometry: if self.is_tiny { Geometry::TINY } else { Geometry::PRODUCTION },
            authority_tables: self.authority_tables,
            stock: Stock::none(),
            hash_seed: self.seed ^ u64::from(own),
            records_max: self.records_max,
            store_bytes_max: u64::MAX,
            pops_per_turn_max: self.pops_per_turn_max,
            tags_max: 3,
            callbacks: self.callbacks.clone(),
            cluster: ClusterLimits::default(),
            view: Arc::new(View::alone("127.0.0.1:7253")),
        };
        config.store_bytes_max = Shard::new(config.clone(), now).bytes() + self.store_bytes_extra;
        config
    }
}
