//! Reasons of errors, as docs/api.md and the contract list them: sentences with `{}` for what is
//! filled in.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::contract::{items, members};

/// A reason is told up to this many characters.
const TOLD_MAX: usize = 200;

/// The groups of reasons, each with a status.
pub struct Reasons(BTreeMap<String, (u16, Vec<String>)>);

impl Reasons {
    /// Reads `x-reasons` of a file.
    pub fn of(value: &Value) -> Reasons {
        let group = |(name, group): (&String, &Value)| {
            let status = group["status"].as_u64().and_then(|status| u16::try_from(status).ok());
            let reasons = items(&group["reasons"]).iter();
            let reasons = reasons.map(|one| one.as_str().expect("a sentence").to_owned());
            (name.clone(), (status.expect("a status"), reasons.collect()))
        };
        Reasons(members(value).map(group).collect())
    }

    /// Every reason with its status.
    pub fn all(&self) -> BTreeSet<(u16, String)> {
        let groups = self.0.values();
        groups.flat_map(|(status, all)| all.iter().map(|one| (*status, one.clone()))).collect()
    }

    /// The names of the groups, and the status of each.
    pub fn groups(&self) -> BTreeMap<&str, u16> {
        self.0.iter().map(|(name, group)| (name.as_str(), group.0)).collect()
    }

    /// Whether a reason is one of these groups with this status; of any group without groups.
    pub fn judge(&self, groups: Option<&[Value]>, status: u16, reason: &str) -> Result<(), String> {
        let is_named = |name: &str| groups.is_none_or(|all| all.iter().any(|one| one == name));
        let known = self.0.iter().filter(|(name, group)| group.0 == status && is_named(name));
        let mut reasons = known.flat_map(|(_, group)| &group.1);
        match reasons.any(|template| is_of(template, reason)) {
            true => Ok(()),
            false => Err(format!("a reason of {status} that is not listed: {reason}")),
        }
    }
}

/// Whether a reason is this sentence, filled in.
pub fn is_of(template: &str, reason: &str) -> bool {
    let is_cut = reason.chars().count() == TOLD_MAX;
    // What stands between two braces is said in words of its own.
    let mut pieces =
        template.split('{').map(|piece| piece.split_once('}').unwrap_or(("", piece)).1);
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = reason.strip_prefix(first) else {
        return is_cut && first.starts_with(reason);
    };
    let pieces: Vec<&str> = pieces.collect();
    for (number, piece) in pieces.iter().enumerate() {
        let is_last = number + 1 == pieces.len();
        rest = match rest.find(piece) {
            _ if is_last && piece.is_empty() => return true,
            _ if is_last && rest.ends_with(piece) => return true,
            Some(at) if !is_last => &rest[at + piece.len()..],
            _ => return is_cut,
        };
    }
    rest.is_empty()
}

/// The rows of the table of reasons in docs/api.md.
pub fn listed(document: &str) -> BTreeSet<(u16, String)> {
    let (_, table) = document.split_once("The reasons, with `{}`").expect("the table of reasons");
    let (table, _) = table.split_once("\n### ").expect("what follows it");
    let mut found = BTreeSet::new();
    for row in table.lines().filter_map(|row| row.strip_prefix("| ")?.strip_suffix(" |")) {
        let Some((status, cell)) = row.split_once(" | ") else { continue };
        let Ok(status) = status.parse::<u16>() else { continue };
        if let Some(text) = cell.strip_prefix("``").and_then(|cell| cell.strip_suffix("``")) {
            found.insert((status, text.to_owned()));
            continue;
        }
        for text in cell.trim_matches('`').split("`, `") {
            found.insert((status, text.to_owned()));
        }
    }
    found
}

#[test]
fn a_reason_is_known_by_its_sentence() {
    assert!(is_of("limit: expected 1 to {}, got {}", "limit: expected 1 to 1000, got 0"));
    assert!(!is_of("limit: expected 1 to {}, got {}", "limit: expected 1 to 1000"));
    assert!(is_of("no timer with this id", "no timer with this id"));
    assert!(!is_of("no timer with this id", "no timer with this id!"));
    assert!(is_of("a{, got what came}", "a, got b") && !is_of("{}: expected", "b: expecting"));
    assert!(is_of(&format!("{}tail", "x".repeat(210)), &"x".repeat(200)));
}
