//! `GET /timers`: pages of timers for holders of a token and for operators.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tempfile::TempDir;

use super::harness::{Answer, Client, Node, document, far_document, request_text, until};
use super::sink::{Reaction, Sink};
use super::tokens::new_token;

/// A node with a token for each role.
struct Listed {
    _folder: TempDir,
    node: Node,
    tokens: BTreeMap<&'static str, String>,
}

impl Listed {
    fn start(shards: u16) -> Listed {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens");
        let roles = ["reader", "client", "operator"];
        let tokens = roles.map(|role| (role, new_token(&file, role, role))).into();
        let node = Node::start(shards, &format!("[auth]\ntokens_file = {file:?}\n"));
        Listed { _folder: folder, node, tokens }
    }

    fn client(&self, role: &str) -> Asker {
        Asker { client: self.node.client(), token: self.tokens[role].clone() }
    }
}

/// A connection that shows a token with each request.
struct Asker {
    client: Client,
    token: String,
}

impl Asker {
    fn ask(&mut self, method: &str, path: &str, body: &str) -> Answer {
        let shown = format!("\r\nAuthorization: Bearer {}\r\n", self.token);
        self.client.send(request_text(method, path, body).replacen("\r\n", &shown, 1));
        self.client.answer()
    }

    fn create(&mut self, document: &str) -> String {
        let answer = self.ask("POST", "/timers", document);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.header("Location").expect("created").to_owned()
    }

    fn page(&mut self, query: &str) -> Value {
        // While other pages are put together a core may have no room for one more.
        let answer = until("a page", || {
            let answer = self.ask("GET", &format!("/timers?{query}"), "");
            (answer.status != 503).then_some(answer)
        });
        assert_eq!(answer.status, 200, "{query}: {answer:?}");
        assert_eq!(answer.header("Content-Type"), Some("application/json"));
        serde_json::from_str(answer.text()).expect("JSON")
    }

    /// Every timer of a list, over all of its pages, and how many pages it has.
    fn all(&mut self, query: &str) -> (Vec<Value>, usize) {
        let (mut all, mut pages, mut cursor) = (Vec::new(), 0, String::new());
        loop {
            let page = self.page(&format!("{query}{cursor}"));
            assert!(page.get("incomplete").is_none(), "{page}");
            pages += 1;
            all.extend(page["timers"].as_array().expect("an array").iter().cloned());
            match page["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return (all, pages),
            }
        }
    }

    fn locations(&mut self, query: &str) -> BTreeSet<String> {
        let (all, _) = self.all(query);
        let locations: BTreeSet<_> = all.iter().map(location).collect();
        assert_eq!(locations.len(), all.len(), "each once");
        locations
    }
}

fn location(timer: &Value) -> String {
    timer["location"].as_str().expect("text").to_owned()
}

fn tagged(tag: &str, host: &str, seconds: u32) -> String {
    format!(
        "{{\"timing\":{{\"interval\":{seconds}}},\
         \"callback\":{{\"http\":{{\"uri\":\"http://{host}/x\",\"opaque\":\"o\"}}}},\
         \"statistics\":{{\"tag-info\":[{{\"type\":\"{tag}\"}}]}}}}"
    )
}

#[test]
fn every_timer_is_listed_once_over_all_pages() {
    for shards in [1, 3] {
        let listed = Listed::start(shards);
        let mut client = listed.client("client");
        assert_eq!(client.page(""), serde_json::json!({"timers": []}));
        let made: BTreeSet<_> = (0..57).map(|_| client.create(&far_document())).collect();
        for limit in [1, 7, 56, 57, 58, 1_000] {
            let (all, pages) = client.all(&format!("limit={limit}"));
            let locations: BTreeSet<_> = all.iter().map(location).collect();
            assert_eq!((all.len(), &locations), (57, &made), "{limit}");
            assert!(pages <= 57_usize.div_ceil(limit) + 1, "{pages} pages of {limit}");
        }
        assert_eq!(client.locations(""), made);
        let again: Vec<_> = client.all("limit=10").0.iter().map(location).collect();
        let other: Vec<_> = client.all("limit=3").0.iter().map(location).collect();
        assert_eq!(again, other, "the order never changes");
    }
}

#[test]
fn a_timer_is_shown_as_get_shows_it_and_more() {
    let listed = Listed::start(2);
    let mut client = listed.client("client");
    let path = client.create(&tagged("CALL", "127.0.0.1:9", 3_600));
    let shown: Value =
        serde_json::from_str(client.ask("GET", &path, "").text()).expect("a document");
    let page = client.page("");
    let timer = &page["timers"][0];
    for (member, value) in shown.as_object().expect("an object") {
        if member != "timing" {
            assert_eq!(&timer[member], value, "{member}");
        }
    }
    assert_eq!(timer["timing"]["interval"], shown["timing"]["interval"]);
    assert_eq!(timer["timing"]["sequence-number"], 0);
    assert_eq!((&timer["location"], &timer["state"]), (&path.into(), &"armed".into()));
    let due = timer["due-in-ms"].as_i64().expect("a number");
    assert!((3_540_000..=3_600_001).contains(&due), "{due}");
    let at = timer["due-at"].as_str().expect("text");
    assert!(at.len() == 24 && at.starts_with("20") && at.ends_with('Z'), "{at}");
}

#[test]
fn lists_have_what_the_query_asks_for() {
    let listed = Listed::start(2);
    let mut client = listed.client("operator");
    let make = |client: &mut Asker, tag: &str, host: &str, seconds| {
        client.create(&tagged(tag, host, seconds))
    };
    let a = make(&mut client, "A", "127.0.0.1:9", 600);
    let b = make(&mut client, "B", "127.0.0.1:9", 7_200);
    let c = make(&mut client, "A", "LOCALHOST:90", 86_400);
    let d = make(&mut client, "a b/&", "127.0.0.1", 60);
    let mut has = |query: &str, wanted: &[&String]| {
        let wanted: BTreeSet<_> = wanted.iter().map(|path| (*path).clone()).collect();
        assert_eq!(client.locations(query), wanted, "{query}");
    };
    has("tag=A", &[&a, &c]);
    has("tag=a", &[]);
    has("tag=a%20b%2F%26", &[&d]);
    has("host=127.0.0.1:9", &[&a, &b]);
    has("host=127.0.0.1", &[&a, &b, &d]);
    has("host=localhost:90", &[&c]);
    has("host=localhost", &[&c]);
    has("host=localhos", &[]);
    has("tag=A&host=127.0.0.1", &[&a]);
    has("due-before=3600", &[&a, &d]);
    has("due-after=3600", &[&b, &c]);
    has("due-after=100&due-before=10000", &[&a, &b]);
    has("due-before=0", &[]);
    has("due-before=1970-01-02T00:00:00Z", &[]);
    has("due-after=1970-01-02T00:00:00Z&due-before=9999-01-01T00:00:00Z", &[&a, &b, &c, &d]);
    has("state=armed", &[&a, &b, &c, &d]);
    has("state=in-flight", &[]);
    has("state=armed&tag=B&limit=1", &[&b]);
}

#[test]
fn a_list_is_stable_while_timers_come_and_go() {
    let listed = Listed::start(3);
    let mut client = listed.client("client");
    let stay: BTreeSet<_> = (0..60).map(|_| client.create(&far_document())).collect();
    let mut go: Vec<_> = (0..60).map(|_| client.create(&far_document())).collect();
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.page(&format!("limit=5{cursor}"));
        seen.extend(page["timers"].as_array().expect("an array").iter().map(location));
        for path in go.drain(..go.len().min(4)) {
            assert_eq!(client.ask("DELETE", &path, "").status, 200);
        }
        client.create(&far_document());
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let unique: BTreeSet<_> = seen.iter().cloned().collect();
    assert_eq!(unique.len(), seen.len(), "none twice");
    assert!(unique.is_superset(&stay), "none is left out");
}

#[test]
fn a_cursor_outlives_its_connection_and_serves_other_limits() {
    let listed = Listed::start(2);
    let mut client = listed.client("client");
    let made: BTreeSet<_> = (0..20).map(|_| client.create(&far_document())).collect();
    let first = client.page("limit=8");
    let cursor = first["cursor"].as_str().expect("more follow").to_owned();
    drop(client);
    let mut client = listed.client("reader");
    let rest = client.page(&format!("cursor={cursor}&limit=900"));
    let both: BTreeSet<_> = [&first, &rest]
        .iter()
        .flat_map(|page| page["timers"].as_array().expect("some"))
        .map(location)
        .collect();
    assert_eq!(both, made);
    let again = client.page(&format!("cursor={cursor}&limit=900"));
    let locations = |page: &Value| -> Vec<String> {
        page["timers"].as_array().expect("some").iter().map(location).collect()
    };
    assert_eq!(locations(&again), locations(&rest), "a page may be asked for again");
}

#[test]
fn bad_queries_are_refused_with_a_sentence() {
    let listed = Listed::start(2);
    let mut client = listed.client("client");
    (0..3).for_each(|_| drop(client.create(&far_document())));
    let page = client.page("limit=1&tag=x");
    assert!(page.get("cursor").is_none(), "{page}");
    let cursor = client.page("limit=1")["cursor"].as_str().expect("more").to_owned();
    let forged =
        format!("{}{}", &cursor[..cursor.len() - 1], if cursor.ends_with('0') { 1 } else { 0 });
    let zeros = "0".repeat(cursor.len());
    for (query, names) in [
        ("limit=0", "limit: expected 1 to 1000, got 0"),
        ("limit=1001", "limit: "),
        ("limit=ten", "limit: "),
        ("limit=1&limit=2", "limit: expected once, got it twice"),
        ("tag=", "tag: expected 1 to 64 bytes"),
        ("tag=a&tag=a", "tag: expected once"),
        ("tag=%zz", "tag: expected percent escapes"),
        ("host=", "host: expected 1 to 262 bytes"),
        ("state=asleep", "state: expected armed"),
        ("due-before=tomorrow", "due-before: expected seconds from now"),
        ("due-after=2026-02-30T00:00:00Z", "due-after: expected seconds"),
        ("due-after=5&due-before=5", "due-after: expected earlier than due-before"),
        ("due-after=2030-01-01T00:00:00Z&due-before=5", "due-after: expected earlier"),
        ("name=x", "query: expected tag, host"),
        ("cursor=", "cursor: expected one that a page of this list gave out"),
        ("cursor=1", "cursor: expected one that"),
        (&format!("cursor={forged}"), "cursor: expected one that"),
        (&format!("cursor={zeros}"), "cursor: expected one that"),
        (&format!("tag=x&cursor={cursor}"), "cursor: expected one of this query"),
    ] {
        client.ask("GET", &format!("/timers?{query}"), "").assert_refusal(400, names, query);
    }
    assert_eq!(
        client.page(&format!("cursor={cursor}"))["timers"].as_array().map(Vec::len),
        Some(2)
    );
}

#[test]
fn lists_need_a_token_of_any_role_or_the_admin_listener() {
    let listed = Listed::start(2);
    let path = listed.client("client").create(&far_document());
    for role in ["reader", "client", "operator"] {
        assert_eq!(listed.client(role).page("")["timers"][0]["location"], *path);
    }
    let refused = listed.node.request("GET", "/timers", "");
    refused.assert_refusal(401, "Authorization: missing", "no token");
    let mut admin = Client::connect(listed.node.admin);
    let answer = admin.request("GET", "/timers?limit=3", "");
    assert_eq!(answer.status, 200, "{answer:?}");
    let page: Value = serde_json::from_str(answer.text()).expect("JSON");
    assert_eq!(page["timers"][0]["location"], *path);
    let answer = Client::connect(listed.node.admin).request("GET", "/timers?limit=0", "");
    assert_eq!((answer.status, answer.text()), (400, "limit: expected 1 to 1000, got 0\n"));
    // Without tokens nobody on the clients' port can be told from anybody else.
    let open = Node::shared();
    for path in ["/timers", "/timers?limit=3", "/timers?x=1"] {
        let refused = open.request("GET", path, "");
        refused.assert_refusal(403, "set auth.tokens_file, or ask the admin listener", path);
    }
    let answer = Client::connect(open.admin).request("GET", "/timers?limit=1", "");
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn states_are_those_of_callbacks() {
    let listed = Listed::start(2);
    let sink = Sink::start(|_, _| Reaction::never());
    let mut client = listed.client("client");
    let uri = sink.uri("/held");
    let path = client.create(&document("0.01", None, &uri, "x"));
    sink.wait_for(1);
    assert_eq!(client.locations("state=in-flight"), [path.clone()].into());
    assert!(client.locations("state=armed").is_empty());
    assert_eq!(client.locations("due-before=0"), [path].into(), "it is overdue");
}

#[test]
fn large_timers_end_a_page_early() {
    let listed = Listed::start(2);
    let mut client = listed.client("client");
    let opaque = "x".repeat(200_000);
    let large = document("3600", None, "http://127.0.0.1:9/never", &opaque);
    let made: BTreeSet<_> = (0..12).map(|_| client.create(&large)).collect();
    let first = client.page("limit=12");
    let count = first["timers"].as_array().expect("some").len();
    assert!((1..=7).contains(&count), "{count} of 200 kB each");
    assert_eq!(client.locations("limit=12"), made);
}

#[test]
fn pages_are_pipelined_and_their_requests_may_be_given_up() {
    let listed = Listed::start(3);
    let mut client = listed.client("client");
    let made: BTreeSet<_> = (0..40).map(|_| client.create(&far_document())).collect();
    let shown = format!("\r\nAuthorization: Bearer {}\r\n", client.token);
    let request = request_text("GET", "/timers?limit=40", "").replacen("\r\n", &shown, 1);
    client.client.send(request.repeat(30));
    for _ in 0..30 {
        let answer = client.client.answer();
        // More at a time than a core puts together.
        if answer.status == 503 {
            assert!(answer.text().contains("too many lists"), "{answer:?}");
            continue;
        }
        let page: Value = serde_json::from_str(answer.text()).expect("JSON");
        let all: BTreeSet<_> =
            page["timers"].as_array().expect("some").iter().map(location).collect();
        assert_eq!(all, made);
    }
    for _ in 0..40 {
        let mut gone = listed.client("client");
        gone.client.send(&request);
    }
    assert_eq!(listed.client("client").locations(""), made);
}

fn count(client: &mut Asker, query: &str) -> Value {
    let answer = client.ask("GET", &format!("/timers/count{query}"), "");
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(answer.text()).expect("JSON")
}

#[test]
fn numbers_follow_what_clients_do() {
    let listed = Listed::start(3);
    let sink = Sink::start(|_, _| Reaction::never());
    let mut client = listed.client("client");
    let none = count(&mut client, "");
    assert_eq!((&none["timers"], &none["by-host"]), (&0.into(), &serde_json::json!({})));
    let mut made: Vec<_> =
        (0..20).map(|_| client.create(&tagged("A", "127.0.0.1:9", 30))).collect();
    made.extend((0..10).map(|_| client.create(&tagged("B", "10.0.0.1:80", 7_200))));
    client.create(&document("0.01", None, &sink.uri("/held"), "x"));
    sink.wait_for(1);
    // It is overdue from the next millisecond on.
    let told = until("the callback to be overdue", || {
        Some(count(&mut client, "")).filter(|told| told["due"]["overdue"] == 1)
    });
    assert_eq!(told["timers"], 31);
    let states = serde_json::json!(
        {"armed": 30, "ready": 0, "in-flight": 1, "backing-off": 0, "handed-over": 0,
         "paused": 0}
    );
    assert_eq!(told["by-state"], states);
    let due = serde_json::json!(
        {"overdue": 1, "within-second": 0, "within-minute": 20, "within-hour": 0,
         "within-day": 10, "later": 0}
    );
    assert_eq!(told["due"], due);
    assert_eq!(told["by-tag"], serde_json::json!({"A": 20, "B": 10}));
    let hosts = serde_json::json!(
        {"127.0.0.1:9": 20, "10.0.0.1:80": 10, sink.address.to_string(): 1}
    );
    assert_eq!(told["by-host"], hosts);
    assert_eq!(told["other-tags"], 0);
    assert_eq!(told["other-hosts"], serde_json::json!({"hosts": 0, "timers": 0}));
    assert!(told.get("incomplete").is_none());
    for path in made.drain(..25) {
        assert_eq!(client.ask("DELETE", &path, "").status, 200);
    }
    let told = count(&mut client, "?histogram=false");
    assert_eq!((&told["timers"], &told["by-tag"]), (&6.into(), &serde_json::json!({"B": 5})));
    assert!(told.get("due").is_none(), "{told}");
    let answer = Client::connect(listed.node.admin).request("GET", "/timers/count", "");
    let by_admin: Value = serde_json::from_str(answer.text()).expect("JSON");
    assert_eq!((&by_admin["timers"], &by_admin["by-tag"]), (&told["timers"], &told["by-tag"]));
}

#[test]
fn hosts_beyond_a_hundred_are_summed_up() {
    let listed = Listed::start(2);
    let mut client = listed.client("client");
    for host in 0..130 {
        for _ in 0..(if host < 40 { 3 } else { 1 }) {
            client.create(&tagged("T", &format!("10.0.0.{host}:80"), 600));
        }
    }
    let told = count(&mut client, "");
    let hosts = told["by-host"].as_object().expect("an object");
    assert_eq!(hosts.len(), 100);
    let named: u64 = hosts.values().filter_map(Value::as_u64).sum();
    let others = told["other-hosts"]["timers"].as_u64().expect("a number");
    assert_eq!(named + others, 40 * 3 + 90);
}

#[test]
fn numbers_are_refused_as_lists_are() {
    let listed = Listed::start(1);
    let mut client = listed.client("reader");
    for (query, names) in [
        ("?histogram=1", "histogram: expected true or false, got 1"),
        ("?histogram=true&histogram=true", "histogram: expected once"),
        ("?tag=a", "query: expected histogram, got tag"),
    ] {
        client.ask("GET", &format!("/timers/count{query}"), "").assert_refusal(400, names, query);
    }
    for method in ["PUT", "DELETE", "POST"] {
        let answer = listed.client("client").ask(method, "/timers/count", "");
        answer.assert_refusal(405, "GET", method);
    }
    let open = Node::shared();
    let refused = open.request("GET", "/timers/count", "");
    refused.assert_refusal(403, "set auth.tokens_file", "no tokens");
    let answer = Client::connect(open.admin).request("GET", "/timers/count?x=1", "");
    assert_eq!((answer.status, answer.text()), (400, "query: expected histogram, got x\n"));
}

#[test]
fn pops_go_on_while_timers_are_listed_and_counted() {
    let listed = Listed::start(2);
    let sink = Sink::ok();
    let mut client = listed.client("client");
    for _ in 0..60 {
        client.create(&document("0.02", Some("30"), &sink.uri("/often"), "x"));
    }
    let far: BTreeSet<_> = (0..300).map(|_| client.create(&far_document())).collect();
    sink.wait_for(60);
    for _ in 0..15 {
        assert!(client.locations("limit=40").is_superset(&far));
        assert_eq!(count(&mut client, "")["timers"], 360);
    }
    let before = sink.count();
    sink.wait_for(before + 60);
    listed.node.assert_alive("lists while timers pop");
}

#[test]
fn paused_timers_are_listed_and_counted_as_such() {
    let listed = Listed::start(3);
    let mut client = listed.client("client");
    let made: Vec<_> = (0..9).map(|_| client.create(&far_document())).collect();
    for (at, path) in made.iter().enumerate().filter(|(at, _)| at % 3 != 0) {
        let refused = listed.client("reader").ask("POST", &format!("{path}/pause"), "");
        assert_eq!(refused.status, 403, "{at}: {refused:?}");
        let paused = client.ask("POST", &format!("{path}/pause"), "");
        assert_eq!(paused.status, 200, "{at}: {paused:?}");
    }
    let states = |client: &mut Asker| {
        let told = count(client, "");
        ["paused", "armed"].map(|state| told["by-state"][state].as_u64())
    };
    assert_eq!(states(&mut client), [Some(6), Some(3)]);
    let (paused, _) = client.all("state=paused&limit=2");
    assert!(paused.iter().all(|timer| timer["state"] == "paused" && timer["paused"] == true));
    assert_eq!((paused.len(), client.all("state=armed").0.len()), (6, 3));
    let told = count(&mut client, "");
    let due: u64 =
        told["due"].as_object().expect("numbers").values().filter_map(Value::as_u64).sum();
    assert_eq!(due, 3, "what is paused is due at no time: {told}");
    for path in &made[1..3] {
        assert_eq!(client.ask("POST", &format!("{path}/resume"), "").status, 200);
    }
    assert_eq!(states(&mut client), [Some(4), Some(5)]);
    for path in &made {
        assert_eq!(client.ask("DELETE", path, "").status, 200);
    }
    assert_eq!(states(&mut client), [Some(0), Some(0)]);
}
