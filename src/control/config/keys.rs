//! The one table of configuration keys. Parser, suggestions, ranges, environment variables,
//! `--print-config`, `tuning/reference.toml` and the help of the flags are all made from this
//! table. Defaults come from `Default` of the settings. Nothing about a key stands anywhere else.

// May panic: expectations 6.
// Why it does not: configured 6.

use super::key::{Key, Section};
use super::keys_admin as admin;
use super::keys_dead_letters as dead_letters;
use super::keys_listeners as listeners;
use super::keys_peer_tls as peer_tls;
use super::settings::Config;
use super::timestamp::{Authentication, Coordination};
use super::value::{Value, ValueKind};
use crate::base::limits::{
    Acknowledge, HOSTS_PER_CORE_MAX, INTERVAL_MS_MAX, SHARDS_MAX, TOMBSTONE_MS_MIN,
};
use crate::node::callbacks::policy::{Rule, texts_of};
use crate::node::settings::JournalMode;
use crate::tls::acceptor::ClientAuth;
use crate::wire::destination::{parse_line, write_line};

/// Every section, in the order of the reference file.
pub const SECTIONS: [Section; 12] = [
    Section { name: "node", help: "Where this node listens and what it runs on." },
    Section {
        name: "tls",
        help: "TLS for clients, beside the plain listener; the files are read again on SIGHUP.",
    },
    Section { name: "auth", help: "Who may use the API for clients." },
    Section { name: "limits", help: "Bounds; at each, requests are refused with 503, 413 or 431." },
    Section {
        name: "journal",
        help: "Timers on disk, so that they survive the restart of all nodes.",
    },
    Section { name: "callbacks", help: "How callbacks are made, retried and given up." },
    Section { name: "dead_letters", help: "Pops that are given up and kept." },
    Section {
        name: "cluster",
        help: "The nodes of this site, read again on SIGHUP, and how they watch each other.",
    },
    Section { name: "sites", help: "Other sites that hold the same timers, read again on SIGHUP." },
    Section {
        name: "timestamp",
        help: "Strictly increasing timestamps, beside timers or alone (chronos timestamp serve).",
    },
    Section { name: "admin", help: "Health, metrics and status, for operators only." },
    Section { name: "log", help: "Logs go to standard error, those of a daemon to a file." },
];

impl Config {
    /// Returns a setting and its origin for messages: `[node] pin = true (default)`. Panics if
    /// there is no such key.
    pub(crate) fn describe(&self, section: &str, name: &str) -> String {
        let key = find(section, name).expect("checks name keys of the table");
        format!("{key} = {} ({})", (key.get)(self), self.origin(section, name))
    }
}

macro_rules! integer {
    (
        $section:literal, $name:ident in $($path:ident).+: $type:ty,
        $min:expr, $max:expr, $unit:literal, $help:literal
    ) => {
        Key {
            section: $section,
            name: stringify!($name),
            kind: ValueKind::Integer { min: $min, max: $max, unit: $unit },
            flag: None,
            help: $help,
            get: |config| Value::Integer(u64::from(config.$($path).+.$name)),
            set: |config, value| {
                config.$($path).+.$name =
                    <$type>::try_from(value.integer()).expect("the key's range fits its field")
            },
        }
    };
}

macro_rules! limit {
    ($name:ident: $type:ty, $min:expr, $max:expr, $unit:literal, $help:literal) => {
        integer!("limits", $name in node.limits: $type, $min, $max, $unit, $help)
    };
}

macro_rules! journal {
    ($name:ident: $type:ty, $min:expr, $max:expr, $unit:literal, $help:literal) => {
        integer!("journal", $name in node.journal: $type, $min, $max, $unit, $help)
    };
}

macro_rules! cluster {
    ($name:ident: $type:ty, $min:expr, $max:expr, $unit:literal, $help:literal) => {
        integer!("cluster", $name in node.cluster: $type, $min, $max, $unit, $help)
    };
}

macro_rules! timestamp {
    ($name:ident: $type:ty, $min:expr, $max:expr, $unit:literal, $help:literal) => {
        integer!("timestamp", $name in timestamp: $type, $min, $max, $unit, $help)
    };
    (text $name:ident, $help:literal) => {
        Key {
            section: "timestamp",
            name: stringify!($name),
            kind: ValueKind::Text { bytes_max: 4_096 },
            flag: None,
            help: $help,
            get: |config| Value::Text(config.timestamp.$name.clone()),
            set: |config, value| config.timestamp.$name = value.text().into(),
        }
    };
}

/// The key of one of the three lists of members.
macro_rules! members {
    ($name:ident, $help:literal) => {
        Key {
            section: "cluster",
            name: stringify!($name),
            kind: ValueKind::Names,
            flag: None,
            help: $help,
            get: |config| Value::Texts(config.membership.$name.clone()),
            set: |config, value| config.membership.$name = value.texts().to_vec(),
        }
    };
}

/// The key of a file of `[tls]`.
macro_rules! tls_file {
    ($name:ident, $help:literal) => {
        Key {
            section: "tls",
            name: stringify!($name),
            kind: ValueKind::Text { bytes_max: 4_096 },
            flag: None,
            help: $help,
            get: |config| Value::Text(config.tls.$name.clone()),
            set: |config, value| config.tls.$name = value.text().into(),
        }
    };
}

macro_rules! callback {
    ($name:ident: $type:ty, $min:expr, $max:expr, $unit:literal, $help:literal) => {
        integer!("callbacks", $name in node.callbacks: $type, $min, $max, $unit, $help)
    };
}

/// The key of one of the two lists of rules.
macro_rules! rules {
    ($name:ident, $help:literal) => {
        Key {
            section: "callbacks",
            name: stringify!($name),
            kind: ValueKind::Rules,
            flag: None,
            help: $help,
            get: |config| Value::Texts(texts_of(&config.node.rules.$name)),
            set: |config, value| {
                let read = |text: &String| text.parse::<Rule>().expect("checked by its kind");
                config.node.rules.$name = value.texts().iter().map(read).collect();
            },
        }
    };
}

/// The key of a file.
macro_rules! file {
    ($section:literal, $name:literal, $($member:ident).+ => $help:literal) => {
        Key {
            section: $section,
            name: $name,
            kind: ValueKind::Text { bytes_max: 4_096 },
            flag: None,
            help: $help,
            get: |config| Value::Text(config.$($member).+.clone()),
            set: |config, value| config.$($member).+ = value.text().into(),
        }
    };
}

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Every key, in the order of the reference file.
pub static KEYS: [Key; 112] = [
    listeners::CLIENTS,
    Key {
        section: "node",
        name: "listen_tls",
        kind: ValueKind::AddressOrNone,
        flag: None,
        help: "Where clients connect that speak TLS, once [tls] cert is set. Empty: port 7443 at \
               the address of listen.",
        get: |config| {
            let listen = config.tls.listen;
            Value::Text(listen.map_or_else(String::new, |address| address.to_string()))
        },
        set: |config, value| config.tls.listen = value.text().parse().ok(),
    },
    listeners::PLAIN_CLIENTS,
    Key {
        section: "node",
        name: "cores",
        kind: ValueKind::Cores,
        flag: Some("--cores"),
        help: "CPU cores to run on, one pinned thread and one shard each. \"all\": every core that \
               the process may use.",
        get: |config| Value::Cores(config.node.cores.clone()),
        set: |config, value| config.node.cores = value.cores(),
    },
    Key {
        section: "node",
        name: "shards",
        kind: ValueKind::Integer { min: 0, max: SHARDS_MAX as u64, unit: "shards" },
        flag: Some("--shards"),
        help: "Shards when not one per core, for tests; needs pin = false. 0: one per core.",
        get: |config| Value::Integer(config.node.shards.unwrap_or(0).into()),
        set: |config, value| {
            let shards = u16::try_from(value.integer()).expect("the key's range fits its field");
            config.node.shards = (shards > 0).then_some(shards);
        },
    },
    Key {
        section: "node",
        name: "pin",
        kind: ValueKind::Boolean,
        flag: Some("--no-pin"),
        help: "Whether each thread stays on its own core.",
        get: |config| Value::Boolean(config.node.pin),
        set: |config, value| config.node.pin = value.boolean(),
    },
    Key {
        section: "node",
        name: "core_dumps",
        kind: ValueKind::Boolean,
        flag: None,
        help: "Whether the kernel may write core dumps of the process, with all timers and keys in \
               them.",
        get: |config| Value::Boolean(config.core_dumps),
        set: |config, value| config.core_dumps = value.boolean(),
    },
    integer!("node", spin_us in node: u32, 0, 1_000, "microseconds",
        "Wake this much before a due time and spin, for lateness below the kernel's wake-up time. \
         60 costs about 2.5 % of a core. 0: sleep."),
    integer!("node", prefault_bytes in node: u64, 0, 1 << 44, "bytes",
        "Memory taken and touched at start, so that the first timers pay no page faults. 1 GiB is \
         good for about 6 million timers of a few dozen bytes. 0: taken as timers come."),
    integer!("node", memory_ahead_bytes in node: u64, 0, 1 << 40, "bytes",
        "Most memory that a thread beside the cores takes and touches ahead of the growth of \
         timers, so that cores pay no page faults. An idle node keeps 4 MiB a core of it. 0, or \
         with prefault_bytes: none is taken ahead."),
    integer!("node", instance_id in node: u8, 0, 127, "",
        "Tells the nodes of a deployment apart in timer ids and versions: no two nodes of a \
         deployment may share one. Where it is not set and this node has a name or others, it is \
         made from the name."),
    integer!("node", deployment_id in node: u8, 0, 7, "",
        "Tells deployments apart in timer ids. Where neither it nor instance_id is set, it is made \
         from the name as well."),
    tls_file!(
        cert,
        "The file of the server's certificate and of those between it and the authority, in PEM, \
         the server's own first. Empty: no TLS."
    ),
    tls_file!(
        key,
        "The file of the private key of that certificate, in PEM; readable by this user alone."
    ),
    tls_file!(
        client_ca,
        "The file of the certificates of the authorities that clients' certificates come from, in \
         PEM."
    ),
    Key {
        section: "tls",
        name: "client_auth",
        kind: ValueKind::Choice(&["off", "optional", "required"]),
        flag: None,
        help: "Whether clients that speak TLS show a certificate of client_ca: they are not asked, \
               they may, or they get no connection without.",
        get: |config| {
            Value::Text(match config.tls.client_auth {
                ClientAuth::Off => "off".into(),
                ClientAuth::Optional => "optional".into(),
                ClientAuth::Required => "required".into(),
            })
        },
        set: |config, value| {
            config.tls.client_auth = match value.text() {
                "required" => ClientAuth::Required,
                "optional" => ClientAuth::Optional,
                _ => ClientAuth::Off,
            };
        },
    },
    integer!("tls", handshake_timeout_ms in tls: u64, 100, HOUR_MS, "milliseconds",
        "Time in which a handshake must be over; then its connection closes."),
    file!("auth", "tokens_file", tokens_file =>
        "The file of the tokens that clients show (chronos token new makes one and its \
         line): a name, a role, the SHA-256 of the token and the limits of its name a line. \
         Writable and readable by this user alone, and read again on SIGHUP. Empty: nobody \
         needs a token."),
    Key {
        section: "auth",
        name: "insecure_open",
        kind: ValueKind::Boolean,
        flag: Some("--insecure-open"),
        help: "Whether listeners that ask nobody who they are may be open to a network, and not \
               to this machine alone: that of clients without tokens_file, the admin API, that of \
               timestamps. The node says so at each start.",
        get: |config| Value::Boolean(config.insecure_open),
        set: |config, value| config.insecure_open = value.boolean(),
    },
    limit!(timers_max: u64, 1, 4_000_000_000, "timers",
        "Timers and tombstones that the node holds, shared out evenly to its cores. Above it: \
         503."),
    limit!(store_bytes_max: u64, 1 << 20, 1 << 44, "bytes",
        "Memory for timers (records, index, payloads) of the node, shared out evenly to its cores. \
         Above it: 503. An eighth more, and 4 MiB a core, may be left over between payloads."),
    limit!(body_bytes_max: u32, 256, 64 << 20, "bytes",
        "Request body after removal of chunk framing. Above it: 413."),
    limit!(header_bytes_max: u32, 1_024, 1 << 20, "bytes",
        "Request line and headers together. Above it: 431."),
    limit!(opaque_bytes_max: u32, 0, 64 << 20, "bytes",
        "Opaque data of one timer after JSON unescaping. Above it: 413."),
    limit!(connections_per_core_max: u32, 1, 1_000_000, "connections",
        "Client connections of one core."),
    limit!(pipelined_requests_per_turn_max: u32, 1, 65_536, "requests",
        "Requests taken from one connection in one loop turn; the rest wait for the next, so that \
         one client cannot hold up the others."),
    limit!(unsent_bytes_per_connection_max: u32, 4_096, 64 << 20, "bytes",
        "Answers not yet taken by the client's connection above which nothing more is read from \
         it."),
    limit!(unsent_bytes_per_core_max: u64, 64 << 10, 1 << 40, "bytes",
        "Answers not yet taken by their clients, over all connections of one core. Above it: 503 \
         to a GET of a large timer."),
    limit!(partial_bytes_per_core_max: u64, 64 << 10, 1 << 40, "bytes",
        "Requests begun but not complete, over all connections of one core. Above it: 503 to \
         the connection that holds most of them."),
    limit!(idle_timeout_ms: u64, 100, HOUR_MS, "milliseconds",
        "Silence after which a client connection closes, and the time in which a request must be \
         complete."),
    limit!(mesh_queue_max: u32, 16, 1 << 20, "messages", "Queue from one core to another."),
    limit!(pops_per_turn_max: u32, 1, 65_536, "pops",
        "Pops that come due in one loop turn; the rest follow in the next, so that a herd of \
         timers never blocks requests."),
    limit!(turn_budget_us: u64, 10, 1_000_000, "microseconds",
        "A loop turn takes requests of clients for this time, and those left over for as long \
         again. A longer turn is counted in chronos_turns_over_budget_total."),
    limit!(tags_max: u32, 0, 100_000, "tags",
        "Statistics tags that have figures of their own; those beyond are counted together."),
    Key {
        section: "journal",
        name: "data_dir",
        kind: ValueKind::Text { bytes_max: 4_096 },
        flag: Some("--data-dir"),
        help: "The directory of this node's journal, made if it is not there. Empty: no journal, \
               and a timer lives as long as one node that holds it.",
        get: |config| {
            let path = config.node.journal.data_dir.as_ref();
            Value::Text(path.map_or_else(String::new, |path| path.display().to_string()))
        },
        set: |config, value| {
            config.node.journal.data_dir =
                Some(value.text().into()).filter(|_| !value.text().is_empty());
        },
    },
    Key {
        section: "journal",
        name: "mode",
        kind: ValueKind::Choice(&["off", "interval", "sync"]),
        flag: Some("--journal"),
        help: "When an acknowledged write is on the disk of each replica that acknowledged it: \
               before it is acknowledged (sync), within interval_ms (interval), or never (off).",
        get: |config| {
            Value::Text(match config.node.journal.mode {
                JournalMode::Off => "off".into(),
                JournalMode::Interval => "interval".into(),
                JournalMode::Sync => "sync".into(),
            })
        },
        set: |config, value| {
            config.node.journal.mode = match value.text() {
                "off" => JournalMode::Off,
                "interval" => JournalMode::Interval,
                _ => JournalMode::Sync,
            };
        },
    },
    journal!(interval_ms: u64, 1, 60_000, "milliseconds",
        "With mode = \"interval\": how long after its acknowledgement a write is on the disk. So \
         much may be lost if all nodes that hold a timer lose power."),
    journal!(stall_ms: u64, 100, HOUR_MS, "milliseconds",
        "A write of the journal that takes longer means that the disk does not answer. Until it \
         does, clients' writes: 503. Pops and reads go on."),
    journal!(catch_up_per_s: u64, 1, 10_000_000, "pops a second",
        "Pops that came due while the node was down are made at this pace, oldest first, beside \
         those that come due."),
    Key {
        section: "journal",
        name: "missed",
        kind: ValueKind::Choice(&["last", "each"]),
        flag: None,
        help: "Which pops of a repeating timer are made that came due while the node was down: \
               the last one, or each of them.",
        get: |config| {
            let is_each = config.node.journal.makes_each_missed;
            Value::Text(if is_each { "each".into() } else { "last".into() })
        },
        set: |config, value| config.node.journal.makes_each_missed = value.text() == "each",
    },
    callback!(timeout_ms: u64, 10, 60_000, "milliseconds",
        "Whole time of one attempt: name resolution, connection, request, status line."),
    callback!(connections_per_host_max: u32, 1, 65_535, "connections",
        "Connections to one callback host from one core; each carries one callback at a time."),
    callback!(hosts_per_core_max: u32, 1, HOSTS_PER_CORE_MAX as u64, "hosts",
        "Callback hosts of one core whose pops run or wait at the same time. A pop for one more is \
         put off for at least 500 ms; a quarter is kept for hosts that answered when called last."),
    callback!(queue_per_host_max: u32, 1, u32::MAX as u64, "pops",
        "Pops that wait for one host on one core. Above it new timers for that host: 503."),
    callback!(retry_first_ms: u64, 1, HOUR_MS, "milliseconds",
        "Pause after a failed callback; doubled after every further failure."),
    callback!(retry_max_ms: u64, 1, HOUR_MS, "milliseconds", "Longest pause between two attempts."),
    callback!(give_up_ms: u64, 0, DAY_MS, "milliseconds",
        "How long the last pop of a timer is retried before it is given up and counted. 0: one \
         attempt."),
    callback!(idle_timeout_ms: u64, 100, HOUR_MS, "milliseconds",
        "Idle time after which a callback connection closes."),
    callback!(resolve_ttl_ms: u64, 100, DAY_MS, "milliseconds",
        "How long a resolved host name is used before it is asked for again."),
    callback!(tombstone_ms_max: u64, TOMBSTONE_MS_MIN, INTERVAL_MS_MAX, "milliseconds",
        "Longest life of a deleted timer's tombstone, whatever the timer's interval."),
    Key {
        section: "callbacks",
        name: "timer_headers",
        kind: ValueKind::Boolean,
        flag: None,
        help: "Whether callbacks have X-Timer-Id, X-Due-Time and X-Attempt. In place of the \
               original service the default is false.",
        get: |config| Value::Boolean(config.node.callbacks.timer_headers),
        set: |config, value| config.node.callbacks.timer_headers = value.boolean(),
    },
    rules!(
        allow,
        "Where callbacks may go: addresses, blocks of them and host names, with ports if not all \
         are meant. Empty: everywhere but to what deny names, to link-local addresses and metadata \
         services, and to the nodes themselves. A rule for link-local addresses or a metadata \
         service must name these alone. Read again on SIGHUP."
    ),
    rules!(
        deny,
        "Where no callback goes. Every address that a name has is judged just before a connection \
         is opened to it. Read again on SIGHUP."
    ),
    Key {
        section: "callbacks",
        name: "destinations",
        kind: ValueKind::Destinations,
        flag: None,
        help: "How much callback servers may be asked, over all nodes: host or host:port, then any \
               of max-in-flight=N, rate-per-second=N and paused. What an operator orders \
               (PUT /destinations) goes before it. Read again on SIGHUP.",
        get: |config| {
            let lines = config.destinations.iter().map(|(name, rule)| write_line(name, rule));
            Value::Texts(lines.collect())
        },
        set: |config, value| {
            let read = |text: &String| parse_line(text).expect("checked by its kind");
            config.destinations = value.texts().iter().map(read).collect();
        },
    },
    file!("callbacks", "ca", callback_tls.ca =>
        "The file of the authorities whose certificates https servers must have, in PEM. Empty: \
         those of the system. Read again on SIGHUP."),
    file!("callbacks", "client_cert", callback_tls.client_cert =>
        "The file of the certificate that is shown to https servers that ask for one, and of those \
         between it and the authority, in PEM. Read again on SIGHUP. Empty: none is shown."),
    file!("callbacks", "client_key", callback_tls.client_key =>
        "The file of its private key, in PEM. Readable by this user alone. Read again on SIGHUP."),
    file!("callbacks", "signing_secrets_file", signing_secrets_file =>
        "The file of the secrets that callbacks are signed with: whsec_ and the base64 of 24 \
         to 64 bytes a line, at most two, both of which sign. Readable by this user alone, \
         and read again on SIGHUP. Empty: callbacks are not signed."),
    dead_letters::PER_CORE_MAX,
    dead_letters::BYTES_PER_CORE_MAX,
    dead_letters::KEEP_MS,
    dead_letters::PLAIN,
    Key {
        section: "cluster",
        name: "localhost",
        kind: ValueKind::Name,
        flag: None,
        help: "This node's name, which is its address exactly as every member writes it: it is \
               hashed to place timers. Empty: the address of [node] listen.",
        get: |config| Value::Text(config.membership.localhost.clone()),
        set: |config, value| config.membership.localhost = value.text().into(),
    },
    members!(
        nodes,
        "Nodes that are members and stay, by name. No node in any of the three lists: this node \
         alone. An address without a port is dialled at this node's port."
    ),
    members!(joining, "Nodes that are being added."),
    members!(leaving, "Nodes that are being removed."),
    cluster!(heartbeat_ms: u64, 10, 60_000, "milliseconds",
        "Pause between two signs of life to a peer."),
    cluster!(suspect_after_ms: u64, 20, HOUR_MS, "milliseconds",
        "Silence after which a peer is suspected: writes no longer wait for it."),
    cluster!(dead_after_ms: u64, 30, HOUR_MS, "milliseconds",
        "Silence after which a peer is declared dead: others move up for it, and no new timer is \
         placed on it."),
    cluster!(tombstone_hold_ms: u64, 0, DAY_MS, "milliseconds",
        "How much longer a deleted timer's tombstone stays while a node that is to hold the timer \
         cannot be reached: it may come back with a copy. Of a timer on several sites it stays up \
         to a day longer, while there is room."),
    Key {
        section: "cluster",
        name: "promotion",
        kind: ValueKind::Boolean,
        flag: None,
        help: "Whether surviving replicas move up for a dead one, so that only the first pop \
               after a death is late. false: as in the original service, every one is.",
        get: |config| Value::Boolean(config.node.cluster.promotion),
        set: |config, value| config.node.cluster.promotion = value.boolean(),
    },
    cluster!(clock_skew_max_ms: u64, 100, DAY_MS, "milliseconds",
        "How far apart two wall clocks may be. A node takes no writes whose clock is further from \
         that of most members."),
    cluster!(link_bytes_max: u64, 1 << 16, 1 << 40, "bytes",
        "What one core keeps for one peer until that has acknowledged it. Above it the peer is \
         offered everything again."),
    cluster!(link_window_bytes: u64, 1 << 16, 1 << 32, "bytes",
        "What one core has under way to one peer and not acknowledged."),
    cluster!(writes_waiting_max: u32, 1, 16 << 20, "requests",
        "Client writes of one core that wait for replicas. Above it: 503."),
    Key {
        section: "cluster",
        name: "acknowledge",
        kind: ValueKind::Choice(&["replicas", "first"]),
        flag: None,
        help: "When a write is answered: when all replicas that are believed alive have it, or as \
               soon as the first one has (what the original service does).",
        get: |config| {
            Value::Text(match config.node.cluster.acknowledge {
                Acknowledge::Replicas => "replicas".into(),
                Acknowledge::First => "first".into(),
            })
        },
        set: |config, value| {
            config.node.cluster.acknowledge = match value.text() {
                "first" => Acknowledge::First,
                _ => Acknowledge::Replicas,
            };
        },
    },
    Key {
        section: "cluster",
        name: "accept_strangers",
        kind: ValueKind::Boolean,
        flag: None,
        help: "Whether nodes at addresses of no member may connect and use the internal API.",
        get: |config| Value::Boolean(config.node.accept_strangers),
        set: |config, value| config.node.accept_strangers = value.boolean(),
    },
    file!("cluster", "secret_file", secret_file =>
        "The file of a secret that the nodes of the cluster, and those of its other sites, \
         prove to each other that they know: one of 32 bytes or more a line, of which the \
         first proves and all are accepted. Readable by this user alone, and read again on \
         SIGHUP. Empty: addresses are believed."),
    Key {
        section: "cluster",
        name: "secret_required",
        kind: ValueKind::Boolean,
        flag: None,
        help: "Whether nodes are refused that do not prove that they know the secret of \
               secret_file, those of the original service among them. false: while the file is \
               given to one node after the other.",
        get: |config| Value::Boolean(!config.node.guard.accepts_unproven),
        set: |config, value| config.node.guard.accepts_unproven = !value.boolean(),
    },
    peer_tls::MODE,
    peer_tls::CERT,
    peer_tls::KEY,
    peer_tls::CA,
    admin::ADDRESSES,
    Key {
        section: "sites",
        name: "local",
        kind: ValueKind::Site,
        flag: None,
        help: "The name of this site, as every other site writes it. Empty: site1.",
        get: |config| Value::Text(config.membership.local_site.clone()),
        set: |config, value| config.membership.local_site = value.text().into(),
    },
    Key {
        section: "sites",
        name: "remote",
        kind: ValueKind::Sites,
        flag: None,
        help: "Other sites, each as name=address: the address of a node there, which tells of the \
               others, or a host name that means any of its nodes. Named again with the address \
               of another node, a site is found also while the first one is away.",
        get: |config| {
            let sites = config.membership.remote_sites.iter();
            Value::Texts(sites.map(|(name, address)| format!("{name}={address}")).collect())
        },
        set: |config, value| {
            let halves = |site: &String| {
                let (name, address) = site.split_once('=').expect("checked by its kind");
                (name.to_owned(), address.to_owned())
            };
            config.membership.remote_sites = value.texts().iter().map(halves).collect();
        },
    },
    Key {
        section: "sites",
        name: "replicate_across",
        kind: ValueKind::Boolean,
        flag: None,
        help: "Whether new timers are replicated to the other sites.",
        get: |config| Value::Boolean(config.membership.replicate_across_sites),
        set: |config, value| config.membership.replicate_across_sites = value.boolean(),
    },
    Key {
        section: "timestamp",
        name: "enabled",
        kind: ValueKind::Boolean,
        flag: None,
        help: "Whether timestamps are served: Thrift on listen, POST /timestamps on [node] listen.",
        get: |config| Value::Boolean(config.timestamp.enabled),
        set: |config, value| config.timestamp.enabled = value.boolean(),
    },
    listeners::TIMESTAMPS,
    listeners::TIMESTAMPS_TLS,
    Key {
        section: "timestamp",
        name: "replies",
        kind: ValueKind::Choice(&["strict", "old"]),
        flag: None,
        help: "Form of replies: strict is what every Thrift client reads; old is what the original \
               server writes and clients built for strict reading refuse.",
        get: |config| {
            let is_strict = config.timestamp.served.strict_replies;
            Value::Text(if is_strict { "strict" } else { "old" }.into())
        },
        set: |config, value| {
            config.timestamp.served.strict_replies = value.text() == "strict";
        },
    },
    integer!("timestamp", connections_per_core_max in timestamp.served: u32, 1, 1_000_000,
        "connections", "Thrift connections of one core; more are closed."),
    integer!("timestamp", idle_timeout_ms in timestamp.served: u64, 100, DAY_MS, "milliseconds",
        "Silence after which a Thrift connection closes."),
    Key {
        section: "timestamp",
        name: "coordination",
        kind: ValueKind::Choice(&["file", "zookeeper"]),
        flag: None,
        help: "What keeps the bound above all timestamps handed out: a file of this one server, \
               or ZooKeeper, which makes one of several servers the master.",
        get: |config| {
            Value::Text(match config.timestamp.coordination {
                Coordination::File => "file".into(),
                Coordination::ZooKeeper => "zookeeper".into(),
            })
        },
        set: |config, value| {
            config.timestamp.coordination = match value.text() {
                "zookeeper" => Coordination::ZooKeeper,
                _ => Coordination::File,
            };
        },
    },
    timestamp!(text file,
        "The file of coordination = \"file\". It is made by `chronos timestamp init`, never by a \
         server: one that is lost must not be replaced by an empty one."),
    timestamp!(text advertise,
        "host:port under which clients reach this server, written into ZooKeeper. Empty: listen."),
    timestamp!(text zookeeper_quorum,
        "Servers of ZooKeeper as host:port,host:port, with /folder at the end if all lies in one."),
    timestamp!(text zookeeper_cluster,
        "Servers with the same name here are backups of each other; a folder of /chronos."),
    Key {
        section: "timestamp",
        name: "zookeeper_auth",
        kind: ValueKind::Choice(&["none", "digest", "sasl-digest"]),
        flag: None,
        help: "How this server proves who it is. With any but none the nodes are written by the \
               user alone and read by all, as in the original's secure mode.",
        get: |config| {
            Value::Text(match config.timestamp.zookeeper_auth {
                Authentication::None => "none".into(),
                Authentication::Digest => "digest".into(),
                Authentication::SaslDigest => "sasl-digest".into(),
            })
        },
        set: |config, value| {
            config.timestamp.zookeeper_auth = match value.text() {
                "digest" => Authentication::Digest,
                "sasl-digest" => Authentication::SaslDigest,
                _ => Authentication::None,
            };
        },
    },
    timestamp!(text zookeeper_user, "The user of zookeeper_auth, the same on all servers."),
    timestamp!(text zookeeper_password_file,
        "The file whose first line is that user's password; readable by this user alone."),
    timestamp!(session_timeout_ms: u64, 200, HOUR_MS, "milliseconds",
        "How long the master may be silent before another takes over. The ensemble grants no less \
         than two of its ticks (tickTime, 2 s by default)."),
    timestamp!(window_ms: u64, 200, HOUR_MS, "milliseconds",
        "How far ahead of the clock the bound is stored; after a crash timestamps are ahead of the \
         clock by at most about as much. With ZooKeeper at least session_timeout_ms."),
    timestamp!(clock_jump_max_ms: u64, 10, DAY_MS, "milliseconds",
        "A wall clock that steps forward by more is not followed, and raises an alarm, unless it \
         corrects a step back or ZooKeeper's clock tells the same."),
    admin::ENABLED,
    admin::LISTEN,
    admin::LISTEN_TLS,
    admin::HOSTS,
    admin::AGENTX_SOCKET,
    Key {
        section: "log",
        name: "level",
        kind: ValueKind::Choice(&["error", "warn", "info", "debug", "trace"]),
        flag: Some("--log-level"),
        help: "Least serious line that is written. There is no line per request or pop at any \
            level above trace.",
        get: |config| Value::Text(config.log.level.clone()),
        set: |config, value| config.log.level = value.text().into(),
    },
    Key {
        section: "log",
        name: "format",
        kind: ValueKind::Choice(&["auto", "text", "json"]),
        flag: Some("--log-format"),
        help: "Shape of a line. auto: text on a terminal, JSON otherwise.",
        get: |config| Value::Text(config.log.format.clone()),
        set: |config, value| config.log.format = value.text().into(),
    },
    file!("log", "folder", log.folder =>
        "Where a node started with --daemon logs: chronos_current.txt there, opened again \
         on SIGHUP."),
];

/// Returns the key `name` of `section`; `None` if the table has no such key.
pub(crate) fn find(section: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.section == section && key.name == name)
}
