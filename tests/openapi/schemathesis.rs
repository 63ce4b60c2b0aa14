//! The documents in the hands of a stranger: schemathesis (PyPI) makes requests from them, good and
//! bad, and holds each answer against them as schemathesis.toml says. Not run where it is not
//! installed.

use std::path::Path;
use std::process::Stdio;

use kit::children::{self, Tied};
use kit::documents::root;

use super::node::{Node, Tokens};

/// Requests of one kind for each operation, at most.
const EXAMPLES: &str = "12";
/// Seconds that a run may take on a machine of any speed; a run is seldom at its end before.
const SECONDS: &str = "45";

fn is_installed() -> bool {
    let mut command = children::parent_command("schemathesis");
    command.arg("--version").output_tied().is_ok_and(|output| output.status.success())
}

/// Runs schemathesis with a document of docs/openapi against an API, and returns what it found.
fn found(document: &str, api: &str, token: &str, folder: &Path) -> Option<String> {
    let document = root().join("docs/openapi").join(document);
    let output = children::parent_command("schemathesis")
        .arg("--config-file")
        .arg(root().join("tests/openapi/schemathesis.toml"))
        .arg("run")
        .arg(document)
        .args(["--url", api, "--header", token, "--header", "X-Chronos-Order: 1"])
        .args(["--phases", "examples,coverage,fuzzing", "--seed", "1"])
        .args(["--max-examples", EXAMPLES, "--max-time", SECONDS, "--no-color"])
        .args(["--suppress-health-check", "all", "--warnings", "off"])
        .env("SCHEMATHESIS_HOOKS", "schemathesis_hooks")
        .env("PYTHONPATH", root().join("tests/openapi"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(folder)
        .stdin(Stdio::null())
        .output_tied()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    (!output.status.success()).then(|| format!("{api}\n{text}"))
}

#[test]
fn a_stranger_who_asks_what_the_documents_say_gets_what_they_say() {
    if !is_installed() {
        eprintln!("not run: schemathesis is not installed (pip install schemathesis)");
        return;
    }
    let tokens = Tokens::make();
    let node = Node::start(&tokens.config());
    let folder = tempfile::tempdir().expect("a folder");
    let runs = [
        ("public.yaml", format!("http://{}", node.address)),
        ("admin.yaml", format!("http://{}", node.admin)),
    ];
    let findings: Vec<String> = std::thread::scope(|scope| {
        let (token, folder) = (&tokens.operator, folder.path());
        let runs = runs.iter().map(|(document, api)| {
            scope.spawn(move || found(document, api, token.trim_end(), folder))
        });
        let runs: Vec<_> = runs.collect();
        runs.into_iter().filter_map(|run| run.join().expect("no panic")).collect()
    });
    assert!(findings.is_empty(), "{}", findings.join("\n\n"));
}
