//! The table of what operations may cost: `benches/instructions/table.txt`.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// By how much a count may be above the table. Above it the bench fails; further below it the table
/// should be written anew.
const SLACK: f64 = 0.02;

/// The build whose counts these are.
const BUILD: &str = if cfg!(debug_assertions) { "tests" } else { "release" };

/// Instructions by build and operation.
pub struct Table(BTreeMap<(String, String), u64>);

impl Table {
    pub fn read() -> Self {
        let text = std::fs::read_to_string(path()).expect("the table is part of the source");
        let rows = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let row = |line: &str| {
            let (build, rest) = line.split_once(' ')?;
            let (name, count) = rest.trim().rsplit_once(' ')?;
            Some(((build.to_owned(), name.trim().to_owned()), count.parse().ok()?))
        };
        let read = |line| row(line).unwrap_or_else(|| panic!("no row of the table: {line}"));
        Self(rows.map(read).collect())
    }

    /// The instructions that an operation may take; `None`: the table does not know it.
    pub fn limit(&self, operation: &str) -> Option<u64> {
        self.0.get(&(BUILD.to_owned(), operation.to_owned())).copied()
    }

    pub fn set(&mut self, operation: &str, instructions: u64) {
        self.0.insert((BUILD.to_owned(), operation.to_owned()), instructions);
    }

    pub fn write(&self) {
        let mut text = String::from(
            "# Instructions of one operation, the kernel left out.\n\
             # Written by `cargo bench --bench instructions -- --write`.\n\
             # A count may be 2 % above its row.\n",
        );
        for ((build, operation), count) in &self.0 {
            text += &format!("{build:<8} {operation:<28} {count:>7}\n");
        }
        std::fs::write(path(), text).expect("the table can be written");
    }
}

pub fn is_within(instructions: u64, limit: u64) -> bool {
    instructions as f64 <= limit as f64 * (1.0 + SLACK)
}

/// What a line says of a count and its row.
pub fn verdict(instructions: u64, limit: Option<u64>) -> String {
    let Some(limit) = limit else { return "  not in the table".to_owned() };
    let change = (instructions as f64 / limit as f64 - 1.0) * 100.0;
    if !is_within(instructions, limit) {
        format!(
            "  {change:+.1} %: ABOVE THE TABLE ({limit}): make it cheaper, or say why it may cost \
             more and write the table"
        )
    } else if change < -SLACK * 100.0 {
        format!("  {change:+.1} %: below the table ({limit}): write the table")
    } else {
        format!("  {change:+.1} %")
    }
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/instructions/table.txt")
}
