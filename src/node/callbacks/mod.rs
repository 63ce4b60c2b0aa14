//! One core's callbacks: connections to callback servers.

pub(crate) mod dialling;
pub(crate) mod failing;
pub(crate) mod lanes;
mod lanes_tls;
pub(crate) mod listeners;
pub(crate) mod location;
pub(crate) mod policy;
pub mod request;
mod secured;
pub mod signing;
