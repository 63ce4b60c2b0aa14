//! Over TLS and with tokens.

use std::net::IpAddr;

use kit::ports;
use tempfile::TempDir;

use super::harness::{Ended, NOWHERE, Node, run, run_with, text};

/// A node that serves clients and operators over TLS and knows a token of each role.
struct Secured {
    node: Node,
    secure: String,
    admin: String,
    ca: String,
    operator: String,
    reader: String,
}

fn token(folder: &TempDir, role: &str) -> String {
    let file = text(folder.path().join("tokens"));
    let made = run(&["token", "new", "--name", role, "--role", role, "--file", &file]);
    made.expect(0, "chr_").out.trim().to_owned()
}

impl Secured {
    fn start() -> Secured {
        let folder = tempfile::tempdir().expect("room");
        let certs = text(folder.path().join("certs"));
        run(&["cluster", "certs", "--out", &certs, "--node", "127.0.0.1"]).expect(0, "ca.pem");
        let [ca, cert, key] = ["ca.pem", "127.0.0.1.pem", "127.0.0.1.key"]
            .map(|name| text(folder.path().join("certs").join(name)));
        let (operator, reader) = (token(&folder, "operator"), token(&folder, "reader"));
        let host = IpAddr::from([127, 0, 0, 1]);
        let [port, admin_port] = [0, 0].map(|_| ports::free_port(&[host]));
        let config = format!(
            "[node]\nlisten_tls = '127.0.0.1:{port}'\n[tls]\ncert = '{cert}'\nkey = '{key}'\n\
             [admin]\nlisten_tls = '127.0.0.1:{admin_port}'\n\
             [auth]\ntokens_file = '{}'\n",
            text(folder.path().join("tokens"))
        );
        let node = Node::start_in(folder, &config);
        let secure = format!("https://127.0.0.1:{port}");
        let admin = format!("https://127.0.0.1:{admin_port}");
        Secured { node, secure, admin, ca, operator, reader }
    }

    fn timer(&self, words: &[&str], token: &str) -> Ended {
        let all = [&["timer"], words, &["--server", &self.secure, "--ca", &self.ca]].concat();
        run_with(&all, &[("CHRONOS_TOKEN", token)])
    }

    fn operate(&self, words: &[&str], token: &str) -> Ended {
        let all = [words, &["--admin", &self.admin, "--ca", &self.ca]].concat();
        run_with(&all, &[("CHRONOS_TOKEN", token)])
    }
}

#[test]
fn commands_show_their_token_over_tls() {
    let secured = Secured::start();
    let create = ["create", "--interval", "1h", "--uri", NOWHERE, "--tag", "A"];
    let refused = secured.timer(&create, &secured.reader);
    refused.expect(1, "set CHRONOS_TOKEN to a token that may do this (status 403)");
    secured.timer(&create, "chr_wrong").expect(1, "(status 401)");
    let none = secured.timer(&create, "");
    none.expect(1, "(status 401)").expect(1, "CHRONOS_TOKEN");
    let made = secured.timer(&create, &secured.operator);
    let id = made.expect(0, "").out.trim().to_owned();
    secured.timer(&["list"], &secured.reader).expect(0, &id);
    secured.timer(&["count"], &secured.reader).expect(0, "by-tag.A");
    secured.timer(&["list"], "").expect(1, "CHRONOS_TOKEN");
    secured.timer(&["watch", &id, "--for", "0.2"], &secured.reader).expect(1, "waits");
    let letters = ["dead-letters", "list", "--server", &secured.secure, "--ca", &secured.ca];
    run_with(&letters, &[("CHRONOS_TOKEN", &secured.reader)]).expect(0, "no dead letters");
    secured.operate(&["top", "--once", "--every", "0.1"], &secured.reader).expect(0, "serving");
    secured.operate(&["top", "--once"], "").expect(1, "CHRONOS_TOKEN");
    secured.operate(&["destinations", "pause", "a"], &secured.reader).expect(1, "an operator");
    secured.operate(&["destinations", "pause", "a"], &secured.operator).expect(0, "paused");
    let rung = secured.operate(&["doctor"], &secured.operator);
    rung.expect(0, "Requests come with a token that is not in auth.tokens_file");
    let file = text(secured.node.file("chronos.toml"));
    let told = secured.operate(&["doctor", "--config", &file], &secured.operator);
    told.expect(0, "[tls] cert").expect(0, "expires in");
    secured.timer(&["delete", &id], &secured.operator).expect(0, "");
    let plain = secured.node.address.to_string();
    let list = ["timer", "list", "--server", &plain];
    run_with(&list, &[("CHRONOS_TOKEN", &secured.reader)]).expect(0, "no timers");
}

#[test]
fn a_token_does_not_go_to_another_machine_in_the_clear() {
    for words in [
        &["timer", "get", "x", "--server", "192.0.2.1:7253"][..],
        &["timer", "list", "--server", "192.0.2.1:7253"],
        &["destinations", "reset", "a", "--admin", "192.0.2.1:7254"],
    ] {
        let told = run_with(words, &[("CHRONOS_TOKEN", "chr_secret_words")]);
        told.expect(1, "in the clear");
        assert!(!format!("{told:?}").contains("secret_words"));
    }
}
