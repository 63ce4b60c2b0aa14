//! Reads one segment and tells what is wrong with it.
//!
//! One write is under way at a time, so the next begins when the last one is on the disk. From that
//! follows which blocks may be torn: only those of the last write of all. A block that cannot be
//! read is
//!
//! - *torn* if it belongs to the last write: nobody was told that the write was done;
//! - *damaged* if a later write is there, or if the next segment says that this one went on.

use std::ops::Range;

use crate::base::planted::{Bug, is_planted};

use super::page::{self, NoPage, Page};
use super::{BLOCK_BYTES, JournalId, SegmentNumber};

/// Bytes that a reader should be given at once: a page of the usual size and what follows it.
pub const READ_BYTES: usize = 256 * BLOCK_BYTES;

/// The segment is written in a later format than this release reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "journal segment {segment} has format {format}, and this release reads up to {}: start the \
     release that wrote it, or a later one",
    super::FORMAT
)]
pub struct NewerFormat {
    /// The number of the segment.
    pub segment: u64,
    /// Its format.
    pub format: u16,
}

/// What stands at the front of the bytes given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found<'a> {
    /// A page of this segment.
    Page(Page<'a>),
    /// So many bytes are needed to tell.
    More(usize),
    /// A block that is no page of this segment.
    Nothing,
}

/// Blocks that cannot be read, and the write behind them.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Gap {
    blocks: Range<u32>,
    /// Whether something stood there that was no page: neither zeros nor a page of another segment.
    is_written: bool,
    /// The write that the gap may belong to; `None`: no page follows it.
    within: Option<u64>,
}

/// What a segment held.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Pages that could be read.
    pub pages: u64,
    /// The block behind the last of them.
    pub end: u32,
    /// The number of the first write, and of the last; 0: there is none.
    pub writes: (u64, u64),
    /// Blocks of a write that did not reach the disk as a whole. Nobody was told that it did.
    pub torn: Vec<Range<u32>>,
    /// Blocks that were on the disk and cannot be read now.
    pub damaged: Vec<Range<u32>>,
}

/// Reads a segment from its first block to its last.
#[derive(Debug)]
pub struct SegmentReader {
    journal: JournalId,
    segment: SegmentNumber,
    block: u32,
    last_write: u64,
    gap: Option<Gap>,
    gaps: Vec<Gap>,
    report: Report,
}

impl SegmentReader {
    /// A reader of a segment's blocks.
    pub fn new(journal: JournalId, segment: SegmentNumber) -> Self {
        Self {
            journal,
            segment,
            block: 0,
            last_write: 0,
            gap: None,
            gaps: Vec::new(),
            report: Report::default(),
        }
    }

    /// The block that is read next.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// Reads what stands at [`SegmentReader::block`], where `bytes` begin. `is_end`: the file ends
    /// with these bytes.
    pub fn read<'a>(&mut self, bytes: &'a [u8], is_end: bool) -> Result<Found<'a>, NewerFormat> {
        match page::open(bytes) {
            Ok(page) if self.belongs(&page) => {
                self.take(&page);
                return Ok(Found::Page(page));
            }
            // A page of the file's former life, or of another journal.
            Ok(_) => self.miss(false),
            Err(NoPage::Longer(length)) if !is_end => return Ok(Found::More(length)),
            Err(NoPage::Blank) => self.miss(false),
            Err(NoPage::Newer(format)) => {
                return Err(NewerFormat { segment: self.segment.0, format });
            }
            Err(NoPage::Longer(_) | NoPage::Foreign) => self.miss(true),
        }
        Ok(Found::Nothing)
    }

    /// Ends the segment. `goes_on_to` is the end of its pages and the last write of all, if later
    /// pages of the journal tell of them: the blocks that the next segment says were written here,
    /// and the number of the last write that was found anywhere.
    pub fn finish(mut self, goes_on_to: Option<u32>, last_write: u64) -> Report {
        let end = self.report.end;
        if let Some(blocks) = goes_on_to.filter(|&blocks| blocks > end) {
            self.report.damaged.push(end..blocks);
        } else if let Some(gap) = self.gap.take().filter(|gap| gap.is_written) {
            self.report.torn.push(gap.blocks);
        }
        for gap in self.gaps.drain(..) {
            let is_torn = gap.within.is_some_and(|write| write == last_write);
            let is_torn = is_torn || is_planted(Bug::JournalTakesDamageForTail);
            let list = if is_torn { &mut self.report.torn } else { &mut self.report.damaged };
            list.push(gap.blocks);
        }
        self.report
    }

    fn belongs(&self, page: &Page<'_>) -> bool {
        let place = &page.place;
        let is_of_segment = place.segment == self.segment || is_planted(Bug::JournalWithoutEpoch);
        place.journal == self.journal
            && is_of_segment
            && place.begins <= self.block
            && (place.write >= self.last_write || is_planted(Bug::JournalWithoutEpoch))
    }

    fn take(&mut self, page: &Page<'_>) {
        if let Some(mut gap) = self.gap.take() {
            // The write began before the gap or at it: the gap may be a part of it.
            gap.within = (page.place.begins <= gap.blocks.start).then_some(page.place.write);
            self.gaps.push(gap);
        }
        self.last_write = page.place.write;
        self.block += page.blocks;
        let report = &mut self.report;
        if report.pages == 0 {
            report.writes.0 = page.place.write;
        }
        report.writes.1 = page.place.write;
        report.pages += 1;
        report.end = self.block;
    }

    fn miss(&mut self, is_written: bool) {
        let block = self.block;
        let empty = Gap { blocks: block..block, is_written: false, within: None };
        let gap = self.gap.get_or_insert(empty);
        gap.blocks.end = block + 1;
        gap.is_written |= is_written;
        self.block += 1;
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
