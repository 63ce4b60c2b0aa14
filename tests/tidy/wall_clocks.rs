//! Every place that reads the wall clock in a room that decides has its reason in
//! docs/wall-clocks.md: somebody may set a wall clock wrong, and right again.

use std::collections::BTreeMap;

use super::{Source, expect_none, read, sources};

const PAGE: &str = "docs/wall-clocks.md";
/// Rooms that decide about timers. That of timestamps has a clock of its own.
const LOOKED_AT: [&str; 7] = ["timer", "shard", "core", "node", "journal", "cluster", "control"];

/// How often a file's code reads the field `wall`.
fn places_of(code: &str) -> usize {
    let is_field =
        |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '(');
    code.match_indices(".wall").filter(|(at, found)| is_field(&code[at + found.len()..])).count()
}

/// Files that differ from their rows, rows of files that are gone, groups without their number.
fn unexplained(sources: &[Source], page: &str) -> Vec<String> {
    let (mut files, mut groups, mut told) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, count, last] = cells[..] else { continue };
        let Ok(count) = count.parse::<usize>() else { continue };
        match name.strip_prefix('`') {
            Some(file) => {
                files.insert(file.trim_end_matches('`').to_owned(), count);
                *told.entry(last.to_owned()).or_insert(0) += count;
            }
            None => drop(groups.insert(name.to_owned(), count)),
        }
    }
    let mut findings = Vec::new();
    let is_looked_at = |source: &&Source| source.room().is_some_and(|it| LOOKED_AT.contains(&it));
    for source in sources.iter().filter(is_looked_at) {
        let (places, row) = (places_of(&source.production_code()), files.remove(&source.path));
        if places != row.unwrap_or(0) {
            findings.push(format!(
                "{}: reads the wall clock {places} times, {PAGE} says {row:?}: give each new place \
                 a group whose reason holds for it, or use another clock",
                source.path
            ));
        }
    }
    findings.extend(files.keys().map(|file| format!("{PAGE}: there is no {file}")));
    if groups != told {
        findings.push(format!("{PAGE}: groups have {groups:?}, their files {told:?}"));
    }
    findings
}

#[test]
fn every_place_that_reads_the_wall_clock_has_its_reason() {
    expect_none(&unexplained(&sources(&["src"]), &read(PAGE)));
}

#[test]
fn a_place_that_reads_the_wall_clock_without_a_reason_is_found() {
    let page = "| told | 1 | nothing |\n| `src/shard/a.rs` | 1 | told |\n";
    let planted =
        |text: &str, page: &str| unexplained(&[Source::new("src/shard/a.rs", text)], page).len();
    assert_eq!(planted("fn a(now: Now) { b(now.wall); now.walls(); c.wall() }", page), 0);
    assert_eq!(planted("fn a(now: Now) { b(now.wall.0); c(now.wall) }", page), 1);
    assert_eq!(planted("fn a() {}", page), 1);
    assert_eq!(planted("fn a(now: Now) { b(now.wall) }", "| `src/shard/a.rs` | 1 | told |"), 1);
}
