//! `https` callbacks beside other parts of a node: they are signed, and their timers survive a
//! restart and the death of a node.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use hyper::HeaderMap;
use kit::client::request;
use kit::http::Message;
use kit::ports::free_port;
use standardwebhooks::Webhook;

use super::authorities::{Authority, Files};
use super::callback_server::{Server, Setup};
use super::callbacks::{node, pop};
use super::harness::{Node, PATIENCE};

/// Timers of a story.
const TIMERS: usize = 20;
const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const OTHER: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// Whether a receiver with this secret takes the callback.
fn is_taken(secret: &str, callback: &Message) -> bool {
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let pairs = names.map(|name| (name, callback.header(name).expect("signed")));
    let headers: HeaderMap = pairs
        .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")))
        .into_iter()
        .collect();
    Webhook::new(secret).expect("a secret").verify(&callback.body, &headers).is_ok()
}

#[test]
fn receivers_take_what_is_signed_over_tls() {
    let authority = Authority::new();
    let secrets = Files::new(&authority.server());
    secrets.write("secrets", SECRET, 0o600);
    let line = format!("signing_secrets_file = '{}'", secrets.path("secrets").display());
    let (node, _files) = node(&authority, &line);
    let identity = authority.server();
    let server = Setup::of(&identity).start();
    for number in 1..=10 {
        pop(&node, &server.uri("localhost", "/signed"));
        node.await_metric("chronos_pops_delivered_total", number);
    }
    server.with(|seen| {
        assert_eq!(seen.callbacks.len(), 10);
        for (_, callback) in &seen.callbacks {
            assert!(is_taken(SECRET, callback), "{}", callback.head);
            assert!(!is_taken(OTHER, callback), "another secret");
            let changed = Message { body: b"other".to_vec(), ..callback.clone() };
            assert!(!is_taken(SECRET, &changed), "another body");
        }
    });
}

/// A host is believed for its certificate, wherever its name leads: what answers where the name leads
/// now, and cannot show that it is the host, is told nothing, whatever session the node has kept.
#[test]
fn a_host_that_moves_is_believed_for_its_certificate() {
    const NAME: &str = "moves.example";
    let (authority, other) = (Authority::new(), Authority::new());
    let of_host = |authority: &Authority| {
        let name = rcgen::SanType::DnsName(NAME.try_into().expect("a name"));
        authority.sign_as(|parameters| parameters.subject_alt_names = vec![name])
    };
    let hosts = [39, 40, 41, 42].map(|last| IpAddr::from([127, 0, 0, last]));
    let port = free_port(&hosts);
    let identities =
        [of_host(&authority), authority.server(), of_host(&other), of_host(&authority)];
    let started =
        |(identity, host)| Setup { at: SocketAddr::new(host, port), ..Setup::of(identity) }.start();
    let servers: Vec<Server> = identities.iter().zip(hosts).map(started).collect();
    let files = Files::new(&authority.server());
    files.write("ca.pem", &authority.pem(), 0o644);
    let names = files.path("names.json");
    let lead_to = |host: IpAddr| {
        let record = format!("[{{\"rrtype\":\"A\",\"targets\":[\"{host}\"]}}]");
        let text = format!("{{\"hostnames\":[{{\"name\":\"{NAME}\",\"records\":{record}}}]}}");
        std::fs::write(&names, text).expect("written");
    };
    lead_to(hosts[0]);
    let ca = files.path("ca.pem");
    let lines = format!("[callbacks]\nca = '{}'\ngive_up_ms = 0", ca.display());
    let node = Node::start_by_names(&files.config(&lines), &names);
    let came = |place: usize| servers[place].with(|seen| seen.callbacks.len());
    let callback = || pop(&node, &servers[0].uri(NAME, "/"));
    callback();
    node.await_metric("chronos_pops_delivered_total", 1);
    for (place, metric) in [
        (1, "chronos_callbacks_tls_wrong_name_total"),
        (2, "chronos_callbacks_tls_unknown_authority_total"),
    ] {
        node.change_names(|| lead_to(hosts[place]));
        callback();
        node.await_metric(metric, 1);
    }
    node.change_names(|| lead_to(hosts[3]));
    callback();
    node.await_metric("chronos_pops_delivered_total", 2);
    assert_eq!([0, 1, 2, 3].map(came), [1, 0, 0, 1]);
}

/// Tells a story again that a slow machine has broken: its timers came due before their node ended.
fn tell(story: impl Fn() -> bool) {
    assert!((0..5).any(|_| story()), "no story in time");
}

/// Whether timers of [`create`] have been far from due since this moment.
fn is_in_time(since: Instant) -> bool {
    since.elapsed() < Duration::from_secs(2)
}

/// Creates timers that pop in three seconds, each with a path of its own.
fn create(node: &Node, server: &Server, count: usize, more: &str) -> Vec<String> {
    let one = |number: usize| {
        let body = format!(
            "{{\"timing\":{{\"interval\":3}},\"callback\":{{\"http\":{{\"uri\":\"{}\",\
             \"opaque\":\"x\"}}}}{more}}}",
            server.uri("localhost", &format!("/{number}"))
        );
        let answer = request(node.plain, "POST", "/timers", &body).expect("an answer");
        answer.location().to_owned()
    };
    (0..count).map(one).collect()
}

/// Waits until the server has a callback of each timer. Panics if one comes twice.
fn await_each_once(server: &Server, count: usize) {
    kit::until::until("a callback of each timer", PATIENCE, || {
        server.with(|seen| (seen.callbacks.len() >= count).then_some(()))
    });
    server.with(|seen| {
        let path = |(_, callback): &(usize, Message)| {
            callback.head.split(' ').nth(1).expect("a path").to_owned()
        };
        let mut paths: Vec<String> = seen.callbacks.iter().map(path).collect();
        paths.sort();
        paths.dedup();
        assert_eq!((paths.len(), seen.callbacks.len()), (count, count), "{paths:?}");
    });
}

#[test]
fn timers_with_https_survive_a_restart() {
    tell(restarted);
}

fn restarted() -> bool {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    files.write("ca.pem", &authority.pem(), 0o644);
    let path = |name: &str| files.path(name).display().to_string();
    let more =
        format!("[callbacks]\nca = '{}'\n[journal]\ndata_dir = '{}'", path("ca.pem"), path("data"));
    let config = files.config(&more);
    let identity = authority.server();
    let server = Setup::of(&identity).start();
    let node = Node::start(&config);
    let began = Instant::now();
    let timers = create(&node, &server, TIMERS, "");
    node.stop();
    node.ended();
    drop(node);
    if !is_in_time(began) {
        return false;
    }
    assert!(Path::new(&path("data")).exists());
    let node = Node::start(&config);
    for timer in &timers {
        let answer = request(node.plain, "GET", timer, "").expect("an answer");
        // One that has popped by now is gone.
        let is_there = answer.body.contains(&format!("\"uri\":\"{}", server.uri("localhost", "/")));
        assert!(is_there || answer.status == 404, "{}", answer.body);
    }
    await_each_once(&server, TIMERS);
    assert_eq!(node.metric("chronos_pops_failed_total"), 0);
    true
}

/// The peer holds a replica with the same URI, and makes the callbacks of a node that has died.
#[test]
fn timers_with_https_survive_the_death_of_a_node() {
    tell(died);
}

fn died() -> bool {
    let authority = Authority::new();
    let identity = authority.server();
    let server = Setup::of(&identity).start();
    let host = [Ipv4Addr::LOCALHOST.into()];
    let ports = [free_port(&host), free_port(&host)];
    let names = ports.map(|port| format!("127.0.0.1:{port}"));
    let started = |place: usize| {
        let files = Files::new(&authority.server());
        files.write("ca.pem", &authority.pem(), 0o644);
        let more = format!(
            "[callbacks]\nca = '{}'\n[cluster]\nlocalhost = '{}'\nnodes = {names:?}",
            files.path("ca.pem").display(),
            names[place]
        );
        let own = format!("[node]\nlisten = '{}'\ninstance_id = {}\n", names[place], place + 1);
        (Node::start(&files.config(&more).replacen("[node]\n", &own, 1)), files)
    };
    let ((first, _files), (second, _others)) = (started(0), started(1));
    let two = ",\"reliability\":{\"replication-factor\":2}";
    kit::until::until("the nodes to replicate", PATIENCE, || {
        let probe = super::harness::TIMER.replacen("{", &format!("{{{},", &two[1..]), 1);
        let answer = request(first.plain, "POST", "/timers", &probe).ok()?;
        let held = request(second.plain, "GET", answer.location(), "").ok()?;
        (held.status == 200).then_some(())
    });
    let began = Instant::now();
    let timers = create(&first, &server, TIMERS, two);
    for timer in &timers {
        let uri = server.uri("localhost", "/");
        kit::until::until("a replica", PATIENCE, || {
            let answer = request(second.plain, "GET", timer, "").ok()?;
            let is_there = answer.body.contains(&format!("\"uri\":\"{uri}"));
            (is_there || !is_in_time(began)).then_some(())
        });
    }
    drop(first);
    if !is_in_time(began) {
        return false;
    }
    await_each_once(&server, TIMERS);
    second.await_metric("chronos_pops_delivered_total", TIMERS as u64);
    true
}
