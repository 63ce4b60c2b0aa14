//! Listening sockets.

use std::io;
use std::net::SocketAddr;

/// A bound, listening TCP socket (SO_REUSEADDR, SO_REUSEPORT, TCP_NODELAY inherited by accepted sockets).
#[derive(Debug)]
pub struct Listener;

impl Listener {
    /// Binds and listens. Several listeners (one per core) may share `address`; port 0 takes a free port,
    /// which [`Listener::local_address`] tells, to be used for the other cores.
    pub fn bind(_address: SocketAddr, _backlog: u32) -> io::Result<Listener> {
        todo!()
    }

    /// The address bound to.
    pub fn local_address(&self) -> SocketAddr {
        todo!()
    }
}

/// Raises the soft limit of open files to the hard limit; returns the limit in force.
pub fn raise_open_files_limit() -> u64 {
    todo!()
}
