//! `chronos cluster certs`: what it makes is what nodes and clients need.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use kit::children::{self, Tied};

use super::harness::{Node, TIMER};
use super::tools::has;

fn certs(out: &Path, words: &[&str]) -> Output {
    let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
    command.args(["cluster", "certs", "--out"]).arg(out).args(words);
    command.output_tied().expect("the binary runs")
}

fn make(out: &Path, words: &[&str]) {
    let made = certs(out, words);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn keys_are_for_their_owner_and_no_file_is_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("pki");
    make(&out, &["--node", "10.0.0.1:7253", "--node", "fd00::1", "--client", "ralf"]);
    let mut names: Vec<String> = std::fs::read_dir(&out)
        .expect("made")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let all = "10.0.0.1_7253.key 10.0.0.1_7253.pem ca.key ca.pem fd00__1.key fd00__1.pem ralf.key \
               ralf.pem";
    assert_eq!(names.join(" "), all);
    for name in &names {
        let mode = std::fs::metadata(out.join(name)).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, if name.ends_with(".key") { 0o600 } else { 0o644 }, "{name}");
    }
    let before = std::fs::read(out.join("ralf.key")).expect("there");
    let refused = certs(&out, &["--node", "10.0.0.2", "--client", "ralf"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("move it away"));
    assert_eq!(std::fs::read(out.join("ralf.key")).expect("there"), before);
    assert!(!out.join("10.0.0.2.pem").exists(), "all or nothing");
    std::fs::write(out.join("ca.pem"), std::fs::read(out.join("ralf.pem")).expect("there"))
        .expect("written");
    let refused = certs(&out, &["--node", "10.0.0.2"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("is not the certificate that this command made"), "{told}");
    for wrong in [&["--node", "../x"][..], &["--node", "a", "--days", "0"], &["--client", ""]] {
        assert_eq!(certs(&out, wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// One run makes the authority, a later one a client's certificate of the same authority.
#[test]
fn a_node_and_a_client_of_the_authority_take_each_other() {
    if !has("curl", "--version") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (ours, others) = (folder.path().join("ours"), folder.path().join("others"));
    make(&ours, &["--node", "127.0.0.1"]);
    make(&ours, &["--client", "ralf"]);
    make(&others, &["--client", "ralf"]);
    let path = |file: &str| ours.join(file).display().to_string();
    let node = Node::start(&format!(
        "[node]\nlisten_tls = '127.0.0.1:0'\n[tls]\ncert = '{}'\nkey = '{}'\nclient_ca = '{}'\n\
         client_auth = 'required'\n",
        path("127.0.0.1.pem"),
        path("127.0.0.1.key"),
        path("ca.pem")
    ));
    let url = format!("https://127.0.0.1:{}/timers", node.secure.port());
    let curl = |identity: Option<&Path>| {
        let mut command = children::command("curl");
        command.args(["-sS", "-i", "--max-time", "60", "--cacert", &path("ca.pem")]);
        if let Some(folder) = identity {
            command.arg("--cert").arg(folder.join("ralf.pem"));
            command.arg("--key").arg(folder.join("ralf.key"));
        }
        let output = command.args(["-d", TIMER, &url]).output_tied().expect("it runs");
        String::from_utf8_lossy(&output.stdout).starts_with("HTTP/1.1 200 ")
    };
    assert!(curl(Some(&ours)));
    assert!(!curl(Some(&others)), "of another authority of the same name");
    assert!(!curl(None));
}
