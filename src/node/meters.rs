//! What a core counts, readable from other threads without stopping the core. The core alone writes
//! (relaxed stores of its own counters, no read-modify-write), and the control thread reads.

// May panic: indices 7.
// Why it does not: fixed 2, peers 5.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::base::ids::PeerIndex;
use crate::base::limits::PEERS_MAX;
use crate::cluster::detector::Liveness;
use crate::core::peers::site_watch::SiteStanding;
use crate::shard::effects::Dialect;

use crate::node::callbacks::dialling::FailureFeed;
use crate::node::give_ups::GiveUpFeed;
use crate::node::tag_feed::TagFeed;

/// A number that one core writes and any thread reads.
#[derive(Debug, Default)]
pub struct Meter(AtomicU64);

impl Meter {
    /// Adds `n`. Only the owning core may call this.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Sets the number. Only the owning core may call this.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// Sets the number if `n` is larger. Only the owning core may call this.
    #[inline]
    pub fn raise(&self, n: u64) {
        if n > self.0.load(Relaxed) {
            self.0.store(n, Relaxed);
        }
    }

    /// Returns the number. Any thread may call this.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of the histogram buckets in microseconds. One more bucket counts durations above
/// the last bound.
pub const BUCKETS_US: [u64; 20] = [
    50, 100, 200, 300, 500, 750, 1_000, 1_500, 2_000, 3_000, 5_000, 7_500, 10_000, 20_000, 50_000,
    100_000, 500_000, 1_000_000, 5_000_000, 60_000_000,
];

/// A histogram of durations with the buckets of [`BUCKETS_US`].
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Meter; BUCKETS_US.len() + 1],
    sum_us: Meter,
}

impl Histogram {
    /// Records one duration. Only the owning core may call this.
    #[inline]
    pub fn record_us(&self, us: u64) {
        let bucket = BUCKETS_US.partition_point(|&bound| bound < us);
        self.buckets[bucket].add(1);
        self.sum_us.add(us);
    }

    /// Returns the counts per bucket (not cumulative) and the sum in microseconds. Any thread may
    /// call this.
    pub fn read(&self) -> ([u64; BUCKETS_US.len() + 1], u64) {
        (std::array::from_fn(|i| self.buckets[i].get()), self.sum_us.get())
    }
}

/// Bytes of messages that a core keeps for its peers until they have acknowledged them, by the
/// numbers of the peers.
#[derive(Debug)]
pub struct KeptBytes([Meter; PEERS_MAX]);

impl Default for KeptBytes {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Meter::default()))
    }
}

impl std::ops::Deref for KeptBytes {
    type Target = [Meter; PEERS_MAX];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// How the other sites stand as one core sees them, by their numbers in its view.
#[derive(Debug)]
pub struct SiteBoard([SiteMeters; PEERS_MAX]);

/// The figures of one [`SiteStanding`], and whether there are any.
#[derive(Debug, Default)]
struct SiteMeters {
    is_known: Meter,
    is_reached: Meter,
    for_ms: Meter,
    waiting: Meter,
    lag_ms: Meter,
    to_offer: Meter,
    /// A number of 64 bits with its sign; [`UNTOLD`] for none.
    ahead_ms: Meter,
    /// [`UNTOLD`] for none.
    differs_ms: Meter,
}

/// In place of a figure that nobody told.
const UNTOLD: u64 = 1 << 63;

impl Default for SiteBoard {
    fn default() -> Self {
        Self(std::array::from_fn(|_| SiteMeters::default()))
    }
}

impl SiteBoard {
    /// Sets how a site stands. Only the owning core may call this.
    pub fn set(&self, site: PeerIndex, standing: &SiteStanding) {
        let meters = &self.0[site.index()];
        meters.is_reached.set(u64::from(standing.is_reached));
        meters.for_ms.set(standing.for_ms);
        meters.waiting.set(standing.waiting);
        meters.lag_ms.set(standing.lag_ms);
        meters.to_offer.set(standing.to_offer);
        meters.ahead_ms.set(standing.ahead_ms.map_or(UNTOLD, i64::cast_unsigned));
        meters.differs_ms.set(standing.differs_ms.unwrap_or(UNTOLD));
        meters.is_known.set(1);
    }

    /// Returns how a site stood last. `None`: the core has never had a site of this number. Any
    /// thread may call this.
    pub fn get(&self, site: PeerIndex) -> Option<SiteStanding> {
        let meters = &self.0[site.index()];
        let told = |meter: &Meter| Some(meter.get()).filter(|figure| *figure != UNTOLD);
        (meters.is_known.get() == 1).then(|| SiteStanding {
            is_reached: meters.is_reached.get() == 1,
            for_ms: meters.for_ms.get(),
            waiting: meters.waiting.get(),
            lag_ms: meters.lag_ms.get(),
            to_offer: meters.to_offer.get(),
            ahead_ms: told(&meters.ahead_ms).map(u64::cast_signed),
            differs_ms: told(&meters.differs_ms),
        })
    }
}

/// What a core believes of its peers, by their numbers in its view.
#[derive(Debug)]
pub struct Beliefs([AtomicU8; PEERS_MAX]);

/// The value of a belief that was never set: the peer was never known.
const UNKNOWN: u8 = 0xff;
/// Set in the belief of a peer that speaks HTTP.
const HTTP: u8 = 0x10;
/// Set in the belief of a peer to which the core has a connection over TLS.
const TLS: u8 = 0x20;

impl Default for Beliefs {
    fn default() -> Self {
        Self([const { AtomicU8::new(UNKNOWN) }; PEERS_MAX])
    }
}

impl Beliefs {
    /// Sets the belief of a peer. Only the owning core may call this.
    pub fn set(&self, peer: PeerIndex, liveness: Liveness, dialect: Dialect, is_tls: bool) {
        let http = if dialect == Dialect::Http { HTTP } else { 0 };
        let tls = if is_tls { TLS } else { 0 };
        self.0[peer.index()].store(liveness as u8 | http | tls, Relaxed);
    }

    /// Whether the core has a connection to the peer that goes over TLS. Any thread may call this.
    pub fn is_tls(&self, peer: PeerIndex) -> bool {
        let belief = self.0[peer.index()].load(Relaxed);
        belief != UNKNOWN && belief & TLS != 0
    }

    /// Returns the last belief. Any thread may call this. `None`: the core never kept a connection
    /// with the peer.
    pub fn get(&self, peer: PeerIndex) -> Option<(Liveness, Dialect)> {
        let belief = self.0[peer.index()].load(Relaxed);
        let dialect = if belief & HTTP == 0 { Dialect::Frames } else { Dialect::Http };
        let liveness = match belief & !(HTTP | TLS) {
            _ if belief == UNKNOWN => return None,
            0 => Liveness::Alive,
            1 => Liveness::Suspect,
            _ => Liveness::Dead,
        };
        Some((liveness, dialect))
    }
}

macro_rules! meters {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ident,)+) => {
        /// Everything that one core counts. Names, kinds and help texts of `/metrics` are made from
        /// this one list.
        #[derive(Debug, Default)]
        pub struct CoreMeters {
            $($(#[doc = $doc])+ pub $name: $kind,)+
            /// Per pop, the time from its due tick to the turn that begins the first attempt.
            pub lateness: Histogram,
            /// The length of turns, without the wait.
            pub turn: Histogram,
            /// The time from giving a piece of the journal to the ring until the disk has it.
            pub journal_sync: Histogram,
            /// Changes of statistics tags for the control thread.
            pub tags: TagFeed,
            /// Failures of callbacks over TLS for the control thread.
            pub tls_failures: FailureFeed,
            /// Pops that were given up, for the control thread.
            pub give_ups: GiveUpFeed,
            /// What the core believes of each peer.
            pub beliefs: Beliefs,
            /// Bytes that the core keeps for each peer.
            pub kept_bytes: KeptBytes,
            /// How the other sites stand.
            pub sites: SiteBoard,
        }

        impl CoreMeters {
            /// Returns every plain meter: its name, whether it is a counter, its help and its
            /// value.
            pub fn list(&self) -> Vec<(&'static str, bool, &'static str, u64)> {
                vec![$((stringify!($name), kind::$kind, concat!($($doc),+), self.$name.get()),)+]
            }
        }
    };
}

/// A meter that only grows.
pub type Counter = Meter;
/// A meter that goes up and down.
pub type Gauge = Meter;

#[allow(non_upper_case_globals)]
mod kind {
    pub const Counter: bool = true;
    pub const Gauge: bool = false;
}

meters! {
    /// Timers held (tombstones not counted).
    timers: Gauge,
    /// Tombstones held.
    tombstones: Gauge,
    /// Timers created.
    creates: Counter,
    /// Timers replaced by PUT.
    updates: Counter,
    /// Deletes accepted, of known and unknown ids.
    deletes: Counter,
    /// Timers read by GET.
    reads: Counter,
    /// Timers told for pages of lists, to cores and nodes that put pages together.
    listed: Counter,
    /// Looks at timers for lists and counts, of some 10 ns each.
    list_looks: Counter,
    /// Jobs that run.
    jobs_running: Gauge,
    /// Timers accepted that will never pop because repeat-for is shorter than the interval.
    never_firing: Counter,
    /// Callbacks answered 2xx.
    pops_delivered: Counter,
    /// Callback attempts that failed: refused, timed out, broken off, or answered with another
    /// status.
    pops_failed: Counter,
    /// Callback attempts that got no answer in time (also counted as failed).
    pops_timed_out: Counter,
    /// Pops given up: no attempt succeeded before the next interval or the limit.
    pops_given_up: Counter,
    /// Timers with a retry policy that ended because their server answered 410.
    timers_gone: Counter,
    /// Pauses, resumes and runs of clients that changed a timer.
    timers_acted: Counter,
    /// Paused timers of which this node is the first to pop.
    timers_paused: Gauge,
    /// Pops of timers that follow the calendar, left out because they were missed for longer than
    /// their `catch-up-window`.
    pops_missed: Counter,
    /// Dead letters held on this node now, each once on every node that holds it.
    dead_letters: Gauge,
    /// Bytes of the contents of the dead letters held on this node now.
    dead_letter_bytes: Gauge,
    /// Pops given up that became dead letters.
    dead_letters_kept: Counter,
    /// Pops given up that went to the URI for dead letters of their timers.
    dead_letters_sent: Counter,
    /// Dead letters whose pops were tried again.
    dead_letters_replayed: Counter,
    /// Dead letters that clients deleted.
    dead_letters_deleted: Counter,
    /// Dead letters that left because there were too many, or too many bytes of them.
    dead_letters_dropped_for_number: Counter,
    /// Dead letters that left because of their age.
    dead_letters_dropped_for_age: Counter,
    /// Pops given up that left no dead letter because there was no room for it.
    dead_letters_dropped_for_room: Counter,
    /// Reports of pops to `on-success` and `on-failure`, each counted where it was made.
    reports_made: Counter,
    /// Reports that no server took.
    reports_given_up: Counter,
    /// Reports that were not made because there was no room for them.
    reports_dropped_for_room: Counter,
    /// Attempts after the first of a pop.
    pops_retried: Counter,
    /// Pops waiting for a place at their callback host.
    pops_waiting: Gauge,
    /// Callbacks sent and not yet answered.
    pops_in_flight: Gauge,
    /// How long the oldest undelivered pop is overdue.
    oldest_overdue_ms: Gauge,
    /// Requests answered, by any status.
    requests: Counter,
    /// Requests refused with 4xx.
    requests_bad: Counter,
    /// Requests refused with 503 at a limit.
    requests_refused: Counter,
    /// Requests refused because they had no token.
    requests_without_token: Counter,
    /// Requests refused because their token is not known.
    requests_of_unknown_token: Counter,
    /// Requests refused because the role of their token may not make them.
    requests_beyond_role: Counter,
    /// Creates refused because their token's name had as many timers as it may (429).
    requests_beyond_timers: Counter,
    /// Creates refused because they were beyond the rate of their token's name (429).
    requests_beyond_create_rate: Counter,
    /// Requests refused because their token's name had as many connections as it may (429).
    requests_beyond_connections: Counter,
    /// Client connections open.
    connections: Gauge,
    /// Client connections accepted.
    connections_accepted: Counter,
    /// Client connections refused or failed at accept.
    connections_refused: Counter,
    /// TLS handshakes of clients that ended well, those of timestamps among them.
    tls_handshakes: Counter,
    /// TLS handshakes that went on where a former connection ended.
    tls_resumed: Counter,
    /// TLS connections ended by what came over them: no TLS, or no good certificate.
    tls_failed: Counter,
    /// When the certificate for clients expires, in seconds since 1970; 0 without one.
    tls_certificate_expiry_timestamp_seconds: Gauge,
    /// When the certificate for other nodes expires, in seconds since 1970; 0 without one.
    peer_certificate_expiry_timestamp_seconds: Gauge,
    /// Callback connections open.
    callback_connections: Gauge,
    /// Callbacks denied because a node of this deployment listens there.
    callbacks_denied_node: Counter,
    /// Callbacks denied by a rule of callbacks.deny.
    callbacks_denied_rule: Counter,
    /// Callbacks denied because the address is link-local.
    callbacks_denied_link_local: Counter,
    /// Callbacks denied because the address is that of a metadata service.
    callbacks_denied_metadata: Counter,
    /// Callbacks denied because no rule of callbacks.allow names host or address.
    callbacks_denied_not_allowed: Counter,
    /// TLS handshakes with callback servers that ended well.
    callbacks_tls_handshakes: Counter,
    /// TLS handshakes with callback servers that went on where a former connection ended.
    callbacks_tls_resumed: Counter,
    /// Callbacks over TLS that failed because no authority that is believed has signed the
    /// server's certificate.
    callbacks_tls_unknown_authority: Counter,
    /// Callbacks over TLS that failed because the server's certificate is of another name.
    callbacks_tls_wrong_name: Counter,
    /// Callbacks over TLS that failed because the server's certificate has expired, or does not
    /// hold yet.
    callbacks_tls_untimely: Counter,
    /// Callbacks over TLS that failed because the server's certificate is bad for another reason.
    callbacks_tls_bad_certificate: Counter,
    /// Callbacks over TLS that failed because the server told an error (an alert).
    callbacks_tls_alerts: Counter,
    /// Callbacks over TLS that failed because what the server sent is no TLS that this node speaks.
    callbacks_tls_protocol_errors: Counter,
    /// Callbacks over TLS that failed because the server did not end the handshake.
    callbacks_tls_unfinished: Counter,
    /// Callbacks over TLS that failed because this node believes no authority.
    callbacks_tls_no_authorities: Counter,
    /// Callback hosts that timers name.
    callback_hosts: Gauge,
    /// Callback hosts with a lane: those that had a pop, until another needs it.
    callback_lanes: Gauge,
    /// Times that a due pop found all lanes taken and was put off.
    pops_without_lane: Counter,
    /// Times that due pops of a host found no place for callbacks on their core, which has as many
    /// as the process may open files for, and waited for one.
    pops_without_place: Counter,
    /// Attempts that this node could not make because it lacked something: a file, a local port,
    /// memory, a place for looking up the host's name, time for the handshake. The pop was put off.
    pops_lacking: Counter,
    /// Times that a due pop waited because of the rule of its destination: for its rate, for a
    /// place, or for the end of a pause.
    pops_held_by_rule: Counter,
    /// Bytes of timer memory in use.
    store_bytes: Gauge,
    /// Bytes of timer memory held: in use, or left over between payloads.
    store_held_bytes: Gauge,
    /// Bytes of requests begun and not complete.
    partial_bytes: Gauge,
    /// Bytes of answers that clients have not taken yet.
    unsent_bytes: Gauge,
    /// Answers refused with 503 because those before them were not taken.
    answers_refused: Counter,
    /// Client connections closed because they took no answers while others had no room for theirs.
    stuck_closed: Counter,
    /// Messages to other cores.
    mesh_sent: Counter,
    /// Requests refused because the queue to another core was full.
    mesh_full: Counter,
    /// Most messages seen waiting in this core's inbound queues since start.
    mesh_depth_max: Gauge,
    /// Wake-ups sent to sleeping cores.
    mesh_wakes: Counter,
    /// Client writes answered after other nodes had them too.
    writes_replicated: Counter,
    /// Client writes that wait for replicas.
    writes_waiting: Gauge,
    /// Pops left to the next rank after a failed callback.
    pops_handed_over: Counter,
    /// Timers moved to another list of replicas.
    timers_moved: Counter,
    /// Timers known to be in the wrong place.
    timers_misplaced: Gauge,
    /// Timers that lack a copy: a node that is to hold them has no room.
    timers_lacking: Gauge,
    /// Copies of peers refused here for lack of room.
    copies_refused: Counter,
    /// Offers of peers for timers, or states of timers, that this node lacked.
    copies_wanted: Counter,
    /// Whether one was refused in the last 20 s: 1 or 0.
    node_full: Gauge,
    /// Walks through all records that go on: resynchronisation or rebalancing.
    walks: Gauge,
    /// Records that the present walk has looked at.
    walk_seen: Gauge,
    /// Peers that may lack something that they were to be told.
    peers_lacking: Gauge,
    /// Timers that ended while this node was away, for longer than tombstones stay.
    timers_ended_away: Counter,
    /// Tombstones of several sites that ended while a node or site that may have the timer was
    /// away.
    tombstones_ended_early: Counter,
    /// Offers of timers to peers that have no answer yet.
    offers_waiting: Gauge,
    /// Commands of the control thread that the core has taken: new configurations and
    /// resynchronisations.
    commands_taken: Counter,
    /// Messages that peers refused.
    peer_messages_refused: Counter,
    /// Copies taken whose version lies further ahead of the clock than any clock learns.
    future_versions: Counter,
    /// How far this node's wall clock is from that of the member or the other site that differs
    /// most.
    clocks_apart_ms: Gauge,
    /// Whether most members agree on another time than this node's, which takes no writes: 1 or 0.
    clock_refused: Gauge,
    /// Whether calendars go by another time than the wall clock shows: 1 or 0.
    clock_doubted: Gauge,
    /// Whether clients' writes are refused, for whatever reason but room: 1 or 0.
    writes_refused: Gauge,
    /// Times that a member's wall clock was found too far from this node's.
    clock_alarms: Counter,
    /// Times that most members were found to agree on another time.
    clock_refusals: Counter,
    /// Nodes of the cluster that this core believes alive, other sites not counted.
    peers_alive: Gauge,
    /// Nodes of the cluster that this core suspects: silent, or their connection broke.
    peers_suspect: Gauge,
    /// Nodes of the cluster that this core has declared dead.
    peers_dead: Gauge,
    /// Connections that peers have to this core.
    peer_connections: Gauge,
    /// Messages kept for peers until they have acknowledged them.
    peer_messages_kept: Gauge,
    /// Bytes sent to peers, over connections of either side.
    peer_sent_bytes: Counter,
    /// Bytes received from peers, over connections of either side.
    peer_received_bytes: Counter,
    /// Messages to peers that their links took.
    peer_messages_sent: Counter,
    /// Messages taken from peers.
    peer_messages_received: Counter,
    /// Messages to peers that did not fit their link; what they told is offered again.
    peer_messages_dropped: Counter,
    /// Messages from peers that made no sense.
    peer_messages_malformed: Counter,
    /// Messages from peers answered busy, as the queue to the owning core was full.
    peer_messages_busy: Counter,
    /// Connections to peers that were established.
    peer_connects: Counter,
    /// Connections to peers that failed or broke.
    peer_losses: Counter,
    /// Connections to peers that these refused: this node is no member for them, or another process
    /// has its name.
    peer_refusals: Counter,
    /// Connections with peers closed because no valid frame came over them.
    peer_protocol_errors: Counter,
    /// Connections of peers closed because all of them together held too many bytes.
    peer_connections_shed: Counter,
    /// Connections with nodes that are no members, or another than the one dialled.
    peer_strangers: Counter,
    /// Copies that another site did not take, and refusals of this node by a site that has refused
    /// it for 10 s.
    site_refusals: Counter,
    /// Other sites that this core does not reach.
    sites_unreached: Gauge,
    /// For how long this core has not reached the site that has been out of reach longest.
    site_unreached_ms: Gauge,
    /// Age of the oldest write that another site was not told: it waits for an answer, or the site
    /// was away and has not been offered everything since.
    site_lag_ms: Gauge,
    /// Messages to other sites that wait for their answers.
    site_messages_kept: Gauge,
    /// Timers and tombstones that are still to be looked at, and offered to a site that was added
    /// or is back, for all such sites together.
    site_timers_to_offer: Gauge,
    /// For how long another site has had another list of sites than this node.
    site_lists_differ_ms: Gauge,
    /// Connections and requests between nodes refused because one end does not prove that it knows
    /// the cluster's secret.
    peer_unproven: Counter,
    /// Connections with peers that go over TLS, dialled and accepted.
    peer_tls_connections: Gauge,
    /// Connections with peers ended because of TLS: one end speaks none, does not take the other
    /// one's certificate, or sends what is no TLS.
    peer_tls_failed: Counter,
    /// Connections and requests of peers refused because they came without TLS.
    peer_plain_refused: Counter,
    /// Connections refused because two live processes say that they are the same node.
    peer_twins: Counter,
    /// Connections with nodes that have this node's instance and deployment ids.
    peer_same_instance: Counter,
    /// Connections with nodes that are configured with other members than this one.
    peer_other_view: Counter,
    /// Timers told by original nodes and other sites over the internal HTTP API.
    internal_copies: Counter,
    /// Malformed statistics tags that were left out of timers which other nodes told.
    internal_tags_dropped: Counter,
    /// Pages of timers asked for by other nodes.
    internal_pages: Counter,
    /// Timers on these pages.
    internal_page_timers: Counter,
    /// Timers that other nodes say they have taken over.
    internal_references: Counter,
    /// Timers forgotten because all nodes that are to hold them have taken them over.
    internal_timers_released: Counter,
    /// Requests to the internal HTTP API refused because they came from no member.
    internal_strangers: Counter,
    /// Timestamps handed out.
    timestamps: Counter,
    /// Requests answered with timestamps, over Thrift and HTTP.
    timestamp_calls: Counter,
    /// Requests that were answered with more than one timestamp.
    timestamp_ranges: Counter,
    /// Requests for timestamps that had to wait: for the next millisecond, as the present one's
    /// were used up, or for the bound to be stored.
    timestamp_waits: Counter,
    /// Requests for timestamps that wait; behind one of them its connection waits.
    timestamp_waiting: Gauge,
    /// Requests for timestamps refused because this node is not the master, or cannot prove it.
    timestamp_refusals_not_serving: Counter,
    /// Requests for timestamps refused because their range is missing, below 1 or too large.
    timestamp_refusals_range: Counter,
    /// Requests for timestamps refused because they had waited for a second, or too many waited.
    timestamp_refusals_waited: Counter,
    /// Requests for timestamps that name a method that does not exist.
    timestamp_unknown_methods: Counter,
    /// Requests whose timestamps were made and not sent, because the mastership ended before they
    /// left.
    timestamp_withheld: Counter,
    /// Connections for timestamps open.
    timestamp_connections: Gauge,
    /// Connections for timestamps accepted.
    timestamp_connections_accepted: Counter,
    /// Connections for timestamps closed at a limit.
    timestamp_connections_refused: Counter,
    /// Connections for timestamps closed because something came over them that is no request.
    timestamp_protocol_errors: Counter,
    /// Loop turns.
    turns: Counter,
    /// Loop turns longer than the budget.
    turns_over_budget: Counter,
    /// Loop turns longer than the budget that took requests of clients for most of it.
    turns_over_budget_of_requests: Counter,
    /// Loop turns longer than the budget that were mostly for pops.
    turns_over_budget_of_pops: Counter,
    /// Loop turns longer than the budget that were mostly for other arrivals: messages of peers and
    /// of other cores, handshakes, orders.
    turns_over_budget_of_arrivals: Counter,
    /// Loop turns longer than the budget that were mostly for messages to peers, the journal and
    /// answers.
    turns_over_budget_of_sends: Counter,
    /// Loop turns longer than the budget of which nothing is known: steps are timed only in the
    /// minute after such a turn.
    turns_over_budget_of_unknown: Counter,
    /// io_uring_enter calls.
    ring_enters: Counter,
    /// Calls of io_uring_enter for which the kernel had no memory.
    ring_shortages: Counter,
    /// Entries that the wheel moved without popping them.
    wheel_moved: Counter,
    /// CPU time of this core's thread.
    cpu_ns: Counter,
    /// Page faults of this core's thread: memory that was not ready when the core needed it.
    page_faults: Counter,
    /// Writes of the journal that the disk has.
    journal_writes: Counter,
    /// Entries in these writes.
    journal_entries: Counter,
    /// Bytes of these writes, with padding.
    journal_written_bytes: Counter,
    /// Segments of the journal that are needed.
    journal_segments: Gauge,
    /// Bytes that the journal would have if it held each timer once, about.
    journal_live_bytes: Gauge,
    /// Changes that the disk does not have yet.
    journal_lag: Gauge,
    /// Answers and results that wait for the disk.
    journal_waiting: Gauge,
    /// Segments emptied to be used again.
    journal_emptied: Counter,
    /// Segments that could not be made.
    journal_segment_failures: Counter,
    /// Whether the disk has no room for another segment: 1 or 0.
    journal_full: Gauge,
    /// Whether the disk does not answer: 1 or 0.
    journal_stalled: Gauge,
    /// Whether the files of the journal are not where a start looks for them: 1 or 0.
    journal_away: Gauge,
    /// Times that the disk stopped answering.
    journal_stalls: Counter,
    /// Whether the journal is being read after a start: 1 or 0.
    journal_recovering: Gauge,
    /// Bytes of the journal that the start has read.
    journal_recovered_bytes: Gauge,
    /// Bytes of the journal that the start reads.
    journal_recovery_bytes: Gauge,
    /// Timers that the start has taken from the journal.
    journal_recovered_timers: Gauge,
    /// Pops of these timers that were overdue.
    journal_overdue: Gauge,
    /// Places of the journal that could not be read at the start: blocks, segments and entries.
    journal_damaged: Gauge,
    /// How far the wall clock showed less than the newest page of the journal at the start.
    journal_clock_behind_ms: Gauge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beliefs_are_read_as_they_were_set() {
        let beliefs = Beliefs::default();
        assert_eq!((beliefs.get(PeerIndex(3)), beliefs.is_tls(PeerIndex(3))), (None, false));
        for liveness in [Liveness::Alive, Liveness::Suspect, Liveness::Dead] {
            for dialect in [Dialect::Frames, Dialect::Http] {
                for is_tls in [false, true] {
                    beliefs.set(PeerIndex(3), liveness, dialect, is_tls);
                    assert_eq!(beliefs.get(PeerIndex(3)), Some((liveness, dialect)));
                    assert_eq!(beliefs.is_tls(PeerIndex(3)), is_tls);
                }
            }
        }
    }
}
