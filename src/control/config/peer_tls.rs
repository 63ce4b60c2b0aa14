//! TLS between nodes as configured: the keys `cluster.tls` and `cluster.tls_*`, and what their
//! files say. The key's file is for its owner alone; no message shows anything of it.

use std::path::Path;
use std::sync::Arc;

use super::secret_file::{SecretFileError, read_private};
use super::tls::{TlsConfig, TlsFileError, now_s, read_file};
use crate::core::peers::address::host_of;
use crate::node::settings::PeerTls;
use crate::tls::material::{FILE_BYTES_MAX, Text};
use crate::tls::names::Member;
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

impl PeerTlsConfig {
    /// The paths of the node's certificate and of its key. They can be those that clients get:
    /// `chronos cluster certs` makes certificates for both.
    pub(super) fn own_files<'c>(&'c self, clients: &'c TlsConfig) -> (&'c str, &'c str) {
        match self.cert.is_empty() && self.key.is_empty() {
            true => (&clients.cert, &clients.key),
            false => (&self.cert, &self.key),
        }
    }
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
         nodes know this one, and with chronos://{name} if it has names of that kind; make one: \
         chronos cluster certs --node {wanted}"
    )]
    OtherName {
        /// The file as the operator named it.
        file: String,
        /// The node's name without its port.
        host: String,
        /// The node's name.
        name: String,
        /// That of the two of whose kind the certificate's names are.
        wanted: String,
    },
}

/// Reads the files of the node of this name, if there is to be TLS. Returns the settings, and what
/// to say of a certificate whose time is not now.
pub(super) fn read(
    config: &PeerTlsConfig,
    clients: &TlsConfig,
    name: &str,
) -> Result<Option<(PeerTls, Option<String>)>, PeerTlsError> {
    let PeerTlsConfig { mode, ca, .. } = config;
    if *mode == PeerTlsMode::Off {
        return Ok(None);
    }
    let (cert, key) = config.own_files(clients);
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
    let host = host_of(name);
    if !nodes.are_of(Member { name, host: &host }) {
        let wanted = if nodes.have_members() { name.into() } else { host.clone() };
        let (file, name) = (cert.into(), name.into());
        return Err(PeerTlsError::OtherName { file, host, name, wanted });
    }
    let untimely = nodes.acceptor.untimely(now_s());
    let untimely = untimely.map(|told| format!("[cluster] tls_cert: {cert}: {told}"));
    let is_required = *mode == PeerTlsMode::Required;
    Ok(Some((PeerTls { is_required, nodes: Arc::new(nodes) }, untimely)))
}
