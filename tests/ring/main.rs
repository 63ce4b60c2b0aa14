//! The ring against real sockets on the loopback interface and real files: what its callers may rely
//! on, edge by edge.

mod disk;
mod files;
mod harness;
mod lifetime;
mod traffic;
mod waiting;
