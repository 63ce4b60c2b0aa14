//! A module of the library is `pub` only if somebody outside names it: suites, benches, the load
//! generator, the binary. What is `pub(crate)` instead the compiler tells as dead once nobody uses
//! it.

use std::collections::BTreeSet;

use super::circles::{module_of, uses};
use super::{Source, expect_none, line_of, sources, words};

/// Modules that are named outside of `src/`, with all modules that they lie in.
fn named_outside(sources: &[Source]) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for source in sources.iter().filter(|source| !is_library(source)) {
        let (imports, paths) = uses(&source.code);
        let all = imports.into_iter().map(|(_, path)| path).chain(paths);
        for path in all.filter(|path| path.first().is_some_and(|first| first == "chronos")) {
            (1..=path.len()).for_each(|length| {
                named.insert(format!("src::{}", path[1..length].join("::")));
            });
        }
    }
    named
}

fn is_library(source: &Source) -> bool {
    source.path.starts_with("src/") && source.path != "src/main.rs"
}

/// Modules that are `pub` and that nobody outside names.
fn needlessly_public(sources: &[Source]) -> Vec<String> {
    let named = named_outside(sources);
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| is_library(source)) {
        for at in words(&source.code, "pub mod") {
            let rest = &source.code[at + "pub mod".len()..];
            let name = rest.split([';', '{']).next().unwrap_or_default().trim();
            let module = format!("{}::{name}", module_of(&source.path));
            if !named.contains(&module) {
                let line = line_of(&source.code, at);
                findings.push(source.at(line, format!("`{name}` is pub and unnamed outside")));
            }
        }
    }
    findings
}

#[test]
fn a_module_is_public_only_if_somebody_outside_names_it() {
    let sources = sources(&["src", "loadgen", "tests", "benches"]);
    assert!(named_outside(&sources).len() > 40, "outside, modules are named");
    expect_none(&needlessly_public(&sources));
}

#[test]
fn a_module_that_nobody_names_is_found() {
    let planted = |outside: &str| {
        let library = Source::new("src/wire/mod.rs", "pub mod json;\npub(crate) mod text;\n");
        needlessly_public(&[library, Source::new("tests/a/main.rs", outside)]).len()
    };
    assert_eq!(planted("use chronos::wire::timer_json::parse;"), 1);
    assert_eq!(planted("use chronos::{base::ids, wire::{json::string, text}};"), 0);
    assert_eq!(planted("fn a() { chronos::wire::json::string() }"), 0);
    assert_eq!(planted("// chronos::wire::json"), 1);
}
