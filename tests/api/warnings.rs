//! `Chronos-Warning` (docs/api.md, "Warnings"): what is accepted in silence by the original's
//! contract is told in a header, and refused where a client wants that.

use serde_json::{Value, json};

use super::bulk::Bulk;
use super::harness::{Answer, Client, Node, document, far_document, request_text};

const TYPO: &str = "timing.repeat_for is not known, did you mean repeat-for?";
const NEVER: &str = "the timer never pops, because timing.repeat-for is less than \
                     timing.interval; nothing is stored";

fn with_typo() -> String {
    far_document().replace("\"interval\":3600", "\"interval\":3600,\"repeat_for\":7200")
}

fn never_pops() -> String {
    document("5", Some("3"), "http://127.0.0.1:9/", "x")
}

fn warning(answer: &Answer) -> Option<&str> {
    answer.header("Chronos-Warning")
}

#[test]
fn what_is_not_known_is_told_and_changes_nothing_else() {
    for shards in [1, 3] {
        let node = Node::start(shards, "");
        let mut client = node.client();
        let plain = client.request("POST", "/timers", &far_document());
        assert_eq!((plain.status, warning(&plain)), (200, None));
        let path = plain.header("Location").expect("a location").to_owned();
        // The owner of an id that a client chooses may be another core.
        let chosen: Vec<String> =
            (1..9_u64).map(|at| format!("/timers/{:016x}-1", at << 40)).collect();
        let puts = [path.as_str(), "/timers/by-name/a"].into_iter().map(str::to_owned);
        for path in puts.chain(chosen) {
            let told = client.request("PUT", &path, &with_typo());
            assert_eq!((told.status, warning(&told)), (200, Some(TYPO)), "{path}: {told:?}");
            assert!(told.header("Location").is_some() && told.body.is_empty(), "{told:?}");
            let plain = client.request("PUT", &path, &far_document());
            assert_eq!((plain.status, warning(&plain)), (200, None), "{path}");
        }
        let told = client.request("POST", "/timers", &with_typo());
        assert_eq!((told.status, warning(&told)), (200, Some(TYPO)));
        let path = told.header("Location").expect("a location").to_owned();
        let shown: Value =
            serde_json::from_slice(&client.request("GET", &path, "").body).expect("JSON");
        assert_eq!(shown["timing"]["repeat-for"], 3600, "what is not known is ignored");
        // What GET shows may be sent back.
        let back = client.request("PUT", &path, &shown.to_string());
        assert_eq!((back.status, warning(&back)), (200, None), "{back:?}");
    }
}

/// Answers come in the order of their requests, each with its own warning.
#[test]
fn warnings_of_requests_that_follow_each_other_are_not_mixed_up() {
    let node = Node::start(3, "");
    let mut client = node.client();
    let mut sent = String::new();
    for at in 1..60_u64 {
        let path = format!("/timers/{:016x}-1", at << 40);
        let body = match at % 3 {
            0 => with_typo(),
            1 => never_pops(),
            _ => far_document(),
        };
        sent += &request_text("PUT", &path, &body);
    }
    client.send(sent);
    for at in 1..60_u64 {
        let answer = client.answer();
        let expected = [Some(TYPO), Some(NEVER), None][(at % 3) as usize];
        assert_eq!((answer.status, warning(&answer)), (200, expected), "{at}");
    }
}

#[test]
fn a_timer_that_never_pops_is_told() {
    let node = Node::shared();
    let told = node.request("POST", "/timers", &never_pops());
    assert_eq!((told.status, warning(&told)), (200, Some(NEVER)));
    let both = never_pops().replace("\"interval\"", "\"x\":1,\"interval\"");
    let told = node.request("POST", "/timers", &both);
    let expected = format!("timing.x is not known; {NEVER}");
    assert_eq!((told.status, warning(&told)), (200, Some(&*expected)));
}

#[test]
fn strict_requests_are_refused_instead() {
    let node = Node::shared();
    let mut client = node.client();
    for (query, is_strict) in [
        ("?strict=true", true),
        ("?a=b&strict", true),
        ("?strict=1", true),
        ("?strict=false", false),
        ("?stricter=true", false),
    ] {
        for (method, path) in [
            ("POST", "/timers"),
            ("PUT", "/timers/00000000000000bb-2"),
            ("PUT", "/timers/by-name/s"),
        ] {
            let path = format!("{path}{query}");
            for (body, told) in [(with_typo(), TYPO), (never_pops(), NEVER)] {
                let answer = client.request(method, &path, &body);
                match is_strict {
                    true => answer.assert_refusal(400, told, &path),
                    false => assert_eq!((answer.status, warning(&answer)), (200, Some(told))),
                }
            }
            assert_eq!(client.request(method, &path, &far_document()).status, 200, "{path}");
        }
    }
    let body = with_typo();
    let head =
        "POST /timers?strict=true HTTP/1.1\r\nHost: x\r\nAccept: application/problem+json\r\n";
    client.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()));
    let problem: Value = serde_json::from_slice(&client.answer().body).expect("JSON");
    assert_eq!(problem["type"], "urn:chronos:error:document");
    assert_eq!(problem["detail"], TYPO);
}

#[test]
fn many_members_that_are_not_known_are_told_in_few_words() {
    let node = Node::shared();
    let members: String = (0..2_000).map(|at| format!("\"\u{e9}\\r\\n{at}\":[{{}}],")).collect();
    let body = far_document().replacen('{', &format!("{{{members}"), 1);
    let answer = node.request("POST", "/timers", &body);
    let told = warning(&answer).expect("a warning");
    assert!(told.ends_with("; and 1997 more") && told.len() <= 400, "{told}");
    assert!(told.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{told}");
}

#[test]
fn lines_of_a_bulk_request_have_warnings_of_their_own() {
    let node = Node::start(3, "");
    let body = format!("{}\n{}\n{}\n", far_document(), with_typo(), never_pops());
    let headers = format!("Content-Length: {}\r\n", body.len());
    let mut bulk = Bulk::begin(&node, &headers);
    bulk.send(&body);
    bulk.begins();
    let results = bulk.results();
    let told: Vec<_> = results.iter().map(|result| result["warning"].clone()).collect();
    assert_eq!(told, [Value::Null, json!(TYPO), json!(NEVER)]);
    assert!(results.iter().all(|result| result["location"].is_string()), "{results:?}");
    let mut client = Client::connect(node.address);
    client.send(format!(
        "POST /timers/bulk?strict=true HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         {headers}\r\n{body}"
    ));
    let answer = client.rest();
    let refused = answer.matches("{\"status\":400,").count();
    assert_eq!((refused, answer.matches("{\"location\":").count()), (2, 1), "{answer}");
    assert!(answer.contains(&format!("\"reason\":\"{TYPO}\"")), "{answer}");
}
