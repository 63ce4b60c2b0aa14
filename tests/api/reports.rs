//! Reports (docs/api.md, "Reports"): what became of a pop is told to the URIs that its timer names.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use serde_json::{Value, json};

use super::dead_letters::{Kept, hasty, server};
use super::harness::{Answer, Node, request_text, until};
use super::sink::{Callback, Reaction, Sink};
use super::tokens::new_token;

/// A timer that pops at once, and tells `sink` what became of it.
fn reported(uri: &str, sink: &Sink, more: Value) -> String {
    let mut members =
        json!({"on-success": sink.uri("/done?a=b"), "on-failure": sink.uri("/failed")});
    let all = members.as_object_mut().expect("an object");
    all.extend(more.as_object().expect("an object").clone());
    hasty(uri, members)
}

fn timed(document: &str, timing: Value) -> String {
    let mut document: Value = serde_json::from_str(document).expect("JSON");
    document["timing"] = timing;
    document.to_string()
}

/// What a report says. Checks what all reports have.
fn told(report: &Callback) -> Value {
    let head = &report.head;
    assert!(head.starts_with("POST ") && head.contains("\r\nContent-Type: application/json\r\n"));
    assert!(!head.contains("X-Secret"), "that is for the other host: {head}");
    let body: Value = serde_json::from_slice(&report.body).expect("JSON");
    assert_eq!(body["sequence-number"].as_u64(), Some(report.sequence()), "{head}");
    let due = body["due"].as_str().expect("a time");
    assert!(due.len() == "2026-12-01T09:00:00.000Z".len() && due.ends_with('Z'), "{due}");
    body
}

/// The id in a path, without its filter.
fn id_of(path: &str) -> &str {
    &path["/timers/".len()..][..18]
}

#[test]
fn a_success_is_reported_once() {
    let kept = Kept::start(3, "");
    let (sink, reports) = (Sink::ok(), Sink::ok());
    let timer = kept.create(&reported(&sink.uri("/a"), &reports, json!({})));
    let report = reports.wait_for(1).remove(0);
    assert_eq!(report.path, "/done?a=b");
    let body = told(&report);
    assert!(body["id"].as_str().is_some_and(|id| id.starts_with(id_of(&timer))), "{body} {timer}");
    assert_eq!((&body["attempts"], &body["status"]), (&json!(1), &json!(200)));
    assert_eq!((body.get("reason"), body.get("name")), (None, None));
    kept.node.await_metric("chronos_timers", 0.0);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!((reports.count(), sink.count()), (1, 1));
    assert_eq!(kept.node.metric("chronos_reports_made_total"), 1.0);
    assert!(kept.letters("").is_empty());
    // It is the same for an attempt that came after a failure, and 204 is a success.
    let sink = Sink::start(|_, before| match before {
        0 => Reaction::Status(500),
        _ => Reaction::Status(204),
    });
    kept.create(&reported(&sink.uri("/b"), &reports, json!({})));
    let body = told(&reports.wait_for(2)[1]);
    assert_eq!((&body["attempts"], &body["status"]), (&json!(2), &json!(204)));
}

#[test]
fn each_pop_of_a_repeating_timer_is_reported() {
    let kept = Kept::start(2, "");
    let (sink, reports) = (Sink::ok(), Sink::ok());
    let document = reported(&sink.uri("/r"), &reports, json!({}));
    let timer = kept.create(&timed(&document, json!({"interval": 1, "repeat-for": 3})));
    let shown = kept.json("GET", &timer);
    assert_eq!(shown["callback"]["on-success"], reports.uri("/done?a=b"));
    assert_eq!(shown["callback"]["on-failure"], reports.uri("/failed"));
    let seen = reports.wait_for(3);
    let bodies: Vec<Value> = seen.iter().map(told).collect();
    let numbers: Vec<_> = bodies.iter().map(|body| body["sequence-number"].as_u64()).collect();
    assert_eq!(numbers, [Some(1), Some(2), Some(3)]);
    let mut due: Vec<_> = bodies.iter().map(|body| body["due"].to_string()).collect();
    assert!(due.is_sorted());
    due.dedup();
    assert_eq!(due.len(), 3);
    kept.node.await_metric("chronos_timers", 0.0);
}

#[test]
fn a_failure_is_reported_with_its_reason_beside_its_letter() {
    let kept = Kept::start(2, "");
    let (sink, status) = server(503);
    let reports = Sink::ok();
    let timer = kept.create(&reported(&sink.uri("/a"), &reports, json!({})));
    let report = reports.wait_for(1).remove(0);
    assert_eq!(report.path, "/failed");
    let body = told(&report);
    assert_eq!((&body["attempts"], &body["status"]), (&json!(2), &json!(503)));
    assert_eq!(body["reason"], "attempts");
    let letter = kept.await_letter(&timer);
    assert_eq!(letter["callback"]["on-failure"], reports.uri("/failed"));
    // The pop was too old.
    let aged = json!({"retry": {"max-age": 0}});
    kept.create(&reported(&sink.uri("/b"), &reports, aged));
    assert_eq!(told(&reports.wait_for(2)[1])["reason"], "age");
    // The server has ended the timer.
    status.store(410, SeqCst);
    kept.create(&reported(&sink.uri("/c"), &reports, json!({})));
    let body = told(&reports.wait_for(3)[2]);
    assert_eq!((&body["reason"], &body["status"]), (&json!("gone"), &json!(410)));
    // Nobody listens there.
    kept.create(&reported("http://127.0.0.1:1/", &reports, json!({})));
    let body = told(&reports.wait_for(4)[3]);
    assert_eq!((&body["reason"], body.get("status")), (&json!("attempts"), None));
    // Its letter goes to a URI, and is not reported again.
    let (letters, _) = server(500);
    let to = json!({"dead-letter": {"uri": letters.uri("/dead")}});
    let timer = kept.create(&reported("http://127.0.0.1:1/", &reports, to));
    kept.await_letter(&timer);
    assert_eq!(told(&reports.wait_for(5)[4])["reason"], "attempts");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(reports.count(), 5);
}

#[test]
fn a_pop_that_no_callback_may_make_is_reported_as_denied() {
    let (sink, reports) = (Sink::ok(), Sink::on("127.0.0.2:0", |_, _| Reaction::OK));
    let kept = Kept::start(1, "[callbacks]\ndeny = [\"127.0.0.1\", \"[::1]\"]\n");
    // The address of a name is judged when it is known.
    let uri = format!("http://localhost:{}/x", sink.address.port());
    kept.create(&reported(&uri, &reports, json!({})));
    assert_eq!(told(&reports.wait_for(1)[0])["reason"], "denied");
    assert_eq!(sink.count(), 0);
    // So is that of a report.
    let named = json!({"on-success": uri});
    let there = Sink::on("127.0.0.2:0", |_, _| Reaction::OK);
    kept.create(&hasty(&there.uri("/y"), named));
    kept.node.await_metric("chronos_reports_given_up_total", 1.0);
    assert_eq!((sink.count(), there.count()), (0, 1));
}

#[test]
fn names_and_calendars_are_told() {
    let kept = Kept::start(2, "");
    let (sink, reports) = (Sink::ok(), Sink::ok());
    let document = reported(&sink.uri("/n"), &reports, json!({}));
    let answer = kept.ask("PUT", "/timers/by-name/a%20%E2%82%AC", &document);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(told(&reports.wait_for(1)[0])["name"], "a \u{20ac}");
    let cron = timed(&document, json!({"cron": "* * * * * *"}));
    let timer = kept.create(&cron);
    let seen = reports.wait_for(4);
    for (number, report) in (1..).zip(&seen[1..]) {
        let body = told(report);
        assert_eq!(body["sequence-number"], number, "{body}");
        assert!(body["due"].as_str().is_some_and(|due| due.ends_with(".000Z")), "{body}");
        assert!(body["id"].as_str().is_some_and(|id| id.starts_with(id_of(&timer))), "{body}");
    }
    assert_eq!(kept.ask("DELETE", &timer, "").status, 200);
    // What is given up of a name and of a calendar is told, too.
    let (bad, _) = server(500);
    let failing = document.replace(&sink.uri("/n"), &bad.uri("/n"));
    assert_eq!(kept.ask("PUT", "/timers/by-name/b", &failing).status, 200);
    reports.wait_until("a failure", |seen| {
        seen.iter().any(|it| it.path == "/failed" && told(it)["name"] == "b")
    });
    let once = json!({"cron": "* * * * * *", "end-at": "2999-01-01T00:00:00Z"});
    kept.create(&timed(&failing, once).replace("\"max-attempts\":2", "\"max-attempts\":1"));
    reports.wait_until("two more", |seen| {
        let failed = seen.iter().filter(|it| it.path == "/failed" && it.sequence() == 2);
        failed.count() == 1
    });
}

#[test]
fn a_report_that_nobody_takes_is_tried_again_and_ends() {
    let kept = Kept::start(1, "[dead_letters]\nplain = true\n");
    let sink = Sink::ok();
    let reports = Sink::start(|_, before| match before {
        0 => Reaction::Status(500),
        _ => Reaction::Status(410),
    });
    kept.create(&reported(&sink.uri("/a"), &reports, json!({})));
    reports.wait_for(1);
    // Meanwhile the report is a timer that is shown and counts.
    let listed = until("its pause", || {
        let listed = kept.json("GET", "/timers?state=backing-off");
        listed["timers"].get(0).is_some().then_some(listed)
    });
    let report = &listed["timers"][0];
    assert_eq!(report["report"], "success");
    assert_eq!(report["callback"]["http"]["uri"], reports.uri("/done?a=b"));
    reports.wait_for(2);
    kept.node.await_metric("chronos_reports_given_up_total", 1.0);
    kept.node.await_metric("chronos_timers", 0.0);
    assert_eq!(reports.count(), 2);
    assert!(kept.letters("").is_empty(), "a report is no letter");
    let seen = reports.callbacks();
    assert_eq!(seen[0].body, seen[1].body);
}

fn refused(answer: &Answer, status: u16, member: &str) {
    answer.assert_refusal(status, member, member);
}

#[test]
fn bad_members_and_hosts_are_refused() {
    let kept = Kept::start(1, "");
    for member in ["on-success", "on-failure"] {
        let path = format!("callback.{member}");
        for bad in [
            json!(""),
            json!("nonsense"),
            json!("ftp://a/"),
            json!("http://"),
            json!("http://user@a/"),
            json!("http://a/\n"),
            json!(format!("http://a/{}", "x".repeat(4_000))),
            json!({"uri": "http://a/"}),
            json!(["http://a/"]),
            json!(1),
            json!(null),
            json!(true),
        ] {
            let body = hasty("http://127.0.0.1:9/", json!({ member: bad }));
            refused(&kept.ask("POST", "/timers", &body), 400, &path);
        }
        let twice = hasty("http://127.0.0.1:9/", json!({ member: "http://a/" })).replacen(
            "\"callback\":{",
            &format!("\"callback\":{{\"{member}\":\"http://b/\","),
            1,
        );
        refused(&kept.ask("POST", "/timers", &twice), 400, &path);
        let metadata = json!({ member: "http://169.254.169.254/" });
        let body = hasty("http://127.0.0.1:9/", metadata);
        refused(&kept.ask("POST", "/timers", &body), 403, &path);
    }
    // The longest of everything is taken.
    let long = |path: &str| format!("http://127.0.0.1:9/{path}{}", "x".repeat(2_000));
    let headers: serde_json::Map<String, Value> =
        (0..4).map(|at| (format!("X-{at}"), json!("v".repeat(1_000)))).collect();
    let all = json!({
        "http": {"uri": long("a"), "opaque": "", "headers": headers, "content-type": "t".repeat(255)},
        "on-success": long("b"), "on-failure": long("c"), "dead-letter": {"uri": long("d")},
    });
    let document = timed(&hasty("http://127.0.0.1:9/", all), json!({"interval": 3_600}));
    let name = "n".repeat(256);
    let answer = kept.ask("PUT", &format!("/timers/by-name/{name}"), &document);
    assert_eq!(answer.status, 200, "{answer:?}");
    let shown = kept.json("GET", &format!("/timers/by-name/{name}"));
    assert_eq!(shown["callback"]["on-failure"], long("c"));
}

#[test]
fn reports_count_for_the_owner_of_their_timer() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let token = new_token(&file, "few", "client");
    let line = std::fs::read_to_string(&file).expect("text");
    std::fs::write(&file, format!("{} timers=3\n", line.trim_end())).expect("written");
    let node = Node::start(1, &format!("[auth]\ntokens_file = {file:?}\n"));
    let ask = |document: &str| {
        let mut client = node.client();
        let shown = format!("\r\nAuthorization: Bearer {token}\r\n");
        let text = request_text("POST", "/timers", document);
        client.send(text.replacen("\r\n", &shown, 1));
        client.answer().status
    };
    let sink = Sink::ok();
    let (reports, _) = server(500);
    for made in 1..=2 {
        assert_eq!(ask(&reported(&sink.uri("/a"), &reports, json!({}))), 200);
        reports.wait_until("its report", |seen| {
            let bodies: BTreeSet<_> = seen.iter().map(|it| &it.body).collect();
            bodies.len() == made
        });
    }
    // A report needs room beside its timer.
    assert_eq!(ask(&reported(&sink.uri("/a"), &reports, json!({}))), 200);
    node.await_metric("chronos_reports_dropped_for_room_total", 1.0);
    let far = timed(&reported(&sink.uri("/a"), &reports, json!({})), json!({"interval": 3_600}));
    assert_eq!((ask(&far), ask(&far)), (200, 429));
}
