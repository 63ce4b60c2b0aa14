//! The sockets at which the admin API listens: a plain one, one for TLS, both or none.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

/// Where the admin API is to listen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DoorPlan {
    /// The address for plain connections.
    pub plain: Option<SocketAddr>,
    /// The address for connections over TLS.
    pub secure: Option<SocketAddr>,
}

/// A socket cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address} for the admin API: {source}. Is another node running there? Choose \
     another address with {remedy}"
)]
pub(crate) struct DoorError {
    /// The address asked for.
    address: SocketAddr,
    /// The error that the kernel returned.
    source: io::Error,
    /// What sets the address.
    remedy: &'static str,
}

/// The listening sockets.
#[derive(Debug, Default)]
pub(crate) struct AdminDoors {
    pub(super) plain: Option<TcpListener>,
    pub(super) secure: Option<TcpListener>,
}

impl AdminDoors {
    /// Opens the sockets.
    pub(crate) async fn open(plan: DoorPlan) -> Result<Self, DoorError> {
        let plain = bind(plan.plain, "--admin or [admin] listen, or --admin off").await?;
        Ok(Self { plain, secure: bind(plan.secure, "[admin] listen_tls").await? })
    }

    /// Where plain connections are accepted.
    pub(crate) fn plain_address(&self) -> Option<SocketAddr> {
        self.plain.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Where connections over TLS are accepted.
    pub(crate) fn secure_address(&self) -> Option<SocketAddr> {
        self.secure.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// All addresses, the plain one first.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.plain_address().into_iter().chain(self.secure_address()).collect()
    }
}

async fn bind(
    address: Option<SocketAddr>,
    remedy: &'static str,
) -> Result<Option<TcpListener>, DoorError> {
    let Some(address) = address else { return Ok(None) };
    let bound = TcpListener::bind(address).await;
    bound.map(Some).map_err(|source| DoorError { address, source, remedy })
}
