//! Every place that can panic in a room that bytes from outside pass through has its reason in
//! docs/panics.md: a file with more or fewer of them than its row says is a finding.

use std::collections::BTreeMap;

use super::{ROOMS, Source, expect_none, read, sources, words};

const PAGE: &str = "docs/panics.md";
const ASSERTIONS: [&str; 10] = [
    "assert!",
    "assert_eq!",
    "assert_ne!",
    "debug_assert!",
    "debug_assert_eq!",
    "debug_assert_ne!",
    "unreachable!",
    "unimplemented!",
    "panic!",
    "todo!",
];
const EXPECTATIONS: [&str; 4] = [".expect(", ".unwrap(", ".expect_err(", ".unwrap_err("];
const CUTS: [&str; 6] = [
    ".split_at(",
    ".split_at_mut(",
    ".copy_from_slice(",
    ".copy_within(",
    ".swap_remove(",
    ".split_off(",
];
/// Rooms that no bytes of the network pass through.
const LEFT_OUT: [&str; 1] = ["cli"];

/// Places of one file: assertions, expectations, indices, cuts.
type Places = [usize; 4];

/// How many places of a file's code can panic.
fn places_of(code: &str) -> Places {
    let sum = |all: &[&str]| all.iter().map(|one| code.matches(one).count()).sum::<usize>();
    let assertions = ASSERTIONS.iter().map(|one| words(code, one).len()).sum();
    let drains = code.match_indices(".drain(").filter(|(at, found)| {
        let inside = code[at + found.len()..].split(')').next().unwrap_or_default();
        inside.contains("..") && inside != ".."
    });
    [assertions, sum(&EXPECTATIONS), indices(code), sum(&CUTS) + drains.count()]
}

/// Brackets behind a value: `x[i]`, `x()[a..b]`. An attribute, a type, a pattern or an array has
/// something else before its bracket; `x[..]` is all of `x`.
fn indices(code: &str) -> usize {
    let is_index = |at: usize| {
        let before = code[..at].chars().next_back();
        let is_value = |c: char| c.is_alphanumeric() || matches!(c, '_' | ')' | ']' | '?');
        let rest = &code[at + 1..];
        before.is_some_and(is_value) && !rest.starts_with(']') && !rest.starts_with("..]")
    };
    code.match_indices('[').filter(|(at, _)| is_index(*at)).count()
}

/// What the page says: rows of files, and the groups that it gives reasons for.
struct Page {
    files: BTreeMap<String, (Places, Vec<(String, usize)>)>,
    groups: BTreeMap<String, usize>,
}

impl Page {
    fn of(text: &str) -> Page {
        let mut page = Page { files: BTreeMap::new(), groups: BTreeMap::new() };
        for line in text.lines().filter(|line| line.starts_with("| ")) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let numbers: Vec<usize> = cells.iter().filter_map(|cell| cell.parse().ok()).collect();
            match (&cells[..], &numbers[..]) {
                ([file, _, _, _, _, _, groups], [a, b, c, d]) => {
                    let file = file.trim_matches('`').to_owned();
                    let groups = groups.split(", ").filter_map(|group| group.split_once(' '));
                    let groups = groups
                        .map(|(name, count)| (name.to_owned(), count.parse().unwrap_or(0)))
                        .collect();
                    page.files.insert(file, ([*a, *b, *c, *d], groups));
                }
                ([group, _, _], [count]) => {
                    page.groups.insert((*group).to_owned(), *count);
                }
                _ => {}
            }
        }
        page
    }
}

/// Files that differ from their rows, rows that differ from the groups.
fn unexplained(sources: &[Source], page: &str) -> Vec<String> {
    let page = Page::of(page);
    let mut findings = Vec::new();
    let mut told: BTreeMap<&str, usize> = BTreeMap::new();
    let mut found = Vec::new();
    let is_looked_at =
        |room: &str| ROOMS.iter().any(|(known, _)| *known == room && !LEFT_OUT.contains(&room));
    for source in sources.iter().filter(|source| source.room().is_some_and(is_looked_at)) {
        let places = places_of(&source.production_code());
        let row = page.files.get(&source.path);
        if places != row.map_or([0; 4], |row| row.0) {
            let [assertions, expectations, indices, cuts] = places;
            findings.push(format!(
                "{}: {assertions} assertions, {expectations} expectations, {indices} indices, \
                 {cuts} cuts; {PAGE} says {:?}: give each new place a group whose reason holds for \
                 it, or make it an error",
                source.path,
                row.map(|row| row.0)
            ));
        }
        found.push(&source.path);
    }
    for (file, (places, groups)) in &page.files {
        if !found.contains(&file) {
            findings.push(format!("{PAGE}: there is no {file}"));
        }
        let sum: usize = groups.iter().map(|group| group.1).sum();
        if sum != places.iter().sum::<usize>() {
            findings.push(format!("{PAGE}: {file} has {sum} places in groups"));
        }
        groups.iter().for_each(|(group, count)| *told.entry(group).or_default() += count);
    }
    for (group, count) in &told {
        if page.groups.get(*group) != Some(count) {
            findings.push(format!("{PAGE}: {count} places are of the group {group}"));
        }
    }
    let unused = page.groups.keys().filter(|group| !told.contains_key(group.as_str()));
    findings.extend(unused.map(|group| format!("{PAGE}: no file has the group {group}")));
    findings
}

#[test]
fn every_place_that_can_panic_has_its_reason() {
    expect_none(&unexplained(&sources(&["src"]), &read(PAGE)));
}

#[test]
fn a_place_without_a_reason_is_found() {
    let page = "| fixed | 2 | it is |\n\
                | `src/wire/a.rs` | peers | 1 | 0 | 1 | 0 | fixed 2 |\n";
    let planted =
        |text: &str, page: &str| unexplained(&[Source::new("src/wire/a.rs", text)], page).len();
    let told = "fn a() { assert!(b); c[d] }";
    assert_eq!(planted(told, page), 0);
    assert_eq!(planted("fn a() { assert!(b); c[d]; e[f] }", page), 1);
    assert_eq!(planted("fn a() { assert!(b); c.get(d) }", page), 1);
    assert_eq!(
        planted("fn a() { assert!(b); c[d] }\n#[cfg(test)]\nmod e { fn f() { g[h] } }", page),
        0
    );
    assert_eq!(planted(told, ""), 1, "no row");
    assert_eq!(planted(told, &page.replace("fixed 2", "fixed 1")), 2, "the sum, and the group's");
    assert_eq!(planted(told, &page.replace("fixed 2", "lost 2")), 2, "a group without a reason");
    let gone = "| `src/wire/b.rs` | peers | 0 | 0 | 0 | 0 | |\n";
    assert_eq!(planted(told, &format!("{page}{gone}")), 1, "a row without a file");
}

#[test]
fn places_are_told_from_what_only_looks_like_them() {
    for (code, places) in [
        ("debug_assert_eq!(a, b); unreachable!()", [2, 0, 0, 0]),
        ("a.expect(\"b\").unwrap_err()", [0, 2, 0, 0]),
        ("a.unwrap_or(b).unwrap_or_default()", [0; 4]),
        ("a[b]; c()[d][..e]; f?[g]", [0, 0, 4, 0]),
        ("#[a] fn b(c: &[u8], d: [u8; 2]) { vec![e; f]; let [g, h] = i[..]; &j[..] }", [0; 4]),
        ("a.split_at(b); c.drain(..d); e.drain(..); f.drain(g..h)", [0, 0, 0, 3]),
    ] {
        assert_eq!(places_of(code), places, "{code}");
    }
}
