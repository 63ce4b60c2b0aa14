//! The ring against real sockets on the loopback interface: what its callers may rely on, edge by
//! edge.

mod harness;
mod lifetime;
mod traffic;
mod waiting;
