//! Ports for the processes that a story starts.

use std::collections::BTreeSet;
use std::net::{IpAddr, TcpListener};
use std::sync::Mutex;

use super::random::Random;

/// The first port that is tried. The ports lie below those that the kernel gives to outgoing
/// connections.
const FIRST: u16 = 10_000;
const COUNT: usize = 20_000;

/// Returns a port that is free on all these hosts. No port is returned twice in this process.
pub fn free_port(hosts: &[IpAddr]) -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().expect("nobody panics with it");
    let mut random = Random::of_this_moment();
    for _ in 0..1_000 {
        let port = FIRST + random.below(COUNT) as u16;
        // A port that was given is not tried again, because a try keeps it from its owner for a
        // moment.
        let is_free = || hosts.iter().all(|host| TcpListener::bind((*host, port)).is_ok());
        if given.insert(port) && is_free() {
            return port;
        }
    }
    panic!("no port is free on {hosts:?}");
}
