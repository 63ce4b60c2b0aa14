//! What a node is started with. The control room fills this from file, environment and flags.

use std::net::SocketAddr;

use crate::base::limits::{CallbackLimits, ClusterLimits, Limits};
use crate::cluster::view::Membership;

use crate::core::peers::secret::Guard;
use crate::node::callbacks::listeners::Reserved;

/// Settings of the data plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// Where clients connect (default 127.0.0.1:7253).
    pub listen: SocketAddr,
    /// Cores to pin to, one shard each; `None`: every core this process may run on.
    pub cores: Option<Vec<usize>>,
    /// Number of shards when not one per core (needs `pin = false`).
    pub shards: Option<u16>,
    /// Whether threads are pinned.
    pub pin: bool,
    /// Wake this many microseconds before a due tick and spin, for lateness below the kernel's
    /// wake-up time. 0: sleep.
    pub spin_us: u32,
    /// Bytes of memory taken and touched at start, so that the first timers pay no page faults;
    /// shared out to the shards.
    pub prefault_bytes: u64,
    /// Tells the nodes of a deployment apart in ids, 0..=127.
    pub instance_id: u8,
    /// Tells deployments apart in ids, 0..=7.
    pub deployment_id: u8,
    /// This node's name in the cluster (address:port exactly as every member writes it): hashed for
    /// placement and filters.
    pub name: String,
    /// Bounds.
    pub limits: Limits,
    /// How callbacks are made.
    pub callbacks: CallbackLimits,
    /// The members at the start; `None`: this node alone.
    pub membership: Option<Membership>,
    /// How nodes watch and wait for each other.
    pub cluster: ClusterLimits,
    /// Whether the internal API takes requests from nodes that are no members.
    pub accept_strangers: bool,
    /// The cluster's secret, and whether others must know it.
    pub guard: Guard,
    /// Listeners of the deployment beside those of the members for clients.
    pub reserved: Reserved,
    /// Timestamps are served, too.
    pub timestamp: Option<TimestampSettings>,
    /// Whether timers are served: without, `listen` is not opened.
    pub serves_timers: bool,
}

/// How timestamps are served, by the same cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimestampSettings {
    /// Where Thrift clients connect (default 127.0.0.1:7911).
    pub listen: SocketAddr,
    /// Replies in the versioned form of Thrift's binary protocol, which strict and lenient clients
    /// read; without, in the old form of the original server.
    pub strict_replies: bool,
    /// Connections of one core; more are closed.
    pub connections_per_core_max: u32,
    /// A connection that is silent for longer is closed.
    pub idle_timeout_ms: u64,
}

impl Default for TimestampSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7911)),
            strict_replies: true,
            connections_per_core_max: 10_000,
            idle_timeout_ms: 600_000,
        }
    }
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7253)),
            cores: None,
            shards: None,
            pin: true,
            spin_us: 0,
            prefault_bytes: 0,
            instance_id: 0,
            deployment_id: 0,
            name: "127.0.0.1:7253".into(),
            limits: Limits::default(),
            callbacks: CallbackLimits::default(),
            membership: None,
            cluster: ClusterLimits::default(),
            accept_strangers: false,
            guard: Guard::default(),
            reserved: Reserved::default(),
            timestamp: None,
            serves_timers: true,
        }
    }
}
