//! TLS between nodes against those who are none: bad certificates on each side, bytes that are no
//! TLS, handshakes that never end, and somebody in the middle.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;

use kit::client::{Answer, PATIENCE, read_answer};
use kit::runner::Story;
use rustls::{ClientConfig, ServerConfig, ServerConnection};

use super::certificates::{Authority, BAD, Kind, connect, dial, host_of};
use super::files::Roles;
use super::harness::{Cluster, Setup, until};
use super::hostile_peer::Claim;
use super::proxies::Network;
use super::sink::Sink;
use super::timers::{Order, Timers};

pub const STORIES: &[Story] = &[
    ("nothing_crosses_in_the_clear", nothing_crosses_in_the_clear),
    ("a_bad_certificate_makes_no_node", a_bad_certificate_makes_no_node),
    ("a_node_with_a_bad_certificate_is_not_talked_to", a_bad_certificate_is_not_talked_to),
    ("a_node_that_takes_both_goes_on_without_tls", takes_both_goes_on_without_tls),
    ("over_tls_a_node_does_what_nodes_do", over_tls_a_node_does_what_nodes_do),
    ("what_is_no_tls_keeps_no_node_out", what_is_no_tls_keeps_no_node_out),
];

/// Certificates with which a handshake is good, and which are not the member's.
const MISNAMED: [Kind; 2] = [Kind::OtherName, Kind::OtherPort];

/// The place of a member that the story plays.
const IT: usize = 2;

/// The place of a node of another site that the story plays.
const AWAY: usize = 3;

/// Starts two nodes that speak TLS with each other. The third member is the story's, and so is the
/// node of another site.
fn two_nodes(authority: &Authority) -> Cluster {
    let mut cluster = Cluster::new();
    for place in [0, 1] {
        let good = authority.sign(host_of(&cluster.names[place].clone()), Kind::Good);
        authority.equip(&mut cluster, place, "required", &good);
        let sites = format!("[sites]\nremote_site = away={}\n", cluster.names[AWAY]);
        cluster.set_local(place, &(cluster.local_of(place).to_owned() + &sites));
    }
    cluster.start_with(&[0, 1], &Roles::staying(&[0, 1, IT]));
    cluster.await_alive(&[0, 1]);
    cluster
}

/// Asks for an Upgrade over TLS. Error: the node does not come to TLS.
fn upgrade(config: &Arc<ClientConfig>, cluster: &Cluster, claim: &Claim) -> Result<Answer> {
    let mut stream = dial(config, cluster.address(IT), cluster.address(0));
    let headers = claim.headers();
    write!(stream, "GET /peer HTTP/1.1\r\nHost: x\r\n{headers}\r\n")?;
    read_answer(&mut stream)
}

fn a_bad_certificate_makes_no_node() {
    let (authority, other) = (Authority::new(), Authority::new());
    let cluster = two_nodes(&authority);
    let host = host_of(&cluster.names[IT]);
    let claim = Claim::member(&cluster.names[IT], IT);
    let failed = || cluster.metric(0, "chronos_peer_tls_failed_total");
    for kind in BAD.into_iter().chain([Kind::ServersOnly]) {
        let name = if kind == Kind::OtherName { host_of(&cluster.names[1]) } else { host };
        let signs = if kind == Kind::OtherAuthority { &other } else { &authority };
        let (shown, before) = (signs.sign(name, kind), failed());
        match upgrade(&authority.dialler(Some(&shown)), &cluster, &claim) {
            Ok(answer) => {
                assert!(MISNAMED.contains(&kind) && answer.status == 403, "{kind:?}: {answer:?}");
                assert_eq!(answer.header("X-Chronos-Refused"), Some("certificate"));
            }
            Err(_) => assert!(!MISNAMED.contains(&kind), "{kind:?}: the handshake is good"),
        }
        let counted = format!("{kind:?} to be counted");
        until(&counted, || (failed() > before).then_some(()));
    }
    assert!(upgrade(&authority.dialler(None), &cluster, &claim).is_err(), "without a certificate");
    let good = authority.sign(host, Kind::Good);
    let answer = upgrade(&authority.dialler(Some(&good)), &cluster, &claim).expect("an answer");
    assert_eq!(answer.status, 101, "{answer:?}");
    let good = authority.sign(&cluster.names[IT], Kind::WholeName);
    let answer = upgrade(&authority.dialler(Some(&good)), &cluster, &claim).expect("an answer");
    assert_eq!(answer.status, 101, "{answer:?}");
    // A good certificate makes nobody another member.
    let other = Claim::member(&cluster.names[1], 1);
    let answer = upgrade(&authority.dialler(Some(&good)), &cluster, &other).expect("an answer");
    assert_eq!(answer.status, 403, "{answer:?}");
}

/// Accepts one connection of a node and plays the member. Returns what the node says once it
/// believes the certificate; error: it does not.
fn play(listener: &TcpListener, config: &Arc<ServerConfig>) -> Result<String> {
    let (mut stream, _) = listener.accept().expect("the node dials");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut session = ServerConnection::new(config.clone()).expect("a server");
    let mut said = vec![0; 4096];
    let mut tls = rustls::Stream::new(&mut session, &mut stream);
    let count = tls.read(&mut said)?;
    Ok(String::from_utf8_lossy(&said[..count]).into_owned())
}

fn a_bad_certificate_is_not_talked_to() {
    let (authority, other) = (Authority::new(), Authority::new());
    let mut cluster = Cluster::new();
    let listener = kit::ports::listen(cluster.address(IT));
    let good = authority.sign(host_of(&cluster.names[0].clone()), Kind::Good);
    authority.equip(&mut cluster, 0, "required", &good);
    cluster.start_with(&[0], &Roles::staying(&[0, IT]));
    let host = host_of(&cluster.names[IT]);
    for kind in BAD {
        let name = if kind == Kind::OtherName { host_of(&cluster.names[1]) } else { host };
        let signs = if kind == Kind::OtherAuthority { &other } else { &authority };
        let shown = signs.sign(name, kind);
        let said = play(&listener, &authority.acceptor(&shown));
        assert!(said.is_err(), "{kind:?}: {said:?}");
    }
    let name = cluster.names[IT].as_str();
    for good in [authority.sign(name, Kind::WholeName), authority.sign(host, Kind::Good)] {
        let config = authority.acceptor(&good);
        let said = until("the node to talk", || play(&listener, &config).ok());
        assert!(said.starts_with("GET /peer HTTP/1.1\r\n"), "{said}");
    }
    // Who answers in the clear is not talked to either.
    let (mut stream, _) = until("another dial", || listener.accept().ok());
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").expect("taken");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest.first(), Some(&22), "a hello and nothing else");
    let (mut stream, _) = until("another dial", || listener.accept().ok());
    let mut first = [0];
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.read_exact(&mut first).expect("bytes");
    assert_eq!(first, [22], "it does not fall back");
}

/// Each dial begins with TLS, and goes on without where the other end speaks none. Only after an
/// end that says nothing the next dial begins without.
fn takes_both_goes_on_without_tls() {
    let authority = Authority::new();
    let mut cluster = Cluster::new();
    let listener = kit::ports::listen(cluster.address(IT));
    let good = authority.sign(host_of(&cluster.names[0].clone()), Kind::Good);
    authority.equip(&mut cluster, 0, "accept-both", &good);
    cluster.set_local(0, &(cluster.local_of(0).to_owned() + "\n[node]\nshards = 1\npin = false\n"));
    cluster.start_with(&[0], &Roles::staying(&[0, IT]));
    // The first byte of each connection, and the connection.
    let next = || {
        let (mut stream, _) = listener.accept().expect("the node dials");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut first = [0];
        stream.read_exact(&mut first).expect("bytes");
        (first[0], stream)
    };
    for _ in 0..2 {
        let (first, mut stream) = next();
        assert_eq!(first, 22, "each dial begins with TLS");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").expect("taken");
        let (first, stream) = next();
        assert_eq!(first, b'G', "it goes on without");
        drop(stream);
    }
    let (first, stream) = next();
    assert_eq!(first, 22);
    drop(stream);
    let (first, stream) = next();
    assert_eq!(first, b'G', "an end is an answer, too");
    drop(stream);
    let (first, silent) = next();
    assert_eq!(first, 22);
    let (first, stream) = next();
    assert_eq!(first, b'G', "silence is one in the next dial");
    drop((silent, stream));
    assert_eq!(next().0, 22);
}

fn over_tls_a_node_does_what_nodes_do() {
    let authority = Authority::new();
    let cluster = two_nodes(&authority);
    let good = authority.sign(host_of(&cluster.names[AWAY]), Kind::Good);
    let config = authority.dialler(Some(&good));
    let ask = |stream: &mut dyn ReadWrite, method: &str, path: &str, body: &str| {
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .expect("taken");
        read_answer(&mut &mut *stream).expect("an answer")
    };
    let mut stream = dial(&config, cluster.address(AWAY), cluster.address(0));
    let timer = Order::once(3_600_000).document("http://127.0.0.1:9/", "");
    let page = format!("/timers?node-for-replicas={}&cluster-view-id=1", cluster.names[1]);
    let requests = [
        ("POST", "/timers", timer.as_str()),
        ("PUT", "/timers/00000000075bcd15-2", &timer),
        ("GET", "/timers/00000000075bcd15-2", ""),
        ("DELETE", "/timers/00000000075bcd15-2", ""),
        ("POST", "/timestamps?count=1", ""),
        // That is for nodes, and nobody has said yet which node this is.
        ("GET", &page, ""),
        ("GET", "/ping?members", ""),
        ("DELETE", "/timers/references", "{\"IDs\":[]}"),
    ];
    for (method, path, body) in requests {
        let answer = ask(&mut stream, method, path, body);
        assert_eq!(answer.status, 403, "{method} {path}: {answer:?}");
    }
    let claim = Claim::member(&cluster.names[AWAY], AWAY);
    let site = claim.headers().replace("chronos-peer/1", "chronos-site/1");
    let site = site + "X-Chronos-Site: away\r\n";
    write!(stream, "GET /peer HTTP/1.1\r\nHost: x\r\n{site}\r\n").expect("taken");
    assert_eq!(read_answer(&mut stream).expect("an answer").status, 101);
    for (method, path, body) in &requests[5..] {
        let answer = ask(&mut stream, method, path, body);
        assert_ne!(answer.status, 403, "{method} {path}: {answer:?}");
    }
    for (method, path, body) in &requests[..5] {
        let answer = ask(&mut stream, method, path, body);
        assert_eq!(answer.status, 403, "{method} {path}: {answer:?}");
    }
    // The same without TLS is refused, at the address of a member.
    for (method, path, body) in &requests[5..] {
        let mut plain = connect(cluster.address(IT), cluster.address(0));
        let answer = ask(&mut plain, method, path, body);
        assert_eq!(answer.status, 403, "{method} {path}: {answer:?}");
        let reason = answer.header("Reason").expect("a reason");
        assert!(reason.contains("cluster.tls"), "{reason}");
    }
    // At an address of no member not even a handshake is begun.
    let stranger: SocketAddr = "127.0.0.77:0".parse().expect("an address");
    let mut stream = connect(stranger, cluster.address(0));
    stream.write_all(&[22, 3, 1, 0, 100, 1]).expect("taken");
    let answer = read_answer(&mut stream).expect("an answer in the clear");
    assert_eq!(answer.status, 403, "{answer:?}");
}

/// Either kind of connection.
trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

/// All that comes until the end of a connection, in whichever way it ends.
fn rest(stream: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) => assert_ne!(error.kind(), ErrorKind::WouldBlock, "it stays open"),
    }
    all
}

fn what_is_no_tls_keeps_no_node_out() {
    let authority = Authority::new();
    let mut cluster = two_nodes(&authority);
    let (from, to) = (cluster.address(IT), cluster.address(0));
    for wire in [
        &[22, 3, 3, 0, 4, 1, 0, 0, 0][..],
        &[22, 3, 3, 0xff, 0xff, 1, 2, 3],
        &[22, 9, 9, 0, 5, 1, 1, 1, 1, 1],
        &[&[22, 3, 3, 0, 40][..], &[1; 40]].concat(),
    ] {
        let mut stream = connect(from, to);
        stream.write_all(wire).expect("taken");
        assert_eq!(rest(&mut stream).first(), Some(&21), "an alert for {wire:?}");
    }
    // A hello that is cut, and one that never ends: as many as the limit of connections lets in.
    let good = authority.sign(host_of(&cluster.names[IT]), Kind::Good);
    let config = authority.dialler(Some(&good));
    let mut hello = Vec::new();
    let mut whole = dial(&config, from, to);
    whole.conn.write_tls(&mut hello).expect("memory");
    drop(whole);
    let half = |bytes: usize| {
        let mut stream = connect(from, to);
        stream.write_all(&hello[..bytes]).expect("taken");
        stream
    };
    half(60).shutdown(Shutdown::Write).expect("open");
    let stuck: Vec<_> = (0..200).map(|number| half(1 + number % (hello.len() - 1))).collect();
    // Meanwhile a node comes back.
    cluster.stop(1);
    cluster.start(1);
    cluster.await_alive(&[0, 1]);
    stuck.into_iter().for_each(|mut stream| drop(rest(&mut stream)));
    // Frames that are changed on their way end the connection.
    let mut stream = dial(&config, from, to);
    let headers = Claim::member(&cluster.names[IT], IT).headers();
    write!(stream, "GET /peer HTTP/1.1\r\nHost: x\r\n{headers}\r\n").expect("taken");
    assert_eq!(read_answer(&mut stream).expect("an answer").status, 101);
    stream.sock.write_all(&[23, 3, 3, 0, 40]).expect("taken");
    stream.sock.write_all(&[7; 40]).expect("taken");
    rest(&mut stream.sock);
    cluster.await_alive(&[0, 1]);
}

fn nothing_crosses_in_the_clear() {
    const PLANTED: &str = "opaque ";
    for is_tls in [false, true] {
        let (mut cluster, network) = Network::overhearing(Setup::default());
        if is_tls {
            let authority = Authority::new();
            for place in [0, 1] {
                let good = authority.sign(host_of(&cluster.names[place].clone()), Kind::Good);
                authority.equip(&mut cluster, place, "required", &good);
            }
        }
        cluster.begin(&[0, 1]);
        cluster.await_alive(&[0, 1]);
        let sink = Sink::ok();
        let timers = Timers::hundred(&cluster, &[0, 1], Order::once(4_000).factor(2), &sink);
        timers.judge(&sink).assert_perfect();
        assert_eq!(network.has_carried(PLANTED), !is_tls, "TLS: {is_tls}");
        assert_eq!(network.has_carried("X-Chronos-Name"), !is_tls, "TLS: {is_tls}");
    }
}
