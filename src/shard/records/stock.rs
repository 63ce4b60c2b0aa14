//! The sources of a shard's memory.

use std::sync::Arc;

use super::Record;
use crate::store::index::{Entry, Index};
use crate::store::links::{Link, Links};
use crate::store::payloads::Payloads;
use crate::store::slab::Slab;
use crate::store::source::Source;

/// Where the records of a shard take their chunks from, and give them back. The shard takes,
/// another thread fills and gives the kernel what is not needed.
#[derive(Clone, Debug)]
pub struct Stock {
    /// Chunks of the slab.
    pub records: Arc<Source<Record>>,
    /// Chunks of links.
    pub links: Arc<Source<Link>>,
    /// Chunks of the index.
    pub entries: Arc<Source<Entry>>,
    /// Chunks of small payloads.
    pub payloads: Arc<Source<u8>>,
    /// Spans of middle payloads. None is filled ahead.
    pub spans: Arc<Source<u8>>,
}

impl Stock {
    /// Sources that a thread tends, in each of which chunks of at most `ready_bytes_max` are ready,
    /// and at least one.
    pub fn new(ready_bytes_max: usize) -> Self {
        fn source<T>(len: usize, ready_bytes_max: usize) -> Arc<Source<T>> {
            Source::new(len, ready_bytes_max / (len * size_of::<T>()))
        }
        Self {
            records: source(Slab::<Record>::CHUNK_LEN, ready_bytes_max),
            links: source(Links::CHUNK_LEN, ready_bytes_max),
            entries: source(Index::CHUNK_LEN, ready_bytes_max),
            payloads: source(Payloads::CHUNK_LEN, ready_bytes_max),
            spans: source(Payloads::SPAN_LEN, ready_bytes_max),
        }
    }

    /// Sources that nobody tends.
    pub fn none() -> Self {
        Self {
            records: Source::none(Slab::<Record>::CHUNK_LEN),
            links: Source::none(Links::CHUNK_LEN),
            entries: Source::none(Index::CHUNK_LEN),
            payloads: Source::none(Payloads::CHUNK_LEN),
            spans: Source::none(Payloads::SPAN_LEN),
        }
    }
}
