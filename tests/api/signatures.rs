//! Signed callbacks, verified by the reference library of the Standard Webhooks specification: it
//! shares no line with the node that signs.

use std::path::Path;

use hyper::HeaderMap;
use kit::children;
use standardwebhooks::Webhook;
use tempfile::TempDir;

use super::harness::{Client, Node, document, until};
use super::sink::{Callback, Reaction, Sink};

const FIRST: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const SECOND: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const HEADERS: [&str; 3] = ["webhook-id", "webhook-timestamp", "webhook-signature"];

/// A folder with a file of secrets, and a node that signs with them.
struct Signing {
    folder: TempDir,
    node: Node,
}

impl Signing {
    fn start(secrets: &str, more: &str) -> Signing {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secrets");
        write(&file, secrets);
        let config = format!("[callbacks]\nsigning_secrets_file = {file:?}\n{more}");
        Signing { folder, node: Node::start(2, &config) }
    }

    fn reload(&self, secrets: &str) {
        write(&self.folder.path().join("secrets"), secrets);
        self.node.signal("HUP");
    }

    /// The callback of a timer that pops at once.
    fn pop(&self, sink: &Sink) -> Callback {
        let before = sink.count();
        self.node.create(&document("0", None, &sink.uri("/pop"), "opaque"));
        sink.wait_for(before + 1).remove(before)
    }
}

fn write(file: &Path, text: &str) {
    std::fs::write(file, text).expect("written");
    mode(file, "600");
}

fn mode(file: &Path, mode: &str) {
    let changed = children::command("chmod").arg(mode).arg(file).status();
    assert!(changed.expect("it runs").success());
}

fn headers(callback: &Callback) -> HeaderMap {
    let pairs = HEADERS.map(|name| (name, callback.header(name).parse().expect("a value")));
    pairs.into_iter().map(|(name, value)| (name.parse().expect("a name"), value)).collect()
}

/// Whether a receiver with this secret takes the callback.
fn is_taken(secret: &str, callback: &Callback) -> bool {
    let receiver = Webhook::new(secret).expect("a secret");
    receiver.verify(&callback.body, &headers(callback)).is_ok()
}

fn id(callback: &Callback) -> &str {
    callback.header("webhook-id")
}

#[test]
fn receivers_take_what_is_signed_and_nothing_else() {
    let signing = Signing::start(FIRST, "");
    let sink = Sink::ok();
    let long = "0123456789abcdef".repeat(16 << 10);
    let opaques = ["", "x", "a.b.c", "{\"event\":[1,2]}", "\u{e9}\u{4e2d}\0\r\n\r\n", &long];
    for opaque in opaques {
        let before = sink.count();
        signing.node.create(&document("0", None, &sink.uri("/pop"), opaque));
        let callback = sink.wait_for(before + 1).remove(before);
        assert_eq!(callback.body, opaque.as_bytes());
        assert!(is_taken(FIRST, &callback), "{}", callback.head);
        assert!(!is_taken(SECOND, &callback), "another secret");
        let mut body = callback.clone();
        body.body.push(b' ');
        assert!(!is_taken(FIRST, &body), "another body");
        for name in HEADERS {
            let value = callback.header(name);
            let last = if value.ends_with('1') { "2" } else { "1" };
            let changed = format!("{}{last}", &value[..value.len() - 1]);
            let head = callback.head.replace(value, &changed);
            assert!(!is_taken(FIRST, &Callback { head, ..callback.clone() }), "another {name}");
        }
    }
}

/// The three headers stand behind all others, which stay as they are.
#[test]
fn a_signature_adds_three_headers_and_changes_none() {
    let signing = Signing::start(FIRST, "timer_headers = false\n");
    let sink = Sink::ok();
    let callback = signing.pop(&sink);
    let values = HEADERS.map(|name| callback.header(name));
    let expected = format!(
        "POST /pop HTTP/1.1\r\nHost: {}\r\nContent-Type: application/octet-stream\r\n\
         X-Sequence-Number: 1\r\nContent-Length: 6\r\nwebhook-id: {}\r\nwebhook-timestamp: {}\r\n\
         webhook-signature: {}\r\n\r\n",
        sink.address, values[0], values[1], values[2]
    );
    assert_eq!(callback.head, expected);
    let signature = values[2].strip_prefix("v1,").expect("the version of the scheme");
    assert_eq!((signature.len(), signature.ends_with('=')), (44, true), "32 bytes in base64");
}

#[test]
fn the_id_is_that_of_the_pop_at_every_attempt() {
    let signing = Signing::start(FIRST, "retry_first_ms = 20\nretry_max_ms = 40\n");
    let sink = Sink::start(|_, before| match before {
        0 | 1 => Reaction::Status(500),
        _ => Reaction::OK,
    });
    let mut client = signing.node.client();
    let repeating = document("1", Some("2"), &sink.uri("/pop"), "opaque");
    let path = client.create(&repeating);
    let seen = sink.wait_for(4);
    assert!(seen.iter().all(|callback| is_taken(FIRST, callback)));
    let sequences: Vec<u64> = seen.iter().map(Callback::sequence).collect();
    assert_eq!(sequences, [1, 1, 1, 2]);
    let ids: Vec<&str> = seen.iter().map(id).collect();
    assert_eq!((ids[0], ids[0]), (ids[1], ids[2]), "attempts at one pop");
    assert_ne!(ids[2], ids[3], "the next pop");
    let timer = path.split_once("/timers/").expect("a path").1;
    let timer = timer.split('-').next().expect("an id");
    assert!(ids.iter().all(|id| id.split('-').next() == Some(timer)), "{ids:?} of {timer}");
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    assert!(ids.iter().all(|id| id.bytes().all(is_safe)), "{ids:?}");

    // The same timer again, from its first pop on.
    let path = path.split_once("/timers").map(|(_, rest)| format!("/timers{rest}"));
    let path = path.expect("a path");
    let again = document("0", None, &sink.uri("/pop"), "opaque");
    assert_eq!(client.request("PUT", &path, &again).status, 200);
    let later = sink.wait_for(5).remove(4);
    assert_eq!(later.sequence(), 1);
    assert!(!ids.contains(&id(&later)), "another definition");
    let other = signing.pop(&sink);
    assert_ne!(id(&other), id(&later), "another timer");
}

#[test]
fn secrets_are_replaced_while_the_node_runs() {
    let signing = Signing::start(FIRST, "");
    let sink = Sink::ok();
    let takers = || {
        let callback = signing.pop(&sink);
        (is_taken(FIRST, &callback), is_taken(SECOND, &callback))
    };
    assert_eq!(takers(), (true, false));
    signing.reload(&format!("# the new one signs first\n{SECOND}\n{FIRST}\n"));
    until("both sign", || (takers() == (true, true)).then_some(()));
    let callback = signing.pop(&sink);
    assert_eq!(callback.header("webhook-signature").split(' ').count(), 2);

    signing.reload(&format!("{SECOND}\nwhsec_a-mistake\n"));
    let is_told = || signing.node.logged().contains("line 2: expected `whsec_`");
    until("the mistake is told", || is_told().then_some(()));
    assert_eq!(takers(), (true, true), "a mistake changes nothing");
    mode(&signing.folder.path().join("secrets"), "644");
    signing.node.signal("HUP");
    until("the mode is told", || signing.node.logged().contains("chmod 600").then_some(()));
    assert_eq!(takers(), (true, true), "nor does a file that others may read");

    signing.reload(SECOND);
    until("the former one is gone", || (takers() == (false, true)).then_some(()));
    assert!(!signing.node.logged().contains("a-mistake"), "no line of the file is shown");
}

#[test]
fn no_secret_is_shown_anywhere() {
    let signing = Signing::start(&format!("{FIRST}\n{SECOND}\n"), "");
    let sink = Sink::ok();
    assert!(is_taken(SECOND, &signing.pop(&sink)));
    let file = signing.folder.path().join("secrets");
    let ask = |path: &str| {
        let mut admin = Client::connect(signing.node.admin);
        admin.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        admin.answer().text().to_owned()
    };
    let config = |flag: &str| {
        let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
        command.arg(flag).env("CHRONOS_CALLBACKS_SIGNING_SECRETS_FILE", &file);
        command.output().expect("it runs")
    };
    let printed = config("--print-config");
    assert!(printed.status.success());
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.contains("signing_secrets_file"));
    write(&file, &format!("{FIRST}{SECOND}\n"));
    let mistake = config("--check-config");
    let told = String::from_utf8_lossy(&mistake.stderr).into_owned();
    assert_eq!(mistake.status.code(), Some(2), "{told}");
    assert!(told.contains("[callbacks] signing_secrets_file") && told.contains("line 1"), "{told}");
    for (place, shown) in [
        ("the log", &*signing.node.logged()),
        ("/status", &ask("/status")),
        ("/metrics", &ask("/metrics")),
        ("--print-config", &printed),
        ("an error", &told),
    ] {
        for secret in [FIRST, SECOND] {
            assert!(!shown.contains(&secret[6..20]), "{place}: {shown}");
        }
    }
    mode(&file, "640");
    let refused = config("--check-config");
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains("found mode 0640") && told.contains("chmod 600"), "{told}");
}
