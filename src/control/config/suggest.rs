//! "Did you mean": makes the problem of an unknown name, with the nearest known name.

use toml::de::DeValue;

use super::error::{Origin, Problem};
use super::key::Key;
use super::keys::{KEYS, SECTIONS};
use super::value::quote;

/// Longest unknown name, in bytes, that is compared with the known names: edit distance costs
/// length x length.
const SUGGEST_BYTES_MAX: usize = 64;
/// One letter in so many may be wrong, missing, too much, or in its neighbour's place.
const LETTERS_PER_ERROR: usize = 3;
/// A beginning of so many bytes tells which name is meant.
const BEGINNING_BYTES_MIN: usize = 3;

/// Makes the problem of a name at the top of the file that is no section.
pub(super) fn unknown_section(origin: Origin, name: &str, value: &DeValue<'_>) -> Problem {
    let homes: Vec<String> =
        KEYS.iter().filter(|key| key.name == name).map(Key::to_string).collect();
    let (what, remedy) = match value {
        DeValue::Table(_) | DeValue::Array(_) => {
            let near = nearest(name, SECTIONS.iter().map(|section| section.name));
            let known = || format!("the sections are {}", sections());
            ("section", near.map_or_else(known, |near| format!("did you mean {near}?")))
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

/// Says what to do about a variable that is no key. `rest` stands behind `CHRONOS_`.
pub(super) fn unknown_variable(rest: &str) -> String {
    let all: Vec<String> = KEYS.iter().map(Key::variable).collect();
    let rests = all.iter().filter_map(|variable| variable.strip_prefix("CHRONOS_"));
    if let Some(near) = nearest(rest, rests) {
        return format!("did you mean CHRONOS_{near}?");
    }
    let lower = rest.to_ascii_lowercase();
    let section = |name: &str| lower.strip_prefix(name).is_some_and(|key| key.starts_with('_'));
    let of_section: Vec<String> =
        KEYS.iter().filter(|key| section(key.section)).map(Key::variable).collect();
    match of_section.is_empty() {
        true => format!("a variable is CHRONOS_<SECTION>_<KEY>, the sections are {}", sections()),
        false => format!("there are {}", of_section.join(", ")),
    }
}

fn sections() -> String {
    SECTIONS.iter().map(|section| section.name).collect::<Vec<_>>().join(", ")
}

/// Returns the known name that `name` is most likely meant to be; `None` if none is near, or `name`
/// is longer than [`SUGGEST_BYTES_MAX`].
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > SUGGEST_BYTES_MAX {
        return None;
    }
    let near = known.filter_map(|known| Some((distance(name, known)?, known)));
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// How far a name is from a known one; `None`: too far for a typing error. A beginning of a name is
/// near it, and so is what has one letter in [`LETTERS_PER_ERROR`] wrong. Short names with another
/// first letter are other words: `stop` is not meant to be `top`.
fn distance(name: &str, known: &str) -> Option<usize> {
    let (name, known) = (name.to_lowercase(), known.to_lowercase());
    let longer = name.chars().count().max(known.chars().count());
    let errors = strsim::osa_distance(&name, &known);
    let begins_alike = name.chars().next() == known.chars().next();
    let is_beginning = name.len() >= BEGINNING_BYTES_MIN && known.starts_with(&name);
    let is_typing_error =
        errors * LETTERS_PER_ERROR <= longer && (begins_alike || longer >= LETTERS_PER_ERROR * 2);
    (is_beginning || is_typing_error).then_some(errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_meant() {
        let near = |name: &str, known: &'static str| nearest(name, [known].into_iter()).is_some();
        for (name, known) in [
            ("timers", "timer"),
            ("enabeld", "enabled"),
            ("timer_max", "timers_max"),
            ("timers_maxx", "timers_max"),
            ("nabled", "enabled"),
            ("conf", "config"),
            ("LIMITS_TIMER_MAX", "limits_timers_max"),
        ] {
            assert!(near(name, known), "{name} is {known}");
        }
        for (name, known) in [
            ("timer", "timestamp"),
            ("list", "log"),
            ("stop", "top"),
            ("foo", "log"),
            ("a", "admin"),
            ("serve", "secret"),
            ("", "pin"),
        ] {
            assert!(!near(name, known), "{name} is not {known}");
        }
        assert_eq!(nearest("timer", ["timers", "timer"].into_iter()), Some("timer"));
    }

    #[test]
    fn a_variable_is_answered_with_what_there_is() {
        assert_eq!(unknown_variable("LIMITS_TIMER_MAX"), "did you mean CHRONOS_LIMITS_TIMERS_MAX?");
        let told = unknown_variable("FOO");
        assert!(
            told.contains("the sections are node,") && !told.contains("did you mean"),
            "{told}"
        );
        let told = unknown_variable("LOG_FOO");
        assert!(told.contains("there are CHRONOS_LOG_LEVEL, CHRONOS_LOG_FORMAT"), "{told}");
    }
}
