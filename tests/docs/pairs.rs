//! The table of pairs, docs/pairs.md: every feature stands in every section, every name leads to a
//! test, a simulator's fault, worlds and faults of the black-box checker or a planted bug, and the
//! number of untried pairs stays 0.

use std::collections::BTreeSet;

use super::{expect_none, files_below, quoted, read, sources_below};

/// A pair of which the test is still to be written.
const UNTRIED_MARK: &str = "**untried**";

const FEATURES: [&str; 17] = [
    "create",
    "update",
    "delete",
    "actions",
    "names",
    "keys",
    "lists",
    "counts",
    "jobs",
    "letters",
    "rules",
    "calendar",
    "policies",
    "bulk",
    "tokens",
    "backup",
    "timestamps",
];
const CONDITIONS: [&str; 18] = [
    "A disk that is full",
    "A disk that fails",
    "A disk that is slow",
    "A clock that is ahead or behind",
    "A clock that steps",
    "A node that is frozen",
    "A node that is dead",
    "All nodes killed",
    "Restarted with other cores",
    "A network that is split",
    "Nodes that join and leave",
    "An original beside",
    "Callback hosts that hang",
    "Callback hosts that are dead",
    "Callback hosts that move",
    "Memory that is short",
    "Files that are short",
    "A neighbour that floods",
];
const SIMULATORS: [&str; 4] = ["sim", "sim_disk", "sim_cluster", "sim_timestamp"];
/// Which world a fault of the black-box checker needs.
const NEEDED: [(&str, &[&str]); 3] =
    [("kill-all", &["journal"]), ("disk", &["journal", "disk"]), ("clock", &["clocks"])];

/// The sources that names lead to.
struct Tree {
    all: String,
    simulators: Vec<(&'static str, String)>,
    worlds: String,
    faults: String,
    bugs: String,
    originals: String,
}

impl Tree {
    fn read() -> Tree {
        let tests = files_below("tests").into_iter();
        let tests: String = tests
            .filter(|name| name.ends_with(".rs") && !name.starts_with("tests/docs/"))
            .map(|name| read(&name))
            .collect();
        let of = |name: &'static str| (name, sources_below(&format!("tests/{name}")));
        Tree {
            all: sources_below("src") + &tests,
            simulators: SIMULATORS.map(of).into(),
            worlds: read("tests/blackbox/worlds.rs"),
            faults: read("tests/blackbox/faults.rs"),
            bugs: read("src/base/planted_bugs.rs"),
            originals: read("tests/originals/stories.py"),
        }
    }

    /// Whether a name of a cell leads somewhere.
    fn has(&self, name: &str) -> bool {
        if let Some(rest) = name.strip_prefix("--with ") {
            return self.has_run(rest);
        }
        match name.split_once(' ') {
            Some(("originals", story)) => self.originals.contains(&format!("\ndef {story}(world)")),
            Some((simulator, parts)) => {
                let known = self.simulators.iter().find(|(name, _)| *name == simulator);
                known.is_some_and(|(_, text)| parts.split(" + ").all(|part| is_drawn(text, part)))
            }
            None if name.starts_with(|c: char| c.is_ascii_uppercase()) => {
                self.bugs.contains(&format!("\n    {name} = "))
            }
            None => is_test(&self.all, name),
        }
    }

    /// Worlds and faults of the black-box checker, each with what it needs.
    fn has_run(&self, words: &str) -> bool {
        let Some((worlds, faults)) = words.split_once(" --faults ") else { return false };
        let worlds: Vec<&str> = worlds.split(',').filter(|world| *world != "none").collect();
        let is_world = |world: &&str| self.worlds.contains(&format!("(\"{world}\", World::"));
        let is_fault = |fault: &str| {
            let needed = NEEDED.iter().filter(|(name, _)| *name == fault);
            self.faults.contains(&format!("\"{fault}\" => Kind::"))
                && needed.flat_map(|(_, needed)| needed.iter()).all(|need| worlds.contains(need))
        };
        worlds.iter().all(is_world) && faults.split(',').all(is_fault)
    }
}

/// Whether a simulator has a fault, a rarity, a request or a function of this name.
fn is_drawn(text: &str, name: &str) -> bool {
    let forms = [" {", "(", ",", " = "].map(|end| format!("\n    {name}{end}"));
    forms.iter().any(|form| text.contains(form)) || text.contains(&format!("fn {name}("))
}

/// Whether a function behind `#[test]` or a story has this name.
pub fn is_test(text: &str, name: &str) -> bool {
    let function = format!("fn {name}()");
    let mut starts = text.match_indices(&function).map(|(start, _)| &text[..start]);
    let is_marked =
        |before: &str| before.rsplit("\n\n").next().is_some_and(|it| it.contains("#[test]"));
    starts.any(is_marked)
        || text.contains(&format!("\"{name}\",\n"))
        || text.contains(&format!("(\"{name}\","))
}

/// A condition, and for each row its features and its cell.
type Section<'a> = (&'a str, Vec<(Vec<&'a str>, &'a str)>);

/// The rows of each section: features, and what tries them.
fn sections(page: &str) -> Vec<Section<'_>> {
    page.split("\n## ")
        .skip(1)
        .map(|part| {
            let title = part.lines().next().unwrap_or_default();
            let rows = part.lines().filter(|line| line.starts_with("| ")).skip(1);
            let cells = rows.filter_map(|row| {
                let (features, cell) = row.strip_prefix("| ")?.split_once(" | ")?;
                Some((features.split(", ").collect(), cell.trim_end_matches(" |")))
            });
            (title, cells.collect())
        })
        .collect()
}

/// What is wrong with the page.
fn findings(page: &str, tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (title, rows) in sections(page) {
        let mut missing: BTreeSet<&str> = FEATURES.into();
        for (features, cell) in rows {
            for feature in features {
                if !missing.remove(feature) {
                    findings.push(format!("{title}: {feature} is unknown or comes twice"));
                }
            }
            let names = quoted(cell);
            if names.is_empty() && cell != UNTRIED_MARK && cell.split(' ').count() < 4 {
                findings.push(format!("{title}: nothing is said: {cell}"));
            }
            let dead = names.into_iter().filter(|name| !tree.has(name));
            findings.extend(dead.map(|name| format!("{title}: nothing is called {name}")));
        }
        findings.extend(missing.iter().map(|feature| format!("{title}: {feature} is missing")));
    }
    findings
}

fn untried(page: &str) -> usize {
    let rows = sections(page).into_iter().flat_map(|(_, rows)| rows);
    rows.filter(|(_, cell)| cell.contains(UNTRIED_MARK)).map(|(features, _)| features.len()).sum()
}

#[test]
fn every_pair_is_tried_or_says_why_not() {
    let page = read("docs/pairs.md");
    expect_none(&findings(&page, &Tree::read()));
    let titles: Vec<&str> = sections(&page).into_iter().map(|(title, _)| title).collect();
    assert_eq!(titles, CONDITIONS);
}

#[test]
fn no_pair_is_untried() {
    let page = read("docs/pairs.md");
    assert_eq!(untried(&page), 0, "a pair that is untried is a test to be written");
    let told = format!("{} pairs, none of them untried", CONDITIONS.len() * FEATURES.len());
    assert!(page.contains(&told), "docs/pairs.md does not say: {told}");
}

#[test]
fn a_wrong_pair_is_found() {
    let tree = Tree::read();
    let all = FEATURES.join(", ");
    let of = |features: &str, cell: &str| {
        let page =
            format!("# P\n\n## C\n\n| feature | tried by |\n|---|---|\n| {features} | {cell} |\n");
        (findings(&page, &tree).len(), untried(&page))
    };
    assert_eq!(of(&all, "**untried**"), (0, 17));
    assert_eq!(of(&all, "a list holds nothing"), (0, 0));
    assert_eq!(of(&all, ""), (1, 0));
    assert_eq!(of(&all.replace("create", "creates"), "a list holds nothing"), (2, 0));
    let found = |name: &str| tree.has(name);
    assert!(found("--with cron,clocks --faults clock") && found("sim_cluster Claims + FullDisk"));
    assert!(found("one_of_three_is_killed") && found("SkipOneReplica"));
    for wrong in [
        "--with cron --faults clock",
        "--with crons,clocks --faults clock",
        "--with none --faults flood",
        "sim_cluster FullDisks",
        "sim_clusters FullDisk",
        "SkipNoReplica",
        "one_of_four_is_killed",
        "files_below",
        "originals thaw",
    ] {
        assert!(!found(wrong), "{wrong}");
    }
}
