//! How one core talks with the other nodes of the cluster, without sockets: which peers it dials
//! and when, what it says, and what it believes of each peer.

pub mod actions;
pub(crate) mod address;
pub(crate) mod behind;
pub(crate) mod counters;
pub(crate) mod greeting;
pub mod handshake;
pub mod hello;
pub(crate) mod http_talk;
pub(crate) mod inbounds;
pub(crate) mod peering;
#[cfg(test)]
mod peering_tests;
pub mod secret;
#[cfg(test)]
mod secret_tests;
pub(crate) mod site_members;
pub(crate) mod site_watch;
pub(crate) mod voice;
