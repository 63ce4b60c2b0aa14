//! Data directories with journals in them, written by the node's own writer.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use chronos::base::ids::{NodeHash, TimerId};
use chronos::base::ranked::{Replicas, Sites};
use chronos::base::time::{MonoNs, WallMs};
use chronos::journal::entry::{Entry, State};
use chronos::journal::page::Stamp;
use chronos::journal::writer::{Continuation, Owner, Sizes, Writer};
use chronos::journal::{BLOCK_BYTES, Position, SegmentNumber};
use chronos::node::journal::directory::{DataDirectory, Generation, ShardDirectory};
use chronos::wire::peer_message::{CopyBody, Standing, TimerCopy};
use tempfile::TempDir;

/// Small segments, so that a few hundred timers fill several.
pub const SIZES: Sizes = Sizes { segment_blocks: 32, batch_bytes: 12 * BLOCK_BYTES };
/// The node of all journals.
pub const NODE: &str = "10.0.0.1:7253";

/// A time: the boot, and both clocks in ms.
pub fn stamp(boot: u64, at_ms: u64) -> Stamp {
    let wall = WallMs(1_795_201_463_762 + at_ms);
    Stamp { boot, mono: MonoNs(at_ms * 1_000_000), wall }
}

/// Content of a timer without tags: target `/t`, and the opaque bytes.
pub fn content(opaque: &str) -> Vec<u8> {
    [&[2, 0, 0, 0, b'/', b't'], opaque.as_bytes()].concat()
}

/// A timer; without content a tombstone.
pub fn timer(id: u64, sequence: u64, content: Option<&[u8]>) -> TimerCopy<'_> {
    let replicas: Replicas = [NodeHash(7)].into_iter().collect();
    let list_digest = replicas.digest();
    let id = TimerId(id);
    TimerCopy {
        standing: Standing { id, version: 99 << 22, sequence, actives: 1, list_digest },
        is_write: false,
        replicas,
        factor: 1,
        sites: Sites::new(),
        start_ms: 1_000,
        interval_ms: 5_000,
        repeat_for_ms: 50_000,
        body: content.map(|content| CopyBody { authority: "10.0.0.9:80", content }),
    }
}

/// The journal of one shard as its node writes it.
pub struct Shard {
    pub directory: ShardDirectory,
    writer: Writer,
    entries: u64,
}

impl Shard {
    /// The journal of a shard that goes on behind what was found.
    pub fn begin(directory: ShardDirectory, found: Continuation) -> Self {
        let owner = Owner {
            journal: directory.identity.journal,
            name: directory.identity.node.clone(),
            shard: directory.shard,
            shards: directory.shards,
        };
        let state = State { oldest: SegmentNumber(1), ..State::default() };
        Self { directory, writer: Writer::new(owner, SIZES, state, found), entries: 0 }
    }

    /// Appends an entry.
    pub fn append(&mut self, entry: &Entry<'_>) {
        self.writer.append(entry);
        self.entries += 1;
        self.writer.cover(Position(self.entries));
    }

    /// Appends timers with these ids and 200 opaque bytes.
    pub fn append_timers(&mut self, ids: std::ops::Range<u64>) {
        for id in ids {
            let content = content(&"x".repeat(200));
            self.append(&Entry::Timer(timer(id, 0, Some(&content))));
        }
    }

    /// Appends what the shard knows of itself.
    pub fn append_state(&mut self, oldest: u64) {
        let oldest = SegmentNumber(oldest);
        self.writer.append_state(State { oldest, ..self.writer.state().clone() });
    }

    /// Writes all that was appended.
    pub fn write(&mut self, stamp: Stamp) {
        self.write_blocks(stamp, |_| true);
    }

    /// Writes those blocks of all that was appended that `is_kept` names by their number within the
    /// write.
    pub fn write_blocks(&mut self, stamp: Stamp, is_kept: impl Fn(usize) -> bool) {
        while let Some(segment) = self.writer.wants_segment() {
            let file = File::create_new(self.directory.segment_path(segment)).expect("a file");
            file.set_len(SIZES.segment_bytes()).expect("room");
            self.writer.prepared(segment);
        }
        self.writer.begin_write(stamp);
        let mut number = 0;
        while let Some(piece) = self.writer.next_piece() {
            let path = self.directory.segment_path(piece.segment);
            let file = File::options().write(true).open(path).expect("it was made");
            for (at, block) in piece.bytes.chunks(BLOCK_BYTES).enumerate() {
                if is_kept(number) {
                    let offset = piece.offset + (at * BLOCK_BYTES) as u64;
                    file.write_all_at(block, offset).expect("written");
                }
                number += 1;
            }
            self.writer.piece_written();
        }
    }

    /// Writes timers in groups of twenty until so many segments are begun. Returns the next id.
    pub fn fill(&mut self, segments: u64, boot: u64) -> u64 {
        let mut id = 1;
        while self.writer.segment().0 < segments {
            self.append_timers(id..id + 20);
            id += 20;
            self.write(stamp(boot, id));
        }
        id
    }

    /// The path of a segment.
    pub fn path(&self, segment: u64) -> PathBuf {
        self.directory.segment_path(SegmentNumber(segment))
    }
}

/// A data directory with one generation.
pub struct Data {
    pub folder: TempDir,
    pub generation: Generation,
}

impl Data {
    /// A new data directory for so many shards.
    pub fn new(shards: u16) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let data = DataDirectory::create_or_open(folder.path(), NODE).expect("a new directory");
        let generation = data.begin_generation(shards).expect("the first generation");
        Self { folder, generation }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The directory of a shard.
    pub fn directory(&self, shard: u16) -> ShardDirectory {
        let data = DataDirectory::open_existing(self.path()).expect("it is there");
        data.shard(self.generation, shard)
    }

    /// A new journal of a shard.
    pub fn shard(&self, shard: u16) -> Shard {
        Shard::begin(self.directory(shard), Continuation::default())
    }
}

/// Flips a bit of a file.
pub fn flip(path: &Path, byte: usize) {
    let mut bytes = fs::read(path).expect("it is there");
    bytes[byte] ^= 0x10;
    fs::write(path, bytes).expect("written");
}

/// Cuts a file to so many bytes.
pub fn cut(path: &Path, bytes: u64) {
    File::options().write(true).open(path).expect("there").set_len(bytes).expect("cut");
}
