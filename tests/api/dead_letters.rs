//! Dead letters (docs/api.md, "Dead letters"): pops that are given up are kept, shown, tried again,
//! deleted, or sent to a URI of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::harness::{Answer, Client, Node, request_text, until};
use super::sink::{Reaction, Sink};
use super::tokens::new_token;

/// A server that answers with this status and its reason as a body.
pub(super) fn server(status: u16) -> (Sink, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(status));
    let told = status.clone();
    let sink = Sink::start(move |callback, _| {
        let (status, path) = (told.load(SeqCst), &callback.path);
        let body = format!("no: {path}");
        let length = body.len();
        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n");
        Reaction::Bytes((head + &body).into_bytes())
    });
    (sink, status)
}

/// A timer that pops at once, twice at most, and then is given up.
pub(super) fn hasty(uri: &str, more: Value) -> String {
    let mut callback = json!({
        "http": {"uri": uri, "opaque": "any text", "headers": {"X-Secret": "s"}},
        "retry": {"max-attempts": 2, "initial": 0.02, "jitter": 0},
    });
    let members = callback.as_object_mut().expect("an object");
    members.extend(more.as_object().expect("an object").clone());
    let tags = json!({"tag-info": [{"type": "CALL"}]});
    json!({"timing": {"interval": 0}, "callback": callback, "statistics": tags}).to_string()
}

pub(super) fn letter_path(timer: &str) -> String {
    timer.replace("/timers/", "/dead-letters/")
}

/// A node that needs tokens, and a client of it.
pub(super) struct Kept {
    _folder: TempDir,
    pub node: Node,
    pub tokens: [String; 3],
}

impl Kept {
    pub fn start(shards: u16, more: &str) -> Kept {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens");
        let tokens = ["reader", "client", "operator"].map(|role| new_token(&file, role, role));
        let node = Node::start(shards, &format!("[auth]\ntokens_file = {file:?}\n{more}"));
        Kept { _folder: folder, node, tokens }
    }

    fn ask_as(&self, role: usize, method: &str, path: &str, body: &str) -> Answer {
        self.ask_with((role, ""), method, path, body)
    }

    /// Asks in the name of a role, with more lines in the head.
    pub fn ask_with(
        &self,
        (role, lines): (usize, &str),
        method: &str,
        path: &str,
        body: &str,
    ) -> Answer {
        let shown = format!("\r\n{lines}Authorization: Bearer {}\r\n", self.tokens[role]);
        let mut client: Client = self.node.client();
        client.send(request_text(method, path, body).replacen("\r\n", &shown, 1));
        client.answer()
    }

    pub fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        self.ask_as(1, method, path, body)
    }

    pub fn create(&self, document: &str) -> String {
        let answer = self.ask("POST", "/timers", document);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.header("Location").expect("created").to_owned()
    }

    pub fn json(&self, method: &str, path: &str) -> Value {
        let answer = self.ask(method, path, "");
        assert_eq!(answer.status, 200, "{method} {path}: {answer:?}");
        serde_json::from_str(answer.text()).expect("JSON")
    }

    /// The letter of a timer, when it is there.
    pub fn await_letter(&self, timer: &str) -> Value {
        let path = letter_path(timer);
        until("a dead letter", || {
            let answer = self.ask("GET", &path, "");
            let is_there = answer.status == 200;
            is_there.then(|| serde_json::from_str(answer.text()).expect("JSON"))
        })
    }

    pub fn letters(&self, query: &str) -> Vec<Value> {
        let page = self.json("GET", &format!("/dead-letters?{query}"));
        page["dead-letters"].as_array().expect("an array").clone()
    }
}

#[test]
fn what_is_given_up_is_kept_and_tells_why() {
    let kept = Kept::start(2, "");
    let (sink, _) = server(503);
    let timer = kept.create(&hasty(&sink.uri("/a?b"), json!({})));
    let shown = kept.await_letter(&timer);
    let letter = &shown["dead-letter"];
    assert_eq!(letter["reason"], "attempts");
    assert_eq!((&letter["attempts"], &letter["status"]), (&json!(2), &json!(503)));
    assert_eq!((&letter["failure"], &letter["answer"]), (&json!("status"), &json!("no: /a?b")));
    assert_eq!(letter["sequence-number"], 1);
    for moment in ["given-up-at", "kept-until"] {
        let text = letter[moment].as_str().expect("a time");
        assert!(text.ends_with('Z') && text.starts_with("20"), "{text}");
    }
    assert_eq!(shown["callback"]["http"]["uri"], sink.uri("/a?b"));
    assert_eq!(shown["callback"]["http"]["opaque"], "any text");
    assert_eq!(shown["callback"]["retry"]["max-attempts"], 2);
    assert_eq!(shown["statistics"]["tag-info"][0]["type"], "CALL");
    assert_eq!(kept.ask("GET", &timer, "").status, 404, "the timer is over");
    kept.node.await_metric("chronos_dead_letters", 1.0);
    assert_eq!(kept.node.metric("chronos_dead_letters_kept_total"), 1.0);
}

#[test]
fn letters_are_listed_by_tag_host_and_reason() {
    let kept = Kept::start(2, "");
    let (sink, _) = server(500);
    let first = kept.create(&hasty(&sink.uri("/1"), json!({})));
    let aged = json!({"retry": {"max-age": 0}});
    let other = kept.create(&hasty(&sink.uri("/2"), aged).replace("CALL", "REG"));
    kept.await_letter(&first);
    kept.await_letter(&other);
    let host = sink.address;
    let paths = |query: &str| -> Vec<String> {
        let letters = kept.letters(query);
        letters.iter().map(|it| it["location"].as_str().expect("text").to_owned()).collect()
    };
    let (first, other) = (letter_path(&first), letter_path(&other));
    assert_eq!(paths("").len(), 2);
    assert_eq!(paths("tag=CALL"), std::slice::from_ref(&first));
    assert_eq!(paths("tag=REG"), std::slice::from_ref(&other));
    assert_eq!(paths(&format!("host={host}")).len(), 2);
    assert!(paths("host=10.0.0.1").is_empty());
    assert_eq!(paths("reason=attempts"), [first]);
    assert_eq!(paths("reason=age"), [other]);
    assert!(paths("reason=denied").is_empty());
    let page = kept.json("GET", "/dead-letters?limit=1");
    let cursor = page["cursor"].as_str().expect("there is one more");
    assert_eq!(kept.letters(&format!("limit=1&cursor={cursor}")).len(), 1);
    assert!(kept.json("GET", "/timers")["timers"].as_array().expect("an array").is_empty());
    let counted = kept.json("GET", "/timers/count");
    assert_eq!((&counted["timers"], &counted["by-tag"]), (&json!(0), &json!({})), "{counted}");
    let all = kept.json("GET", "/timers?state=dead-letter");
    assert_eq!(all["timers"].as_array().map(Vec::len), Some(2));
    for (query, names) in [
        ("reason=gone", "reason"),
        ("state=armed", "query"),
        ("due-after=1", "query"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("tag=a&tag=b", "tag"),
        ("cursor=00", "cursor"),
    ] {
        for (method, path) in [
            ("GET", "/dead-letters"),
            ("DELETE", "/dead-letters"),
            ("POST", "/dead-letters/replay"),
        ] {
            let answer = kept.ask(method, &format!("{path}?{query}"), "");
            answer.assert_refusal(400, names, query);
        }
    }
    let other = kept.ask("GET", &format!("/dead-letters?tag=CALL&cursor={cursor}"), "");
    other.assert_refusal(400, "cursor", "a cursor of another query");
    assert_eq!(kept.letters("").len(), 2, "what is refused does nothing");
}

#[test]
fn a_replay_keeps_the_sequence_number_and_counts() {
    let kept = Kept::start(2, "");
    let (sink, status) = server(500);
    let timer = kept.create(&hasty(&sink.uri("/r"), json!({})));
    kept.await_letter(&timer);
    let replay = format!("{}/replay", letter_path(&timer));
    let answer = kept.ask("POST", &replay, "");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("Location"), Some(timer.as_str()));
    let seen = sink.wait_for(4);
    assert!(seen[..2].iter().all(|it| !it.head.contains("X-Replay")));
    for callback in &seen[2..] {
        assert!(callback.head.contains("X-Replay: 1\r\n"), "{}", callback.head);
        assert!(callback.head.contains("X-Secret: s\r\n"), "{}", callback.head);
        assert_eq!((callback.sequence(), &*callback.body), (1, &b"any text"[..]));
    }
    let letter = kept.await_letter(&timer);
    assert_eq!(letter["replays"], 1);
    status.store(200, SeqCst);
    assert_eq!(kept.ask("POST", &replay, "").status, 200);
    let seen = sink.wait_for(5);
    assert!(seen[4].head.contains("X-Replay: 2\r\n"), "{}", seen[4].head);
    let letter = letter_path(&timer);
    until("its end", || (kept.ask("GET", &letter, "").status == 404).then_some(()));
    assert_eq!(kept.ask("POST", &replay, "").status, 404);
    kept.node.await_metric("chronos_dead_letters", 0.0);
}

#[test]
fn letters_are_tried_again_and_deleted_by_filter() {
    let kept = Kept::start(3, "");
    let (sink, status) = server(500);
    let all: Vec<String> = (0..40)
        .map(|number| {
            let tag = if number < 30 { "CALL" } else { "REG" };
            kept.create(&hasty(&sink.uri(&format!("/{number}")), json!({})).replace("CALL", tag))
        })
        .collect();
    all.iter().for_each(|timer| drop(kept.await_letter(timer)));
    status.store(200, SeqCst);
    let (mut replayed, mut cursor) = (0, String::new());
    loop {
        let page = kept.json("POST", &format!("/dead-letters/replay?tag=CALL&limit=7{cursor}"));
        replayed += page["replayed"].as_u64().expect("a number");
        assert_eq!(page["refused"], 0);
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(replayed, 30);
    sink.wait_until("each again", |seen| {
        seen.iter().filter(|it| it.head.contains("X-Replay: 1")).count() == 30
    });
    let page = kept.json("DELETE", "/dead-letters?tag=REG&limit=1000");
    assert_eq!((&page["deleted"], page.get("cursor")), (&json!(10), None));
    until("no letter", || kept.letters("").is_empty().then_some(()));
    kept.node.await_metric("chronos_dead_letters", 0.0);
}

#[test]
fn a_letter_goes_to_its_uri_instead() {
    let kept = Kept::start(1, "");
    let (sink, _) = server(418);
    let (letters, status) = server(200);
    let to = json!({"dead-letter": {"uri": letters.uri("/dead?x")}});
    let timer = kept.create(&hasty(&sink.uri("/t"), to.clone()));
    let shown = kept.json("GET", &timer);
    assert_eq!(shown["callback"]["dead-letter"], to["dead-letter"]);
    let callback = letters.wait_for(1).remove(0);
    assert_eq!((callback.path.as_str(), &*callback.body), ("/dead?x", &b"any text"[..]));
    for line in [
        "X-Dead-Letter-Reason: attempts\r\n",
        "X-Dead-Letter-Attempts: 2\r\n",
        "X-Dead-Letter-Failure: status\r\n",
        "X-Dead-Letter-Status: 418\r\n",
        &format!("X-Dead-Letter-Uri: {}\r\n", sink.uri("/t")),
        "X-Sequence-Number: 1\r\n",
    ] {
        assert!(callback.head.contains(line), "{line}: {}", callback.head);
    }
    assert!(!callback.head.contains("X-Secret"), "that is for the other host: {}", callback.head);
    until("its end", || (kept.ask("GET", &timer, "").status == 404).then_some(()));
    assert!(kept.letters("").is_empty(), "it was taken");
    // Where the URI does not take it, it is kept.
    status.store(500, SeqCst);
    let to_again = to.clone();
    let timer = kept.create(&hasty(&sink.uri("/u"), to));
    let shown = kept.await_letter(&timer);
    assert_eq!(shown["dead-letter"]["uri-failed"], true);
    assert_eq!(shown["dead-letter"]["status"], 418);
    assert_eq!(shown["callback"]["http"]["uri"], sink.uri("/u"));
    assert_eq!(shown["callback"]["dead-letter"]["uri"], letters.uri("/dead?x"));
    // 410: it wants none, and is not asked again.
    status.store(410, SeqCst);
    let asked = letters.wait_for(2).len();
    let timer = kept.create(&hasty(&sink.uri("/v"), to_again));
    assert_eq!(kept.await_letter(&timer)["dead-letter"]["uri-failed"], true);
    assert_eq!(letters.wait_for(asked + 1).len(), asked + 1);
}

#[test]
fn bad_members_and_hosts_are_refused() {
    let kept = Kept::start(1, "");
    for (member, names) in [
        (json!({"dead-letter": 1}), "callback.dead-letter"),
        (json!({"dead-letter": {"uri": 1}}), "callback.dead-letter.uri"),
        (json!({"dead-letter": {"uri": ""}}), "callback.dead-letter.uri"),
        (json!({"dead-letter": {"uri": "ftp://a/"}}), "callback.dead-letter.uri"),
        (json!({"dead-letter": {"uri": format!("http://a/{}", "x".repeat(2_048))}}), "dead-letter"),
    ] {
        let answer = kept.ask("POST", "/timers", &hasty("http://127.0.0.1:9/", member));
        answer.assert_refusal(400, names, names);
    }
    for header in ["X-Replay", "x-dead-letter-reason"] {
        let body = hasty("http://127.0.0.1:9/", json!({})).replace("X-Secret", header);
        kept.ask("POST", "/timers", &body).assert_refusal(400, "callback.http.headers", header);
    }
    let metadata = json!({"dead-letter": {"uri": "http://169.254.169.254/"}});
    let answer = kept.ask("POST", "/timers", &hasty("http://127.0.0.1:9/", metadata));
    answer.assert_refusal(403, "callback.dead-letter.uri", "metadata");
    // An empty object is the default policy.
    let far = hasty("http://127.0.0.1:9/", json!({"dead-letter": {}}))
        .replace(r#""interval":0"#, r#""interval":3600"#);
    let mut far: Value = serde_json::from_str(&far).expect("JSON");
    far["callback"].as_object_mut().expect("an object").remove("retry");
    let timer = kept.create(&far.to_string());
    assert_eq!(kept.json("GET", &timer)["callback"]["retry"]["max-attempts"], 8);
}

#[test]
fn roles_and_methods_decide() {
    let kept = Kept::start(1, "");
    let (sink, _) = server(500);
    let timer = kept.create(&hasty(&sink.uri("/t"), json!({})));
    kept.await_letter(&timer);
    let letter = letter_path(&timer);
    let replay = format!("{letter}/replay");
    for (method, path) in [
        ("POST", replay.as_str()),
        ("DELETE", &letter),
        ("DELETE", "/dead-letters"),
        ("POST", "/dead-letters/replay"),
    ] {
        assert_eq!(kept.ask_as(0, method, path, "").status, 403, "a reader: {method} {path}");
    }
    for path in [letter.as_str(), "/dead-letters"] {
        assert_eq!(kept.ask_as(0, "GET", path, "").status, 200, "a reader looks: {path}");
    }
    for (method, path) in [("PUT", letter.as_str()), ("GET", &replay), ("POST", "/dead-letters")] {
        assert_eq!(kept.ask(method, path, "").status, 405, "{method} {path}");
    }
    assert_eq!(kept.ask_as(2, "DELETE", &letter, "").status, 200, "an operator");
    assert_eq!(kept.ask("GET", "/dead-letters/x", "").status, 404);
    // A timer that waits for its pop is no letter.
    let far =
        hasty("http://127.0.0.1:9/", json!({})).replace(r#""interval":0"#, r#""interval":3600"#);
    let timer = kept.create(&far);
    for (method, path) in
        [("DELETE", letter_path(&timer)), ("POST", format!("{}/replay", letter_path(&timer)))]
    {
        assert_eq!(kept.ask(method, &path, "").status, 404, "{method} {path}");
    }
    assert_eq!(kept.ask("GET", &timer, "").status, 200);
    // Without tokens nobody lists, but whoever knows the id may ask for it.
    let node = Node::start(1, "");
    node.request("GET", "/dead-letters", "").assert_refusal(403, "auth.tokens_file", "no tokens");
    let timer = node.create(&hasty(&sink.uri("/t"), json!({})));
    let letter = letter_path(&timer);
    until("a letter", || (node.request("GET", &letter, "").status == 200).then_some(()));
    assert_eq!(node.request("DELETE", &letter, "").status, 200);
}

#[test]
fn letters_are_bounded_and_the_oldest_leaves_first() {
    let kept = Kept::start(1, "[dead_letters]\nper_core_max = 3\n");
    let (sink, _) = server(500);
    let all: Vec<String> = (0..6)
        .map(|number| {
            let timer = kept.create(&hasty(&sink.uri(&format!("/{number}")), json!({})));
            kept.await_letter(&timer);
            timer
        })
        .collect();
    kept.node.await_metric("chronos_dead_letters_dropped_for_number_total", 3.0);
    let mut left: Vec<String> = kept
        .letters("")
        .iter()
        .map(|it| it["location"].as_str().expect("text").replace("/dead-letters/", "/timers/"))
        .collect();
    left.sort();
    let mut last = all[3..].to_vec();
    last.sort();
    assert_eq!(left, last);
    // None is kept, and a timer without a policy leaves one only if all do.
    let none = Kept::start(1, "[dead_letters]\nper_core_max = 0\n");
    let timer = none.create(&hasty(&sink.uri("/none"), json!({})));
    until("its end", || (none.ask("GET", &timer, "").status == 404).then_some(()));
    let plain = "[dead_letters]\nplain = true\n[callbacks]\ngive_up_ms = 100\n";
    let all = Kept::start(1, plain);
    let document = hasty(&sink.uri("/plain"), json!({}));
    let mut document: Value = serde_json::from_str(&document).expect("JSON");
    document["callback"].as_object_mut().expect("an object").remove("retry");
    let timer = all.create(&document.to_string());
    let letter = all.await_letter(&timer);
    assert_eq!(letter["dead-letter"]["reason"], "age");
    assert_eq!(letter["dead-letter"]["answer"], "no: /plain");
}

#[test]
fn a_letter_leaves_when_its_time_is_over() {
    let kept = Kept::start(1, "[dead_letters]\nkeep_ms = 1000\n");
    let (sink, _) = server(500);
    let timer = kept.create(&hasty(&sink.uri("/t"), json!({})));
    kept.await_letter(&timer);
    let letter = letter_path(&timer);
    until("its end", || (kept.ask("GET", &letter, "").status == 404).then_some(()));
    kept.node.await_metric("chronos_dead_letters_dropped_for_age_total", 1.0);
}

#[test]
fn answers_that_are_no_text_are_shown_in_base64_and_cut() {
    let kept = Kept::start(1, "");
    let sink = Sink::start(|callback, _| {
        let body: Vec<u8> = match callback.path.as_str() {
            "/bytes" => vec![0xff, 0xfe],
            "/long" => vec![b'x'; 100_000],
            _ => Vec::new(),
        };
        let head = format!("HTTP/1.1 500 X\r\nContent-Length: {}\r\n\r\n", body.len());
        Reaction::Bytes([head.into_bytes(), body].concat())
    });
    let bytes = kept.await_letter(&kept.create(&hasty(&sink.uri("/bytes"), json!({}))));
    assert_eq!(bytes["dead-letter"]["answer-base64"], "//4=");
    let empty = kept.await_letter(&kept.create(&hasty(&sink.uri("/empty"), json!({}))));
    assert_eq!(empty["dead-letter"].get("answer"), None);
    let long = kept.await_letter(&kept.create(&hasty(&sink.uri("/long"), json!({}))));
    let kept_bytes = long["dead-letter"]["answer"].as_str().map_or(0, str::len);
    assert!(kept_bytes <= 256, "{kept_bytes}");
    // Nobody listens there.
    let none = kept.await_letter(&kept.create(&hasty("http://127.0.0.1:1/", json!({}))));
    assert_eq!(none["dead-letter"]["failure"], "unreachable");
    assert_eq!(none["dead-letter"].get("status"), None);
}
