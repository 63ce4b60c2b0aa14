//! The data directory of a simulated node: what production keeps in files and what its thread that
//! makes segments does, on a virtual disk.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use super::disk::{BLOCK_BYTES, Disk, FileId, WriteId};
use chronos::core::journal::{NoSegment, Order};
use chronos::journal::page;
use chronos::journal::recovery::opening;
use chronos::journal::writer::{Piece, Sizes};
use chronos::journal::{JournalId, SegmentNumber};
use chronos::node::journal::directory::SegmentFile;
use chronos::node::journal::pieces::Bytes;
use chronos::node::journal::reading::{Files, ReadError};

/// Most empty files of a shard that are kept to be used again, as in production.
const KEPT_MAX: usize = 2;

/// The number of a layout, and its shards.
type Layout = (u32, u16);

/// A page in which a bit was turned over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Damaged {
    core: u16,
    segment: SegmentNumber,
    /// The number of the page's write.
    write: u64,
}

/// What became of a segment that a core asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    Segment(SegmentNumber),
    None(NoSegment),
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Order(u16, Order),
    Keep(u16, SegmentNumber, SegmentNumber),
}

/// The files of one shard, as a start reads them.
#[derive(Clone)]
pub struct ShardFiles(Rc<Held>);

struct Held {
    journal: JournalId,
    node: String,
    shard: (u16, u16),
    directory: String,
    files: Vec<(SegmentNumber, Vec<u8>)>,
}

/// The files of a shard in use.
#[derive(Clone, Debug, Default)]
struct Shard {
    directory: String,
    open: BTreeMap<SegmentNumber, FileId>,
    /// Empty files that can be used again.
    kept: Vec<String>,
    spares: u64,
}

/// A node's data directory.
pub struct Store {
    pub disk: Disk,
    journal: JournalId,
    node: String,
    sizes: Sizes,
    present: Layout,
    older: Vec<Layout>,
    shards: Vec<Shard>,
    moved: usize,
    asked: VecDeque<Asked>,
    is_busy: bool,
    /// How many new files can still be made; `None`: as many as wanted.
    pub room: Option<NoSegment>,
    pub emptied: u64,
    pub reused: u64,
    /// Pages in which a bit was turned over so that the next start must tell.
    must_tell: Vec<Damaged>,
}

fn path_of((number, shards): Layout, shard: u16) -> String {
    format!("{number:04}-{shards}/{shard}")
}

fn name_of(segment: SegmentNumber) -> String {
    format!("{:016x}.segment", segment.0)
}

fn number_of(name: &str) -> Option<SegmentNumber> {
    u64::from_str_radix(name.strip_suffix(".segment")?, 16).ok().map(SegmentNumber)
}

impl Store {
    pub fn new(journal: JournalId, node: &str, sizes: Sizes) -> Self {
        Self {
            disk: Disk::default(),
            journal,
            node: node.to_owned(),
            sizes,
            present: (0, 0),
            older: Vec::new(),
            shards: Vec::new(),
            moved: 0,
            asked: VecDeque::new(),
            is_busy: false,
            room: None,
            emptied: 0,
            reused: 0,
            must_tell: Vec::new(),
        }
    }

    /// Opens the directory for a process with this many shards. Returns the files of older layouts,
    /// the oldest first, and of the present one.
    pub fn open(&mut self, shards: u16) -> (Vec<Vec<ShardFiles>>, Vec<ShardFiles>) {
        let told = std::mem::take(&mut self.must_tell);
        self.must_tell = told.into_iter().filter(|damaged| self.shows(damaged)).collect();
        self.asked.clear();
        (self.is_busy, self.moved) = (false, 0);
        let mut older: Vec<Layout> =
            self.disk.directories().filter(|path| path.ends_with("/0")).map(layout_of).collect();
        older.sort_unstable();
        let last = older.last().map_or(0, |(number, _)| *number);
        self.present = match older.pop_if(|(_, held)| *held == shards) {
            Some(present) => present,
            None => (last + 1, shards),
        };
        self.older = older;
        let shard = |shard| Shard { directory: path_of(self.present, shard), ..Shard::default() };
        self.shards = (0..shards).map(shard).collect();
        for shard in &self.shards {
            self.disk.make_directory(shard.directory.clone());
        }
        let files = |layout: &Layout| (0..layout.1).map(|own| self.files(*layout, own)).collect();
        (self.older.iter().map(files).collect(), files(&self.present))
    }

    fn files(&self, layout: Layout, shard: u16) -> ShardFiles {
        let directory = path_of(layout, shard);
        let names = self.disk.names(&directory);
        let mut files: Vec<(SegmentNumber, Vec<u8>)> = names
            .filter_map(|(name, file)| Some((number_of(name)?, self.disk.bytes(file).to_vec())))
            .collect();
        files.sort_by_key(|(number, _)| *number);
        let (journal, node) = (self.journal, self.node.clone());
        ShardFiles(Rc::new(Held { journal, node, shard: (shard, layout.1), directory, files }))
    }

    /// Tells which segments of a shard hold something. All others are removed.
    pub fn keep_only(&mut self, core: u16, oldest: SegmentNumber, last: SegmentNumber) {
        self.asked.push_back(Asked::Keep(core, oldest, last));
    }

    /// Takes an order of a core's journal.
    pub fn order(&mut self, core: u16, order: Order) {
        if let Order::Retire(segment) = order {
            // No start reads it again.
            self.must_tell.retain(|it| (it.core, it.segment) != (core, segment));
        }
        self.asked.push_back(Asked::Order(core, order));
    }

    /// Begins the next order, if the thread is free and there is one. Returns whether it did.
    /// [`Store::finish`] must follow after a while.
    pub fn begin(&mut self) -> bool {
        if self.is_busy {
            return false;
        }
        let Some(&asked) = self.asked.front() else { return false };
        self.is_busy = true;
        if let Asked::Order(core, Order::Prepare { segment, .. }) = asked {
            let (bytes, is_full) = (self.sizes.segment_bytes() as usize, self.room.is_some());
            let shard = &mut self.shards[usize::from(core)];
            let spare = match shard.kept.pop() {
                Some(kept) => kept,
                None if is_full => return true,
                None => {
                    let name = shard.spare();
                    self.disk.create(&shard.directory, name.clone(), bytes);
                    name
                }
            };
            self.disk.rename(&shard.directory, &spare, name_of(segment));
        }
        true
    }

    /// Ends the order that was begun. Returns the core that asked for a segment, and what became of
    /// it.
    pub fn finish(&mut self) -> Option<(u16, Made)> {
        self.is_busy = false;
        match self.asked.pop_front().expect("an order was begun") {
            Asked::Order(core, Order::Prepare { segment, syncs_directory }) => {
                let shard = &mut self.shards[usize::from(core)];
                let Some(file) = self.disk.file(&shard.directory, &name_of(segment)) else {
                    let why = self.room.unwrap_or(NoSegment::Failed);
                    return Some((core, Made::None(why)));
                };
                if syncs_directory {
                    self.disk.sync(&shard.directory);
                }
                shard.open.insert(segment, file);
                return Some((core, Made::Segment(segment)));
            }
            Asked::Order(core, Order::Retire(segment)) => self.retire(core, segment),
            Asked::Order(_, Order::BackUp { .. }) => unreachable!("nobody asks for a backup"),
            Asked::Order(_, Order::Moved) => {
                self.moved += 1;
                if self.moved == self.shards.len() {
                    for layout in std::mem::take(&mut self.older) {
                        for shard in 0..layout.1 {
                            self.disk.remove_directory(&path_of(layout, shard));
                        }
                    }
                }
            }
            Asked::Keep(core, oldest, last) => {
                let directory = self.shards[usize::from(core)].directory.clone();
                let names: Vec<String> =
                    self.disk.names(&directory).map(|(name, _)| name.to_owned()).collect();
                for name in names {
                    let number = number_of(&name);
                    if number.is_none_or(|number| number < oldest || number > last) {
                        self.disk.remove(&directory, &name);
                    }
                }
            }
        }
        None
    }

    fn retire(&mut self, core: u16, segment: SegmentNumber) {
        self.emptied += 1;
        let shard = &mut self.shards[usize::from(core)];
        shard.open.remove(&segment);
        let name = name_of(segment);
        if self.disk.file(&shard.directory, &name).is_none() {
            // The number was never used: a file made ahead by an earlier process was removed.
            return;
        }
        if shard.kept.len() < KEPT_MAX {
            self.reused += 1;
            let spare = shard.spare();
            self.disk.rename(&shard.directory, &name, spare.clone());
            shard.kept.push(spare);
        } else {
            self.disk.remove(&shard.directory, &name);
        }
    }

    /// Begins a write of a core.
    pub fn write(&mut self, core: u16, piece: &Piece<'_>) -> WriteId {
        let file = self.shards[usize::from(core)].open[&piece.segment];
        self.disk.begin_write(file, piece.offset, piece.bytes)
    }

    /// Turns over a bit of a block that is not blank, in a segment of the present layout. Returns
    /// the bit's place; `None` if nothing stands anywhere.
    pub fn flip(&mut self, key: u64) -> Option<usize> {
        let (file, bit, damaged) = self.bit(key)?;
        self.disk.flip(file, bit);
        self.must_tell.extend(damaged);
        Some(bit)
    }

    /// Reports whether a start that begins now must tell of damage.
    pub fn must_tell(&mut self) -> bool {
        !std::mem::take(&mut self.must_tell).is_empty()
    }

    /// Reports whether a page that is damaged can be told from one that was torn: the journal still
    /// needs its segment, and a page of a later write of the segment can be read. Later damage may
    /// have taken the last such page.
    fn shows(&self, damaged: &Damaged) -> bool {
        let directory = path_of(self.present, damaged.core);
        let names = self.disk.names(&directory);
        let segments: BTreeMap<SegmentNumber, &[u8]> = names
            .filter_map(|(name, file)| Some((number_of(name)?, self.disk.bytes(file))))
            .collect();
        let head = |(number, bytes): (&SegmentNumber, &&[u8])| {
            opening(bytes, *number).ok().flatten().filter(|head| head.segment == *number)
        };
        let oldest = segments.iter().rev().find_map(head).map(|head| head.oldest);
        let bytes = segments.get(&damaged.segment).copied().unwrap_or_default();
        let mut pages = (0..bytes.len()).step_by(BLOCK_BYTES).filter_map(|at| {
            page::open(&bytes[at..]).ok().filter(|page| page.place.segment == damaged.segment)
        });
        oldest.is_none_or(|oldest| damaged.segment >= oldest)
            && pages.any(|page| page.place.write > damaged.write)
    }

    /// Picks a bit. Also returns its page if a start must tell of it: the block is of its file's
    /// present life, later writes of the segment are on the disk, and the segment is not about to be
    /// emptied.
    fn bit(&self, key: u64) -> Option<(FileId, usize, Option<Damaged>)> {
        let own = key as usize % self.shards.len().max(1);
        let shard = self.shards.get(own)?;
        let names = self.disk.names(&shard.directory);
        let segments: Vec<(SegmentNumber, FileId)> =
            names.filter_map(|(name, file)| Some((number_of(name)?, file))).collect();
        let mut blocks = Vec::new();
        let mut pages: Vec<(u64, usize)> = Vec::new();
        for (index, (segment, file)) in segments.iter().enumerate() {
            for (at, block) in self.disk.bytes(*file).chunks(BLOCK_BYTES).enumerate() {
                if block.iter().any(|&byte| byte != 0) {
                    let page = page::open(&self.disk.bytes(*file)[at * BLOCK_BYTES..]).ok();
                    let page = page.filter(|page| page.place.segment == *segment);
                    pages.extend(page.map(|page| (page.place.write, blocks.len())));
                    blocks.push((index, *file, at));
                }
            }
        }
        let any = (key >> 8) as usize;
        // Most bits are of pages that count.
        let chosen = match pages.len() {
            0 => any % blocks.len().max(1),
            _ if key.is_multiple_of(8) => any % blocks.len(),
            count => pages[any % count].1,
        };
        let &(index, file, at) = blocks.get(chosen)?;
        let write = pages.iter().find(|(_, block)| *block == chosen).map(|(write, _)| *write);
        let write = write.filter(|write| {
            // A write that a restart followed may have been torn.
            pages.iter().any(|(other, block)| other > write && blocks[*block].0 == index)
        });
        // The oldest segments may have been emptied, and the order is on its way.
        let emptied = if self.asked.is_empty() { 1 } else { 3 };
        let write = write.filter(|_| index >= emptied);
        let (core, segment) = (own as u16, segments[index].0);
        let bit = at * BLOCK_BYTES * 8 + (key >> 32) as usize % (BLOCK_BYTES * 8);
        Some((file, bit, write.map(|write| Damaged { core, segment, write })))
    }
}

fn layout_of(path: &str) -> Layout {
    let (number, rest) = path.split_once('-').expect("a layout's name");
    let (shards, _) = rest.split_once('/').expect("a layout's name");
    (number.parse().expect("a number"), shards.parse().expect("a number"))
}

impl Shard {
    fn spare(&mut self) -> String {
        self.spares += 1;
        format!("spare-{}.tmp", self.spares)
    }
}

impl Files for ShardFiles {
    fn owner(&self) -> (JournalId, &str) {
        (self.0.journal, &self.0.node)
    }

    fn shard(&self) -> (u16, u16) {
        self.0.shard
    }

    fn directory(&self) -> PathBuf {
        PathBuf::from(&self.0.directory)
    }

    fn path_of(&self, number: SegmentNumber) -> PathBuf {
        PathBuf::from(format!("{}/{}", self.0.directory, name_of(number)))
    }

    fn list(&self) -> Result<Option<Vec<SegmentFile>>, ReadError> {
        let file = |(number, bytes): &(SegmentNumber, Vec<u8>)| SegmentFile {
            number: *number,
            path: self.path_of(*number),
            bytes: bytes.len() as u64,
        };
        Ok(Some(self.0.files.iter().map(file).collect()))
    }

    fn beginning(&self, file: &SegmentFile) -> Result<Vec<u8>, ReadError> {
        let bytes = self.held(file.number);
        Ok(bytes[..bytes.len().min(4_096)].to_vec())
    }

    fn with_bytes<T>(
        &self,
        files: &[(&SegmentFile, u64)],
        work: impl FnOnce(&mut dyn Bytes) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let cut = |(file, most): &(&SegmentFile, u64)| {
            let bytes = self.held(file.number);
            &bytes[..bytes.len().min(usize::try_from(*most).unwrap_or(usize::MAX))]
        };
        let mut whole = Whole { files: files.iter().map(cut).collect(), at: 0, skipped: 0 };
        work(&mut whole)
    }
}

impl ShardFiles {
    fn held(&self, number: SegmentNumber) -> &[u8] {
        let found = self.0.files.iter().find(|(held, _)| *held == number);
        &found.expect("it was listed").1
    }
}

/// Files that are given in one piece each.
struct Whole<'a> {
    files: Vec<&'a [u8]>,
    /// The file after the present one.
    at: usize,
    skipped: usize,
}

impl Bytes for Whole<'_> {
    fn bytes(&self) -> &[u8] {
        &self.files[self.at - 1][self.skipped..]
    }

    fn is_end(&self) -> bool {
        true
    }

    fn skip(&mut self, bytes: usize) {
        self.skipped = self.files[self.at - 1].len().min(self.skipped + bytes);
    }

    fn fetch(&mut self, is_new: bool) -> io::Result<()> {
        assert!(is_new, "a whole file was given");
        (self.at, self.skipped) = (self.at + 1, 0);
        Ok(())
    }
}
