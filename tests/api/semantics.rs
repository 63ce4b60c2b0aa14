//! When timers pop: never early, to the millisecond, counted from 1, without drift. And what PUT
//! and DELETE change.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::harness::{Node, PATIENCE, document, until};
use super::sink::{Callback, Reaction, Sink};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn one_shots_of_every_millisecond_pop_once_and_never_early() {
    for shards in [1, 2, 16] {
        let node = Node::start(shards, "");
        let sink = Sink::ok();
        let mut clients: Vec<_> = (0..4).map(|_| node.client()).collect();
        let mut began = Vec::new();
        for wait_ms in 0..300_u64 {
            let interval = format!("{}.{:03}", wait_ms / 1000, wait_ms % 1000);
            began.push(Instant::now());
            let uri = sink.uri(&format!("/{wait_ms}"));
            clients[wait_ms as usize % 4].create(&document(&interval, None, &uri, &interval));
        }
        let seen = sink.wait_for(300);
        let mut times = vec![0; 300];
        for callback in &seen {
            let wait_ms: usize = callback.path[1..].parse().expect("a number");
            times[wait_ms] += 1;
            let took = callback.at - began[wait_ms];
            assert!(took >= ms(wait_ms as u64), "{wait_ms} ms popped after {took:?}");
            assert_eq!(callback.sequence(), 1);
            let interval = format!("{}.{:03}", wait_ms / 1000, wait_ms % 1000);
            assert_eq!(callback.body, interval.as_bytes());
        }
        assert_eq!(times, vec![1; 300]);
    }
}

#[test]
fn resolution_is_a_millisecond_and_more_digits_round_up() {
    let node = Node::shared();
    let path = node.create(&document("3600.0001", None, "http://127.0.0.1:9/", ""));
    let timer: serde_json::Value =
        serde_json::from_slice(&node.request("GET", &path, "").body).expect("JSON");
    assert_eq!(timer["timing"]["interval"], 3600.001);
}

#[test]
fn repeating_pops_are_counted_and_do_not_drift() {
    const INTERVAL_MS: u64 = 40;
    const ANSWER_MS: u64 = 20;
    let node = Node::shared();
    // Each answer comes late: an interval counted from the answer would drift by as much a pop.
    let sink = Sink::start(|_, _| Reaction::Late(ms(ANSWER_MS)));
    let before = Instant::now();
    let path = node.create(&document("0.04", Some("3600"), &sink.uri("/"), "x"));
    let after = Instant::now();
    let due_ms = |callback: &Callback| callback.sequence() * INTERVAL_MS;
    // With a drift no pop ever comes within half of it. A busy machine delays some, not all.
    let is_drifting = |callback: &Callback| {
        let half = (callback.sequence() - 1) * ANSWER_MS / 2;
        callback.at > after + ms(due_ms(callback) + half)
    };
    let is_on_time = |seen: &[Callback]| {
        seen.last().is_some_and(|last| last.sequence() >= 50 && !is_drifting(last))
    };
    let seen = sink.wait_until("a late pop without a drift", is_on_time);
    assert_eq!(node.request("DELETE", &path, "").status, 200);
    let sequences: Vec<_> = seen.iter().map(Callback::sequence).collect();
    assert_eq!(sequences, (1..=seen.len() as u64).collect::<Vec<_>>());
    for callback in &seen {
        assert!(callback.at >= before + ms(due_ms(callback)), "{} is early", callback.sequence());
    }
}

#[test]
fn a_repeating_timer_ends_after_its_last_pop() {
    let node = Node::shared();
    let sink = Sink::ok();
    let path = node.create(&document("0.04", Some("2"), &sink.uri("/"), "x"));
    let seen = sink.wait_for(50);
    let sequences: Vec<_> = seen.iter().map(Callback::sequence).collect();
    assert_eq!(sequences, (1..=50).collect::<Vec<_>>());
    until("the timer to end", || (node.request("GET", &path, "").status == 404).then_some(()));
    sink.assert_no_more(&node, 50, "0.12");
}

#[test]
fn repeat_for_counts_whole_intervals() {
    let node = Node::shared();
    let sink = Sink::ok();
    for (path, repeat_for) in [("/1", "0.1"), ("/1b", "0.199"), ("/2", "0.2"), ("/3", "0.399")] {
        node.create(&document("0.1", Some(repeat_for), &sink.uri(path), ""));
    }
    let seen = sink.wait_for(7);
    let count = |path: &str| seen.iter().filter(|one| one.path == path).count();
    assert_eq!([count("/1"), count("/1b"), count("/2"), count("/3")], [1, 1, 2, 3]);
    sink.assert_no_more(&node, 7, "0.3");
}

#[test]
fn a_deleted_timer_does_not_pop() {
    for shards in [1, 2, 16] {
        let node = Node::start(shards, "");
        let sink = Sink::ok();
        let mut client = node.client();
        let (mut in_time, mut excused) = (0, 0);
        until("twenty that were deleted before they were due", || {
            let asked = Instant::now();
            let path = client.create(&document("0.25", Some("0.5"), &sink.uri("/deleted"), ""));
            // Over another connection, so that every core asks every other.
            assert_eq!(node.request("DELETE", &path, "").status, 200);
            let is_in_time = asked.elapsed() < ms(250);
            in_time += usize::from(is_in_time);
            excused += if is_in_time { 0 } else { 2 };
            (in_time == 20).then_some(())
        });
        node.create(&document("0.6", None, &sink.uri("/kept"), ""));
        let seen = sink.wait_until("one more", |seen| seen.iter().any(|one| one.path == "/kept"));
        assert!(seen.len() - 1 <= excused, "{shards} shards: {seen:?}");
    }
}

#[test]
fn deleted_between_its_pops_it_ends() {
    let node = Node::shared();
    let sink = Sink::ok();
    let path = node.create(&document("0.1", Some("100"), &sink.uri("/"), ""));
    sink.wait_for(2);
    assert_eq!(node.request("DELETE", &path, "").status, 200);
    let before = sink.count();
    // One pop may have been under way when the DELETE came; after it comes none.
    node.create(&document("0.4", None, &sink.uri("/then"), ""));
    let seen = sink.wait_until("the end", |seen| seen.iter().any(|one| one.path == "/then"));
    assert!(seen.len() - 1 <= before + 1, "{before} pops before the DELETE: {seen:?}");
}

#[test]
fn an_update_moves_the_pop_earlier_or_later() {
    let node = Node::shared();
    // From an hour to 0.3 s, and from 0.2 s to 0.6 s.
    for (old, new, new_ms) in [("3600", "0.3", 300), ("0.2", "0.6", 600)] {
        until("an update before the pop", || {
            let sink = Sink::ok();
            let asked = Instant::now();
            let path = node.create(&document(old, None, &sink.uri("/old"), "old"));
            let began = Instant::now();
            let changed = document(new, None, &sink.uri("/new"), "new");
            assert_eq!(node.request("PUT", &path, &changed).status, 200);
            let is_in_time = old != "0.2" || asked.elapsed() < ms(200);
            sink.wait_until("the new pop", |seen| seen.iter().any(|one| one.path == "/new"));
            until("its end", || (node.request("GET", &path, "").status == 404).then_some(()));
            let seen = sink.callbacks();
            if !is_in_time && seen.len() > 1 {
                return None;
            }
            assert_eq!(seen.len(), 1, "{seen:?}");
            assert!(seen[0].at >= began + ms(new_ms));
            assert!(seen[0].body == b"new" && seen[0].sequence() == 1);
            Some(())
        });
    }
}

#[test]
fn a_refreshed_timer_does_not_pop_and_counts_anew() {
    let node = Node::shared();
    until("a run in which the timer was refreshed in time", || {
        let sink = Sink::ok();
        let refreshed = document("0.5", Some("1"), &sink.uri("/"), "x");
        let mut last = Instant::now();
        let path = node.create(&refreshed);
        for _ in 0..10 {
            thread::sleep(ms(100));
            let asked = Instant::now();
            assert_eq!(node.request("PUT", &path, &refreshed).status, 200);
            if last.elapsed() >= ms(500) {
                // The machine was away for an interval: the pop was rightly made.
                return None;
            }
            last = asked;
        }
        let seen = sink.wait_for(2);
        assert!(seen[0].at >= last + ms(500), "a pop of what was refreshed");
        assert_eq!([seen[0].sequence(), seen[1].sequence()], [1, 2]);
        Some(())
    });
}

#[test]
fn a_pop_in_flight_keeps_its_content_and_the_old_schedule_ends() {
    for shards in [1, 2] {
        let node = Node::start(shards, "");
        // The first callback is answered only when the test says so.
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let sink = Sink::start(move |callback, _| match callback.path.as_str() {
            "/old" => {
                let wait = released.clone();
                let _ = wait.lock().expect("one waits").recv_timeout(PATIENCE);
                Reaction::OK
            }
            _ => Reaction::OK,
        });
        let path = node.create(&document("0.05", Some("10"), &sink.uri("/old"), "old content"));
        sink.wait_for(1);
        let began = Instant::now();
        let changed = document("0.3", Some("0.6"), &sink.uri("/new"), "new content");
        assert_eq!(node.request("PUT", &path, &changed).status, 200);
        release.send(()).expect("the sink waits");
        let seen = sink.wait_for(3);
        let seen: Vec<_> = seen
            .iter()
            .map(|one| (one.path.as_str(), one.body.as_slice(), one.sequence()))
            .collect();
        let expected: [(&str, &[u8], u64); 3] =
            [("/old", b"old content", 1), ("/new", b"new content", 1), ("/new", b"new content", 2)];
        assert_eq!(seen, expected);
        assert!(began.elapsed() >= ms(600));
        until("the timer to end", || (node.request("GET", &path, "").status == 404).then_some(()));
        assert_eq!(sink.callbacks().len(), 3);
    }
}

#[test]
fn a_pop_in_flight_that_fails_after_a_put_is_not_retried() {
    let node = Node::start_as_installed(2);
    until("an update before the attempt has failed", || {
        let sink = Sink::start(|callback, _| match callback.path.as_str() {
            "/old" => Reaction::Bytes(Vec::new()),
            _ => Reaction::OK,
        });
        let asked = Instant::now();
        let path = node.create(&document("0.05", None, &sink.uri("/old"), ""));
        sink.wait_for(1);
        // The old attempt times out after 2 s, before the new pop.
        let changed = document("2.6", None, &sink.uri("/new"), "");
        assert_eq!(node.request("PUT", &path, &changed).status, 200);
        if asked.elapsed() >= ms(2_000) {
            return None;
        }
        let seen = sink.wait_for(2);
        assert_eq!((seen[1].path.as_str(), seen[1].sequence()), ("/new", 1));
        Some(())
    });
}

#[test]
fn what_is_far_away_waits_and_can_be_brought_near() {
    let node = Node::shared();
    let sink = Sink::ok();
    // Each timer lies in another part of the wheel, the last beyond 2^31 ms.
    let far: Vec<_> = ["5", "600", "86400", "2147484", "3153600000"]
        .iter()
        .map(|interval| node.create(&document(interval, None, &sink.uri("/far"), "")))
        .collect();
    for path in &far {
        let near = document("0.1", None, &sink.uri("/near"), "");
        assert_eq!(node.request("PUT", path, &near).status, 200);
    }
    let seen = sink.wait_for(far.len());
    assert!(seen.iter().all(|one| one.path == "/near"));
}

#[test]
fn a_herd_is_delivered_once_each_while_requests_go_on() {
    const HERD: usize = 10_000;
    let node = Node::start(2, "");
    let sink = Sink::ok();
    let began = Instant::now();
    let herd_due = began + ms(2_500);
    thread::scope(|scope| {
        for half in 0..2 {
            let (node, sink) = (&node, &sink);
            scope.spawn(move || {
                let mut client = node.client();
                for at in (half..HERD).step_by(2) {
                    // All timers are due within a few milliseconds, whenever they are created.
                    let left_ms = herd_due.saturating_duration_since(Instant::now()).as_millis();
                    let interval = format!("{}.{:03}", left_ms / 1_000, left_ms % 1_000);
                    client.create(&document(&interval, None, &sink.uri(&format!("/{at}")), "x"));
                }
            });
        }
    });
    let mut client = node.client();
    while sink.count() < HERD {
        assert_eq!(client.request("GET", "/ping", "").status, 200);
        assert!(began.elapsed() < PATIENCE, "{} of {HERD}", sink.count());
    }
    sink.assert_no_more(&node, HERD, "0.2");
    let mut paths: Vec<_> = sink.callbacks().into_iter().map(|one| one.path).collect();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), HERD + 1, "the marker and every timer");
}

#[test]
fn a_server_slower_than_the_interval_gets_every_pop_in_order() {
    let node = Node::shared();
    let slow = Sink::start(|_, _| Reaction::Late(ms(30)));
    let fast = Sink::ok();
    node.create(&document("0.01", Some("0.3"), &slow.uri("/"), "x"));
    node.create(&document("0.001", Some("0.5"), &fast.uri("/"), "x"));
    for (sink, pops) in [(&slow, 30), (&fast, 500)] {
        let seen = sink.wait_for(pops);
        let sequences: Vec<_> = seen.iter().map(|callback| callback.sequence()).collect();
        assert_eq!(sequences, (1..=pops as u64).collect::<Vec<_>>());
        sink.assert_no_more(&node, pops, "0.05");
    }
}

#[test]
fn a_timer_made_anew_while_the_deleted_one_pops_is_its_own() {
    let node = Node::shared();
    // The first callback is answered only when the test says so.
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let sink = Sink::start(move |callback, _| {
        if callback.path == "/old" {
            let _ = released.lock().expect("one waits").recv_timeout(PATIENCE);
        }
        Reaction::OK
    });
    let path = node.create(&document("0.05", Some("10"), &sink.uri("/old"), "old"));
    sink.wait_for(1);
    assert_eq!(node.request("DELETE", &path, "").status, 200);
    let anew = document("0.3", Some("0.6"), &sink.uri("/new"), "new");
    assert_eq!(node.request("PUT", &path, &anew).status, 200);
    release.send(()).expect("the sink waits");
    let seen = sink.wait_for(3);
    let seen: Vec<_> = seen.iter().map(|one| (one.path.as_str(), one.sequence())).collect();
    assert_eq!(seen, [("/old", 1), ("/new", 1), ("/new", 2)]);
    sink.assert_no_more(&node, 3, "0.1");
}
