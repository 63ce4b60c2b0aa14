//! Words of servers as they are shown. Names, URIs and reasons are somebody else's text: on a
//! terminal their control characters would move the cursor, change colours or hide what stands
//! before them. So these characters are written as escapes.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::Value;

/// Whether a character acts on a terminal, or hides or turns round the text beside it.
fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns a text with each hostile character as `\u{1b}`, on one line.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_hostile(c) {
            true => cleaned.extend(c.escape_unicode()),
            false => cleaned.push(c),
        }
    }
    Cow::Owned(cleaned)
}

/// Returns a document as JSON with a line end, indented. Hostile characters stand as `\u001b`: so
/// it is the same document, and safe to look at.
pub(super) fn json_text(document: &Value) -> String {
    let mut text = String::new();
    for c in format!("{document:#}\n").chars() {
        if c == '\n' || !is_hostile(c) {
            text.push(c);
            continue;
        }
        let mut units = [0; 2];
        for unit in c.encode_utf16(&mut units) {
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
    text
}

/// Returns a document as lines `member.of.member  value`, sorted by member.
pub(super) fn lines_of(document: &Value) -> String {
    table(&rows_of(document))
}

/// The same with each member as a terminal shows it, if this is one.
pub(super) fn lines_on(is_terminal: bool, document: &Value) -> String {
    let mut rows = rows_of(document);
    for row in &mut rows {
        row[0] = cut(std::mem::take(&mut row[0]), is_terminal);
    }
    table(&rows)
}

fn rows_of(document: &Value) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    flatten("", document, &mut rows);
    rows
}

fn flatten(path: &str, value: &Value, rows: &mut Vec<Vec<String>>) {
    let below = |name: &str| match path {
        "" => clean(name).into_owned(),
        _ => format!("{path}.{}", clean(name)),
    };
    match value {
        Value::Object(members) if !members.is_empty() => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            members.iter().for_each(|(name, value)| flatten(&below(name), value, rows));
        }
        Value::Array(values) if !values.is_empty() => {
            for (place, value) in values.iter().enumerate() {
                flatten(&below(&place.to_string()), value, rows);
            }
        }
        Value::Object(_) | Value::Array(_) => rows.push(vec![path.to_owned(), "none".into()]),
        other => rows.push(vec![path.to_owned(), word_of(other)]),
    }
}

/// Returns a value as a cell of a table.
pub(super) fn word_of(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => clean(text).into_owned(),
        other => clean(&other.to_string()).into_owned(),
    }
}

/// Most characters of a name in a table on a terminal.
const CELL_CHARS_MAX: usize = 40;

/// Returns a cell as a terminal shows it: a long one is cut, as it would make all rows as wide as
/// itself. A program that reads the table gets the whole cell.
pub(super) fn cut(cell: String, is_terminal: bool) -> String {
    if !is_terminal || cell.chars().count() <= CELL_CHARS_MAX {
        return cell;
    }
    cell.chars().take(CELL_CHARS_MAX - 1).chain(['…']).collect()
}

/// Puts rows of cells under each other. The last cell of a row is not padded.
pub(super) fn table<R: AsRef<[String]>>(rows: &[R]) -> String {
    let columns = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.as_ref().get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.as_ref().iter().zip(&widths);
        let padded = cells.map(|(cell, width)| format!("{cell:<width$}"));
        text += padded.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hostile_characters_are_escaped_and_others_stay() {
        assert_eq!(clean("Grüße, 世界 ~\\"), "Grüße, 世界 ~\\");
        let cleaned = clean("\u{1b}[2J\r\n\u{202e}\u{9b}\u{7f}\u{feff}");
        assert_eq!(cleaned, "\\u{1b}[2J\\u{d}\\u{a}\\u{202e}\\u{9b}\\u{7f}\\u{feff}");
    }

    #[test]
    fn long_cells_are_cut_on_a_terminal_alone() {
        let (fits, long) = ("ü".repeat(40), "ü".repeat(41));
        assert_eq!(cut(fits.clone(), true), fits);
        assert_eq!(cut(long.clone(), false), long);
        assert_eq!(cut(long.clone(), true), format!("{}…", "ü".repeat(39)));
        let document = json!({ "by-tag": { long: 1 }, "timers": 1 });
        let widest = |text: String| text.lines().map(|line| line.chars().count()).max();
        assert_eq!(widest(lines_on(true, &document)), Some(40 + 2 + 1), "no row is padded further");
        assert_eq!(lines_on(false, &document), lines_of(&document));
    }

    #[test]
    fn json_stays_the_same_document() {
        let document = json!({ "a\u{9b}": ["\u{202e}\u{1b}\u{7f}\u{e0041}", "ü\n", 7] });
        let text = json_text(&document);
        assert!(text.chars().all(|c| c == '\n' || !is_hostile(c)), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), document);
    }

    #[test]
    fn documents_are_lines_and_columns_stand_under_each_other() {
        let document = json!({ "b": { "c": "x\u{1b}", "d": [] }, "a": [1, null] });
        assert_eq!(lines_of(&document), "a.0  1\na.1  -\nb.c  x\\u{1b}\nb.d  none\n");
    }
}
