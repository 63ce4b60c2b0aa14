//! One core's callbacks: connections to callback servers.

pub(crate) mod lanes;
pub(crate) mod listeners;
pub(crate) mod policy;
pub mod request;
pub mod signing;
