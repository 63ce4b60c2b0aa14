//! The settings of `[timestamp]`, and the addresses in them.

use crate::node::settings::TimestampSettings;

/// Longest host name in an address, in bytes, as DNS limits it.
const HOST_BYTES_MAX: usize = 253;

/// Where the bound of timestamps is kept. This also decides how a server becomes the one that
/// answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coordination {
    /// One server keeps the bound in a file.
    File,
    /// Several servers keep the bound in `ZooKeeper`, which makes one of them the master.
    ZooKeeper,
}

/// How a server authenticates itself to `ZooKeeper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication {
    /// No authentication: everybody may write the nodes (the original's default).
    None,
    /// By `ZooKeeper`'s own scheme `digest`.
    Digest,
    /// By SASL with DIGEST-MD5: the scheme `sasl` of the original's secure mode.
    SaslDigest,
}

/// The values of the section `[timestamp]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimestampConfig {
    /// Whether timestamps are served.
    pub enabled: bool,
    /// What the cores are started with.
    pub served: TimestampSettings,
    /// Where the bound is kept: in a file or in `ZooKeeper`.
    pub coordination: Coordination,
    /// The path of the file that keeps the bound of a standalone server.
    pub file: String,
    /// `host:port` under which clients reach this server. Empty: [`TimestampSettings::listen`], or
    /// [`TimestampSettings::listen_tls`] where there is no such listener.
    pub advertise: String,
    /// The servers of `ZooKeeper` as `host:port,host:port,...`, with `/folder` at the end if all
    /// nodes lie in one folder.
    pub zookeeper_quorum: String,
    /// The folder of this cluster below `/chronos`.
    pub zookeeper_cluster: String,
    /// How this server authenticates itself.
    pub zookeeper_auth: Authentication,
    /// The user name for authentication.
    pub zookeeper_user: String,
    /// The file whose first line is the password.
    pub zookeeper_password_file: String,
    /// The session timeout that is asked for. The ensemble grants between 2 and 20 of its ticks.
    pub session_timeout_ms: u64,
    /// How far ahead of the clock the bound is stored.
    pub window_ms: u64,
    /// The largest step forward of the wall clock that timestamps follow.
    pub clock_jump_max_ms: u64,
}

impl Default for TimestampConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            served: TimestampSettings::default(),
            coordination: Coordination::File,
            file: "/var/lib/chronos/timestamp".into(),
            advertise: String::new(),
            zookeeper_quorum: "127.0.0.1:2181".into(),
            zookeeper_cluster: "default-cluster".into(),
            zookeeper_auth: Authentication::None,
            zookeeper_user: String::new(),
            zookeeper_password_file: String::new(),
            session_timeout_ms: 3_000,
            window_ms: 3_000,
            clock_jump_max_ms: 10_000,
        }
    }
}

impl TimestampConfig {
    /// Returns `host:port` under which clients reach this server.
    pub(crate) fn advertised(&self) -> String {
        match self.advertise.as_str() {
            "" => {
                let listen = self.served.listen.or(self.served.listen_tls);
                listen.map_or_else(String::new, |address| address.to_string())
            }
            advertise => advertise.to_owned(),
        }
    }

    /// Returns `host_port`, as it is written into `ZooKeeper`. An error says what is wrong with the
    /// address.
    pub(crate) fn host_port(&self) -> Result<String, &'static str> {
        let advertised = self.advertised();
        let (host, port) = split_address(&advertised)?;
        Ok(format!("{host}_{port}"))
    }
}

/// Returns `host:port` of `host_port`, for people and for refused clients. A text without `_` is
/// returned as it is.
pub(crate) fn address_of(host_port: &str) -> String {
    match host_port.rsplit_once('_') {
        Some((host, port)) if host.contains(':') => format!("[{host}]:{port}"),
        Some((host, port)) => format!("{host}:{port}"),
        None => host_port.to_owned(),
    }
}

/// Splits an address that clients can be told into host and port. An error says what is wrong with
/// the address.
pub(super) fn split_address(address: &str) -> Result<(&str, u16), &'static str> {
    let (host, port) = address.rsplit_once(':').ok_or("it has no port")?;
    let port: u16 = port.parse().map_err(|_| "its port is no number")?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.contains('_') {
        return Err("readers split it at \"_\", so a host name with one cannot be found");
    }
    if port == 0 {
        return Err("port 0 means any port");
    }
    if bare == "0.0.0.0" || bare == "::" {
        return Err("it means every address of this machine and none to others");
    }
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b".-:".contains(&byte);
    let has_fine_length = (1..=HOST_BYTES_MAX).contains(&bare.len());
    if !has_fine_length || !bare.bytes().all(is_fine) || bare.contains(':') != (bare != host) {
        return Err("its host is neither a name nor an address");
    }
    Ok((bare, port))
}
