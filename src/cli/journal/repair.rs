//! `chronos journal repair`: writes all that can be read into a new generation, and moves the
//! present files aside. Nothing is deleted.
//!
//! The new generation appears by a rename when it is whole, behind those that are there. A reader
//! of all of them, which may come if the tool is ended in between, finds the same timers.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

use clap::Args;
use serde_json::{Value, json};

use super::check::heading;
use super::ledger::Ledger;
use super::place::Place;
use super::survey::{Finding, Survey, Tool, ToolError, survey};
use crate::base::ids::{NodeHash, ShardCount};
use crate::base::time::WallMs;
use crate::cli::exit::{EXIT_FAILURE, EXIT_OK};
use crate::cli::runtime::wall_ms;
use crate::cli::terminal::{print, tell};
use crate::journal::SegmentNumber;
use crate::journal::entry::{Entry, State};
use crate::journal::page::Stamp;
use crate::journal::writer::{Continuation, Owner, Sizes, Writer};
use crate::node::journal::aside::new_place;
use crate::node::journal::directory::{DataDirectory, Generation, ShardDirectory};
use crate::node::journal::reading::{PagePlace, Visitor, read_shard};
use crate::ring::create_zeroed;

const EXAMPLES: &str = "\
Examples:
  chronos journal repair --data-dir /var/lib/chronos          what it would do; nothing is changed
  chronos journal repair --data-dir /var/lib/chronos --yes

A repair reads what can be read and writes it once more, into new files. It needs as much room as
the journal has. The present files are moved to a directory damaged-<time> in the data directory:
delete it when the node runs and nothing is missed. Files of other journals are moved, too.

A node in a cluster needs no repair: it starts with what can be read, and the other replicas give
back the rest. After a repair, too, the node compares all its timers with theirs.

Exit codes: 0 repaired, or nothing to repair, 1 something would be repaired, 2 failed";

/// Write all that can be read once more and move the damaged files aside
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RepairFlags {
    #[command(flatten)]
    pub place: Place,

    /// Do it. Without this flag it is only said what would be done
    #[arg(long)]
    yes: bool,
}

/// Runs the command; returns the exit code.
pub(super) fn run(flags: &RepairFlags) -> Result<u8, ToolError> {
    let data = flags.place.open()?;
    let mut ledger = Ledger::default();
    let survey = survey(&data, &mut ledger)?;
    let mut findings = survey.findings();
    findings.retain(Finding::is_damage);
    let timers = ledger.totals().timers;
    let (outcome, aside) = match survey.shards.last() {
        Some(last) if !findings.is_empty() && flags.yes => {
            let aside = repair(&data, &survey, last.generation.shards, &ledger)?;
            ("repaired", Some(aside))
        }
        Some(_) if !findings.is_empty() => ("would repair", None),
        _ => ("nothing to do", None),
    };
    let printed = if flags.place.json {
        let damage: Vec<Value> = findings.iter().map(Finding::document).collect();
        let document = json!({
            "outcome": outcome, "damage": damage, "timers": timers, "moved_to": aside,
        });
        format!("{document:#}\n")
    } else {
        let damage: String = findings.iter().map(|one| format!("damage: {one}\n")).collect();
        let said = match (&aside, findings.is_empty()) {
            (Some(aside), _) => format!(
                "repaired: {timers} timers are kept. The former files are in {aside}: delete it \
                 when the node runs and nothing is missed\n"
            ),
            (None, true) => "nothing to repair\n".to_owned(),
            (None, false) => format!(
                "would keep {timers} timers: write them into new files, and move the present \
                 files to {}/damaged-<time>. Nothing is changed yet; --yes does it\n",
                survey.path
            ),
        };
        heading(&survey) + &damage + &said
    };
    let is_left = outcome == "would repair";
    Ok(print(&printed).max(if is_left { EXIT_FAILURE } else { EXIT_OK }))
}

/// Makes the new generation and moves the others aside. Returns where they are.
fn repair(
    data: &DataDirectory,
    survey: &Survey,
    shards: u16,
    ledger: &Ledger,
) -> Result<String, ToolError> {
    let former: Vec<Generation> = data.generations()?;
    let reports = survey.shards.iter().map(|shard| &shard.report);
    let states = reports.filter_map(|report| report.newest.state.as_ref());
    let owed: BTreeSet<u32> = states.flat_map(|state| &state.owed).map(|node| node.0).collect();
    let state = State {
        oldest: SegmentNumber(1),
        // Something is lost: the node is not to answer for what it does not know.
        complete_since: WallMs(0),
        owed: owed.into_iter().map(NodeHash).collect(),
    };
    data.make_generation(shards, |directories| {
        let mut copier = Copier::new(directories, &state);
        super::survey::survey(data, &mut copier)?;
        let entries = copier.end()?;
        verify(directories, entries, ledger)
    })?;
    let aside = new_place(data.path(), WallMs(wall_ms()));
    let aside = data.move_aside(&former, aside).inspect_err(|_| {
        tell("the repaired generation is there; the former ones are still beside it");
    })?;
    Ok(aside.display().to_string())
}

/// Reads back what was written.
fn verify(directories: &[ShardDirectory], entries: u64, ledger: &Ledger) -> Result<(), ToolError> {
    let (mut copy, mut found, mut is_damaged) = (Ledger::default(), 0, false);
    for directory in directories {
        let report = read_shard(directory, &mut copy)?;
        is_damaged |= report.is_damaged();
        found += report.counts.sum() - report.counts.heads - report.counts.states;
    }
    if is_damaged || found != entries || copy.totals() != ledger.totals() {
        return Err(ToolError::Other(format!(
            "what was written does not read back: {found} of {entries} entries. Nothing was \
             changed; the disk may have a fault (see dmesg): repair a copy on another disk"
        )));
    }
    Ok(())
}

/// Writes entries to the shards that own their timers, each with the times of its page.
struct Copier {
    count: ShardCount,
    outputs: Vec<Output>,
    entries: u64,
    failure: Option<ToolError>,
}

/// The new journal of a shard.
struct Output {
    directory: ShardDirectory,
    state: State,
    writer: Writer,
    /// The segment that is filled.
    file: Option<(SegmentNumber, File)>,
    /// When what is appended and not written was written first.
    stamp: Stamp,
}

impl Copier {
    fn new(directories: &[ShardDirectory], state: &State) -> Self {
        let output = |directory: &ShardDirectory| Output {
            directory: directory.clone(),
            state: state.clone(),
            writer: writer(directory, state, Continuation::default()),
            file: None,
            stamp: Stamp::default(),
        };
        let count = ShardCount::new(directories.len() as u16);
        let outputs = directories.iter().map(output).collect();
        Self { count, outputs, entries: 0, failure: None }
    }

    /// Writes what is left and makes it survive a loss of power. Returns how many entries there
    /// are.
    fn end(mut self) -> Result<u64, ToolError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        for output in &mut self.outputs {
            output.write()?;
            output.close()?;
        }
        Ok(self.entries)
    }
}

impl Tool for Copier {}

impl Visitor for Copier {
    fn entry(&mut self, place: &PagePlace, entry: &Entry<'_>) {
        let Some(id) = entry.id() else { return };
        if self.failure.is_none() {
            self.entries += 1;
            let output = &mut self.outputs[usize::from(self.count.owner(id).0)];
            self.failure = output.append(&place.stamp, entry).err();
        }
    }

    fn is_over(&self) -> bool {
        self.failure.is_some()
    }
}

fn writer(directory: &ShardDirectory, state: &State, found: Continuation) -> Writer {
    let owner = Owner {
        journal: directory.identity.journal,
        name: directory.identity.node.clone(),
        shard: directory.shard,
        shards: directory.shards,
    };
    Writer::new(owner, Sizes::PRODUCTION, state.clone(), found)
}

impl Output {
    fn append(&mut self, stamp: &Stamp, entry: &Entry<'_>) -> Result<(), ToolError> {
        if self.stamp != *stamp || !self.writer.has_room() {
            self.write()?;
        }
        if self.stamp.boot != stamp.boot && self.writer.segment().0 > 0 {
            // The boot changes only between segments.
            let last = self.writer.segment();
            let writes = self.writer.durable_write();
            self.writer = writer(&self.directory, &self.state, Continuation { last, writes });
        }
        self.stamp = *stamp;
        self.writer.append(entry);
        Ok(())
    }

    /// Writes all that was appended.
    fn write(&mut self) -> Result<(), ToolError> {
        while self.writer.lacks_segment() {
            let Some(segment) = self.writer.wants_segment() else { break };
            self.close()?;
            let path = self.directory.segment_path(segment);
            let bytes = Sizes::PRODUCTION.segment_bytes();
            let made =
                create_zeroed(&path, bytes).and_then(|()| File::options().write(true).open(&path));
            let file = made
                .map_err(|source| ToolError::Write { path: path.display().to_string(), source })?;
            self.file = Some((segment, file));
            self.writer.prepared(segment);
        }
        self.writer.begin_write(self.stamp);
        while let Some(piece) = self.writer.next_piece() {
            let path = self.directory.segment_path(piece.segment).display().to_string();
            let open = self.file.as_ref().filter(|(segment, _)| *segment == piece.segment);
            let written = match open {
                Some((_, file)) => file.write_all_at(piece.bytes, piece.offset),
                None => Err(std::io::Error::other("the segment is not open")),
            };
            written.map_err(|source| ToolError::Write { path, source })?;
            self.writer.piece_written();
        }
        Ok(())
    }

    /// Ends the segment that is filled.
    fn close(&mut self) -> Result<(), ToolError> {
        let Some((segment, file)) = self.file.take() else { return Ok(()) };
        file.sync_all().map_err(|source| {
            let path = self.directory.segment_path(segment).display().to_string();
            ToolError::Write { path, source }
        })
    }
}
