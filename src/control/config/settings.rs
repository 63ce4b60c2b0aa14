//! The settings of the whole process as types with defaults. This file knows no key by name.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::callback_tls::CallbackTlsConfig;
use super::error::Origin;
use super::peer_tls::{PeerTlsConfig, PeerTlsMode};
use super::static_names::StaticNamesFile;
use super::timestamp::TimestampConfig;
use super::tls::TlsConfig;
use crate::base::destinations::Rule;
use crate::cluster::view::Membership;
use crate::node::settings::NodeSettings;

/// The settings of the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// Whether the admin API is served without TLS.
    pub enabled: bool,
    /// The address of the plain admin listener, never that of the clients' listener.
    pub listen: SocketAddr,
    /// The address at which the admin API is served over TLS; `None`: it is not.
    pub listen_tls: Option<SocketAddr>,
    /// Addresses of the members' admin APIs, this node's included.
    pub cluster: Vec<String>,
    /// Names under which clients may ask for the admin API, beside the names that the node knows by
    /// itself.
    pub hosts: Vec<String>,
    /// The socket of the machine's SNMP daemon for its subagents; empty: this node is none.
    pub agentx_socket: String,
}

/// The port of the admin API of a process that serves timestamps alone, where nothing else is said:
/// a node on the same machine has its own.
pub(super) const ADMIN_PORT_OF_TIMESTAMPS: u16 = 7354;

impl Default for AdminSettings {
    fn default() -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 7254));
        Self {
            enabled: true,
            listen,
            listen_tls: None,
            cluster: Vec::new(),
            hosts: Vec::new(),
            agentx_socket: String::new(),
        }
    }
}

/// The settings of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// `auto`, `text` or `json`.
    pub format: String,
    /// The folder of a daemon's log file.
    pub folder: String,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { level: "info".into(), format: "auto".into(), folder: "/var/log/chronos".into() }
    }
}

/// The settings of the whole process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What the cores are started with.
    pub node: NodeSettings,
    /// Timestamps. [`NodeSettings::timestamp`] is made from this.
    pub timestamp: TimestampConfig,
    /// TLS for clients. [`NodeSettings::tls`] is made from this and its files.
    pub tls: TlsConfig,
    /// TLS between nodes. [`NodeSettings::peer_tls`] is made from this and its files.
    pub peer_tls: PeerTlsConfig,
    /// The file that the secrets of [`NodeSettings::guard`] are read from; empty: no secrets.
    pub secret_file: String,
    /// The file that [`NodeSettings::tokens`] is read from; empty: nobody needs a token.
    pub tokens_file: String,
    /// Whether listeners that ask nobody who they are may be open to a network.
    pub insecure_open: bool,
    /// Whether the kernel may write core dumps of this process.
    pub core_dumps: bool,
    /// Whether this is one of the original service's deployments.
    pub is_drop_in: bool,
    /// The file that [`NodeSettings::signer`] is read from; empty: callbacks are not signed.
    pub signing_secrets_file: String,
    /// The file that [`NodeSettings::static_names`] is read from.
    pub static_names_file: StaticNamesFile,
    /// The files that [`NodeSettings::connector`] is read from.
    pub callback_tls: CallbackTlsConfig,
    /// What may be asked of callback servers. [`NodeSettings::destinations`] is made from this and
    /// from what operators ordered.
    pub destinations: Vec<(String, Rule)>,
    /// The admin API.
    pub admin: AdminSettings,
    /// The log.
    pub log: LogSettings,
    /// The nodes and sites as configured. [`NodeSettings::membership`] is made from this.
    pub membership: Membership,
    /// Origins of values, by section and name. A key that is not here has its default.
    origins: BTreeMap<(&'static str, &'static str), Origin>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // The name follows the listen address unless it is set: see `finish`.
            node: NodeSettings { name: String::new(), ..NodeSettings::default() },
            timestamp: TimestampConfig::default(),
            tls: TlsConfig::default(),
            peer_tls: PeerTlsConfig::default(),
            secret_file: String::new(),
            tokens_file: String::new(),
            insecure_open: false,
            core_dumps: false,
            is_drop_in: false,
            signing_secrets_file: String::new(),
            static_names_file: StaticNamesFile::default(),
            callback_tls: CallbackTlsConfig::default(),
            destinations: Vec::new(),
            admin: AdminSettings::default(),
            log: LogSettings::default(),
            membership: Membership::default(),
            origins: BTreeMap::new(),
        }
    }
}

impl Config {
    /// Whether a listener speaks TLS.
    pub(super) fn has_tls(&self) -> bool {
        !self.tls.cert.is_empty()
    }

    /// Whether anybody connects at `[node] listen`: clients, or nodes over TLS.
    pub(crate) fn opens_listen(&self) -> bool {
        let for_nodes = self.peer_tls.mode != PeerTlsMode::Off;
        self.node.serves_timers && (self.node.plain_clients || for_nodes)
    }

    /// Returns where the value of a key came from.
    pub(crate) fn origin<'a>(&'a self, section: &'a str, name: &'a str) -> &'a Origin {
        self.origins.get(&(section, name)).unwrap_or(&Origin::Default)
    }

    /// Remembers where the value of a key came from.
    pub(crate) fn set_origin(&mut self, key: (&'static str, &'static str), origin: Origin) {
        self.origins.insert(key, origin);
    }
}
