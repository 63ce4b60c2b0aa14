//! Every bound, with its unit in its name. The defaults of the configurable ones are here too, so
//! that the configuration, its reference file and the documents have one source.

/// Shards that a node can have: `Requester` and mesh addressing use one byte more than needed,
/// memory one mesh queue per pair.
pub const SHARDS_MAX: u16 = 256;
/// Replicas that a timer can ask for.
pub const REPLICATION_FACTOR_MAX: u32 = 16;
/// Replicas of a timer that does not say (docs/compat/timer-service.md §1.2).
pub const REPLICATION_FACTOR_DEFAULT: u32 = 2;
/// Longest interval and longest repeat-for: 100 years of 366 days, in milliseconds.
pub const INTERVAL_MS_MAX: u64 = 100 * 366 * 24 * 3600 * 1000;
/// Statistics tags of one timer.
pub const TAGS_PER_TIMER_MAX: usize = 16;
/// Bytes of one statistics tag's name.
pub const TAG_BYTES_MAX: usize = 64;
/// Bytes of a callback URI, authority and path together.
pub const URI_BYTES_MAX: usize = 2048;
/// Bytes of a callback URI that another node tells. An original bounds none, and what it has taken
/// from a client is to pop whoever holds it. A target's length is two bytes in timers and messages.
pub const URI_TOLD_BYTES_MAX: usize = 32 << 10;
/// Bytes of the document in which another node tells a timer: opaque data as long as messages
/// between nodes carry, with an escape for every byte.
pub const BODY_TOLD_BYTES_MAX: u32 = 4 << 20;
/// Headers of one request or of one callback answer.
pub const HEADERS_MAX: usize = 64;
/// Bytes of a chunk-size line, extensions included, and of all trailers together.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;

/// Shortest life of a tombstone (docs/compat/timer-service.md §4).
pub const TOMBSTONE_MS_MIN: u64 = 10_000;
/// How far ids may run ahead of the wall clock under a burst, in milliseconds.
pub const CLOCK_LEAD_MS_MAX: u64 = 1_000;

/// Most callback hosts that `callbacks.hosts_per_core_max` can allow.
pub const HOSTS_PER_CORE_MAX: u32 = 65_000;
/// Sites that hold one timer.
pub const SITES_PER_TIMER_MAX: usize = 8;
/// Peers (members of the site past and present, and other sites) that a process can know.
pub const PEERS_MAX: usize = 128;
/// Later start of each further rank (docs/compat/timer-service.md §4).
pub const RANK_DELAY_MS: u64 = 2_000;

/// The limits an operator can set (configuration section `[limits]`), with their defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Records (timers and tombstones) that the node holds; shared out evenly to the shards.
    pub timers_max: u64,
    /// Bytes of timer memory (records, index, payloads) that the node holds; shared out evenly to
    /// the shards.
    pub store_bytes_max: u64,
    /// Bytes of a request body, after removal of chunk framing.
    pub body_bytes_max: u32,
    /// Bytes of a request head: request line and headers.
    pub header_bytes_max: u32,
    /// Bytes of opaque data after JSON unescaping.
    pub opaque_bytes_max: u32,
    /// Client connections per core.
    pub connections_per_core_max: u32,
    /// Requests taken from one connection in one loop turn; the rest wait for the next.
    pub pipelined_requests_per_turn_max: u32,
    /// Answers not yet given to the kernel above which a connection is not read from.
    pub unsent_bytes_per_connection_max: u32,
    /// Bytes of answers that the connections of a core hold, above which a long answer (a GET of a
    /// large timer) is not made, but 503.
    pub unsent_bytes_per_core_max: u64,
    /// Bytes of requests begun but not complete, over all connections of a core; above it
    /// the connection that holds most of them is answered 503.
    pub partial_bytes_per_core_max: u64,
    /// Milliseconds without a byte after which a client connection closes, and in which a request
    /// must be complete.
    pub idle_timeout_ms: u64,
    /// Messages in the queue between two cores.
    pub mesh_queue_max: u32,
    /// Pops that come due in one loop turn; the rest follow in the next turns.
    pub pops_per_turn_max: u32,
    /// A loop turn longer than this is counted as over budget, in microseconds.
    pub turn_budget_us: u64,
    /// Statistics tags that have figures of their own; those beyond are counted together.
    pub tags_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timers_max: 50_000_000,
            store_bytes_max: 12 << 30,
            body_bytes_max: 1 << 20,
            header_bytes_max: 16 << 10,
            opaque_bytes_max: 256 << 10,
            connections_per_core_max: 16_384,
            pipelined_requests_per_turn_max: 128,
            unsent_bytes_per_connection_max: 64 << 10,
            unsent_bytes_per_core_max: 64 << 20,
            partial_bytes_per_core_max: 32 << 20,
            idle_timeout_ms: 20_000,
            mesh_queue_max: 1_024,
            pops_per_turn_max: 256,
            turn_budget_us: 1_000,
            tags_max: 1_000,
        }
    }
}

/// How callbacks are made (configuration section `[callbacks]`), with defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackLimits {
    /// Whole time of one attempt: name resolution, connect, request, status line
    /// (docs/compat/timer-service.md §1.3: 2 seconds).
    pub timeout_ms: u64,
    /// Connections (each carries one request at a time) per callback host and core.
    pub connections_per_host_max: u32,
    /// Hosts per core whose pops run or wait at the same time; a pop for one more is put off.
    pub hosts_per_core_max: u32,
    /// Pops that wait for one host on one core; above it new timers for that host are refused with
    /// 503.
    pub queue_per_host_max: u32,
    /// First pause after a failed callback; doubled with every further failure.
    pub retry_first_ms: u64,
    /// Longest pause between two attempts.
    pub retry_max_ms: u64,
    /// How long the last pop of a timer is retried before it is given up.
    pub give_up_ms: u64,
    /// Idle time after which a callback connection closes.
    pub idle_timeout_ms: u64,
    /// How long a resolved host name is used before it is asked for again.
    pub resolve_ttl_ms: u64,
    /// Longest life of a tombstone, whatever the timer's interval.
    pub tombstone_ms_max: u64,
}

impl Default for CallbackLimits {
    fn default() -> Self {
        Self {
            timeout_ms: 2_000,
            connections_per_host_max: 64,
            hosts_per_core_max: 16_384,
            queue_per_host_max: 4_000_000,
            retry_first_ms: 100,
            retry_max_ms: 5_000,
            give_up_ms: 60_000,
            idle_timeout_ms: 30_000,
            resolve_ttl_ms: 30_000,
            tombstone_ms_max: 24 * 3600 * 1000,
        }
    }
}

/// How nodes of a cluster watch and wait for each other (configuration section `[cluster]`), with
/// defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterLimits {
    /// Pause between two heartbeats on a link.
    pub heartbeat_ms: u64,
    /// Silence after which a peer is suspected: writes no longer wait for it.
    pub suspect_after_ms: u64,
    /// Silence after which a peer is declared dead: others move up for it, and no new timer is
    /// placed on it.
    pub dead_after_ms: u64,
    /// How much longer a tombstone stays while a node that is to hold the timer cannot be reached:
    /// it may come back with a copy of what was deleted.
    pub tombstone_hold_ms: u64,
    /// Whether surviving ranks move up for a dead one. Off: ranks are as in
    /// docs/compat/timer-service.md §8.
    pub promotion: bool,
    /// How far apart two wall clocks may be. A node takes no writes whose clock is further from
    /// that of most members; and no clock learns a version that is further ahead of it.
    pub clock_skew_max_ms: u64,
    /// Bytes that one core keeps for one peer until that has acknowledged them. Above it the peer
    /// is offered everything again when it is back.
    pub link_bytes_max: u64,
    /// Bytes of one core to one peer under way and not acknowledged.
    pub link_window_bytes: u64,
    /// Client writes of one core that wait for replicas; above it 503.
    pub writes_waiting_max: u32,
    /// Whether a write is acknowledged after all replicas believed alive have it, or as soon as the
    /// first one has.
    pub acknowledge: Acknowledge,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Acknowledge {
    /// When every replica that is believed alive has it.
    #[default]
    Replicas,
    /// When the first has it: at once, where this node is one.
    First,
}

impl Default for ClusterLimits {
    fn default() -> Self {
        Self {
            heartbeat_ms: 250,
            suspect_after_ms: 1_000,
            dead_after_ms: 3_000,
            tombstone_hold_ms: 120_000,
            promotion: true,
            clock_skew_max_ms: 60_000,
            link_bytes_max: 16 << 20,
            link_window_bytes: 1 << 20,
            writes_waiting_max: 65_536,
            acknowledge: Acknowledge::Replicas,
        }
    }
}
