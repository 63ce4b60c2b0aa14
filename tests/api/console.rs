//! What the console asks the admin API for, and what it is served with.

use std::net::SocketAddr;

use serde_json::Value;

use super::harness::{Answer, Client, Node, document, far_document, until};

/// One request to the admin API with these further header lines.
fn ask(to: SocketAddr, method: &str, path: &str, lines: &str) -> Answer {
    let mut client = Client::connect(to);
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: {to}\r\n{lines}\r\n"));
    client.answer()
}

fn json(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("Content-Type"), Some("application/json"));
    serde_json::from_str(answer.text()).expect("JSON")
}

fn get(to: SocketAddr, path: &str) -> Value {
    json(&ask(to, "GET", path, ""))
}

const ORDER: &str = "X-Chronos-Order: 1\r\n";

#[test]
fn the_page_is_served_with_a_strict_policy() {
    let node = Node::shared();
    let page = ask(node.admin, "GET", "/", "");
    assert_eq!(page.header("Content-Type"), Some("text/html; charset=utf-8"));
    let policy = page.header("Content-Security-Policy").expect("a policy");
    for rule in ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "'sha256-"] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cache-Control", "no-store"),
    ] {
        assert_eq!(page.header(name), Some(value));
    }
    assert!(page.text().starts_with("<!doctype html>") && page.body.len() < 200 << 10);
    assert_eq!(ask(node.admin, "POST", "/", ORDER).status, 405);
}

#[test]
fn the_own_page_may_ask_and_other_pages_may_not() {
    let node = Node::start(1, "");
    let to = node.admin;
    let origin = |origin: String| format!("Origin: {origin}\r\n");
    let own = origin(format!("http://{to}"));
    assert_eq!(ask(to, "GET", "/overview", &own).status, 200);
    let other = SocketAddr::new(to.ip(), to.port() ^ 1);
    for origin in [
        origin(format!("http://{other}")),
        origin(format!("https://{to}")),
        origin("null".into()),
        origin("http://evil.example".into()),
        own.repeat(2),
    ] {
        assert_eq!(ask(to, "GET", "/overview", &origin).status, 403, "{origin}");
    }
    let path = "/destinations/a.example";
    assert_eq!(ask(to, "DELETE", path, &own).status, 403, "no header of an order");
    assert_ne!(ask(to, "DELETE", path, &format!("{own}{ORDER}")).status, 403);
}

#[test]
fn an_overview_tells_figures_and_when_timers_are_due() {
    let node = Node::start(2, "");
    for _ in 0..3 {
        node.create(&far_document());
    }
    let told = until("the count", || {
        let told = get(node.admin, "/overview");
        (told["due"]["timers"] == 3).then_some(told)
    });
    assert_eq!((&told["counters"]["creates"], &told["gauges"]["timers"]), (&3.into(), &3.into()));
    assert_eq!((&told["state"], &told["shards"]), (&"serving".into(), &2.into()));
    assert_eq!(
        told["due"]["due"]["within-hour"]
            .as_u64()
            .zip(told["due"]["due"]["later"].as_u64())
            .map(|(hour, later)| hour + later),
        Some(3)
    );
    let bounds = told["lateness"]["le_us"].as_array().expect("bounds").len();
    assert_eq!(told["lateness"]["counts"].as_array().map(Vec::len), Some(bounds + 1));
    assert!(told.to_string().len() < 4 << 10, "{told}");
    until("nothing that takes long", || {
        let told = get(node.admin, "/overview");
        (told["work"].as_array().map(Vec::len) == Some(0)).then_some(())
    });
    // The walk is shared: more timers are told when the next one has ended, not at once.
    node.create(&far_document());
    let told = get(node.admin, "/overview");
    assert_eq!((&told["gauges"]["timers"], &told["due"]["timers"]), (&4.into(), &3.into()));
}

#[test]
fn one_timer_is_shown_with_its_replicas_and_next_pops_and_deleted() {
    let node = Node::start(2, "");
    let body = document("3600", Some("9000"), "http://127.0.0.1:9/never", "x");
    let path = node.create(&body);
    let told = get(node.admin, &path);
    assert_eq!(told["location"], path.as_str());
    assert_eq!(told["timing"]["interval"], 3_600);
    assert_eq!(told["next-pops"].as_array().map(Vec::len), Some(2));
    let due_in_ms = told["due-in-ms"].as_i64().expect("a number");
    assert!((3_500_000..=3_600_000).contains(&due_in_ms), "{told}");
    assert_eq!(told["replicas"][0]["liveness"], "self");
    assert_eq!(ask(node.admin, "DELETE", &path, "").status, 403, "no order");
    assert_eq!(node.request("GET", &path, "").status, 200);
    let deleted = ask(node.admin, "DELETE", &path, ORDER);
    assert_eq!((deleted.status, deleted.header("Location")), (200, Some(path.as_str())));
    assert_eq!(node.request("GET", &path, "").status, 404);
    assert_eq!(ask(node.admin, "GET", &path, "").status, 404);

    let named = "/timers/by-name/a%2Fb";
    assert_eq!(node.request("PUT", named, &body).status, 200);
    assert_eq!(get(node.admin, named)["name"], "a/b");
    assert_eq!(ask(node.admin, "DELETE", named, ORDER).status, 200);
    assert_eq!(ask(node.admin, "GET", named, "").status, 404);
}

#[test]
fn the_admin_port_takes_no_order_that_has_a_condition() {
    let node = Node::start(2, "");
    let body = document("3600", None, "http://127.0.0.1:9/never", "x");
    let (path, named) = (node.create(&body), "/timers/by-name/conditional");
    assert_eq!(node.request("PUT", named, &body).status, 200);
    for condition in ["If-Match: \"0000000000000001\"", "If-None-Match: *"] {
        let lines = format!("{ORDER}{condition}\r\n");
        for timer in [path.as_str(), named] {
            let deletes = ask(node.admin, "DELETE", timer, &lines);
            let runs = ask(node.admin, "POST", &format!("{timer}/run-now"), &lines);
            for answer in [deletes, runs] {
                assert_eq!(answer.status, 400, "{answer:?}");
                assert!(answer.text().contains("expected at the port of clients"), "{answer:?}");
            }
            assert_eq!(ask(node.admin, "GET", timer, "").status, 200, "it is there");
        }
    }
}

#[test]
fn nonsense_for_a_timer_is_refused() {
    let node = Node::shared();
    for path in ["/timers/x", "/timers/0-1", "/timers/%00", "/timers/1234567890abcdef-99", "/none"]
    {
        assert_eq!(ask(node.admin, "GET", path, "").status, 404, "{path}");
    }
    for path in ["/timers/by-name/%", "/timers/by-name/%ff", "/timers/by-name/a/b"] {
        assert_eq!(ask(node.admin, "GET", path, "").status, 400, "{path}");
    }
    node.assert_alive("nonsense");
}

#[test]
fn configuration_journal_alarms_and_access_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::start(1, &format!("[journal]\ndata_dir = {:?}\n", folder.path()));
    let config = get(node.admin, "/config");
    let sections = config["sections"].as_array().expect("a list");
    let journal = sections.iter().find(|section| section["name"] == "journal").expect("there");
    let key = &journal["keys"].as_array().expect("a list")[0];
    assert_eq!((&key["name"], &key["default"]), (&"data_dir".into(), &"\"\"".into()));
    assert!(key["origin"].as_str().is_some_and(|origin| origin.ends_with(":2")), "{key}");
    node.create(&far_document());
    let journal = get(node.admin, "/journal");
    assert_eq!((&journal["mode"], &journal["is_full"]), (&"sync".into(), &false.into()));
    assert!(journal["writes"].as_u64() > Some(0), "{journal}");
    assert_eq!(get(node.admin, "/timestamp")["role"], "off");
    assert_eq!(get(node.admin, "/access")["may-order"], true);
    assert_eq!(
        get(node.admin, "/cluster/members")["views"][0]["view"]["members"][0]["liveness"],
        "self"
    );
    let told = get(node.admin, "/alarms");
    assert!(told["watched"].as_u64() > Some(20), "{told}");
    assert_eq!(told["alarms"], Value::Array(vec![]), "{told}");
}

#[test]
fn what_is_refused_becomes_an_alarm_in_words() {
    let node = Node::start(1, "[limits]\ntimers_max = 1\n");
    node.create(&far_document());
    assert_eq!(node.request("POST", "/timers", &far_document()).status, 503);
    let alarm = until("the alarm", || {
        let told = get(node.admin, "/alarms");
        let alarms = told["alarms"].as_array().expect("a list").clone();
        alarms.into_iter().find(|alarm| alarm["name"] == "requests-refused")
    });
    assert_eq!((&alarm["severity"], &alarm["value"]), (&"warning".into(), &1.into()));
    for member in ["what", "effect", "remedy", "since"] {
        assert!(alarm[member].as_str().is_some_and(|text| text.len() > 10), "{alarm}");
    }
    let counts = &get(node.admin, "/overview")["alarms"];
    assert!(counts["warning"].as_u64() >= Some(1), "{counts}");
}

#[test]
fn a_timer_is_paused_resumed_and_run_by_operators() {
    let node = Node::start(2, "");
    let path = node.create(&far_document());
    let act = |action: &str| ask(node.admin, "POST", &format!("{path}/{action}"), ORDER);
    assert_eq!(ask(node.admin, "POST", &format!("{path}/pause"), "").status, 403, "no order");
    assert_eq!(act("pause").status, 200);
    assert_eq!(get(node.admin, &path)["paused"], true);
    assert_eq!(act("run-now").status, 409);
    assert_eq!((act("resume").status, act("run-now").status), (200, 200));
    assert_eq!(get(node.admin, &path)["paused"], Value::Null);
    for path in [format!("{path}/stop"), "/timers/1234567890abcdef-1/pause".to_owned()] {
        assert_eq!(ask(node.admin, "POST", &path, ORDER).status, 404, "{path}");
    }
    let named = "/timers/by-name/a%2Fb";
    assert_eq!(node.request("PUT", named, &far_document()).status, 200);
    assert_eq!(ask(node.admin, "POST", &format!("{named}/pause"), ORDER).status, 200);
    assert_eq!(get(node.admin, named)["paused"], true);
    assert_eq!(ask(node.admin, "POST", &format!("{named}/stop"), ORDER).status, 404);
}
