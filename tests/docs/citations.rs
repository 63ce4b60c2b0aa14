//! Citations of the contract with the original services (`docs/compat/`): each leads to a page and
//! to a section that this page has, and the tests that the contract names exist.

use std::collections::BTreeSet;

use super::{exists, expect_none, files_below, read};

/// Where citations are looked for.
const CITING: [&str; 9] = [
    "src",
    "loadgen",
    "tests",
    "benches",
    "docs",
    "README.md",
    "ARCHITECTURE.md",
    "Cargo.toml",
    "tuning",
];
/// The pages whose sections are numbered.
const PAGES: [&str; 2] = ["docs/compat/timer-service.md", "docs/compat/timestamp-service.md"];
/// Stands before the number of a section.
const SIGN: char = '\u{a7}';
/// What leads to no page.
const VAGUE: [&str; 5] = [
    concat!("se", "eds/"),
    concat!("se", "ed 00"),
    concat!("as in the se", "eds"),
    concat!("architec", "ture section"),
    concat!("architec", "ture, section"),
];

/// The text without marks of comments, in one line: a citation may be broken over two.
fn joined(text: &str) -> String {
    let mut all = String::new();
    for line in text.lines() {
        all.push_str(line.trim_start().trim_start_matches(['/', '!', '#']).trim());
        all.push(' ');
    }
    all
}

/// The number of a section (`5`, `1.4`) at the beginning of a text; empty: there is none.
fn number(text: &str) -> &str {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let end = text.find(|c: char| !is_part(c)).unwrap_or(text.len());
    text[..end].trim_end_matches('.')
}

/// Numbers of the headings of a page.
fn sections(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with("##"));
    let numbers = headings.map(|line| number(line.trim_start_matches('#').trim_start()));
    numbers.filter(|number| !number.is_empty()).map(str::to_owned).collect()
}

/// Page and number of each `docs/compat/timer-service.md §5`; `and §6` behind it is of the same
/// page. A sign that follows no page has an empty one.
fn citations(text: &str) -> Vec<(String, String)> {
    let text = joined(text);
    let mut found: Vec<(String, String)> = Vec::new();
    let mut parts = text.split(SIGN);
    let mut before = parts.next().unwrap_or_default();
    for part in parts {
        let trimmed = before.trim_end().trim_end_matches(['`', ']']);
        let word = trimmed.rsplit([' ', '(', '`', '[']).next().unwrap_or_default();
        let goes_on = ["and", "or", "to"].contains(&word) || before == ", ";
        let page = match found.last() {
            Some((page, _)) if goes_on => page.clone(),
            _ if word.ends_with(".md") => word.to_owned(),
            _ => String::new(),
        };
        let cited = number(part);
        found.push((page, cited.to_owned()));
        before = &part[cited.len()..];
    }
    found
}

/// Citations of a text that lead nowhere.
fn dead_citations(name: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (page, section) in citations(text) {
        let is_there = PAGES.contains(&&page[..]) && sections(&read(&page)).contains(&section);
        if !is_there {
            findings.push(format!("{name}: no section `{page} {SIGN}{section}`"));
        }
    }
    let text = joined(text);
    for rest in text.split("docs/compat/").skip(1) {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"-.".contains(c));
        let page =
            format!("docs/compat/{}", rest[..end.unwrap_or(rest.len())].trim_end_matches('.'));
        if !exists(&page) {
            findings.push(format!("{name}: no page {page}"));
        }
    }
    findings
}

/// Words that mean the contract and name no page of it.
fn vague_citations(name: &str, text: &str) -> Vec<String> {
    let text = joined(text).to_lowercase().replace("docs/compat", "");
    let mut findings: Vec<String> = VAGUE
        .iter()
        .filter(|words| text.contains(**words))
        .map(|words| format!("{name}: `{words}` names no page"))
        .collect();
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_/".contains(c);
    if text.split(|c| !is_word(c)).any(|word| word == concat!("com", "pat")) {
        findings.push(format!("{name}: cites the contract without its page"));
    }
    findings
}

/// Sections that a numbered page cites of itself (`section 5`) and does not have.
fn dead_sections(name: &str, page: &str) -> Vec<String> {
    let (known, text) = (sections(page), joined(page));
    let cited = text.split("section ").skip(1).map(number).filter(|cited| !cited.is_empty());
    cited
        .filter(|cited| !known.contains(*cited))
        .map(|cited| format!("{name}: no section {cited}"))
        .collect()
}

/// Tests that a page names: all names in a last column "shown by", and long ones elsewhere.
fn tests_named(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_shown_by = false;
    for line in page.lines() {
        if !line.starts_with('|') {
            is_shown_by = false;
        } else if line.ends_with("| shown by |") {
            is_shown_by = true;
        }
        let last = line.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        let part = if is_shown_by { last } else { line };
        for word in part.split('`').skip(1).step_by(2) {
            let is_name =
                word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            if is_name && (is_shown_by || word.matches('_').count() > 3) {
                found.insert(word.to_owned());
            }
        }
    }
    found
}

#[test]
fn every_citation_of_the_contract_leads_to_a_section() {
    let (mut count, mut findings) = (0, Vec::new());
    for name in CITING.iter().flat_map(|place| files_below(place)) {
        if ![".rs", ".md", ".toml", ".py"].iter().any(|end| name.ends_with(end)) {
            continue;
        }
        let text = read(&name);
        count += citations(&text).len();
        findings.extend(dead_citations(&name, &text));
        findings.extend(vague_citations(&name, &text));
    }
    expect_none(&findings);
    assert!(count > 50, "{count} citations are found");
}

#[test]
fn a_wrong_citation_is_found() {
    let timers = PAGES[0];
    let sign = SIGN;
    let dead = |text: &str| dead_citations("a", text).len();
    assert_eq!(dead(&format!("({timers} {sign}5)")), 0);
    assert_eq!(dead(&format!("//! ({timers}\n//! {sign}1.4): as told")), 0);
    assert_eq!(dead(&format!("[{timers} {sign}3](x) and {sign}4")), 0);
    assert_eq!(dead(&format!("({timers} {sign}99)")), 1);
    assert_eq!(dead(&format!("({timers} {sign}4 and {sign}99)")), 1);
    assert_eq!(dead(&format!("(docs/compat/{}.md {sign}5)", "gone")), 2);
    assert_eq!(dead(&format!("({sign}5)")), 1);
    let vague = |text: &str| vague_citations("a", text).len();
    assert_eq!(vague(concat!("as told (com", "pat section 5)")), 1);
    assert_eq!(vague(concat!("(com", "pat,\n/// section 5)")), 1);
    assert_eq!(vague(concat!("as se", "eds/002 has it")), 1);
    assert_eq!(vague(concat!("(Architec", "ture\n//! section 4)")), 1);
    assert_eq!(vague("compatible; docs/compat/; all seeds pass; RFC 9110 section 7.8"), 0);
}

#[test]
fn the_contract_keeps_its_own_numbers() {
    for name in PAGES {
        let page = read(name);
        let chapters: Vec<&str> = page.lines().filter(|line| line.starts_with("## ")).collect();
        for (place, heading) in chapters.iter().enumerate() {
            assert!(heading.starts_with(&format!("## {}. ", place + 1)), "{name}: {heading}");
        }
        expect_none(&dead_sections(name, &page));
    }
    assert_eq!(
        dead_sections("a", "## 1. A\n### 1.2 B\nsection 1, section 1.2; section 2.").len(),
        1
    );
}

#[test]
fn tests_that_the_contract_names_exist() {
    let files = ["src", "tests"].iter().flat_map(|folder| files_below(folder));
    let sources: String =
        files.filter(|name| name.ends_with(".rs")).map(|name| read(&name)).collect();
    let is_there = |name: &str| {
        sources.contains(&format!("fn {name}(")) || sources.contains(&format!("(\"{name}\","))
    };
    let pages = files_below("docs/compat");
    let names: BTreeSet<String> = pages.iter().flat_map(|page| tests_named(&read(page))).collect();
    assert!(names.len() > 60, "{names:?}");
    let findings: Vec<String> = names.into_iter().filter(|name| !is_there(name)).collect();
    expect_none(&findings);
    assert_eq!(
        tests_named("| a | shown by |\n|---|---|\n| `b` | `c_d` |\n\n`e_f` `g_h_i_j_k`").len(),
        2
    );
}
