//! The rules of the house for sources that are no Rust, and what packages say of themselves.

use kit::documents::{expect_none, files_below, read};
use kit::runner::Story;

pub const STORIES: &[Story] = &[
    ("sources_of_clients_keep_the_rules", sources_keep_the_rules),
    ("packages_of_clients_are_those_of_the_project", packages_are_those_of_the_project),
];

const FILE_LINES_MAX: usize = 800;
const LINE_CHARACTERS_MAX: usize = 100;

fn findings(name: &str, text: &str) -> Vec<String> {
    let lines = text.lines().count();
    let too_long = (lines > FILE_LINES_MAX).then(|| format!("{name}: {lines} lines"));
    let wide = text.lines().enumerate().filter_map(|(place, line)| {
        let columns = line.chars().count();
        let is_wide = columns > LINE_CHARACTERS_MAX;
        is_wide.then(|| format!("{name}:{}: {columns} columns", place + 1))
    });
    wide.chain(too_long).collect()
}

fn sources_keep_the_rules() {
    let names: Vec<String> = files_below("clients")
        .into_iter()
        .filter(|name| name.ends_with(".py") || name.ends_with(".java"))
        .collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        expect_none(&findings(&name, &read(&name)));
    }
    assert_eq!(findings("a", &"x".repeat(101)).len(), 1);
    assert_eq!(findings("a", &"x\n".repeat(801)).len(), 1);
}

fn packages_are_those_of_the_project() {
    let (version, license) = (env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_LICENSE"));
    let python = read("clients/python/pyproject.toml");
    assert!(python.contains(&format!("\nversion = \"{version}\"\n")), "{python}");
    assert!(python.contains(&format!("\nlicense = \"{license}\"\n")), "{python}");
    assert!(python.contains("\ndependencies = []\n"), "{python}");
    let java = read("clients/java/pom.xml");
    assert!(java.contains(&format!("<version>{version}</version>")), "{java}");
    assert!(java.contains(&format!("<name>{license}</name>")), "{java}");
    assert!(!java.contains("<dependency>"), "{java}");
}
