//! Every place that reads the wall clock in a room that decides has its reason in
//! docs/wall-clocks.md: somebody may set a wall clock wrong, and right again.

use super::reasons::{counts_of, strange_groups};
use super::{Source, expect_none, read, sources};

const PAGE: &str = "docs/wall-clocks.md";
/// What begins the line of a file's head.
const REASONS: &str = "Reads the wall clock:";
/// Rooms that decide about timers. That of timestamps has a clock of its own.
const LOOKED_AT: [&str; 7] = ["timer", "shard", "core", "node", "journal", "cluster", "control"];

/// How often a file's code reads the field `wall`.
fn places_of(code: &str) -> usize {
    let is_field =
        |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '(');
    code.match_indices(".wall").filter(|(at, found)| is_field(&code[at + found.len()..])).count()
}

/// Files whose places differ from what their heads say, groups without a reason.
fn unexplained(sources: &[Source], page: &str) -> Vec<String> {
    let (mut findings, mut used) = (Vec::new(), Vec::new());
    let is_looked_at = |source: &&Source| source.room().is_some_and(|it| LOOKED_AT.contains(&it));
    for source in sources.iter().filter(is_looked_at) {
        let (places, groups) = (places_of(&source.production_code()), counts_of(source, REASONS));
        let explained: usize = groups.values().sum();
        if places != explained {
            findings.push(format!(
                "{}: reads the wall clock {places} times, its head ({REASONS}) says {explained}: \
                 give each new place a group of {PAGE} whose reason holds for it, or use another \
                 clock",
                source.path
            ));
        }
        used.push(groups);
    }
    findings.extend(strange_groups(PAGE, page, &used));
    findings
}

#[test]
fn every_place_that_reads_the_wall_clock_has_its_reason() {
    expect_none(&unexplained(&sources(&["src"]), &read(PAGE)));
}

#[test]
fn a_place_that_reads_the_wall_clock_without_a_reason_is_found() {
    let head = "//! A file.\n\n// Reads the wall clock: told 1.\n\n";
    let planted = |text: &str| {
        let source = Source::new("src/shard/a.rs", &format!("{head}{text}"));
        unexplained(&[source], "| told | nothing |\n").len()
    };
    assert_eq!(planted("fn a(now: Now) { b(now.wall); now.walls(); c.wall() }"), 0);
    assert_eq!(planted("fn a(now: Now) { b(now.wall.0); c(now.wall) }"), 1);
    assert_eq!(planted("fn a() {}"), 1);
    let without = Source::new("src/shard/a.rs", "fn a(now: Now) { b(now.wall) }");
    assert_eq!(unexplained(&[without], "").len(), 1);
}
