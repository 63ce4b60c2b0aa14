//! Callbacks to `https` servers: whom a node believes, what it shows, and how it fails.

use std::net::TcpListener;
use std::time::Duration;

use kit::client::request;
use rustls::HandshakeKind;
use rustls::version::{TLS12, TLS13};

use super::authorities::{Authority, Files, Identity};
use super::callback_server::{Setup, Then};
use super::harness::{Node, PATIENCE};

/// A node whose callbacks believe this authority, with more lines of `[callbacks]`.
pub fn node(authority: &Authority, more: &str) -> (Node, Files) {
    let files = Files::new(&authority.server());
    files.write("ca.pem", &authority.pem(), 0o644);
    let ca = files.path("ca.pem");
    let more = format!("[callbacks]\nca = '{}'\n{more}\n", ca.display());
    (Node::start(&files.config(&more)), files)
}

/// Creates a timer that pops at once, and returns its path.
pub fn pop(node: &Node, uri: &str) -> String {
    let body = format!(
        "{{\"timing\":{{\"interval\":0}},\"callback\":{{\"http\":{{\"uri\":\"{uri}\",\
         \"opaque\":\"hello\"}}}}}}"
    );
    let answer = request(node.plain, "POST", "/timers", &body).expect("an answer");
    answer.location().to_owned()
}

#[test]
fn a_callback_arrives_with_each_version_and_connections_are_kept() {
    let authority = Authority::new();
    let (node, _files) = node(&authority, "connections_per_host_max = 1");
    let identity = authority.server();
    let mut all = 0;
    for version in [&TLS12, &TLS13] {
        let server = Setup { versions: &[version], ..Setup::of(&identity) }.start();
        for host in ["localhost", "127.0.0.1"] {
            for _ in 0..20 {
                pop(&node, &server.uri(host, "/pop?a=b"));
                all += 1;
                node.await_metric("chronos_pops_delivered_total", all);
            }
        }
        server.with(|seen| {
            assert_eq!(seen.callbacks.len(), 40);
            // Two cores, two hosts.
            assert!(seen.handshakes.len() <= 4, "{:?}", seen.handshakes);
            let name = |name: &Option<String>| name.as_deref().is_none_or(|it| it == "localhost");
            assert!(seen.names.iter().all(name), "{:?}", seen.names);
            assert!(seen.names.contains(&None) && seen.names.iter().any(Option::is_some));
            let (_, first) = &seen.callbacks[0];
            assert!(first.head.starts_with("POST /pop?a=b HTTP/1.1\r\n"), "{}", first.head);
            let host = format!("localhost:{}", server.address.port());
            assert_eq!(first.header("Host"), Some(&host[..]));
            assert_eq!(first.body, b"hello");
        });
    }
    assert_eq!(node.metric("chronos_pops_failed_total"), 0);
}

/// The server closes each connection, in one of two ways, so that each callback has its own.
#[test]
fn further_connections_go_on_where_others_ended() {
    let authority = Authority::new();
    let identity = authority.server();
    for then in [Then::Closes, Then::Breaks] {
        let (node, _files) = node(&authority, "");
        let server = Setup { then, ..Setup::of(&identity) }.start();
        for count in 1..=10 {
            pop(&node, &server.uri("localhost", "/"));
            node.await_metric("chronos_pops_delivered_total", count);
        }
        server.with(|seen| {
            assert!(seen.callbacks.len() >= 10);
            let full = seen.handshakes.iter().filter(|kind| **kind == HandshakeKind::Full).count();
            assert!(full <= 2, "one of each core: {:?}", seen.handshakes);
        });
        assert!(node.metric("chronos_callbacks_tls_resumed_total") >= 8);
    }
}

#[test]
fn a_server_that_asks_gets_the_certificate() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let identity = authority.server();
    let server = Setup { asks: Some(&clients), ..Setup::of(&identity) }.start();
    let (without, _files) = node(&authority, "give_up_ms = 0");
    pop(&without, &server.uri("localhost", "/"));
    without.await_metric("chronos_callbacks_tls_alerts_total", 1);
    told(&without, "client_cert");
    assert_eq!(server.with(|seen| seen.callbacks.len()), 0);
    let shown = clients.client();
    let files = Files::new(&shown);
    let (cert, key) = (files.path("cert.pem"), files.path("key.pem"));
    let more = format!("client_cert = '{}'\nclient_key = '{}'", cert.display(), key.display());
    let (with, _files) = node(&authority, &more);
    pop(&with, &server.uri("localhost", "/"));
    with.await_metric("chronos_pops_delivered_total", 1);
}

pub fn told(node: &Node, what: &str) {
    let shown = format!("`{what}` in the log");
    kit::until::until(&shown, PATIENCE, || node.logged().contains(what).then_some(()));
}

/// What is wrong with a server's certificate is counted by its reason, and told with the host.
#[test]
fn certificates_that_are_not_good_end_the_attempt() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (node, _files) = node(&authority, "give_up_ms = 0");
    let future = authority.sign_as(|parameters| {
        parameters.not_before = rcgen::date_time_ymd(2200, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2201, 1, 1);
    });
    let named = |name: &str| {
        let name = name.try_into().expect("a name");
        authority.sign_as(|it| it.subject_alt_names = vec![rcgen::SanType::DnsName(name)])
    };
    let cases: [(Identity, &str, &str, u64); 6] = [
        (other.server(), "localhost", "unknown_authority", 1),
        (Authority::own("localhost"), "localhost", "unknown_authority", 2),
        (authority.expired(2020), "localhost", "untimely", 1),
        (future, "localhost", "untimely", 2),
        (named("elsewhere.example"), "localhost", "wrong_name", 1),
        (named("localhost"), "127.0.0.1", "wrong_name", 2),
    ];
    for (identity, host, reason, count) in cases {
        let server = Setup::of(&identity).start();
        pop(&node, &server.uri(host, "/"));
        node.await_metric(&format!("chronos_callbacks_tls_{reason}_total"), count);
        told(&node, &server.uri(host, ""));
        assert_eq!(server.with(|seen| seen.callbacks.len()), 0);
        let is_told = || server.with(|seen| (seen.failures.len() == 1).then_some(()));
        kit::until::until("the server to be told", PATIENCE, is_told);
        server.with(|seen| {
            assert!(seen.failures[0].contains("received fatal alert"), "{:?}", seen.failures)
        });
    }
    let identity = authority.server();
    let good = Setup::of(&identity).start();
    pop(&node, &good.uri("localhost", "/"));
    node.await_metric("chronos_pops_delivered_total", 1);
}

/// A server that says no TLS, or nothing at all.
#[test]
fn servers_that_do_not_shake_hands_end_the_attempt() {
    let authority = Authority::new();
    let (node, _files) = node(&authority, "give_up_ms = 0\ntimeout_ms = 300");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let uri = format!("https://{}/", silent.local_addr().expect("bound"));
    pop(&node, &uri);
    node.await_metric("chronos_callbacks_tls_unfinished_total", 1);
    node.await_metric("chronos_pops_timed_out_total", 1);
    let (plain, _) = kit::callbacks::serve("127.0.0.1:0".parse().expect("an address"), |_| {
        kit::callbacks::Reaction::OK
    });
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
            std::thread::sleep(Duration::from_secs(5));
        }
    });
    pop(&node, &format!("https://{address}/"));
    node.await_metric("chronos_callbacks_tls_protocol_errors_total", 1);
    // The same port as plain HTTP, and the other way round, are two hosts.
    pop(&node, &format!("http://{plain}/"));
    node.await_metric("chronos_pops_delivered_total", 1);
}

#[test]
fn a_system_without_authorities_fails_https_alone() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let empty = files.path("none.pem");
    std::fs::write(&empty, "").expect("written");
    let config = files.config("[callbacks]\ngive_up_ms = 0\n");
    let variables =
        [("SSL_CERT_FILE", empty.display().to_string()), ("SSL_CERT_DIR", String::new())];
    let node = Node::start_with(&config, &variables);
    let identity = authority.server();
    let server = Setup::of(&identity).start();
    pop(&node, &server.uri("localhost", "/"));
    node.await_metric("chronos_callbacks_tls_no_authorities_total", 1);
    told(&node, "callbacks.ca");
    server.with(|seen| assert!(seen.failures.is_empty() && seen.handshakes.is_empty()));
    // What the system believes may be told by a file.
    std::fs::write(&empty, authority.pem()).expect("written");
    let node = Node::start_with(&config, &variables);
    pop(&node, &server.uri("localhost", "/"));
    node.await_metric("chronos_pops_delivered_total", 1);
}

#[test]
fn a_uri_comes_back_as_it_was_written() {
    let authority = Authority::new();
    let (node, _files) = node(&authority, "");
    for uri in ["https://a", "https://a/", "HTTPS://A:443/x?y", "https://[::1]:1/", "http://a:443/"]
    {
        let body = format!(
            "{{\"timing\":{{\"interval\":3600}},\"callback\":{{\"http\":{{\"uri\":\"{uri}\",\
             \"opaque\":\"x\"}}}}}}"
        );
        let answer = request(node.plain, "POST", "/timers", &body).expect("an answer");
        let answer = request(node.plain, "GET", answer.location(), "").expect("an answer");
        assert!(answer.body.contains(&format!("\"uri\":\"{uri}\"")), "{}", answer.body);
    }
}

/// Authorities change under load, and no callback is lost or made twice.
#[test]
fn authorities_are_read_again_while_callbacks_are_made() {
    const TIMERS: u64 = 300;
    const RELOADS: u64 = 5;
    let (authority, other) = (Authority::new(), Authority::new());
    let (node, files) = node(&authority, "");
    let (identity, another) = (authority.server(), other.server());
    let server = Setup::of(&identity).start();
    let stranger = Setup::of(&another).start();
    for number in 0..TIMERS {
        pop(&node, &server.uri("localhost", &format!("/{number}")));
        if number % (TIMERS / RELOADS) == 0 {
            // Another file each time, in which the server's authority stays.
            let more = Authority::new();
            let text = format!("{}{}{}", authority.pem(), other.pem(), more.pem());
            files.write("ca.pem", &text, 0o644);
            node.reload("further callbacks over TLS use the new authorities");
        }
    }
    node.await_metric("chronos_pops_delivered_total", TIMERS);
    server.with(|seen| {
        let line =
            |callback: &kit::http::Message| callback.head.split(' ').nth(1).map(str::to_owned);
        let mut paths: Vec<_> = seen.callbacks.iter().map(|(_, callback)| line(callback)).collect();
        paths.sort();
        paths.dedup();
        assert_eq!((paths.len(), seen.callbacks.len()), (TIMERS as usize, TIMERS as usize));
    });
    pop(&node, &stranger.uri("localhost", "/"));
    node.await_metric("chronos_pops_delivered_total", TIMERS + 1);
    // What is no authority changes nothing; what takes the server's away closes its connections.
    files.write("ca.pem", "nonsense", 0o644);
    node.reload("not reloaded");
    pop(&node, &server.uri("localhost", "/"));
    node.await_metric("chronos_pops_delivered_total", TIMERS + 2);
    files.write("ca.pem", &other.pem(), 0o644);
    node.reload("further callbacks over TLS use the new authorities");
    let is_told = || server.with(|seen| seen.told_ends == seen.handshakes.len());
    kit::until::until("all ends to be told", PATIENCE, || is_told().then_some(()));
    pop(&node, &server.uri("localhost", "/"));
    let name = "chronos_callbacks_tls_unknown_authority_total";
    kit::until::until(name, PATIENCE, || (node.metric(name) > 0).then_some(()));
}
