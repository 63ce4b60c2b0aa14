//! Text of strangers: names, tags and answers do nothing to the terminal that shows them.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::harness::{Ended, NOWHERE, Node, run};

/// Clears the screen, sets a title, turns text round.
const NAME: &str = "a\u{1b}[2J\u{1b}]0;owned\u{7}\r\u{9b}31m\u{202e}b";

#[track_caller]
fn assert_harmless(ended: &Ended) {
    let all = [&ended.out[..], &ended.errors].concat();
    let is_hostile = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!all.chars().any(is_hostile), "{all:?}");
    assert!(!all.is_empty());
}

#[test]
fn names_tags_and_opaque_data_are_escaped() {
    let node = Node::start("");
    let words = ["--interval", "1h", "--uri", NOWHERE, "--name", NAME, "--tag", NAME];
    let opaque = ["--opaque", NAME, "--header", "X-A: b"];
    node.create(&[&words[..], &opaque].concat());
    for words in [
        &["list"][..],
        &["list", "--json"],
        &["get", "--name", NAME],
        &["get", "--name", NAME, "--json"],
        &["count"],
        &["count", "--json"],
        &["watch", "--name", NAME, "--for", "0.2"],
        &["delete", "--tag", NAME, "--json"],
    ] {
        assert_harmless(&node.timer(words));
    }
    assert_harmless(&node.operate(&["jobs", "list"]));
    let found = node.timer(&["list", "--state", NAME]);
    assert_harmless(found.expect(1, "state: expected armed"));
}

/// Answers every request with this.
fn server(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client");
            let mut head = [0; 4096];
            // What the client asks, and whether it reads, is its affair.
            let _ = stream.read(&mut head);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

fn http(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
}

#[test]
fn hostile_servers_are_told_of_and_believed_nothing() {
    let escaped = "\\u001b[2J\\u009b31m\\u202e";
    let page = format!(
        "{{\"timers\":[{{\"location\":\"{escaped}\",\"state\":\"{escaped}\",\"name\":7,\
         \"callback\":{{\"http\":{{\"uri\":\"{escaped}\"}}}}}}],\"incomplete\":[\"{escaped}\"],\
         \"{escaped}\":[{{}}],\"destinations\":[{{\"destination\":\"{escaped}\",\
         \"breaker\":\"{escaped}\"}}],\"jobs\":[{{\"id\":\"{escaped}\"}}],\"state\":\"{escaped}\",\
         \"version\":[],\"per_core\":[{{\"core\":\"{escaped}\"}}],\"cluster\":{{\"members\":[\
         {{\"name\":\"{escaped}\"}}]}},\"dead-letters\":[{{\"location\":\"{escaped}\"}}]}}"
    );
    let commands = [
        &["timer", "list"][..],
        &["timer", "list", "--json"],
        &["timer", "count"],
        &["dead-letters", "list"],
        &["jobs", "list"],
        &["destinations", "list"],
        &["destinations", "show", "a"],
        &["top", "--once", "--every", "0.1"],
        &["doctor"],
    ];
    let refused = http("400 Bad Request", "no \u{1b}[2J\r\u{202e}");
    for answer in [
        http("200 OK", &page),
        refused,
        http("200 OK", "{\"timers\":"),
        http("200 OK", "[[[]]]"),
        http("200 OK", "7"),
        http("200 OK", ""),
        "\u{1b}[2J nonsense\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort".to_owned(),
    ] {
        let address = server(answer.clone());
        for words in commands {
            let ended = run(&[words, &["--admin", &address]].concat());
            assert!(matches!(ended.code, Some(0 | 1)), "{answer:?}: {ended:?}");
            assert!(!ended.errors.contains("panicked"), "{answer:?}: {ended:?}");
            assert_harmless(&ended);
        }
        let ended = run(&["timer", "get", "x", "--server", &address]);
        assert!(matches!(ended.code, Some(0 | 1)), "{answer:?}: {ended:?}");
    }
}

/// A list whose pages never end is not followed for ever: each has a cursor and nothing new.
#[test]
fn a_server_that_sends_pages_for_ever_is_left_at_the_limit() {
    let timer = "{\"location\":\"/timers/x\"}";
    let page = format!("{{\"timers\":[{timer},{timer},{timer}],\"cursor\":\"c\"}}");
    let address = server(http("200 OK", &page));
    let listed = run(&["timer", "list", "--limit", "10", "--json", "--admin", &address]);
    let listed = listed.expect(0, "").json();
    assert_eq!(listed["timers"].as_array().map(Vec::len), Some(10));
    let empty = server(http("200 OK", "{\"timers\":[],\"cursor\":\"c\"}"));
    run(&["timer", "list", "--admin", &empty]).expect(1, "the same cursor twice");
    let used = server(http("200 OK", "{\"replayed\":1,\"cursor\":\"c\"}"));
    run(&["dead-letters", "replay", "--all", "--admin", &used]).expect(1, "the same cursor twice");
}

/// What answers 200 to everything is no node, and nothing was done there.
#[test]
fn what_a_command_needs_and_an_answer_lacks_is_an_error() {
    let address = server(http("200 OK", "{}"));
    let folder = std::env::temp_dir().join("chronos-no-backup");
    let folder = folder.display().to_string();
    for (words, lacks) in [
        (&["backup", &*folder][..], "state"),
        (&["cluster", "resync"], "name"),
        (&["cluster", "status"], "name"),
        (&["timer", "list"], "timers"),
        (&["timer", "count"], "timers"),
        (&["timer", "delete", "--tag", "a"], "id"),
        (&["jobs", "list"], "jobs"),
        (&["jobs", "show", "a"], "state"),
        (&["dead-letters", "list"], "dead-letters"),
        (&["dead-letters", "replay", "--all"], "replayed"),
        (&["dead-letters", "show", "a"], "dead-letter"),
        (&["dead-letters", "replay", "a"], "Location"),
        (&["dead-letters", "delete", "a"], "Location"),
        (&["destinations", "list"], "destinations"),
        (&["destinations", "show", "a"], "destination"),
        (&["destinations", "set", "a"], "destination"),
        (&["destinations", "pause", "a"], "destination"),
        (&["destinations", "resume", "a"], "destination"),
        (&["destinations", "reset", "a"], "destination"),
        (&["doctor"], "state"),
        (&["top", "--once", "--every", "0.1"], "state"),
    ] {
        let ended = run(&[words, &["--admin", &address]].concat());
        ended.expect(1, &format!("{address} answered 200 without {lacks}"));
    }
    let create =
        ["timer", "create", "--interval", "5m", "--uri", "http://127.0.0.1:9/", "--opaque"];
    for (words, lacks) in
        [(&[&create[..], &["x"]].concat()[..], "Location"), (&["timer", "get", "x"], "timing")]
    {
        let ended = run(&[words, &["--server", &address]].concat());
        ended.expect(1, &format!("{address} answered 200 without {lacks}"));
    }
}
