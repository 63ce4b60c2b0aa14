//! What this project's TLS costs beyond the library's, and what TLS costs beyond nothing: records of
//! a request and its answer, and handshakes, full and by a ticket, of each side.
//!
//! Both ends are in this thread, the only one of its process, and the CPU time of one side is
//! counted. The ways are measured by turns, so that noise meets all. No byte crosses a socket. The
//! other end is always the library used directly. Medians are printed.
//!
//! Run: `cargo bench --bench tls`, or with `CHRONOS_BENCH_QUICK=1` in about 3 s.

mod counting;

use std::hint::black_box;
use std::io::{Read, Write};
use std::sync::Arc;

use chronos::ring::process_cpu_ns;
use chronos::tls::acceptor::{Acceptor, ClientAuth, Material};
use chronos::tls::connector::{ClientMaterial, Connector, Trust};
use chronos::tls::session::Session;
use counting::Asked;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, Connection, HandshakeKind, RootCertStore, ServerConfig,
    ServerConnection, SupportedProtocolVersion,
};

/// Bytes of a request and of its answer.
const REQUEST: usize = 300;
const ANSWER: usize = 100;
/// Requests of a batch: the sealed ones and the answers stay in the second cache.
const BATCH: usize = 256;

/// One side of a connection as its owner uses it.
trait Side {
    /// Appends what the bytes of the wire say. They are good in this bench.
    fn take(&mut self, wire: &[u8], plain: &mut Vec<u8>);
    /// Encrypts.
    fn write(&mut self, plain: &[u8]);
    /// Appends the bytes that are to leave.
    fn send(&mut self, wire: &mut Vec<u8>);
    fn is_shaking(&self) -> bool;
}

impl Side for Session {
    fn take(&mut self, wire: &[u8], plain: &mut Vec<u8>) {
        self.receive(wire, plain).expect("good");
    }

    fn write(&mut self, plain: &[u8]) {
        self.write(plain);
    }

    fn send(&mut self, wire: &mut Vec<u8>) {
        self.send(wire);
    }

    fn is_shaking(&self) -> bool {
        self.is_handshaking()
    }
}

/// The library alone, as its documentation uses it.
impl Side for Connection {
    fn take(&mut self, mut wire: &[u8], plain: &mut Vec<u8>) {
        while !wire.is_empty() {
            self.read_tls(&mut wire).expect("memory");
            let state = self.process_new_packets().expect("good");
            let begins = plain.len();
            plain.resize(begins + state.plaintext_bytes_to_read(), 0);
            self.reader().read_exact(&mut plain[begins..]).expect("there");
        }
    }

    fn write(&mut self, plain: &[u8]) {
        self.writer().write_all(plain).expect("memory");
    }

    fn send(&mut self, wire: &mut Vec<u8>) {
        while self.wants_write() {
            self.write_tls(wire).expect("memory");
        }
    }

    fn is_shaking(&self) -> bool {
        self.is_handshaking()
    }
}

/// No TLS: what comes and goes is copied.
#[derive(Default)]
struct Copied(Vec<u8>);

impl Side for Copied {
    fn take(&mut self, wire: &[u8], plain: &mut Vec<u8>) {
        plain.extend_from_slice(wire);
    }

    fn write(&mut self, plain: &[u8]) {
        self.0.extend_from_slice(plain);
    }

    fn send(&mut self, wire: &mut Vec<u8>) {
        wire.append(&mut self.0);
    }

    fn is_shaking(&self) -> bool {
        false
    }
}

/// What both ends are made with, by the project and by the library.
struct Ends {
    name: &'static str,
    acceptor: Acceptor,
    connector: Connector,
    /// What is measured speaks both versions, as the project's does. The other end decides.
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    server_of_version: Arc<ServerConfig>,
    client_of_version: Arc<ClientConfig>,
}

impl Ends {
    fn new(name: &'static str, version: &'static SupportedProtocolVersion) -> Ends {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("good");
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let material = Material {
            certificates: certificate.as_bytes(),
            key: key.as_bytes(),
            client_ca: &[],
            client_auth: ClientAuth::Off,
        };
        let acceptor = Acceptor::new(&material).expect("they fit");
        let trust = Trust::These(certificate.as_bytes());
        let connector = Connector::new(&ClientMaterial { trust, identity: None }).expect("good");
        let server = |versions: &[&'static SupportedProtocolVersion]| {
            let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
            let builder = ServerConfig::builder_with_protocol_versions(versions);
            let chain = vec![made.cert.der().clone()];
            let server = builder.with_no_client_auth().with_single_cert(chain, key);
            // As the project's: tickets in place of sessions that are kept.
            let mut server = server.expect("they fit");
            server.ticketer = Ticketer::new().expect("randomness");
            server.session_storage = Arc::new(NoServerSessionStorage {});
            server.alpn_protocols = vec![b"http/1.1".to_vec()];
            Arc::new(server)
        };
        let client = |versions: &[&'static SupportedProtocolVersion]| {
            let mut roots = RootCertStore::empty();
            roots.add(made.cert.der().clone()).expect("a certificate");
            let builder = ClientConfig::builder_with_protocol_versions(versions);
            let mut client = builder.with_root_certificates(roots).with_no_client_auth();
            client.alpn_protocols = vec![b"http/1.1".to_vec()];
            Arc::new(client)
        };
        Ends {
            name,
            acceptor,
            connector,
            server: server(rustls::ALL_VERSIONS),
            client: client(rustls::ALL_VERSIONS),
            server_of_version: server(&[version]),
            client_of_version: client(&[version]),
        }
    }
}

fn direct_server(config: &Arc<ServerConfig>) -> Connection {
    unlimited(ServerConnection::new(Arc::clone(config)).expect("randomness").into())
}

fn direct_client(config: &Arc<ClientConfig>) -> Connection {
    let name = ServerName::try_from("localhost").expect("a name");
    unlimited(ClientConnection::new(Arc::clone(config), name).expect("a client").into())
}

fn unlimited(mut connection: Connection) -> Connection {
    connection.set_buffer_limit(None);
    connection
}

/// Adds up the CPU time of one side.
#[derive(Default)]
struct Watch {
    ns: u64,
    asked: u64,
}

impl Watch {
    fn measure<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (before, asked) = (process_cpu_ns(), Asked::by_this_thread());
        let done = work();
        self.ns += process_cpu_ns() - before;
        self.asked += Asked::since(asked).allocations;
        done
    }
}

/// Carries bytes between the two until neither has any. `first` speaks first; the time of one of the
/// two is counted.
fn converse(first: &mut dyn Side, second: &mut dyn Side, watch: &mut Watch, counts_first: bool) {
    let mut scratch = Vec::new();
    loop {
        let (mut there, mut back) = (Vec::with_capacity(4_096), Vec::with_capacity(4_096));
        let act = |watch: &mut Watch, is_first: bool, work: &mut dyn FnMut()| {
            if is_first == counts_first { watch.measure(work) } else { work() }
        };
        act(watch, true, &mut || first.send(&mut there));
        act(watch, false, &mut || {
            second.take(&there, &mut scratch);
            second.send(&mut back);
        });
        act(watch, true, &mut || first.take(&back, &mut scratch));
        if there.is_empty() && back.is_empty() {
            assert!(!first.is_shaking() && !second.is_shaking());
            return;
        }
    }
}

/// A batch of requests and answers. Returns what each side took: who asks, and who answers.
fn batch(client: &mut dyn Side, server: &mut dyn Side) -> [Watch; 2] {
    let (request, answer) = ([b'q'; REQUEST], [b'a'; ANSWER]);
    let buffers = || -> Vec<Vec<u8>> { (0..BATCH).map(|_| Vec::with_capacity(512)).collect() };
    let (mut requests, mut answers) = (buffers(), buffers());
    let (mut plain, mut watches) = (Vec::with_capacity(512), <[Watch; 2]>::default());
    watches[0].measure(|| {
        for wire in &mut requests {
            client.write(black_box(&request));
            client.send(wire);
        }
    });
    watches[1].measure(|| {
        for (wire, back) in requests.iter().zip(&mut answers) {
            plain.clear();
            server.take(black_box(wire), &mut plain);
            assert_eq!(plain.len(), REQUEST);
            server.write(black_box(&answer));
            server.send(back);
        }
    });
    watches[0].measure(|| {
        for back in &answers {
            plain.clear();
            client.take(black_box(back), &mut plain);
            assert_eq!(plain.len(), ANSWER);
        }
    });
    watches
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A client and a server that talk to each other.
type Pair = (Box<dyn Side>, Box<dyn Side>);

fn records(ends: &Ends, rounds: usize) {
    let server = || direct_server(&ends.server_of_version);
    let ours = Session::accept(&ends.acceptor).expect("randomness");
    let dialled = Session::dial(&ends.connector, "localhost").expect("a name");
    let client = || direct_client(&ends.client_of_version);
    // Which side of a pair is looked at.
    let mut pairs: [(Pair, usize); 6] = [
        ((Box::new(Copied::default()), Box::new(Copied::default())), 1),
        ((Box::new(client()), Box::new(server())), 1),
        ((Box::new(client()), Box::new(ours)), 1),
        ((Box::new(Copied::default()), Box::new(Copied::default())), 0),
        ((Box::new(client()), Box::new(server())), 0),
        ((Box::new(dialled), Box::new(server())), 0),
    ];
    for ((client, server), _) in &mut pairs {
        converse(&mut **client, &mut **server, &mut Watch::default(), true);
    }
    let mut taken: [Vec<f64>; 6] = Default::default();
    let mut asked = [0.0; 6];
    for _ in 0..rounds {
        for (at, ((client, server), side)) in pairs.iter_mut().enumerate() {
            let watch = &batch(&mut **client, &mut **server)[*side];
            taken[at].push(watch.ns as f64 / BATCH as f64);
            asked[at] = watch.asked as f64 / BATCH as f64;
        }
    }
    let ns = taken.each_mut().map(|taken| median(taken));
    let answers = format!("{REQUEST} bytes decrypted, {ANSWER} encrypted");
    let asks = format!("{REQUEST} bytes encrypted, {ANSWER} decrypted");
    for (what, at) in [(answers, 0), (asks, 3)] {
        println!(
            "{}, {what}: copied {:.0} ns, the library {:.0} ns, ours {:.0} ns (time x {:.2}); \
             allocations {:.1}, {:.1}, {:.1}",
            ends.name,
            ns[at],
            ns[at + 1],
            ns[at + 2],
            ns[at + 2] / ns[at + 1],
            asked[at],
            asked[at + 1],
            asked[at + 2]
        );
    }
}

/// A handshake, of which one side's time is measured.
type Way<'a> = dyn Fn(&mut Watch) -> Option<HandshakeKind> + 'a;

/// CPU time in us of one side's handshakes.
fn shake_us(
    each: usize,
    mut shake: impl FnMut(&mut Watch) -> Option<HandshakeKind>,
    is: HandshakeKind,
) -> f64 {
    let mut watch = Watch::default();
    for _ in 0..each {
        assert_eq!(shake(&mut watch), Some(is));
    }
    watch.ns as f64 / 1e3 / each as f64
}

/// Handshakes of one kind, of both sides, by the library and by the project.
fn handshakes(ends: &Ends, is_resumed: bool, rounds: usize, each: usize) {
    let kind = if is_resumed { HandshakeKind::Resumed } else { HandshakeKind::Full };
    // One of each: a ticket of one server is worth nothing at another.
    let config = |of: &ClientConfig| {
        let mut config = of.clone();
        config.resumption =
            if is_resumed { Resumption::in_memory_sessions(16) } else { Resumption::disabled() };
        Arc::new(config)
    };
    let [first, second] = [(); 2].map(|()| config(&ends.client_of_version));
    // Who dials keeps the tickets that it gets, as the project does.
    let keeping = || {
        let mut config = ClientConfig::clone(&ends.client);
        config.resumption = Resumption::in_memory_sessions(16);
        Arc::new(config)
    };
    let dialling = keeping();
    let own = ends.connector.with_own_tickets();
    let by_library = |watch: &mut Watch| {
        let mut client = direct_client(&first);
        let mut server = watch.measure(|| direct_server(&ends.server));
        converse(&mut client, &mut server, watch, false);
        client.handshake_kind()
    };
    let by_us = |watch: &mut Watch| {
        let mut client = direct_client(&second);
        let mut server = watch.measure(|| Session::accept(&ends.acceptor).expect("randomness"));
        converse(&mut client, &mut server, watch, false);
        client.handshake_kind()
    };
    let dialled_by_library = |watch: &mut Watch| {
        let mut server = direct_server(&ends.server_of_version);
        let fresh = (!is_resumed).then(keeping);
        let config = fresh.as_ref().unwrap_or(&dialling);
        let mut client = watch.measure(|| direct_client(config));
        converse(&mut client, &mut server, watch, true);
        client.handshake_kind()
    };
    let dialled_by_us = |watch: &mut Watch| {
        let fresh = (!is_resumed).then(|| ends.connector.with_own_tickets());
        let mut server = direct_server(&ends.server_of_version);
        let connector = fresh.as_ref().unwrap_or(&own);
        let mut client = watch.measure(|| Session::dial(connector, "localhost").expect("a name"));
        converse(&mut client, &mut server, watch, true);
        Some(if client.is_resumed() { HandshakeKind::Resumed } else { HandshakeKind::Full })
    };
    // The tickets of the first ones.
    let mut none = Watch::default();
    let ways: [&Way<'_>; 4] = [&by_library, &by_us, &dialled_by_library, &dialled_by_us];
    for way in ways {
        way(&mut none);
    }
    let mut taken: [Vec<f64>; 4] = Default::default();
    for _ in 0..rounds {
        for (taken, way) in taken.iter_mut().zip(ways) {
            taken.push(shake_us(each, way, kind));
        }
    }
    let us = taken.each_mut().map(|taken| median(taken));
    for (side, library, ours) in [("accepted", us[0], us[1]), ("dialled", us[2], us[3])] {
        println!(
            "{}, {kind:?}, {side}: the library {library:.1} us, {:.0}/s and core; ours {ours:.1} \
             us, {:.0}/s and core (rate x {:.2})",
            ends.name,
            1e6 / library,
            1e6 / ours,
            library / ours
        );
    }
}

fn main() {
    let is_quick = std::env::var_os("CHRONOS_BENCH_QUICK").is_some();
    let (rounds, each) = if is_quick { (3, 20) } else { (31, 100) };
    println!("CPU time of one side, medians of {rounds} rounds of handshakes");
    for ends in [Ends::new("TLS 1.3", &TLS13), Ends::new("TLS 1.2", &TLS12)] {
        records(&ends, rounds * 11);
        for is_resumed in [false, true] {
            handshakes(&ends, is_resumed, rounds, each);
        }
    }
}
