//! A type whose methods stand in many files can hide a circle that `use` items do not show: the
//! files call each other through `self.`. This rule counts, for each type of a room, the files of
//! the largest such circle. The numbers are where the house stands: they may only fall.
//!
//! An arrow goes from a file to each other file that defines a method which it calls as `self.x(`
//! or `Self::x(` inside an `impl` of the type. Methods of traits are left out.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, expect_none, read, sources};

/// Most files of one circle, wherever it is not named below.
const CIRCLE_MAX: usize = 5;

/// Other bounds: the type with its room, and how many files may stand in its circle.
const KNOWN: [(&str, usize); 1] = [("shard::Shard", 0)];

/// What the files of a type call of each other.
type Arrows<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// What one file has in `impl` blocks of a type: the methods it defines, and those it calls.
#[derive(Default)]
struct Part {
    defined: BTreeSet<String>,
    called: BTreeSet<String>,
}

/// The type that a line at the margin opens an `impl` of; none: another line, or a trait's `impl`.
fn opened(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        // Bounds of parameters may have parameters of their own.
        Some(generics) => {
            let mut depth = 1_usize;
            let end = generics.char_indices().find(|(at, c)| {
                match c {
                    '<' => depth += 1,
                    // The arrow of a function closes nothing.
                    '>' if !generics[..*at].ends_with('-') => depth -= 1,
                    _ => {}
                }
                depth == 0
            });
            &generics[end?.0 + 1..]
        }
        None => rest,
    };
    let name = rest.trim_start().split(['<', ' ', '{']).next()?;
    let is_trait = rest.contains(" for ");
    (!is_trait && !name.is_empty() && rest.starts_with(' ')).then_some(name)
}

/// The names in calls on `self` or `Self`.
fn calls(line: &str) -> impl Iterator<Item = &str> {
    let after = ["self.", "Self::"].into_iter().flat_map(move |word| {
        line.match_indices(word).map(move |(at, _)| &line[at + word.len()..])
    });
    after.filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        rest[end..].starts_with('(').then_some(&rest[..end])
    })
}

/// The name of the method that a line of an `impl` begins.
fn defined(line: &str) -> Option<&str> {
    let line = line.strip_prefix("    ").filter(|line| !line.starts_with(' '))?;
    let head = &line[..line.find("fn ")?];
    let is_head =
        |word: &str| ["const", "async", "unsafe"].contains(&word) || word.starts_with("pub");
    let rest = &line[head.len() + "fn ".len()..];
    let end = rest.find(['(', '<'])?;
    head.split_whitespace().all(is_head).then_some(&rest[..end])
}

/// What each type, named with its room, has in each file.
fn parts(sources: &[Source]) -> BTreeMap<String, BTreeMap<&str, Part>> {
    let mut found: BTreeMap<String, BTreeMap<&str, Part>> = BTreeMap::new();
    for source in sources {
        let Some(room) = source.room() else { continue };
        let code = source.production_code();
        let mut at = None;
        for line in code.lines() {
            match &at {
                None => at = opened(line).map(|name| format!("{room}::{name}")),
                Some(_) if line.starts_with('}') => at = None,
                Some(name) => {
                    let parts = found.entry(name.clone()).or_default();
                    let part = parts.entry(&source.path).or_default();
                    part.defined.extend(defined(line).map(str::to_owned));
                    part.called.extend(calls(line).map(str::to_owned));
                }
            }
        }
    }
    found
}

/// Which files of a type call which: a method of the file itself is no other file's.
fn arrows<'a>(parts: &BTreeMap<&'a str, Part>) -> Arrows<'a> {
    let of = |part: &Part| {
        let own = |name: &&String| !part.defined.contains(*name);
        let defines = |name: &String| {
            let name = name.clone();
            parts.iter().filter(move |(_, other)| other.defined.contains(&name))
        };
        part.called.iter().filter(own).flat_map(defines).map(|(file, _)| *file).collect()
    };
    parts.iter().map(|(file, part)| (*file, of(part))).collect()
}

/// The files that a file reaches over any number of arrows.
fn reached<'a>(arrows: &Arrows<'a>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut waiting: Vec<&str> = arrows[from].iter().copied().collect();
    while let Some(file) = waiting.pop() {
        if found.insert(file) {
            waiting.extend(&arrows[file]);
        }
    }
    found
}

/// The largest set of files that all reach each other, in their order.
fn largest_circle<'a>(arrows: &Arrows<'a>) -> Vec<&'a str> {
    let reached: BTreeMap<_, _> =
        arrows.keys().map(|file| (*file, reached(arrows, file))).collect();
    let circle = |file: &&'a str| {
        let both = reached[file].iter().filter(|other| reached[*other].contains(file));
        both.copied().collect::<Vec<_>>()
    };
    arrows.keys().map(circle).max_by_key(Vec::len).unwrap_or_default()
}

/// Circles that are larger than they may be, and known ones that have become smaller.
fn findings(sources: &[Source], known: &[(&str, usize)]) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, parts) in parts(sources) {
        let circle = largest_circle(&arrows(&parts));
        let row = known.iter().find(|(it, _)| *it == name);
        let most = row.map_or(CIRCLE_MAX, |(_, most)| *most);
        if circle.len() > most {
            let files = circle.join(" ");
            findings.push(format!("{name}: {} files, {most} may be: {files}", circle.len()));
        } else if row.is_some() && circle.len() < most {
            findings.push(format!("{name}: {} files by now, lower its number", circle.len()));
        }
    }
    findings
}

/// The floors that a page names, from the bottom to the top: `1. **Name**: `file`, `file`.`
fn floors(page: &str) -> BTreeMap<String, usize> {
    let mut floors = BTreeMap::new();
    let mut floor = 0;
    for line in page.lines().filter_map(|line| line.strip_prefix("//!   ")) {
        let begins =
            line.split_once(". **").is_some_and(|(number, _)| number.parse::<u8>().is_ok());
        floor += usize::from(begins);
        let files = line.split('`').skip(1).step_by(2).filter(|_| floor > 0);
        floors.extend(files.map(|file| (format!("{file}.rs"), floor)));
    }
    floors
}

/// Calls from a floor to a higher one, and files without a floor.
fn calls_upwards(parts: &BTreeMap<&str, Part>, floors: &BTreeMap<String, usize>) -> Vec<String> {
    let floor = |path: &str| floors.get(path.rsplit('/').next().unwrap_or(path));
    let homeless = parts.keys().filter(|file| floor(file).is_none());
    let homeless = homeless.map(|file| format!("{file}: is named on no floor of src/shard/mod.rs"));
    let arrows = arrows(parts);
    let all = arrows.iter().flat_map(|(file, called)| called.iter().map(move |to| (*file, *to)));
    let upwards = all.filter(|(file, to)| floor(file) < floor(to));
    let upwards = upwards.map(|(file, to)| format!("{file}: calls {to}, which stands above it"));
    homeless.chain(upwards).collect()
}

#[test]
fn the_rules_of_the_shard_call_down_the_floors() {
    let sources = sources(&["src"]);
    let floors = floors(&read("src/shard/mod.rs"));
    assert!(floors.values().max() > Some(&4), "the floors are found: {floors:?}");
    expect_none(&calls_upwards(&parts(&sources)["shard::Shard"], &floors));
}

#[test]
fn a_call_up_the_floors_is_found() {
    let page = "//!   1. **Low**: `a`,\n//!      `b`.\n//!   2. **High**: `c`.\n";
    let call = |file: &str, own: &str, called: &str| {
        let code = format!("impl S {{\n    fn {own}() {{ Self::{called}(); }}\n}}\n");
        Source::new(&format!("src/shard/{file}.rs"), &code)
    };
    let found =
        |sources: &[Source]| calls_upwards(&parts(sources)["shard::S"], &floors(page)).len();
    assert_eq!(found(&[call("c", "x", "y"), call("b", "y", "z"), call("a", "z", "none")]), 0);
    assert_eq!(found(&[call("a", "x", "y"), call("c", "y", "none")]), 1, "up");
    assert_eq!(found(&[call("d", "x", "none")]), 1, "no floor");
}

#[test]
fn circles_through_self_do_not_grow() {
    let sources = sources(&["src"]);
    let shard = &parts(&sources)["shard::Shard"];
    let methods = shard.values().map(|part| part.defined.len()).sum::<usize>();
    assert!(methods > 100, "the methods are found: {methods}");
    expect_none(&findings(&sources, &KNOWN));
}

#[test]
fn a_circle_through_self_is_found() {
    let file = |name: usize, code: &str| {
        Source::new(&format!("src/shard/{name}.rs"), &format!("impl S {{\n{code}\n}}\n"))
    };
    let ring = |count: usize| -> Vec<Source> {
        let next = |at: usize| (at + 1) % count;
        let method = |at| {
            format!("    pub(super) fn f{at}(&self) {{\n        self.f{}();\n    }}", next(at))
        };
        (0..count).map(|at| file(at, &method(at))).collect()
    };
    assert_eq!(findings(&ring(CIRCLE_MAX), &[]).len(), 0);
    assert_eq!(findings(&ring(CIRCLE_MAX + 1), &[]).len(), 1);
    assert_eq!(findings(&ring(CIRCLE_MAX + 1), &[("shard::S", CIRCLE_MAX + 1)]).len(), 0);
    assert_eq!(findings(&ring(CIRCLE_MAX + 1), &[("shard::S", CIRCLE_MAX + 2)]).len(), 1);
    let mut open = ring(CIRCLE_MAX + 1);
    open[0] = file(0, "    fn f0(&self) {\n        // self.f1()\n        other.f1();\n    }");
    assert_eq!(findings(&open, &[]).len(), 0, "an arrow less");
    open[0] = file(0, "    fn f0(&self) {\n        Self::f1();\n    }");
    assert_eq!(findings(&open, &[]).len(), 1);
}

#[test]
fn impls_of_types_are_told_from_those_of_traits() {
    assert_eq!(opened("impl Shard {"), Some("Shard"));
    assert_eq!(opened("impl<'a, T: Into<Vec<u8>>> Reader<'a, T> {"), Some("Reader"));
    assert_eq!(opened("impl<F: Fn(u8) -> u8> Link<F>"), Some("Link"));
    assert_eq!(opened("impl Drop for Shard {"), None);
    assert_eq!(opened("implied Shard {"), None);
    assert_eq!(defined("    pub(super) const fn f<T>(x: T) {"), Some("f"));
    assert_eq!(defined("    let f = fn () {"), None);
    assert_eq!(defined("        fn inner() {"), None);
}
