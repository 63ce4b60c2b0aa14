//! The keys of listeners that may be closed, in the one table of keys.

use super::key::Key;
use super::value::{Value, ValueKind};

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
