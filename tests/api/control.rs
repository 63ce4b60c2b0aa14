//! `POST /timers/<id>/pause`, `/resume` and `/run-now` (docs/api.md, "Pause, resume, run now"): what
//! pops when, which condition is met, what is refused.

use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::harness::{Answer, Client, Node, document, far_document, until};
use super::sink::{Reaction, Sink};

const ACTIONS: [&str; 3] = ["pause", "resume", "run-now"];

/// A request with further header lines.
fn send(client: &mut Client, (method, path): (&str, &str), headers: &[&str], body: &str) -> Answer {
    let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: {length}\r\n\r\n{body}"
    ));
    client.answer()
}

/// Does something with a timer. Returns its version.
fn act(node: &Node, path: &str, action: &str) -> String {
    let answer = node.request("POST", &format!("{path}/{action}"), "");
    assert_eq!(answer.status, 200, "{action}: {answer:?}");
    let location = answer.header("Location").expect("a location");
    assert_eq!(location[..25], path[..25], "the id is the same");
    answer.header("ETag").expect("a version").to_owned()
}

fn shown(node: &Node, path: &str) -> Option<Value> {
    let answer = node.request("GET", path, "");
    (answer.status == 200).then(|| serde_json::from_slice(&answer.body).expect("JSON"))
}

fn numbers(sink: &Sink) -> Vec<u64> {
    sink.callbacks().iter().map(|callback| callback.sequence()).collect()
}

#[test]
fn a_paused_timer_waits_and_pops_at_once_when_it_is_resumed_too_late() {
    for shards in [1, 3] {
        let node = Node::start(shards, "");
        let sink = Sink::ok();
        let path = node.create(&document("0.3", None, &sink.uri("/once"), "x"));
        let first = act(&node, &path, "pause");
        assert_eq!(act(&node, &path, "pause"), first, "nothing changes");
        node.await_metric("chronos_timers_acted_total", 1.0);
        node.await_metric("chronos_timers_paused", 1.0);
        let told = shown(&node, &path).expect("it is there");
        assert_eq!((&told["paused"], &told["timing"]["interval"]), (&true.into(), &0.3.into()));
        assert_eq!(node.request("GET", &path, "").header("ETag"), Some(&*first));
        thread::sleep(Duration::from_millis(700));
        assert_eq!(sink.count(), 0, "{shards} shards");
        let second = act(&node, &path, "resume");
        assert!(second > first);
        assert_eq!(sink.wait_for(1)[0].sequence(), 1);
        until("the end", || shown(&node, &path).is_none().then_some(()));
        node.await_metric("chronos_timers_paused", 0.0);
        for action in ACTIONS {
            let ended = node.request("POST", &format!("{path}/{action}"), "");
            ended.assert_refusal(404, "no timer", action);
        }
        node.assert_alive("actions");
    }
}

#[test]
fn times_that_are_still_to_come_are_kept_and_the_latest_of_the_others_is_made() {
    let node = Node::shared();
    let sink = Sink::ok();
    // It pops 20 times; each is due at its own moment, whatever is done meanwhile.
    let path = node.create(&document("0.2", Some("4"), &sink.uri("/often"), "x"));
    sink.wait_for(2);
    act(&node, &path, "pause");
    thread::sleep(Duration::from_millis(100));
    let before = numbers(&sink);
    thread::sleep(Duration::from_millis(900));
    assert_eq!(numbers(&sink), before, "a paused timer does not pop");
    act(&node, &path, "resume");
    let seen = sink.wait_for(before.len() + 3);
    let after: Vec<u64> = seen[before.len()..].iter().map(|pop| pop.sequence()).collect();
    let last = before.last().copied().unwrap_or(0);
    assert!(after[0] >= last + 4, "{before:?} {after:?}: those before are left out");
    assert_eq!(after[1..], [after[0] + 1, after[0] + 2]);
    until("the end", || shown(&node, &path).is_none().then_some(()));
    assert_eq!(numbers(&sink).last(), Some(&20));
}

#[test]
fn the_next_pop_is_made_now_and_the_later_ones_keep_their_times() {
    let node = Node::shared();
    let sink = Sink::ok();
    let path = node.create(&document("3600", Some("7200"), &sink.uri("/now"), "x"));
    act(&node, &path, "run-now");
    assert_eq!(sink.wait_for(1)[0].sequence(), 1);
    until("the pop to be counted", || {
        let told = shown(&node, &path)?;
        (told["timing"]["sequence-number"] == 1).then_some(())
    });
    assert_eq!(shown(&node, &path).expect("it goes on")["timing"]["interval"], 3600);
    act(&node, &path, "run-now");
    assert_eq!(sink.wait_for(2)[1].sequence(), 2);
    until("the end", || shown(&node, &path).is_none().then_some(()));
}

#[test]
fn of_two_runs_of_one_version_one_is_made() {
    let node = Node::start(4, "");
    let sink = Sink::ok();
    for number in 0..20 {
        let name = format!("/timers/by-name/job%2F{number}");
        let body = document("3600", Some("36000"), &sink.uri("/job"), "x");
        let made = node.request("PUT", &name, &body);
        let condition = format!("If-Match: {}", made.header("ETag").expect("a version"));
        let run = || {
            let mut client = node.client();
            send(&mut client, ("POST", &format!("{name}/run-now")), &[&condition], "")
        };
        let (one, other) = thread::scope(|scope| {
            let (one, other) = (scope.spawn(run), scope.spawn(run));
            (one.join().expect("answered"), other.join().expect("answered"))
        });
        let mut statuses = [one.status, other.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412], "{one:?} {other:?}");
        sink.wait_for(number + 1);
    }
    assert!(numbers(&sink).iter().all(|number| *number == 1));
    sink.assert_no_more(&node, 20, "0.3");
}

#[test]
fn conditions_and_names_are_kept() {
    let node = Node::start(2, "");
    let mut client = node.client();
    let path = "/timers/by-name/a";
    assert_eq!(node.request("POST", &format!("{path}/pause"), "").status, 404);
    let made = node.request("PUT", path, &far_document());
    let first = made.header("ETag").expect("a version").to_owned();
    let is_first = [&*format!("If-Match: {first}")].map(str::to_owned);
    let is_first: Vec<&str> = is_first.iter().map(String::as_str).collect();
    let paused = send(&mut client, ("POST", &format!("{path}/pause")), &is_first, "ignored");
    assert_eq!(paused.status, 200, "{paused:?}");
    for action in ACTIONS {
        let stale = send(&mut client, ("POST", &format!("{path}/{action}")), &is_first, "");
        stale.assert_refusal(412, "If-Match", action);
    }
    let run = node.request("POST", &format!("{path}/run-now"), "");
    run.assert_refusal(409, "resume it first", "a run of a paused timer");
    assert_eq!(shown(&node, path).expect("it is there")["paused"], true);
    let location = made.header("Location").expect("a location");
    assert_eq!(shown(&node, location).expect("the same timer")["paused"], true);
    let replaced = node.request("PUT", path, &far_document());
    assert_eq!(replaced.status, 200);
    assert_eq!(shown(&node, path).expect("it is there").get("paused"), None, "PUT replaces it");
    act(&node, location, "pause");
    assert_eq!(node.request("DELETE", path, "").status, 200);
    assert_eq!(shown(&node, path), None);
}

#[test]
fn a_callback_under_way_ends_as_it_ends_and_its_retries_wait() {
    let node = Node::shared();
    let sink = Sink::start(|_, place| match place {
        0 => {
            thread::sleep(Duration::from_millis(500));
            Reaction::Status(503)
        }
        _ => Reaction::Status(200),
    });
    let path = node.create(&document("0.1", Some("0.1"), &sink.uri("/slow"), "x"));
    sink.wait_for(1);
    act(&node, &path, "pause");
    thread::sleep(Duration::from_millis(1_200));
    assert_eq!(sink.count(), 1, "no retry while it is paused");
    act(&node, &path, "resume");
    assert_eq!(sink.wait_for(2)[1].sequence(), 1);
    until("the end", || shown(&node, &path).is_none().then_some(()));
}

#[test]
fn what_is_no_action_is_refused() {
    let node = Node::shared();
    let path = node.create(&far_document());
    for action in ACTIONS {
        let path = format!("{path}/{action}");
        for method in ["GET", "PUT", "DELETE"] {
            let refused = node.request(method, &path, "");
            assert_eq!((refused.status, refused.header("Allow")), (405, Some("POST")), "{method}");
        }
        let mut client = node.client();
        for (header, names) in [
            ("If-None-Match: *", "If-None-Match: expected with PUT, got it with POST"),
            ("If-Match: 7", "If-Match: expected * or one version"),
            ("If-Match: \"g000000000000000\"", "If-Match: expected * or one version"),
        ] {
            let refused = send(&mut client, ("POST", &path), &[header], "");
            refused.assert_refusal(400, names, header);
        }
    }
    for wrong in ["/Pause", "/stop", "/run", "/run_now"] {
        let refused = node.request("POST", &format!("{path}{wrong}"), "");
        assert_eq!(refused.status, 404, "{wrong}: {refused:?}");
    }
    for (path, status) in [
        ("/timers/pause", 404),
        ("/timers/xyz/pause", 404),
        ("/timers/by-name//pause", 400),
        ("/timers/by-name/a/b/pause", 400),
        ("/timers/by-name/%zz/pause", 400),
        ("/timers/by-name/nobody/pause", 404),
        ("/timers/687ebc01f9400001-2-0000801000840080/pause", 404),
        ("/timers/687ebc01f9400001-99-0000801000840080/pause", 404),
    ] {
        let refused = node.request("POST", path, "");
        assert_eq!(refused.status, status, "{path}: {refused:?}");
    }
    // A name may be that of an action, and as long as any.
    let made = node.request("PUT", "/timers/by-name/pause", &far_document());
    assert_eq!(made.status, 200);
    act(&node, made.header("Location").expect("a location"), "pause");
    let long = format!("/timers/by-name/{}", "%c3%a9".repeat(128));
    assert_eq!(node.request("PUT", &long, &far_document()).status, 200);
    assert_eq!(node.request("POST", &format!("{long}/pause"), "").status, 200);
    assert_eq!(shown(&node, &long).expect("it is there")["paused"], true);
    for path in ["/timers/by-name/pause", &long, &path] {
        assert_eq!(node.request("DELETE", path, "").status, 200);
    }
    node.assert_alive("wrong actions");
}
