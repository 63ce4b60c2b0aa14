//! No file imports a file that imports it in turn, directly or over others: what two files share
//! stands in a third one below both. So a newcomer can read the files of a room in an order, each
//! after what it stands on.
//!
//! An arrow is every path in a file's code (`use` items and paths in expressions and types) to an
//! item of another file. A name that a file only passes on (`pub use`) is an arrow to the file that
//! defines it. The declaration `mod child;` is no arrow.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Source, expect_none, sources, words};

/// Aliases followed for one path before the search gives up: `use` items can name each other.
const ALIASES_MAX: usize = 16;

/// The files of the project by their module paths, and the names that each file imports.
#[derive(Default)]
struct House<'a> {
    files: BTreeMap<String, &'a str>,
    /// Roots of crates.
    roots: BTreeSet<String>,
    imports: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    /// Paths in the code of each file, those of `use` items included.
    paths: BTreeMap<String, Vec<Vec<String>>>,
}

impl<'a> House<'a> {
    fn new(sources: &'a [Source]) -> Self {
        let mut house = Self::default();
        // The binary is a crate of its own and only calls the library.
        for source in sources.iter().filter(|s| !s.is_test() && s.path != "src/main.rs") {
            let module = module_of(&source.path);
            let (imports, mut paths) = uses(&source.production_code());
            paths.extend(imports.iter().map(|(_, path)| path.clone()));
            house.files.insert(module.clone(), &source.path);
            if ["lib.rs", "main.rs"].iter().any(|name| source.path.ends_with(name)) {
                house.roots.insert(module.clone());
            }
            house.imports.insert(module.clone(), imports.into_iter().collect());
            house.paths.insert(module, paths);
        }
        house
    }

    /// The files that a module's code names.
    fn arrows(&self, module: &str) -> BTreeSet<&'a str> {
        let named = self.paths[module].iter().filter_map(|path| self.file_of(module, path, 0));
        named.filter(|file| *file != self.files[module]).collect()
    }

    /// The root of the crate that a module belongs to.
    fn root_of(&self, module: &str) -> Option<&str> {
        let holds = |root: &&String| {
            module
                .strip_prefix(root.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        self.roots.iter().filter(holds).max_by_key(|root| root.len()).map(String::as_str)
    }

    /// The file that holds what `path` names in the code of `module`; none for another crate.
    fn file_of(&self, module: &str, path: &[String], aliases: usize) -> Option<&'a str> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => self.root_of(module)?.to_owned(),
            "self" => module.to_owned(),
            "super" => module.rsplit_once("::")?.0.to_owned(),
            _ => {
                rest = path;
                module.to_owned()
            }
        };
        let is_relative = rest.len() == path.len();
        while let Some((name, after)) = rest.split_first() {
            let child = format!("{at}::{name}");
            if name == "super" {
                at = at.rsplit_once("::")?.0.to_owned();
            } else if self.files.contains_key(&child) {
                at = child;
            } else if let Some(alias) = self.imports.get(&at).and_then(|names| names.get(name))
                && aliases < ALIASES_MAX
            {
                let path: Vec<String> = alias.iter().chain(after).cloned().collect();
                return self.file_of(&at, &path, aliases + 1);
            } else {
                break;
            }
            rest = after;
        }
        let is_foreign = is_relative && rest.len() == path.len();
        if is_foreign { None } else { self.files.get(&at).copied() }
    }
}

/// `src/shard/pops.rs` is `src::shard::pops`; `src/shard/mod.rs` is `src::shard`.
pub(super) fn module_of(path: &str) -> String {
    let mut parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    if matches!(parts.last(), Some(&("mod" | "lib" | "main"))) {
        parts.pop();
    }
    parts.join("::")
}

/// A name that a `use` item brings, and its path.
pub(super) type Import = (String, Vec<String>);

/// The names that `use` items bring with their paths, and all other paths of the code.
pub(super) fn uses(code: &str) -> (Vec<Import>, Vec<Vec<String>>) {
    let mut names = Vec::new();
    let mut others = code.to_owned();
    for at in words(code, "use") {
        let end = code[at..].find(';').map_or(code.len(), |length| at + length);
        // `impl Trait + use<'a>` is no import.
        if code[at + "use".len()..].starts_with(char::is_whitespace) {
            flatten(&code[at + "use".len()..end], &[], &mut names);
            others.replace_range(at..end, &" ".repeat(end - at));
        }
    }
    (names, paths_in(&others))
}

/// The leaves of a tree of imports, `a::{b, c::{self, d as e}}`, each with the name that it brings.
fn flatten(tree: &str, before: &[String], names: &mut Vec<Import>) {
    let tree = tree.trim();
    if let Some((stem, group)) = tree.split_once('{') {
        let stem = stem.split("::").map(str::trim).filter(|part| !part.is_empty());
        let stem: Vec<String> = before.iter().cloned().chain(stem.map(str::to_owned)).collect();
        let group = group.strip_suffix('}').unwrap_or(group);
        members(group).into_iter().for_each(|member| flatten(member, &stem, names));
        return;
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(p, a)| (p, Some(a.trim())));
    let parts = path.split("::").map(|part| part.trim().to_owned()).filter(|p| !p.is_empty());
    let mut path: Vec<String> = before.iter().cloned().chain(parts).collect();
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if let Some(last) = path.last().cloned() {
        names.push((alias.map_or(last, str::to_owned), path));
    }
}

/// The members of a group, cut at the commas outside inner groups.
fn members(group: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let is_cut = |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    group.split(is_cut).filter(|member| !member.trim().is_empty()).collect()
}

/// Paths of two parts and more: `a::b`, `crate::a::B::c`.
fn paths_in(code: &str) -> Vec<Vec<String>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(begin) = rest.find(is_part) {
        let is_inside = rest[..begin].ends_with("::");
        rest = &rest[begin..];
        let end = rest.find(|c: char| !is_part(c) && c != ':').unwrap_or(rest.len());
        let path: Vec<String> =
            rest[..end].split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let is_path = path.len() > 1 && path.iter().all(|part| part.chars().all(is_part));
        if is_path && !is_inside {
            found.push(path);
        }
        rest = &rest[end..];
    }
    found
}

/// Every file with the files that its code names.
fn arrows(sources: &[Source]) -> BTreeMap<&str, BTreeSet<&str>> {
    let house = House::new(sources);
    house.files.iter().map(|(module, file)| (*file, house.arrows(module))).collect()
}

/// The shortest way from a file back to itself.
fn circle<'a>(
    arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>,
    file: &'a str,
) -> Option<Vec<&'a str>> {
    let mut waiting = VecDeque::from([vec![file]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = waiting.pop_front() {
        for next in way.last().and_then(|last| arrows.get(last)).into_iter().flatten() {
            let way: Vec<&str> = way.iter().chain([next]).copied().collect();
            if *next == file {
                return Some(way);
            }
            if seen.insert(*next) {
                waiting.push_back(way);
            }
        }
    }
    None
}

/// Every file that stands in a circle, as the shortest way back to itself.
fn circles(sources: &[Source]) -> Vec<String> {
    let arrows = arrows(sources);
    let ways = arrows.keys().filter_map(|file| circle(&arrows, file));
    ways.map(|way| way.join(" -> ")).collect()
}

#[test]
fn files_do_not_import_each_other_in_circles() {
    let sources = sources(&["src", "loadgen"]);
    let count = arrows(&sources).values().map(BTreeSet::len).sum::<usize>();
    assert!(count > 500, "the arrows are found: {count}");
    expect_none(&circles(&sources));
}

#[test]
fn a_circle_is_found() {
    let planted = |files: &[(&str, &str)]| {
        let mut sources: Vec<Source> = files.iter().map(|(p, t)| Source::new(p, t)).collect();
        sources.push(Source::new("src/lib.rs", "mod a;"));
        sources.push(Source::new("src/a/mod.rs", "mod b; mod c; mod d;"));
        circles(&sources).len()
    };
    let (b, c, d) = ("src/a/b.rs", "src/a/c.rs", "src/a/d.rs");
    let used = (c, "use super::b::B;");
    assert_eq!(planted(&[(b, "use super::c::C;"), used]), 2);
    assert_eq!(planted(&[(b, "use crate::a::{c::{self, C}};"), used]), 2);
    assert_eq!(planted(&[(b, "fn f() { crate::a::c::f() }"), used]), 2);
    assert_eq!(planted(&[(b, "use super::c as x;"), used]), 2);
    assert_eq!(planted(&[(b, "use crate::a;\nfn f() { a::c::f() }"), used]), 2);
    assert_eq!(planted(&[(b, "use super::d::D;"), (d, "use super::c::C;"), used]), 3);
    assert_eq!(planted(&[(b, "use super::d::C;"), (d, "pub use super::c::C;"), used]), 2);
    assert_eq!(planted(&[(b, "use super::c::C;"), (d, "use super::c::C;"), (c, "")]), 0);
    assert_eq!(planted(&[(b, "mod c { pub fn f() {} }"), used]), 0);
    assert_eq!(planted(&[(b, "#[cfg(test)]\nmod tests { use super::super::c; }"), used]), 0);
    assert_eq!(planted(&[(b, "// crate::a::c\nuse std::c::C;"), used]), 0);
}

#[test]
fn a_parent_and_its_child_make_a_circle() {
    let planted = |parent: &str, child: &str| {
        let sources = [("src/lib.rs", "mod a;"), ("src/a/mod.rs", parent), ("src/a/b.rs", child)];
        circles(&sources.map(|(path, text)| Source::new(path, text))).len()
    };
    assert_eq!(planted("mod b;\nuse b::B;\npub struct A(B);", "use super::A;\npub struct B;"), 2);
    assert_eq!(planted("mod b;\npub struct A(b::B);", "fn f(a: crate::a::A) {}"), 2);
    assert_eq!(planted("mod b;\npub struct A;", "use super::A;"), 0, "a declaration");
    assert_eq!(planted("mod b;\npub use b::B;", "fn f(b: super::B) {}"), 0, "its own");
}
