//! The conditions that are alarms: docs/metrics.md has the same ones as expressions for Prometheus.

use crate::node::meters::CoreMeters;

/// How bad a condition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// Writes are refused, or timers are late or lost.
    Critical,
    /// Something is about to become so, or costs pops of one host.
    Warning,
}

impl Severity {
    pub(super) fn word(self) -> &'static str {
        match self {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
        }
    }
}

/// When a condition holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Test {
    /// The largest figure of a core is above this.
    Above(u64),
    /// The sum over cores has grown by at least so much in a minute.
    GrowsBy(u64),
}

/// One condition, in words.
pub(super) struct Condition {
    pub name: &'static str,
    pub severity: Severity,
    pub test: Test,
    figure: fn(&CoreMeters) -> u64,
    pub what: &'static str,
    /// What it means for timers.
    pub effect: &'static str,
    pub remedy: &'static str,
}

impl Condition {
    /// The figure of the node: the largest of its cores, or their sum.
    pub(super) fn figure(&self, meters: &[CoreMeters]) -> u64 {
        let figures = meters.iter().map(self.figure);
        match self.test {
            Test::Above(_) => figures.max().unwrap_or(0),
            Test::GrowsBy(_) => figures.fold(0, u64::wrapping_add),
        }
    }

    /// What the figure counts.
    pub(super) fn unit(&self) -> &'static str {
        match self.test {
            Test::GrowsBy(_) => "in the last minute",
            Test::Above(1_000..) => "ms",
            Test::Above(_) => "",
        }
    }
}

const CRITICAL: Severity = Severity::Critical;
const WARNING: Severity = Severity::Warning;

/// All conditions.
pub(super) const CONDITIONS: [Condition; 35] = [
    Condition {
        name: "writes-refused",
        severity: CRITICAL,
        test: Test::Above(0),
        figure: |core| core.writes_refused.get(),
        what: "This node takes no writes.",
        effect: "Clients get 503 for creates, updates and deletes. What is held pops as ever.",
        remedy: "Look at the other alarms and at the page of the cluster: they name the cause.",
    },
    Condition {
        name: "node-full",
        severity: CRITICAL,
        test: Test::Above(0),
        figure: |core| core.node_full.get(),
        what: "The node is at its limit of timers or of memory.",
        effect: "Other nodes stand in for it. Where none can, writes are answered 503.",
        remedy: "Compare timers and memory with limits.timers_max and limits.store_bytes_max; \
                 raise these or add a node.",
    },
    Condition {
        name: "journal-stalled",
        severity: CRITICAL,
        test: Test::Above(0),
        figure: |core| core.journal_stalled.get(),
        what: "The disk under the journal does not answer.",
        effect: "Writes are answered 503. Pops and reads go on; what was acknowledged is kept.",
        remedy: "Look at the disk (dmesg, iostat). The node goes on when the disk answers.",
    },
    Condition {
        name: "journal-full",
        severity: CRITICAL,
        test: Test::Above(0),
        figure: |core| core.journal_full.get(),
        what: "The disk has no room for another segment of the journal.",
        effect: "Writes are answered 503. Pops and reads go on.",
        remedy: "Make room on that disk. The node tries again every second.",
    },
    Condition {
        name: "journal-away",
        severity: CRITICAL,
        test: Test::Above(0),
        figure: |core| core.journal_away.get(),
        what: "The data directory, or a part of it, is not where it was.",
        effect: "Writes are answered 503. Pops and reads go on. A start begins without what is \
                 missing.",
        remedy: "Put it back as it was (mount, mv): what was acknowledged is in it. The node goes \
                 on at once.",
    },
    Condition {
        name: "journal-damaged",
        severity: CRITICAL,
        test: Test::Above(0),
        figure: |core| core.journal_damaged.get(),
        what: "The disk has lost or changed what was on it.",
        effect: "What other nodes hold comes back from them. What this node alone held is lost.",
        remedy: "chronos journal check names the places. Look at the disk (dmesg, smartctl) and \
                 replace it.",
    },
    Condition {
        name: "clock-refused",
        severity: CRITICAL,
        test: Test::Above(0),
        figure: |core| core.clock_refused.get(),
        what: "The wall clock of this node differs from that of most other nodes.",
        effect: "Writes are answered 503. Pops and reads go on.",
        remedy: "Set the clock (NTP). The node takes writes again within a second.",
    },
    Condition {
        name: "peer-twins",
        severity: CRITICAL,
        test: Test::GrowsBy(1),
        figure: |core| core.peer_twins.get(),
        what: "Two processes say that they are the same node.",
        effect: "Ids may be given out twice.",
        remedy: "Stop one of the two, or give one of them another address.",
    },
    Condition {
        name: "same-instance",
        severity: CRITICAL,
        test: Test::GrowsBy(1),
        figure: |core| core.peer_same_instance.get(),
        what: "Another node has the same node.instance_id.",
        effect: "Both may give out the same ids of timers.",
        remedy: "Give each node an instance_id of its own and restart it.",
    },
    Condition {
        name: "copies-dead",
        severity: CRITICAL,
        test: Test::Above(1),
        figure: |core| core.peers_dead.get(),
        what: "As many members of the cluster do not answer as a timer has copies (2, where the \
               client asks for no other number).",
        effect: "Timers that only these members hold do not pop until one of them is back with \
                 its journal. Other timers pop.",
        remedy: "Start these members again on their data directories. chronos cluster leave \
                 --dead gives up what only they hold.",
    },
    Condition {
        name: "pops-given-up",
        severity: CRITICAL,
        test: Test::GrowsBy(1),
        figure: |core| core.pops_given_up.get(),
        what: "Pops are given up: no attempt succeeded in time.",
        effect: "Clients do not get these pops. Timers with a retry policy leave dead letters.",
        remedy: "GET /destinations names the hosts that fail, the log the first pop of each. \
                 Repair them, then replay dead letters (chronos dead-letters replay); raise \
                 callbacks.give_up_ms if outages last longer.",
    },
    Condition {
        name: "oldest-overdue",
        severity: WARNING,
        test: Test::Above(5_000),
        figure: |core| core.oldest_overdue_ms.get(),
        what: "A pop is overdue by more than 5 s.",
        effect: "Pops of that callback host are late. Other hosts are not delayed.",
        remedy: "The page of destinations shows the host that fails, hangs or is paused. If none \
                 does, the node itself is behind: look at turns over budget.",
    },
    Condition {
        name: "peers-dead",
        severity: WARNING,
        test: Test::Above(0),
        figure: |core| core.peers_dead.get(),
        what: "Members of the cluster do not answer.",
        effect: "Timers of which a living member has a copy popped 2 s late once and are on time \
                 now. Another death may lose timers with factor 2.",
        remedy: "The page of the cluster shows who believes it. Restart the node, or replace it.",
    },
    Condition {
        name: "clocks-apart",
        severity: WARNING,
        test: Test::Above(60_000),
        figure: |core| core.clocks_apart_ms.get(),
        what: "The wall clock of a member or of another site differs from this node's by more \
               than a minute.",
        effect: "Of two writes to a timer on both sides of a split, the earlier may win; between \
                 sites, if it came less than 0.5 s before the other.",
        remedy: "Set the clock of the node that differs (NTP). chronos cluster status shows the \
                 clocks of sites.",
    },
    Condition {
        name: "clock-doubted",
        severity: WARNING,
        test: Test::Above(0),
        figure: |core| core.clock_doubted.get(),
        what: "Somebody has set the wall clock of this node. It is in doubt whether it is right.",
        effect: "Timers with cron go by the time of before: while other members contradict this \
                 clock, else for 30 s more.",
        remedy: "Look at the clock (NTP). If it is right, nothing is to be done.",
    },
    Condition {
        name: "timers-lacking",
        severity: WARNING,
        test: Test::Above(0),
        figure: |core| core.timers_lacking.get(),
        what: "Timers lack a copy: a node that is to hold them has no room.",
        effect: "A death may lose these timers.",
        remedy: "Add a node, or raise the limits of the node that is full.",
    },
    Condition {
        name: "requests-refused",
        severity: WARNING,
        test: Test::GrowsBy(1),
        figure: |core| core.requests_refused.get(),
        what: "Requests are refused at a limit.",
        effect: "Clients get 503 or 429. The header Reason names the limit.",
        remedy: "Compare the figures of the overview with [limits] of the configuration.",
    },
    Condition {
        name: "hosts-without-lane",
        severity: WARNING,
        test: Test::GrowsBy(1),
        figure: |core| core.pops_without_lane.get(),
        what: "More callback hosts than callbacks.hosts_per_core_max have pops at the same time.",
        effect: "Pops of the hosts beyond are late by 500 ms and more.",
        remedy: "Find out who names so many hosts; raise callbacks.hosts_per_core_max.",
    },
    Condition {
        name: "callbacks-lacking",
        severity: WARNING,
        test: Test::GrowsBy(1),
        figure: |core| core.pops_without_place.get() + core.pops_lacking.get(),
        what: "Callbacks lack files, ports or memory of this node.",
        effect: "Pops are late. None is given up for it.",
        remedy: "Raise the limit of open files (LimitNOFILE); find the hosts that hang.",
    },
    Condition {
        name: "callbacks-denied",
        severity: WARNING,
        test: Test::GrowsBy(1),
        figure: |core| {
            core.callbacks_denied_node.get()
                + core.callbacks_denied_rule.get()
                + core.callbacks_denied_link_local.get()
                + core.callbacks_denied_metadata.get()
                + core.callbacks_denied_not_allowed.get()
        },
        what: "Timers name hosts to which no callback may go.",
        effect: "Those pops are given up at once.",
        remedy: "If the host is meant to be reached, name it in callbacks.allow; otherwise find \
                 the client.",
    },
    Condition {
        name: "callbacks-tls",
        severity: WARNING,
        test: Test::GrowsBy(1),
        figure: |core| {
            core.callbacks_tls_unknown_authority.get()
                + core.callbacks_tls_wrong_name.get()
                + core.callbacks_tls_untimely.get()
                + core.callbacks_tls_bad_certificate.get()
                + core.callbacks_tls_alerts.get()
                + core.callbacks_tls_protocol_errors.get()
                + core.callbacks_tls_unfinished.get()
                + core.callbacks_tls_no_authorities.get()
        },
        what: "TLS with a callback server fails.",
        effect: "Its pops are retried, and given up in time.",
        remedy: "The log names the host and the reason.",
    },
    Condition {
        name: "turns-over-budget",
        severity: WARNING,
        test: Test::GrowsBy(60),
        figure: |core| core.turns_over_budget.get(),
        what: "Turns of a core take too long.",
        effect: "All pops of that core wait for the turn.",
        remedy: "A herd of pops, slow memory, or another program on that core: leave the core to \
                 the node, or lower limits.pops_per_turn_max.",
    },
    Condition {
        name: "mesh-full",
        severity: WARNING,
        test: Test::GrowsBy(1),
        figure: |core| core.mesh_full.get(),
        what: "One core gets more from the others than it takes.",
        effect: "Requests for its timers are answered 503.",
        remedy: "Look whether that core is full; raise limits.mesh_queue_max for bursts only.",
    },
    Condition {
        name: "connections-refused",
        severity: WARNING,
        test: Test::GrowsBy(1),
        figure: |core| core.connections_refused.get(),
        what: "Connections of clients are refused.",
        effect: "Clients cannot connect.",
        remedy: "Raise ulimit -n or limits.connections_per_core_max; look for clients that leak \
                 connections.",
    },
    Condition {
        name: "peer-strangers",
        severity: WARNING,
        test: Test::GrowsBy(1),
        figure: |core| core.peer_strangers.get() + core.peer_refusals.get(),
        what: "Nodes refuse each other: one is no member in the other's configuration.",
        effect: "They do not copy timers to each other.",
        remedy: "Make the configurations of all nodes agree; stop a node that was removed.",
    },
    Condition {
        name: "site-refusals",
        severity: CRITICAL,
        test: Test::GrowsBy(1),
        figure: |core| core.site_refusals.get(),
        what: "Another site takes nothing from this node.",
        effect: "It does not hold this site's timers, and hears of no change to them.",
        remedy: "The [sites] of both must name each other, and both need the same secret, or TLS \
                 of one authority. Stop this site if it was removed from the others.",
    },
    Condition {
        name: "tombstones-ended-early",
        severity: WARNING,
        test: Test::GrowsBy(1),
        figure: |core| core.tombstones_ended_early.get(),
        what: "A site or a node is away for longer than this node remembers what has ended.",
        effect: "When it comes back, what was deleted or popped meanwhile may pop again.",
        remedy: "Start it, or raise limits.timers_max. If it is away for good, take it out of the \
                 files, and let it come back without its data directories.",
    },
    Condition {
        name: "site-unreached",
        severity: WARNING,
        test: Test::Above(30_000),
        figure: |core| core.site_unreached_ms.get(),
        what: "Another site has not been reached for more than 30 s.",
        effect: "Its timers pop late. What is deleted meanwhile comes back with it, if it is away \
                 for more than a day.",
        remedy: "chronos cluster status shows which nodes reach which site. Look at the network \
                 between them, and whether the site runs.",
    },
    Condition {
        name: "site-behind",
        severity: WARNING,
        test: Test::Above(60_000),
        figure: |core| core.site_lag_ms.get(),
        what: "Another site has not been told for more than a minute what was written here.",
        effect: "It answers reads, and pops, by what it knows. If this site is lost, so are the \
                 writes that it alone has.",
        remedy: "chronos cluster status shows what waits, and what is still to be offered to a \
                 site that was added or is back. Is it full (node-full there)?",
    },
    Condition {
        name: "site-lists-differ",
        severity: WARNING,
        test: Test::Above(60_000),
        figure: |core| core.site_lists_differ_ms.get(),
        what: "Another site has had another list of sites for more than a minute.",
        effect: "A site that one of them does not name gets no writes from it, and no timers.",
        remedy: "Name the same sites in [sites] of all nodes of all sites, and send SIGHUP.",
    },
    Condition {
        name: "peers-unproven",
        severity: WARNING,
        test: Test::GrowsBy(1),
        figure: |core| core.peer_unproven.get(),
        what: "Nodes do not prove to each other that they know the cluster's secret.",
        effect: "They do not copy timers to each other.",
        remedy: "Give all nodes the same cluster.secret_file.",
    },
    Condition {
        name: "peers-tls",
        severity: WARNING,
        test: Test::GrowsBy(1),
        figure: |core| core.peer_tls_failed.get() + core.peer_plain_refused.get(),
        what: "Nodes do not come to TLS with each other, or come without.",
        effect: "They do not copy timers to each other.",
        remedy: "Give every node cluster.tls and a certificate of cluster.tls_ca in its own name.",
    },
    Condition {
        name: "journal-clock",
        severity: WARNING,
        test: Test::Above(1_000),
        figure: |core| core.journal_clock_behind_ms.get(),
        what: "The wall clock shows less than the journal's newest page.",
        effect: "Timers may pop late by as much, never early.",
        remedy: "Set the clock (NTP) and restart the node.",
    },
    Condition {
        name: "ring-memory",
        severity: WARNING,
        test: Test::GrowsBy(1),
        figure: |core| core.ring_shortages.get(),
        what: "The kernel has no memory for a core's input and output.",
        effect: "The core asks again, and is late meanwhile.",
        remedy: "Free memory, or give the process more.",
    },
    Condition {
        name: "unknown-tokens",
        severity: WARNING,
        test: Test::GrowsBy(1),
        figure: |core| core.requests_of_unknown_token.get(),
        what: "Requests come with a token that is not in auth.tokens_file.",
        effect: "They are answered 401.",
        remedy: "A client has an old token, this node lacks a line that others have, or somebody \
                 guesses.",
    },
];
