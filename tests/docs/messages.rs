//! docs/troubleshooting.md against the program: every warning and error of the log stands there,
//! and the page has no message that nobody says.

use super::{expect_none, files_below, read};

/// What stands for whatever is filled in.
const GAP: char = '\u{2026}';
/// Messages that are put together elsewhere: what is fixed of them is shorter than this.
const FIXED_MIN: usize = 6;
/// What stands before a message: macros of the log, and the texts of its alarms.
const MARKS: [&str; 3] = ["warn!(", "error!(", "CountAlarm {"];

/// The sources of the program without their tests, with string continuations joined.
fn program() -> Vec<(String, String)> {
    let files = files_below("src").into_iter();
    let files = files.filter(|name| name.ends_with(".rs") && !name.ends_with("_tests.rs"));
    files
        .map(|name| {
            let text = read(&name);
            let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let mut parts = text.split("\\\n");
            let mut joined = parts.next().unwrap_or_default().to_owned();
            parts.for_each(|part| joined.push_str(part.trim_start()));
            (name, joined)
        })
        .collect()
}

/// The first literal of each text behind a mark, such as `warn!(`; the text ends with the statement.
fn literals_behind(source: &str, mark: &str) -> Vec<String> {
    let literal = |rest: &str| {
        let end = rest.find(";\n").unwrap_or(rest.len());
        let begin = rest[..end].find('"')? + 1;
        let bytes = rest.as_bytes();
        let close = (begin..rest.len()).find(|&at| bytes[at] == b'"' && bytes[at - 1] != b'\\')?;
        Some(rest[begin..close].replace("\\\"", "\""))
    };
    let starts = source.match_indices(mark).map(|(at, _)| &source[at + mark.len()..]);
    starts.filter_map(literal).collect()
}

/// A message with a gap for each place that is filled in.
fn gapped(message: &str) -> String {
    let (mut text, mut depth) = (String::new(), 0);
    for c in message.chars() {
        match c {
            '{' => {
                depth += 1;
                text.push(GAP);
            }
            '}' => depth -= 1,
            c if depth == 0 => text.push(c),
            _ => {}
        }
    }
    text
}

/// Whether a message of the page, whose last gap may stand for a whole end, is this message.
fn is_told(row: &str, message: &str) -> bool {
    row == message || row.strip_suffix(GAP).is_some_and(|begin| message.starts_with(begin))
}

/// The messages of the page: what stands in backticks in the first cells of tables of messages.
fn rows(page: &str) -> Vec<String> {
    let (mut found, mut is_of_messages) = (Vec::new(), false);
    for line in page.lines() {
        let Some(row) = line.strip_prefix("| ") else {
            is_of_messages &= line.starts_with('|');
            continue;
        };
        let cell = row.split(" | ").next().unwrap_or_default();
        if ["message", "answer"].contains(&cell) {
            is_of_messages = true;
        } else if is_of_messages && let Some((_, rest)) = cell.split_once('`') {
            found.extend(rest.rsplit_once('`').map(|(message, _)| message.to_owned()));
        }
    }
    found
}

/// Messages of warnings and errors that no row tells.
fn untold(rows: &[String], source: &str) -> Vec<String> {
    let all = MARKS.iter().flat_map(|mark| literals_behind(source, mark));
    let all = all.map(|message| gapped(&message));
    let has_words = |text: &String| text.replace(GAP, "").trim().len() >= FIXED_MIN;
    let is_untold = |text: &String| !rows.iter().any(|row| is_told(row, text));
    all.filter(|text| has_words(text) && is_untold(text)).collect()
}

/// Pieces of rows that no source says.
fn unsaid(rows: &[String], sources: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for row in rows {
        let pieces = row.split(GAP).filter(|piece| piece.trim().len() >= FIXED_MIN);
        let unsaid = pieces.filter(|piece| !sources.contains(piece));
        findings.extend(unsaid.map(|piece| format!("no source says `{piece}`")));
    }
    findings
}

#[test]
fn every_warning_and_error_of_the_log_is_in_troubleshooting() {
    let rows = rows(&read("docs/troubleshooting.md"));
    let (mut count, mut findings) = (0, Vec::new());
    for (name, source) in program() {
        count += MARKS.iter().map(|mark| literals_behind(&source, mark).len()).sum::<usize>();
        findings.extend(untold(&rows, &source).iter().map(|text| format!("{name}: {text}")));
    }
    expect_none(&findings);
    assert!(count > 60, "{count} messages are found");
    let source = "warn!(a, \"{} is \\\"gone\\\": {error}; it stays\", 1);\n";
    assert_eq!(untold(&["\u{2026} is \"gone\": \u{2026}".into()], source), [""; 0]);
    assert_eq!(untold(&["\u{2026} is \"here\": \u{2026}".into()], source).len(), 1);
}

#[test]
fn troubleshooting_has_no_message_that_nobody_says() {
    let rows = rows(&read("docs/troubleshooting.md"));
    assert!(rows.len() > 90, "{rows:?}");
    let program = program().into_iter().map(|(_, text)| text.replace("\\\"", "\""));
    // Reasons of answers are put together in several places; another test holds that page.
    let sources = program.chain([read("docs/api.md")]).collect::<String>();
    expect_none(&unsaid(&rows, &sources));
    assert_eq!(unsaid(&["nobody says \u{2026} this".into()], &sources).len(), 1);
}
