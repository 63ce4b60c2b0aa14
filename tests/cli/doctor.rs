//! `chronos doctor`: each line has a verdict, and a remedy where something is wrong.

use std::net::TcpListener;

use serde_json::Value;

use super::harness::{Node, run, text};

fn verdict_of(document: &Value, what: &str) -> String {
    let checks = document["checks"].as_array().expect("a list");
    let mut found = checks
        .iter()
        .filter(|check| check["what"].as_str().is_some_and(|told| told.starts_with(what)));
    let check = found.next().unwrap_or_else(|| panic!("{what} is not in {document:#}"));
    let is_well = check["verdict"] == "ok";
    assert_eq!(check["remedy"] == "", is_well, "{check}");
    check["verdict"].as_str().expect("a word").to_owned()
}

#[test]
fn a_machine_and_its_configuration_are_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = text(folder.path().join("chronos.toml"));
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port();
    let data = text(folder.path().join("data"));
    let config = format!(
        "[node]\nlisten = '127.0.0.1:{port}'\n[admin]\nenabled = false\n\
         [journal]\ndata_dir = '{data}'\n"
    );
    std::fs::write(&file, config).expect("written");
    let told = run(&["doctor", "--config", &file, "--json"]);
    let document = told.expect(1, "").json();
    assert_eq!(document["verdict"], "fail");
    assert_eq!(verdict_of(&document, "kernel"), "ok");
    assert_eq!(verdict_of(&document, "configuration"), "ok");
    assert_eq!(verdict_of(&document, "[node] listen"), "fail");
    assert_ne!(verdict_of(&document, "data directory"), "fail");
    for what in ["open files", "locked memory", "wall clock"] {
        verdict_of(&document, what);
    }
    let own = format!("taken by process {}", std::process::id());
    let told = run(&["doctor", "--config", &file]);
    told.expect(1, &own).expect(1, "      -> end that process, or set [node] listen");
    assert!(!told.out.contains('\u{1b}'), "no colours without a terminal");
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 1, "no scratch file is left");
    drop(taken);
    run(&["doctor", "--config", &file]).expect(0, "free");
    std::fs::write(&file, "[nodes]\n").expect("written");
    run(&["doctor", "--config", &file]).expect(1, "fail  configuration:");
    run(&["doctor", "--config", "/nowhere"]).expect(1, "/nowhere");
}

#[test]
fn a_running_node_tells_its_alarms() {
    let node = Node::start("");
    let file = text(node.file("chronos.toml"));
    let words = ["doctor", "--config", &file, "--json"];
    let told = node.operate(&words).expect(0, "").json();
    assert_eq!(verdict_of(&told, "node "), "ok");
    assert_eq!(verdict_of(&told, "members"), "ok");
    let silent = run(&["doctor", "--admin", "127.0.0.1:9"]);
    silent.expect(1, "127.0.0.1:9 does not answer");
    run(&["doctor", "--admin", "nowhere"]).expect(2, "expected host:port");
}
