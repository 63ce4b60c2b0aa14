//! Callbacks as the callback server sees them: the exact request, what counts as success, and what
//! follows a failure.

use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::harness::{Node, PATIENCE, document, until};
use super::sink::{Callback, Reaction, Sink};

/// Pauses count from the beginning of the millisecond in which the failure was seen.
const TICK: Duration = Duration::from_millis(1);
const RETRY_FIRST: Duration = Duration::from_millis(100);

/// A node that tries again within milliseconds, and gives up after 2 s.
fn hasty_node() -> Node {
    Node::start(2, "[callbacks]\nretry_first_ms = 20\nretry_max_ms = 40\ngive_up_ms = 2000\n")
}

fn gaps(seen: &[Callback]) -> Vec<Duration> {
    seen.windows(2).map(|pair| pair[1].at - pair[0].at).collect()
}

#[test]
fn the_request_has_exactly_these_bytes() {
    let node = Node::start(2, "[callbacks]\ntimer_headers = false\n");
    let sink = Sink::ok();
    let authority = sink.address.to_string();
    for (target, requested) in [
        ("/call-id/a%2Fb?timer-interim=true", "/call-id/a%2Fb?timer-interim=true"),
        ("", "/"),
        ("?x=1", "/?x=1"),
        ("/a//b/../c;d='e'", "/a//b/../c;d='e'"),
        ("/path#fragment", "/path"),
    ] {
        let before = sink.callbacks().len();
        node.create(&document("0", None, &format!("http://{authority}{target}"), "opaque data"));
        let callback = sink.wait_for(before + 1).remove(before);
        let expected = format!(
            "POST {requested} HTTP/1.1\r\nHost: {authority}\r\n\
             Content-Type: application/octet-stream\r\n\
             X-Sequence-Number: 1\r\nContent-Length: 11\r\n\r\n"
        );
        assert_eq!(callback.head, expected);
        assert_eq!(callback.body, b"opaque data");
    }
}

#[test]
fn opaque_data_arrives_byte_by_byte_as_it_was_sent() {
    let node = Node::shared();
    let sink = Sink::ok();
    let all_controls: String = (0..=0x7f_u8).map(char::from).collect();
    let large = "0123456789abcdef".repeat(16 << 10);
    let large_unicode = "\u{1F600}".repeat(64 << 10);
    let opaques = [
        "",
        "\0",
        "a\0b\0",
        &all_controls,
        "\u{e9}\u{4e2d}\u{1F600}\u{10FFFF}\u{fffe}",
        "{\"event\":{\"a\":[1,2]}}",
        "\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        &large,
        &large_unicode,
    ];
    for (at, opaque) in opaques.iter().enumerate() {
        node.create(&document("0", None, &sink.uri(&format!("/{at}")), opaque));
    }
    let seen = sink.wait_for(opaques.len());
    for callback in seen {
        let at: usize = callback.path[1..].parse().expect("a number");
        assert!(callback.body == opaques[at].as_bytes(), "opaque {at} of {}", callback.body.len());
    }
}

#[test]
fn json_escapes_of_every_kind_are_resolved() {
    let node = Node::shared();
    let sink = Sink::ok();
    let body = document("0", None, &sink.uri("/"), "@")
        .replace("\"@\"", r#""\"\\\/\b\f\n\r\t\u0041\u00e9\u4E2D\uD83D\uDE00\u0000""#);
    node.create(&body);
    let expected = "\"\\/\u{8}\u{c}\n\r\tA\u{e9}\u{4e2d}\u{1F600}\0";
    assert_eq!(sink.wait_for(1)[0].body, expected.as_bytes());
}

#[test]
fn any_2xx_is_success() {
    let node = Node::shared();
    let sink =
        Sink::start(|callback, _| Reaction::Status(callback.path[1..].parse().expect("a status")));
    let statuses = [200, 201, 202, 204, 206, 299];
    for status in statuses {
        node.create(&document("0.05", Some("0.1"), &sink.uri(&format!("/{status}")), "x"));
    }
    let seen = sink.wait_for(2 * statuses.len());
    let pops: HashSet<_> = seen.iter().map(|one| (one.path.clone(), one.sequence())).collect();
    assert_eq!(pops.len(), 2 * statuses.len(), "each popped twice, none was retried");
}

#[test]
fn other_statuses_are_failures_and_are_retried() {
    let node = Node::shared();
    let statuses = [300, 301, 302, 304, 400, 401, 404, 410, 500, 503, 599];
    let sink = Sink::start(move |callback, _| {
        let status = &callback.path[1..];
        Reaction::Bytes(
            format!(
                "HTTP/1.1 {status} X\r\nLocation: http://127.0.0.1:9/elsewhere\r\n\
                 Content-Length: 0\r\n\r\n"
            )
            .into_bytes(),
        )
    });
    let paths: Vec<_> = statuses
        .iter()
        .map(|status| node.create(&document("0", None, &sink.uri(&format!("/{status}")), "x")))
        .collect();
    let seen = sink.wait_until("two tries of each", |seen| {
        statuses
            .iter()
            .all(|status| seen.iter().filter(|one| one.path == format!("/{status}")).count() >= 2)
    });
    for status in statuses {
        let path = format!("/{status}");
        let tries: Vec<_> = seen.iter().filter(|one| one.path == path).cloned().collect();
        assert!(tries.iter().all(|one| one.sequence() == 1), "one pop, tried again");
        assert!(gaps(&tries)[0] >= RETRY_FIRST - TICK, "{status}: {:?}", gaps(&tries));
    }
    for path in paths {
        assert_eq!(node.request("GET", &path, "").status, 200, "kept while it is tried");
        assert_eq!(node.request("DELETE", &path, "").status, 200);
    }
}

#[test]
fn pauses_between_tries_double_up_to_their_limit() {
    let node = Node::start(1, "[callbacks]\nretry_first_ms = 50\nretry_max_ms = 200\n");
    // Without the limit the last pause alone would be longer than anything is waited for.
    const FAILURES: usize = 12;
    let sink = Sink::start(|_, before| Reaction::Status(if before < FAILURES { 500 } else { 200 }));
    node.create(&document("0", None, &sink.uri("/"), "x"));
    let gaps = gaps(&sink.wait_for(FAILURES + 1));
    let least_ms = [50, 100].into_iter().chain(std::iter::repeat(200));
    for (gap, least_ms) in gaps.iter().zip(least_ms) {
        assert!(*gap >= Duration::from_millis(least_ms) - TICK, "{gaps:?}");
    }
    sink.assert_no_more(&node, FAILURES + 1, "0.5");
}

#[test]
fn the_last_pop_is_given_up_in_the_end() {
    let node = hasty_node();
    let sink = Sink::start(|callback, _| {
        Reaction::Status(if callback.path == "/marker" { 200 } else { 500 })
    });
    let path = node.create(&document("0", None, &sink.uri("/"), "x"));
    node.await_metric("chronos_pops_given_up_total", 1.0);
    assert_eq!(node.request("GET", &path, "").status, 404);
    // Every try was answered, so all of them have come.
    let tries = sink.count();
    assert!(tries >= 2, "{tries} tries");
    sink.assert_no_more(&node, tries, "0.2");
}

#[test]
fn a_repeating_timer_goes_on_after_a_pop_that_was_given_up() {
    let node = hasty_node();
    // Every second pop is refused.
    let sink = Sink::start(|callback, _| {
        Reaction::Status(if callback.sequence() % 2 == 0 { 500 } else { 200 })
    });
    let began = Instant::now();
    node.create(&document("0.3", Some("3600"), &sink.uri("/"), "x"));
    // A machine that is away for an interval leaves no time for a second try at that pop.
    let is_tried_again = |seen: &[Callback]| {
        let twice = seen.windows(2).find(|two| two[0].sequence() == two[1].sequence());
        let last = seen.last().map_or(0, Callback::sequence);
        twice.is_some_and(|two| last >= two[0].sequence() + 2)
    };
    let seen = sink.wait_until("pops behind one that was tried again", is_tried_again);
    let mut sequences: Vec<_> = seen.iter().map(Callback::sequence).collect();
    for callback in &seen {
        let due = began + Duration::from_millis(300) * callback.sequence() as u32;
        assert!(callback.at >= due, "{} is early", callback.sequence());
    }
    sequences.dedup();
    let last = *sequences.last().expect("many");
    assert_eq!(sequences, (1..=last).collect::<Vec<_>>(), "{sequences:?}");
}

#[test]
fn a_server_that_takes_longer_than_two_seconds_has_failed() {
    let node = Node::start_as_installed(2);
    let sink = Sink::start(|_, before| match before {
        0 => Reaction::Late(Duration::from_secs(3)),
        _ => Reaction::OK,
    });
    let began = Instant::now();
    let path = node.create(&document("0", None, &sink.uri("/"), "x"));
    let second = sink.wait_for(2).remove(1);
    let (failed, paused) = (Duration::from_secs(2), RETRY_FIRST);
    assert!(second.at >= began + failed + paused - TICK, "after {:?}", second.at - began);
    assert_eq!(second.sequence(), 1);
    until("success", || (node.request("GET", &path, "").status == 404).then_some(()));
    // The late answer belongs to nothing any more.
    sink.assert_no_more(&node, sink.count(), "1.5");
}

#[test]
fn a_server_that_takes_less_has_not() {
    let node = Node::start_as_installed(2);
    // Where the machine takes the rest of the 2 s, the callback has failed: then once more.
    until("a slow answer that is taken", || {
        let sink = Sink::start(|_, _| Reaction::Late(Duration::from_millis(1_500)));
        let path = node.create(&document("0", None, &sink.uri("/"), "x"));
        sink.wait_for(1);
        until("success", || (node.request("GET", &path, "").status == 404).then_some(()));
        (sink.count() == 1).then_some(())
    });
}

#[test]
fn connections_are_kept_and_bounded() {
    const PER_HOST: usize = 3;
    let config = format!("[callbacks]\nconnections_per_host_max = {PER_HOST}\n");
    let node = Node::start(1, &config);
    // The first callbacks are answered when as many run as may.
    let running = Arc::new((Mutex::new(0), Condvar::new()));
    let sink = Sink::start(move |_, _| {
        let (count, changed) = &*running;
        let mut count = count.lock().expect("nobody panics with it");
        *count += 1;
        changed.notify_all();
        let few = |count: &mut usize| *count < PER_HOST;
        drop(changed.wait_timeout_while(count, PATIENCE, few).expect("nobody panics with it"));
        Reaction::Late(Duration::from_millis(2))
    });
    let mut client = node.client();
    for _ in 0..300 {
        client.create(&document("0.1", None, &sink.uri("/"), "x"));
    }
    let seen = sink.wait_for(300);
    assert!(sink.open_max() <= PER_HOST, "{} open at one time", sink.open_max());
    assert_eq!(sink.connections(), sink.open_max(), "no connection was closed and opened again");
    let used: HashSet<_> = seen.iter().map(|one| one.connection).collect();
    assert_eq!(used.len(), PER_HOST);
}

#[test]
fn an_idle_callback_connection_closes() {
    // The deadline of an attempt is far later, so it cannot be what closes the connection.
    let node = Node::start(1, "[callbacks]\nidle_timeout_ms = 200\ntimeout_ms = 60000\n");
    let sink = Sink::ok();
    node.create(&document("0", None, &sink.uri("/"), "x"));
    sink.wait_for(1);
    until("the connection to close", || (sink.open() == 0).then_some(()));
}
