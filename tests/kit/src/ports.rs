//! Ports for the processes that a story starts.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Mutex;

use super::random::Random;
use super::until::{PATIENCE, until};

/// The first port that is tried. The ports lie below those that the kernel gives to outgoing
/// connections.
const FIRST: u16 = 10_000;
const COUNT: usize = 20_000;

/// Listens at an address with a port of [`free_port`]. The port may still be taken for a moment: a
/// process that another thread starts holds all that this process had open, from its fork until it
/// becomes another program.
pub fn listen(address: SocketAddr) -> TcpListener {
    until("a port to be free", PATIENCE, || match TcpListener::bind(address) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => None,
        bound => Some(bound.unwrap_or_else(|error| panic!("{address}: {error}"))),
    })
}

/// Returns a port that is free on all these hosts. No suite on this machine was given it before.
pub fn free_port(hosts: &[IpAddr]) -> u16 {
    // A port is given to whoever holds the UDP port of the same number, which nobody uses, until
    // the process ends: suites that run at one time see each other's.
    static GIVEN: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());
    let mut given = GIVEN.lock().expect("nobody panics with it");
    let mut random = Random::of_this_moment();
    for _ in 0..1_000 {
        let port = FIRST + random.below(COUNT) as u16;
        // A port that was given is not tried again, because a try keeps it from its owner for a
        // moment.
        let Ok(token) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)) else { continue };
        if hosts.iter().all(|host| TcpListener::bind((*host, port)).is_ok()) {
            given.push(token);
            return port;
        }
    }
    panic!("no port is free on {hosts:?}");
}
