//! The thread that is not hot: configuration, signals, the admin API, metrics, logs. Nothing here
//! is ever waited for by a core: it reads what cores count, and asks them to stop.

#![warn(unreachable_pub)]

pub(crate) mod admin;
pub(crate) mod cluster;
pub mod config;
pub(crate) mod http_client;
pub(crate) mod launch;
pub(crate) mod log;
mod originals;
mod pid_file;
mod serve;
mod tags;
pub(crate) mod timestamp;
