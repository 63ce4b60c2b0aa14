//! Reads what a shard wrote: its segments in their order, page by page and entry by entry, and what
//! is wrong with them. A thread beside the reader fetches the next piece of a file while the reader
//! is busy with the last one. No entry costs an allocation.

// Reads the wall clock: reboot 2.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::PathBuf;

use super::directory::{DataDirectoryError, SegmentFile, ShardDirectory, is_disk_fault};
use super::pieces::{Bytes, with_source};
use crate::journal::entry::{Entry, EntryError, decode_entry};
use crate::journal::page::{Page, Stamp};
use crate::journal::reader::{Found, NewerFormat, Report, SegmentReader};
use crate::journal::recovery::{
    Candidate, Flaw, Newest, OPENING_BYTES, Opening, Plan, opening, plan,
};
use crate::journal::writer::Continuation;
use crate::journal::{BLOCK_BYTES, JournalId, SegmentNumber};

/// Entries that cannot be decoded, of which the place is told. The others are counted.
const UNDECODABLE_TOLD_MAX: usize = 100;
/// Blocks in which the first page of a segment is looked for if it does not stand at its beginning:
/// more than the first write has, a page of the greatest length and a batch before it.
const LOOK_BLOCKS: u32 = 4_096;

/// Why a shard's directory cannot be read. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The directory cannot be listed.
    #[error(transparent)]
    Directory(#[from] DataDirectoryError),
    /// A file cannot be read.
    #[error(
        "cannot read {path}: {source}. The disk tells no fault, so nothing is lost: mend what the \
         error names (rights, limits) and start again"
    )]
    File {
        /// The file.
        path: String,
        /// The error that the kernel returned.
        source: io::Error,
    },
    /// A later release wrote a file.
    #[error("{path}: {source}")]
    Newer {
        /// The file.
        path: String,
        /// The segment, and its format.
        source: NewerFormat,
    },
}

/// The files of one shard: on a disk, or in a simulator's.
pub trait Files {
    /// The journal that the files are of, and its node's name.
    fn owner(&self) -> (JournalId, &str);

    /// The shard, and the number of shards.
    fn shard(&self) -> (u16, u16);

    /// The path of the directory.
    fn directory(&self) -> PathBuf;

    /// The path of a segment.
    fn path_of(&self, number: SegmentNumber) -> PathBuf;

    /// The files that may be segments, by their numbers. `None`: there is no directory.
    fn list(&self) -> Result<Option<Vec<SegmentFile>>, ReadError>;

    /// What has the name of a segment and is no file, and what it is.
    fn no_files(&self) -> Result<Vec<(SegmentNumber, &'static str)>, ReadError> {
        Ok(Vec::new())
    }

    /// The first [`OPENING_BYTES`] of a file, or less if it is shorter.
    fn beginning(&self, file: &SegmentFile) -> Result<Vec<u8>, ReadError>;

    /// Runs `work` with the bytes of these files, one after the other, each with the number of
    /// bytes to read at most.
    fn with_bytes<T>(
        &self,
        files: &[(&SegmentFile, u64)],
        work: impl FnOnce(&mut dyn Bytes) -> Result<T, ReadError>,
    ) -> Result<T, ReadError>;
}

impl Files for ShardDirectory {
    fn owner(&self) -> (JournalId, &str) {
        (self.identity.journal, &self.identity.node)
    }

    fn shard(&self) -> (u16, u16) {
        (self.shard, self.shards)
    }

    fn directory(&self) -> PathBuf {
        self.path.clone()
    }

    fn path_of(&self, number: SegmentNumber) -> PathBuf {
        self.segment_path(number)
    }

    fn list(&self) -> Result<Option<Vec<SegmentFile>>, ReadError> {
        Ok(self.segments()?)
    }

    fn no_files(&self) -> Result<Vec<(SegmentNumber, &'static str)>, ReadError> {
        Ok(ShardDirectory::no_files(self)?)
    }

    fn beginning(&self, file: &SegmentFile) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::with_capacity(OPENING_BYTES);
        File::open(&file.path)
            .and_then(|open| open.take(OPENING_BYTES as u64).read_to_end(&mut bytes))
            .map_err(|source| unreadable(file, source))?;
        Ok(bytes)
    }

    fn with_bytes<T>(
        &self,
        files: &[(&SegmentFile, u64)],
        work: impl FnOnce(&mut dyn Bytes) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let files = files.iter().map(|(file, bytes)| (file.path.as_path(), *bytes)).collect();
        with_source(files, |source| work(source))
    }
}

/// Where a page stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagePlace {
    /// The segment.
    pub segment: SegmentNumber,
    /// The page's first block.
    pub block: u32,
    /// The page's blocks.
    pub blocks: u32,
    /// When it was written.
    pub stamp: Stamp,
    /// The number of its write.
    pub write: u64,
}

/// Gets what is read, in the order in which it was written.
pub trait Visitor {
    /// A page begins. `bytes`: its entries as they stand there. They follow one by one.
    fn page(&mut self, _place: &PagePlace, _bytes: &[u8]) {}

    /// An entry of the page that began last.
    fn entry(&mut self, _place: &PagePlace, _entry: &Entry<'_>) {}

    /// Whether nothing more is wanted. Asked once for each page.
    fn is_over(&self) -> bool {
        false
    }
}

/// A visitor that wants nothing.
impl Visitor for () {}

/// How many entries of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EntryCounts {
    /// Whole timers.
    pub timers: u64,
    /// Timers that ended.
    pub tombstones: u64,
    /// Pops that were done.
    pub progress: u64,
    /// Timers that were handed over.
    pub forgotten: u64,
    /// Beginnings of segments.
    pub heads: u64,
    /// What the shard knows of itself.
    pub states: u64,
}

/// A page whose checksum is right and whose entries cannot be decoded from here on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Undecodable {
    /// The segment.
    pub segment: SegmentNumber,
    /// The blocks of the page.
    pub blocks: Range<u32>,
    /// What is wrong.
    pub why: EntryError,
}

/// The rest of a segment whose file the disk does not give.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable {
    /// The block from which on nothing was read.
    pub block: u32,
    /// What the kernel said.
    pub why: String,
}

/// A segment that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentRead {
    /// Its file.
    pub file: SegmentFile,
    /// What the file held.
    pub report: Report,
    /// Bytes of its entries.
    pub entry_bytes: u64,
    /// How many bytes the file lacks of the length that its head tells, or of one block at least;
    /// 0: none, or what it lacks was never written.
    pub lacks_bytes: u64,
    /// Set if the disk did not give the file to its end.
    pub unreadable: Option<Unreadable>,
}

/// What a shard's directory held.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShardReport {
    /// Whether the directory itself is gone.
    pub is_absent: bool,
    /// The segments that were read, in their order.
    pub segments: Vec<SegmentRead>,
    /// What is wrong with the set of files.
    pub flaws: Vec<Flaw>,
    /// Where the journal goes on.
    pub continuation: Continuation,
    /// The oldest segment that the last one needed when it was begun.
    pub oldest: SegmentNumber,
    /// What `journal::clocks::Clocks::new` needs: of each boot the stamp with the latest monotonic
    /// time and the one with the latest wall time.
    pub stamps: Vec<Stamp>,
    /// Entries by kind.
    pub counts: EntryCounts,
    /// The first pages that could not be decoded to their end.
    pub undecodable: Vec<Undecodable>,
    /// How many there are.
    pub undecodable_pages: u64,
    /// The newest state of the shard.
    pub newest: Newest,
    /// Whether the visitor had enough, so that not all was read.
    pub is_cut: bool,
    /// Files that are not read, because nothing says that they are needed, and in which something
    /// stands that nobody understands. They are not to be deleted.
    pub strange: Vec<SegmentNumber>,
}

impl ShardReport {
    /// Whether something that was on the disk cannot be read.
    pub fn is_damaged(&self) -> bool {
        self.is_absent
            || !self.flaws.is_empty()
            || self.undecodable_pages > 0
            || self.segments.iter().any(SegmentRead::is_damaged)
    }
}

impl SegmentRead {
    /// Whether something that was in the file cannot be read.
    pub fn is_damaged(&self) -> bool {
        self.lacks_bytes > 0 || !self.report.damaged.is_empty() || self.unreadable.is_some()
    }

    /// Whether nothing ever stood in the file, as far as can be told.
    fn is_blank(&self) -> bool {
        self.report == Report::default() && !self.is_damaged()
    }
}

/// What is in a shard's directory, as far as first pages tell.
struct Look {
    files: Vec<SegmentFile>,
    openings: Vec<Option<Opening>>,
    plan: Plan,
    /// Files whose first block is neither a page nor zeros.
    strange: Vec<SegmentNumber>,
}

/// A segment that is to be read.
struct Part<'a> {
    file: &'a SegmentFile,
    opening: Option<&'a Opening>,
    /// Blocks that were written to it, if the next segment tells.
    blocks: Option<u32>,
}

/// A segment whose pages were read.
struct PartRead {
    reader: SegmentReader,
    /// The number of its first write, and of the last; 0: it has no page.
    writes: (u64, u64),
    entry_bytes: u64,
    unreadable: Option<Unreadable>,
}

/// Reads all segments of a shard. Cost: a checksum of every page and a look at every entry.
pub fn read_shard(
    directory: &impl Files,
    visitor: &mut impl Visitor,
) -> Result<ShardReport, ReadError> {
    let Some(look) = Look::at(directory)? else {
        return Ok(ShardReport { is_absent: true, ..ShardReport::default() });
    };
    let mut report = ShardReport::default();
    let parts = look.parts(directory, &mut report.strange)?;
    let journal = directory.owner().0;
    let mut stamps = Stamps::default();
    let mut reads = Vec::with_capacity(parts.len());
    read_parts(directory, &parts, |part, source| {
        reads.push(part.read(journal, source, &mut |place, page| {
            stamps.note(place.stamp);
            report.take(place, page, visitor);
            report.is_cut = visitor.is_over();
            !report.is_cut
        })?);
        Ok(!report.is_cut)
    })?;
    let writes: Vec<(SegmentNumber, (u64, u64))> =
        parts.iter().zip(&reads).map(|(part, read)| (part.file.number, read.writes)).collect();
    let last_write = reads.iter().map(|read| read.writes.1).max().unwrap_or(0);
    report.segments = look.finish(&parts, reads, last_write);
    report.oldest = look.plan.oldest;
    report.continuation = Continuation { last: look.plan.last, writes: last_write };
    report.stamps = stamps.into_vec();
    report.flaws = look.plan.flaws;
    let oldest = report.newest.state.as_ref().map_or(SegmentNumber(0), |state| state.oldest);
    for read in report.segments.iter_mut().filter(|read| read.lacks_bytes > 0) {
        // A file without a page is whole, however short it is, if nothing can have stood in it.
        let number = read.file.number;
        let is_blank = read.report == Report::default();
        if is_blank && (number < oldest || is_between_writes(number, &writes) == Some(true)) {
            read.lacks_bytes = 0;
        }
    }
    report.flaws.retain(|flaw| is_loss(flaw, oldest, &writes, &report.segments));
    report.segments.retain(|read| !read.is_blank());
    for (number, what) in directory.no_files()? {
        // What stands in the segment's place says more than that it is missing.
        report.flaws.retain(|flaw| *flaw != Flaw::Missing(number));
        report.flaws.push(Flaw::NoFile(number, what));
    }
    Ok(report)
}

/// The stamps that `journal::clocks::Clocks::new` needs: of the first page of each segment, and of
/// all pages of the last segment of each boot. A boot ends only with a segment. A later wall time
/// in between is missed, and `Clocks::new` wants none: a clock that was ahead was set right since.
/// Cost: a block of each segment, and a checksum of the pages of one segment for each boot.
pub fn stamps(directory: &impl Files) -> Result<Vec<Stamp>, ReadError> {
    let Some(look) = Look::at(directory)? else { return Ok(Vec::new()) };
    let mut stamps = Stamps::default();
    let boot = |part: &Part<'_>| part.opening.map(|opening| opening.stamp.boot);
    let parts = look.parts(directory, &mut Vec::new())?;
    let mut last_of_boots = Vec::new();
    let mut parts = parts.into_iter().peekable();
    while let Some(part) = parts.next() {
        part.opening.iter().for_each(|opening| stamps.note(opening.stamp));
        let is_last = parts.peek().is_none_or(|next| boot(next) != boot(&part));
        if is_last || part.opening.is_none() {
            last_of_boots.push(part);
        }
    }
    let journal = directory.owner().0;
    read_parts(directory, &last_of_boots, |part, source| {
        let mut note = |place: &PagePlace, _: &Page<'_>| {
            stamps.note(place.stamp);
            true
        };
        part.read(journal, source, &mut note).map(|_| true)
    })?;
    Ok(stamps.into_vec())
}

/// The first segment that is not of this shard and journal, and what it is instead. Cost: a block
/// of each segment.
pub fn foreign_segment(directory: &impl Files) -> Result<Option<(PathBuf, String)>, ReadError> {
    let flaws = Look::at(directory)?.map(|look| look.plan.flaws).unwrap_or_default();
    Ok(flaws.into_iter().find_map(|flaw| match flaw {
        Flaw::Foreign(number, why) => Some((directory.path_of(number), why)),
        _ => None,
    }))
}

impl Look {
    /// Reads the first pages. `None`: there is no such directory.
    fn at(directory: &impl Files) -> Result<Option<Self>, ReadError> {
        let Some(files) = directory.list()? else { return Ok(None) };
        let mut openings = Vec::with_capacity(files.len());
        let mut strange = Vec::new();
        for file in &files {
            let (bytes, is_given) = match directory.beginning(file) {
                // It is told when the file is read.
                Err(ReadError::File { source, .. }) if is_disk_fault(&source) => {
                    (Vec::new(), false)
                }
                bytes => (bytes?, true),
            };
            let found = opening(&bytes, file.number).map_err(|source| newer(file, source))?;
            if found.is_none() && (!is_given || bytes.iter().any(|&byte| byte != 0)) {
                strange.push(file.number);
            }
            openings.push(found);
        }
        let candidate = |(file, opening): (&SegmentFile, &Option<Opening>)| Candidate {
            number: file.number,
            opening: opening.clone(),
        };
        let candidates = files.iter().zip(&openings).map(candidate).collect();
        let (journal, node) = directory.owner();
        let plan = plan(candidates, journal, directory.shard(), node);
        Ok(Some(Self { files, openings, plan, strange }))
    }

    /// The segments to read, in their order: those of the plan, and later ones that have pages
    /// although their first one cannot be read, or that cannot be read at all. Adds those that are
    /// not read and not empty to `strange`.
    fn parts(
        &self,
        directory: &impl Files,
        strange: &mut Vec<SegmentNumber>,
    ) -> Result<Vec<Part<'_>>, ReadError> {
        strange.extend(self.strange.iter().filter(|number| **number < self.plan.oldest));
        let journal = directory.owner().0;
        let at = |number| self.files.binary_search_by_key(&number, |file| file.number).ok();
        let part = |at: usize, blocks| {
            let opening = self.openings.get(at)?.as_ref();
            let file = self.files.get(at)?;
            let is_own =
                |found: &&Opening| found.journal == journal && found.segment == file.number;
            Some(Part { file, opening: opening.filter(is_own), blocks })
        };
        let planned = &self.plan.segments;
        let mut parts: Vec<Part<'_>> =
            planned.iter().filter_map(|&(number, blocks)| part(at(number)?, blocks)).collect();
        let last = planned.last().map_or(SegmentNumber(0), |(number, _)| *number);
        for (index, file) in self.files.iter().enumerate().filter(|(_, file)| file.number > last) {
            let is_foreign =
                |flaw: &Flaw| matches!(flaw, Flaw::Foreign(number, _) if *number == file.number);
            let first = part(index, Some(LOOK_BLOCKS));
            let Some(first) = first.filter(|_| !self.plan.flaws.iter().any(is_foreign)) else {
                continue;
            };
            let mut is_needed = self.lacks_bytes(file) > 0;
            read_parts(directory, &[first], |part, source| {
                let found = part.read(journal, source, &mut |_, _| false)?;
                is_needed |= found.writes.1 > 0 || found.unreadable.is_some();
                // Behind pages of a former life the middle of a longer one may stand.
                let is_reused = self.openings.get(index).is_some_and(Option::is_some);
                let is_strange = !is_reused && !found.reader.finish(None, 0).torn.is_empty();
                strange.extend((is_strange && !is_needed).then_some(file.number));
                Ok(true)
            })?;
            if is_needed {
                parts.extend(part(index, None));
            }
        }
        Ok(parts)
    }

    /// How many bytes a file without a page lacks: of the length that the newest head tells for
    /// its own file, or of one block. Files get their names when they have their length.
    fn lacks_bytes(&self, file: &SegmentFile) -> u64 {
        let newest = self.plan.segments.last().map(|(number, _)| *number);
        let is_newest = |opening: &&Opening| Some(opening.segment) == newest;
        let newest = self.openings.iter().flatten().find(is_newest);
        let blocks = newest.map_or(1, |opening| opening.blocks);
        (u64::from(blocks) * BLOCK_BYTES as u64).saturating_sub(file.bytes)
    }

    /// Judges the blocks that could not be read. The last write may be torn: that of the last
    /// segment, or of one that a restart followed.
    fn finish(
        &self,
        parts: &[Part<'_>],
        reads: Vec<PartRead>,
        last_write: u64,
    ) -> Vec<SegmentRead> {
        let mut may_be_torn = true;
        let finish = |(part, read): (&Part<'_>, PartRead)| {
            let last_write = if may_be_torn { read.writes.1 } else { last_write };
            if read.writes.1 > 0 {
                may_be_torn = match part.opening {
                    Some(opening) => opening.previous_blocks == 0,
                    // Its only write is torn, and with it the word whether a restart lies before.
                    None => may_be_torn && read.writes.0 == read.writes.1,
                };
            }
            // What follows a block that cannot be read is told with it, and once.
            let is_given = read.unreadable.is_none();
            SegmentRead {
                file: part.file.clone(),
                report: read.reader.finish(part.blocks.filter(|_| is_given), last_write),
                entry_bytes: read.entry_bytes,
                lacks_bytes: match read.writes.1 {
                    _ if part.blocks.is_some() || !is_given => 0,
                    0 => self.lacks_bytes(part.file),
                    _ => part.lacks_bytes(),
                },
                unreadable: read.unreadable,
            }
        };
        let reads: Vec<_> = parts.iter().zip(reads).collect();
        let mut segments: Vec<SegmentRead> = reads.into_iter().rev().map(finish).collect();
        segments.reverse();
        segments
    }
}

/// Whether something was lost with a segment that is missing, or whose first page is. A file that
/// was made ahead and never written is none: the writes before it and behind it have numbers that
/// follow each other. A file before `oldest` was emptied since the last segment was begun.
fn is_loss(
    flaw: &Flaw,
    oldest: SegmentNumber,
    writes: &[(SegmentNumber, (u64, u64))],
    reads: &[SegmentRead],
) -> bool {
    let (number, is_there) = match flaw {
        Flaw::Missing(number) => (*number, false),
        Flaw::Beheaded(number) => (*number, true),
        Flaw::Foreign(..) | Flaw::NoFile(..) => return true,
    };
    if number < oldest {
        return false;
    }
    let has_pages = |(_, writes): &&(SegmentNumber, (u64, u64))| writes.1 > 0;
    if writes.iter().filter(has_pages).any(|(other, _)| *other == number) {
        // Its first write may have been torn; nobody was told that it was done.
        let read = reads.iter().find(|read| read.file.number == number);
        return read.is_none_or(|read| !read.report.damaged.is_empty());
    }
    let read = reads.iter().find(|read| read.file.number == number);
    if read.is_some_and(|read| read.unreadable.is_some()) {
        // That is told, and it says more.
        return false;
    }
    match is_between_writes(number, writes) {
        Some(follow) => !follow,
        // It would be the oldest. Nothing stands before it to compare with.
        None => !is_there || read.is_some_and(|read| read.report != Report::default()),
    }
}

/// Whether the writes before and behind a segment without a page follow each other, so that none
/// was in it. `None`: no page stands before it, or none behind it.
fn is_between_writes(
    number: SegmentNumber,
    writes: &[(SegmentNumber, (u64, u64))],
) -> Option<bool> {
    let mut written = writes.iter().filter(|(_, writes)| writes.1 > 0);
    let (_, (_, before)) = written.clone().rfind(|(other, _)| *other < number)?;
    let (_, (behind, _)) = written.find(|(other, _)| *other > number)?;
    Some(before + 1 == *behind)
}

/// Calls `each` for every part with a source of its bytes, until one returns `false`.
fn read_parts(
    directory: &impl Files,
    parts: &[Part<'_>],
    mut each: impl FnMut(&Part<'_>, &mut dyn Bytes) -> Result<bool, ReadError>,
) -> Result<(), ReadError> {
    let lengths = parts.iter().map(|part| {
        let bytes = part.blocks.map_or(u64::MAX, |blocks| u64::from(blocks) * BLOCK_BYTES as u64);
        (part.file, bytes)
    });
    let lengths: Vec<(&SegmentFile, u64)> = lengths.collect();
    directory.with_bytes(&lengths, |source| {
        for part in parts {
            if !each(part, source)? {
                break;
            }
        }
        Ok(())
    })
}

impl Part<'_> {
    /// How many bytes the file lacks of the length that its head tells.
    fn lacks_bytes(&self) -> u64 {
        let blocks = self.opening.map_or(0, |opening| opening.blocks);
        (u64::from(blocks) * BLOCK_BYTES as u64).saturating_sub(self.file.bytes)
    }

    /// Reads the pages of the segment and gives each to `page`, until that returns `false`.
    fn read(
        &self,
        journal: JournalId,
        source: &mut dyn Bytes,
        page: &mut impl FnMut(&PagePlace, &Page<'_>) -> bool,
    ) -> Result<PartRead, ReadError> {
        let reader = SegmentReader::new(journal, self.file.number);
        let mut read = PartRead { reader, writes: (0, 0), entry_bytes: 0, unreadable: None };
        let mut fetched = source.fetch(true);
        loop {
            if let Err(error) = fetched {
                if !is_disk_fault(&error) {
                    return Err(unreadable(self.file, error));
                }
                // The other segments can be read all the same.
                let (block, why) = (read.reader.block(), error.to_string());
                read.unreadable = Some(Unreadable { block, why });
                return Ok(read);
            }
            if source.bytes().is_empty() {
                if source.is_end() {
                    return Ok(read);
                }
                fetched = source.fetch(false);
                continue;
            }
            let block = read.reader.block();
            let found = read.reader.read(source.bytes(), source.is_end());
            match found.map_err(|error| newer(self.file, error))? {
                Found::Page(found) => {
                    let place = PagePlace {
                        segment: self.file.number,
                        block,
                        blocks: found.blocks,
                        stamp: found.stamp,
                        write: found.place.write,
                    };
                    let first = if read.writes.0 == 0 { place.write } else { read.writes.0 };
                    read.writes = (first, place.write);
                    read.entry_bytes += found.entries.len() as u64;
                    if !page(&place, &found) {
                        return Ok(read);
                    }
                    source.skip(found.blocks as usize * BLOCK_BYTES);
                }
                Found::Nothing => source.skip(BLOCK_BYTES),
                Found::More(_) => fetched = source.fetch(false),
            }
        }
    }
}

impl ShardReport {
    /// Gives a page and its entries to the visitor.
    fn take(&mut self, place: &PagePlace, page: &Page<'_>, visitor: &mut impl Visitor) {
        visitor.page(place, page.entries);
        let mut rest = page.entries;
        while !rest.is_empty() {
            match decode_entry(&mut rest) {
                Ok(entry) => {
                    self.counts.note(&entry);
                    if let Entry::State(state) = &entry {
                        self.newest.note(state.clone());
                    }
                    visitor.entry(place, &entry);
                }
                Err(why) => {
                    self.undecodable_pages += 1;
                    if self.undecodable.len() < UNDECODABLE_TOLD_MAX {
                        let blocks = place.block..place.block + place.blocks;
                        self.undecodable.push(Undecodable { segment: place.segment, blocks, why });
                    }
                    return;
                }
            }
        }
    }
}

impl EntryCounts {
    fn note(&mut self, entry: &Entry<'_>) {
        let count = match entry {
            Entry::Timer(copy) if copy.body.is_none() => &mut self.tombstones,
            Entry::Timer(_) => &mut self.timers,
            Entry::Progress(_) => &mut self.progress,
            Entry::Forgotten(_) => &mut self.forgotten,
            Entry::Head(_) => &mut self.heads,
            Entry::State(_) => &mut self.states,
        };
        *count += 1;
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.timers += other.timers;
        self.tombstones += other.tombstones;
        self.progress += other.progress;
        self.forgotten += other.forgotten;
        self.heads += other.heads;
        self.states += other.states;
    }

    /// All of them.
    pub fn sum(&self) -> u64 {
        let Self { timers, tombstones, progress, forgotten, heads, states } = self;
        timers + tombstones + progress + forgotten + heads + states
    }
}

/// Of each boot the stamp with the latest monotonic time, and the one with the latest wall time.
#[derive(Default)]
struct Stamps(Vec<[Stamp; 2]>);

impl Stamps {
    fn note(&mut self, stamp: Stamp) {
        match self.0.iter_mut().rev().find(|[known, _]| known.boot == stamp.boot) {
            Some([by_mono, by_wall]) => {
                if by_mono.mono < stamp.mono {
                    *by_mono = stamp;
                }
                if by_wall.wall < stamp.wall {
                    *by_wall = stamp;
                }
            }
            None => self.0.push([stamp; 2]),
        }
    }

    fn into_vec(self) -> Vec<Stamp> {
        let mut stamps: Vec<Stamp> = self.0.into_iter().flatten().collect();
        stamps.dedup();
        stamps
    }
}

fn unreadable(file: &SegmentFile, source: io::Error) -> ReadError {
    ReadError::File { path: file.path.display().to_string(), source }
}

fn newer(file: &SegmentFile, source: NewerFormat) -> ReadError {
    ReadError::Newer { path: file.path.display().to_string(), source }
}

#[cfg(test)]
#[path = "reading_tests.rs"]
pub(crate) mod tests;
