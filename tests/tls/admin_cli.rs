//! Commands that ask admin APIs over TLS, and what they say when they are not answered.

use std::path::Path;
use std::process::{Child, Stdio};

use kit::children::{self, Tied};
use kit::ports::free_port;
use kit::until::until;

use super::admin::started;
use super::authorities::{Authority, Files, Identity};
use super::harness::{Node, PATIENCE};

/// Runs the binary. Returns whether it succeeded, and all that it said.
fn run(words: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
    let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
    for name in ["CHRONOS_TOKEN", "CHRONOS_CA", "CHRONOS_CERT", "CHRONOS_KEY"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).args(words);
    let output = command.output_tied().expect("the binary runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(!said.contains("panicked"), "{said}");
    (output.status.success(), said)
}

fn url(node: &Node, host: &str) -> String {
    let port = node.admin_tls.expect("it is told at the start").port();
    format!("https://{host}:{port}")
}

fn text(path: impl AsRef<Path>) -> String {
    path.as_ref().display().to_string()
}

#[test]
fn commands_ask_over_tls_with_a_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens");
    let tokens = text(tokens);
    let made =
        run(&["token", "new", "--name", "o", "--role", "operator", "--file", &tokens], &[]).1;
    let token = made.lines().find(|line| line.starts_with("chr_")).expect("a token").to_owned();
    let data = text(folder.path().join("data"));
    let (node, _authority, files) =
        started(&format!("[auth]\ntokens_file = '{tokens}'\n[journal]\ndata_dir = '{data}'\n"));
    let ca = text(files.path("ca.pem"));
    for host in ["127.0.0.1", "localhost"] {
        let url = url(&node, host);
        let status = ["cluster", "status", "--admin", &url, "--ca", &ca];
        let (is_fine, told) = run(&status, &[("CHRONOS_TOKEN", &token)]);
        assert!(is_fine && told.contains("answers"), "{told}");
        let (is_fine, told) = run(&status, &[]);
        assert!(!is_fine && told.contains("set CHRONOS_TOKEN"), "{told}");
    }
    let url = url(&node, "localhost");
    let variables = [("CHRONOS_TOKEN", &*token), ("CHRONOS_CA", &ca)];
    let (is_fine, told) = run(&["cluster", "resync", "--admin", &url], &variables);
    assert!(is_fine && told.contains("resynchronised"), "{told}");
    let copy = text(folder.path().join("copy"));
    let (is_fine, told) = run(&["backup", &copy, "--admin", &url], &variables);
    assert!(is_fine && told.contains("segments"), "{told}");
}

/// Nobody is asked: the address is one of documentation (RFC 5737).
#[test]
fn a_token_does_not_leave_the_machine_in_the_clear() {
    let (is_fine, told) = run(
        &["backup", "/nowhere", "--admin", "192.0.2.1:7254"],
        &[("CHRONOS_TOKEN", "chr_secret_words")],
    );
    assert!(!is_fine && told.contains("in the clear") && told.contains("https://"), "{told}");
    assert!(!told.contains("secret_words"), "{told}");
}

#[test]
fn what_is_wrong_with_certificates_is_told_in_words() {
    let (authority, other) = (Authority::new(), Authority::new());
    let files = Files::new(&authority.server());
    files.write("ca.pem", &authority.pem(), 0o644);
    files.write("other.pem", &other.pem(), 0o644);
    let node = Node::start(&files.config("[admin]\nlisten_tls = '127.0.0.1:0'\n"));
    let (ca, others) = (text(files.path("ca.pem")), text(files.path("other.pem")));
    let status = |admin: &str, more: &[&str]| {
        run(&[&["cluster", "status", "--admin", admin][..], more].concat(), &[])
    };
    let told_of = |admin: &str, more: &[&str], expected: &str| {
        let (is_fine, told) = status(admin, more);
        assert!(!is_fine && told.contains(expected), "expected `{expected}` in `{told}`");
    };
    let here = url(&node, "localhost");
    assert!(status(&here, &["--ca", &ca]).0);
    told_of(&here, &["--ca", &others], "comes from no authority that is believed here");
    told_of(&here, &["--ca", &others], "--ca FILE or CHRONOS_CA");
    told_of(&node.admin.to_string().replace("127", "https://127"), &["--ca", &ca], "no TLS there");
    told_of(here.trim_start_matches("https://"), &[], "ask for https:// here");
    told_of(&here, &["--ca", "/nowhere"], "--ca /nowhere: cannot be read");
    told_of(&here, &["--cert", &ca], "belong together");
    let key = text(files.path("key.pem"));
    told_of(&here, &["--ca", &key], "expected the certificates of authorities");
    let elsewhere = authority.sign_as(|parameters| {
        let name = "elsewhere.example".try_into().expect("a name");
        parameters.subject_alt_names = vec![rcgen::SanType::DnsName(name)];
    });
    for (identity, expected) in [
        (authority.expired(2020), "its certificate has expired or is not valid yet"),
        (elsewhere, "its certificate has another name: ask under one that it has"),
    ] {
        files.put(&identity);
        until("the certificate to be taken", PATIENCE, || {
            status(&here, &["--ca", &ca]).1.contains(expected).then_some(())
        });
    }
}

#[test]
fn a_certificate_of_the_operator_is_asked_for_and_shown() {
    let (servers, people, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let files = Files::new(&servers.server());
    files.write("servers.pem", &servers.pem(), 0o644);
    files.write("people.pem", &people.pem(), 0o644);
    let put = |name: &str, identity: &Identity| {
        files.write(&format!("{name}.pem"), &identity.certificate, 0o644);
        files.write(&format!("{name}.key"), &identity.key, 0o600);
    };
    put("ralf", &people.client());
    put("stranger", &strangers.client());
    let node = Node::start(&files.config(&format!(
        "client_auth = 'required'\nclient_ca = '{}'\n[admin]\nlisten_tls = '127.0.0.1:0'\n",
        text(files.path("people.pem"))
    )));
    let (here, ca) = (url(&node, "localhost"), text(files.path("servers.pem")));
    let with = |name: &str| {
        let path = |end: &str| text(files.path(&format!("{name}.{end}")));
        let words = ["cluster", "status", "--admin", &here, "--ca", &ca];
        let (cert, key) = (path("pem"), path("key"));
        let flags = run(&[&words[..], &["--cert", &cert, "--key", &key]].concat(), &[]);
        let set = run(&words, &[("CHRONOS_CERT", &*cert), ("CHRONOS_KEY", &*key)]);
        assert_eq!(flags.0, set.0, "flags and variables mean the same");
        flags
    };
    assert!(with("ralf").0);
    let (is_fine, told) = with("stranger");
    assert!(!is_fine && told.contains("it refuses the certificate"), "{told}");
    let (is_fine, told) = run(&["cluster", "status", "--admin", &here, "--ca", &ca], &[]);
    assert!(!is_fine && told.contains("it asks for a certificate"), "{told}");
    files.write("ralf.key", &people.client().key, 0o600);
    let (is_fine, told) = with("ralf");
    assert!(!is_fine && told.contains("--key") && told.contains("does not fit"), "{told}");
    files.write("ralf.key", &people.client().key, 0o644);
    let (is_fine, told) = with("ralf");
    assert!(!is_fine && told.contains("chmod 600"), "{told}");
}

/// Two nodes that know each other's admin APIs over TLS, with the files of `chronos cluster certs`.
/// Each shows its certificate as a node, and hands on the token of whoever asks.
#[test]
fn nodes_ask_each_other_over_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = text(folder.path().join("pki"));
    let certs = ["cluster", "certs", "--out", &out, "--node", "127.0.0.1", "--client", "ralf"];
    assert!(run(&certs, &[]).0);
    let tokens = text(folder.path().join("tokens"));
    let made = run(&["token", "new", "--name", "r", "--role", "reader", "--file", &tokens], &[]).1;
    let token = made.lines().find(|line| line.starts_with("chr_")).expect("a token").to_owned();
    let start = |others: &str| {
        Node::start(&format!(
            "[node]\nlisten_tls = '127.0.0.1:0'\n[admin]\nlisten_tls = '127.0.0.1:0'\n\
             [tls]\ncert = '{out}/127.0.0.1.pem'\nkey = '{out}/127.0.0.1.key'\n\
             client_ca = '{out}/ca.pem'\nclient_auth = 'required'\n\
             [auth]\ntokens_file = '{tokens}'\n\
             [cluster]\ntls = 'required'\ntls_ca = '{out}/ca.pem'\n\
             localhost = '127.0.0.1:7253'\nnodes = ['127.0.0.1:7253']\n\
             admin_addresses = [{others}]\n"
        ))
    };
    let first = start("");
    let second = start(&format!("'{}'", url(&first, "127.0.0.1")));
    let sum = |token: &str| {
        let mut command = children::command("curl");
        command.args(["-sS", "--max-time", "60", "--cacert", &format!("{out}/ca.pem")]);
        command.args(["--cert", &format!("{out}/ralf.pem"), "--key", &format!("{out}/ralf.key")]);
        command.args(["-H", &format!("Authorization: Bearer {token}")]);
        command.arg(format!("{}/statistics/tags?scope=cluster", url(&second, "127.0.0.1")));
        let output = command.output_tied().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    if !super::tools::has("curl", "--version") {
        return;
    }
    let told = sum(&token);
    let told: serde_json::Value = serde_json::from_str(&told).expect(&told);
    assert_eq!((&told["nodes"], &told["unreachable"]), (&2.into(), &serde_json::json!([])));
}

/// A node with a file of its own whose admin API is served over TLS alone. The process ends when
/// the value is dropped.
struct Member(Child);

impl Drop for Member {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two nodes of `chronos cluster certs`, which ask for certificates and tokens. The second is found
/// at the host of its name, over TLS as the first.
#[test]
fn a_cluster_changes_whose_admin_apis_are_served_over_tls_alone() {
    let hosts = ["127.0.0.41", "127.0.0.42"];
    let addresses = hosts.map(|host| host.parse().expect("an address"));
    let (port, admin_port) = (free_port(&addresses), free_port(&addresses));
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| text(folder.path().join(name));
    let (out, tokens) = (path("pki"), path("tokens"));
    let [first, second] = hosts;
    let certs = ["cluster", "certs", "--out", &out, "--node", first, "--node", second];
    assert!(run(&[&certs[..], &["--client", "ralf"]].concat(), &[]).0);
    let token = ["token", "new", "--name", "o", "--role", "operator", "--file", &tokens];
    let made = run(&token, &[]).1;
    let token = made.lines().find(|line| line.starts_with("chr_")).expect("a token").to_owned();
    let start = |place: usize| {
        let host = hosts[place];
        let config = format!(
            "[node]\nlisten = '{host}:{port}'\nlisten_tls = '{host}:0'\nshards = 1\npin = false\n\
             instance_id = {place}\n[tls]\ncert = '{out}/{host}.pem'\nkey = '{out}/{host}.key'\n\
             client_ca = '{out}/ca.pem'\nclient_auth = 'required'\n[auth]\n\
             tokens_file = '{tokens}'\n[admin]\nenabled = false\n\
             listen_tls = '{host}:{admin_port}'\n[cluster]\ntls = 'required'\n\
             tls_ca = '{out}/ca.pem'\nheartbeat_ms = 100\n"
        );
        let file = path(&format!("{host}.toml"));
        std::fs::write(&file, config).expect("a file in the test's folder");
        let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
        command.env_clear().args(["--config", &file]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Member(command.spawn_tied().expect("the binary runs"))
    };
    let _members = [start(0), start(1)];
    let order = |words: &[&str]| {
        let admin = format!("https://{first}:{admin_port}");
        let (ca, cert, key) =
            (format!("{out}/ca.pem"), format!("{out}/ralf.pem"), format!("{out}/ralf.key"));
        let variables = [
            ("CHRONOS_TOKEN", &*token),
            ("CHRONOS_CA", &*ca),
            ("CHRONOS_CERT", &*cert),
            ("CHRONOS_KEY", &*key),
        ];
        run(&[&["cluster"], words, &["--admin", &admin]].concat(), &variables)
    };
    until("the first node to answer", PATIENCE, || order(&["status"]).0.then_some(()));
    let name = format!("{second}:{port}");
    let joined = || order(&["join", &name]).0.then_some(());
    until("the second node to join", PATIENCE, joined);
    let status = || {
        let (is_fine, told) = order(&["status"]);
        (is_fine && told.contains(&name) && told.contains("2 nodes")).then_some(())
    };
    until("both to be well", PATIENCE, status);
    let (is_fine, told) = order(&["leave", &name]);
    assert!(is_fine && !order(&["status"]).1.contains("2 nodes"), "{told}");
}
