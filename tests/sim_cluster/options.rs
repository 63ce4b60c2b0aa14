//! The options of a run, drawn from its seed.

use std::sync::Arc;

use chronos::base::ids::{NodeInstance, ShardCount, ShardIndex};
use chronos::base::limits::{Acknowledge, CallbackLimits, ClusterLimits};
use chronos::cluster::view::View;
use chronos::shard::{ShardConfig, Stock};
use chronos::store::wheel::Geometry;
use kit::simulator::random::{Purpose, Stream};

use super::disks::Disks;
use super::rarities::Rarities;
use super::sites::Sites;

/// How many nodes the largest cluster has, nodes that join late included.
pub const NODES_MAX: usize = 5;
/// How many processes run at once: one more than nodes. The extra process claims to be one of the
/// nodes.
pub const PROCESSES_MAX: usize = NODES_MAX + 1;

/// How much goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing but what operators do.
    None,
    /// One thing at a time, with time to recover between.
    OneAtATime,
    /// Anything at any time.
    Storm,
    /// A node is away while clients change timers and another node loses its memory.
    Plot,
}

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    /// Which of the courses that the story may take (see `Simulator::vary`).
    pub variant: u64,
    /// How many members there are at the start.
    pub nodes: usize,
    /// How many nodes may join.
    pub spares: usize,
    /// How many cores each process has.
    pub shards: [u16; PROCESSES_MAX],
    pub drift_ppm_max: i64,
    pub skew_ms_max: i64,
    pub latency_ns: (u64, u64),
    pub mesh_queue_max: u32,
    pub pops_per_turn_max: usize,
    pub callbacks: CallbackLimits,
    pub cluster: ClusterLimits,
    /// How many callback hosts clients name.
    pub hosts: u32,
    pub safety_ms: u64,
    pub operations: usize,
    /// How many ids clients choose from. They are few, so that they collide.
    pub chosen_ids: u64,
    pub factor_max: u8,
    pub interval_ms_max: u64,
    pub trouble: Trouble,
    pub host_trouble: bool,
    pub has_clock_steps: bool,
    pub operator_changes: usize,
    pub lost_reply_percent: u64,
    /// A node that stays dead when the others are healed.
    pub stays_dead: Option<usize>,
    pub rarities: Rarities,
    /// The sites, if the nodes are two sites.
    pub sites: Option<Sites>,
    /// What the disks are like, if the nodes have some.
    pub disks: Option<Disks>,
}

impl Options {
    pub fn draw(seed: u64) -> Self {
        let draw = &mut Stream::new(seed, Purpose::Options);
        let mut nodes = draw.pick(&[1, 2, 2, 3, 3, 3, 4, 5]);
        let trouble = match draw.range(0, 11) {
            0..2 => Trouble::None,
            2..7 => Trouble::OneAtATime,
            7..10 => Trouble::Storm,
            _ => Trouble::Plot,
        };
        if trouble == Trouble::Plot {
            nodes = draw.pick(&[3, 3, 4]);
        }
        let mut shards = [1; PROCESSES_MAX];
        for count in &mut shards[..NODES_MAX] {
            *count = draw.pick(&[1, 1, 2]);
        }
        let has_operator = trouble != Trouble::Plot && draw.chance(30);
        let slow = draw.chance(25);
        let has_nodes_die = matches!(trouble, Trouble::OneAtATime | Trouble::Storm);
        let stays_dead = (nodes > 1 && has_nodes_die && draw.chance(20))
            .then(|| draw.range(0, nodes as u64 - 1) as usize);
        let drawn = Self {
            seed,
            variant: 0,
            nodes,
            spares: if has_operator { (NODES_MAX - nodes).min(2) } else { 0 },
            shards,
            drift_ppm_max: draw.pick(&[0, 50, 500]),
            skew_ms_max: draw.pick(&[0, 100, 15_000]),
            latency_ns: if slow { (1_000_000, 30_000_000) } else { (50_000, 1_000_000) },
            mesh_queue_max: draw.pick(&[2, 4, 64]) as u32,
            pops_per_turn_max: draw.pick(&[1, 4, 256]),
            callbacks: Self::callbacks(draw),
            cluster: ClusterLimits {
                // All tombstones must have ended when a run ends with a dead node.
                tombstone_hold_ms: if stays_dead.is_some() { 20_000 } else { 120_000 },
                ..Self::cluster(draw)
            },
            hosts: draw.range(1, 3) as u32,
            safety_ms: draw.range(20_000, 90_000).max(if trouble == Trouble::Plot {
                60_000
            } else {
                0
            }),
            operations: draw.range(3, 40) as usize,
            chosen_ids: draw.pick(&[1, 4, 20]),
            factor_max: match trouble {
                Trouble::Plot => 3,
                _ => draw.pick(&[1, 2, 2, 3, 3]) as u8,
            },
            interval_ms_max: draw.pick(&[2_000, 6_000, 15_000, 25_000]),
            trouble,
            host_trouble: trouble != Trouble::None && draw.chance(30),
            has_clock_steps: draw.chance(25),
            operator_changes: if has_operator { draw.range(1, 2) as usize } else { 0 },
            lost_reply_percent: draw.pick(&[0, 0, 10]),
            stays_dead,
            rarities: Rarities::draw(seed, trouble, has_operator),
            sites: None,
            disks: None,
        }
        .with_sites()
        .with_ends();
        if drawn.rarities.has("Rules") { drawn.with_rules() } else { drawn.with_disks() }
    }

    fn with_disks(self) -> Self {
        let disks = Disks::draw(&self);
        let mut drawn = Self { disks, ..self };
        if let Some(disks) = disks {
            disks.limit(&mut drawn);
        }
        drawn
    }

    /// Makes enough come due for a rate to be too low. Hosts and clocks do well.
    fn with_rules(self) -> Self {
        Self {
            operations: 100,
            hosts: 1,
            host_trouble: false,
            interval_ms_max: 6_000,
            has_clock_steps: false,
            lost_reply_percent: 0,
            sites: self.sites.filter(|_| self.trouble == Trouble::None),
            ..self
        }
    }

    /// Servers that want no more of timers say so late. Their hosts have places for others.
    fn with_ends(mut self) -> Self {
        if self.rarities.has("Ends") {
            self.callbacks.connections_per_host_max = 64;
        }
        self
    }

    fn with_sites(self) -> Self {
        let sites = Sites::draw(&self);
        let Some(known) = sites else { return self };
        let mut rarities = self.rarities.clone();
        rarities.of_sites(self.seed, self.trouble);
        Self {
            sites,
            rarities,
            stays_dead: self.stays_dead.filter(|node| known.may_die(*node)),
            // All tombstones must have ended when a run ends.
            cluster: ClusterLimits { tombstone_hold_ms: 20_000, ..self.cluster },
            ..self
        }
    }

    fn callbacks(draw: &mut Stream) -> CallbackLimits {
        CallbackLimits {
            timeout_ms: draw.pick(&[500, 1_500]),
            connections_per_host_max: draw.pick(&[2, 64]),
            retry_first_ms: 100,
            retry_max_ms: draw.pick(&[400, 5_000]),
            give_up_ms: 10_000,
            tombstone_ms_max: draw.pick(&[10_000, 15_000]),
            ..CallbackLimits::default()
        }
    }

    fn cluster(draw: &mut Stream) -> ClusterLimits {
        let is_tight = draw.chance(30);
        ClusterLimits {
            tombstone_hold_ms: 10_000,
            promotion: draw.chance(70),
            acknowledge: if draw.chance(80) { Acknowledge::Replicas } else { Acknowledge::First },
            link_bytes_max: if is_tight { 2_000 } else { 16 << 20 },
            link_window_bytes: if is_tight { draw.pick(&[300, 1_000]) } else { 1 << 20 },
            writes_waiting_max: draw.pick(&[2, 65_536, 65_536, 65_536]) as u32,
            ..ClusterLimits::default()
        }
    }

    /// Returns how many timers and tombstones a core of a node has room for, if the node has little
    /// room. With two sites all nodes have room: one site tells the other once, and may find no
    /// room there.
    fn room_of(&self, node: usize) -> Option<u64> {
        if self.sites.is_some() {
            return None;
        }
        self.rarities.room_of(self.seed, (node, self.nodes))
    }

    /// Reports whether all nodes have room for all timers.
    pub fn has_room(&self) -> bool {
        (0..self.nodes).all(|node| self.room_of(node).is_none()) && !self.has_full_disks()
    }

    /// Returns the factor from which on no node can stand in for a node that has little room;
    /// `None` if all have room.
    pub fn crowded_from(&self) -> Option<u8> {
        (!self.has_room()).then_some(self.nodes as u8)
    }

    /// Reports whether wall clocks differ by less than two tenths of a second.
    pub fn clocks_are_close(&self) -> bool {
        self.skew_ms_max <= 100 && !self.has_clock_steps
    }

    /// Returns how many nodes the run has.
    pub fn all_nodes(&self) -> usize {
        self.nodes + self.spares
    }

    /// Returns the configuration of a core of the process `node` that says it is `member`.
    pub fn config(&self, (node, member): (usize, usize), own: u16, view: Arc<View>) -> ShardConfig {
        ShardConfig {
            own: ShardIndex(own),
            shards: ShardCount::new(self.shards[node]),
            instance: NodeInstance::new(member as u8 + 1, 0),
            geometry: Geometry::PRODUCTION,
            authority_tables: 4,
            stock: Stock::none(),
            hash_seed: self.seed ^ u64::from(own) ^ (node as u64) << 8,
            records_max: self.room_of(node).unwrap_or(100_000),
            store_bytes_max: 1 << 32,
            pops_per_turn_max: self.pops_per_turn_max,
            tags_max: 3,
            callbacks: self.callbacks.clone(),
            cluster: self.cluster.clone(),
            view,
        }
    }
}
