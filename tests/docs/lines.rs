//! One rule for prose in Markdown: lines of at most 120 columns. Tables and blocks of code are as
//! long as they must be.

use super::{documents, expect_none, read};

const COLUMNS_MAX: usize = 120;
/// Spaces that make a block of code, beyond the text that it belongs to.
const CODE_INDENT: usize = 4;

/// Spaces and mark at the beginning of an item of a list, and how far its text is indented.
fn item_indent(line: &str) -> Option<usize> {
    let text = line.trim_start();
    let mark = text.split(' ').next().unwrap_or_default();
    let is_number =
        mark.len() > 1 && mark.trim_end_matches('.').bytes().all(|b| b.is_ascii_digit());
    let is_mark = mark == "-" || mark == "*" || (is_number && mark.ends_with('.'));
    let rest = &text[mark.len()..];
    is_mark.then(|| line.len() - rest.trim_start().len())
}

/// Lines of prose that are too long, by their numbers.
fn long_lines(name: &str, document: &str) -> Vec<String> {
    let (mut findings, mut text_indent, mut is_fenced) = (Vec::new(), 0, false);
    for (number, line) in document.lines().enumerate() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if text.starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        if is_fenced || text.is_empty() || text.starts_with('|') {
            continue;
        }
        if indent >= text_indent + CODE_INDENT {
            continue;
        }
        // A line further left ends an item; one that begins with a mark begins another.
        text_indent = item_indent(line).unwrap_or(text_indent.min(indent));
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            findings.push(format!("{name}:{}: {columns} columns", number + 1));
        }
    }
    findings
}

#[test]
fn lines_of_prose_fit() {
    for name in documents() {
        expect_none(&long_lines(&name, &read(&name)));
    }
}

#[test]
fn a_long_line_is_found_and_no_table_and_no_code() {
    let long = "x ".repeat(70);
    let found = |text: String| long_lines("a", &text).len();
    assert_eq!(found(format!("short\n{long}\n")), 1);
    assert_eq!(found(format!("- item\n  {long}\n")), 1);
    assert_eq!(found(format!("  - item\n    {long}\n")), 1);
    assert_eq!(found(format!("12. {long}\n")), 1);
    assert_eq!(found(format!("| {long} |\n    {long}\n```\n{long}\n```\n")), 0);
    assert_eq!(found(format!("1. item\n\n       {long}\n")), 0);
    assert_eq!(found(format!("- item\n\nprose\n\n    {long}\n")), 0);
}
