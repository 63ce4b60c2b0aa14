//! Acceptors and sessions against rustls' own client.

use std::io::{Read, Write};
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore};

use super::acceptor::{Acceptor, ClientAuth, Material};
use super::connector::{ClientMaterial, Connector, Trust};
use super::material::MaterialError;
use super::session::{Session, TlsError};

/// A certificate that signs itself, its key, and what clients trust it with.
struct Made {
    certificate: String,
    key: String,
    client: Arc<ClientConfig>,
}

fn made(key: &KeyPair) -> Made {
    let parameters = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let certificate = parameters.self_signed(key).expect("its own");
    let client = trusting(certificate.der());
    Made { certificate: certificate.pem(), key: key.serialize_pem(), client }
}

fn trusting(certificate: &CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("a certificate");
    Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

fn p256() -> Made {
    made(&KeyPair::generate().expect("randomness"))
}

fn material<'a>(certificates: &'a str, key: &'a str, client_ca: &'a str) -> Material<'a> {
    Material {
        certificates: certificates.as_bytes(),
        key: key.as_bytes(),
        client_ca: client_ca.as_bytes(),
        client_auth: ClientAuth::Off,
    }
}

fn acceptor(made: &Made) -> Acceptor {
    Acceptor::new(&material(&made.certificate, &made.key, "")).expect("they fit")
}

/// Carries bytes both ways until nobody has any. Returns what the client said.
fn talk(client: &mut ClientConnection, session: &mut Session) -> Result<Vec<u8>, TlsError> {
    let mut plain = Vec::new();
    loop {
        let (mut there, mut back) = (Vec::new(), Vec::new());
        while client.wants_write() {
            client.write_tls(&mut there).expect("memory");
        }
        session.receive(&there, &mut plain)?;
        session.send(&mut back);
        if there.is_empty() && back.is_empty() {
            return Ok(plain);
        }
        let mut rest = &back[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("memory");
            client.process_new_packets().expect("the server is good");
        }
    }
}

fn client(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("localhost").expect("a name");
    ClientConnection::new(config.clone(), name).expect("a client")
}

/// How a client of this configuration comes to its connection.
fn kind_of(config: &Arc<ClientConfig>, acceptor: &Acceptor) -> Option<HandshakeKind> {
    let (mut client, mut session) =
        (client(config), Session::accept(acceptor).expect("randomness"));
    client.writer().write_all(b"ask").expect("memory");
    assert_eq!(talk(&mut client, &mut session).expect("good"), b"ask");
    assert_eq!(session.is_resumed(), client.handshake_kind() == Some(HandshakeKind::Resumed));
    client.handshake_kind()
}

#[test]
fn keys_of_every_kind_serve() {
    let kinds = [&PKCS_ECDSA_P384_SHA384, &PKCS_ED25519];
    let keys = kinds.map(|kind| KeyPair::generate_for(kind).expect("randomness"));
    for made in keys.iter().map(made).chain([p256()]) {
        assert_eq!(kind_of(&made.client, &acceptor(&made)), Some(HandshakeKind::Full));
    }
}

#[test]
fn what_was_written_leaves_and_the_end_is_told() {
    let made = p256();
    let (mut client, acceptor) = (client(&made.client), acceptor(&made));
    let mut session = Session::accept(&acceptor).expect("randomness");
    assert!(session.is_handshaking() && !session.wants_to_send());
    talk(&mut client, &mut session).expect("good");
    assert!(!session.is_handshaking());
    let answer: Vec<u8> = (0..10_000_u32).map(|at| at as u8).collect();
    session.write(&answer);
    session.close();
    talk(&mut client, &mut session).expect("good");
    let mut got = Vec::new();
    client.reader().read_to_end(&mut got).expect("the end was told");
    assert_eq!(got, answer);
    client.send_close_notify();
    let mut wire = Vec::new();
    client.write_tls(&mut wire).expect("memory");
    assert_eq!(session.receive(&wire, &mut got), Ok(true));
    assert_eq!(session.receive(b"what follows is not looked at", &mut got), Ok(true));
    assert_eq!(got, answer);
}

#[test]
fn a_message_that_is_too_long_has_an_alert_as_well() {
    let made = p256();
    for wire in [
        &[22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff][..],
        &[22, 3, 1, 0, 4, 9, 0, 0, 0],
        &[22, 3, 1, 0xff, 0xff, 0],
    ] {
        let mut session = Session::accept(&acceptor(&made)).expect("randomness");
        session.receive(wire, &mut Vec::new()).expect_err("no handshake");
        let mut told = Vec::new();
        session.send(&mut told);
        assert_eq!(&told[..5], [21, 3, 3, 0, 2], "{told:?}");
        assert!(!session.wants_to_send());
    }
}

#[test]
fn tickets_stay_with_those_who_are_asked_for_the_same() {
    let (made, other) = (p256(), p256());
    let first = acceptor(&made);
    assert_eq!(kind_of(&made.client, &first), Some(HandshakeKind::Full));
    let renewed = Acceptor::new(&material(&made.certificate, &made.key, "")).expect("they fit");
    assert_eq!(first, renewed);
    let following = renewed.following(&first);
    assert_eq!(kind_of(&made.client, &following), Some(HandshakeKind::Resumed));
    // One that follows nobody has keys of its own.
    assert_eq!(kind_of(&made.client, &renewed), Some(HandshakeKind::Full));
    let asking = Material {
        client_auth: ClientAuth::Optional,
        ..material(&made.certificate, &made.key, &other.certificate)
    };
    let asking = Acceptor::new(&asking).expect("they fit").following(&following);
    assert_ne!(asking, following);
    assert_eq!(kind_of(&made.client, &asking), Some(HandshakeKind::Full));
}

#[test]
fn what_is_wrong_with_the_texts_is_told_and_no_key_is_shown() {
    let (one, other) = (p256(), p256());
    let told = |certificates: &str, key: &str| {
        let error = Acceptor::new(&material(certificates, key, "")).expect_err("wrong");
        let shown = format!("{error} {error:?}");
        let secret = one.key.lines().nth(1).expect("a line of the key");
        assert!(!shown.contains(secret), "{shown}");
        error
    };
    assert_eq!(told(&one.certificate, &other.key), MaterialError::OtherKey);
    assert_eq!(told(&one.certificate, &one.certificate), MaterialError::NoKey);
    assert_eq!(told(&one.certificate, ""), MaterialError::NoKey);
    assert_eq!(told(&one.certificate, &one.key[..80]), MaterialError::NoKey);
    assert_eq!(told(&one.key, &one.key), MaterialError::NoCertificate("none".into()));
    assert!(matches!(told(&one.certificate[..90], &one.key), MaterialError::NoCertificate(_)));
    let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(told(nonsense, &one.key), MaterialError::BadCertificate(_)));
    let nonsense = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert_eq!(told(&one.certificate, nonsense), MaterialError::UnknownKey);
    for client_ca in ["", &one.key, "-----BEGIN CERTIFICATE-----\nAAAA"] {
        let asking = Material {
            client_auth: ClientAuth::Required,
            ..material(&one.certificate, &one.key, client_ca)
        };
        let error = Acceptor::new(&asking).expect_err("no authority");
        assert!(matches!(error, MaterialError::BadAuthorities(_)), "{error}");
    }
    assert_eq!(format!("{:?}", acceptor(&one)), "Acceptor { .. }");
}

#[test]
fn the_time_of_a_certificate_is_looked_at() {
    let mut parameters = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    parameters.not_before = rcgen::date_time_ymd(2024, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2025, 1, 1);
    let key = KeyPair::generate().expect("randomness");
    let certificate = parameters.self_signed(&key).expect("its own").pem();
    let key = key.serialize_pem();
    let acceptor = Acceptor::new(&material(&certificate, &key, "")).expect("they fit");
    // Seconds since 1970 in the middle of 2024, of 2023 and of 2025.
    assert_eq!(acceptor.untimely(1_720_000_000), None);
    assert!(acceptor.untimely(1_690_000_000).is_some_and(|told| told.contains("from 2024-01-01")));
    assert!(acceptor.untimely(1_750_000_000).is_some_and(|told| told.contains("has expired")));
}

/// Carries bytes both ways until nobody has any. Returns what the server got.
fn converse(dialled: &mut Session, accepted: &mut Session) -> Result<Vec<u8>, TlsError> {
    let (mut said, mut answered) = (Vec::new(), Vec::new());
    loop {
        let (mut there, mut back) = (Vec::new(), Vec::new());
        dialled.send(&mut there);
        accepted.receive(&there, &mut said)?;
        accepted.send(&mut back);
        dialled.receive(&back, &mut answered)?;
        if there.is_empty() && back.is_empty() {
            return Ok(said);
        }
    }
}

fn connector(trust: Trust<'_>, identity: Option<(&[u8], &[u8])>) -> Connector {
    Connector::new(&ClientMaterial { trust, identity }).expect("good texts")
}

#[test]
fn a_dialled_session_checks_whom_it_meets() {
    let (made, other) = (p256(), p256());
    let acceptor = acceptor(&made);
    let meet = |connector: &Connector, host: &str| -> Result<bool, TlsError> {
        let mut dialled = Session::dial(connector, host)?;
        let mut accepted = Session::accept(&acceptor).expect("randomness");
        converse(&mut dialled, &mut accepted)?;
        assert!(!dialled.is_handshaking());
        dialled.write(b"ask");
        assert_eq!(converse(&mut dialled, &mut accepted)?, b"ask");
        Ok(dialled.is_resumed())
    };
    let good = connector(Trust::These(made.certificate.as_bytes()), None);
    assert_eq!(meet(&good, "localhost"), Ok(false));
    assert_eq!(meet(&good, "LocalHost."), Ok(true), "a ticket of the first");
    let wrong = meet(&good, "other.example").expect_err("the certificate has another name");
    assert!(wrong.to_string().contains("other.example"), "{wrong}");
    assert!(meet(&good, "127.0.0.1").is_err());
    assert!(meet(&good, "no name").is_err());
    let stranger = connector(Trust::These(other.certificate.as_bytes()), None);
    meet(&stranger, "localhost").expect_err("another authority");
}

#[test]
fn a_dialled_session_shows_its_certificate() {
    let (server, client) = (p256(), p256());
    let asking = Material {
        client_auth: ClientAuth::Required,
        ..material(&server.certificate, &server.key, &client.certificate)
    };
    let acceptor = Acceptor::new(&asking).expect("they fit");
    let meet = |identity| {
        let connector = connector(Trust::These(server.certificate.as_bytes()), identity);
        let mut dialled = Session::dial(&connector, "localhost").expect("a name");
        let mut accepted = Session::accept(&acceptor).expect("randomness");
        converse(&mut dialled, &mut accepted)
    };
    meet(Some((client.certificate.as_bytes(), client.key.as_bytes()))).expect("the right one");
    meet(Some((server.certificate.as_bytes(), server.key.as_bytes()))).expect_err("another one");
    meet(None).expect_err("none");
}

#[test]
fn connectors_are_the_same_by_their_texts() {
    let (one, other) = (p256(), p256());
    let these = |made: &Made| connector(Trust::These(made.certificate.as_bytes()), None);
    assert_eq!(these(&one), these(&one));
    assert_ne!(these(&one), these(&other));
    let wrong = ClientMaterial {
        trust: Trust::These(one.certificate.as_bytes()),
        identity: Some((one.certificate.as_bytes(), other.key.as_bytes())),
    };
    assert_eq!(Connector::new(&wrong), Err(MaterialError::OtherKey));
    let wrong = ClientMaterial { trust: Trust::These(b"none"), identity: None };
    assert!(matches!(Connector::new(&wrong), Err(MaterialError::BadAuthorities(_))));
    assert_eq!(format!("{:?}", these(&one)), "Connector { .. }");
}
