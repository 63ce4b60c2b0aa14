//! How failures are told: in one shape with `--json`, and with what to do.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};

use kit::children::{self, Tied};

use super::harness::{Node, run, run_with, text};

#[test]
fn failures_have_one_shape_with_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = text(folder.path().join("nothing"));
    let tokens = text(folder.path().join("tokens"));
    std::fs::write(&tokens, "no line of a token\n").expect("written");
    let gone = ["--admin", "127.0.0.1:9"];
    let cases: &[(&[&str], i32)] = &[
        (&["cluster", "status"], 1),
        (&["cluster", "resync"], 1),
        (&["cluster", "join", "a:1"], 1),
        (&["cluster", "leave", "a:1", "a:1"], 2),
        (&["backup", &nowhere], 1),
        (&["timer", "list"], 1),
        (&["destinations", "list"], 1),
        (&["jobs", "list"], 1),
        (&["jobs", "wait", "a"], 1),
        (&["dead-letters", "list"], 1),
        (&["top"], 1),
    ];
    let told = |words: &[&str], code: i32| {
        let ended = run(&[words, &["--json"]].concat());
        let document = ended.expect(code, "error: ").json();
        assert!(ended.out.ends_with('\n'), "{ended:?}");
        assert!(document["error"].as_str().is_some_and(|text| !text.is_empty()), "{ended:?}");
        assert!(document.get("status").is_some(), "{ended:?}");
        assert_eq!(document.as_object().map(serde_json::Map::len), Some(2), "{ended:?}");
        document
    };
    for (words, code) in cases {
        told(&[words, &gone[..]].concat(), *code);
    }
    for command in ["check", "stats", "dump", "repair"] {
        told(&["journal", command, "--data-dir", &nowhere], 2);
    }
    told(&["token", "new", "--name", "a", "--role", "client", "--file", &tokens], 1);
    told(&["timestamp", "get", "--server", "127.0.0.1:9", "--tries", "1"], 1);
    told(&["timestamp", "get", "--server", "x"], 2);
    told(&["timestamp", "bench", "--server", "x"], 2);
    told(&["timestamp", "bench", "--read-log", &nowhere], 1);
    // A node that refuses has a status.
    let node = Node::start("");
    let admin = node.admin.to_string();
    let refused = told(&["backup", &nowhere, "--admin", &admin], 1);
    assert_eq!(refused["status"], 409, "it has no journal");
}

/// Answers each request with the next of these, and ends the connection; an empty one is none.
fn answers(list: &'static [&'static str]) -> (SocketAddr, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (sender, asked) = channel();
    std::thread::spawn(move || {
        for answer in list {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
            let _ = sender.send(());
        }
    });
    (address, asked)
}

const RUNS: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"state\":\"running\"}";
const BUSY: &str = "HTTP/1.1 503 Busy\r\nConnection: close\r\n\r\nbusy";

#[test]
fn who_waits_for_a_job_asks_again_and_hears_that_it_was_stopped() {
    const STOPPED: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\
        {\"state\":\"stopped\",\"failed\":0,\"complete\":true}";
    let (address, asked) = answers(&[RUNS, "", BUSY, RUNS, STOPPED]);
    let ended = run(&["jobs", "wait", "a", "--admin", &address.to_string()]);
    ended.expect(1, "asking again: ");
    assert!(ended.errors.contains("the job was stopped"), "{ended:?}");
    assert_eq!(ended.errors.matches("asking again").count(), 1, "{ended:?}");
    assert_eq!(asked.iter().count(), 5);
    let (address, _asked) = answers(&[RUNS; 1_000]);
    let words = ["jobs", "wait", "a", "--timeout", "0.5", "--admin", &address.to_string()];
    run(&words).expect(1, "job a still runs after 0 s");
}

#[test]
fn who_may_not_list_hears_of_the_token() {
    let node = Node::start("");
    let (server, admin) = (node.address.to_string(), node.admin.to_string());
    let list = ["timer", "list", "--server", &server];
    let token = [("CHRONOS_TOKEN", "chr_none")];
    run_with(&list, &token).expect(1, "unset CHRONOS_TOKEN, or name the admin API with --admin");
    run_with(&[&list[..], &["--admin", &admin]].concat(), &token).expect(0, "no timers");
}

#[test]
fn what_is_refused_is_named_in_the_words_of_who_asked() {
    let node = Node::start("");
    for action in ["get", "pause", "resume", "run-now"] {
        node.timer(&[action, "--name", "none"]).expect(1, "no timer with this name");
    }
    let id = "687ebc01f9400001-2-0000801000840080";
    node.timer(&["get", id]).expect(1, "no timer with this id");
    let bad = ["create", "--interval", "5m", "--uri", "htp://a/\u{1b}[2J?key=secret"];
    let refused = node.timer(&bad);
    refused.expect(1, r#"in "htp://a/\u{1b}[2J...""#);
    assert!(!refused.errors.contains("secret"), "{refused:?}");
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for words in [&["--help"][..], &["-h"], &["--version"], &["timer", "--help"], &["help"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("it is there");
        let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
        command.env_clear().args(words).stdin(Stdio::null()).stdout(full).stderr(Stdio::piped());
        let output = command.spawn_tied().expect("it runs").wait_with_output().expect("it ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {errors}");
        assert!(errors.starts_with("error: No space left"), "{words:?}: {errors}");
    }
}

#[test]
fn lists_in_variables_may_be_json_and_off_is_told_of() {
    let check = |name: &str, value: &str| run_with(&["config", "check"], &[(name, value)]);
    let two = "\"127.0.0.1:7253\", \"127.0.0.2:7253\"";
    let set = [
        ("CHRONOS_CLUSTER_LOCALHOST", "127.0.0.1:7253"),
        ("CHRONOS_CLUSTER_NODES", &format!("[{two}]")),
        ("CHRONOS_NODE_INSTANCE_ID", "1"),
    ];
    let shown = run_with(&["config", "show", "--json"], &set).expect(0, "").json();
    assert_eq!(shown["cluster"]["nodes"], serde_json::json!(["127.0.0.1:7253", "127.0.0.2:7253"]));
    check("CHRONOS_CLUSTER_NODES", &format!("[{two}")).expect(2, "expected a list of at most");
    check("CHRONOS_ADMIN_LISTEN", "off").expect(2, "CHRONOS_ADMIN_ENABLED=false");
    check("CHRONOS_ADMIN_ENABLED", "false").expect(0, "");
}

#[test]
fn durations_have_units_wherever_seconds_are_taken() {
    let node = Node::start("");
    let id = node.create(&["--interval", "1h", "--uri", super::harness::NOWHERE]);
    node.timer(&["get", &id]).expect(0, "in 3599.");
    node.timer(&["watch", &id, "--every", "PT1S", "--for", "1s"]).expect(1, "waits");
    node.operate(&["top", "--once", "--every", "1s"]).expect(0, "serving");
    node.operate(&["cluster", "status", "--wait", "1m"]).expect(0, "1 node");
    node.operate(&["cluster", "resync", "--timeout", "1h"]).expect(0, "1 of 1 nodes");
    for words in [
        &["top", "--every", "2h"][..],
        &["cluster", "status", "--wait", "2d"],
        &["cluster", "resync", "--timeout", "8d"],
        &["timer", "watch", &id, "--for", "0s"],
        &["jobs", "wait", "a", "--timeout", "1.5m"],
    ] {
        run(words).expect(2, "seconds, as 90, 1.5, 15m, 1h30m, 2d or PT15M");
    }
}
