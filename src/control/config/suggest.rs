//! "Did you mean": makes the problem of an unknown name, with the nearest known name.

use toml::de::DeValue;

use super::error::{Origin, Problem};
use super::key::Key;
use super::keys::{KEYS, SECTIONS};
use super::value::quote;

/// Longest unknown name, in bytes, that is compared with the known names: edit distance costs
/// length x length.
const SUGGEST_BYTES_MAX: usize = 64;
/// Least similarity (Jaro-Winkler, 0 to 1) of a known name that is offered for an unknown name.
const SUGGEST_SIMILARITY_MIN: f64 = 0.80;

/// Makes the problem of a name at the top of the file that is no section.
pub(super) fn unknown_section(origin: Origin, name: &str, value: &DeValue<'_>) -> Problem {
    let homes: Vec<String> =
        KEYS.iter().filter(|key| key.name == name).map(Key::to_string).collect();
    let (what, remedy) = match value {
        DeValue::Table(_) | DeValue::Array(_) => {
            ("section", remedy(name, SECTIONS.iter().map(|section| section.name)))
        }
        _ if SECTIONS.iter().any(|section| section.name == name) => {
            ("value for section", format!("write [{name}] on a line of its own and keys below it"))
        }
        _ if !homes.is_empty() => {
            ("key outside any section", format!("did you mean {}?", homes.join(" or ")))
        }
        _ => ("key outside any section", remedy(name, KEYS.iter().map(|key| key.name))),
    };
    Problem::Unknown { origin, what, name: quote(name), remedy }
}

/// Makes the problem of a name in a known section that is no key of that section.
pub(super) fn unknown_key(origin: Origin, section: &str, name: &str) -> Problem {
    let homes: Vec<String> =
        KEYS.iter().filter(|key| key.name == name).map(Key::to_string).collect();
    let of_section = || KEYS.iter().filter(|key| key.section == section).map(|key| key.name);
    let remedy = if !homes.is_empty() {
        format!("did you mean {}?", homes.join(" or "))
    } else if nearest(name, of_section()).is_some() {
        remedy(name, of_section())
    } else if let Some(key) = nearest(name, KEYS.iter().map(|key| key.name))
        .and_then(|near| KEYS.iter().find(|k| k.name == near))
    {
        format!("did you mean {key}?")
    } else {
        format!("[{section}] knows {}", of_section().collect::<Vec<_>>().join(", "))
    };
    Problem::Unknown {
        origin,
        what: "key",
        name: format!("{} in [{section}]", quote(name)),
        remedy,
    }
}

/// Returns "did you mean ...?", or where every name is listed.
pub(super) fn remedy<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    match nearest(name, known) {
        Some(near) => format!("did you mean {near}?"),
        None => "tuning/reference.toml lists every one".into(),
    }
}

/// Returns the known name that is most like `name`; `None` if no name is like it, or `name` is
/// longer than [`SUGGEST_BYTES_MAX`].
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > SUGGEST_BYTES_MAX {
        return None;
    }
    let similarities = known.map(|known| (strsim::jaro_winkler(name, known), known));
    let best = similarities.max_by(|left, right| left.0.total_cmp(&right.0))?;
    (best.0 >= SUGGEST_SIMILARITY_MIN).then_some(best.1)
}
