//! Limits of a token's name: timers, creates a second, connections. One tenant's limit is no
//! other's.

use std::path::{Path, PathBuf};
use std::time::Instant;

use tempfile::TempDir;

use super::bulk::Bulk;
use super::harness::{Answer, Client, End, Node, document, far_document, until};
use super::sink::Sink;
use super::tokens::{text, token_command};

/// The path of a timer that nobody has made.
const FREE: &str = "/timers/0000000000000077-1";

/// A folder with a file of tokens, and a node of two cores that reads it.
struct Limited {
    folder: TempDir,
    node: Option<Node>,
    /// The tenant with limits, and another one without any.
    tenant: String,
    other: String,
}

fn new_token(file: &Path, words: &[&str]) -> String {
    let made = token_command(&[&["--role", "client"], words].concat(), Some(file));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let token = String::from_utf8(made.stdout).expect("text");
    format!("Bearer {}", token.trim_end())
}

impl Limited {
    fn start(limits: &[&str]) -> Limited {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens");
        let tenant = new_token(&file, &[&["--name", "tenant"], limits].concat());
        let other = new_token(&file, &["--name", "other"]);
        let mut limited = Limited { folder, node: None, tenant, other };
        limited.begin(2);
        limited
    }

    fn begin(&mut self, shards: u16) {
        let (file, data) = (self.file(), self.folder.path().join("data"));
        let config = format!("[auth]\ntokens_file = {file:?}\n[journal]\ndata_dir = {data:?}\n");
        self.node = Some(Node::start(shards, &config));
    }

    fn node(&self) -> &Node {
        self.node.as_ref().expect("it runs")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("tokens")
    }

    /// Asks over a connection of its own, so that either core may have it.
    fn ask(&self, method: &str, path: &str, token: &str) -> Answer {
        let mut client = self.node().client();
        client.send(text(method, path, Some(token)));
        client.answer()
    }

    /// Creates timers until one is refused. Returns their paths, and the refusal.
    fn fill(&self, token: &str) -> (Vec<String>, Answer) {
        let mut made = Vec::new();
        loop {
            let answer = self.ask("POST", "/timers", token);
            if answer.status != 200 {
                return (made, answer);
            }
            made.push(path_of(&answer));
        }
    }

    fn refused(&self, what: &str) -> f64 {
        self.node().metric(&format!("chronos_requests_beyond_{what}_total"))
    }
}

fn path_of(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("Content-Location").expect("a path").to_owned()
}

fn assert_limited(answer: &Answer, says: &str) {
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(answer.header("Reason"), Some(answer.text()));
    assert!(answer.text().contains("the token tenant ") && answer.text().contains(says));
    assert!(answer.text().ends_with("= in auth.tokens_file)"), "whole: {answer:?}");
}

#[test]
fn a_name_has_as_many_timers_as_it_may() {
    let limited = Limited::start(&["--timers", "20"]);
    let second = new_token(&limited.file(), &["--name", "tenant"]);
    limited.node().signal("HUP");
    until("the second token", || {
        (limited.ask("DELETE", FREE, &second).status == 200).then_some(())
    });
    let (made, refused) = limited.fill(&limited.tenant);
    assert_eq!(made.len(), 20, "one at a time, so no two cores look at the same time");
    assert_limited(&refused, "all its 20 timers");
    assert!(!refused.says_close() && refused.header("Retry-After").is_none());
    assert_limited(&limited.ask("POST", "/timers", &second), "all its 20 timers");
    assert_limited(&limited.ask("PUT", FREE, &second), "all its 20 timers");
    for path in &made[..5] {
        assert_eq!(limited.ask("PUT", path, &second).status, 200, "an own timer, replaced");
    }
    for _ in 0..30 {
        assert_eq!(limited.ask("POST", "/timers", &limited.other).status, 200, "another tenant");
    }
    until("refusals are counted", || (limited.refused("timers") == 3.0).then_some(()));

    assert_eq!(limited.ask("DELETE", &made[7], &limited.other).status, 200);
    assert_eq!(limited.ask("PUT", &made[8], &limited.other).status, 200, "another's now");
    let (more, _) = limited.fill(&limited.tenant);
    assert_eq!(more.len(), 2);
    assert_limited(&limited.ask("PUT", &made[8], &limited.tenant), "all its 20 timers");
    let read = limited.ask("GET", &made[0], &limited.tenant);
    let read: serde_json::Value = serde_json::from_str(read.text()).expect("JSON");
    assert_eq!(read["statistics"]["tag-info"], serde_json::json!([]), "nothing of the owner");
    let logged = until("it is logged whose requests are refused", || {
        Some(limited.node().logged()).filter(|logged| logged.contains("\"name\":\"tenant\""))
    });
    assert!(!logged.contains(&limited.tenant[7..]), "{logged}");
}

#[test]
fn timers_that_popped_make_room() {
    let limited = Limited::start(&["--timers", "3"]);
    let sink = Sink::ok();
    let body = document("0.1", None, &format!("http://{}/pop", sink.address), "x");
    let post = || {
        let mut client = limited.node().client();
        let (token, length) = (&limited.tenant, body.len());
        client.send(format!(
            "POST /timers HTTP/1.1\r\nHost: a\r\nAuthorization: {token}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        ));
        client.answer().status
    };
    for _ in 0..10 {
        until("a timer has popped", || (post() == 200).then_some(()));
    }
}

#[test]
fn timers_count_after_a_restart() {
    let mut limited = Limited::start(&["--timers", "6"]);
    let (made, _) = limited.fill(&limited.tenant);
    limited.node().signal("TERM");
    assert!(limited.node().wait().success());
    limited.begin(3);
    assert_limited(&limited.ask("POST", "/timers", &limited.tenant), "all its 6 timers");
    assert_eq!(limited.ask("DELETE", &made[0], &limited.tenant).status, 200);
    let (more, _) = limited.fill(&limited.tenant);
    assert_eq!((made.len(), more.len()), (6, 1));
}

#[test]
fn limits_change_while_the_node_runs() {
    let limited = Limited::start(&["--timers", "2"]);
    assert_eq!(limited.fill(&limited.tenant).0.len(), 2);
    let lines = std::fs::read_to_string(limited.file()).expect("there");
    let set = |limits: &str| {
        std::fs::write(limited.file(), lines.replace("timers=2", limits)).expect("written");
        limited.node().signal("HUP");
    };
    set("timers=5");
    let more = until("room for more", || {
        Some(limited.fill(&limited.tenant).0.len()).filter(|more| *more > 0)
    });
    assert_eq!(more, 3, "the two from before count");
    for (wrong, told) in [("timers=0", "line 1"), ("timers=1 rate=3", "timers=N, creates_per_s=N")]
    {
        set(wrong);
        until("the mistake is told", || limited.node().logged().contains(told).then_some(()));
        assert_limited(&limited.ask("POST", "/timers", &limited.tenant), "all its 5 timers");
    }
    set("timers=4");
    until("a lower limit", || {
        let refused = limited.ask("POST", "/timers", &limited.tenant);
        refused.text().contains("all its 4 timers").then_some(())
    });
    set("");
    until("no limit", || {
        (limited.ask("POST", "/timers", &limited.tenant).status == 200).then_some(())
    });
    assert_eq!(limited.ask("POST", "/timers", &limited.other).status, 200);
}

/// Many creates at once, over one connection. Returns how many were taken, and a refusal.
fn burst(limited: &Limited, creates: usize) -> (usize, Option<Answer>) {
    let mut client = limited.node().client();
    client.send(text("POST", "/timers", Some(&limited.tenant)).repeat(creates));
    let answers: Vec<Answer> = (0..creates).map(|_| client.answer()).collect();
    let taken = answers.iter().filter(|answer| answer.status == 200).count();
    client.send(text("GET", "/ping", Some(&limited.tenant)));
    assert_eq!(client.answer().status, 200, "the connection stays");
    (taken, answers.into_iter().find(|answer| answer.status != 200))
}

/// The results of so many lines.
fn bulk(limited: &Limited, token: &str, lines: usize) -> Vec<serde_json::Value> {
    let body = (far_document() + "\n").repeat(lines);
    let headers = format!("Authorization: {token}\r\nContent-Length: {}\r\n", body.len());
    let mut bulk = Bulk::begin(limited.node(), &headers);
    bulk.send(body);
    bulk.begins();
    bulk.results()
}

#[test]
fn each_line_of_a_bulk_request_counts() {
    let limited = Limited::start(&["--timers", "20"]);
    let results = bulk(&limited, &limited.tenant, 30);
    let (made, refused) = results.split_at(20);
    assert!(made.iter().all(|result| result["location"].is_string()), "{made:?}");
    for result in refused {
        assert_eq!(result["status"], 429, "{result}");
        let reason = result["reason"].as_str().expect("text");
        assert!(reason.contains("the token tenant has all its 20 timers"), "{reason}");
    }
    assert_eq!((refused.len(), &refused[9]["line"]), (10, &30.into()));
    until("refusals are counted", || (limited.refused("timers") == 10.0).then_some(()));
    assert_eq!(bulk(&limited, &limited.other, 5).len(), 5);
}

#[test]
fn each_line_counts_towards_the_rate() {
    let limited = Limited::start(&["--creates-per-second", "5"]);
    let begun = Instant::now();
    let results = bulk(&limited, &limited.tenant, 2_000);
    let made = results.iter().filter(|result| result["location"].is_string()).count();
    let most = 6 + 5 * begun.elapsed().as_millis() as usize / 1_000;
    assert!((5..=most).contains(&made), "{made} of at most {most}");
    let refused = results.iter().find(|result| result["status"] == 429).expect("most are");
    let reason = refused["reason"].as_str().expect("text");
    assert!(reason.contains("may create, replace and delete 5 timers a second"), "{reason}");
    assert_eq!(refused["type"], "urn:chronos:error:quota");
    assert!(bulk(&limited, &limited.other, 50).iter().all(|one| one["location"].is_string()));
}

/// A stream may last for hours, and its token may be taken away meanwhile.
#[test]
fn a_token_that_is_taken_away_ends_its_stream() {
    let limited = Limited::start(&["--timers", "1000"]);
    let line = far_document() + "\n";
    let begin = |token: &str| {
        let headers = format!("Authorization: {token}\r\nTransfer-Encoding: chunked\r\n");
        let mut bulk = Bulk::begin(limited.node(), &headers);
        bulk.send_chunk(&line);
        bulk.begins();
        assert!(bulk.result().expect("a result")["location"].is_string());
        bulk
    };
    let (mut gone, mut stays) = (begin(&limited.tenant), begin(&limited.other));
    let lines = std::fs::read_to_string(limited.file()).expect("a file");
    let others: String = lines
        .lines()
        .filter(|line| !line.starts_with("tenant "))
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(limited.file(), others).expect("written");
    limited.node().signal("HUP");
    until("the token to be refused", || {
        (limited.ask("DELETE", FREE, &limited.tenant).status == 401).then_some(())
    });
    stays.send_chunk(&line);
    assert!(stays.result().expect("a result")["location"].is_string(), "it is good still");
    gone.send_chunk(&line);
    let rest = gone.results();
    assert_eq!((rest.len(), &rest[0]["status"]), (1, &401.into()), "{rest:?}");
}

#[test]
fn creates_beyond_the_rate_are_refused_and_those_of_others_are_not() {
    const RATE: usize = 3;
    let limited = Limited::start(&["--creates-per-second", "3"]);
    let begun = Instant::now();
    let mut taken = 0;
    let refused = until("a refusal", || {
        let (more, refused) = burst(&limited, 20);
        taken += more;
        refused
    });
    let seconds = begun.elapsed().as_secs_f64();
    assert!(taken >= RATE, "those of a second are taken at once: {taken}");
    assert!((taken as f64) <= RATE as f64 * (seconds + 1.0), "{taken} in {seconds} s");
    assert_limited(&refused, "may create, replace and delete 3 timers a second");
    assert!(!refused.says_close());
    assert_eq!(refused.header("Retry-After"), Some("1"));
    let (mut tenant, mut other) = (limited.node().client(), limited.node().client());
    for _ in 0..20 {
        tenant.send(text("PUT", FREE, Some(&limited.tenant)));
        other.send(text("POST", "/timers", Some(&limited.other)));
        assert!(matches!(tenant.answer().status, 200 | 429));
        assert_eq!(other.answer().status, 200, "another tenant");
    }
    // What is deleted leaves a trace that has room like a timer, so deletes have the rate as well.
    until("a delete to be refused", || {
        let refused = limited.ask("DELETE", FREE, &limited.tenant).status == 429;
        assert_eq!(limited.ask("DELETE", FREE, &limited.other).status, 200, "another tenant");
        refused.then_some(())
    });
    tenant.send(text("GET", FREE, Some(&limited.tenant)));
    assert!(matches!(tenant.answer().status, 200 | 404), "reads have no rate");
    until("time makes room", || {
        (limited.ask("POST", "/timers", &limited.tenant).status == 200).then_some(())
    });
    assert!(limited.refused("create_rate") >= 1.0);
}

#[test]
fn a_name_has_as_many_connections_as_it_may() {
    let limited = Limited::start(&["--connections", "3"]);
    let show = |token: &str| {
        let mut client = limited.node().client();
        client.send(text("GET", FREE, Some(token)));
        let answer = client.answer();
        (client, answer)
    };
    let mut held: Vec<Client> = Vec::new();
    for _ in 0..3 {
        let (client, answer) = show(&limited.tenant);
        assert_eq!(answer.status, 404);
        held.push(client);
    }
    for _ in 0..6 {
        let (mut client, refused) = show(&limited.tenant);
        assert_limited(&refused, "all its 3 connections");
        assert!(refused.says_close());
        assert_eq!(client.end(), End::Closed);
        let (_, answer) = show(&limited.other);
        assert_eq!(answer.status, 404, "another tenant");
    }
    for client in &mut held {
        client.send(text("GET", FREE, Some(&limited.tenant)));
        assert_eq!(client.answer().status, 404, "those that count go on");
    }
    // A connection may come to another name.
    held[0].send(text("GET", FREE, Some(&limited.other)));
    assert_eq!(held[0].answer().status, 404);
    let (fourth, answer) = show(&limited.tenant);
    assert_eq!(answer.status, 404, "its place was free at once");
    drop((fourth, held));
    let again = until("the node sees that they ended", || {
        let (client, answer) = show(&limited.tenant);
        (answer.status == 404).then_some(client)
    });
    drop(again);
    until("refusals are counted", || (limited.refused("connections") >= 6.0).then_some(()));
}

#[test]
fn the_command_writes_limits_and_keeps_those_of_a_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let all = ["--timers", "5", "--creates-per-second", "7", "--connections", "9"];
    new_token(&file, &[&["--name", "tenant"], &all[..]].concat());
    new_token(&file, &["--name", "tenant"]);
    let lines = std::fs::read_to_string(&file).expect("there");
    let ends =
        lines.lines().filter(|line| line.ends_with(" timers=5 creates_per_s=7 connections=9"));
    assert_eq!(ends.count(), 2, "{lines}");
    let words = ["--role", "client", "--name", "new", "--timers"];
    let printed = token_command(&[&words[..], &["8"]].concat(), None);
    let line = String::from_utf8_lossy(&printed.stderr).into_owned();
    assert!(line.trim_end().ends_with(" timers=8"), "{line}");
    for wrong in ["0", "-1", "many", "4294967296"] {
        let refused = token_command(&[&words[..], &[wrong]].concat(), None);
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0));
    }
    let third = lines.lines().next().expect("a line").to_owned();
    std::fs::write(&file, third).expect("written");
    let words = ["--role", "client", "--name", "tenant", "--timers", "6"];
    let refused = token_command(&words, Some(&file));
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("timers=5 creates_per_s=7 connections=9"), "{told}");
}
