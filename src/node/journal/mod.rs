//! The journal of a node on its disk: the data directory, the files of each shard, what a start
//! reads from them, and the thread that makes new ones. What the bytes mean is `crate::journal`'s.

pub(crate) mod aside;
pub(crate) mod backup;
pub mod directory;
pub mod disk;
mod identity;
mod modes;
pub mod pieces;
pub mod reading;
pub mod recovery;
mod place;
pub(crate) mod segments;
