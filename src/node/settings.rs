//! The settings that a node is started with. The control room fills them from file, environment and
//! flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::destinations::DestinationTable;
use crate::base::limits::{CallbackLimits, ClusterLimits, Limits};
use crate::cluster::view::Membership;

use crate::core::peers::secret::Guard;
use crate::node::callbacks::listeners::Reserved;
use crate::node::callbacks::policy::Rules;
use crate::node::callbacks::signing::Signer;
use crate::node::clients::tokens::Tokens;
use crate::node::resolver::statics::StaticNames;
use crate::tls::acceptor::Acceptor;
use crate::tls::connector::Connector;
use crate::tls::nodes::Nodes;

/// The settings of all cores of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// Where clients connect (default 127.0.0.1:7253).
    pub listen: SocketAddr,
    /// Whether clients are served in the clear at `listen`. Otherwise `listen` is for nodes over
    /// TLS, and is not opened where nodes speak none.
    pub plain_clients: bool,
    /// How clients connect over TLS. `None`: they do not.
    pub tls: Option<TlsSettings>,
    /// CPU cores to pin threads to, one shard each. `None`: every core on which this process may
    /// run.
    pub cores: Option<Vec<usize>>,
    /// Number of shards when it is not one per core (needs `pin = false`).
    pub shards: Option<u16>,
    /// Whether threads are pinned.
    pub pin: bool,
    /// How many microseconds before a due tick a core wakes and spins, for lateness below the
    /// kernel's wake-up time. 0: the core sleeps.
    pub spin_us: u32,
    /// Bytes of memory that are taken and touched at the start, so that the first timers pay no
    /// page faults. The shards share them.
    pub prefault_bytes: u64,
    /// Most bytes of memory that are taken and touched ahead of the growth of timers. The shards
    /// share them. Not used beside `prefault_bytes`.
    pub memory_ahead_bytes: u64,
    /// Tells the nodes of a deployment apart in ids: 0..=127.
    pub instance_id: u8,
    /// Tells deployments apart in ids: 0..=7.
    pub deployment_id: u8,
    /// This node's name in the cluster (address:port exactly as every member writes it). It is
    /// hashed for placement and filters.
    pub name: String,
    /// The limits for clients, memory and turns.
    pub limits: Limits,
    /// How callbacks are made.
    pub callbacks: CallbackLimits,
    /// The tokens of clients. `None`: nobody needs one.
    pub tokens: Option<Arc<Tokens>>,
    /// Signs callbacks. `None`: nobody does.
    pub signer: Option<Arc<Signer>>,
    /// What connections to `https` servers are dialled with. `None`: this node believes no
    /// authority, and such callbacks fail.
    pub connector: Option<Arc<Connector>>,
    /// Where callbacks may go.
    pub rules: Rules,
    /// Names that the operator has given targets or addresses.
    pub static_names: Arc<StaticNames>,
    /// How much may be asked of callback servers, at the start.
    pub destinations: Arc<DestinationTable>,
    /// The members at the start. `None`: this node alone.
    pub membership: Option<Membership>,
    /// How nodes watch and wait for each other.
    pub cluster: ClusterLimits,
    /// Whether the internal API takes requests from nodes that are no members.
    pub accept_strangers: bool,
    /// The cluster's secret, and whether other nodes must know it.
    pub guard: Guard,
    /// How nodes talk over TLS with each other. `None`: they do not.
    pub peer_tls: Option<PeerTls>,
    /// Listeners of the deployment beside the ones on which members serve clients.
    pub reserved: Reserved,
    /// How timestamps are served. `None`: they are not.
    pub timestamp: Option<TimestampSettings>,
    /// Whether timers are served. Otherwise neither `listen` nor the port for TLS is opened.
    pub serves_timers: bool,
    /// How timers survive the restart of all nodes.
    pub journal: JournalSettings,
}

/// How clients connect over TLS, beside the plain listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Where clients of timers connect. `None`: they do not.
    pub listen: Option<SocketAddr>,
    /// Time in ms for a handshake.
    pub handshake_timeout_ms: u64,
    /// What connections are accepted with.
    pub acceptor: Arc<Acceptor>,
}

/// How the nodes of a cluster talk over TLS with each other, on the listener of plain clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTls {
    /// Whether nothing goes between nodes without TLS. Otherwise nodes that speak none are taken as
    /// well, while a running cluster is moved to TLS.
    pub is_required: bool,
    /// What nodes show to each other and ask of each other.
    pub nodes: Arc<Nodes>,
}

/// When an acknowledged write is on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalMode {
    /// Never: timers live as long as one node that holds them.
    Off,
    /// Some time after it is acknowledged.
    Interval,
    /// Before it is acknowledged.
    Sync,
}

/// How timers survive the restart of all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// The data directory; `None`: there is no journal.
    pub data_dir: Option<PathBuf>,
    /// When an acknowledged write is on the disk.
    pub mode: JournalMode,
    /// Most ms between the acknowledgement of a write and the disk, in the mode
    /// [`JournalMode::Interval`].
    pub interval_ms: u64,
    /// After a write of the journal has taken so many ms, clients' writes are refused.
    pub stall_ms: u64,
    /// Most overdue pops of the node a second after a restart.
    pub catch_up_per_s: u64,
    /// Whether each pop of a repeating timer that came due while the node was down is made.
    /// Otherwise only the last one is.
    pub makes_each_missed: bool,
}

impl JournalSettings {
    /// The data directory, if there is to be a journal in it.
    pub fn directory(&self) -> Option<&PathBuf> {
        self.data_dir.as_ref().filter(|_| self.mode != JournalMode::Off)
    }
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self {
            data_dir: None,
            mode: JournalMode::Sync,
            interval_ms: 50,
            stall_ms: 2_000,
            catch_up_per_s: 10_000,
            makes_each_missed: false,
        }
    }
}

impl NodeSettings {
    /// Whether anybody connects at `listen`: clients, or nodes over TLS.
    pub fn opens_listen(&self) -> bool {
        self.serves_timers && (self.plain_clients || self.peer_tls.is_some())
    }
}

/// How the same cores serve timestamps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimestampSettings {
    /// Where Thrift clients connect (default 127.0.0.1:7911). `None`: not without TLS.
    pub listen: Option<SocketAddr>,
    /// Where Thrift clients connect that speak TLS, with what [`NodeSettings::tls`] shows. `None`:
    /// they do not.
    pub listen_tls: Option<SocketAddr>,
    /// Whether replies have the versioned form of Thrift's binary protocol, which strict and
    /// lenient clients read. Otherwise they have the old form of the original server.
    pub strict_replies: bool,
    /// Most connections of one core. Further connections are closed.
    pub connections_per_core_max: u32,
    /// Silence in ms after which a connection is closed.
    pub idle_timeout_ms: u64,
}

impl Default for TimestampSettings {
    fn default() -> Self {
        Self {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 7911))),
            listen_tls: None,
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
            plain_clients: true,
            tls: None,
            cores: None,
            shards: None,
            pin: true,
            spin_us: 0,
            prefault_bytes: 0,
            memory_ahead_bytes: 64 << 20,
            instance_id: 0,
            deployment_id: 0,
            name: "127.0.0.1:7253".into(),
            limits: Limits::default(),
            callbacks: CallbackLimits::default(),
            tokens: None,
            signer: None,
            connector: None,
            rules: Rules::default(),
            static_names: Arc::default(),
            destinations: Arc::default(),
            membership: None,
            cluster: ClusterLimits::default(),
            accept_strangers: false,
            guard: Guard::default(),
            peer_tls: None,
            reserved: Reserved::default(),
            timestamp: None,
            serves_timers: true,
            journal: JournalSettings::default(),
        }
    }
}
