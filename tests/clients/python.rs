//! The client of Python.

use std::net::TcpListener;

use kit::children::Tied;
use kit::runner::Story;

use super::nodes::{Doors, Nodes, SECRET};
use super::programs::{need, program, run};
use super::readme::example;

pub const STORIES: &[Story] = &[
    ("a_node_of_a_cluster_is_killed_under_python", a_node_is_killed),
    ("python_asks_a_node_for_everything", a_node_is_asked_for_everything),
    ("python_speaks_tls", tls),
    ("python_s_own_tests", own_tests),
    ("the_tutorial_s_receiver_says_that_its_port_is_taken", receiver),
    ("python_s_readme_runs", readme),
    ("python_s_types_are_strict", types),
];

const FOLDER: &str = "clients/python";
/// Tests of the client's own.
const OWN_TESTS_MIN: usize = 30;

fn need_python() {
    need("python3", "--version", "apt-get install -y python3");
}

/// Runs tests with `unittest`. Returns how many ran.
#[track_caller]
fn unittest(words: &[&str], nodes: Option<&Nodes>) -> usize {
    let mut python = program("python3", FOLDER, nodes);
    // Nothing is left in the folder of the sources.
    python.args(["-B", "-W", "error::ResourceWarning", "-m", "unittest"]).args(words);
    let said = run(python);
    assert!(!said.contains("skipped"), "{said}");
    let count = said.split("Ran ").nth(1).and_then(|rest| rest.split(' ').next());
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no count in {said}"))
}

fn own_tests() {
    need_python();
    let count = unittest(&["discover", "-s", "tests", "-t", "."], None);
    assert!(count >= OWN_TESTS_MIN, "{count} tests");
}

fn a_node_is_asked_for_everything() {
    need_python();
    let nodes = Nodes::start(1, Doors::Token);
    assert!(unittest(&["tests.live.node"], Some(&nodes)) >= 12);
}

fn a_node_is_killed() {
    need_python();
    let mut nodes = Nodes::start(3, Doors::Token);
    assert_eq!(unittest(&["tests.live.cluster"], Some(&nodes)), 2);
    let ended: Vec<bool> = (0..3).map(|place| nodes.has_ended(place)).collect();
    assert_eq!(ended, [true, false, false], "one node was killed, and no other ended");
}

fn tls() {
    need_python();
    let nodes = Nodes::start(1, Doors::Tls);
    assert_eq!(unittest(&["tests.live.tls"], Some(&nodes)), 2);
}

fn readme() {
    need_python();
    let nodes = Nodes::start(1, Doors::Open);
    let code = example("clients/python/README.md", &nodes);
    let mut python = program("python3", FOLDER, None);
    python.args(["-B", "-c", &code]).env("SECRET", SECRET);
    assert_eq!(run(python), "hello\n");
}

fn receiver() {
    need_python();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it is bound").port();
    let mut python = program("python3", "docs/start", None);
    let ended = python.args(["-B", "receiver.py", &port.to_string()]).output_tied();
    let ended = ended.expect("it runs");
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{errors}");
    let told = format!("cannot listen on 127.0.0.1:{port}: Address already in use. ");
    assert!(errors.starts_with(&told) && errors.contains("receiver.py"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "a sentence, no traceback: {errors}");
}

fn types() {
    need("mypy", "--version", "apt-get install -y mypy");
    let mut mypy = program("mypy", FOLDER, None);
    mypy.args(["--strict", "--cache-dir", "/dev/null", "chronos_client", "tests"]);
    run(mypy);
}
