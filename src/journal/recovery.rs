//! In which order the segments of a shard are read, and what is missing among them.

// May panic: expectations 1, indices 2.
// Why it does not: found 3.

use super::SegmentNumber;
use super::entry::{Entry, Head, State, decode_entry};
use super::page::{self, NoPage, Stamp};
use super::reader::NewerFormat;
use super::{BLOCK_BYTES, JournalId};

/// What the first page of a segment says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opening {
    /// The number in the page.
    pub segment: SegmentNumber,
    /// The number of its journal.
    pub journal: JournalId,
    /// When the segment was begun.
    pub stamp: Stamp,
    /// Who wrote it: shard and number of shards.
    pub shard: (u16, u16),
    /// The node's name.
    pub name: String,
    /// The oldest segment that was needed then.
    pub oldest: SegmentNumber,
    /// Blocks of the segment's file.
    pub blocks: u32,
    /// Blocks of the segment before; 0: a restart lies between.
    pub previous_blocks: u32,
}

/// Reads the first page of a segment; `None`: there is none, so that nothing was written to the
/// segment, or its beginning is damaged.
pub fn opening(bytes: &[u8], segment: SegmentNumber) -> Result<Option<Opening>, NewerFormat> {
    let page = match page::open(bytes) {
        Ok(page) => page,
        Err(NoPage::Newer(format)) => return Err(NewerFormat { segment: segment.0, format }),
        Err(_) => return Ok(None),
    };
    let Ok(Entry::Head(head)) = decode_entry(&mut &page.entries[..]) else { return Ok(None) };
    let Head { shard, shards, oldest, blocks, previous_blocks, name, .. } = head;
    Ok(Some(Opening {
        segment: page.place.segment,
        journal: page.place.journal,
        stamp: page.stamp,
        shard: (shard, shards),
        name: name.to_owned(),
        oldest,
        blocks,
        previous_blocks,
    }))
}

/// Bytes of a segment that [`opening`] needs.
pub const OPENING_BYTES: usize = BLOCK_BYTES;

/// Missing segments before one that is there, of which each is told. A page that lies about its
/// number must not cost more.
const MISSING_TOLD_MAX: usize = 1_000;

/// A file of a shard's directory that may be a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The number that the file's name tells.
    pub number: SegmentNumber,
    /// What its first page says.
    pub opening: Option<Opening>,
}

/// What is wrong with the set of files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// A segment that is needed is not there.
    Missing(SegmentNumber),
    /// A file whose first page belongs to another journal, node, shard or number.
    Foreign(SegmentNumber, String),
    /// The first page of a segment cannot be read, although a later segment tells that this one
    /// was begun.
    Beheaded(SegmentNumber),
    /// What has the name of a segment is no file, but what the text says.
    NoFile(SegmentNumber, &'static str),
}

/// The segments to read, in their order, and the flaws of the set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Segments to read, each with the blocks that the next one says it has.
    pub segments: Vec<(SegmentNumber, Option<u32>)>,
    /// What is wrong.
    pub flaws: Vec<Flaw>,
    /// The last number in use, by a segment or by a file that was made ahead.
    pub last: SegmentNumber,
    /// The oldest segment that is needed, as far as the openings tell.
    pub oldest: SegmentNumber,
}

/// Plans the reading of a shard's directory. `shard` is the shard and the number of shards that the
/// directory is for.
pub fn plan(mut files: Vec<Candidate>, journal: JournalId, shard: (u16, u16), name: &str) -> Plan {
    files.sort_by_key(|file| file.number);
    let mut plan =
        Plan { last: files.last().map_or(SegmentNumber(0), |f| f.number), ..Plan::default() };
    let mut known: Vec<(SegmentNumber, Option<Opening>)> = Vec::new();
    for Candidate { number, opening } in files {
        match &opening {
            // A file in its former life: it was renamed for this number and not written since.
            Some(found) if found.journal == journal && found.segment < number => {
                known.push((number, None));
            }
            Some(found) => match foreign(found, number, journal, shard, name) {
                Some(why) => plan.flaws.push(Flaw::Foreign(number, why)),
                None => known.push((number, opening)),
            },
            None => known.push((number, None)),
        }
    }
    let begun = known.iter().rposition(|(_, opening)| opening.is_some());
    let Some(begun) = begun else { return plan };
    let newest = known[begun].1.as_ref().expect("found by it");
    // A segment does not do without itself, whatever its head says.
    plan.oldest = newest.oldest.min(newest.segment);
    known.truncate(begun + 1);
    known.retain(|(number, _)| *number >= plan.oldest);
    let mut expected = known.first().map_or(plan.oldest, |(number, _)| *number);
    if plan.oldest.0 > 0 {
        expected = plan.oldest;
    }
    for at in 0..known.len() {
        let (number, opening) = &known[at];
        let missing = (expected.0..number.0).take(MISSING_TOLD_MAX);
        plan.flaws.extend(missing.map(|number| Flaw::Missing(SegmentNumber(number))));
        expected = number.next();
        if opening.is_none() {
            plan.flaws.push(Flaw::Beheaded(*number));
        }
        let next = known.get(at + 1).filter(|(next, _)| *next == number.next());
        let blocks = next.and_then(|(_, opening)| opening.as_ref());
        let blocks = blocks.map(|opening| opening.previous_blocks).filter(|&blocks| blocks > 0);
        plan.segments.push((*number, blocks));
    }
    plan
}

fn foreign(
    found: &Opening,
    number: SegmentNumber,
    journal: JournalId,
    shard: (u16, u16),
    name: &str,
) -> Option<String> {
    let differs = |what: &str, is: String, wanted: String| {
        Some(format!("it is of {what} {is}, and {what} {wanted} was expected"))
    };
    if found.journal != journal {
        differs("journal", format!("{:016x}", found.journal.0), format!("{:016x}", journal.0))
    } else if found.name != name {
        // Whoever wrote the file chose the name, and a terminal shows it.
        differs("node", found.name.escape_debug().to_string(), name.to_owned())
    } else if found.shard != shard {
        let of = |(shard, shards): (u16, u16)| format!("{shard} of {shards}");
        differs("shard", of(found.shard), of(shard))
    } else if found.segment != number {
        differs("number", found.segment.0.to_string(), number.0.to_string())
    } else {
        None
    }
}

/// Keeps the newest state of a journal while entries are read in their order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Newest {
    /// The newest state.
    pub state: Option<State>,
}

impl Newest {
    /// Notes a state. Its oldest segment never falls.
    pub fn note(&mut self, state: State) {
        let oldest = self.state.as_ref().map_or(SegmentNumber(0), |state| state.oldest);
        self.state = Some(State { oldest: state.oldest.max(oldest), ..state });
    }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
