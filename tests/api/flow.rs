//! Flow control per destination: rules of the configuration and of operators, what they do to
//! callbacks, and what operators see.

use std::time::{Duration, Instant};

use kit::ports;
use serde_json::Value;

use super::harness::{Answer, Client, Node, document, until};
use super::sink::{Reaction, Sink};

const ORDER: &str = "X-Chronos-Order: 1\r\n";

fn admin(node: &Node, method: &str, path: &str, body: &str) -> Answer {
    admin_with(node, method, path, ORDER, body.as_bytes())
}

fn admin_with(node: &Node, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
    let mut client = Client::connect(node.admin);
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {length}\r\n\r\n");
    client.send([head.as_bytes(), body].concat());
    client.answer()
}

fn put(node: &Node, name: &str, body: &str) -> Value {
    let answer = admin(node, "PUT", &format!("/destinations/{name}"), body);
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_slice(&answer.body).expect("JSON")
}

fn look(node: &Node, path: &str) -> Value {
    let answer = admin_with(node, "GET", path, "", b"");
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    serde_json::from_slice(&answer.body).expect("JSON")
}

fn one(node: &Node, name: &str) -> Value {
    look(node, &format!("/destinations/{name}"))
}

fn create(node: &Node, count: usize, uri: &str) {
    let mut client = node.client();
    for _ in 0..count {
        client.create(&document("0", None, uri, "x"));
    }
}

#[test]
fn a_paused_destination_gets_nothing_and_another_notices_nothing() {
    let node = Node::start(2, "");
    let (sink, other) = (Sink::ok(), Sink::ok());
    let name = sink.address.to_string();
    let told = put(&node, &name, r#"{"paused": true}"#);
    assert_eq!((&told["paused"], &told["set-by"]), (&true.into(), &"order".into()));
    create(&node, 50, &sink.uri("/"));
    create(&node, 50, &other.uri("/"));
    other.wait_for(50);
    until("they wait", || (one(&node, &name)["queue"] == 50).then_some(()));
    assert_eq!(sink.count(), 0);
    assert_eq!(node.metric("chronos_destinations_paused"), 1.0);
    let told = put(&node, &name, r#"{"paused": false, "max-in-flight": 3}"#);
    assert_eq!((&told["paused"], &told["max-in-flight"]), (&false.into(), &3.into()));
    sink.wait_for(50);
    assert_eq!(admin(&node, "DELETE", &format!("/destinations/{name}"), "").status, 200);
    until("nothing is known of it", || {
        let path = format!("/destinations/{name}");
        (admin_with(&node, "GET", &path, "", b"").status == 404).then_some(())
    });
}

#[test]
fn no_more_run_at_a_time_than_may_over_all_cores() {
    let node = Node::start(2, "");
    let sink = Sink::start(|_, _| {
        std::thread::sleep(Duration::from_millis(20));
        Reaction::OK
    });
    put(&node, &sink.address.to_string(), r#"{"max-in-flight": 3}"#);
    create(&node, 60, &sink.uri("/"));
    let mut most = 0;
    until("all have come", || {
        let in_flight = one(&node, &sink.address.to_string())["in-flight"].as_u64();
        most = most.max(in_flight.expect("a number"));
        (sink.count() >= 60).then_some(())
    });
    assert!((1..=3).contains(&most), "{most}");
}

#[test]
fn the_rate_holds_over_all_cores() {
    let node = Node::start(2, "");
    let sink = Sink::ok();
    put(&node, &sink.address.to_string(), r#"{"rate-per-second": 20}"#);
    let began = Instant::now();
    create(&node, 40, &sink.uri("/"));
    sink.wait_for(40);
    // 40 moments are 39 pauses of 50 ms; 10 ms are caught up. Cores that share them take as long.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(39 * 50 - 10), "{took:?}");
}

#[test]
fn the_configuration_has_rules_which_orders_go_before_and_sighup_changes() {
    let sink = Sink::ok();
    let name = sink.address.to_string();
    let config = |words: &str| format!("[callbacks]\ndestinations = [\"{name} {words}\"]\n");
    let node = Node::start(1, &config("paused"));
    create(&node, 5, &sink.uri("/"));
    let told = one(&node, &name);
    assert_eq!((&told["paused"], &told["set-by"]), (&true.into(), &"configuration".into()));
    let answer = admin(&node, "DELETE", &format!("/destinations/{name}"), "");
    assert!(answer.status == 404 && answer.text().contains("[callbacks]"), "{answer:?}");
    put(&node, &name, "{}");
    sink.wait_for(5);
    let answer = admin(&node, "DELETE", &format!("/destinations/{name}"), "");
    assert!(answer.status == 200 && answer.text().contains("\"paused\": true"), "{answer:?}");
    create(&node, 5, &sink.uri("/"));
    until("they wait", || (one(&node, &name)["queue"] == 5).then_some(()));
    node.reconfigure(&config("rate-per-second=1000"));
    sink.wait_for(10);
}

/// By an order, and by the configuration.
#[test]
fn a_rule_that_is_taken_away_lets_each_timer_make_its_present_pop_only() {
    const TIMERS: usize = 5;
    for is_order in [true, false] {
        let sink = Sink::ok();
        let name = sink.address.to_string();
        let paused = format!("[callbacks]\ndestinations = [\"{name} paused\"]\n");
        let node = Node::start(2, if is_order { "" } else { &paused });
        if is_order {
            put(&node, &name, r#"{"paused": true}"#);
        }
        let mut client = node.client();
        (0..TIMERS).for_each(|timer| {
            client.create(&document("0.2", Some("1000"), &sink.uri(&format!("/{timer}")), "x"));
        });
        let made = Instant::now();
        until("ten pops to be missed", || (made.elapsed().as_secs() >= 2).then_some(()));
        assert_eq!((one(&node, &name)["queue"].as_u64(), sink.count()), (Some(5), 0));
        match is_order {
            true => {
                let path = format!("/destinations/{name}");
                assert_eq!(admin(&node, "DELETE", &path, "").status, 200);
            }
            false => node.reconfigure("[callbacks]\n"),
        }
        let seen = sink.wait_for(2 * TIMERS);
        let least = seen.iter().map(|one| one.sequence()).min();
        assert!(least >= Some(10), "order: {is_order}, the first is {least:?}");
        assert!(node.metric("chronos_pops_given_up_total") >= 9.0 * TIMERS as f64);
    }
}

#[test]
fn the_breaker_is_shown() {
    let node = Node::start(1, "[callbacks]\nretry_first_ms = 20\nretry_max_ms = 2000\n");
    let host = "127.0.0.1".parse().expect("an address");
    let name = format!("{host}:{}", ports::free_port(&[host]));
    create(&node, 20, &format!("http://{name}/"));
    let state = until("it is open", || {
        let state = one(&node, &name);
        (state["breaker"] == "open").then_some(state)
    });
    assert!(state["failures"].as_u64() >= Some(8), "{state}");
    assert!(state["next-probe-ms"].as_u64() <= Some(2_000), "{state}");
    assert_eq!(state["rule"], Value::Null);
    let all = look(&node, "/destinations");
    assert_eq!(all["destinations"][0]["destination"], name, "{all}");
    let sink = Sink::on(&name, |_, _| Reaction::OK);
    sink.wait_for(20);
    until("it is closed", || {
        let answer = admin_with(&node, "GET", &format!("/destinations/{name}"), "", b"");
        (answer.status == 404).then_some(())
    });
}

#[test]
fn orders_need_what_orders_need() {
    let node = Node::shared();
    for method in ["PUT", "DELETE"] {
        let answer = admin_with(&node, method, "/destinations/a", "", b"{}");
        assert_eq!(answer.status, 403, "{answer:?}");
        assert!(answer.text().contains("X-Chronos-Order"), "{answer:?}");
    }
    assert_eq!(admin(&node, "POST", "/destinations/a", "{}").status, 405);
}

#[test]
fn bad_rules_and_names_are_told_and_change_nothing() {
    let node = Node::start(1, "");
    for (body, told) in [
        (r#"{"rate-per-second": 0}"#, "rate-per-second: expected 0.001 to 1000000, got 0"),
        (r#"{"rate-per-second": -0.0}"#, "rate-per-second: expected 0.001"),
        (r#"{"rate-per-second": -5}"#, "rate-per-second: expected 0.001"),
        (r#"{"rate-per-second": 1e999}"#, "body"),
        (r#"{"rate-per-second": NaN}"#, "body"),
        (r#"{"rate-per-second": "1"}"#, "rate-per-second: expected a number"),
        (r#"{"rate-per-second": 1, "rate-per-second": 2}"#, "expected once, got it twice"),
        (r#"{"max-in-flight": 1.5}"#, "max-in-flight: expected a whole number"),
        (r#"{"max-in-flight": []}"#, "max-in-flight: expected a whole number"),
        (r#"{"paused": "yes"}"#, "paused: expected true or false"),
        (r#"{"breaker": "open"}"#, "breaker: expected max-in-flight"),
        ("", "body"),
        ("null", "body: expected an object"),
        ("{", "body"),
        ("\u{0}", "body"),
    ] {
        let answer = admin(&node, "PUT", "/destinations/a", body);
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        assert!(answer.text().contains(told), "{body}: {answer:?}");
    }
    for name in [
        "a%20b",
        "%00",
        "%FF",
        "http:%2F%2Fa",
        "a:0",
        "a:99999",
        "a/b",
        "::1",
        "%5B::1",
        "127.1",
        "..",
    ] {
        let answer = admin(&node, "PUT", &format!("/destinations/{name}"), "{}");
        assert_eq!(answer.status, 400, "{name}: {answer:?}");
    }
    let long = format!("/destinations/{}", "a".repeat(3_000));
    assert_eq!(admin(&node, "PUT", &long, "{}").status, 400);
    let huge = " ".repeat(200 << 10);
    assert_eq!(admin(&node, "PUT", "/destinations/a", &huge).status, 413);
    for query in ["limit=0", "limit=x", "limit=1&limit=2", "what=1"] {
        let answer = admin_with(&node, "GET", &format!("/destinations?{query}"), "", b"");
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
    }
    assert_eq!(look(&node, "/destinations")["rules"], 0);
    node.assert_alive("bad rules");
}

#[test]
fn the_table_of_rules_is_bounded() {
    let node = Node::start(1, "");
    let mut refused = 0;
    for number in 0..1_050 {
        let answer =
            admin(&node, "PUT", &format!("/destinations/h{number}"), r#"{"paused":false}"#);
        if answer.status == 409 {
            refused += 1;
            assert!(answer.text().starts_with("1000 destinations have rules"), "{answer:?}");
        } else {
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }
    assert_eq!(refused, 50);
    let mut names = 0;
    let mut path = "/destinations?limit=300".to_owned();
    loop {
        let page = look(&node, &path);
        names += page["destinations"].as_array().expect("a list").len();
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/destinations?limit=300&after={next}");
    }
    assert_eq!(names, 1_000);
    let sink = Sink::ok();
    create(&node, 10, &sink.uri("/"));
    sink.wait_for(10);
}
