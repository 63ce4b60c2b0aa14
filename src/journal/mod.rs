//! The journal of a shard: what memory is rebuilt from after a restart. Memory stays the truth
//! while a node runs; this room only turns entries into bytes and bytes into entries. No file, no
//! clock: segments are numbers here, and whoever drives the journal has the files.
//!
//! - An [`entry`] says what the shard holds of one timer, in itself complete.
//! - A [`page`] is one or more blocks of 4 KiB with entries and a checksum.
//! - A *write* is a run of pages that reaches the disk as one. At most one write is under way, and
//!   all that is appended meanwhile is the next one ([`writer`]).
//! - A *segment* is a file of fixed size, filled from its beginning. Segments are numbered from 1
//!   and never written again under the same number. The oldest is emptied first ([`compaction`]).
//! - [`reader`] reads one segment and tells a torn write from damage.
//! - [`recovery`] reads the segments of a shard in their order.
//! - [`clocks`] brings times of an earlier boot to this boot's clock.
//!
//! docs/design/journal.md has the format and the reasons.

pub(crate) mod clocks;
pub(crate) mod compaction;
pub mod entry;
pub mod page;
pub mod reader;
pub mod recovery;

pub mod writer;

/// Bytes of a block: what a disk may write as one, and what pages are measured in.
pub const BLOCK_BYTES: usize = 4_096;

/// The format that this release writes. It reads this format and every one before.
pub const FORMAT: u16 = 1;

/// A journal's number, drawn when its directory is made. A page of another journal has another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct JournalId(pub u64);

/// Number of a segment within its shard's journal, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SegmentNumber(pub u64);

impl SegmentNumber {
    /// The segment after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// How many changes a shard has noted. A change is durable when the durable position is not below
/// the position at which it was noted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position(pub u64);
