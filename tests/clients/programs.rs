//! Programs of other languages, run to their end.

use std::process::Command;

use kit::children::{Tied, command};
use kit::documents::root;
use kit::runner::cannot_run;

use super::nodes::{Nodes, SECRET};

/// Ends the story unless the program is there.
pub fn need(program: &str, argument: &str, remedy: &str) {
    let asked = command(program).arg(argument).output_tied();
    if !asked.is_ok_and(|asked| asked.status.success()) {
        cannot_run(format!("there is no {program}: {remedy}"));
    }
}

/// A command that runs in a folder of the project and knows the nodes.
pub fn program(name: &str, folder: &str, nodes: Option<&Nodes>) -> Command {
    let mut program = command(name);
    program.current_dir(root().join(folder));
    if let Some(nodes) = nodes {
        program.env("CHRONOS_NODES", nodes.urls());
        program.env("CHRONOS_TOKEN", &nodes.token);
        program.env("CHRONOS_SLOW_TOKEN", &nodes.slow_token);
        program.env("CHRONOS_SECRET", SECRET);
        program.env("CHRONOS_CA", nodes.file("pki/ca.pem"));
        // A receiver at the host of the node is as good as the node for those who call.
        let host = nodes.addresses[0].ip();
        program.env("CHRONOS_RECEIVER_HOST", host.to_string());
        program.env("CHRONOS_CERT", nodes.file(&format!("pki/{host}.pem")));
        program.env("CHRONOS_KEY", nodes.file(&format!("pki/{host}.key")));
        program.env("CHRONOS_VICTIM_PID", nodes.pid(0).to_string());
    }
    program
}

/// Runs a program to its end. Panics with what the program said unless the program ends well.
/// Returns what stands on standard output and standard error.
#[track_caller]
pub fn run(mut program: Command) -> String {
    let ended = program.output_tied().expect("it runs");
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(ended.status.success(), "{program:?}: {}\n{said}", ended.status);
    said
}
