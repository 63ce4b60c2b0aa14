//! `chronos journal stats`: how many timers and bytes there are, and how many of them are live.

use jiff::Timestamp;
use serde_json::json;

use super::check::heading;
use super::ledger::{Ledger, Totals};
use super::place::Place;
use super::survey::{Finding, Survey, ToolError, survey};
use crate::base::time::WallMs;
use crate::cli::exit::EXIT_FAILURE;
use crate::cli::terminal::{print, tell};
use crate::journal::BLOCK_BYTES;
use crate::node::journal::reading::EntryCounts;

struct Stats {
    /// Bytes of the segments' files.
    file_bytes: u64,
    segments: u64,
    /// Bytes of the blocks that were written.
    written_bytes: u64,
    /// Bytes of the entries in them.
    entry_bytes: u64,
    counts: EntryCounts,
    totals: Totals,
}

/// Runs the command; returns the exit code.
pub(super) fn run(place: &Place) -> Result<u8, ToolError> {
    let mut ledger = Ledger::default();
    let survey = survey(&place.open()?, &mut ledger)?;
    let stats = Stats::of(&survey, ledger.totals());
    let (first, last) = ledger.span.unzip();
    let printed = match place.json {
        true => format!("{:#}\n", stats.document(&survey, first, last)),
        false => heading(&survey) + &stats.text(first, last),
    };
    let code = print(&printed);
    if survey.findings().iter().any(Finding::is_damage) {
        tell("warning: something is damaged and not counted: chronos journal check tells more");
        return Ok(code.max(EXIT_FAILURE));
    }
    Ok(code)
}

impl Stats {
    fn of(survey: &Survey, totals: Totals) -> Self {
        let mut counts = EntryCounts::default();
        for shard in &survey.shards {
            counts.add(&shard.report.counts);
        }
        Self {
            file_bytes: survey.sum(|read| read.file.bytes),
            segments: survey.sum(|_| 1),
            written_bytes: survey.sum(|read| u64::from(read.report.end) * BLOCK_BYTES as u64),
            entry_bytes: survey.sum(|read| read.entry_bytes),
            counts,
            totals,
        }
    }

    /// Which share of the written bytes a journal would need that held each timer once.
    fn live_share(&self) -> f64 {
        share(self.totals.live_bytes, self.written_bytes)
    }

    /// Which share of the written bytes is no entry: headers, and zeros behind the last entry.
    fn padding_share(&self) -> f64 {
        share(self.written_bytes.saturating_sub(self.entry_bytes), self.written_bytes)
    }

    fn text(&self, first: Option<WallMs>, last: Option<WallMs>) -> String {
        let Totals { timers, tombstones, live_bytes } = self.totals;
        let EntryCounts { timers: whole, tombstones: ended, progress, forgotten, .. } = self.counts;
        let span = first.map(time).zip(last.map(time));
        let span = span.map_or("nothing".to_owned(), |(first, last)| format!("{first} to {last}"));
        format!(
            "timers     {timers}, and {tombstones} that ended and are remembered\n\
             written    {span}\n\
             files      {} in use, {} bytes\n\
             blocks     {} bytes written, of which {:.1} % are padding and headers\n\
             live       {live_bytes} bytes, {:.1} % of the blocks\n\
             entries    {} in all: {whole} timers, {ended} ends, {progress} pops, {forgotten} \
             handed over\n",
            self.segments,
            self.file_bytes,
            self.written_bytes,
            100.0 * self.padding_share(),
            100.0 * self.live_share(),
            self.counts.sum(),
        )
    }

    fn document(
        &self,
        survey: &Survey,
        first: Option<WallMs>,
        last: Option<WallMs>,
    ) -> serde_json::Value {
        let EntryCounts { timers, tombstones, progress, forgotten, heads, states } = self.counts;
        json!({
            "data_dir": survey.path,
            "node": survey.identity.node,
            "timers": self.totals.timers,
            "ended": self.totals.tombstones,
            "first_write": first.map(time),
            "last_write": last.map(time),
            "segments": self.segments,
            "file_bytes": self.file_bytes,
            "written_bytes": self.written_bytes,
            "entry_bytes": self.entry_bytes,
            "live_bytes": self.totals.live_bytes,
            "live_share": self.live_share(),
            "padding_share": self.padding_share(),
            "entries": {
                "timer": timers, "tombstone": tombstones, "progress": progress,
                "forgotten": forgotten, "head": heads, "state": states,
            },
        })
    }
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

/// A wall time as text, in UTC; beyond what a calendar has, in ms.
pub(super) fn time(wall: WallMs) -> String {
    let ms = i64::try_from(wall.0).ok();
    let time = ms.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| format!("{} ms", wall.0), |time| format!("{time:.3}"))
}
