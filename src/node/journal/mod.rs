//! The journal of a node on its disk: the data directory, the files of each shard, what a start
//! reads from them, and the thread that makes new ones. What the bytes mean is `crate::journal`'s.

pub mod backup;
pub mod directory;
pub mod disk;
mod identity;
mod pieces;
pub mod reading;
pub mod recovery;
pub mod segments;
