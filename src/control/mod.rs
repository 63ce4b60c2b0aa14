//! The control thread, which is not hot: configuration, signals, the admin API, metrics, logs. A
//! core never waits for this thread. Control reads what the cores count and sends them commands.

#![warn(unreachable_pub)]

pub(crate) mod admin;
pub(crate) mod cluster;
pub mod config;
pub(crate) mod destinations;
pub(crate) mod estimate;
pub(crate) mod http_client;
pub(crate) mod launch;
pub(crate) mod log;
mod log_queue;
pub(crate) mod long_work;
mod names;
mod originals;
mod pid_file;
mod recovery_progress;
mod serve;
mod shared;
mod signals;
mod snmp;
mod tags;
mod tenants;
pub(crate) mod timestamp;
mod tls_stream;
