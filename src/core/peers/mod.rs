//! How one core talks with the other nodes of the cluster, without sockets: who is dialled and
//! when, what is said, what is believed of each.

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
pub(crate) mod voice;
