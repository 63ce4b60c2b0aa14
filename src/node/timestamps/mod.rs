//! One core's clients for timestamps.

pub(crate) mod connection;
pub(crate) mod issuer;
pub(crate) mod server;
