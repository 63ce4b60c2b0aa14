//! One core's connections with other nodes.

pub(crate) mod sockets;
#[cfg(test)]
mod sockets_tests;
