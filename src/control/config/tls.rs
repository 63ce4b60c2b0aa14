//! TLS for clients as configured: the keys of `[tls]`, and what their files say. The key's file is
//! for its owner alone; no message shows anything of it.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

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

/// Reads the files, for clients at this address. Returns the settings, and what to say of a
/// certificate whose time is not now.
pub(super) fn read(
    config: &TlsConfig,
    listen: SocketAddr,
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
    let untimely = acceptor.untimely(now_s()).map(|told| format!("[tls] cert: {cert}: {told}"));
    let handshake_timeout_ms = config.handshake_timeout_ms;
    let settings = TlsSettings { listen, handshake_timeout_ms, acceptor: Arc::new(acceptor) };
    Ok((settings, untimely))
}

/// Seconds since 1970.
pub(super) fn now_s() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX)
}

/// Returns what a file of certificates says. Reads at most one byte more than it may have.
pub(super) fn read_file(name: &'static str, path: &str) -> Result<Vec<u8>, TlsFileError> {
    let unreadable = |reason: String| TlsFileError::Unreadable { name, file: path.into(), reason };
    // To open a pipe would wait for its other end.
    let found = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if !found.is_file() {
        return Err(unreadable("it is no file".into()));
    }
    let opened = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let mut text = Vec::new();
    let mut bounded = opened.take(FILE_BYTES_MAX as u64 + 1);
    bounded.read_to_end(&mut text).map_err(|error| unreadable(error.to_string()))?;
    if text.len() > FILE_BYTES_MAX {
        return Err(unreadable(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}
