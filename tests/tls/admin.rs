//! The admin API over TLS: who gets in, and what those meet who do not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use kit::children::{self, Tied};
use kit::until::until;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, StreamOwned};

use super::authorities::{Authority, Files};
use super::harness::{Node, PATIENCE, connect, session};
use super::tools::has;

/// Metrics are asked for in the format that has an end mark.
const ACCEPT: &str = "Accept: application/openmetrics-text";
/// Connections that the admin API holds at a time (`CONNECTIONS_MAX` in
/// `src/control/admin/listener.rs`).
const PLACES: usize = 64;
const LISTEN: &str = "[admin]\nlisten_tls = '127.0.0.1:0'\n";

pub fn started(more: &str) -> (Node, Authority, Files) {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    files.write("ca.pem", &authority.pem(), 0o644);
    let node = Node::start(&files.config(&format!("{LISTEN}{more}")));
    (node, authority, files)
}

fn place(node: &Node) -> SocketAddr {
    node.admin_tls.expect("it is told at the start")
}

/// Asks the admin API over TLS. Error: the connection ended in another way than it should.
fn ask(node: &Node, config: &Arc<ClientConfig>, request: &str) -> std::io::Result<String> {
    let mut stream = StreamOwned::new(session(config), connect(place(node)));
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn status(node: &Node, config: &Arc<ClientConfig>, line: &str, headers: &str) -> String {
    let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    let answer = ask(node, config, &request).expect("an answer and its end");
    answer[9..12].to_owned()
}

/// All that comes until the end of a connection, in whichever way it ends.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection stays open: {error}"),
    }
    all
}

#[test]
fn curl_asks_over_both_versions() {
    if !has("curl", "--version") {
        return;
    }
    let (node, _authority, files) = started("");
    let url = format!("https://localhost:{}", place(&node).port());
    let curl = |more: &[&str]| {
        let mut command = children::command("curl");
        command.args(["-sS", "-i", "--max-time", "60"]).args(more);
        let output = command.output_tied().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let ca = files.path("ca.pem").display().to_string();
    for version in [&["--tlsv1.3"][..], &["--tlsv1.2", "--tls-max", "1.2"]] {
        for (path, told) in [("healthz", "ok\n"), ("metrics", "# EOF\n"), ("status", "}\n")] {
            let url = format!("{url}/{path}");
            let (is_fine, answer) =
                curl(&[version, &["-H", ACCEPT, "--cacert", &ca, &url]].concat());
            assert!(is_fine && answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
            assert!(answer.ends_with(told), "{path}: {answer}");
        }
    }
    let url = format!("{url}/healthz");
    assert!(!curl(&[&url]).0, "the system does not believe this authority");
    let timer = super::harness::TIMER.replace("http://127.0.0.1:9/never", &url);
    let refused = kit::client::request(node.plain, "POST", "/timers", &timer).expect("an answer");
    assert_eq!(refused.status, 403, "no callback goes there: {}", refused.body);
    let old = ["--cacert", &ca, "--tlsv1.0", "--tls-max", "1.1", &url];
    assert!(!curl(&old).0, "old versions are not spoken");
}

/// A node whose admin API is not served without TLS, to clients with certificates alone.
#[test]
fn certificates_of_clients_are_asked_for_as_configured() {
    let (servers, people, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let files = Files::new(&servers.server());
    files.write("ca.pem", &people.pem(), 0o644);
    let node = Node::start(&files.config(&format!(
        "client_auth = 'required'\nclient_ca = '{}'\n{LISTEN}enabled = false\n",
        files.path("ca.pem").display()
    )));
    assert!(!node.logged().contains("admin API on http://"));
    let (known, stranger) = (people.client(), strangers.client());
    for version in [&TLS12, &TLS13] {
        let is_served = |identity| {
            let config = servers.trusting(&[version], identity);
            let answer = ask(&node, &config, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
            answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 "))
        };
        assert!(is_served(Some(&known)));
        assert!(!is_served(None) && !is_served(Some(&stranger)));
        // What a server shows is no certificate of a client.
        assert!(!is_served(Some(&people.server())));
    }
    let told = "the admin API over TLS has refused a client";
    until("a line of the log", PATIENCE, || node.logged().contains(told).then_some(()));
    assert_eq!(node.logged().matches(told).count(), 1, "once a minute");
}

#[test]
fn over_tls_looks_need_a_token_and_orders_that_of_an_operator() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let [reader, client, operator] = ["reader", "client", "operator"].map(|role| {
        let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
        command.args(["token", "new", "--name", role, "--role", role, "--file"]).arg(&file);
        let output = command.output_tied().expect("the binary runs");
        let token = String::from_utf8(output.stdout).expect("text");
        format!("Authorization: Bearer {}\r\n", token.trim())
    });
    let (node, authority, _files) =
        started(&format!("[auth]\ntokens_file = '{}'\n", file.display()));
    let config = authority.trusting(&[&TLS13], None);
    let of = |line: &str, headers: &str| status(&node, &config, line, headers);
    for line in ["GET /healthz", "GET /status", "GET /metrics", "GET /nothing", "HEAD /cluster"] {
        assert_eq!(of(line, ""), "401", "{line}");
        assert_eq!(of(line, "Authorization: Bearer chr_0\r\n"), "401", "{line}");
        for token in [&reader, &client, &operator] {
            let expected = if line.ends_with("nothing") { "404" } else { "200" };
            assert_eq!(of(line, token), expected, "{line}");
        }
    }
    let order = "POST /cluster/resync";
    let header = "X-Chronos-Order: 1\r\n";
    assert_eq!(of(order, header), "401");
    assert_eq!(of(order, &operator), "403", "without the header of orders");
    for (token, expected) in [(&reader, "403"), (&client, "403"), (&operator, "200")] {
        assert_eq!(of(order, &format!("{header}{token}")), expected);
    }
    // Without TLS who only looks needs none, as before.
    let plain = kit::client::request(node.admin, "GET", "/healthz", "").expect("an answer");
    assert_eq!(plain.status, 200);
    assert_eq!(of("GET /healthz", &format!("{reader}Origin: null\r\n")), "403", "a web page");
}

#[test]
fn what_is_no_tls_is_told_so_or_alarmed() {
    let (node, authority, _files) = started("");
    let long = format!("POST /backup HTTP/1.1\r\nHost: x\r\n\r\n{}", "x".repeat(100_000));
    for ask in ["GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "POST", "x", "\r\n", &long] {
        let mut stream = connect(place(&node));
        stream.write_all(ask.as_bytes()).expect("taken");
        stream.shutdown(std::net::Shutdown::Write).expect("open");
        let told = String::from_utf8(rest(&mut stream)).expect("text");
        assert!(told.starts_with("HTTP/1.1 400 "), "{:.60}: {told}", ask);
        assert!(told.contains("this port speaks TLS") && told.contains("https://"), "{told}");
    }
    let record = |length: u16, body: &[u8]| [&[22, 3, 3][..], &length.to_be_bytes(), body].concat();
    for (what, wire) in [
        ("no hello", record(4, &[1, 0, 0, 0])),
        ("a hello of nonsense", record(40, &[1; 40])),
        ("a record that is too long", record(0xffff, &[1; 100])),
        ("a hello of 16 MiB", record(100, &[&[1, 0xff, 0xff, 0xff][..], &[0; 96]].concat())),
    ] {
        let mut stream = connect(place(&node));
        stream.write_all(&wire).expect("taken");
        stream.shutdown(std::net::Shutdown::Write).expect("open");
        let told = rest(&mut stream);
        assert_eq!(told.first(), Some(&21), "{what}: {}", told.escape_ascii());
    }
    assert_eq!(status(&node, &authority.trusting(&[&TLS13], None), "GET /healthz", ""), "200");
}

/// Handshakes that are not begun, cut off, without end, or answered in pieces.
#[test]
fn handshakes_end_in_time_and_hold_up_nobody() {
    let (node, authority, _files) = started("");
    let config = authority.trusting(&[&TLS13], None);
    let mut hello = Vec::new();
    session(&config).write_tls(&mut hello).expect("memory");
    let begin = |wire: &[u8]| {
        let mut stream = connect(place(&node));
        stream.write_all(wire).expect("taken");
        stream
    };
    let began = Instant::now();
    // The first of them makes room for what follows, the others have their deadline.
    let mut silent: Vec<_> = (0..3 * PLACES).map(|_| begin(&[])).collect();
    silent.extend([begin(&hello[..20]), begin(&hello), begin(&hello[..hello.len() - 1])]);
    assert_eq!(status(&node, &config, "GET /healthz", ""), "200");
    let plain = kit::client::request(node.admin, "GET", "/healthz", "").expect("an answer");
    assert_eq!(plain.status, 200, "the plain listener has places of its own");
    for stream in &mut silent {
        rest(stream);
    }
    println!("all ended after {:?}", began.elapsed());
    // A message of 65 535 bytes, which is the longest that is waited for, begins and goes on.
    let piece = [&[22, 3, 1, 0x40, 0][..], &[0; 0x4000]].concat();
    let mut endless = begin(&[&[22, 3, 1, 0, 4][..], &[1, 0, 0xff, 0xff]].concat());
    let mut written = Ok(());
    for _ in 0..64 {
        written = written.and_then(|()| endless.write_all(&piece));
    }
    // Whether the node's end reaches the client before its last bytes are sent is chance.
    drop(written);
    rest(&mut endless);
    // A handshake in small pieces is one.
    let (mut client, mut stream) = (session(&config), connect(place(&node)));
    while client.is_handshaking() {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).expect("memory");
        }
        wire.chunks(100).for_each(|piece| stream.write_all(piece).expect("taken"));
        if client.wants_read() && client.is_handshaking() {
            assert!(client.read_tls(&mut stream).expect("bytes") > 0);
            client.process_new_packets().expect("good");
        }
    }
    let ask = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{ACCEPT}\r\n\r\n");
    client.writer().write_all(ask.as_bytes()).expect("memory");
    let mut answer = String::new();
    StreamOwned::new(client, stream).read_to_string(&mut answer).expect("an answer and its end");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("# EOF\n"), "{answer}");
}

/// Without SIGHUP. The former certificate stays until the new one fits its key.
#[test]
fn files_that_change_are_taken() {
    let (node, former, files) = started("");
    let present = Authority::new();
    let is_shown = |authority: &Authority| {
        let config = authority.trusting(&[&TLS13], None);
        let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        ask(&node, &config, request).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 "))
    };
    assert!(is_shown(&former) && !is_shown(&present));
    let next = present.server();
    files.write("cert.pem", &next.certificate, 0o644);
    let told = || node.logged().contains("it does not fit").then_some(());
    until("the mistake in the log", PATIENCE, told);
    assert!(is_shown(&former));
    files.write("key.pem", &next.key, 0o600);
    until("the new certificate", PATIENCE, || is_shown(&present).then_some(()));
    assert!(!is_shown(&former));
}
