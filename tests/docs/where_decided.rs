//! The index of questions (docs/design/where.md): a name in brackets behind a file, as in
//! `src/base/ids.rs` (`owner`), is defined in that file.

use super::{expect_none, read};

const PAGE: &str = "docs/design/where.md";
/// What stands before the name where something is defined.
const DEFINING: [&str; 7] = ["fn", "struct", "enum", "trait", "type", "const", "static"];

/// Each file of the page with the names in the brackets behind it.
fn named(page: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found = Vec::new();
    for (at, _) in page.match_indices(".rs`") {
        let (before, after) = page.split_at(at + ".rs".len());
        let file = before.rsplit('`').next().unwrap_or_default();
        let bracket = after["`".len()..].strip_prefix(" (").and_then(|rest| rest.split_once(')'));
        let names = bracket.map_or(Vec::new(), |(inside, _)| {
            let quoted = inside.split('`').skip(1).step_by(2);
            quoted.filter(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_')).collect()
        });
        found.push((file, names));
    }
    found
}

/// Whether a source defines the name, or has a field or a key of this name.
fn defines(source: &str, name: &str) -> bool {
    let is_over = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let item = DEFINING.iter().any(|word| {
        let item = format!("{word} {name}");
        source.match_indices(&item).any(|(at, _)| is_over(&source[at + item.len()..]))
    });
    item || source.contains(&format!(" {name}: "))
}

/// Names that their file does not define.
fn undefined(page: &str, source_of: impl Fn(&str) -> String) -> Vec<String> {
    let named = named(page).into_iter().filter(|(_, names)| !names.is_empty());
    named
        .flat_map(|(file, names)| {
            let source = source_of(file);
            let missing = names.into_iter().filter(|name| !defines(&source, name));
            missing.map(|name| format!("{file} has no `{name}`")).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn what_the_index_names_is_defined_where_it_says() {
    let page = read(PAGE);
    let names = named(&page).iter().map(|(_, names)| names.len()).sum::<usize>();
    assert!(names > 30, "the names are found: {names}");
    // Where the index names a file of the folder named before, it has no path.
    expect_none(&undefined(
        &page,
        |file| if file.contains('/') { read(file) } else { file.into() },
    ));
}

#[test]
fn a_name_that_is_gone_is_found() {
    let source =
        |_: &str| "    pub(super) fn owner_of(&self) {}\nstruct Owner { least: u8 }".into();
    let told = |page: &str| undefined(page, source).len();
    assert_eq!(told("`a.rs` (`owner_of`), `b.rs` (`Owner`): 5 (`x`)"), 0);
    assert_eq!(told("`a.rs` (`owner`)"), 1);
    assert_eq!(told("`a.rs` (`least`, 256)"), 0);
    assert_eq!(told("`a.rs`: by `owner` (`owner`)"), 0, "not behind the file");
}
