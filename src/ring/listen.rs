//! Listening sockets, the states of their accepts, and the limit of open files.

// May panic: assertions 1, expectations 1.
// Why it does not: kernel 2.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

/// Whether an address is one of this machine's: it can be bound. Cost: three system calls, so not
/// for the hot path.
pub fn is_of_this_machine(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// A bound, listening TCP socket with SO_REUSEADDR and SO_REUSEPORT. Accepted sockets inherit its
/// TCP_NODELAY.
#[derive(Debug)]
pub struct Listener {
    pub(super) socket: Socket,
    address: SocketAddr,
}

impl Listener {
    /// Binds and listens. Several listeners (one per core) may share `address`. Port 0 takes a free
    /// port; the other cores then use [`Listener::local_address`]. An IPv6 listener on `::` takes
    /// IPv4 connections, too.
    pub fn bind(address: SocketAddr, backlog: u32) -> io::Result<Listener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_tcp_nodelay(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.bind(&address.into())?;
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        let address = socket
            .local_addr()?
            .as_socket()
            .expect("a socket bound to an internet address has an internet address");
        Ok(Listener { socket, address })
    }

    /// Checks that no other socket listens on `address`. [`Listener::bind`] shares the port with
    /// every socket that has SO_REUSEPORT, so without this check a second node would silently take
    /// half of the first node's connections.
    pub fn check_free(address: SocketAddr) -> io::Result<()> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())
    }

    /// The address that the listener is bound to, with the port that was taken.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }
}

/// Raises the soft limit of open files to the hard limit. Returns the limit in force.
pub fn raise_open_files_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes to `limit`, which outlives the call.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    assert!(result == 0, "RLIMIT_NOFILE exists on every supported kernel");
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
    // SAFETY: the kernel reads `raised`, which outlives the call.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) };
    if result == 0 { raised.rlim_cur } else { limit.rlim_cur }
}

/// The state of a listener's multishot accept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Accepting {
    /// The kernel has no operation of this listener.
    Idle,
    /// The kernel has the accept, whose last completion is still to come.
    Armed,
    /// The kernel has the timeout after which the accept begins again.
    Pausing,
}

/// One listener of a ring. A slot that has no listener and is idle is free.
pub(super) struct ListenerSlot {
    /// The listener; `None` after listening has ended.
    pub(super) listener: Option<Listener>,
    /// The owner of the sockets that this listener accepts.
    pub(super) owner: u64,
    /// What the kernel has of this listener.
    pub(super) accepting: Accepting,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_share_a_port_once_it_is_known() {
        let loopback: SocketAddr = "127.0.0.1:0".parse().expect("it is an address");
        let first = Listener::bind(loopback, 16).expect("a free port exists");
        assert_ne!(first.local_address().port(), 0);
        let second = Listener::bind(first.local_address(), 16).expect("SO_REUSEPORT shares it");
        assert_eq!(first.local_address(), second.local_address());
    }

    #[test]
    fn the_limit_in_force_is_told_and_stays() {
        let limit = raise_open_files_limit();
        assert!(limit > 0);
        assert_eq!(raise_open_files_limit(), limit);
    }
}
