//! TLS for clients as configured: the keys of `[tls]`, and what their files say. The key's file is
//! for its owner alone; no message shows anything of it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::concealed::shown;
use super::regular_file;
use super::secret_file::{SecretFileError, read_private};
use crate::node::settings::TlsSettings;
use crate::tls::acceptor::{Acceptor, ClientAuth, Material};
use crate::tls::material::{FILE_BYTES_MAX, MaterialError, Text};

/// The port for TLS unless `[node] listen_tls` names another.
const PORT: u16 = 7443;
const HANDSHAKE_TIMEOUT_MS: u64 = 10_000;

/// The keys of `[tls]`, and `[node] listen_tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// Where clients connect. `None`: port 7443 of the address for plain clients.
    pub listen: Option<SocketAddr>,
    /// The path of the certificates; empty: no TLS.
    pub cert: String,
    /// The path of the private key.
    pub key: String,
    /// The path of the authorities of clients.
    pub client_ca: String,
    /// Whether clients show certificates.
    pub client_auth: ClientAuth,
    /// Time in ms for a handshake.
    pub handshake_timeout_ms: u64,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            listen: None,
            cert: String::new(),
            key: String::new(),
            client_ca: String::new(),
            client_auth: ClientAuth::Off,
            handshake_timeout_ms: HANDSHAKE_TIMEOUT_MS,
        }
    }
}

impl TlsConfig {
    /// Where clients connect that speak TLS, beside plain clients at this address; `None`: there is
    /// no TLS.
    pub(super) fn address(&self, plain: SocketAddr) -> Option<SocketAddr> {
        let default = SocketAddr::new(plain.ip(), PORT);
        (!self.cert.is_empty()).then(|| self.listen.unwrap_or(default))
    }
}

/// What is wrong with a file of `[tls]`. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFileError {
    /// The file of the key cannot be read, or others may read it.
    #[error("key: {0}")]
    Key(SecretFileError),
    /// A file of certificates cannot be read.
    #[error(
        "{name}: {file}: cannot be read: {reason}. Name a file that exists and that this user may \
         read"
    )]
    Unreadable {
        /// The key that names the file.
        name: &'static str,
        /// The file as the operator named it.
        file: String,
        /// The error that the kernel returned.
        reason: String,
    },
    /// A file says something else than it should.
    #[error("{name}: {file}: {error}")]
    Content {
        /// The key that names the file.
        name: &'static str,
        /// The file as the operator named it.
        file: String,
        /// What is wrong.
        error: MaterialError,
    },
}

/// Reads the files. `listen`: where clients connect. Returns the settings, and what to say of a
/// certificate whose time is not now, or that some clients refuse.
pub(super) fn read(
    config: &TlsConfig,
    listen: Option<SocketAddr>,
) -> Result<(TlsSettings, Option<String>), TlsFileError> {
    let TlsConfig { cert, key, client_ca, client_auth, .. } = config;
    let certificates = read_file("cert", cert)?;
    let private = read_private(Path::new(key), FILE_BYTES_MAX).map_err(TlsFileError::Key)?;
    let authorities = match client_auth {
        ClientAuth::Off => Vec::new(),
        _ => read_file("client_ca", client_ca)?,
    };
    let material = Material {
        certificates: &certificates,
        key: &private,
        client_ca: &authorities,
        client_auth: *client_auth,
    };
    let acceptor = Acceptor::new(&material).map_err(|error| {
        let (name, file) = match error.text() {
            Text::Certificates => ("cert", cert),
            Text::Key => ("key", key),
            Text::Authorities => ("client_ca", client_ca),
        };
        TlsFileError::Content { name, file: file.clone(), error }
    })?;
    let told = acceptor.untimely(now_s()).or_else(|| acceptor.complaint().map(str::to_owned));
    let told = told.map(|told| format!("[tls] cert: {cert}: {told}"));
    let handshake_timeout_ms = config.handshake_timeout_ms;
    let settings = TlsSettings { listen, handshake_timeout_ms, acceptor: Arc::new(acceptor) };
    Ok((settings, told))
}

/// Seconds since 1970.
pub(super) fn now_s() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX)
}

/// Returns what a file of certificates says.
pub(super) fn read_file(name: &'static str, path: &str) -> Result<Vec<u8>, TlsFileError> {
    regular_file::read(Path::new(path), FILE_BYTES_MAX).map_err(|error| {
        let (file, reason) = (shown(Path::new(path)), error.to_string());
        TlsFileError::Unreadable { name, file, reason }
    })
}
