//! The internal API as an original node uses it: an original's bytes, from its address
//! (docs/compat/timer-service.md §4 and §5). The other member of these clusters does not run.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::harness::{Answer, Client, Node, document, far_document, request_text, until};
use super::sink::Sink;

/// This node and another. Their names, and so lists and view, are those of
/// docs/compat/timer-service.md §5.1.
const TWO: &str = "[cluster]\nlocalhost = \"127.0.0.1\"\nnodes = [\"127.0.0.1\", \"127.0.0.9\"]\n";
const TWO_VIEW: &str = "5030520784871784460";
/// A cluster that this node leaves.
const LEAVING: &str =
    "[cluster]\nlocalhost = \"127.0.0.1\"\nnodes = [\"127.0.0.9\"]\nleaving = [\"127.0.0.1\"]\n";

/// Returns what an original sends, byte for byte except for what the story changes.
fn put(id: u64, timing: &str, uri: &str, replicas: &str) -> String {
    let opaque = if uri.is_empty() { "" } else { "OPAQUE-DATA" };
    let body = format!(
        "{{\"timing\":{{{timing}}},\"callback\":{{\"http\":{{\"uri\":\"{uri}\",\
         \"opaque\":\"{opaque}\"}}}},\"reliability\":{{\"cluster-view-id\":\"{TWO_VIEW}\",\
         \"replicas\":{replicas},\"sites\":[\"site1\"]}},\"statistics\":{{\"tag-info\":[]}}}}"
    );
    format!(
        "PUT /timers/{id:016x}-2 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The list of timers 1, 2, 7, 8, 10 and 12, as docs/compat/timer-service.md §3 computes it. A pop
/// does not change the list.
const OURS_FIRST: &str = "[\"127.0.0.1\",\"127.0.0.9\"]";
const OURS_SECOND: &str = "[\"127.0.0.9\",\"127.0.0.1\"]";

fn timing(delta_ms: i64, sequence: u64) -> String {
    format!(
        "\"start-time\":4200796160,\"start-time-delta\":{delta_ms},\
         \"sequence-number\":{sequence},\"interval\":2,\"repeat-for\":4"
    )
}

fn tell(client: &mut Client, request: &str) -> Answer {
    client.send(request);
    let answer = client.answer();
    assert_eq!(answer.status, 200, "{request}: {answer:?}");
    answer
}

#[test]
fn copies_pop_at_their_rank_and_go_on_as_they_are_told() {
    until("all to be told before the first pop", tell_what_pops);
}

/// The first pop is due half a second after the story's begin: nothing if not all was told by then.
fn tell_what_pops() -> Option<()> {
    let node = Node::start(2, TWO);
    let sink = Sink::ok();
    let mut client = node.client();
    let began = Instant::now();
    let first = put(0x0004_d9f5_4810_0000, &timing(-4_004, 1), &sink.uri("/backup"), OURS_SECOND);
    let answer = tell(&mut client, &first);
    let location = answer.header("Location").expect("as for a client").to_owned();
    assert!(location.starts_with("/timers/0004d9f548100000-2-"), "{location}");
    tell(&mut client, &put(2, &timing(-500, 0), &sink.uri("/primary"), OURS_FIRST));
    // The other rank did the first pop of timer 7. It tells so twice, and an old copy comes late.
    for (delta_ms, sequence) in [(-1_500, 0), (-1_510, 1), (-1_515, 1), (-1_520, 0)] {
        let told = put(7, &timing(delta_ms, sequence), &sink.uri("/popped"), OURS_FIRST);
        tell(&mut client, &told);
    }
    // Timer 8 has ended, and no old copy brings it back.
    tell(&mut client, &put(8, &timing(-500, 0), &sink.uri("/deleted"), OURS_FIRST));
    let tombstone =
        "\"start-time-delta\":0,\"sequence-number\":0,\"interval\":10,\"repeat-for\":10";
    tell(&mut client, &put(8, tombstone, "", OURS_FIRST));
    tell(&mut client, &put(8, &timing(-530, 0), &sink.uri("/deleted"), OURS_FIRST));
    // Timer 10 was written anew. The later start counts, in whatever order the copies come.
    tell(&mut client, &put(10, &timing(-900, 0), &sink.uri("/older"), OURS_FIRST));
    tell(&mut client, &put(10, &timing(-10, 0), &sink.uri("/newer"), OURS_FIRST));
    tell(&mut client, &put(10, &timing(-940, 1), &sink.uri("/older"), OURS_FIRST));
    // Timer 12 comes in the older form: a wall clock modulo 2^32.
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock");
    let start = (since.as_millis() - 700) as u32;
    let older_form = format!("\"start-time\":{start},\"sequence-number\":0,\"interval\":2");
    tell(&mut client, &put(12, &older_form, &sink.uri("/wall"), OURS_FIRST));
    if began.elapsed() >= Duration::from_millis(500) {
        return None;
    }
    let seen = sink.wait_for(7);
    let pops: Vec<_> = seen.iter().map(|pop| (&pop.path[..], pop.sequence())).collect();
    let assert_at = |path: &str, sequence: u64, after_ms: u64| {
        let mut found = seen.iter().filter(|pop| pop.path == path && pop.sequence() == sequence);
        let pop = found.next().unwrap_or_else(|| panic!("no {path} {sequence} in {pops:?}"));
        assert!(found.next().is_none(), "{path} {sequence} twice in {pops:?}");
        let (at, due) = (pop.at - began, Duration::from_millis(after_ms));
        assert!(at >= due, "{path} {sequence} after {at:?}");
        assert_eq!(pop.body, b"OPAQUE-DATA");
    };
    // A told start is older by as long as the message took. No pop is early.
    assert_at("/backup", 2, 1_996);
    assert_at("/primary", 1, 1_500);
    assert_at("/primary", 2, 3_500);
    assert_at("/popped", 2, 2_480);
    assert_at("/newer", 1, 1_990);
    assert_at("/newer", 2, 3_990);
    assert_at("/wall", 1, 1_299);
    sink.assert_no_more(&node, 7, "2");
    node.await_metric("chronos_internal_copies_total", 13.0);
    Some(())
}

#[test]
fn a_copy_whose_callback_is_a_node_of_the_cluster_calls_nobody() {
    let node = Node::start(1, TWO);
    let uri = format!("http://{}/timers", node.address);
    // A client is told at once. A timer that another node tells is held, and its pops fail.
    let refused = node.request("POST", "/timers", &document("1", None, &uri, "x"));
    refused.assert_refusal(403, "callback.http.uri", "a client's");
    let requests = || node.metric("chronos_requests_bad_total");
    node.await_metric("chronos_requests_bad_total", 1.0);
    tell(&mut node.client(), &put(2, &timing(-1_900, 0), &uri, OURS_FIRST));
    node.await_metric("chronos_callbacks_denied_node_total", 1.0);
    assert_eq!((node.metric("chronos_pops_delivered_total"), requests()), (0.0, 1.0));
}

/// Tells the node `count` timers that the other member is to hold, too, all due within a few
/// milliseconds.
fn fill(client: &mut Client, count: u64) {
    for id in 1..=count {
        let timing = "\"start-time-delta\":0,\"sequence-number\":0,\"interval\":3600";
        client.send(put(id, timing, "http://127.0.0.1:9/never", OURS_FIRST));
    }
    for _ in 0..count {
        assert_eq!(client.answer().status, 200);
    }
}

fn page(client: &mut Client, more: &str, range: &str) -> Answer {
    client.send(format!(
        "GET /timers?node-for-replicas=127.0.0.9&cluster-view-id={TWO_VIEW}{more} HTTP/1.1\r\n\
         Host: 127.0.0.1\r\n{range}\r\n"
    ));
    client.answer()
}

fn ids_on(answer: &Answer) -> Vec<u64> {
    let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
    let timers = body["Timers"].as_array().expect("a list");
    timers.iter().map(|timer| timer["TimerID"].as_u64().expect("a number")).collect()
}

#[test]
fn a_round_of_pages_brings_every_timer_once_whatever_its_counting() {
    let node = Node::start(3, TWO);
    fill(&mut node.client(), 1_050);
    // First the next page is asked for from far behind the last one, over connections to any core.
    // An original does so, by the time that an answer takes, and by the delays of ranks. Then the
    // asking node counts from the first timer again and again.
    for (next, is_exact) in [("7200", true), ("0", false)] {
        let mut ids: Vec<u64> = Vec::new();
        let mut more = String::new();
        let mut pages = 0;
        loop {
            let answer = page(&mut node.client(), &more, "Range: 100\r\n");
            let on_page = ids_on(&answer);
            if is_exact && !more.is_empty() {
                let again = page(&mut node.client(), &more, "Range: 100\r\n");
                assert_eq!(ids_on(&again), on_page, "an answer that got lost");
            }
            pages += 1;
            ids.extend(&on_page);
            if answer.status == 200 {
                assert_eq!((answer.header("Content-Range"), on_page.len()), (None, 50));
                break;
            }
            assert_eq!((answer.status, answer.header("Content-Range")), (206, Some("100")));
            assert_eq!(on_page.len(), 100);
            assert!(pages < 200, "a round with {next} does not end");
            more = format!("&time-from={next}{pages:03}");
        }
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!((ids.len(), is_exact), (1_050, count == 1_050), "with {next}: {count}");
    }
    let whole = page(&mut node.client(), "", "Range: 1000\r\n");
    assert_eq!((whole.status, ids_on(&whole).len()), (206, 1_000));
    let body: Value = serde_json::from_slice(&whole.body).expect("JSON");
    let timer = &body["Timers"][0];
    assert_eq!(timer["OldReplicas"], serde_json::json!(["127.0.0.1", "127.0.0.9"]));
    let timer = &timer["Timer"];
    assert_eq!(timer["timing"]["interval"], 3600);
    let delta = timer["timing"]["start-time-delta"].as_i64().expect("a number");
    assert!((-60_000..=0).contains(&delta), "{delta}");
    assert_eq!(timer["callback"]["http"]["opaque"], "OPAQUE-DATA");
    assert_eq!(timer["reliability"]["cluster-view-id"], TWO_VIEW);
    assert_eq!(timer["reliability"]["replicas"].as_array().expect("a list").len(), 2);
    node.await_metric("chronos_timers", 1_050.0);
}

#[test]
fn timers_taken_over_are_forgotten_by_a_node_that_leaves_and_by_no_other() {
    for (config, left) in [(LEAVING, 1.0), (TWO, 3.0)] {
        let node = Node::start(2, config);
        let mut client = node.client();
        fill(&mut client, 3);
        let references = "{\"IDs\":[{\"ID\":1,\"ReplicaIndex\":0},{\"ID\":3,\"ReplicaIndex\":0},\
                          {\"ID\":99,\"ReplicaIndex\":1}]}";
        let answer = client.request("DELETE", "/timers/references", references);
        assert_eq!((answer.status, answer.text()), (202, ""));
        until("the references to be noted", || {
            (node.metric("chronos_internal_references_total") == 3.0).then_some(())
        });
        until("the timers to go", || (node.metric("chronos_timers") == left).then_some(()));
        node.await_metric("chronos_internal_timers_released_total", 3.0 - left);
    }
    // One of two new holders has the timer. The timer goes only when the other one has it, too.
    let config = LEAVING.replace("[\"127.0.0.9\"]", "[\"127.0.0.9\", \"127.0.0.8\"]");
    let node = Node::start(1, &config);
    let mut client = node.client();
    fill(&mut client, 1);
    for (rank, left) in [(1, 1.0), (1, 1.0), (0, 0.0)] {
        let reference = format!("{{\"IDs\":[{{\"ID\":1,\"ReplicaIndex\":{rank}}}]}}");
        assert_eq!(client.request("DELETE", "/timers/references", &reference).status, 202);
        until("the timer to go", || (node.metric("chronos_timers") == left).then_some(()));
    }
}

fn client_from(address: &str, node: &Node) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let from: SocketAddr = format!("{address}:0").parse().expect("an address");
    socket.bind(&from.into()).expect("a loopback address");
    socket.connect(&node.address.into()).expect("the node accepts");
    Client::over(TcpStream::from(socket))
}

#[test]
fn strangers_may_use_the_public_api_only_unless_told_otherwise() {
    let copy = put(7, &timing(0, 0), "http://127.0.0.1:9/never", OURS_FIRST);
    let references = request_text("DELETE", "/timers/references", "{\"IDs\":[]}");
    let pages = format!("/timers?node-for-replicas=127.0.0.9&cluster-view-id={TWO_VIEW}");
    let pages = request_text("GET", &pages, "");
    let ask = |node: &Node, from: &str, request: &str| {
        let mut client = client_from(from, node);
        client.send(request);
        client.answer()
    };
    let node = Node::start(2, TWO);
    for request in [&copy, &references, &pages] {
        let refused = ask(&node, "127.0.0.77", request);
        refused.assert_refusal(403, "accept_strangers", request);
    }
    node.await_metric("chronos_internal_strangers_total", 3.0);
    assert_eq!(node.metric("chronos_timers"), 0.0);
    let public = request_text("GET", "/timers/0000000000000007-2", "");
    assert_ne!(ask(&node, "127.0.0.77", &public).status, 403);
    for (request, status) in [(&copy, 200), (&references, 202), (&pages, 200)] {
        assert_eq!(ask(&node, "127.0.0.9", request).status, status, "{request}");
    }
    let open = Node::start(2, &format!("{TWO}accept_strangers = true\n"));
    for (request, status) in [(&copy, 200), (&references, 202), (&pages, 200)] {
        assert_eq!(ask(&open, "127.0.0.77", request).status, status, "{request}");
    }
}

#[test]
fn what_no_node_sends_is_refused_and_the_node_lives() {
    let node = Node::start(2, TWO);
    let mut client = node.client();
    let good = put(8, &timing(0, 0), "http://127.0.0.1:9/never", OURS_FIRST);
    for (is, becomes, named) in [
        ("\"interval\":2", "\"interval\":-2", "timing.interval"),
        ("\"interval\":2", "\"interval\":0", "timing.interval"),
        ("\"interval\":2", "\"intervall\":2", "timing.interval"),
        ("http://127", "gopher://127", "callback.http.uri"),
        ("\"sequence-number\":0", "\"sequence-number\":-1", "sequence-number"),
        ("-delta\":0", "-delta\":1e99", "start-time-delta"),
        (OURS_FIRST, "[7]", "reliability.replicas"),
        (OURS_FIRST, "[]", "reliability.replicas"),
        (OURS_FIRST, "[\"\"]", "reliability.replicas"),
        ("[\"site1\"]", "{}", "reliability.sites"),
    ] {
        let (head, body) = good.split_once("\r\n\r\n").expect("a head");
        assert!(body.contains(is), "{is}");
        let path = head.split(' ').nth(1).expect("a target");
        let answer = client.request("PUT", path, &body.replace(is, becomes));
        answer.assert_refusal(400, named, becomes);
    }
    let view = format!("cluster-view-id={TWO_VIEW}");
    for (query, status, named) in [
        (view.clone(), 400, "node-for-replicas"),
        ("node-for-replicas=127.0.0.9".into(), 400, "cluster-view-id"),
        ("node-for-replicas=127.0.0.9&cluster-view-id=1".into(), 400, "cluster-view-id"),
        (format!("node-for-replicas=127.0.0.8&{view}"), 404, "127.0.0.8"),
        (format!("node-for-replicas=127.0.0.9&{view}&time-from=-1"), 400, "time-from"),
        (format!("node-for-replicas=127.0.0.9&{view}&{view}"), 400, "twice"),
        // What no node asks is a client's list.
        ("x".into(), 403, "auth.tokens_file"),
    ] {
        let answer = client.request("GET", &format!("/timers?{query}"), "");
        answer.assert_refusal(status, named, &query);
    }
    let garbled = page(&mut client, "", "Range: bytes=0-99\r\n");
    garbled.assert_refusal(400, "Range", "a range of bytes");
    client.request("GET", "/timers", "").assert_refusal(403, "auth.tokens_file", "no query");
    client.request("PUT", "/timers/references", "{}").assert_refusal(405, "DELETE", "a PUT");
    for body in ["", "{}", "[]", "{\"IDs\":[{\"ID\":1}]}", "{\"IDs\":[{\"ReplicaIndex\":0}]}"] {
        client.request("DELETE", "/timers/references", body).assert_refusal(400, "", body);
    }
    let too_high = "{\"IDs\":[{\"ID\":1,\"ReplicaIndex\":16}]}";
    client.request("DELETE", "/timers/references", too_high).assert_refusal(400, "Index", too_high);
    // Malformed tags of a node are dropped, and the timer is held. Malformed tags of a client are
    // refused.
    let tags = "\"tag-info\":[{\"type\":\"CALL\",\"count\":-1},{\"type\":\"CALL\"}]";
    let (_, body) = good.split_once("\r\n\r\n").expect("a head");
    let body = body.replace("\"tag-info\":[]", tags);
    assert_eq!(client.request("PUT", "/timers/0000000000000008-2", &body).status, 200);
    node.await_metric("chronos_internal_tags_dropped_total", 1.0);
    node.await_metric("chronos_timers", 1.0);
    let public = far_document().replacen('{', &format!("{{\"statistics\":{{{tags}}},"), 1);
    client.request("POST", "/timers", &public).assert_refusal(400, "count", "a client's");
    node.assert_alive("all of this");
}
