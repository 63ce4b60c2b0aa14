//! TLS of callbacks as configured: whom this node believes, and what it shows to servers that ask.
//! The key's file is for its owner alone; no message shows anything of it.

use std::path::Path;
use std::sync::Arc;

use super::secret_file::{SecretFileError, read_private};
use super::tls::{TlsFileError, read_file};
use crate::tls::connector::{ClientMaterial, Connector, Trust};
use crate::tls::material::{FILE_BYTES_MAX, MaterialError, Text};

/// The keys of `[callbacks]` that are about TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallbackTlsConfig {
    /// The path of the authorities of callback servers; empty: those of the system.
    pub ca: String,
    /// The path of the certificate that is shown to servers that ask for one; empty: none.
    pub client_cert: String,
    /// The path of its key.
    pub client_key: String,
}

/// What is wrong with the files. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackTlsError {
    /// The file of the key cannot be read, or others may read it.
    #[error("client_key: {0}")]
    Key(SecretFileError),
    /// A file of certificates cannot be read.
    #[error("{0}")]
    Unreadable(TlsFileError),
    /// A file says something else than it should.
    #[error("{name}: {file}: {error}")]
    Content {
        /// The key of `[callbacks]`.
        name: &'static str,
        /// The file as the operator named it.
        file: String,
        /// What is wrong.
        error: MaterialError,
    },
}

/// Adds a text for a certificate without a key, and the reverse.
pub(super) fn check(tls: &CallbackTlsConfig, conflicts: &mut Vec<String>) {
    if tls.client_cert.is_empty() != tls.client_key.is_empty() {
        conflicts.push(
            "[callbacks] client_cert and client_key belong together: set both, or none to show no \
             certificate to callback servers"
                .into(),
        );
    }
}

/// Reads the files. `None`: the system has no authorities, and none are named.
pub(super) fn read(tls: &CallbackTlsConfig) -> Result<Option<Arc<Connector>>, CallbackTlsError> {
    let CallbackTlsConfig { ca, client_cert, client_key } = tls;
    let (mut authorities, mut certificates, mut key) = (Vec::new(), Vec::new(), Vec::new());
    let is_asked = !client_cert.is_empty();
    if is_asked {
        let read = read_file("client_cert", client_cert);
        certificates = read.map_err(CallbackTlsError::Unreadable)?;
        let read = read_private(Path::new(client_key), FILE_BYTES_MAX);
        key = read.map_err(CallbackTlsError::Key)?;
    }
    if !ca.is_empty() {
        authorities = read_file("ca", ca).map_err(CallbackTlsError::Unreadable)?;
    }
    let material = ClientMaterial {
        trust: if ca.is_empty() { Trust::System } else { Trust::These(&authorities) },
        identity: is_asked.then_some((&certificates[..], &key[..])),
    };
    match Connector::new(&material) {
        Ok(connector) => Ok(Some(Arc::new(connector))),
        Err(MaterialError::BadAuthorities(_)) if ca.is_empty() => Ok(None),
        Err(error) => {
            let (name, file) = match error.text() {
                Text::Certificates => ("client_cert", client_cert),
                Text::Key => ("client_key", client_key),
                Text::Authorities => ("ca", ca),
            };
            Err(CallbackTlsError::Content { name, file: file.clone(), error })
        }
    }
}
