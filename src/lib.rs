//! Chronos: a timer service. See ARCHITECTURE.md for the rooms; every import points from a later
//! line here to an earlier one.

#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod base;
pub mod wire;
pub mod store;
pub mod timer;
pub mod cluster;
pub mod timestamp;
pub mod journal;
pub mod shard;
pub mod tls;
pub mod core;
#[allow(unsafe_code)]
#[deny(clippy::undocumented_unsafe_blocks)]
pub mod ring;
pub mod node;
pub mod control;
pub mod cli;
