//! `DELETE /timers?...`: jobs that delete all timers of a filter, and what is told of them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::harness::{Client, Node, far_document, request_text, until};
use super::lists::{Asker, Listed, tagged};

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Orders a job. Returns its path.
fn order(client: &mut Asker, query: &str) -> String {
    let answer = client.ask("DELETE", &format!("/timers?{query}"), "");
    assert_eq!(answer.status, 202, "{query}: {answer:?}");
    let path = answer.header("Location").expect("a job").to_owned();
    let job = json(answer.text());
    assert_eq!((&job["state"], &path), (&"running".into(), &format!("/jobs/{}", text(&job["id"]))));
    path
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

/// What is told of a job when it has ended.
fn ended(client: &mut Asker, path: &str) -> Value {
    until("the job to end", || {
        let answer = client.ask("GET", path, "");
        assert_eq!(answer.status, 200, "{answer:?}");
        Some(json(answer.text())).filter(|job| job["state"] != "running")
    })
}

#[test]
fn a_job_deletes_what_its_filter_says_and_nothing_else() {
    for shards in [1, 3] {
        let listed = Listed::start(shards);
        let mut client = listed.client("client");
        let make = |client: &mut Asker, tag: &str, host: &str, count: usize| -> BTreeSet<String> {
            (0..count).map(|_| client.create(&tagged(tag, host, 3_600))).collect()
        };
        let gone = make(&mut client, "A", "127.0.0.1:9", 300);
        let mut stay = make(&mut client, "B", "127.0.0.1:9", 40);
        stay.extend(make(&mut client, "A", "127.0.0.1:8", 5));
        let path = order(&mut client, "tag=A&host=127.0.0.1:9&due-before=P1D");
        let job = ended(&mut client, &path);
        assert_eq!((&job["state"], &job["complete"]), (&"done".into(), &true.into()));
        assert_eq!(
            (&job["seen"], &job["deleted"], &job["failed"]),
            (&300.into(), &300.into(), &0.into())
        );
        assert_eq!((&job["filter"]["tag"], &job["token"]), (&"A".into(), &"client".into()));
        assert!(text(&job["started"]) <= text(&job["ended"]), "{job}");
        assert_eq!(client.locations(""), stay);
        let first = gone.iter().next().expect("one");
        client.ask("GET", first, "").assert_refusal(404, "no timer", "deleted");
        let all = json(client.ask("GET", "/jobs", "").text());
        assert_eq!(all["jobs"].as_array().map(Vec::len), Some(1));
        assert_eq!(all["jobs"][0], job);
        // Once more: there is nothing left.
        let path = order(&mut client, "tag=A&host=127.0.0.1:9");
        assert_eq!(ended(&mut client, &path)["seen"], 0);
    }
}

#[test]
fn a_job_finds_timers_by_their_names() {
    let listed = Listed::start(2);
    let mut client = listed.client("client");
    for name in ["a%2F1", "a%2F2", "b%2F1"] {
        let answer = client.ask("PUT", &format!("/timers/by-name/{name}"), &far_document());
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    client.create(&far_document());
    let path = order(&mut client, "name-prefix=a%2F");
    assert_eq!(ended(&mut client, &path)["deleted"], 2);
    assert_eq!(client.locations("").len(), 2);
    assert_eq!(client.ask("GET", "/timers/by-name/a%2F1", "").status, 404);
    assert_eq!(client.ask("GET", "/timers/by-name/b%2F1", "").status, 200);
}

#[test]
fn a_job_can_be_stopped_by_another_client() {
    let listed = Listed::start(2);
    let mut client = listed.client("client");
    // So many that the job takes some 100 ms.
    client.create_many(&tagged("A", "127.0.0.1:9", 3_600), 10_000);
    let path = order(&mut client, "tag=A");
    listed.client("reader").ask("DELETE", &path, "").assert_refusal(403, "role", "a reader");
    let answer = listed.client("operator").ask("DELETE", &path, "");
    assert_eq!(answer.status, 200, "{answer:?}");
    let job = ended(&mut client, &path);
    assert_eq!(job["state"], "stopped");
    let deleted = job["deleted"].as_u64().expect("a number");
    assert!(deleted < 10_000, "{job}");
    let told = json(client.ask("GET", "/timers/count?histogram=false", "").text());
    assert_eq!(told["timers"], 10_000 - deleted);
    // To stop what has ended changes nothing.
    assert_eq!(json(client.ask("DELETE", &path, "").text()), job);
}

#[test]
fn bad_orders_are_refused_with_a_sentence() {
    let listed = Listed::start(2);
    let mut client = listed.client("client");
    client.create(&far_document());
    let expected = "query: expected tag, name-prefix, host, due-after or due-before, got ";
    for (query, names) in [
        ("", format!("{expected}none of them")),
        ("?", format!("{expected}none of them")),
        ("?tag=a&state=armed", format!("{expected}state")),
        ("?tag=a&limit=5", format!("{expected}limit")),
        ("?limit=5", format!("{expected}limit")),
        ("?tag=", "tag: expected 1 to 64 bytes".to_owned()),
        ("?name-prefix=", "name-prefix: expected 1 to 256 bytes".to_owned()),
        ("?tag=a&tag=a", "tag: expected once".to_owned()),
        ("?tag=%ff", "tag: expected percent escapes".to_owned()),
        ("?all=true", format!("{expected}all")),
        ("?tag=a&foo=1", format!("{expected}foo")),
        ("?cursor=0", format!("{expected}cursor")),
        ("?limit=0", format!("{expected}limit")),
    ] {
        client.ask("DELETE", &format!("/timers{query}"), "").assert_refusal(400, &names, query);
    }
    for path in ["/jobs/0", "/jobs/x", "/jobs/00000000000000000", "/jobs/0000000000000000"] {
        client.ask("GET", path, "").assert_refusal(404, "no such path", path);
    }
    for method in ["GET", "DELETE"] {
        client.ask(method, "/jobs/00000000000000aa", "").assert_refusal(404, "no such job", method);
    }
    assert_eq!(client.locations("").len(), 1, "nothing was deleted");
    assert_eq!(json(client.ask("GET", "/jobs", "").text()), serde_json::json!({"jobs": []}));
}

#[test]
fn jobs_need_a_token_that_may_delete_or_an_operator() {
    let listed = Listed::start(2);
    listed.client("client").create(&tagged("A", "127.0.0.1:9", 600));
    let mut reader = listed.client("reader");
    assert_eq!(reader.ask("GET", "/jobs", "").status, 200);
    reader.ask("DELETE", "/timers?tag=A", "").assert_refusal(403, "role", "a reader");
    listed.node.request("DELETE", "/timers?tag=A", "").assert_refusal(401, "missing", "no token");
    let open = Node::shared();
    for (method, path) in [("DELETE", "/timers?tag=nobody"), ("GET", "/jobs")] {
        open.request(method, path, "").assert_refusal(403, "set auth.tokens_file", path);
    }
    // The admin listener takes orders with their header alone.
    let admin = |method: &str, path: &str, header: &str| {
        let mut client = Client::connect(open.admin);
        client.send(request_text(method, path, "").replacen("\r\n", header, 1));
        client.answer()
    };
    assert_eq!(admin("DELETE", "/timers?tag=nobody", "\r\n").status, 403);
    let order = "\r\nX-Chronos-Order: 1\r\n";
    let unmet = admin("DELETE", "/timers?tag=nobody", "\r\nX-Chronos-Order: 1\r\nIf-Match: *\r\n");
    assert!(
        unmet.status == 400
            && unmet
                .text()
                .starts_with("If-Match, If-None-Match: expected at /timers/by-name/<name>")
    );
    let begun = admin("DELETE", "/timers?tag=nobody", order);
    assert_eq!(begun.status, 202, "{begun:?}");
    let path = begun.header("Location").expect("a job").to_owned();
    let job = until("the job to end", || {
        let job = json(admin("GET", &path, "\r\n").text());
        (job["state"] != "running").then_some(job)
    });
    assert_eq!((&job["state"], &job["seen"]), (&"done".into(), &0.into()));
    assert_eq!(admin("DELETE", &path, order).status, 200);
    assert_eq!(admin("DELETE", "/timers", order).status, 400);
    assert_eq!(admin("GET", "/jobs/00000000000000aa", "\r\n").status, 404);
    assert_eq!(admin("GET", "/jobs/x", "\r\n").status, 404);
}

#[test]
fn so_many_jobs_of_a_token_run_at_a_time() {
    let listed = Listed::start(2);
    let mut client = listed.client("client");
    client.create_many(&tagged("A", "127.0.0.1:9", 3_600), 10_000);
    let paths: Vec<_> = (0..4).map(|_| order(&mut client, "tag=A")).collect();
    let answer = listed.client("client").ask("DELETE", "/timers?tag=A", "");
    assert_eq!((answer.status, answer.header("Retry-After")), (429, Some("1")), "{answer:?}");
    assert!(answer.text().starts_with("4 jobs of this token"), "a fifth: {answer:?}");
    order(&mut listed.client("operator"), "tag=A");
    let deleted: u64 = paths
        .iter()
        .map(|path| ended(&mut client, path)["deleted"].as_u64().expect("a number"))
        .sum();
    assert!(deleted <= 10_000, "each timer is deleted once");
    until("all to be gone", || client.locations("tag=A").is_empty().then_some(()));
    order(&mut client, "tag=A");
}
