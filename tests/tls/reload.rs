//! The files are read again on SIGHUP.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use rustls::HandshakeKind;
use rustls::version::TLS13;

use super::authorities::{Authority, Files};
use super::harness::{Client, Node, PATIENCE};

/// Whether the node shows a certificate of this authority.
fn shows(node: &Node, authority: &Authority) -> bool {
    let mut client = Client::connect(node, &authority.trusting(&[&TLS13], None));
    client.send("GET", "/ping", "").and_then(|()| client.answer()).is_ok()
}

#[test]
fn new_connections_get_the_new_certificate_and_old_ones_stay() {
    let (former, present) = (Authority::new(), Authority::new());
    let files = Files::new(&former.server());
    let node = Node::start(&files.config(""));
    let mut old = Client::connect(&node, &former.trusting(&[&TLS13], None));
    old.create();
    node.change("get the new certificate", || files.put(&present.server()));
    // Each core takes it in its next turn.
    kit::until::until("the new certificate", PATIENCE, || shows(&node, &present).then_some(()));
    old.create();
    node.reload("the members are the same");
    assert!(shows(&node, &present), "a reload that changes nothing");
}

#[test]
fn a_ticket_survives_a_renewed_certificate() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let node = Node::start(&files.config(""));
    let config = authority.trusting(&[&TLS13], None);
    Client::connect(&node, &config).create();
    node.change("get the new certificate", || files.put(&authority.server()));
    for _ in 0..10 {
        let mut client = Client::connect(&node, &config);
        client.create();
        assert_eq!(client.stream.conn.handshake_kind(), Some(HandshakeKind::Resumed));
    }
}

#[test]
fn bad_files_leave_the_old_ones_in_force() {
    let (authority, other) = (Authority::new(), Authority::new());
    let files = Files::new(&authority.server());
    let node = Node::start(&files.config(""));
    let one = authority.server();
    files.write("key.pem", &other.server().key, 0o600);
    node.reload("key.pem: it does not fit");
    files.write("key.pem", &one.key, 0o644);
    node.reload("chmod 600");
    files.put(&one);
    files.write("cert.pem", "-----BEGIN CERTIFICATE-----\nnonsense\n", 0o644);
    node.reload("cert.pem: expected");
    std::fs::remove_file(files.path("cert.pem")).expect("there");
    node.reload("cert.pem: cannot be read");
    assert!(shows(&node, &authority));
    node.change("get the new certificate", || files.put(&other.server()));
    kit::until::until("the new certificate", PATIENCE, || shows(&node, &other).then_some(()));
}

/// Programs renew certificates and send no signal.
#[test]
fn files_that_change_are_taken_without_a_signal() {
    let (former, present) = (Authority::new(), Authority::new());
    let files = Files::new(&former.server());
    let node = Node::start(&files.config(""));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut old = Client::connect(&node, &former.trusting(&[&TLS13], None));
            while !is_over.load(SeqCst) {
                old.create();
            }
        });
        let _over = Over(&is_over);
        let new = present.server();
        // The certificate comes first: it does not fit the key that is still there.
        files.write("cert.pem", &new.certificate, 0o644);
        let told = "the files of TLS have changed and cannot be taken";
        kit::until::until(told, PATIENCE, || node.logged().contains(told).then_some(()));
        assert!(shows(&node, &former), "the former files stay in force");
        files.write("key.pem", &new.key, 0o600);
        kit::until::until("the new one", PATIENCE, || shows(&node, &present).then_some(()));
        assert_eq!(node.logged().matches(told).count(), 1, "told once");
        // Certificates of these tests end in 4096.
        let expiry = "chronos_tls_certificate_expiry_timestamp_seconds";
        let is_told = || (node.metric(expiry) > 4_000_000_000).then_some(());
        kit::until::until("the end of the certificate", PATIENCE, is_told);
        assert_eq!(node.metric("chronos_peer_certificate_expiry_timestamp_seconds"), 0);
    });
}

/// A pipe has no end until its writer has gone, and a control thread that waits hears no signal.
#[test]
fn a_pipe_in_place_of_a_file_holds_up_nobody() {
    let files = Files::new(&Authority::new().server());
    let node = Node::start(&files.config(""));
    for (name, told) in [("key.pem", "not reloaded: [tls] key: "), ("cert.pem", "cert: ")] {
        std::fs::remove_file(files.path(name)).expect("there");
        assert!(
            kit::children::command("mkfifo")
                .arg(files.path(name))
                .status()
                .expect("it runs")
                .success()
        );
        node.reload(told);
    }
    node.become_pipe();
    node.reload("it is no file, but a folder, a pipe or a device");
    node.stop();
    node.ended();
}

/// Ends the clients of a test, also of one that fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Two clients go on for twenty reloads: one on one connection, one with a connection for each
/// request, without a ticket.
#[test]
fn no_request_fails_while_certificates_change() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let node = Node::start(&files.config(""));
    let (is_over, fresh) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::connect(&node, &authority.trusting(&[&TLS13], None));
            while !is_over.load(SeqCst) {
                client.create();
            }
        });
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                Client::connect(&node, &authority.trusting(&[&TLS13], None)).create();
                fresh.fetch_add(1, SeqCst);
            }
        });
        let _over = Over(&is_over);
        for _ in 0..20 {
            let before = fresh.load(SeqCst);
            node.change("get the new certificate", || files.put(&authority.server()));
            kit::until::until("a new connection", PATIENCE, || {
                (fresh.load(SeqCst) > before + 1).then_some(())
            });
        }
    });
    assert_eq!(node.metric("chronos_tls_failed_total"), 0);
}
