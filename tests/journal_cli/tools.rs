//! `chronos journal` as an operator runs it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use chronos::journal::entry::Entry;
use chronos::journal::page::Stamp;
use chronos::journal::{BLOCK_BYTES, SegmentNumber};
use chronos::node::journal::directory::DataDirectory;
use chronos::node::journal::reading::{PagePlace, Visitor, read_shard};
use kit::children;
use kit::children::Tied;
use serde_json::Value;

use crate::disk::{Data, NODE, Shard, content, cut, flip, stamp, timer};
use crate::reading::make_newer;

/// How a command ended.
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ended {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{}\n{}", self.out, self.err))
    }
}

/// Runs `chronos journal COMMAND --data-dir DATA WORDS...`.
pub fn journal(command: &str, data: &Path, words: &[&str]) -> Ended {
    let output = children::command(env!("CARGO_BIN_EXE_chronos"))
        .args(["journal", command, "--data-dir"])
        .arg(data)
        .args(words)
        .output_tied()
        .expect("it starts");
    Ended {
        code: output.status.code().expect("it was not killed"),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

/// A node of two shards: several segments, a restart, ends and pops. Returns the directory, and
/// the two journals.
fn node() -> (Data, Shard, Shard) {
    let data = Data::new(2);
    let mut first = data.shard(0);
    first.fill(4, 1);
    let opaque = content("some \u{1b}[31m opaque \"bytes\"");
    first.append(&Entry::Timer(timer(0xabc, 0, Some(&opaque))));
    first.append(&Entry::Progress(timer(0xabc, 3, None).standing));
    first.append(&Entry::Timer(timer(5, 7, None)));
    first.append(&Entry::Forgotten(timer(6, 0, None).standing.id));
    first.write(stamp(1, 100_000));
    let found = read_shard(&first.directory, &mut ()).expect("read").continuation;
    let mut first = Shard::begin(first.directory.clone(), found);
    first.append_timers(10_000..10_050);
    first.write(stamp(2, 200_000));
    let mut second = data.shard(1);
    second.append_timers(20_000..20_100);
    second.write(stamp(1, 90_000));
    (data, first, second)
}

/// The ids, versions and sequences of all entries, with the stamps of their pages.
#[derive(Default)]
struct All(BTreeSet<(u64, u64, u64, u64, u64)>);

impl Visitor for All {
    fn entry(&mut self, place: &PagePlace, entry: &Entry<'_>) {
        let Stamp { boot, mono, .. } = place.stamp;
        let (version, sequence) = match entry {
            Entry::Timer(copy) => (copy.standing.version, copy.standing.sequence),
            Entry::Progress(standing) => (standing.version, standing.sequence + 1_000),
            _ => (0, 0),
        };
        self.0.extend(entry.id().map(|id| (id.0, version, sequence, boot, mono.0)));
    }
}

fn all(data: &Data) -> All {
    let directory = DataDirectory::open_existing(data.path()).expect("nobody uses it");
    let mut all = All::default();
    for generation in directory.generations().expect("listed") {
        for shard in directory.shards(generation) {
            read_shard(&shard, &mut all).expect("it can be read");
        }
    }
    all
}

#[test]
fn a_whole_journal_is_checked() {
    let (data, ..) = node();
    let ended = journal("check", data.path(), &[]);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{}", ended.out);
    assert!(ended.out.contains(&format!("node {NODE}, journal ")), "{}", ended.out);
    assert!(ended.out.contains("\n0001-2 shard 0: 5 segments, "), "{}", ended.out);
    assert!(ended.out.ends_with("ok: all that was written can be read\n"), "{}", ended.out);
    let document = journal("check", data.path(), &["--json"]).json();
    assert_eq!((&document["outcome"], document["remedy"].is_null()), (&"ok".into(), true));
    assert_eq!(document["shards"].as_array().expect("a list").len(), 2);
    let stats = journal("stats", data.path(), &["--json"]).json();
    assert_eq!(stats["timers"], document["timers"]);
    let timers = stats["entries"]["timer"].as_u64().expect("a number");
    assert_eq!(stats["timers"], timers - 2, "one ended, one was handed over");
    assert_eq!((&stats["ended"], &stats["entries"]["progress"]), (&1.into(), &1.into()));
    assert_eq!(stats["last_write"], "2026-11-20T19:07:43.762Z");
    let live = stats["live_share"].as_f64().expect("a number");
    let padding = stats["padding_share"].as_f64().expect("a number");
    assert!(live > 0.5 && live + padding < 1.0 && padding > 0.02, "{stats:#}");
    let text = journal("stats", data.path(), &[]);
    assert!(text.out.contains("written    2026-11-20T19:04:23.783Z to "), "{}", text.out);
}

#[test]
fn an_empty_directory_is_whole() {
    let data = Data::new(3);
    assert_eq!(journal("check", data.path(), &[]).code, 0);
    assert_eq!(journal("dump", data.path(), &[]).out, "");
    let stats = journal("stats", data.path(), &[]);
    assert!(stats.out.contains("timers     0") && stats.out.contains("written    nothing"));
    assert!(journal("repair", data.path(), &["--yes"]).out.contains("nothing to repair"));
}

#[test]
fn a_torn_tail_is_told_and_is_no_damage() {
    let (data, mut first, _) = node();
    first.append_timers(11_000..11_100);
    first.write_blocks(stamp(2, 300_000), |block| block != 2);
    let ended = journal("check", data.path(), &[]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.out.contains("\ntorn: ") && ended.out.contains("a crash cut off"));
    let document = journal("check", data.path(), &["--json"]).json();
    assert_eq!(document["torn"][0]["blocks"], 1);
    assert!(journal("repair", data.path(), &["--yes"]).out.contains("nothing to repair"));
}

/// Every kind of damage: what is done to the files of shard 0, and what the check calls it.
type Harm = (&'static str, fn(&Shard, &Shard), &'static str);

const HARMS: [Harm; 13] = [
    ("a header", |shard, _| flip(&shard.path(2), 2 * BLOCK_BYTES + 20), "damaged"),
    ("an entry", |shard, _| flip(&shard.path(3), 5 * BLOCK_BYTES + 1_000), "damaged"),
    ("zeros behind entries", |shard, _| flip(&shard.path(2), 3 * BLOCK_BYTES - 1), "damaged"),
    ("a first page", |shard, _| flip(&shard.path(2), 70), "damaged"),
    ("the very first page", |shard, _| flip(&shard.path(1), 0), "damaged"),
    ("a middle that is zero", |shard, _| zero(&shard.path(2), 8..12), "damaged"),
    ("a tail before a later segment", |shard, _| cut(&shard.path(2), 50_000), "damaged"),
    ("an empty file", |shard, _| cut(&shard.path(3), 0), "damaged"),
    ("all before a restart", |shard, _| zero(&shard.path(4), 0..32), "beheaded"),
    ("a file that is gone", |shard, _| remove(&shard.path(2)), "missing"),
    ("a file of another shard", |a, b| copy(&b.path(1), &a.path(1)), "foreign"),
    ("a file under another number", |a, _| copy(&a.path(3), &a.path(2)), "foreign"),
    ("a last file that is short", |shard, _| cut(&last(shard), 8_192), "short"),
];

fn zero(path: &Path, blocks: std::ops::Range<usize>) {
    let mut bytes = fs::read(path).expect("there");
    bytes[blocks.start * BLOCK_BYTES..blocks.end * BLOCK_BYTES].fill(0);
    fs::write(path, bytes).expect("written");
}

fn remove(path: &Path) {
    fs::remove_file(path).expect("there");
}

fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).expect("there");
}

/// The last segment of the shard of [`node`].
fn last(shard: &Shard) -> std::path::PathBuf {
    let report = read_shard(&shard.directory, &mut ()).expect("read");
    report.segments.last().expect("it has some").file.path.clone()
}

#[test]
fn damage_of_every_kind_is_told_and_repaired_without_loss_of_what_can_be_read() {
    for (name, harm, word) in HARMS {
        let (data, first, second) = node();
        harm(&first, &second);
        let told = journal("check", data.path(), &["--json"]);
        assert_eq!(told.code, 1, "{name}: {}", told.err);
        let document = told.json();
        assert_eq!(document["damage"][0]["what"], word, "{name}: {document:#}");
        let file = document["damage"][0]["file"].as_str().expect("a path");
        assert!(file.starts_with(&*first.directory.path.to_string_lossy()), "{name}: {file}");
        assert!(told.err.contains("repair --data-dir"), "{name}: {}", told.err);
        assert!(document["remedy"].as_str().is_some_and(|text| text.contains("replicas")));

        let before = all(&data);
        let would = journal("repair", data.path(), &[]);
        assert_eq!(would.code, 1, "{name}: {}", would.err);
        assert!(would.out.contains("Nothing is changed yet"), "{}", would.out);
        assert_eq!(journal("check", data.path(), &["--json"]).json(), document, "{name}");
        if name != HARMS[0].0 && name != "a file of another shard" {
            // Each repair makes files of 64 MiB: two kinds are repaired here.
            continue;
        }
        let done = journal("repair", data.path(), &["--yes", "--json"]);
        assert_eq!(done.code, 0, "{name}: {}", done.err);
        let aside = done.json()["moved_to"].as_str().expect("a path").to_owned();
        assert!(Path::new(&aside).join("0001-2/0/0000000000000001.segment").exists());
        let clean = journal("check", data.path(), &["--json"]);
        assert_eq!(clean.code, 0, "{name}: {}", clean.out);
        assert_eq!(clean.json()["timers"], document["timers"]);
        assert_eq!(all(&data).0, before.0, "{name}: all that could be read, at its time");
        assert!(journal("repair", data.path(), &["--yes"]).out.contains("nothing to repair"));
    }
}

#[test]
fn a_repair_writes_several_generations_into_one() {
    let (data, first, _) = node();
    let directory = DataDirectory::open_existing(data.path()).expect("nobody uses it");
    let generation = directory.begin_generation(1).expect("begun");
    let mut third = Shard::begin(directory.shard(generation, 0), Default::default());
    drop(directory);
    third.append(&Entry::Timer(timer(0xabc, 9, None)));
    third.write(stamp(3, 1));
    fs::remove_dir_all(&first.directory.path).expect("removed");
    let told = journal("check", data.path(), &["--json"]).json();
    assert_eq!(told["damage"][0]["what"], "absent", "{told:#}");
    let before = all(&data);
    assert_eq!(journal("repair", data.path(), &["--yes"]).code, 0);
    assert_eq!(all(&data).0, before.0);
    let names: Vec<String> = fs::read_dir(data.path())
        .expect("listed")
        .map(|entry| entry.expect("listed").file_name().into_string().expect("text"))
        .collect();
    assert!(names.contains(&"0003-1".to_owned()) && !names.contains(&"0001-2".to_owned()));
    assert!(names.iter().any(|name| name.starts_with("damaged-2")), "{names:?}");
    let shard = DataDirectory::open_existing(data.path()).expect("nobody uses it");
    let shard = shard.shard(shard.generations().expect("listed")[0], 0);
    let report = read_shard(&shard, &mut ()).expect("read");
    let state = report.newest.state.expect("every segment has one");
    assert_eq!(state.complete_since.0, 0, "it does not know all since then");
    assert_eq!(report.oldest, SegmentNumber(1));
}

#[test]
fn entries_are_printed_one_a_line() {
    let (data, ..) = node();
    let lines = journal("dump", data.path(), &["--json"]);
    assert_eq!(lines.code, 0, "{}", lines.err);
    let entries: Vec<Value> =
        lines.out.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let kinds: BTreeSet<&str> = entries.iter().filter_map(|e| e["kind"].as_str()).collect();
    let all = ["forgotten", "head", "progress", "state", "timer", "tombstone"];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), all);
    assert_eq!(entries[0]["node"], NODE);

    let of_one = journal("dump", data.path(), &["--json", "--id", "0000000000000abc-2-00ff"]);
    let entries: Vec<Value> =
        of_one.out.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(entries.len(), 2);
    let timer = &entries[0];
    assert_eq!((&timer["kind"], &timer["generation"]), (&"timer".into(), &"0001-2".into()));
    assert_eq!((&timer["uri"], &timer["shard"]), (&"http://10.0.0.9:80/t".into(), &0.into()));
    // It was started 1 s after the machine, of which 100 s had passed at the write.
    assert_eq!(timer["start"], "2026-11-20T19:04:24.762Z");
    assert_eq!((&timer["interval_ms"], &timer["repeat_for_ms"]), (&5_000.into(), &50_000.into()));
    assert!(timer["opaque"].is_null() && timer["opaque_bytes"].as_u64() > Some(20));
    assert_eq!((&entries[1]["kind"], &entries[1]["sequence"]), (&"progress".into(), &3.into()));

    assert_eq!(entries[1]["version"], "0000000018c00000");

    let words = ["--opaque", "--id", "http://10.0.0.1:7253/timers/0000000000000abc-2-00ff"];
    let text = journal("dump", data.path(), &words);
    assert!(text.out.contains(" timer id=0000000000000abc version="), "{}", text.out);
    assert!(text.out.contains(r#"opaque="some \u001b[31m opaque \"bytes\"""#), "{}", text.out);
    assert!(!text.out.contains('\u{1b}'), "nothing for the terminal");
    for wrong in ["", "abc", "000000000000000g", "0000000000000abc/..", "0000000000000ab\u{e9}"] {
        assert_eq!(journal("dump", data.path(), &["--id", wrong]).code, 2, "{wrong}");
    }
}

#[test]
fn what_cannot_be_read_at_all_says_why() {
    let (data, first, _) = node();
    let refused = |words: &[&str], told: &str| {
        let ended = journal("check", data.path(), words);
        assert_eq!(ended.code, 2, "{}", ended.out);
        assert!(ended.err.contains(told), "{}", ended.err);
    };
    let held = DataDirectory::create_or_open(data.path(), NODE).expect("nobody uses it");
    refused(&[], &format!("in use by process {}", std::process::id()));
    drop(held);
    let good = fs::read(first.path(2)).expect("there");
    make_newer(&first.path(2), 3);
    refused(&[], "has format 2, and this release reads up to 1");
    let ended = journal("repair", data.path(), &["--yes", "--json"]);
    let told = ended.json();
    assert_eq!((ended.code, &told["status"]), (2, &serde_json::Value::Null));
    assert!(told["error"].as_str().is_some_and(|text| text.contains("has format 2")), "{told}");
    fs::write(first.path(2), good).expect("written");
    let node = fs::read_to_string(data.path().join("node.toml")).expect("there");
    fs::write(data.path().join("node.toml"), node.replace("10.0", "10.1")).expect("written");
    refused(&[], "make this its text:\nerror: format = 1");
    fs::remove_file(data.path().join("node.toml")).expect("removed");
    refused(&[], "it is missing");
    let nowhere = journal("check", &data.path().join("nowhere"), &[]);
    assert_eq!(nowhere.code, 2);
    assert!(nowhere.err.starts_with("error: there is no "), "{}", nowhere.err);
    let file = journal("stats", &data.path().join("lock"), &["--json"]);
    assert!(file.json()["error"].as_str().expect("text").contains("is not a directory"));
    assert_eq!(journal("check", data.path(), &["--jsno"]).code, 2);
}

#[test]
fn the_help_teaches() {
    for command in ["check", "stats", "dump", "repair"] {
        let ended = journal(command, Path::new("x"), &["--help"]);
        assert_eq!(ended.code, 0);
        assert!(ended.out.contains("--data-dir <DIR>"), "{}", ended.out);
    }
    let output = children::command(env!("CARGO_BIN_EXE_chronos"))
        .args(["journal", "--help"])
        .output_tied()
        .expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("Exit codes:") && text.contains("--data-dir /var/lib/chronos"));
}
