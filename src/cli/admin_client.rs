//! How commands ask admin APIs: plainly, or over TLS for addresses that begin with `https://`. The
//! operator's token goes over TLS or to this machine, and nowhere else.

use std::cell::OnceCell;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::runtime::block_on;
use super::shown::clean;
use super::token::authorization;
use crate::control::admin::guard::ORDER_HEADER;
use crate::control::config::regular_file;
use crate::control::config::secret_file::read_private;
use crate::control::http_client::{
    HttpAnswer, HttpClient, HttpError, HttpRequest, host_of, is_over_tls,
};
use crate::tls::connector::{ClientMaterial, Connector, Trust};
use crate::tls::material::{FILE_BYTES_MAX, Text};

/// The variables of [`TlsFlags`]. They are no keys of the configuration.
pub(super) const VARIABLES: [&str; 3] = ["CHRONOS_CA", "CHRONOS_CERT", "CHRONOS_KEY"];

/// What commands ask over TLS with.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct TlsFlags {
    /// Authorities of admin APIs over TLS (https://), in PEM; otherwise those of the system
    #[arg(long, global = true, value_name = "FILE", env = "CHRONOS_CA")]
    ca: Option<PathBuf>,

    /// The certificate to show to admin APIs that ask for one, in PEM
    #[arg(long, global = true, value_name = "FILE", env = "CHRONOS_CERT")]
    cert: Option<PathBuf>,

    /// The key of --cert; a file of its owner alone
    #[arg(long, global = true, value_name = "FILE", env = "CHRONOS_KEY")]
    key: Option<PathBuf>,
}

/// Why there is no document.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdminError {
    /// The request was not sent. The text says what to do.
    #[error("{0}")]
    NotSent(String),
    /// There is no answer, or a refusal.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The answer is one of success, and not that of a node.
    #[error("{0}")]
    Strange(String),
}

impl AdminError {
    /// The status of the answer that refused; `None`: nobody refused.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            AdminError::Http(HttpError::Refused { status, .. }) => Some(*status),
            _ => None,
        }
    }
}

/// Returns a member that each such answer of a node has. Whatever speaks HTTP answers 200 to
/// something: without this, a command would take that for what the node did.
pub(super) fn needed<'a>(
    address: &str,
    status: u16,
    document: &'a Value,
    member: &str,
) -> Result<&'a Value, AdminError> {
    let found = document.get(member).filter(|found| !found.is_null());
    found.ok_or_else(|| AdminError::Strange(strange(address, status, member)))
}

/// Says that an answer lacks something.
pub(super) fn strange(address: &str, status: u16, member: &str) -> String {
    let address = clean(address);
    format!("{address} answered {status} without {member}: is that a Chronos node's API?")
}

/// A request to an admin API.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdminRequest<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) body: &'a str,
    /// How long the exchange may take.
    pub(super) patience: Duration,
    /// Longest answer.
    pub(super) answer_bytes_max: usize,
}

/// Asks admin APIs, and the API of clients.
#[derive(Clone, Debug)]
pub(super) struct AdminClient {
    /// Made from the flags. Without flags the authorities of the system are read when the first
    /// address begins with `https://`: there are hundreds of them.
    connector: OnceCell<Result<Arc<Connector>, String>>,
}

impl AdminClient {
    /// Reads the files of the flags. Error: a file cannot be used.
    pub(super) fn new(flags: &TlsFlags) -> Result<Self, String> {
        let connector = OnceCell::new();
        let named =
            |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
        let (ca, cert, key) = (named(&flags.ca), named(&flags.cert), named(&flags.key));
        if cert.is_some() != key.is_some() {
            return Err(
                "--cert and --key (CHRONOS_CERT, CHRONOS_KEY) belong together: name both, \
                        or none to show no certificate"
                    .into(),
            );
        }
        if ca.is_some() || cert.is_some() {
            let own = cert.as_deref().zip(key.as_deref());
            // A cell that is new takes its value.
            let _ = connector.set(Ok(connector_of(ca.as_deref(), own)?));
        }
        Ok(Self { connector })
    }

    /// Sends a request to `host:port` or `https://host:port` and returns the JSON document of an
    /// answer 200 or 202.
    pub(super) fn ask(&self, admin: &str, request: AdminRequest<'_>) -> Result<Value, AdminError> {
        let answer = self.send(admin, request, request.body.as_bytes(), &[], false)?;
        Ok(answer.document()?)
    }

    /// Sends a request with these headers and this body, and returns the answer, whatever its
    /// status. `is_client`: the address is that of clients, who show their token always.
    pub(super) fn send(
        &self,
        address: &str,
        request: AdminRequest<'_>,
        body: &[u8],
        more: &[(&str, &str)],
        is_client: bool,
    ) -> Result<HttpAnswer, AdminError> {
        let AdminRequest { method, path, patience, answer_bytes_max, .. } = request;
        let (is_order, is_secure) = (method != "GET", is_over_tls(address));
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend_from_slice(more);
        if is_order && !is_client {
            headers.push((ORDER_HEADER, "1"));
        }
        // Who only looks needs no token at an admin API without TLS.
        let token = authorization().filter(|_| is_order || is_secure || is_client);
        if let Some(token) = &token {
            if !is_secure && !is_here(address) {
                return Err(AdminError::NotSent(in_the_clear(address, is_client)));
            }
            headers.push(("Authorization", token));
        }
        let mut client = HttpClient::new(address, patience, answer_bytes_max);
        if is_secure {
            client = client.with(self.connector().map_err(AdminError::NotSent)?);
        }
        let request = HttpRequest { method, path, headers: &headers, body };
        let answer = block_on(async { client.ask(request).await });
        Ok(answer.map_err(HttpError::from)??)
    }

    fn connector(&self) -> Result<Arc<Connector>, String> {
        self.connector.get_or_init(|| connector_of(None, None)).clone()
    }
}

/// Says why a token is not sent to an address, and what to do.
fn in_the_clear(address: &str, is_client: bool) -> String {
    let how = match is_client {
        true => "[node] listen_tls, [tls] cert",
        false => "[admin] listen_tls, and https:// in [cluster] admin_addresses",
    };
    format!(
        "CHRONOS_TOKEN would go to {address} in the clear: ask https:// there ({how}) or 127.0.0.1 \
         through a tunnel, or unset CHRONOS_TOKEN"
    )
}

/// Whether an address is one of this machine alone.
fn is_here(admin: &str) -> bool {
    let host = host_of(admin);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Reads the files: authorities, and the own certificate with its key.
fn connector_of(ca: Option<&Path>, own: Option<(&Path, &Path)>) -> Result<Arc<Connector>, String> {
    let read = |name: &str, path: &Path| {
        let read = regular_file::read(path, FILE_BYTES_MAX);
        read.map_err(|error| format!("{name} {}: cannot be read: {error}", path.display()))
    };
    let authorities = ca.map(|path| read("--ca", path)).transpose()?;
    let identity = match own {
        None => None,
        Some((cert, key)) => {
            let private = read_private(key, FILE_BYTES_MAX);
            Some((read("--cert", cert)?, private.map_err(|error| format!("--key: {error}"))?))
        }
    };
    let material = ClientMaterial {
        trust: authorities.as_deref().map_or(Trust::System, Trust::These),
        identity: identity.as_ref().map(|(cert, key)| (&cert[..], &key[..])),
    };
    let made = Connector::new(&material).map_err(|error| {
        let (name, file) = match error.text() {
            Text::Authorities => ("--ca", ca),
            Text::Certificates => ("--cert", own.map(|(cert, _)| cert)),
            Text::Key => ("--key", own.map(|(_, key)| key)),
        };
        let file = file.map_or_else(String::new, |file| format!(" {}", file.display()));
        format!("{name}{file}: {error}")
    });
    made.map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_stays_on_this_machine_without_tls() {
        for here in ["127.0.0.1:7254", "localhost:1", "LocalHost:1", "[::1]:7254", "127.9.9.9:1"] {
            assert!(is_here(here), "{here}");
        }
        for away in ["10.0.0.1:7254", "localhost.example:1", "[fd00::1]:7254", "0.0.0.0:7254"] {
            assert!(!is_here(away), "{away}");
        }
    }

    #[test]
    fn files_are_read_before_anybody_is_asked() {
        let made = |ca: &str, cert: &str, key: &str| {
            let path = |text: &str| Some(PathBuf::from(text));
            AdminClient::new(&TlsFlags { ca: path(ca), cert: path(cert), key: path(key) })
        };
        assert!(made("", "", "").is_ok(), "empty variables name no files");
        assert!(made("", "/nowhere", "").expect_err("no key").contains("belong together"));
        assert!(made("/nowhere", "", "").expect_err("no file").contains("--ca /nowhere: cannot"));
        let error = made("", "/nowhere/a", "/nowhere/b").expect_err("no files");
        assert!(error.starts_with("--cert /nowhere/a"), "{error}");
    }
}
