//! `https` servers that go wrong behind a good handshake, and connections that have gone stale.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use kit::http::read_message;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};

use super::authorities::{Authority, Identity};
use super::callbacks::{node, pop, told};
use super::harness::{Node, PATIENCE};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// Tickets of an ordinary server, and more.
const FEW: usize = 20;
/// A record's head and four tickets of 81 bytes.
const RECORD_BYTES: usize = 5 + 4 * 81;

/// A connection whose handshake is over.
struct Connection {
    /// Its number, from 0.
    number: usize,
    tls: ServerConnection,
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Reads the next callback. `false`: the node has closed.
    fn ask(&mut self) -> bool {
        let mut whole = rustls::Stream::new(&mut self.tls, &mut self.stream);
        read_message(&mut whole, &mut self.buffer).is_ok()
    }

    /// What the wire carries for these words.
    fn sealed(&mut self, words: &[u8]) -> Vec<u8> {
        self.tls.writer().write_all(words).expect("memory");
        let mut wire = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut wire).expect("memory");
        }
        wire
    }

    fn answer(&mut self) -> bool {
        let wire = self.sealed(ANSWER);
        self.stream.write_all(&wire).is_ok()
    }

    /// Waits until the node closes.
    fn await_end(&mut self) {
        let mut piece = [0; 4_096];
        while matches!(self.stream.read(&mut piece), Ok(1..)) {}
    }
}

/// A server that does what it is told with each connection.
fn serve(
    identity: &Identity,
    version: &'static SupportedProtocolVersion,
    tickets: usize,
    act: impl Fn(&mut Connection) + Send + Sync + 'static,
) -> SocketAddr {
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
    let builder = ServerConfig::builder_with_protocol_versions(&[version]).with_no_client_auth();
    let chain = vec![certificate.expect("a certificate")];
    let mut config = builder.with_single_cert(chain, key).expect("they fit");
    config.send_tls13_tickets = tickets;
    // A record has whole tickets then, and the library waits for nothing.
    config.max_fragment_size = (tickets > FEW).then_some(RECORD_BYTES);
    let (config, act) = (Arc::new(config), Arc::new(act));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    // The threads end with the process.
    thread::spawn(move || {
        for (number, mut stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let (config, act) = (Arc::clone(&config), Arc::clone(&act));
            thread::spawn(move || {
                let mut tls = ServerConnection::new(config).expect("a server");
                while tls.is_handshaking() {
                    if tls.complete_io(&mut stream).is_err() {
                        return;
                    }
                }
                act(&mut Connection { number, tls, stream, buffer: Vec::new() });
            });
        }
    });
    address
}

/// A callback that a good server gets, after all that went wrong.
fn assert_alive(node: &Node, identity: &Identity, delivered: u64) {
    let good =
        serve(identity, &TLS13, 2, |connection| while connection.ask() && connection.answer() {});
    pop(node, &format!("https://{good}/"));
    node.await_metric("chronos_pops_delivered_total", delivered);
}

/// Records that are none, that were changed, and that no key has made: each ends its attempt, and
/// no part of it counts as an answer.
#[test]
fn wrong_records_in_place_of_an_answer_end_the_attempt() {
    let authority = Authority::new();
    let identity = authority.server();
    for version in [&TLS12, &TLS13] {
        let (node, _files) = node(&authority, "give_up_ms = 0");
        let kinds: [fn(&mut Connection) -> Vec<u8>; 6] = [
            // The answer in the clear.
            |_| ANSWER.to_vec(),
            // The answer with a changed end, a changed length, and a record that was cut.
            |it| changed(it.sealed(ANSWER), usize::MAX),
            |it| changed(it.sealed(ANSWER), 4),
            |it| it.sealed(ANSWER).split_at(20).0.to_vec(),
            // Data that no key has made, and data too long for a record.
            |_| [&[23, 3, 3, 0, 64][..], &[7; 64]].concat(),
            |_| [&[23, 3, 3, 0xff, 0xff][..], &[7; 512]].concat(),
        ];
        for (at, kind) in kinds.into_iter().enumerate() {
            let address = serve(&identity, version, 2, move |connection| {
                connection.ask();
                let wire = kind(connection);
                let _ = connection.stream.write_all(&wire);
                // A record that was cut ends when the server does.
                if at == 3 || at == 2 {
                    let _ = connection.stream.shutdown(std::net::Shutdown::Write);
                }
                connection.await_end();
            });
            pop(&node, &format!("https://{address}/"));
            node.await_metric("chronos_pops_failed_total", at as u64 + 1);
        }
        assert_eq!(node.metric("chronos_pops_delivered_total"), 0);
        let failed = node.metric("chronos_callbacks_tls_protocol_errors_total");
        assert!((4..=6).contains(&failed), "{failed}");
        assert_alive(&node, &identity, 1);
    }
}

/// Changes a byte; the last one, if there is none at that place.
fn changed(mut wire: Vec<u8>, at: usize) -> Vec<u8> {
    let at = at.min(wire.len() - 1);
    wire[at] ^= 0x41;
    wire
}

/// The answer counts, though a wrong record follows it: at once or a moment later.
#[test]
fn an_answer_counts_before_a_wrong_record() {
    let authority = Authority::new();
    let identity = authority.server();
    let (node, _files) = node(&authority, "give_up_ms = 0");
    for (at, version) in [&TLS12, &TLS13].into_iter().enumerate() {
        let address = serve(&identity, version, 2, move |connection| {
            connection.ask();
            let mut wire = connection.sealed(ANSWER);
            wire.extend_from_slice(&[23, 3, 3, 0, 64]);
            wire.extend_from_slice(&[7; 64]);
            let _ = connection.stream.write_all(&wire);
            connection.await_end();
        });
        pop(&node, &format!("https://{address}/"));
        node.await_metric("chronos_pops_delivered_total", at as u64 + 1);
    }
    assert_eq!(node.metric("chronos_pops_failed_total"), 0);
}

/// Tickets say nothing. Some are fine; of those that never end the node takes 64 KiB.
#[test]
fn tickets_without_an_end_end_the_attempt() {
    let authority = Authority::new();
    let identity = authority.server();
    let (node, _files) = node(&authority, "give_up_ms = 0");
    let few = serve(
        &identity,
        &TLS13,
        FEW,
        |connection| while connection.ask() && connection.answer() {},
    );
    pop(&node, &format!("https://{few}/"));
    node.await_metric("chronos_pops_delivered_total", 1);
    // Each has some 100 bytes here and more elsewhere.
    let many = serve(&identity, &TLS13, 4_000, |connection| connection.await_end());
    pop(&node, &format!("https://{many}/"));
    node.await_metric("chronos_pops_failed_total", 1);
    node.await_metric("chronos_callbacks_tls_protocol_errors_total", 1);
    told(&node, "say nothing");
    assert_alive(&node, &identity, 2);
}

/// A connection that waits for its next callback is bounded as well.
#[test]
fn what_says_nothing_for_ever_ends_an_idle_connection() {
    let authority = Authority::new();
    let identity = authority.server();
    let (node, _files) = node(&authority, "give_up_ms = 0");
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let address = serve(&identity, &TLS13, 2, move |connection| {
        connection.ask();
        connection.answer();
        // New keys, again and again.
        loop {
            connection.tls.refresh_traffic_keys().expect("TLS 1.3");
            let wire = connection.sealed(b"");
            if connection.stream.write_all(&wire).is_err() {
                break;
            }
        }
        count.fetch_add(1, SeqCst);
    });
    pop(&node, &format!("https://{address}/"));
    node.await_metric("chronos_pops_delivered_total", 1);
    let is_over = || (ended.load(SeqCst) == 1).then_some(());
    kit::until::until("the connection to end", PATIENCE, is_over);
    assert_eq!(node.metric("chronos_pops_failed_total"), 0);
    assert_alive(&node, &identity, 2);
}

/// A server may close a kept connection just when the next callback comes: told or not. The callback
/// goes out again at once on a new connection, and no attempt is lost: here there is only one.
#[test]
fn a_kept_connection_that_has_gone_stale_costs_no_attempt() {
    let authority = Authority::new();
    let identity = authority.server();
    for is_told in [true, false] {
        let (node, _files) = node(&authority, "give_up_ms = 0\nconnections_per_host_max = 1");
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let address = serve(&identity, &TLS13, 2, move |connection| {
            // The first connection of each core ends at its second callback.
            for turn in 0.. {
                if !connection.ask() {
                    return;
                }
                count.fetch_add(1, SeqCst);
                if connection.number == 0 && turn == 1 {
                    break;
                }
                connection.answer();
            }
            if is_told {
                connection.tls.send_close_notify();
                let wire = connection.sealed(b"");
                let _ = connection.stream.write_all(&wire);
            }
        });
        // Which of two cores makes a callback is chance: one of them makes its second one soon.
        let mut number = 0;
        while asked.load(SeqCst) == number {
            number += 1;
            pop(&node, &format!("https://{address}/"));
            node.await_metric("chronos_pops_delivered_total", number as u64);
        }
        assert_eq!(node.metric("chronos_pops_failed_total"), 0);
        assert_eq!(asked.load(SeqCst), number + 1, "one came twice");
    }
}
