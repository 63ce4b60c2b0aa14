//! Edits lists in the texts of the operator's files, in TOML or in lines of `key = value`.
//! Comments, other keys and their order stay.

// May panic: expectations 2, indices 1, cuts 1.
// Why it does not: configured 4.

use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value};

/// Edits a section of a TOML file. One that is missing is made.
pub(super) fn edit_section(
    text: &str,
    section: &str,
    edit: impl FnOnce(&mut dyn TableLike),
) -> Result<String, String> {
    let mut document: DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| error.message().replace('\n', ", "))?;
    if !document.contains_key(section) {
        // Comments at the end of the file stay in their place, which is before the new section.
        let end = document.trailing().as_str().unwrap_or_default();
        let mut table = Table::new();
        table.decor_mut().set_prefix(format!("{end}{}", if text.is_empty() { "" } else { "\n" }));
        document.set_trailing("");
        document.insert(section, Item::Table(table));
    }
    let table = document.get_mut(section).expect("there, or inserted just now");
    edit(table.as_table_like_mut().ok_or_else(|| format!("[{section}] is no table"))?);
    Ok(document.to_string())
}

/// Makes a key of a section hold the `wanted` texts.
pub(super) fn set_list(section: &mut dyn TableLike, key: &str, wanted: &[String]) {
    match section.get_mut(key).and_then(Item::as_array_mut) {
        Some(array) => edit_array(array, wanted),
        None if wanted.is_empty() => {
            section.remove(key);
        }
        None => {
            section.insert(key, Item::Value(wanted.iter().collect::<Array>().into()));
        }
    }
}

/// Makes an array hold the `wanted` names. An element that stays keeps the space and the comments
/// around it: the comment on its line, and the lines above it.
fn edit_array(array: &mut Array, wanted: &[String]) {
    let ends_open = array.trailing_comma();
    let after = array.trailing().as_str().unwrap_or_default().to_owned();
    let mut spaces: Vec<String> = array.iter().map(space_before).collect();
    spaces.push(after);
    // The parser gives what follows an element on its line to the next element, as its prefix.
    let (mut tails, heads): (Vec<_>, Vec<_>) = spaces.iter().map(|space| cut(space)).unzip();
    let opener = tails.remove(0);
    let held = array.iter().map(|value| value.as_str().map(str::to_owned));
    let held: Vec<_> = held.zip(heads.iter().copied().zip(tails)).collect();
    let indent = held.last().map(|(_, (head, _))| head.rfind('\n').map_or(" ", |at| &head[at..]));
    let mut edited = Array::new();
    let mut former_tail = opener;
    for name in wanted {
        let known = held.iter().find(|(held, _)| held.as_deref() == Some(name));
        let unknown =
            if edited.is_empty() && indent == Some(" ") { "" } else { indent.unwrap_or("") };
        let (head, tail) = known.map_or((unknown, ""), |(_, around)| *around);
        let mut value = Value::from(name);
        value.decor_mut().set_prefix(format!("{former_tail}{head}"));
        edited.push_formatted(value);
        former_tail = tail;
    }
    let closer = heads.last().copied().unwrap_or_default();
    edited.set_trailing(format!("{former_tail}{closer}"));
    edited.set_trailing_comma(ends_open && !wanted.is_empty());
    *edited.decor_mut() = array.decor().clone();
    *array = edited;
}

fn space_before(value: &Value) -> String {
    let prefix = value.decor().prefix().and_then(|prefix| prefix.as_str());
    prefix.unwrap_or_default().to_owned()
}

/// Cuts the space before an element into what still stands on the line of the element before, and
/// the rest.
fn cut(space: &str) -> (&str, &str) {
    space.find('\n').map_or(("", space), |at| space.split_at(at))
}

/// Edits a file of lines that has a section. One that is missing is made.
pub(super) fn edit_ini_section(
    text: &str,
    section: &str,
    edit: impl FnOnce(&mut Vec<String>),
) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if !lines.iter().any(|line| section_of(line) == Some(section)) {
        lines.push(format!("[{section}]"));
    }
    edit(&mut lines);
    lines.join("\n") + "\n"
}

/// A list in a file of lines: a key that may stand on several.
pub(super) struct IniList<'a> {
    pub section: &'a str,
    pub key: &'a str,
    /// The keys behind whose lines the first line of the list is put.
    pub behind: &'a [&'a str],
}

/// Makes the lines of a list name the `wanted` values. Lines that stay keep their place and
/// comments, the others are removed. New lines follow the last line of the key, or of the keys
/// before it.
pub(super) fn edit_ini_list(lines: &mut Vec<String>, list: &IniList<'_>, wanted: &[String]) {
    let IniList { section, key, behind } = list;
    let held = |lines: &[String]| -> Vec<(usize, String)> {
        let listed = keyed_lines(lines, section).filter(|(_, found, _)| found == key);
        listed.map(|(at, _, value)| (at, value.to_owned())).collect()
    };
    let mut left = wanted.to_vec();
    let mut gone = Vec::new();
    for (at, value) in held(lines) {
        match left.iter().position(|name| *name == value) {
            Some(place) => {
                left.remove(place);
            }
            None => gone.push(at),
        }
    }
    let stays = held(lines).into_iter().filter(|(at, _)| !gone.contains(at)).map(|(_, name)| name);
    if !stays.chain(left.iter().cloned()).eq(wanted.iter().cloned()) {
        gone = held(lines).into_iter().map(|(at, _)| at).collect();
        left = wanted.to_vec();
    }
    let at = |lines: &[String]| {
        let known = |found: &str| found == *key || behind.contains(&found);
        let keyed = keyed_lines(lines, section);
        let last = keyed.filter(|(_, found, _)| known(found)).map(|(at, ..)| at).max();
        let head = lines.iter().position(|line| section_of(line) == Some(section));
        1 + last.or(head).expect("the section was found or made")
    };
    let place = at(lines);
    for name in left.into_iter().rev() {
        lines.insert(place, format!("{key} = {name}"));
    }
    // Lines that go stand before the insertion, so the insertion has not changed their numbers.
    for at in gone.into_iter().rev() {
        lines.remove(at);
    }
}

/// Returns the lines of a section that set a key: index, key, value.
pub(super) fn keyed_lines<'l>(
    lines: &'l [String],
    wanted: &str,
) -> impl Iterator<Item = (usize, &'l str, &'l str)> {
    let mut is_inside = false;
    lines.iter().enumerate().filter_map(move |(at, line)| {
        if let Some(section) = section_of(line) {
            is_inside = section == wanted;
            return None;
        }
        let (key, value) = line.split('#').next().unwrap_or_default().split_once('=')?;
        is_inside.then(|| (at, key.trim(), value.trim()))
    })
}

fn section_of(line: &str) -> Option<&str> {
    line.trim().strip_prefix('[')?.split_once(']').map(|(name, _)| name.trim())
}
