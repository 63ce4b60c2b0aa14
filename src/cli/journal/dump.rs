//! `chronos journal dump`: prints every entry, in the order in which it was written.

use std::io::{BufWriter, ErrorKind, StdoutLock, Write};

use clap::Args;
use serde_json::{Value, json};

use super::place::Place;
use super::stats::time;
use super::survey::{Tool, ToolError, printable, survey};
use crate::base::ids::TimerId;
use crate::base::time::{TICK_NS, WallMs};
use crate::cli::exit::{EXIT_FAILURE, EXIT_OK};
use crate::cli::terminal::tell;
use crate::journal::entry::Entry;
use crate::journal::page::Stamp;
use crate::node::journal::directory::Generation;
use crate::node::journal::reading::{PagePlace, Visitor};
use crate::timer::definition::Content;
use crate::wire::peer_message::{Standing, TimerCopy};

const EXAMPLES: &str = "\
Examples:
  chronos journal dump --data-dir /var/lib/chronos
  chronos journal dump --data-dir /var/lib/chronos --id 687ebc01f9400001-2-0000801000840080
  chronos journal dump --data-dir /var/lib/chronos --json --opaque | jq -r .opaque

One line an entry. The kinds:
  timer      a timer as it was then: a write of a client, or a copy
  tombstone  the timer ended, or was deleted
  progress   so many pops are done (sequence)
  forgotten  the timer was handed over to other nodes
  head       the beginning of a segment
  state      what the shard knows of itself

The last entry of a timer counts. Times are in UTC, by the wall clock of the moment of the write.

Exit codes: 0 all was printed, 1 something is damaged and missing here, 2 nothing can be read";

/// Print every entry, one line each
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DumpFlags {
    #[command(flatten)]
    pub place: Place,

    /// Only entries of this timer: its id or its Location as clients have it, or the 16 digits
    /// that the id begins with
    #[arg(long, value_name = "ID", value_parser = timer_id)]
    id: Option<TimerId>,

    /// Print the opaque bytes, too, and not only their length
    #[arg(long)]
    opaque: bool,
}

/// Reads a timer's id: 16 hex digits, and what clients have before and behind them.
fn timer_id(text: &str) -> Result<TimerId, String> {
    let text = text.rsplit_once("/timers/").map_or(text, |(_, id)| id);
    let digits = text.get(..16).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let id = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let is_end = |rest: &str| rest.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    id.filter(|_| text.get(16..).is_some_and(is_end))
        .map(TimerId)
        .ok_or_else(|| "expected an id such as 687ebc01f9400001-2-0000801000840080".to_owned())
}

/// Runs the command; returns the exit code.
pub(super) fn run(flags: &DumpFlags) -> Result<u8, ToolError> {
    let data = flags.place.open()?;
    let output = BufWriter::new(std::io::stdout().lock());
    let shard = (String::new(), 0);
    let mut printer = Printer { flags, output, shard, failure: None };
    let survey = survey(&data, &mut printer)?;
    let flushed = printer.output.flush();
    match printer.failure.or(flushed.err()) {
        // A reader that has closed its end is no error.
        Some(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(EXIT_OK),
        Some(error) => return Err(ToolError::Other(format!("cannot print: {error}"))),
        None => {}
    }
    if survey.findings().iter().any(|finding| finding.is_damage()) {
        tell("warning: something is damaged and not shown: chronos journal check tells more");
        return Ok(EXIT_FAILURE);
    }
    Ok(EXIT_OK)
}

/// Prints entries as they come.
struct Printer<'a> {
    flags: &'a DumpFlags,
    output: BufWriter<StdoutLock<'static>>,
    /// The generation and the shard that are read.
    shard: (String, u16),
    failure: Option<std::io::Error>,
}

impl Tool for Printer<'_> {
    fn shard(&mut self, generation: Generation, shard: u16) {
        self.shard = (generation.name(), shard);
    }
}

impl Visitor for Printer<'_> {
    fn entry(&mut self, place: &PagePlace, entry: &Entry<'_>) {
        if self.failure.is_some() || self.flags.id.is_some_and(|id| entry.id() != Some(id)) {
            return;
        }
        let printed = if self.flags.place.json {
            writeln!(self.output, "{}", document(&self.shard, place, entry, self.flags.opaque))
        } else {
            writeln!(self.output, "{}", line(&self.shard, place, entry, self.flags.opaque))
        };
        self.failure = printed.err();
    }

    fn is_over(&self) -> bool {
        self.failure.is_some()
    }
}

/// What is told of an entry besides its place.
fn fields(place: &PagePlace, entry: &Entry<'_>, is_opaque: bool) -> (&'static str, Vec<Field>) {
    match entry {
        Entry::Timer(copy) => {
            let kind = if copy.body.is_some() { "timer" } else { "tombstone" };
            (kind, timer_fields(place, copy, is_opaque))
        }
        Entry::Progress(standing) => ("progress", standing_fields(standing)),
        Entry::Forgotten(id) => ("forgotten", vec![("id", json!(id.to_string()))]),
        Entry::Head(head) => {
            let shard = format!("{} of {}", head.shard, head.shards);
            let fields = vec![
                ("format", json!(head.format)),
                ("node", json!(head.name)),
                ("shard", json!(shard)),
                ("oldest", json!(head.oldest.0)),
                ("blocks", json!(head.blocks)),
                ("previous_blocks", json!(head.previous_blocks)),
            ];
            ("head", fields)
        }
        Entry::State(state) => {
            let owed: Vec<u32> = state.owed.iter().map(|node| node.0).collect();
            let fields = vec![
                ("oldest", json!(state.oldest.0)),
                ("complete_since", json!(time(state.complete_since))),
                ("owed", json!(owed)),
            ];
            ("state", fields)
        }
    }
}

type Field = (&'static str, Value);

fn standing_fields(standing: &Standing) -> Vec<Field> {
    vec![
        ("id", json!(standing.id.to_string())),
        // In digits as an id: most readers of JSON round integers of 64 bits.
        ("version", json!(format!("{:016x}", standing.version))),
        ("sequence", json!(standing.sequence)),
        ("actives", json!(format!("{:b}", standing.actives))),
    ]
}

fn timer_fields(place: &PagePlace, copy: &TimerCopy<'_>, is_opaque: bool) -> Vec<Field> {
    let mut fields = standing_fields(&copy.standing);
    fields.extend([
        ("replicas", json!(copy.replicas.len())),
        ("start", json!(time(wall_of(&place.stamp, copy.start_ms)))),
        ("interval_ms", json!(copy.interval_ms)),
        ("repeat_for_ms", json!(copy.repeat_for_ms)),
    ]);
    if let Some(body) = copy.body {
        let content = Content::decode(body.content);
        let target = String::from_utf8_lossy(content.target);
        fields.push(("uri", json!(format!("http://{}{target}", body.authority))));
        fields.extend(content.owner().map(|owner| ("owner", json!(owner))));
        fields.push(("opaque_bytes", json!(content.opaque.len())));
        if is_opaque {
            fields.push(("opaque", json!(String::from_utf8_lossy(content.opaque))));
        }
    }
    fields
}

/// The wall time of a moment of the monotonic clock, as both clocks were at the stamp.
fn wall_of(stamp: &Stamp, at_ms: u64) -> WallMs {
    let mono_ms = stamp.mono.0 / TICK_NS;
    WallMs((stamp.wall.0.saturating_add(at_ms)).saturating_sub(mono_ms))
}

fn document(shard: &(String, u16), place: &PagePlace, entry: &Entry<'_>, is_opaque: bool) -> Value {
    let (kind, fields) = fields(place, entry, is_opaque);
    let mut document = json!({
        "generation": shard.0,
        "shard": shard.1,
        "segment": place.segment.0,
        "block": place.block,
        "write": place.write,
        "written": time(place.stamp.wall),
        "kind": kind,
    });
    for (name, value) in fields {
        document[name] = value;
    }
    document
}

fn line(
    (generation, shard): &(String, u16),
    place: &PagePlace,
    entry: &Entry<'_>,
    is_opaque: bool,
) -> String {
    let (kind, fields) = fields(place, entry, is_opaque);
    let (segment, block, written) = (place.segment.0, place.block, time(place.stamp.wall));
    let mut line = format!("{written} {generation}/{shard}/{segment:x}:{block} {kind}");
    for (name, value) in fields {
        let value = match value {
            // Quoted, so that no byte of a client reaches the terminal.
            Value::String(text) if name == "opaque" => json!(text).to_string(),
            Value::String(text) => printable(&text),
            other => other.to_string(),
        };
        line += &format!(" {name}={value}");
    }
    line
}
