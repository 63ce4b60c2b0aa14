//! Two nodes with something between them that lets no handshake through for a while.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use rcgen::{CertificateParams, KeyPair};
use socket2::{Domain, Socket, Type};

use crate::node::NodeHandle;
use crate::node::commands::Command;
use crate::node::settings::{NodeSettings, PeerTls};
use crate::tls::nodes::{NodeMaterial, Nodes};

use super::sockets_tests::{address, finish, free_port, knows, launch, post, settings, sum, until};

/// The first byte of a TLS connection.
const HANDSHAKE: u8 = 22;

/// A certificate that is good for both nodes and is its own authority.
fn both_ways() -> PeerTls {
    let key = KeyPair::generate().expect("randomness");
    let hosts = vec!["127.0.0.11".to_owned(), "127.0.0.12".to_owned()];
    let parameters = CertificateParams::new(hosts).expect("addresses");
    let certificate = parameters.self_signed(&key).expect("its own").pem();
    let key = key.serialize_pem();
    let (certificates, key) = (certificate.as_bytes(), key.as_bytes());
    let material = NodeMaterial { certificates, key, authorities: certificates };
    PeerTls { is_required: false, nodes: Arc::new(Nodes::new(&material).expect("they fit")) }
}

/// What stands between two nodes.
struct Between {
    /// Whether those that begin a handshake are not answered.
    is_deaf: AtomicBool,
    /// How many were not answered.
    unheard: AtomicU64,
}

/// Carries connections from the first node on to `to`, at the address where the first node dials
/// the second one.
fn between(listener: TcpListener, to: SocketAddr) -> Arc<Between> {
    let between = Arc::new(Between { is_deaf: AtomicBool::new(true), unheard: AtomicU64::new(0) });
    let known = Arc::clone(&between);
    thread::spawn(move || {
        for dialled in listener.incoming().map_while(Result::ok) {
            let known = Arc::clone(&known);
            thread::spawn(move || carry(dialled, to, &known));
        }
    });
    between
}

fn carry(mut dialled: TcpStream, to: SocketAddr, between: &Between) -> Option<()> {
    let mut first = [0];
    dialled.read_exact(&mut first).ok()?;
    if first[0] == HANDSHAKE && between.is_deaf.load(SeqCst) {
        between.unheard.fetch_add(1, SeqCst);
        // The end of the connection is waited for, and nothing is said.
        let _ = dialled.read_to_end(&mut Vec::new());
        return None;
    }
    let onward = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
    onward.bind(&address(0, 0).into()).ok()?;
    onward.connect(&to.into()).ok()?;
    let mut onward = TcpStream::from(onward);
    onward.write_all(&first).ok()?;
    let (mut from, mut back) = (dialled.try_clone().ok()?, onward.try_clone().ok()?);
    thread::spawn(move || {
        let _ = std::io::copy(&mut back, &mut from);
        let _ = from.shutdown(std::net::Shutdown::Both);
    });
    let _ = std::io::copy(&mut dialled, &mut onward);
    onward.shutdown(std::net::Shutdown::Both).ok()
}

#[test]
fn a_connection_in_the_clear_goes_on_until_tls_takes_its_place() {
    let port = free_port();
    let tls = both_ways();
    let with = |node| NodeSettings { peer_tls: Some(tls.clone()), ..settings(node, 2, port, 1) };
    let listener = TcpListener::bind(address(1, port)).expect("free a moment ago");
    let second = launch(&NodeSettings { listen: address(1, free_port()), ..with(1) });
    let between = between(listener, second.address);
    let first = launch(&with(0));
    until("both to meet", || knows(&first, 1) && knows(&second, 1));
    assert!(between.unheard.load(SeqCst) > 0, "TLS was tried first");
    let secured = |node: &NodeHandle| sum(node, "peer_tls_connections");
    until("the other way to be secured", || secured(&second) == 1);
    let (losses, unheard) = (sum(&first, "peer_losses"), between.unheard.load(SeqCst));
    until("two tries", || {
        assert!(post(first.address, 2).starts_with("HTTP/1.1 200 "));
        between.unheard.load(SeqCst) > unheard + 1
    });
    assert_eq!(secured(&first), 1, "what the second node dialled");
    between.is_deaf.store(false, SeqCst);
    until("TLS both ways", || {
        assert!(post(first.address, 2).starts_with("HTTP/1.1 200 "));
        secured(&first) == 2 && secured(&second) == 2
    });
    assert!(knows(&first, 1), "it was alive all the while");
    assert_eq!(sum(&first, "peer_losses"), losses, "no connection broke");
    until("both to hold all", || sum(&first, "timers") == sum(&second, "timers"));
    finish(first);
    finish(second);
}

#[test]
fn nodes_that_are_told_to_speak_tls_leave_the_clear_by_themselves() {
    let port = free_port();
    let nodes = [0, 1].map(|node| launch(&settings(node, 2, port, 2)));
    until("both to meet", || nodes.iter().all(|node| knows(node, 1)));
    let tls = both_ways();
    for node in &nodes {
        node.command(&Command::PeerTls(Some(tls.clone())));
    }
    until("TLS on all connections", || {
        nodes.iter().all(|node| sum(node, "peer_tls_connections") == 4)
    });
    nodes.into_iter().for_each(finish);
}
