//! The journal's files: the directory of a node, and the reading of what a shard wrote there. What
//! the bytes mean is `crate::journal`'s.

pub mod directory;
mod identity;
mod pieces;
pub mod reading;
