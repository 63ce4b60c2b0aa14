//! The client of Java.

use std::path::Path;
use std::sync::LazyLock;

use kit::documents::files_below;
use kit::runner::Story;
use tempfile::TempDir;

use super::nodes::{Doors, Nodes, SECRET};
use super::programs::{need, program, run};
use super::readme::example;

pub const STORIES: &[Story] = &[
    ("a_node_of_a_cluster_is_killed_under_java", a_node_is_killed),
    ("java_asks_a_node_for_everything", a_node_is_asked_for_everything),
    ("java_speaks_tls", tls),
    ("java_s_own_tests", own_tests),
    ("java_s_readme_runs", readme),
];

const FOLDER: &str = "clients/java";
/// A small machine that starts fast.
const SMALL: [&str; 3] = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// The classes of client and tests, compiled once for all stories.
static CLASSES: LazyLock<TempDir> = LazyLock::new(|| {
    let classes = tempfile::Builder::new().prefix("chronos-classes-").tempdir().expect("room");
    compile(classes.path(), &["src", "tests"]);
    classes
});

fn compile(into: &Path, folders: &[&str]) {
    let sources = folders.iter().flat_map(|folder| files_below(&format!("{FOLDER}/{folder}")));
    let sources: Vec<String> = sources.filter(|name| name.ends_with(".java")).collect();
    assert!(sources.len() > 20, "{sources:?}");
    let mut javac = program("javac", ".", None);
    javac.args(["-encoding", "UTF-8", "--release", "17", "-Xlint:all", "-Werror", "-d"]);
    javac.arg(into).args(sources);
    run(javac);
}

fn need_java() {
    need("javac", "-version", "apt-get install -y default-jdk-headless");
    need("java", "-version", "apt-get install -y default-jdk-headless");
}

/// Runs the tests of a class. Returns how many ran.
#[track_caller]
fn tests(class: &str, nodes: Option<&Nodes>) -> usize {
    let mut java = program("java", FOLDER, nodes);
    java.args(SMALL).arg("-cp").arg(CLASSES.path()).arg(format!("chronos.client.{class}"));
    let said = run(java);
    let count = said.split("Ran ").nth(1).and_then(|rest| rest.split(' ').next());
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no count in {said}"))
}

fn own_tests() {
    need_java();
    assert!(tests("OwnTests", None) >= 30);
}

fn a_node_is_asked_for_everything() {
    need_java();
    let nodes = Nodes::start(1, Doors::Token);
    assert!(tests("LiveNodeTests", Some(&nodes)) >= 10);
}

fn a_node_is_killed() {
    need_java();
    let mut nodes = Nodes::start(3, Doors::Token);
    assert_eq!(tests("LiveClusterTests", Some(&nodes)), 2);
    let ended: Vec<bool> = (0..3).map(|place| nodes.has_ended(place)).collect();
    assert_eq!(ended, [true, false, false], "one node was killed, and no other ended");
}

fn tls() {
    need_java();
    let nodes = Nodes::start(1, Doors::Tls);
    assert_eq!(tests("LiveTlsTests", Some(&nodes)), 2);
}

/// The example needs the client's own classes and nothing of the tests.
fn readme() {
    need_java();
    let nodes = Nodes::start(1, Doors::Open);
    let room = tempfile::tempdir().expect("room");
    compile(room.path(), &["src"]);
    let file = room.path().join("Example.java");
    std::fs::write(&file, example("clients/java/README.md", &nodes)).expect("written");
    let mut java = program("java", FOLDER, None);
    java.args(SMALL).arg("-cp").arg(room.path()).arg(&file).env("SECRET", SECRET);
    assert_eq!(run(java), "hello\n");
}
