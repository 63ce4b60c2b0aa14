//! What drives a server of timestamps: the thread that keeps its bound, in a file or in
//! `ZooKeeper`, and what operators see of both.

pub(crate) mod board;
pub(crate) mod bound_file;
mod coordinated;
pub(crate) mod keeper;
mod once_a_minute;
mod outlets;
mod standalone;
pub(crate) mod zookeeper;
pub(crate) mod zookeeper_init;
