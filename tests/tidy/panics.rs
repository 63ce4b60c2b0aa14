//! Every place that can panic in a room that bytes from outside pass through has its reason in
//! docs/panics.md: a file with more or fewer of them than its head says is a finding.

use super::reasons::{Counts, counts_of, strange_groups};
use super::{ROOMS, Source, expect_none, read, sources, words};

const PAGE: &str = "docs/panics.md";
/// What begins the two lines of a file's head.
const PLACES: &str = "May panic:";
const REASONS: &str = "Why it does not:";
/// What the places of a file are, in the order of [`Places`].
const KINDS: [&str; 4] = ["assertions", "expectations", "indices", "cuts"];
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

/// Files whose places differ from what their heads say, groups without a reason.
fn unexplained(sources: &[Source], page: &str) -> Vec<String> {
    let (mut findings, mut used) = (Vec::new(), Vec::new());
    let is_looked_at =
        |room: &str| ROOMS.iter().any(|(known, _)| *known == room && !LEFT_OUT.contains(&room));
    for source in sources.iter().filter(|source| source.room().is_some_and(is_looked_at)) {
        let places = places_of(&source.production_code());
        let counted = KINDS.iter().zip(places).filter(|(_, count)| *count > 0);
        let counted: Counts = counted.map(|(kind, count)| ((*kind).to_owned(), count)).collect();
        let groups = counts_of(source, REASONS);
        let explained: usize = groups.values().sum();
        if counted != counts_of(source, PLACES) || explained != places.iter().sum::<usize>() {
            let told: Vec<String> =
                counted.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            findings.push(format!(
                "{}: can panic: {}. Say so at its head ({PLACES}), and give each place a group of \
                 {PAGE} whose reason holds for it ({REASONS} has {explained} places), or make it \
                 an error",
                source.path,
                told.join(", ")
            ));
        }
        used.push(groups);
    }
    findings.extend(strange_groups(PAGE, page, &used));
    findings
}

#[test]
fn every_place_that_can_panic_has_its_reason() {
    expect_none(&unexplained(&sources(&["src"]), &read(PAGE)));
}

#[test]
fn a_place_without_a_reason_is_found() {
    let page = "| fixed | it is |\n";
    let head = "//! A file.\n\n// May panic: assertions 1, indices 1.\n\
                // Why it does not: fixed 2.\n\nuse x;\n";
    let planted = |text: &str| unexplained(&[Source::new("src/wire/a.rs", text)], page).len();
    let told = format!("{head}fn a() {{ assert!(b); c[d] }}");
    assert_eq!(planted(&told), 0);
    assert_eq!(planted(&format!("{head}fn a() {{ assert!(b); c[d]; e[f] }}")), 1);
    assert_eq!(planted(&format!("{head}fn a() {{ assert!(b); c.get(d) }}")), 1);
    let in_test = "\n#[cfg(test)]\nmod e { fn f() { g[h] } }";
    assert_eq!(planted(&format!("{told}{in_test}")), 0);
    assert_eq!(planted("fn a() { assert!(b); c[d] }"), 2, "no head, and nobody has the group");
    assert_eq!(planted(&told.replace("fixed 2", "fixed 1")), 1, "the sum");
    let lost = told.replace("fixed 2", "lost 2");
    assert_eq!(planted(&lost), 2, "a group without a reason, a reason without a file");
    let behind = format!("use x;\n{told}");
    assert_eq!(planted(&behind), 2, "it stands at the head, or nowhere");
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
