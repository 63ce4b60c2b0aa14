//! What a shard appends, on its way to the disk. At most one write is under way; all that is
//! appended meanwhile is the next one. So writes grow with the load, and no timer decides how many
//! entries share one.

// May panic: assertions 6, expectations 2, indices 4.
// Why it does not: found 4, bounded 2, ordered 6.

use std::collections::VecDeque;

use crate::base::planted::{Bug, is_planted};

use super::entry::{Entry, Head, State};
use super::page::{self, BLOCKS_MAX, HEADER_BYTES, Place, Stamp};
use super::{BLOCK_BYTES, FORMAT, JournalId, Position, SegmentNumber};

/// How many segments are made ahead of the one that is filled. A new file costs tens of
/// milliseconds; a load of 200 MB/s fills one in 0.3 s.
const SPARES: usize = 2;
/// Blocks of the last segment that only states may take while no other segment is there. Without a
/// state no segment is emptied.
const STATE_BLOCKS: usize = 2;
/// Most bytes of one order to the disk. A longer write is several, one after the other.
pub const PIECE_BYTES_MAX: usize = 1 << 20;

/// The sizes of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Blocks of a segment.
    pub segment_blocks: u32,
    /// Bytes of entries above which nothing more is appended before a write.
    pub batch_bytes: usize,
}

impl Sizes {
    /// Segments of 64 MiB, writes of about 1 MiB.
    pub const PRODUCTION: Sizes = Sizes { segment_blocks: 16_384, batch_bytes: 1 << 20 };

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> u64 {
        u64::from(self.segment_blocks) * BLOCK_BYTES as u64
    }
}

/// Whose journal it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The journal's number.
    pub journal: JournalId,
    /// The node's name.
    pub name: String,
    /// The shard.
    pub shard: u16,
    /// How many shards the node has.
    pub shards: u16,
}

/// Where a journal goes on after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Continuation {
    /// The last segment that exists; 0: there is none.
    pub last: SegmentNumber,
    /// The number of the last write that was found; 0: there was none.
    pub writes: u64,
}

/// A part of a write, for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece<'a> {
    /// The segment.
    pub segment: SegmentNumber,
    /// Where the bytes go within it.
    pub offset: u64,
    /// Whole blocks, at most [`PIECE_BYTES_MAX`] bytes.
    pub bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
struct PageSpan {
    begins: usize,
    used: usize,
}

/// Pages that fill up.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    pages: Vec<PageSpan>,
    /// Where the page that fills up begins.
    open: Option<usize>,
    /// All changes up to this position are in this batch or in an earlier one.
    position: Position,
    entries: u64,
}

#[derive(Debug)]
struct UnderWay {
    batch: Batch,
    segment: SegmentNumber,
    block: u32,
    /// Bytes that the disk has.
    done: usize,
    /// Whether a piece is with the disk.
    is_ordered: bool,
    began: Stamp,
}

/// What the writer counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// Writes that the disk has.
    pub writes: u64,
    /// Their bytes, with padding.
    pub bytes: u64,
    /// Their entries.
    pub entries: u64,
}

/// The journal of a shard as it grows.
#[derive(Debug)]
pub struct Writer {
    owner: Owner,
    sizes: Sizes,
    state: State,
    /// The segment that is filled, or, before the first write, the last one that was found.
    segment: SegmentNumber,
    /// Its next free block.
    block: u32,
    /// Whether nothing more goes into it although there is room.
    is_closed: bool,
    /// The number of the last write that began.
    writes: u64,
    filling: Batch,
    under_way: Option<UnderWay>,
    /// Batches whose memory is kept.
    kept: Vec<Batch>,
    spares: VecDeque<SegmentNumber>,
    /// Segments that were asked for and are not there yet.
    asked: usize,
    /// The last segment that was asked for.
    last_asked: SegmentNumber,
    durable: Position,
    durable_write: u64,
    written: Written,
    moved: Vec<u8>,
}

impl Writer {
    /// A writer that goes on behind what was found. It begins a new segment, so it never writes
    /// into one that was torn.
    pub fn new(owner: Owner, sizes: Sizes, state: State, found: Continuation) -> Self {
        let Continuation { last, writes } = found;
        Self {
            owner,
            sizes,
            state,
            segment: last,
            block: 0,
            is_closed: true,
            writes,
            filling: Batch::default(),
            under_way: None,
            kept: Vec::new(),
            spares: VecDeque::new(),
            asked: 0,
            last_asked: last,
            durable: Position(0),
            durable_write: writes,
            written: Written::default(),
            moved: Vec::new(),
        }
    }

    /// The next segment that the driver is to make: a file of the size of a segment, in its
    /// directory for good. The driver then calls [`Writer::prepared`] or
    /// [`Writer::not_prepared`].
    pub fn wants_segment(&mut self) -> Option<SegmentNumber> {
        (self.asked == 0 && self.spares.len() < SPARES).then(|| {
            self.asked += 1;
            self.last_asked.next()
        })
    }

    /// Tells that the segment that was asked for is there.
    pub fn prepared(&mut self, segment: SegmentNumber) {
        assert!(segment == self.last_asked.next() && self.asked == 1, "one is made at a time");
        self.asked = 0;
        self.last_asked = segment;
        self.spares.push_back(segment);
    }

    /// Tells that the segment could not be made. The driver lets time pass before it asks
    /// [`Writer::wants_segment`] again.
    pub fn not_prepared(&mut self) {
        self.asked = 0;
    }

    /// Whether anything may be appended before the next write.
    pub fn has_room(&self) -> bool {
        self.filling.bytes.len() < self.sizes.batch_bytes
    }

    /// Whether an entry of at most so many bytes has its place in a segment that is there. What is
    /// appended without a place is neither noted nor written: the caller keeps its note instead.
    pub fn takes(&self, bytes: usize) -> bool {
        !self.spares.is_empty() || self.has_blocks(bytes.div_ceil(BLOCK_BYTES) + STATE_BLOCKS)
    }

    /// Whether a state has its place.
    pub fn takes_state(&self) -> bool {
        !self.spares.is_empty() || self.has_blocks(1)
    }

    /// Whether all that may be appended before a write has its place.
    pub fn takes_much(&self) -> bool {
        self.takes(self.sizes.batch_bytes)
    }

    /// Whether the present segment has so many blocks beyond what was appended.
    fn has_blocks(&self, blocks: usize) -> bool {
        let appended = self.filling.bytes.len().div_ceil(BLOCK_BYTES);
        let left = self.sizes.segment_blocks.saturating_sub(self.block) as usize;
        !self.is_closed && appended + blocks <= left
    }

    /// Appends an entry. Returns the segment in which it will be at the earliest; it may be the
    /// next one. Cost: one copy of the content.
    pub fn append(&mut self, entry: &Entry<'_>) {
        let batch = &mut self.filling;
        let begins = *batch.open.get_or_insert_with(|| {
            let begins = batch.bytes.len();
            page::begin(&mut batch.bytes);
            begins
        });
        let before = batch.bytes.len();
        entry.encode(&mut batch.bytes);
        batch.entries += 1;
        if batch.bytes.len() - begins <= BLOCK_BYTES {
            return;
        }
        if before == begins + HEADER_BYTES {
            // One entry that is longer than a block.
            return batch.close();
        }
        self.moved.clear();
        self.moved.extend_from_slice(&batch.bytes[before..]);
        batch.bytes.truncate(before);
        batch.close();
        let begins = batch.bytes.len();
        page::begin(&mut batch.bytes);
        batch.bytes.extend_from_slice(&self.moved);
        batch.open = Some(begins);
        if batch.bytes.len() - begins >= BLOCK_BYTES {
            batch.close();
        }
    }

    /// Tells that all changes up to `position` have been appended.
    pub fn cover(&mut self, position: Position) {
        assert!(position >= self.filling.position, "positions do not fall");
        self.filling.position = position;
        if self.filling.bytes.is_empty() && self.under_way.is_none() {
            self.durable = self.durable.max(position);
        }
    }

    /// Appends what the shard knows of itself. Returns the number of the write that will have it.
    pub fn append_state(&mut self, state: State) -> u64 {
        self.state = state;
        let entry = Entry::State(self.state.clone());
        self.append(&entry);
        self.writes + 1
    }

    /// The state as it was appended last.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether something waits to be written.
    pub fn has_work(&self) -> bool {
        !self.filling.bytes.is_empty()
    }

    /// Whether what waits to be written has no segment to go to.
    pub fn lacks_segment(&self) -> bool {
        self.has_work() && !self.has_segment()
    }

    /// Whether a write of what waits could begin as soon as none is under way.
    pub fn has_segment(&self) -> bool {
        !self.spares.is_empty() || self.fits()
    }

    /// Whether a write is under way.
    pub fn is_writing(&self) -> bool {
        self.under_way.is_some()
    }

    /// When the write that is under way began.
    pub fn writing_since(&self) -> Option<Stamp> {
        self.under_way.as_ref().map(|under_way| under_way.began)
    }

    /// Begins a write of all that was appended, if none is under way and there is a segment for it.
    /// [`Writer::next_piece`] then has its pieces. Cost: a checksum of the bytes.
    pub fn begin_write(&mut self, stamp: Stamp) {
        if self.under_way.is_some() || !self.has_work() {
            return;
        }
        let is_first = !self.fits();
        if is_first {
            let Some(next) = self.spares.pop_front() else { return };
            let previous_blocks = self.block;
            (self.segment, self.block, self.is_closed) = (next, 0, false);
            self.put_head_first(previous_blocks);
        }
        let next = self.kept.pop().unwrap_or_default();
        let mut batch = std::mem::replace(&mut self.filling, next);
        self.filling.position = batch.position;
        batch.close();
        self.writes += 1;
        let place = Place {
            journal: self.owner.journal,
            segment: self.segment,
            write: self.writes,
            begins: self.block,
        };
        for page in &batch.pages {
            let end = page.begins + page.used.next_multiple_of(BLOCK_BYTES);
            page::seal(&mut batch.bytes[page.begins..end], page.used, &place, &stamp);
        }
        let block = self.block;
        self.block += (batch.bytes.len() / BLOCK_BYTES) as u32;
        if is_planted(Bug::JournalAcknowledgesEarly) {
            self.durable = batch.position;
        }
        self.under_way = Some(UnderWay {
            batch,
            segment: self.segment,
            block,
            done: 0,
            is_ordered: false,
            began: stamp,
        });
    }

    /// The next piece for the disk. The driver calls [`Writer::piece_written`] when the disk has
    /// it. `None`: no write is under way, or its piece is with the disk already.
    pub fn next_piece(&mut self) -> Option<Piece<'_>> {
        let under_way = self.under_way.as_mut().filter(|under_way| !under_way.is_ordered)?;
        under_way.is_ordered = true;
        let rest = &under_way.batch.bytes[under_way.done..];
        Some(Piece {
            segment: under_way.segment,
            offset: (under_way.block as usize * BLOCK_BYTES + under_way.done) as u64,
            bytes: &rest[..rest.len().min(PIECE_BYTES_MAX)],
        })
    }

    /// Tells that the disk has the piece. Returns whether the whole write is durable.
    pub fn piece_written(&mut self) -> bool {
        let under_way = self.under_way.as_mut().expect("a piece was ordered");
        assert!(under_way.is_ordered, "a piece was ordered");
        let length = under_way.batch.bytes.len();
        under_way.done = length.min(under_way.done + PIECE_BYTES_MAX);
        under_way.is_ordered = false;
        if under_way.done < length {
            return false;
        }
        let UnderWay { mut batch, .. } = self.under_way.take().expect("looked at above");
        self.durable = self.durable.max(batch.position);
        self.durable_write += 1;
        self.written.writes += 1;
        self.written.bytes += length as u64;
        self.written.entries += batch.entries;
        if self.filling.bytes.is_empty() {
            self.durable = self.durable.max(self.filling.position);
        }
        batch.clear();
        self.kept.push(batch);
        true
    }

    /// All changes up to this position are on the disk.
    pub fn durable(&self) -> Position {
        self.durable
    }

    /// The number of the last write that is on the disk.
    pub fn durable_write(&self) -> u64 {
        self.durable_write
    }

    /// The segment in which what is appended now will be, or the one before it.
    pub fn segment(&self) -> SegmentNumber {
        self.segment
    }

    /// Closes the segment that is filled: its file does not change any more. No write may be under
    /// way (asserted).
    pub fn close_segment(&mut self) {
        assert!(self.under_way.is_none(), "the write that is under way changes the segment");
        self.is_closed = true;
    }

    /// Segments made and not begun.
    pub fn spares(&self) -> usize {
        self.spares.len()
    }

    /// What was written.
    pub fn written(&self) -> Written {
        self.written
    }

    /// Whether what waits fits into the present segment.
    fn fits(&self) -> bool {
        let blocks = self.filling.bytes.len().div_ceil(BLOCK_BYTES) as u32;
        !self.is_closed && self.block + blocks <= self.sizes.segment_blocks
    }

    /// Puts the page with the head of a segment before all that was appended.
    fn put_head_first(&mut self, previous_blocks: u32) {
        let mut head = self.kept.pop().unwrap_or_default();
        page::begin(&mut head.bytes);
        head.open = Some(0);
        let entry = Head {
            format: FORMAT,
            shard: self.owner.shard,
            shards: self.owner.shards,
            oldest: self.state.oldest,
            blocks: self.sizes.segment_blocks,
            previous_blocks,
            name: &self.owner.name,
        };
        Entry::Head(entry).encode(&mut head.bytes);
        Entry::State(self.state.clone()).encode(&mut head.bytes);
        head.entries = 2;
        head.close();
        self.filling.close();
        let shift = head.bytes.len();
        head.bytes.extend_from_slice(&self.filling.bytes);
        head.pages.extend(
            self.filling.pages.iter().map(|page| PageSpan { begins: page.begins + shift, ..*page }),
        );
        head.position = self.filling.position;
        head.entries += self.filling.entries;
        let blocks = head.bytes.len() / BLOCK_BYTES;
        assert!(blocks <= self.sizes.segment_blocks as usize, "a batch fits into a segment");
        let mut former = std::mem::replace(&mut self.filling, head);
        former.clear();
        self.kept.push(former);
    }
}

impl Batch {
    /// Ends the page that fills up.
    fn close(&mut self) {
        let Some(begins) = self.open.take() else { return };
        let used = self.bytes.len() - begins;
        assert!(used <= BLOCKS_MAX * BLOCK_BYTES, "an entry fits into a page");
        page::pad(&mut self.bytes, begins);
        self.pages.push(PageSpan { begins, used });
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.pages.clear();
        (self.open, self.position, self.entries) = (None, Position(0), 0);
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
