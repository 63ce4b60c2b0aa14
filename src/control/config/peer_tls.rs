//! TLS between nodes as configured: the keys `cluster.tls` and `cluster.tls_*`, and what their
//! files say. The key's file is for its owner alone; no message shows anything of it.

use std::path::Path;
use std::sync::Arc;

use super::keys::Key;
use super::secret_file::{SecretFileError, read_private};
use super::settings::Config;
use super::tls::{TlsFileError, now_s, read_file};
use super::value::{Value, ValueKind};
use crate::core::peers::address::host_of;
use crate::node::settings::PeerTls;
use crate::tls::material::{FILE_BYTES_MAX, Text};
use crate::tls::nodes::{NodeMaterial, Nodes};

/// Whether nodes speak TLS with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PeerTlsMode {
    /// They do not.
    #[default]
    Off,
    /// They try, and take those that do not as well.
    AcceptBoth,
    /// Nothing goes between nodes without.
    Required,
}

/// The keys `cluster.tls` and `cluster.tls_*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerTlsConfig {
    /// Whether nodes speak TLS with each other.
    pub mode: PeerTlsMode,
    /// The path of the node's certificate; empty: that of `[tls] cert`.
    pub cert: String,
    /// The path of its private key; empty: that of `[tls] key`.
    pub key: String,
    /// The path of the authority's certificates.
    pub ca: String,
}

/// What is wrong with a file of `cluster.tls_*`. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerTlsError {
    /// The file of the key cannot be read, or others may read it.
    #[error("tls_key: {0}")]
    Key(SecretFileError),
    /// Another file cannot be used.
    #[error("{0}")]
    File(#[from] TlsFileError),
    /// The certificate is that of another node.
    #[error(
        "tls_cert: {file}: expected a certificate with the name {host}, under which the other \
         nodes know this one; make one: chronos cluster certs --node {host}"
    )]
    OtherName {
        /// The file as the operator named it.
        file: String,
        /// The node's name without its port.
        host: String,
    },
}

/// Whether all that goes between the nodes of the cluster goes over TLS, so that nothing of it
/// needs the plain listener to be open without, and nobody is a node who has no certificate.
pub(super) fn peers_use_tls(config: &Config) -> bool {
    config.peer_tls.mode == PeerTlsMode::Required
}

/// Adds a text for each pair of values that are valid alone and contradict each other.
pub(super) fn check(config: &Config, conflicts: &mut Vec<String>) {
    let PeerTlsConfig { mode, ca, .. } = &config.peer_tls;
    let (cert, key) = own_files(config);
    if *mode == PeerTlsMode::Off {
        return;
    }
    for (name, path) in [("tls_cert", cert), ("tls_key", key), ("tls_ca", ca)] {
        if path.is_empty() {
            conflicts.push(format!(
                "{} needs {}; make a certificate of each node, and an authority: chronos cluster \
                 certs",
                config.describe("cluster", "tls"),
                config.describe("cluster", name)
            ));
        }
    }
}

/// The paths of the node's certificate and of its key. The certificate that clients get can be the
/// same: `chronos cluster certs` makes such ones.
fn own_files(config: &Config) -> (&str, &str) {
    let PeerTlsConfig { cert, key, .. } = &config.peer_tls;
    match cert.is_empty() && key.is_empty() {
        true => (&config.tls.cert, &config.tls.key),
        false => (cert, key),
    }
}

/// Reads the files, if there is to be TLS. Returns the settings, and what to say of a certificate
/// whose time is not now.
pub(super) fn read(config: &Config) -> Result<Option<(PeerTls, Option<String>)>, PeerTlsError> {
    let PeerTlsConfig { mode, ca, .. } = &config.peer_tls;
    if *mode == PeerTlsMode::Off || !config.node.serves_timers {
        return Ok(None);
    }
    let (cert, key) = own_files(config);
    let certificates = read_file("tls_cert", cert)?;
    let private = read_private(Path::new(key), FILE_BYTES_MAX).map_err(PeerTlsError::Key)?;
    let authorities = read_file("tls_ca", ca)?;
    let material =
        NodeMaterial { certificates: &certificates, key: &private, authorities: &authorities };
    let nodes = Nodes::new(&material).map_err(|error| {
        let (name, file) = match error.text() {
            Text::Certificates => ("tls_cert", cert),
            Text::Key => ("tls_key", key),
            Text::Authorities => ("tls_ca", ca.as_str()),
        };
        TlsFileError::Content { name, file: file.into(), error }
    })?;
    let host = host_of(&config.node.name);
    if !nodes.is_named(&host) {
        return Err(PeerTlsError::OtherName { file: cert.into(), host });
    }
    let untimely = nodes.acceptor.untimely(now_s());
    let untimely = untimely.map(|told| format!("[cluster] tls_cert: {cert}: {told}"));
    let is_required = *mode == PeerTlsMode::Required;
    Ok(Some((PeerTls { is_required, nodes: Arc::new(nodes) }, untimely)))
}

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
