//! The rules that keep the house in order (ARCHITECTURE.md, "Rooms"), checked on the sources
//! themselves. Every rule is a function from sources to findings, and has a counter-test that
//! plants what it forbids: a rule that cannot fail is no rule.
//!
//! Rules look at *code*: a source with comments, strings and character literals blanked out, so
//! that words in them neither hide nor fake a finding.

mod circles;
mod panics;
mod reasons;
mod self_circles;
mod visibility;
mod wall_clocks;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use chronos::control::config::keys::{KEYS, SECTIONS};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_CHARACTERS_MAX: usize = 100;
/// The ring, and the allocator that counts for benches: the trait of allocators is unsafe.
const UNSAFE_IN: [&str; 2] = ["src/ring/", "benches/counting.rs"];

/// Every room with the order in which they stand; an import points from a higher to a lower number.
/// Two rooms of one number do not see each other.
const ROOMS: [(&str, u32); 14] = [
    ("base", 0),
    ("wire", 1),
    ("store", 1),
    ("journal", 2),
    ("timer", 2),
    ("cluster", 2),
    ("timestamp", 2),
    ("shard", 3),
    ("ring", 3),
    ("tls", 3),
    ("core", 4),
    ("node", 5),
    ("control", 6),
    ("cli", 7),
];

/// Rooms that name no clock, socket, file, thread or random source: these come in as arguments.
const PURE_ROOMS: [&str; 9] =
    ["base", "wire", "store", "timer", "cluster", "timestamp", "journal", "shard", "core"];

/// The doors to the kernel, and to a library with randomness and a clock of its own: no pure room
/// sees them, whatever its order.
const DOORS: [&str; 2] = ["ring", "tls"];

/// Rooms that bytes go through and that own no socket: they name what pure rooms name, and the
/// traits of reading and writing.
const WITHOUT_SOCKETS: [&str; 1] = ["tls"];

const IMPURE: [&str; 11] = [
    "std::time",
    "std::fs",
    "std::thread",
    "std::io",
    "std::process",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "Instant",
    "SystemTime",
    "rand::",
];

/// A source file: where it is, what it says, and its code alone (same lines, same columns).
struct Source {
    path: String,
    text: String,
    code: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), code: code_of(text) }
    }

    /// The room that a file of `src/` belongs to.
    fn room(&self) -> Option<&str> {
        let inside = self.path.strip_prefix("src/")?;
        inside.split_once('/').map(|(room, _)| room)
    }

    /// Whether the whole file is compiled for tests only.
    fn is_test(&self) -> bool {
        self.path.starts_with("tests/")
            || self.path.ends_with("_tests.rs")
            || self.path.ends_with("/tests.rs")
    }

    /// The code without modules and items under `#[cfg(test)]`.
    fn production_code(&self) -> String {
        if self.is_test() { String::new() } else { without_test_items(&self.code) }
    }

    fn at(&self, line: usize, what: impl std::fmt::Display) -> String {
        format!("{}:{line}: {what}", self.path)
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_under(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the project") {
        let path = entry.expect("an entry of it").path();
        if path.is_dir() {
            files_under(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Every Rust file of the given folders.
fn sources(folders: &[&str]) -> Vec<Source> {
    let mut paths = Vec::new();
    for folder in folders {
        files_under(&root().join(folder), &mut paths);
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root()).expect("inside").to_str().expect("plain").to_owned();
        Source::new(&name, &std::fs::read_to_string(&path).expect("a source is UTF-8"))
    };
    paths.into_iter().map(read).collect()
}

fn everywhere() -> Vec<Source> {
    sources(&["src", "loadgen", "tests", "benches"])
}

/// Blanks comments, strings and character literals, keeping every line break and column.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let blank = blank_length(rest, code.chars().next_back());
        let length = blank.unwrap_or_else(|| rest.chars().next().map_or(0, char::len_utf8));
        let (taken, after) = rest.split_at(length);
        match blank {
            Some(_) => code.extend(taken.chars().map(|c| if c == '\n' { c } else { ' ' })),
            None => code.push_str(taken),
        }
        rest = after;
    }
    code
}

/// Bytes of the comment or literal that `rest` begins with, if it begins with one.
fn blank_length(rest: &str, before: Option<char>) -> Option<usize> {
    let to = |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at);
    if rest.starts_with("//") {
        return Some(to("\n", 0));
    }
    if rest.starts_with("/*") {
        return Some((to("*/", 2) + 2).min(rest.len()));
    }
    let is_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with('r') && !is_word {
        let hashes = rest[1..].bytes().take_while(|&byte| byte == b'#').count();
        if rest[1 + hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            return Some((to(&end, hashes + 2) + end.len()).min(rest.len()));
        }
    }
    if let Some(quoted) = rest.strip_prefix('"') {
        return Some(1 + quoted_length(quoted, '"'));
    }
    // A quote begins a character literal if one character, or an escape, and a quote follow it;
    // otherwise it is a lifetime.
    let mut after = rest.strip_prefix('\'')?.chars();
    match (after.next(), after.next()) {
        (Some('\\'), _) => Some(1 + quoted_length(&rest[1..], '\'')),
        (Some(literal), Some('\'')) => Some(2 + literal.len_utf8()),
        _ => None,
    }
}

/// Bytes up to and with the first `quote` that is not escaped.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if character == quote => return at + quote.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Blanks what follows `#[cfg(test)]`, up to its closing brace or its semicolon.
fn without_test_items(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut kept = code.to_owned();
    let mut from = 0;
    while let Some(at) = kept[from..].find(MARK).map(|at| from + at) {
        let length = item_length(&kept[at + MARK.len()..]);
        let item = at..at + MARK.len() + length;
        let blank: String =
            kept[item.clone()].chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
        from = at + blank.len();
        kept.replace_range(item, &blank);
    }
    kept
}

/// Bytes of the item at the start of `code`: to its semicolon, or to the brace that closes its
/// first.
fn item_length(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, character) in code.char_indices() {
        match character {
            ';' if depth == 0 => return at + 1,
            '{' => depth += 1,
            '}' if depth <= 1 => return at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text[..at].bytes().filter(|&byte| byte == b'\n').count()
}

/// Where `word` stands in `code`, not as a part of a longer word.
fn words(code: &str, word: &str) -> Vec<usize> {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let stands_alone = |&at: &usize| {
        let ends_in_word = word.ends_with(|c: char| c.is_alphanumeric());
        !(is_part(code[..at].chars().next_back())
            || ends_in_word && is_part(code[at + word.len()..].chars().next()))
    };
    code.match_indices(word).map(|(at, _)| at).filter(stands_alone).collect()
}

fn order(room: &str) -> Option<u32> {
    ROOMS.iter().find(|(name, _)| *name == room).map(|(_, order)| *order)
}

/// Rooms that a source imports: `crate::x`, and the words of a grouped `use crate::{x::.., y}`.
fn imported_rooms(code: &str) -> Vec<(usize, String)> {
    let first_word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut found = Vec::new();
    for at in words(code, "crate::") {
        let after = &code[at + "crate::".len()..];
        let Some(group) = after.strip_prefix('{') else {
            found.push((at, first_word(after)));
            continue;
        };
        let mut depth = 1;
        let mut item_begins = 0;
        for (place, character) in group.char_indices() {
            match character {
                ',' if depth == 1 => {
                    found.push((at, first_word(&group[item_begins..place])));
                    item_begins = place + 1;
                }
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                found.push((at, first_word(&group[item_begins..place])));
                break;
            }
        }
    }
    found
}

fn wrong_imports(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources {
        let Some(room) = source.room() else { continue };
        let Some(own) = order(room) else {
            findings.push(source.at(1, format!("room `{room}` has no place in the order")));
            continue;
        };
        for (at, imported) in imported_rooms(&source.code) {
            let is_below = order(&imported).is_none_or(|other| other < own);
            let is_door_of_pure = DOORS.contains(&imported.as_str()) && PURE_ROOMS.contains(&room);
            if imported != room && (!is_below || is_door_of_pure) {
                let what = format!("`{room}` must not import `{imported}`");
                findings.push(source.at(line_of(&source.code, at), what));
            }
        }
    }
    findings
}

fn impure_words(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources {
        let Some(room) = source.room() else { continue };
        let may_read = WITHOUT_SOCKETS.contains(&room);
        if !may_read && !PURE_ROOMS.contains(&room) {
            continue;
        }
        let code = source.production_code();
        for word in IMPURE.into_iter().filter(|word| !(may_read && *word == "std::io")) {
            for at in words(&code, word) {
                findings.push(source.at(line_of(&code, at), format!("a pure room names `{word}`")));
            }
        }
    }
    findings
}

fn wrong_unsafe(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources {
        for at in words(&source.code, "unsafe") {
            let line = line_of(&source.code, at);
            if !UNSAFE_IN.iter().any(|place| source.path.starts_with(place)) {
                findings.push(source.at(line, "`unsafe` outside src/ring"));
            } else if !has_safety_comment(&source.text, line) {
                findings.push(source.at(line, "`unsafe` without a `// SAFETY:` comment above it"));
            }
        }
    }
    findings
}

/// Whether the comment above the statement on `line` says why it is sound: `SAFETY:` over a block,
/// the heading `# Safety` over an `unsafe fn`. The statement may have begun up to three lines
/// before.
fn has_safety_comment(text: &str, line: usize) -> bool {
    let lines: Vec<&str> = text.lines().take(line - 1).collect();
    let is_comment = |line: &&&str| line.trim_start().starts_with("//");
    let above = lines.iter().rev();
    let begins = above.clone().take(4).position(|line| is_comment(&line));
    let Some(begins) = begins else { return false };
    above
        .skip(begins)
        .take_while(is_comment)
        .any(|line| line.contains("SAFETY:") || line.contains("# Safety"))
}

fn too_long(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            findings.push(source.at(lines, format!("longer than {FILE_LINES_MAX} lines")));
        }
        // Tests hold data: requests, seeds.
        let is_data = source.path.starts_with("tests/") || source.path.starts_with("benches/");
        for (number, line) in source.text.lines().enumerate().filter(|_| !is_data) {
            let width = line.chars().count();
            if width > LINE_CHARACTERS_MAX {
                findings.push(source.at(number + 1, format!("{width} columns")));
            }
        }
        for at in words(&source.code, "fn") {
            let function = &source.code[at..];
            let length = function[..item_length(function)].lines().count();
            if length > FUNCTION_LINES_MAX {
                let what = format!("a function of {length} lines");
                findings.push(source.at(line_of(&source.code, at), what));
            }
        }
    }
    findings
}

fn leftovers(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources {
        for word in ["todo!", "unimplemented!", "dbg!", "#[ignore"] {
            for at in words(&source.code, word) {
                findings.push(source.at(line_of(&source.code, at), format!("`{word}` left over")));
            }
        }
        // Written in two parts, so that this file does not hold them.
        for word in [concat!("FIX", "ME"), concat!("XX", "X"), concat!("TO", "DO")] {
            for at in words(&source.text, word) {
                findings.push(source.at(line_of(&source.text, at), format!("`{word}` left over")));
            }
        }
    }
    findings
}

/// What suites have in common and do not take from tests/kit: files of other suites, processes that
/// may outlive the suite.
fn beside_the_kit(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    let is_apart = |path: &str| {
        ["tests/kit/", "tests/fuzz/libfuzzer/"].iter().any(|folder| path.starts_with(folder))
    };
    for source in sources.iter().filter(|source| !is_apart(&source.path)) {
        for at in words(&source.code, "#[path") {
            let what = "`#[path]`: what suites share stands in tests/kit";
            findings.push(source.at(line_of(&source.code, at), what));
        }
        for at in words(&source.code, "Command::new(") {
            let what = "a process that may outlive the suite: `kit::children::command` ties it";
            findings.push(source.at(line_of(&source.code, at), what));
        }
    }
    findings
}

/// Dependencies without a reason on their line.
fn unexplained_dependencies(name: &str, manifest: &str) -> Vec<String> {
    let mut is_dependency = false;
    let mut findings = Vec::new();
    for (number, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            is_dependency = line.trim_end().trim_end_matches(']').ends_with("dependencies");
        } else if is_dependency && line.contains('=') && !line.trim_start().starts_with('#') {
            let reason = line.rsplit_once(" # ").map_or("", |(_, reason)| reason.trim());
            if reason.len() < 10 {
                findings.push(format!("{name}:{}: no reason: {line}", number + 1));
            }
        }
    }
    findings
}

/// Absolute paths of somebody's machine.
fn private_paths(name: &str, text: &str) -> Vec<String> {
    let private = [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/")];
    let mut findings = Vec::new();
    for path in private {
        for (at, _) in text.match_indices(path) {
            let before = text[..at].chars().next_back();
            // `http://host/home/x` and `frame/work/` go on a path; an absolute one begins here.
            if !before.is_some_and(|c| c.is_alphanumeric() || "}~.-_/".contains(c)) {
                findings.push(format!("{name}:{}: `{path}`", line_of(text, at)));
            }
        }
    }
    findings
}

/// Keys that a text in the form of tuning/reference.toml does not show, each in its section.
fn undocumented_keys(reference: &str) -> Vec<String> {
    let mut section = "";
    let mut shown = BTreeSet::new();
    let mut previous_is_prose = false;
    for line in reference.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((key, _)) = line.strip_prefix('#').and_then(|l| l.split_once(" = "))
            && previous_is_prose
            && !key.starts_with(' ')
        {
            shown.insert((section, key));
        }
        previous_is_prose = line.starts_with("# ");
    }
    let missing = KEYS.iter().filter(|key| !shown.contains(&(key.section, key.name)));
    missing.map(|key| format!("{key} is not in tuning/reference.toml")).collect()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn expect_none(findings: &[String]) {
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn imports_point_downwards() {
    let sources = sources(&["src"]);
    assert!(sources.len() > 50, "the sources are found");
    expect_none(&wrong_imports(&sources));
}

#[test]
fn an_upward_import_is_found() {
    let planted = |path: &str, text: &str| wrong_imports(&[Source::new(path, text)]).len();
    assert_eq!(planted("src/shard/a.rs", "use crate::ring::Ring;"), 1);
    assert_eq!(planted("src/ring/a.rs", "use crate::shard::Shard;"), 1);
    assert_eq!(planted("src/core/a.rs", "use crate::ring::Ring;"), 1);
    assert_eq!(planted("src/core/a.rs", "use crate::tls::session::Session;"), 1);
    assert_eq!(planted("src/tls/a.rs", "use crate::ring::Ring;"), 1);
    assert_eq!(planted("src/node/a.rs", "use crate::tls::session::Session;"), 0);
    assert_eq!(planted("src/core/a.rs", "use crate::shard::Shard;"), 0);
    assert_eq!(planted("src/base/a.rs", "fn a() -> crate::wire::X { todo() }"), 1);
    assert_eq!(planted("src/wire/a.rs", "use crate::{base::ids, store::{index, wheel}};"), 1);
    assert_eq!(planted("src/wire/a.rs", "use crate::{store::index};"), 1);
    assert_eq!(planted("src/attic/a.rs", ""), 1);
    assert_eq!(planted("src/node/a.rs", "use crate::{ring::Ring, shard::Shard};"), 0);
    assert_eq!(planted("src/base/a.rs", "// crate::node::x\nconst A: &str = \"crate::cli\";"), 0);
    assert_eq!(planted("src/base/a.rs", "use crate::base::time;"), 0);
}

#[test]
fn pure_rooms_name_no_clock_socket_file_thread_or_dice() {
    expect_none(&impure_words(&sources(&["src"])));
}

#[test]
fn a_clock_in_a_pure_room_is_found() {
    let planted = |path: &str, text: &str| impure_words(&[Source::new(path, text)]).len();
    assert_eq!(planted("src/shard/a.rs", "use std::time::Duration;"), 1);
    assert_eq!(planted("src/store/a.rs", "fn a() { std::thread::yield_now() }"), 1);
    assert_eq!(planted("src/wire/a.rs", "use std::net::{IpAddr, TcpStream};"), 1);
    assert_eq!(planted("src/timer/a.rs", "let a: u8 = rand::random();"), 1);
    assert_eq!(planted("src/timer/a.rs", "#[cfg(test)]\nmod a { use std::fs; }\nstd::fs::read"), 1);
    assert_eq!(planted("src/ring/a.rs", "use std::time::Instant;"), 0);
    assert_eq!(planted("src/tls/a.rs", "use std::io::Read;"), 0);
    assert_eq!(planted("src/tls/a.rs", "use std::fs::File;"), 1);
    assert_eq!(planted("src/timer/a.rs", "#[cfg(test)]\nmod a { use std::fs; }"), 0);
    assert_eq!(planted("src/wire/a_tests.rs", "use std::fs;"), 0);
    assert_eq!(planted("src/wire/a.rs", "use std::net::IpAddr; // not std::time"), 0);
}

#[test]
fn unsafe_stands_in_the_ring_alone_and_says_why() {
    expect_none(&wrong_unsafe(&everywhere()));
}

#[test]
fn an_unsafe_block_without_a_reason_is_found() {
    let planted = |path: &str, text: &str| wrong_unsafe(&[Source::new(path, text)]).len();
    assert_eq!(planted("src/node/a.rs", "// SAFETY: no\nunsafe { a() }"), 1);
    assert_eq!(planted("loadgen/a.rs", "unsafe { a() }"), 1);
    assert_eq!(planted("src/ring/a.rs", "// fast\nunsafe { a() }"), 1);
    assert_eq!(planted("src/ring/a.rs", "// SAFETY: x\n\n\n\n\nunsafe { a() }"), 1);
    assert_eq!(
        planted("src/ring/a.rs", "// SAFETY: it is ours\n// alone.\nlet a = unsafe { a };"),
        0
    );
    assert_eq!(planted("src/node/a.rs", "#![deny(unsafe_code)]"), 0);
}

#[test]
fn files_functions_and_lines_fit() {
    expect_none(&too_long(&everywhere()));
}

#[test]
fn what_is_too_long_is_found() {
    let planted = |text: &str| too_long(&[Source::new("src/base/a.rs", text)]).len();
    let function = |lines: usize| format!("fn a() {{\n{}}}\n", "b();\n".repeat(lines - 2));
    assert_eq!(planted(&function(FUNCTION_LINES_MAX)), 0);
    assert_eq!(planted(&function(FUNCTION_LINES_MAX + 1)), 1);
    assert_eq!(planted(&function(FUNCTION_LINES_MAX + 1).replacen("b()", "'}'; \"}\"", 1)), 1);
    assert_eq!(planted(&"//\n".repeat(FILE_LINES_MAX)), 0);
    assert_eq!(planted(&"//\n".repeat(FILE_LINES_MAX + 1)), 1);
    assert_eq!(planted(&"\u{e9}".repeat(LINE_CHARACTERS_MAX)), 0);
    assert_eq!(planted(&"x".repeat(LINE_CHARACTERS_MAX + 1)), 1);
}

#[test]
fn nothing_is_left_over() {
    expect_none(&leftovers(&everywhere()));
}

#[test]
fn a_leftover_is_found() {
    let planted = |text: &str| leftovers(&[Source::new("src/base/a.rs", text)]).len();
    for text in ["todo!()", "dbg!(x)", "unimplemented!()", "#[ignore]", "#[ignore = \"slow\"]"] {
        assert_eq!(planted(text), 1, "{text}");
    }
    assert_eq!(planted(concat!("// FIX", "ME: later")), 1);
    assert_eq!(planted(concat!("a(); // XX", "X")), 1);
    assert_eq!(planted("// says todo!() and nothing\nlet a = \"dbg!\";"), 0);
}

#[test]
fn suites_share_the_kit() {
    expect_none(&beside_the_kit(&sources(&["tests"])));
    let planted = |text: &str| beside_the_kit(&[Source::new("tests/a/b.rs", text)]).len();
    assert_eq!(planted("#[path = \"../c/d.rs\"]\nmod d;"), 1);
    assert_eq!(planted("std::process::Command::new(\"a\").spawn()"), 1);
    assert_eq!(planted("kit::children::command(\"a\").spawn_tied()"), 0);
    assert_eq!(planted("// Command::new(a) and #[path]"), 0);
}

#[test]
fn every_dependency_says_why() {
    for name in ["Cargo.toml", "loadgen/Cargo.toml", "tests/kit/Cargo.toml"] {
        expect_none(&unexplained_dependencies(name, &read(name)));
    }
    let planted = |manifest| unexplained_dependencies("a", manifest).len();
    assert_eq!(planted("[dependencies]\na = \"1\"\n"), 1);
    assert_eq!(planted("[dev-dependencies]\na = \"1\" # ok\n"), 1);
    assert_eq!(planted("[dependencies]\na = \"1\" # for its hash\n"), 0);
    assert_eq!(planted("[package]\na = \"1\"\n"), 0);
}

#[test]
fn no_file_names_a_private_path() {
    let mut paths = Vec::new();
    for folder in ["src", "loadgen", "tests", "benches", "docs", "tuning", ".ci"] {
        files_under(&root().join(folder), &mut paths);
    }
    let ends = [".md", ".toml", "tests/run", ".ci/run"];
    paths.retain(|path| !path.components().any(|part| part.as_os_str() == "target"));
    paths.extend(
        ["README.md", "ARCHITECTURE.md", "Cargo.toml", "deny.toml"].map(|f| root().join(f)),
    );
    let is_looked_at = |name: &str| name.ends_with(".rs") || ends.iter().any(|e| name.ends_with(e));
    let mut findings = Vec::new();
    for path in &paths {
        let name = path.strip_prefix(root()).expect("inside").to_string_lossy();
        if is_looked_at(&name) || name.starts_with("tuning/") || name.starts_with("loadgen/") {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            findings.extend(private_paths(&name, &text));
        }
    }
    expect_none(&findings);
    assert_eq!(private_paths("a", concat!("cd /ho", "me/me/x")).len(), 1);
    assert_eq!(private_paths("a", concat!("\"/wo", "rk/x\"")).len(), 1);
    assert_eq!(private_paths("a", concat!("http://a/ho", "me/b frame/wo", "rk/x")).len(), 0);
}

#[test]
fn every_key_is_in_the_reference_file() {
    let reference = read("tuning/reference.toml");
    expect_none(&undocumented_keys(&reference));
    assert_eq!(undocumented_keys("").len(), KEYS.len());
    assert_eq!(undocumented_keys(&reference.replace("\n#timers_max =", "\n#timer_max =")).len(), 1);
    assert_eq!(undocumented_keys(&reference.replace("[limits]", "[limit]")).len(), 15);
    assert!(SECTIONS.iter().all(|section| reference.contains(&format!("\n[{}]\n", section.name))));
}

#[test]
fn code_is_told_from_comments_and_literals() {
    for (text, code) in [
        ("a // b\nc", "a     \nc"),
        ("a /* b\n */ c", "a     \n    c"),
        ("a(\"b\\\"c\", d)", "a(      , d)"),
        ("r#\"a\"b\"#;c", "        ;c"),
        ("for\"a\"", "for   "),
        ("'{' + '\\'' + '\u{e9}'", "    +      +    "),
        ("<'a>(b: &'a str)", "<'a>(b: &'a str)"),
        ("\"open", "     "),
    ] {
        assert_eq!(code_of(text).trim_end(), code.trim_end(), "{text}");
    }
    let item = "a\n#[cfg(test)]\nmod b { fn c() {} }\nd\n#[cfg(test)]\nmod e;\nf";
    let words: Vec<_> = without_test_items(item).split_whitespace().map(str::to_owned).collect();
    assert_eq!(words, ["a", "d", "f"]);
}
