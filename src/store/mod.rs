//! The memory of one shard, without meaning: a wheel, a slab of records, an index, an arena of
//! payloads. No structure stalls on growth: every structure grows in small pieces of bounded work.

pub mod index;
pub mod links;
pub mod payloads;
pub mod slab;
pub mod source;
pub mod wheel;

mod blocks;
pub(crate) mod directory;
mod occupancy;
mod places;
mod spans;
#[cfg(test)]
mod wheel_tests;
