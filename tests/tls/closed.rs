//! Nodes at which clients speak TLS or nothing (`[node] plain_clients = false`).

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use kit::callbacks::{self, Reaction};
use kit::children::{self, Tied};
use kit::ports::free_port;
use rustls::version::TLS13;
use socket2::{Domain, Socket, Type};

use super::authorities::{Authority, Files};
use super::harness::{Client, Node, PATIENCE, session};

const HOSTS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(127, 0, 0, 41)), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 42))];
/// An address of no node.
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 99));
/// How many timers a story has.
const TIMERS: usize = 40;

/// Turns plain clients away.
fn closed(config: &str) -> String {
    config.replace("[node]\n", "[node]\nplain_clients = false\n")
}

/// A connection from this address.
fn connect_from(host: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::new(host, 0).into()).expect("a loopback address");
    socket.connect(&to.into()).expect("it listens");
    let stream: TcpStream = socket.into();
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// What comes back until the connection ends.
fn answer(mut stream: TcpStream, ask: &[u8]) -> String {
    stream.write_all(ask).expect("taken");
    let mut told = Vec::new();
    match stream.read_to_end(&mut told) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection stays open: {error}"),
    }
    String::from_utf8_lossy(&told).into_owned()
}

#[test]
fn a_node_alone_without_plain_clients_has_no_plain_port() {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    let listen = SocketAddr::from(([127, 0, 0, 1], free_port(&[Ipv4Addr::LOCALHOST.into()])));
    let node = Node::start_at(&closed(&files.config("")), listen);
    assert_eq!(node.plain.port(), 0, "{}", node.logged());
    let refused = TcpStream::connect(listen).expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let plain = TcpStream::connect(node.secure).expect("it listens");
    plain.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let told = answer(plain, b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(told.contains("found no TLS") && !told.contains("the port of"), "{told}");
    let mut client = Client::connect(&node, &authority.trusting(&[&TLS13], None));
    let pong = client.request("GET", "/ping", "");
    assert!(pong.head.starts_with("HTTP/1.1 200 "), "{}", pong.head);
    let path = client.create();
    assert!(client.request("DELETE", &path, "").head.starts_with("HTTP/1.1 200 "));
    node.stop();
    node.ended();
}

/// Two nodes that speak TLS with each other, and nothing else at that port.
struct Pair {
    nodes: Vec<Node>,
    authority: Authority,
    _files: Files,
    port: u16,
}

impl Pair {
    fn start() -> Pair {
        let authority = Authority::new();
        let files = Files::new(&authority.server());
        let mut certs = children::command(env!("CARGO_BIN_EXE_chronos"));
        certs.args(["cluster", "certs", "--out"]).arg(files.path("pki"));
        HOSTS.iter().for_each(|host| {
            certs.args(["--node", &host.to_string()]);
        });
        assert!(certs.output_tied().expect("it runs").status.success());
        let port = free_port(&HOSTS);
        let names: Vec<_> = HOSTS.iter().map(|host| format!("{host}:{port}")).collect();
        let start = |host: &IpAddr| {
            let pki = |name: &str| files.path("pki").join(name).display().to_string();
            let (cert, key) = (pki(&format!("{host}.pem")), pki(&format!("{host}.key")));
            let cluster = format!(
                "[cluster]\nlocalhost = '{host}:{port}'\nnodes = {names:?}\ntls = 'required'\n\
                 tls_cert = '{cert}'\ntls_key = '{key}'\ntls_ca = '{}'\n",
                pki("ca.pem")
            );
            Node::start_at(&closed(&files.config(&cluster)), SocketAddr::new(*host, port))
        };
        let nodes: Vec<_> = HOSTS.iter().map(start).collect();
        let pair = Pair { nodes, authority, _files: files, port };
        for node in &pair.nodes {
            kit::until::until("the nodes to speak TLS", PATIENCE, || {
                let members = cluster_of(node)?["members"].as_array()?.clone();
                let others = members.iter().filter(|member| member["tls"] == true);
                (others.count() == 1).then_some(())
            });
        }
        pair
    }

    fn client(&self, place: usize) -> Client {
        Client::connect(&self.nodes[place], &self.authority.trusting(&[&TLS13], None))
    }

    fn listen(&self, place: usize) -> SocketAddr {
        SocketAddr::new(HOSTS[place], self.port)
    }
}

fn cluster_of(node: &Node) -> Option<serde_json::Value> {
    let answer = kit::client::request(node.admin, "GET", "/cluster", "").ok()?;
    serde_json::from_str(&answer.body).ok()
}

#[test]
fn nodes_replicate_where_nothing_is_taken_in_the_clear() {
    let pair = Pair::start();
    let popped: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let seen = Arc::clone(&popped);
    let (sink, _) = callbacks::serve(SocketAddr::from(([127, 0, 0, 1], 0)), move |callback| {
        *seen.lock().expect("no panic").entry(callback.path.clone()).or_default() += 1;
        Reaction::OK
    });
    let (mut first, mut second) = (pair.client(0), pair.client(1));
    for number in 0..TIMERS {
        let timer = format!(
            "{{\"timing\":{{\"interval\":3}},\"callback\":{{\"http\":{{\"uri\":\
             \"http://{sink}/{number}\",\"opaque\":\"x\"}}}}}}"
        );
        let created = first.request("POST", "/timers", &timer);
        assert!(created.head.starts_with("HTTP/1.1 200 "), "{}", created.head);
        let path = created.header("Location").expect("created").to_owned();
        let read = second.request("GET", &path, "");
        assert!(read.head.starts_with("HTTP/1.1 200 "), "{}", read.head);
    }
    kit::until::until("all to pop", PATIENCE, || {
        (popped.lock().expect("no panic").len() == TIMERS).then_some(())
    });
    for node in &pair.nodes {
        assert_eq!(node.metric("chronos_peer_tls_failed_total"), 0, "{}", node.logged());
        assert_eq!(node.metric("chronos_peer_plain_refused_total"), 0, "{}", node.logged());
    }
}

#[test]
fn what_comes_to_the_port_of_nodes_is_told_where_to_go() {
    let pair = Pair::start();
    let told = "[node] plain_clients = false";
    for ask in ["GET /ping HTTP/1.1\r\nHost: x\r\n\r\n", "POST /timers HTTP/1.1\r\n\r\n", "x"] {
        let said = answer(connect_from(STRANGER, pair.listen(0)), ask.as_bytes());
        assert!(said.starts_with("HTTP/1.1 403 ") && said.contains(told), "{said}");
        assert!(said.contains("https://") && said.contains("listen_tls"), "{said}");
    }
    assert_eq!(pair.nodes[0].metric("chronos_peer_plain_refused_total"), 0);
    // A client that speaks TLS there is at no address of a node.
    let mut hello = Vec::new();
    let trusting = pair.authority.trusting(&[&TLS13], None);
    session(&trusting).write_tls(&mut hello).expect("memory");
    let said = answer(connect_from(STRANGER, pair.listen(0)), &hello);
    assert!(said.starts_with("HTTP/1.1 403 "), "{said}");
    // What comes from a node in the clear is counted.
    assert_eq!(pair.nodes[0].metric("chronos_peer_plain_refused_total"), 0);
    let stream = connect_from(HOSTS[1], pair.listen(0));
    let said = answer(stream, b"GET /peer HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 403 ") && said.contains(told), "{said}");
    pair.nodes[0].await_metric("chronos_peer_plain_refused_total", 1);
    pair.client(0).create();
}
