//! The keys of listeners that may be closed, in the one table of keys.

use super::key::Key;
use super::value::{Value, ValueKind};

/// `node.listen`.
pub(super) const CLIENTS: Key = Key {
    section: "node",
    name: "listen",
    kind: ValueKind::OwnAddress,
    flag: Some("--listen"),
    help: "Where clients connect, and other nodes. Port 0 takes a free port and logs it.",
    get: |config| Value::Address(config.node.listen),
    set: |config, value| config.node.listen = value.address(),
};

/// `node.plain_clients`.
pub(super) const PLAIN_CLIENTS: Key = Key {
    section: "node",
    name: "plain_clients",
    kind: ValueKind::Boolean,
    flag: None,
    help: "Whether clients are served without TLS. false: only at listen_tls. Then listen is for \
           other nodes alone and needs [cluster] tls = \"required\"; a node without others and \
           without it does not open listen.",
    get: |config| Value::Boolean(config.node.plain_clients),
    set: |config, value| config.node.plain_clients = value.boolean(),
};

/// `timestamp.listen`.
pub(super) const TIMESTAMPS: Key = Key {
    section: "timestamp",
    name: "listen",
    kind: ValueKind::AddressOrOff,
    flag: None,
    help: "Where Thrift clients connect. \"off\": only over TLS, at listen_tls.",
    get: |config| {
        let listen = config.timestamp.served.listen;
        Value::Text(listen.map_or_else(|| "off".into(), |address| address.to_string()))
    },
    set: |config, value| config.timestamp.served.listen = value.text().parse().ok(),
};

/// `timestamp.listen_tls`.
pub(super) const TIMESTAMPS_TLS: Key = Key {
    section: "timestamp",
    name: "listen_tls",
    kind: ValueKind::AddressOrNone,
    flag: None,
    help: "Where Thrift clients connect that speak TLS, with the certificate of [tls] and what \
           [tls] asks of clients. Empty: they do not.",
    get: |config| {
        let listen = config.timestamp.served.listen_tls;
        Value::Text(listen.map_or_else(String::new, |address| address.to_string()))
    },
    set: |config, value| config.timestamp.served.listen_tls = value.text().parse().ok(),
};
