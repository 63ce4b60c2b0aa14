//! Callbacks as the callback server sees them: the exact request, what counts as success, and what
//! follows a failure.

use std::collections::HashSet;
use std::time::Duration;

use super::harness::{Node, document, until};
use super::sink::{Callback, Reaction, Sink};

/// Pauses count from the beginning of the millisecond in which the failure was seen.
const TICK: Duration = Duration::from_millis(1);
const RETRY_FIRST: Duration = Duration::from_millis(100);

/// A node that gives up early.
fn hasty_node() -> Node {
    Node::start(
        2,
        "[callbacks]\ntimeout_ms = 300\nretry_first_ms = 20\nretry_max_ms = 40\ngive_up_ms = 400\n",
    )
}

fn gaps(seen: &[Callback]) -> Vec<Duration> {
    seen.windows(2).map(|pair| pair[1].at - pair[0].at).collect()
}

#[test]
fn the_request_has_exactly_these_bytes() {
    let node = Node::shared();
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
    let sink = Sink::start(|_, before| Reaction::Status(if before < 6 { 500 } else { 200 }));
    node.create(&document("0", None, &sink.uri("/"), "x"));
    let gaps = gaps(&sink.wait_for(7));
    for (gap, least_ms) in gaps.iter().zip([50, 100, 200, 200, 200, 200]) {
        let least = Duration::from_millis(least_ms) - TICK;
        // At most half of the pause is added, to spread a herd. The rest is for a busy machine.
        assert!(*gap >= least && *gap <= 2 * least + Duration::from_secs(2), "{gaps:?}");
    }
    sink.assert_no_more(&node, 7, "0.5");
}

#[test]
fn the_last_pop_is_given_up_in_the_end() {
    let node = hasty_node();
    let sink = Sink::start(|callback, _| {
        Reaction::Status(if callback.path == "/marker" { 200 } else { 500 })
    });
    let path = node.create(&document("0", None, &sink.uri("/"), "x"));
    until("giving up", || (node.metric("chronos_pops_given_up_total") == 1.0).then_some(()));
    assert_eq!(node.request("GET", &path, "").status, 404);
    let seen = sink.callbacks();
    assert!(seen.len() >= 3, "{} tries in 400 ms", seen.len());
    sink.assert_no_more(&node, seen.len(), "0.2");
}

#[test]
fn a_repeating_timer_goes_on_after_a_pop_that_was_given_up() {
    let node = hasty_node();
    let sink = Sink::start(|callback, _| {
        Reaction::Status(if callback.sequence() == 2 { 500 } else { 200 })
    });
    node.create(&document("0.3", Some("1.2"), &sink.uri("/"), "x"));
    let seen = sink.wait_until("the last pop", |seen| seen.iter().any(|one| one.sequence() == 4));
    let sequences: Vec<_> = seen.iter().map(|one| one.sequence()).collect();
    let mut distinct = sequences.clone();
    distinct.dedup();
    assert_eq!(distinct, [1, 2, 3, 4], "{sequences:?}");
    assert!(sequences.iter().filter(|&&sequence| sequence == 2).count() >= 2, "{sequences:?}");
    let third = seen.iter().find(|one| one.sequence() == 3).expect("seen");
    let took = third.at - seen[0].at;
    let due = Duration::from_millis(600);
    let slack = Duration::from_millis(200);
    assert!(took + slack >= due, "in its own interval: after {took:?}");
}

#[test]
fn a_server_that_takes_longer_than_two_seconds_has_failed() {
    let node = Node::shared();
    let sink = Sink::start(|_, before| match before {
        0 => Reaction::Late(Duration::from_millis(2_600)),
        _ => Reaction::OK,
    });
    node.create(&document("0", None, &sink.uri("/"), "x"));
    let gap = gaps(&sink.wait_for(2))[0];
    assert!(gap >= Duration::from_millis(2_050) && gap < Duration::from_secs(5), "{gap:?}");
    // The late answer belongs to no attempt.
    sink.assert_no_more(&node, 2, "1");
}

#[test]
fn a_server_that_takes_less_has_not() {
    let node = Node::shared();
    let sink = Sink::start(|_, _| Reaction::Late(Duration::from_millis(1_500)));
    let path = node.create(&document("0", None, &sink.uri("/"), "x"));
    sink.wait_for(1);
    until("success", || (node.request("GET", &path, "").status == 404).then_some(()));
    assert_eq!(sink.callbacks().len(), 1);
}

#[test]
fn connections_are_kept_and_bounded() {
    const PER_HOST: usize = 3;
    let config = format!("[callbacks]\nconnections_per_host_max = {PER_HOST}\n");
    let node = Node::start(1, &config);
    let sink = Sink::start(|_, _| Reaction::Late(Duration::from_millis(2)));
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
