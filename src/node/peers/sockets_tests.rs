//! Nodes that talk over real sockets on loopback addresses: dials, upgrades, refusals.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::base::ids::PeerIndex;
use crate::cluster::view::{Membership, View};
use crate::core::peers::secret::{Guard, Secrets};
use crate::node::commands::Command;
use crate::node::meters::CoreMeters;
use crate::node::settings::NodeSettings;
use crate::node::{NodeHandle, StartError, start};
use socket2::{Domain, Socket, Type};

/// Longest wait for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A port that was free a moment ago on 127.0.0.11 to .13. It lies below the ports that the kernel
/// gives to outgoing connections, because nodes call from these addresses.
pub(super) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 20_000) as u16;
    for _ in 0..1_000 {
        let port = first + NEXT.fetch_add(1, Relaxed);
        let is_free =
            |last: u8| TcpListener::bind(SocketAddr::from(([127, 0, 0, last], port))).is_ok();
        if is_free(11) && is_free(12) && is_free(13) {
            return port;
        }
    }
    panic!("no port is free on three loopback addresses");
}

pub(super) fn address(node: usize, port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 11 + node as u8], port))
}

fn membership(node: usize, nodes: usize, port: u16) -> Membership {
    Membership {
        localhost: address(node, port).to_string(),
        nodes: (0..nodes).map(|node| address(node, port).to_string()).collect(),
        ..Membership::default()
    }
}

pub(super) fn settings(node: usize, nodes: usize, port: u16, shards: u16) -> NodeSettings {
    NodeSettings {
        listen: address(node, port),
        shards: Some(shards),
        pin: false,
        instance_id: node as u8,
        membership: Some(membership(node, nodes, port)),
        ..NodeSettings::default()
    }
}

pub(super) fn launch(settings: &NodeSettings) -> NodeHandle {
    start(settings).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn finish(node: NodeHandle) {
    node.stop();
    node.join().expect("no core has failed");
}

pub(super) fn sum(node: &NodeHandle, meter: &str) -> u64 {
    let of_core = |list: Vec<(&str, bool, &str, u64)>| {
        list.iter().find(|entry| entry.0 == meter).expect("a meter").3
    };
    node.meters.iter().map(|core| of_core(core.list())).sum()
}

/// Returns whether every core of a node believes `peers` peers alive.
pub(super) fn knows(node: &NodeHandle, peers: u64) -> bool {
    node.meters.iter().all(|core| core.peers_alive.get() == peers)
}

/// Sends a request on a connection of its own. Returns the head of the answer and what comes behind
/// it until the node closes or the head asks for nothing more.
fn ask(to: SocketAddr, text: &str) -> String {
    ask_over(TcpStream::connect(to).expect("it listens"), text)
}

/// Does the same as [`ask`] from the loopback address 127.0.0.`last`.
fn ask_from(last: u8, to: SocketAddr, text: &str) -> String {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).expect("a loopback address");
    socket.connect(&to.into()).expect("it listens");
    ask_over(socket.into(), text)
}

fn ask_over(mut stream: TcpStream, text: &str) -> String {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(text.as_bytes()).expect("taken");
    read_head(&mut stream)
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        // `read_exact` is a `read` that goes on after a signal.
        let read = stream.read_exact(&mut byte);
        read.unwrap_or_else(|error| panic!("{error} after {}", answer.escape_ascii()));
        answer.push(byte[0]);
    }
    String::from_utf8(answer).expect("heads are text")
}

pub(super) fn post(to: SocketAddr, factor: u32) -> String {
    let body = format!(
        "{{\"timing\":{{\"interval\":3600}},\"callback\":{{\"http\":{{\"uri\":\
         \"http://127.0.0.1:9/\",\"opaque\":\"x\"}}}},\"reliability\":\
         {{\"replication-factor\":{factor}}}}}"
    );
    let length = body.len();
    ask(to, &format!("POST /timers HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"))
}

fn upgrade(name: &str) -> String {
    format!(
        "GET /peer HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: chronos-peer/1\r\n\
         X-Chronos-Name: {name}\r\nX-Chronos-Instance: 99\r\nX-Chronos-Incarnation: 0f\r\n\
         X-Chronos-View: 1\r\nX-Chronos-Shard: 0\r\nX-Chronos-Shards: 1\r\n\r\n"
    )
}

#[test]
fn nodes_replicate_lose_each_other_and_meet_again() {
    let port = free_port();
    let first = launch(&settings(0, 2, port, 2));
    let second = launch(&settings(1, 2, port, 2));
    until("both to meet", || knows(&first, 1) && knows(&second, 1));
    for _ in 0..50 {
        assert!(post(first.address, 2).starts_with("HTTP/1.1 200 "));
        assert!(post(second.address, 2).starts_with("HTTP/1.1 200 "));
    }
    // A write is answered when both nodes have it. Meters follow within a turn.
    until("both to hold all", || sum(&first, "timers") == 100 && sum(&second, "timers") == 100);
    finish(second);
    until("the loss to be noticed", || knows(&first, 0));
    assert!(post(first.address, 2).starts_with("HTTP/1.1 200 "), "nobody is waited for");
    let second = launch(&settings(1, 2, port, 2));
    until("both to meet again", || knows(&first, 1) && knows(&second, 1));
    until("everything to be offered", || sum(&second, "timers") == 101);
    assert_eq!(sum(&first, "peer_protocol_errors") + sum(&second, "peer_protocol_errors"), 0);
    assert_eq!(sum(&first, "peer_twins") + sum(&first, "peer_strangers"), 0);
    finish(first);
    finish(second);
}

#[test]
fn cores_of_equal_nodes_meet_their_likes() {
    let port = free_port();
    let first = launch(&settings(0, 2, port, 2));
    let second = launch(&settings(1, 2, port, 2));
    until("both to meet", || knows(&first, 1) && knows(&second, 1));
    let before = sum(&first, "mesh_sent") + sum(&second, "mesh_sent");
    for _ in 0..20 {
        assert!(post(first.address, 2).starts_with("HTTP/1.1 200 "));
    }
    let hops = sum(&first, "mesh_sent") + sum(&second, "mesh_sent") - before;
    // One link in 2^8 may have to put up with another core.
    assert!(hops == 0 || sum(&second, "peer_connections") == 2, "{hops} messages over the mesh");
    finish(first);
    finish(second);
}

#[test]
fn nodes_with_different_numbers_of_cores_replicate() {
    let port = free_port();
    let nodes: Vec<_> = [1, 2, 3]
        .iter()
        .enumerate()
        .map(|(node, &shards)| launch(&settings(node, 3, port, shards)))
        .collect();
    until("all to meet", || nodes.iter().all(|node| knows(node, 2)));
    for at in 0..60 {
        assert!(post(nodes[at % 3].address, 3).starts_with("HTTP/1.1 200 "));
    }
    until("all to hold all", || nodes.iter().all(|node| sum(node, "timers") == 60));
    nodes.into_iter().for_each(finish);
}

#[test]
fn whoever_is_no_peer_is_told_why() {
    let port = free_port();
    let node = launch(&settings(0, 2, port, 1));
    let own = address(0, port).to_string();
    let status = |text: &str| {
        let head = ask(node.address, text);
        let reason = head.lines().find_map(|line| line.strip_prefix("Reason: "));
        let reason = reason.unwrap_or_else(|| panic!("no reason in {head}")).to_owned();
        (head[9..12].to_owned(), reason)
    };
    let (code, reason) = status(&upgrade("10.9.9.9:7253"));
    assert_eq!(code, "403");
    assert!(reason.contains("10.9.9.9:7253 is no member"), "{reason}");
    let (code, reason) = status(&upgrade(&own));
    assert_eq!(code, "409");
    assert!(reason.contains("two processes"), "{reason}");
    assert_eq!(status("GET /peer HTTP/1.1\r\nHost: x\r\n\r\n").0, "426");
    for head in ["HEAD /peer HTTP/1.1\r\nHost: x\r\n\r\n", &upgrade(&own).replace("GET ", "HEAD ")]
    {
        let mut stream = TcpStream::connect(node.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(head.as_bytes()).expect("taken");
        let mut told = String::new();
        stream.read_to_string(&mut told).expect("all of the answer");
        assert!(told.starts_with("HTTP/1.1 4") && told.ends_with("\r\n\r\n"), "{told}");
    }
    let lacking = upgrade(&own).replace("X-Chronos-View: 1\r\n", "");
    assert_eq!(status(&lacking).0, "400");
    until("the counts", || sum(&node, "peer_strangers") == 1 && sum(&node, "peer_twins") == 1);
    finish(node);
}

#[test]
fn nobody_speaks_for_a_member_from_another_address() {
    let port = free_port();
    let node = launch(&settings(0, 3, port, 1));
    let (down, other) = (address(1, port).to_string(), address(2, port).to_string());
    let nobody = ask_from(77, node.address, &upgrade(&down));
    let member = ask_from(13, node.address, &upgrade(&down));
    for refused in [&nobody, &member] {
        assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
        assert!(refused.contains("X-Chronos-Refused: address\r\n"), "{refused}");
        for secret in ["Incarnation", "X-Chronos-Name", &other] {
            assert!(!refused.contains(secret), "{secret} is disclosed: {refused}");
        }
    }
    assert!(!nobody.contains(&down[..10]), "a stranger learns nothing: {nobody}");
    let stranger = ask_from(77, node.address, &upgrade("10.9.9.9:7253"));
    assert_eq!(stranger, nobody, "whether a name is a member's is not told either");
    until("the count", || sum(&node, "peer_strangers") == 3);
    assert!(ask_from(12, node.address, &upgrade(&down)).starts_with("HTTP/1.1 101 "));
    assert!(ask_from(1, node.address, &upgrade(&other)).starts_with("HTTP/1.1 101 "));
    finish(node);
    let open = launch(&NodeSettings { accept_strangers: true, ..settings(0, 3, port, 1) });
    assert!(ask_from(77, open.address, &upgrade(&down)).starts_with("HTTP/1.1 101 "));
    finish(open);
}

#[test]
fn a_node_whose_address_is_not_its_names_takes_no_writes() {
    let port = free_port();
    let name = format!("node-2.invalid:{port}");
    let nodes = vec![address(0, port).to_string(), name.clone()];
    let with = |node: usize, localhost: &str| {
        let members =
            Membership { localhost: localhost.into(), nodes: nodes.clone(), ..<_>::default() };
        NodeSettings { membership: Some(members), ..settings(node, 2, port, 1) }
    };
    let first = launch(&with(0, &nodes[0]));
    // The second process listens at the second node's address and calls from there.
    let second = launch(&with(1, &name));
    let members = |last: u8| {
        let found = vec![IpAddr::from([127, 0, 0, last])];
        first.command(&Command::Members(Arc::new([("node-2.invalid".into(), found)])));
    };
    let is_taken = || post(second.address, 1).starts_with("HTTP/1.1 200 ");
    until("the first to be met", || knows(&second, 0) && is_taken());
    // The name has not been looked up yet, and nobody is to blame for that.
    assert_eq!(sum(&first, "peer_strangers") + sum(&second, "peer_refusals"), 0);
    members(13);
    until("it to be disowned", || !is_taken());
    until("the counts", || sum(&first, "peer_strangers") > 0 && sum(&second, "peer_refusals") > 0);
    let refused = post(second.address, 1);
    assert!(refused.contains("do not take this process for this node"), "{refused}");
    members(12);
    until("it to be taken for itself", || knows(&second, 1) && is_taken());
    finish(first);
    finish(second);
}

#[test]
fn garbage_after_an_upgrade_closes_the_connection_and_nothing_else() {
    let port = free_port();
    let node = launch(&settings(0, 2, port, 1));
    let member = address(1, port).to_string();
    let mut stream = TcpStream::connect(node.address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // The bytes behind the request, in the same segment, belong to the frames.
    stream.write_all(format!("{}no frame", upgrade(&member)).as_bytes()).expect("taken");
    let mut rest = Vec::new();
    // The connection is closed, or reset when bytes that nobody reads are under way.
    let _ = stream.read_to_end(&mut rest);
    until("the count", || sum(&node, "peer_protocol_errors") == 1);
    assert!(post(node.address, 1).starts_with("HTTP/1.1 "), "it still serves");
    until("its end", || sum(&node, "peer_connections") == 0);
    finish(node);
}

#[test]
fn an_original_node_is_pinged_over_http() {
    let port = free_port();
    let listener = TcpListener::bind(address(1, port)).expect("free a moment ago");
    let original = thread::spawn(move || {
        let mut seen = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let from = stream.peer_addr().expect("connected").ip();
            assert_eq!(from, address(0, 0).ip(), "it calls from where it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            for _ in 0..3 {
                let head = read_head(&mut stream);
                let line = head.lines().next().expect("a request line").to_owned();
                let answer = match line.as_str() {
                    "GET /ping HTTP/1.1" => "200 OK\r\nContent-Length: 2\r\n\r\nOK",
                    _ => "404 Not Found\r\nContent-Length: 0\r\n\r\n",
                };
                seen.push(line.clone());
                stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).expect("taken");
                if line.starts_with("GET /peer") {
                    break;
                }
            }
            if seen.len() >= 4 {
                return seen;
            }
        }
        unreachable!("it listens until it returns")
    });
    let node = launch(&settings(0, 2, port, 1));
    until("it to be believed alive", || knows(&node, 1));
    let seen = original.join().expect("it saw what it should");
    let ping = "GET /ping HTTP/1.1";
    assert_eq!(seen, ["GET /peer HTTP/1.1", ping, ping, ping]);
    until("its end to be noticed", || knows(&node, 0));
    finish(node);
}

#[test]
fn a_new_configuration_takes_effect_without_a_restart() {
    let port = free_port();
    let first = launch(&settings(0, 1, port, 2));
    let second = launch(&settings(1, 2, port, 2));
    until("the second to be refused", || sum(&first, "peer_strangers") > 0);
    for _ in 0..20 {
        assert!(post(first.address, 2).starts_with("HTTP/1.1 200 "));
    }
    let larger = View::build(Some(&first.view), &membership(0, 2, port)).expect("a cluster");
    first.command(&Command::View(Arc::new(larger)));
    until("both to meet", || knows(&first, 1) && knows(&second, 1));
    until("timers to be replicated", || sum(&second, "timers") == 20);
    finish(first);
    finish(second);
}

#[test]
fn members_that_make_no_cluster_are_refused_at_the_start() {
    let port = free_port();
    let mut twice = settings(0, 2, port, 1);
    let members = twice.membership.as_mut().expect("set above");
    members.nodes.push(members.nodes[0].clone());
    let error = start(&twice).err();
    assert!(matches!(error, Some(StartError::Membership(_))), "an address listed twice");
}

const SECRET: &str = "what only the nodes of this cluster know";

fn guard(lines: &str) -> Guard {
    let secrets = Secrets::parse(lines.as_bytes()).expect("secrets");
    Guard { secrets: Some(Arc::new(secrets)), accepts_unproven: false }
}

#[test]
fn nodes_that_share_a_secret_meet_and_strangers_learn_nothing() {
    let port = free_port();
    let with = |node| NodeSettings { guard: guard(SECRET), ..settings(node, 3, port, 2) };
    let (first, second) = (launch(&with(0)), launch(&with(1)));
    until("both to meet", || knows(&first, 1) && knows(&second, 1));
    assert!(post(first.address, 2).starts_with("HTTP/1.1 200 "));
    assert_eq!(sum(&first, "peer_unproven") + sum(&second, "peer_unproven"), 0);
    // The caller has the address of the member that is down.
    let down = upgrade(&address(2, port).to_string());
    let nonce = format!("\r\nX-Chronos-Nonce: {}\r\nX-Chronos-View", "0f".repeat(32));
    let challenged = ask_from(13, first.address, &down.replace("\r\nX-Chronos-View", &nonce));
    assert!(challenged.starts_with("HTTP/1.1 401 "), "{challenged}");
    let refused = ask_from(13, first.address, &down);
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    assert!(refused.contains("X-Chronos-Refused: secret\r\n"), "{refused}");
    assert!(refused.contains("cluster.secret_file"), "{refused}");
    for told in [challenged, refused] {
        assert!(!told.contains("Incarnation") && !told.contains("127.0.0"), "{told}");
    }
    // A caller at no member's address is told no more than before.
    let elsewhere = ask_from(77, first.address, &down);
    assert!(elsewhere.contains("X-Chronos-Refused: address\r\n"), "{elsewhere}");
    until("the count", || sum(&first, "peer_unproven") == 1);
    finish(first);
    finish(second);
}

#[test]
fn a_challenge_is_good_for_one_try() {
    let port = free_port();
    let node = launch(&NodeSettings { guard: guard(SECRET), ..settings(0, 2, port, 1) });
    let member = upgrade(&address(1, port).to_string());
    let nonce = format!("\r\nX-Chronos-Nonce: {}\r\nX-Chronos-View", "0f".repeat(32));
    let asked = member.replace("\r\nX-Chronos-View", &nonce);
    let proof = format!("\r\nX-Chronos-Proof: {}\r\nX-Chronos-View", "5a".repeat(32));
    let proven = asked.replace("\r\nX-Chronos-View", &proof);
    let open = || {
        let mut stream = TcpStream::connect(node.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(asked.as_bytes()).expect("taken");
        let head = read_head(&mut stream);
        assert!(head.starts_with("HTTP/1.1 401 ") && head.contains("X-Chronos-Nonce: "), "{head}");
        (stream, head)
    };
    let ((mut one, head), (mut other, other_head)) = (open(), open());
    assert_ne!(head, other_head, "a nonce is drawn for each connection");
    for (stream, text) in [(&mut one, &proven), (&mut other, &asked)] {
        stream.write_all(text.as_bytes()).expect("taken");
        let head = read_head(stream);
        assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("it closes");
    }
    // A dialler that does not wait for the challenge gets none.
    let hasty = ask(node.address, &format!("{asked}{proven}"));
    assert!(hasty.starts_with("HTTP/1.1 400 "), "{hasty}");
    // After a challenge the connection still belongs to a client.
    let (mut client, _) = open();
    client.write_all(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n").expect("taken");
    let head = read_head(&mut client);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    until("the count", || sum(&node, "peer_unproven") == 2);
    finish(node);
}

#[test]
fn the_internal_api_is_closed_where_a_secret_is_required() {
    let port = free_port();
    let at = |accepts_unproven| Guard { accepts_unproven, ..guard(SECRET) };
    let requests = [
        "GET /timers?node-for-replicas=x&cluster-view-id=1 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /ping?members HTTP/1.1\r\nHost: x\r\n\r\n",
        "DELETE /timers/references HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{\"IDs\":[]}",
    ];
    let node = launch(&NodeSettings { guard: at(false), ..settings(0, 2, port, 1) });
    for request in requests {
        let answer = ask_from(12, node.address, request);
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert!(answer.contains("cluster.secret_file"), "{answer}");
    }
    until("the count", || sum(&node, "peer_unproven") == 3);
    assert_eq!(sum(&node, "internal_strangers"), 0, "it is at a member's address");
    finish(node);
    let node = launch(&NodeSettings { guard: at(true), ..settings(0, 2, port, 1) });
    for request in requests {
        let answer = ask_from(12, node.address, request);
        assert!(!answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
    finish(node);
}

#[test]
fn a_node_without_the_secret_is_refused_and_refuses() {
    let port = free_port();
    let first = launch(&NodeSettings { guard: guard(SECRET), ..settings(0, 2, port, 1) });
    let second = launch(&settings(1, 2, port, 1));
    let counts = || sum(&first, "peer_unproven") > 1 && sum(&second, "peer_unproven") > 1;
    until("both to tell", counts);
    assert!(!knows(&first, 1) && !knows(&second, 1));
    finish(second);
    // Until all nodes have the secret, the nodes that have it also take nodes without it.
    finish(first);
    let guard = Guard { accepts_unproven: true, ..guard(SECRET) };
    let first = launch(&NodeSettings { guard, ..settings(0, 2, port, 1) });
    let second = launch(&settings(1, 2, port, 1));
    until("both to meet", || knows(&first, 1) && knows(&second, 1));
    assert_eq!(sum(&first, "peer_unproven") + sum(&second, "peer_unproven"), 0);
    finish(first);
    finish(second);
}

#[test]
fn sites_prove_the_secret_over_the_internal_api() {
    let port = free_port();
    let site = |node: usize, guard: Guard| {
        let membership = Membership {
            localhost: address(node, port).to_string(),
            nodes: vec![address(node, port).to_string()],
            local_site: format!("site{node}"),
            remote_sites: vec![(format!("site{}", 1 - node), address(1 - node, port).to_string())],
            replicate_across_sites: true,
            ..Membership::default()
        };
        NodeSettings { membership: Some(membership), guard, ..settings(node, 1, port, 2) }
    };
    let reaches = |node: &NodeHandle| {
        let standing = |core: &CoreMeters| core.sites.get(PeerIndex(1));
        node.meters.iter().all(|core| standing(core).is_some_and(|site| site.is_reached))
    };
    let first = launch(&site(0, guard(SECRET)));
    let second = launch(&site(1, Guard::default()));
    let counts = || sum(&first, "peer_unproven") > 1 && sum(&second, "peer_unproven") > 1;
    until("both to tell", counts);
    assert!(!reaches(&first) && !reaches(&second));
    finish(second);
    let second = launch(&site(1, guard(SECRET)));
    until("the sites to meet", || reaches(&first) && reaches(&second));
    assert!(post(first.address, 1).starts_with("HTTP/1.1 200 "));
    until("a timer to arrive", || sum(&second, "internal_copies") > 0);
    finish(second);
    finish(first);
    let soft = Guard { accepts_unproven: true, ..guard(SECRET) };
    let (first, second) = (launch(&site(0, soft)), launch(&site(1, Guard::default())));
    until("the sites to meet", || reaches(&first) && reaches(&second));
    finish(first);
    finish(second);
}
