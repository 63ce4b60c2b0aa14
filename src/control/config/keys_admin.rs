//! The keys of the admin API, in the one table of keys.

use super::key::Key;
use super::value::{Value, ValueKind};

/// `admin.enabled`.
pub(super) const ENABLED: Key = Key {
    section: "admin",
    name: "enabled",
    kind: ValueKind::Boolean,
    flag: Some("--admin"),
    help: "Whether the admin API is served at listen, without TLS; --admin off is the same as \
           false. listen_tls does not depend on it.",
    get: |config| Value::Boolean(config.admin.enabled),
    set: |config, value| config.admin.enabled = value.boolean(),
};

/// `admin.listen`.
pub(super) const LISTEN: Key = Key {
    section: "admin",
    name: "listen",
    kind: ValueKind::Address,
    flag: Some("--admin"),
    help: "Where /healthz, /readyz, /metrics and /status are served, to whoever asks: keep it on \
           loopback or a management network. chronos timestamp serve has port 7354 if nothing \
           is said.",
    get: |config| Value::Address(config.admin.listen),
    set: |config, value| config.admin.listen = value.address(),
};

/// `admin.listen_tls`.
pub(super) const LISTEN_TLS: Key = Key {
    section: "admin",
    name: "listen_tls",
    kind: ValueKind::AddressOrNone,
    flag: None,
    help: "Where the admin API is served over TLS, with the files of [tls]. If there are tokens, \
           each request needs one there: of any role to look, of an operator to give orders. \
           Empty: nowhere.",
    get: |config| {
        let listen = config.admin.listen_tls;
        Value::Text(listen.map_or_else(String::new, |address| address.to_string()))
    },
    set: |config, value| config.admin.listen_tls = value.text().parse().ok(),
};

/// `admin.hosts`.
pub(super) const HOSTS: Key = Key {
    section: "admin",
    name: "hosts",
    kind: ValueKind::Names,
    flag: None,
    help: "Names under which the admin API is asked for, beside addresses, names without a dot, \
           this machine's name, the members' and admin_addresses. Under any other: 421, for a web \
           page may lead its own name here.",
    get: |config| Value::Texts(config.admin.hosts.clone()),
    set: |config, value| config.admin.hosts = value.texts().to_vec(),
};

/// `admin.agentx_socket`.
pub(super) const AGENTX_SOCKET: Key = Key {
    section: "admin",
    name: "agentx_socket",
    kind: ValueKind::Text { bytes_max: 100 },
    flag: None,
    help: "Socket on which the machine's SNMP daemon takes subagents (AgentX); it is told how much \
           of a resynchronisation is left, for scripts of the original service. Empty: nobody is \
           told. With files of the original: /var/agentx/master.",
    get: |config| Value::Text(config.admin.agentx_socket.clone()),
    set: |config, value| config.admin.agentx_socket = value.text().to_owned(),
};

/// `cluster.admin_addresses`.
pub(super) const ADDRESSES: Key = Key {
    section: "cluster",
    name: "admin_addresses",
    kind: ValueKind::Servers,
    flag: None,
    help: "Admin listeners of the members, for figures of the whole cluster and for `chronos \
           cluster`; https:// stands before those with TLS.",
    get: |config| Value::Texts(config.admin.cluster.clone()),
    set: |config, value| config.admin.cluster = value.texts().to_vec(),
};
