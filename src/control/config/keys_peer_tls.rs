//! The keys of TLS between nodes, in the one table of keys.

use super::key::Key;
use super::peer_tls::PeerTlsMode;
use super::value::{Value, ValueKind};

/// `cluster.tls`.
pub(super) const MODE: Key = Key {
    section: "cluster",
    name: "tls",
    kind: ValueKind::Choice(&["off", "accept-both", "required"]),
    flag: None,
    help: "Whether nodes speak TLS with each other, each with a certificate that has its name: \
           they do not, they do where the other end does (to move a running cluster), or nothing \
           goes between them without. Read again on SIGHUP with the files.",
    get: |config| {
        Value::Text(match config.peer_tls.mode {
            PeerTlsMode::Off => "off".into(),
            PeerTlsMode::AcceptBoth => "accept-both".into(),
            PeerTlsMode::Required => "required".into(),
        })
    },
    set: |config, value| {
        config.peer_tls.mode = match value.text() {
            "required" => PeerTlsMode::Required,
            "accept-both" => PeerTlsMode::AcceptBoth,
            _ => PeerTlsMode::Off,
        };
    },
};

macro_rules! file {
    ($name:literal, $field:ident, $help:literal) => {
        Key {
            section: "cluster",
            name: $name,
            kind: ValueKind::Text { bytes_max: 4_096 },
            flag: None,
            help: $help,
            get: |config| Value::Text(config.peer_tls.$field.clone()),
            set: |config, value| config.peer_tls.$field = value.text().into(),
        }
    };
}

/// `cluster.tls_cert`.
pub(super) const CERT: Key = file!(
    "tls_cert",
    cert,
    "This node's certificate for other nodes (PEM), with those between it and the authority \
     behind. It has the node's address or name, and is good for clients and for servers. Empty, \
     with tls_key: that of [tls]."
);

/// `cluster.tls_key`.
pub(super) const KEY: Key =
    file!("tls_key", key, "The private key of tls_cert (PEM), readable by this user alone.");

/// `cluster.tls_ca`.
pub(super) const CA: Key = file!(
    "tls_ca",
    ca,
    "The cluster's own authority (PEM): whoever has a certificate of it for clients and for \
     servers is the node whose name the certificate has. Never one that signs for others."
);
