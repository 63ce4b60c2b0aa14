//! The table of what operations may cost: `benches/instructions/table.txt`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// By how much a count may differ from its row. Above it the bench fails. Below it the bench says
/// that the row may be lowered.
const SLACK: f64 = 0.02;
/// A row that is higher than its count by more than this share of itself says nothing any more, and
/// the bench fails.
const LOOSE: f64 = 0.10;

/// The build whose counts these are; `None`: a build of which the table has no rows. `tests` is the
/// build of the simulators in `tests/run`: somewhat optimised, with assertions, planted bugs
/// compiled in and switched off.
const BUILD: Option<&str> = match (cfg!(debug_assertions), cfg!(feature = "planted")) {
    (false, false) => Some("release"),
    (true, true) => Some("tests"),
    _ => None,
};

const HEAD: &str = "# Instructions of one operation, the kernel left out: build, compiler, \
                    operation, count.\n\
                    # Written by the bench with `--write` (docs/performance.md, \"Instructions\").\n\
                    # A count may be 2 % above its row, and 10 % below. A row of another compiler \
                    is not compared.\n";

/// What was counted once.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Row {
    compiler: String,
    instructions: u64,
}

/// Rows by build and operation.
pub struct Table(BTreeMap<(String, String), Row>);

/// How a count and its row stand to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Passed,
    Failed,
    NotCompared,
}

impl Table {
    pub fn read() -> Self {
        let text = std::fs::read_to_string(path()).expect("the table is part of the source");
        let rows = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let row = |line: &str| {
            let (build, rest) = line.split_once(' ')?;
            let (compiler, rest) = rest.trim().split_once(' ')?;
            let (name, count) = rest.trim().rsplit_once(' ')?;
            let row = Row { compiler: compiler.to_owned(), instructions: count.parse().ok()? };
            Some(((build.to_owned(), name.trim().to_owned()), row))
        };
        let read = |line| row(line).unwrap_or_else(|| panic!("no row of the table: {line}"));
        Self(rows.map(read).collect())
    }

    /// Compares a count of what this compiler has built with its row. The text says what to do.
    pub fn compare(&self, operation: &str, compiler: &str, instructions: u64) -> (Outcome, String) {
        let Some(build) = BUILD else {
            return (Outcome::NotCompared, "not compared: the table has no such build".to_owned());
        };
        let Some(row) = self.0.get(&(build.to_owned(), operation.to_owned())) else {
            return (Outcome::Failed, "NOT IN THE TABLE: write it".to_owned());
        };
        let limit = row.instructions;
        if row.compiler != compiler {
            let (theirs, change) = (&row.compiler, percent(instructions, limit));
            let text = format!("{change}, not compared: {limit} by {theirs}, this is {compiler}");
            return (Outcome::NotCompared, text);
        }
        judge(instructions, limit)
    }

    pub fn set(&mut self, operation: &str, compiler: &str, instructions: u64) {
        let build = BUILD.expect("rows are written of a release build or of the simulators' build");
        let row = Row { compiler: compiler.to_owned(), instructions };
        self.0.insert((build.to_owned(), operation.to_owned()), row);
    }

    pub fn write(&self) {
        let mut text = HEAD.to_owned();
        for ((build, operation), Row { compiler, instructions }) in &self.0 {
            text += &format!("{build:<8} {compiler:<14} {operation:<28} {instructions:>7}\n");
        }
        std::fs::write(path(), text).expect("the table can be written");
    }
}

fn judge(instructions: u64, limit: u64) -> (Outcome, String) {
    let share = instructions as f64 / limit as f64;
    let change = percent(instructions, limit);
    if share > 1.0 + SLACK {
        let text = format!(
            "{change}: ABOVE THE TABLE ({limit}): make it cheaper, or say why it may cost more and \
             write the table"
        );
        (Outcome::Failed, text)
    } else if share < 1.0 - LOOSE {
        (Outcome::Failed, format!("{change}: FAR BELOW THE TABLE ({limit}): write the table"))
    } else if share < 1.0 - SLACK {
        (Outcome::Passed, format!("{change}: below the table ({limit}): write the table"))
    } else {
        (Outcome::Passed, change)
    }
}

fn percent(instructions: u64, limit: u64) -> String {
    format!("{:+.1} %", (instructions as f64 / limit as f64 - 1.0) * 100.0)
}

/// The compiler of a binary, and the kind of machine: rustc writes its version into what it makes.
pub fn compiler_of(binary: &Path) -> String {
    const MARK: &[u8] = b"rustc version ";
    let bytes = std::fs::read(binary).expect("the binary is there");
    let at = bytes.windows(MARK.len()).position(|window| window == MARK);
    let rest = &bytes[at.expect("a binary of rustc names it") + MARK.len()..];
    let end = rest.iter().position(|byte| !b"0123456789.".contains(byte)).unwrap_or(rest.len());
    format!("{}-{}", String::from_utf8_lossy(&rest[..end]), std::env::consts::ARCH)
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/instructions/table.txt")
}
