//! Every bound, with its unit in its name. The defaults of the bounds that can be configured stand
//! here, too, so that the configuration, its reference file and the documents have one source.

/// Most shards of a node. `Requester` and the addresses of the mesh use a byte more than this
/// number needs. The mesh has a queue for each pair of shards, so its memory grows with the square
/// of the count.
pub const SHARDS_MAX: u16 = 256;
/// Most replicas that a timer can ask for.
pub const REPLICATION_FACTOR_MAX: u32 = 16;
/// Replicas of a timer that asks for no number (docs/compat/timer-service.md §1.2).
pub const REPLICATION_FACTOR_DEFAULT: u32 = 2;
/// Longest interval and longest repeat-for: 100 years of 366 days, in milliseconds.
pub const INTERVAL_MS_MAX: u64 = 100 * 366 * 24 * 3600 * 1000;
/// Most statistics tags of one timer.
pub const TAGS_PER_TIMER_MAX: usize = 16;
/// Most bytes in the name of a statistics tag.
pub const TAG_BYTES_MAX: usize = 64;
/// Most bytes of a callback URI, authority and path together.
pub const URI_BYTES_MAX: usize = 2048;
/// Most bytes of a callback URI in a message from another node. An original bounds no URI, and
/// every holder must be able to pop a timer that an original accepted. Timers and messages store
/// the length of a target in two bytes.
pub const URI_TOLD_BYTES_MAX: usize = 32 << 10;
/// Most bytes of a document in which another node tells a timer: the longest opaque data that
/// messages between nodes carry, with an escape for every byte.
pub const BODY_TOLD_BYTES_MAX: u32 = 4 << 20;
/// Most headers of one request or of one callback answer.
pub const HEADERS_MAX: usize = 64;
/// Most bytes of a chunk-size line with its extensions, and most bytes of all trailers together.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;

/// Shortest time for which a tombstone stays (docs/compat/timer-service.md §4).
pub const TOMBSTONE_MS_MIN: u64 = 10_000;
/// Milliseconds by which new ids run ahead of the wall clock at the start of a process. A burst may
/// bring ids as many milliseconds further ahead.
pub const CLOCK_LEAD_MS_MAX: u64 = 1_000;

/// Largest value that `callbacks.hosts_per_core_max` can have.
pub const HOSTS_PER_CORE_MAX: u32 = 65_000;
/// Most sites that hold one timer.
pub const SITES_PER_TIMER_MAX: usize = 8;
/// Most peers that a process can know: members of the site, present and past, and other sites.
pub const PEERS_MAX: usize = 128;
/// How much later each further rank starts a pop (docs/compat/timer-service.md §4).
pub const RANK_DELAY_MS: u64 = 2_000;

/// Limits that an operator can set in the section `[limits]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most records (timers and tombstones) of the node. The shards get equal parts.
    pub timers_max: u64,
    /// Most bytes of timer memory (records, index, payloads) of the node. The shards get equal
    /// parts.
    pub store_bytes_max: u64,
    /// Most bytes of a request body without its chunk framing.
    pub body_bytes_max: u32,
    /// Most bytes of a request head: request line and headers.
    pub header_bytes_max: u32,
    /// Most bytes of opaque data, after JSON unescaping.
    pub opaque_bytes_max: u32,
    /// Most client connections of a core.
    pub connections_per_core_max: u32,
    /// Most requests that a core takes from one connection in a turn. Further requests wait for the
    /// next turn.
    pub pipelined_requests_per_turn_max: u32,
    /// Most bytes of answers on one connection that the kernel has not taken. A connection with
    /// more is not read from.
    pub unsent_bytes_per_connection_max: u32,
    /// Most bytes of answers that all connections of a core hold. Above this number a request for a
    /// long answer (a GET of a large timer) gets 503 instead.
    pub unsent_bytes_per_core_max: u64,
    /// Most bytes of incomplete requests on all connections of a core. Above this number the
    /// connection that holds most of these bytes is answered 503.
    pub partial_bytes_per_core_max: u64,
    /// Milliseconds without a byte after which a client connection closes. A request must be
    /// complete within the same time.
    pub idle_timeout_ms: u64,
    /// Most messages in the queue from one core to another.
    pub mesh_queue_max: u32,
    /// Most pops that a core begins in one turn. Further pops follow in the next turns.
    pub pops_per_turn_max: u32,
    /// Microseconds for which a turn takes requests of clients, and those left over for as long
    /// again. A longer turn counts as over budget.
    pub turn_budget_us: u64,
    /// Most statistics tags with figures of their own. Further tags are counted together.
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

/// How callbacks are made: the section `[callbacks]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackLimits {
    /// Milliseconds for a whole attempt: name resolution, connect, request, status line
    /// (docs/compat/timer-service.md §1.3: 2 seconds).
    pub timeout_ms: u64,
    /// Most connections from one core to one callback host. A connection carries one request at a
    /// time.
    pub connections_per_host_max: u32,
    /// Most hosts per core whose pops run or wait at the same time. A pop for a further host is put
    /// off.
    pub hosts_per_core_max: u32,
    /// Most callbacks of one core that run at the same time, at all hosts together: as many as the
    /// core has files for (`node::files`).
    pub places_per_core_max: u32,
    /// Most pops of one core that wait for one host. At this number new timers for the host are
    /// refused with 503.
    pub queue_per_host_max: u32,
    /// Milliseconds of pause after the first failure of a callback. Every further failure doubles
    /// the pause.
    pub retry_first_ms: u64,
    /// Longest pause between two attempts, in milliseconds.
    pub retry_max_ms: u64,
    /// Milliseconds in which the last pop of a timer is retried before the pop is given up.
    pub give_up_ms: u64,
    /// Milliseconds after which an idle callback connection closes.
    pub idle_timeout_ms: u64,
    /// Milliseconds for which a core uses the addresses of a host name before it looks the name up
    /// again. The system's resolver tells no lifetime; the caches that it asks keep it.
    pub resolve_ttl_ms: u64,
    /// Longest time for which a tombstone stays, in milliseconds, whatever the timer's interval.
    pub tombstone_ms_max: u64,
    /// Whether callbacks say which timer they are of, when they were due, and which attempt they
    /// are.
    pub timer_headers: bool,
    /// What is kept of pops that are given up.
    pub dead_letters: DeadLetterLimits,
}

/// Pops that are given up and kept: the section `[dead_letters]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterLimits {
    /// Most dead letters of a core. The oldest leaves first. 0: none is kept.
    pub per_core_max: u32,
    /// Most bytes of the contents of a core's dead letters. The oldest leaves first.
    pub bytes_per_core_max: u64,
    /// Milliseconds for which a dead letter is kept.
    pub keep_ms: u64,
    /// Whether the last pops of timers without a retry policy are kept, too.
    pub plain: bool,
}

impl Default for DeadLetterLimits {
    fn default() -> Self {
        Self {
            per_core_max: 10_000,
            bytes_per_core_max: 64 << 20,
            keep_ms: 7 * 24 * 3600 * 1000,
            plain: false,
        }
    }
}

impl Default for CallbackLimits {
    fn default() -> Self {
        Self {
            timeout_ms: 2_000,
            connections_per_host_max: 64,
            hosts_per_core_max: 16_384,
            places_per_core_max: u32::MAX,
            queue_per_host_max: 4_000_000,
            retry_first_ms: 100,
            retry_max_ms: 5_000,
            give_up_ms: 60_000,
            idle_timeout_ms: 30_000,
            resolve_ttl_ms: 5_000,
            tombstone_ms_max: 24 * 3600 * 1000,
            timer_headers: true,
            dead_letters: DeadLetterLimits::default(),
        }
    }
}

/// How the nodes of a cluster watch and wait for each other: the section `[cluster]` of the
/// configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterLimits {
    /// Milliseconds between two heartbeats on a link.
    pub heartbeat_ms: u64,
    /// Milliseconds of silence after which a peer is suspected. Writes do not wait for a suspected
    /// peer.
    pub suspect_after_ms: u64,
    /// Milliseconds of silence after which a peer is dead. Other nodes move up for a dead peer, and
    /// no new timer is placed on it.
    pub dead_after_ms: u64,
    /// Milliseconds for which a tombstone stays longer while a node that should hold the timer
    /// cannot be reached. That node may return with a copy of the deleted timer.
    pub tombstone_hold_ms: u64,
    /// Whether the surviving ranks move up for a dead rank. If false, ranks stay as in
    /// docs/compat/timer-service.md §8.
    pub promotion: bool,
    /// Milliseconds by which two wall clocks may differ. A node whose clock differs more from the
    /// clocks of most members takes no writes. A node learns no version that lies further ahead of
    /// its clock.
    pub clock_skew_max_ms: u64,
    /// Most bytes that one core keeps for one peer until the peer has acknowledged them. If more
    /// were due, the peer is offered every timer again when it returns.
    pub link_bytes_max: u64,
    /// Most bytes from one core to one peer that are sent and not acknowledged.
    pub link_window_bytes: u64,
    /// Most client writes of one core that wait for replicas. Further writes get 503.
    pub writes_waiting_max: u32,
    /// When a client's write is acknowledged.
    pub acknowledge: Acknowledge,
}

/// When a client's write is acknowledged (`cluster.acknowledge`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Acknowledge {
    /// When every replica that is believed alive has the write.
    #[default]
    Replicas,
    /// When the first replica has the write: at once if this node is a replica.
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
