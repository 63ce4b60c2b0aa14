//! `chronos timer`: create, read, list, change, delete, act, watch.

use serde_json::json;

use super::harness::{NOWHERE, Node, run, text, until};

const HOUR: [&str; 6] = ["--interval", "1h", "--uri", NOWHERE, "--opaque", "x"];

#[test]
fn a_timer_is_created_read_changed_and_deleted() {
    let node = Node::start("");
    let more = ["--tag", "CALL=2", "--header", "X-A: b", "--max-age", "2h", "--window", "3"];
    let id = node.create(&[&HOUR[..], &more].concat());
    let found = node.timer(&["get", &id, "--json"]).expect(0, "").json();
    assert_eq!(found["timing"]["interval"], 3600);
    assert_eq!(found["callback"]["http"]["headers"], json!({ "X-A": "b" }));
    assert_eq!(found["callback"]["retry"]["max-age"], 7200);
    assert_eq!(found["statistics"]["tag-info"], json!([{ "type": "CALL", "count": 2 }]));
    node.timer(&["get", &format!("/timers/{id}")]).expect(0, "callback.http.opaque");
    let changed = node.timer(&["update", &id, "--interval", "2h", "--opaque", "y", "--json"]);
    assert_eq!(changed.expect(0, "").json()["outcome"], "updated");
    let found = node.timer(&["get", &id, "--json"]).json();
    assert_eq!(found["timing"]["interval"], 7200);
    assert_eq!(found["timing"]["repeat-for"], 7200, "it still pops once");
    assert_eq!(found["callback"]["http"]["opaque"], "y");
    assert_eq!(found["callback"]["http"]["headers"], json!({ "X-A": "b" }), "not named: kept");
    node.timer(&["delete", &id]).expect(0, "is not there any more");
    node.timer(&["get", &id]).expect(1, "no timer with this id");
    let refused = node.timer(&["get", &id, "--json"]);
    assert_eq!(refused.expect(1, "").json()["status"], 404);
}

#[test]
fn a_document_comes_from_a_file_and_bytes_stay_bytes() {
    let node = Node::start("");
    let file = node.file("timer.json");
    let document = json!({
        "timing": { "interval": 60 },
        "callback": { "http": { "uri": NOWHERE, "opaque": "from a file" } },
    });
    std::fs::write(&file, document.to_string()).expect("written");
    let id = node.create(&["--file", &text(&file)]);
    node.timer(&["get", &id]).expect(0, "from a file");
    node.timer(&["update", &id, "--file", &text(&file)]).expect(0, "");
    std::fs::write(&file, [0, 1, 2, 255]).expect("written");
    let id = node.create(&[
        "--at",
        "2100-01-01T00:00:00Z",
        "--uri",
        NOWHERE,
        "--opaque-file",
        &text(&file),
    ]);
    let found = node.timer(&["get", &id, "--json"]).json();
    assert_eq!(found["callback"]["http"]["opaque-base64"], "AAEC/w==");
    assert_eq!(found["timing"]["at"], "2100-01-01T00:00:00Z");
    node.timer(&["create", "--file", &text(&file)]).expect(2, "expected a JSON document");
}

#[test]
fn names_versions_and_keys_hold() {
    let node = Node::start("");
    let name = "rechnung/17 ü";
    let named = [&HOUR[..], &["--name", name]].concat();
    let made = node.timer(&[&["create", "--json"], &named[..]].concat()).expect(0, "").json();
    let version = made["version"].as_str().expect("of a name").to_owned();
    let again = [&["create", "--only-new"], &named[..]].concat();
    node.timer(&again).expect(1, "(status 412)");
    let found = node.timer(&["get", "--name", name, "--json"]).json();
    assert_eq!((&found["name"], &found["version"]), (&json!(name), &json!(version)));
    node.timer(&["pause", "--name", name, "--if-match", "0000000000000001"])
        .expect(1, "(status 412)");
    node.timer(&["pause", "--name", name, "--if-match", &version]).expect(0, "is paused");
    node.timer(&["run-now", "--name", name]).expect(1, "(status 409)");
    node.timer(&["resume", "--name", name]).expect(0, "is resumed");
    let cron = ["--cron", "0 9 * * MON-FRI", "--time-zone", "Europe/London"];
    node.timer(&[&["update", "--name", name], &cron[..]].concat()).expect(0, "");
    node.timer(&["update", "--name", name, "--cron", "@daily"]).expect(0, "");
    let found = node.timer(&["get", "--name", name, "--json"]).json();
    assert_eq!(found["timing"]["time-zone"], "Europe/London", "not named: kept");
    let keyed = [&HOUR[..], &["--idempotency-key", "k"]].concat();
    let id = node.create(&keyed);
    assert_eq!(node.create(&keyed), id);
    node.timer(&["delete", &id, "--if-match", "*"]).expect(1, "write the timer by its name");
    node.timer(&["update", &id, "--interval", "2h"]).expect(0, &id[..16]);
    node.timer(&["delete", "--name", name]).expect(0, "");
    node.timer(&["get", "--name", name]).expect(1, "(status 404)");
}

#[test]
fn lists_have_filters_and_pages_and_jobs_delete_what_they_name() {
    let node = Node::start("");
    let tagged = [&HOUR[..], &["--tag", "A B"]].concat();
    for _ in 0..7 {
        node.create(&tagged);
    }
    node.create(&[&HOUR[..], &["--name", "one"]].concat());
    let count = |words: &[&str]| {
        let found = node.timer(&[&["list", "--json"], words].concat()).expect(0, "").json();
        found["timers"].as_array().expect("a list").len()
    };
    assert_eq!(count(&[]), 8);
    assert_eq!(count(&["--tag", "A B"]), 7);
    assert_eq!(count(&["--name-prefix", "on"]), 1);
    assert_eq!(count(&["--host", "127.0.0.1:9", "--state", "armed", "--due-before", "2h"]), 8);
    assert_eq!(count(&["--due-after", "2h"]), 0);
    assert_eq!(count(&["--limit", "3"]), 3);
    node.timer(&["list", "--limit", "3"]).expect(0, "there are more: raise --limit above 3");
    node.timer(&["list", "--state", "asleep"]).expect(1, "state: expected armed");
    assert_eq!(node.timer(&["count", "--json"]).expect(0, "").json()["timers"], 8);
    node.timer(&["count", "--no-histogram"]).expect(0, "by-tag.A B");
    let job = node.timer(&["delete", "--tag", "A B", "--json"]).expect(0, "").json();
    let job = job["id"].as_str().expect("an id");
    until("the job to end", || {
        let shown = node.operate(&["jobs", "show", job, "--json"]);
        (shown.expect(0, "").json()["state"] == "done").then_some(())
    });
    node.operate(&["jobs", "list"]).expect(0, job);
    node.operate(&["jobs", "wait", job]).expect(0, "done");
    node.operate(&["jobs", "wait", "0000000000000000"]).expect(1, "no such job");
    node.operate(&["jobs", "stop", job]).expect(0, "done");
    node.operate(&["jobs", "show", "0000000000000000"]).expect(1, "no such job");
    assert_eq!(count(&[]), 1);
    node.timer(&["delete", "x", "--tag", "A"]).expect(2, "got both");
    node.timer(&["delete"]).expect(2, "expected the ID");
}

#[test]
fn a_watch_ends_with_its_timer_and_tells_how() {
    let node = Node::start("");
    let (sink, _) =
        kit::callbacks::serve(([127, 0, 0, 1], 0).into(), |_| kit::callbacks::Reaction::OK);
    let uri = format!("http://{sink}/pop");
    let words = ["--interval", "1", "--repeat-for", "2", "--uri", &uri, "--name", "twice"];
    node.create(&words);
    let watched = node.timer(&["watch", "--name", "twice", "--every", "0.1", "--for", "60"]);
    watched.expect(0, "over: its last pop was made");
    assert!(watched.out.contains("waits, 0 pops done, next in "), "{watched:?}");
    assert!(watched.out.contains("waits, 1 pops done"), "{watched:?}");
    let failing = ["--interval", "0.5", "--uri", NOWHERE, "--max-attempts", "1", "--name", "lost"];
    node.create(&failing);
    let watched = node.timer(&["watch", "--name", "lost", "--every", "0.1", "--for", "60"]);
    watched.expect(1, "given up (attempts, 1 attempts): chronos dead-letters show ");
    node.create(&[&HOUR[..], &["--name", "long"]].concat());
    let watched = node.timer(&["watch", "--name", "long", "--for", "0.3", "--json"]);
    let lines: Vec<serde_json::Value> = serde_json::Deserializer::from_str(&watched.out)
        .into_iter()
        .collect::<Result<_, _>>()
        .expect("documents");
    assert_eq!(watched.code, Some(1));
    assert_eq!(lines.len(), 2, "{watched:?}");
    assert_eq!(lines[0]["event"], "seen");
    node.timer(&["watch", "--name", "nobody"]).expect(1, "(status 404)");
}

#[test]
fn mistakes_are_told_with_what_was_expected() {
    let node = Node::start("");
    node.timer(&["create"]).expect(2, "expected when and where: --interval, --at or --cron");
    node.timer(&["create", "--interval", "5x"]).expect(2, "expected seconds (90 or 1.5), 15m");
    let negative = ["create", "--interval=-1", "--uri", NOWHERE];
    node.timer(&negative).expect(1, "timing.interval: expected seconds from 0 to 3162240000");
    node.timer(&["create", "--interval", "1"]).expect(1, "callback.http.uri");
    node.timer(&["get"]).expect(2, "expected the ID of a timer, or --name NAME");
    node.timer(&["update", "x"]).expect(2, "expected a flag that says what to change");
    run(&["timer", "get", "x", "--server", "here"]).expect(2, "expected host:port");
    let silent = run(&["timer", "get", "x", "--server", "127.0.0.1:9"]);
    silent.expect(1, "127.0.0.1:9 does not answer").expect(1, "--server HOST:PORT");
}
