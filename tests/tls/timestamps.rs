//! Timestamps over TLS, beside those in the clear: the same values, whichever port they come from.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use chronos::wire::thrift::{Outcome, parse_reply, write_get_timestamps};
use kit::children::{self, Tied};
use kit::until::until;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::authorities::{Authority, Files};
use super::harness::{Node, PATIENCE, connect, session};
use super::tools::has;

const JAVA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls/Timestamps.java");

/// A node that hands out timestamps over TLS and, mostly, in the clear.
struct Served {
    node: Node,
    plain: Option<SocketAddr>,
    secure: SocketAddr,
    authority: Authority,
    files: Files,
}

/// The address behind a phrase in the log, once the phrase is there.
fn told(node: &Node, phrase: &str) -> Option<SocketAddr> {
    let logged = node.logged();
    let rest = logged.split_once(phrase)?.1;
    let end = rest.find(|c: char| !"0123456789.:".contains(c))?;
    rest[..end].trim_end_matches(':').parse().ok()
}

/// The files of a server, a bound for its timestamps, and the configuration that names all.
fn configured(tls: &str, timestamp: &str) -> (Authority, Files, String) {
    let authority = Authority::new();
    let files = Files::new(&authority.server());
    files.write("ca.pem", &authority.pem(), 0o644);
    let bound = files.path("bound");
    let mut init = children::command(env!("CARGO_BIN_EXE_chronos"));
    init.args(["timestamp", "init", "--file"]).arg(&bound);
    assert!(init.output_tied().expect("it runs").status.success());
    let config = format!(
        "{}[timestamp]\nenabled = true\nfile = '{}'\nlisten_tls = '127.0.0.1:0'\n{timestamp}\n",
        files.config(tls),
        bound.display()
    );
    (authority, files, config)
}

impl Served {
    fn start(tls: &str) -> Served {
        let (authority, files, config) = configured(tls, "listen = '127.0.0.1:0'");
        Served::of(Node::start(&config), authority, files)
    }

    /// A process that serves no timers and nothing in the clear. Clients need certificates.
    fn alone() -> Served {
        let (authority, files, config) = configured("", "listen = 'off'");
        let asked = format!("client_ca = {:?}\nclient_auth = 'required'\n", files.path("ca.pem"));
        let config = config.replace("[timestamp]", &format!("{asked}[timestamp]"));
        Served::of(Node::start_timestamps(&config), authority, files)
    }

    fn of(node: Node, authority: Authority, files: Files) -> Served {
        let secure = || told(&node, "over TLS Thrift clients connect to ");
        let secure = kit::until::until("the port of timestamps over TLS", PATIENCE, secure);
        kit::until::until("the master", PATIENCE, || {
            let status = kit::client::request(node.admin, "GET", "/status", "").ok()?;
            let status: serde_json::Value = serde_json::from_str(&status.body).ok()?;
            (status["timestamp"]["role"] == "master").then_some(())
        });
        let plain = told(&node, "timestamps for Thrift clients on ");
        Served { node, plain, secure, authority, files }
    }

    fn plain(&self) -> Calls<TcpStream> {
        Calls::over(connect(self.plain.expect("it has such a port")))
    }

    fn trusting(&self) -> Arc<ClientConfig> {
        self.authority.trusting(&[&TLS13], None)
    }

    fn secure(
        &self,
        config: &Arc<ClientConfig>,
    ) -> Calls<StreamOwned<ClientConnection, TcpStream>> {
        Calls::over(StreamOwned::new(session(config), connect(self.secure)))
    }

    fn assert_alive(&self) {
        self.secure(&self.trusting()).value(1);
        self.plain().value(1);
    }
}

/// Calls over a connection.
struct Calls<S> {
    stream: S,
    received: Vec<u8>,
    seqid: i32,
}

impl<S: Read + Write> Calls<S> {
    fn over(stream: S) -> Self {
        Calls { stream, received: Vec::new(), seqid: 0 }
    }

    /// The next reply: a value, or what an exception says. Error: the connection ended or broke.
    fn reply(&mut self) -> std::io::Result<Result<u64, String>> {
        loop {
            if let Some((reply, used)) = parse_reply(&self.received).expect("a reply") {
                let said = match reply.outcome {
                    Outcome::Value(value) => Ok(value as u64),
                    Outcome::Exception { message, .. } => {
                        Err(String::from_utf8_lossy(message).into_owned())
                    }
                    Outcome::NoValue => panic!("no value"),
                };
                self.received.drain(..used);
                return Ok(said);
            }
            let mut bytes = [0; 16 << 10];
            match self.stream.read(&mut bytes)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.received.extend_from_slice(&bytes[..count]),
            }
        }
    }

    fn call(&mut self, range: i32) -> std::io::Result<Result<u64, String>> {
        let mut call = Vec::new();
        self.seqid += 1;
        write_get_timestamps(&mut call, self.seqid, range);
        self.stream.write_all(&call)?;
        self.reply()
    }

    fn value(&mut self, range: i32) -> u64 {
        self.call(range).expect("the node answers").expect("a value")
    }
}

/// All that comes until the end of a connection, in whichever way it ends.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection stays open: {error}"),
    }
    all
}

#[test]
fn calls_over_tls_are_answered_as_plain_ones_are() {
    let served = Served::start("");
    for version in [&TLS12, &TLS13] {
        let mut calls = served.secure(&served.authority.trusting(&[version], None));
        let first = calls.value(10);
        assert!(calls.value(1) >= first + 10, "values behind a range follow it");
        let refused = calls.call(0).expect("the node answers").expect_err("no range");
        assert!(refused.contains("range"), "{refused}");
        calls.value(1);
    }
    served.node.await_metric("chronos_tls_handshakes_total", 2);
    assert_eq!(served.node.metric("chronos_tls_failed_total"), 0);
    served.assert_alive();
}

/// Whoever asks, and over whichever port: a value is above all that anybody had before.
#[test]
fn values_increase_over_both_ports_at_once() {
    let served = Served::start("");
    let highest = AtomicU64::new(0);
    let follow = |calls: &mut dyn FnMut() -> u64| {
        for _ in 0..2_000 {
            let before = highest.load(SeqCst);
            let value = calls();
            assert!(value > before, "{value} after {before}");
            highest.fetch_max(value, SeqCst);
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut calls = served.plain();
                follow(&mut || calls.value(1));
            });
            scope.spawn(|| {
                let mut calls = served.secure(&served.trusting());
                follow(&mut || calls.value(1));
            });
        }
    });
}

/// More calls than a turn takes, and more answers than are kept for a client that does not read.
#[test]
fn thousands_of_calls_at_once_are_answered_in_their_order() {
    const CALLS: i32 = 20_000;
    let served = Served::start("");
    let mut calls = served.secure(&served.trusting());
    calls.value(1);
    let mut all = Vec::new();
    (0..CALLS).for_each(|seqid| write_get_timestamps(&mut all, seqid, 1));
    calls.stream.conn.set_buffer_limit(None);
    calls.stream.conn.writer().write_all(&all).expect("memory");
    let mut last = 0;
    for _ in 0..CALLS {
        let value = calls.reply().expect("the node answers").expect("a value");
        assert!(value > last, "{value} after {last}");
        last = value;
    }
}

#[test]
fn without_a_good_certificate_nobody_gets_a_value() {
    let served = Served::alone();
    let (authority, other) = (&served.authority, Authority::new());
    assert!(served.plain.is_none(), "{}", served.node.logged());
    for version in [&TLS12, &TLS13] {
        let good = authority.trusting(&[version], Some(&authority.client()));
        let mut calls = served.secure(&good);
        calls.value(1);
        for (what, identity) in [
            ("none", None),
            ("of another authority", Some(other.client())),
            ("one that is good for servers", Some(authority.server())),
        ] {
            let config = authority.trusting(&[version], identity.as_ref());
            let error = served.secure(&config).call(1).expect_err(what).to_string();
            assert!(error.contains("alert"), "{what}: {error}");
        }
        // A client that believes another authority ends it by itself.
        let stranger = other.trusting(&[version], Some(&authority.client()));
        let error = served.secure(&stranger).call(1).expect_err("the client refuses").to_string();
        assert!(error.contains("invalid peer certificate"), "{error}");
        calls.value(1);
    }
    served.node.await_metric("chronos_tls_failed_total", 8);
}

#[test]
fn calls_in_the_clear_on_the_port_of_tls_are_told_where_it_is() {
    let served = Served::start("");
    let mut calls = Calls::over(connect(served.secure));
    let reason = calls.call(1).expect("an exception").expect_err("no value");
    assert!(reason.contains("this port speaks TLS") && reason.contains("listen"), "{reason}");
    assert_eq!(rest(&mut calls.stream), b"");
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"x", &[0; 100], &[0xff; 100]] {
        let mut stream = connect(served.secure);
        stream.write_all(nonsense).expect("taken");
        assert_eq!(rest(&mut stream), b"");
    }
    served.node.await_metric("chronos_tls_failed_total", 5);
    // The other way round there is no protocol in which to answer.
    let mut stream = connect(served.plain.expect("it has one"));
    let mut hello = Vec::new();
    session(&served.trusting()).write_tls(&mut hello).expect("memory");
    stream.write_all(&hello).expect("taken");
    assert_eq!(rest(&mut stream), b"");
    served.node.await_metric("chronos_timestamp_protocol_errors_total", 1);
    // What is no call ends a connection over TLS, and the end is told.
    let mut calls = served.secure(&served.trusting());
    calls.stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("taken");
    assert_eq!(calls.stream.read(&mut [0; 10]).expect("close_notify"), 0);
    served.assert_alive();
}

/// What no TLS begins with ends the connection as soon as it can be told.
#[test]
fn nonsense_ends_at_its_first_bytes() {
    let served = Served::start("");
    for head in [&[22, 9][..], &[22, 3, 1, 0x40, 0, 2], &[22, 3, 1, 0x40, 0, 1, 0xff, 0, 0]] {
        let mut stream = connect(served.secure);
        stream.write_all(head).expect("taken");
        assert_eq!(rest(&mut stream).first(), Some(&21), "an alert for {head:?}");
        until("the other end to be closed", PATIENCE, || stream.write_all(&[0; 1_000]).err());
    }
    served.node.await_metric("chronos_tls_failed_total", 3);
    served.assert_alive();
}

#[test]
fn handshakes_that_do_not_end_are_ended() {
    let served = Served::start("handshake_timeout_ms = 300");
    let mut hello = Vec::new();
    session(&served.trusting()).write_tls(&mut hello).expect("memory");
    for bytes in [0, 20, hello.len()] {
        let mut stream = connect(served.secure);
        stream.write_all(&hello[..bytes]).expect("taken");
        rest(&mut stream);
    }
    served.node.await_metric("chronos_tls_failed_total", 3);
    // More bytes than any handshake has, in records that never make a message.
    let mut stream = connect(served.secure);
    let first = [&[22, 3, 1, 0, 4][..], &[1, 0, 0xff, 0xff]].concat();
    let piece = [&[22, 3, 1, 0x40, 0][..], &[0; 0x4000]].concat();
    let mut result = stream.write_all(&first);
    for _ in 0..64 {
        result = result.and_then(|()| stream.write_all(&piece));
    }
    // Whether the node's end reaches the client before its last bytes are sent is chance.
    drop(result);
    rest(&mut stream);
    served.assert_alive();
}

#[test]
fn a_handshake_byte_by_byte_is_one() {
    let served = Served::start("");
    let (mut client, mut stream) = (session(&served.trusting()), connect(served.secure));
    while client.is_handshaking() {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).expect("memory");
        }
        wire.iter().for_each(|byte| stream.write_all(&[*byte]).expect("taken"));
        if client.wants_read() && client.is_handshaking() {
            assert!(client.read_tls(&mut stream).expect("bytes") > 0);
            client.process_new_packets().expect("good");
        }
    }
    Calls::over(StreamOwned::new(client, stream)).value(1);
}

#[test]
fn a_crowd_that_comes_at_once_is_served() {
    let served = Served::start("");
    let config = served.authority.trusting(&[&TLS13], None);
    let mut all: Vec<_> = (0..300).map(|_| served.secure(&config)).collect();
    for calls in &mut all {
        let mut call = Vec::new();
        write_get_timestamps(&mut call, 1, 1);
        calls.stream.conn.writer().write_all(&call).expect("memory");
        calls.stream.conn.write_tls(&mut calls.stream.sock).expect("taken");
    }
    for calls in &mut all {
        calls.reply().expect("the node answers").expect("a value");
    }
    served.node.await_metric("chronos_tls_handshakes_total", 300);
}

/// Two clients go on while certificates change: one on one connection, one with many.
#[test]
fn no_call_fails_while_certificates_change() {
    let served = Served::start("");
    let (is_over, fresh) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut calls = served.secure(&served.trusting());
            while !is_over.load(SeqCst) {
                calls.value(1);
            }
        });
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                served.secure(&served.trusting()).value(1);
                fresh.fetch_add(1, SeqCst);
            }
        });
        let _over = Over(&is_over);
        for _ in 0..5 {
            let before = fresh.load(SeqCst);
            served.node.change("get the new certificate", || {
                served.files.put(&served.authority.server());
            });
            kit::until::until("a new connection", PATIENCE, || {
                (fresh.load(SeqCst) > before + 1).then_some(())
            });
        }
    });
    assert_eq!(served.node.metric("chronos_tls_failed_total"), 0);
}

/// Ends the clients of a test, also of one that fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_process_of_timestamps_alone_takes_a_new_certificate_and_stops_in_order() {
    let served = Served::alone();
    let client = served.authority.client();
    let trusting = |authority: &Authority| authority.trusting(&[&TLS13], Some(&client));
    let mut old = served.secure(&trusting(&served.authority));
    old.value(1);
    let present = Authority::new();
    served.node.change("get the new certificate", || served.files.put(&present.server()));
    let config = trusting(&present);
    kit::until::until("the new certificate", PATIENCE, || {
        matches!(served.secure(&config).call(1), Ok(Ok(_))).then_some(())
    });
    old.value(1);
    served.node.stop();
    assert_eq!(old.stream.read(&mut [0; 10]).expect("close_notify"), 0);
    served.node.ended();
}

#[test]
fn java_takes_timestamps_over_tls() {
    if !has("java", "-version") {
        return;
    }
    let served = Served::alone();
    let client = served.authority.client();
    served.files.write("client.pem", &client.certificate, 0o644);
    served.files.write("client.key", &client.key, 0o600);
    let path = |name: &str| served.files.path(name).display().to_string();
    let java = |certificate: &str| {
        let mut java = children::command("java");
        java.args(["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", JAVA]);
        java.args([&served.secure.port().to_string(), &path("ca.pem"), certificate]);
        java.args([&path("client.key"), "500"]).output_tied().expect("java runs")
    };
    let output = java(&path("client.pem"));
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.starts_with("TLSv1.3 "), "{said}{errors}");
    let output = java("-");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("certificate_required"), "{errors}");
}
