//! Reasons that stand where they are needed. A file that has places of a dangerous kind counts them
//! in a comment behind its head, by the groups of a page that gives the reason of each group:
//!
//! ```text
//! // Why it does not: found 2, fixed 1.
//! ```

use std::collections::BTreeMap;

use super::Source;

/// Numbers by name.
pub type Counts = BTreeMap<String, usize>;

/// What the comment line of a source that begins with `lead` counts; empty if there is none.
pub fn counts_of(source: &Source, lead: &str) -> Counts {
    let is_head = |line: &&str| line.is_empty() || line.starts_with("//");
    let head = source.text.lines().take_while(is_head);
    let found = head.filter_map(|line| line.strip_prefix("// ")?.strip_prefix(lead));
    let counts = found.flat_map(|found| found.trim_end_matches('.').split(", "));
    let counts = counts.filter_map(|count| count.trim().rsplit_once(' '));
    counts.map(|(name, count)| (name.to_owned(), count.parse().unwrap_or(0))).collect()
}

/// The groups that a page gives reasons for: the first cells of its table.
pub fn groups_of(page: &str) -> Vec<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" |"));
    rows.map(|(group, _)| group).filter(|group| *group != "group").collect()
}

/// Groups of sources that the page does not have, and groups of the page that no source has.
pub fn strange_groups(page: &str, text: &str, used: &[Counts]) -> Vec<String> {
    let groups = groups_of(text);
    let used: Vec<&String> = used.iter().flat_map(Counts::keys).collect();
    let unknown = used.iter().filter(|group| !groups.contains(&group.as_str()));
    let unknown = unknown.map(|group| format!("{page}: no reason is given for the group {group}"));
    let unused = groups.iter().filter(|group| used.iter().all(|used| used != *group));
    unknown.chain(unused.map(|group| format!("{page}: no file has the group {group}"))).collect()
}
