//! One core's connections with other nodes.

mod shaking;
mod socket;
pub(crate) mod sockets;
#[cfg(test)]
mod sockets_tests;
