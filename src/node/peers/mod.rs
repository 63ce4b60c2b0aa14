//! One core's connections with other nodes.

mod securing;
#[cfg(test)]
mod securing_tests;
mod shaking;
mod socket;
pub(crate) mod sockets;
#[cfg(test)]
mod sockets_tests;
