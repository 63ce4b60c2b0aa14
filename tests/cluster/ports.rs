//! Ports for the processes that a story starts.

use std::collections::BTreeSet;
use std::net::{IpAddr, TcpListener};
use std::sync::Mutex;
use std::time::SystemTime;

/// Below those that the kernel gives to outgoing connections.
const FIRST: u16 = 10_000;
const COUNT: u64 = 20_000;

/// A port that is free on all these hosts, and that nobody in this process was given before.
pub fn free_port(hosts: &[IpAddr]) -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().expect("nobody panics with it");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let mut draw = u64::from(std::process::id()) << 32 ^ now.as_nanos() as u64;
    for _ in 0..1_000 {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let port = FIRST + ((draw >> 33) % COUNT) as u16;
        // One that was given is not tried again: a try keeps it from its owner for a moment.
        let is_free = || hosts.iter().all(|host| TcpListener::bind((*host, port)).is_ok());
        if given.insert(port) && is_free() {
            return port;
        }
    }
    panic!("no port is free on {hosts:?}");
}
