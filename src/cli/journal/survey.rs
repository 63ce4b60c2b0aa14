//! Reads a whole data directory, and says in sentences what is wrong with it.

use std::fmt;
use std::io;
use std::ops::Range;

use serde_json::{Value, json};

use crate::cli::progress::Progress;
use crate::journal::BLOCK_BYTES;
use crate::journal::entry::Entry;
use crate::journal::recovery::Flaw;
use crate::node::journal::directory::{
    DataDirectory, DataDirectoryError, Generation, Identity, ShardDirectory,
};
use crate::node::journal::reading::{
    PagePlace, ReadError, SegmentRead, ShardReport, Unreadable, Visitor, read_shard,
};

/// Why a command cannot do its work. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum ToolError {
    #[error(transparent)]
    Directory(#[from] DataDirectoryError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("cannot write {path}: {source}. Nothing was changed; give the disk more room")]
    Write { path: String, source: io::Error },
    #[error("{0}")]
    Other(String),
}

/// What a data directory holds.
pub(super) struct Survey {
    pub path: String,
    pub identity: Identity,
    pub shards: Vec<ShardRead>,
}

/// What a shard of a generation holds.
pub(super) struct ShardRead {
    pub generation: Generation,
    pub directory: ShardDirectory,
    pub report: ShardReport,
}

/// What is wrong with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// Part of a write that was under way. No damage.
    Torn,
    /// Blocks were written and hold something else now.
    Damaged,
    /// The file is shorter than the others.
    Short,
    /// The file is not there.
    Missing,
    /// The first page cannot be read.
    Beheaded,
    /// The file is of another journal, node, shard or number, or it is no file.
    Foreign,
    /// The disk does not give the file to its end.
    Unreadable,
    /// The checksum is right and an entry is not.
    Undecodable,
    /// The directory of a shard is not there.
    Absent,
}

/// Something that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Finding {
    pub what: What,
    pub file: String,
    /// The blocks, if these can be told.
    pub blocks: Option<Range<u32>>,
    /// How many bytes cannot be used; 0: nobody can tell.
    pub bytes: u64,
    detail: String,
}

/// Gets what is read of all shards.
pub(super) trait Tool: Visitor {
    /// A shard of a generation begins.
    fn shard(&mut self, _generation: Generation, _shard: u16) {}
}

/// Reads everything, in the order in which a node reads it.
pub(super) fn survey(data: &DataDirectory, tool: &mut impl Tool) -> Result<Survey, ToolError> {
    let mut shards = Vec::new();
    let mut watched = Watched::begin(data, tool)?;
    for generation in data.generations()? {
        for directory in data.shards(generation) {
            watched.tool.shard(generation, directory.shard);
            let report = read_shard(&directory, &mut watched)?;
            shards.push(ShardRead { generation, directory, report });
        }
    }
    let path = data.path().display().to_string();
    Ok(Survey { path, identity: data.identity().clone(), shards })
}

/// A tool, and how much was read for it.
struct Watched<'a, T> {
    tool: &'a mut T,
    progress: Progress,
    /// Bytes of all files. The last segment of each shard is seldom full.
    bytes: u64,
    read: u64,
    entries: u64,
}

impl<'a, T: Tool> Watched<'a, T> {
    fn begin(data: &DataDirectory, tool: &'a mut T) -> Result<Self, ToolError> {
        let mut bytes = 0;
        for generation in data.generations()? {
            for shard in data.shards(generation) {
                let files = shard.segments()?.unwrap_or_default();
                bytes += files.iter().map(|file| file.bytes).sum::<u64>();
            }
        }
        let progress = Progress::begin("reading the journal");
        Ok(Self { tool, progress, bytes, read: 0, entries: 0 })
    }
}

impl<T: Tool> Visitor for Watched<'_, T> {
    fn page(&mut self, place: &PagePlace, bytes: &[u8]) {
        self.read += u64::from(place.blocks) * BLOCK_BYTES as u64;
        self.progress.show(self.read, self.bytes, &format!("{} entries", self.entries));
        self.tool.page(place, bytes);
    }

    fn entry(&mut self, place: &PagePlace, entry: &Entry<'_>) {
        self.entries += 1;
        self.tool.entry(place, entry);
    }

    fn is_over(&self) -> bool {
        self.tool.is_over()
    }
}

impl Survey {
    /// All that is wrong, torn writes last.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self.shards.iter().flat_map(ShardRead::findings).collect();
        findings.sort_by_key(|finding| !finding.is_damage());
        findings
    }

    /// The sum of a number over all segments.
    pub(super) fn sum(&self, of: impl Fn(&SegmentRead) -> u64) -> u64 {
        self.shards.iter().flat_map(|shard| &shard.report.segments).map(of).sum()
    }

    /// What to do about damage.
    pub(super) fn remedy(&self) -> String {
        let mut flaws = self.shards.iter().flat_map(|shard| &shard.report.flaws);
        if flaws.any(|flaw| matches!(flaw, Flaw::Foreign(..))) {
            return format!(
                "A node does not start on files that do not belong here: put each where it \
                 belongs, and check again. What stood in its place only other replicas can give \
                 back. If it belongs nowhere, chronos journal repair --data-dir {} --yes moves it \
                 aside",
                self.path
            );
        }
        format!(
            "In a cluster nothing is to be done: start the node, and the other replicas give back \
             what they hold. Without one, what is damaged is lost; chronos journal repair \
             --data-dir {} --yes cuts it out and keeps all that can be read",
            self.path
        )
    }
}

impl ShardRead {
    /// What is wrong with the set of files.
    fn flaws(&self) -> Vec<Finding> {
        let directory = &self.directory;
        let file = |number| directory.segment_path(number).display().to_string();
        let whole = |what, file, detail: &str| Finding::of_file(what, file, 0, detail);
        let mut findings = Vec::new();
        if self.report.is_absent {
            let path = directory.path.display().to_string();
            findings.push(whole(What::Absent, path, "the directory of a shard is missing"));
        }
        // What is told in another way: a segment without its first page by the blocks that cannot
        // be read, a missing one by the file that stands in its place.
        let is_told = |flaw: &&Flaw| match flaw {
            Flaw::Beheaded(number) => self
                .report
                .segments
                .iter()
                .any(|read| read.file.number == *number && !read.report.damaged.is_empty()),
            Flaw::Missing(number) => self
                .report
                .flaws
                .iter()
                .any(|other| matches!(other, Flaw::Foreign(foreign, _) if foreign == number)),
            Flaw::Foreign(..) | Flaw::NoFile(..) => false,
        };
        for flaw in self.report.flaws.iter().filter(|flaw| !is_told(flaw)) {
            findings.push(match flaw {
                Flaw::Missing(number) => {
                    whole(What::Missing, file(*number), "the segment is missing")
                }
                Flaw::Beheaded(number) => {
                    whole(What::Beheaded, file(*number), "its first page cannot be read")
                }
                Flaw::Foreign(number, why) => {
                    whole(What::Foreign, file(*number), &format!("does not belong here: {why}"))
                }
                Flaw::NoFile(number, what) => {
                    let detail = format!(
                        "has the name of a segment and is {what}; a file was expected. A node \
                         that starts moves it aside"
                    );
                    whole(What::Foreign, file(*number), &detail)
                }
            });
        }
        findings
    }

    fn findings(&self) -> Vec<Finding> {
        let file = |number| self.directory.segment_path(number).display().to_string();
        let mut findings = self.flaws();
        for read in &self.report.segments {
            let path = read.file.path.display().to_string();
            let damaged = "was written and holds something else now";
            let torn = "is part of a write that a crash cut off; nobody was told that it was done";
            for (what, list, detail) in [
                (What::Damaged, &read.report.damaged, damaged),
                (What::Torn, &read.report.torn, torn),
            ] {
                let finding = |blocks| Finding::of_blocks(what, path.clone(), blocks, detail);
                findings.extend(list.iter().map(finding));
            }
            if let Some(Unreadable { block, why }) = &read.unreadable {
                let at = u64::from(*block) * BLOCK_BYTES as u64;
                let bytes = read.file.bytes.saturating_sub(at);
                let detail = format!(
                    "cannot be read from byte {at} on: {why}. Look at the disk (dmesg, smartctl)"
                );
                findings.push(Finding::of_file(What::Unreadable, path.clone(), bytes, &detail));
            }
            if read.lacks_bytes > 0 {
                let detail = match read.file.bytes {
                    0 => "the file is empty, and a segment gets its name with its full length; \
                          whatever stood in it is cut off"
                        .to_owned(),
                    _ => format!("the file is {} bytes shorter than others", read.lacks_bytes),
                };
                findings.push(Finding::of_file(What::Short, path, read.lacks_bytes, &detail));
            }
        }
        for page in &self.report.undecodable {
            let detail = format!("has the right checksum and cannot be understood: {}", page.why);
            let file = file(page.segment);
            findings.push(Finding::of_blocks(What::Undecodable, file, &page.blocks, &detail));
        }
        findings
    }
}

impl Finding {
    fn of_file(what: What, file: String, bytes: u64, detail: &str) -> Self {
        Self { what, file, blocks: None, bytes, detail: detail.to_owned() }
    }

    fn of_blocks(what: What, file: String, blocks: &Range<u32>, detail: &str) -> Self {
        let bytes = u64::from(blocks.end - blocks.start) * BLOCK_BYTES as u64;
        Self { what, file, blocks: Some(blocks.clone()), bytes, detail: detail.to_owned() }
    }

    /// Whether something is lost. A torn write is none.
    pub(super) fn is_damage(&self) -> bool {
        self.what != What::Torn
    }

    /// The finding as a JSON object.
    pub(super) fn document(&self) -> Value {
        let what = format!("{:?}", self.what).to_lowercase();
        let blocks = self.blocks.as_ref();
        json!({
            "what": what,
            "file": self.file,
            "first_block": blocks.map(|blocks| blocks.start),
            "blocks": blocks.map(|blocks| blocks.end - blocks.start),
            "bytes": self.bytes,
            "text": self.to_string(),
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file)?;
        if let Some(Range { start, end }) = self.blocks {
            let (last, at) = (end - 1, u64::from(start) * BLOCK_BYTES as u64);
            let bytes = self.bytes;
            match end - start {
                1 => write!(f, "block {start} ({bytes} bytes at {at}) ")?,
                _ => write!(f, "blocks {start} to {last} ({bytes} bytes at {at}) ")?,
            }
        }
        f.write_str(&printable(&self.detail))
    }
}

/// The text without control characters, which may be anybody's.
pub(super) fn printable(text: &str) -> String {
    let is_printable = |c: &char| !c.is_control();
    text.chars().map(|c| if is_printable(&c) { c } else { '\u{fffd}' }).collect()
}
