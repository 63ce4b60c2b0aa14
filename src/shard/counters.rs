//! What a shard counts. Plain numbers: the driver publishes them.

/// Counters since start, and gauges, of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Timers held now.
    pub timers: u64,
    /// Tombstones held now.
    pub tombstones: u64,
    /// Callbacks running now.
    pub in_flight: u64,
    /// Due pops waiting for a place at their host now.
    pub waiting: u64,
    /// Timers created, by POST or by PUT on an id not held.
    pub creates: u64,
    /// Timers replaced.
    pub updates: u64,
    /// Deletes accepted.
    pub deletes: u64,
    /// Timers read.
    pub reads: u64,
    /// Accepted but never popping (repeat-for shorter than interval).
    pub never_firing: u64,
    /// Requests refused at a limit.
    pub refused: u64,
    /// Callbacks that succeeded.
    pub delivered: u64,
    /// Callback attempts that failed.
    pub failed: u64,
    /// Failed attempts that got no answer in time.
    pub timed_out: u64,
    /// Attempts after the first of a pop.
    pub retried: u64,
    /// Attempts made again because a kept-alive connection was closed.
    pub stale: u64,
    /// Pops given up.
    pub given_up: u64,
    /// Dead letters held now.
    pub letters: u64,
    /// Bytes of the contents of the dead letters held now.
    pub letter_bytes: u64,
    /// Pops given up that became dead letters.
    pub letters_kept: u64,
    /// Pops given up that went to a URI for dead letters.
    pub letters_sent: u64,
    /// Dead letters that were tried again.
    pub letters_replayed: u64,
    /// Dead letters that clients deleted.
    pub letters_deleted: u64,
    /// Dead letters that left because there were too many, or too many bytes of them.
    pub letters_pushed_out: u64,
    /// Dead letters that left because of their age.
    pub letters_too_old: u64,
    /// Pops given up that left no dead letter for lack of room.
    pub letters_without_room: u64,
    /// Reports of pops made.
    pub reports_made: u64,
    /// Reports given up.
    pub reports_given_up: u64,
    /// Reports that were not made for lack of room.
    pub reports_without_room: u64,
    /// Timers ended because their server answered 410.
    pub gone: u64,
    /// Pauses, resumes and runs of clients that changed a timer.
    pub acted: u64,
    /// Pops of timers that follow the calendar, left out because they were missed for too long.
    pub missed: u64,
    /// Times that a due pop found all lanes taken and was put off.
    pub without_lane: u64,
    /// Times that a host with due pops found no place of the core, so that they wait.
    pub without_place: u64,
    /// Attempts that this node could not make because it lacked something.
    pub without_means: u64,
    /// Times that a due pop waited because of the rule of its destination.
    pub held_by_rule: u64,
    /// Results of callbacks whose timer was replaced or deleted meanwhile.
    pub outdated: u64,
    /// Entries that the wheel moved without popping them.
    pub wheel_moved: u64,
    /// Writes answered after other nodes had them.
    pub replicated: u64,
    /// Writes that wait for replicas now.
    pub writes_waiting: u64,
    /// Messages of peers.
    pub peer_messages: u64,
    /// Messages that peers refused.
    pub refused_by_peers: u64,
    /// Copies taken whose version lies further ahead than any clock learns.
    pub future_versions: u64,
    /// Copies of peers refused here for lack of room.
    pub copies_refused: u64,
    /// Offers of peers for timers, or states of timers, that this node lacked.
    pub copies_wanted: u64,
    /// Whether a copy was refused lately for lack of room (0 or 1).
    pub is_full: u64,
    /// Timers that lack a copy now: a node that is to hold them has no room.
    pub lacking: u64,
    /// Pops left to the next rank after a failure.
    pub handed_over: u64,
    /// Timers moved to another list of replicas.
    pub moved: u64,
    /// Timers known to be in the wrong place now.
    pub misplaced: u64,
    /// Walks through all records that go on now (0 or 1).
    pub walks: u64,
    /// Records that the present walk has seen.
    pub walk_seen: u64,
    /// Timers given to nodes that asked for pages.
    pub collected: u64,
    /// Timers told for pages of lists.
    pub listed: u64,
    /// Looks made for lists, of some 10 ns each.
    pub list_looks: u64,
    /// Timers forgotten because all nodes that are to hold them have taken them over.
    pub released: u64,
    /// Peers that may lack something that they were to be told.
    pub peers_lacking: u64,
    /// Timers that ended while this node was away, for longer than tombstones stay.
    pub ended_away: u64,
    /// Tombstones of several sites that ended while a node or site that may have the timer was
    /// away.
    pub tombstones_ended_early: u64,
    /// Offers of timers to peers that have no answer yet.
    pub offers_waiting: u64,
    /// Milliseconds that the oldest undelivered pop was overdue when last looked at.
    pub oldest_overdue_ms: u64,
}
