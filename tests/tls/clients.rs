//! Certificates of clients.

use rustls::version::{TLS12, TLS13};

use super::authorities::{Authority, Files, Identity};
use super::harness::{Client, Node};

/// Whether a client with this certificate is served, over each version.
fn served(node: &Node, server: &Authority, identity: Option<&Identity>) -> [bool; 2] {
    [&TLS12, &TLS13].map(|version| {
        let config = server.trusting(&[version], identity);
        let mut client = Client::connect(node, &config);
        client.send("GET", "/ping", "").and_then(|()| client.answer()).is_ok()
    })
}

/// Whether a client with this certificate is served, over both versions.
fn is_served(node: &Node, server: &Authority, identity: Option<&Identity>) -> bool {
    let tries = served(node, server, identity);
    assert_eq!(tries[0], tries[1], "both versions agree");
    tries[0]
}

#[test]
fn a_certificate_is_asked_for_as_configured() {
    let (servers, people, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let files = Files::new(&servers.server());
    files.write("ca.pem", &people.pem(), 0o644);
    let ca = files.path("ca.pem");
    let (good, bad) = (people.client(), strangers.client());
    // A certificate of a server is none of a client.
    let wrong_kind = people.server();
    for (mode, without) in [("required", false), ("optional", true)] {
        let more = format!("client_auth = '{mode}'\nclient_ca = '{}'", ca.display());
        let node = Node::start(&files.config(&more));
        assert_eq!(is_served(&node, &servers, None), without, "{mode}");
        assert!(is_served(&node, &servers, Some(&good)), "{mode}");
        assert!(!is_served(&node, &servers, Some(&bad)), "{mode}");
        assert!(!is_served(&node, &servers, Some(&wrong_kind)), "{mode}");
        let refused = if without { 4 } else { 6 };
        node.await_metric("chronos_tls_failed_total", refused);
    }
    let node = Node::start(&files.config(""));
    assert!(is_served(&node, &servers, Some(&bad)), "nobody asks for it");
}

/// A ticket would stand for the certificate that was shown for it, and outlive it and its authority.
#[test]
fn who_shows_a_certificate_shows_it_on_each_connection() {
    let (servers, former, present) = (Authority::new(), Authority::new(), Authority::new());
    let files = Files::new(&servers.server());
    files.write("ca.pem", &former.pem(), 0o644);
    let ca = files.path("ca.pem");
    let more = format!("client_auth = 'required'\nclient_ca = '{}'", ca.display());
    let node = Node::start(&files.config(&more));
    let config = servers.trusting(&[&TLS13], Some(&former.client()));
    for _ in 0..2 {
        Client::connect(&node, &config).create();
    }
    node.await_metric("chronos_tls_handshakes_total", 2);
    node.await_metric("chronos_tls_resumed_total", 0);
    files.write("ca.pem", &present.pem(), 0o644);
    node.reload("get the new certificate");
    kit::until::until("the cores to take it", super::harness::PATIENCE, || {
        let mut client = Client::connect(&node, &config);
        let answer = client.send("GET", "/ping", "").and_then(|()| client.answer());
        answer.is_err().then_some(())
    });
    // Each core takes the new authorities in its own turn.
    let client = present.client();
    kit::until::until("all cores to take it", super::harness::PATIENCE, || {
        (served(&node, &servers, Some(&client)) == [true, true]).then_some(())
    });
}
