//! Strong words of the documents: a section that says what can never be names a test.

use std::collections::BTreeSet;

use super::{exists, expect_none, files_below, pairs, quoted, read, sources_below};

const PAGES: [&str; 5] = [
    "docs/guarantees.md",
    "docs/api.md",
    "docs/security.md",
    "docs/operations.md",
    "docs/journal.md",
];
const WORDS: [&str; 5] = ["cannot", "never", "nobody", "at most", "always"];
/// Words with more underscores than a key or a metric usually has.
const UNDERSCORES: usize = 4;

fn is_strong(section: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let lower = section.to_lowercase().replace('\n', " ");
    WORDS.iter().any(|word| {
        lower.match_indices(word).any(|(at, _)| {
            let (before, after) = (&lower[..at], &lower[at + word.len()..]);
            !is_letter(before.chars().next_back()) && !is_letter(after.chars().next())
        })
    })
}

/// Whether a word in backticks has the form of a test's name.
fn is_name(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    word.chars().all(is_part)
        && word.matches('_').count() >= UNDERSCORES
        && !word.starts_with("chronos_")
}

fn is_proof(word: &str) -> bool {
    is_name(word) || ["tests/", "src/"].iter().any(|room| word.starts_with(room) && exists(word))
}

/// Sections of a page, each with its heading.
fn sections(page: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for line in page.lines() {
        if line.starts_with("##") {
            all.push(String::new());
        }
        let last = all.last_mut().expect("one at least");
        last.push_str(line);
        last.push('\n');
    }
    all
}

fn unproven(name: &str, page: &str) -> Vec<String> {
    let bare =
        |section: &String| is_strong(section) && !quoted(section).iter().any(|it| is_proof(it));
    let title = |section: String| section.lines().next().unwrap_or_default().to_owned();
    let found = sections(page).into_iter().filter(bare);
    found.map(|section| format!("{name}: {}: no test by name", title(section))).collect()
}

#[test]
fn strong_sentences_have_a_test_by_name() {
    let tests: String = files_below("tests")
        .into_iter()
        .filter(|name| name.ends_with(".rs") && !name.starts_with("tests/docs/promises"))
        .map(|name| read(&name))
        .collect();
    let sources = sources_below("src") + &tests;
    let mut names = BTreeSet::new();
    for page in PAGES {
        let text = read(page);
        expect_none(&unproven(page, &text));
        let named = quoted(&text).into_iter().filter(|word| is_name(word));
        names.extend(named.map(|name| (page, name)));
    }
    assert!(names.len() > 60, "{names:?}");
    let gone = names.iter().filter(|(_, name)| !pairs::is_test(&sources, name));
    let findings: Vec<String> =
        gone.map(|(page, name)| format!("{page}: no test {name}")).collect();
    expect_none(&findings);
}

#[test]
fn a_strong_sentence_without_a_test_is_found() {
    let found = |page: &str| unproven("a", page).len();
    assert_eq!(found("# A\n\nIt never ends.\n"), 1);
    assert_eq!(found("# A\n\nIt never ends (`it_never_ends_at_all`).\n"), 0);
    assert_eq!(found("# A\n\n## B\n\nAt\nmost one.\n\n## C\n\n`tests/api/main.rs`\n"), 1);
    assert_eq!(found("# A\n\nIt nevertheless ends.\n"), 0);
    assert_eq!(found("# A\n\nNobody: `chronos_a_b_c_d`, `tests/none.rs`.\n"), 1);
}
