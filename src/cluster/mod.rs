//! Who holds what, as pure functions. One node so far: the hash that all nodes agree on and the
//! filter in a timer's id.

pub mod bloom;
pub mod murmur3;
