//! The sockets at which the admin API listens: a plain one, one for TLS, both or none.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::sleep;

/// How often a port in use is tried, and the pause between two tries.
const PORT_TRIES: u32 = 60;
const PORT_PAUSE: Duration = Duration::from_millis(25);

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

/// Binds an address. A port in use is tried again: that of a process that was just killed stays
/// bound until the kernel has torn the process down.
async fn bind(
    address: Option<SocketAddr>,
    remedy: &'static str,
) -> Result<Option<TcpListener>, DoorError> {
    let Some(address) = address else { return Ok(None) };
    let mut tries = 1;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(Some(listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < PORT_TRIES => {
                tries += 1;
                sleep(PORT_PAUSE).await;
            }
            Err(source) => return Err(DoorError { address, source, remedy }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_that_is_given_up_meanwhile_is_waited_for() {
        let former = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = former.local_addr().expect("bound");
        let plan = DoorPlan { plain: Some(address), secure: None };
        let giving_up = async {
            sleep(PORT_PAUSE * 3).await;
            drop(former);
        };
        let (doors, ()) = tokio::join!(AdminDoors::open(plan), giving_up);
        assert_eq!(doors.expect("free by then").plain_address(), Some(address));
    }
}
