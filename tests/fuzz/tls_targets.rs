//! What must hold for both sides of a TLS connection, on every input; as `targets.rs` for the
//! parsers. The other end is rustls. The input says how its bytes are cut, which one is changed, and
//! what it says.

use std::io::{Read, Write};
use std::sync::{Arc, LazyLock};

use chronos::tls::acceptor::{Acceptor, ClientAuth, Material};
use chronos::tls::connector::{ClientMaterial, Connector, Trust};
use chronos::tls::session::{Session, may_be_client_hello, may_be_tls};
use rustls::client::Resumption;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

/// Most rounds of a conversation: a handshake has two.
const ROUNDS_MAX: usize = 8;

struct Ends {
    acceptor: Acceptor,
    client: Arc<ClientConfig>,
    /// What the own client dials with, and the server that it meets.
    connector: Connector,
    server: Arc<ServerConfig>,
}

/// What both ends are made with. Each input begins anew: no client has a ticket.
static ENDS: LazyLock<[Ends; 2]> = LazyLock::new(|| {
    [&rustls::version::TLS12, &rustls::version::TLS13].map(|version| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("good");
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let material = Material {
            certificates: certificate.as_bytes(),
            key: key.as_bytes(),
            client_ca: &[],
            client_auth: ClientAuth::Off,
        };
        let acceptor = Acceptor::new(&material).expect("they fit");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a certificate");
        let builder = ClientConfig::builder_with_protocol_versions(&[version]);
        let mut client = builder.with_root_certificates(roots).with_no_client_auth();
        client.resumption = Resumption::disabled();
        let trust = Trust::These(certificate.as_bytes());
        let connector = Connector::new(&ClientMaterial { trust, identity: None }).expect("good");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let builder = ServerConfig::builder_with_protocol_versions(&[version]);
        let builder = builder.with_no_client_auth();
        let chain = vec![made.cert.der().clone()];
        let server = builder.with_single_cert(chain, key).expect("they fit").into();
        Ends { acceptor, client: Arc::new(client), connector, server }
    })
});

/// The first messages of a server of a version, as a client has them that will not take them: another
/// one was asked for.
#[allow(dead_code, reason = "libfuzzer/ makes no seeds")]
pub fn server_hello(version: usize) -> Vec<u8> {
    let mut hello = Vec::new();
    dial(&ENDS[version]).send(&mut hello);
    let mut server = ServerConnection::new(ENDS[version].server.clone()).expect("a server");
    server.read_tls(&mut &hello[..]).expect("memory");
    server.process_new_packets().expect("good");
    let mut wire = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut wire).expect("memory");
    }
    wire
}

/// What clients of a version are made with: 0 is TLS 1.2, 1 is TLS 1.3.
#[allow(dead_code, reason = "libfuzzer/ makes no seeds")]
pub fn client(version: usize) -> Arc<ClientConfig> {
    ENDS[version].client.clone()
}

/// Bytes that come where a handshake should begin: the end of it does not depend on how they are
/// cut, nothing of them is plaintext, and an error has an alert.
pub fn tls_hello(data: &[u8]) -> bool {
    let [piece, wire @ ..] = data else { return false };
    if !may_be_tls(wire) {
        return false;
    }
    let take = |bytes: usize| {
        let mut session = Session::accept(&ENDS[1].acceptor).expect("randomness");
        let (mut plain, mut told) = (Vec::new(), Vec::new());
        let mut pieces = wire.chunks(bytes);
        let result = pieces.try_for_each(|piece| session.receive(piece, &mut plain).map(drop));
        assert!(plain.is_empty() && session.is_handshaking());
        session.send(&mut told);
        assert!(!session.wants_to_send());
        assert!(result.is_ok() || !told.is_empty(), "an alert");
        let is_answered = result.is_ok() && !told.is_empty();
        assert!(!is_answered || may_be_client_hello(wire), "what is served would be refused");
        (result.is_err(), told.is_empty())
    };
    assert_eq!(take(usize::from(*piece) + 1), take(wire.len().max(1)));
    let (is_refused, _) = take(1);
    !is_refused
}

/// A whole conversation. Where no byte was changed, each end gets what the other one said; where one
/// was, it gets that or less, never anything else.
pub fn tls_conversation(data: &[u8]) -> bool {
    let [version, piece, change, at @ ..] = data else { return false };
    let [high, low, words @ ..] = at else { return false };
    let ends = &ENDS[usize::from(version % 2)];
    let mut session = Session::accept(&ends.acceptor).expect("randomness");
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(ends.client.clone(), name).expect("a client");
    client.writer().write_all(words).expect("memory");
    let mut left = usize::from(u16::from_be_bytes([*high, *low]));
    let (mut plain, mut answers, mut has_answered) = (Vec::new(), Vec::new(), false);
    for _ in 0..ROUNDS_MAX {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).expect("memory");
        }
        if let Some(byte) = wire.get_mut(left) {
            *byte ^= change;
        }
        left = left.wrapping_sub(wire.len());
        let mut pieces = wire.chunks(usize::from(*piece) + 1);
        let result = pieces.try_for_each(|piece| session.receive(piece, &mut plain).map(drop));
        if result.is_ok() && !session.is_handshaking() && !has_answered && plain == words {
            has_answered = true;
            session.write(words);
            session.close();
        }
        let mut back = Vec::new();
        session.send(&mut back);
        let mut rest = &back[..];
        while !rest.is_empty() && client.read_tls(&mut rest).is_ok_and(|taken| taken > 0) {
            if client.process_new_packets().is_err() {
                break;
            }
            // An error means that there is nothing yet, or that the connection has broken.
            let _ = client.reader().read_to_end(&mut answers);
        }
        if result.is_err() {
            break;
        }
    }
    assert!(words.starts_with(&plain), "the server got what the client did not say");
    assert!(words.starts_with(&answers), "the client got what the server did not say");
    if *change == 0 {
        assert!(has_answered && answers == words, "nothing was changed");
    }
    *change == 0
}

/// Bytes that come in place of a server's first message: the end of it does not depend on how they
/// are cut, nothing of them is plaintext, and an error is an end.
pub fn tls_server_hello(data: &[u8]) -> bool {
    let [version, piece, wire @ ..] = data else { return false };
    let take = |bytes: usize| {
        let mut session = dial(&ENDS[usize::from(version % 2)]);
        let (mut plain, mut told) = (Vec::new(), Vec::new());
        session.send(&mut told);
        let mut pieces = wire.chunks(bytes);
        let result = pieces.try_for_each(|piece| session.receive(piece, &mut plain).map(drop));
        assert!(plain.is_empty() && session.is_handshaking(), "no server has the key");
        session.send(&mut told);
        assert!(!session.wants_to_send());
        result.is_ok()
    };
    let is_taken = take(usize::from(*piece) + 1);
    assert_eq!(is_taken, take(wire.len().max(1)));
    assert_eq!(is_taken, take(1));
    is_taken
}

/// A side that dials, without a ticket of an earlier input.
fn dial(ends: &Ends) -> Session {
    Session::dial(&ends.connector.with_own_tickets(), "localhost").expect("a name")
}

/// A whole conversation that the own client has begun, with a server that answers what it is asked.
/// Where no byte of the server was changed, each end gets what the other one said; where one was, it
/// gets that or less, never anything else. Nothing is told to a server whose handshake has failed.
pub fn tls_dialled_conversation(data: &[u8]) -> bool {
    let [version, piece, change, at @ ..] = data else { return false };
    let [high, low, words @ ..] = at else { return false };
    let ends = &ENDS[usize::from(version % 2)];
    let mut session = dial(ends);
    let mut server = ServerConnection::new(ends.server.clone()).expect("a server");
    let mut left = usize::from(u16::from_be_bytes([*high, *low]));
    let (mut plain, mut asked, mut has_asked, mut has_ended) = (vec![], vec![], false, false);
    let mut has_answered = false;
    for _ in 0..ROUNDS_MAX {
        if !session.is_handshaking() && !has_asked {
            has_asked = true;
            session.write(words);
        }
        let mut there = Vec::new();
        session.send(&mut there);
        let mut rest = &there[..];
        while !rest.is_empty() && server.read_tls(&mut rest).is_ok_and(|taken| taken > 0) {
            if server.process_new_packets().is_err() {
                break;
            }
            // An error means that there is nothing yet.
            let _ = server.reader().read_to_end(&mut asked);
        }
        if has_asked && asked == words && !has_answered {
            has_answered = true;
            server.writer().write_all(words).expect("memory");
            server.send_close_notify();
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).expect("memory");
        }
        if let Some(byte) = wire.get_mut(left) {
            *byte ^= change;
        }
        left = left.wrapping_sub(wire.len());
        let mut pieces = wire.chunks(usize::from(*piece) + 1);
        let result = pieces.try_for_each(|piece| {
            session.receive(piece, &mut plain).map(|is_end| has_ended |= is_end)
        });
        if result.is_err() {
            break;
        }
    }
    assert!(words.starts_with(&asked), "the server got what the client did not say");
    assert!(words.starts_with(&plain), "the client got what the server did not say");
    if *change == 0 {
        assert!(plain == words && has_ended, "nothing was changed");
    }
    *change == 0
}
