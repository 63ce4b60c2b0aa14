//! What others wrote to speak TLS: `curl` and `openssl`, if they are installed.

use std::io::Write;
use std::process::{Output, Stdio};

use kit::children::{self, Tied};

use super::authorities::{Authority, Files};
use super::harness::{Node, TIMER};

/// Whether a tool is installed. Says so if not.
pub fn has(tool: &str, ask: &str) -> bool {
    let found = children::command(tool).arg(ask).output_tied();
    let is_there = found.is_ok_and(|output| output.status.success());
    if !is_there {
        println!("{tool} is not installed: this test has not looked at anything");
    }
    is_there
}

fn started() -> (Node, Files) {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    files.write("ca.pem", &authority.pem(), 0o644);
    (Node::start(&files.config("")), files)
}

#[test]
fn curl_creates_timers() {
    if !has("curl", "--version") {
        return;
    }
    let (node, files) = started();
    let url = format!("https://localhost:{}/timers", node.secure.port());
    let curl = |more: &[&str]| {
        let mut command = children::command("curl");
        command.args(["-sS", "-i", "--max-time", "60", "--cacert"]).arg(files.path("ca.pem"));
        command.args(more).args(["-d", TIMER, &url]).output_tied().expect("it runs")
    };
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    for version in [&["--tlsv1.3"][..], &["--tlsv1.2", "--tls-max", "1.2"], &["--http1.1"], &[]] {
        let output = curl(version);
        let answer = text(&output);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{version:?}: {output:?}");
        assert!(answer.contains("Location: /timers/"), "{answer}");
    }
    // Old versions are not spoken.
    let output = curl(&["--tlsv1.0", "--tls-max", "1.1"]);
    assert!(!output.status.success(), "{output:?}");
}

/// Runs `openssl s_client`, which gets these words. Returns all it says.
fn s_client(node: &Node, files: &Files, more: &[&str], words: &str) -> String {
    let mut command = children::command("timeout");
    command.args(["60", "openssl", "s_client", "-connect", &node.secure.to_string()]);
    command.args(["-servername", "localhost", "-CAfile"]).arg(files.path("ca.pem")).args(more);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn_tied().expect("it runs");
    let mut input = process.stdin.take().expect("piped");
    input.write_all(words.as_bytes()).expect("taken");
    // Its input stays open until the server closes: it would not wait for the answer otherwise.
    let output = process.wait_with_output().expect("it ends");
    drop(input);
    let all = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

const ASK: &str = "GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

#[test]
fn openssl_speaks_both_versions() {
    if !has("openssl", "version") {
        return;
    }
    let (node, files) = started();
    for version in ["-tls1_3", "-tls1_2"] {
        let told = s_client(&node, &files, &[version, "-alpn", "http/1.1"], ASK);
        assert!(told.contains("HTTP/1.1 200 OK"), "{version}: {told}");
        assert!(told.contains("Verify return code: 0 (ok)"), "{version}: {told}");
        assert!(told.contains("ALPN protocol: http/1.1"), "{version}: {told}");
        assert!(!told.contains("Max Early Data: 1"), "no data before the handshake: {told}");
    }
}

/// Records of 512 bytes, as small as openssl makes them.
#[test]
fn openssl_cuts_its_records_small() {
    if !has("openssl", "version") {
        return;
    }
    let (node, files) = started();
    let padding = "x".repeat(4_000);
    let ask = format!(
        "GET /ping HTTP/1.1\r\nHost: x\r\nX-Padding: {padding}\r\nConnection: close\r\n\r\n"
    );
    for version in ["-tls1_3", "-tls1_2"] {
        let more = [version, "-max_send_frag", "512", "-quiet"];
        let told = s_client(&node, &files, &more, &ask);
        assert!(told.contains("HTTP/1.1 200 OK"), "{version}: {told}");
    }
}

/// A line that begins with R asks openssl to negotiate again, which a server must be able to refuse
/// and TLS 1.3 does not know.
#[test]
fn a_second_negotiation_is_refused() {
    if !has("openssl", "version") {
        return;
    }
    let (node, files) = started();
    let told = s_client(&node, &files, &["-tls1_2"], "R\n");
    assert!(told.contains("no renegotiation") || told.contains("RENEGOTIATING"), "{told}");
    assert!(!told.contains("HTTP/1.1 200"), "{told}");
    let answer = kit::client::request(node.plain, "GET", "/ping", "").expect("an answer");
    assert_eq!(answer.status, 200, "the node lives");
}
