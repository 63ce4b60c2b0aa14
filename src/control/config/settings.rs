//! The settings of the whole process as types with defaults. Knows no key by name.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::error::Origin;
use super::timestamp::TimestampConfig;
use crate::cluster::view::Membership;
use crate::node::settings::NodeSettings;

/// Where the admin API listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// Whether it is served.
    pub enabled: bool,
    /// Its own address, never the clients'.
    pub listen: SocketAddr,
    /// Where the members' admin APIs are, this node's included.
    pub cluster: Vec<String>,
    /// Names under which it is asked for, beside those that are known otherwise.
    pub hosts: Vec<String>,
}

impl Default for AdminSettings {
    fn default() -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 7254));
        Self { enabled: true, listen, cluster: Vec::new(), hosts: Vec::new() }
    }
}

/// What is logged and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// `auto`, `text` or `json`.
    pub format: String,
    /// Where a daemon's log file is.
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
    /// The data plane.
    pub node: NodeSettings,
    /// Timestamps; [`NodeSettings::timestamp`] is made from it.
    pub timestamp: TimestampConfig,
    /// Where [`NodeSettings::guard`] has its secrets from; empty: from nowhere.
    pub secret_file: String,
    /// The admin API.
    pub admin: AdminSettings,
    /// Logs.
    pub log: LogSettings,
    /// The nodes and sites as configured; [`NodeSettings::membership`] is made from it.
    pub membership: Membership,
    /// Where the values of keys come from, by section and name; the others are defaults.
    origins: BTreeMap<(&'static str, &'static str), Origin>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // The name follows the listen address unless it is set: see `finish`.
            node: NodeSettings { name: String::new(), ..NodeSettings::default() },
            timestamp: TimestampConfig::default(),
            secret_file: String::new(),
            admin: AdminSettings::default(),
            log: LogSettings::default(),
            membership: Membership::default(),
            origins: BTreeMap::new(),
        }
    }
}

impl Config {
    /// Where the value of a key came from.
    pub(crate) fn origin<'a>(&'a self, section: &'a str, name: &'a str) -> &'a Origin {
        self.origins.get(&(section, name)).unwrap_or(&Origin::Default)
    }

    /// Remembers where the value of a key came from.
    pub(crate) fn set_origin(&mut self, key: (&'static str, &'static str), origin: Origin) {
        self.origins.insert(key, origin);
    }
}
